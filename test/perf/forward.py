# SPDX-License-Identifier: BSD-3-Clause
"""What a relay in the path costs: the same two end nodes move the same messages over a direct link, through millraced,
and through HAProxy in TCP mode with and without splice, in turn.

    client c0 ------------ r0 router r1 ------------ s0 server      millraced, haproxy, haproxy-splice
           c1 -------------------------------------- s1             direct

All relays are processes in the one router namespace and use the same two veth pairs. The end nodes have a NID for each
path and choose the path by whom they call. To HAProxy the packets come by policy routing (see haproxy.cfg).
"""

import os
import shutil
import statistics
import time
from dataclasses import dataclass

import lab


class Skip(Exception):
    """Cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Path:
    name: str
    client: str  # NIDs
    server: str


DIRECT = Path("direct", "10.10.3.1@tcp2", "10.10.3.2@tcp2")
MILLRACED = Path("millraced", lab.CLIENT, lab.SERVER)
HAPROXY = Path("haproxy", "10.10.1.3@tcp3", "10.10.2.3@tcp3")
HAPROXY_SPLICE = Path("haproxy-splice", "10.10.1.4@tcp4", "10.10.2.4@tcp4")
REFERENCES = (HAPROXY, HAPROXY_SPLICE)
PATHS = (DIRECT, MILLRACED, *REFERENCES)

# operation, size, messages on the way
CASES = [("put", "1M", 8), ("get", "1M", 8), ("put", "4k", 32), ("get", "4k", 32)]
SIZES = {"1M": 1 << 20, "4k": 4096}

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "haproxy.cfg")
BAR = 0.3            # of HAProxy without splice, per byte at 1 MiB; the goal is 0.9
WARM_UP = 0.2        # of a run's length
FOREIGN_LIMIT = 0.2  # of the CPU time of a run: what may not be that of our processes. Interrupts are up to half of it
ATTEMPTS = 5
QUIET_SHARE = 0.1    # of all cores: so busy is a machine on which nothing runs, at most
QUIET_LOOK = 0.1     # seconds
QUIET_DEADLINE = 10


def address(nid):
    return nid.partition("@")[0]


def listens(pid, addr, port):
    """Whether somebody in the namespace of a process listens there."""
    raw = "".join(f"{int(b):02X}" for b in reversed(addr.split(".")))
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        return any(line.split()[1] == f"{raw}:{port:04X}" and line.split()[3] == "0A" for line in f.readlines()[1:])


def machine_busy_seconds():
    """CPU time of the whole machine so far, whoever used it: what was neither idle nor taken by the hypervisor. Idle
    time is what the kernel measures most exactly; it counts the rest by samples, as it does interrupts."""
    with open("/proc/stat", encoding="ascii") as f:
        ticks = [int(v) for v in f.readline().split()[1:]]
    idle, iowait, steal = ticks[3], ticks[4], ticks[7]
    return time.monotonic() * os.cpu_count() - (idle + iowait + steal) / os.sysconf("SC_CLK_TCK")


def wait_until_quiet():
    """Until others leave the machine alone, but not for ever: then the run itself will show how much they disturb."""
    deadline = time.monotonic() + QUIET_DEADLINE
    while time.monotonic() < deadline:
        begun, busy = time.monotonic(), machine_busy_seconds()
        time.sleep(QUIET_LOOK)
        if machine_busy_seconds() - busy < QUIET_SHARE * os.cpu_count() * (time.monotonic() - begun):
            return


class ForwardLab(lab.Lab):
    """The three nodes with a path for each relay and a direct one."""

    def __init__(self, build, mtu):
        super().__init__(build, mtu)
        self.client_nids = [p.client for p in PATHS]
        self.server_nids = [p.server for p in PATHS]
        self.relays = {}  # path name -> process

    def wire(self):
        super().wire()
        self.link("client", "c1", address(DIRECT.client), "server", "s1", address(DIRECT.server))
        self.spaces["client"].ip(f"route add 10.10.2.0/24 via {address(lab.ROUTER)}")
        self.spaces["server"].ip(f"route add 10.10.1.0/24 via {address(lab.ROUTER_FAR)}")
        self.spaces["router"].ip("rule add iif r0 lookup 100\nrule add iif r1 lookup 100")
        for path in REFERENCES:
            self.spaces["client"].ip(f"addr add {address(path.client)}/24 dev c0")
            self.spaces["server"].ip(f"addr add {address(path.server)}/24 dev s0")
            # What comes for either end node is for HAProxy's sockets here.
            self.spaces["router"].ip(f"route add local {address(path.server)}/32 dev lo table 100\n"
                                     f"route add local {address(path.client)}/32 dev lo table 100")

    def millraced(self, reactors):
        self.relays[MILLRACED.name] = self.router(reactors=reactors)

    def haproxy(self, path, threads, bufsize):
        splice = {"RELAY_SPLICE": "1"} if path is HAPROXY_SPLICE else {}
        process = self.start("router", path.name, [haproxy_program(), "-db", "-f", CONFIG], RELAY_THREADS=str(threads),
                             RELAY_BUFSIZE=str(bufsize), RELAY_ADDRESS=address(path.server), **splice)
        self.relays[path.name] = process
        deadline = time.monotonic() + lab.START_DEADLINE
        while not listens(process.popen.pid, address(path.server), 988):
            if not process.running() or time.monotonic() > deadline:
                raise lab.LabError(f"{path.name} did not start: {process.said()}")
            time.sleep(0.02)

    def relayed_bytes(self):
        """What came into the router's namespace so far."""
        with open(f"/proc/{self.router_process.popen.pid}/net/dev", encoding="ascii") as f:
            counts = (line.partition(":") for line in f)
            return sum(int(rest.split()[0]) for name, _, rest in counts if name.strip() in ("r0", "r1"))


