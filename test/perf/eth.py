# SPDX-License-Identifier: BSD-3-Clause
"""What routing over ports costs beside plain forwarding of frames, over memif:

    generator --- memif --- millraced, one reactor --- memif --- generator       LNet messages over TCP
    blaster ----- memif --- port-forward ------------- memif --- blaster         frames as they are

Both ends are one process on one core, the middle has another core for itself. The blaster sends as many frames, and as many
bytes, each way as the router's ports carried. Both middles count the cycles of turns in which there was something to do, so
capacity is what they moved by the part of the time in which they were busy: at full load it is the rate itself.
"""

import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass, replace

import lab
import machine
import results

ROUTER = "app/millraced/millraced"
NEAR, FAR = "10.64.0.1", "10.65.0.1"          # of the router; its nets are /16
SOURCES, TARGETS = "10.64.1.1", "10.65.1.1"   # the first of each, consecutive
SMALL_FRAME = 66                              # an acknowledgement of TCP's, with timestamps
BUSY_LEAST = 0.5                              # below it the middle was not what limited the run, nor near it
TRIES = 4                                     # of such a run, until its round is left out
WAIT_LIMIT = 0.02                             # of the time: what others may have had of the middle's core
ATTEMPTS = 5
SETTLE = 0.3                                  # seconds of traffic before the figures are taken
LOOKS = 2                                     # seconds of a run beside: for looking at the figures
ONE_INFLIGHT = 8                              # messages of one peer: its credits
HUGE_PAGES = 1400                             # free ones with which all programs take their memory from them
PORT_BURST = 64                               # frames of a turn of port-forward's, at most
KEEP_MOST = 512                               # turns: half of what frame-blast may have on their way
WINDOW = 256                                  # frames of one way of frame-blast's
FLOW = 32 << 10                               # bytes of payload after which messages flow
DEADLINE = 60                                 # seconds for a generator to begin, connect and end

CONFIG = """\
net:
  - net type: tcp
    local NI(s): [{{interfaces: {{0: near}}{near_tunables}}}]
  - net type: tcp1
    local NI(s): [{{interfaces: {{0: far}}{near_tunables}}}]
routing: {{enable: 1}}
{more}millrace:
  cores: "{cores}"
  idle: {idle}
  hugepages: {huge}
{millrace}  rpc: {{socket: {socket}}}
  ports:
    - {{name: near, device: '{near_device}', mtu: {mtu}, addresses: [10.64.0.1/16], duplicate_check: false}}
    - {{name: far, device: '{far_device}', mtu: {mtu}, addresses: [10.65.0.1/16], duplicate_check: false}}
"""


@dataclass(frozen=True)
class Case:
    operation: str
    size: str
    peers: int
    inflight: int      # of all peers together
    mtu: int
    bar: float = 0     # of plain forwarding; 0: none
    idle: str = "adaptive"
    targets: int = 0   # 0: as many as peers
    router_credits: int = 0  # peer_buffer_credits of the router's NIs; 0: its default
    order: str = "round-robin"  # of the generator's messages

    def __str__(self):
        to = f" to {self.targets}" if self.targets else ""
        credits = f" router credits {self.router_credits}" if self.router_credits else ""
        order = f" {self.order} order" if self.order != "round-robin" else ""
        return f"{self.operation} {self.size} {self.peers} peers{to} mtu{self.mtu}{credits}{order}"


CASES = (Case("put", "1M", 4, 16, 9000, 0.6), Case("get", "1M", 4, 16, 9000, 0.6), Case("put", "1M", 4, 16, 1500, 0.35),
         Case("get", "1M", 4, 16, 1500, 0.35), Case("put", "4k", 64, 512, 9000, 0.4), Case("get", "4k", 64, 512, 9000, 0.4))


# One message there, one answer back, both middles without sleep.
ALONE = Case("put", "4k", 1, 1, 9000, idle="spin", targets=1)
ALONE_FRAMES = ("4330:1", "220:1")            # what a PUT of 4 KiB and its ACK are on the wire, about
ADDED_BARS = {"p50": 15.0, "p99": 30.0}       # us


