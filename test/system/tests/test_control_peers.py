# SPDX-License-Identifier: BSD-3-Clause
"""Peers as an operator has them: lnetctl's `discover`, `peer add`, `peer del`, `peer set`, `peer show` and `set discovery`, with
kernel nodes of one and two NIDs. docs/protocol/lnet-core.md §3.5, §3.6, §10.1, §10.3, §10.6."""

import asyncio
import errno
import subprocess

from lnetpy import wire
from lnetpy.control import clients
from lnetpy.router import find_program
from lnetpy.scene import ROUTER, deadline

ONE, TWO = "10.0.0.2@tcp", "10.0.0.3@tcp"

# Bits of `peer state`, §3.6
MULTI_RAIL, NO_DISCOVERY, ROUTER_ENABLED, CONFIGURED, DISCOVERED, NIDS_UPTODATE = 1, 2, 4, 8, 16, 256
LOCKED = 1 << 20


class Seen:
    """What a persona gets for the reserved portal, in order: ("GET" or "PUT", its ping info)."""

    def __init__(self, node):
        self.got = []
        node.on_message = self.take

    def take(self, ni, conn, hdr, payload):
        if hdr.mtype == wire.GET:
            self.got.append(("GET", None))
        elif hdr.mtype == wire.PUT:
            self.got.append(("PUT", wire.unpack_ping(payload)))
        return False

    def kinds(self):
        return [kind for kind, _ in self.got]


async def discoverable(env, r, *nids):
    """A persona that the router may ping."""
    p = await env.persona("p", *nids)
    r.spec.gateways.update(ni.nid for ni in p.nis)
    return p


async def peer_of(r, nid):
    """(its row, {nid: row of the peer NI})"""
    row, = (await r.rpc("peer_get", nid=nid))["peer"]
    return row, {ni["nid"]: ni for ni in row["peer ni"]}


async def test_set_discovery(env):
    """`set discovery 0`: the ping info says so with the same number, multi-rail peers get it in a PUSH, and nobody is discovered
    any more. `set discovery 1` sends nothing. §3.2, §3.5, §3.6"""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    p = await env.persona("p", ONE, TWO)
    gateway = r.nids[0]
    assert (await p.discover(gateway)).features == 0x1a
    seen = Seen(p)
    row, _ = await peer_of(r, ONE)
    assert row["Multi-Rail"] and row["peer state"] == MULTI_RAIL | DISCOVERED | NIDS_UPTODATE, row
    before = p.peer_info[gateway].seq
    r.spec.features = {0x0a}
    await r.rpc("global_set", discovery=0)
    await env.until(lambda: seen.got, "the PUSH without discovery")
    assert [(kind, info.features, info.seq) for kind, info in seen.got] == [("PUT", 0x0a, before)], seen.got
    assert (await p.ping(gateway)).features == 0x0a
    # Its PUSH is acknowledged, teaches no NIDs and is not answered with one
    p.seq += 1
    assert await p.push(gateway)
    row, nis = await peer_of(r, ONE)
    assert not row["Multi-Rail"] and row["peer state"] & (MULTI_RAIL | NO_DISCOVERY) == NO_DISCOVERY, row
    assert list(nis) == [ONE], nis
    r.spec.features = {0x0a, 0x1a}
    await r.rpc("global_set", discovery=1)

    async def on_again():
        return (await p.ping(gateway)).features == 0x1a
    await env.until_async(on_again, "discovery in the ping info")
    assert seen.kinds() == ["PUT"], seen.got
    p.seq += 1
    assert await p.push(gateway)
    await env.until(lambda: seen.kinds() == ["PUT", "PUT"], "the PUSH back")
    row, nis = await peer_of(r, ONE)
    assert row["Multi-Rail"] and list(nis) == [ONE, TWO], row
    await env.settle()


async def test_start_without_discovery(env):
    """A configuration with `discovery: 0`. §3.2"""
    env.need_millrace()
    r = await env.router("r", *ROUTER, extra="discovery: 0\n")
    r.spec.features = {0x0a}
    p = await env.persona("p", ONE)
    assert (await p.discover(r.nids[0])).features == 0x0a
    assert (await r.rpc("global_get"))["discovery"] == 0
    await env.settle()


