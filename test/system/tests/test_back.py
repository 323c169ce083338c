# SPDX-License-Identifier: BSD-3-Clause
"""A router that was killed and started again serves all its peers within three seconds of `ready`. Of two, the other serves
them meanwhile."""

import asyncio
import json
import os

from lnetpy import nid as N
from lnetpy.crowd import MASK, pairs
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SECOND, SERVERS, all_answered, allowed, gateways, stop, until_done, wide_router
from lnetpy.scene import beside_one, cases, deadline

BACK = 3.0          # s from `ready` until all are served
DOWN = 5.0          # s without a router: some give it up, the others still have the connections of its last life
GIVE_UP = 2.0       # s, the LND timeout of those who do
REQUEST = 4.0       # s, with two routers: after which a request is made anew
NEAR2 = "10.1.0.2@tcp"      # the second router's, beside SECOND


def checked_ports(env):
    """Ports that ask whether another station has their address, as they do by default."""
    return {"ports": [{"name": f"eth{i}", "addresses": [f"{N.parse(n).ip}/{MASK}"]} for i, n in enumerate((NEAR, FAR))]} \
        if env.transport == "port" else {}


async def scene(env, **kw):
    """280 clients, half of which believe in a gateway only as kernel nodes do and give it up soon, and 20 servers, with
    traffic under way. Returns the loads of both halves, those that stay first."""
    r, _ = await wide_router(env, **checked_ports(env), **kw)
    await r.ready()
    c, s = await env.crowd("c", CLIENTS, 280), await env.crowd("s", SERVERS, 20)
    c.tolerate.append("stall of")
    await c.nodes(NEAR, nids=c.nids[:140])
    await c.nodes(NEAR, nids=c.nids[140:], gives_up=True, lnd_timeout=GIVE_UP)
    await s.nodes(FAR)
    loads = [await c.load(pairs(half, s.nids), timeout=1, size="small") for half in (c.nids[:140], c.nids[140:])]
    for load in loads:
        await until_done(env, load, 2, "everybody served", 20)
    return r, c, s, loads


async def outage(env, r, c, loads, timeout, least=100, meanwhile=None):
    """Kills the router and starts it again. Returns the seconds from `ready` until all were served."""
    r.crash()
    await asyncio.sleep(DOWN)
    gave_up = (await c.state()).get("gave_up", 0)
    assert gave_up >= least, f"only {gave_up} clients gave the router up"
    if meanwhile:
        meanwhile()
    before = [{f["id"]: f["done"] for f in await load.flows()} for load in loads]
    await r.restart()
    await r.ready()
    ready, took = env.now(), []

    async def served(load, start):
        return all(f["done"] > start[f["id"]] for f in await load.flows())

    async def wait(load, start):
        await env.until_async(lambda: served(load, start), "everybody served again", timeout)
        return env.now() - ready
    took = await asyncio.gather(*(wait(*row) for row in zip(loads, before)))
    env.result("served again after ready: " + ", ".join(f"{t:.1f} s" for t in took) + f"; {gave_up} had given the router up")
    return max(took)


async def end(c, s, loads):
    await stop(*loads)
    for crowd in (c, s):
        state = await crowd.idle(40)
        assert not state.get("doubled") and not state.get("altered"), state


async def remembered(env, r, count, most=1 << 20):
    """Until the state file has so many peers and, with ports, the three connections of each."""
    async def has_all():
        try:
            with open(os.path.join(r.state, "peers.json"), encoding="utf-8") as f:
                state = json.load(f)
        except OSError:
            return False
        conns = 3 * count if env.transport == "port" else 0
        return count <= len(state["peers"]) <= most and len(state["connections"]) >= conns
    await env.until_async(has_all, f"the state file has {count} peers", 20)


@beside_one
@deadline(90)
async def test_back_at_once(env):
    """kill -9 under the load of 300 nodes, some of which gave the router up before it was back."""
    env.need_millrace()
    r, c, s, loads = await scene(env, state=True)
    await remembered(env, r, 300)
    took = await outage(env, r, c, loads, 40)
    assert took <= await allowed(env, BACK, c, s), f"{took:.1f} s until all were served"
    await end(c, s, loads)


