# SPDX-License-Identifier: BSD-3-Clause
"""Being a router in others' eyes: ping info, status words, PUSH. docs/protocol/lnet-core.md §3."""

import time

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, join, line

UP, DOWN = wire.UP, wire.DOWN


async def test_ping_info(env):
    """The same buffer on both NIs, cut as asked; every byte is compared by the judge."""
    c, r, s = await line(env)
    a = await c.ping_get(r.nids[0], 3960)
    b = await s.ping_get(r.nids[1], 3216)
    assert a == b and len(a) == 64, (a, b)
    for sink, offset in ((0, 0), (1, 0), (16, 0), (32, 0), (63, 0), (272, 16), (272, 64), (8, 24)):
        got = await c.ping_get(r.nids[0], sink, offset)
        assert got == a[offset:offset + sink], (sink, offset, got)
    info = wire.unpack_ping(a)
    assert info.features == 0x1a and info.seq >= 1 and [n for n, _ in info.nis] == list(r.nids)


async def test_push_exchange(env):
    """A first PUSH is acked and answered by the router's own; later ones with nothing new only acked."""
    c, r, s = await line(env)
    await env.until(lambda: c.gateways[r.nids[0]].pushes_seen >= 1, "the router's PUSH", 10)
    await env.until(lambda: s.gateways[r.nids[1]].pushes_seen >= 1, "the router's PUSH to the server", 10)
    seen = c.gateways[r.nids[0]].pushes_seen
    for _ in range(5):
        assert await c.poll(r.nids[0])
    assert c.gateways[r.nids[0]].pushes_seen == seen, "PUSHes although nothing changed"


async def test_push_kinds(env):
    """PUSHes as 2.15 to master send them: other sizes, unknown feature bits, large NIDs, big endian."""
    c, r, s = await line(env)
    real = c.info
    many = [(N.parse(f"10.0.0.{i}@tcp"), UP) for i in range(2, 200)]
    v6 = N.parse("fd00::2@tcp")
    infos = {
        "198 NIs": wire.PingInfo(0x1e, 2, many),
        "unknown feature bits": wire.PingInfo(0x1e | 1 << 20, 2, [(c.nid, UP)]),
        "large NID": wire.PingInfo(0x3e, 3, [(c.nid, UP), (v6, UP)]),
        "primary large": wire.PingInfo(0x7e, 3, [(v6, UP), (c.nid, UP)]),
        "big endian": wire.PingInfo(0x1e, 2, [(c.nid, UP)], big_endian=True),
        "sequence number went back": wire.PingInfo(0x1e, 1, [(c.nid, UP)]),
        "discovery off": wire.PingInfo(0x0e, 2, [(c.nid, UP)]),
        "as before": real(),
    }
    for name, info in infos.items():
        c.info = lambda info=info: info
        assert await c.push(r.nids[0]), name
        assert await c.put(s.nid, pattern(1, 5000)), name
    c.info = real
    await env.settle()


async def test_many_pings(env):
    """Two GETs back to back, and fifty: each is answered (§3.8)."""
    c, r, s = await line(env)
    tasks = [c.task(c.ping(r.nids[0])) for _ in range(50)]
    await env.until(lambda: all(t.done() for t in tasks), "fifty replies")
    assert all(t.result() for t in tasks)


@cases("k217", "k215")
async def test_ageing(env, kind):
    """DOWN after A + P without a ping GET on that net, whatever the data; UP with the next one; each
    change PUSHed to the peers on all nets (§3.7)."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, check_interval=2, ping_timeout=2)
    c = await env.persona("c", CLIENT, profile=kind, check_interval=1.0)
    s = await env.persona("s", SERVER, check_interval=1000)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    gw, far = c.gateways[r.nids[0]], r.nids[1]
    asked = time.monotonic()
    r.spec.set_status(far, UP, DOWN)

    def word():
        return gw.info.statuses()[far]

    pushes = gw.pushes_seen
    while time.monotonic() < asked + 3.0:       # data does not count
        assert await c.put(s.nid, pattern(1, 3000)) and await s.get(c.nid, 500)
        assert word() == UP, "DOWN before A + P"
    await env.until(lambda: word() == DOWN, "tcp1 DOWN", 5)
    assert time.monotonic() - asked >= 3.5, "DOWN before A + P"
    await env.until(lambda: gw.pushes_seen > pushes, "PUSH of the change to the client", 3)
    await env.until(lambda: s.gateways[far].info.statuses()[far] == DOWN, "PUSH of the change to the server", 3)
    assert not c.alive_routes(N.parse_net("tcp1")), "the client's route must be down"
    assert not await c.put(s.nid, b"x"), "no route: nothing is sent"
    r.spec.set_status(far, UP, DOWN)
    pushes = gw.pushes_seen
    assert await s.ping(far)
    await env.until(lambda: word() == UP, "tcp1 UP again", 3)
    await env.until(lambda: gw.pushes_seen > pushes, "PUSH of the change", 3)
    assert await c.put(s.nid, pattern(1, 3000))
    r.spec.set_status(r.nids[0], UP)
    await env.settle()


async def test_only_ingress_net(env):
    """A ping through the router raises the net it came in on, not the one it leaves by (§3.7)."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, check_interval=1, ping_timeout=1)
    c = await env.persona("c", CLIENT, check_interval=1000)
    s = await env.persona("s", SERVER, check_interval=1000)
    for n in r.nids:
        r.spec.set_status(n, UP, DOWN)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    words = c.gateways[r.nids[0]], s.gateways[r.nids[1]]
    await env.until(lambda: all(g.info.statuses() == {n: DOWN for n in r.nids} for g in words),
                    "both nets DOWN, and both sides told", 8)
    via = (c.nis[0], r.nids[0])
    assert await c.ping(s.nid, via=via)
    for g in words:
        await env.until(lambda g=g: g.info.statuses() == {r.nids[0]: UP, r.nids[1]: DOWN},
                        "tcp UP, tcp1 still DOWN", 3)


