#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The command millrace against a running millraced: its words, what it refuses, where its output goes, completion.

usage: test_cli.py MILLRACED MILLRACE OUTPUTS_DIR DOCS_FILE

Runs on the loopback interface with a port of its own. Exits non-zero at the first failure.
"""

import json
import lzma
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_daemon import FakeDaemon  # noqa: E402
from own_port import own_port  # noqa: E402
from typed_shell import Terminal  # noqa: E402

DEADLINE = 60.0

MILLRACED, MILLRACE, OUTPUTS, DOCS = (os.path.abspath(a) for a in sys.argv[1:5])
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
SOCKET = os.path.join(DIR.name, "sock")

CONFIG = f"""
net:
  - net type: tcp
    local NI(s):
      - nid: 127.0.3.2@tcp
  - net type: tcp1
    local NI(s):
      - nid: 127.0.3.3@tcp1
route:
  - {{net: o2ib, gateway: 127.0.3.9@tcp, hop: 1, priority: 2}}
buffers: {{tiny: 16, small: 16, large: 2}}
millrace:
  reactors: 1
  max_peers: 64
  accept_port: {own_port("127.0.3.2", "127.0.3.3", "127.0.3.4", "127.0.3.5")}
  memory: 40
  rpc: {{socket: {SOCKET}}}
  names: {{127.0.3.9@tcp: gw-9}}
"""


def run(*args, status=0, stdin=None, **kwargs):
    p = subprocess.run(args, capture_output=True, text=True, timeout=DEADLINE, input=stdin, **kwargs)
    if p.returncode != status:
        raise AssertionError(f"{args} ended with {p.returncode}, not {status}:\n{p.stdout}{p.stderr}")
    return p.stdout, p.stderr


def cli(*args, status=0, stdin=None):
    return run(MILLRACE, "-s", SOCKET, *args, status=status, stdin=stdin)


def has(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in:\n{text}"


def has_not(text, *parts):
    for part in parts:
        assert part not in text, f"{part!r} is in:\n{text}"


def commands():
    return run(MILLRACE, "--list-commands")[0].splitlines()


# ---- words

def test_help():
    """Each command tells what it does; --help lists them all."""
    listed = commands()
    assert len(listed) > 30 and len(set(listed)) == len(listed), listed
    overview = run(MILLRACE, "--help")[0]
    for command in listed:
        out = run(MILLRACE, *command.split(), "--help")[0]
        assert out.startswith(f"usage: millrace {command}"), out
        assert re.search(r"\n\n  [A-Z]", out), f"{command} does not say what it does:\n{out}"
        has(overview, f"\n  {command}")


def test_documented():
    """docs/cli.md has every command, and none that is not there."""
    with open(DOCS, encoding="utf-8") as f:
        text = f.read()
    listed = commands()
    for command in listed:
        if not command.startswith("set "):  # these have a line for all of them
            has(text, "`" + command)
        else:
            has(text, command.split()[1])
    tops = {c.split()[0] for c in listed}
    table = [cell for line in text.splitlines() if line.startswith("| `") for cell in re.findall(r"`([^`]+)`", line.split(" | ")[0])]
    for cell in table:
        words = re.match(r"[a-z_ ]+[a-z_]", cell)
        if words and not cell.startswith(("set X", "--")) and words.group().split()[0] in tops:
            assert any(words.group().startswith(c) for c in listed), f"{cell!r} is no command"


def test_every_lnetctl_command():
    """What lnetctl has, docs/protocol/lnet-core.md §10.1, is there, or is refused with a reason."""
    for words in ("lnet configure", "route add", "route del", "route show", "net show", "net del", "routing show", "import",
                  "export", "stats show", "peer show", "peer list", "ping", "set tiny_buffers", "set small_buffers",
                  "set large_buffers"):
        assert words in commands(), words
    for words in ("lnet unconfigure", "debug peer -k 1", "cpt-of-nid 127.0.3.2@tcp", "service-id", "setup-sysctl", "net reset"):
        err = cli(*words.split(), status=1)[1]
        has(err, "errno: -95\n", "descr: ")
    has(cli("import", "--exec", status=1)[1], "errno: -95")


FAULT_DROP = """\
fault:
    - rule_type: drop
      fa_src: 127.0.3.8@tcp
      fa_dst: 255.255.255.255@tcp1
      fa_ptl_mask: 4100
      fa_msg_mask: 6
      da_rate: 10
      da_interval: 0
      ds_dropped: 0
      fs_count: 0
      fs_put: 0
      fs_ack: 0
      fs_get: 0
      fs_reply: 0
"""
FAULT_DELAY = """\
fault:
    - rule_type: delay
      fa_src: <?>
      fa_dst: 10.0.[0-3].*@tcp1
      fa_ptl_mask: 0
      fa_msg_mask: 15
      la_rate: 0
      la_interval: 7
      la_latency: 3
      ls_delayed: 0
      fs_count: 0
      fs_put: 0
      fs_ack: 0
      fs_get: 0
      fs_reply: 0
"""


def test_fault():
    """Rules of fault injection with lnetctl's words and output, docs/protocol/lnet-core.md §9.2; §12.2 test 410."""
    add, delay = ("fault", "drop", "add", "-s", "127.0.3.8@tcp"), ("fault", "delay", "add", "--source", "*", "--dest")
    assert cli(*add, "-d", "*@tcp1", "-r", "10", "-p", "2", "-p", "12", "-m", "GET", "-m", "ACK", "-m", "PUT") == ("", "")
    assert cli(*delay, "10.0.[0-3].*@tcp1", "--interval", "7", "-l", "3") == ("", "")
    for show in ("show", "list"):
        assert cli("fault", "drop", show)[0] == FAULT_DROP, cli("fault", "drop", show)[0]
        assert cli("fault", "delay", show)[0] == FAULT_DELAY, cli("fault", "delay", show)[0]
    cli(*add, "-d", "10.1.0.1@tcp1", "-i", "5", "-n", "-o", "127.0.3.2@tcp")
    cli(*add, "-d", "10.1.0.1@tcp1", "-x", "-e", "local_error", "-e", "network_timeout")
    cli(*add, "-d", "10.1.0.1@tcp1", "-r", "1", "-e", "random")
    every, chosen, random, _ = (row["millrace"] for row in json.loads(cli("fault", "drop", "show", "--json")[0])["fault"])
    assert len(every["health_error"]) == 10 and not every["drop_all"], every
    assert chosen["drop_all"] and chosen["health_error"] == ["local_error", "network_timeout"], chosen
    assert random["random"] and random["local_nid"] == "127.0.3.2@tcp" and random["held"] == 0, random
    has(cli("fault", "drop", "show", "--millrace")[0], "      millrace:\n", "health_error:\n", "local_nid: <?>\n")
    has(cli("status", status=1)[0], "dropped or delayed on purpose")
    assert cli("fault", "drop", "reset") == cli("fault", "delay", "reset") == ("", "")
    assert json.loads(cli("fault", "drop", "del", "-s", "127.0.3.8@tcp", "-d", "10.1.0.1@tcp1", "--json")[0]) == {"removed": 3}
    assert cli("fault", "drop", "show")[0] == FAULT_DROP
    has(cli("fault", "drop", "del", "-s", "127.0.3.7@tcp", "-d", "*", status=1)[1], "errno: -2\n", "no such rule")
    assert cli("fault", "drop", "del", "-a") == cli("fault", "delay", "del", "--all") == ("", "")
    for bad in (("-r", "1", "-i", "1"), (), ("-r", "1", "-n"), ("-r", "1", "-p", "64"), ("-r", "1", "-p", "-1"), ("-r", "1", "-m", "HELLO"),
                ("-r", "1", "-e", "ok"), ("-r", "1", "-m", "ACK", "-p", "5"), ("-r", "0"), ("-r", "1", "-o", "nonsense")):
        has(cli(*add, "-d", "*", *bad, status=1)[1], "errno: -")
    for nids in (("10.0.0.1@tcp *@tcp", "*"), ("*", "10.0.0.1"), ("*", " ")):
        has(cli("fault", "drop", "add", "-s", nids[0], "-d", nids[1], "-r", "1", status=1)[1], "errno: -")
    has(cli(*delay, "*", "-r", "1", status=2)[1], "--latency")
    cli("fault", "drop", "del", status=1)
    cli("fault", "drop", "del", "-a", "-s", "*", "-d", "*", status=1)
    for words in ("fault", "fault drop", "fault nonsense", "fault show", "fault drop nonsense", "fault drop add", "fault drop add -s *"):
        cli(*words.split(), status=2)
    assert cli("fault", "drop", "show") == cli("fault", "delay", "show") == ("", "")
    has(cli("__complete", "fault", "")[0], "drop", "delay")
    has(cli("__complete", "fault", "drop", "add", "--")[0], "--health-error", "--drop-all")


