# SPDX-License-Identifier: BSD-3-Clause
"""A network of eight routers in two layers, with faults at random: every message arrives once, or is counted."""

import asyncio
import collections
import os
import random
import re
import signal

from lnetpy.crowd import Books, pairs
from lnetpy.crowd_scene import CLIENTS, all_answered, stop, wide_router
from lnetpy.scene import alone, deadline, only, routes_up

SERVERS = "10.3.1.1@tcp2"
LAYERS = [[f"10.1.0.{1 + i}@tcp" for i in range(4)], [f"10.2.0.{1 + i}@tcp1" for i in range(4)]], \
    [[f"10.2.0.{11 + i}@tcp1" for i in range(4)], [f"10.3.0.{1 + i}@tcp2" for i in range(4)]]
GIVE_UP, REQUEST = 4, 12.0      # s: LND timeout of routers and nodes; time for a request
# A net ages for as long as the checks of ten nodes, which come once a minute, and all at once, may leave it alone.
TIMES = {"check_interval": 2, "ping_timeout": 70, "timeout": GIVE_UP}


class Lives(Books):
    """The books of routers that are killed and started again: the drops of all their lives."""

    async def drops_of(self, router):
        """Of this life, and those that end() kept."""
        out = collections.Counter(await super().drops_of(router))
        out.update(getattr(router, "past", {}))
        return out

    def end(self, router, drops):
        router.past = collections.Counter(drops)


async def network(env):
    """10 clients on tcp - 4 routers - tcp1 - 4 routers - 10 servers on tcp2; each router has routes through all four of the other
    layer, each node through all four of its own net."""
    (near, inner), (outer, far) = LAYERS
    made = [await wide_router(env, f"a{i}", (near[i], inner[i]), state=True, **TIMES,
                              routes=[{"net": "tcp2", "gateway": g} for g in outer]) for i in range(4)]
    made += [await wide_router(env, f"b{i}", (outer[i], far[i]), state=True, **TIMES,
                               routes=[{"net": "tcp", "gateway": g} for g in inner]) for i in range(4)]
    await routes_up(env, *(r for r, _ in made), timeout=40)
    crowds = [await env.crowd("c", CLIENTS, 10), await env.crowd("s", SERVERS, 10)]
    for crowd, gws in zip(crowds, (near, far)):
        crowd.tolerate += ["stall of", "unacknowledged"]        # what a router that stands still costs
        await crowd.nodes(gws, hops=2, lnd_timeout=GIVE_UP)
    return made, crowds


async def killed(env, rng, r, books):
    books.end(r, await books.drops_of(r))
    r.crash()
    await asyncio.sleep(rng.uniform(0.2, 5))
    await r.restart()
    await r.ready()


async def stopped(env, rng, r, books):
    names = set(await Books.drops_of(r))
    past, begun = collections.Counter(getattr(r, "past", {})), len(r.text())
    drops = collections.Counter(await Books.drops_of(r))
    await r.stop()
    last = re.findall(r" drop=(\S+) count=\d+ total=(\d+)", r.text()[begun:])
    drops.update({name: int(total) - drops[name] for name, total in dict(last).items() if name in names})
    books.end(r, past + drops)
    await asyncio.sleep(rng.uniform(0.2, 3))
    await r.restart()
    await r.ready()


async def frozen(env, rng, r, books):
    r.proc.send_signal(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(0.5, 2 * GIVE_UP))
    r.proc.send_signal(signal.SIGCONT)


async def link(env, rng, r, books):
    port = env.fabric.ports[r.name, rng.choice(("eth0", "eth1"))]
    env.fabric.link(port, False)
    await asyncio.sleep(rng.uniform(0.2, 2 * GIVE_UP))
    env.fabric.link(port, True)


async def route(env, rng, r, books):
    where = {k: v for k, v in rng.choice(r.settings["routes"]).items()}
    await r.rpc("route_del", **where)
    await asyncio.sleep(rng.uniform(0.2, 5))
    await r.rpc("route_add", hop=1, **where)


