# SPDX-License-Identifier: BSD-3-Clause
"""What fails under load: peers, links, routes, NIs, the router itself. Every message arrives once or is dropped for a
counted reason, and afterwards the router is as it was before."""

import asyncio
import re
import signal

from lnetpy.crowd import UNKNOWN, Books, Rest, pairs
from lnetpy.crowd_scene import (CLIENTS, FAR, HUNG, NEAR, SECOND, SERVERS, WRITERS, allowed, both_ways, cross_traffic, line,
                                small_sockets, stop, two_sides, undisturbed, until_done, until_quiet,
                                wide_router)
from lnetpy.scene import alone, beside_one, cases, deadline, only


@beside_one
@deadline(60)
@cases("servers", "clients")
async def test_kill(env, who):
    """kill -9 of all nodes of one side in mid-traffic; bystanders go on, and the next life works."""
    env.need_millrace()
    r, rest, c, s, (near, far) = await two_sides(env)
    books = await Books.open([r], [near, far])
    beside = await near.load(pairs(near.nids, far.nids), window=2)
    loads = await both_ways(c, s, timeout=3)
    await asyncio.sleep(1.5)
    await near.call("reset")
    row = await beside.sum()
    victim, survivor = (s, c) if who == "servers" else (c, s)
    begun = env.now()
    victim.kill()
    # Those who go on sending meet nobody: their messages are dropped by name.

    async def dropped():
        return await books.drops()
    await env.until_async(dropped, "messages to the dead nodes dropped", 10)
    again = await env.crowd(victim.name, victim.nids[0], len(victim.nids))
    env.crowds.remove(victim)
    await again.nodes(NEAR if who == "clients" else FAR)
    back = env.now() - begun
    if who == "servers":
        await until_done(env, loads[0], 2, "each client served by the next life", 20)
    after = await both_ways(*((c, again) if who == "servers" else (again, s)), timeout=10)
    await until_done(env, after[0], 2, "traffic with the next life", 20)
    slowest = await undisturbed(env, beside, row)
    await stop(beside, *loads, *after)
    for crowd in (survivor, again, near, far):
        state = await crowd.idle(40)
        assert not state.get("doubled") and not state.get("altered"), state
    env.result(f"next life connected {back:.1f} s after the kill; bystanders' slowest {slowest:.2f} s; "
               f"drops {await books.drops()}")
    await rest.wait()


@beside_one
@deadline(80, long=140)
async def test_frozen(env):
    """The servers' process stands still (SIGSTOP); bystanders go on; afterwards nothing is lost but what was dropped by
    name, and no connection."""
    env.need_millrace()
    still, wait = (30, 10) if env.long else (5, 2)
    r, rest, c, s, (near, far) = await two_sides(env, buffer_wait=wait)
    books = await Books.open([r], [c, s, near, far])
    beside = await near.load(pairs(near.nids, far.nids), window=2)
    loads = await both_ways(c, s, window=8, timeout=still + 3)
    await asyncio.sleep(1.5)
    await near.call("reset")
    row = await beside.sum()
    s.freeze()
    await asyncio.sleep(still)
    slowest = await undisturbed(env, beside, row)
    s.thaw()
    await until_done(env, loads[0], 2, "traffic goes on", 20)
    await stop(beside, *loads)
    seen = await books.check(timeout=60)
    env.result(f"frozen {still} s: {seen}; "
               f"bystanders' slowest {slowest:.2f} s")
    await rest.wait()


