# SPDX-License-Identifier: BSD-3-Clause
"""Every method on a live router with traffic: results are as rpc.discover says, wrong parameters are refused by name, each
documented error can be had, and roles and phases hold. docs/jsonrpc.md."""

import errno

from lnetpy.control import Schemas, ask_as, clients, far_routes, listens, open_to_others
from lnetpy.control_scene import steady
from lnetpy.node import pattern
from lnetpy.router import NOBODY
from lnetpy.scene import CLIENT, ROUTER, SERVER, beside_one, deadline, join, line

INVALID = -32602
NOT_NOW = (-errno.EAGAIN, -errno.EBUSY, -errno.EINVAL, -errno.EALREADY, -errno.ENOTCONN, -errno.EPERM, -errno.ENETDOWN)

# What each method is called with so that it succeeds; None: without parameters. In this order.
GOOD = [
    ("version", None), ("rpc_methods", None), ("rpc.discover", None), ("log_get", None),
    ("log_set", {"level": "debug"}), ("log_set", {"module": "rpc", "level": "info"}), ("log_set", {"level": "info"}),
    ("net_get", None), ("net_get", {"net": "tcp"}),
    ("net_add", {"net": "tcp5", "interface": "eth5"}), ("net_set", {"net": "tcp5", "lnd_timeout": 20}),
    ("net_set", {"net": "tcp5", "health": 900}), ("net_set", {"net": "tcp5", "health": 1000, "lnd_timeout": 30}),
    ("net_del", {"net": "tcp5", "nid": "10.5.0.1@tcp5"}),
    ("net_add", {"net": "tcp5", "nid": "10.5.0.1@tcp5", "peer_credits": 16, "credits": 64}), ("net_del", {"net": "tcp5"}),
    ("route_add", {"net": "tcp9", "gateway": "10.1.9.1@tcp", "hop": 2, "priority": 1}),
    ("route_get", None), ("route_get", {"net": "tcp9", "gateway": "10.1.9.1@tcp", "limit": 1}),
    ("route_get", {"hop": 2, "priority": 1}), ("route_del", {"net": "tcp9", "gateway": "10.1.9.1@tcp"}),
    ("peer_get", None), ("peer_get", {"limit": 3}), ("peer_get", {"nid": "10.1.1.1@tcp"}), ("peer_get", {"brief": True}),
    ("peer_add", {"prim_nid": "10.1.50.1@tcp", "nid": ["10.1.50.2@tcp"], "lock_prim": True}),
    ("peer_set", {"nid": "10.1.50.2@tcp", "health": 900}), ("peer_set", {"all": True, "health": 1000}),
    ("peer_set", {"nid": "10.1.50.1@tcp", "state": 1}),
    ("peer_del", {"prim_nid": "10.1.50.1@tcp", "nid": ["10.1.50.2@tcp"]}), ("peer_del", {"prim_nid": "10.1.50.1@tcp"}),
    ("udsp_add", {"src": "tcp1", "priority": 3}), ("udsp_add", {"dst": "*@tcp9", "rte": "10.1.9.1@tcp", "idx": 0}), ("udsp_get", None),
    ("udsp_get", {"idx": 1}), ("udsp_del", {"idx": 0}), ("udsp_del", {"all": True}),
    ("recovery_get", {"local": True}), ("recovery_get", {"peer": True}), ("health_get", None),
    ("peer_top", {"by": "bytes", "interval_ms": 100}), ("peer_top", {"by": "queued", "count": 3, "interval_ms": 100}),
    ("peer_top", {"by": "waiting", "interval_ms": 100}), ("verbs_get", None),
    ("routing_get", None), ("buffers_get", None), ("admission_get", None), ("access_get", None), ("global_get", None), ("tunables_get", None),
    ("fault_add", {"type": "drop", "source": "10.9.9.9@tcp", "dest": "*", "rate": 3, "portal": ["5"], "message": ["PUT"],
                   "health_error": ["local_error"], "local_nid": "*@tcp"}),
    ("fault_add", {"type": "delay", "source": "10.9.9.9@tcp", "dest": "*", "interval": 3, "latency": 1}), ("fault_get", None),
    ("fault_get", {"type": "delay"}), ("fault_reset", {"type": "drop"}), ("fault_del", {"type": "drop", "all": True}),
    ("fault_del", {"type": "delay", "source": "10.9.9.9@tcp", "dest": "*"}),
    ("tunables_get", {"scope": "net"}), ("drain_get", None), ("drain_start", {"timeout": 600}), ("drain_get", None), ("drain_undo", None),
    ("routing_set", {"enable": 1}), ("buffers_set", {"tiny": 600}),
    ("admission_set", {"egress_share": 60}), ("global_set", {"transaction_timeout": 60}),
    ("tunables_set", {"scope": "global", "name": "transaction_timeout", "value": "50"}),
    ("stats_get", None), ("stats_reset", None), ("drops_get", None), ("drops_get", {"explain": True}), ("waits_get", None),
    ("reactors_get", None),
    ("counters_capture", {"interval_ms": 100}),
    ("counters_capture", {"match": "stats.*", "interval_ms": 100}),
    ("why", {"nid": "10.2.1.1@tcp1"}), ("why", {"nid": "10.2.1.1@tcp1", "source": "10.1.1.1@tcp"}), ("why", {"nid": "1.2.3.4@tcp77"}),
    ("why", {"nid": "10.1.0.1@tcp"}), ("why", {"nid": "0@lo"}),
    ("events_subscribe", None), ("events_unsubscribe", {"subscription": "FROM events_subscribe"}),
    ("events_subscribe", {"types": ["peer_up", "log_level"], "nids": ["10.1.1.1@tcp"], "queue": 10}),
    ("events_get", None), ("events_get", {"limit": 5}), ("names_get", None), ("names_get", {"nid": "10.1.1.1@tcp"}),
    ("config_status", None), ("config_get", {"form": "running"}), ("config_get", {"form": "running", "as": "yaml"}),
    ("config_get", {"form": "backup", "as": "yaml"}), ("config_get", {"form": "file"}),
    ("config_diff", {"text": "RUNNING"}), ("config_diff", {"text": "route: []\n", "name": "x.yaml"}),
    ("config_apply", {"text": "RUNNING", "mode": "replace", "dry_run": True}),
    ("config_apply", {"text": "RUNNING", "mode": "replace", "confirm_s": 20}), ("config_confirm", None),
    ("config_apply", {"text": "route:\n  - {net: tcp9, gateway: 10.1.9.1@tcp}\n", "mode": "merge", "confirm_s": 20}),
    ("config_rollback", None), ("config_save", None),
    ("discover", {"nid": "10.1.1.1@tcp"}), ("discover", {"nid": "10.2.1.1@tcp1", "force": True, "timeout_ms": 15000}),
    ("ping", {"nid": "10.1.1.1@tcp"}), ("ping", {"nid": "10.2.1.1@tcp1", "source": "10.2.0.1@tcp1", "timeout_ms": 5000}),
]
ELSEWHERE = {"start": "tried in wait_for_rpc", "shutdown": "tried in shutdown", **dict.fromkeys(
    ("port_get", "arp_get", "tcp_get", "tcp_stats_get", "pkt_drops_get", "tamper_set", "tamper_get", "tamper_clear",
     "capture_start", "capture_get", "capture_stop"), "tried in control_port")}


