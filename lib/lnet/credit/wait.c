/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers that wait for a router credit of their sender, for a router buffer, or for a limit. Their
 * connections are not read: that is the back-pressure. The wait is bounded, since peers with a 16 s
 * LND timeout must see its end well before (docs/protocol/socklnd.md §6.5).
 *
 * The bound holds for the connection, not for one message. Messages behind an expired one have
 * waited as long in socket buffers, and the sender's timeout runs for each of them. So for a moment
 * a message on that connection takes a free buffer at once or is dropped.
 */
#include "lib/reactor/wait.h"
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/fault/fault.h"
#include "lib/lnet/peer/peer_ni.h"

#define BEHIND_US   1000000ull  /* after an expired wait: take a buffer at once or be dropped */
#define CONNECT_US  1000000ull  /* so long a header waits for the share of the unconnected … */
#define CONNECTS_US 10000000ull /* … and then none of its sender for so long */
#define TURN_LOOKS  256         /* headers that a new one passes at most, whose turn is later */
#define SERVE_MAX   64          /* admissions and refusals in one iteration of the reactor */

/* ---- waiting for a buffer ---- */

/* Senders take turns: the second header of one comes after the first ones of others that wait by
 * then. A gateway sends what many have sent. */
static void take_turn(struct lnet_next_hop_wait *w, struct lnet_rx *rx)
{
    struct lnet_rx *at = TAILQ_LAST(&w->queue, lnet_rx_queue);

    rx->turn = w->turn + 1 + (rx->from->gw_ni ? 0 : rx->from->buffer_waits);
    rx->from->buffer_waits++;
    for (unsigned i = 0; at && i < TURN_LOOKS && (int32_t)(at->turn - rx->turn) > 0; i++)
        at = TAILQ_PREV(at, lnet_rx_queue, queue);
    if (at)
        TAILQ_INSERT_AFTER(&w->queue, at, rx, queue);
    else
        TAILQ_INSERT_HEAD(&w->queue, rx, queue);
}

void lnet_buffer_wait(struct lnet_rx *rx)
{
    struct lnet_router_pool *p = &rx->shard->credit->pool[rx->pool];
    struct lnet_next_hop_wait *w = lnet_wait_of(rx);

    if (TAILQ_EMPTY(&w->queue)) {
        w->rests = false;
        TAILQ_INSERT_TAIL(&p->ring[rx->class].look, w, ring);
    }
    take_turn(w, rx);
    rx->account->waiting++;
    count_add(&p->waiting, 1);
    lnet_pool_note_low(p);
    if (!rx->lacks && lnet_next_hop_why(rx) == LNET_DROP_BUFFER_WAIT)
        lnet_pool_short(rx->shard, rx->pool);
}

void lnet_buffer_wait_ends(struct lnet_rx *rx)
{
    struct lnet_router_pool *p = &rx->shard->credit->pool[rx->pool];
    struct lnet_next_hop_wait *w = lnet_wait_of(rx);

    lnet_budget_forget(rx);
    TAILQ_REMOVE(&w->queue, rx, queue);
    rx->from->buffer_waits--;
    rx->account->waiting--;
    if (TAILQ_EMPTY(&w->queue))
        TAILQ_REMOVE(w->rests ? &p->ring[rx->class].rest : &p->ring[rx->class].look, w, ring);
    relaxed_store(&p->waiting, p->waiting - 1);
}

/* ---- waiting ---- */

/* Inserts by expiry: the operator may have shortened the wait since an earlier header began it. */
static void waiting_add(struct lnet_rx_ages *list, struct lnet_rx *rx)
{
    struct lnet_rx *at = TAILQ_LAST(list, lnet_rx_ages);

    while (at && at->wait_until_us > rx->wait_until_us)
        at = TAILQ_PREV(at, lnet_rx_ages, age);
    if (at)
        TAILQ_INSERT_AFTER(list, at, rx, age);
    else
        TAILQ_INSERT_HEAD(list, rx, age);
}

