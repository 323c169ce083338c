#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""In the guest, as root beside systemd: the packages from installation to purge, in the order of the functions.

    tests.py FOLDER     FOLDER/old has the packages as apt wants them, FOLDER/new newer versions of them
"""
import asyncio
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
sys.path.insert(0, os.path.join(TOP, "test/system"))
from lnetpy import nid as N  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy import page  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.env import Env  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.judge import RouterSpec  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.netns import Fabric  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.node import pattern  # noqa: E402  pylint: disable=wrong-import-position
from lnetpy.scene import CLIENT, ROUTER, SERVER, join  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = sys.argv[1] if len(sys.argv) > 1 else ""
DEADLINE = 300
PACKAGES = ("millrace", "millrace-perf", "millrace-lnetctl")
CONFIG = """
net:
  - net type: tcp
    local NI(s): [{interfaces: {0: eth0}}]
  - net type: tcp1
    local NI(s): [{interfaces: {0: eth1}}]
routing: {enable: 1}
buffers: {tiny: 64, small: 64, large: 8}
millrace: {reactors: 2, log: {to: journald}, RPC}
"""
FILE = "/etc/millrace/millrace.yaml"
SOURCES = "/etc/apt/sources.list"
PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def steps(page, section):
    """The blocks of commands and files in a section of a page."""
    with open(os.path.join(TOP, "docs", page), encoding="utf-8") as f:
        text = re.search(rf"(?s)\n## {section}\n(.*?)\n## ", f.read())[1]
    return [textwrap.dedent(block) for block in re.findall(r"(?:^ {7}.*\n)+", text, re.M)]


MONITORING = steps("monitoring.md", "Set it up")
CONFIG = CONFIG.replace("RPC", re.search(r"rpc: \{.*\}", MONITORING[0])[0])


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
        self.spec.allow_none = self.spec.any_type = True    # it and a node may connect at the same time

    async def stop(self):
        pass


class Site:
    """Client and server on the nets of the router, which is this machine. They are new at each call: so is all that they expect of it."""

    def __init__(self):
        self.fabric = Fabric()
        for host, segment, address, ours in (("c", "tcp", CLIENT, "eth0"), ("s", "tcp1", SERVER, "eth1")):
            self.fabric.attach(host, segment, "eth0", N.parse(address).ip)
            run("ip", "link", "add", ours, "type", "veth", "peer", "name", ours, "netns", self.fabric.switch.path)
            self.fabric.switch.ip(f"link set {ours} master {segment}\nlink set {ours} up")
        for ours, address in zip(("eth0", "eth1"), ROUTER):
            run("ip", "address", "add", N.parse(address).ip + "/24", "dev", ours)
            run("ip", "link", "set", ours, "up")

    def traffic(self):
        """PUT and GET of 4 KiB and 1 MiB, both ways, each byte of each message compared with what a router may send."""
        async def both(env, nodes):
            for a, b in (nodes, nodes[::-1]):
                for size in (4096, 1 << 20):
                    assert await a.put(b.nid, pattern(size, size)) and await a.get(b.nid, size), (a.name, size, env.problems)
            await env.settle()
        asyncio.run(self._with_nodes(both))

    def ping(self, nid):
        """What `lnetctl ping` would print on the client."""
        said = []

        async def pinged(_, nodes):
            info = await nodes[0].ping(N.parse(nid), timeout=DEADLINE)
            said.extend(f"- nid: {n}\n" for n in info.statuses())
        asyncio.run(self._with_nodes(pinged))
        return "".join(said)

    async def _with_nodes(self, what):
        env, router = Env(), Router()
        env.fabric.close()
        env.fabric = self.fabric
        env.routers.append(router)
        nodes = [await env.persona(*who, transaction_timeout=DEADLINE) for who in (("c", CLIENT), ("s", SERVER))]
        try:
            join(nodes[0], router, "tcp1")
            join(nodes[1], router, "tcp")
            await env.bring_up(*nodes, timeout=DEADLINE)
            await what(env, nodes)
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

def todo(name, section):
    """The steps on the router in a section of a page of docs."""
    found = [s for s in page.steps(os.path.join(TOP, "docs", name)) if (s.section, s.host) == (section, "router")]
    assert found, f"{name} has no steps below {section}"
    return found


def command(step, folder="/"):
    """Runs a step of a page on this machine, whose user is root. The packages were made before the guest was."""
    if step.command != "./dev package deb":
        until(step.command, lambda: (step.want or "") in run("sh", "-c", re.sub(r"\bsudo ", "", step.command), cwd=folder))


def test_user(_):
    """The user as operations.md makes it. It goes again, for the package makes its own."""
    useradd = todo("operations.md", "Privileges")[0]
    command(useradd)
    assert int(run("getent", "passwd", "millrace").split(":")[2]) < 1000, useradd.command
    run("userdel", "millrace")


def test_install(state):
    """The first steps of README.md."""
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as f:
        state["yaml"] = re.search(r"(?s)\n## Install\n.*?```yaml\n(.*?)```", f.read())[1]
    state["steps"] = [s for s in page.steps(os.path.join(TOP, "README.md")) if s.section == "Install"]
    repository("old")       # the mirrors that apt knows cannot be reached from here
    state["folder"], state["begun"] = tempfile.mkdtemp(), time.monotonic()
    os.makedirs(os.path.join(state["folder"], "build/package"))
    os.symlink(f"{FOLDER}/old", os.path.join(state["folder"], "build/package/deb"))
    with open("/etc/apt/apt.conf.d/99yes", "w", encoding="ascii") as f:
        f.write('APT::Get::Assume-Yes "true";\n')      # nobody is there to ask
    for step in state["steps"][:2]:
        command(step, state["folder"])
    assert state["steps"][1].command.startswith("sudo apt install ./build/package/deb/"), state["steps"]
    assert [s.command for s in todo("install.md", "Debian 12")] == [s.command for s in state["steps"][:2]], "the pages differ"
    assert run("systemctl", "is-enabled", "millraced", status=None).strip() == "disabled"
    assert prop("ActiveState") == "inactive", prop("ActiveState")
    assert run("stat", "-c", "%U:%G %a", "/etc/millrace").strip() == "root:millrace 775"
    # The configuration is switched off: it does not start, and says what is missing.
    assert "NI" in run("millraced", "--check", status=1)


def test_first_ping(state):
    """The other steps of README.md: to a message that is routed. Tells of the seconds since the installation began."""
    state["site"] = site = Site()
    write(state["yaml"])
    gateways, pinged = {}, ""
    for step in state["steps"][2:]:
        words = step.command.split()
        if step.host == "router":
            command(step, state["folder"])
        elif words[:3] == ["lnetctl", "route", "add"]:
            gateways[step.host] = words[words.index("--net") + 1], words[words.index("--gateway") + 1]
        else:
            assert words[:2] == ["lnetctl", "ping"] and step.host == "client", step.command
            # These are the routes that the nodes have.
            assert gateways == {"client": ("tcp1", ROUTER[0]), "server": ("tcp", ROUTER[1])}, gateways
            pinged = site.ping(words[2])
            assert step.want in pinged and words[2] == SERVER, (step.want, pinged)
    assert pinged, state["steps"]
    took = time.monotonic() - state["begun"]
    run("systemctl", "stop", "millraced")
    return f"{took:.0f} s from the installation to a routed ping"


def test_first_start(_):
    """The steps of install.md, with the configuration of README.md: the first start, hugepages, and a right more for a driver."""
    for step in todo("install.md", "First start"):
        command(step)
    for step in todo("install.md", "Hugepages and devices"):
        step.command, step.want = (text and text.replace("1024", "8") for text in (step.command, step.want))   # of this small machine
        command(step)
    with open("/proc/sys/vm/nr_hugepages", encoding="ascii") as f:
        assert f.read().strip() == "8"
    run("sysctl", "vm.nr_hugepages=0")
    bounds = prop("CapabilityBoundingSet").split()
    assert active() and set(bounds) == {"cap_net_admin", "cap_net_bind_service", "cap_net_raw"}, bounds
    # Host sockets do not need it, so the process gave it up; the bounding set it may not change.
    status = proc_status(prop("MainPID"))
    assert int(status["CapBnd"], 16) & 1 << 12 and not (int(status["CapPrm"], 16) | int(status["CapEff"], 16)) & 1 << 12, status
    run("rm", "-r", "/etc/systemd/system/millraced.service.d")
    run("systemctl", "daemon-reload")
    run("systemctl", "stop", "millraced")


def test_other_packages(_):
    apt("install", *PACKAGES)
    assert run("lnetctl", "--version") == run("millrace", "--version")


def test_start(state):
    run("groupadd", "millrace-admin")
    write(CONFIG)
    run("systemctl", "start", "millraced")
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
    for step in todo("operations.md", "The form of a line"):
        command(step)
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
        assert "eth0" in (text := run("cat", path)) and "tcp5" in text, text
        assert run("stat", "-c", "%U", path).strip() == "millrace", path
    assert prop("MainPID") == state["pid"]


def test_exporter(_):
    """The steps of docs/monitoring.md; test_start has taken the first, Prometheus the fourth (test_monitoring.py)."""
    enable, curl = MONITORING[1].splitlines()
    edit, *lines = MONITORING[2].splitlines()
    begun, unit = edit.rsplit(" ", 1)

    def page(command):
        said = [""]

        def there():
            said[0] = run("sh", "-c", command, status=None)
            return "\nmillrace_up 1" in said[0]
        until("the page", there)
        assert f'nid="{ROUTER[0]}"' in said[0], said[0]
    assert curl.startswith("curl http://127.0.0.1:") and begun == "systemctl edit", MONITORING
    run("sh", "-c", enable)
    page(curl)
    os.mkdir(folder := f"/etc/systemd/system/{unit}.service.d")
    with open(f"{folder}/override.conf", "w", encoding="ascii") as f:
        f.write(textwrap.dedent("\n".join(lines)) + "\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", unit)
    page(curl.replace("127.0.0.1", N.parse(ROUTER[0]).ip))
    run("systemctl", "revert", unit)
    run("systemctl", "restart", unit)


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


def test_files(_):
    """The steps of operations.md that give files to the user, none of which it may read or write before."""
    folder, log = os.path.dirname(FILE), "/var/log/millrace"
    os.makedirs(log, exist_ok=True)
    run("chown", "-R", "root:root", folder, log)
    run("chmod", "755", folder)
    run("chmod", "600", FILE)
    run("systemctl", "reload", "millraced", status=None)
    until("the refusal", lambda: "refused" in prop("StatusText") and active())
    run("millrace", "config", "save", status=1)
    for step in todo("operations.md", "Privileges")[1:]:
        command(step)
    run("systemctl", "reload", "millraced")
    until("the good file", lambda: "refused" not in prop("StatusText") and active())
    run("millrace", "config", "save")
    assert run("stat", "-c", "%U", log).strip() == "millrace"
    run("chown", "-R", "root:root", folder)
    run("chgrp", "millrace", folder)
    run("chmod", "775", folder)
    write(CONFIG)
    run("chmod", "644", FILE)


def test_late_interface(state):
    """The service starts without an interface, and takes it when it comes."""
    run("ip", "link", "set", "eth1", "down")
    run("ip", "link", "set", "eth1", "name", "elsewhere")
    run("systemctl", "restart", "millraced")
    assert active()
    until("the status line", lambda: "1 of 2 NIs up" in prop("StatusText"))
    run("ip", "link", "set", "elsewhere", "name", "eth1")
    run("ip", "link", "set", "eth1", "up")
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
    newer, = glob.glob(f"{FOLDER}/new/millrace_*.deb")
    os.symlink(newer, os.path.join(state["folder"], "millrace_NEWER.deb"))
    command(todo("install.md", "Upgrade and removal")[0], state["folder"])
    shutil.rmtree(state["folder"])
    state["pid"] = restarted(state["pid"], state["site"])
    apt("upgrade")
    assert versions() == [v + "+newer" for v in old], versions()
    assert "eth0" in run("cat", FILE), "the upgrade has replaced the configuration"
    assert "eth0" in run("cat", "/var/lib/millrace/kept.yaml")
    assert run("systemctl", "is-enabled", "millraced").strip() == "enabled" and run("systemctl", "is-active", "millrace-exporter")


def test_remove(_):
    command(todo("install.md", "Upgrade and removal")[1])
    for unit in ("millraced", "millrace-exporter"):
        assert run("systemctl", "is-active", unit, status=None).strip() == "inactive", unit
    assert not run("pgrep", "millrace", status=1)
    assert not shutil.which("millrace") and not shutil.which("lnetctl")
    assert "eth0" in run("cat", FILE)


def test_purge(state):
    command(todo("install.md", "Upgrade and removal")[2])
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
            said = test(state)
            print(f"PASS machine.{name[5:]}{': ' + said if said else ''} ({time.monotonic() - begun:.0f} s)", flush=True)
        except Exception as e:      # pylint: disable=broad-except
            print(f"FAIL machine.{name[5:]}: {str(e).splitlines()[0] if str(e) else type(e).__name__}", flush=True)
            print("    " + traceback.format_exc().replace("\n", "\n    "), flush=True)
            failed = True
            if name in ("test_install", "test_first_ping", "test_start"):
                break
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
