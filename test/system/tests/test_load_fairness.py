# SPDX-License-Identifier: BSD-3-Clause
"""A peer that is slow, dead or hostile costs only itself: others keep their rate and their answers.

docs/architecture.md, on admission.
"""

import asyncio
import re

from lnetpy.crowd import Books, pairs
from lnetpy.crowd_scene import (CLIENTS, FAR, HUNG, LORIS, NEAR, SERVERS, WRITERS, allowed, small_sockets, until_done,
                                until_quiet, wide_router)
from lnetpy.router import RpcError
from lnetpy.scene import alone, cases, deadline

KEPT = 0.8                  # of the rate alone
IN_TIME = 1.0               # s, for each message of the others


@alone
@deadline(100, long=300)
async def test_server_stops_reading(env):
    """A server stops reading while 200 clients write to it. 20 others use another server as if nothing was.

    The rate that is compared is that of a load of a third of what the others reach with all they have, so that it does not
    tell how busy this machine is with other things. With --long that is compared too.
    """
    env.need_millrace()
    wait, watch = (10, 60) if env.long else (2, 6)
    r, rest = await wide_router(env, buffer_wait=wait, timeout=300)
    others, writers = await env.crowd("others", CLIENTS, 20), await env.crowd("writers", WRITERS, 200)
    good, hung = await env.crowd("good", SERVERS, 1), await env.crowd("hung", HUNG, 1)
    for crowd, gateway in ((others, NEAR), (writers, NEAR), (good, FAR), (hung, FAR)):
        await crowd.nodes(gateway)
    books = await Books.open([r], env.crowds)
    full = await others.load(pairs(others.nids, good.nids), window=2)
    await full.rates(1)
    most = await full.rate(10 if env.long else 2)
    await full.stop()
    load = await others.load(pairs(others.nids, good.nids), window=4, every=20 / (most / 3))
    before = await load.rate(3)

    await hung.pause()
    flood = await writers.load(pairs(writers.nids, hung.nids), window=4, timeout=120)
    await until_quiet(env, flood, 15)
    await others.call("reset")
    beside = await load.rate(watch)
    row, drops = await load.sum(), await books.drops()
    env.result(f"others {before:.0f}/s alone, {beside:.0f}/s ({beside / before:.2f}) beside 200 writers to a hung server, "
               f"slowest {row['slowest']:.2f} s; drops {drops}")
    assert beside >= KEPT * before, f"others: {before:.0f}/s alone, {beside:.0f}/s beside the hung server; drops {drops}"
    assert not row["expired"] and not row["failed"], row
    if env.long:
        await load.stop()
        full = await others.load(pairs(others.nids, good.nids), window=2)
        beside = await full.rate(30)
        env.result(f"with all they have {most:.0f}/s alone, {beside:.0f}/s ({beside / most:.2f})")
        assert beside >= KEPT * most, f"others: {most:.0f}/s alone, {beside:.0f}/s beside the hung server"
    await hung.pause(False)
    for each in (load, full, flood):
        await each.stop()
    await books.check(timeout=60)
    for each in (load, full):
        row = await each.sum()
        assert row["done"] == row["issued"], f"a message of the others was lost: {row}"
    await rest.wait()


def held(buffers):
    """(pool of a reactor, how many of its buffers are taken, of how many)"""
    return [(f"{name} of reactor {row['reactor']}", row[name]["nbuffers"] - row[name]["credits"], row[name]["nbuffers"])
            for row in buffers["reactors"] for name in ("tiny", "small", "large")]


@cases(50, 20)
async def test_share_of_one_server(env, share):
    """However much is written to a server that does not read, it holds no more than its share of any pool. Where the router waits for
    a CPU some writers are slow, and their payload has a share of its own beside it; shares are of what is free."""
    env.need_millrace()
    small_sockets(env, "r", "hung")
    r, rest = await wide_router(env, buffer_wait=3)
    writers, hung = await env.crowd("writers", WRITERS, 60), await env.crowd("hung", HUNG, 1)
    await writers.nodes(NEAR)
    await hung.nodes(FAR)
    books = await Books.open([r], [writers, hung])
    assert (await r.rpc("admission_get"))["egress_share"] == 50
    if share != 50:
        await r.rpc("admission_set", egress_share=share)
        assert (await r.rpc("admission_get"))["egress_share"] == share
    await hung.pause()
    load = await writers.load(pairs(writers.nids, hung.nids), kind="send", window=8)
    await until_quiet(env, load, 15)
    most = {}
    for _ in range(40):
        for pool, used, size in held(await r.rpc("buffers_get")):
            most[pool] = max(most.get(pool, (0, size)), (used, size))
        await asyncio.sleep(0.05)
    for pool, (used, size) in most.items():
        one, two = size * share / 100 * env.stretch() + 1, size * 2 * share / (100 + 2 * share) + 2
        assert used <= min(one, two), f"{used} of {size} {pool} buffers for one server, its share is {share} %"
    assert any("large" in pool and used for pool, (used, _) in most.items()), f"nothing held: {most}"
    await hung.pause(False)
    await load.stop()
    env.result(f"most held {most}; {await books.check(timeout=60)}")
    await rest.wait()