static void arm_wait_timer(struct lnet_credit_shard *c)
{
    const struct lnet_rx *first = TAILQ_FIRST(&c->waiting);
    uint64_t now = reactor_now_us();

    if (!first)
        reactor_timer_cancel(&c->wait_timer);
    else
        reactor_timer_arm(&c->wait_timer, max(first->wait_until_us, now) - now);
}

static void waiting_del(struct lnet_rx *rx)
{
    struct lnet_credit_shard *c = rx->shard->credit;

    TAILQ_REMOVE(&c->waiting, rx, age);
    if (TAILQ_EMPTY(&c->waiting))
        reactor_timer_cancel(&c->wait_timer);
}

/* A header in rtrq no longer waits for its router credit. */
static void credit_wait_ends(struct lnet_rx *rx)
{
    TAILQ_REMOVE(&rx->from->rtrq, rx, queue);
    rx->from->rtr_waiting--;
    reactor_waited(REACTOR_WAIT_ROUTER_CREDIT, rx->begun_us);
}

void lnet_wake_credited(struct lnet_peer_ni *peer)
{
    struct lnet_shard *s = peer->shard;

    if (peer->rtr_waking)
        return;
    peer->rtr_waking = true;
    lnet_peer_ni_hold(peer);
    peer->rtr_next = s->credit->rtr_wake;
    s->credit->rtr_wake = peer;
    lnet_wake_soon(s);
}

static void begin_wait(struct lnet_rx *rx, enum lnet_rx_wait what)
{
    struct lnet_shard *s = rx->shard;

    rx->wait = (uint8_t)what;
    rx->begun_us = reactor_now_us();
    if (what == LNET_RX_WAIT_CREDIT) {
        TAILQ_INSERT_TAIL(&rx->from->rtrq, rx, queue);
        rx->from->rtr_waiting++;
        rx->from->rtr.waited++;
        if (lnet_has_credited(rx->from)) /* there is one, with earlier headers not yet woken */
            lnet_wake_credited(rx->from);
    } else {
        lnet_buffer_wait(rx);
        count_add(&s->credit->pool[rx->pool].waited, 1);
    }
    lnet_stall_watch(s);
}

/* A header waits no longer; it gets a buffer, or leaves. */
static void wait_ends(struct lnet_rx *rx)
{
    if (rx->wait == LNET_RX_WAIT_CREDIT) {
        credit_wait_ends(rx);
    } else if (rx->wait == LNET_RX_WAIT_BUFFER) {
        reactor_waited(REACTOR_WAIT_BUFFER, rx->begun_us);
        lnet_buffer_wait_ends(rx);
    }
    waiting_del(rx);
    rx->wait = LNET_RX_BUSY;
}

static void limit_leave(struct lnet_rx *rx)
{
    reactor_timer_cancel(&rx->limit);
    rx->from->limit_waiting--;
}

enum lnet_drop lnet_buffer_why(const struct lnet_rx *rx)
{
    return rx->lacks ? rx->lacks : lnet_next_hop_why(rx);
}

static enum lnet_drop wait_reason(const struct lnet_rx *rx)
{
    return rx->wait == LNET_RX_WAIT_CREDIT ? LNET_DROP_RTR_CREDIT : lnet_buffer_why(rx);
}

void lnet_wait_leave(struct lnet_rx *rx)
{
    struct lnet_peer_ni *from = rx->from;

    if (rx->wait == LNET_RX_WAIT_DELAY) {
        lnet_fault_leave(rx);
        return;
    }
    if (rx->wait == LNET_RX_WAIT_LIMIT) {
        limit_leave(rx);
        rx->wait = LNET_RX_BUSY;
        return;
    }
    wait_ends(rx);
    lnet_ni_put(rx->shard, rx->path.ni);
    lnet_next_hop_put(rx->shard, rx->account);
    rx->account = NULL;
    lnet_give_router_credit(from); /* taken, or only asked for: now counts both */
}

/* While a header waits for the share of next hops that are not connected, messages of its sender to
 * others wait behind it. So it does not wait long, and for a next hop that stalled not at all. */
