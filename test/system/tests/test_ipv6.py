# SPDX-License-Identifier: BSD-3-Clause
"""Large NIDs: HELLO v4, 96-byte headers, and that none ever goes over a nid4 connection.

docs/protocol/socklnd.md §2.2, D2; docs/protocol/lnet-core.md §2.2, §3.2, §16.
"""

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.node import pattern
from lnetpy.scene import join, routes_up, traffic


async def test_both_sides(env):
    r = await env.router("r", "fd00::1@tcp", "fd00:1::1@tcp1")
    c = await env.persona("c", "fd00::2@tcp")
    s = await env.persona("s", "fd00:1::2@tcp1")
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    assert await c.ping(s.nid)
    for size in (0, 903, 904, 4096, 70000, 1 << 20):
        assert await c.put(s.nid, pattern(1, size)) and await s.get(c.nid, size), size
    tasks = [c.task(traffic(env, a, b, 200, seed=9)) for a, b in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 50)
    await env.settle()
    assert all(x.version == 4 for n in (c, s) for x in n.conns())
    info = wire.unpack_ping(await c.ping_get(r.nids[0], 3960))
    assert info.features == 0x7a and len(info.pack()) == 80, info


async def test_router_dials(env):
    """An IPv6 server that never spoke first: request v2, HELLO v4, three connections."""
    r = await env.router("r", "fd00::1@tcp", "fd00:1::1@tcp1")
    c = await env.persona("c", "fd00::2@tcp")
    s = await env.persona("s", "fd00:1::2@tcp1")
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    assert await c.ping(s.nid) and await c.put(s.nid, pattern(1, 50000))
    await env.until(lambda: len(s.conns()) == 3 and not any(x.active for x in s.conns()), "router dialled three")
    await env.settle()


async def test_never_truncated(env):
    """IPv6 client, IPv4 server: a large NID is dropped by name, never cut to four bytes (D2)."""
    env.need_millrace()
    r = await env.router("r", "fd00::1@tcp", "10.0.1.1@tcp1")
    c = await env.persona("c", "fd00::2@tcp")
    s = await env.persona("s", "10.0.1.2@tcp1")
    x = await env.persona("x", "10.0.1.3@tcp1")
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    before = await r.drops()
    assert await c.put(s.nid, pattern(1, 100), ack=False)
    assert await c.put(s.nid, pattern(2, 100000), ack=False)
    assert await c.put(x.nid, pattern(3, 100), ack=False)      # a node the router has no connection to

    async def dropped():
        return (await r.drops())["large_nid_on_nid4"] - before["large_nid_on_nid4"] == 3
    await env.until_async(dropped, "large_nid_on_nid4 counted three times", 8)
    await env.until(lambda: c.zc_acked == 1, "ZC-ACK of the dropped message")
    assert len(env.ledger.forget(lambda e: e.header.src == c.nid)) == 3
    assert s.received["PUT"] <= 2, "nothing but the router's own PUSHes arrives"
    assert await c.ping(r.nids[0]) and await s.ping(r.nids[1])
    assert not c.closes and not s.closes
    info = wire.unpack_ping(await s.ping_get(r.nids[1], 3960))
    assert info.features == 0x7a and [n for n, _ in info.nis] == [r.nids[1], r.nids[0]], info


async def test_mixed_order(env):
    """First NI IPv4, second IPv6: LARGE_ADDR without PRIMARY_LARGE; IPv4 nets forward as ever."""
    r = await env.router("r", "10.0.0.1@tcp", "fd00:1::1@tcp1", "10.0.2.1@tcp2")
    c = await env.persona("c", "10.0.0.2@tcp")
    s = await env.persona("s", "10.0.2.2@tcp2")
    v6 = await env.persona("v6", "fd00:1::2@tcp1")
    join(c, r, "tcp2")
    join(s, r, "tcp")
    join(v6, r, "tcp")
    await env.bring_up(c, s, v6)
    assert await c.put(s.nid, pattern(1, 70000)) and await s.get(c.nid, 4000)
    got = await c.ping_get(r.nids[0], 3960)
    assert wire.unpack_ping(got).features == 0x3a and len(got) == 16 + 3 * 16 + 24, got
    await env.settle()


