#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Our IP layer (inet_host) opposite Linux's, over a veth pair in a network namespace of the test's own."""

import os
import socket
import struct
import subprocess
import sys
import time

INSIDE = "INET_LINUX_INSIDE"
DEADLINE = 60       # s, for what takes milliseconds on an idle machine


def sh(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True).stdout


def wait_for(what, why):
    until = time.monotonic() + DEADLINE
    while not what():
        if time.monotonic() > until:
            raise AssertionError(why)
        time.sleep(0.05)


class Host:
    """Our end, at near0."""

    running = []

    def __init__(self, program, dad_ms=0, addresses=("10.0.0.1/24", "fd00::1/64")):
        self.process = subprocess.Popen([program, "near0", str(dad_ms), "10.0.0.2", *addresses], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        Host.running.append(self)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"inet_host ended with {self.process.wait()}"
        return line.strip()

    def ask(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.read()

    def link(self):
        return self.ask("link") == "1"

    def drops(self, name):
        counts = dict(pair.split("=") for pair in self.ask("drops").split())
        return int(counts.get(name, 0))

    def close(self):
        Host.running.remove(self)
        self.process.stdin.close()
        assert self.process.wait(DEADLINE) == 0


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ping(to, size, source=None, seconds=DEADLINE):
    """Whether an echo request of Linux's gets its own bytes back."""
    v6 = ":" in to
    kind, proto = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if v6 else (socket.AF_INET, socket.IPPROTO_ICMP)
    payload = bytes(i * 7 & 255 for i in range(size))
    head = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, os.getpid() & 0xffff, size & 0xffff)
    if not v6:
        head = head[:2] + struct.pack("!H", checksum(head + payload)) + head[4:]
    with socket.socket(kind, socket.SOCK_RAW, proto) as s:
        if source:
            s.bind((source, 0))
        s.sendto(head + payload, (to, 0))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            s.settimeout(max(until - time.monotonic(), 0.01))
            try:
                got = s.recv(65536)
            except socket.timeout:
                return False
            if not v6:
                got = got[(got[0] & 15) * 4:]
            if got[0] == (129 if v6 else 0) and got[4:] == head[4:] + payload:
                return True
    return False


def test_ping(program):
    host = Host(program)
    for size in (0, 1, 2, 55, 56, 57, 1000, 1471, 1472):
        assert ping("10.0.0.1", size), f"no answer to {size} bytes"
    for size in (0, 1, 56, 1451, 1452):
        assert ping("fd00::1", size), f"no answer to {size} bytes over IPv6"
    host.close()


def test_fragments_are_refused(program):
    host = Host(program)
    assert ping("10.0.0.1", 8) and ping("fd00::1", 8)
    for to in ("10.0.0.1", "fd00::1"):
        for size in (1473, 4000, 60000):
            before = host.drops("ip_fragment")
            assert not ping(to, size, seconds=0.3)
            wait_for(lambda: host.drops("ip_fragment") > before, "no fragment was seen")
    assert ping("10.0.0.1", 8)
    host.close()


def test_neighbours(program):
    host = Host(program)
    ours = open("/sys/class/net/near0/address").read().strip()
    theirs = open("/sys/class/net/far0/address").read().strip()
    assert ping("10.0.0.1", 8) and ping("fd00::1", 8)
    for address in ("10.0.0.1", "fd00::1"):
        assert ours in sh("ip", "neigh", "show", address)
    rows = host.ask("neigh").lower()
    assert f"10.0.0.2 {theirs} reachable" in rows, rows
    assert f"fd00::2 {theirs} reachable" in rows, rows
    # Linux looks whether we are still there, by a question to us alone.
    sh("ip", "neigh", "change", "10.0.0.1", "lladdr", ours, "nud", "probe", "dev", "far0")
    wait_for(lambda: "REACHABLE" in sh("ip", "neigh", "show", "10.0.0.1"), "Linux' question was not answered")
    sh("ip", "-6", "neigh", "change", "fd00::1", "lladdr", ours, "nud", "stale", "dev", "far0")
    assert ping("fd00::1", 8)
    wait_for(lambda: "REACHABLE" in sh("ip", "neigh", "show", "fd00::1"), "Linux' question was not answered (IPv6)")
    host.close()


def test_gateway(program):
    sh("ip", "addr", "add", "192.168.7.7/32", "dev", "lo")
    host = Host(program)
    assert ping("10.0.0.1", 100, source="192.168.7.7"), "no answer over the gateway"
    assert "192.168.7.7" not in host.ask("neigh")
    sh("ip", "addr", "del", "192.168.7.7/32", "dev", "lo")
    host.close()


def test_udp_is_refused(program):
    host = Host(program)
    for kind, to in ((socket.AF_INET, "10.0.0.1"), (socket.AF_INET6, "fd00::1")):
        with socket.socket(kind, socket.SOCK_DGRAM) as s:
            s.settimeout(DEADLINE)
            s.connect((to, 9))
            s.send(b"x" * 100)
            try:
                s.recv(1)
                raise AssertionError("an answer?")
            except ConnectionRefusedError:
                pass
    host.close()


def test_address_is_anothers(program):
    sh("ip", "addr", "add", "10.0.0.77/24", "dev", "far0")
    refused = subprocess.run([program, "near0", "0", "10.0.0.2", "10.0.0.77/24"], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, check=False)
    assert refused.returncode == 1 and "ip address delete 10.0.0.77/24 dev far0" in refused.stderr, refused.stderr
    sh("ip", "addr", "del", "10.0.0.77/24", "dev", "far0")
    begun = time.monotonic()
    host = Host(program, dad_ms=1200)
    assert not host.link() or time.monotonic() - begun > 1.2
    wait_for(host.link, "the addresses never were ours")
    # Linux wants the address that we have, asks, and is told.
    sh("ip", "addr", "add", "fd00::1/64", "dev", "far0")
    wait_for(lambda: "dadfailed" in sh("ip", "-6", "addr", "show", "dev", "far0"), "Linux was not told that it is ours")
    sh("ip", "addr", "del", "fd00::1/64", "dev", "far0")
    assert host.link()
    # Somebody says again and again that it has the IPv4 address: it stays ours, and Linux is told where it is.
    announce = struct.pack("!HHBBH6s4s6s4s", 1, 0x800, 6, 4, 1, mac_of("far0"), socket.inet_aton("10.0.0.1"), bytes(6),
                           socket.inet_aton("10.0.0.1"))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind(("far0", 0))
        for _ in range(120):
            s.send(b"\xff" * 6 + mac_of("far0") + b"\x08\x06" + announce)
            assert host.link()
            time.sleep(0.1)
    assert ping("10.0.0.1", 8)
    host.close()


def test_link(program):
    host = Host(program)
    assert host.link()
    sh("ip", "link", "set", "far0", "down")
    wait_for(lambda: not host.link(), "the link was not seen to go")
    sh("ip", "link", "set", "far0", "up")
    wait_for(host.link, "the link was not seen to come")
    assert ping("10.0.0.1", 8)
    host.close()


def mac_of(ifname):
    return bytes.fromhex(open(f"/sys/class/net/{ifname}/address").read().strip().replace(":", ""))


def fresh():
    """Whatever the last test has left."""
    for host in list(Host.running):
        Host.running.remove(host)
        host.process.kill()
        host.process.wait()
    sh("ip", "link", "set", "far0", "up")
    sh("ip", "addr", "flush", "dev", "far0", "scope", "global")     # Linux asks from its link-local address
    sh("ip", "addr", "flush", "dev", "lo", "to", "192.168.7.7")
    sh("ip", "neigh", "flush", "dev", "far0")
    sh("ip", "addr", "add", "10.0.0.2/24", "dev", "far0")
    sh("ip", "addr", "add", "fd00::2/64", "dev", "far0", "nodad")


def inside(program):
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "near0", "type", "veth", "peer", "name", "far0")
    for ifname, off in (("near0", "1"), ("far0", "0")):
        with open(f"/proc/sys/net/ipv6/conf/{ifname}/disable_ipv6", "w") as f:
            f.write(off)
        sh("ip", "link", "set", ifname, "up")
    failed = 0
    for name, test in sorted(globals().items()):
        if not name.startswith("test_") or (len(sys.argv) > 2 and sys.argv[2] not in name):
            continue
        fresh()
        try:
            test(program)
            print(f"PASS {name}")
        except Exception as e:
            print(f"FAIL {name}: {type(e).__name__}: {e}")
            failed += 1
    fresh()
    return failed


if __name__ == "__main__":
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        how = ["--net", "--mount"] if os.getuid() == 0 else ["--user", "--map-root-user", "--net", "--mount"]
        os.execvp("unshare", ["unshare", *how, sys.executable, *sys.argv])
    sh("mount", "-t", "sysfs", "sysfs", "/sys")
    sys.exit(1 if inside(os.path.abspath(sys.argv[1])) else 0)
