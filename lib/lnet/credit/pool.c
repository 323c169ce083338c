/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Router buffers: how many there are, where, and what a node takes of memory. lnet-core.md §4.9.
 *
 * A reactor has a share of each kind, in memory that is its own. The operator sets a number of
 * credits within that memory (the pool's capacity): raising and lowering it moves no buffer, and
 * what is in use beyond it vanishes as it comes back.
 *
 * All of it is landing memory: a peer's RDMA may carry little too.
 */
#include "lib/base/err.h"
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB           (1024.0 * 1024.0)
#define LOOKS         8    /* free buffers, for one with the payload of the same peer NI */
#define LOCAL_DEFAULT 4096 /* descriptors of messages of the node itself, per reactor */

static const unsigned defaults[LNET_POOLS] = {2048, 16384, 1024};
static const char *const names[LNET_POOLS] = {"tiny", "small", "large"};
static const size_t sizes[LNET_POOLS] = {0, LNET_SMALL_BUFFER, MEM_LANDING_SLOT};

/* ---- the plan ---- */

unsigned lnet_local_msgs(const struct lnet_node_opts *o)
{
    return o->local_msgs ? o->local_msgs : LOCAL_DEFAULT;
}

/* Returns a total that gives each reactor the same number, and at least what forwarding needs. */
static unsigned even(unsigned total, unsigned reactors)
{
    unsigned each = total / reactors;

    return (each > LNET_POOL_MIN ? each : LNET_POOL_MIN) * reactors;
}

static size_t bytes_of(const unsigned counts[LNET_POOLS])
{
    return counts[LNET_POOL_SMALL] * sizes[LNET_POOL_SMALL] +
           counts[LNET_POOL_LARGE] * sizes[LNET_POOL_LARGE];
}

static enum lnet_pool other_than(enum lnet_pool pool)
{
    return pool == LNET_POOL_LARGE ? LNET_POOL_SMALL : LNET_POOL_LARGE;
}

/* Returns the kind whose number the operator should lower: a configured one for which the other
 * kind leaves room. If each alone is too much, that is the large ones, beside the least of small
 * ones. */
static enum lnet_pool too_many(const unsigned asked[LNET_POOLS], unsigned count[LNET_POOLS],
                               unsigned least, size_t memory)
{
    enum lnet_pool pool = asked[LNET_POOL_LARGE] ? LNET_POOL_LARGE : LNET_POOL_SMALL;

    for (unsigned i = 0; i < 2; i++, pool = other_than(pool))
        if (asked[pool] &&
            count[other_than(pool)] * sizes[other_than(pool)] + least * sizes[pool] <= memory)
            return pool;
    count[other_than(pool)] = least;
    return pool;
}

/* count: the configured numbers, and the least of a kind that has none. */
static int does_not_fit(const unsigned asked[LNET_POOLS], unsigned count[LNET_POOLS],
                        unsigned reactors, size_t memory, struct err *err)
{
    unsigned least[LNET_POOLS];
    enum lnet_pool pool, other;

    least[LNET_POOL_SMALL] = least[LNET_POOL_LARGE] = even(0, reactors);
    if (bytes_of(least) > memory) {
        return err_set(
            err, -ENOMEM,
            "buffers: %u large and %u small ones, the least for %u reactors, take %.1f MiB; "
            "there are %.1f",
            least[LNET_POOL_LARGE], least[LNET_POOL_SMALL], reactors, (double)bytes_of(least) / MIB,
            (double)memory / MIB);
    }
    err_set(err, -ENOMEM, "buffers: %u large and %u small take %.1f MiB, there are %.1f; ",
            count[LNET_POOL_LARGE], count[LNET_POOL_SMALL], (double)bytes_of(count) / MIB,
            (double)memory / MIB);
    pool = too_many(asked, count, least[LNET_POOL_LARGE], memory);
    other = other_than(pool);
    count[pool] = 0;
    count[pool] = even((unsigned)((memory - bytes_of(count)) / sizes[pool]), reactors);
    err_add(err, "beside %u %s ones %u %s would fit", count[other], names[other], count[pool],
            names[pool]);
    return -ENOMEM;
}

/* Shrinks the kinds that have no configured number until all fit. If neither has one, large buffers
 * shrink in proportion and small ones to the rest. */
static void shrink_defaults(const struct lnet_node_opts *o, unsigned reactors,
                            unsigned count[LNET_POOLS])
{
    size_t small = count[LNET_POOL_SMALL] * sizes[LNET_POOL_SMALL];
    size_t large = count[LNET_POOL_LARGE] * sizes[LNET_POOL_LARGE];

    if (!o->small && !o->large)
        large = (size_t)((double)large * (double)o->memory / (double)(small + large));
    else if (!o->large)
        large = small < o->memory ? o->memory - small : 0;
    count[LNET_POOL_LARGE] = even((unsigned)(large / MEM_LANDING_SLOT), reactors);
    if (!o->small) {
        large = count[LNET_POOL_LARGE] * sizes[LNET_POOL_LARGE];
        if (large + small > o->memory)
            small = large < o->memory ? o->memory - large : 0;
        count[LNET_POOL_SMALL] = even((unsigned)(small / LNET_SMALL_BUFFER), reactors);
    }
}

/* Memory that is left can become buffers later, in the proportion of the defaults. */
static void plan_most(const struct lnet_node_opts *o, unsigned reactors, struct lnet_memory *out)
{
    size_t left, for_large;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        out->most[i] = out->buffers[i];
    if (!o->memory)
        return;
    left = o->memory - bytes_of(out->buffers);
    for_large = left - left / 17;
    out->most[LNET_POOL_LARGE] += (unsigned)(for_large / MEM_LANDING_SLOT) / reactors * reactors;
    left = o->memory - bytes_of(out->most);
    if (left > o->memory / 16)
        left = o->memory / 16;
    out->most[LNET_POOL_SMALL] += (unsigned)(left / LNET_SMALL_BUFFER) / reactors * reactors;
    if (out->most[LNET_POOL_TINY] < 2 * defaults[LNET_POOL_TINY])
        out->most[LNET_POOL_TINY] = even(2 * defaults[LNET_POOL_TINY], reactors);
}

size_t lnet_segments_least(unsigned reactors)
{
    return reactors * lnet_budget_least();
}

int lnet_memory_plan(const struct lnet_node_opts *o, unsigned reactors, struct lnet_memory *out,
                     struct err *err)
{
    const unsigned asked[LNET_POOLS] = {o->tiny, o->small, o->large};
    unsigned forward = 0;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        out->buffers[i] = even(asked[i] ? asked[i] : defaults[i], reactors);
    if (o->memory && bytes_of(out->buffers) > o->memory) {
        shrink_defaults(o, reactors, out->buffers);
        if (bytes_of(out->buffers) > o->memory) {
            unsigned count[LNET_POOLS];

            memcpy(count, out->buffers, sizeof(count));
            return does_not_fit(asked, count, reactors, o->memory, err);
        }
    }
    out->segments = o->segments / reactors * reactors;
    if (o->segments && out->segments / reactors < lnet_budget_least()) {
        return err_set(
            err, -ENOMEM, "segments: %.1f MiB are too little for %u threads; give %.1f or more",
            (double)o->segments / MIB, reactors, (double)(reactors * lnet_budget_least()) / MIB);
    }
    plan_most(o, reactors, out);
    out->landing = bytes_of(out->most);
    for (unsigned i = 0; i < LNET_POOLS; i++)
        forward += out->most[i];
    out->tables =
        sizeof(struct lnet_node) +
        reactors * (sizeof(struct lnet_shard) + sizeof(struct lnet_credit_shard)) +
        (forward + (size_t)reactors * lnet_local_msgs(o)) * sizeof(struct lnet_msg) +
        (size_t)reactors * lnet_peer_nis_per_shard(o, reactors) * sizeof(struct lnet_peer_ni) +
        (forward + (size_t)reactors * (lnet_peer_nis_per_shard(o, reactors) + LNET_LOOKS)) *
            sizeof(struct lnet_next_hop) +
        (size_t)forward * sizeof(struct lnet_router_buffer) + lnet_peers_bytes(o);
    return 0;
}

/* ---- events: a pool is short of buffers ---- */

#define CALM_US 400000 /* without a header that waits for a buffer: the shortage has ended */

static void post_pool_event(struct lnet_shard *s, enum lnet_node_event_kind kind, unsigned pool)
{
    struct lnet_node_event row = {
        .kind = kind,
        .value = (int)pool,
        .cause = kind == LNET_NODE_EV_BUFFERS_FREE ? "nothing_waits" : "no_free_buffer",
    };

    lnet_node_event_post(s->node, &row);
}

static bool is_calm(struct lnet_router_pool *p)
{
    bool calm = !p->short_seen && (p->waiting == 0 || lnet_pool_free(p) > 0);

    p->short_seen = false;
    return calm;
}

static void calm_look(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_credit_shard, calm_timer)->shard;
    bool again = false;
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_router_pool *p = &s->credit->pool[i];

        if (p->reported_short && is_calm(p)) {
            p->reported_short = false;
            post_pool_event(s, LNET_NODE_EV_BUFFERS_FREE, i);
        }
        again |= p->reported_short;
    }
    if (again)
        reactor_timer_arm(t, CALM_US);
}

