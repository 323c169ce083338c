# SPDX-License-Identifier: BSD-3-Clause
"""Changes under traffic: what they do not concern does not notice them, and nothing is lost. docs/config.md, docs/jsonrpc.md."""

import asyncio
import math

from lnetpy import nid as N
from lnetpy.control import as_yaml, clients, document, far_routes, listens, moved, never_held_up, \
    route_set, standing, until_routing
from lnetpy.control_scene import MANY_ROUTES, SIDE, crowded_router, live_gateways, steady, steady_line
from lnetpy.crowd import Books
from lnetpy.crowd_scene import stop, until_done
from lnetpy.scene import alone, cases, deadline

ROUNDS = 10


async def routes_of(client):
    rows, more = [], {}
    while True:
        page = await client.call("route_get", limit=2000, **more)
        rows += page["route"]
        if "cursor" not in page:
            return route_set(rows)
        more = {"cursor": page["cursor"]}


async def until_revision(env, client, pred, what, timeout=15):
    async def there():
        status = await client.call("config_status")
        return pred(status) and status
    return await env.until_async(there, what, timeout)


@alone
@deadline(60)
async def test_routes(env):
    """2,000 routes are applied, merged over, rolled back for want of a confirmation, confirmed, and deleted, under traffic of
    240 connections."""
    env.need_millrace()
    t = await steady(env)
    gateways = await live_gateways(env, 20)
    first, second = far_routes(MANY_ROUTES, gateways), far_routes(MANY_ROUTES, gateways[::-1], hop=3, priority=1)
    more = far_routes(100, gateways, first=5000)
    async with clients(t.router) as c:
        empty = await document(c)
        await t.watch(c)
        took = {}

        async def apply(name, timeout=20, **params):
            begun = env.now()
            result = await c.call("config_apply", timeout=timeout, name=name, **params)
            took[name] = env.now() - begun
            return result

        await apply("replace", text=t.router.yaml(routes=first), mode="replace")
        assert await routes_of(c) == route_set(first)
        held = await document(c)
        await apply("merge", text=as_yaml(more), mode="merge")
        assert await routes_of(c) == {**route_set(first), **route_set(more)}
        await apply("delete", text=as_yaml(more), mode="delete")
        assert await routes_of(c) == route_set(first) and await document(c) == held
        await apply("dry run", text=t.router.yaml(), mode="replace", dry_run=True)
        assert await document(c) == held
        # Other hops, priorities and gateways for every net, and nobody confirms
        soon = 1 + math.ceil(5 * max(took.values()))    # s: this machine has looked at it by then
        await apply("to be confirmed", text=t.router.yaml(routes=second), mode="replace", confirm_s=soon)
        assert await routes_of(c) == route_set(second)
        assert (await c.call("config_status"))["pending_confirm_s"] <= soon
        await until_revision(env, c, lambda s: s.get("pending_confirm_s") is None, "rolled back by itself", 10 + soon)
        assert await routes_of(c) == route_set(first) and await document(c) == held
        await apply("confirmed", text=t.router.yaml(routes=second), mode="replace", confirm_s=30)
        await c.call("config_confirm")
        assert (await c.call("config_status")).get("pending_confirm_s") is None
        await apply("rolled back by hand", text=t.router.yaml(routes=first), mode="replace", confirm_s=30)
        await c.call("config_rollback")
        assert await routes_of(c) == route_set(second)
        await apply("no routes", text=t.router.yaml(), mode="replace")
        assert await routes_of(c) == {} and await document(c) == empty
        worst = await t.unnoticed(c)
    env.result(f"{await t.end()}; slowest request {worst:.2f} s; slowest change {max(took, key=took.get)} "
               f"{1000 * max(took.values()):.0f} ms")


@alone
@deadline(60)
async def test_route_in_use(env):
    """2,000 routes come and go around the one all traffic needs, which stays in both documents: no message finds it missing."""
    env.need_millrace()
    (r1, rest1), (r2, rest2), a, b, loads = await steady_line(env)
    await until_done(env, loads[0], 1, "traffic", 20)
    books = await Books.open([r1, r2], [a, b])
    own = r1.settings["routes"]
    many = own + far_routes(MANY_ROUTES, await live_gateways(env, 20), first=2000)
    async with clients(r1) as c:
        before = await standing(c)
        for _ in range(3):
            await c.call("config_apply", text=r1.yaml(routes=many), mode="replace")
            await c.call("config_apply", text=r1.yaml(), mode="replace")
        rows = (await c.call("route_get"))["route"]
        assert [(x["net"], x["state"]) for x in rows] == [("tcp2", "up")], rows
        await until_done(env, loads[0], 1, "traffic goes on", 20)
        assert not moved(before, await standing(c)), moved(before, await standing(c))[:3]
    await stop(*loads)
    env.result(await books.check(timeout=40))
    for rest in (rest1, rest2):
        await rest.wait()


