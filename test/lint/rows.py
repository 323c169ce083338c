#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each row of docs/protocol/lnet-core.md §3.6 (discovery), §3.8 (router checker), §6.2 and §6.3 (health) has a unit test that names it.

The rows are those of the table of the section ("row 3"), and each clause of its paragraphs, counted from 1, with the name of the
paragraph in SECTIONS: "needs push", "cached flag". A test names them in a comment: "§3.6 row 3, needs push 2". A row that does not
apply to this router, or that it does not have, is listed with its reason. The rows of §7.1 to §7.6 are in test_lnet_rails.c.

A difference of versions in §13 is a row of the table in docs/testing.md, with tests that are there, or it is in OTHER_VERSIONS: it
concerns no peer, discovery, gateway or health.

A row of §12.2 (tests of sanity-lnet.sh) is a row of another table there, with tests that are there or the reason why it has none.

usage: rows.py [list]
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WAITS = "no message waits for a discovery: messages are forwarded without one (§12.1)"
INTERVAL = "the interval is 1 s at least; `convert` leaves another out, and says so"


class Section:
    """paragraphs: how each begins, and its name. none: rows that do not apply, or are not there. part: rows of which a part is
    so."""

    def __init__(self, paragraphs, none, part):
        self.paragraphs, self.none, self.part = paragraphs, none, part


SECTIONS = {
    "3.6": Section(
        {"Needs push": "needs push", "Completion with error": "completion", "Reply handling": "reply", "Push handling": "push",
         "Merge": "merge"},
        {"completion 2": WAITS, "push 9": "either order is right"},
        {"row 1": "routes name a NID, not a peer, so none is removed", "completion 1": "no message waits for a discovery",
         "push 2": "a node that pushes is a peer from then on; who is refused as one is ignored"}),
    "6.2": Section(
        {"* no health": "rule", "Immediate failures": "immediate"},
        {"rule 2": "a send has its next hop, and a receive its sender", "rule 7": "of 2.15",
         "rule 10": "no message is sent to a NID of this node", "immediate 1": "what has no path concerns neither an NI nor a peer NI", "immediate 2": "of other nodes",
         "immediate 3": "all pings are answered alike: test_lnet_ping.c"},
        {"rule 12": "an LND has no send that returns an error: it says whether anything was sent"}),
    "6.3": Section(
        {"* Queue entry": "recovery"},
        {"recovery 12": "an NI pings a neighbour, as a ping of its own NID says nothing of its link",
         "recovery 14": "path selection has no preferred source NI", "recovery 16": "the home of a value is the only writer",
         "recovery 17": "nothing reads it"},
        {}),
    "3.8": Section(
        {"Monitor thread": "monitor", "For each gateway": "check", "Completion": "completion", '"UP"': "UP", "Cached flag": "cached flag",
         "Other inputs": "inputs", "`check_routers_before_use`": "before use", "A ≤ 0": "no interval"},
        {"UP 2": "of 2.15 and 2.16; this node does as 2.17",
         "cached flag 7": "no line of the log: the route is down, and its event says net_down",
         "no interval 1": INTERVAL, "no interval 2": INTERVAL},
        {}),
}
OTHER_VERSIONS = {
    "IDL header structs", "header validation in parse", "large NIDs on data path", "acceptor request v2", "LND numbers", "magics",
    "fault CLI", "YAML booleans / transport"}
FUNCTION = re.compile(r"(?:static )?void (\w+)\(void \*\*state\)")


def clauses(text):
    text = " ".join(re.sub(r"\[[^\]]*\]", "", text).split())
    return [c.strip(" .") for c in re.split(r"; |\. ", text) if c.strip(" .")]


def rows(number, section):
    with open(os.path.join(ROOT, "docs/protocol/lnet-core.md"), encoding="utf-8") as f:
        part = re.search(rf"^### {re.escape(number)} .*?(?=^### )", f.read(), re.M | re.S).group(0)
    found = {f"row {n}": text.replace(" | ", ": ") for n, text in re.findall(r"^\| (\d+) \| (.*?) \|$", part, re.M)}
    for paragraph in re.split(r"\n\s*\n", part):
        for head, name in section.paragraphs.items():
            if paragraph.startswith(head):
                body = re.sub(r"^\s*(\[[^\]]*\])?:?", "", paragraph[len(head):])
                items = [c for item in re.split(r"^(?:\* |\d+\. )", body, flags=re.M) for c in clauses(item)]
                found.update((f"{name} {n}", text) for n, text in enumerate(items, 1))
    return found