@deadline(60)
async def test_resize_under_load(env):
    """Pools grow and shrink in mid-traffic. No message is lost, and in the end there are as many as were asked for."""
    env.need_millrace()
    r, rest = await wide_router(env, buffers={"tiny": 64, "small": 64, "large": 16}, memory=512)
    c, s = await env.crowd("c", CLIENTS, 20), await env.crowd("s", SERVERS, 4)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    books = await Books.open([r], [c, s])
    load = await c.load(pairs(c.nids, s.nids), window=4)
    for tiny, small, large in ((8, 8, 4), (256, 256, 64), (4, 256, 4), (256, 4, 32), (4, 4, 4), (64, 64, 16)):
        await r.rpc("buffers_set", tiny=tiny, small=small, large=large)

        async def resized():
            now = await r.rpc("buffers_get")
            return now["buffers"] == {"tiny": tiny, "small": small, "large": large} and \
                all(used >= 0 for _, used, _ in held(now))
        await env.until_async(resized, f"pools of {tiny}, {small}, {large}", 10)
        await until_done(env, load, 3, "traffic with pools of another size", 15)
    before = await r.rpc("buffers_get")
    try:
        await r.rpc("buffers_set", large=1 << 20)
    except RpcError as e:
        numbers = re.findall(r"\d+", re.sub(r"'(errno|code)': -?\d+", "", str(e)))
        assert set(numbers) - {str(1 << 20)}, f"does not say how many would fit: {e}"
    else:
        raise AssertionError("a TiB of buffers was granted")
    assert (await r.rpc("buffers_get"))["buffers"] == before["buffers"]
    await load.stop()
    env.result(await books.check())
    await rest.wait()


@alone
@deadline(90)
@cases("another server", "many servers", "the same server", "the same server, few buffers")
async def test_half_messages(env, target):
    """500 nodes each send half of a 1 MiB message and no more. Everybody else's messages complete within a second.

    There are 64 large buffers, for the same server 1024 as is the default. With 64 and the same server the others stand in
    line behind 500, for as long as a message may wait; what they lose is counted, and from then on they have their second.
    """
    env.need_millrace()
    few = target.endswith("few buffers")
    plenty, count = ({"buffers": {"large": 1024}, "memory": 1400} if target == "the same server" else {}), 500
    if plenty and env.transport == "port":
        # There it is memory for segments that has to be plenty. Four times its size is set aside for a message of a
        # connection that has shown nothing of its ratio yet, and one server has half of what is free at most.
        plenty, count = {"memory": 1800, "extra": "  segments: 500\n"}, 24
    r, rest = await wide_router(env, buffer_wait=4 if few else None, **plenty)
    others, loris = await env.crowd("others", CLIENTS, 20), await env.crowd("loris", LORIS, count)
    good, victims = await env.crowd("good", SERVERS, 1), await env.crowd("victims", HUNG, 10)
    for crowd, gateway in ((others, NEAR), (good, FAR), (victims, FAR)):
        await crowd.nodes(gateway)
    await loris.nodes(NEAR, types=[3], pings=False)
    used = {"another server": victims.nids[:1], "many servers": victims.nids}.get(target, good.nids)
    before = await Books.drops_of(r)
    for i, dst in enumerate(used):
        await loris.call("begin", nids=loris.nids[i::len(used)], dst=dst, size=1 << 20, part=1 << 19)
    await loris.until(lambda s: s["unsent"] < count << 19, "half messages on the way", 5)

    begun = env.now()
    for crowd in (others, good):
        await crowd.call("reset")
    load = await others.load(pairs(others.nids, good.nids), timeout=5 if few else 30)
    if few:
        await until_done(env, load, 2, "everybody served", 15)
        env.result(f"served after {env.now() - begun:.1f} s")
        await others.call("reset")
    await asyncio.sleep(20 if env.long else 5)
    row = await load.sum()
    await load.stop()
    drops = {k: n - before.get(k, 0) for k, n in (await Books.drops_of(r)).items() if n != before.get(k, 0)}
    env.result(f"{row['done']} messages, slowest {row['slowest']:.2f} s; drops {drops}")
    assert row["slowest"] <= await allowed(env, IN_TIME, others, good), \
        f"{row['slowest']:.2f} s for a message; {row['done']} done; drops {drops}"
    assert row["least"] > 0, "a node was not served at all"
    await loris.call("close", nids=None, rst=True)
    await others.idle()
    row = await load.sum()
    waited = sum(drops.get(k, 0) for k in ("destination_share_expired", "buffer_wait_expired"))
    assert row["done"] + row["expired"] == row["issued"] and row["expired"] <= (waited if few else 0), \
        f"a message of the others was lost: {row}"
    await rest.wait()
