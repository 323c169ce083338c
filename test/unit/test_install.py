#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`meson install` puts the programs, their man pages, the unit and the samples where they are expected."""
import os
import subprocess
import sys
import tempfile

BUILD, PREFIX, SBINDIR = sys.argv[1:4]
SAMPLES = ("o2ib", "ports", "router", "small", "two-hops")

with tempfile.TemporaryDirectory(prefix="millrace-test-") as root:
    subprocess.run(["meson", "install", "-C", BUILD, "--destdir", root, "--no-rebuild", "--quiet"], check=True)
    below = os.path.join(root, PREFIX.lstrip("/"))
    installed = {os.path.relpath(os.path.join(d, f), below) for d, _, files in os.walk(below) for f in files}
    wanted = {"bin/millrace", "bin/millrace-perf", f"{SBINDIR}/millraced", "lib/systemd/system/millraced.service",
              "share/man/man1/millrace.1", "share/man/man1/millrace-perf.1", "share/man/man5/millrace.yaml.5",
              "share/man/man8/millraced.8", "share/millrace/wireshark/millrace.lua", *(f"share/doc/millrace/samples/{name}.yaml" for name in SAMPLES)}
    assert wanted <= installed, f"not installed: {sorted(wanted - installed)}\ninstalled: {sorted(installed)}"
    with open(os.path.join(below, "lib/systemd/system/millraced.service"), encoding="utf-8") as f:
        unit = f.read()
    started = [line.split("=", 1)[1].split()[0] for line in unit.splitlines() if line.startswith("ExecStart")]
    assert started == [os.path.join(PREFIX, SBINDIR, "millraced")] * 2, started
    for page in ("man1/millrace-perf.1", "man8/millraced.8"):
        program = {"1": "bin/millrace-perf", "8": f"{SBINDIR}/millraced"}[page[-1]]
        assert os.access(os.path.join(below, program), os.X_OK), f"{page} describes {program}, which cannot be run"
print("ok install")
