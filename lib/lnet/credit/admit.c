/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of messages that are to be forwarded, and their end. docs/protocol/lnet-core.md §4.3,
 * §4.6, §4.9; docs/architecture.md "Admission". A header that waits passes through wait.c too, a
 * payload that stalls through stall.c, segments of a transport through grant.c.
 *
 * A header takes a router credit of its sender, which bounds the router buffers that messages of
 * one peer NI hold, as long as their next hops take them soon (next_hop_stall.c). Then it takes a
 * router buffer, which is charged to the account of its next hop.
 *
 * The rule for one more buffer of a pool (free = total - used, of this reactor):
 *  - there must be a free one;
 *  - bulk leaves a sixteenth of the pool to urgent messages, and another one to messages for next
 *    hops that are known to be quick (quick.c), which may take it all;
 *  - one buffer is set aside for each gateway that holds none, for at most half of the pool;
 *  - one buffer is set aside for all end nodes together: messages to gateways never take the last
 *    one. So routers that forward to each other always have a buffer for an arriving message;
 *  - a next hop that holds buffers may have another only while it holds less than egress_share
 *    percent of those free for it. For a quick message, what quick ones hold counts. With the
 *    default of 50, n next hops that hang leave 1/(1 + n/2) of the pool free;
 *  - all end nodes without a connection, and those that took nothing of late while others waited
 *    (next_hop_stall.c), have an eighth of the pool together, since a message waits for up to the
 *    timeout there. Of that, a sender that holds some may have another only while it
 *    holds no more than what is free.
 *
 * Senders whose receives stop in the middle have together what one next hop may have, too: stall.c.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/reactor/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define URGENT_PART      16
#define UNCONNECTED_PART 8

/* ---- accounts of next hops ---- */

static int next_hops_init(struct lnet_shard *s, unsigned max, struct err *err)
{
    struct lnet_credit_shard *c = s->credit;
    uint32_t buckets = 64;

    while (buckets < max)
        buckets *= 2;
    c->next_hops = lnet_table_alloc(max, sizeof(*c->next_hops), &c->next_hops_memory);
    s->next_hop_hash = calloc(buckets, sizeof(*s->next_hop_hash));
    if (!c->next_hops || !s->next_hop_hash)
        return err_set(err, -ENOMEM, "no memory for the accounts of %u next hops; lower max_peers",
                       max);
    s->next_hop_mask = buckets - 1;
    for (unsigned i = max; i-- > 0;) {
        c->next_hops[i].hash_next = c->free_next_hops;
        c->free_next_hops = &c->next_hops[i];
    }
    return 0;
}

struct lnet_next_hop *lnet_next_hop_get(struct lnet_shard *s, const struct lnet_nid *nid,
                                        uint32_t hash, bool gateway)
{
    struct lnet_next_hop **bucket = &s->next_hop_hash[hash & s->next_hop_mask];
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
    d->hash = hash;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        for (unsigned k = 0; k < LNET_CLASSES; k++)
            TAILQ_INIT(&d->wait[i][k].queue);
    d->hash_next = *bucket;
    *bucket = d;
    return d;
}

