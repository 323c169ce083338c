# SPDX-License-Identifier: BSD-3-Clause
"""Recordings: decoding them whole, and playing the routed ones through a live router.

MILLRACE_RECORDINGS names another folder of recordings to try.
"""

import fcntl
import glob
import os
import sys
import termios
from collections import Counter

from lnetpy import replay, replay_end, stream, wire
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


# ---------------------------------------------------------------- an end node's place

# Recording, the NID whose place Millrace takes, and in which replay_end.DIFFERENCES it differs from that node, how often.
END = {
    "L-01 192.168.10.4@tcp": {"discovery on command": 1},
    "L-01 192.168.10.5@tcp": {"discovery on command": 1},
    "I-01 192.168.10.4@tcp": {"discovery on command": 1, "push by choice of NI": 1, "selftest": 44},
    "I-01 192.168.10.5@tcp": {"push by choice of NI": 1, "selftest": 84},
    "I-02 192.168.10.4@tcp": {"recovery ping": 1, "ping without answer": 4, "first push": 1},
    "I-02 192.168.10.5@tcp": {"push by choice of NI": 1},
    "E-01 192.168.10.4@tcp": {"discovery on command": 1},
    "E-01 192.168.10.5@tcp": {},
}
# The same of nodes of which one goes and comes back: which, how, and how long after the first message, s.
RESTARTS = {
    "E-02 192.168.10.4@tcp": ("theirs", "crash", 5), "E-02 192.168.10.5@tcp": ("ours", "crash", 5),
    "E-04 192.168.10.4@tcp": ("theirs", "crash", 5),
    "E-07 192.168.20.7@tcp1": ("theirs", "reload", 1), "E-07 192.168.20.8@tcp1": ("ours", "reload", 1),
}


async def end_node(env, plan, name="r"):
    """Millrace in the place of an end node."""
    r = env.prepare(name, *map(str, plan.ours), routing=False, bits=16 if env.transport == "port" else None)
    if len(plan.ours) > 1 and env.transport == "kernel":
        env.fabric.rails(name, *[n.ip for n in plan.ours])
    await r.start()
    r.spec.allow_none = r.spec.any_type = True      # either may connect first
    r.spec.gateways, r.spec.ping_sinks = set(plan.theirs), {3960}
    return r


@cases(*END)
async def test_end(env, case):
    """Millrace in the place of one of two end nodes."""
    env.need_millrace()
    name, ours = case.split()
    plan = replay_end.make_plan(FOLDER, name, ours)
    r = await end_node(env, plan)
    node = await env.persona("h", *plan.theirs)
    differs = await replay_end.play_end(env, node, r, plan)
    assert differs == END[case], dict(differs)
    # What was for lnet_selftest is dropped, and costs no connection.
    lost = Counter({wire.PUT: "put_no_match", wire.GET: "get_no_match"}[s.header.mtype] for s in plan.steps
                   if s.what == "send" and s.header.portal != 0)

    async def dropped():
        return {k: n for k, n in (await r.drops()).items() if n} == lost
    await env.until_async(dropped, f"dropped: {dict(lost)}")
    assert not lost or not node.closes, node.closes


# Steps of each script: send, answer, ask (ping), push, link. Counted by eye from the list of each recording's messages; in I-01
# the persona's messages of lnet_selftest are among those sent.
END_STEPS = {
    "L-01 192.168.10.4@tcp": (3, 3, 1, 1, 0), "L-01 192.168.10.5@tcp": (3, 3, 1, 1, 0),
    "I-01 192.168.10.4@tcp": (1 + 84, 1, 9, 1, 0), "I-01 192.168.10.5@tcp": (11 + 44, 11, 0, 1, 0),
    "I-02 192.168.10.4@tcp": (2, 2, 8, 0, 0), "I-02 192.168.10.5@tcp": (13, 8, 0, 2, 2),
    "E-01 192.168.10.4@tcp": (1, 1, 1, 1, 0), "E-01 192.168.10.5@tcp": (3, 3, 0, 1, 0),
}


