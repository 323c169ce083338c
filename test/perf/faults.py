# SPDX-License-Identifier: BSD-3-Clause
"""What the rules of fault injection cost. One router forwards messages over memif, as in eth.py, while it has no rule and while it has
one that matches no message, in turn. With a rule each message is compared twice with it; without one a pointer is looked at twice.
So the difference of the two is more than what a router without rules pays.
"""

import statistics
import time

import eth
import lab
import machine
import results

CASE = eth.Case("put", "4k", 64, 512, 9000)
RULE = {"type": "drop", "source": "192.0.2.1@tcp", "dest": "192.0.2.2@tcp", "rate": 1}
WITHOUT, WITH = "no rule", "a rule that matches nothing"


def slices(build, options):
    """A pair of figures for each round: without and with the rule, the one or the other first in turn."""
    seconds, pairs = options.seconds, []
    with eth.Room(build) as room:
        router = room.router(CASE.mtu, CASE.idle)
        view = eth.RouterView(router)
        generator = room.generator(CASE, options.repeat * 2 * (seconds + 4 * eth.SETTLE) + eth.LOOKS, "--verify", options.verify)
        eth.wait_flow(view, generator)
        for number in range(options.repeat):
            pair = {}
            for ruled in ((False, True), (True, False))[number % 2]:
                if ruled:
                    router.call("fault_add", **RULE)
                time.sleep(eth.SETTLE)
                span, a = machine.Span(), view.look()
                time.sleep(seconds)
                b = view.look()
                span.stop()
                pair[ruled] = {**eth.figures(a, b), **span.shares()}
                if ruled:
                    router.call("fault_del", type="drop", all=True)
            pairs.append(pair)
        how = {**eth.settings(router), "hugepages": room.huge}
        if not generator.running():
            raise lab.LabError("millrace-peers had ended before the figures were taken: others use the machine too much")
        generator.result(eth.DEADLINE)
    for pair in pairs:
        for sample in pair.values():
            sample.update(settings=how, generator={"verify": options.verify})
    return pairs


def run(options, progress):
    """The benchmark. Returns its rows."""
    if options.filter not in "faults":
        return []
    if not options.noisy:
        machine.wait_until_quiet()
    pairs = slices(options.build, options)
    without, ruled = ([pair[k] for pair in pairs] for k in (False, True))
    progress("faults: done")
    cycles = [[s["cycles_per_message"] for s in samples] for samples in (without, ruled)]
    rows = [eth.row(CASE, "cycles_per_message", statistics.median(cycles[0]), "cycles", without,
                    **{**results.compared(*cycles, False), "bench": "faults", "subject": WITHOUT, "reference": WITH, "keep": False})]
    print(f"\nfaults: memif, {CASE}, one router, {options.repeat} rounds of {options.seconds:g} s each way, medians")
    results.print_table(("", "cycles/message", "messages/s", "busy share"),
                        [(name, f"{eth.median(s, 'cycles_per_message'):.0f}", f"{eth.median(s, 'messages'):.0f}",
                          f"{eth.median(s, 'busy'):.2f}") for name, s in ((WITHOUT, without), (WITH, ruled))])
    print("\nratios of neighbouring slices")
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in rows])
    return rows