def haproxy_program():
    program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Skip("haproxy is not installed (apt-get install haproxy)")
    return program


# ------------------------------------------------------------------------------------------------------- measuring

class Bench:
    """A lab in which all relays run, and the runs in it."""

    def __init__(self, the_lab, options):
        self.lab, self.options = the_lab, options
        the_lab.millraced(options.reactors)
        for path in REFERENCES:
            the_lab.haproxy(path, options.reactors, options.bufsize)
        self.server = the_lab.server()

    def _others_cpu(self):
        """CPU time of our long-lived processes, this one included: without the client."""
        mine = os.times()
        return mine.user + mine.system + self.server.cpu_seconds() + \
            sum(p.cpu_seconds() for p in self.lab.relays.values())

    def run(self, path, case, *amount):
        """One run of the client. Returns what was measured."""
        operation, size, inflight = case
        relay = self.lab.relays.get(path.name)
        stats, passed = self.lab.stats(), self.lab.relayed_bytes()
        others, relay_cpu = self._others_cpu(), relay.cpu_seconds() if relay else 0
        busy = machine_busy_seconds()
        client = self.lab.client("--size", size, "--inflight", inflight, *amount, "--verify", self.options.verify,
                                 operation, path.server)
        result = client.result(self.options.seconds * 20 + 60)
        busy = machine_busy_seconds() - busy
        others = self._others_cpu() - others
        relay_cpu = relay.cpu_seconds() - relay_cpu if relay else 0
        passed, before, stats = self.lab.relayed_bytes() - passed, stats, self.lab.stats()
        figures, own = result[operation], others + result["cpu_seconds"]
        self._check(path, case, result, passed, {k: stats[k] - before[k] for k in ("drop_count", "route_count")})
        return {"messages": figures["answered"], "bytes": figures["bytes"], "seconds": result["seconds"],
                "bytes_per_second": figures["bytes_per_second"], "p50_us": figures["round_trip_us"]["p50"],
                "counted_cpu_seconds": own if self.options.bar else busy,
                "machine_cpu_seconds": busy, "relay_cpu_seconds": relay_cpu, "foreign_cpu_seconds": busy - own}

    @staticmethod
    def _check(path, case, result, passed, routed):
        """That all went well, and over the path that was meant."""
        figures, trouble = result[case[0]], [result["trouble"]] if result["trouble"] else []
        if routed["drop_count"]:
            trouble.append(f"the router dropped {routed['drop_count']}")
        if (routed["route_count"] >= 2 * figures["answered"]) != (path is MILLRACED):
            trouble.append(f"the router forwarded {routed['route_count']} messages for {figures['answered']}")
        if (passed >= figures["bytes"]) != (path is not DIRECT):
            trouble.append(f"{passed} bytes went through the router's namespace for {figures['bytes']}")
        if trouble:
            raise lab.LabError(f"{case[0]} {case[1]} {path.name}: {'; '.join(trouble)}")

    def quiet_run(self, path, case, count):
        """A run during which nobody else used the machine much: else it says nothing about the relay."""
        if self.options.bar:
            return self.run(path, case, "--count", count)
        for _ in range(ATTEMPTS):
            wait_until_quiet()
            sample = self.run(path, case, "--count", count)
            if sample["foreign_cpu_seconds"] <= FOREIGN_LIMIT * sample["machine_cpu_seconds"]:
                return sample
        raise lab.LabError(f"others use the machine too much to measure anything: {sample['foreign_cpu_seconds']:.1f} of "
                           f"{sample['machine_cpu_seconds']:.1f} s of CPU, {ATTEMPTS} times in a row")

    def samples(self, case):
        """Path name -> samples, the i-th of each from the i-th round. Each run moves the same number of messages: what
        the slowest relay moves in the time of a run."""
        rates = [self.run(path, case, "--seconds", self.options.seconds * WARM_UP) for path in PATHS]
        count = max(1, int(self.options.seconds * min(r["messages"] / r["seconds"] for r in rates)))
        out = {path.name: [] for path in PATHS}
        for i in range(self.options.repeat):
            for name, sample in self.round(case, count, i % len(PATHS)).items():
                out[name].append(sample)
        return out

    def round(self, case, count, turn):
        """Each path once, another one first each time: nobody always has the warmer machine."""
        for _ in range(ATTEMPTS):
            samples = {path.name: self.quiet_run(path, case, count) for path in PATHS[turn:] + PATHS[:turn]}
            if all(cost(samples[path.name], samples[DIRECT.name]) > 0 for path in PATHS if path is not DIRECT):
                return samples
        raise lab.LabError(f"{case[0]} {case[1]}: a relay seems to cost nothing, {ATTEMPTS} times in a row: the machine "
                           "is too unsteady")


