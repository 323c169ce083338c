#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command in a guest that has software RDMA devices: Debian's kernel in qemu, with the host's own root below it.

    test/vm/vm.py --build BUILDDIR [OPTION...] COMMAND [ARGUMENT...]

The guest sees the host's files and keeps what it writes in memory; /tmp, /run and /var/tmp are its own. It has no network
but its own. The command runs in the top folder of the sources as root of the guest; its output comes out here as it is
written and into BUILDDIR/logs/vm.log, and its exit status is ours. 124: over the limit; 125: the guest did not come up, or
went down before the command's end (what its kernel said is then shown, and kept in BUILDDIR/logs/vm-console.log).
"""

import argparse
import contextlib
import ctypes
import fcntl
import glob
import gzip
import lzma
import os
import platform
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(TOP, "test", "vm")
sys.path.insert(0, os.path.join(TOP, "test", "system"))

from lnetpy.cards import MODELS     # noqa: E402 pylint: disable=wrong-import-position

SBIN = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

META_PACKAGE = "linux-image-amd64"
# What no guest of ours has a use for, which is most of the package.
LEFT_OUT = ["sound"] + ["drivers/" + d for d in (
    "gpu", "media", "staging", "iio", "hwmon", "hid", "input", "comedi", "usb", "bluetooth", "mtd", "ata", "scsi",
    "net/wireless", "net/ethernet", "platform", "target", "isdn", "video")]
# In the initramfs; all others are loaded by modprobe once the guest has the host's root.
PACKED = b"\xfd7zXZ\0"
BOOT_MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"]

# Seconds until a guest that runs has mounted something; an emulated one takes 8 to 25 on a machine that does nothing else.
PATIENCE = {"kvm": 20, "tcg": 180}
OFF_PATIENCE = 20       # … until one whose command has ended has turned itself off
LIMIT_STATUS = 124
NO_GUEST_STATUS = 125
PASSED_ON = ("MILLRACE_", "DEV_", "ASAN_", "UBSAN_", "LSAN_", "G_")


class NoGuest(Exception):
    """The guest cannot be had, and why."""


def say(text):
    print("vm: " + text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------------------- the kernel

def apt(*command, **options):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)


def apt_update():
    as_root = [] if os.getuid() == 0 else ["sudo", "-n"]
    done = apt(*as_root, "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update")
    return done.stderr.strip()


def kernel_package():
    """The name of the package that has the kernel, or None."""
    for line in apt("apt-cache", "depends", META_PACKAGE).stdout.splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    return None


def download(folder):
    """Fetches the package into a folder and says where it is. Lists that are missing or old are renewed once."""
    said = ""
    for attempt in (0, 1):
        if attempt == 1:
            said = apt_update() or said
        name = kernel_package()
        if name is None:
            said = said or f"apt knows no {META_PACKAGE}"
            continue
        say(f"fetching {name}")
        done = apt("apt-get", "-q", "-o", "Acquire::Retries=3", "download", name, cwd=folder)
        found = glob.glob(os.path.join(glob.escape(folder), "*.deb"))
        if done.returncode == 0 and found:
            return found[0]
        said = done.stderr.strip() or said
    raise NoGuest("the guest's kernel is not here yet, and could not be fetched (no network?). apt said:\n  " +
                  "\n  ".join(said.splitlines()[-4:]))


def bare_kernel(image):
    """The kernel as an ELF file, which qemu boots too: emulated, unpacking itself takes it longer than all of its boot.
    The image as it is where it is packed by another method than Debian's."""
    start = image.find(PACKED)
    while start >= 0:
        with contextlib.suppress(lzma.LZMAError):
            kernel_file = lzma.LZMADecompressor().decompress(image[start:])
            if kernel_file.startswith(b"\x7fELF"):
                return kernel_file
        start = image.find(PACKED, start + 1)
    return image


