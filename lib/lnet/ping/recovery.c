/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recovery pings: to peer NIs that are not healthy, as their homes ask for them
 * (health/recovery.c), and from NIs that are not. Node home. docs/protocol/lnet-core.md §6.3.
 *
 * A kernel node recovers an NI by a ping of its own NID, which never reaches a link. Here the NI
 * pings a neighbour on its net: a gateway, or a peer that answers, or a gateway that is silent. If
 * there is none, its link says that it works.
 *
 * All pings under way have a slot each; who finds none tries again with the next tick. A ping that
 * the LND cannot send keeps its slot for the LND timeout, so a NID, and a prefix, has a share.
 */
#include "lib/base/minmax.h"
#include "lib/base/share.h"
#include "lib/lnet/health/health.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/ping/ping_internal.h"

#include <errno.h>
#include <stdlib.h>

#define PINGS       160 /* under way at once */
#define NI_PINGS    32  /* of these, kept for NIs of ours */
#define ANSWER_US   5000000ull
#define PEER_LOOKS  128 /* peers looked at for an NI, in one tick */
#define RECOVERY_IN 272 /* bytes that a ping asks for */
#define PING_STEPS  3   /* by which one that is answered raises an NI: sent, received, answered */

struct recovery_ping {
    struct lnet_ping_op op;
    struct lnet_nid ni; /* that it recovers, or ANY */
    struct share_account *account;
    struct recovery_ping *next;
    struct lnet_recovery *recovery;
    uint8_t data[RECOVERY_IN];
};

struct lnet_recovery {
    struct recovery_ping slot[PINGS], *free;
    unsigned nfree;
    struct share share;          /* of the slots */
    unsigned gw_turn, peer_turn; /* whom the next NI pings */
};

/* ---- one ping ---- */

static void answered(struct lnet_ping_op *op, const struct lnet_ping_info *info)
{
    struct recovery_ping *g = container_of(op, struct recovery_ping, op);
    struct lnet_ni *ni = nid_is_any(&g->ni) ? NULL : lnet_ni_find(op->node, &g->ni);

    if (ni)
        lnet_health_ni_raise(ni);
}

static void done(struct lnet_ping_op *op)
{
    struct recovery_ping *g = container_of(op, struct recovery_ping, op);

    share_give(&g->recovery->share, g->account);
    g->next = g->recovery->free;
    g->recovery->free = g;
    g->recovery->nfree++;
}

/* A silent neighbour is no proof against the peer NI when an NI of ours is in doubt. */
static const struct lnet_ping_kind peer_kind = {
    .count_timeout = true, .once = true, .answered = answered, .done = done};
static const struct lnet_ping_kind ni_kind = {.once = true, .answered = answered, .done = done};

static struct share_account *account_of(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_nid prefix = lnet_nid_prefix(node, nid);
    const bool same = nid_same(&prefix, nid);

    prefix.type = LNET_LND_ANY;
    return share_of(&node->ping->recovery->share, nid, same ? NULL : &prefix);
}

static bool ping(struct lnet_node *node, const struct lnet_nid *to, const struct lnet_nid *from,
                 const struct lnet_nid *ni)
{
    struct lnet_recovery *r = node->ping->recovery;
    const bool of_peer = nid_is_any(ni);
    struct recovery_ping *g = of_peer && r->nfree <= NI_PINGS ? NULL : r->free;
    struct share_account *a = g ? account_of(node, to) : NULL;
    uint64_t most_us = relaxed_load(&node->health.transaction_timeout) * 1000000ull;

    if (!a)
        return false;
    if (of_peer && !share_may(a, r->nfree - NI_PINGS)) {
        share_drop(&r->share, a);
        return false;
    }
    share_take(a);
    g->account = a;
    r->free = g->next;
    r->nfree--;
    g->ni = *ni;
    g->op.node = node;
    g->op.kind = of_peer ? &peer_kind : &ni_kind;
    g->op.target = *to;
    lnet_ping_op_start(&g->op, from, g->data, sizeof(g->data), min(most_us, ANSWER_US));
    return true;
}

/* ---- peer NIs ---- */

/* The ping goes to this NID, not to another one of its peer: so it is sent from a given NI. */
static bool ping_peer(struct lnet_node *node, const struct lnet_nid *nid)
{
    const struct lnet_route *route;
    struct lnet_path path;

    if (lnet_choose(lnet_shard_self(node), nid, &LNET_NID_ANY, NULL, &path, &route))
        return true; /* it counts as one that failed */
    return ping(node, nid, &path.ni->nid, &LNET_NID_ANY);
}

static void ping_peers(struct reactor_task *task)
{
    struct lnet_health_shard *h = container_of(task, struct lnet_health_shard, pings);

    for (unsigned i = 0; i < h->npings && !h->shard->node->ping->stopped; i++)
        h->ping[i].begun = ping_peer(h->shard->node, &h->ping[i].nid);
    lnet_recovery_begun(h);
}

/* ---- NIs ---- */

/* Returns the gateway's peer NI on a net that is to be pinged next, of those that are silent or of
 * the others; NULL: there is none. */
static const struct lnet_nid *gateway_on(struct lnet_recovery *r, const struct lnet_conf *conf,
                                         lnet_net_t net, bool silent)
{
    for (unsigned i = 0; i < conf->ngws_known; i++) {
        const struct lnet_conf_gw *g = &conf->gw[r->gw_turn++ % conf->ngws_known];

        for (unsigned k = 0; k < g->nnis; k++)
            if (g->ni[k].net && g->ni[k].net->net == net &&
                lnet_gw_ni_silent(g->ni[k].ni) == silent)
                return &g->ni[k].ni->nid;
    }
    return NULL;
}