@no_router
async def test_end_plans(env):
    """What the replay makes of the recordings of end nodes, so that an empty one does not count."""
    if OTHER:
        raise Skip("other recordings")
    for case, steps in END_STEPS.items():
        plan = replay_end.make_plan(FOLDER, *case.split())
        count = Counter(s.what for s in plan.steps)
        got = tuple(count[w] for w in ("send", "answer", "ask", "push", "link"))
        env.log(f"{case}: {[str(n) for n in plan.ours]}, {[str(n) for n in plan.theirs]}: {got}")
        assert got == steps, (case, got)
        several = case[:2] == "I-"
        assert len(plan.ours) == len(plan.theirs) == 1 + several, (case, plan.ours, plan.theirs)


@cases("192.168.10.4@tcp", "192.168.10.5@tcp")
async def test_end_unloads(env, ours):
    """E-01 to its end: the node that unloads ends its three connections with FIN, and the other one ends its own."""
    env.need_millrace()
    plan = replay_end.make_plan(FOLDER, "E-01", ours)
    r = await end_node(env, plan)
    node = await env.persona("h", *plan.theirs)
    await replay_end.play_end(env, node, r, plan)
    await env.until(lambda: len(node.conns()) == 3, "three connections")
    if plan.ours[0].ip.endswith(".5"):
        await r.stop()
        await env.until(lambda: len(node.closes) == 3, "three connections closed")
        assert {how for _, how in node.closes} <= {"fin", "sibling: fin"}, node.closes
        return
    node.stop()

    async def gone():
        peers = await r.peers()
        return peers[str(plan.theirs[0])]["state"] != "up" if str(plan.theirs[0]) in peers else True
    await env.until_async(gone, "the peer NI is down")


@deadline(90)
@cases(*RESTARTS)
async def test_end_restarts(env, case):
    """Millrace in the place of one of two end nodes, of which one goes and comes back."""
    env.need_millrace()
    name, ours = case.split()
    who, how, at = RESTARTS[case]
    first, second = replay_end.make_plan(FOLDER, name, ours, end=at), replay_end.make_plan(FOLDER, name, ours, begin=at)
    r = await end_node(env, first)
    node = await env.persona("h", *first.theirs)
    assert await replay_end.play_end(env, node, r, first) == {}
    await env.until(lambda: len(node.conns()) == 3 and not any(unacknowledged(c.sock) for c in node.conns()), "three connections, all acknowledged")
    if who == "theirs":
        if how == "crash":      # nothing that is sent now arrives, nor later
            node.ns.ip("link set eth0 down")
        node.stop(rst=how == "crash")
        if how == "crash":
            node.ns.ip("link set eth0 up")
        node = await env.persona("h", *second.theirs)
    elif how == "reload":
        await r.stop()
        await r.restart()
    else:                       # its host keeps what its sockets have to say
        env.fabric.link(env.fabric.ports["r", "eth0"], False)
        r.crash()
        r = await end_node(env, second, "again")
    if name == "E-04":
        lost = await replay_end.lost_ping(env, node, r, second, 3)
        await r.rpc("ping", nid=str(lost.dst), source=str(lost.src), timeout_ms=20000)
        assert node.received == {"GET": 1}, node.received
        return None
    assert await replay_end.play_end(env, node, r, second) == {}
    await env.until(lambda: len(node.conns()) == 3, "three new connections")
    if how == "crash":
        nones = sum(p.nones for ni in node.nis for p in ni.peers.values()) if who == "theirs" else \
            sum(n.startswith("refused CONTROL") for n in node.notes)
        assert nones == 1, (nones, node.notes)
    return None


def unacknowledged(sock):
    """Bytes that the other end's TCP has not acknowledged."""
    return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
