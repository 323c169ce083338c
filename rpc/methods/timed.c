/* SPDX-License-Identifier: BSD-3-Clause */
#include "rpc/methods/timed.h"
#include "lib/base/container.h"

#include <errno.h>

static void fired(struct reactor_timer *timer)
{
    struct rpc_timed *t = container_of(timer, struct rpc_timed, timer);

    t->over(t, false);
}

/* Cancels the waiting calls whose client has gone, or all of them. */
static void cancel(struct rpc_ctx *ctx, bool all)
{
    struct rpc_timed *next;

    for (struct rpc_timed *t = LIST_FIRST(&ctx->timed); t; t = next) {
        next = LIST_NEXT(t, link);
        if (!reactor_timer_armed(&t->timer) || (!all && jrpc_session_of(t->call)))
            continue;
        reactor_timer_cancel(&t->timer);
        t->over(t, true);
    }
}

bool rpc_timed_begin(struct rpc_timed *t, struct jrpc_call *call,
                     void (*over)(struct rpc_timed *t, bool cancelled))
{
    struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned all = 0, user = 0, here = 0;
    const struct rpc_timed *i;

    cancel(ctx, false);
    LIST_FOREACH(i, &ctx->timed, link) {
        all++;
        user += jrpc_uid_of(i->call) == jrpc_uid_of(call);
        here += jrpc_session_of(i->call) == jrpc_session_of(call);
    }
    if (all + user >= RPC_TIMED_MAX || here >= RPC_TIMED_MAX_SESSION) {
        jrpc_fail(call, EBUSY, NULL, "try again when one of them has ended",
                  "too many calls that take time: at most %d of one client, %d of all, and of one "
                  "user no more than are free",
                  RPC_TIMED_MAX_SESSION, RPC_TIMED_MAX);
        return false;
    }
    t->call = call;
    t->ctx = ctx;
    t->over = over;
    reactor_timer_init(&t->timer, fired);
    LIST_INSERT_HEAD(&ctx->timed, t, link);
    return true;
}

void rpc_timed_wait(struct rpc_timed *t, unsigned ms)
{
    reactor_timer_arm(&t->timer, (uint64_t)ms * 1000);
}

void rpc_timed_end(struct rpc_timed *t)
{
    LIST_REMOVE(t, link);
}

void rpc_timed_stop(struct rpc_ctx *ctx)
{
    cancel(ctx, true);
}
