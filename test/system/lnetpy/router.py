# SPDX-License-Identifier: BSD-3-Clause
"""Running the router: the daemon as a process with its configuration and RPC, or the reference."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from . import nid as N
from .judge import RouterSpec
from .node import Node
from .socklnd import K217

READY_TIMEOUT = 45.0
NOBODY = 65534
BAD_OUTPUT = ("AddressSanitizer", "ThreadSanitizer", "runtime error:", "LeakSanitizer", "Assertion", "panic", "UndefinedBehavior")


def find_program(build, name):
    """The program as meson places it; a build folder may hold other builds in sub-folders, so no search."""
    folder = "test/perf/peers" if name == "millrace-peers" else f"app/{name}"
    path = os.path.join(build, folder, name)
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"no executable {path}")
    return path


STARTS = "starts"       # a file in the test's folder: s that starts of routers took; when the one under way began, or 0


def starts_took(folder):
    """s that a test waited for routers on cards to be ready. To find a machine's cards takes emulated cores a third of a minute when
    nothing else runs, and each start has a limit of its own: this is no part of a test's time."""
    try:
        with open(os.path.join(folder, STARTS), encoding="ascii") as f:
            took, begun = map(float, f.read().split())
    except (OSError, ValueError):       # none, or one that is being written
        return 0
    return took + (time.monotonic() - begun if begun else 0)


def _note_starts(took, begun):
    with open(os.path.join(tempfile.gettempdir(), STARTS), "w", encoding="ascii") as f:
        f.write(f"{took} {begun}")


class RpcError(Exception):
    """An error the router answered with; `error` as it came."""

    def __init__(self, text, error=None):
        super().__init__(text)
        self.error = error or {}

    @property
    def code(self):
        return self.error.get("code")

    @property
    def data(self):
        return self.error.get("data") or {}


