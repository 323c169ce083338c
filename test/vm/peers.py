# SPDX-License-Identifier: BSD-3-Clause
"""How millraced and nodes on verbs nets find each other, refuse each other, and find out that the other is gone:
docs/protocol/o2iblnd.md §1.6 to §1.9, §6.1; and GET_REQs, which only reach it directly (§5.2, §5.5).
"""

import asyncio
import struct
import subprocess

from iblnd import wire as W
from iblnd.conn import Tx
from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import join
from router import BULK, SMALL, again, alone, at_rest, both_ways, crowd, joined, millrace, scattered, verbs_tcp
from scene import CLIENT, ROUTER, ROUTER1, SERVER1, TCP_ROUTER, TCP_SERVER, Books, address, unplugged


async def rows(r, node):
    """The router's connections with a node."""
    out = (await r.rpc("verbs_get", conns=True))["verbs"]
    return [c for ni in out for c in ni["connections"] if c["peer"] == str(node.nid)]


async def third(env, **router):
    """A router on all nets, and s on tcp."""
    r = await env.router("r", ROUTER, TCP_ROUTER, ROUTER1, **router)
    s = await env.persona("s", TCP_SERVER)
    for net in ("o2ib", "o2ib1"):
        join(s, r, net)
    await env.bring_up(s)
    return r, s


async def left_alone(env, r, c):
    """All connections with c have ended, on both sides."""
    for x in c.conns():
        x.close(0, "for the next case")
    await env.until(lambda: not c.conns(), "closed")

    async def gone():
        return not await rows(r, c)
    await env.until_async(gone, "closed by the router")


# ------------------------------------------------------------------------------------------------------- calls that meet

# Address of the node, its device and release; who refuses the other's call; the connections there are in the end. The router is
# 10.77.0.3. Both orders of §1.9 agree on the first two addresses, not on the others.
RACES = (
    ("10.77.0.2", 1, "k217", "router", 1), ("10.77.0.4", 3, "k217", "node", 1),
    ("10.77.1.2", 1, "k217", None, 2), ("10.77.1.2", 1, "k215", "node", 1),
    ("10.76.9.4", 3, "k217", "node", 1), ("10.76.9.4", 3, "k215", None, 2),
)


async def stranger(env, r, s, name, ip, profile="k217"):
    """A node that the router knows and has no connection with."""
    c = await env.ib(name, f"{ip}@o2ib1", profile=profile, slots=8)
    for n in r.nids:
        if n.net == c.nid.net:
            c.add_route(N.parse_net("tcp"), n, check=False)
    assert await c.ping(s.nid)
    await left_alone(env, r, c)
    c.ni.requests.clear()
    return c


async def refused_races(r):
    return (await r.drops()).get("o2ib_connect_race", 0)


async def meet(env, r, s, c):
    """Both call, and each has the other's call before it has an answer to its own. Messages wait on both sides."""
    sizes = (100, BULK, 3976, SMALL)
    c.ni.crossing = 1
    sent = [asyncio.ensure_future(s.put(c.nid, pattern(i, n))) for i, n in enumerate(sizes)]
    await env.until(lambda: c.ni.calls_held, "the router calls")
    sent += [asyncio.ensure_future(c.put(s.nid, pattern(9 + i, n))) for i, n in enumerate(sizes)]
    await env.until(lambda: not c.ni.crossing, "the node's call is answered")
    assert all(await asyncio.gather(*sent))
    await env.settle()


async def one_race(env, r, s, name, ip, device, profile, refuser, count):
    what = f"{ip} of {profile}"
    c = await stranger(env, r, s, name, ip, profile)
    before = await refused_races(r)
    await meet(env, r, s, c)
    refused = await refused_races(r) - before
    assert [x.why for x in c.ni.rejects_sent] == [W.RACE] * (refuser == "node"), f"{what}: {c.ni.rejects_sent}"
    assert refused == c.ni.races_lost == (refuser == "router"), f"{what}: refused {refused} times"
    await env.until(lambda: len(c.conns()) == count, f"{what}: {count} connections")
    assert {x.active for x in c.conns()} == {None: {True, False}, "router": {False}, "node": {True}}[refuser], what

    async def same():
        return [x["state"] for x in await rows(r, c)] == ["up"] * count
    await env.until_async(same, f"{what}: {count} connections at the router")
    await both_ways(c, s, (SMALL, BULK))
    await env.settle()
    await at_rest(env, c)
    c.stop()
    env.nodes.remove(c)


