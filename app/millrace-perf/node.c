/* SPDX-License-Identifier: BSD-3-Clause */
/* The LNet node of the process: EAL, one reactor, NIs over host sockets, routes. */
#include "app/millrace-perf/perf.h"

#include <errno.h>

#define DRAIN_S        1
#define MEM_SPARE_MB   16 /* EAL's own and alignment */
#define LOCAL_MSGS_MIN 2048

/* A message of ours each for what is on the way, and for the answers of a server. Twice that: all
 * may come through one gateway, and one neighbour gets half of them at most. */
static unsigned local_msgs(const struct perf_opts *o)
{
    unsigned n = 2 * (2 * o->inflight + o->buffers);

    return n > LOCAL_MSGS_MIN ? n : LOCAL_MSGS_MIN;
}

static int env_open(struct perf *p, struct lnet_node_opts *node_opts, char *err, size_t errlen)
{
    struct reactor_opts opts = {
        .prog = "millrace-perf",
        .cores = p->opts.cores,
        .count = 1,
        .idle = p->opts.idle,
        .mem_mb = p->opts.mem_mb,
    };
    struct lnet_memory need;
    int rc;

    if (opts.mem_mb == 0) {
        rc = lnet_memory_plan(node_opts, 1, &need, err, errlen);
        if (rc)
            return rc;
        opts.mem_mb = (unsigned)((need.landing + need.local) >> 20) + MEM_SPARE_MB;
    }
    rc = reactor_env_create(&opts, &p->env, err, errlen);
    if (rc == 0 && reactor_count(p->env) != 1) {
        snprintf(err, errlen, "--cores must name one core");
        rc = -EINVAL;
    }
    node_opts->env = p->env;
    return rc;
}

static int nets_add(struct perf *p, char *err, size_t errlen)
{
    struct lnet_ni *ni;
    int rc = 0;

    for (unsigned i = 0; i < p->opts.nnis && rc == 0; i++)
        rc = lnet_ni_add(p->node, &p->opts.ni[i], &ni, err, errlen);
    for (unsigned i = 0; i < p->opts.nroutes && rc == 0; i++)
        rc = lnet_route_add(p->node, &p->opts.route[i], err, errlen);
    return rc;
}

int node_open(struct perf *p)
{
    struct lnet_node_opts node_opts = {
        .tiny = 1, /* router buffers: an end node forwards nothing */
        .small = 1,
        .large = 1,
        .local_msgs = local_msgs(&p->opts),
    };
    struct sock_opts sock_opts = SOCK_OPTS_DEFAULT;
    char err[512] = "out of memory";
    int rc;

    rc = env_open(p, &node_opts, err, sizeof(err));
    if (rc != 0)
        goto failed;
    rc = lnet_node_create(&node_opts, &p->node, err, sizeof(err));
    if (rc != 0)
        goto failed;
    p->sock = lnd_sock_new(&sock_opts);
    rc = p->sock == NULL ? -ENOMEM : lnet_lnd_register(p->node, &lnd_sock_ops, p->sock);
    if (rc != 0)
        goto failed;
    rc = nets_add(p, err, sizeof(err));
    if (rc != 0)
        goto failed;
    rc = reactor_env_start(p->env);
    if (rc != 0) {
        snprintf(err, sizeof(err), "cannot start the reactor: %s", strerror(-rc));
        goto failed;
    }
    p->reactor_runs = true;
    return 0;

failed:
    fprintf(stderr, "millrace-perf: %s\n", err);
    return rc;
}

int node_start(struct perf *p)
{
    char err[512];
    int rc = lnet_node_start(p->node, err, sizeof(err));

    if (rc != 0)
        fprintf(stderr, "millrace-perf: %s\n", err);
    return rc;
}

static void node_stopped(void *arg)
{
    struct perf *p = arg;

    reactor_control_quit(p->env);
}

void node_stop(struct perf *p)
{
    lnet_node_stop(p->node, DRAIN_S, node_stopped, p);
}

void node_halt(struct perf *p)
{
    if (p->reactor_runs)
        reactor_env_stop(p->env);
    p->reactor_runs = false;
}

void node_close(struct perf *p)
{
    node_halt(p);
    if (p->node != NULL)
        lnet_node_destroy(p->node);
    if (p->sock != NULL)
        lnd_sock_free(p->sock);
    if (p->env != NULL)
        reactor_env_destroy(p->env);
    p->node = NULL;
    p->sock = NULL;
    p->env = NULL;
}
