# SPDX-License-Identifier: BSD-3-Clause
"""Replaying a recording of a kernel router's two sides through a live router.

X-br0 holds what passed between the router and the nodes of one net, X-br1 the same for the other.
Each node becomes a persona that sends, in the recorded order, exactly the LNet messages it sent then,
each from the NI that sent it, as soon as it has received what it had received by then; and it expects,
byte for byte and at the same NI, the messages that the kernel router delivered to it. What is masked is
listed in MASKS with its reason. The requests that a router makes by itself are compared as well; where
Millrace makes others than the kernel router did, the difference has a name and a reason in DIFFERENCES.
Nothing here knows particular files: the router, its NIDs, the NIDs of the nodes, their links and whether
the router routed are read from the bytes.
"""

import glob
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from . import nid as N
from . import stream, wire
from .judge import Candidate, Judge, Mask

MASKS = {
    "frame": (Mask(8, 16, "ZC cookie: kernel routers ask for acknowledgements per hop, Millrace never does"),),
    "info": (Mask(4, 8, "features: a 2.17 kernel clears RTE_DISABLED 110 s after routing is on, Millrace at once"),
             Mask(24, 28, "sequence number: counts the reconfigurations of that very node")),
    "own": (Mask(32, 48, "handle of the router's own PUSH: interface cookie, object cookie"),),
    "status": "status word: follows the pings and links of the recorded minutes, which are not replayed in real time",
}


# lnet-core §3.5 to §3.7, §6.3: requests of the router itself.
DIFFERENCES = {
    "recovery ping": "§6.3: a kernel router pings a peer NI whose health is not full; what lowered it is not played",
    "push of routing": "§3.9: a 2.17 kernel pushes when it has routed for 110 s; Millrace says that it routes from its first answer on",
    "push of status": "§3.7: pushed when an NI went down or up, which followed from minutes and links that are not played",
    "push by choice of NID": "§3.6, §7.3: a kernel router chooses the peer NI for a PUSH; Millrace pushes to the NI that pushed last",
    "first push": "§3.6: the kernel router had pushed its info to this node before the recording began; Millrace begins with it",
    "selftest": "the kernel router was a server of lnet_selftest, too; Millrace has none",
}


class NotReplayable(Exception):
    """The recording has no TCP router between two sides."""


@dataclass
class Step:
    """One unit in a node's script. what: send | expect | answer (the router's own REPLY or ACK)."""

    what: str
    time: float
    nid: N.Nid              # the node's NI
    header: wire.Header
    payload: bytes
    cookie: int = 0
    raw: bytes = b""
    done: bool = False
    links: list = field(default_factory=list)   # (NID, up): links of the node that change before this is sent


@dataclass
class Host:
    nids: list              # in the order of the node's ping info
    side: int
    steps: list = field(default_factory=list)
    acks: int = 0           # ZC-ACKs that the router sent to this node


@dataclass
class Plan:
    name: str
    router: list            # NIDs, in the order of the recorded ping info
    hosts: list
    routed: bool
    own: list = field(default_factory=list)     # (NID of the node's NI, Header, payload) of the kernel router's own requests
    unmatched: int = 0      # forwarded messages whose origin lies before the recording
    lost: int = 0           # sent, but not seen on the other side


def pairs(folder):
    """Names X of which X-br0 or X-br1 is there, with their paths."""
    found = defaultdict(dict)
    for path in sorted(glob.glob(os.path.join(folder, "*-br[01].pcap*"))):
        name, _, rest = os.path.basename(path).rpartition("-br")
        found[name][int(rest[0])] = path
    return dict(found)


def _ip(addr):
    return N.Nid(2, 0, bytes(addr)).ip


def _directions(decoded):
    for d in decoded:
        yield d, d.ab, _ip(d.conn.a[0]), _ip(d.conn.b[0])
        yield d, d.ba, _ip(d.conn.b[0]), _ip(d.conn.a[0])


def _infos(decoded):
    """(sender's address, ping info) of each REPLY and PUSH."""
    for _, units, sender, _ in _directions(decoded):
        for u in units:
            if u.kind != "lnet" or u.value.src.ip != sender or u.payload[:4] not in (b"gnip", b"ping"[::-1], b"ping"):
                continue
            try:
                yield sender, wire.unpack_ping(u.payload)
            except wire.WireError:
                continue


