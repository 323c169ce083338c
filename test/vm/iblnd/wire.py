# SPDX-License-Identifier: BSD-3-Clause
"""Byte layouts of docs/protocol/o2iblnd.md §1, §2. Unpackers raise WireError with the reason and never guess."""

import struct
from dataclasses import dataclass, field

MAGIC, REJECT_MAGIC, VERSION = 0x0be91b91, 0x0be91b91, 0x12
CONNREQ, CONNACK = 0xc0, 0xc1
NOOP, IMMEDIATE, PUT_REQ, PUT_NAK, PUT_ACK, PUT_DONE, GET_REQ, GET_DONE = range(0xd0, 0xd8)
NAMES = {CONNREQ: "CONNREQ", CONNACK: "CONNACK", NOOP: "NOOP", IMMEDIATE: "IMMEDIATE", PUT_REQ: "PUT_REQ", PUT_NAK: "PUT_NAK",
         PUT_ACK: "PUT_ACK", PUT_DONE: "PUT_DONE", GET_REQ: "GET_REQ", GET_DONE: "GET_DONE"}
REQUESTS = (PUT_REQ, GET_REQ)
CREDITED = (IMMEDIATE, PUT_REQ, GET_REQ)

RACE, NO_RESOURCES, FATAL, UNCOMPAT, STALE, FRAGS, QUEUE_SIZE, INVALID_SRV_ID, EARLY = range(1, 10)
CM_STALE, CM_INVALID_SERVICE, CM_CONSUMER = 10, 8, 28

MSG_SIZE, HEADER, LNET_HEADER = 4096, 48, 72
IMMEDIATE_MAX = MSG_SIZE - HEADER - LNET_HEADER
MAX_FRAGS = 257
SERVICE = 987
MIN_SIZE = {CONNREQ: 56, CONNACK: 56, NOOP: 48, IMMEDIATE: 120, PUT_REQ: 128, PUT_NAK: 60, PUT_ACK: 72, PUT_DONE: 60,
            GET_REQ: 136, GET_DONE: 60}


class WireError(Exception):
    """Bytes that no kernel node sends."""


@dataclass
class Msg:
    """One message. `lnet` are the 72 bytes of the LNet header, `frags` rows (address, bytes)."""

    mtype: int
    src: int = 0
    src_stamp: int = 0
    dst: int = 0
    dst_stamp: int = 0
    credits: int = 0
    depth: int = 0
    frags_max: int = 0
    msg_size: int = MSG_SIZE
    lnet: bytes = b""
    payload: bytes = b""
    cookie: int = 0             # of a request; the source's in a PUT_ACK; of whom it answers in NAK and DONE
    dst_cookie: int = 0
    status: int = 0
    key: int = 0
    frags: list = field(default_factory=list)
    version: int = VERSION
    nob: int = 0

    def body(self, e):
        # Cookies are nobody's business but their maker's: reflected as they came, in no byte order.
        cookie = struct.pack("<Q", self.cookie)
        if self.mtype in (CONNREQ, CONNACK):
            return struct.pack(e + "HHI", self.depth, self.frags_max, self.msg_size)
        if self.mtype == IMMEDIATE:
            return self.lnet + bytes(self.payload)
        if self.mtype == PUT_REQ:
            return self.lnet + cookie
        if self.mtype == GET_REQ:
            return self.lnet + cookie + self.descriptor(e)
        if self.mtype == PUT_ACK:
            return cookie + struct.pack("<Q", self.dst_cookie) + self.descriptor(e)
        if self.mtype in (PUT_NAK, PUT_DONE, GET_DONE):
            return cookie + struct.pack(e + "i", self.status)
        return b""

    def descriptor(self, e):
        return struct.pack(e + "II", self.key, len(self.frags)) + b"".join(
            struct.pack(e + "IQ", n, addr) for addr, n in self.frags)

    def pack(self, e="<"):
        body = self.body(e)
        head = struct.pack(e + "IHBBIIQQQQ", MAGIC, self.version, self.mtype, self.credits, HEADER + len(body), 0,
                           self.src, self.src_stamp, self.dst, self.dst_stamp)
        return head + body

    @property
    def name(self):
        return NAMES.get(self.mtype, hex(self.mtype))


