/* SPDX-License-Identifier: BSD-3-Clause */
/* What is told of the driver to people: memory, devices, counters, connections. */
#include "lib/lnd_verbs/ib_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void lnd_verbs_memory(const struct verbs_opts *opts, unsigned reactors, unsigned depth,
                      struct verbs_memory *out)
{
    unsigned conns = opts->max_conns != 0 ? opts->max_conns : IB_CONNS_DEFAULT;
    struct lnd_verbs *lv = calloc(1, sizeof(*lv));
    struct ib_ni *ini = calloc(1, sizeof(*ini));
    struct rdma_open open = {0};

    if (lv != NULL && ini != NULL) {
        lv->opts = *opts;
        ini->lv = lv;
        ini->terms.depth = (uint16_t)depth;
        ini->terms.frags = IB_FRAGS_MAX;
        ini->sends_max = opts->concurrent_sends != 0 ? opts->concurrent_sends : depth;
        ib_conn_sizes(ini, depth, IB_FRAGS_MAX, &open);
    }
    *out = (struct verbs_memory){
        .conns = conns,
        .pools = sizeof(*lv) + reactors * ib_shard_bytes(conns),
        .per_conn = open.area,
    };
    free(ini);
    free(lv);
}

void lnd_verbs_info(const struct lnet_ni *ni, struct rdma_info *out)
{
    const struct ib_ni *ini = ni->lnd_ni;

    ini->lv->opts.rdma->info(&ini->port->port, out);
}

bool lnd_verbs_provider(const struct lnd_verbs *lv, struct rdma_counters *out)
{
    memset(out, 0, sizeof(*out));
    if (lv->rdma != NULL)
        lv->opts.rdma->counters(lv->rdma, out);
    return lv->rdma != NULL;
}

/* All members are counters of the same kind. */
#define COUNTERS (sizeof(struct verbs_counters) / sizeof(uint64_t))
_Static_assert(sizeof(struct verbs_counters) % sizeof(uint64_t) == 0, "counters only");

void lnd_verbs_counters(const struct lnet_ni *ni, struct verbs_counters *out)
{
    const struct ib_ni *ini = ni->lnd_ni;
    uint64_t *sum = (uint64_t *)(void *)out;

    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < ini->nshards; i++) {
        const uint64_t *part = (const uint64_t *)(const void *)&ini->shard[i].count;

        for (size_t k = 0; k < COUNTERS; k++)
            sum[k] += __atomic_load_n(&part[k], __ATOMIC_RELAXED);
        out->polls += __atomic_load_n(&ini->lv->shards[i].polls, __ATOMIC_RELAXED);
    }
}

/* ---- connections ---- */

/* Goes from reactor to reactor, and back to the control thread with what they wrote. */
struct ask {
    struct reactor_task task;
    struct ib_ni *ini;
    unsigned next; /* reactor */
    struct verbs_conn_row *rows;
    unsigned max, n, total;
    void (*done)(void *arg, const struct verbs_conn_row *rows, unsigned n, unsigned total);
    void *arg;
};

static void ask_done(struct reactor_task *task)
{
    struct ask *ask = ib_container(task, struct ask, task);
    struct ib_ni *ini = ask->ini;

    ask->done(ask->arg, ask->rows, ask->n, ask->total);
    free(ask->rows);
    free(ask);
    ib_ni_asked(ini);
}

static void add_row(struct ask *ask, const struct ib_conn *c)
{
    ask->total++;
    if (ask->n < ask->max)
        ib_conn_row(c, &ask->rows[ask->n++]);
}

static void ask_next(struct ask *ask);

static void ask_here(struct reactor_task *task)
{
    struct ask *ask = ib_container(task, struct ask, task);
    const struct ib_ni_shard *ns = &ask->ini->shard[ask->next];
    const struct ib_peer *p;
    const struct ib_conn *c;

    TAILQ_FOREACH(p, &ns->peers, link) {
        TAILQ_FOREACH(c, &p->conns, link_of_peer)
            add_row(ask, c);
        TAILQ_FOREACH(c, &p->making, link_of_peer)
            add_row(ask, c);
    }
    ask->next++;
    ask_next(ask);
}

static void ask_next(struct ask *ask)
{
    struct lnd_verbs *lv = ask->ini->lv;

    if (ask->next < ask->ini->nshards) {
        ask->task.fn = ask_here;
        reactor_post(lv->shards[ask->next].reactor, &ask->task);
    } else {
        ask->task.fn = ask_done;
        reactor_post(reactor_control(lnet_node_env(lv->node)), &ask->task);
    }
}

int lnd_verbs_conns(struct lnet_ni *ni, unsigned max,
                    void (*done)(void *arg, const struct verbs_conn_row *rows, unsigned n,
                                 unsigned total),
                    void *arg)
{
    struct ib_ni *ini = ni->lnd_ni;
    unsigned most = ini->nshards * ini->lv->opts.max_conns;
    struct ask *ask = calloc(1, sizeof(*ask));

    if (max > most)
        max = most;
    if (ask != NULL)
        ask->rows = calloc(max > 0 ? max : 1, sizeof(*ask->rows));
    if (ask == NULL || ask->rows == NULL) {
        free(ask);
        return -ENOMEM;
    }
    ask->ini = ini;
    ask->max = max;
    ask->done = done;
    ask->arg = arg;
    ini->asks++;
    ask_next(ask);
    return 0;
}
