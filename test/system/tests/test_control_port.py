# SPDX-License-Identifier: BSD-3-Clause
"""What is shown of ports while they carry traffic: methods as rpc.discover says, captures, reasons of drops, links."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys

from lnetpy import pcap, wire
from lnetpy.control import Schemas, clients
from lnetpy.router import find_program
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, deadline, join, line, only, traffic

# What each method is called with so that it succeeds, with two ports.
GOOD = [
    ("port_get", None), ("port_get", {"name": "eth0"}), ("port_get", {"name": "eth1", "xstats": True}),
    ("arp_get", None), ("arp_get", {"interface": "eth0"}), ("arp_get", {"address": "10.0.0.2"}), ("arp_get", {"limit": 1}),
    ("tcp_get", None), ("tcp_get", {"limit": 1}), ("tcp_get", {"peer": "10.0.0.2@tcp", "state": "established"}),
    ("tcp_stats_get", None), ("pkt_drops_get", None), ("buffers_get", None), ("drops_get", None),
    ("tamper_set", {"port": "eth0", "direction": "in", "delay_ms": 0.5, "peer": "10.0.0.99"}), ("tamper_get", None),
    ("tamper_clear", {"port": "eth0"}), ("tamper_clear", None),
    ("capture_start", {"peer": "10.0.0.2", "drops": True, "packets": 50}), ("capture_get", {"id": "OF capture_start"}),
    ("capture_stop", {"id": "OF capture_start"}),
]
# method: parameters that are refused, with the error
REFUSED = [
    ("port_get", {"name": "nosuch"}, -2), ("tcp_get", {"peer": "nonsense"}, -32602), ("arp_get", {"address": "1.2.3"}, -32602),
    ("tcp_get", {"limit": 0}, -32602), ("tcp_get", {"tcp_port": 65536}, -32602), ("capture_get", {"id": "0"}, -2),
    ("capture_stop", {"id": "0"}, -2), ("capture_start", {"port": "nosuch"}, -2),
    ("capture_start", {"reason": "nosuch"}, -22), ("tamper_set", {"burst_begin": 1}, -22), ("tamper_clear", {"port": "nosuch"}, -2),
]


def busy(env, c, s, count=400):
    """Traffic both ways, as tasks."""
    return [c.task(traffic(env, a, b, count, workers=8, seed=7, big=0.01, timeout=50)) for a, b in ((c, s), (s, c))]


@only("port")
@deadline(60)
async def test_every_method(env):
    """Each method of ports succeeds under traffic, its result is as the schema says; what is wrong is refused."""
    c, r, s = await line(env)
    tasks = busy(env, c, s)
    bad = []
    async with clients(r) as client:
        schemas = await Schemas.of(client)
        capture = None
        for method, params in GOOD:
            params = {k: capture if v == "OF capture_start" else v for k, v in params.items()} if params else None
            a = await client.ask(method, params)
            if a.error:
                bad.append(f"{method} {params}: {a.error}")
                continue
            capture = a.result.get("id", capture)
            bad += [f"{method} {params}: {f}" for f in schemas.faults(method, a.result)]
        for _ in range(16):
            await client.call("tamper_set", port="eth1", direction="in", add=True, loss=100, peer="10.0.0.99")
        for method, params, code in [*REFUSED, ("tamper_set", {"port": "eth1", "direction": "in", "add": True, "loss": 1}, -28)]:
            a = await client.ask(method, params)
            if not a.error or a.error["code"] != code:
                bad.append(f"{method} {params}: {a.error or a.result}, not {code}")
        assert await client.call("tamper_clear") == {"removed": 16}
    assert not bad, f"{len(bad)}: " + "\n".join(bad[:20])
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 40)


async def paged(client, limit, **match):
    """Rows of tcp_get in pages of at most so many."""
    rows, more = [], {}
    while True:
        page = await client.call("tcp_get", limit=limit, **match, **more)
        assert len(page["tcp"]) <= limit, page
        rows += page["tcp"]
        if "cursor" not in page:
            return rows
        more = {"cursor": page["cursor"]}


@only("port")
@deadline(60)
async def test_connections(env):
    """tcp_get has each connection once, however small its pages are, and only those that are asked for."""
    c, r, s = await line(env)
    assert await c.ping(r.nids[0]) and await s.ping(r.nids[1])

    def ends(rows):
        return sorted((x["local"], x["lport"], x["remote"], x["rport"]) for x in rows)
    async with clients(r) as client:
        rows = await paged(client, 100)
        assert len(rows) == len(set(ends(rows))) == len(c.conns()) + len(s.conns()), rows
        for limit in (1, 2, 5):
            assert ends(await paged(client, limit)) == ends(rows)
        mine = await paged(client, 2, peer=CLIENT)
        assert ends(mine) == ends(x for x in rows if x["remote"] == "10.0.0.2") and len(mine) == len(c.conns()), mine
        assert ends(await paged(client, 3, peer="10.0.1.2", state="established")) == \
            ends(x for x in rows if x["remote"] == "10.0.1.2")
        assert not await paged(client, 3, peer="10.0.0.77") and not await paged(client, 3, state="close_wait", peer=SERVER)
        for x in rows:
            assert 500 < x["mss"] <= 1460 and x["cwnd"] >= x["mss"] and x["srtt_us"] > 0 and x["rto_us"] >= 200000, x
            assert x["sack"] and x["timestamps"] and x["rcv_wnd"] > 0 and x["bytes_in"] > 0, x
        near = {x["address"]: x for x in (await client.call("arp_get"))["arp"]}
        assert {"10.0.0.2", "10.0.1.2"} <= set(near) and all("mac" in near[a] for a in ("10.0.0.2", "10.0.1.2")), near
        before, after = [(await client.call("tcp_stats_get"))["reactors"], None]
        assert await c.ping(r.nids[0])
        after = (await client.call("tcp_stats_get"))["reactors"]
        for part, key in (("ip", "rx_packets"), ("ip", "tx_packets"), ("tcp", "segs_in"), ("tcp", "segs_out"), ("tcp", "bytes_in")):
            assert sum(x[part][key] for x in after) > sum(x[part][key] for x in before), (part, key)


class Capture:
    """`millrace capture` to a file."""

    def __init__(self, env, r, *args):
        self.path = os.path.join(r.dir.name, "capture.pcapng")
        self.logged = r.text().count("capture_start")
        self.proc = subprocess.Popen([find_program(env.build, "millrace"), "--socket", r.sock, "capture", "-w", self.path, *args],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    async def began(self, env, r):
        """The router has begun to copy packets, which its log says."""
        def it():
            assert self.proc.poll() is None, self.proc.communicate()
            return r.text().count("capture_start") > self.logged
        await env.until(it, "a capture")

    async def end(self, env, terminate=True):
        if terminate:
            self.proc.terminate()
        await env.until(lambda: self.proc.poll() is not None, "the end of the capture")
        out, err = self.proc.communicate()
        assert self.proc.returncode == 0, err
        return out + err

    def packets(self):
        """(link type, bytes) of each, by a reader of our own; tshark, where it is, must find as many and nothing wrong."""
        mine = [(link, data) for _, link, data in pcap.packets(self.path)]
        if shutil.which("tshark"):
            p = subprocess.run(["tshark", "-r", self.path, "-T", "fields", "-e", "frame.number", "-e", "frame.comment"],
                               capture_output=True, text=True, timeout=30)
            assert p.returncode == 0 and len(p.stdout.splitlines()) == len(mine), (p.stdout[-500:], p.stderr, len(mine))
        return mine


@only("port")
@deadline(60)
@cases("bounded", "until told")
async def test_capture(env, how):
    """A capture of one peer while others talk too has only its packets, headers alone, and ends when it should."""
    c, r, s = await line(env)
    cap = Capture(env, r, "--peer", "10.0.0.2", *(["--packets", "100"] if how == "bounded" else []))
    await cap.began(env, r)
    tasks = busy(env, c, s, 150)
    if how == "until told":
        await env.until(lambda: all(t.done() for t in tasks), "traffic", 40)
    said = await cap.end(env, how != "bounded")
    found = cap.packets()
    assert len(found) == 100 if how == "bounded" else len(found) > 100, (len(found), said)
    for link, data in found:
        assert link == pcap.LINK_ETHERNET and data[12:14] == b"\x08\x00" and bytes((10, 0, 0, 2)) in (data[26:30], data[30:34])
        # Ethernet, IP, TCP with options: no payload
        assert data[23] != 6 or len(data) <= 14 + 20 + 60, (len(data), data.hex())
    assert {data[26:30] for _, data in found} == {bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))}
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 40)
    env.result(said.strip())


@only("port")
@deadline(60)
async def test_capture_dissected(env):
    """tshark with the Lua dissector shows each message in a capture, with its fields, both ways, and calls none malformed."""
    c, r, s = await line(env)
    cap = Capture(env, r, "--peer", "10.0.0.2", "--snap", "65535", "--buffer-kb", "4096")
    await cap.began(env, r)
    sizes = [0, 100, 4096, 65536, 300000]
    for size in sizes:
        assert await c.put(s.nid, bytes(size), ack=True)
        assert await s.put(c.nid, bytes(size), ack=True)
    assert await c.ping(r.nids[0])
    await asyncio.sleep(0.5)    # the last of them are in the file
    said = await cap.end(env)
    assert " 0 missed" in said, said
    lua = os.path.join(env.build, "config", "wireshark", "millrace.lua")
    p = subprocess.run(["tshark", "-n", "-2", "-r", cap.path, "-X", f"lua_script:{lua}", "-o", "tcp.reassemble_out_of_order:TRUE",
                        "-Y", "socklnd", "-T", "fields", "-E", "separator=|", "-e", "lnetmsg.type", "-e", "lnetmsg.src_nid",
                        "-e", "lnetmsg.payload_length", "-e", "lnetping.features", "-e", "socklnd.malformed",
                        "-e", "lnetmsg.malformed", "-e", "lnetping.malformed", "-e", "_ws.lua.error"],
                       capture_output=True, text=True, timeout=30)
    assert p.returncode == 0 and "Lua Error" not in p.stdout + p.stderr, (p.stderr, p.stdout[-500:])
    shown, pings = [], 0
    for types, nids, lengths, features, *wrong in (text.split("|") for text in p.stdout.splitlines()):
        assert not any(wrong), (types, nids, wrong)
        shown += zip(types.split(","), nids.split(","), lengths.split(","))
        pings += features.count("0x")
    for kind, src, lengths in (("1", CLIENT, sizes), ("1", SERVER, sizes), ("0", CLIENT, [0] * 5), ("0", SERVER, [0] * 5)):
        found = sorted(int(length) for k, n, length in shown if (k, n) == (kind, src))
        assert [x for x in found if x in lengths] == lengths, (kind, src, found)
    assert ("2", CLIENT, "0") in shown and pings > 0, (shown, pings)
    env.result(f"{len(shown)} messages, {said.strip()}")


# Segments to port 988 with a wrong checksum, from the kernel's raw socket.
BAD = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
for i in range(int(sys.argv[2])):
    s.sendto(struct.pack("!HHIIBBHHH", 4000 + i, 988, 7, 9, 0x50, 0x10, 512, 0xbad, 0), (sys.argv[1], 988))
"""


