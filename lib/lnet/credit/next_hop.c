/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Next hop accounts: the router buffers that messages to each next hop hold, and the rule by which
 * another message may have one. docs/architecture.md "Admission".
 *
 * The rule, for one more buffer of a pool (free = total - used, of this reactor):
 *  - there must be a free one;
 *  - bulk leaves a sixteenth of the pool to urgent messages;
 *  - one buffer is set aside for each gateway that holds none, for at most half of the pool;
 *  - one buffer is set aside for all end nodes together: messages to gateways never take the last
 *    one. So routers that forward to each other always have a buffer for an arriving message;
 *  - a next hop that holds buffers may have another only while it holds less than egress_share
 *    percent of those free for it. With the default of 50, n next hops that hang leave 1/(1 + n/2)
 *    of the pool free.
 */
#include "lib/base/err.h"
#include "lib/lnet/credit/credit_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URGENT_PART 16

int lnet_next_hops_init(struct lnet_shard *s, unsigned max, struct err *err)
{
    uint32_t buckets = 64;

    while (buckets < max)
        buckets *= 2;
    s->credit->next_hops =
        lnet_table_alloc(max, sizeof(*s->credit->next_hops), &s->credit->next_hops_memory);
    s->credit->next_hop_hash = calloc(buckets, sizeof(*s->credit->next_hop_hash));
    if (!s->credit->next_hops || !s->credit->next_hop_hash) {
        return err_set(err, -ENOMEM, "no memory for the accounts of %u next hops; lower max_peers",
                       max);
    }
    s->credit->next_hop_mask = buckets - 1;
    for (unsigned i = max; i-- > 0;) {
        s->credit->next_hops[i].hash_next = s->credit->free_next_hops;
        s->credit->free_next_hops = &s->credit->next_hops[i];
    }
    return 0;
}

void lnet_next_hops_fini(struct lnet_shard *s)
{
    free(s->credit->next_hops_memory);
    free(s->credit->next_hop_hash);
}

struct lnet_next_hop *lnet_next_hop_get(struct lnet_shard *s, const struct lnet_nid *nid,
                                        bool gateway)
{
    return lnet_next_hop_get_hashed(s, nid, nid_hash(nid), gateway);
}

struct lnet_next_hop *lnet_next_hop_get_hashed(struct lnet_shard *s, const struct lnet_nid *nid,
                                               uint32_t hash, bool gateway)
{
    struct lnet_next_hop **bucket = &s->credit->next_hop_hash[hash & s->credit->next_hop_mask];
    struct lnet_next_hop *d;

    for (d = *bucket; d; d = d->hash_next)
        if (d->gateway == gateway && nid_same(&d->nid, nid)) {
            d->refs++;
            return d;
        }
    d = s->credit->free_next_hops;
    if (!d)
        return NULL;
    s->credit->free_next_hops = d->hash_next;
    memset(d, 0, sizeof(*d));
    d->nid = *nid;
    d->gateway = gateway;
    d->refs = 1;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        for (unsigned k = 0; k < LNET_CLASSES; k++) {
            d->wait[i][k].account = d;
            lnet_rx_queue_init(&d->wait[i][k].queue);
        }
    d->hash_next = *bucket;
    *bucket = d;
    return d;
}

void lnet_next_hop_put(struct lnet_shard *s, struct lnet_next_hop *d)
{
    struct lnet_next_hop **at;

    if (--d->refs > 0)
        return;
    at = &s->credit->next_hop_hash[nid_hash(&d->nid) & s->credit->next_hop_mask];
    while (*at != d)
        at = &(*at)->hash_next;
    *at = d->hash_next;
    d->hash_next = s->credit->free_next_hops;
    s->credit->free_next_hops = d;
}

static uint32_t *held_by_kind(struct lnet_router_pool *p, const struct lnet_next_hop *d)
{
    return d->gateway ? &p->gw_held : &p->end_held;
}

void lnet_next_hop_charge(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];

    if (d->held[pool]++ == 0)
        p->gws_holding += d->gateway;
    ++*held_by_kind(p, d);
}

void lnet_next_hop_credit(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];

    if (--d->held[pool] == 0)
        p->gws_holding -= d->gateway;
    --*held_by_kind(p, d);
}

void lnet_next_hop_stall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool)
{
    lnet_next_hop_credit(s, d, pool);
    s->credit->pool[pool].stalled++;
    s->credit->pool[pool].gw_held += d->gateway;
}

void lnet_next_hop_unstall(struct lnet_shard *s, struct lnet_next_hop *d, enum lnet_pool pool)
{
    s->credit->pool[pool].gw_held -= d->gateway;
    s->credit->pool[pool].stalled--;
    lnet_next_hop_charge(s, d, pool);
}

/* ---- the rule ---- */

/* Returns the buffers set aside for gateways that hold none. */
static uint32_t for_gateways(const struct lnet_shard *s, const struct lnet_router_pool *p)
{
    unsigned gws = lnet_conf_get(s->node)->ngws;
    uint32_t idle = gws > p->gws_holding ? gws - p->gws_holding : 0;

    return idle < p->total / 2 ? idle : p->total / 2;
}

static uint32_t for_urgent(const struct lnet_router_pool *p, enum lnet_pool pool)
{
    uint32_t part = p->total / URGENT_PART;

    /* Urgent messages are seldom large, and a large buffer takes 1 MiB. */
    return pool == LNET_POOL_LARGE && part > 1 ? 1 : part;
}

bool lnet_next_hop_may(const struct lnet_shard *s, const struct lnet_next_hop *d,
                       enum lnet_pool pool, enum lnet_class class)
{
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    int32_t free_here = lnet_pool_free(p);

    if (free_here <= 0)
        return false;
    if (d->gateway && p->gw_held + 1 >= p->total)
        return false;
    if (d->gateway ? d->held[pool] == 0 : p->end_held == 0)
        return true; /* the buffer that is set aside for it */
    free_here -= (int32_t)for_gateways(s, p);
    if (class == LNET_CLASS_BULK)
        free_here -= (int32_t)for_urgent(p, pool);
    if (free_here <= 0)
        return false;
    return d->held[pool] == 0 || (uint64_t)d->held[pool] * 100 <
                                     (uint64_t)free_here * relaxed_load(&s->node->egress_share);
}

enum lnet_drop lnet_next_hop_why(const struct lnet_shard *s, const struct lnet_next_hop *d,
                                 enum lnet_pool pool)
{
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    bool short_of = lnet_pool_free(p) <= (int32_t)(for_gateways(s, p) + for_urgent(p, pool));

    return d->held[pool] > 0 && !short_of ? LNET_DROP_DEST_SHARE : LNET_DROP_BUFFER_WAIT;
}
