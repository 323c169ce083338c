# SPDX-License-Identifier: BSD-3-Clause
"""A client that is slow, dead or greedy costs only itself: traffic keeps its rate, others their answers. docs/jsonrpc.md."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import subprocess

from lnetpy.control import Client, ask_as, clients, held_up, more_stalls, open_to_others, pages, stalls
from lnetpy.control_scene import HOME, crowded_router, steady
from lnetpy.crowd_scene import allowed
from lnetpy.scene import ROUTER, alone, deadline

CLIENTS = 64                # as many as there may be
IN_TIME = 1.0               # s for an answer to the others
KEPT = 0.8                  # of the rate alone
WATCH = 5.0                 # s of traffic that are looked at


async def greedy(router):
    """A client that subscribed to everything, asked for a lot, and reads nothing."""
    c = await Client(router).open(reading=False)
    c.post("events_subscribe")
    for _ in range(40):
        c.post("peer_get", {"limit": 2000})
        c.post("config_get", {"form": "running"})
    return c


@alone
@deadline(90, long=180)
async def test_load_32_never_read(env):
    """64 clients, of which 32 read nothing with a megabyte and more waiting for each: traffic goes on at its rate, the
    others are answered in time, and the memory of the process has its bound."""
    env.need_millrace()
    t = await steady(env)
    watch = 4 * WATCH if env.long else WATCH
    (load, *_), r = t.loads, t.router
    async with contextlib.AsyncExitStack() as stack:
        good = await stack.enter_async_context(clients(r, CLIENTS // 2 - 1))
        await t.watch(good[0])
        before, idle = await load.rate(watch), rss(r)
        for _ in range(3):      # what is too long itself is so each time
            begin = await good[0].call("reactors_get")
            bad = [await greedy(r) for _ in range(CLIENTS // 2)]
            for c in bad:
                stack.callback(c.close)
            tasks = [env.loop().create_task(ask_all(c)) for c in good]
            beside = await load.rate(watch)
            took = sum(await asyncio.wait_for(asyncio.gather(*tasks), 30), [])
            end = await good[0].call("reactors_get")
            limit, grown = await allowed(env, IN_TIME, *t.crowds), rss(r) - idle
            assert max(took) <= limit, f"another client waited {max(took):.2f} s"
            assert beside >= KEPT * before, f"traffic {before:.0f}/s alone, {beside:.0f}/s beside clients that do not read"
            assert env.sanitized or grown < 200 << 20, f"{grown >> 20} MiB more for clients that do not read"
            if env.sanitized or not await held_up_by_bad(env, good, begin, end):
                break
            for c in bad:
                c.close()
        else:
            raise AssertionError(f"reactors held up: {'; '.join(env.results[-3:])}")
        # Though all places are taken, whoever runs the router gets one
        assert (await r.rpc("version"))["pid"] == r.proc.pid
        worst = await t.unnoticed(good[0])
        # Clients that go away without a word take nothing with them
        for c in bad:
            c.writer.transport.abort()
        async with clients(r) as c:
            assert (await c.call("version"))["pid"] == r.proc.pid
    env.result(f"{await t.end()}; traffic {before:.0f}/s alone, {beside:.0f}/s beside; {len(took)} answers, slowest "
               f"{1000 * max(took):.0f} ms; {grown >> 20} MiB more; slowest request {worst:.2f} s")


async def ask_all(client):
    """Some of everything, as somebody would who watches; the seconds each answer took."""
    took = []
    for method in ("version", "stats_get", "net_get", "drops_get", "route_get", "waits_get", "reactors_get") * 3:
        a = await client.ask(method)
        assert a.result is not None, a
        took.append(a.took)
        await asyncio.sleep(0.2)
    return took


async def held_up_by_bad(env, good, begin, end):
    """Whether reactors were held up between two answers of reactors_get more than by the same from clients that read."""
    more = await asked_by_good(good, mail_us(begin, end))
    held, alone = more_stalls(stalls(begin), stalls(end)), more_stalls(stalls(end), stalls(more))
    env.result(f"callbacks too long: {told(held)} beside bad clients, {told(alone)} with as much asked by good ones")
    return held_up(stalls(begin), stalls(end), alone)


def mail_us(before, after):
    """Time each reactor spent on mail in between."""
    return {y["reactor"]: y["stages"]["mail"] - x["stages"]["mail"] for x, y in zip(before["reactors"], after["reactors"])}


async def asked_by_good(clients_, much):
    """Clients that read ask for the same until reactors have spent as much time on that, and what reactors_get says then. What
    takes a core away unseen meets whatever runs there: callbacks the more often the longer they run in all, whoever asks."""
    begin = now = await clients_[0].call("reactors_get")
    while any(us < much[i] for i, us in mail_us(begin, now).items()):
        await asyncio.gather(*[c.ask("peer_get", {"limit": 2000}) for c in clients_])
        now = await clients_[0].call("reactors_get")
    return now


def told(counts):
    """Of each reactor, in words."""
    return " + ".join(f"{n:.0f}" for _, n in sorted(counts.items()))


def rss(router):
    """Bytes of memory the process has in use."""
    with open(f"/proc/{router.proc.pid}/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@alone
@deadline(60)
async def test_load_greedy(env):
    """32 clients ask for 32 pages of peers each and read nothing: others have short answers soon, and their page in turn."""
    env.need_millrace()
    r, _, _ = await crowded_router(env, 5000, routes=0)
    bar = IN_TIME * env.slower
    async with clients(r) as c, contextlib.AsyncExitStack() as stack:
        for _ in range(32):
            b = await Client(r).open(reading=False)
            stack.callback(b.close)
            for _ in range(32):
                b.post("peer_get", {"limit": 2000})
        took = [(await c.ask("version")).took for _ in range(100)]
        page = await c.ask("peer_get", {"limit": 2000}, 30)
        env.result(f"slowest of {len(took)} short answers {1000 * max(took):.0f} ms, a page after {page.took:.2f} s")
        bar *= env.stretch()
        assert max(took) <= bar / 4, f"{1000 * max(took):.0f} ms"
        assert page.result["peer"] and page.took <= 2 * bar, f"{page.took:.2f} s"


@deadline(40)
async def test_subscriber_that_sleeps(env):
    """A subscriber that does not read for a while learns what came in the end and how many it missed; one that reads gets
    them all."""
    env.need_millrace()
    r, _, crowd = await crowded_router(env, 10, routes=0)
    visitors = [f"10.65.{100 + i // 250}.{i % 250 + 1}@tcp" for i in range(1500)]
    awake, asleep = await Client(r).open(), await Client(r).open()
    kinds = {"types": ["peer_up", "peer_down"]}
    await awake.call("events_subscribe", queue=1024, **kinds)
    await asleep.call("events_subscribe", queue=16, **kinds)
    asleep.writer.transport.pause_reading()
    await crowd.visit(HOME, nids=visitors)

    def missed(c):
        return sum(e.get("missed", 0) for e in c.events)
    await env.until(lambda: len(awake.events) + missed(awake) >= 2 * len(visitors), "all events at the one who reads", 15)
    asleep.writer.transport.resume_reading()
    await env.until(lambda: len(asleep.events) + missed(asleep) >= 2 * len(visitors), "all told to the one who slept", 10)
    assert missed(asleep) > 0, "nothing was missed: it was not asleep"
    for name, c in (("awake", awake), ("asleep", asleep)):
        seqs = [e["seq"] for e in c.events]
        assert seqs == sorted(set(seqs)), f"{name}: out of order"
        assert len(c.events) + missed(c) == 2 * len(visitors), f"{name}: {len(c.events)} and {missed(c)} missed"
        for before, e in zip(c.events, c.events[1:]):
            gap = e["seq"] - before["seq"] - 1
            assert gap == e.get("missed", 0), f"{name}: {gap} numbers left out before {e}"
        c.close()
    env.result(f"asleep: {len(asleep.events)} events, {missed(asleep)} missed; awake: {missed(awake)} missed")


HOARD = """
import socket, sys
them = []
for i in range(64):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b'{"jsonrpc": "2.0", "id": 1, "method": "events_subscribe"}\\n')
    s.recv(1)
    them.append(s)
