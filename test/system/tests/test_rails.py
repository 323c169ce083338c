# SPDX-License-Identifier: BSD-3-Clause
"""Several NIs on a net, and a gateway with several NIDs: both rails carry messages, and one that is pulled costs none."""

import asyncio

from lnetpy import nid as N
from lnetpy import wire
from lnetpy.node import pattern
from lnetpy.scene import deadline, only, routes_up

TIMES = {"ping_timeout": 5, "timeout": 10}


async def railed(env, name, *nids, **kw):
    """A router whose NIs of one subnet use an interface each, which on host sockets is the host's to see to."""
    r = env.prepare(name, *nids, **kw)
    if env.transport == "kernel":
        env.fabric.rails(name, *[n.ip for n in r.nids])
    return await r.start()


async def rails(env):
    """c - A - B - s: two NIs each on tcp, tcp1 and tcp2. A and B know one NID of each other as gateway."""
    env.ledger.ordered = False
    a = await railed(env, "ra", "10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.1.1@tcp1", "10.0.1.2@tcp1",
                     routes=[{"net": "tcp2", "gateway": "10.0.1.3@tcp1", "hop": 1}], **TIMES)
    b = await railed(env, "rb", "10.0.1.3@tcp1", "10.0.1.4@tcp1", "10.0.2.1@tcp2", "10.0.2.2@tcp2",
                     routes=[{"net": "tcp", "gateway": "10.0.1.1@tcp1", "hop": 1}], **TIMES)
    for r, nids in ((a, a.nids[2:]), (b, b.nids[:2])):
        for n in nids:
            r.spec.set_status(n, wire.UP, wire.DOWN)
    c = await env.persona("c", "10.0.0.5@tcp", "10.0.0.6@tcp")
    s = await env.persona("s", "10.0.2.5@tcp2", "10.0.2.6@tcp2")
    for node, nids, net in ((c, a.nids[:2], "tcp2"), (s, b.nids[2:], "tcp")):
        for n in nids:
            node.add_route(N.parse_net(net), n, hop=2)
    await env.bring_up(c, s)
    await routes_up(env, a, b)
    return c, a, b, s


async def discovered(env, router, nids):
    """The router knows these NIDs as one gateway."""
    async def known():
        why = (await router.rpc("why", nid="10.0.2.5@tcp2" if router.name == "ra" else "10.0.0.5@tcp"))["why"]
        return {x["peer_ni"] for x in why["nis"]} == {str(n) for n in nids}
    await env.until_async(known, f"{router.name} uses both NIDs of its gateway", 20)


async def sent_by(router):
    """NID of an NI -> messages that left by it."""
    nets = (await router.rpc("net_get"))["net"]
    return {ni["nid"]: ni["statistics"]["send_count"] for net in nets for ni in net["local NI(s)"] if "statistics" in ni}


async def received_by(router):
    nets = (await router.rpc("net_get"))["net"]
    return {ni["nid"]: ni["statistics"]["recv_count"] for net in nets for ni in net["local NI(s)"] if "statistics" in ni}


