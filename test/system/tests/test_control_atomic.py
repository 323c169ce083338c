# SPDX-License-Identifier: BSD-3-Clause
"""A change happens whole or not at all, and what was not saved does not outlive the process. docs/config.md."""

import errno
import os
import signal
import tempfile

from lnetpy.control import as_yaml, clients, document, far_routes, route_set, until_routing
from lnetpy.control_scene import SIDE, live_gateways, steady
from lnetpy.scene import ROUTER, beside_one, cases, deadline

COMMENTED = """\
# A router between two halls.
net:
  - net type: tcp       # hall A
    local NI(s):
      - nid: 10.0.0.1@tcp
  - net type: tcp1      # hall B
    local NI(s):
      - nid: 10.0.1.1@tcp1
# Beyond hall B
route:
  - {net: tcp8, gateway: 10.0.1.8@tcp1, hop: 2, priority: 1}   # the old one
routing: {enable: 1}
buffers: {tiny: 512, small: 512, large: 64}
global: {alive_router_check_interval: 60, router_ping_timeout: 50}
"""


async def shown(client):
    """All of the running state that a change of the configuration may change."""
    nets = [(n["net type"], ni["nid"], ni["tunables"], ni.get("lnd tunables"))
            for n in (await client.call("net_get"))["net"] for ni in n["local NI(s)"]]
    routes = route_set((await client.call("route_get", limit=2000))["route"])
    others = [await client.call(m) for m in ("admission_get", "global_get")] + [(await client.call("routing_get"))["enable"]]
    totals = (await client.call("buffers_get"))["buffers"]
    return {"document": await document(client), "nets": nets, "routes": routes, "others": others, "buffers": totals}


async def fails(client, what, *codes, method="config_apply", **params):
    """The error of a request that has to fail."""
    a = await client.ask(method, params, 20)
    assert a.error, f"{what}: accepted: {a}"
    assert a.code in codes, f"{what}: {a}"
    assert a.error["message"] and a.error["data"]["errno"] < 0, f"{what}: {a}"
    return a


def more_nets(*rows):
    """A document to be merged: NIs, each with what it is on."""
    return "net:\n" + "".join(f"  - net type: {net}\n    local NI(s):\n      - {what}\n" for net, what in rows)


@beside_one
@deadline(60)
@cases("no such interface", "no such address", "port in use")
async def test_last_step_fails(env, why):
    """Everything of the document could be done but its last NI: then nothing has been done, and the traffic did not notice."""
    env.need_millrace()
    t = await steady(env)
    routes = far_routes(500, await live_gateways(env, 10))
    env.fabric.attach("r", "tcp6", "eth6", "10.6.0.1/24")
    last = {"no such interface": ("tcp7", "interfaces: {0: eth77}"), "no such address": ("tcp7", "nid: 10.77.0.1@tcp7"),
            "port in use": ("tcp6", "nid: 10.6.0.1@tcp6")}[why]
    squatter = env.fabric.host("r").socket()
    squatter.bind(("10.6.0.1", 988))
    squatter.listen(1)
    text = (more_nets(("tcp5", f"nid: {SIDE}"), last) + as_yaml(routes)
            + "buffers: {tiny: 1024, small: 1024, large: 128}\nglobal: {transaction_timeout: 99}\n")
    try:
        async with clients(t.router) as c:
            before = await shown(c)
            revision = (await c.call("config_status"))["revision"]
            await t.watch(c)
            for _ in range(3):
                a = await fails(c, why, -errno.EINVAL, -errno.ENODEV, -errno.EADDRINUSE, -errno.EADDRNOTAVAIL, -errno.ENOENT,
                                -errno.ENXIO, text=text, mode="merge")
                told = a.error["message"] + str(a.error["data"])
                assert any(w in told for w in ("eth77", "10.77.0.1", "10.6.0.1", last[0])), f"does not name what failed: {a}"
                async def buffers_back():   # each reactor takes its numbers when it comes to them
                    return (await c.call("buffers_get"))["buffers"] == before["buffers"]
                await env.until_async(buffers_back, "as many buffers as before", 5)
                after = await shown(c)
                changed = [k for k in before if before[k] != after[k]]
                assert not changed, f"{changed} changed: {[(before[k], after[k]) for k in changed]}"[:2000]
                assert (await c.call("config_status"))["revision"] == revision
            worst = await t.unnoticed(c)
            # What it could not do it can do later
            squatter.close()
            if why == "port in use":
                await c.call("config_apply", text=text, mode="merge")
                assert {"tcp5", "tcp6"} <= {n["net type"] for n in (await c.call("net_get"))["net"]}
                await c.call("config_apply", text=text, mode="delete")
                assert {"tcp5", "tcp6"}.isdisjoint({n["net type"] for n in (await c.call("net_get"))["net"]})
    finally:
        squatter.close()
    for load in t.loads:
        await load.stop()
    env.result(f"{await t.books.check(timeout=40)}; slowest request {worst:.2f} s; {a.error['message']}")


