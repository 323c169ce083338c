/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of messages that are to be forwarded. docs/protocol/lnet-core.md §4.3, §4.6, §4.9;
 * docs/architecture.md "Admission".
 *
 * A header takes a router credit of its sender, which bounds the router buffers that messages of
 * one peer NI hold. Then it takes a router buffer, which is charged to its next hop. A header that
 * cannot have one of them waits, and its connection is not read: that is the back-pressure. The
 * wait is bounded, since peers with a 16 s LND timeout must see its end well before (socklnd.md
 * §6.5).
 *
 * The bound holds for the connection, not for one message. Messages behind an expired one have
 * waited as long in socket buffers, and the sender's timeout runs for each of them. So for a moment
 * a message on that connection takes a free buffer at once or is dropped.
 *
 * An admitted message holds its buffer while its payload comes in. When the sender stops in the
 * middle, the buffer is charged to a common account of stalled receives: the next hop is not to
 * blame. While headers wait and that account holds more than a next hop may, the oldest stalled
 * receives are abandoned.
 */
#include "lib/lnet/credit/credit_internal.h"
#include "lib/lnet/path/path.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/reactor/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define BEHIND_US                                                                                  \
    1000000ull /* after an expired wait: a message takes a buffer at once or is dropped */
#define STALL_LOOK_US 100000ull   /* between looks for stalled receives while headers wait */
#define STALL_US      500000ull   /* without payload: the receive is stalled */
#define SLOW_US       10000000ull /* for the whole payload: the receive is stalled */
#define SERVE_MAX     64          /* admissions and refusals in one iteration of the reactor */

/* ---- headers by age ---- */

static void age_add(struct lnet_rx_ages *list, struct lnet_rx *rx)
{
    rx->age_next = NULL;
    rx->age_pprev = list->tail;
    *list->tail = rx;
    list->tail = &rx->age_next;
}

/* Inserts by expiry: the operator may have shortened the wait since an earlier header began it. */
static void age_add_waiting(struct lnet_rx_ages *list, struct lnet_rx *rx)
{
    struct lnet_rx *at = list->head;

    if (!at ||
        container_of(list->tail, struct lnet_rx, age_next)->wait_until_us <= rx->wait_until_us) {
        age_add(list, rx);
        return;
    }
    while (at->wait_until_us <= rx->wait_until_us)
        at = at->age_next;
    rx->age_next = at;
    rx->age_pprev = at->age_pprev;
    *rx->age_pprev = rx;
    at->age_pprev = &rx->age_next;
}

static void age_del(struct lnet_rx_ages *list, struct lnet_rx *rx)
{
    *rx->age_pprev = rx->age_next;
    if (rx->age_next)
        rx->age_next->age_pprev = rx->age_pprev;
    else
        list->tail = rx->age_pprev;
    rx->age_next = NULL;
    rx->age_pprev = NULL;
}

/* ---- what a header needs ---- */

static enum lnet_pool pool_for(uint32_t payload_len)
{
    if (payload_len == 0)
        return LNET_POOL_TINY;
    return payload_len <= LNET_SMALL_BUFFER ? LNET_POOL_SMALL : LNET_POOL_LARGE;
}

/* Urgent messages keep nodes alive and complete transactions. A GET asks for bulk. */
static enum lnet_class class_of(const struct lnet_hdr *hdr)
{
    struct lnet_put put;
    struct lnet_get get;

    switch (hdr->type) {
    case LNET_MSG_GET:
        lnet_body_get_get(hdr, &get);
        return get.portal == LNET_RESERVED_PORTAL ? LNET_CLASS_URGENT : LNET_CLASS_BULK;
    case LNET_MSG_PUT:
        lnet_body_get_put(hdr, &put);
        if (put.portal == LNET_RESERVED_PORTAL)
            return LNET_CLASS_URGENT;
        break;
    default:
        break;
    }
    return hdr->payload_len == 0 ? LNET_CLASS_URGENT : LNET_CLASS_BULK;
}

static struct lnet_next_hop_wait *wait_of(const struct lnet_rx *rx)
{
    return &rx->account->wait[rx->pool][rx->class];
}

/* ---- router credits ---- */

static uint32_t waiting_for(const struct lnet_credits *c)
{
    return c->now < 0 ? (uint32_t)-c->now : 0;
}

