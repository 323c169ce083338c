/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for routing, router buffers and the rules by which messages get buffers. Words:
 * docs/protocol/lnet-core.md §10.4. */

#include "config/settings.h"
#include "rpc/methods/methods_internal.h"

/* ---- routing on and off ---- */

void rpc_routing_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static const char *const names[] = {
        [LNET_ROUTING_OFF] = "off",
        [LNET_ROUTING_ON] = "on",
        [LNET_ROUTING_STOPPING] = "stopping",
        [LNET_ROUTING_STARTING] = "starting",
    };
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    enum lnet_routing routing = lnet_routing_get(ctx->control->node);

    jrpc_result(call, json_pack("{s:i, s:s, s:b}", "enable", (int)routing, "state", names[routing],
                                "draining", ctx->control->drain.d.state != DRAIN_OFF));
}

void rpc_routing_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = rpc_edit(call);

    if (!cfg)
        return;
    cfg->routing = (int)args[0].integer;
    rpc_commit(call, cfg, rpc_changed, call);
}

/* ---- buffers ---- */

static const int pool_pages[LNET_POOLS] = {0, 1, 256}; /* of 4 KiB, §4.9 */

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
        json_object_set_new(row, rpc_pool_names[i], pool_row(&s, pool_pages[i]));
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
        json_object_set_new(sums, rpc_pool_names[i], json_integer(total));
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

/* Sends a message to each reactor in turn. Messages stay in order, so each reactor has the new
 * numbers by then. */
struct resize_call {
    struct reactor_task task; /* first: callbacks get it */
    struct jrpc_call *call;
    unsigned reactor;
    const char *blame; /* the only parameter that was given; NULL: there were several */
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

static void buffers_changed(void *arg, const struct cfg_outcome *outcome)
{
    struct resize_call *r = arg;

    if (outcome->rc == 0)
        resize_next(r);
    else
        rpc_change_failed(r->call, outcome, r->blame);
}

void rpc_buffers_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = rpc_edit(call);
    struct resize_call *r = cfg ? jrpc_alloc(call, sizeof(*r)) : NULL;
    unsigned given = 0;

    if (!r)
        return;
    r->call = call;
    for (unsigned i = 0; i < LNET_POOLS; i++)
        if (args[i].given)
            r->blame = given++ ? NULL : rpc_pool_names[i];
    cfg->tiny = args[0].given ? (int)args[0].integer : cfg->tiny;
    cfg->small = args[1].given ? (int)args[1].integer : cfg->small;
    cfg->large = args[2].given ? (int)args[2].integer : cfg->large;
    if (given)
        rpc_commit(call, cfg, buffers_changed, r);
    else
        jrpc_refuse(call, NULL, "give one or more of tiny, small and large",
                    "nothing is to be set");
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

void rpc_access_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    static const char *const kinds[] = {"connect", "forward", "limit"};
    static struct lnet_access_row rows[LNET_ACCESS_RULES]; /* of the control thread */
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned n = lnet_access_rows(ctx->control->node, rows, LNET_ACCESS_RULES);
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:I}", "name", rows[i].name, "kind",
                                        kinds[rows[i].kind], "refused", (json_int_t)rows[i].refused,
                                        "waited", (json_int_t)rows[i].waited));
    jrpc_result(call, json_pack("{s:o}", "rules", list));
}

static void admission_changed(void *arg, const struct cfg_outcome *outcome)
{
    if (outcome->rc == 0)
        jrpc_result(arg, admission(jrpc_ctx(arg)));
    else
        rpc_change_failed(arg, outcome, NULL);
}

void rpc_admission_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg;

    if (!args[0].given && !args[1].given) {
        jrpc_refuse(call, NULL, "give egress_share or buffer_wait, or both",
                    "nothing is to be set");
        return;
    }
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    cfg->egress_share = args[0].given ? (int)args[0].integer : cfg->egress_share;
    cfg->buffer_wait = args[1].given ? (int)args[1].integer : cfg->buffer_wait;
    rpc_commit(call, cfg, admission_changed, call);
}
