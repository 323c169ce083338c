# SPDX-License-Identifier: BSD-3-Clause
"""10,000 multi-rail nodes with discovery on: all push to the router at once, and all are told of a change."""

import asyncio
import contextlib
import glob
import json
import os
import subprocess
import sys
import time

from lnetpy import wire
from lnetpy.control import clients, longest_us, stalls
from lnetpy.control_scene import ABROAD, HOME, HOST, MANY_PEERS, SIDE
from lnetpy.crowd_scene import FAR
from lnetpy.scene import alone, deadline, join, only

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lnetpy", "discovered.py")
TOLD = 5.0      # s for all to be told of a change; the process that plays them uses most of it
ADDED = 2.0     # ms that the router may add to the 99th percentile of a bystander's pings


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


class Used:
    """What a process had of the CPUs, in ms: time on them, and time that its threads waited for one."""

    def __init__(self, pid):
        self.clock = (~pid << 3) | 2    # the CPU-time clock of another process, clock_getcpuclockid(3)
        self.files = [os.open(path, os.O_RDONLY) for path in glob.glob(f"/proc/{pid}/task/*/schedstat")]

    def now(self):
        waited = sum(int(os.pread(fd, 100, 0).split()[1]) for fd in self.files)
        return 1e3 * time.clock_gettime(self.clock), 1e-6 * waited


class Pings:
    """A node on the other side pings the router all the while.

    The nodes that push share the CPUs with the router, so what a ping takes need not be the router's doing. Two figures are. `cpu` is
    what all threads of the router computed between the ping and its answer, for whomever: no less than the ping waited for. `idle` is
    how much longer the ping took than they computed or waited for a CPU: a ping that lies there until a timer shows in it."""

    def __init__(self, env, node, router):
        self.env, self.node, self.router, self.took, self.used = env, node, router.nids[1], [], Used(router.proc.pid)
        self.task = node.task(self.run())

    async def run(self):
        while True:
            began, (cpu, waited) = self.env.now(), self.used.now()
            assert await self.node.ping(self.router, timeout=5), "a bystander's ping is not answered"
            took, now = 1e3 * (self.env.now() - began), self.used.now()
            self.took.append((took, now[0] - cpu, took - (now[0] - cpu) - (now[1] - waited)))
            await asyncio.sleep(0.005)

    def since(self):
        """The pings since it was last asked."""
        took, self.took = self.took, []
        assert took, "no ping was answered meanwhile"
        return took


@contextlib.contextmanager
def prompt(env):
    """This process, which has the bystander, gets a CPU when it wants one: a ping ends when its answer is there."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        env.result("the bystander has no real-time priority here: its figures include what it waited for a CPU")
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def p99(took):
    """{"ping", "cpu", "idle"} of pings, in ms."""
    return {name: sorted(column)[len(took) * 99 // 100] for name, column in zip(("ping", "cpu", "idle"), zip(*took))}


def figures(took):
    of = p99(took)
    return f"p99 of a bystander's pings {of['ping']:.1f} ms (router: CPU {of['cpu']:.2f}, idle {of['idle']:.2f})"


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
    pings, before = Pings(env, b, r), resident_mib(r)
    async with clients(r) as c:
        with prompt(env):
            await asyncio.sleep(2)
            quiet = pings.since()
            await c.call("stats_reset")
            held = stalls(await c.call("reactors_get"))
            many.push()
            took = await many.until("all are discovered", lambda row: row["acked"] == MANY_PEERS and row["pushed"] == 1, 60)
            pushed = pings.since()
            env.result(f"all discovered {took:.1f} s after they pushed, {resident_mib(r) - before:.1f} MiB more; {figures(pushed)}; "
                       f"before {figures(quiet)}")
            env.fabric.link(env.fabric.ports["r", "eth2"], False)
            took = await many.until("all are told of a link", lambda row: row["pushed"] == 2, 60)
            told = pings.since()
            env.result(f"all told {took:.1f} s after a link went down; {figures(told)}")
        now = await c.call("reactors_get")
        env.result(f"longest callback on a reactor {longest_us(now):.0f} us, stalls {held} and then {stalls(now)}")
    limit = ADDED * env.slower * env.stretch()      # what comes while a router has no CPU is there when it has one again
    pings.task.cancel()
    many.stop()
    env.result(f"{many.row['again']} pushed again; {(await r.drops())['no_message_memory']} had found the line for a buffer full")
    assert took <= TOLD * env.stretch() * env.slower, f"it took {took:.1f} s until all were told"
    assert not many.row["asked"], "the router asks peers that have pushed the whole of their info"
    meanwhile, before = p99(pushed + told), p99(quiet)
    more = {name: meanwhile[name] - before[name] for name in before}
    # What the router added is no more than the pings took longer, nor more than it computed and lay idle.
    assert min(more["ping"], more["cpu"]) < limit and more["idle"] < limit, f"added to p99 of a bystander's pings: {more}, limit {limit:.2f} ms"
