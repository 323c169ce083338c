# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a live router is told: each kind of event is provoked, and received with its cause. docs/jsonrpc.md."""

import asyncio
import time

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.control import clients
from lnetpy.control_scene import HOME, crowded_router
from lnetpy.crowd import pairs
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SERVERS, small_sockets, stop, wide_router
from lnetpy.scene import deadline

GATEWAY, FRIEND = "10.2.3.7@tcp1", "10.2.0.9@tcp1"


class Watch:
    """A subscriber, and what it has been told so far."""

    def __init__(self, env, client):
        self.env, self.client, self.at = env, client, 0

    @classmethod
    async def of(cls, env, client, *types):
        await client.call("events_subscribe", **({"types": list(types)} if types else {}))
        return cls(env, client)

    async def next(self, kind, timeout=10.0, **members):
        """The next event of this kind with these members; later waits begin behind it."""
        def fits(e):
            return e["type"] == kind and all(e.get(k) == v for k, v in members.items())
        try:
            e = await self.client.event(fits, f"event {kind} {members}", timeout, self.at)
        except Exception as x:
            raise AssertionError(f"{x}; since: {[(e['type'], e.get('nid'), e['cause']) for e in self.client.events[self.at:]]}") \
                from None
        self.at = self.client.events.index(e) + 1
        assert e["cause"] and e["text"], e
        return e

    async def all(self, kinds, timeout):
        """The next of each of these kinds, in whatever order."""
        begin, out, last = self.at, {}, self.at
        for kind in kinds:
            self.at = begin
            out[kind] = await self.next(kind, timeout)
            last = max(last, self.at)
        self.at = last
        return out

    def check(self):
        """Numbers rise by one (or by what was missed), times do not go back and are now."""
        events = self.client.events
        assert [e["seq"] for e in events] == sorted({e["seq"] for e in events}), events
        for a, b in zip(events, events[1:]):
            assert b["time"] >= a["time"] - 0.05, (a, b)
        assert all(abs(e["time"] - time.time()) < 120 for e in events), events[-1]


async def hello_of_another_life(env, host, nid, router):
    """A HELLO of a node that has restarted, while its old connections are still there."""
    sock = env.fabric.host(host).socket()
    sock.bind((nid.ip, 700))
    sock.settimeout(5)
    await asyncio.to_thread(sock.connect, (router.ip, 988))
    sock.sendall(wire.connreq(router) + wire.Hello(3, nid, router, time.time_ns(), wire.CONTROL).pack())
    return sock


@deadline(60)
async def test_peers(env):
    """A peer comes, restarts, goes; another's link is cut."""
    env.need_millrace()
    r, _ = await wide_router(env, timeout=4)
    async with clients(r) as c:
        w = await Watch.of(env, c)
        a = await env.crowd("a", CLIENTS, 1)
        nid = a.nids[0]
        await a.nodes(NEAR)
        e = await w.next("peer_up", nid=nid)
        assert e.get("state") == "up", e
        a.freeze()
        sock = await hello_of_another_life(env, "a", N.parse(nid), r.nids[0])
        e = await w.next("peer_restart", nid=nid)
        sock.close()
        a.kill()
        env.crowds.remove(a)
        again = await env.crowd("a", nid, 1)
        await again.nodes(NEAR)
        await w.next("peer_up", nid=nid)
        again.kill()
        env.crowds.remove(again)
        e = await w.next("peer_down", nid=nid)
        assert e.get("state") == "down", e
        by_end = e["cause"]
        # One that does not take what is sent to it for the whole timeout
        small_sockets(env, "b", "r")
        b, s = await env.crowd("b", "10.2.4.1@tcp1", 1), await env.crowd("s", CLIENTS, 1)
        await b.nodes(FAR)
        await s.nodes(NEAR)
        await w.next("peer_up", nid=b.nids[0])
        await b.pause()
        load = await s.load(pairs(s.nids, b.nids), kind="send", size=1 << 20, window=8)
        e = await w.next("peer_down", nid=b.nids[0], timeout=20)
        assert e["cause"] != by_end, f"the same cause for a connection that ended and one that timed out: {e}"
        await load.stop()
        w.check()
        told = [e["seq"] for e in c.events]
        kept = (await c.call("events_get"))["events"]
        assert [e["seq"] for e in kept if e["seq"] >= told[0]][:len(told)] == told
    env.result(f"peer_down: {by_end}, {e['cause']}")