bool lnet_connects_in_vain(struct lnet_rx *rx)
{
    uint64_t now = reactor_now_us();

    if (rx->wait != LNET_RX_WAIT_BUFFER || !lnet_waits_for_unconnected(rx))
        return false;
    if (lnet_stalled_lately(rx->shard->node, rx->hash))
        return true;
    if (now - rx->begun_us >= CONNECT_US)
        rx->from->unconnected_until_us = now + CONNECTS_US;
    return now < rx->from->unconnected_until_us;
}

/* Drops a header that has begun to wait, if it should not. */
static void wait_or_leave(struct lnet_rx *rx)
{
    bool behind = rx->expired_us != 0 && reactor_now_us() - rx->expired_us < BEHIND_US;
    enum lnet_drop why = wait_reason(rx);

    if (lnet_connects_in_vain(rx))
        why = LNET_DROP_UNCONNECTED;
    else if (!behind && (why != LNET_DROP_DEST_SHARE || !rx->account->vain[rx->pool]))
        return;
    lnet_wait_leave(rx);
    lnet_discard(rx, why);
}

void lnet_wait(struct lnet_rx *rx, enum lnet_rx_wait what)
{
    struct lnet_credit_shard *c = rx->shard->credit;

    waiting_add(&c->waiting, rx);
    begin_wait(rx, what);
    if (TAILQ_FIRST(&c->waiting) == rx)
        arm_wait_timer(c);
    wait_or_leave(rx);
}

uint64_t lnet_limit_wait_us(const struct lnet_node *node)
{
    return relaxed_load(&node->buffer_wait) * 1000000ull / 2;
}

static void limit_ends(struct reactor_timer *t)
{
    struct lnet_rx *rx = container_of(t, struct lnet_rx, limit);

    limit_leave(rx);
    lnet_admit(rx);
}

void lnet_admit_after(struct lnet_rx *rx, uint64_t wait_us)
{
    rx->wait = LNET_RX_WAIT_LIMIT;
    rx->from->limit_waiting++;
    rx->from->limit_waited++;
    reactor_timer_init(&rx->limit, limit_ends);
    reactor_timer_arm(&rx->limit, wait_us);
}

static void wait_expired(struct reactor_timer *t)
{
    struct lnet_credit_shard *c = container_of(t, struct lnet_credit_shard, wait_timer);
    uint64_t now = reactor_now_us();
    struct lnet_rx *rx;

    while ((rx = TAILQ_FIRST(&c->waiting)) && rx->wait_until_us <= now) {
        enum lnet_drop why = wait_reason(rx);

        rx->account->vain[rx->pool] |= why == LNET_DROP_DEST_SHARE && !rx->lacks &&
                                       rx->account->moved_us[rx->pool] <= rx->begun_us;
        lnet_wait_leave(rx);
        rx->expired_us = now;
        lnet_discard(rx, why);
    }
    arm_wait_timer(c);
}

static enum lnet_drop cancel_reason(const struct lnet_ni *ni)
{
    if (relaxed_load(&ni->node->stopping))
        return LNET_DROP_SHUTDOWN;
    return !lnet_ni_is_active(ni) ? LNET_DROP_NI_REMOVED : LNET_DROP_RX_INCOMPLETE;
}

bool lnet_rx_cancel(struct lnet_rx *rx)
{
    if (!lnet_rx_waits(rx))
        return false;
    lnet_wait_leave(rx);
    rx->wait = LNET_RX_NOT_WAITING;
    lnet_drop_message(rx->shard, cancel_reason(rx->ni), rx->ni, rx->from, NULL, &rx->hdr);
    return true;
}

/* ---- waking ---- */

/* Returns the first header of a ring that may have a buffer; next hops take turns. Each next hop is
 * looked at once after a buffer came free: if it can have none then, it can have none after another
 * took one. *looks bounds the next hops looked at in one iteration of the reactor. */
static struct lnet_rx *next_of_ring(struct lnet_ring *ring, unsigned *looks)
{
    struct lnet_next_hop_wait *w;

