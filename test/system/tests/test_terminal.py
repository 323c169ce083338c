# SPDX-License-Identifier: BSD-3-Clause
"""What people do at a terminal: `millrace top` next to traffic, `millrace events`, completion in bash."""

import os
import re
import signal
import subprocess

from lnetpy.control import clients
from lnetpy.end_node import EndNode
from lnetpy.router import find_program
from lnetpy.scene import CLIENT, ROUTER, SERVER, deadline, join
from lnetpy.terminal import Terminal

NAMES = f"  names: {{'{CLIENT}': 'cli\u00e9nt-1', '{ROUTER[0]}': rtr-near}}\n"


def millrace(env, r, *args):
    return [find_program(env.build, "millrace"), "-s", r.sock, *args]


async def traffic(env, seconds):
    """A client and a server, and messages of 4 KiB between them through a router that knows a host's name."""
    r = await env.router("r", *ROUTER, extra=NAMES)
    server = EndNode(env, "s", SERVER, f"tcp {ROUTER[1]}", "server")
    await server.said(f"serving on {SERVER}")
    client = EndNode(env, "c", CLIENT, f"tcp1 {ROUTER[0]}", "--seconds", seconds, "--size", "4k", "--inflight", "1", "both", SERVER)

    async def flows():
        return (await r.stats())["route_count"] > 100
    await env.until_async(flows, "traffic")
    return r, server, client


def line_with(screen, *words):
    return next((ln for ln in screen if all(w in ln for w in words)), None)


def amount(text):
    """A number as top writes it; None for "-"."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGTPE]?)", text)
    return float(m[1]) * 1000 ** " kMGTPE".index(m[2] or " ") if m else None


def busy_peer(screen, nid):
    """The line of a peer that bytes come from and go to."""
    ln = line_with(screen, nid, " up ")
    if not ln:
        return None
    inward, outward = ln.split(" up ", 1)[1].split()[:2]
    return ln if amount(inward) and amount(outward) else None


def foot(screen):
    return screen[-1] if screen else ""


@deadline(150)
async def test_top(env):
    """At 80x24 with traffic: what top shows, its keys, another size, a router that goes and comes back, the end."""
    env.need_millrace()
    r, server, client = await traffic(env, 60)
    with Terminal(env, millrace(env, r, "top", "--interval", "1")) as t:
        await t.until(lambda s: line_with(s, "forwarded", "messages/s") and not line_with(s, "forwarded - "), "rates")
        screen = await t.until(lambda s: line_with(s, "(rtr-near)") and s, "names of hosts")
        assert len(screen) == 24, screen
        assert line_with(screen, "millraced", "up 0d", "routing"), screen
        moved = amount(line_with(screen, "forwarded").split()[1])
        assert moved and moved > 0, screen
        for title in ("REACTOR", "NI ", "PEER by bytes", "BUFFERS", "DROPS"):
            assert line_with(screen, title), (title, screen)
        assert re.match(r" +0 +\d+ +\d+% ", screen[screen.index(line_with(screen, "REACTOR")) + 1]), screen
        ni = line_with(screen, ROUTER[0], "(rtr-near)", " up ")
        assert ni and all(amount(x) for x in ni.split(" up ")[1].split()[:2]), screen
        assert "q quit" in foot(screen) and "every 1 s" in foot(screen), screen

        t.keys("v")
        health = await t.until(lambda s: line_with(s, "HEALTH", "TIMEO") and line_with(s, ROUTER[0], " 1000 ") and s, "the page of the health")
        assert line_with(health, "0 below full health") and not line_with(health, "REACTOR"), health
        t.keys("v")
        await t.until(lambda s: line_with(s, "DROPS "), "the page of the traffic")
        t.keys("s")
        await t.until(lambda s: line_with(s, "PEER by queued") and "by queued" in foot(s), "another order")
        t.keys("+")
        await t.until(lambda s: "every 2 s" in foot(s), "a longer interval")
        t.keys("-")
        await t.until(lambda s: "every 1 s" in foot(s), "a shorter interval")
        t.keys("h")
        await t.until(lambda s: line_with(s, "STALLS: calls over 100 us") and not line_with(s, "REACTOR"), "help")
        t.keys("h")
        await t.until(lambda s: line_with(s, "DROPS "), "no help any more")
        t.keys("p")
        paused = await t.until(lambda s: "PAUSED" in foot(s) and s, "a pause")
        stats = await r.stats()

        async def more():
            return (await r.stats())["route_count"] > stats["route_count"] + 100
        await env.until_async(more, "more traffic")
        assert t.screen() == paused, (paused, t.screen())
        t.keys("p")
        await t.until(lambda s: "PAUSED" not in foot(s), "no pause any more")

        t.resize(60, 12)
        small = await t.until(lambda s: len(s) == 12 and line_with(s, "REACTOR") and "every 1 s" in foot(s) and s, "60x12")
        assert all(len(ln) <= 60 for ln in small) and not line_with(small, "DROPS"), small
        for _ in range(6):
            t.keys("NPage")
        await t.until(lambda s: line_with(s, "DROPS ") and not line_with(s, "REACTOR"), "the end, scrolled to")
        t.keys("Home")
        await t.until(lambda s: line_with(s, "REACTOR"), "the beginning")
        t.resize(132, 50)
        await t.until(lambda s: len(s) == 50 and line_with(s, "REACTOR") and line_with(s, "DROPS ") and "every 1 s" in s[-1], "132x50")

        r.crash()
        client.kill()
        server.kill()
        await t.until(lambda s: "does not answer, trying again" in foot(s), "the router is gone")
        await r.restart()
        await t.until(lambda s: "every 1 s" in foot(s) and line_with(s, "up 0d 00:00:"), "the router is back")
        t.keys("q")
        await t.until(lambda s: line_with(s, "ended with 0"), "the end")


@deadline(90)
async def test_top_peers(env):
    """The peers that move bytes, with their hosts."""
    env.need_millrace()
    r, server, client = await traffic(env, 30)
    with Terminal(env, millrace(env, r, "top", "--interval", "1")) as t:
        screen = await t.until(lambda s: busy_peer(s, CLIENT) and busy_peer(s, SERVER) and s, "peers with traffic")
        assert line_with(screen, CLIENT, "(cli\u00e9nt-1)"), screen
        assert not line_with(screen, "does not report peers"), screen
        t.keys("q")
        await t.until(lambda s: line_with(s, "ended with 0"), "the end")
    client.kill()
    server.kill()


@deadline(90)
async def test_top_without_colours(env):
    """A terminal of 1978, and SIGINT as the end."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    with Terminal(env, ["env", "TERM=vt100", *millrace(env, r, "top", "--interval", "1")]) as t:
        await t.until(lambda s: line_with(s, "forwarded 0 messages/s"), "rates")
        t.keys("C-c")
        await t.until(lambda s: line_with(s, "ended with 0"), "the end")


