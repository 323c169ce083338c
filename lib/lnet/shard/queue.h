/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits, and queues of messages and of received headers that wait for one. */
#ifndef MILLRACE_LNET_QUEUE_H
#define MILLRACE_LNET_QUEUE_H

#include "lib/lnet/shard/shard.h"

static inline int lnet_credits_max(int configured)
{
    return configured > 1 ? configured : 1;
}

static inline void lnet_credits_init(struct lnet_credits *c, int max)
{
    c->max = c->now = c->min = lnet_credits_max(max);
    c->waited = 0;
}

/* ---- messages, by lnd_next ---- */

static inline void lnet_msg_queue_init(struct lnet_msg_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static inline void lnet_msg_queue_add(struct lnet_msg_queue *q, struct lnet_msg *msg)
{
    msg->lnd_next = NULL;
    *q->tail = msg;
    q->tail = &msg->lnd_next;
}

static inline struct lnet_msg *lnet_msg_queue_pop(struct lnet_msg_queue *q)
{
    struct lnet_msg *msg = q->head;

    q->head = msg->lnd_next;
    if (!q->head)
        q->tail = &q->head;
    msg->lnd_next = NULL;
    return msg;
}

/* ---- received headers, by wait_next ---- */

static inline void lnet_rx_queue_init(struct lnet_rx_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->length = 0;
}

static inline void lnet_rx_queue_add(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    rx->wait_next = NULL;
    rx->wait_pprev = q->tail;
    *q->tail = rx;
    q->tail = &rx->wait_next;
    q->length++;
}

static inline void lnet_rx_queue_add_first(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    rx->wait_next = q->head;
    rx->wait_pprev = &q->head;
    if (q->head)
        q->head->wait_pprev = &rx->wait_next;
    else
        q->tail = &rx->wait_next;
    q->head = rx;
    q->length++;
}

static inline void lnet_rx_queue_del(struct lnet_rx_queue *q, struct lnet_rx *rx)
{
    *rx->wait_pprev = rx->wait_next;
    if (rx->wait_next)
        rx->wait_next->wait_pprev = rx->wait_pprev;
    else
        q->tail = rx->wait_pprev;
    rx->wait_next = NULL;
    rx->wait_pprev = NULL;
    q->length--;
}

#endif
