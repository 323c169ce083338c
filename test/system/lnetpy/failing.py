#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A thousand nodes behind one host that fail at once, and come back at once.

    failing.py --router NID --first NID --count N

Each node connects by the protocol and pushes its ping info, so that the router has heard from it. A line on stdin changes what all nodes
do: `fail`: they reset their connections, and connections to them are refused. `mute`: they take connections and messages, and answer
nothing. `answer`: they answer pings. `push`: they push again.

Every tenth of a second it prints a line of JSON. `connected` is nodes with a connection. `acked` is PUSHes that the router has
acknowledged. `puts` and `pings` are messages that came, `pinged` nodes that a ping came to. `second` and `five` are the most pings that
came in one second and in five. `each` is the most that came to one node. `mute` sets all but the first two to zero.
"""

import argparse
import collections
import ipaddress
import json
import os
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lnetpy import nid as N     # noqa: E402
from lnetpy import wire         # noqa: E402

AHEAD = 256     # connections that are being made
PUSHES = 64     # that the router has not acknowledged
FEATURES = wire.F_NI_STATUS | wire.F_RTE_DISABLED | wire.F_MULTI_RAIL | wire.F_DISCOVERY
REQUEST, HELLO = 16, wire.hello_size(3)
RESET = struct.pack("ii", 1, 0)


class Pings:
    """Counts pings that come, in all, by node and by time."""

    def __init__(self):
        self.total, self.each, self.recent = 0, collections.Counter(), collections.deque()
        self.second = self.five = 0

    def came(self, node, now):
        self.total += 1
        self.each[node] += 1
        self.recent.append(now)
        while self.recent[0] <= now - 5:
            self.recent.popleft()
        self.five = max(self.five, len(self.recent))
        last = 0
        for at in reversed(self.recent):
            if at <= now - 1:
                break
            last += 1
        self.second = max(self.second, last)


class Conn:
    """A connection of a node. `want`: bytes of a greeting that are to come."""

    def __init__(self, nodes, node, sock, want):
        self.nodes, self.node, self.sock, self.want, self.got = nodes, node, sock, want, b""
        self.pushing = False
        sock.setblocking(False)

    def send(self, mtype, union, payload=b""):
        head = wire.Header(self.nodes.router, self.node, mtype, len(payload), union)
        self.sock.send(wire.frame(wire.LNET) + head.pack(False) + payload)

    def hello(self, ctype):
        return wire.Hello(version=3, src=self.node, dst=self.nodes.router, src_inc=self.nodes.born, ctype=ctype).pack()

    def push(self):
        self.pushing = True
        info = wire.PingInfo(FEATURES, 1, [(self.node, wire.UP)]).pack()
        self.send(wire.PUT, wire.put_union(b"\x01" * 16, wire.PING_MATCH, 0), info)

    def connected(self):
        self.sock.send(wire.connreq(self.nodes.router) + self.hello(wire.CONTROL))

    def read(self):
        """False when the router has closed it."""
        try:
            data = self.sock.recv(65536)
        except BlockingIOError:     # the number was another connection's when poll() returned
            return True
        except ConnectionError:
            data = b""
        if not data:
            return False
        self.got += data
        if self.want:
            if len(self.got) < self.want:
                return True
            if self.want > HELLO:       # the router connected: its request and HELLO
                asked = wire.unpack_hello(self.got[REQUEST:self.want])
                self.sock.send(self.hello(wire.INVERT[asked.ctype]))
            self.got, self.want = self.got[self.want:], 0
            self.nodes.greeted(self)
        found, self.got = wire.whole_messages(self.got)
        for head, _ in found:
            self.take(head)
        return True

    def take(self, head):
        nodes = self.nodes
        if head.mtype == wire.ACK:
            nodes.acked += 1
            self.pushing = False
            nodes.pushes()
        elif head.mtype == wire.GET and head.match_bits == wire.PING_MATCH:
            nodes.pings.came(self.node, time.monotonic())
            if nodes.answering:
                info = wire.PingInfo(FEATURES, 1, [(self.node, wire.UP)]).pack()
                self.send(wire.REPLY, wire.reply_union(head.handle), info[:head.sink])
        elif head.mtype == wire.PUT and head.match_bits == wire.PING_MATCH:
            if nodes.answering:
                self.send(wire.ACK, wire.ack_union(head.handle, head.match_bits, head.plen))
        elif head.mtype == wire.PUT:
            nodes.puts += 1
        else:
            raise SystemExit(f"the router sent {head}")


class Nodes:
    def __init__(self, router, nids):
        self.router, self.born, self.poll = router, time.time_ns(), select.epoll()
        self.by_ip = {n.ip: n for n in nids}
        self.conns, self.up, self.connecting = {}, {}, {}
        self.due = collections.deque(nids)      # that are to connect
        self.listener, self.answering = None, True
        self.acked = self.puts = 0
        self.to_push = []
        self.pings = Pings()
        self.poll.register(0, select.EPOLLIN)

    def add(self, conn, what):
        self.conns[conn.sock.fileno()] = conn
        self.poll.register(conn.sock, what)

    def connect(self):
        while self.due and len(self.connecting) < AHEAD:
            node = self.due.popleft()
            conn = Conn(self, node, socket.socket(socket.AF_INET, socket.SOCK_STREAM), HELLO)
            conn.sock.bind((node.ip, 1023))
            conn.sock.connect_ex((self.router.ip, 988))
            self.connecting[conn.sock.fileno()] = conn
            self.add(conn, select.EPOLLOUT)

    def greeted(self, conn):
        self.connecting.pop(conn.sock.fileno(), None)
        self.up.setdefault(conn.node, conn)
        if self.to_push:
            self.pushes()

    def lost(self, conn):
        del self.conns[conn.sock.fileno()]
        self.connecting.pop(conn.sock.fileno(), None)
        if self.up.get(conn.node) is conn:
            del self.up[conn.node]
            if conn.pushing:
                self.to_push.append(conn.node)
        conn.sock.close()

    def accept(self):
        try:
            sock, _ = self.listener.accept()
        except BlockingIOError:
            return
        self.add(Conn(self, self.by_ip[sock.getsockname()[0]], sock, REQUEST + HELLO), select.EPOLLIN)

    def event(self, fd, what):
        if self.listener and fd == self.listener.fileno():
            self.accept()
            return
        conn = self.conns.get(fd)
        if not conn:
            return
        if what & select.EPOLLOUT:
            conn.connected()
            self.poll.modify(fd, select.EPOLLIN)
        elif not conn.read():
            self.lost(conn)

    def pushes(self):
        """Some push. A node without a connection pushes when it has one."""
        room = PUSHES - sum(conn.pushing for conn in self.up.values())
        ready = [node for node in self.to_push if node in self.up][:max(0, room)]
        for node in ready:
            self.to_push.remove(node)
            self.up[node].push()

    def command(self, word):
        if word == "push":
            self.to_push = list(self.up)
            self.pushes()
        elif word == "fail":
            for conn in list(self.conns.values()):
                conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self.lost(conn)
            self.to_push = []
        elif word == "mute":
            self.answering, self.puts, self.pings = False, 0, Pings()
            self.listener = socket.create_server(("", 988), backlog=4096)
            self.listener.setblocking(False)
            self.poll.register(self.listener, select.EPOLLIN)
        elif word == "answer":
            self.answering = True
        else:
            raise SystemExit(f"what is {word}?")

    def row(self):
        p = self.pings
        return {"connected": len(self.up), "acked": self.acked, "puts": self.puts, "pings": p.total, "pinged": len(p.each),
                "second": p.second, "five": p.five, "each": max(p.each.values(), default=0)}

    def run(self):
        told = 0.0
        while True:
            self.connect()
            for fd, what in self.poll.poll(0.05):
                if fd == 0:
                    words = os.read(0, 1000).split()
                    if not words:
                        return
                    for word in words:
                        self.command(word.decode())
                else:
                    self.event(fd, what)
            now = time.monotonic()
            if now - told >= 0.1:
                told = now
                print(json.dumps(self.row()), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--router", required=True)
    p.add_argument("--first", required=True)
    p.add_argument("--count", type=int, required=True)
    o = p.parse_args()
    first = N.parse(o.first)
    start, net = ipaddress.ip_address(first.ip), N.net_str(first.net)
    Nodes(N.parse(o.router), [N.parse(f"{start + i}@{net}") for i in range(o.count)]).run()


if __name__ == "__main__":
    main()
