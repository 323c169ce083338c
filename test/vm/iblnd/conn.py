# SPDX-License-Identifier: BSD-3-Clause
"""One connection of a persona: credits, messages and transfers as a kernel has them (docs/protocol/o2iblnd.md §3 to §6).

Where a kernel would assert or close the connection, the persona reports a problem: the test fails.
"""

import asyncio
import itertools
import time
from collections import deque

from lnetpy import wire as lnet

from . import rdma as R
from . import wire as W

EPROTO, EMSGSIZE, ENODATA = 71, 90, 61
SEND_ID = 1 << 32
CANARY = 0xa5


class Tx:
    """A message of ours, or two: the request and what follows its answer (§5.7)."""

    __slots__ = ("msg", "hdr", "payload", "answer", "waiting", "sending", "queued", "deadline", "slot", "writes", "wrs", "done")

    def __init__(self, msg, hdr=None, payload=b"", answer=None, done=None):
        self.msg, self.hdr, self.payload, self.answer, self.done = msg, hdr, payload, answer, done
        self.waiting, self.sending, self.queued = False, 0, False
        self.deadline, self.slot, self.writes, self.wrs = 0.0, None, [], 1


class Sink:
    """What a PUT_ACK of ours described, until its PUT_DONE."""

    def __init__(self, slot, frags, hdr, src_cookie):
        self.slot, self.frags, self.hdr, self.src_cookie = slot, frags, hdr, src_cookie


