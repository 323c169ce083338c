# SPDX-License-Identifier: BSD-3-Clause
"""Without root: the only privilege host sockets need is CAP_NET_BIND_SERVICE, packet ports need CAP_NET_RAW."""

from lnetpy.scene import CLIENT, ROUTER, SERVER, join, line, traffic


def privileges(pid):
    """Effective user and capabilities of a process, from the kernel's own account of it."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        status = dict(row.split(":", 1) for row in f)
    return int(status["Uid"].split()[1]), int(status["CapEff"], 16), int(status["CapBnd"], 16)


async def test_accepts(env):
    """Nodes call a router that runs as nobody: port 988 is open, traffic passes both ways."""
    c, r, s = await line(env, router={"unprivileged": True})
    capability = 1 << (13 if env.transport == "port" else 10)   # net_raw, net_bind_service
    assert privileges(r.proc.pid) == (65534, capability, capability)
    await traffic(env, c, s, 200)
    await traffic(env, s, c, 200)


async def test_dials(env):
    """It calls the server itself, so from a port in 512..1023, which the server's acceptor demands."""
    r = await env.router("r", *ROUTER, unprivileged=True)
    c = await env.persona("c", CLIENT)
    s = await env.persona("s", SERVER)
    join(c, r, "tcp1")
    await env.bring_up(c)
    assert await c.put(s.nid, b"x" * 5000, ack=False)
    await env.until(lambda: s.conns(), "connections that the router dialled")
    await env.settle()
