# SPDX-License-Identifier: BSD-3-Clause
"""Rules of fault injection: docs/protocol/lnet-core.md §9. Personas send through the router; what they miss is compared with what
the router says that it did."""

import asyncio
import time

from lnetpy.node import pattern
from lnetpy.scene import CLIENT, SERVER, cases, line, only

PAIR = {"source": CLIENT, "dest": SERVER}
RESENDS = 2     # of a local status; the server has one NI, so that nothing is sent again to it
STATUSES = ("local_interrupt", "local_dropped", "local_aborted", "local_no_route", "local_error", "local_timeout", "remote_error",
            "remote_dropped", "remote_timeout", "network_timeout")


async def rules(r, kind):
    return (await r.rpc("fault_get", type=kind))["fault"]


async def changed(r, before):
    """Drop reasons of messages that were counted since."""
    return {k: v - before.get(k, 0) for k, v in (await r.drops()).items() if v != before.get(k, 0)}


@only("kernel", "port")
async def test_one_in_ten(env):
    """Of each ten PUTs one is dropped: what does not arrive is what the router counts. Other messages pass."""
    env.need_millrace()
    c, r, s = await line(env)
    before = await r.drops()
    await r.rpc("fault_add", type="drop", rate=10, message=["PUT"], **PAIR)
    for i in range(200):
        assert await c.put(s.nid, pattern(i, (100, 5000, 0)[i % 3]), ack=False)
        if i % 10 == 0:
            assert await s.put(c.nid, pattern(i, 1000), timeout=10) and await c.get(s.nid, 3000, timeout=10)

    async def all_seen():
        return (await rules(r, "drop"))[0]["fs_count"] == 200
    await env.until_async(all_seen, "the rule has seen all")
    await env.until(lambda: len(env.ledger.outstanding()) == 20, "all but the dropped ones arrive", 10)
    (row,) = await rules(r, "drop")
    assert [row[k] for k in ("fs_count", "ds_dropped", "fs_put", "fs_ack", "fs_get", "fs_reply")] == [200, 20, 20, 0, 0, 0], row
    assert [row[k] for k in ("fa_src", "fa_dst", "fa_msg_mask", "fa_ptl_mask", "da_rate", "da_interval")] == [CLIENT, SERVER, 2, 0, 10, 0], row
    assert await changed(r, before) == {"fault": 20}, await changed(r, before)
    assert len(env.ledger.forget(lambda e: e.header.dst == s.nid)) == 20
    await r.rpc("fault_reset", type="drop")
    (row,) = await rules(r, "drop")
    assert (row["fs_count"], row["ds_dropped"], row["fs_put"]) == (0, 0, 0), row
    assert await r.rpc("fault_del", type="drop", **PAIR) == {"removed": 1}
    for i in range(20):
        assert await c.put(s.nid, pattern(i, 5000), timeout=10)
    await env.settle()


@only("kernel", "port")
async def test_delay(env):
    """A PUT is held for a second when it arrives and for another when it is sent; its ACK is not. A rule that is deleted lets go."""
    env.need_millrace()
    c, r, s = await line(env)
    await r.rpc("fault_add", type="delay", rate=1, latency=1, message=["PUT"], **PAIR)
    began = time.monotonic()
    assert await c.put(s.nid, pattern(1, 100000), timeout=20)
    took = time.monotonic() - began
    assert 1.99 < took < 2.9 * env.stretch(), took
    (row,) = await rules(r, "delay")
    assert [row[k] for k in ("fs_count", "ls_delayed", "fs_put", "la_rate", "la_latency")] == [2, 2, 2, 1, 1], row
    assert await r.rpc("fault_del", type="delay", source="*", dest="*") == {"removed": 1}
    await r.rpc("fault_add", type="delay", rate=1, latency=1000, message=["PUT"], **PAIR)
    began = time.monotonic()
    puts = [asyncio.ensure_future(c.put(s.nid, pattern(i, 5000), timeout=20)) for i in range(5)]

    async def held():
        return (await rules(r, "delay"))[0]["millrace"]["held"] > 0
    await env.until_async(held, "a message is held")
    assert await r.rpc("fault_del", type="delay", all=True) == {"removed": 1}
    assert all(await asyncio.gather(*puts))
    assert time.monotonic() - began < 5 * env.stretch()
    await env.settle()


@only("kernel", "port")
async def test_health_errors(env):
    """A message completes with each status instead of being sent: nothing arrives, and the status is counted."""
    env.need_millrace()
    c, r, s = await line(env)
    for status in (*STATUSES, "random"):
        before, stats = await r.drops(), await r.rpc("stats_get")
        await r.rpc("fault_add", type="drop", rate=1, message=["PUT"], health_error=[status], **PAIR)
        sends = 4 * (1 + RESENDS * (status.startswith("local_") and status != "local_error"))
        for i in range(4):
            assert await c.put(s.nid, pattern(i, 5000), ack=False)

        async def all_seen(sends=sends, before=before):
            dropped = (await r.drops())["fault_send"] - before.get("fault_send", 0)
            return dropped == 4 and (status == "random" or (await rules(r, "drop"))[0]["ds_dropped"] == sends)
        await env.until_async(all_seen, f"four have failed with {status}")
        now = await r.rpc("stats_get")
        counted = {k: now[f"{k}_count"] - stats[f"{k}_count"] for k in STATUSES}
        assert counted == {**dict.fromkeys(STATUSES, 0), status: sends} if status in STATUSES else 4 <= sum(counted.values()) <= 12, counted
        assert await changed(r, before) == {"fault_send": 4}, await changed(r, before)
        assert len(env.ledger.forget(lambda e: e.header.dst == s.nid)) == 4
        assert await r.rpc("fault_del", type="drop", all=True) == {"removed": 1}
        assert await c.put(s.nid, pattern(9, 5000), timeout=10)
    await env.settle()


@only("kernel", "port")
@cases("net", "node")
async def test_goes_away(env, what):
    """A net is removed, or the router ends, while messages are held: neither waits for the rule."""
    env.need_millrace()
    c, r, s = await line(env)
    await r.rpc("fault_add", type="delay", rate=1, latency=1000, **PAIR)
    for i in range(3):
        assert await c.put(s.nid, pattern(i, 5000), ack=False)

    async def held():
        return (await rules(r, "delay"))[0]["millrace"]["held"] > 0
    await env.until_async(held, "a message is held")
    began = time.monotonic()
    r.spec.allow_rst = True     # messages behind the held one are not read
    if what == "net":
        s.stop()    # the PUSH of an info with an NI less is no matter of this
        env.nodes.remove(s)
        r.spec.allow_none = r.spec.any_type = True
        await r.rpc("net_del", net="tcp", timeout=20)
        assert time.monotonic() - began < 6 * env.stretch()
        assert (await r.drops())["ni_removed"] == 1
        assert (await rules(r, "delay"))[0]["millrace"]["held"] == 0
    await r.stop()
    assert time.monotonic() - began < 15 * env.stretch()
    env.ledger.forget(lambda e: True)
