# SPDX-License-Identifier: BSD-3-Clause
"""Network cards of the guest (test/vm/vm.py --card): those that a router's ports are, and the kernel's at the other end of each
cable. qemu pulls cables and cards when it is asked to."""

import contextlib
import glob
import json
import os
import subprocess
import time

MODELS = {"virtio": "virtio-net-pci,disable-legacy=on,iommu_platform=on", "e1000e": "e1000e", "vmxnet3": "vmxnet3"}
# qemu 7.2's vmxnet3 sends a frame that it shall cut for TCP (TSO) as fragments of IP, all of one ID since ours is 0. A router drops
# them, and of two such frames under way a kernel may put parts together. So routers cut for themselves, if a test says no other.
RULES = {"vmxnet3": {"direction": "out", "cut": True}}
SETTINGS = "/run/vm/settings"
PCI = "/sys/bus/pci/devices"
NR_HUGEPAGES = "/proc/sys/vm/nr_hugepages"


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


class Card:
    """A card in slot n, on a cable to an interface of the kernel's. The MAC addresses of both say n."""

    def __init__(self, n, model):
        self.n, self.model = n, model
        self.mac, self.peer_mac = f"52:54:00:00:01:{n:02x}", f"52:54:00:00:02:{n:02x}"

    @property
    def slot(self):
        return f"{PCI}/0000:00:{0x10 + self.n // 8:02x}.{self.n % 8}"

    @property
    def pci(self):
        """Its address, or None: the slot is empty."""
        found = glob.glob(f"{self.slot}/????:??:??.?")
        return os.path.basename(found[0]) if found else None

    def peer(self, timeout=20):
        """The kernel's interface at the other end, when the namespace of the last test has given it back."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for path in glob.glob("/sys/class/net/*/address"):
                with open(path, encoding="ascii") as f:
                    if f.read().strip() == self.peer_mac:
                        return path.split("/")[-2]
            time.sleep(0.05)
        raise RuntimeError(f"no interface has {self.peer_mac}")

    def unbind(self):
        path = f"{PCI}/{self.pci}"
        write(f"{path}/driver_override", "\n")
        if os.path.exists(f"{path}/driver"):
            write(f"{path}/driver/unbind", self.pci)

    def bind(self):
        self.unbind()
        write(f"{PCI}/{self.pci}/driver_override", "vfio-pci")
        write("/sys/bus/pci/drivers_probe", self.pci)


class Cards:
    """All cards of a model; the routers of a test take them in order."""

    def __init__(self, model):
        with open(SETTINGS, encoding="utf-8") as f:
            words = next(line for line in f if line.startswith("cards=")).strip()[len("cards="):].strip("'").split()
        self.model, self.rules = model, RULES.get(model)
        self.free = [Card(n, model) for n, word in enumerate(words) if word == model]
        self.used = {}          # (host, interface) -> card
        # So routers take the pages of 1 GiB that the guest has from its start. qemu's e1000e and vmxnet3 leave out each frame of
        # which a part crosses into a page that lies elsewhere; pages of 2 MiB do all the time, and such a frame is in vain forever.
        write(NR_HUGEPAGES, "0")

    def attach(self, fabric, name, segment, ifname):
        """The next card, on a segment: its address for the configuration of a port."""
        card = self.used[name, ifname] = self.free.pop(0)
        card.bind()
        peer = card.peer()
        subprocess.run(["ip", "link", "set", peer, "netns", fabric.switch.path], check=True)
        fabric.bridge(segment)
        fabric.switch.ip(f"link set {peer} master {segment}\nlink set {peer} up")
        return card.pci

    def link(self, name, ifname, up):
        qemu = Qemu()
        qemu.link(self.used[name, ifname], up)
        qemu.close()


class Qemu:
    """The machine's control: cables and cards are pulled there."""

    def __init__(self):
        port = next(p for p in glob.glob("/sys/class/virtio-ports/*/name") if read(p) == "control")
        self.file = open(f"/dev/{port.split('/')[-2]}", "r+b", buffering=0)     # pylint: disable=consider-using-with
        self.rest = b""
        with contextlib.suppress(RuntimeError):     # a test before this one has said so
            self.run("qmp_capabilities")

    def _line(self):
        while b"\n" not in self.rest:
            self.rest += self.file.read(4096) or b""
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def run(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments, "id": command}).encode() + b"\n")
        while (answer := self._line()).get("id") != command:
            pass                # the greeting, events
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer["return"]

    def link(self, card, up):
        self.run("set_link", name=f"card{card.n}", up=up)

    def pull(self, card):
        """Asks the guest to let the card go, as the button beside its slot does."""
        self.run("device_del", id=f"card{card.n}")

    def put_back(self, card, timeout=20):
        """A card that the guest has let go."""
        driver, *more = MODELS[card.model].split(",")
        arguments = dict(word.split("=") for word in more)
        end = time.monotonic() + timeout
        while not card.pci:
            try:
                self.run("device_add", driver=driver, id=f"card{card.n}", bus=f"slot{card.n}", netdev=f"mine{card.n}",
                         mac=card.mac, **{k: v == "on" for k, v in arguments.items()})
            except RuntimeError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.5)

    def close(self):
        self.file.close()