BAD_DOCUMENTS = {
    "not YAML": "net: [",
    "no map": "- 1\n- 2\n",
    "unknown key": "nett: []\n",
    "route without gateway": "route:\n  - {net: tcp9}\n",
    "gateway of a net that is not here": "route:\n  - {net: tcp9, gateway: 10.9.9.9@tcp77}\n",
    "route to itself": "route:\n  - {net: tcp1, gateway: 10.0.0.7@tcp}\n",
    "gateway is its own": "route:\n  - {net: tcp9, gateway: 10.0.0.1@tcp}\n",
    "hop out of range": "route:\n  - {net: tcp9, gateway: 10.0.0.7@tcp, hop: 300}\n",
    "a number where a list belongs": "route: 7\n",
    "buffers below zero": "buffers: {tiny: -5}\n",
    "too deep": "route: " + "[" * 200 + "]" * 200 + "\n",
    "an alias that unfolds": "a: &a [x,x]\nb: &b [*a,*a]\nroute: *b\n",
    "a NUL": "route: \"\\0\"\n",
}


@deadline(40)
async def test_bad_documents(env):
    """None of these is accepted, each says where and what, and nothing changes."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    async with clients(r) as c:
        before = await shown(c)
        for what, text in BAD_DOCUMENTS.items():
            for mode in ("merge", "replace"):
                for dry in (False, True):
                    a = await fails(c, what, -errno.EINVAL, -errno.ENOENT, -errno.EEXIST, -errno.EHOSTUNREACH,
                                    -errno.ENETUNREACH,
                                    -errno.ERANGE, -errno.E2BIG, -errno.ENODEV, -32602,
                                    text=text, mode=mode, dry_run=dry, name="hall.yaml")
                    if what not in ("a NUL",):
                        assert "hall.yaml" in a.error["message"] + str(a.error["data"]), f"{what}: does not name the file: {a}"
        a = await fails(c, "1 MiB", -32602, -errno.EINVAL, -errno.E2BIG, text="# " + "x" * 1047000 + "\nnett: 1\n")
        assert await shown(c) == before
    env.result(f"{len(BAD_DOCUMENTS)} documents refused")


def with_side(router, **settings):
    """Its configuration with one more NI."""
    return router.yaml(**settings).replace("route:\n", more_nets(("tcp5", f"nid: {SIDE}")).removeprefix("net:\n") + "route:\n", 1)


@deadline(40)
async def test_two_at_once(env):
    """Of two changes at a time one is told EBUSY, or they come one after the other; never a mixture."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    env.fabric.attach("r", "tcp5", "eth5", "10.5.0.1/24")
    busy = 0
    async with clients(r, 2) as (a, b):
        for rounds in range(1, 101):        # whether they meet is chance, but not a hundred times
            one = far_routes(200, ["10.0.0.7@tcp"], first=1000)
            two = far_routes(200, ["10.0.1.7@tcp1"], first=1000)
            texts = [with_side(r, routes=one),
                     r.yaml(routes=two)]
            numbers = [(c, c.post("config_apply", {"text": t, "mode": "replace"})) for c, t in zip((a, b), texts)]
            answers = [await c.answer(n, 20) for c, n in numbers]
            assert any(x.result for x in answers), answers
            for x in answers:
                assert x.result or x.code == -errno.EBUSY, x
            busy += sum(x.code == -errno.EBUSY for x in answers)
            rows = route_set((await a.call("route_get", limit=2000))["route"])
            nets = [n["net type"] for n in (await a.call("net_get"))["net"]]
            assert rows == route_set(one) and "tcp5" in nets or rows == route_set(two) and "tcp5" not in nets, (len(rows), nets)
            await a.call("config_apply", text=r.yaml(), mode="replace")
            if busy and rounds >= 10:
                break
        # Changes by single methods meet a change that is under way in the same manner
        numbers = [a.post("net_add", {"net": "tcp5", "interface": "eth5"}),
                   a.post("route_add", {"net": "tcp9", "gateway": "10.0.0.7@tcp"}), a.post("net_del", {"net": "tcp5"})]
        answers = [await a.answer(n, 20) for n in numbers]
        assert answers[0].result is True, answers[0]
        for x in answers[1:]:
            assert x.result or x.code in (-errno.EBUSY, -errno.ENOENT), x
    assert busy, "two changes never met: the test tried nothing"
    env.result(f"{busy} of {rounds} pairs met")


