# SPDX-License-Identifier: BSD-3-Clause
"""Scenes that many tests share: client - router - server, and traffic over them."""

import random

from . import nid as N
from .node import pattern

CLIENT, SERVER = "10.0.0.2@tcp", "10.0.1.2@tcp1"
ROUTER = ("10.0.0.1@tcp", "10.0.1.1@tcp1")


def no_router(f):
    """The test needs no router at all."""
    f.no_router = True
    return f


def cases(*args):
    """Run the test once for each argument."""
    def mark(f):
        f.cases = args
        return f
    return mark


def only(*transports):
    """The test is about these transports (`kernel`, `port`), whatever its file is."""
    def mark(f):
        f.transports = transports
        return f
    return mark


def deadline(seconds, long=None):
    """Time for the test, and with --long."""
    def mark(f):
        f.deadline, f.long_deadline = seconds, long or seconds
        return f
    return mark


def alone(f):
    """No other test runs meanwhile: it measures."""
    f.alone, f.at_once = True, 1
    return f


def beside_one(f):
    """At most one other test runs meanwhile: it loads the machine, and has time bars that stretch with it (crowd_scene.allowed())."""
    f.alone, f.at_once = True, 2
    return f


def crowded(*transports):
    """So much is under way there that ThreadSanitizer makes it too slow for the times that are part of it."""
    def mark(f):
        f.crowded = transports
        return f
    return mark


def join(node, router, far_net):
    """`route add`: node reaches far_net through the router's NI on the node's own net."""
    for ni in node.nis:
        for n in router.nids:
            if n.net == ni.nid.net:
                node.add_route(N.parse_net(far_net), n)


async def line(env, client="k217", server="k217", full=True, router=None, cpp=1, **kw):
    """One client on tcp, one server on tcp1, the router between; routes alive when this returns.

    full: wait for the complete sets of connections too. Without it the first messages travel, as
    with real nodes, while the bulk connections are still being made.
    """
    r = await env.router("r", *ROUTER, **(router or {}))
    c = await env.persona("c", CLIENT, profile=client, cpp=cpp, **kw)
    s = await env.persona("s", SERVER, profile=server, cpp=cpp, **kw)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    if full:
        for n in (c, s):
            await env.until(lambda n=n: len(n.conns()) == 1 + 2 * cpp, f"{n.name}: all connections")
    return c, r, s


def sizes(rng, count, big=0.004):
    """Mostly small, some around every limit, a few up to 1 MiB."""
    edges = [0, 1, 903, 904, 927, 928, 929, 1023, 1024, 4095, 4096, 4097, 16383, 16384, 65536]
    for _ in range(count):
        x = rng.random()
        if x < 0.70:
            yield rng.randrange(0, 900)
        elif x < 0.80:
            yield rng.choice(edges)
        elif x < 0.98:
            yield rng.randrange(1, 9000)
        elif x < 1 - big:
            yield rng.randrange(9000, 70000)
        else:
            yield rng.choice([1 << 20, (1 << 20) - 1, rng.randrange(70000, 1 << 20)])


async def traffic(env, a, b, count, workers=8, seed=1, big=0.004, timeout=60):
    """`count` requests from a to b: PUT with ACK, PUT without, GET; several at once."""
    rng = random.Random(seed)
    todo = list(sizes(rng, count, big))
    bad = []

    async def work():
        while todo and not env.problems:
            size = todo.pop()
            kind = rng.randrange(5)
            if kind < 2:
                ok = await a.get(b.nid, size, timeout=timeout)
            else:
                ok = await a.put(b.nid, pattern(size + kind, size), ack=kind != 4, timeout=timeout)
            if not ok:
                bad.append(("GET" if kind < 2 else "PUT", size))
                return

    tasks = [a.task(work()) for _ in range(workers)]
    await env.until(lambda: all(t.done() for t in tasks) or env.problems, f"{count} requests of {a.name}",
                    timeout * 2)
    if bad:
        env.problem(f"{a.name}: unanswered: {bad[:5]}")


async def routes_up(env, *routers, timeout=20):
    """The routes of routers in line: one is up before the other, and its first ping fails. A persona in the router's place has
    no control socket, and no ping of its own that could have failed."""
    async def up(r):
        return not hasattr(r, "rpc") or all(x["state"] == "up" for x in (await r.rpc("route_get"))["route"])
    for r in routers:
        await env.until_async(lambda r=r: up(r), f"the routes of {r.name} are up", timeout)
