#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A host that tries to use up what all share: a process of its own, so that nodes of the test keep their time.

    attacker.py WHAT --router ADDRESS --from ADDRESS... [--per N] [--rate N] [--far PREFIX]

callers: connects from ports that no kernel node has, as fast as it can until --per are there for each address, then at --rate
    in a second; it closes none by itself.
holders: opens --per connections of each address as a kernel node does, and keeps them.
keepers: as holders, with a ping over each connection in each second; one that was lost is made anew at once.
segments: as holders, and each connection then says 40 bytes, one in each segment.
dead: keeps two connections of each address, and sends PUTs of 4,097 bytes to nodes of net tcp1 that there are not. dead_small: of 100.
mute: takes all calls to its port 988, and never says a word.
sleepers: each address connects once as a kernel node does, and ends that; when all have, as mute. Prints nothing before.
thief: tells the router alone, 50 times a second, that the router's address is its own (ARP).
strangers, askers, forgers: hold --per connections of each address, and send over them, as fast as they are taken, messages for
    nodes of net tcp1 that there are not, pings, and PUSHes in the names of nodes of net tcp9 that there are not.
trickles: holds --per connections of each address, and sends over each a PUT of 1 MiB to --target, of which a byte comes now and
    then, nine seconds long.
pacers: the same with PUTs of --size bytes, one after the other, of each a sixteenth in each sixteenth of
    --pace seconds, or one: the router does not take that for a stall.
half_pushes: the same with a PUSH of 4,096 bytes to the router.
noops: the same with NOOPs, 4,000 at once.
pushers: the same with PUTs of --size bytes for as many nodes of net tcp1, --far followed by 100 and on.
restarts: as holders, each connection as a node that has restarted since its last, so that these end; they are made anew at once.
deaf: holds one connection of each address on --net, with a small window, and reads nothing but the HELLO.
quitters: as deaf, with --per connections, each of which says after --pace seconds that it sends no more; then another is made.
readers: holds --per connections of each address on --net, announces an MSS of --mss, and reads all that comes, or of each connection
    --pace bytes in a second.
takers: as keepers, but a GET of --size bytes from --target in place of the ping, and reads nothing but the HELLO.
comers: as takers, but each connection asks once, and --pace seconds later it is reset and made anew.
hoarders: holds --per connections of each address with a small window, sends over each 400 empty PUTs whose receipt the router has to
    tell, and reads nothing but the HELLO.
greetings: holds --per connections of each address open, whose greeting comes byte by byte and never ends.

