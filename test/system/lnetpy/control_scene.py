# SPDX-License-Identifier: BSD-3-Clause
"""Scenes of the control plane's tests: a router with thousands of peers or routes, and one under steady traffic."""

from .control import far_routes, moved, standing
from .crowd import Books, pairs
from .crowd_scene import CLIENTS, FAR, NEAR, SERVERS, allowed, cross_traffic, line, until_done, wide_router
from .wire import CONTROL

MANY_PEERS, MANY_ROUTES = 10000, 2000
HOME, ABROAD = "10.64.0.1@tcp", "10.65.0.1@tcp"     # a router's net on which thousands of nodes sit behind one host
HOST = "10.64.0.2/24"
GATEWAYS = "10.64.1.1@tcp"
SIDE = "10.5.0.1@tcp5"                              # an NI that comes and goes


async def crowded_router(env, peers=MANY_PEERS, routes=MANY_ROUTES, gateways=40, stay=0, **kw):
    """A router that knows `peers` peers, which have come and gone but for the first `stay`, and `routes` routes. Returns it
    with its gateways' NIDs and the crowd of those who came."""
    names = [f"10.64.1.{i + 1}@tcp" for i in range(gateways)]
    r = await env.router("r", HOME, FAR, routes=far_routes(routes, names), **kw)
    r.ns.ip(f"route add {ABROAD.rsplit('.', 2)[0]}.0.0/16 via {HOST.split('/')[0]}\n"
            f"route add 10.64.1.0/24 dev eth0 src {r.nids[0].ip}\nroute add 10.2.0.0/16 dev eth1 src {r.nids[1].ip}")
    crowd = await env.crowd("many", ABROAD, peers, host=HOST)
    if stay:
        await crowd.nodes(HOME, nids=crowd.nids[:stay], types=[CONTROL], pings=False, ahead=512)
    await crowd.visit(HOME, nids=crowd.nids[stay:], timeout=120)
    return r, names, crowd


class Steady:
    """Traffic over one router of 80 nodes with three connections each, and its accounts."""

    def __init__(self, env, router, rest, crowds, loads, books):
        self.env, self.router, self.rest, self.crowds, self.loads, self.books = env, router, rest, crowds, loads, books
        self.standing = None

    @classmethod
    async def of(cls, env, router, rest, c, s, timeout=20.0, rate=150):
        """Paced, so that two cores have room for changes and for what the crowds cost."""
        books = await Books.open([router], [c, s])
        every = len(c.nids) / rate
        loads = [await c.load(pairs(c.nids, s.nids), kind="put", window=2, timeout=timeout, every=3 * every),
                 await c.load(pairs(c.nids, s.nids[1:] + s.nids[:1]), kind="get", window=2, timeout=timeout, every=3 * every),
                 await s.load(pairs(s.nids * (len(c.nids) // len(s.nids)), c.nids), window=2, timeout=timeout,
                              every=3 * every, size="small")]
        self = cls(env, router, rest, [c, s], loads, books)
        await until_done(env, loads[0], 1, "traffic", 30)
        return self

    async def watch(self, client):
        """From now on nobody may notice anything."""
        self.standing = await standing(client)
        for c in self.crowds:
            await c.call("reset")
        return self

    async def unnoticed(self, client, bar=1.0):
        """Nobody has: same connections, nothing dropped, nothing late."""
        off = moved(self.standing, await standing(client))
        assert not off, f"{len(off)} peers noticed, first {off[0]}"
        limit = await allowed(self.env, bar, *self.crowds)
        worst = 0.0
        for load in self.loads:
            row = await load.sum()
            assert not row["expired"] and not row["failed"], row
            worst = max(worst, row["slowest"])
        for c in self.crowds:
            state = await c.state()
            assert state["lives"] == state["nodes"] and not state["closed"], state
        assert worst <= limit, f"a request took {worst:.2f} s"
        assert not await self.books.drops(), await self.books.drops()
        return worst

    async def end(self, exact=True, removed=()):
        for load in self.loads:
            await load.stop()
        seen = await self.books.check(exact=exact, timeout=40)
        if self.rest:
            await self.rest.wait(removed=removed)
        return seen


async def steady(env, clients=76, servers=4, patience=20.0, **kw):
    """A router with 240 connections of traffic, and a third interface that is on no net yet. Who has no answer after
    `patience` seconds goes on."""
    rate = kw.pop("rate", 150)
    r, rest = await wide_router(env, **kw)
    env.fabric.attach("r", "tcp5", "eth5", "10.5.0.1/24")
    c, s = await env.crowd("c", CLIENTS, clients), await env.crowd("s", SERVERS, servers)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    return await Steady.of(env, r, rest, c, s, timeout=patience, rate=rate)


async def steady_line(env):
    """The same over two routers: the first has a route that all traffic needs."""
    (r1, rest1), (r2, rest2), a, b = await line(env)
    return (r1, rest1), (r2, rest2), a, b, await cross_traffic(a, b, timeout=20, every=0.5)


async def live_gateways(env, count):
    """NIDs of routers on the clients' net that answer pings, so that routes through them are up. A dead one would be told of
    by drops of the router's own pings."""
    g = await env.crowd("g", "10.1.9.1@tcp", count)
    await g.nodes(NEAR, routing=True)
    return g.nids
