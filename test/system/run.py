#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""System tests: scripted kernel nodes route through a live Millrace in network namespaces.

Each test is an `async def test_*(env)` in tests/, run in a process of its own with a deadline.
Prints one PASS, FAIL or SKIP line for each; exits non-zero when one failed.
"""

import argparse
import asyncio
import importlib
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from lnetpy import netns                        # noqa: E402
from lnetpy.cards import MODELS             # noqa: E402
from lnetpy.env import Env, Failed, Skip, stretch_of    # noqa: E402
from lnetpy.router import starts_took       # noqa: E402
from lnetpy.seen import seen                # noqa: E402

SKIPPED, FAILED, STARVED = 77, 1, 3
DEFAULT_TIMEOUT = 60.0
# A test fails as starved, and is run once more with no other beside it, where its router or its personas got a CPU for less
# than a third of the time in which they had something to do.
STARVED_FROM = 3.0
TO_TELL = 30.0      # s, for a test over its deadline


# Tests of what a router does for other nodes run on both transports: host sockets, and our own TCP on ports.
FORWARDING = ("back", "end_nodes", "faults", "hostile", "ipv6", "load_failures", "load_fairness", "load_line", "malformed",
              "mutation", "replay", "routed", "status", "unprivileged", "privileges")


# … and in a guest on network cards, beside the tests of these.
ON_CARDS = ("routed", "load_failures", "load_fairness", "load_line")


def transports(module, f, wanted):
    """On which transports a test runs, of those wanted. `nic`: ports on cards of each model, in a guest that has them."""
    there = getattr(f, "transports", None)
    if there is None:
        there = ("kernel", "port") if module in FORWARDING and not getattr(f, "no_router", False) else ("kernel",)
    if wanted == "nic":
        return MODELS if "nic" in there or ("port" in there and module in ON_CARDS) else ()
    return [t for t in there if t != "nic" and wanted in (t, "both")]


# Tests of input that no kernel sends: on both builds, and on both transports.
UNTRUSTED = ("faults", "malformed")


# Over host sockets and in the other cases they show what they are about; over ports they are for when there is time.
WITH_TIME = ("load_line.two_buffers_of_each_kind[2]@port", "load_failures.link_flap[peers]@port",
             "load_failures.kill[clients]@port", "load_fairness.share_of_one_server[20]@port",
             "load_fairness.half_messages[another server]@port", "back.without_state", "back.without_state@port",
             "soak.attackers")     # `hostile` has each of these attacks over host sockets; over ports they come all together


# Attackers cost themselves so little that a router with sanitizers is behind them for a minute.
FOR_PLAIN = ("hostile.kept_out[200]@port", "hostile.kept_out[a /64]@port")


def builds(module, f, transport, name):
    """On which builds a test runs where time is short: all tests but those above on one at least.

    Tests that measure want the build without sanitizers. Our own TCP and control, which have most of the memory of their own to
    err in, are for the one with them. An attack (`hostile`) is there over ports; only tests that are about bytes that no kernel
    sends are on both over host sockets too.
    """
    if name in WITH_TIME:
        return ()
    if getattr(f, "alone", False) or module.startswith("load_") or "_load_" in module or name in FOR_PLAIN:
        return ("plain",)
    if transport == "port" or module.startswith("control_"):
        return ("asan",)
    return ("plain", "asan") if module in UNTRUSTED else ("plain",)


def under_tsan(f, transport):
    """Whether a test runs on the build with ThreadSanitizer. A program is ten times as slow there, so tests that measure do not;
    nor do tests of the personas alone, in which no program of ours runs."""
    return not getattr(f, "alone", False) and not getattr(f, "no_router", False) and transport not in getattr(f, "crowded", ())


def collect(wanted="both", part=None, one=None):
    """All tests: (name, function, argument, transport), in the order of files and definitions.

    part: only those that a build of this kind has where time is short (builds()), or that ThreadSanitizer has (under_tsan()).
    one: a test's name; only those of its file, as to read all files takes an emulated guest seconds.
    """
    out = []
    files = [f"test_{one.split('.')[0]}"] if one else sorted(m.name for m in pkgutil.iter_modules([os.path.join(HERE, "tests")]))
    for mod in files:
        module = importlib.import_module(f"tests.{mod}")
        tests = [f for n, f in vars(module).items() if n.startswith("test_") and asyncio.iscoroutinefunction(f)]
        for f in sorted(tests, key=lambda f: f.__code__.co_firstlineno):
            for arg in getattr(f, "cases", [None]):
                name = f"{mod.removeprefix('test_')}.{f.__name__.removeprefix('test_')}"
                name += f"[{arg}]" if arg is not None else ""
                for t in transports(mod.removeprefix("test_"), f, wanted):
                    full = name + (f"@{t}" if t != "kernel" else "")
                    if part == "tsan" and not under_tsan(f, t):
                        continue
                    if part in ("plain", "asan") and part not in builds(mod.removeprefix("test_"), f, t, full):
                        continue
                    out.append((full, f, arg, t))
    return out


async def run_test(args, f, arg, transport):
    cards = transport if transport in MODELS else None
    env = Env(args.build, args.reference, args.verbose, args.long, "port" if cards else transport, args.tamper, cards)
    text, code = "", 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    try:
        if not getattr(f, "no_router", False) and not args.build and not args.reference:
            raise Skip("no build directory (--build or MILLRACE_BUILD)")
        await (f(env) if arg is None else f(env, arg))
        await env.finish()
        text = "; ".join(env.results)
    except Skip as e:
        text, code = str(e), SKIPPED
    except Failed as e:
        text, code = str(e), FAILED
    except asyncio.CancelledError:      # over the deadline (Job.poll)
        text, code = "deadline passed", FAILED
        env.log(traceback.format_exc())
    except Exception as e:      # a broken test is a failed test
        text, code = f"{type(e).__name__}: {e}", FAILED
        env.log(traceback.format_exc())
    finally:
        if code == FAILED:
            code = STARVED if max(env.stretch(), stretch_of(os.getpid())) >= STARVED_FROM else FAILED
            for p in env.problems[:20]:
                print(f"  problem: {p}", file=sys.stderr)
            print("\n".join("  " + t for t in env.trace[-60:]), file=sys.stderr)
            for r in env.routers:
                if hasattr(r, "tail"):
                    print(f"  {r.name} dropped: {r.dropped()}", file=sys.stderr)
                    print(f"  {r.name} said: {r.tail(40)}", file=sys.stderr)
                    print("\n".join("  " + t for t in r.report()), file=sys.stderr)
            print("\n".join("  " + t for t in await seen(env)), file=sys.stderr)
        env.close()
    return code, text


def child(args):
    """Run exactly one test in this process; the verdict's text goes to the descriptor of --verdict."""
    _, f, arg, transport = next(t for t in collect(args.transport, one=args.one) if t[0] == args.one)
    code, text = asyncio.run(run_test(args, f, arg, transport))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    os.write(args.verdict, f"{sum(u.ru_utime + u.ru_stime for u in used):.1f}\n{text}".encode()[:2000])
    sys.stderr.flush()
    os._exit(code)