def find_nodes(decoded, net):
    """Lists of the NIDs of each node on this net: what its ping info says, and addresses of which no info was seen."""
    nodes = []
    for sender, info in _infos(decoded):
        nids = [n for n, _ in info.nis if n.net == net]
        if any(n.ip == sender for n in nids) and nids not in nodes:
            nodes = [nids] + [x for x in nodes if not set(x) & set(nids)]
    return nodes


def find_router(decoded):
    """The address that speaks for others, is spoken to for others, or lists NIDs of two nets."""
    votes = Counter()
    for _, units, sender, receiver in _directions(decoded):
        for u in units:
            if u.kind != "lnet":
                continue
            if u.value.src.ip != sender:
                votes[sender] += 2
            if u.value.dst.ip != receiver:
                votes[receiver] += 2
    for sender, info in _infos(decoded):
        if len({n.net for n, _ in info.nis}) > 1:
            votes[sender] += 1
    return votes.most_common(1)[0][0] if votes else None


def _local_net(decoded, router_ip):
    """The net of the nodes that talk to the router directly on this side."""
    nets = Counter()
    for d, units, sender, receiver in _directions(decoded):
        if router_ip not in (sender, receiver):
            continue
        if d.hello_ab:
            nets[d.hello_ab.src.net] += 1
        for u in units:
            if u.kind == "lnet":
                for n, ip in ((u.value.src, sender), (u.value.dst, receiver)):
                    if n.ip == ip:
                        nets[n.net] += 1
    return nets.most_common(1)[0][0] if nets else None


def make_plan(name, paths):
    sides, router, info_order = {}, {}, None
    for side, path in paths.items():
        decoded = [d for d in stream.decode_file(path) if any(u.kind == "lnet" for u in d.ab + d.ba)]
        ip = find_router(decoded)
        net = _local_net(decoded, ip) if ip else None
        if not net:
            continue
        sides[side] = decoded
        router[side] = N.Nid(net[0], net[1], N.parse(f"{ip}@tcp").addr)
        for sender, info in _infos(decoded):
            if sender == ip and len(info.nis) > 1:
                info_order = [n for n, _ in info.nis]
    if not sides:
        raise NotReplayable("no LNet over TCP with a router in it")
    nids = list(router.values())
    if info_order and all(n in info_order for n in nids):
        nids = info_order
    elif len(nids) == 1:
        nids.append(_invent_far_side(sides, nids[0]))
    if any(n.ntype != 2 for n in nids) or len({n.net for n in nids}) < 2:
        raise NotReplayable(f"the router's NIDs are {[str(n) for n in nids]}: not two tcp nets")
    plan = Plan(name, nids, [], False)
    for side, decoded in sides.items():
        _script(plan, side, decoded, router[side])
    _match(plan)
    plan.routed = _routed(plan, sides, set(router.values()))
    return plan


def _invent_far_side(sides, known):
    for decoded in sides.values():
        for _, units, _, _ in _directions(decoded):
            for u in units:
                if u.kind == "lnet" and u.value.dst.net != known.net and u.value.dst.ntype == 2:
                    return N.Nid(2, u.value.dst.num, u.value.dst.addr[:3] + b"\xfe")
    raise NotReplayable("only one net in the recording")


def _routed(plan, sides, router):
    if any(s.what == "expect" for h in plan.hosts for s in h.steps):
        return True
    ips = {n.ip for n in router}
    infos = [i for decoded in sides.values() for ip, i in _infos(decoded) if ip in ips]
    return any(i.routing for i in infos)


def _script(plan, side, decoded, router):
    """Steps of every node that has connections with the router, in order of time."""
    own = set(plan.router)
    asked = set()       # handles of requests that the nodes sent to the router itself
    hosts = {n: host for nids in find_nodes(decoded, router.net) for host in [Host(nids, side)] for n in nids}
    events = []
    for d, units, sender, receiver in _directions(decoded):
        for u in units:
            if router.ip in (sender, receiver):
                events.append((u.time, sender == router.ip, receiver if sender == router.ip else sender, u))
    events.sort(key=lambda e: e[0])
    for time, from_router, ip, u in events:
        nid = N.Nid(router.ntype, router.num, N.parse(f"{ip}@tcp").addr)
        host = hosts.setdefault(nid, Host([nid], side))
        if host not in plan.hosts:
            plan.hosts.append(host)
        if u.kind == "noop" and from_router and u.value[2] > 1:
            host.acks += len(wire.acked_cookies(u.value[1], u.value[2]))
        if u.kind != "lnet":
            continue
        h, what = u.value, None
        if from_router and h.src in own:
            if h.mtype in (wire.PUT, wire.GET):
                plan.own.append((nid, h, u.payload))
            elif h.handle in asked:
                what = "answer"
        elif from_router:
            what = "expect"
        elif h.dst in own:
            if h.mtype in (wire.GET, wire.PUT) and h.portal == 0:
                asked.add(h.handle)
                what = "send"
        elif h.src == nid:
            what = "send"
        if what:
            host.steps.append(Step(what, time, nid, h, u.payload, u.frame[1], u.raw))
    for host in plan.hosts:
        _links(host)


