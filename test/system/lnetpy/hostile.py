# SPDX-License-Identifier: BSD-3-Clause
"""Scenes with an attacker: a process that misbehaves, and nodes that must not notice."""

import asyncio
import os
import statistics
import subprocess
import sys
import time

from . import nid as N
from .env import Failed
from .node import pattern
from .scene import join

HERE = os.path.dirname(os.path.abspath(__file__))
PING_MEDIAN = 0.010     # seconds
JOIN = 2.0              # in which a new node must be connected
PERIOD = 0.2            # s: between the messages of a bystander, slow enough for a machine that the attacker keeps busy
CONTROL = 5.0           # s: how long the same attack goes to another router first
RATE = 0.9              # of those that are due, what must have been answered
PING_LIMIT, TRANSACTION_LIMIT, START_LIMIT, ATTACK_LIMIT = 5, 10, 15, 30    # seconds


class Attack:
    """A host on the client's segment with several addresses, and attacker.py on it. With raw_attacker.py its kernel has none of
    the addresses: the first is named, and how many there are."""

    def __init__(self, env, what, router, sources, host="attacker", program="attacker.py", net="tcp", **settings):
        argv = [sys.executable, os.path.join(HERE, program), what, "--router", router]
        if program == "attacker.py":
            if (host, "eth0") not in env.fabric.ports:
                env.fabric.attach(host, net, "eth0", *sources)
            argv += ["--net", net]
            argv += ["--from", *(a.split("/")[0] for a in sources)]
        else:
            env.fabric.attach(host, "tcp", "eth0")
            env.fabric.host(host).sysctl(net__ipv6__conf__eth0__disable_ipv6=1)
            argv += ["--first", sources[0], "--count", str(len(sources))]
        for name, value in settings.items():
            argv += [f"--{name}", str(value)]
        self.env = env
        self.proc = env.fabric.host(host).popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.proc.stdout.fileno(), False)
        self.said = ""

    def last(self):
        """What it printed last."""
        lines = (self.proc.stdout.read() or b"").splitlines()
        self.said = lines[-1].decode() if lines else self.said
        assert self.proc.poll() is None, f"the attacker has ended: {self.proc.stderr.read().decode()[-300:]}"
        return self.said

    def stop(self):
        self.last()
        self.proc.kill()
        self.proc.wait()


class Bystander:
    """Pings the router and moves data through it all the while."""

    def __init__(self, env, c, s, r):
        self.env, self.c, self.s, self.r = env, c, s, r
        self.took, self.lost, self.moved, self.due, self.going = [], 0, 0, 0, True
        self.limit = PING_LIMIT * env.slower
        self.tasks = [c.task(self._ping()), c.task(self._move())]

    async def _ping(self):
        while self.going:
            began = time.monotonic()
            if await self.c.ping(self.r.nids[0], timeout=self.limit):
                self.took.append(time.monotonic() - began)
            else:
                self.lost += 1
            await asyncio.sleep(0.02)

    async def _move(self):
        """Messages at a rate of their own: those that are late cannot be made up for."""
        began = time.monotonic()
        while self.going:
            for size in (100, 5000, 70000):
                data = pattern(size, size)
                got = await asyncio.gather(self.c.put(self.s.nid, data), self.s.put(self.c.nid, data), self.s.get(self.c.nid, size))
                self.lost += not all(got)
            self.moved += 1
            now = time.monotonic()
            self.due = int((now - began) / PERIOD) + 1
            await asyncio.sleep(began + self.due * PERIOD - now)

    def rate(self, since=(0, 0), once=0):
        """Part of the rounds due since then that were in time; `once` seconds of that do not count."""
        moved, due = since
        return min(1.0, (self.moved - moved) / max(1, self.due - due - once / PERIOD))

    async def over(self):
        """Did it notice anything?"""
        self.going = False
        await asyncio.gather(*self.tasks)
        median, worst = statistics.median(self.took), max(self.took)
        self.env.result(f"ping of a bystander: median {1e3 * median:.1f} ms, worst {1e3 * worst:.0f} ms of {len(self.took)}; "
                        f"{3 * self.moved} messages each way, {100 * self.moved / max(1, self.due):.0f}% of those due")
        assert not self.lost, f"{self.lost} messages of a bystander lost"
        longer = self.env.stretch() * self.env.slower
        assert self.moved >= RATE / longer * self.due, f"{self.moved} of {self.due} rounds of messages in time"
        assert median < PING_MEDIAN * longer, f"median of the pings {1e3 * median:.1f} ms"


