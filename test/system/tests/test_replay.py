# SPDX-License-Identifier: BSD-3-Clause
"""Recordings: decoding them whole, and playing the routed ones through a live router.

MILLRACE_RECORDINGS names another folder of recordings to try.
"""

import glob
import os

from lnetpy import replay, stream, wire
from lnetpy.env import Skip, find_golden
from lnetpy.scene import cases, deadline, no_router

FOLDER = os.environ.get("MILLRACE_RECORDINGS", find_golden())
PAIRS = replay.pairs(FOLDER)
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


@cases(*PAIRS)
async def test_routed(env, name):
    try:
        plan = replay.make_plan(name, PAIRS[name])
    except replay.NotReplayable as e:
        raise Skip(str(e)) from None
    if not any(s.what == "send" for h in plan.hosts.values() for s in h.steps):
        raise Skip("nobody says anything that could be replayed")
    r = await env.router("r", *[str(n) for n in plan.router], routing=plan.routed)
    # The router calls a host for which it has something; on a busy machine the host may be about to call too.
    r.spec.allow_none = r.spec.any_type = True
    players = []
    for i, host in enumerate(sorted(plan.hosts.values(), key=lambda h: str(h.nid))):
        near = next(n for n in plan.router if n.net == host.nid.net)
        node = await env.persona(f"h{i}", host.nid)
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
    # What the recording lost may arrive here, and then as late as it likes: nobody's script waits for it.
    there = set(plan.hosts)
    await env.until(lambda: not any(plan.routed and e.header.dst in there for e in env.ledger.outstanding()),
                    "what the recording lost, too")
    gone = env.ledger.forget(lambda e: True)
    delivered = sum(s.what == "expect" for h in plan.hosts.values() for s in h.steps)
    extra = sum(p.extra for p in players)
    env.log(f"{delivered} as recorded, {extra} more, {len(gone)} not delivered, {plan.unmatched} begun before")
    assert len(gone) + extra == plan.lost, (len(gone), extra, plan.lost)
    if not plan.routed:
        assert extra == 0 and delivered == 0


@no_router
async def test_plans(env):
    """What the replay makes of the recordings, so that an empty replay does not count as one."""
    if os.environ.get("MILLRACE_RECORDINGS"):
        raise Skip("other recordings")
    seen = {}
    for name, paths in PAIRS.items():
        try:
            p = replay.make_plan(name, paths)
        except replay.NotReplayable:
            continue
        seen[name[:4]] = (p.routed, sum(s.what == "send" for h in p.hosts.values() for s in h.steps),
                          sum(s.what == "expect" for h in p.hosts.values() for s in h.steps))
        env.log(f"{name}: routed {p.routed}, router {[str(n) for n in p.router]}, hosts "
                f"{[str(h) for h in p.hosts]}, (routed, sends, expects) {seen[name[:4]]}, lost {p.lost}, "
                f"unmatched {p.unmatched}")
    assert seen["B-00"][0] is False and seen["B-11"][0] is False, seen
    assert seen["B-02"][2] == 14 and seen["B-03"][2] == 16 and seen["B-06"][2] == 68, seen
