# SPDX-License-Identifier: BSD-3-Clause
"""What a crowd's nodes send: messages, requests, and flows of requests between two NIDs."""

import itertools
import random

from . import crowd_conn as C
from . import nid as N
from . import wire
from .wire import GET, PUT

TEST_PORTAL = 40
NO_PAYLOAD = b""

# name -> (weight, size or range of sizes)
MIXES = {
    "mix": ((30, (0, 900)), (10, (927, 930)), (10, (4094, 4098)), (20, (1000, 9000)), (15, (9000, 70000)),
            (10, (70000, 1 << 20)), (5, 1 << 20)),
    "small": ((60, (0, 900)), (10, (927, 930)), (20, (1000, 4096)), (10, (4094, 4098))),
}


def sizes(spec, rng):
    """An endless supply of payload sizes."""
    if isinstance(spec, int):
        return itertools.repeat(spec)
    rows = MIXES[spec]
    weights = [w for w, _ in rows]

    def draw():
        while True:
            for _, size in rng.choices(rows, weights, k=256):
                yield size if isinstance(size, int) else rng.randint(*size)
    return draw()


class Message:
    """An LNet message on its way out. It holds a peer credit until socket and ZC-ACK are done with it."""

    __slots__ = ("mtype", "dst", "plen", "handle", "match", "body", "payload", "op", "cookie", "began", "sent", "failed",
                 "retries", "node")

    def __init__(self, mtype, dst, handle, match=0, body=(0, 0, 0, 0), payload=NO_PAYLOAD, op=None):
        self.mtype, self.dst, self.handle, self.match, self.body = mtype, dst, handle, match, body
        self.payload, self.plen, self.op = payload, len(payload), op
        self.cookie, self.began, self.sent, self.failed, self.retries, self.node = 0, 0.0, False, False, 0, None


class Op:
    """One request of a flow: a PUT (with or without ACK) or a GET."""

    __slots__ = ("flow", "seq", "size", "start", "handle")

    def __init__(self, flow, seq, size, start, handle):
        self.flow, self.seq, self.size, self.start, self.handle = flow, seq, size, start, handle


class Flow:
    """Requests from one node to one NID, `window` at a time, and if `every` is given not more than one in so many
    seconds. kind: put (wants ACK), get, or send (PUT without ACK)."""

    def __init__(self, node, spec):
        self.node, self.id, self.kind, self.window = node, spec["id"], spec["kind"], spec.get("window", 1)
        self.dst = N.parse(spec["dst"]).word()
        self.limit, self.timeout = spec.get("count", 0), spec.get("timeout", 50.0)
        self.sizes = sizes(spec.get("size", "mix"), random.Random(spec["id"]))
        self.active, self.seq, self.ops = True, 0, {}       # handle -> Op, oldest first
        self.count = dict.fromkeys(("done", "bytes", "failed", "expired", "late", "sent", "zc_acked"), 0)
        self.since, self.gap, self.slowest, self.total = 0.0, 0.0, 0.0, 0.0
        self.queued = False         # in the crowd's list of flows to go on with
        self.every, self.due_at, self.timed = spec.get("every", 0.0), 0.0, False
        if self.every:
            self.due_at = node.crowd.now + self.every * random.Random(self.id).random()

    def fill(self):
        """As many requests as the window has room for, while there is a way to the router."""
        for _ in range(self.window):    # what is done at once comes here again from the list of those to go on with
            if not self.active or len(self.ops) >= self.window or not self.node.may_send():
                return
            if self.limit and self.seq >= self.limit:
                self.active = False
                return
            if self.every and not self._due():
                return
            self._issue()

    def _due(self):
        """Whether the next request may go out; else this comes again when it may. At most one is made up for."""
        now = self.node.crowd.now
        if now >= self.due_at:
            self.due_at = max(self.due_at + self.every, now - self.every)
            return True
        if not self.timed:
            self.timed = True
            self.node.crowd.at(self.due_at, self._timer)
        return False

    def _timer(self):
        self.timed = False
        self.fill()

    def _issue(self):
        node, seq, size = self.node, self.seq, next(self.sizes)
        self.seq += 1
        now = node.crowd.now
        handle = node.new_handle()
        if not self.ops:
            self.since = now
        op = self.ops[handle] = Op(self, seq, size, now, handle)
        match = self.id << 32 | seq
        if self.kind == "get":
            node.crowd.asked[handle] = op
            node.submit(Message(GET, self.dst, handle, match, (TEST_PORTAL, 0, size, 0), op=op))
            return
        at = C.pattern_at(self.id, seq)
        seal = C.seal(node.word, self.dst, match, size)
        if self.kind == "put":
            node.crowd.asked[handle] = op
        node.submit(Message(PUT, self.dst, handle if self.kind == "put" else wire.NO_HANDLE, match,
                            (seal & 0xffffffff, seal >> 32, TEST_PORTAL, 0), C.PATTERN_VIEW[at:at + size], op))

    def finished(self, op, word):
        """done, failed or expired"""
        if self.ops.pop(op.handle, None) is None:
            return
        now = self.node.crowd.now
        self.node.crowd.asked.pop(op.handle, None)
        self.count[word] += 1
        if word != "done" and self.kind != "send":      # the answer may still come, once
            self.node.crowd.given_up[op.handle] = self
        if word == "done":
            took = now - op.start
            self.total += took
            self.count["bytes"] += op.size
            self.slowest = max(self.slowest, took)
            self.gap = max(self.gap, now - self.since)
            self.since = now
        if not self.queued:
            self.queued = True
            self.node.crowd.refill.append(self)

    def tick(self, now):
        while self.ops:
            op = next(iter(self.ops.values()))
            if now - op.start < self.timeout:
                return
            if self.kind == "send":     # nobody waits for an answer
                return
            self.finished(op, "expired")

    def stall(self, now):
        """The longest time without an answer while one was awaited."""
        return max(self.gap, now - self.since if self.ops else 0.0)

    def report(self, now):
        oldest = next(iter(self.ops.values())).start if self.ops else now
        return {"id": self.id, "issued": self.seq, "under_way": len(self.ops), "stall": round(self.stall(now), 3),
                "slowest": round(max(self.slowest, now - oldest), 3), "latency_sum": round(self.total, 3), **self.count}
