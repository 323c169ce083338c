# SPDX-License-Identifier: BSD-3-Clause
"""A node of a crowd that has several gateways of equal priority, and chooses among them as a kernel node does.

docs/protocol/lnet-core.md: §3.8 which routes are alive, §6 health, resends and recovery pings, §7.4 the choice. Replies and
ACKs go through the gateway that the request came from.
"""

import itertools
import time

from . import nid as N
from . import wire
from .crowd_flow import Message
from .crowd_node import LOCAL_ERROR, NETWORK_TIMEOUT, REMOTE_DROPPED, REMOTE_ERROR, Node
from .wire import GET, REPLY

HEALTH, STEP = 1000, 100    # lnet-core §6.1
RETRIES = 2                 # lnet_retry_count
RECOVERY_MOST = 900.0       # lnet_max_recovery_ping_interval
REMOTE = (REMOTE_DROPPED, REMOTE_ERROR, NETWORK_TIMEOUT)    # the gateway's health pays for these (§6.2)


class Gateway(Node):
    """The node as one of its gateways sees it: connections, credits, checks; and what the node thinks of the gateway."""

    def __init__(self, crowd, text, spec, owner):
        super().__init__(crowd, text, spec)
        self.owner, self.flows = owner, owner.flows
        self.incarnation, self.prefix, self.object = owner.incarnation, owner.prefix, owner.object
        self.alive, self.near_up = True, True   # the last check; the status of the gateway's NI on our net
        self.words, self.routing = None, True   # net -> one of its NIs is up; None: not discovered yet
        self.hops = spec.get("hops", 1)         # of the route; beyond one the gateway need not have the net
        self.health, self.seq = HEALTH, 0
        self.recovery_pings, self.recovering, self.crediting = 0, False, False
        self.answers = 0                        # requests of ours that were answered over this gateway

    # ------------------------------------------------------------ whether it is used

    def usable(self, net):
        """§3.8: whether a route to this net through this gateway is alive."""
        return self.alive and self.near_up and self.routing and (self.words is None or self.words.get(net, self.hops > 1))

    def rank(self):
        """§7.4: health, queued bytes, credits, and whose turn it is."""
        return -self.health, sum(m.plen for m in self.waiting), -self.credits, self.seq

    def _notify_down(self):
        """socklnd §6.4: the status of the gateway's NI is DOWN until a message comes from it."""
        if self.dialling or not self.near_up:
            return
        self.near_up = False
        self.crowd.count["gave_up"] += 1

    def _checked(self, ok):
        self.ping_handle = None
        self.alive = ok
        if not ok:
            self.crowd.count["checks_failed"] += 1
            self.near_up, self.words = False, {}

    def _learned(self, body):
        """A ping info of the gateway: REPLY to a check, or a PUSH."""
        try:
            info = wire.unpack_ping(body)
        except wire.WireError as e:
            self.fault(f"ping info of the gateway: {e}")
            return
        self.routing, self.words = info.routing, {}
        for nid, status in info.nis:
            net = nid.word() >> 32
            self.words[net] = self.words.get(net, False) or status == wire.UP
        self.near_up = self.words.get(self.net, False)

    # ------------------------------------------------------------ health

    def _hurt(self):
        self.health = max(0, self.health - STEP)
        if not self.recovering:
            self.recovering = True
            self._recover_in()

    def _recover_in(self):
        self.crowd.at(self.crowd.now + min(2.0 ** self.recovery_pings, RECOVERY_MOST), self._recover)

    def _recover(self):
        if self.health == HEALTH or self.stopped:
            self.recovering, self.recovery_pings = False, 0
            return
        self.recovery_pings += 1
        self.submit(Message(GET, self.gateway_word, self.new_handle(), wire.PING_MATCH, (0, 0, wire.DISCOVERY_SINK, 0)))
        self._recover_in()

    # ------------------------------------------------------------ connections: a kernel dials only for a message

    def lost(self, conn, how):
        inside = conn.left or conn.part
        self.crowd.closed[how.split()[0]] += 1
        self.crowd.closed["inside"] += bool(inside)
        self.close(how)
        if how != "fin" or inside:
            self._notify_down()

    def _dial_failed(self, status=REMOTE_DROPPED):
        conn, self.dialling = self.dialling, None
        if conn:
            conn.close(self.crowd.poll)
        self.crowd.count["dial_failed"] += 1
        self.backoff = min(max(2 * self.backoff, 1.0), 60.0)
        self.retry_at = self.crowd.now + self.backoff
        held = list(self.held)
        self.held.clear()
        if not self.conns():
            self._notify_down()
        for m in held:
            self.failed(m, status)

    def _whole(self):
        if self.up_at is None and all(self.by_type[t] for t in self.types):
            self.up_at = self.crowd.now
            self.lives += 1
            if self.ping_answered is None:      # the check that adding the route makes
                self.ping()

    def _launch(self, m):
        if not self.conns() and not self.dialling and self.crowd.now < self.retry_at:
            self.failed(m, REMOTE_ERROR)        # backing off
        else:
            super()._launch(m)

    def failed(self, m, status=LOCAL_ERROR):
        if m.failed:
            return
        if status in REMOTE:
            self._hurt()
        if m.handle == self.ping_handle:
            self._checked(False)
        if status == REMOTE_DROPPED and m.op and m.retries < RETRIES:   # nothing of it was sent
            m.retries += 1
            self.crowd.count["resent"] += 1
            self._credit()
            self.owner.submit(m)
        else:
            super().failed(m)

    def _credit(self):
        """The next that waits may fail at once, which brings its credit back: not one call inside the other."""
        self.credits += 1
        if self.crediting:
            return
        self.crediting = True
        while self.waiting and self.credits > 0 and not self.stopped:
            self.credits -= 1
            self._launch(self.waiting.popleft())
        self.crediting = False

    # ------------------------------------------------------------ receiving

    def received(self, conn, f, good):
        was = self.near_up and self.alive
        self.near_up = True                     # §4.2 #15
        self.health, self.recovery_pings = HEALTH, 0
        if not self.alive and f[5] >> 32 != self.net:       # §4.2 #14
            self.alive = True
            self.words = {**(self.words or {}), f[5] >> 32: True}
        if f[5] == self.gateway_word and f[9] and (f[8] == REPLY and f[10] == self.ping_handle or f[8] == wire.PUT):
            self._learned(conn.body)
        if f[8] == REPLY and f[10] == self.ping_handle:
            self.alive = True
        super().received(conn, f, good)
        if not was:
            self.crowd.count["revived"] += 1
            self.owner.fill()

    def _answer(self, mtype, src, handle, mlength):
        self.answers += handle in self.crowd.asked
        super()._answer(mtype, src, handle, mlength)

    def tick(self, now):
        if self.ping_handle and now - self.ping_sent > self.ping_timeout:
            self._checked(False)
        super().tick(now)
        if self.up_at is None and self.ping_answered and not self.ping_handle and now - self.ping_sent > self.check_interval:
            self.ping()


