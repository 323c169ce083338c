#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A crowd: hundreds of kernel-like LNet nodes in one process, to load a router with (crowd.py starts it).

Where a persona (node.py) judges each byte it is sent, a crowd is fast: it checks the header of each message by
its fields, each payload byte against the pattern, the order of ZC-ACKs, and that every message comes once. Nodes
have the connections, peer credits, ZC requests, pings, keepalives, timeouts and back-off of a kernel node. Each has
one neighbour, its router, or several (crowd_gateways.py).

Commands come as lines of JSON on stdin, {"id", "do", ...}; answers go to stdout. It ends with its stdin.
"""

import collections
import gc
import heapq
import itertools
import json
import os
import select
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lnetpy import crowd_conn as C                          # noqa: E402
from lnetpy import nid as N                                 # noqa: E402
from lnetpy import wire                                     # noqa: E402
from lnetpy.crowd_flow import TEST_PORTAL, Flow             # noqa: E402
from lnetpy.crowd_gateways import Several                    # noqa: E402
from lnetpy.crowd_node import Node                          # noqa: E402
from lnetpy.wire import BULK_OUT, PUT                       # noqa: E402

TICK = 0.25
FROZEN = 2.0                # a longer pause between two ticks is our own (SIGSTOP): clocks go on from there
MAX_FAULTS = 40
REACH = 1 << 22             # a message this far ahead of all others of its flow was never sent


class Crowd:
    def __init__(self):
        self.now = time.monotonic()
        self.poll = select.epoll()
        self.conns, self.greeting, self.nodes, self.flows = {}, {}, {}, {}
        self.asked, self.given_up = {}, {}      # handle -> Op, handle -> Flow
        self.refill, self.timers, self.order = collections.deque(), [], itertools.count()
        self.seen, self.last = {}, {}           # flow id -> a byte per message; (flow id, connection type) -> newest
        self.got = collections.Counter()        # flow id -> messages
        self.sent, self.received = [0] * 4, [0] * 4         # by type, between nets: what a router forwards
        self.closed, self.count = collections.Counter(), collections.Counter()
        self.faults, self.nfaults, self.zc_slowest, self.ping_slowest, self.lag = [], 0, 0.0, 0.0, 0.0
        self.listener, self.ticked, self.input = None, self.now, b""
        self.dial_ahead, self.to_dial = 0, collections.deque()

    def fault(self, text):
        self.nfaults += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)

    def at(self, when, fn):
        heapq.heappush(self.timers, (when, next(self.order), fn))

    def arrived(self, node, conn, match, what):
        """Counts a PUT or GET; a second one with the same number is a double."""
        flow, seq = match >> 32, match & 0xffffffff
        seen = self.seen.setdefault(flow, bytearray())
        if seq >= len(seen):
            if seq > len(seen) + REACH:
                node.fault(f"{what} {flow}:{seq} was never sent")
                return
            seen.extend(bytes(max(1024, seq + 1 - len(seen))))
        if seen[seq]:
            self.count["doubled"] += 1
            node.fault(f"{what} {flow}:{seq} doubled")
        else:
            self.got[flow] += 1
        seen[seq] = 1
        key = (flow, conn.ctype)
        if seq < self.last.get(key, 0):
            self.count["overtaken"] += 1
        self.last[key] = seq

    # ------------------------------------------------------------ accepting

    def listen(self):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("0.0.0.0", C.ACCEPT_PORT))
        s.listen(1024)
        self.listener = s
        self.poll.register(s.fileno(), select.EPOLLIN)

    def accept(self):
        while True:
            try:
                sock, (ip, port) = self.listener.accept()
            except OSError:
                return
            sock.setblocking(False)
            if port > C.MAX_PORT:
                self.fault(f"called from {ip} port {port}")
                sock.close()
                continue
            self.greeting[sock.fileno()] = [sock, b"", ip, self.now]
            self.poll.register(sock.fileno(), select.EPOLLIN)

    def greeted(self, fd):
        """Request and HELLO of a caller, as far as they have come."""
        row = self.greeting[fd]
        want = C.REQUEST_SIZE + C.HELLO_SIZE
        try:
            piece = row[0].recv(want - len(row[1]))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        row[1] += piece
        if piece and len(row[1]) < want:
            return
        del self.greeting[fd]
        self.poll.unregister(fd)
        if not piece:
            row[0].close()
            return
        self._who(row[0], row[2], row[1])

    def _who(self, sock, ip, raw):
        try:
            target = wire.connreq_target(raw[:C.REQUEST_SIZE])
        except wire.WireError as e:
            self.fault(f"called by {ip}: {e}")
            sock.close()
            return
        node = self.nodes.get(target.word())
        link = node and node.link(ip)
        if link is None or link.stopped:
            if node is None:
                self.fault(f"called by {ip} for {target}, which is not here")
            sock.close()
            return
        link.called(C.Conn(link, sock, C.GREETED), raw[C.REQUEST_SIZE:])

    def some(self, conn, want):
        """The bytes of a greeting once all are there; fewer when the stream ended; None: not yet."""
        try:
            piece = conn.sock.recv(want - len(conn.greeting))
        except BlockingIOError:
            return None
        except OSError:
            piece = b""
        conn.greeting += piece
        return conn.greeting if not piece or len(conn.greeting) == want else None

    # ------------------------------------------------------------ the loop

    def event(self, fd, events):
        conn = self.conns.get(fd)
        if conn is None:
            if fd == 0:
                return self.commands()
            if self.listener and fd == self.listener.fileno():
                self.accept()
            elif fd in self.greeting:
                self.greeted(fd)
            return True
        if conn.state != C.UP:
            conn.node.dialled(conn, events)
            return True
        if events & select.EPOLLOUT:
            conn.pump()
        if conn.state == C.UP and events & ~select.EPOLLOUT:
            if conn.node.paused:
                how = "rst" if events & (select.EPOLLERR | select.EPOLLHUP) else None
            else:
                how = conn.readable()
            if how and conn.state == C.UP:
                conn.node.lost(conn, how)
        return True

    def tick(self):
        now, before = self.now, self.ticked
        self.ticked = now
        if now - before > FROZEN:
            for n in self.links():
                n.thaw(now - before, now)
        else:
            self.lag = max(self.lag, now - before - TICK)
        for n in self.links():
            n.tick(now)
        for f in self.flows.values():
            if f.ops:
                f.tick(now)
        for fd, row in list(self.greeting.items()):
            if now - row[3] > 5:
                self.fault(f"called by {row[2]}, which then said nothing")
                del self.greeting[fd]
                self.poll.unregister(fd)
                row[0].close()
        room = self.dial_ahead - sum(1 for n in self.links() if n.dialling) if self.to_dial else 0
        while self.to_dial and room > 0:
            self.to_dial.popleft().dial()
            room -= 1
        self.at(now + TICK, self.tick)

    def links(self):
        """What nodes have with their gateways."""
        return [link for n in self.nodes.values() for link in n.links]

    def dial_next(self):
        """A node has its connections: the next one may begin."""
        if self.to_dial:
            self.to_dial.popleft().dial()

    def run(self):
        os.set_blocking(0, False)
        self.poll.register(0, select.EPOLLIN)
        self.at(self.now, self.tick)
        going = True
        while going:
            wait = 0 if self.refill else max(0.0, self.timers[0][0] - time.monotonic())
            events = self.poll.poll(wait)
            self.now = time.monotonic()
            for fd, mask in events:
                if self.event(fd, mask) is False:
                    going = False
            for _ in range(len(self.refill)):
                flow = self.refill.popleft()
                flow.queued = False
                flow.fill()
            self.now = time.monotonic()
            while self.timers[0][0] <= self.now:
                heapq.heappop(self.timers)[2]()

    # ------------------------------------------------------------ commands

    def commands(self):
        try:
            piece = os.read(0, 1 << 20)
        except BlockingIOError:
            return True
        if not piece:
            return False
        self.input += piece
        *lines, self.input = self.input.split(b"\n")
        for line in lines:
            request = json.loads(line)
            what, number = request.pop("do"), request.pop("id")
            result = getattr(self, "do_" + what)(**request)
            faults, self.faults = self.faults, []
            answer = {"id": number, "result": result, "faults": faults, "nfaults": self.nfaults}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        return True

    def do_nodes(self, nids, dial=True, ahead=32, **spec):
        """Make these nodes; they dial their router, or several, at most `ahead` at a time (0: all at once)."""
        if not self.listener:
            self.listen()
        self.dial_ahead = ahead or 1 << 30
        for text in nids:
            node = Several(self, text, spec) if isinstance(spec["gateway"], list) else Node(self, text, spec)
            self.nodes[node.word] = node
            if dial:
                self.to_dial.extend(node.links)
        return len(self.nodes)

    def some_nodes(self, nids):
        return [self.nodes[N.parse(n).word()] for n in nids] if nids is not None else list(self.nodes.values())

    def left(self, node):
        """A visitor has been there and is no more."""
        self.count["visited"] += 1
        del self.nodes[node.word]
        self.dial_next()

    def do_flows(self, flows):
        for spec in flows:
            node = self.nodes[N.parse(spec["src"]).word()]
            flow = self.flows[spec["id"]] = Flow(node, spec)
            node.flows.append(flow)
            flow.fill()
        return len(self.flows)

    def do_stop_flows(self, ids):
        """Nothing new on these; what is under way goes on."""
        for i in ids:
            self.flows[i].active = False

    def do_begin(self, nids, dst, size, part):
        """Each node begins a PUT of `size` bytes and sends `part` of them."""
        word = N.parse(dst).word()
        for node in self.some_nodes(nids):
            conn = node.by_type[BULK_OUT]
            if conn is None:
                raise SystemExit(f"{node.nid} has no BULK_OUT connection")
            head = C.FRAME.pack(wire.LNET, 0, 0, 0, word, node.word, wire.LNET_PID, wire.LNET_PID, PUT, size,
                                wire.NO_HANDLE, 0, 0, 0, TEST_PORTAL, 0)
            conn.push(head, C.PATTERN_VIEW[:part], None)
        return True

    def do_pause(self, nids, on):
        for node in self.some_nodes(nids):
            for link in node.links:
                link.pause(on)

    def do_close(self, nids, rst=False):
        """These nodes go away for good."""
        for node in self.some_nodes(nids):
            node.stop(rst)

    def do_reset(self):
        """Maxima and the order of arrival count from now on."""
        self.last.clear()
        self.count["overtaken"] = 0
        self.zc_slowest = self.ping_slowest = self.lag = 0.0
        for f in self.flows.values():
            f.gap = f.slowest = 0.0
            f.since = max(f.since, self.now) if not f.ops else f.since

    def do_state(self):
        """What there is, in numbers."""
        nodes = self.links()
        return {"nodes": len(nodes), "up": sum(1 for n in nodes if n.up_at is not None),
                "pinged": sum(1 for n in nodes if n.ping_answered is not None),
                "now": self.now, "pinged_at": {str(n.nid): n.ping_answered for n in nodes},
                "lives": sum(n.lives for n in nodes),
                "under_way": sum(len(f.ops) for f in self.flows.values()) + len(self.refill),
                "unsent": sum(c.queued - c.sent for c in self.conns.values()),
                "zc": sum(len(c.zc) for c in self.conns.values()), "held": sum(len(n.held) for n in nodes),
                "waiting": sum(len(n.waiting) for n in nodes), "dialling": sum(1 for n in nodes if n.dialling),
                "sent": self.sent, "received": self.received, "closed": dict(self.closed), **self.count,
                "zc_slowest": round(self.zc_slowest, 3), "ping_slowest": round(self.ping_slowest, 3),
                "lag": round(self.lag, 3)}

    def do_gateways(self):
        """NID -> what a node with several gateways has of each."""
        return {str(n.nid): n.report() for n in self.nodes.values() if isinstance(n, Several)}

    def do_report(self, ids=None):
        """Flows that begin here, and how many messages of which flow arrived here."""
        flows = self.flows if ids is None else ids
        return {"flows": [self.flows[i].report(self.now) for i in flows if i in self.flows], "got": dict(self.got)}


if __name__ == "__main__":
    gc.disable()
    Crowd().run()
