# SPDX-License-Identifier: BSD-3-Clause
"""Sections of docs that tell steps: each command as it stands there."""

import asyncio
import os
import re
import signal
import tempfile

from lnetpy import page
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, deadline, line, only

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs")
DISSECTOR = "/usr/local/share/millrace/wireshark/millrace.lua"


def section(name, heading):
    """The text of a section of a page."""
    with open(os.path.join(DOCS, name), encoding="utf-8") as f:
        return re.search(rf"(?ms)^(#+) {heading}\n(.*?)(?=^#+ |\Z)", f.read())[2]


def steps(name, heading, *hosts):
    """The steps of a section that are for these hosts."""
    found = [s for s in page.steps(os.path.join(DOCS, name)) if s.section == heading and s.host in hosts]
    assert found, f"{name} has no steps below {heading}"
    return found


async def follow(env, c, r, s, todo):
    """Takes the steps on the router while messages pass it both ways. Returns the host of the page."""
    host = await page.Host(env, r.ns, {}, r.sock).start()
    ended = asyncio.Event()

    async def talk():
        while not ended.is_set():
            assert await c.put(s.nid, pattern(1, 5000)) and await s.get(c.nid, 3000)
            await asyncio.sleep(0.01)
    traffic = c.task(talk())
    for step in todo:
        step.command = step.command.replace(DISSECTOR, os.path.join(os.path.abspath(env.build), "config/wireshark/millrace.lua"))
        await page.run_step(env, {step.host: host}, step, 20)
    ended.set()
    await env.until(traffic.done, "the last message")
    await traffic
    return host


@only("kernel", "port")
@deadline(90)
async def test_wireshark(env):
    """operations.md, Packets in Wireshark: a capture on a router of either kind, and what tshark shows of it; filters and options."""
    env.need_millrace()
    host = await follow(env, *await line(env), steps("operations.md", "Packets in Wireshark", "desk",
                                                     "ports" if env.transport == "port" else "sockets"))
    text = section("operations.md", "Packets in Wireshark")
    filters = re.findall(r"`((?:socklnd|o2iblnd|lnetmsg|lnetping)\.[^`]*)`", text)
    options = re.findall(r"`(-[od] [^`]*)`", text)
    assert len(filters) >= 8 and len(options) == 3, (filters, options)
    for words in (f"-Y '{filters[0]}'", "-Y 'socklnd.malformed || lnetmsg.malformed'", " ".join(options) + f" -Y '{' || '.join(filters)}'"):
        status, said = await host.run(f"tshark -n -r /root/oss1.pcapng {words}")
        assert status == 0 and "Lua Error" not in said and ("PUT" in said) != ("-Y 'socklnd.m" in words), (words, said[-500:])
    await env.settle()
    host.close()


@only("port")
@deadline(90)
@cases("Packets", "Faults on purpose")
async def test_commands(env, heading):
    """The examples of cli.md for ports."""
    env.need_millrace()
    host = await follow(env, *await line(env), steps("cli.md", heading, "ports"))
    await env.settle()
    host.close()


@deadline(60)
@cases("JSON-RPC", "Telemetry")
async def test_sockets(env, heading):
    """The control socket with nothing but a shell, and DPDK's socket with its own tool."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, extra="  telemetry: true\n")

    async def pidof(argv):
        return 0 if argv == ["millraced"] else 1, f"{r.proc.pid}\n"    # other tests have a millraced, too
    host = await page.Host(env, r.ns, {"pidof": pidof}, r.sock).start()
    for step in steps("jsonrpc.md" if heading == "JSON-RPC" else "operations.md", heading, "router"):
        await page.run_step(env, {"router": host}, step, 20)
    host.close()


@only("kernel", "port")
@deadline(120)
async def test_millrace_perf(env):
    """performance.md, millrace-perf: the server and each client, for a short time and at a rate that a small machine can carry."""
    env.need_millrace()
    todo = steps("performance.md", "millrace-perf: the end node", "server", "client")
    r = await env.router("r", *ROUTER)
    hosts = {}
    for name, nid in (("server", SERVER), ("client", CLIENT)):
        net, address = ("tcp1", "10.0.1.2") if nid == SERVER else ("tcp", "10.0.0.2")
        env.fabric.attach(name, net, "eth0", address)
        hosts[name] = await page.Host(env, env.fabric.host(name), {}).start()
    with tempfile.TemporaryFile() as out:
        server = hosts["server"].begin(todo[0].command, out)

        def said():
            return todo[0].want in os.pread(out.fileno(), 4096, 0).decode()
        await env.until(said, f"{todo[0].command}: {todo[0].want}")
        for step in todo[1:]:
            step.command = step.command.replace("--seconds 60", "--seconds 3").replace("--rate 5000", "--rate 100")
            await page.run_step(env, hosts, step, 20)
        server.send_signal(signal.SIGINT)
        await env.until(lambda: server.poll() is not None, "the server's end")
        assert server.returncode == 0, os.pread(out.fileno(), 4096, 0)
        lost = {k: n for k, n in (await r.drops()).items() if n}
        assert not lost, lost
    with open(hosts["client"].file("/root/run.csv"), encoding="utf-8") as f:
        assert len(f.readlines()) > 3
    for host in hosts.values():
        host.close()


def carried(ns, ifname):
    """(received, sent): bytes that an interface carried."""
    with ns.open("/proc/thread-self/net/dev") as f:
        row = next(line.split() for line in f if line.strip().startswith(ifname + ":"))
    return int(row[1]), int(row[9])


@only("kernel")
@deadline(60)
async def test_one_subnet(env):
    """operations.md, Several NIs on one subnet: both NIs get connections to their own address by their own interface, connect by
    it, and each link carries what its own NI carries."""
    env.need_millrace()
    todo = steps("operations.md", "Several NIs on one subnet", "rails")
    before = [s for s in todo if not re.match("ss |ip neigh", s.command)]
    r = env.prepare("r", "10.0.0.1@tcp", "10.0.0.2@tcp")
    r.ns.ip("link set eth0 down\nlink set eth1 down\nlink set eth0 up\nlink set eth1 up")     # no ARP of before
    host = await page.Host(env, r.ns, {}, r.sock).start()
    for step in before:
        await page.run_step(env, {"rails": host}, step, 5)
    await r.start()
    for i, nid in enumerate(r.nids):        # a peer for each NI connects to it, and the router connects to another one by it
        c = await env.persona(f"c{i}", f"10.0.0.{11 + i}@tcp")
        d = await env.persona(f"d{i}", f"10.0.0.{21 + i}@tcp")
        r.spec.allow_none = r.spec.any_type = True
        r.spec.gateways, r.spec.ping_sinks = {c.nid, d.nid}, {3960}
        assert await c.ping(nid, timeout=10)
        assert (await r.rpc("ping", nid=str(d.nid), source=str(nid), timeout_ms=10000))["ping"]
        was = [carried(r.ns, f"eth{n}") for n in range(2)]
        for n in range(300):
            assert await c.ping_get(nid, 272, timeout=5), n
            await r.rpc("ping", nid=str(d.nid), source=str(nid))
        more = [[b - a for a, b in zip(x, carried(r.ns, f"eth{n}"))] for n, x in enumerate(was)]
        env.result(f"{nid}: bytes received and sent: eth0 {more[0]}, eth1 {more[1]}")
        assert min(more[i]) > 20 * max(more[1 - i]), f"{nid}: eth0 {more[0]}, eth1 {more[1]}"
    for step in todo[len(before):]:
        await page.run_step(env, {"rails": host}, step, 5)
    host.close()