def middle_cores(count=1):
    """The cores of what is measured, and that of what sends to it."""
    last = os.cpu_count() - 1
    return list(range(max(0, last - count + 1), last + 1)), 0


def memif(number, role, path, mtu):
    """Arguments of a memif, whose buffers hold a whole frame: with smaller ones the driver damages frames when its ring is full."""
    return f"net_memif{number},role={role},id=0,socket-abstract=no,socket={path},bsize={9216 if mtu > 2034 else 2048}"


def generator_arguments(case, seconds, devices, *more, sources=SOURCES, targets=TARGETS):
    """Of millrace-peers, with sources on the first device and targets on the other."""
    near, far = devices
    return ("--json", "--cores", middle_cores()[1], "--idle", "spin", "--port", near, "--peers", f"{sources}@tcp*{case.peers}",
            "--gateway", f"{NEAR}@tcp", "--server-port", far, "--server-gateway", f"{FAR}@tcp1", "--size", case.size, "--order", case.order,
            "--inflight", case.inflight, "--timeout", DEADLINE, "--seconds", seconds, *more, case.operation,
            f"{targets}@tcp1*{case.targets or case.peers}")


class Room:
    """A folder for sockets, and the processes that were started in it. No namespaces: nothing here touches the host's network."""

    def __init__(self, build, router_build=None):
        """router_build: the folder whose millraced it is; None: that of the other programs."""
        self.build, self.processes, self.routers = os.path.abspath(build), [], []
        self.router_build = os.path.abspath(router_build or build)
        self.dir = tempfile.mkdtemp(prefix="mr-")
        self.huge = machine.hugepages_free() >= HUGE_PAGES

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        for router in self.routers:
            router.rpc.close()
        for process in self.processes:
            process.popen.terminate()
        for process in reversed(self.processes):
            try:
                process.stop()
            except (lab.LabError, OSError) as e:
                print(f"(while cleaning up: {e})")
        shutil.rmtree(self.dir, ignore_errors=True)

    def argv(self, program, *arguments):
        path = os.path.join(self.router_build if program == ROUTER else self.build, program)
        if not os.access(path, os.X_OK):
            raise lab.LabError(f"{path} is not there: build first (./dev build)")
        return [path, *map(str, arguments)]

    def start(self, name, program, *arguments):
        self.processes.append(lab.Process(lab.Here(), name, self.argv(program, *arguments)))
        return self.processes[-1]

    def talk(self, name, program, *arguments):
        self.processes.append(lab.Talk(name, self.argv(program, *arguments)))
        return self.processes[-1]

    def devices(self, role, mtu):
        return [memif(i, role, f"{self.dir}/{i}", mtu) for i in (0, 1)]

    def device_pair(self, mtu):
        """The two ends of one memif, for one process."""
        return [memif(i, role, f"{self.dir}/pair", mtu) for i, role in enumerate(("server", "client"))]

    def router(self, mtu, idle="adaptive", cores=1, more="", tunables="", millrace=""):
        near, far = self.devices("server", mtu)
        path, config = f"{self.dir}/rpc.sock", f"{self.dir}/millraced.yaml"
        with open(config, "w", encoding="ascii") as f:
            f.write(CONFIG.format(cores=",".join(map(str, middle_cores(cores)[0])), idle=idle, socket=path, mtu=mtu, more=more,
                                  huge=str(self.huge).lower(), millrace=millrace,
                                  near_device=near, far_device=far, near_tunables=tunables))
        router = lab.Router(self.start("millraced", ROUTER, "--config", config), path)
        self.routers.append(router)
        return router

    def generator(self, case, seconds, *more, sources=SOURCES, targets=TARGETS):
        """Sources on one port and targets on the other, in one process."""
        more = (*more, "--hugepages") if self.huge else more
        return self.start("millrace-peers", "test/perf/peers/millrace-peers",
                          *generator_arguments(case, seconds, self.devices("client", case.mtu), *more, sources=sources, targets=targets))

    def frames(self, options):
        """For the programs that move plain frames."""
        return (*options, "-H") if self.huge else options