class Millraced:
    """One millraced in a namespace. Its stderr is kept and shown when the test fails. absent: NIs that are configured, and for
    which the host has nothing. tamper: rules for its ports. state: it has a state directory, which it keeps when it is started again."""

    def __init__(self, env, name, ns, nids, routes=(), conns_per_peer=1, timeout=50, routing=True,
                 check_interval=60, ping_timeout=50, hello_map=(), buffers=None, reactors=2,
                 buffer_wait=None, memory=None, extra="", unprivileged=False, rpc=None, ports=(), args=(),
                 idle="adaptive", absent=(), tunables=None, state=False, hugepages=False, tamper=None):
        self.env, self.name, self.ns, self.nids = env, name, ns, nids
        self.dir = tempfile.TemporaryDirectory(prefix=f"millrace-{name}-")
        self.sock = os.path.join(self.dir.name, "rpc.sock")
        self.conf = os.path.join(self.dir.name, "millrace.yaml")
        self.log_path = os.path.join(self.dir.name, "stderr")
        self.spec = RouterSpec(nids, {0x1a if routing else 0x1e}, "millrace", name=name)
        self.proc, self.log_file, self.ids, self.stopped, self.lives = None, None, 0, False, 0
        self.unprivileged, self.args, self.tamper = unprivileged, list(args), tamper or env.tamper
        self.state = os.path.join(self.dir.name, "state") if state else None
        self.settings = dict(routes=routes, cpp=conns_per_peer, timeout=timeout, routing=routing,
                             interval=check_interval, ping=ping_timeout, hello_map=hello_map, buffers=buffers,
                             reactors=reactors, buffer_wait=buffer_wait, memory=memory, extra=extra,
                             rpc=rpc, ports=ports, idle=idle, absent=list(absent), tunables=tunables, hugepages=hugepages)

    def yaml(self, **other):
        """Its configuration, or one with `other` settings."""
        s, out, nets = {**self.settings, **other}, ["net:"], {}
        for n in [*self.nids, *s["absent"]]:
            nets.setdefault(N.net_str(n.net), []).append(n)
        for net, nids in nets.items():
            out += [f"  - net type: {net}", "    local NI(s):"]
            for n in nids:
                out += [f"      - nid: {n}"]
                if s["tunables"]:
                    out.append("        tunables: {" + ", ".join(f"{k}: {v}" for k, v in s["tunables"].items()) + "}")
                out += ["        lnd tunables:",
                        f"          conns_per_peer: {s['cpp']}", f"          timeout: {s['timeout']}"]
        if s["routes"]:
            out.append("route:")
            out += [f"  - {{net: {r['net']}, gateway: '{r['gateway']}', hop: {r.get('hop', 1)}, "
                    f"priority: {r.get('priority', 0)}}}" for r in s["routes"]]
        out.append(f"routing: {{enable: {int(s['routing'])}}}")
        b = {"tiny": 512, "small": 512, "large": 64, **(s["buffers"] or {})}
        out.append("buffers: {" + ", ".join(f"{k}: {v}" for k, v in b.items()) + "}")
        out.append(f"global: {{alive_router_check_interval: {s['interval']}, router_ping_timeout: {s['ping']}}}")
        out += ["millrace:", "  cores: auto", f"  reactors: {s['reactors']}", f"  idle: {s['idle']}",
                f"  hugepages: {'true' if s['hugepages'] else 'false'}", f"  memory: {s['memory'] or (512 if s['ports'] else 256)}", "  rpc: {" + ", ".join(f"{k}: {v}" for k, v in {"socket": self.sock, **(s["rpc"] or {})}.items()) + "}"]
        if s["ports"]:
            out.append("  ports:")
            out += [f"    - {json.dumps(p)}" for p in s["ports"]]
        if s["hello_map"]:
            out.append("  hello_map: [" + ", ".join(f"{{address: '{a}', nid: '{n}'}}" for a, n in s["hello_map"]) + "]")
        if s["buffer_wait"]:
            out.append(f"  buffer_wait: {s['buffer_wait']}")
        return "\n".join(out) + "\n" + s["extra"]

    def command(self):
        """The program itself, or run by nobody with the one capability that it needs: for ports below 1024, or packet sockets."""
        binary = find_program(self.env.build, "millraced")
        if not self.unprivileged:
            return [binary, "-c", self.conf, *self.args]
        mine = os.path.join(self.dir.name, "millraced")  # the build folder may be closed to others
        if not os.path.exists(mine):
            shutil.copy(binary, mine)
        os.chown(self.dir.name, NOBODY, NOBODY)
        above = os.path.dirname(self.dir.name)  # the runner's own folder for this test
        if not os.stat(above).st_mode & 0o001:
            os.chmod(above, 0o711)
        caps = "-all,+net_raw" if self.settings["ports"] else "-all,+net_bind_service"
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--bounding-set={caps}",
                f"--inh-caps={caps}", f"--ambient-caps={caps}", "--no-new-privs", "--pdeathsig=KILL",
                mine, "-c", self.conf, *self.args]

    async def start(self):
        if not self.env.cards:
            return await self._start()
        before, begun = starts_took(tempfile.gettempdir()), time.monotonic()
        _note_starts(before, begun)
        await self._start()
        _note_starts(before + time.monotonic() - begun, 0)
        return self

    async def _start(self):
        command, text = self.command(), self.yaml()
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(text)
        self.log_file = open(self.log_path, "ab")
        env = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "abort_on_error=0:exitcode=99")}
        env.pop("STATE_DIRECTORY", None)
        if self.state:
            os.makedirs(self.state, exist_ok=True)
            env["STATE_DIRECTORY"] = self.state
        self.lives += 1
        self.proc = self.ns.popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file,
                                  stderr=self.log_file, env=env)
        self.stopped = False
        limit = READY_TIMEOUT * (2 if self.env.cards else 1)
        end = time.monotonic() + limit
        while True:
            if self.proc.poll() is not None:
                raise RuntimeError(f"millraced ended with {self.proc.returncode}: {self.tail()}")
            try:
                await self.rpc("version")
                if self.settings["ports"] and self.tamper:
                    await self.rpc("tamper_set", **self.tamper)
                return self
            except (OSError, EOFError):
                pass
            if time.monotonic() > end:
                raise RuntimeError(f"millraced not ready in {limit:.0f} s: {self.tail()}")
            await asyncio.sleep(0.05)

    async def rpc(self, method, timeout=30.0, **params):
        self.ids += 1
        request = {"jsonrpc": "2.0", "id": self.ids, "method": method}
        if params:
            request["params"] = params
        reader, writer = await asyncio.open_unix_connection(self.sock, limit=1 << 24)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            raw, end = b"", time.monotonic() + timeout
            while True:
                piece = await asyncio.wait_for(reader.read(65536), max(0.1, end - time.monotonic()))
                if not piece:
                    raise EOFError("RPC connection closed")
                raw += piece
                try:
                    answer = json.loads(raw)
                    break
                except ValueError:
                    continue
        finally:
            writer.close()
        if answer.get("id") != self.ids:
            raise RpcError(f"answer to {answer.get('id')}, asked {self.ids}")
        if "error" in answer:
            raise RpcError(f"{method}: {answer['error']}", answer["error"])
        return answer["result"]

    async def drops(self):
        """name -> count, over all reasons."""
        result = await self.rpc("drops_get")
        return {d["name"]: d["count"] for d in result["drops"]}

    async def peers(self):
        """nid -> its row, over all pages."""
        out, more = {}, {}
        while True:
            page = await self.rpc("peer_get", **more)
            out.update((ni["nid"], ni) for p in page["peer"] for ni in p["peer ni"])
            if "cursor" not in page:
                return out
            more = {"cursor": page["cursor"]}

    async def stats(self):
        result = await self.rpc("stats_get")
        return result.get("statistics", result)

    def crash(self):
        """As if the machine lost its power, but the host kernel below still closes its sockets."""
        self.proc.kill()
        self.proc.wait()

    async def restart(self):
        self.spec.restarted()
        await self.start()

    async def ready(self, timeout=READY_TIMEOUT):
        """Until the log says that this life is ready."""
        async def said():
            return self.text().count("event=ready ") >= self.lives
        await self.env.until_async(said, f"{self.name} ready", timeout, 0.01)

    async def stop(self):
        """SIGTERM and a clean end. A bad exit code or a sanitizer report is a problem of the test."""
        if self.stopped or self.proc is None:
            return
        self.stopped = True
        limit = 15 * max(self.env.slower, self.env.stretch(), 3 if self.env.cards else 1)
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            end = time.monotonic() + limit
            while self.proc.poll() is None and time.monotonic() < end:
                await asyncio.sleep(0.02)
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
            self.env.problem(f"{self.name}: did not end within {limit:.0f} s of SIGTERM")
        elif self.proc.returncode not in (0, -signal.SIGKILL):
            self.env.problem(f"{self.name}: ended with {self.proc.returncode}: {self.tail()}")
        self._scan()

    def _scan(self):
        text = self.text()
        for bad in BAD_OUTPUT:
            if bad in text:
                line = next(ln for ln in text.splitlines() if bad in ln)
                self.env.problem(f"{self.name}: {line.strip()[:300]}")
                return

    def text(self):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def tail(self, n=5):
        if self.proc and self.proc.poll() is not None:
            return f"(it has ended with {self.proc.returncode}) {self._tail(n)}"
        return self._tail(n)

    def _tail(self, n):
        return " | ".join(self.text().strip().splitlines()[-n:])[-900:]

    def dropped(self):
        """The newest total of each drop reason in its log."""
        return dict(re.findall(r"event=drop drop=(\w+) count=\d+ total=(\d+)", self.text()))

    def report(self, n=40):
        """The first lines of a sanitizer's report."""
        lines = self.text().splitlines()
        first = next((i for i, ln in enumerate(lines) if "Sanitizer" in ln), len(lines))
        return lines[first:first + n]

    def kill(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        if self.log_file:
            self.log_file.close()
            self.log_file = None
        self.dir.cleanup()


class Reference:
    """A kernel-like router persona in place of the program: tries tests, personas and judge."""

    def __init__(self, env, name, ns, nids, routes=(), routing=True, conns_per_peer=1, kind="kernel",
                 **_):
        self.env, self.name, self.nids = env, name, nids
        self.spec = RouterSpec(nids, {0x1a if routing else 0x1e}, kind, name=name)
        self.node = Node(env, name, ns, nids, K217, routing=routing, cpp=conns_per_peer,
                         zc_min=1 << 30 if kind == "millrace" else 16384)
        self.node.judge.check = lambda conn, kind, raw, payload=b"": _accept_all()
        env.ledger.nids -= set(nids)
        self.node.in_ledger = False
        self.routes = routes

    async def start(self):
        await self.node.start()
        for r in self.routes:
            self.node.add_route(N.parse_net(r["net"]), N.parse(r["gateway"]), check=False)
        return self

    async def stop(self):
        self.node.stop()

    def kill(self):
        pass


def _accept_all():
    from .judge import Verdict
    return Verdict([])
