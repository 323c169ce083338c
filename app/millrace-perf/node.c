/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine `node`: the process is one LNet node, with one reactor, NIs over host sockets or RDMA, and
 * routes. Here: its life, and pings until every target has answered. All on the control thread.
 */
#include "app/millrace-perf/node.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_S        1
#define PING_MS        1000 /* one attempt */
#define PING_RETRY_US  100000
#define MEM_SPARE_MB   16 /* EAL's own and alignment */
#define LOCAL_MSGS_MIN 2048

/* A message of ours each for what is on the way, and for the answers of a server. Twice that: all
 * may come through one gateway, and one neighbour gets half of them at most. */
static unsigned local_msgs(const struct perf_opts *o)
{
    unsigned n = 2 * (2 * o->inflight + o->buffers);

    return n > LOCAL_MSGS_MIN ? n : LOCAL_MSGS_MIN;
}

static int env_open(struct perf *p, struct lnet_node_opts *node_opts, struct err *err)
{
    struct reactor_opts opts = {
        .prog = "millrace-perf",
        .cores = p->opts.cores,
        .count = 1,
        .idle = p->opts.idle,
        .mem_mb = p->opts.mem_mb,
        .hugepages = p->opts.hugepages,
    };
    struct lnet_memory need;
    int rc;

    if (opts.mem_mb == 0) {
        rc = lnet_memory_plan(node_opts, 1, &need, err);
        if (rc)
            return rc;
        opts.mem_mb = (unsigned)((need.landing + perf_memory_need(&p->opts)) >> 20) + MEM_SPARE_MB;
    }
    rc = reactor_env_create(&opts, &p->env, err);
    if (rc == 0 && reactor_count(p->env) != 1) {
        err_text(err, "--cores must name one core");
        rc = -EINVAL;
    }
    node_opts->env = p->env;
    return rc;
}

static int nets_add(struct perf *p, struct err *err)
{
    struct lnet_ni *ni;
    int rc = 0;

    for (unsigned i = 0; i < p->opts.nnis && rc == 0; i++)
        rc = lnet_ni_add(p->node, &p->opts.ni[i], &ni, err);
    for (unsigned i = 0; i < p->opts.nroutes && rc == 0; i++)
        rc = lnet_route_add(p->node, &p->opts.route[i], err);
    return rc;
}

static int node_make(struct perf *p, struct err *err)
{
    struct lnet_node_opts node_opts = {
        .tiny = 1, /* router buffers: an end node forwards nothing */
        .small = 1,
        .large = 1,
        .local_msgs = local_msgs(&p->opts),
    };
    int rc;

    rc = env_open(p, &node_opts, err);
    if (rc != 0)
        return rc;
    rc = lnet_node_create(&node_opts, &p->node, err);
    if (rc != 0)
        return rc;
    for (unsigned i = 0; rc == 0 && lnd_codes[i]; i++) {
        p->lnd[i] = lnd_create_default(lnd_codes[i]);
        rc = p->lnd[i] ? lnet_lnd_register(p->node, lnd_codes[i]->ops, p->lnd[i]) : -ENOMEM;
    }
    if (rc == 0)
        rc = perf_memory_open(p, err);
    return rc != 0 ? rc : nets_add(p, err);
}

static int targets_list(struct node_engine *n)
{
    const struct perf_opts *o = &n->base.perf->opts;
    uint32_t at = 0;

    for (unsigned r = 0; r < o->ntargets; r++)
        n->base.targets += o->targets[r].count;
    n->target = calloc(n->base.targets + 1, sizeof(*n->target));
    if (!n->target)
        return -ENOMEM;
    for (unsigned r = 0; r < o->ntargets; r++)
        for (uint32_t i = 0; i < o->targets[r].count; i++)
            range_at(&o->targets[r], i, &n->target[at++]);
    return 0;
}

static int node_open(struct perf *p, struct perf_engine **out)
{
    struct node_engine *n = calloc(1, sizeof(*n));
    struct err err = {.message = "out of memory"};
    int rc = -ENOMEM;

    if (!n)
        goto failed;
    n->base = (struct perf_engine){.ops = &engine_node, .perf = p, .sources = 1};
    *out = &n->base;
    rc = targets_list(n);
    if (rc == 0)
        rc = node_make(p, &err);
    if (rc == 0 && options_send(&p->opts))
        rc = node_ops_alloc(n);
    if (rc != 0)
        goto failed;
    n->base.home = lnet_node_home(p->node);
    rc = reactor_env_start(p->env);
    if (rc != 0) {
        err_text(&err, "cannot start the reactor: %s", strerror(-rc));
        goto failed;
    }
    n->reactor_runs = true;
    return 0;

failed:
    fprintf(stderr, "millrace-perf: %s\n", err.message);
    return rc;
}

/* ---- pings ---- */

static void probe_send(struct reactor_timer *timer);

static void probes_end(struct node_engine *n, int error, const struct lnet_nid *who)
{
    char why[128] = "", nid[LNET_NIDSTR_SIZE];

    n->probing = false;
    for (unsigned i = 0; i < NODE_PROBES; i++)
        reactor_timer_cancel(&n->probe[i].retry);
    if (error != 0)
        snprintf(why, sizeof(why), "the target %s does not answer a ping: %s", nid_format(who, nid),
                 strerror(-error));
    perf_engine_ready(&n->base, error, why, n->probes_lost);
}

