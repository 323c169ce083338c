/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of peer NIs of a shard, and the rows that observers read of it. peer_ni.h has the
 * rules. */
#include "lib/lnet/peer/peer_ni.h"
#include "lib/base/err.h"
#include "lib/lnet/shard/conf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PEER_LOOKS  128 /* slots looked at in one iteration of a reactor */
#define RESET_PEERS 256 /* slots reset in one iteration of a reactor */

unsigned lnet_peer_nis_per_shard(const struct lnet_node_opts *o, unsigned reactors)
{
    /* The hash does not spread perfectly: a quarter more than an even share. */
    return lnet_max_peers(o) / reactors * 5 / 4 + 64;
}

int lnet_peer_nis_init(struct lnet_shard *s, unsigned max, struct err *err)
{
    struct lnet_peer_shard *t = s->peer = calloc(1, sizeof(*t));
    uint32_t buckets = 64;

    while (buckets < max)
        buckets *= 2;
    if (t) {
        t->peers = lnet_table_alloc(max, sizeof(*t->peers), &t->peers_memory);
        t->hash = calloc(buckets, sizeof(*t->hash));
    }
    if (!t || !t->peers || !t->hash)
        return err_set(err, -ENOMEM, "no memory for a table of %u peers; lower max_peers", max);
    TAILQ_INIT(&t->idle);
    TAILQ_INIT(&t->changed);
    TAILQ_INIT(&t->recovering);
    TAILQ_INIT(&t->unpinged);
    t->hash_mask = buckets - 1;
    for (unsigned i = max; i-- > 0;) {
        t->peers[i].hash_next = t->free_peers;
        t->free_peers = &t->peers[i];
    }
    return 0;
}

void lnet_peer_nis_fini(struct lnet_shard *s)
{
    if (!s->peer)
        return;
    free(s->peer->peers_memory);
    free(s->peer->hash);
    free(s->peer);
}

static bool is_in_use(const struct lnet_ni *ni)
{
    enum lnet_ni_state state = relaxed_load(&ni->state);

    return state == LNET_NI_STARTING || state == LNET_NI_ACTIVE;
}

/* An NI that starts can be called before the snapshot has it. */
static const struct lnet_tunables *tunables_of(const struct lnet_node *node, lnet_net_t net)
{
    const struct lnet_conf_net *n = lnet_net_find(node, net);
    unsigned i, max = relaxed_load(&node->nnis);

    if (n)
        return &n->ni[0]->tun;
    for (i = 0; i < max; i++) {
        const struct lnet_ni *ni = __atomic_load_n(&node->ni[i], __ATOMIC_ACQUIRE);

        if (ni && ni->net == net && is_in_use(ni))
            return &ni->tun;
    }
    return NULL;
}

/* Sets the credits of a peer NI that is new, or was not used, by the tunables of its net. */
static void init_credits(const struct lnet_node *node, struct lnet_peer_ni *peer)
{
    const struct lnet_tunables *tun = tunables_of(node, nid_net(&peer->nid));
    int tx = tun ? tun->peer_credits : 1;
    int rtr = tun && tun->peer_buffer_credits > 0 ? tun->peer_buffer_credits : tx;

    /* An unused peer NI has all its credits, though its net may have had other tunables then. */
    if (peer->tx.max > 0 &&
        (!tun || (peer->tx.max == lnet_credits_max(tx) && peer->rtr.max == lnet_credits_max(rtr))))
        return;
    lnet_credits_init(&peer->tx, tx);
    lnet_credits_init(&peer->rtr, rtr);
    STAILQ_INIT(&peer->txq);
    TAILQ_INIT(&peer->rtrq);
}

void lnet_peer_ni_unqueue_recovery(struct lnet_peer_ni *p)
{
    struct lnet_peer_shard *t = p->shard->peer;

    if (p->is_recovering) {
        TAILQ_REMOVE(&t->recovering, p, recovery);
        t->nrecovering--;
    }
    if (p->is_unpinged) {
        TAILQ_REMOVE(&t->unpinged, p, recovery);
        t->nunpinged--;
    }
    p->is_recovering = p->is_unpinged = false;
}

/* Frees the peer NI that was unused for longest. */
static void evict_one(struct lnet_shard *s)
{
    struct lnet_peer_ni *p = TAILQ_FIRST(&s->peer->idle);
    const struct lnet_lnd *lnd;
    struct lnet_peer_ni **link;

    if (!p)
        return;
    lnd = lnet_lnd_find(s->node, p->nid.type);
    if (lnd && lnd->ops->peer_free)
        lnd->ops->peer_free(p);
    TAILQ_REMOVE(&s->peer->idle, p, idle);
    p->health = LNET_MAX_HEALTH;
    lnet_gw_ni_publish_health(p);
    if (p->is_changed)
        TAILQ_REMOVE(&s->peer->changed, p, health_changed);
    lnet_peer_ni_unqueue_recovery(p);
    link = &s->peer->hash[nid_hash(&p->nid) & s->peer->hash_mask];
    while (*link != p)
        link = &(*link)->hash_next;
    *link = p->hash_next;
    s->peer->npeers--;
    p->shard = NULL; /* free: no page lists it */
    p->hash_next = s->peer->free_peers;
    s->peer->free_peers = p;
}