    while ((w = TAILQ_FIRST(&ring->look)) && *looks > 0) {
        struct lnet_rx *rx = TAILQ_FIRST(&w->queue);

        --*looks;
        TAILQ_REMOVE(&ring->look, w, ring);
        w->rests = !lnet_may_admit(rx);
        if (!w->rests) { /* its next header comes after those of the other next hops */
            TAILQ_INSERT_TAIL(&ring->look, w, ring);
            w->turn = rx->turn;
            return rx;
        }
        TAILQ_INSERT_TAIL(&ring->rest, w, ring);
    }
    return NULL;
}

/* Classes take turns, so that none starves another. */
static struct lnet_rx *next_to_admit(struct lnet_router_pool *p, unsigned *looks)
{
    struct lnet_rx *rx = NULL;

    for (unsigned i = 0; i < LNET_CLASSES && !rx; i++) {
        rx = next_of_ring(&p->ring[p->turn], looks);
        p->turn = (uint8_t)((p->turn + 1) % LNET_CLASSES);
    }
    return rx;
}

/* Returns false when headers are left that may be able to go on. */
static bool serve(struct lnet_router_pool *p)
{
    unsigned looks = SERVE_MAX;

    while (p->waiting > 0 && lnet_pool_free(p) > 0) {
        struct lnet_rx *rx = next_to_admit(p, &looks);

        if (!rx)
            return looks > 0;
        wait_ends(rx);
        lnet_admit_now(rx);
    }
    return true;
}

static void start_credited(struct lnet_peer_ni *peer)
{
    uint32_t n = peer->rtr_waiting; /* a later header posts its own wake-up */

    while (n-- > 0 && lnet_has_credited(peer)) {
        struct lnet_rx *rx = TAILQ_FIRST(&peer->rtrq);

        credit_wait_ends(rx);
        if (!lnet_may_go_now(rx)) {
            begin_wait(rx, LNET_RX_WAIT_BUFFER);
            wait_or_leave(rx);
            continue;
        }
        reactor_wait_none(REACTOR_WAIT_BUFFER);
        waiting_del(rx);
        lnet_admit_now(rx);
    }
}

static void post_wake(struct lnet_shard *s)
{
    if (s->credit->wake_posted)
        return;
    s->credit->wake_posted = true;
    reactor_post(s->reactor, &s->credit->wake);
}

void lnet_wake_soon(struct lnet_shard *s)
{
    s->credit->wake_all = true;
    post_wake(s);
}

/* Moves the next hops that rest behind those that are still to be looked at. */
static void look_at_all(struct lnet_credit_shard *c)
{
    c->wake_all = false;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        for (unsigned k = 0; k < LNET_CLASSES; k++) {
            struct lnet_ring *ring = &c->pool[i].ring[k];
            struct lnet_next_hop_wait *w;

            TAILQ_FOREACH(w, &ring->rest, ring)
                w->rests = false;
            TAILQ_CONCAT(&ring->look, &ring->rest, ring);
        }
}

/* Runs as a message of the reactor to itself, not where a buffer is given back: admission may
 * complete a message at once and free its buffer again, and that must not nest. Buffers first, then
 * router credits, §4.6. */
static void wake_waiters(struct reactor_task *task)
{
    struct lnet_credit_shard *c = container_of(task, struct lnet_credit_shard, wake);
    struct lnet_peer_ni *list = c->rtr_wake, *peer;
    bool all = true;

    c->rtr_wake = NULL;
    if (c->wake_all)
        look_at_all(c);
    lnet_budget_serve(c->shard);
    for (unsigned i = 0; i < LNET_POOLS; i++) /* pools share the budget and take turns */
        all &= serve(&c->pool[(c->turn + i) % LNET_POOLS]);
    c->turn = (uint8_t)((c->turn + 1) % LNET_POOLS);
    /* Until here, headers from the connections just served waited behind the others. */
    c->wake_posted = false;
    if (!all || c->wake_all)
        post_wake(c->shard);
    while ((peer = list)) {
        list = peer->rtr_next;
        peer->rtr_waking = false;
        start_credited(peer);
        lnet_peer_ni_put(peer);
    }
}

void lnet_wait_init(struct lnet_credit_shard *c)
{
    TAILQ_INIT(&c->waiting);
    reactor_timer_init(&c->wait_timer, wait_expired);
    c->wake.fn = wake_waiters;
}
