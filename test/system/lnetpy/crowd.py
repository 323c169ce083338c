# SPDX-License-Identifier: BSD-3-Clause
"""Crowds as tests use them: a process that plays many kernel nodes (crowd_main.py), and the load it makes.

A crowd is for load and accounts, not for byte checks: it costs 30 to 60 us of CPU per message, so on two cores a few
thousand messages a second, and what a test compares must leave room for that. Time bars hold all the same: a request is
timed where it was made, the crowd's own delays included.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time

from . import nid as N
from . import wire

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "crowd_main.py")
MASK = 16                   # bits of the nets in load tests: room for hundreds of addresses
START = 30.0


class CrowdError(Exception):
    """The process broke or does not answer."""


class Crowd:
    """One process with the nodes from NID `first` on, on the segment of its net. Its router is given with the nodes."""

    flow_ids = itertools.count(1)

    def __init__(self, env, name, first, count, host=None):
        """`host`: thousands of nodes behind this one address; the whole net around the first of them is its own."""
        self.env, self.name = env, name
        first = N.parse(first)
        start = ipaddress.ip_address(first.ip)
        self.net = N.net_str(first.net)
        self.nids = [f"{start + i}@{self.net}" for i in range(count)]
        if (name, "eth0") not in env.fabric.ports:      # else a later life of the same hosts
            env.fabric.attach(name, self.net, "eth0", *([host] if host else (f"{n.split('@')[0]}/{MASK}" for n in self.nids)))
            if host:
                around = ipaddress.ip_interface(f"{start}/{MASK}").network
                env.fabric.host(name).ip(f"route add local {around} dev lo")
        self.port = env.fabric.ports[name, "eth0"]
        self.ns, self.proc, self.ids, self.pending, self.reader = env.fabric.host(name), None, itertools.count(1), {}, None
        self.tolerate = []          # substrings of faults that a test provokes
        self.expected = 0

    # ------------------------------------------------------------ the process

    async def start(self):
        self.proc = self.ns.popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self.proc.stdout.fileno(), False)
        stream = asyncio.StreamReader(limit=1 << 26)
        await self.env.loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), self.proc.stdout)
        self.reader = self.env.loop().create_task(self._read(stream))
        return self

    async def _read(self, stream):
        while line := await stream.readline():
            answer = json.loads(line)
            for text in answer["faults"]:
                if any(t in text for t in self.tolerate):
                    self.expected += 1
                else:
                    self.env.problem(f"{self.name}: {text}")
            fut = self.pending.pop(answer["id"], None)
            if fut and not fut.done():
                fut.set_result(answer["result"])
        for fut in self.pending.values():
            if not fut.done():
                fut.set_exception(CrowdError(f"{self.name} ended"))
        self.pending.clear()

    async def call(self, do, patience=30.0, **args):
        number, fut = next(self.ids), self.env.loop().create_future()
        self.pending[number] = fut
        try:
            self.proc.stdin.write(json.dumps({"id": number, "do": do, **args}).encode() + b"\n")
            self.proc.stdin.flush()
            return await asyncio.wait_for(fut, patience)
        except (asyncio.TimeoutError, BrokenPipeError) as e:
            raise CrowdError(f"{self.name} does not answer to {do}: {e!r}") from None
        finally:
            self.pending.pop(number, None)

    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def kill(self):
        """kill -9: the host's TCP closes its sockets, with RST where data is unread."""
        if self.proc:
            self.proc.kill()
            self.proc.wait()
            with contextlib.suppress(BrokenPipeError):
                self.proc.stdin.close()

    def freeze(self):
        self.proc.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.proc.send_signal(signal.SIGCONT)

    # ------------------------------------------------------------ nodes

    async def nodes(self, gateway, nids=None, wait=True, **spec):
        """Its nodes, with `gateway` for their router, or a list of several; connected and answered when this returns."""
        await self.call("nodes", nids=nids or self.nids, gateway=gateway if isinstance(gateway, list) else str(gateway), **spec)
        if wait:
            await self.until(lambda s: s["up"] == s["nodes"] and (not spec.get("pings", True) or s["pinged"] == s["nodes"]),
                             "all nodes connected", START)
        return self

    async def visit(self, gateway, nids=None, timeout=60.0, ahead=64):
        """Each of these calls the router, says HELLO on one connection and goes away for good."""
        before = (await self.state()).get("visited", 0)
        nids = nids or self.nids
        await self.call("nodes", nids=nids, gateway=str(gateway), types=[wire.CONTROL], pings=False, visit=True, ahead=ahead)
        await self.until(lambda s: s.get("visited", 0) - before == len(nids), "all have visited the router", timeout)

    async def state(self):
        return await self.call("state")

    async def until(self, pred, what, timeout):
        """Wait until the crowd's state satisfies pred."""
        end = self.env.end(timeout)
        while not pred(state := await self.state()):
            if time.monotonic() > end:
                del state["pinged_at"]
                raise AssertionError(f"{self.name}: {what}: not within {timeout:.0f} s: {state}")
            await asyncio.sleep(0.05)
        return state

    async def idle(self, timeout=30.0, answered=True):
        """All messages sent, all ZC requests acked; `answered`: and each request answered or given up."""
        busy = ("unsent", "zc", "held", "waiting") + ("under_way",) * answered
        return await self.until(lambda s: not any(s[k] for k in busy), "nothing under way", timeout)

    async def pause(self, on=True, nids=None):
        await self.call("pause", nids=nids, on=on)

    # ------------------------------------------------------------ load

    async def load(self, pairs, kind="put", window=1, size="mix", count=0, timeout=50.0, every=0.0):
        """Flows between these (source, destination) NIDs, running when this returns."""
        flows = [{"id": next(Crowd.flow_ids), "src": src, "dst": dst, "kind": kind, "window": window, "size": size,
                  "count": count, "timeout": timeout, "every": every} for src, dst in pairs]
        await self.call("flows", flows=flows)
        return Load(self, [f["id"] for f in flows])


