/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending, from a chosen path to the end of the message; tx.h has the steps. A message takes a tx
 * credit of its peer NI, then one of its NI. It waits in the queue of the credit that is short, and
 * keeps both credits until the LND has accepted it.
 *
 * An NI's credits are for all its peer NIs, so one that hangs must not keep them: while others
 * wait, a message that has been with the LND for OVERDUE_US gives the NI credit up. Its peer
 * credit, of which each peer NI has few, still bounds how many messages it can have under way.
 */
#include "lib/lnet/tx.h"
#include "lib/lnet/credit/credit.h"
#include "lib/lnet/fault/fault.h"
#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/shard/conf.h"
#include "lib/reactor/wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OVERDUE_US   100000ull
#define FAIL_BUCKETS 256 /* buckets of peer NIs per message, so that other work runs in between */

/* ---- the end of a message, on the shard that allocated it ---- */

/* Frees a message whose memory has no other user. */
static void end(struct lnet_msg *msg)
{
    if (msg->kind == LNET_KIND_LOCAL)
        msg->home->node->local_sent(msg);
    else
        lnet_forward_free(msg);
}

/* ---- what frames still refer to ----
 *
 * A transport that sends by reference is through with a message when the next hop has acknowledged
 * it, or when the connection is no more. Frames of it may be under way even so: sent twice, or in a
 * queue. They are looked after until the last has gone; until then the buffer counts as in use. */

#define HELD_LOOK_US 1000

static bool is_held(const struct lnet_msg *msg)
{
    uint32_t i;

    if (!msg->tx_ni || !msg->tx_ni->tx_refers || msg->release)
        return false;
    for (i = 0; i < msg->payload.n; i++) {
        const struct mem_seg *seg = &msg->payload.seg[i];

        if (seg->region != MEM_REGION_NONE && mem_held(seg->region, seg->addr, seg->len))
            return true;
    }
    return false;
}

static void held_look(struct reactor_timer *t)
{
    struct lnet_tx_shard *tx = container_of(t, struct lnet_tx_shard, held_timer);
    struct lnet_msg_queue list = STAILQ_HEAD_INITIALIZER(list);

    STAILQ_CONCAT(&list, &tx->held); /* end() may bring more that is held */
    while (!STAILQ_EMPTY(&list)) {
        struct lnet_msg *msg = lnet_msg_queue_pop(&list);

        if (is_held(msg))
            STAILQ_INSERT_TAIL(&tx->held, msg, queue);
        else
            end(msg);
    }
    if (!STAILQ_EMPTY(&tx->held) && !reactor_timer_armed(t))
        reactor_timer_arm(t, HELD_LOOK_US);
}

static void hold(struct lnet_msg *msg)
{
    struct lnet_tx_shard *tx = msg->home->tx;

    msg->state = LNET_MSG_HELD;
    STAILQ_INSERT_TAIL(&tx->held, msg, queue);
    if (!reactor_timer_armed(&tx->held_timer))
        reactor_timer_arm(&tx->held_timer, HELD_LOOK_US);
}

/* The message is through, well or badly, and back on the shard that allocated it. */
static void finish(struct lnet_msg *msg)
{
    struct lnet_shard *s = msg->home;
    bool local = msg->kind == LNET_KIND_LOCAL;

    if (!msg->result.reason) {
        count_add(&s->stats[local ? LNET_STAT_SEND_COUNT : LNET_STAT_ROUTE_COUNT], 1);
        count_add(&s->stats[local ? LNET_STAT_SEND_LENGTH : LNET_STAT_ROUTE_LENGTH],
                  msg->hdr.payload_len);
    }
    if (is_held(msg))
        hold(msg);
    else
        end(msg);
}

static void finish_task(struct reactor_task *task)
{
    finish(container_of(task, struct lnet_msg, task));
}

/* Back from the next hop's home, where the failure was counted. */
static void go_home(struct lnet_msg *msg)
{
    if (msg->home->reactor == reactor_self()) {
        finish(msg);
        return;
    }
    msg->state = LNET_MSG_CROSSING;
    msg->task.fn = finish_task;
    reactor_post(msg->home->reactor, &msg->task);
}