static bool take_router_credit(struct lnet_peer_ni *peer)
{
    struct lnet_credits *c = &peer->rtr;

    if (--c->now < c->min)
        c->min = c->now;
    return c->now >= 0;
}

/* Posts a wake-up when a header that waits for a router credit can have one. */
static void wake_credited(struct lnet_peer_ni *peer)
{
    struct lnet_shard *s = peer->shard;

    if (peer->rtrq.length <= waiting_for(&peer->rtr) || peer->rtr_waking)
        return;
    peer->rtr_waking = true;
    lnet_peer_ni_hold(peer);
    peer->rtr_next = s->credit->rtr_wake;
    s->credit->rtr_wake = peer;
    lnet_wake_soon(s);
}

static void give_router_credit(struct lnet_peer_ni *peer)
{
    peer->rtr.now++;
    wake_credited(peer);
}

/* ---- buffers ---- */

static void list_add(struct lnet_next_hop_wait *head, struct lnet_next_hop_wait *w)
{
    w->prev = head->prev;
    w->next = head;
    w->prev->next = w;
    w->next->prev = w;
}

static void list_del(struct lnet_next_hop_wait *w)
{
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->next = w->prev = NULL;
}

/* Updates the low-water mark: one more buffer is used or waited for. */
static void note_low(struct lnet_router_pool *p)
{
    int32_t low = lnet_pool_free(p) - (int32_t)p->waiting;

    if (low < p->low)
        relaxed_store(&p->low, low);
}

static void wait_for_buffer(struct lnet_rx *rx)
{
    struct lnet_router_pool *p = &rx->shard->credit->pool[rx->pool];
    struct lnet_next_hop_wait *w = wait_of(rx);

    if (!w->queue.head)
        list_add(&p->ring[rx->class].look, w);
    lnet_rx_queue_add(&w->queue, rx);
    rx->account->waiting++;
    count_add(&p->waiting, 1);
    note_low(p);
    if (!rx->lacks && lnet_next_hop_why(rx->shard, rx->account, rx->pool) == LNET_DROP_BUFFER_WAIT)
        lnet_pool_short(rx->shard, rx->pool);
}

static void wait_for_buffer_ends(struct lnet_rx *rx)
{
    struct lnet_router_pool *p = &rx->shard->credit->pool[rx->pool];
    struct lnet_next_hop_wait *w = wait_of(rx);

    lnet_budget_forget(rx);
    lnet_rx_queue_del(&w->queue, rx);
    rx->account->waiting--;
    if (!w->queue.head)
        list_del(w);
    relaxed_store(&p->waiting, p->waiting - 1);
}

/* Takes a buffer for the message and lets the LND receive its payload. */
static void admit_now(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    struct lnet_router_pool *pool = &s->credit->pool[rx->pool];
    struct lnet_msg *msg = lnet_msg_alloc(s, LNET_KIND_FORWARD); /* one for each buffer there is */

    count_add(&pool->used, 1);
    note_low(pool);
    lnet_next_hop_charge(s, rx->account, rx->pool);

    msg->hdr = rx->hdr;
    lnet_msg_set_rx_ni(msg, rx->ni);
    msg->rx_peer = rx->from;
    msg->router_credit = true;
    lnet_peer_ni_hold(rx->from);
    msg->account = rx->account;
    rx->account = NULL;
    lnet_msg_set_path(msg, &rx->path);
    lnet_ni_put(s, rx->path.ni);
    msg->pool = rx->pool;
    msg->state = LNET_MSG_RECEIVING;
    rx->msg = msg;
    rx->wait = LNET_RX_BUSY;
    rx->begun_us = rx->progress_us = reactor_now_us();
    age_add(&s->credit->receiving, rx);
    lnet_budget_admit(rx);
    if (rx->hdr.payload_len > 0 && !rx->ni->rx_take) {
        lnet_msg_buffer(msg);
        rx->ni->lnd->recv(rx, msg->segs, 1, rx->hdr.payload_len);
    } else {
        rx->ni->lnd->recv(rx, NULL, 0, rx->hdr.payload_len);
    }
}

/* ---- waiting ---- */

static void arm_wait_timer(struct lnet_shard *s)
{
    uint64_t now = reactor_now_us(), until;

    if (!s->credit->waiting.head) {
        reactor_timer_cancel(&s->credit->wait_timer);
        return;
    }
    until = s->credit->waiting.head->wait_until_us;
    reactor_timer_arm(&s->credit->wait_timer, until > now ? until - now : 0);
}

