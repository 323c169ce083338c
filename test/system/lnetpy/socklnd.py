# SPDX-License-Identifier: BSD-3-Clause
"""The socklnd half of a persona: connections as a kernel node makes, uses and loses them.

docs/protocol/socklnd.md §1-§6 is the script. One Ni is one LNet interface on plain host sockets
inside a network namespace; everything it receives goes to the judge before it is acted on.
"""

import asyncio
import itertools
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass

from . import wire
from .wire import BULK_IN, BULK_OUT, CONTROL, CTYPE_NONE


@dataclass(frozen=True)
class Profile:
    """What differs between kernel releases on the wire (socklnd §9)."""

    name: str
    timeout: float          # LND timeout, s
    ping_sink: int          # what `lnetctl ping` asks for
    give_up: int            # refusals in a row after which extra connections are let go; 0: never
    redial_below_max: bool  # redial a BULK type when its count is below the maximum, not only at 0
    v4: bool                # HELLO v4, IPv6 NIDs
    per_ni_listener: bool


K217 = Profile("k217", 50.0, 3960, 3, False, True, True)
K215 = Profile("k215", 16.0, 3216, 0, True, False, False)

ACCEPT_PORT, ACCEPT_TIMEOUT = 988, 5.0
MAX_PORT, MIN_PORT = 1023, 512
OK, AGAIN, PROTO, STALE, FAIL = "ok", "again", "proto", "stale", "fail"


class PeerClosed(Exception):
    """The stream ended: how is 'fin' or 'rst'; inside tells whether a unit was cut."""

    def __init__(self, how, inside=False):
        super().__init__(how + (" inside a message" if inside else ""))
        self.how, self.inside = how, inside


def close_socket(sock):
    """Take it out of the event loop first: a cancelled read would otherwise meet the number's next owner."""
    if sock.fileno() >= 0:
        loop = asyncio.get_running_loop()
        loop.remove_reader(sock)
        loop.remove_writer(sock)
        sock.close()


