# SPDX-License-Identifier: BSD-3-Clause
"""Recordings: decoding them whole, and playing the routed ones through a live router.

MILLRACE_RECORDINGS names another folder of recordings to try.
"""

import glob
import os

from lnetpy import replay, stream, wire
from lnetpy.env import Skip, find_golden
from lnetpy.scene import cases, deadline, no_router

OTHER = "MILLRACE_RECORDINGS" in os.environ
FOLDER = os.environ.get("MILLRACE_RECORDINGS", find_golden())
PAIRS = replay.pairs(FOLDER)
NO_ROUTER = ("I-01", "I-02")    # two bridges because the nodes have two NIs each: test_end
CRAFTED = ("H-03", "H-05")      # requests made up by hand: not what a kernel sends


@no_router
@deadline(120)
async def test_decode_all(env):
    """Each LNet-over-TCP recording decodes whole, and encodes to the same bytes from decoded fields."""
    files = sorted(glob.glob(os.path.join(FOLDER, "*.pcap*")))
    assert files, f"no recordings in {FOLDER}"
    units = 0
    for path in files:
        name = os.path.basename(path)
        if name.startswith(CRAFTED):
            continue
        for d in stream.decode_file(path):
            if not d.conn.whole and d.error:
                continue        # one direction of it is on another bridge
            assert not d.error, f"{name}: {d.error}"
            for u in d.ab + d.ba:
                units += 1
                if u.kind == "rest":
                    assert u.value is None, f"{name}: {u.value}"
                    continue
                assert stream.repack(u, d.large) == u.raw, f"{name}: {u.kind} {u.raw[:120].hex()}"
                if u.kind == "lnet" and u.payload[:4] == b"gnip":
                    assert wire.unpack_ping(u.payload).pack() == u.payload, f"{name}: {u.payload.hex()}"
    env.log(f"{units} units in {len(files)} files")
    assert units > 0


# The requests of the router itself in which Millrace differs from the kernel router: names of replay.DIFFERENCES, how often.
DIFFERS = {
    "B-01": {"push of routing": 2}, "B-08": {"first push": 2}, "B-09": {"first push": 2}, "B-13": {"first push": 2},
    "F-02": {"push of status": 2, "first push": 1}, "J-01": {"push of status": 1, "first push": 1}, "K-01": {"selftest": 124},
    "M-01": {"push of routing": 2, "push by choice of NID": 2}, "M-04": {"recovery ping": 2, "first push": 2},
}


@cases(*(n for n in PAIRS if OTHER or n[:4] not in NO_ROUTER))
async def test_routed(env, name):
    try:
        plan = replay.make_plan(name, PAIRS[name])
    except replay.NotReplayable as e:
        raise Skip(str(e)) from None
    if not any(s.what == "send" for h in plan.hosts for s in h.steps):
        raise Skip("nobody says anything that could be replayed")
    r = await env.router("r", *[str(n) for n in plan.router], routing=plan.routed)
    # The router calls a host for which it has something; on a busy machine the host may be about to call too.
    r.spec.allow_none = r.spec.any_type = True
    players = []
    for i, host in enumerate(sorted(plan.hosts, key=lambda h: str(h.nids[0]))):
        near = next(n for n in plan.router if n.net == host.nids[0].net)
        node = await env.persona(f"h{i}", *host.nids)
        for n in plan.router:
            if n.net != near.net:
                node.add_route(n.net, near, check=False)
        players.append(replay.Player(env, node, host, near, plan))
    tasks = [p.node.task(p.play()) for p in players]
    await env.until(lambda: all(t.done() for t in tasks) or env.problems, "all scripts played", 50)
    assert not env.problems, env.problems[0]
    await env.until(lambda: not any(c.zc_out for p in players for c in p.node.conns()), "every ZC request acked")
    for p in players:
        assert p.node.zc_acked == p.cookies, (p.node.name, p.node.zc_acked, p.cookies)
    for p in players:
        await env.until(lambda p=p: p.own or not p.pushed(), f"{p.node.name}: the router's PUSH, to a node that pushed to it")
        await env.until(lambda p=p: p.complete(), f"{p.node.name}: connections of {sorted(map(str, p.talked))}, and of no other NI")
    # What the recording lost may arrive here, and then as late as it likes: nobody's script waits for it.
    there = {n for h in plan.hosts for n in h.nids}
    await env.until(lambda: not any(plan.routed and e.header.dst in there for e in env.ledger.outstanding()),
                    "what the recording lost, too")
    gone = env.ledger.forget(lambda e: True)
    delivered = sum(s.what == "expect" for h in plan.hosts for s in h.steps)
    extra = sum(p.extra for p in players)
    env.log(f"{delivered} as recorded, {extra} more, {len(gone)} not delivered, {plan.unmatched} begun before")
    assert len(gone) + extra == plan.lost, (len(gone), extra, plan.lost)
    if not plan.routed:
        assert extra == 0 and delivered == 0
    differs = replay.differences(plan, [o for p in players for o in p.own])
    for kind, count in sorted(differs.items()):
        env.log(f"differs {count} times: {kind}: {replay.DIFFERENCES[kind]}")
    assert OTHER or env.reference or differs == DIFFERS.get(name[:4], {}), dict(differs)