static void begin_wait(struct lnet_rx *rx, enum lnet_rx_wait what)
{
    struct lnet_shard *s = rx->shard;

    rx->wait = (uint8_t)what;
    rx->begun_us = reactor_now_us();
    if (what == LNET_RX_WAIT_CREDIT) {
        lnet_rx_queue_add(&rx->from->rtrq, rx);
        rx->from->rtr.waited++;
        wake_credited(rx->from); /* a credit may be there, with earlier headers not yet woken */
    } else {
        wait_for_buffer(rx);
        count_add(&s->credit->pool[rx->pool].waited, 1);
        if (!reactor_timer_armed(&s->credit->stall_timer))
            reactor_timer_arm(&s->credit->stall_timer, STALL_LOOK_US);
    }
}

static void wait_ends(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;
    bool credit = rx->wait == LNET_RX_WAIT_CREDIT;

    reactor_waited(credit ? REACTOR_WAIT_ROUTER_CREDIT : REACTOR_WAIT_BUFFER, rx->begun_us);
    if (credit)
        lnet_rx_queue_del(&rx->from->rtrq, rx);
    else
        wait_for_buffer_ends(rx);
    rx->wait = LNET_RX_BUSY;
    age_del(&s->credit->waiting, rx);
    if (!s->credit->waiting.head)
        reactor_timer_cancel(&s->credit->wait_timer);
}

/* Returns why a header waits. */
static enum lnet_drop wait_reason(const struct lnet_rx *rx)
{
    if (rx->wait == LNET_RX_WAIT_CREDIT)
        return LNET_DROP_RTR_CREDIT;
    if (rx->lacks)
        return rx->lacks;
    return lnet_next_hop_why(rx->shard, rx->account, rx->pool);
}

static void leave(struct lnet_rx *rx)
{
    struct lnet_peer_ni *from = rx->from;

    wait_ends(rx);
    lnet_ni_put(rx->shard, rx->path.ni);
    lnet_next_hop_put(rx->shard, rx->account);
    rx->account = NULL;
    give_router_credit(from); /* taken, or only asked for: now counts both */
}

static bool is_behind_expired(const struct lnet_rx *rx)
{
    return rx->expired_us != 0 && reactor_now_us() - rx->expired_us < BEHIND_US;
}

/* Returns whether its pool has a buffer for it, and the budget memory for its segments. */
static bool may(struct lnet_rx *rx)
{
    if (lnet_next_hop_may(rx->shard, rx->account, rx->pool, rx->class))
        return lnet_budget_may(rx);
    lnet_budget_forget(rx);
    return false;
}

/* Returns whether admitting this header delays no earlier one: it needs a resource that no earlier
 * header waits for. While a wake-up is posted, earlier headers may be able to go on; then this one
 * waits behind them. */
static bool may_go_now(struct lnet_rx *rx)
{
    struct lnet_shard *s = rx->shard;

    if ((rx->account->waiting > 0 && wait_of(rx)->queue.head) || !may(rx))
        return false;
    if (!s->credit->wake_posted ||
        (s->credit->pool[rx->pool].waiting == 0 && !lnet_budget_wanted(&s->credit->budget)))
        return true;
    s->credit->wake_all = true; /* it joins the headers that the wake-up looks at */
    return false;
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
    unsigned wait_s = relaxed_load(&s->node->buffer_wait);
    enum lnet_drop why = lnet_select(s, &rx->hdr.dest_nid, &LNET_NID_ANY, NULL, &rx->path);
    bool credit;

    if (why) {
        lnet_discard(rx, why);
        return;
    }
    rx->pool = (uint8_t)pool_for(rx->hdr.payload_len);
    rx->class = (uint8_t)class_of(&rx->hdr);
    rx->account = rx->path.gw ? lnet_next_hop_get(s, &rx->path.next_hop, true)
                              : lnet_next_hop_get_hashed(s, &rx->hdr.dest_nid, rx->hash, false);
    if (!rx->account) {
        lnet_discard(rx, LNET_DROP_NO_MSG_MEMORY);
        return;
    }
    fetch_peer(s, rx);
    lnet_ni_hold(s, rx->path.ni);
    rx->wait_until_us = reactor_now_us() + (uint64_t)wait_s * 1000000;
    /* A credit that came back belongs to the headers that wait, though they are not woken yet. */
    credit = take_router_credit(rx->from) && !rx->from->rtrq.head;
    if (credit)
        reactor_wait_none(REACTOR_WAIT_ROUTER_CREDIT);
    if (credit && may_go_now(rx)) {
        reactor_wait_none(REACTOR_WAIT_BUFFER);
        admit_now(rx);
        return;
    }
    age_add_waiting(&s->credit->waiting, rx);
    begin_wait(rx, credit ? LNET_RX_WAIT_BUFFER : LNET_RX_WAIT_CREDIT);
    if (is_behind_expired(rx)) {
        why = wait_reason(rx);
        leave(rx);
        lnet_discard(rx, why);
    } else if (s->credit->waiting.head == rx) {
        arm_wait_timer(s);
    }
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
    struct lnet_shard *s = container_of(t, struct lnet_credit_shard, wait_timer)->shard;
    uint64_t now = reactor_now_us();

    while (s->credit->waiting.head && s->credit->waiting.head->wait_until_us <= now) {
        struct lnet_rx *rx = s->credit->waiting.head;
        enum lnet_drop why = wait_reason(rx);

        leave(rx);
        rx->expired_us = now;
        lnet_discard(rx, why);
    }
    arm_wait_timer(s);
}

