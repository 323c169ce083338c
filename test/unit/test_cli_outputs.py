#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What millrace prints has the keys, nesting, columns and types of what lnetctl printed on a kernel node in the same role.

usage: test_cli_outputs.py MILLRACED MILLRACE OUTPUTS_DIR DIFFERENCES

Two daemons on the loopback interface: a router, and an end node with a route through it. Each command that a kernel
node was recorded with is compared; what differs has to be in the table of DIFFERENCES, and what is there has to differ.
"""

import lzma
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lnetctl_shape  # noqa: E402
from own_port import own_port  # noqa: E402

DEADLINE = 60.0
MULTI_RAIL_SHOW = "lnetctl net show -v 3; lnetctl peer show -v 3; lnetctl route show -v 3"

MILLRACED, MILLRACE, OUTPUTS, DIFFERENCES = sys.argv[1:5]
SPECIFICATION = os.path.join(os.path.dirname(DIFFERENCES), "protocol/lnet-core.md")
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
PORT = own_port("127.0.1.1", "127.0.1.2", "127.0.1.3")

ROUTER = """
net:
  - net type: tcp
    local NI(s):
      - nid: 127.0.1.2@tcp
        lnd tunables: {conns_per_peer: 1}
  - net type: tcp1
    local NI(s):
      - nid: 127.0.1.3@tcp1
        lnd tunables: {conns_per_peer: 1}
routing: {enable: 1}
"""

CLIENT = """
net:
  - net type: tcp
    local NI(s):
      - nid: 127.0.1.1@tcp
        lnd tunables: {conns_per_peer: 1}
route:
  - {net: tcp1, gateway: 127.0.1.2@tcp, hop: 1}
