#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Payload over RDMA devices in a guest: `./dev vm bench`. Prints one table; --json FILE writes its rows.

    test/vm/bench.py --build BUILDDIR [--rounds N] [--routed N] [--seconds S] [--concurrency N] [--json FILE]
    test/vm/bench.py --build BUILDDIR --keys [LIST] [--rounds N] [--seconds S] [--concurrency N]
    test/vm/bench.py --build BUILDDIR --hunt MINUTES [--hunted PATH:OPERATION,...] [--seconds S] [--concurrency N]

What end nodes move over o2ib is compared with what ib_write_bw moves between the same two devices, and what they move through
millraced with what they move directly. All in one boot and in turn, so each ratio is of neighbouring runs. Ratios are what is
measured: rates are those of software devices, which compute a CRC of each packet on the cores that everything else needs too.

--keys compares the methods of `verbs: remote_keys`: PUTs from o2ib to o2ib1 through a router of each method, all with the same nodes,
their rate and the CPU time of the router's process for each message (the work of software devices is partly in it, partly the kernel's).

--hunt measures nothing: it makes runs of a few kinds one after the other, each by a client of its own, and says what router, devices
and sockets are about as soon as nothing moves for a while, or messages were lost.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "perf")]

import lab  # noqa: E402
import machine  # noqa: E402
import results  # noqa: E402
import verbs  # noqa: E402
from lnetpy import netns  # noqa: E402
from verbs import MIB, check, read  # noqa: E402

SIZE = MIB
DEVICES = 5
CLIENT, CLIENT_DEVICE, DIRECT_DEVICE = "10.77.0.2@o2ib", "rxe1", "rxe4"
ROUTER = {"o2ib": "10.77.0.1@o2ib", "o2ib1": "10.77.0.3@o2ib1", "tcp": "10.78.0.1@tcp"}
SERVER = {"direct": "10.77.0.5@o2ib", "o2ib1": "10.77.0.4@o2ib1", "tcp": "10.78.0.2@tcp"}
# Where a server's payload is counted: an interface, and whether it is the router's end of the link instead of the server's.
COUNTED = {"direct": ("roce4", False), "o2ib1": ("roce3", False), "tcp": ("totcp", True)}
PATHS = {"direct": "o2ib, direct", "o2ib1": "o2ib, millraced, o2ib1", "tcp": "o2ib, millraced, tcp"}
ROUTED = [path for path in PATHS if path != "direct"]
REFERENCE, TX_DEPTH = ("ib_write_bw", "write"), 128     # of which the second is its own default
BARS = {"direct": 0.8, "o2ib1": 0.5}

ROWS = "ROWS "          # begins the line by which the guest hands the rows over
TRIES = 3
TIMEOUT = 60            # seconds until a message is called lost
STILL = 5               # seconds without payload after the first: then the state is shown, also while a client takes long to end
DECIDING = 5            # rounds; with fewer even the lowest and highest do not bound the median (results.py, CERTAIN)
OVERHEAD = 1.15         # bytes on the link for each one of payload; above, data was sent again
AGREE = (0.6, 1.3)      # the program's own rate, of ours: it has the beginning and the end of the run in it
RESENT = ("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err", "rcvd_rnr_err", "send_rnr_err",
          "retry_exceeded_err", "retry_rnr_exceeded_err")
COUNTERS = ("bytes_in", "bytes_out", "copied_in", "copied_out", "puts_in", "puts_out")

