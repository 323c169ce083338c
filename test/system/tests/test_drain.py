# SPDX-License-Identifier: BSD-3-Clause
"""A router that is drained (`millrace drain`): the nodes that have another gateway leave it, and no message is lost or sent again.
docs/operations.md "Drain"."""

import asyncio
import os
import subprocess

from lnetpy import page
from lnetpy.crowd import Books, pairs
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SECOND, SERVERS, all_answered, allowed, stop, until_done, wide_router
from lnetpy.pair import Pair
from lnetpy.router import find_program
from lnetpy.scene import beside_one, deadline, only

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs")
NEAR2 = "10.1.0.2@tcp"      # the second router's, beside SECOND
BOTH = (NEAR, FAR, NEAR2, SECOND)
QUIET = 5                   # s without a message before a router is called safe
CHECK = 10                  # s that a router check may be late


async def millrace(env, r, *words):
    """Runs a command; its exit status and output."""
    p = await asyncio.to_thread(subprocess.run, [find_program(env.build, "millrace"), "-s", r.sock, *words],
                                capture_output=True, text=True, timeout=150, check=False)
    return p.returncode, p.stdout + p.stderr


async def two_routers(env):
    """Nodes on both sides of two routers, which they use in turn, with as much traffic as they can make."""
    env.need_millrace()
    (r1, rest1), (r2, rest2) = await wide_router(env, "r1"), await wide_router(env, "r2", (NEAR2, SECOND))
    c, s = await env.crowd("c", CLIENTS, 24), await env.crowd("s", SERVERS, 8)
    await c.nodes([NEAR, NEAR2])
    await s.nodes([FAR, SECOND])
    books = await Books.open([r1, r2], [c, s])
    loads = [await c.load(pairs(c.nids, s.nids), window=2), await c.load(pairs(c.nids, s.nids[1:] + s.nids[:1]), kind="get"),
             await s.load(pairs(s.nids * 3, c.nids), size="small")]
    await all_answered(env, (c, s), BOTH, 30, "every node uses both routers")
    return r1, r2, (c, s), loads, books, (rest1, rest2)


async def nothing_lost(env, crowds, loads, books, closed=False):
    """Ends the loads. Each message arrived once, none failed, ran out of time or was sent again."""
    sums = [await load.sum() for load in loads]
    await stop(*loads)
    text = await books.check(exact=not closed, timeout=60)
    for load, now in zip(loads, sums):
        assert not now["failed"] and not now["expired"], now
    sent = got = 0
    for crowd in crowds:
        state = await crowd.state()
        bad = {k: state[k] for k in ("resent", "no_route", "sends_failed", "dial_failed") if state.get(k)}
        assert not bad, f"{crowd.name}: {bad}"
        sent, got = sent + sum(state["sent"]), got + sum(state["received"])
    assert sent == got, f"{sent} sent, {got} received"
    env.result(text)


async def state_of(r):
    return (await r.rpc("drain_get"))["state"]


async def forwarded(r):
    return (await r.stats())["route_count"]


@only("kernel", "port")
@beside_one
@deadline(120)
async def test_under_load(env):
    """One of two routers is drained under full load. It says when it is safe, and is not used from then on; `--undo` brings the
    traffic back. No message is lost or sent again. `status` is degraded meanwhile."""
    r1, r2, crowds, loads, books, rests = await two_routers(env)
    before, begun = await forwarded(r1), env.now()
    code, text = await millrace(env, r1, "drain", "--wait")
    took = env.now() - begun
    assert code == 0 and "safe: " in text, (code, text)
    env.result(f"safe after {took:.1f} s, {await forwarded(r1) - before} messages forwarded meanwhile")
    limit = await allowed(env, QUIET + 5, *crowds)
    assert took <= limit, f"{took:.1f} s until it was safe: {text}"
    drain = await r1.rpc("drain_get")
    assert drain["told"] == drain["peers"] == 32, drain
    quiet = await forwarded(r1)
    for load in loads:
        await until_done(env, load, 2, "traffic over the other router", 30)
    assert await forwarded(r1) == quiet, "the drained router was used"
    code, text = await millrace(env, r1, "status")
    assert code == 1 and "drain" in text, (code, text)
    begun = env.now()
    code, text = await millrace(env, r1, "drain", "--undo")
    assert code == 0, text
    await all_answered(env, crowds, BOTH, 20, "every node uses both routers again")
    env.result(f"both used by all {env.now() - begun:.1f} s after --undo")
    assert await state_of(r1) == "off"
    await nothing_lost(env, crowds, loads, books)
    for rest in rests:
        await rest.wait()
    del r2


