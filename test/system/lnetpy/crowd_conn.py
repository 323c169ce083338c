# SPDX-License-Identifier: BSD-3-Clause
"""Connections of a crowd's nodes: socklnd frames over plain sockets, for many nodes in one process.

docs/protocol/socklnd.md §2 to §4. One epoll loop serves all of them. No byte is touched twice: payload is
compared with the pattern it was cut from where it lies in the receive buffer, and sent from the pattern itself.
"""

import collections
import errno
import fcntl
import hashlib
import itertools
import select
import socket
import struct
import termios

from . import wire
from .wire import BULK_IN, BULK_OUT, CONTROL

PATTERN = hashlib.shake_256(b"millrace").digest(1 << 21)
PATTERN_VIEW = memoryview(PATTERN)
FRAME = struct.Struct("<IIQQQQIIII16sQIIII")    # frame and nid4 header, the union as handle, u64, 4 u32
FRAME_SIZE, NOOP_SIZE = 120 - 24, 24
RECEIVE = 512 * 1024
BODY_MAX = 4096             # bytes that are kept of payload that is not test traffic: ping infos
SEND_AT_ONCE = 32           # buffers in one sendmsg()
MAX_PORT, MIN_PORT, ACCEPT_PORT = 1023, 512, 988
HELLO_SIZE, REQUEST_SIZE = wire.hello_size(3), 16

DIALLING, GREETING, GREETED, UP, DEAD = range(5)    # GREETED: called, its request and HELLO are awaited

_buffer = bytearray(RECEIVE + FRAME_SIZE)
_view = memoryview(_buffer)

assert FRAME.size == FRAME_SIZE == 24 + wire.header_size(False)


def pattern_at(flow, seq):
    """Where in the pattern the payload of a message begins; 1 MiB from there on is inside it."""
    return (flow * 104729 + seq * 7919) & 0xfffff


def seal(src, dst, match, plen):
    """What a PUT says of itself in hdr_data, so that an altered header is found out."""
    return (src * 0x9e3779b97f4a7c15 ^ dst * 0xc2b2ae3d27d4eb4f ^ match * 0x165667b19e3779f9 ^ plen) & (1 << 64) - 1


