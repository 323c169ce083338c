# SPDX-License-Identifier: BSD-3-Clause
"""millraced between verbs and tcp nets, and between two verbs nets: what scripted kernel nodes send each other through it.

Every test ends with the ledger: each message arrived once and unaltered, or was dropped by a name that counts it.
"""

import asyncio
import re
import time

from iblnd import wire as W
from iblnd.conn import Tx
from lnetpy import nid as N
from lnetpy import wire
from lnetpy.crowd import OWN
from lnetpy.node import pattern
from lnetpy.scene import join
from scene import CLIENT, ROUTER, ROUTER1, SERVER1, TCP_ROUTER, TCP_SERVER, Books

SMALL, BULK = 3000, 200000


def millrace(f):
    """Not for the reference router."""
    f.millrace = True
    return f


def alone(f):
    """With a router of its own."""
    f.alone = f.millrace = True
    return f


async def verbs_tcp(env, client=None, router=None, up=True):
    """c on o2ib, the router, s on tcp. up: c has called the router; otherwise the router is to call."""
    r = await env.router("r", ROUTER, TCP_ROUTER, **(router or {}))
    c = await env.ib("c", CLIENT, **(client or {}))
    s = await env.persona("s", TCP_SERVER)
    await joined(env, c, r, "tcp", up)
    join(s, r, "o2ib")
    await env.bring_up(s)
    return c, r, s


async def joined(env, c, r, net, up=True):
    for ni in c.nis:
        for n in r.nids:
            if n.net == ni.nid.net:
                c.add_route(N.parse_net(net), n, check=up)
    if up:
        await env.bring_up(c)


async def verbs_verbs(env, client=None, server=None, router=None):
    r = await env.router("r", ROUTER, ROUTER1, **(router or {}))
    c = await env.ib("c", CLIENT, **(client or {}))
    s = await env.ib("s", SERVER1, **(server or {}))
    await joined(env, c, r, "o2ib1")
    await joined(env, s, r, "o2ib")
    return c, r, s


def scattered(size):
    """Rows (offset, bytes) of 257 fragments, none aligned, some with a gap behind."""
    count = min(257, size)
    rows, at, left = [], 5, size
    for i in range(count):
        n = left if i == count - 1 else max(1, min(left - (count - 1 - i), 37 * (i % 7) + 1))
        rows.append((at, n))
        at, left = at + n + i % 5, left - n
    return rows


async def both_ways(c, s, sizes):
    for size in sizes:
        for a, b in ((c, s), (s, c)):
            assert await a.put(b.nid, pattern(size, size)), f"PUT of {size} by {a.name}"
            assert await a.get(b.nid, size), f"GET of {size} by {a.name}"


async def traffic(a, b, count, workers=6, sizes=(100, SMALL, 3976, 3977, 70000)):
    """PUTs and GETs, some at a time; the number that succeeded."""
    done = 0

    async def work(k):
        nonlocal done
        for i in range(k, count, workers):
            size = sizes[i % len(sizes)]
            good = await (a.get(b.nid, size) if i % 2 else a.put(b.nid, pattern(i, size)))
            done += good
    await asyncio.gather(*(work(k) for k in range(workers)))
    return done


async def crowd(a, b, count, **kw):
    done = await traffic(a, b, count, **kw)
    assert done == count, f"{done} of {count} of {a.name}"


async def at_rest(env, *nodes):
    """All credits are here or about to be returned, on each connection of these."""
    def rest():
        return all(c.C + c.R + (c.depth - c.theirs) >= 0 and c.R == c.depth and not c.active_txs and not c.sinks
                   and c.theirs + c.O == c.depth for n in nodes for c in n.conns())
    await env.until(rest, "connections at rest")


async def again(env, c, s, timeout=20):
    """Traffic is back both ways."""
    async def flows():
        return await c.put(s.nid, pattern(7, SMALL), timeout=3) and await s.get(c.nid, BULK, timeout=3)
    env.fail_fast = False
    await env.until_async(flows, "traffic again", timeout, 0.2)
    env.fail_fast = True


# ------------------------------------------------------------------------------------------------------- forwarding

