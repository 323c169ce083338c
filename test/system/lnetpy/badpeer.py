# SPDX-License-Identifier: BSD-3-Clause
"""A peer that says what no kernel node says: raw bytes, and what came back."""

import asyncio
import contextlib
import itertools
import socket
import struct
import time

from . import nid as N
from . import wire
from .socklnd import close_socket


class Raw:
    """One TCP connection under the test's full control."""

    def __init__(self, sock):
        self.sock, self.got, self.how, self.opened = sock, b"", None, time.monotonic()

    async def send(self, data):
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def more(self, timeout):
        """One read; True when bytes came, False when the stream ended or nothing came in time."""
        loop = asyncio.get_running_loop()
        try:
            data = await asyncio.wait_for(loop.sock_recv(self.sock, 1 << 20), timeout)
        except asyncio.TimeoutError:
            return False
        except ConnectionError:
            self.how = "RST"
            return False
        except OSError as e:
            self.how = str(e)
            return False
        if not data:
            self.how = "FIN"
            return False
        self.got += data
        return True

    async def read(self, n, timeout=5.0):
        """n bytes, or an AssertionError that tells what came instead."""
        end = time.monotonic() + timeout
        while len(self.got) < n:
            if not await self.more(max(0.01, end - time.monotonic())):
                raise AssertionError(f"wanted {n} bytes, got {self.got.hex()} and {self.how or 'nothing more'}")
        out, self.got = self.got[:n], self.got[n:]
        return out

    async def end(self, timeout=5.0):
        """(bytes, 'FIN' | 'RST' | 'OPEN', seconds since the connect)."""
        end = time.monotonic() + timeout
        while self.how is None and time.monotonic() < end:
            await self.more(max(0.01, end - time.monotonic()))
        return self.got, self.how or "OPEN", time.monotonic() - self.opened

    def close(self, rst=False):
        if rst:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        close_socket(self.sock)

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)


class BadPeer:
    """A host of its own on the client's segment, at one address."""

    def __init__(self, env, name, nid, router_nid):
        self.env, self.nid, self.router = env, N.parse(nid), router_nid
        env.fabric.attach(name, N.net_str(self.nid.net), "eth0", self.nid.ip)
        self.ns = env.fabric.host(name)
        self.family = socket.AF_INET6 if ":" in self.nid.ip else socket.AF_INET
        self.version = 4 if self.nid.large else 3
        self.incarnation = time.time_ns()
        self.ports = itertools.cycle(range(1023, 600, -1))
        self.handles = itertools.count(0x0d, 4)
        self.cookie = self.incarnation.to_bytes(8, "little")
        self.raws = []

    async def dial(self, port=None):
        loop = asyncio.get_running_loop()
        while True:
            s = self.ns.socket(self.family)
            s.setblocking(False)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            s.bind((self.nid.ip, port or next(self.ports)))
            try:
                await asyncio.wait_for(loop.sock_connect(s, (self.router.ip, 988)), 5)
            except OSError as e:
                close_socket(s)
                if e.errno == 99 and not port:
                    continue
                raise
            raw = Raw(s)
            self.raws.append(raw)
            return raw

    def hello(self, ctype=wire.CONTROL, **kw):
        h = {"version": self.version, "src": self.nid, "dst": self.router, "src_inc": self.incarnation,
             "ctype": ctype, **kw}
        return wire.Hello(**h).pack()

    async def say(self, data, port=None, timeout=5.0):
        """Dial, write, and see what becomes of it."""
        raw = await self.dial(port)
        await raw.send(data)
        result = await raw.end(timeout)
        raw.close()
        return result

    async def attach(self, ctype=wire.CONTROL, **kw):
        """A connection through its HELLO exchange; checks that the answer mirrors the type."""
        raw = await self.dial()
        await raw.send(wire.connreq(self.router) + self.hello(ctype, **kw))
        reply = wire.unpack_hello(await raw.read(wire.hello_size(self.version)))
        if reply.ctype != wire.INVERT[ctype]:
            raise AssertionError(f"HELLO answered with type {reply.ctype}")
        return raw

    async def full_set(self, **kw):
        return [await self.attach(t, **kw) for t in (wire.CONTROL, wire.BULK_IN, wire.BULK_OUT)]

    def handle(self):
        return self.cookie + next(self.handles).to_bytes(8, "little")

    def frame(self, header, payload=b"", cookie=0, csum=0):
        return wire.frame(wire.LNET, cookie, 0, csum) + header.pack(self.version >= 4) + payload

    def header(self, mtype, union, plen=0, dst=None, src=None, **kw):
        return wire.Header(dst or self.router, src or self.nid, mtype, plen, union, **kw)

    def ping(self, sink=272, offset=0, **kw):
        return self.header(wire.GET, wire.get_union(self.handle(), wire.PING_MATCH, 0, sink, offset), **kw)

    def put(self, plen=0, portal=7, ack=False, mb=5, **kw):
        handle = self.handle() if ack else wire.NO_HANDLE
        return self.header(wire.PUT, wire.put_union(handle, mb, portal), plen, **kw)

    def close(self):
        for raw in self.raws:
            raw.close()
        self.raws.clear()
