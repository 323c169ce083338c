# SPDX-License-Identifier: BSD-3-Clause
"""Personas as judges: a router that is right but for one fault must be found out, each fault by name.

The router here is the scripted reference, behaving as Millrace should (no zero-copy requests), with
its frames altered on their way to the socket.
"""

import struct
from dataclasses import replace

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, join, no_router
from lnetpy.socklnd import Conn


def is_type(head, mtype):
    return len(head) > 24 and head[0] == wire.LNET and struct.unpack("<I", head[24 + 24:24 + 28])[0] == mtype


def forwarded(head):
    """dst and src on different nets."""
    return len(head) > 24 and head[24 + 4:24 + 8] != head[24 + 12:24 + 16]


def flip(data, at):
    out = bytearray(data)
    out[at] ^= 1
    return bytes(out)


def on_put(fn):
    """Apply fn once, to the first forwarded PUT of 3000 bytes."""
    state = []

    def fault(conn, head, payload):
        if is_type(head, wire.PUT) and forwarded(head) and len(payload) == 3000 and not state:
            state.append(1)
            return fn(conn, head, payload)
        return [(conn, head, payload)]
    return fault


def on_noop(fn, skip=0):
    state = []
    left = [skip]

    def fault(conn, head, payload):
        if len(head) == 24 and head != wire.KEEPALIVE and not state:
            if left[0]:
                left[0] -= 1
                return [(conn, head, payload)]
            state.append(1)
            return fn(conn, head, payload)
        return [(conn, head, payload)]
    return fault


def sibling(conn, ctype):
    return next(c for c in conn.peer.conns if c.ctype == ctype)


def own(mtype, at, first=b""):
    def fault(conn, head, payload):
        if is_type(head, mtype) and not forwarded(head):
            whole = flip(head + bytes(payload), at)
            return [(conn, whole[:len(head)], whole[len(head):])]
        return [(conn, head, payload)]
    return fault


def hold_back():
    """Swaps two consecutive forwarded PUTs of one connection."""
    kept = []

    def fault(conn, head, payload):
        if is_type(head, wire.PUT) and forwarded(head) and len(payload) in (2000, 2001):
            kept.append((conn, head, payload))
            if len(kept) < 2:
                return []
            return [kept[1], kept[0]]
        return [(conn, head, payload)]
    return fault


# name -> (fault, words of the problem that must be found)
FAULTS = {
    "payload byte": (on_put(lambda c, h, p: [(c, h, flip(p, 2999))]), "payload altered at byte 2999"),
    "hdr_data byte": (on_put(lambda c, h, p: [(c, flip(h, 24 + 56), p)]), "never sent"),
    "source pid": (on_put(lambda c, h, p: [(c, flip(h, 24 + 20), p)]), "never sent"),
    "unused union bytes": (own(wire.REPLY, 24 + 71), "byte 95"),
    "doubled": (on_put(lambda c, h, p: [(c, h, p), (c, h, p)]), "doubled"),
    "lost": (on_put(lambda c, h, p: []), "never arrived"),
    "cut short": (on_put(lambda c, h, p: [(c, h, bytes(p)[:-1])]), "reserved top byte|frame type|never sent|altered"),
    "checksum set": (on_put(lambda c, h, p: [(c, flip(h, 4), p)]), "byte 4"),
    "zero-copy asked": (on_put(lambda c, h, p: [(c, flip(h, 9), p)]), "byte 9"),
    "piggybacked ack": (on_put(lambda c, h, p: [(c, flip(h, 17), p)]), "byte 17"),
    "bulk on CONTROL": (on_put(lambda c, h, p: [(sibling(c, wire.CONTROL), h, p)]), "although BULK_OUT is up"),
    "bulk on BULK_IN": (on_put(lambda c, h, p: [(sibling(c, wire.BULK_IN), h, p)]), "on the sender's BULK_IN"),
    "overtaken": (hold_back(), "overtaken"),
    "ack forgotten": (on_noop(lambda c, h, p: [], skip=1), "unacknowledged for"),
    "ack doubled": (on_noop(lambda c, h, p: [(c, h, p), (c, h, p)]), "noop"),
    "ack of the next": (on_noop(lambda c, h, p: [(c, flip(h, 16), p)]), "noop"),
    "ack on CONTROL": (on_noop(lambda c, h, p: [(sibling(c, wire.CONTROL), h, p)]), "noop"),
    "keepalive on CONTROL": (on_noop(lambda c, h, p: [(c, h, p), (sibling(c, wire.CONTROL), wire.KEEPALIVE, b"")]),
                             "noop"),
    "features": (own(wire.REPLY, 96 + 4), "byte 100"),
    "pid in the ping info": (own(wire.REPLY, 96 + 8), "byte 104"),
    "loopback entry": (own(wire.REPLY, 96 + 22), "byte 118"),
    "status word": (own(wire.REPLY, 96 + 40), "byte 136"),
    "size word of an entry": (own(wire.REPLY, 96 + 44), "byte 140"),
    "PUSH to another portal": (own(wire.PUT, 24 + 64), "byte 88"),
    "PUSH match bits": (own(wire.PUT, 24 + 48), "byte 72"),
    "ACK mlength": (own(wire.ACK, 24 + 56), "byte 80"),
    "ACK handle": (own(wire.ACK, 24 + 40), "byte 64|would not send"),
}


