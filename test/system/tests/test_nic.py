# SPDX-License-Identifier: BSD-3-Clause
"""Ports that are network cards, by PCI address with DPDK's own drivers: in a guest that has such cards (./dev vm nic)."""

import os
import re

from lnetpy import nid as N
from lnetpy import page, wire
from lnetpy.cards import Qemu
from lnetpy.crowd import Rest
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, deadline, join, line, only, traffic

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/nic-in-ten-minutes.md")
PAGE_CARDS = ("0000:3b:00.0", "0000:3b:00.1")

DESCRIPTORS = 1024      # of a receive queue, at most; each has a buffer
SLOW = 40       # s, for a message: the guest is emulated

# What each driver of DPDK says that it does for us.
OFFLOADS = {
    "virtio": {"tx_chains"},
    "e1000e": {"tx_csum", "rx_csum", "tx_chains"},
    "vmxnet3": {"tx_tso", "tx_csum", "rx_csum", "tx_chains"},
}
DRIVERS = {"virtio": "net_virtio", "e1000e": "net_e1000_em", "vmxnet3": "net_vmxnet3"}


async def ports(r):
    return {p["name"]: p for p in (await r.rpc("port_get"))["port"]}


async def told(env, r, event):
    await env.until(lambda: event in r.text(), event)


async def links(r):
    return {name: port["link"] for name, port in (await ports(r)).items()}


async def nis(r):
    """NID -> status."""
    return {ni["nid"]: ni["status"] for net in (await r.rpc("net_get"))["net"] for ni in net["local NI(s)"]}


async def both(a, b):
    return await a.put(b.nid, pattern(1, 20000), timeout=SLOW) and await b.put(a.nid, pattern(2, 20000), timeout=SLOW) \
        and await a.get(b.nid, 70000, timeout=SLOW)


async def reach(env, *nodes):
    """Until a check of these nodes' gateway succeeds: the next of their own may be a minute away."""
    for n in nodes:
        await env.until_async(lambda n=n: n.poll(next(iter(n.gateways))), f"{n.name} reaches its gateway", SLOW)


@only("nic")
@deadline(90)
async def test_driver(env):
    """Who drives the cards, and what for; what came in and went out was counted by the driver too."""
    c, r, s = await line(env, full=False, router={"tamper": None})
    for port in (await ports(r)).values():
        assert port["buffers"] - port["buffers_free"] <= port["rx_queues"] * DESCRIPTORS + 64, port
    for a, b in ((c, s), (s, c)):
        for size in (0, 4096, 1 << 20):
            assert await a.put(b.nid, pattern(size, size), timeout=SLOW), (a.name, size)
            assert await a.get(b.nid, size, timeout=SLOW), (a.name, size)
    await env.settle()

    async def sent():
        """Whether each frame that a driver was given has left. qemu's cards leave out what they cannot map (test/vm/README.md)."""
        found = (await r.rpc("port_get", xstats=True))["port"]
        return all(p["xstats"]["tx_good_packets"] == sum(q["packets"] for q in p["queues"] if q["direction"] == "tx") for p in found) \
            and found
    for port in await env.until_async(sent, "each frame that a driver was given has left"):
        card = env.cards.used["r", port["name"]]
        assert port["device"] == card.pci and port["backend"] == "ethdev", port
        assert port["driver"] == DRIVERS[env.cards.model], port
        assert OFFLOADS[env.cards.model] <= set(port["offloads"]), port
        assert port["mac"] == card.mac, port
        assert port["xstats"]["rx_good_bytes"] > 2 << 20 and port["xstats"]["tx_good_bytes"] > 2 << 20, port
        # Large frames, where the driver cuts them.
        assert ("tx_tso" in port["offloads"]) == (port["xstats"]["tx_good_packets"] < 1000), port
        env.result(f"{port['driver']}: {', '.join(port['offloads'])}")


