/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for counters: of the node, drop reasons. */
#include "rpc/methods/methods_internal.h"

void rpc_stats_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    uint64_t stat[LNET_STAT_COUNT] = {0};
    json_t *result = json_object();

    lnet_stats_get(ctx->control->node, stat);
    for (int i = 0; i < LNET_STAT_COUNT; i++)
        json_object_set_new(result, lnet_stat_name((enum lnet_stat)i),
                            json_integer((json_int_t)stat[i]));
    jrpc_result(call, result);
}

void rpc_stats_reset(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    lnet_stats_reset(ctx->control->node);
    for (unsigned i = 0; i < reactor_count(ctx->control->env); i++)
        reactor_stats_restart(reactor_at(ctx->control->env, i));
    reactor_stats_restart(reactor_control(ctx->control->env));
    jrpc_result(call, json_true());
}

/* ---- drops ---- */

void rpc_add_why(json_t *row, const struct lnet_drop_why *why)
{
    json_object_update_new(row,
                           json_pack("{s:s*, s:s*, s:o*}", "stage", why->stage, "why", why->why,
                                     "code", why->code ? json_integer(why->code) : NULL));
}

static json_t *drop_example(const struct rpc_ctx *ctx, const struct lnet_drop_example *example)
{
    json_t *row =
        json_pack("{s:I}", "age_ms", (json_int_t)((reactor_now_us() - example->when_us) / 1000));
    const struct lnet_ni *ni;

    if (example->has_peer)
        json_object_set_new(row, "peer", rpc_nid(&example->peer));
    if (example->has_hdr) {
        json_object_set_new(row, "src", rpc_nid(&example->src));
        json_object_set_new(row, "dest", rpc_nid(&example->dest));
        json_object_set_new(row, "type", json_string(lnet_msg_type_name(example->type)));
        json_object_set_new(row, "payload_length", json_integer(example->payload_len));
    }
    rpc_add_why(row, &example->why);
    ni = example->ni >= 0 ? lnet_ni_at(ctx->control->node, (unsigned)example->ni) : NULL;
    if (ni)
        json_object_set_new(row, "ni", rpc_nid(&ni->nid));
    return row;
}

static json_t *drop_row(const struct rpc_ctx *ctx, enum lnet_drop reason, uint64_t count,
                        bool explain)
{
    const struct lnet_drop_info *info = lnet_drop_info(reason);
    struct lnet_drop_example example = {.seen = false};
    json_t *row = json_pack("{s:s, s:s, s:I, s:s, s:s*}", "name", info->name, "kind",
                            lnet_drop_kind_name(info->kind), "count", (json_int_t)count, "text",
                            info->text, "remedy", explain ? info->remedy : NULL);

    lnet_drop_example_get(ctx->control->node, reason, &example);
    if (example.seen)
        json_object_set_new(row, "example", drop_example(ctx, &example));
    return row;
}

void rpc_drops_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    uint64_t count[LNET_DROP_COUNT] = {0};
    json_t *list = json_array();

    lnet_drops_get(ctx->control->node, count);
    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        json_array_append_new(list, drop_row(ctx, d, count[d], args[0].boolean));
    jrpc_result(call, json_pack("{s:o}", "drops", list));
}
