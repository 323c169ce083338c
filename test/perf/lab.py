# SPDX-License-Identifier: BSD-3-Clause
"""A small LNet for the demonstration and the measurements: a client, a router and a server.

    client 10.10.1.2@tcp --- 10.10.1.1@tcp router 10.10.2.1@tcp1 --- 10.10.2.2@tcp1 server

Each is a process in a network namespace without a name. Processes and namespaces go away with this process,
however it ends; Lab.close() also removes the folder with the socket.
"""

import json
import os
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
STOP_DEADLINE = 10   # seconds for it to end after a signal

CONFIG = """\
net:
  - net type: tcp
    local NI(s):
      - nid: {near}
  - net type: tcp1
    local NI(s):
      - nid: {far}
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
        self.socket.settimeout(5)
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


class Lab:
    """The three nodes. A context manager; nothing runs until router(), server() or client()."""

    def __init__(self, build, mtu=1500):
        self.build, self.mtu = os.path.abspath(build), mtu
        self.client_nids, self.server_nids = [CLIENT], [SERVER]
        self.processes, self.rpc, self.router_process = [], None, None
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
        self.spaces[a].ip(f"link add {a_if} mtu {self.mtu} type veth peer name {b_if} mtu {self.mtu} "
                          f"netns {self.spaces[b].path}\n"
                          f"addr add {a_addr}/24 dev {a_if}\nlink set {a_if} up")
        self.spaces[b].ip(f"addr add {b_addr}/24 dev {b_if}\nlink set {b_if} up")
        wait_link(self.spaces[a], a_if)
        wait_link(self.spaces[b], b_if)

    def start(self, where, name, argv, **environment):
        process = Process(self.spaces[where], name, argv, environment)
        self.processes.append(process)
        return process

    def router(self, idle="adaptive", reactors=1):
        """Start millraced and connect to its control socket."""
        path, config = os.path.join(self.dir, "rpc.sock"), os.path.join(self.dir, "millraced.yaml")
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(near=ROUTER, far=ROUTER_FAR, idle=idle, reactors=reactors, socket=path))
        self.router_process = self.start("router", "the router", [
            os.path.join(self.build, "app/millraced/millraced"), "--config", config])
        deadline = time.monotonic() + START_DEADLINE
        while self.rpc is None:
            try:
                self.rpc = Rpc(path)
            except OSError:
                if not self.router_process.running() or time.monotonic() > deadline:
                    raise LabError(f"the router did not start: {self.router_process.said()}") from None
                time.sleep(0.02)
        self.rpc.call("stats_get")
        return self.router_process

    def _perf(self, where, name, own, routes, arguments):
        argv = [os.path.join(self.build, "app/millrace-perf/millrace-perf"), "--json"]
        for nid in own:
            argv += ["--nid", nid]
        for route in routes:
            argv += ["--route", route]
        return self.start(where, name, argv + [str(a) for a in arguments])

    def server(self, *arguments):
        process = self._perf("server", "the server", self.server_nids, [f"tcp {ROUTER_FAR}"], [*arguments, "server"])
        process.wait_line("serving on")
        return process

    def client(self, *arguments):
        return self._perf("client", "the client", self.client_nids, [f"tcp1 {ROUTER}"], arguments)

    def call(self, method, **params):
        """Ask the router; if it has gone, say how."""
        try:
            return self.rpc.call(method, **params)
        except LabError as e:
            try:
                status = self.router_process.popen.wait(1)
            except subprocess.TimeoutExpired:
                raise e from None
            raise LabError(f"the router ended with status {status}: {self.router_process.said()}") from None

    def stats(self):
        return self.call("stats_get")

    def close(self):
        """Stop what runs, in reverse order, then take everything away."""
        if self.rpc:
            self.rpc.close()
            self.rpc = None
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
