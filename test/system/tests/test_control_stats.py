# SPDX-License-Identifier: BSD-3-Clause
"""Counters move as docs/protocol/lnet-core.md §10.5 says, for exchanges of which each message is known."""

from lnetpy import nid as N
from lnetpy.control import clients
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, deadline, line

NAMES = ("msgs_alloc msgs_max rst_alloc errors send_count resend_count response_timeout_count local_interrupt_count "
         "local_dropped_count local_aborted_count local_no_route_count local_timeout_count local_error_count "
         "remote_dropped_count remote_error_count remote_timeout_count network_timeout_count failed_resends "
         "successful_resends recv_count route_count drop_count send_length recv_length route_length drop_length").split()
INFO = 64                   # bytes of the ping info of a router with two NIs


async def counters(client):
    s = await client.call("stats_get")
    return s.get("statistics", s)


async def until_moved(env, client, before, want):
    """Until the counters have moved by exactly `want`; those not named not at all (msgs_alloc and msgs_max aside)."""
    last = {}

    async def so():
        now = await counters(client)
        last.clear()
        last.update({k: now[k] - before[k] for k in NAMES if now[k] != before[k] and k not in ("msgs_alloc", "msgs_max")})
        return last == want
    try:
        await env.until_async(so, "counters", 20)
    except Exception:
        raise AssertionError(f"counters moved by {last}, not {want}") from None


async def greeted(env, client, neighbours):
    """Until nothing more will be said by itself; the counters then. Each neighbour has asked once and told once, and was told
    once: GET and REPLY, PUT and ACK, PUT and ACK (docs/protocol/lnet-core.md §3.6)."""
    async def so():
        now = await counters(client)
        assert max(now["send_count"], now["recv_count"]) <= 3 * neighbours, f"more than the neighbours' greetings: {now}"
        return now["send_count"] == now["recv_count"] == 3 * neighbours and now
    return await env.until_async(so, "the neighbours' greetings", 20)


@deadline(60)
async def test_stats(env):
    """Forwarded PUTs and GETs with their answers, pings and PUSHes served, pings sent, what is dropped; then reset."""
    env.need_millrace()
    c, r, s = await line(env)
    r.spec.gateways, r.spec.ping_sinks = {c.nid, s.nid}, {3960}
    via = (c.nis[0], r.nids[0])
    async with clients(r) as client:
        before = await greeted(env, client, 2)
        assert list(before) == NAMES, list(before)
        for size in (0, 1000, 200000):
            assert await c.put(s.nid, pattern(1, size))
        for size in (0, 5000):
            assert await c.get(s.nid, size)
        assert await c.put(s.nid, pattern(1, 700), ack=False)
        await env.settle()
        # PUT, ACK; GET, REPLY
        await until_moved(env, client, before, {"route_count": 3 * 2 + 2 * 2 + 1, "route_length": 201000 + 5000 + 700})
        before = await counters(client)
        for _ in range(3):
            assert await c.ping(r.nids[0])
        await until_moved(env, client, before, {"recv_count": 3, "send_count": 3, "send_length": 3 * INFO})
        before = await counters(client)
        assert await c.push(r.nids[0])
        size = c.info_size()
        await until_moved(env, client, before, {"recv_count": 1, "recv_length": size, "send_count": 1})
        before = await counters(client)
        assert "10.0.1.2@tcp1" in str(await client.call("ping", nid=SERVER))
        await until_moved(env, client, before, {"send_count": 1, "recv_count": 1, "recv_length": s.info_size()})
        before = await counters(client)
        dead = N.parse("10.9.0.2@tcp9")
        assert await c.put(dead, pattern(1, 300), ack=False, via=via)
        assert await c.put(dead, pattern(1, 30000), ack=False, via=via)
        await until_moved(env, client, before, {"drop_count": 2, "drop_length": 30300})
        env.ledger.forget(lambda e: e.header.dst == dead)

        async def none_held():      # counted first, given back then
            return (await counters(client))["msgs_alloc"] == 0
        await env.until_async(none_held, "no message held", 20)
        assert (await counters(client))["msgs_max"] >= 1
        await client.call("stats_reset")

        async def zero():
            now = await counters(client)
            return not any(now[k] for k in NAMES if k not in ("msgs_alloc", "msgs_max", "rst_alloc"))
        await env.until_async(zero, "counters at 0", 20)
        assert await c.put(s.nid, pattern(1, 1000))
        zeros = dict.fromkeys(NAMES, 0)
        await until_moved(env, client, zeros, {"route_count": 2, "route_length": 1000})


def of_type(row, which):
    return {k: v for k, v in row[f"{which}_stats"].items() if v}


async def per_type(client):
    """(NI or peer) -> its counters by type"""
    out = {}
    for net in (await client.call("net_get"))["net"]:
        for ni in net["local NI(s)"]:
            out["NI " + ni["nid"]] = ni
    for p in (await client.call("peer_get"))["peer"]:
        for ni in p["peer ni"]:
            out["peer " + ni["nid"]] = ni
    return out


def moves(before, after, which):
    out = {}
    for name in after:
        old = before.get(name, {}).get(f"{which}_stats", {})
        delta = {k: v - old.get(k, 0) for k, v in after[name][f"{which}_stats"].items() if v != old.get(k, 0)}
        if delta:
            out[name] = delta
    return out