def test_health():
    """An NI and a gateway below full health, in `health show`, `status` and the page of `top`. Nothing raises it meanwhile."""
    ni, gw = "127.0.3.3@tcp1", "127.0.3.9@tcp"
    cli("set", "health_sensitivity", "0")
    cli("peer", "set", "--nid", gw, "--health", "1000")     # the gateway is not there, so it has fallen
    has_not(cli("status", status=1)[0], "of 1000")
    has(cli("status", status=1)[0], "  health    NIs: 0 below full, 0 in recovery; peer NIs: 0 below full, 0 in recovery\n")
    cli("net", "set", "--nid", ni, "--health", "900")
    cli("peer", "set", "--nid", gw, "--health", "500")
    has(cli("health", "show")[0], f"nid: {ni}\n", "health: 900\n", "unhealthy: 1\n", "local_no_route: 0\n", f"nid: {gw} # gw-9\n",
        "gateway: true\n")
    whole = json.loads(cli("health", "show", "--json")[0])
    assert [row["nid"] for row in whole["ni"] if row["recovering"]] == [ni] and whole["nis"]["recovering"] == 1, whole
    assert whole["peer_nis"] == {"unhealthy": 1, "recovering": 0}, whole    # nothing ever came from it
    has(cli("status", status=1)[0], f"warning  ni {ni}: health 900 of 1000: it is pinged until it is healthy\n",
        "  health    NIs: 1 below full, 1 in recovery; peer NIs: 1 below full, 0 in recovery\n")
    seen = json.loads(cli("status", "--json", status=1)[0])
    assert [(n["health"], n["recovering"]) for n in seen["nis"]["rows"] if n["nid"] == ni] == [(900, True)], seen
    assert seen["routes"]["gateways"][gw]["health"] == 500 and seen["health"]["peer_nis"]["unhealthy"] == 1, seen
    has(cli("route", "show", "-v", "--millrace")[0], "gateway_health: 500\n")
    has_not(cli("route", "show", "-v")[0], "millrace:", "health")
    top = cli("top", "--batch", "1", "--interval", "1", "--page", "health")[0]
    assert re.search(rf"^{ni} +900 +\d+ +\d+s( +0){{6}}$", top, re.M), top
    assert re.search(rf"^{gw} \(gw-9\) +gw +500 +0 +-( +\d+){{4}}$", top, re.M), top
    has(top, "1 below full health, 0 of these in recovery", "response_timeout_count")
    has_not(top, "REACTOR")
    cli("net", "set", "--nid", ni, "--health", "1000")
    cli("peer", "set", "--nid", gw, "--health", "1000")
    cli("global", "set", "--health-sensitivity", "100", "--retry-count", "2")
    assert json.loads(cli("health", "show", "--json")[0])["nis"]["unhealthy"] == 0


def test_nothing_to_show():
    """Lists of lnetctl that are empty here print nothing and succeed."""
    for words in ("udsp show", "udsp show --idx 0", "debug recovery -l", "debug recovery --peer", "fault drop show", "fault drop list",
                  "fault delay show", "fault delay list"):
        assert cli(*words.split()) == ("", ""), words
        json.loads(cli("--json", *words.split())[0])


UDSP = """\
udsp:
    - idx: 0
      dst: 10.1.1.[1-5]@tcp
      rte: 127.0.3.7@tcp
    - idx: 1
      src: tcp
      action:
          priority: 0
    - idx: 2
      src: "*@tcp"
      dst: tcp1
    - idx: 3
      dst: tcp1
      action:
          priority: 3
"""


def test_udsp():
    """Selection policies with lnetctl's words and output, docs/protocol/lnet-core.md §8.3; §12.2 tests 400 to 404."""
    assert cli("udsp", "add", "--src", "tcp") == cli("udsp", "add", "-d", "tcp1", "-p", "9") == ("", "")
    assert cli("udsp", "add", "-s", "*@tcp", "-d", "tcp1", "-i", "1") == ("", "")
    assert cli("udsp", "add", "--dst", "10.1.1.[1-5]@tcp", "--rte", "127.0.3.7@tcp", "--idx", "0") == ("", "")
    assert cli("udsp", "add", "--dst", "tcp1", "--priority", "3") == ("", "")  # replaced
    has(cli("udsp", "add", "--dst", "tcp1", "--priority", "3", status=1)[1], "errno: -114")  # -EALREADY
    assert cli("udsp", "show") == (UDSP, ""), cli("udsp", "show")
    assert cli("udsp", "show", "--idx", "-1")[0] == UDSP
    assert cli("udsp", "show", "-i", "1")[0] == "udsp:\n    - idx: 1\n      src: tcp\n      action:\n          priority: 0\n"
    for bad in (("--rte", "127.0.3.7@tcp"), ("-s", "*@tcp", "-r", "127.0.3.7@tcp"), ("-s", "*@tcp", "-d", "tcp1", "-r", "127.0.3.7@tcp"), (),
                ("-s", "tcp", "-d", "tcp1"), ("-s", "nonsense"), ("-s", "*@tcp", "-d", "tcp2", "-p", "1"), ("-d", "tcp", "-r", "tcp1")):
        has(cli("udsp", "add", *bad, status=1)[1], "errno: -22")
    cli("udsp", "add", "-s", "tcp2", "-p", "-1", status=1)
    cli("udsp", "del", status=1)
    cli("udsp", "del", "--all", "--idx", "0", status=1)
    has(cli("udsp", "del", "--idx", "4", status=1)[1], "errno: -2\n")
    shown = cli("net", "show", "--net", "tcp", "-v", "4")[0]
    has(shown, "net priority: 0\n", "nid priority: -1\n")
    exported = cli("export")[0]
    has(exported, UDSP)
    cli("udsp", "del", "--idx", "0")
    assert cli("udsp", "show")[0].count("idx") == 3 and "rte" not in cli("udsp", "show")[0]
    cli("udsp", "del", "--idx", "-1")
    assert cli("udsp", "show") == ("", "")
    has_not(cli("net", "show", "--net", "tcp", "-v", "4")[0], "net priority: 0\n")
    cli("config", "apply", "--merge", "-", stdin=UDSP)
    assert cli("udsp", "show")[0] == UDSP
    cli("import", "--del", stdin=UDSP)
    assert cli("udsp", "show") == ("", "")
    cli("import", stdin=exported)
    has(cli("import", "--show", stdin="udsp: [{src: tcp}]\n")[0], UDSP)
    assert cli("udsp", "show")[0] == UDSP
    cli("udsp", "del", "--all")
    assert cli("udsp", "show") == ("", "")