static void probe_next(struct probe *probe)
{
    struct node_engine *n = probe->engine;

    if (n->probe_next == n->base.targets) {
        if (n->probes_out == 0)
            probes_end(n, 0, NULL);
        return;
    }
    probe->target = n->probe_next++;
    n->probes_out++;
    reactor_timer_arm(&probe->retry, 0); /* not from here: LNet may still be in a ping */
}

static void probe_failed(struct probe *probe, int error)
{
    struct node_engine *n = probe->engine;

    if (perf_now_ns() < n->probe_until_ns)
        reactor_timer_arm(&probe->retry, PING_RETRY_US);
    else
        probes_end(n, error, &n->target[probe->target]);
}

static void probe_answer(void *arg, int status, const struct lnet_ping_info *info)
{
    struct probe *probe = arg;
    struct node_engine *n = probe->engine;

    if (!n->probing)
        return; /* stopped, or given up */
    if (status != 0) {
        n->probes_lost++;
        probe_failed(probe, status);
        return;
    }
    n->probes_out--;
    probe_next(probe);
}

static void probe_send(struct reactor_timer *timer)
{
    struct probe *probe = container_of(timer, struct probe, retry);
    struct node_engine *n = probe->engine;
    int rc = lnet_ping(n->base.perf->node, &n->target[probe->target], &LNET_NID_ANY, PING_MS,
                       probe_answer, probe);

    if (rc != 0)
        probe_failed(probe, rc);
}

static void probes_begin(struct node_engine *n)
{
    n->probing = true;
    n->probe_until_ns = perf_now_ns() + n->base.perf->opts.timeout_ms * 1000000ull;
    for (unsigned i = 0; i < NODE_PROBES; i++) {
        n->probe[i].engine = n;
        reactor_timer_init(&n->probe[i].retry, probe_send);
        if (n->probe_next < n->base.targets)
            probe_next(&n->probe[i]);
    }
}

/* ---- life ---- */

void perf_server_ready(struct perf *p, int error)
{
    if (error != 0) {
        char why[128];
        snprintf(why, sizeof(why), "cannot offer buffers: %s", strerror(-error));
        perf_engine_failed(p->engine, why);
        return;
    }
    for (unsigned i = 0; i < lnet_ni_count(p->node); i++) {
        char nid[LNET_NIDSTR_SIZE];
        perf_engine_serving(p->engine, nid_format(&lnet_ni_at(p->node, i)->nid, nid));
    }
}

static int node_start(struct perf_engine *e)
{
    struct node_engine *n = container_of(e, struct node_engine, base);
    struct perf *p = e->perf;
    struct err err = {0};
    int rc = 0;

    if (p->opts.command == PERF_SERVER || p->opts.serve) /* who can ping us finds a server */
        rc = server_begin(p);
    if (rc != 0) {
        fprintf(stderr, "millrace-perf: no memory for %u buffers\n", p->opts.buffers);
        return rc;
    }
    rc = lnet_node_start(p->node, &err);
    if (rc != 0) {
        fprintf(stderr, "millrace-perf: %s\n", err.message);
        return rc;
    }
    if (options_send(&p->opts))
        probes_begin(n);
    else
        perf_engine_ready(e, 0, "", 0);
    return 0;
}

static void node_stopped(void *arg)
{
    perf_engine_stopped(arg);
}

static void node_stop(struct perf_engine *e)
{
    struct node_engine *n = container_of(e, struct node_engine, base);

    if (n->probing)
        for (unsigned i = 0; i < NODE_PROBES; i++)
            reactor_timer_cancel(&n->probe[i].retry);
    n->probing = false;
    lnet_node_stop(e->perf->node, DRAIN_S, node_stopped, e);
}

static void node_halt(struct perf_engine *e)
{
    struct node_engine *n = container_of(e, struct node_engine, base);

    if (n->reactor_runs)
        reactor_env_stop(e->perf->env);
    n->reactor_runs = false;
}

static void node_close(struct perf_engine *e)
{
    struct node_engine *n = container_of(e, struct node_engine, base);
    struct perf *p = e->perf;

    if (p->node)
        lnet_node_destroy(p->node);
    for (unsigned i = 0; lnd_codes[i]; i++)
        lnd_codes[i]->destroy(p->lnd[i]);
    server_free(p->server);
    node_ops_free(n);
    perf_memory_close(p);
    if (p->env)
        reactor_env_destroy(p->env);
    free(n->target);
    free(n);
}

/* ---- results ---- */

static void node_counters(const struct perf_engine *e, struct perf_engine_counters *out)
{
    uint64_t drops[LNET_DROP_COUNT];

    lnet_drops_get(e->perf->node, drops);
    *out = (struct perf_engine_counters){.unmatched = drops[LNET_DROP_ACK_NO_MATCH] +
                                                      drops[LNET_DROP_REPLY_NO_MATCH]};
}

static void node_drops(const struct perf_engine *e, perf_row_fn row, void *arg)
{
    uint64_t drops[LNET_DROP_COUNT];

    lnet_drops_get(e->perf->node, drops);
    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        if (drops[d] > 0)
            row(arg, lnet_drop_info(d)->name, lnet_drop_info(d)->text, drops[d]);
}

const struct perf_engine_ops engine_node = {
    .name = "node",
    .open = node_open,
    .start = node_start,
    .stop = node_stop,
    .halt = node_halt,
    .close = node_close,
    .send = node_send,
    .cancel = node_cancel,
    .collect = node_collect,
    .counters = node_counters,
    .served = node_served,
    .missing = node_missing,
    .drops = node_drops,
};
