# SPDX-License-Identifier: BSD-3-Clause
"""Each malformed input of the specification's pitfalls at a live router, while another pair forwards.

docs/protocol/socklnd.md §1.3, §2.4, §2.5, §4.3-§4.5, §10 and the crafted requests of the recordings
H-03 and H-05; lnet-core.md §4.2, §4.8. For each: what comes back, how the connection ends, which
counter counts it, and that the other pair never noticed.
"""

import asyncio
import struct
from dataclasses import dataclass

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.node import pattern
from lnetpy.scene import deadline, line

BAD = "10.0.0.66@tcp"
AT_ONCE = 4.0       # s, on a busy machine; well before a slow caller is sent away, after 5 s
CLOSED, FIN, RST = ("FIN", "RST"), ("FIN",), ("RST",)
NONE_REPLY, REFUSAL, NOTHING = "hello NONE", "acceptor refusal", "nothing"


class Background:
    """A pair that keeps forwarding both ways; it must not notice anything."""

    def __init__(self, env, c, s):
        self.env, self.c, self.s, self.count = env, c, s, 0
        self.closes = (len(c.closes), len(s.closes))
        self.stop = False
        self.tasks = [c.task(self._run(c, s)), s.task(self._run(s, c))]

    async def _run(self, a, b):
        i = 0
        while not self.stop:
            i += 1
            size = (0, 300, 3000, 40000)[i % 4]
            if not (await a.put(b.nid, pattern(i, size)) and await a.get(b.nid, size)):
                self.env.problem(f"{a.name}: forwarding stopped meanwhile")
                return
            self.count += 1
            await asyncio.sleep(0.005)

    async def went_on(self, what, timeout=5):
        seen = self.count
        await self.env.until(lambda: self.count >= seen + 4 or self.env.problems, f"forwarding goes on: {what}",
                             timeout)
        now = (len(self.c.closes), len(self.s.closes))
        assert now == self.closes, f"{what}: the other pair lost connections {now}"
        assert not self.env.problems, f"{what}: {self.env.problems[0]}"

    async def end(self):
        self.stop = True
        await self.env.until(lambda: all(t.done() for t in self.tasks), "background traffic ends")
        await self.env.settle()


async def counted(env, r, before, names, what):
    """One of `names` was raised, and nothing else than harmless ends of connections."""
    names = (names,) if isinstance(names, str) else names
    harmless = {"tcp_reset", "tcp_request_eof", "receive_incomplete"}
    if env.transport == "port":     # what the peer's TCP had not acknowledged when the connection ended
        harmless.add("next_hop_connection_lost")

    async def raised():
        now = await r.drops()
        missing = [n for n in names if n not in now]
        assert len(missing) < len(names), f"no counter is called {names}"
        return now if any(now.get(n, 0) > before.get(n, 0) for n in names) else None

    after = await env.until_async(raised, f"{what}: counter {' or '.join(names)} raised", 5)
    others = {k: after[k] - before.get(k, 0) for k in after
              if after[k] != before.get(k, 0) and k not in names and k not in harmless}
    assert not others, f"{what}: also counted {others}"


async def scene(env):
    env.need_millrace()
    c, r, s = await line(env)
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    return r, bad, Background(env, c, s)


# ---------------------------------------------------------------- acceptor and HELLO

