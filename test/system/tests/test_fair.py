# SPDX-License-Identifier: BSD-3-Clause
"""Nodes that ask for more than their share of what all use: others get theirs meanwhile."""

from lnetpy.hostile import V4, beside
from lnetpy.scene import cases, deadline, only

FEW = {"one address": 1, "two addresses": 2}


def after(count):
    async def until(r, attack):
        attack.last()
        return (await r.stats())["recv_count"] + (await r.stats())["drop_count"] > count
    return until


@only("kernel", "port")
@deadline(90)
@cases(*FEW)
async def test_destinations(env, who):
    """Messages for ever new nodes that there are not: others' messages find their peer NIs and buffers at once."""
    env.need_millrace()
    r = await beside(env, "strangers", V4, FEW[who], after(500), per=2)
    drops = await r.drops()
    assert drops["next_hop_unreachable"] + drops["no_peer_memory"] + drops["unconnected_share_expired"] > 20, drops


@only("kernel", "port")
@deadline(90)
@cases(*FEW)
async def test_pings(env, who):
    """Thousands of pings of the router in a second: it answers others' at once."""
    env.need_millrace()
    await beside(env, "askers", V4, FEW[who], after(20000), per=2)


@only("kernel", "port")
@deadline(90)
@cases(*FEW)
async def test_chosen_askers(env, who):
    """The pings come from addresses that shared a slot of 1,024 with the bystander's when slots went by a hash without a key."""
    env.need_millrace()
    chosen = (163, 235)[:FEW[who]]
    await beside(env, "askers", ("10.30.0.", "10.30.1."), chosen, after(20000), per=2)


@only("kernel", "port")
@deadline(90)
@cases(*FEW)
async def test_pushes(env, who):
    """PUSHes in the names of 65,536 nodes behind another router: none makes an entry."""
    env.need_millrace()
    r = await beside(env, "forgers", V4, FEW[who], after(20000), per=2,
                     router={"routes": [{"net": "tcp9", "gateway": "10.0.0.77@tcp", "hop": 1}]})
    assert (await r.drops())["push_source"] > 10000
