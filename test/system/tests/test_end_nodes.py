# SPDX-License-Identifier: BSD-3-Clause
"""millrace-perf as end node on either side of the router, and opposite a kernel persona."""

from lnetpy import wire
from lnetpy.end_node import EndNode
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, deadline, join


@deadline(160)
@cases("ping", "put", "get", "both")
async def test_through_the_router(env, command):
    """10,000 messages of mixed sizes through the router, content checked at the receiver."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    server = EndNode(env, "s", SERVER, f"tcp {ROUTER[1]}", "server")
    await server.said(f"serving on {SERVER}")
    count = 50 if command == "ping" else 2500
    args = ("--count", count) if command == "ping" else ("--count", count, "--size", "mix")
    client = EndNode(env, "c", CLIENT, f"tcp1 {ROUTER[0]}", *args, command, SERVER)
    await client.result(70 * (2 if env.sanitized else 1))
    await server.stop()
    drops = await r.drops()
    assert not any(drops.values()), {k: v for k, v in drops.items() if v}
    stats = await r.stats()
    assert stats["route_count"] >= 2 * count and stats["drop_count"] == 0, stats


async def test_opposite_a_persona(env):
    """A kernel persona asks a millrace-perf node for its ping info through the router."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    server = EndNode(env, "s", SERVER, f"tcp {ROUTER[1]}", "server")
    await server.said(f"serving on {SERVER}")
    c = await env.persona("c", CLIENT)
    join(c, r, "tcp1")
    await env.bring_up(c)
    handle = c.handle()
    hdr = wire.Header(server.nid, c.nid, wire.GET, 0, wire.get_union(handle, wire.PING_MATCH, 0, 3960))
    # The end node is no persona: what it must answer is put into the ledger here.
    info = wire.PingInfo(0x1e, 1, [(server.nid, wire.UP)])
    body = info.pack()
    want = wire.Header(c.nid, server.nid, wire.REPLY, len(body), wire.reply_union(handle))
    for seq in range(1, 4):
        env.ledger.register(want, wire.PingInfo(info.features, seq, info.nis).pack())
    c.nis[0].send_message(r.nids[0], hdr, b"")
    await env.until(lambda: env.ledger.received == 1, "the end node's REPLY, byte for byte")
    env.ledger.forget(lambda e: True)
    await server.stop()