@only("nic")
@deadline(90)
async def test_link(env):
    """A cable comes out and is put back: told by name, the NI is down meanwhile, and traffic goes on with the same connections."""
    c, r, s = await line(env)
    assert await both(c, s)
    await env.settle()
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)
    qemu, card = Qemu(), env.cards.used["r", "eth1"]
    try:
        qemu.link(card, False)
        await told(env, r, "event=port_down port=eth1 state=down cause=link_lost")
        assert await links(r) == {"eth0": "up", "eth1": "down"}
        assert (await nis(r))[ROUTER[1]] == "down" and (await nis(r))[ROUTER[0]] == "up", await nis(r)
        assert await c.ping(r.nids[0]), "the other port goes on"
    finally:
        qemu.link(card, True)

    async def back():
        return (await links(r))["eth1"] == "up"
    await env.until_async(back, "the port is up")

    async def up():
        """The NI is up with the first ping after it has heard of the link; the nodes believe in their gateway with their next check."""
        return await s.ping(r.nids[1], timeout=2) and (await nis(r))[ROUTER[1]] == "up"
    await env.until_async(up, "the NI is up")
    for n in (s, c):
        assert await n.poll(next(iter(n.gateways))), n.name
    assert await both(c, s), "traffic goes on"
    await env.settle()
    qemu.close()


@only("nic")
@deadline(120)
async def test_unplugged(env):
    """A card is pulled under traffic. Its port is down for a reason, the kernel gets it back, what is for it is dropped by name,
    and the router's other ports go on. In its slot again, it is used again."""
    r = await env.router("r", *ROUTER, "10.0.2.1@tcp2")
    c, s, t = [await env.persona(n, nid) for n, nid in zip("cst", (CLIENT, SERVER, "10.0.2.2@tcp2"))]
    for n, far in ((c, "tcp1"), (c, "tcp2"), (s, "tcp"), (t, "tcp")):
        join(n, r, far)
    await env.bring_up(c, s, t)
    assert await both(c, s) and await both(c, t)
    await env.settle()
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)
    qemu, card = Qemu(), env.cards.used["r", "eth1"]
    before = (await r.drops()).copy()
    try:
        qemu.pull(card)
        while card.pci:
            assert await both(c, t), "the other ports go on"
        await told(env, r, "event=port_down port=eth1 state=down cause=device_gone")
        assert await links(r) == {"eth0": "up", "eth1": "down", "eth2": "up"}
        assert (await nis(r))[ROUTER[1]] == "down", await nis(r)
        await c.put(s.nid, pattern(3, 1000), ack=False)

        async def dropped():
            return {k: v - before[k] for k, v in (await r.drops()).items() if v > before[k]}
        env.result(f"{await env.until_async(dropped, 'the message is dropped by name', 60)}")
        env.ledger.forget(lambda e: e.header.dst == s.nid)
        assert await both(c, t), "the other ports go on"
        await env.settle()
        r.spec.allow_rst = True     # it has given up connections that the node still has
        qemu.put_back(card)
        card.bind()
        await told(env, r, "event=port_up port=eth1 state=up")
        await reach(env, s, c)
        assert await both(c, s), "the card is used again"
        await env.settle()
    finally:
        if not card.pci:
            qemu.put_back(card)
        qemu.close()


@only("nic")
@deadline(120)
async def test_late(env):
    """A card without a driver at the start: the other ports run, and it is taken when it has one."""
    r = env.prepare("r", *ROUTER)
    card = env.cards.used["r", "eth1"]
    card.unbind()
    await r.start()
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)
    c, s = await env.persona("c", CLIENT), await env.persona("s", SERVER)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    assert await c.ping(r.nids[0])
    assert f"event=port_waits port=eth1 device={card.pci}" in r.text() and await links(r) == {"eth0": "up", "eth1": "down"}, r.tail(20)
    await told(env, r, "event=port_down port=eth1 state=down cause=no_device")
    card.bind()
    await told(env, r, "event=port_up port=eth1 state=up")
    await reach(env, s, c)
    await env.bring_up(c, s)
    assert await both(c, s)
    await env.settle()


