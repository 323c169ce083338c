#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Performance measurements. See docs/performance.md for how to read them.

forward   what a router in the path costs: the same two end nodes move the same messages through the router and over
          a direct link, in turn, in one run. The result is a ratio; absolute figures say more about this machine.
"""

import argparse
import json
import os
import platform
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lab  # noqa: E402

# operation, size, messages on the way
FORWARD_CASES = [("put", "1M", 8), ("get", "1M", 8), ("put", "4k", 32), ("get", "4k", 32)]
PATHS = ("direct", "routed")
TARGET = {"direct": lab.SERVER_DIRECT, "routed": lab.SERVER}


def machine():
    """What a reader must know about where the figures come from."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(),
            "load_average_before": os.getloadavg()[0]}


def measure(bench, options, path, case):
    """One run of one case over one path."""
    operation, size, inflight = case
    before, cpu = bench.stats(), bench.router_process.cpu_seconds()
    result = bench.client("--size", size, "--inflight", inflight, "--seconds", options.seconds, "--verify",
                          options.verify, "--idle", options.idle, operation,
                          TARGET[path]).result(options.seconds + 60)
    after, cpu = bench.stats(), bench.router_process.cpu_seconds() - cpu
    figures = result[operation]
    trouble = result["trouble"]
    dropped, routed = (after[k] - before[k] for k in ("drop_count", "route_count"))
    if dropped:
        trouble = f"the router dropped {dropped}; {trouble}"
    if (routed >= 2 * figures["answered"]) != (path == "routed"):
        trouble = f"{path}, but the router forwarded {routed} messages for {figures['answered']}; {trouble}"
    if trouble:
        raise lab.LabError(f"{operation} {size} {path}: {trouble}")
    return {"messages_per_second": figures["messages_per_second"], "bytes_per_second": figures["bytes_per_second"],
            "seconds": result["seconds"], "messages": figures["answered"], "bytes": figures["bytes"],
            "p50_us": figures["round_trip_us"]["p50"], "router_cpu_seconds": cpu,
            "end_node_cpu_seconds": result["cpu_seconds"]}


def row_of(case, samples, options):
    """Medians. The ratio is the median of the ratios of neighbouring runs, so slow drift falls out."""
    def median(path, key):
        return statistics.median(s[key] for s in samples[path])
    ratios = [r["messages_per_second"] / d["messages_per_second"]
              for r, d in zip(samples["routed"], samples["direct"])]
    cpu = [s["router_cpu_seconds"] for s in samples["routed"]]
    return {
        "operation": case[0], "size": case[1], "inflight": case[2], "seconds": options.seconds,
        "repeat": options.repeat, "verify": options.verify, "idle": options.idle, "reactors": options.reactors,
        "direct_bytes_per_second": median("direct", "bytes_per_second"),
        "routed_bytes_per_second": median("routed", "bytes_per_second"),
        "direct_messages_per_second": median("direct", "messages_per_second"),
        "routed_messages_per_second": median("routed", "messages_per_second"),
        "ratio": statistics.median(ratios), "ratio_lowest": min(ratios), "ratio_highest": max(ratios),
        "direct_p50_us": median("direct", "p50_us"), "routed_p50_us": median("routed", "p50_us"),
        "router_cpu_us_per_message": statistics.median(
            1e6 * c / s["messages"] for c, s in zip(cpu, samples["routed"])),
        "router_cpu_s_per_gb": statistics.median(1e9 * c / s["bytes"] for c, s in zip(cpu, samples["routed"])),
        "router_busy": statistics.median(c / s["seconds"] for c, s in zip(cpu, samples["routed"])),
        "samples": samples,
    }


FORWARD_HEAD = ("operation", "size", "inflight", "direct MB/s", "routed MB/s", "ratio (lowest-highest)",
                "direct p50 us", "routed p50 us", "router cores", "CPU us/message", "CPU s/GB")


def forward_line(row):
    return (row["operation"], row["size"], str(row["inflight"]),
            f"{row['direct_bytes_per_second'] / 1e6:.1f}", f"{row['routed_bytes_per_second'] / 1e6:.1f}",
            f"{row['ratio']:.2f} ({row['ratio_lowest']:.2f}-{row['ratio_highest']:.2f})",
            f"{row['direct_p50_us']:.0f}", f"{row['routed_p50_us']:.0f}", f"{row['router_busy']:.2f}",
            f"{row['router_cpu_us_per_message']:.1f}", f"{row['router_cpu_s_per_gb']:.2f}")


def print_table(head, lines):
    width = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    rule = ["-" * w for w in width]
    for line in [head, rule, *lines]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, width)) + " |")


def forward(options):
    rows = []
    with lab.Lab(options.build, direct=True) as bench:
        bench.router(options.idle, options.reactors)
        server = bench.server("--idle", options.idle)
        for case in FORWARD_CASES:
            samples = {path: [] for path in PATHS}
            for i in range(options.repeat):
                for path in PATHS[::-1 if i % 2 else 1]:  # neither path always has the warmer machine
                    samples[path].append(measure(bench, options, path, case))
            rows.append(row_of(case, samples, options))
            print(f"{case[0]} {case[1]}: done", file=sys.stderr, flush=True)
        served = server.stop_result()
        if served["exit_status"] != 0:
            raise lab.LabError(f"the server: {served['trouble']}")
    print(f"forward: veth in network namespaces, {options.repeat} x {options.seconds:g} s each, verify "
          f"{options.verify}, idle {options.idle}, {options.reactors} reactor(s), medians")
    print_table(FORWARD_HEAD, [forward_line(row) for row in rows])
    return rows


BENCHMARKS = {"forward": forward}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", nargs="?", choices=BENCHMARKS, default="forward")
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--json", metavar="FILE", help="also write all samples there")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each case over each path (5)")
    parser.add_argument("--seconds", type=float, default=2, help="length of a run (2)")
    parser.add_argument("--verify", choices=("none", "full"), default="none",
                        help="whether receivers check content (none: the end nodes are not what is measured)")
    parser.add_argument("--idle", choices=("adaptive", "spin"), default="adaptive", help="of all three processes")
    parser.add_argument("--reactors", type=int, default=1, help="of the router (1)")
    options = parser.parse_args()
    if options.repeat < 1 or options.reactors < 1 or not 0 < options.seconds <= 600:
        parser.error("--repeat and --reactors are at least 1, --seconds is above 0 and at most 600")
    lab.need_root()
    lab.signals_to_exceptions()
    where = machine()
    print(f"{where['cpu']}, {where['cores']} cores, Linux {where['kernel']}, "
          f"load average before: {where['load_average_before']:.2f}")
    try:
        rows = BENCHMARKS[options.benchmark](options)
    except KeyboardInterrupt as e:
        print(f"stopped by {e}", file=sys.stderr)
        return 130
    except (lab.LabError, OSError, RuntimeError) as e:
        print(f"bench: {e}", file=sys.stderr)
        return 1
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"benchmark": options.benchmark, "machine": where, "rows": rows}, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
