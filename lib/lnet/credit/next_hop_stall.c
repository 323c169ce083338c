/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Next hops that are connected and do not read, looked for while others wait.
 *
 * A next hop that holds no router buffer must find one soon. The share of a next hop sees to that
 * against a few that do not read; but as many of them as there are buffers hold one each. So while
 * a header waits whose next hop holds none, the next hops that hold some are looked at on their
 * homes: how much were they given, and how much of that have they taken half a second later? A next
 * hop that took no twentieth loses its connections, and its messages are dropped. For a while it
 * counts as not connected, so that all such next hops have the share of those. All next hops that
 * took nothing for longer lose them together, but not if their net was silent meanwhile.
 *
 * A header may also wait since its own next hop holds its share. Then messages of its sender to
 * others wait behind it. So if several such next hops took nothing for longer, all of them lose
 * their connections. One alone may be a server that pauses.
 *
 * Many nodes that ask a server for much and read it slowly would hold all router credits of the
 * server. So while a header waits for one, a message that its next hop has had for a moment holds
 * none any more: the shares of the pools bound such messages.
 *
 * Gateways are not looked at: their checks decide.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/peer/peer_ni.h"

#define STALL_US   500000ull  /* between two looks at a next hop: one that takes nothing stalls */
#define LATE_US    2000000ull /* so long after a look it says nothing any more */
#define TAKEN_PART 20         /* of what it was given: that is something */
#define STALLED_S  60         /* so long a next hop counts as not connected afterwards … */
#define AGAIN_S    300        /* … and so long when it does it again within that time */
#define IDLE_US    1000000ull /* all that gave no buffer back for so long lose their connections */
#define LONG_US    500000ull /* a header has waited for long for what its own next hop holds; … */
#define PAUSE_US   2000000ull /* … then all of these do, … */
#define SEVERAL    3          /* … if there are so many: one may be a server that pauses */
#define SLOW_US    200000ull /* a message that was received so long ago may hold no router credit */
#define SLOW_S     10        /* so long nothing does that goes to others than quick next hops */

/* Whether a header waits as its next hop holds no buffer and there is none, or no memory. */
static bool starves(const struct lnet_rx *rx)
{
    return rx->wait == LNET_RX_WAIT_BUFFER && rx->account->held[rx->pool] == 0 &&
           !lnet_waits_for_unconnected(rx) && lnet_buffer_why(rx) == LNET_DROP_BUFFER_WAIT;
}

/* Whether a header has waited for long while its next hop, an end node, holds some. */
static bool held_up(const struct lnet_rx *rx, uint64_t now)
{
    enum lnet_drop why;

    if (rx->wait != LNET_RX_WAIT_BUFFER || rx->account->held[rx->pool] == 0 ||
        rx->account->gateway || now - rx->begun_us < LONG_US || lnet_waits_for_unconnected(rx))
        return false;
    why = lnet_buffer_why(rx);
    return why == LNET_DROP_DEST_SHARE || why == LNET_DROP_BUFFER_WAIT;
}

/* ---- router credits ---- */

void lnet_credit_early(struct lnet_msg *msg)
{
    if (msg->received &&
        (msg->unconnected ||
         (!msg->quick && reactor_now_us() < msg->rx_peer->slow_hops_until_s * 1000000ull)))
        lnet_return_router_credit(msg);
}

static bool credit_wanted(const struct lnet_shard *s, uint64_t now)
{
    const struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &s->credit->waiting, age)
        if (rx->wait == LNET_RX_WAIT_CREDIT && now - rx->begun_us >= SLOW_US / 2)
            return true;
    return false;
}

/* A message that a look has seen before was received before that. */
void lnet_credits_look(struct lnet_shard *s)
{
    uint64_t now = reactor_now_us();

    if (now - s->credit->credits_us < SLOW_US || !credit_wanted(s, now))
        return;
    s->credit->credits_us = now;
    for (unsigned i = 0; i < s->total_msgs; i++) {
        struct lnet_msg *msg = &s->msgs[i];

        if (!msg->router_credit || !msg->received || msg->rx_peer->rtr_waiting == 0)
            continue;
        if (msg->seen) {
            lnet_return_router_credit(msg);
            msg->rx_peer->slow_hops_until_s = (uint32_t)(now / 1000000) + SLOW_S;
        }
        msg->seen = true;
    }
}

/* ---- on the home of the next hop ---- */

static void close_stalled(struct lnet_node *node, const struct lnet_conf_net *net,
                          struct lnet_peer_ni *peer)
{
    uint32_t *at = &node->stalled_s[nid_hash(&peer->nid) % LNET_CONNECTED];
    uint32_t now = (uint32_t)(reactor_now_us() / 1000000), before = relaxed_load(at);
    uint32_t until = now + (before > 0 && now < before + AGAIN_S ? AGAIN_S : STALLED_S);

    relaxed_store(at, until);
    relaxed_store(&node->any_stalled_s, now + AGAIN_S); /* or before that */
    lnet_peer_ni_hold(peer);
    for (unsigned i = 0; i < net->nni; i++)
        net->ni[i]->lnd->peer_abort(net->ni[i], peer, LNET_DROP_NEXT_HOP_STALLED);
    for (unsigned i = 0; i < net->nni; i++)
        lnet_peer_ni_notify(net->ni[i], peer, false);
    lnet_peer_ni_put(peer);
}

