#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""In the guest, as root beside systemd: the packages from installation to purge, in the order of the functions.

    tests.py FOLDER     FOLDER/old has the packages as apt wants them, FOLDER/new newer versions of them
"""
import asyncio
import contextlib
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
import urllib.request

sys.path.insert(0, os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../system")))
from lnetpy import nid as N  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.env import Env  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.judge import RouterSpec  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.netns import Fabric  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.node import pattern  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.scene import CLIENT, ROUTER, SERVER, join  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = sys.argv[1] if len(sys.argv) > 1 else ""
DEADLINE = 120
PACKAGES = ("millrace", "millrace-perf", "millrace-lnetctl")
CONFIG = """
net:
  - net type: tcp
    local NI(s): [{interfaces: {0: clients}}]
  - net type: tcp1
    local NI(s): [{interfaces: {0: servers}}]
routing: {enable: 1}
buffers: {tiny: 64, small: 64, large: 8}
millrace: {reactors: 2, log: {to: journald}, rpc: {group: millrace, read_group: millrace}}
"""
FILE = "/etc/millrace/millrace.yaml"
SOURCES = "/etc/apt/sources.list"
PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def run(*command, status=0, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=DEADLINE, **more)
    assert status is None or done.returncode == status, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def apt(*command):
    return run("apt-get", "-q", "-y", *command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def repository(name):
    """From here on apt knows the packages of this folder, and no others."""
    with open(SOURCES, "w", encoding="ascii") as f:
        f.write(f"deb [trusted=yes] file:{FOLDER}/{name} ./\n")
    apt("update")


def versions():
    return [run("dpkg-query", "-W", "-f", "${Version}", name) for name in PACKAGES]


def prop(name):
    return run("systemctl", "show", "millraced", "-P", name).strip()


def until(what, test):
    end = time.monotonic() + DEADLINE
    while not (value := test()):
        assert time.monotonic() < end, f"not within {DEADLINE} s: {what}; {run('systemctl', 'status', 'millraced', status=None)}"
        time.sleep(0.2)
    return value


def write(text):
    with open(FILE, "w", encoding="utf-8") as f:
        f.write(text)


def active():
    return prop("ActiveState") == "active" and prop("SubState") == "running"


class Router:
    """The service, as the personas see it."""
    name = "millraced"

    def __init__(self):
        self.nids = [N.parse(n) for n in ROUTER]
        # It pings those who used it before a restart, as `lnetctl ping` does.
        self.spec = RouterSpec(self.nids, gateways={N.parse(CLIENT), N.parse(SERVER)}, ping_sinks={3960})

    async def stop(self):
        pass


class Site:
    """Client and server on the nets of the router, which is this machine. They are new at each call: so is all that they expect of it."""

    def __init__(self):
        self.fabric = Fabric()
        for host, segment, address, ours in (("c", "tcp", CLIENT, "clients"), ("s", "tcp1", SERVER, "servers")):
            self.fabric.attach(host, segment, "eth0", N.parse(address).ip)
            run("ip", "link", "add", ours, "type", "veth", "peer", "name", ours, "netns", self.fabric.switch.path)
            self.fabric.switch.ip(f"link set {ours} master {segment}\nlink set {ours} up")
        for ours, address in zip(("clients", "servers"), ROUTER):
            run("ip", "address", "add", N.parse(address).ip + "/24", "dev", ours)
            run("ip", "link", "set", ours, "up")

    def traffic(self):
        """PUT and GET of 4 KiB and 1 MiB, both ways, each byte of each message compared with what a router may send."""
        asyncio.run(self._traffic())

    async def _traffic(self):
        env, router = Env(), Router()
        env.fabric.close()
        env.fabric = self.fabric
        env.routers.append(router)
        nodes = [await env.persona(*who, transaction_timeout=DEADLINE) for who in (("c", CLIENT), ("s", SERVER))]
        try:
            join(nodes[0], router, "tcp1")
            join(nodes[1], router, "tcp")
            await env.bring_up(*nodes, timeout=DEADLINE)
            for a, b in (nodes, nodes[::-1]):
                for size in (4096, 1 << 20):
                    assert await a.put(b.nid, pattern(size, size)) and await a.get(b.nid, size), (a.name, size, env.problems)
            await env.settle()
        finally:
            await env.finish()


def restarted(before, site):
    """Another process is ready, and routes."""
    pid = until("another process", lambda: active() and prop("MainPID") not in ("0", before) and prop("MainPID"))
    site.traffic()
    return pid


def journal(*match):
    lines = run("journalctl", "--no-pager", "-o", "json", "-t", "millraced", *match).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def proc_status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


# ------------------------------------------------------------------------------------------- the life of a package

def test_install(_):
    repository("old")
    apt("install", *PACKAGES)
    assert run("systemctl", "is-enabled", "millraced", status=None).strip() == "disabled"
    assert prop("ActiveState") == "inactive", prop("ActiveState")
    assert run("stat", "-c", "%U:%G %a", "/etc/millrace").strip() == "root:millrace 775"
    assert run("lnetctl", "--version") == run("millrace", "--version")
    # The configuration is switched off: it does not start, and says what is missing.
    assert "NI" in run("millraced", "--check", status=1)


def test_start(state):
    state["site"] = Site()
    write(CONFIG)
    run("systemctl", "enable", "--now", "millraced")
    state["pid"] = prop("MainPID")
    assert active() and prop("Type") == "notify" and prop("NRestarts") == "0"
    until("the status line", lambda: "2 of 2 NIs up" in prop("StatusText"))


def test_privileges(state):
    status, (user, ident) = proc_status(state["pid"]), run("getent", "passwd", "millrace").split(":")[0:3:2]
    state["uid"], state["gid"] = ident, run("id", "-g", "millrace").strip()
    assert user == "millrace" and ident != "0" and status["Uid"].split() == [ident] * 4, status
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1", status
    # CAP_NET_BIND_SERVICE (10) and CAP_NET_RAW (13) at most.
    assert not int(status["CapPrm"], 16) & ~(1 << 10 | 1 << 13) and not int(status["CapBnd"], 16) & ~(1 << 10 | 1 << 13), status
    run("systemd-analyze", "security", "--no-pager", "--threshold=30", "millraced")


def test_journal(state):
    """The fields that docs/operations.md names."""
    ready = journal("MILLRACE_EVENT=ready")[-1]
    assert ready["MILLRACE_PID"] == ready["_PID"] == state["pid"] and ready["PRIORITY"] == "6", ready
    assert ready["MILLRACE_MODULE"] == "millraced" and ready["_SYSTEMD_UNIT"] == "millraced.service", ready


def test_route(state):
    state["site"].traffic()
    assert {e["MILLRACE_NID"] for e in journal("MILLRACE_EVENT=peer_up")} == {CLIENT, SERVER}
    out = state["site"].fabric.host("c").popen(["millrace-perf", "--nid", CLIENT, "--count", "3", "ping", ROUTER[0]], stdout=subprocess.PIPE,
                                               stderr=subprocess.STDOUT, text=True)
    said = out.communicate(timeout=DEADLINE)[0]
    assert out.returncode == 0, said


def test_save(state):
    """The service may write its configuration, and a file in its own folder."""
    run("millrace", "route", "add", "--net", "tcp5", "--gateway", "10.0.1.9@tcp1")
    run("millrace", "config", "save")
    run("millrace", "config", "save", "/var/lib/millrace/kept.yaml")
    for path in (FILE, "/var/lib/millrace/kept.yaml"):
        assert "clients" in (text := run("cat", path)) and "tcp5" in text, text
        assert run("stat", "-c", "%U", path).strip() == "millrace", path
    assert prop("MainPID") == state["pid"]


def test_exporter(_):
    run("systemctl", "enable", "--now", "millrace-exporter")

    def page():
        with contextlib.suppress(OSError), urllib.request.urlopen("http://127.0.0.1:9988/metrics", timeout=DEADLINE) as answer:
            return answer.read().decode()
        return ""
    text = until("the page", page)
    assert "\nmillrace_up 1" in text and f'nid="{ROUTER[0]}"' in text, text


def test_reload(state):
    write(CONFIG + "route: [{net: tcp5, gateway: 10.0.1.9@tcp1}]\n")
    run("systemctl", "reload", "millraced")
    until("the route", lambda: "tcp5" in run("millrace", "route", "show"))
    until("the end of the reload", active)
    write("net: [nonsense\n")
    run("systemctl", "reload", "millraced", status=None)
    until("the refusal", lambda: "refused" in prop("StatusText"))
    until("the end of the reload", active)
    assert prop("MainPID") == state["pid"] and "tcp5" in run("millrace", "route", "show")
    write(CONFIG)
    run("systemctl", "reload", "millraced")
    until("the good file", lambda: "refused" not in prop("StatusText") and active())
    until("the route's end", lambda: "tcp5" not in run("millrace", "route", "show"))
    assert prop("MainPID") == state["pid"]
    state["site"].traffic()


def test_late_interface(state):
    """The service starts without an interface, and takes it when it comes."""
    run("ip", "link", "set", "servers", "down")
    run("ip", "link", "set", "servers", "name", "elsewhere")
    run("systemctl", "restart", "millraced")
    assert active()
    until("the status line", lambda: "1 of 2 NIs up" in prop("StatusText"))
    run("ip", "link", "set", "elsewhere", "name", "servers")
    run("ip", "link", "set", "servers", "up")
    until("both NIs", lambda: "2 of 2 NIs up" in prop("StatusText"))
    state["site"].traffic()
    state["pid"] = prop("MainPID")


def test_kill(state):
    """kill -9, and again: systemd has no limit of starts for it."""
    assert prop("StartLimitIntervalUSec") == "0"
    before = int(prop("NRestarts"))
    for _ in range(2):
        run("kill", "-9", state["pid"])
        state["pid"] = restarted(state["pid"], state["site"])
    assert int(prop("NRestarts")) == before + 2


def test_hung_reactor(state):
    """One thread of the process is stopped; the others go on. The watchdog ends the process."""
    names = {}
    for path in glob.glob(f"/proc/{state['pid']}/task/*/comm"):
        with open(path, encoding="ascii") as f:
            names[f.read().strip()] = int(path.split("/")[-2])
    tid = names["reactor-1"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    assert libc.ptrace(PTRACE_SEIZE, tid, None, None) == 0 and libc.ptrace(PTRACE_INTERRUPT, tid, None, None) == 0, ctypes.get_errno()

    def ended():
        """Its end has to be taken note of here first: the thread is ours to wait for."""
        try:
            os.waitpid(tid, os.WNOHANG | WALL)
        except ChildProcessError:
            pass
        return prop("MainPID") != state["pid"]
    until("the watchdog", ended)
    before, state["pid"] = state["pid"], restarted(state["pid"], state["site"])
    assert "Watchdog timeout" in run("journalctl", "-u", "millraced", "--no-pager"), "another reason for the restart"
    silent = journal("MILLRACE_EVENT=reactor_silent")
    assert silent and all(e["_PID"] == before and e["MILLRACE_REACTOR"] == "1" for e in silent), silent


def test_upgrade(state):
    old = versions()
    repository("new")
    apt("upgrade")
    assert versions() == [v + "+newer" for v in old], versions()
    state["pid"] = restarted(state["pid"], state["site"])
    assert "clients" in run("cat", FILE), "the upgrade has replaced the configuration"
    assert "clients" in run("cat", "/var/lib/millrace/kept.yaml")
    assert run("systemctl", "is-enabled", "millraced").strip() == "enabled" and run("systemctl", "is-active", "millrace-exporter")


def test_remove(_):
    apt("remove", "millrace-lnetctl", "millrace")
    for unit in ("millraced", "millrace-exporter"):
        assert run("systemctl", "is-active", unit, status=None).strip() == "inactive", unit
    assert not run("pgrep", "millrace", status=1)
    assert not shutil.which("millrace") and not shutil.which("lnetctl")
    assert "clients" in run("cat", FILE)


def test_purge(state):
    apt("purge", *PACKAGES)
    # Logs are the site's, and what apt knows of the repository.
    kept = ("/var/cache/apt", "/var/lib/apt", "/var/log/journal", "/var/log/apt", "/run/log", "/run/systemd/units")
    left = [p for p in run("find", "/", "/run", "-xdev", "(", "-iname", "*millrace*", "-o", "-uid", state["uid"], "-o", "-gid", state["gid"],
                           ")").splitlines() if not p.startswith(kept)]
    assert not left, left
    for database in ("passwd", "group"):
        assert not run("getent", database, "millrace", status=2)
    for unit in ("millraced", "millrace-exporter"):
        assert run("systemctl", "show", unit, "-P", "LoadState").strip() == "not-found", unit
    assert not run("dpkg-query", "-W", "millrace*", status=None).startswith("millrace")


def main():
    state, failed = {}, False
    for name, test in list(globals().items()):
        if not name.startswith("test_"):
            continue
        begun = time.monotonic()
        try:
            test(state)
            print(f"PASS machine.{name[5:]} ({time.monotonic() - begun:.0f} s)", flush=True)
        except Exception as e:      # pylint: disable=broad-except
            print(f"FAIL machine.{name[5:]}: {str(e).splitlines()[0] if str(e) else type(e).__name__}", flush=True)
            print("    " + traceback.format_exc().replace("\n", "\n    "), flush=True)
            failed = True
            if name in ("test_install", "test_start"):
                break
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
