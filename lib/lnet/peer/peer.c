/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of peers. Node home. */
#include "lib/lnet/peer/peer.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEFAULT 16384

static unsigned peers_max(const struct lnet_node_opts *o)
{
    return o->max_peers ? o->max_peers : MAX_DEFAULT;
}

/* Every gateway finds room. */
static unsigned slots(const struct lnet_node_opts *o)
{
    return peers_max(o) + LNET_GW_SLOTS;
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
    t->max = peers_max(&node->opts);
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

struct lnet_peer *lnet_peer_find(const struct lnet_node *node, const struct lnet_nid *nid)
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

struct lnet_peer *lnet_peer_get(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_peer *p = lnet_peer_find(node, nid);

    if (p || node->peers->npeers - node->peers->ngateways >= node->peers->max)
        return p;
    return create(node->peers, nid);
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

void lnet_peer_set_gateway(struct lnet_gw *gw)
{
    struct lnet_peer *p = lnet_peer_find(gw->node, &gw->nid);

    if (!p)
        p = create(gw->node->peers, &gw->nid);
    if (!p)
        return;
    if (!p->gw)
        gw->node->peers->ngateways++;
    p->gw = gw;
}

void lnet_peer_unset_gateway(struct lnet_gw *gw)
{
    struct lnet_peer *p = lnet_peer_find(gw->node, &gw->nid);

    if (!p || p->gw != gw)
        return;
    p->gw = NULL;
    gw->node->peers->ngateways--;
    /* A peer that has pushed keeps its place, unless that exceeds the limit of such peers. */
    if ((!p->features ||
         gw->node->peers->npeers - gw->node->peers->ngateways > gw->node->peers->max) &&
        !p->push_queued && !p->pushing)
        destroy(gw->node->peers, p);
}
