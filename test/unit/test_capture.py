#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""`millrace capture` against a daemon of paper: the file is pcapng, by a reader of our own and by tshark where it is installed.

usage: test_capture.py MILLRACE

Exits non-zero at the first failure.
"""

import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fake_daemon import FakeDaemon, Refusal  # noqa: E402

MILLRACE = os.path.abspath(sys.argv[1])
DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
TIME = 1_700_000_000_123_456_789


def frame(payload):
    """TCP over IPv4 from 10.0.0.2:1023 to 10.0.0.1:988, its payload not captured."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + payload, 1, 0, 64, 6, 0, bytes((10, 0, 0, 2)), bytes((10, 0, 0, 1)))
    return bytes(12) + b"\x08\x00" + ip + struct.pack("!HHIIBBHHH", 1023, 988, 7, 9, 0x50, 0x10, 512, 0, 0)


PACKETS = [
    {"time_ns": TIME, "port": "eth0", "direction": "in", "length": 54 + 100, "data": frame(100).hex()},
    {"time_ns": TIME + 1000, "port": "eth1", "direction": "out", "length": 54, "data": frame(0).hex()},
    {"time_ns": TIME + 2000, "port": "eth0", "direction": "in", "drop": "tcp_paws", "length": 54, "data": frame(0).hex()},
    {"time_ns": TIME + 3000, "port": "eth0", "direction": "in", "length": 17, "data": (frame(0)[:17]).hex()},
]
NOT_PACKETS = [{}, {"data": "0"}, {"data": "zz", "length": 1, "time_ns": 1}, {"data": "00", "length": 0, "time_ns": 1},
               {"data": "00", "length": 1, "time_ns": -1}, "x", None, {"data": "00" * 70000, "length": 70000, "time_ns": 1}]


def read_options(data, order):
    """Code and value of each, up to the end."""
    at, found = 0, []
    while at < len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        at += 4
        if code == 0:
            break
        found.append((code, data[at:at + size]))
        at += (size + 3) & ~3
    assert at == len(data), "options do not fill their block"
    return found


def read_pcapng(data):
    """Names of interfaces, and packets: (interface, time in ns, flags, comment, length, bytes)."""
    assert data[:4] == b"\x0a\x0d\x0d\x0a"
    order = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}[data[8:12]]
    at, names, packets = 0, [], []
    while at < len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        assert size % 4 == 0 and size >= 12 and struct.unpack_from(order + "I", data, at + size - 4) == (size,)
        body = data[at + 8:at + size - 4]
        if kind == 0x0a0d0d0a:
            assert struct.unpack_from(order + "IHHq", body) == (0x1a2b3c4d, 1, 0, -1)
            assert read_options(body[16:], order)[0][1].startswith(b"millrace ")
        elif kind == 1:
            options = dict(read_options(body[8:], order))
            assert struct.unpack_from(order + "HHI", body)[0] == 1, "not Ethernet"
            assert options[9] == b"\x09", "times are not in ns"
            names.append(options[2].decode())
        else:
            assert kind == 6
            index, high, low, caplen, length = struct.unpack_from(order + "5I", body)
            options = dict(read_options(body[20 + ((caplen + 3) & ~3):], order))
            packets.append((names[index], high << 32 | low, struct.unpack(order + "I", options[2])[0],
                            options.get(1, b"").decode(), length, body[20:20 + caplen]))
        at += size
    return names, packets


def capture(*args, pages=None, status=0, refuse=False):
    """Output, messages, and what the daemon was asked."""
    asked, rest = [], list(pages if pages is not None else [PACKETS])

    def answer(method, params):
        asked.append((method, params))
        if method == "capture_start":
            if refuse:
                raise Refusal({"code": -19, "message": "there are no ports"})
            return {"id": "abc"}
        assert params == {"id": "abc"}, params
        if method == "capture_stop":
            return {"captured": 4, "missed": 2}
        assert method == "capture_get"
        page = rest.pop(0)
        return {"packets": page, "captured": 4, "missed": 2, "ended": not rest}
    fake = FakeDaemon(os.path.join(DIR.name, "sock"), answer)
    p = fake.serve(lambda: subprocess.run([MILLRACE, "-s", fake.path, "capture", *args], capture_output=True, timeout=60))
    assert p.returncode == status, f"{args} ended with {p.returncode}: {p.stderr}"
    return p.stdout, p.stderr.decode(), asked


def check(data):
    names, packets = read_pcapng(data)
    assert names == ["eth0", "eth1"], names
    want = [(p["port"], p["time_ns"], 1 if p["direction"] == "in" else 2, f"dropped: {p['drop']}" if "drop" in p else "",
             p["length"], bytes.fromhex(p["data"])) for p in PACKETS]
    assert packets == want, packets


def test_output():
    out, err, asked = capture()
    check(out)
    assert err == "4 packets, 2 missed\n", err
    assert [m for m, _ in asked] == ["capture_start", "capture_get", "capture_stop"], asked
    out, _, asked = capture(pages=[PACKETS[:1], [], PACKETS[1:2] + NOT_PACKETS, PACKETS[2:]])
    check(out)


def test_file():
    path = os.path.join(DIR.name, "x.pcapng")
    out, _, asked = capture("-w", path, "-p", "eth0", "--peer", "10.0.0.2@tcp", "--reason", "any", "--snap", "96", "-c", "9")
    assert out == b""
    with open(path, "rb") as f:
        check(f.read())
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, "others may read it"
    assert asked[0] == ("capture_start", {"port": "eth0", "peer": "10.0.0.2@tcp", "reason": "any", "snap": 96, "packets": 9}), asked


def test_failures():
    out, err, asked = capture(status=1, refuse=True)
    assert "no ports" in err and len(asked) == 1, (err, asked)
    names, packets = read_pcapng(out)
    assert not names and not packets
    _, err, asked = capture("-w", "/nowhere/x", status=3)
    assert "cannot write /nowhere/x" in err and not asked, err


def test_tshark():
    if not shutil.which("tshark"):
        return "tshark is not installed"
    path = os.path.join(DIR.name, "t.pcapng")
    capture("-w", path)
    p = subprocess.run(["tshark", "-r", path, "-T", "fields", "-E", "separator=|", "-e", "frame.interface_name", "-e", "frame.time_epoch",
                        "-e", "frame.len", "-e", "frame.cap_len", "-e", "frame.comment", "-e", "ip.src", "-e", "tcp.dstport",
                        "-e", "frame.packet_flags_direction"], capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split("|") for line in p.stdout.splitlines()]
    assert len(rows) == 4, p.stdout + p.stderr
    assert rows[0][:4] == ["eth0", "1700000000.123456789", "154", "54"], rows[0]
    assert rows[0][5:7] == ["10.0.0.2", "988"] and int(rows[0][7], 0) == 1, rows[0]
    assert rows[1][0] == "eth1" and int(rows[1][7], 0) == 2, rows[1]
    assert rows[2][4] == "dropped: tcp_paws", rows[2]
    return None


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            skipped = test()
            print(f"skip {name}: {skipped}" if skipped else f"ok {name}")


if __name__ == "__main__":
    main()
