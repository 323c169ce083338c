#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""JSON-RPC 2.0 of the running daemon, through sockets on which every byte is the test's own.

usage: test_rpc_conformance.py MILLRACED
"""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from own_port import own_port  # noqa: E402

DEADLINE = 60.0     # for what takes milliseconds on an idle machine
HELD_UP = 20.0      # that too; who waits for a client that does not read would wait for 30 s, until it is cut off
MAX_REQUEST = 1 << 20
CALLS_IN_BATCH = 64
PLACES, MORE = 64, 8

DIR = tempfile.TemporaryDirectory(prefix="millrace-test-")
SOCKET = os.path.join(DIR.name, "sock")
CONFIG = """
net:
  - net type: tcp
    local NI(s): [{{nid: 127.0.0.5@tcp}}]
route: [{routes}]
routing: {{enable: 1}}
buffers: {{tiny: 16, small: 16, large: 2}}
millrace: {{reactors: 1, max_peers: 64, accept_port: {port}, rpc: {{socket: {socket}, mode: "0600"}}}}
"""


class Daemon:
    def __init__(self, program):
        path = os.path.join(DIR.name, "config.yaml")
        routes = ", ".join(f"{{net: o2ib{i}, gateway: 127.0.0.9@tcp}}" for i in range(1, 301))
        with open(path, "w", encoding="utf-8") as f:
            f.write(CONFIG.format(port=own_port("127.0.0.5"), socket=SOCKET, routes=routes))
        self.log = open(os.path.join(DIR.name, "log"), "w+", encoding="utf-8")
        self.proc = subprocess.Popen([program, "-c", path], stderr=self.log)
        end = time.monotonic() + DEADLINE
        while True:
            assert self.proc.poll() is None, f"ended with {self.proc.returncode}: {self.text()}"
            assert time.monotonic() < end, "not ready"
            try:
                with Client() as c:
                    assert c.ask("version")["result"]["program"] == "millraced"
                    return
            except (FileNotFoundError, ConnectionRefusedError):
                select.select([], [], [], 0.01)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        with Client() as c:
            c.ask("shutdown", {"drain": 0})
        try:
            code = self.proc.wait(DEADLINE)
        finally:
            self.proc.kill()
        assert code == 0, f"ended with {code}: {self.text()}"


class Client:
    """A connection; lines are what came, as JSON."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        try:
            self.sock.connect(SOCKET)
        except OSError:
            self.sock.close()
            raise
        self.buf = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else json.dumps(data).encode())

    def line(self):
        """The next line as JSON; None: the stream ended, in order."""
        while b"\n" not in self.buf:
            got = self.sock.recv(65536)
            if not got:
                assert not self.buf, f"ended within a line: {self.buf[:200]}"
                return None
            self.buf += got
        line, _, self.buf = self.buf.partition(b"\n")
        return json.loads(line)

    def nothing_more(self):
        """Nothing came that was not asked for: the answer to a marker is the next line."""
        marker = self.ask("version", id="marker")
        assert marker["id"] == "marker" and "result" in marker, marker

    def ask(self, method, params=None, id=1):
        self.send(call(method, params, id))
        return self.line()


def call(method, params=None, id=1):
    request = {"jsonrpc": "2.0", "method": method, "id": id}
    if params is not None:
        request["params"] = params
    return request


def code(response):
    assert response["jsonrpc"] == "2.0" and set(response) == {"jsonrpc", "error", "id"}, response
    return response["error"]["code"]


PARSE, INVALID, NO_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602

# The examples of the specification's last section, with methods there are. None: no answer; an integer: that error, id null.
ROUTE = {"route": [{"net": "o2ib7", "gateway": "127.0.0.9@tcp", "hop": -1, "priority": 0, "state": "down", "type": "multi-hop",
                    "millrace": {"gateway_health": 0}}]}