async def test_link_down(env):
    """The link of an NI goes down: DOWN is PUSHed within a second or two; link up alone changes nothing,
    a ping on that net does (§3.7, §16)."""
    env.need_millrace()
    c, r, s = await line(env)
    gw, far = c.gateways[r.nids[0]], r.nids[1]
    r.spec.set_status(far, UP, DOWN)
    port = env.fabric.ports["r", "eth1"]
    env.fabric.link(port, False)
    try:
        await env.until(lambda: gw.info.statuses()[far] == DOWN, "PUSH of DOWN after link down", 5)
    finally:
        env.fabric.link(port, True)

    async def up():
        await s.ping_get(far, 272, timeout=2)
        return gw.info.statuses()[far] == UP
    await env.until_async(up, "UP after a ping on that net", 20, 0.5)
    assert await c.put(s.nid, pattern(1, 3000))


async def test_routing_off(env):
    """0x1e in the ping info, routed messages swallowed, the connection stays (§3.9)."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, routing=False)
    c = await env.persona("c", CLIENT)
    s = await env.persona("s", SERVER)
    join(c, r, "tcp1")
    await env.until(lambda: c.gateways[r.nids[0]].discovered, "gateway discovered")
    await env.until(lambda: len(c.conns()) == 3, "three connections")
    assert not c.gateways[r.nids[0]].info.routing and not c.alive_routes((2, 1))
    via = (c.nis[0], r.nids[0])
    before = await r.drops()
    assert not await c.put(s.nid, pattern(1, 100), via=via, timeout=1)
    assert not await c.put(s.nid, pattern(1, 200000), via=via, timeout=1)
    await env.until(lambda: c.zc_acked == 1, "ZC-ACK of the dropped message")
    after = await r.drops()
    assert after["routing_disabled"] - before["routing_disabled"] == 2, after
    assert len(env.ledger.forget(lambda e: e.header.dst == s.nid)) == 2
    assert await c.ping(r.nids[0]) and len(c.closes) == 0


async def test_router_checks_gateways(env):
    """Millrace as a client of another router: GET and PUSH at its interval, traffic over two hops,
    the second gateway when the first dies (§3.8, §3.10)."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, check_interval=2, ping_timeout=2, timeout=5, routes=[
        {"net": "tcp9", "gateway": "10.0.1.7@tcp1", "priority": 0},
        {"net": "tcp9", "gateway": "10.0.1.8@tcp1", "priority": 1}])
    r.spec.gateways = {N.parse("10.0.1.7@tcp1"), N.parse("10.0.1.8@tcp1")}
    for n in r.nids:
        r.spec.set_status(n, UP, DOWN)
    g1 = await env.persona("g1", "10.0.1.7@tcp1", "10.9.0.7@tcp9", routing=True, check_interval=1.0)
    g2 = await env.persona("g2", "10.0.1.8@tcp1", "10.9.0.8@tcp9", routing=True, check_interval=1.0)
    c = await env.persona("c", CLIENT, check_interval=1.0)
    s = await env.persona("s", "10.9.0.2@tcp9")
    c.add_route(N.parse_net("tcp9"), r.nids[0], hop=2)
    s.add_route(N.parse_net("tcp"), g1.nis[1].nid, check=False)
    for g in (g1, g2):
        await env.until(lambda g=g: g.received["GET"] >= 1, f"{g.name}: a GET of the router")
        g.add_route(N.parse_net("tcp"), r.nids[1])  # checked: an NI that nobody pings is DOWN after 4 s
    await env.bring_up(c, g1, g2)
    for g in (g1, g2):
        await env.until(lambda g=g: g.received["GET"] >= 3, f"{g.name}: three GETs of the router", 12)
    used = g2.received["PUT"]
    for size in (0, 5000, 200000):
        assert await c.put(s.nid, pattern(1, size)) and await s.get(c.nid, size)
    assert g2.received["PUT"] - used <= 2, "traffic went over the gateway of worse priority"

    async def all_up():  # a persona that ends while it dials is a fault to the other one
        await env.until(lambda: len(s.conns()) == 3, "s: all connections with its gateway")
    await all_up()
    env.nodes.remove(g1)
    g1.stop()
    s.routes.clear()
    s.add_route(N.parse_net("tcp"), g2.nis[1].nid, check=False)

    async def works():
        ok = await c.put(s.nid, pattern(2, 100), timeout=2)
        if not ok:
            env.ledger.forget(lambda e: e.header.dst == s.nid)
        return ok
    await env.until_async(works, "traffic over the second gateway", 20)
    assert await s.get(c.nid, 70000)
    await all_up()
    g2.stop()
    env.nodes.remove(g2)
    before = await r.drops()

    async def dropped():
        await c.put(s.nid, pattern(2, 100), ack=False)
        now = await r.drops()
        return now["no_live_route"] > before["no_live_route"]
    await env.until_async(dropped, "no_live_route counted", 20, 0.3)
    env.ledger.forget(lambda e: True)