def fill_in(params, running, subscription):
    swap = {"RUNNING": running, "FROM events_subscribe": subscription}
    return {k: swap.get(v, v) if isinstance(v, str) else v for k, v in params.items()} if params else params


@beside_one
@deadline(60)
async def test_every_method(env):
    """Each method of the table succeeds under traffic, and its result is as the schema says."""
    env.need_millrace()
    t = await steady(env)
    async with clients(t.router) as c:
        schemas = await Schemas.of(c)
        listed = {m["name"] for m in (await c.call("rpc_methods"))["methods"]}
        assert listed == set(schemas.methods), listed ^ set(schemas.methods)
        tried = {m for m, _ in GOOD} | set(ELSEWHERE)
        assert tried == listed, f"not tried: {sorted(listed - tried)}, not there: {sorted(tried - listed)}"
        running = (await c.call("config_get", form="running", **{"as": "yaml"}))["yaml"]
        subscription, bad = None, []
        for method, params in GOOD:
            a = await c.ask(method, fill_in(params, running, subscription), 20)
            if a.error:
                bad.append(f"{method} {params}: {a}")
                continue
            if method == "events_subscribe":
                subscription = a.result["subscription"]
            bad += [f"{method} {params}: {f}" for f in schemas.faults(method, a.result)]
            unused = set(params or ()) - set(schemas.params(method))
            if unused:
                bad.append(f"{method}: {unused} is not in rpc.discover")
        never = [f"{m}: parameter {p}" for m in listed for p in schemas.params(m)
                 if m not in ELSEWHERE and not any(p in (params or ()) for name, params in GOOD if name == m)]
        assert not bad, f"{len(bad)}: " + "\n".join(bad[:20])
        # Parameters by position are the same
        for method, params in (("peer_get", {"limit": 3}), ("why", {"nid": "10.2.1.1@tcp1"}), ("ping", {"nid": "10.1.1.1@tcp"})):
            names = list(schemas.params(method))
            row = [params.get(n) for n in names[:max(names.index(p) for p in params) + 1]]
            if None not in row:
                a = await c.ask(method, row)
                assert a.result and not schemas.faults(method, a.result), (method, row, a)
    env.result(f"{len(GOOD)} calls of {len(tried)} methods; {await t.end()}; parameters never given: {len(never)} {never[:6]}")