@deadline(40)
async def test_killed(env):
    """kill -9 after a change: what was not saved is gone, what was saved is there."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    routes = far_routes(50, ["10.0.0.7@tcp"])
    async with clients(r) as c:
        at_start = await document(c)
        await c.call("config_apply", text=r.yaml(routes=routes), mode="replace")
        assert (await c.call("config_status"))["unsaved"] is True
    r.crash()
    write, r.yaml = r.yaml, lambda **kw: open(r.conf, encoding="utf-8").read()     # the file as it is now
    try:
        await r.restart()
        async with clients(r) as c:
            assert await document(c) == at_start
            assert (await c.call("config_status"))["unsaved"] is False
            await c.call("config_apply", text=write(routes=routes), mode="replace")
            await c.call("config_save")
            assert (await c.call("config_status"))["unsaved"] is False
            saved = await document(c)
        r.crash()
        await r.restart()
        async with clients(r) as c:
            assert await document(c) == saved and route_set((await c.call("route_get"))["route"]) == route_set(routes)
            # and a change that waits for its confirmation is gone too
            await c.call("config_apply", text=write(), mode="replace", confirm_s=60)
        r.crash()
        await r.restart()
        async with clients(r) as c:
            assert await document(c) == saved
    finally:
        r.yaml = write


@deadline(40)
async def test_save_keeps_the_hand(env):
    """What a person wrote stays as it was: comments, order, style. Only what changed changes."""
    env.need_millrace()
    r = await commented(env)
    written = open(r.conf, encoding="utf-8").read()
    async with clients(r) as c:
        await c.call("config_save")
        assert open(r.conf, encoding="utf-8").read() == written, "saved without a change"
        await c.call("route_add", net="tcp9", gateway="10.0.1.9@tcp1", hop=3, priority=2)
        assert (await c.call("config_status"))["unsaved"] is True
        diff = await c.call("config_diff", path=r.conf)
        assert [(x["action"], "tcp9" in str(x)) for x in diff["changes"]] in ([("add", True)], [("del", True)]), diff
        await c.call("config_save")
        now = open(r.conf, encoding="utf-8").read()
        for line in written.splitlines():
            if "#" in line:
                assert line in now.splitlines(), f"lost: {line!r}\n{now}"
        order = [now.index(k) for k in ("# A router", "net:", "# hall A", "# hall B", "# Beyond", "route:", "the old one", "routing:",
                                        "buffers:", "global:", "millrace:")]
        assert order == sorted(order), f"the order changed:\n{now}"
        assert "tcp9" in now, now
        assert not (await c.call("config_diff", path=r.conf))["changes"]
        await c.call("route_del", net="tcp9", gateway="10.0.1.9@tcp1")
        await c.call("config_save")
        assert not (await c.call("config_diff", path=r.conf))["changes"]
        elsewhere = r.conf + ".copy"
        await c.call("config_save", path=elsewhere)
        assert "10.0.1.8@tcp1" in open(elsewhere, encoding="utf-8").read()
        for bad in ("/proc/no/such", "/", r.dir.name):
            a = await c.ask("config_save", {"path": bad})
            assert a.error and a.code < 0, f"saved to {bad}: {a}"
        a = await c.ask("config_diff", {"path": r.conf + ".none"})
        assert a.error and a.code == -errno.ENOENT, a


async def test_files_of_others(env):
    """Who may change everything names no file outside the daemon's folder, by no way round, and is quoted none."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    folder = os.path.dirname(r.conf)
    with tempfile.TemporaryDirectory() as other:
        secret, link = os.path.join(other, "secret.yaml"), os.path.join(folder, "link.yaml")
        with open(secret, "w", encoding="utf-8") as f:
            f.write("password: hunter2\n")
        os.symlink(secret, link)
        os.symlink(other, os.path.join(folder, "there"))
        async with clients(r) as c:
            for path in (secret, link, f"{folder}/there/secret.yaml", f"{folder}/../{os.path.basename(other)}/secret.yaml",
                         "/etc/passwd", "/etc/shadow", "/proc/self/environ"):
                for method in ("config_diff", "config_save"):
                    a = await c.ask(method, {"path": path})
                    assert a.error and a.code == -errno.EACCES, f"{method} of {path}: {a}"
                    assert "hunter2" not in str(a.error) and "root:" not in str(a.error), a
            a = await c.ask("config_save", {"path": os.path.join(other, "new.yaml")})
            assert a.error and a.code == -errno.EACCES and os.listdir(other) == ["secret.yaml"], a
        assert open(secret, encoding="utf-8").read() == "password: hunter2\n"


