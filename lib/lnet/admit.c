/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of messages that are to be forwarded: each needs a router buffer before its payload is
 * read. docs/protocol/lnet-core.md §4.3, §4.9; docs/architecture.md "Where credits will go".
 *
 * A shard has three pools as the kernel does: tiny (no payload), small (up to 4 KiB) and large
 * (1 MiB). A header that finds its pool empty waits in the pool's FIFO, its connection unread, for
 * a bounded time; peers with a 16 s LND timeout must see it end well before (socklnd.md §6.5).
 *
 * That time is the connection's, not the message's: what the sender had begun to transmit behind a
 * message that waited in vain has waited as long in socket buffers, and each must be acknowledged
 * within the sender's timeout from there on. So it takes a buffer that is free or is dropped.
 */
#include "lib/lnet/lnet_internal.h"

#include <stdio.h>

#define TINY_DEFAULT        512
#define SMALL_DEFAULT       512
#define LARGE_DEFAULT       64
#define BUFFER_WAIT_DEFAULT 10         /* s */
#define BEHIND_US           1000000ull /* in which what lies behind an expired wait is read */

/* ---- queues of waiting headers ---- */

void lnet_rx_queue_init(struct lnet_rx_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->length = 0;
}

void lnet_rx_queue_add(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    rx->wait_next = NULL;
    rx->wait_pprev = q->tail;
    *q->tail = rx;
    q->tail = &rx->wait_next;
    shared_set(&q->length, q->length + 1);
}

void lnet_rx_queue_put_back(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    rx->wait_next = q->head;
    rx->wait_pprev = &q->head;
    if (q->head)
        q->head->wait_pprev = &rx->wait_next;
    else
        q->tail = &rx->wait_next;
    q->head = rx;
    shared_set(&q->length, q->length + 1);
}

void lnet_rx_queue_del(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    *rx->wait_pprev = rx->wait_next;
    if (rx->wait_next)
        rx->wait_next->wait_pprev = rx->wait_pprev;
    else
        q->tail = rx->wait_pprev;
    rx->wait_next = NULL;
    rx->wait_pprev = NULL;
    shared_set(&q->length, q->length - 1);
}

/* ---- pools ---- */

void lnet_pool_counts(const struct lnet_node_opts *o, unsigned reactors,
                      unsigned counts[LNET_POOLS])
{
    const unsigned total[LNET_POOLS] = {
        [LNET_POOL_TINY] = o->tiny ? o->tiny : TINY_DEFAULT,
        [LNET_POOL_SMALL] = o->small ? o->small : SMALL_DEFAULT,
        [LNET_POOL_LARGE] = o->large ? o->large : LARGE_DEFAULT,
    };
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++)
        counts[i] = total[i] > reactors ? total[i] / reactors : 1;
}

void lnet_node_memory(const struct lnet_node_opts *o, unsigned reactors, size_t *landing,
                      size_t *local)
{
    unsigned counts[LNET_POOLS];

    lnet_pool_counts(o, reactors, counts);
    *landing = (size_t)reactors * counts[LNET_POOL_LARGE] * MEM_LANDING_SLOT;
    *local = (size_t)reactors * counts[LNET_POOL_SMALL] * LNET_SMALL_BUFFER;
}

static void wait_expired(struct reactor_timer *t);
static void wake_waiters(struct reactor_task *task);

int lnet_pools_init(struct lnet_shard *s, char *err, size_t errlen)
{
    unsigned counts[LNET_POOLS];
    unsigned i;
    int rc;

    lnet_pool_counts(&s->node->opts, s->node->nshards, counts);
    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_router_pool *p = &s->pool[i];

        p->total = p->free = p->low = counts[i];
        lnet_rx_queue_init(&p->queue);
    }
    rc = mem_pool_init(&s->pool[LNET_POOL_SMALL].mem, s->node->arena, MEM_LOCAL, LNET_SMALL_BUFFER,
                       counts[LNET_POOL_SMALL], "small", err, errlen);
    if (rc)
        return rc;
    rc = mem_pool_init(&s->pool[LNET_POOL_LARGE].mem, s->node->arena, MEM_LANDING, MEM_LANDING_SLOT,
                       counts[LNET_POOL_LARGE], "large", err, errlen);
    if (rc)
        return rc;
    reactor_timer_init(&s->wait_timer, wait_expired);
    s->wake.fn = wake_waiters;
    return 0;
}