void lnet_pool_short(struct lnet_shard *s, enum lnet_pool pool)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];

    p->short_seen = true;
    if (p->reported_short || !relaxed_load(&s->node->events_wanted))
        return;
    p->reported_short = true;
    post_pool_event(s, LNET_NODE_EV_BUFFERS_EXHAUSTED, pool);
    if (!reactor_timer_armed(&s->credit->calm_timer))
        reactor_timer_arm(&s->credit->calm_timer, CALM_US);
}

/* ---- a buffer for a message ---- */

/* Landing buffers are whole pages, one behind the other. */
static struct lnet_router_buffer *content_of(const struct lnet_router_pool *p, const void *buf)
{
    return &p->content[(size_t)((const uint8_t *)buf - p->mem.base) / p->mem.buf_size];
}

/* Of the free buffers that were used last, one that has payload of the same peer NI, or the last.
 */
static void *get_buffer(struct lnet_router_pool *p, uint32_t owner)
{
    struct mem_pool *m = &p->mem;

    for (uint32_t i = 1; i <= LOOKS && i <= m->nfree; i++) {
        void **at = &m->free[m->nfree - i];

        if (content_of(p, *at)->owner == owner) {
            void *buf = *at;

            *at = m->free[m->nfree - 1];
            m->free[m->nfree - 1] = buf;
            break;
        }
    }
    return mem_pool_get(m);
}