async def cli(env, r, *words, status=0):
    """What `millrace` prints."""
    p = await asyncio.to_thread(subprocess.run, [find_program(env.build, "millrace"), "-s", r.sock, *words],
                                capture_output=True, text=True, timeout=60)
    assert p.returncode == status, (words, p)
    return p.stdout if status == 0 else p.stderr


async def refused(c, method, err, parameter, **params):
    a = await c.ask(method, params)
    assert a.error, (method, params, a)
    assert a.code == -err and a.error["data"]["parameter"] == parameter, (method, params, a)


# Its layout is that of a kernel node, as in test/golden/outputs
FOUND = """discover:
- primary nid: 10.0.0.2@tcp
  Multi-Rail: true
  peer_ni:
  - nid: 10.0.0.2@tcp
  - nid: 10.0.0.3@tcp
"""


async def test_discover(env):
    """`discover` pings a node of two NIDs by one of them and pushes our NIDs to it, once; --force does it again. §3.6, §10.6"""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    p = await discoverable(env, r, ONE, TWO)
    seen = Seen(p)
    out = await cli(env, r, "discover", TWO)
    assert out == FOUND, out
    assert seen.kinds() == ["GET", "PUT"], seen.got
    row, nis = await peer_of(r, TWO)
    assert row["primary nid"] == ONE and row["Multi-Rail"] and list(nis) == [ONE, TWO], row
    assert row["peer state"] == MULTI_RAIL | DISCOVERED | NIDS_UPTODATE, row
    assert await cli(env, r, "discover", ONE) == FOUND
    assert seen.kinds() == ["GET", "PUT"], seen.got
    assert await cli(env, r, "discover", ONE, "--force") == FOUND
    assert seen.kinds() == ["GET", "PUT", "GET"], seen.got
    # This node itself
    own = (await r.rpc("discover", nid=ROUTER[0]))["discover"][0]
    assert own["primary nid"] == ROUTER[0] and [ni["nid"] for ni in own["peer_ni"]] == list(ROUTER), own
    await env.settle()