FAULTS = killed, stopped, frozen, link, route


async def faults(env, rng, routers, books, seconds):
    """Up to three routers at a time have one, each kind as often. Returns what happened."""
    end, busy, done, deck = env.now() + seconds, {}, collections.Counter(), []
    while busy or env.now() < end:
        for name in [name for name, t in busy.items() if t.done()]:
            busy.pop(name).result()
        free = [r for r in routers if r.name not in busy]
        if env.now() < end and len(busy) < 3:
            deck = deck or rng.sample(FAULTS, len(FAULTS))
            r, fault = rng.choice(free), deck.pop()
            done[fault.__name__] += 1
            env.log(f"{r.name} {fault.__name__}")
            busy[r.name] = env.loop().create_task(fault(env, rng, r, books))
        await asyncio.sleep(rng.uniform(0.2, 2))
    return done


async def all_pairs(c, s, **kw):
    """PUTs and GETs from each node of both sides to one of the other side, and to another."""
    out = []
    for a, b in ((c, s), (s, c)):
        out += [await a.load(pairs(a.nids, b.nids), kind="put", **kw), await a.load(pairs(a.nids, b.nids[1:] + b.nids[:1]), kind="get", **kw)]
    return out


async def accounts(loads, crowds):
    """Each request arrived once, or the node that made it counted it. Returns how many there were, were answered, and were not."""
    got, sums = collections.Counter(), collections.Counter()
    for c in crowds:
        got.update({int(k): n for k, n in (await c.call("report"))["got"].items()})
    for load in loads:
        for f in await load.flows():
            given_up = f["failed"] + f["expired"]
            assert f["issued"] == f["done"] + given_up and not f["under_way"], f
            assert f["done"] <= got[f["id"]] <= f["issued"], f"{got[f['id']]} arrived of {f}"
            sums.update({k: f[k] for k in ("issued", "done", "failed", "expired", "late")})
    return sums


@only("kernel")
@alone
@deadline(240, long=3900)
async def test_random_faults(env):
    """Routers are killed, stopped, frozen, cut off on either side, and lose routes, three at a time. After that every node uses all
    of its gateways, and nothing is lost any more."""
    env.need_millrace()
    minutes, seed = (os.environ.get("MILLRACE_SOAK", "") + "  ").split(" ")[:2]
    seconds, seed = float(minutes) * 60 if minutes else 600 if env.long else 30, int(seed or 11)
    rng = random.Random(seed)
    made, (c, s) = await network(env)
    routers = [r for r, _ in made]
    books = await Lives.open(routers, [c, s])
    loads = await all_pairs(c, s, window=2, every=0.5, timeout=REQUEST)
    every = LAYERS[0][0] + LAYERS[1][1]
    await all_answered(env, (c, s), every, 40, "every node uses its four gateways")

    done = await faults(env, rng, routers, books, seconds)

    over = env.now()
    await all_answered(env, (c, s), every, 120, "every node uses its four gateways again")
    env.result(f"{seconds:.0f} s, seed {seed}: " + ", ".join(f"{n} {what}" for what, n in sorted(done.items()))
               + f"; all gateways used by all {env.now() - over:.1f} s later")
    await stop(*loads)
    for x in (c, s):
        await x.idle(60)
    sums = await accounts(loads, (c, s))
    env.result(", ".join(f"{n} {what}" for what, n in sums.items()))
    assert sums["done"] > sums["issued"] / 2, "the network was of little use"
    env.result(await books.check(exact=False, timeout=60))

    before, quiet = await books.drops(), await all_pairs(c, s, window=2, count=10, timeout=REQUEST)
    for x in (c, s):
        await x.idle(60)
    after = await accounts(quiet, (c, s))
    assert after["done"] == 400 and await books.drops() == before, f"{after}; dropped {before}, then {await books.drops()}"
    for _, rest in made:
        await rest.wait()