void lnet_next_hop_put(struct lnet_shard *s, struct lnet_next_hop *d)
{
    struct lnet_next_hop **at;

    if (--d->refs > 0)
        return;
    lnet_next_hop_moves(s, d);
    at = &s->next_hop_hash[d->hash & s->next_hop_mask];
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

void lnet_next_hop_charge(struct lnet_next_hop *d, const struct lnet_msg *msg)
{
    struct lnet_router_pool *p = &msg->home->credit->pool[msg->pool];

    if (d->held[msg->pool]++ == 0) {
        p->gws_holding += d->gateway;
        d->moved_us[msg->pool] = reactor_now_us();
    }
    d->wait[msg->pool][LNET_CLASS_QUICK].held += msg->quick;
    ++*held_by_kind(p, d);
}

void lnet_next_hop_credit(struct lnet_next_hop *d, const struct lnet_msg *msg)
{
    struct lnet_router_pool *p = &msg->home->credit->pool[msg->pool];

    if (--d->held[msg->pool] == 0) {
        p->gws_holding -= d->gateway;
        d->vain[msg->pool] = false;
    }
    d->wait[msg->pool][LNET_CLASS_QUICK].held -= msg->quick;
    d->moved_us[msg->pool] = reactor_now_us();
    lnet_next_hop_moves(msg->home, d);
    --*held_by_kind(p, d);
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

int32_t lnet_pool_aside(const struct lnet_shard *s, enum lnet_pool pool, enum lnet_class class)
{
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    uint32_t aside = for_gateways(s, p);

    if (class != LNET_CLASS_URGENT)
        aside += for_urgent(p, pool);
    if (class > LNET_CLASS_QUICK)
        aside += p->total / QUICK_PART;
    return (int32_t)aside;
}

/* Returns whether a message to d may have one more buffer of a pool. The budget is another rule. */
static bool next_hop_may(const struct lnet_shard *s, const struct lnet_next_hop *d,
                         enum lnet_pool pool, enum lnet_class class)
{
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    /* Payload that others send slowly is charged to the next hop, and says nothing about it. */
    uint32_t held = class == LNET_CLASS_QUICK
                        ? d->wait[pool][LNET_CLASS_QUICK].held
                        : max(d->held[pool], class == LNET_CLASS_SLOW ? p->stalled : 0);
    int32_t free_here = lnet_pool_free(p);

    if (free_here <= 0)
        return false;
    if (d->gateway && p->gw_held + 1 >= p->total)
        return false;
    if ((d->gateway ? d->held[pool] == 0 : p->end_held == 0) &&
        (class != LNET_CLASS_SLOW || p->stalled == 0))
        return true; /* the buffer that is set aside for it */
    free_here -= lnet_pool_aside(s, pool, class);
    if (free_here <= 0)
        return false;
    return held == 0 ||
           (uint64_t)held * 100 < (uint64_t)free_here * relaxed_load(&s->node->egress_share);
}

/* Returns whether the next hop is an end node that is not connected, or takes nothing. */
static bool is_unconnected(const struct lnet_rx *rx)
{
    return !rx->path.gw_ni && rx->path.ni->lnd->connects &&
           (relaxed_load(lnet_connected_at(rx->shard->node, rx->hash)) == 0 ||
            lnet_stalled_lately(rx->shard->node, rx->hash));
}

/* Returns whether a message to such a next hop may have one more buffer. */
static bool unconnected_may(const struct lnet_rx *rx)
{
    const struct lnet_router_pool *p = &rx->shard->credit->pool[rx->pool];
    const struct lnet_budget *b = &rx->shard->credit->budget;
    uint32_t part = max(p->total / UNCONNECTED_PART, 1u), own = rx->from->unconnected[rx->pool];

    if (p->unconnected >= part || (own > 0 && own > part - p->unconnected))
        return false;
    return !lnet_needs_budget(rx) || b->unconnected == 0 ||
           b->unconnected * UNCONNECTED_PART * (own > 0 ? 2 : 1) < b->total;
}

bool lnet_waits_for_unconnected(const struct lnet_rx *rx)
{
    return is_unconnected(rx) && !unconnected_may(rx);
}

enum lnet_drop lnet_next_hop_why(const struct lnet_rx *rx)
{
    const struct lnet_shard *s = rx->shard;
    const struct lnet_next_hop *d = rx->account;
    enum lnet_pool pool = rx->pool;
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    bool short_of = lnet_pool_free(p) <= lnet_pool_aside(s, pool, rx->class);

    if (!short_of && lnet_waits_for_unconnected(rx))
        return LNET_DROP_UNCONNECTED;
    if (!short_of && rx->class == LNET_CLASS_SLOW && p->stalled >= d->held[pool])
        return LNET_DROP_SLOW_SENDER;
    return d->held[pool] > 0 && !short_of ? LNET_DROP_DEST_SHARE : LNET_DROP_BUFFER_WAIT;
}

bool lnet_may_admit(struct lnet_rx *rx)
{
    if (next_hop_may(rx->shard, rx->account, rx->pool, rx->class) &&
        (!is_unconnected(rx) || unconnected_may(rx)))
        return !lnet_needs_budget(rx) || lnet_budget_may(rx);
    lnet_budget_forget(rx);
    return false;
}

/* Quick is what the sender sends at once and the next hop takes soon. */
static enum lnet_class bulk_class(const struct lnet_rx *rx)
{
    return lnet_sender_prompt(rx) && lnet_next_hop_quick(rx) ? LNET_CLASS_QUICK : LNET_CLASS_BULK;
}

/* Urgent messages keep nodes alive and complete transactions. But many next hops that take nothing
 * would hold all buffers without payload. So only those that take messages soon have the reserve.
 */
static enum lnet_class urgent_class(const struct lnet_rx *rx)
{
    return lnet_next_hop_quick(rx) ? LNET_CLASS_URGENT : LNET_CLASS_BULK;
}

/* A GET asks for bulk. */
enum lnet_class lnet_class_of(const struct lnet_rx *rx)
{
    const struct lnet_hdr *hdr = &rx->hdr;
    struct lnet_put put;
    struct lnet_get get;

    if (hdr->payload_len > 0 &&
        (lnet_sender_slow(rx->from, reactor_now_us()) ||
         (!lnet_sender_prompt(rx) && lnet_too_many_stalled(rx->shard, rx->pool))))
        return LNET_CLASS_SLOW;
    switch (hdr->type) {
    case LNET_MSG_GET:
        lnet_body_get_get(hdr, &get);
        return get.portal == LNET_RESERVED_PORTAL ? urgent_class(rx) : bulk_class(rx);
    case LNET_MSG_PUT:
        lnet_body_get_put(hdr, &put);
        if (put.portal == LNET_RESERVED_PORTAL)
            return urgent_class(rx);
        break;
    default:
        break;
    }
    return hdr->payload_len == 0 ? urgent_class(rx) : bulk_class(rx);
}

bool lnet_may_go_now(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;

    rx->class = (uint8_t)lnet_class_of(rx);
    if ((rx->account->waiting > 0 && !TAILQ_EMPTY(&lnet_wait_of(rx)->queue)) || !lnet_may_admit(rx))
        return false;
    if (!s->credit->wake_posted ||
        (s->credit->pool[rx->pool].waiting == 0 && !lnet_budget_wanted(&s->credit->budget)))
        return true;
    s->credit->wake_all = true; /* it joins the headers that the wake-up looks at */
    return false;
}

/* ---- admission ---- */

static enum lnet_pool pool_for(uint32_t payload_len)
{
    if (payload_len == 0)
        return LNET_POOL_TINY;
    return payload_len <= LNET_SMALL_BUFFER ? LNET_POOL_SMALL : LNET_POOL_LARGE;
}

static bool take_router_credit(struct lnet_peer_ni *peer)
{
    struct lnet_credits *c = &peer->rtr;

    if (--c->now < c->min)
        c->min = c->now;
    return c->now >= 0;
}

void lnet_admit_now(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    struct lnet_router_pool *pool = &s->credit->pool[rx->pool];
    struct lnet_msg *msg = lnet_msg_alloc(s, LNET_KIND_FORWARD); /* one for each buffer there is */

    count_add(&pool->used, 1);
    lnet_pool_note_low(pool);

    msg->hdr = rx->hdr;
    lnet_msg_set_rx_ni(msg, rx->ni);
    msg->rx_peer = rx->from;
    msg->router_credit = true;
    msg->unconnected = is_unconnected(rx);
    pool->unconnected += msg->unconnected;
    msg->pool = rx->pool;
    msg->quick = rx->class == LNET_CLASS_QUICK;
    lnet_next_hop_charge(rx->account, msg);
    rx->from->unconnected[rx->pool] += msg->unconnected;
    lnet_peer_ni_hold(rx->from);
    msg->account = rx->account;
    rx->account = NULL;
    lnet_msg_set_path(msg, &rx->path);
    lnet_ni_put(s, rx->path.ni);
    msg->state = LNET_MSG_RECEIVING;
    rx->msg = msg;
    rx->wait = LNET_RX_BUSY;
    rx->begun_us = rx->progress_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&s->credit->receiving, rx, age);
    if (rx->grant && rx->grant->shard)
        lnet_budget_admit(rx);
    if (rx->class == LNET_CLASS_SLOW)
        lnet_set_stalled(msg, true);
    if (rx->hdr.payload_len > 0 && !rx->ni->rx_take) {
        lnet_msg_buffer(msg);
        rx->ni->lnd->recv(rx, msg->segs, 1, rx->hdr.payload_len);
    } else {
        rx->ni->lnd->recv(rx, NULL, 0, rx->hdr.payload_len);
    }
}

/* Prefetches the next hop's peer NI, which is looked up when the payload is there. The prefetch is
 * useless when the peer NI is not the first of its bucket or has another home. */
static void fetch_peer(const struct lnet_shard *s, const struct lnet_rx *rx)
{
    const struct lnet_peer_ni *peer = lnet_peer_ni_bucket(s, rx->hash);

    if (peer)
        prefetch_write(peer, 2 * CPU_BLOCK);
}

void lnet_admit(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    uint64_t left_us = relaxed_load(&s->node->buffer_wait) * 1000000ull;
    enum lnet_drop why = lnet_select(s, &rx->hdr.dest_nid, &LNET_NID_ANY, NULL, &rx->path);
    bool credit;

    if (rx->wait == LNET_RX_WAIT_LIMIT)
        left_us -= left_us / 2;
    if (why) {
        lnet_discard(rx, why);
        return;
    }
    rx->pool = (uint8_t)pool_for(rx->hdr.payload_len);
    rx->account = rx->path.gw_ni ? lnet_next_hop_of(s, &rx->path)
                                 : lnet_next_hop_get(s, &rx->hdr.dest_nid, rx->hash, false);
    if (!rx->account) {
        lnet_discard(rx, LNET_DROP_NO_MSG_MEMORY);
        return;
    }
    fetch_peer(s, rx);
    lnet_ni_hold(s, rx->path.ni);
    rx->wait_until_us = reactor_now_us() + left_us;
    /* A credit that came back belongs to the headers that wait, though they are not woken yet. */
    credit = take_router_credit(rx->from) && TAILQ_EMPTY(&rx->from->rtrq);
    if (credit)
        reactor_wait_none(REACTOR_WAIT_ROUTER_CREDIT);
    if (credit && lnet_may_go_now(rx)) {
        reactor_wait_none(REACTOR_WAIT_BUFFER);
        lnet_admit_now(rx);
        return;
    }
    lnet_wait(rx, credit ? LNET_RX_WAIT_BUFFER : LNET_RX_WAIT_CREDIT);
}

void lnet_discard(struct lnet_rx *rx, enum lnet_drop reason)
{
    lnet_drop_message(rx->shard, reason, rx->ni, rx->from, NULL, &rx->hdr);
    rx->drop = reason;
    rx->msg = NULL;
    rx->wait = LNET_RX_BUSY;
    rx->ni->lnd->recv(rx, NULL, 0, 0);
}

/* ---- the end of a message ---- */

void lnet_admit_received(struct lnet_rx *rx, bool whole)
{
    TAILQ_REMOVE(&rx->shard->credit->receiving, rx, age);
    lnet_sender_learn(rx, reactor_now_us());
    if (rx->msg->memory != rx->msg->truesize)
        lnet_budget_settle(rx->msg);
    rx->msg->received = whole;
    lnet_credit_early(rx->msg);
    if (!rx->msg->stalled)
        return;
    lnet_stalled_ends(rx, whole);
    if (rx->shard->credit->pool[rx->msg->pool].waiting > 0)
        lnet_wake_soon(rx->shard); /* its gateway holds a buffer again: none is set aside for it */
}

void lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path)
{
    struct lnet_shard *s = msg->home;
    struct lnet_next_hop *d = lnet_next_hop_of(s, path);

    lnet_msg_set_path(msg, path);
    if (!d)
        return; /* stays on the old account */
    lnet_budget_move(msg, d);
    lnet_next_hop_charge(d, msg);
    lnet_next_hop_credit(msg->account, msg);
    lnet_next_hop_put(s, msg->account);
    msg->account = d;
    lnet_wake_soon(s);
}