def infos_of(payload):
    """(NID, word) of each NI in a ping info; of anything else none."""
    return wire.unpack_ping(payload).nis if payload[:4] in (b"gnip", b"ping") else []


def _links(host):
    """A link goes down before the node first says that its NI is down, and comes back before that NI sends again."""
    down, said = set(), set()
    for step in host.steps:
        if step.what != "send":
            continue
        if step.nid in down:
            down.remove(step.nid)
            step.links.append((step.nid, True))
        nis = infos_of(step.payload)
        if nis:
            words = {n for n, s in nis if s == wire.DOWN and n in host.nids}
            step.links += [(n, False) for n in words - said - {step.nid}]
            down |= words - said - {step.nid}
            said = words


def _match(plan):
    """Keep an expected message only if the recording also has it going in on the other side."""
    sent = Counter()
    for host in plan.hosts:
        for s in host.steps:
            if s.what == "send" and s.header.dst not in plan.router:
                sent[s.header.pack(True) + bytes(s.payload)] += 1
    for host in plan.hosts:
        keep = []
        for s in host.steps:
            if s.what == "expect":
                key = s.header.pack(True) + bytes(s.payload)
                if sent[key] <= 0:
                    plan.unmatched += 1
                    continue
                sent[key] -= 1
            keep.append(s)
        host.steps = keep
    plan.lost = sum(sent.values())


def _own_kinds(plan):
    """What each of the kernel router's own requests is for."""
    told = {n: infos for host in plan.hosts for infos in [[]] for n in host.nids}      # pushed to that node before
    for nid, header, payload in plan.own:
        if header.portal != 0:
            yield "selftest"
        elif header.mtype == wire.GET:
            yield "recovery ping"      # a router without routes of its own has no other
        else:
            info, before = wire.unpack_ping(payload), list(told[nid])
            told[nid].append(info)
            if any(s == wire.DOWN for i in (info, *before) for _, s in i.nis):
                yield "push of status"
            else:
                yield "push of routing" if info.routing and any(not i.routing for i in before) else "push"


def _info_masks(plan, size):
    """What may differ in a ping info of the router, of this size."""
    masks = [m for m in MASKS["info"] if plan.routed or m.start != 4]
    return masks + [Mask(at + 8, at + 12, MASKS["status"]) for at in range(32, size, 16)]


def _wrong(plan, masks, recorded, header, payload):
    """How a message with a ping info of the router differs from the recorded one, or []. masks: of the header."""
    want, got = (h.pack(False) + bytes(p) for h, p in (recorded, (header, payload)))
    size = len(header.pack(False))
    masks = [*masks, *(Mask(m.start + size, m.end + size, m.reason) for m in _info_masks(plan, len(payload)))]
    return Judge._diff(got, Candidate(want, tuple(masks)))


def differences(plan, sent):
    """Names of DIFFERENCES, with how often each occurs, between the kernel router's own requests and those that Millrace sent:
    (NID of the node's NI, Header, payload). A PUSH to the same NID must have the recorded bytes."""
    node_of = {n: i for i, h in enumerate(plan.hosts) for n in h.nids}
    found, left = Counter(), list(sent)
    for (nid, header, payload), kind in zip(plan.own, _own_kinds(plan)):
        if kind != "push":
            found[kind] += 1
            continue
        mine = [s for s in left if s[1].mtype == wire.PUT and node_of[s[0]] == node_of[nid]]
        same = next((s for s in mine if s[0] == nid), None)
        if same:
            wrong = _wrong(plan, MASKS["own"], (header, payload), *same[1:])
            found[f"not as recorded: {wrong}"] += bool(wrong)
        else:
            found["push by choice of NID" if mine else "push that Millrace does not make"] += 1
        left.remove(same or mine[0]) if mine else None
    found.update("first push" if h.mtype == wire.PUT else "ping that the kernel router does not make" for _, h, _ in left)
    return +found


