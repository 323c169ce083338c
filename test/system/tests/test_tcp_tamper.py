# SPDX-License-Identifier: BSD-3-Clause
"""Traffic through ports that lose, delay, reorder, double and damage packets: nothing of it shows above TCP."""

from lnetpy import nid as N
from lnetpy.node import pattern
from lnetpy.scene import ROUTER, cases, deadline, join, line, only, traffic

from .test_tcp_interop import tcp_rows

# name: (rules, requests each way, what must have happened: counters of the stage that are not 0, of connections)
FAULTS = {
    "loss 0.1 %": ({"loss": 0.1}, 1500, ["lost"], []),
    "loss 1 %": ({"loss": 1}, 300, ["lost"], ["resent"]),
    "loss 5 %": ({"loss": 5}, 100, ["lost"], ["resent"]),
    "bursts of loss": ({"burst_begin": 0.5, "burst_end": 30}, 150, ["lost"], ["resent"]),
    "reordering": ({"reorder": 5, "reorder_ms": 2}, 200, ["reordered"], []),
    "duplication": ({"duplicate": 5}, 200, ["duplicated"], ["dsacks_in"]),
    "corruption": ({"corrupt": 1}, 200, ["corrupted"], ["resent"]),
    "delay 1 ms": ({"delay_ms": 1}, 200, ["delayed"], []),
    "delay 20 ms, jitter": ({"delay_ms": 20, "jitter_ms": 10}, 60, ["delayed"], []),
    "delay 200 ms": ({"delay_ms": 200}, 16, ["delayed"], []),
    "a narrow link": ({"rate_mbit": 100, "queue_kb": 64}, 100, ["queue_dropped"], ["resent"]),
    "everything": ({"loss": 1, "reorder": 2, "reorder_ms": 2, "duplicate": 1, "corrupt": 0.3, "delay_ms": 3, "jitter_ms": 2},
                   80, ["lost", "reordered", "duplicated", "corrupted", "delayed"], ["resent"]),
}


async def counted(r, names):
    """Sum of the stage's counters over ports and directions."""
    rows = (await r.rpc("tamper_get"))["tamper"]
    return {n: sum(row[n] for row in rows) for n in names}


@only("port")
@deadline(100)
@cases(*FAULTS)
async def test_traffic(env, what):
    rules, count, faults, answers = FAULTS[what]
    c, r, s = await line(env)
    await r.rpc("tamper_set", direction="both", seed=len(what), **rules)
    tasks = [c.task(traffic(env, a, b, count, workers=12, seed=5, big=0.03, timeout=60)) for a, b in ((c, s), (s, c))]
    await env.until(lambda: all(t.done() for t in tasks), "traffic", 80)
    seen = await counted(r, faults)
    assert all(seen.values()), f"the stage did nothing: {seen}"
    rows = await tcp_rows(r)
    did = {k: sum(x[k] for x in rows) for k in ("resent", "rtos", "tlps", "dsacks_in", "undone", *answers)}
    assert all(did[k] for k in answers), did
    await r.rpc("tamper_clear")
    await env.settle(20)
    drops = {k: v for k, v in (await r.drops()).items() if v}
    assert not drops, drops
    env.result(f"{seen}; {did}")


@only("port")
@deadline(60)
async def test_seed(env):
    """The same seed does the same to the same packets: pings, one after the other."""
    c, r, s = await line(env)
    runs = []
    for _ in range(2):
        await r.rpc("tamper_set", port="eth0", direction="in", seed=99, duplicate=30, payload=True)
        for _ in range(40):
            assert await c.ping(r.nids[0])
        runs.append(await counted(r, ["duplicated"]))
        await r.rpc("tamper_clear")
    assert runs[0] == runs[1] and runs[0]["duplicated"], runs


@only("port")
@deadline(90)
async def test_black_hole(env):
    """All that is large is lost without a word, as by a link of a smaller MTU: connections go on with smaller segments."""
    r = await env.router("r", *ROUTER)
    c = await env.persona("c", "10.0.0.2@tcp")
    s = await env.persona("s", "10.0.1.2@tcp1")
    join(c, r, "tcp1")
    await env.bring_up(c)
    s.add_route(N.parse_net("tcp"), r.nids[1], check=False)
    assert await c.put(s.nid, b"small")
    await r.rpc("tamper_set", port="eth1", direction="out", loss=100, longer=1300)
    assert await c.put(s.nid, pattern(1, 300000), timeout=60), "the black hole was not noticed"
    rows = [x for x in await tcp_rows(r) if x["ifname"] == "eth1"]
    assert any(x["mss"] <= 1248 for x in rows), [(x["remote"], x["mss"]) for x in rows]
    await env.settle()
