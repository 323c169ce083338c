# SPDX-License-Identifier: BSD-3-Clause
"""The judge: every unit a persona receives is compared byte by byte with what a kernel would send.

For each unit the judge builds the complete expected bytes (several candidates where several are
legal) from what the persona itself sent and knows, and compares all of them outside the masks.
A mask is a byte range with a written reason, and most masks also carry a check of their own.
Judging changes no state: the same call serves the real unit and every mutated copy of it.
"""

import itertools
import time
from collections import defaultdict, deque
from dataclasses import dataclass, field

from . import wire
from .wire import BULK_IN, BULK_OUT, CONTROL


@dataclass(frozen=True)
class Mask:
    start: int
    end: int
    reason: str


@dataclass
class Candidate:
    """One legal form of a unit: expected bytes, masks, and what to do once it has been seen."""

    expect: bytes
    masks: tuple = ()
    check: object = None        # raw -> error text or None, for what the masks hide
    commit: object = None       # raw -> None


@dataclass
class Verdict:
    errors: list
    masks: tuple = ()
    commit: object = None


@dataclass
class Sent:
    header: wire.Header
    payload: object
    serial: int
    conn: object = None
    seen: int = 0


class Ledger:
    """Every LNet message between personas: what was sent must arrive once and unaltered."""

    def __init__(self):
        self.open = defaultdict(deque)      # 96 canonical header bytes -> Sent not yet seen
        self.done = {}                      # canonical header -> count of deliveries
        self.serial = itertools.count()
        self.sent = self.received = 0
        self.order = {}                     # (sender's conn, receiver's conn) -> last serial
        self.ordered = True                 # a router has one way for each: over two rails messages may overtake
        self.nids = set()
        self.strangers = set()              # NIDs of nodes that keep no account of what they send and get
        self.dropped_ok = 0

    def register(self, header, payload):
        if header.dst in self.strangers:
            return None
        entry = Sent(header, payload, next(self.serial))
        self.open[header.pack(True)].append(entry)
        self.sent += 1
        self.nids.add(header.src)
        return entry

    def find(self, header, payload):
        """The open entry that is exactly this message, or the reason why there is none."""
        if header.src in self.strangers:
            self.register(header, payload)
        key = header.pack(True)
        entries = self.open.get(key)
        if not entries:
            if key in self.done:
                return None, f"doubled: {header}"
            return None, f"never sent: {header}{self._nearest(key)}"
        for entry in entries:
            if payload == entry.payload:
                return entry, None
        theirs = entries[0].payload
        at = next((i for i in range(min(len(payload), len(theirs))) if payload[i] != theirs[i]), -1)
        return None, f"payload altered at byte {at} of {len(payload)}: {header}"

    def _nearest(self, key):
        best, where = 97, []
        for other in itertools.islice(self.open, 500):
            diff = [i for i in range(96) if other[i] != key[i]]
            if len(diff) < best:
                best, where = len(diff), diff
        return f" (nearest sent one differs at nid16 header bytes {where})" if best <= 24 else ""

    def take(self, entry):
        key = entry.header.pack(True)
        self.open[key].remove(entry)
        if not self.open[key]:
            del self.open[key]
        self.done[key] = self.done.get(key, 0) + 1
        self.received += 1

    def outstanding(self):
        return [e for q in self.open.values() for e in q]

    def forget(self, pred):
        """Messages that a test means to lose."""
        gone = [e for e in self.outstanding() if pred(e)]
        for e in gone:
            key = e.header.pack(True)
            self.open[key].remove(e)
            if not self.open[key]:
                del self.open[key]
        self.dropped_ok += len(gone)
        return gone


