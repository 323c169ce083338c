# SPDX-License-Identifier: BSD-3-Clause
"""A client and a server, and between them one relay after the other, side by side in one lab:

    client c0 ------------ r0 router r1 ------------ s0 server      millraced, haproxy, haproxy-splice
           c1 -------------------------------------- s1             direct
           c2 ------------ p0 ports  p1 ------------ s2             millraced-port
           c3 ------------ b0 bridge b1 ------------ s3             bridge

The two end nodes are the same for all: they have a NID for each path and choose the path by whom they call. To HAProxy the
packets come by policy routing (see haproxy.cfg).
"""

import os
import shutil
import statistics
import time
from dataclasses import dataclass

import lab
import machine
from lnetpy import netns


class Skip(Exception):
    """Cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Path:
    name: str
    client: str        # NIDs
    server: str
    space: str = ""    # the namespace that the bytes go through; none: they go straight
    gateways: tuple = ()  # NIDs for LNet's routes, of the client and of the server


DIRECT = Path("direct", "10.10.3.1@tcp2", "10.10.3.2@tcp2")
KERNEL = Path("millraced", lab.CLIENT, lab.SERVER, "router", (lab.ROUTER, lab.ROUTER_FAR))
PORT = Path("millraced-port", "10.10.5.2@tcp5", "10.10.6.2@tcp6", "ports", ("10.10.5.1@tcp5", "10.10.6.1@tcp6"))
HAPROXY = Path("haproxy", "10.10.1.3@tcp3", "10.10.2.3@tcp3", "router")
HAPROXY_SPLICE = Path("haproxy-splice", "10.10.1.4@tcp4", "10.10.2.4@tcp4", "router")
BRIDGE = Path("bridge", "10.10.7.1@tcp7", "10.10.7.2@tcp7", "bridge")
HAPROXIES = (HAPROXY, HAPROXY_SPLICE)
ROUTERS = (PORT, KERNEL)

SIZES = {"1M": 1 << 20, "4k": 4096}
HAPROXY_CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "haproxy.cfg")
# The client ends with its last answer, and resets its connections: what TCP had not yet been told to have arrived counts as
# lost. Answers that were wanted and did not come are found by the client itself.
CLIENT_LEFT = ("next_hop_connection_lost", "next_hop_unreachable", "tcp_reset")
WARM_UP = 0.2   # of a run's length
ATTEMPTS = 5

PORT_CONFIG = """\
net:
  - net type: tcp5
    local NI(s): [{{interfaces: {{0: p0}}, lnd tunables: {{conns_per_peer: {conns}}}}}]
  - net type: tcp6
    local NI(s): [{{interfaces: {{0: p1}}, lnd tunables: {{conns_per_peer: {conns}}}}}]
routing: {{enable: 1}}
millrace:
  cores: auto
  reactors: {reactors}
  idle: adaptive
  hugepages: false
  rpc: {{socket: {socket}}}
  ports:
    - {{name: p0, mtu: {mtu}, addresses: [10.10.5.1/24]}}
    - {{name: p1, mtu: {mtu}, addresses: [10.10.6.1/24]}}