async def test_router_tcp(env):
    """o2ib and tcp: ping, discovery, PUT and GET of all kinds of sizes both ways, in the forms that routers use."""
    c, r, s = await verbs_tcp(env)
    info = await c.ping(s.nid)
    assert info and info.statuses() == {s.nid: wire.UP}, info
    assert await s.ping(c.nid) and await c.ping(r.nids[0])
    assert await c.discover(s.nid)
    await both_ways(c, s, (0, 1, 3976, 3977, 4096, 65537, 1 << 20))
    await env.settle()
    await at_rest(env, c)
    n = c.ni.counts
    assert n["in", W.PUT_REQ] >= 8 and n["in", W.PUT_DONE] == n["in", W.PUT_REQ], n
    assert n["out", W.GET_REQ] == n["in", W.GET_REQ] == 0 and n["in", W.PUT_NAK] == 0, n


async def test_router_verbs(env):
    """o2ib and o2ib1."""
    c, r, s = await verbs_verbs(env)
    assert await c.ping(s.nid) and await s.ping(c.nid)
    await both_ways(c, s, (0, 1, 3976, 3977, 4096, 65537, 1 << 20))
    await env.settle()
    await at_rest(env, c, s)


async def test_router_mixed(env):
    """Many at a time, both ways."""
    c, r, s = await verbs_tcp(env)
    await asyncio.gather(crowd(c, s, 60), crowd(s, c, 60))
    await env.settle()
    await at_rest(env, c)
    assert len(c.conns()) == 1 and not c.closes, c.closes


async def test_router_shapes(env):
    """257 fragments in front of one rkey, a node of the other byte order, and one with GPU memory on the other side."""
    c, r, s = await verbs_verbs(env, {"order": ">"}, {"depth": 8})
    s.ni.layout = scattered
    await both_ways(c, s, (3977, 70000, 1 << 20))
    c.ni.force_rdma = True
    assert await c.put(s.nid, pattern(3, 500)) and await s.get(c.nid, 1)
    await env.settle()
    await at_rest(env, c, s)


async def test_router_old_node(env):
    """A node of 2.12: 256 fragments, numeric tie-break, queue depth 8; another whose queue pair is only 4 deep."""
    c, r, s = await verbs_verbs(env, {"profile": "k215", "frags_max": 256}, {"depth": 4})
    await asyncio.gather(crowd(c, s, 20), crowd(s, c, 20))
    await env.settle()
    assert all(x.depth == 4 for x in s.conns()) and all(x.depth == 8 for x in c.conns())


async def test_router_several_connections(env):
    """Four connections per peer, which the node makes at once; replies go on the connection of their request."""
    c, r, s = await verbs_tcp(env, {"conns_per_peer": 4})
    await asyncio.gather(crowd(c, s, 40), crowd(s, c, 40))
    await env.settle()
    assert len(c.conns()) == 4, c.conns()
    used = [x for x in c.conns() if x.counts.get(("in", W.IMMEDIATE))]
    assert len(used) > 1, [x.counts for x in c.conns()]


@millrace
async def test_router_calls(env):
    """The router makes the connection, from a privileged port, and a GET_REQ for the router itself is answered."""
    c, r, s = await verbs_tcp(env, up=False)
    assert await s.put(c.nid, pattern(1, BULK)) and await s.get(c.nid, BULK)
    assert [m.why for m in c.ni.rejects_sent] in ([], [W.STALE]) and not any(x.active for x in c.conns())
    reply = await c.ping_get(r.nids[0], 8000)
    assert reply and wire.unpack_ping(reply)
    await env.settle()


@millrace
async def test_router_get_req_for_others(env):
    """A GET_REQ that should have gone straight costs the connection (§5.2), not more."""
    c, r, s = await verbs_tcp(env)
    conn = c.conns()[0]
    books = await Books.open(env, r)
    slot = c.ni.alloc(8000)
    hdr = wire.Header(s.nid, c.nid, wire.GET, 0, wire.get_union(c.handle(), 5, 40, 8000))
    conn.queue(Tx(W.Msg(W.GET_REQ, lnet=hdr.pack(False), cookie=c.ni.cookie(), key=c.ni.arena.rkey,
                        frags=c.ni.describe(slot, 8000)), hdr, answer=(W.GET_DONE,)))
    await env.until(lambda: c.closes, "the connection is closed")
    await again(env, c, s)
    await books.balance()
    assert (await r.drops())["rdma_get_not_local"] >= 1