# -------------------------------------------------------------------------------------------------------- looking

def queues_in(queues, by):
    """(frames, bytes) that came in at each of the two ports; by: the key that names them."""
    out = {}
    for q in queues:
        if q["direction"] == "rx":
            frames, size = out.get(q[by], (0, 0))
            out[q[by]] = (frames + q["packets"], size + q["bytes"])
    return [out[k] for k in sorted(out, key=lambda k: k in (1, "far"))]


class RouterView:
    """A millraced, looked at twice."""

    def __init__(self, router):
        self.router = router

    def look(self):
        ports = self.router.call("port_get")["port"]
        tcp = self.router.call("tcp_stats_get")["reactors"]
        pid = self.router.process.popen.pid
        reactors = self.router.call("reactors_get")["reactors"]
        stats = self.router.stats()
        return {"at": time.monotonic(), "reactors": [{k: r[k] for k in ("busy_cycles", "total_cycles", "sleep_us")} for r in reactors],
                "in": queues_in([{**q, "port": p["name"]} for p in ports for q in p["queues"]], "port"),
                "lost": sum(q["no_buffer"] + q["bad"] for p in ports for q in p["queues"]),
                "checksums": sum(q["checksums"] for p in ports for q in p["queues"]),
                "resent": sum(r["tcp"]["resent"] for r in tcp), "messages": stats["route_count"], "payload": stats["route_length"],
                "copies": sum(r["tcp"]["copied_bytes"] for r in tcp), "dropped": stats["drop_count"],
                "segments": [r["segments"] for r in self.router.call("buffers_get")["reactors"]],
                "cpu": [machine.thread_waits(pid, f"reactor-{i}")[0] for i in range(len(reactors))],
                "waited": [machine.thread_waits(pid, f"reactor-{i}")[1] for i in range(len(reactors))]}


def busy_share(before, after, seconds):
    """Part of the time in which a reactor had something to do."""
    asleep = (after["sleep_us"] - before["sleep_us"]) / 1e6
    hz = (after["total_cycles"] - before["total_cycles"]) / max(seconds - asleep, 1e-6)
    return (after["busy_cycles"] - before["busy_cycles"]) / max(hz, 1) / seconds, hz


def figures(a, b):
    """What a router did between two looks."""
    seconds = b["at"] - a["at"]
    shares = [busy_share(x, y, seconds) for x, y in zip(a["reactors"], b["reactors"])]
    frames = [(y[0] - x[0], y[1] - x[1]) for x, y in zip(a["in"], b["in"])]
    waited, cpu = ([(y - x) / seconds for x, y in zip(a[k], b[k])] for k in ("waited", "cpu"))
    messages = b["messages"] - a["messages"]
    busy = sum(s for s, _ in shares)
    wire, payload = sum(f[1] for f in frames) / seconds, (b["payload"] - a["payload"]) / seconds
    if messages == 0 or busy == 0:
        raise lab.LabError(f"the router forwarded {messages} messages in {seconds:.1f} s")
    return {"seconds": seconds, "busy": busy / len(shares), "busy_each": [s for s, _ in shares], "in": frames,
            "wire": wire, "payload": payload, "messages": messages / seconds, "wire_capacity": wire / busy,
            "payload_capacity": payload / busy, "cycles_per_message": busy * seconds * shares[0][1] / messages,
            **{k: b[k] - a[k] for k in ("lost", "checksums", "resent", "copies", "dropped")},
            "segments_total": sum(s["total"] for s in b["segments"]), "segments_most": sum(s["total"] - s["low"] for s in b["segments"]),
            "waited": max(waited), "waited_each": waited, "cpu_each": cpu, "hz": shares[0][1],
            "forwarded": messages}


def wait_flow(view, process):
    """Until messages are forwarded: those before, pings, have little payload."""
    begun, deadline = view.router.stats()["route_length"], time.monotonic() + DEADLINE
    while view.router.stats()["route_length"] - begun < FLOW:
        if not process.running():
            raise lab.LabError(f"millrace-peers ended before it sent much: {process.said()}")
        if time.monotonic() > deadline:
            raise lab.LabError(f"millrace-peers does not begin: {process.said()}")
        time.sleep(0.02)
    time.sleep(SETTLE)