@dataclass
class RouterSpec:
    """What the personas know and learn of one router; shared by all personas of a test.

    kind 'millrace': never asks for zero-copy acks. kind 'kernel': asks from zc_min bytes on.
    """

    nids: list
    features: set = field(default_factory=lambda: {0x1a})
    kind: str = "millrace"
    zc_min: int = 16384
    name: str = "router"
    status: dict = field(default_factory=dict)      # Nid -> set of words that are right just now
    allow_none: bool = False        # CTYPE_NONE answers expected (races, duplicates, restarts)
    any_type: bool = False          # dial order cannot be told from our side (races)
    gateways: set = field(default_factory=set)      # personas that the router uses as gateways
    inc: dict = field(default_factory=dict)         # Nid -> incarnation
    cookie: bytes = None            # interface cookie, one per node
    objects: set = field(default_factory=set)
    seq: int = None
    allow_rst: bool = False
    ping_sinks: set = field(default_factory=set)    # further sink lengths of its GETs (`lnetctl ping`: 3960)

    def restarted(self):
        """A new life: everything that marks an incarnation must now be new."""
        self.past_inc, self.past_cookie = dict(self.inc), self.cookie
        self.inc, self.cookie, self.seq, self.objects = {}, None, None, set()

    past_inc: dict = field(default_factory=dict)
    past_cookie: bytes = None

    def set_status(self, nid, *words):
        self.status[nid] = set(words)

    def infos(self):
        """Every ping info that is right just now (sequence number 0 stands for 'not known yet')."""
        large = any(n.large for n in self.nids)
        extra = wire.F_LARGE_ADDR if large else 0
        if self.nids[0].large:      # it precedes the first nid4 after loopback: the primary NID is large
            extra |= wire.F_PRIMARY_LARGE
        words = [sorted(self.status.get(n, {wire.UP})) for n in self.nids]
        for features in sorted(self.features):
            for combo in itertools.product(*words):
                yield wire.PingInfo(features | extra, self.seq or 0, list(zip(self.nids, combo)))


WALL_SLACK = 7 * 86400 * 10**9