@beside_one
@deadline(60)
@cases("peers", "router")
async def test_link_flap(env, whose):
    """The link of the servers, or of the router, goes down for three seconds and comes back, twice."""
    env.need_millrace()
    r, rest, c, s, (near, far) = await two_sides(env)
    books = await Books.open([r], [c, s, near, far])
    beside = await near.load(pairs(near.nids, far.nids), window=2)
    loads = await both_ways(c, s, timeout=20)
    await asyncio.sleep(1)
    await near.call("reset")
    row, back = await beside.sum(), []

    def pull(up):
        if whose == "peers":
            env.fabric.link(s.port, up)
        else:
            env.link("r", "eth1", up)
    for _ in range(2):
        pull(False)
        await asyncio.sleep(3)
        pull(True)
        up = env.now()
        await until_done(env, loads[0], 2, "traffic after the link came back", 25)
        back.append(env.now() - up)
    if whose == "peers":
        await undisturbed(env, beside, row)
    await stop(beside, *loads)
    states = [await x.state() for x in (c, s, near, far)]
    seen = await books.check(exact=not any(x["closed"] for x in states), timeout=60)
    env.result(f"traffic {', '.join(f'{t:.1f}' for t in back)} s after link up; {seen}")
    await rest.wait()


@alone
@deadline(90)
async def test_restart_with_300_peers(env):
    """The router is killed and started again under the load of 300 nodes. All come back by themselves."""
    env.need_millrace()
    r, _ = await wide_router(env)
    c, s = await env.crowd("c", CLIENTS, 280), await env.crowd("s", SERVERS, 20)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    load = await c.load(pairs(c.nids, s.nids), timeout=2)
    await until_done(env, load, 2, "everybody served", 20)
    r.crash()
    down = env.now()
    await r.restart()
    up = env.now()
    rest = await Rest.of(r)
    for crowd in (c, s):
        crowd.since = (await crowd.state())["now"]

    async def all_back():
        for crowd in (c, s):
            pinged = (await crowd.state())["pinged_at"].values()
            if not all(at is not None and at > crowd.since for at in pinged):
                return False
        return True
    await env.until_async(all_back, "300 nodes connected and answered", 60)
    connected = env.now() - up
    assert connected <= await allowed(env, 10, c, s), f"{connected:.1f} s until all were back"
    await until_done(env, load, 1, "everybody served again", 60)
    env.result(f"router down for {up - down:.1f} s; all 300 nodes connected {connected:.1f} s after it was up again, "
               f"all served after {env.now() - up:.1f} s")
    await stop(load)
    for crowd in (c, s):
        state = await crowd.idle(40)
        assert not state.get("doubled") and not state.get("altered"), state
    await rest.wait()


@deadline(90, long=400)
async def test_egress_stalls(env):
    """A server takes nothing until the router's own patience ends (its LND timeout): what was for it is dropped by name,
    and when it reads again it is served again."""
    env.need_millrace()
    timeout, still = (50, 180) if env.long else (6, 0)
    small_sockets(env, "r", "hung")
    r, rest = await wide_router(env, timeout=timeout, buffer_wait=10 if env.long else 3)
    c, writers = await env.crowd("c", CLIENTS, 4), await env.crowd("w", WRITERS, 40)
    good, hung = await env.crowd("good", SERVERS, 1), await env.crowd("hung", HUNG, 1)
    for crowd, gateway in ((c, NEAR), (writers, NEAR), (good, FAR), (hung, FAR)):
        await crowd.nodes(gateway)
    books = await Books.open([r], env.crowds)
    beside = await c.load(pairs(c.nids, good.nids))
    flood = await writers.load(pairs(writers.nids, hung.nids), window=4, timeout=10)
    await asyncio.sleep(1)
    await c.call("reset")
    row = await beside.sum()
    await hung.pause()
    begun = env.now()

    async def given_up():
        drops = await books.drops()
        return sum(drops.get(k, 0) for k in ("next_hop_timeout", "next_hop_connection_lost", "next_hop_unreachable"))
    await env.until_async(given_up, "the router gives up the server", 5 * timeout, 0.2)
    took = env.now() - begun
    await asyncio.sleep(still)
    slowest = await undisturbed(env, beside, row)
    await hung.pause(False)
    await until_done(env, flood, 1, "the server serves again", 30)
    await stop(beside, flood)
    closed = [await x.state() for x in (c, writers, good)]
    assert not any(x["closed"] for x in closed), "a sender's connection is none of this"
    seen = await books.check(exact=False, timeout=60)
    env.result(f"given up after {took:.1f} s: {seen}; bystanders' slowest {slowest:.2f} s")
    await rest.wait()