WRONG = {"string": (5, True, None, ["x"], {"a": 1}), "integer": ("5", True, None, 1.5, [1], {}, 1 << 70, -(1 << 70), 1e300),
         "boolean": ("true", 0, 1, None, [], {}), "array": ("x", 1, {}, None, True, [1], [None], [["x"]]),
         "nid": ("", "10.0.0.1", "@tcp", "10.0.0.1@", "10.0.0.256@tcp", "10.0.0.1@tcp99999", "x" * 70000, "10.0.0.1@nonet", "\0", "10.0.0.1@tcp\0"),
         "net": ("", "99", "tcp99999", "nonet", "tcp-1", "x" * 300)}


def wrong_values(name, schema):
    """What a parameter with this schema must not take."""
    kind = schema.get("type", "string")
    for v in WRONG.get(kind, ()):
        yield v
    if kind == "integer":
        if "minimum" in schema:
            yield schema["minimum"] - 1
        if "maximum" in schema:
            yield schema["maximum"] + 1
    if "enum" in schema:
        yield "no such word"
        yield ""
    what = str(schema.get("format", "")) + str(schema.get("title", "")) + str(schema.get("x-type", ""))
    for k in ("nid", "net"):
        if k in what.split() or what == k:
            yield from WRONG[k]
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if "maxItems" in schema:
        yield ["10.0.0.9@tcp"] * (schema["maxItems"] + 1)


@deadline(60)
async def test_wrong_parameters(env):
    """Of the wrong type, out of range, unknown, too many, missing: -32602 with the parameter's name, and nothing changes."""
    env.need_millrace()
    cl, r, s = await line(env)
    good = {}
    for method, params in GOOD:
        if params and len(params) >= len(good.get(method, ())):
            good[method] = params
    good["shutdown"] = {}
    tried = 0
    async with clients(r) as c:
        schemas = await Schemas.of(c)
        before = await c.call("config_get", form="running")
        for method in schemas.methods:
            if method == "start":
                continue
            rows = schemas.params(method)
            base = fill_in({k: v for k, v in good.get(method, {}).items() if rows.get(k, ("", False))[1]}, "route: []\n", 1)
            cases = [({**base, "no_such_parameter": 1}, "no_such_parameter"), ([1] * (len(rows) + 1), None)]
            cases += [({k: v for k, v in base.items() if k != name}, name) for name, (_, required) in rows.items() if required]
            for name, (schema, _) in rows.items():
                for value in wrong_values(name, schema):
                    cases.append(({**base, name: value}, name))
            for params, name in cases:
                if len(str(params)) > 900000:   # the request itself would be too large: another error
                    continue
                a = await c.ask(method, params, 20)
                assert a.code == INVALID, f"{method} {str(params)[:200]}: {a}"
                assert name is None or a.error["data"]["parameter"] == name, f"{method} {str(params)[:200]}: {a}"
                tried += 1
        assert await c.call("config_get", form="running") == before
        assert (await c.ask("no_such_method")).code == -32601
        assert (await c.ask("why", "10.0.0.1@tcp")).code in (-32600, INVALID)
    assert await cl.put(s.nid, pattern(1, 3000))
    await env.settle()
    env.result(f"{tried} requests with wrong parameters")


