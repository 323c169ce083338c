#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What millraced sends to the service manager: readiness, reloads, a status line, and a watchdog that a hung reactor stops.

usage: test_service.py MILLRACED MILLRACE
"""
import ctypes
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from own_port import own_port  # noqa: E402

DEADLINE = 60
WATCHDOG_US = 2_000_000
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
LATE = "198.51.100.77"      # an address that no interface has until the test adds it

MILLRACED, MILLRACE = sys.argv[1:3]
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
PORT = own_port("127.0.0.2", "127.0.0.3")
CONFIG = f"""
net:
  - net type: tcp
    local NI(s):
      - nid: 127.0.0.2@tcp
  - net type: tcp1
    local NI(s):
      - nid: {LATE}@tcp1
route:
  - {{net: tcp9, gateway: 198.51.100.1@tcp1}}
buffers: {{tiny: 16, small: 16, large: 2}}
millrace:
  reactors: 2
  max_peers: 64
  accept_port: {PORT}
  rpc: {{socket: {DIR.name}/sock, mode: "0600"}}
"""


class Manager:
    """Takes what a service sends, as systemd does."""

    def __init__(self):
        self.path = os.path.join(DIR.name, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.status = ""

    def next(self, seconds=DEADLINE):
        self.socket.settimeout(seconds)
        try:
            message = dict(line.split("=", 1) for line in self.socket.recv(4096).decode().splitlines())
        except TimeoutError:
            return None
        self.status = message.get("STATUS", self.status)
        return message

    def wait(self, key, value=".*"):
        """The first message that has the key with such a value."""
        end, seen = time.monotonic() + DEADLINE, []
        while (left := end - time.monotonic()) > 0:
            message = self.next(left)
            seen.append(message)
            if message and re.fullmatch(value, message.get(key, "\0")):
                return message
        raise AssertionError(f"no {key}={value} among {[m for m in seen if m and 'WATCHDOG' not in m]}; status {self.status}")

    def wait_status(self, text):
        """Until systemctl would show that line."""
        if not re.fullmatch(text, self.status):
            self.wait("STATUS", text)


def ptrace(request, tid):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, tid, None, None) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


def reactor_thread(pid):
    """The thread of a reactor, by its name (DPDK's)."""
    for path in sorted(glob.glob(f"/proc/{pid}/task/*/comm")):
        with open(path, encoding="ascii") as f:
            if re.match(r"(rte-worker|lcore-worker|reactor)", f.read()):
                return int(path.split("/")[-2])
    raise AssertionError([open(p, encoding="ascii").read() for p in glob.glob(f"/proc/{pid}/task/*/comm")])


def write(text):
    path = os.path.join(DIR.name, "millrace.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def test_ready(manager, _):
    """Ready with one NI of two: the other has no address here yet."""
    manager.wait("READY", "1")
    manager.wait_status("1 of 2 NIs up, 0 routes; an NI waits for its device")


def test_late(manager, _):
    """The address comes, and the NI with its route."""
    subprocess.run(["ip", "address", "add", f"{LATE}/32", "dev", "lo"], check=True)
    manager.wait_status("2 of 2 NIs up, 1 routes")
    shown = subprocess.run([MILLRACE, "-s", DIR.name + "/sock", "net", "show"], check=True, capture_output=True, text=True).stdout
    assert f"{LATE}@tcp1\n            status: up" in shown, shown
    diff = subprocess.run([MILLRACE, "-s", DIR.name + "/sock", "config", "diff", write(CONFIG)], check=True, capture_output=True, text=True)
    assert "198.51" not in diff.stdout, diff.stdout


def test_reload(manager, daemon):
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    write(CONFIG.replace("tcp9", "tcp8"))
    daemon.send_signal(signal.SIGHUP)
    message = manager.wait("RELOADING", "1")
    assert before <= int(message["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000, message
    manager.wait("READY", "1")
    manager.wait_status("2 of 2 NIs up, 1 routes")
    write("net: [nonsense\n")
    daemon.send_signal(signal.SIGHUP)
    manager.wait("RELOADING", "1")
    manager.wait("READY", "1")
    manager.wait_status(".*; the last reload was refused, see the log")


def test_watchdog(manager, daemon):
    """A thread that is stopped takes no task: no message comes for as long as systemd would wait. Then messages go on."""
    begin = time.monotonic()
    for _ in range(4):
        manager.wait("WATCHDOG", "1")
    assert time.monotonic() - begin < 10 * WATCHDOG_US / 1e6
    tid = reactor_thread(daemon.pid)
    ptrace(PTRACE_SEIZE, tid)
    ptrace(PTRACE_INTERRUPT, tid)
    os.waitpid(tid, 0x40000000)     # __WALL
    end = time.monotonic() + 2 * WATCHDOG_US / 1e6
    pings = 0
    while (left := end - time.monotonic()) > 0:
        pings += (manager.next(left) or {}).get("WATCHDOG") == "1"
    assert pings <= 2, f"{pings} messages while a reactor hung"     # one that was under way, one that was answered before
    ptrace(PTRACE_DETACH, tid)
    manager.wait("WATCHDOG", "1")


def test_end(manager, daemon):
    daemon.terminate()
    manager.wait("STOPPING", "1")
    assert daemon.wait(DEADLINE) == 0


def main():
    if "MILLRACE_IN_NET" not in os.environ:     # a network of its own, as it adds an address
        os.execvpe("unshare", ["unshare", "--user", "--map-root-user", "--net", sys.executable, *sys.argv] if os.geteuid()
                   else ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, "MILLRACE_IN_NET": "1"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    manager = Manager()
    log = open(os.path.join(DIR.name, "log"), "wb+")     # pylint: disable=consider-using-with
    daemon = subprocess.Popen([MILLRACED, "-c", write(CONFIG)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,  # pylint: disable=consider-using-with
                              env={**os.environ, "NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": str(WATCHDOG_US)})
    try:
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test(manager, daemon)
                print(f"ok {name}", flush=True)
    except BaseException:
        log.seek(0)
        print(log.read().decode(errors="replace")[-3000:])
        raise
    finally:
        daemon.kill()
        daemon.wait()


main()
