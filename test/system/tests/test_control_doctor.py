# SPDX-License-Identifier: BSD-3-Clause
"""`millrace doctor` on hosts of its own: network namespaces with real interfaces, and folders in the place of /sys and /proc.

On a right host nothing is found. Where one thing is wrong with it, that is found, with its remedy.
"""

import asyncio
import json
import os
import re
import subprocess
import tempfile

from lnetpy.router import find_program
from lnetpy.scene import ROUTER, no_router

OK, WARNING, ERROR, UNKNOWN = range(4)

CONFIG = """
net:
  - {net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}
  - {net type: tcp1, local NI(s): [{interfaces: {0: card}}]}
  - {net type: o2ib, local NI(s): [{interfaces: {0: eth1}}]}
route: [{net: tcp9, gateway: 10.0.0.9@tcp}]
millrace:
  cores: "0:2;1:3"
  hugepages: true
  memory: 512
  rpc: {socket: /nonexistent/socket}
  ports: [{name: card, device: '0000:3b:00.0', addresses: [10.2.0.1/24]}]
"""
PCI = "sys/bus/pci/devices/0000:3b:00.0"
CARD = "sys/bus/pci/devices/0000:5e:00.0"    # of no port
PMD = "usr/lib/any/dpdk/pmds-1/librte_net_known.so.1.0"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
HUGE = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/"
CONF = "proc/sys/net/ipv4/conf/"
NEIGHBOURS = "proc/sys/net/ipv4/neigh/default/gc_thresh3"
RDMA = "sys/class/infiniband/dev0/ports/1/"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def listener(address, inode=77):
    return HEAD + f"   0: {address}:03DC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0\n"


def pmd(device, modules="* igb_uio | uio_pci_generic | vfio-pci"):
    """A library of DPDK as far as the description that it carries goes."""
    said = {"name": "net_known", "kmod": modules, "pci_ids": [[0x8086, device, 0xffff, 0xffff]]}
    return "\x7fELF PMD_INFO_STRING= broken\0 PMD_INFO_STRING= " + json.dumps(said) + "\0 more"


# What the files of a right host have in them; a text that begins with > is a link.
FILES = {
    CLOCK: "tsc", "sys/devices/system/cpu/online": "0-7", "sys/devices/system/cpu/isolated": "1-3",
    "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "performance",
    "sys/devices/system/cpu/cpu4/cpufreq/scaling_governor": "powersave",
    HUGE + "nr_hugepages": "300", HUGE + "free_hugepages": "280",
    "proc/mounts": "none /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw 0 0\n",
    "proc/self/status": "Name:\tmillrace\nCapEff:\t0000000000003400\n",
    "proc/net/tcp": HEAD + listener("0900000A")[len(HEAD):], "proc/net/tcp6": HEAD,
    "proc/sys/net/core/somaxconn": "4096", NEIGHBOURS: "16384", CONF + "all/rp_filter": "0", CONF + "eth0/rp_filter": "1",
    PCI + "/vendor": "0x8086", PCI + "/device": "0x1572", PCI + "/numa_node": "0",
    PCI + "/driver": ">../../drivers/vfio-pci", PCI + "/iommu_group": ">../../../kernel/iommu_groups/7", "dev/vfio/7": "",
    PMD: pmd(0x1572), PCI + "/class": "0x020000",
    CARD + "/vendor": "0x8086", CARD + "/device": "0x1573", CARD + "/class": "0x020000", CARD + "/driver": ">../../drivers/i40e",
    "sys/module/ib_uverbs/refcnt": "1", "sys/module/rdma_ucm/refcnt": "1",
    RDMA + "state": "4: ACTIVE", RDMA + "gids/0": "0000:0000:0000:0000:0000:0000:0000:0000",
    RDMA + "gids/1": "0000:0000:0000:0000:0000:ffff:0a01:0001", RDMA + "gid_attrs/ndevs/1": "eth1",
}

