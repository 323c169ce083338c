# SPDX-License-Identifier: BSD-3-Clause
"""Routes follow what happens to gateways: three in parallel and a second hop, each killed, stopped and cut off on its far side.

    c - tcp - x - tcp1 - g0, g1, g2 - tcp2 - h - tcp3 - s

All time bars follow from the settings below and docs/protocol/lnet-core.md §3.7 and §3.8.
"""

import signal

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.crowd_scene import allowed
from lnetpy.node import pattern
from lnetpy.scene import beside_one, cases, deadline, only, routes_up

CHECK, ANSWER, CONNECT = 2, 3, 1    # s: check interval; time for the answer to a check; longest time between attempts to connect
TICK = 1                            # the monitor looks once a second (§3.7, §3.8)
PUSHED = 1                          # a change is pushed within a second
SILENT = CHECK + TICK + ANSWER      # until a check is due, sent, and had no answer
REFUSED = CHECK + TICK + CONNECT    # … or finds nobody to connect to
ALIVE = CHECK + TICK                # until a check is due and answered
FAR_DOWN = TICK + PUSHED            # the gateway sees its link, and pushes the status
TIMES = {"check_interval": CHECK, "ping_timeout": ANSWER, "timeout": 5, "extra": f"  max_reconnect: {CONNECT}\n"}
G = [f"10.1.0.{11 + i}@tcp1" for i in range(3)]
G_FAR = [f"10.2.0.{11 + i}@tcp2" for i in range(3)]
X, H = ("10.0.0.1@tcp", "10.1.0.1@tcp1"), ("10.2.0.1@tcp2", "10.3.0.1@tcp3")


class Network:
    async def start(self, env):
        self.env = env
        env.ledger.ordered = False
        env.tolerate = ["status"]
        self.x = await env.router("x", *X, **TIMES, routes=[{"net": net, "gateway": g, "hop": hop} for g in G
                                                            for net, hop in (("tcp2", 1), ("tcp3", 2))])
        self.g = [await env.router(f"g{i}", G[i], G_FAR[i], **TIMES, routes=[{"net": "tcp", "gateway": X[1]}, {"net": "tcp3", "gateway": H[0]}])
                  for i in range(3)]
        self.h = await env.router("h", *H, **TIMES, routes=[{"net": net, "gateway": g, "hop": hop} for g in G_FAR
                                                            for net, hop in (("tcp1", 1), ("tcp", 2))])
        self.c = await env.persona("c", "10.0.0.2@tcp", check_interval=CHECK)
        self.s = await env.persona("s", "10.3.0.2@tcp3", check_interval=CHECK)
        for r in (self.x, *self.g, self.h):
            r.spec.allow_none = r.spec.any_type = r.spec.allow_rst = True
            for n in r.nids:
                r.spec.set_status(n, wire.UP, wire.DOWN)
        self.c.add_route(N.parse_net("tcp3"), self.x.nids[0], hop=3)
        self.s.add_route(N.parse_net("tcp"), self.h.nids[1], hop=3)
        await env.bring_up(self.c, self.s)
        await routes_up(env, self.x, *self.g, self.h)
        await self.passes({0, 1, 2})
        return self

    async def become(self, what, state, bar, *routes):
        """Routes (router, net, gateway) have this state within the bar, all counted from now."""
        began, open_, took = self.env.now(), list(routes), {}

        async def there():
            for route in list(open_):
                router, net, gateway = route
                rows = (await router.rpc("route_get"))["route"]
                if any(x["state"] == state for x in rows if (x["net"], x["gateway"]) == (net, gateway)):
                    open_.remove(route)
                    took[f"{router.name} to {net}"] = self.env.now() - began
            return not open_
        limit = await allowed(self.env, bar)
        await self.env.until_async(there, f"{what}: {state} within {limit:.1f} s", limit)
        self.env.result(f"{what}: {state} after {max(took.values()):.1f} s, at most {bar:.1f} s")

    async def passes(self, gateways):
        """Messages pass through each of these gateways, and through no other."""
        async def counts():
            return [(await self.g[i].stats())["route_count"] if i in gateways else 0 for i in range(3)]
        before = await counts()
        for n in range(18):
            assert await self.c.put(self.s.nid, pattern(n, 3000), timeout=5), f"message {n} through {gateways}"
        after = await counts()
        assert all(after[i] > before[i] for i in gateways), f"{gateways}: {before}, {after}"

    def through(self, i):
        """The routes through a gateway of the first hop, of the routers on both of its sides."""
        return [(self.x, net, G[i]) for net in ("tcp2", "tcp3")] + [(self.h, net, G_FAR[i]) for net in ("tcp1", "tcp")]

    def to_h(self):
        return [(g, "tcp3", H[0]) for g in self.g]

    def forget(self):
        """What was under way through a router that went."""
        self.env.ledger.forget(lambda e: True)


