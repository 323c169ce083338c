# SPDX-License-Identifier: BSD-3-Clause
"""Scenes of the load tests: crowds around one router, or around two in line, and what they do to each other."""

from .crowd import MASK, Rest, pairs
from .scene import routes_up

NEAR, FAR = "10.1.0.1@tcp", "10.2.0.1@tcp1"     # a router, on nets with room for hundreds of nodes
SECOND, THIRD = "10.2.0.2@tcp1", "10.3.0.1@tcp2"    # the second of two in line
CLIENTS, WRITERS, LORIS, BYSTANDERS = ("10.1.1.1@tcp", "10.1.2.1@tcp", "10.1.4.1@tcp", "10.1.3.1@tcp")
SERVERS, HUNG, FAR_BYSTANDERS = "10.2.1.1@tcp1", "10.2.2.1@tcp1", "10.2.3.1@tcp1"


def small_sockets(env, *hosts):
    """Before they open any: sockets of 64 KiB. In those of the usual size whole messages find room, megabytes for each
    connection, and it takes long until a router has to hold what its neighbour does not take."""
    for name in hosts:
        env.fabric.host(name).sysctl(net__ipv4__tcp_wmem="'4096 16384 65536'", net__ipv4__tcp_rmem="'4096 65536 65536'")


async def wide_router(env, name="r", nids=(NEAR, FAR), **kw):
    """A router whose nets are as wide as those of crowds, and its start values."""
    r = await env.router(name, *nids, bits=MASK if env.transport == "port" else None, **kw)
    for i, n in enumerate(r.nids if env.transport == "kernel" else []):
        r.ns.ip(f"route add {n.ip.rsplit('.', 2)[0]}.0.0/{MASK} dev eth{i} src {n.ip}")
    return r, await Rest.of(r)


async def two_sides(env, clients=20, servers=4, **kw):
    """A router with clients on one side and servers on the other, and a pair of bystanders on both."""
    small_sockets(env, "r", "s")
    r, rest = await wide_router(env, **kw)
    c, s = await env.crowd("c", CLIENTS, clients), await env.crowd("s", SERVERS, servers)
    near, far = await env.crowd("near", BYSTANDERS, 2), await env.crowd("far", FAR_BYSTANDERS, 2)
    for crowd, gateway in ((c, NEAR), (s, FAR), (near, NEAR), (far, FAR)):
        await crowd.nodes(gateway)
    return r, rest, c, s, (near, far)


async def line(env, **kw):
    """tcp - r1 - tcp1 - r2 - tcp2, and a crowd at either end."""
    # They look at each other often; a net on which crowds ping once in a minute must not age for that.
    settings = {"check_interval": 2, "ping_timeout": 120, **kw}
    small_sockets(env, "r1", "r2")
    r2, rest2 = await wide_router(env, "r2", (SECOND, THIRD), routes=[{"net": "tcp", "gateway": FAR}], **settings)
    r1, rest1 = await wide_router(env, "r1", (NEAR, FAR), routes=[{"net": "tcp2", "gateway": SECOND}], **settings)
    a, b = await env.crowd("a", CLIENTS, 8), await env.crowd("b", "10.3.1.1@tcp2", 8)
    await a.nodes(NEAR)
    await b.nodes(THIRD)
    await routes_up(env, r1, r2, timeout=10)
    return (r1, rest1), (r2, rest2), a, b


async def cross_traffic(a, b, **kw):
    """PUTs and GETs of all sizes from each node of both sides to the other's."""
    out = []
    for kind in ("put", "get"):
        out.append(await a.load(pairs(a.nids, b.nids), kind=kind, **kw))
        out.append(await b.load(pairs(b.nids, a.nids[1:] + a.nids[:1]), kind=kind, **kw))
    out.append(await a.load(pairs(a.nids, b.nids[3:] + b.nids[:3]), size=0, **kw))
    out.append(await b.load(pairs(b.nids, a.nids[3:] + a.nids[:3]), size=1 << 20, **kw))
    return out


async def both_ways(c, s, window=2, **kw):
    """PUT and GET of all sizes from clients to servers, and PUT back."""
    return [await c.load(pairs(c.nids, s.nids), kind="put", window=window, **kw),
            await c.load(pairs(c.nids, s.nids[1:] + s.nids[:1]), kind="get", **kw),
            await s.load(pairs(s.nids * (len(c.nids) // len(s.nids)), c.nids), kind="send", **kw)]


async def stop(*loads):
    for load in loads:
        if load.crowd.alive():
            await load.stop()


async def gateways(*crowds):
    """(NID, gateway) -> its row, of all nodes with several gateways."""
    return {(nid, g["gateway"]): g for c in crowds for nid, rows in (await c.call("gateways")).items() for g in rows}


async def all_answered(env, crowds, of, timeout, what):
    """Until each node has had an answer over each of the gateways whose NIDs are in `of`, from now on."""
    before = await gateways(*crowds)

    async def answered():
        rows = await gateways(*crowds)
        return all(g["answers"] > before[key]["answers"] for key, g in rows.items() if key[1] in of)
    await env.until_async(answered, what, timeout)


async def until_done(env, load, more, what, timeout):
    """Until each flow of a load has had `more` further answers."""
    start = {f["id"]: f["done"] for f in await load.flows()}

    async def all_had():
        return all(f["done"] >= start[f["id"]] + more for f in await load.flows())
    await env.until_async(all_had, what, timeout)


async def until_quiet(env, load, timeout):
    """Until a load has brought nothing more into sockets for a second: its messages are held back."""
    last = [-1, env.now()]

    async def quiet():
        sent = (await load.sum())["sent"]
        if sent != last[0]:
            last[:] = [sent, env.now()]
        return env.now() - last[1] > 1.0
    await env.until_async(quiet, "the senders held back", timeout)


async def allowed(env, bar, *crowds):
    """A time bar on this machine as it is: three times as long with sanitizers, as many times as the router's threads were
    kept from a CPU, and longer by what the crowds themselves were late. On an idle machine that is next to nothing."""
    late = sum([(await c.state())["lag"] for c in crowds])
    if late > 0.1 * bar:
        env.result(f"the crowds were {late:.2f} s late")
    stretch = env.stretch()
    if stretch > 1.2:
        env.result(f"the router was {stretch:.1f} times as slow for want of a CPU")
    return bar * env.slower * stretch + 1.5 * late


async def undisturbed(env, load, row, bar=1.0):
    """A load went on since `row` was taken: all answered, none after more than `bar` seconds."""
    now = await load.sum()
    limit = await allowed(env, bar, load.crowd)
    assert now["done"] > row["done"], "the bystanders had no answer at all"
    assert not now["expired"] and not now["failed"], now
    assert now["slowest"] <= limit, f"{now['slowest']:.2f} s for a bystander's request"
    return now["slowest"]
