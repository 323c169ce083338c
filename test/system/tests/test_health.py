# SPDX-License-Identifier: BSD-3-Clause
"""Health of peer NIs: failures lower it by a step each, recovery pings bring it back. docs/protocol/lnet-core.md §6."""

import json
import subprocess
import time

from lnetpy.monitor import Exporter, host
from lnetpy.node import pattern
from lnetpy.router import find_program
from lnetpy.scene import SERVER, deadline, line, only

STEP = 100      # health_sensitivity
GAP = 2         # max_recovery_ping_interval, s


async def stats_of(router, nid):
    return (await router.peers())[str(nid)]["health stats"]


async def recovering(router):
    return (await router.rpc("recovery_get", peer=True))["nids"]


def millrace(env, router, *words, status=0):
    """What a command prints."""
    ran = subprocess.run([find_program(env.build, "millrace"), "-s", router.sock, *words], check=False, capture_output=True, text=True, timeout=20)
    assert ran.returncode == status, ran
    return ran.stdout


def debug_recovery(env, router, which):
    """What `millrace debug recovery` prints."""
    return millrace(env, router, "debug", "recovery", which)


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
    assert debug_recovery(env, r, "-p") == f"Peer NI recovery:\n      nid-0: {s.nid}\n"
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


@only("kernel", "port")
@deadline(120)
async def test_seen(env):
    """A PUT to a gateway fails, and the gateway answers no ping: the event names the PUT, and `status`, `top` and the metrics say which
    gateway is below full health and in recovery. When the gateway answers again, an event names its REPLY, and all of them are content."""
    env.need_millrace()
    c, r, s = await line(env)
    nid = str(s.nid)
    await r.rpc("global_set", max_recovery_ping_interval=GAP)
    r.spec.gateways.add(s.nid)
    await r.rpc("route_add", net="tcp7", gateway=nid)

    async def up():
        return all(row["state"] == "up" for row in (await r.rpc("route_get"))["route"])
    await env.until_async(up, "the route is up", 20)
    exporter = Exporter(env, host(env), r)
    try:
        await exporter.serves(exporter.port, "/metrics")
        page = exporter.samples()
        assert page[f'millrace_gateway_health{{gateway="{nid}"}}'] == 1000 and page["millrace_peer_nis_unhealthy"] == 0, page
        s.on_message = lambda *_: True
        await r.rpc("fault_add", type="drop", source="*", dest=nid, rate=1, message=["PUT"], health_error=["remote_timeout"])
        assert await c.put(s.nid, pattern(1, 100), ack=False)
        env.ledger.forget(lambda e: e.header.dst == s.nid)

        async def below():
            return (await r.rpc("health_get"))["peer_nis"] == {"unhealthy": 1, "recovering": 1}
        await env.until_async(below, "the gateway is not healthy", 10)
        event = next(e for e in (await r.rpc("events_get"))["events"] if e["type"] == "peer_health")
        assert (event["nid"], event["health"], event["cause"]) == (nid, 900, "remote_timeout"), event
        assert event["message"] == {"type": "PUT", "src": str(c.nid), "dest": nid}, event
        row, = (await r.rpc("health_get"))["peer_ni"]
        assert row["nid"] == nid and row["gateway"] and row["recovering"] and row["failures"]["remote_timeout"] == 1, row
        seen = json.loads(millrace(env, r, "status", "--json", status=1))
        assert seen["routes"]["gateways"][nid]["recovering"] and seen["routes"]["gateways"][nid]["health"] < 1000, seen
        text = [f["text"] for f in seen["findings"] if f["check"] == "gateway" and f["object"] == nid]
        assert len(text) == 1 and text[0].endswith(" of 1000: it is pinged until it is healthy"), seen
        line_, = (x for x in millrace(env, r, "top", "--batch", "1", "--interval", "1", "--page", "health").splitlines() if x.startswith(nid))
        assert line_.split()[1] == "gw" and int(line_.split()[2]) < 1000, line_
        page = exporter.samples()
        assert page[f'millrace_gateway_health{{gateway="{nid}"}}'] < 1000, page
        assert page["millrace_peer_nis_unhealthy"] == page["millrace_peer_nis_recovering"] == 1 and page["millrace_nis_unhealthy"] == 0, page
        assert page[f'millrace_peer_health{{nid="{nid}"}}'] < 1000, page
        await r.rpc("fault_del", type="drop", all=True)
        s.on_message = None
        await healthy(env, r, s.nid, "the gateway is healthy again", GAP + 15)
        event = [e for e in (await r.rpc("events_get"))["events"] if e["type"] == "peer_health"][-1]
        assert (event["nid"], event["health"], event["state"], event["cause"]) == (nid, 1000, "healthy", "message_passed"), event
        assert event["message"]["src"] == nid and event["message"]["type"] == "REPLY", event
        page = exporter.samples()
        assert page[f'millrace_gateway_health{{gateway="{nid}"}}'] == 1000 and page["millrace_peer_nis_recovering"] == 0, page
        assert not [f for f in json.loads(millrace(env, r, "status", "--json", status=1))["findings"] if "of 1000" in f["text"]]
    finally:
        exporter.kill()
    await env.settle()