class Job:
    def __init__(self, args, test):
        name, f = test[:2]
        self.test, self.name, self.start = test, name, time.monotonic()
        limit = getattr(f, "deadline", DEFAULT_TIMEOUT)
        limit = getattr(f, "long_deadline", limit) if args.long else limit
        self.deadline = self.start + args.timeout * (limit / DEFAULT_TIMEOUT)
        self.tmp = tempfile.TemporaryDirectory(prefix="millrace-test-")     # gone with the job, however it ends
        r, w = os.pipe()
        argv = [sys.executable, os.path.abspath(__file__), "--one", name, "--verdict", str(w), "--timeout",
                str(args.timeout), "--transport", args.transport]
        if args.build:
            argv += ["--build", args.build]
        if args.tamper:
            argv += ["--tamper", args.tamper]
        argv += ["--reference"] * args.reference + ["--verbose"] * args.verbose + ["--long"] * args.long
        self.proc = subprocess.Popen(argv, pass_fds=[w], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     start_new_session=True, env={**os.environ, "TMPDIR": self.tmp.name})
        os.close(w)
        self.verdict = r
        os.set_blocking(self.proc.stdout.fileno(), False)
        self.output = b""
        self.cpu, self.asked = "", None

    def poll(self):
        """None while running, else (word, text)."""
        self.output += self.proc.stdout.read() or b""
        code = self.proc.poll()
        if code is None:
            now = time.monotonic()
            if now > self.deadline + starts_took(self.tmp.name) and not self.asked:
                self.asked = now
                self.proc.terminate()       # it says what it saw
            if not self.asked or now < self.asked + TO_TELL:
                return None
            starved = stretch_of(self.proc.pid) >= STARVED_FROM
            self.kill()
            self.output += self.proc.stdout.read() or b""
            return "STARVED" if starved else "FAIL", self.late()
        self.output += self.proc.stdout.read() or b""
        self.tmp.cleanup()
        self.cpu, _, text = os.read(self.verdict, 4096).decode(errors="replace").partition("\n")
        os.close(self.verdict)
        if self.asked and code != 0:
            text = self.late()
        if code == 0:
            return "PASS", text
        if code == SKIPPED:
            return "SKIP", text
        return "STARVED" if code == STARVED else "FAIL", text or f"test process ended with {code}"

    def late(self):
        return f"deadline of {self.deadline - self.start:.0f} s passed"

    def kill(self):
        """The whole session; namespaces, routers and end nodes go with the test process."""
        try:
            os.killpg(self.proc.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.proc.wait()
        self.tmp.cleanup()


def report(job, word, text, counts, args):
    counts[word] += 1
    took = time.monotonic() - job.start
    print(f"{word} {job.name}" + (f": {' '.join(text.split())}" if text else "") +
          f" ({took:.1f} s" + (f", {job.cpu} s of CPU)" if job.cpu else ")"), flush=True)
    if (word in ("FAIL", "STARVED") or args.verbose) and job.output:
        sys.stdout.write("".join("    " + ln + "\n" for ln in job.output.decode(errors="replace").splitlines()))
        sys.stdout.flush()


def at_once(args, test):
    """How many tests may run at a time while this one does."""
    return min(getattr(test[1], "at_once", args.jobs), args.jobs)


def run_all(args, tests):
    # Those beside which few or none may run come last: nobody has to wait for them in between.
    queue = sorted(tests, key=lambda t: -at_once(args, t))
    running, again, counts = [], set(), {"PASS": 0, "FAIL": 0, "SKIP": 0, "STARVED": 0}
    try:
        while queue or running:
            # The queue's first has the lowest limit of all that run.
            while queue and len(running) < (1 if queue[0][0] in again else at_once(args, queue[0])):
                running.append(Job(args, queue.pop(0)))
            for job in list(running):
                done = job.poll()
                if not done:
                    continue
                running.remove(job)
                word, text = done
                if word == "STARVED" and job.name in again:
                    word = "FAIL"
                elif word == "STARVED":
                    again.add(job.name)
                    queue.append(job.test)
                report(job, word, text, counts, args)
            time.sleep(0.02)
    finally:
        for job in running:
            job.kill()
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped", flush=True)
    return counts


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--build", default=os.environ.get("MILLRACE_BUILD"), help="meson build directory")
    p.add_argument("--filter", action="append", default=[], help="only tests whose name contains this")
    p.add_argument("--exclude", action="append", default=[], help="no tests whose name contains this")
    p.add_argument("--transport", choices=("kernel", "port", "both", "nic"), default="both",
                   help="host sockets, own TCP on a port, or both; nic: on network cards, in a guest (./dev vm nic)")
    p.add_argument("--part", choices=("plain", "asan", "tsan"),
                   help="only the share of this kind of build; the shares of plain and asan are all tests")
    p.add_argument("--tamper", metavar="JSON", help="rules of `tamper_set` for every port of every router")
    p.add_argument("--list", action="store_true")
    p.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, help="deadline of an ordinary test, s")
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--reference", action="store_true", help="a scripted kernel router in place of Millrace")
    p.add_argument("--long", action="store_true", help="load tests for as long as they should take")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--verdict", type=int, default=1, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        child(args)
    tests = [t for t in collect(args.transport, args.part) if (not args.filter or any(f in t[0] for f in args.filter))
             and not any(x in t[0] for x in args.exclude)]
    if args.list:
        print("\n".join(t[0] for t in tests))
        return 0
    why = netns.available()
    if why:
        for name, *_ in tests:
            print(f"SKIP {name}: {why}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))    # crowds of thousands, and routers that know them
    begun = time.monotonic()
    counts = {"FAIL": 0}
    for _ in range(args.repeat):
        for word, n in run_all(args, tests).items():
            counts[word] = counts.get(word, 0) + n
    print(f"{time.monotonic() - begun:.0f} s in all")
    return 1 if counts["FAIL"] or not counts.get("PASS") else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
