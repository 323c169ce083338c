#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""millraced and millrace as programs: arguments, what is said when something is wrong, start and end.

usage: test_rpc_daemon.py MILLRACED MILLRACE DATA_DIR

Runs on the loopback interface with a port of its own. Exits non-zero at the first failure.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from own_port import own_port  # noqa: E402

DEADLINE = 60.0

MILLRACED, MILLRACE, DATA = sys.argv[1:4]
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
SOCKET = os.path.join(DIR.name, "sock")
PORT = own_port("127.0.0.2", "127.0.0.3")

CONFIG = """
net:
  - net type: tcp
    local NI(s):
      - {first}
  - net type: tcp1
    local NI(s):
      - nid: 127.0.0.3@tcp1
route:
  - {{net: o2ib, gateway: 127.0.0.9@tcp, hop: 1, priority: 2}}{routes}
buffers: {buffers}
millrace:
  reactors: 1
  max_peers: 64
  accept_port: {port}
  rpc: {{socket: {socket}, mode: "0600"}}
  {extra}
"""


def config(extra="", first="nid: 127.0.0.2@tcp", buffers="{tiny: 16, small: 16, large: 2}", routes=()):
    path = os.path.join(DIR.name, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG.format(first=first, extra=extra, socket=SOCKET, port=PORT, buffers=buffers,
                              routes="".join(f"\n  - {route}" for route in routes)))
    return path


def run(*args, status=0):
    """Standard output and error of a command that must end with a status."""
    p = subprocess.run(args, capture_output=True, text=True, timeout=DEADLINE)
    if p.returncode != status:
        raise AssertionError(f"{args} ended with {p.returncode}, not {status}:\n{p.stdout}{p.stderr}")
    return p.stdout, p.stderr


def cli(*args, status=0):
    return run(MILLRACE, "--socket", SOCKET, *args, status=status)


