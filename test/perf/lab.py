# SPDX-License-Identifier: BSD-3-Clause
"""A small LNet for the demonstration and the measurements: a client, a router and a server.

    client 10.10.1.2@tcp --- 10.10.1.1@tcp router 10.10.2.1@tcp1 --- 10.10.2.2@tcp1 server

Each is a process in a network namespace without a name. Processes and namespaces go away with this process,
however it ends; Lab.close() also removes the folder with the socket.
"""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from lnetpy import netns  # noqa: E402

CLIENT, ROUTER, SERVER = "10.10.1.2@tcp", "10.10.1.1@tcp", "10.10.2.2@tcp1"
ROUTER_FAR = "10.10.2.1@tcp1"
START_DEADLINE = 20  # seconds for a process to say that it is ready
STOP_DEADLINE = 20   # seconds for it to end after a signal

CONFIG = """\
net:
  - net type: tcp
    local NI(s):
      - nid: {near}
        lnd tunables: {{conns_per_peer: {conns}}}
  - net type: tcp1
    local NI(s):
      - nid: {far}
        lnd tunables: {{conns_per_peer: {conns}}}
routing:
  enable: 1
millrace:
  cores: auto
  reactors: {reactors}
  idle: {idle}
  hugepages: false
  rpc:
    socket: {socket}
"""


class LabError(Exception):
    """Something did not come up or broke; the text is for the user."""


def cannot(why):
    print(f"{os.path.basename(sys.argv[0])}: {why}", file=sys.stderr)
    sys.exit(2)


def need_root():
    """Make sure that we may create namespaces: as root, or again through sudo. Returns only if so."""
    if os.geteuid() != 0:
        if shutil.which("sudo") and (sys.stdin.isatty() or subprocess.run(
                ["sudo", "-n", "true"], stderr=subprocess.DEVNULL).returncode == 0):
            os.execvp("sudo", ["sudo", "--", sys.executable, *sys.argv])
        cannot("this makes network namespaces, which takes root. Run it as root, or through sudo.")
    why = netns.available()
    if why:
        cannot(f"{why}. In a container it takes CAP_SYS_ADMIN and CAP_NET_ADMIN.")


def signals_to_exceptions():
    """Ctrl-C, SIGTERM and SIGHUP all unwind through `finally`."""
    def stop(number, _frame):
        for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(n, signal.SIG_IGN)  # once is enough: let the cleaning up finish
        raise KeyboardInterrupt(signal.Signals(number).name)
    for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(n, stop)


def wait_link(ns, ifname):
    """Until the kernel calls the link up: for some veth pairs it takes up to a second to notice the carrier."""
    deadline = time.monotonic() + START_DEADLINE
    while True:
        show = ns.popen(["ip", "-o", "link", "show", ifname], stdout=subprocess.PIPE, text=True)
        if " state UP " in show.communicate()[0]:
            return
        if time.monotonic() > deadline:
            raise LabError(f"the link {ifname} does not come up")
        time.sleep(0.02)


class Here:
    """In place of a namespace: the one that we are in."""

    @staticmethod
    def popen(argv, **kw):
        return subprocess.Popen(argv, **kw)


