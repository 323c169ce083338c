#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The CSV of millrace-perf is well-formed and complete.

usage: perf_check_output.py PROGRAM, which writes a sample into a folder
"""

import csv
import os
import subprocess
import sys
import tempfile

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
        subprocess.run([sys.argv[1], folder], check=True, timeout=60)
        check_csv(os.path.join(folder, "intervals.csv"))
    print("ok")


main()