void lnet_transmit_failed(struct lnet_msg *msg)
{
    finish(msg);
}

void lnet_tx_on_local_sent(struct lnet_node *node, void (*fn)(struct lnet_msg *msg))
{
    node->local_sent = fn;
}

/* ---- resends ---- */

/* Marks the pair that a message could not be sent by, before the message chooses again. A lost
 * connection may have been one of several: the LND has reported the last one itself. */
static void note_pair(struct lnet_peer_ni *peer, const struct lnet_msg *msg)
{
    const bool late = msg->result.reason == LNET_DROP_NEXT_HOP_TIMEOUT;

    if (peer->gw_ni && msg->result.unsent &&
        (late || msg->result.reason == LNET_DROP_NEXT_HOP_DOWN))
        lnet_gw_ni_pair(peer->gw_ni, msg->tx_ni, false,
                        late ? "connect_timeout" : "connection_lost");
}

/* Counts a message that was not sent to a peer NI; NULL: the table does not have it any more. */
static void count_lost(struct lnet_msg *msg, struct lnet_peer_ni *peer)
{
    struct lnet_shard *s = lnet_shard_self(msg->home->node);

    lnet_drop_message(s, msg->result.reason, msg->tx_ni, peer, &msg->next_hop, &msg->hdr);
}

/* There is no other way. On the home of msg->next_hop, as the peer NI counts what it lost. */
static void stays(struct reactor_task *task)
{
    struct lnet_msg *msg = container_of(task, struct lnet_msg, task);

    count_lost(msg, lnet_peer_ni_find_here(msg->home->node, &msg->next_hop));
    go_home(msg);
}

/* On msg->home, in an iteration of its own: a pair that does not work is marked by now. §4.10 */
static void go_again(struct reactor_task *task)
{
    struct lnet_msg *msg = container_of(task, struct lnet_msg, task);

    msg->state = LNET_MSG_ROUTING;
    if (lnet_choose_other(msg)) {
        msg->state = LNET_MSG_CROSSING;
        msg->task.fn = stays;
        reactor_post(lnet_nid_home(msg->home->node, &msg->next_hop), &msg->task);
        return;
    }
    msg->result = LNET_RESULT_OK;
    msg->accepted = false;
    msg->delayed = false;
    msg->resends = msg->resent ? msg->resends + 1 : 1; /* not set when it was allocated */
    msg->resent = true;
    count_add(&msg->home->stats[LNET_STAT_RESEND_COUNT], 1);
    lnet_transmit(msg);
}

/* ---- credits ---- */

/* Written here only, those of NIs read anywhere. */
static bool take(struct lnet_credits *c)
{
    relaxed_store(&c->now, c->now - 1);
    if (c->now < c->min)
        relaxed_store(&c->min, c->now);
    if (c->now >= 0)
        return true;
    count_add(&c->waited, 1);
    return false;
}

static void give(struct lnet_credits *c)
{
    count_add(&c->now, 1);
}

/* For path selection, which reads it on any reactor. */
static void ni_publish(struct lnet_shard *s, const struct lnet_ni *ni)
{
    relaxed_store(&s->ni_credits[ni->index], s->tx->tq[ni->index].credits.now);
}

/* §5.1: a reactor's part, but enough for eight peers. */
static int ni_credits(const struct lnet_tunables *tun, unsigned reactors)
{
    int part = tun->credits / (int)reactors;

    if (reactors == 1)
        return tun->credits;
    if (part < 8 * tun->peer_credits)
        part = 8 * tun->peer_credits;
    return part < tun->credits ? part : tun->credits;
}

void lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *ni)
{
    lnet_credits_init(&s->tx->tq[ni->index].credits, ni_credits(&ni->tun, s->node->nshards));
    ni_publish(s, ni);
}

void lnet_ni_credits_get(const struct lnet_node *node, unsigned ni, struct lnet_credits *out,
                         uint32_t *waiting)
{
    unsigned i;

    *out = (struct lnet_credits){0};
    *waiting = 0;
    for (i = 0; ni < LNET_MAX_NI && i < node->nshards; i++) {
        const struct lnet_credits *c = &node->shard[i]->tx->tq[ni].credits;
        int32_t now = relaxed_load(&c->now);

        out->max += relaxed_load(&c->max);
        out->now += now;
        out->min += relaxed_load(&c->min);
        out->waited += relaxed_load(&c->waited);
        if (now < 0)
            *waiting += (uint32_t)-now;
    }
}

