# SPDX-License-Identifier: BSD-3-Clause
"""Simulated peers (millrace-peers), over memif, on both sides of a router."""

from lnetpy.end_node import Perf
from lnetpy.scene import alone, cases, crowded, deadline

GATEWAYS = ("10.20.255.1@tcp", "10.21.255.1@tcp1")
FIRST = ("10.20.0.1@tcp", "10.21.0.1@tcp1")
DOWN = {"next_hop_unreachable", "tcp_dial_failed", "tcp_reset"}  # of connections, when the peers have gone


class Scene:
    """A router with two memif ports, and who is on them."""

    def __init__(self, env):
        self.env, self.processes = env, []

    async def start(self, count, reactors, memory):
        r = self.env.prepare("r", *GATEWAYS, bits=16, transport="port", reactors=reactors, memory=memory)
        dirname = r.dir.name
        r.settings["ports"] = [
            {"name": f"m{i}", "addresses": [GATEWAYS[i].split("@")[0] + "/16"], "duplicate_check": False, "mtu": 9000,
             "device": f"net_memif{i},role=server,id=0,socket-abstract=no,socket={dirname}/m{i}"} for i in (0, 1)]
        self.device = [f"net_memif{i},role=client,id=0,socket-abstract=no,socket={dirname}/m{i}" for i in (0, 1)]
        self.range = [f"{first}*{count}" for first in FIRST]
        self.router = await r.start()
        return self.router

    def run(self, *args):
        p = Perf(self.env, "r", *args, program="millrace-peers")
        self.processes.append(p)
        return p

    def server(self):
        return self.run("--port", self.device[1], "--peers", self.range[1], "--gateway", GATEWAYS[1], "server")

    def client(self, here, *args):
        targets = ("--server-port", self.device[1], "--server-gateway", GATEWAYS[1]) if here else ()
        return self.run("--port", self.device[0], "--peers", self.range[0], "--gateway", GATEWAYS[0], "--timeout", 60, *targets, *args,
                        "both", self.range[1])

    def close(self):
        for p in self.processes:
            p.kill()


def check(result, served, count):
    """All that was sent was answered, whole; nobody failed."""
    puts, gets = result["put"], result["get"]
    for kind in puts, gets:
        assert kind["sent"] == kind["answered"] > 0, kind
        assert kind["lost"] == kind["altered"] == kind["not_sent"] == kind["unfinished"] == 0, kind
    assert result["receiver"]["received"] == result["receiver"]["checked"] == puts["sent"], result["receiver"]
    assert result["receiver"]["missing"] == result["receiver"]["repeated"] == 0, result["receiver"]
    assert served["puts"] == served["checked"] == puts["sent"] and served["bad_checksum"] == 0, served
    assert served["gets"] == gets["sent"] and served["gets_failed"] == 0, served
    assert result["sources"] == count and result["ok"], result


async def run(env, here, count, size, *args, reactors=2, memory=1024):
    env.need_millrace()
    scene = Scene(env)
    try:
        router = await scene.start(count, reactors, memory)
        server = None
        if not here:
            server = scene.server()
            await server.said("serving on", 30)
        result = await scene.client(here, "--size", size, *args).result(140)
        served = (await server.stop() if server else result)["server"]
        check(result, served, count)
        drops = await router.drops()
        assert not any(n for name, n in drops.items() if name not in DOWN), {k: v for k, v in drops.items() if v}
        done = result["put"]["answered"] + result["get"]["answered"]
        env.result(f"{done} messages, {result['figures']['cpu_ns_per_message']} ns of CPU each")
        return result
    finally:
        scene.close()


@deadline(150)
@cases("one process", "two processes")
async def test_through_the_router(env, how):
    """64 peers on each side, PUT and GET of 4 KiB, every byte compared."""
    await run(env, how == "one process", 64, "4k", "--seconds", 2, "--concurrency", 256)


@deadline(150)
async def test_mixed_sizes(env):
    """Sizes from 0 to 1 MiB, on a router with one reactor."""
    await run(env, True, 64, "mix", "--seconds", 2, "--concurrency", 64, reactors=1)


@alone
@crowded("kernel")
@deadline(150)
async def test_incast(env):
    """32 senders with eight messages of 1 MiB each on the way to one receiver: none is dropped, and all are served alike."""
    env.need_millrace()
    scene = Scene(env)
    try:
        router = await scene.start(32, 1, 1024)
        scene.range[1] = FIRST[1] + "*1"
        result = await scene.client(True, "--size", "1M", "--concurrency", 256, "--order", "kept", "--seconds", 3, "--mix", "put:1").result(140)
        puts, source = result["put"], result["source"]
        assert result["ok"] and puts["sent"] == puts["answered"] > 256, result
        assert source["jain"] >= 0.9, source
        drops = await router.drops()
        assert not any(n for name, n in drops.items() if name not in DOWN), {k: v for k, v in drops.items() if v}
        env.result(f"{puts['answered']} messages, Jain's index {source['jain']:.3f}")
    finally:
        scene.close()


@alone
@crowded("kernel")
@deadline(240)
async def test_thousand(env):
    """A thousand on each side, each of whom sends or is sent to. The router has memory for their 6,000 connections."""
    result = await run(env, True, 1000, "1k", "--count", 8000, "--concurrency", 2000, memory=2048)
    assert result["figures"]["peers"] == 2000, result["figures"]