print("there", flush=True)
while True:
    for s in them:
        try:
            s.sendall(b" ")
            s.recv(65536, socket.MSG_DONTWAIT)
        except OSError:
            pass
"""
READ, OPERATOR, READER, OTHER_READER = 60, 50, 65533, 65532


@deadline(40)
async def test_places_of_one_user(env):
    """One user that may read has taken all places, and uses them: an operator and another reader find theirs."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, rpc={"mode": "0666", "operator_group": "staff", "read_group": "games"})
    open_to_others(r)
    p = await asyncio.create_subprocess_exec("setpriv", f"--reuid={READER}", f"--regid={READ}", "--clear-groups", "/usr/bin/python3",
                                             "-c", HOARD, r.sock, stdout=subprocess.PIPE)
    try:
        assert await asyncio.wait_for(p.stdout.readline(), 20) == b"there\n"
        for uid, group in ((READER, OPERATOR), (OTHER_READER, READ)):
            answer = await ask_as(r, uid, [group], "version")
            assert "result" in answer, f"user {uid} of group {group}: {answer}"
    finally:
        p.kill()
        await p.wait()


# Connects 40 times, and again when a connection ends. Sends the same requests over each, and reads nothing.
HOG = """
import selectors, signal, socket, sys
text, s, done = memoryview(sys.stdin.buffer.read()), selectors.DefaultSelector(), []
def connect():
    c = socket.socket(socket.AF_UNIX)
    c.connect(sys.argv[1])
    c.setblocking(False)
    s.register(c, selectors.EVENT_WRITE, text)
for _ in range(40):
    connect()
while s.get_map():
    for key, _ in s.select():
        try:
            left = key.data[key.fileobj.send(key.data[:65536]):]
        except OSError:
            s.unregister(key.fileobj).fileobj.close()
            connect()
            continue
        s.modify(key.fileobj, selectors.EVENT_WRITE, left) if left else done.append(s.unregister(key.fileobj))
print("all", flush=True)
signal.pause()
"""