@millrace
async def test_peer_race(env):
    """The router and a node call each other at once: refused as the tie-break says, nothing is lost, nothing is left over."""
    r, s = await third(env)
    for i, case in enumerate(RACES):
        with address(case[1], case[0]):
            await one_race(env, r, s, f"c{i}", *case)
    return f"{len(RACES)} cases"


@millrace
async def test_peer_race_twenty(env):
    """A node that loses calls again and again, and does not answer meanwhile: after 20 races it is let in."""
    r, s = await third(env)
    c = await stranger(env, r, s, "c", "10.77.0.2")
    before = await refused_races(r)
    c.ni.crossing = 21
    sent = asyncio.ensure_future(s.put(c.nid, pattern(1, BULK)))
    await env.until(lambda: c.ni.calls_held, "the router calls")
    for left in range(20, -1, -1):
        c.ni.connect(c.ni.peer(r.nids[2]))
        await env.until(lambda left=left: c.ni.crossing <= left, "an answer")
    assert await sent
    assert c.ni.races_lost == await refused_races(r) - before == 20, c.ni.races_lost
    await env.until(lambda: len(c.conns()) == 2, "two connections")
    await both_ways(c, s, (SMALL, BULK))
    await env.settle()
    await at_rest(env, c)


# ------------------------------------------------------------------------------------------------------- the router refuses

def patch(at, form, value):
    """A change of some bytes of a CONNREQ or CONNACK."""
    return lambda raw: raw[:at] + struct.pack(form, value) + raw[at + struct.calcsize(form):]


def word(text):
    return N.parse(text).word()


# What is wrong with a call to 10.77.0.1, the reason that the caller is told, the name under which it is counted.
CALLS = (
    ("the magic", patch(0, "<I", 0x45726963), W.FATAL, "magic"),
    ("version 1", patch(4, "<H", 0x11), W.FATAL, "version"),
    ("version 3", patch(4, "<H", 0x13), W.FATAL, "version"),
    ("its type", patch(6, "<B", W.CONNACK), W.FATAL, "type"),
    ("a type of no call", patch(6, "<B", W.NOOP), W.FATAL, "type"),
    ("its length", patch(8, "<I", 55), W.FATAL, "length"),
    ("its checksum", patch(12, "<I", 0x1234567), W.FATAL, "checksum"),
    ("a source that is not its address", patch(16, "<Q", word("10.77.0.9@o2ib")), W.FATAL, "source"),
    ("the router's own NID for a source", patch(16, "<Q", word(ROUTER)), W.FATAL, "source"),
    ("another net's NID for a source", patch(16, "<Q", word("10.77.0.2@o2ib1")), W.FATAL, "source"),
    ("an NI of the router's on another device", patch(32, "<Q", word(ROUTER1)), W.FATAL, "destination"),
    ("an NI that there is not", patch(32, "<Q", word("10.77.0.1@o2ib1")), W.FATAL, "destination"),
    ("another life of the router's", patch(40, "<Q", 0x1234567), W.STALE, "stale"),
    ("a depth of 9", patch(48, "<H", 9), W.QUEUE_SIZE, "queue_depth"),
    ("a depth of 3", patch(48, "<H", 3), W.QUEUE_SIZE, "queue_depth"),
    ("a depth of 0", patch(48, "<H", 0), W.QUEUE_SIZE, "queue_depth"),
    ("258 fragments", patch(50, "<H", 258), W.FRAGS, "fragments"),
    ("no fragments", patch(50, "<H", 0), W.FRAGS, "fragments"),
    ("its message size", patch(52, "<I", 4097), W.FATAL, "message_size"),
)
# Of these it may not be known which NI they are for.
NOBODYS = ("magic", "version", "type", "length", "checksum", "destination")


