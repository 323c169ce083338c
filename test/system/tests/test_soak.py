# SPDX-License-Identifier: BSD-3-Clause
"""Random faults for long: ports that inject faults, links that flap, nodes that die; with a ceiling on memory.
And attackers that come and go."""

import asyncio
import collections
import os
import random
import re
import subprocess

from lnetpy.crowd import Books
from lnetpy.crowd_scene import CLIENTS, FAR, NEAR, SERVERS, both_ways, stop, until_done, wide_router
from lnetpy.hostile import Attack
from lnetpy.router import find_program
from lnetpy.scene import alone, deadline, only

RULES = ({"loss": 0.1}, {"loss": 1}, {"loss": 5}, {"burst_begin": 0.3, "burst_end": 20}, {"delay_ms": 1},
         {"delay_ms": 20, "jitter_ms": 10}, {"reorder": 5, "reorder_ms": 2}, {"duplicate": 3}, {"corrupt": 1},
         {"rate_mbit": 300, "queue_kb": 512}, {"loss": 1, "duplicate": 1, "corrupt": 0.2, "delay_ms": 2, "jitter_ms": 2})


def planned(router):
    """Bytes that the process may take as `--check` says: what is asked of EAL, and heap with all connections in use."""
    said = subprocess.run([find_program(router.env.build, "millraced"), "--check", "-c", router.conf], text=True,
                          capture_output=True, check=True).stdout
    return int(sum(float(x) for x in re.findall(r"^ +(?:sum|tcp streams): ([\d.]+)", said, re.M)) * (1 << 20))


async def buffers_free(router):
    """Receive buffers of ports that nobody holds."""
    return {p["name"]: p["buffers_free"] for p in (await router.rpc("port_get"))["port"]}


