# SPDX-License-Identifier: BSD-3-Clause
"""The recordings E-05 and E-06 with millraced in the place of one of two o2ib end nodes, of which one loses its power and comes
back: replay_end of test/system/lnetpy, as its tests replay E-02 and E-04.

In E-05 the node that comes back has a queue pair number that it had before, so the connection manager of the other one refuses its
first call (reason 10).
"""

from collections import Counter
from contextlib import asynccontextmanager

from iblnd import wire as W
from iblnd.recording import decode_file
from lnetpy import replay_end
from lnetpy.env import find_golden
from peers import new_rxe0
from router import alone
from scene import address, unplugged

AT = 5      # s from the first message: the power is off
OURS, THEIRS = 0, 1     # devices


class Scene:
    """Both nodes, and what the recording has before and after the crash."""

    def __init__(self, env, name, ours, steps):
        """steps: how many before and after, counted by eye from the list of the recording's messages."""
        self.env = env
        self.plans = [replay_end.make_plan(find_golden(), name, ours, decode=decode_file, **part) for part in ({"end": AT}, {"begin": AT})]
        for plan, count in zip(self.plans, steps):
            got = Counter(s.what for s in plan.steps)
            assert got == count, (name, got)
        (self.ours,), (self.theirs,) = self.plans[0].ours, self.plans[0].theirs

    @classmethod
    @asynccontextmanager
    async def open(cls, *args):
        s = cls(*args)
        with address(OURS, s.ours.ip), address(THEIRS, s.theirs.ip):
            await s.begin()
            yield s
            s.node.stop()
            await s.r.stop()

    async def begin(self):
        new_rxe0()      # its numbers begin anew with it
        self.r = r = self.env.prepare("r", str(self.ours), routing=False)
        await r.start()
        await r.ready()
        r.spec.gateways, r.spec.ping_sinks = {self.theirs}, {3960}
        self.node = await self.env.ib("h", str(self.theirs))
        await self.play(0)
        assert len(self.node.conns()) == 1 and not self.node.closes, (self.node.conns(), self.node.closes)

    async def play(self, part, **differs):
        found = await replay_end.play_end(self.env, self.node, self.r, self.plans[part])
        assert found == differs, dict(found)

    async def they_crash(self):
        """Nothing that the node sends now arrives, nor later. Returns its queue pair's number and its stamp."""
        old = self.node.conns()[0].queue_pair(), self.node.ni.stamp
        with unplugged(THEIRS):
            self.node.stop()
        self.env.nodes.remove(self.node)
        self.node = await self.env.ib("h", str(self.theirs))
        return old

    async def we_crash(self):
        with unplugged(OURS):
            self.r.crash()
            new_rxe0()
        await self.r.restart()
        await self.r.ready()

    def rejects(self):
        """Those that the node received: (reason of the connection manager, o2iblnd's)."""
        return [(status, rej and rej.why) for status, rej in self.node.ni.peer(self.ours).rejects]


@alone
async def test_replay_they_return(env):
    """E-05: the peer comes back and calls. Two rejects are recorded: the connection manager's, and STALE by o2iblnd, where Millrace lets
    the peer in and closes the connection of its last life (§1.7 row 13)."""
    async with Scene.open(env, "E-05", "192.168.10.4@o2ib", ({"ask": 1}, {"send": 1, "answer": 1, "ask": 1})) as s:
        s.node.ni.lost_queue_pair, _ = await s.they_crash()
        await s.play(1)
        assert s.rejects() == [(W.CM_STALE, None)], s.rejects()
        assert len(s.node.conns()) == 1 and not s.node.closes, (s.node.conns(), s.node.closes)


@alone
async def test_replay_we_return(env):
    """E-05: Millrace comes back and calls. It passes both rejects at once, the second one with the stamp that it was told."""
    async with Scene.open(env, "E-05", "192.168.10.5@o2ib", ({"send": 1, "answer": 1}, {"ask": 1, "send": 1, "answer": 1})) as s:
        s.node.ni.requests.clear()
        await s.we_crash()
        await s.play(1)
        ni = s.node.ni
        assert [x.why for x in ni.rejects_sent] == [W.STALE], ni.rejects_sent
        assert [m.dst_stamp for m in ni.requests] == [0, ni.stamp], ni.requests
        assert (await s.r.drops())["o2ib_dial_refused"] == 2, await s.r.drops()
        assert len(s.node.conns()) == 1, s.node.conns()


@alone
async def test_replay_we_send_first(env):
    """E-06: Millrace sends to the dead queue pair: the ping fails once the device gives up, is not sent again, and the next one
    connects. No reject is recorded, as a kernel forgets the peer's stamp with its last connection (§6.2). Millrace keeps it for a while,
    and passes a STALE."""
    async with Scene.open(env, "E-06", "192.168.10.4@o2ib", ({"ask": 1}, {"ask": 1})) as s:
        _, stamp = await s.they_crash()
        began = env.now()
        await replay_end.lost_ping(env, s.node, s.r, s.plans[1], 25)
        took = env.now() - began
        await s.play(1, **{"ping without answer": 1})
        ni = s.node.ni
        assert [x.why for x in ni.rejects_sent] == [W.STALE] and not s.rejects(), (ni.rejects_sent, s.rejects())
        assert [m.dst_stamp for m in ni.requests] == [stamp, ni.stamp], ni.requests
        assert len(s.node.conns()) == 1, s.node.conns()
        lost = {k: n for k, n in (await s.r.drops()).items() if n}
        assert lost == {"o2ib_send_failed": 1, "next_hop_connection_lost": 1, "o2ib_dial_refused": 1}, lost
        return f"after {took:.1f} s"