def acceptor_cases(bad):
    good, me = wire.connreq(bad.router), bad.hello()
    magic = struct.pack("<I", wire.LNET_MAGIC)

    def req(version, nid=bad.router, m=wire.ACCEPTOR_MAGIC):
        return struct.pack("<II", m, version) + nid.pack4()

    def hello(**kw):
        return good + bad.hello(**kw)

    def patched(at, data, **kw):
        h = bytearray(bad.hello(**kw))
        h[at:at + len(data)] = data
        return good + bytes(h)

    swapped = bytearray(me)
    for at, n in ((0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 4), (32, 8), (40, 8), (48, 4), (52, 4)):
        swapped[at:at + n] = swapped[at:at + n][::-1]
    addr = N.parse
    own = "tcp_hello_nid", "tcp_hello_source"
    # name, bytes, answer, ends, counter
    return [
        ("foreign NID, request only", req(1, addr("10.0.0.99@tcp")), NOTHING, FIN, "tcp_request_nid"),
        ("foreign NID and HELLO", req(1, addr("10.0.0.99@tcp")) + me, NOTHING, CLOSED, "tcp_request_nid"),
        ("own address on another net", req(1, addr("10.0.0.1@tcp5")) + me, NOTHING, CLOSED, "tcp_request_nid"),
        ("own address on o2ib", req(1, addr("10.0.0.1@o2ib")) + me, NOTHING, CLOSED, "tcp_request_nid"),
        ("loopback NID", req(1, N.LO) + me, NOTHING, CLOSED, "tcp_request_nid"),
        ("request v2 with a foreign IPv6 NID",
         struct.pack("<II", wire.ACCEPTOR_MAGIC, 2) + addr("fd00::9@tcp").pack16() + me, NOTHING, CLOSED,
         "tcp_request_nid"),
        ("request v2 with nid_size 255", struct.pack("<II", wire.ACCEPTOR_MAGIC, 2) + b"\xff" * 20 + me, NOTHING,
         CLOSED, "tcp_request_nid"),
        ("request v2, IPv4 NID with stray address bytes",
         struct.pack("<II", wire.ACCEPTOR_MAGIC, 2) + bad.router.pack16()[:19] + b"\1" + me, NOTHING, CLOSED,
         "tcp_request_nid"),
        ("bad magic", struct.pack("<II", 0xdeadbeef, 1) + bad.router.pack4() + me, NOTHING, CLOSED,
         "tcp_request_magic"),
        ("TCP v1 magic", struct.pack("<I", wire.TCP_V1_MAGIC) + bytes(68), NOTHING, CLOSED, "tcp_request_magic"),
        ("acceptor version 0", req(0), REFUSAL, CLOSED, "tcp_request_version"),
        ("acceptor version 3", req(3) + me, REFUSAL, CLOSED, "tcp_request_version"),
        ("LNet magic, 4 bytes", magic, REFUSAL, CLOSED, ("tcp_request_version", "tcp_request_magic")),
        ("HELLO without request", me, REFUSAL, CLOSED, ("tcp_request_version", "tcp_request_magic")),
        ("HELLO magic", patched(0, struct.pack("<I", 0x12345678)), NOTHING, CLOSED, "tcp_hello_magic"),
        ("HELLO big-endian", good + bytes(swapped), NOTHING, CLOSED, "tcp_hello_magic"),
        ("HELLO version 1", patched(4, struct.pack("<I", 1)), NONE_REPLY, CLOSED, "tcp_hello_version"),
        ("HELLO version 5", patched(4, struct.pack("<I", 5)), NONE_REPLY, CLOSED, "tcp_hello_version"),
        ("HELLO 17 addresses", patched(52, struct.pack("<I", 17)) + b"\1" * 68, NOTHING, CLOSED, "tcp_hello_nips"),
        ("HELLO 2^32-1 addresses", patched(52, b"\xff" * 4), NOTHING, CLOSED, "tcp_hello_nips"),
        ("HELLO zero address", patched(52, struct.pack("<I", 1)) + bytes(4), NOTHING, CLOSED, "tcp_hello_nips"),
        ("HELLO source ANY", patched(8, b"\xff" * 8), NOTHING, CLOSED, "tcp_hello_nid"),
        ("HELLO source with reserved byte", patched(15, b"\1"), NOTHING, CLOSED, own),
        ("HELLO type 7", hello(ctype=7), NOTHING, CLOSED, "tcp_hello_type"),
        ("HELLO type NONE", hello(ctype=-1), NOTHING, CLOSED, "tcp_hello_type"),
        ("HELLO source = the router", hello(src=bad.router), NOTHING, CLOSED, own),
        ("HELLO source loopback", hello(src=N.LO), NOTHING, CLOSED, own),
        ("HELLO source other address", hello(src=addr("10.0.0.77@tcp")), NOTHING, CLOSED, own),
        ("HELLO source of the client", hello(src=addr("10.0.0.2@tcp")), NOTHING, CLOSED, own),
        ("HELLO source other net", hello(src=addr("10.0.0.66@tcp5")), NOTHING, CLOSED, own),
        ("HELLO source o2ib", hello(src=addr("10.0.0.66@o2ib")), NOTHING, CLOSED, own),
    ]


