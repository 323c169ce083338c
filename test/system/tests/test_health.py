# SPDX-License-Identifier: BSD-3-Clause
"""Health of peer NIs: failures lower it by a step each, recovery pings bring it back. docs/protocol/lnet-core.md §6."""

import subprocess
import time

from lnetpy.node import pattern
from lnetpy.router import find_program
from lnetpy.scene import SERVER, deadline, line, only

STEP = 100      # health_sensitivity
GAP = 2         # max_recovery_ping_interval, s


async def stats_of(router, nid):
    return (await router.peers())[str(nid)]["health stats"]


async def recovering(router):
    return (await router.rpc("recovery_get", peer=True))["nids"]


def debug_recovery(env, router, which):
    """What `millrace debug recovery` prints."""
    return subprocess.run([find_program(env.build, "millrace"), "-s", router.sock, "debug", "recovery", which], check=True,
                          capture_output=True, text=True, timeout=20).stdout


def failures(row):
    return sum(row[k] for k in ("dropped", "timeout", "error", "network timeout"))


async def lost(router, before):
    """Messages dropped on the way to their next hop."""
    now = await router.drops()
    return sum(now[k] - before.get(k, 0) for k in now if k.startswith("next_hop"))


async def healthy(env, router, nid, what, limit):
    """Waits until the health is full again. Returns the seconds that it took."""
    begin = time.monotonic()

    async def full():
        return (await stats_of(router, nid))["health value"] == 1000
    await env.until_async(full, what, limit)
    return time.monotonic() - begin


@only("kernel", "port")
@deadline(120)
async def test_peer_falls_and_recovers(env):
    """A server goes away: each message to it that fails costs a step. A server that is back, and says nothing by itself, is pinged
    within the gap."""
    env.need_millrace()
    c, r, s = await line(env)
    await r.rpc("global_set", max_recovery_ping_interval=GAP)
    assert (await stats_of(r, s.nid))["health value"] == 1000 and not await recovering(r)
    r.spec.allow_none = r.spec.any_type = True
    s.stop(rst=True)
    env.nodes.remove(s)
    before = await r.drops()
    for i in range(3):
        assert await c.put(s.nid, pattern(i, 100), ack=False)

        async def counted(n=i + 1):
            return await lost(r, before) >= n
        await env.until_async(counted, f"message {i} is lost", 30)
    assert debug_recovery(env, r, "-p") == f"Peer NI recovery:\n    nid-0: {s.nid}\n"
    assert debug_recovery(env, r, "-l") == ""
    row = await stats_of(r, s.nid)
    timeouts = (await r.rpc("stats_get"))["response_timeout_count"]
    env.log(f"{failures(row)} failures, {timeouts} time-outs: {row}")
    assert failures(row) >= 3, row
    assert row["health value"] == max(0, 1000 - STEP * (failures(row) + timeouts)), row
    env.ledger.forget(lambda e: e.header.dst == s.nid)
    s = await env.persona("s", SERVER)
    took = await healthy(env, r, s.nid, "the server is healthy again", GAP + 10)
    env.log(f"healthy after {took:.1f} s")
    assert took < (GAP + 2) * env.stretch() + 5, took     # the tick, and a connection that is tried again after 4 s at most
    row = await stats_of(r, s.nid)
    assert row["ping_count"] == 0 and row["next_ping"] == 0 and not await recovering(r), row
    assert await c.put(s.nid, pattern(1, 100))
    await env.settle()


@only("kernel", "port")
@deadline(120)
async def test_gateway_without_answers(env):
    """A gateway takes messages and answers no ping: each ping that nobody answers costs a step; the first answer brings it back."""
    env.need_millrace()
    c, r, s = await line(env, router={"ping_timeout": 3, "timeout": 10})
    await r.rpc("global_set", max_recovery_ping_interval=GAP)
    r.spec.gateways.add(s.nid)
    await r.rpc("route_add", net="tcp7", gateway=str(s.nid))
    start = (await r.rpc("stats_get"))["response_timeout_count"]
    s.on_message = lambda *_: True
    await r.rpc("peer_set", nid=str(s.nid), health=1000 - STEP)     # so that it is pinged
    timeouts = 0

    async def three():
        nonlocal timeouts
        timeouts = (await r.rpc("stats_get"))["response_timeout_count"] - start
        return timeouts >= 3
    await env.until_async(three, "three pings are not answered", 40)
    row = await stats_of(r, s.nid)
    after = (await r.rpc("stats_get"))["response_timeout_count"] - start
    assert 1000 - STEP * (1 + after) <= row["health value"] <= 1000 - STEP * (1 + timeouts), (row, timeouts, after)
    assert str(s.nid) in await recovering(r)
    s.on_message = None
    took = await healthy(env, r, s.nid, "the gateway is healthy again", GAP + 10)
    env.log(f"{timeouts} time-outs: {row['health value']}; healthy after {took:.1f} s")
    assert took < (GAP + 2) * env.stretch(), took
    await env.settle()