class Talk:
    """A program that is asked line by line and answers on its standard output; for the rest see Process."""

    def __init__(self, name, argv):
        self.name = name
        self.popen = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      start_new_session=True)

    def line(self):
        """Its next line. It is expected at once, and comes within the deadline or not at all."""
        ready, _, _ = select.select([self.popen.stdout], [], [], START_DEADLINE)
        line = self.popen.stdout.readline() if ready else ""
        if not line:
            self.popen.kill()
            raise LabError(f"{self.name} {'ended' if ready else 'says nothing'}: {self.popen.stderr.read().strip()[-500:]}")
        return line.rstrip("\n")

    def ask(self):
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        return self.line()

    def stop(self):
        """Ends it, by the end of its input."""
        try:
            self.popen.communicate(timeout=STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.communicate()


class Process:
    """A program in a namespace. What it says on stderr is kept and can be waited for."""

    def __init__(self, ns, name, argv, environment=None):
        self.name, self.lines = name, []
        self._changed = threading.Condition()
        self._eof = False
        self.popen = ns.popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True, env={**os.environ, **(environment or {})})
        self._out = []
        self._threads = [threading.Thread(target=self._read_err, daemon=True),
                         threading.Thread(target=self._read_out, daemon=True)]
        for t in self._threads:
            t.start()

    def _read_err(self):
        for line in self.popen.stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._eof = True
            self._changed.notify_all()

    def _read_out(self):
        self._out.append(self.popen.stdout.read())

    def said(self):
        return "; ".join(self.lines[-5:]) or "it said nothing"

    def wait_line(self, start):
        deadline = time.monotonic() + START_DEADLINE
        with self._changed:
            while not any(line.startswith(start) for line in self.lines):
                left = deadline - time.monotonic()
                if self._eof or left <= 0:
                    raise LabError(f"{self.name} {'ended' if self._eof else 'is not ready'}: {self.said()}")
                self._changed.wait(left)

    def running(self):
        return self.popen.poll() is None

    def wait(self, timeout):
        """Its exit status and output; kills it when it takes too long."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise LabError(f"{self.name} did not end within {timeout} s: {self.said()}") from None
        for t in self._threads:
            t.join(STOP_DEADLINE)
        return status, "".join(self._out)

    def stop(self):
        if self.running():
            self.popen.terminate()
        return self.wait(STOP_DEADLINE)

    def result(self, timeout):
        """The JSON object that millrace-perf prints."""
        return self._parse(*self.wait(timeout))

    def interrupt_result(self, timeout):
        """The same, of what it has done so far."""
        if self.running():
            self.popen.send_signal(signal.SIGINT)
        return self.result(timeout)

    def stop_result(self):
        return self._parse(*self.stop())

    def _parse(self, status, out):
        try:
            value = json.loads(out)
        except ValueError:
            raise LabError(f"{self.name} ended with status {status} and no result: {self.said()}") from None
        value["exit_status"] = status
        return value

    def cpu_seconds(self):
        with open(f"/proc/{self.popen.pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Rpc:
    """JSON-RPC 2.0 over a Unix socket, one object per line."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(START_DEADLINE)
        self.socket.connect(path)
        self.file = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.id = 0

    def call(self, method, **params):
        self.id += 1
        request = {"jsonrpc": "2.0", "id": self.id, "method": method}
        if params:
            request["params"] = params
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n")
            line = self.file.readline()
        except OSError as e:
            raise LabError(f"the router's control socket broke during {method}: {e}") from None
        if not line:
            raise LabError(f"the router closed its control socket during {method}")
        answer = json.loads(line)
        if answer.get("id") != self.id or "result" not in answer:
            raise LabError(f"{method}: {answer.get('error', answer)}")
        return answer["result"]

    def close(self):
        self.file.close()
        self.socket.close()


class Router:
    """One millraced of a lab, with its control socket."""

    def __init__(self, process, path):
        self.process, self.rpc = process, None
        deadline = time.monotonic() + START_DEADLINE
        while self.rpc is None:
            try:
                self.rpc = Rpc(path)
            except OSError:
                if not process.running() or time.monotonic() > deadline:
                    raise LabError(f"the router did not start: {process.said()}") from None
                time.sleep(0.02)
        self.call("stats_get")

    def call(self, method, **params):
        """Ask the router; if it has gone, say how."""
        try:
            return self.rpc.call(method, **params)
        except LabError as e:
            try:
                status = self.process.popen.wait(1)
            except subprocess.TimeoutExpired:
                raise e from None
            raise LabError(f"the router ended with status {status}: {self.process.said()}") from None

    def stats(self):
        return self.call("stats_get")

    def cpu_seconds(self):
        return self.process.cpu_seconds()

    def wait_links(self):
        """Until each of its NIs is up: addresses of ports are asked for first, which takes a second."""
        deadline = time.monotonic() + START_DEADLINE
        while True:
            nis = [ni for net in self.call("net_get")["net"] for ni in net["local NI(s)"]]
            if all(ni["status"] == "up" for ni in nis):
                return
            if time.monotonic() > deadline:
                raise LabError(f"not all NIs come up: {[(ni['nid'], ni['status']) for ni in nis]}")
            time.sleep(0.05)


