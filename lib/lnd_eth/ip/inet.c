/* SPDX-License-Identifier: BSD-3-Clause */
/* Making the IP layer, its start and its end. */
#include "lib/base/err.h"
#include "lib/lnd_eth/ip/inet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

/* ---- making ---- */

static void shard_free(struct inet_shard *sh)
{
    if (!sh)
        return;
    out_clear(sh);
    for (unsigned i = 0; i < PORT_MAX; i++)
        free(sh->txq[i]);
    neigh_fini(sh);
    pmtu_fini(sh);
    hand_fini(sh);
    free(sh->rxq);
    free(sh);
}

static int shard_make(struct inet *inet, unsigned index)
{
    struct inet_shard *sh = aligned_alloc(RTE_CACHE_LINE_SIZE,
                                          RTE_ALIGN_CEIL(sizeof(*sh), (size_t)RTE_CACHE_LINE_SIZE));
    int rc;

    if (!sh)
        return -ENOMEM;
    *sh = (struct inet_shard){
        .inet = inet,
        .reactor = reactor_at(inet->env, index),
        .index = index,
        .generation = 1,
        .poller = {.fn = inet_poll, .arg = sh, .max_sleep_us = UINT64_MAX},
    };
    inet->shard[index] = sh;
    rc = hand_init(sh);
    if (rc == 0)
        rc = neigh_init(sh);
    if (rc == 0)
        rc = pmtu_init(sh);
    return rc;
}

int inet_create(const struct inet_opts *opts, struct inet **out, struct err *err)
{
    struct inet *inet = calloc(1, sizeof(*inet));
    int rc = !inet ? -ENOMEM : 0;

    if (inet) {
        inet->opts = *opts;
        inet->env = opts->env;
        inet->nshards = reactor_count(opts->env);
    }
    for (unsigned i = 0; rc == 0 && i < inet->nshards; i++)
        rc = shard_make(inet, i);
    if (rc < 0) {
        err_text(err, "IP: out of memory");
        inet_destroy(inet);
        return rc;
    }
    *out = inet;
    return 0;
}

void inet_destroy(struct inet *inet)
{
    if (!inet)
        return;
    for (unsigned i = 0; i < inet->nshards; i++)
        shard_free(inet->shard[i]);
    for (unsigned i = 0; i < inet->nifs; i++)
        if_free(inet->ifs[i]);
    for (unsigned i = 0; i < inet->ports; i++)
        free(inet->port[i]);
    free(inet);
}

void inet_upper_set(struct inet *inet, const struct inet_upper *tcp)
{
    inet->opts.tcp = *tcp;
}

size_t inet_memory(unsigned reactors, unsigned neighbours)
{
    size_t shard = sizeof(struct inet_shard) + PORT_MAX * sizeof(struct inet_txq) +
                   neigh_memory(neighbours) + pmtu_memory();

    return sizeof(struct inet) + reactors * shard + hand_memory(reactors) +
           INET_IF_MAX * sizeof(struct inet_if) + PORT_MAX * sizeof(struct inet_port) +
           (INET_IF_MAX + INET_ROUTE_MAX) * sizeof(struct inet_route);
}

/* ---- start ---- */

/* Nothing is to be done but to poll, and that happens in each loop. */
static void frames_came(struct reactor_fd *f, uint32_t events)
{
}

static int queues_make(struct inet_shard *sh)
{
    struct inet *inet = sh->inet;
    unsigned n = 0;

    for (unsigned p = 0; p < inet->ports; p++)
        n += inet->port[p]->port->rx_queues;
    sh->rxq = calloc(n + 1, sizeof(sh->rxq[0]));
    if (!sh->rxq)
        return -ENOMEM;
    for (unsigned p = 0; p < inet->ports; p++) {
        /* Queues of ports that have fewer than there are reactors begin at different ones. */
        for (unsigned q = 0; q < inet->port[p]->port->rx_queues; q++)
            if ((p + q) % inet->nshards == sh->index)
                sh->rxq[sh->rxqs++] = (struct inet_rxq){.ip = inet->port[p], .queue = q};
        sh->txq[p] = calloc(1, sizeof(*sh->txq[p]));
        if (!sh->txq[p])
            return -ENOMEM;
    }
    return 0;
}

static void shard_start(struct reactor_task *task)
{
    struct inet_shard *sh = container_of(task, struct inet_shard, begin);

    sh->running = true;
    for (unsigned i = 0; i < sh->rxqs; i++) {
        struct inet_rxq *q = &sh->rxq[i];
        struct port *port = q->ip->port;
        int fd = (port->caps & PORT_RX_SLEEPS) != 0 ? port->ops->rx_fd(port, q->queue) : -1;

        q->sleeps = fd >= 0 && reactor_fd_add(&q->fd, fd, EPOLLIN, frames_came) == 0;
    }
    pmtu_start(sh);
    reactor_poller_add(sh->reactor, &sh->poller);
    if (sh->index == 0)
        dad_start(sh);
}