/* ---- handing messages to the LND ---- */

static const struct lnet_result past_deadline = {LNET_DROP_DEADLINE, LNET_HEALTH_NETWORK_TIMEOUT,
                                                 .unsent = true}; /* §4.5 */
static const struct lnet_result ni_gone = {LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ERROR};

static void delay_ends(struct reactor_task *task);

/* Returns whether a rule of fault injection takes a message that the LND is about to get: holds it,
 * or completes it as failed. */
static bool fault_takes(const struct lnet_faults *faults, struct lnet_msg *msg)
{
    enum lnet_health status;

    msg->task.fn = delay_ends;
    if (!msg->delayed && lnet_ni_is_active(msg->tx_ni) && lnet_fault_holds_msg(faults, msg))
        return true;
    status = lnet_fault_status(faults, msg);
    if (status == LNET_HEALTH_OK)
        return false;
    lnet_send_done(msg, (struct lnet_result){LNET_DROP_FAULT_SEND, status, .unsent = true});
    return true;
}

/* Not from where a credit comes back: the LND may refuse a message at once, which brings credits
 * for the next, and that must not nest. */
static void hand_ready(struct lnet_shard *s)
{
    if (s->tx->handing)
        return;
    s->tx->handing = true;
    while (!STAILQ_EMPTY(&s->tx->ready)) {
        struct lnet_msg *msg = lnet_msg_queue_pop(&s->tx->ready);
        const struct lnet_faults *faults = lnet_faults(s->node);

        if (msg->kind == LNET_KIND_LOCAL && lnet_is_late(s->node, msg->tx_ni, msg->committed_us))
            lnet_send_done(msg, past_deadline);
        else if (!faults || !fault_takes(faults, msg))
            msg->tx_ni->lnd->send(msg);
    }
    s->tx->handing = false;
}

/* A delay rule lets go of a message. */
static void delay_ends(struct reactor_task *task)
{
    struct lnet_msg *msg = container_of(task, struct lnet_msg, task);
    struct lnet_shard *s = msg->tx_peer->shard;

    msg->state = LNET_MSG_SENDING;
    msg->delayed = true;
    if (!lnet_ni_is_active(msg->tx_ni)) {
        lnet_send_done(msg, ni_gone);
        return;
    }
    STAILQ_INSERT_TAIL(&s->tx->ready, msg, queue);
    hand_ready(s);
}

/* It was in a queue since handed_us, which until it is handed over says that. */
static void wait_ends(const struct lnet_msg *msg)
{
    reactor_waited(msg->state == LNET_MSG_WAIT_PEER ? REACTOR_WAIT_PEER_CREDIT
                                                    : REACTOR_WAIT_NI_CREDIT,
                   msg->handed_us);
}

static void has_credits(struct lnet_shard *s, struct lnet_msg *msg)
{
    struct lnet_tx_queue *q = &s->tx->tq[msg->tx_ni->index];

    msg->state = LNET_MSG_SENDING;
    msg->ni_credit = true;
    msg->handed_us = reactor_now_us();
    TAILQ_INSERT_TAIL(&q->under, msg, tx);
    STAILQ_INSERT_TAIL(&s->tx->ready, msg, queue);
}

static void give_ni_credit(struct lnet_shard *s, struct lnet_msg *msg)
{
    struct lnet_tx_queue *q = &s->tx->tq[msg->tx_ni->index];

    TAILQ_REMOVE(&q->under, msg, tx);
    msg->ni_credit = false;
    give(&q->credits);
    ni_publish(s, msg->tx_ni);
    if (!STAILQ_EMPTY(&q->queue)) {
        msg = lnet_msg_queue_pop(&q->queue);
        wait_ends(msg);
        has_credits(s, msg);
    }
}

/* The first that waits at an NI is always the one that has waited longest, so it is enough to look
 * at the messages with the LND from the oldest. */