# ------------------------------------------------------------------------------------------------------- connecting

async def rejected(env, *rejects, again_by=20, **kw):
    """The router calls c, which rejects with these, one after the other; the message of s must arrive all the same."""
    c, r, s = await verbs_tcp(env, up=False, **kw)
    c.ni.rejects = [lambda m, f=f: f(c, m) for f in rejects]
    sent = s.put(c.nid, pattern(1, BULK), timeout=again_by)
    assert await sent, f"after {len(c.ni.rejects_sent)} rejects, {[hex(m.dst_stamp) for m in c.ni.requests]}"
    assert await s.get(c.nid, SMALL)
    await env.settle()
    return c, r, s


@millrace
async def test_router_reject_stale(env):
    """Stale (5): tried again at once, with the stamp that the reject told."""
    c, _, _ = await rejected(env, lambda c, m: W.Reject(W.STALE, c.ni.stamp, 8, 257))
    assert c.ni.requests[0].dst_stamp != c.ni.stamp == c.ni.requests[-1].dst_stamp, c.ni.requests


@millrace
async def test_router_reject_depth(env):
    """Queue size (7) with 4: called again with 4."""
    c, _, _ = await rejected(env, lambda c, m: W.Reject(W.QUEUE_SIZE, c.ni.stamp, 4, 257))
    asked = [m.depth for m in c.ni.requests]
    assert asked[0] > 4 and asked[-1] == c.conns()[0].depth == 4 and len(asked) <= 3, asked


@millrace
async def test_router_reject_frags(env):
    """Fragments (6) with 256: called again with 256."""
    c, _, _ = await rejected(env, lambda c, m: W.Reject(W.FRAGS, c.ni.stamp, 8, 256), client={"frags_max": 256})
    asked = [m.frags_max for m in c.ni.requests]
    assert asked[0] == 257 and asked[-1] == 256 and len(asked) <= 3, asked


@millrace
async def test_router_reject_race(env):
    """Race (1) although nobody calls: tried again."""
    await rejected(env, lambda c, m: W.Reject(W.RACE, c.ni.stamp, 8, 257))


@alone
async def test_router_reject_final(env):
    """No resources (2), fatal (3), early (9) and nobody at the port: the message is dropped by name, or waits; afterwards,
    with time passed, nodes are reached."""
    said = []
    c, r, s = await verbs_tcp(env, up=False)
    for why in (W.NO_RESOURCES, W.FATAL, W.EARLY):
        books = await Books.open(env, r)
        c.ni.rejects = [lambda m, why=why: W.Reject(why, c.ni.stamp, 8, 257)]
        before = len(c.ni.rejects_sent)

        async def called():         # not before the pause after the last failure is over
            await s.put(c.nid, pattern(1, 100), ack=False)
            return len(c.ni.rejects_sent) > before      # pylint: disable=cell-var-from-loop
        await env.until_async(called, f"a reject {why}", 20, 0.5)
        said.append(f"{why}: " + await books.balance())
        await again(env, c, s, 30)
        await env.settle()
        for x in c.conns():
            x.close(0, "for the next case")
        await env.until(lambda: not c.ni.conns, "closed")
    return "; ".join(said)


@alone
async def test_router_no_listener(env):
    """Nobody listens: dropped by name soon, and reached once somebody does."""
    r = await env.router("r", ROUTER, TCP_ROUTER)
    s = await env.persona("s", TCP_SERVER)
    join(s, r, "o2ib")
    await env.bring_up(s)
    books = await Books.open(env, r)
    to = N.parse(CLIENT)
    await s.put(to, pattern(1, 100), ack=False)
    said = await books.balance()
    assert "1 lost" in said, said
    c = await env.ib("c", CLIENT)
    await joined(env, c, r, "tcp")
    await again(env, c, s)
    return said


# ------------------------------------------------------------------------------------------------------- restarts

@millrace
async def test_router_node_restarts(env):
    """A node goes in order and comes back, then vanishes and comes back: a new stamp, the old connections are closed."""
    c, r, s = await verbs_tcp(env)
    for vanish in (False, True):
        assert await s.put(c.nid, pattern(1, BULK))
        await env.settle()
        c.stop(rst=vanish)
        env.nodes.remove(c)
        c = await env.ib("c", CLIENT)
        await joined(env, c, r, "tcp")
        await both_ways(c, s, (100, BULK))
        await env.settle()
        rejects = [rej.why for _, rej in c.ni.peer(r.nids[0]).rejects if rej]
        assert not rejects, rejects