void lnet_return_router_credit(struct lnet_msg *msg)
{
    if (!msg->router_credit)
        return;
    msg->router_credit = false;
    lnet_give_router_credit(msg->rx_peer);
}

static void release_buffer(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;
    struct lnet_router_pool *pool = &s->credit->pool[msg->pool];

    if (msg->release)
        msg->release(msg->release_owner, &msg->payload);
    else if (msg->buffer)
        mem_pool_put(&pool->mem, msg->buffer);
    msg->buffer = NULL;
    msg->release = NULL;
    msg->truesize = 0;
    if (msg->memory > 0)
        lnet_budget_settle(msg);
    if (msg->stalled)
        lnet_set_stalled(msg, false);
    lnet_quick_learn(msg);
    if (msg->received && !msg->result.reason)
        msg->account->vain[msg->pool] = false;
    lnet_next_hop_credit(msg->account, msg);
    lnet_next_hop_put(s, msg->account);
    msg->account = NULL;
    pool->unconnected -= msg->unconnected;
    msg->rx_peer->unconnected[msg->pool] -= msg->unconnected;
    relaxed_store(&pool->used, pool->used - 1);
    if (pool->waiting > 0)
        lnet_wake_soon(s);
    lnet_return_router_credit(msg);
}

void lnet_forward_free(struct lnet_msg *msg)
{
    release_buffer(msg);
    lnet_peer_ni_put(msg->rx_peer);
    lnet_msg_free(msg);
}

/* ---- init ---- */

uint32_t lnet_credit_capacity(const struct lnet_shard *s)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        n += s->credit->pool[i].capacity;
    return n;
}

int lnet_credit_shard_init(struct lnet_shard *s, unsigned max_peers, struct err *err)
{
    struct lnet_credit_shard *c = s->credit = calloc(1, sizeof(*c));
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "no memory for the accounts of a reactor");
    c->shard = s;
    lnet_wait_init(c);
    lnet_stall_init(c);
    lnet_budget_init(s);
    rc = lnet_pools_init(s, err);
    if (rc)
        return rc;
    /* One for each buffer in use, and for what waits: at worst a header of every peer NI, each for
     * another next hop. And for those that are looked at. */
    return next_hops_init(s, lnet_credit_capacity(s) + max_peers + LNET_LOOKS, err);
}

void lnet_credit_shard_fini(struct lnet_shard *s)
{
    if (!s->credit)
        return;
    lnet_pools_fini(s);
    free(s->credit->next_hops_memory);
    free(s->next_hop_hash);
    free(s->credit);
}
