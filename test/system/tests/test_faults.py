# SPDX-License-Identifier: BSD-3-Clause
"""Slow, dying, racing and impersonating peers. docs/protocol/socklnd.md §2.5, §3.5, §6; lnet-core §12."""

import asyncio
import fcntl
import termios
import time

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.badpeer import BadPeer
from lnetpy.node import pattern
from lnetpy.scene import CLIENT, ROUTER, SERVER, cases, deadline, join, line, traffic


async def second_pair(env, r):
    c2 = await env.persona("c2", "10.0.0.12@tcp")
    s2 = await env.persona("s2", "10.0.1.12@tcp1")
    join(c2, r, "tcp1")
    join(s2, r, "tcp")
    await env.bring_up(c2, s2)
    return c2, s2


WAITS = ("buffer_wait_expired", "destination_share_expired", "router_credit_wait_expired")


def waits_expired(drops):
    return sum(drops[k] for k in WAITS)


def pause(node, on=True):
    for c in node.conns():
        if on:
            c.reading.clear()
        else:
            c.reading.set()


def unread(sock):
    raw = fcntl.ioctl(sock, termios.FIONREAD, bytes(4))
    return int.from_bytes(raw, "little")


@deadline(90)
async def test_slow_reader(env):
    """A server stops reading. Its senders are held back or lose messages by name, in bounded time and with
    every ZC-ACK in time for a 2.15 node; others go on; and it gets the rest when it reads again."""
    env.need_millrace()
    c, r, s = await line(env, client="k215", router={"buffers": {"large": 8}})
    c2, s2 = await second_pair(env, r)
    before = await r.drops()
    pause(s)
    for i in range(60):
        assert await c.put(s.nid, pattern(i, 1 << 20), ack=False)
        assert await c.put(s.nid, pattern(i, 100), ack=False)
    end = time.monotonic() + 26
    rounds = 0
    while time.monotonic() < end:
        assert await c2.put(s2.nid, pattern(rounds, 4000), timeout=5), "another pair is held up"
        assert await s2.get(c2.nid, 200, timeout=5), "another pair is held up"
        rounds += 1
    assert rounds > 20, rounds
    after = await r.drops()
    assert waits_expired(after) > waits_expired(before), "no message's wait ended by name"
    pause(s, False)
    await env.until(lambda: not any(x.zc_out or x.txq or x.tx_busy for x in c.conns()), "all sent and acked", 60)
    assert c.zc_slowest < 15.5, f"a ZC-ACK took {c.zc_slowest:.1f} s"

    async def goes_on():    # a message that comes before the server has taken one is dropped, as others waited in vain before
        return await c.put(s.nid, pattern(1, 5000), timeout=5)
    await env.until_async(goes_on, "traffic goes on", 30)
    drops = await r.drops()
    lost = waits_expired(drops) - waits_expired(before)
    await env.until(lambda: len(env.ledger.outstanding()) <= lost, "all but the dropped ones delivered", 30)
    gone = env.ledger.forget(lambda e: e.header.dst == s.nid)
    assert len(gone) == lost, f"{len(gone)} lost, {lost} counted as dropped"
    others = {k: v - before.get(k, 0) for k, v in drops.items() if v != before.get(k, 0) and k not in WAITS}
    assert not others, others
    assert not c.closes and not s.closes
    await env.settle()


@cases("rst", "fin")
async def test_peer_dies_in_a_message(env, how):
    """The server goes away with a 1 MiB message half read; the next life works at once."""
    env.need_millrace()
    c, r, s = await line(env)
    before = await r.drops()
    pause(s)
    for i in range(6):
        assert await c.put(s.nid, pattern(i, 1 << 20), ack=False)
    await env.until(lambda: max(unread(x.sock) for x in s.conns()) > 50000, "a message half arrived")
    r.spec.allow_none = r.spec.any_type = True      # the router and the next life may dial at once
    s.stop(rst=how == "rst")
    env.nodes.remove(s)

    async def lost():
        d = await r.drops()
        return sum(d[k] - before[k] for k in ("next_hop_connection_lost", "next_hop_unreachable",
                                              "next_hop_timeout")) >= 1
    await env.until_async(lost, "the lost messages counted", 15)
    s = await env.persona("s", SERVER)
    join(s, r, "tcp")
    await env.bring_up(s)

    async def works():
        return await c.put(s.nid, pattern(1, 100), timeout=2)
    await env.until_async(works, "traffic to the restarted server", 20)
    assert await s.get(c.nid, 300000)
    await env.until(lambda: not any(x.zc_out for x in c.conns()), "every ZC request acked", 20)
    env.ledger.forget(lambda e: e.header.dst == s.nid)
    await env.settle()
    assert not c.closes, "the sender's connections are none of this"