static void overdue(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_tx_shard, overdue_timer)->shard;
    uint64_t now = reactor_now_us();
    bool waiting = false;
    struct lnet_msg *msg;

    for (unsigned i = 0; i < relaxed_load(&s->node->nnis); i++) {
        struct lnet_tx_queue *q = &s->tx->tq[i];

        while (!STAILQ_EMPTY(&q->queue) && (msg = TAILQ_FIRST(&q->under)) &&
               now - msg->handed_us >= OVERDUE_US)
            give_ni_credit(s, msg);
        waiting |= !STAILQ_EMPTY(&q->queue);
    }
    if (waiting)
        reactor_timer_arm(t, OVERDUE_US / 4);
    hand_ready(s);
}

static void want_ni_credit(struct lnet_shard *s, struct lnet_msg *msg)
{
    struct lnet_tx_queue *q = &s->tx->tq[msg->tx_ni->index];
    bool taken = take(&q->credits);

    ni_publish(s, msg->tx_ni);
    if (taken) {
        reactor_wait_none(REACTOR_WAIT_NI_CREDIT);
        has_credits(s, msg);
        return;
    }
    msg->state = LNET_MSG_WAIT_NI;
    msg->handed_us = reactor_now_us();
    STAILQ_INSERT_TAIL(&q->queue, msg, queue);
    if (!reactor_timer_armed(&s->tx->overdue_timer))
        reactor_timer_arm(&s->tx->overdue_timer, OVERDUE_US / 4);
}

/* The first that waits for a credit of a peer has it. */
static void next_of_peer(struct lnet_shard *s, struct lnet_peer_ni *peer)
{
    struct lnet_msg *msg;

    if (STAILQ_EMPTY(&peer->txq))
        return;
    msg = lnet_msg_queue_pop(&peer->txq);
    wait_ends(msg);
    want_ni_credit(s, msg);
}

static void take_credits(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;

    bool taken = take(&peer->tx);

    lnet_gw_ni_publish(peer);
    if (taken) {
        reactor_wait_none(REACTOR_WAIT_PEER_CREDIT);
        want_ni_credit(peer->shard, msg);
    } else {
        msg->state = LNET_MSG_WAIT_PEER;
        msg->handed_us = reactor_now_us();
        STAILQ_INSERT_TAIL(&peer->txq, msg, queue);
    }
    hand_ready(peer->shard);
}

static void return_credits(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;
    struct lnet_shard *s = peer->shard;

    if (msg->ni_credit)
        give_ni_credit(s, msg);
    give(&peer->tx);
    lnet_gw_ni_publish(peer);
    next_of_peer(s, peer);
    hand_ready(s);
}

/* ---- to the next hop ---- */

/* It is no longer in the way of others to this peer. */
static void unqueue(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;

    peer->tx_queued--;
    peer->tx_queued_bytes -= msg->hdr.payload_len + LNET_HDR4_SIZE;
    lnet_gw_ni_publish(peer);
}

/* The type a sent message counts as: an answer of our own as what it answers, as kernel nodes show
 * it (docs/protocol/lnet-core.md §10.5). */
static uint32_t counted_type(const struct lnet_msg *msg)
{
    bool own = msg->kind == LNET_KIND_LOCAL;

    if (own && msg->hdr.type == LNET_MSG_ACK)
        return LNET_MSG_PUT;
    if (own && msg->hdr.type == LNET_MSG_REPLY)
        return LNET_MSG_GET;
    return msg->hdr.type;
}

