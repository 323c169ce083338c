# SPDX-License-Identifier: BSD-3-Clause
"""Health under load: a thousand peers that fail at once, and one of two gateways that fails. docs/protocol/lnet-core.md §6;
docs/architecture.md "Shares and eviction" has the limits of recovery pings."""

import asyncio
import ipaddress
import json
import os
import signal
import subprocess
import sys

from lnetpy import nid as N
from lnetpy.crowd import MASK, Books, pairs
from lnetpy.crowd_scene import BYSTANDERS, FAR, FAR_BYSTANDERS, NEAR, SECOND, allowed, until_done, wide_router
from lnetpy.pair import ANSWER, CHECK, CONNECT, GAP, GATEWAYS, TICK, Pair
from lnetpy.scene import beside_one, cases, crowded, deadline, only

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lnetpy", "failing.py")
NEAR2 = "10.1.0.2@tcp"              # the second router's, beside SECOND
PEERS = 1000
REACTORS, A_SECOND, UNDER_WAY = 2, 32, 128      # recovery pings: of a reactor in a second, and of all at once
PING_ANSWER, RECONNECT = 5, 2       # s: until a recovery ping counts as not answered; between attempts to connect
LIMIT = 10                          # recovery_limit, s
STORM, CONTROL = 10, 6              # s that the rate of the bystanders is measured
STEP = 100                          # health_sensitivity
UNHEARD = 5                         # s without a message until an NI at health 0 is down
RATE = 0.9                          # of that beside a storm at another router