async def call(env, c, to, change):
    """The answer to a call that is changed on the wire: (status of the CM, Reject)."""
    peer = c.ni.peer(to)
    before = len(peer.rejects)
    c.ni.on_wire = lambda conn, m, raw: change(raw) if m.mtype == W.CONNREQ else raw
    c.ni.connect(peer)
    await env.until(lambda: len(peer.rejects) > before, "a reject")
    c.ni.on_wire = None
    return peer.rejects[-1]


@millrace
async def test_peer_refused(env):
    """Calls that are wrong in one thing: each is told why and by whom, and counted; the connection that there is stays."""
    c, r, s = await verbs_tcp(env)
    before = await r.drops()
    conn = c.conns()[0]
    for what, change, why, name in CALLS:
        assert c.conns() == [conn] and not c.closes, f"before {what}: {c.closes}"
        status, rej = await call(env, c, r.nids[0], change)
        assert status == W.CM_CONSUMER and rej.why == why, f"{what}: {status}, {rej}"
        told = (rej.stamp, rej.depth, rej.frags_max)
        assert told == (conn.peer_stamp, 8, W.MAX_FRAGS) or name in NOBODYS and told == (0, 0, 0), f"{what}: {rej}"
        after = await r.drops()
        counted = {k: n - before[k] for k, n in after.items() if n != before[k] and k.startswith("o2ib_connect")}
        assert counted == {f"o2ib_connect_{name}": 1}, f"{what}: {counted}"
        before = after
    assert c.conns() == [conn] and not c.closes, c.closes
    await again(env, c, s)
    await env.settle()
    return f"{len(CALLS)} calls"


@alone
async def test_peer_refused_by_settings(env):
    """From a port above 1023, where that is not allowed: fatal (3). More connections than a node may have: no resources (2)."""
    settings = "  verbs: {require_privileged_port: true}\n"
    c, r, s = await verbs_tcp(env, router={"extra": settings})
    books, before = await Books.open(env, r), await r.drops()
    c.ni.first_port = 2000
    status, rej = await call(env, c, r.nids[0], lambda raw: raw)
    assert (status, rej.why) == (W.CM_CONSUMER, W.FATAL), rej
    c.ni.first_port = 1023
    peer = c.ni.peer(r.nids[0])
    while len(peer.rejects) == 1:
        had = len(c.conns())
        assert had <= 16, f"{had} connections"
        c.ni.connect(peer)
        await env.until(lambda had=had: len(c.conns()) > had or len(peer.rejects) > 1, "an answer")
    status, rej = peer.rejects[-1]
    assert (status, rej.why) == (W.CM_CONSUMER, W.NO_RESOURCES), rej
    had = len(c.conns())
    await crowd(s, c, 24)
    await env.settle()
    after = await r.drops()
    counted = {k: n - before[k] for k, n in after.items() if n != before[k] and k.startswith("o2ib_")}
    assert counted == {"o2ib_connect_source_port": 1, "o2ib_connect_limit": 1}, counted
    c.conns()[0].close(0, "room for another")

    async def room():
        peer.tries = 0
        c.ni.connect(peer)
        tried = len(peer.rejects)
        await env.until(lambda: len(c.conns()) == had or len(peer.rejects) > tried, "an answer")
        return len(c.conns()) == had
    await env.until_async(room, "room for another")
    await books.balance()
    return f"{had} connections"


# ------------------------------------------------------------------------------------------------------- the node refuses

async def goes_nowhere(env, r, c, s, what):
    """The router calls c in vain: what it had to send is dropped by name. What was counted with that."""
    books, before = await Books.open(env, r), await r.drops()
    await s.put(c.nid, pattern(1, SMALL), ack=False)
    said = await books.balance()
    assert "'next_hop_unreachable': 1" in said, f"{what}: {said}"
    await env.until(lambda: not c.ni.conns, f"{what}: ended")
    return {k: n - before[k] for k, n in (await r.drops()).items() if n != before[k] and k.startswith("o2ib_")}


async def refreshed(env, r, c, s):
    """A call of c's is good, after which the router may call again at once, without the pause after its failure."""
    assert await c.ping(s.nid)
    await left_alone(env, r, c)