# (method, errno): how it comes about, or a sentence why no test can bring it about
PROVOKED = {
    ("net_get", errno.ENOENT): {"net": "tcp77"},
    ("net_get", errno.ESRCH): {"net": "tcp77"},
    ("net_del", errno.ENOENT): {"net": "tcp77"},
    ("net_del", errno.ESRCH): {"net": "tcp77"},
    ("net_add", errno.EEXIST): {"net": "tcp", "nid": "10.0.0.1@tcp"},
    ("net_add", errno.ENODEV): {"net": "tcp7", "interface": "eth77"},
    ("net_add", errno.EADDRNOTAVAIL): {"net": "tcp7", "nid": "10.77.0.1@tcp7"},
    ("net_add", errno.EINVAL): {"net": "tcp7"},
    ("net_set", errno.ENOENT): {"net": "tcp77", "lnd_timeout": 20},
    ("net_set", errno.EINVAL): {"lnd_timeout": 20},
    ("route_add", errno.EEXIST): {"net": "tcp8", "gateway": "10.0.1.8@tcp1"},
    ("route_add", errno.EINVAL): {"net": "tcp", "gateway": "10.0.1.8@tcp1"},
    ("route_add", errno.EHOSTUNREACH): {"net": "tcp9", "gateway": "10.0.0.7@tcp77"},
    ("route_add", errno.ENETUNREACH): {"net": "tcp9", "gateway": "10.0.0.7@tcp77"},
    ("route_del", errno.ENOENT): {"net": "tcp77", "gateway": "10.0.0.7@tcp"},
    ("route_get", errno.EINVAL): {"cursor": "no cursor"},
    ("peer_get", errno.ENOENT): {"nid": "10.0.0.200@tcp"},
    ("udsp_add", errno.EINVAL): {"rte": "10.0.0.7@tcp"}, ("udsp_add", errno.EALREADY): 2 * [{"src": "tcp"}],
    ("udsp_add", errno.ENOSPC): [{"src": f"tcp{i}"} for i in range(258)],
    ("udsp_del", errno.ENOENT): [{"all": True}, {"idx": 0}],
    ("recovery_get", errno.EINVAL): {"local": True, "peer": True},
    ("peer_get", errno.EINVAL): {"cursor": "no cursor"},
    ("peer_add", errno.EEXIST): [{"prim_nid": "10.0.0.50@tcp"}, {"prim_nid": "10.0.0.51@tcp", "nid": ["10.0.0.50@tcp"]}],
    ("peer_add", errno.EPERM): {"prim_nid": "10.0.0.52@tcp", "nid": ["10.0.0.53@tcp"], "non_mr": True},
    ("peer_add", errno.ENOSPC): [{"prim_nid": "10.0.0.54@tcp", "nid": [f"10.0.2.{i}@tcp" for i in range(1, 65)]}],
    ("peer_set", errno.ENOENT): {"nid": "10.0.0.200@tcp", "health": 1},
    ("discover", errno.ETIMEDOUT): {"nid": "10.0.0.201@tcp", "timeout_ms": 1},
    ("discover", errno.EHOSTUNREACH): {"nid": "10.0.0.201@tcp77"},
    ("discover", errno.EPROTO): "needs a node that answers nonsense; unit tests have one for pings",
    ("discover", errno.ENOSPC): "needs a full table of peers",
    ("peer_add", errno.EINVAL): {"prim_nid": "0@lo"},
    ("peer_del", errno.ENOENT): {"prim_nid": "10.0.0.200@tcp"},
    ("buffers_set", errno.ENOMEM): {"large": 1 << 20},
    ("tunables_set", errno.ENOENT): {"scope": "global", "name": "no_such_tunable", "value": "1"},
    ("tunables_set", errno.EINVAL): {"scope": "global", "name": "transaction_timeout", "value": "x"},
    ("tunables_set", errno.ERANGE): {"scope": "global", "name": "router_sensitivity", "value": "101"},
    ("log_set", errno.ENOENT): {"module": "no_such_module", "level": "info"},
    ("log_set", errno.EINVAL): {"module": "no_such_module", "level": "info"},
    ("events_unsubscribe", errno.ENOENT): {"subscription": 12345},
    ("events_subscribe", errno.EMFILE): 9 * [{"queue": 1}],
    ("events_subscribe", errno.EINVAL): {"types": ["no_such_type"]},
    ("config_get", errno.ENOENT): "needs a daemon without a file",
    ("config_diff", errno.EINVAL): {"text": "nett: 1\n"},
    ("config_diff", errno.ENOENT): "needs a path beside the daemon's file: control_atomic.save_keeps_the_hand",
    ("config_diff", errno.EACCES): {"path": "/etc/passwd"},
    ("config_apply", errno.EINVAL): {"text": "nett: 1\n", "mode": "merge"},
    ("config_confirm", errno.ENOENT): None, ("config_confirm", errno.EALREADY): None, ("config_confirm", errno.EINVAL): None,
    ("config_rollback", errno.ENOENT): None, ("config_rollback", errno.EALREADY): None, ("config_rollback", errno.EINVAL): None,
    ("config_save", errno.ENOENT): "needs a daemon without a file",
    ("config_save", errno.EACCES): {"path": "/tmp/none-of-yours.yaml"},
    ("config_save", errno.EIO): "needs a disk that fails",
    ("port_get", errno.ENOENT): {"name": "nosuch"}, ("verbs_get", errno.ENOENT): {"nid": "10.0.0.200@o2ib"},
    ("fault_add", errno.EINVAL): {"type": "drop", "source": "*", "dest": "*"},
    ("fault_add", errno.ENOSPC): 65 * [{"type": "drop", "source": "10.9.9.9@tcp", "dest": "*", "rate": 1}],
    ("fault_add", errno.ESHUTDOWN): "needs a node that stops", ("fault_del", errno.ENOENT): {"type": "delay", "all": True},
    ("tamper_set", errno.ENOENT): {"port": "nosuch"},
    ("tamper_set", errno.EINVAL): "needs ports: control_port", ("tamper_set", errno.ENOSPC): "needs ports: control_port",
    ("tamper_clear", errno.ENOENT): {"port": "nosuch"},
    ("capture_start", errno.ENODEV): {},
    ("capture_start", errno.ENOENT): "needs ports: control_port", ("capture_start", errno.EINVAL): "needs ports: control_port",
    ("capture_get", errno.ENOENT): {"id": "0"}, ("capture_stop", errno.ENOENT): {"id": "0"},
    ("ping", errno.ETIMEDOUT): {"nid": "10.0.0.201@tcp", "timeout_ms": 1},
    ("ping", errno.EHOSTUNREACH): {"nid": "10.0.0.201@tcp77"},
    ("ping", errno.EIO): "needs a node that answers nonsense; unit tests have one",
    ("ping", errno.EINVAL): {"nid": "10.0.0.2@tcp", "source": "10.0.0.99@tcp"},
}
OF_MANY = {errno.EBUSY: "a change is under way: test_control_atomic has two at once and one that waits for its confirmation",
           errno.ENOMEM: "needs a process that has no memory", errno.EPERM: "roles below"}