@beside_one
@deadline(150)
async def test_without_state(env):
    """The same without a state directory: everybody comes back, but by their own timers."""
    env.need_millrace()
    r, c, s, loads = await scene(env)
    await outage(env, r, c, loads, 100)
    await end(c, s, loads)


def add_silent(r):
    """Puts 10,000 peers before the others in the state file, and 30,000 connections, that nobody has any more."""
    path = os.path.join(r.state, "peers.json")
    with open(path, encoding="utf-8") as f:
        state = json.load(f)
    gone = [f"10.65.{1 + i // 200}.{1 + i % 200}" for i in range(10000)]
    state["peers"] = [f"{a}@tcp" for a in gone] + state["peers"]
    if state["connections"]:
        state["connections"] = [[NEAR.split("@")[0], 988, a, 1023 - i] for a in gone for i in range(3)] + state["connections"]
    with open(path, "w", encoding="utf-8") as f:
        json.dump(state, f)
    open(path + ".new", "w").close()    # as a kill in a write leaves it


@beside_one
@deadline(120)
async def test_among_10000_silent(env):
    """The state file has 10,000 peers that are not there any more, behind an IP router that drops what is sent to them, and
    after them 50 that are, all of which gave the router up but five. The 50 are served within three seconds of `ready`, and the
    router is at rest soon."""
    env.need_millrace()
    env.fabric.attach("void", "tcp", "eth0", "10.1.0.9/16")
    ports = checked_ports(env)
    if ports:
        ports["ports"][0]["routes"] = [{"to": "10.65.0.0/16", "via": "10.1.0.9"}]
    r, rest = await wide_router(env, **ports, state=True)
    if not ports:
        r.ns.ip("route add 10.65.0.0/16 via 10.1.0.9")
    await r.ready()
    c, s = await env.crowd("c", CLIENTS, 45), await env.crowd("s", SERVERS, 5)
    c.tolerate += ["stall of", "unacknowledged"]
    await c.nodes(NEAR, gives_up=True, lnd_timeout=GIVE_UP)
    await s.nodes(FAR)
    load = await c.load(pairs(c.nids, s.nids), timeout=1, size="small")
    await until_done(env, load, 2, "everybody served", 20)
    await remembered(env, r, 50)
    took = await outage(env, r, c, [load], 60, 40, lambda: add_silent(r))
    assert took <= await allowed(env, BACK, c, s), f"{took:.1f} s until all were served"
    await env.until_async(lambda: said(r, "event=peers_called"), "all peers of the file were called", 40)
    env.result(next(ln for ln in r.text().splitlines()[::-1] if "event=peers_called" in ln).split("peers_called ")[1])
    await remembered(env, r, 50, most=200)
    assert os.listdir(r.state) == ["peers.json"], os.listdir(r.state)
    await end(c, s, [load])
    await rest.wait()


async def said(r, text):
    return text in r.text()[r.text().rindex("event=ready "):]