def test_udsp_round_trip():
    """What udsp show, export, export --backup and config show print imports to the same policies in the same order, §8.3, §10.7."""
    dice = random.Random(8)
    src, nids = ["tcp", "tcp1", "o2ib", "127.0.3.2@tcp"], ["*@tcp", "10.1.1.[1-5]@tcp", "10.[0-7/2].*.*@o2ib1", "127.0.3.7@tcp"]
    for _ in range(6):
        kinds = {}
        while len(kinds) < 6:
            kind = dice.choice((["-s", dice.choice(src)], ["-d", dice.choice(src + nids)], ["-s", dice.choice(nids), "-d", dice.choice(src)],
                                ["-d", dice.choice(nids), "-r", dice.choice(nids)]))
            priority = ["-p", str(dice.randrange(1 << 31))] if len(kind) == 2 and dice.random() < 0.7 else []
            if kinds.setdefault(str(kind), kind) is kind:  # another one with the same NIDs may be refused
                cli("udsp", "add", *kind, *priority, *(["-i", str(dice.randrange(4))] if dice.random() < 0.5 else []))
        shown = cli("udsp", "show")[0]
        exported, backup = cli("export")[0], cli("export", "--backup")[0]
        assert shown.count("- idx: ") == 6 and exported.endswith(shown) and backup.endswith(shown), (shown, backup)
        document = cli("config", "show")[0]
        for text, command in ((shown, "import"), (exported, "import --add"), (backup, "config apply --merge -"), (document, "config apply -")):
            cli("import", "--del", stdin=shown)
            assert cli("udsp", "show") == ("", "")
            cli(*command.split(), stdin=text)
            assert cli("udsp", "show")[0] == shown, (command, shown)
        cli("udsp", "del", "--all")


def test_udsp_info():
    """What the policies say of a peer NI, docs/protocol/lnet-core.md §8.3, at verbosity 4 and no lower."""
    cli("peer", "add", "--prim_nid", "10.9.0.1@o2ib")
    for policy in (("-d", "*@o2ib", "-r", "127.0.3.9@tcp"), ("-s", "127.0.3.2@tcp", "-d", "o2ib"), ("-d", "o2ib", "-p", "4"),
                   ("-d", "10.9.*.*@o2ib", "-p", "6")):
        cli("udsp", "add", *policy)
    info = json.loads(cli("--json", "peer", "show", "--nid", "10.9.0.1@o2ib", "-v", "4")[0])["peer"][0]["peer ni"][0]["udsp info"]
    assert info == {"net priority": 4, "nid priority": 6, "Preferred gateway NIDs": {"NID-0": "127.0.3.9@tcp"},
                    "Preferred source NIDs": {"NID-0": "127.0.3.2@tcp"}}, info
    has(cli("peer", "show", "--nid", "10.9.0.1@o2ib", "-v", "4")[0], "Preferred gateway NIDs:\n", "NID-0: 127.0.3.9@tcp")
    has_not(cli("peer", "show", "--nid", "10.9.0.1@o2ib", "-v", "3")[0], "udsp info")
    cli("udsp", "del", "--all")
    info = json.loads(cli("--json", "peer", "show", "--nid", "10.9.0.1@o2ib", "-v", "4")[0])["peer"][0]["peer ni"][0]["udsp info"]
    assert info == {"net priority": -1, "nid priority": -1}, info
    cli("peer", "del", "--prim_nid", "10.9.0.1@o2ib")


def test_param():
    """Tables of lctl: the columns are those of recorded kernel nodes."""
    with lzma.open(os.path.join(OUTPUTS, "B-client.txt.xz"), "rt", encoding="utf-8", errors="replace") as f:
        recorded = f.read()

    def of_kernel(name):
        return re.search(rf"^\$ cat /sys/kernel/debug/lnet/{name}\n(.*?)^\[rc=0\]$", recorded, re.M | re.S).group(1).splitlines()

    for name, head in (("nis", 0), ("peers", 0), ("routers", 0), ("routes", 1), ("buffers", 0)):
        assert cli("param", name)[0].splitlines()[head] == of_kernel(name)[head], name
        json.loads(cli("param", name, "--json")[0])
    assert cli("param", "list_nids")[0] == "127.0.3.2@tcp\n127.0.3.3@tcp1\n"
    rows = cli("param", "nis")[0].splitlines()
    assert rows[1:4:2] == ["0@lo                         up     -    -    0    0     0     0     0",
                           "127.0.3.3@tcp1               up     -    -    8    0   256   256   256"], rows
    assert cli("param", "routers")[0].splitlines()[1] == "-          1  down 127.0.3.9@tcp"
    assert cli("param", "buffers")[0].splitlines()[1] == "    0    16      16      16"
    assert len(cli("param", "stats")[0].split()) == len(of_kernel("stats")[0].split()) == 11
    # the figures of the recorded node come out as its kernel printed them
    routes = {"route": [{"net": "tcp1", "hop": 1, "priority": 0, "state": "up", "gateway": "192.168.10.3@tcp"}]}
    fake = Fake(lambda m, p: routes if m == "route_get" else {"state": "off"})
    assert fake.run("param", "routes").splitlines() == of_kernel("routes")
    rows = {"peer": [{"peer ni": [{"nid": "192.168.10.3@tcp", "refcount": 1, "state": "up", "max_ni_tx_credits": 8,
                                   "available_rtr_credits": 8, "min_rtr_credits": 8, "available_tx_credits": 8, "min_tx_credits": 0,
                                   "tx_q_num_of_buf": 0}]}]}
    assert Fake(lambda m, p: rows).run("param", "peers").splitlines()[1] == of_kernel("peers")[2]
    nis = {"net": [{"net type": "tcp", "local NI(s)": [{"nid": "192.168.10.1@tcp", "status": "up", "tunables": {"peer_credits": 8},
                   "millrace": {"max_tx_credits": 256, "available_tx_credits": 256, "min_tx_credits": 247}}]}]}
    kernel = of_kernel("nis")[2].replace("   -1    1", "    -    -")
    assert Fake(lambda m, p: nis).run("param", "nis").splitlines()[1] == kernel
    has(cli("param", "nosuch", status=2)[1], "list_nids|nis|peers|routers")


