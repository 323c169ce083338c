/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model of the send side: which message has which tx credits, who waits, and in which order
 * the LND must get them. docs/protocol/lnet-core.md §4.5, §4.6 rows 1 and 2.
 */
#include "test/unit/property_model.h"

#define OVERDUE_US (SEC / 10) /* with the LND, while others wait for an NI credit */

/* ---- queues and credits ---- */

void tracked_queue_init(struct tracked_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_add(struct tracked_queue *q, struct tracked *t)
{
    t->next = NULL;
    *q->tail = t;
    q->tail = &t->next;
}

static struct tracked *queue_pop(struct tracked_queue *q)
{
    struct tracked *t = q->head;

    if (t) {
        q->head = t->next;
        if (!q->head)
            q->tail = &q->head;
    }
    return t;
}

static void queue_del(struct tracked_queue *q, struct tracked *t)
{
    struct tracked **at = &q->head;

    while (*at && *at != t)
        at = &(*at)->next;
    if (!*at)
        prop_fail("message %x failed in a queue it is not in", t->id);
    *at = t->next;
    if (!*at)
        q->tail = at;
}

static bool take(struct credit *c)
{
    c->now--;
    if (c->now < c->min)
        c->min = c->now;
    if (c->now >= 0)
        return true;
    c->waited++;
    return false;
}

/* ---- sending ---- */

static void has_credits(unsigned r, struct tracked *t)
{
    t->state = T_READY;
    t->ni_credit = true;
    t->handed_us = clock_us;
    t->handed_seq = ++books.handed;
    queue_add(&books.ready[r], t);
}

static void want_ni_credit(unsigned r, struct tracked *t)
{
    struct model_ni *q = &books.tq[r][t->ni];

    if (take(&q->credit)) {
        has_credits(r, t);
    } else {
        t->state = T_WAIT_NI;
        queue_add(&q->queue, t);
        covered(COVER_NI_TX_WAIT);
    }
}

static void give_ni_credit(unsigned r, struct tracked *t)
{
    struct tracked *next;

    t->ni_credit = false;
    books.tq[r][t->ni].credit.now++;
    next = queue_pop(&books.tq[r][t->ni].queue);
    if (next)
        has_credits(r, next);
}

static void give_peer_credit(struct model_peer *p)
{
    struct tracked *next;

    p->tx.now++;
    next = queue_pop(&p->txq);
    if (next)
        want_ni_credit(p->reactor, next);
}

void __real_take_credits(struct lnet_msg *msg);
void __wrap_take_credits(struct lnet_msg *msg);

/* A message has come to its next hop's home. */
void __wrap_take_credits(struct lnet_msg *msg)
{
    struct tracked *t = tracked_of(msg);
    struct model_peer *p = peer_of(&msg->tx_peer->nid);

    if (t->state == T_FREE)
        *t = (struct tracked){.state = T_INSIDE, .msg = msg, .home = msg->home->index};
    if (t->state != T_INSIDE)
        prop_fail("message %x comes to be sent in state %d", t->id, t->state);
    if (p->reactor != reactor_index(reactor_self()))
        prop_fail("message %x comes to the wrong reactor", t->id);
    p->core = msg->tx_peer;
    t->to = p;
    t->ni = msg->tx_ni->index;
    t->len = msg->hdr.payload_len;
    books.tx_queued[p->index]++;
    books.tx_queued_bytes[p->index] += t->len + LNET_HDR4_SIZE;
    if (take(&p->tx)) {
        want_ni_credit(p->reactor, t);
    } else {
        t->state = T_WAIT_PEER;
        queue_add(&p->txq, t);
        covered(COVER_PEER_TX_WAIT);
    }
    __real_take_credits(msg);
}

static void not_queued(struct tracked *t)
{
    books.tx_queued[t->to->index]--;
    books.tx_queued_bytes[t->to->index] -= t->len + LNET_HDR4_SIZE;
}

void __real_send_failed(struct lnet_msg *msg, struct lnet_result result);
void __wrap_send_failed(struct lnet_msg *msg, struct lnet_result result);

/* A message that waits for credits fails. */
void __wrap_send_failed(struct lnet_msg *msg, struct lnet_result result)
{
    struct tracked *t = tracked_of(msg);
    unsigned r = t->to ? t->to->reactor : 0;

    if (t->state == T_WAIT_PEER) {
        queue_del(&t->to->txq, t);
        t->to->tx.now++;
    } else if (t->state == T_WAIT_NI) {
        queue_del(&books.tq[r][t->ni].queue, t);
        books.tq[r][t->ni].credit.now++;
        give_peer_credit(t->to);
    } else {
        prop_fail("message %x fails in state %d", t->id, t->state);
    }
    covered(COVER_SEND_FAILED_WAITING);
    not_queued(t);
    t->state = t->id ? T_ENDED : T_FREE;
    t->unsent = true;
    __real_send_failed(msg, result);
}

/* Messages that have been with the LND for long give their NI credit up, oldest first. */
void sync_overdue(unsigned r)
{
    for (;;) {
        struct tracked *first = NULL;
        unsigned i;

        for (i = 0; i < nat_lnd; i++) {
            struct tracked *t = at_lnd[i];

            if (!t->accepted && t->ni_credit && t->to->reactor == r && !t->msg->ni_credit &&
                (!first || t->ni < first->ni ||
                 (t->ni == first->ni && t->handed_seq < first->handed_seq)))
                first = t;
        }
        if (!first)
            return;
        if (clock_us - first->handed_us < OVERDUE_US)
            prop_fail("message %x gave its NI credit up after %llu us", first->id,
                      (unsigned long long)(clock_us - first->handed_us));
        if (!books.tq[r][first->ni].queue.head)
            prop_fail("message %x gave its NI credit up and nobody waits", first->id);
        covered(COVER_OVERDUE);
        give_ni_credit(r, first);
    }
}

void model_send(struct lnet_msg *msg)
{
    struct tracked *t = tracked_of(msg);
    unsigned r = reactor_index(reactor_self());

    if (books.ready[r].head != t)
        sync_overdue(r);
    if (books.ready[r].head != t)
        prop_fail("message %x goes to the LND out of turn: next was %x (%s)", t->id,
                  books.ready[r].head ? books.ready[r].head->id : 0,
                  books.ready[r].head ? "has credits" : "nobody");
    (void)queue_pop(&books.ready[r]);
    t->state = T_LND;
    if (nat_lnd == MAX_TRACKED)
        prop_fail("too many messages");
    at_lnd[nat_lnd++] = t;
    if (t->id == NO_ID)
        return;
    if (t->seq <= t->to->last_seq[t->home][t->ni])
        prop_fail("message %x was passed by one that came later", t->id);
    t->to->last_seq[t->home][t->ni] = t->seq;
}

void model_accepted(struct tracked *t)
{
    if (t->state != T_LND || t->accepted)
        prop_fail("the test accepts %x twice", t->id);
    sync_overdue(t->to->reactor);
    t->accepted = true;
    not_queued(t);
    if (t->ni_credit)
        give_ni_credit(t->to->reactor, t);
    give_peer_credit(t->to);
}

void model_send_done(struct tracked *t, bool ok)
{
    unsigned i;

    for (i = 0; at_lnd[i] != t; i++)
        ;
    memmove(&at_lnd[i], &at_lnd[i + 1], (--nat_lnd - i) * sizeof(at_lnd[0]));
    if (!t->accepted)
        model_accepted(t);
    t->sent_ok = ok;
    t->state = t->id ? T_ENDED : T_FREE;
}

/* A message that failed before the LND had it comes behind those that were received since. */
static void goes_again(struct tracked *t)
{
    if (t->state == T_ENDED && t->unsent) {
        t->state = T_INSIDE;
        t->seq = ++books.received[t->home];
    }
    t->unsent = false;
}

enum lnet_drop __real_lnet_choose_again(struct lnet_msg *msg);
enum lnet_drop __wrap_lnet_choose_again(struct lnet_msg *msg);

/* By the same way, if that works again. */
enum lnet_drop __wrap_lnet_choose_again(struct lnet_msg *msg)
{
    enum lnet_drop why = __real_lnet_choose_again(msg);

    if (!why)
        goes_again(tracked_of(msg));
    return why;
}

void __real_lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path);
void __wrap_lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path);

void __wrap_lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path)
{
    struct tracked *t = tracked_of(msg);
    struct model_pool *p = &books.pool[t->home][t->pool];

    goes_again(t);
    if (t->state != T_INSIDE)
        prop_fail("message %x goes another way in state %d", t->id, t->state);
    p->held[t->acct]--;
    t->acct = acct_of(&path->next_hop, path->gw_ni != NULL);
    p->held[t->acct]++;
    covered(COVER_REROUTED);
    __real_lnet_admit_rerouted(msg, path);
}