static void sent(struct lnet_msg *msg, struct lnet_result result)
{
    struct lnet_peer_ni *peer = msg->tx_peer;
    struct lnet_shard *s = peer->shard;

    msg->result = result = lnet_result_of_ni(msg->tx_ni, result);
    if (result.reason) {
        lnet_health_failed(s, msg->tx_ni, peer, &msg->hdr, result, lnet_msg_since_us(msg));
        note_pair(peer, msg);
    } else if (result.health == LNET_HEALTH_OK) {
        lnet_health_sent(s, msg->tx_ni, &msg->hdr);
    }
    if (result.reason && lnet_may_resend(s, msg)) {
        msg->tx_peer = NULL;
        lnet_peer_ni_put(peer);
        msg->state = LNET_MSG_CROSSING;
        msg->task.fn = go_again;
        reactor_post(msg->home->reactor, &msg->task);
        return;
    }
    if (result.reason) {
        count_lost(msg, peer);
    } else {
        count_add(&s->ni_stats[msg->tx_ni->index].sent[counted_type(msg)], 1);
        peer->send_count[counted_type(msg)]++;
        if (msg->resent)
            count_add(&s->stats[LNET_STAT_SUCCESSFUL_RESENDS], 1);
    }
    msg->tx_peer = NULL;
    lnet_peer_ni_put(peer);
    go_home(msg);
}

/* Fails a message that was never handed to the LND. */
static void send_failed(struct lnet_msg *msg, struct lnet_result result)
{
    result.unsent = true;
    unqueue(msg);
    sent(msg, result);
}

/* On the home of msg->next_hop. */
static void send_here(struct lnet_msg *msg)
{
    struct lnet_node *node = msg->home->node;
    struct lnet_shard *s = lnet_shard_self(node);
    struct lnet_peer_ni *peer = lnet_peer_ni_get(node, &msg->next_hop);

    if (!peer) {
        msg->result = (struct lnet_result){LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR};
        lnet_drop_message(s, LNET_DROP_NO_PEER_MEMORY, msg->tx_ni, NULL, &msg->next_hop, &msg->hdr);
        go_home(msg);
        return;
    }
    msg->tx_peer = peer;
    if (msg->kind == LNET_KIND_LOCAL)
        msg->committed_us = reactor_now_us();
    if (!lnet_ni_is_active(msg->tx_ni)) {
        sent(msg, (struct lnet_result){LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ERROR});
        return;
    }
    peer->tx_queued++;
    peer->tx_queued_bytes += msg->hdr.payload_len + LNET_HDR4_SIZE;
    take_credits(msg);
}

static void send_task(struct reactor_task *task)
{
    send_here(container_of(task, struct lnet_msg, task));
}

void lnet_transmit(struct lnet_msg *msg)
{
    const struct lnet_node *node = msg->home->node;
    struct reactor *to = node->shard[nid_cpt_hash(&msg->next_hop, node->nshards)]->reactor;

    if (to == reactor_self()) {
        send_here(msg);
        return;
    }
    msg->state = LNET_MSG_CROSSING;
    msg->task.fn = send_task;
    reactor_post(to, &msg->task);
}

/* ---- what the LND reports ---- */

static void accepted(struct lnet_msg *msg)
{
    if (msg->accepted)
        return;
    msg->accepted = true;
    unqueue(msg);
    return_credits(msg);
}

static void accept_task(struct reactor_task *task)
{
    lnet_return_router_credit(container_of(task, struct lnet_msg, accept_task));
}

/* The payload stays until the next hop has acknowledged it, which may take its TCP 40 ms. The
 * sender's router credit does not wait for that: a kernel router counts a message as sent when
 * its socket has taken it. The budget limits its memory. Messages between reactors keep their
 * order: this one arrives before the message does. */
void lnet_send_accepted(struct lnet_msg *msg)
{
    if (msg->accepted)
        return;
    accepted(msg);
    if (msg->kind != LNET_KIND_FORWARD) {
        /* holds none */
    } else if (msg->home->reactor == reactor_self()) {
        lnet_return_router_credit(msg);
    } else {
        msg->accept_task.fn = accept_task;
        reactor_post(msg->home->reactor, &msg->accept_task);
    }
}

void lnet_send_done(struct lnet_msg *msg, struct lnet_result result)
{
    result.unsent &= !msg->accepted;
    accepted(msg);
    sent(msg, result);
}

/* ---- failing what waits ---- */

/* Moves those that match to `out`, in order. */
static void queue_split(struct lnet_msg_queue *q, struct lnet_msg_queue *out,
                        bool (*match)(const struct lnet_msg *msg, const void *arg), const void *arg)
{
    struct lnet_msg *msg = STAILQ_FIRST(q), *next;

    STAILQ_INIT(q);
    STAILQ_INIT(out);
    for (; msg; msg = next) {
        next = STAILQ_NEXT(msg, queue);
        STAILQ_INSERT_TAIL(match(msg, arg) ? out : q, msg, queue);
    }
}

