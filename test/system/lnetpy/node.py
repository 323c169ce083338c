# SPDX-License-Identifier: BSD-3-Clause
"""The LNet half of a persona: ping and push targets, discovery, router checker, test traffic.

docs/protocol/lnet-core.md §3 and §4 as a kernel end node follows them; with routing=True a plain
store-and-forward kernel router, which the tests use to try themselves without the program under test.
"""

import asyncio
import hashlib
import itertools
import time
from collections import Counter
from dataclasses import dataclass

from . import wire
from .judge import Judge
from .socklnd import K217, Ni

TEST_PORTAL = 40
_PATTERN = hashlib.shake_256(b"millrace").digest(1 << 21)


def pattern(seed, size):
    """`size` bytes that depend on `seed`; a view into one table, so 10,000 messages cost no memory."""
    start = (seed * 7919) % ((1 << 21) - size) if size < 1 << 21 else 0
    return memoryview(_PATTERN)[start:start + size]


def checksum(data):
    return hashlib.blake2b(data, digest_size=8).digest()


@dataclass
class Route:
    """One `route add`: what the router checker knows about it (lnet-core §3.8)."""

    net: tuple
    gateway: object
    hop: int = 1
    priority: int = 0


@dataclass
class Gateway:
    nid: object
    alive: bool = True
    discovered: bool = False
    info: object = None
    polls: int = 0
    failures: int = 0
    pushes_seen: int = 0


