#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What millrace-perf writes with --plot and --csv: well-formed, complete, and inside its frame.

usage: check_output.py PROGRAM, which writes samples into a folder
"""

import csv
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"
FRAMES = 4


def numbers(text):
    found = [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", text)]
    assert not re.search(r"nan|inf", text, re.I), text
    return found


def check_svg(path, lines, texts):
    root = ElementTree.parse(path).getroot()
    assert root.tag == SVG + "svg"
    width, height = float(root.get("width")), float(root.get("height"))
    frames = [e for e in root.iter(SVG + "rect") if e.get("class") == "frame"]
    assert len(frames) == FRAMES, frames
    boxes = [tuple(float(e.get(k)) for k in ("x", "y", "width", "height")) for e in frames]
    points = [numbers(e.get("points")) for e in root.iter(SVG + "polyline")]
    assert len(points) == lines, f"{path}: {len(points)} lines, expected {lines}"
    for line in points:
        assert len(line) % 2 == 0
        for x, y in zip(line[::2], line[1::2]):
            assert any(bx - .1 <= x <= bx + w + .1 and by - .1 <= y <= by + h + .1 for bx, by, w, h in boxes), (path, x, y)
    said = [e.text for e in root.iter(SVG + "text")]
    for e in root.iter(SVG + "text"):
        assert 0 <= float(e.get("x")) <= width and 0 <= float(e.get("y")) <= height, e.text
    for text in texts:
        assert any(text in (s or "") for s in said), f"{path}: {text!r} is not in {said}"
    # Each panel has at least two marks on each axis.
    for bx, by, w, h in boxes:
        grid = [e for e in root.iter(SVG + "line") if e.get("class") == "grid"
                and by - .1 <= float(e.get("y1")) <= by + h + .1]
        vertical = [e for e in grid if e.get("x1") == e.get("x2")]
        assert len(vertical) >= 2 and len(grid) - len(vertical) >= 2, (path, by, len(grid), len(vertical))
    return points


def check_csv(path):
    with open(path, encoding="ascii", newline="") as f:
        rows = list(csv.DictReader(f))
    assert len(rows) == 10
    for i, row in enumerate(rows):
        messages = 0 if i == 4 else 1000 + i + (1000 + i) // 2
        assert float(row["from_s"]) == i and float(row["to_s"]) == i + 1, row
        assert int(row["messages"]) == messages == int(row["puts"]) + int(row["gets"])
        assert float(row["messages_per_s"]) == messages
        assert float(row["bytes_per_s"]) == int(row["bytes"]) == (0 if i == 4 else 1000 + i) * 4096
        assert int(row["bad"]) == i % 3 and int(row["waiting"]) == i and int(row["in_flight"]) == 16
        for n, name in enumerate(("p50", "p90", "p99", "p99_9", "p99_99", "max")):
            want = "" if i == 4 else f"{123.456 * (n + 1):.3f}"
            assert row[name + "_us"] == want, row
    assert None not in rows[0], "more fields than names"


def main():
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run([sys.argv[1], folder], check=True, capture_output=True, text=True, timeout=60).stdout
        units = ("MB/s", "messages/s", "seconds since the start", "latency", "from when it was due", "share of messages")
        check_svg(os.path.join(folder, "empty.svg"), 5, ("nothing happened", *units))
        check_svg(os.path.join(folder, "one.svg"), 6, ("one message", "ns", *units))
        points = check_svg(os.path.join(folder, "long.svg"), 7,
                           ("a title with <b>, & and \"", "99.999 %", "put", "get", "p50", "p99", "max", "ms", " us", *units))
        kept = int(said.split()[1])
        assert 1000 <= kept <= 2000 and len(points[0]) == 2 * kept, said
        check_csv(os.path.join(folder, "intervals.csv"))
    print("ok")


main()
