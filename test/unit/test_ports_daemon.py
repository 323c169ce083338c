#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""millraced on a port: a packet port on one end of a veth, Linux's TCP at the other.

usage: test_ports_daemon.py MILLRACED MILLRACE MILLRACE_PERF

Runs in network namespaces of its own. Exits non-zero at the first failure, 77 where it may not make namespaces.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = float(os.environ.get("MILLRACE_TEST_DEADLINE", "60"))
IN_NAMESPACE = "MILLRACE_TEST_NAMESPACE"

MILLRACED, MILLRACE, PERF = sys.argv[1:4]
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
SOCKET = os.path.join(DIR.name, "sock")

CONFIG = """
net:
  - net type: tcp
    local NI(s):
      - nid: 10.77.0.1@tcp
  - net type: tcp1
    local NI(s):
      - nid: 127.0.0.2@tcp1
buffers: {{tiny: 64, small: 64, large: 8}}
millrace:
  reactors: 2
  max_peers: 64
  rpc: {{socket: {socket}, mode: "0600"}}
  ports:
    - {{name: p0, device: {device}, addresses: [{addresses}], duplicate_check: {check}{more}}}
  {extra}
"""


def config(device="a0", addresses="10.77.0.1/24, 'fd77::1/64'", check="false", more="", extra=""):
    path = os.path.join(DIR.name, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG.format(socket=SOCKET, device=device, addresses=addresses, check=check, more=more, extra=extra))
    return path


def run(*args, status=0):
    """Standard output and error of a command that must end with a status."""
    p = subprocess.run(args, capture_output=True, text=True, timeout=DEADLINE)
    if p.returncode != status:
        raise AssertionError(f"{args} ended with {p.returncode}, not {status}:\n{p.stdout}{p.stderr}")
    return p.stdout + p.stderr


def cli(*args, status=0):
    return run(MILLRACE, "--socket", SOCKET, *args, status=status)


