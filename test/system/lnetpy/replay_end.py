# SPDX-License-Identifier: BSD-3-Clause
"""Replaying a recording of two end nodes, with Millrace in the place of one of them.

The other node becomes a persona. It sends, in the recorded order, the LNet messages it sent then, each from the NI that sent it, as
soon as it has what it had by then; the answers of Millrace must be the recorded bytes. Pings that the recorded node made are made by
Millrace too, by RPC, and answered with the recorded answer. A link of either node goes down and up as its ping info says.
What is masked is listed in MASKS with its reason, and what the recorded node sent by itself and Millrace does not, or the other way
round, has a name and a reason in DIFFERENCES.
"""

import asyncio
import glob
import os
from collections import Counter
from dataclasses import dataclass, field

from . import nid as N
from . import replay, stream, wire
from .judge import Candidate, Judge, Mask
from .router import RpcError

HANDLE = Mask(32, 48, "handle of our own request: interface cookie, object cookie")
SINK = Mask(64, 68, "sink length of a ping: a 2.15 node asks for 3216 bytes, a 2.17 node and Millrace for 3960")
SEQ = Mask(24, 28, "sequence number of the ping info: counts the reconfigurations of that very node")
STATUS = "status word of an NI whose link is back: a 2.17.0 node keeps it DOWN (§3.7), Millrace has it UP"
MASKS = (HANDLE, SINK, SEQ, STATUS)
OLD_SINK = 3216

# docs/protocol/lnet-core.md
DIFFERENCES = {
    "discovery on command": "§3.5: `lnetctl discover` sends this GET; here only a PUSH makes Millrace discover a node",
    "recovery ping": "§6.3: a kernel node pings a peer NI whose health is not full; what lowered it is not played",
    "selftest": "the recorded node was a console or a server of lnet_selftest, too; Millrace is none",
    "ping without answer": "the recorded node had no answer, as its packets took a link that was down: nothing to compare",
    "push by choice of NI": "§3.6, §7.3: a kernel node chooses both NIs for a PUSH; Millrace uses those of the last PUSH it received",
    "first push": "§3.6: the other node knew this node's info before the recording began; Millrace begins with it",
}


@dataclass
class EndPlan:
    name: str
    ours: list              # NIDs of the node whose place Millrace takes
    theirs: list
    steps: list = field(default_factory=list)   # replay.Step: send | answer | ask | push | link
    answers: dict = field(default_factory=dict)     # handle of the recorded node's own request -> (Header, payload) of its answer
    own: list = field(default_factory=list)     # (kind, Header, payload) of the recorded node's own requests
    prior: object = None    # NID to which the recorded node pushed without having been pushed to


def find(folder, name):
    return sorted(glob.glob(os.path.join(folder, name + "-*.pcap*")))


def make_plan(folder, name, ours, begin=0.0, end=1e9, decode=stream.decode_file):
    """The part of a recording between two times, s from its first message. decode: returns what stream.decode_file() returns."""
    decoded = decode(*find(folder, name))
    nid = N.parse(ours)
    nodes = replay.find_nodes(decoded, nid.net)
    events = sorted(((u.time, u) for _, units, _, _ in replay._directions(decoded) for u in units if u.kind == "lnet"),
                    key=lambda e: e[0])
    every = {n for _, u in events for n in (u.value.src, u.value.dst)}
    unknown = sorted(every - {n for node in nodes for n in node}, key=str)     # those of the node of which no info was seen
    mine = next((n for n in nodes if nid in n), unknown)
    plan = EndPlan(name, mine, next((n for n in nodes if nid not in n), unknown))
    zero = events[0][0]
    _script(plan, [(t - zero, u) for t, u in events if begin <= t - zero < end])
    return plan


def _script(plan, events):
    asked, down, told = set(), set(), False
    for _, u in events:
        if u.value.src in plan.theirs and u.value.mtype in (wire.REPLY, wire.ACK):
            plan.answers[u.value.handle] = (u.value, u.payload)
    theirs = [u for _, u in events if u.value.src in plan.theirs and u.value.mtype == wire.PUT and u.value.portal == 0]
    waiting = []        # our PUSHes that wait for one of theirs
    for time, u in events:
        h, links = u.value, []
        mine, what = h.src in plan.ours, None
        if h.mtype in (wire.REPLY, wire.ACK):
            what = "answer" if mine and h.handle in asked else None
        elif mine:
            kind = _own_kind(plan, h, down)
            plan.own.append((kind, h, u.payload))
            what = {"ping": "ask", "push": "push"}.get(kind)
            links = _our_links(plan, h, u.payload) if kind == "push" else []
        else:
            what = "send"
            asked |= {h.handle} if h.portal == 0 else set()
            down |= {n for n, s in replay.infos_of(u.payload) if s == wire.DOWN}
        step = replay.Step(what, time, h.dst if mine else h.src, h, u.payload, u.frame[1], u.raw) if what else None
        plan.steps += [replay.Step("link", time, n, h, b"", links=[(n, up)]) for n, up in links]
        if what == "push" and not told and theirs:
            waiting.append(step)        # of a discovery: Millrace pushes once it is pushed to
        elif what:
            if what == "push" and not told and not plan.prior:
                plan.prior = h
            plan.steps.append(step)
        if u in theirs:
            told = True
            plan.steps += waiting
            waiting = []
    replay._links(replay.Host(plan.theirs, 0, plan.steps))


