# SPDX-License-Identifier: BSD-3-Clause
"""Whether the cost of a message depends on how much there is: peers, routes, reactors, senders to one receiver. Over memif as
eth.py has it; the reference of each row is the smallest number of its kind.
"""

import statistics
import time

import eth
import lab
import machine
import results

COUNTS = (1, 10, 100, 1000, 10000)  # of peers
ROUTES = (1, 10, 100, 1000, 4000, 10000)
INFLIGHT, TARGETS = {"4k": 512, "1M": 64}, 16
MORE_COST = {("4k peers", 1000): 1.6, ("1M peers", 1000): 1.15}  # what a message may cost, by the least number's
MORE_COST_ROUTES = 1.05
IDLE_BYTES = 4096      # of memory of an idle connection beside what its peer may send
PLANNED = 8192, 65536  # connections that there may be, to see what one takes
LARGE = 2000           # peers; more than the router's defaults have room for
CONNS, WINDOW_BYTES = 3, 33 << 10  # of a peer; memory that each connection is promised
FAIR, STEER_BAR, TWO_BAR = 0.9, 0.6, 0.85
CREDITS = 8            # of a peer: what one alone can have on the way
IDLE_LOOK = 1.0        # seconds without traffic before memory is read
INCAST = eth.Case("put", "1M", 128, 1024, 9000, targets=1, order="kept")
TWO = (eth.Case("put", "1M", 64, 128, 9000), eth.Case("put", "4k", 64, 512, 9000))
# One peer on each side. A NID's home among two reactors is the parity of the sum of its bytes; a memif has one queue, the first
# reactor's. So with the first pair packets come to their home, with the second none does.
STEER = eth.Case("put", "1M", 1, 8, 9000, targets=1)
HOMES = {"right": {"sources": "10.64.1.1", "targets": "10.65.1.1"}, "wrong": {"sources": "10.64.1.2", "targets": "10.65.1.2"}}


def room_for(peers):
    """(for the configuration, for its `millrace:`) Of a router that has connections and memory for so many."""
    conns = CONNS * (peers + TARGETS)
    if peers <= LARGE:
        return "", ""
    return "buffers: {tiny: 2048, small: 2048, large: 64}\n", \
        f"  max_connections: {2 * conns}\n  segments: {(conns * WINDOW_BYTES >> 20) + 64}\n"