async def test_first_refusal(env):
    """A server with connections of the router's last life refuses the router's first attempt. The next attempt
    follows after 50 ms, not after the second that later refusals cost."""
    env.need_millrace()
    c, r, s = await line(env)
    ni, = s.nis
    decide, calls = ni._passive_decide, []

    def refuse_first(peer, conn, hello):
        calls.append(time.monotonic())
        return "stale" if len(calls) == 1 else decide(peer, conn, hello)
    ni._passive_decide = refuse_first
    r.spec.allow_none = r.spec.any_type = True
    for peer in list(ni.peers.values()):
        ni.close_peer(peer, "the last life of the router")
    await env.until_async(lambda: forgotten(r, s.nid), "the router knows that its connections have ended")
    assert await c.put(s.nid, pattern(1, 100), timeout=10)
    assert len(calls) > 1 and calls[1] - calls[0] < 0.9, calls
    await env.settle()


@deadline(90)
async def test_peer_vanishes(env):
    """The server's link goes dead in mid-message: no FIN, no RST. The router's timeout frees everything,
    the sender has its ZC-ACKs, and the server is back when the link is (J-01 of the recordings)."""
    env.need_millrace()
    c, r, s = await line(env, router={"timeout": 6})
    c2, s2 = await second_pair(env, r)
    before = await r.drops()
    port = env.fabric.ports["s", "eth0"]
    env.fabric.link(port, False)
    for i in range(6):
        assert await c.put(s.nid, pattern(i, 1 << 20), ack=False)

    async def lost():
        d = await r.drops()
        return sum(d[k] - before[k] for k in ("next_hop_connection_lost", "next_hop_unreachable",
                                              "next_hop_timeout")) >= 6
    start = time.monotonic()
    await env.until_async(lost, "all six counted as lost", 25)
    assert 4 < time.monotonic() - start < 20
    assert await c2.put(s2.nid, pattern(1, 100000)) and await c.ping(r.nids[0])
    await env.until(lambda: not any(x.zc_out for x in c.conns()), "every ZC request acked", 5)
    r.spec.allow_none = r.spec.any_type = r.spec.allow_rst = True
    env.fabric.link(port, True)

    async def works():
        # The server's word on an old connection earns it a reset: then it dials anew.
        await s.ping_get(r.nids[1], 272, timeout=1)
        return await c.put(s.nid, pattern(1, 100), timeout=2)
    await env.until_async(works, "traffic when the link is back", 40)
    env.ledger.forget(lambda e: e.header.dst == s.nid)
    assert not c.closes


@cases("higher", "lower")
async def test_simultaneous_connect(env, order):
    """Both dial at the same moment, with our NID the lower and the higher one: one set of connections
    remains and nothing is lost for good (§2.5 #1, §2.6)."""
    env.need_millrace()
    mine, theirs = ("10.0.1.200@tcp1", "10.0.1.2@tcp1") if order == "higher" else ("10.0.1.1@tcp1", "10.0.1.2@tcp1")
    r = await env.router("r", "10.0.0.1@tcp", mine)
    c = await env.persona("c", CLIENT)
    join(c, r, "tcp1")
    await env.bring_up(c)
    r.spec.allow_none = r.spec.any_type = True
    for i in range(10):
        s = await env.persona("s", theirs)
        s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
        there = c.task(c.ping(s.nid, timeout=8))
        if i % 2:
            await env.until(lambda s=s: s.nis[0].open_conns or s.conns() or there.done(), "router begins to dial")
        back = s.task(s.ping(c.nid, timeout=8))
        await env.until(lambda: there.done() and back.done(), f"round {i}: both pings answered", 20)
        assert there.result() and back.result(), f"round {i}: {there.result()} {back.result()}"
        await env.until(lambda s=s: sorted(x.ctype for x in s.conns()) == [1, 2, 3], f"round {i}: one of each type", 10)
        assert await c.put(s.nid, pattern(i, 100000)) and await s.get(c.nid, 100000), f"round {i}"
        await env.settle()
        s.stop()
        env.nodes.remove(s)
        await env.until_async(lambda s=s: forgotten(r, s.nid), f"round {i}: the router knows that the node is gone")