@deadline(90)
async def test_top_batch(env):
    """Frames as text, without a terminal; with no router behind the socket a reason and status 3."""
    env.need_millrace()
    r, server, client = await traffic(env, 60)
    ns = env.fabric.host("r")
    p = await env.loop().run_in_executor(None, lambda: ns_run(ns, millrace(env, r, "top", "--batch", "3", "--interval", "1")))
    assert p[0] == 0, p
    frames = p[1].strip().split("\n\n")
    assert len(frames) == 3, p
    for frame in frames:
        lines = frame.splitlines()
        assert amount(line_with(lines, "forwarded").split()[1]) > 0, frame
        assert line_with(lines, "REACTOR") and line_with(lines, "PEER by bytes") and line_with(lines, "DROPS"), frame
    client.kill()
    server.kill()
    await r.stop()
    p = await env.loop().run_in_executor(None, lambda: ns_run(ns, millrace(env, r, "top", "--batch", "1")))
    assert p[0] == 3 and "cannot connect" in p[2], p


def ns_run(ns, argv):
    p = ns.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = p.communicate(timeout=60)
    return p.returncode, out.decode(), err.decode()


@deadline(90)
async def test_events(env):
    """`millrace events`: a line per event with the host, what was before, an end by ^C, a router that goes and comes back."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, extra=NAMES)
    with Terminal(env, millrace(env, r, "events", "--follow"), cols=160) as t:
        # The subscription is there when the first event shows.
        async def heard():
            await r.rpc("log_set", level="info", module="drops")
            return line_with(t.screen(), "log_level", "drops is logged from info on")
        await env.until_async(heard, "an event on the screen", 20)
        c = await env.persona("c", CLIENT)
        join(c, r, "tcp1")
        await env.bring_up(c)
        ln = await t.until(lambda s: line_with(s, "peer_up"), "peer_up")
        assert f"nid={CLIENT} (cli\u00e9nt-1)" in ln, ln
        assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} peer_up ", ln), ln
        await env.until(lambda: sorted(x.ctype for x in c.conns()) == [1, 2, 3], "one connection of each type")
        r.crash()
        await t.until(lambda s: line_with(s, "trying again"), "the router is gone")
        await r.restart()
        await heard_again(env, r, t)
        t.keys("C-c")
        await t.until(lambda s: line_with(s, "ended with 0"), "the end")
    with Terminal(env, millrace(env, r, "events", "--recent", "--type", "log_level"), cols=160) as t:
        screen = await t.until(lambda s: line_with(s, "ended with 0") and s, "those of before")
        assert line_with(screen, "log_level", "rpc is logged from debug on"), screen
        assert all("log_level" in ln for ln in screen if "Z" not in ln and re.match(r"\d{4}-", ln)), screen
    with Terminal(env, millrace(env, r, "events"), cols=160) as t:
        r.proc.send_signal(signal.SIGTERM)
        await t.until(lambda s: line_with(s, "ended with 3"), "the end, as the router's")


@deadline(90)
async def test_events_missed(env):
    """`millrace events` that is held up says how many it missed: shown and missed make all."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    count = 4000
    with Terminal(env, ["sh", "-c", 'exec "$@" >"$0"', os.path.join(r.dir.name, "out"), *millrace(env, r, "events")]) as t:
        def lines():
            try:
                with open(os.path.join(r.dir.name, "out"), encoding="utf-8") as f:
                    return f.read().splitlines()
            except FileNotFoundError:
                return []

        async def heard():
            await r.rpc("log_set", level="info", module="drops")
            return lines()

        async def heard_last():
            return any("lnet is logged" in ln for ln in lines())
        await env.until_async(heard, "an event", 20)
        await r.rpc("log_set", level="info", module="lnet")
        await env.until_async(heard_last, "the newest event")
        unheard = (await r.rpc("events_get", limit=1))["events"][0]["seq"] - len(lines())
        pid = int(t.tmux("list-panes", "-F", "#{pane_pid}"))
        held = int(subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True).stdout.split()[0])
        os.kill(held, signal.SIGSTOP)
        before = len(lines())
        async with clients(r) as c:
            for _ in range(count):
                await c.call("log_set", level="info", module="rpc")
        newest = (await r.rpc("events_get", limit=1))["events"][0]["seq"] - unheard
        os.kill(held, signal.SIGCONT)

        def accounted():
            shown = [ln for ln in lines() if " log_level " in ln]
            missed = [int(m[1]) for ln in lines() if (m := re.fullmatch(r"-- (\d+) events missed --", ln))]
            return missed and len(shown) + sum(missed) == newest and (len(shown), sum(missed))

        async def all_there():
            return accounted()
        shown, missed = await env.until_async(all_there, f"{newest} events, shown or missed", 20)
        assert missed > 0 and shown > before, (shown, missed)
        env.result(f"{shown} shown, {missed} missed")
        t.keys("C-c")
        await t.until(lambda s: line_with(s, "ended with 0"), "the end")