def resident(process):
    """Bytes of memory of a process's own."""
    with open(f"/proc/{process.popen.pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            if line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return 0


def connections(router):
    return sum(r["tcp"]["conns_now"] for r in router.call("tcp_stats_get")["reactors"])


def dirty_alone(build, millrace):
    """Of a router without peers."""
    with eth.Room(build) as room:
        room.huge = False  # those are taken at the start, whoever comes
        router = room.router(9000, millrace=millrace)
        time.sleep(IDLE_LOOK)
        return resident(router.process)


def idle_memory(build, peers):
    """(bytes of a router without peers, bytes that so many peers add which say nothing, connections). A generator that sends one
    message a second has them connected."""
    case = eth.Case("put", "1", peers, 1, 9000, targets=1)
    with eth.Room(build) as room:
        room.huge = False
        more, millrace = room_for(peers)
        router = room.router(case.mtu, more=more, millrace=millrace)
        time.sleep(IDLE_LOOK)
        before = resident(router.process)
        generator = room.generator(case, eth.DEADLINE, "--rate", 1)
        deadline = time.monotonic() + eth.DEADLINE
        while connections(router) < CONNS * (peers + 1):
            if not generator.running() or time.monotonic() > deadline:
                raise lab.LabError(f"{peers} peers do not connect ({connections(router)} connections): {generator.said()}")
            time.sleep(IDLE_LOOK / 2)
        time.sleep(IDLE_LOOK)
        size, conns = resident(router.process) - before, connections(router)
        generator.interrupt_result(eth.DEADLINE)
        return before, size, conns


def peers_case(size, count):
    return eth.Case("put", size, count, min(INFLIGHT[size], CREDITS * count), 9000, targets=min(TARGETS, count), order="random")


def routes_text(count):
    """So many routes in the configuration, to nets that nobody sends to, over targets as gateways."""
    return some_routes(0, count)


# Routes come and go in a router under load, so that both counts are measured in the same process, with its memory where it is: runs
# of different processes differ by more than what is asked.
PAIRS, WINDOW, APPLY_PART = 12, 0.25, 2000  # of windows with few and with many routes; seconds of each; routes of one change
FEW_ROUTES, MANY_ROUTES = 1, 10000
ROUTES_CASE = f"{MANY_ROUTES} routes in place"


def some_routes(first, count):
    gateways = eth.TARGETS.rpartition(".")[0]
    return "route:\n" + "".join(f"  - {{net: tcp{10 + i}, gateway: {gateways}.{1 + i % TARGETS}@tcp1}}\n" for i in range(first, first + count))


def routes_become(router, mode):
    """Adds (merge) or takes away (delete) all above the few."""
    for first in range(FEW_ROUTES, MANY_ROUTES, APPLY_PART):
        router.call("config_apply", text=some_routes(first, min(APPLY_PART, MANY_ROUTES - first)), mode=mode)


def run_routes(build, verify, pairs=PAIRS):
    """One router, whose routes come and go. Returns the samples with few and with many, in turn, and all that a run has."""
    case = peers_case("4k", 64)
    few, many = [], []
    with eth.Room(build) as room:
        router = room.router(case.mtu, more=routes_text(FEW_ROUTES))
        view = eth.RouterView(router)
        generator = room.generator(case, 10 * eth.DEADLINE, "--verify", verify)
        eth.wait_flow(view, generator)
        how = {**eth.settings(router), "hugepages": room.huge}
        for n in range(2 * pairs):
            # few, many, many, few, …: what drifts is in both
            now = few if n % 4 in (0, 3) else many
            if n % 2 == 1:  # the change, after which both follow each other once
                routes_become(router, "delete" if now is few else "merge")
                time.sleep(eth.SETTLE)
            found = len(router.call("route_get")["route"])
            if (found > FEW_ROUTES) != (now is many):
                raise lab.LabError(f"{found} routes shown, expected were {'many' if now is many else 'few'}")
            span, a = machine.Span(), view.look()
            time.sleep(WINDOW)
            b = view.look()
            now.append({**eth.figures(a, b), **span.stop().shares(), "settings": how})
        result = generator.interrupt_result(eth.DEADLINE)
        if any(s["dropped"] or s["lost"] for s in few + many) or result["trouble"]:
            raise lab.LabError(f"routes in place: {result['trouble']}")
        for s in few + many:
            s["generator"] = result
    return few, many


def routes(options, progress):
    """Rows and lines of run_routes(), as many times as there are rounds; windows in which either had too little to do are left out, with
    what they are compared with."""
    few, many = [], []
    for _ in range(options.repeat):
        try:
            pairs = list(zip(*run_routes(options.build, options.verify)))
        except lab.LabError as e:
            progress(f"{ROUTES_CASE}: a round is left out: {e}")
            continue
        good = [(f, m) for f, m in pairs if min(f["busy"], m["busy"]) >= eth.BUSY_LEAST and (options.noisy or not (
            eth.disturbed(f) or eth.disturbed(m)))]
        progress(f"{ROUTES_CASE}: {len(good)} of {len(pairs)} pairs of windows are good")
        few += [f for f, _ in good]
        many += [m for _, m in good]
    if not few:
        return [], [(ROUTES_CASE, "cycles/message", "not measured", "", "", "", "")]
    costs = [[s["cycles_per_message"] for s in samples] for samples in (many, few)]
    case = peers_case("4k", 64)
    row = {**eth.row(case, "cycles_per_message", statistics.median(costs[0]), "cycles", many, bench="grow", bar=1 / MORE_COST_ROUTES,
                     reference=f"{FEW_ROUTES} routes", samples=costs[0], reference_samples=costs[1],
                     ratios=results.ratios(costs[0], costs[1], False), **results.compared(costs[0], costs[1], False)), "case": ROUTES_CASE}
    return [row], [line(f"{FEW_ROUTES} routes, in the same process", "cycles/message", costs[1], "cycles", None, few),
                   line(ROUTES_CASE, "cycles/message", costs[0], "cycles", statistics.median(costs[1]), many)]


HEAD = ("what", "figure", "value", "unit", "against the least", "busy share", "waited")


def line(name, metric, values, unit, least, samples):
    value = statistics.median(values)
    return (name, metric, results.number(value), unit, f"{value / least:.2f}" if least else "",
            f"{eth.median(samples, 'busy'):.2f}" if samples else "", f"{max(s['waited'] for s in samples):.0%}" if samples else "")


def series(options, progress, name, counts, case_of, more_of):
    """Yields (count, samples) for each count; None for one that cannot be had, which is said. Rounds of all counts, so that what
    changes slowly is in all of them."""
    found = {count: [] for count in counts}
    for _ in range(options.repeat):
        for count in counts:
            if found[count] is None:
                continue
            try:
                found[count].append(eth.quiet(options, eth.run_router, case_of(count), options.seconds, options.verify, 1, *more_of(count)))
            except lab.LabError as e:
                progress(f"{name} {count}: NOT MEASURED: {e}")
                found[count] = None
    yield from found.items()


def wanted(options, name, counts):
    """Those of a kind that --filter leaves, with the least, which all are compared with."""
    chosen = [n for n in counts if options.filter in f"{n} {name}"]
    return chosen and sorted({counts[0], *chosen})


def run(options, progress):
    """Peers, routes, and memory of connections. Returns the rows."""
    rows, lines = [], []
    kinds = (("4k peers", COUNTS, lambda count: peers_case("4k", count), room_for),
             ("1M peers", COUNTS, lambda count: peers_case("1M", count), room_for),
             ("routes", ROUTES, lambda count: peers_case("4k", 64), lambda count: (routes_text(count), "")))
    for name, counts, case_of, more_of in kinds:
        least = None
        counts = wanted(options, name, counts)
        if not counts:
            continue
        for count, samples in series(options, progress, name, counts, case_of, more_of):
            if samples is None:
                lines.append((f"{count} {name}", "cycles/message", "not measured", "", "", "", ""))
                continue
            values = [s["cycles_per_message"] for s in samples]
            least = least or values
            lines.append(line(f"{count} {name}", "cycles/message", values, "cycles", statistics.median(least), samples))
            may = MORE_COST_ROUTES if name == "routes" and count > 1 else MORE_COST.get((name, count))
            rows.append({**eth.row(case_of(count), "cycles_per_message", statistics.median(values), "cycles", samples, bench="grow",
                                   reference=f"{counts[0]} {name}", bar=1 / may if may else None, samples=values,
                                   reference_samples=least, ratios=results.ratios(values, least, False),
                                   **results.compared(values, least, False)), "case": f"{count} {name}"})
            progress(f"{count} {name}: done")
    if options.filter in ROUTES_CASE:
        more, found = routes(options, progress)
        rows += more
        lines += found
    if options.filter in "memory":
        more, found = memory(options, progress)
        rows += more
        lines += found
    print(f"\ngrow: PUTs, {' and '.join(f'{n} of {size}' for size, n in INFLIGHT.items())} on the way ({CREDITS} with one peer), random "
          f"pairs of peers, memif of MTU 9000, {options.repeat} runs of {options.seconds:g} s, medians")
    results.print_table(HEAD, lines)
    judged = [r for r in rows if r.get("bar") is not None]
    print("\nratios of one by the other: 0.87 is 1.15 times the cost")
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in judged])
    for r in judged:
        if r["metric"] == "cycles_per_message":
            low, high = (1 / x for x in reversed(results.between(r["ratios"])))
            print(f"{r['case']}: {1 / r['ratio']:.3f} times the cost of {r['reference']} ({low:.3f} to {high:.3f} by {len(r['ratios'])} rounds; lowest by "
                  f"lowest {min(r['samples']) / min(r['reference_samples']):.3f}); wanted at most {1 / r['bar']:.2f}: "
                  f"{results.decided(r['ratios'], r['bar'])}")
    return rows