def check_answer(bad, name, want, got):
    if want == NOTHING:
        assert got == b"", f"{name}: {got.hex()} written"
    elif want == REFUSAL:
        assert got == wire.ACCEPTOR_REFUSAL, f"{name}: {got.hex()}"
    else:
        assert len(got) == 56, f"{name}: {got.hex()}"
        h = wire.unpack_hello(got)
        assert (h.version, h.ctype, h.src, h.src_pid) == (3, wire.CTYPE_NONE, bad.router, 12345), f"{name}: {h}"


async def test_acceptor_and_hello(env):
    r, bad, other = await scene(env)
    for name, data, want, ends, counter in acceptor_cases(bad):
        before = await r.drops()
        got, how, took = await bad.say(data)
        check_answer(bad, name, want, got)
        assert how in ends, f"{name}: {how} after {took:.1f} s"
        assert took < AT_ONCE, f"{name}: took {took:.1f} s"
        await counted(env, r, before, counter, name)
        await other.went_on(name)
    await other.end()


async def test_source_port(env):
    """Above 1023: refused at once, nothing read, nothing written (§1.3)."""
    r, bad, other = await scene(env)
    for port in (1024, 40000):
        before = await r.drops()
        got, how, took = await bad.say(b"", port=port)
        assert (got, how) == (b"", "FIN") and took < AT_ONCE, (port, got, how, took)
        await counted(env, r, before, "tcp_source_port", f"port {port}")
    for port in (600, 1):       # 1..1023 all pass
        raw = await bad.dial(port)
        await raw.send(wire.connreq(bad.router) + bad.hello())
        assert wire.unpack_hello(await raw.read(56)).ctype == wire.CONTROL, port
        raw.close()
    await other.went_on("source ports")
    await other.end()


async def test_slow_callers(env):
    """5 s for a request and a HELLO, and a slow caller holds up nobody else (§1.2, P21)."""
    r, bad, other = await scene(env)
    whole = wire.connreq(bad.router) + bad.hello()
    before = await r.drops()
    cut = (0, 4, 8, 20, 70)
    results = asyncio.gather(*[bad.say(whole[:n], timeout=30) for n in cut])
    await other.went_on("slow callers are connected", 3)
    raw = await bad.dial()
    await raw.send(whole)
    assert wire.unpack_hello(await raw.read(56)).ctype == wire.CONTROL, "a good caller next to slow ones"
    raw.close()
    for n, (got, how, took) in zip(cut, await results):
        assert got == b"" and how in CLOSED and 4 < took < 20, f"{n} bytes: {got.hex()} {how} after {took:.1f} s"
    after = await r.drops()
    assert after["tcp_request_timeout"] - before["tcp_request_timeout"] == len(cut), after
    await other.went_on("slow callers are gone")
    await other.end()


async def test_half_a_hello(env):
    """The caller goes away before its HELLO is complete."""
    r, bad, other = await scene(env)
    whole = wire.connreq(bad.router) + bad.hello()
    for n in (0, 3, 8, 16, 30, 71):
        for rst in (False, True):
            before = await r.drops()
            raw = await bad.dial()
            await raw.send(whole[:n])
            raw.close(rst)
            await env.until_async(lambda b=before: raised(r, b, ("tcp_request_eof", "tcp_reset")),
                                  f"{n} bytes, {'RST' if rst else 'FIN'}: counted", 5)
    await other.went_on("half HELLOs")
    await other.end()


