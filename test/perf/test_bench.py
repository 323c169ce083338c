#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the measuring itself: who used the machine, what is counted, what is kept and compared. Prints a PASS or FAIL line per
test. Its argument is the program frame-blast, in the folder of which port-forward and ring-lab are. --no-rings: not what needs the
latter, which takes gigabytes of memory where addresses are checked.

Without root or namespaces; the programs talk over memif and loopback.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import bars  # noqa: E402
import copies  # noqa: E402
import eth  # noqa: E402
import lab  # noqa: E402
import machine  # noqa: E402
import plot  # noqa: E402
import results  # noqa: E402
import zerocopy  # noqa: E402

BURNT = 0.5  # seconds
BURN = f"import time\nend = time.process_time() + {BURNT}\nwhile time.process_time() < end:\n    pass\n"
FOLDER = None  # that test/perf's programs are in, as in a build folder
RINGS = True  # whether ring-lab is to be tried


def check(what, condition):
    if not condition:
        raise AssertionError(what)


def foreign_is_who_is_not_ours():
    """init, a shell with two children, us with a child and its child, a process whose parent is not to be seen."""
    table = {pid: (parent, 1.0, 0.0) for pid, parent in ((1, 0), (10, 1), (11, 10), (20, 10), (21, 20), (22, 21), (30, 29))}
    check("us and ours left out", set(machine.foreign(table, 20)) == {1, 10, 11, 30})
    check("of another", set(machine.foreign(table, 11)) == {1, 10, 20, 21, 22, 30})


def foreign_time_is_not_lost():
    """What ran on, what came, what ended and was waited for, and what ended and was not."""
    before = {1: (0, 1.0, 5.0), 2: (1, 10.0, 0.0), 3: (1, 7.0, 0.0)}
    check("ran on", machine.foreign_seconds(before, {**before, 2: (1, 12.0, 0.0)}) == 2)
    check("came", machine.foreign_seconds(before, {**before, 4: (1, 3.0, 0.0)}) == 3)
    check("waited for", machine.foreign_seconds(before, {1: (0, 1.0, 16.0), 3: before[3]}) == 1)
    check("came, ended, waited for", machine.foreign_seconds(before, {**before, 1: (0, 1.0, 9.0)}) == 4)
    check("not waited for", machine.foreign_seconds(before, {1: before[1], 3: (1, 7.5, 0.0)}) == 0.5)
    check("nothing", machine.foreign_seconds(before, dict(before)) == 0)


def who_ended_still_counts():
    """A compiler that came and went between two looks is in its parent's time."""
    def mine():
        return sum(machine.processes()[os.getpid()][1:])
    before, span = mine(), machine.Span()
    subprocess.run([sys.executable, "-c", BURN], check=True)
    span.stop()
    grown = mine() - before
    check(f"{BURNT} s burnt, {grown:.2f} s found", grown > 0.8 * BURNT)
    check(f"{span.busy:.2f} s busy, {span.stolen:.2f} s stolen", span.busy + span.stolen > 0.8 * BURNT)


def a_noisy_run_is_said():
    quiet = [{"foreign_share": 0.0, "stolen_share": 0.0}]
    noisy = [*quiet, {"foreign_share": machine.FOREIGN_LIMIT * 1.1, "stolen_share": 0.0}]
    check("quiet", "NOISY" not in results.noise_line(quiet))
    check("noisy", "NOISY" in results.noise_line(noisy))


def waiting_for_a_core_is_seen():
    """Two that burn on one core: each waits for about half of the time."""
    both = [subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{0}})\n{BURN}"])
            for _ in range(2)]
    waits = 0.0
    while both[0].poll() is None:
        waits = max(waits, (machine.thread_waits(both[0].pid, machine.thread_name(both[0].pid)) or (0, 0))[1])
        time.sleep(0.01)
    both[1].wait()
    check(f"waited {waits:.2f} s", waits > 0.1)


