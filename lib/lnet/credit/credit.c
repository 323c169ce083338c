/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send side credits, on the next hop's home. docs/protocol/lnet-core.md §4.5, §4.6, §5.1.
 *
 * A message takes a credit of its peer NI, then one of its NI on this reactor; where there is none
 * it waits in that queue, in order. It keeps both until the LND has accepted it.
 *
 * An NI's credits are for all its peers, so one that hangs must not keep them: while others wait, a
 * message that has been with the LND for OVERDUE_US gives the NI credit up. Its peer credit, of
 * which each peer has few, still bounds what it can have under way.
 */
#include "lib/base/err.h"
#include "lib/lnet/lnet_internal.h"
#include "lib/reactor/mark.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define OVERDUE_US   1000000ull
#define FAIL_BUCKETS 256 /* of peers looked at before others have their turn */

static const struct lnet_result ni_gone = {LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ERROR};

/* ---- queues of messages ---- */

static void queue_init(struct lnet_msg_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_add(struct lnet_msg_queue *q, struct lnet_msg *msg)
{
    msg->lnd_next = NULL;
    *q->tail = msg;
    q->tail = &msg->lnd_next;
}

static struct lnet_msg *queue_pop(struct lnet_msg_queue *q)
{
    struct lnet_msg *msg = q->head;

    q->head = msg->lnd_next;
    if (!q->head)
        q->tail = &q->head;
    msg->lnd_next = NULL;
    return msg;
}

/* Moves those that match to `out`, in order. */
static void queue_split(struct lnet_msg_queue *q, struct lnet_msg_queue *out,
                        bool (*match)(const struct lnet_msg *msg, const void *arg), const void *arg)
{
    struct lnet_msg *msg = q->head, *next;

    queue_init(q);
    queue_init(out);
    for (; msg; msg = next) {
        next = msg->lnd_next;
        queue_add(match(msg, arg) ? out : q, msg);
    }
}

/* ---- credits ---- */

static int max_credits(int configured)
{
    return configured > 1 ? configured : 1;
}

static void credits_init(struct lnet_credits *c, int max)
{
    c->max = c->now = c->min = max_credits(max);
    c->waited = 0;
}

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

/* An NI that starts can be called before the snapshot has it. */
static const struct lnet_tunables *tunables_of(const struct lnet_node *node, lnet_net_t net)
{
    const struct lnet_conf_net *n = lnet_net_find(node, net);
    unsigned i, max = relaxed_load(&node->nnis);

    if (n)
        return &n->ni[0]->tun;
    for (i = 0; i < max; i++) {
        const struct lnet_ni *ni = __atomic_load_n(&node->ni[i], __ATOMIC_ACQUIRE);

        if (ni && ni->net == net && relaxed_load(&ni->starting))
            return &ni->tun;
    }
    return NULL;
}

void lnet_peer_credits_init(const struct lnet_node *node, struct lnet_peer_ni *peer)
{
    const struct lnet_tunables *tun = tunables_of(node, nid_net(&peer->nid));
    int tx = tun ? tun->peer_credits : 1;
    int rtr = tun && tun->peer_buffer_credits > 0 ? tun->peer_buffer_credits : tx;

    /* One that was not used meanwhile has all of its credits, perhaps of a net as it was before. */
    if (peer->tx.max > 0 &&
        (!tun || (peer->tx.max == max_credits(tx) && peer->rtr.max == max_credits(rtr))))
        return;
    credits_init(&peer->tx, tx);
    credits_init(&peer->rtr, rtr);
    queue_init(&peer->txq);
    lnet_rx_queue_init(&peer->rtrq);
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
    credits_init(&s->tq[ni->index].credits, ni_credits(&ni->tun, s->node->nshards));
}

void lnet_ni_credits_get(const struct lnet_node *node, unsigned ni, struct lnet_credits *out,
                         uint32_t *waiting)
{
    unsigned i;

    *out = (struct lnet_credits){0};
    *waiting = 0;
    for (i = 0; ni < LNET_MAX_NI && i < node->nshards; i++) {
        const struct lnet_credits *c = &node->shard[i]->tq[ni].credits;
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

/* Not from where a credit comes back: the LND may refuse a message at once, which brings credits
 * for the next, and that must not nest. */
static void hand_ready(struct lnet_shard *s)
{
    if (s->handing)
        return;
    s->handing = true;
    while (s->ready.head) {
        struct lnet_msg *msg = queue_pop(&s->ready);

        msg->tx_ni->lnd->send(msg);
    }
    s->handing = false;
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
    struct lnet_tx_queue *q = &s->tq[msg->tx_ni->index];

    msg->state = LNET_MSG_SENDING;
    msg->ni_credit = true;
    msg->handed_us = reactor_now_us();
    msg->tx_next = NULL;
    msg->tx_pprev = q->newest;
    *q->newest = msg;
    q->newest = &msg->tx_next;
    queue_add(&s->ready, msg);
}

static void give_ni_credit(struct lnet_shard *s, struct lnet_msg *msg)
{
    struct lnet_tx_queue *q = &s->tq[msg->tx_ni->index];

    *msg->tx_pprev = msg->tx_next;
    if (msg->tx_next)
        msg->tx_next->tx_pprev = msg->tx_pprev;
    else
        q->newest = msg->tx_pprev;
    msg->ni_credit = false;
    give(&q->credits);
    if (q->queue.head) {
        msg = queue_pop(&q->queue);
        wait_ends(msg);
        has_credits(s, msg);
    }
}

/* The first that waits at an NI is always the one that has waited longest, so it is enough to look
 * at the messages with the LND from the oldest. */
static void overdue(struct reactor_timer *t)
{
    struct lnet_shard *s = container_of(t, struct lnet_shard, overdue_timer);
    uint64_t now = reactor_now_us();
    bool waiting = false;
    unsigned i;

    for (i = 0; i < relaxed_load(&s->node->nnis); i++) {
        struct lnet_tx_queue *q = &s->tq[i];

        while (q->queue.head && q->oldest && now - q->oldest->handed_us >= OVERDUE_US)
            give_ni_credit(s, q->oldest);
        waiting |= q->queue.head != NULL;
    }
    if (waiting)
        reactor_timer_arm(t, OVERDUE_US / 4);
    hand_ready(s);
}

static void want_ni_credit(struct lnet_shard *s, struct lnet_msg *msg)
{
    struct lnet_tx_queue *q = &s->tq[msg->tx_ni->index];

    if (take(&q->credits)) {
        reactor_wait_none(REACTOR_WAIT_NI_CREDIT);
        has_credits(s, msg);
        return;
    }
    msg->state = LNET_MSG_WAIT_NI;
    msg->handed_us = reactor_now_us();
    queue_add(&q->queue, msg);
    if (!reactor_timer_armed(&s->overdue_timer))
        reactor_timer_arm(&s->overdue_timer, OVERDUE_US / 4);
}

/* The first that waits for a credit of a peer has it. */
static void next_of_peer(struct lnet_shard *s, struct lnet_peer_ni *peer)
{
    struct lnet_msg *msg;

    if (!peer->txq.head)
        return;
    msg = queue_pop(&peer->txq);
    wait_ends(msg);
    want_ni_credit(s, msg);
}

void lnet_credit_send(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;

    if (take(&peer->tx)) {
        reactor_wait_none(REACTOR_WAIT_PEER_CREDIT);
        want_ni_credit(peer->shard, msg);
    } else {
        msg->state = LNET_MSG_WAIT_PEER;
        msg->handed_us = reactor_now_us();
        queue_add(&peer->txq, msg);
    }
    hand_ready(peer->shard);
}

void lnet_credit_return(struct lnet_msg *msg)
{
    struct lnet_peer_ni *peer = msg->tx_peer;
    struct lnet_shard *s = peer->shard;

    if (msg->ni_credit)
        give_ni_credit(s, msg);
    give(&peer->tx);
    next_of_peer(s, peer);
    hand_ready(s);
}

/* ---- failing what waits ---- */

static bool is_forwarded(const struct lnet_msg *msg, const void *arg)
{
    return msg->kind == LNET_KIND_FORWARD;
}

static bool leaves_by_removed(const struct lnet_msg *msg, const void *arg)
{
    return relaxed_load(&msg->tx_ni->removed);
}

/* Nothing is with the LND: what a message held of credits goes back without its being accepted. */
static void fail_waiting_peer(struct lnet_msg_queue *list, struct lnet_result result)
{
    while (list->head) {
        struct lnet_msg *msg = queue_pop(list);

        wait_ends(msg);
        give(&msg->tx_peer->tx);
        lnet_send_failed(msg, result);
    }
}

void lnet_credit_fail_peer(struct lnet_peer_ni *peer, struct lnet_result result)
{
    struct lnet_msg_queue list;

    queue_split(&peer->txq, &list, is_forwarded, NULL);
    lnet_peer_hold(peer);
    fail_waiting_peer(&list, result);
    lnet_peer_put(peer);
}

static void fail_waiting_ni(struct lnet_shard *s, struct lnet_tx_queue *q,
                            struct lnet_result result)
{
    while (q->queue.head) {
        struct lnet_msg *msg = queue_pop(&q->queue);
        struct lnet_peer_ni *peer = msg->tx_peer;

        wait_ends(msg);
        give(&q->credits);
        lnet_peer_hold(peer);
        give(&peer->tx);
        next_of_peer(s, peer);
        lnet_send_failed(msg, result);
        lnet_peer_put(peer);
    }
}

static void fail_bucket(struct lnet_shard *s, uint32_t bucket)
{
    struct lnet_peer_ni *p = s->hash[bucket], *next;
    struct lnet_msg_queue list;

    for (; p; p = next) {
        next = p->hash_next;
        if (!p->txq.head)
            continue;
        lnet_peer_hold(p); /* what fails may make others come and go */
        queue_split(&p->txq, &list, leaves_by_removed, NULL);
        fail_waiting_peer(&list, ni_gone);
        next = p->hash_next;
        lnet_peer_put(p);
    }
}

bool lnet_credit_fail_removed(struct lnet_shard *s, uint32_t *bucket)
{
    unsigned i;

    for (i = 0; i < FAIL_BUCKETS && *bucket <= s->hash_mask; i++)
        fail_bucket(s, (*bucket)++);
    for (i = 0; *bucket > s->hash_mask && i < relaxed_load(&s->node->nnis); i++) {
        struct lnet_msg *first = s->tq[i].queue.head;

        if (first && relaxed_load(&first->tx_ni->removed))
            fail_waiting_ni(s, &s->tq[i], ni_gone);
    }
    hand_ready(s);
    return *bucket > s->hash_mask;
}

/* ---- init ---- */

int lnet_credits_init(struct lnet_shard *s, struct err *err)
{
    s->tq = calloc(LNET_MAX_NI, sizeof(*s->tq));
    if (!s->tq) {
        return err_set(err, -ENOMEM, "no memory for the queues of NIs");
    }
    for (unsigned i = 0; i < LNET_MAX_NI; i++) {
        queue_init(&s->tq[i].queue);
        s->tq[i].newest = &s->tq[i].oldest;
    }
    queue_init(&s->ready);
    reactor_timer_init(&s->overdue_timer, overdue);
    return 0;
}

void lnet_credits_fini(struct lnet_shard *s)
{
    free(s->tq);
}