def has(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in:\n{text}"


def until(what, true):
    end = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


# One echo request; ends with 1 when no answer comes.
ECHO = """
import socket, struct, sys, time
v6 = ":" in sys.argv[1]
s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP)
s.connect((sys.argv[1], 0))
s.settimeout(10)
body = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, 77, 1) + bytes(range(56))
sum = sum(struct.unpack("!32H", body))
sum = ~((sum >> 16) + (sum & 0xffff)) & 0xffff
s.send(body if v6 else body[:2] + struct.pack("!H", sum) + body[4:])
try:
    while True:
        got = s.recv(2000)[0 if v6 else 20:]
        if got[0] == (129 if v6 else 0) and got[4:] == body[4:]:
            sys.exit(0)
except OSError as e:
    sys.exit(1)
"""


# Asks telemetry until nobody answers any more.
ASKING = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.settimeout(30)
try:
    s.connect(sys.argv[1])
    s.recv(4096)
    while True:
        s.send(b"/info")
        if not s.recv(65536):
            sys.exit(0)
except OSError:
    pass
"""


class Far:
    """The other end of the veth: a namespace that lives as long as a process in it."""

    def __init__(self):
        self.proc = subprocess.Popen(["unshare", "--net", "--", "sleep", "infinity"])
        here = os.readlink("/proc/self/ns/net")
        until("the other namespace", lambda: os.readlink(f"/proc/{self.proc.pid}/ns/net") != here)
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "a0", "type", "veth", "peer", "name", "b0")
        run("ip", "link", "set", "b0", "netns", str(self.proc.pid))
        self("ip", "addr", "add", "10.77.0.2/24", "dev", "b0")
        self("ip", "addr", "add", "fd77::2/64", "dev", "b0", "nodad")
        self("ip", "link", "set", "lo", "up")
        self("ip", "link", "set", "b0", "up")
        run("ip", "link", "set", "a0", "up")

    def __call__(self, *args, status=0):
        return run("nsenter", "-t", str(self.proc.pid), "-n", "--", *args, status=status)

    def echo(self, address):
        self(sys.executable, "-c", ECHO, address)

    def lnet_ping(self, nid, own, status=0):
        return self(PERF, "--nid", own, "--count", "2", "--timeout", "5", "--json", "ping", nid, status=status)


class Daemon:
    all = []

    def __init__(self, path, args=(), prefix=()):
        self.log = open(os.path.join(DIR.name, "log"), "w+", encoding="utf-8")
        self.proc = subprocess.Popen([*prefix, MILLRACED, "-c", path, *args], stderr=self.log)
        Daemon.all.append(self.proc)

    def wait_ready(self):
        end = time.monotonic() + DEADLINE
        while subprocess.run([MILLRACE, "-s", SOCKET, "version"], capture_output=True).returncode:
            assert self.proc.poll() is None, f"ended with {self.proc.returncode}: {self.text()}"
            assert time.monotonic() < end, "not ready"
            time.sleep(0.02)
        return self

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ended(self, status=0):
        try:
            code = self.proc.wait(DEADLINE)
        finally:
            self.proc.kill()
        assert code == status, f"ended with {code}, not {status}: {self.text()}"
        return self.text()

    def end(self):
        self.proc.terminate()
        return self.ended()


FAR = None


def status_of(nid):
    """up or down, as the NI is shown."""
    text = cli("net", "show")
    m = re.search(re.escape(nid) + r"\s.*?status: (\w+)", text, re.S)
    assert m, f"{nid} is not in:\n{text}"
    return m[1]


def test_start_and_stop():
    """A port carries its NIs, the host its own, and at the end all is as before."""
    before = run("ip", "addr", "show", "a0").replace(" tentative", "")
    for _ in range(2):
        d = Daemon(config()).wait_ready()
        until("ready", lambda: "event=ready" in d.text())
        has(d.text(), "event=port name=p0 device=a0 backend=packet", "link=up")
        FAR.echo("10.77.0.1")
        FAR.echo("fd77::1")
        out = json.loads(FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp"))
        has(json.dumps(out), "10.77.0.1@tcp", "127.0.0.2@tcp1")
        cli("ping", "127.0.0.2@tcp1")
        has(d.end(), "event=stopped orderly=yes")
        after = run("ip", "addr", "show", "a0").replace(" tentative", "")
        assert after == before, before + after


def test_ni_at_run_time():
    """NIs come to a port and go while it runs; on one address of it there may be several."""
    d = Daemon(config()).wait_ready()
    cli("net", "add", "--net", "tcp2", "--if", "p0")
    FAR.lnet_ping("10.77.0.1@tcp2", "10.77.0.2@tcp2")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    cli("net", "del", "--net", "tcp2")
    FAR.lnet_ping("10.77.0.1@tcp2", "10.77.0.2@tcp2", status=1)
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    cli("net", "del", "--net", "tcp")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp", status=1)
    FAR.echo("10.77.0.1")
    cli("net", "add", "--net", "tcp", "--if", "p0")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    has(cli("net", "add", "--net", "tcp3", "--nid", "10.77.0.9@tcp3", "--if", "p0", status=1), "10.77.0.9@tcp3",
        "is not on port p0")
    d.end()


def test_link():
    """The link of the port is the status of its NIs."""
    d = Daemon(config()).wait_ready()
    until("up", lambda: status_of("10.77.0.1@tcp") == "up")
    FAR("ip", "link", "set", "b0", "down")
    until("down", lambda: status_of("10.77.0.1@tcp") == "down")
    assert status_of("127.0.0.2@tcp1") == "up"
    FAR("ip", "link", "set", "b0", "up")
    until("up again", lambda: status_of("10.77.0.1@tcp") == "up")
    FAR("ip", "addr", "replace", "fd77::2/64", "dev", "b0", "nodad")  # went with the link
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    d.end()


def test_looking():
    """What is on the port is shown: its counters, neighbours, connections, packets, and faults made on purpose."""
    d = Daemon(config()).wait_ready()
    pcap = os.path.join(DIR.name, "x.pcapng")
    capture = subprocess.Popen([MILLRACE, "-s", SOCKET, "capture", "-w", pcap, "--peer", "10.77.0.2", "--seconds", "50"],
                               stderr=subprocess.PIPE, text=True)
    until("a capture", lambda: "under way" in cli("rpc", "capture_start", status=1) if os.path.exists(pcap) else False)
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    (port,) = json.loads(cli("port", "show", "--json"))["port"]
    assert port["name"] == "p0" and port["backend"] == "packet" and port["link"] == "up", port
    assert port["interfaces"][0]["addresses"][:2] == ["10.77.0.1/24", "fd77::1/64"], port
    assert sum(q["packets"] for q in port["queues"] if q["direction"] == "rx") >= 10, port["queues"]
    has(cli("arp", "show"), "10.77.0.2", "p0")
    has(cli("tcp", "stats"), "segs_in", "reactor: 1")
    for row in json.loads(cli("rpc", "buffers_get"))["reactors"]:
        s = row["segments"]
        assert 0 <= s["held"] <= s["used"] <= s["total"] and 0 < s["low"] <= s["total"], s
        assert (s["grants_waiting"], s["waiting"], s["payload_copies"]) == (0, 0, 0), s
    has(cli("buffers", "show"), "segments:", "payload_copy_bytes: 0")
    assert "segments" not in cli("routing", "show")
    rows = json.loads(cli("tcp", "show", "--json"))["tcp"]
    assert all(x["local"] == "10.77.0.1" and x["remote"] == "10.77.0.2" for x in rows), rows
    capture.terminate()
    err = capture.communicate(timeout=DEADLINE)[1]
    assert capture.returncode == 0 and int(re.match(r"(\d+) packets, 0 missed", err)[1]) >= 10, err
    with open(pcap, "rb") as f:
        data = f.read()
    assert data[:4] == b"\x0a\x0d\x0d\x0a" and bytes((10, 77, 0, 2)) in data and len(data) > 1000

    cli("tamper", "set", "-p", "p0", "--direction", "in", "--loss", "100", "--peer", "10.77.0.2")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp", status=1)
    (rule,) = json.loads(cli("tamper", "show", "--json"))["tamper"]
    assert rule["lost"] == rule["matched"] > 0 and rule["passed"] == 0, rule
    cli("tamper", "set", "--loss", "3", "--delay-ms", "10", "--jitter-ms", "5", "--duplicate", "5", "--cut")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    rows = json.loads(cli("tamper", "show", "--json"))["tamper"]
    assert len(rows) == 2 and all(x["delayed"] > 0 for x in rows), rows
    has(cli("port", "drops"), "name: tamper")
    cli("tamper", "set", "--delay-ms", "1000")     # what waits at the end goes with the port
    FAR.echo("10.77.0.1")
    has(d.end(), "event=stopped orderly=yes")


def ask_telemetry(path, *queries):
    """What DPDK's telemetry answers, each a JSON object."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(DEADLINE)
    s.connect(path)
    hello = json.loads(s.recv(4096))
    assert hello["pid"] > 0 and hello["max_output_len"] > 0, hello
    out = []
    for query in queries:
        s.send(query.encode())
        out.append(json.loads(s.recv(hello["max_output_len"]))[query.split(",")[0]])
    s.close()
    return out


def test_telemetry():
    """With telemetry DPDK's socket is beside that of RPC and goes with the process; without, there is none."""
    d = Daemon(config(extra="telemetry: true")).wait_ready()
    path = os.path.join(DIR.name, "dpdk", f"millraced.{d.proc.pid}", "dpdk_telemetry.v2")
    until("ready", lambda: "event=ready" in d.text())
    has(d.text(), f"telemetry={path}")
    info, = ask_telemetry(path, "/info")
    assert info["pid"] == d.proc.pid, info
    for _ in range(3):   # asked while it ends
        Daemon.all.append(subprocess.Popen([sys.executable, "-c", ASKING, path]))
    has(d.end(), "event=stopped orderly=yes")
    assert not os.path.exists(os.path.join(DIR.name, "dpdk")), os.listdir(DIR.name)
    d = Daemon(config()).wait_ready()
    until("ready", lambda: "event=ready" in d.text())
    assert "telemetry=" not in d.text() and not os.path.exists(os.path.join(DIR.name, "dpdk"))
    d.end()


def test_ready_after_check():
    """`ready` is logged once the address was checked for duplicates and its NI is up, and says how long that took."""
    d = Daemon(config(check="true")).wait_ready()
    cli("route", "add", "--net", "tcp9", "--gateway", "10.77.0.2@tcp")  # changes the document during the check
    assert "event=ready" not in d.text(), "the route came too late to be a change during the check"
    until("ready", lambda: "event=ready" in d.text())
    assert status_of("10.77.0.1@tcp") == "up"
    text = d.text()
    has(text, "event=ready", "routes=1")
    has(text, "event=addresses_checking addresses=2 ms=1200", "event=address_ready")
    assert text.index("event=addresses_checking") < text.index("event=address_ready") < text.index("event=ready"), text
    assert 1000 <= int(re.search(r"event=ready.* waited_ms=(\d+)", text)[1]) < 10000, text
    d.end()


def test_address_in_use():
    """An address that another station has is not used: its NI is down, and that is said."""
    FAR("ip", "addr", "add", "10.77.0.1/24", "dev", "b0")
    d = Daemon(config(check="true")).wait_ready()
    until("the conflict is said", lambda: "event=address_conflict" in d.text())
    has(d.text(), "warning events event=address_conflict port=p0 interface=p0 address=10.77.0.1", "state=not_used",
        "cause=answered_check")
    until("down", lambda: status_of("10.77.0.1@tcp") == "down")
    d.end()
    FAR("ip", "addr", "del", "10.77.0.1/24", "dev", "b0")
    d = Daemon(config(check="true")).wait_ready()
    until("up", lambda: status_of("10.77.0.1@tcp") == "up")
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    d.end()


def refused(*parts, **kw):
    has(Daemon(config(**kw)).ended(1), "event=failed", *parts)
    assert not os.path.exists(SOCKET)


def test_refused():
    """What cannot work ends the start with what to do."""
    run("ip", "addr", "add", "10.77.0.1/24", "dev", "a0")
    refused("10.77.0.1", "ip address delete 10.77.0.1/24 dev a0")
    run("ip", "addr", "del", "10.77.0.1/24", "dev", "a0")
    refused("ip link set a0 mtu 9000", more=", mtu: 9000")
    refused("port p0", device="lo")


def test_waits():
    """Without the interface of one port the rest runs."""
    d = Daemon(config(device="nosuch0")).wait_ready()
    has(d.text(), "warning millraced event=port_waits port=p0 device=nosuch0")
    assert status_of("10.77.0.1@tcp") == "down"
    d.end()


def test_unprivileged():
    d = Daemon(config(), prefix=["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw"])
    has(d.ended(1), "event=failed", "CAP_NET_RAW")


def test_start_fails_while_waiting():
    """A start that fails takes back what it had begun, however far it had come; the next begins anew."""
    run("ip", "link", "add", "late0", "mtu", "1400", "type", "veth", "peer", "name", "late1")
    run("ip", "link", "set", "late0", "up")
    run("ip", "link", "set", "late1", "up")
    d = Daemon(config(device="late0", more=", mtu: 1500"), args=["--wait-for-rpc"]).wait_ready()
    for _ in range(2):
        has(cli("rpc", "start", status=1), "interface late0 has an MTU of 1400")
    squatter = socket.socket()
    squatter.bind(("127.0.0.2", 988))
    squatter.listen()
    run("ip", "link", "set", "late0", "mtu", "1500")
    for _ in range(2):      # the host's NI cannot listen: the ports are open by then, and run
        while "still being stopped" in (err := cli("rpc", "start", status=1)):
            time.sleep(0.02)
        has(err, "cannot listen on 127.0.0.2@tcp1")
    squatter.close()
    end = time.monotonic() + DEADLINE
    while subprocess.run([MILLRACE, "-s", SOCKET, "rpc", "start"], capture_output=True).returncode:
        assert time.monotonic() < end and d.proc.poll() is None, d.text()
        time.sleep(0.02)
    until("up", lambda: status_of("10.77.0.1@tcp") == "up")
    d.end()
    run("ip", "link", "del", "late0")


def test_forced_end():
    """A second signal ends it at once, connections and all."""
    d = Daemon(config()).wait_ready()
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    d.proc.terminate()
    d.proc.terminate()
    code = d.proc.wait(DEADLINE)
    assert code in (0, 1), (code, d.text())    # 0: the first was quick enough
    d = Daemon(config()).wait_ready()
    FAR.lnet_ping("10.77.0.1@tcp", "10.77.0.2@tcp")
    d.end()


def enter():
    """This program again, in a network namespace of its own."""
    as_user = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    make = ["unshare", *as_user, "--net", "--"]
    if subprocess.run([*make, "true"], capture_output=True).returncode:
        print("SKIP ports_daemon: network namespaces cannot be made here")
        sys.exit(77)
    os.environ[IN_NAMESPACE] = "1"
    os.execvp(make[0], [*make, sys.executable, *sys.argv])


def main():
    global FAR
    if IN_NAMESPACE not in os.environ:
        enter()
    FAR = Far()
    try:
        for name, test in list(globals().items()):
            if name.startswith("test_") and (len(sys.argv) < 5 or sys.argv[4] in name):
                test()
                print(f"ok {name}", flush=True)
    finally:
        for proc in [*Daemon.all, FAR.proc]:
            proc.kill()
            proc.wait()


main()