def kept_ratios_are_compared():
    row = {"bench": "b", "case": "c", "subject": "s", "metric": "m", "value": 1, "unit": "u", "reference": "r", "ratio": 1.0,
           "foreign_share": 0, "stolen_share": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kept.json")
        check("nothing is kept yet", not results.check([row], path))
        check("one row", results.keep([row, {**row, "reference": None, "ratio": None}], path) == 1)
        check("the same", results.check([row], path))
        check("better", results.check([{**row, "ratio": 2.0}], path))
        check("within the tolerance", results.check([{**row, "ratio": 1 - results.TOLERANCE_LEAST * 0.9}], path))
        check("worse", not results.check([{**row, "ratio": 1 - results.TOLERANCE_LEAST * 1.1}], path))
        check("another row is not compared", not results.check([{**row, "case": "other"}], path))
        results.keep([{**row, "ratio": 3.0, "ratio_lowest": 2.4}], path)
        check("kept anew, within the spread of its rounds", results.check([{**row, "ratio": 2.41}], path))
        check("and below it", not results.check([{**row, "ratio": 2.39}], path))
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
        kept[0].update(tolerance=0.5, fixed="by hand")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(kept, f)
        results.keep([{**row, "ratio": 2.0, "ratio_lowest": 1.9}], path)
        check("its own tolerance", results.check([{**row, "ratio": 1.01}], path))
        check("and no more", not results.check([{**row, "ratio": 0.99}], path))


def a_slowed_program_is_found():
    """Rounds of a program as they were kept, of the same once more, and of one that takes a quarter more cycles, by the rows that eth
    makes of samples."""
    def rows(slower):
        def sample(capacity):
            return {"wire_capacity": capacity, "busy": 0.99, "payload": 1, "payload_capacity": 1, "cycles_per_message": 1, "foreign_share": 0,
                    "stolen_share": 0, "waited": 0, "settings": {}, "generator": {"verify": "none"}}
        routed = [sample(c / slower) for c in (1.5e9, 1.4e9, 1.45e9, 1.6e9, 1.5e9)]
        plain = [sample(c) for c in (4.0e9, 3.9e9, 4.1e9, 4.0e9, 4.2e9)]
        return list(eth.rows_of(eth.CASES[0], routed, plain))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kept.json")
        check("one ratio", results.keep(rows(1), path) == 1)
        check("the same", results.check(rows(1), path))
        check("slower within the spread", results.check(rows(1.03), path))
        check("a quarter slower", not results.check(rows(1.25), path))


def bars_are_judged():
    row = {"case": "c", "subject": "s", "metric": "m", "value": 20.0, "unit": "us", "reference": "r", "ratio_lowest": 1,
           "ratio_highest": 1, "bar": 0.6}
    check("a ratio above", "reached" in results.ratio_line({**row, "ratio": 0.61})[-1])
    check("a ratio below", "MISSED" in results.ratio_line({**row, "ratio": 0.59})[-1])
    check("none", results.ratio_line({**row, "ratio": 1, "bar": None})[-1] == "")


def the_median_of_rounds_is_compared_with_the_bar():
    check("one plain run at twice the speed", bars.judged([(1e9, 4e9), (1e9, 8e9), (1e9, 4e9)], 0.2)[0])
    check("one routed run at twice the speed", not bars.judged([(1e9, 8e9), (2e9, 8e9), (1e9, 8e9)], 0.2)[0])
    check("a word for each round", "1000 of 4000, 2000 of 8000 MB/s" in bars.judged([(1e9, 4e9), (2e9, 8e9)], 0.2)[1])
    check("others had the machine", bars.unmeasured([0.9, 0.6]) == "SKIP" and bars.unmeasured([0.9, 0.1]) == "FAIL")
    check("of all that are wanted a third", [round(c.bar / bars.PART, 3) for c in bars.CASES] == [0.2, 0.117, 0.133])


def what_rounds_decide():
    """Five rounds: the median of ever more is between the outermost of them in 15 of 16 cases. Eight: the second ones, in 238 of 256."""
    check("of five", results.between([3, 1, 5, 2, 4]) == (1, 5))
    check("of eight", results.between([8, 7, 6, 5, 4, 3, 2, 1]) == (2, 7))
    check("of one", results.between([7]) == (7, 7))
    check("above", results.decided([1.0, 1.1, 1.2, 1.0, 1.1], 1.0) == "reached")
    check("below", results.decided([0.8, 0.9, 0.95, 0.9, 0.9], 1.0) == "MISSED")
    check("both", results.decided([0.8, 1.2, 1.0, 1.1, 0.9], 1.0).startswith("not decided"))
    check("less is better", results.decided([10, 12, 11, 9, 10], 12, False) == "reached")
    check("and missed", results.decided([13, 14, 15, 13, 14], 12, False) == "MISSED")


def drawings_are_xml():
    """With what is to be seen in them; names are not markup."""
    rows = [{"bench": "eth", "case": "put <1M> & co", "subject": "millraced", "metric": "wire_capacity", "reference": "plain frames",
             "ratio": 0.41, "ratio_lowest": 0.3, "ratio_highest": 0.5, "bar": 0.6}]
    rows += [{"bench": "grow", "case": f"{n} 4k peers", "metric": "cycles_per_message", "value": 5000.0 + n, "samples": [4000, 6000 + n],
              "reference": "1 4k peers", "ratio": 0.9, "bar": 1 / 1.6 if n > 100 else None} for n in (1, 10, 1000)]
    root = xml.etree.ElementTree.fromstring(plot.draw(rows, "a < b"))
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    check(f"names in {texts}", "put <1M> & co" in texts and "0.41" in texts and "1000" in texts)
    marks = [t for t in root.iter("{http://www.w3.org/2000/svg}line") if t.get("class") == "wanted"]
    check(f"{len(marks)} bars", len(marks) == 2)
    check("nothing to draw", plot.draw([{**rows[0], "ratio": None}], "") is None)


def busy_share_counts_all_time():
    """2 GHz: of one second half was slept, and of the other half a quarter was work."""
    a = {"busy_cycles": 1000, "total_cycles": 1000, "sleep_us": 5}
    b = {"busy_cycles": 1000 + 250_000_000, "total_cycles": 1000 + 1_000_000_000, "sleep_us": 500_005}
    share, hz = eth.busy_share(a, b, 1.0)
    check(f"share {share}", abs(share - 0.125) < 1e-6)
    check(f"hz {hz}", abs(hz - 2e9) < 1e3)


class Script:
    """Stands for runs whose busy shares are known."""

    def __init__(self, *shares):
        self.shares, self.runs = list(shares), 0

    def __call__(self, _build, *_arguments):
        self.runs += 1
        return {"busy": self.shares.pop(0), "foreign_share": 0.5, "waited": 0.5, "in": ((1, 1), (1, 1)), "wire": 1.0, "direct": 1.0,
                "payload": 1.0}


def a_middle_with_little_to_do_is_not_measured():
    """Also with --noisy, as here: such a run is made again, so many times, and is in no median whatever happens."""
    low, least = 0.12, eth.BUSY_LEAST
    said, options = [], argparse.Namespace(noisy=True, build="", repeat=3, seconds=1, verify="none")
    rounds = eth.Rounds("case", options, said.append)
    check("at once", rounds.busy_run("it", Script(least))["busy"] == least and rounds.said() == "" and not said)
    check("the third", rounds.busy_run("it", Script(low, low, 0.9))["busy"] == 0.9)
    check("both printed and counted", len(said) == rounds.repeated == 2 and "2 runs made again, 0 of 3" in rounds.said())
    never = Script(*[low] * 99)
    check("never", rounds.busy_run("it", never) is None)
    check(f"{never.runs} runs", never.runs == eth.TRIES and rounds.left_out == 1 and rounds.repeated == 2 + eth.TRIES - 1)
    # Three rounds: plain forwarding is bad once in the first, and always in the second, which is then in neither list.
    real = eth.run_router, eth.run_plain, eth.run_direct, eth.run_direct_messages
    try:
        eth.run_router = Script(0.9, 0.8, 0.7)
        eth.run_plain = Script(low, 0.6, *[low] * eth.TRIES, 0.5)
        eth.run_direct, eth.run_direct_messages = Script(1, 1), Script(1, 1)
        case = eth.CASES[0]
        rounds = eth.Rounds(case, options, said.append)
        routed, plain, direct = eth.measure(rounds)
    finally:
        eth.run_router, eth.run_plain, eth.run_direct, eth.run_direct_messages = real
    check(f"routed {routed}", [s["busy"] for s in routed] == [0.9, 0.7])
    check(f"plain {plain}", [s["busy"] for s in plain] == [0.6, 0.5] and len(direct) == 2)
    check(rounds.said(), f"{eth.TRIES} runs made again, 1 of 3 rounds left out" in rounds.said() and f"{low:.2f}" in rounds.said())


def mix_keeps_frames_and_bytes():
    for frames, size in (((1000, 5_000_000), 9014), ((77, 77 * 66), 9014), ((10, 10 * 1514), 1514), ((999, 700_123), 1514)):
        parts = [tuple(map(int, p.split(":"))) for p in eth.mix(frames, size).split(",")]
        check(f"frames of {frames}: {parts}", sum(n for _, n in parts) == frames[0])
        check(f"bytes of {frames}: {parts}", abs(sum(s * n for s, n in parts) - frames[1]) <= size / 2)


def plain_frames_come_through():
    """Both ways, at both MTUs, through the wire: all, in order, with the counts that were asked for."""
    for mtu, turned in ((1500, False), (9000, True)):
        there = back = 0
        full, small = (1000, 1000 * (mtu + 14) // 2), (500, 500 * 66)
        for seconds in (0.3, 1, 3, 9):  # where others have the cores it takes a while
            try:
                sample = eth.run_plain(FOLDER, mtu, [small, full] if turned else [full, small], seconds)
                (there, _), (back, _) = sample["in"][::-1 if turned else 1]
            except lab.LabError as e:
                check(str(e), "no frame was forwarded" in str(e))
            if there > 1000:
                break
        check(f"{there} there, {back} back", there > 1000 and 0.3 < back / there < 0.7)
        check("busy", 0 < sample["busy"] <= 1)


def payload_is_not_copied():
    """By a router between rings; and where its port has to, that is seen."""
    if not RINGS:
        return
    for copied in (False, True):
        sample = None
        for seconds in (0.5, 2, 8):  # where others have the cores it takes a while
            try:
                sample = copies.run_ring(FOLDER, "1M", seconds, copied=copied, hugepages=False)
                break
            except lab.LabError as e:
                check(str(e), "the router forwarded 0 messages" in str(e))
        check("nothing was forwarded", sample is not None)
        check(f"TCP copied {sample['copied']} of a byte", sample["copied"] < 0.001)
        check(f"ports copied {sample['port_copied']} of a byte", sample["port_copied"] > 0.9 if copied else sample["port_copied"] == 0)
        check(f"{sample['cycles_per_byte']} cycles a byte", sample["cycles_per_byte"] > 0)


def a_frame_goes_there_and_back():
    times = eth.run_frame_pair(FOLDER, 1)
    check(f"{times}", times["count"] > 100 and 0 < times["p50"] <= times["p99"])


def bytes_pass_a_relay():
    """Copied through a relay that splices, lent through one that copies: all arrive, and each lent buffer comes back."""
    def free_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return str(s.getsockname()[1])

    program = os.path.join(FOLDER, zerocopy.PROGRAM)
    for way, how, size in (("copy", "splice", 1 << 20), ("lend", "copy", 64 << 10)):
        ports = [free_port(), free_port()]
        ends = [lab.Process(lab.Here(), role, [program, role, "127.0.0.1", *more]) for role, more in (
            ("receive", (ports[1],)), ("relay", (ports[0], "127.0.0.1", ports[1], "262144", how)))]
        for end in ends:
            end.wait_line("ready")
        sender = lab.Process(lab.Here(), "send", [program, "send", "127.0.0.1", ports[0], str(size), "1", way])
        said = [end.result(30) for end in (sender, *reversed(ends))]
        check(f"{said}", len({s["bytes"] for s in said}) == 1 and said[0]["bytes"] > 0 and not any(s["exit_status"] for s in said))
        count = said[0]["bytes"] // size if way == "lend" else 0
        check(f"{said[0]}", said[0]["lent_done"] == count and said[0]["bytes"] % size == 0)


TESTS = (foreign_is_who_is_not_ours, foreign_time_is_not_lost, who_ended_still_counts, a_noisy_run_is_said, waiting_for_a_core_is_seen,
         kept_ratios_are_compared, a_slowed_program_is_found, bars_are_judged,
         the_median_of_rounds_is_compared_with_the_bar, what_rounds_decide, drawings_are_xml, busy_share_counts_all_time, a_middle_with_little_to_do_is_not_measured, mix_keeps_frames_and_bytes,
         plain_frames_come_through, a_frame_goes_there_and_back, payload_is_not_copied, bytes_pass_a_relay)


def main():
    global FOLDER, RINGS  # the arguments of a run
    RINGS = "--no-rings" not in sys.argv
    FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[1]))))
    bad = 0
    for test in TESTS:
        try:
            test()
            print(f"PASS {test.__name__}", flush=True)
        except Exception as e:  # any surprise is a failed test
            bad += 1
            if not isinstance(e, AssertionError):
                traceback.print_exc(file=sys.stdout)
            print(f"FAIL {test.__name__}: {e}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