/* Clears what others have left, and notes the sender: it may leave out anything. */
static void clear_foreign(struct lnet_router_buffer *b, void *buf, uint32_t owner, uint32_t len)
{
    uint32_t from = b->owner == owner ? b->own : 0, to = min(len, b->old);

    if (from < to)
        memset((uint8_t *)buf + from, 0, to - from);
    b->owner = owner;
    b->own = max(from, len);
}

void lnet_msg_buffer(struct lnet_msg *msg)
{
    struct lnet_router_pool *p = &msg->home->credit->pool[msg->pool];
    uint32_t len = msg->hdr.payload_len;
    struct lnet_router_buffer *b;

    if (msg->rx_ni->lnd->remote_writes) {
        uint32_t owner = nid_hash(&msg->rx_peer->nid);

        msg->buffer = get_buffer(p, owner);
        b = content_of(p, msg->buffer);
        clear_foreign(b, msg->buffer, owner, len);
    } else {
        msg->buffer = mem_pool_get(&p->mem);
        b = content_of(p, msg->buffer);
        b->own = 0;
    }
    b->old = max(b->old, len);
    msg->segs[0] = (struct mem_seg){msg->buffer, len, p->mem.region, 0};
    msg->payload = (struct lnet_sgl){msg->segs, 1, len};
}

/* ---- the pools of a shard ---- */

static int pool_memory(struct lnet_shard *s, struct lnet_router_pool *p, uint32_t size,
                       const char *name, struct err *err)
{
    p->content = calloc(p->capacity + 1, sizeof(*p->content));
    if (!p->content)
        return err_set(err, -ENOMEM, "no memory for the table of %u %s buffers", p->capacity, name);
    return mem_pool_init(&p->mem, s->node->arena, MEM_LANDING, size, p->capacity, name, err);
}

