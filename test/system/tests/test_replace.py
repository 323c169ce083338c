# SPDX-License-Identifier: BSD-3-Clause
"""docs/replace-a-kernel-router.md: each command of the page, with personas for client, server and kernel router."""

import os

from lnetpy import nid as N
from lnetpy import page
from lnetpy import router as R
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, deadline, join

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/replace-a-kernel-router.md")

# What the kernel router of the scene has, as its site would write it.
LNET_CONF = """\
# router: clients on tcp, servers on tcp1
net:
    - net type: tcp
      local NI(s):
        - interfaces:
              0: eth0
          tunables: {peer_credits: 8, credits: 256}
    - net type: tcp1
      local NI(s):
        - interfaces:
              0: eth1
routing:
    enable: 1
buffers: {tiny: 512, small: 512, large: 64}
"""
MODPROBE = "options lnet keepalive=60\noptions ksocklnd conns_per_peer=1\n"


class Site:
    """The machines of the page. The kernel's router and millraced take turns in the router's namespace."""

    def __init__(self, env):
        self.env = env
        self.kernel = self.millraced = None
        self.done = []

    async def build(self):
        env = self.env
        self.kernel = await env.router("r", *ROUTER, reference=True)
        self.client = await env.persona("c", CLIENT, check_interval=1.0, transaction_timeout=3.0)
        self.server = await env.persona("s", SERVER, check_interval=1.0, transaction_timeout=3.0)
        join(self.client, self.kernel, "tcp1")
        join(self.server, self.kernel, "tcp")
        await env.bring_up(self.client, self.server)
        ns = env.fabric.host("r")
        self.millraced = R.Millraced(env, "r", ns, [N.parse(n) for n in ROUTER])
        env.routers.append(self.millraced)
        router = page.Host(env, ns, {"lnetctl": self.export, "systemctl": self.systemctl, "modprobe": self.nothing,
                                     "lustre_rmmod": self.nothing, "lsmod": self.lsmod}, self.millraced.sock)
        router.file("/etc/lnet.conf", LNET_CONF)
        router.file("/etc/modprobe.d/lustre.conf", MODPROBE)
        self.hosts = {"router": router,
                      "client": page.Host(env, self.client.ns, {"lnetctl": self.lnetctl(self.client)}),
                      "server": page.Host(env, self.server.ns, {"lnetctl": self.lnetctl(self.server)})}
        for host in self.hosts.values():
            await host.start()
        return self

    # ------------------------------------------------------------ programs of the router

    async def nothing(self, argv):
        assert not self.kernel or self.kernel.node.stopped, "the modules cannot go or come while the kernel's router runs"
        return 0, ""

    async def export(self, argv):
        assert argv == ["export", "--backup"], argv
        return 0, LNET_CONF

    async def lsmod(self, argv):
        return 0, "Module Size Used by\n" + ("" if self.kernel.node.stopped else "lnet 1 0\n")

    async def systemctl(self, argv):
        self.done.append(" ".join(argv))
        if argv == ["disable", "--now", "lnet"]:
            await self.kernel.stop()
        elif argv == ["enable", "--now", "lnet"]:
            await self.start_kernel()
        elif argv == ["enable", "--now", "millraced"]:
            await self.start_millraced()
        elif argv == ["disable", "--now", "millraced"]:
            await self.millraced.stop()
        else:
            return 1, f"no such unit: {argv}"
        return 0, ""

    def takes_over(self, spec):
        """Another program has the NIDs: it is judged as what it is."""
        for node in (self.client, self.server):
            node.judge.know(spec)

    async def start_kernel(self):
        env = self.env
        assert self.millraced.proc.poll() is not None, "millraced still runs"
        self.kernel = R.Reference(env, "r", env.fabric.host("r"), self.millraced.nids)
        env.routers.append(self.kernel)
        self.takes_over(self.kernel.spec)
        await self.kernel.start()

    async def start_millraced(self):
        assert self.kernel.node.stopped, "the kernel's router still runs"
        with open(self.hosts["router"].file("/etc/millrace/millrace.yaml"), encoding="utf-8") as f:
            text = f.read()
        assert "millrace:" not in text, text
        # what a package's unit would set, and the test's own control socket
        self.millraced.yaml = lambda: f"{text}millrace:\n  memory: 256\n  rpc: {{socket: {self.millraced.sock}}}\n"
        self.takes_over(self.millraced.spec)
        await self.millraced.start()

    # ------------------------------------------------------------ lnetctl of end nodes

    def lnetctl(self, node):
        async def run(argv):
            if argv == ["route", "show", "-v"]:
                up = all(node.route_alive(r) for r in node.routes)
                return 0, f"route:\n-     state: {'up' if up else 'down'}\n"
            assert len(argv) == 2 and argv[0] == "ping", argv
            info = await node.ping(N.parse(argv[1]))
            if not info:
                return 1, f"failed to ping {argv[1]}\n"
            return 0, "".join(f"-     nid: {n}\n" for n in info.statuses())
        return run


async def traffic(env, site):
    """PUT and GET of 4 KiB and 1 MiB, both ways."""
    for a, b in ((site.client, site.server), (site.server, site.client)):
        for size in (4096, 1 << 20):
            assert await a.put(b.nid, pattern(size, size)) and await a.get(b.nid, size), (a.name, size)
    await env.settle()


@deadline(150)
async def test_page(env):
    """Before, during, after, roll back. Traffic flows where the page says so, and only there."""
    env.need_millrace()
    site = await Site(env).build()
    for spec in (site.kernel.spec, site.millraced.spec):
        spec.allow_none = spec.any_type = spec.allow_rst = True     # nodes and the router connect at the same time
    steps = page.steps(PAGE)
    assert [s.section for s in steps] == sorted((s.section for s in steps), key=["Before", "During", "After", "Roll back"].index)
    assert len(steps) >= 20, steps
    await traffic(env, site)
    for i, step in enumerate(steps):
        if "drops" in step.command:
            assert await page.run_step(env, site.hosts, step) == "", "nothing is dropped"
        else:
            await page.run_step(env, site.hosts, step)
        if i + 1 == len(steps) or steps[i + 1].section != step.section:
            env.log(f"-- end of {step.section}")
            if step.section in ("Before", "After", "Roll back"):
                await traffic(env, site)
        if step.section == "During" and step.want == "state: down":
            assert not await site.client.put(site.server.nid, b"x"), "the client has no way while nobody routes"
        if step.section == "After" and step.command.startswith("millrace stats"):
            assert (await site.millraced.stats())["route_count"] > 0
    assert site.done == ["disable --now lnet", "enable --now millraced", "disable --now millraced", "enable --now lnet"], site.done
    for host in site.hosts.values():
        host.close()