async def commented(env):
    """A router whose file was written by hand."""
    r = env.prepare("r", *ROUTER)
    tail = r.yaml()[r.yaml().index("millrace:"):]
    r.yaml = lambda **kw: COMMENTED + tail
    await r.start()
    return r


@deadline(40)
async def test_pending_and_sighup(env):
    """While a change waits for its confirmation it cannot be saved, nor another be made; SIGHUP applies the file."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    routes = far_routes(20, ["10.0.0.7@tcp"])
    async with clients(r) as c:
        await c.call("events_subscribe", types=["config_applied", "config_confirmed", "config_rolled_back"])
        before = await document(c)
        await fails(c, "nothing to confirm", -errno.EINVAL, -errno.ENOENT, -errno.EALREADY, -errno.ESRCH, method="config_confirm")
        await fails(c, "nothing to roll back", -errno.EINVAL, -errno.ENOENT, -errno.EALREADY, -errno.ESRCH,
                    method="config_rollback")
        await c.call("config_apply", text=r.yaml(routes=routes), mode="replace", confirm_s=30)
        await fails(c, "save while pending", -errno.EBUSY, method="config_save")
        await fails(c, "another change while pending", -errno.EBUSY, text=r.yaml(), mode="replace")
        await fails(c, "a route while pending", -errno.EBUSY, method="route_add", net="tcp9", gateway="10.0.0.7@tcp")
        await c.call("config_rollback")
        assert await document(c) == before
        await c.event(lambda e: e["type"] == "config_rolled_back", "config_rolled_back", 5)
        # A client that goes away does not confirm
        seen = len(c.events)
        async with clients(r) as other:
            await other.call("config_apply", text=r.yaml(routes=routes), mode="replace", confirm_s=1)
        await c.event(lambda e: e["type"] == "config_rolled_back", "rolled back by time", 8, after=seen)
        assert await document(c) == before
        # SIGHUP
        with open(r.conf, "w", encoding="utf-8") as f:
            f.write(r.yaml(routes=routes))
        seen = len(c.events)
        r.proc.send_signal(signal.SIGHUP)
        await c.event(lambda e: e["type"] == "config_applied", "the file applied", 8, after=seen)
        assert route_set((await c.call("route_get"))["route"]) == route_set(routes)
        good = await document(c)
        with open(r.conf, "w", encoding="utf-8") as f:
            f.write(r.yaml() + "nonsense: [\n")
        said = len(r.text())
        r.proc.send_signal(signal.SIGHUP)
        await env.until(lambda: "millrace.yaml:" in r.text()[said:], "the bad file told of", 20)
        assert r.proc.poll() is None and await document(c) == good


@deadline(40)
async def test_what_single_methods_do_is_the_document(env):
    """Each change by a method of its own is in the document, and the document put back undoes it."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, check_interval=1, ping_timeout=1)
    env.fabric.attach("r", "tcp5", "eth5", "10.5.0.1/24")
    steps = [("route_add", {"net": "tcp9", "gateway": "10.0.0.7@tcp", "hop": 2, "priority": 3}),
             ("net_add", {"net": "tcp5", "interface": "eth5", "peer_credits": 12}),
             ("peer_add", {"prim_nid": "10.0.0.50@tcp", "nid": ["10.0.0.51@tcp"]}),
             ("buffers_set", {"tiny": 1024}), ("admission_set", {"egress_share": 33}), ("global_set", {"transaction_timeout": 77}),
             ("routing_set", {"enable": 0})]
    async with clients(r) as c:
        begin = await document(c)
        text = (await c.call("config_get", form="running", **{"as": "yaml"}))["yaml"]
        before = begin
        for method, params in steps:
            await c.call(method, **params)
            now = await document(c)
            assert now != before, f"{method} {params} is not in the document"
            diff = await c.call("config_diff", text=text)
            assert diff["changes"], f"{method}: no difference told"
            before = now
        everything = (await c.call("config_get", form="running", **{"as": "yaml"}))["yaml"]
        await c.call("config_apply", text=text, mode="replace")
        assert await document(c) == begin, "the old document did not bring the old state back"
        assert "tcp5" not in [n["net type"] for n in (await c.call("net_get"))["net"]]
        await c.call("config_apply", text=everything, mode="replace")
        assert await document(c) == before
        assert SIDE in [ni["nid"] for n in (await c.call("net_get"))["net"] for ni in n["local NI(s)"]]
        await until_routing(env, c, 0)
        backup = (await c.call("config_get", form="backup", **{"as": "yaml"}))["yaml"]
        await c.call("config_apply", text=backup, mode="replace")
        with_errors = await c.ask("config_apply", {"text": everything, "mode": "add"})
        assert with_errors.code == -32602, with_errors