@no_router
async def test_plans(env):
    """What the replay makes of the recordings, so that an empty replay does not count as one."""
    if OTHER:
        raise Skip("other recordings")
    seen = {}
    for name, paths in PAIRS.items():
        try:
            p = replay.make_plan(name, paths)
        except replay.NotReplayable:
            continue
        seen[name[:4]] = (p.routed, *(sum(s.what == what for h in p.hosts for s in h.steps) for what in ("send", "expect")))
        seen[name[:4], "hosts"] = [[str(n) for n in h.nids] for h in p.hosts]
        seen[name[:4], "links"] = [(s.time, str(n), up) for h in p.hosts for s in h.steps for n, up in s.links]
        env.log(f"{name}: routed {p.routed}, router {[str(n) for n in p.router]}, hosts "
                f"{seen[name[:4], 'hosts']}, links {seen[name[:4], 'links']}, (routed, sends, expects) {seen[name[:4]]}, lost {p.lost}, "
                f"unmatched {p.unmatched}")
    assert seen["B-00"][0] is False and seen["B-11"][0] is False, seen
    assert not any(n[:4] in seen for n in NO_ROUTER), "a router after all"
    client, server = ["192.168.10.61@tcp", "192.168.10.62@tcp"], ["192.168.20.65@tcp1", "192.168.20.66@tcp1"]
    for name in "M-01", "M-02", "M-04":
        assert sorted(seen[name, "hosts"]) == [client, server], seen[name, "hosts"]
    assert [(n, up) for _, n, up in seen["M-04", "links"]] == [(server[1], False), (server[1], True)], seen["M-04", "links"]
    assert seen["M-01"][1:] == (12, 0) and seen["M-02"][1:] == (28, 28), (seen["M-01"], seen["M-02"])
    assert seen["B-02"][2] == 14 and seen["B-03"][2] == 16 and seen["B-06"][2] == 68, seen


@no_router
async def test_differences(env):
    """Each altered byte of a router's own request is found, the masked ones apart; so are requests that are missing or too many."""
    plan = replay.make_plan("B-01", PAIRS["B-01-config-routedping-pinger"])
    nid, header, payload = push = next(o for o in plan.own if o[1].src.net == plan.router[0].net)
    others = [o for o in plan.own if o[0] != nid]
    assert replay.differences(plan, [*others[:1], push]) == DIFFERS["B-01"]
    assert replay.differences(plan, others[:1])["push that Millrace does not make"] == 1
    assert replay.differences(plan, plan.own) == {"push of routing": 2, "first push": 2}
    raw = header.pack(False)
    hidden = {*range(32, 48), *range(76, 80), *range(96, 100), *range(112, 116), *range(128, 132)}
    for i in range(len(raw) + len(payload)):
        if 24 <= i < 32:
            continue        # type and length: another message
        b = bytearray(raw + payload)
        b[i] ^= 1
        try:
            altered = wire.unpack_header(bytes(b[:72]), False), bytes(b[72:])
        except wire.WireError:
            continue        # no NID: the persona has refused it
        found = [k for k in replay.differences(plan, [*others[:1], (nid, *altered)]) if k.startswith("not as recorded")]
        assert bool(found) == (i not in hidden), (i, found)
