/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Removing a net at run time. Control thread. docs/protocol/lnet-core.md §12.1 "net deleted".
 *
 * The NIs are marked first, so that nothing chooses them any more and what is already on its way to
 * them fails where it arrives; then the node's home tells others, each reactor fails what waits for
 * credits, and the LND closes connections. The objects stay, unused, until the node is destroyed:
 * messages may point to them.
 */
#include "lib/lnet/lnet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct net_del_mail {
    struct reactor_task task;
    struct lnet_net_del *del;
    struct lnet_shard *shard;
};

struct net_del_ni {
    struct reactor_task task;
    struct lnet_net_del *del;
};

struct lnet_net_del {
    struct lnet_node *node;
    struct lnet_net_state *net;
    void (*done)(void *arg);
    void *arg;
    unsigned pending;
    struct net_del_mail mail[REACTOR_MAX];
    struct net_del_ni ni[LNET_MAX_NI];
};

static void ni_stopped(struct reactor_task *task)
{
    struct lnet_net_del *del = container_of(task, struct net_del_ni, task)->del;
    struct lnet_node *node = del->node;

    if (--del->pending > 0)
        return;
    node->net_del = NULL;
    del->done(del->arg);
    free(del);
    lnet_stop_net_gone(node);
}

static void stop_nis(struct lnet_net_del *del)
{
    unsigned i;

    del->pending = del->net->nni;
    for (i = 0; i < del->net->nni; i++) {
        struct lnet_ni *ni = del->node->ni[del->net->ni[i]];

        del->ni[i].del = del;
        del->ni[i].task.fn = ni_stopped;
        ni->lnd->ni_stop(ni, &del->ni[i].task);
    }
}

static void shard_flushed(struct reactor_task *task)
{
    struct lnet_net_del *del = container_of(task, struct net_del_mail, task)->del;

    if (--del->pending == 0)
        stop_nis(del);
}

static void flush_shard(struct reactor_task *task)
{
    struct net_del_mail *m = container_of(task, struct net_del_mail, task);
    const struct lnet_net_state *net = m->del->net;
    struct lnet_node *node = m->del->node;
    unsigned i;

    if (lnet_is_home(node))
        lnet_ping_changed(node);
    for (i = 0; i < net->nni; i++)
        lnet_credit_fail_ni(m->shard, node->ni[net->ni[i]],
                            (struct lnet_result){LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ERROR});
    m->task.fn = shard_flushed;
    reactor_post(reactor_control(node->env), &m->task);
}

int lnet_net_del(struct lnet_node *node, lnet_net_t net, void (*done)(void *arg), void *arg,
                 char *err, size_t errlen)
{
    struct lnet_net_state *state = lnet_net_find(node, net);
    char name[LNET_NETSTR_SIZE];
    struct lnet_net_del *del;
    unsigned i;

    net_format(net, name);
    if (!state) {
        snprintf(err, errlen, "net: there is no local net %s", name);
        return -ENOENT;
    }
    if (!node->started || node->stop || node->net_del) {
        snprintf(err, errlen, "net: %s cannot be removed while %s", name,
                 node->net_del ? "another net is being removed" : "the node starts or stops");
        return -EBUSY;
    }
    del = calloc(1, sizeof(*del));
    if (!del) {
        snprintf(err, errlen, "no memory");
        return -ENOMEM;
    }
    *del = (struct lnet_net_del){.node = node, .net = state, .done = done, .arg = arg};
    node->net_del = del;
    for (i = 0; i < state->nni; i++)
        shared_set(&node->ni[state->ni[i]]->removed, true);
    shared_set(&state->removed, true);
    del->pending = node->nshards;
    for (i = 0; i < node->nshards; i++) {
        del->mail[i].del = del;
        del->mail[i].shard = node->shard[i];
        del->mail[i].task.fn = flush_shard;
        reactor_post(node->shard[i]->reactor, &del->mail[i].task);
    }
    return 0;
}