async def forgotten(r, nid):
    """The router has no connection to a node."""
    row = (await r.peers()).get(str(nid))
    return not row or not any(row["millrace"]["connections"].values())


async def test_more_connections_than_ours(env):
    """A node that wants four of each BULK type gets them though we would dial one (P15, P16)."""
    env.need_millrace()
    for kind, addr in (("k217", "10.0.0.21@tcp"), ("k215", "10.0.0.22@tcp")):
        if not env.routers:
            r = await env.router("r", *ROUTER)
            s = await env.persona("s", SERVER)
            join(s, r, "tcp")
        c = await env.persona(kind, addr, profile=kind, cpp=4)
        join(c, r, "tcp1")
        await env.bring_up(c, s)
        await env.until(lambda c=c: len(c.conns()) == 9, f"{kind}: nine connections")
        assert c.nis[0].peer(r.nids[0]).nones == 0
        assert await c.put(s.nid, pattern(1, 100000)) and await s.get(c.nid, 100000)
    await env.settle()


async def test_hello_map(env):
    """A HELLO whose NID is not its source address is refused, unless the configuration maps it."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, hello_map=[("10.0.0.66", "10.0.0.77@tcp")])
    s = await env.persona("s", SERVER)
    bad = BadPeer(env, "bad", "10.0.0.66@tcp", r.nids[0])
    alias = N.parse("10.0.0.77@tcp")
    before = await r.drops()
    got, how, _ = await bad.say(wire.connreq(bad.router) + bad.hello(src=N.parse("10.0.0.78@tcp")))
    assert got == b"" and how in ("FIN", "RST"), (got, how)

    async def counted():
        return (await r.drops())["tcp_hello_source"] == before["tcp_hello_source"] + 1
    await env.until_async(counted, "tcp_hello_source counted")
    conns = await bad.full_set(src=alias)
    ping = bad.ping(src=alias)
    await conns[0].send(bad.frame(ping))
    reply = await conns[0].read(24 + 72 + 64)
    assert reply[24:96] == wire.Header(alias, bad.router, wire.REPLY, 64, wire.reply_union(ping.handle)).pack(False)
    put = bad.put(100, portal=7, dst=s.nid, src=alias)
    env.ledger.register(put, bytes(100))
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    await conns[0].send(bad.frame(put, bytes(100)))
    await env.until(lambda: s.received["PUT"] == 1, "forwarded from the mapped NID")
    answer = wire.Header(alias, s.nid, wire.PUT, 5, wire.put_union(wire.NO_HANDLE, 3, 7))
    s.send(answer, b"hello", via=(s.nis[0], r.nids[1]))
    got = await conns[0].read(24 + 72 + 5)
    assert got == wire.frame(wire.LNET) + answer.pack(False) + b"hello", got.hex()
    env.ledger.forget(lambda e: e.header == answer)
    await env.settle()


async def test_nonexistent_destination(env):
    """A node that is not there: the message is dropped by name, ZC-ACKed, and nobody waits for it."""
    env.need_millrace()
    c, r, s = await line(env, router={"timeout": 5})
    before = await r.drops()
    ghost = N.parse("10.0.1.99@tcp1")
    assert await c.put(ghost, pattern(1, 100000), ack=False)
    assert await c.put(ghost, pattern(2, 10), ack=False)
    await env.until(lambda: c.zc_acked == 1, "ZC-ACK at once", 3)
    assert await c.put(s.nid, pattern(1, 100)), "not behind the dead destination"

    async def dropped():
        d = await r.drops()
        return d["next_hop_unreachable"] + d["next_hop_timeout"] - before["next_hop_unreachable"] \
            - before["next_hop_timeout"] == 2
    await env.until_async(dropped, "both dropped by name", 20)
    assert len(env.ledger.forget(lambda e: e.header.dst == ghost)) == 2
    await env.settle()


async def test_refusing_destination(env):
    """A host without an acceptor answers RST: dropped at once, by name (§7 closed port)."""
    env.need_millrace()
    c, r, s = await line(env)
    env.fabric.attach("dumb", "tcp1", "eth0", "10.0.1.50")
    before = await r.drops()
    assert await c.put(N.parse("10.0.1.50@tcp1"), pattern(2, 10), ack=False)

    async def dropped():
        return (await r.drops())["next_hop_unreachable"] == before["next_hop_unreachable"] + 1
    await env.until_async(dropped, "next_hop_unreachable counted", 5)
    env.ledger.forget(lambda e: True)
    assert await c.put(s.nid, pattern(1, 100))


async def test_no_duplicates_over_loss(env):
    """Connections that break under load: what was possibly sent is never sent again (§6.4 of lnet-core)."""
    env.need_millrace()
    c, r, s = await line(env)
    r.spec.allow_none = r.spec.any_type = r.spec.allow_rst = True
    for i in range(5):
        for j in range(30):
            await c.put(s.nid, pattern(j, 3000 * j), ack=False)
        await env.until(lambda i=i: s.received["PUT"] > 30 * i, "some arrived")
        for x in list(s.conns()):
            x.shut("test", rst=True)
        for p in s.nis[0].peers.values():
            s.nis[0].close_peer(p, "test")
        await env.until(lambda: not any(x.zc_out or x.txq for x in c.conns()), "sender is done", 20)

        async def works():
            return await s.ping(r.nids[1], timeout=2) and await c.put(s.nid, b"next", timeout=2)
        await env.until_async(works, "next round", 20)
    env.ledger.forget(lambda e: e.header.dst == s.nid)
    assert not [p for p in env.problems if "doubled" in p], env.problems
    env.problems[:] = [p for p in env.problems if "inside a message" not in p]


@deadline(80)
async def test_traffic_with_small_memory(env):
    """Few router buffers, much traffic of all sizes: slow, but nothing lost."""
    env.need_millrace()
    c, r, s = await line(env, router={"buffers": {"tiny": 8, "small": 8, "large": 2}, "memory": 128,
                                      "buffer_wait": 11})
    tasks = [c.task(traffic(env, a, b, 400, workers=16, seed=3, big=0.05)) for a, b in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 70)
    await env.settle()


async def test_receive_stall(env):
    """A message that stops in the middle: closed after the timeout, its buffer free again (§3.5)."""
    env.need_millrace()
    c, r, s = await line(env, router={"timeout": 3, "buffers": {"large": 4}})
    bad = BadPeer(env, "bad", "10.0.0.66@tcp", r.nids[0])
    for i in range(3):
        conns = await bad.full_set()
        before = await r.drops()
        frame = bad.frame(bad.put(1 << 20, dst=s.nid), bytes(1 << 20))
        outs = [conns[2]] + [await bad.attach(wire.BULK_OUT) for _ in range(3)]
        for out in outs:        # all large buffers are taken by messages that never end
            await out.send(frame[:200000])
        for j, conn in enumerate(conns + outs[1:]):
            _, how, took = await conn.end(8)
            assert how in ("FIN", "RST"), f"round {i}: connection {j}: {how} after {took:.1f} s"
        after = await r.drops()
        assert after["tcp_receive_stall"] > before["tcp_receive_stall"], "counted by name"
        assert await c.put(s.nid, pattern(i, 1 << 20)), "the buffers are free again"
        bad.close()
    await env.settle()
    assert not c.closes and not s.closes


async def test_idle_callers(env):
    """Hundreds of callers that say nothing do not lock out a node that does."""
    env.need_millrace()
    c, r, s = await line(env)
    bad = BadPeer(env, "bad", "10.0.0.66@tcp", r.nids[0])
    calls = [asyncio.ensure_future(bad.dial()) for _ in range(300)]
    await asyncio.sleep(1)
    c2, s2 = await second_pair(env, r)
    assert await c2.put(s2.nid, pattern(1, 100000)) and await c.get(s.nid, 3000)
    # A port does not answer an address that has its share of all greetings: those go on calling.
    let_in = sum(not isinstance(x, Exception) for x in await asyncio.gather(*calls, return_exceptions=True))
    env.result(f"{let_in} of 300 connected")
    assert let_in == 300 if env.transport == "kernel" else let_in >= 16
    await env.settle()
    bad.close()
