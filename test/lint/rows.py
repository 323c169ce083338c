#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Each row of the discovery state machine, docs/protocol/lnet-core.md §3.6, has a unit test that names it.

The rows are those of its table ("row 3"), and each clause of its five paragraphs, counted from 1: "needs push", "completion",
"reply", "push", "merge". A test names them in a comment: "§3.6 row 3, needs push 2". A row that does not apply to this router has
its reason here.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARAGRAPHS = {"Needs push": "needs push", "Completion with error": "completion", "Reply handling": "reply",
              "Push handling": "push", "Merge": "merge"}
DOES_NOT_APPLY = {
    "completion 2": "no message waits for a discovery: messages are forwarded without one (§12.1)",
    "push 9": "either order is right",
}
# Of these a part does not apply.
HEALTH = "the table of peers stores the status; it has no health"
IN_PART = {"row 1": "routes name a NID, not a peer, so none is removed", "completion 1": "no message waits for a discovery",
           "push 2": "a node that pushes is a peer from then on; who is refused as one is ignored", "merge 4": HEALTH, "merge 5": HEALTH}
FUNCTION = re.compile(r"(?:static )?void (\w+)\(void \*\*state\)")
NAMED = re.compile(r"§3\.6 ((?:(?:row|needs push|completion|reply|push|merge) \d+(?:,\s*(?:\* )?)?)+)")


def clauses(text):
    text = " ".join(re.sub(r"\[[^\]]*\]", "", text).split())
    return [c.strip(" .") for c in re.split(r"; |\. ", text) if c.strip(" .")]


def rows():
    with open(os.path.join(ROOT, "docs/protocol/lnet-core.md"), encoding="utf-8") as f:
        part = re.search(r"^### 3\.6 .*?(?=^### )", f.read(), re.M | re.S).group(0)
    found = {f"row {n}": f"{condition}: {action}" for n, condition, action in re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \|$", part, re.M)}
    for paragraph in re.split(r"\n\s*\n", part):
        for head, name in PARAGRAPHS.items():
            if paragraph.startswith(head):
                body = re.sub(r"^\s*(\[[^\]]*\])?:?", "", paragraph[len(head):])
                items = [c for item in re.split(r"^(?:\* |\d+\. )", body, flags=re.M) for c in clauses(item)]
                found.update((f"{name} {n}", text) for n, text in enumerate(items, 1))
    return found


def tests():
    """Yields (file, test, rows that it names) of the tests that a program runs."""
    folder = os.path.join(ROOT, "test/unit")
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".c")):
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = f.read()
        for part in re.split(r"(?<=^}\n)", text, flags=re.M):
            test = FUNCTION.search(part)
            named = [row.strip(" *\n") for group in NAMED.findall(part) for row in group.split(",") if row.strip(" *\n")]
            if test and named and re.search(rf"TEST\({test[1]}\)", text):
                yield name, test[1], named


def main():
    known, covered, faults = rows(), set(), []
    if len({name.rsplit(" ", 1)[0] for name in known}) != 1 + len(PARAGRAPHS):
        faults.append("docs/protocol/lnet-core.md §3.6 has not all of the table and the five paragraphs")
    for name, test, named in tests():
        covered.update(named)
        faults += [f"{name}: {test} names {row}, which §3.6 does not have" for row in named if row not in known]
    faults += [f"{row}: no test names it: {text}" for row, text in known.items() if row not in covered and row not in DOES_NOT_APPLY]
    faults += [f"{row}: a test names it, so it applies" for row in DOES_NOT_APPLY if row in covered]
    faults += [f"{row}: §3.6 does not have it" for row in [*DOES_NOT_APPLY, *IN_PART] if row not in known]
    for fault in faults:
        print(fault)
    print(f"rows covered: {len(covered & set(known))} of {len(known)}, {len(DOES_NOT_APPLY)} do not apply")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
