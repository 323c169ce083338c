#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The RPM packages, made of the programs in the build folder: files, dependencies, and what their scripts do.

usage: test_rpm.py BUILD
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BUILD = sys.argv[1]
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = os.path.join(TOP, "packaging", "millrace.spec")
UNITS = "millraced millrace-exporter"


def run(*command, **kw):
    return subprocess.run(command, check=True, capture_output=True, text=True, **kw).stdout


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


def tree(root):
    return {"/" + os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files}


def of_debian(path):
    """Where the Debian packages have a file of the RPM packages."""
    path = path.replace("/usr/share/zsh/site-functions/", "/usr/share/zsh/vendor-completions/")
    return re.sub("^/usr(?=/lib/(systemd|udev)/)", "", path)


def debian_package(path):
    """The Debian package that has a file."""
    for listed in glob.glob(os.path.join(TOP, "packaging/debian/*.install")):
        for line in read(listed).split():
            if re.match("/" + re.escape(line).replace(r"\*", "[^/]*") + "(/|$)", of_debian(path)):
                return os.path.basename(listed).removesuffix(".install")
    raise AssertionError(f"no Debian package has {path}")


def test_files(packages, root):
    """Together they have each file of `meson install`, each the files of the Debian package of its name."""
    run(os.path.join(TOP, "packaging/install_built.sh"), BUILD, root, cwd=TOP)
    found = {}
    for name, path in packages.items():
        for row in run("rpm", "-qp", "--qf", "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]", path).splitlines():
            mode, user, group, file = row.split(" ", 3)
            assert (user, group) == ("root", "root") and (mode[0] == "l" or "w" not in mode[4:]), row
            if mode[0] != "d" and not file.startswith("/usr/share/licenses/"):
                assert file not in found, f"{file} is in two packages"
                found[file] = name
    want = {of_debian(f) for f in tree(root)}
    have = {of_debian(f) for f in found}
    assert have == want, f"only in the RPMs: {sorted(have - want)}, in none: {sorted(want - have)}"
    wrong = {f: (name, debian_package(f)) for f, name in found.items() if debian_package(f) != name}
    assert not wrong, wrong


def test_configuration(packages, _):
    """An upgrade keeps the site's configuration."""
    flags = run("rpm", "-qp", "--qf", "[%{FILEFLAGS:fflags} %{FILENAMES}\n]", packages["millrace"])
    assert "cn /etc/millrace/millrace.yaml\n" in flags, flags


def test_dependencies(packages, _):
    """What meson looks for is among the build dependencies of both kinds of packages; libraries are required by their names."""
    modules = set(re.findall(r"dependency\('([^']+)'", read("meson.build"))) - {"threads", "cmocka"}
    assert len(modules) > 8, modules
    missing = [m for m in modules if f"pkgconfig({m})" not in read("packaging/millrace.spec")]
    assert not missing, f"packaging/millrace.spec lacks {missing}"
    control = read("packaging/debian/control").split("Package:")[0]
    for module in modules:
        file = os.path.join(run("pkg-config", "--variable=pcfiledir", module).strip(), module + ".pc")
        owner = run("dpkg-query", "-S", os.path.realpath(file)).split(":")[0]
        assert re.search(rf"\b{re.escape(owner)}\b", control), f"packaging/debian/control lacks {owner}"
    needs = run("rpm", "-qp", "--requires", packages["millrace"])
    for library in ("librte_eal.so", "libjansson.so", "libyaml-0.so", "libmicrohttpd.so", "libsystemd.so"):
        assert library in needs, needs


def test_scripts(packages, folder):
    """Nothing is started by an installation; an upgrade restarts what runs; the removal ends both services."""
    log = os.path.join(folder, "log")
    for name in ("getent", "useradd", "systemctl", "systemd-tmpfiles"):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(f'#!/bin/sh\necho "{name} $*" >>{log}\n[ {name} != getent ]\n')
        os.chmod(path, 0o755)

    def does(tag, left):
        """What a script calls; `left` versions are there when it has ended."""
        script = run("rpm", "-qp", "--qf", f"%{{{tag}}}", packages["millrace"])
        with open(log, "w", encoding="ascii"):
            pass
        subprocess.run(["sh", "-e", "-c", script, "sh", str(left)], check=True, env={"PATH": f"{folder}:/usr/bin:/bin"})
        with open(log, encoding="ascii") as f:
            return f.read()
    assert re.fullmatch(r"getent passwd millrace\nuseradd --system .* millrace\n", does("PREIN", 1)), does("PREIN", 1)
    assert does("POSTIN", 1) == "systemctl daemon-reload\nsystemd-tmpfiles --create millrace.conf\n"
    assert does("PREUN", 1) == "" and does("PREUN", 0) == f"systemctl disable --now {UNITS}\n"
    assert does("POSTUN", 1) == f"systemctl daemon-reload\nsystemctl try-restart {UNITS}\n"
    assert does("POSTUN", 0) == "systemctl daemon-reload\n"


def main():
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as folder:
        out = os.path.join(folder, "out")
        made = subprocess.run([os.path.join(TOP, "packaging/build.sh"), out, "rpm"], capture_output=True, text=True, check=False,
                              env={**os.environ, "MILLRACE_BUILT": os.path.abspath(BUILD)})
        assert made.returncode == 0, (made.stdout + made.stderr)[-3000:]
        files = glob.glob(os.path.join(out, "rpm/*/*.rpm"))
        packages = {run("rpm", "-qp", "--qf", "%{NAME}", path): path for path in files}
        assert set(packages) == {"millrace", "millrace-perf", "millrace-lnetctl", "millrace-doc"} and len(files) == 4, files
        version = run(os.path.join(TOP, "packaging/version")).strip()
        assert all(run("rpm", "-qp", "--qf", "%{VERSION}", path) == version for path in files), files
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                os.mkdir(own := os.path.join(folder, name))
                test(packages, own)
                print(f"ok {name}", flush=True)


main()