CONFIG = """\
net:
  - {{net type: o2ib, local NI(s): [{{nid: {o2ib}}}]}}
  - {{net type: o2ib1, local NI(s): [{{nid: {o2ib1}}}]}}
  - {{net type: tcp, local NI(s): [{{nid: {tcp}, lnd tunables: {{conns_per_peer: 1}}}}]}}
routing: {{enable: 1}}
buffers: {{tiny: 512, small: 512, large: 64}}
millrace: {{cores: auto, reactors: 1, idle: adaptive, hugepages: false, memory: 256, rpc: {{socket: {socket}}}, verbs: {{remote_keys: {keys}}}}}
"""
KEYS = ("shared", "windows", "registrations")
KEYS_SIZES = (MIB, MIB // 16)


# ------------------------------------------------------------------------------------------------------ in the guest

class Bench:
    """The nodes, which stay, and the runs."""

    def __init__(self, options):
        self.options, self.env = options, verbs.Env(options.build)
        self.folder = tempfile.mkdtemp(prefix="millrace-bench-")
        self.processes, self.spoilt, self.lost = [], [], 0

    def node(self, name, nid, *arguments, ns=lab.Here):
        program = os.path.join(self.options.build, "app/millrace-perf/millrace-perf")
        process = lab.Process(ns, name, [program, "--json", "--nid", nid, "--idle", "adaptive", "--verify", "off", *arguments])
        self.processes.append(process)
        return process

    def start(self):
        """The router, and a server on each path."""
        self.far = netns.NetNs("tcp")
        lab.Here.popen(["ip", "link", "add", "totcp", "type", "veth", "peer", "name", "e0", "netns", self.far.path]).wait()
        for command in (["address", "add", "10.78.0.1/24", "dev", "totcp"], ["link", "set", "totcp", "up"]):
            self.env.run("ip", *command)
        self.far.ip("addr add 10.78.0.2/24 dev e0\nlink set e0 up")
        lab.wait_link(lab.Here, "totcp")
        self.start_router()
        servers = [self.node("server, direct", SERVER["direct"], "server")]
        servers += [self.node("server on " + net, SERVER[net], "--route", f"o2ib {ROUTER[net]}", "server",
                              ns=self.far if net == "tcp" else lab.Here) for net in ("o2ib1", "tcp")]
        for server in servers:
            server.wait_line("serving on")

    def start_router(self, keys="auto"):
        socket, conf = (os.path.join(self.folder, name) for name in (f"{keys}.sock", "millrace.yaml"))
        with open(conf, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(socket=socket, keys=keys, **ROUTER))
        process = lab.Process(lab.Here, "millraced", [os.path.join(self.options.build, "app/millraced/millraced"), "-c", conf])
        self.processes.append(process)
        self.router = lab.Router(process, socket)
        self.router.wait_links()
        return process

    def change_router(self, keys):
        """Another router in the place of the first."""
        process = self.router.process
        process.popen.terminate()
        process.popen.wait(60)
        self.processes.remove(process)
        self.start_router(keys)
        used = {row["remote_keys"] for row in self.router.call("verbs_get")["verbs"]}
        check(used == {keys}, f"keys in use: {used}")

    def close(self):
        for process in self.processes:
            if process.running():
                process.popen.kill()
            process.popen.wait()

    def router_counters(self, nets):
        """Of the verbs driver of the router, over its NIs on these nets."""
        rows = [row["counters"] for row in self.router.call("verbs_get")["verbs"] if row["nid"] in [ROUTER[n] for n in nets]]
        check(len(rows) == len(nets), f"NIs of {nets}: {len(rows)}")
        return {name: sum(row[name] for row in rows) for name in COUNTERS}

    def depth(self):
        """Of the queues between millraced and a millrace-perf, as negotiated from the peer_credits of both."""
        found = {c["depth"] for row in self.router.call("verbs_get", conns=True)["verbs"] for c in row["connections"]}
        check(len(found) == 1, f"queue depths {found}")
        return found.pop()

    def reference(self):
        rate, said = verbs.write_bw(self.env, SIZE, self.options.seconds, CLIENT_DEVICE, DIRECT_DEVICE,
                                    ("-t", str(TX_DEPTH)))
        return {"rate": rate, "program": said or None}

    def load(self, path, operation, size=SIZE):
        """One run of the client. The payload's way is looked at where it begins and where it ends."""
        interface, turned = COUNTED[path]
        into, out_of = ("tx", "rx") if turned else ("rx", "tx")
        begin, end = (("roce1", "tx"), (interface, into)) if operation == "put" else ((interface, out_of), ("roce1", "rx"))
        nets = {"direct": (), "o2ib1": ("o2ib", "o2ib1"), "tcp": ("o2ib",)}[path]
        before, cpu = self.router_counters(nets) if nets else {}, self.router.cpu_seconds()
        arguments = ["--seconds", str(self.options.seconds), "--size", str(size), "--timeout", str(TIMEOUT),
                     "--concurrency", str(self.options.concurrency)]
        if nets:
            arguments += ["--route", f"{path} {ROUTER['o2ib']}"]
        samples = [(time.monotonic(), interface_bytes(*begin), interface_bytes(*end))]
        client = self.node("client", CLIENT, *arguments, operation, SERVER[path])
        moved, told = samples[0], False
        while client.running() and time.monotonic() < samples[0][0] + self.options.seconds + 150:
            time.sleep(verbs.LOOK)
            samples.append((time.monotonic(), interface_bytes(*begin), interface_bytes(*end)))
            if samples[-1][2] >= moved[2] + SIZE / 16 or samples[-1][2] < samples[0][2] + SIZE:
                moved = samples[-1]
            elif not told and samples[-1][0] >= moved[0] + STILL:
                told = True
                self.show(f"nothing has moved for {STILL} s")
        result = client.result(1)
        self.processes.remove(client)
        if result["exit_status"] != 0 or not result["ok"]:
            self.lost += 1
            self.tell(result)
            raise verbs.Failed(f"status {result['exit_status']}: {result['trouble']}")
        payload = result[operation]["bytes"]
        run = {"rate": steady(samples, payload, self.options.seconds), "program": result[operation]["bytes_per_second"] / MIB}
        low, high = (limit * run["rate"] for limit in AGREE)
        check(low < run["program"] < high, f"millrace-perf says {run['program']:.1f} MiB/s, and it was {run['rate']:.1f}")
        run["cpu_us"] = (self.router.cpu_seconds() - cpu) * 1e6 / (payload / size)
        if nets:
            after = self.router_counters(nets)
            run["router"] = {"payload": payload, **{name: after[name] - before[name] for name in COUNTERS}}
        return run

    def tell(self, result):
        """What is known of a run in which messages went astray: that is no noise of the machine, and must be looked into."""
        print(f"   the client: {json.dumps({k: result.get(k) for k in ('put', 'get', 'receiver', 'drops', 'figures')})}")
        self.show("messages went astray")

    def show(self, why):
        """What router, devices and sockets are about."""
        drops = {d["name"]: d["count"] for d in self.router.call("drops_get")["drops"] if d["count"]}
        print(f"   {why}. The router's drops so far: {drops}")
        for event in self.router.call("events_get", limit=20)["events"]:
            print(f"   the router, {event['time']:.1f} of {time.time():.1f}: {event['text']} ({event['cause']})")
        for found in self.router.call("verbs_get", conns=True)["verbs"]:
            print(f"   the router, {found['nid']}: {json.dumps(found['counters'])} {json.dumps(found['connections'])}")
        print(f"   the router waits for: {self.router.call('waits_get')['waits']}")
        print(f"   devices: {resent()}")
        for ns, command in ((lab.Here, "rdma -d resource show qp"), (lab.Here, "ss -tnimo"), (self.far, "ss -tnimo")):
            print(ns.popen(command.split(), stdout=subprocess.PIPE, text=True).communicate()[0], flush=True)

    def end_servers(self):
        """What they counted. They are not asked earlier: they tell it at their end."""
        for process in self.processes:
            if process.name.startswith("server") and process.running():
                try:
                    print(f"   {process.name}: {json.dumps(process.stop_result())}", flush=True)
                except lab.LabError as why:
                    print(f"   {why}", flush=True)

    def attempt(self, name, call, *arguments):
        """A run, made again when something spoilt it. None: each time."""
        for _ in range(TRIES):
            before = resent()
            try:
                run = call(*arguments)
                run["resent"] = {k: v - before[k] for k, v in resent().items() if v != before[k]}
                print(f"   {name}: {run['rate']:.1f} MiB/s", flush=True)
                return run
            except (verbs.Failed, lab.LabError) as why:
                self.spoilt.append(f"{name}: {' '.join(str(why).split())[:300]}")
                print(f"   spoilt: {self.spoilt[-1]}", flush=True)
            finally:
                self.env.clean()
        return None

    def round(self, paths, backwards):
        """{(path or program, operation): run}, or None if one could not be had."""
        runs = [(REFERENCE, self.reference, ())]
        runs += [((path, operation), self.load, (path, operation)) for path in paths for operation in ("put", "get")]
        found = {}
        for key, call, arguments in reversed(runs) if backwards else runs:
            found[key] = self.attempt(" ".join(key), call, *arguments)
            if found[key] is None:
                return None
        return found


def interface_bytes(interface, direction):
    return int(read(f"/sys/class/net/{interface}/statistics/{direction}_bytes"))


def resent():
    """What the devices counted of packets that came again, or not in their order."""
    found = dict.fromkeys(RESENT, 0)
    for i in range(DEVICES):
        for name in RESENT:
            with contextlib.suppress(OSError):
                found[name] += verbs.packets(f"rxe{i}", name)
    return found


def steady(samples, payload, seconds):
    """MiB/s of payload that arrived, from when the first MiB had arrived until the last one was about to leave: then both ends
    were at work. Samples are (time, bytes at the beginning of the way, bytes at its end). Headers are taken out by the share
    that payload was of all bytes."""
    arrived = samples[-1][2] - samples[0][2]
    check(payload > 0 and payload <= arrived <= OVERHEAD * payload, f"{arrived} bytes arrived for {payload} of payload")
    some = [s for s in samples if s[2] >= samples[0][2] + MIB and s[1] <= samples[-1][1] - MIB]
    check(len(some) > 10 and some[-1][0] - some[0][0] > seconds / 2, "data was seen to move for too short a time")
    return (some[-1][2] - some[0][2]) / (some[-1][0] - some[0][0]) * payload / arrived / MIB


def row(bench, rounds, key, reference, bar=None):
    """A row of the table (the form: test/perf/results.py)."""
    path, operation = key
    rounds = [r for r in rounds if key in r]
    rates = [r[key]["rate"] for r in rounds]
    said = [r[key]["program"] for r in rounds]
    o = bench.options
    settings = {"size": SIZE, "seconds": o.seconds, "rounds": len(rounds)}
    if path in PATHS:
        settings.update(concurrency=o.concurrency, peer_credits=bench.peer_credits, idle="adaptive", verify="off", router_reactors=1)
    else:
        settings.update(tx_depth=TX_DEPTH, completions="polled")
    found = {"bench": "verbs", "case": f"{operation} 1M", "subject": PATHS.get(path, path), "metric": "payload", "unit": "MiB/s",
             "value": statistics.median(rates), "lowest": min(rates), "highest": max(rates), "samples": rates, "program_says": said,
             "reference": None, "ratio": None, "settings": settings, "resent": [r[key]["resent"] for r in rounds]}
    if reference:
        other = [r[reference]["rate"] for r in rounds]
        found.update(results.compared(rates, other, True), reference=f"{PATHS.get(reference[0], reference[0])} {reference[1]}")
        if bar is not None:
            of = results.ratios(rates, other, True)
            found.update(bar=bar, met="not decided: too few rounds")
            if len(of) >= DECIDING:
                low, high = results.between(of)
                found.update(met=f"{results.decided(of, bar)} ({low:.2f}-{high:.2f})", certain=(low, high))
    if "router" in rounds[0][key]:
        found["router"] = {name: sum(r[key]["router"][name] for r in rounds) for name in rounds[0][key]["router"]}
    return found


def rows_of(bench, rounds):
    rows = [row(bench, rounds, REFERENCE, None)]
    rows += [row(bench, rounds, ("direct", op), REFERENCE, BARS["direct"]) for op in ("put", "get")]
    rows += [row(bench, rounds, (path, op), ("direct", op), BARS.get(path)) for path in ROUTED for op in ("put", "get")
             if any((path, op) in r for r in rounds)]
    return rows


def line(r):
    def spread(middle, low, high, digits):
        return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"

    said = [s for s in r["program_says"] if s]
    router = r.get("router")
    return (r["subject"], r["case"], spread(r["value"], r["lowest"], r["highest"], 1),
            f"{statistics.median(said):.1f}" if said else "nothing", r["reference"] or "",
            spread(r["ratio"], r["ratio_lowest"], r["ratio_highest"], 2) if r["ratio"] else "",
            f"{r['bar']} {r['met']}" if "bar" in r else "",
            f"{router['copied_in']} / {router['copied_out']} of {router['payload']}" if router else "")


def hunt(bench, kinds):
    """Runs until the time is over. The exit status."""
    options, end, runs = bench.options, time.monotonic() + bench.options.hunt * 60, 0
    try:
        bench.start()
        for kind in itertools.cycle(kinds):
            if time.monotonic() >= end:
                break
            runs += bench.attempt(" ".join(kind), bench.load, *kind) is not None
        if bench.lost:
            bench.end_servers()
    finally:
        bench.close()
    print(f"{runs} runs of {options.seconds} s, {len(bench.spoilt)} more were spoilt; messages were lost in {bench.lost}.")
    return 1 if bench.lost else 0


def keys_table(bench):
    """Each round has each method once, each second round backwards. The exit status."""
    options, found = bench.options, {}
    try:
        bench.start()
        for n in range(options.rounds):
            for keys in options.keys if n % 2 == 0 else options.keys[::-1]:
                bench.change_router(keys)
                bench.attempt(f"{keys}, to connect", bench.load, "o2ib1", "put")
                for size in KEYS_SIZES:
                    run = bench.attempt(f"{keys} {size >> 10} KiB", bench.load, "o2ib1", "put", size)
                    if run:
                        found.setdefault((size, keys), []).append(run)
    finally:
        bench.close()

    def middle(size, keys, of):
        values = [run[of] for run in found.get((size, keys), [])]
        return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})" if values else "none"

    print()
    results.print_table(("message", "remote_keys", "MiB/s", "router's CPU, us a message", "runs"),
                        [(f"{size >> 10} KiB", keys, middle(size, keys, "rate"), middle(size, keys, "cpu_us"),
                          str(len(found.get((size, keys), [])))) for size in KEYS_SIZES for keys in options.keys])
    print(machine.describe())
    return 0 if len(found) == len(options.keys) * len(KEYS_SIZES) else 1


