# SPDX-License-Identifier: BSD-3-Clause
"""A peer that keeps to the protocol and yet tries to use up what all peers share."""

import asyncio
import ctypes
import socket
import struct

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.crowd_scene import NEAR, wide_router
from lnetpy.hostile import JOIN, V4, V6, Attack, Bystander, addresses, beside, scene
from lnetpy.scene import CLIENT, ROUTER, alone, cases, crowded, deadline, join, line, only

BAD = "10.0.0.66@tcp"
SO_ATTACH_FILTER, NOTHING = 26, ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))      # a filter that takes no packet


async def empty(env, r):
    """No message and no router buffer is left in use."""
    async def all_back():
        pools = [row[k] for row in (await r.rpc("buffers_get"))["reactors"] for k in ("tiny", "small", "large")]
        return (await r.stats())["msgs_alloc"] == 0 and all(p["credits"] == p["nbuffers"] for p in pools)
    await env.until_async(all_back, "all messages and buffers given back")


@cases("connections", "peers")
async def test_unreachable_destinations(env, table):
    """Messages for more nodes than the tables have room for, none of which can be reached: what is remembered
    of these does not keep out a node that comes afterwards."""
    env.need_millrace()
    settings = {"connections": {"reactors": 1}, "peers": {"reactors": 3, "extra": "  max_peers: 300\n"}}
    r = await env.router("r", *ROUTER, **settings[table])
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    raw = await bad.attach()
    count = 9000
    for i in range(0, count, 100):
        await raw.send(b"".join(bad.frame(bad.put(dst=N.parse(f"172.16.{n >> 8}.{n & 255}@tcp1")))
                                for n in range(i, i + 100)))

    async def refused():
        return (await r.stats())["drop_count"] == count
    await env.until_async(refused, "all messages dropped", 30)
    drops = await r.drops()
    assert drops["next_hop_unreachable"] == count, {k: v for k, v in drops.items() if v}
    c = await env.persona("c", CLIENT)
    join(c, r, "tcp1")
    await env.bring_up(c)
    await empty(env, r)


@deadline(90)
@cases("pings", "pushes")
async def test_answers_are_not_read(env, what):
    """A peer asks without end and reads no answer. Others are answered at once meanwhile."""
    env.need_millrace()
    c, r, _ = await line(env, router={"timeout": 15, "reactors": 3})
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    raw = await bad.attach(wire.CONTROL)
    if what == "pings":
        asks = bad.frame(bad.ping()) * 200
    else:
        info = c.info().pack()
        asks = bad.frame(bad.header(wire.PUT, wire.put_union(bad.handle(), wire.PING_MATCH, 0), len(info)), info) * 50

    async def flood():
        while raw.how is None:
            await raw.send(asks)
    flooding = c.task(flood())

    async def refused():
        return (await r.drops())["no_message_memory"] > 0
    await env.until_async(refused, "the peer has used up what is its share", 30)
    for _ in range(20):
        assert await c.ping(r.nids[0], timeout=2), "another peer's ping is not answered"
        assert await c.push(r.nids[0]), "another peer's PUSH is not acknowledged"
    flooding.cancel()
    raw.close(rst=True)
    await empty(env, r)


async def test_pushes_never_end(env):
    """A peer begins a PUSH on each of its connections and ends none. Those of others are taken meanwhile."""
    env.need_millrace()
    c, r, _ = await line(env, router={"reactors": 3})
    bad = BadPeer(env, "bad", BAD, r.nids[0])
    begun = bad.frame(bad.header(wire.PUT, wire.put_union(wire.NO_HANDLE, wire.PING_MATCH, 0), 4096))
    for i in range(32):     # as many as it may have
        raw = await bad.attach(wire.BULK_IN if i % 2 else wire.BULK_OUT)
        await raw.send(begun)

    async def taken_or_refused():
        return (await r.stats())["msgs_alloc"] + (await r.drops())["no_message_memory"] >= 32
    await env.until_async(taken_or_refused, "the router has seen the headers")
    for _ in range(20):
        assert await c.push(r.nids[0]), "another peer's PUSH is not acknowledged"
    drops = await r.drops()
    assert not drops["buffer_wait_expired"], "a PUSH found no buffer"
    bad.close()
    await empty(env, r)


