#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Performance measurements. See docs/performance.md for how to read them.

forward   what a router in the path costs the machine: the same two end nodes move the same messages over a direct link,
          through millraced and through HAProxy, in turn, in one run. The result is ratios; absolute figures say more
          about this machine.
"""

import argparse
import json
import os
import platform
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forward  # noqa: E402
import lab  # noqa: E402


def machine():
    """What a reader must know about where the figures come from."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load average before: {os.getloadavg()[0]:.2f}"


def print_table(head, lines):
    width = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    rule = ["-" * w for w in width]
    for line in [head, rule, *lines]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, width)) + " |")


def progress(text):
    print(text, file=sys.stderr, flush=True)


BENCHMARKS = {"forward": forward}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="forward")
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there: a list of {bench, case, metric, value, unit, "
                        "reference, ratio}; a ratio over 1 is better than the reference")
    parser.add_argument("--repeat", type=int, default=5, help="rounds: runs of each case over each path (5)")
    parser.add_argument("--seconds", type=float, default=2, help="length of a run through the slowest relay (2)")
    parser.add_argument("--filter", default="", help="only the cases that contain this, as in 'put 1M'")
    parser.add_argument("--verify", choices=("none", "full"), default="none",
                        help="whether receivers check content (none: the end nodes are not what is measured)")
    parser.add_argument("--reactors", type=int, default=1, help="of millraced, and threads of HAProxy (1)")
    parser.add_argument("--mtu", type=int, default=1500, help="of all links (1500)")
    parser.add_argument("--bufsize", type=int, default=262144,
                        help="HAProxy's buffers and pipes, bytes (262144, which suits it best)")
    parser.add_argument("--bar", action="store_true",
                        help="only whether the least that is asked of Millrace is reached: PASS, FAIL or SKIP")
    options = parser.parse_args()
    if options.repeat < 1 or options.reactors < 1 or not 0 < options.seconds <= 600:
        parser.error("--repeat and --reactors are at least 1, --seconds is above 0 and at most 600")
    if not 1280 <= options.mtu <= 65535 or not 1024 <= options.bufsize <= 1 << 20:
        parser.error("--mtu is from 1280 to 65535, --bufsize from 1024 to 1048576")
    if not any(options.filter in f"{c[0]} {c[1]}" for c in forward.CASES):
        parser.error(f"--filter: no case contains {options.filter!r}")
    return options


def main():
    options = arguments()
    lab.need_root()
    lab.signals_to_exceptions()
    benchmark = BENCHMARKS[options.benchmark]
    print(machine())
    try:
        if options.bar:
            return benchmark.bar(options, progress)
        rows = benchmark.run(options, progress, print_table)
    except KeyboardInterrupt as e:
        print(f"stopped by {e}", file=sys.stderr)
        return 130
    except (forward.Skip, lab.LabError, OSError, RuntimeError) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