@contextlib.asynccontextmanager
async def hog(router, *requests):
    """A user that may read, with 40 clients that have sent, or go on to send, these requests."""
    p = await asyncio.create_subprocess_exec("setpriv", f"--reuid={READER}", f"--regid={READ}", "--clear-groups", "/usr/bin/python3",
                                             "-c", HOG, router.sock, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        p.stdin.write("".join(requests).encode())
        p.stdin.close()
        yield p
    finally:
        p.kill()
        await p.wait()


def call(method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


LONG_PING = {"nid": "10.0.0.199@tcp", "timeout_ms": 60000}


@deadline(40)
async def test_calls_of_one_user(env):
    """One user that may read has begun as many calls that take long, and subscribed as often, as it may: another one can do each, too."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, rpc={"mode": "0666", "operator_group": "staff", "read_group": "games"})
    open_to_others(r)
    async with hog(r, *[call("events_subscribe")] * 8, *[call("counters_capture", seconds=60)] * 4, *[call("ping", **LONG_PING)] * 16) as p:
        assert await asyncio.wait_for(p.stdout.readline(), 20) == b"all\n"
        for method, params in (("peer_top", {"by": "bytes", "interval_ms": 50}), ("ping", {"nid": "10.0.0.198@tcp", "timeout_ms": 50}),
                               ("events_subscribe", {})):
            async def refused():
                return (await ask_as(r, READER, [READ], method, params)).get("error", {}).get("code") in (-errno.EBUSY, -errno.EMFILE)
            await env.until_async(refused, f"no more {method} of this user", 10)
            answer = await ask_as(r, OTHER_READER, [READ], method, params)
            assert "result" in answer or answer["error"]["code"] == -errno.ETIMEDOUT, f"{method}: {answer}"


@alone
@deadline(60)
async def test_memory_of_one_user(env):
    """One user that may read sends requests that have much more in them than their parameters: memory has its bound."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, rpc={"mode": "0666", "operator_group": "staff", "read_group": "games"})
    open_to_others(r)
    request, before, most = call("ping", **LONG_PING)[:-1] + ', "more": [' + "{}," * 300000 + "{}]}", rss(r), 0
    async with hog(r, *[request] * 16), clients(r) as c:
        began = env.now()
        while env.now() < began + 6:
            await asyncio.sleep(0.1)
            most = max(most, rss(r) - before)
            assert most < 200 << 20, f"{most >> 20} MiB more after {env.now() - began:.1f} s"
            assert (await c.call("version"))["pid"] == r.proc.pid
    env.result(f"{most >> 20} MiB more")


@deadline(40)
async def test_dead_in_every_way(env):
    """Clients that end in the middle of a request, of a response, of a long call; bytes one by one; many requests at once."""
    env.need_millrace()
    r, names, crowd = await crowded_router(env, 1000, routes=500)
    async with clients(r) as c:
        whole, _, _ = await pages(c, "peer_get", "peer")
        for _ in range(20):
            for raw in (b'{"jsonrpc": "2.0", "id": 1, "meth', b'{"jsonrpc":"2.0","id":1,"method":"peer_get"}\n' * 30,
                        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"nid":"10.64.0.77@tcp","timeout_ms":60000}}\n',
                        b'{"jsonrpc":"2.0","id":1,"method":"counters_capture","params":{"seconds":5}}\n',
                        b'{"jsonrpc":"2.0","id":1,"method":"peer_top","params":{"by":"bytes","interval_ms":3000}}\n',
                        b'{"jsonrpc":"2.0","id":1,"method":"events_subscribe"}\n', b"\xff\xfe\0", b"[" * 5000):
                s = socket.socket(socket.AF_UNIX)
                s.connect(r.sock)
                s.sendall(raw)
                s.close()
        assert (await c.call("version"))["pid"] == r.proc.pid
        # A request in single bytes
        one = await Client(r).open()
        text = b'{"jsonrpc":"2.0","id":"slow","method":"version"}'
        for i in range(len(text)):
            one.writer.write(text[i:i + 1])
            await one.writer.drain()
        await env.until(lambda: one.strays, "the answer to a request that came in single bytes", 5)
        assert one.strays[0]["id"] == "slow" and one.strays[0]["result"], one.strays
        one.close()
        # Many at once: each has its answer, however many are read at a time
        numbers = [c.post("peer_get", {"nid": nid}) for nid in crowd.nids[:300]]
        for n, nid in zip(numbers, crowd.nids):
            a = await c.answer(n)
            assert a.result["peer"][0]["primary nid"] == nid, (nid, a)
        again, _, _ = await pages(c, "peer_get", "peer")
        assert {p["primary nid"] for p in whole} <= {p["primary nid"] for p in again}     # who was pinged is known too