def unpack(package, folder):
    """The kernel and the modules that may be wanted, out of the package. It is never installed."""
    tar = ["tar", "-x", "-C", folder] + [f"--exclude=./lib/modules/*/kernel/{d}" for d in LEFT_OUT]
    with subprocess.Popen(["dpkg", "--fsys-tarfile", package], stdout=subprocess.PIPE) as source:
        unpacked = subprocess.run(tar + ["--wildcards", "./boot/vmlinuz-*", "./lib/modules"], stdin=source.stdout, check=False)
    versions = os.listdir(os.path.join(folder, "lib/modules")) if unpacked.returncode == 0 else []
    if source.returncode != 0 or len(versions) != 1:
        raise NoGuest(f"{os.path.basename(package)} could not be unpacked")
    image = os.path.join(folder, "boot", "vmlinuz-" + versions[0])
    with open(os.path.join(folder, "kernel"), "wb") as f:
        f.write(bare_kernel(read(image)))
    made = subprocess.run(["depmod", "-b", folder, versions[0]], env={**os.environ, "PATH": SBIN}, check=False)
    if made.returncode != 0:
        raise NoGuest("depmod failed")


def kernel(folder):
    """(folder, version) of the unpacked kernel, fetched at the first use and kept."""
    home = os.path.join(folder, "kernel")
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(home):
            with tempfile.TemporaryDirectory(dir=folder, prefix="fetch-") as work:
                new = os.path.join(work, "kernel")
                os.mkdir(new)
                unpack(download(work), new)
                os.rename(new, home)
    return home, os.listdir(os.path.join(home, "lib/modules"))[0]


# ---------------------------------------------------------------------------------------------------- the initramfs

class Archive:
    """A cpio archive in the format that kernels take (newc)."""

    def __init__(self):
        self.data = bytearray()
        self.count = 0

    def add(self, name, mode, content=b"", device=(0, 0)):
        self.count += 1
        path = name.encode() + b"\0"
        fields = (self.count, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(path), 0)
        self.data += b"070701" + b"".join(b"%08x" % f for f in fields) + path
        self.data += bytes(-len(self.data) % 4)
        self.data += content
        self.data += bytes(-len(self.data) % 4)

    def folder(self, name):
        self.add(name, stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o755):
        self.add(name, stat.S_IFREG | mode, content)

    def bytes(self):
        self.add("TRAILER!!!", 0)
        return gzip.compress(bytes(self.data), 1)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def boot_modules(home, version, names):
    """Files of the modules that the initramfs loads, in that order."""
    found = []
    for name in names:
        lines = subprocess.run(["modprobe", "-d", home, "-S", version, "--show-depends", name], check=False, text=True,
                               capture_output=True, env={**os.environ, "PATH": SBIN}).stdout
        files = [line.split()[1] for line in lines.splitlines() if line.startswith("insmod ")]
        if not files and not lines.startswith("builtin "):
            raise NoGuest(f"the kernel {version} has no module {name}")
        found += [f for f in files if f not in found]
    return found


def initramfs(home, version, settings, init, names):
    archive = Archive()
    for name in ("bin", "dev", "modules"):
        archive.folder(name)
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.file("bin/busybox", read(shutil.which("busybox", path=SBIN)))
    archive.file("init", read(os.path.join(HERE, init)))
    archive.file("settings", settings.encode())
    modules = boot_modules(home, version, names)
    for path in modules:
        archive.file("modules/" + os.path.basename(path), read(path))
    archive.file("modules/order", "".join(os.path.basename(m) + "\n" for m in modules).encode())
    return archive.bytes()


# -------------------------------------------------------------------------------------------------------- the guest