def _own_kind(plan, h, down):
    if h.portal != 0:
        return "selftest"
    if h.mtype == wire.PUT:
        return "push"
    if h.sink > wire.DISCOVERY_SINK:
        return "ping" if h.handle in plan.answers else "ping without answer"
    return "recovery ping" if h.dst in down else "discovery on command"


def _our_links(plan, h, payload):
    """Links of Millrace that change before the recorded node's PUSH: see replay._links()."""
    was = {s.nid: s.links[0][1] for s in plan.steps if s.what == "link"}
    links = [(n, False) for n, s in replay.infos_of(payload) if s == wire.DOWN and n not in was and n != h.src]
    return links + [(h.src, True)] * (was.get(h.src) is False)


class EndPlayer:
    """The persona that plays the other node."""

    def __init__(self, env, node, router, plan):
        self.env, self.node, self.router, self.plan = env, node, router, plan
        self.ni = {ni.nid: ni for ni in node.nis}
        self.live = []          # (Header, payload, NIDs as in back) of our own requests that are no recorded ping
        self.back = set()       # NIDs of ours whose link was down and is up
        self.more = 0           # answers that the recording lost
        self.seq = None         # of our ping info before a link changed
        self.playing = False
        node.push_replies = False
        node.on_message = self.received

    # ------------------------------------------------------------ comparison

    def _info_masks(self, size, back):
        masks = [SEQ] if size else []
        return masks + [Mask(40 + 16 * i, 44 + 16 * i, STATUS) for i, n in enumerate(self.plan.ours) if n in back]

    def wrong(self, recorded, header, payload, masks=(), back=None):
        """How our message differs from the recorded one, or []. back: see there, when the message came."""
        want, got = (h.pack(False) + bytes(p) for h, p in (recorded, (header, payload)))
        more = [Mask(m.start + 72, m.end + 72, m.reason) for m in self._info_masks(len(payload), self.back if back is None else back)]
        return Judge._diff(got, Candidate(want, (*masks, *more)))

    def _compare(self, step, hdr, payload, masks=()):
        wrong = self.wrong((step.header, step.payload), hdr, payload, masks)
        if wrong:
            self.env.problem(f"{self.node.name}: {hdr} is not as recorded: {wrong}")
        step.done = True
        self.env.kick()

    # ------------------------------------------------------------ what Millrace sends

    def _open(self, what, ni):
        return [s for s in self.plan.steps if s.what == what and s.nid == ni.nid and not s.done]

    def received(self, ni, conn, hdr, payload):
        """True: part of the script."""
        if self.seq is not None:        # a change of links: both numbers are right until the PUSH that tells it
            self.router.spec.seq = None
        if hdr.mtype in (wire.REPLY, wire.ACK):
            step = next((s for s in self._open("answer", ni) if s.header.handle == hdr.handle and s.header.mtype == hdr.mtype), None)
            if step:
                self._compare(step, hdr, payload)
            else:
                self.more += 1
            return False        # the persona's tables of pings and pushes want to know as well
        if hdr.mtype == wire.GET:
            step = next((s for s in self._open("ask", ni) if s.header.src == hdr.src), None)
            if step:
                self._compare(step, hdr, payload, (HANDLE, *[SINK] * (step.header.sink == OLD_SINK)))
                self._answer(step.header, hdr, ni)
                return True
        self.live.append((hdr, bytes(payload), frozenset(self.back)))
        step = self._push(ni, hdr, payload) if self.playing and hdr.mtype == wire.PUT else None
        if step and step.header.handle in self.plan.answers:
            self._answer(step.header, hdr, ni)
            return True
        self.env.kick()
        return False

    def _push(self, ni, hdr, payload):
        """Our PUSH is what a step waits for; the step, if the NIs are the recorded ones."""
        if self.seq is not None and wire.unpack_ping(payload).seq != self.seq + 1:
            self.env.problem(f"{self.node.name}: sequence number {wire.unpack_ping(payload).seq} after {self.seq} and a change of links")
        self.seq = None
        steps = [s for s in self.plan.steps if s.what == "push" and not s.done]
        same = next((s for s in steps if s.nid == ni.nid and s.header.src == hdr.src), None)
        if steps:
            (same or steps[0]).done = True
            self.env.kick()
        return same

    def _answer(self, recorded, hdr, ni):
        """The recorded answer, with the handle of our request."""
        answer, payload = self.plan.answers[recorded.handle]
        answer = wire.Header(answer.dst, answer.src, answer.mtype, answer.plen, hdr.handle + answer.union[16:])
        self.node.send(answer, payload, via=(ni, hdr.src))

    # ------------------------------------------------------------ the script

    async def first_contact(self):
        """What was before the recording: the nodes knew each other."""
        h = self.plan.prior
        via = (self.ni[h.dst], h.src)
        self.node.task(self.node.push(h.src, via=via))
        await self.env.until(lambda: self.live and not self.node.pushes, f"{self.node.name}: PUSHes of both nodes, acknowledged")
        self.live.clear()

    async def _link(self, step):
        (nid, up), = step.links
        self.seq, self.router.spec.seq = self.router.spec.seq, None
        self.router.spec.set_status(nid, *({wire.UP, wire.DOWN} if up else {wire.DOWN}))
        self.back |= {nid} if up else set()
        self.env.log(f"link of {nid} {'up' if up else 'down'}")
        self.env.fabric.link(self.env.fabric.ports[self.router.name, f"eth{self.plan.ours.index(nid)}"], up)
        step.done = True

    def _send(self, step):
        for nid, up in step.links:
            self.env.log(f"{self.node.name}: link of {nid} {'up' if up else 'down'}")
            self.env.fabric.link(self.env.fabric.ports[self.node.name, f"eth{self.plan.theirs.index(nid)}"], up)
        h = step.header
        if h.portal == 0 and h.mtype == wire.GET:
            self.node.pings[h.handle] = (h.dst, h.sink, h.offset, asyncio.get_running_loop().create_future())
        elif h.portal == 0:
            self.node.pushes[h.handle] = (h.dst, h.plen, asyncio.get_running_loop().create_future())
        self.node.send(h, step.payload, via=(self.ni[step.nid], h.dst))

    async def _ask(self, step):
        h = step.header
        info = wire.unpack_ping(self.plan.answers[h.handle][1])
        rows = (await self.router.rpc("ping", nid=str(h.dst), source=str(h.src), timeout_ms=20000))["ping"]
        assert [ni["nid"] for ni in rows[0]["peer_ni"] if not ni["nid"].endswith("@lo")] == [str(n) for n, _ in info.nis], rows

    def _before(self, i):
        return [s for s in self.plan.steps[:i] if s.what in ("answer", "ask", "push") and not s.done]

    async def play(self):
        self.playing = True
        for i, step in enumerate(self.plan.steps):
            if step.what not in ("send", "ask", "link"):
                continue
            await self.env.until(lambda i=i: not self._before(i), f"{self.node.name}: what came before step {i} ({step.header})", 15)
            if step.what == "link":
                await self._link(step)
            elif step.what == "ask":
                await self._ask(step)
            else:
                self._send(step)
        await self.env.until(lambda: not self._before(len(self.plan.steps)), f"{self.node.name}: the rest of the script", 15)

    def differences(self):
        """Names of DIFFERENCES, with how often each occurs. A PUSH between the recorded NIs must have the recorded bytes."""
        found, left = Counter(), list(self.live)
        for kind, header, payload in self.plan.own:
            if kind == "ping":
                continue
            if kind != "push":
                found[kind] += 1
                continue
            mine = [m for m in left if m[0].mtype == wire.PUT]
            same = next((m for m in mine if (m[0].src, m[0].dst) == (header.src, header.dst)), None)
            if same:
                wrong = self.wrong((header, payload), same[0], same[1], (HANDLE,), same[2])
                found[f"not as recorded: {wrong}"] += bool(wrong)
            else:
                found["push by choice of NI" if mine else "push that Millrace does not make"] += 1
            if mine:
                left.remove(same or mine[0])
        found.update("first push" if h.mtype == wire.PUT else f"ping that the kernel node does not make: {h}" for h, *_ in left)
        return +found


async def play_end(env, node, r, plan):
    """Plays one script. Returns what Millrace does otherwise by itself."""
    player = EndPlayer(env, node, r, plan)
    if plan.prior:
        await player.first_contact()
    await player.play()
    assert not env.problems, env.problems[0]
    for n in {c.peer.nid for c in node.conns()}:
        assert n in plan.ours, n
    differs = player.differences()
    env.log(f"{dict(Counter(s.what for s in plan.steps))}, {player.more} answers more")
    for kind, count in sorted(differs.items()):
        env.log(f"differs {count} times: {kind}: {DIFFERENCES.get(kind)}")
    return differs


async def lost_ping(env, node, r, plan, timeout):
    """A ping on a connection of the node's life before is lost, and not sent again. timeout: of the ping, s."""
    kind, header, _ = plan.own[0]
    assert kind == "ping without answer", plan.own
    try:
        await r.rpc("ping", nid=str(header.dst), source=str(header.src), timeout_ms=1000 * timeout)
        raise AssertionError("a ping was answered by a node that is no more")
    except RpcError as e:
        env.log(f"the ping: {e}")
    assert not node.received, node.received
    return header
