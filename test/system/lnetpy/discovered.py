#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of multi-rail nodes with discovery, behind one host. It is a process of its own, so that the test keeps its time.

    discovered.py --router ADDRESS --first ADDRESS --count N

Each connects by the protocol, answers what a kernel node of 2.15 answers, and pushes its ping info when the process reads a line.
Every tenth of a second it prints a line of JSON. connected: nodes; acked: their pushes that the router has acknowledged; asked: pings
of the router; pushed: PUSHes that each node has had at least; more: nodes that have had one more; again: PUSHes that were sent again
as no ACK came in AGAIN seconds. A kernel node waits for its transaction timeout, and then for something to begin a discovery.
"""

import argparse
import collections
import ipaddress
import json
import os
import select
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lnetpy import nid as N     # noqa: E402
from lnetpy import wire         # noqa: E402

AHEAD = 256     # connections that are being made
AGAIN = 5
FEATURES = wire.F_NI_STATUS | wire.F_RTE_DISABLED | wire.F_MULTI_RAIL | wire.F_DISCOVERY


class Node:
    """One NID, one connection."""

    def __init__(self, nid, router):
        self.nid, self.router = nid, router
        self.sock, self.got, self.greeted = None, b"", False
        self.acked, self.pushed, self.asked, self.due = False, 0, 0, 0

    def connect(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.bind((self.nid.ip, 1023))
        self.sock.setblocking(False)
        self.sock.connect_ex((self.router.ip, 988))

    def greet(self):
        hello = wire.Hello(version=3, src=self.nid, dst=self.router, src_inc=time.time_ns(), ctype=wire.CONTROL)
        self.sock.send(wire.connreq(self.router) + hello.pack())

    def info(self):
        return wire.PingInfo(FEATURES, 1, [(self.nid, wire.UP)]).pack()

    def send(self, mtype, union, payload=b""):
        head = wire.Header(self.router, self.nid, mtype, len(payload), union)
        self.sock.send(wire.frame(wire.LNET) + head.pack(False) + payload)

    def push(self):
        self.due = time.monotonic() + AGAIN
        self.send(wire.PUT, wire.put_union(b"\x01" * 16, wire.PING_MATCH, 0), self.info())

    def hear(self):
        """Takes what has come; True if the router has greeted."""
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit(f"the router has closed the connection of {self.nid}")
        self.got += data
        if not self.greeted:
            if len(self.got) < wire.hello_size(3):
                return False
            self.got, self.greeted = self.got[wire.hello_size(3):], True
            self.messages()
            return True
        self.messages()
        return False

    def messages(self):
        found, self.got = wire.whole_messages(self.got)
        for head, payload in found:
            self.take(head, payload)

    def take(self, head, payload):
        if head.mtype == wire.ACK:
            self.acked = True
        elif head.mtype == wire.GET and head.match_bits == wire.PING_MATCH:
            self.asked += 1
            self.send(wire.REPLY, wire.reply_union(head.handle), self.info()[:head.sink])
        elif head.mtype == wire.PUT and head.match_bits == wire.PING_MATCH:
            wire.unpack_ping(payload)
            self.pushed += 1
            self.send(wire.ACK, wire.ack_union(head.handle, head.match_bits, len(payload)))
        else:
            raise SystemExit(f"the router sent {head}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--router", required=True)
    p.add_argument("--first", required=True)
    p.add_argument("--count", type=int, required=True)
    o = p.parse_args()
    router, first = N.parse(o.router + "@tcp"), ipaddress.ip_address(o.first)
    nodes = [Node(N.parse(f"{first + i}@tcp"), router) for i in range(o.count)]
    poll, by_fd, due = select.epoll(), {}, collections.deque(nodes)
    poll.register(0, select.EPOLLIN)
    calling, told, again = 0, 0.0, 0
    while True:
        while due and calling < AHEAD:
            node = due.popleft()
            node.connect()
            by_fd[node.sock.fileno()] = node
            poll.register(node.sock, select.EPOLLOUT)
            calling += 1
        for fd, what in poll.poll(0.1):
            if fd == 0:
                if not os.read(0, 100):
                    return
                for node in nodes:
                    node.push()
                continue
            node = by_fd[fd]
            if what & (select.EPOLLERR | select.EPOLLHUP):
                raise SystemExit(f"{node.nid} cannot connect, or is cut off")
            if what & select.EPOLLOUT:
                node.greet()
                poll.modify(fd, select.EPOLLIN)
            elif node.hear():
                calling -= 1
        now = time.monotonic()
        if now - told >= 0.1:
            told = now
            for node in nodes:
                if not node.acked and 0 < node.due < now:
                    node.push()
                    again += 1
            least = min(n.pushed for n in nodes)
            print(json.dumps({"connected": sum(n.greeted for n in nodes), "acked": sum(n.acked for n in nodes),
                              "asked": sum(n.asked for n in nodes), "pushed": least, "more": sum(n.pushed > least for n in nodes), "again": again}),
                  flush=True)


if __name__ == "__main__":
    main()
