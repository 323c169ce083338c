# SPDX-License-Identifier: BSD-3-Clause
"""Cutting recorded byte streams into units: acceptor request, HELLO, frames."""

from dataclasses import dataclass

from . import pcap, wire


@dataclass
class Unit:
    """One unit of a stream. kind: connreq | refusal | hello | noop | lnet | rest."""

    kind: str
    raw: bytes
    value: object = None        # Nid | Hello | (csum, cookie0, cookie1) | Header
    payload: bytes = b""
    frame: tuple = ()           # LNET only: (csum, cookie0, cookie1)
    time: float = 0.0


def repack(unit, large):
    """Encode a decoded unit again from its fields alone."""
    if unit.kind == "connreq":
        return wire.connreq(unit.value)
    if unit.kind == "hello":
        return unit.value.pack()
    if unit.kind == "noop":
        csum, a, b = unit.value
        return wire.frame(wire.NOOP, a, b, csum)
    if unit.kind == "lnet":
        csum, a, b = unit.frame
        return wire.frame(wire.LNET, a, b, csum) + unit.value.pack(large) + unit.payload
    return unit.raw


def _frames(half, at, large, out):
    data = half.data
    hsize = wire.header_size(large)
    while len(data) - at >= 24:
        ftype, csum, a, b = wire.unpack_frame(data[at:at + 24])
        time = half.time_at(at)
        if ftype == wire.NOOP:
            out.append(Unit("noop", bytes(data[at:at + 24]), (csum, a, b), time=time))
            at += 24
            continue
        if ftype != wire.LNET:
            raise wire.WireError(f"frame type {ftype:#x} at offset {at}")
        if len(data) - at < 24 + hsize:
            break
        hdr = wire.unpack_header(bytes(data[at + 24:at + 24 + hsize]), large)
        if hdr.mtype > wire.REPLY or hdr.plen > wire.MAX_PAYLOAD:
            raise wire.WireError(f"header {hdr} at offset {at}")
        end = at + 24 + hsize + hdr.plen
        if end > len(data):
            break
        out.append(Unit("lnet", bytes(data[at:end]), hdr, bytes(data[at + 24 + hsize:end]), (csum, a, b), time))
        at = end
    if at < len(data):
        out.append(Unit("rest", bytes(data[at:]), time=half.time_at(at)))


def _hello(half, at, out):
    data = half.data
    if len(data) - at < 8:
        return at, None
    try:
        version = wire.hello_version(data[at:at + 8])
        fixed = wire.hello_size(version)
        if len(data) - at < fixed:
            return at, None
        nips = wire.hello_nips(bytes(data[at:at + fixed]))
        if nips > 16:
            raise wire.WireError(f"{nips} addresses")
        raw = bytes(data[at:at + fixed + 4 * nips])
        hello = wire.unpack_hello(raw[:fixed], raw[fixed:])
    except wire.WireError as e:
        out.append(Unit("rest", bytes(data[at:]), str(e), time=half.time_at(at)))
        return len(data), None
    out.append(Unit("hello", raw, hello, time=half.time_at(at)))
    return at + len(raw), hello


def _guess_large(half):
    """A stream recorded from its middle: which header size makes sense of it."""
    for large in (False, True):
        units = []
        try:
            _frames(half, 0, large, units)
        except wire.WireError:
            continue
        if units and units[0].kind != "rest":
            return large
    return False


@dataclass
class Decoded:
    conn: object
    ab: list
    ba: list
    hello_ab: object = None
    hello_ba: object = None
    error: str = ""

    @property
    def large(self):
        hello = self.hello_ab or self.hello_ba
        return bool(hello and hello.version >= 4) if hello else self._guess

    _guess: bool = False


def decode(conn):
    """All units of a connection, as far as it can be understood; `error` tells where it could not."""
    d = Decoded(conn, [], [])
    if not conn.whole:
        d._guess = _guess_large(conn.ab) or _guess_large(conn.ba)
        at_ab = at_ba = 0
    else:
        at_ab = _connreq(conn.ab, d.ab)
        if at_ab is None:
            at_ab = len(conn.ab.data)
        else:
            at_ab, d.hello_ab = _hello(conn.ab, at_ab, d.ab)
        if bytes(conn.ba.data[:16]) == wire.ACCEPTOR_REFUSAL:
            d.ba.append(Unit("refusal", bytes(conn.ba.data[:16]), time=conn.ba.time_at(0)))
            at_ba = len(conn.ba.data)
        else:
            at_ba, d.hello_ba = _hello(conn.ba, 0, d.ba)
        if not (d.hello_ab and d.hello_ba):
            return d
    try:
        _frames(conn.ab, at_ab, d.large, d.ab)
        _frames(conn.ba, at_ba, d.large, d.ba)
    except wire.WireError as e:
        d.error = str(e)
    return d


def _connreq(half, out):
    data = half.data
    if len(data) < 8:
        return None
    try:
        size = wire.connreq_size(data[:8])
        if len(data) < size:
            return None
        target = wire.connreq_target(bytes(data[:size]))
    except wire.WireError as e:
        out.append(Unit("rest", bytes(data), str(e), time=half.time_at(0)))
        return None
    out.append(Unit("connreq", bytes(data[:size]), target, time=half.time_at(0)))
    return size


def decode_file(*paths):
    return [decode(c) for c in pcap.connections(*paths)]