static enum lnet_drop cancel_reason(const struct lnet_ni *ni)
{
    if (relaxed_load(&ni->node->stopping))
        return LNET_DROP_SHUTDOWN;
    return !lnet_ni_is_active(ni) ? LNET_DROP_NI_REMOVED : LNET_DROP_RX_INCOMPLETE;
}

bool lnet_rx_cancel(struct lnet_rx *rx)
{
    if (rx->wait != LNET_RX_WAIT_BUFFER && rx->wait != LNET_RX_WAIT_CREDIT)
        return false;
    leave(rx);
    rx->wait = LNET_RX_NOT_WAITING;
    lnet_drop_message(rx->shard, cancel_reason(rx->ni), rx->ni, rx->from, NULL, &rx->hdr);
    return true;
}

/* ---- waking ---- */

/* Returns the first header of a ring that may have a buffer; next hops take turns. Each next hop is
 * looked at once after a buffer came free: if it can have none then, it can have none after another
 * took one. *looks bounds the next hops looked at in one iteration of the reactor. */
static struct lnet_rx *next_of_ring(struct lnet_shard *s, struct lnet_ring *ring,
                                    enum lnet_pool pool, enum lnet_class class, unsigned *looks)
{
    while (ring->look.next != &ring->look && *looks > 0) {
        struct lnet_next_hop_wait *w = ring->look.next;

        --*looks;
        list_del(w);
        if (may(w->queue.head)) {
            list_add(&ring->look, w); /* its next header comes after those of the other next hops */
            return w->queue.head;
        }
        list_add(&ring->rest, w);
    }
    return NULL;
}

/* Urgent and bulk take turns, so that neither starves the other. */
static struct lnet_rx *next_to_admit(struct lnet_shard *s, enum lnet_pool pool, unsigned *looks)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];
    struct lnet_rx *rx = NULL;

    for (unsigned i = 0; i < LNET_CLASSES && !rx; i++) {
        enum lnet_class class = (enum lnet_class)p->turn;

        p->turn = (uint8_t)((p->turn + 1) % LNET_CLASSES);
        rx = next_of_ring(s, &p->ring[class], pool, class, looks);
    }
    return rx;
}

/* Returns false when headers are left that may be able to go on. */
static bool serve(struct lnet_shard *s, enum lnet_pool pool)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];
    unsigned looks = SERVE_MAX;

    while (p->waiting > 0 && lnet_pool_free(p) > 0) {
        struct lnet_rx *rx = next_to_admit(s, pool, &looks);

        if (!rx)
            return looks > 0;
        wait_ends(rx);
        admit_now(rx);
    }
    return true;
}