async def test_discover_fails(env):
    """A node that is not there, that has no route to it, that does not answer: as many at a time as pings."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    p = await discoverable(env, r, ONE)
    p.on_message = lambda ni, conn, hdr, payload: hdr.mtype == wire.GET
    async with clients(r) as c:
        await refused(c, "discover", errno.EHOSTUNREACH, "nid", nid="10.0.0.2@tcp9")
        await refused(c, "discover", errno.ETIMEDOUT, "nid", nid=ONE, timeout_ms=300)
        numbers = [c.post("discover", {"nid": ONE, "timeout_ms": 2000}) for _ in range(20)]
        codes = sorted([(await c.answer(n, 20)).code for n in numbers])
        assert codes == sorted([-errno.ETIMEDOUT] * 16 + [-errno.EBUSY] * 4), codes
        # Others are discovered meanwhile
        q = await env.persona("q", TWO)
        r.spec.gateways.add(q.nid)
        row, = (await c.call("discover", nid=TWO))["discover"]
        assert row == {"primary nid": TWO, "Multi-Rail": True, "peer_ni": [{"nid": TWO}]}, row
    out = await cli(env, r, "discover", "10.0.0.2@tcp9", status=1)
    assert "discover:" in out and f"errno: {-errno.EHOSTUNREACH}" in out, out
    env.tolerate = ["never arrived"]


async def test_discover_without_discovery(env):
    """With `set discovery 0` a command still pings the peer once, and takes no NIDs. §3.5"""
    env.need_millrace()
    r = await env.router("r", *ROUTER, extra="discovery: 0\n")
    r.spec.features = {0x0a}
    p = await discoverable(env, r, ONE, TWO)
    seen = Seen(p)
    row, = (await r.rpc("discover", nid=ONE))["discover"]
    assert row == {"primary nid": ONE, "Multi-Rail": False, "peer_ni": [{"nid": ONE}]}, row
    assert seen.kinds() == ["GET"], seen.got
    row, _ = await peer_of(r, ONE)
    assert row["peer state"] == NO_DISCOVERY | DISCOVERED | NIDS_UPTODATE, row
    await env.settle()


@deadline(40)
async def test_peer_add(env):
    """lnetctl's rules of `peer add` and `peer del`: the node has what the configuration says. §10.1, §11"""
    env.need_millrace()
    r = await env.router("r", *ROUTER, routes=[{"net": "tcp8", "gateway": "10.0.0.8@tcp"}])
    p = await env.persona("p", ONE, TWO)
    assert await p.discover(r.nids[0])
    async with clients(r) as c:
        await c.call("peer_add", prim_nid="10.0.0.20@tcp", nid=["10.0.0.21@tcp", "10.0.1.20@tcp1"], lock_prim=True)
        row, nis = await peer_of(r, "10.0.1.20@tcp1")
        assert row["primary nid"] == "10.0.0.20@tcp" and row["Multi-Rail"], row
        assert row["peer state"] == MULTI_RAIL | CONFIGURED | LOCKED, row
        assert list(nis) == ["10.0.0.20@tcp", "10.0.0.21@tcp", "10.0.1.20@tcp1"], nis
        assert nis["10.0.0.21@tcp"]["state"] == "NA" and nis["10.0.0.21@tcp"]["max_ni_tx_credits"] == 8, nis
        await c.call("peer_add", prim_nid="10.0.0.30@tcp", non_mr=True)
        row, _ = await peer_of(r, "10.0.0.30@tcp")
        assert not row["Multi-Rail"] and row["peer state"] == CONFIGURED, row
        for err, parameter, params in (
                (errno.EINVAL, "prim_nid", {"prim_nid": "0@lo"}), (errno.EINVAL, "prim_nid", {"prim_nid": ROUTER[0]}),
                (errno.EINVAL, "nid", {"prim_nid": "10.0.0.20@tcp", "nid": [ROUTER[1]]}),
                (errno.EEXIST, "prim_nid", {"prim_nid": "10.0.0.21@tcp"}),
                (errno.EEXIST, "nid", {"prim_nid": "10.0.0.40@tcp", "nid": ["10.0.0.21@tcp"]}),
                (errno.EEXIST, "nid", {"prim_nid": "10.0.0.40@tcp", "nid": ["10.0.0.30@tcp"]}),
                (errno.EPERM, "nid", {"prim_nid": "10.0.0.30@tcp", "nid": ["10.0.0.31@tcp"]}),
                (errno.EPERM, "nid", {"prim_nid": "10.0.0.40@tcp", "nid": ["10.0.0.41@tcp"], "non_mr": True}),
                (errno.EPERM, "non_mr", {"prim_nid": "10.0.0.20@tcp", "non_mr": True}),
                (errno.EBUSY, "prim_nid", {"prim_nid": "10.0.0.8@tcp"}),
                (errno.EBUSY, "nid", {"prim_nid": "10.0.0.40@tcp", "nid": ["10.0.0.8@tcp"]})):
            await refused(c, "peer_add", err, parameter, **params)
        for err, parameter, params in (
                (errno.ENOENT, "prim_nid", {"prim_nid": "10.0.0.99@tcp"}), (errno.ENOENT, "prim_nid", {"prim_nid": "10.0.0.21@tcp"}),
                (errno.ENOENT, "nid", {"prim_nid": "10.0.0.20@tcp", "nid": ["10.0.0.30@tcp"]}),
                (errno.EBUSY, "nid", {"prim_nid": "10.0.0.20@tcp", "nid": ["10.0.0.20@tcp"]}),
                (errno.EBUSY, "prim_nid", {"prim_nid": "10.0.0.8@tcp"})):
            await refused(c, "peer_del", err, parameter, **params)
        # A discovered peer loses the NID that a configured one gets, and does not get it back
        await c.call("peer_add", prim_nid="10.0.0.40@tcp", nid=[TWO])
        assert list((await peer_of(r, ONE))[1]) == [ONE]
        assert list((await peer_of(r, TWO))[1]) == ["10.0.0.40@tcp", TWO]
        p.seq += 1
        assert await p.push(r.nids[0])
        assert list((await peer_of(r, TWO))[1]) == ["10.0.0.40@tcp", TWO]
        await c.call("peer_del", prim_nid="10.0.0.40@tcp", nid=[TWO])
        assert list((await peer_of(r, "10.0.0.40@tcp"))[1]) == ["10.0.0.40@tcp"]
        await c.call("peer_del", prim_nid="10.0.0.40@tcp", nid=["10.0.0.40@tcp"])
        assert (await c.ask("peer_get", {"nid": "10.0.0.40@tcp"})).code == -errno.ENOENT
        # A discovered peer can be removed, too; its next PUSH makes it anew
        await c.call("peer_del", prim_nid=ONE)
        assert (await peer_of(r, ONE))[0]["peer state"] == 0
        p.seq += 1
        assert await p.push(r.nids[0])
        await env.until_async(lambda: has_nids(r, ONE, [ONE, TWO]), "both NIDs again")
    await env.settle()


