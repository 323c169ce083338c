# SPDX-License-Identifier: BSD-3-Clause
"""The same random conversations over our TCP and over Linux's, through the same link with faults: the same bytes arrive and
both ends end alike. The far end is Linux's in both."""

import asyncio
import os
import random
import subprocess

from lnetpy.env import Skip
from lnetpy.scene import cases, deadline, only

LEFT, RIGHT = "10.0.0.1", "10.0.0.2"

LINKS = {
    "clean": {},
    "loss": {"loss": 20000},
    "delay": {"delay_us": 10000, "jitter_us": 4000},
    "reordering": {"reorder": 50000, "reorder_us": 3000},
    "everything": {"loss": 10000, "duplicate": 10000, "corrupt": 5000, "reorder": 20000, "reorder_us": 2000, "delay_us": 1000},
}


def conversation(rng):
    """Operations of both ends, and how each must see the end; every read is of what the other will have written."""
    a, b, sent = [], [], {"a": 0, "b": 0}

    def write(who, n):
        (a if who == "a" else b).append(f"w {n}")
        sent[who] += n

    def read(who):
        (a if who == "a" else b).append(f"r {sent['b' if who == 'a' else 'a']}")

    def size():
        return rng.choice([1, 2, 535, 536, 1447, 1448, 1449, 4096, 65535, 65536, rng.randrange(1, 300000)])

    for _ in range(rng.randrange(2, 7)):
        one, other = rng.choice([("a", "b"), ("b", "a")])
        what = rng.randrange(5)
        if what == 0:       # both at once, as much as finds room between them
            write("a", rng.randrange(1, 30000))
            write("b", rng.randrange(1, 30000))
            read("a")
            read("b")
            continue
        if what == 1:       # the reader looks away meanwhile
            (b if other == "b" else a).append(f"s {rng.randrange(1, 300)}")
        for _ in range(rng.randrange(1, 5) if what == 2 else 1):
            write(one, size())
            if what == 3:
                (a if one == "a" else b).append(f"s {rng.randrange(1, 50)}")
        read(other)
    # All that was sent has been read, and the one that ends knows it.
    one, other = rng.choice([("a", "b"), ("b", "a")])
    write(other, 1)
    read(one)
    ends = {"a": a, "b": b}
    how = rng.randrange(3)
    if how == 0:
        ends[one].append("f")
        ends[other].append("e")
        words = {one: "closed", other: "eof"}
    elif how == 1:
        ends[one].append("a")
        # A RST is sent once and may be lost. Who sends after that hears another one. When the abort comes is not known: what
        # leads to it may have been lost too.
        ends[other] += ["s 400", "w 1"] * 10 + ["e"]
        words = {one: "aborted", other: "reset"}
    else:
        write(one, rng.randrange(1, 200000))
        ends[one].append("f")
        read(other)
        ends[other].append("e")
        words = {one: "closed", other: "eof"}
    return a, b, sent, words


def script(seed, count):
    """Lines for both ends, and what each must print of bytes and ends: {port: (bytes, end)}."""
    rng, lines, want = random.Random(seed), ([], []), ({}, {})
    for i in range(count):
        port = 2000 + i
        a, b, sent, words = conversation(rng)
        calls = rng.choice("ab")
        lines[0].append(f"{'connect' if calls == 'a' else 'listen'} {port} {' '.join(a)}\n")
        lines[1].append(f"{'connect' if calls == 'b' else 'listen'} {port} {' '.join(b)}\n")
        want[0][port], want[1][port] = (sent["b"], words["a"]), (sent["a"], words["b"])
    return ["".join(x) for x in lines], want


class Program:
    def __init__(self, env, host, argv, text=""):
        self.name = f"{os.path.basename(argv[0])} of {host}"
        self.proc = env.fabric.host(host).popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.say(text)

    def say(self, text):
        self.proc.stdin.write(text.encode())
        self.proc.stdin.flush()

    async def line(self, timeout=20):
        raw = await asyncio.wait_for(asyncio.to_thread(self.proc.stdout.readline), timeout)
        if not raw:
            raise AssertionError(f"{self.name} ended with {self.proc.wait()}")
        return raw.decode().strip()

    async def ready(self):
        said = []
        while (line := await self.line()) != "ready":
            said.append(line)
            assert len(said) < 50, f"{self.name}: {said}"
        return self

    def kill(self):
        self.proc.kill()
        self.proc.wait()


async def talk(env, build, transport, rules, seed, count, seconds):
    """Runs the conversations; what both ends print: {port: (bytes, crc, end)}."""
    name = {"port": "p", "kernel": "k"}[transport]      # hosts of its own
    a, b, between = f"{name}a", f"{name}b", f"{name}l"
    env.fabric.attach(a, f"{name}left", "eth0", *([f"{LEFT}/24"] if transport == "kernel" else []))
    env.fabric.attach(between, f"{name}left", "left")
    env.fabric.attach(between, f"{name}right", "right")
    env.fabric.attach(b, f"{name}right", "eth0", f"{RIGHT}/24")
    programs = []
    try:
        link = Program(env, between, [f"{build}/test/system/programs/link", "left", "right",
                                      *(f"{k}={v}" for k, v in rules.items()), f"seed={seed}"] if rules else
                       [f"{build}/test/system/programs/link", "left", "right"])
        programs.append(await link.ready())
        texts, _ = script(seed, count)
        out = []
        for host, mine, theirs, text, own in ((b, RIGHT, LEFT, texts[1], False), (a, LEFT, RIGHT, texts[0], transport == "port")):
            p = Program(env, host, [f"{build}/test/system/programs/diff_end", *(["-p"] if own else []), "-l", mine, "-r", theirs,
                                    "-t", str(seconds)], text + ".\n")
            programs.append(await p.ready())
        for p in programs[1:]:
            p.say("go\n")
        for p in (programs[2], programs[1]):
            rows = {}
            for _ in range(count):
                port, size, crc, end = (await p.line(seconds + 10)).split()
                rows[int(port)] = (int(size), crc, end)
            out.append(rows)
        return out
    finally:
        for p in programs:
            p.kill()


@only("port")
@deadline(120)
@cases(*LINKS)
async def test_same_end(env, link):
    build = env.build
    if not os.access(f"{build}/test/system/programs/diff_end", os.X_OK):
        raise Skip("the programs of test/system are not built")
    count = 60 if env.long else 20
    _, want = script(len(link), count)
    runs = {}
    for transport in ("kernel", "port"):
        runs[transport] = await talk(env, build, transport, LINKS[link], len(link), count, 40)
    for side in (0, 1):
        for port, (size, end) in want[side].items():
            ours, linux = runs["port"][side][port], runs["kernel"][side][port]
            assert linux[0] == size and linux[2] == end, f"the script itself: connection {port}: {linux}, expected {size} {end}"
            assert ours == linux, f"connection {port}, {'left' if side == 0 else 'right'} end: {ours}, over Linux's TCP {linux}"
    env.result(f"{count} connections, {sum(n for n, _ in want[0].values())} and {sum(n for n, _ in want[1].values())} bytes")