class Conn:
    """One TCP connection. ctype is our own end's type."""

    ids = itertools.count(1)

    def __init__(self, ni, sock, remote, active):
        self.id = next(self.ids)
        self.ni, self.sock, self.remote, self.active = ni, sock, remote, active
        self.peer, self.ctype, self.version = None, None, 0
        self.buf, self.received, self.boundary = bytearray(), 0, True
        self.txq, self.queued, self.tx_event = deque(), 0, asyncio.Event()
        self.tasks = []
        self.zc_out = {}            # cookie -> when its transmission began (in order)
        self.closed = None          # None while up; then 'local', 'fin', 'rst', ...
        self.up_since = self.rx_last = self.tx_last = 0.0
        self.tx_busy = False
        self.last_used = 0.0
        self.reading = asyncio.Event()
        self.reading.set()
        self.noops = 0
        sock.setblocking(False)

    @property
    def large(self):
        return self.version >= 4

    @property
    def their_type(self):
        return wire.INVERT.get(self.ctype)

    async def _recv_into(self, view):
        loop = asyncio.get_running_loop()
        await self.reading.wait()
        try:
            n = await loop.sock_recv_into(self.sock, view)
        except ConnectionResetError:
            raise PeerClosed("rst", not self.boundary) from None
        except OSError as e:
            raise PeerClosed(f"error {e.strerror}", not self.boundary) from None
        if n == 0:
            raise PeerClosed("fin", not self.boundary)
        self.received += n
        self.rx_last = time.monotonic()
        if self.peer:
            self.peer.last_alive = self.rx_last
        return n

    async def exact(self, n):
        """Exactly n bytes; never reads past what later calls will ask for by more than a buffer."""
        if n > 65536:
            out = bytearray(n)
            have = min(n, len(self.buf))
            out[:have] = self.buf[:have]
            del self.buf[:have]
            view = memoryview(out)
            while have < n:
                self.boundary = False
                have += await self._recv_into(view[have:])
            return out
        scratch = None
        while len(self.buf) < n:
            if self.buf:
                self.boundary = False
            scratch = scratch or bytearray(65536)
            got = await self._recv_into(scratch)
            self.buf += memoryview(scratch)[:got]
        out = self.buf[:n]
        del self.buf[:n]
        return out

    def send(self, head, payload=b"", cookie=0):
        """Queue one frame. FIFO; a frame once begun is finished before the next (socklnd §4.7)."""
        self.queued += len(head) + len(payload)
        self.last_used = time.monotonic()
        self.txq.append((head, payload, cookie))
        self.tx_event.set()

    async def transmit_loop(self):
        loop = asyncio.get_running_loop()
        while True:
            while not self.txq:
                self.tx_event.clear()
                await self.tx_event.wait()
            head, payload, cookie = self.txq.popleft()
            if cookie:
                self.zc_out[cookie] = time.monotonic()
            self.tx_busy, self.tx_last = True, time.monotonic()
            try:
                if len(payload) <= 65536:
                    await loop.sock_sendall(self.sock, head + bytes(payload))
                else:
                    await loop.sock_sendall(self.sock, head)
                    view = memoryview(payload)
                    for at in range(0, len(view), 262144):
                        await loop.sock_sendall(self.sock, view[at:at + 262144])
                        self.tx_last = time.monotonic()
            except OSError as e:
                self.ni.conn_lost(self, "rst" if isinstance(e, ConnectionError) else str(e))
                return
            self.tx_busy = False
            self.peer.last_alive = time.monotonic()
            self.queued -= len(head) + len(payload)
            self.ni.node.kick()

    def shut(self, how, rst=False):
        """Close the socket and stop the tasks. FIN, or RST when input is unread or `rst`."""
        if self.closed:
            return
        self.closed = how
        me = asyncio.current_task()
        for t in self.tasks:
            if t is not me:
                t.cancel()
        if rst:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        close_socket(self.sock)

    def __str__(self):
        return (f"conn {self.id} {wire.CTYPE_NAMES.get(self.ctype, self.ctype)} "
                f"{'to' if self.active else 'from'} {self.remote[0]}:{self.remote[1]}")


class Peer:
    """(NI, NID): connections and what is remembered of the peer (socklnd §2.5, §2.7)."""

    def __init__(self, ni, nid):
        self.ni, self.nid = ni, nid
        self.conns = []
        self.version = self.incarnation = None
        self.dialled, self.connecting, self.complete = False, False, False
        self.scheduled = self.accepting = self.refusals = 0
        self.backoff, self.retry_at = 0.0, 0.0
        self.max_conns = ni.cpp
        self.waiting = []           # (deadline, fn) messages held until a connection is there
        self.next_cookie = 2
        self.last_alive = self.last_keepalive = time.monotonic()
        self.task = None
        self.nones = 0              # CTYPE_NONE answers received, all told
        self.dials = 0

    def count(self, ctype):
        return sum(1 for c in self.conns if c.ctype == ctype)

    def missing(self):
        """The type to dial next, or None (socklnd §3.1)."""
        if self.complete:
            return None
        if not self.count(CONTROL):
            return CONTROL
        n_in, n_out = self.count(BULK_IN), self.count(BULK_OUT)
        if n_in < self.max_conns and n_in <= n_out:
            return BULK_IN
        if n_out < self.max_conns:
            return BULK_OUT
        if n_in < self.max_conns:
            return BULK_IN
        return None

    def incomplete(self):
        if not self.count(CONTROL):
            return True
        floor = self.max_conns if self.ni.profile.redial_below_max else 1
        if not self.complete:
            floor = self.max_conns
        return self.count(BULK_IN) < floor or self.count(BULK_OUT) < floor

    def choose(self, nob):
        """A connection for an LNet message of nob bytes on the wire (socklnd §3.3)."""
        bulk = nob >= wire.MIN_BULK
        best = BULK_OUT if bulk else CONTROL
        other = CONTROL if bulk else BULK_OUT
        for ctype in (best, other):
            some = [c for c in self.conns if c.ctype == ctype and not c.closed]
            if some:
                return min(some, key=lambda c: (c.queued, int(c.last_used)))
        return None


