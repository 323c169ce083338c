# SPDX-License-Identifier: BSD-3-Clause
"""The personas against each other: two scripted kernel nodes on one segment, no router."""

from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import cases, no_router


async def pair(env, p1="k217", p2="k217", a="10.0.0.2@tcp", b="10.0.0.3@tcp", **kw):
    return await env.persona("a", a, profile=p1, **kw), await env.persona("b", b, profile=p2, **kw)


@no_router
@cases("k217-k217", "k215-k217", "k217-k215")
async def test_direct(env, kinds):
    a, b = await pair(env, *kinds.split("-"))
    info = await a.ping(b.nid)
    assert info and info.statuses() == {b.nid: wire.UP}, info
    assert await a.discover(b.nid)
    await env.until(lambda: b.acked_seq.get(a.nid) == b.seq, "b pushed back")
    for size in (0, 1, 900, 928, 4096, 16384, 65536, 1 << 20):
        assert await a.put(b.nid, pattern(size, size)), size
        assert await b.get(a.nid, size), size
    await env.settle()
    assert len(a.conns()) == 3 and len(b.conns()) == 3
    assert a.zc_acked >= 6, a.zc_acked


@no_router
async def test_ipv6(env):
    a, b = await pair(env, a="fd00::2@tcp", b="fd00::3@tcp")
    info = await a.ping(b.nid)
    assert info.features == 0x7e and info.pack()[12] == 1, info
    for size in (0, 900, 4096, 65536):
        assert await a.put(b.nid, pattern(size, size))
        assert await b.get(a.nid, size)
    await env.settle()
    assert all(c.version == 4 for c in a.conns())


@no_router
async def test_conns_per_peer_4(env):
    a, b = await pair(env, cpp=4)
    assert await a.ping(b.nid)
    await env.until(lambda: len(a.conns()) == 9 and len(b.conns()) == 9, "nine connections")
    ports = [c.sock.getsockname()[1] for c in a.conns()]
    assert ports == list(range(1023, 1014, -1)), ports
    assert "".join("_CIO"[c.ctype] for c in a.conns()) == "CIOIOIOIO"


@no_router
async def test_simultaneous(env):
    a, b = await pair(env)
    ta, tb = a.task(a.ping(b.nid)), b.task(b.ping(a.nid))
    await env.until(lambda: ta.done() and tb.done(), "both pings answered")
    assert ta.result() and tb.result()
    for n in (a, b):
        await env.until(lambda n=n: sorted(c.ctype for c in n.conns()) == [1, 2, 3], f"{n.name}: one of each type")


@no_router
async def test_restart(env):
    a, b = await pair(env)
    assert await a.ping(b.nid)
    await env.until(lambda: len(b.conns()) == 3, "three connections")
    a.stop()
    env.nodes.remove(a)
    await env.until(lambda: not b.conns(), "b closed")
    a2 = await env.persona("a", "10.0.0.2@tcp")
    assert await a2.ping(b.nid)
    await env.settle()


@no_router
async def test_keepalive(env):
    a, b = await pair(env, keepalive=0.5, keepalive_gap=0.3)
    assert await a.ping(b.nid)
    await env.until(lambda: a.keepalives_seen + b.keepalives_seen >= 4, "four keepalives")


@no_router
async def test_judge_is_strict(env):
    """What must be noticed is noticed: an altered forwarded byte, a second ack, a wrong connection."""
    a, b = await pair(env)
    assert await a.ping(b.nid)
    await env.until(lambda: len(b.conns()) == 3, "three connections")
    control = next(c for c in a.conns() if c.ctype == wire.CONTROL)
    env.tolerate = ["b: ", "never arrived"]
    hdr = wire.Header(b.nid, a.nid, wire.PUT, 4, wire.put_union(wire.NO_HANDLE, 7, 40))
    env.ledger.register(hdr, b"good")
    control.send(wire.frame(wire.LNET) + hdr.pack(False), b"evil")
    await env.until(lambda: env.expected_problems, "altered payload noticed")
    assert "payload altered at byte 0" in env.expected_problems[0], env.expected_problems
    await env.until(lambda: not a.conns(), "b closed all connections")
    env.ledger.forget(lambda e: e.header == hdr)
    for bad, word in ((wire.frame(wire.NOOP, 0, 9), "noop"), (wire.frame(0xc2), "frame type"),
                      (wire.frame(wire.NOOP, 0, 1, csum=1), "noop"), (wire.KEEPALIVE, "noop")):
        env.expected_problems.clear()
        assert await a.ping(b.nid)
        await env.until(lambda: len(a.conns()) == 3 and len(b.conns()) == 3, "three connections")
        next(c for c in a.conns() if c.ctype == wire.CONTROL).send(bad)
        await env.until(lambda: env.expected_problems, f"{bad.hex()} noticed")
        assert word in env.expected_problems[0], env.expected_problems
        await env.until(lambda: not a.conns() and not b.conns(), "all connections closed")


@no_router
@cases("k217", "k215")
async def test_refused_extra(env, kind):
    """a wants four of each BULK type, b takes one: k217 gives up after three refusals, k215 never."""
    b = await env.persona("b", "10.0.0.3@tcp", cpp=1)
    a = await env.persona("a", "10.0.0.2@tcp", profile=kind, cpp=4)
    assert await a.ping(b.nid)
    peer = a.nis[0].peer(b.nid)
    if kind == "k217":
        await env.until(lambda: any("gave up" in n for n in a.notes), "extra connections given up", 10)
        assert peer.nones == 3 and len(a.conns()) == 3, (peer.nones, len(a.conns()))
    else:
        await env.until(lambda: peer.nones >= 5, "five refusals", 10)
        assert not any("gave up" in n for n in a.notes) and len(a.conns()) == 3
    assert await a.ping(b.nid) and await b.get(a.nid, 40000)


@no_router
async def test_kernel_router_between(env):
    """The reference router: what the personas see of a kernel router."""
    g = await env.persona("g", "10.0.0.1@tcp", "10.0.1.1@tcp1", routing=True)
    c = await env.persona("c", "10.0.0.2@tcp")
    s = await env.persona("s", "10.0.1.2@tcp1")
    c.add_route((2, 1), g.nis[0].nid)
    s.add_route((2, 0), g.nis[1].nid)
    await env.bring_up(c, s)
    assert await c.ping(s.nid) and await s.get(c.nid, 100000) and await c.put(s.nid, pattern(1, 1 << 20))
    await env.settle()