class Load:
    """Flows of one crowd with a common purpose."""

    def __init__(self, crowd, ids):
        self.crowd, self.ids = crowd, ids

    async def flows(self):
        return (await self.crowd.call("report", ids=self.ids))["flows"]

    async def sum(self):
        """Counters summed up over the flows; of `stall` and `slowest` the greatest."""
        rows = await self.flows()
        out = {k: sum(r[k] for r in rows) for k in rows[0] if k not in ("id", "stall", "slowest")}
        return {**out, "stall": max(r["stall"] for r in rows), "slowest": max(r["slowest"] for r in rows),
                "least": min(r["done"] for r in rows)}

    async def stop(self):
        await self.crowd.call("stop_flows", ids=self.ids)

    async def rates(self, seconds, window=0.5):
        """Requests a second in each window of time."""
        out, before, at = [], (await self.sum())["done"], time.monotonic()
        end = at + seconds
        while time.monotonic() < end:
            await asyncio.sleep(window)
            done, now = (await self.sum())["done"], time.monotonic()
            out.append((done - before) / (now - at))
            before, at = done, now
        return out

    async def rate(self, seconds, window=0.5):
        return statistics.median(await self.rates(seconds, window))


def pairs(sources, destinations):
    """Each source with one destination, in turn."""
    return list(zip(sources, itertools.cycle(destinations)))


# ---------------------------------------------------------------- at rest

def _pools(answer):
    for row in answer["reactors"]:
        for name in ("tiny", "small", "large"):
            yield f"reactor {row['reactor']}: {name} buffers", row[name]


def _wrong(what, row, *rules):
    """Texts for each (field, expected) of `row` that is not so; a callable takes the row."""
    out = []
    for name, want in rules:
        want = want(row) if callable(want) else want
        if name not in row:
            out.append(f"{what}: no {name}")
        elif row[name] != want:
            out.append(f"{what}: {name} is {row[name]}, not {want}")
    return out