def memory(options, progress):
    """A connection's memory is there from the start, for as many as there may be: what one more of these takes, and what more is
    touched when peers connect."""
    rows, lines = [], []
    few, many = PLANNED
    planned = [dirty_alone(options.build, f"  segments: 64\n  max_connections: {n}\n") for n in (few, many)]
    each = (planned[1] - planned[0]) / (many - few)
    lines.append(line(f"one of {many} connections that may be, beside {few}", "memory/connection", [each], "bytes", None, None))
    seen = []
    for count in COUNTS[2:4]:
        span = machine.Span()
        try:
            before, size, conns = idle_memory(options.build, count)
        except lab.LabError as e:
            progress(f"memory of {count} peers: NOT MEASURED: {e}")
            lines.append((f"{count} idle peers", "memory/connection", "not measured", "", "", "", ""))
            continue
        value = each + size / conns
        lines.append(line(f"{count} idle peers, {conns} connections, {before / 1e6:.0f} MB before them, {size / 1e6:.2f} MB by them",
                          "memory/connection", [value], "bytes", None, None))
        rows.append({"bench": "grow", "case": f"{count} idle peers", "subject": "millraced", "metric": "memory_per_connection",
                     "value": value, "unit": "bytes", "reference": None, "ratio": None, "connections": conns,
                     "planned": each, "touched": size / conns, "bytes_without": before, "settings": {"peers": count},
                     **span.stop().shares()})
        seen.append((conns, size))
    if len(seen) == 2:
        (few, size), (many, more) = seen
        value = each + (more - size) / (many - few)
        lines.append(line(f"one more connection, from {few} to {many} ({each:.0f} planned, {value - each:.0f} touched)", "memory/connection",
                          [value], "bytes", None, None))
        rows.append({**rows[-1], "case": "one more idle connection", "value": value, "bar": 1, "touched": value - each, "reference":
                     f"{IDLE_BYTES} bytes", **{k: IDLE_BYTES / value for k in ("ratio", "ratio_lowest", "ratio_highest")}})
    return rows, lines


# ------------------------------------------------------------------------------------------------------------- two