@only("port")
@deadline(60)
async def test_reasons(env):
    """What is dropped is counted and captured with its reason, and costs nobody anything."""
    c, r, _ = await line(env)

    async def count(reason):
        return {x["name"]: x["count"] for x in (await r.rpc("pkt_drops_get"))["drops"]}[reason]
    before = await count("tcp_csum")
    cap = Capture(env, r, "--reason", "tcp_csum")
    await cap.began(env, r)
    p = c.ns.popen([sys.executable, "-c", BAD, "10.0.0.1", "7"], stderr=subprocess.PIPE, text=True)
    err = p.communicate(timeout=20)[1]
    assert p.returncode == 0, err

    async def counted():
        return await count("tcp_csum") == before + 7
    await env.until_async(counted, "seven bad segments counted")
    await asyncio.sleep(0.5)
    said = await cap.end(env)
    found = cap.packets()
    assert len(found) == 7, (len(found), said)
    assert sorted(int.from_bytes(data[34:36], "big") for _, data in found) == list(range(4000, 4007))
    with open(cap.path, "rb") as f:
        assert f.read().count(b"tcp_csum") >= 7     # each packet's comment
    assert await c.ping(r.nids[0])


@only("port")
@deadline(60)
async def test_link(env):
    """A link that goes and comes is seen in port_get and is the status of the NI; the other port has no part in it."""
    c, r, s = await line(env)
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)

    async def shown():
        ports = {x["name"]: x["link"] for x in (await r.rpc("port_get"))["port"]}
        nis = {ni["nid"]: ni["status"] for net in (await r.rpc("net_get"))["net"] for ni in net["local NI(s)"]}
        return ports["eth0"], ports["eth1"], nis[ROUTER[0]], nis[ROUTER[1]]

    async def becomes(*want):
        async def it():
            return await shown() == want
        await env.until_async(it, f"links and NIs {want}", 15)
    await becomes("up", "up", "up", "up")
    for _ in range(2):
        env.fabric.link(env.fabric.ports["r", "eth1"], False)
        await becomes("up", "down", "up", "down")
        assert await c.ping(r.nids[0])
        env.fabric.link(env.fabric.ports["r", "eth1"], True)

        async def back():
            await s.ping_get(r.nids[1], 272, timeout=2)
            return await shown() == ("up", "up", "up", "up")
        await env.until_async(back, "up again", 20, 0.5)