class Ni:
    """One network interface of a persona."""

    def __init__(self, node, nid, cpp=1, zc_min=16384, keepalive=30.0, keepalive_gap=10.0):
        self.node, self.nid, self.cpp, self.zc_min = node, nid, cpp, zc_min
        self.profile, self.ns = node.profile, node.ns
        self.keepalive, self.keepalive_gap = keepalive, keepalive_gap
        self.incarnation = time.time_ns()
        self.family = socket.AF_INET6 if ":" in nid.ip else socket.AF_INET
        self.peers, self.tasks, self.listener, self.stopped = {}, set(), None, False
        self.open_conns = set()     # not yet on a peer's list
        self.dead_conns = []
        if nid.large and not self.profile.v4:
            raise ValueError(f"{self.profile.name} has no large NIDs")

    # ------------------------------------------------------------ life

    def task(self, coro):
        t = asyncio.get_running_loop().create_task(coro)
        self.tasks.add(t)
        t.add_done_callback(self._task_done)
        return t

    def _task_done(self, t):
        self.tasks.discard(t)
        if not t.cancelled() and t.exception():
            e = t.exception()
            self.node.problem(f"persona failed: {type(e).__name__}: {e}")

    async def start(self):
        s = self.ns.socket(self.family)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((self.nid.ip if self.profile.per_ni_listener else
                ("::" if self.family == socket.AF_INET6 else "0.0.0.0"), ACCEPT_PORT))
        s.listen(127)
        s.setblocking(False)
        self.listener = s
        self.task(self._accept_loop())
        self.task(self._monitor())

    def stop(self, rst=False):
        """Unload: FIN on every connection. rst=True: as if the machine vanished and answers RST."""
        self.stopped = True
        for c in [c for p in self.peers.values() for c in p.conns] + list(self.open_conns):
            c.shut("local", rst)
        for t in list(self.tasks):
            t.cancel()
        if self.listener:
            close_socket(self.listener)
        self.peers.clear()

    def problem(self, text):
        self.node.problem(f"{self.nid}: {text}")

    # ------------------------------------------------------------ acceptor (§1.3, §2.3)

    async def _accept_loop(self):
        loop = asyncio.get_running_loop()
        while True:
            sock, remote = await loop.sock_accept(self.listener)
            if remote[1] > MAX_PORT:
                self.problem(f"connection from port {remote[1]} > {MAX_PORT}")
                sock.close()
                continue
            if not MIN_PORT <= remote[1] or remote[1] == ACCEPT_PORT:
                self.problem(f"connection from port {remote[1]}, not {MIN_PORT}..{MAX_PORT}")
            conn = Conn(self, sock, remote, active=False)
            self.open_conns.add(conn)
            conn.tasks.append(self.task(self._passive(conn)))

    async def _passive(self, conn):
        loop = asyncio.get_running_loop()
        try:
            head = await asyncio.wait_for(conn.exact(8), ACCEPT_TIMEOUT)
            size = wire.connreq_size(head)
            raw = bytes(head + await asyncio.wait_for(conn.exact(size - 8), ACCEPT_TIMEOUT))
            if not self.node.judge.unit(conn, "connreq", raw):
                raise wire.WireError("acceptor request refused")
            hello_raw, hello = await self._read_hello(conn, ACCEPT_TIMEOUT)
        except (wire.WireError, PeerClosed, asyncio.TimeoutError) as e:
            self.problem(f"{conn}: no good HELLO: {e or type(e).__name__}")
            self._drop_open(conn)
            return
        conn.version, conn.ctype = hello.version, wire.INVERT.get(hello.ctype)
        if not self.node.judge.unit(conn, "hello", hello_raw, hello=hello) or conn.ctype is None:
            self._drop_open(conn)
            return
        peer = self._peer(hello.src)
        verdict = self._passive_decide(peer, conn, hello)
        if verdict == OK:
            self._attach(peer, conn, hello)
        reply = wire.Hello(conn.version, self.nid, hello.src, self.incarnation,
                           conn.ctype if verdict == OK else CTYPE_NONE)
        peer.accepting += 1
        try:
            await loop.sock_sendall(conn.sock, self.hello_bytes(reply))
        except OSError as e:
            self.problem(f"{conn}: HELLO reply not sent: {e}")
            verdict = FAIL
        peer.accepting -= 1
        self.open_conns.discard(conn)
        if verdict != OK:
            self.node.note(f"refused {wire.CTYPE_NAMES[hello.ctype]} of {hello.src}: {verdict}")
            conn.shut("refused")
            if conn in peer.conns:
                peer.conns.remove(conn)
            return
        self._establish(conn)

    def _passive_decide(self, peer, conn, hello):
        """§2.5 in its order."""
        if hello.src.order() < self.nid.order() and peer.connecting:
            return "race"
        if peer.conns and (hello.version != peer.version or hello.src_inc != peer.incarnation):
            self.close_peer(peer, "new incarnation")
            return "stale"
        limit = peer.max_conns if peer.dialled else self.cpp
        if peer.count(conn.ctype) >= limit:
            return "duplicate"
        return OK

    async def _read_hello(self, conn, timeout):
        head = await asyncio.wait_for(conn.exact(8), timeout)
        version = wire.hello_version(head)
        if version == 4 and not self.profile.v4 or version in (1, 2):
            raise wire.WireError(f"HELLO version {version}")
        raw = bytes(head + await asyncio.wait_for(conn.exact(wire.hello_size(version) - 8), timeout))
        nips = wire.hello_nips(raw)
        if nips > 16:
            raise wire.WireError(f"{nips} addresses")
        ips = bytes(await asyncio.wait_for(conn.exact(4 * nips), timeout)) if nips else b""
        return raw + ips, wire.unpack_hello(raw, ips)

    @staticmethod
    def hello_bytes(hello):
        return hello.pack()

    def _drop_open(self, conn):
        self.open_conns.discard(conn)
        conn.shut("refused")
        self.node.kick()

    # ------------------------------------------------------------ peers and dialling (§2.6, §3.2)

    def _peer(self, nid):
        if nid not in self.peers:
            self.peers[nid] = Peer(self, nid)
        return self.peers[nid]

    def peer(self, nid):
        return self.peers.get(nid)

    def _attach(self, peer, conn, hello):
        conn.peer = peer
        if not peer.conns:
            peer.version, peer.incarnation = hello.version, hello.src_inc
        peer.conns.append(conn)

    def _establish(self, conn):
        s = conn.sock
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)
        conn.up_since = conn.rx_last = conn.peer.last_alive = time.monotonic()
        conn.boundary = not conn.buf
        conn.tasks.append(self.task(conn.transmit_loop()))
        conn.tasks.append(self.task(self._receive(conn)))
        self._flush(conn.peer)
        self.node.kick()

    def launch(self, nid, fn, nob):
        """Send on the best connection, dialling whatever is missing; fn(conn) sends, fn(None) fails."""
        peer = self._peer(nid)
        if not peer.conns and not peer.accepting:
            peer.dialled = True
        now = time.monotonic()
        if peer.dialled and peer.incomplete() and not peer.connecting and not peer.scheduled \
                and now >= peer.retry_at:
            peer.max_conns = max(peer.max_conns, self.cpp)
            peer.complete = False
            peer.scheduled = 1
            peer.task = self.task(self._connect_loop(peer))
        conn = peer.choose(nob)
        if conn:
            fn(conn)
        elif peer.connecting or peer.scheduled or peer.accepting:
            peer.waiting.append((now + self.profile.timeout, fn, nob))
        else:
            fn(None)

    def _flush(self, peer):
        waiting, peer.waiting = peer.waiting, []
        for item in waiting:
            conn = peer.choose(item[2])
            if conn:
                item[1](conn)
            else:
                peer.waiting.append(item)

    async def _connect_loop(self, peer):
        start = time.monotonic()
        peer.scheduled, peer.connecting = 0, True
        try:
            while (ctype := peer.missing()) is not None:
                if peer.accepting:
                    rc = AGAIN
                else:
                    rc = await self._dial(peer, ctype)
                    peer.dials += 1
                if rc == OK:
                    peer.refusals, peer.backoff = 0, 0.0
                    continue
                if rc != FAIL and not peer.accepting:
                    peer.refusals += 1
                if self.profile.give_up and peer.refusals >= self.profile.give_up:
                    peer.refusals = 0
                    if all(peer.count(t) for t in (CONTROL, BULK_IN, BULK_OUT)):
                        peer.complete = True
                        self.node.note(f"gave up extra connections to {peer.nid}")
                        break
                    rc = FAIL
                if rc == FAIL or time.monotonic() - start > self.profile.timeout:
                    peer.backoff = min(max(2 * peer.backoff, 1.0), 60.0)
                    peer.retry_at = time.monotonic() + peer.backoff
                    self._fail_waiting(peer)
                    self.node.peer_down(peer.nid)
                    return
                if rc == AGAIN:
                    peer.connecting, peer.scheduled = False, 1
                    await asyncio.sleep(1.0)
                    peer.connecting, peer.scheduled = True, 0
            peer.complete = True
        finally:
            peer.connecting, peer.scheduled = False, 0
            self.node.kick()

    def _fail_waiting(self, peer):
        waiting, peer.waiting = peer.waiting, []
        for _, fn, _ in waiting:
            fn(None)

    async def _connect(self, peer):
        """From 1023 downwards, from our NID's own address (§1.2)."""
        loop = asyncio.get_running_loop()
        for port in range(MAX_PORT, MIN_PORT - 1, -1):
            if port == ACCEPT_PORT:
                continue
            s = self.ns.socket(self.family)
            s.setblocking(False)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                s.bind((self.nid.ip, port))
                await asyncio.wait_for(loop.sock_connect(s, (peer.nid.ip, ACCEPT_PORT)), self.profile.timeout)
                return s
            except OSError as e:
                close_socket(s)
                if e.errno not in (98, 99):     # EADDRINUSE, EADDRNOTAVAIL: next port
                    self.node.note(f"dial {peer.nid}: {e}")
                    return None
            except (asyncio.TimeoutError, asyncio.CancelledError) as e:
                close_socket(s)
                if isinstance(e, asyncio.CancelledError):
                    raise
                return None
        return None

    async def _dial(self, peer, ctype):
        sock = await self._connect(peer)
        if sock is None:
            return FAIL
        conn = Conn(self, sock, (peer.nid.ip, ACCEPT_PORT), active=True)
        conn.version = peer.version or (4 if self.family == socket.AF_INET6 else 3)
        conn.ctype, conn.dialled_nid = ctype, peer.nid
        self.open_conns.add(conn)
        hello = wire.Hello(conn.version, self.nid, peer.nid, self.incarnation, ctype)
        try:
            await asyncio.get_running_loop().sock_sendall(sock, wire.connreq(peer.nid) + self.hello_bytes(hello))
            raw, reply = await self._read_hello(conn, self.profile.timeout)
        except (wire.WireError, PeerClosed, OSError, asyncio.TimeoutError) as e:
            self.node.note(f"dial {peer.nid} {wire.CTYPE_NAMES[ctype]}: {e or type(e).__name__}")
            if isinstance(e, (wire.WireError, asyncio.TimeoutError)):
                self.problem(f"{conn}: no good HELLO reply: {e or type(e).__name__}")
            self._drop_open(conn)
            return FAIL
        good = self.node.judge.unit(conn, "hello_reply", raw, hello=reply)
        if self.peers.get(peer.nid) is not peer or not good or reply.src != peer.nid \
                or reply.src_pid != wire.LNET_PID:
            self._drop_open(conn)
            return FAIL
        if reply.ctype == CTYPE_NONE:
            peer.nones += 1
            self.node.note(f"{peer.nid} answered NONE to our {wire.CTYPE_NAMES[ctype]}")
            self._drop_open(conn)
            return AGAIN if reply.version == conn.version else PROTO
        if wire.INVERT.get(reply.ctype) != ctype:
            self._drop_open(conn)
            return FAIL
        if peer.conns and (reply.version != peer.version or reply.src_inc != peer.incarnation):
            self.close_peer(peer, "new incarnation")
            self._drop_open(conn)
            return STALE
        if peer.count(ctype) >= peer.max_conns:
            self._drop_open(conn)
            return OK
        self.open_conns.discard(conn)
        conn.version = reply.version
        self._attach(peer, conn, reply)
        self._establish(conn)
        return OK

    # ------------------------------------------------------------ frames (§4)

    async def _receive(self, conn):
        hsize = wire.header_size(conn.large)
        try:
            while True:
                conn.boundary = not conn.buf
                head = bytes(await conn.exact(24))
                conn.boundary = False
                ftype, csum, a, b = wire.unpack_frame(head)
                if ftype == wire.NOOP:
                    if not self.node.judge.unit(conn, "noop", head):
                        return self._protocol_error(conn, "NOOP")
                    if b and not self._zc_ack(conn, a, b):
                        return self._protocol_error(conn, f"ZC-ACK {a}:{b}")
                    continue
                if ftype != wire.LNET:
                    return self._protocol_error(conn, f"frame type {ftype:#x}")
                head += bytes(await conn.exact(hsize))
                hdr = wire.unpack_header(head[24:], conn.large)
                if hdr.mtype > wire.REPLY or hdr.plen > wire.MAX_PAYLOAD:
                    return self._protocol_error(conn, f"header {hdr}")
                payload = bytes(await conn.exact(hdr.plen)) if hdr.plen <= 65536 else await conn.exact(hdr.plen)
                if not self.node.judge.unit(conn, "lnet", head, payload, hdr=hdr):
                    return self._protocol_error(conn, f"{hdr}")
                if b and not self._zc_ack(conn, 0, b):
                    return self._protocol_error(conn, f"piggybacked ZC-ACK {b}")
                if a:
                    self._send_zc_ack(conn, a)
                self.node.parse(self, conn, hdr, payload)
        except wire.WireError as e:
            self._protocol_error(conn, str(e))
        except PeerClosed as e:
            if e.inside:
                self.problem(f"{conn}: {e}")
            self.conn_lost(conn, e.how)

    def _protocol_error(self, conn, what):
        self.problem(f"{conn}: protocol error: {what}")
        self.close_peer(conn.peer, "EPROTO")

    def _send_zc_ack(self, conn, cookie):
        """Non-blocking NOOP: only on a BULK_IN connection, the one the request came on if it is one.

        While the peer is still dialling its set the ack waits; without any BULK_IN the peer is closed.
        """
        peer, frame = conn.peer, wire.frame(wire.NOOP, 0, cookie)
        use = conn if conn.ctype == BULK_IN else next((c for c in peer.conns if c.ctype == BULK_IN), None)
        if use:
            use.send(frame)
            return

        async def later():
            for _ in range(40):
                await asyncio.sleep(0.05)
                late = next((c for c in peer.conns if c.ctype == BULK_IN), None)
                if late or conn.closed:
                    if late and not conn.closed:
                        late.send(frame)
                    return
            self.problem(f"{conn}: ZC request {cookie} but no BULK_IN connection for the ack")
            self.close_peer(peer, "no conn for ack", rst=True)
        self.task(later())

    def _zc_ack(self, conn, a, b):
        """Every cookie must be outstanding, once, on this connection, and not late (§4.5, P2, P3)."""
        if b == wire.KEEPALIVE_COOKIE:
            return a in (0, 1)
        now = time.monotonic()
        for cookie in wire.acked_cookies(a, b):
            sent = conn.zc_out.pop(cookie, None)
            if sent is None:
                elsewhere = [c for c in conn.peer.conns if cookie in c.zc_out]
                if not elsewhere:
                    self.problem(f"{conn}: ZC-ACK of {cookie}, which is not outstanding")
                    return False
                sent = elsewhere[0].zc_out.pop(cookie)
                spec = self.node.judge.routers.get(conn.peer.nid)
                if elsewhere[0].ctype != CONTROL or spec and spec.kind == "millrace":
                    self.problem(f"{conn}: ZC-ACK of {cookie} came on the wrong connection ({elsewhere[0]})")
            if now - sent > self.profile.timeout:
                self.problem(f"{conn}: ZC-ACK of {cookie} after {now - sent:.1f} s")
            self.node.zc_acked += 1
            self.node.zc_slowest = max(self.node.zc_slowest, now - sent)
        self.node.kick()
        return True

    def send_message(self, nid, hdr, payload, zc=None, done=None):
        """One LNet message to next hop `nid`; zc None: ask when the size says so."""
        def go(conn):
            if conn is None:
                self.node.send_failed(hdr, nid)
                return
            want = len(payload) >= self.zc_min if zc is None else bool(zc)
            cookie = 0
            if want:
                cookie = zc if zc not in (None, True) else conn.peer.next_cookie
                conn.peer.next_cookie = max(conn.peer.next_cookie, cookie + 1)
            conn.send(wire.frame(wire.LNET, cookie) + hdr.pack(conn.large), payload, cookie)
            if done:
                done(conn, cookie)
        self.launch(nid, go, 24 + wire.header_size(nid.large) + len(payload))

    # ------------------------------------------------------------ loss and timers (§3.5, §6)

    def conn_lost(self, conn, how):
        if conn.closed:
            return
        self.node.conn_closed(conn, how)
        if conn.peer:
            self.close_peer(conn.peer, how, first=conn)
        else:
            conn.shut(how)

    def close_peer(self, peer, why, first=None, rst=False):
        """One closed connection takes its siblings down (P1)."""
        conns, peer.conns = peer.conns, []
        for c in conns:
            if c is not first and not c.closed:
                self.node.conn_closed(c, f"sibling: {why}")
            c.shut(why, rst)
            self.dead_conns.append(c)
        peer.version = peer.incarnation = None
        peer.complete = False
        if not peer.dialled:
            self.peers.pop(peer.nid, None)
        self.node.kick()

    async def _monitor(self):
        while True:
            await asyncio.sleep(0.25)
            now = time.monotonic()
            for peer in list(self.peers.values()):
                late = [w for w in peer.waiting if w[0] < now]
                if late:
                    peer.waiting = [w for w in peer.waiting if w[0] >= now]
                    for _, fn, _ in late:
                        fn(None)
                for conn in list(peer.conns):
                    self._check_conn(peer, conn, now)
                self._keepalive(peer, now)

    def _check_conn(self, peer, conn, now):
        limit = self.profile.timeout
        stale = [k for k, t in conn.zc_out.items() if now - t > limit]
        if stale:
            self.problem(f"{conn}: ZC request {stale} unacknowledged for {limit:.0f} s")
        elif not conn.boundary and conn.reading.is_set() and now - conn.rx_last > limit:
            self.problem(f"{conn}: rx stall of {limit:.0f} s inside a message")
        elif conn.tx_busy and now - conn.tx_last > limit:
            self.problem(f"{conn}: tx stall of {limit:.0f} s")
        else:
            return
        self.close_peer(peer, "ETIMEDOUT")

    def _keepalive(self, peer, now):
        if self.keepalive <= 0 or now < peer.last_alive + self.keepalive \
                or now < peer.last_keepalive + self.keepalive_gap:
            return
        conn = next((c for c in peer.conns if c.ctype == BULK_IN and not c.txq), None)
        if conn:
            peer.last_keepalive = now
            conn.send(wire.KEEPALIVE)
            self.node.keepalives_sent += 1
