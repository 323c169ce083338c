#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Drawings of results: rows of `bench.py --json` as SVG. As a program it draws what files have, without measuring anything:

    test/perf/plot.py ROWS.json... FILE.svg

One panel for ratios (a bar for each case, with the lowest and highest round, and what is wanted), and one for each series of cycles
per message over a count (peers, routes), with what is allowed of the least count's.
"""

import json
import math
import re
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, TOP, GAP = 960, 330, 60, 64, 66
BAR, PANEL = 24, 200                       # heights: of a bar with its space, of a panel with lines
COLOURS = ("#1f6fb4", "#d9730d", "#2f8f4e", "#b03a48")
GOOD, BAD, PLAIN = "#2f8f4e", "#b03a48", "#1f6fb4"
STYLE = ".grid{stroke:#e2e2e2}.frame{fill:none;stroke:#777}.data{fill:none;stroke-width:1.8;stroke-linejoin:round}" \
        ".tick{font-size:12px;fill:#333}.panel{font-size:14px;font-weight:bold;fill:#111}.title{font-size:18px;font-weight:bold;fill:#111}" \
        ".wanted{stroke:#111;stroke-dasharray:4 3}.spread{stroke:#111}"


def step_of(most, parts):
    """A round distance between so many marks, or a few more."""
    raw = most / parts
    ten = 10 ** math.floor(math.log10(raw))
    return next(m * ten for m in (1, 2, 5, 10) if m * ten >= raw * 0.999)


class Drawing:
    def __init__(self, title, subtitle):
        self.parts, self.y = [], TOP
        self.text(20, 28, title, "title")
        self.text(20, 48, subtitle, "tick")

    def text(self, x, y, said, kind="tick", anchor="start"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(said)}</text>')

    def line(self, x1, y1, x2, y2, kind):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def panel(self, title, height):
        """Begins one; returns its upper edge."""
        self.y += 20
        self.text(20, self.y, title, "panel")
        top = self.y + 12
        self.parts.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{height}" class="frame"/>')
        self.y = top + height + GAP - 20
        return top

    def svg(self):
        height = self.y + 4
        return f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" ' \
               f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n<style>{STYLE}</style>\n' \
               f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n' + "\n".join(self.parts) + "\n</svg>\n"


def across(value, lo, hi):
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - lo) / (hi - lo)


def ratios(drawing, title, rows):
    """A bar each; the dashed mark is what is wanted, the line from the lowest to the highest round."""
    most = max(1.0, *(max(r["ratio_highest"], r.get("bar") or 0) for r in rows))
    step = step_of(most, 6)
    end = math.ceil(most / step) * step
    top = drawing.panel(title, BAR * len(rows))
    bottom = top + BAR * len(rows)
    for i in range(round(end / step) + 1):
        x = across(i * step, 0, end)
        drawing.line(x, top, x, bottom, "grid")
        drawing.text(x, bottom + 16, f"{i * step:.4g}", anchor="middle")
    for i, r in enumerate(rows):
        y, bar = top + i * BAR, r.get("bar")
        colour = PLAIN if bar is None else GOOD if r["ratio"] >= bar else BAD
        drawing.text(LEFT - 8, y + BAR / 2 + 4, r["case"], anchor="end")
        drawing.parts.append(f'<rect x="{LEFT}" y="{y + 4:.1f}" width="{across(r["ratio"], 0, end) - LEFT:.1f}" height="{BAR - 8}" '
                             f'fill="{colour}"/>')
        drawing.line(across(r["ratio_lowest"], 0, end), y + BAR / 2, across(r["ratio_highest"], 0, end), y + BAR / 2, "spread")
        if bar is not None:
            drawing.line(across(bar, 0, end), y + 1, across(bar, 0, end), y + BAR - 1, "wanted")
        drawing.text(WIDTH - RIGHT + 6, y + BAR / 2 + 4, f"{r['ratio']:.2f}")


def growth(drawing, name, rows):
    """Cycles per message over the count, both by decades of the count; the dashed line is what the count with a bar may cost."""
    points = [(float(r["case"].split()[0]), r) for r in rows]
    least = points[0][1]["value"]
    lo, hi = math.log10(max(points[0][0], 1)), math.log10(max(points[-1][0], 10))
    most = max(max(r["samples"]) for r in rows)
    step = step_of(most, 4)
    end = math.ceil(most / step) * step
    top = drawing.panel(f"cycles per message, {name}: medians, lowest and highest", PANEL)

    def up(value):
        return top + PANEL - PANEL * value / end

    for i in range(round(end / step) + 1):
        drawing.line(LEFT, up(i * step), WIDTH - RIGHT, up(i * step), "grid")
        drawing.text(LEFT - 8, up(i * step) + 4, f"{i * step:.7g}", anchor="end")
    for count, r in points:
        x = across(math.log10(count), lo, hi)
        drawing.text(x, top + PANEL + 16, f"{count:.0f}", anchor="middle")
        drawing.line(x, up(min(r["samples"])), x, up(max(r["samples"])), "spread")
        drawing.parts.append(f'<circle cx="{x:.1f}" cy="{up(r["value"]):.1f}" r="3.5" fill="{PLAIN}"/>')
        if r.get("bar"):
            allowed = least / r["bar"]
            drawing.line(x - 20, up(allowed), x + 20, up(allowed), "wanted")
    path = " ".join(f"{across(math.log10(c), lo, hi):.1f},{up(r['value']):.1f}" for c, r in points)
    drawing.parts.append(f'<polyline points="{path}" class="data" stroke="{PLAIN}"/>')


def draw(rows, subtitle):
    """The SVG of rows; None: they have nothing to draw."""
    compared, series = {}, {}
    for r in rows:
        counted = re.fullmatch(r"(\d+) (\w+ ?peers|routes)", r["case"])
        if r["metric"] == "cycles_per_message" and counted and r.get("samples"):
            series.setdefault(counted.group(2), []).append(r)
        elif r.get("ratio") is not None and r.get("reference"):
            compared.setdefault((r["bench"], r["metric"], r["subject"], r["reference"]), []).append(r)
    if not compared and not series:
        return None
    drawing = Drawing("millrace: " + ", ".join(sorted({r["bench"] for r in rows})), subtitle)
    for (bench, metric, subject, reference), of in compared.items():
        ratios(drawing, f"{bench}: {metric} of {subject} by that of {reference}", of)
    for name, of in series.items():
        growth(drawing, name, sorted(of, key=lambda r: float(r["case"].split()[0])))
    return drawing.svg()


def write(rows, path, subtitle):
    """Returns whether there was anything to draw."""
    svg = draw(rows, subtitle)
    if svg is not None:
        with open(path, "w", encoding="utf-8") as f:
            f.write(svg)
    return svg is not None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = []
    for path in sys.argv[1:-1]:
        with open(path, encoding="utf-8") as f:
            rows += json.load(f)
    if not write(rows, sys.argv[-1], results_line(rows)):
        sys.exit("nothing to draw: no row has a ratio, and none counts cycles over a count")


def results_line(rows):
    """What is known of the rows as they are."""
    said = sorted({r["machine"] for r in rows if r.get("machine")})
    return "; ".join([*said, f"at most {max((r.get('foreign_share', 0) for r in rows), default=0):.0%} of a run's CPU time was others'"])


if __name__ == "__main__":
    main()
