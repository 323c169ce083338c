#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the packet port costs, without LNet or a TCP of ours: two hosts' Linux TCP over a veth pair, and over two of them
with the program `port-forward` as a wire between. In turn, several rounds; the result is the ratio of the medians.

    sudo test/perf/port_forward.py --build build
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
from lnetpy import netns  # noqa: E402

CHUNK = 1 << 20
READER = f"""
import socket, sys
s = socket.socket(fileno=0)
room, n = bytearray({CHUNK}), 0
while True:
    k = s.recv_into(room)
    if k == 0:
        break
    n += k
print(n)
"""
WRITER = f"""
import socket, sys, time
s = socket.socket(fileno=0)
data, end = bytes({CHUNK}), time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    s.sendall(data)
"""


class Path:
    """Two hosts, straight or through port-forward."""

    def __init__(self, build, mtu, forwarded):
        self.a, self.b, self.wire, self.spaces = netns.NetNs("a"), netns.NetNs("b"), None, []
        self.spaces = [self.a, self.b]
        if forwarded:
            m = netns.NetNs("m")
            self.spaces.append(m)
            for name, host in (("left", self.a), ("right", self.b)):
                m.ip(f"link add {name} mtu {mtu} type veth peer name e0 mtu {mtu} netns {host.path}\n"
                     f"link set {name} addrgenmode none up")
        else:
            self.a.ip(f"link add e0 mtu {mtu} type veth peer name e0 mtu {mtu} netns {self.b.path}")
        for host, address in ((self.a, "10.0.0.1"), (self.b, "10.0.0.2")):
            host.ip(f"addr add {address}/24 dev e0\nlink set e0 addrgenmode none up")
        if forwarded:
            self.wire = m.popen([os.path.join(build, "test/perf/port-forward"), "left", "right"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
            if self.wire.stdout.readline() != "ready\n":
                raise SystemExit("port-forward did not start")

    def run(self, seconds, both):
        """Gbit/s of payload, one way or the sum of both ways."""
        pairs, listener = [], self.b.socket()
        listener.bind(("10.0.0.2", 5000))
        listener.listen()
        for _ in range(2 if both else 1):
            near = self.a.socket()
            near.connect(("10.0.0.2", 5000))
            pairs.append((near, listener.accept()[0]))
        begin, readers, writers = time.monotonic(), [], []
        for i, (near, far) in enumerate(pairs):
            source, sink = (near, far) if i == 0 else (far, near)
            readers.append(subprocess.Popen([sys.executable, "-c", READER], stdin=sink, stdout=subprocess.PIPE, text=True))
            writers.append(subprocess.Popen([sys.executable, "-c", WRITER, str(seconds)], stdin=source))
            near.close()
            far.close()
        listener.close()
        total = sum(int(r.communicate(timeout=seconds + 60)[0]) for r in readers)
        took = time.monotonic() - begin
        for w in writers:
            w.wait()
        return total * 8 / took / 1e9

    def cpu(self):
        """Seconds of CPU that the wire has used; what the far end's kernel does in its calls is among them."""
        with open(f"/proc/{self.wire.pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        counters = None
        if self.wire:
            counters = json.loads(self.wire.communicate("")[0])["queues"]
        for space in self.spaces:
            space.close()
        return counters


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="build folder (build)")
    parser.add_argument("--seconds", type=float, default=2, help="length of a run (2)")
    parser.add_argument("--repeat", type=int, default=5, help="rounds (5)")
    parser.add_argument("--mtu", type=int, default=1500, help="of all links (1500)")
    o = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.2f}, {os.cpu_count()} cores, MTU {o.mtu}")
    for both in (False, True):
        direct, forwarded, per_cpu, counters = [], [], [], None
        for _ in range(o.repeat):
            for through, into in ((False, direct), (True, forwarded)):
                path = Path(o.build, o.mtu, through)
                into.append(path.run(o.seconds, both))
                cpu = path.cpu() if through else 0
                counters = path.close() or counters
                if through:
                    per_cpu.append(sum(c["bytes"] for c in counters if c["direction"] == "tx") * 8 / max(cpu, 0.01) / 1e9)
        d, f = statistics.median(direct), statistics.median(forwarded)
        frame = max(c["bytes"] / max(c["packets"], 1) for c in counters)
        lost = sum(c["no_buffer"] + c["bad"] for c in counters)
        print(f"{'both ways' if both else 'one way'}: direct {d:.1f} Gbit/s, through the ports {f:.1f} Gbit/s, ratio {f / d:.2f}; "
              f"{statistics.median(per_cpu):.1f} Gbit per second of CPU "
              f"(frames of {frame:.0f} bytes on average, {lost} lost in the last round)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
