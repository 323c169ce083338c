# SPDX-License-Identifier: BSD-3-Clause
"""A management program as tests play it: clients of the RPC socket that stay connected, take notifications, send what no
good client sends, run under other users; and what is asked of answers (schemas, pages, nothing changed)."""

import asyncio
import collections
import contextlib
import itertools
import json
import math
import os
import subprocess
import time

from .router import RpcError

LIMIT = 1 << 26             # bytes of one line that a client takes


class Answer:
    """A response, whether result or error, and how long it took to the last byte."""

    def __init__(self, raw, took):
        self.raw, self.took = raw, took
        self.result, self.error = raw.get("result"), raw.get("error")

    @property
    def code(self):
        return self.error["code"] if self.error else None

    def __repr__(self):
        return f"Answer({json.dumps(self.raw)[:300]}, {1000 * self.took:.1f} ms)"


class Client:
    """One connection to a router's socket. `events` are the notifications, in order."""

    def __init__(self, router):
        self.router, self.env = router, router.env
        self.ids, self.pending, self.sent_at = itertools.count(1), {}, {}
        self.events, self.strays = [], []
        self.stream = self.writer = self.task = None
        self.ended = False

    async def open(self, reading=True):
        """Not `reading`: takes nothing from the socket until read()."""
        self.stream, self.writer = await asyncio.open_unix_connection(self.router.sock, limit=LIMIT)
        if reading:
            self.read()
        else:
            self.writer.transport.pause_reading()
        return self

    def read(self):
        if self.task is None:
            with contextlib.suppress(RuntimeError):
                self.writer.transport.resume_reading()
            self.task = self.env.loop().create_task(self._read())

    async def _read(self):
        with contextlib.suppress(ConnectionError):
            while line := await self.stream.readline():
                now = time.monotonic()
                for message in self._each(json.loads(line)):
                    self._take(message, now)
        self.ended = True
        for fut in self.pending.values():
            if not fut.done():
                fut.set_exception(EOFError("RPC connection closed"))
        self.env.kick()

    @staticmethod
    def _each(value):
        return value if isinstance(value, list) else [value]

    def _take(self, message, now):
        if "method" in message:
            self.events.append(message["params"] if message["method"] == "event" else message)
            self.env.kick()
            return
        number = message.get("id")
        fut = self.pending.get(number) if isinstance(number, int) else None
        if fut is None or fut.done():
            self.strays.append(message)
        else:
            fut.set_result(Answer(message, now - self.sent_at.pop(number)))

    def post(self, method, params=None):
        """Sends a request; its number."""
        number = next(self.ids)
        request = {"jsonrpc": "2.0", "id": number, "method": method}
        if params is not None:
            request["params"] = params
        self.pending[number] = self.env.loop().create_future()
        self.sent_at[number] = time.monotonic()
        self.writer.write(json.dumps(request).encode() + b"\n")
        return number

    async def answer(self, number, timeout=15.0):
        """The Answer to a posted request, whatever it is."""
        try:
            return await asyncio.wait_for(self.pending[number], timeout)
        except asyncio.TimeoutError:
            raise AssertionError(f"no answer to request {number} within {timeout:.0f} s") from None
        finally:
            del self.pending[number]

    async def ask(self, method, params=None, timeout=15.0):
        try:
            return await self.answer(self.post(method, params), timeout)
        except AssertionError as e:
            raise AssertionError(f"{method}: {e}") from None

    async def call(self, method, timeout=15.0, **params):
        """The result; RpcError otherwise."""
        a = await self.ask(method, params or None, timeout)
        if a.error:
            raise RpcError(f"{method}: {a.error}", a.error)
        return a.result

    async def event(self, pred, what, timeout=10.0, after=0):
        """The first notification from index `after` on that satisfies pred."""
        def seen():
            return next((e for e in self.events[after:] if pred(e)), None)
        return await self.env.until(seen, what, timeout)

    def close(self):
        if self.task:
            self.task.cancel()
        if self.writer:
            self.writer.close()