void lnet_pools_fini(struct lnet_shard *s)
{
    mem_pool_fini(&s->pool[LNET_POOL_SMALL].mem);
    mem_pool_fini(&s->pool[LNET_POOL_LARGE].mem);
}

static enum lnet_pool pool_for(uint32_t payload_len)
{
    if (payload_len == 0)
        return LNET_POOL_TINY;
    return payload_len <= LNET_SMALL_BUFFER ? LNET_POOL_SMALL : LNET_POOL_LARGE;
}

void lnet_pool_stats_get(const struct lnet_node *node, unsigned reactor, enum lnet_pool pool,
                         struct lnet_pool_stats *out)
{
    const struct lnet_router_pool *p = &node->shard[reactor]->pool[pool];

    out->total = p->total;
    out->free = shared_get(&p->free);
    out->low = shared_get(&p->low);
    out->waiting = shared_get(&p->queue.length);
    out->waited = shared_get(&p->waited);
}

/* ---- admission ---- */

/* The message takes its place in the pool and its payload is received. */
static void admit_now(struct lnet_rx *rx, struct lnet_router_pool *pool, struct lnet_msg *msg)
{
    shared_set(&pool->free, pool->free - 1);
    if (pool->free < pool->low)
        shared_set(&pool->low, pool->free);

    msg->hdr = rx->hdr;
    msg->rx_ni = rx->ni;
    msg->rx_peer = rx->from;
    lnet_peer_hold(rx->from);
    msg->pool = (uint8_t)(pool - rx->shard->pool);
    msg->state = LNET_MSG_RECEIVING;
    rx->msg = msg;
    rx->wait = LNET_RX_BUSY;
    if (rx->hdr.payload_len > 0 && !rx->ni->rx_take) {
        msg->buffer = mem_pool_get(&pool->mem); /* there: pool->free counts them */
        msg->segs[0].addr = msg->buffer;
        msg->segs[0].len = rx->hdr.payload_len;
        msg->segs[0].region = pool->mem.region;
        msg->payload.seg = msg->segs;
        msg->payload.n = 1;
        msg->payload.bytes = rx->hdr.payload_len;
        rx->ni->lnd->recv(rx, msg->segs, 1, rx->hdr.payload_len);
    } else {
        rx->ni->lnd->recv(rx, NULL, 0, rx->hdr.payload_len);
    }
}

static bool try_admit(struct lnet_rx *rx)
{
    struct lnet_router_pool *pool = &rx->shard->pool[pool_for(rx->hdr.payload_len)];
    struct lnet_msg *msg;

    if (pool->free == 0)
        return false;
    msg = lnet_msg_alloc(rx->shard, LNET_KIND_FORWARD);
    if (!msg)
        return false;
    admit_now(rx, pool, msg);
    return true;
}

static void arm_wait_timer(struct lnet_shard *s)
{
    uint64_t first = UINT64_MAX, now = reactor_now_us();
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++)
        if (s->pool[i].queue.head && s->pool[i].queue.head->wait_until_us < first)
            first = s->pool[i].queue.head->wait_until_us;
    if (first == UINT64_MAX)
        reactor_timer_cancel(&s->wait_timer);
    else
        reactor_timer_arm(&s->wait_timer, first > now ? first - now : 0);
}

static bool is_behind_expired(const struct lnet_rx *rx)
{
    return rx->expired_us != 0 && reactor_now_us() - rx->expired_us < BEHIND_US;
}

