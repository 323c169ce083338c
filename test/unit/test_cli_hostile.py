#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The command millrace against daemons that lie: nothing they say acts on a terminal or a shell, and no list is endless.

usage: test_cli_hostile.py MILLRACE

Exits non-zero at the first failure.
"""

import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_daemon import FakeDaemon, Refusal  # noqa: E402

DEADLINE = 60.0
MILLRACE = os.path.abspath(sys.argv[1])
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
ENV = {**os.environ, "LC_ALL": "C.UTF-8"}

# Clears the screen (C0, and C1 in UTF-8), rings, deletes, goes back to the beginning of its line, begins one of its own
EVIL = "x\x1b[2J\u009b31m\x07\x7f\rforged\nforged: 1"
CONTROL = re.compile("(?!\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f]")     # but ends of lines and tabs
NOT_FOUND = {"code": -32601, "message": "method not found"}


def millrace(answer, *args, status=0):
    """Standard output and error of one command."""
    fake = FakeDaemon(os.path.join(DIR.name, "sock"), answer)
    p = fake.serve(lambda: subprocess.run([MILLRACE, "-s", fake.path, *args], capture_output=True, timeout=DEADLINE, env=ENV))
    out, err = p.stdout.decode(), p.stderr.decode()
    assert p.returncode == status, f"{args} ended with {p.returncode}, not {status}:\n{out}{err}"
    return out, err


def file(text):
    path = os.path.join(DIR.name, "file.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def evil(value):
    """The value with each string in it, keys too, made evil."""
    if isinstance(value, dict):
        return {k: evil(v) for k, v in value.items()} | {EVIL: [EVIL, [EVIL], {EVIL: EVIL}], "0" + EVIL: EVIL}
    if isinstance(value, list):
        return [evil(v) for v in value] + [EVIL, [[EVIL]]]
    return f"{value}{EVIL}" if isinstance(value, str) else value


NI = {"nid": "10.0.0.1@tcp", "status": "up", "interfaces": {"0": "eth0"}, "statistics": {"send_count": 1},
      "tunables": {"peer_credits": 8}}
CANDIDATE = {"net": "tcp2", "gateway": "10.0.0.2@tcp", "hop": 1, "verdict": "chosen", "text": "the lowest priority"}
EVENT = {"seq": 1, "time": 1.5e9, "type": "peer_up", "text": "a peer", "cause": "accepted", "nid": "10.0.0.2@tcp",
         "gateway": "10.0.0.3@tcp", "missed": 3}
ANSWERS = {
    "why": {"why": {"nid": "10.2.0.7@tcp2", "verdict": "dropped", "drop": "no_route", "text": "no route", "remedy": "add one",
                    "next_hop": "10.0.0.2@tcp", "gateway": "10.0.0.2@tcp", "ni": "10.0.0.1@tcp",
                    "peer_ni": {"nid": "10.0.0.2@tcp"}, "routes": [CANDIDATE], "nis": [CANDIDATE]}},
    "names_get": {"names": {n: "host" for n in ("10.0.0.2@tcp", "10.0.0.3@tcp")}},
    "net_get": {"net": [{"net type": "tcp", "local NI(s)": [NI]}]},
    "route_get": {"route": [{"net": "tcp2", "gateway": "10.0.0.2@tcp", "state": "up", "millrace": {"gateway_health": 1}}]},
    "peer_get": {"peer": [{"primary nid": "10.0.0.2@tcp", "peer ni": [{"nid": "10.0.0.2@tcp", "state": "up"}]}]},
    "events_get": {"events": [EVENT, {**EVENT, "time": 1e300}, {**EVENT, "time": -1e300}]},
    "drops_get": {"drops": [{"name": "no_route", "kind": "message", "count": 3, "text": "no route", "remedy": "add one"}]},
    "counters_capture": {"seconds": 1.0, "counters": [{"name": "a", "before": 0, "after": 1, "delta": 1}]},
    "port_get": {"port": [{"name": "eth0", "device": "eth0", "link": "up", "interfaces": [{"name": "eth0"}]}]},
    "tcp_get": {"tcp": [{"state": "established", "local": "10.0.0.1", "lport": 988, "remote": "fd00::2", "rport": 1023,
                         "srtt_us": 5, "cwnd": 10, "limited_cwnd_us": 4, "age_us": 9}]},
    "arp_get": {"arp": [{"address": "10.0.0.2", "interface": "eth0", "mac": "02:00:00:00:00:01", "state": "stale"}]},
    "pkt_drops_get": {"drops": [{"name": "ip_bad", "count": 1, "text": "bad"}]},
    "tamper_get": {"tamper": [{"port": "eth0", "direction": "in", "peer": "10.0.0.2"}], "held": []},
    "ping": {"ping": [{"primary nid": "10.0.0.2@tcp", "Multi-Rail": False, "peer_ni": [{"nid": "10.0.0.2@tcp"}]}]},
    "buffers_get": {"reactors": [{"reactor": 0, "tiny": {"total": 1, "free": 1}}], "enable": 1, "buffers": {"tiny": 1}},
    "global_get": {"retry_count": 1},
    "udsp_get": {"udsp": [{"idx": 0, "src": "tcp"}]},
    "stats_get": {"send_count": 1},
    "reactors_get": {"reactors": [{"reactor": 0, "cpt": 0, "busy_share": 0.5, "stages": {"poll": 1}}], "control": {}},
    "version": {"version": "1.0", "uptime_s": 5},
    "peer_top": {"peers": [{"nid": "10.0.0.2@tcp", "host": "host", "in": 1, "out": 1}]},
    "config_get": {"yaml": "net: []\n\tx\r\n"},
    "config_diff": {"changes": [], "text": "add net\n", "warnings": ["odd", "odder"]},
    "config_apply": {"changes": [], "text": "add net\n", "warnings": ["odd", "odder"], "revision": 2, "applied": True},
    "config_save": {"path": "/etc/millrace", "how": "whole"},
    "config_status": {"waiting": False, "source": "/etc"},
    "health_get": {"nis": {"total": 1, "unhealthy": 1}, "peer_nis": {"unhealthy": 1},
                   "ni": [{"net": "tcp", "nid": "10.0.0.1@tcp", "health": 1, "failures": {"local_error": 1}}],
                   "peer_ni": [{"nid": "10.0.0.2@tcp", "gateway": True, "health": 1, "recovering": True}]},
    "routing_get": {"enable": 1, "state": "on", "draining": True},
    **dict.fromkeys(("drain_start", "drain_get"), {"state": "safe", "text": "unused", "peers": 1, "told": 1}),
    "log_get": "one word",
}


def lies(method, _params):
    if method not in ANSWERS:
        raise Refusal(evil(NOT_FOUND))
    return {**evil(ANSWERS[method]), "how": "whole"} if method == "config_save" else evil(ANSWERS[method])


def commands():
    """Each command that prints what a daemon says, with what it needs."""
    config = file("net: []\nroute: []\npeer: []\nrouting: {enable: 1}\nglobal: {}\n")
    return [("why", "10.2.0.7@tcp2"), ("net", "show", "-v", "4"), ("route", "show", "-v", "--millrace"), ("peer", "show", "-v", "4"),
            ("peer", "list"), ("udsp", "show"), ("ping", "10.0.0.2@tcp"), ("routing", "show"), ("buffers", "show"), ("global", "show"),
            ("stats", "show"), ("drops", "--explain"), ("counters", "--seconds", "1"), ("reactors", "show"), ("port", "show"),
            ("port", "drops"), ("tcp", "show"), ("tcp", "show", "-v"), ("arp", "show"), ("tamper", "show"), ("export",),
            ("export", "--backup"), ("config", "show"), ("config", "show", "--file"), ("config", "diff", config),
            ("config", "apply", "--dry-run", config), ("config", "apply", config), ("config", "save"),
            ("import", "--dry-run", config), ("import", config), ("import", "--show", config), ("events", "--recent"),
            ("log", "show"), ("version",), ("drain",), ("drain", "show"), *(("param", t) for t in ("list_nids", "nis", "peers", "routers", "routes")), ("rpc", "why", "nid=1.2.3.4@tcp"), ("health", "show"),
            ("top", "--batch", "1", "--interval", "1"), ("top", "--batch", "1", "--interval", "1", "--page", "health")]


def test_nothing_acts_on_a_terminal():
    """Strings, keys and hosts with control characters are shown escaped, whichever command prints them."""
    for words in commands():
        for args in (words, ("--json", *words)):
            if args[0] == "--json" and words[0] == "top":
                continue
            out, err = millrace(lies, *args)
            for text in (out, err):
                assert not CONTROL.search(text), f"{args}: {CONTROL.search(text)} in {text!r}"
                assert "\nforged" not in text or words[0] == "config" or "--dry-run" in words, f"{args}: {text!r}"
            assert re.search(r"\\x1b|\\u001b|x\?", out + err, re.I), f"{args}: nothing of it is shown"


def test_drain():
    """The progress of a drain, of a daemon that never says that it is safe."""
    for args in (("drain", "--wait"), ("--json", "drain", "--wait")):
        out, err = millrace(lies, *args, status=1)
        assert not CONTROL.search(out + err) and "\nforged" not in out + err and "unused" in out + err, (out, err)


def test_status():
    """The verdict on a daemon that lies: shown escaped, and no remedy has words that mean something to a shell."""
    for args in (("status",), ("--json", "status")):
        out, err = millrace(lies, *args, status=1)
        assert not CONTROL.search(out + err) and "\nforged" not in out and "forged: 1" in out, out
        remedies = re.findall(r'(?:try: |"remedy": ")(.*)', out)
        assert remedies and not [r for r in remedies if "forged" in r], remedies
        assert millrace(lambda m, p: {}, *args, status=2)[0], "no NI"
        for odd in ([], "x", 5, None):
            millrace(lambda m, p: odd, *args, status=2)     # pylint: disable=cell-var-from-loop

    def refuse(method, params):
        raise Refusal({"code": -2, "message": EVIL})
    assert not CONTROL.search(millrace(refuse, "status", status=1)[0])


def test_hosts():
    """Names of hosts are no better: they come from a file, or from whoever writes it."""
    def answer(method, _params):
        if method == "names_get":
            return {"names": {n: EVIL for n in ("10.0.0.1@tcp", "10.0.0.2@tcp", "10.0.0.3@tcp")}}
        return ANSWERS[method]
    for words in (("why", "10.2.0.7@tcp2"), ("peer", "show"), ("events", "--recent"), ("top", "--batch", "1", "--interval", "1")):
        out = millrace(answer, *words)[0]
        assert not CONTROL.search(out) and "\nforged" not in out and re.search(r"\\x1b|\(x\?", out), f"{words}: {out!r}"


def test_text_of_lines():
    """A document keeps its lines and tabs, also with ends of lines of other systems."""
    kept = "net: []\n\t# tab\r\nroute: []\n"
    assert millrace(lambda m, p: {"yaml": kept}, "config", "show")[0] == kept
    out = millrace(lambda m, p: {"yaml": "a: \rb\x1b\u009b\x7f\n"}, "config", "show")[0]
    assert out == "a: \\x0db\\x1b\\x9b\\x7f\n", repr(out)


def test_refusals():
    """So are errors, whatever is in them."""
    error = {"code": -2, "message": EVIL, "data": {"errno": -2, "remedy": EVIL}}

    def refuse(method, params):
        raise Refusal(error)
    for words in commands():
        if words[0] != "top":
            out, err = millrace(refuse, *words, status=1)
            assert not CONTROL.search(out + err) and "\\x1b" in err, f"{words}: {err!r}"
    err = millrace(refuse, "top", "--batch", "1", status=3)[1]
    assert not CONTROL.search(err) and "\\x1b" in err, repr(err)


def test_warnings():
    """Warnings are strings; others are shown as what they are."""
    answer = {"changes": [], "text": "", "revision": 1, "applied": True, "warnings": ["odd", 5, None, {"a": EVIL}, [True]]}
    for words in (("config", "apply"), ("config", "diff"), ("import",)):
        err = millrace(lambda m, p: answer, *words, file("net: []\n"))[1]
        assert "(null)" not in err, err
        lines = err.splitlines()
        assert lines[:3] + lines[4:] == ["millrace: odd", "millrace: 5", "millrace: null", "millrace: [true]"], err
        assert lines[3].startswith('millrace: {"a":"x\\u001B[2J\\u009B31m\\u0007\\u007F\\rforged'), err


def test_words_for_a_shell():
    """Nothing that a daemon says becomes a word that means something to a shell."""
    words = ("o2ib1", "$(id)", "`id`", "a;b", "a b", "a\nb", EVIL)
    answer = {"route": [{"net": w, "gateway": "10.0.0.1@tcp"} for w in words]}
    out = millrace(lambda m, p: answer, "__complete", "-s", os.path.join(DIR.name, "sock"), "route", "del", "--net", "")[0]
    assert [line.split("\t")[0] for line in out.splitlines()] == ["o2ib1"], out


def endless(cursor_of):
    """A listing with a page for each cursor: cursor_of(number of the page, from 0)."""
    count = [0]

    def answer(method, params):
        if method == "names_get":
            return {"names": {}}
        count[0] += 1
        return {"route": [], "peer": [], "net": [], "cursor": cursor_of(count[0] - 1)}
    return answer, count


def test_endless_lists():
    """A list that has no end ends with an error that names the cursor."""
    for what, cursor_of, pages, named in (
            ("the same cursor", lambda n: "stay", 2, "stay"), ("a circle", lambda n: "abc"[n % 3], 4, "a"),
            ("no string", lambda n: n, 1, "no string"), ("null", lambda n: None, 1, "no string"),
            ("a list", lambda n: ["x"], 1, "no string"), ("too long", lambda n: "y" * 300, 1, "y" * 64),
            ("evil", lambda n: EVIL, 2, "x\\x1b[2J\\x9b31m")):
        for words in (("route", "show"), ("peer", "list"), ("export",), ("--json", "peer", "show")):
            answer, count = endless(cursor_of)
            err = millrace(answer, *words, status=3)[1]
            assert "cursor" in err and named in err and not CONTROL.search(err), f"{what}, {words}: {err!r}"
            assert count[0] == pages, f"{what}, {words}: {count[0]} pages"
    answer, count = endless(str)
    err = millrace(answer, "route", "show", status=3)[1]
    assert f"cursor '{count[0] - 1}'" in err and 5000 < count[0] < 50000, (err, count)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"ok {name}", flush=True)


main()
