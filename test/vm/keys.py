# SPDX-License-Identifier: BSD-3-Clause
"""What a hostile node can do with the keys that the router gives it: writes with a key that has ended, with that of
another node; and a transfer of which nothing is written."""

import asyncio

from iblnd import rdma as R
from iblnd import wire as W
from lnetpy.node import pattern
from lnetpy.scene import join
from router import alone, joined
from scene import CLIENT, ROUTER, TCP_ROUTER, TCP_SERVER

VICTIM = "10.77.0.4@o2ib"
SIZE = 1 << 20
EVIL = 512      # bytes written
REM_ACCESS_ERR = 10


async def scene(env, keys, **router):
    """An attacker and a victim on o2ib, a router with keys of this kind, a node on tcp."""
    r = await env.router("r", ROUTER, TCP_ROUTER, extra=f"  verbs: {{remote_keys: {keys}}}\n", **router)
    c, v = await env.ib("c", CLIENT), await env.ib("v", VICTIM)
    s = await env.persona("s", TCP_SERVER)
    for node in (c, v):
        await joined(env, node, r, "tcp")
    join(s, r, "o2ib")
    await env.bring_up(s)
    return c, v, r, s


async def offered(env, node, s, payload):
    """A PUT up to its PUT_ACK, which is kept: (the PUT, connection, PUT_ACK, its receive)."""
    held = []

    def keep(conn, m, i):
        if m.mtype == W.PUT_ACK and not held:
            held.append((conn, m, i))
            return True
        return False
    node.ni.on_message = keep
    put = asyncio.ensure_future(node.put(s.nid, payload))
    await env.until(lambda: held, "a PUT_ACK")
    node.ni.on_message = None
    return put, *held[0]


def write(conn, addr, key, data):
    """An RDMA WRITE that completes only when it fails."""
    slot = conn.ni.alloc(len(data))
    conn.ni.arena.map[slot.at:slot.at + len(data)] = data
    chain = (R.Send * 1)()
    w = chain[0]
    w.remote, w.rkey, w.write, w.nsges = addr, key, 1, 1
    w.sge[0].addr, w.sge[0].len, w.sge[0].lkey = conn.ni.arena.addr + slot.at, len(data), conn.ni.arena.lkey
    assert R.so().ibn_send(conn.cm, chain, 1) == 0
    return slot


def finish(conn, m, i):
    """PUT_DONE, whatever was written."""
    tx = conn.awaiting(m, W.PUT_REQ)
    tx.waiting, tx.answer = False, None
    tx.msg = W.Msg(W.PUT_DONE, cookie=m.dst_cookie, status=sum(n for _, n in m.frags))
    conn.repost(i, reserve=True)
    conn.queue(tx)


async def attack(env, c, r, addr, key, what):
    """Writes by a key that must not work: the writer loses its connection, and the router counts it."""
    before, closes = (await r.drops())["o2ib_connection_lost"], len(c.closes)
    write(c.conns()[0], addr, key, b"\xee" * EVIL)
    await env.until(lambda: len(c.closes) > closes, f"{what}: the connection has ended", 30)
    assert str(REM_ACCESS_ERR) in str(c.closes[-1][1]) or "disconnected" in str(c.closes[-1][1]), (what, c.closes[-1][1])

    async def counted():
        return (await r.drops())["o2ib_connection_lost"] > before
    await env.until_async(counted, f"{what}: counted", 30, 0.2)


async def ended(env, keys):
    """A key whose transfer has ended costs who uses it the connection; the router serves others."""
    c, v, r, s = await scene(env, keys)
    env.fail_fast = False
    seen = []
    c.ni.on_message = lambda conn, m, i: m.mtype == W.PUT_ACK and seen.append(m)
    assert await c.put(s.nid, pattern(1, SIZE))
    c.ni.on_message = None
    await attack(env, c, r, seen[0].frags[0][0], seen[0].key, "a key that has ended")
    assert await v.put(s.nid, pattern(2, SIZE))


@alone
async def test_keys_windows_ended(env):
    """With windows."""
    await ended(env, "windows")


@alone
async def test_keys_windows_other(env):
    """With windows: a key of another connection costs who uses it the connection, and the transfer that it was for is whole."""
    c, v, r, s = await scene(env, "windows")
    env.fail_fast = False
    data = pattern(20, SIZE)
    put, conn, ack, i = await offered(env, v, s, data)
    slot = write(conn, ack.frags[0][0], ack.key, data)
    await attack(env, c, r, ack.frags[0][0], ack.key, "the key of another")
    finish(conn, ack, i)
    assert await put, "the victim's transfer"       # its content is compared at s
    v.ni.free(slot)


@alone
async def test_keys_registrations(env):
    """With a registration for each transfer."""
    await ended(env, "registrations")


async def left_out(env, keys):
    """Nothing of one node's payload is left where another says that it has written and has not."""
    c, v, _, s = await scene(env, keys, buffers={"large": 2})
    for n in range(6):
        assert await c.put(s.nid, b"\xee" * SIZE)
    for n in range(3):
        put, conn, ack, i = await offered(env, v, s, bytes(SIZE))
        finish(conn, ack, i)
        assert await put, n     # s compares what comes with what was to be sent: zeros


@alone
async def test_keys_left_out_windows(env):
    """A transfer of which nothing was written has no bytes of others, with windows."""
    await left_out(env, "windows")


@alone
async def test_keys_left_out_shared(env):
    """The same with the shared key."""
    await left_out(env, "shared")
