# SPDX-License-Identifier: BSD-3-Clause
"""Messages through the router, both ways, between kernel personas."""

import re

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import cases, deadline, join, line, routes_up, traffic
from lnetpy.socklnd import close_socket


@cases("k217-k217", "k215-k217", "k217-k215", "k215-k215")
async def test_both_ways(env, kinds):
    c, r, s = await line(env, *kinds.split("-"), full=False)
    info = await c.ping(s.nid)
    assert info and info.statuses() == {s.nid: wire.UP}, info
    assert await s.ping(c.nid)
    assert await c.discover(s.nid)
    await env.until(lambda: s.acked_seq.get(c.nid) == s.seq, "server pushed back through the router")
    for size in (0, 1, 64, 927, 928, 4096, 16384, 65535, 65536, 1 << 20):
        for a, b in ((c, s), (s, c)):
            assert await a.put(b.nid, pattern(size, size)), (a.name, size)
            assert await a.get(b.nid, size), (a.name, size)
    assert await c.put(s.nid, b"no ack wanted", ack=False)
    await env.settle()
    assert not env.problems, env.problems
    # The router used the connections that the end nodes made, and made none of its own (socklnd §3.2).
    assert all(x.active for n in (c, s) for x in n.conns()), [str(x) for n in (c, s) for x in n.conns()]
    assert c.zc_acked >= 8 and s.zc_acked >= 8
    limit = min(c.profile.timeout, s.profile.timeout) / 4
    assert max(c.zc_slowest, s.zc_slowest) < limit, (c.zc_slowest, s.zc_slowest)


@deadline(150)
@cases("k217-k217", "k215-k217")
async def test_10000_mixed(env, kinds):
    c, r, s = await line(env, *kinds.split("-"))
    ends = [c.task(traffic(env, a, b, 5000, seed=seed)) for seed, (a, b) in enumerate(((c, s), (s, c)))]
    await env.until(lambda: all(t.done() for t in ends) or env.problems, "10,000 requests", 140)
    await env.settle(20)
    assert env.ledger.sent == env.ledger.received, (env.ledger.sent, env.ledger.received)
    assert env.ledger.received >= 10000
    if not env.reference:
        drops = await r.drops()
        assert not any(drops.values()), {k: v for k, v in drops.items() if v}
        # Everything between the personas was routed; pings and pushes of the router itself were not. A message counts when
        # the router is through with it, which on ports is when its last byte was acknowledged.
        await env.until_async(lambda: all_routed(env, r), "all that was received is counted", 5)
        assert (await r.stats())["drop_count"] == 0
    env.log(f"{env.ledger.received} messages")


async def all_routed(env, r):
    count = (await r.stats())["route_count"]
    assert count <= env.ledger.received, (count, env.ledger.received)
    return count == env.ledger.received


@cases(1, 4)
async def test_conns_per_peer(env, cpp):
    c, r, s = await line(env, cpp=cpp, full=False, router={"conns_per_peer": cpp})
    tasks = [c.task(traffic(env, a, b, 200, workers=16, seed=7, big=0.05)) for a, b in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 50)
    await env.settle(20)
    for n in (c, s):
        await env.until(lambda n=n: "".join("_CIO"[x.ctype] for x in n.conns()) == "C" + "IO" * cpp,
                        f"{n.name}: C, I, O, I, O, ... in that order")
    if cpp > 1:
        # The router spreads bulk over its BULK_OUT connections, our BULK_IN (socklnd §3.3).
        used = [x for x in s.conns() if x.ctype == wire.BULK_IN and x.received > 10000]
        assert len(used) >= 2, [(str(x), x.received) for x in s.conns()]


async def test_router_dials(env):
    """A node that never spoke first: the router makes the three connections, C, I, O (§3.1, §3.4)."""
    r = await env.router("r", "10.0.0.1@tcp", "10.0.1.1@tcp1")
    c = await env.persona("c", "10.0.0.2@tcp")
    s = await env.persona("s", "10.0.1.2@tcp1")
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    assert await c.ping(s.nid)
    await env.until(lambda: len(s.conns()) == 3, "three connections from the router")
    ports = sorted((x.remote[1] for x in s.conns()), reverse=True)
    assert not any(x.active for x in s.conns())
    assert all(512 <= p <= 1023 for p in ports) and len(set(ports)) == 3, ports
    assert [x.ctype for x in s.conns()] == [wire.CONTROL, wire.BULK_OUT, wire.BULK_IN]
    for size in (0, 4096, 1 << 20):
        assert await c.put(s.nid, pattern(1, size)) and await s.get(c.nid, size), size
    await env.settle()


async def test_restart_of_client(env):
    """A node restarts: new incarnation, the same four-tuples from 1023 down (§2.5 #4, §7.2)."""
    c, r, s = await line(env)
    assert await c.put(s.nid, pattern(1, 100000))
    await env.settle()
    for how in (False, True):
        c.stop(rst=how)
        env.nodes.remove(c)
        c = await env.persona("c", "10.0.0.2@tcp")
        join(c, r, "tcp1")
        await env.bring_up(c)
        assert await c.ping(s.nid)
        assert await c.put(s.nid, pattern(2, 70000)) and await s.get(c.nid, 70000)
        await env.settle()