# -------------------------------------------------------------------------------------------------------- results

def cost(relayed, direct):
    """CPU seconds per byte that a relay adds: a run minus the direct run of its round."""
    return relayed["counted_cpu_seconds"] / relayed["bytes"] - direct["counted_cpu_seconds"] / direct["bytes"]


def costs(samples, path):
    return [cost(s, d) for s, d in zip(samples[path.name], samples[DIRECT.name])]


def values(samples, path, key):
    return [s[key] for s in samples[path.name]]


def spread(ratios):
    return {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


def ratios(mine, theirs, more_is_better):
    """Of neighbouring runs; over 1 when mine is better."""
    return [m / t if more_is_better else t / m for m, t in zip(mine, theirs)]


def better(samples):
    """The cheaper of the references."""
    return min(REFERENCES, key=lambda p: statistics.median(costs(samples, p)))


def rows_of(case, samples, options):
    """The rows of a case in the form of every benchmark: one for each figure of millraced and each reference."""
    size = SIZES[case[1]]
    metrics = (("cpu_per_byte", "s/GB", 1e9, False, costs),
               ("cpu_per_message", "us", 1e6 * size, False, costs),
               ("throughput", "MB/s", 1e-6, True, lambda s, p: values(s, p, "bytes_per_second")),
               ("round_trip_p50", "us", 1, False, lambda s, p: values(s, p, "p50_us")))
    out = []
    for metric, unit, scale, more_is_better, of in metrics:
        mine = of(samples, MILLRACED)
        for reference in PATHS:
            if reference is MILLRACED or (reference is DIRECT and of is costs):
                continue  # the direct path costs nothing by definition
            theirs = of(samples, reference)
            s = spread(ratios(mine, theirs, more_is_better))
            out.append({"bench": "forward", "case": f"{case[0]} {case[1]} mtu{options.mtu}", "metric": metric,
                        "value": statistics.median(mine) * scale, "unit": unit, "reference": reference.name,
                        "ratio": s["ratio"], "ratio_lowest": s["lowest"], "ratio_highest": s["highest"],
                        "reference_value": statistics.median(theirs) * scale,
                        "better_reference": better(samples).name, "inflight": case[2],
                        "samples": [v * scale for v in mine], "reference_samples": [v * scale for v in theirs]})
    return out


PATH_HEAD = ("operation", "size", "inflight", "path", "MB/s", "p50 us", "machine CPU s/GB", "cost s/GB",
             "cost us/message", "relay process s/GB")
RATIO_HEAD = ("operation", "size", "millraced against", "CPU per byte (lowest-highest)", "throughput (lowest-highest)",
              "the better HAProxy")


def path_lines(case, samples):
    for path in PATHS:
        added = statistics.median(costs(samples, path))
        per_gb = [statistics.median(1e9 * s[k] / s["bytes"] for s in samples[path.name])
                  for k in ("machine_cpu_seconds", "relay_cpu_seconds")]
        relay = path is not DIRECT
        yield (case[0], case[1], str(case[2]), path.name,
               f"{statistics.median(values(samples, path, 'bytes_per_second')) / 1e6:.0f}",
               f"{statistics.median(values(samples, path, 'p50_us')):.0f}", f"{per_gb[0]:.2f}",
               f"{added * 1e9:.2f}" if relay else "", f"{added * 1e6 * SIZES[case[1]]:.1f}" if relay else "",
               f"{per_gb[1]:.2f}" if relay else "")


def ratio_lines(rows):
    def cell(metric, reference, case):
        for r in rows:
            if (r["metric"], r["reference"], r["case"]) == (metric, reference, case):
                return f"{r['ratio']:.2f} ({r['ratio_lowest']:.2f}-{r['ratio_highest']:.2f})"
        return ""
    for case in dict.fromkeys(r["case"] for r in rows):
        for path in (*REFERENCES, DIRECT):
            named = next(r["better_reference"] for r in rows if r["case"] == case)
            operation, size, _ = case.split()
            yield (operation, size, path.name, cell("cpu_per_byte", path.name, case),
                   cell("throughput", path.name, case), "this one" if named == path.name else "")


def foreign_share(samples):
    return max(s["foreign_cpu_seconds"] / s["machine_cpu_seconds"] for path in samples.values() for s in path)


def measure(options, cases, progress):
    """Yields (case, samples) one after the other."""
    haproxy_program()
    with ForwardLab(options.build, options.mtu) as the_lab:
        bench = Bench(the_lab, options)
        for case in cases:
            samples = bench.samples(case)
            progress(f"{case[0]} {case[1]}: done; of the CPU time at most {foreign_share(samples):.0%} in a run was not of "
                     "these processes")
            yield case, samples
        served = bench.server.stop_result()
        if served["exit_status"] != 0:
            raise lab.LabError(f"the server: {served['trouble']}")


def run(options, progress, print_table):
    """The benchmark. Returns its rows."""
    rows, lines = [], []
    cases = [c for c in CASES if options.filter in f"{c[0]} {c[1]}"]
    for case, samples in measure(options, cases, progress):
        rows += rows_of(case, samples, options)
        lines += path_lines(case, samples)
    print(f"forward: veth of MTU {options.mtu}, {options.repeat} rounds of runs of {options.seconds:g} s and more, verify "
          f"{options.verify}, {options.reactors} reactor(s) or HAProxy thread(s), HAProxy's buffer {options.bufsize} "
          "bytes, medians")
    print_table(PATH_HEAD, lines)
    print("\nratios, over 1: millraced is better")
    print_table(RATIO_HEAD, list(ratio_lines(rows)))
    return rows


def bar(options, progress):
    """Prints PASS, FAIL or SKIP. A third of the goal, and the CPU time of relays and end nodes instead of the machine's, so
    that a busy machine does not fail it. On veth most of the kernel's work is done in the name of whoever sends."""
    name = "forward.cpu_per_byte_1M"
    try:
        _, samples = next(iter(measure(options, CASES[:1], progress)))
    except Skip as e:
        print(f"SKIP {name}: {e}")
        return 0
    r = spread(ratios(costs(samples, MILLRACED), costs(samples, HAPROXY), False))
    said = f"{r['ratio']:.2f} of HAProxy without splice ({r['lowest']:.2f}-{r['highest']:.2f})"
    if r["ratio"] < BAR:
        print(f"FAIL {name}: {said}, the bar is {BAR}")
        return 1
    print(f"PASS {name}: {said}")
    return 0
