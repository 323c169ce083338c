# SPDX-License-Identifier: BSD-3-Clause
"""What no kernel node sends is not forwarded to the nodes behind the router, unless its rule is off."""

from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.scene import ROUTER, cases, only

BAD, SINK = "10.0.0.66@tcp", "10.0.1.66@tcp1"
PUSH_MOST = 16 + 16 + 24 * 4096 + 4 + 40 * 4096  # header, loopback, NIDs and metadata of a node of the master branch (lnet-core §3.2, §3.3)
PUSH_EFA = 16 + 2 * 16 + 4 + 40 * 4096  # the same with one NI
RULES = ("ping_offset", "push_offset", "push_size", "get_size", "unused_bytes")


def offences(bad, to):
    """rule -> a message that breaks it."""
    def push(size, offset=0):
        return bad.header(wire.PUT, wire.put_union(bad.handle(), wire.PING_MATCH, 0, offset), size, dst=to), bytes(size)

    def get(portal, sink, offset=0, rest=bytes(4)):
        union = wire.get_union(bad.handle(), wire.PING_MATCH, portal, sink, offset)[:36] + rest
        return bad.header(wire.GET, union, dst=to), b""
    return {"ping_offset": get(0, 272, 16), "push_offset": push(16, 8), "push_size": push(PUSH_MOST + 1), "get_size": get(7, (1 << 20) + 1),
            "unused_bytes": get(7, 100, rest=b"\1\0\0\0")}


def near_misses(bad, to):
    """What a kernel node may send."""
    for mtype, union, size in ((wire.GET, wire.get_union(bad.handle(), wire.PING_MATCH, 0, 4096), 0),
                               (wire.PUT, wire.put_union(bad.handle(), wire.PING_MATCH, 0), PUSH_EFA),
                               (wire.PUT, wire.put_union(bad.handle(), wire.PING_MATCH, 0), PUSH_MOST),
                               (wire.GET, wire.get_union(bad.handle(), 5, 7, 1 << 20, 1 << 20), 0),
                               (wire.PUT, wire.put_union(bad.handle(), 5, 7, 4096, 99), PUSH_MOST + 1)):
        yield bad.header(mtype, union, size, dst=to), bytes(size)


@only("kernel", "port")
@cases("on", "off", "off by and by")
async def test_rules(env, switch):
    env.need_millrace()
    off = "  guard: {" + ", ".join(f"{r}: false" for r in RULES) + "}\n"
    r = await env.router("r", *ROUTER, extra=off if switch == "off" else "")
    if switch == "off by and by":
        await r.rpc("config_apply", text="millrace:\n" + off, mode="merge")
    bad, sink = BadPeer(env, "bad", BAD, r.nids[0]), BadPeer(env, "sink", SINK, r.nids[1])
    out, into = await bad.attach(), await sink.attach()
    wanted = list(near_misses(bad, sink.nid))
    broken = offences(bad, sink.nid)
    for rule in RULES:
        await out.send(bad.frame(*broken[rule]))
        if switch != "on":
            wanted.insert(RULES.index(rule), broken[rule])
    for header, payload in wanted[0 if switch == "on" else len(RULES):]:
        await out.send(bad.frame(header, payload))
    for header, payload in wanted:
        raw = await into.read(24 + 72 + len(payload), 10)
        assert raw[24:] == header.pack(False) + payload, f"{header}: {raw[24:96].hex()}"
    drops = await r.drops()
    assert {rule: drops[f"guard_{rule}"] for rule in RULES} == dict.fromkeys(RULES, int(switch == "on"))