@contextlib.asynccontextmanager
async def clients(router, count=1, reading=True):
    """Some clients, gone afterwards; one of them if count is 1."""
    them = []
    try:
        for _ in range(count):
            them.append(await Client(router).open(reading))
        yield them[0] if count == 1 else them
    finally:
        for c in them:
            c.close()


# ---------------------------------------------------------------- other users

ASK = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(sys.argv[2].encode() + b"\\n")
sys.stdout.write(s.makefile().readline())
"""


def open_to_others(router):
    """The folders on the way to the socket let others pass."""
    for path in (router.dir.name, os.path.dirname(router.dir.name)):
        if not os.stat(path).st_mode & 0o001:
            os.chmod(path, 0o711)


async def ask_as(router, uid, groups, method, params=None):
    """One request of a user `uid`, whose groups are `groups` (ids, the first its own). The response, or None: the router
    said nothing; OSError when it may not even connect."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params is not None else {})}
    argv = ["setpriv", f"--reuid={uid}", f"--regid={groups[0]}", f"--groups={','.join(map(str, groups))}",
            "/usr/bin/python3", "-c", ASK, router.sock, json.dumps(request)]
    p = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = await asyncio.wait_for(p.communicate(), 20 * router.env.slower)
    if p.returncode:
        raise OSError(err.decode().strip().splitlines()[-1] if err else f"exit status {p.returncode}")
    return json.loads(out) if out.strip() else None


# ---------------------------------------------------------------- schemas

