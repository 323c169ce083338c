# SPDX-License-Identifier: BSD-3-Clause
"""The surroundings of a test in the guest: the machine's own namespace, where RDMA devices are, beside others for tcp nodes."""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system"))

from iblnd import rdma                                      # noqa: E402
from iblnd.persona import IbNode                            # noqa: E402
from lnetpy import nid as N                                 # noqa: E402
from lnetpy import netns                                    # noqa: E402
from lnetpy import env as lnetpy_env                        # noqa: E402

# Addresses of the devices (rxe.sh), and who has which.
ROUTER, ROUTER1 = "10.77.0.1@o2ib", "10.77.0.3@o2ib1"
CLIENT, SERVER1 = "10.77.0.2@o2ib", "10.77.0.4@o2ib1"
TCP_ROUTER, TCP_SERVER = "10.78.0.1@tcp", "10.78.0.2@tcp"


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


class Env(lnetpy_env.Env):
    def __init__(self, build, **kw):
        super().__init__(build, **kw)
        self.fabric.hosts["r"] = Machine("r")
        rdma.load(build)

    async def ib(self, name, nid, profile="k217", start=True, **kw):
        """A kernel node on a verbs net."""
        node = IbNode(self, name, N.parse(nid), lnetpy_env.PROFILES[profile], **kw)
        for spec in {id(r.spec): r.spec for r in self.routers}.values():
            node.judge.know(spec)
        self.nodes.append(node)
        if start:
            await node.start()
        return node

    def prepare(self, name, *nids, **kw):
        """The interfaces of verbs nets are there already."""
        verbs = [n for n in nids if "@o2ib" in n]
        attach, self.fabric.attach = self.fabric.attach, lambda *_, **__: None
        try:
            router = super().prepare(name, *nids, **kw)
        finally:
            self.fabric.attach = attach
        for i, n in enumerate(nids):
            if n not in verbs:
                self.fabric.attach(name, N.net_str(N.parse(n).net), f"eth{i}", f"{N.parse(n).ip}/24")
        return router

    async def quiet(self, seconds):
        """Nothing has happened that is no problem of its own; some protocol time has passed."""
        end = time.monotonic() + seconds
        await self.until(lambda: time.monotonic() >= end, "time", seconds + 5)
