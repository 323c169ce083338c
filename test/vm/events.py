# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a millraced with traffic on all its nets when an address, a link and a device go and come."""

import asyncio
import os
import re
import subprocess

from lnetpy import nid as N
from lnetpy import page, wire
from lnetpy.crowd import Rest
from lnetpy.node import pattern
from lnetpy.router import find_program
from lnetpy.scene import join
from router import again, alone, joined
from scene import CLIENT, ROUTER, ROUTER1, SERVER1, TCP_ROUTER, TCP_SERVER, Books

DEVICE, INTERFACE, ADDRESS = "rxe0", "roce0", "10.77.0.1"       # of the router's NI on o2ib
PEER_END = "to0"            # of the interface's cable
TABLE = "100"               # of its routes, rxe.sh
SMALL, BULK = 3000, 200000
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/operations.md")
TWICE = 24                  # messages of broken connections: told as dropped, and arrived or known to their sender


def command(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout.strip()}"
    return done.stdout


class Page:
    """The commands of operations.md, section by section, for a router that is not the host's service."""

    def __init__(self, env, router):
        self.millrace = f"{find_program(env.build, 'millrace')} -s {router.sock}"
        self.conf = router.conf
        self.steps = [s for s in page.steps(PAGE) if s.host == "o2ib"]

    async def run(self, section, index=0):
        """A step of the section. The router answers meanwhile, so it is waited for elsewhere."""
        step = [s for s in self.steps if s.section == section][index]
        text = step.command.replace("/etc/millrace/millrace.yaml", self.conf).replace("netdev eth0", f"netdev {INTERFACE}")
        said = await asyncio.to_thread(command, "sh", "-c", re.sub("^millrace ", self.millrace + " ", text))
        assert (step.want or "") in said, (step.command, said)


class Flow:
    """PUTs from one node to another by a router, whatever becomes of them."""

    def __init__(self, a, b, gateway, size, workers=2):
        self.a, self.b, self.via, self.size = a, b, (a.nis[0], N.parse(gateway)), size
        self.sent = self.done = 0
        self.stopping = False
        self.tasks = [a.task(self.work()) for _ in range(workers)]

    async def work(self):
        while not self.stopping:
            self.sent += 1
            good = await self.a.put(self.b.nid, pattern(self.sent, self.size), via=self.via, timeout=2)
            self.done += good
            await asyncio.sleep(0)      # nothing is waited for where a connection cannot be made

    async def moves(self, count=3, timeout=60):
        before = self.done
        await self.a.env.until(lambda: self.done >= before + count, f"{self.a.name} reaches {self.b.name}", timeout)

    async def stop(self):
        self.stopping = True
        await asyncio.gather(*self.tasks)

    def __str__(self):
        return f"{self.a.name} {self.b.name} {self.size}: {self.done} of {self.sent}"


