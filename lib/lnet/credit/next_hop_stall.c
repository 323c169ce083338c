/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Next hops that are connected and do not read, looked for while others wait.
 *
 * A next hop that holds no router buffer must find one soon. The share of a next hop sees to that
 * against a few that do not read; but as many of them as there are buffers hold one each. So while
 * a header waits whose next hop holds none, the next hops that hold some are looked at on their
 * homes: how much were they given, and how much of that have they taken half a second later? A next
 * hop that took no twentieth loses its connections, and its messages are dropped. For a while it
 * counts as not connected, so that all such next hops have the share of those. A header may also
 * wait since its own next hop holds its share. Then messages of its sender to others wait behind
 * it. So if several such next hops took nothing for longer, all of them lose their connections. One
 * alone may be a server that pauses.
 *
 * Router credits are held by what next hops take too slowly as well. Many nodes that ask a server
 * for much and do not read it would hold all of the server's. So a message whose next hop gives no
 * buffer back for a moment holds no credit any more: the shares of the pools bound such messages.
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
#define SLOW_US    200000ull  /* … is slow: its messages hold no router credits */
#define SLOW_S     10         /* so long nothing does that goes to others than quick next hops */

/* Whether a header waits as its next hop holds no buffer and there is none, or no memory. */
static bool starves(const struct lnet_rx *rx)
{
    if (rx->wait != LNET_RX_WAIT_BUFFER || rx->account->held[rx->pool] > 0 ||
        lnet_waits_for_unconnected(rx))
        return false;
    return (rx->lacks ? rx->lacks : lnet_next_hop_why(rx)) == LNET_DROP_BUFFER_WAIT;
}

/* Whether a header has waited for long, as its next hop has its share. */
static bool held_up(const struct lnet_rx *rx, uint64_t now)
{
    return rx->wait == LNET_RX_WAIT_BUFFER && rx->account->held[rx->pool] > 0 &&
           now - rx->begun_us >= LONG_US && !lnet_waits_for_unconnected(rx);
}

/* ---- router credits ---- */

static bool bounded_by_share(const struct lnet_msg *msg, uint64_t now)
{
    return msg->unconnected || now - msg->account->moved_us[msg->pool] >= SLOW_US ||
           (!msg->quick && now < msg->rx_peer->slow_hops_until_s * 1000000ull);
}

void lnet_credit_unless_taken(struct lnet_msg *msg, uint64_t now)
{
    if (msg->received && bounded_by_share(msg, now))
        lnet_return_router_credit(msg);
}

void lnet_credits_look(struct lnet_shard *s)
{
    uint64_t now = reactor_now_us();
    const struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &s->credit->waiting, age)
        if (rx->wait == LNET_RX_WAIT_CREDIT && now - rx->begun_us >= SLOW_US)
            break;
    for (unsigned i = 0; rx && i < s->total_msgs; i++) {
        struct lnet_msg *msg = &s->msgs[i];

        if (!msg->router_credit || msg->rx_peer->rtr_waiting == 0)
            continue;
        lnet_credit_unless_taken(msg, now);
        if (!msg->router_credit)
            msg->rx_peer->slow_hops_until_s = (uint32_t)(now / 1000000) + SLOW_S;
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
    relaxed_store(&node->any_stalled_s, max(until, relaxed_load(&node->any_stalled_s)));
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

    for (unsigned i = 0; w->headers > 0 && i < LNET_POOLS; i++) {
        if (d->held[i] > 0 && now - d->moved_us[i] < idle_us)
            return false;
        some |= w->pool[i] && d->held[i] > 0;
    }
    return w->headers > 0 && some;
}

/* Whether several next hops hold what headers wait for, and have given none back for long. */
static bool several_pause(struct lnet_shard *s, const struct wanted *w, uint64_t now)
{
    unsigned n = 0;

    for (unsigned i = 0; w->headers > 0 && i < s->total_msgs && n < SEVERAL; i++) {
        struct lnet_next_hop *d = s->msgs[i].account;

        if (!d || d->gateway || d->look.counted_us == now || !holds(d, w, PAUSE_US - STALL_US, now))
            continue;
        d->look.counted_us = now;
        n++;
    }
    return n == SEVERAL;
}

void lnet_next_hops_look(struct lnet_shard *s)
{
    struct lnet_credit_shard *c = s->credit;
    struct wanted starving = {0}, held_back = {0};
    uint64_t now = reactor_now_us();
    const struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &c->waiting, age)
        if (starves(rx))
            want(&starving, rx);
        else if (held_up(rx, now))
            want(&held_back, rx);
    if (!several_pause(s, &held_back, now))
        held_back.headers = 0;
    for (unsigned i = 0; (starving.headers > 0 || held_back.headers > 0) && i < s->total_msgs &&
                         c->looks < LNET_LOOKS;
         i++) {
        struct lnet_next_hop *d = s->msgs[c->look_at].account;
        bool again, all;

        c->look_at = (c->look_at + 1) % s->total_msgs;
        if (!d || d->gateway || d->look.away || now - d->look.us < STALL_US)
            continue;
        again = d->look.target > 0 && now - d->look.us < LATE_US;
        all = holds(d, &starving, IDLE_US - (again ? 0 : STALL_US), now) ||
              holds(d, &held_back, PAUSE_US - (again ? 0 : STALL_US), now);
        if (!all && !holds(d, &starving, 0, now))
            continue;
        look_at(s, d, again, now);
        if (!all)
            starving.headers -= again; /* it costs one next hop its connections at most */
    }
}
