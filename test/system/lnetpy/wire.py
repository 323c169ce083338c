# SPDX-License-Identifier: BSD-3-Clause
"""Byte layouts of docs/protocol/socklnd.md §1, §2, §4 and lnet-core.md §2, §3.

Each unit is a dataclass with pack() and unpack(); pack(unpack(x)) == x is tested on every recording.
Unpackers raise WireError with the reason and never guess.
"""

import struct
from dataclasses import dataclass, field

from . import nid as N

ACCEPTOR_MAGIC = 0xacce7100
LNET_MAGIC = 0x45726963
TCP_V1_MAGIC = 0xeebc0ded
PING_MAGIC = 0x70696e67

CTYPE_NONE, ANY, CONTROL, BULK_IN, BULK_OUT = -1, 0, 1, 2, 3
CTYPE_NAMES = {-1: "NONE", 0: "ANY", 1: "CONTROL", 2: "BULK_IN", 3: "BULK_OUT"}
INVERT = {ANY: ANY, CONTROL: CONTROL, BULK_IN: BULK_OUT, BULK_OUT: BULK_IN}

NOOP, LNET = 0xc0, 0xc1
ACK, PUT, GET, REPLY, HELLO_TYPE = range(5)
TYPE_NAMES = {0: "ACK", 1: "PUT", 2: "GET", 3: "REPLY", 4: "HELLO"}

LNET_PID = 12345
MAX_PAYLOAD = 1 << 20
MIN_BULK = 1024
KEEPALIVE_COOKIE = 1
PING_MATCH = 1 << 63
NO_HANDLE = b"\xff" * 16

F_NI_STATUS, F_RTE_DISABLED, F_MULTI_RAIL, F_DISCOVERY = 2, 4, 8, 16
F_LARGE_ADDR, F_PRIMARY_LARGE, F_METADATA = 32, 64, 128
UP, DOWN = 0x15aac0de, 0xdeadface
MAX_NIS = 200
DISCOVERY_SINK = 272


class WireError(Exception):
    """Bytes that no kernel node sends."""


def _nid(func, raw):
    try:
        return func(raw)
    except ValueError as e:
        raise WireError(str(e)) from None


# ---------------------------------------------------------------- acceptor

def connreq(target):
    """The version follows from the target NID alone (socklnd §1.1)."""
    if target.large:
        return struct.pack("<II", ACCEPTOR_MAGIC, 2) + target.pack16()
    return struct.pack("<II", ACCEPTOR_MAGIC, 1) + target.pack4()


def connreq_size(first8):
    magic, version = struct.unpack("<II", first8)
    if magic != ACCEPTOR_MAGIC:
        raise WireError(f"acceptor magic {magic:#x}")
    if version not in (1, 2):
        raise WireError(f"acceptor version {version}")
    return 16 if version == 1 else 28


def connreq_target(raw):
    if connreq_size(raw[:8]) == 16:
        return _nid(N.from_word, struct.unpack("<Q", raw[8:16])[0])
    return _nid(N.from_16, raw[8:28])


ACCEPTOR_REFUSAL = struct.pack("<IIQ", ACCEPTOR_MAGIC, 1, 0)


# ---------------------------------------------------------------- HELLO

@dataclass
class Hello:
    version: int
    src: N.Nid
    dst: N.Nid
    src_inc: int
    ctype: int
    src_pid: int = LNET_PID
    dst_pid: int = 0
    dst_inc: int = 0
    ips: tuple = ()

    def pack(self):
        if self.version == 1:
            body = struct.pack("<IHHQIIIIQi", TCP_V1_MAGIC, 1, 0, self.src.word(), self.dst_pid,
                               self.src_pid, HELLO_TYPE, 4 * len(self.ips), self.src_inc, self.ctype)
            return body.ljust(72, b"\0") + struct.pack(f"<{len(self.ips)}I", *self.ips)
        large = self.version >= 4
        nids = (self.src.pack16() + self.dst.pack16()) if large else (self.src.pack4() + self.dst.pack4())
        return (struct.pack("<II", LNET_MAGIC, self.version) + nids
                + struct.pack("<IIQQiI", self.src_pid, self.dst_pid, self.src_inc, self.dst_inc, self.ctype,
                              len(self.ips))
                + struct.pack(f"<{len(self.ips)}I", *self.ips))


def hello_size(version):
    return {1: 72, 2: 56, 3: 56, 4: 80}[version]


def hello_version(first8):
    magic, version = struct.unpack("<II", first8)
    if magic == TCP_V1_MAGIC:
        return 1
    if magic != LNET_MAGIC:
        raise WireError(f"HELLO magic {magic:#x}")
    if version not in (2, 3, 4):
        raise WireError(f"HELLO version {version}")
    return version


