# SPDX-License-Identifier: BSD-3-Clause
"""Our TCP opposite Linux's, which calls and is called, with what can be set of it. docs/tcp.md."""

import asyncio
import socket

from lnetpy import nid as N
from lnetpy.node import pattern
from lnetpy.scene import cases, deadline, join, only, traffic

BIG = "'4096 131072 1073741824'"
SMALL = "'4096 16384 16384'"

# name: (MTU, settings of the far ends' kernel, what must have been agreed); window: the most their routes let them offer
MATRIX = {
    "mtu 576": (576, {}, {"mss": 524}),
    "mtu 1280": (1280, {}, {"mss": 1228}),
    "mtu 1500": (1500, {}, {"mss": 1448, "timestamps": True, "sack": True, "ecn": False}),
    "mtu 4000": (4000, {}, {"mss": 3948}),
    "mtu 9000": (9000, {}, {"mss": 8948}),
    "no window scaling": (1500, {"tcp_window_scaling": 0}, {"snd_wscale": 0, "rcv_wscale": 0}),
    "window scale 14": (1500, {"tcp_rmem": BIG, "tcp_wmem": BIG}, {"snd_wscale": 14}),
    "window scale 0": (1500, {"window": 60000}, {"snd_wscale": 0}),
    "window scale 2": (1500, {"window": 200000}, {"snd_wscale": 2}),
    "window scale 5": (1500, {"window": 2000000}, {"snd_wscale": 5}),
    "no timestamps": (1500, {"tcp_timestamps": 0}, {"timestamps": False, "mss": 1460, "sack": True}),
    "no sack": (1500, {"tcp_sack": 0}, {"sack": False, "timestamps": True}),
    "neither": (1500, {"tcp_sack": 0, "tcp_timestamps": 0, "tcp_window_scaling": 0},
                {"sack": False, "timestamps": False, "snd_wscale": 0}),
    "ecn": (1500, {"tcp_ecn": 1}, {"ecn": True}),
    "small buffers": (1500, {"tcp_rmem": SMALL, "tcp_wmem": SMALL}, {}),
    "small buffers, mtu 9000": (9000, {"tcp_rmem": SMALL, "tcp_wmem": SMALL}, {}),
}


async def tcp_rows(r, **match):
    """All of the router's connections, over all pages."""
    rows, more = [], {}
    while True:
        page = await r.rpc("tcp_get", **more)
        rows += page["tcp"]
        if "cursor" not in page:
            return [x for x in rows if all(x[k] == v for k, v in match.items())]
        more = {"cursor": page["cursor"]}


def addresses(v6):
    if v6:
        return ("fd00::2@tcp", "fd00:1::2@tcp1"), ("fd00::1@tcp", "fd00:1::1@tcp1")
    return ("10.0.0.2@tcp", "10.0.1.2@tcp1"), ("10.0.0.1@tcp", "10.0.1.1@tcp1")


async def scene(env, mtu, settings, v6=False):
    """A client that calls the router and a server that the router calls, their kernels set as told."""
    (client, server), router = addresses(v6)
    settings = dict(settings)
    window = settings.pop("window", None)
    for name, nid in (("c", client), ("s", server)):
        n = N.parse(nid)
        env.fabric.attach(name, N.net_str(n.net), "eth0", n.ip, mtu=mtu)
        if window:
            env.fabric.host(name).ip(f"route replace {n.ip.rsplit('.', 1)[0]}.0/24 dev eth0 src {n.ip} window {window}")
        # The congestion window and RTT of one test are no hint for the next.
        env.fabric.host(name).sysctl(**{f"net__ipv4__{k}": v for k, v in {"tcp_no_metrics_save": 1, **settings}.items()})
    r = await env.router("r", *router, mtu=mtu)
    c = await env.persona("c", client)
    s = await env.persona("s", server)
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    return c, r, s


async def both_ways(env, c, s, count=150):
    for size in (0, 1, 4096, 70000, 1 << 20):
        assert await c.put(s.nid, pattern(size, size)) and await s.get(c.nid, size), size
    tasks = [c.task(traffic(env, a, b, count, seed=3, big=0.02)) for a, b in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 60)
    await env.settle(20)


def check_agreed(rows, agreed):
    for row in rows:
        # Who calls asks for ECN, and as Linux by default we do not.
        wrong = {k: row[k] for k, v in agreed.items() if row[k] != v and not (k == "ecn" and row["lport"] != 988)}
        assert not wrong, f"{wrong}, expected {agreed}: {row}"


