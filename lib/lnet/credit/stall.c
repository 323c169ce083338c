/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stalled receives, looked for while headers wait for buffers. An admitted message holds its buffer
 * while its payload comes in. When the sender stops in the middle, or takes long, the buffer is
 * charged to a common account of stalled receives: the next hop is not to blame. The sender is slow
 * from then on: what else it sends is charged to that account, too, and its headers wait for a
 * place there and not in the line of others. When it has no such receive for a moment, it is not
 * slow any more. But for a while it is not prompt: its messages are not quick ones. While that
 * account is full they wait for a place there. While that account holds more than a next hop may,
 * the oldest receives that have stopped for longer are abandoned, first those of senders with
 * several.
 *
 * Gateways are not slow: they send what others have sent.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"

#define LOOK_US  50000ull    /* between looks for stalled receives while headers wait */
#define LATE_US  100000ull   /* without payload: the receive is stalled, its sender slow */
#define STALL_US 500000ull   /* … it may be abandoned */
#define SLOW_US  10000000ull /* for the whole payload: the same */
#define HOLD_US  250000ull   /* a receive that is not whole after this is stalled, too */
#define SLOW_FOR 500000ull /* so long a sender is slow after a receive was seen to be stalled … */
#define PAY      16        /* times as long as a receive was late the sender is not prompt then */
#define LOST_FOR 10000000ull /* … and after one was abandoned, or ended so */
#define SEVERAL  2u          /* stalled receives of a sender: they are abandoned first */

void lnet_set_stalled(struct lnet_msg *msg, bool stalled)
{
    struct lnet_router_pool *p = &msg->home->credit->pool[msg->pool];
    bool gateway = msg->account->gateway;

    if (msg->stalled == stalled)
        return;
    msg->stalled = stalled;
    msg->rx_peer->stalled += stalled ? 1 : -1u;
    lnet_budget_stall(msg, stalled);
    if (stalled) {
        lnet_next_hop_credit(msg->account, msg);
        p->stalled++;
        p->gw_held += gateway;
    } else {
        p->gw_held -= gateway;
        p->stalled--;
        lnet_next_hop_charge(msg->account, msg);
    }
}

static bool too_long(const struct lnet_rx *rx, uint64_t now)
{
    return now - rx->begun_us >= SLOW_US;
}

static bool stopped_for(const struct lnet_rx *rx, uint64_t time_us, uint64_t now)
{
    return now - rx->progress_us >= time_us || too_long(rx, now);
}

static void sender_slow(struct lnet_peer_ni *from, uint64_t time_us)
{
    struct lnet_credit_shard *c = from->shard->credit;
    uint64_t until_us = reactor_now_us() + time_us;

    if (from->gw_ni)
        return;
    from->slow_until_us = max(from->slow_until_us, until_us);
    c->slow_until_us = max(c->slow_until_us, until_us);
}

void lnet_sender_learn(struct lnet_rx *rx, uint64_t now)
{
    uint64_t took_us = now - rx->begun_us;

    if (took_us >= LATE_US)
        rx->from->prompt_s = max(rx->from->prompt_s, (uint32_t)((now + PAY * took_us) / 1000000));
}

bool lnet_too_many_stalled(const struct lnet_shard *s, enum lnet_pool pool)
{
    const struct lnet_router_pool *p = &s->credit->pool[pool];
    const struct lnet_ring *slow = &p->ring[LNET_CLASS_SLOW];
    bool waits = !TAILQ_EMPTY(&slow->look) || !TAILQ_EMPTY(&slow->rest);
    int32_t free_here = lnet_pool_free(p) - (waits ? lnet_pool_aside(s, pool, LNET_CLASS_SLOW) : 0);

    return (uint64_t)p->stalled * 100 + waits >
           (uint64_t)max(free_here, 0) * relaxed_load(&s->node->egress_share);
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

    for (unsigned pass = 0; pass < 2; pass++) /* first which senders are slow, then all they send */
        TAILQ_FOREACH(rx, &s->credit->receiving, age) {
            uint64_t took_us = now - rx->begun_us;
            bool late = stopped_for(rx, LATE_US, now) || took_us >= HOLD_US;
            bool not_quick = rx->msg->quick && took_us >= LATE_US;

            if (wanted[rx->msg->pool] == 0 && !(memory && rx->msg->memory > 0))
                continue;
            if (pass == 0)
                lnet_sender_learn(rx, now);
            if (pass == 0 && late)
                sender_slow(rx->from, SLOW_FOR);
            if (pass == 1)
                lnet_set_stalled(rx->msg, late || not_quick || lnet_sender_slow(rx->from, now));
        }
}