class Player:
    """One persona that plays one host's script."""

    def __init__(self, env, node, host, router_nid, plan):
        self.env, self.node, self.host, self.router, self.plan = env, node, host, router_nid, plan
        self.ni = {ni.nid: ni for ni in node.nis}
        self.extra = 0
        self.cookies = 0
        self.own = []       # (NID, Header, payload) of each request that the router made by itself
        self.talked = set()     # NIDs of the node's NIs that exchanged a message with the router
        node.push_replies = False
        node.on_message = self.received

    def pushed(self):
        """Whether the node pushes its info to the router."""
        return any(s.what == "send" and s.header.mtype == wire.PUT and s.header.dst in self.plan.router for s in self.host.steps)

    def complete(self):
        """Each NI that talked with the router has all three connections to it, and no other NI has any."""
        counts = {ni.nid: {p.nid: len(p.conns) for p in ni.peers.values() if p.conns} for ni in self.node.nis}
        return all(c == ({self.router: 3} if n in self.talked else {}) for n, c in counts.items())

    def _waiting(self):
        return [s for s in self.host.steps if s.what != "send" and not s.done]

    def received(self, ni, conn, hdr, payload):
        """True: part of the script. The router's own PUSHes and GETs are left to the persona."""
        self.talked.add(ni.nid)
        if hdr.src in self.plan.router and hdr.mtype in (wire.PUT, wire.GET):
            self.own.append((ni.nid, hdr, bytes(payload)))
            return False
        body = hdr.pack(conn.large) + bytes(payload)
        if hdr.src in self.plan.router:
            self._answer(hdr, payload, body)
            return False        # the persona's tables of pings and pushes want to know as well
        for step in self._waiting():
            if step.what == "expect" and step.nid == ni.nid and step.header == hdr and step.raw[24:] == body:
                step.done = True
                self.env.kick()
                return True
        self.extra += 1         # exact, says the ledger, but the recording did not see it delivered
        self.env.log(f"{self.node.name}: not in the recording: {hdr}")
        return True

    def _answer(self, hdr, payload, body):
        for step in self._waiting():
            if step.what != "answer" or step.header.handle != hdr.handle or step.header.mtype != hdr.mtype:
                continue
            if hdr.mtype == wire.REPLY:
                wrong = _wrong(self.plan, [], (step.header, step.payload), hdr, payload)
            else:
                wrong = Judge._diff(body, Candidate(step.raw[24:]))
            if wrong:
                self.env.problem(f"{self.node.name}: {hdr} is not as recorded: {wrong}")
            step.done = True
            self.env.kick()
            return

    def _register(self, step):
        """Requests to the router itself: let judge and persona know the recorded handles."""
        h, loop = step.header, self.env.loop()
        if h.mtype == wire.GET:
            self.node.pings[h.handle] = (h.dst, h.sink, h.offset, loop.create_future())
        elif h.mtype == wire.PUT:
            self.node.pushes[h.handle] = (h.dst, h.plen, loop.create_future())

    async def play(self):
        for i, step in enumerate(self.host.steps):
            if step.what != "send":
                continue
            before = [s for s in self.host.steps[:i] if s.what != "send"]
            await self.env.until(lambda b=before: all(s.done for s in b) or self.env.problems,
                                 f"{self.node.name}: what came before step {i} ({step.header})", 15)
            if self.env.problems:
                return
            if step.header.dst in self.plan.router:
                self._register(step)
            for nid, up in step.links:
                self.env.log(f"{self.node.name}: link of {nid} {'up' if up else 'down'}")
                self.env.fabric.link(self.env.fabric.ports[self.node.name, f"eth{self.host.nids.index(nid)}"], up)
            self.cookies += bool(step.cookie)
            self.talked.add(step.nid)
            self.node.send(step.header, step.payload, via=(self.ni[step.nid], self.router), zc=step.cookie or False)
        await self.env.until(lambda: not self._waiting() or self.env.problems,
                             f"{self.node.name}: the rest of the script", 15)
