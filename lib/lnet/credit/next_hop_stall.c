/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Next hops that are connected and do not read, looked for while others wait for a router buffer. A
 * next hop that holds none must find one soon. The share of a next hop sees to that against a few
 * that do not read; but as many of them as there are buffers hold one each.
 *
 * While a header waits whose next hop holds none, the next hops that hold some are looked at on
 * their homes: how much were they given, and how much of that have they taken half a second later?
 * A next hop that took no twentieth loses its connections, and its messages are dropped. For a
 * while it counts as not connected, so that all such next hops have the share of those.
 *
 * Gateways are not looked at: their checks decide.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/peer/peer_ni.h"

#define STALL_US   500000ull  /* between two looks at a next hop: one that takes nothing stalls */
#define LATE_US    2000000ull /* so long after a look it says nothing any more */
#define TAKEN_PART 20         /* of what it was given: that is something */
#define STALLED_S  20         /* so long a next hop counts as not connected afterwards */

/* Whether a header waits as its next hop holds no buffer and there is none, or no memory. */
static bool starves(const struct lnet_rx *rx)
{
    if (rx->wait != LNET_RX_WAIT_BUFFER || rx->account->held[rx->pool] > 0 ||
        lnet_waits_for_unconnected(rx))
        return false;
    return (rx->lacks ? rx->lacks : lnet_next_hop_why(rx)) == LNET_DROP_BUFFER_WAIT;
}

/* ---- on the home of the next hop ---- */

static void close_stalled(struct lnet_node *node, const struct lnet_conf_net *net,
                          struct lnet_peer_ni *peer)
{
    uint32_t until = (uint32_t)(reactor_now_us() / 1000000) + STALLED_S;

    relaxed_store(&node->stalled_s[nid_hash(&peer->nid) % LNET_CONNECTED], until);
    relaxed_store(&node->any_stalled_s, until);
    lnet_peer_ni_hold(peer);
    for (unsigned i = 0; i < net->nni; i++)
        net->ni[i]->lnd->peer_abort(net->ni[i], peer, LNET_DROP_NEXT_HOP_STALLED);
    lnet_peer_ni_notify(net->ni[0], peer, false);
    lnet_peer_ni_put(peer);
}

static void back(struct reactor_task *task)
{
    struct lnet_next_hop *d = container_of(task, struct lnet_next_hop, look.task);

    d->look.away = false;
    d->look.shard->credit->looks--;
    lnet_next_hop_put(d->look.shard, d);
}

static void look(struct reactor_task *task)
{
    struct lnet_next_hop *d = container_of(task, struct lnet_next_hop, look.task);
    struct lnet_node *node = d->look.shard->node;
    const struct lnet_conf_net *net = lnet_net_find(node, nid_net(&d->nid));
    struct lnet_peer_ni *peer = lnet_peer_ni_find_here(node, &d->nid);
    bool there = net && peer; /* the net may have been removed meanwhile */
    struct lnd_peer_info info = {0};

    if (there && net->ni[0]->lnd->peer_info)
        net->ni[0]->lnd->peer_info(peer, &info);
    /* Less than before: a connection of it has ended, and the count with it. */
    if (there && d->look.again && !peer->gw && info.taken >= d->look.taken &&
        info.taken < d->look.target) {
        close_stalled(node, net, peer);
        info.owed = 0;
    }
    d->look.taken = info.taken;
    d->look.target = info.owed > 0 ? info.taken + max(info.owed / TAKEN_PART, 1ull) : 0;
    d->look.task.fn = back;
    reactor_post(d->look.shard->reactor, &d->look.task);
}

/* ---- on the shard that lacks buffers ---- */

static void look_at(struct lnet_shard *s, struct lnet_next_hop *d, bool again, uint64_t now)
{
    d->refs++;
    s->credit->looks++;
    d->look.away = true;
    d->look.again = again;
    d->look.us = now;
    d->look.shard = s;
    d->look.task.fn = look;
    reactor_post(lnet_nid_home(s->node, &d->nid), &d->look.task);
}

/* Whether a next hop holds what is short and has not been looked at of late. */
static bool due(const struct lnet_next_hop *d, const bool wanted[LNET_POOLS], bool memory,
                uint64_t now)
{
    bool holds = memory && d->memory > 0;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        holds |= wanted[i] && d->held[i] > 0;
    return holds && !d->gateway && !d->look.away && now - d->look.us >= STALL_US;
}

void lnet_next_hops_look(struct lnet_shard *s)
{
    struct lnet_credit_shard *c = s->credit;
    bool wanted[LNET_POOLS] = {0}, memory = false;
    unsigned starving = 0;
    uint64_t now = reactor_now_us();
    const struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &c->waiting, age) {
        if (!starves(rx))
            continue;
        starving++;
        wanted[rx->pool] = true;
        memory |= rx->lacks != LNET_DROP_NONE;
    }
    for (unsigned i = 0; starving > 0 && i < s->total_msgs && c->looks < LNET_LOOKS; i++) {
        struct lnet_next_hop *d = s->msgs[c->look_at].account;
        bool again;

        c->look_at = (c->look_at + 1) % s->total_msgs;
        if (!d || !due(d, wanted, memory, now))
            continue;
        again = d->look.target > 0 && now - d->look.us < LATE_US;
        look_at(s, d, again, now);
        starving -= again; /* it costs one next hop its connections at most */
    }
}