async def raised(r, before, names):
    now = await r.drops()
    return any(now.get(n, 0) > before.get(n, 0) for n in names)


async def test_accepted_oddities(env):
    """What a kernel accepts, so do we: request v2 with an IPv4 NID, wrong destination, addresses, one byte
    per segment (§2.4, P23)."""
    r, bad, other = await scene(env)
    v2 = struct.pack("<II", wire.ACCEPTOR_MAGIC, 2) + bad.router.pack16()
    for name, data in (("request v2, IPv4 NID", v2 + bad.hello()),
                       ("wrong dst_nid", wire.connreq(bad.router) + bad.hello(dst=N.parse("10.0.0.9@tcp"))),
                       ("two addresses", wire.connreq(bad.router) + bad.hello(ips=(0x0a000042, 0x0a000043))),
                       ("dst_pid and dst_incarnation",
                        wire.connreq(bad.router) + bad.hello(dst_pid=12345, dst_inc=77))):
        raw = await bad.dial()
        await raw.send(data)
        h = wire.unpack_hello(await raw.read(56))
        assert (h.ctype, h.version, h.src, h.dst) == (wire.CONTROL, 3, bad.router, bad.nid), f"{name}: {h}"
        ping = bad.ping()
        await raw.send(bad.frame(ping))
        await expect_ping_reply(raw, ping, name)
        raw.close()
        await other.went_on(name)
    raw = await bad.dial()
    raw.sock.setsockopt(6, 1, 1)
    ping = bad.ping()
    for i in wire.connreq(bad.router) + bad.hello():
        await raw.send(bytes([i]))
        await asyncio.sleep(0.001)
    await raw.read(56)
    for i in bad.frame(ping):
        await raw.send(bytes([i]))
        await asyncio.sleep(0.001)
    await expect_ping_reply(raw, ping, "one byte per segment")
    raw.close()
    await other.end()


async def expect_ping_reply(raw, ping, name, size=64):
    got = await raw.read(24 + 72 + size)
    assert got[:24] == wire.frame(wire.LNET), f"{name}: {got[:24].hex()}"
    want = wire.Header(ping.src, ping.dst, wire.REPLY, size, wire.reply_union(ping.handle))
    assert got[24:96] == want.pack(False), f"{name}: {got[24:96].hex()}"
    return got[96:]


# ---------------------------------------------------------------- frames

@dataclass
class Odd:
    """One odd frame on the CONTROL connection of a full set."""

    name: str
    data: bytes
    counter: object = None          # None: nothing may be counted
    closes: bool = True
    reply: object = None            # ping header whose REPLY must come
    reply_size: int = 64
    zc_ack: int = 0


