#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests that are `async def test_*(env)` in modules of this folder.

    test/vm/runner.py --build BUILDDIR [--filter X] [--verbose] [--reference] MODULE...

The tests share a process and one router, as a guest may be slow to start another; after a failure both are made
anew. A test that is marked `alone` has both for itself. Each has a deadline.
"""

import argparse
import asyncio
import importlib
import os
import select
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "system")]

DEADLINE = 120


def collect(module):
    """name -> function, in the order of the file."""
    found = [f for n, f in vars(importlib.import_module(module)).items()
             if n.startswith("test_") and asyncio.iscoroutinefunction(f)]
    return {"verbs." + f.__name__.removeprefix("test_"): f for f in sorted(found, key=lambda f: f.__code__.co_firstlineno)}


async def attempt(options, f, kept):
    from lnetpy.env import Failed
    from scene import Env

    env = Env(options.build, kept, reference=options.reference, verbose=options.verbose)
    text, good = "", False
    try:
        text = await f(env) or ""
        await env.finish()
        text, good = "; ".join([text, *env.results]).strip("; "), True
    except Failed as e:
        text = str(e)
    except Exception as e:      # pylint: disable=broad-except
        where = traceback.extract_tb(e.__traceback__)
        where = next((t for t in reversed(where) if os.path.dirname(t.filename) == HERE), where[-1])
        text = f"{type(e).__name__}: {e} ({os.path.basename(where.filename)}:{where.lineno})"
    if not good:
        print("\n".join("  | " + t for t in [*env.trace[-80:], *(f"problem: {p}" for p in env.problems[:10])]))
        for r in env.routers:
            print(f"  {r.name} said: {r.tail(40)}")
    env.close(good)
    return good, text


def child(options, tests, pipe):
    """All of these, until one fails: a line for each to the pipe."""
    from scene import Kept

    kept = Kept()
    for name, f in tests:
        begun = time.monotonic()
        good, text = asyncio.run(attempt(options, f, None if getattr(f, "alone", False) else kept))
        print(f"{'PASS' if good else 'FAIL'} {name}" + (f": {' '.join(text.split())[:1500]}" if text else ""))
        print(f"   {time.monotonic() - begun:.1f} s", flush=True)
        os.write(pipe, b"+" if good else b"-")
        if not good:
            break
    kept.close()


def run(options, tests):
    """The first of these [(name, function)], and those that can share its process. How many came to an end, and passed."""
    first_alone = getattr(tests[0][1], "alone", False)
    group = tests[:1] if first_alone else [t for t in tests if not getattr(t[1], "alone", False)]
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        status = 1
        try:
            child(options, group, w)
            status = 0
        except BaseException:       # pylint: disable=broad-except
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    os.close(w)
    said = ""
    for name, f in group:
        limit = getattr(f, "deadline", DEADLINE)
        ready, _, _ = select.select([r], [], [], limit)
        word = os.read(r, 1).decode() if ready else ""
        if not word:
            os.kill(pid, signal.SIGKILL)
            print(f"FAIL {name}: {'its process died' if ready else f'not over in {limit} s'}", flush=True)
            said += "-"
            break
        said += word
        if word == "-":
            break
    os.waitpid(pid, 0)
    os.close(r)
    done = [t[0] for t in group[:len(said)]]
    return [t for t in tests if t[0] not in done], said.count("-")


def run_all(options, tests):
    """How many of {name: function} failed."""
    left, failed = list(tests.items()), 0
    left.sort(key=lambda t: getattr(t[1], "alone", False))
    while left:
        left, more = run(options, left)
        failed += more
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--filter", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--reference", action="store_true", help="a scripted router in place of the program: tries the tests")
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args()
    tests = {n: f for module in options.modules for n, f in collect(module).items() if options.filter in n and
             not (options.reference and getattr(f, "millrace", False))}
    return 1 if run_all(options, tests) else 0


if __name__ == "__main__":
    sys.exit(main())