@cases("cut off", "no JSON", "others", "a folder")
async def test_altered_state(env, how):
    """A state file that is not the router's own costs at most its content: the router starts, and writes it anew."""
    env.need_millrace()
    r, _ = await wide_router(env, **checked_ports(env), state=True)
    c, s = await env.crowd("c", CLIENTS, 3), await env.crowd("s", SERVERS, 1)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    await remembered(env, r, 4)
    r.crash()
    path = os.path.join(r.state, "peers.json")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    others = {"version": 1, "peers": ["10.1.9.9@tcp", "10.9.9.9@tcp7", "0@lo", NEAR, "10.1.255.255@tcp", "224.0.0.1@tcp"],
              "addresses": ["10.1.9.9", "0.0.0.0"],
              "connections": [["10.1.0.1", 988, "255.255.255.255", 7], ["10.1.0.1", 1, "10.1.0.1", 1], ["9.9.9.9", 1, "8.8.8.8", 2]]}
    if how == "a folder":
        os.remove(path)
        os.mkdir(path)
    else:
        with open(path, "w", encoding="utf-8") as f:
            f.write({"cut off": text[:len(text) // 2], "no JSON": "\0" * 5000, "others": json.dumps(others)}[how])
    await r.restart()
    await r.ready()
    load = await c.load(pairs(c.nids, s.nids), timeout=2, size="small")
    await until_done(env, load, 2, "traffic", 30)
    assert ("event=state_not_read" in r.text()) == (how != "others"), r.tail(20)
    if how == "a folder":
        assert "event=state_not_written" in r.text(), r.tail(20)
    else:
        await remembered(env, r, 4)
    await stop(load)
    await c.idle()


@beside_one
@deadline(90)
async def test_one_of_two_routers(env):
    """100 clients and 20 servers use two routers in turn, as kernel nodes do with routes of equal priority. One is killed: all
    traffic goes on over the other once the nodes' own time-outs have passed, each at most once. It is started again: each node
    uses both within three seconds of `ready`. The outage lies between two router checks of the nodes (60 s)."""
    env.need_millrace()
    ports = checked_ports(env)
    ports2 = {"ports": [{**p, "addresses": [f"{N.parse(n).ip}/{MASK}"]} for p, n in zip(ports["ports"], (NEAR2, SECOND))]} \
        if ports else {}
    r1, _ = await wide_router(env, "r1", **ports, state=True)
    r2, rest2 = await wide_router(env, "r2", (NEAR2, SECOND), **ports2)
    await r1.ready()
    await r2.ready()
    c, s = await env.crowd("c", CLIENTS, 100), await env.crowd("s", SERVERS, 20)
    for crowd, near in ((c, [NEAR, NEAR2]), (s, [FAR, SECOND])):
        crowd.tolerate += ["stall of", "unacknowledged"]
        await crowd.nodes(near, lnd_timeout=GIVE_UP)
    pace = {"timeout": REQUEST, "size": "small", "every": 0.2}
    loads = [await c.load(pairs(c.nids, s.nids), **pace), await c.load(pairs(c.nids, s.nids[1:] + s.nids[:1]), kind="get", **pace),
             await s.load(pairs(s.nids * 5, c.nids), **pace)]
    both, first = (NEAR, FAR, NEAR2, SECOND), (NEAR, FAR)
    await all_answered(env, (c, s), both, 20, "every node uses both routers")
    await remembered(env, r1, 120)

    await r1_lost(env, r1, (c, s), loads, first)

    await r1.restart()
    await r1.ready()
    ready = env.now()
    await all_answered(env, (c, s), both, 40, "every node uses both routers again")
    took, limit = env.now() - ready, await allowed(env, BACK, c, s)
    env.result(f"both used by all {took:.1f} s after ready")
    assert took <= limit, f"{took:.1f} s until all used both routers again"
    before = await gateways(c, s)
    await asyncio.sleep(2)
    more = {key: g["answers"] - before[key]["answers"] for key, g in (await gateways(c, s)).items()}
    share = sum(n for key, n in more.items() if key[1] in first) / sum(more.values())
    assert 0.4 < share < 0.6, f"{share:.2f} of the requests went over the router that came back"
    await end(c, s, loads)
    await rest2.wait()


async def r1_lost(env, r1, crowds, loads, nids):
    """Kills a router of two, and sees all traffic on the other."""
    r1.crash()
    killed = env.now()
    before = [{f["id"]: f["done"] for f in await load.flows()} for load in loads]

    async def goes_on():
        return all([f["done"] > start[f["id"]] for load, start in zip(loads, before) for f in await load.flows()])
    await env.until_async(goes_on, "everybody served by the other router", 40)
    took, limit = env.now() - killed, await allowed(env, REQUEST + 1.25 * GIVE_UP + 0.5, *crowds)
    env.result(f"all served by the other router {took:.1f} s after the kill")
    assert took <= limit, f"{took:.1f} s, the time-outs are {REQUEST:.0f} and {GIVE_UP:.0f} s"

    async def given_up():
        return not any(g["used"] for key, g in (await gateways(*crowds)).items() if key[1] in nids)
    await env.until_async(given_up, "no node uses the router that is gone", 40)
    await asyncio.sleep(1.25 * REQUEST)     # what was sent over it before has run out by then
    before = [await load.sum() for load in loads]
    await asyncio.sleep(2)
    for load, was in zip(loads, before):
        now = await load.sum()
        assert (now["failed"], now["expired"]) == (was["failed"], was["expired"]), f"requests lost though one router is there: {now}"
        assert now["done"] - was["done"] > len(load.ids), f"{now['done'] - was['done']} requests of {len(load.ids)} flows in 2 s"
