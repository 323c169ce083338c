#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests that are `async def test_*(env)` in a module of this folder, each in a process of its own with a deadline.

    test/vm/runner.py --build BUILDDIR MODULE [--filter X] [--verbose] [--reference]
"""

import argparse
import asyncio
import importlib
import os
import signal
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "system")]

DEADLINE = 90


def collect(module):
    """name -> function, in the order of the file."""
    found = [f for n, f in vars(importlib.import_module(module)).items()
             if n.startswith("test_") and asyncio.iscoroutinefunction(f)]
    return {"verbs." + f.__name__.removeprefix("test_"): f for f in sorted(found, key=lambda f: f.__code__.co_firstlineno)}


async def attempt(build, f, verbose, reference):
    from lnetpy.env import Failed
    from scene import Env

    env = Env(build, reference=reference, verbose=verbose)
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
        print("\n".join("  | " + t for t in [*env.trace[-60:], *(f"problem: {p}" for p in env.problems[:10])]))
        for r in env.routers:
            print(f"  {r.name} said: {r.tail(30)}")
    env.close()
    return good, text


def child(build, f, verbose, reference, pipe):
    good, text = asyncio.run(attempt(build, f, verbose, reference))
    sys.stdout.flush()
    os.write(pipe, (("PASS\0" if good else "FAIL\0") + " ".join(text.split())).encode()[:2000])
    os._exit(0)


def run(build, name, f, verbose=False, reference=False):
    """Prints the line of one test; whether it passed."""
    begun = time.monotonic()
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            child(build, f, verbose, reference, w)
        finally:
            os._exit(1)
    os.close(w)
    end, ended = begun + getattr(f, "deadline", DEADLINE), False
    while not ended and time.monotonic() < end:
        ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        time.sleep(0.02)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    word, _, text = os.read(r, 4096).decode(errors="replace").partition("\0")
    os.close(r)
    if not word:
        word, text = "FAIL", "the test's process died" if ended else f"not over in {end - begun:.0f} s"
    print(f"{word} {name}" + (f": {text}" if text else ""))
    print(f"   {time.monotonic() - begun:.1f} s", flush=True)
    return word == "PASS"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--filter", default="")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--reference", action="store_true", help="a scripted router in place of the program: tries the tests")
    parser.add_argument("modules", nargs="+")
    options = parser.parse_args()
    tests = {n: f for m in options.modules for n, f in collect(m).items() if options.filter in n and not (options.reference and getattr(f, "millrace", False))}
    results = [run(options.build, n, f, options.verbose, options.reference) for n, f in tests.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
