# SPDX-License-Identifier: BSD-3-Clause
"""What bytes cost on host sockets by the way they are handed to the kernel, without LNet: copied by send() or lent to it
(MSG_ZEROCOPY), between two network namespaces (veth) and over the loopback interface; and passed on by a relay that reads and sends
them, or splices them from socket to socket over a pipe, as whole messages (which a router must have) or as they come.

It tells what the transport `kernel` could gain. There is no card here: over one MSG_ZEROCOPY saves what a copy costs, while on veth and
loopback the kernel copies after all when it hands the bytes to the receiver, and says so.
"""

import json
import os
import statistics

import lab
import machine
import results

PROGRAM = "test/perf/zerocopy"
PORT, RELAY_PORT = "7001", "7002"
SIZES = (1 << 20, 256 << 10, 4 << 10)
WAYS = ("copy", "lend")
PATHS = ("veth", "loopback")
# (name, how, bytes that are in before any goes out): 1 MiB messages whole, and in parts as they come.
RELAYS = (("read, send, whole 1 MiB", "copy", 1 << 20), ("read, send, 256 KiB as they come", "copy", 256 << 10),
          ("splice, whole 1 MiB", "splice", 1 << 20), ("splice, 256 KiB as they come", "splice", 256 << 10))
DEADLINE = 30  # seconds beside the run
HEAD = ("what", "MB/s", "sender s/GB", "relay s/GB", "receiver s/GB", "machine s/GB", "calls/MB", "copied after all", "CPU/byte against the first",
        "others")


class Paths(lab.Lab):
    """Its namespaces and links, with no router in them."""

    def wire(self):
        super().wire()
        self.spaces["client"].ip("link set lo up")

    def program(self, where, *arguments):
        path = os.path.join(self.build, PROGRAM)
        if not os.access(path, os.X_OK):
            raise lab.LabError(f"{path} is not there: build first (./dev build)")
        return self.start(where, f"zerocopy {arguments[0]}", [path, *map(str, arguments)])

    def _run(self, seconds, to, receiver_in, relay, sender):
        receiver = self.program(receiver_in, "receive", *to)
        receiver.wait_line("ready")
        between = relay and self.program("router", "relay", *relay)
        if between:
            between.wait_line("ready")
        span = machine.Span()
        ends = [self.program("client", "send", *sender), receiver, *([between] if between else [])]
        said = {v["role"]: v for v in (p.result(seconds + DEADLINE) for p in ends)}
        span.stop()
        if any(v["exit_status"] for v in said.values()) or len({v["bytes"] for v in said.values()}) != 1:
            raise lab.LabError(f"not all bytes arrived: {json.dumps(said)}")
        gb = said["send"]["bytes"] / 1e9
        of = {role: v["cpu"] / gb for role, v in said.items()}
        return {"rate": gb * 1e3 / said["send"]["seconds"], "of": of, "sum": sum(of.values()), "machine": span.busy / gb,
                "calls": said.get("relay", said["send"])["calls"] / gb / 1e3, "lent": said["send"]["lent_done"],
                "copied": said["send"]["lent_copied"], **span.shares()}

    def send(self, path, size, way, seconds):
        where, address = ("server", "10.10.2.2") if path == "veth" else ("client", "127.0.0.1")
        return self._run(seconds, (address, PORT), where, None, (address, PORT, size, seconds, way))

    def relay(self, how, part, seconds):
        return self._run(seconds, ("10.10.2.2", PORT), "server", ("10.10.1.1", RELAY_PORT, "10.10.2.2", PORT, part, how),
                         ("10.10.1.1", RELAY_PORT, 1 << 20, seconds, "copy"))


class Straight(Paths):
    """One veth pair, from end to end."""

    def wire(self):
        self.link("client", "c0", "10.10.2.1", "server", "s0", "10.10.2.2")
        self.spaces["client"].ip("link set lo up")


def size_name(size):
    return f"{size >> 20}M" if size >= 1 << 20 else f"{size >> 10}k"


def figure(samples, get):
    return results.number(statistics.median(get(s) for s in samples))


def line_of(name, samples, first):
    of = samples[0]["of"]
    ratio = results.compared([s["sum"] for s in samples], [s["sum"] for s in first], False) if first is not samples else None
    lent = sum(s["lent"] for s in samples)
    return (name, figure(samples, lambda s: s["rate"]), *(figure(samples, lambda s, r=role: s["of"][r]) if role in of else ""
                                                          for role in ("send", "relay", "receive")),
            figure(samples, lambda s: s["machine"]), figure(samples, lambda s: s["calls"]),
            f"{sum(s['copied'] for s in samples) / lent:.0%}" if lent else "",
            f"{ratio['ratio']:.2f} ({ratio['ratio_lowest']:.2f}-{ratio['ratio_highest']:.2f})" if ratio else "",
            f"{max(s['foreign_share'] for s in samples):.0%}")


def rows_of(case, name, samples, first, reference):
    mine, theirs = [s["sum"] for s in samples], [s["sum"] for s in first]
    # About the machine's kernel, not about millraced: nothing to keep.
    return {"bench": "zerocopy", "case": case, "subject": name, "metric": "cpu_of_ends", "value": statistics.median(mine), "unit": "s/GB",
            "keep": False, **({"reference": reference, **results.compared(mine, theirs, False), "reference_value": statistics.median(theirs)}
                              if first is not samples else {"reference": None, "ratio": None}),
            "samples": mine, "machine": [s["machine"] for s in samples], "rate": [s["rate"] for s in samples],
            "copied": [s["copied"] for s in samples], "lent": [s["lent"] for s in samples], "settings": {"offloads": "all of veth"},
            "foreign_share": max(s["foreign_share"] for s in samples), "stolen_share": max(s["stolen_share"] for s in samples)}


def run(options, progress):
    """The benchmark. Returns its rows."""
    groups = [(f"{path} {size_name(size)}", {way: (path, size, way) for way in WAYS}) for path in PATHS for size in SIZES]
    groups.append(("relay", {name: (how, part) for name, how, part in RELAYS}))
    groups = [g for g in groups if options.filter in g[0]]
    seconds, rows, lines = max(1, round(options.seconds)), [], []
    for case, ways in groups:
        found = {name: [] for name in ways}
        relays = case == "relay"
        with (Paths if relays else Straight)(options.build, options.mtu or 1500) as room:
            for _ in range(options.repeat):
                for name, how in ways.items():
                    found[name].append((room.relay if relays else room.send)(*how, seconds))
        first = next(iter(found.values()))
        for name, samples in found.items():
            lines.append(line_of(f"{case}: {name}", samples, first))
            rows.append(rows_of(case, name, samples, first, next(iter(found))))
        progress(f"{case}: done")
    print(f"\nzerocopy: {options.repeat} rounds of {seconds} s, medians; CPU time of the processes, and of the machine; over 1 is cheaper")
    results.print_table(HEAD, lines)
    return rows