@deadline(40)
async def test_batches(env):
    """A batch is answered whole, its notifications not at all, whatever is wrong in it."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    async with clients(r):
        batch = [{"jsonrpc": "2.0", "id": "a", "method": "peer_get"}, {"jsonrpc": "2.0", "method": "stats_get"}, 7,
                 {"jsonrpc": "2.0", "id": "b", "method": "nonsense"}, {"jsonrpc": "2.0", "id": "c", "method": "version"},
                 {"jsonrpc": "2.0", "id": "d", "method": "counters_capture", "params": {"interval_ms": 200}}]
        reader, writer = await asyncio.open_unix_connection(r.sock, limit=1 << 24)
        writer.write(json.dumps(batch).encode())
        answers = json.loads(await asyncio.wait_for(reader.readline(), 10))
        assert len(answers) == 5, answers
        by_id = {a["id"]: a for a in answers}
        assert by_id["a"]["result"] and by_id["b"]["error"]["code"] == -32601 and by_id["c"]["result"] and by_id["d"]["result"]
        assert by_id[None]["error"]["code"] == -32600
        writer.close()


# A text that takes long to read: keys of a mapping are compared with each other. It costs as much as one may.
COSTLY = "a: [" + 2 * ("{" + "".join(f"k{i}: ," for i in range(4096)) + "}, ") + "]"
COSTLY_CALL = {"jsonrpc": "2.0", "id": 1, "method": "config_diff", "params": {"text": COSTLY}}


@deadline(60)
async def test_costly_requests(env):
    """Two users with 24 clients each ask for what takes long, again and again, some in batches: others are answered soon."""
    env.need_millrace()
    r = await env.router("r", *ROUTER, rpc={"mode": "0666", "operator_group": "staff", "read_group": "games"})
    open_to_others(r)
    request = json.dumps(COSTLY_CALL)
    batch = "[" + ",".join([request] * 4) + "]"
    crowd = [await asyncio.create_subprocess_exec(
        "setpriv", f"--reuid={uid}", f"--regid={READ}", "--clear-groups", "/usr/bin/python3", "-c", COSTLY_CLIENTS, r.sock,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for uid in (READER, OTHER_READER)]
    try:
        for p, text in zip(crowd, (request, batch)):
            p.stdin.write(text.encode() + b"\n")
            await p.stdin.drain()
            assert await asyncio.wait_for(p.stdout.readline(), 20) == b"there\n"
        await asyncio.sleep(2)
        worst = 0.0
        async with clients(r) as c:
            for _ in range(10):
                begun = env.now()
                await c.call("version")
                worst = max(worst, env.now() - begun)
                await asyncio.sleep(0.1)
        p = await asyncio.create_subprocess_exec("setpriv", f"--reuid={READER + 1}", f"--regid={READ}", "--clear-groups", "/usr/bin/python3",
                                                 "-c", ASK_TEN, r.sock, call("version"), stdout=subprocess.PIPE)
        crowd.append(p)
        took = float(await asyncio.wait_for(p.stdout.readline(), 40 * env.slower))
        limit = await allowed(env, IN_TIME)
        assert worst <= limit, f"an administrator waited {worst:.2f} s"
        assert took <= 3 * limit, f"ten answers to a reader took {took:.2f} s"
        env.result(f"an administrator waited {worst:.2f} s at most, another reader {took:.2f} s for ten answers")
    finally:
        for p in crowd:
            with contextlib.suppress(ProcessLookupError):
                p.kill()
            await p.wait()


ASK_TEN = """
import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f, began = s.makefile("rw"), time.monotonic()
for _ in range(10):
    print(sys.argv[2], file=f, flush=True)
    assert "result" in f.readline()