TWO_HEAD = ("case", "reactors", "payload MB/s", "busy share of each", "CPU share of each", "MB for each busy second", "cycles/message",
            "waited")


def per_busy(samples):
    """MB of payload for each second in which a reactor was busy, of each run."""
    return [s["payload"] / sum(s["busy_each"]) / 1e6 for s in samples]


def two_line(case, what, samples):
    return (str(case), what, results.number(eth.median(samples, "payload") / 1e6), " ".join(f"{s:.2f}" for s in samples[0]["busy_each"]),
            " ".join(f"{s:.2f}" for s in samples[0]["cpu_each"]), results.number(statistics.median(per_busy(samples))),
            f"{eth.median(samples, 'cycles_per_message'):.0f}", f"{max(s['waited'] for s in samples):.0%}")


def two_row(case, metric, mine, theirs, reference, bar):
    mine_is, theirs_is = per_busy(mine), per_busy(theirs)
    return eth.row(case, metric, statistics.median(mine_is), "MB/s", mine, bench="two", reference=reference, bar=bar, samples=mine_is,
                   reference_samples=theirs_is, **results.compared(mine_is, theirs_is, True),
                   reference_value=statistics.median(theirs_is))


def two(options, progress):
    """Two reactors against one, packets that come to the wrong reactor, and many senders to one receiver. Returns the rows."""
    rows, lines = [], []
    # With two of two cores one reactor shares its core with the generator, and that is no disturbance.
    shared = lambda *a: eth.quiet(options, *a, waits=True)  # noqa: E731
    for case in TWO:
        one, both = [], []
        if options.filter not in str(case):
            continue
        for _ in range(options.repeat):
            one.append(eth.quiet(options, eth.run_router, case, options.seconds, options.verify, 1))
            both.append(shared(eth.run_router, case, options.seconds, options.verify, 2))
        lines += [two_line(case, "1", one), two_line(case, "2", both)]
        rows.append(two_row(case, "bytes_per_busy_second", both, one, "one reactor", TWO_BAR))
        progress(f"{case}: done")
    if options.filter in f"steering {STEER}":
        at = {how: [] for how in HOMES}
        for _ in range(options.repeat):
            for how, ends in HOMES.items():
                at[how].append(steered(options, shared, ends))
        lines += [two_line(STEER, f"2, {how} reactor", samples) for how, samples in at.items()]
        rows.append(two_row(STEER, "bytes_per_busy_second at the wrong reactor", at["wrong"], at["right"], "the right one", STEER_BAR))
    if options.filter in f"incast {INCAST}":
        more, found = incast(options)
        rows += more
        lines += found
    print(f"\ntwo: memif, {options.repeat} runs of {options.seconds:g} s, medians. Busy is the time of turns that found work, without what "
          "the kernel gave others of them; the generator is on the core of the first of two reactors where there are two cores")
    results.print_table(TWO_HEAD, lines)
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in rows])
    return rows


def steered(options, shared, ends):
    return shared(lambda build: eth.run_router(build, STEER, options.seconds, options.verify, 2, **ends))


def incast(options):
    """128 senders with eight messages of 1 MiB each on the way to one receiver, against one such sender. Nothing is dropped (a run
    in which something was is an error), all are served alike, and memory stays within what it may be."""
    alone = eth.Case("put", "1M", 1, CREDITS, 9000, targets=1)
    many, few = ([eth.quiet(options, eth.run_router, case, options.seconds, options.verify) for _ in range(options.repeat)]
                 for case in (INCAST, alone))
    rate = [[s["payload"] / 1e6 for s in samples] for samples in (many, few)]
    fair = [s["generator"]["source"]["jain"] for s in many]
    over = max(s["segments_most"] - s["segments_total"] for s in many)
    if over > 0:
        raise lab.LabError(f"incast: {over} bytes more than the budget were promised or held")
    print(f"\nincast: Jain's index {min(fair):.3f} to {max(fair):.3f}; a sender had {min(s['generator']['source']['bytes_least'] for s in many) / 1e6:.0f} "
          f"to {max(s['generator']['source']['bytes_most'] for s in many) / 1e6:.0f} MB; at most {max(s['segments_most'] for s in many) / 1e6:.0f} of "
          f"{many[0]['segments_total'] / 1e6:.0f} MB of what may be promised and held; no message and no frame was dropped, lost or altered")
    return [eth.row(INCAST, "throughput", statistics.median(rate[0]), "MB/s", many, bench="two", reference="one sender",
                    **results.compared(rate[0], rate[1], True), reference_value=statistics.median(rate[1])),
            eth.row(INCAST, "jain", statistics.median(fair), "", many, bench="two", reference="all alike", bar=FAIR, ratio=statistics.median(fair),
                    ratio_lowest=min(fair), ratio_highest=max(fair))], \
        [two_line(case, "1", samples) for case, samples in ((INCAST, many), (alone, few))]