def run_router(build, case, seconds, verify="none", cores=1, more="", millrace="", **ends):
    """One run of messages through a router on so many cores; more, millrace: for its configuration, as a whole and below
    `millrace:`; ends: addresses of the generator's. Returns what was
    measured."""
    with Room(build) as room:
        tunables = f", tunables: {{peer_buffer_credits: {case.router_credits}}}" if case.router_credits else ""
        router = room.router(case.mtu, case.idle, cores, more, tunables, millrace)
        view = RouterView(router)
        generator = room.generator(case, seconds + 2 * SETTLE + LOOKS, "--verify", verify, **ends)
        wait_flow(view, generator)
        span, a = machine.Span(), view.look()
        time.sleep(seconds)
        b = view.look()
        span.stop()
        how = {**settings(router), "hugepages": room.huge}  # while both ends of its devices are there
        if not generator.running():
            raise lab.LabError(f"{case}: millrace-peers had ended before the figures were taken: others use the machine too much")
        result = generator.result(DEADLINE)
        out = {**figures(a, b), **span.shares(), "generator": result, "settings": how}
        if not result["ok"] or out["dropped"] or out["lost"]:
            raise lab.LabError(f"{case}: {result['trouble']}; dropped {out['dropped']}, {out['lost']} frames lost")
        return out


def settings(router):
    """What the results depend on beside the program, as the router itself says it."""
    ni = [ni for n in router.call("net_get")["net"] for ni in n["local NI(s)"] if n["net type"] != "lo"][0]
    port = router.call("port_get")["port"][0]
    return {**{k: ni["tunables"][k] for k in ("peer_credits", "peer_buffer_credits", "credits")},
            "device": port["driver"], "offloads": ",".join(port["offloads"]) or "none: checksums in software, no TSO"}


def mix(frames, size):
    """SIZE:COUNT,… of full and of small frames: as many frames, and as many bytes, as these."""
    count, total = frames
    full = min(count, max(0, round((total - count * SMALL_FRAME) / (size - SMALL_FRAME))))
    return ",".join(f"{s}:{n}" for s, n in ((size, full), (SMALL_FRAME, count - full)) if n)


def kept_turns(size, mtu):
    """The turns of port-forward's in which as many bytes come in as these."""
    return min(round(size / (PORT_BURST * (mtu + 14))), KEEP_MOST)


def run_plain(build, mtu, frames, seconds, keep=0):
    """One run of plain frames in the proportions that a router had, which keeps them for so many turns. Returns what was measured."""
    core, ends = middle_cores()
    with Room(build) as room:
        wire = room.talk("port-forward", "test/perf/port-forward", *room.frames(("-s", "-m", mtu, "-c", core[0], "-k", keep)),
                         *room.devices("server", mtu))
        wire.line()
        blaster = room.talk("frame-blast", "test/perf/frame-blast",
                            *room.frames(("-m", mtu, "-c", ends, "-t", int(seconds + 2 * SETTLE + 1),
                                            "-w", max(WINDOW, 2 * keep * PORT_BURST))),
                            *ways_of(frames, mtu), *room.devices("client", mtu))
        blaster.line()
        time.sleep(SETTLE)
        span, waited, a = machine.Span(), machine.thread_waits(wire.popen.pid, "port-forward")[1], json.loads(wire.ask())
        time.sleep(seconds)
        b = json.loads(wire.ask())
        span.stop()
        waited = machine.thread_waits(wire.popen.pid, "port-forward")[1] - waited
        sent = json.loads(blaster.line())["ways"]
        if any(w[k] for w in sent for k in ("missing", "altered", "strange")):
            raise lab.LabError(f"plain frames did not all come through: {sent}")
        elapsed = (b["cycles"] - a["cycles"]) / b["hz"]
        busy = (b["busy_cycles"] - a["busy_cycles"]) / (b["cycles"] - a["cycles"])
        moved = [(y[0] - x[0], y[1] - x[1]) for x, y in zip(queues_in(a["queues"], "port"), queues_in(b["queues"], "port"))]
        bytes_a_second = sum(m[1] for m in moved) / elapsed
        if busy == 0 or bytes_a_second == 0:
            raise lab.LabError(f"no frame was forwarded in {elapsed:.1f} s")
        return {"seconds": elapsed, "busy": busy, "in": moved, "wire": bytes_a_second, "wire_capacity": bytes_a_second / busy,
                "waited": waited / elapsed, **span.shares()}


