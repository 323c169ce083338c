#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a reactor's cycles go to while it forwards, and what it costs to look.

    sudo test/perf/stages.py [--build build] [--rounds 20] [--seconds 0.5] [--size 4k] [--every 16,1] [--transport port]

Traffic runs through one millraced without a break, over ports (own TCP) or host sockets. Looking (`reactors_set`) is turned off and
on by turns; the measure is the CPU time of the reactor's thread for each message forwarded, in each turn. Shown are the median of the
ratios of neighbouring turns, so that what changes slowly is in both, and the ratio of the cheapest tenths: what others do to the
caches and batches of a machine that they use too only adds.
"""

import argparse
import os
import statistics
import sys
import time

import lab
import relays

CLIENT, SERVER = relays.PORT.client, relays.PORT.server


class StagesLab(lab.Lab):
    """A client, a router and a server; the router on ports or on host sockets."""

    def __init__(self, build, transport):
        super().__init__(build)
        self.transport, self.conns = transport, 1
        if transport == "port":
            near, far = relays.PORT.gateways
            self.client_nids, self.server_nids = [CLIENT], [SERVER]
            self.client_routes, self.server_routes = [f"{relays.net(SERVER)} {near}"], [f"{relays.net(CLIENT)} {far}"]

    def wire(self):
        if self.transport != "port":
            super().wire()
            return
        self.link("client", "c2", relays.address(CLIENT), "router", "p0", None)
        self.link("server", "s2", relays.address(SERVER), "router", "p1", None)

    def begin(self):
        if self.transport == "port":
            text = relays.PORT_CONFIG.format(reactors=1, mtu=self.mtu, conns=self.conns, socket="{socket}")
            self.main = self.millraced("router", "router", text)
            self.main.wait_links()
        else:
            self.router()
        return self.main.process.popen.pid


def reactor_thread(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="ascii") as f:
            if f.read().strip() == "reactor-0":
                return f"/proc/{pid}/task/{tid}/schedstat"
    raise lab.LabError("the router has no thread reactor-0")


class Turns:
    """Pieces of one run, with looking on or off."""

    def __init__(self, the_lab, seconds):
        self.lab, self.seconds = the_lab, seconds
        self.schedstat = reactor_thread(the_lab.main.process.popen.pid)

    def _look(self):
        with open(self.schedstat, encoding="ascii") as f:
            cpu = int(f.read().split()[0])
        return cpu, self.lab.stats()["route_count"]

    def cost(self, every):
        """CPU ns for each message, looking at one turn in `every` (0: not at all)."""
        if every:
            self.lab.call("reactors_set", stages="on", every=every)
        else:
            self.lab.call("reactors_set", stages="off")
        time.sleep(0.02)
        before = self._look()
        time.sleep(self.seconds)
        after = self._look()
        if after[1] == before[1]:
            raise lab.LabError("nothing was forwarded")
        return (after[0] - before[0]) / (after[1] - before[1])


def measure(turns, every, rounds):
    """Median of on over off, what quarters it lies between, the same of the cheapest tenths; ns with it off."""
    ratios, costs, looking = [], [], []
    for i in range(rounds):
        if i % 2:
            on = turns.cost(every)
            off = turns.cost(0)
        else:
            off = turns.cost(0)
            on = turns.cost(every)
        ratios.append(on / off)
        costs.append(off)
        looking.append(on)
    quarters = statistics.quantiles(ratios, n=4)
    tenth = statistics.quantiles(looking, n=10)[0] / statistics.quantiles(costs, n=10)[0]
    return statistics.median(ratios), quarters[0], quarters[2], tenth, statistics.median(costs)


def print_work(the_lab, messages):
    """Shares and us per message of one second, all turns looked at; and what was waited for."""
    the_lab.call("reactors_set", stages="on", every=1)
    a, sent = the_lab.call("reactors_get")["reactors"][0], the_lab.stats()["route_count"]
    time.sleep(messages)
    b, sent = the_lab.call("reactors_get")["reactors"][0], the_lab.stats()["route_count"] - sent
    the_lab.call("reactors_set", stages="off")
    work = {k: v - a["work"][k] for k, v in b["work"].items() if k not in ("every", "turns")}
    busy = {k: v - a["stages"][k] for k, v in b["stages"].items() if k not in ("rest", "preempted")}
    print(f"work, us for each message of {sent}, and share:")
    for name, us in sorted(work.items(), key=lambda x: -x[1]):
        print(f"  {name:10} {us / sent:7.3f} {100 * us / max(sum(work.values()), 1):5.1f} %")
    print(f"  all        {sum(work.values()) / sent:7.3f}; stages of the loop: {sum(busy.values()) / sent:.3f}")
    print(f"  messages for each busy turn: {sent / max(b['work']['turns'] - a['work']['turns'], 1):.2f}")
    for x, y in zip(a["waited"], b["waited"]):
        n = y["waits"] - x["waits"]
        print(f"  {y['name']:19} at once {y['none'] - x['none']:7}, waited {n:7}"
              + (f", {(y['total_us'] - x['total_us']) / n:.0f} us on average" if n else ""))
    if b.get("capacity"):
        print("  capacity of the last second:", ", ".join(f"{k} {v:.3f}" for k, v in b["capacity"].items()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--seconds", type=float, default=0.5)
    p.add_argument("--size", default="4k")
    p.add_argument("--inflight", type=int, default=32)
    p.add_argument("--every", default="16,1")
    p.add_argument("--transport", choices=("port", "kernel"), default="port")
    options = p.parse_args()
    lab.need_root()
    lab.signals_to_exceptions()
    everies = [int(e) for e in options.every.split(",")]
    with StagesLab(options.build, options.transport) as the_lab:
        the_lab.begin()
        the_lab.server("--verify", "none")
        whole = len(everies) * options.rounds * 2 * (options.seconds + 0.2) + 30
        client = the_lab.client("--size", options.size, "--inflight", options.inflight, "--verify", "none", "--seconds", whole,
                                "put", the_lab.server_nids[0])
        deadline = time.monotonic() + lab.START_DEADLINE
        while the_lab.stats()["route_count"] < 1000:
            if time.monotonic() > deadline or not client.running():
                raise lab.LabError(f"no traffic: {client.said()}")
            time.sleep(0.05)
        turns = Turns(the_lab, options.seconds)
        for every in everies:
            ratio, low, high, tenth, ns = measure(turns, every, options.rounds)
            print(f"{options.transport}, {options.size}: {ns:.0f} ns of CPU for each message with looking off; one turn in {every}: "
                  f"{100 * (ratio - 1):+.2f} % (quarters {100 * (low - 1):+.2f} to {100 * (high - 1):+.2f} %), cheapest tenths {100 * (tenth - 1):+.2f} %")
        print_work(the_lab, 1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except lab.LabError as error:
        print(f"stages.py: {error}", file=sys.stderr)
        sys.exit(1)
