# SPDX-License-Identifier: BSD-3-Clause
"""What it costs that reactors can look at what their work is made of (`reactors_set`, lib/reactor/mark.h): while nobody looks, and
while one turn in so many is looked at. Over memif, as eth.py has it.

Looking is turned on and off by turns, a fraction of a second each, under one load of one router: what changes slowly is in
neighbouring turns alike. What a router pays while nobody looks can be seen only against one that has no marks, another program
(meson's option `marks`), so there are runs of both, one after the other.
"""

import os
import statistics
import time

import eth
import lab
import machine
import results

INTERRUPTED = 4           # exit status of a generator that was stopped and had no trouble
WITHOUT = "no-marks"      # folder of the build without marks, in the build folder
CASES = (eth.Case("put", "4k", 64, 512, 9000), eth.Case("put", "1M", 4, 16, 9000))
EVERY = (16, 1)           # one turn of the loop in so many is looked at; 16 is the default
TURN = 0.1                # seconds
SETTLE = 0.01             # seconds after looking was turned on or off
BARS = {16: 1 / 1.02}     # on it costs less than 2 %
HEAD = ("case", "marks", "cycles/message, median", "lowest", "highest", "against", "median of ratios (quarters)", "of the lowest",
        "turns or runs")


class Turns:
    """Pieces of a run."""

    def __init__(self, router):
        self.router = router

    def look(self):
        reactor = self.router.call("reactors_get")["reactors"][0]
        return reactor["busy_cycles"], reactor["total_cycles"], self.router.stats()["route_count"]

    def cost(self, every):
        """Busy cycles for each message, looking at one turn in `every`; 0: at none; None: its marks are not there. None if the
        router had little to do: others had its core, or that of the ends."""
        if every is not None:
            self.router.call("reactors_set", stages="on" if every else "off", **({"every": every} if every else {}))
        time.sleep(SETTLE)
        a = self.look()
        time.sleep(TURN)
        b = self.look()
        if b[2] == a[2] or b[0] - a[0] < eth.BUSY_LEAST * (b[1] - a[1]):
            return None
        return (b[0] - a[0]) / (b[2] - a[2])


def has_marks(router):
    try:
        router.rpc.call("reactors_set", stages="on")
    except lab.LabError as e:
        if "no marks" not in str(e):
            raise
        return False
    router.call("reactors_set", stages="off")
    return True


def run_turns(build, router_build, case, seconds, everies):
    """One run of the router of router_build. Returns {turns: [(every, cycles for each message without looking, the same with)], who
    else used the machine}. everies empty: a router without marks; each turn is (None, 0, cycles)."""
    with eth.Room(build, router_build) as room:
        router = room.router(case.mtu)
        if has_marks(router) != bool(everies):
            raise lab.LabError(f"the router of {router_build} has {'no ' if everies else ''}marks")
        generator = room.generator(case, 3 * seconds + eth.DEADLINE, "--verify", "none")
        eth.wait_flow(eth.RouterView(router), generator)
        pid, turns, found = router.process.popen.pid, Turns(router), []
        span, waited = machine.Span(), machine.thread_waits(pid, "reactor-0")[1]
        end = time.monotonic() + seconds
        while time.monotonic() < end or not found:
            for every in everies or (None,):
                # Which of the two is first changes, so that what grows or falls is in both.
                on = turns.cost(every) if len(found) // 2 % 2 else None
                off = turns.cost(0) if everies else 0
                found.append((every, off, turns.cost(every) if on is None else on))
        span.stop()
        waited = machine.thread_waits(pid, "reactor-0")[1] - waited
        result = generator.interrupt_result(eth.DEADLINE)
        if result["exit_status"] not in (0, INTERRUPTED):
            raise lab.LabError(f"{case}: {result['trouble']}")
        return {"turns": [f for f in found if None not in f[1:]], "waited": waited / span.seconds, **span.shares()}


def line_of(case, name, values, against="", ratios=None, lowest=None):
    quarters = statistics.quantiles(ratios, n=4) if ratios and len(ratios) > 1 else None
    return (str(case), name, results.number(statistics.median(values)), results.number(min(values)), results.number(max(values)), against,
            f"{statistics.median(ratios):.4f}" + (f" ({quarters[0]:.4f}-{quarters[2]:.4f})" if quarters else "") if ratios else "",
            f"{lowest:.4f}" if lowest else "", str(len(values)))


def row_of(case, metric, mine, theirs, reference, bar, span, repeat):
    """Ratios over 1: looking, or having marks, costs less than not."""
    return {"bench": "marks", "case": str(case), "subject": "millraced", "metric": metric, "value": statistics.median(mine), "unit": "cycles",
            "reference": reference, **results.compared(mine, theirs, False), "reference_value": statistics.median(theirs), "bar": bar,
            "lowest": min(mine), "reference_lowest": min(theirs), "samples": mine, "reference_samples": theirs,
            "settings": {"peers": case.peers, "inflight": case.inflight, "mtu": case.mtu, "turn": TURN, "rounds": repeat}, **span}


def measure(options, progress, case):
    """(rows, lines) of one case."""
    without = os.path.join(options.build, WITHOUT)
    there = os.access(os.path.join(without, eth.ROUTER), os.X_OK)
    pairs, alone, nothing, runs = {every: [] for every in EVERY}, [], [], []
    for i in range(options.repeat):
        for with_marks in (True, False)[::-1 if i % 2 else 1]:
            if not with_marks and not there:
                continue
            runs.append(eth.quiet(options, run_turns, options.build if with_marks else without, case, options.seconds,
                                  EVERY if with_marks else ()))
            found = runs[-1]["turns"]
            if len(found) < 2:
                raise lab.LabError(f"{case}: the router was busy for less than {eth.BUSY_LEAST} of nearly all turns")
            if with_marks:
                for every, off, on in found:
                    pairs[every].append((off, on))
                alone.append(statistics.median(off for _, off, _ in found))
            else:
                nothing.append(statistics.median(on for _, _, on in found))
        progress(f"{case}: round {i + 1} of {options.repeat}")
    span = {k: max(r[k] for r in runs) for k in ("foreign_share", "stolen_share")}
    rows, lines = [], []
    if there:
        lines.append(line_of(case, "none in the program, runs", nothing))
        lines.append(line_of(case, "off, runs", alone, "none", [a / n for a, n in zip(alone, nothing)], min(alone) / min(nothing)))
        rows.append(row_of(case, "marks off", alone, nothing, "a program without marks", None, span, options.repeat))
    else:
        progress(f"{without} is not there (meson setup -Dmarks=false, or ./dev bench marks): what marks cost while off is not measured")
    for every, of in pairs.items():
        off, on = zip(*of)
        lines.append(line_of(case, "off, turns", off))
        lines.append(line_of(case, f"on, one turn of the loop in {every}", on, "off", [b / a for a, b in of], min(on) / min(off)))
        rows.append(row_of(case, f"marks on, one in {every}", list(on), list(off), "marks off", BARS.get(every), span, options.repeat))
    return rows, lines


def run(options, progress):
    """The benchmark. Returns its rows."""
    rows, lines = [], []
    for case in CASES:
        if options.filter in str(case) and options.mtu in (None, case.mtu):
            more, found = measure(options, progress, case)
            rows += more
            lines += found
    print(f"\nmarks: memif, one reactor, {options.repeat} runs of {options.seconds:g} s of each program, turns of {TURN:g} s; cycles of busy turns "
          "of the loop for each message")
    results.print_table(HEAD, lines)
    print("\nratios of one by the other: 0.98 is 1.02 times the cost")
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in rows])
    return rows
