/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of handlers, and the methods for the process. */
#include "lib/base/err.h"
#include "lib/base/version.h"
#include "rpc/methods/methods.h"

#include <errno.h>
#include <unistd.h>

#include "rpc/engine/rpc_openrpc.h"
#include "rpc/methods/methods_internal.h"

void rpc_version(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    jrpc_result(call,
                json_pack("{s:s, s:s, s:i, s:I}", "program", "millraced", "version",
                          MILLRACE_VERSION, "pid", (int)getpid(), "uptime",
                          (json_int_t)((reactor_now_us() - ctx->control->start_us) / 1000000)));
}

void rpc_describe(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_pack("{s:o}", "methods", jrpc_describe(jrpc_of(call))));
}

void rpc_discover(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, rpc_openrpc(jrpc_of(call)->methods));
}

void rpc_start(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct err err = {0};

    if (!ctx->control->start) {
        jrpc_fail(call, EALREADY, NULL, NULL, "this process does not wait to be started");
        return;
    }
    err.code = ctx->control->start(ctx->control, &err);
    if (err.code == 0)
        jrpc_result(call, json_true());
    else
        rpc_fail(call, &err, NULL, "change the configuration (config_apply) and try again");
}

void rpc_shutdown(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct controller *c = ctx->control;

    c->shutdown(c, args[0].given ? (unsigned)args[0].integer : c->drain_s);
    jrpc_result(call, json_true());
}

const jrpc_handler rpc_handlers[] = {
#define METHOD(id, text, ...)     rpc_##id,
#define LND_METHOD(id, text, ...) rpc_lnd_get,
#include "rpc/methods/methods.def"
#undef LND_METHOD
#undef METHOD
};