def tests(number, section):
    """Yields (file, test, rows of the section that it names) of the tests that a program runs."""
    names = "|".join(["row", *section.paragraphs.values()])
    reference = re.compile(rf"§{re.escape(number)} ((?:(?:{names}) \d+(?:,\s*(?:\* )?)?)+)")
    folder = os.path.join(ROOT, "test/unit")
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".c")):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = f.read()
        for part in re.split(r"(?<=^}\n)", text, flags=re.M):
            test = FUNCTION.search(part)
            named = [row.strip(" *\n") for group in reference.findall(part) for row in group.split(",") if row.strip(" *\n")]
            if test and named and re.search(rf"TEST\({test[1]}\)", text):
                yield name, test[1], named


def check(number, section):
    """Prints what is wrong. Returns whether something is."""
    known, covered, faults = rows(number, section), set(), []
    if {"row"} | {name.rsplit(" ", 1)[0] for name in known} != {"row", *section.paragraphs.values()}:
        faults.append(f"docs/protocol/lnet-core.md §{number} has not all of its table and its paragraphs")
    for name, test, named in tests(number, section):
        covered.update(named)
        faults += [f"{name}: {test} names {row}, which §{number} does not have" for row in named if row not in known]
    faults += [f"§{number} {row}: no test names it: {text}" for row, text in known.items() if row not in covered and row not in section.none]
    faults += [f"§{number} {row}: a test names it, so it applies" for row in section.none if row in covered]
    faults += [f"§{number} {row}: it is not there" for row in [*section.none, *section.part] if row not in known]
    for fault in faults:
        print(fault)
    if sys.argv[1:] == ["list"]:
        for row, text in known.items():
            print(f"{row}: {section.none.get(row) or 'covered'}{' in part: ' + section.part[row] if row in section.part else ''} ({text})")
    print(f"§{number}: rows covered: {len(covered & set(known))} of {len(known)}, {len(section.none)} have a reason why not")
    return bool(faults)


def table(name, heading):
    """The rows of the table of a section, without its head."""
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        part = re.search(rf"^##+ {heading}\n.*?(?=^##+ |\Z)", f.read(), re.M | re.S).group(0)
    return [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in part.splitlines() if line.startswith("| ")][1:]


def is_test(path, name):
    """Whether a file of unit or system tests has this test, and its program runs it."""
    pattern = rf"TEST\({name}\)|unit_test\({name}\)" if path.endswith(".c") else rf"^(async )?def {name}\("
    for folder in ("test/unit", "test/system/tests"):
        whole = os.path.join(ROOT, folder, path)
        if path and os.path.exists(whole):
            with open(whole, encoding="utf-8") as f:
                return bool(re.search(pattern, f.read(), re.M))
    return False


def check_cell(topic, cell):
    """Returns the faults of a cell of docs/testing.md that names tests: `FILE`: `TEST`, `TEST`, `FILE`: `TEST`."""
    path, found, faults = "", 0, []
    for name in re.findall(r"`([^`]+)`", cell):
        if name.endswith((".c", ".py")):
            path = name
            continue
        found += 1
        if not is_test(path, name):
            faults.append(f"docs/testing.md: {topic}: {path} has no test {name}")
    return faults if found else [f"docs/testing.md: {topic}: no test"]


def check_versions():
    topics = {row[0] for row in table("docs/protocol/lnet-core.md", "13. .*?")}
    shown, faults = {row[0]: row[-1] for row in table("docs/testing.md", "Versions of kernel nodes")}, []
    faults += [f"§13 {topic}: it has no row in docs/testing.md" for topic in sorted(topics - set(shown) - OTHER_VERSIONS)]
    faults += [f"§13 {topic}: it is not there" for topic in sorted((set(shown) | OTHER_VERSIONS) - topics)]
    faults += [fault for topic, cell in shown.items() for fault in check_cell(f"§13 {topic}", cell)]
    for fault in faults:
        print(fault)
    print(f"§13: {len(shown)} of {len(topics)} differences have a row in docs/testing.md, {len(OTHER_VERSIONS)} concern other parts")
    return bool(faults)


def check_sanity():
    numbers = [row[0] for row in table("docs/protocol/lnet-core.md", r"12\.2 .*?")]
    rows = [row + [""] * (3 - len(row)) for row in table("docs/testing.md", r"Tests of sanity-lnet\.sh")]
    without, faults = [row[0] for row in rows if row[1] == "–"], []
    if [row[0] for row in rows] != numbers:
        missing, more = set(numbers) - {row[0] for row in rows}, {row[0] for row in rows} - set(numbers)
        faults.append(f"docs/testing.md: rows of §12.2 that are missing {sorted(missing)}, that §12.2 does not have {sorted(more)}, or another order")
    for number, tests_of, why in rows:
        if number not in without:
            faults += check_cell(f"§12.2 {number}", tests_of)
        elif not why:
            faults.append(f"docs/testing.md: §12.2 {number}: neither a test nor a reason")
    for fault in faults:
        print(fault)
    print(f"§12.2: rows covered: {len(rows) - len(without)} of {len(numbers)}, {len(without)} have a reason why not")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(any([*(check(number, section) for number, section in SECTIONS.items()), check_versions(), check_sanity()]))
