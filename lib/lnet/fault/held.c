/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that delay rules hold. */
#include "lib/lnet/fault/fault_internal.h"

#define PART 64 /* messages that go on in an iteration of the reactor */

static uint64_t due_us(const struct lnet_fault_held *h, const struct lnet_msg *msg)
{
    return msg->handed_us + h->rule->conf.latency * 1000000ull;
}

/* ---- begin and end of a wait ---- */

static void arm(struct lnet_fault_held *h)
{
    const struct lnet_rx *rx = TAILQ_FIRST(&h->rx);
    const struct lnet_msg *msg = STAILQ_FIRST(&h->msg);
    uint64_t due = UINT64_MAX, now = reactor_now_us();

    if (rx)
        due = rx->wait_until_us;
    if (msg)
        due = min(due, due_us(h, msg));
    if (due != UINT64_MAX)
        reactor_timer_arm(&h->timer, max(due, now) - now);
}

static void begins(struct lnet_fault_held *h)
{
    count_add(&h->n, 1);
    if (!reactor_timer_armed(&h->timer))
        arm(h);
}

bool lnet_fault_holds_rx(const struct lnet_faults *f, struct lnet_rx *rx)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct lnet_fault *rule = f->rule[i];
        struct lnet_fault_held *h = &rule->held[rx->shard->index];

        if (!lnet_fault_delays(rule, &rx->hdr))
            continue;
        rx->wait = LNET_RX_WAIT_DELAY;
        rx->wait_until_us = reactor_now_us() + rule->conf.latency * 1000000ull;
        rx->fault = h;
        TAILQ_INSERT_TAIL(&h->rx, rx, queue);
        begins(h);
        return true;
    }
    return false;
}

void lnet_fault_leave(struct lnet_rx *rx)
{
    TAILQ_REMOVE(&rx->fault->rx, rx, queue);
    count_add(&rx->fault->n, -1);
    rx->wait = LNET_RX_BUSY;
}

bool lnet_fault_holds_msg(const struct lnet_faults *f, struct lnet_msg *msg)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct lnet_fault *rule = f->rule[i];
        struct lnet_fault_held *h = &rule->held[msg->tx_peer->shard->index];

        if (!lnet_fault_delays(rule, &msg->hdr))
            continue;
        msg->state = LNET_MSG_DELAYED;
        STAILQ_INSERT_TAIL(&h->msg, msg, queue);
        begins(h);
        return true;
    }
    return false;
}

static void go_on(struct lnet_fault_held *h, struct lnet_msg *msg)
{
    count_add(&h->n, -1);
    msg->task.fn(&msg->task);
}

/* Lets go of messages that are due by then. */
static void let_go(struct lnet_fault_held *h, uint64_t until_us)
{
    for (unsigned i = 0; i < PART; i++) {
        struct lnet_rx *rx = TAILQ_FIRST(&h->rx);
        const struct lnet_msg *msg = STAILQ_FIRST(&h->msg);

        if (rx && rx->wait_until_us <= until_us) {
            lnet_fault_leave(rx);
            rx->task.fn(&rx->task);
        } else if (msg && due_us(h, msg) <= until_us) {
            go_on(h, lnet_msg_queue_pop(&h->msg));
        } else {
            return;
        }
    }
}

static void timer_fires(struct reactor_timer *t)
{
    struct lnet_fault_held *h = container_of(t, struct lnet_fault_held, timer);

    let_go(h, reactor_now_us());
    arm(h);
}

void lnet_fault_flush(struct lnet_shard *s)
{
    const struct lnet_faults *f = lnet_faults(s->node);

    for (unsigned i = 0; f && i < f->n; i++) {
        struct lnet_fault_held *h = &f->rule[i]->held[s->index];
        struct lnet_msg_queue all = STAILQ_HEAD_INITIALIZER(all);
        struct lnet_msg_queue removed = STAILQ_HEAD_INITIALIZER(removed);

        STAILQ_CONCAT(&all, &h->msg);
        while (!STAILQ_EMPTY(&all)) {
            struct lnet_msg *msg = lnet_msg_queue_pop(&all);

            if (lnet_ni_is_active(msg->tx_ni))
                STAILQ_INSERT_TAIL(&h->msg, msg, queue);
            else
                STAILQ_INSERT_TAIL(&removed, msg, queue);
        }
        while (!STAILQ_EMPTY(&removed))
            go_on(h, lnet_msg_queue_pop(&removed));
    }
}

/* ---- a rule that was deleted ---- */

static void released(struct reactor_task *task)
{
    struct lnet_fault_held *h = container_of(task, struct lnet_fault_held, task);

    if (--h->rule->releasing == 0)
        lnet_fault_gone(h->rule, h->shard->node);
}

static void release(struct reactor_task *task)
{
    struct lnet_fault_held *h = container_of(task, struct lnet_fault_held, task);

    let_go(h, UINT64_MAX);
    if (!TAILQ_EMPTY(&h->rx) || !STAILQ_EMPTY(&h->msg)) {
        reactor_post(h->shard->reactor, task);
        return;
    }
    reactor_timer_cancel(&h->timer);
    task->fn = released;
    reactor_post(reactor_control(h->shard->node->env), task);
}

void lnet_fault_release(struct lnet_fault *rule, struct lnet_node *node)
{
    rule->releasing = node->nshards;
    for (unsigned i = 0; i < node->nshards; i++) {
        rule->held[i].task.fn = release;
        reactor_post(node->shard[i]->reactor, &rule->held[i].task);
    }
}

void lnet_fault_held_init(struct lnet_fault *rule, struct lnet_node *node)
{
    for (unsigned i = 0; i < node->nshards; i++) {
        struct lnet_fault_held *h = &rule->held[i];

        h->rule = rule;
        h->shard = node->shard[i];
        TAILQ_INIT(&h->rx);
        STAILQ_INIT(&h->msg);
        reactor_timer_init(&h->timer, timer_fires);
    }
}
