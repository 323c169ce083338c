/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peer NIs. Each lives in the hash of its home reactor's shard; a header or a next hop can create
 * one, so the table is of fixed size, and when it is full the peer NI that has been unused for
 * longest makes room. A peer NI with references (connections, messages) is never removed.
 */
#include "lib/lnet/lnet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEER_ROWS_PER_PAGE 128

int lnet_peers_init(struct lnet_shard *s, unsigned max, char *err, size_t errlen)
{
    uint32_t buckets = 64;
    unsigned i;

    while (buckets < max)
        buckets *= 2;
    s->peers = calloc(max, sizeof(*s->peers));
    s->hash = calloc(buckets, sizeof(*s->hash));
    if (!s->peers || !s->hash) {
        snprintf(err, errlen, "no memory for a table of %u peers; lower max_peers", max);
        return -ENOMEM;
    }
    s->hash_mask = buckets - 1;
    for (i = max; i-- > 0;) {
        s->peers[i].hash_next = s->free_peers;
        s->free_peers = &s->peers[i];
    }
    return 0;
}

void lnet_peers_fini(struct lnet_shard *s)
{
    free(s->peers);
    free(s->hash);
}

struct reactor *lnet_nid_home(const struct lnet_node *node, const struct lnet_nid *nid)
{
    return reactor_at(node->env, nid_cpt_hash(nid, node->nshards));
}

/* ---- idle list: refs == 0, oldest first ---- */

static void idle_add(struct lnet_shard *s, struct lnet_peer_ni *p)
{
    p->lru_next = NULL;
    p->lru_prev = s->idle_tail;
    if (s->idle_tail)
        s->idle_tail->lru_next = p;
    else
        s->idle_head = p;
    s->idle_tail = p;
}

static void idle_del(struct lnet_shard *s, struct lnet_peer_ni *p)
{
    if (p->lru_prev)
        p->lru_prev->lru_next = p->lru_next;
    else
        s->idle_head = p->lru_next;
    if (p->lru_next)
        p->lru_next->lru_prev = p->lru_prev;
    else
        s->idle_tail = p->lru_prev;
    p->lru_next = p->lru_prev = NULL;
}

static const struct lnd_ops *lnd_of_type(const struct lnet_node *node, uint8_t type)
{
    unsigned i;

    for (i = 0; i < node->nlnds; i++)
        if (node->lnd[i].ops->type == type)
            return node->lnd[i].ops;
    return NULL;
}

/* Frees the peer NI that was unused for longest. */
static void evict_one(struct lnet_shard *s)
{
    struct lnet_peer_ni *p = s->idle_head;
    const struct lnd_ops *ops;
    struct lnet_peer_ni **link;

    if (!p)
        return;
    ops = lnd_of_type(s->node, p->nid.type);
    if (ops && ops->peer_free)
        ops->peer_free(p);
    idle_del(s, p);
    link = &s->hash[nid_hash(&p->nid) & s->hash_mask];
    while (*link != p)
        link = &(*link)->hash_next;
    *link = p->hash_next;
    s->npeers--;
    p->hash_next = s->free_peers;
    s->free_peers = p;
}

static void make_room(struct lnet_shard *s)
{
    unsigned i;

    for (i = 0; i < s->node->nlnds && !s->idle_head; i++)
        if (s->node->lnd[i].ops->peer_shrink)
            s->node->lnd[i].ops->peer_shrink(s->node->lnd[i].ctx);
    evict_one(s);
}

struct lnet_peer_ni *lnet_peer_get(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_peer_ni **bucket = &s->hash[nid_hash(nid) & s->hash_mask];
    struct lnet_peer_ni *p;

    for (p = *bucket; p; p = p->hash_next)
        if (nid_same(&p->nid, nid)) {
            lnet_peer_hold(p);
            return p;
        }
    if (!s->free_peers)
        make_room(s);
    p = s->free_peers;
    if (!p)
        return NULL;
    s->free_peers = p->hash_next;
    memset(p, 0, sizeof(*p));
    p->nid = *nid;
    p->shard = s;
    p->refs = 1;
    p->gw = lnet_gw_find(node, nid);
    lnet_peer_credits_init(node, p);
    p->hash_next = *bucket;
    *bucket = p;
    s->npeers++;
    return p;
}

