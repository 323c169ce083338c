/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stopping: the one way in which NIs stop, alone (live.c) or with their node, and the stop of a
 * node. Control thread.
 *
 * A node stops in this order: it takes no more requests of its own; its NIs quiesce, and messages
 * in the node are delivered, for a bounded time; its NIs stop, and a change of NIs that is under
 * way ends; messages that still cross reactors come to their end.
 */
#include "lib/lnet/api/api.h"
#include "lib/lnet/fault/fault.h"
#include "lib/lnet/node/node_internal.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/route/route.h"

#include <errno.h>
#include <stdlib.h>

#define POLL_US  20000   /* between looks whether the last message is gone */
#define AFTER_US 1000000 /* after the NIs have stopped, for messages that still cross reactors */

static bool has_messages(const struct lnet_node *node)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < node->nshards; i++)
        n += relaxed_load(&node->shard[i]->stats[LNET_STAT_MSGS_ALLOC]);
    return n > 0;
}

/* ---- NIs ---- */

/* A peer that stops in the middle of a message, or a next hop that takes nothing, does not delay
 * the stop beyond its time. */
static void quiesce_look(struct lnet_nis_stop *s)
{
    bool busy = s->quiet_wait > 0 || (s->drain && has_messages(s->node));
    uint64_t now = reactor_now_us();

    if (s->state != LNET_NIS_QUIESCING)
        return;
    if (busy && now < s->until_us)
        reactor_timer_arm(&s->timer, min(s->until_us - now, (uint64_t)POLL_US));
    else
        lnet_nis_stop(s);
}

static void quiesce_timer(struct reactor_timer *t)
{
    quiesce_look(container_of(t, struct lnet_nis_stop, timer));
}

static void ni_quiet(struct reactor_task *task)
{
    struct lnet_nis_stop *s = container_of(task, struct lnet_ni_stop, quiet)->all;

    if (--s->quiet_wait == 0)
        quiesce_look(s);
}

static void ni_stopped(struct reactor_task *task)
{
    struct lnet_ni_stop *n = container_of(task, struct lnet_ni_stop, stopped);
    struct lnet_node_event event = {
        .kind = LNET_NODE_EV_NI_REMOVED, .nid = n->ni->nid, .cause = "command"};

    if (n->ni->state == LNET_NI_REMOVED) /* else it was never added, or the node stops */
        lnet_node_event_post(n->all->node, &event);
    if (n->ni->state != LNET_NI_ACTIVE)
        relaxed_store(&n->ni->state, LNET_NI_STOPPED);
    if (--n->all->stop_wait > 0)
        return;
    n->all->state = LNET_NIS_STOPPED;
    n->all->done(n->all);
}

void lnet_nis_stop_init(struct lnet_nis_stop *s, struct lnet_node *node,
                        void (*done)(struct lnet_nis_stop *s))
{
    s->node = node;
    s->done = done;
    reactor_timer_init(&s->timer, quiesce_timer);
}

void lnet_nis_stop_add(struct lnet_nis_stop *s, struct lnet_ni *ni)
{
    struct lnet_ni_stop *n = &s->ni[s->n++];

    n->all = s;
    n->ni = ni;
    n->quiet.fn = ni_quiet;
    n->stopped.fn = ni_stopped;
}

void lnet_nis_quiesce(struct lnet_nis_stop *s, uint64_t max_us)
{
    s->state = LNET_NIS_QUIESCING;
    s->until_us = reactor_now_us() + max_us;
    s->quiet_wait = s->n;
    for (unsigned i = 0; i < s->n; i++)
        s->ni[i].ni->lnd->ni_quiesce(s->ni[i].ni, &s->ni[i].quiet);
    quiesce_look(s);
}

void lnet_nis_stop(struct lnet_nis_stop *s)
{
    reactor_timer_cancel(&s->timer);
    s->state = LNET_NIS_STOPPING;
    s->stop_wait = s->n;
    for (unsigned i = 0; i < s->n; i++)
        s->ni[i].ni->lnd->ni_stop(s->ni[i].ni, &s->ni[i].stopped);
    if (s->n > 0)
        return;
    s->state = LNET_NIS_STOPPED;
    s->done(s);
}

