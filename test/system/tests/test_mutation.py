# SPDX-License-Identifier: BSD-3-Clause
"""The judge judged: really received units with each unmasked byte flipped in turn must all fail.

Every flip is judged at the moment the true unit was received, in the true state of the persona.
"""

import socket

from lnetpy import nid as N
from lnetpy.node import pattern
from lnetpy.scene import cases, deadline, join, line

SETUP = {"connreq", "hello", "hello_reply"}
FRAMES = {"zc-ack", "router REPLY", "router PUT", "router ACK",
          "forwarded PUT", "forwarded GET", "forwarded ACK", "forwarded REPLY",
          "forwarded PUT bulk", "forwarded REPLY bulk"}


def verdict(env, kinds):
    m = env.mutator
    missing = kinds - set(m.done)
    assert not missing, f"kinds never received: {sorted(missing)}"
    assert not m.survivors, f"{len(m.survivors)} of {m.flips} flips passed: {m.survivors[:5]}"
    assert m.flips > 1000, m.flips
    for name, start, end, reason in sorted(m.masks):
        env.log(f"mask in {name}: bytes {start}..{end - 1}: {reason}")
    if not env.reference:
        assert m.forwarded_masks == 0, "a forwarded message has no masked byte at all"
    env.log(f"{m.flips} flips over {dict(m.done)}, none passed")


async def exercise(env, c, s):
    for size in (0, 40, 1500, 4096, 20000):
        assert await c.put(s.nid, pattern(1, size)) and await s.put(c.nid, pattern(2, size))
        assert await c.get(s.nid, size) and await s.get(c.nid, size)
    assert await c.ping(s.nid)
    assert await c.poll(next(iter(c.gateways)))
    assert await s.poll(next(iter(s.gateways)))
    await env.settle()


@cases("k217", "k215")
async def test_every_byte(env, kind):
    env.mutate()
    r = await env.router("r", "10.0.0.1@tcp", "10.0.1.1@tcp1")
    c = await env.persona("c", "10.0.0.2@tcp", profile=kind)
    s = await env.persona("s", "10.0.1.2@tcp1")
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    assert await c.ping(s.nid)      # the router dials s
    await env.until(lambda: len(s.conns()) == 3, "three connections from the router")
    await exercise(env, c, s)
    verdict(env, SETUP | FRAMES)


async def test_every_byte_ipv6(env):
    env.need_millrace()
    env.mutate()
    r = await env.router("r", "fd00::1@tcp", "fd00:1::1@tcp1")
    c = await env.persona("c", "fd00::2@tcp")
    s = await env.persona("s", "fd00:1::2@tcp1")
    assert all(ni.family == socket.AF_INET6 for n in (c, s) for ni in n.nis)
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    assert await c.ping(s.nid)
    await env.until(lambda: len(s.conns()) == 3, "three connections from the router")
    await exercise(env, c, s)
    verdict(env, SETUP | {k + " nid16" if k != "zc-ack" else k for k in FRAMES})


@deadline(60)
async def test_every_byte_of_a_keepalive(env):
    env.need_millrace()
    env.mutate()
    c, r, s = await line(env, keepalive=0, router={"extra": "  keepalive: 2\n"})
    await env.until(lambda: c.keepalives_seen and s.keepalives_seen, "a keepalive for each", 30)
    assert await c.ping(s.nid)
    verdict(env, {"keepalive", "hello_reply"})
