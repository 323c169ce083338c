# SPDX-License-Identifier: BSD-3-Clause
"""millrace-perf as end node on either side of the router, and opposite a kernel persona."""

import json
import os
import signal
import subprocess

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.env import Failed
from lnetpy.router import find_program
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, deadline, join


class Perf:
    """One millrace-perf process in a namespace."""

    def __init__(self, env, name, *args, run_by=()):
        self.env, self.name = env, name
        argv = [*run_by, find_program(env.build, "millrace-perf"), "--json", *map(str, args)]
        self.proc = env.fabric.host(name).popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                                stderr=subprocess.PIPE)
        for f in (self.proc.stdout, self.proc.stderr):
            os.set_blocking(f.fileno(), False)
        self.out = self.err = b""

    def _read(self):
        self.out += self.proc.stdout.read() or b""
        self.err += self.proc.stderr.read() or b""

    async def said(self, text, timeout=20):
        async def look():
            self._read()
            if self.proc.poll() is not None:
                raise Failed(f"{self.name} ended with {self.proc.returncode}: {self.err.decode()[-500:]}")
            return text.encode() in self.err + self.out
        await self.env.until_async(look, f"{self.name} says {text!r}", timeout)

    async def result(self, timeout):
        async def ended():
            self._read()
            return self.proc.poll() is not None
        await self.env.until_async(ended, f"{self.name} ends", timeout)
        self._read()
        if self.proc.returncode != 0:
            raise Failed(f"{self.name}: exit code {self.proc.returncode}: {(self.err + self.out).decode()[-700:]}")
        return json.loads(self.out)

    async def stop(self):
        self.proc.send_signal(signal.SIGINT)
        return await self.result(15)

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()


class EndNode(Perf):
    """A node with one NID, on a host of its own."""

    def __init__(self, env, name, nid, route, *args, run_by=()):
        self.nid = N.parse(nid)
        if name not in env.fabric.hosts:
            env.fabric.attach(name, N.net_str(self.nid.net), "eth0", self.nid.ip)
        super().__init__(env, name, "--nid", nid, "--route", route, *args, run_by=run_by)


@deadline(90)
@cases("ping", "put", "get", "both")
async def test_through_the_router(env, command):
    """10,000 messages of mixed sizes through the router, content checked at the receiver."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    server = EndNode(env, "s", SERVER, f"tcp {ROUTER[1]}", "server")
    await server.said(f"serving on {SERVER}")
    count = 50 if command == "ping" else 2500
    args = ("--count", count) if command == "ping" else ("--count", count, "--size", "mix")
    client = EndNode(env, "c", CLIENT, f"tcp1 {ROUTER[0]}", *args, command, SERVER)
    await client.result(70)
    await server.stop()
    drops = await r.drops()
    assert not any(drops.values()), {k: v for k, v in drops.items() if v}
    stats = await r.stats()
    assert stats["route_count"] >= 2 * count and stats["drop_count"] == 0, stats


async def test_opposite_a_persona(env):
    """A kernel persona asks a millrace-perf node for its ping info through the router."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    server = EndNode(env, "s", SERVER, f"tcp {ROUTER[1]}", "server")
    await server.said(f"serving on {SERVER}")
    c = await env.persona("c", CLIENT)
    join(c, r, "tcp1")
    await env.bring_up(c)
    handle = c.handle()
    hdr = wire.Header(server.nid, c.nid, wire.GET, 0, wire.get_union(handle, wire.PING_MATCH, 0, 3960))
    # The end node is no persona: what it must answer is put into the ledger here.
    info = wire.PingInfo(0x1e, 1, [(server.nid, wire.UP)])
    body = info.pack()
    want = wire.Header(c.nid, server.nid, wire.REPLY, len(body), wire.reply_union(handle))
    for seq in range(1, 4):
        env.ledger.register(want, wire.PingInfo(info.features, seq, info.nis).pack())
    c.nis[0].send_message(r.nids[0], hdr, b"")
    await env.until(lambda: env.ledger.received == 1, "the end node's REPLY, byte for byte")
    env.ledger.forget(lambda e: True)
    await server.stop()