async def has_nids(r, nid, nids):
    return list((await peer_of(r, nid))[1]) == nids


PEERS = """peer:
  - primary nid: 10.0.0.20@tcp
    Multi-Rail: true
    peer ni:
      - nid: 10.0.0.20@tcp
      - nid: 10.0.0.21@tcp
    millrace: {lock_prim: true}
  - primary nid: 10.0.0.30@tcp
    Multi-Rail: false
    peer ni:
      - nid: 10.0.0.30@tcp
"""


async def test_peer_configuration(env):
    """Peers of a file: diff, apply, what is exported can be imported, and they are there after a restart. §10.7"""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    async with clients(r) as c:
        text = r.yaml() + PEERS
        lines = (await c.call("config_diff", text=text))["text"]
        assert "+ peer[10.0.0.20@tcp]: 2 NIDs, primary NID locked\n" in lines, lines
        assert "+ peer[10.0.0.30@tcp]: 1 NIDs, not multi-rail\n" in lines and "not acted on" not in lines, lines
        await c.call("config_apply", text=text, mode="replace")
        row, nis = await peer_of(r, "10.0.0.21@tcp")
        assert row["peer state"] == MULTI_RAIL | CONFIGURED | LOCKED and len(nis) == 2, row
        # A NID goes from one peer to another in one change
        moved = text.replace("      - nid: 10.0.0.21@tcp\n", "") + "  - primary nid: 10.0.0.21@tcp\n"
        await c.call("config_apply", text=moved, mode="replace")
        assert (await peer_of(r, "10.0.0.21@tcp"))[0]["primary nid"] == "10.0.0.21@tcp"
        assert list((await peer_of(r, "10.0.0.20@tcp"))[1]) == ["10.0.0.20@tcp"]
        await c.call("config_apply", text=text, mode="replace", confirm_s=20)
        assert len((await peer_of(r, "10.0.0.21@tcp"))[1]) == 2
        await c.call("config_rollback")
        assert list((await peer_of(r, "10.0.0.20@tcp"))[1]) == ["10.0.0.20@tcp"]
        # A further NID that is a gateway, and both go again
        route = "route:\n  - net: tcp7\n    gateway: 10.0.0.21@tcp\n"
        await c.call("config_apply", text=text + route, mode="replace", confirm_s=20)
        await c.call("config_rollback")
        assert list((await peer_of(r, "10.0.0.20@tcp"))[1]) == ["10.0.0.20@tcp"]
        assert not (await r.rpc("route_get"))["route"]
        for bad, why in ((PEERS + "  - primary nid: 10.0.0.21@tcp\n", "10.0.0.21@tcp is a NID of two peers"),
                         (PEERS.replace("true\n", "false\n"), "is not multi-rail and has the further NID 10.0.0.21@tcp")):
            a = await c.ask("config_apply", {"text": r.yaml() + bad, "mode": "replace"})
            assert a.error and why in str(a.error), a
        # The node refuses a NID of its own: nothing of the file holds
        a = await c.ask("config_apply", {"text": text + f"  - primary nid: {ROUTER[0]}\n", "mode": "replace"})
        assert a.error and f"peer {ROUTER[0]}" in a.error["message"], a
        assert list((await peer_of(r, "10.0.0.20@tcp"))[1]) == ["10.0.0.20@tcp"]
        await c.call("config_apply", text=text, mode="replace")
        await c.call("config_save")
        backup = await cli(env, r, "export", "--backup")
    await r.stop()
    with open(r.conf, encoding="utf-8") as f:
        saved = f.read()
    r.settings["extra"] = PEERS
    assert "lock_prim: true" in saved, saved
    await r.restart()
    row, nis = await peer_of(r, "10.0.0.21@tcp")
    assert row["peer state"] == MULTI_RAIL | CONFIGURED | LOCKED and len(nis) == 2, row
    async with clients(r) as c:
        await c.call("peer_del", prim_nid="10.0.0.20@tcp")
        await c.call("config_apply", text=backup[backup.index("\npeer:"):backup.index("\nrouting:")], mode="merge")
        row, nis = await peer_of(r, "10.0.0.21@tcp")
        assert row["peer state"] == MULTI_RAIL | CONFIGURED and len(nis) == 2, row