async def test_routes_at_run_time(env):
    """route_add and route_del over RPC take effect at once."""
    env.need_millrace()
    c, r, s = await line(env)
    g = await env.persona("g", "10.0.1.7@tcp1", "10.9.0.7@tcp9", routing=True)
    x = await env.persona("x", "10.9.0.2@tcp9")
    x.add_route(N.parse_net("tcp"), g.nis[1].nid, check=False)
    g.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    r.spec.gateways = {g.nis[0].nid}
    via = (c.nis[0], r.nids[0])
    before = await r.drops()
    assert await c.put(x.nid, b"1", ack=False, via=via)

    async def counted():
        return (await r.drops())["no_route"] == before["no_route"] + 1
    await env.until_async(counted, "no_route counted")
    env.ledger.forget(lambda e: e.header.dst == x.nid)
    await r.rpc("route_add", net="tcp9", gateway=str(g.nis[0].nid), hop=1, priority=0)
    assert await c.put(x.nid, b"2", via=via)
    assert await c.get(x.nid, 50000, via=via)
    await r.rpc("route_del", net="tcp9", gateway=str(g.nis[0].nid))
    assert await c.put(x.nid, b"3", ack=False, via=via)

    async def counted_again():
        return (await r.drops())["no_route"] == before["no_route"] + 2
    await env.until_async(counted_again, "no_route counted again")
    env.ledger.forget(lambda e: e.header.dst == x.nid)
    await env.settle()


async def test_router_pings(env):
    """RPC `ping`: the router asks a node for its ping info."""
    env.need_millrace()
    c, r, s = await line(env)
    r.spec.gateways, r.spec.ping_sinks = {c.nid, s.nid}, {3960}
    result = await r.rpc("ping", nid=str(s.nid))
    assert "10.0.1.2@tcp1" in str(result), result
    assert s.received["GET"] == 1


async def test_drop_asym_route(env):
    """With drop_asym_route a message for the router is dropped if its source's net has no route through its sender (§4.2 row 13)."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, routes=[{"net": "tcp9", "gateway": "10.0.1.7@tcp1"}])
    r.spec.gateways = {N.parse("10.0.1.7@tcp1")}
    g1 = await env.persona("g1", "10.0.1.7@tcp1", "10.9.0.7@tcp9", routing=True)
    g2 = await env.persona("g2", "10.0.1.8@tcp1", "10.9.0.8@tcp9", routing=True)
    far = await env.persona("far", "10.9.0.2@tcp9")
    await env.until(lambda: g1.received["GET"] >= 1, "the check of g1")

    async def dropped_as(gateway, reason):
        before = (await r.drops())[reason]
        far.routes.clear()
        far.add_route(N.parse_net("tcp1"), gateway.nis[1].nid, check=False)
        await far.put(r.nids[1], b"1", ack=False)

        async def counted():
            return (await r.drops())[reason] == before + 1
        await env.until_async(counted, f"{reason} counted for {gateway.name}")
    for value, reason in ((0, "put_no_match"), (1, "asym_route"), (0, "put_no_match")):
        await r.rpc("global_set", drop_asym_route=value)
        await dropped_as(g2, reason)
        await dropped_as(g1, "put_no_match")
    env.ledger.forget(lambda e: e.header.dst == r.nids[1])


async def test_check_routers_before_use(env):
    """The router is ready when its gateways were checked, and the routes of one that did not answer are down (§3.8)."""
    env.need_millrace()
    g = await env.persona("g", "10.0.1.7@tcp1", "10.9.0.7@tcp9", routing=True)
    r = env.prepare("r", *ROUTER, ping_timeout=3, extra="  check_routers_before_use: true\n",
                    routes=[{"net": "tcp8", "gateway": "10.0.1.8@tcp1"}, {"net": "tcp9", "gateway": "10.0.1.7@tcp1"}])
    g.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    r.spec.gateways = {g.nis[0].nid}
    await r.start()
    for retries in (3, 4, 5):  # each replaces the document while the start waits
        await r.rpc("global_set", retry_count=retries)
    await r.ready()
    routes = {x["net"]: x["state"] for x in (await r.rpc("route_get"))["route"]}
    assert routes == {"tcp8": "down", "tcp9": "up"}, routes