static void make_room(struct lnet_shard *s)
{
    for (unsigned i = 0; i < s->node->nlnds && TAILQ_EMPTY(&s->peer->idle); i++)
        if (s->node->lnd[i].ops->peer_shrink)
            s->node->lnd[i].ops->peer_shrink(s->node->lnd[i].ctx);
    evict_one(s);
}

struct lnet_peer_ni *lnet_peer_ni_find_here(const struct lnet_node *node,
                                            const struct lnet_nid *nid)
{
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_peer_ni *p = s->peer->hash[nid_hash(nid) & s->peer->hash_mask];

    while (p && !nid_same(&p->nid, nid))
        p = p->hash_next;
    return p;
}

struct lnet_peer_ni *lnet_peer_ni_get(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_peer_ni **bucket = &s->peer->hash[nid_hash(nid) & s->peer->hash_mask];
    struct lnet_peer_ni *p = lnet_peer_ni_find_here(node, nid);

    if (p) {
        lnet_peer_ni_hold(p);
        return p;
    }
    if (!s->peer->free_peers)
        make_room(s);
    p = s->peer->free_peers;
    if (!p)
        return NULL;
    s->peer->free_peers = p->hash_next;
    memset(p, 0, sizeof(*p));
    p->nid = *nid;
    p->shard = s;
    p->refs = 1;
    p->health = LNET_MAX_HEALTH;
    p->gw_ni = lnet_gw_ni_find(node, nid);
    init_credits(node, p);
    lnet_gw_ni_publish(p);
    lnet_gw_ni_publish_health(p);
    p->hash_next = *bucket;
    *bucket = p;
    s->peer->npeers++;
    if (p >= &s->peer->peers[s->peer->peers_used])
        s->peer->peers_used = (uint32_t)(p - s->peer->peers) + 1;
    if (node->peer_made)
        node->peer_made(p);
    return p;
}

void lnet_peer_ni_used(struct lnet_peer_ni *p)
{
    TAILQ_REMOVE(&p->shard->peer->idle, p, idle);
    init_credits(p->shard->node, p);
    lnet_gw_ni_publish(p);
}

void lnet_peer_ni_unused(struct lnet_peer_ni *p)
{
    TAILQ_INSERT_TAIL(&p->shard->peer->idle, p, idle);
}

/* ---- peer NIs of gateways ---- */

void lnet_gw_ni_changed(struct lnet_gw_ni *ni, const char *cause)
{
    relaxed_store(&ni->lnd_cause, cause);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (relaxed_load(&ni->change_mailed))
        return;
    relaxed_store(&ni->change_mailed, true);
    reactor_post(lnet_node_home(ni->node), &ni->changed);
}

void lnet_gw_ni_pairs(struct lnet_gw_ni *to, uint64_t bits, bool up, const char *cause)
{
    uint64_t down = to->pairs_down;

    relaxed_store(&to->pairs_down, up ? down & ~bits : down | bits);
    if (to->pairs_down != down)
        lnet_gw_ni_changed(to, cause);
}

void lnet_gw_ni_pair(struct lnet_gw_ni *to, const struct lnet_ni *from, bool up, const char *cause)
{
    lnet_gw_ni_pairs(to, lnet_ni_bit(from), up, cause);
}

/* ---- counters ---- */

bool lnet_peer_nis_reset_counts(struct lnet_shard *s, uint32_t *slot)
{
    for (unsigned i = 0; i < RESET_PEERS && *slot < s->peer->peers_used; i++) {
        struct lnet_peer_ni *p = &s->peer->peers[(*slot)++];

        memset(p->send_count, 0, sizeof(p->send_count));
        memset(p->recv_count, 0, sizeof(p->recv_count));
        memset(p->drop_count, 0, sizeof(p->drop_count));
        memset(p->health_count, 0, sizeof(p->health_count));
    }
    return *slot >= s->peer->peers_used;
}

/* ---- rows for observers ----
 *
 * A request goes from reactor to reactor and back to the control thread. In one iteration a reactor
 * fills a few rows and looks at a few slots. */

struct request {
    struct lnet_node *node;
    lnet_peer_ni_page_fn fn;
    void *arg;
    struct lnet_peer_ni_cursor at;
    struct lnet_nid nid; /* lnet_peer_ni_find() */
    unsigned n, max;
    struct reactor_task task;
    struct lnet_peer_ni_row rows[];
};

void lnet_peer_ni_row_fill(const struct lnet_shard *s, const struct lnet_peer_ni *p,
                           struct lnet_peer_ni_row *row)
{
    const struct lnet_lnd *lnd = lnet_lnd_find(s->node, p->nid.type);