class Told:
    """Events of ports, in the order in which they come."""

    def __init__(self, client):
        self.client, self.at = client, 0

    @classmethod
    async def of(cls, client, *types, **kw):
        await client.call("events_subscribe", types=list(types), **kw)
        return cls(client)

    async def next(self, kind, timeout=10.0, **members):
        e = await self.client.event(lambda e: e["type"] == kind, f"event {kind}", timeout, self.at)
        self.at = self.client.events.index(e) + 1
        wrong = {k: (e.get(k), v) for k, v in members.items() if e.get(k) != v}
        assert not wrong and e["text"] and e["cause"], (wrong, e)
        return e


@only("port")
@deadline(60)
async def test_events_link(env):
    """A cable that is pulled, and an interface that somebody sets down, are told with their causes, before the NI that they take."""
    c, r, s = await line(env)
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)
    async with clients(r) as client:
        schemas = await Schemas.of(client)
        begun = (await client.call("events_get"))["events"]
        assert {e["port"] for e in begun if e["type"] == "port_up" and e["cause"] == "start"} == {"eth0", "eth1"}, begun
        told = await Told.of(client, "port_up", "port_down", "ni_down")
        env.fabric.link(env.fabric.ports["r", "eth1"], False)
        await told.next("port_down", port="eth1", state="down", cause="no_carrier")
        await told.next("ni_down", nid=ROUTER[1])
        env.fabric.link(env.fabric.ports["r", "eth1"], True)
        await told.next("port_up", port="eth1", state="up", cause="link_back")
        r.ns.ip("link set eth1 down")
        await told.next("port_down", port="eth1", cause="interface_down")
        r.ns.ip("link set eth1 up")
        await told.next("port_up", port="eth1", state="up")
        assert not schemas.faults("events_get", await client.call("events_get"))
        assert not [e for e in client.events if e.get("port") == "eth0"], client.events
    for word in ("warning events event=port_down port=eth1", "info events event=port_up port=eth1"):
        assert word in r.text(), r.tail(20)
    assert await c.ping(r.nids[0])