"""


def address(nid):
    return nid.partition("@")[0]


def net(nid):
    return nid.partition("@")[2]


def difference(now, before):
    """Of two sets of counters of the same form."""
    if isinstance(now, dict):
        return {k: difference(v, before[k]) for k, v in now.items()}
    return now - before


def listens(pid, addr, port):
    """Whether somebody in the namespace of a process listens there."""
    raw = "".join(f"{int(b):02X}" for b in reversed(addr.split(".")))
    with open(f"/proc/{pid}/net/tcp", encoding="ascii") as f:
        return any(line.split()[1] == f"{raw}:{port:04X}" and line.split()[3] == "0A" for line in f.readlines()[1:])


def haproxy_program():
    program = shutil.which("haproxy", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if program is None:
        raise Skip("haproxy is not installed (apt-get install haproxy)")
    return program


class RelayLab(lab.Lab):
    """The two nodes, and the links that the paths need."""

    def __init__(self, build, mtu, paths):
        super().__init__(build, mtu)
        self.paths = paths
        self.conns = 1  # the same for all, whatever speed a device claims
        self.client_nids, self.server_nids = [p.client for p in paths], [p.server for p in paths]
        self.client_routes = [f"{net(p.server)} {p.gateways[0]}" for p in paths if p.gateways]
        self.server_routes = [f"{net(p.client)} {p.gateways[1]}" for p in paths if p.gateways]
        self.relays = {}   # path name -> process or Router
        self.devices = {}  # namespace that relays are in -> its /proc/net/dev

    def wire(self):
        spaces = {p.space for p in self.paths}
        self.link("client", "c1", address(DIRECT.client), "server", "s1", address(DIRECT.server))
        if "router" in spaces:
            super().wire()
            self.wire_haproxy()
        if "ports" in spaces:
            self.spaces["ports"] = netns.NetNs("ports")
            self.link("client", "c2", address(PORT.client), "ports", "p0", None)
            self.link("server", "s2", address(PORT.server), "ports", "p1", None)
        if "bridge" in spaces:
            self.wire_bridge()
        for name in spaces - {""}:
            self.devices[name] = self.spaces[name].open("/proc/thread-self/net/dev")

    def wire_haproxy(self):
        self.spaces["client"].ip(f"route add 10.10.2.0/24 via {address(lab.ROUTER)}")
        self.spaces["server"].ip(f"route add 10.10.1.0/24 via {address(lab.ROUTER_FAR)}")
        self.spaces["router"].ip("rule add iif r0 lookup 100\nrule add iif r1 lookup 100")
        for path in HAPROXIES:
            self.spaces["client"].ip(f"addr add {address(path.client)}/24 dev c0")
            self.spaces["server"].ip(f"addr add {address(path.server)}/24 dev s0")
            # What comes for either end node is for HAProxy's sockets here.
            self.spaces["router"].ip(f"route add local {address(path.server)}/32 dev lo table 100\n"
                                     f"route add local {address(path.client)}/32 dev lo table 100")

    def wire_bridge(self):
        self.spaces["bridge"] = netns.NetNs("bridge")
        self.spaces["bridge"].ip(f"link add br0 mtu {self.mtu} type bridge forward_delay 0\nlink set br0 addrgenmode none\n"
                                 "link set br0 up")
        self.link("client", "c3", address(BRIDGE.client), "bridge", "b0", None)
        self.link("server", "s3", address(BRIDGE.server), "bridge", "b1", None)
        self.spaces["bridge"].ip("link set b0 master br0\nlink set b1 master br0")

    def start_relays(self, reactors, bufsize):
        for path in self.paths:
            if path is KERNEL:
                self.router(reactors=reactors)
                self.relays[path.name] = self.main
            elif path is PORT:
                text = PORT_CONFIG.format(reactors=reactors, mtu=self.mtu, conns=self.conns, socket="{socket}")
                self.relays[path.name] = self.millraced(path.name, path.space, text)
                self.relays[path.name].wait_links()
            elif path in HAPROXIES:
                self.start_haproxy(path, reactors, bufsize)

    def start_haproxy(self, path, threads, bufsize):
        splice = {"RELAY_SPLICE": "1"} if path is HAPROXY_SPLICE else {}
        process = self.start("router", path.name, [haproxy_program(), "-db", "-f", HAPROXY_CONFIG],
                             RELAY_THREADS=str(threads), RELAY_BUFSIZE=str(bufsize), RELAY_ADDRESS=address(path.server), **splice)
        self.relays[path.name] = process
        deadline = time.monotonic() + lab.START_DEADLINE
        while not listens(process.popen.pid, address(path.server), 988):
            if not process.running() or time.monotonic() > deadline:
                raise lab.LabError(f"{path.name} did not start: {process.said()}")
            time.sleep(0.02)

    def relayed_bytes(self):
        """Namespace -> what came into it so far."""
        out = {}
        for name, f in self.devices.items():
            f.seek(0)
            counts = (line.partition(":") for line in f)
            out[name] = sum(int(rest.split()[0]) for dev, _, rest in counts if dev.strip() in
                            ("r0", "r1", "p0", "p1", "b0", "b1"))
        return out

    def close(self):
        for f in self.devices.values():
            f.close()
        self.devices.clear()
        super().close()


# ------------------------------------------------------------------------------------------------------- measuring

class Bench:
    """A lab in which all relays run, and the runs in it. by_process: cost is the CPU time of relays and end nodes, else all of
    the machine's."""

    def __init__(self, the_lab, options, by_process):
        self.lab, self.options, self.by_process = the_lab, options, by_process
        the_lab.start_relays(options.reactors, options.bufsize)
        self.server = the_lab.server()

    def _others_cpu(self):
        """CPU time of our long-lived processes, this one included: without the client."""
        mine = os.times()
        return mine.user + mine.system + self.server.cpu_seconds() + \
            sum(p.cpu_seconds() for p in self.lab.relays.values())

    def _router_counts(self):
        """Path name of a millraced -> its counters."""
        out = {}
        for path in self.lab.paths:
            if path in ROUTERS:
                router = self.lab.relays[path.name]
                out[path.name] = {"route_count": router.stats()["route_count"]}
                out[path.name]["drops"] = {d["name"]: d["count"] for d in router.call("drops_get")["drops"]}
                out[path.name]["resent"] = sum(r["tcp"]["resent"] for r in router.call("tcp_stats_get")["reactors"])
        return out

    def run(self, path, case, *amount):
        """One run of the client. Returns what was measured."""
        operation, size, inflight = case
        relay = self.lab.relays.get(path.name)
        counts, passed = self._router_counts(), self.lab.relayed_bytes()
        others, relay_cpu = self._others_cpu(), relay.cpu_seconds() if relay else 0
        span = machine.Span()
        client = self.lab.client("--size", size, "--inflight", inflight, *amount, "--verify", self.options.verify,
                                 operation, path.server)
        result = client.result(self.options.seconds * 20 + 60)
        span.stop()
        own = self._others_cpu() - others + result["cpu_seconds"]
        relay_cpu = relay.cpu_seconds() - relay_cpu if relay else 0
        passed = {k: v - passed[k] for k, v in self.lab.relayed_bytes().items()}
        counts = {k: difference(v, counts[k]) for k, v in self._router_counts().items()}
        figures = result[operation]
        self._check(path, case, result, passed, counts)
        return {"messages": figures["answered"], "bytes": figures["bytes"], "seconds": result["seconds"],
                "bytes_per_second": figures["bytes_per_second"], "p50_us": figures["round_trip_us"]["p50"],
                "counted_cpu_seconds": own if self.by_process else span.busy,
                "machine_cpu_seconds": span.busy, "relay_cpu_seconds": relay_cpu, "unnamed_cpu_seconds": span.busy - own,
                "resent": counts.get(path.name, {}).get("resent", 0), **span.shares()}

    @staticmethod
    def _check(path, case, result, passed, counts):
        """That all went well, and over the path that was meant."""
        figures, trouble = result[case[0]], [result["trouble"]] if result["trouble"] else []
        for name, count in counts.items():
            dropped = {k: v for k, v in count["drops"].items() if v and k not in CLIENT_LEFT}
            if dropped:
                trouble.append(f"{name} dropped {dropped}")
            if (count["route_count"] >= 2 * figures["answered"]) != (path.name == name):
                trouble.append(f"{name} forwarded {count['route_count']} messages for {figures['answered']}")
        for space, count in passed.items():
            if (count >= figures["bytes"]) != (path.space == space):
                trouble.append(f"{count} bytes went through the namespace {space} for {figures['bytes']}")
        if trouble:
            raise lab.LabError(f"{case[0]} {case[1]} {path.name}: {'; '.join(trouble)}")

    def quiet_run(self, path, case, count):
        """A run during which nobody else used the machine much: else it says nothing about the relay."""
        if self.by_process or self.options.noisy:
            return self.run(path, case, "--count", count)
        for _ in range(ATTEMPTS):
            machine.wait_until_quiet()
            sample = self.run(path, case, "--count", count)
            unnamed = sample["unnamed_cpu_seconds"] / sample["machine_cpu_seconds"]
            if sample["foreign_share"] <= machine.FOREIGN_LIMIT and unnamed <= machine.UNNAMED_LIMIT:
                return sample
        raise lab.LabError(f"others use the machine too much to measure anything: {sample['foreign_share']:.0%} of the CPU time "
                           f"was that of other processes and {unnamed:.0%} not of ours, {ATTEMPTS} times in a row. --noisy "
                           "measures all the same")

    def samples(self, case):
        """Path name -> samples, the i-th of each from the i-th round. Each run moves the same number of messages: what
        the slowest relay moves in the time of a run."""
        paths = self.lab.paths
        rates = [self.run(path, case, "--seconds", self.options.seconds * WARM_UP) for path in paths]
        count = max(1, int(self.options.seconds * min(r["messages"] / r["seconds"] for r in rates)))
        out = {path.name: [] for path in paths}
        for i in range(self.options.repeat):
            for name, sample in self.round(case, count, i % len(paths)).items():
                out[name].append(sample)
        return out

    def round(self, case, count, turn):
        """Each path once, another one first each time: nobody always has the warmer machine."""
        paths = self.lab.paths
        for _ in range(ATTEMPTS):
            samples = {path.name: self.quiet_run(path, case, count) for path in paths[turn:] + paths[:turn]}
            if all(cost(samples[path.name], samples[DIRECT.name]) > 0 for path in paths
                   if path is not DIRECT and path is not BRIDGE):
                return samples
        raise lab.LabError(f"{case[0]} {case[1]}: a relay seems to cost nothing, {ATTEMPTS} times in a row: the machine "
                           "is too unsteady")

    def settings(self):
        """What the results depend on beside the program, as the routers themselves say it."""
        out = {}
        for path in self.lab.paths:
            if path not in ROUTERS:
                continue
            router = self.lab.relays[path.name]
            ni = [ni for n in router.call("net_get")["net"] for ni in n["local NI(s)"] if n["net type"] != "lo"][0]
            ports = router.call("port_get")["port"]
            out[path.name] = {"conns_per_peer": ni["lnd tunables"]["conns_per_peer"], **{
                k: ni["tunables"][k] for k in ("peer_credits", "peer_buffer_credits", "credits")},
                "offloads": ports[0]["offloads"] if ports else "of the host's TCP"}
        return out


