# SPDX-License-Identifier: BSD-3-Clause
"""A node of a crowd: connections, credits, pings and timers of a kernel node with one neighbour, its router."""

import collections
import errno
import itertools
import socket
import time

from . import crowd_conn as C
from . import nid as N
from . import wire
from .crowd_flow import NO_PAYLOAD, Message
from .wire import ACK, BULK_IN, BULK_OUT, CONTROL, GET, PUT, REPLY

CHECK_INTERVAL = 60.0       # router checker, unless a test says otherwise
PING_TIMEOUT = 50.0
KEEPALIVE, KEEPALIVE_GAP = 30.0, 10.0
REMOTE_DROPPED, REMOTE_ERROR, NETWORK_TIMEOUT, LOCAL_ERROR = range(4)     # how a message failed (lnet-core §6.2)


class Node:
    def __init__(self, crowd, text, spec):
        self.crowd, self.nid, self.gateway = crowd, N.parse(text), N.parse(spec["gateway"])
        self.word, self.gateway_word, self.ip = self.nid.word(), self.gateway.word(), self.nid.ip
        self.net = self.word >> 32
        self.zc_min, self.credits = spec.get("zc_min", 16384), spec.get("credits", 8)
        self.timeout, self.types = spec.get("lnd_timeout", 16.0), spec.get("types", (CONTROL, BULK_IN, BULK_OUT))
        self.pings, self.visit = spec.get("pings", True), spec.get("visit", False)
        self.check_interval, self.ping_timeout = spec.get("check_interval", CHECK_INTERVAL), spec.get("ping_timeout", PING_TIMEOUT)
        # Believes in the gateway only as a kernel node does: not after a lost set of connections or a failed dial, until
        # the gateway sends a message (lnet-core §3.8). Until then only the router check dials.
        self.gives_up, self.down, self.checking = spec.get("gives_up", False), False, False
        self.incarnation = time.time_ns()
        off = 0 if spec.get("routing") else wire.F_RTE_DISABLED     # "routing": says it is a router
        self.info = wire.PingInfo(wire.F_NI_STATUS | off | wire.F_MULTI_RAIL | wire.F_DISCOVERY, 2,
                                  [(self.nid, wire.UP)]).pack()
        self.by_type = {CONTROL: None, BULK_IN: None, BULK_OUT: None}
        self.their_incarnation = None
        self.dialling, self.refusals = None, 0              # the Conn that is being made; NONE answers in a row
        self.redial, self.backoff, self.retry_at, self.dial_began = False, 0.0, 0.0, 0.0
        self.waiting, self.held = collections.deque(), collections.deque()  # for a credit, for a connection
        self.cookie = 2
        self.object = itertools.count(0x0d, 4)
        self.prefix = self.incarnation.to_bytes(8, "little")
        self.paused, self.flows, self.stopped = False, [], False
        self.up_at = self.ping_answered = None              # when the set was whole; when a ping was answered last
        self.ping_sent, self.ping_handle = 0.0, None
        self.alive_at = self.kept_alive = crowd.now
        self.lives = 0                                      # sets of connections that were whole
        self.links = [self]                                 # one for each gateway (crowd_gateways.py)

    def fault(self, text):
        self.crowd.fault(f"{self.nid}: {text}")

    def new_handle(self):
        return self.prefix + next(self.object).to_bytes(8, "little")

    def link(self, ip):
        return self if ip == self.gateway.ip else None

    def conns(self):
        return [c for c in self.by_type.values() if c]

    # ------------------------------------------------------------ dialling (socklnd §2.6, §3.1, §3.2)

    def may_send(self):
        return not self.stopped and not self.down and (self.by_type[CONTROL] or self.by_type[BULK_OUT] or self.dialling is not None)

    def dial(self):
        """Dial the missing types one after the other."""
        self.redial = False
        if self.dialling or self.stopped:
            return
        self.dial_began = self.crowd.now
        self._dial_next()

    def _dial_next(self):
        self.dialling = None
        ctype = next((t for t in self.types if not self.by_type[t]), None)
        if ctype is None:
            self.backoff = 0.0
            self._whole()
            self.crowd.dial_next()
            return
        sock = C.dial(self.ip, self.gateway.ip)
        if sock is None:
            self._dial_failed()
            return
        self.dialling = C.Conn(self, sock, C.DIALLING, ctype)
        self.dialling.watch(self.crowd.poll)

    def _whole(self):
        """The set may be complete now: then the router is asked how it does."""
        if self.up_at is None and all(self.by_type[t] for t in self.types):
            self.up_at = self.crowd.now
            self.lives += 1
            if self.visit:
                self.stop(False)
                self.crowd.left(self)
            elif not self.down or self.checking:
                self.checking = False
                self.ping()

    def _give_up(self):
        """The gateway is dead: the next router check dials it again, unless it speaks before."""
        if not self.down:
            self.down = True
            self.crowd.count["gave_up"] += 1
        self.crowd.at(self.crowd.now + self.check_interval, self._check)

    def _check(self):
        if self.down and not self.stopped:
            self.checking = True
            self.dial()

    def _dial_failed(self, _status=REMOTE_DROPPED):
        """What waits for a connection fails; the next attempt comes after the back-off. The status is what a kernel's LNet
        is given (socklnd §6.3)."""
        conn, self.dialling = self.dialling, None
        if conn:
            conn.close(self.crowd.poll)
        self.crowd.count["dial_failed"] += 1
        self.backoff = min(max(2 * self.backoff, 1.0), 60.0)
        held, self.held = self.held, collections.deque()
        for m in held:
            self.failed(m)
        if self.gives_up:
            self._give_up()
        else:
            self._redial_in(self.backoff)

    def _redial_in(self, seconds):
        self.retry_at = self.crowd.now + seconds
        if not self.redial:
            self.redial = True
            self.crowd.at(self.retry_at, self.dial)

    def dialled(self, conn, events):
        """The socket of the dial is ready."""
        if conn.state == C.DIALLING:
            error = conn.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._dial_failed(NETWORK_TIMEOUT if error == errno.ETIMEDOUT else REMOTE_DROPPED)
                return
            conn.state = C.GREETING
            try:
                conn.sock.send(wire.connreq(self.gateway) + C.hello(self, conn.ctype))
            except OSError:
                self._dial_failed()
                return
            conn.watch(self.crowd.poll)
            return
        raw = self.crowd.some(conn, C.HELLO_SIZE)
        if raw is None:
            return
        if len(raw) < C.HELLO_SIZE:
            self._dial_failed()
            return
        try:
            theirs, incarnation = C.check_hello(self, raw)
        except wire.WireError as e:
            self.fault(f"dialled, but {e}")
            self._dial_failed()
            return
        if theirs is None:      # NONE
            self._refused(conn)
            return
        if theirs != conn.ctype:
            self.fault(f"dialled type {conn.ctype}, answered as for {theirs}")
            self._dial_failed()
            return
        self.refusals = 0
        if self.conns() and incarnation != self.their_incarnation:
            self.close("local")
            conn.close(self.crowd.poll)
        elif self.by_type[conn.ctype]:
            conn.close(self.crowd.poll)
        else:
            self._established(conn, incarnation)
        if self.dialling is conn:
            self._dial_next()

    def _refused(self, conn):
        conn.close(self.crowd.poll)
        self.dialling = None
        self.crowd.count["refused"] += 1
        self.refusals += 1
        if self.refusals >= 3:
            self.refusals = 0
            if all(self.by_type.values()):
                self._whole()
            else:
                self._dial_failed()
            return
        self._redial_in(1.0)

    def _established(self, conn, incarnation):
        C.options(conn.sock)
        conn.state = C.UP
        conn.rx_at = conn.tx_at = self.alive_at = self.crowd.now
        self.their_incarnation = incarnation
        self.by_type[conn.ctype] = conn
        conn.watch(self.crowd.poll)
        held, self.held = self.held, collections.deque()
        for m in held:
            self._launch(m)
        for f in self.flows:
            f.fill()

    # ------------------------------------------------------------ being called (socklnd §2.5)

    def called(self, conn, raw):
        """A HELLO of our router; the answer goes out here."""
        try:
            ctype, incarnation = C.check_hello(self, raw)
        except wire.WireError as e:
            self.fault(f"called, but {e}")
            ctype = None
        if ctype is None:
            conn.close(self.crowd.poll)
            return
        race = self.gateway_word < self.word and self.dialling is not None
        stale = not race and self.conns() and incarnation != self.their_incarnation
        if stale:
            self.close("new incarnation")
            if not self.down:
                self._redial_in(0.02)
        ok = not race and not stale and not self.by_type[ctype]
        try:
            conn.sock.send(C.hello(self, ctype if ok else wire.CTYPE_NONE))
        except OSError:
            ok = False
        if not ok:
            self.crowd.count["refusals"] += 1
            conn.close(self.crowd.poll)
            return
        conn.ctype = ctype
        self._established(conn, incarnation)
        if not self.dialling:
            self._whole()

    # ------------------------------------------------------------ losing connections (socklnd §6.1, §6.2)

    def lost(self, conn, how):
        self.crowd.closed[how.split()[0]] += 1
        if conn.left or conn.part:
            self.crowd.closed["inside"] += 1
        self.close(how)
        if self.gives_up:
            self._give_up()
        else:
            self._redial_in(max(self.backoff, 0.02))

    def close(self, how, rst=False):
        """One goes, all go. What cannot be known to have arrived has failed; nothing is sent twice."""
        conns = self.conns()
        self.by_type = dict.fromkeys(self.by_type)
        self.their_incarnation = self.up_at = None
        gone = {}
        for c in conns:
            gone.update((id(m), m) for m in c.unsent())
            if rst:
                self.crowd.closed["local"] += 1
            c.close(self.crowd.poll, rst)
        for m in gone.values():
            self.failed(m)

    def stop(self, rst):
        self.stopped = True
        if self.dialling:
            self.dialling.close(self.crowd.poll, rst)
            self.dialling = None
        self.close("local", rst)
        for m in itertools.chain(self.waiting, self.held):
            if m.op:
                m.op.flow.finished(m.op, "failed")
        self.waiting.clear()
        self.held.clear()

    def pause(self, on):
        self.paused = on
        for c in self.conns():
            c.rx_at = self.crowd.now
            c.watch(self.crowd.poll)

    # ------------------------------------------------------------ sending

    def submit(self, message):
        message.node = self
        if self.credits > 0 and not self.waiting:
            self.credits -= 1
            self._launch(message)
        else:
            self.waiting.append(message)

    def _launch(self, m):
        """On the connection that a kernel would take (socklnd §3.3)."""
        bulk = C.FRAME_SIZE + m.plen >= wire.MIN_BULK
        conn = self.by_type[BULK_OUT if bulk else CONTROL] or self.by_type[CONTROL if bulk else BULK_OUT]
        if conn is None:
            self.held.append(m)
            if not self.dialling and not self.redial:
                self._redial_in(0.0)
            return
        if m.plen >= self.zc_min:
            m.cookie = self.cookie
            self.cookie += 1
        conn.push(C.FRAME.pack(wire.LNET, 0, m.cookie, 0, m.dst, self.word, wire.LNET_PID, wire.LNET_PID, m.mtype, m.plen,
                               m.handle, m.match, *m.body), m.payload, m)

    def handed_over(self, m):
        """The socket has all of it."""
        m.sent = True
        if m.dst >> 32 != self.net:
            self.crowd.sent[m.mtype] += 1
        if m.op:
            m.op.flow.count["sent"] += 1
        if not m.cookie:
            self._complete(m)

    def acked(self, m):
        self.crowd.zc_slowest = max(self.crowd.zc_slowest, self.crowd.now - m.began)
        if m.op:
            m.op.flow.count["zc_acked"] += 1
        m.cookie = 0
        if m.sent:
            self._complete(m)

    def _complete(self, m):
        if m.op and m.op.flow.kind == "send":
            m.op.flow.finished(m.op, "done")
        self._credit()

    def failed(self, m):
        if m.failed:
            return
        m.failed = True
        self.crowd.count["sends_failed"] += 1
        if m.op:
            m.op.flow.finished(m.op, "failed")
        self._credit()

    def _credit(self):
        self.credits += 1
        while self.waiting and self.credits > 0 and not self.stopped:
            self.credits -= 1
            self._launch(self.waiting.popleft())

    def ping(self):
        """One check of the gateway: GET on portal 0, then a PUSH (lnet-core §3.8)."""
        if not self.pings or self.stopped:
            return
        self.ping_sent, self.ping_handle = self.crowd.now, self.new_handle()
        self.submit(Message(GET, self.gateway_word, self.ping_handle, wire.PING_MATCH, (0, 0, wire.DISCOVERY_SINK, 0)))

    # ------------------------------------------------------------ receiving

    def header(self, conn, f):
        """Judge a frame and its header. Returns where in the pattern the payload lies, -1 not checked, None refused."""
        ftype, csum, zc, zcack, dst, src, dpid, spid, mtype, plen, handle, match, a, b, c, _ = f
        if ftype != wire.LNET or csum or zc or zcack or dst != self.word or dpid != wire.LNET_PID \
                or spid != wire.LNET_PID or mtype > REPLY or plen > wire.MAX_PAYLOAD or plen and mtype in (ACK, GET):
            self.fault(f"frame type {ftype:#x} checksum {csum} cookies {zc}:{zcack}, message type {mtype} length {plen} "
                       f"from {src:#x} to {dst:#x}")
            return None
        if mtype == PUT:
            if c == 0:
                return -1
            if a | b << 32 != C.seal(src, dst, match, plen):
                self.fault(f"PUT of {plen} bytes from {N.from_word(src)}: header altered")
            return C.pattern_at(match >> 32, match & 0xffffffff)
        if mtype == REPLY:
            op = self.crowd.asked.get(handle)
            if op:
                if src != op.flow.dst or plen != op.size:
                    self.fault(f"REPLY of {plen} bytes from {N.from_word(src)}, asked for {op.size}")
                    return -1
                return C.pattern_at(op.flow.id, op.seq)
        return -1

    def received(self, conn, f, good):
        _, _, _, _, _, src, _, _, mtype, plen, handle, match, a, b, c, _ = f
        crowd = self.crowd
        if self.down:
            self.down = self.checking = False
            crowd.count["revived"] += 1
            for f in self.flows:
                f.fill()
        if src >> 32 != self.net:
            crowd.received[mtype] += 1
        if not good:
            crowd.count["altered"] += 1
            self.fault(f"payload of {plen} bytes from {N.from_word(src)} altered")
        if mtype == PUT:
            if c != 0:
                crowd.arrived(self, conn, match, "PUT")
            if handle != wire.NO_HANDLE:
                self.submit(Message(ACK, src, handle, match, (plen, 0, 0, 0)))
        elif mtype == GET:
            if a == 0:
                body = self.info[b:b + c]
            else:
                crowd.arrived(self, conn, match, "GET")
                at = C.pattern_at(match >> 32, match & 0xffffffff)
                body = C.PATTERN_VIEW[at:at + c]
            self.submit(Message(REPLY, src, handle, payload=body))
        else:
            self._answer(mtype, src, handle, a)

    def _answer(self, mtype, src, handle, mlength):
        """An ACK or a REPLY; each request may have one."""
        op = self.crowd.asked.get(handle)
        if op:
            if mtype == ACK and (mlength != op.size or src != op.flow.dst):
                self.fault(f"ACK of {mlength} bytes from {N.from_word(src)}, sent {op.size}")
            op.flow.finished(op, "done")
            return
        if mtype == REPLY and handle == self.ping_handle:
            self.ping_handle, self.ping_answered = None, self.crowd.now
            self.crowd.ping_slowest = max(self.crowd.ping_slowest, self.crowd.now - self.ping_sent)
            self.submit(Message(PUT, self.gateway_word, self.new_handle(), wire.PING_MATCH, (0, 0, 0, 0), self.info))
            return
        if src == self.gateway_word:
            return              # the ACK of our PUSH
        flow = self.crowd.given_up.pop(handle, None)
        if flow:
            flow.count["late"] += 1
        else:
            self.crowd.count["doubled"] += 1
            self.fault(f"{wire.TYPE_NAMES[mtype]} from {N.from_word(src)} that nothing waits for: doubled")

    # ------------------------------------------------------------ timers (socklnd §3.5)

    def tick(self, now):
        for c in self.conns():
            self.alive_at = max(self.alive_at, c.rx_at)
            c.progress(now)
            oldest = next(iter(c.zc.values()), None)
            if oldest and now - oldest.began > self.timeout:
                why = f"ZC request unacknowledged for {self.timeout:.0f} s"
            elif (c.left or c.part) and not self.paused and now - c.rx_at > self.timeout:
                why = f"receive stall of {self.timeout:.0f} s inside a message"
            elif now - c.tx_at > self.timeout:
                why = f"send stall of {self.timeout:.0f} s"
            else:
                continue
            self.crowd.count["stalls"] += 1
            self.fault(why)
            self.lost(c, "stall")
            return
        d = self.dialling
        if d and now - self.dial_began > self.timeout:
            self._dial_failed(NETWORK_TIMEOUT)
        if self.pings and self.up_at is not None and not self.ping_handle and now - self.ping_sent > self.check_interval:
            self.ping()
        if self.ping_handle and now - self.ping_sent > self.ping_timeout:
            self.ping_handle = None
            self.crowd.count["pings_lost"] += 1
        c = self.by_type[BULK_IN]
        if c and not c.out and now > self.alive_at + KEEPALIVE and now > self.kept_alive + KEEPALIVE_GAP:
            self.kept_alive = now
            c.push(wire.KEEPALIVE, NO_PAYLOAD, None)

    def thaw(self, gap, now):
        for c in self.conns():
            c.rx_at = c.tx_at = now
            for m in c.zc.values():
                m.began += gap
        for f in self.flows:
            f.since += gap
            for op in f.ops.values():
                op.start += gap
        self.dial_began += gap
        self.ping_sent += gap