class Storm:
    """1,000 nodes on the far side of a router, behind one host, and four nodes that write to each of them twice in a second."""

    def __init__(self, env, name, nids, first, host):
        self.env, self.name, self.nids, self.first, self.host = env, name, nids, first, host
        self.net = f"{first.rsplit('.', 2)[0]}.0.0/{MASK}"
        self.row, self.rest_of_line = {}, b""

    async def start(self):
        env, settings = self.env, {"timeout": 5, "memory": 1024}
        settings["extra"] = f"  min_reconnect: 1\n  max_reconnect: {RECONNECT}\n  max_connections: 16384\n"
        if env.transport == "port":
            settings["ports"] = [{"name": f"eth{i}", "addresses": [f"{N.parse(n).ip}/{MASK}"], "duplicate_check": False}
                                 for i, n in enumerate(self.nids)]
            settings["ports"][1]["routes"] = [{"to": self.net, "via": self.host}]
        self.r, self.rest = await wide_router(env, f"r{self.name}", self.nids, **settings)
        if env.transport == "kernel":
            self.r.ns.ip(f"route add {self.net} via {self.host}")
        await self.r.rpc("global_set", max_recovery_ping_interval=GAP)
        env.fabric.attach(self.name, "tcp1", "eth0", f"{self.host}/{MASK}")
        host = env.fabric.host(self.name)
        host.ip(f"route add local {self.net} dev lo")
        host.sysctl(net__core__somaxconn=4096)
        self.proc = host.popen([sys.executable, PROGRAM, "--router", self.nids[1], "--first", self.first, "--count", str(PEERS)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.proc.stdout.fileno(), False)
        await self.until("all are connected", lambda row: row["connected"] == PEERS)
        self.do("push")
        await self.until("the router has heard of all", lambda row: row["acked"] == PEERS)
        start = ipaddress.ip_address(self.first.split("@")[0])
        self.writers = await env.crowd(f"w{self.name}", f"10.1.{self.host.rsplit('.')[-1]}.1@tcp", 4)
        await self.writers.nodes(self.nids[0])
        peers = [f"{start + i}@tcp1" for i in range(PEERS)]
        self.load = await self.writers.load(pairs(self.writers.nids * (PEERS // 4), peers), kind="send", size=100, every=2.0)
        await self.until("messages for all", lambda row: row["puts"] >= PEERS)
        return self

    def do(self, word):
        self.proc.stdin.write(word.encode() + b"\n")
        self.proc.stdin.flush()

    def last(self):
        *lines, self.rest_of_line = (self.rest_of_line + (self.proc.stdout.read() or b"")).split(b"\n")
        self.row = json.loads(lines[-1]) if lines else self.row
        assert self.proc.poll() is None, f"it has ended: {self.proc.stderr.read().decode()[-300:]}"
        return self.row

    async def until(self, what, condition, timeout=60):
        await self.env.until(lambda: self.last() and condition(self.row), f"{what}: {self.row}", timeout)
        return self.row

    async def queued(self):
        return (await self.r.rpc("recovery_get", peer=True))["total"]

    async def health(self):
        """Rows `health stats` of the peer NIs that fail."""
        net = ipaddress.ip_network(self.net)
        return [row["health stats"] for nid, row in (await self.r.peers()).items() if ipaddress.ip_address(nid.split("@")[0]) in net]

    async def stop(self):
        await self.load.stop()
        self.proc.kill()
        self.proc.wait()


async def rate_of(env, load, seconds, meanwhile=None):
    """Answered requests in a second."""
    begun, before = env.now(), (await load.sum())["done"]
    await (meanwhile or asyncio.sleep(seconds))
    return ((await load.sum())["done"] - before) / (env.now() - begun)


async def control(env, beside):
    """The rate of the bystanders while as many nodes of another router fail."""
    other = await Storm(env, "many2", (NEAR2, SECOND), "10.66.0.1@tcp1", "10.2.0.8").start()
    other.do("fail")
    await env.until_async(other.queued, "a storm at the other router", 20)
    rate = await rate_of(env, beside, CONTROL)
    await other.stop()
    other.writers.kill()
    env.crowds.remove(other.writers)
    await other.r.stop()
    return rate


def due(seconds):
    """The most pings to one peer NI so long after its failure: after 1, 3 and 7 s, and then each GAP."""
    times, gap = [1], 2
    while times[-1] <= seconds + TICK:
        times.append(times[-1] + gap)
        gap = min(2 * gap, GAP)
    return len(times) - 1


async def refused(env, storm, begun):
    """All connections are refused, so each ping fails at once. The router's counters of pings are within its limits."""
    await env.until_async(lambda: all_queued(storm), "all are in recovery", 30)
    before, at = sum(h["ping_count"] for h in await storm.health()), env.now()
    await asyncio.sleep(STORM / 2)
    rows, took = await storm.health(), env.now() - at
    pings = sum(h["ping_count"] for h in rows) - before
    most = max(h["ping_count"] for h in rows)
    env.result(f"{len(rows)} in recovery, {pings} pings in {took:.1f} s, at most {most} to one")
    assert len(rows) == PEERS, len(rows)
    assert 0 < pings <= REACTORS * A_SECOND * (took + TICK), pings
    assert most <= due(env.now() - begun), (most, env.now() - begun)


async def all_queued(storm):
    return await storm.queued() == PEERS


async def mute(env, storm):
    """They take connections and messages, and answer no ping: as many arrive as may be under way."""
    storm.do("mute")
    begun = env.now()
    await storm.until("pings come", lambda row: row["pings"] and row["puts"])
    await asyncio.sleep(STORM / 2)
    row, took = storm.last(), env.now() - begun
    env.result(f"{row['pings']} pings of {row['pinged']} peer NIs arrived in {took:.1f} s, at most {row['second']} in a second")
    # A ping waits for its connection for PING_ANSWER at most, so in five seconds those of ten may come.
    assert row["five"] <= 2 * UNDER_WAY and row["each"] <= took / GAP + 2, row


async def answers(env, storm):
    """The peers are back, and say nothing by themselves."""
    storm.do("answer")
    begun = env.now()

    async def none():
        return not await storm.queued()
    bar = 1.25 * PEERS / (REACTORS * A_SECOND) + GAP + TICK + RECONNECT + PING_ANSWER    # the reactors have not just as many each
    limit = await allowed(env, bar, storm.writers)
    await env.until_async(none, f"no peer NI is in recovery after {limit:.1f} s", limit)
    env.result(f"all healthy {env.now() - begun:.1f} s after they were back, at most {bar:.1f} s")


async def aged(env, storm, begun):
    """recovery_limit seconds after the last message of a peer NI its pings end, though messages to it go on failing."""
    async def none():
        return not await storm.queued()
    assert await env.until_async(storm.queued, "some are in recovery", 20)
    limit = await allowed(env, LIMIT + 2 * TICK, storm.writers)
    await env.until_async(none, f"no peer NI is in recovery after {limit:.1f} s", limit)
    env.result(f"recovery ended {env.now() - begun:.1f} s after they failed, by recovery_limit {LIMIT} s")
    rows = await storm.health()
    assert all(h["health value"] < 1000 and h["ping_count"] == 0 for h in rows), rows[:3]
    await asyncio.sleep(PING_ANSWER + TICK)      # pings that were under way
    storm.do("mute")
    await storm.until("messages come", lambda row: row["connected"] == PEERS)
    await asyncio.sleep(GAP + TICK)
    assert storm.last()["pings"] == 0, storm.row
    storm.do("answer\npush")

    async def healthy():
        return all(h["health value"] == 1000 for h in await storm.health())
    await env.until_async(healthy, "all are healthy once a message came from them", await allowed(env, 20, storm.writers))


@only("kernel", "port")
@beside_one
@crowded("kernel", "port")
@deadline(180)
@cases("answers", "limit")
async def test_storm(env, how):
    """1,000 peers fail at once while messages go to them. Recovery pings stay within their limits; bystanders keep their rate; in
    the end no peer NI is in recovery."""
    env.need_millrace()
    storm = await Storm(env, "many", (NEAR, FAR), "10.65.0.1@tcp1", "10.2.0.9").start()
    near, far = await env.crowd("near", BYSTANDERS, 20), await env.crowd("far", FAR_BYSTANDERS, 4)
    await near.nodes(NEAR)
    await far.nodes(FAR)
    beside = await near.load(pairs(near.nids, far.nids), window=2, size="small", every=0.2)
    await until_done(env, beside, 2, "the bystanders' traffic", 20)
    alone = await control(env, beside)
    await storm.r.rpc("global_set", recovery_limit=LIMIT if how == "limit" else 0)
    if how == "limit":      # counts from the last message of each
        before = storm.last()["acked"]
        storm.do("push")
        await storm.until("a message of each", lambda row: row["acked"] == before + PEERS)
    begun = env.now()
    storm.do("fail")
    if how == "answers":
        rate = await rate_of(env, beside, 0, during(refused(env, storm, begun), mute(env, storm)))
        await answers(env, storm)
    else:
        rate = await rate_of(env, beside, 0, aged(env, storm, begun))
    env.result(f"bystanders: {rate:.0f} requests a second, {alone:.0f} when another router has the storm")
    assert rate >= RATE * alone, f"{rate:.0f} requests a second, {alone:.0f} when another router has the storm"
    for which in ({"peer": True}, {"local": True}):
        assert await storm.r.rpc("recovery_get", **which) == {"nids": [], "total": 0}
    await beside.stop()
    row = await beside.sum()
    assert not row["failed"] and not row["expired"], row
    await storm.stop()
    await storm.rest.wait()


async def during(*steps):
    for step in steps:
        await step


# ---- two gateways under load ----

async def far_ni(r):
    """The NI of a gateway on the servers' net."""
    return next(ni for net in (await r.rpc("net_get"))["net"] for ni in net["local NI(s)"] if ni["nid"] == str(r.nids[1]))


async def rule_of(r):
    (rule,) = (await r.rpc("fault_get", type="drop"))["fault"]
    return rule


async def loses_some(env, p, rate):
    """Sends fail at the NI, and are sent again at once: a failure is a step down, the next send a step up. In each `rate` sends one fails,
    so two failures follow each other at most: the health is 800 at least."""
    b = p.b[0]
    before = await b.rpc("stats_get")
    await b.rpc("fault_add", type="drop", rate=rate, source="*", dest="*@tcp2", message=["PUT"], health_error=["local_dropped"])

    async def enough():
        return (await rule_of(b))["fs_count"] >= 400
    await env.until_async(enough, "the rule has seen enough", 60)
    await p.until_used((0, 1))
    rule = await rule_of(b)
    await b.rpc("fault_del", type="drop", all=True)
    await p.until_used((0, 1))
    now = await b.rpc("stats_get")
    failed, resent, successful, given_up = (now[k] - before[k] for k in ("local_dropped_count", "resend_count", "successful_resends",
                                                                         "failed_resends"))
    assert rule["fs_count"] // rate <= rule["ds_dropped"] <= rule["fs_count"] // rate + 1, rule
    assert rule["ds_dropped"] <= failed == resent and 0 < successful <= resent and not given_up, (rule, failed, resent, successful, given_up)
    values = {e["health"] for e in (await b.rpc("events_get"))["events"] if e["type"] == "ni_health"}
    assert 900 in values and values <= {800, 900, 1000}, values
    assert (await far_ni(b))["health stats"]["health value"] == 1000
    assert [await p.route(i) for i in (0, 1)] == ["up", "up"]
    env.result(f"{failed} sends failed and were sent again; health {sorted(values)}")
    return 0


async def loses_all(env, p):
    """Every send fails as a network timeout: ten take the NI to 0, and each takes a step of the server's peer NI. Nothing comes in by
    the NI, so it is down, and router a uses the other gateway. When sends work again recovery pings bring all back."""
    b = p.b[0]
    await b.rpc("fault_add", type="drop", rate=1, source="*", dest="*@tcp2", health_error=["network_timeout"])
    await p.until_route(0, "down", UNHEARD + TICK + CHECK + TICK, "all sends fail")
    ni = await far_ni(b)
    assert ni["status"] == "down" and ni["health stats"]["health value"] == 0, ni
    causes = [e["cause"] for e in (await b.rpc("events_get"))["events"] if e["type"] == "ni_down" and e["nid"] == ni["nid"]]
    assert causes == ["not_healthy"], causes
    for nid in p.s.nids:
        row = (await b.peers())[nid]["health stats"]
        assert row["network timeout"] > 0 and row["health value"] == max(0, 1000 - STEP * row["network timeout"]), (nid, row)
    before = await p.forwarded()
    await p.until_used((1,))
    rule = await rule_of(b)
    assert (await p.forwarded())[0] == before[0], "the gateway is used that loses all"
    assert rule["fs_put"] >= 10, rule
    await b.rpc("fault_del", type="drop", all=True)
    begun = env.now()

    async def healthy():
        rows = [(await b.peers())[nid] for nid in p.s.nids]
        return all(row["health stats"]["health value"] == 1000 for row in (await far_ni(b), *rows))
    # A ping that is answered is three steps of the NI: what is sent, what is received, and the answer.
    bar = -(-1000 // (3 * STEP)) * (GAP + TICK)
    limit = await allowed(env, bar, p.c)
    await env.until_async(healthy, f"the NI and the servers are healthy after {limit:.1f} s", limit)
    env.result(f"healthy after {env.now() - begun:.1f} s, at most {bar} s")
    await p.until_route(0, "up", TICK + CHECK + TICK, "sends work again")
    await p.until_used((0, 1))
    return rule["fs_put"]


@only("kernel", "port")
@beside_one
@deadline(120)
@cases("1 %", "10 %", "100 %")
async def test_gateway_loses(env, share):
    """One of two gateways under load loses sends by a rule of fault injection. All messages arrive once whose status is one that is sent
    again. The others are counted by the rule. Servers ping once in a minute: an NI by which messages come in is not down."""
    env.need_millrace()
    p = await Pair().start(env, check=60, ping_timeout=120, reactors=1)
    for nid in p.s.nids:    # they answer, so they can be pinged
        for r in p.b:
            await r.rpc("discover", nid=nid)
    load = await p.c.load(pairs(p.c.nids, p.s.nids), kind="send", size="small", every=0.04)
    await p.until_used((0, 1))
    percent = int(share.split()[0])
    lost = await (loses_all(env, p) if percent == 100 else loses_some(env, p, 100 // percent))
    await load.stop()
    await p.arrived(lost)
    await p.rest.wait()


@only("kernel", "port")
@beside_one
@deadline(90)
async def test_health_of_all_halved(env):
    """§12.2 test 228: the health of all peer NIs is set to 500 under load. Nothing is lost, and messages make them healthy again."""
    env.need_millrace()
    p = await Pair().start(env)
    routers = (p.a, *p.b)
    books = await Books.open(routers, [p.c, p.s])
    loads = [await p.c.load(pairs(p.c.nids, p.s.nids), kind=kind, window=2, size="small", every=0.02) for kind in ("put", "get")]
    await p.until_used((0, 1))
    for r in routers:
        await r.rpc("peer_set", all=True, health=500)
        assert any(e["type"] == "peer_health" and e["health"] == 500 for e in (await r.rpc("events_get"))["events"]), r.name

    async def healthy():
        return all([all(ni["health stats"]["health value"] == 1000 for ni in (await r.peers()).values() if ni["statistics"]["recv_count"])
                    for r in routers])
    await env.until_async(healthy, "all that send are healthy again", 20)
    await p.until_used((0, 1))
    for load in loads:
        await load.stop()
        row = await load.sum()
        assert not row["failed"] and not row["expired"], row
    env.result(await books.check())


REQUEST, EVERY = 2, 1               # s: after which a request is made anew; between the requests of a client
SILENT = CHECK + TICK + ANSWER      # until a check is due, sent, and had no answer
REFUSED = CHECK + TICK + CONNECT    # until a check is due, and the connection for it is refused
ALIVE = CHECK + TICK                # until a check is due and answered


@only("kernel", "port")
@beside_one
@crowded("kernel", "port")
@deadline(120)
@cases("killed", "stopped", "link")
async def test_gateway_fails(env, how):
    """One of two gateways fails under 300 clients. All are served again once their router knows, and their requests have been made anew;
    both gateways carry messages and are healthy when it is back."""
    env.need_millrace()
    p = await Pair().start(env, clients=300, servers=20)
    b, port = p.b[0], env.fabric.ports["b0", "eth0"]
    load = await p.c.load(pairs(p.c.nids, p.s.nids), timeout=REQUEST, size="small", every=EVERY)
    await until_done(env, load, 2, "all are served", 20)
    begun = env.now()
    if how == "killed":
        b.crash()
    elif how == "stopped":
        b.proc.send_signal(signal.SIGSTOP)
    else:
        env.fabric.link(port, False)
    try:
        # The host of a port does not end its connections.
        bar = (REFUSED if how == "killed" and env.transport == "kernel" else SILENT) + REQUEST + EVERY
        limit = await allowed(env, bar, p.c)
        await until_done(env, load, 1, f"all are served over the other gateway after {limit:.1f} s", limit)
        env.result(f"gateway {how}: all served over the other one after {env.now() - begun:.1f} s, at most {bar} s")
        await p.until_route(0, "down", SILENT, how)
        await until_done(env, load, REQUEST // EVERY + 1, "requests from before have ended", 20)
        before = await load.sum()
        await until_done(env, load, 3, "all go on", 20)
        now = await load.sum()
        assert (now["expired"], now["failed"]) == (before["expired"], before["failed"]), "requests are lost with the route down"
    finally:
        gone = env.now() - begun
        if how == "killed":
            await b.restart()
        elif how == "stopped":
            b.proc.send_signal(signal.SIGCONT)
        else:
            env.fabric.link(port, True)
    # TCP doubles the time until it sends again: at most as long as the link was down.
    await p.until_route(0, "up", ALIVE + CONNECT + (gone if how == "link" else 0), f"gateway {how}, and back")
    await p.until_used((0, 1))

    async def healthy():
        return (await p.a.peers())[GATEWAYS[0][0]]["health stats"]["health value"] == 1000
    await env.until_async(healthy, "its peer NI is healthy", await allowed(env, GAP + TICK, p.c))
    await load.stop()
    for crowd in (p.c, p.s):
        state = await crowd.idle(30)
        assert not state.get("doubled") and not state.get("altered"), state
    await p.rest.wait()