def hello_nips(raw):
    """How many u32 follow the fixed part; a v4 receiver never reads them (socklnd §2.1)."""
    version = hello_version(raw[:8])
    if version == 1:
        return struct.unpack("<I", raw[28:32])[0] // 4
    return 0 if version == 4 else struct.unpack("<I", raw[52:56])[0]


def unpack_hello(raw, ips=b""):
    version = hello_version(raw[:8])
    ips = struct.unpack(f"<{len(ips) // 4}I", ips)
    if version == 1:
        (_, _, _, src, dst_pid, src_pid, htype, _, inc, ctype) = struct.unpack("<IHHQIIIIQi", raw[:44])
        if htype != HELLO_TYPE or any(raw[44:72]):
            raise WireError("malformed v1 HELLO")
        src = _nid(N.from_word, src)
        return Hello(1, src, src, inc, ctype, src_pid, dst_pid, 0, ips)
    if version == 4:
        src, dst, rest = _nid(N.from_16, raw[8:28]), _nid(N.from_16, raw[28:48]), raw[48:80]
    else:
        src, dst = (_nid(N.from_word, w) for w in struct.unpack("<QQ", raw[8:24]))
        rest = raw[24:56]
    src_pid, dst_pid, src_inc, dst_inc, ctype, nips = struct.unpack("<IIQQiI", rest)
    if version == 4 and nips:
        raise WireError("nips in a v4 HELLO desynchronises the stream")
    return Hello(version, src, dst, src_inc, ctype, src_pid, dst_pid, dst_inc, ips)


# ---------------------------------------------------------------- frames

def frame(ftype, cookie0=0, cookie1=0, csum=0):
    return struct.pack("<IIQQ", ftype, csum, cookie0, cookie1)


def unpack_frame(raw):
    return struct.unpack("<IIQQ", raw)


KEEPALIVE = frame(NOOP, 0, KEEPALIVE_COOKIE)


def acked_cookies(a, b):
    """Cookies that {a, b} of a NOOP acknowledges (socklnd §4.5)."""
    if a == 0 or a == b:
        return [b]
    if a > b:
        return [a, b]
    if b - a > 1 << 16:
        raise WireError(f"absurd ZC-ACK range {a}..{b}")
    return list(range(a, b + 1))


_CRC = []
for _i in range(256):
    _c = _i
    for _ in range(8):
        _c = _c >> 1 ^ (0xedb88320 if _c & 1 else 0)
    _CRC.append(_c)


def csum(data):
    """CRC-32 without the final inversion (socklnd §4.6)."""
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xff]
    return crc


# ---------------------------------------------------------------- LNet header

@dataclass(frozen=True)
class Header:
    """The LNet header; `union` is the 40 opaque bytes (lnet-core §2.3)."""

    dst: N.Nid
    src: N.Nid
    mtype: int
    plen: int
    union: bytes
    dst_pid: int = LNET_PID
    src_pid: int = LNET_PID

    def pack(self, large):
        nids = self.dst.pack16() + self.src.pack16() if large else self.dst.pack4() + self.src.pack4()
        return nids + struct.pack("<IIII", self.dst_pid, self.src_pid, self.mtype, self.plen) + self.union

    @property
    def handle(self):
        return self.union[:16]

    @property
    def match_bits(self):
        return struct.unpack("<Q", self.union[16:24])[0]

    @property
    def portal(self):
        off = 32 if self.mtype == PUT else 24
        return struct.unpack("<I", self.union[off:off + 4])[0]

    @property
    def offset(self):
        off = 36 if self.mtype == PUT else 28
        return struct.unpack("<I", self.union[off:off + 4])[0]

    @property
    def sink(self):
        return struct.unpack("<I", self.union[32:36])[0]

    @property
    def mlength(self):
        return struct.unpack("<I", self.union[24:28])[0]

    def __str__(self):
        return f"{TYPE_NAMES.get(self.mtype, self.mtype)} {self.src} -> {self.dst} len {self.plen}"


def header_size(large):
    return 96 if large else 72


def unpack_header(raw, large):
    if large:
        dst, src, rest = _nid(N.from_16, raw[:20]), _nid(N.from_16, raw[20:40]), raw[40:]
    else:
        dst, src = (_nid(N.from_word, w) for w in struct.unpack("<QQ", raw[:16]))
        rest = raw[16:]
    dst_pid, src_pid, mtype, plen = struct.unpack("<IIII", rest[:16])
    return Header(dst, src, mtype, plen, bytes(rest[16:]), dst_pid, src_pid)