@deadline(60)
async def test_documented_errors(env):
    """Each error a method says it can end with is provoked, or it is said here why not."""
    env.need_millrace()
    cl, r, s = await line(env, router={"routes": [{"net": "tcp8", "gateway": "10.0.1.8@tcp1"}]})
    missing, wrong, seen, excused = [], [], 0, 0
    async with clients(r) as c:
        schemas = await Schemas.of(c)
        for method in schemas.methods:
            for err, row in schemas.errors(method).items():
                how = PROVOKED.get((method, err), OF_MANY.get(err, ""))
                name = errno.errorcode.get(err, err)
                if how == "":
                    missing.append(f"{method}: {name}: {row.get('message')}")
                elif isinstance(how, str):
                    excused += 1
                else:
                    for params in how if isinstance(how, list) else [how]:     # the last of several
                        a = await c.ask(method, params, 20)
                    seen += 1
                    if a.code != -err:
                        wrong.append(f"{method} {how} for {name} ({row.get('message')}): {a}")
                    elif a.error["data"].get("name") != name or a.error["data"].get("errno") != -err:
                        wrong.append(f"{method}: data {a.error['data']}")
    assert not missing and not wrong, f"{len(missing)} not tried: {missing[:12]}; {len(wrong)} not so: {wrong[:8]}"
    env.result(f"{seen} errors provoked, {excused} with a reason why not")