async def rejected_finally(env, r, c, s, what, reject):
    sent = len(c.ni.rejects_sent)
    c.ni.rejects = [lambda m: reject]
    counted = await goes_nowhere(env, r, c, s, what)
    assert len(c.ni.rejects_sent) == sent + 1 and not c.ni.rejects, f"{what}: {c.ni.rejects_sent[sent:]}"
    assert counted in ({"o2ib_dial_failed": 1}, {"o2ib_dial_refused": 1}), f"{what}: {counted}"
    await refreshed(env, r, c, s)


@millrace
async def test_peer_rejects_finally(env):
    """Rejects of no use for another try: 4, 8, unknown ones, version 1, and what is none at all."""
    c, r, s = await verbs_tcp(env)
    await left_alone(env, r, c)

    def reject(why, depth=8, frags=257, **kw):
        return W.Reject(why, c.ni.stamp, depth, frags, **kw)
    cases = {
        "4": reject(W.UNCOMPAT), "8": reject(W.INVALID_SRV_ID), "77": reject(77), "version 1": reject(W.FATAL, version=0x11),
        "queue size, no less": reject(W.QUEUE_SIZE), "fragments, no less": reject(W.FRAGS), "nothing": b"", "no magic": bytes(24),
    }
    for what, case in cases.items():
        await rejected_finally(env, r, c, s, what, case)
    return f"{len(cases)} rejects"


@millrace
async def test_peer_rejects_in_its_order(env):
    """A node of the other byte order says 4 for the queue and 256 for the fragments: it is understood."""
    c, r, s = await verbs_tcp(env, {"order": ">"})
    await left_alone(env, r, c)
    c.ni.requests.clear()
    c.ni.rejects = [lambda m: W.Reject(W.QUEUE_SIZE, c.ni.stamp, 4, 257), lambda m: W.Reject(W.FRAGS, c.ni.stamp, 4, 256)]
    assert await s.put(c.nid, pattern(1, BULK))
    assert [(m.depth, m.frags_max) for m in c.ni.requests] == [(8, 257), (4, 257), (4, 256)], c.ni.requests
    found = await rows(r, c)
    assert [(x["depth"], x["frags"], x["active"]) for x in found] == [(4, 256, True)], found
    await env.settle()


@millrace
async def test_peer_other_net(env):
    """A NID of o2ib whose address is of a node on o2ib1: fatal, dropped by name. The node's own NID is reached meanwhile."""
    r, s = await third(env)
    d = await env.ib("d", SERVER1)
    env.tolerate.append("call for")
    books = await Books.open(env, r)
    await s.put(N.parse("10.77.0.4@o2ib"), pattern(1, SMALL), ack=False)
    said = await books.balance()
    assert "'next_hop_unreachable': 1" in said and [x.why for x in d.ni.rejects_sent] == [W.FATAL], (said, d.ni.rejects_sent)
    await joined(env, d, r, "tcp")
    await both_ways(d, s, (BULK,))
    await env.settle()


# The router has called; what is wrong with the answer.
ANSWERS = (
    ("its type", patch(6, "<B", W.CONNREQ), "type"), ("its version", patch(4, "<H", 0x11), "version"),
    ("a depth of 9", patch(48, "<H", 9), "queue_depth"), ("258 fragments", patch(50, "<H", 258), "fragments"),
    ("another destination", patch(32, "<Q", word(ROUTER1)), "destination"),
    ("another life of the router's", patch(40, "<Q", 0x1234567), "stale"),
)


async def answered_wrong(env, r, c, s, what, change, name):
    ended, came = len(c.closes), c.ni.counts["in", W.IMMEDIATE]
    c.ni.on_wire = lambda conn, m, raw: change(raw) if m.mtype == W.CONNACK else raw
    counted = await goes_nowhere(env, r, c, s, what)
    c.ni.on_wire = None
    assert counted == {f"o2ib_connect_{name}": 1}, f"{what}: {counted}"
    assert c.ni.counts["in", W.IMMEDIATE] == came, what
    assert all(how == "disconnected" for _, how in c.closes[ended:]), c.closes[ended:]
    await refreshed(env, r, c, s)


@millrace
async def test_peer_bad_connack(env):
    """CONNACKs that are wrong in one thing: the router ends the connection before it sends anything on it (§1.11)."""
    c, r, s = await verbs_tcp(env)
    await left_alone(env, r, c)
    for case in ANSWERS:
        await answered_wrong(env, r, c, s, *case)
    return f"{len(ANSWERS)} answers"