async def heard_again(env, r, t):
    """Whoever waits for the router is connected to it when its next event shows."""
    async def heard():
        await r.rpc("log_set", level="debug", module="rpc")
        return line_with(t.screen(), "log_level", "rpc is logged from debug on")
    try:
        await env.until_async(heard, "events of the new router", 20)
    except Exception as x:
        raise AssertionError(f"{x}; the screen:\n" + "\n".join(t.screen()).rstrip()) from None


@deadline(90)
async def test_completion(env):
    """Tab in an interactive bash: words, options, values that the router knows."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    path = os.path.dirname(find_program(env.build, "millrace"))
    with Terminal(env, ["bash", "--norc", "--noprofile", "-i"], cols=200,
                  variables={"PATH": f"{path}:{os.environ['PATH']}"}) as t:
        await t.until(lambda s: line_with(s, "bash-"), "a prompt")
        t.type("source <(millrace completion bash); PS1='have''it$ '\n")
        await t.until(lambda s: line_with(s, "haveit$"), "the completion is there")
        t.type("millrace rou")
        t.keys("Tab")
        await t.until(lambda s: line_with(s, "haveit$ millrace rout"), "rout")
        t.keys("Tab", "Tab")
        await t.until(lambda s: line_with(s, "route ", "routing"), "both words that begin so")
        t.keys("C-u")
        t.type("millrace net show --n")
        t.keys("Tab")
        await t.until(lambda s: line_with(s, "haveit$ millrace net show --net"), "--net")
        t.keys("C-u")
        t.type(f"millrace -s {r.sock} net sh")
        t.keys("Tab")
        await t.until(lambda s: line_with(s, f"{r.sock} net show"), "show, behind options of millrace itself")
        t.keys("Enter")
        await t.until(lambda s: line_with(s, f"nid: {ROUTER[0]}"), "the command, run")