class Schemas:
    """What rpc.discover says of methods, and whether results are so."""

    def __init__(self, document):
        import jsonschema       # Debian's python3-jsonschema
        self.jsonschema, self.document = jsonschema, document
        self.methods = {m["name"]: m for m in document["methods"]}

    @classmethod
    async def of(cls, client):
        return cls(await client.call("rpc.discover"))

    def faults(self, method, result, most=4):
        """In words, what of a result is not as its schema says."""
        schema = self.resolve(self.methods[method]["result"])["schema"]
        if not schema:
            return [f"{method}: nothing is said of its result"]
        whole = {"components": self.document.get("components", {}), "allOf": [schema]}
        found = self.jsonschema.Draft7Validator(whole).iter_errors(result)
        return [f"{method}: {'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in itertools.islice(found, most)]

    def resolve(self, value):
        """Follows a $ref inside the document."""
        while isinstance(value, dict) and "$ref" in value:
            at = self.document
            for word in value["$ref"].removeprefix("#/").split("/"):
                at = at[word.replace("~1", "/").replace("~0", "~")]
            value = at
        return value

    def params(self, method):
        """name -> (schema, required)"""
        rows = map(self.resolve, self.methods[method].get("params", []))
        return {p["name"]: (self.resolve(p["schema"]), p.get("required", False)) for p in rows}

    def errors(self, method):
        """The application errors a method says it can end with: errno (positive) -> the row."""
        rows = map(self.resolve, self.methods[method].get("errors", []))
        return {-e["code"]: e for e in rows if -4095 <= e["code"] < 0}


# ---------------------------------------------------------------- pages

async def pages(client, method, key, **params):
    """All rows of a listing and how long each page took, the least of some tries where others held up the machine."""
    rows, took, firsts, more, cursors = [], [], [], {}, set()
    while True:
        a = await client.ask(method, {**params, **more} or None, 30)
        assert a.result is not None, a
        firsts.append(a.took)
        took.append(a.took)
        rows += a.result[key]
        cursor = a.result.get("cursor")
        for _ in range(4):      # a page can be asked for again; slow is only what is slow each time
            if took[-1] < 0.02:
                break
            took[-1] = min(took[-1], (await client.ask(method, {**params, **more} or None, 30)).took)
        if cursor is None:
            return rows, took, firsts
        assert cursor not in cursors, f"{method}: cursor {cursor} twice"
        cursors.add(cursor)
        more = {"cursor": cursor}


def twice(values):
    """What occurs more than once."""
    return [v for v, n in collections.Counter(values).items() if n > 1]


# ---------------------------------------------------------------- reactors

def stalls(answer):
    """Callbacks that held a reactor of `reactors_get` for too long, those aside during which the machine took its core."""
    return {row["reactor"]: row["stalls"] for row in answer["reactors"]}


# That a thread may be held up by what it cannot see: its machine is a guest that loses cores to others, and interrupts of the
# traffic beside take time of whoever runs. A callback that is too long itself is so each time and shows as hundreds.
UNSEEN = 5


def more_stalls(before, after):
    """reactor -> callbacks that were too long in between."""
    return {r: after[r] - before[r] for r in after}


def held_up(before, after, alone=None):
    """Whether more callbacks were too long than the machine causes. `alone` (more_stalls) is how many it did cause, in the same
    run under the same traffic, while reactors were as long in callbacks without what is tried; both are chance, three sigma."""
    alone = alone or {}
    return any(n > alone.get(r, 0) + UNSEEN + 3 * math.sqrt(alone.get(r, 0)) for r, n in more_stalls(before, after).items())


def longest_us(answer):
    longest = max(row["longest_us"] for row in answer["reactors"])
    assert longest > 0, "the reactors measure nothing"
    return longest


def stolen():
    """Ticks that the machine, a guest, has lost to others."""
    with open("/proc/stat", encoding="ascii") as f:
        return int(f.readline().split()[8])


async def never_held_up(env, client, work, times=3):
    """Does work() and asserts that it held up no reactor. Where it seems so it is done again, as what is too long itself is so
    each time; times in all, and as often again while cores are lost to others, which makes some too long. The longest callback
    is that of the last time."""
    counted = 0
    for _ in range(2 * times):
        lost = stolen()
        await client.call("stats_reset")
        before = stalls(await client.call("reactors_get"))
        await work()
        now = await client.call("reactors_get")
        env.result(f"longest callback on a reactor {longest_us(now):.0f} us, {list(more_stalls(before, stalls(now)).values())} "
                   "too long")
        if env.sanitized or not held_up(before, stalls(now)):
            return
        counted += stolen() == lost
        if counted == times:
            break
    raise AssertionError(f"reactors held up: {'; '.join(env.results)}")


# ---------------------------------------------------------------- what a change must not touch

async def standing(client):
    """What peers have that stays as it is when a change does not concern them: connections, drops, and who they are."""
    rows, _, _ = await pages(client, "peer_get", "peer")
    return {ni["nid"]: {"connections": ni["millrace"]["connections"], "dropped": ni.get("dropped_stats"),
                        "reactor": ni["millrace"]["reactor"]}
            for p in rows for ni in p["peer ni"]}


def moved(before, after, only=None):
    """In words, what is no longer so."""
    return [f"{nid}: {row} became {after.get(nid)}" for nid, row in before.items()
            if (only is None or nid in only) and after.get(nid) != row]


async def document(client, **kw):
    """The running configuration as an object."""
    return (await client.call("config_get", form="running", **{"as": "json", **kw}))["config"]


async def text(client):
    return (await client.call("config_get", form="running", **{"as": "yaml"}))["yaml"]


async def until_routing(env, client, enable):
    """Starting and stopping take the time in which all neighbours have looked, check interval and ping timeout: 2 and 3 are
    states on the way (docs/protocol/lnet-core.md §3.9)."""
    async def so():
        return (await client.call("routing_get"))["enable"] == enable
    await env.until_async(so, f"routing {enable}", 15)


def far_routes(count, gateways, first=1000, hop=2, priority=0):
    """`count` routes to nets nobody has, each through one of the gateways in turn."""
    return [{"net": f"tcp{first + i}", "gateway": str(g), "hop": hop, "priority": priority}
            for i, g in zip(range(count), itertools.cycle(gateways))]


def as_yaml(routes):
    return "route:\n" + "".join(f"  - {{net: {r['net']}, gateway: {r['gateway']}, hop: {r['hop']}, priority: {r['priority']}}}\n"
                                for r in routes)


def route_set(rows):
    return {(r["net"], r["gateway"]): (r["hop"], r["priority"]) for r in rows}




async def listens(env, host, nid):
    """Whether an NI's acceptor can be reached from a host."""
    sock = env.fabric.host(host).socket()
    try:
        sock.settimeout(2)
        await asyncio.to_thread(sock.connect, (nid.ip, 988))
        return True
    except OSError:
        return False
    finally:
        sock.close()
