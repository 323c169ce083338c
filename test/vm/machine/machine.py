#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tries the Debian packages in a guest that boots Debian with systemd: installation, service, upgrade, removal.

    test/vm/machine/machine.py --build BUILDDIR

Packages are made from the programs in the build folder. The disk is made once by mmdebstrap, from the mirrors that this machine uses, with
what the packages depend on, and kept in BUILDDIR/vm; the guest itself has no network. The tests are in tests.py.
"""
import argparse
import contextlib
import fcntl
import glob
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import vm  # noqa: E402

SUITE = "bookworm"
ALWAYS = ["systemd-sysv", "udev", "iproute2", "procps", "kmod", "python3", "curl"]
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]
MODULES = [*vm.BOOT_MODULES, "virtio_blk", "ext4", "crc32c_generic"]
DISK_MIB = 1536         # sparse: what the guest may fill


def package_files(folder):
    return [f for f in glob.glob(os.path.join(glob.escape(folder), "deb", "*.deb")) if not re.search("-doc_|dbgsym", f)]


def packages(options):
    """Makes the packages, and a newer version of them. Returns the files of the former, or None. One process at a time makes them."""
    folder = os.path.join(options.build, "machine")
    with open(os.path.join(options.build, "vm", "machine-lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if options.reuse and os.path.exists(os.path.join(folder, "apt", "new", "Packages")):    # the last file of them
            return package_files(folder)
        return make_packages(options, folder)


def make_packages(options, folder):
    log = os.path.join(options.build, "logs", "machine-package.log")
    env = {**os.environ, "DEB_BUILD_OPTIONS": "noautodbgsym"}
    if not options.compile:
        env["MILLRACE_BUILT"] = options.build
    with open(log, "wb") as f:
        made = subprocess.run([os.path.join(vm.TOP, "packaging", "build.sh"), folder, "deb"], stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                              check=False, env=env)
    if made.returncode != 0:
        print(f"FAIL machine.packages: see {log}")
        print("    " + "\n    ".join(vm.read(log).decode("utf-8", "replace").splitlines()[-15:]))
        return None
    print("PASS machine.packages: made, lintian finds no error", flush=True)
    out, found = os.path.join(folder, "apt"), package_files(folder)
    shutil.rmtree(out, ignore_errors=True)
    for name in ("old", "new"):
        os.makedirs(os.path.join(out, name))
        for path in found:
            (shutil.copy if name == "old" else newer)(path, os.path.join(out, name))
        repository(os.path.join(out, name))
    return found


def newer(path, out):
    """The package once more, with a higher version."""
    tree, target = os.path.join(out, "tree"), os.path.join(out, os.path.basename(path))
    subprocess.run(["dpkg-deb", "-R", path, tree], check=True)
    control = os.path.join(tree, "DEBIAN", "control")
    text = vm.read(control).decode()
    with open(control, "w", encoding="utf-8") as f:
        f.write(re.sub("(?m)^Version: .*", r"\g<0>+newer", text))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, target], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def repository(folder):
    """What apt needs to take packages from the folder."""
    with open(os.path.join(folder, "Packages"), "wb") as f:
        subprocess.run(["dpkg-scanpackages", "--multiversion", "."], cwd=folder, check=True, stdout=f, stderr=subprocess.DEVNULL)


def needed(files):
    """What the packages depend on, by name; the first of alternatives."""
    names = set(ALWAYS)
    for path in files:
        fields = subprocess.run(["dpkg-deb", "-f", path, "Depends"], check=True, capture_output=True, text=True).stdout
        names |= {one.split("|")[0].split("(")[0].strip() for one in fields.split(",")}
    return sorted(n for n in names if n and not n.startswith("millrace"))


def disk(options, files):
    """The disk with Debian, made when there is none for these packages."""
    names = needed(files)
    key = hashlib.sha256(" ".join([SUITE, str(DISK_MIB), *names, *LEFT_OUT]).encode()).hexdigest()[:12]
    path = os.path.join(options.build, "vm", f"debian-{key}.ext2")
    with open(os.path.join(options.build, "vm", "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(path):
            return path
        for old in glob.glob(os.path.join(glob.escape(options.build), "vm", "debian-*.ext2")):
            os.unlink(old)
        begun, new = time.monotonic(), path + ".new.ext2"
        command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=" + ",".join(names),
                   *(f"--dpkgopt=path-exclude={p}" for p in LEFT_OUT), SUITE, new]
        try:
            made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise vm.NoGuest("mmdebstrap made no disk:\n  " + "\n  ".join(made.stderr.strip().splitlines()[-8:]))
            os.truncate(new, DISK_MIB << 20)
            subprocess.run(["resize2fs", "-f", new], check=True, capture_output=True, env={**os.environ, "PATH": vm.SBIN})
            os.rename(new, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(new)
        vm.say(f"the disk was made in {time.monotonic() - begun:.0f} s")
    return path


def kind_of(path):
    class Machine(vm.Run):
        init, modules, log = "machine/init.sh", MODULES, "machine-guest"
        # Nothing that the guest writes gets to the file.
        drives = ("-drive", f"file={path.replace(',', ',,')},format=raw,if=virtio,snapshot=on,cache=unsafe")
    return Machine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"), default=os.environ.get("MILLRACE_VM_ACCEL", "auto"))
    parser.add_argument("--limit", type=float, default=900, help="seconds for the guest")
    parser.add_argument("--compile", action="store_true", help="make the packages as a site gets them, compiled for that and without faults")
    parser.add_argument("--reuse", action="store_true", help="take the packages of the last run, if there are any")
    parser.add_argument("--prepare", action="store_true", help="make the packages and the disk, and start no guest")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print(f"SKIP machine.guest: the guest is an amd64 machine, and this host is {platform.machine()}")
        return 0
    options.build = os.path.realpath(options.build)
    for name in ("vm", "logs"):
        os.makedirs(os.path.join(options.build, name), exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    files = packages(options)
    if files is None:
        return 1
    try:
        kind = kind_of(disk(options, files))
    except vm.NoGuest as reason:
        print(f"FAIL machine.guest: {reason}")
        return 1
    if options.prepare:
        print("PASS machine.disk")
        return 0
    # What runs is the unit that machine/init.sh adds, not a command.
    status = vm.main(["--build", options.build, "--accel", options.accel, "--rxe", "0", "--memory", "1536",
                      "--limit", str(options.limit), "true"], kind)
    if status in (vm.LIMIT_STATUS, vm.NO_GUEST_STATUS):
        print("FAIL machine.guest: it did not come to an end")
    return status


if __name__ == "__main__":
    sys.exit(main())