int lnet_pools_init(struct lnet_shard *s, struct err *err)
{
    const struct lnet_memory *plan = &s->node->plan;
    unsigned i, k;
    int rc = 0;

    reactor_timer_init(&s->credit->calm_timer, calm_look);
    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_router_pool *p = &s->credit->pool[i];

        p->capacity = plan->most[i] / s->node->nshards;
        p->total = plan->buffers[i] / s->node->nshards;
        p->low = (int32_t)p->total;
        for (k = 0; k < LNET_CLASSES; k++) {
            struct lnet_ring *ring = &p->ring[k];

            TAILQ_INIT(&ring->look);
            TAILQ_INIT(&ring->rest);
        }
        if (rc == 0 && sizes[i] > 0)
            rc = pool_memory(s, p, (uint32_t)sizes[i], names[i], err);
    }
    return rc;
}

void lnet_pools_fini(struct lnet_shard *s)
{
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        struct lnet_router_pool *p = &s->credit->pool[i];

        if (sizes[i] > 0)
            mem_pool_fini(&p->mem);
        free(p->content);
    }
}

void lnet_pool_stats_get(const struct lnet_node *node, unsigned reactor, enum lnet_pool pool,
                         struct lnet_pool_stats *out)
{
    const struct lnet_router_pool *p = &node->shard[reactor]->credit->pool[pool];

    out->total = relaxed_load(&p->total);
    out->free = (int32_t)out->total - (int32_t)relaxed_load(&p->used);
    out->low = relaxed_load(&p->low);
    out->waiting = relaxed_load(&p->waiting);
    out->waited = relaxed_load(&p->waited);
}

/* ---- at run time ---- */

struct resize {
    struct reactor_task task;
    struct lnet_shard *shard;
    unsigned each[LNET_POOLS];
};

static void resize_task(struct reactor_task *task)
{
    struct resize *r = container_of(task, struct resize, task);
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_router_pool *p = &r->shard->credit->pool[i];

        if (p->total == r->each[i])
            continue;
        relaxed_store(&p->total, r->each[i]);
        relaxed_store(&p->low, lnet_pool_free(p) - (int32_t)p->waiting);
    }
    lnet_wake_soon(r->shard);
    free(r);
}

/* Checks new totals; want receives them. */
static int resize_check(const struct lnet_node *node, const int totals[LNET_POOLS],
                        unsigned want[LNET_POOLS], struct err *err)
{
    const struct lnet_memory *plan = &node->plan;
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++) {
        unsigned most = plan->most[i];

        if (totals[i] < -1)
            return err_set(err, -EINVAL, "%s: %d is not a number of buffers", names[i], totals[i]);
        want[i] = totals[i] == -1 ? node->totals[i] : (unsigned)totals[i];
        if (totals[i] == 0)
            want[i] = defaults[i] < most ? defaults[i] : most;
        want[i] = even(want[i], node->nshards);
        if (want[i] > most) {
            return err_set(
                err, -ENOMEM,
                "%s: there is memory for %u buffers, not for %u; more takes a restart with "
                "more `memory`",
                names[i], most, want[i]);
        }
    }
    return 0;
}

int lnet_pools_resize(struct lnet_node *node, const int totals[LNET_POOLS], struct err *err)
{
    struct resize *r[REACTOR_MAX] = {NULL};
    unsigned want[LNET_POOLS];
    unsigned i;
    int rc = resize_check(node, totals, want, err);

    if (rc)
        return rc;
    for (i = 0; i < node->nshards; i++) {
        r[i] = calloc(1, sizeof(*r[i]));
        if (!r[i])
            goto no_memory;
        r[i]->shard = node->shard[i];
        r[i]->task.fn = resize_task;
        for (unsigned k = 0; k < LNET_POOLS; k++)
            r[i]->each[k] = want[k] / node->nshards;
    }
    for (i = 0; i < node->nshards; i++)
        reactor_post(node->shard[i]->reactor, &r[i]->task);
    for (unsigned k = 0; k < LNET_POOLS; k++)
        node->totals[k] = want[k];
    return 0;
no_memory:
    while (i-- > 0)
        free(r[i]);
    return err_set(err, -ENOMEM, "no memory");
}