class Run:
    """One boot. The folder holds what it takes and what it leaves."""

    init, modules, drives, log = "init.sh", BOOT_MODULES, (), "vm"

    def __init__(self, options, accel, folder, home, version):
        self.options = options
        self.accel = accel
        self.folder = folder
        self.home = home
        self.version = version
        self.out = os.path.join(folder, "out")
        self.console = os.path.join(folder, "console.log")
        self.qemu = None
        self.begun = time.monotonic()
        self.seen = {}

    def prepare(self):
        os.mkdir(self.out)
        settings = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in (
            ("top", TOP), ("build", self.options.build), ("kernel", self.home), ("rxe", self.options.rxe),
            ("cards", " ".join(self.options.card))))
        kept = {k: v for k, v in os.environ.items() if k.startswith(PASSED_ON)}
        kept["MILLRACE_BUILD"] = self.options.build
        command = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in sorted(kept.items()))
        command += "exec " + shlex.join(self.options.command) + "\n"
        for name, text in (("settings", settings), ("command", command)):
            with open(os.path.join(self.out, name), "w", encoding="utf-8") as f:
                f.write(text)
        with open(os.path.join(self.folder, "initramfs"), "wb") as f:
            f.write(initramfs(self.home, self.version, settings, self.init, self.modules))

    def arguments(self):
        def share(name, path, more):
            path = path.replace(",", ",,")
            return ["-fsdev", f"local,id={name},path={path},security_model=none{more}",
                    "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]

        more = ["-device", "intel-iommu,intremap=on"] if self.options.card else []
        accel, cpu = {
            "kvm": (["-accel", "kvm,kernel-irqchip=split" if more else "kvm"], "host"),
            "tcg": (["-accel", "tcg,thread=multi"], "max,la57=off"),
        }[self.accel]
        return [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-machine", "q35", *accel, *more, "-cpu", self.options.cpu or cpu,
            "-smp", str(self.options.cpus), "-m", str(self.options.memory), "-display", "none", "-no-reboot",
            "-kernel", os.path.join(self.home, "kernel"),
            "-initrd", os.path.join(self.folder, "initramfs"),
            # Nobody else is in the guest whom the mitigations would keep out, and emulated they cost a third.
            # The timer is not tried: while the host is busy, ticks come too late for that, and the kernel gives up.
            "-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on no_timer_check"
            + " intel_iommu=on iommu=pt" * bool(more)
            + f" hugepagesz=1G hugepages={max(self.options.memory - 2048, 0) // 1024}" * bool(more),
            "-serial", "file:" + self.console.replace(",", ",,"),
            *share("host", "/", ",readonly=on,multidevs=remap"), *share("out", self.out, ""),
            *self.drives,
            "-device", "virtio-serial-pci", "-chardev", "file,id=output,path=/dev/stdout",
            "-device", "virtserialport,chardev=output,name=output",
            *(self.card_arguments() if self.options.card else []),
        ]

    def card_arguments(self):
        """Network cards, each in a slot of its own and on a cable to one that the guest's kernel has; and qemu's own control
        (QMP) as a port of the guest, to pull cables and cards."""
        socket = os.path.join(self.folder, "qmp").replace(",", ",,")
        found = ["-chardev", f"socket,id=qmp,path={socket},server=on,wait=off", "-mon", "chardev=qmp,mode=control",
                 "-chardev", f"socket,id=control,path={socket}", "-device", "virtserialport,chardev=control,name=control"]
        for n, model in enumerate(self.options.card):
            found += ["-netdev", f"hubport,id=mine{n},hubid={n}", "-netdev", f"hubport,id=theirs{n},hubid={n}",
                      "-device", f"pcie-root-port,id=slot{n},chassis={n + 1},multifunction=on,addr={0x10 + n // 8:x}.{n % 8}",
                      "-device", f"{MODELS[model]},id=card{n},bus=slot{n},netdev=mine{n},mac=52:54:00:00:01:{n:02x}",
                      "-device", f"virtio-net-pci,netdev=theirs{n},mac=52:54:00:00:02:{n:02x}"]
        return found

    def look(self):
        """Notes when the guest got how far."""
        for name in ("alive", "ready", "status"):
            if name not in self.seen and os.path.exists(os.path.join(self.out, name)):
                self.seen[name] = time.monotonic() - self.begun

    def stop(self):
        if self.qemu and self.qemu.poll() is None:
            self.qemu.kill()
            self.qemu.wait()

    def go(self, log, end):
        """Boots and waits for the end, the guest's or that of one of the limits. False: over that of all boots."""
        patience = PATIENCE[self.accel]
        error = open(os.path.join(self.folder, "qemu.log"), "wb")  # pylint: disable=consider-using-with
        with error:
            self.qemu = subprocess.Popen(self.arguments(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=error,
                                         preexec_fn=end_with_parent)
        output = self.qemu.stdout.fileno()
        while True:
            ready, _, _ = select.select([output], [], [], 0.1)
            if ready:
                data = os.read(output, 65536)
                if not data:
                    break
                log.write(data)
                log.flush()
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            self.look()
            if "status" in self.seen and time.monotonic() > self.begun + self.seen["status"] + OFF_PATIENCE:
                break  # it is not going off, but its command has ended
            now = time.monotonic()
            if now > end or ("alive" not in self.seen and now > self.begun + patience):
                break
        in_time = time.monotonic() <= end
        if in_time and "alive" in self.seen:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.qemu.wait(10)
        self.stop()
        self.look()
        return in_time

    def status(self):
        """The command's, or None."""
        with contextlib.suppress(OSError, ValueError):
            return int(read(os.path.join(self.out, "status")))
        return None

    def tail(self):
        lines = []
        for name in ("qemu.log", "console.log"):
            with contextlib.suppress(OSError):
                lines += read(os.path.join(self.folder, name)).decode("utf-8", "replace").splitlines()[-25:]
        return "\n".join("   | " + line.rstrip() for line in lines if line.strip())


def end_with_parent():
    """In the child: no guest outlives us, whatever ends us."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def boot_id():
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def accelerators(options, folder):
    """Which to try, in this order: an emulated guest twice, as a busy host may keep it from coming up. A KVM that did not run the
    guest is not tried again before the host's next boot."""
    tcg = ["tcg", "tcg"]
    if options.accel != "auto":
        return tcg if options.accel == "tcg" else [options.accel]
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return tcg
    with contextlib.suppress(OSError):
        if read(os.path.join(folder, "kvm-unusable")).decode() == boot_id():
            return tcg
    return ["kvm", *tcg]


def attempt(options, accel, folder, logs, end, last, kind):
    """One boot; its status, or None if the guest did not come up and there is another try."""
    home, version = kernel(folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix="run-") as work:
        run = kind(options, accel, work, home, version)
        run.prepare()
        try:
            with open(os.path.join(logs, kind.log + ".log"), "wb") as log:
                in_time = run.go(log, end)
        finally:
            run.stop()
            with contextlib.suppress(OSError):
                shutil.copyfile(run.console, os.path.join(logs, kind.log + "-console.log"))
        whole = time.monotonic() - run.begun
        status = run.status()
        if status is None and in_time and not last and "ready" not in run.seen:
            if accel == "kvm":
                say(f"/dev/kvm does not run this guest (nothing from it in {whole:.0f} s); it is emulated from now on")
                with open(os.path.join(folder, "kvm-unusable"), "w", encoding="ascii") as f:
                    f.write(boot_id())
            else:
                say(f"the guest did not come up ({whole:.0f} s); once more. It said:")
                print(run.tail(), file=sys.stderr, flush=True)
            return None
        if status is None:
            say(f"{'the guest ended before its command' if in_time else f'over the limit of {options.limit} s'} ({accel})")
            print(run.tail(), file=sys.stderr, flush=True)
            return NO_GUEST_STATUS if in_time else LIMIT_STATUS
        if "ready" not in run.seen:
            print(run.tail(), file=sys.stderr, flush=True)
        ready = run.seen.get("ready", whole)
        say(f"Linux {version}, {accel}, {options.cpus} cores, {options.memory} MiB: ready after {ready:.1f} s, "
            f"the command {run.seen['status'] - ready:.1f} s, {whole:.1f} s in all, status {status}")
        return status


def main(argv=None, kind=Run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True, help="build folder; the kernel is kept in vm/ below it")
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"), default=os.environ.get("MILLRACE_VM_ACCEL", "auto"),
                        help="auto takes KVM where it runs the guest, else emulates it (tcg)")
    parser.add_argument("--cpu", help="qemu's name of a processor model")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2048, help="MiB")
    parser.add_argument("--rxe", type=int, default=2, help="software RDMA devices, 0 to 9")
    parser.add_argument("--card", action="append", choices=MODELS, default=[], help="a network card; may be given again")
    parser.add_argument("--limit", type=float, default=600, help="seconds, from the start to the end")
    parser.add_argument("--suite", help="print a line `SKIP NAME.guest: why` where this machine can have no guest")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    options.build = os.path.realpath(options.build)
    options.command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not options.command:
        parser.error("which command?")
    folder, logs = (os.path.join(options.build, name) for name in ("vm", "logs"))
    for name in (folder, logs):
        os.makedirs(name, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if platform.machine() != "x86_64":
            why = f"the guest is an amd64 machine, and this host is {platform.machine()}"
            if options.suite:
                print(f"SKIP {options.suite}.guest: {why}")
                return 0
            raise NoGuest(why)
        tries, end = accelerators(options, folder), time.monotonic() + options.limit
        for n, accel in enumerate(tries):
            status = attempt(options, accel, folder, logs, end, n == len(tries) - 1, kind)
            if status is not None:
                return status
    except NoGuest as reason:
        say(str(reason))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return NO_GUEST_STATUS


if __name__ == "__main__":
    sys.exit(main())