async def restarted(net, r, name, routes):
    r.crash()
    # The host of a port does not end its connections.
    await net.become(f"{name} killed", "down", REFUSED if net.env.transport == "kernel" else SILENT, *routes)
    return await r.restart()


@only("kernel", "port")
@beside_one
@deadline(180)
@cases("killed", "stopped", "far side")
async def test_first_hop(env, how):
    """One of three parallel gateways. The others carry all meanwhile. A route of two hops is not judged by the far side (§3.8 row 4)."""
    env.need_millrace()
    net = await Network().start(env)
    g, routes = net.g[1], net.through(1)
    if how == "killed":
        await restarted(net, g, "g1", routes)
        await net.passes({0, 2})
        await g.ready()
        await net.become("g1 started again", "up", ALIVE + CONNECT, *routes)
    elif how == "stopped":
        g.proc.send_signal(signal.SIGSTOP)
        try:
            await net.become("g1 stopped", "down", SILENT, *routes)
            await net.passes({0, 2})
        finally:
            g.proc.send_signal(signal.SIGCONT)
        await net.become("g1 goes on", "up", ALIVE, *routes)
    else:
        port, began = env.fabric.ports["g1", "eth1"], env.now()
        env.fabric.link(port, False)
        await net.become("g1's far link pulled", "down", FAR_DOWN, routes[0])
        await net.become("g1's far link pulled, seen from there", "down", SILENT, *routes[2:])
        assert all(x["state"] == "up" for x in (await net.x.rpc("route_get"))["route"] if x["net"] == "tcp3"), "a route of two hops"
        env.fabric.link(port, True)
        again = env.now() - began       # TCP doubles the time until it sends again: at most as long as the link was down
        await net.become("g1's far link back", "up", ALIVE + CONNECT + again + PUSHED, *routes)
    net.forget()
    await net.passes({0, 1, 2})


@only("kernel", "port")
@beside_one
@deadline(180)
@cases("killed", "stopped", "far side")
async def test_second_hop(env, how):
    """The router behind the three gateways: each of them has its route down and up in time."""
    env.need_millrace()
    net = await Network().start(env)
    h, routes = net.h, net.to_h()
    if how == "killed":
        await restarted(net, h, "h", routes)
        await h.ready()
        await net.become("h started again", "up", ALIVE + CONNECT, *routes)
    elif how == "stopped":
        h.proc.send_signal(signal.SIGSTOP)
        try:
            await net.become("h stopped", "down", SILENT, *routes)
        finally:
            h.proc.send_signal(signal.SIGCONT)
        await net.become("h goes on", "up", ALIVE, *routes)
    else:
        port, began = env.fabric.ports["h", "eth1"], env.now()
        env.fabric.link(port, False)
        await net.become("h's far link pulled", "down", FAR_DOWN, *routes)
        env.fabric.link(port, True)
        await net.become("h's far link back", "up", ALIVE + CONNECT + env.now() - began + PUSHED, *routes)
    net.forget()
    await env.bring_up(net.s)
    await routes_up(env, net.x, *net.g, h)
    await net.passes({0, 1, 2})
