/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for the drain of the router. */
#include "control/controller.h"
#include "lib/base/err.h"
#include "rpc/methods/methods_internal.h"

static json_int_t seconds(uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (json_int_t)((to_us - from_us + 999999) / 1000000) : 0;
}

static const char *const texts[DRAIN_STATES] = {
    [DRAIN_OFF] = "the router is not drained",
    [DRAIN_DRAINING] = "the router is in use, or peers may choose it that do not know yet",
    [DRAIN_SAFE] = "nothing uses the router: it is safe to stop it",
    [DRAIN_LATE] = "the time limit has passed, and the router is in use, or may be",
};

static json_t *progress(const struct rpc_ctx *ctx)
{
    const struct drain *d = &ctx->control->drain.d;
    uint64_t now = reactor_now_us();
    json_t *row =
        json_pack("{s:s, s:s}", "state", drain_state_name(d->state), "text", texts[d->state]);

    if (d->state == DRAIN_OFF)
        return row;
    json_object_update_new(
        row,
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "elapsed_s",
                  (json_int_t)((now - d->begun_us) / 1000000), "limit_s", seconds(now, d->until_us),
                  "forwarded", (json_int_t)d->recent, "in_flight", (json_int_t)d->last.in_flight,
                  "unused_s", (json_int_t)((d->last.now_us - d->used_us) / 1000000), "peers",
                  (json_int_t)d->last.nodes, "told", (json_int_t)d->last.told, "check_s",
                  drain_is_unaware(d) ? seconds(now, d->begun_us + d->check_us) : 0));
    return row;
}

void rpc_drain_start(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct err err = {0};

    err.code = control_drain_begin(
        ctx->control, args[0].given ? (unsigned)args[0].integer : DRAIN_TIMEOUT_S, &err);
    if (err.code)
        rpc_fail(call, &err, NULL, NULL);
    else
        jrpc_result(call, progress(ctx));
}

void rpc_drain_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, progress(jrpc_ctx(call)));
}

void rpc_drain_undo(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct err err = {0};

    err.code = control_drain_undo(ctx->control, &err);
    if (err.code)
        rpc_fail(call, &err, NULL, NULL);
    else
        jrpc_result(call, json_true());
}