@alone
@deadline(60)
@cases("net_add", "config_apply")
async def test_ni(env, how):
    """An NI on another net comes, is used, and goes, ten times; the other nets' peers do not notice."""
    env.need_millrace()
    t = await steady(env)
    nid = N.parse(SIDE)
    env.fabric.attach("x", "tcp5", "eth0", "10.5.0.9/24")

    async def change(client, there):
        if how == "net_add":
            if there:
                await client.call("net_add", net="tcp5", interface="eth5")
            else:
                await client.call("net_del", net="tcp5")
        else:
            nids, t.router.nids = t.router.nids, t.router.nids + [nid] * there
            try:
                await client.call("config_apply", text=t.router.yaml(), mode="replace")
            finally:
                t.router.nids = nids

    async with clients(t.router) as c, clients(t.router) as watcher:
        await watcher.call("events_subscribe", types=["ni_added", "ni_removed"])
        before = await document(c)
        await t.watch(c)
        took = []
        for _ in range(ROUNDS):
            begun = env.now()
            await change(c, True)
            nets = {n["net type"]: n for n in (await c.call("net_get"))["net"]}
            assert [ni["nid"] for ni in nets["tcp5"]["local NI(s)"]] == [SIDE], nets["tcp5"]
            assert await listens(env, "x", nid), "nobody listens on the new NI"
            await change(c, False)
            took.append(env.now() - begun)
            assert "tcp5" not in [n["net type"] for n in (await c.call("net_get"))["net"]]
        assert await document(c) == before
        await env.until(lambda: len(watcher.events) >= 2 * ROUNDS, "events of the NI", 5)
        assert [e["type"] for e in watcher.events] == ["ni_added", "ni_removed"] * ROUNDS, watcher.events
        worst = await t.unnoticed(c)
    env.result(f"{await t.end()}; slowest request {worst:.2f} s; slowest round {1000 * max(took):.1f} ms")


@alone
@deadline(60)
async def test_settings(env):
    """Buffers, admission rules and every global setting change and change back under traffic."""
    env.need_millrace()
    t = await steady(env)
    async with clients(t.router) as c:
        await t.watch(c)
        start = {m: await c.call(m) for m in ("admission_get", "global_get")}
        for big in (True, False, True, False):
            n = 2 if big else 1
            await c.call("buffers_set", tiny=512 * n, small=512 * n, large=64 * n)
            await c.call("admission_set", egress_share=70 if big else start["admission_get"]["egress_share"],
                         buffer_wait=9 if big else start["admission_get"]["buffer_wait"])
            old = start["global_get"]
            old = old.get("global", old)
            await c.call("global_set", transaction_timeout=old["transaction_timeout"] + 10 * big,
                         router_sensitivity=50 if big else old["router_sensitivity"])
            await c.call("net_set", net="tcp", lnd_timeout=60 if big else 50)
        now = {m: await c.call(m) for m in start}
        assert now == start, (start, now)
        worst = await t.unnoticed(c)
    env.result(f"{await t.end()}; slowest request {worst:.2f} s")


@alone
@deadline(60)
async def test_routing_off_and_on(env):
    """Off: what comes for others is refused by name. On: traffic is back on the same connections. Each message is one of both."""
    env.need_millrace()
    t = await steady(env, patience=2.0, check_interval=1, ping_timeout=1)
    async with clients(t.router) as c:
        lives = [(await x.state())["lives"] for x in t.crowds]
        await c.call("routing_set", enable=0)
        await until_routing(env, c, 0)

        async def refused():
            return (await t.books.drops()).get("routing_disabled", 0) > 20
        await env.until_async(refused, "messages refused by name", 10)
        done = (await t.loads[0].sum())["done"]
        await asyncio.sleep(1)
        assert (await t.loads[0].sum())["done"] - done <= 2, "forwarded with routing off"
        assert set(await t.books.drops()) == {"routing_disabled"}, await t.books.drops()
        await c.call("routing_set", enable=1)
        await until_routing(env, c, 1)
        await until_done(env, t.loads[0], 1, "traffic is back", 20)
        assert lives == [(await x.state())["lives"] for x in t.crowds], "nodes had to connect again"
    env.result(await t.end())


@alone
@deadline(100, long=300)
async def test_with_10000_peers(env):
    """A router with 10,000 peers changes 2,000 routes and switches routing: no callback holds a reactor for 100 us."""
    env.need_millrace()
    peers = 10000 if env.long else 3000
    r, names, _ = await crowded_router(env, peers, routes=0, memory=512)
    async with clients(r) as c:
        took = []

        async def change_all():
            for routes in (far_routes(MANY_ROUTES, names), far_routes(MANY_ROUTES, names, hop=4), []):
                begun = env.now()
                await c.call("config_apply", text=r.yaml(routes=routes), mode="replace", timeout=30)
                took.append(env.now() - begun)
                assert await routes_of(c) == route_set(routes)
            for enable in (0, 1):
                await c.call("routing_set", enable=enable)
        await never_held_up(env, c, change_all)
        env.result(f"{peers} peers; changes took {', '.join(f'{1000 * t:.0f}' for t in took)} ms")