async def until_types(env, client, before, **want):
    """Until the counters by type of NIs and peers, of each word given, have moved by exactly what is given; they are then."""
    last = {}

    async def so():
        last["rows"] = await per_type(client)
        last["moved"] = {w: moves(before, last["rows"], w) for w in want}
        return last["moved"] == want
    try:
        await env.until_async(so, "counters by type", 20)
    except Exception:
        raise AssertionError(f"counters by type moved by {last['moved']}, not {want}") from None
    return last["rows"]


@deadline(60)
async def test_per_type(env):
    """Counters of NIs and peers by message type: forwarded messages under their own type on both sides; an answer of the
    router's own under the type of the question."""
    env.need_millrace()
    c, r, s = await line(env)
    near, far = (f"NI {n}" for n in ROUTER)
    pc, ps = f"peer {CLIENT}", f"peer {SERVER}"
    async with clients(r) as client:
        await greeted(env, client, 2)
        # Of each neighbour's greeting the ACK came as such; the router's answers are under the type of the question
        came, went = {"get": 1, "put": 1, "ack": 1}, {"get": 1, "put": 2}
        before = await until_types(env, client, {}, received=dict.fromkeys((near, pc, far, ps), came),
                                   sent=dict.fromkeys((near, pc, far, ps), went))
        for _ in range(3):
            assert await c.put(s.nid, pattern(1, 1000))
        for _ in range(2):
            assert await c.get(s.nid, 5000)
        await env.settle()
        asked, answered = {"put": 3, "get": 2}, {"ack": 3, "reply": 2}
        before = await until_types(env, client, before, received={near: asked, pc: asked, far: answered, ps: answered},
                                   sent={far: asked, ps: asked, near: answered, pc: answered}, dropped={})
        for name in (near, far, pc, ps):
            for which, word in (("sent", "send_count"), ("received", "recv_count"), ("dropped", "drop_count")):
                row = before[name]
                assert row["statistics"][word] == sum(row[f"{which}_stats"].values()), (name, word, row["statistics"])
        # its own answers
        assert await c.ping(r.nids[0]) and await c.push(r.nids[0])
        asked = {"put": 1, "get": 1}
        before = await until_types(env, client, before, received={near: asked, pc: asked}, sent={near: asked, pc: asked})
        # dropped
        dead, one = N.parse("10.9.0.2@tcp9"), {"put": 1}
        assert await c.put(dead, pattern(1, 300), ack=False, via=(c.nis[0], r.nids[0]))
        await until_types(env, client, before, dropped={near: one, pc: one})
        env.ledger.forget(lambda e: e.header.dst == dead)
        await client.call("stats_reset")

        async def zero():
            rows = await per_type(client)
            return not any(of_type(row, w) for row in rows.values() for w in ("sent", "received", "dropped"))
        await env.until_async(zero, "counters of NIs and peers at 0", 20)


async def captured(env, client, during, **params):
    """The answer to a capture that had begun before during() did and ended when all of it was over. Requests of a client begin
    in their order, and an answer leaves when there is one: so the answer to another request says whether the capture has
    begun, and whether it has ended. Where it ended too early the machine is slow, and a longer one is tried."""
    interval = 1000
    while True:
        number = client.post("counters_capture", {"interval_ms": interval, **params})
        await client.call("version")
        early = client.pending[number].done()
        await during()
        await client.call("version")
        early = early or client.pending[number].done()
        answer = (await client.answer(number, 10 + interval / 1000)).result
        if not early:
            assert answer["seconds"] >= interval / 1000, answer["seconds"]
            return answer
        env.result(f"{interval} ms were too few")
        interval *= 3


@deadline(60)
async def test_capture(env):
    """counters_capture: what moved in an interval, by name, and by how much a second."""
    env.need_millrace()
    begun = env.now()
    c, r, s = await line(env)
    async with clients(r) as client:
        await greeted(env, client, 2)

        async def during():
            before = await counters(client)
            for _ in range(5):
                assert await c.put(s.nid, pattern(1, 1000))
            await until_moved(env, client, before, {"route_count": 10, "route_length": 5000})
        answer = await captured(env, client, during)
        rows = {x["name"]: x for x in answer["counters"]}
        assert answer["seconds"] < env.now() - begun, answer["seconds"]
        for name, delta in (("stats.route_count", 10), ("stats.route_length", 5000), ("ni.10.0.0.1@tcp.received.put", 5),
                            ("ni.10.0.1.1@tcp1.sent.put", 5), ("stats.drop_count", 0), ("drops.no_route", 0)):
            row = rows.get(name)
            assert row and row["delta"] == delta == row["after"] - row["before"], f"{name}: {row}; there are {sorted(rows)[:40]}"
            assert abs(row["per_second"] - delta / answer["seconds"]) < 0.01 * max(1, delta), row
        assert any(n.startswith("reactor.0.") for n in rows) and any(n.startswith("buffers.0.small.") for n in rows), sorted(rows)
        some = await client.call("counters_capture", match="stats.send_*", interval_ms=100)
        assert {x["name"] for x in some["counters"]} == {"stats.send_count", "stats.send_length"}, some
    await env.settle()
