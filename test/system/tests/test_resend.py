# SPDX-License-Identifier: BSD-3-Clause
"""Resends: a message that could not be sent goes again by another path. docs/protocol/lnet-core.md §4.10, §6.2. Two gateways with two
NIDs each count what they get; rules of fault injection make sends fail."""

from collections import Counter

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, deadline, only

FAR = "10.9.0.2@tcp9"
NIDS = (("10.0.1.7@tcp1", "10.0.1.17@tcp1"), ("10.0.1.8@tcp1", "10.0.1.18@tcp1"))
AGAIN = ("local_interrupt", "local_dropped", "local_aborted", "local_no_route", "local_timeout", "remote_dropped")
ONCE = ("local_error", "remote_error", "remote_timeout", "network_timeout")
COUNTS = ("resend_count", "successful_resends", "failed_resends")


class Gateways:
    """Takes what comes for FAR, and counts it by match bits."""

    def __init__(self):
        self.seen, self.by_nid = Counter(), Counter()

    def take(self, ni, conn, hdr, payload):
        if str(hdr.dst) != FAR:
            return False
        self.seen[hdr.match_bits] += 1
        self.by_nid[ni.nid] += 1
        return True


async def scene(env):
    r = await env.router("r", *ROUTER, routes=[{"net": "tcp9", "gateway": nids[0]} for nids in NIDS])
    gateways = Gateways()
    for i, nids in enumerate(NIDS):
        g = await env.persona(f"g{i}", *nids, f"10.9.0.{7 + i}@tcp9", routing=True)
        g.on_message = gateways.take
        r.spec.gateways.update(ni.nid for ni in g.nis[:2])
    env.ledger.ordered = False
    c = await env.persona("c", CLIENT)
    c.add_route(N.parse_net("tcp9"), r.nids[0], hop=2)
    await env.bring_up(c)
    for n in r.nids:
        r.spec.set_status(n, wire.UP, wire.DOWN)

    async def all_used():
        await send(env, r, c, gateways, 1, arrive=True)
        return len(gateways.by_nid) == 4
    await env.until_async(all_used, "messages take all NIDs of the gateways", 40, 0.1)
    return r, c, gateways


async def send(env, r, c, gateways, n, arrive):
    """PUTs, each after the one before has arrived and the router has counted it, or has failed."""
    async def ended():
        return (await r.rpc("stats_get"))["route_count"] if arrive else (await r.drops())["fault_send"]

    for i in range(n):
        seen, before = sum(gateways.seen.values()), await ended()
        await c.put(N.parse(FAR), pattern(i, (0, 100, 5000)[i % 3]), ack=False, via=(c.nis[0], r.nids[0]))
        if arrive:
            await env.until(lambda seen=seen: sum(gateways.seen.values()) > seen, "the message arrives", 10)

        async def counted(before=before):
            return await ended() > before
        await env.until_async(counted, "the router has counted the message", 10, 0.01)


async def run(env, r, c, gateways, status, rate, n):
    """Returns the rule's counters and what the other counters have grown by."""
    stats, drops = await r.rpc("stats_get"), (await r.drops())["fault_send"]
    await r.rpc("fault_add", type="drop", rate=rate, message=["PUT"], health_error=[status], source=CLIENT, dest=FAR)
    await send(env, r, c, gateways, n, arrive=rate > 1)
    (rule,) = (await r.rpc("fault_get", type="drop"))["fault"]
    now = await r.rpc("stats_get")
    await r.rpc("fault_del", type="drop", all=True)
    return rule["fs_count"], rule["ds_dropped"], [now[k] - stats[k] for k in COUNTS], (await r.drops())["fault_send"] - drops


@only("kernel", "port")
@deadline(180)
async def test_resends(env):
    """One send in ten fails: each message arrives once. All fail: each message is sent three times and lost, or once if its status is
    not resent."""
    env.need_millrace()
    r, c, gateways = await scene(env)
    for status in AGAIN:
        tries, failed, (resent, successful, lost), dropped = await run(env, r, c, gateways, status, 10, 40)
        env.log(f"{status}: {tries} sends, {failed} failed, {resent} resent, {successful} of them arrived")
        assert (tries, resent, lost, dropped) == (40 + failed, failed, 0, 0), (tries, failed, resent, lost, dropped)
        assert tries // 10 <= failed <= tries // 10 + 1 and 0 < successful <= failed, (tries, failed, successful)
        got = await run(env, r, c, gateways, status, 1, 5)
        assert got == (15, 15, [10, 0, 5], 5), (status, got)
    for status in ONCE:
        got = await run(env, r, c, gateways, status, 1, 5)
        assert got == (5, 5, [0, 0, 0], 5), (status, got)
    await r.rpc("global_set", retry_count=4)
    assert await run(env, r, c, gateways, "local_dropped", 1, 2) == (10, 10, [8, 0, 2], 2)
    await r.rpc("global_set", health_sensitivity=0)
    assert (await r.rpc("global_get"))["retry_count"] == 0
    assert await run(env, r, c, gateways, "local_dropped", 1, 2) == (2, 2, [0, 0, 0], 2)
    assert set(gateways.seen.values()) == {1}, "a message arrived twice"
    env.ledger.forget(lambda e: True)    # it keeps account of what reaches an end node
    await env.settle()