static const struct lnet_nid *peer_on(struct lnet_recovery *r, const struct peer_table *t,
                                      lnet_net_t of)
{
    const struct peer_net *net;
    const struct peer_ni *ni;

    for (unsigned i = 0; i < PEER_LOOKS && i < t->highest; i++) {
        const struct peer *p = &t->peers[r->peer_turn++ % t->highest];

        if (!p->nnis || !p->answered)
            continue;
        TAILQ_FOREACH(net, &p->nets, link)
            TAILQ_FOREACH(ni, &net->nis, link)
                if (net->net == of && ni->status != LNET_NI_DOWN && !peer_ni_merely_listed(ni))
                    return &ni->nid;
    }
    return NULL;
}

/* Returns false if there is no slot. */
static bool ping_from(struct lnet_ni *ni)
{
    struct lnet_recovery *r = ni->node->ping->recovery;
    const struct lnet_conf *conf = lnet_conf_get(ni->node);
    const struct lnet_nid *to = gateway_on(r, conf, ni->net, false);

    if (!to)
        to = peer_on(r, ni->node->peers, ni->net);
    if (!to) /* it may be silent because of the NI */
        to = gateway_on(r, conf, ni->net, true);
    if (to)
        return ping(ni->node, to, &ni->nid, &ni->nid);
    for (unsigned i = 0; i < PING_STEPS; i++)
        lnet_health_ni_raise(ni);
    return true;
}

void lnet_recovery_ni(struct lnet_ni *ni)
{
    bool wanted = ni->health != LNET_MAX_HEALTH && lnet_ni_is_active(ni);

    if (wanted && !ni->recovering)
        relaxed_store(&ni->next_ping_us, lnet_recovery_next_us(ni->node, ni->ping_count));
    if (!wanted) {
        relaxed_store(&ni->ping_count, 0);
        relaxed_store(&ni->next_ping_us, 0);
    }
    relaxed_store(&ni->recovering, wanted);
}

/* A link that is down is not pinged over: its end is what recovers the NI. */
void lnet_recovery_tick(struct lnet_node *node)
{
    const struct lnet_conf *conf = lnet_conf_get(node);
    uint64_t now = reactor_now_us();

    for (unsigned i = 0; i < conf->nnis; i++) {
        struct lnet_ni *ni = conf->ni[i];

        if (!ni->recovering || ni->fatal || now < ni->next_ping_us)
            continue;
        if (!ping_from(ni) || !ni->recovering)
            continue;
        relaxed_store(&ni->ping_count, (uint8_t)min(ni->ping_count + 1, UINT8_MAX));
        relaxed_store(&ni->next_ping_us, lnet_recovery_next_us(node, ni->ping_count));
    }
}

/* ---- rows ---- */

struct recovery_request {
    struct lnet_node *node;
    lnet_recovery_fn fn;
    void *arg;
    struct reactor_task task;
    unsigned reactor, n, total;
    struct lnet_nid nid[LNET_RECOVERY_MAX];
};

static void row(struct recovery_request *q, const struct lnet_nid *nid)
{
    if (q->n < LNET_RECOVERY_MAX)
        q->nid[q->n++] = *nid;
    q->total++;
}

static void deliver(struct reactor_task *task)
{
    struct recovery_request *q = container_of(task, struct recovery_request, task);

    q->fn(q->arg, q->nid, q->n, q->total);
    free(q);
}

static void finish(struct recovery_request *q)
{
    q->task.fn = deliver;
    reactor_post(reactor_control(q->node->env), &q->task);
}

static void collect_nis(struct reactor_task *task)
{
    struct recovery_request *q = container_of(task, struct recovery_request, task);
    const struct lnet_conf *conf = lnet_conf_get(q->node);

    for (unsigned i = 0; i < conf->nnis; i++)
        if (conf->ni[i]->recovering)
            row(q, &conf->ni[i]->nid);
    finish(q);
}

/* On each reactor in turn. */
static void collect_peers(struct reactor_task *task)
{
    struct recovery_request *q = container_of(task, struct recovery_request, task);
    const struct lnet_peer_shard *peers = q->node->shard[q->reactor]->peer;
    unsigned before = q->total;
    const struct lnet_peer_ni *p;

    TAILQ_FOREACH(p, &peers->recovering, recovery) {
        if (q->n == LNET_RECOVERY_MAX)
            break;
        row(q, &p->nid);
    }
    q->total = before + peers->nrecovering;
    if (++q->reactor < q->node->nshards)
        reactor_post(q->node->shard[q->reactor]->reactor, task);
    else
        finish(q);
}

int lnet_recovery_get(struct lnet_node *node, bool local, lnet_recovery_fn fn, void *arg)
{
    struct recovery_request *q = lnet_request_alloc(sizeof(*q));

    if (!q)
        return -ENOMEM;
    q->node = node;
    q->fn = fn;
    q->arg = arg;
    q->task.fn = local ? collect_nis : collect_peers;
    reactor_post(local ? lnet_node_home(node) : node->shard[0]->reactor, &q->task);
    return 0;
}

/* ---- life ---- */

int lnet_recovery_start(struct lnet_ping *p)
{
    struct lnet_recovery *r = p->recovery = calloc(1, sizeof(*r));

    if (!r || !share_init(&r->share, PINGS + 1)) /* and that of one that is refused */
        return -ENOMEM;
    r->nfree = PINGS;
    for (unsigned i = PINGS; i-- > 0;) {
        r->slot[i].recovery = r;
        r->slot[i].next = r->free;
        r->free = &r->slot[i];
    }
    lnet_recovery_on_pings(p->node, ping_peers);
    return 0;
}

void lnet_recovery_fini(struct lnet_ping *p)
{
    if (p->recovery)
        share_fini(&p->recovery->share);
    free(p->recovery);
}
