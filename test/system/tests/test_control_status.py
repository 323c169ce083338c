# SPDX-License-Identifier: BSD-3-Clause
"""`millrace status`: its verdict, exit status and findings as a router gets into trouble and out of it."""

import asyncio
import json
import signal
import subprocess
import time

from lnetpy import nid as N
from lnetpy.router import find_program
from lnetpy.scene import CLIENT, ROUTER, SERVER, line, only

FINE, DEGRADED, DOWN, UNKNOWN = range(4)
WORDS = ("fine", "degraded", "down")


async def status(env, r, *args):
    """(exit status, output) of a run."""
    p = await asyncio.to_thread(subprocess.run, [find_program(env.build, "millrace"), "-s", r.sock, "status", *args],
                                capture_output=True, text=True, timeout=40)
    assert "Sanitizer" not in p.stderr, p.stderr
    return p.returncode, p.stdout


async def findings(env, r, level, *checks):
    """The status and {check of a finding: [object]} once the verdict is `level`, with findings of these checks alone."""
    seen, found = None, {}

    async def is_so():
        nonlocal seen
        code, out = await status(env, r, "--json")
        seen = json.loads(out)
        assert seen["status"] == WORDS[code], (code, seen)
        found.clear()
        for f in seen["findings"]:
            assert f["level"] in ("warning", "error") and f["text"] and f["remedy"], f
            found.setdefault(f["check"], []).append(f["object"])
        return code == level and set(checks) == set(found)
    await env.until_async(is_so, f"status {WORDS[level]} for {checks}", 20, 0.2)
    return seen, found


async def test_follows_faults(env):
    """A link, both links, forwarding off, a gateway that is not there: named, and gone when they are over."""
    env.need_millrace()
    c, r, s = await line(env)
    seen, _ = await findings(env, r, FINE)
    assert seen["routing"] == "on" and seen["pid"] == r.proc.pid, seen
    assert [(n["nid"], n["status"], n["interface"]) for n in seen["nis"]["rows"]] == \
        [(str(n), "up", f"eth{i}") for i, n in enumerate(r.nids)] or not seen["nis"]["rows"][0]["interface"], seen["nis"]
    assert seen["peers"]["up"] == 2 and seen["nis"]["up"] == 2, seen
    code, out = await status(env, r)
    assert code == FINE and out.startswith("fine: millraced") and "2 of 2 up" in out and len(out.splitlines()) <= 24, out

    await r.rpc("routing_set", enable=0)
    await findings(env, r, DEGRADED, "routing")
    await r.rpc("routing_set", enable=1)
    await findings(env, r, FINE)

    for nid in r.nids:
        r.spec.set_status(nid, 0x15aac0de, 0xdeadface)
    ports = [env.fabric.ports["r", f"eth{i}"] for i in range(2)]
    env.fabric.link(ports[1], False)
    assert (await findings(env, r, DEGRADED, "ni"))[1]["ni"] == [str(r.nids[1])]
    code, out = await status(env, r)
    assert code == DEGRADED and out.startswith("degraded: ") and f"warning  ni {r.nids[1]}: down" in out, out
    env.fabric.link(ports[1], True)

    async def pinged_and_fine():    # the first ping may be there before the router has heard of the link
        await s.ping_get(r.nids[1], 272)
        return (await status(env, r))[0] == FINE
    await env.until_async(pinged_and_fine, "status fine after a sign of life", 20, 0.2)
    await findings(env, r, FINE)
    for port in ports:
        env.fabric.link(port, False)
    assert "" in (await findings(env, r, DOWN, "ni"))[1]["ni"]


async def test_gateway(env):
    """A gateway that is not there, until its route is removed. The ping that it did not answer is reported for a minute."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    await findings(env, r, FINE)
    await r.rpc("route_add", net="tcp9", gateway="10.0.0.77@tcp")
    seen, found = await findings(env, r, DEGRADED, "gateway", "drops")
    assert found["gateway"] == ["10.0.0.77@tcp"] and seen["routes"]["total"] == 1 and seen["routes"]["up"] == 0, seen
    await r.rpc("route_del", net="tcp9", gateway="10.0.0.77@tcp")
    assert (await findings(env, r, DEGRADED, "drops"))[1]["drops"] == ["next_hop_unreachable"]


async def test_drops(env):
    """A message that was dropped a moment ago is reported with its reason."""
    env.need_millrace()
    c, r, s = await line(env)
    await findings(env, r, FINE)
    await c.put(N.parse("10.7.0.1@tcp7"), b"x", ack=False, via=(c.nis[0], r.nids[0]))
    assert (await findings(env, r, DEGRADED, "drops"))[1] == {"drops": ["no_route"]}
    env.ledger.forget(lambda e: True)


async def test_absent(env):
    """An NI that is configured and has no device here."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, absent=[N.parse("10.9.0.1@o2ib")])
    seen, found = await findings(env, r, DEGRADED, "ni")
    assert found["ni"] == ["10.9.0.1@o2ib"] and seen["nis"]["total"] == 3, seen


async def test_no_answer(env):
    """Stopped by a signal, killed, or waiting for its start: down, and within the time that was given."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    r.proc.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    code, out = await status(env, r, "--timeout", "1", "--json")
    assert code == DOWN and json.loads(out)["findings"][0]["check"] == "millraced" and time.monotonic() - begin < 10, out
    r.proc.send_signal(signal.SIGCONT)
    assert (await status(env, r))[0] == FINE
    assert (await status(env, r, "--frob"))[0] == UNKNOWN and (await status(env, r, "--timeout", "0"))[0] == UNKNOWN
    await r.stop()
    code, out = await status(env, r)
    assert code == DOWN and out.startswith("down: millraced\n") and "is millraced running?" in out, out
    w = await env.router("w", CLIENT, SERVER, args=["--wait-for-rpc"])
    code, out = await status(env, w)
    assert code == DOWN and "error    node: is not started" in out and "try: millrace start" in out, out


@only("port")
async def test_port(env):
    """Ports are shown; faults that are injected there are no secret."""
    env.need_millrace()
    _, r, _ = await line(env)
    seen, _ = await findings(env, r, *((DEGRADED, "tamper") if env.tamper else (FINE,)))
    assert [p["link"] for p in seen["ports"]] == ["up", "up"], seen
    await r.rpc("tamper_set", delay_ms=0.1)
    await findings(env, r, DEGRADED, "tamper")