@only("port")
@deadline(60)
@cases("gone", "down", "small", "no Ethernet")
async def test_late_interface(env, how):
    """Without the interface of one port the other routes; the one that comes is taken, but not with a smaller MTU, and not one of
    another kind."""
    env.need_millrace()
    r = env.prepare("r", *ROUTER)
    hide, show = {"gone": ("link set eth1 down\nlink set eth1 name hidden", "link set hidden name eth1\nlink set eth1 up"),
                  "down": ("link set eth1 down", "link set eth1 up"),
                  "small": ("link set eth1 down\nlink set eth1 name hidden",
                            "link set hidden name eth1 mtu 1400\nlink set eth1 up"),
                  "no Ethernet": ("link set eth1 down\nlink set eth1 name hidden", "tuntap add dev eth1 mode tun\nlink set eth1 up")}[how]
    r.ns.ip(hide)
    await r.start()
    r.spec.set_status(r.nids[1], wire.UP, wire.DOWN)
    c, s = await env.persona("c", CLIENT), await env.persona("s", SERVER)
    join(c, r, "tcp1")
    join(s, r, "tcp")
    assert await c.ping(r.nids[0])
    assert "warning millraced event=port_waits port=eth1 device=eth1" in r.text(), r.tail(20)
    async with clients(r) as client:
        begun = (await client.call("events_get"))["events"]
        cause = "interface_down" if how == "down" else "no_interface"
        assert ("eth1", cause) in {(e["port"], e["cause"]) for e in begun if e["type"] == "port_down"}, begun
        told = await Told.of(client, "port_up", "port_down")
        r.ns.ip(show)
        if how in ("small", "no Ethernet"):
            await asyncio.sleep(1)
            assert not client.events, client.events
            r.ns.ip("link set eth1 mtu 1500" if how == "small" else
                    "link del eth1\nlink set hidden name eth1\nlink set eth1 up")
        await told.next("port_up", port="eth1", state="up", cause="link_back")
    await env.bring_up(c, s)
    assert await c.put(s.nid, pattern(1, 100000)) and await s.get(c.nid, 70000)


