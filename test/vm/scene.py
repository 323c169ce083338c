# SPDX-License-Identifier: BSD-3-Clause
"""The surroundings of a test in the guest: the machine's own namespace, where RDMA devices are, beside others for tcp nodes."""

import asyncio
import contextlib
import glob
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

from iblnd import rdma                                      # noqa: E402
from iblnd.persona import IbNode, bury                      # noqa: E402
from lnetpy import nid as N                                 # noqa: E402
from lnetpy import netns, router as R                                    # noqa: E402
from lnetpy import env as lnetpy_env                        # noqa: E402
from lnetpy.crowd import OWN                                # noqa: E402
from lnetpy.judge import RouterSpec, Verdict                # noqa: E402
from lnetpy.socklnd import K217                             # noqa: E402

# Addresses of the devices (rxe.sh), and who has which.
ROUTER, ROUTER1 = "10.77.0.1@o2ib", "10.77.0.3@o2ib1"
CLIENT, SERVER1 = "10.77.0.2@o2ib", "10.77.0.4@o2ib1"
TCP_ROUTER, TCP_SERVER = "10.78.0.1@tcp", "10.78.0.2@tcp"


def ip_batch(text):
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True)


@contextlib.contextmanager
def address(device, ip):
    """One more address of a device, which the others find; those of rxe.sh are there already."""
    if ip.startswith("10.77.0."):
        yield
        return
    ways = [f"address {{}} {ip}/32 dev roce{device}", f"rule {{}} pref 20 from {ip} to {ip} lookup local",
            f"rule {{}} pref 30 from {ip} lookup {100 + device}", f"rule {{}} pref 40 to {ip} lookup {100 + (device == 0)}"]
    ways += [f"route {{}} {ip}/32 dev roce{i} src 10.77.0.{i + 1} table {100 + i}" for i in range(4) if i != device]
    ip_batch("\n".join(w.format("add") for w in ways))
    gids, wanted = f"/sys/class/infiniband/rxe{device}/ports/1/gids", "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, ip.split(".")))
    try:
        end = time.monotonic() + 10     # the device hears of it a little later
        while not any(wanted in gid for gid in map(_read, glob.glob(gids + "/*"))):
            assert time.monotonic() < end, f"rxe{device} has no GID for {ip}"
            time.sleep(0.02)
        yield
    finally:
        ip_batch("\n".join(w.format("delete") for w in ways))