@only("kernel", "port")
@beside_one
@deadline(120)
async def test_second_hop(env):
    """Behind a router one of its two gateways is drained under load in both directions. No message is lost or sent again, by a node or
    by a router."""
    env.need_millrace()
    p = await Pair().start(env, clients=24)
    routers = (p.a, *p.b)
    books = await Books.open(routers, [p.c, p.s])
    loads = [await p.c.load(pairs(p.c.nids, p.s.nids), window=2), await p.c.load(pairs(p.c.nids, p.s.nids[1:] + p.s.nids[:1]), kind="get"),
             await p.s.load(pairs(p.s.nids * 6, p.c.nids), size="small")]
    await p.until_used((0, 1))
    begun = env.now()
    code, text = await millrace(env, p.b[0], "drain", "--wait")
    took = env.now() - begun
    assert code == 0 and "safe: " in text, (code, text)
    limit = await allowed(env, QUIET + 5, p.c, p.s)
    env.result(f"safe after {took:.1f} s, at most {limit:.1f} s")
    assert took <= limit, f"{took:.1f} s until it was safe: {text}"
    assert await p.route(0) == "down"
    quiet = await forwarded(p.b[0])
    for load in loads:
        await until_done(env, load, 2, "traffic over the other gateway", 30)
    assert await forwarded(p.b[0]) == quiet, "the drained gateway was used"
    code, text = await millrace(env, p.b[0], "drain", "--undo")
    assert code == 0, text
    await p.until_used((0, 1))
    await nothing_lost(env, (p.c, p.s), loads, books)
    for r in routers:
        stats = await r.rpc("stats_get")
        assert not stats["resend_count"] and not stats["failed_resends"], (r.name, stats)
    await p.rest.wait()


@only("kernel", "port")
@beside_one
@deadline(90)
async def test_undo_meanwhile(env):
    """A drain is taken back in its middle, several times: nothing is lost, and all use both routers."""
    r1, _, crowds, loads, books, rests = await two_routers(env)
    for pause in (0.0, 0.02, 0.3, 1.0):
        await r1.rpc("drain_start")
        await asyncio.sleep(pause)
        assert await state_of(r1) == "draining"
        await r1.rpc("drain_undo")
    await all_answered(env, crowds, BOTH, 20, "every node uses both routers")
    assert await state_of(r1) == "off"
    causes = [e["cause"] for e in (await r1.rpc("events_get"))["events"] if e["type"] == "drain"]
    assert causes == ["begun", "undone"] * 4, causes
    await nothing_lost(env, crowds, loads, books)
    for rest in rests:
        await rest.wait()


@only("kernel", "port")
@beside_one
@deadline(90)
async def test_then_shutdown(env):
    """operations.md, Drain: a drained router is stopped under the load of the other. Nothing is lost."""
    r1, r2, crowds, loads, books, rests = await two_routers(env)
    host = await page.Host(env, r1.ns, {}, r1.sock).start()
    steps = [s for s in page.steps(os.path.join(DOCS, "operations.md")) if s.section == "Drain" and s.host == "router"]
    assert len(steps) == 2, steps
    for step in steps:
        drops = await books.drops()
        assert not drops, drops
        await page.run_step(env, {"router": host}, step, 60)
    host.close()

    async def ended():
        return r1.proc.poll() is not None
    await env.until_async(ended, "the router has ended", 20)
    assert r1.proc.returncode == 0, r1.tail()
    books.routers = [r2]
    for load in loads:
        await until_done(env, load, 3, "traffic over the other router", 30)
    await nothing_lost(env, crowds, loads, books, closed=True)
    await rests[1].wait()


@beside_one
@deadline(90)
async def test_ignored(env):
    """Nodes with one gateway that ignore its status go on: the drain is late after its limit, and says so. It is safe once they
    end. All that they send is forwarded."""
    env.need_millrace()
    r, rest = await wide_router(env)
    c, s = await env.crowd("c", CLIENTS, 4), await env.crowd("s", SERVERS, 2)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    books = await Books.open([r], [c, s])
    load = await c.load(pairs(c.nids, s.nids), size="small")
    await until_done(env, load, 2, "traffic", 20)
    begun = env.now()
    code, text = await millrace(env, r, "drain", "--wait", "--timeout", "7")
    took = env.now() - begun
    assert code == 1 and "late: " in text, (code, text)
    assert took >= 7, took
    drain = await r.rpc("drain_get")
    assert drain["state"] == "late" and drain["forwarded"] > 0 and drain["limit_s"] == 0, drain
    await until_done(env, load, 2, "traffic goes on", 20)
    await load.stop()

    async def safe():
        return await state_of(r) == "safe"
    await env.until_async(safe, "safe once nobody uses it", QUIET + 10)
    env.result(await books.check())
    await rest.wait()


@beside_one
@deadline(60)
async def test_unaware(env):
    """Nodes that never pushed and do not ping are told nothing: they have the time of a router check, and are counted."""
    env.need_millrace()
    r, _ = await wide_router(env, check_interval=2)
    c, s = await env.crowd("c", CLIENTS, 3), await env.crowd("s", SERVERS, 1)
    await c.nodes(NEAR, pings=False)
    await s.nodes(FAR)
    begun = env.now()
    await r.rpc("drain_start", timeout=40)

    async def seen():
        drain = await r.rpc("drain_get")
        return drain["peers"] == 4 and drain["told"] == 1 and drain["check_s"] > 0
    await env.until_async(seen, "three are unaware, one was told", 5)

    async def safe():
        return await state_of(r) == "safe"
    await env.until_async(safe, "safe after the time of a router check", 30)
    took = env.now() - begun
    env.result(f"safe after {took:.1f} s")
    assert took >= 2 + CHECK, took