@only("port")
async def test_no_interface(env):
    """A start is refused while no port has its interface."""
    env.need_millrace()
    r = env.prepare("r", *ROUTER)
    for name in ("eth0", "eth1"):
        r.ns.ip(f"link set {name} down\nlink set {name} name hidden{name}")
    try:
        await r.start()
    except RuntimeError as e:
        assert "ended with 1" in str(e) and "there is no device eth1" in str(e), e
    else:
        raise AssertionError("it started")
    r.ns.ip("link set hiddeneth0 name eth0\nlink set eth0 up")
    await r.start()


@only("port")
@deadline(60)
async def test_events_conflict(env):
    """A host with the router's address is told of with its MAC, at most once in ten seconds; the address stays the router's."""
    c, r, _ = await line(env)
    async with clients(r) as client:
        told = await Told.of(client, "address_conflict", "address_ready", nids=[ROUTER[0]])
        assert await c.ping(r.nids[0])
        env.fabric.attach("thief", "tcp", "eth0", "10.0.0.1/24")
        show = env.fabric.host("thief").popen(["ip", "-j", "link", "show", "eth0"], stdout=subprocess.PIPE, text=True)
        mac = json.loads((await asyncio.to_thread(show.communicate))[0])[0]["address"]
        sock = env.fabric.host("thief").socket()
        sock.setblocking(False)
        sock.connect_ex(("10.0.0.77", 9))   # its kernel asks for that neighbour, once a second
        e = await told.next("address_conflict", interface="eth0", port="eth0", address="10.0.0.1", cause="used_by_another",
                            state="defended")
        assert e["mac"].lower() == mac, (e, mac)
        sock.close()
        await asyncio.sleep(10.5)
        sock = env.fabric.host("thief").socket()
        sock.setblocking(False)
        sock.connect_ex(("10.0.0.78", 9))
        await told.next("address_conflict", address="10.0.0.1", cause="used_by_another", state="defended")
        sock.close()
        env.fabric.host("thief").ip("link set eth0 down")
        assert await c.ping(r.nids[0])
        assert not [e for e in client.events if e["address"] != "10.0.0.1"], client.events
    assert "warning events event=address_conflict port=eth0 interface=eth0 address=10.0.0.1" in r.text(), r.tail(20)