class Several:
    """The node itself: identity, flows and the choice."""

    def __init__(self, crowd, text, spec):
        self.crowd, self.nid = crowd, N.parse(text)
        self.word, self.flows, self.stopped = self.nid.word(), [], False
        self.incarnation = time.time_ns()
        self.prefix, self.object = self.incarnation.to_bytes(8, "little"), itertools.count(0x0d, 4)
        self.links = [Gateway(crowd, text, {**spec, "gateway": g}, self) for g in spec["gateway"]]

    def link(self, ip):
        return next((g for g in self.links if g.gateway.ip == ip), None)

    def new_handle(self):
        return self.prefix + next(self.object).to_bytes(8, "little")

    def may_send(self):
        return not self.stopped and any(g.alive and g.near_up for g in self.links)

    def submit(self, m):
        there = [g for g in self.links if g.usable(m.dst >> 32)]
        if not there:
            self.crowd.count["no_route"] += 1
            m.failed = True
            m.op.flow.finished(m.op, "failed")
            return
        best = min(there, key=Gateway.rank)
        best.seq = there[-1].seq + 1
        best.submit(m)

    def fill(self):
        for f in self.flows:
            f.fill()

    def stop(self, rst):
        self.stopped = True
        for g in self.links:
            g.stop(rst)

    def report(self):
        return [{"gateway": str(g.gateway), "used": g.alive and g.near_up, "answers": g.answers} for g in self.links]