class Judge:
    """One per persona node."""

    def __init__(self, node, ledger):
        self.node, self.ledger = node, ledger
        self.routers = {}           # Nid -> RouterSpec
        self.counts = defaultdict(int)
        self.mutator = None
        self.grace = 2.0            # s; a message may have been queued before a better connection was up

    def know(self, spec):
        for n in spec.nids:
            self.routers[n] = spec

    # ------------------------------------------------------------ entry

    def unit(self, conn, kind, raw, payload=b"", **ctx):
        """Judge one received unit. False: a kernel would not accept it, or it is not what one sends."""
        verdict = self.check(conn, kind, raw, payload)
        self.counts[kind] += 1
        if self.mutator and not verdict.errors:
            self.mutator.run(self, conn, kind, raw, payload, verdict)
        for e in verdict.errors:
            self.node.problem(f"{conn}: {kind}: {e}")
        if verdict.errors:
            return False
        if verdict.commit:
            verdict.commit(bytes(raw) + bytes(payload[:4096]))
        return True

    def check(self, conn, kind, raw, payload=b""):
        try:
            if kind == "lnet":
                return self._lnet(conn, bytes(raw), payload)
            return self._match(raw, getattr(self, "_" + kind)(conn, raw))
        except wire.WireError as e:
            return Verdict([str(e)])

    def _match(self, raw, candidates):
        best = None
        for c in candidates:
            errors = self._diff(raw, c)
            if not errors and c.check:
                text = c.check(raw)
                errors = [text] if text else []
            if not errors:
                return Verdict([], c.masks, c.commit)
            if best is None or len(errors[0]) < len(best[0]):
                best = errors
        return Verdict(best or ["a kernel would not send this here"])

    @staticmethod
    def _diff(raw, cand):
        if len(raw) != len(cand.expect):
            return [f"{len(raw)} bytes, expected {len(cand.expect)}: {bytes(raw[:160]).hex()}"]
        hidden = set()
        for m in cand.masks:
            hidden.update(range(m.start, m.end))
        bad = [i for i in range(len(raw)) if raw[i] != cand.expect[i] and i not in hidden]
        if not bad:
            return []
        return [f"byte {i}: {raw[i]:02x}, expected {cand.expect[i]:02x}" for i in bad[:4]] + (
            [f"... {len(bad)} bytes differ"] if len(bad) > 4 else [])

    def _spec(self, conn):
        """The router a connection belongs to, by address and net; None for another persona."""
        if conn.peer:
            return self.routers.get(conn.peer.nid)
        for nid, spec in self.routers.items():
            if nid.net == conn.ni.nid.net and nid.ip == _plain(conn.remote[0]):
                return spec
        return None

    def _peer_nid(self, conn):
        if conn.peer:
            return conn.peer.nid
        if conn.active:
            return conn.dialled_nid
        ip = _plain(conn.remote[0])
        for nid in [*self.routers, *self.node.known_nids()]:
            if nid.net == conn.ni.nid.net and nid.ip == ip:
                return nid
        raise wire.WireError(f"connection from undeclared address {ip}")

    # ------------------------------------------------------------ setting up connections

    def _connreq(self, conn, raw):
        self._peer_nid(conn)
        return [Candidate(wire.connreq(conn.ni.nid))]

    def _version(self, conn):
        return 4 if ":" in conn.remote[0] else 3

    def _expected_types(self, conn, nid, spec):
        """The order a kernel dials in: C, then I and O in turn, whatever is missing (§3.1)."""
        peer = conn.ni.peer(nid)
        if spec is None or spec.any_type:
            return [CONTROL, BULK_IN, BULK_OUT]
        if not peer or not peer.count(CONTROL):
            return [CONTROL]
        theirs_in, theirs_out = peer.count(BULK_OUT), peer.count(BULK_IN)
        return [BULK_IN] if theirs_in <= theirs_out else [BULK_OUT]

    def _incarnation(self, nid, spec, offset):
        """(value, masks, check): masked only while this NI's incarnation has not been seen."""
        known = spec.inc.get(nid) if spec else None
        if known is not None:
            return known, (), None

        def check(raw):
            inc = int.from_bytes(raw[offset:offset + 8], "little")
            if abs(inc - time.time_ns()) > WALL_SLACK:
                return f"incarnation {inc} is not a wall clock in ns"
            if spec and inc in spec.inc.values():
                return "incarnation of another NI: each NI has its own"
            if spec and inc in spec.past_inc.values():
                return "incarnation of the life before"
            return None

        return 0, (Mask(offset, offset + 8, "incarnation: wall clock of the NI's start, not seen before"),), check

    def _learn(self, nid, spec, offset):
        def commit(raw):
            if spec:
                spec.inc[nid] = int.from_bytes(raw[offset:offset + 8], "little")
        return commit

    def _hello(self, conn, raw):
        nid, spec, version = self._peer_nid(conn), self._spec(conn), self._version(conn)
        offset = 56 if version == 4 else 32
        inc, masks, check = self._incarnation(nid, spec, offset)
        return [Candidate(wire.Hello(version, nid, conn.ni.nid, inc, t).pack(), masks, check,
                          self._learn(nid, spec, offset))
                for t in self._expected_types(conn, nid, spec)]

    def _hello_reply(self, conn, raw):
        nid, spec, version = self._peer_nid(conn), self._spec(conn), conn.version
        offset = 56 if version == 4 else 32
        inc, masks, check = self._incarnation(nid, spec, offset)
        types = [wire.INVERT[conn.ctype]]
        if spec is None or spec.allow_none:
            types.append(wire.CTYPE_NONE)
        return [Candidate(wire.Hello(version, nid, conn.ni.nid, inc, t).pack(), masks, check,
                          self._learn(nid, spec, offset)) for t in types]

    # ------------------------------------------------------------ frames

    def _noop(self, conn, raw):
        """A keepalive, or the ack of the oldest request on this very connection, alone (§4.5)."""
        out = []
        if conn.their_type == BULK_IN:
            out.append(Candidate(wire.KEEPALIVE, commit=lambda r: self.node.count_keepalive(conn)))
        if self._spec(conn) is None or self._spec(conn).kind == "kernel":
            _, _, a, b = wire.unpack_frame(raw)
            if b > 1 and len(conn.zc_out) > 1:
                asked = set(wire.acked_cookies(a, b))
                if asked <= set(conn.zc_out):       # kernels may join acks that wait
                    out.append(Candidate(wire.frame(wire.NOOP, a, b)))
            if conn.their_type == BULK_IN:          # and ack what came on CONTROL from BULK_IN
                out += [Candidate(wire.frame(wire.NOOP, 0, k)) for c in conn.peer.conns
                        for k in c.zc_out if c.ctype == CONTROL]
        if conn.zc_out:
            out.append(Candidate(wire.frame(wire.NOOP, 0, next(iter(conn.zc_out)))))
        return out

    def _frame_head(self, conn, spec, hdr, raw):
        """(expected 24 bytes, masks): ZC cookies are per hop."""
        if spec is not None and spec.kind == "millrace":
            return wire.frame(wire.LNET), ()
        zc_min = spec.zc_min if spec else 16384
        if hdr.plen < zc_min:
            return wire.frame(wire.LNET), ()
        return wire.frame(wire.LNET), (Mask(8, 16, "ZC cookie: the sender's counter, shared by its connections"),)

    def _lnet(self, conn, raw, payload):
        spec = self._spec(conn)
        hdr = wire.unpack_header(raw[24:], conn.large)
        errors = self._conn_choice(conn, len(raw) + len(payload))
        head, masks = self._frame_head(conn, spec, hdr, raw)
        if errors:
            return Verdict(errors)
        if spec is not None and hdr.src in spec.nids:
            return self._match(raw + bytes(payload), self._from_router(conn, spec, hdr, head))
        wrong = self._diff(raw[:24], Candidate(head, masks))
        if wrong:
            return Verdict(wrong)
        if hdr.plen != len(payload):
            return Verdict([f"payload of {len(payload)} bytes, header says {hdr.plen}"])
        transit = hdr.dst != conn.ni.nid
        if transit and (not self.node.routing or hdr.dst.net == conn.ni.nid.net):
            return Verdict([f"not for me: {hdr}"])
        entry, why = self.ledger.find(hdr, payload)
        if entry is None:
            return Verdict([why])
        key = (entry.conn, conn)
        if self.ledger.ordered and entry.conn is not None and self.ledger.order.get(key, -1) > entry.serial:
            return Verdict([f"overtaken on one connection: {hdr}"])

        def commit(_):
            self.ledger.order[key] = max(entry.serial, self.ledger.order.get(key, -1))
            if not transit:
                self.ledger.take(entry)
        return Verdict([], masks, commit)

    def _conn_choice(self, conn, nob):
        """Small on CONTROL, bulk on the sender's BULK_OUT, nothing on its BULK_IN (§3.3)."""
        theirs = conn.their_type
        if theirs == BULK_IN:
            return ["LNet message on the sender's BULK_IN connection"]
        want = BULK_OUT if nob >= wire.MIN_BULK else CONTROL
        if theirs == want:
            return []
        better = [c for c in conn.peer.conns if c.their_type == want]
        since = min((c.up_since or time.monotonic() for c in better), default=time.monotonic())
        if better and time.monotonic() - since > self.grace:
            return [f"{nob} bytes on {wire.CTYPE_NAMES[theirs]} although {wire.CTYPE_NAMES[want]} is up"]
        return []

    # ------------------------------------------------------------ messages of the router itself

    def _handle(self, spec, offset):
        """The router's own handle: interface cookie learned once, object cookie new each time."""
        if spec.cookie is None:
            masks = (Mask(offset, offset + 16, "handle: interface cookie not seen before, object cookie"),)
        else:
            masks = (Mask(offset + 8, offset + 16, "handle: object cookie, a counter of the sender"),)

        def check(raw):
            cookie, obj = raw[offset:offset + 8], raw[offset + 8:offset + 16]
            if cookie in (bytes(8), b"\xff" * 8) or cookie == spec.past_cookie:
                return f"interface cookie {cookie.hex()}"
            if obj in (bytes(8), b"\xff" * 8) or obj in spec.objects:
                return f"object cookie {obj.hex()} is none or was used before"
            return None

        def commit(raw):
            spec.cookie = bytes(raw[offset:offset + 8])
            spec.objects.add(bytes(raw[offset + 8:offset + 16]))
        return (spec.cookie or bytes(8)) + bytes(8), masks, check, commit

    def _info_masks(self, spec, at, size):
        if spec.seq is not None or size < 28:
            return (), None
        masks = (Mask(at + 24, at + 28, "sequence number of the ping info: counts the router's reconfigurations"),)

        def check(raw):
            seq = int.from_bytes(raw[at + 24:at + 28], "little")
            return None if 1 <= seq < 1 << 16 else f"sequence number {seq}"
        return masks, check

    def _from_router(self, conn, spec, hdr, head):
        me, nid, at = conn.ni.nid, conn.peer.nid, 24 + wire.header_size(conn.large)
        upto = at - 40          # start of the union
        if hdr.mtype == wire.REPLY:
            return self._router_replies(conn, spec, head, at)
        if hdr.mtype == wire.ACK:
            return [Candidate(head + wire.Header(me, nid, wire.ACK, 0,
                                                 wire.ack_union(h, wire.PING_MATCH, n)).pack(conn.large))
                    for h, n in self.node.pushes_to(nid)]
        handle, masks, check, commit = self._handle(spec, upto)
        if hdr.mtype == wire.GET:
            # A gateway is checked. Any peer NI is pinged while it is not healthy, §6.3: 272 bytes.
            sinks = {max(wire.DISCOVERY_SINK, self.node.info_size()), *spec.ping_sinks}
            out = []
            for sink in sinks if me in spec.gateways else {wire.DISCOVERY_SINK}:
                union = wire.get_union(handle, wire.PING_MATCH, 0, sink)
                out.append(Candidate(head + wire.Header(me, nid, wire.GET, 0, union).pack(conn.large), masks, check,
                                     commit))
            return out
        if hdr.mtype != wire.PUT:
            return []
        out = []
        union = wire.put_union(handle, wire.PING_MATCH, 0)
        for info in spec.infos():
            body = info.pack()
            more, seq_check = self._info_masks(spec, at, len(body))
            out.append(Candidate(head + wire.Header(me, nid, wire.PUT, len(body), union).pack(conn.large) + body,
                                 masks + more, _both(check, seq_check), _then(commit, self._learn_seq(spec, at))))
        return out

    def _router_replies(self, conn, spec, head, at):
        out = []
        for handle, (sink, offset) in self.node.pings_to(conn.peer.nid).items():
            for info in spec.infos():
                body = info.pack()[offset:offset + sink]
                masks, check = self._info_masks(spec, at - offset, len(body) + offset)
                union = wire.reply_union(handle)
                raw = head + wire.Header(conn.ni.nid, conn.peer.nid, wire.REPLY, len(body), union).pack(conn.large)
                commit = self._learn_seq(spec, at - offset) if offset <= 24 and sink + offset >= 28 else None
                out.append(Candidate(raw + body, masks if commit else (), check if commit else None, commit))
        return out

    @staticmethod
    def _learn_seq(spec, at):
        def commit(raw):
            spec.seq = int.from_bytes(raw[at + 24:at + 28], "little")
        return commit