@only("port")
@deadline(60)
async def test_events_black_hole(env):
    """A path that swallows large packets is found, told with the address and the size used instead, and messages go on."""
    c, r, s = await line(env)
    async with clients(r) as client:
        schemas = await Schemas.of(client)
        told = await Told.of(client, "mtu_black_hole", nids=[SERVER])
        await client.call("tamper_set", port="eth1", direction="out", longer=1200, loss=100)
        done = c.task(c.put(s.nid, bytes(100000), ack=True, timeout=50))
        e = await told.next("mtu_black_hole", 30, port="eth1", interface="eth1", address="10.0.1.2", mtu=1064,
                            cause="large_segments_lost", state="lowered")
        await env.until(done.done, "the message in smaller packets", 30)
        assert done.result(), "not acknowledged"
        assert not schemas.faults("events_get", await client.call("events_get"))
        counted = await client.call("counters_capture", match="tcp.*.mtu_black_holes", interval_ms=10)
        assert sum(x["after"] for x in counted["counters"]) >= 1, counted
        await client.call("tamper_clear")
    assert "warning events event=mtu_black_hole port=eth1 interface=eth1 address=10.0.1.2 state=lowered" in r.text(), r.tail(20)
    env.result(e["text"])


@only("port")
@deadline(60)
async def test_counters(env):
    """counters_capture has what ports, IP and TCP counted meanwhile, and agrees with the methods that show it."""
    c, r, s = await line(env)
    async with clients(r, 2) as (client, other):
        async def moved():
            rows = (await client.call("counters_capture", interval_ms=1500))["counters"]
            return {x["name"]: x for x in rows}
        task = asyncio.ensure_future(moved())
        await asyncio.sleep(0.3)
        assert all([await c.put(s.nid, bytes(50000), ack=True) for _ in range(4)])
        rows = await task
        for name, least in (("port.eth0.rx.bytes", 200000), ("port.eth1.tx.bytes", 200000), ("port.eth0.rx.packets", 5),
                            ("port.eth1.tx.packets", 5)):
            assert rows[name]["delta"] >= least, rows[name]
        tcp = [x for n, x in rows.items() if n.startswith("tcp.") and n.endswith(".bytes_in")]
        assert sum(x["delta"] for x in tcp) >= 400000 / 2, tcp
        names = {f"pkt_drops.{x['name']}" for x in (await other.call("pkt_drops_get"))["drops"]}
        assert names == {n for n in rows if n.startswith("pkt_drops.")}, names
        stats = (await other.call("tcp_stats_get"))["reactors"]
        for x in stats:
            assert {f"tcp.{x['reactor']}.{k}" for k in x["tcp"]} | {f"ip.{x['reactor']}.{k}" for k in x["ip"]} == \
                {n for n in rows if n.startswith((f"tcp.{x['reactor']}.", f"ip.{x['reactor']}."))}
        task = asyncio.ensure_future(moved())
        await asyncio.sleep(0.3)
        p = c.ns.popen([sys.executable, "-c", BAD, "10.0.0.1", "7"])
        await env.until(lambda: p.poll() is not None, "bad segments")
        assert (await task)["pkt_drops.tcp_csum"]["delta"] == 7


