#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The programs are built so that a defect in them is hard to use.

    test_hardening.py PROGRAM...
"""

import re
import subprocess
import sys

faults = []


def readelf(program, what):
    return subprocess.run(["readelf", "-W", what, program], check=True, capture_output=True, text=True).stdout


def look(program):
    header, segments = readelf(program, "-h"), readelf(program, "-l")
    dynamic, symbols = readelf(program, "-d"), readelf(program, "--dyn-syms")
    checks = {
        "is placed at random (PIE)": re.search(r"Type:\s+DYN", header),
        "has no stack that can be run": re.search(r"GNU_STACK\s.*\sRW\s", segments),
        "has no segment that can be written and run": not re.search(r"LOAD\s.*\sRWE\s", segments),
        "has read-only relocations": "GNU_RELRO" in segments,
        "is bound at the start (BIND_NOW)": "BIND_NOW" in dynamic,
        "checks its stack": "__stack_chk_fail" in symbols,
        "checks copies (FORTIFY)": re.search(r"__(mem|str|v?snprintf|fprintf|read|recv)\w*_chk", symbols),
        "names no folder to look for libraries in": not re.search(r"\((RPATH|RUNPATH)\)", dynamic),
    }
    if "X86-64" in header:
        # The note that turns the check on is not there, since Debian's start-up code has no marks.
        with open(program, "rb") as f:
            checks["marks where jumps may go (endbr64)"] = f.read().count(b"\xf3\x0f\x1e\xfa") > 100
    for what, good in checks.items():
        if not good:
            faults.append(f"{program} is not so: it {what}")
    return len(checks)


count = sum(look(program) for program in sys.argv[1:])
print("\n".join(faults) or f"{count} checks of {len(sys.argv) - 1} programs")
sys.exit(1 if faults or not count else 0)