class Node:
    def __init__(self, env, name, ns, nids, profile=K217, routing=False, zc_min=16384, cpp=1,
                 check_interval=60.0, transaction_timeout=10.0, keepalive=30.0, keepalive_gap=10.0):
        self.env, self.name, self.ns, self.profile, self.routing = env, name, ns, profile, routing
        self.judge = Judge(self, env.ledger)
        self.nis = [Ni(self, n, cpp, zc_min, keepalive, keepalive_gap) for n in nids]
        self.check_interval, self.transaction_timeout = check_interval, transaction_timeout
        self.stopped = False
        self.seq = 1 + len(nids)        # as lnetctl leaves it
        self.cookie = time.time_ns().to_bytes(8, "little")
        self.object = itertools.count(0x0d, 4)
        self.match = itertools.count(1)
        self.routes, self.gateways, self.replies = [], {}, {}
        self.pings, self.pushes, self.gets, self.puts = {}, {}, {}, {}
        self.acked_seq, self.peer_info = {}, {}
        self.received, self.notes, self.closes = Counter(), [], []
        self.zc_acked, self.zc_slowest, self.keepalives_sent, self.keepalives_seen = 0, 0.0, 0, 0
        self.send_errors, self.tasks = [], set()
        self.inbox = None               # optional fn(hdr, payload) for each PUT on the test portal
        self.on_message = None          # optional fn(ni, conn, hdr, payload) -> True if it was taken
        self.push_replies = True
        self.in_ledger = True           # the reference router's own messages are not kept account of
        self.incoming = asyncio.Queue()
        env.ledger.nids.update(nids)

    # ------------------------------------------------------------ life

    @property
    def nid(self):
        return self.nis[0].nid

    async def start(self):
        for ni in self.nis:
            await ni.start()
        return self

    def stop(self, rst=False):
        self.stopped = True
        for t in list(self.tasks):
            t.cancel()
        for ni in self.nis:
            ni.stop(rst)

    def task(self, coro):
        t = asyncio.get_running_loop().create_task(coro)
        self.tasks.add(t)
        t.add_done_callback(self._done)
        return t

    def _done(self, t):
        self.tasks.discard(t)
        if not t.cancelled() and t.exception():
            self.problem(f"persona failed: {t.exception()!r}")
        self.kick()

    def kick(self):
        self.env.kick()

    def note(self, text):
        self.notes.append(text)
        self.env.log(f"{self.name}: {text}")
        self.kick()

    def problem(self, text):
        if self.stopped:        # a task may end one step after it was cancelled
            return
        self.env.problem(f"{self.name}: {text}")

    def known_nids(self):
        return self.env.ledger.nids

    def conns(self, nid=None):
        return [c for ni in self.nis for p in ni.peers.values() if nid in (None, p.nid) for c in p.conns]

    def conn_closed(self, conn, how):
        self.closes.append((conn, how))
        self.env.log(f"{self.name}: {conn} closed: {how}")
        spec = self.judge._spec(conn)
        if how == "rst" and spec and not spec.allow_rst and spec.kind == "millrace":
            self.problem(f"{conn}: reset, where a kernel closes with FIN")
        self.kick()

    def count_keepalive(self, conn):
        self.keepalives_seen += 1
        conn.noops += 1
        self.kick()

    # ------------------------------------------------------------ what the judge asks

    def pings_to(self, nid):
        return {h: (sink, off) for h, (n, sink, off, _) in self.pings.items() if n == nid}

    def pushes_to(self, nid):
        return [(h, size) for h, (n, size, _) in self.pushes.items() if n == nid]

    def info(self):
        features = wire.F_NI_STATUS | wire.F_MULTI_RAIL | wire.F_DISCOVERY
        if not self.routing:
            features |= wire.F_RTE_DISABLED
        if any(ni.nid.large for ni in self.nis):
            features |= wire.F_LARGE_ADDR
            if self.nis[0].nid.large:
                features |= wire.F_PRIMARY_LARGE
        return wire.PingInfo(features, self.seq, [(ni.nid, wire.UP) for ni in self.nis])

    def info_size(self):
        return len(self.info().pack())

    def handle(self):
        return self.cookie + next(self.object).to_bytes(8, "little")

    # ------------------------------------------------------------ sending

    def add_route(self, net, gateway, hop=1, priority=0, check=True):
        self.routes.append(Route(net, gateway, hop, priority))
        if gateway not in self.gateways:
            self.gateways[gateway] = Gateway(gateway)
            if check:
                self.task(self._checker(self.gateways[gateway]))

    def route_alive(self, route):
        """lnet-core §3.8, the five conditions at each send (discovery on)."""
        gw = self.gateways[route.gateway]
        if not gw.alive:
            return False
        if not gw.discovered or gw.info is None:
            return True
        words = gw.info.nis
        if not any(n.net == route.gateway.net and s == wire.UP for n, s in words):
            return False
        if route.hop == 1 or any(n.net == route.net for n, _ in words):
            if not any(n.net == route.net and s == wire.UP for n, s in words):
                return False
        return gw.info.routing

    def alive_routes(self, net):
        return [r for r in self.routes if r.net == net and self.route_alive(r)]

    def next_hop(self, nid):
        """(ni, next hop NID) or (None, None)."""
        for ni in self.nis:
            if ni.nid.net == nid.net:
                return ni, nid
        for r in sorted(self.alive_routes(nid.net), key=lambda r: (r.priority, r.hop)):
            for ni in self.nis:
                if ni.nid.net == r.gateway.net:
                    return ni, r.gateway
        return None, None

    def send(self, hdr, payload=b"", via=None, zc=None, done=None):
        """Through `via` = (ni, next hop), or as the routes say. False: no route (EHOSTUNREACH)."""
        ni, hop = via or self.next_hop(hdr.dst)
        if ni is None:
            self.send_errors.append((hdr, "no route"))
            return False
        entry = None
        if self.in_ledger and (hop not in self.judge.routers or hdr.dst not in self.judge.routers[hop].nids):
            entry = self.env.ledger.register(hdr, payload)

        def sent(conn, cookie):
            if entry:
                entry.conn = conn
                entry.serial = next(self.env.ledger.serial)
            if done:
                done(conn, cookie)
        ni.send_message(hop, hdr, payload, zc, sent)
        return True

    def send_failed(self, hdr, hop):
        self.send_errors.append((hdr, f"no connection to {hop}"))
        self.env.ledger.forget(lambda e: e.header is hdr)
        self.kick()

    def peer_down(self, nid):
        self.note(f"peer {nid} down")
        if nid in self.gateways:
            self.gateways[nid].alive = False

    def _src(self, dst, via=None):
        ni, _ = via or self.next_hop(dst)
        return ni.nid if ni else self.nid

    # ------------------------------------------------------------ requests

    async def _wait(self, fut, timeout):
        try:
            return await asyncio.wait_for(fut, timeout)
        except asyncio.TimeoutError:
            return None

    async def ping_get(self, dst, sink, offset=0, via=None, timeout=None):
        """GET on portal 0; the payload of the REPLY, or None after the timeout."""
        handle, fut = self.handle(), asyncio.get_running_loop().create_future()
        hdr = wire.Header(dst, self._src(dst, via), wire.GET, 0,
                          wire.get_union(handle, wire.PING_MATCH, 0, sink, offset))
        self.pings[handle] = (dst, sink, offset, fut)
        if not self.send(hdr, via=via):
            del self.pings[handle]
            return None
        reply = await self._wait(fut, timeout or self.transaction_timeout)
        if reply is None:
            self.pings.pop(handle, None)
        return reply

    async def ping(self, dst, via=None, timeout=None):
        """`lnetctl ping`."""
        reply = await self.ping_get(dst, self.profile.ping_sink, via=via, timeout=timeout)
        return wire.unpack_ping(reply) if reply is not None else None

    async def push(self, dst, via=None):
        """Our ping info as a PUT that wants an ACK; True when acked for its whole length."""
        handle, fut = self.handle(), asyncio.get_running_loop().create_future()
        body = self.info().pack()
        hdr = wire.Header(dst, self._src(dst, via), wire.PUT, len(body),
                          wire.put_union(handle, wire.PING_MATCH, 0))
        self.pushes[handle] = (dst, len(body), fut)
        seq = self.seq
        if not self.send(hdr, body, via=via):
            del self.pushes[handle]
            return False
        mlength = await self._wait(fut, self.transaction_timeout)
        self.pushes.pop(handle, None)
        if mlength == len(body):
            self.acked_seq[dst] = seq
        return mlength == len(body)

    async def discover(self, dst, via=None):
        """Discovery of one peer: GET, and a PUSH if it does not know our state (lnet-core §3.6)."""
        sink = max(wire.DISCOVERY_SINK, len(self.replies.get(dst, b"")))
        reply = await self.ping_get(dst, sink, via=via)
        if reply is None:
            return None
        info = wire.unpack_ping(reply)
        self.replies[dst], self.peer_info[dst] = reply, info
        if info.features & wire.F_MULTI_RAIL and self.acked_seq.get(dst) != self.seq:
            if not await self.push(dst, via):
                return None
        return info

    async def put(self, dst, payload, ack=True, portal=TEST_PORTAL, via=None, timeout=None, zc=None):
        """True: acked (or sent, without ack)."""
        mb = next(self.match) | id(self) % 0xffff << 40
        handle = self.handle() if ack else wire.NO_HANDLE
        hdr = wire.Header(dst, self._src(dst, via), wire.PUT, len(payload),
                          wire.put_union(handle, mb, portal, 0, int.from_bytes(checksum(payload), "little")))
        fut = asyncio.get_running_loop().create_future()
        if ack:
            self.puts[handle] = (dst, len(payload), fut)
        if not self.send(hdr, payload, via=via, zc=zc):
            self.puts.pop(handle, None)
            return False
        if not ack:
            return True
        return await self._wait(fut, timeout or self.transaction_timeout) is not None

    async def get(self, dst, size, via=None, timeout=None, portal=TEST_PORTAL):
        """GET of `size` pattern bytes; True when the REPLY had exactly them."""
        mb = next(self.match) | id(self) % 0xffff << 40
        handle, fut = self.handle(), asyncio.get_running_loop().create_future()
        hdr = wire.Header(dst, self._src(dst, via), wire.GET, 0, wire.get_union(handle, mb, portal, size))
        self.gets[handle] = (dst, fut)
        if not self.send(hdr, via=via):
            self.gets.pop(handle, None)
            return False
        payload = await self._wait(fut, timeout or self.transaction_timeout)
        self.gets.pop(handle, None)
        if payload is None:
            return False
        if checksum(payload) != checksum(pattern(mb, size)):
            self.problem(f"REPLY of {size} bytes from {dst}: checksum differs")
            return False
        return True

    # ------------------------------------------------------------ receiving

    def parse(self, ni, conn, hdr, payload):
        """lnet_parse of an end node (and of the reference router)."""
        self.received[wire.TYPE_NAMES[hdr.mtype]] += 1
        self.kick()
        if self.on_message and self.on_message(ni, conn, hdr, payload):
            return
        if hdr.dst != ni.nid:
            self._forward(ni, conn, hdr, payload)
            return
        back = (ni, conn.peer.nid)
        if hdr.mtype == wire.GET:
            self._on_get(ni, hdr, back)
        elif hdr.mtype == wire.PUT:
            self._on_put(ni, hdr, payload, back)
        elif hdr.mtype == wire.REPLY:
            self._on_reply(hdr, payload)
        else:
            for table in (self.pushes, self.puts):
                if hdr.handle in table:
                    dst, size, fut = table[hdr.handle]
                    if hdr.mlength != size or hdr.src != dst:
                        self.problem(f"{hdr}: mlength {hdr.mlength}, sent {size} to {dst}")
                    if table is self.puts:
                        del table[hdr.handle]
                    if not fut.done():
                        fut.set_result(hdr.mlength)

    def _forward(self, ni, conn, hdr, payload):
        out, hop = self.next_hop(hdr.dst)
        if out is None and self.routing:
            self.note(f"dropped, no route: {hdr}")
            return
        if not self.routing or out is ni:
            self.problem(f"not for me and not routed: {hdr}")
            return
        out.send_message(hop, hdr, payload)

    def _on_get(self, ni, hdr, back):
        if hdr.portal == 0 and hdr.match_bits == wire.PING_MATCH:
            body = self.info().pack()
            if hdr.offset > len(body):
                self.problem(f"ping GET with source offset {hdr.offset}")
                return
            body = body[hdr.offset:hdr.offset + hdr.sink]
        elif hdr.portal == TEST_PORTAL:
            body = pattern(hdr.match_bits, hdr.sink)
        else:
            return
        self.send(wire.Header(hdr.src, ni.nid, wire.REPLY, len(body), wire.reply_union(hdr.handle)), body, back)

    def _on_put(self, ni, hdr, payload, back):
        if hdr.handle != wire.NO_HANDLE:
            self.send(wire.Header(hdr.src, ni.nid, wire.ACK, 0,
                                  wire.ack_union(hdr.handle, hdr.match_bits, hdr.plen)), b"", back)
        if hdr.portal == 0:
            self._on_push(hdr, payload, back)
        elif hdr.portal == TEST_PORTAL:
            if hdr.union[24:32] != checksum(payload):
                self.problem(f"{hdr}: checksum differs")
            if self.inbox:
                self.inbox(hdr, payload)

    def _on_push(self, hdr, payload, back):
        info = wire.unpack_ping(payload)
        self.peer_info[hdr.src] = info
        gw = self.gateways.get(hdr.src)
        if gw:
            gw.pushes_seen += 1
            self._gateway_info(gw, info)
        if not info.features & wire.F_MULTI_RAIL or not self.push_replies:
            return
        if self.acked_seq.get(hdr.src) != self.seq and not any(n == hdr.src for n, _, _ in self.pushes.values()):
            self.task(self.push(hdr.src, back))

    def _on_reply(self, hdr, payload):
        if hdr.handle in self.pings:
            dst, sink, _, fut = self.pings.pop(hdr.handle)
            if hdr.src != dst or hdr.plen > sink:
                self.problem(f"{hdr}: pinged {dst}, sink {sink}")
            if not fut.done():
                fut.set_result(bytes(payload))
        elif hdr.handle in self.gets:
            dst, fut = self.gets[hdr.handle]
            if hdr.src != dst:
                self.problem(f"{hdr}: asked {dst}")
            if not fut.done():
                fut.set_result(payload)

    # ------------------------------------------------------------ router checker

    def _gateway_info(self, gw, info):
        before = [self.route_alive(r) for r in self.routes if r.gateway == gw.nid]
        gw.info, gw.discovered = info, True
        after = [self.route_alive(r) for r in self.routes if r.gateway == gw.nid]
        if before != after:
            self.note(f"routes through {gw.nid}: {after}")
        self.kick()

    async def poll(self, gw_nid):
        """One check of a gateway: GET with sink 272, then a PUSH, as every minute (lnet-core §3.8)."""
        gw = self.gateways.setdefault(gw_nid, Gateway(gw_nid))
        ni = next(n for n in self.nis if n.nid.net == gw.nid.net)
        gw.polls += 1
        reply = await self.ping_get(gw.nid, wire.DISCOVERY_SINK, via=(ni, gw.nid))
        ok = reply is not None
        if ok:
            info = wire.unpack_ping(reply)
            self._gateway_info(gw, info)
            if info.features & wire.F_MULTI_RAIL:
                ok = await self.push(gw.nid, (ni, gw.nid))
        gw.alive = ok
        gw.failures += not ok
        self.note(f"gateway {gw.nid} {'alive' if ok else 'dead'}")
        return ok

    async def _checker(self, gw):
        while True:
            await self.poll(gw.nid)
            await asyncio.sleep(self.check_interval)
