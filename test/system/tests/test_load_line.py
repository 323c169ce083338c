# SPDX-License-Identifier: BSD-3-Clause
"""Two routers in line with next to no buffers: cross traffic must not make each wait for the other."""

import asyncio

from lnetpy.crowd import Books
from lnetpy.crowd_scene import allowed, cross_traffic, line
from lnetpy.scene import alone, cases, deadline

STALL = 2.0                 # s without an answer, of any flow


@alone
@deadline(70, long=150)
@cases(1, 2)
async def test_two_buffers_of_each_kind(env, reactors):
    """Two buffers of each kind on each reactor, traffic of all sizes both ways: no flow stands still, nothing is lost."""
    env.need_millrace()
    few = {k: 2 * reactors for k in ("tiny", "small", "large")}
    (r1, rest1), (r2, rest2), a, b = await line(env, reactors=reactors, buffers=few)
    books = await Books.open([r1, r2], [a, b])
    loads = await cross_traffic(a, b, window=2)
    await asyncio.sleep(2)
    for c in (a, b):
        await c.call("reset")
    await asyncio.sleep(60 if env.long else 12)
    rows = [await x.sum() for x in loads]
    for x in loads:
        await x.stop()
    stall, drops = max(row["stall"] for row in rows), await books.drops()
    env.result(f"{sum(row['done'] for row in rows)} requests, {sum(row['bytes'] for row in rows) >> 20} MiB, "
               f"longest stall {stall:.2f} s, slowest {max(row['slowest'] for row in rows):.2f} s")
    assert stall <= await allowed(env, STALL, a, b), f"a flow stood still for {stall:.2f} s; drops {drops}"
    assert min(row["least"] for row in rows) > 0, "a flow was not served at all"
    assert not drops, drops
    await books.check(timeout=40)
    for rest in (rest1, rest2):
        await rest.wait()
