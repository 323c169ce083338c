# SPDX-License-Identifier: BSD-3-Clause
"""The driver on both sides: millrace-perf nodes on o2ib nets among themselves and through millraced, every byte checked where it
arrives. And what the router does with payload between RDMA devices and its own TCP."""

import asyncio
import re

from lnetpy import nid as N
from lnetpy.end_node import EndNode, Perf
from lnetpy.monitor import Exporter, dashboard_queries, host
from router import alone, at_rest, crowd, joined
from scene import CLIENT, ROUTER, ROUTER1, SERVER1, TCP_ROUTER, TCP_SERVER, Books

NEIGHBOUR = "10.77.0.4@o2ib"
GATEWAYS = {"o2ib": ROUTER, "o2ib1": ROUTER1, "tcp": TCP_ROUTER}
SIZES = ("0", "1", "3976", "3977", "4096", "65537", "1m")       # around what an IMMEDIATE takes, and a router's small buffer
IMMEDIATE_MAX = 3976
DEEP = 64
COUNT = 42      # messages: each size occurs
HEADERS = 400   # bytes: more than the headers of a message and of its answer, which TCP copies


def net_of(nid):
    return N.net_str(N.parse(nid).net)


class Ends:
    """A millrace-perf at one NID and servers at others, through the router where the nets differ."""

    def __init__(self, env, client, *servers, options=()):
        self.env, self.client, self.servers, self.options = env, client, servers, options
        self.serving = []

    def start(self, nid, others, *arguments):
        net = net_of(nid)
        routes = [f"{far} {GATEWAYS[net]}" for far in map(net_of, others) if far != net]
        if net == "tcp":
            return EndNode(self.env, "s", nid, routes[0], *arguments)
        return Perf(self.env, "r", "--nid", nid, *(word for route in routes for word in ("--route", route)), *self.options,
                    *arguments)

    async def __aenter__(self):
        self.serving = [self.start(nid, [self.client], "--buffers", 64, "server") for nid in self.servers]
        for serving, nid in zip(self.serving, self.servers):
            await serving.said(f"serving on {nid}", 60)
        return self

    async def __aexit__(self, kind, *_):
        for serving in self.serving:
            if kind:
                serving.kill()
            else:
                await serving.stop()

    async def run(self, operation, *arguments, to=None):
        to = to or self.servers
        return await self.start(self.client, to, "--timeout", 40, *arguments, operation, *to).result(90)

    async def ping(self):
        for nid in self.servers:
            await self.run("ping", "--count", 3, to=[nid])

    async def exchange(self, count, operation="both", sizes=SIZES, inflight=8):
        """PUTs, GETs, or both in turn. All have to be answered, and what was received on either side must be what was sent:
        the result of the run."""
        said = await self.run(operation, "--count", count, "--inflight", inflight, "--seed", 1,
                              "--size", ",".join(f"{size}:1" for size in sizes))
        done = {kind: said[kind]["answered"] for kind in ("put", "get") if kind in said}
        assert sum(done.values()) == count and all(said[kind]["bytes"] for kind in done), said
        receiver = said.get("receiver", {})     # of PUTs
        assert receiver.get("received", 0) == receiver.get("checked", 0) == done.get("put", 0), receiver
        assert said["checked"] == count, said
        return said


async def test_ends_direct(env):
    """Two end nodes without a router: ping, and all sizes both ways."""
    async with Ends(env, CLIENT, NEIGHBOUR) as ends:
        await ends.ping()
        await ends.exchange(COUNT)


async def test_ends_router(env):
    """o2ib, millraced, and o2ib1 or tcp: the same."""
    r = await env.router("r", ROUTER, TCP_ROUTER, ROUTER1)
    books = await Books.open(env, r)
    async with Ends(env, CLIENT, SERVER1, TCP_SERVER) as ends:
        await ends.ping()
        await ends.exchange(COUNT)
    await books.balance()