void lnet_peer_hold(struct lnet_peer_ni *p)
{
    if (p->refs++ == 0)
        idle_del(p->shard, p);
}

void lnet_peer_put(struct lnet_peer_ni *p)
{
    if (--p->refs == 0)
        idle_add(p->shard, p);
}

/* ---- rows for observers ---- */

struct rows_request {
    struct lnet_node *node;
    lnet_peer_rows_fn fn;
    void *arg;
    unsigned shard;
    uint32_t bucket; /* next to look at */
    unsigned n;
    bool last;
    struct reactor_task task;
    struct lnet_peer_row rows[PEER_ROWS_PER_PAGE];
};

static void fill_row(const struct lnet_shard *s, const struct lnet_peer_ni *p,
                     struct lnet_peer_row *row)
{
    const struct lnd_ops *ops = lnd_of_type(s->node, p->nid.type);

    memset(row, 0, sizeof(*row));
    row->nid = p->nid;
    row->reactor = s->index;
    row->last_alive_us = p->last_alive_us;
    memcpy(row->send_count, p->send_count, sizeof(row->send_count));
    memcpy(row->recv_count, p->recv_count, sizeof(row->recv_count));
    memcpy(row->drop_count, p->drop_count, sizeof(row->drop_count));
    row->refs = p->refs;
    row->tx = p->tx;
    row->rtr = p->rtr;
    row->tx_waiting = p->tx.now < 0 ? (uint32_t)-p->tx.now : 0;
    row->rtr_waiting = p->rtrq.length;
    row->tx_queued = p->tx_queued;
    row->tx_queued_bytes = p->tx_queued_bytes;
    if (ops && ops->peer_info)
        ops->peer_info(p, &row->lnd);
    row->up = row->lnd.conns[0] + row->lnd.conns[1] + row->lnd.conns[2] + row->lnd.conns[3] > 0;
}

/* Fits the rest of a bucket or stops before it, so that a page ends between buckets. */
static bool fill_bucket(struct rows_request *q, const struct lnet_shard *s)
{
    const struct lnet_peer_ni *p;
    unsigned n = 0;

    for (p = s->hash[q->bucket]; p; p = p->hash_next)
        n++;
    if (n > PEER_ROWS_PER_PAGE - q->n && q->n > 0)
        return false;
    for (p = s->hash[q->bucket]; p && q->n < PEER_ROWS_PER_PAGE; p = p->hash_next)
        fill_row(s, p, &q->rows[q->n++]);
    q->bucket++;
    return true;
}

static void rows_deliver(struct reactor_task *task);

static void rows_collect(struct reactor_task *task)
{
    struct rows_request *q = container_of(task, struct rows_request, task);
    const struct lnet_shard *s = q->node->shard[q->shard];

    q->n = 0;
    while (q->bucket <= s->hash_mask && fill_bucket(q, s))
        ;
    if (q->bucket > s->hash_mask) {
        q->bucket = 0;
        q->shard++;
        q->last = q->shard == q->node->nshards;
    }
    q->task.fn = rows_deliver;
    reactor_post(reactor_control(q->node->env), &q->task);
}

static void rows_deliver(struct reactor_task *task)
{
    struct rows_request *q = container_of(task, struct rows_request, task);

    q->fn(q->arg, q->rows, q->n, q->last);
    if (q->last) {
        free(q);
        return;
    }
    q->task.fn = rows_collect;
    reactor_post(q->node->shard[q->shard]->reactor, &q->task);
}

int lnet_peer_rows(struct lnet_node *node, lnet_peer_rows_fn fn, void *arg)
{
    struct rows_request *q = calloc(1, sizeof(*q));

    if (!q)
        return -ENOMEM;
    q->node = node;
    q->fn = fn;
    q->arg = arg;
    q->task.fn = rows_collect;
    reactor_post(node->shard[0]->reactor, &q->task);
    return 0;
}