@only("port")
@deadline(60)
async def test_lost_acks(env):
    """A message arrives, and no ACK of it comes back: it is counted as dropped all the same."""
    env.need_millrace()
    r, rest = await wide_router(env, timeout=3)
    c, s = await env.crowd("c", CLIENTS, 1), await env.crowd("s", SERVERS, 1)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    books = await Books.open([r], [c, s])
    await c.load(pairs(c.nids, s.nids), kind="send", size=0, count=1)
    await s.until(lambda x: sum(x["received"]) == 1, "a message arrives", 10)
    await r.rpc("tamper_set", port="eth1", direction="in", loss=100)
    await c.load(pairs(c.nids, s.nids), kind="send", size=0, count=1)

    async def dropped():
        return await books.drops()
    drops = await env.until_async(dropped, "it is counted", 30)
    await r.rpc("tamper_clear")
    received = sum((await s.state())["received"])
    assert received == 2 and set(drops) <= set(UNKNOWN), (received, drops)
    env.result(await books.check(exact=False))
    await rest.wait()


@deadline(60)
async def test_route_removed(env):
    """A route is removed while messages for it are queued: its gateway does not run for a while. What was selected
    already goes there or is dropped by name, what comes after has no route; with the route, traffic is back."""
    env.need_millrace()
    (r1, rest1), (r2, rest2), a, b = await line(env)
    books = await Books.open([r1, r2], [a, b])
    loads = await cross_traffic(a, b, window=2, timeout=4)
    await asyncio.sleep(1)
    r2.proc.send_signal(signal.SIGSTOP)
    try:
        async def queued():
            rows = (await r1.rpc("peer_get", nid=SECOND))["peer"][0]["peer ni"]
            return rows[0]["millrace"]["tx_queued"] > 0
        await env.until_async(queued, "messages queued for the gateway", 5)
        await r1.rpc("route_del", net="tcp2", gateway=SECOND)

        async def no_route():
            return (await books.drops_of(r1))["no_route"] > books.before["r1"]["no_route"]
        await env.until_async(no_route, "no_route counted", 15)
    finally:
        r2.proc.send_signal(signal.SIGCONT)
    await r1.rpc("route_add", net="tcp2", gateway=SECOND)
    await until_done(env, loads[0], 1, "traffic when the route is there again", 30)
    await stop(*loads)
    seen = await books.check(timeout=40)
    env.result(seen)
    for rest in (rest1, rest2):
        await rest.wait()


@deadline(60)
async def test_ni_removed(env):
    """A net is removed while messages for it are queued and others come from it; the router's other nets go on."""
    env.need_millrace()
    third = ("10.3.0.1@tcp2", "10.3.1.1@tcp2")
    small_sockets(env, "r", "s")
    r, rest = await wide_router(env, nids=(NEAR, FAR, third[0]))
    c, s, t = await env.crowd("c", CLIENTS, 20), await env.crowd("s", SERVERS, 4), await env.crowd("t", third[1], 4)
    for crowd, gateway in ((c, NEAR), (s, FAR), (t, third[0])):
        await crowd.nodes(gateway)
    books = await Books.open([r], [c, s, t])
    beside = await t.load(pairs(t.nids, c.nids[:4]), window=2)
    loads = await both_ways(c, s, timeout=3) + [await s.load(pairs(s.nids, t.nids), window=2, timeout=3)]
    await asyncio.sleep(1)
    await s.pause()

    async def queued():
        """In a queue of LNet's, or in that of our TCP, which takes more than host sockets of this size."""
        rows = [ni for p in (await r.rpc("peer_get"))["peer"] for ni in p["peer ni"] if ni["nid"] in s.nids]
        flows = (await r.rpc("tcp_get"))["tcp"] if env.transport == "port" else []
        servers = {nid.split("@")[0] for nid in s.nids}
        return (sum(ni["millrace"]["tx_queued"] for ni in rows) +
                sum(f["unsent"] for f in flows if f["remote"] in servers)) > 0
    await env.until_async(queued, "messages queued for the servers", 5)
    await t.call("reset")
    row = await beside.sum()
    await r.rpc("net_del", net="tcp1")

    async def removed():
        return (await books.drops()).get("ni_removed")
    await env.until_async(removed, "ni_removed counted", 5)
    await s.pause(False)    # it reads what is still in its sockets, and the end
    await s.until(lambda x: x["up"] == 0 and x["closed"], "the servers' connections are closed", 5)
    nets = [n["net type"] for n in (await r.rpc("net_get"))["net"]]
    assert "tcp1" not in nets and {"tcp", "tcp2"} <= set(nets), nets
    await until_done(env, beside, 10, "the other nets go on", 10)
    slowest = await undisturbed(env, beside, row)
    await stop(beside, *loads)
    await s.call("close", nids=None)
    seen = await books.check(exact=False, timeout=40)
    env.result(f"{seen}; bystanders' slowest {slowest:.2f} s")
    await rest.wait(removed=[FAR])


