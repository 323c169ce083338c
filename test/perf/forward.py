# SPDX-License-Identifier: BSD-3-Clause
"""What a relay in the path costs: the same two end nodes move the same messages over a direct link and through relays, in turn.

forward compares millraced on host sockets with HAProxy in TCP mode with and without splice. veth adds millraced on packet
ports, which are TCP and IP of its own, and a bridge of the kernel's, at two MTUs.
"""

import statistics

import relays
import results
from relays import BRIDGE, DIRECT, HAPROXIES, HAPROXY, HAPROXY_SPLICE, KERNEL, PORT, SIZES

# operation, size, messages on the way
CASES = [("put", "1M", 8), ("get", "1M", 8), ("put", "4k", 32), ("get", "4k", 32)]
PATHS = {"forward": (DIRECT, KERNEL, HAPROXY, HAPROXY_SPLICE),
         "veth": (DIRECT, PORT, KERNEL, HAPROXY, HAPROXY_SPLICE, BRIDGE)}
MTUS = {"forward": (1500,), "veth": (1500, 9000)}

# What is wanted at 1 MiB, of (subject, metric, reference). "haproxy" is the better of the two.
BARS = {("veth", PORT.name, "cpu_per_byte", "haproxy"): 3.0, ("veth", PORT.name, "throughput", BRIDGE.name): 0.8,
        ("forward", KERNEL.name, "cpu_per_byte", "haproxy"): 0.9}
# Asked of every test run, against HAProxy without splice: a third of what is wanted on host sockets. Packet ports are far from
# what is wanted: a third of what they reach.
LEAST = ((KERNEL, 0.3), (PORT, 0.15))


def bar_of(bench, case, subject, metric, reference, better):
    if case[1] != "1M":
        return None
    return BARS.get((bench, subject.name, metric, "haproxy" if reference is better else reference.name))


def rows_of(bench, case, mtu, samples, settings, options):
    """The rows of a case: one for each figure of each millraced and each other path."""
    size, paths = SIZES[case[1]], [p for p in PATHS[bench] if p.name in samples]
    metrics = (("cpu_per_byte", "s/GB", 1e9, False, relays.costs),
               ("cpu_per_message", "us", 1e6 * size, False, relays.costs),
               ("throughput", "MB/s", 1e-6, True, lambda s, p: relays.values(s, p, "bytes_per_second")),
               ("round_trip_p50", "us", 1, False, lambda s, p: relays.values(s, p, "p50_us")))
    better, out = relays.better_haproxy(samples), []
    for subject in [p for p in relays.ROUTERS if p in paths]:
        for metric, unit, scale, more_is_better, of in metrics:
            mine = of(samples, subject)
            for reference in paths:
                # Those two cost nothing: one by definition, the other so little that a ratio of it means nothing.
                if reference is subject or (of is relays.costs and reference in (DIRECT, BRIDGE)):
                    continue
                theirs = of(samples, reference)
                out.append({"bench": bench, "case": f"{case[0]} {case[1]} mtu{mtu}", "subject": subject.name, "metric": metric,
                            "value": statistics.median(mine) * scale, "unit": unit, "reference": reference.name,
                            **results.compared(mine, theirs, more_is_better),
                            "reference_value": statistics.median(theirs) * scale,
                            "bar": bar_of(bench, case, subject, metric, reference, better),
                            "better_haproxy": better.name, "samples": [v * scale for v in mine],
                            "reference_samples": [v * scale for v in theirs],
                            "settings": {"inflight": case[2], "verify": options.verify, "reactors": options.reactors, "mtu": mtu,
                                         **settings[subject.name]},
                            "foreign_share": relays.worst(samples, "foreign_share"),
                            "stolen_share": relays.worst(samples, "stolen_share")})
    return out


PATH_HEAD = ("case", "inflight", "path", "MB/s", "p50 us", "machine CPU s/GB", "cost s/GB", "cost us/message",
             "relay process s/GB", "sent again")


def path_lines(bench, case, mtu, samples):
    for path in PATHS[bench]:
        added = statistics.median(relays.costs(samples, path))
        per_gb = [statistics.median(1e9 * s[k] / s["bytes"] for s in samples[path.name])
                  for k in ("machine_cpu_seconds", "relay_cpu_seconds")]
        process = path not in (DIRECT, BRIDGE)
        yield (f"{case[0]} {case[1]} mtu{mtu}", str(case[2]), path.name,
               results.number(statistics.median(relays.values(samples, path, "bytes_per_second")) / 1e6),
               results.number(statistics.median(relays.values(samples, path, "p50_us"))), f"{per_gb[0]:.2f}",
               f"{added * 1e9:.2f}" if path is not DIRECT else "",
               f"{added * 1e6 * SIZES[case[1]]:.1f}" if path is not DIRECT else "", f"{per_gb[1]:.2f}" if process else "",
               str(sum(s["resent"] for s in samples[path.name])) if path is PORT else "")


def shown(row):
    """Whether a row is printed: --json has them all."""
    if row["metric"] == "cpu_per_byte":
        return row["reference"] in [p.name for p in HAPROXIES]
    return row["metric"] == "throughput" and row["reference"] in (DIRECT.name, BRIDGE.name, row["better_haproxy"])


def run(bench, options, progress):
    """The benchmark. Returns its rows."""
    rows, lines = [], []
    cases = [c for c in CASES if options.filter in f"{c[0]} {c[1]}"]
    for mtu in [options.mtu] if options.mtu else MTUS[bench]:
        for case, samples, settings in relays.measure(options, PATHS[bench], cases, mtu, progress, options.noisy):
            rows += rows_of(bench, case, mtu, samples, settings, options)
            lines += path_lines(bench, case, mtu, samples)
    print(f"\n{bench}: veth, {options.repeat} rounds of runs of {options.seconds:g} s and more, verify {options.verify}, "
          f"{options.reactors} reactor(s) or HAProxy thread(s), HAProxy's buffer {options.bufsize} bytes, medians; cost is "
          + ("the CPU time of relay and end nodes, since others use the machine" if options.noisy else "that of the whole machine"))
    results.print_table(PATH_HEAD, lines)
    print("\nratios of neighbouring runs, over 1: better than what it is compared with")
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in rows if shown(r)])
    for subject, settings in {r["subject"]: r["settings"] for r in rows}.items():
        print(f"{subject}: {', '.join(f'{k} {v}' for k, v in settings.items() if k not in ('inflight', 'mtu'))}")
    return rows


def least(options, progress):
    """Prints PASS, FAIL or SKIP for a third of each bar. Counts the CPU time of relays and end nodes instead of the machine's, so
    that a busy machine does not fail it: on veth most of the kernel's work is done in the name of whoever sends."""
    names = {path: f"forward.{'packet_port_' if path is PORT else ''}cpu_per_byte_1M" for path, _ in LEAST}
    try:
        _, samples, _ = next(iter(relays.measure(options, (DIRECT, KERNEL, PORT, HAPROXY), CASES[:1], options.mtu or 1500,
                                                 progress, True)))
    except relays.Skip as e:
        for name in names.values():
            print(f"SKIP {name}: {e}")
        return 0
    status = 0
    for path, wanted in LEAST:
        r = results.compared(relays.costs(samples, path), relays.costs(samples, HAPROXY), False)
        said = f"{r['ratio']:.2f} of HAProxy without splice ({r['ratio_lowest']:.2f}-{r['ratio_highest']:.2f})"
        if r["ratio"] < wanted:
            print(f"FAIL {names[path]}: {said}, the bar is {wanted}")
            status = 1
        else:
            print(f"PASS {names[path]}: {said}")
    return status