def guest(options):
    lab.START_DEADLINE = 90     # an emulated machine takes its time
    bench = Bench(options)
    if options.keys:
        return keys_table(bench)
    if options.hunt:
        return hunt(bench, options.hunted)
    rounds, left_out = [], 0
    try:
        bench.start()
        for n in range(options.rounds):
            print(f"round {n + 1} of {options.rounds}", flush=True)
            # Those through the router are spread over all rounds, and as often backwards as not.
            routed = n * options.routed // options.rounds != (n + 1) * options.routed // options.rounds
            found = bench.round(PATHS if routed else ["direct"], n % 2 == 1)
            if found:
                rounds.append(found)
            else:
                left_out += 1
        check(rounds, "there is no round without a spoilt run")
        bench.peer_credits = bench.depth()
        if bench.lost:
            bench.end_servers()
    except (verbs.Failed, lab.LabError, OSError, RuntimeError) as why:
        print(f"vm bench: {why}")
        return 1
    finally:
        bench.close()
    rows, routed = rows_of(bench, rounds), sum(any(path in ROUTED for path, _ in r) for r in rounds)
    for r in rows:
        r.update(machine=machine.describe(), repeated=len(bench.spoilt), left_out=left_out, lost_runs=bench.lost)
    print()
    results.print_table(("path", "operation", "MiB/s (lowest-highest)", "program says", "against", "ratio (lowest-highest)", "bar",
                         "router copied in / out, bytes"), [line(r) for r in rows])
    print(f"""
Medians of {len(rounds)} rounds of {options.seconds} s a run, in turn, each second round backwards, {routed} of them with the router too;
ratios are of runs of one round. Behind a bar: where the median of ever more such rounds is, with a certainty of {results.CERTAIN:.0%}.
1 MiB messages, {options.concurrency} on their way, peer_credits {bench.peer_credits} (as negotiated), idle adaptive, verification off,
router: one reactor.
ib_write_bw: RDMA WRITEs of 1 MiB, up to {TX_DEPTH} on their way; it polls for completions (it cannot sleep), which takes a core.
Direct: between the devices of ib_write_bw, {CLIENT_DEVICE} and {DIRECT_DEVICE}. Through millraced: against the direct run of the
same operation in the same round; to o2ib1 each byte passes two links of software devices then, to tcp one, on the same cores as all else.""")
    print(f"Spoilt runs: {len(bench.spoilt)}, made again; rounds left out: {left_out}." if bench.spoilt else "No run was spoilt.")
    for why in bench.spoilt:
        print("   " + why)
    if bench.lost:
        print(f"MESSAGES WERE LOST, or not all well, in {bench.lost} runs: what is known of them is above.")
    again = sum(sum(r[key]["resent"].values()) > 0 for r in rounds for key in r)
    print(f"Packets that came again or out of order: in {again} of {sum(map(len, rounds))} runs.")
    print(machine.describe())
    print(ROWS + json.dumps(rows))
    return 1 if bench.lost else 0