def in_phase(schemas, *phases):
    """Methods of a phase, as rpc.discover names it."""
    return [n for n, m in schemas.methods.items() if m.get("x-phase") in phases]


@deadline(60)
async def test_wait_for_rpc(env):
    """--wait-for-rpc: nothing is on the net until `start`; methods of the other phase are refused; then it forwards."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, args=["--wait-for-rpc"])
    async with clients(r) as c:
        schemas = await Schemas.of(c)
        runtime = in_phase(schemas, "runtime")
        assert runtime and "start" in in_phase(schemas, "startup"), [m.get("x-phase") for m in schemas.methods.values()]
        samples = dict(GOOD)
        for method in runtime:
            a = await c.ask(method, fill_in(samples.get(method), "", 1))
            assert a.error and a.code in NOT_NOW, f"{method} while it waits: {a}"
        status = await c.call("config_status")
        assert status["waiting"] is True, status
        assert (await c.ask("version")).result and (await c.ask("rpc_methods")).result
        client = await env.persona("c", CLIENT, start=False)
        assert not await listens(env, "c", r.nids[0]), "it listens before it was started"
        assert await c.call("start") is True
        assert (await c.call("config_status"))["waiting"] is False
        a = await c.ask("start")
        assert a.error and a.code in NOT_NOW, f"started twice: {a}"
        await client.start()
        server = await env.persona("s", SERVER)
        join(client, r, "tcp1")
        join(server, r, "tcp")
        await env.bring_up(client, server)
        for size in (0, 5000, 200000):
            assert await client.put(server.nid, pattern(1, size)) and await client.get(server.nid, size)
    await env.settle()


@deadline(60)
async def test_configured_while_waiting(env):
    """A router that waits takes another configuration and starts with it."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, args=["--wait-for-rpc"])
    routes = far_routes(30, ["10.0.0.7@tcp"])
    async with clients(r) as c:
        schemas = await Schemas.of(c)
        if schemas.methods["config_apply"].get("x-phase") == "runtime":
            a = await c.ask("config_apply", {"text": r.yaml(routes=routes), "mode": "replace"})
            assert a.code in NOT_NOW, a
            await c.call("start")
        await c.call("config_apply", text=r.yaml(routes=routes), mode="replace")
        if (await c.call("config_status"))["waiting"]:
            await c.call("start")
        assert len((await c.call("route_get"))["route"]) == 30


# Groups of Debian's base system, so that names are known
ADMIN, OPERATOR, READ, OTHER = ("operator", 37), ("staff", 50), ("games", 60), ("users", 100)
READER, CHANGER = ("version", None), ("route_add", {"net": "tcp9", "gateway": "10.0.0.7@tcp"})
DECIDER = ("log_set", {"level": "info"})