@alone
async def test_router_is_killed(env):
    """kill -9 and a new life: the node finds out, the stale round is passed, traffic is back."""
    c, r, s = await verbs_tcp(env)
    assert await s.put(c.nid, pattern(1, BULK))
    await env.settle()
    await env.connected()
    c.ni.failures_expected = True
    r.spec.allow_rst = True
    env.fail_fast = False
    r.crash()
    await env.until(lambda: not s.conns(), "tcp connections gone")
    await r.restart()
    r.spec.allow_rst = False
    for p in s.nis[0].peers.values():
        p.retry_at = 0
    for n in (c, s):
        await env.until_async(lambda n=n: n.poll(r.nids[0] if n is c else r.nids[1]), f"{n.name} finds the router", 60)
    await again(env, c, s)
    env.ledger.forget(lambda e: True)
    assert not env.problems, env.problems


# ------------------------------------------------------------------------------------------------------- flow

async def test_router_starved(env):
    """A node returns no credit for a while: not one message too many is sent, and all arrive afterwards."""
    c, r, s = await verbs_tcp(env)
    await at_rest(env, c)
    c.ni.hold_credits = True
    before = c.ni.counts["in", W.IMMEDIATE] + c.ni.counts["in", W.PUT_REQ]
    for i in range(40):
        assert await s.put(c.nid, pattern(i, SMALL if i % 4 else BULK), ack=False)
    await env.quiet(3)
    came = c.ni.counts["in", W.IMMEDIATE] + c.ni.counts["in", W.PUT_REQ] - before
    assert 0 < came <= 8, f"{came} messages with 8 credits"
    c.ni.hold_credits = False
    for x in c.conns():
        x.service()
    await env.settle(30)
    await at_rest(env, c)


async def test_router_one_way(env):
    """Messages go one way only, first from the node, then to it: credits come back by NOOPs alone. (Longer ones have
    answers, which bring them too.)"""
    c, r, s = await verbs_tcp(env)
    for a, b, way in ((c, s, "in"), (s, c, "out")):
        before = c.ni.counts[way, W.NOOP]
        for i in range(40):
            assert await a.put(b.nid, pattern(i, SMALL), ack=False)
        await env.settle()
        assert c.ni.counts[way, W.NOOP] > before, c.ni.counts
    await at_rest(env, c)


async def test_router_slow_node(env):
    """A node that takes its time with each message; others go on meanwhile."""
    c, r, s = await verbs_tcp(env)
    c.ni.delay = 0.2
    await crowd(s, c, 24, sizes=(SMALL, BULK, 1 << 20))
    c.ni.delay = 0
    await env.settle(30)
    await at_rest(env, c)


@alone
async def test_router_exhausted(env):
    """No large router buffers for ten seconds: PUTs that wait for one that long are dropped by name, with a NAK that tells of no
    failure. The connections go on, and what has a buffer arrives."""
    c, r, s = await verbs_verbs(env, router={"reactors": 1, "buffers": {"small": 2, "large": 2}})
    books = await Books.open(env, r)
    await at_rest(env, c, s)
    nodes = (c, s)

    async def waits(what):
        rows = (await r.rpc("buffers_get"))["reactors"]
        return [sum(row[pool][what] for row in rows) for pool in ("small", "large")]
    begun, had = env.now(), sum(await waits("waited"))
    for n in nodes:
        n.ni.failures_expected = True
    for a, b in ((s, c), (c, s)):   # what the router has no credit of b for stays in its buffers
        b.ni.hold_credits = True
        for i in range(12):
            assert await a.put(b.nid, pattern(i, SMALL if i % 2 else BULK), ack=False)

        async def waited():     # whether or not they still do
            return sum(await waits("waited")) - had >= (2 if b is c else 3)     # pylint: disable=cell-var-from-loop
        await env.until_async(waited, f"messages of {a.name} wait for buffers")
    most = sum(await waits("waited")) - had

    async def expired():
        return not any(await waits("waiting"))
    await env.until_async(expired, "nobody waits any more", 40, 0.2)
    took = env.now() - begun
    for n in nodes:
        n.ni.hold_credits = False
        for x in n.conns():
            x.service()
    said, drops = await books.balance(), books.dropped
    assert took >= 9.9, f"dropped after {took:.1f} s"
    assert set(drops) <= {"buffer_wait_expired", "destination_share_expired"} and "buffer_wait_expired" in drops, drops
    naks = [status for n in nodes for _, status in n.ni.naks]
    assert naks and not any(naks) and len(naks) <= sum(drops.values()), f"NAKs {naks}, drops {drops}"
    await both_ways(c, s, (SMALL, BULK))
    await env.settle()
    await at_rest(env, c, s)
    assert not c.closes and not s.closes, (c.closes, s.closes)
    return f"after {took:.1f} s, {said}, {len(naks)} NAKs, {most} had to wait"


