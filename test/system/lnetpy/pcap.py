# SPDX-License-Identifier: BSD-3-Clause
"""Reading recordings: pcap (also .xz), Ethernet, IPv4/IPv6, TCP streams put together again.

Frames reach 64 KiB (segmentation offload was on), and an IPv4 total length may then be 0.
"""

import heapq
import lzma
import struct
from dataclasses import dataclass, field

LINK_ETHERNET, LINK_SLL, LINK_SLL2 = 1, 113, 276


PCAPNG = 0x0a0d0d0a


def packets(path):
    """Yield (time, link type, bytes) of each packet of a pcap or pcapng file."""
    opener = lzma.open if str(path).endswith(".xz") else open
    with opener(path, "rb") as f:
        head = f.read(4)
        if struct.unpack("<I", head)[0] == PCAPNG:
            yield from _pcapng(head + f.read())
        else:
            yield from _pcap(head, f)


def _pcap(head, f):
    e, scale = {0xa1b2c3d4: ("<", 1e-6), 0xa1b23c4d: ("<", 1e-9),
                0xd4c3b2a1: (">", 1e-6), 0x4d3cb2a1: (">", 1e-9)}[struct.unpack("<I", head)[0]]
    link = struct.unpack(e + "I", f.read(20)[16:])[0] & 0xffff
    while True:
        ph = f.read(16)
        if len(ph) < 16:
            return
        sec, frac, caplen, _ = struct.unpack(e + "IIII", ph)
        yield sec + frac * scale, link, f.read(caplen)


def _pcapng(data):
    at, e, links = 0, "<", []
    while len(data) - at >= 12:
        if data[at:at + 4] == b"\x0a\x0d\x0d\x0a":
            e = "<" if data[at + 8:at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            links = []
        kind, size = struct.unpack(e + "II", data[at:at + 8])
        body = data[at + 8:at + size - 4]
        if kind == 1:
            links.append((struct.unpack(e + "H", body[:2])[0], _resolution(body[8:], e)))
        elif kind == 6:
            iface, high, low, caplen, _ = struct.unpack(e + "IIIII", body[:20])
            link, scale = links[iface]
            yield (high << 32 | low) * scale, link, body[20:20 + caplen]
        at += max(size, 12)


def _resolution(options, e):
    """Seconds per tick of an interface (option 9)."""
    while len(options) >= 4:
        code, size = struct.unpack(e + "HH", options[:4])
        if code == 9 and size:
            r = options[4]
            return 2.0 ** -(r & 127) if r & 128 else 10.0 ** -r
        if code == 0:
            break
        options = options[4 + (size + 3 & ~3):]
    return 1e-6


@dataclass
class Segment:
    time: float
    src: tuple      # (address bytes, port)
    dst: tuple
    seq: int
    flags: int
    data: bytes

    SYN, FIN, RST, ACK = 2, 1, 4, 16


def _tcp(time, src, dst, raw):
    if len(raw) < 20:
        return None
    sport, dport, seq, _, off, flags = struct.unpack(">HHIIBB", raw[:14])
    return Segment(time, (src, sport), (dst, dport), seq, flags, raw[(off >> 4) * 4:])


def segments(path):
    """Yield each TCP segment of the file."""
    for time, link, raw in packets(path):
        at = {LINK_ETHERNET: 12, LINK_SLL: 14, LINK_SLL2: 0}.get(link)
        if at is None or len(raw) < at + 2:
            continue
        etype, at = struct.unpack(">H", raw[at:at + 2])[0], 20 if link == LINK_SLL2 else at + 2
        while etype in (0x8100, 0x88a8):
            etype, at = struct.unpack(">H", raw[at + 2:at + 4])[0], at + 4
        ip = raw[at:]
        if etype == 0x0800 and len(ip) >= 20 and ip[9] == 6:
            total = struct.unpack(">H", ip[2:4])[0] or len(ip)
            seg = _tcp(time, ip[12:16], ip[16:20], ip[(ip[0] & 15) * 4:total])
        elif etype == 0x86dd and len(ip) >= 40 and ip[6] == 6:
            plen = struct.unpack(">H", ip[4:6])[0] or len(ip) - 40
            seg = _tcp(time, ip[8:24], ip[24:40], ip[40:40 + plen])
        else:
            continue
        if seg:
            yield seg


@dataclass
class Half:
    """One direction of a connection."""

    data: bytearray = field(default_factory=bytearray)
    marks: list = field(default_factory=list)   # (offset, time) of each arrival
    base: int = None                            # sequence number of data[0]
    syn: bool = False
    fin: bool = False
    rst: bool = False
    held: dict = field(default_factory=dict)

    def add(self, seg):
        if seg.flags & Segment.SYN:
            self.base, self.syn = (seg.seq + 1) & 0xffffffff, True
        if seg.flags & Segment.RST:
            self.rst = True
            return
        if seg.data and self.base is None:
            self.base = seg.seq
        if seg.data:
            off = (seg.seq - self.base + (1 << 31)) % (1 << 32) - (1 << 31)
            self.held[off] = max(self.held.get(off, b""), seg.data, key=len)
            self._drain(seg.time)
        if seg.flags & Segment.FIN:
            self.fin = True

    def _drain(self, time):
        moved = True
        while moved:
            moved = False
            for off in sorted(self.held):
                if off > len(self.data):
                    break
                data = self.held.pop(off)
                if off + len(data) > len(self.data) and off + len(data) > 0:
                    self.marks.append((len(self.data), time))
                    self.data += data[len(self.data) - off:]
                    moved = True
                    break

    def time_at(self, offset):
        best = self.marks[0][1] if self.marks else 0.0
        for off, time in self.marks:
            if off > offset:
                break
            best = time
        return best


@dataclass
class Conn:
    """One TCP connection: `a` dialled (or spoke first, when its SYN was not recorded)."""

    a: tuple
    b: tuple
    start: float
    ab: Half = field(default_factory=Half)
    ba: Half = field(default_factory=Half)

    @property
    def whole(self):
        """Recorded from its SYN on."""
        return self.ab.syn


def connections(*paths, port=988):
    """All connections to `port`, in order of their first segment. Several paths: what was recorded at the same time in several
    places, so that a connection whose directions took different links is whole."""
    live, out = {}, []
    for seg in heapq.merge(*map(segments, paths), key=lambda s: s.time):
        if port not in (seg.src[1], seg.dst[1]):
            continue
        key = frozenset((seg.src, seg.dst))
        conn = live.get(key)
        syn = seg.flags & Segment.SYN and not seg.flags & Segment.ACK
        if syn and conn and (conn.ab.base != (seg.seq + 1) & 0xffffffff or conn.a != seg.src):
            conn = None
        if conn is None:
            if not syn and not seg.data:
                continue
            first_is_a = seg.dst[1] == port
            a, b = (seg.src, seg.dst) if first_is_a else (seg.dst, seg.src)
            conn = live[key] = Conn(a, b, seg.time)
            out.append(conn)
        (conn.ab if seg.src == conn.a else conn.ba).add(seg)
    return out