def _plain(ip):
    return ip[7:] if ip.startswith("::ffff:") else ip


def _both(a, b):
    return lambda raw: (a and a(raw)) or (b and b(raw)) or None


def _then(a, b):
    def run(raw):
        a(raw)
        b(raw)
    return run


class Mutator:
    """Flips every unmasked byte of the first units of each kind and demands that judging fails."""

    def __init__(self, per_kind=2, limit=5000):
        self.per_kind, self.limit = per_kind, limit
        self.done, self.flips, self.survivors, self.masks = defaultdict(int), 0, [], set()
        self.forwarded_masks = 0

    def kind_of(self, judge, conn, kind, raw):
        if kind == "noop":
            return "keepalive" if bytes(raw) == wire.KEEPALIVE else "zc-ack"
        if kind != "lnet":
            return kind
        hdr = wire.unpack_header(bytes(raw[24:]), conn.large)
        own = "router " if (s := judge._spec(conn)) and hdr.src in s.nids else "forwarded "
        bulk = " bulk" if own == "forwarded " and hdr.plen >= wire.MIN_BULK else ""
        return own + wire.TYPE_NAMES[hdr.mtype] + bulk + (" nid16" if conn.large else "")

    def run(self, judge, conn, kind, raw, payload, verdict):
        name = self.kind_of(judge, conn, kind, raw)
        size = len(raw) + len(payload)
        if self.done[name] >= self.per_kind or size > self.limit:
            return
        self.done[name] += 1
        hidden = set()
        for m in verdict.masks:
            hidden.update(range(m.start, m.end))
            self.masks.add((name, m.start, m.end, m.reason))
        if name.startswith("forwarded"):
            self.forwarded_masks += len(hidden)
        whole = bytearray(raw) + bytearray(payload)
        for i in range(size):
            if i in hidden:
                continue
            for flip in (0x01, 0x80, 0xff):
                whole[i] ^= flip
                self.flips += 1
                if not judge.check(conn, kind, bytes(whole[:len(raw)]), bytes(whole[len(raw):])).errors:
                    self.survivors.append(f"{name} byte {i} flipped by {flip:#x}")
                whole[i] ^= flip
