#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Performance measurements. See docs/performance.md for how to read them.

forward   what a router in the path costs the machine: the same two end nodes move the same messages over a direct link,
          through millraced on host sockets and through HAProxy, in turn, in one run
veth      the same with millraced on packet ports (TCP of its own) and a bridge beside them, at MTU 1500 and 9000
eth       what routing costs beside plain forwarding of frames, over memif, with many simulated peers at both ends
grow      whether that depends on the number of peers and routes, and what memory an idle connection takes
two       two reactors against one, and many senders to one receiver
copies    what a byte costs where nothing is copied and no checksum computed, long messages against shorter ones
zerocopy  what host sockets cost by the way bytes are handed to the kernel, without LNet
faults    what the rules of fault injection cost where there are none

Results are ratios; absolute figures say more about this machine.
"""

import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bars  # noqa: E402
import copies  # noqa: E402
import eth  # noqa: E402
import faults  # noqa: E402
import forward  # noqa: E402
import grow  # noqa: E402
import lab  # noqa: E402
import machine  # noqa: E402
import plot  # noqa: E402
import relays  # noqa: E402
import results  # noqa: E402
import zerocopy  # noqa: E402


def progress(text):
    print(text, file=sys.stderr, flush=True)


BENCHMARKS = {"forward": lambda o: forward.run("forward", o, progress), "veth": lambda o: forward.run("veth", o, progress),
              "eth": lambda o: eth.run(o, progress), "grow": lambda o: grow.run(o, progress), "two": lambda o: grow.two(o, progress),
              "copies": lambda o: copies.run(o, progress),
              "zerocopy": lambda o: zerocopy.run(o, progress), "faults": lambda o: faults.run(o, progress)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="*", choices=BENCHMARKS, default="forward", help="one or more (forward)")
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there: a list of {bench, case, subject, metric, value, unit, "
                        "reference, ratio, settings, …}; a ratio over 1 is better than the reference")
    parser.add_argument("--plot", metavar="FILE.svg", help="draw them there (plot.py draws those that --json has written)")
    parser.add_argument("--repeat", type=int, default=5, help="rounds: runs of each case over each path (5)")
    parser.add_argument("--seconds", type=float, default=2, help="length of a run through the slowest relay (2)")
    parser.add_argument("--filter", default="", help="only the cases that contain this, as in 'put 1M'")
    parser.add_argument("--verify", choices=("none", "full"), default="none",
                        help="whether receivers check content (none: the end nodes are not what is measured)")
    parser.add_argument("--reactors", type=int, default=1, help="of millraced, and threads of HAProxy (1)")
    parser.add_argument("--mtu", type=int, help="of all links, instead of those that the benchmark has")
    parser.add_argument("--bufsize", type=int, default=262144,
                        help="HAProxy's buffers and pipes, bytes (262144, which suits it best)")
    parser.add_argument("--router-credits", type=int, default=0,
                        help="eth: peer_buffer_credits of the router's NIs, instead of its default")
    parser.add_argument("--noisy", action="store_true", help="measure though others use the machine; the results say how much")
    parser.add_argument("--check", action="store_true", help="compare the ratios with those kept in test/perf/kept.json: exit "
                        "status 1 if one is worse by more than its tolerance")
    parser.add_argument("--keep", action="store_true", help="write the ratios into test/perf/kept.json")
    parser.add_argument("--bar", action="store_true",
                        help="only whether the least that is asked of Millrace, a third of what is wanted, is reached: PASS, FAIL or SKIP")
    options = parser.parse_args()
    if isinstance(options.benchmark, str):  # the default is not made a list
        options.benchmark = [options.benchmark]
    if options.repeat < 1 or options.reactors < 1 or not 0 < options.seconds <= 600:
        parser.error("--repeat and --reactors are at least 1, --seconds is above 0 and at most 600")
    if options.mtu is not None and not 1280 <= options.mtu <= 9000 or not 1024 <= options.bufsize <= 1 << 20:
        parser.error("--mtu is from 1280 to 9000, --bufsize from 1024 to 1048576")
    if options.keep and options.noisy:
        parser.error("--keep: what is measured on a noisy machine is not to be kept")
    return options


def main():
    options = arguments()
    lab.need_root()
    lab.signals_to_exceptions()
    described = machine.describe()
    print(described, flush=True)
    try:
        if options.bar:
            return max(forward.least(options, progress), bars.run(options, progress))
        rows = [row for name in options.benchmark for row in BENCHMARKS[name](options)]
    except KeyboardInterrupt as e:
        print(f"stopped by {e}", file=sys.stderr)
        return 130
    except (relays.Skip, lab.LabError, OSError, RuntimeError) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    if not rows:
        print(f"bench: no case contains {options.filter!r}", file=sys.stderr)
        return 2
    print(results.noise_line(rows))
    for r in rows:
        r["machine"] = described
    if options.plot and not plot.write(rows, options.plot, plot.results_line(rows)):
        print("nothing to draw: no row has a ratio, and none counts cycles over a count")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
            f.write("\n")
    if options.keep:
        print(f"kept {results.keep(rows)} ratios")
    return 0 if not options.check or results.check(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