def whole_messages(got):
    """The messages of protocol 3 that a stream begins with, as (header, payload), and the bytes behind the last whole frame."""
    out, head_size = [], len(KEEPALIVE) + header_size(False)
    while len(got) >= len(KEEPALIVE):
        size = len(KEEPALIVE)
        if unpack_frame(got[:size])[0] == LNET:
            if len(got) < head_size:
                break
            head = unpack_header(got[size:head_size], False)
            size = head_size + head.plen
            if len(got) < size:
                break
            out.append((head, got[head_size:size]))
        got = got[size:]
    return out, got


def put_union(handle, match_bits, portal, offset=0, hdr_data=0):
    return handle + struct.pack("<QQII", match_bits, hdr_data, portal, offset)


def get_union(handle, match_bits, portal, sink, offset=0):
    return handle + struct.pack("<QIII", match_bits, portal, offset, sink) + bytes(4)


def ack_union(handle, match_bits, mlength):
    return handle + struct.pack("<QI", match_bits, mlength) + bytes(12)


def reply_union(handle):
    return handle + bytes(24)


# ---------------------------------------------------------------- ping info

@dataclass
class PingInfo:
    """`nis` are (Nid, status) without loopback, in configuration order (lnet-core §3.2)."""

    features: int
    seq: int
    nis: list = field(default_factory=list)
    pid: int = LNET_PID
    big_endian: bool = False

    def pack(self):
        e = ">" if self.big_endian else "<"
        small = [(n, s) for n, s in self.nis if not n.large]
        tail = b"".join(struct.pack(e + "I", s) + n.pack16() for n, s in self.nis if n.large)
        size = 16 + 16 * (1 + len(small)) + len(tail)
        out = struct.pack(e + "IIII", PING_MAGIC, self.features, self.pid, 1 + len(small))
        out += struct.pack(e + "QII", N.LO.word(), self.seq, size if self.features & F_LARGE_ADDR else 0)
        for n, s in small:
            out += struct.pack(e + "QII", n.word(), s, 0)
        return out + tail

    def statuses(self):
        return dict(self.nis)

    @property
    def routing(self):
        return not self.features & F_RTE_DISABLED


def ping_size(raw):
    """The size the info declares for itself, from its first 32 bytes."""
    e = ">" if raw[:4] == struct.pack(">I", PING_MAGIC) else "<"
    features, = struct.unpack(e + "I", raw[4:8])
    nnis, = struct.unpack(e + "I", raw[12:16])
    if features & F_LARGE_ADDR:
        return struct.unpack(e + "I", raw[28:32])[0] & ~3
    return 16 + 16 * nnis


def unpack_ping(raw):
    """A receiver's checks in a receiver's order (lnet-core §3.2), then every entry."""
    if len(raw) < 32:
        raise WireError(f"ping info of {len(raw)} bytes")
    if raw[:4] == struct.pack("<I", PING_MAGIC):
        e = "<"
    elif raw[:4] == struct.pack(">I", PING_MAGIC):
        e = ">"
    else:
        raise WireError(f"ping magic {raw[:4].hex()}")
    features, pid, nnis = struct.unpack(e + "III", raw[4:16])
    if not features & F_NI_STATUS:
        raise WireError("ping info without NI_STATUS")
    if not 1 <= nnis <= MAX_NIS:
        raise WireError(f"ping info with {nnis} NIs")
    if len(raw) < 16 + 16 * nnis:
        raise WireError(f"ping info of {len(raw)} bytes for {nnis} NIs")
    word, seq, size = struct.unpack(e + "QII", raw[16:32])
    if word != N.LO.word():
        raise WireError(f"entry 0 is {word:#x}, not 0@lo")
    nis = []
    for i in range(1, nnis):
        word, status, zero = struct.unpack(e + "QII", raw[16 + 16 * i:32 + 16 * i])
        if zero:
            raise WireError(f"ns_msg_size {zero} in entry {i}")
        nis.append((_nid(N.from_word, word), status))
    at = 16 + 16 * nnis
    if features & F_LARGE_ADDR:
        if size & ~3 != len(raw):
            raise WireError(f"declared size {size}, got {len(raw)}")
        while at < len(raw):
            if len(raw) - at < 8:
                raise WireError("cut large entry")
            used = 4 + raw[at + 4] + 8
            if len(raw) - at < used:
                raise WireError("cut large entry")
            status, = struct.unpack(e + "I", raw[at:at + 4])
            nis.append((_nid(N.from_16, raw[at + 4:at + used].ljust(20, b"\0")), status))
            at += (used + 3) & ~3
    elif at != len(raw) or size:
        raise WireError(f"ping info of {len(raw)} bytes for {nnis} NIs (size word {size})")
    return PingInfo(features, seq, nis, pid, e == ">")