def order_of(raw):
    """'<' or '>', as the sender's magic tells."""
    for e in "<>":
        if raw[:4] == struct.pack(e + "I", MAGIC):
            return e
    raise WireError(f"magic {bytes(raw[:4]).hex()}")


def unpack(raw, exact=True):
    """A receiver's checks in a receiver's order (§2.4). exact: no bytes behind the message, as in a SEND of ours."""
    if len(raw) < 6:
        raise WireError(f"{len(raw)} bytes")
    e = order_of(raw)
    version, = struct.unpack(e + "H", raw[4:6])
    if version != VERSION:
        raise WireError(f"version {version:#x}")
    if len(raw) < HEADER:
        raise WireError(f"{len(raw)} bytes")
    _, _, mtype, credits, nob, cksum, src, src_stamp, dst, dst_stamp = struct.unpack(e + "IHBBIIQQQQ", raw[:HEADER])
    if nob > len(raw) or exact and nob != len(raw):
        raise WireError(f"{len(raw)} bytes, the header says {nob}")
    if cksum:
        raise WireError(f"checksum {cksum:#x}, where the default is none")
    if mtype not in MIN_SIZE:
        raise WireError(f"type {mtype:#x}")
    if nob < MIN_SIZE[mtype]:
        raise WireError(f"{NAMES[mtype]} of {nob} bytes")
    m = Msg(mtype, src, src_stamp, dst, dst_stamp, credits, version=version, nob=nob)
    b = bytes(raw[HEADER:nob])
    if mtype in (CONNREQ, CONNACK):
        m.depth, m.frags_max, m.msg_size = struct.unpack(e + "HHI", b[:8])
        _end(m, b, 8)
    elif mtype in (IMMEDIATE, PUT_REQ, GET_REQ):
        m.lnet, rest = b[:LNET_HEADER], b[LNET_HEADER:]
        if mtype == IMMEDIATE:
            m.payload = rest
        else:
            m.cookie, = struct.unpack("<Q", rest[:8])
            if mtype == GET_REQ:
                _descriptor(m, e, rest[8:])
            else:
                _end(m, rest, 8)
    elif mtype == PUT_ACK:
        m.cookie, m.dst_cookie = struct.unpack("<QQ", b[:16])
        _descriptor(m, e, b[16:])
    elif mtype != NOOP:
        m.cookie, = struct.unpack("<Q", b[:8])
        m.status, = struct.unpack(e + "i", b[8:12])
        _end(m, b, 12)
    else:
        _end(m, b, 0)
    return m


def _end(m, body, size):
    if len(body) != size:
        raise WireError(f"{m.name}: {len(body) - size} bytes too many")


def _descriptor(m, e, raw):
    m.key, n = struct.unpack(e + "II", raw[:8])
    if not 1 <= n <= MAX_FRAGS:
        raise WireError(f"{m.name}: {n} fragments")
    if len(raw) != 8 + 12 * n:
        raise WireError(f"{m.name}: {len(raw)} bytes of descriptor for {n} fragments")
    for i in range(n):
        size, addr = struct.unpack(e + "IQ", raw[8 + 12 * i:20 + 12 * i])
        if not 0 < size < 1 << 31:
            raise WireError(f"{m.name}: fragment of {size} bytes")
        m.frags.append((addr, size))


@dataclass
class Reject:
    why: int
    stamp: int = 0
    depth: int = 0
    frags_max: int = 0
    msg_size: int = MSG_SIZE
    version: int = VERSION

    def pack(self, e="<"):
        return struct.pack(e + "IHBBQHHI", REJECT_MAGIC, self.version, self.why, 0, self.stamp, self.depth, self.frags_max,
                           self.msg_size)


def unpack_reject(raw):
    e = order_of(raw)
    _, version, why, pad, stamp, depth, frags, size = struct.unpack(e + "IHBBQHHI", raw[:24])
    if version != VERSION:
        raise WireError(f"reject of version {version:#x}")
    if pad or size != MSG_SIZE:
        raise WireError(f"reject with padding {pad}, message size {size}")
    return Reject(why, stamp, depth, frags, size, version)


def nidhash(word):
    """§1.9, of a little-endian host."""
    return word >> 32 ^ int.from_bytes((word & 0xffffffff).to_bytes(4, "big"), "little")