void lnet_stalled_ends(struct lnet_rx *rx, bool whole)
{
    if (!whole)
        sender_slow(rx->from, LOST_FOR);
    lnet_set_stalled(rx->msg, false);
}

/* Moves headers of senders that became slow, or are not any more, to where they now belong. */
static void sort_waiting(struct lnet_shard *s)
{
    struct lnet_rx *rx;

    TAILQ_FOREACH(rx, &s->credit->waiting, age) {
        if (rx->wait != LNET_RX_WAIT_BUFFER || rx->class == lnet_class_of(rx))
            continue;
        lnet_buffer_wait_ends(rx);
        rx->class = (uint8_t)lnet_class_of(rx);
        lnet_buffer_wait(rx);
    }
}

/* Returns whether the buffer of a receive is free, or will be soon, as its connection ends. */
static bool abandon(struct lnet_rx *rx)
{
    const struct lnd_ops *lnd = rx->ni->lnd;
    struct lnet_msg *msg = rx->msg;
    enum lnet_abandon result;

    if (!lnd->recv_abandon)
        return false;
    rx->msg = NULL; /* first, since the LND reads its grant in recv_abandon() */
    result = lnd->recv_abandon(rx, too_long(rx, reactor_now_us()));
    if (result != LNET_ABANDON_DONE) {
        rx->msg = msg;
        return result == LNET_ABANDON_SOON;
    }
    TAILQ_REMOVE(&rx->shard->credit->receiving, rx, age);
    rx->drop = LNET_DROP_RX_STALLED;
    sender_slow(rx->from, LOST_FOR);
    lnet_drop_message(rx->shard, LNET_DROP_RX_STALLED, rx->ni, rx->from, NULL, &msg->hdr);
    lnet_forward_free(msg);
    return true;
}

/* Whether a receive may be abandoned, of a sender that has at least so many stalled ones. */
static bool may_abandon(const struct lnet_rx *rx, uint32_t least)
{
    return rx->msg->stalled && rx->from->stalled >= least &&
           stopped_for(rx, STALL_US, reactor_now_us());
}

/* Abandons the oldest stalled receives, at most as many as are wanted. */
static void abandon_stalled(struct lnet_shard *s, enum lnet_pool pool, uint32_t wanted)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];
    struct lnet_rx *rx, *next;

    for (uint32_t least = SEVERAL; least > 0; least--)
        for (rx = TAILQ_FIRST(&s->credit->receiving);
             rx && wanted > 0 && p->stalled > 0 && lnet_too_many_stalled(s, pool); rx = next) {
            next = TAILQ_NEXT(rx, age);
            if (rx->msg->pool == pool && may_abandon(rx, least) && abandon(rx))
                wanted--;
        }
}

/* Does the same for the memory of their segments. */
static void abandon_for_memory(struct lnet_shard *s)
{
    uint32_t wanted = s->credit->budget.waiting;
    struct lnet_rx *rx, *next;

    for (uint32_t least = SEVERAL; least > 0; least--)
        for (rx = TAILQ_FIRST(&s->credit->receiving); rx && wanted > 0 && lnet_budget_stalled(s);
             rx = next) {
            next = TAILQ_NEXT(rx, age);
            if (rx->msg->memory > 0 && may_abandon(rx, least) && abandon(rx))
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

static bool waits_on(struct lnet_rx *rx)
{
    if (!lnet_path_good(rx->shard, &rx->path))
        return reroute(rx);
    rx->drop = lnet_connects_in_vain(rx) ? LNET_DROP_UNCONNECTED : LNET_DROP_NONE;
    return !rx->drop;
}

/* Reroutes headers that wait for the share of a gateway whose path is no longer good. Drops those
 * that have waited long enough for the share of next hops without a connection. */
static void look_at_waiting(struct lnet_shard *s)
{
    struct lnet_rx_queue lost = TAILQ_HEAD_INITIALIZER(lost);
    struct lnet_rx *rx, *next;

    for (rx = TAILQ_FIRST(&s->credit->waiting); rx; rx = next) {
        next = TAILQ_NEXT(rx, age);
        if (rx->wait != LNET_RX_WAIT_BUFFER || waits_on(rx))
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

    look_at_waiting(s);
    count_wanted(s, wanted);
    find_stalled(s, wanted, reactor_now_us());
    sort_waiting(s);
    lnet_credits_look(s);
    lnet_next_hops_look(s);
    abandon_for_memory(s);
    for (unsigned i = 0; i < LNET_POOLS; i++)
        abandon_stalled(s, (enum lnet_pool)i, wanted[i]);
    if (TAILQ_EMPTY(&s->credit->waiting))
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
