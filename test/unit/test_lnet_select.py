#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Path selection compared with a model of it (select_model.py) in random situations.

usage: test_lnet_select.py DRIVER [--situations N] [--seed N] [--reactors N] [--keep FILE]

DRIVER is select_driver, which selects in the situations that it reads. docs/protocol-notes.md says what is not compared.
Each node is random: nets, NIs, peers, gateways and routes. It has several lists of policies one after another, and with each
list several situations: health, links, credits, queued bytes, live routes, sequence numbers. In each situation a few messages
follow one another. The router and the model choose for each message, and the choices must be equal.

A criterion that never decided fails the test. --keep writes the situations of the first difference to a file.
"""

import argparse
import collections
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from select_model import CRITERIA, HEALTH_MAX, Model, Ni, Peer, PeerNi, Route, Rule  # noqa: E402

LOCAL_NETS = ["tcp", "tcp1", "tcp2", "o2ib", "o2ib3"]
REMOTE_NETS = ["tcp5", "tcp6", "o2ib7"]
NODES_A_RUN = 200
LISTS, SITUATIONS = 5, 10   # lists of policies of a node, situations of a list
SHOWN = 5                   # differences


class Dice(random.Random):
    """The same as random.Random, and three times as fast."""

    def choice(self, seq):
        return seq[int(self.random() * len(seq))]

    def randint(self, a, b):
        return a + int(self.random() * (b - a + 1))

    def one_in(self, n):
        return self.random() * n < 1


class Generator:
    def __init__(self, seed, situations):
        self.dice = Dice(seed)
        self.left = situations
        self.seqs = [self.dice.sample(range(1, 200), 150) for _ in range(200)]
        self.decided = collections.Counter()
        self.kinds = collections.Counter()

    def run(self):
        """Yields the situations of one run of the driver: text of the commands, and answers with their line numbers."""
        self.lines, self.answers = [], []
        for _ in range(NODES_A_RUN):
            if self.left > 0:
                self.node()
        return self.lines, self.answers

    # A node

    def node(self):
        r = self.dice
        self.lines.append("node")
        self.nets = r.sample(LOCAL_NETS, r.randint(1, 3))
        self.remote = r.sample(REMOTE_NETS, r.randint(1, 3))
        self.nis = []
        for net in self.nets:
            for k in range(r.choice([1, 2, 2, 3])):
                self.nis.append(Ni(f"10.{LOCAL_NETS.index(net)}.0.{1 + k}@{net}"))
                self.lines.append(f"ni {self.nis[-1].nid}")
        self.hosts = 100
        self.gateways = [self.peer(self.nets, 3, True) for _ in range(r.randint(1, 4))]
        self.targets = [self.peer(self.some_nets(), 4, True) for _ in range(r.randint(1, 3))]
        self.targets += [self.peer(self.some_nets(), 1, False)]
        self.peers = self.gateways + self.targets
        self.routes = []
        for net in self.remote:
            for gateway in self.gateways:
                if not self.dice.one_in(4):
                    self.route(net, gateway)
        self.lines.append("start")
        self.number = {p: i for i, p in enumerate(p for peer in self.peers for p in peer.nis)}
        routed = {route.gateway for route in self.routes}
        self.gateway_nis = [p for g in self.gateways if g in routed for p in g.nis]
        for _ in range(LISTS):
            self.policies()

    def some_nets(self):
        return self.dice.choice([self.nets, self.nets, self.remote, self.nets + self.remote])

    def peer(self, nets, at_most, multi_rail):
        nids = []
        for _ in range(self.dice.randint(1, at_most)):
            net = self.dice.choice(nets)
            self.hosts += 1
            nids.append(f"10.{(LOCAL_NETS + REMOTE_NETS).index(net)}.0.{self.hosts}@{net}")
        self.lines.append(f"peer {int(multi_rail)} {' '.join(nids)}")
        return Peer([PeerNi(nid) for nid in nids], multi_rail)

    def route(self, net, gateway):
        route = Route(net, gateway, self.dice.choice([0, 0, 0, 1]), self.dice.choice([0, 1, 1, 2]))
        self.routes.append(route)
        self.lines.append(f"route {net} {gateway.nis[0].nid} {route.hops or -1} {route.priority}")

    # Policies

    def policies(self):
        if self.left <= 0:
            return
        rules = [self.rule() for _ in range(self.dice.choice([0, 2, 4, 8, 12]))]
        for rule in rules:
            self.lines.append(f"rule {rule.src or '-'} {rule.dst or '-'} {rule.rte or '-'} {rule.priority}")
        self.lines.append("rules")
        model = Model(self.nis, self.peers, self.routes, rules, self.decided)
        for _ in range(min(SITUATIONS, self.left)):
            self.left -= 1
            self.situation(model)

    def rule(self):
        r = self.dice
        own = [n.nid for n in self.nis]
        gateways = [p.nid for g in self.gateways for p in g.nis]
        targets = [p.nid for t in self.targets for p in t.nis]
        kind = r.choice(["ni", "net", "peer net", "peer ni", "pair", "pair", "router", "router"])
        priority = r.choice([0, 0, 1, 7])
        if kind == "ni":
            return Rule(src=self.nids(r.choice(own)), priority=priority)
        if kind == "net":
            return Rule(src=self.net(r.choice(self.nets)), priority=priority)
        if kind == "peer net":
            return Rule(dst=self.net(r.choice(self.nets + self.remote)), priority=priority)
        if kind == "peer ni":
            return Rule(dst=self.nids(r.choice(gateways + targets)), priority=priority)
        dst = r.choice(gateways + targets)
        dst = self.net(dst.rpartition("@")[2]) if self.dice.one_in(4) else self.nids(dst)
        if kind == "pair":
            net = dst.rpartition("@")[2]
            near = [nid for nid in own if nid.endswith("@" + net)]
            return Rule(src=self.nids(r.choice(near or own)), dst=dst)
        remote = r.choice(self.remote)
        if not self.dice.one_in(4):
            dst = r.choice([remote, f"*@{remote}", f"10.*.0.[1-{r.randint(1, 254)}]@{remote}"])
        return Rule(dst=dst, rte=self.nids(r.choice(self.gateways).nis[0].nid))

    def nids(self, nid):
        """An expression that matches nid, or almost."""
        address, _, net = nid.rpartition("@")
        host = int(address.rpartition(".")[2])
        low = max(0, host - self.dice.randint(0, 2))
        high = min(255, host + self.dice.randint(0, 2))
        prefix = address.rpartition(".")[0]
        return self.dice.choice([
            nid, nid, f"*@{net}", f"{prefix}.[{low}-{high}]@{net}", f"{prefix}.[{low}-{high}/2]@{net}",
            f"{prefix}.[{low},{high}]@{net}", f"*.*.*.{host}@{net}", f"10.0.0.0/{self.dice.choice([8, 14, 16])}@{net}",
            f"{address}@{'o2ib' if 'o2ib' in net else 'tcp'}*"])

    def net(self, net):
        if "o2ib" in net:
            return self.dice.choice([net, "o2ib*", "o2ib[3,7]"])
        return self.dice.choice([net, net, "tcp*", "tcp[1-2]", "tcp[5,6]"])

    # A situation

    def situation(self, model):
        r, put = self.dice, self.lines.append
        healths = [[HEALTH_MAX], [HEALTH_MAX] * 3 + [900], [HEALTH_MAX, 900, 800, 0]]
        own_health, health = r.choice(healths), r.choice(healths)
        credits = r.choice([[8], [8, 8, 7], [8, 1, 0, -1]])
        queued = r.choice([[0], [0, 0, 0, 4096]])
        seqs = list(r.choice(self.seqs))
        links = r.choice([0, 0, 3])
        first = len(self.lines)
        for ni in self.nis:
            ni.health, ni.credits, ni.seq = r.choice(own_health), r.choice(credits), seqs.pop()
            ni.fatal = links > 0 and self.dice.one_in(links)
        self.repair_links()
        for i, ni in enumerate(self.nis):
            put(f"N {i} {int(ni.fatal)} {ni.health} {ni.credits} {ni.seq}")
        for net in self.nets:   # a net was last used when one of its NIs was
            model.net_seq[net] = max(n.seq for n in self.nis if n.net == net)
        for peer in self.targets:
            unused = r.one_in(2)    # then the turn of our own nets decides
            for net in peer.nets:
                peer.net_seq[net] = 0 if unused else seqs.pop()
            for p in peer.nis:
                p.health, p.seq = r.choice(health), seqs.pop()
                put(f"P {self.number[p]} {p.health} {p.seq} {peer.net_seq[p.net]}")
        for p in self.gateway_nis:
            p.health, p.credits, p.queued, p.seq = r.choice(health), r.choice(credits), r.choice(queued), seqs.pop()
            put(f"G {self.number[p]} {p.health} {p.credits} {p.queued} {p.seq}")
        answers = {g: not r.one_in(8) for g in self.gateways}
        for gateway in self.gateways:
            gateway.seq = seqs.pop()
        for i, route in enumerate(self.routes):
            up, there = not r.one_in(8), answers[route.gateway]
            route.alive = up and there
            put(f"R {i} {int(up)} {int(there)} {route.gateway.seq}")
        model.seq = 1 << 20
        for _ in range(r.choice([1, 1, 2, 3])):
            answer = self.message(model)
            self.answers.append((first, len(self.lines), " ".join(answer) if answer else "-"))

    def repair_links(self):
        """A gateway's NID on a net without any link is behind its other NIDs, before health: not in the specification."""
        if all(len(g.nets) == 1 for g in self.gateways):
            return
        for net in self.nets:
            nis = [n for n in self.nis if n.net == net]
            if all(n.fatal for n in nis):
                self.dice.choice(nis).fatal = False

    def message(self, model):
        r = self.dice
        kind = r.choice(["forward", "forward", "own", "own", "from", "from", "answer"])
        self.kinds[kind] += 1
        dest = self.destination(self.targets if kind == "own" else self.peers)
        if kind == "forward":
            self.lines.append(f"forward {dest}")
            return model.forward(dest)
        if kind == "own":
            self.lines.append(f"own {dest}")
            return model.own(dest)
        i = r.randint(0, len(self.nis) - 1)
        if kind == "from":
            self.lines.append(f"from {i} {dest}")
            return model.given(self.nis[i], dest)
        via = r.choice([p.nid for g in self.gateways for p in g.nis])
        self.lines.append(f"answer {i} {dest} {via}")
        return model.answer(self.nis[i], dest, via)

    def destination(self, peers):
        r = self.dice
        if self.dice.one_in(4):
            net = r.choice(self.nets + self.remote + self.remote)
            return f"10.{(LOCAL_NETS + REMOTE_NETS).index(net)}.0.{r.randint(200, 254)}@{net}"
        return r.choice(r.choice(peers).nis).nid