def ways_of(frames, mtu):
    return [word for flag, way in (("-f", frames[0]), ("-r", frames[1])) if way[0] for word in (flag, mix(way, mtu + 14))]


def run_direct(build, mtu, frames, seconds):
    """The same frames straight from one end to the other: what the ends, on their one core, could pass with nothing between."""
    seconds = max(1, round(seconds))
    with Room(build) as room:
        blaster = room.talk("frame-blast", "test/perf/frame-blast", *room.frames(("-m", mtu, "-c", middle_cores()[1], "-t", seconds)),
                            *ways_of(frames, mtu), *room.device_pair(mtu))
        blaster.line()
        span, waited = machine.Span(), machine.thread_waits(blaster.popen.pid, "frame-blast")[1]
        sent = json.loads(blaster.line())["ways"]
        span.stop()
        waited = (machine.thread_waits(blaster.popen.pid, "frame-blast") or (0, waited))[1] - waited
        if any(w[k] for w in sent for k in ("missing", "altered", "strange")):
            raise lab.LabError(f"plain frames did not all come through: {sent}")
        return {"direct": sum(w["came_bytes"] for w in sent) / seconds, "waited": waited / seconds, **span.shares()}


def run_direct_messages(build, case, seconds, verify="none"):
    """The same messages from one source straight to one target, which are one process on the ends' core: no router."""
    near, far = ("10.64.1.1@tcp", "10.64.2.1@tcp")
    with Room(build) as room:
        devices = room.device_pair(case.mtu)
        span, more = machine.Span(), ("--hugepages",) if room.huge else ()
        generator = room.start("millrace-peers", "test/perf/peers/millrace-peers", "--json", "--cores", middle_cores()[1], "--idle", "spin",
                               *more, "--port", devices[0], "--peers", f"{near}*1", "--gateway", far, "--server-port", devices[1],
                               "--server-gateway", near, "--size", case.size, "--inflight", min(case.inflight, ONE_INFLIGHT),
                               "--timeout", DEADLINE, "--seconds", seconds, "--verify", verify, case.operation, f"{far}*1")
        result = generator.result(DEADLINE + seconds)
        span.stop()
        if not result["ok"]:
            raise lab.LabError(f"{case}, direct: {result['trouble']}")
        return {"generator": result, "waited": 0, "payload": result[case.operation]["bytes_per_second"], **span.shares()}


def run_frame_pings(build, seconds, forwarded):
    """One frame there and one back, and how long that takes: straight from one end to the other, which is what an exchange takes
    with nothing between, or forwarded by port-forward, which adds another core that polls."""
    with Room(build) as room:
        if forwarded:
            wire = room.talk("port-forward", "test/perf/port-forward", *room.frames(("-s", "-m", ALONE.mtu, "-c", middle_cores()[0][0])),
                             *room.devices("server", ALONE.mtu))
            wire.line()
        devices = room.devices("client", ALONE.mtu) if forwarded else room.device_pair(ALONE.mtu)
        blaster = room.talk("frame-blast", "test/perf/frame-blast", *room.frames(("-m", ALONE.mtu, "-c", middle_cores()[1])), "-t",
                            max(1, round(seconds)), "-p", "-f", ALONE_FRAMES[0], "-r", ALONE_FRAMES[1], *devices)
        blaster.line()
        span, waited = machine.Span(), machine.thread_waits(blaster.popen.pid, "frame-blast")[1]
        answer = json.loads(blaster.line())
        span.stop()
        # It runs on for a moment: long enough to look at it once more.
        waited = (machine.thread_waits(blaster.popen.pid, "frame-blast") or (0, waited))[1] - waited
        return {**answer["round_trip_us"], "waited": waited / seconds, **span.shares()}