@alone
async def test_ends_deep(env):
    """Queues of 64 and two connections between our nodes, both of them used; then a kernel node with the same, which counts the
    credits."""
    r = await env.router("r", ROUTER, ROUTER1, tunables={"peer_credits": DEEP}, conns_per_peer=2)
    books = await Books.open(env, r)
    found = {}      # NID -> its connections, when they were seen with most payload

    def least(rows):
        """How many there are, and the payload of the one with least."""
        return len(rows), min((row["bytes_in"] + row["bytes_out"] for row in rows), default=0)

    def used():
        return len(found) == 2 and all(least(rows) > (2, 1 << 16) for rows in found.values())

    async def look():
        for ni in (await r.rpc("verbs_get", conns=True))["verbs"]:
            rows = [c for c in ni["connections"] if c["state"] == "up"]
            found[ni["nid"]] = max(found.get(ni["nid"], []), rows, key=least)
    count, end = 400, env.now() + 30
    async with Ends(env, CLIENT, SERVER1, options=("--peer-credits", DEEP, "--conns-per-peer", 2)) as ends:
        while not used() and env.now() < end:       # connections of a run that is short may be gone between two looks
            run = asyncio.ensure_future(ends.exchange(count, sizes=("1", "3976", "20000"), inflight=2 * DEEP))
            while not run.done():
                await look()
                await asyncio.sleep(0.05)
            await run
            count *= 4
    assert used(), found
    assert all(len(rows) == 2 for rows in found.values()), found
    assert all(row["depth"] == DEEP for rows in found.values() for row in rows), found
    c = await env.ib("c", CLIENT, depth=DEEP, conns_per_peer=2, slots=40)
    s = await env.ib("s", SERVER1, depth=DEEP, slots=40)
    await joined(env, c, r, "o2ib1")
    await joined(env, s, r, "o2ib")
    await asyncio.gather(crowd(c, s, 120, workers=40), crowd(s, c, 120, workers=40))
    await env.settle()
    await at_rest(env, c, s)
    depths = {x.depth for n in (c, s) for x in n.conns()}
    assert depths == {DEEP} and len(c.conns()) == 2, f"{depths}, {c.conns()}"
    assert max(x.credits_seen for n in (c, s) for x in n.conns()) > 8
    await books.balance()


# --------------------------------------------------------------------------------------------- between RDMA and own TCP

async def copies(r):
    """name -> bytes of payload that were copied, or moved, so far; all of the router."""
    verbs = (await r.rpc("verbs_get"))["verbs"][0]["counters"]
    tcp = [row["tcp"] for row in (await r.rpc("tcp_stats_get"))["reactors"]]
    segments = [row["segments"] for row in (await r.rpc("buffers_get"))["reactors"]]
    queues = [q for port in (await r.rpc("port_get"))["port"] for q in port["queues"]]
    return {
        "verbs in": verbs["copied_in"], "verbs out": verbs["copied_out"], "writes": verbs["writes"],
        "by verbs in": verbs["bytes_in"], "by verbs out": verbs["bytes_out"],
        "tcp": sum(row["copied_bytes"] for row in tcp), "sparse": sum(row["sparse_bytes"] for row in tcp),
        "resent": sum(row["resent"] for row in tcp),
        "core": sum(row["payload_copy_bytes"] for row in segments),
        "port": sum(q["copied_bytes"] for q in queues),
    }


async def copied(r, before):
    return {name: value - before[name] for name, value in (await copies(r)).items()}


@alone
async def test_ends_port(env):
    """o2ib and millraced's own TCP: what a peer's RDMA left in a router buffer leaves from there, and what came in frames is
    written from these. Only the packet socket copies, in and out, and small messages are copied as they come over RDMA."""
    r = await env.router("r", ROUTER, TCP_ROUTER, port=True)
    books = await Books.open(env, r)
    text = []
    async with Ends(env, CLIENT, TCP_SERVER) as ends:
        for operation in ("put", "get"):
            before = await copies(r)
            said = await ends.exchange(COUNT, operation)
            payload, moved = said[operation]["bytes"], await copied(r, before)
            text.append(f"{operation} of {payload}: {moved}")
            assert moved["by verbs in" if operation == "put" else "by verbs out"] >= payload, text
            assert moved["verbs out"] == moved["core"] == 0, text
            assert moved["verbs in"] <= IMMEDIATE_MAX * COUNT < payload / 10, text
            assert moved["tcp"] <= HEADERS * COUNT < payload / 100, text
    await books.balance()
    return "; ".join(text)


@alone
async def test_ends_metrics(env):
    """The exporter's page has the counters of the driver, and all metrics of o2ib that the dashboard shows."""
    r = await env.router("r", ROUTER, ROUTER1)
    books = await Books.open(env, r)
    async with Ends(env, CLIENT, SERVER1) as ends:
        await ends.exchange(COUNT)
    await books.balance()
    exporter = Exporter(env, host(env), r)
    try:
        await exporter.serves(exporter.port, "/metrics")
        page = exporter.samples()
    finally:
        exporter.kill()
    for row in (await r.rpc("verbs_get"))["verbs"]:
        mine = f"{{nid=\"{row['nid']}\"}}"
        assert page[f"millrace_verbs_up{mine}"] == 1
        assert page[f"millrace_verbs_in_bytes_total{mine}"] == row["counters"]["bytes_in"] > 0, row
        assert page[f"millrace_verbs_dialled_total{mine}"] == row["counters"]["dialled"], row
        for _, query in dashboard_queries("millrace_verbs"):
            assert re.search(r"millrace_verbs_\w+", query).group() + mine in page, query
