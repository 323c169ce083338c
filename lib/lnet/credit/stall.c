/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stalled receives, looked for while headers wait for buffers. An admitted message holds its buffer
 * while its payload comes in. When the sender stops in the middle, the buffer is charged to a
 * common account of stalled receives: the next hop is not to blame. While that account holds more
 * than a next hop may, the oldest stalled receives are abandoned.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"

#define LOOK_US  100000ull   /* between looks for stalled receives while headers wait */
#define STALL_US 500000ull   /* without payload: the receive is stalled */
#define SLOW_US  10000000ull /* for the whole payload: the receive is stalled */

void lnet_set_stalled(struct lnet_msg *msg, bool stalled)
{
    struct lnet_router_pool *p = &msg->home->credit->pool[msg->pool];
    bool gateway = msg->account->gateway;

    if (msg->stalled == stalled)
        return;
    msg->stalled = stalled;
    lnet_budget_stall(msg, stalled);
    if (stalled) {
        lnet_next_hop_credit(msg->home, msg->account, msg->pool);
        p->stalled++;
        p->gw_held += gateway;
    } else {
        p->gw_held -= gateway;
        p->stalled--;
        lnet_next_hop_charge(msg->home, msg->account, msg->pool);
    }
}

static bool too_long(const struct lnet_rx *rx, uint64_t now)
{
    return now - rx->begun_us >= SLOW_US;
}

static bool is_stalled(const struct lnet_rx *rx, uint64_t now)
{
    return now - rx->progress_us >= STALL_US || too_long(rx, now);
}

/* Counts the waiting headers to which a buffer of each pool is of use. */
static void count_wanted(const struct lnet_shard *s, uint32_t wanted[LNET_POOLS])
{
    const struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &s->credit->waiting, age)
        wanted[rx->pool] += rx->wait == LNET_RX_WAIT_BUFFER && !lnet_waits_for_unconnected(rx);
}

/* Charges receives that have stalled to the stall account, and those that go on back to their next
 * hops. */
static void find_stalled(struct lnet_shard *s, const uint32_t wanted[LNET_POOLS], uint64_t now)
{
    bool memory = s->credit->budget.waiting > 0;
    struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &s->credit->receiving, age)
        if (wanted[rx->msg->pool] > 0 || (memory && rx->msg->memory > 0))
            lnet_set_stalled(rx->msg, is_stalled(rx, now));
}

static bool abandon(struct lnet_rx *rx)
{
    struct lnet_msg *msg = rx->msg;

    rx->msg = NULL; /* first, since the LND reads its grant in recv_abandon() */
    if (!rx->ni->lnd->recv_abandon ||
        !rx->ni->lnd->recv_abandon(rx, too_long(rx, reactor_now_us()))) {
        rx->msg = msg;
        return false;
    }
    TAILQ_REMOVE(&rx->shard->credit->receiving, rx, age);
    rx->drop = LNET_DROP_RX_STALLED;
    lnet_drop_message(rx->shard, LNET_DROP_RX_STALLED, rx->ni, rx->from, NULL, &msg->hdr);
    lnet_forward_free(msg);
    return true;
}

static bool too_many_stalled(const struct lnet_shard *s, const struct lnet_router_pool *p)
{
    int32_t free_here = lnet_pool_free(p) > 0 ? lnet_pool_free(p) : 0;

    return (uint64_t)p->stalled * 100 > (uint64_t)free_here * relaxed_load(&s->node->egress_share);
}

/* Abandons the oldest stalled receives, at most as many as are wanted. */
static void abandon_stalled(struct lnet_shard *s, enum lnet_pool pool, uint32_t wanted)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];
    struct lnet_rx *rx = TAILQ_FIRST(&s->credit->receiving), *next;

    for (; rx && wanted > 0 && p->stalled > 0 && too_many_stalled(s, p); rx = next) {
        next = TAILQ_NEXT(rx, age);
        if (rx->msg->pool == pool && rx->msg->stalled && abandon(rx))
            wanted--;
    }
}

/* Does the same for the memory of their segments. */
static void abandon_for_memory(struct lnet_shard *s)
{
    struct lnet_rx *rx = TAILQ_FIRST(&s->credit->receiving), *next;
    uint32_t wanted = s->credit->budget.waiting;

    for (; rx && wanted > 0 && lnet_budget_stalled(s); rx = next) {
        next = TAILQ_NEXT(rx, age);
        if (rx->msg->memory > 0 && rx->msg->stalled && abandon(rx))
            wanted--;
    }
}

/* Chooses the path of a waiting header anew. Returns false if there is none; rx->drop has the
 * reason. */
static bool reroute(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    struct lnet_path path;
    struct lnet_next_hop *d;

    rx->drop = lnet_select(s, &rx->hdr.dest_nid, &LNET_NID_ANY, NULL, &path);
    if (rx->drop)
        return false;
    d = lnet_next_hop_of(s, &path);
    if (!d)
        return true; /* waits on */
    lnet_ni_hold(s, path.ni);
    lnet_ni_put(s, rx->path.ni);
    rx->path = path;
    if (d == rx->account) { /* the same next hop was chosen: the header keeps its place */
        lnet_next_hop_put(s, d);
        return true;
    }
    lnet_buffer_wait_ends(rx);
    lnet_next_hop_put(s, rx->account);
    rx->account = d;
    lnet_buffer_wait(rx);
    return true;
}

/* Reroutes headers that wait for the share of a gateway whose path is no longer good. */
static void reroute_waiting(struct lnet_shard *s)
{
    struct lnet_rx_queue lost = TAILQ_HEAD_INITIALIZER(lost);
    struct lnet_rx *rx, *next;

    for (rx = TAILQ_FIRST(&s->credit->waiting); rx; rx = next) {
        next = TAILQ_NEXT(rx, age);
        if (rx->wait != LNET_RX_WAIT_BUFFER || lnet_path_good(s, &rx->path) || reroute(rx))
            continue;
        lnet_wait_leave(rx);
        TAILQ_INSERT_TAIL(&lost, rx, queue);
    }
    while ((rx = TAILQ_FIRST(&lost))) {
        TAILQ_REMOVE(&lost, rx, queue);
        lnet_discard(rx, rx->drop);
    }
}

static void stall_look(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_credit_shard, stall_timer)->shard;
    uint32_t wanted[LNET_POOLS] = {0};
    bool waiting = false;

    reroute_waiting(s);
    count_wanted(s, wanted);
    find_stalled(s, wanted, reactor_now_us());
    abandon_for_memory(s);
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        abandon_stalled(s, (enum lnet_pool)i, wanted[i]);
        waiting |= s->credit->pool[i].waiting > 0;
    }
    if (!waiting)
        return;
    lnet_wake_soon(s);
    reactor_timer_arm(t, LOOK_US);
}

void lnet_stall_watch(struct lnet_shard *s)
{
    if (!reactor_timer_armed(&s->credit->stall_timer))
        reactor_timer_arm(&s->credit->stall_timer, LOOK_US);
}

void lnet_stall_init(struct lnet_credit_shard *c)
{
    TAILQ_INIT(&c->receiving);
    reactor_timer_init(&c->stall_timer, stall_look);
}