@only("port")
@deadline(60)
async def test_why(env):
    """`why` says what is below LNet: the station that is known, packets of it that were dropped, one that does not answer."""
    c, r, s = await line(env)
    assert await s.ping(r.nids[1])
    async with clients(r) as client:
        schemas = await Schemas.of(client)

        async def path(nid, **want):
            answer = await client.call("why", nid=nid)
            assert not schemas.faults("why", answer)
            found = answer["why"]["port_path"]
            wrong = {k: (found.get(k), v) for k, v in want.items() if found.get(k) != v}
            assert not wrong, (wrong, found)
            return found
        show = s.ns.popen(["ip", "-j", "link", "show", "eth0"], stdout=subprocess.PIPE, text=True)
        mac = json.loads((await asyncio.to_thread(show.communicate))[0])[0]["address"]
        found = await path(SERVER, port="eth1", interface="eth1", link="up", local="10.0.1.1", remote="10.0.1.2",
                           next_hop="10.0.1.2", mtu=1500)
        assert found["mac"].lower() == mac and found["neighbour"] in ("reachable", "stale", "delay", "probe"), found
        p = c.ns.popen([sys.executable, "-c", BAD, "10.0.0.1", "7"], stderr=subprocess.PIPE, text=True)
        err = (await asyncio.to_thread(p.communicate))[1]
        assert p.returncode == 0, err

        async def dropped(nid, reason):
            drops = {x["name"]: x for x in (await path(nid))["drops"]}
            return drops.get(reason)
        row = await env.until_async(lambda: dropped(CLIENT, "tcp_csum"), "the bad segments in why", 20)
        assert row["count"] == 7 and row["ms_ago"] < 10000, row
        assert not await dropped(SERVER, "tcp_csum")
        # A station that is not there, which a message is for
        nobody = "10.0.1.99@tcp1"
        await path(nobody, neighbour="unknown")
        asyncio.ensure_future(client.ask("ping", {"nid": nobody, "timeout_ms": 3000}))

        async def asked():
            return (await path(nobody))["neighbour"] in ("incomplete", "failed")
        await env.until_async(asked, "a neighbour that is asked for", 10)
        await env.until_async(lambda: dropped(nobody, "neigh_unknown"), "packets dropped for it", 20)
        text = (await path(nobody))["text"]
        assert "10.0.1.99 does not answer" in text, text
        said = await asyncio.to_thread(lambda: subprocess.run(
            [find_program(env.build, "millrace"), "--socket", r.sock, "why", nobody], capture_output=True, text=True, timeout=20))
        assert said.returncode == 0 and "neigh_unknown" in said.stdout and "by port" in said.stdout, said
    env.result(text)


@only("port")
@deadline(60)
async def test_snooping_switch(env):
    """A switch that listens and asks who is in which group learns ours, and lets neighbours' questions through to us."""
    own, other = "fd00:1::1", "fd00:1::2"
    r = env.prepare("r", f"{own}@tcp", f"{ROUTER[1]}")
    env.fabric.attach("c", "tcp", "eth0", f"{other}/64")
    switch = env.fabric.switch
    switch.ip("link set tcp type bridge mcast_snooping 1 mcast_querier 1 mcast_mld_version 2 "
              "mcast_startup_query_interval 100 mcast_query_interval 200 mcast_query_response_interval 50")

    def groups():
        port = env.fabric.ports["r", "eth0"]
        p = switch.popen(["bridge", "-j", "mdb", "show", "dev", "tcp"], stdout=subprocess.PIPE, text=True)
        return {x["grp"] for row in json.loads(p.communicate(timeout=10)[0]) for x in row["mdb"] if x["port"] == port}
    await r.start()
    await env.until(lambda: "ff02::1:ff00:1" in groups(), "our group is known to the switch", 10)
    # It forgets all, and asks.
    switch.ip("link set tcp down\nlink set tcp up")
    await env.until(lambda: "ff02::1:ff00:1" in groups(), "our answer to the switch", 30)
    sock = env.fabric.host("c").socket(socket.AF_INET6)
    sock.settimeout(8)
    await asyncio.to_thread(sock.connect, (own, 988))
    sock.close()