def test_wrong_words():
    for line, say in (("net frob", "is not a command"), ("route add --net tcp9", "--gateway is missing"),
                      ("route add --hop x --net a --gateway b", "--hop: 'x' is not a whole number"),
                      ("net show word", "unexpected argument 'word'"), ("net show --frob", "unknown option --frob"),
                      ("route show --net", "wants a value"), ("completion fish", "none of bash|zsh"), ("rpc", "name a method"),
                      ("rpc net_get net", "is not name=value"), ("rpc net_get {", "no JSON"),
                      ("import /nonexistent", "cannot be read"), ("config apply", "name FILE")):
        has(cli(*line.split(), status=2)[1], say)


def test_groups():
    """A first word alone lists its commands, a misspelt one brings a suggestion, `help` is --help."""
    for words, status in ((["stats"], 2), (["net"], 2), (["set", "--help"], 0), (["help", "set"], 0), (["route", "-h"], 0)):
        out, err = cli(*words, status=status)
        group = words[1] if words[0] == "help" else words[0]
        listed = [c for c in commands() if c.startswith(group + " ")]
        has(err if status else out, f"usage: millrace {group} COMMAND", *(f"\n  {c}" for c in listed))
        has_not(err, "is not a command")
    assert cli("help")[0] == cli("--help")[0]
    assert cli("help", "net", "add")[0] == cli("net", "add", "--help")[0]
    for words, near in ((["net", "shwo"], "net show"), (["nett"], "net"), (["staus", "show"], "stats show"), (["pin"], "ping")):
        has(cli(*words, status=2)[1], f"'{' '.join(words)}' is not a command; did you mean '{near}'?")
    has_not(cli("xyzzyplugh", status=2)[1], "did you mean")
    has(cli("--help")[0], "\n  ping NID[,NID...]")


def test_no_effect():
    """A setting that is kept without effect: the command says so."""
    has(cli("set", "numa_range", "1")[1], "millrace: numa_range is kept and shown, and has no effect in this version\n")
    assert cli("set", "max_interfaces", "20") == ("", "")
    since = "has no effect, as on kernel nodes since Lustre 2.17"
    has(cli("set", "router_sensitivity", "99")[1], f"millrace: router_sensitivity is kept and shown, and {since}\n")
    has(cli("global", "set", "--recovery-interval", "3")[1], "recovery_interval is kept")
    assert cli("set", "router_ping_timeout", "51")[1] == "" and cli("set", "discovery", "1")[1] == ""
    for options, said in (([], ""), (["--peer-timeout", "90"], "millrace: peer_timeout is kept and shown, and has no effect in this version\n")):
        assert cli("net", "add", "--net", "tcp88", "--nid", "127.0.0.88@tcp88", *options)[1] == said
        cli("net", "del", "--net", "tcp88")
    has(cli("config", "apply", "--merge", "-", stdin="global: {router_sensitivity: 98}\n")[1], "global.router_sensitivity: " + since)
    for name, value in (("numa_range", "0"), ("router_sensitivity", "100"), ("max_interfaces", "200"), ("recovery_interval", "1"),
                        ("router_ping_timeout", "50")):
        cli("set", name, value)


def test_words_of_errors():
    """Errors speak of commands and options, those of `rpc` of methods and parameters."""
    err = cli("net", "show", "--net", "tcp9", status=1)[1]
    has(err, "`millrace net show` without options lists the nets")
    has(cli("rpc", "net_get", "net=tcp9", status=1)[1], "net_get without parameters lists the nets")
    has(cli("set", "tiny_buffers", "-5", status=1)[1], "descr: tiny_buffers is out of range")
    has(cli("buffers", "set", "--tiny", "-5", status=1)[1], "--tiny is out of range")
    has(cli("rpc", "buffers_set", "tiny=-5", status=1)[1], "tiny is out of range")
    has_not(cli("drops", "--explain", "--all")[0], "peer_get", "route_get")


def test_rpc():
    assert json.loads(cli("rpc", "version")[0])["program"] == "millraced"
    assert [n["net type"] for n in json.loads(cli("rpc", "net_get", "net=tcp1")[0])["net"]] == ["tcp1"]
    assert json.loads(cli("rpc", "net_get", '{"net": "tcp1"}')[0]) == json.loads(cli("rpc", "net_get", '["tcp1"]')[0])
    cli("rpc", "buffers_set", "large=3")
    assert json.loads(cli("rpc", "buffers_get")[0])["buffers"]["large"] == 3
    cli("rpc", "buffers_set", "large=2")
    has(cli("rpc", "no_such_method", "a=1", status=1)[1], "Method not found")
    has(cli("--json", "rpc", "net_get", "net=tcp9", status=1)[1], '"code": -3', '"errno": -3')


def test_json():
    """Before or behind the command, and whole."""
    a, b = cli("--json", "route", "show")[0], cli("route", "show", "--json")[0]
    assert a == b and json.loads(a)["route"][0]["priority"] == 2
    has(a, '"gateway": "127.0.3.9@tcp"')
    has_not(a, "gw-9")
    assert json.loads(cli("--json", "peer", "list")[0])["peer list"]
    assert json.loads(cli("--json", "export")[0])["net"]


def test_every_show():
    """What only looks and wants nothing: works, in both forms."""
    looking = [c for c in commands() if c.endswith((" show", " list", " status"))] + ["version", "drops", "waits", "export"]
    assert len(looking) > 14, looking
    for command in looking:
        cli(*command.split())
        json.loads(cli(*command.split(), "--json")[0])


def test_hosts():
    """Where a NID has a name, it is a comment."""
    has(cli("route", "show")[0], "gateway: 127.0.3.9@tcp # gw-9\n")
    has(cli("peer", "list")[0], "nid: 127.0.3.9@tcp # gw-9\n")


# ---- output