def measure(options, paths, cases, mtu, progress, by_process=False):
    """Yields (case, samples, settings) one after the other."""
    haproxy_program()
    with RelayLab(options.build, mtu, paths) as the_lab:
        bench = Bench(the_lab, options, by_process)
        settings = bench.settings()
        for case in cases:
            samples = bench.samples(case)
            progress(f"{case[0]} {case[1]} mtu{mtu}: done; at most {worst(samples, 'foreign_share'):.0%} of the CPU time in a run "
                     f"was that of other processes, {worst(samples, 'stolen_share'):.0%} of the machine the hypervisor's")
            yield case, samples, settings
        served = bench.server.stop_result()
        if served["exit_status"] != 0:
            raise lab.LabError(f"the server: {served['trouble']}")


# -------------------------------------------------------------------------------------------------------- figures

def cost(relayed, direct):
    """CPU seconds per byte that a relay adds: a run minus the direct run of its round."""
    return relayed["counted_cpu_seconds"] / relayed["bytes"] - direct["counted_cpu_seconds"] / direct["bytes"]


def costs(samples, path):
    return [cost(s, d) for s, d in zip(samples[path.name], samples[DIRECT.name])]


def values(samples, path, key):
    return [s[key] for s in samples[path.name]]


def worst(samples, key):
    return max(s[key] for path in samples.values() for s in path)


def better_haproxy(samples):
    """The cheaper of the two."""
    return min((p for p in HAPROXIES if p.name in samples), key=lambda p: statistics.median(costs(samples, p)))