static void start_credited(struct lnet_peer_ni *peer)
{
    uint32_t n = peer->rtrq.length; /* a later header posts its own wake-up */

    while (n-- > 0 && peer->rtrq.length > waiting_for(&peer->rtr)) {
        struct lnet_rx *rx = peer->rtrq.head;

        lnet_rx_queue_del(&peer->rtrq, rx);
        reactor_waited(REACTOR_WAIT_ROUTER_CREDIT, rx->begun_us);
        if (!may_go_now(rx)) {
            begin_wait(rx, LNET_RX_WAIT_BUFFER);
            continue;
        }
        reactor_wait_none(REACTOR_WAIT_BUFFER);
        age_del(&rx->shard->credit->waiting, rx);
        admit_now(rx);
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
static void look_at_ring(struct lnet_ring *ring)
{
    if (ring->rest.next == &ring->rest)
        return;
    ring->rest.next->prev = ring->look.prev;
    ring->look.prev->next = ring->rest.next;
    ring->rest.prev->next = &ring->look;
    ring->look.prev = ring->rest.prev;
    ring->rest.next = ring->rest.prev = &ring->rest;
}

static void look_at_all(struct lnet_shard *s)
{
    s->credit->wake_all = false;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        for (unsigned k = 0; k < LNET_CLASSES; k++)
            look_at_ring(&s->credit->pool[i].ring[k]);
}

/* Runs as a message of the reactor to itself, not where a buffer is given back: admission may
 * complete a message at once and free its buffer again, and that must not nest. Buffers first, then
 * router credits, §4.6. */
static void wake_waiters(struct reactor_task *task)
{
    struct lnet_shard *s = container_of(task, struct lnet_credit_shard, wake)->shard;
    struct lnet_peer_ni *list = s->credit->rtr_wake, *peer;
    bool all = true;

    s->credit->rtr_wake = NULL;
    if (s->credit->wake_all)
        look_at_all(s);
    lnet_budget_serve(s);
    for (unsigned i = 0; i < LNET_POOLS; i++) /* pools share the budget and take turns */
        all &= serve(s, (enum lnet_pool)((s->credit->turn + i) % LNET_POOLS));
    s->credit->turn = (uint8_t)((s->credit->turn + 1) % LNET_POOLS);
    s->credit->wake_posted =
        false; /* until here, headers from the connections just served waited behind the others */
    if (!all || s->credit->wake_all)
        post_wake(s);
    while ((peer = list)) {
        list = peer->rtr_next;
        peer->rtr_waking = false;
        start_credited(peer);
        lnet_peer_ni_put(peer);
    }
    if (!s->credit->waiting.head)
        reactor_timer_cancel(&s->credit->wait_timer);
}

/* ---- the end of a message ---- */

static void set_stalled(struct lnet_msg *msg, bool stalled)
{
    if (msg->stalled == stalled)
        return;
    msg->stalled = stalled;
    lnet_budget_stall(msg, stalled);
    if (stalled)
        lnet_next_hop_stall(msg->home, msg->account, msg->pool);
    else
        lnet_next_hop_unstall(msg->home, msg->account, msg->pool);
}

void lnet_admit_received(struct lnet_rx *rx)
{
    age_del(&rx->shard->credit->receiving, rx);
    lnet_budget_received(rx->msg);
    if (!rx->msg->stalled)
        return;
    set_stalled(rx->msg, false);
    if (rx->shard->credit->pool[rx->msg->pool].waiting > 0)
        lnet_wake_soon(rx->shard); /* its gateway holds a buffer again: none is set aside for it */
}

void lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path)
{
    struct lnet_shard *s = msg->home;
    struct lnet_next_hop *d = lnet_next_hop_get(s, &path->next_hop, path->gw != NULL);

    lnet_msg_set_path(msg, path);
    if (!d)
        return; /* stays on the old account */
    lnet_budget_move(msg, d);
    lnet_next_hop_charge(s, d, msg->pool);
    lnet_next_hop_credit(s, msg->account, msg->pool);
    lnet_next_hop_put(s, msg->account);
    msg->account = d;
    lnet_wake_soon(s);
}

void lnet_return_router_credit(struct lnet_msg *msg)
{
    if (!msg->router_credit)
        return;
    msg->router_credit = false;
    give_router_credit(msg->rx_peer);
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
    lnet_budget_release(msg);
    set_stalled(msg, false);
    lnet_next_hop_credit(s, msg->account, msg->pool);
    lnet_next_hop_put(s, msg->account);
    msg->account = NULL;
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

/* ---- stalled receives ---- */

static bool too_long(const struct lnet_rx *rx, uint64_t now)
{
    return now - rx->begun_us >= SLOW_US;
}

static bool is_stalled(const struct lnet_rx *rx, uint64_t now)
{
    return now - rx->progress_us >= STALL_US || too_long(rx, now);
}

static bool is_wanted(const struct lnet_shard *s, const struct lnet_msg *msg)
{
    return s->credit->pool[msg->pool].waiting > 0 ||
           (msg->memory > 0 && s->credit->budget.waiting > 0);
}

/* Charges receives that have stalled to the stall account, and those that go on back to their next
 * hops. */
static void find_stalled(struct lnet_shard *s, uint64_t now)
{
    for (struct lnet_rx *rx = s->credit->receiving.head; rx; rx = rx->age_next) {
        if (is_wanted(s, rx->msg))
            set_stalled(rx->msg, is_stalled(rx, now));
    }
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
    age_del(&rx->shard->credit->receiving, rx);
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

/* Abandons the oldest stalled receives, at most as many as headers wait. */
static void abandon_stalled(struct lnet_shard *s, enum lnet_pool pool)
{
    struct lnet_router_pool *p = &s->credit->pool[pool];
    struct lnet_rx *rx = s->credit->receiving.head, *next;
    uint32_t wanted = p->waiting;

    for (; rx && wanted > 0 && p->stalled > 0 && too_many_stalled(s, p); rx = next) {
        next = rx->age_next;
        if (rx->msg->pool == pool && rx->msg->stalled && abandon(rx))
            wanted--;
    }
}

/* Does the same for the memory of their segments. */
static void abandon_for_memory(struct lnet_shard *s)
{
    struct lnet_rx *rx = s->credit->receiving.head, *next;
    uint32_t wanted = s->credit->budget.waiting;

    for (; rx && wanted > 0 && lnet_budget_stalled(s); rx = next) {
        next = rx->age_next;
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
    d = lnet_next_hop_get(s, &path.next_hop, path.gw != NULL);
    if (!d)
        return true; /* waits on */
    lnet_ni_hold(s, path.ni);
    lnet_ni_put(s, rx->path.ni);
    rx->path = path;
    if (d == rx->account) { /* the same next hop was chosen: the header keeps its place */
        lnet_next_hop_put(s, d);
        return true;
    }
    wait_for_buffer_ends(rx);
    lnet_next_hop_put(s, rx->account);
    rx->account = d;
    wait_for_buffer(rx);
    return true;
}

/* Reroutes headers that wait for the share of a gateway whose path is no longer good. */
static void reroute_waiting(struct lnet_shard *s)
{
    struct lnet_rx_queue lost;
    struct lnet_rx *rx, *next;

    lnet_rx_queue_init(&lost);
    for (rx = s->credit->waiting.head; rx; rx = next) {
        next = rx->age_next;
        if (rx->wait != LNET_RX_WAIT_BUFFER || lnet_path_good(s, &rx->path) || reroute(rx))
            continue;
        leave(rx);
        lnet_rx_queue_add(&lost, rx);
    }
    while ((rx = lost.head)) {
        lnet_rx_queue_del(&lost, rx);
        lnet_discard(rx, rx->drop);
    }
}

static void stall_look(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_credit_shard, stall_timer)->shard;
    bool waiting = false;

    reroute_waiting(s);
    find_stalled(s, reactor_now_us());
    abandon_for_memory(s);
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        abandon_stalled(s, (enum lnet_pool)i);
        waiting |= s->credit->pool[i].waiting > 0;
    }
    if (!waiting)
        return;
    lnet_wake_soon(s);
    reactor_timer_arm(t, STALL_LOOK_US);
}

/* ---- init ---- */

void lnet_admit_fetch(const struct lnet_shard *s, uint32_t hash)
{
    __builtin_prefetch(&s->credit->next_hop_hash[hash & s->credit->next_hop_mask]);
}

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

    if (!c) {
        return err_set(err, -ENOMEM, "no memory for the accounts of a reactor");
    }
    c->shard = s;
    c->waiting.tail = &c->waiting.head;
    c->receiving.tail = &c->receiving.head;
    reactor_timer_init(&c->wait_timer, wait_expired);
    reactor_timer_init(&c->stall_timer, stall_look);
    c->wake.fn = wake_waiters;
    lnet_budget_init(s);
    rc = lnet_pools_init(s, err);
    if (rc)
        return rc;
    /* One for each buffer in use, and for what waits: at worst a header of every peer NI, each for
     * another next hop. */
    return lnet_next_hops_init(s, lnet_credit_capacity(s) + max_peers, err);
}

void lnet_credit_shard_fini(struct lnet_shard *s)
{
    if (!s->credit)
        return;
    lnet_pools_fini(s);
    lnet_next_hops_fini(s);
    free(s->credit);
}