Prints a line `N made, N ended, N refused, N open, N read` each second, with the bytes that readers have read. Ends when it is killed, or its parent ends.
"""

import argparse
import contextlib
import itertools
import os
import resource
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lnetpy import nid as N     # noqa: E402
from lnetpy import wire         # noqa: E402
from lnetpy.node import TEST_PORTAL     # noqa: E402


FLOODS = ("strangers", "askers", "forgers", "noops", "pushers")
BEGUN = ("trickles", "pacers", "half_pushes", "hoarders")
SENDERS = ("dead", "dead_small", "keepers", "takers", "comers", *BEGUN, *FLOODS)
DEAF = ("deaf", "quitters", "takers", "comers", "hoarders")
FILES_LEFT = 64     # of those that the process may have open, what connections do not take
BATCH, TURN = {"noops": 4000, "pushers": 1}, 0.05   # messages of a connection at once (else 100), and s between


class Attacker:
    def __init__(self, options):
        self.o = options
        self.family = socket.AF_INET6 if ":" in options.router else socket.AF_INET
        self.poll = select.epoll()
        self.open = {}          # descriptor -> [socket, address, bytes said]
        self.count = dict.fromkeys(options.source, 0)
        self.made = self.ended = self.refused = 0
        self.low = {a: itertools.cycle(range(1023, 512, -1)) for a in options.source}
        self.incarnation = time.time_ns()
        self.mac = self.raw = self.listener = None
        self.up, self.stood, self.begun, self.left = set(), set(), {}, {}
        self.quit, self.serial = [], itertools.count()
        self.room, self.read = bytearray(1 << 20), 0

    def call(self, address, port):
        s = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.o.what in DEAF or self.o.pace:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536 if self.o.pace and self.o.what not in DEAF else 2048)
            if self.o.mss:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self.o.mss)
            s.bind((address, port))
            s.connect_ex((self.o.router, 988))
        except OSError:         # no port, no descriptor: later
            s.close()
            return False
        self.open[s.fileno()] = [s, address, 0, b""]     # socket, address, bytes said, bytes to be said
        self.count[address] += 1
        self.poll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        self.made += 1
        return True

    def drop(self, fd, rst=False):
        s, address, *_ = self.open.pop(fd)
        self.up.discard(fd)
        if rst:
            with contextlib.suppress(OSError):
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        self.count[address] -= 1

    def events(self, wait):
        for fd, what in self.poll.poll(wait):
            if fd in self.open and what & (select.EPOLLHUP | select.EPOLLERR):
                self.refused += 1
                self.drop(fd)
                continue
            if fd in self.open and what & select.EPOLLOUT and self.o.what in ("holders", "restarts", "segments", "deaf", "quitters", "readers", "sleepers", *SENDERS):
                self.greet(fd)
                self.say_more(fd)
            if fd in self.open and what & select.EPOLLIN:
                self.hear(fd)

    def hear(self, fd):
        """A FIN is not answered: the router has to wait for ours."""
        if self.o.what in DEAF and fd in self.up:
            return
        if self.o.what == "sleepers":
            self.stood.add(self.open[fd][1])
            self.drop(fd, rst=True)
            return
        if self.o.what == "readers" and fd in self.up:
            if not self.o.pace:
                self.read_all(fd)
            return
        with contextlib.suppress(OSError):
            if self.open[fd][0].recv(56 if self.o.what in DEAF else 4096) == b"":
                self.ended += 1
                if self.o.what != "callers":
                    self.drop(fd, rst=True)
            elif self.o.what in BEGUN and fd not in self.up:
                self.up.add(fd)
                self.begun[fd] = time.monotonic()
                self.begin(fd)
                self.say_more(fd)
            elif self.o.what in (*FLOODS, *DEAF, "keepers", "readers"):
                self.up.add(fd)
            elif self.o.what in ("dead", "dead_small") and not self.open[fd][3]:
                self.open[fd][3] = self.puts(fd)
                self.say_more(fd)

    def begin(self, fd):
        """The header of a message whose payload comes later."""
        to, size, bits, portal = self.o.target, 1 << 20 if self.o.what == "trickles" else self.o.size, 5, 7
        if self.o.what == "half_pushes":
            to, size, bits, portal = self.o.router + "@tcp", 4096, wire.PING_MATCH, 0
        if self.o.what == "hoarders":
            to, size = self.o.router + "@tcp", 0
        head = wire.Header(N.parse(to), N.parse(self.open[fd][1] + "@tcp"), wire.PUT, size, wire.put_union(wire.NO_HANDLE, bits, portal))
        self.open[fd][3] = wire.frame(wire.LNET) + head.pack(":" in self.o.router)
        if self.o.what == "hoarders":
            self.open[fd][3] = b"".join(wire.frame(wire.LNET, 100 + i) + head.pack(":" in self.o.router) for i in range(400))

    def read_all(self, fd):
        """Discards what has come."""
        with contextlib.suppress(OSError):
            while (got := self.open[fd][0].recv_into(self.room, 0, socket.MSG_TRUNC)) > 0:
                self.read += got
            self.ended += 1
            self.drop(fd)

    def puts(self, fd):
        """As many as an address may have under way, each for another node."""
        source, out = N.parse(self.open[fd][1] + "@tcp"), b""
        size = 4097 if self.o.what == "dead" else 100
        for i in range(40):
            head = wire.Header(N.parse(f"{self.o.far}{100 + (fd + i) % 150}@tcp1"), source, wire.PUT, size,
                               wire.put_union(wire.NO_HANDLE, 5, 7))
            out += wire.frame(wire.LNET) + head.pack(False) + bytes(size)
        return out

    def say_more(self, fd):
        row = self.open[fd]
        with contextlib.suppress(OSError):
            while row[3] and self.o.what in SENDERS:
                row[3] = row[3][row[0].send(row[3]):]

    def greet(self, fd):
        row = self.open[fd]
        if row[2]:
            return
        s, address, *_ = row
        net = "@" + self.o.net
        ctype = (wire.CONTROL, wire.BULK_IN, wire.BULK_OUT)[min(self.count[address] - 1, 1 + self.count[address] % 2)]
        row[2] = 1
        self.incarnation += self.o.what == "restarts"
        version = 4 if ":" in address else 3
        hello = wire.Hello(version=version, src=N.parse(address + net), dst=N.parse(self.o.router + net), src_inc=self.incarnation,
                           ctype=ctype)
        with contextlib.suppress(OSError):
            s.send(wire.connreq(N.parse(self.o.router + net)) + hello.pack())

    def holders(self, now, began):
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_LEFT
        due = min(int(1 + 2000 * (now - began)) - self.made, files - len(self.open))
        for address in self.o.source:
            if self.count[address] < self.o.per and due > 0 and self.call(address, next(self.low[address])):
                due -= 1

    def message(self, i, source):
        """The next of a flood."""
        router, handle = N.parse(f"{self.o.router}@tcp"), i.to_bytes(16, "little")
        if self.o.what in ("askers", "keepers"):
            return wire.Header(router, source, wire.GET, 0, wire.get_union(handle, wire.PING_MATCH, 0, 272)), b""
        if self.o.what in ("takers", "comers"):
            return wire.Header(N.parse(self.o.target), source, wire.GET, 0, wire.get_union(handle, i, TEST_PORTAL, self.o.size)), b""
        if self.o.what == "forgers":
            forged = N.parse(f"172.16.{i >> 8 & 255}.{i & 255}@tcp9")
            info = wire.PingInfo(wire.F_NI_STATUS | wire.F_MULTI_RAIL | wire.F_DISCOVERY, i + 1, [(forged, wire.UP)]).pack()
            return wire.Header(router, forged, wire.PUT, len(info), wire.put_union(handle, wire.PING_MATCH, 0)), info
        if self.o.what == "pushers":
            to = N.parse(f"{self.o.far}{100 + i % len(self.o.source)}@tcp1")
            return wire.Header(to, source, wire.PUT, self.o.size, wire.put_union(handle, 5, 7)), bytes(self.o.size)
        to = N.parse(f"{self.o.far.split('.')[0]}.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}@tcp1")
        return wire.Header(to, source, wire.PUT, 0, wire.put_union(handle, 5, 7)), b""

    def flood(self, now, began):
        self.holders(now, began)
        if now < self.turn:
            return
        self.turn = now + TURN
        for fd in self.up:
            row = self.open[fd]
            if not row[3] and self.o.what == "noops":
                row[3] = wire.frame(wire.NOOP) * BATCH["noops"]
            elif not row[3]:
                batch = (self.message(next(self.serial), N.parse(row[1] + "@tcp")) for _ in range(BATCH.get(self.o.what, 100)))
                row[3] = b"".join(wire.frame(wire.LNET) + h.pack(False) + p for h, p in batch)
            self.say_more(fd)

    strangers = askers = forgers = noops = pushers = flood

    def deaf(self, now, began):
        self.holders(now, began)

    def quitters(self, now, began):
        """Those that have quit are kept, and never read."""
        self.holders(now, began)
        for fd in list(self.up):
            if now - self.begun.setdefault(fd, now) < self.o.pace:
                continue
            row = self.open.pop(fd)
            self.up.discard(fd)
            self.poll.unregister(fd)
            with contextlib.suppress(OSError):
                row[0].shutdown(socket.SHUT_WR)
            self.quit.append(row[0])
            self.count[row[1]] -= 1
            self.ended += 1

    def readers(self, now, began):
        self.holders(now, began)
        if not self.o.pace or now < self.turn:
            return
        self.turn = now + TURN
        for fd in self.up:
            with contextlib.suppress(OSError):
                self.read += self.open[fd][0].recv_into(self.room, int(self.o.pace * TURN), socket.MSG_TRUNC)

    def ask(self, fd):
        head, _ = self.message(next(self.serial), N.parse(self.open[fd][1] + "@tcp"))
        self.open[fd][3] = wire.frame(wire.LNET) + head.pack(":" in self.o.router)
        self.say_more(fd)

    def keepers(self, now, began):
        self.holders(now, began)
        if now < self.turn:
            return
        self.turn = now + 1
        for fd in self.up:
            self.ask(fd)

    takers = keepers

    def comers(self, now, began):
        self.holders(now, began)
        for fd in list(self.up):
            if fd not in self.begun:
                self.begun[fd] = now
                self.ask(fd)
            elif now - self.begun[fd] > self.o.pace:
                del self.begun[fd]
                self.drop(fd, rst=True)
                self.ended += 1

    def segments(self, now, began):
        self.holders(now, began)
        if now < self.turn:
            return
        self.turn = now + 0.1
        said = wire.frame(wire.NOOP) * 2
        for row in self.open.values():
            with contextlib.suppress(OSError):
                if 1 <= row[2] <= 40:
                    row[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    row[2] += row[0].send(said[row[2] - 1:row[2]])

    def dead(self, now, began):
        self.holders(now, began)

    restarts = dead_small = hoarders = dead

    def mute(self, now, began):
        """The kernel makes the connections."""
        self.listener = self.listener or socket.create_server(("", 988), family=self.family, backlog=4096)

    def sleepers(self, now, began):
        for address in self.o.source:
            if address not in self.stood and not self.count[address] and len(self.open) < 12:
                self.call(address, next(self.low[address]))
        if len(self.stood) == len(self.o.source):
            self.mute(now, began)

    def trickles(self, now, began):
        self.holders(now, began)
        if now < self.turn:
            return
        self.turn = now + 0.3
        for fd in list(self.up):
            self.open[fd][3] += b"x"
            self.say_more(fd)
            if now - self.begun[fd] > 9:
                self.drop(fd, rst=True)

    half_pushes = trickles

    def pacers(self, now, began):
        self.holders(now, began)
        if now < self.turn:
            return
        self.turn = now + (self.o.pace or 1) / 16
        piece = bytes(self.o.size // 16 + 1)
        for fd in self.up:
            row = self.open[fd]
            left = self.left.get(fd, self.o.size)
            if not row[3] and left:
                row[3] += piece[:left]
                self.left[fd] = left - len(piece[:left])
            elif not row[3]:
                self.begin(fd)
                del self.left[fd]
            self.say_more(fd)

    def callers(self, now, began):
        wanted = self.o.per * len(self.o.source)
        due = wanted + int(self.o.rate * (now - began))
        for _ in range(min(200, due - self.made)):
            address = self.o.source[self.made % len(self.o.source)]
            if not self.call(address, 0):
                oldest = next(iter(self.open), None)    # out of ports or descriptors
                if oldest is None:
                    break
                self.drop(oldest)

    def thief(self, now, began):
        if now < self.turn:
            return
        self.turn = now + 0.02
        if not self.mac:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:     # its kernel asks for the MAC
                s.sendto(b"", (self.o.router, 9))
            with open("/proc/thread-self/net/arp", encoding="ascii") as f:
                row = next((r for r in map(str.split, f) if r[0] == self.o.router and r[2] != "0x0"), None)
            self.mac = bytes.fromhex(row[3].replace(":", "")) if row else None
            return
        if not self.raw:
            self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.raw.bind(("eth0", 0))
        own = self.raw.getsockname()[4]
        self.raw.send(self.mac + own + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1) + own +
                      socket.inet_aton(self.o.router) + bytes(6) + socket.inet_aton(self.o.source[0]))
        self.made += 1

    def greetings(self, now, began):
        said = wire.connreq(N.parse(f"{self.o.router}@tcp")) + bytes(8)
        for address in self.o.source:
            for _ in range(min(8, self.o.per - self.count[address])):
                self.call(address, next(self.low[address]))
        if now < self.turn:
            return
        self.turn = now + 0.5
        for fd, row in list(self.open.items()):
            with contextlib.suppress(OSError):
                row[2] += row[0].send(said[row[2]:row[2] + 1]) if row[2] < len(said) else 0

    def run(self):
        self.turn = began = told = time.monotonic()
        while os.getppid() == self.o.parent:
            now = time.monotonic()
            getattr(self, self.o.what)(now, began)
            self.events(0.01)
            if now - told >= 1 and (self.o.what != "sleepers" or self.listener):
                told = now
                print(f"{self.made} made, {self.ended} ended, {self.refused} refused, {len(self.open)} open, {self.read} read", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("callers", "holders", "restarts", "segments", "deaf", "quitters", "mute", "sleepers", "readers", *SENDERS, "thief", "greetings"))
    parser.add_argument("--router", required=True)
    parser.add_argument("--from", dest="source", nargs="+", required=True)
    parser.add_argument("--net", default="tcp")
    parser.add_argument("--per", type=int, default=32)
    parser.add_argument("--far", default="10.0.1.")
    parser.add_argument("--target", default="10.0.1.2@tcp1")
    parser.add_argument("--mss", type=int, default=0)
    parser.add_argument("--pace", type=float, default=0)
    parser.add_argument("--size", type=int, default=70000)
    parser.add_argument("--rate", type=float, default=0)
    options = parser.parse_args()
    options.parent = os.getppid()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Attacker(options).run()


if __name__ == "__main__":
    main()