@deadline(60)
async def test_nis_routes_gateways(env):
    """A gateway dies and comes back; a link of the router's goes and comes back; an NI is added and removed."""
    env.need_millrace()
    env.tolerate = ["status"]
    r, _ = await wide_router(env, check_interval=2, ping_timeout=60, timeout=5,
                             routes=[{"net": "tcp9", "gateway": GATEWAY, "hop": 2}])
    r.spec.gateways = {N.parse(GATEWAY)}
    g = await env.crowd("g", GATEWAY, 1)
    await g.nodes(FAR, routing=True)
    s = await env.persona("s", FRIEND, check_interval=1000)
    for n in r.nids:
        r.spec.set_status(n, wire.UP, wire.DOWN)
    async with clients(r) as c:
        async def up():
            return all(x["state"] == "up" for x in (await c.call("route_get"))["route"])
        await env.until_async(up, "route up", 10)
        w = await Watch.of(env, c)
        g.kill()
        env.crowds.remove(g)
        told = await w.all(("gateway_down", "route_down"), 15)
        first = told["gateway_down"]["cause"]
        assert told["gateway_down"]["nid"] == GATEWAY, told
        assert (told["route_down"]["net"], told["route_down"]["gateway"]) == ("tcp9", GATEWAY), told
        back = await env.crowd("g", GATEWAY, 1)
        await back.nodes(FAR, routing=True)
        await w.all(("gateway_up", "route_up"), 20)
        # The link
        port = env.fabric.ports["r", "eth1"]
        env.fabric.link(port, False)
        try:
            e = await w.next("ni_down", nid=FAR)
            assert "link" in e["cause"] + e["text"], e
        finally:
            env.fabric.link(port, True)

        async def pinged():
            await s.ping_get(r.nids[1], 272, timeout=2)
            return any(x["type"] == "ni_up" and x["nid"] == FAR for x in c.events[w.at:])
        await env.until_async(pinged, "ni_up", 25, 0.3)
        # An NI more
        env.fabric.attach("r", "tcp5", "eth5", "10.5.0.1/24")
        await c.call("net_add", net="tcp5", interface="eth5")
        await w.next("ni_added", nid="10.5.0.1@tcp5")
        await c.call("net_del", net="tcp5")
        await w.next("ni_removed", nid="10.5.0.1@tcp5")
        w.check()
    env.result(f"gateway_down: {first}")


@deadline(60)
async def test_buffers(env):
    """All buffers of a pool are taken, and free again."""
    env.need_millrace()
    small_sockets(env, "r", "s")
    r, rest = await wide_router(env, buffers={"large": 8}, reactors=2, buffer_wait=10, timeout=50, extra="  egress_share: 100\n")
    cl, s = await env.crowd("c", CLIENTS, 12), await env.crowd("s", SERVERS, 8)
    for crowd, gateway in ((cl, NEAR), (s, FAR)):
        await crowd.nodes(gateway)
    async with clients(r) as c:
        w = await Watch.of(env, c, "buffers_exhausted", "buffers_free")
        await s.pause()
        load = await cl.load(pairs(cl.nids, s.nids), kind="send", size=1 << 20, window=8, timeout=30)
        e = await w.next("buffers_exhausted", timeout=15)
        assert e.get("pool") == "large", e
        await load.stop()
        await s.pause(False)
        e = await w.next("buffers_free", timeout=20)
        assert e.get("pool") == "large", e
        assert len(c.events) < 50, f"{len(c.events)} events of two pools: too many to be of use"
    await stop(load)
    await rest.wait(30)


@deadline(60)
async def test_control(env):
    """What people and programs change is told too; filters by type and NID hold; an unsubscribed one hears nothing."""
    env.need_millrace()
    r, _, crowd = await crowded_router(env, 5, routes=0)
    wanted = [f"10.65.200.{i + 1}@tcp" for i in range(2)]
    async with clients(r, 3) as (c, d, admin):
        w = await Watch.of(env, c)
        chosen = await d.call("events_subscribe", types=["peer_up"], nids=[wanted[1]])
        await admin.call("config_apply", text=r.yaml(routes=[{"net": "tcp9", "gateway": "10.64.1.1@tcp"}]), mode="replace",
                         confirm_s=10, name="new.yaml")
        await w.next("config_applied")
        await admin.call("config_confirm")
        await w.next("config_confirmed")
        await admin.call("config_apply", text=r.yaml(), mode="replace", confirm_s=1)
        await w.next("config_applied")
        e = await w.next("config_rolled_back", timeout=8)
        assert e["cause"], e
        for enable in (0, 1):
            await admin.call("routing_set", enable=enable)
            await w.next("routing")
        await admin.call("log_set", module="rpc", level="debug")
        await w.next("log_level")
        await crowd.visit(HOME, nids=wanted)
        for nid in wanted:
            assert any(e["type"] == "peer_up" and e["nid"] == nid for e in c.events) or await w.next("peer_up", nid=nid)
        await env.until(lambda: d.events, "the chosen one", 5)
        assert [(e["type"], e["nid"]) for e in d.events] == [("peer_up", wanted[1])], d.events
        assert d.events[0]["subscription"] == chosen["subscription"]
        await d.call("events_unsubscribe", **chosen)
        assert (await d.ask("events_unsubscribe", chosen)).error
        seen = len(c.events)
        await crowd.visit(HOME, nids=[wanted[1]])
        await c.event(lambda e: e["type"] == "peer_up" and e["nid"] == wanted[1], "told to the other", after=seen)
        await d.call("version")         # behind whatever it would have been told
        assert len(d.events) == 1, d.events
        bad = await d.ask("events_subscribe", {"types": ["no_such_type"]})
        assert bad.error and "no_such_type" in str(bad.error), bad
        w.check()
