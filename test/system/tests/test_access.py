# SPDX-License-Identifier: BSD-3-Clause
"""Access rules: who may connect, what is forwarded, and how much."""

import time

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.node import pattern
from lnetpy.scene import ROUTER, cases, join, only

GOOD, BAD, FAR = "10.0.0.2@tcp", "10.0.0.66@tcp", "10.0.1.2@tcp1"


def rules(*rows):
    return "  access:\n" + "".join(f"    - {{{row}}}\n" for row in rows)


async def scene(env, *rows, more=()):
    """With more NIs of the router."""
    r = await env.router("r", *ROUTER, *more, extra=rules(*rows) if rows else "")
    c, s = await env.persona("c", GOOD), await env.persona("s", FAR)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    return r, c, s


async def counted(r):
    return {row["name"]: row for row in (await r.rpc("access_get"))["rules"]}


async def change(r, *rows, mode="merge"):
    text = "millrace:\n" + rules(*rows)
    await r.rpc("config_apply", text=text, mode=mode)


@only("kernel", "port")
async def test_connect(env):
    """A host that no rule allows is refused; the good one moves data all the while. The rule goes away again."""
    env.need_millrace()
    r, c, s = await scene(env, 'name: good, connect: allow, nid: "10.0.0.[1-9]@tcp"', 'name: rest, connect: deny, nid: "10.0.0.0/16@tcp"')
    assert await c.put(s.nid, pattern(1, 5000))
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    got, how, _ = await bad.say(wire.connreq(bad.router) + bad.hello())
    assert how in ("FIN", "RST") and not got, (got, how)
    assert (await r.drops())["access_connect"] == 1
    assert (await counted(r))["rest"]["refused"] == 1

    async def told():
        return [e for e in (await r.rpc("events_get"))["events"] if (e["type"], e["cause"]) == ("drops", "access_connect")]
    await env.until_async(told, "an event")
    assert [e["count"] for e in await told()] == [1], await told()
    why = (await r.rpc("why", nid=BAD))["why"]
    assert why["connect"] == {"rule": "rest", "verdict": "deny"}, why
    why = (await r.rpc("why", nid=GOOD))["why"]
    assert why["connect"] == {"rule": "good", "verdict": "allow"}, why
    await change(r, "name: rest", mode="delete")
    out = await bad.attach()
    await out.send(bad.frame(bad.ping()))
    assert await out.read(24 + 72, 10)
    assert await c.put(s.nid, pattern(2, 5000))


@only("kernel", "port")
async def test_connected(env):
    """A rule that comes later costs a node the connections that it has, with its next message."""
    env.need_millrace()
    r, c, s = await scene(env)
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    out = await bad.attach()
    await out.send(bad.frame(bad.ping()))
    assert await out.read(24 + 72, 10)
    await change(r, f'name: bad, connect: deny, nid: "{BAD}"')
    await out.send(bad.frame(bad.ping()))
    assert (await out.end(10))[1] in ("FIN", "RST"), "its connection stays"
    assert (await r.drops())["access_connect"] >= 1
    assert await c.put(s.nid, pattern(1, 5000))


@only("kernel", "port")
@cases("nid", "net")
async def test_forward(env, what):
    """A message that a rule denies is dropped by name, and why names the rule."""
    env.need_millrace()
    to = FAR if what == "nid" else "*@tcp1"
    r, c, s = await scene(env)
    assert await c.put(s.nid, pattern(1, 5000))
    await change(r, f'name: wall, forward: deny, from: "10.0.0.*@tcp", to: "{to}"')
    assert not await c.put(s.nid, pattern(2, 5000), timeout=1)
    assert len(env.ledger.outstanding()) == 1
    env.ledger.forget(lambda e: True)
    assert await c.ping(r.nids[0], timeout=5), "a message for the router itself is no matter of forwarding"
    assert (await r.drops())["access_forward"] == 1
    assert (await counted(r))["wall"] == {"name": "wall", "kind": "forward", "refused": 1, "waited": 0}
    why = (await r.rpc("why", nid=FAR, source=GOOD))["why"]
    assert (why["verdict"], why["drop"], why["rule"]) == ("dropped", "access_forward", "wall"), why
    await change(r, "name: wall", mode="delete")
    assert await c.put(s.nid, pattern(3, 5000))