# ------------------------------------------------------------------------------------------------------ on the host

def host(options):
    """Boots a guest for the other half of this program."""
    described, span, shares = machine.describe(), machine.Span(), []
    print(f"host: {described}", flush=True)
    boot = [sys.executable, os.path.join(HERE, "vm.py"), "--build", options.build, "--rxe", str(DEVICES), "--memory", "3072",
            "--limit", str(240 + (60 * (options.hunt + 3) if options.hunt else
                                 options.rounds * 9 * (options.seconds + 30) if options.keys else
                                 (options.rounds * 3 + options.routed * 4) * (options.seconds + 20)))]
    if options.accel:
        boot += ["--accel", options.accel]
    boot += ["--", "python3", "-B", os.path.join(HERE, "bench.py"), "--guest", "--build", options.build, "--rounds", options.rounds,
             "--routed", options.routed, "--seconds", options.seconds, "--concurrency", options.concurrency, "--hunt", options.hunt,
             "--hunted", ",".join(map(":".join, options.hunted)), *(["--keys", ",".join(options.keys)] if options.keys else [])]
    rows = None
    with subprocess.Popen(list(map(str, boot)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, bufsize=1) as vm:
        try:
            for text in vm.stdout:
                if text.startswith(ROWS):
                    rows = json.loads(text[len(ROWS):])
                    continue
                print(text, end="", flush=True)
                if text.rstrip().endswith(" MiB/s"):    # the end of a run
                    shares.append(span.stop().shares())
                    span = machine.Span()
        except KeyboardInterrupt:
            vm.terminate()
            return 130
    if options.hunt or options.keys:
        return vm.returncode
    if rows is None:
        return vm.returncode or 1
    shares = {name: [s[name] for s in shares] for name in shares[0]}
    foreign = shares["foreign_share"]
    print(f"On the host others had {statistics.median(foreign):.0%} of the CPU time used around a run ({min(foreign):.0%} to "
          f"{max(foreign):.0%}), the hypervisor at most {max(shares['stolen_share']):.0%} of the time.")
    if statistics.median(foreign) > machine.FOREIGN_LIMIT:
        print(f"NOISY: above {machine.FOREIGN_LIMIT:.0%} a bar says little. Who polls, as ib_write_bw does, loses more by others than who sleeps.")
    if options.json:
        for r in rows:
            r.update(shares, host=described)
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    return vm.returncode


def kinds_of(text):
    kinds = [tuple(kind.split(":")) for kind in text.split(",")]
    for kind in kinds:
        if len(kind) != 2 or kind[0] not in PATHS or kind[1] not in ("put", "get"):
            raise argparse.ArgumentTypeError(f"not PATH:OPERATION: {':'.join(kind)}")
    return kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True, help="the build folder (./dev gives it)")
    parser.add_argument("--rounds", type=int, default=13, help="of ib_write_bw and the direct runs (13)")
    parser.add_argument("--routed", type=int, default=5, help="how many of these have the runs through the router too (5)")
    parser.add_argument("--seconds", type=int, default=3, help="length of a run (3)")
    parser.add_argument("--concurrency", type=int, default=8, help="messages on their way (8)")
    parser.add_argument("--keys", metavar="LIST", nargs="?", const=KEYS, type=lambda text: text.split(","),
                        help=f"compare these methods of `verbs: remote_keys` instead ({','.join(KEYS)})")
    parser.add_argument("--hunt", type=int, metavar="MINUTES", default=0, help="no table: runs of the kinds in --hunted for so long")
    parser.add_argument("--hunted", metavar="LIST", type=kinds_of, default="tcp:get",
                        help="these, in turn: PATH:OPERATION,..., of direct, o2ib1, tcp and put, get (tcp:get)")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, with all samples and settings")
    parser.add_argument("--accel", choices=("auto", "kvm", "tcg"), help="of the guest (test/vm/vm.py)")
    parser.add_argument("--guest", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.routed = min(options.routed, options.rounds)
    if options.rounds < 1 or options.routed < 0 or not 2 <= options.seconds <= 600 or not 1 <= options.concurrency <= 512 \
            or options.hunt < 0:
        parser.error("--rounds is at least 1, --routed and --hunt 0, --seconds from 2 to 600, --concurrency from 1 to 512")
    options.build = os.path.abspath(options.build)
    return guest(options) if options.guest else host(options)


if __name__ == "__main__":
    sys.exit(main())
