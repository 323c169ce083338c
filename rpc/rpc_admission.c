/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for router buffers and the rules by which messages get them. Words:
 * docs/protocol/lnet-core.md §10.4. */
#include <errno.h>

#include "rpc/rpc_internal.h"

/* ---- buffers ---- */

static const struct {
    const char *name;
    int npages; /* of 4 KiB, §4.9 */
} pools[LNET_POOLS] = {
    [LNET_POOL_TINY] = {"tiny", 0},
    [LNET_POOL_SMALL] = {"small", 1},
    [LNET_POOL_LARGE] = {"large", 256},
};

static json_t *pool_row(const struct lnet_pool_stats *s, int npages)
{
    return json_pack("{s:i, s:I, s:i, s:i, s:I, s:I}", "npages", npages, "nbuffers",
                     (json_int_t)s->total, "credits", s->free, "mincredits", s->low, "waiting",
                     (json_int_t)s->waiting, "waited", (json_int_t)s->waited);
}

static json_t *reactor_pools(const struct rpc_ctx *ctx, unsigned reactor)
{
    json_t *row = json_pack("{s:i, s:i}", "reactor", (int)reactor, "cpt",
                            (int)reactor_cpt(reactor_at(ctx->env, reactor)));
    int i;

    for (i = 0; i < LNET_POOLS; i++) {
        struct lnet_pool_stats s = {0};

        lnet_pool_stats_get(ctx->node, reactor, (enum lnet_pool)i, &s);
        json_object_set_new(row, pools[i].name, pool_row(&s, pools[i].npages));
    }
    return row;
}

static json_t *totals(const struct rpc_ctx *ctx)
{
    json_t *sums = json_object();
    unsigned r;
    int i;

    for (i = 0; i < LNET_POOLS; i++) {
        json_int_t total = 0;

        for (r = 0; r < reactor_count(ctx->env); r++) {
            struct lnet_pool_stats s = {0};

            lnet_pool_stats_get(ctx->node, r, (enum lnet_pool)i, &s);
            total += s.total;
        }
        json_object_set_new(sums, pools[i].name, json_integer(total));
    }
    return sums;
}

void rpc_buffers_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    json_t *list = json_array();
    unsigned i;

    for (i = 0; i < reactor_count(ctx->env); i++)
        json_array_append_new(list, reactor_pools(ctx, i));
    jrpc_result(call, json_pack("{s:i, s:o, s:o}", "enable", ctx->routing ? 1 : 0, "buffers",
                                totals(ctx), "reactors", list));
}

/* Asks each reactor in turn: mail stays in order, so by then it has taken the new numbers. */
struct resize_call {
    struct reactor_task task; /* first: callbacks get it */
    struct jrpc_call *call;
    unsigned reactor;
};

static void resize_back(struct reactor_task *task);

static void resize_there(struct reactor_task *task)
{
    task->fn = resize_back;
    reactor_post(reactor_control(reactor_env_of(reactor_self())), task);
}

static void resize_next(struct resize_call *r)
{
    const struct rpc_ctx *ctx = jrpc_ctx(r->call);

    r->task.fn = resize_there;
    reactor_post(reactor_at(ctx->env, r->reactor++), &r->task);
}

static void resize_back(struct reactor_task *task)
{
    struct resize_call *r = (struct resize_call *)task;
    const struct rpc_ctx *ctx = jrpc_ctx(r->call);

    if (r->reactor < reactor_count(ctx->env))
        resize_next(r);
    else
        jrpc_result(r->call, json_pack("{s:o}", "buffers", totals(ctx)));
}

void rpc_buffers_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct resize_call *r = jrpc_alloc(call, sizeof(*r));
    const char *blame = NULL;
    int want[LNET_POOLS], given = 0, i, rc;
    char err[RPC_ERR_SIZE] = "";

    for (i = 0; i < LNET_POOLS; i++) {
        want[i] = args[i].given ? (int)args[i].integer : -1;
        if (args[i].given) {
            blame = pools[i].name;
            given++;
        }
    }
    if (given == 0) {
        jrpc_refuse(call, NULL, "give one or more of tiny, small and large",
                    "nothing is to be set");
        return;
    }
    if (!r) {
        jrpc_result(call, NULL);
        return;
    }
    r->call = call;
    rc = lnet_pools_resize(ctx->node, want, err, sizeof(err));
    if (rc == 0)
        resize_next(r);
    else
        jrpc_fail(call, -rc, given == 1 ? blame : NULL,
                  rc == -ENOMEM
                      ? "give less, or raise `millrace: memory:` in the configuration and restart; "
                        "`millraced --check` shows what fits"
                      : NULL,
                  "%s", err);
}

/* ---- admission ---- */

static json_t *admission(const struct rpc_ctx *ctx)
{
    struct lnet_admission a = {0};

    lnet_admission_get(ctx->node, &a);
    return json_pack("{s:i, s:i}", "egress_share", (int)a.egress_share, "buffer_wait",
                     (int)a.buffer_wait);
}

void rpc_admission_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, admission(jrpc_ctx(call)));
}

void rpc_admission_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct lnet_admission set = {.egress_share = (unsigned)args[0].integer,
                                 .buffer_wait = (unsigned)args[1].integer};
    char err[RPC_ERR_SIZE] = "";
    int rc;

    if (!args[0].given && !args[1].given) {
        jrpc_refuse(call, NULL, "give egress_share or buffer_wait, or both",
                    "nothing is to be set");
        return;
    }
    rc = lnet_admission_set(ctx->node, &set, err, sizeof(err));
    if (rc == 0)
        jrpc_result(call, admission(ctx));
    else
        jrpc_fail(call, -rc, NULL, NULL, "%s", err);
}
