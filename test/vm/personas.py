# SPDX-License-Identifier: BSD-3-Clause
"""The personas of verbs nets among themselves, without the program under test: what one sends the other takes, and each
refuses what a kernel refuses."""

from iblnd import wire as W
from lnetpy import wire
from lnetpy.node import pattern
from scene import CLIENT

OTHER = "10.77.0.3@o2ib"
SIZES = (0, 1, 100, 3976, 3977, 4096, 65537, 1 << 20)


async def pair(env, a=None, b=None):
    return await env.ib("a", CLIENT, **(a or {})), await env.ib("b", OTHER, **(b or {}))


async def all_sizes(a, b, sizes=SIZES):
    for size in sizes:
        assert await a.put(b.nid, pattern(size, size)), size
        assert await b.get(a.nid, size), size


async def test_persona_pair(env):
    """PUT and GET of all kinds of sizes, over one connection; no credit is lost."""
    a, b = await pair(env)
    info = await a.ping(b.nid)
    assert info.statuses() == {b.nid: wire.UP}, info
    await all_sizes(a, b)
    for _ in range(3):      # so many that credits must be returned by NOOPs, in one direction only
        for i in range(12):
            await a.put(b.nid, pattern(i, 2000), ack=False)
    await env.settle()
    x, y = a.conns()[0], b.conns()[0]
    assert b.ni.counts["out", W.NOOP], b.ni.counts
    for kind in (W.IMMEDIATE, W.PUT_REQ, W.PUT_ACK, W.PUT_DONE, W.GET_REQ, W.GET_DONE):
        assert a.ni.counts["out", kind] + a.ni.counts["in", kind], W.NAMES[kind]
    await env.until(lambda: x.C + y.O == 8 and y.C + x.O == 8 and x.R == y.R == 8, "all credits here or about to be returned")


async def test_persona_shapes(env):
    """257 fragments, big-endian messages, several connections, a small queue."""
    def scattered(size):
        rows, at, left = [], 3, size
        for i in range(min(257, size)):
            n = left if i == min(257, size) - 1 else max(1, min(left - 256 + i, 37 * (i % 5) + 1, size))
            rows.append((at, n))
            at, left = at + n + i % 7, left - n
        return rows
    a, b = await pair(env, {"order": ">", "depth": 4, "conns_per_peer": 2}, {"depth": 16})
    b.ni.layout = scattered
    await all_sizes(a, b, (4096, 70000, 1 << 20))
    await env.settle()
    assert len(a.conns()) == 2 and all(c.depth == 4 for c in b.conns())


async def test_persona_negotiation(env):
    """Reject 7 and 6 and the retries; restart of one side: stale."""
    a, b = await pair(env, {"depth": 32}, {"depth": 8, "frags_max": 256})
    assert await a.put(b.nid, pattern(1, 5000))
    peer = a.ni.peer(b.nid)
    assert [r.why for _, r in peer.rejects] == [W.QUEUE_SIZE, W.FRAGS] and a.conns()[0].depth == 8, peer.rejects
    b.stop(rst=True)
    env.nodes.remove(b)
    b = await env.ib("b", OTHER)
    assert await b.ping(a.nid)
    assert [r.why for _, r in b.ni.peer(a.nid).rejects] == [W.STALE]
    await env.settle()


async def test_persona_judges(env):
    """What a kernel would not accept, the persona does not either."""
    cases = {
        "credits": lambda c, m, raw: raw[:7] + b"\x05" + raw[8:],
        "stamps": lambda c, m, raw: raw[:24] + b"\x01" + raw[25:],
        "0x": lambda c, m, raw: raw[:16] + b"\x01" + raw[17:],
        "header says": lambda c, m, raw: raw + b"x",
    }
    env.fail_fast = False
    for i, (word, change) in enumerate(cases.items()):
        a, b = await env.ib(f"a{i}", CLIENT), await env.ib(f"b{i}", OTHER)
        assert await a.ping(b.nid)
        a.ni.on_wire = change
        before = len(env.problems)
        await a.ping(b.nid, timeout=0.5)
        await env.until(lambda: len(env.problems) > before, f"a problem with {word}")     # pylint: disable=cell-var-from-loop
        assert word in env.problems[before], env.problems[before:]
        del env.problems[before:]
        env.ledger.forget(lambda e: True)
        for n in (a, b):
            n.stop()
            env.nodes.remove(n)
        del env.problems[before:]


async def test_persona_credit_police(env):
    """A message too many is noticed."""
    a, b = await pair(env)
    assert await a.ping(b.nid)
    env.fail_fast = False
    b.ni.hold_credits = True
    conn = a.conns()[0]
    for i in range(12):
        conn.C = max(conn.C, 1)
        await a.put(b.nid, pattern(i, 10), ack=False)
    await env.until(lambda: any("without credit" in p for p in env.problems), "the message without credit")
    env.problems.clear()
    env.ledger.forget(lambda e: True)