async def test_peer_set(env):
    """`peer set` of one peer NI and of all; `peer show -v 4` has all keys in lnetctl's order. §10.1, §10.3, §12.2"""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    p = await env.persona("p", ONE, TWO)
    assert await p.discover(r.nids[0])

    async def health():
        return [ni["health stats"]["health value"] for ni in (await peer_of(r, ONE))[1].values()]
    assert await health() == [1000, 1000]
    await cli(env, r, "peer", "set", "--nid", TWO, "--health", "500")
    assert await health() == [1000, 500]
    await cli(env, r, "peer", "set", "--all", "--health", "0")
    assert await health() == [0, 0]
    await cli(env, r, "peer", "set", "--nid", ONE, "--state", "19")
    assert (await peer_of(r, ONE))[0]["peer state"] == MULTI_RAIL | NO_DISCOVERY | DISCOVERED
    async with clients(r) as c:
        await refused(c, "peer_set", errno.ENOENT, "nid", nid="10.0.0.99@tcp", health=1)
        for params in ({}, {"nid": ONE}, {"health": 1}, {"nid": ONE, "all": True, "health": 1}, {"nid": ONE, "health": 1001}):
            assert (await c.ask("peer_set", params)).code == -32602, params
    out = await cli(env, r, "peer", "show", "--nid", TWO, "-v", "4")
    keys = [line.strip(" -").split(":")[0] for line in out.splitlines()]
    first = keys.index("nid")
    assert keys[:4] == ["peer", "primary nid", "Multi-Rail", "peer state"], out
    assert [k for k in keys[first:keys.index("nid", first + 1)] if k in (
        "nid", "udsp info", "state", "max_ni_tx_credits", "available_tx_credits", "min_tx_credits", "tx_q_num_of_buf",
        "available_rtr_credits", "min_rtr_credits", "refcount", "statistics", "sent_stats", "received_stats", "dropped_stats",
        "health stats")] == ["nid", "udsp info", "state", "max_ni_tx_credits", "available_tx_credits", "min_tx_credits",
                             "tx_q_num_of_buf", "available_rtr_credits", "min_rtr_credits", "refcount", "statistics",
                             "sent_stats", "received_stats", "dropped_stats", "health stats"], out
    assert keys.count("nid") == 2 and keys.count("refcount") == 2, out
    await env.settle()


async def test_net_removed(env):
    """§12.2 test 525: a peer with NIDs on two nets is reached by one of them when the net of the other one is removed."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    p = await env.persona("p", ONE, "10.0.1.20@tcp1")
    assert await p.discover(r.nids[0])
    assert list((await peer_of(r, ONE))[1]) == [ONE, "10.0.1.20@tcp1"]
    r.spec.gateways, r.spec.ping_sinks = {p.nid}, {272, 3960}
    r.spec.nids, r.spec.seq = r.nids[:1], None
    await r.rpc("net_del", net="tcp1")
    assert list((await peer_of(r, ONE))[1]) == [ONE, "10.0.1.20@tcp1"]
    assert {row["nid"] for row in (await r.rpc("ping", nid=ONE))["ping"][0]["peer_ni"]} >= {ONE, "10.0.1.20@tcp1"}
    async with clients(r) as c:
        await refused(c, "ping", errno.EHOSTUNREACH, "nid", nid="10.0.1.20@tcp1")


async def test_help_and_completion(env):
    """The commands are in the help with lnetctl's options, and none is refused."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    for words, options in ((("discover",), ("--force", "--timeout")), (("peer", "add"), ("--prim_nid", "--nid", "--non_mr", "--lock_prim")),
                           (("peer", "del"), ("--prim_nid", "--nid")), (("peer", "set"), ("--nid", "--health", "--all", "--state"))):
        out = (await cli(env, r, *words, "--help")).replace("-", "_")
        for option in options:
            assert option.replace("-", "_") in out, (words, option, out)
    p = await env.persona("p", ONE)
    assert await p.discover(r.nids[0])
    p = await asyncio.to_thread(subprocess.run, [find_program(env.build, "millrace"), "__complete", "-s", r.sock, "discover", "10.0.0"],
                                capture_output=True, text=True, timeout=60)
    offered = p.stdout
    assert ONE in offered, offered
    await env.settle()