@millrace
async def test_peer_less_than_asked(env):
    """Who calls asks for 32 and 300 fragments and learns better; who is called answers with less than was asked for."""
    c, r, s = await verbs_tcp(env, {"depth": 32, "frags_max": 300})
    assert [x.why for _, x in c.ni.peer(r.nids[0]).rejects] == [W.QUEUE_SIZE, W.FRAGS]
    assert [(x.depth, x.frags_max) for x in c.conns()] == [(8, 257)], c.conns()
    await left_alone(env, r, c)
    c.ni.ack_depth, c.ni.ack_frags = 5, 200
    await crowd(s, c, 20)
    found = await rows(r, c)
    assert [(x["depth"], x["frags"], x["active"]) for x in found] == [(5, 200, True)], found
    await env.settle()
    await at_rest(env, c)


# ------------------------------------------------------------------------------------------------------- another life

def new_rxe0():
    """Its numbers begin anew with it."""
    for command in ("delete rxe0", "add rxe0 type rxe netdev roce0"):
        subprocess.run(["rdma", "link", *command.split()], check=True)


@alone
async def test_peer_reborn(env):
    """The router's machine loses its power and comes back with the queue pair numbers it had: the node's connection manager
    refuses (reason 10) and tells the node, which then finds the call stale; both times the router calls again at once."""
    new_rxe0()
    c, r, s = await verbs_tcp(env)
    assert await s.put(c.nid, pattern(1, BULK))
    await env.settle()
    old = c.conns()[0]
    c.ni.requests.clear()
    r.spec.allow_rst = True
    env.fail_fast = False
    with unplugged(0):
        r.crash()
        await env.until(lambda: not s.conns(), "tcp connections gone")
        new_rxe0()
    assert c.conns() == [old], "the node has noticed"
    await r.restart()
    r.spec.allow_rst = False
    for p in s.nis[0].peers.values():
        p.retry_at = 0
    await env.until_async(lambda: s.poll(r.nids[1]), "s finds the router", 60)
    env.ledger.forget(lambda e: True)
    env.problems.clear()
    env.fail_fast = True
    before = await r.drops()
    assert await s.put(c.nid, pattern(2, BULK))
    assert old not in c.conns() and [x.why for x in c.ni.rejects_sent] == [W.STALE], (c.conns(), c.ni.rejects_sent)
    assert [m.dst_stamp for m in c.ni.requests] == [0, c.ni.stamp], c.ni.requests
    tries = (await r.drops())["o2ib_dial_refused"] - before["o2ib_dial_refused"]
    assert tries == 2, f"{tries} rejects, one of which the node sent"
    await both_ways(c, s, (SMALL, BULK))
    await env.settle()


@alone
async def test_peer_net_goes(env):
    """An NI is removed: its connections end in order and nobody listens (CM 8). It is added again: another incarnation."""
    c, r, s = await verbs_tcp(env)
    await both_ways(c, s, (100, BULK))
    await env.settle()
    to, peer = r.nids[0], c.ni.peer(r.nids[0])
    old = peer.stamp
    r.spec.nids, r.spec.seq = r.nids[1:], None
    assert await r.rpc("net_del", net="o2ib")
    await env.until(lambda: not c.conns(), "closed")
    assert [how for _, how in c.closes] == ["disconnected"], c.closes
    c.ni.connect(peer)
    await env.until(lambda: peer.rejects, "a reject")
    assert peer.rejects == [(W.CM_INVALID_SERVICE, None)], peer.rejects
    r.spec.nids, r.spec.seq = r.nids[1:] + r.nids[:1], None
    calls = len(c.ni.requests)
    assert await r.rpc("net_add", net="o2ib", nid=str(to))
    assert await c.poll(to)
    # The router may call first: it tells the node of its NIs. Else the node's call has a stamp that is not true any more.
    assert len(c.ni.requests) > calls or [rej.why for _, rej in peer.rejects[1:]] == [W.STALE], (peer.rejects, c.ni.requests)
    assert c.ni.peer(to).stamp > old
    await both_ways(c, s, (100, BULK))
    await env.settle()