def run_frame_pair(build, seconds):
    return run_frame_pings(build, seconds, False)


# ------------------------------------------------------------------------------------------------------ the benchmark

def disturbed(sample):
    return sample["foreign_share"] > machine.FOREIGN_LIMIT or sample["waited"] > WAIT_LIMIT


def quiet(options, what, *arguments, waits=False):
    """A run during which others left the cores alone. waits: what is measured may wait for its core."""
    if options.noisy:
        return what(options.build, *arguments)
    for _ in range(ATTEMPTS):
        machine.wait_until_quiet()
        sample = what(options.build, *arguments)
        if not disturbed({**sample, "waited": 0} if waits else sample):
            return sample
    raise lab.LabError(f"others use the machine too much to measure anything: {sample['foreign_share']:.0%} of the CPU time was that "
                       f"of other processes, and what is measured waited {sample['waited']:.0%} of the time for its core, "
                       f"{ATTEMPTS} times in a row. --noisy measures all the same")


class Rounds:
    """The rounds of one case: runs that are compared with one another. What a middle moves in a few short turns, divided by the small
    part of the time that these take, is no capacity: a run in which the middle had too little to do, because something held up its
    ends or itself, is made again, whatever the options say, and a round without a good run of each kind is left out."""

    def __init__(self, case, options, progress):
        self.case, self.options, self.progress = case, options, progress
        self.repeated, self.left_out, self.lowest = 0, 0, 1.0

    def busy_run(self, name, what, *arguments):
        """A run whose middle was busy enough; None: there was none in TRIES."""
        for attempt in range(1, TRIES + 1):
            sample = quiet(self.options, what, *arguments)
            if sample["busy"] >= BUSY_LEAST:
                return sample
            self.repeated += attempt < TRIES
            self.lowest = min(self.lowest, sample["busy"])
            self.progress(f"{self.case}: {name} busy for {sample['busy']:.2f} of the time only: "
                          f"{'again' if attempt < TRIES else 'this round is left out'}")
        self.left_out += 1
        return None

    def said(self):
        """For the table; empty: each run was good at once."""
        if not self.repeated and not self.left_out:
            return ""
        return f"{self.case}: {self.repeated} runs made again, {self.left_out} of {self.options.repeat} rounds left out, as the middle " \
               f"was busy for less than {BUSY_LEAST} of the time (at least {self.lowest:.2f})"


def median(samples, key):
    return statistics.median(s[key] for s in samples)


def row(case, metric, value, unit, of, bench="eth", **more):
    """A row about the samples `of`, whatever else it has."""
    settings_of = {**of[0]["settings"], "peers": case.peers, "targets": case.targets or case.peers, "inflight": case.inflight,
                   "mtu": case.mtu, "idle": case.idle, "verify": of[0]["generator"]["verify"]}
    return {"bench": bench, "case": str(case), "subject": "millraced", "metric": metric, "value": value, "unit": unit,
            "settings": settings_of, "foreign_share": max(s["foreign_share"] for s in of),
            "stolen_share": max(s["stolen_share"] for s in of), "waited_share": max(s["waited"] for s in of), **more}


def rows_of(case, routed, plain):
    """Against plain forwarding, and by themselves."""
    mine, theirs = [[s["wire_capacity"] / 1e6 for s in samples] for samples in (routed, plain)]
    busy = median(routed, "busy")
    yield row(case, "wire_capacity", statistics.median(mine), "MB/s", routed + [{**routed[0], **s} for s in plain], reference="plain frames",
              **results.compared(mine, theirs, True), reference_value=statistics.median(theirs), bar=case.bar, samples=mine,
              reference_samples=theirs, busy_share=busy, reference_busy_share=median(plain, "busy"))
    for metric, key, unit, scale in (("throughput", "payload", "MB/s", 1e-6), ("payload_capacity", "payload_capacity", "MB/s", 1e-6),
                                     ("cycles_per_message", "cycles_per_message", "cycles", 1)):
        yield row(case, metric, median(routed, key) * scale, unit, routed, reference=None, ratio=None, busy_share=busy,
                  samples=[s[key] * scale for s in routed])