static void look_at_links(struct reactor_timer *timer)
{
    struct inet *inet = container_of(timer, struct inet, link_timer);

    if_links_look(inet);
    reactor_timer_arm(timer, INET_LINK_US);
}

static void shards_end(struct inet *inet, reactor_task_fn fn)
{
    inet->stop_waits = inet->nshards;
    for (unsigned i = 0; i < inet->nshards; i++) {
        inet->shard[i]->end.fn = fn;
        reactor_post(inet->shard[i]->reactor, &inet->shard[i]->end);
    }
}

int inet_start(struct inet *inet, struct err *err)
{
    for (unsigned i = 0; i < inet->nshards; i++)
        if (queues_make(inet->shard[i]) < 0)
            return err_set(err, -ENOMEM, "IP: out of memory");
    inet->started = true;
    if_links_look(inet);
    for (unsigned i = 0; i < inet->nshards; i++) {
        inet->shard[i]->begin.fn = shard_start;
        reactor_post(inet->shard[i]->reactor, &inet->shard[i]->begin);
    }
    reactor_timer_init(&inet->link_timer, look_at_links);
    reactor_timer_arm(&inet->link_timer, INET_LINK_US);
    return 0;
}

/* ---- end: first sending stops, then queued frames are thrown away ---- */

static void shard_stopped(struct reactor_task *task);

static void shard_end(struct reactor_task *task)
{
    struct inet_shard *sh = container_of(task, struct inet_shard, end);

    if (sh->running)
        reactor_poller_del(sh->reactor, &sh->poller);
    for (unsigned i = 0; sh->running && i < sh->rxqs; i++)
        reactor_fd_del(&sh->rxq[i].fd);
    sh->running = false;
    if (sh->index == 0)
        dad_stop(sh);
    reactor_timer_cancel(&sh->pmtu_timer);
    neigh_stop(sh);
    out_clear(sh);
    task->fn = shard_stopped;
    reactor_post(reactor_control(sh->inet->env), task);
}

/* A mail that says that there is something may be under way for what is freed soon. */
static bool mail_under_way(const struct inet_shard *sh)
{
    for (unsigned i = 0; i < sh->inet->nshards; i++)
        if (sh->in[i] && __atomic_load_n(&sh->in[i]->woken, __ATOMIC_ACQUIRE) != 0)
            return true;
    return false;
}

static void shard_empty(struct reactor_task *task)
{
    struct inet_shard *sh = container_of(task, struct inet_shard, end);

    if (mail_under_way(sh)) {
        reactor_post(sh->reactor, task);
        return;
    }
    for (unsigned i = 0; i < sh->inet->nshards; i++) {
        void *m;

        while (sh->in[i] && rte_ring_sc_dequeue(sh->in[i]->packets, &m) == 0)
            rte_pktmbuf_free(m);
    }
    task->fn = shard_stopped;
    reactor_post(reactor_control(sh->inet->env), task);
}

static void shard_stopped(struct reactor_task *task)
{
    struct inet *inet = container_of(task, struct inet_shard, end)->inet;

    if (--inet->stop_waits > 0)
        return;
    if (inet->stop_round++ == 0)
        shards_end(inet, shard_empty);
    else if (inet->stop_done)
        reactor_post(reactor_control(inet->env), inet->stop_done);
}

void inet_stop(struct inet *inet, struct reactor_task *done)
{
    if (inet->started)
        reactor_timer_cancel(&inet->link_timer);
    inet->stop_done = done;
    inet->stop_round = inet->started ? 0 : 1;
    inet->started = false;
    shards_end(inet, inet->stop_round == 0 ? shard_end : shard_empty);
}

/* ---- who is who ---- */

struct inet_shard *inet_shard_of(struct inet *inet, unsigned reactor)
{
    return inet->shard[reactor];
}

unsigned inet_shard_reactor(const struct inet_shard *sh)
{
    return sh->index;
}

unsigned inet_home(struct inet *inet, const struct inet_addr *local, const struct inet_addr *remote)
{
    unsigned home;

    if (!inet->opts.home)
        return inet_hash(remote, inet_hash(local, 0)) % inet->nshards;
    home = inet->opts.home(inet->opts.home_ctx, local, remote);
    return home < inet->nshards ? home : 0;
}

/* ---- looking ---- */

void inet_drops_get(const struct inet *inet, uint64_t out[PKT_DROP_COUNT])
{
    memset(out, 0, PKT_DROP_COUNT * sizeof(out[0]));
    for (unsigned i = 0; i < inet->nshards; i++)
        for (unsigned k = 0; k < PKT_DROP_COUNT; k++)
            out[k] += relaxed_load(&inet->shard[i]->drops[k]);
}

void inet_stats_get(const struct inet *inet, unsigned reactor, struct inet_stats *out)
{
    counters_copy_all(out, &inet->shard[reactor]->stats);
}

void inet_tap_set(struct inet *inet, const struct inet_tap *tap)
{
    __atomic_store_n(&inet->tap, tap, __ATOMIC_RELEASE);
}
