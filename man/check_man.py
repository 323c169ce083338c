#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The man pages render without a warning, and say what they should.

usage: check_man.py PAGE...
"""

import os
import re
import subprocess
import sys

# In each page of this name; `millrace` has a line for each command.
SECTIONS = {"millraced.8": ("NAME", "SYNOPSIS", "SIGNALS", "EXIT STATUS"),
            "millrace.1": ("NAME", "SYNOPSIS", "COMMANDS", "EXIT STATUS", "EXAMPLES"),
            "millrace.yaml.5": ("NAME", "NETS", "ROUTES", "SETTINGS"),
            "millrace-exporter.1": ("NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS"),
            "millrace-perf.1": ("NAME", "SYNOPSIS", "COMMANDS", "OPTIONS", "FILES", "EXIT STATUS", "EXAMPLES")}
TEXTS = {"millraced.8": ("--check", "--wait-for-rpc"),
         "millrace.1": ("net show", "route add", "set tiny_buffers", "--gateway NID"),
         "millrace-exporter.1": ("--listen ADDRESS:PORT", "--peers N", "--routes N", "--timeout SECONDS", "--cert FILE"),
         "millrace-perf.1": ("--rate N", "--arrivals poisson|fixed", "--mix put:N,get:N", "both NID...", "p99_9_us"),
         "millrace.yaml.5": ("global.retry_count", "millrace.rpc.socket", "peer_buffer_credits")}


def render(command, path):
    p = subprocess.run([*command, path], capture_output=True, text=True, timeout=60,
                       env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANROFFOPT": "-ww"})
    assert p.returncode == 0 and not p.stderr, f"{command} {path}: {p.returncode}, {p.stderr}"
    return re.sub(r"\x1b\[[\d;]*m|.\x08", "", p.stdout)


def check(path):
    name = os.path.basename(path)
    with open(path, encoding="utf-8") as f:
        text = f.read()
        assert "@" + "COMMANDS@" not in text and "@" + "OPTIONS@" not in text, "not filled in"
    for command in ["groff", "-ww", "-Tutf8", "-K", "utf8", "-t", "-man", "-P", "-c"], ["man", "--warnings", "-E", "UTF-8", "-l"]:
        text = render(command, path)
        flat = " ".join(text.split())
        for word in SECTIONS[name] + TEXTS[name]:
            assert word in flat, f"{word!r} is not in {name}:\n{text}"
        assert "\\_" not in flat and "\\*" not in flat, f"markup is left in {name}"


def main():
    assert len(sys.argv) == 1 + len(SECTIONS)
    for path in sys.argv[1:]:
        check(path)
        print(f"ok {os.path.basename(path)}")
    # a warning is seen
    broken = sys.argv[1] + ".broken"
    with open(broken, "w", encoding="utf-8") as f:
        f.write('.TH x 1\n.SH NAME\n.nosuchrequest\n')
    try:
        render(["groff", "-ww", "-Tutf8", "-man"], broken)
    except AssertionError:
        print("ok broken page refused")
    else:
        raise AssertionError("a page with an unknown request rendered without a warning")
    finally:
        os.unlink(broken)


main()