HEAD = ("case", "what", "payload MB/s", "messages/s", "wire MB/s", "frames/s", "bytes/frame", "busy share", "wire capacity MB/s",
        "cycles/message", "sent again", "checksums/frame", "ends' busy", "ends' cycles/message", "waited")


def lines_of(case, routed, plain):
    for name, samples in (("millraced", routed), ("plain frames", plain)):
        is_router = samples is routed
        frames = statistics.median(sum(f[0] for f in s["in"]) / s["seconds"] for s in samples)
        wire, busy = median(samples, "wire"), median(samples, "busy")
        yield (str(case), name, results.number(median(samples, "payload") / 1e6) if is_router else "",
               f"{median(samples, 'messages'):.0f}" if is_router else "", results.number(wire / 1e6), f"{frames:.0f}",
               f"{wire / frames:.0f}", f"{busy:.2f}",
               results.number(median(samples, "wire_capacity") / 1e6),
               f"{median(samples, 'cycles_per_message'):.0f}" if is_router else "",
               str(sum(s["resent"] for s in samples)) if is_router else "",
               f"{statistics.median(s['checksums'] / max(1, sum(f[0] for f in s['in'])) for s in samples):.2f}" if is_router else "",
               f"{statistics.median(s['generator']['reactor']['busy'] for s in samples):.2f}" if is_router else "",
               f"{statistics.median(s['generator']['reactor']['cycles_per_message'] for s in samples):.0f}" if is_router else "",
               f"{max(s['waited'] for s in samples):.0%}")


def latency(options):
    """Rows: what a message with nobody before it takes more through the router than straight from one end to the other. And lines:
    what that is made of."""
    rows, samples = [], {"p50": [], "p99": []}
    case = replace(ALONE, router_credits=options.router_credits)
    routed, direct, straight, forwarded = [], [], [], []
    for _ in range(options.repeat):
        routed.append(quiet(options, run_router, case, options.seconds, options.verify))
        direct.append(quiet(options, run_direct_messages, case, options.seconds, options.verify))
        straight.append(quiet(options, run_frame_pings, options.seconds, False))
        forwarded.append(quiet(options, run_frame_pings, options.seconds, True))
    for name, bar in ADDED_BARS.items():
        whole, least = [[s["generator"][ALONE.operation]["round_trip_us"][name] for s in of] for of in (routed, direct)]
        samples[name] = [w - f for w, f in zip(whole, least)]
        rows.append(row(case, f"added_{name}", statistics.median(samples[name]), "us", routed, reference=None, ratio=None, bar=bar,
                        samples=samples[name], round_trip=statistics.median(whole), direct_round_trip=statistics.median(least)))
    return rows, latency_lines(routed, direct, straight, forwarded)


def latency_lines(routed, direct, straight, forwarded):
    """Where the time of one exchange (a PUT and its ACK, so two messages of the router's) goes, in us."""
    def times(of, key):
        return statistics.median(s["generator"][ALONE.operation]["round_trip_us"][key] for s in of)

    def of_ends(of):
        reactors = [s["generator"]["reactor"] for s in of]
        return statistics.median(r["cycles_per_message"] / r["cycles_per_second"] * 1e6 for r in reactors)

    router = statistics.median(2 * s["cycles_per_message"] / s["hz"] * 1e6 for s in routed)
    yield f"through the router, p50 (shortest {times(routed, 'min'):.1f}, p99.9 {times(routed, 'p99_9'):.1f})", times(routed, "p50")
    yield f"straight, p50 (shortest {times(direct, 'min'):.1f}, p99.9 {times(direct, 'p99_9'):.1f})", times(direct, "p50")
    yield "two such frames through port-forward, p50: another core that polls, and no TCP", median(forwarded, "p50")
    yield "two such frames straight, p50", median(straight, "p50")
    yield "busy turns of the ends' core, through the router", of_ends(routed)
    yield "busy turns of the ends' core, straight", of_ends(direct)
    yield "busy turns of the router's core, some of them after what is waited for has left", router