def odd_frames(bad, far, own_other):
    any_handle = bytes(range(16))
    put1 = bad.put(100)
    long_put = bad.put(wire.MAX_PAYLOAD + 1)
    ping = bad.ping
    csum = wire.csum(b"x" * 100)
    nid = N.parse
    out = [
        Odd("ZC-ACK never asked for", wire.frame(wire.NOOP, 0, 5), "tcp_zc_ack_unknown"),
        Odd("ZC-ACK range", wire.frame(wire.NOOP, 2, 9), "tcp_zc_ack_unknown"),
        Odd("ZC-ACK range of 2^63", wire.frame(wire.NOOP, 2, 1 << 63), "tcp_zc_ack_unknown"),
        Odd("ZC-ACK pair with keepalive cookie", wire.frame(wire.NOOP, 5, 1), "tcp_zc_ack_unknown"),
        Odd("NOOP with checksum", wire.frame(wire.NOOP, 0, 1, csum=1), "tcp_noop_checksum"),
        Odd("frame type 0xc2", wire.frame(0xc2), "tcp_frame_type"),
        Odd("frame type 0", bytes(24), "tcp_frame_type"),
        Odd("GET with payload", bad.frame(bad.header(wire.GET, bytes(40), 8)) + bytes(8), "hdr_length_not_zero"),
        Odd("ACK with payload", bad.frame(bad.header(wire.ACK, bytes(40), 1)) + b"x", "hdr_length_not_zero"),
        Odd("PUT of 1 MiB + 1", bad.frame(long_put), "hdr_too_long"),
        Odd("PUT of 1 MiB + 1 to route", bad.frame(bad.put(wire.MAX_PAYLOAD + 1, dst=far)), "hdr_too_long"),
        Odd("PUT of 4 GiB - 1", bad.frame(bad.put(0xffffffff)), "hdr_too_long"),
        Odd("REPLY of 1 MiB + 1", bad.frame(bad.header(wire.REPLY, bytes(40), wire.MAX_PAYLOAD + 1)), "hdr_too_long"),
        Odd("type 7", bad.frame(bad.header(7, bytes(40))), "hdr_bad_type"),
        Odd("type HELLO", bad.frame(bad.header(4, bytes(40))), "hdr_bad_type"),
        Odd("type 2^32-1", bad.frame(bad.header(0xffffffff, bytes(40))), "hdr_bad_type"),
        Odd("destination on the ingress net", bad.frame(bad.put(dst=nid("10.0.0.99@tcp"))), "dest_on_ingress_net"),
        Odd("destination = the sender itself", bad.frame(bad.put(dst=bad.nid)), "dest_on_ingress_net"),
        Odd("destination another NID of the router", bad.frame(bad.put(dst=own_other)), "dest_own_other_nid"),
        # A dropped payload is not verified (§4.6).
        Odd("wrong payload checksum, dropped", bad.frame(put1, b"x" * 100, csum=csum ^ 1), "put_no_match", False),
        Odd("wrong payload checksum, to route", bad.frame(bad.put(100, dst=far), b"x" * 100, csum=csum ^ 1),
            "tcp_payload_checksum"),
        Odd("unknown net", bad.frame(bad.put(100, dst=nid("10.9.0.9@tcp9")), b"x" * 100), "no_route", False),
        Odd("unknown net, ZC", bad.frame(bad.put(100, dst=nid("10.9.0.9@tcp9")), b"x" * 100, cookie=9), "no_route",
            False, zc_ack=9),
        Odd("o2ib net without route", bad.frame(bad.put(dst=nid("10.9.0.9@o2ib"))), "no_route", False),
        Odd("PUT without match", bad.frame(put1, b"x" * 100), "put_no_match", False),
        Odd("PUT without match, ZC and ACK wanted", bad.frame(bad.put(100, ack=True), b"x" * 100, cookie=2),
            "put_no_match", False, zc_ack=2),
        Odd("PUT portal 200", bad.frame(bad.put(portal=200)), "portal_out_of_range", False),
        Odd("GET portal 7", bad.frame(bad.header(wire.GET, wire.get_union(bad.handle(), 1, 7, 100))), "get_no_match",
            False),
        Odd("GET portal 0, other match bits",
            bad.frame(bad.header(wire.GET, wire.get_union(bad.handle(), 1, 0, 100))), "get_no_match", False),
        Odd("GET portal 2^32-1", bad.frame(bad.header(wire.GET, wire.get_union(bad.handle(), 1, 0xffffffff, 9))),
            "portal_out_of_range", False),
        Odd("ACK unknown handle", bad.frame(bad.header(wire.ACK, wire.ack_union(any_handle, 1, 0))), "ack_no_match",
            False),
        Odd("REPLY unknown handle", bad.frame(bad.header(wire.REPLY, wire.reply_union(any_handle), 16), bytes(16)),
            "reply_no_match", False),
        Odd("ping GET past the end", bad.frame(ping(offset=1000)), "get_offset_past_end", False),
        Odd("ping GET offset 2^32-1", bad.frame(ping(offset=0xffffffff)), "get_offset_past_end", False),
        Odd("source NID of another node", bad.frame(ping(src=nid("10.0.0.2@tcp"))), "source_not_allowed", False),
        Odd("source NID of the far net, to route", bad.frame(bad.put(dst=far, src=nid("10.0.1.9@tcp1"))),
            "source_not_allowed", False),
        Odd("source NID of the router", bad.frame(bad.put(dst=far, src=bad.router)), ("source_is_own",
            "source_not_allowed"), False),
    ]
    for name, p, size in (("dest_pid 99", ping(dst_pid=99), 64), ("sink 16", ping(sink=16), 16),
                          ("sink 0", ping(sink=0), 0), ("sink 2^32-1", ping(sink=0xffffffff), 64),
                          ("offset 16", ping(offset=16), 48)):
        out.append(Odd(f"ping GET, {name}", bad.frame(p), None, False, p, size))
    p = ping()
    out.append(Odd("keepalive first", wire.KEEPALIVE + bad.frame(p), None, False, p))
    p = ping()
    out.append(Odd("NOOP 0:0 first", wire.frame(wire.NOOP) + bad.frame(p), None, False, p))
    return out