def test_output_lost():
    """Who does not get the output is told by the exit status."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        for args in (["--help"], ["--version"], ["-s", SOCKET, "net", "show"], ["-s", SOCKET, "--json", "stats", "show"]):
            p = subprocess.run([MILLRACE, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=DEADLINE)
            assert p.returncode == 3, (args, p.returncode)
            has(p.stderr, "the output cannot be written")
    p = subprocess.run(["sh", "-c", '"$0" -s "$1" net show >&-', MILLRACE, SOCKET], stderr=subprocess.PIPE, timeout=DEADLINE)
    assert p.returncode == 3, p
    for ignored in False, True:
        read, write = os.pipe()
        os.close(read)
        p = subprocess.Popen([MILLRACE, "-s", SOCKET, "stats", "show"], stdout=write, stderr=subprocess.PIPE,
                             restore_signals=not ignored)
        os.close(write)
        p.communicate(timeout=DEADLINE)
        assert p.returncode == (3 if ignored else -signal.SIGPIPE), p.returncode
    path = os.path.join(DIR.name, "nodir", "file")
    has(cli("export", path, status=3)[1], "cannot be written")


def test_server_lost():
    """A server that breaks off, or answers what is none."""
    path = os.path.join(DIR.name, "fake")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen()

        def serve(answer):
            conn = s.accept()[0]
            conn.recv(65536)
            conn.sendall(answer)
            conn.close()

        for answer, say in ((b"", "closed the connection"), (b"nonsense\n", "no answer"), (b'{"id": 1}\n', "no answer"),
                            (b'{"jsonrpc": "2.0", "id": 1, "result": {"net": ', "closed the connection")):
            thread = threading.Thread(target=serve, args=(answer,))
            thread.start()
            has(run(MILLRACE, "-s", path, "stats", "show", status=3)[1], say)
            thread.join()
        # results of other forms than ours are shown or refused, not followed blindly
        for result in (b"[]", b"null", b'"x"', b'{"net": 1}', b'{"net": [1, {"local NI(s)": [2, {"tunables": 3}]}]}'):
            thread = threading.Thread(target=serve, args=(b'{"jsonrpc": "2.0", "id": 1, "result": %s}\n' % result,))
            thread.start()
            p = subprocess.run([MILLRACE, "-s", path, "net", "show", "-v", "4"], capture_output=True, timeout=DEADLINE)
            assert p.returncode in (0, 1, 3), (result, p)
            thread.join()
    has(run(MILLRACE, "-s", path, "net", "show", status=3)[1], "is millraced running?")
    has(run(MILLRACE, "-s", "x" * 200, "net", "show", status=3)[1], "characters")


class Fake(FakeDaemon):
    def __init__(self, answer):
        super().__init__(os.path.join(DIR.name, "answers"), answer)

    def run(self, *args):
        return self.serve(lambda: run(MILLRACE, "-s", self.path, *args)[0])


def peer(number):
    return {"primary nid": f"10.0.0.{number}@tcp", "Multi-Rail": False, "peer state": 0,
            "peer ni": [{"nid": f"10.0.0.{number}@tcp", "state": "up", "max_ni_tx_credits": 8, "min_rtr_credits": -2,
                         "available_tx_credits": -number, "millrace": {"tx_waiting": number}}]}


def pages(method, params):
    """Five peers in pages of two; hosts of one."""
    if method == "names_get":
        return {"names": {"10.0.0.2@tcp": "mds1"}}
    first = int(params.get("cursor", "1"))
    page = {"peer": [peer(n) for n in range(first, min(first + 2, 6))]}
    return page if first + 2 > 5 else {**page, "cursor": str(first + 2)}


def test_pages():
    """A list that comes in pages is printed as one; credits below 0 as lnetctl has them."""
    fake = Fake(pages)
    out = fake.run("peer", "show", "-v")
    assert out.count("peer:\n") == 1 and out.startswith("peer:\n-     primary nid: 10.0.0.1@tcp\n"), out
    assert re.findall(r"primary nid: 10.0.0.(\d)", out) == list("12345")
    has(out, "min_rtr_credits: 4294967294\n", "available_tx_credits: 4294967291\n")
    has_not(out, "tx_waiting", "cursor", "peer state")
    asked = [params.get("cursor") for method, params in fake.asked if method == "peer_get"]
    assert asked == [None, "3", "5"], fake.asked
    has(out, "primary nid: 10.0.0.2@tcp # mds1\n", "nid: 10.0.0.2@tcp # mds1\n")
    assert [m for m, _ in fake.asked].count("names_get") == 1, fake.asked
    has(Fake(pages).run("peer", "show", "-v", "3", "--millrace"), "tx_waiting: 5\n", "peer state: 0\n")
    rows = json.loads(Fake(pages).run("--json", "peer", "show"))
    assert list(rows) == ["peer"] and [r["peer ni"][0]["available_tx_credits"] for r in rows["peer"]] == [-1, -2, -3, -4, -5]
    out = Fake(pages).run("peer", "show", "--limit", "2")
    has(out, "10.0.0.2@tcp", 'cursor: "3"\n')
    has_not(out, "10.0.0.3@tcp")
    assert len(re.findall("nid: ", Fake(pages).run("peer", "list"))) == 5
    assert Fake(lambda m, p: {"peer": []}).run("peer", "show") == ""
    # the middle page is empty, for what was on it is gone
    out = Fake(lambda m, p: {"peer": [peer(5)] if p.get("cursor") == "b" else [],
                             **({} if p.get("cursor") == "b" else {"cursor": "b" if p else "a"})}).run("peer", "show")
    has(out, "peer:\n-     primary nid: 10.0.0.5@tcp\n")


WHY = {"why": {"nid": "10.2.0.7@tcp2", "verdict": "forwarded", "text": "goes to its gateway", "next_hop": "10.0.0.2@tcp",
               "gateway": "10.0.0.2@tcp", "ni": "10.0.0.1@tcp", "peer_ni": {"nid": "10.0.0.2@tcp", "state": "up"},
               "routes": [{"net": "tcp2", "gateway": "10.0.0.2@tcp", "hop": 1, "priority": 0, "state": "up",
                           "verdict": "chosen", "text": "the lowest priority"},
                          {"net": "tcp2", "gateway": "10.0.0.3@tcp", "hop": 1, "priority": 5, "state": "up",
                           "verdict": "priority", "text": "5 is higher than 0"}],
               "nis": []}}


CONN = {"state": "established", "local": "10.0.0.1", "lport": 988, "remote": "fd00::2", "rport": 1023, "srtt_us": 1234,
        "rto_us": 204000, "cwnd": 123456, "in_flight": 9999, "resent": 3, "bytes_in": 1 << 40, "bytes_out": 0,
        "limited_window_us": 100, "limited_cwnd_us": 5000, "limited_port_us": 0, "age_us": 20000}
NEIGHBOUR = {"address": "10.0.0.2", "interface": "eth0", "mac": "02:00:00:00:00:01", "state": "reachable", "age_ms": 1500,
             "reactor": 1}
PORT = {"name": "eth0", "device": "eth0", "backend": "packet", "link": "up", "queues": [{"queue": 0}], "interfaces": []}


def test_ports():
    """Tables, over pages too; all of it with -v and --json."""
    def pages(method, params):
        more = params.get("cursor") is None
        return {"tcp": [CONN], **({"cursor": "0.1"} if more else {})}
    out = Fake(pages).run("tcp", "show").splitlines()
    assert len(out) == 3 and out[0].split()[:3] == ["STATE", "LOCAL", "REMOTE"], out
    assert out[1].split() == ["established", "10.0.0.1:988", "[fd00::2]:1023", "1.23", "204", "123k", "9999", "3", "1099G", "0",
                              "cwnd", "25%"], out[1]
    has(Fake(pages).run("tcp", "show", "-v"), "tcp:\n", "- state: established\n", "lport: 988\n")
    assert json.loads(Fake(pages).run("tcp", "show", "--json")) == {"tcp": [CONN, CONN]}
    out = Fake(lambda m, p: {"arp": [NEIGHBOUR, {**NEIGHBOUR, "state": "incomplete", "mac": None}]}).run("arp", "show").splitlines()
    assert out[1].split() == ["10.0.0.2", "eth0", "02:00:00:00:00:01", "reachable", "1.5", "s", "1"], out
    assert out[2].split()[:4] == ["10.0.0.2", "eth0", "-", "incomplete"], out
    for words, key in ((("tcp", "show"), "tcp"), (("arp", "show"), "arp"), (("port", "show"), "port"), (("port", "drops"), "drops")):
        assert Fake(lambda m, p: {key: []}).run(*words) == "", words        # pylint: disable=cell-var-from-loop
    out = Fake(lambda m, p: {"port": [dict(PORT)]}).run("port", "show")
    has(out, "- name: eth0\n", "link: up\n")
    has_not(out, "queues", "backend")
    has(Fake(lambda m, p: {"port": [dict(PORT)]}).run("port", "show", "-v"), "queues", "backend: packet\n")
    sent = []
    Fake(lambda m, p: sent.append((m, p)) or {"set": []}).run("tamper", "set", "-p", "eth0", "--loss", "0.5", "--delay-ms", "20",
                                                              "--direction", "in", "--payload")
    assert sent == [("tamper_set", {"port": "eth0", "loss": 0.5, "delay_ms": 20.0, "direction": "in", "payload": True})], sent


def test_views():
    """What is shown in another form than YAML, or not whole."""
    out = Fake(lambda m, p: WHY if m == "why" else {"names": {"10.0.0.2@tcp": "gw"}}).run("why", "10.2.0.7@tcp2")
    has(out, "to        10.2.0.7@tcp2\n", "verdict   forwarded: goes to its gateway\n", "gateway   10.0.0.2@tcp",
        "routes\n", "10.0.0.3@tcp", "priority: 5 is higher than 0\n")
    assert json.loads(Fake(lambda m, p: WHY).run("why", "10.2.0.7@tcp2", "--json")) == WHY
    has(cli("why", "1.2.3.4@tcp9")[0], "verdict   dropped (no_route): ")
    rows = [{"name": "a", "before": 1, "after": 1}, {"name": "b", "before": 1, "after": 3, "delta": 2}]
    out = Fake(lambda m, p: {"seconds": 1.0, "counters": list(rows)}).run("counters", "x*", "--seconds", "1")
    has(out, "seconds: 1.0\n", "- name: b\n")
    has_not(out, "name: a\n")
    drops = {"drops": [{"name": "a", "count": 0}, {"name": "b", "count": 2}]}
    assert Fake(lambda m, p: drops).run("drops") == "drops:\n    - name: b\n      count: 2\n"
    has(Fake(lambda m, p: drops).run("drops", "--all"), "name: a\n")
    # a host cannot begin a line of its own
    out = Fake(lambda m, p: {"names": {"1.1.1.1@tcp": "x\ny: 1"}} if m == "names_get" else
               {"peer": [{"primary nid": "1.1.1.1@tcp"}]}).run("peer", "show")
    assert "\ny:" not in out, out


# ---- export

def test_export():
    path = os.path.join(DIR.name, "export.yaml")
    cli("export", "--backup", path)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert text == cli("export", "--backup")[0]
    has(text, "nid: 127.0.3.2@tcp", "net: o2ib", "routing:\n    enable: 1\n", "buffers:\n    tiny: 16\n")
    has_not(text, "status", "statistics", "net type: lo", "    timeout: ", "state")
    has(cli("export")[0], "net type: lo", "sent_stats:", "cpt[0]")
    has(run(MILLRACED, "--check", "-c", path)[0], "nid: 127.0.3.3@tcp1")
    out = cli("import", "--show", stdin="net:\n  - net type: tcp1\nbuffers: {tiny: 1}\n")[0]
    has(out, "net type: tcp1", "buffers:\n")
    has_not(out, "net type: tcp\n", "\nroute:", "\npeer:")


# ---- completion

def complete(*words):
    """[(candidate, what it means)]"""
    out = run(MILLRACE, "__complete", "-s", SOCKET, *words)[0]
    return [tuple(line.split("\t")) for line in out.splitlines()]


def candidates(*words):
    return [c[0] for c in complete(*words)]


def test_complete():
    assert {"net", "route", "set", "ping"} <= set(candidates("")) and "__complete" not in candidates("")
    assert set(candidates("")) == {c.split()[0] for c in commands()}
    assert set(candidates("route", "")) == {"add", "del", "show"}
    assert candidates("route", "s") == ["show"]
    assert ("--gateway", "gateway of the route") in complete("route", "del", "-")
    assert "--net" not in candidates("route", "del", "--net", "o2ib", "-")
    assert candidates("completion", "z") == ["zsh"]
    assert candidates("nosuch", "") == []
    assert candidates("import", "")[0] == ":file" and candidates("--socket", "") == [":file"]
    assert "large_buffers" in candidates("set", "")
    assert "net_get" in candidates("rpc", "net_") and candidates("rpc", "net_get", "") == ["net="]
    assert complete("net", "show", "--")[0][1]
    # what the daemon knows
    assert candidates("route", "del", "--gateway", "") == ["127.0.3.9@tcp"]
    assert candidates("route", "del", "--gateway=127") == ["--gateway=127.0.3.9@tcp"]
    assert candidates("route", "del", "-n", "") == ["o2ib"]
    assert candidates("net", "show", "--net", "tcp") == ["tcp", "tcp1"]
    assert candidates("rpc", "net_get", "net=tcp1") == ["net=tcp1"]
    assert "127.0.3.9@tcp" in candidates("peer", "show", "--nid", "127.0.3.9")
    assert candidates("ping", "a,127.0.3.9") == ["a,127.0.3.9@tcp"]
    assert candidates("ping", "--source", "127.0.3.3") == ["127.0.3.3@tcp1"]
    # without a daemon: nothing, and at once
    start = time.monotonic()
    assert run(MILLRACE, "__complete", "-s", "/nonexistent", "route", "del", "--gateway", "")[0] == ""
    assert time.monotonic() - start < 10


def test_complete_hanging():
    """A daemon that takes no connection, or does not answer, does not hold the shell."""
    path = os.path.join(DIR.name, "hang")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        s.listen(0)
        taken = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for one in taken:
            one.setblocking(False)
            one.connect_ex(path)
        start = time.monotonic()
        p = subprocess.run([MILLRACE, "__complete", "-s", path, "route", "del", "--gateway", ""], capture_output=True,
                           timeout=DEADLINE)
        assert p.stdout == b"" and time.monotonic() - start < 30, p
        for one in taken:
            one.close()


BASH = r"""
source <("$M" completion bash)
COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line}
    _millrace "$M" 2>/dev/null
    printf '%s\n' "${COMPREPLY[*]}"
