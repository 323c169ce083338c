# SPDX-License-Identifier: BSD-3-Clause
"""A router that was killed and started again serves all its peers within three seconds of `ready`."""

import asyncio
import json
import os

from lnetpy import nid as N
from lnetpy.crowd import MASK, pairs
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SERVERS, allowed, stop, until_done, wide_router
from lnetpy.scene import alone, cases, deadline

BACK = 3.0          # s from `ready` until all are served
DOWN = 5.0          # s without a router: some give it up, the others still have the connections of its last life
GIVE_UP = 2.0       # s, the LND timeout of those who do


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


async def outage(env, r, c, loads, timeout):
    """Kills the router and starts it again. Returns the seconds from `ready` until all were served."""
    r.crash()
    await asyncio.sleep(DOWN)
    gave_up = (await c.state()).get("gave_up", 0)
    assert gave_up >= 100, f"only {gave_up} clients gave the router up"
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
    env.result(f"served again after ready: {took[0]:.1f} s those that did not give the router up, {took[1]:.1f} s the "
               f"{gave_up} that did")
    return max(took)


async def end(c, s, loads):
    await stop(*loads)
    for crowd in (c, s):
        state = await crowd.idle(40)
        assert not state.get("doubled") and not state.get("altered"), state


async def remembered(env, r, count):
    """Until the state file has so many peers and, with ports, the three connections of each."""
    async def has_all():
        try:
            with open(os.path.join(r.state, "peers.json"), encoding="utf-8") as f:
                state = json.load(f)
        except OSError:
            return False
        conns = 3 * count if env.transport == "port" else 0
        return len(state["peers"]) >= count and len(state["connections"]) >= conns
    await env.until_async(has_all, f"the state file has {count} peers", 20)


@alone
@deadline(90)
async def test_back_at_once(env):
    """kill -9 under the load of 300 nodes, some of which gave the router up before it was back."""
    env.need_millrace()
    r, c, s, loads = await scene(env, state=True)
    await remembered(env, r, 300)
    took = await outage(env, r, c, loads, 40)
    assert took <= await allowed(env, BACK, c, s), f"{took:.1f} s until all were served"
    await end(c, s, loads)


@alone
@deadline(150)
async def test_without_state(env):
    """The same without a state directory: everybody comes back, but by their own timers."""
    env.need_millrace()
    r, c, s, loads = await scene(env)
    await outage(env, r, c, loads, 100)
    await end(c, s, loads)


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
