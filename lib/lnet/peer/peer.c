/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of peers. Node home. */
#include "lib/lnet/peer/peer.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Every gateway finds room. */
static unsigned slots(const struct lnet_node_opts *o)
{
    return lnet_max_peers(o) + LNET_GW_SLOTS;
}

static uint32_t buckets_for(unsigned nslots)
{
    uint32_t buckets = 64;

    while (buckets < nslots)
        buckets *= 2;
    return buckets;
}

size_t lnet_peers_bytes(const struct lnet_node_opts *o)
{
    return slots(o) * sizeof(struct lnet_peer) + buckets_for(slots(o)) * sizeof(struct lnet_peer *);
}

int lnet_peers_init(struct lnet_node *node)
{
    struct lnet_peers *t = calloc(1, sizeof(*t));
    uint32_t buckets;

    node->peers = t;
    if (!t)
        return -ENOMEM;
    TAILQ_INIT(&t->by_age[0]);
    TAILQ_INIT(&t->by_age[1]);
    TAILQ_INIT(&t->to_push[0]);
    TAILQ_INIT(&t->to_push[1]);
    t->max = lnet_max_peers(&node->opts);
    t->nslots = slots(&node->opts);
    buckets = buckets_for(t->nslots);
    t->hash_mask = buckets - 1;
    t->slot = calloc(t->nslots, sizeof(*t->slot));
    t->hash = calloc(buckets, sizeof(*t->hash));
    return t->slot && t->hash ? 0 : -ENOMEM;
}

void lnet_peers_fini(struct lnet_node *node)
{
    if (!node->peers)
        return;
    free(node->peers->slot);
    free(node->peers->hash);
    free(node->peers);
    node->peers = NULL;
}

static struct lnet_peer *find(const struct lnet_node *node, const struct lnet_nid *nid)
{
    const struct lnet_peers *t = node->peers;
    struct lnet_peer *p = t->hash[nid_hash(nid) & t->hash_mask];

    while (p && !nid_same(&p->primary, nid))
        p = p->hash_next;
    return p;
}

static struct lnet_peer *create(struct lnet_peers *t, const struct lnet_nid *nid)
{
    struct lnet_peer **bucket = &t->hash[nid_hash(nid) & t->hash_mask];
    struct lnet_peer *p = t->free;

    if (p)
        t->free = p->hash_next;
    else if (t->highest < t->nslots)
        p = &t->slot[t->highest++];
    else
        return NULL;
    *p = (struct lnet_peer){.primary = *nid, .used = true, .hash_next = *bucket};
    *bucket = p;
    t->npeers++;
    return p;
}

static void destroy(struct lnet_peers *t, struct lnet_peer *p)
{
    struct lnet_peer **link = &t->hash[nid_hash(&p->primary) & t->hash_mask];

    while (*link != p)
        link = &(*link)->hash_next;
    *link = p->hash_next;
    p->used = false;
    p->hash_next = t->free;
    t->free = p;
    t->npeers--;
}

/* ---- who is to be pushed to ---- */

void lnet_peer_queue(struct lnet_peers *t, struct lnet_peer *p)
{
    p->push_queued = true;
    TAILQ_INSERT_TAIL(&t->to_push[p->answers], p, push);
}

void lnet_peer_unqueue(struct lnet_peers *t, struct lnet_peer *p)
{
    if (p->push_queued)
        TAILQ_REMOVE(&t->to_push[p->answers], p, push);
    p->push_queued = false;
}

/* ---- who makes room ---- */

static void leave_ages(struct lnet_peers *t, struct lnet_peer *p)
{
    if (!p->gw)
        TAILQ_REMOVE(&t->by_age[p->answers], p, by_age);
}

static void join_ages(struct lnet_peers *t, struct lnet_peer *p)
{
    if (!p->gw)
        TAILQ_INSERT_TAIL(&t->by_age[p->answers], p, by_age);
}

/* PUSHes on their way are few, so that few are passed over. */
static struct lnet_peer *spare(const struct lnet_peers *t)
{
    struct lnet_peer *p;

    for (unsigned i = 0; i < 2; i++)
        TAILQ_FOREACH(p, &t->by_age[i], by_age)
            if (!p->pushing)
                return p;
    return NULL;
}

struct lnet_peer *lnet_peer_pushed(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_peers *t = node->peers;
    struct lnet_peer *p = find(node, nid), *other;

    if (p) {
        leave_ages(t, p);
    } else if (t->npeers - t->ngateways < t->max) {
        p = create(t, nid);
    } else if ((other = spare(t))) {
        leave_ages(t, other);
        lnet_peer_unqueue(t, other);
        destroy(t, other);
        p = create(t, nid);
    }
    if (p)
        join_ages(t, p);
    return p;
}

void lnet_peer_answers(struct lnet_node *node, struct lnet_peer *p, bool answers)
{
    if (p->answers == answers)
        return;
    leave_ages(node->peers, p);
    p->answers = answers;
    join_ages(node->peers, p);
}

/* ---- gateways ---- */

void lnet_peer_set_gateway(struct lnet_gw *gw)
{
    struct lnet_peer *p = find(gw->node, &gw->nid);

    if (p)
        leave_ages(gw->node->peers, p);
    else
        p = create(gw->node->peers, &gw->nid);
    if (!p)
        return;
    if (!p->gw)
        gw->node->peers->ngateways++;
    p->gw = gw;
}

void lnet_peer_unset_gateway(struct lnet_gw *gw)
{
    struct lnet_peer *p = find(gw->node, &gw->nid);

    if (!p || p->gw != gw)
        return;
    p->gw = NULL;
    gw->node->peers->ngateways--;
    /* A peer that has pushed keeps its place, unless that exceeds the limit of such peers. */
    if ((!p->features ||
         gw->node->peers->npeers - gw->node->peers->ngateways > gw->node->peers->max) &&
        !p->push_queued && !p->pushing)
        destroy(gw->node->peers, p);
    else
        join_ages(gw->node->peers, p);
}