async def prove_alive(conns, bad, name):
    ping = bad.ping()
    await conns[0].send(bad.frame(ping))
    await expect_ping_reply(conns[0], ping, name)


async def test_odd_frames(env):
    r, bad, other = await scene(env)
    conns = None
    for odd in odd_frames(bad, N.parse("10.0.1.2@tcp1"), r.nids[1]):
        conns = conns or await bad.full_set()
        before = await r.drops()
        await conns[0].send(odd.data)
        if odd.reply:
            await expect_ping_reply(conns[0], odd.reply, odd.name, odd.reply_size)
        if odd.zc_ack:
            assert await conns[0].read(24) == wire.frame(wire.NOOP, 0, odd.zc_ack), odd.name
        if odd.counter:
            await counted(env, r, before, odd.counter, odd.name)
        if odd.closes:
            for i, conn in enumerate(conns):
                got, how, _ = await conn.end(5)
                assert how in CLOSED and not got, f"{odd.name}: connection {i}: {how}, {got.hex()}"
            bad.close()
            conns = None
        else:
            await prove_alive(conns, bad, odd.name)
            for conn in conns[1:]:
                assert not await conn.more(0.01) and conn.how is None, f"{odd.name}: sibling {conn.how}"
        await other.went_on(odd.name)
    await other.end()


async def test_malformed_nids(env):
    """Headers whose NIDs are no NIDs at all."""
    r, bad, other = await scene(env)
    for name, at, data in (("destination with a reserved byte", 7, b"\1"), ("destination ANY", 0, b"\xff" * 8),
                           ("source ANY", 8, b"\xff" * 8), ("source with a reserved byte", 15, b"\x80")):
        conns = await bad.full_set()
        before = await r.drops()
        raw = bytearray(bad.frame(bad.put(dst=N.parse("10.0.1.2@tcp1"))))
        raw[24 + at:24 + at + len(data)] = data
        await conns[0].send(bytes(raw))
        await env.until_async(lambda b=before: raised(r, b, ("hdr_bad_nid", "no_route", "source_not_allowed",
                                                             "no_lnd")), f"{name}: counted", 5)
        bad.close()
        await other.went_on(name)
    await other.end()


async def test_checksum_accepted(env):
    """A right payload checksum is accepted, and never passed on (§4.6)."""
    r, bad, other = await scene(env)
    conns = await bad.full_set()
    payload = bytes(pattern(3, 300))
    hdr = bad.put(300, portal=7, mb=99, dst=N.parse("10.0.1.2@tcp1"))
    env.ledger.register(hdr, payload)
    await conns[0].send(bad.frame(hdr, payload, csum=wire.csum(payload)))
    await env.until(lambda: not [e for e in env.ledger.outstanding() if e.header == hdr], "delivered")
    await other.end()


