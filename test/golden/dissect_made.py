#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Wireshark dissector on traffic that no recording holds: made here after docs/protocol, and recordings with damage.

usage: dissect_made.py GOLDEN_FIELDS MILLRACE_LUA RECORDING...

Byte streams in odd segments, streams whose begin is missing, both byte orders, SENDs of several packets, kfilnd, another port,
captures that end early. Where the C decoders know the form the comparison is dissect.py's; elsewhere it is with the values the
traffic was made from. The recordings are changed at random (the seed is in the output) and must not make the script fail.
"""

import contextlib
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from dissect import LST, TEST, TEST_BULK, Mismatch, compare_file, compare_unit, tshark, units_of, unpack

GOLDEN_FIELDS, LUA, *RECORDINGS = sys.argv[1:]
TMP = tempfile.TemporaryDirectory(prefix="millrace-test-")
A, B = "10.0.0.1", "10.0.0.2"
ETHERNET, USER0 = 1, 147
PING, PID = 1 << 63, 12345


# ---------------------------------------------------------------- packets

def save(name, packets, link=ETHERNET, snap=None):
    path = os.path.join(TMP.name, name + ".pcap")
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 262144, link))
        for i, p in enumerate(packets):
            f.write(struct.pack("<IIII", 1700000000, i, len(p[:snap]), len(p)) + p[:snap])
    return path


def load(path):
    """Packets of a recording."""
    with open(path, "rb") as f:
        data = f.read()
    at, packets = 24, []
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        packets.append(data[at + 16:at + 16 + size])
        at += 16 + size
    return packets


def ip(src, dst, proto, data):
    return bytes(12) + b"\x08\x00" + struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(data), 1, 0, 64, proto, 0, addr(src), addr(dst)) + data


def addr(text):
    return bytes(int(x) for x in text.split("."))


def tcp(src, dst, sport, dport, seq, flags, data=b""):
    return ip(src, dst, 6, struct.pack("!HHIIBBHHH", sport, dport, seq, 1, 0x50, flags, 64000, 0, 0) + data)


def stream(data, cuts, syn=True, port=988):
    """One direction of a connection, A to B, as segments that end at the cuts."""
    packets, seq = [], 1000
    if syn:
        packets = [tcp(A, B, 1023, port, seq - 1, 2), tcp(B, A, port, 1023, 0, 0x12)]
    for begin, end in zip([0, *cuts], [*cuts, len(data)]):
        packets.append(tcp(A, B, 1023, port, seq + begin, 0x18, data[begin:end]))
    return packets


def rdma(opcode, data, psn=0, qp=17):
    data += bytes(-len(data) % 4)
    bth = struct.pack("!BBHII", opcode, 0x40, 0xffff, qp, psn)
    return ip(A, B, 17, struct.pack("!HHHH", 50000, 4791, 8 + len(bth) + len(data) + 4, 0) + bth + data + bytes(4))


def cm(attribute, private, reason=0):
    """A datagram of the connection manager: its private data where docs/protocol/o2iblnd.md §1.2 has it."""
    mad = bytearray(256)
    mad[0:4] = bytes((1, 7, 2, 3))
    struct.pack_into("!H", mad, 16, attribute)
    struct.pack_into("!Q", mad, 32, 0x10603db)
    at = {0x10: 164, 0x13: 60, 0x12: 108}[attribute]
    if attribute == 0x12:
        mad[32:36] = struct.pack("!HH", 0, reason)
    if attribute == 0x10:
        private = struct.pack("!BBH12x4s12x4s", 0, 0x40, 1023, addr(A), addr(B)) + private
    mad[at:at + len(private)] = private
    return rdma(0x64, struct.pack("!II", 0x80010000, 1) + bytes(mad), qp=1)


# ---------------------------------------------------------------- messages; o is "<" or ">", the sender's order

def nid4(text, lnd, num=0):
    return lnd << 48 | num << 32 | int.from_bytes(addr(text), "big")


NA, NB, OA, OB = nid4(A, 2), nid4(B, 2), nid4(A, 5), nid4(B, 5)


def header(kind, payload=b"", src=NA, dst=NB, handle=(7, 9), match=PING, portal=0, rest=(0, 0)):
    body = struct.pack("<QQ", *handle)
    if kind == 0:
        body += struct.pack("<QI", match, rest[0])
    elif kind == 1:
        body += struct.pack("<QQII", match, rest[0], portal, rest[1])
    elif kind == 2:
        body += struct.pack("<QIII", match, portal, *rest)
    return struct.pack("<QQIIII", dst, src, PID + 1, PID, kind, len(payload)) + body + bytes(40 - len(body)) + payload


def frame(message, o="<", cookies=(0, 0)):
    return struct.pack(o + "IIQQ", 0xc1, 0, *cookies) + message


def noop(*cookies, o="<"):
    return struct.pack(o + "IIQQ", 0xc0, 0, *cookies)


def request(o="<"):
    return struct.pack(o + "IIQ", 0xacce7100, 1, NB)


def hello(o="<"):
    return struct.pack(o + "IIQQIIQQII", 0x45726963, 3, NA, NB, PID, 0, 77, 0, 1, 0)


def ping_info(o="<"):
    return (struct.pack(o + "IIII", 0x70696e67, 0x1e, PID, 3) + struct.pack(o + "QII", 9 << 48, 5, 0) +
            struct.pack(o + "QII", NA, 0x15aac0de, 0) + struct.pack(o + "QII", nid4("1.2.3.4", 5, 3), 0xdeadface, 0))


def selftest(o="<"):
    """One of each type."""
    rng, made = random.Random(5), []
    for kind, rows in LST.items():
        m = bytearray(struct.pack(o + "III8xI136x", 0xeeb0f00d, 1, kind, 1))
        for name, at, form in rows + (TEST_BULK[1] if kind == TEST else ()):
            value = {"nid": OA, "32s": b"a name"}.get(form, 11 if name == "service" else rng.randrange(1, 100))
            struct.pack_into(o + ("Q" if form == "nid" else form), m, at, value)
        made.append(bytes(m))
    return made


PUT8 = header(1, bytes(range(200)) * 40, match=3, portal=8, rest=(5, 6))
STREAM = (request() + hello() + frame(header(2, rest=(0, 272))) +
          frame(header(2, handle=(7, 10), match=6, portal=4, rest=(5, 272))) + frame(header(1, ping_info(), handle=(2 ** 64 - 1,) * 2)) +
          noop(0, 1) + frame(PUT8, cookies=(4, 0)) + noop(9, 3) + frame(header(3, ping_info())) +
          b"".join(frame(header(1, m, match=5, portal=51)) for m in selftest()) + noop(3, 9) + frame(header(0, match=3)))


def ib(kind, body, o, stamp=3, nob=None):
    return struct.pack(o + "IHBBIIQQQQ", 0x0be91b91, 0x12, kind, 2, nob or 48 + len(body), 0, OA, stamp, OB, 4) + body


def ib_messages(o):
    cookie, frags = struct.pack("<Q", 0x1122334455667788), struct.pack(o + "IQIQ", 4096, 1 << 40, 100, 2 << 40)
    small = header(1, b"x" * 100, OA, OB, match=8, portal=9)
    return [ib(0xd0, b"", o), ib(0xd1, small, o), ib(0xd2, header(1, b"", OA, OB) + cookie, o),
            ib(0xd3, cookie + struct.pack(o + "i", -5), o), ib(0xd4, cookie + cookie + struct.pack(o + "II", 0xabc, 2) + frags, o),
            ib(0xd5, cookie + struct.pack(o + "i", 4096), o),
            ib(0xd6, header(2, b"", OA, OB) + cookie + struct.pack(o + "II", 0xabc, 2) + frags, o),
            ib(0xd7, cookie + struct.pack(o + "i", 17), o)]


# ---------------------------------------------------------------- checks

def compare(path, *options):
    """With the C decoders."""
    listing = os.path.join(TMP.name, "fields")
    subprocess.run([GOLDEN_FIELDS, listing, path], stdout=subprocess.DEVNULL, check=True)
    with open(listing, encoding="ascii") as f:
        parts = [json.loads(line) for line in f]
    packets = tshark(LUA, path, *options)
    units, _, _ = compare_file(parts, packets)
    return units, [u for list_ in units_of(packets).values() for u in list_]


def expect(got, want):
    if got != want:
        raise Mismatch(f"{got}, not {want}")


UNITS = 9 + len(LST) + 2  # in STREAM


def test_segments():
    rng = random.Random(1)
    for cuts in ([], range(1, len(STREAM)), sorted(rng.sample(range(1, len(STREAM)), 40)), [16], [20, 21, 70]):
        if len(cuts) > 1000:
            cuts = [*range(1, 400), *range(9000, 9200), *range(12000, 12100)]
        units, shown = compare(save("segments", stream(STREAM, cuts)))
        expect((units, [u.faults for u in shown if u.faults]), (UNITS, []))


def test_two_passes():
    path = save("passes", stream(STREAM, [30, 300, 700, 9000])[2:])
    once, twice = units_of(tshark(LUA, path)), units_of(tshark(LUA, path, "-2"))
    expect([(dict(u.fields), u.faults) for u in sum(once.values(), [])], [(dict(u.fields), u.faults) for u in sum(twice.values(), [])])


def test_middle():
    """The begin is missing: what cannot be decoded says so, and the frames from the next segment on are there."""
    begin = len(request() + hello())
    for lost, size in ((begin, 96), (begin + 40, 56)):
        units, shown = compare(save("middle", stream(STREAM[lost:], [size], syn=False)))
        texts = [text for u in shown for _, text in u.faults]
        expect(units, UNITS - 2 - (lost > begin))
        expect(any("inferred" in t for t in texts), True)
        expect(any("in the middle" in t for t in texts), lost > begin)
        expect([u.malformed for u in shown if u.malformed], [])


def test_lost_segment():
    packets = stream(STREAM, [72, 168, 400, 900, 9000])
    del packets[4]
    shown = units_of(tshark(LUA, save("lost", packets), "-o", "tcp.reassemble_out_of_order:FALSE"))
    texts = [text for u in sum(shown.values(), []) for _, text in u.faults]
    expect(any("not captured" in t for t in texts), True)
    expect(any(u.malformed for u in sum(shown.values(), [])), False)


def test_other_port():
    here = units_of(tshark(LUA, save("here", stream(STREAM, [100]))))
    there = units_of(tshark(LUA, save("there", stream(STREAM, [100], port=7988)), "-o", "socklnd.ports:988,7000-7988"))
    expect([dict(u.fields) for u in sum(there.values(), [])], [dict(u.fields) for u in sum(here.values(), [])])
    expect(sum(units_of(tshark(LUA, save("there", stream(STREAM, [], port=7988)))).values(), []), [])


def test_swapped_request_and_ping():
    """A request, a ping info and selftest messages of a big-endian node, in a stream that Millrace reads."""
    data = request(">") + hello() + frame(header(1, ping_info(">"), handle=(2 ** 64 - 1,) * 2)) + b"".join(
        frame(header(1, m, match=5, portal=51)) for m in selftest(">"))
    units, shown = compare(save("orders", stream(data, [50])))
    expect(units, 3 + 18)
    expect([u.malformed for u in shown if u.malformed], [])


def test_swapped_hello():
    """A kernel node takes a HELLO and frames of the other order. Millrace does not, so the same stream in our order is the measure."""
    shown = []
    for o in "<>":
        data = request(o) + hello(o) + noop(0, 7, o=o) + frame(header(2, rest=(0, 272)), o) + frame(PUT8, o, (4, 0))
        units = sum(units_of(tshark(LUA, save("hello", stream(data, [90])))).values(), [])
        shown.append([{k: v for k, v in u.fields.items() if k != "socklnd.big_endian"} for u in units])
        expect((len(units), sum("socklnd.big_endian" in u.fields for u in units)), (5, 5 if o == ">" else 0))
        expect([u.faults for u in units if u.faults], [])
    expect(shown[1], shown[0])


def test_o2iblnd():
    """Every message and every private data, in both byte orders."""
    packets = []
    for o in "<>":
        params = struct.pack(o + "HHI", 8, 257, 4096)
        reject = struct.pack(o + "IHBxQHHI", 0x0be91b91, 0x12, 5, 99, 8, 257, 4096)
        packets += [cm(0x10, ib(0xc0, params, o)), cm(0x13, ib(0xc1, params, o)), cm(0x12, reject, 28),
                    *(rdma(4, m) for m in ib_messages(o))]
    units, shown = compare(save("ib", packets))
    expect((units, len(shown)), (22, 22))
    expect([u.faults for u in shown if u.faults], [])


def test_send_in_parts():
    """A message in three packets, the second of them twice, is shown once, as the same message in one packet is."""
    for o in "<>":
        message = ib(0xd1, header(1, bytes(range(250)) * 8, OA, OB, match=8, portal=9), o)
        parts = [rdma(0, message[:1024], 5), rdma(1, message[1024:2048], 6), rdma(1, message[1024:2048], 6), rdma(2, message[2048:], 7)]
        units, shown = compare(save("one", [rdma(4, message)]))
        expect((units, len(shown)), (1, 1))
        whole = [u for u in sum(units_of(tshark(LUA, save("parts", parts))).values(), []) if u.fields]
        expect([dict(u.fields) for u in whole], [dict(shown[0].fields)])


def kfi(kind, version, body, o):
    return struct.pack(o + "IHBBHHQQ", 0xdeadbeef, version, kind, 0, 28 + len(body), 0, NK1, NK2) + body


NK1, NK2 = nid4("0.0.4.210", 16), nid4("0.0.0.7", 16, 3)


def test_kfilnd():
    """Nothing in Millrace decodes kfilnd, and no kernel was recorded: the values are those that the messages are made from."""
    options = ("-o", 'uat:user_dlts:"User 0 (DLT=147)","kfilnd","0","","0",""')
    put, get = header(1, b"", NK1, NK2, match=6, portal=7), header(2, b"", NK1, NK2, match=6, portal=7)
    for o in "<>":
        hello_body = struct.pack(o + "HHIH", 2, 3, 0x01020304, 1)
        bulk = struct.pack(o + "IH", 9, 0x55)
        made = [kfi(4, 0, hello_body, o), kfi(5, 0, hello_body, o), kfi(1, 1, header(1, b"abcd", NK1, NK2, match=6, portal=7), o),
                kfi(2, 1, put + bulk, o), kfi(3, 2, get + bulk + struct.pack(o + "I", 0xaabb), o)]
        units = sum(units_of(tshark(LUA, save("kfi", made, USER0), *options)).values(), [])
        expect(len(units), len(made))
        key = {"kfilnd.response_rx": [9], "kfilnd.key": [0x55]}
        rest = [{"kfilnd.hello_version": [2], "kfilnd.rx_base": [3], "kfilnd.session_key": [0x01020304], "kfilnd.rx_count": [1]}] * 2 + \
            [{"lnetmsg.payload": ["61626364"]}, key, {**key, "kfilnd.session_key": [0xaabb]}]
        for kind, version, unit, more, raw in zip((4, 5, 1, 2, 3), (0, 0, 1, 1, 2), units, rest, made):
            expect(unit.faults, [])
            want = {"kfilnd.type": kind, "kfilnd.version": version, "kfilnd.nob": len(raw), "kfilnd.cksum": 0, "kfilnd.reserved": 0,
                    "kfilnd.magic": 0xdeadbeef, "kfilnd.src_nid": "1234@kfi", "kfilnd.dst_nid": "7@kfi3"}
            if kind < 4:
                want |= {"lnetmsg.dest_nid": "7@kfi3", "lnetmsg.src_nid": "1234@kfi", "lnetmsg.dest_pid": PID + 1, "lnetmsg.src_pid": PID,
                         "lnetmsg.type": 2 if kind == 3 else 1, "lnetmsg.payload_length": 4 if kind == 1 else 0,
                         "lnetmsg.handle_interface": 7, "lnetmsg.handle_object": 9, "lnetmsg.match_bits": 6, "lnetmsg.portal": 7,
                         **({"lnetmsg.src_offset": 0, "lnetmsg.sink_length": 0} if kind == 3 else
                            {"lnetmsg.hdr_data": 0, "lnetmsg.offset": 0})}
            if o == ">":
                want["kfilnd.big_endian"] = 1
            compare_unit([(k, v) for k, vs in more.items() for v in vs] + list(want.items()), unit)


def test_bad_kfilnd_and_o2iblnd():
    """Each rule of a message broken once is marked."""
    options = ("-o", 'uat:user_dlts:"User 0 (DLT=147)","kfilnd","0","","0",""')
    hello_body = struct.pack("<HHIH", 2, 3, 4, 1)
    bad = [kfi(6, 1, hello_body, "<"), kfi(4, 1, hello_body, "<"), kfi(1, 3, header(1), "<"), kfi(2, 2, header(1) + bytes(6), "<"),
           kfi(4, 0, hello_body, "<")[:-1], kfi(1, 1, header(1, b"abcd")[:-1], "<")]
    units = sum(units_of(tshark(LUA, save("kfi", bad, USER0), *options)).values(), [])
    expect([bool(u.malformed) for u in units], [True] * len(bad))
    good = ib_messages("<")
    bad = [good[1][:-4], good[1][:6] + b"\xd9" + good[1][7:], good[2][:8] + b"\x30" + good[2][9:], good[1][:4] + b"\x13" + good[1][5:],
           good[4][:68] + bytes(4) + good[4][72:], good[4][:68] + b"\x03" + good[4][69:], good[1][:48 + 24] + b"\x05" + good[1][48 + 25:]]
    for message in bad:
        units, shown = compare_refused(save("bad", [rdma(4, message)]))
        expect((units, bool(shown and any(u.malformed for u in shown))), (0, True))


def compare_refused(path):
    """Units that the C decoders accept, and those that the dissector shows."""
    listing = os.path.join(TMP.name, "fields")
    subprocess.run([GOLDEN_FIELDS, listing, path], stdout=subprocess.DEVNULL, check=True)
    with open(listing, encoding="ascii") as f:
        parts = [json.loads(line) for line in f]
    return (sum(u[0][0] != "refused" for p in parts for u in p["units"]),
            sum(units_of(tshark(LUA, path)).values(), []))


def test_short_captures():
    """Packets of which the capture kept little: no message is called malformed for it."""
    for snap in (60, 70, 78, 100, 140, 180):
        packets = stream(STREAM, [16, 72, 168, 400]) + [rdma(4, m) for m in ib_messages("<")]
        for unit in sum(units_of(tshark(LUA, save("short", packets, snap=snap))).values(), []):
            expect(unit.malformed, [])


def damaged(packets, rng):
    """Headers of Ethernet and IP stay; of the rest bytes change, and some packets end early."""
    for p in packets:
        p = bytearray(p)
        at = 54 if p[12:14] == b"\x08\x00" else 74
        for _ in range(rng.choice((0, 1, 1, 2, 8))):
            if len(p) > at:
                where = rng.randrange(at, min(len(p), at + 200))
                p[where] = rng.choice((0, 1, 0x7f, 0x80, 0xff, rng.randrange(256)))
        yield bytes(p[:rng.randrange(at, len(p) + 1)]) if len(p) > at and rng.random() < 0.1 else bytes(p)


def test_damage():
    """Changed bytes and short packets, decoded in two passes as in the graphical program: no error of the script."""
    seed = int(os.environ.get("MILLRACE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10 ** 9)
    print(f"seed {seed}")
    rng = random.Random(seed)
    packets = stream(STREAM, sorted(rng.sample(range(1, len(STREAM)), 60))) + [rdma(4, m) for o in "<>" for m in ib_messages(o)] * 3
    for path in RECORDINGS:
        packets += load(unpack(path, os.path.join(TMP.name, "recording")))[:400]
    mixed = [p for _ in range(3) for p in damaged(packets, rng)]
    shown = units_of(tshark(LUA, save("damage", mixed), "-2"))
    expect(any(u.malformed for u in sum(shown.values(), [])), True)
    hello_body = struct.pack("<HHIH", 2, 3, 4, 1)
    made = [kfi(4, 0, hello_body, "<"), kfi(1, 1, header(1, b"abcd"), ">"), kfi(3, 2, header(2) + bytes(10), "<")]
    options = ("-2", "-o", 'uat:user_dlts:"User 0 (DLT=147)","kfilnd","0","","0",""')
    mixed = []
    for p in made * 100:
        p = bytearray(p)
        p[rng.randrange(4, len(p))] = rng.randrange(256)
        mixed.append(bytes(p[:rng.randrange(1, len(p) + 1)]) if rng.random() < 0.2 else bytes(p))
    tshark(LUA, save("damage", mixed, USER0), *options)


def main():
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            said = io.StringIO()
            try:
                with contextlib.redirect_stdout(said):
                    test()
                print(f"PASS {name}", flush=True)
            except (Mismatch, LookupError, ValueError, subprocess.SubprocessError) as e:
                failed += 1
                print(f"FAIL {name}: {said.getvalue().strip()} {str(e)[:2000]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