EXAMPLES = [
    ('{"jsonrpc": "2.0", "method": "route_get", "params": ["o2ib7", "127.0.0.9@tcp"], "id": 1}', (ROUTE, 1)),
    ('{"jsonrpc": "2.0", "method": "route_get", "params": {"gateway": "127.0.0.9@tcp", "net": "o2ib7"}, "id": 3}', (ROUTE, 3)),
    ('{"jsonrpc": "2.0", "method": "route_get", "params": {"net": "o2ib7", "gateway": "127.0.0.9@tcp"}, "id": 4}', (ROUTE, 4)),
    ('{"jsonrpc": "2.0", "method": "route_get", "params": ["o2ib7"]}', None),
    ('{"jsonrpc": "2.0", "method": "foobar"}', None),
    ('{"jsonrpc": "2.0", "method": "foobar", "id": "1"}', (NO_METHOD, "1")),
    ('{"jsonrpc": "2.0", "method": 1, "params": "bar"}', INVALID),
    ('[]', INVALID),
    ('[1]', [INVALID]),
    ('[1,2,3]', [INVALID, INVALID, INVALID]),
    ('[{"jsonrpc": "2.0", "method": "route_get", "params": ["o2ib7"], "id": "1"},'
     '{"jsonrpc": "2.0", "method": "version"},'
     '{"jsonrpc": "2.0", "method": "route_get", "params": ["o2ib9999x"], "id": "2"},'
     '{"foo": "boo"},'
     '{"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},'
     '{"jsonrpc": "2.0", "method": "admission_get", "id": "9"}]',
     [(ROUTE, "1"), (BAD_PARAMS, "2"), INVALID, (NO_METHOD, "5"), ({"egress_share": 50, "buffer_wait": 10}, "9")]),
    ('[{"jsonrpc": "2.0", "method": "version"}, {"jsonrpc": "2.0", "method": "route_get", "params": [7]}]', None),
]


def check(got, want):
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), got
        for g, w in zip(got, want):
            check(g, w)
    elif isinstance(want, int):
        assert code(got) == want and got["id"] is None, got
    elif isinstance(want[0], int):
        assert code(got) == want[0] and got["id"] == want[1], got
    else:
        for route in got["result"].get("route", []) if "result" in got else []:
            route["state"] = "down"     # so it is once the gateway has been dialled, which takes its time
            route["millrace"]["gateway_health"] = 0     # falls as long as the gateway is not there
        assert got == {"jsonrpc": "2.0", "result": want[0], "id": want[1]}, got


def test_specification():
    with Client() as c:
        for text, want in EXAMPLES:
            c.send(text.encode())
            if want is not None:
                check(c.line(), want)
            c.nothing_more()
    # Of these two it cannot be told where the next request begins: the answer, then the end
    for text in ('{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]',
                 '[{"jsonrpc": "2.0", "method": "version", "id": "1"},{"jsonrpc": "2.0", "method"]'):
        with Client() as c:
            c.send(text.encode())
            c.sock.shutdown(socket.SHUT_WR)
            check(c.line(), PARSE)
            assert c.line() is None


def test_fragments():
    """Byte by byte, and in pieces of every small size; with white space anywhere."""
    with Client() as c:
        for text, want in EXAMPLES:
            for b in text.encode():
                c.send(bytes([b]))
            if want is not None:
                check(c.line(), want)
        c.nothing_more()
        text = (" \r\n\t" + json.dumps(call("route_get", ["o2ib7"]), indent=3) + "\n\n").encode()
        for size in range(1, 30):
            for at in range(0, len(text), size):
                c.send(text[at:at + size])
            check(c.line(), (ROUTE, 1))
        c.nothing_more()


def test_pipelined():
    """Many requests at once, without anything between them: each is answered once."""
    with Client() as c:
        n = 3000
        data = b"".join(json.dumps(call("version" if i % 3 else "nothing", id=i)).encode() for i in range(n))
        seen = {}
        c.sock.setblocking(False)
        end = time.monotonic() + DEADLINE
        while len(seen) < n:
            assert time.monotonic() < end
            r, w, _ = select.select([c.sock], [c.sock] if data else [], [], 1)
            if w:
                data = data[c.sock.send(data[:100000]):]
            if r:
                c.buf += c.sock.recv(65536)
            *lines, c.buf = c.buf.split(b"\n")
            for line in map(json.loads, lines):
                assert line["id"] not in seen, line
                seen[line["id"]] = line
        assert sorted(seen) == list(range(n))
        assert all(("error" if i % 3 == 0 else "result") in seen[i] for i in seen)


