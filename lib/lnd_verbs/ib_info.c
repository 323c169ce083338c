/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the LND for RPC: memory, devices, counters, connections. */
#include "lib/lnd_verbs/ib_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void lnd_verbs_memory(const struct verbs_opts *opts, unsigned reactors, unsigned depth,
                      int concurrent_sends, struct lnd_memory *out)
{
    unsigned conns = opts->max_conns != 0 ? opts->max_conns : IB_CONNS_DEFAULT;
    struct rdma_open open;

    ib_conn_sizes(depth, ib_sends_max(opts, concurrent_sends, depth), false, &open);
    *out = (struct lnd_memory){
        .conns = conns,
        .pools = sizeof(struct lnd_verbs) + reactors * ib_shard_bytes(conns),
        .per_conn = open.area,
    };
}

void lnd_verbs_info(const struct lnet_ni *ni, struct rdma_info *out)
{
    const struct ib_ni *ini = ni->lnd_ni;

    if (ini->bound)
        ini->lv->opts.rdma->info(&ini->port->port, out);
    else
        *out = ini->port->port.info;
}

bool lnd_verbs_provider(const struct lnd_verbs *lv, struct rdma_counters *out)
{
    memset(out, 0, sizeof(*out));
    if (lv->rdma)
        lv->opts.rdma->counters(lv->rdma, out);
    return lv->rdma != NULL;
}

void lnd_verbs_counters(const struct lnet_ni *ni, struct verbs_counters *out)
{
    const struct ib_ni *ini = ni->lnd_ni;

    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < ini->base.driver->nshards; i++) {
        counters_add_all(out, &ini->shard[i].count);
        out->polls += relaxed_load(&ib_shard_of(lnd_shard_at(ini->base.driver, i))->polls);
    }
}

/* ---- connections ---- */

/* A request for rows. Visits one reactor after the other and returns to the control thread with the
 * rows. */
struct ask {
    struct reactor_task task;
    struct ib_ni *ini;
    unsigned next; /* reactor */
    unsigned max;
    struct verbs_conn_row *conns;
    struct verbs_peer_row *peers;
    struct verbs_rows rows;
    void (*done)(void *arg, const void *rows);
    void *arg;
};

static void ask_free(struct ask *ask)
{
    free(ask->conns);
    free(ask->peers);
    free(ask);
}

static void ask_done(struct reactor_task *task)
{
    struct ask *ask = container_of(task, struct ask, task);
    struct ib_ni *ini = ask->ini;

    ask->done(ask->arg, &ask->rows);
    ask_free(ask);
    lnd_ni_unpin(&ini->base);
}

static void add_row(struct ask *ask, const struct ib_conn *c)
{
    ask->rows.total++;
    if (ask->rows.nconns < ask->max)
        ib_conn_row(c, &ask->conns[ask->rows.nconns++]);
}

static const char *peer_state(const struct ib_peer *p)
{
    if (p->base.nconns > 0)
        return "up";
    if (p->base.connecting != LND_CONNECT_IDLE)
        return "calling";
    if (p->base.accepting > 0)
        return "called";
    return lnd_connect_may(&p->base) ? "idle" : "down";
}

static void add_peer(struct ask *ask, const struct ib_peer *p)
{
    uint64_t now = reactor_now_us();

    ask->rows.peers_total++;
    if (ask->rows.npeers == ask->max)
        return;
    ask->peers[ask->rows.npeers++] = (struct verbs_peer_row){
        .peer = p->base.peer->nid,
        .reactor = p->shard->base.index,
        .state = peer_state(p),
        .conns = p->base.nconns,
        .retries = p->base.connecting != LND_CONNECT_IDLE ? p->dial.ask.tries : 0,
        .depth_max = p->depth_max,
        .again_us = p->base.connect.next_us > now ? p->base.connect.next_us - now : 0,
        .failed = p->failure.drop,
        .why = p->failure.why,
        .failed_age_us = p->failure.drop != LNET_DROP_NONE ? now - p->failure.when_us : 0,
    };
}

static void ask_next(struct ask *ask);

static void ask_here(struct reactor_task *task)
{
    struct ask *ask = container_of(task, struct ask, task);
    const struct ib_ni_shard *ns = &ask->ini->shard[ask->next];
    struct lnd_peer_ni *lp;
    const struct ib_conn *c;

    TAILQ_FOREACH(lp, &ns->base.peers, link) {
        const struct ib_peer *p = ib_peer_of(lp);

        add_peer(ask, p);
        IB_CONN_FOREACH(c, &p->base.conns)
            add_row(ask, c);
        IB_CONN_FOREACH(c, &p->making)
            add_row(ask, c);
    }
    ask->next++;
    ask_next(ask);
}

static void ask_next(struct ask *ask)
{
    struct lnd_verbs *lv = ask->ini->lv;

    if (ask->next < ask->ini->base.driver->nshards) {
        ask->task.fn = ask_here;
        reactor_post(lnd_shard_at(&lv->base, ask->next)->reactor, &ask->task);
    } else {
        ask->task.fn = ask_done;
        reactor_post(reactor_control(lnet_node_env(lv->base.node)), &ask->task);
    }
}

int lnd_verbs_conns(struct lnet_ni *ni, unsigned max, void (*done)(void *arg, const void *rows),
                    void *arg)
{
    struct ib_ni *ini = ni->lnd_ni;
    unsigned most = ini->base.driver->nshards * ini->lv->base.max_conns;
    struct ask *ask = calloc(1, sizeof(*ask));

    if (max > most)
        max = most;
    if (!ask)
        return -ENOMEM;
    ask->conns = calloc(max > 0 ? max : 1, sizeof(*ask->conns));
    ask->peers = calloc(max > 0 ? max : 1, sizeof(*ask->peers));
    if (!ask->conns || !ask->peers) {
        ask_free(ask);
        return -ENOMEM;
    }
    ask->rows.conns = ask->conns;
    ask->rows.peers = ask->peers;
    ask->ini = ini;
    ask->max = max;
    ask->done = done;
    ask->arg = arg;
    lnd_ni_pin(&ini->base);
    ask_next(ask);
    return 0;
}