async def flow(env, c, a, s, count, workers=4):
    """PUTs with ACK to both NIDs of the server, from both NIs of the client through both of the router's. Returns those lost."""
    todo, lost = list(range(count)), []

    async def work():
        while todo:
            i = todo.pop()
            via = (c.nis[i % 2], a.nids[i // 2 % 2])
            if not await c.put(s.nis[i // 4 % 2].nid, pattern(i, 100 + i % 700), via=via, timeout=40):  # three LND timeouts
                lost.append(i)

    await asyncio.gather(*(work() for _ in range(workers)))
    return lost


def shares(before, after, nids):
    counts = [after[str(n)] - before[str(n)] for n in nids]
    return [100 * n / sum(counts) for n in counts], counts


def even(env, what, percent, counts):
    env.log(f"{what}: {counts}, {percent[0]:.0f} % and {percent[1]:.0f} %")
    assert all(45 <= p <= 55 for p in percent), f"{what}: {counts}"


async def both_carry(env, c, a, b, s, count=400):
    sent, came = await sent_by(a), await received_by(b)
    assert not await flow(env, c, a, s, count)
    even(env, "NIs of ra", *shares(sent, await sent_by(a), a.nids[2:]))
    even(env, "NIDs of rb", *shares(came, await received_by(b), b.nids[:2]))


@only("kernel", "port")
@deadline(200)
async def test_both_carry(env):
    """§7.1, §7.3, §7.4: NIs and the gateway's NIDs take turns."""
    env.need_millrace()
    c, a, b, s = await rails(env)
    await discovered(env, a, b.nids[:2])
    await discovered(env, b, a.nids[2:])
    await both_carry(env, c, a, b, s)


async def pulled(env, host, port, other, seconds=6):
    """A rail of `host` is pulled while messages flow, and comes back. Nothing is lost that had not left."""
    c, a, b, s = await rails(env)
    await discovered(env, a, b.nids[:2])
    await discovered(env, b, a.nids[2:])
    await both_carry(env, c, a, b, s)
    loop = asyncio.get_running_loop()
    ends, lost = loop.time() + seconds, []
    pull = loop.call_later(1, env.fabric.link, env.fabric.ports[host, port], False)
    while loop.time() < ends:
        lost += await flow(env, c, a, s, 40)
    pull.cancel()
    dropped = [await r.drops() for r in (a, b)]
    env.log(f"lost {len(lost)}; dropped {[{k: v for k, v in d.items() if v} for d in dropped]}")
    assert len(lost) <= 8, lost     # those that were on the rail: two of each worker
    gone = env.ledger.forget(lambda e: True)
    assert len(gone) <= len(lost), gone
    before = await received_by(b)
    assert not await flow(env, c, a, s, 100), "traffic goes on over the rail that is left"
    percent, counts = shares(before, await received_by(b), b.nids[:2])
    if host == "rb":
        assert counts[other] == 0, counts
    env.fabric.link(env.fabric.ports[host, port], True)

    async def spread():
        sent, came = await sent_by(a), await received_by(b)
        assert not await flow(env, c, a, s, 80)
        return all(45 <= p <= 55 for p in shares(sent, await sent_by(a), a.nids[2:])[0]
                   + shares(came, await received_by(b), b.nids[:2])[0])
    await env.until_async(spread, "both rails carry messages again", 30)
    await both_carry(env, c, a, b, s)


@only("kernel", "port")
@deadline(200)
async def test_gateway_rail_pulled(env):
    """The gateway's second NI loses its link."""
    env.need_millrace()
    await pulled(env, "rb", "eth1", 1)


@only("kernel", "port")
@deadline(200)
async def test_own_rail_pulled(env):
    """The router's own second NI on the gateway's net loses its link."""
    env.need_millrace()
    await pulled(env, "ra", "eth3", 1)


async def one_carries(env, c, a, b, s, what, ni=None, gateway=None):
    """All messages of ra leave by this NI, or go to this NID of the gateway; over what is not named they spread."""
    sent, came = await sent_by(a), await received_by(b)
    assert not await flow(env, c, a, s, 200)
    for nids, before, after, chosen in ((a.nids[2:], sent, await sent_by(a), ni), (b.nids[:2], came, await received_by(b), gateway)):
        percent, counts = shares(before, after, nids)
        if chosen:
            other = counts[1 - [str(n) for n in nids].index(chosen)]
            env.log(f"{what}: {counts}")
            assert other <= 4, f"{what}: {counts}"     # pings between the gateways, each from the NI that they are about
        else:
            even(env, what, percent, counts)


@only("kernel", "port")
@deadline(200)
async def test_policies(env):
    """docs/protocol/lnet-core.md §8: a selection policy moves all messages to one NI, or to one NID of the gateway. When it is deleted
    they spread again."""
    env.need_millrace()
    c, a, b, s = await rails(env)
    await discovered(env, a, b.nids[:2])
    await discovered(env, b, a.nids[2:])
    await both_carry(env, c, a, b, s)
    await a.rpc("udsp_add", src="10.0.1.2@tcp1")
    await one_carries(env, c, a, b, s, "NI priority", ni="10.0.1.2@tcp1")
    why = (await a.rpc("why", nid="10.0.2.5@tcp2"))["why"]
    assert {x["verdict"] for x in why["nis"] if x["nid"] == "10.0.1.1@tcp1"} & {"ni_priority"}, why["nis"]
    await a.rpc("udsp_add", dst="10.0.1.4@tcp1", idx=0)
    await one_carries(env, c, a, b, s, "both", ni="10.0.1.2@tcp1", gateway="10.0.1.4@tcp1")
    await a.rpc("udsp_del", idx=1)
    await one_carries(env, c, a, b, s, "peer NI priority", gateway="10.0.1.4@tcp1")
    await a.rpc("udsp_del", all=True)
    await both_carry(env, c, a, b, s)