done
"""


def test_bash():
    lines = {f"millrace -s {SOCKET} route del --gateway 127.0.3.9@t": "tcp",
             f"millrace -s {SOCKET} route del --gateway=127": "127.0.3.9@tcp",
             f"millrace -s {SOCKET} net show --net tcp": "tcp tcp1",
             "millrace route ": "add del show", "millrace completion z": "zsh",
             f"millrace import {DIR.name}/conf": f"{DIR.name}/config.yaml", "millrace nosuch ": ""}
    out = run("bash", "-c", BASH, stdin="".join(f"{line}\n" for line in lines), env={**os.environ, "M": MILLRACE})[0]
    assert out.splitlines() == list(lines.values()), out
    run("bash", "-n", "-c", run(MILLRACE, "completion", "bash")[0])


def test_bash_typed():
    """In a real bash: the Tab key."""
    t = Terminal(MILLRACE, "bash", "--norc", "--noprofile", "-i")
    try:
        t.type(f"bind 'set enable-bracketed-paste off'; source <({MILLRACE} completion bash); echo rea''dy\n")
        t.wait("ready")
        t.type("millrace completion z\t; echo do''ne\n")
        t.wait("completion zsh")
        t.wait("#compdef millrace")
        t.wait("done")
        t.type(f"millrace -s {SOCKET} route del --net nosuch --gate\t127\t; echo do''ne\n")
        t.wait("127.0.3.9@tcp")  # nobody typed that
        t.wait("done")
    finally:
        t.close()


def test_zsh():
    """In a real zsh: the Tab key."""
    t = Terminal(MILLRACE, "zsh", "-f", "-i")
    try:
        t.type(f"autoload -U compinit; compinit -u -D; source <({MILLRACE} completion zsh); echo rea''dy\n")
        t.wait("ready")
        t.type("millrace completion z\t; echo do''ne\n")
        t.wait("completion zsh")
        t.wait("#compdef millrace")
        t.wait("done")
        t.type(f"millrace -s {SOCKET} route del --net nosuch --gate\t127\t; echo do''ne\n")
        t.wait("127.0.3.9@tcp")  # nobody typed that
        t.wait("done")
    finally:
        t.close()


# ---- import

def exports():
    """(name, text) of each export that a kernel node was recorded with."""
    for name in sorted(os.listdir(OUTPUTS)):
        with lzma.open(os.path.join(OUTPUTS, name), "rt", encoding="utf-8", errors="replace") as f:
            text = f.read()
        for match in re.finditer(r"^\$ lnetctl (export[^\n]*)\n(.*?)^\[rc=0\]$", text, re.M | re.S):
            yield f"{name} {match.group(1)}", match.group(2)


class Daemon:
    def __init__(self, name, config, *args):
        self.socket = os.path.join(DIR.name, name)
        path = self.socket + ".yaml"
        with open(path, "w", encoding="utf-8") as f:
            f.write(config.replace(SOCKET, self.socket))
        self.log = open(self.socket + ".log", "w+", encoding="utf-8")
        self.proc = subprocess.Popen([MILLRACED, "-c", path, *args], stderr=self.log)
        end = time.monotonic() + DEADLINE
        while subprocess.run([MILLRACE, "-s", self.socket, "version"], capture_output=True).returncode:
            self.log.seek(0)
            assert self.proc.poll() is None and time.monotonic() < end, self.log.read()
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proc.kill()
        self.proc.wait()
        self.log.close()


def other_config():
    """Nets and addresses that neither the first daemon nor a recorded node has; no routes."""
    config = CONFIG.replace("tcp1", "tcp78").replace("@tcp\n", "@tcp77\n").replace("net type: tcp\n", "net type: tcp77\n")
    return re.sub(r"route:\n.*\n", "", config.replace("127.0.3.2", "127.0.3.4").replace("127.0.3.3", "127.0.3.5"))


def test_configure():
    """`lnet configure` starts a node that waits for it, and has nothing to do for one that runs."""
    with Daemon("waiting", other_config(), "--wait-for-rpc") as d:
        run(MILLRACE, "-s", d.socket, "net", "show", status=1)
        run(MILLRACE, "-s", d.socket, "lnet", "configure", "--all")
        has(run(MILLRACE, "-s", d.socket, "net", "show")[0], "127.0.3.4@tcp77")
        run(MILLRACE, "-s", d.socket, "lnet", "configure")


def test_import_of_kernel_nodes():
    """Each recorded export of a kernel node is accepted by a node that has none of its nets."""
    count = 0
    with Daemon("empty", other_config()) as d:
        for name, text in exports():
            out = run(MILLRACE, "-s", d.socket, "import", "--dry-run", stdin=text)[0]
            has(out, "+ net[")
            count += 1
        # what a file adds, it removes again
        has(run(MILLRACE, "-s", d.socket, "import", stdin="route: [{net: tcp5, gateway: 127.0.3.9@tcp77}]\n")[1], "")
        has(run(MILLRACE, "-s", d.socket, "route", "show")[0], "net: tcp5\n")
        run(MILLRACE, "-s", d.socket, "import", "--del", stdin="route: [{net: tcp5, gateway: 127.0.3.9@tcp77}]\n")
        assert run(MILLRACE, "-s", d.socket, "route", "show")[0] == ""
    assert count >= 14, count


def test_round_trip():
    """What is exported is imported, and then there is nothing left to import."""
    for args in ["--backup"], []:
        path = os.path.join(DIR.name, "round.yaml")
        cli("export", *args, path)
        cli("import", path)
        assert cli("import", "--dry-run", path)[0] == "", args
        has(cli("net", "show")[0], "127.0.3.2@tcp", "127.0.3.3@tcp1")


def test_convert():
    """The files of a kernel node as a configuration: a file, a folder, or standard input, without a daemon."""
    folder = os.path.join(DIR.name, "modprobe.d")
    os.mkdir(folder)
    path = os.path.join(folder, "lustre.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write('options lnet networks="tcp7(lo)" routes="o2ib7 127.0.0.9@tcp7" forwarding=enabled keepalive=60\n')
    with open(os.path.join(folder, "zz.conf"), "w", encoding="utf-8") as f:
        f.write("options lnet accept_port=1988\n")
    with open(os.path.join(folder, "README"), "w", encoding="utf-8") as f:
        f.write('"options lnet')

    def convert(*args, text=""):
        p = subprocess.run([MILLRACE, "-s", "/nonexistent", "convert", *args], input=text, capture_output=True, text=True, check=False)
        assert p.returncode == 0, p
        return p.stdout, p.stderr
    out, err = convert(path)
    has(out, "net type: tcp7", "gateway: 127.0.0.9@tcp7")
    has(err, f"{path}:1: ignored: lnet.keepalive: is not an option of this module\n")
    assert convert("-", text=open(path, encoding="utf-8").read())[0] == out.replace(path, "/dev/stdin")
    has(convert(folder)[0], "net type: tcp7", "accept_port: 1988")
    with open(path, "w", encoding="utf-8") as f:
        f.write(out)
    has(cli("config", "diff", path)[0], "+ net[tcp7", "+ route[o2ib7")


def test_all_errors():
    """Each error of a file that is refused is printed, however many there are."""
    path = os.path.join(DIR.name, "bad.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("millrace:\n" + "".join(f"  xyzzyplugh_{i}: {i}\n" for i in range(40)))
    for command in ("apply", "diff"):
        err = cli("config", command, path, status=1)[1]
        has(err, *(f"bad.yaml:{i + 2}: millrace.xyzzyplugh_{i}: unknown key" for i in range(40)))


def test_config():
    path = os.path.join(DIR.name, "new.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(cli("config", "show")[0].replace("hop: 1", "hop: 7"))
    has(cli("config", "diff", path)[0], "o2ib", "7")
    has(cli("config", "apply", "--dry-run", path)[0], "o2ib", "7")
    has(cli("route", "show", "-v")[0], "hop: 1\n")
    assert cli("config", "diff", "--exit-code", path, status=1)[0] == cli("config", "diff", path)[0]
    out, err = cli("config", "apply", path, "--confirm", "600")
    has(err, "config confirm")
    has(out, "o2ib", "7")
    assert cli("config", "diff", "--exit-code", path)[0] == ""
    has(cli("config", "diff", "--exit-code", "-", status=2, stdin="nett: x\n")[1], "unknown key")
    has(cli("route", "show", "-v")[0], "hop: 7\n")
    has(cli("config", "status")[0], "pending_confirm_s: ")
    cli("config", "rollback")
    has(cli("route", "show", "-v")[0], "hop: 1\n")
    cli("config", "apply", path, "--confirm", "600")
    cli("config", "confirm")
    has(cli("config", "confirm", status=1)[1], "confirm:\n    - config:\n          errno: -2\n")
    has_not(cli("config", "status")[0], "pending_confirm_s")
    assert cli("config", "diff", path)[0] == ""
    cli("route", "del", "--net", "o2ib", "--gateway", "127.0.3.9@tcp")
    assert json.loads(cli("config", "diff", "--json", path)[0])["changes"]
    cli("config", "apply", "--merge", path)
    has(cli("route", "show", "-v")[0], "hop: 7\n")
    # saved where this process stands, not millraced
    assert run(MILLRACE, "-s", SOCKET, "config", "save", "saved.yaml", cwd=DIR.name)[1] == ""  # nothing was lost
    assert cli("config", "diff", os.path.join(DIR.name, "saved.yaml"))[0] == ""
    has(cli("config", "show", "--file")[0], "hop: 1")
    cli("config", "save")
    has(cli("config", "show", "--file")[0], "hop: 7")
    has(cli("config", "status")[0], "unsaved: false\n")
    # errors are lines that one can read
    err = cli("config", "apply", "-", status=1, stdin="nett: x\nroute: [{net: y}]\n")[1]
    has(err, "apply:\n    - config:\n          errno: -22\n          descr: |-\n", "\n              stdin:1: nett: unknown key")
    has(cli("config", "diff", "--merge", "--delete", path, status=2)[1], "one of")


def ansible_steps(path):
    """[(command, whether it is for changes alone)] of the role in docs/ansible.md, for a file elsewhere."""
    with open(os.path.join(os.path.dirname(DOCS), "ansible.md"), encoding="utf-8") as f:
        role = f.read().split("```yaml\n")[1].split("```")[0]
    for task in role.split("- name: ")[1:]:
        found = re.search(r"(?:ansible.builtin.command|validate): (.*)", task)
        if found:
            yield found.group(1).replace("/etc/millrace/millrace.yaml", path).replace("%s", path).split(), "when: diff.rc == 1" in task


def test_ansible():
    """The role of docs/ansible.md: the first run brings the router to the state of the file, the second one changes nothing."""
    path = os.path.join(DIR.name, "role.yaml")
    before = cli("config", "show")[0]
    ran = []
    for text, changes in ((before.replace("retry_count: 2", "retry_count: 3"), True), (None, False), (before, True), (None, False)):
        if text:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        diff, revision, count = None, json.loads(cli("config", "status", "--json")[0])["revision"], 0
        for (program, *words), on_change in ansible_steps(path):
            if on_change and diff != 1:
                continue
            where = [MILLRACE, "-s", SOCKET] if program == "millrace" else [MILLRACED]
            p = subprocess.run([*where, *words], capture_output=True, text=True, timeout=DEADLINE)
            if "--exit-code" in words:
                diff = p.returncode
            assert p.returncode < (2 if words[0] in ("config", "status") and words[-1] != "confirm" else 1), (words, p)
            ran.append(program + " " + words[0])
            count += 1
        after = json.loads(cli("config", "status", "--json")[0])
        assert diff == int(changes) and (after["revision"] != revision) == changes and "pending_confirm_s" not in after, (diff, after)
        assert count == (5 if changes else 2), ran
    assert cli("config", "show")[0] == before and set(ran) == {"millraced --check", "millrace config", "millrace status"}, ran


def test_set():
    """Every word of `set` sets what it says."""
    words = [c.split()[1] for c in commands() if c.startswith("set ")]
    assert {"retry_count", "routing", "tiny_buffers", "numa_range", "discovery", "buffer_wait"} <= set(words), words
    cli("set", "retry_count", "3")
    has(cli("global", "show")[0], "    retry_count: 3\n", "    lnd_timeout: 37\n")
    has(cli("set", "transaction_timeout", "3", status=1)[1], "transaction_timeout must be above retry_count")
    has(cli("set", "health_sensitivity", "0")[1], "")
    has(cli("global", "show")[0], "    retry_count: 0\n", "    health_sensitivity: 0\n")
    has(cli("set", "retry_count", "1", status=1)[1], "retry_count must be 0 while health_sensitivity is 0")
    has(cli("global", "set", "--health-sensitivity", "0", "--retry-count", "1", status=1)[1], "retry_count must be 0")
    cli("global", "set", "--health-sensitivity", "100", "--retry-count", "2")
    cli("set", "routing", "0")
    has(cli("routing", "show")[0], "    - enable: 2\n")  # stopping, for as long as others may not know
    cli("set", "routing", "1")
    has(cli("routing", "show")[0], "    - enable: 1\n")
    err = cli("set", "routing", "2", status=1)[1]
    has(err, "set:\n    - routing:\n          errno: -22\n")


def main():
    path = os.path.join(DIR.name, "config.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG)
    with open(os.path.join(DIR.name, "log"), "w+", encoding="utf-8") as log:
        daemon = subprocess.Popen([MILLRACED, "-c", path], stderr=log)
        try:
            end = time.monotonic() + DEADLINE
            while subprocess.run([MILLRACE, "-s", SOCKET, "version"], capture_output=True).returncode:
                log.seek(0)
                assert daemon.poll() is None and time.monotonic() < end, log.read()
                time.sleep(0.02)
            for name, test in list(globals().items()):
                if name.startswith("test_"):
                    test()
                    print(f"ok {name}", flush=True)
            cli("shutdown")
            assert daemon.wait(DEADLINE) == 0
        finally:
            daemon.kill()
            daemon.wait()


main()
