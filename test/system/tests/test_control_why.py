# SPDX-License-Identifier: BSD-3-Clause
"""`why` says where a message would go, and a message sent right after goes there. docs/jsonrpc.md."""

import asyncio

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.control import clients, until_routing
from lnetpy.node import TEST_PORTAL, pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, deadline, join

G1, G2 = "10.0.1.7@tcp1", "10.0.1.8@tcp1"
ROUTES = [{"net": "tcp9", "gateway": G1, "hop": 2, "priority": 0}, {"net": "tcp9", "gateway": G2, "hop": 2, "priority": 1},
          {"net": "tcp10", "gateway": G1, "hop": 3, "priority": 0}, {"net": "tcp10", "gateway": G2, "hop": 2, "priority": 0}]
BY_PRIORITY, BY_HOPS, NO_ROUTE = "10.9.0.2@tcp9", "10.10.0.2@tcp10", "10.20.0.2@tcp20"


class Observer:
    """Where a message really goes: which persona it is handed to, or by which name it is dropped."""

    def __init__(self, env, router, client):
        self.env, self.router, self.client, self.seen = env, router, client, []

    def watch(self, node):
        def took(ni, _conn, hdr, _payload):
            if hdr.mtype == wire.PUT and hdr.portal == TEST_PORTAL:
                self.seen.append((str(ni.nid), str(hdr.dst)))
                self.env.kick()
                return True
            return False
        node.on_message = took
        return node

    async def send(self, dst):
        """("to", NID of who got it) or ("dropped", name)"""
        self.seen.clear()
        before = await self.router.drops()
        via = (self.client.nis[0], self.router.nids[0])
        assert await self.client.put(N.parse(dst), pattern(1, 100), ack=False, via=via)

        async def outcome():
            if self.seen:
                return "to", self.seen[0][0]
            rows = (await self.router.rpc("drops_get"))["drops"]
            new = [d["name"] for d in rows if d["kind"] == "message" and d["count"] > before[d["name"]]]
            return ("dropped", new[0]) if new else None
        out = await self.env.until_async(outcome, f"a message to {dst} arrives or is dropped", 15)
        self.env.ledger.forget(lambda e: str(e.header.dst) == dst)
        return out


async def agree(client, observer, dst, expect=None):
    """What `why` says, and then that it is so."""
    said = (await client.call("why", nid=dst, source=str(observer.client.nid)))["why"]
    how = await observer.send(dst)
    if said["verdict"] == "forwarded":
        told = ("to", said["next_hop"])
    else:
        assert said["verdict"] == "dropped", said
        told = ("dropped", said["drop"])
    assert how == told, f"why {dst} said {told}, but it went {how}: {said}"
    assert expect is None or how == expect, f"{dst}: {how}, not {expect}"
    assert said["text"], said
    return said


def verdicts(said):
    return {r["gateway"]: r["verdict"] for r in said["routes"]}


async def scene(env):
    """Two gateways on the far net, with routes to two nets beyond; a client and a server."""
    r = await env.router("r", *ROUTER, check_interval=2, ping_timeout=120, timeout=5, routes=ROUTES)
    r.spec.gateways, r.spec.features = {N.parse(G1), N.parse(G2)}, {0x1a, 0x1e}     # 1e: with routing off
    c, s = await env.persona("c", CLIENT), await env.persona("s", SERVER)
    for n in r.nids:
        r.spec.set_status(n, wire.UP, wire.DOWN)
    observer = Observer(env, r, c)
    observer.watch(s)
    gateways = {}
    for name, nid in (("g1", G1), ("g2", G2)):
        gateways[nid] = observer.watch(await gateway(env, name, nid))
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    return r, c, s, gateways, observer


async def gateway(env, name, nid):
    return await env.persona(name, nid, f"10.9.0.{nid[7]}@tcp9", routing=True)


async def until_routes(env, client, states):
    """Until each gateway's routes are as said."""
    async def so():
        rows = (await client.call("route_get"))["route"]
        return all(row["state"] == states[row["gateway"]] for row in rows)
    await env.until_async(so, f"routes {states}", 20)


