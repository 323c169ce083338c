#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`millraced --check` takes each configuration that README.md and docs show, whole or in part.

usage: test_docs.py MILLRACED
"""
import glob
import os
import re
import subprocess
import sys
import tempfile
import textwrap

MILLRACED = os.path.abspath(sys.argv[1])
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEYS = "net|route|routing|buffers|global|peer|udsp|numa|ip2nets|max_interfaces|discovery|millrace"
REST = "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}, {net type: tcp1, local NI(s): [{nid: 10.1.0.1@tcp1}]}]\n"


def documents(path):
    """(line, text) of each block, fenced as YAML or indented, that begins with a key of a configuration."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for block in re.finditer(r"^```yaml\n((?s:.*?))^```|^((?: {4,}\S.*\n|\n(?= {4}))+)", text, re.M):
        shown = textwrap.dedent(block[1] or block[2]).strip("\n") + "\n"
        if re.match(rf"(?:#.*\n)*(?:{KEYS}):", shown):
            yield text.count("\n", 0, block.start()) + 1, shown


def main():
    checked = 0
    for path in [os.path.join(TOP, "README.md"), *sorted(glob.glob(os.path.join(TOP, "docs/*.md")))]:
        for line, shown in documents(path):
            shown = re.sub(r'"\{\{ \w+ \}\}"', "eth0", shown)       # of a template
            if not re.search("^net:", shown, re.M):
                shown += REST
            with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as f:
                f.write(shown)
                f.flush()
                said = subprocess.run([MILLRACED, "--check", "--config", f.name], capture_output=True, text=True, check=False)
            assert said.returncode == 0, f"{os.path.relpath(path, TOP)}:{line}: {said.stderr}\n{shown}"
            checked += 1
            print(f"# {os.path.relpath(path, TOP)}:{line}")
    assert checked >= 10, f"only {checked} configurations are found"
    print(f"ok configurations ({checked})")


main()