def measure(rounds):
    """What was measured in the rounds that are to be used: through the router, through plain forwarding, with no middle."""
    routed, plain, direct = [], [], []
    case, options = rounds.case, rounds.options
    for _ in range(options.repeat):
        router = rounds.busy_run("millraced", run_router, case, options.seconds, options.verify)
        frames = router and rounds.busy_run("plain forwarding", run_plain, case.mtu, router["in"], options.seconds)
        if frames is None:
            continue
        routed.append(router)
        plain.append(frames)
        direct.append({**quiet(options, run_direct, case.mtu, router["in"], options.seconds),
                       "payload": quiet(options, run_direct_messages, case, options.seconds, options.verify)["payload"]})
    return routed, plain, direct


def run(options, progress):
    """The benchmark. Returns its rows."""
    rows, lines, lines_alone, notes = [], [], [], []
    cases = [replace(c, router_credits=options.router_credits) for c in CASES
             if options.filter in str(c) and options.mtu in (None, c.mtu)]
    for case in cases:
        rounds = Rounds(case, options, progress)
        routed, plain, direct = measure(rounds)
        notes += [rounds.said()] if rounds.said() else []
        if not routed:
            lines.append((str(case), "not measured", *[""] * (len(HEAD) - 2)))
            continue
        of_case = len(rows)
        rows += rows_of(case, routed, plain)
        rows.append(row(case, "throughput", median(routed, "payload") / 1e6, "MB/s", routed, reference="messages straight from end to end",
                        **results.compared([s["payload"] for s in routed], [s["payload"] for s in direct], True),
                        reference_value=median(direct, "payload") / 1e6))
        rows.append(row(case, "wire_rate", median(routed, "wire") / 1e6, "MB/s", routed, reference="frames straight from end to end",
                        **results.compared([s["wire"] for s in routed], [s["direct"] for s in direct], True),
                        reference_value=median(direct, "direct") / 1e6))
        lines += lines_of(case, routed, plain)
        lines.append((str(case), "no middle", results.number(median(direct, "payload") / 1e6), "", results.number(median(direct, "direct") / 1e6), *[""] * (len(HEAD) - 5)))
        for r in rows[of_case:]:
            r.update(rounds=len(routed), repeated=rounds.repeated, left_out=rounds.left_out)
        progress(f"{case}: done")
    if options.filter in f"{ALONE} latency" and options.mtu in (None, ALONE.mtu):
        alone, parts = latency(options)
        rows += alone
        for r in alone:
            lines_alone.append(f"{r['metric']}: {r['value']:.1f} us ({r['round_trip']:.1f} through the router, {r['direct_round_trip']:.1f} "
                               f"straight); wanted below {r['bar']:.0f}: "
                               f"{'reached' if r['value'] < r['bar'] else 'MISSED'}")
    core, ends = middle_cores()
    print(f"\neth: memif, the middle on core {core[0]}, both ends on core {ends}, {options.repeat} rounds of {options.seconds:g} s, "
          f"verify {options.verify}, medians")
    results.print_table(HEAD, lines)
    print(*notes, sep="\n", end="\n" if notes else "")
    print("\nratios of capacities of neighbouring runs")
    results.print_table(results.RATIO_HEAD, [results.ratio_line(r) for r in rows if r["ratio"] is not None])
    if lines_alone:
        print(f"\n{ALONE.operation} {ALONE.size}, one on its way, idle: spin:", *lines_alone, sep="\n  ")
        results.print_table(("what", "us"), [(name, f"{us:.1f}") for name, us in parts])
    if rows:
        print(f"millraced: {', '.join(f'{k} {v}' for k, v in rows[0]['settings'].items() if k not in ('peers', 'inflight', 'mtu'))}")
    return rows