async def test_vanished_client(env):
    """A node loses power and comes back on the same ports while the router still has the old
    connections: NONE for the new incarnation, the old ones closed, the next try works (§2.5 #4)."""
    env.need_millrace()
    c, r, s = await line(env)
    assert await c.put(s.nid, pattern(1, 1000))
    await env.settle()
    r.spec.allow_none = True
    # The old connections stay established in the namespace, unseen by the new life of the node.
    old = [(x, x.sock) for x in c.conns()]
    for x, _ in old:
        for t in x.tasks:
            t.cancel()
    for t in list(c.tasks) + list(c.nis[0].tasks):
        t.cancel()
    close_socket(c.nis[0].listener)
    env.nodes.remove(c)
    c2 = await env.persona("c", "10.0.0.2@tcp")
    join(c2, r, "tcp1")
    await env.bring_up(c2)
    peer = c2.nis[0].peer(r.nids[0])
    assert peer.nones == 1, f"{peer.nones} answers of NONE, a kernel gives one"
    assert await c2.ping(s.nid) and await c2.put(s.nid, pattern(2, 70000)) and await s.get(c2.nid, 70000)
    await env.settle()
    for x, sock in old:
        sock.settimeout(5)
        try:
            while sock.recv(65536):
                pass
        except ConnectionResetError:
            pass
        sock.close()


async def test_restart_of_router(env):
    """The router restarts: new incarnations and interface cookie, nodes come back (lnet-core §12.1)."""
    env.need_millrace()
    c, r, s = await line(env)
    assert await c.put(s.nid, pattern(1, 100000))
    await env.settle()
    await env.connected()
    r.spec.allow_rst = True
    r.crash()
    if env.transport == "port":     # nobody ends them in its place: the next life answers with RST to what it does not know
        await r.restart()
        await env.until_async(lambda: rst_by_asking(c, s), "connections gone", 20)
    else:
        await env.until(lambda: not c.conns() and not s.conns(), "connections gone")
        await r.restart()
    r.spec.allow_rst = False
    for n in (c, s):
        for p in n.nis[0].peers.values():
            p.retry_at = 0
        assert await n.poll(next(iter(n.gateways))), n.name
    assert await c.ping(s.nid) and await s.ping(c.nid)
    assert await c.put(s.nid, pattern(2, 100000))
    await env.settle()


async def rst_by_asking(*nodes):
    for n in nodes:
        if n.conns():
            n.task(n.poll(next(iter(n.gateways))))
    return not any(n.conns() for n in nodes)


async def test_graceful_stop(env):
    """SIGTERM: FIN on every connection, no reset, exit code 0 (socklnd §7.1)."""
    env.need_millrace()
    c, r, s = await line(env)
    assert await c.put(s.nid, pattern(1, 100000))
    await env.settle()
    await r.stop()
    await env.until(lambda: not c.conns() and not s.conns(), "connections closed")
    assert all(how.endswith("fin") for n in (c, s) for _, how in n.closes), [h for n in (c, s) for _, h in n.closes]


async def test_no_rdma_device(env):
    """An NI on o2ib for which the host has nothing: it says so, nobody is told of that NI, and the rest routes."""
    env.need_millrace()
    absent = N.parse("10.9.0.1@o2ib")
    c, r, s = await line(env, router={"absent": [absent]})
    found = (await r.rpc("verbs_get"))["absent"]
    assert [x["nid"] for x in found] == [str(absent)] and re.search("RDMA device|no interface", found[0]["reason"]), found
    assert f"event=ni_absent nid={absent}" in r.text(), r.tail(20)
    assert await c.ping(s.nid) and await s.ping(c.nid)
    assert await c.put(s.nid, pattern(1, 100000)) and await s.get(c.nid, 70000)
    await env.settle()
    await c.put(N.parse("10.9.0.2@o2ib"), pattern(2, 1000), ack=False, via=(c.nis[0], r.nids[0]))

    async def dropped():
        return (await r.drops())["no_route"] == 1
    await env.until_async(dropped, "what is for that net has no route")
    env.ledger.forget(lambda e: True)


async def test_keepalives(env):
    """Keepalives from the nodes change nothing; none are answered (§3.5)."""
    c, r, s = await line(env, keepalive=0.4, keepalive_gap=0.2)
    await env.until(lambda: c.keepalives_sent >= 5 and s.keepalives_sent >= 5, "five keepalives each")
    assert await c.ping(s.nid) and await s.get(c.nid, 70000)
    await env.settle()
    assert len(c.closes) == 0 and len(s.closes) == 0