V4, V6 = ("10.0.0.", "10.0.1."), ("fd00::", "fd00:1::")


async def patient(env, name, nid):
    """A node that waits for a sanitized router. An answer after that would look like one that no router sends."""
    return await env.persona(name, nid, transaction_timeout=TRANSACTION_LIMIT * env.slower)


async def scene(env, nets, **router):
    """A client, a router and a server, all with addresses that begin so."""
    near, far = nets
    r = await env.router("r", f"{near}1@tcp", f"{far}1@tcp1", **router)
    c, s = await patient(env, "c", f"{near}2@tcp"), await patient(env, "s", f"{far}2@tcp1")
    join(c, r, "tcp1")
    join(s, r, "tcp")
    await env.bring_up(c, s)
    return c, r, s


def addresses(nets, who):
    """Those that are listed, or so many."""
    return [f"{nets[0]}{n:{'x' if ':' in nets[0] else 'd'}}" for n in (who if isinstance(who, tuple) else range(100, 100 + who))]


async def new_node(env, r, name, nets, last, again=True):
    """Seconds until a new node is connected. A sanitized router can be too slow for one call under a flood: the node, which would
    wait for its next router check then, is another one that calls."""
    began = env.now()
    n = await patient(env, name, f"{nets[0]}{last}@tcp")
    join(n, r, "tcp1")
    try:
        await env.bring_up(n, timeout=START_LIMIT * env.slower)
    except Failed:
        if not env.sanitized or not again:
            raise
        return await new_node(env, r, f"{name}b", nets, last + 10, False)
    return env.now() - began


async def control(env, b, what, nets, who, router=None, target=None, **settings):
    """The rate of a bystander while the same attack goes to another router and another server. It takes as much of the CPUs, and of
    the kernel's paths between the namespaces."""
    near, far = nets
    r = await env.router("r2", f"{near}9@tcp", f"{far}9@tcp1", **(router or {}))
    if target:
        s = await patient(env, "s2", f"{far}9{N.parse(target).ip[-1]}@tcp1")
        join(s, r, "tcp")
        await env.bring_up(s)
        settings["target"] = str(s.nid)
    attack = Attack(env, what, r.nids[0].ip, addresses(nets, who), **settings)
    since = b.moved, b.due
    await asyncio.sleep(CONTROL)
    rate = b.rate(since)
    attack.stop()
    if target:
        s.stop()
    await r.stop()
    return rate


async def beside(env, what, nets, who, until, seconds=5, router=None, far=None, compare=False, once=0, **settings):
    """The attack from these addresses or so many, with a bystander, and nodes that join when `until(router)` says that it works.
    far: what a host with as many addresses on the server's net does, its settings, and if there are not as many, how many.
    compare: the rate of the bystander is RATE of that beside a control at least, but for `once` seconds of it."""
    c, r, s = await scene(env, nets, **(router or {}))
    b = Bystander(env, c, s, r)
    if far:
        there = Attack(env, far[0], r.nids[1].ip, addresses(nets[1:], *far[2:] or (who,)), host="far", net="tcp1", **far[1])
        await env.until(there.last, "the host on the server's net has begun", ATTACK_LIMIT * env.slower)
    alone = await control(env, b, what, nets, who, router, **settings) if compare else 0
    since = b.moved, b.due
    attack = Attack(env, what, r.nids[0].ip, addresses(nets, who), **settings)
    await env.until_async(lambda: until(r, attack), f"the attack is under way ({attack.last()})", ATTACK_LIMIT * env.slower * env.stretch())
    joined = []
    for i in range(3):
        joined.append(await new_node(env, r, f"n{i}", nets, 20 + i))
        await asyncio.sleep(seconds / 3)
    rate = b.rate(since, once)
    attack.stop()
    if compare:
        env.result(f"{100 * rate:.0f}% of a bystander's rounds in time, {100 * alone:.0f}% when another router is attacked")
    env.result(f"{attack.said}; new nodes joined in {', '.join(f'{j:.2f}' for j in joined)} s")
    await b.over()
    assert rate >= RATE * alone, f"{100 * rate:.0f}% of the rounds in time, {100 * alone:.0f}% when another router is attacked"
    assert max(joined) < JOIN * env.stretch() * env.slower, f"a new node needed {max(joined):.1f} s"
    return r