class Lab:
    """The three nodes. A context manager; nothing runs until router(), server() or client()."""

    def __init__(self, build, mtu=1500):
        self.build, self.mtu = os.path.abspath(build), mtu
        self.client_nids, self.server_nids = [CLIENT], [SERVER]
        self.client_routes, self.server_routes = [f"tcp1 {ROUTER}"], [f"tcp {ROUTER_FAR}"]
        self.processes, self.routers, self.main = [], [], None
        self.conns = -1  # conns_per_peer of all nodes; -1: by the speed of the link
        self.spaces, self.dir = {}, None
        for program in ("app/millraced/millraced", "app/millrace-perf/millrace-perf"):
            if not os.access(os.path.join(self.build, program), os.X_OK):
                raise LabError(f"{os.path.join(self.build, program)} is not there: build first (./dev build)")

    def __enter__(self):
        try:
            self.dir = tempfile.mkdtemp(prefix="millrace-lab-")
            for name in ("client", "router", "server"):
                self.spaces[name] = netns.NetNs(name)
            self.wire()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc):
        self.close()

    def wire(self):
        """Make the links. A larger lab extends this."""
        self.link("client", "c0", "10.10.1.2", "router", "r0", "10.10.1.1")
        self.link("server", "s0", "10.10.2.2", "router", "r1", "10.10.2.1")

    def link(self, a, a_if, a_addr, b, b_if, b_addr):
        """A veth pair. An end without an address (None) has none of IPv6 either: it is a port's, or a bridge's."""
        for space, name, addr, peer in ((a, a_if, a_addr, f" type veth peer name {b_if} mtu {self.mtu} netns "
                                         f"{self.spaces[b].path}"), (b, b_if, b_addr, None)):
            lines = [f"link add {name} mtu {self.mtu}{peer}"] if peer else []
            lines.append(f"addr add {addr}/24 dev {name}" if addr else f"link set {name} addrgenmode none")
            self.spaces[space].ip("\n".join([*lines, f"link set {name} up"]))
        wait_link(self.spaces[a], a_if)
        wait_link(self.spaces[b], b_if)

    def start(self, where, name, argv, **environment):
        process = Process(self.spaces[where], name, argv, environment)
        self.processes.append(process)
        return process

    def millraced(self, name, where, text):
        """Start a millraced in a namespace with a configuration, in which {socket} stands for its control socket."""
        path, config = os.path.join(self.dir, f"{name}.sock"), os.path.join(self.dir, f"{name}.yaml")
        with open(config, "w", encoding="ascii") as f:
            f.write(text.replace("{socket}", path))
        process = self.start(where, name, [os.path.join(self.build, "app/millraced/millraced"), "--config", config])
        router = Router(process, path)
        self.routers.append(router)
        return router

    def router(self, idle="adaptive", reactors=1):
        """Start the router on host sockets. Returns its process."""
        self.main = self.millraced("router", "router", CONFIG.format(near=ROUTER, far=ROUTER_FAR, idle=idle,
                                                                     reactors=reactors, conns=self.conns, socket="{socket}"))
        return self.main.process

    def _perf(self, where, name, own, routes, arguments):
        argv = [os.path.join(self.build, "app/millrace-perf/millrace-perf"), "--json"]
        if self.conns > 0:
            argv += ["--conns-per-peer", str(self.conns)]
        for nid in own:
            argv += ["--nid", nid]
        for route in routes:
            argv += ["--route", route]
        return self.start(where, name, argv + [str(a) for a in arguments])

    def server(self, *arguments):
        process = self._perf("server", "the server", self.server_nids, self.server_routes, [*arguments, "server"])
        process.wait_line("serving on")
        return process

    def client(self, *arguments):
        return self._perf("client", "the client", self.client_nids, self.client_routes, arguments)

    def cli(self):
        """The command `millrace`, for the router."""
        return [os.path.join(self.build, "app/millrace/millrace"), "--socket", os.path.join(self.dir, "router.sock")]

    def call(self, method, **params):
        return self.main.call(method, **params)

    def stats(self):
        return self.main.stats()

    def close(self):
        """Stop what runs, in reverse order, then take everything away."""
        for router in self.routers:
            router.rpc.close()
        self.routers.clear()
        for process in reversed(self.processes):
            try:
                process.stop()
            except (LabError, OSError) as e:
                print(f"(while cleaning up: {e})", file=sys.stderr)
        self.processes.clear()
        for space in self.spaces.values():
            space.close()
        self.spaces.clear()
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir = None