@deadline(60)
async def test_own_keepalives(env):
    """An idle router sends {0, 1} on its BULK_IN after the time that is set for it, then no more often than every 10 s (§3.5).
    That it is 30 s if nothing is set is tried with a clock of its own, in the unit tests."""
    env.need_millrace()
    silence = 4
    c, r, s = await line(env, keepalive=0, router={"extra": f"  keepalive: {silence}\n"})
    started = max(n.conns()[0].ni.peer(n.conns()[0].peer.nid).last_alive for n in (c, s))
    await env.until(lambda: c.keepalives_seen and s.keepalives_seen, "a keepalive for each", 30)
    assert env.now() - started > silence - 0.5, "keepalive came early"
    await env.until(lambda: c.keepalives_seen >= 2 and s.keepalives_seen >= 2, "the next one", 30)
    assert env.now() - started > silence + 10 - 0.5, "the next keepalive came early"
    assert len(c.conns()) == 3 and await c.ping(s.nid)
    await env.settle()


async def test_zero_copy_cookies(env):
    """Cookies count up from 2 over all connections and every one is acked once, on its connection."""
    c, r, s = await line(env, zc_min=2048)
    for i in range(40):
        assert await c.put(s.nid, pattern(i, 2048 + i), ack=i % 2 == 0)
    await env.settle()
    peer = c.nis[0].peer(r.nids[0])
    assert peer.next_cookie == 42 and c.zc_acked == 40, (peer.next_cookie, c.zc_acked)


async def test_two_routers_in_line(env):
    """tcp - A - tcp1 - B - tcp2: multi-hop routes, the routers check each other."""
    await two_in_line(env)


async def two_in_line(env):
    a = await env.router("ra", "10.0.0.1@tcp", "10.0.1.1@tcp1",
                         routes=[{"net": "tcp2", "gateway": "10.0.1.2@tcp1", "hop": 1}])
    b = await env.router("rb", "10.0.1.2@tcp1", "10.0.2.2@tcp2",
                         routes=[{"net": "tcp", "gateway": "10.0.1.1@tcp1", "hop": 1}])
    c = await env.persona("c", "10.0.0.5@tcp")
    s = await env.persona("s", "10.0.2.5@tcp2")
    c.add_route(N.parse_net("tcp2"), a.nids[0], hop=2)
    s.add_route(N.parse_net("tcp"), b.nids[1], hop=2)
    await env.bring_up(c, s)
    await routes_up(env, a, b)
    for size in (0, 1000, 4096, 1 << 20):
        assert await c.put(s.nid, pattern(1, size), timeout=20) and await s.get(c.nid, size), size
    assert await c.ping(s.nid)
    tasks = [c.task(traffic(env, x, y, 150, seed=5)) for x, y in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 50)
    await env.settle()


async def test_opaque_fields(env):
    """Every union, pid, portal and handle goes through unchanged, sense or not (lnet-core §2.3, §4.4), without the guard."""
    import random
    rules = ("ping_offset", "push_offset", "push_size", "get_size", "unused_bytes")
    c, r, s = await line(env, router={"extra": "  guard: {" + ", ".join(f"{x}: false" for x in rules) + "}\n"})
    rng = random.Random(11)
    via = (c.nis[0], r.nids[0])
    s.on_message = lambda *_: True      # only judged, not acted on
    for i in range(200):
        mtype = i % 4
        size = rng.choice((0, 1, 500, 3000)) if mtype in (wire.PUT, wire.REPLY) else 0
        hdr = wire.Header(s.nid, c.nid, mtype, size, rng.randbytes(40), rng.randrange(1 << 32), rng.randrange(1 << 32))
        c.send(hdr, pattern(i, size), via=via)
    await env.settle()


async def test_other_net_types(env):
    """Nets whose driver is not there are routed for all the same (lnet-core §1.3)."""
    env.need_millrace()
    nets = ("kfi", "gni3", "o2ib7", "ptlf", "efa", "bxi3f2")
    r = await env.router("r", "10.0.0.1@tcp", "10.0.1.1@tcp1",
                         check_interval=2, routes=[{"net": n, "gateway": "10.0.1.7@tcp1"} for n in nets])
    g = await env.persona("g", "10.0.1.7@tcp1", routing=True)
    r.spec.gateways = {g.nid}
    real = g.info
    g.info = lambda: wire.PingInfo(0x1a, 2, real().nis + [(N.parse(f"9@{n}") if n[:4] not in ("o2ib", "efa") else
                                                          N.parse(f"10.7.7.7@{n}"), wire.UP) for n in nets])
    c = await env.persona("c", "10.0.0.2@tcp")
    c.add_route((2, 1), r.nids[0])
    await env.bring_up(c)
    via = (c.nis[0], r.nids[0])
    arrived = []
    g.on_message = lambda ni, conn, hdr, payload: hdr.dst != g.nid and not arrived.append(hdr.dst)
    for net in nets:
        dst = N.parse(f"10.7.7.8@{net}" if net[:4] in ("o2ib", "efa") else f"4294967294@{net}")

        async def reached(dst=dst):     # a first try may come before the router has found its gateway alive
            c.send(wire.Header(dst, c.nid, wire.PUT, 5, wire.put_union(wire.NO_HANDLE, 1, 7)), b"hello", via=via)
            return dst in arrived
        await env.until_async(reached, f"{dst} at the gateway", 10, 0.3)
    env.ledger.forget(lambda e: e.header.dst in arrived)