class Scene:
    """c on o2ib, s on tcp, s1 on o2ib1. Traffic between c and s, which will be disturbed, and between s1 and s, which is not."""

    @classmethod
    async def make(cls, env):
        self = cls()
        self.env, self.c, self.hurt = env, None, []
        self.r = await env.router("r", ROUTER, TCP_ROUTER, ROUTER1, timeout=6)
        self.rest = await Rest.of(self.r)
        self.s1 = await env.ib("s1", SERVER1)
        self.s = await env.persona("s", TCP_SERVER)
        await joined(env, self.s1, self.r, "tcp")
        join(self.s, self.r, "o2ib")
        join(self.s, self.r, "o2ib1")
        await env.bring_up(self.s)
        self.books = await Books.open(env, self.r)
        env.fail_fast = False
        self.r.spec.status[N.parse(ROUTER)] = {wire.UP, wire.DOWN}
        self.others = [Flow(self.s1, self.s, ROUTER1, BULK), Flow(self.s, self.s1, TCP_ROUTER, SMALL)]
        await self.move(self.others)
        return self

    async def begin(self):
        """With traffic of c's too."""
        self.c = await self.env.ib("c", CLIENT)
        self.c.ni.failures_expected = True
        await joined(self.env, self.c, self.r, "tcp")
        self.hurt = [Flow(self.c, self.s, ROUTER, BULK), Flow(self.s, self.c, TCP_ROUTER, BULK), Flow(self.s, self.c, TCP_ROUTER, SMALL)]
        await self.move(self.hurt)

    @staticmethod
    async def move(flows, timeout=60):
        await asyncio.gather(*(f.moves(timeout=timeout) for f in flows))

    async def state(self):
        """(status of the NI, state of its port)"""
        verbs = {row["nid"]: row["state"] for row in (await self.r.rpc("verbs_get"))["verbs"]}
        nets = {ni.get("nid"): ni["status"] for net in (await self.r.rpc("net_get"))["net"] for ni in net["local NI(s)"]}
        return nets[ROUTER], verbs[ROUTER]

    async def down(self, state):
        """The NI has gone down; others go on."""
        async def is_down():
            return await self.state() == ("down", state)
        await self.env.until_async(is_down, f"the NI is down, its port {state}")
        route = next(x for x in self.s.routes if x.net == N.parse_net("o2ib"))
        await self.env.until(lambda: not self.s.route_alive(route), "s knows")
        await self.move(self.others)

    async def dropped(self):
        """What is sent there all the same has a name."""
        before = await self.books.drops()

        async def some():
            await self.s.put(N.parse(CLIENT), pattern(1, SMALL), ack=False, via=(self.s.nis[0], N.parse(TCP_ROUTER)))
            return {k for k, v in (await self.books.drops()).items() if v != before.get(k)}
        return await self.env.until_async(some, "messages are dropped", 60, 0.2)

    async def up(self):
        async def active():
            return (await self.state())[1] == "active"
        await self.env.until_async(active, "the port is active")

    async def back(self):
        """A router's NI is up when somebody has pinged it there."""
        await self.up()
        await self.env.until_async(lambda: self.c.poll(N.parse(ROUTER)), "c finds the router", 60)
        await again(self.env, self.c, self.s, 60)
        self.env.fail_fast = False
        assert await self.state() == ("up", "active"), await self.state()
        await self.move(self.hurt)

    async def end(self, *said):
        flows = self.hurt + self.others
        for f in flows:
            f.stopping = True
        for f in flows:
            await f.stop()
        self.env.fail_fast = True
        await self.rest.wait(60)
        return "; ".join([*said, await self.books.balance(twice=TWICE, timeout=1), *map(str, flows)])


@alone
async def test_events_link(env):
    """The address of an NI goes and comes, then the link of its port does, with traffic."""
    x = await Scene.make(env)
    command("ip", "address", "delete", ADDRESS + "/24", "dev", INTERFACE)
    await x.down("active")
    names = await x.dropped()
    command("ip", "address", "add", ADDRESS + "/24", "dev", INTERFACE)
    command("ip", "route", "replace", "10.77.0.0/24", "dev", INTERFACE, "src", ADDRESS, "table", TABLE)     # went with it
    await x.begin()
    await x.back()
    begun = env.now()
    # Not the interface itself: README.md, "What to know of it".
    command("ip", "link", "set", PEER_END, "down")
    await x.down("down")
    took = env.now() - begun
    names |= await x.dropped()
    lost = env.now() - begun
    command("ip", "link", "set", PEER_END, "up")
    await x.back()
    return await x.end(f"down after {took:.1f} s, lost after {lost:.1f} s, back after {env.now() - begun:.1f} s", str(names))


@alone
async def test_events_removal(env):
    """The device of an NI is taken away, and let go of as the net is removed; with the device back, the file is applied again. These
    are the commands of operations.md."""
    x = await Scene.make(env)
    await x.begin()
    told = Page(env, x.r)
    await told.run("Looking at it")
    begun = env.now()
    removal = subprocess.Popen(["rdma", "link", "delete", DEVICE], stdin=subprocess.DEVNULL)    # pylint: disable=consider-using-with
    await x.down("removed")
    names = await x.dropped()
    left = [n for n in x.r.nids if n != N.parse(ROUTER)]
    x.r.spec.nids, x.r.spec.seq = left, None
    await told.run("A host without the device")
    # The kernel waits until nobody has anything of it.
    await env.until(lambda: removal.poll() is not None, "the device is gone")
    assert removal.returncode == 0, removal.returncode
    took = env.now() - begun
    await told.run("RDMA")
    x.r.spec.nids, x.r.spec.seq = [*left, N.parse(ROUTER)], None
    await told.run("A host without the device", 1)
    await x.back()
    return await x.end(f"gone after {took:.1f} s", str(names))


test_events_link.deadline = test_events_removal.deadline = 240