def test_ids():
    with Client() as c:
        for id in (0, -1, 2**63 - 1, -2**63, 1.5, -1e300, "", "x" * 10000, "\0", "é\U0001f600", None):
            check(c.ask("admission_get", id=id), ({"egress_share": 50, "buffer_wait": 10}, id))
        for id in (True, [], {}, [1]):
            check(c.ask("admission_get", id=id), INVALID)
        check(c.ask("version", id=2**63), INVALID)      # could not be given back as it was
        c.send(b'{"jsonrpc":"2.0","method":"version","id":1e999}')
        check(c.line(), PARSE)
        # Twice the same id, one answer to each, in a batch and beside each other
        c.send(json.dumps(call("version", id=7)).encode() + json.dumps(call("nothing", id=7)).encode())
        assert {("result" in a, a["id"]) for a in (c.line(), c.line())} == {(True, 7), (False, 7)}
        c.send([call("version", id=7), call("version", id=7)])
        assert [a["id"] for a in c.line()] == [7, 7]
        # Twice the same key is no JSON of ours
        c.send(b'{"jsonrpc":"2.0","method":"version","id":1,"id":2}')
        check(c.line(), PARSE)
        c.nothing_more()


def test_invalid_utf8():
    """Bytes that are no UTF-8: a parse error, and as the frame is whole the connection goes on."""
    bad = [b"\xff", b"\xc0\x80", b"\xc3", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\x80"]
    with Client() as c:
        for b in bad:
            for where in (b'{"jsonrpc":"2.0","method":"version","id":"%s"}', b'{"jsonrpc":"2.0","method":"%s","id":1}',
                          b'{"%s":1}', b'["%s"]'):
                c.send(where % b)
                check(c.line(), PARSE)
        for text in (b'"\\ud800"', b'"\\udc00\\ud800"', b'["\\x"]', b'[\x01]', b'["\x01"]'):
            c.send(text)
            check(c.line(), PARSE)
        c.nothing_more()


def ends_in_order(data, want=PARSE):
    """Sent whole, though the server refuses it half-way; then the reason, then the end of the stream and no error."""
    with Client() as c:
        c.send(data)
        check(c.line(), want)
        assert c.line() is None
    with Client() as c:     # nobody else noticed
        c.nothing_more()


def test_too_deep():
    for depth in (33, 100, 100000):
        ends_in_order(b"[" * depth + b"]" * depth)
        ends_in_order(b'{"a":' * depth + b"1" + b"}" * depth)
    ends_in_order(b'{"jsonrpc":"2.0","method":"version","id":1,"params":' + b"[" * 100 + b"]" * 100 + b"}")
    with Client() as c:
        depth = 30
        c.send(b'{"jsonrpc":"2.0","method":"route_get","id":1,"params":[' + b"[" * depth + b"]" * depth + b"]}")
        check(c.line(), (BAD_PARAMS, 1))
        c.nothing_more()


def test_too_long():
    frame = json.dumps(call("route_get", {"cursor": ""})).encode()
    at = frame.index(b'""') + 1
    for size, whole in ((MAX_REQUEST - 1000, True), (MAX_REQUEST + 1, False), (3 * MAX_REQUEST, False)):
        data = frame[:at] + b"x" * (size - len(frame)) + frame[at:]
        if whole:
            with Client() as c:
                c.send(data)
                check(c.line(), (BAD_PARAMS, 1))
                c.nothing_more()
        else:
            ends_in_order(data)
    ends_in_order(b" " * (3 * MAX_REQUEST) + b"]")      # white space is no request, however much of it


def test_batches():
    with Client() as c:
        c.send([call("version", id=i) for i in range(CALLS_IN_BATCH)])
        assert [a["id"] for a in c.line()] == list(range(CALLS_IN_BATCH))
        c.send([call("version", id=i) for i in range(CALLS_IN_BATCH + 1)])
        check(c.line(), INVALID)
        # What ends at once and what asks the reactors first come back together
        c.send([call("peer_get", id="slow"), call("version", id="fast"), call("ping", ["127.0.0.5@tcp"], "ping")])
        assert sorted(a["id"] for a in c.line()) == ["fast", "ping", "slow"]
        c.nothing_more()


def test_params():
    with Client() as c:
        for params, want in ((7, INVALID), ("x", INVALID), (None, None), ([None], BAD_PARAMS), ([1, 2, 3, 4, 5, 6, 7], BAD_PARAMS),
                             ({"nett": "tcp"}, BAD_PARAMS), ({"net": "tcp\0"}, BAD_PARAMS), ({"limit": 1.0}, BAD_PARAMS),
                             ({"limit": 0}, BAD_PARAMS), ({"limit": 1 << 70}, BAD_PARAMS), ({"cursor": "x"}, BAD_PARAMS)):
            a = c.ask("route_get", params)
            assert ("result" in a) if want is None else code(a) == want, (params, a)
            if want == BAD_PARAMS:
                assert a["error"]["data"]["errno"] == -22 and a["error"]["data"]["remedy"], a
        c.send(b'{"jsonrpc":"2.0","method":"route_get","id":1,"params":null}')
        check(c.line(), (INVALID, 1))
        # Errors of the methods themselves are outside what JSON-RPC keeps for itself
        a = c.ask("net_get", ["tcp9"])
        assert code(a) == -3 and a["error"]["data"]["name"] == "ESRCH" and a["error"]["data"]["parameter"] == "net", a


def test_pages():
    with Client() as c:
        rows, cursor, pages = [], {}, 0
        while True:
            r = c.ask("route_get", {"limit": 70, **cursor})["result"]
            assert len(r["route"]) <= 70
            rows += [x["net"] for x in r["route"]]
            pages += 1
            if "cursor" not in r:
                break
            cursor = {"cursor": r["cursor"]}
        assert len(rows) == len(set(rows)) == 300 and pages == 5, (len(rows), pages)


def test_ends():
    """A client that has said all it will still hears the answer; one that vanishes disturbs nobody."""
    with Client() as c:
        c.send(call("ping", ["127.0.0.5@tcp"]))
        c.sock.shutdown(socket.SHUT_WR)
        assert "result" in c.line() and c.line() is None
    with Client() as c:
        c.send(b'{"jsonrpc":"2.0","id":1')
        c.sock.shutdown(socket.SHUT_WR)
        check(c.line(), PARSE)
        assert c.line() is None
    for _ in range(200):
        with Client() as c:
            c.send(call("peer_get"))
    with Client() as c:
        c.nothing_more()


def stuff(c):
    """Asks for as much as the socket takes and reads nothing."""
    request = json.dumps(call("rpc.discover")).encode()
    c.sock.setblocking(False)
    data = b""
    quiet = 0
    while quiet < 5:
        data = data or request * 50
        try:
            data = data[c.sock.send(data):]
            quiet = 0
        except BlockingIOError:
            quiet += 1
            select.select([], [c.sock], [], 0.02)


def test_crowd():
    """As many clients as there are places; half of them ask for a lot and never read. The other half is answered in time."""
    clients = [Client() for _ in range(PLACES)]
    deaf, others = clients[:PLACES // 2], clients[PLACES // 2:]
    for c in deaf:
        stuff(c)
    worst = 0
    for _ in range(20):
        for c in others:
            start = time.monotonic()
            assert "result" in c.ask("route_get", ["o2ib7"])
            worst = max(worst, time.monotonic() - start)
    assert worst < HELD_UP, f"an answer took {worst:.3f} s"
    start = time.monotonic()
    for i, c in enumerate(others):      # all at once
        c.send(call("peer_get" if i % 2 else "net_get", id=i))
    for i, c in enumerate(others):
        assert c.line()["id"] == i
    assert time.monotonic() - start < HELD_UP
    # Who runs the daemon has a few places more; they are bounded too, and it is said why
    more = [Client() for _ in range(MORE)]
    for c in more:
        c.nothing_more()
    with Client() as c:
        a = c.line()
        assert code(a) == -32000 and "too many" in a["error"]["message"] and a["error"]["data"]["remedy"], a
        assert c.line() is None
    for c in more + others:
        c.sock.close()
    # One that reads after all gets what it asked for, whole
    c = deaf[0]
    c.sock.settimeout(DEADLINE)
    for _ in range(3):
        assert "result" in c.line()
    for c in deaf:
        c.sock.close()
    with Client() as c:
        c.nothing_more()
    print(f"      the longest answer in the crowd took {worst * 1000:.1f} ms")


def main():
    daemon = Daemon(sys.argv[1])
    with open(sys.argv[1], "rb") as f:
        left_out = ("test_crowd",) if b"__tsan_init" in f.read() else ()
    try:
        for name, test in list(globals().items()):
            if name in left_out:
                print(f"SKIP {name}: under ThreadSanitizer the deaf clients are cut off before it ends")
            elif name.startswith("test_"):
                try:
                    test()
                except BaseException:
                    print(f"FAIL {name}\n{daemon.text()[-2000:]}")
                    raise
                print(f"PASS {name}")
        daemon.stop()
    finally:
        daemon.proc.kill()


if __name__ == "__main__":
    main()
