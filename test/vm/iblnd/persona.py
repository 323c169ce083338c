# SPDX-License-Identifier: BSD-3-Clause
"""A kernel node with o2iblnd: its NI, its peers and how they connect (docs/protocol/o2iblnd.md §1).

Above it is the LNet node of test/system/lnetpy, with its judge and its ledger of all messages: every LNet message that one
persona sends to another, over whatever net, must arrive once and unaltered.
"""

import asyncio
import ctypes
import time
from collections import Counter

from lnetpy import wire as lnet
from lnetpy.judge import Judge
from lnetpy.node import Node

from . import rdma as R
from . import wire as W
from .conn import CANARY, Conn

SLOT = (1 << 20) + (128 << 10)      # 1 MiB and room for gaps between its fragments
CLEAN = bytes([CANARY]) * SLOT
RACES = 20
GRAVES = []     # connections of nodes that vanished: as they were, until a test's end
O2IB = 5


class IbJudge(Judge):
    """The same, for messages that came without the frames of socklnd, on connections that all are alike."""

    def _conn_choice(self, conn, nob):
        return [] if isinstance(conn, Seen) else super()._conn_choice(conn, nob)

    def _frame_head(self, conn, spec, hdr, raw):
        if isinstance(conn, Seen):
            return lnet.frame(lnet.LNET), ()
        return super()._frame_head(conn, spec, hdr, raw)


def bury():
    for c in GRAVES:
        R.so().ibn_destroy(c.cm)
    GRAVES.clear()


class Seen:
    """A connection as the judge sees it, new for each message: RDMA transfers may be overtaken, so order is not judged."""

    large = False
    closed = None

    def __init__(self, conn):
        self.ni, self.peer, self.active, self.remote, self.id = conn.ni, conn.peer, conn.active, conn.remote, conn.id

    def __str__(self):
        return f"ib conn {self.id}"


class Slot:
    def __init__(self, at):
        self.at = at


class Peer:
    def __init__(self, ni, nid):
        self.ni, self.nid = ni, nid
        self.conns, self.connecting, self.accepting, self.races = [], 0, 0, 0
        self.stamp = 0
        self.depth, self.frags_max = ni.depth, ni.frags_max
        self.waiting = []           # (hdr, payload, done)
        self.tries = 0
        self.rejects = []           # those we got: (CM reason, Reject or None)
        self.turn = 0