# name: (files changed (None: removed), `ip` commands, check, object, level, in the text, in the remedy)
WRONG = {
    "clock": ({CLOCK: "hpet"}, "", "clock", "hpet", WARNING, "slow to read", "echo tsc >"),
    "not isolated": ({"sys/devices/system/cpu/isolated": "3"}, "", "cores", "2", WARNING, "not isolated", "isolcpus=2,3"),
    "no such core": ({"sys/devices/system/cpu/online": "0-2"}, "", "cores", "3", ERROR, "not there; online are 0-2", "lscpu"),
    "governor": ({"sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "powersave"}, "", "governor", "2", WARNING, "frequency",
                 "cpupower -c 2 frequency-set -g performance"),
    "hugepages": ({HUGE + "free_hugepages": "200"}, "", "hugepages", "", ERROR, "400 MiB are free, and `memory:` wants 512",
                  "sysctl -w vm.nr_hugepages=357"),
    "hugepages of the port's node": ({PCI + "/numa_node": "1", "sys/devices/system/node/node1/x": ""}, "", "hugepages", "node1", WARNING,
                                     "a port's device", "/node1/hugepages/"),
    "hugetlbfs": ({"proc/mounts": "none /proc proc rw 0 0\n"}, "", "hugepages", "", ERROR, "hugetlbfs", "mount -t hugetlbfs"),
    "capability": ({"proc/self/status": "CapEff:\t0000000000002000\n"}, "", "capability", "CAP_NET_BIND_SERVICE", ERROR, "missing",
                   "CAP_NET_BIND_SERVICE"),
    "port taken": ({"proc/net/tcp": listener("00000000")}, "", "tcp port", "988", ERROR, "listens", "ss -tlnp sport = :988"),
    "port taken at the address": ({"proc/net/tcp": listener("0100000A")}, "", "tcp port", "988", ERROR, "listens", "ss "),
    "port taken in IPv6": ({"proc/net/tcp6": listener("0" * 32)}, "", "tcp port", "988", ERROR, "listens", "ss "),
    "kernel LNet": ({"sys/module/lnet/refcnt": "1"}, "", "kernel LNet", "lnet", WARNING, "loaded", "lustre_rmmod"),
    "ksocklnd": ({"sys/module/lnet/refcnt": "1", "sys/module/ksocklnd/x": ""}, "", "kernel LNet", "ksocklnd", ERROR, "loaded", "rmmod"),
    "ko2iblnd": ({"sys/module/lnet/refcnt": "1", "sys/module/ko2iblnd/x": ""}, "", "kernel LNet", "ko2iblnd", ERROR, "loaded", "rmmod"),
    "backlog": ({"proc/sys/net/core/somaxconn": "100"}, "", "sysctl", "somaxconn", WARNING, "100", "net.core.somaxconn"),
    "neighbours": ({NEIGHBOURS: "1024"}, "", "sysctl", "gc_thresh3", WARNING, "1024 nodes", "net.ipv4.neigh.default.gc_thresh3=16384"),
    "no device": ({PCI + "/vendor": None}, "", "pci", "0000:3b:00.0", ERROR, "no such device", "lspci"),
    "no library": ({PMD: pmd(0x1573)}, "", "driver", "0000:3b:00.0", ERROR, "8086:1572", "apt install"),
    "not bound": ({PCI + "/driver": None}, "", "pci", "0000:3b:00.0", ERROR, "no driver", "dpdk-devbind.py --bind=vfio-pci 0000:3b:00.0"),
    "bound to the kernel's": ({PCI + "/driver": ">../../drivers/i40e"}, "", "pci", "0000:3b:00.0", ERROR, "bound to i40e", "--bind=vfio-pci"),
    "shares its driver": ({PMD: pmd(0x1572, "* mlx5_core & mlx5_ib")}, "", "pci", "0000:3b:00.0", ERROR, "mlx5_core", "dpdk-devbind.py"),
    "no IOMMU": ({PCI + "/iommu_group": None}, "", "iommu", "0000:3b:00.0", ERROR, "no IOMMU group", "iommu=pt"),
    "no IOMMU on purpose": ({PCI + "/iommu_group": None, "sys/module/vfio/parameters/enable_unsafe_noiommu_mode": "Y"}, "", "iommu",
                            "0000:3b:00.0", WARNING, "without IOMMU", "iommu=pt"),
    "no vfio group": ({"dev/vfio/7": None}, "", "iommu", "0000:3b:00.0", ERROR, "/dev/vfio/7", "modprobe vfio-pci"),
    "RDMA module": ({"sys/module/rdma_ucm/refcnt": None}, "", "rdma", "rdma_ucm", WARNING, "not loaded", "modprobe rdma_ucm"),
    "RDMA port": ({RDMA + "state": "1: DOWN"}, "", "rdma", "dev0", WARNING, "active", "rdma link"),
    "RDMA GID": ({RDMA + "gid_attrs/ndevs/1": "eth0"}, "", "rdma", "o2ib(eth1)", WARNING, "no RDMA device has a GID", "ibv_devinfo"),
    "interface down": ({}, "link set eth0 down\nlink set eth0 address 02:00:00:00:00:01", "ni", "10.0.0.1@tcp", ERROR, "is down",
                       "ip link set eth0 up"),
    "no address": ({}, "addr del 10.1.0.1/24 dev eth1", "ni", "o2ib(eth1)", WARNING, "has no address", "ip address add"),
    "mtu": ({}, "link set eth0 mtu 1400", "mtu", "eth0", WARNING, "1400", "ip link set eth0 mtu 1500"),
    "rp_filter": ({CONF + "eth0/arp_ignore": "1", CONF + "all/arp_announce": "2"}, "addr add 10.0.0.5/24 dev eth2", "sysctl", "eth0", WARNING,
                  "rp_filter is 1 and eth2", "sysctl -w net.ipv4.conf.eth0.rp_filter=2"),
    "ARP": ({CONF + "all/rp_filter": "2"}, "addr add 10.0.0.5/24 dev eth2", "sysctl", "eth0", WARNING, "answers ARP",
            "net.ipv4.conf.eth0.arp_ignore=1"),
    "path": ({CONF + "all/rp_filter": "2", CONF + "all/arp_ignore": "1", CONF + "all/arp_announce": "2"},
             "addr add 10.0.0.5/24 dev eth2\nroute add 10.0.0.0/24 dev eth2 table 77\nrule add from 10.0.0.1 lookup 77", "path", "eth0", WARNING,
             "packets from 10.0.0.1 to its subnet leave by eth2", "ip rule add from 10.0.0.1 lookup 1"),
    "other path": ({}, "route add 10.0.0.9/32 dev eth1", "gateway", "10.0.0.9@tcp", WARNING, "10.1.0.1", "ip route get 10.0.0.9"),
    "no path": ({}, "route add unreachable 10.0.0.9/32", "gateway", "10.0.0.9@tcp", ERROR, "no path", "ip route get 10.0.0.9"),
}
# What comes with it.
ALSO = {"interface down": {"gateway"}}


class Host:
    """A namespace, and a folder with FILES."""

    def __init__(self, env):
        new = "h" not in env.fabric.hosts
        self.env, self.ns = env, env.fabric.host("h")
        self.dir = tempfile.TemporaryDirectory(prefix="millrace-doctor-")
        for i, addresses in enumerate((["10.0.0.1/24"], ["10.1.0.1/24"], []) if new else ()):
            env.fabric.attach("h", f"s{i}", f"eth{i}", *addresses)
        self.conf = self.path("millrace.yaml")
        self.change({"millrace.yaml": CONFIG, **FILES})

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def change(self, files):
        for name, text in files.items():
            path = self.path(name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.lexists(path):
                os.unlink(path)
            if text is None:
                if not os.listdir(os.path.dirname(path)):
                    os.rmdir(os.path.dirname(path))
                continue
            if text.startswith(">"):
                os.symlink(text[1:], path)
            else:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)

    async def doctor(self, *args, root=True):
        """(exit status, output)."""
        command = [find_program(self.env.build, "millrace"), "doctor", "-c", self.conf, *(["--root", self.dir.name] if root else []), *args]
        p = self.ns.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = await asyncio.to_thread(p.communicate, timeout=50)
        assert p.returncode == UNKNOWN or not err, err
        return p.returncode, out

    async def found(self):
        """(exit status, findings that are not ok), and each finding is whole."""
        code, out = await self.doctor("--json")
        seen = json.loads(out)
        assert seen["status"] == ("ok", "warning", "error")[code], (code, out)
        bad = [f for f in seen["findings"] if f["level"] != "ok"]
        assert all(f["remedy"] and f["text"] for f in bad) and not any("remedy" in f for f in seen["findings"] if f not in bad), out
        return code, bad


@no_router
async def test_right_host(env):
    """Nothing is found; --all has each check, --root is used throughout."""
    h = Host(env)
    code, bad = await h.found()
    assert (code, bad) == (OK, []), bad
    out = (await h.doctor("--all"))[1]
    for check in ("config", "millraced", "kernel LNet", "tcp port", "capability", "ni", "mtu", "sysctl", "gateway", "driver", "pci", "iommu",
                  "rdma", "hugepages", "cores", "governor", "clock"):
        assert re.search(f"^ok       {check}[ :]", out, re.M), f"{check} is not in\n{out}"


@no_router
async def test_wrong(env):
    """Each thing that can be wrong is found alone; what is printed has it with its remedy."""
    for name, (files, ip, check, what, level, text, remedy) in WRONG.items():
        h = Host(env)
        h.change(files)
        if ip:
            h.ns.ip(ip)
        code, bad = await h.found()
        mine = [f for f in bad if f["check"] not in ALSO.get(name, ())]
        assert len(mine) == 1, (name, bad)
        f = mine[0]
        assert (f["check"], f["object"], f["level"]) == (check, what, ("ok", "warning", "error")[level]), (name, f)
        assert text in f["text"] and remedy in f["remedy"], (name, f)
        assert code == max(level, ERROR if len(bad) > 1 else OK), (name, code)
        if ip or level == ERROR and len(files) > 1:     # all are printed by one function
            out = (await h.doctor())[1]
            assert f"{f['level']:8} {(check + ' ' + what).strip()}: " in out and f"try: {f['remedy']}\n" in out, (name, out)
        if ip:
            env.fabric.hosts.pop("h").close()


@no_router
async def test_bad_config(env):
    """Errors of the file are findings; without a file the rest of the host is examined."""
    h = Host(env)
    h.change({"millrace.yaml": CONFIG + "nett: x\n"})
    code, bad = await h.found()
    assert code == ERROR and [f["check"] for f in bad] == ["config"] and "nett: unknown key" in bad[0]["text"], bad
    h.change({"millrace.yaml": None})
    code, bad = await h.found()
    assert code == ERROR and "cannot be read" in bad[0]["text"] and "millraced --check -c " in bad[0]["remedy"], bad
    h.change({CLOCK: "hpet", "sys/module/lnet/refcnt": "1"})
    assert [f["check"] for f in (await h.found())[1]] == ["config", "kernel LNet", "clock"]
    assert "card 0000:3b:00.0: 8086:1572 is bound to vfio-pci; of DPDK, net_known knows it" in (await h.doctor("--all"))[1]


async def test_running(env):
    """Beside a running router its own port is no finding; before it starts, another program's is."""
    env.need_millrace()
    r = env.prepare("r", *ROUTER)
    with open(r.conf, "w", encoding="utf-8") as f:
        f.write(r.yaml())

    async def doctor():
        command = [find_program(env.build, "millrace"), "doctor", "--all", "--json", "-c", r.conf]
        p = r.ns.popen(command, stdout=subprocess.PIPE, text=True)
        out = json.loads((await asyncio.to_thread(p.communicate, timeout=50))[0])["findings"]
        return {f["check"] + " " + f["object"]: f for f in out}
    other = r.ns.socket()
    other.bind(("10.0.0.1", 988))
    other.listen()
    found = await doctor()
    assert found["tcp port 988"]["level"] == "error" and "does not run" in found["millraced "]["text"], found
    other.close()
    assert (await doctor())["tcp port 988"]["text"] == "is free"
    await r.start()
    found = await doctor()
    assert found["tcp port 988"]["text"] == "is millraced's" and f"pid {r.proc.pid}" in found["millraced "]["text"], found
    assert found["capability CAP_NET_BIND_SERVICE"]["level"] == "ok", found
    assert not [f for f in found.values() if f["level"] == "error"], found