print(time.monotonic() - began)
"""
COSTLY_CLIENTS = """
import selectors, socket, sys
text = sys.stdin.buffer.readline()
s = selectors.DefaultSelector()
for _ in range(24):
    c = socket.socket(socket.AF_UNIX)
    c.connect(sys.argv[1])
    c.setblocking(False)
    s.register(c, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])
print("there", flush=True)
while True:
    for key, events in s.select():
        try:
            if events & selectors.EVENT_READ and not key.fileobj.recv(1 << 20):
                s.unregister(key.fileobj)
                continue
            if events & selectors.EVENT_WRITE:
                key.data[0] = (key.data[0] + key.fileobj.send(text[key.data[0]:])) % len(text)
        except BlockingIOError:
            pass
"""


@deadline(40)
async def test_many_pings(env):
    """One client has 16 pings under way at most."""
    env.need_millrace()
    r = await env.router("r", *ROUTER)
    async with clients(r):
        batch = [{"jsonrpc": "2.0", "id": i, "method": "ping", "params": {"nid": f"10.0.0.{200 + i % 8}@tcp", "timeout_ms": 8000}}
                 for i in range(20)]
        reader, writer = await asyncio.open_unix_connection(r.sock, limit=1 << 24)
        writer.write(json.dumps(batch).encode())
        answers = json.loads(await asyncio.wait_for(reader.readline(), 20))
        writer.close()
        busy = [a for a in answers if a["error"]["data"]["name"] == "EBUSY"]
        assert len(busy) == 4 and len(answers) == 20, answers
