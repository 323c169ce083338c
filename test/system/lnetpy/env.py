# SPDX-License-Identifier: BSD-3-Clause
"""The surroundings of one test: namespaces, personas, routers, the wait for named events."""

import asyncio
import contextlib
import functools
import glob
import json
import os
import sys
import time

from . import nid as N
from . import router as R
from .cards import Cards
from .crowd import Crowd
from .judge import Ledger, Mutator
from .netns import Fabric
from .node import Node
from .socklnd import K215, K217

PROFILES = {"k217": K217, "k215": K215}
STRETCH_MOST = 10.0
STRETCH_LEAST = 50e6    # ns that a thread has run, for its waits to say something
EMULATED = 4.0      # how many times as long things may take on the emulated processors of a guest
PATIENCE = 30.0     # s, for what takes a part of a second on an idle machine


class Failed(Exception):
    """The test's verdict, in one line."""


class Skip(Exception):
    """The test cannot be run here; the reason."""


def stretch_of(pid):
    """Env.stretch() of one process, which is there."""
    worst = 0.0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as f:
            ran, waited = map(int, f.read().split()[:2])
            if ran > STRETCH_LEAST:
                worst = max(worst, waited / (ran + waited))
    return min(1 / (1 - worst), STRETCH_MOST)


class Env:
    def __init__(self, build=None, reference=False, verbose=False, long=False, transport="kernel", tamper=None, cards=None):
        """cards: the model of network cards that ports are, in a guest."""
        self.build, self.reference, self.verbose, self.long = build, reference, verbose, long
        self.transport, self.tamper = transport, json.loads(tamper) if tamper else None
        self.ledger, self.fabric = Ledger(), Fabric()
        self.cards = Cards(cards) if cards else None
        self.nodes, self.routers, self.problems, self.waiters = [], [], [], []
        self.expected_problems = []
        self.crowds, self.results = [], []
        self.t0 = time.monotonic()
        self.trace = []
        self.mutator = None
        self.fail_fast = True       # a wait ends with the first problem
        self.tolerate = []          # substrings of problems a test provokes on purpose

    # ------------------------------------------------------------ events

    def log(self, text):
        line = f"{time.monotonic() - self.t0:8.3f} {text}"
        self.trace.append(line)
        if self.verbose:
            print(line, file=sys.stderr, flush=True)

    def result(self, text):
        """Something measured, for the line of a test that passed."""
        self.log(text)
        self.results.append(text)

    @staticmethod
    def now():
        return time.monotonic()

    @staticmethod
    def loop():
        return asyncio.get_running_loop()

    def kick(self):
        waiters, self.waiters = self.waiters, []
        for w in waiters:
            if not w.done():
                w.set_result(None)

    def problem(self, text):
        if any(t in text for t in self.tolerate):
            self.expected_problems.append(text)
            self.log(f"(expected) {text}")
        else:
            self.problems.append(text)
            self.log(f"PROBLEM {text}")
        self.kick()

    def end(self, timeout):
        """When a wait for something that takes no more than `timeout` seconds on an idle machine has been in vain."""
        return time.monotonic() + timeout * (EMULATED if self.cards else 1)

    async def until(self, pred, what, timeout=PATIENCE):
        """Wait until pred() is true; fails with the event's name after the deadline."""
        end = self.end(timeout)
        while not (value := pred()):
            left = end - time.monotonic()
            if self.fail_fast and self.problems:
                raise Failed(f"{what}: {self.problems[0]}")
            if left <= 0:
                raise Failed(f"{what}: not within {timeout:.0f} s" + self._first_problem())
            w = asyncio.get_running_loop().create_future()
            self.waiters.append(w)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(w, min(left, 0.5))
        return value

    async def until_async(self, fn, what, timeout=PATIENCE, pause=0.05):
        """The same for something that has to be asked for (RPC)."""
        end = self.end(timeout)
        while True:
            value = await fn()
            if value:
                return value
            if time.monotonic() > end:
                raise Failed(f"{what}: not within {timeout:.0f} s" + self._first_problem())
            await asyncio.sleep(pause)

    def _first_problem(self):
        return f" [first problem: {self.problems[0]}]" if self.problems else ""

    # ------------------------------------------------------------ parties

    async def persona(self, name, *nids, profile="k217", seg=None, start=True, **kw):
        """A kernel node with these NIDs; one interface for each, on the segment of its net's name."""
        nids = [N.parse(n) if isinstance(n, str) else n for n in nids]
        if name not in self.fabric.hosts:
            for i, n in enumerate(nids):
                self.fabric.attach(name, seg or N.net_str(n.net), f"eth{i}", n.ip)
            if len(nids) > len({n.net for n in nids}) and not any(n.large for n in nids):
                self.fabric.rails(name, *[n.ip for n in nids])
        node = Node(self, name, self.fabric.host(name), nids, PROFILES.get(profile, profile), **kw)
        if self.mutator:
            node.judge.mutator = self.mutator
        for spec in {id(r.spec): r.spec for r in self.routers}.values():
            node.judge.know(spec)
        self.nodes.append(node)
        if start:
            await node.start()
        return node

    async def router(self, name, *nids, segs=None, **kw):
        """The router under test (or the reference router), one NI per NID; ready when this returns."""
        return await self.prepare(name, *nids, segs=segs, **kw).start()

    def prepare(self, name, *nids, segs=None, bits=None, mtu=None, **kw):
        """The same, not started. On the transport `port` the host has none of the addresses: they are the ports'."""
        nids = [N.parse(n) for n in nids]
        cls = R.Reference if self.reference or kw.pop("reference", False) else R.Millraced
        on_port = cls is R.Millraced and kw.pop("transport", self.transport) == "port"
        ports = []
        for i, n in enumerate(nids):
            address = f"{n.ip}/{bits or (64 if ':' in n.ip else 24)}"
            segment = (segs or {}).get(str(n)) or N.net_str(n.net)
            if on_port:
                ports.append({"name": f"eth{i}", "addresses": [address], "duplicate_check": False})
            if on_port and self.cards:
                ports[-1]["device"] = self.cards.attach(self.fabric, name, segment, f"eth{i}")
                continue
            self.fabric.attach(name, segment, f"eth{i}", *([] if on_port else [address]), mtu=mtu)
        if on_port:
            kw.setdefault("ports", ports)
            if self.cards:
                kw = {"hugepages": True, "memory": 320, "tamper": self.tamper or self.cards.rules, **kw}
        r = cls(self, name, self.fabric.host(name), nids, **kw)
        self.routers.append(r)
        for node in self.nodes:
            node.judge.know(r.spec)
        return r

    async def crowd(self, name, first, count, host=None):
        """A process for many nodes, the NIDs from `first` on; crowd.nodes() makes them."""
        crowd = Crowd(self, name, first, count, host)
        self.crowds.append(crowd)
        return await crowd.start()

    @functools.cached_property
    def slower(self):
        """How many times as long what the program under test does takes for its sanitizers, or in a guest, about."""
        return (self.sanitized or 1) * (EMULATED if self.cards else 1)

    @functools.cached_property
    def sanitized(self):
        """0, or how many times as long sanitizers make it take."""
        with open(R.find_program(self.build, "millraced"), "rb") as f:
            text = f.read()
        return 10 if b"__tsan_init" in text else 3 if b"__asan_init" in text else 0

    def need_millrace(self):
        if self.reference:
            raise Skip("needs the program under test, not the reference router")

    def link(self, name, ifname, up):
        """The cable of a host's interface, or of a router's card."""
        if self.cards:
            self.cards.link(name, ifname, up)
        else:
            self.fabric.link(self.fabric.ports[name, ifname], up)

    def mutate(self, **kw):
        self.mutator = Mutator(**kw)
        for n in self.nodes:
            n.judge.mutator = self.mutator

    async def bring_up(self, *nodes, timeout=15):
        """Until every route of these nodes is alive."""
        for n in nodes:
            await self.until(lambda n=n: n.gateways and all(g.discovered and g.polls for g in n.gateways.values())
                             and all(n.route_alive(r) for r in n.routes), f"{n.name}: routes alive", timeout)

    # ------------------------------------------------------------ the end

    def stretch(self):
        """How many times as long what a router does takes on this machine as it is: of the time in which its threads had
        something to do they waited for a CPU for a share. 1 on an idle machine; at most STRETCH_MOST."""
        return max([stretch_of(r.proc.pid) for r in self.routers if getattr(r, "proc", None)], default=1.0)

    async def connected(self, timeout=PATIENCE):
        """No node is making a connection: what happens to the router now meets none half made."""
        def peers():
            return [p for n in self.nodes for ni in n.nis for p in ni.peers.values()]
        await self.until(lambda: not any(getattr(p, "connecting", False) or getattr(p, "scheduled", 0) for p in peers()),
                         "every set of connections made", timeout)

    async def settle(self, timeout=PATIENCE):
        """All messages delivered, all zero-copy requests acked."""
        await self.until(lambda: not self.ledger.outstanding(), "every message delivered", timeout)
        await self.until(lambda: not any(c.zc_out for n in self.nodes for c in n.conns()),
                         "every ZC request acked", timeout)

    async def finish(self):
        for n in self.nodes:
            n.stop()
        for c in self.crowds:
            if c.alive():
                await c.state()     # with the faults not told yet
                c.kill()
        for r in self.routers:
            await r.stop()
        lost = self.ledger.outstanding()
        if lost and not self.problems:
            self.problem(f"{len(lost)} messages never arrived, first: {lost[0].header}")
        if self.problems:
            raise Failed(f"{len(self.problems)} problem(s), first: {self.problems[0]}")

    def close(self):
        for c in self.crowds:
            c.kill()
        for r in self.routers:
            r.kill()
        self.fabric.close()


def find_golden():
    """The folder of the recordings."""
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../golden"))