class Ni:
    """What a test makes it do that a kernel does only sometimes, or never, is set by the attributes below `faults`."""

    def __init__(self, node, nid, depth=8, frags_max=W.MAX_FRAGS, conns_per_peer=1, timeout=None, slots=20, keepalive=100.0,
                 order="<", concurrent_sends=None, stamp=None):
        self.node, self.nid, self.profile = node, nid, node.profile
        self.depth, self.frags_max, self.cpp = depth, frags_max, conns_per_peer
        self.hiw = max(1, depth // 2)
        self.concurrent_sends = concurrent_sends or depth
        self.timeout = timeout or node.profile.timeout
        self.keepalive, self.order = keepalive, order
        self.stamp = stamp or time.time_ns() // 1000
        self.nslots = slots
        self.peers, self.conns, self.tasks, self.delayed = {}, {}, set(), []
        self.counts = Counter()
        self.rejects_sent, self.naks, self.failed_sinks, self.answering = [], [], [], {}
        self.requests = []          # CONNREQs that came
        self.next_cookie = 1
        self.listener = self.arena = None
        self.calls_held, self.answers_held = [], []
        self.stopped = False
        # ---- faults
        self.rejects = []           # functions (msg) -> Reject, bytes, or None for none of it; each for one request
        self.hold_credits = False   # returns none, sends no NOOP
        self.delay = 0.0            # seconds until it has taken a message
        self.layout = None          # (bytes) -> [(offset in the slot, bytes)] of sink fragments
        self.nak = None             # (hdr) -> status of a PUT_NAK, or None
        self.on_message = None      # (conn, msg, receive) -> True if it was taken
        self.on_wire = None         # (conn, msg, raw) -> raw
        self.force_rdma = False     # as for the memory of a GPU: PUT_REQ whatever the size
        self.rdma_of_any_size = False
        self.failures_expected = False
        self.crossing = 0           # the peer's call meets ours: it is decided when ours has left, and is told once this many
                                    # of ours have been answered
        self.peer_keepalive = 90.0  # seconds of silence before a NOOP that returns nothing
        self.first_port = 1023      # to call from
        self.lost_queue_pair = 0    # number of a queue pair of the life before, which the first call has again
        self.races_lost = 0

    # ------------------------------------------------------------ life

    now = staticmethod(time.monotonic)

    def task(self, coro):
        t = asyncio.get_running_loop().create_task(coro)
        self.tasks.add(t)
        t.add_done_callback(self._task_done)
        return t

    def _task_done(self, t):
        self.tasks.discard(t)
        if not t.cancelled() and t.exception():
            self.node.problem(f"persona failed: {t.exception()!r}")

    async def start(self):
        so = R.so()
        self.channel = so.ibn_open()
        error = ctypes.c_int()
        self.listener = so.ibn_new(self.channel, R.ip_word(self.nid.ip), W.SERVICE, ctypes.byref(error))
        R.need(error.value, f"{self.nid}: port {W.SERVICE}")
        R.need(so.ibn_listen(self.listener), "listening")
        self.pd = so.ibn_pd(self.listener)
        if not self.pd:
            raise OSError(f"{self.nid}: no RDMA device has this address")
        self.arena = R.Memory(self.pd, self.nslots * SLOT)
        self.slots = [Slot(i * SLOT) for i in range(self.nslots)]
        ctypes.memset(self.arena.addr, CANARY, self.arena.size)
        asyncio.get_running_loop().add_reader(so.ibn_fd(self.channel), self.events)
        self.task(self._ticks())

    async def _ticks(self):
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            for c in list(self.conns.values()):
                c.tick(now)
                if c.state in ("resolving", "connecting", "accepting") and now - c.begun > max(5, self.timeout / 4) + 5:
                    self.node.problem(f"{c}: {c.state} for {now - c.begun:.0f} s")
                    c.close(-110, "connect timeout")

    def stop(self, rst=False):
        """Unloads the driver: disconnects all. rst: the node vanishes; what it had stays as it was, and answers nothing."""
        self.stopped = True
        for t in list(self.tasks):
            t.cancel()
        loop = asyncio.get_running_loop()
        for c in list(self.conns.values()):
            if rst:
                c.vanished = True
                if c.memory:
                    loop.remove_reader(R.so().ibn_cq_fd(c.cm))
                c.state = "gone"
                GRAVES.append(c)
            else:
                c.close(0, "local")
                c.destroy()
        if self.listener:
            loop.remove_reader(R.so().ibn_fd(self.channel))
            R.so().ibn_destroy(self.listener)
            self.listener = None
        if not rst:
            self.check_canaries()
        self.peers.clear()

    def problem(self, text):
        self.node.problem(f"{self.nid}: {text}")

    def cookie(self):
        self.next_cookie += 1
        return self.next_cookie

    def is_router(self, nid):
        return nid in self.node.judge.routers

    @staticmethod
    def seen(conn):
        return Seen(conn)

    # ------------------------------------------------------------ memory of transfers

    def alloc(self, size):
        """A slot that has its canaries, or None."""
        assert size <= 1 << 20
        if not self.slots:
            return None
        slot = self.slots.pop(0)
        if not self.clean(slot):
            self.problem("memory was written after its transfer had ended")
        return slot

    def clean(self, slot):
        return self.arena.map[slot.at:slot.at + SLOT] == CLEAN

    def free(self, slot):
        ctypes.memset(self.arena.addr + slot.at, CANARY, SLOT)
        self.slots.append(slot)
        if self.delayed and not self.stopped:
            asyncio.get_running_loop().call_soon(self.delayed.pop(0))

    def check_canaries(self):
        if not all(self.clean(slot) for slot in self.slots):
            self.problem("memory was written after its transfer had ended")

    def describe(self, slot, size):
        """Rows (address, bytes): one, as FastReg peers have it, or as the test lays them out."""
        rows = self.layout(size) if self.layout else [(0, size)]
        assert sum(n for _, n in rows) == size and len(rows) <= W.MAX_FRAGS
        return [(self.arena.addr + slot.at + offset, n) for offset, n in rows]

    def collect(self, slot, frags, conn):
        """What was written into these fragments; nothing was written beside them."""
        base, out, last = self.arena.addr, [], slot.at
        for addr, n in sorted(frags):
            at = addr - base
            if self.arena.map[last:at] != CLEAN[:at - last]:
                conn.problem(f"bytes were written outside of the fragments, before {at - slot.at}")
            last = at + n
        if self.arena.map[last:slot.at + SLOT] != CLEAN[:slot.at + SLOT - last]:
            conn.problem("bytes were written behind the fragments")
        for addr, n in frags:
            out.append(self.arena.map[addr - base:addr - base + n])
        return b"".join(out)

    # ------------------------------------------------------------ sending

    def peer(self, nid):
        if nid not in self.peers:
            self.peers[nid] = Peer(self, nid)
        return self.peers[nid]

    def send_message(self, nid, hdr, payload, zc=None, done=None):
        """One LNet message to the next hop. The REPLY to a GET_REQ goes by the transfer that it asked for."""
        if hdr.mtype == lnet.REPLY and hdr.handle in self.answering:
            conn, m = self.answering.pop(hdr.handle)
            if done:
                done(None, 0)
            conn.get_done(m, hdr, payload)
            return
        peer = self.peer(nid)
        if done:
            done(None, 0)
        if peer.conns:
            self.choose(peer).send_message(hdr, payload, self.sent(hdr, nid))
            return
        peer.waiting.append((hdr, payload))
        if not peer.connecting and not peer.accepting:
            peer.tries = 0
            for _ in range(self.cpp):
                self.connect(peer)

    def sent(self, hdr, nid):
        def done(ok):
            if not ok and not self.stopped:
                self.node.send_failed(hdr, nid)
        return done

    @staticmethod
    def choose(peer):
        peer.turn += 1
        return peer.conns[peer.turn % len(peer.conns)]

    # ------------------------------------------------------------ connection manager: events

    def events(self):
        ev = R.Event()
        while not self.stopped:
            got = R.need(R.so().ibn_event(self.channel, ctypes.byref(ev)), "event")
            if not got:
                return
            if ev.type == R.CONNECT_REQUEST:
                self.called(ev)
                continue
            conn = self.conns.get(ev.id)
            if conn is None:
                if ev.id != self.listener:
                    self.node.env.log(f"{self.nid}: event {R.EVENT_NAMES[ev.type]} of a connection that is gone")
                continue
            self.node.env.log(f"{self.nid}: {conn} {R.EVENT_NAMES[ev.type]} {ev.status}")
            self.event(conn, ev)
            if conn.active and ev.type in (R.REJECTED, R.ESTABLISHED):
                self.crossed()

    def event(self, conn, ev):
        if ev.type == R.ADDR_RESOLVED:
            if R.so().ibn_resolve_route(conn.cm, 5000) < 0:
                self.dial_failed(conn, -113)
        elif ev.type == R.ROUTE_RESOLVED:
            self.call(conn)
        elif ev.type in (R.ADDR_ERROR, R.ROUTE_ERROR, R.UNREACHABLE, R.CONNECT_ERROR):
            if conn.state in ("resolving", "connecting"):
                self.dial_failed(conn, ev.status or -113)
            elif conn.state == "accepting":
                conn.close(-107, R.EVENT_NAMES[ev.type])
        elif ev.type == R.REJECTED:
            if conn.active:
                self.rejected(conn, ev)
            else:
                conn.close(-104, "rejected")
        elif ev.type == R.ESTABLISHED:
            self.established(conn, ev)
        elif ev.type == R.DISCONNECTED:
            conn.disconnected()
        elif ev.type == R.DEVICE_REMOVAL:
            conn.close(-19, "device removed")

    # ------------------------------------------------------------ calls that meet

    def called(self, ev):
        if not self.crossing or any(c.active and c.state == "connecting" for c in self.conns.values()):
            self.passive(ev)
            return
        self.calls_held.append(R.Event.from_buffer_copy(ev))
        self.node.kick()

    def judge_held(self):
        """Those that came before our own call left, which now has."""
        held, self.calls_held = self.calls_held, []
        for ev in held:
            self.passive(ev)

    def answer(self, f):
        """What becomes of a call is decided; the caller hears of it once ours has been answered."""
        if self.crossing:
            self.answers_held.append(f)
        else:
            f()

    def crossed(self):
        self.crossing = max(0, self.crossing - 1)
        if self.crossing:
            return
        held, self.answers_held = self.answers_held, []
        for f in held:
            f()

    # ------------------------------------------------------------ active side

    def connect(self, peer):
        so, error = R.so(), ctypes.c_int()
        for port in range(self.first_port, 0, -1):
            cm = so.ibn_new(self.channel, R.ip_word(self.nid.ip), port, ctypes.byref(error))
            if cm or -error.value not in (98, 99):
                break
        R.need(error.value, "source port")
        conn = Conn(self, cm, True, peer.nid)
        conn.want = (peer.depth, peer.frags_max)
        conn.dst_stamp = peer.stamp
        conn.state = "resolving"
        self.conns[cm] = conn
        self.pending(conn, True)
        R.need(so.ibn_resolve(cm, R.ip_word(peer.nid.ip), W.SERVICE, 5000), "address")

    def call(self, conn):
        number, self.lost_queue_pair = self.lost_queue_pair, 0
        if not number:
            conn.open(*conn.want)
        msg = W.Msg(W.CONNREQ, self.nid.word(), self.stamp, conn.nid.word(), conn.dst_stamp, depth=conn.want[0],
                    frags_max=conn.want[1])
        raw = msg.pack(self.order)
        conn.state = "connecting"
        if self.on_wire:
            raw = self.on_wire(conn, msg, raw)
        status = R.so().ibn_connect(conn.cm, raw, len(raw), number)
        if status < 0:
            self.dial_failed(conn, status)
        else:
            self.judge_held()

    def pending(self, conn, begins):
        """Connections of a peer that are being made are counted."""
        peer = self.peers.get(conn.nid)
        if conn.pending == begins or not peer:
            return
        conn.pending = begins
        if conn.active:
            peer.connecting += 1 if begins else -1
        else:
            peer.accepting += 1 if begins else -1

    def dial_over(self, conn):
        conn.state = "closing"
        self.pending(conn, False)
        asyncio.get_running_loop().call_later(0.05, conn.destroy)

    def dial_failed(self, conn, error):
        self.dial_over(conn)
        peer = self.peer(conn.nid)
        self.node.note(f"no connection to {peer.nid}: {error}")
        self.fail_waiting(peer)

    def fail_waiting(self, peer):
        if peer.connecting or peer.accepting or peer.conns:
            return
        waiting, peer.waiting = peer.waiting, []
        for hdr, _ in waiting:
            self.node.send_failed(hdr, peer.nid)
        self.node.peer_down(peer.nid)

    def rejected(self, conn, ev):
        """§1.8."""
        peer, rej = self.peer(conn.nid), None
        self.dial_over(conn)
        if ev.status == W.CM_CONSUMER:
            try:
                rej = W.unpack_reject(bytes(ev.priv[:24]))
            except W.WireError as e:
                self.problem(f"{conn}: {e}")
        peer.rejects.append((ev.status, rej))
        self.node.note(f"{peer.nid} rejects: {ev.status} {rej}")
        why, again = rej.why if rej else None, False
        if ev.status == W.CM_STALE:
            again = True
        elif why == W.STALE:
            peer.stamp = rej.stamp or peer.stamp
            again = True
        elif why == W.RACE:
            self.races_lost += 1
            again = not peer.accepting and not peer.conns
        elif why == W.QUEUE_SIZE:
            again = rej.depth < peer.depth
            peer.depth = min(peer.depth, rej.depth)
        elif why == W.FRAGS:
            again = rej.frags_max < peer.frags_max
            peer.frags_max = min(peer.frags_max, rej.frags_max)
        peer.tries += 1
        if again and peer.waiting:
            if peer.tries <= 10:
                self.connect(peer)
            elif peer.tries < 60:
                peer.accepting += 1     # holds what waits

                async def later():
                    await asyncio.sleep(1.0)
                    peer.accepting -= 1
                    self.connect(peer)
                self.task(later())
            else:
                self.fail_waiting(peer)
        else:
            self.fail_waiting(peer)

    def established(self, conn, ev):
        peer = self.peer(conn.nid)
        if conn.active:
            try:
                ack = W.unpack(bytes(ev.priv[:ev.priv_len]), exact=False)
            except W.WireError as e:
                self.problem(f"{conn}: CONNACK: {e}")
                conn.close(-71, str(e))
                return
            wrong = [text for bad, text in (
                (ack.mtype != W.CONNACK, f"type {ack.name}"), (ack.depth > conn.depth, f"depth {ack.depth} > {conn.depth}"),
                (ack.frags_max > conn.frags_max, f"fragments {ack.frags_max} > {conn.frags_max}"),
                (ack.msg_size > W.MSG_SIZE, f"message size {ack.msg_size}"), (ack.credits, f"credits {ack.credits}"),
                (ack.dst != self.nid.word(), f"for {ack.dst:#x}"), (ack.dst_stamp != self.stamp, f"for {ack.dst_stamp:#x}"),
                (ack.src != conn.nid.word(), f"from {ack.src:#x}"), (not ack.src_stamp, "no stamp"),
                (any(ev.priv[ack.nob:ev.priv_len]), "padding")) if bad]
            if wrong:
                self.problem(f"{conn}: CONNACK: {', '.join(wrong)}")
                conn.close(-71, wrong[0])
                return
            if peer.conns and peer.stamp and peer.stamp != ack.src_stamp:
                self.close_peer(peer, -116, "the peer has come anew")
            conn.peer_stamp = peer.stamp = ack.src_stamp
        else:
            if conn.state != "accepting":
                return
            ack = None
        self.pending(conn, False)
        self.list(peer, conn)
        conn.up(ack)
        peer.races = peer.tries = 0
        waiting, peer.waiting = peer.waiting, []
        for hdr, payload in waiting:
            if peer.conns:
                self.choose(peer).send_message(hdr, payload, self.sent(hdr, peer.nid))
            else:
                self.node.send_failed(hdr, peer.nid)
        self.node.kick()

    @staticmethod
    def list(peer, conn):
        conn.peer = peer
        peer.conns.append(conn)

    # ------------------------------------------------------------ passive side (§1.7)

    def passive(self, ev):
        raw = bytes(ev.priv[:ev.priv_len])
        rej = self.refusal(ev, raw)
        if rej is None:
            return
        self.node.env.log(f"{self.nid}: rejects {rej}")
        self.rejects_sent.append(rej)
        if not isinstance(rej, bytes):
            rej = rej.pack(self.order)
        cm = ev.id

        def reject():
            R.so().ibn_reject(cm, rej, len(rej))
            R.so().ibn_destroy(cm)
        self.answer(reject)
        self.node.kick()

    def reject(self, why):
        return W.Reject(why, self.stamp, self.depth, min(self.frags_max, W.MAX_FRAGS))

    def refusal(self, ev, raw):
        """In the kernel's order; None: accepted."""
        try:
            m = W.unpack(raw, exact=False)
        except W.WireError as e:
            self.problem(f"call: {e}")
            return self.reject(W.FATAL)
        self.requests.append(m)
        nid = next((n for n in [*self.node.judge.routers, *self.node.known_nids()] if _word(n) == m.src), None)
        ip = ".".join(str(b) for b in ev.from_.to_bytes(4, "big"))
        if nid is None or nid.ip != ip:
            self.problem(f"{ip} calls itself {m.src:#x}")
            return self.reject(W.FATAL)
        self.node.env.log(f"{self.nid}: call of {nid} from port {ev.port}: depth {m.depth}, {m.frags_max} fragments, "
                          f"stamps {m.src_stamp:#x} {m.dst_stamp:#x}")
        if ev.port >= 1024:
            self.problem(f"{nid} calls from port {ev.port}")
        if m.nob != 56 or any(raw[56:]) or m.credits or m.mtype != W.CONNREQ or not m.src_stamp:
            self.problem(f"CONNREQ {raw.hex()}")
        if m.dst != self.nid.word():
            self.problem(f"call for {m.dst:#x}")
            return self.reject(W.FATAL)
        if m.dst_stamp and m.dst_stamp != self.stamp:
            return self.reject(W.STALE)
        if self.rejects:
            forced = self.rejects.pop(0)(m)
            if forced is not None:
                return forced
        if m.depth > self.depth:
            return self.reject(W.QUEUE_SIZE)
        if m.frags_max > self.frags_max:
            return self.reject(W.FRAGS)
        if m.msg_size > W.MSG_SIZE:
            self.problem(f"message size {m.msg_size}")
            return self.reject(W.FATAL)
        peer = self.peer(nid)
        if peer.stamp and peer.stamp != m.src_stamp:
            self.close_peer(peer, -116, "the peer has come anew")
            peer.stamp = m.src_stamp
            return self.reject(W.STALE)
        if peer.connecting and self.lower(m.src) and peer.races < RACES:
            peer.races += 1
            return self.reject(W.RACE)
        return self.accept(ev, peer, m)

    def lower(self, word):
        mine = self.nid.word()
        return word < mine if self.profile.name == "k215" else W.nidhash(word) < W.nidhash(mine)

    def accept(self, ev, peer, m):
        conn = Conn(self, ev.id, False, peer.nid)
        self.conns[ev.id] = conn
        conn.peer_stamp = peer.stamp = m.src_stamp
        conn.state = "accepting"
        self.pending(conn, True)
        conn.open(m.depth, m.frags_max)
        ack = W.Msg(W.CONNACK, self.nid.word(), self.stamp, m.src, m.src_stamp, depth=m.depth, frags_max=m.frags_max)
        if self.ack_depth:
            conn.depth = ack.depth = min(self.ack_depth, m.depth)
        if self.ack_frags:
            conn.frags_max = ack.frags_max = min(self.ack_frags, m.frags_max)
        raw = ack.pack(self.order)
        if self.on_wire:
            raw = self.on_wire(conn, ack, raw)

        def reply():
            if conn.state != "accepting":
                return
            status = R.so().ibn_accept(conn.cm, raw, len(raw))
            if status < 0:
                conn.close(status, "accept")
        self.answer(reply)

    ack_depth = ack_frags = 0   # less than asked for, as where the queue pair cannot have so much

    # ------------------------------------------------------------ ends

    def close_peer(self, peer, error, why):
        for c in list(peer.conns):
            c.close(error, why)

    def conn_ended(self, conn):
        peer = self.peers.get(conn.nid)
        if peer and conn in peer.conns:
            peer.conns.remove(conn)
            self.node.ended(conn)
            if not peer.conns and conn.error:
                self.node.peer_down(peer.nid)
        elif peer and conn.pending:
            self.pending(conn, False)
            self.fail_waiting(peer)

    def forget(self, conn):
        self.conns.pop(conn.cm, None)


def _word(nid):
    return None if nid.large else nid.word()


class IbNode(Node):
    """A node whose NIs of verbs nets are of here, and the others of lnetpy."""

    def __init__(self, env, name, ns, nids, profile, routing=False, check_interval=60.0, transaction_timeout=30.0, **kw):
        super().__init__(env, name, ns, nids, profile, routing=routing, check_interval=check_interval,
                         transaction_timeout=transaction_timeout)
        self.judge = IbJudge(self, env.ledger)
        self.nis = [Ni(self, n.nid, **kw) if n.nid.ntype == O2IB else n for n in self.nis]

    @property
    def ni(self):
        return self.nis[0]

    def ended(self, conn):
        self.closes.append((conn, conn.closed))
        self.env.log(f"{self.name}: {conn} ended: {conn.closed}")
        self.kick()