@deadline(90)
@cases("20", "40", "a /64")
async def test_half_pushes(env, who):
    """Addresses that begin more PUSHes than there are buffers, and send a byte now and then: those of others find one soon."""
    env.need_millrace()
    nets, count = {"20": (V4, 20), "40": (V4, 40), "a /64": (V6, 60)}[who]
    c, r, s = await scene(env, nets)
    attack = Attack(env, "half_pushes", r.nids[0].ip, addresses(nets, count), per=16)

    async def begun():
        attack.last()
        return (await r.stats())["msgs_alloc"] >= 64
    await env.until_async(begun, "all buffers for PUSHes in use", 30)
    b, took = Bystander(env, c, s, r), []
    for _ in range(10):
        await asyncio.sleep(0.5)
        began = env.now()
        assert await s.push(r.nids[1]), "another peer's PUSH is not acknowledged"
        took.append(env.now() - began)
    assert (await r.drops())["receive_stalled"] > 0, "no PUSH had to give its buffer back"
    attack.stop()
    env.result(f"{attack.said}; another's PUSH took {max(took):.2f} s at most")
    await b.over()
    assert max(took) < 3 * env.stretch() * env.slower
    await empty(env, r)


# As many addresses as it took; twice as many; many of one IPv6 network.
MANY = {"33": (V4, 33), "66": (V4, 66), "a /64": (V6, 200)}


