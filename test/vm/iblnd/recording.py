# SPDX-License-Identifier: BSD-3-Clause
"""LNet messages in recordings of RoCEv2, docs/protocol/o2iblnd.md §2: IMMEDIATEs, each of which is one packet."""

from lnetpy import pcap, stream
from lnetpy import wire as lnet

from . import wire as W

ROCE_PORT, UDP = 4791, 17
SEND_FIRST, SEND_ONLY, RC_LAST = 0x00, 0x04, 0x1f       # opcodes of reliable connections


def _packets(path):
    """(time, source, destination, opcode, queue pair, packet number, what the headers carry) of each packet."""
    for time, link, raw in pcap.packets(path):
        ip = raw[14:]
        if link != pcap.LINK_ETHERNET or raw[12:14] != b"\x08\x00" or ip[9] != UDP:
            continue
        udp = ip[(ip[0] & 15) * 4:int.from_bytes(ip[2:4], "big")]
        if int.from_bytes(udp[2:4], "big") == ROCE_PORT:
            bth, pad = udp[8:20], udp[9] >> 4 & 3
            yield time, bytes(ip[12:16]), bytes(ip[16:20]), bth[0], bth[5:8], bth[9:12], udp[20:len(udp) - 4 - pad]


def decode_file(*paths):
    """As stream.decode_file(): a connection for each two addresses. A packet that was sent again counts once."""
    found, seen = {}, set()
    for path in paths:
        for time, src, dst, opcode, qp, psn, body in _packets(path):
            if opcode > RC_LAST or (src, qp, psn, opcode) in seen:
                continue
            seen.add((src, qp, psn, opcode))
            if SEND_FIRST <= opcode < SEND_ONLY:
                raise W.WireError("a SEND of several packets")
            m = W.unpack(body) if opcode == SEND_ONLY else None
            if m is None or m.mtype == W.NOOP:
                continue
            if m.mtype != W.IMMEDIATE:
                raise W.WireError(f"{m.name}, not an IMMEDIATE")
            a, b = sorted((src, dst))
            d = found.setdefault((a, b), stream.Decoded(pcap.Conn((a, 0), (b, 0), time), [], []))
            unit = stream.Unit("lnet", body, lnet.unpack_header(m.lnet, False), m.payload, (0, 0, 0), time)
            (d.ab if src == a else d.ba).append(unit)
    return list(found.values())