async def test_nid4_through_ipv6(env):
    """tcp (IPv4) - A - tcp5 (IPv6) - B - tcp1 (IPv4): nid4 messages ride in 96-byte headers between the
    routers and come out as the 72 bytes that went in."""
    a = await env.router("ra", "10.0.0.1@tcp", "fd00:5::1@tcp5",
                         routes=[{"net": "tcp1", "gateway": "fd00:5::2@tcp5"}])
    b = await env.router("rb", "fd00:5::2@tcp5", "10.0.1.1@tcp1",
                         routes=[{"net": "tcp", "gateway": "fd00:5::1@tcp5"}])
    c = await env.persona("c", "10.0.0.2@tcp")
    s = await env.persona("s", "10.0.1.2@tcp1")
    c.add_route(N.parse_net("tcp1"), a.nids[0], hop=2)
    s.add_route(N.parse_net("tcp"), b.nids[1], hop=2)
    await env.bring_up(c, s)
    await routes_up(env, a, b)
    assert await c.ping(s.nid, timeout=20)
    for size in (0, 904, 928, 70000, 1 << 20):
        assert await c.put(s.nid, pattern(1, size)) and await s.get(c.nid, size), size
    await env.settle()


async def test_malformed(env):
    """v4 connections: what must not be, and HELLO v3 over IPv6 is answered NONE in v4 (§2.2, §2.4)."""
    env.need_millrace()
    r = await env.router("r", "fd00::1@tcp", "fd00:1::1@tcp1")
    c = await env.persona("c", "fd00::2@tcp")
    s = await env.persona("s", "fd00:1::2@tcp1")
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    bad = BadPeer(env, "bad", "fd00::66@tcp", r.nids[0])
    h3 = wire.Hello(3, N.parse("10.0.0.66@tcp"), N.parse("10.0.0.1@tcp"), bad.incarnation, 1).pack()
    got, how, _ = await bad.say(wire.connreq(bad.router) + h3)
    assert how in ("FIN", "RST") and wire.unpack_hello(got).ctype == wire.CTYPE_NONE and len(got) == 80, got.hex()
    nips = bytearray(bad.hello())
    nips[76:80] = b"\1\0\0\0"
    for name, data in (("nid4 HELLO of another address", bad.hello(src=N.parse("fd00::77@tcp"))),
                       ("truncated form of itself", bad.hello(src=N.parse("253.0.0.102@tcp"))),
                       ("link-local", bad.hello(src=N.parse("fe80::66@tcp"))),
                       ("ANY", bytes(bad.hello()[:8]) + b"\xff" * 20 + bytes(bad.hello()[28:])),
                       ("stray address bytes", bytes(bad.hello()[:8]) + b"\0" + bytes(bad.hello()[9:])),
                       ("nid_size 13", bytes(bad.hello()[:8]) + b"\x0d" + bytes(bad.hello()[9:]))):
        got, how, _ = await bad.say(wire.connreq(bad.router) + data)
        assert how in ("FIN", "RST") and got == b"", f"{name}: {got.hex()} {how}"
    for at, data in ((0, b"\x0d"), (0, b"\xff" * 20), (20, b"\x08"), (0, b"\0")):
        conns = await bad.full_set()
        raw = bytearray(bad.frame(bad.put(dst=s.nid)))
        raw[24 + at:24 + at + len(data)] = data
        await conns[0].send(bytes(raw))
        got, how, _ = await conns[0].end(5)
        assert how in ("FIN", "RST") and not got, (at, how, got.hex())
        bad.close()
    assert await c.put(s.nid, pattern(1, 3000)) and not c.closes and not s.closes
    await env.settle()
