#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The Wireshark dissector against Millrace's own decoders, field by field, on every recording.

usage: dissect.py GOLDEN_FIELDS MILLRACE_LUA RECORDING...

tshark decodes each recording with the Lua dissector, golden-fields with the C decoders. Both must find the same units in each
direction of each connection, with the same fields of the same values. The C decoders know nothing of lnet_selftest: there the
other side is the table below, after docs/protocol/selftest.md §2. A field that only the dissector shows is either a constant
that the C decoder checked or follows from other fields, and is compared with what it follows from.

One line PASS or FAIL per recording.
"""

import collections
import concurrent.futures
import json
import os
import struct
import subprocess
import sys
import tempfile

LAYERS = ("socklnd", "o2iblnd", "kfilnd")  # each begins a unit
INNER = ("lnetmsg", "lnetping", "lst")     # these belong to the unit before them
SHOWN = "||".join(LAYERS)
# Layers that tshark prints whole. Without TCP and IP a unit could not be told from one of another connection.
PRINTED = " ".join((*LAYERS, *INNER, "ip", "ipv6", "tcp", "infiniband", "_ws.lua.text", "_ws.malformed"))

MAGIC = {"socklnd.req.magic": 0xacce7100, "socklnd.refusal.magic": 0xacce7100, "socklnd.hello.magic": 0x45726963,
         "o2iblnd.magic": 0x0be91b91, "lnetping.magic": 0x70696e67, "lst.magic": 0xeeb0f00d}
FEATURES = ["base", "ni_status", "routing_disabled", "multi_rail", "discovery", "large_addr", "primary_large", "metadata"]
LST_PORTALS = (50, 51, 52)


def spoken(reason, unit):
    """Whether the dissector knows a HELLO that Millrace refuses: of version 1 or 2, or of a big-endian node."""
    if reason == "tcp_hello_version":
        return "socklnd.hello.major" in unit.fields or unit.fields.get("socklnd.hello.version") == ["2"]
    return reason == "tcp_hello_magic" and "socklnd.hello.magic" in unit.fields and "socklnd.big_endian" in unit.fields


class Mismatch(Exception):
    """The two decoders differ."""


# ---------------------------------------------------------------- tshark

def tshark(lua, path, *options):
    """Packets in which the dissector found something, each as a list of (layer, [(name, value)])."""
    command = ["tshark", "-n", "-r", path, "-X", f"lua_script:{lua}", "-o", "tcp.reassemble_out_of_order:TRUE",
               "-T", "json", "-J", PRINTED, "-Y", SHOWN, *options]
    p = subprocess.run(command, capture_output=True, timeout=300, check=False)
    said = p.stderr.decode(errors="replace")
    if p.returncode != 0 or "rror" in said:
        raise Mismatch(f"tshark ended with {p.returncode}: {said}")
    if b"Lua Error" in p.stdout:
        raise Mismatch("Lua Error: " + p.stdout[p.stdout.index(b"Lua Error"):][:300].decode(errors="replace"))
    packets = json.loads(p.stdout or b"[]", object_pairs_hook=list)
    return [dict(dict(p)["_source"])["layers"] for p in packets]


def flat(pairs, into):
    for name, value in pairs:
        if isinstance(value, list):
            flat(value, into)
        else:
            into.append((name, value))
    return into


class Unit:
    """What the dissector shows of one unit."""

    def __init__(self):
        self.fields = collections.defaultdict(list)
        self.faults = []  # (kind, text) of expert infos

    def add(self, pairs):
        kind = None
        for name, value in flat(pairs, []):
            proto, word = name.split(".")[0], name.split(".")[-1]
            if name == "_ws.expert.message":
                self.faults.append((kind, value))
            elif proto in LAYERS + INNER and word in ("malformed", "note", "incomplete"):
                kind = word
            elif proto in LAYERS + INNER:
                self.fields[name].append(value)

    @property
    def malformed(self):
        return [text for kind, text in self.faults if kind == "malformed"]

    @property
    def undecoded(self):
        return "socklnd.undecoded" in self.fields


def first(layer, *names):
    for name, value in layer:
        if name in names:
            return value
    return None


def units_of(packets):
    """Units by (source, destination, number of the TCP connection between the two) in order; of RoCE all under one key."""
    found = collections.defaultdict(list)
    for layers in packets:
        key, unit = "", None
        named = dict((name, value) for name, value in layers if isinstance(value, list))
        if "tcp" in named:
            ip = named.get("ip") or named["ipv6"]
            src = f"{first(ip, 'ip.src', 'ipv6.src')} {first(named['tcp'], 'tcp.srcport')}"
            dst = f"{first(ip, 'ip.dst', 'ipv6.dst')} {first(named['tcp'], 'tcp.dstport')}"
            key = (src, dst, int(first(named["tcp"], "tcp.stream")))
        for name, value in layers:
            if name in LAYERS:
                unit = Unit()
                found[key].append(unit)
            if name in LAYERS + INNER and isinstance(value, list):
                unit.add(value)
    return found


# ---------------------------------------------------------------- lnet_selftest, docs/protocol/selftest.md §2

HEAD = (("magic", 0, "I"), ("version", 4, "I"), ("type", 8, "I"), ("features", 20, "I"))
RPY, STATUS = (("rpyid", 24, "Q"),), (("status", 24, "I"),)


def sid(at):
    return (("sid", at, "nid"), ("stamp", at + 8, "Q"))


REPLY = STATUS + sid(28)
LST = {
    0: RPY + sid(32) + (("force", 48, "I"), ("name", 52, "32s")),
    1: REPLY + (("timeout", 44, "I"), ("name", 48, "32s")),
    2: RPY + sid(32), 3: REPLY,
    4: RPY + sid(32) + (("batch", 48, "Q"), ("opcode", 56, "I"), ("index", 60, "I"), ("arg", 64, "I")),
    5: REPLY + (("active", 44, "I"), ("time", 48, "I")),
    6: RPY + sid(32) + (("stat_type", 48, "I"),),
    7: REPLY + tuple((name, 44 + 4 * i, "I") for i, name in enumerate((
        "running_ms", "active_batches", "zombie_sessions", "brw_errors", "ping_errors", "rpc_errors", "rpc_sent", "rpc_rcvd",
        "rpc_dropped", "rpc_expired"))) + (("bulk_get", 84, "Q"), ("bulk_put", 92, "Q")) + tuple(
            (name, 100 + 4 * i, "I") for i, name in enumerate((
                "msgs_alloc", "msgs_max", "errors", "send_count", "recv_count", "route_count", "drop_count"))) + tuple(
                    (name, 128 + 8 * i, "Q") for i, name in enumerate((
                        "send_length", "recv_length", "route_length", "drop_length"))),
    8: RPY + (("bulkid", 32, "Q"),) + sid(40) + (("batch", 56, "Q"), ("service", 64, "I"), ("loop", 68, "i"),
                                                 ("concurrency", 72, "I"), ("is_client", 76, "B"), ("stop_on_error", 77, "B"),
                                                 ("ndest", 78, "I")),
    9: REPLY,
    10: RPY + sid(32) + (("debug_flags", 48, "I"),),
    11: REPLY + (("timeout", 44, "I"), ("nbatch", 48, "I"), ("name", 52, "32s")),
    12: RPY + (("bulkid", 32, "Q"), ("rw", 40, "I"), ("length", 44, "I"), ("flags", 48, "I")),
    13: STATUS,
    14: RPY + (("ping_magic", 32, "I"), ("seq", 36, "I"), ("seconds", 40, "Q"), ("nanoseconds", 48, "Q")),
    15: STATUS + (("ping_magic", 28, "I"), ("seq", 32, "I")),
    16: RPY + sid(32) + (("name", 48, "32s"),),
    17: REPLY + (("timeout", 44, "I"), ("name", 48, "32s")),
}
TEST = 8
TEST_PING = (("ping_size", 82, "I"), ("ping_flags", 86, "I"))
TEST_BULK = {0: (("rw", 82, "I"), ("pages", 86, "I"), ("flags", 90, "I")),
             1: (("test_rw", 82, "H"), ("test_flags", 84, "H"), ("length", 86, "I"), ("offset", 90, "I"))}
NETS = {2: "tcp", 5: "o2ib", 9: "lo", 16: "kfi"}


def nid_text(word):
    if word == 2 ** 64 - 1:
        return "<?>"
    net, num, addr = NETS[word >> 48], word >> 32 & 0xffff, word & 0xffffffff
    text = ".".join(str(addr >> s & 255) for s in (24, 16, 8, 0)) if net in ("tcp", "o2ib") else str(addr)
    return f"{text}@{net}{num or ''}"


def lst_fields(payload):
    """Fields of a selftest message by name; empty when it is none."""
    if len(payload) != 160 or struct.unpack("<I", payload[:4])[0] not in (0xeeb0f00d, 0x0df0b0ee):
        return {}
    order = "<" if payload[0] == 0x0d else ">"
    out = {}

    def take(rows):
        for name, at, kind in rows:
            value = struct.unpack_from(order + ("Q" if kind == "nid" else kind), payload, at)[0]
            out["lst." + name] = [nid_text(value) if kind == "nid" else
                                  value.split(b"\0")[0].decode() if kind == "32s" else value]
    take(HEAD)
    take(LST.get(out["lst.type"][0], ()))
    if out["lst.type"][0] == TEST:
        take(TEST_PING if out["lst.service"] == [12] else TEST_BULK[out["lst.features"][0] & 1])
    if order == ">":
        out["lst.big_endian"] = [1]
    return out


# ---------------------------------------------------------------- comparison

def same(want, got):
    if isinstance(want, int):
        return int({"True": "1"}.get(got, got), 0) == want
    return want == (got.replace(":", "") if got.count(":") == len(got) // 3 and len(got) != 3 * got.count(":") - 1 else got) or \
        want == got


def derived(name, value, unit, want):
    """Whether a value that the C decoder does not give is what it must be."""
    if name in MAGIC:
        return int(value, 0) == MAGIC[name]
    if name.startswith("lnetping.feature."):
        bit = 1 << FEATURES.index(name.split(".")[-1])
        return int({"True": "1", "False": "0"}.get(value, value), 0) == int(bool(want["lnetping.features"][0] & bit))
    if name == "lnetping.lo":
        return value == "0@lo"
    if name == "lnetmsg.payload":
        return len(value.replace(":", "")) == 2 * want["lnetmsg.payload_length"][0]
    if name == "lnetmsg.request_in":
        return int(value) > 0
    return name == "socklnd.refusal.unused" and int(value, 0) == 0


def compare_unit(want_pairs, unit):
    want = collections.defaultdict(list)
    for name, value in want_pairs:
        want[name].append(value)
    portal = want.get("lnetmsg.portal", [None])[0]
    if portal in LST_PORTALS and "lnetmsg.payload" in want:
        want.update(lst_fields(bytes.fromhex(want["lnetmsg.payload"][0])))
    for reason in want.pop("refused", []):
        if not unit.malformed:
            raise Mismatch(f"refused as {reason}, and not marked as malformed")
        for name in [n for n in unit.fields if n.startswith("lnetping.")]:
            del unit.fields[name]
    for name, values in want.items():
        got = unit.fields.get(name, [])
        if len(got) != len(values) or not all(same(a, b) for a, b in zip(values, got)):
            raise Mismatch(f"{name}: {str(got)[:120]}, not {str(values)[:120]}")
    for name, values in unit.fields.items():
        if name not in want and not all(derived(name, v, unit, want) for v in values):
            raise Mismatch(f"{name} is shown as {str(values)[:120]}, and the C decoder has no such field")
    return len(want)


def compare_stream(part, units):
    """part: the C decoder's; units: the dissector's. Returns how many fields were compared."""
    decoded = [u for u in units if not u.undecoded]
    fields = 0
    for i, want in enumerate(part["units"]):
        if i >= len(decoded):
            raise Mismatch(f"{len(decoded)} units, not {len(part['units'])}")
        try:
            fields += compare_unit(want, decoded[i])
        except Mismatch as e:
            raise Mismatch(f"unit {i}: {e}") from None
    rest = decoded[len(part["units"]):]
    refused = part.get("refused")
    if not refused:
        if rest:
            raise Mismatch(f"{len(decoded)} units, not {len(part['units'])}; the next has {dict(rest[0].fields)}")
        return fields
    beyond = rest + [u for u in units if u.undecoded]
    if not any(u.malformed for u in beyond) and not (rest and spoken(refused, rest[0])):
        raise Mismatch(f"refused as {refused}, and nothing is marked as malformed: {[dict(u.fields) for u in beyond]}")
    return fields


def compare_file(parts, packets):
    """Returns counts; raises Mismatch."""
    found = units_of(packets)
    by_pair = collections.defaultdict(list)
    for key in sorted((k for k in found if k), key=lambda k: k[2]):
        by_pair[key[:2]].append(found[key])
    units = fields = notes = 0
    for part in parts:
        pair = (part["src"], part["dst"])
        if not part["src"]:
            mine = found.get("", [])
        elif not part["units"] and not part.get("refused"):
            continue
        else:
            if not by_pair[pair]:
                raise Mismatch(f"{pair}: not found")
            mine = by_pair[pair].pop(0)
        try:
            fields += compare_stream(part, mine)
        except Mismatch as e:
            raise Mismatch(f"{part['src']} to {part['dst']}: {e}") from None
        units += len(part["units"])
        notes += sum(len(u.faults) for u in mine)
    for pair, left in by_pair.items():
        if any(not u.undecoded for units_left in left for u in units_left):
            raise Mismatch(f"{pair}: only the dissector found a connection")
    return units, fields, notes


def unpack(path, to):
    if path.endswith(".xz"):
        with open(to, "wb") as f:
            subprocess.run(["xz", "-dc", path], stdout=f, check=True)
        return to
    return path


def main():
    golden_fields, lua, *recordings = sys.argv[1:]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="millrace-test-") as tmp:
        parts = collections.defaultdict(list)
        listing = os.path.join(tmp, "fields")
        subprocess.run([golden_fields, listing, *recordings], stdout=subprocess.DEVNULL, check=True)
        with open(listing, encoding="ascii") as f:
            for line in f:
                part = json.loads(line)
                parts[part["file"]].append(part)

        def run(path):
            name = os.path.basename(path).split(".")[0]
            file = unpack(path, os.path.join(tmp, name))
            try:
                return name, compare_file(parts[path], tshark(lua, file))
            except Mismatch as e:
                return name, str(e)
            finally:
                if file != path:
                    os.unlink(file)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, result in pool.map(run, recordings):
                if isinstance(result, str) or not result[0]:
                    failed += 1
                    print(f"FAIL {name}: {result if isinstance(result, str) else 'nothing to compare'}", flush=True)
                else:
                    print(f"PASS {name}: %u units with %u fields are equal, %u remarks" % result, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