class Rest:
    """A router's start values, and whether it is back at them."""

    def __init__(self, router, buffers, credits):
        self.router, self.buffers, self.credits = router, buffers, credits

    @classmethod
    async def of(cls, router):
        """Taken before there is any traffic."""
        return cls(router, (await router.rpc("buffers_get"))["buffers"], dict(await cls._ni_credits(router)))

    @staticmethod
    async def _ni_credits(router):
        return [(ni["nid"], ni.get("millrace", {}).get("max_tx_credits"))
                for net in (await router.rpc("net_get"))["net"] for ni in net["local NI(s)"] if ni["nid"] != "0@lo"]

    async def off(self, removed=()):
        """What is not at its start value, in words."""
        r, out = self.router, []
        buffers = await r.rpc("buffers_get")
        if buffers["buffers"] != self.buffers:
            out.append(f"buffers {buffers['buffers']}, not {self.buffers}")
        for what, pool in _pools(buffers):
            out += _wrong(what, pool, ("credits", pool["nbuffers"]), ("waiting", 0))
        nis = {}
        for net in (await r.rpc("net_get"))["net"]:
            for ni in net["local NI(s)"]:
                if ni["nid"] != "0@lo":
                    nis[ni["nid"]] = own = ni.get("millrace", {})
                    out += _wrong(f"NI {ni['nid']}", own, ("available_tx_credits", own.get("max_tx_credits")),
                                  ("max_tx_credits", self.credits.get(ni["nid"])), ("tx_waiting", 0))
        out += [f"NI {n} is gone" for n in self.credits if n not in nis and n not in removed]
        for nid, ni in (await r.peers()).items():
            own = ni.get("millrace", {})
            out += _wrong(f"peer {nid}", ni, ("available_tx_credits", ni.get("max_ni_tx_credits")),
                          ("available_rtr_credits", own.get("max_rtr_credits")), ("tx_q_num_of_buf", 0))
            out += _wrong(f"peer {nid}", own, ("tx_queued", 0), ("tx_waiting", 0), ("rtr_waiting", 0))
        out += _wrong("statistics", await r.stats(), ("msgs_alloc", 0))
        return out

    async def wait(self, timeout=20.0, removed=()):
        """Until it is at rest; fails with all that is off."""
        end = self.router.env.end(timeout)
        while off := await self.off(removed):
            if time.monotonic() > end:
                raise AssertionError(f"{self.router.name} not at rest after {timeout:.0f} s: {len(off)} things: "
                                     + "; ".join(off[:6]))
            await asyncio.sleep(0.1)


# ---------------------------------------------------------------- books

OWN = ("put_no_match", "get_no_match", "get_offset_past_end", "reply_no_match", "reply_too_long", "ack_no_match",
       "ping_bad_info", "portal_out_of_range")      # of messages for the router itself


# Of messages that were sent, in part or whole, when a connection ended. TCP cannot tell which arrived: their ACKs may be
# what was lost.
UNKNOWN = ("next_hop_connection_lost", "next_hop_stalled", "next_hop_timeout")


class Books:
    """What crowds sent, what they received, and what routers say they dropped."""

    def __init__(self, routers, crowds):
        self.routers, self.crowds, self.before = routers, crowds, {}

    @classmethod
    async def open(cls, routers, crowds):
        books = cls(routers, crowds)
        books.before = {r.name: await books.drops_of(r) for r in routers}
        return books

    @staticmethod
    async def drops_of(router):
        rows = (await router.rpc("drops_get"))["drops"]
        return {d["name"]: d["count"] for d in rows if d["kind"] == "message" and d["name"] not in OWN}

    async def drops(self):
        """name -> how many messages since the books were opened, over all routers; only what is not 0."""
        out = {}
        for r in self.routers:
            for name, n in (await self.drops_of(r)).items():
                more = n - self.before[r.name].get(name, 0)
                if more:
                    out[name] = out.get(name, 0) + more
        return out

    async def _look(self):
        states = [await c.state() for c in self.crowds]
        sent, got = (sum(sum(s[k]) for s in states) for k in ("sent", "received"))
        return states, sent, got, await self.drops()

    async def check(self, exact=True, timeout=30.0):
        """Every message arrived once or was dropped by name. Not `exact`: connections were lost, with what was in
        sockets on either side of the router; then no more may have arrived and been dropped than was sent, but for
        those of which the router cannot know."""
        end = self.crowds[0].env.end(timeout)
        for c in self.crowds:
            await c.idle(timeout, answered=False)
        before = None
        while True:     # until nothing changes any more, and for the exact ones until they balance
            states, sent, got, drops = await self._look()
            now = (sent, got, sum(drops.values()))
            if now == before and (not exact or sent == got + now[2]) or time.monotonic() > end:
                break
            before = now
            await asyncio.sleep(0.3)
        failed = sum(s.get("sends_failed", 0) for s in states)
        for s, c in zip(states, self.crowds):
            assert not s.get("doubled") and not s.get("altered"), f"{c.name}: {s}"
        closed = [f"{c.name}: {s['closed']}" for s, c in zip(states, self.crowds) if s["closed"]]
        text = f"{sent} sent, {got} arrived, {now[2]} dropped by name: {drops}"
        if exact:
            assert not closed and not failed, f"connections lost: {closed}, {failed} sends failed; {text}"
            assert sent == got + now[2], text
        else:
            unknown = sum(drops.get(name, 0) for name in UNKNOWN)
            assert got + now[2] - unknown <= sent + failed and got <= sent + failed, f"{text}; {failed} cut"
        return f"{text}; {failed} cut" if failed else text
