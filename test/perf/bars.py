# SPDX-License-Identifier: BSD-3-Clause
"""Whether a router that is built now has lost much: a third of what is wanted of `eth`, decided within seconds, on machines that
others use too. PASS or FAIL lines; SKIP where others had so much of the machine that nothing could be measured.
"""

import statistics
import time
import types

import eth
import lab
import machine

PART = 3       # of what is wanted this part is asked
ROUNDS = 5     # at most; the first two always
LIMIT = 100    # seconds after which no round of a case is begun
TAKEN = 0.5    # of what is used of the machine: others that have so much in every round are why none was any good
CASES = [c for c in eth.CASES if c.operation == "put"]


def name_of(case):
    return f"eth.capacity_{case.size}_mtu{case.mtu}"


def judged(pairs, wanted):
    """Returns (whether the bar is met, a sentence) for pairs of capacities, routed and plain. The level of the machine moves from round
    to round, so each round is one ratio and the median of these counts."""
    ratio = statistics.median(routed / plain for routed, plain in pairs)
    listed = ", ".join(f"{routed / 1e6:.0f} of {plain / 1e6:.0f}" for routed, plain in pairs)
    return ratio >= wanted, f"{ratio:.2f} of plain frames, kept as long (median of {listed} MB/s), the bar is {wanted:.3f}"


def one_round(rounds, case, options):
    """(capacity routed, capacity of plain frames that are kept as long), or None and why. Frames that go on at once never leave the
    caches: on a virtual machine they go three times as fast while the hypervisor has its two CPUs near one another, and a router,
    whose messages wait, does not."""
    try:
        mine = rounds.busy_run("millraced", eth.run_router, case, options.seconds, options.verify)
        theirs = mine and rounds.busy_run("plain frames", eth.run_plain, case.mtu, mine["in"], options.seconds,
                                          eth.kept_turns(mine["segments_most"], case.mtu))
    except lab.LabError as e:
        return None, str(e)
    return (mine["wire_capacity"], theirs["wire_capacity"]) if theirs else None, rounds.said()


def measure(case, options, progress):
    """('PASS', 'FAIL' or 'SKIP', a sentence). Rounds go on until it is reached."""
    good, measured, others, begun = False, [], [], time.monotonic()
    rounds = eth.Rounds(case, types.SimpleNamespace(**{**vars(options), "noisy": True}), progress)
    for n in range(ROUNDS):
        span = machine.Span()
        pair, trouble = one_round(rounds, case, options)
        if pair:
            measured.append(pair)
            good, said = judged(measured, case.bar / PART)
        else:
            others.append(sum(span.stop().shares().values()))
        if good and n > 0 or time.monotonic() - begun > LIMIT:
            break
    if measured:
        return "PASS" if good else "FAIL", said
    return unmeasured(others), f"nothing could be measured in {len(others)} rounds, others had {min(others):.0%} of what was used of the " \
                               f"machine, or more: {trouble}"


def unmeasured(others):
    """What it means that no round was any good, while others had so much of the machine in them."""
    return "SKIP" if min(others) >= TAKEN else "FAIL"


def run(options, progress):
    """0: all are reached, else 1."""
    status = 0
    for case in CASES:
        word, said = measure(case, options, progress)
        print(f"{word} {name_of(case)}: {said}", flush=True)
        status = 1 if word == "FAIL" else status
    return status