/* ---- the node ---- */

struct lnet_stop {
    struct lnet_nis_stop nis;
    void (*done)(void *arg); /* NULL: no caller waits */
    void *arg;
    unsigned drain_s;
    bool begun;
    struct reactor_timer timer; /* after the NIs */
    uint64_t until_us;
    struct reactor_task home;
};

static void after_look(struct reactor_timer *t)
{
    struct lnet_stop *s = container_of(t, struct lnet_stop, timer);

    if (has_messages(s->nis.node) && reactor_now_us() < s->until_us)
        reactor_timer_arm(t, POLL_US);
    else if (s->done)
        s->done(s->arg);
}

/* Goes on when the NIs have stopped and no change of NIs is under way. */
static void go_on(struct lnet_stop *s)
{
    if (s->nis.state != LNET_NIS_STOPPED || lnet_change_is_busy(s->nis.node))
        return;
    s->until_us = reactor_now_us() + AFTER_US;
    after_look(&s->timer);
}

static void nis_stopped(struct lnet_nis_stop *nis)
{
    go_on(container_of(nis, struct lnet_stop, nis));
}

void lnet_stop_change_ended(struct lnet_node *node)
{
    go_on(node->stop);
}

/* An NI that is being added or removed is stopped by its change. */
static void add_nis(struct lnet_stop *s)
{
    struct lnet_node *node = s->nis.node;

    for (unsigned i = 0; i < node->nnis; i++)
        if (node->ni[i] && lnet_ni_is_active(node->ni[i]))
            lnet_nis_stop_add(&s->nis, node->ni[i]);
}

static void stop_home_done(struct reactor_task *task)
{
    struct lnet_stop *s = container_of(task, struct lnet_stop, home);

    if (s->nis.state != LNET_NIS_IDLE)
        return; /* lnet_node_end() was quicker */
    add_nis(s);
    s->nis.drain = true;
    lnet_nis_quiesce(&s->nis, (uint64_t)s->drain_s * 1000000);
}

static void stop_home(struct reactor_task *task)
{
    struct lnet_stop *s = container_of(task, struct lnet_stop, home);

    lnet_monitor_stop(s->nis.node);
    lnet_checks_stop(s->nis.node);
    lnet_ping_stop(s->nis.node);
    lnet_responses_stop(s->nis.node);
    task->fn = stop_home_done;
    reactor_post(reactor_control(s->nis.node->env), task);
}

void lnet_node_stop(struct lnet_node *node, unsigned drain_s, void (*done)(void *arg), void *arg)
{
    struct lnet_stop *s = node->stop;

    if (s->begun)
        return; /* under way; done comes once */
    s->begun = true;
    lnet_routing_stop(node);
    relaxed_store(&node->stopping, true);
    lnet_faults_end(node);
    s->done = done;
    s->arg = arg;
    s->drain_s = drain_s;
    s->home.fn = stop_home;
    reactor_post(lnet_node_home(node), &s->home);
}

void lnet_node_end(struct lnet_node *node)
{
    struct lnet_stop *s = node->stop;

    relaxed_store(&node->stopping, true);
    lnet_faults_end(node);
    lnet_change_abandon(node);
    if (s->nis.state > LNET_NIS_QUIESCING)
        return;
    s->done = NULL;
    if (s->nis.state == LNET_NIS_IDLE)
        add_nis(s);
    lnet_nis_stop(&s->nis);
}

int lnet_stop_init(struct lnet_node *node)
{
    node->stop = calloc(1, sizeof(*node->stop));
    if (!node->stop)
        return -ENOMEM;
    lnet_nis_stop_init(&node->stop->nis, node, nis_stopped);
    reactor_timer_init(&node->stop->timer, after_look);
    return 0;
}

void lnet_stop_fini(struct lnet_node *node)
{
    if (node->stop) { /* the stop may not have ended */
        reactor_timer_cancel(&node->stop->nis.timer);
        reactor_timer_cancel(&node->stop->timer);
    }
    free(node->stop);
}