@deadline(60)
async def test_roles(env):
    """Who may do what by group: one of admin_group, operator_group and read_group, several or none; root always may."""
    env.need_millrace()
    named = {"admin_group": ADMIN[0], "operator_group": OPERATOR[0], "read_group": READ[0]}
    expected = {     # configuration -> {groups of the caller: (may read, is operator, is admin)}
        (): {OTHER: (True, True, True)},
        ("admin_group",): {ADMIN: (True, True, True), READ: (True, False, False), OTHER: (True, False, False)},
        ("admin_group", "read_group"): {ADMIN: (True, True, True), READ: (True, False, False), OTHER: (False, False, False)},
        ("admin_group", "operator_group"): {ADMIN: (True, True, True), OPERATOR: (True, True, False),
                                            OTHER: (True, False, False)},
        ("operator_group", "read_group"): {OPERATOR: (True, True, False), READ: (True, False, False),
                                           OTHER: (False, False, False)},
    }
    tried = 0
    for i, (keys, rows) in enumerate(expected.items()):
        r = await env.router(f"r{i}", *ROUTER, rpc={"mode": "0666", **{k: named[k] for k in keys}})
        open_to_others(r)
        async with clients(r) as c:
            schemas = await Schemas.of(c)
            admin = [n for n, m in schemas.methods.items() if m.get("x-role") == "admin"]
            reading = [n for n, m in schemas.methods.items() if m.get("x-role") == "read"]
            operating = [n for n, m in schemas.methods.items() if m.get("x-role") == "operator"]
            assert "shutdown" in admin and "net_get" in reading and "config_apply" in admin and "net_add" in admin
            assert "route_add" in operating and "peer_del" in operating
            for group, (reads, operates, decides) in rows.items():
                for groups in ([group[1]], [65533, group[1]]):   # the primary group, or one of the others
                    for (method, params), may in ((READER, reads), (CHANGER, operates), (DECIDER, decides)):
                        tried += 1
                        a = await refused_or(r, NOBODY, groups, method, params)
                        assert ("result" in (a or {})) == may, f"{keys}: group {group[0]}: {method}: {a}"
                        if may and method == "route_add":
                            await c.call("route_del", net="tcp9", gateway="10.0.0.7@tcp")
                        if not may and a:
                            assert a["error"]["code"] < 0 and "id" in a, a
                        if not may and reads:
                            needed = "operator" if method == "route_add" else "admin"
                            assert f"needs the role {needed};" in a["error"]["message"], a
            # A reader may call no method that changes something, an operator none of an admin, whichever it is
            none_of = {("admin_group",): (OTHER, admin + operating), ("admin_group", "operator_group"): (OPERATOR, admin)}
            if keys in none_of:
                caller, forbidden = none_of[keys]
                before = await c.call("config_get", form="running")
                samples = dict(GOOD)
                for method in forbidden:
                    a = await refused_or(r, NOBODY, [caller[1]], method, fill_in(samples.get(method), "route: []\n", 1) or {})
                    assert a["error"]["code"] in (-errno.EPERM, -errno.EACCES), f"{method}: {a}"
                for method in ("net_get", "peer_get", "stats_get", "config_status"):
                    a = await refused_or(r, NOBODY, [caller[1]], method, None)
                    assert "result" in a, f"{method}: {a}"
                assert await c.call("config_get", form="running") == before
            a = await ask_as(r, 0, [0], *CHANGER)
            assert "result" in a, f"{keys}: root: {a}"
        await r.stop()
    env.result(f"{tried} calls of other users")


async def refused_or(router, uid, groups, method, params):
    """The response; None when the router closed the connection or did not let it in."""
    try:
        return await ask_as(router, uid, groups, method, params)
    except OSError:
        return None


@deadline(40)
async def test_socket_mode(env):
    """mode and group of the socket decide who may connect at all."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, rpc={"mode": "0660", "group": READ[0]})
    open_to_others(r)
    assert "result" in await ask_as(r, NOBODY, [READ[1]], "version")
    assert await refused_or(r, NOBODY, [OTHER[1]], "version", None) is None


@deadline(40)
async def test_shutdown(env):
    """`shutdown` answers, drains, and the process ends with 0."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    async with clients(r) as c:
        assert await c.call("shutdown", drain=1) is True
        await env.until(lambda: c.ended, "the connection's end", 10)
    await env.until(lambda: r.proc.poll() is not None, "the end", 10)
    assert r.proc.returncode == 0