static bool is_forwarded_by(const struct lnet_msg *msg, const void *ni)
{
    return msg->kind == LNET_KIND_FORWARD && (!ni || msg->tx_ni == ni);
}

static bool leaves_by_removed(const struct lnet_msg *msg, const void *arg)
{
    return !lnet_ni_is_active(msg->tx_ni);
}

/* Nothing is with the LND: what a message held of credits goes back without its being accepted. */
static void fail_waiting_peer(struct lnet_msg_queue *list, struct lnet_result result)
{
    while (!STAILQ_EMPTY(list)) {
        struct lnet_msg *msg = lnet_msg_queue_pop(list);

        wait_ends(msg);
        give(&msg->tx_peer->tx);
        send_failed(msg, result);
    }
}

void lnet_tx_fail_peer(struct lnet_peer_ni *peer, const struct lnet_ni *ni,
                       struct lnet_result result)
{
    struct lnet_msg_queue list;

    queue_split(&peer->txq, &list, is_forwarded_by, ni);
    lnet_peer_ni_hold(peer);
    fail_waiting_peer(&list, result);
    lnet_peer_ni_put(peer);
}

static void fail_waiting_ni(struct lnet_shard *s, struct lnet_tx_queue *q,
                            struct lnet_result result)
{
    while (!STAILQ_EMPTY(&q->queue)) {
        struct lnet_msg *msg = lnet_msg_queue_pop(&q->queue);
        struct lnet_peer_ni *peer = msg->tx_peer;

        wait_ends(msg);
        give(&q->credits);
        ni_publish(s, msg->tx_ni);
        lnet_peer_ni_hold(peer);
        give(&peer->tx);
        next_of_peer(s, peer);
        send_failed(msg, result);
        lnet_peer_ni_put(peer);
    }
}

static void fail_bucket(struct lnet_shard *s, uint32_t bucket)
{
    struct lnet_peer_ni *p = s->peer->hash[bucket], *next;
    struct lnet_msg_queue list;

    for (; p; p = next) {
        next = p->hash_next;
        if (STAILQ_EMPTY(&p->txq))
            continue;
        lnet_peer_ni_hold(p); /* what fails may make others come and go */
        queue_split(&p->txq, &list, leaves_by_removed, NULL);
        fail_waiting_peer(&list, ni_gone);
        next = p->hash_next;
        lnet_peer_ni_put(p);
    }
}

bool lnet_tx_fail_removed(struct lnet_shard *s, uint32_t *bucket)
{
    unsigned i;

    for (i = 0; i < FAIL_BUCKETS && *bucket <= s->peer->hash_mask; i++)
        fail_bucket(s, (*bucket)++);
    for (i = 0; *bucket > s->peer->hash_mask && i < relaxed_load(&s->node->nnis); i++) {
        struct lnet_msg *first = STAILQ_FIRST(&s->tx->tq[i].queue);

        if (first && !lnet_ni_is_active(first->tx_ni))
            fail_waiting_ni(s, &s->tx->tq[i], ni_gone);
    }
    lnet_fault_flush(s);
    hand_ready(s);
    return *bucket > s->peer->hash_mask;
}

/* ---- init ---- */

int lnet_tx_init(struct lnet_shard *s, struct err *err)
{
    struct lnet_tx_shard *tx = s->tx = calloc(1, sizeof(*tx));

    if (!tx)
        return err_set(err, -ENOMEM, "no memory for the queues of NIs");
    tx->shard = s;
    for (unsigned i = 0; i < LNET_MAX_NI; i++) {
        STAILQ_INIT(&tx->tq[i].queue);
        TAILQ_INIT(&tx->tq[i].under);
    }
    STAILQ_INIT(&tx->ready);
    STAILQ_INIT(&tx->held);
    reactor_timer_init(&tx->overdue_timer, overdue);
    reactor_timer_init(&tx->held_timer, held_look);
    return 0;
}

void lnet_tx_fini(struct lnet_shard *s)
{
    free(s->tx);
}