def resident(router):
    """Bytes of memory the process has in use."""
    with open(f"/proc/{router.proc.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * 4096


@only("port")
@alone
@deadline(100, long=700)
async def test_random_faults(env):
    env.need_millrace()
    seconds, rng = (600 if env.long else 30), random.Random(11)
    r, rest = await wide_router(env)
    c, s = await env.crowd("c", CLIENTS, 20), await env.crowd("s", SERVERS, 4)
    empty = await buffers_free(r)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    books = await Books.open([r], [c, s])
    loads = await both_ways(c, s, timeout=60)
    await until_done(env, loads[0], 2, "traffic", 20)
    ceiling, most, flaps, rules = planned(r), 0, 0, 0
    end = env.now() + seconds
    while env.now() < end:
        for port in ("eth0", "eth1"):
            await r.rpc("tamper_set", port=port, direction=rng.choice(("in", "out", "both")), seed=rng.randrange(1 << 30),
                        **rng.choice(RULES))
            rules += 1
        if rng.random() < 0.2:
            end_of_link = env.fabric.ports["r", rng.choice(("eth0", "eth1"))]
            env.fabric.link(end_of_link, False)
            await asyncio.sleep(rng.uniform(0.1, 2))
            env.fabric.link(end_of_link, True)
            flaps += 1
        await asyncio.sleep(rng.uniform(0.5, 3))
        most = max(most, resident(r))
        await r.rpc("tamper_clear")
    if not env.sanitized:
        assert most <= ceiling, f"{most >> 20} MiB, planned are {ceiling >> 20}"
    await until_done(env, loads[0], 1, "traffic after all that", 60)
    await stop(*loads)
    states = [await x.state() for x in (c, s)]
    seen = await books.check(exact=not any(x["closed"] for x in states), timeout=60)
    env.result(f"{seconds} s, {rules} rules, {flaps} flaps of a link: {seen}; {most >> 20} MiB of {ceiling >> 20}")
    await rest.wait()

    async def all_back():
        return all(n >= empty[name] for name, n in (await buffers_free(r)).items())
    await env.until_async(all_back, f"all receive buffers back: {empty}", 20)


# What an attacker does, with how many addresses and which settings; those of ports only.
ATTACKS = (("callers", 2, {"per": 4000, "rate": 200}), ("holders", 33, {"per": 255}), ("greetings", 33, {"per": 32}),
           ("segments", 21, {"per": 255}), ("dead", 10, {"per": 2, "far": "10.2.9."}), ("thief", 1, {}),
           ("strangers", 2, {"per": 2, "far": "11."}), ("askers", 2, {"per": 2}), ("forgers", 2, {"per": 2}))
PORT_ONLY = ("thief",)


def settings(env):
    """Seconds, seed and attacks: three words in MILLRACE_SOAK, minutes first, the attacks with a comma between."""
    minutes, seed, attacks = (os.environ.get("MILLRACE_SOAK", "") + "  ").split(" ")[:3]
    attacks = [a for a in ATTACKS if (env.transport == "port" or a[0] not in PORT_ONLY) and (not attacks or a[0] in attacks.split(","))]
    return int(60 * float(minutes)) if minutes else 3600 if env.long else 40, int(seed or 11), attacks


async def attack_once(env, rng, attacks, count):
    """An attacker with addresses that nobody had before, for some seconds."""
    what, n, more = rng.choice(attacks)
    sources = [f"10.1.{100 + count % 150}.{1 + i}/16" for i in range(n)]
    attack = Attack(env, what, NEAR.split("@")[0], sources, host=f"attacker{count}", **more)
    await asyncio.sleep(rng.uniform(4, 15))
    attack.stop()
    env.fabric.hosts.pop(f"attacker{count}").close()
    return what


async def seen_by(env, r, problems):
    """What the router knows of the nodes that have a problem."""
    out = [str(p)[:200] for p in problems]
    for nid in sorted(set(re.findall(r"10[.0-9]+@tcp1?", " ".join(out)))):
        out += [str(await r.rpc(method, nid=nid)) for method in ("why", "peer_get")]
        if env.transport == "port":
            out += [str(row) for row in (await r.rpc("tcp_get", peer=nid))["tcp"]]
    out += [str(await r.rpc(method)) for method in ("waits_get", "buffers_get", "admission_get")]
    return "\n".join(out)


@only("kernel", "port")
@alone
@deadline(150, long=3900)
async def test_attackers(env):
    """40 nodes with traffic that is checked, while hosts without a password do what they can."""
    env.need_millrace()
    seconds, seed, attacks = settings(env)
    rng = random.Random(seed)
    r, _ = await wide_router(env, routes=[{"net": "tcp9", "gateway": "10.1.0.77@tcp"}])     # for those who forge names of tcp9
    c, s = await env.crowd("c", CLIENTS, 20), await env.crowd("s", SERVERS, 20)
    await c.nodes(NEAR)
    await s.nodes(FAR)
    loads = await both_ways(c, s, timeout=60, every=0.5)
    await until_done(env, loads[0], 2, "traffic", 20)
    ceiling, most, early, done = planned(r), 0, 0, []
    end = env.now() + seconds
    running = set()
    problems = []
    while env.now() < end and not problems:
        if len(running) < 2:
            running.add(env.loop().create_task(attack_once(env, rng, attacks, len(done) + len(running))))
        await asyncio.sleep(rng.uniform(0.5, 3))
        for t in [t for t in running if t.done()]:
            running.remove(t)
            done.append(t.result())
        most = max(most, resident(r))
        if env.now() < end - 2 * seconds / 3:
            early = most
        for x in (c, s):
            await x.state()
        problems = list(env.problems)
    if problems:
        env.log(await seen_by(env, r, problems))
        raise AssertionError("; ".join(problems))
    done += await asyncio.gather(*running)
    await until_done(env, loads[0], 1, "traffic after all that", 60)
    await stop(*loads)
    states = [await x.idle(60, answered=False) for x in (c, s)]
    sent, got = (sum(sum(x[k]) for x in states) for k in ("sent", "received"))
    ping, request = max(x["ping_slowest"] for x in states), max([(await x.sum())["slowest"] for x in loads])
    drops = await r.drops()
    refused = sum(drops.values())
    env.log(f"drops: {({k: v for k, v in drops.items() if v})}")
    assert refused > 1000, f"the router has refused only {refused} connections and messages of attackers"
    attacked = ", ".join(f"{n} {what}" for what, n in sorted(collections.Counter(done).items()))
    env.result(f"{seconds} s, seed {seed}: {attacked}; {sent} messages sent, {got} arrived; slowest ping {1e3 * ping:.0f} ms, slowest "
               f"request {1e3 * request:.0f} ms; {refused} refusals and drops; "
               f"{early >> 20} MiB early, {most >> 20} at most, {ceiling >> 20} planned")
    assert sent == got and not any(x["closed"] or x.get("doubled") or x.get("altered") for x in states), states
    if not env.sanitized:
        assert most <= min(ceiling, early + (64 << 20)), f"{most >> 20} MiB, {early >> 20} early, planned are {ceiling >> 20}"