def _read(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:     # a place of the table that is free
        return ""


@contextlib.contextmanager
def unplugged(device):
    """Nothing comes from a device nor gets to it, and no port says so."""
    ip_batch(f"link set to{device} nomaster")
    try:
        yield
    finally:
        ip_batch(f"link set to{device} master roce")


class Machine(netns.NetNs):
    """The namespace that the guest has from the start: it cannot be given away, nor taken down."""

    def __init__(self, name):       # pylint: disable=super-init-not-called
        self.name = name
        self.fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.made = []

    def ip(self, batch):
        super().ip(batch)
        self.made += [line.split()[2] for line in batch.splitlines() if line.startswith("link set ") and line.endswith(" up")]

    def close(self):
        for name in self.made:      # its other end is with the switch, which is gone
            os.system(f"ip link delete {name} 2>/dev/null")
        super().close()


class Reference:
    """A kernel's router in place of the program: tries the tests."""

    def __init__(self, env, name, nids):
        self.env, self.name, self.nids = env, name, nids
        self.spec = RouterSpec(nids, {0x1a}, "kernel", zc_min=1 << 30, name=name)
        self.node = IbNode(env, name, env.fabric.host(name), nids, K217, routing=True)
        for ni in self.node.nis:
            ni.zc_min, ni.rdma_of_any_size = 1 << 30, True
        self.node.judge.check = lambda *_: Verdict([])
        self.node.in_ledger = False
        env.ledger.nids -= set(nids)

    async def start(self):
        await self.node.start()
        return self

    async def stop(self):
        self.node.stop()

    async def drops(self):
        return {}

    def tail(self, _=0):
        return ""

    def kill(self):
        pass


class KeptRouter(R.Millraced):
    async def start(self):
        """Without health: what tests do to its neighbours would lower its NIs, and later tests would see them DOWN."""
        if not self.proc or self.proc.poll() is not None:
            await super().start()
            await self.rpc("global_set", health_sensitivity=0)
        return self


class Kept:
    """A router that tests share, one after the other, with NIs on all nets, and the segments around it."""

    def __init__(self):
        self.fabric = self.router = None

    def drop_router(self):
        if self.router:
            self.router.kill()
            self.router = None

    def close(self):
        if self.router:
            self.router.crash()
        self.drop_router()
        if self.fabric:
            self.fabric.close()


class Env(lnetpy_env.Env):
    """kept: whose router and segments to use, where a test asks for nothing special."""

    def __init__(self, build, kept=None, **kw):
        super().__init__(build, **kw)
        self.kept = None if self.reference else kept
        if self.kept and self.kept.fabric:
            self.fabric.close()
            self.fabric = self.kept.fabric
        else:
            self.fabric.hosts["r"] = Machine("r")
            if self.kept:
                self.kept.fabric = self.fabric
        rdma.load(build)

    async def ib(self, name, nid, profile="k217", start=True, **kw):
        """A kernel node on a verbs net."""
        node = IbNode(self, name, self.fabric.hosts["r"], [N.parse(nid)], lnetpy_env.PROFILES[profile], **kw)
        for spec in {id(r.spec): r.spec for r in self.routers}.values():
            node.judge.know(spec)
        self.nodes.append(node)
        if start:
            await node.start()
        return node

    def prepare(self, name, *nids, segs=None, port=False, **kw):       # pylint: disable=arguments-differ
        """A router, not started. The interfaces of verbs nets are there already. port: its tcp nets are on ports, so the
        machine has none of these addresses."""
        if self.kept:
            assert not port, "a test of a router on ports is to be marked as alone"
            return self.prepare_kept(name, kw)
        ports = []
        for i, n in enumerate(map(N.parse, nids)):
            if N.net_str(n.net).startswith("tcp"):
                address = f"{n.ip}/24"
                self.fabric.attach(name, N.net_str(n.net), f"eth{i}", *([] if port else [address]))
                ports.append({"name": f"eth{i}", "addresses": [address], "duplicate_check": False})
        if port:
            kw["ports"] = ports
        if self.reference:
            router = Reference(self, name, [N.parse(n) for n in nids])
        else:
            router = R.Millraced(self, name, self.fabric.host(name), [N.parse(n) for n in nids], **kw)
        self.routers.append(router)
        for node in self.nodes:
            node.judge.know(router.spec)
        return router

    def prepare_kept(self, name, kw):
        assert not kw, f"a test of a router with {kw} is to be marked as alone"
        if not self.kept.router:
            nids = [N.parse(n) for n in (ROUTER, TCP_ROUTER, ROUTER1)]
            if ("r", "eth1") not in self.fabric.ports:
                self.fabric.attach(name, "tcp", "eth1", f"{nids[1].ip}/24")
            self.kept.router = KeptRouter(self, name, self.fabric.host(name), nids)
            # It may call the node of the test before as that of this one calls it.
            self.kept.router.spec.allow_none = self.kept.router.spec.any_type = True
        router = self.kept.router
        router.env = self
        self.routers.append(router)
        return router

    async def finish(self):
        if self.kept and self.kept.router in self.routers:
            router = self.kept.router
            self.routers.remove(router)
            if router.proc.poll() is not None:
                self.problem(f"the router has ended: {router.tail()}")
            router._scan()      # pylint: disable=protected-access
        await super().finish()

    def close(self, good=True):     # pylint: disable=arguments-differ
        for n in self.nodes:
            if not n.stopped:
                n.stop()
        bury()
        if not self.kept:
            super().close()
            return
        self.routers.clear()
        if not good:
            self.kept.drop_router()

    async def quiet(self, seconds):
        """Nothing happens that is a problem, while some protocol time passes."""
        end = time.monotonic() + seconds
        await self.until(lambda: time.monotonic() >= end, "time", seconds + 5)


class Books:
    """What of the messages between personas arrived, and what the router says it dropped."""

    def __init__(self, env, router):
        self.env, self.router = env, router
        self.dropped = {}       # by what the last balance found

    @classmethod
    async def open(cls, env, router):
        books = cls(env, router)
        await router.rpc("global_set", health_sensitivity=0)    # recovery pings that fail are drops, too
        await env.settle(30)
        books.before = await books.all()
        return books

    async def all(self):
        rows = (await self.router.rpc("drops_get"))["drops"]
        return {d["name"]: d["count"] for d in rows if d["kind"] == "message" and d["name"] not in OWN}

    async def drops(self):
        """name -> messages since the books were opened."""
        return {k: v - self.before.get(k, 0) for k, v in (await self.all()).items() if v != self.before.get(k, 0)}

    async def balance(self, twice=0, timeout=30):
        """Every message has arrived once or was dropped by name. `twice`: so many may be told as dropped that did arrive, as it was
        not heard of, or that their sender was told of. What was dropped, as text."""
        end = time.monotonic() + timeout
        while True:
            drops, lost = await self.drops(), len(self.env.ledger.outstanding())
            if lost == sum(drops.values()) or time.monotonic() > end:
                break
            await asyncio.sleep(0.2)
        assert -twice <= lost - sum(drops.values()) <= 0, f"{lost} did not arrive, {drops} were dropped by name"
        assert not self.env.problems, self.env.problems
        self.env.ledger.forget(lambda e: True)
        self.dropped = drops
        return f"{lost} lost: {drops}"