def log_drops(router):
    """reason -> total, as the router's log tells it to its end."""
    return {m[1]: int(m[2]) for m in re.finditer(r" drop=(\S+) count=\d+ total=(\d+)", router.text())}


DRAIN = 4


@alone
@deadline(60)
@cases("taken", "not taken", "half sent")
async def test_shutdown(env, how):
    """SIGTERM with messages in flight. What the router has acknowledged arrives if its peers take it in time; else it is
    counted as dropped. It ends in time though peers read nothing, or stopped in the middle of a message."""
    env.need_millrace()
    small_sockets(env, "r", "s")
    r, _ = await wide_router(env, extra=f"  drain: {DRAIN}\n")
    c, s = await env.crowd("c", CLIENTS, 40), await env.crowd("s", SERVERS, 4)
    for crowd, gateway in ((c, NEAR), (s, FAR)):
        await crowd.nodes(gateway)
    load = await c.load(pairs(c.nids, s.nids), kind="send", size=1 << 20, window=4)
    await until_done(env, load, 2, "traffic", 10)
    if how == "half sent":
        await load.stop()
        await c.idle()
        await c.call("begin", nids=c.nids[:4], dst=s.nids[0], size=1 << 20, part=1 << 19)
        await c.until(lambda x: not x["unsent"], "half messages at the router", 5)
    else:
        await s.pause()
        await until_quiet(env, load, 10)
    begun = env.now()
    r.proc.send_signal(signal.SIGTERM)
    if how == "taken":
        await asyncio.sleep(0.5)
        await s.pause(False)
    while r.proc.poll() is None and env.now() < begun + 25:
        await asyncio.sleep(0.02)
    took = env.now() - begun
    drops = log_drops(r)
    assert r.proc.poll() == 0, f"exit status {r.proc.poll()} after {took:.1f} s, drops {drops}: {r.tail()}"
    await s.pause(False)
    await stop(load)
    await s.until(lambda x: x["up"] == 0, "the servers have read all and seen the end", 10)
    acked = (await load.sum())["zc_acked"]
    got = sum((await s.call("report"))["got"].values())
    lost = drops.get("shutting_down", 0) + drops.get("next_hop_connection_lost", 0)
    env.result(f"ended in {took:.1f} s; {acked} acknowledged, {got} arrived, drops {drops}")
    state = await s.state()
    assert not state.get("doubled") and not state.get("altered"), state
    assert took <= DRAIN + 3, f"took {took:.1f} s, should take {DRAIN} s at most; drops {drops}"
    if how == "not taken":
        assert lost, f"nothing counted as lost; drops {drops}"
    else:
        assert got >= acked, f"{acked} acknowledged to their senders, but {got} arrived; drops {drops}"
