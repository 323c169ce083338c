#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The verbs suite, in a guest with four software RDMA devices: `./dev vm verbs`. One line per test, PASS, FAIL or SKIP.

    test/vm/verbs.py --build BUILDDIR [--filter X] [--list]

To add a test: a function `test_NAME(env)` that returns what its PASS line says (or None), or raises Failed; with personas, an
`async def test_NAME(env)` in one of MODULES.
"""

import argparse
import contextlib
import os
import re
import subprocess
import sys
import time

import runner

MODULES = ("personas", "router", "keys", "peers", "restarts", "ends", "events")
DEVICES = ("rxe0", "rxe1")
INTERFACES = {f"rxe{i}": f"roce{i}" for i in range(9)}  # as rxe.sh makes them
ADDRESSES = {f"rxe{i}": f"10.77.0.{i + 1}" for i in range(9)}
RDMA_MTU = 4096
TABLES = ("100", "101")  # of routes, rxe.sh
MIB = 1 << 20
LOOK = 0.02  # seconds between two looks at what an interface has sent


class Failed(Exception):
    """Why a test failed."""


def check(condition, why):
    if not condition:
        raise Failed(why)


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read().strip()


class Env:
    """What the tests share: the build folder, and programs that end with their test."""

    def __init__(self, build):
        self.build = build
        self.started = []

    def run(self, *command, limit=60):
        """What a program printed. It must end well."""
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=limit, check=False)
        except FileNotFoundError:
            raise Failed(f"there is no {command[0]}") from None
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{command[0]} did not end in {limit} s; it printed: {(late.stdout or b'').decode()[-500:]}") from None
        check(done.returncode == 0, f"{' '.join(command)}: status {done.returncode}: {' '.join(done.stdout.split())[-500:]}")
        return done.stdout

    def start(self, *command):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def finish(self, process, limit=30):
        """The rest of what a started program printed; it must end by itself, and well."""
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"{process.args[0]} did not end in {limit} s") from None
        check(process.returncode == 0, f"{' '.join(process.args)}: status {process.returncode}: {' '.join(output.split())[-500:]}")
        return output

    def clean(self):
        for process in self.started:
            with contextlib.suppress(OSError):
                process.kill()
            process.communicate()
        self.started.clear()


def wait(what, condition, limit=30):
    end = time.monotonic() + limit
    while not condition():
        check(time.monotonic() < end, f"not within {limit} s: {what}")
        time.sleep(0.05)


def packets(device, which):
    return int(read(f"/sys/class/infiniband/{device}/ports/1/hw_counters/{which}"))


def sent_bytes(device):
    return int(read(f"/sys/class/net/{INTERFACES[device]}/statistics/tx_bytes"))


def gid_index(device):
    """Of the GID that is the interface's IPv4 address, for RoCEv2."""
    wanted = "0000:0000:0000:0000:0000:ffff:" + "{:02x}{:02x}:{:02x}{:02x}".format(*map(int, ADDRESSES[device].split(".")))
    port = f"/sys/class/infiniband/{device}/ports/1"
    for index in range(16):
        with contextlib.suppress(OSError):
            if read(f"{port}/gids/{index}") == wanted and read(f"{port}/gid_attrs/types/{index}") == "RoCE v2":
                return str(index)
    raise Failed(f"{device} has no GID {wanted}")


def listens(port):
    """Whether a TCP port is listened to here."""
    for table in ("tcp", "tcp6"):
        for line in read(f"/proc/net/{table}").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


# ------------------------------------------------------------------------------------------------------------ tests

def test_links(env):
    """Both devices are there, each on its interface, and their ports are active."""
    found = env.run("rdma", "link", "show")
    for device in DEVICES:
        row = re.search(rf"^link {device}/1 state (\S+) physical_state (\S+) netdev (\S+)", found, re.M)
        check(row, f"no {device}: {found!r}")
        check(row.groups() == ("ACTIVE", "LINK_UP", INTERFACES[device]), f"{device}: {row.groups()}")


def test_devices(env):
    """User space opens them: active ports with the largest MTU."""
    for device in DEVICES:
        found = env.run("ibv_devinfo", "-d", device)
        check(re.search(r"state:\s+PORT_ACTIVE", found), f"{device} is not active: {found!r}")
        check(re.search(rf"active_mtu:\s+{RDMA_MTU} ", found), f"{device} has another MTU than {RDMA_MTU}: {found!r}")