@only("kernel", "port")
async def test_order(env):
    """The first rule that matches decides, also after the order alone was changed."""
    env.need_millrace()
    deny, allow = 'name: deny, forward: deny, to: "*@tcp1"', f'name: allow, forward: allow, from: "{GOOD}"'
    r, c, s = await scene(env, allow, deny)
    assert await c.put(s.nid, pattern(1, 5000))
    await change(r, "name: allow", "name: deny", mode="delete")
    await change(r, deny, allow)
    assert not await c.put(s.nid, pattern(2, 5000), timeout=1)
    assert len(env.ledger.outstanding()) == 1
    env.ledger.forget(lambda e: True)


@only("kernel", "port")
@cases("messages", "bandwidth")
async def test_limit(env, what):
    """Who sends more than a limit allows is slowed down to it, and loses nothing; others do not notice."""
    env.need_millrace()
    row = f'name: slow, limit: nid, nid: "{GOOD}", burst: 100, ' + ("messages: 20" if what == "messages" else "bandwidth: 1")
    r, c, s = await scene(env, row)
    other = await env.persona("o", "10.0.0.3@tcp")
    join(other, r, "tcp1")
    await env.bring_up(other)
    count, size = (60, 100) if what == "messages" else (30, 100000)
    began = time.monotonic()
    for i in range(count):
        assert await c.put(s.nid, pattern(i, size), timeout=10)
    took = time.monotonic() - began
    # The ACKs of s are not limited. In the burst go 2 messages, or 100 ms of bandwidth.
    least = (count - 2) / 20 if what == "messages" else count * size / (1 << 20) - 0.1 - size / (1 << 20)
    assert least * 0.95 < took < 2 * least * env.stretch() + 1, (took, least)
    began = time.monotonic()
    for i in range(count):
        assert await other.put(s.nid, pattern(i, size), timeout=10)
    assert time.monotonic() - began < least / 2 * env.stretch(), "others are slowed down, too"
    row = (await counted(r))["slow"]
    assert row["waited"] > count / 2 and row["refused"] == 0, row
    waits = next(w for w in (await r.rpc("waits_get"))["waits"] if w["name"] == "limit")
    assert (waits["waiting"], waits["waited"]) == (0, row["waited"]), waits
    assert (await r.rpc("why", nid=GOOD))["why"]["limits"] == ["slow"]
    drops = await r.drops()
    assert not drops.get("rate_limit"), drops


async def connects(env, net, *more):
    env.need_millrace()
    r, c, s = await scene(env, f'name: calls, limit: prefix, nid: "10.0.0.66@{net}", connects: 2', more=more)
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    bad.nid, bad.router = N.parse(f"10.0.0.66@{net}"), N.parse(f"10.0.0.1@{net}")
    hello = bad.hello() if more else bad.hello()[:10]
    ends = []
    for _ in range(8):
        ends.append((await bad.say(wire.connreq(bad.router) + hello, timeout=0.2))[1])
    assert (await r.drops())["connect_rate"] >= 4, ends
    assert (await counted(r))["calls"]["refused"] >= 4
    n = await env.persona("n", "10.0.0.7@tcp")
    join(n, r, "tcp1")
    await env.bring_up(n)
    assert await n.put(s.nid, pattern(1, 5000))


@only("kernel", "port")
async def test_connects(env):
    """Calls beyond a limit are refused before anything is read of them; a node of another prefix connects."""
    await connects(env, "tcp")


@only("kernel")
async def test_connects_net(env):
    """The same where NIs of two nets have one address, after the HELLO that says which of them is called."""
    await connects(env, "tcp3", "10.0.0.1@tcp3")