# ------------------------------------------------------------------------------------------------------- failures

@millrace
async def test_router_nak(env):
    """PUT_NAK 0: the data is not wanted, which is success. PUT_NAK -ENOMEM: dropped by name. The connection stays."""
    c, r, s = await verbs_tcp(env)
    books = await Books.open(env, r)
    c.ni.nak = lambda hdr: 0
    await s.put(c.nid, pattern(1, BULK), ack=False)
    await env.until(lambda: c.ni.counts["out", W.PUT_NAK] == 1, "NAK")
    await env.quiet(0.5)
    assert await books.drops() == {} and len(env.ledger.forget(lambda e: True)) == 1
    c.ni.nak = lambda hdr: -12
    await s.put(c.nid, pattern(2, BULK), ack=False)
    said = await books.balance()
    assert "1 lost" in said, said
    c.ni.nak = None
    await both_ways(c, s, (BULK,))
    assert not c.closes
    return said


@millrace
async def test_router_source_fails(env):
    """A node asks to PUT and then cannot: PUT_DONE with an error. Dropped by name; the connection stays."""
    c, r, s = await verbs_tcp(env)
    books = await Books.open(env, r)

    def fail(conn, m, i):
        if m.mtype != W.PUT_ACK:
            return False
        tx = conn.awaiting(m, W.PUT_REQ)
        tx.waiting, tx.answer = False, None
        tx.msg = W.Msg(W.PUT_DONE, cookie=m.dst_cookie, status=-5)
        conn.queue(tx)
        conn.repost(i, reserve=True)
        return True
    c.ni.on_message = fail
    await c.put(s.nid, pattern(1, BULK), ack=False)
    said = await books.balance()
    assert "1 lost" in said, said
    c.ni.on_message = None
    await both_ways(c, s, (BULK,))
    assert not c.closes
    return said


@alone
async def test_router_silent_node(env):
    """A node never answers a PUT_REQ: after the LND timeout its connection is closed and the message dropped by name."""
    c, r, s = await verbs_tcp(env, router={"timeout": 5})
    books = await Books.open(env, r)
    c.ni.on_message = lambda conn, m, i: m.mtype == W.PUT_REQ
    began = env.now()
    await s.put(c.nid, pattern(1, BULK), ack=False)
    await env.until(lambda: c.closes, "the connection is closed", 20)
    took = env.now() - began
    assert 4 < took < 12, f"after {took:.1f} s"
    said = await books.balance()
    assert "1 lost" in said, said
    c.ni.on_message = None
    await again(env, c, s)
    return f"after {took:.1f} s, {said}"


@alone
async def test_router_broken_queue_pair(env):
    """A node's queue pair fails in the middle of transfers: what was under way is dropped by name, traffic comes back."""
    c, r, s = await verbs_tcp(env, client={"check_interval": 20}, router={"timeout": 10})
    books = await Books.open(env, r)
    c.ni.failures_expected = True
    env.fail_fast = False
    await crowd(s, c, 6)
    asked = []

    def breaks(conn, m, i):     # in place of an answer, so that the router waits for one
        if m.mtype != W.PUT_REQ:
            return False
        asked.append(m)
        if len(asked) == 6:
            conn.break_qp()
        return len(asked) >= 6
    c.ni.on_message = breaks
    for i in range(12):
        await s.put(c.nid, pattern(i, 1 << 20), ack=False)
    await env.until(lambda: len(asked) >= 6, "transfers are under way")
    c.ni.on_message = None
    await env.until(lambda: c.closes, "the connection has ended", 60)
    await again(env, c, s, 60)
    return await books.balance()