void lnet_admit(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    struct lnet_router_pool *pool = &s->pool[pool_for(rx->hdr.payload_len)];
    unsigned wait_s = s->node->opts.buffer_wait ? s->node->opts.buffer_wait : BUFFER_WAIT_DEFAULT;

    if (!pool->queue.head && try_admit(rx))
        return;
    if (is_behind_expired(rx)) {
        lnet_discard(rx, LNET_DROP_BUFFER_WAIT);
        return;
    }
    rx->wait = LNET_RX_WAIT_BUFFER;
    rx->wait_until_us = reactor_now_us() + (uint64_t)wait_s * 1000000;
    lnet_rx_queue_add(&pool->queue, rx);
    count_add(&pool->waited, 1);
    if (!reactor_timer_armed(&s->wait_timer))
        arm_wait_timer(s);
}

void lnet_discard(struct lnet_rx *rx, enum lnet_drop reason)
{
    lnet_drop_message(rx->shard, reason, rx->ni, rx->from, NULL, &rx->hdr);
    rx->drop = reason;
    rx->msg = NULL;
    rx->wait = LNET_RX_BUSY;
    rx->ni->lnd->recv(rx, NULL, 0, 0);
}

static void wait_expired(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_shard, wait_timer);
    uint64_t now = reactor_now_us();
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_rx_queue *q = &s->pool[i].queue;

        while (q->head && q->head->wait_until_us <= now) {
            struct lnet_rx *rx = q->head;

            lnet_rx_queue_del(q, rx);
            rx->expired_us = now;
            lnet_discard(rx, LNET_DROP_BUFFER_WAIT);
        }
    }
    arm_wait_timer(s);
}

static void wake_soon(struct lnet_shard *s)
{
    if (s->wake_posted)
        return;
    s->wake_posted = true;
    reactor_post(s->reactor, &s->wake);
}

static void timer_off_if_unused(struct lnet_shard *s)
{
    unsigned i;

    for (i = 0; i < LNET_POOLS; i++)
        if (s->pool[i].queue.head)
            return;
    reactor_timer_cancel(&s->wait_timer);
}

/* Runs as mail to self, not from where a buffer is given back: admitting may finish a message at
 * once and free its buffer again, and that must not nest. */
static void wake_waiters(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_shard, wake);
    unsigned i;

    s->wake_posted = false;
    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_rx_queue *q = &s->pool[i].queue;
        uint32_t budget = q->length;

        while (budget-- > 0 && q->head && s->pool[i].free > 0 && s->free_msgs) {
            struct lnet_rx *rx = q->head;

            lnet_rx_queue_del(q, rx);
            (void)try_admit(rx); /* both checked above */
        }
        /* More came while these were served: they must not wait for the next buffer. */
        if (q->head && s->pool[i].free > 0)
            wake_soon(s);
    }
    timer_off_if_unused(s);
}

void lnet_release_buffer(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;
    struct lnet_router_pool *pool = &s->pool[msg->pool];

    if (msg->buffer)
        mem_pool_put(&pool->mem, msg->buffer);
    else if (msg->release)
        msg->release(msg->release_owner, &msg->payload);
    msg->buffer = NULL;
    msg->release = NULL;
    shared_set(&pool->free, pool->free + 1);
    if (pool->queue.head)
        wake_soon(s);
}

bool lnet_rx_cancel(struct lnet_rx *rx)
{
    if (rx->wait != LNET_RX_WAIT_BUFFER)
        return false;
    lnet_rx_queue_del(&rx->shard->pool[pool_for(rx->hdr.payload_len)].queue, rx);
    timer_off_if_unused(rx->shard);
    rx->wait = LNET_RX_NOT_WAITING;
    lnet_drop_message(rx->shard, LNET_DROP_RX_INCOMPLETE, rx->ni, rx->from, NULL, &rx->hdr);
    return true;
}