async def routed(env, fault=None, patch=None):
    r = await env.router("r", *ROUTER, reference=True, kind="millrace")
    if fault:
        real = Conn.send

        def send(conn, head, payload=b"", cookie=0):
            if conn.ni.node is not r.node:
                real(conn, head, payload, cookie)
                return
            for c, h, p in fault(conn, head, payload):
                real(c, h, p, cookie)
        Conn.send = send
    if patch:
        patch(r)
    c = await env.persona("c", CLIENT, profile="k215")
    s = await env.persona("s", SERVER)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    c.judge.grace = s.judge.grace = 0.3
    return c, r, s


async def drive(env, c, s):
    """Traffic that every fault shows in, until a problem is found or all has passed."""
    try:
        await env.bring_up(c, s)
        await env.until(lambda: len(c.conns()) == 3 and len(s.conns()) == 3 or env.problems, "connections")
        await env.until(lambda: min(x.up_since for x in s.conns()) + 0.4 < env.now(),
                        "the grace for new connections is over")
        for size in (2000, 2001, 3000, 20000, 40000):
            await c.put(s.nid, pattern(size, size), ack=False)
        await c.put(s.nid, b"end", ack=False)
        await env.settle(4)
    except Exception as e:
        env.log(f"ended by {e}")


@no_router
async def test_no_fault(env):
    c, _, s = await routed(env)
    await drive(env, c, s)
    assert not env.problems and env.ledger.received >= 6, env.problems


@no_router
@cases(*FAULTS)
async def test_fault(env, name):
    fault, words = FAULTS[name]
    c, _, s = await routed(env, fault)
    if name == "ack forgotten":
        c.nis[0].profile = replace(c.nis[0].profile, timeout=1.0)
    await drive(env, c, s)
    if name == "ack forgotten":
        env.fail_fast = False
        await env.until(lambda: env.problems, "the missing ack noticed", 5)
    if name == "lost":
        env.problems += ["never arrived" for _ in env.ledger.outstanding()]
    found = [p for p in env.problems if any(w in p for w in words.split("|"))]
    assert found, f"not found; problems: {env.problems[:3]}"
    env.problems.clear()
    env.ledger.forget(lambda e: True)


SETUP_FAULTS = {
    "HELLO dst_incarnation": (dict(dst_inc=1), "hello"),
    "HELLO pid": (dict(src_pid=12344), "hello"),
    "HELLO version": (dict(version=2), "HELLO version 2"),
    "HELLO addresses": (dict(ips=(1,)), "hello"),
    "HELLO type": (dict(ctype=wire.BULK_OUT), "hello"),
    "HELLO source": (dict(src=N.parse("10.0.0.9@tcp")), "hello"),
    "HELLO incarnation not a clock": (dict(src_inc=5), "wall clock"),
}


@no_router
@cases(*SETUP_FAULTS)
async def test_setup_fault(env, name):
    """HELLO replies with one wrong field."""
    changes, words = SETUP_FAULTS[name]

    def patch(r):
        for ni in r.node.nis:
            ni.hello_bytes = lambda hello: replace(hello, **changes).pack()
    c, _, s = await routed(env, patch=patch)
    env.fail_fast = False
    await env.until(lambda: env.problems, "noticed", 8)
    assert words in env.problems[0], env.problems[:2]
    env.problems.clear()
    env.ledger.forget(lambda e: True)