async def test_cut_messages(env):
    """FIN or RST inside a header or a payload: siblings closed, counted, nothing of it forwarded (§4.4)."""
    r, bad, other = await scene(env)
    far = N.parse("10.0.1.2@tcp1")
    frame = bad.frame(bad.put(50000, dst=far), b"y" * 50000)
    for cut in (1, 23, 24, 60, 95, 96, 30000, len(frame) - 1):
        for rst in (False, True):
            conns = await bad.full_set()
            before = await r.drops()
            await conns[2].send(frame[:cut])
            if rst:
                conns[2].close(True)
            else:
                conns[2].half_close()
            names = ("tcp_eof_in_message", "receive_incomplete", "tcp_reset")
            what = f"{'RST' if rst else 'FIN'} after {cut} bytes"
            await env.until_async(lambda b=before: raised(r, b, names), f"{what}: counted", 5)
            for i in (0, 1):
                _, how, _ = await conns[i].end(8)
                assert how in CLOSED, f"{what}: sibling {i}: {how}"
            bad.close()
            await other.went_on(what)
    await other.end()


async def test_type_limits(env):
    """A second CONTROL is answered NONE; many BULK connections are accepted (§2.5 #6, §3.4, P15, P16)."""
    r, bad, other = await scene(env)
    conns = await bad.full_set()
    before = await r.drops()
    got, how, _ = await bad.say(wire.connreq(bad.router) + bad.hello(wire.CONTROL))
    assert wire.unpack_hello(got).ctype == wire.CTYPE_NONE and how == "FIN", (got.hex(), how)
    await counted(env, r, before, "tcp_hello_duplicate", "second CONTROL")
    for _ in range(12):
        conns.append(await bad.attach(wire.BULK_IN))
        conns.append(await bad.attach(wire.BULK_OUT))
    await prove_alive(conns, bad, "27 connections")
    await other.went_on("27 connections")
    conns[0].half_close()
    for i, conn in enumerate(conns[1:]):
        _, how, took = await conn.end(5)
        assert how == "FIN", f"sibling {i}: {how}"
    await other.went_on("all closed")
    await other.end()


async def test_stale_incarnation(env):
    """Another incarnation: NONE, FIN on all old connections, and the next try is accepted (§2.5 #4)."""
    r, bad, other = await scene(env)
    conns = await bad.full_set()
    await prove_alive(conns, bad, "first life")
    before = await r.drops()
    bad.incarnation += 1000
    got, how, _ = await bad.say(wire.connreq(bad.router) + bad.hello(wire.CONTROL))
    assert wire.unpack_hello(got).ctype == wire.CTYPE_NONE and how == "FIN", (got.hex(), how)
    await counted(env, r, before, "tcp_hello_stale", "new incarnation")
    for i, conn in enumerate(conns):
        got, how, _ = await conn.end(5)
        assert how == "FIN" and not got, f"old connection {i}: {how}"
    conns = await bad.full_set()
    await prove_alive(conns, bad, "second life")
    await other.end()


@deadline(90)
async def test_garbage(env):
    """Random bytes in every state: nothing breaks, the other pair goes on."""
    import random
    r, bad, other = await scene(env)
    rng = random.Random(4)
    good = wire.connreq(bad.router) + bad.hello()
    for i in range(150):
        stage = i % 3
        if stage == 2:
            raw = await bad.attach(wire.CONTROL)
            data = bytearray(bad.frame(bad.put(64, dst=N.parse("10.9.0.9@tcp9")), bytes(64)))
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(24 + 72)] = rng.randrange(256)
            await raw.send(bytes(data) + rng.randbytes(200))
            await raw.more(0.02)
            raw.close(rng.random() < 0.5)
        else:
            data = rng.randbytes(100) if stage == 0 else bytearray(good)
            if stage == 1:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            raw = await bad.dial()
            await raw.send(bytes(data))
            await raw.more(0.02)
            raw.close(rng.random() < 0.5)
    await other.went_on("garbage")
    await other.end()
