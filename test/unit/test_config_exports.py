#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every recorded export of a kernel node is accepted, and what we export of it is the same document.

usage: test_config_exports.py MILLRACED OUTPUTS_DIR

The daemon waits for `start` all the time, so documents are taken whatever interfaces there are. Exits non-zero at the first
failure.
"""

import json
import lzma
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE = 60.0
MILLRACED, OUTPUTS = sys.argv[1], pathlib.Path(sys.argv[2])
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
SOCKET = DIR.name + "/sock"
OWN = f"millrace:\n  reactors: 1\n  max_peers: 64\n  rpc: {{socket: {SOCKET}, mode: \"0600\"}}\n"
BASE = """\
net:
  - {net type: tcp40, local NI(s): [{nid: 10.40.0.1@tcp40}]}
  - {net type: tcp41, local NI(s): [{nid: 10.41.0.1@tcp41, lnd tunables: {timeout: 20}}]}
route: [{net: tcp42, gateway: 10.41.0.9@tcp41, hop: 2}]
peer: [{primary nid: 10.40.0.9@tcp40}]
buffers: {tiny: 16, small: 16, large: 2}
"""


def exports():
    """(name, text) of each recorded `lnetctl export`."""
    for path in sorted(OUTPUTS.glob("*.txt.xz")):
        text = lzma.open(path, "rt", encoding="utf-8", errors="replace").read()
        for number, part in enumerate(re.split(r"^(?=\$ |### )", text, flags=re.M)):
            head, _, body = part.partition("\n")
            if "lnetctl export" not in head:
                continue
            begin = re.search(r"^net:$", body, re.M)
            end = re.search(r"^(\[rc=0\]|--- rc=0)$", body, re.M)
            assert begin and end, f"{path.name}: no export in: {head}"
            yield f"{path.name.split('.')[0]}-{number}{'-backup' if '--backup' in head else ''}", body[begin.start():end.start()]


class Client:
    def __init__(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(SOCKET)
        self.file = self.sock.makefile("r", encoding="utf-8")

    def ask(self, method, **params):
        self.sock.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode())
        return json.loads(self.file.readline())

    def call(self, method, **params):
        answer = self.ask(method, **params)
        assert "result" in answer, f"{method}: {answer.get('error')}\n{params.get('text', '')[:3000]}"
        return answer["result"]

    def yaml(self, form):
        return self.call("config_get", form=form, **{"as": "yaml"})["yaml"]


def connect(proc):
    end = time.monotonic() + DEADLINE
    while True:
        assert proc.poll() is None, f"ended with {proc.returncode}"
        try:
            return Client()
        except OSError:
            assert time.monotonic() < end, "not there"
            time.sleep(0.02)


def is_there(name, text, config):
    """What of the recording we act on is in the document."""
    nets = re.findall(r"^-     net type: (\S+)$", text, re.M)
    assert [n["net type"] for n in config["net"]] == [n for n in nets if n != "lo"], name
    gateways = re.findall(r"^      gateway: (\S+)$", text, re.M)
    assert [r["gateway"] for r in config.get("route", [])] == gateways, name
    primaries = re.findall(r"^-     primary nid: (\S+)$", text, re.M)
    assert [p["primary nid"] for p in config.get("peer", [])] == primaries, name
    for key in "transaction_timeout", "max_interfaces", "discovery", "health_sensitivity", "lnd_timeout":
        want = re.search(rf"^    {key}: (\d+)$", text, re.M)
        assert want and config["global"][key] == int(want[1]), f"{name}: {key}"
    enable = re.search(r"enable: (\d)$", text, re.M)
    if enable:
        assert config["routing"]["enable"] == int(enable[1]), name


def one(client, name, text):
    result = client.call("config_apply", text=text + OWN, name=name, mode="replace")
    assert any("not acted on" in w for w in result["warnings"]), f"{name}: {result['warnings']}"
    config = client.call("config_get", form="running")["config"]
    is_there(name, text, config)
    for form in "running", "backup":
        ours = client.yaml(form)
        diff = client.call("config_diff", text=ours, name="ours")
        assert not diff["changes"], f"{name} {form}: {diff['text']}\n{ours}"
        assert client.call("config_diff", text=text + OWN)["changes"] == [], name
    # In lnetctl's layout: the lines of a backup are those of the recording
    if name.endswith("-backup"):
        ours = client.yaml("backup")
        lines = text[:text.index("global:")].splitlines()
        assert ours.splitlines()[:len(lines)] == lines or "enable" not in text, f"{name}:\n{ours}"
        for line in text.splitlines():
            assert line in ours.splitlines(), f"{name}: {line!r} is not in:\n{ours}"
    # Added to another document and taken off again
    client.call("config_apply", text=BASE + OWN, mode="replace")
    before = client.call("config_get", form="running")["config"]
    items = text[:re.search(r"^(routing|buffers|global):$", text, re.M).start()]
    client.call("config_apply", text=items, name=name, mode="merge")
    assert client.call("config_get", form="running")["config"] != before, name
    client.call("config_apply", text=items, name=name, mode="delete")
    after = client.call("config_get", form="running")["config"]
    assert after == before, f"{name}: {after}"


def main():
    config = DIR.name + "/config.yaml"
    pathlib.Path(config).write_text(BASE + OWN, encoding="utf-8")
    proc = subprocess.Popen([MILLRACED, "-c", config, "--wait-for-rpc"])
    try:
        client = connect(proc)
        count = 0
        for name, text in exports():
            one(client, name, text)
            count += 1
        assert count >= 15, f"only {count} recordings found"
        print(f"{count} recorded exports")
        status = client.call("config_status")
        assert status["waiting"] is True and status["source"] == config
        assert client.ask("net_get")["error"]["code"] != 0
        client.call("shutdown")
        assert proc.wait(DEADLINE) == 0, proc.returncode
    finally:
        proc.kill()


main()
