# SPDX-License-Identifier: BSD-3-Clause
"""The control plane of a router with 10,000 peers and 2,000 routes: each page in 50 ms, no reactor held for 100 us, and
every listing whole. docs/jsonrpc.md."""

from lnetpy.control import clients, never_held_up, pages, twice
from lnetpy.control_scene import HOME, MANY_PEERS, MANY_ROUTES, crowded_router
from lnetpy.scene import alone, deadline

PAGE_BAR = 0.050            # s for a page, measured by the client
GETS = ("net_get", "routing_get", "buffers_get", "admission_get", "global_get", "tunables_get", "stats_get", "drops_get",
        "waits_get", "reactors_get", "events_get", "config_status", "names_get", "version")


def bar(env):
    return PAGE_BAR * (8 if env.sanitized else 1) * env.stretch()


def check_pages(env, what, took, firsts):
    assert max(took) <= bar(env), f"{what}: a page took {1000 * max(took):.0f} ms at best"
    env.result(f"{what}: {len(took)} pages, slowest {1000 * max(took):.0f} ms ({1000 * max(firsts):.0f} ms when first asked)")


@alone
@deadline(90, long=240)
async def test_pages(env):
    """10,000 peers, most of which have gone, and 2,000 routes over 40 gateways: all pages of all gets."""
    env.need_millrace()
    stay = 8000 if env.long else 2000
    begun = env.now()
    r, gateways, crowd = await crowded_router(env, stay=stay, memory=512)
    env.result(f"{MANY_PEERS} peers came in {env.now() - begun:.1f} s")
    async with clients(r) as c:
        await never_held_up(env, c, lambda: all_gets(env, c, gateways, crowd, stay))


async def all_gets(env, c, gateways, crowd, stay):
    """Everything there is to be read, page by page, and whether it is there and in time."""
    rows, took, firsts = await pages(c, "peer_get", "peer")
    nids = [ni["nid"] for p in rows for ni in p["peer ni"]]
    assert not twice(nids), f"twice: {twice(nids)[:5]}"
    missing = set(crowd.nids) - set(nids)
    assert not missing, f"{len(missing)} peers are not known any more, as {sorted(missing)[:3]}"
    check_pages(env, "peer_get", took, firsts)
    linked = {ni["nid"] for p in rows for ni in p["peer ni"] if sum(ni["millrace"]["connections"].values())}
    assert linked == set(crowd.nids[:stay]), f"{len(linked)} have connections, {stay} stayed"
    for limit in (1, 7, 250):
        some = await c.call("peer_get", limit=limit)
        assert len(some["peer"]) == limit and some["cursor"], (limit, len(some["peer"]))
    rows, took, firsts = await pages(c, "peer_get", "peer", brief=True, limit=2000)
    assert sorted(ni["nid"] for p in rows for ni in p["peer ni"]) == sorted(nids)
    check_pages(env, "peer_get brief 2000", took, firsts)
    rows, took, firsts = await pages(c, "route_get", "route")
    assert len(rows) == MANY_ROUTES and not twice((x["net"], x["gateway"]) for x in rows), len(rows)
    check_pages(env, "route_get", took, firsts)
    one, _, _ = await pages(c, "route_get", "route", gateway=gateways[0], limit=7)
    assert {x["gateway"] for x in one} == {gateways[0]} and len(one) == MANY_ROUTES // len(gateways), len(one)
    slowest = {}
    for method in GETS:
        slowest[method] = min([(await c.ask(method)).took for _ in range(4)])
    for params in ({"nid": crowd.nids[77]}, {"nid": "10.9.9.9@tcp1050"}, {"nid": HOME}):
        slowest[f"why {params['nid']}"] = min([(await c.ask("why", params)).took for _ in range(4)])
    slowest["peer_get one"] = min([(await c.ask("peer_get", {"nid": crowd.nids[-1]})).took for _ in range(4)])
    worst = max(slowest, key=slowest.get)
    assert slowest[worst] <= bar(env), f"{worst}: {1000 * slowest[worst]:.0f} ms at best"
    env.result(f"others at most {1000 * slowest[worst]:.1f} ms ({worst})")
    top = await c.call("peer_top", by="bytes", count=10, interval_ms=200, timeout=20)
    assert len(top["peers"]) <= 10, top
    for form in ("json", "yaml"):
        a = await c.ask("config_get", {"form": "running", "as": form})
        assert a.result, a
        env.result(f"config_get {form} {1000 * a.took:.0f} ms")


@alone
@deadline(60)
async def test_pages_while_peers_come(env):
    """Peers that stay are listed exactly once however many come meanwhile."""
    env.need_millrace()
    count = 1500
    r, _, crowd = await crowded_router(env, count, routes=0)
    late = [f"10.65.100.{i % 250 + 1}@tcp" if i < 250 else f"10.65.{101 + i // 250}.{i % 250 + 1}@tcp" for i in range(count)]
    visit = env.loop().create_task(crowd.visit(HOME, nids=late))
    listings = 0
    async with clients(r) as c:
        while not visit.done() or not listings:
            rows, _, _ = await pages(c, "peer_get", "peer", limit=100)
            nids = [ni["nid"] for p in rows for ni in p["peer ni"]]
            stayed = [n for n in nids if n in crowd.nids]
            assert sorted(stayed) == sorted(crowd.nids), f"{len(stayed)} of {count}, twice {twice(stayed)[:3]}"
            assert not twice(nids), twice(nids)[:3]
            listings += 1
        await visit
        rows, _, _ = await pages(c, "peer_get", "peer")
        assert len({ni["nid"] for p in rows for ni in p["peer ni"]} & {*crowd.nids, *late}) == 2 * count
    env.result(f"{listings} listings while {count} peers came")


@deadline(40)
async def test_cursors_nobody_gave(env):
    """A cursor is data from outside: whatever it is, the answer is a page or an error, and the router lives."""
    env.need_millrace()
    r, _, _ = await crowded_router(env, 50, routes=50)
    bad = ["", "0", "-1", "x" * 5000, "99999999999999999999", "0:0", "4294967295:4294967295", "-1:-1", "0:18446744073709551616",
           "\0", "1:2:3", "é", "0x10", " 1", "tcp1", "{}"]
    async with clients(r) as c:
        good = {m: (await c.call(m, limit=10))["cursor"] for m in ("peer_get", "route_get")}
        for method, key in (("peer_get", "peer"), ("route_get", "route")):
            other = good["route_get" if method == "peer_get" else "peer_get"]
            for cursor in [*bad, other, good[method] + "0", good[method][:-1]]:
                a = await c.ask(method, {"cursor": cursor, "limit": 10})
                assert a.error or len(a.result[key]) <= 10, (cursor, a)
                assert not a.error or a.code in (-32602, -22), (cursor, a)
            for limit in (0, -1, 2001, 1 << 40):
                assert (await c.ask(method, {"limit": limit})).code == -32602, limit
            for cursor in (5, True, None, ["1"], {}):
                assert (await c.ask(method, {"cursor": cursor})).code == -32602, cursor
        assert await c.call("version")