@millrace
async def test_router_impostors(env):
    """Messages with a wrong stamp, an unknown cookie, a wrong size or credits from nowhere: each costs the connection."""
    c, r, s = await verbs_tcp(env)
    changes = {
        "stamp": lambda conn, m, raw: raw[:24] + bytes([raw[24] ^ 1]) + raw[25:],
        "other stamp": lambda conn, m, raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:],
        "nid": lambda conn, m, raw: raw[:16] + b"\x09" + raw[17:],
        "size": lambda conn, m, raw: raw[:8] + b"\xff\x0f" + raw[10:],
        "type": lambda conn, m, raw: raw[:6] + b"\xd8" + raw[7:],
        "magic": lambda conn, m, raw: b"\x00" + raw[1:],
        "credits": lambda conn, m, raw: raw[:7] + b"\x20" + raw[8:],
        "cookie": None, "unasked": None,
    }
    books = await Books.open(env, r)
    before = await r.drops()
    for name, change in changes.items():
        closes = len(c.closes)
        if change:
            c.ni.on_wire = change
            await c.put(s.nid, pattern(1, 100), ack=False)
        else:
            kind = W.PUT_DONE if name == "cookie" else W.PUT_NAK
            c.conns()[0].queue(Tx(W.Msg(kind, cookie=0x1234567, status=0)))
        await env.until(lambda: len(c.closes) > closes, f"closed for its {name}")       # pylint: disable=cell-var-from-loop
        c.ni.on_wire = None
        env.ledger.forget(lambda e: True)
        await again(env, c, s)
        await env.settle()
    books.before = await books.all()
    after = await r.drops()
    return str({k: v - before[k] for k, v in after.items() if v != before[k]})


def logged_drops(r):
    """How many drops of messages the router's log tells of by now."""
    counts = re.findall(r"event=drop drop=(\w+) count=(\d+)", r.text())
    return sum(int(n) for name, n in counts if name not in OWN)


@alone
async def test_router_graceful_stop(env):
    """SIGTERM with transfers under way: what was begun ends, status 0, connections end with a DREQ."""
    count, drain = 8, 10    # as many as have router credits of s: the router reads them all
    c, r, s = await verbs_tcp(env)
    await env.settle()
    done, named = c.ni.counts["in", W.PUT_DONE], logged_drops(r)
    held = []

    def hold(conn, m, i):
        if m.mtype == W.PUT_REQ:
            held.append((conn, m, i))
        return m.mtype == W.PUT_REQ

    async def received():
        return (await r.peers())[str(s.nid)]["statistics"]["recv_count"]
    before = await received()
    c.ni.on_message = hold
    for i in range(count):
        await s.put(c.nid, pattern(i, BULK), ack=False)

    async def accepted():
        return await received() - before >= count
    await env.until_async(accepted, "the router has all messages")
    await env.until(lambda: len(held) >= 3, "transfers are under way")
    assert len(env.ledger.outstanding()) == count, "some were delivered although none was answered"
    r.spec.allow_rst = True     # what s sends meanwhile is read by nobody
    begun = time.monotonic()
    stopping = asyncio.ensure_future(r.stop())
    await env.until(lambda: "event=stopping" in r.text(), "the router stops")
    c.ni.on_message = None
    for conn, m, i in held:
        conn.on_put_req(m, i)
    await stopping
    took = time.monotonic() - begun
    await env.until(lambda: not c.conns() and not s.conns(), "connections closed")
    assert all(how == "disconnected" for _, how in c.closes), c.closes
    left, named = env.ledger.forget(lambda e: True), logged_drops(r) - named
    assert len(left) == named, f"{len(left)} of {count} did not arrive, {named} were dropped by name"
    assert not left or took >= drain, f"{named} dropped although there was time: stopped in {took:.1f} s"
    assert c.ni.counts["in", W.PUT_DONE] - done == count - len(left), c.ni.counts
    return f"{count - len(left)} of {count} delivered, {named} dropped by name, stopped in {took:.1f} s"
