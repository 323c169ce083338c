# SPDX-License-Identifier: BSD-3-Clause
"""The shape of what lnetctl and millrace print: which keys, how nested, in which columns, of which types.

A shape is a dictionary from a path to (type, column). The items of a list have one path, `net[]`; those of the `lo` net
have their own, `net[lo]`, for they have other keys.
"""

import re

INTEGER = re.compile(r"-?\d+$")
KEY = re.compile(r'("[^"]*"|[^":]+):(?: (.*))?$')


def scalar_type(text):
    if INTEGER.match(text):
        return "integer"
    if text in ("true", "false"):
        return "boolean"
    if text[0] in "\"'":
        return "quoted string"
    if text[0] in "[{":
        return "flow"
    return "string"


def shape(text):
    """Every key of an output; a key whose value differs in type between items has both types."""
    found, stack = {}, [(-1, "")]  # stack: (column, path); an item stands half a column behind its dash
    for line in text.splitlines():
        line = line.split(" # ")[0]  # hosts
        column = len(line) - len(line.lstrip())
        rest = line.strip()
        while rest.startswith("- "):
            while stack[-1][0] > column:
                stack.pop()
            stack.append((column + 0.5, stack[-1][1] + "[]"))
            inner = rest[1:].lstrip()
            column += len(rest) - len(inner)
            rest = inner
        match = KEY.match(rest)
        if not match:
            raise ValueError(f"no key in the line {line!r}")
        key, value = match.groups()
        while stack[-1][0] >= column:
            stack.pop()
        key = re.sub(r"\[\d+\]$", "[N]", key.strip('"'))
        if key == "net type" and value == "lo":
            item = stack.pop()
            stack.append((item[0], item[1][:-2] + "[lo]"))
        path = f"{stack[-1][1]}.{key}".lstrip(".")
        kind = scalar_type(value) if value else "map"
        if path in found and kind not in found[path][0].split("|"):
            kind = "|".join(sorted({*found[path][0].split("|"), kind}))
        found[path] = (kind, column)
        if not value:
            stack.append((column, path))
    return found


def differences(kernel, own):
    """[(path, what the kernel has, what we have)], where a type, a column or the presence differs. Of what is absent
    with all below it there is one row, its top."""
    rows, tops = [], []
    for path in {**kernel, **own}:
        a, b = kernel.get(path), own.get(path)
        if a == b or path.startswith(tuple(tops)):
            continue
        if not a or not b:
            tops += [path + ".", path + "["]
        if a and b and a[0] == b[0]:
            rows.append((path, f"column {a[1]}", f"column {b[1]}"))
        else:
            rows.append((path, a[0] if a else "absent", b[0] if b else "absent"))
    return rows


def out_of_order(kernel, own):
    """The first key of ours that does not stand where the kernel has it, or None."""
    wanted = [p for p in kernel if p in own]
    ours = [p for p in own if p in kernel]
    for a, b in zip(wanted, ours):
        if a != b:
            return b
    return None