# ------------------------------------------------------------------------------------------------------- gone without a word

@alone
async def test_peer_dies_silently(env):
    """Idle connections have a sign of life after the keepalive time. It finds a node whose queue pair is dead; and one whose
    cable is out is found by what was sent to it, which is dropped by name. Both are reached again."""
    settings = {"timeout": 4, "extra": "  verbs: {keepalive: 3}\n"}
    r, s = await third(env, **settings)
    c, d = await env.ib("c", CLIENT), await env.ib("d", SERVER1)
    for n in (c, d):
        n.ni.peer_keepalive = 1     # less than the router's: one sign may be read late, and the next in time
        await joined(env, n, r, "tcp")
    for n in (c, d):
        assert await s.put(n.nid, pattern(1, BULK))
    await env.settle()
    await env.until(lambda: all(n.ni.counts["in", W.NOOP] >= 3 for n in (c, d)), "signs of life")
    assert not c.closes and not d.closes

    books, before = await Books.open(env, r), await r.drops()
    began = env.now()
    c.conns()[0].break_qp()
    with unplugged(3):
        await s.put(d.nid, pattern(2, BULK), ack=False)

        async def gone():
            return not any(x["state"] == "up" for x in await rows(r, c) + await rows(r, d))
        await env.until_async(gone, "both are missed", 40)
        took = env.now() - began
        said = await books.balance()
        assert "'next_hop_connection_lost': 1" in said, said
        for x in d.conns():
            x.close(-5, "the cable is out")
    after = await r.drops()
    ends = {k: after[k] - before[k] for k in ("o2ib_timeout", "o2ib_send_failed", "o2ib_connection_lost")}
    # The LND timeout, or the device gives up first: both end a connection (§6.1, §6.3).
    assert ends["o2ib_timeout"] + ends["o2ib_send_failed"] == sum(ends.values()) == 2, ends
    await env.until(lambda: not c.conns(), "the connection of c has ended")
    for n, to in ((c, r.nids[0]), (d, r.nids[2])):
        await env.until_async(lambda n=n, to=to: n.poll(to), f"{n.name} finds the router")
        await again(env, n, s, 40)
    return f"after {took:.1f} s, {said}, {ends}"


# ------------------------------------------------------------------------------------------------------- GET_REQ

async def get_req(env, c, hdr, described):
    """What comes of a GET_REQ that describes so many bytes: the status of GET_DONE, or None if the connection is closed."""
    conn, closes, seen = c.conns()[0], len(c.closes), len(c.ni.naks)
    slot = c.ni.alloc(described)
    tx = Tx(W.Msg(W.GET_REQ, lnet=hdr.pack(False), cookie=c.ni.cookie(), key=c.ni.arena.rkey,
                  frags=c.ni.describe(slot, described)), hdr, answer=(W.GET_DONE,))
    tx.slot = slot
    conn.queue(tx)
    await env.until(lambda: len(c.closes) > closes or len(c.ni.naks) > seen, "an answer")
    return c.ni.naks[-1][1] if len(c.ni.naks) > seen else None


@millrace
async def test_peer_get_req(env):
    """GET_REQs for the router: written into 257 fragments; nothing there; a sink too small. For another of its NIs: closed."""
    c, r, s = await verbs_tcp(env)
    me = r.nids[0]
    c.ni.layout = scattered
    for sink in (4000, 8000, 1 << 20):
        reply = await c.ping_get(me, sink)
        assert reply and wire.unpack_ping(reply).statuses()[me] == wire.UP, sink
    c.ni.layout = None
    assert c.ni.counts["out", W.GET_REQ] == c.ni.counts["in", W.GET_DONE] == 3

    def get(to, portal, bits):
        return wire.Header(to, c.nid, wire.GET, 0, wire.get_union(c.handle(), bits, portal, 8000))
    assert await get_req(env, c, get(me, 5, 40), 8000) == -61
    assert await get_req(env, c, get(me, 0, wire.PING_MATCH), 16) == -71
    assert not c.closes
    await at_rest(env, c)
    assert await get_req(env, c, get(N.parse(ROUTER1), 0, wire.PING_MATCH), 8000) is None
    env.ledger.forget(lambda e: True)
    await again(env, c, s)
    await env.settle()