@only("nic")
@deadline(120)
async def test_load(env):
    """Three clients and two servers exchange messages of all sizes, all at once, over few buffers: each message arrives once and unaltered,
    and all buffers and credits are back."""
    r = await env.router("r", *ROUTER, buffers={"tiny": 16, "small": 16, "large": 4})
    rest = await Rest.of(r)
    clients = [await env.persona(f"c{i}", f"10.0.0.{2 + i}@tcp") for i in range(3)]
    servers = [await env.persona(f"s{i}", f"10.0.1.{2 + i}@tcp1") for i in range(2)]
    for node in clients + servers:
        join(node, r, "tcp1" if node in clients else "tcp")
    await env.bring_up(*clients, *servers, timeout=SLOW)
    both_ways = [(c, s) for c in clients for s in servers] + [(s, c) for s in servers for c in clients]
    flows = [a.task(traffic(env, a, b, 16, workers=3, seed=seed, big=0.05, timeout=2 * SLOW)) for seed, (a, b) in enumerate(both_ways)]
    await env.until(lambda: all(t.done() for t in flows) or env.problems, f"{len(flows)} flows", 3 * SLOW)
    await env.settle(20)
    waits = {row["name"]: row["waited"] for row in (await r.rpc("waits_get"))["waits"] if row["waited"]}
    assert env.ledger.received == env.ledger.sent and waits, (env.ledger.received, env.ledger.sent, waits)
    env.result(f"{env.ledger.received} messages, waited {waits}")
    await rest.wait(SLOW)


class Site:
    """The machines of the page: a router without millraced, with two cards that nothing drives, a client and a server."""

    def __init__(self, env):
        self.env = env
        self.client = self.server = self.router = None
        self.hosts, self.addresses = {}, {}

    async def build(self):
        env = self.env
        self.client = await env.persona("c", CLIENT)
        self.server = await env.persona("s", SERVER)
        self.router = env.prepare("r", *ROUTER)
        self.router.spec.allow_none = self.router.spec.any_type = True      # both may connect at the same time
        used = [env.cards.used["r", f"eth{i}"] for i in range(2)]
        for card in used:
            card.unbind()
        join(self.client, self.router, "tcp1")
        join(self.server, self.router, "tcp")
        self.addresses = dict(zip(PAGE_CARDS, (card.pci for card in used)))
        host = page.Host(env, env.fabric.host("r"), {"systemctl": self.systemctl}, self.router.sock)
        self.hosts = {"router": host, "client": page.Host(env, self.client.ns, {"lnetctl": self.lnetctl})}
        for host in self.hosts.values():
            await host.start()
        return self

    def here(self, text):
        """Text of the page with the addresses of this machine's cards."""
        for theirs, ours in self.addresses.items():
            text = text.replace(theirs, ours)
        return text

    async def systemctl(self, argv):
        assert argv == ["enable", "--now", "millraced"], argv
        with open(self.hosts["router"].file("/etc/millrace/millrace.yaml"), encoding="utf-8") as f:
            text = f.read()
        # The test's own control socket, and no wait for the check of addresses.
        self.router.yaml = lambda: text.replace("millrace:\n", f"millrace:\n  rpc: {{socket: {self.router.sock}}}\n")
        await self.router.start()
        return 0, ""

    async def lnetctl(self, argv):
        assert len(argv) == 2 and argv[0] == "ping", argv
        info = await self.client.ping(N.parse(argv[1]))
        return (0, "".join(f"-     nid: {n}\n" for n in info.statuses())) if info else (1, f"failed to ping {argv[1]}\n")


@only("nic")
@deadline(400)
async def test_page(env):
    """docs/nic-in-ten-minutes.md: each command, from cards without a driver and no hugepages to a routed ping."""
    site = await Site(env).build()
    steps = page.steps(PAGE)
    assert len(steps) >= 14 and any("doctor" in s.command for s in steps), steps
    with open(PAGE, encoding="utf-8") as f:
        config = re.search(r"```yaml\n(.*?)```", f.read(), re.S).group(1)
    site.hosts["router"].file("/etc/millrace/millrace.yaml", site.here(config))
    for step in steps:
        step.command, step.want = site.here(step.command), step.want and site.here(step.want)
        # A client that gave the router up while there was none asks it again a minute after its last ping has expired.
        said = await page.run_step(env, site.hosts, step, 150)
        if step.command == "millrace drops":
            assert said == "", said
    await env.bring_up(site.client, site.server)
    if env.cards.model == "virtio":     # qemu's other cards lose frames in pages of 2 MiB (lnetpy/cards.py)
        assert await both(site.client, site.server)
    await env.settle()
    for host in site.hosts.values():
        host.close()