def has(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in:\n{text}"


class Daemon:
    all = []

    def __init__(self, path, env=None, journal=False, args=()):
        self.log = open(os.path.join(DIR.name, "log"), "w+", encoding="utf-8")
        env = {**os.environ, **(env or {})}
        if journal:
            st = os.fstat(self.log.fileno())
            env["JOURNAL_STREAM"] = f"{st.st_dev}:{st.st_ino}"
        self.proc = subprocess.Popen([MILLRACED, "-c", path, *args], stderr=self.log, env=env)
        Daemon.all.append(self.proc)

    def wait_ready(self):
        end = time.monotonic() + DEADLINE
        while subprocess.run([MILLRACE, "-s", SOCKET, "version"], capture_output=True).returncode:
            assert self.proc.poll() is None, f"ended with {self.proc.returncode}: {self.text()}"
            assert time.monotonic() < end, "not ready"
        return self

    def says(self, notified, what):
        """The next message to the service manager, or why none will come."""
        end = time.monotonic() + DEADLINE
        while not select.select([notified], [], [], 0.1)[0]:
            assert self.proc.poll() is None, f"ended with {self.proc.returncode}: {self.text()}"
            assert time.monotonic() < end, f"no {what}: {self.text()}"
        said = notified.recv(300).split(b"\n")[0]
        if said.startswith(b"STATUS="):     # test_service.py looks at these
            self.says(notified, what)
            return
        assert said == what, (said, self.text())

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ended(self, status=0):
        try:
            code = self.proc.wait(DEADLINE)
        finally:
            self.proc.kill()
        assert code == status, f"ended with {code}, not {status}: {self.text()}"
        return self.text()


def test_arguments():
    for program in MILLRACED, MILLRACE:
        has(run(program, "--version")[0], os.path.basename(program) + " ")
        has(run(program, "--help")[0], "usage:")
        has(run(program, "--frob", status=2)[1], "--help")
    has(run(MILLRACED, "word", status=2)[1], "unexpected argument")
    has(run(MILLRACE, status=2)[1], "usage:")
    has(run(MILLRACE, "net", status=2)[1], "usage: millrace net COMMAND")
    has(run(MILLRACE, "net", "frob", status=2)[1], "'net frob' is not a command")


def test_check():
    out = run(MILLRACED, "--check", "-c", config())[0]
    has(out, "nid: 127.0.0.2@tcp,", "net: o2ib, gateway: '127.0.0.9@tcp', hop: 1, priority: 2", "routing: enabled",
        f"port: {PORT}", "mode: '0600'", "admission: {egress_share: 50, buffer_wait: 10}")
    has(run(MILLRACED, "--check", "-c", config("idel: spin"), status=1)[1],
        "config.yaml:17: millrace.idel: unknown key; did you mean 'idle'?")
    has(run(MILLRACED, "--check", "-c", "/nonexistent", status=1)[1], "cannot be read")
    kfi = config(first="nid: 127.0.0.2@tcp\n  - net type: kfi\n    local NI(s):\n      - interfaces: {0: cxi0}")
    has(run(MILLRACED, "--check", "-c", kfi, status=1)[0], "no network driver")
    has(run(MILLRACED, "--check", "-c", os.path.join(DATA, "lnetctl-export-client-o2ib-backup.yaml"))[0],
        "o2ib connections:")
    assert not os.path.exists(SOCKET)


def numbers(text, section):
    """The numbers of a section of --check below `memory`, by key."""
    lines = text.split(f"    {section}:")[1].split("\n")[1:]
    found = {}
    for line in lines:
        if not line.startswith("        "):
            break
        key, _, rest = line.strip().partition(":")
        found[key] = float(rest.split()[0])
    return found


def test_check_memory():
    """The formula adds up, and says what would fit where something does not."""
    out, err = run(MILLRACED, "--check", "-c", config())
    eal, heap = numbers(out, "eal"), numbers(out, "heap")
    assert eal["large"] == 2.0 and eal["small"] == 0.1 and eal["room"] == 0.0 and eal["configured"] == 0, eal
    assert eal["large"] + eal["small"] + eal["room"] + eal["dpdk"] <= eal["sum"] < 8, eal
    assert abs(heap["node"] + heap["tcp"] + heap["reactors"] + heap["dpdk"] - heap["sum"]) < 0.3, heap
    assert heap["tcp streams"] > 1, heap
    has(out, "buffers: {tiny: 16, small: 16, large: 2}\n", "most: {tiny: 16, small: 16, large: 2}",
        "# kernel routers are recommended to have at least: tiny: 512, small: 4096, large: 256\n")
    assert err == "", err
    # more memory is room for more buffers
    out = run(MILLRACED, "--check", "-c", config("memory: 100"))[0]
    eal = numbers(out, "eal")
    assert eal["sum"] == eal["configured"] == 100 and eal["room"] > 80, eal
    assert int(out.split("most: {")[1].split("large: ")[1].split("}")[0]) > 80, out
    # too little
    out, err = run(MILLRACED, "--check", "-c", config("memory: 1", buffers="{small: 100, large: 50}"), status=1)
    has(err, "memory: 1 MiB", "write 53 or more")
    assert numbers(out, "eal")["sum"] == 53
    out, err = run(MILLRACED, "--check", "-c", config("memory: 40", buffers="{small: 100, large: 50}"), status=1)
    has(err, "memory: 40 MiB", "37 large would fit", "write 53 or more")
    run(MILLRACED, "--check", "-c", config("memory: 53", buffers="{small: 100, large: 50}"))
    # 4 gateways
    routes = [f"{{net: o2ib{i}, gateway: 127.0.0.{i}@tcp}}" for i in range(20, 23)]
    err = run(MILLRACED, "--check", "-c", config(routes=routes, buffers="{tiny: 8, small: 8, large: 7}"))[1]
    has(err, "warning: buffers: large: 7 is fewer than 8", "write 8 or more")
    assert err.count("warning") == 1, err


def test_defaults():
    """Without numbers: those of the protocol, or what a quarter of the machine holds."""
    out = run(MILLRACED, "--check", "-c", config(buffers="{}"))[0]
    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    eal = numbers(out, "eal")["sum"]
    if ram // 4 > 1100:
        has(out, "buffers: {tiny: 2048, small: 16384, large: 1024}\n")
    else:
        has(out, "# limited to a quarter of ")
    assert eal <= max(ram // 4, 8), (eal, ram)


def listener():
    """Somebody else on the port of the second NI."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.3", PORT))
    s.listen()
    return s


def failing(path, *parts):
    has(run(MILLRACED, "-c", path, status=1)[1], "event=failed", *parts)
    assert not os.path.exists(SOCKET)


def alone(path):
    """The configuration without its second NI: a node none of whose NIs has its device does not start."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("  - net type: tcp1\n    local NI(s):\n      - nid: 127.0.0.3@tcp1\n", ""))
    return path


def test_failing_starts():
    failing(alone(config(first="nid: 192.0.2.77@tcp")), "NI on line 5", "192.0.2.77@tcp", "not on any interface")
    path = alone(config(first="interfaces: {0: nosuchif0}"))
    err = run(MILLRACED, "-c", path, status=1)[1]
    has(err, "there is no interface nosuchif0", "remedy=")
    assert err.count("there is no interface") == 1 and err.count("ip link") == 1, err
    failing(alone(config(first="interfaces: {0: lo}")), "interface lo has a loopback address", "give it as the nid")
    failing(config("memory: 1"), "errno=ENOMEM", "memory: 1 MiB", "write 5 or more, 0 to have it computed")
    path = config('cores: "900"\n  hugepages: true')
    has(run(MILLRACED, "-c", path, status=1)[1], "core 900 is not among those")
    assert "hugepages" not in run(MILLRACED, "-c", path, status=1)[1]
    with listener():
        failing(config(), "errno=EADDRINUSE", str(PORT), "ss -ltnp")


POOL = "          {}:\n              npages: {}\n              nbuffers: {}\n              credits: {}\n              mincredits: {}\n"


def check_reactors():
    """What the threads do: capacity comes with the first full second."""
    def look():
        return json.loads(cli("--json", "reactors", "show")[0])

    deadline = time.monotonic() + 60
    while not ("capacity" in look()["reactors"][0] and "capacity" in look()["control"]):
        assert time.monotonic() < deadline, look()
        time.sleep(0.1)
    for row in (look()["reactors"][0], look()["control"]):
        c = row["capacity"]
        assert c["seconds"] > 0.5 and all(0 <= c[k] <= 1 for k in ("busy", "preempted", "free", "cpu")), row
        assert abs(c["busy"] + c["preempted"] + c["free"] - 1) < 0.001 or c["busy"] + c["preempted"] > 1, row
        assert row["stages"]["preempted"] >= 0, row
    cli("ping", "127.0.0.3@tcp1")
    row = look()["reactors"][0]
    assert [w["name"] for w in row["waited"]] == ["peer_router_credit", "router_buffer", "peer_tx_credit", "ni_tx_credit"], row


def check_buffers():
    tail = "    - enable: 1\nbuffers:\n    tiny: 16\n    small: 16\n    large: {}\n"
    tiny, small = POOL.format("tiny", 0, 16, 16, 16), POOL.format("small", 1, 16, 16, 16)
    assert cli("routing", "show")[0] == (
        "routing:\n    - cpt[0]:\n" + tiny + small + POOL.format("large", 256, 2, 2, 2) + tail.format(2))
    out = cli("buffers", "show")[0]
    has(out, "    - reactor[0]:\n          cpt: 0\n", "              waiting: 0\n              waited: 0\n", tail.format(2))
    cli("set", "large_buffers", "7")
    has(cli("routing", "show")[0], POOL.format("large", 256, 7, 7, 7) + tail.format(7))
    assert json.loads(cli("--json", "set", "large_buffers", "0")[0])["buffers"]["large"] > 7
    has(cli("set", "large_buffers", "1000", status=1)[1], "set:\n    - large_buffers:\n          errno: -12\n",
        "there is memory for ", "remedy: ")
    cli("set", "large_buffers", "2")
    has(cli("set", "tiny_buffers", "1048577", status=1)[1], "tiny_buffers:\n          errno: -22\n", "out of range")
    for bad in ("set",), ("set", "tiny_buffers"), ("set", "tiny_buffers", "x"), ("set", "tiny_buffers", "1", "2"), \
            ("set", "huge_buffers", "1"), ("set", "tiny_buffers", "--all"):
        cli(*bad, status=2)
    has(cli("set", "tiny_buffers", "-1", status=1)[1], "tiny_buffers:\n          errno: -22\n", "out of range")
    assert cli("admission", "show")[0] == "admission:\n    egress_share: 50\n    buffer_wait: 10\n"
    cli("set", "egress_share", "80")
    cli("set", "buffer_wait", "3")
    assert cli("admission", "show")[0] == "admission:\n    egress_share: 80\n    buffer_wait: 3\n"
    has(cli("set", "buffer_wait", "13", status=1)[1], "set:\n    - buffer_wait:\n          errno: -22\n", "from 1 to 12")
    has(cli("waits")[0], "waits:\n    - name: tiny_buffer\n      waiting: 0\n", "- name: ni_tx_credit\n")


def check_credits():
    """lnetctl's keys in its order."""
    out = cli("peer", "show", "--nid", "127.0.0.9@tcp", "-v", "--millrace")[0]
    keys = [line.strip(" -").split(":")[0] for line in out.split("\n")]
    want = ["nid", "state", "max_ni_tx_credits", "available_tx_credits", "min_tx_credits", "tx_q_num_of_buf",
            "available_rtr_credits", "min_rtr_credits", "refcount", "statistics"]
    assert keys[4:14] == want, out
    has(out, "max_ni_tx_credits: 8\n", "max_rtr_credits: 8\n", "tx_waited: 0\n")
    assert "credits" not in cli("peer", "show")[0]
    has(cli("net", "show", "--net", "tcp", "-v", "--millrace")[0], "max_tx_credits: 256\n", "available_tx_credits: 256\n")


def test_net_del():
    """A net goes, its port too; what is left goes on."""
    d = Daemon(config()).wait_ready()
    has(cli("net", "del", "--net", "tcp9", status=1)[1], "del:\n    - net:\n          errno: -2\n", "remedy: ")
    has(cli("net", "del", "--net", "lo", status=1)[1], "net lo cannot be removed")
    has(cli("net", "add", "--net", "tcp7", "--if", "lo", status=1)[1], "errno: -99\n", "loopback", "remedy: ")
    err = cli("net", "add", "--net", "kfi", "--if", "lo", status=1)[1]
    has(err, "no network driver", "remedy: ", "tcp, o2ib")
    assert "restart" not in err, err
    has(cli("net", "del", status=2)[1], "--net is missing")
    assert cli("net", "del", "--net", "tcp1")[0] == ""
    assert "tcp1" not in cli("net", "show")[0]
    has(cli("ping", "127.0.0.2@tcp")[0], "- nid: 127.0.0.2@tcp\n")
    assert "tcp1" not in cli("ping", "127.0.0.2@tcp")[0]
    has(cli("net", "del", "--net", "tcp1", status=1)[1], "errno: -2\n")
    listener().close()  # its port is free
    assert json.loads(cli("--json", "net", "del", "--net", "tcp")[0]) is True
    assert cli("net", "show")[0].count("net type") == 1
    cli("peer", "show", "-v")
    cli("stats", "show")
    cli("shutdown")
    has(d.ended(), "orderly=yes")


def test_commands():
    d = Daemon(config("memory: 40")).wait_ready()
    assert os.stat(SOCKET).st_mode & 0o777 == 0o600
    assert cli("net", "show")[0] == (
        "net:\n-     net type: lo\n      local NI(s):\n      -     nid: 0@lo\n            status: up\n"
        "-     net type: tcp\n      local NI(s):\n      -     nid: 127.0.0.2@tcp\n            status: up\n"
        "            interfaces:\n                  0: lo\n"
        "-     net type: tcp1\n      local NI(s):\n      -     nid: 127.0.0.3@tcp1\n            status: up\n"
        "            interfaces:\n                  0: lo\n")
    has(cli("net", "show", "--net", "tcp1", "-v")[0], "send_count: 0", "peer_credits: 8", "conns_per_peer: ")
    has(cli("net", "show", "-v", "2")[0], "dropped_stats:")
    has(cli("net", "show", "--net", "tcp9", status=1)[1], "show:\n    - net:\n          errno: -3\n")
    assert cli("route", "show")[0] == "route:\n-     net: o2ib\n      gateway: 127.0.0.9@tcp\n"
    cli("route", "add", "--net", "tcp7", "--gateway", "127.0.0.8@tcp", "--hop", "3", "--priority", "1")
    has(cli("route", "show", "--net", "tcp7", "-v")[0], "hop: 3", "priority: 1", "type: multi-hop")
    has(cli("route", "add", "--net", "tcp7", "--gateway", "127.0.0.8@tcp", status=1)[1],
        "add:\n    - route:\n          errno: -17\n")
    cli("route", "del", "--net", "tcp7", "--gateway", "127.0.0.8@tcp")
    assert cli("route", "show", "--net", "tcp7")[0] == ""
    has(cli("route", "add", "--net", "tcp7", status=2)[1], "--gateway is missing")
    has(cli("route", "del", "word", status=2)[1], "unexpected argument")
    has(cli("peer", "show", "--millrace")[0], "primary nid: 127.0.0.9@tcp", "connections:")
    assert "connections:" not in cli("peer", "show", "-v", "4")[0]
    has(cli("peer", "list")[0], "peer list:\n-     nid: ", "-     nid: 127.0.0.9@tcp\n")
    has(cli("stats", "show")[0], "statistics:\n    msgs_alloc: ", "    drop_length: ")
    out, err = cli("ping", "127.0.0.3@tcp1,127.0.0.77@tcp", status=1)
    has(out, "ping:\n- primary nid: 127.0.0.2@tcp\n  Multi-Rail: true\n  peer_ni:\n  - nid: 127.0.0.2@tcp\n")
    has(err, "manage:\n    - ping:\n          errno: -113\n", "failed to ping 127.0.0.77@tcp")
    has(cli("ping", status=2)[1], "name NID")
    has(cli("ping", "127.0.0.3@tcp1", "--timeout", "0", status=2)[1], "1 to 60 ")
    for _ in range(10):     # the example is the last one, which may be of the gateway that is asked meanwhile
        cli("ping", "127.0.0.77@tcp", status=1)
        out = cli("drops")[0]
        if "dest: 127.0.0.77@tcp" in out:
            break
    has(out, "- name: next_hop_unreachable", "dest: 127.0.0.77@tcp")
    assert "count: 0" not in cli("drops")[0] and "count: 0" in cli("drops", "--all")[0]
    check_buffers()
    check_credits()
    has(cli("reactors", "show")[0], "busy_loops: ", "control:")
    check_reactors()
    assert json.loads(cli("--json", "version")[0])["pid"] == d.proc.pid
    exported = os.path.join(DIR.name, "exported.yaml")
    with open(exported, "w", encoding="utf-8") as f:
        f.write(cli("export")[0])
    has(run(MILLRACED, "--check", "-c", exported)[0], "nid: 127.0.0.3@tcp1", "gateway: '127.0.0.9@tcp'")
    has(run(MILLRACED, "-c", config(), status=1)[1], "is served by another process")
    cli("shutdown")
    has(d.ended(), "event=ready", "drain=10", "event=stopped orderly=yes", "drop=next_hop_unreachable")
    assert not os.path.exists(SOCKET)
    has(cli("version", status=3)[1], "is millraced running?")


def test_signals():
    """A killed one leaves its socket, the next takes it over; signals end it in order."""
    d = Daemon(config()).wait_ready()
    d.proc.kill()
    d.ended(-signal.SIGKILL)
    assert os.path.exists(SOCKET)
    for number in signal.SIGTERM, signal.SIGINT:
        d = Daemon(config()).wait_ready()
        d.proc.send_signal(number)
        has(d.ended(), f"signal={number.name}", "orderly=yes")


def test_service_manager():
    path = os.path.join(DIR.name, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(path)
        d = Daemon(config(), {"NOTIFY_SOCKET": path}, journal=True)
        d.says(s, b"READY=1")
        d.proc.terminate()
        d.says(s, b"STOPPING=1")
        assert "\n<6>info lnet event=buffers " in "\n" + d.ended()  # no times


def call(method, **params):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(DEADLINE)
        s.connect(SOCKET)
        s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return json.loads(s.makefile(encoding="utf-8").readline())


def test_ends_with_calls():
    """Calls that wait when the node ends, in order or not, their clients there or gone."""
    calls = (("ping", {"nid": "127.0.0.77@tcp", "timeout_ms": 60000}), ("counters_capture", {"seconds": 5}),
             ("peer_top", {"by": "bytes", "interval_ms": 3000}), ("peer_top", {"by": "bytes", "interval_ms": 10}),
             ("why", {"nid": "127.0.0.77@tcp"}), ("stats_reset", {}), ("net_del", {"net": "tcp1"}), ("peer_get", {}))
    for forced in False, True:
        d, stay = Daemon(config()).wait_ready(), []
        for method, params in calls * 2:
            s = socket.socket(socket.AF_UNIX)
            s.connect(SOCKET)
            s.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
            if len(stay) < len(calls):
                stay.append(s)
            else:
                s.close()
        d.proc.send_signal(signal.SIGTERM)
        if forced:
            d.proc.send_signal(signal.SIGINT)
        has(d.ended(1 if forced else 0), "orderly=no" if forced else "orderly=yes")
        for s in stay:
            s.close()


def test_log():
    """Who did what is logged, with what was asked for in one field whatever it was; levels at run time."""
    d = Daemon(config()).wait_ready()
    levels = call("log_get")["result"]["levels"]
    assert set(levels.values()) == {"info"}, levels
    forged = "x\n2000-01-01T00:00:00.000Z error lnet event=forged"
    assert call("route_add", net=forged, gateway="127.0.0.9@tcp")["error"]
    assert call("route_add", net="o2ib9", gateway="127.0.0.9@tcp")["result"] is True
    assert call("log_set", level="debug", module="lnet")["result"] is True
    assert call("log_set", level="error", module="config")["result"] is True
    assert call("log_get")["result"]["levels"]["config"] == "error"
    assert call("route_del", net="o2ib9", gateway="127.0.0.9@tcp")["result"] is True
    assert call("log_set", level="loud")["error"]["code"] == -32602
    end = time.monotonic() + DEADLINE
    while (log := call("log_get")["result"])["written"] <= 5:   # a thread of its own writes it
        assert time.monotonic() < end, log
        time.sleep(0.02)
    assert log["to"] == "stderr" and log["lost"] == 0, log
    d.proc.send_signal(signal.SIGHUP)  # only opens a log file anew
    call("version")
    d.proc.terminate()
    text = d.ended()
    who = f"uid={os.getuid()} client_pid={os.getpid()} "
    assert "event=client_" not in text   # level debug
    has(text, "config event=change_refused method=route_add " + who,
        "config event=change method=route_add " + who, r'params="{\"net\":\"o2ib9\",\"gateway\"',
        "config event=change method=log_set " + who, "event=log_level", "signal=SIGHUP")
    assert "method=route_del" not in text
    for line in text.splitlines():
        assert re.match(r"\S+Z (debug|info|warning|error) [a-z]+ event=[a-z_]+( |$)", line), line
        assert " event=forged" not in re.sub(r'"(\\.|[^"\\])*"', "", line), line


def wait_for(text, d):
    end = time.monotonic() + DEADLINE
    while text not in d.text():
        assert time.monotonic() < end, f"{text!r} did not come: {d.text()}"
        time.sleep(0.02)


def test_reload():
    """SIGHUP makes the file the running document, which then counts as saved; what is no file is not waited for."""
    def status():
        return json.loads(cli("--json", "rpc", "config_status")[0])

    path = config()
    d = Daemon(path).wait_ready()
    cli("set", "buffer_wait", "7")
    assert status()["unsaved"] is True
    config("buffer_wait: 9")
    d.proc.send_signal(signal.SIGHUP)
    wait_for("event=reloaded", d)
    assert status()["unsaved"] is False
    os.unlink(path)
    os.mkfifo(path)
    d.proc.send_signal(signal.SIGHUP)
    wait_for("event=not_reloaded", d)
    has(d.text(), "cannot be read")
    assert status()["unsaved"] is False
    os.unlink(path)
    d.proc.terminate()
    d.ended()


def test_start_fails():
    """What could not be started is taken back in order: the process waits on, and the next start finds nothing of it."""
    squatter = listener()
    d = Daemon(config(), args=["--wait-for-rpc"]).wait_ready()
    for _ in range(3):
        while "still being stopped" in (err := cli("rpc", "start", status=1)[1]):
            time.sleep(0.02)
        has(err, "cannot listen on 127.0.0.3@tcp1")
        has(cli("--json", "rpc", "config_status")[0], '"waiting": true')
    squatter.close()
    end = time.monotonic() + DEADLINE
    while subprocess.run([MILLRACE, "-s", SOCKET, "rpc", "start"], capture_output=True).returncode:
        assert time.monotonic() < end and d.proc.poll() is None, d.text()
        time.sleep(0.02)
    has(cli("net", "show")[0], "127.0.0.2@tcp", "127.0.0.3@tcp1")
    cli("ping", "127.0.0.3@tcp1")
    d.proc.terminate()
    d.ended()


# No device has an address of the loopback interface, also where the host has RDMA.
O2IB = "nid: 127.0.0.2@tcp\n  - net type: o2ib5\n    local NI(s):\n      - {nid: 127.0.0.4@o2ib5, tunables: {peer_credits: 16}}"


def o2ib_config():
    return config(first=O2IB, routes=["{net: o2ib8, gateway: 127.0.0.9@o2ib5}", "{net: tcp8, gateway: 127.0.0.9@tcp}"])


def test_no_rdma():
    """An NI without a device is told, and all else runs."""
    d = Daemon(o2ib_config()).wait_ready()
    end = time.monotonic() + DEADLINE
    while "event=ni_absent" not in d.text():
        assert time.monotonic() < end, d.text()
        time.sleep(0.02)
    has(d.text(), "warning events event=ni_absent nid=127.0.0.4@o2ib5 net=o2ib5", "RDMA device")
    nets = cli("net", "show")[0]
    has(nets, "127.0.0.2@tcp\n            status: up", "127.0.0.4@o2ib5\n            status: down\n            reason:")
    has(cli("net", "show", "--net", "o2ib5", "-v")[0], "peer_credits: 16")
    has(cli("verbs", "show")[0], "verbs: []", "nid: 127.0.0.4@o2ib5", "RDMA device")
    routes = cli("route", "show")[0]
    has(routes, "tcp8")
    assert "o2ib8" not in routes, routes
    cli("ping", "127.0.0.3@tcp1")
    # The document has all of it.
    kept = cli("config", "show", "--backup")[0]
    has(kept, "127.0.0.4@o2ib5", "o2ib8")
    # What comes later is refused, and changes nothing.
    err = cli("net", "add", "--net", "o2ib1", "--nid", "127.0.0.5@o2ib1", status=1)[1]
    has(err, "errno: -19", "RDMA device", "rdma link")
    assert cli("net", "show")[0] == nets
    cli("net", "set", "--net", "o2ib5", "--lnd-timeout", "20")
    cli("net", "del", "--net", "o2ib5")
    assert "127.0.0.4" not in cli("verbs", "show")[0]
    assert "o2ib8" not in cli("config", "show", "--backup")[0]
    has(cli("config", "apply", os.path.join(DIR.name, "config.yaml"), status=1)[1], "RDMA device")
    cli("shutdown")
    d.ended()


def test_nothing_but_rdma():
    """A node without any NI does not start; nor does one whose o2ib NI is wrong."""
    path = os.path.join(DIR.name, "rdma.yaml")
    for nid, said in ("127.0.0.4@o2ib", "RDMA device"), ("fd00::4@o2ib", "IPv4 addresses only"):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f"net: [{{net type: o2ib, local NI(s): [{{nid: '{nid}'}}]}}]\n"
                    f"buffers: {{tiny: 16, small: 16, large: 2}}\nmillrace: {{reactors: 1, rpc: {{socket: {SOCKET}}}}}\n")
        out, err = run(MILLRACED, "-c", path, status=1)
        has(out + err, "NI on line 1", said)


def main():
    try:
        for name, test in list(globals().items()):
            if name.startswith("test_"):
                test()
                print(f"ok {name}", flush=True)
    finally:
        for proc in Daemon.all:
            proc.kill()
            proc.wait()


main()
