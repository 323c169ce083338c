/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for router buffers and the rules by which messages get them. Words:
 * docs/protocol/lnet-core.md §10.4. */
#include <errno.h>

#include "rpc/methods/methods_internal.h"

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

/* Memory of what was received on ports. */
static json_t *segments_row(const struct lnet_segment_stats *s)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "total", (json_int_t)s->total,
                     "used", (json_int_t)(s->total - s->free), "low", (json_int_t)s->low, "held",
                     (json_int_t)s->held, "waiting", (json_int_t)s->waiting, "waited",
                     (json_int_t)s->waited, "grants_waiting", (json_int_t)s->grants_waiting,
                     "payload_copies", (json_int_t)s->payload_copies, "payload_copy_bytes",
                     (json_int_t)s->payload_copy_bytes);
}

static json_t *reactor_pools(const struct rpc_ctx *ctx, unsigned reactor)
{
    json_t *row = json_pack("{s:i, s:i}", "reactor", (int)reactor, "cpt",
                            (int)reactor_cpt(reactor_at(ctx->control->env, reactor)));
    struct lnet_segment_stats segments = {0};

    for (int i = 0; i < LNET_POOLS; i++) {
        struct lnet_pool_stats s = {0};

        lnet_pool_stats_get(ctx->control->node, reactor, (enum lnet_pool)i, &s);
        json_object_set_new(row, pools[i].name, pool_row(&s, pools[i].npages));
    }
    lnet_segment_stats_get(ctx->control->node, reactor, &segments);
    if (segments.total)
        json_object_set_new(row, "segments", segments_row(&segments));
    return row;
}

static json_t *totals(const struct rpc_ctx *ctx)
{
    json_t *sums = json_object();

    for (int i = 0; i < LNET_POOLS; i++) {
        json_int_t total = 0;

        for (unsigned r = 0; r < reactor_count(ctx->control->env); r++) {
            struct lnet_pool_stats s = {0};

            lnet_pool_stats_get(ctx->control->node, r, (enum lnet_pool)i, &s);
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

    for (unsigned i = 0; i < reactor_count(ctx->control->env); i++)
        json_array_append_new(list, reactor_pools(ctx, i));
    jrpc_result(call,
                json_pack("{s:i, s:o, s:o}", "enable", (int)lnet_routing_get(ctx->control->node),
                          "buffers", totals(ctx), "reactors", list));
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
    reactor_post(reactor_at(ctx->control->env, r->reactor++), &r->task);
}

static void resize_back(struct reactor_task *task)
{
    struct resize_call *r = (struct resize_call *)task;
    const struct rpc_ctx *ctx = jrpc_ctx(r->call);

    if (r->reactor < reactor_count(ctx->control->env))
        resize_next(r);
    else
        jrpc_result(r->call, json_pack("{s:o}", "buffers", totals(ctx)));
}

void rpc_buffers_answer(struct jrpc_call *call)
{
    struct resize_call *r = jrpc_alloc(call, sizeof(*r));

    if (!r) {
        jrpc_result(call, NULL);
        return;
    }
    r->call = call;
    resize_next(r);
}

/* ---- admission ---- */

static json_t *admission(const struct rpc_ctx *ctx)
{
    struct lnet_admission a = {0};

    lnet_admission_get(ctx->control->node, &a);
    return json_pack("{s:i, s:i}", "egress_share", (int)a.egress_share, "buffer_wait",
                     (int)a.buffer_wait);
}

void rpc_admission_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, admission(jrpc_ctx(call)));
}

void rpc_admission_answer(struct jrpc_call *call)
{
    jrpc_result(call, admission(jrpc_ctx(call)));
}
