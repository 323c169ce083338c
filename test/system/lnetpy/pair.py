# SPDX-License-Identifier: BSD-3-Clause
"""A scene of load tests: a router with two gateways, and servers behind both of these.

    clients - tcp - a - tcp1 - b0, b1 - tcp2 - servers

Time bars follow from the settings below and docs/protocol/lnet-core.md §3.7, §3.8 and §6.3. Nodes ping their gateways as often as the
routers do, so no net ages; or once in a minute, with a longer `ping_timeout` of the routers.
"""

from . import wire
from .crowd_scene import CLIENTS, FAR, NEAR, SECOND, allowed, wide_router
from .scene import routes_up

CHECK, ANSWER, CONNECT = 2, 3, 1    # s: check interval; time for the answer to a check; longest time between attempts to connect
TICK = 1                            # s between two looks of the monitor
GAP = 4                             # s, max_recovery_ping_interval
GATEWAYS = ((SECOND, "10.3.0.1@tcp2"), ("10.2.0.3@tcp1", "10.3.0.2@tcp2"))


class Pair:
    """Clients - a - b0 or b1 - servers. Router a has two gateways. Routers b look after their NIs, and servers know both of them."""

    async def start(self, env, clients=8, servers=4, check=CHECK, **kw):
        self.env = env
        settings = {"check_interval": CHECK, "ping_timeout": ANSWER, "timeout": 5, "extra": f"  max_reconnect: {CONNECT}\n", **kw}
        self.b = [(await wide_router(env, f"b{i}", nids, routes=[{"net": "tcp", "gateway": FAR}], **settings))[0]
                  for i, nids in enumerate(GATEWAYS)]
        self.a, self.rest = await wide_router(env, "a", (NEAR, FAR), routes=[{"net": "tcp2", "gateway": near} for near, _ in GATEWAYS],
                                              **settings)
        for r in (self.a, *self.b):
            await r.rpc("global_set", max_recovery_ping_interval=GAP)
        self.c, self.s = await env.crowd("c", CLIENTS, clients), await env.crowd("s", "10.3.1.1@tcp2", servers)
        await self.c.nodes(NEAR, check_interval=check)
        await self.s.nodes([far for _, far in GATEWAYS], check_interval=check, hops=2)
        await routes_up(env, self.a, *self.b)
        return self

    async def forwarded(self):
        return [(await r.stats())["route_count"] for r in self.b]

    async def until_used(self, used, timeout=20):
        """Messages pass through these gateways from now on."""
        before = await self.forwarded()

        async def all_used():
            now = await self.forwarded()
            return all(now[i] > before[i] + 20 for i in used)
        await self.env.until_async(all_used, f"messages pass through {used}", timeout)

    async def route(self, i):
        near = GATEWAYS[i][0]
        return next(x["state"] for x in (await self.a.rpc("route_get"))["route"] if x["gateway"] == near)

    async def until_route(self, i, state, bar, what):
        """Waits for the state. Returns the seconds that it took."""
        begun = self.env.now()

        async def there():
            return await self.route(i) == state
        limit = await allowed(self.env, bar, self.c)
        await self.env.until_async(there, f"{what}: the route is {state} after {limit:.1f} s", limit)
        self.env.result(f"{what}: the route is {state} after {self.env.now() - begun:.1f} s, at most {bar:.1f} s")

    async def arrived(self, lost=0):
        """All that was sent arrived once, but for what is lost."""
        await self.c.idle(30, answered=False)

        async def balanced():
            return (await self.c.state())["sent"][wire.PUT] == (await self.s.state())["received"][wire.PUT] + lost
        await self.env.until_async(balanced, f"all but {lost} arrive", 30)
        for crowd in (self.c, self.s):
            state = await crowd.state()
            assert not any(state.get(k) for k in ("doubled", "altered", "closed")), f"{crowd.name}: {state}"
        self.env.result(f"{(await self.c.state())['sent'][wire.PUT]} messages, {lost} lost, none doubled")