@crowded("port")
@deadline(90)
@cases("one address", "two addresses", "a /64")
async def test_refused_callers(env, who):
    """Connections from ports that no kernel node calls from, 8,192 at once and some after: each is refused, and none keeps a
    place that another needs."""
    env.need_millrace()
    nets, count = {"one address": (V4, 1), "two addresses": (V4, 2), "a /64": (V6, 100)}[who]

    async def refused(r, attack):
        attack.last()
        return (await r.drops())["tcp_source_port"] >= 8192
    r = await beside(env, "callers", nets, count, refused, per=max(100, 9000 // count), rate=300)
    assert (await r.drops())["tcp_source_port"] > 8192


@crowded("port")
@deadline(90)
@cases(*MANY)
async def test_endless_greetings(env, who, **rate):
    """Addresses that hold all places for greetings, each with as many as it may have, and send a byte now and then. Who has
    as many as others does not call again and again, and cost others their places: on a port its SYNs are not answered."""
    env.need_millrace()

    async def full(r, attack):
        attack.last()
        return (await r.drops())["tcp_request_limit"] > 0
    r = await beside(env, "greetings", *MANY[who], full, per=32, **rate)
    accepted = sum(row["tcp"]["conns_in"] for row in (await r.rpc("tcp_stats_get"))["reactors"])
    assert accepted < 3 * 32 * MANY[who][1], f"{accepted} connections accepted"


async def held(r, attack):
    """All connections that these addresses may have are there."""
    attack.last()
    drops = await r.drops()
    return drops["tcp_hello_duplicate"] + drops["tcp_no_memory"] > 100


@crowded("port")
@deadline(90)
@cases(*MANY)
async def test_many_connections(env, who):
    """Addresses that each open as many connections as they get, by the protocol, and keep them."""
    env.need_millrace()
    await beside(env, "holders", *MANY[who], held, per=255)


@deadline(90)
@cases("66", "a /64")
async def test_live_connections(env, who):
    """The same with a ping over each connection in each second, and one that was lost is made anew at once."""
    env.need_millrace()
    await beside(env, "keepers", *MANY[who], held, per=255)


@deadline(90)
@cases("200", "a /64")
async def test_kept_out(env, who):
    """More addresses of a host than there are places: with a rule of who may connect, nodes that it names notice nothing."""
    env.need_millrace()
    nets, count = V6 if who == "a /64" else V4, 200
    ours = " ".join(f"{net}{n}@{name}" for net, name in zip(nets, ("tcp", "tcp1")) for n in (2, 20, 21, 22, 30, 31, 32))

    async def pressing(r, attack):
        attack.last()
        return (await r.drops())["access_connect"] > 1000
    rules = f'  access:\n    - {{name: ours, connect: allow, nid: "{ours}"}}\n    - {{name: others, connect: deny}}\n'
    await beside(env, "keepers", nets, tuple(range(55, 55 + count)), pressing, router={"extra": "  max_connections: 256\n" + rules}, per=3)


@deadline(90)
@cases("21", "42")
async def test_segments_of_a_byte(env, who):
    """Addresses that open as many connections as they get and say 40 bytes on each, in as many segments."""
    async def said(r, attack):
        return attack.last() and int(attack.last().split()[0]) >= 21 * 33
    await beside(env, "segments", V4, int(who), said, per=255, seconds=9)


@deadline(90)
@cases("10", "20")
async def test_dead_next_hops(env, who):
    """Addresses that send bulk to nodes that there are not: others' messages of that size do not wait for it."""
    env.need_millrace()

    async def waits(r, attack):
        attack.last()
        return sum(row[k]["waiting"] for row in (await r.rpc("buffers_get"))["reactors"] for k in ("small", "large")) > 0
    await beside(env, "dead", V4, int(who), waits, per=2)


@deadline(90)
@cases("20", "40")
async def test_dead_next_hops_small(env, who):
    """The same with small messages, of which a router holds thousands: they do not keep the credits of the NI from others."""
    async def waits(r, attack):
        attack.last()
        nets = (await r.rpc("net_get"))["net"]
        return sum(ni["millrace"]["tx_waited"] for net in nets if net["net type"] == "tcp1" for ni in net["local NI(s)"]) > 100
    await beside(env, "dead_small", V4, int(who), waits, per=2, seconds=9, router={"buffers": {"small": 16384, "tiny": 2048}})


@deadline(90)
@cases("20", "40", "a /64")
async def test_trickled_bulk(env, who):
    """Addresses that begin a message of 1 MiB on each of eight connections, to the bystander's server, and send a byte now and then."""
    nets, count = {"20": (V4, 20), "40": (V4, 40), "a /64": (V6, 60)}[who]

    async def begun(r, attack):
        attack.last()
        return sum(row["large"]["waiting"] for row in (await r.rpc("buffers_get"))["reactors"]) > 0
    r = await beside(env, "trickles", nets, count, begun, seconds=12, per=8, target=f"{nets[1]}2@tcp1")
    await empty(env, r)


@deadline(90)
@cases("20", "40", "a /64", "40, quicker")
async def test_paced_bulk(env, who, seconds=12, **rate):
    """The same, as slowly as the router just does not take for a stall, and one message after the other; or each in 0.09 s."""
    nets, count = {"20": (V4, 20), "a /64": (V6, 60)}.get(who, (V4, 40))
    env.ledger.strangers |= {N.parse(a + "@tcp") for a in addresses(nets, count)}

    async def begun(r, attack):
        attack.last()
        return sum(row["large"]["waiting"] for row in (await r.rpc("buffers_get"))["reactors"]) > 0
    r = await beside(env, "pacers", nets, count, begun, seconds=seconds, per=8, pace=0.09 if who.endswith("quicker") else 1,
                     target=f"{nets[1]}2@tcp1", **rate)
    await empty(env, r)


@deadline(90)
@cases("20", "40", "20, known", "40, known")
async def test_silent_next_hops(env, who):
    """Messages for more nodes than there are connections. All of them take our calls and say nothing, or do so after each has
    connected once: calls hold a part only."""
    env.need_millrace()
    count, far = int(who.split(",")[0]), "sleepers" if "known" in who else "mute"

    async def refused(r, attack):
        attack.last()
        return (await r.drops())["tcp_no_memory"] > 0
    await beside(env, "dead_small", V4, count, refused, per=2, far=(far, {}, 150),
                 router={"reactors": 1, "buffers": {"small": 16384, "tiny": 2048}, "extra": f"  max_connections: {32 + 4 * count}\n"})


@deadline(90)
async def test_called_before_it_calls(env):
    """Messages for a node whose host drops calls, as a firewall does: while ours hangs, the node calls, has the lower NID, and is let in."""
    env.need_millrace()
    r = await env.router("r", "10.0.0.200@tcp", "10.0.1.200@tcp1")
    bad = BadPeer(env, "bad", "10.0.1.66@tcp1", r.nids[1])
    raw = await bad.attach()
    env.ledger.strangers.add(bad.nid)
    n = await env.persona("n", "10.0.0.20@tcp", profile="k215")
    n.nis[0].listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxQ", 1, ctypes.addressof(NOTHING)))

    async def send():
        while raw.how is None:
            await raw.send(bad.frame(bad.put(dst=n.nid)))
            await asyncio.sleep(0.3)
    env.loop().create_task(send())
    await asyncio.sleep(1)      # the router calls
    join(n, r, "tcp1")
    began = env.now()
    await env.bring_up(n)
    took = env.now() - began
    env.result(f"connected after {took:.1f} s")
    assert took < JOIN * env.stretch() * env.slower, f"a node that is called needed {took:.1f} s"
    raw.close(rst=True)


@deadline(90)
@cases("66", "66, empty")
async def test_deaf_next_hops(env, who):
    """As many connected nodes that read nothing as there are router buffers, and bulk for all of them: each would hold one. Or
    empty PUTs, of which they hold all buffers without payload."""
    env.need_millrace()
    who, _, empty_ones = who.partition(", ")

    async def found_out(r, attack):
        attack.last()
        return (await r.drops())["next_hop_stalled"] > 0
    await beside(env, "pushers", V4, int(who), found_out, seconds=9 if empty_ones else 4, per=2, far=("deaf", {"per": 1}),
                 **({"size": 0, "router": {"reactors": 1, "buffers": {"tiny": 2048}}} if empty_ones else {}))


async def tcp(r, name):
    return sum(row["tcp"][name] for row in (await r.rpc("tcp_stats_get"))["reactors"])


@only("port")
@deadline(90)
@cases("40", "80")
async def test_quitters(env, who):
    """Connected nodes that read nothing, close their side when much is queued for them, and connect again: the queues of those before
    give way, and do not keep the buffers of a port."""
    async def closed(r, attack):
        attack.last()
        return (await r.drops())["next_hop_connection_lost"] > 100
    r = await beside(env, "pushers", V4, int(who), closed, seconds=12, per=2, size=250000, router={"buffers": {"large": 200}},
                     far=("quitters", {"per": 3, "pace": 0.7}))
    port, reset = (await r.rpc("port_get"))["port"][0], await tcp(r, "orphans_reset")
    env.result(f"{port['buffers_free']} of {port['buffers']} buffers of the port free, {reset} reset")
    assert port["buffers_free"] > port["buffers"] / 4 and reset > 0


@deadline(90)
@cases("20", "40", "a /64")
async def test_takers(env, who, **rate):
    """Nodes that ask the bystander's server for bulk and read none of it: its answers to them do not keep it from others."""
    nets, count = {"20": (V4, 20), "40": (V4, 40), "a /64": (V6, 60)}[who]
    env.ledger.strangers |= {N.parse(a + "@tcp") for a in addresses(nets, count)}

    async def asked(r, attack):
        attack.last()
        return (await r.stats())["msgs_alloc"] >= 8
    await beside(env, "takers", nets, count, asked, seconds=20, router={"buffers": {"large": 240}}, per=1, size=1 << 20,
                 target=f"{nets[1]}2@tcp1", **rate)


LIMIT = '  access:\n    - {name: askers, limit: all, nid: "10.0.0.[100-139]@tcp", messages: 20}\n'


@deadline(90)
@cases("40", "40 in haste")
async def test_comers(env, who):
    """As takers, which connect anew and ask again all the time. In haste they ask for more than the server can send: a limit keeps them
    from that."""
    env.ledger.strangers |= {N.parse(a + "@tcp") for a in addresses(V4, 40)}
    pace, rules = (0.2, {"extra": LIMIT}) if "haste" in who else (0.7, {})

    async def asked(r, attack):
        attack.last()
        return (await r.stats())["drop_count"] >= 8
    await beside(env, "comers", V4, 40, asked, seconds=20, router={"buffers": {"large": 240}, **rules}, per=1, size=1 << 20, pace=pace,
                 target=f"{V4[1]}2@tcp1")


# Twice the addresses that it took, or a /64; and settings.
STRONGER = {"greetings, 66": (test_endless_greetings, "66", {}), "greetings, a /64": (test_endless_greetings, "a /64", {}),
            "pacers, a /64": (test_paced_bulk, "a /64", {"seconds": 18, "once": 1}),
            "takers, 40": (test_takers, "40", {"once": 4}), "takers, a /64": (test_takers, "a /64", {"once": 4})}


@alone
@only("port")
@deadline(90)
@cases(*STRONGER)
async def test_rate(env, what):
    """A bystander's rate is at least 0.9 of what it has while the same attack goes to another router and another server.

    Attackers, nodes and routers share the CPUs of this machine: what the control loses, too, is not the router's doing. But it is
    the router where pacers and takers hold up others until they are found out, for a second and for four: that is once, and not counted.
    """
    attack, who, settings = STRONGER[what]
    await attack(env, who, compare=True, **settings)


@deadline(90)
@cases("20", "40")
async def test_restarts(env, who):
    """Nodes each of whose connections says that it has restarted, so that its others end; they are made anew at once."""
    async def going(r, attack):
        return int((attack.last() or "0").split()[0]) > 32 * int(who) + 200
    await beside(env, "restarts", V4, int(who), going, per=32)


@deadline(90)
@cases("20", "40", "40, sent so too")
async def test_tiny_mss(env, who):
    """Bulk for nodes that announce an MSS of 88, the least that Linux lets a program ask for."""
    who, _, so_too = who.partition(", ")
    async def going(r, attack):
        attack.last()
        return (await r.stats())["route_length"] > 16 << 20
    await beside(env, "pushers", V4, int(who), going, seconds=6, per=2, size=1 << 20, mss=88 if so_too else 0,
                 far=("readers", {"per": 3, "mss": 88}))


@deadline(90)
@cases("40", "80")
async def test_slow_sinks(env, who):
    """Nodes that read some of the bulk all the time: a message takes each of them three seconds."""
    async def going(r, attack):
        attack.last()
        return (await r.stats())["route_length"] > 16 << 20
    await beside(env, "pushers", V4, int(who), going, seconds=9, per=2, size=1 << 20, far=("readers", {"per": 3, "pace": 350000}))


@only("port")
@deadline(90)
@cases("22", "44")
async def test_hoarders(env, who):
    """Many connections, each with small answers that are not read: there is room for those of others, and who keeps it is ended."""
    async def going(r, attack):
        attack.last()
        return await tcp(r, "copied_bytes") > 32 * int(who) * 1500
    r = await beside(env, "hoarders", V4, int(who), going, seconds=9, per=32)
    assert await tcp(r, "stuck_reset") > 0


@deadline(90)
@cases("66")
async def test_flood_of_noops(env, who):
    """Many connections, on each of which more NOOPs come than one look reads: those of others are looked at as often."""
    async def going(r, attack):
        return int((attack.last() or "0").split()[0]) > 500
    await beside(env, "noops", V4, int(who), going, seconds=3, per=32)


@only("kernel")
async def test_other_interface(env):
    """A host of net tcp1 calls the router's address of net tcp, by the interface of tcp1: it is no node of net tcp."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    bad = BadPeer(env, "bad", "10.0.1.66@tcp", r.nids[0])
    bad.ns.ip("link del eth0")
    env.fabric.attach("bad", "tcp1", "eth0", "10.0.1.66")
    bad.ns.ip("route add 10.0.0.0/24 via 10.0.1.1")
    got, how, _ = await bad.say(wire.connreq(bad.router) + bad.hello())
    assert how in ("FIN", "RST") and not got, (got, how)
    assert (await r.drops())["tcp_interface"] == 1


@only("port")
@deadline(90)
async def test_stolen_address(env):
    """A host says over and over that the router's address is its own: it stays the router's."""
    async def going(r, attack):
        return int(attack.last().split()[0] or 0) > 50 if attack.last() else False
    r = await beside(env, "thief", V4, 1, going, seconds=12)
    assert "address=10.0.0.1 state=defended" in r.text() or "cause=used_by_another" in r.text(), r.tail(20)


@only("kernel", "port")
@deadline(60)
async def test_flood_of_log_lines(env):
    """A host that comes and goes fills its share of the log: that hosts of other networks come is still written."""
    env.need_millrace()
    r, _ = await wide_router(env)
    bad, others = BadPeer(env, "bad", "10.1.100.1@tcp", r.nids[0]), [f"10.1.{i}.66" for i in range(101, 109)]
    bad.ns.ip("\n".join(f"addr add {a}/16 dev eth0" for a in others))

    async def come_and_go():
        (await bad.attach()).close(rst=True)

    def written(address):
        return sum(f"event=peer_up nid={address}@tcp" in line for line in r.text().splitlines())

    for _ in range(60):
        await come_and_go()
    for address in others:
        bad.nid = N.parse(address + "@tcp")
        await come_and_go()

    async def seen():
        # Networks share 16 groups by a hash that nobody knows; some can be in the group of the flood.
        return sum(written(a) > 0 for a in others) >= 4
    await env.until_async(seen, "lines about half of the others", 5)
    assert 0 < written("10.1.100.1") < 60, f"{written('10.1.100.1')} lines about the flood: it does not fill its share"


def printed(number):
    """Until raw_attacker.py has made so many segments."""
    async def until(r, attack):
        return int((attack.last() or "0").split()[0]) >= number
    return until


@only("port")
@deadline(90)
@cases("mute", "many")
async def test_addresses_of_a_network(env, what):
    """SYNs from ever other addresses of the IPv6 network, that nobody or the attacker answers for: a new node is answered."""
    await beside(env, what, V6, 65536, printed(3000), program="raw_attacker.py", rate=1000)


@only("port")
@deadline(90)
@cases("IPv4", "IPv6", "many MACs", "calls")
async def test_asks_for_others(env, how):
    """SYNs from made-up addresses, so that the router may ask no more questions; and a host asks for it in the names of nodes that
    are about to come, or calls it in their names, but does not answer for them: they are answered."""
    nets, router = (("10.1.0.", "10.2.0."), {"bits": 16}) if how == "IPv4" else (V6, None)
    how = {"many MACs": {"macs": 5000}, "calls": {"calls": 1}}.get(how, {})
    await beside(env, "mute", nets, 60000, printed(12000), router=router, program="raw_attacker.py", rate=5000,
                 names=",".join(f"{nets[0]}{n}" for n in (20, 21, 22)), **how)


@only("port")
@deadline(90)
async def test_gaps(env):
    """Connections without a request, with data that begins after a gap: a new node's request finds memory."""
    await beside(env, "holes", V4, 20, printed(3000), program="raw_attacker.py", per=32)
