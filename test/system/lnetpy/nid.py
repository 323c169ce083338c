# SPDX-License-Identifier: BSD-3-Clause
"""Network identifiers: nid4 (a 64-bit word) and nid16 (20 bytes). docs/protocol/lnet-core.md §1."""

import ipaddress
import re
import struct
from dataclasses import dataclass

LND_TYPES = {"tcp": 2, "o2ib": 5, "lo": 9, "gni": 13, "gip": 14, "ptlf": 15, "kfi": 16,
             "efa": 18, "bxi3f": 19}
LND_NAMES = {v: k for k, v in LND_TYPES.items()}
NUMERIC = {"gni", "ptlf", "kfi", "bxi3f"}


@dataclass(frozen=True)
class Nid:
    """One NID. `addr` is 4 bytes, or 16 for a large NID; network order."""

    ntype: int
    num: int
    addr: bytes

    @property
    def large(self):
        return len(self.addr) > 4

    @property
    def net(self):
        return (self.ntype, self.num)

    @property
    def ip(self):
        return str(ipaddress.ip_address(self.addr))

    def word(self):
        """The nid4 word. A large NID has none: callers must not truncate (lnet-core §2.2)."""
        if self.large:
            raise ValueError(f"{self} does not fit a nid4")
        return self.ntype << 48 | self.num << 32 | int.from_bytes(self.addr, "big")

    def pack4(self):
        return struct.pack("<Q", self.word())

    def pack16(self):
        return struct.pack(">BBH", len(self.addr) - 4, self.ntype, self.num) + self.addr.ljust(16, b"\0")

    def order(self):
        """Sort key of connection races: bytewise over the 20-byte form (socklnd §2.5)."""
        return self.pack16()

    def __str__(self):
        name = LND_NAMES.get(self.ntype, f"<{self.ntype}:{self.num}>")
        if name == "lo":
            return "0@lo"
        net = name if not self.num or name[0] == "<" else f"{name}{self.num}"
        if name in NUMERIC and not self.large:
            return f"{int.from_bytes(self.addr, 'big')}@{net}"
        return f"{self.ip}@{net}"


def from_word(word):
    """A nid4 word; ANY (all ones) and words with the reserved top byte are refused with ValueError."""
    if word >> 56:
        raise ValueError(f"nid4 {word:#x} has a reserved top byte")
    return Nid((word >> 48) & 0xff, (word >> 32) & 0xffff, (word & 0xffffffff).to_bytes(4, "big"))


def from_16(raw):
    """The 20-byte form; unused address bytes must be zero, since equality looks at all of them."""
    size, ntype, num = struct.unpack(">BBH", raw[:4])
    if ntype == 0xff:
        raise ValueError("nid16 is ANY")
    if size > 12 or any(raw[8 + size:20]):
        raise ValueError(f"malformed nid16 {raw.hex()}")
    return Nid(ntype, num, bytes(raw[4:8 + size]))


def parse_net(text):
    m = re.fullmatch(r"([a-z]+[a-z0-9]*?[a-z])(\d*)", text)
    if not m or m.group(1) not in LND_TYPES:
        raise ValueError(f"unknown network {text!r}")
    return LND_TYPES[m.group(1)], int(m.group(2) or 0)


def net_str(net):
    name = LND_NAMES.get(net[0], f"<{net[0]}:{net[1]}>")
    return name if not net[1] or name[0] == "<" else f"{name}{net[1]}"


def parse(text):
    """`10.0.0.1@tcp1`, `fd00::1@tcp`, `7@kfi`, `0@lo`."""
    addr, _, net = text.partition("@")
    ntype, num = parse_net(net or "tcp")
    if LND_NAMES[ntype] == "lo":
        return Nid(ntype, 0, bytes(4))
    if LND_NAMES[ntype] in NUMERIC and addr.isdigit():
        return Nid(ntype, num, int(addr).to_bytes(4, "big"))
    return Nid(ntype, num, ipaddress.ip_address(addr).packed)


LO = Nid(9, 0, bytes(4))
