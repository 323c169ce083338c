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
import signal
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from lnetpy import netns                        # noqa: E402
from lnetpy.env import Env, Failed, Skip        # noqa: E402

SKIPPED, FAILED = 77, 1
DEFAULT_TIMEOUT = 60.0


def collect():
    """All tests: (name, function), in the order of files and definitions."""
    out = []
    for mod in sorted(m.name for m in pkgutil.iter_modules([os.path.join(HERE, "tests")])):
        module = importlib.import_module(f"tests.{mod}")
        tests = [f for n, f in vars(module).items() if n.startswith("test_") and asyncio.iscoroutinefunction(f)]
        for f in sorted(tests, key=lambda f: f.__code__.co_firstlineno):
            for arg in getattr(f, "cases", [None]):
                name = f"{mod.removeprefix('test_')}.{f.__name__.removeprefix('test_')}"
                out.append((name + (f"[{arg}]" if arg is not None else ""), f, arg))
    return out


async def run_test(args, f, arg):
    env = Env(args.build, args.reference, args.verbose, args.long)
    text, code = "", 0
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
    except Exception as e:      # a broken test is a failed test
        text, code = f"{type(e).__name__}: {e}", FAILED
        env.log(traceback.format_exc())
    finally:
        if code == FAILED:
            for p in env.problems[:20]:
                print(f"  problem: {p}", file=sys.stderr)
            print("\n".join("  " + t for t in env.trace[-60:]), file=sys.stderr)
            for r in env.routers:
                if hasattr(r, "tail"):
                    print(f"  {r.name} said: {r.tail(40)}", file=sys.stderr)
        env.close()
    return code, text


def child(args):
    """Run exactly one test in this process; the verdict's text goes to fd 3."""
    name, f, arg = next(t for t in collect() if t[0] == args.one)
    code, text = asyncio.run(run_test(args, f, arg))
    os.write(3, text.encode()[:2000])
    sys.stderr.flush()
    os._exit(code)


class Job:
    def __init__(self, args, name, f):
        self.name, self.start = name, time.monotonic()
        limit = getattr(f, "deadline", DEFAULT_TIMEOUT)
        limit = getattr(f, "long_deadline", limit) if args.long else limit
        self.deadline = self.start + args.timeout * (limit / DEFAULT_TIMEOUT)
        self.tmp = tempfile.TemporaryDirectory(prefix="millrace-test-")     # gone with the job, however it ends
        r, w = os.pipe()
        argv = [sys.executable, os.path.abspath(__file__), "--one", name, "--timeout", str(args.timeout)]
        if args.build:
            argv += ["--build", args.build]
        argv += ["--reference"] * args.reference + ["--verbose"] * args.verbose + ["--long"] * args.long
        self.proc = subprocess.Popen(["/bin/sh", "-c", 'exec 3>&"$0"; exec "$@"', str(w), *argv], pass_fds=[w],
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                     env={**os.environ, "TMPDIR": self.tmp.name})
        os.close(w)
        self.verdict = r
        os.set_blocking(self.proc.stdout.fileno(), False)
        self.output = b""

    def poll(self):
        """None while running, else (word, text)."""
        self.output += self.proc.stdout.read() or b""
        code = self.proc.poll()
        if code is None:
            if time.monotonic() < self.deadline:
                return None
            self.kill()
            self.output += self.proc.stdout.read() or b""
            return "FAIL", f"deadline of {self.deadline - self.start:.0f} s passed"
        self.output += self.proc.stdout.read() or b""
        self.tmp.cleanup()
        text = os.read(self.verdict, 4096).decode(errors="replace")
        os.close(self.verdict)
        if code == 0:
            return "PASS", text
        if code == SKIPPED:
            return "SKIP", text
        return "FAIL", text or f"test process ended with {code}"

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
    print(f"{word} {job.name}" + (f": {' '.join(text.split())}" if text else "") + f" ({took:.1f} s)", flush=True)
    if (word == "FAIL" or args.verbose) and job.output:
        sys.stdout.write("".join("    " + ln + "\n" for ln in job.output.decode(errors="replace").splitlines()))
        sys.stdout.flush()


def run_all(args, tests):
    queue, running, counts = list(tests), [], {"PASS": 0, "FAIL": 0, "SKIP": 0}
    try:
        while queue or running:
            while queue and len(running) < args.jobs:
                alone = getattr(queue[0][1], "alone", False)
                if alone and running or running and running[0].alone:
                    break
                job = Job(args, queue[0][0], queue.pop(0)[1])
                job.alone = alone
                running.append(job)
            for job in list(running):
                done = job.poll()
                if done:
                    running.remove(job)
                    report(job, *done, counts, args)
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
    p.add_argument("--list", action="store_true")
    p.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, help="deadline of an ordinary test, s")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--reference", action="store_true", help="a scripted kernel router in place of Millrace")
    p.add_argument("--long", action="store_true", help="load tests for as long as they should take")
    p.add_argument("--verbose", action="store_true")
    p.add_argument("--one", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        child(args)
    tests = [t for t in collect() if (not args.filter or any(f in t[0] for f in args.filter))
             and not any(x in t[0] for x in args.exclude)]
    if args.list:
        print("\n".join(t[0] for t in tests))
        return 0
    why = netns.available()
    if why:
        for name, _, _ in tests:
            print(f"SKIP {name}: {why}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
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