class Conn:
    """One TCP connection of one node. ctype is our own end's type."""

    __slots__ = ("node", "sock", "fd", "state", "ctype", "greeting", "part", "left", "at", "message", "good", "body",
                 "out", "marks", "queued", "sent", "blocked", "zc", "rx_at", "tx_at", "acked", "mask")

    def __init__(self, node, sock, state, ctype=None):
        self.node, self.sock, self.fd, self.state, self.ctype = node, sock, sock.fileno(), state, ctype
        self.greeting, self.part = b"", b""
        self.left, self.at, self.message, self.good, self.body = 0, -1, None, True, b""
        self.out, self.marks = collections.deque(), collections.deque()
        self.queued = self.sent = 0         # bytes ever queued, ever taken by the socket
        self.blocked = False
        self.zc = {}                        # cookie -> message, in order
        self.rx_at = self.tx_at = node.crowd.now
        self.acked, self.mask = 0, -1

    # ------------------------------------------------------------ events

    def watch(self, poll):
        if self.state == DIALLING:
            mask = select.EPOLLOUT
        else:
            mask = 0 if self.state == UP and self.node.paused else select.EPOLLIN
            if self.blocked:
                mask |= select.EPOLLOUT
        if mask == self.mask:
            return
        conns = self.node.crowd.conns
        if self.fd not in conns:
            poll.register(self.fd, mask)
            conns[self.fd] = self
        else:
            poll.modify(self.fd, mask)
        self.mask = mask

    def readable(self):
        """One read; what is in it. Returns None, or how the stream ended."""
        part = self.part
        have = len(part)
        try:
            n = self.sock.recv_into(_view[have:have + RECEIVE])
        except BlockingIOError:
            return None
        except OSError as e:
            return "rst" if e.errno == errno.ECONNRESET else f"error {errno.errorcode.get(e.errno, e.errno)}"
        if n == 0:
            return "fin"
        self.rx_at = self.node.crowd.now
        if have:
            _buffer[:have] = part
            self.part = b""
        return self._frames(have + n)

    def _frames(self, end):
        pos, node = 0, self.node
        while pos < end:
            if self.left:
                take = min(self.left, end - pos)
                if self.at >= 0:
                    if not PATTERN.startswith(_view[pos:pos + take], self.at):
                        self.good = False
                    self.at += take
                elif len(self.body) < BODY_MAX:
                    self.body += _view[pos:pos + take]
                self.left -= take
                pos += take
                if not self.left:
                    message, self.message = self.message, None
                    node.received(self, message, self.good)
                    if self.state != UP:
                        return None
                continue
            if end - pos < NOOP_SIZE:
                break
            if _buffer[pos] == wire.NOOP:
                if not self._noop(*wire.unpack_frame(_view[pos:pos + NOOP_SIZE])):
                    return "protocol error"
                pos += NOOP_SIZE
                continue
            if end - pos < FRAME_SIZE:
                break
            message = FRAME.unpack_from(_buffer, pos)
            pos += FRAME_SIZE
            self.at = node.header(self, message)
            if self.at is None:
                return "protocol error"
            self.good, self.body = True, b""
            if message[9]:
                self.left, self.message = message[9], message
            else:
                node.received(self, message, True)
                if self.state != UP:
                    return None
        if pos < end:
            self.part = bytes(_view[pos:end])
        return None

    def _noop(self, ftype, csum, a, b):
        """A keepalive, or the ack of the oldest request of this very connection (socklnd §4.5)."""
        if ftype != wire.NOOP or csum or a or not b:
            self.node.fault(f"NOOP type {ftype:#x} checksum {csum} cookies {a}:{b}")
            return False
        if b == wire.KEEPALIVE_COOKIE:
            return True
        if next(iter(self.zc), None) != b:
            self.node.fault(f"ZC-ACK of {b}, expected {next(iter(self.zc), None)} of {len(self.zc)}")
            return False
        self.node.acked(self.zc.pop(b))
        return True

    # ------------------------------------------------------------ sending

    def push(self, head, payload, message):
        """Queue one frame. Small payload goes with its header, so that one buffer is one message."""
        size = len(payload)
        if size and size <= 4096:
            self.out.append(head + payload)
        else:
            self.out.append(head)
            if size:
                self.out.append(payload)
        self.queued += len(head) + size
        self.marks.append((self.queued, message))
        if len(self.marks) == 1:
            self._begin(message)
        if not self.blocked:
            self.pump()

    def _begin(self, message):
        if message is not None:
            message.began = self.node.crowd.now
            if message.cookie:
                self.zc[message.cookie] = message

    def pump(self):
        """Write as much as the socket takes."""
        out = self.out
        while out:
            try:
                n = self.sock.sendmsg(list(itertools.islice(out, SEND_AT_ONCE))) if len(out) > 1 \
                    else self.sock.send(out[0])
            except BlockingIOError:
                break
            except OSError as e:
                self.blocked = False
                self.node.lost(self, "rst" if isinstance(e, ConnectionError) else f"error {e.errno}")
                return
            self.sent += n
            while n:
                first = out[0]
                if n < len(first):
                    out[0] = memoryview(first)[n:]
                    break
                n -= len(first)
                out.popleft()
            self._passed()
            if self.state == DEAD:
                return
        if self.blocked != bool(out):
            self.blocked = bool(out)
            self.watch(self.node.crowd.poll)

    def _passed(self):
        """The socket has all of some messages."""
        while self.marks and self.marks[0][0] <= self.sent:
            _, message = self.marks.popleft()
            if self.marks:
                self._begin(self.marks[0][1])
            if message is not None:
                self.node.handed_over(message)

    def unsent(self):
        """Messages that cannot be known to have arrived, for when the connection is gone."""
        out = {id(m): m for _, m in self.marks if m is not None}
        out.update((id(m), m) for m in self.zc.values())
        return list(out.values())

    def progress(self, now):
        """Notes when the peer's TCP acknowledged something, or has nothing to acknowledge (socklnd §3.5)."""
        unacked = int.from_bytes(fcntl.ioctl(self.sock, termios.TIOCOUTQ, b"\0\0\0\0"), "little")
        if self.sent - unacked > self.acked or not unacked and not self.out:
            self.acked, self.tx_at = self.sent - unacked, now

    # ------------------------------------------------------------ the end

    def close(self, poll, rst=False):
        if self.state == DEAD:
            return
        self.state = DEAD
        if self.node.crowd.conns.pop(self.fd, None):
            poll.unregister(self.fd)
        if rst:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def options(sock):
    """socklnd §5: what a kernel node sets on an established connection."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5)


def dial(ip, to):
    """A socket that is being connected, from 1023 downwards (socklnd §1.2); None: no port left."""
    for port in range(MAX_PORT, MIN_PORT - 1, -1):
        if port == ACCEPT_PORT:
            continue
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((ip, port))
            sock.connect((to, ACCEPT_PORT))
        except BlockingIOError:
            return sock
        except OSError as e:
            sock.close()
            if e.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                return None
            continue
        return sock
    return None


def hello(node, ctype):
    return wire.Hello(3, node.nid, node.gateway, node.incarnation, ctype).pack()


def check_hello(node, raw):
    """(type at our end, incarnation) of a HELLO of our router; WireError when a kernel would not say that."""
    them = wire.unpack_hello(raw)
    if them.version != 3 or them.src != node.gateway or them.dst != node.nid or them.src_pid != wire.LNET_PID \
            or them.dst_pid or them.dst_inc or them.ips:
        raise wire.WireError(f"HELLO {them}")
    if them.ctype != wire.CTYPE_NONE and them.ctype not in (CONTROL, BULK_IN, BULK_OUT):
        raise wire.WireError(f"HELLO of type {them.ctype}")
    return wire.INVERT.get(them.ctype), them.src_inc