def drive(driver, reactors, lines):
    done = subprocess.run([driver, str(reactors)], input="\n".join(lines) + "\n", stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"FAIL: {driver} ended with status {done.returncode}")
    return done.stdout.splitlines()


def show(lines, first, end, model, router):
    """The node, its policies and the situation of a difference."""
    begin = max(i for i in range(first) if lines[i] == "node")
    start = lines.index("start", begin)
    policies = max(i for i in range(begin, first) if lines[i] == "rules")
    rules = policies
    while lines[rules - 1].startswith("rule "):
        rules -= 1
    text = lines[begin:start + 1] + lines[rules:policies + 1] + lines[first:end]
    print("\n".join(text))
    print(f"model: {model}\nrouter: {router}\n")
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--situations", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reactors", type=int, default=1)
    parser.add_argument("--keep")
    options = parser.parse_args()
    generator = Generator(options.seed, options.situations)
    asked = different = 0
    kinds = collections.Counter()
    while generator.left > 0:
        lines, answers = generator.run()
        choices = drive(options.driver, options.reactors, lines)
        if len(choices) != len(answers):
            sys.exit(f"FAIL: {len(answers)} questions, {len(choices)} answers")
        for (first, end, model), router in zip(answers, choices):
            asked += 1
            if model == router:
                continue
            different += 1
            kinds[lines[end - 1].split()[0]] += 1
            if different <= SHOWN:
                text = show(lines, first, end, model, router)
                if options.keep and different == 1:
                    with open(options.keep, "w", encoding="utf-8") as f:
                        f.write("\n".join(text) + "\n")
    print(f"seed {options.seed}: {options.situations} situations, {asked} choices, {different} different {dict(kinds) or ''}")
    print("messages: " + ", ".join(f"{k} {n}" for k, n in sorted(generator.kinds.items())))
    for name in CRITERIA:
        print(f"  {name:24} decided {generator.decided[name]}")
    print(f"{sum(os.times()[:4]):.1f} s of CPU")
    never = set(CRITERIA) - set(generator.decided)
    if never:
        print(f"FAIL: never decided: {', '.join(sorted(never))}")
    if different:
        print(f"FAIL: {different} of {asked} choices differ")
    sys.exit(1 if different or never else 0)


if __name__ == "__main__":
    main()
