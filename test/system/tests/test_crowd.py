# SPDX-License-Identifier: BSD-3-Clause
"""The crowd tried itself: through a scripted router that is right, and through ones that are wrong in one way."""

from lnetpy import wire
from lnetpy.crowd import MASK, Books, pairs
from lnetpy.crowd_conn import seal
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SERVERS
from lnetpy.scene import cases, no_router


async def scene(env):
    """Two clients, a server, and a router that keeps no account of its own."""
    r = await env.router("r", NEAR, FAR, reference=True, kind="millrace")
    for i, n in enumerate(r.nids):
        r.node.ns.ip(f"route add {n.ip.rsplit('.', 2)[0]}.0.0/{MASK} dev eth{i} src {n.ip}")
    c, s = await env.crowd("c", CLIENTS, 2), await env.crowd("s", SERVERS, 1)
    for crowd, gateway in ((c, NEAR), (s, FAR)):
        await crowd.nodes(gateway)
    return r, c, s


class NoDrops(Books):
    """The scripted router has no RPC, and says it drops nothing."""

    async def drops(self):
        return {}


@no_router
async def test_honest_router(env):
    """Nothing is found fault with, and the books balance."""
    r, c, s = await scene(env)
    loads = [await c.load(pairs(c.nids, s.nids), kind=k, window=4, count=100) for k in ("put", "get", "send")]
    await c.idle(30)
    for load in loads:
        row = await load.sum()
        assert row["done"] == 200 and not row["failed"] and not row["expired"], row
    seen = await NoDrops([], [c, s]).check()
    assert seen.startswith("1000 sent, 1000 arrived"), seen
    assert (await s.call("report"))["got"] == {str(i): 100 for load in loads for i in load.ids}
    assert not (await s.state()).get("overtaken")
    assert not r.node.closes, r.node.closes


# What the scripted router does to one message of many: a word of the fault that has to be found.
FAULTS = {
    "PUT twice": "doubled", "ACK twice": "doubled", "payload altered": "altered", "source altered": "header altered",
    "match bits altered": "header altered", "number out of reach": "never sent", "destination altered": "message type",
    "ACK of another length": "ACK of", "frame type": "frame type", "asks for a ZC-ACK": "cookies",
    "ZC-ACK twice": "ZC-ACK of",
}


def change(what, hdr, payload, out):
    """The message as the router sends it on."""
    fields = {k: getattr(hdr, k) for k in ("dst", "src", "mtype", "plen", "dst_pid", "src_pid")}
    union = bytearray(hdr.union)
    if what == "source altered":
        fields["src"] = out.nid
    elif what == "destination altered":
        fields["dst"] = out.nid
    elif what == "match bits altered":
        union[16] ^= 1
    elif what == "number out of reach":     # and sealed again, as by a sender gone mad
        union[19] ^= 0x80
        match = int.from_bytes(union[16:24], "little")
        union[24:32] = seal(hdr.src.word(), hdr.dst.word(), match, hdr.plen).to_bytes(8, "little")
    elif what == "ACK of another length":
        union[24] ^= 1
    elif what == "payload altered":
        payload = bytearray(payload)
        payload[-1] ^= 0x80
    return wire.Header(**fields, union=bytes(union)), payload


def sabotage(node, what):
    """Makes the router's forwarding wrong once, with the tenth message of its type."""
    honest, seen = node._forward, [0]
    victim = wire.ACK if what.startswith("ACK") else wire.PUT

    def forward(ni, conn, hdr, payload):
        seen[0] += hdr.mtype == victim
        if hdr.mtype != victim or seen[0] != 10:
            honest(ni, conn, hdr, payload)
            return
        seen[0] += 1
        out, hop = node.next_hop(hdr.dst)
        if what == "frame type":
            out.peer(hop).choose(2000).send(b"\xc2" + bytes(23) + hdr.pack(False), payload)
            return
        if what == "ZC-ACK twice":
            conn.send(wire.frame(wire.NOOP, 0, 2))
        altered, payload = change(what, hdr, payload, out)
        out.send_message(hop, altered, payload, 77 if what == "asks for a ZC-ACK" else None)
        if what.endswith("twice") and not what.startswith("ZC"):
            out.send_message(hop, hdr, payload)
    node._forward = forward


@no_router
@cases(*FAULTS)
async def test_faulty_router(env, what):
    """One thing wrong with one message is found, and named."""
    r, c, s = await scene(env)
    env.fail_fast = False
    sabotage(r.node, what)
    await c.load(pairs(c.nids, s.nids), kind="put", window=1, size=30000, count=50, timeout=2)

    async def found():
        for crowd in (c, s):
            await crowd.state()
        return [p for p in env.problems if FAULTS[what] in p]
    await env.until_async(found, f"a fault with {FAULTS[what]!r} in it", 10)
    env.problems.clear()
    env.tolerate = [""]         # what follows from it


@no_router
async def test_lossy_router(env):
    """A message that is lost is missing from the books."""
    r, c, s = await scene(env)
    honest, seen = r.node._forward, [0]

    def forward(ni, conn, hdr, payload):
        seen[0] += 1
        if seen[0] != 10:
            honest(ni, conn, hdr, payload)
    r.node._forward = forward
    load = await c.load(pairs(c.nids, s.nids), kind="send", window=2, size="small", count=50)
    await c.idle(10)
    assert (await load.sum())["done"] == 100
    try:
        await NoDrops([], [c, s]).check(timeout=1)
    except AssertionError as e:
        assert "100 sent, 99 arrived, 0 dropped" in str(e), e
    else:
        raise AssertionError("the loss of one message was not noticed")