def test_limits(env):
    """What a device grants is not above what it states; prints both."""
    found = dict(line.split() for line in env.run(os.path.join(env.build, "test/vm/verbs_limits"), DEVICES[0]).splitlines())
    for name, value in found.items():
        print(f"   {name} {value}")
    limit = {name.removeprefix(DEVICES[0] + "."): int(value) for name, value in found.items()}
    check(limit["port.active_mtu"] == RDMA_MTU, f"MTU {limit['port.active_mtu']}")
    for granted, stated in (("qp.send_sge", "max_sge"), ("qp.recv_sge", "max_sge"), ("qp.send_wr", "max_qp_wr"),
                            ("qp.recv_wr", "max_qp_wr"), ("mr.registered", "max_mr_size")):
        check(0 < limit[granted] <= limit[stated], f"{granted} {limit[granted]}, {stated} {limit[stated]}")
    return ", ".join(f"{name} {limit[name]}" for name in ("max_sge", "max_qp_wr", "max_mr_size", "qp.inline"))


def test_connections(env):
    """The connection manager finds the other device's address, and data passes both ways over the cable."""
    before = {d: packets(d, "rcvd_pkts") for d in DEVICES}
    server = env.start("rping", "-s", "-a", ADDRESSES["rxe1"], "-C", "10", "-v")
    # The service listens within the kernel, where nothing shows it: asked for again until it is there.
    end = time.monotonic() + 30
    while True:
        try:
            said = env.run("rping", "-c", "-a", ADDRESSES["rxe1"], "-I", ADDRESSES["rxe0"], "-C", "10", "-v", limit=30)
            break
        except Failed:
            if time.monotonic() > end or server.poll() is not None:
                raise
            time.sleep(0.2)
    count = len(re.findall(r"^ping data: rdma-ping-\d", said, re.M))
    check(count == 10, f"{count} of 10 answers: {said!r}")
    env.finish(server)
    for device in DEVICES:
        passed = packets(device, "rcvd_pkts") - before[device]
        check(passed >= 20, f"{device} received {passed} packets only")
    return "10 of 10 answered"


def write_bw(env, size, seconds=4, source="rxe0", target="rxe1", options=()):
    """MiB/s of RDMA WRITEs from one device to another by ib_write_bw, by our clock and by its own. Ours is the one to go by: it
    takes how fast its counter of cycles goes from a few samples, and on a busy machine finds nothing and prints rates of 0."""
    common = ["ib_write_bw", "-F", "-s", str(size), "-D", str(seconds), "-f", "0", "-p", "18515", *options]
    server = env.start(*common, "-d", target, "-x", gid_index(target))
    wait("ib_write_bw listens", lambda: listens(18515) or server.poll() is not None)
    client = env.start(*common, "-d", source, "-x", gid_index(source), ADDRESSES[target])
    samples = [(time.monotonic(), sent_bytes(source))]
    while client.poll() is None and samples[-1][0] < samples[0][0] + 120:
        time.sleep(LOOK)
        samples.append((time.monotonic(), sent_bytes(source)))
    said = env.finish(client)
    env.finish(server)
    row = re.search(rf"^\s*{size}\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s", said, re.M)
    check(row, f"no result in {said!r}")
    count, theirs = int(row.group(1)), float(row.group(3))

    # Packets of other things are before and after: from the first MiB to the last.
    first, last = samples[0][1] + MIB, samples[-1][1] - MIB
    sent = [s for s in samples if first <= s[1] <= last]
    check(count > 0 and samples[-1][1] - samples[0][1] >= size * count,
          f"{samples[-1][1] - samples[0][1]} bytes left {source} for {count} writes of {size}")
    check(len(sent) > 10, f"data was seen to move at {len(sent)} moments only")
    # What one packet carries of what its frame is on the interface: Ethernet, IP, UDP and BTH in front, the ICRC behind. The
    # first one of a write has an RETH too, which is left out, as are acknowledgements.
    share = min(size, RDMA_MTU) / (min(size, RDMA_MTU) + 14 + 20 + 8 + 12 + 4)
    ours = (sent[-1][1] - sent[0][1]) / (sent[-1][0] - sent[0][0]) * share / MIB
    check(theirs == 0 or 0.5 < theirs / ours < 2, f"ib_write_bw says {theirs} MiB/s, and it was {ours:.1f}")
    return ours, theirs


