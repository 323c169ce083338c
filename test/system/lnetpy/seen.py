# SPDX-License-Identifier: BSD-3-Clause
"""What the ends of a test's connections counted, for a test that failed: the kernel's TCP below the personas, and the router's
own TCP with its ports."""

import asyncio
import socket
import struct

# Offsets in struct tcp_info (linux/tcp.h).
TCP_INFO = {"rto": (8, "I"), "unacked": (24, "I"), "lost": (32, "I"), "rtt": (68, "I"), "cwnd": (80, "I"), "resent": (100, "I"),
            "acked": (120, "Q"), "received": (128, "Q"), "notsent": (144, "I"), "rwnd_limited": (176, "Q"), "ooo_in": (224, "I"),
            "snd_wnd": (228, "I")}
ALWAYS = ("rto", "rtt", "acked", "received")
LIMIT = 15      # s, for all of it


def kernel(conn):
    """The kernel's figures of a persona's connection; times in us."""
    info = conn.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256).ljust(256, b"\0")
    found = {name: struct.unpack_from("=" + kind, info, at)[0] for name, (at, kind) in TCP_INFO.items()}
    return counts(found, ALWAYS)


def counts(found, always=()):
    """Those that are not 0."""
    return " ".join(f"{k}={v}" for k, v in found.items() if k in always or isinstance(v, int) and v)


async def _router(r, lines):
    for row in (await r.rpc("tcp_stats_get", LIMIT))["reactors"]:
        lines.append(f"{r.name} reactor {row['reactor']}: {counts(row['tcp'])}")
    for row in (await r.rpc("tcp_get", LIMIT))["tcp"]:
        lines.append(f"{r.name} {row['local']}:{row['lport']} - {row['remote']}:{row['rport']} {row['state']}: {counts(row)}")
    for port in (await r.rpc("port_get", LIMIT, xstats=True))["port"]:
        driver = {k: v for k, v in port["xstats"].items() if "good" in k or "err" in k or "miss" in k or "drop" in k}
        lines.append(f"{r.name} {port['name']}: link {port['link']} {counts(driver)}")
    drops = (await r.rpc("pkt_drops_get", LIMIT))["drops"]
    lines.append(f"{r.name} packets dropped: {counts({d['name']: d['count'] for d in drops})}")


async def seen(env):
    """Lines."""
    lines = []
    for node in env.nodes:
        for conn in node.conns():
            if not conn.closed:
                lines.append(f"{node.name} {conn} queued={conn.queued}: {kernel(conn)}")
    for r in env.routers:
        if getattr(r, "settings", {}).get("ports") and r.proc and r.proc.poll() is None:
            try:
                await asyncio.wait_for(_router(r, lines), LIMIT)
            except Exception as e:      # it may be what the test failed for
                lines.append(f"{r.name}: {type(e).__name__}: {e}")
    return lines
