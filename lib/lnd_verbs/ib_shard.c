/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LND on one reactor: the completion queues of its connections. They are polled while requests
 * complete, and their descriptors are watched when nothing completes.
 */
#include "lib/lnd_verbs/ib_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/epoll.h>

/* After this time without a completion the queues are armed to wake the reactor. Arming a queue
 * costs as much as a few hundred polls. */
#define SPIN_US  100
#define CQS      128
#define CQ_CONNS 6

/* ---- completion queues ---- */

/* A polled completion may end the last connection of a queue, which empties its row. */
static int poll_all(struct ib_shard *shard)
{
    unsigned left = shard->ncqs;
    int work = 0;

    for (unsigned i = 0; left > 0 && i < shard->cq_rows; i++) {
        if (!shard->cqs[i].cq)
            continue;
        left--;
        work += ib_cq_poll(shard, shard->cqs[i].cq);
    }
    count_add(&shard->polls, 1);
    return work;
}

/* A request has completed since the queue was armed. */
static void cq_ready(struct reactor_fd *fd, uint32_t events)
{
    struct ib_shard_cq *row = container_of(fd, struct ib_shard_cq, fd);

    row->armed = false;
    row->shard->lv->opts.rdma->disarm(row->cq);
    /* The reactor polls it in this iteration, before it sleeps. */
    row->shard->base.poller.max_sleep_us = 0;
}

/* Arms all queues. Returns whether all were armed already. A queue that cannot be armed is polled
 * for ever. */
static bool arm_all(struct ib_shard *shard)
{
    unsigned left = shard->ncqs;
    bool all = true;

    for (unsigned i = 0; left > 0 && i < shard->cq_rows; i++) {
        struct ib_shard_cq *row = &shard->cqs[i];

        if (!row->cq)
            continue;
        left--;
        if (row->armed)
            continue;
        all = false;
        row->armed = row->watched && shard->lv->opts.rdma->arm(row->cq) == 0;
    }
    return all;
}

int ib_shard_poll(void *arg)
{
    struct ib_shard *shard = arg;
    int work = poll_all(shard), settled = ib_settle_all(shard);

    shard->base.poller.max_sleep_us = 0;
    if (work > 0) {
        shard->idle_us = 0;
        return work + settled;
    }
    if (shard->idle_us == 0)
        shard->idle_us = reactor_now_us();
    if (shard->ncqs > 0 &&
        (reactor_spins(shard->base.reactor) || reactor_now_us() - shard->idle_us < SPIN_US))
        return settled;
    /* A request that completed before its queue was armed wakes no reactor: only a poll after that
     * allows sleep. */
    if (arm_all(shard))
        shard->base.poller.max_sleep_us = UINT64_MAX;
    return settled;
}

static struct ib_shard_cq *find_row(struct ib_shard *shard, const struct rdma_cq *cq)
{
    for (unsigned i = 0; i < shard->cq_rows; i++) {
        if (shard->cqs[i].cq == cq)
            return &shard->cqs[i];
    }
    return NULL;
}

bool ib_shard_add_cq(struct ib_conn *c)
{
    struct ib_shard *shard = c->shard;
    struct ib_shard_cq *row = find_row(shard, c->link.cq);

    if (!row) {
        row = find_row(shard, NULL);
        if (!row)
            return false;
        shard->ncqs++;
        row->cq = c->link.cq;
        row->shard = shard;
        row->armed = false;
        row->watched =
            row->cq->fd >= 0 && reactor_fd_add(&row->fd, row->cq->fd, EPOLLIN, cq_ready) == 0;
    }
    row->conns++;
    c->polled = true;
    shard->idle_us = 0; /* one that has just come is not armed */
    shard->base.poller.max_sleep_us = 0;
    return true;
}

/* Stops polling a queue with its last connection: no request can complete, and its device may be
 * removed. */
static void cq_left(const struct ib_conn *c)
{
    struct ib_shard_cq *row = find_row(c->shard, c->link.cq);

    if (--row->conns > 0)
        return;
    if (row->watched)
        reactor_fd_del(&row->fd);
    row->watched = false;
    row->cq = NULL;
    c->shard->ncqs--;
}

void ib_conn_free(struct ib_conn *c)
{
    if (c->polled)
        cq_left(c);
    c->polled = false;
    assert(!c->ready); /* shut() answers in a later iteration, and nothing made c ready since */
    c->state = IB_CONN_FREE;
    c->shard->closing--;
    lnd_pool_put(&c->shard->base.conns, c);
}

/* At the greatest depth, with twice as many sends, a queue of RDMA_CQ_ENTRIES has room for seven
 * connections. Some queues are not full, and there are several devices. With a device that makes
 * smaller queues the rows may run out before the connections do. */
unsigned ib_shard_cqs(unsigned max_conns)
{
    return CQS + max_conns / CQ_CONNS;
}

bool ib_shard_init(struct lnd_shard *base)
{
    struct ib_shard *shard = ib_shard_of(base);

    shard->lv = container_of(base->driver, struct lnd_verbs, base);
    TAILQ_INIT(&shard->nis);
    TAILQ_INIT(&shard->calls);
    reactor_timer_init(&shard->early_timer, ib_accept_early);
    shard->cq_rows = ib_shard_cqs(base->driver->max_conns);
    shard->cqs = calloc(shard->cq_rows, sizeof(*shard->cqs));
    return shard->cqs;
}

void ib_shard_fini(struct lnd_shard *base)
{
    free(ib_shard_of(base)->cqs);
}

size_t ib_shard_bytes(unsigned max_conns)
{
    return ib_shard_cqs(max_conns) * sizeof(struct ib_shard_cq) +
           lnd_shard_bytes(&ib_proto, max_conns);
}