class Conn:
    ids = itertools.count(1)
    # What the judge of lnetpy asks of a connection.
    large = False

    def __init__(self, ni, cm, active, nid):
        self.id = next(self.ids)
        self.ni, self.cm, self.active, self.nid, self.peer = ni, cm, active, nid, None
        self.remote = (nid.ip, W.SERVICE)
        self.state, self.closed, self.error = "new", None, 0
        self.depth = self.frags_max = 0
        self.peer_stamp = 0
        self.C = self.R = self.O = self.S = self.N = 0
        self.theirs = 0             # credited messages that the peer may still send
        self.rsrvd, self.txq, self.nocred = deque(), deque(), deque()
        self.active_txs, self.sinks = [], {}
        self.early, self.memory, self.zc_out = [], None, {}
        self.sq_free = 0
        self.free_sends, self.posted_sends = [], {}
        self.last_send = self.last_recv = self.begun = time.monotonic()
        self.counts = {}            # (direction, type) -> number
        self.credits_seen = 0       # the most that one message returned
        self.vanished = self.pending = False

    def __str__(self):
        return f"ib conn {self.id} {'to' if self.active else 'from'} {self.nid}"

    def problem(self, text):
        self.ni.node.problem(f"{self}: {text}")

    def count(self, direction, mtype):
        self.counts[direction, mtype] = self.counts.get((direction, mtype), 0) + 1
        self.ni.counts[direction, mtype] += 1

    # ------------------------------------------------------------ queue pair

    def open(self, depth, frags_max):
        """The queue pair and its receives, which are posted before accept or connect (§1.7)."""
        self.depth, self.frags_max = depth, frags_max
        recvs = 2 * depth + 2
        self.nsends = 2 * depth + 8
        self.sq_free = self.nsends + max(frags_max, 32) * 2
        R.need(R.so().ibn_qp(self.cm, self.ni.pd, recvs, self.sq_free, 1), "queue pair")
        self.memory = R.Memory(self.ni.pd, (recvs + self.nsends) * W.MSG_SIZE)
        self.nrecvs = recvs
        self.free_sends = list(range(self.nsends))
        for i in range(recvs):
            self.post_recv(i)
        asyncio.get_running_loop().add_reader(R.so().ibn_cq_fd(self.cm), self.readable)

    def queue_pair(self):
        """Its number."""
        return R.so().ibn_qpn(self.cm)

    def post_recv(self, i):
        if self.state in ("closing", "gone"):
            return
        R.need(R.so().ibn_recv(self.cm, i, self.memory.addr + i * W.MSG_SIZE, W.MSG_SIZE, self.memory.lkey), "receive")

    def readable(self):
        R.need(R.so().ibn_rearm(self.cm), "notification")
        out = (R.Wc * 32)()
        while self.state != "gone":
            got = R.so().ibn_poll(self.cm, out, 32)
            if got <= 0:
                return
            for wc in out[:got]:
                if self.state != "gone":
                    self.completion(wc.wr_id, wc.status, wc.len)

    def completion(self, wr_id, status, size):
        if wr_id < SEND_ID:
            if status != R.WC_SUCCESS:
                if status != R.WC_FLUSHED and self.state == "up":
                    self.close(-5, f"receive failed with {status}")
                return
            if self.state not in ("up", "closing"):
                self.early.append((wr_id, size))
            elif self.state == "up":
                self.received(wr_id, size)
            return
        slot = wr_id - SEND_ID
        tx, mtype, wrs = self.posted_sends.pop(slot)
        self.free_sends.append(slot)
        self.S -= 1
        self.N -= mtype == W.NOOP
        self.sq_free += wrs
        tx.sending -= 1
        if status != R.WC_SUCCESS:
            if self.state == "up":
                self.close(-5, f"{W.NAMES[mtype]} failed with {status}")
            return
        self.finish(tx)
        self.service()

    def up(self, ack=None):
        """Established. The active side has the CONNACK's values."""
        if ack:
            self.depth, self.frags_max = ack.depth, ack.frags_max
        self.C = self.R = self.theirs = self.depth
        self.state = "up"
        self.last_send = self.last_recv = time.monotonic()
        early, self.early = self.early, []
        for wr_id, size in early:
            if self.state == "up":
                self.received(wr_id, size)
        self.service()

    @property
    def hiw(self):
        p = self.ni.profile
        hiw = self.ni.hiw
        return min(hiw, self.depth - 1) if p.name == "k215" else self.depth * hiw // self.ni.depth

    # ------------------------------------------------------------ sending (§3.3)

    def stamp(self, msg):
        msg.src, msg.src_stamp = self.ni.nid.word(), self.ni.stamp
        msg.dst, msg.dst_stamp = self.nid.word(), self.peer_stamp
        return msg

    def queue(self, tx):
        tx.deadline = time.monotonic() + self.ni.timeout
        tx.queued = True
        if tx.msg.mtype in W.REQUESTS:
            self.rsrvd.append(tx)
        elif tx.msg.mtype in W.CREDITED:
            self.txq.append(tx)
        else:
            self.nocred.append(tx)
        self.service()

    def need_noop(self):
        if self.ni.hold_credits or self.nocred or (self.txq and self.C):
            return False
        idle = self.ni.keepalive and time.monotonic() - self.last_send >= self.ni.keepalive
        return bool(self.O >= self.hiw or idle)

    def service(self):
        if self.state != "up":
            return
        while self.R > 0 and self.rsrvd:
            self.txq.append(self.rsrvd.popleft())
            self.R -= 1
        if self.need_noop():
            tx = Tx(W.Msg(W.NOOP))
            tx.queued = True
            self.nocred.append(tx)
        while self.state == "up":
            q = self.nocred or self.txq
            if not q:
                return
            tx = q[0]
            credit = tx.msg.mtype in W.CREDITED
            if self.S >= self.ni.concurrent_sends or not self.free_sends or credit and self.C == 0:
                return
            if tx.msg.mtype == W.NOOP:
                tx.queued = False
                q.popleft()
                if self.N >= 2 or not (self.need_noop() or self.ni.hold_credits):
                    continue
                q.appendleft(tx)
                tx.queued = True
            if self.sq_free < tx.wrs:
                return
            q.popleft()
            tx.queued = False
            self.post(tx, credit)

    def post(self, tx, credit):
        msg = self.stamp(tx.msg)
        msg.credits = 0 if self.ni.hold_credits else self.O
        slot = self.free_sends.pop()
        raw = msg.pack(self.ni.order)
        if self.ni.on_wire:
            raw = self.ni.on_wire(self, msg, raw)
        at = (self.nrecvs + slot) * W.MSG_SIZE
        self.memory.map[at:at + len(raw)] = raw
        chain = (R.Send * (len(tx.writes) + 1))()
        for i, (remote, key, local, size) in enumerate(tx.writes):
            w = chain[i]
            w.remote, w.rkey, w.write, w.nsges = remote, key, 1, 1
            w.sge[0].addr, w.sge[0].len, w.sge[0].lkey = self.ni.arena.addr + local, size, self.ni.arena.lkey
        s = chain[len(tx.writes)]
        s.wr_id, s.signalled, s.nsges = SEND_ID + slot, 1, 1
        s.sge[0].addr, s.sge[0].len, s.sge[0].lkey = self.memory.addr + at, len(raw), self.memory.lkey
        self.theirs += msg.credits
        self.O -= msg.credits
        self.C -= credit
        self.S += 1
        self.N += msg.mtype == W.NOOP
        self.sq_free -= len(chain)
        tx.sending += 1
        tx.waiting = msg.mtype in W.REQUESTS or bool(tx.answer)
        if tx not in self.active_txs:
            self.active_txs.append(tx)
        self.posted_sends[slot] = (tx, msg.mtype, len(chain))
        self.last_send = time.monotonic()
        self.count("out", msg.mtype)
        status = R.so().ibn_send(self.cm, chain, len(chain))
        if status < 0:
            self.problem(f"{msg.name} of {len(chain)} requests was not posted: {status}")
            self.close(-5, "post")

    def finish(self, tx):
        """§5.7: whoever ends the last of the three ends the message."""
        if tx.queued or tx.sending or tx.waiting:
            return
        if tx in self.active_txs:
            self.active_txs.remove(tx)
        if tx.slot is not None:
            self.ni.free(tx.slot)
            tx.slot = None
        if tx.done:
            done, tx.done = tx.done, None
            done(True)

    # ------------------------------------------------------------ LNet messages (§5.1)

    def send_message(self, hdr, payload, done=None):
        raw = hdr.pack(False)
        if hdr.mtype == lnet.GET and hdr.sink > W.IMMEDIATE_MAX and (hdr.src, hdr.dst) == (self.ni.nid, self.nid):
            return self.send_get_req(hdr, raw, done)
        if hdr.mtype in (lnet.PUT, lnet.REPLY) and (hdr.plen > W.IMMEDIATE_MAX or self.ni.force_rdma and hdr.plen):
            tx = Tx(W.Msg(W.PUT_REQ, lnet=raw, cookie=self.ni.cookie()), hdr, payload, answer=(W.PUT_ACK, W.PUT_NAK), done=done)
        else:
            tx = Tx(W.Msg(W.IMMEDIATE, lnet=raw, payload=bytes(payload)), hdr, done=done)
        return self.queue(tx)

    def send_get_req(self, hdr, raw, done):
        slot = self.ni.alloc(hdr.sink)
        if slot is None:
            self.ni.delayed.append(lambda: self.send_get_req(hdr, raw, done))
            return
        frags = self.ni.describe(slot, hdr.sink)
        tx = Tx(W.Msg(W.GET_REQ, lnet=raw, cookie=self.ni.cookie(), key=self.ni.arena.rkey, frags=frags), hdr,
                answer=(W.GET_DONE,), done=done)
        tx.slot = slot
        self.queue(tx)

    def write(self, tx, frags, key, nob):
        """§4.2: one source fragment, so one request for each of theirs. 0, or -errno with nothing to be written."""
        if sum(n for _, n in frags) < nob or len(tx.payload) < nob:
            return -EPROTO
        slot = self.ni.alloc(nob)
        if slot is None:
            return None
        tx.slot = slot
        self.ni.arena.map[slot.at:slot.at + nob] = bytes(tx.payload[:nob])
        at, left = slot.at, nob
        for addr, size in frags:
            step = min(size, left)
            if not step:
                break
            tx.writes.append((addr, key, at, step))
            at += step
            left -= step
        tx.wrs = len(tx.writes) + 1
        if len(tx.writes) > self.frags_max:
            tx.writes, tx.wrs = [], 1
            return -EMSGSIZE
        return 0

    # ------------------------------------------------------------ receiving (§3.5, §5)

    def received(self, i, size):
        raw = self.memory.map[i * W.MSG_SIZE:i * W.MSG_SIZE + size]
        try:
            m = W.unpack(raw)
        except W.WireError as e:
            return self.protocol_error(str(e))
        mine, theirs = self.ni.nid.word(), self.nid.word()
        if (m.src, m.dst) != (theirs, mine):
            return self.protocol_error(f"{m.name} from {m.src:#x} to {m.dst:#x}")
        if (m.src_stamp, m.dst_stamp) != (self.peer_stamp, self.ni.stamp):
            return self.protocol_error(f"{m.name} with stamps {m.src_stamp:#x} {m.dst_stamp:#x}, not {self.peer_stamp:#x} "
                                       f"{self.ni.stamp:#x}", -116)
        self.count("in", m.mtype)
        self.credits_seen = max(self.credits_seen, m.credits)
        if m.credits:
            if self.C + m.credits > self.depth:
                return self.protocol_error(f"{m.name} returns {m.credits} credits, with {self.C} of {self.depth} here")
            self.C += m.credits
        if m.mtype in W.CREDITED:
            self.theirs -= 1
            if self.theirs < 0:
                self.problem(f"{m.name} without credit: a kernel would panic")
        if m.mtype == W.NOOP and not m.credits and self.ni.now() - self.last_recv < self.ni.peer_keepalive:
            self.problem("NOOP that returns nothing, on a connection that is not idle")
        self.last_recv = self.ni.now()
        self.service()
        if self.ni.on_message and self.ni.on_message(self, m, i):
            return None
        return getattr(self, "on_" + m.name.lower(), self.on_unknown)(m, i)

    def on_unknown(self, m, _):
        self.protocol_error(f"{m.name} on an established connection")

    def protocol_error(self, text, error=-EPROTO):
        self.problem(text)
        self.close(error, text)

    def repost(self, i, credit=False, reserve=False):
        self.post_recv(i)
        self.O += credit
        self.R += reserve
        if self.O > self.depth:
            self.problem(f"{self.O} credits to return, of {self.depth}: a kernel would panic")
        if self.R > self.depth:
            self.problem(f"{self.R} answers were awaited, of {self.depth}")
        self.service()

    def later(self, f, *args):
        """Now, or after the time that a slow receiver takes."""
        if not self.ni.delay:
            f(*args)
            return

        async def run():
            await asyncio.sleep(self.ni.delay)
            if self.state == "up":
                f(*args)
        self.ni.task(run())

    def header(self, m):
        hdr = lnet.unpack_header(m.lnet, False)
        if hdr.mtype > lnet.REPLY or hdr.plen > lnet.MAX_PAYLOAD or hdr.plen and hdr.mtype in (lnet.GET, lnet.ACK):
            raise lnet.WireError(f"header {hdr}")
        return hdr

    def on_noop(self, _, i):
        self.repost(i)

    def on_immediate(self, m, i):
        try:
            hdr = self.header(m)
        except lnet.WireError as e:
            return self.protocol_error(str(e))
        if hdr.plen != len(m.payload):
            return self.protocol_error(f"{hdr} with {len(m.payload)} bytes of payload")

        def take():
            # As the kernel does: what LNet answers leaves before the buffer is posted again, but for the REPLY to a GET.
            if hdr.mtype == lnet.GET:
                self.repost(i, credit=True)
                self.deliver(hdr, m.payload)
            else:
                self.deliver(hdr, m.payload)
                self.repost(i, credit=True)
        return self.later(take)

    def deliver(self, hdr, payload):
        if self.ni.node.judge.unit(self.ni.seen(self), "lnet", lnet.frame(lnet.LNET) + hdr.pack(False), payload):
            self.ni.node.parse(self.ni, self, hdr, payload)

    def on_put_req(self, m, i):
        try:
            hdr = self.header(m)
        except lnet.WireError as e:
            return self.protocol_error(str(e))
        if hdr.mtype not in (lnet.PUT, lnet.REPLY) or not hdr.plen:
            return self.protocol_error(f"PUT_REQ of {hdr}")
        if hdr.plen <= W.IMMEDIATE_MAX and not self.ni.rdma_of_any_size:
            return self.protocol_error(f"PUT_REQ of {hdr}, which fits an IMMEDIATE")
        return self.later(self.sink, m, hdr, i)

    def sink(self, m, hdr, i):
        """Answers a PUT_REQ: NAK, or ACK once there is memory."""
        if self.state != "up":
            return
        nak = self.ni.nak(hdr) if self.ni.nak else None
        if nak is not None:
            self.queue(Tx(W.Msg(W.PUT_NAK, cookie=m.cookie, status=nak)))
            self.repost(i, credit=True)
            return
        slot = self.ni.alloc(hdr.plen)
        if slot is None:
            self.ni.delayed.append(lambda: self.sink(m, hdr, i))
            return
        frags = self.ni.describe(slot, hdr.plen)
        cookie = self.ni.cookie()
        self.sinks[cookie] = Sink(slot, frags, hdr, m.cookie)
        self.queue(Tx(W.Msg(W.PUT_ACK, cookie=m.cookie, dst_cookie=cookie, key=self.ni.arena.rkey, frags=frags)))
        self.repost(i)

    def on_put_done(self, m, i):
        sink = self.sinks.pop(m.cookie, None)
        if sink is None:
            return self.protocol_error(f"PUT_DONE with cookie {m.cookie:#x}, which awaits none")
        payload = self.ni.collect(sink.slot, sink.frags, self)
        self.ni.free(sink.slot)
        if m.status < 0:
            self.ni.node.note(f"{sink.hdr}: the source failed with {m.status}")
            self.ni.failed_sinks.append((sink.hdr, m.status))
            if not self.ni.failures_expected:
                self.problem(f"{sink.hdr}: PUT_DONE {m.status}")
        elif m.status != sink.hdr.plen:
            self.problem(f"{sink.hdr}: PUT_DONE says {m.status}")
        else:
            self.deliver(sink.hdr, payload)
        return self.repost(i, credit=True)

    def awaiting(self, m, *kinds):
        """The request that this answers (§5.3)."""
        for tx in self.active_txs:
            if tx.waiting and tx.msg.cookie == m.cookie and tx.msg.mtype in kinds:
                return tx
        self.protocol_error(f"{m.name} with cookie {m.cookie:#x}, which awaits none")
        return None

    def on_put_nak(self, m, i):
        tx = self.awaiting(m, W.PUT_REQ)
        if tx is None:
            return
        tx.waiting = False
        self.ni.naks.append((tx.hdr, m.status))
        self.ni.node.note(f"{tx.hdr}: PUT_NAK {m.status}")
        if not self.ni.failures_expected:
            self.problem(f"{tx.hdr}: PUT_NAK {m.status}")
        self.finish(tx)
        self.repost(i, reserve=True)

    def on_put_ack(self, m, i):
        tx = self.awaiting(m, W.PUT_REQ)
        if tx is None:
            return
        total = sum(n for _, n in m.frags)
        if total > len(tx.payload) or total != len(tx.payload) and not self.ni.failures_expected:
            self.problem(f"{tx.hdr}: PUT_ACK of {total} bytes")
        self.post_recv(i)
        self.R += 1
        self.put_done(tx, m, min(total, len(tx.payload)) if total <= len(tx.payload) else total)
        self.service()

    def put_done(self, tx, m, nob):
        if self.state != "up":
            return
        status = self.write(tx, m.frags, m.key, nob)
        if status is None:
            self.ni.delayed.append(lambda: self.put_done(tx, m, nob))
            return
        tx.waiting, tx.answer = False, None
        tx.msg = W.Msg(W.PUT_DONE, cookie=m.dst_cookie, status=status or nob)
        self.queue(tx)

    # A GET for this node with a sink that no IMMEDIATE can fill (§5.5): the REPLY is written, and has no header on the wire.

    def on_get_req(self, m, i):
        try:
            hdr = self.header(m)
        except lnet.WireError as e:
            return self.protocol_error(str(e))
        total = sum(n for _, n in m.frags)
        if hdr.mtype != lnet.GET or total != hdr.sink:
            return self.protocol_error(f"GET_REQ of {hdr} with {total} bytes of sink")
        if hdr.dst != self.ni.nid or self.ni.is_router(self.nid):
            return self.protocol_error(f"GET_REQ of {hdr}: routers have no business with these")
        self.ni.answering[hdr.handle] = (self, m)
        self.deliver(hdr, b"")
        if self.ni.answering.pop(hdr.handle, None):     # nobody replied
            self.queue(Tx(W.Msg(W.GET_DONE, cookie=m.cookie, status=-ENODATA)))
        return self.repost(i, credit=True)

    def get_done(self, m, hdr, payload):
        """The REPLY to a GET_REQ."""
        if self.state != "up":
            return
        tx = Tx(W.Msg(W.GET_DONE, cookie=m.cookie), hdr, payload)
        status = self.write(tx, m.frags, m.key, hdr.plen)
        if status is None:
            self.ni.delayed.append(lambda: self.get_done(m, hdr, payload))
            return
        tx.msg.status = status or hdr.plen
        self.queue(tx)

    def on_get_done(self, m, i):
        tx = self.awaiting(m, W.GET_REQ)
        if tx is None:
            return
        tx.waiting = False
        if m.status > tx.hdr.sink:
            self.problem(f"{tx.hdr}: GET_DONE of {m.status}: a kernel would panic")
        elif m.status >= 0:
            payload = self.ni.collect(tx.slot, tx.msg.frags, self)[:m.status]
            hdr = lnet.Header(tx.hdr.src, tx.hdr.dst, lnet.REPLY, m.status, lnet.reply_union(tx.hdr.handle))
            self.finish(tx)
            self.repost(i, reserve=True)
            self.deliver(hdr, payload)
            return
        else:
            self.ni.naks.append((tx.hdr, m.status))
        self.finish(tx)
        self.repost(i, reserve=True)

    # ------------------------------------------------------------ time and the end (§6)

    def tick(self, now):
        if self.state != "up":
            return
        for tx in itertools.chain(self.rsrvd, self.txq, self.nocred, self.active_txs):
            if now > tx.deadline > 0:
                what = "waiting for an answer" if tx.waiting else "sending" if tx.sending else "queued"
                self.problem(f"{tx.msg.name} {tx.hdr or ''} {what} after {self.ni.timeout:.0f} s; C={self.C} R={self.R}")
                self.close(-110, "timeout")
                return
        self.service()

    def close(self, error, why):
        """Ours: DREQ, the queue pair into its error state."""
        if self.state in ("closing", "gone"):
            return
        self.error, self.closed = error, why
        self.state = "closing"
        R.so().ibn_disconnect(self.cm)
        self.ni.conn_ended(self)
        asyncio.get_running_loop().call_later(0.2, self.destroy)

    def disconnected(self):
        """Theirs."""
        if self.state == "up" and not self.closed:
            self.closed = "disconnected"
        if self.state in ("closing", "gone"):
            return
        self.state = "closing"
        R.so().ibn_disconnect(self.cm)
        self.ni.conn_ended(self)
        asyncio.get_running_loop().call_later(0.2, self.destroy)

    def break_qp(self):
        """The device fails it: the peer is told nothing, its next request is retried until it gives up."""
        R.need(R.so().ibn_break(self.cm), "error state")

    def destroy(self):
        if self.state == "gone" or self.vanished:
            return
        self.state = "gone"
        if self.memory:
            asyncio.get_running_loop().remove_reader(R.so().ibn_cq_fd(self.cm))
        R.so().ibn_destroy(self.cm)
        self.ni.forget(self)
        # The queue pair is gone: nothing writes there any more.
        for sink in self.sinks.values():
            self.ni.free(sink.slot)
        self.sinks.clear()
        for tx in [*self.active_txs, *self.rsrvd, *self.txq, *self.nocred]:
            if tx.slot is not None:
                self.ni.free(tx.slot)
                tx.slot = None
            if tx.done:
                tx.done(False)
                tx.done = None
        self.active_txs.clear()
        if self.memory:
            self.memory.close()
        self.ni.node.kick()