def test_write_1m(env):
    """The reference for what end nodes reach: 1 MiB RDMA WRITEs between the devices."""
    ours, theirs = write_bw(env, MIB)
    return f"{ours:.1f} MiB/s (ib_write_bw says {theirs:.1f})"


def test_write_4k(env):
    ours, theirs = write_bw(env, 4096)
    return f"{ours:.1f} MiB/s, {ours * MIB / 4096:.0f} a second (ib_write_bw says {theirs:.1f})"


def rdma_pair(env, *arguments, prefix=(), limit=120):
    """The RDMA provider between two devices; what it printed beside its PASS lines is shown."""
    said = env.run(*prefix, os.path.join(env.build, "test/vm/rdma_pair"), *arguments, ADDRESSES["rxe0"], ADDRESSES["rxe1"],
                   limit=limit)
    lines = said.splitlines()
    print("".join(f"   {line.strip()}\n" for line in lines if not line.startswith("PASS")), end="")
    passed = [line for line in lines if line.startswith("PASS") and line != "PASS all"]
    check("PASS all" in lines and passed, f"it printed: {said[-500:]!r}")
    return f"{len(passed)} passed"


def test_provider(env):
    """Links between two devices: dialled, accepted, refused, lost, shut at any moment; data, memory, queues."""
    return rdma_pair(env)


def test_provider_rights(env):
    """Without the right to ports below 1024, and to pin memory."""
    rdma_pair(env, "--mode", "unprivileged", prefix=("setpriv", "--bounding-set=-net_bind_service"))
    rdma_pair(env, "--mode", "memory", prefix=("setpriv", "--bounding-set=-ipc_lock"))


def test_provider_ports(env):
    """The link of a port goes and comes, and its address: its owner is told."""
    routes = {table: env.run("ip", "route", "show", "table", table).splitlines() for table in TABLES}
    os.environ["RDMA_PAIR_INTERFACE"] = INTERFACES["rxe1"]
    try:
        return rdma_pair(env, "--mode", "port")
    finally:
        # The kernel takes routes of an interface that goes down, or loses its address.
        for table, rows in routes.items():
            for row in rows:
                env.run("ip", "route", "replace", *row.split(), "table", table)


def test_provider_removal(env):
    """The device is taken away under links that are up."""
    said = rdma_pair(env, "--mode", "removal")
    wait("rxe1 goes once it is let go of", lambda: "rxe1/1" not in env.run("rdma", "link", "show"))
    env.run("rdma", "link", "add", "rxe1", "type", "rxe", "netdev", INTERFACES["rxe1"])
    wait("rxe1 is active", lambda: "state ACTIVE" in env.run("rdma", "link", "show", "rxe1/1"))
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--filter", default="", help="only tests whose name contains this")
    parser.add_argument("--list", action="store_true", help="names of the tests, without running them")
    options = parser.parse_args()
    tests = {"verbs." + name.removeprefix("test_"): f for name, f in globals().items() if name.startswith("test_")}
    scripted = [{n: f for n, f in runner.collect(m).items() if options.filter in n} for m in MODULES]
    tests = {name: f for name, f in tests.items() if options.filter in name}
    if options.list:
        print("".join(name + "\n" for some in (tests, *scripted) for name in some), end="")
        return 0
    failed = 0
    env = Env(options.build)
    for name, test in tests.items():
        begun = time.monotonic()
        try:
            said = test(env)
            print(f"PASS {name}" + (f": {said}" if said else ""), flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            kind = "" if isinstance(error, Failed) else type(error).__name__ + ": "
            print(f"FAIL {name}: {kind}{' '.join(str(error).split())}", flush=True)
        finally:
            env.clean()
        print(f"   {time.monotonic() - begun:.1f} s", flush=True)
    options.reference = options.verbose = False
    failed += runner.run_all(options, {name: f for some in scripted for name, f in some.items()})
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
