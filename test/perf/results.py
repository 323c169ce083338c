# SPDX-License-Identifier: BSD-3-Clause
"""Rows of results: what every benchmark gives, how they are printed, kept and compared with kept ones.

A row is {bench, case, subject, metric, value, unit, reference, ratio, …}: a figure of the subject, and how it compares with the
same figure of the reference, measured in the same run. A ratio over 1 means that the subject is better. Figures belong to a
machine; ratios are what is kept.
"""

import json
import math
import os
import statistics

import machine

KEPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kept.json")
TOLERANCE = 0.15        # what a ratio may be below the kept one, where the kept row does not say
TOLERANCE_LEAST = 0.05  # what it says at least: machines differ by as much from one hour to the next
KEY = ("bench", "case", "subject", "metric", "reference")


def ratios(mine, theirs, more_is_better):
    """Of neighbouring runs; over 1 when mine is better."""
    return [m / t if more_is_better else t / m for m, t in zip(mine, theirs)]


def compared(mine, theirs, more_is_better):
    """The part of a row that compares two lists of samples."""
    of = ratios(mine, theirs, more_is_better)
    return {"ratio": statistics.median(of), "ratio_lowest": min(of), "ratio_highest": max(of)}


CERTAIN = 0.9  # that the median of any number of rounds is within what these rounds say


def between(samples):
    """(lowest, highest) value that the median of ever more rounds may have by these: as many of the outermost are left out on either
    side as leave it CERTAIN. Nothing is assumed of how they are spread."""
    ordered, n = sorted(samples), len(samples)
    out = beyond = 0
    while out < (n - 1) // 2:
        beyond += 2 * math.comb(n, out) / 2 ** n
        if 1 - beyond - 2 * math.comb(n, out + 1) / 2 ** n < CERTAIN:
            break
        out += 1
    return ordered[out], ordered[n - 1 - out]


def decided(samples, bar, more_is_better=True):
    """Whether a bar is reached, as far as the rounds can tell."""
    low, high = between(samples)
    if not more_is_better:
        low, high, bar = -high, -low, -bar
    return "reached" if low >= bar else "MISSED" if high < bar else "not decided by these rounds"


def print_table(head, lines):
    width = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    rule = ["-" * w for w in width]
    for line in [head, rule, *lines]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(line, width)) + " |")


def number(value):
    """With as many digits as mean something in a table."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


RATIO_HEAD = ("case", "what", "of", "figure", "unit", "against", "ratio (lowest-highest)", "bar")


def ratio_line(row):
    spread = f"{row['ratio']:.2f} ({row['ratio_lowest']:.2f}-{row['ratio_highest']:.2f})" if row.get("ratio") is not None else ""
    bar = row.get("bar")
    # A figure without a reference has its bar on itself.
    met = None if bar is None else row["value"] <= bar if row.get("ratio") is None else row["ratio"] >= bar
    return (row["case"], row["metric"], row["subject"], number(row["value"]), row["unit"], row.get("reference") or "", spread,
            "" if bar is None else f"{number(bar)} {'reached' if met else 'MISSED'}")


def noise_line(rows):
    """What must be known before any of the figures is believed."""
    foreign = max((r["foreign_share"] for r in rows), default=0)
    stolen = max((r["stolen_share"] for r in rows), default=0)
    said = f"at most {foreign:.0%} of the CPU time used in a run was that of other processes, and {stolen:.0%} of the machine's time " \
           "was taken by the hypervisor"
    if foreign > machine.FOREIGN_LIMIT:
        said += f"\nNOISY: above {machine.FOREIGN_LIMIT:.0%} the figures say little, and whether a bar is reached says nothing"
    return said


# ---------------------------------------------------------------------------------------------------- kept ratios

def key(row):
    return tuple(row.get(k) for k in KEY)


def tolerance(row):
    """What the ratio of a row may lose, as a part of it, before that means something: as far as its lowest round was below the median,
    and TOLERANCE_LEAST at least."""
    lowest = row.get("ratio_lowest", row["ratio"])
    return round(max(TOLERANCE_LEAST, 1 - lowest / row["ratio"]), 3)


def keep(rows, path=KEPT):
    """Writes the ratios into the file, in place of older ones of the same rows, with what may be lost by the spread of the rounds; a row in
    which somebody wrote `fixed` keeps its own. Returns how many."""
    kept = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            kept = {key(r): r for r in json.load(f)}
    rows = [r for r in rows if r.get("ratio") is not None and r.get("keep", True)]
    for row in rows:
        old = kept.get(key(row), {})
        kept[key(row)] = {**{k: row.get(k) for k in KEY}, "ratio": round(row["ratio"], 3), "tolerance": tolerance(row),
                          **({k: old[k] for k in ("tolerance", "fixed")} if old.get("fixed") else {})}
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(kept[k]) for k in sorted(kept, key=str)) + "\n]\n")
    return len(rows)


def check(rows, path=KEPT):
    """Compares with the kept ratios; prints a line for each that is worse, or was not there to compare. True: none is."""
    if not os.path.exists(path):
        print(f"there is no {path}: --keep makes it")
        return False
    with open(path, encoding="utf-8") as f:
        kept = {key(r): r for r in json.load(f)}
    good, seen = True, 0
    for row in rows:
        old = kept.get(key(row))
        if old is None or row.get("ratio") is None:
            continue
        seen += 1
        least = old["ratio"] * (1 - old.get("tolerance", TOLERANCE))
        if row["ratio"] < least:
            good = False
            print(f"WORSE {row['bench']} {row['case']} {row['metric']} of {row['subject']} against {row['reference']}: "
                  f"{row['ratio']:.2f}, kept is {old['ratio']:.2f}, the least allowed {least:.2f}")
    print(f"compared {seen} of {len(rows)} rows with the kept ones: {'none is worse' if good else 'see above'}")
    return good and seen > 0
