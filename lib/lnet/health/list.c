/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the peer NIs that are not healthy, for observers. A request goes from reactor to reactor
 * and back to the control thread. */
#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peer_ni.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct list_request {
    struct lnet_node *node;
    lnet_unhealthy_fn fn;
    void *arg;
    struct reactor_task task;
    unsigned reactor;
    struct lnet_unhealthy list;
};

static void deliver(struct reactor_task *task)
{
    struct list_request *q = container_of(task, struct list_request, task);

    q->fn(q->arg, &q->list);
    free(q);
}

static void add_some(struct lnet_unhealthy *list, const struct lnet_peer_ni_list *queue)
{
    const struct lnet_peer_ni *p;

    TAILQ_FOREACH(p, queue, recovery) {
        struct lnet_unhealthy_peer *row = &list->row[list->n];

        if (list->n == LNET_UNHEALTHY_MAX)
            return;
        row->nid = p->nid;
        row->health = p->health;
        row->recovering = p->is_recovering;
        row->gateway = p->gw_ni != NULL;
        row->ping_count = p->ping_count;
        row->next_ping_us = p->next_ping_us;
        memcpy(row->count, p->health_count, sizeof(row->count));
        list->n++;
    }
}

/* On each reactor in turn. */
static void collect(struct reactor_task *task)
{
    struct list_request *q = container_of(task, struct list_request, task);
    const struct lnet_peer_shard *peers = q->node->shard[q->reactor]->peer;

    add_some(&q->list, &peers->recovering);
    add_some(&q->list, &peers->unpinged);
    q->list.recovering += peers->nrecovering;
    q->list.unpinged += peers->nunpinged;
    if (++q->reactor < q->node->nshards) {
        reactor_post(q->node->shard[q->reactor]->reactor, task);
        return;
    }
    task->fn = deliver;
    reactor_post(reactor_control(q->node->env), task);
}

int lnet_unhealthy_get(struct lnet_node *node, lnet_unhealthy_fn fn, void *arg)
{
    struct list_request *q = lnet_request_alloc(sizeof(*q));

    if (!q)
        return -ENOMEM;
    q->node = node;
    q->fn = fn;
    q->arg = arg;
    q->task.fn = collect;
    reactor_post(node->shard[0]->reactor, &q->task);
    return 0;
}