@deadline(60)
async def test_where_it_goes(env):
    """Local, by priority, by hops, without a route, with gateways down, with routing off, with the link down."""
    env.need_millrace()
    r, c, s, gateways, observer = await scene(env)
    async with clients(r) as client:
        await until_routes(env, client, {G1: "up", G2: "up"})
        said = await agree(client, observer, SERVER, ("to", SERVER))
        assert said["ni"] == ROUTER[1] and not said["routes"], said
        said = await agree(client, observer, BY_PRIORITY, ("to", G1))
        assert verdicts(said) == {G1: "chosen", G2: "priority"} and said["gateway"] == G1, said
        said = await agree(client, observer, BY_HOPS, ("to", G2))
        assert verdicts(said) == {G1: "hops", G2: "chosen"}, said
        said = await agree(client, observer, NO_ROUTE, ("dropped", "no_route"))
        assert not said["routes"], said
        # Routes change their order at once
        await client.call("config_apply", mode="replace",
                          text=r.yaml(routes=[{**x, "priority": 0 if x["gateway"] == G2 else 1} for x in ROUTES]))
        await agree(client, observer, BY_PRIORITY, ("to", G2))
        await client.call("config_apply", text=r.yaml(), mode="replace")
        await agree(client, observer, BY_PRIORITY, ("to", G1))
        # The better gateway dies, then both
        await gone(env, gateways, G1)
        await until_routes(env, client, {G1: "down", G2: "up"})
        said = await agree(client, observer, BY_PRIORITY, ("to", G2))
        assert verdicts(said) == {G1: "gateway_down", G2: "chosen"}, said
        await gone(env, gateways, G2)
        await until_routes(env, client, {G1: "down", G2: "down"})
        said = await agree(client, observer, BY_PRIORITY, ("dropped", "no_live_route"))
        assert set(verdicts(said).values()) == {"gateway_down"}, said
        # Routing off
        await while_it_stops(env, client, observer)
        await until_routing(env, client, 0)
        await agree(client, observer, SERVER, ("dropped", "routing_disabled"))
        await client.call("routing_set", enable=1)
        await agree(client, observer, SERVER, ("to", SERVER))
        # What is its own
        said = (await client.call("why", nid=ROUTER[0], source=CLIENT))["why"]
        assert said["verdict"] == "mine", said
        assert await c.ping(r.nids[0])
        # From the router itself
        said = (await client.call("why", nid=SERVER))["why"]
        assert said["verdict"] in ("forwarded", "local") and said["next_hop"] == SERVER and said["peer_ni"], said


async def while_it_stops(env, client, observer):
    """Switched off, but not off yet, it still forwards. Stopping takes check interval and ping timeout; where that was not
    time enough to see it, there is more the next time."""
    for seconds in (1, 3, 9):
        await client.call("global_set", alive_router_check_interval=seconds, router_ping_timeout=1)
        await client.call("routing_set", enable=0)
        said = (await client.call("why", nid=SERVER, source=CLIENT))["why"]
        how = await observer.send(SERVER)
        if (await client.call("routing_get"))["enable"] != 0:
            assert said["verdict"] == "forwarded" and said["next_hop"] == SERVER and how == ("to", SERVER), (said, how)
            return
        await client.call("routing_set", enable=1)
        await until_routing(env, client, 1)
    raise AssertionError("routing was off before a message could be sent")


async def gone(env, gateways, nid):
    node = gateways.pop(nid)
    env.nodes.remove(node)
    node.stop()


async def puts_from(client, nid):
    """PUTs that came in on this NI, wherever they went."""
    for net in (await client.call("net_get"))["net"]:
        for ni in net["local NI(s)"]:
            if ni["nid"] == nid:
                return ni["received_stats"]["put"] + ni["dropped_stats"]["put"]


@deadline(60)
async def test_link_down(env):
    """Of two NIs on a net the one whose link is down loses; with its only link down a net's messages go where `why` says."""
    env.need_millrace()
    r, c, s, gateways, observer = await scene(env)
    async with clients(r) as client:
        await until_routes(env, client, {G1: "up", G2: "up"})
        env.fabric.link(env.fabric.ports["r", "eth1"], False)
        down = r.nids[1]

        async def noticed():
            rows = [ni for n in (await client.call("net_get"))["net"] for ni in n["local NI(s)"]]
            return next(ni["status"] for ni in rows if ni["nid"] == str(down)) == "down"
        await env.until_async(noticed, "the NI is down", 10)
        said = (await client.call("why", nid=SERVER, source=CLIENT))["why"]
        before = await puts_from(client, ROUTER[0])
        sent = env.loop().create_task(observer.send(SERVER))

        async def decided():
            return await puts_from(client, ROUTER[0]) > before
        await env.until_async(decided, "the message has come while the link was down", 15)
        env.fabric.link(env.fabric.ports["r", "eth1"], True)
        how = await sent
        told = ("to", said["next_hop"]) if said["verdict"] == "forwarded" else ("dropped", said["drop"])
        assert how == told, f"why said {told}, but it went {how}"
        assert any(n["nid"] == str(down) and n["verdict"] for n in said["nis"]), said
    env.result(f"only link down: {told}")
