# SPDX-License-Identifier: BSD-3-Clause
"""Network namespaces without names: each lives only as long as this process holds it.

A namespace is an open file of this process, so whatever kills the test (Ctrl-C, SIGKILL, a deadline)
the kernel takes namespaces and veth pairs away with it. Programs started inside die with us too.
"""

import ctypes
import ipaddress
import os
import signal
import socket
import subprocess
import threading

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(fd):
    if _libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class NetNs:
    def __init__(self, name):
        self.name, self.fd, error = name, -1, []

        def make():
            if _libc.unshare(CLONE_NEWNET):
                error.append(OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)"))
                return
            self.fd = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        t = threading.Thread(target=make)
        t.start()
        t.join()
        if error:
            raise error[0]
        self.ip("link set lo up")

    @property
    def path(self):
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def _inside(self, call):
        """What call() gives when it is made in this namespace."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _setns(self.fd)
            try:
                return call()
            finally:
                _setns(here)
        finally:
            os.close(here)

    def socket(self, family=socket.AF_INET):
        """A TCP socket that belongs to this namespace for ever; usable from any thread."""
        return self._inside(lambda: socket.socket(family, socket.SOCK_STREAM))

    def open(self, path):
        """A file of /proc/thread-self/net, to be read again and again: it stays this namespace's."""
        return self._inside(lambda: open(path, encoding="ascii"))

    def _child(self):
        _setns(self.fd)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def popen(self, argv, **kw):
        return subprocess.Popen(argv, preexec_fn=self._child, **kw)

    def ip(self, batch):
        """Run `ip` commands, one per line."""
        p = subprocess.run(["ip", "-batch", "-"], input=batch + "\n", text=True, capture_output=True,
                           preexec_fn=self._child)
        if p.returncode:
            raise RuntimeError(f"ip in {self.name}: {batch!r}: {p.stderr.strip()}")

    def sysctl(self, **values):
        script = "".join(f"echo {v} > /proc/sys/{k.replace('__', '/')};" for k, v in values.items())
        subprocess.run(["sh", "-ec", script], check=True, preexec_fn=self._child)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def available():
    """None, or why namespaces cannot be made here."""
    try:
        NetNs("probe").close()
    except (OSError, RuntimeError) as e:
        return f"no network namespaces: {e}"
    return None


class Fabric:
    """Hosts on switched segments: one bridge per segment in a namespace of its own."""

    def __init__(self):
        self.switch = NetNs("switch")
        self.hosts, self.segments, self.count = {}, set(), 0
        self.ports = {}         # (host, interface) -> the switch's port

    def host(self, name):
        if name not in self.hosts:
            self.hosts[name] = NetNs(name)
        return self.hosts[name]

    def bridge(self, segment):
        if segment not in self.segments:
            self.segments.add(segment)
            self.switch.ip(f"link add {segment} type bridge forward_delay 0\nlink set {segment} up")

    def attach(self, name, segment, ifname, *addresses, mtu=None):
        """Give host `name` an interface on `segment`; `ports` has the switch's end (for link-down)."""
        ns = self.host(name)
        self.bridge(segment)
        self.count += 1
        port = self.ports[name, ifname] = f"p{self.count}"
        lines = [f"link add {port} type veth peer name {ifname} netns {ns.path}",
                 f"link set {port} master {segment}", f"link set {port} up"]
        if mtu:
            lines.insert(1, f"link set {port} mtu {mtu}")
        self.switch.ip("\n".join(lines))
        lines = [f"link set {ifname} mtu {mtu}"] if mtu else []
        lines.append(f"link set {ifname} up")
        for a in addresses:
            plain, _, bits = a.partition("/")
            v6 = ":" in plain
            lines.append(f"addr add {plain}/{bits or (64 if v6 else 24)} dev {ifname}" + (" nodad" if v6 else ""))
        ns.ip("\n".join(lines))

    def rails(self, name, *addresses):
        """Interface eth0, eth1, … of a host has one of these addresses each: packets from an address leave by its interface, and
        only that one answers for it, as a host with several NIs is set up."""
        lines = []
        for i, a in enumerate(addresses):
            net = ipaddress.ip_interface(f"{a}/24").network
            lines += [f"route add {net} dev eth{i} src {a} table {100 + i}", f"rule add from {a} lookup {100 + i}"]
        every = {f"net__ipv4__conf__{i}__rp_filter": 0 for i in ("all", *(f"eth{i}" for i in range(len(addresses))))}
        self.host(name).sysctl(net__ipv4__conf__all__arp_ignore=1, net__ipv4__conf__all__arp_announce=2, **every)
        self.host(name).ip("\n".join(lines))

    def link(self, port, up):
        self.switch.ip(f"link set {port} {'up' if up else 'down'}")

    def close(self):
        for ns in [*self.hosts.values(), self.switch]:
            ns.close()
        self.hosts.clear()