def check_resent(rows):
    """Nothing was lost, so nothing is taken for lost. A probe of the tail is no more than a question: on a busy machine
    an acknowledgement may be that late."""
    for row in rows:
        assert not row["rtos"] and not row["fast_recoveries"] and row["resent"] <= row["tlps"], f"sent again: {row}"


@only("port")
@deadline(90)
@cases(*MATRIX)
async def test_linux(env, what):
    mtu, settings, agreed = MATRIX[what]
    c, r, s = await scene(env, mtu, settings)
    await both_ways(env, c, s)
    rows = await tcp_rows(r)
    assert len(rows) == 6 and {x["state"] for x in rows} == {"established"}, [x["state"] for x in rows]
    check_agreed(rows, agreed)
    check_resent(rows)
    drops = {k: v for k, v in (await r.drops()).items() if v}
    assert not drops, drops


@only("port")
@deadline(90)
@cases("mtu 1500", "mtu 9000", "neither", "small buffers", "ecn")
async def test_linux_ipv6(env, what):
    mtu, settings, agreed = MATRIX[what]
    c, r, s = await scene(env, mtu, settings, v6=True)
    await both_ways(env, c, s)
    rows = await tcp_rows(r)
    agreed = {k: v - 20 if k == "mss" else v for k, v in agreed.items()}
    assert len(rows) == 6, rows
    check_agreed(rows, agreed)
    check_resent(rows)


@only("port")
@deadline(60)
async def test_large_frames(env):
    """Linux hands over and takes frames of many segments: far fewer than payload needs of the MTU."""
    c, r, s = await scene(env, 1500, {})
    for _ in range(8):
        assert await c.put(s.nid, pattern(1, 1 << 20)) and await c.get(s.nid, 1 << 20)
    await env.settle()
    ports = (await r.rpc("port_get"))["port"]
    payload = 8 << 20
    for p in ports:
        for way in ("rx", "tx"):
            q = [x for x in p["queues"] if x["direction"] == way]
            packets, size = sum(x["packets"] for x in q), sum(x["bytes"] for x in q)
            assert size > payload // 2, (p["name"], way, size)
            assert packets < size / 1500 / 3, f"{p['name']} {way}: {packets} frames for {size} bytes: no large ones"


@only("port")
@deadline(90)
@cases("linux", "router")
async def test_keepalive(env, who):
    """An idle connection lives on probes of either side, and ends without answers."""
    c, r, s = await scene(env, 1500, {})
    assert await c.put(s.nid, pattern(1, 1000))
    await env.until(lambda: len(c.conns()) == 3, "all connections")
    await env.settle()
    if who == "linux":      # as a kernel node sets its connections, but faster
        lives = c.conns()
        for x in lives:
            for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3)):
                x.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            x.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await asyncio.sleep(9)
        assert c.conns() == lives and len(lives) == 3, "Linux gave up connections whose probes were answered"
    else:
        before = {(x["local"], x["remote"]) for x in await tcp_rows(r)}
        await env.until_async(lambda: probes(r), "probes of ours", 50, 1)
        assert before == {(x["local"], x["remote"]) for x in await tcp_rows(r)}
    assert await c.put(s.nid, pattern(1, 1000))


async def probes(r):
    return any(x["keepalives_out"] for x in await tcp_rows(r))


async def gone(r, nid):
    return not any(x["remote"] == nid.ip for x in await tcp_rows(r))


@only("port")
@deadline(90)
async def test_abrupt_death(env):
    """The far end ends everything with RST and is born again."""
    c, r, s = await scene(env, 1500, {})
    assert await c.put(s.nid, pattern(1, 1000))
    await env.settle()
    env.tolerate = ["closed", "reset", "gone", "never arrived"]
    s.stop(rst=True)
    env.nodes.remove(s)
    await env.until_async(lambda: gone(r, s.nid), "the router knows that the server is gone")
    s = await env.persona("s", str(s.nid))
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    # Redialled too early, it answers with RST again, and what waited for that is dropped by name.
    await env.until_async(lambda: c.put(s.nid, pattern(2, 70000), timeout=2), "a server that was born again is reached", 20)
    env.ledger.forget(lambda e: e.header.dst == s.nid)
    await env.settle()
