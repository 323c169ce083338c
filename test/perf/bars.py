# SPDX-License-Identifier: BSD-3-Clause
"""Whether a router that is built now has lost much: a third of what is wanted of `eth`, decided within seconds, on machines that
others use too. PASS or FAIL lines.
"""

import types

import eth
import lab

PART = 3       # of what is wanted this part is asked
ROUNDS = 4     # at most; the first two always
CASES = [c for c in eth.CASES if c.operation == "put"]


def name_of(case):
    return f"eth.capacity_{case.size}_mtu{case.mtu}"


def judged(routed, plain, wanted):
    """(whether it is reached, a sentence) by capacities. Others only ever take from either, so the best of each is nearest to what
    the programs can do."""
    ratio = max(routed) / max(plain)
    return ratio >= wanted, f"{ratio:.2f} of plain forwarding ({max(routed) / 1e6:.0f} of {max(plain) / 1e6:.0f} MB/s, best of {len(routed)}), " \
                            f"the bar is {wanted:.3f}"


def measure(case, options, progress):
    """(whether it is reached, a sentence). Rounds go on until it is."""
    routed, plain = [], []
    rounds = eth.Rounds(case, types.SimpleNamespace(**{**vars(options), "noisy": True}), progress)
    good, said = False, ""
    for n in range(ROUNDS):
        mine = rounds.busy_run("millraced", eth.run_router, case, options.seconds, options.verify)
        theirs = mine and rounds.busy_run("plain frames", eth.run_plain, case.mtu, mine["in"], options.seconds)
        if theirs:
            routed.append(mine["wire_capacity"])
            plain.append(theirs["wire_capacity"])
            good, said = judged(routed, plain, case.bar / PART)
        if good and n > 0:
            break
    return good, said or f"nothing could be measured in {ROUNDS} rounds: {rounds.said()}"


def run(options, progress):
    """0: all are reached, else 1."""
    status = 0
    for case in CASES:
        try:
            good, said = measure(case, options, progress)
        except lab.LabError as e:
            good, said = False, str(e)
        print(f"{'PASS' if good else 'FAIL'} {name_of(case)}: {said}", flush=True)
        status = status if good else 1
    return status