static void back(struct reactor_task *task)
{
    struct lnet_next_hop *d = container_of(task, struct lnet_next_hop, look.task);
    struct lnet_shard *s = d->look.shard;

    lnet_next_hop_moves(s, d);
    d->idle = d->look.idle;
    s->credit->idle += d->idle;
    d->look.away = false;
    s->credit->looks--;
    lnet_next_hop_put(s, d);
}

/* Returns how many messages have come from a net, on all reactors. */
static uint64_t heard_from(const struct lnet_node *node, const struct lnet_conf_net *net)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < node->nshards; i++)
        for (unsigned k = 0; k < net->nni; k++)
            for (unsigned type = 0; type < LNET_MSG_TYPES; type++)
                n += relaxed_load(&node->shard[i]->ni_stats[net->ni[k]->index].received[type]);
    return n;
}

static void look(struct reactor_task *task)
{
    struct lnet_next_hop *d = container_of(task, struct lnet_next_hop, look.task);
    struct lnet_next_hop_look *l = &d->look;
    struct lnet_node *node = l->shard->node;
    const struct lnet_conf_net *net = lnet_net_find(node, nid_net(&d->nid));
    struct lnet_peer_ni *peer = lnet_peer_ni_find_here(node, &d->nid);
    bool there = net && peer; /* the net may have been removed meanwhile */
    uint64_t heard = there ? heard_from(node, net) : 0;
    struct lnd_peer_info info = {0};

    if (there && net->ni[0]->lnd->peer_info)
        net->ni[0]->lnd->peer_info(peer, &info);
    /* Less than before: a connection of it has ended, and the count with it. */
    l->idle = there && l->again && !peer->gw_ni && info.taken >= l->taken && info.taken < l->target;
    if (l->idle && l->cut && (!l->guarded || heard != l->heard)) {
        close_stalled(node, net, peer);
        l->idle = false;
        info.owed = 0;
    }
    l->taken = info.taken;
    l->target = info.owed > 0 ? info.taken + max(info.owed / TAKEN_PART, 1ull) : 0;
    l->heard = heard;
    l->task.fn = back;
    reactor_post(l->shard->reactor, &l->task);
}

/* ---- on the shard that lacks buffers ---- */

static void look_at(struct lnet_shard *s, struct lnet_next_hop *d, uint64_t now)
{
    d->refs++;
    s->credit->looks++;
    d->look.away = true;
    d->look.us = now;
    d->look.shard = s;
    d->look.task.fn = look;
    reactor_post(lnet_nid_home(s->node, &d->nid), &d->look.task);
}

/* The pools that headers wait for: of those that starve, or of those that are held up. */
struct wanted {
    unsigned headers;
    bool pool[LNET_POOLS], memory;
};

static void want(struct wanted *w, const struct lnet_rx *rx)
{
    w->headers++;
    w->pool[rx->pool] = true;
    w->memory |= rx->lacks != LNET_DROP_NONE;
}

/* Whether a next hop holds what is short, and has given no buffer of it back for so long. */
static bool holds(const struct lnet_next_hop *d, const struct wanted *w, uint64_t idle_us,
                  uint64_t now)
{
    bool some = w->memory && d->memory > 0;

    for (unsigned i = 0; i < LNET_POOLS; i++) {
        if (!w->pool[i] || d->held[i] == 0)
            continue;
        if (now - d->moved_us[i] < idle_us)
            return false;
        some = true;
    }
    return some;
}

/* Sets what a look at a next hop is for. Returns false if there is no reason for one. */
static bool reason_to_look(const struct lnet_shard *s, struct lnet_next_hop *d,
                           const struct wanted *starving, const struct wanted *held_back,
                           uint64_t now)
{
    struct lnet_next_hop_look *l = &d->look;
    bool again = l->target > 0 && now - l->us < LATE_US;
    uint64_t before = again ? 0 : STALL_US;
    bool one = starving->headers > 0 && holds(d, starving, 0, now);
    bool all = holds(d, starving, IDLE_US - before, now);

    if (!one && !all && !holds(d, held_back, PAUSE_US - before, now))
        return false;
    l->again = again;
    l->cut = one || all || s->credit->idle >= SEVERAL;
    l->guarded = !one;
    return true;
}

void lnet_next_hops_look(struct lnet_shard *s)
{
    struct lnet_credit_shard *c = s->credit;
    struct wanted starving = {0}, held_back = {0};
    uint64_t now = reactor_now_us();
    const struct lnet_rx *rx;
    bool any = false;

    TAILQ_FOREACH(rx, &c->waiting, age) {
        bool starved = starves(rx);

        if (starved || held_up(rx, now)) {
            want(starved ? &starving : &held_back, rx);
            any = true;
        }
    }
    for (unsigned i = 0; any && i < s->total_msgs && c->looks < LNET_LOOKS; i++) {
        struct lnet_next_hop *d = s->msgs[c->look_at].account;

        c->look_at = (c->look_at + 1) % s->total_msgs;
        if (!d || d->gateway || d->look.away || now - d->look.us < STALL_US ||
            !reason_to_look(s, d, &starving, &held_back, now))
            continue;
        look_at(s, d, now);
        starving.headers -= d->look.again && !d->look.guarded;
    }
}
