#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Turns meson's log of one run into PASS, FAIL and SKIP lines.

usage: meson_lines.py TESTLOG.JSON

A test program yields one line per cmocka case, or per such line that the program prints itself, else one line. Failed cases
come last, each with the program's output, indented.
"""

import json
import re
import sys

CASE = re.compile(r"^\[\s+(OK|SKIPPED|FAILED)\s+\] (?!\d+ test\(s\))(.+?)\s*$", re.M)
LINE = re.compile(r"^(PASS|FAIL|SKIP) (\S.*)$", re.M)
WORD = {"OK": "PASS", "FAILED": "FAIL", "SKIPPED": "SKIP"}
# What cmocka says of an assertion: sentences, then the place.
ASSERTION = re.compile(r"((?:^\[\s+ERROR\s+\] --- .*\n(?:(?!\[).*\n)*?)+)^\[\s+LINE\s+\] --- (\S+?:\d+)", re.M)
SANITIZER = re.compile(r"(?:ERROR|WARNING): \w+Sanitizer|runtime error:")
PLACE = re.compile(r"^.*?(?=\b(?:app|config|control|lib|rpc|test)/)")  # what of a path tells nothing
RUN = re.compile(r"^\[ RUN      \] (.+?)\s*$", re.M)
QUIET = re.compile(r"\[\s+(RUN|OK)\s+\] ")
SANITIZER_LINES, LAST_LINES = 30, 60


def cases(text):
    """Case name -> (word, rest of the line); a case that failed once stays failed."""
    found = {}
    for word, name in CASE.findall(text):
        if name not in found or WORD[word] == "FAIL":
            found[name] = (WORD[word], "")
    for word, rest in LINE.findall(text):
        name, _, why = rest.partition(": ")
        if name not in found or word == "FAIL":
            found[name] = (word, why)
    return found


def assertions(text):
    """Of each assertion that failed: what it says, and where it stands."""
    out = []
    for said, place in ASSERTION.findall(text):
        said = " ".join(re.sub(r"^\[\s+ERROR\s+\] --- ", "", said, flags=re.M).split())
        out.append(f"{said[:150]} ({PLACE.sub('', place, 1)})")
    return out


def with_places(lines, text):
    """Failed cases with their assertions; cmocka says neither which belongs to which, so only where that is clear."""
    bare = [i for i, (word, _, why) in enumerate(lines) if word == "FAIL" and not why]
    places = assertions(text)
    if len(bare) == 1 and places:
        places = ["; ".join(places)]
    if len(bare) == len(places):
        for i, place in zip(bare, places):
            lines[i] = (*lines[i][:2], place)
    return lines


def said(text):
    """The beginning of what a sanitizer reports, all assertions, the end."""
    lines = [line for line in text.splitlines() if not QUIET.match(line)]
    out = lines[-LAST_LINES:]
    if len(lines) > LAST_LINES:
        first = next((i for i, line in enumerate(lines) if SANITIZER.search(line)), None)
        begin = assertions(text) + (lines[first:first + SANITIZER_LINES] if first is not None else [])
        out = begin + ["..."] + out
    return out


def main():
    failed = []
    for record in open(sys.argv[1], encoding="utf-8"):
        test = json.loads(record)
        name = test["name"].split(" / ")[-1]
        text = (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")
        result = test["result"]
        lines = [(w, f"{name}.{case}", why) for case, (w, why) in cases(text).items()]
        if result == "SKIP":
            why = " ".join(text.split())[:200]
            lines = [(w, n, y) for w, n, y in lines if w != "PASS"] or [("SKIP", name, why)]
        elif result != "OK" and not any(w == "FAIL" for w, _, _ in lines):
            begun = [case for case in RUN.findall(text) if case not in cases(text)]
            lines.append(("FAIL", name, f"{result}, status {test.get('returncode')}" + "".join(f", in {case}" for case in begun)))
        elif not lines:
            lines = [("PASS", name, "")]
        if any(w == "FAIL" for w, _, _ in lines):
            lines = with_places(lines, text)
            failed.append(([line for line in lines if line[0] == "FAIL"], said(text)))
        for word, case, why in lines:
            if word == "SKIP":
                why = why or "no reason given"
            if word != "FAIL":
                print(f"{word} {case}" + (f": {why}" if why else ""))
    for lines, output in failed:
        for word, case, why in lines:
            print(f"{word} {case}" + (f": {why}" if why else ""))
        print("\n".join("    " + t for t in output))


main()
