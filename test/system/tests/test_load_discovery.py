# SPDX-License-Identifier: BSD-3-Clause
"""10,000 multi-rail nodes with discovery on: all push to the router at once, and all are told of a change."""

import asyncio
import json
import os
import subprocess
import sys

from lnetpy import wire
from lnetpy.control import clients, longest_us, stalls
from lnetpy.control_scene import ABROAD, HOME, HOST, MANY_PEERS, SIDE
from lnetpy.crowd_scene import FAR
from lnetpy.scene import alone, deadline, join, only

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lnetpy", "discovered.py")
TOLD = 5.0      # s for all to be told of a change; the process that plays them uses most of it


class Many:
    """The process that plays the nodes."""

    def __init__(self, env):
        env.fabric.attach("many", "tcp", "eth0", HOST)
        host = env.fabric.host("many")
        host.ip(f"route add local {ABROAD.rsplit('.', 2)[0]}.0.0/16 dev lo")
        self.env, self.row, self.rest = env, {}, b""
        self.proc = host.popen([sys.executable, PROGRAM, "--router", HOME.split("@")[0], "--first", ABROAD.split("@")[0],
                                "--count", str(MANY_PEERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.proc.stdout.fileno(), False)

    def last(self):
        *lines, self.rest = (self.rest + (self.proc.stdout.read() or b"")).split(b"\n")
        self.row = json.loads(lines[-1]) if lines else self.row
        assert self.proc.poll() is None, f"it has ended: {self.proc.stderr.read().decode()[-300:]}"
        return self.row

    def push(self):
        self.proc.stdin.write(b"\n")
        self.proc.stdin.flush()

    async def until(self, what, condition, timeout):
        """Seconds until it is so."""
        began = self.env.now()
        await self.env.until(lambda: self.last() and condition(self.row), f"{what}: {self.row}", timeout)
        return self.env.now() - began

    def stop(self):
        self.proc.kill()
        self.proc.wait()


class Pings:
    """A node on the other side pings the router all the while."""

    def __init__(self, env, node, router):
        self.env, self.node, self.router, self.took = env, node, router, []
        self.task = node.task(self.run())

    async def run(self):
        while True:
            began = self.env.now()
            assert await self.node.ping(self.router, timeout=5), "a bystander's ping is not answered"
            self.took.append(self.env.now() - began)
            await asyncio.sleep(0.005)

    def p99(self):
        """Milliseconds, since it was last asked."""
        took, self.took = sorted(self.took), []
        return 1e3 * took[len(took) * 99 // 100]


def resident_mib(router):
    with open(f"/proc/{router.proc.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)


@only("kernel")
@alone
@deadline(120)
async def test_ten_thousand(env):
    """All push, and have an ACK and a PUSH of the router; a link goes down, and all have another PUSH within seconds."""
    env.need_millrace()
    r = await env.router("r", HOME, FAR, SIDE, memory=512)
    r.spec.status[r.nids[2]] = {wire.UP, wire.DOWN}
    r.ns.ip(f"route add {ABROAD.rsplit('.', 2)[0]}.0.0/16 via {HOST.split('/')[0]}")
    b = await env.persona("b", FAR.replace("0.1@", "0.2@"))
    join(b, r, "tcp")
    await env.bring_up(b)
    many = Many(env)
    took = await many.until("all are connected", lambda row: row["connected"] == MANY_PEERS, 60)
    env.result(f"{MANY_PEERS} nodes connected in {took:.1f} s")
    pings, before = Pings(env, b, r.nids[1]), resident_mib(r)
    async with clients(r) as c:
        await asyncio.sleep(2)
        quiet = pings.p99()
        await c.call("stats_reset")
        held = stalls(await c.call("reactors_get"))
        many.push()
        took = await many.until("all are discovered", lambda row: row["acked"] == MANY_PEERS and row["pushed"] == 1, 60)
        env.result(f"all discovered {took:.1f} s after they pushed, {resident_mib(r) - before:.1f} MiB more; p99 of a bystander's pings "
                   f"{pings.p99():.1f} ms, {quiet:.1f} before")
        env.fabric.link(env.fabric.ports["r", "eth2"], False)
        took = await many.until("all are told of a link", lambda row: row["pushed"] == 2, 60)
        env.result(f"all told {took:.1f} s after a link went down; p99 {pings.p99():.1f} ms")
        now = await c.call("reactors_get")
        env.result(f"longest callback on a reactor {longest_us(now):.0f} us, stalls {held} and then {stalls(now)}")
    pings.task.cancel()
    many.stop()
    env.result(f"{many.row['again']} pushed again; {(await r.drops())['no_message_memory']} had found the line for a buffer full")
    assert took <= TOLD * env.stretch() * env.slower, f"it took {took:.1f} s until all were told"
    assert not many.row["asked"], "the router asks peers that have pushed the whole of their info"