routing: {enable: 0}
"""

COMMON = """
buffers: {tiny: 16, small: 16, large: 2}
millrace: {reactors: 1, max_peers: 64, accept_port: PORT, rpc: {socket: SOCKET}}
"""

# The verbosity from which on lnetctl shows a key, docs/protocol/lnet-core.md §10.2, §10.3. Of what was not recorded at
# every verbosity, the rest is known from this.
LEVELS = {"statistics": 1, "tunables": 1, "lnd tunables": 1, "dev cpt": 1, "CPT": 1, "sent_stats": 2, "received_stats": 2,
          "dropped_stats": 2, "health stats": 2, "udsp info": 4, "peer state": 3, "max_ni_tx_credits": 1,
          "available_tx_credits": 1, "min_tx_credits": 1, "tx_q_num_of_buf": 1, "available_rtr_credits": 1,
          "min_rtr_credits": 1, "refcount": 1}

# §10.3: no recording has it
PEER_LIST = "peer list:\n-     nid: 192.168.10.1@tcp\n"


class Node:
    def __init__(self, name, config):
        self.socket = os.path.join(DIR.name, name)
        path = self.socket + ".yaml"
        with open(path, "w", encoding="utf-8") as f:
            f.write(config + COMMON.replace("SOCKET", self.socket).replace("PORT", str(PORT)))
        self.log = open(self.socket + ".log", "w+", encoding="utf-8")
        self.proc = subprocess.Popen([MILLRACED, "-c", path], stderr=self.log)

    def run(self, *args):
        return subprocess.run([MILLRACE, "-s", self.socket, *args], capture_output=True, text=True, timeout=DEADLINE)

    def cli(self, *args):
        p = self.run(*args)
        assert p.returncode == 0, f"{args} ended with {p.returncode}: {p.stdout}{p.stderr}"
        return p.stdout

    def wait_for(self, *args):
        end = time.monotonic() + DEADLINE
        while self.run(*args).returncode:
            if self.proc.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise AssertionError(f"no {args} of {self.socket}: {self.log.read()}")
            time.sleep(0.02)


def transcript(name):
    with lzma.open(os.path.join(OUTPUTS, name + ".txt.xz"), "rt", encoding="utf-8") as f:
        return f.read()


def recorded(name, command):
    """What a command printed on the node of a transcript."""
    match = re.search(rf"^\$ lnetctl {re.escape(command)}\n(.*?)^\[rc=0\]$", transcript(name), re.M | re.S)
    assert match, f"{command} is not in {name}"
    return match.group(1)


def recorded_ping():
    match = re.search(r"^(ping:\n.*?)^rc=0$", transcript("D-vm1"), re.M | re.S)
    assert match, "no ping in D-vm1"
    return match.group(1)


def in_transcript(node, command, key):
    """A section of what a command printed on a node of the transcript M-all, which has several commands in one line."""
    match = re.search(rf"^### \[[\d:]+\] {node}\$ {re.escape(command)}\n(.*?)^--- rc=0", transcript("M-all"), re.M | re.S)
    assert match, f"{node} did not run {command}"
    part = re.search(rf"^{key}:\n(?:[ -].*\n)+", match[1], re.M)
    assert part, f"{command} printed no {key}"
    return part[0]


def specified(section, *lines):
    """The first sample below a heading of the specification. Each of lines says what else it has: (pattern, replacement)."""
    with open(SPECIFICATION, encoding="utf-8") as f:
        text = re.search(rf"^### {re.escape(section)} .*?(?=^##)", f.read(), re.M | re.S)[0]
    text = next(t for t in re.findall(r"^```\n(.*?)^```", text, re.M | re.S) if not t.startswith("lnetctl"))
    text = re.sub(r" +# .*", "", text)
    for pattern, replacement in lines:
        text, n = re.subn(pattern, replacement, text, count=1)
        assert n, f"{pattern} is not in the sample of §{section}"
    return lnetctl_shape.shape(text)


def at_level(kernel, level):
    """What of a shape of -v 4 is shown at a lower verbosity."""
    return {path: entry for path, entry in kernel.items()
            if all(LEVELS.get(key, 0) <= level for key in re.split(r"\[\w*\]\.|\.", path))}


def comparisons(router, client):
    """(role, command, shape of the kernel's, shape of ours)"""
    def both(role, node, name, command, args=None):
        return role, command, lnetctl_shape.shape(recorded(name, command)), \
            lnetctl_shape.shape(node.cli(*(args or command).split()))

    for role, node, name in ("router", router, "B-router"), ("end node", client, "B-client"):
        for command in ("net show", "net show -v 4", "net show --net tcp -v 2", "peer show", "peer show -v 4",
                        "route show", "route show -v 4", "routing show", "stats show", "global show", "export",
                        "export --backup"):
            yield both(role, node, name, command)
        for what in "net", "peer":
            kernel = lnetctl_shape.shape(recorded(name, f"{what} show -v 4"))
            for level in 0, 1, 2, 3:
                command = f"{what} show -v {level}"
                yield role, command, at_level(kernel, level), lnetctl_shape.shape(node.cli(*command.split()))
        assert node.cli("stats", "reset") == ""
        yield both(role, node, name, "stats show")
        yield role, "peer list", lnetctl_shape.shape(PEER_LIST), lnetctl_shape.shape(node.cli("peer", "list"))
        yield role, "ping", lnetctl_shape.shape(recorded_ping()), lnetctl_shape.shape(node.cli("ping", "127.0.1.2@tcp"))
    for what, command in ("net", "net show -v 3"), ("peer", "peer show -v 3"), ("route", "route show -v"):
        kernel = in_transcript("vm61", MULTI_RAIL_SHOW, what)
        yield "end node of several NIs", command, lnetctl_shape.shape(kernel), lnetctl_shape.shape(client.cli(*command.split()))
    discover = in_transcript("vm61", "lnetctl discover 192.168.20.65@tcp1", "discover")
    yield "end node", "discover", lnetctl_shape.shape(discover), lnetctl_shape.shape(client.cli("discover", "127.0.1.2@tcp"))
    yield from health_and_policies(client)


def in_recovery(node, option, *command):
    """What debug recovery prints just after health was set; a ping that is answered soon ends the recovery."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        node.cli(*command, "--health", "500")
        printed = node.cli("debug", "recovery", option)
        if printed:
            return lnetctl_shape.shape(printed)
    raise AssertionError(f"debug recovery {option} is empty after {command}")


def health_and_policies(client):
    """As comparisons(), of what shows something after other commands only. What no node was recorded with has the columns of the
    specification's samples."""
    recovery = in_transcript("vm63", "lnetctl peer show -v 3; lnetctl debug recovery -p; lnetctl debug recovery -l; dmesg | tail -4",
                             "Peer NI recovery")
    yield "end node", "debug recovery -p", lnetctl_shape.shape(recovery), in_recovery(client, "-p", "peer", "set", "--nid", "127.0.1.2@tcp")
    yield "end node", "debug recovery -l", lnetctl_shape.shape(recovery.replace("Peer NI", "Local NI")), \
        in_recovery(client, "-l", "net", "set", "--net", "tcp")
    client.cli("peer", "add", "--prim_nid", "127.0.1.3@tcp1")
    for rule in ("--src 127.0.1.1@tcp --dst 127.0.1.[2-3]@tcp1", "--dst 127.0.1.3@tcp1 --rte 127.0.1.2@tcp", "--dst tcp1 --priority 3"):
        client.cli("udsp", "add", *rule.split())
    yield "end node", "udsp show", specified("8.3", (r"( +)dst: .*\n", r"\g<0>\1rte: 127.0.1.2@tcp\n")), \
        lnetctl_shape.shape(client.cli("udsp", "show"))
    info = re.sub(r"^( +)nid priority: -1\n", r"\g<0>\1Preferred gateway NIDs:\n\1      NID-0: 10.0.0.1@tcp\n"
                  r"\1Preferred source NIDs:\n\1      NID-0: 10.0.0.1@tcp\n", recorded("B-client", "peer show -v 4"), flags=re.M)
    yield "end node", "peer show -v 4 with policies", lnetctl_shape.shape(info), \
        lnetctl_shape.shape(client.cli("peer", "show", "--nid", "127.0.1.3@tcp1", "-v", "4"))
    client.cli("udsp", "del", "--all")
    client.cli("peer", "del", "--prim_nid", "127.0.1.3@tcp1")
    client.cli("fault", "drop", "add", "-s", "10.9.0.1@tcp", "-d", "*", "-r", "1")
    client.cli("fault", "delay", "add", "-s", "10.9.0.1@tcp", "-d", "*", "-r", "1", "-l", "1")
    yield "end node", "fault drop show", specified("9.2"), lnetctl_shape.shape(client.cli("fault", "drop", "show"))
    yield "end node", "fault delay show", \
        specified("9.2", ("da_rate: .*", "la_rate: 0"), (r"( +)da_interval: .*\n", r"\1la_interval: 0\n\1la_latency: 1\n"),
                  ("ds_dropped", "ls_delayed")), lnetctl_shape.shape(client.cli("fault", "delay", "show"))


def read_differences():
    """{(role, command, path, kernel, millrace): whether it was seen}; `any` stands for all of its column."""
    rows = {}
    with open(DIFFERENCES, encoding="utf-8") as f:
        for line in f:
            if not line.startswith("| `"):
                continue
            cells = [c.strip().strip("`") for c in line.strip().strip("|").split("|")]
            if len(cells) == 2:  # of values, which are not compared
                continue
            assert len(cells) == 5 and cells[4], f"command, key, kernel node, millrace, reason: {line}"
            rows[tuple(cells[:4])] = False
    assert rows, "no table"
    return rows


def listed(rows, role, command, path, kernel, own):
    found = False
    for row in rows:
        where, what = row[0], row[1]
        if where not in (f"{role}: {command}", command) or what != path or row[2:] != (kernel, own):
            continue
        rows[row] = found = True
    return found


def compare(router, client):
    rows, failures, count = read_differences(), [], 0
    for role, command, kernel, own in comparisons(router, client):
        count += len(kernel)
        for path, a, b in lnetctl_shape.differences(kernel, own):
            if not listed(rows, role, command, path, a, b):
                failures.append(f"{role}: {command}: {path}: {a} on a kernel node, here {b}")
        wrong = lnetctl_shape.out_of_order(kernel, own)
        if wrong:
            failures.append(f"{role}: {command}: {wrong} does not stand where a kernel node has it")
    failures += [f"{DIFFERENCES}: listed, but it does not differ: {' | '.join(row)}" for row, seen in rows.items() if not seen]
    assert not failures, "\n".join(failures)
    assert count > 500, f"only {count} keys were compared"
    return count


def check_shapes():
    """The comparison itself sees what differs."""
    a = "net:\n-     net type: tcp\n      local NI(s):\n      -     nid: 1@tcp\n            up: true\n"
    base = lnetctl_shape.shape(a)
    assert list(base) == ["net", "net[].net type", "net[].local NI(s)", "net[].local NI(s)[].nid", "net[].local NI(s)[].up"]
    for text, want in ((a.replace("true", "1"), [("net[].local NI(s)[].up", "boolean", "integer")]),
                       (a.replace("            up", "            down"),
                        [("net[].local NI(s)[].up", "boolean", "absent"), ("net[].local NI(s)[].down", "absent", "boolean")]),
                       (a.replace("-     nid", "- nid"), [("net[].local NI(s)[].nid", "column 12", "column 8")]),
                       ("net:\n-     net type: tcp\n", [("net[].local NI(s)", "map", "absent")])):
        try:
            got = lnetctl_shape.differences(base, lnetctl_shape.shape(text))
        except ValueError as e:
            got = e
        assert got == want, (text, got)
    swapped = "net:\n-     local NI(s):\n      -     nid: 1@tcp\n      net type: tcp\n"
    assert lnetctl_shape.out_of_order(base, lnetctl_shape.shape(swapped)) == "net[].local NI(s)"


def main():
    check_shapes()
    router, client = Node("router", ROUTER), Node("client", CLIENT)
    try:
        for node in router, client:
            node.wait_for("version")
        client.wait_for("ping", "127.0.1.2@tcp")
        print(f"ok {compare(router, client)} keys compared")
        for node in router, client:
            node.cli("shutdown")
            assert node.proc.wait(DEADLINE) == 0
    finally:
        for node in router, client:
            node.proc.kill()
            node.proc.wait()


main()