    memset(row, 0, sizeof(*row));
    row->nid = p->nid;
    row->reactor = s->index;
    row->last_alive_us = p->last_alive_us;
    memcpy(row->send_count, p->send_count, sizeof(row->send_count));
    memcpy(row->recv_count, p->recv_count, sizeof(row->recv_count));
    memcpy(row->drop_count, p->drop_count, sizeof(row->drop_count));
    memcpy(row->health_count, p->health_count, sizeof(row->health_count));
    row->health = p->health;
    row->ping_count = p->ping_count;
    row->next_ping_us = p->next_ping_us;
    row->refs = p->refs;
    row->tx = p->tx;
    row->rtr = p->rtr;
    row->tx_waiting = p->tx.now < 0 ? (uint32_t)-p->tx.now : 0;
    row->rtr_waiting = p->rtr_waiting;
    row->limit_waiting = p->limit_waiting;
    row->limit_waited = p->limit_waited;
    row->tx_queued = p->tx_queued;
    row->tx_queued_bytes = p->tx_queued_bytes;
    if (lnd && lnd->ops->peer_info)
        lnd->ops->peer_info(p, &row->lnd);
    row->up = row->lnd.conns[0] + row->lnd.conns[1] + row->lnd.conns[2] + row->lnd.conns[3] > 0;
}

static void deliver(struct reactor_task *task)
{
    struct request *q = container_of(task, struct request, task);

    q->fn(q->arg, q->rows, q->n, &q->at);
    free(q);
}

/* True: all of this reactor's table has been seen. */
static bool fill_some(struct request *q, const struct lnet_shard *s)
{
    unsigned rows = 0, looks = 0;

    while (q->at.slot < s->peer->peers_used && q->n < q->max) {
        const struct lnet_peer_ni *p = &s->peer->peers[q->at.slot];

        if (rows == LNET_PEER_BURST || looks++ == PEER_LOOKS)
            return false;
        q->at.slot++;
        if (!p->shard)
            continue;
        lnet_peer_ni_row_fill(s, p, &q->rows[q->n++]);
        rows++;
    }
    return q->at.slot >= s->peer->peers_used;
}

static void collect(struct reactor_task *task)
{
    struct request *q = container_of(task, struct request, task);
    const struct lnet_shard *s = q->node->shard[q->at.reactor];

    if (fill_some(q, s)) {
        q->at.slot = 0;
        q->at.end = ++q->at.reactor == q->node->nshards;
    }
    if (q->at.end || q->n == q->max) {
        q->task.fn = deliver;
        reactor_post(reactor_control(q->node->env), &q->task);
    } else {
        reactor_post(q->node->shard[q->at.reactor]->reactor, &q->task);
    }
}

/* So that its pages are there before a reactor writes to them. */
static void touch(void *memory, size_t size)
{
    volatile char *byte = memory;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    for (size_t i = 0; i < size; i += page)
        byte[i] = 0;
    byte[size - 1] = 0;
}

void *lnet_request_alloc(size_t size)
{
    void *memory = calloc(1, size);

    if (memory)
        touch(memory, size);
    return memory;
}

static struct request *request_new(struct lnet_node *node, unsigned max, lnet_peer_ni_page_fn fn,
                                   void *arg)
{
    size_t size = sizeof(struct request) + max * sizeof(struct lnet_peer_ni_row);
    struct request *q = lnet_request_alloc(size);

    if (!q)
        return NULL;
    q->node = node;
    q->max = max;
    q->fn = fn;
    q->arg = arg;
    return q;
}

int lnet_peer_ni_page(struct lnet_node *node, const struct lnet_peer_ni_cursor *from, unsigned max,
                      lnet_peer_ni_page_fn fn, void *arg)
{
    struct request *q;

    if (max == 0 || max > LNET_PEER_PAGE_MAX || from->end || from->reactor >= node->nshards)
        return -EINVAL;
    q = request_new(node, max, fn, arg);
    if (!q)
        return -ENOMEM;
    q->at = *from;
    q->task.fn = collect;
    reactor_post(node->shard[from->reactor]->reactor, &q->task);
    return 0;
}

static void find(struct reactor_task *task)
{
    struct request *q = container_of(task, struct request, task);
    const struct lnet_peer_ni *p = lnet_peer_ni_find_here(q->node, &q->nid);

    if (p)
        lnet_peer_ni_row_fill(p->shard, p, &q->rows[q->n++]);
    q->at.end = true;
    q->task.fn = deliver;
    reactor_post(reactor_control(q->node->env), &q->task);
}

int lnet_peer_ni_find(struct lnet_node *node, const struct lnet_nid *nid, lnet_peer_ni_page_fn fn,
                      void *arg)
{
    struct request *q = request_new(node, 1, fn, arg);

    if (!q)
        return -ENOMEM;
    q->nid = *nid;
    q->task.fn = find;
    reactor_post(lnet_nid_home(node, nid), &q->task);
    return 0;
}
