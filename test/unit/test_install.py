#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`meson install` gives a whole installation, keeps a configuration that is there, and its unit leaves little to attackers."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
from lnetpy import page     # noqa: E402  pylint: disable=wrong-import-position

BUILD, PREFIX, SBINDIR = sys.argv[1:4]
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAMPLES = ("o2ib", "ports", "router", "small", "two-hops")
EXPOSURE = 3.0      # `systemd-analyze security`: 0 is best, 10 worst
PAGE = [s.command for s in page.steps(os.path.join(TOP, "docs", "install.md")) if (s.section, s.host) == ("Other systems", "tree")]


def run(command, *more, **kw):
    """A command of the page, with more words behind it. What it printed."""
    done = subprocess.run([*command.removeprefix("sudo ").split(), *more], capture_output=True, text=True, check=False, **kw)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def install(root):
    run(PAGE[1].replace("build", BUILD), "--destdir", root, "--no-rebuild", "--quiet")


def option(build, name):
    return next(o["value"] for o in json.loads(run("meson introspect --buildoptions", build)) if o["name"] == name)


def of_tree(build):
    """What an installation of this build folder would have, without the prefix."""
    prefix = option(build, "prefix").rstrip("/") + "/"
    return {path.removeprefix(prefix) for path in json.loads(run("meson introspect --installed", build)).values()}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


with tempfile.TemporaryDirectory(prefix="millrace-test-") as root:
    install(root)
    below = os.path.join(root, PREFIX.lstrip("/"))
    installed = {os.path.relpath(os.path.join(d, f), below) for d, _, files in os.walk(below) for f in files}
    wanted = {"bin/millrace", "bin/millrace-perf", f"{SBINDIR}/millraced", "lib/systemd/system/millraced.service",
              "lib/sysusers.d/millrace.conf", "lib/tmpfiles.d/millrace.conf", "lib/udev/rules.d/60-millrace.rules",
              "share/bash-completion/completions/millrace", "share/zsh/vendor-completions/_millrace",
              "share/man/man1/millrace.1", "share/man/man1/millrace-perf.1", "share/man/man5/millrace.yaml.5",
              "share/man/man8/millraced.8", "share/doc/millrace/docs/operations.md", "share/millrace/wireshark/millrace.lua",
              "share/millrace/grafana/millrace.json", "share/millrace/prometheus/millrace.rules.yml",
              "lib/systemd/system/millrace-exporter.service", "share/man/man1/millrace-exporter.1",
              *(f"share/doc/millrace/samples/{name}.yaml" for name in SAMPLES)}
    assert wanted <= installed, f"not installed: {sorted(wanted - installed)}\ninstalled: {sorted(installed)}"

    unit = os.path.join(below, "lib/systemd/system/millraced.service")
    started = [line.split("=", 1)[1].split()[0] for line in read(unit).splitlines() if line.startswith("ExecStart")]
    assert started == [os.path.join(PREFIX, SBINDIR, "millraced")] * 2, started
    assert not re.search(r"@[a-z]+@", read(unit)), "a place in the unit is not filled in"
    for page in ("man1/millrace-perf.1", "man8/millraced.8"):
        program = {"1": "bin/millrace-perf", "8": f"{SBINDIR}/millraced"}[page[-1]]
        assert os.access(os.path.join(below, program), os.X_OK), f"{page} describes {program}, which cannot be run"

    # The installed sample is switched off: no line of it counts. Without the marks it is a configuration.
    sample = os.path.join(root, "etc/millrace/millrace.yaml")
    lines = read(sample).splitlines()
    assert lines and all(line.startswith("#") for line in lines), lines
    on = os.path.join(root, "on.yaml")
    with open(on, "w", encoding="utf-8") as f:
        f.write("\n".join(line[1:] for line in lines if re.match(r"#[^ ]|#  ", line)) + "\n")
    checked = subprocess.run([os.path.join(below, SBINDIR, "millraced"), "--check", "--config", on], capture_output=True, text=True, check=False)
    assert "tcp1" in checked.stdout + checked.stderr, (checked, read(on))

    # What a site has written stays.
    with open(sample, "w", encoding="utf-8") as f:
        f.write("routing: {enable: 1}\n")
    install(root)
    assert read(sample) == "routing: {enable: 1}\n", "the installation has overwritten a configuration"

    security = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", unit], capture_output=True, text=True,
                              check=False, env={**os.environ, "LC_ALL": "C.UTF-8"})
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", security.stdout)
    assert level, security
    assert float(level[1]) <= EXPOSURE, security.stdout

# Without packages. Nothing is compiled: this build is installed, and that of the page would have the same files. The last command is
# for a systemd that runs (test/vm/machine/tests.py has it).
assert [c.removeprefix("sudo ").split()[0] for c in PAGE] == ["meson", "meson", "systemd-sysusers", "systemd-tmpfiles", "systemctl"], PAGE
with tempfile.TemporaryDirectory(prefix="millrace-test-") as root:
    page_build = os.path.join(root, "build")
    if option(BUILD, "b_sanitize") == "none":
        run(PAGE[0].replace(" build", " " + page_build), cwd=TOP)
        assert (page_has := of_tree(page_build)) == (has := of_tree(BUILD)), page_has ^ has
    if os.geteuid() == 0:
        install(os.path.join(root, "target"))
        for command in PAGE[2:4]:
            run(command, f"--root={root}/target")
        with open(os.path.join(root, "target/etc/passwd"), encoding="utf-8") as f:
            ident = int(re.search("^millrace:[^:]*:([0-9]+):", f.read(), re.M)[1])
        owned = os.stat(os.path.join(root, "target/etc/millrace"))
        assert owned.st_uid == 0 and owned.st_gid == ident and owned.st_mode & 0o777 == 0o775, (owned, ident)
    else:
        print("PASS install\nSKIP users: makes folders of another user: root")

version = subprocess.run([os.path.join(TOP, "packaging", "version")], capture_output=True, text=True, check=True).stdout.strip()
assert re.fullmatch(r"[0-9]+(\.[0-9]+)+([~+][0-9]+\.g[0-9a-f]+)?", version), version
with tempfile.TemporaryDirectory(prefix="millrace-test-") as root:
    def git(*words):
        subprocess.run(["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True, capture_output=True)

    def said():
        return subprocess.run([os.path.join(root, "packaging", "version")], capture_output=True, text=True, check=True).stdout.strip()

    os.mkdir(os.path.join(root, "packaging"))
    with open(os.path.join(root, "packaging", "version"), "w", encoding="utf-8") as f:
        f.write(read(os.path.join(TOP, "packaging", "version")))
    os.chmod(os.path.join(root, "packaging", "version"), 0o755)
    with open(os.path.join(root, "CHANGELOG.md"), "w", encoding="utf-8") as f:
        f.write("# Changes\n\n## 0.3.0\n\n## 0.2.0\n")
    assert said() == "0.3.0", said()                                            # an archive of the sources
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    assert re.fullmatch(r"0\.3\.0~1\.g[0-9a-f]+", said()), said()                 # no tag yet
    git("tag", "-a", "-m", "t", "v0.3.0")
    assert said() == "0.3.0", said()
    git("commit", "--allow-empty", "-m", "two")
    assert re.fullmatch(r"0\.3\.0\+1\.g[0-9a-f]+", said()), said()
print("ok install")
