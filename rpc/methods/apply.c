/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of control/running.h on a real node. The argument of each is the struct rpc_ctx.
 */
#include <errno.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/log/log.h"
#include "rpc/methods/absent.h"
#include "rpc/methods/events.h"
#include "rpc/methods/methods_internal.h"

static int set_buffers(void *arg, const int totals[LNET_POOLS], struct err *err)
{
    const struct rpc_ctx *ctx = arg;

    return lnet_pools_resize(ctx->node, totals, err);
}

/* The running NI that a document's is; NULL: none. */
static struct lnet_ni *find_ni(const struct rpc_ctx *ctx, const struct cfg_ni *like)
{
    for (unsigned i = 0; i < lnet_ni_count(ctx->node); i++) {
        struct lnet_ni *ni = lnet_ni_at(ctx->node, i);

        if (!ni || ni->net != like->conf.net || relaxed_load(&ni->removed))
            continue;
        if (nid_is_any(&like->conf.nid) ? strcmp(ni->ifname, like->conf.ifname) == 0
                                        : nid_same(&ni->nid, &like->conf.nid))
            return ni;
    }
    return NULL;
}

struct adding {
    struct rpc_ctx *ctx;
    lnet_net_t net;
    cfg_done_fn done;
    void *arg;
};

static void added(void *arg, int rc, const char *err)
{
    struct adding a = *(struct adding *)arg;

    free(arg);
    if (rc == 0)
        rpc_absent_routes_back(a.ctx, a.net);
    a.done(a.arg, rc, err);
}

/* As it was before: a change is taken back. */
static int add_absent(struct rpc_ctx *ctx, const struct cfg_ni *ni, cfg_done_fn done,
                      void *done_arg, struct err *err)
{
    int rc = rpc_absent_add(ctx, &ni->conf, err->message);

    if (rc == 0)
        done(done_arg, 0, "");
    else
        err_text(err, "out of memory");
    return rc;
}

static int add_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err)
{
    struct rpc_ctx *ctx = arg;
    struct adding *a = malloc(sizeof(*a));
    int rc = -ENOMEM;

    if (a) {
        *a = (struct adding){ctx, ni->conf.net, done, done_arg};
        rc = lnet_ni_add_live(ctx->node, &ni->conf, added, a, err);
    } else {
        err_text(err, "out of memory");
    }
    if (rc != 0)
        free(a);
    if (rc != 0 && ni->conf.ifname[0] && !if_nametoindex(ni->conf.ifname)) {
        err_text(err, "there is no interface %s; `ip link` lists those there are", ni->conf.ifname);
        rc = -ENODEV;
    }
    if (ni->live.absent && rpc_absent_may(ni->conf.net, rc))
        rc = add_absent(ctx, ni, done, done_arg, err);
    return rc;
}

static int del_ni(void *arg, const struct cfg_ni *ni, cfg_done_fn done, void *done_arg,
                  struct err *err)
{
    struct rpc_ctx *ctx = arg;
    const struct lnet_ni *there = find_ni(ctx, ni);

    if (!there && rpc_absent_del(ctx, &ni->conf)) {
        done(done_arg, 0, "");
        return 0;
    }
    if (!there) {
        return err_set(err, -ENOENT, "there is no such NI");
    }
    return lnet_ni_del(ctx->node, &there->nid, done, done_arg, err);
}

static int set_ni(void *arg, const struct cfg_ni *ni, struct err *err)
{
    const struct rpc_ctx *ctx = arg;
    const struct lnet_ni *there = find_ni(ctx, ni);

    if (!there && rpc_absent_is(ctx, &ni->conf))
        return 0; /* it will have them when it comes */
    if (!there) {
        return err_set(err, -ENOENT, "there is no such NI");
    }
    return lnet_ni_set(ctx->node, &there->nid, &ni->conf.lnd_tun, err);
}

/* Those the node can have, into out; the others are left out, or were: that changes here, once the
 * node has changed (now). Their number. */
static unsigned possible(struct rpc_ctx *ctx, const struct lnet_route_conf *list, unsigned n,
                         struct lnet_route_conf *out, bool add, bool now)
{
    unsigned m = 0;

    for (unsigned i = 0; i < n; i++) {
        if (!rpc_absent_net(ctx, nid_net(&list[i].gateway)))
            out[m++] = list[i];
        else if (now && add)
            rpc_absent_route(ctx, &list[i]);
        else if (now)
            rpc_absent_route_del(ctx, &list[i]);
    }
    return m;
}

static int change_routes(void *arg, const struct lnet_route_conf *del, unsigned ndel,
                         const struct lnet_route_conf *add, unsigned nadd, struct err *err)
{
    struct rpc_ctx *ctx = arg;
    struct lnet_route_conf *some;
    int rc;

    if (!ctx->absent)
        return lnet_routes_change(ctx->node, del, ndel, add, nadd, NULL, err);
    some = calloc(ndel + nadd + 1, sizeof(*some));
    if (!some) {
        return err_set(err, -ENOMEM, "out of memory");
    }
    rc = lnet_routes_change(ctx->node, some, possible(ctx, del, ndel, some, false, false),
                            some + ndel, possible(ctx, add, nadd, some + ndel, true, false), NULL,
                            err);
    if (rc == 0) {
        possible(ctx, del, ndel, some, false, true);
        possible(ctx, add, nadd, some + ndel, true, true);
    }
    free(some);
    return rc;
}

static int set_timing(const struct rpc_ctx *ctx, const struct cfg *to, struct err *err)
{
    static const enum lnet_source_check checks[] = {
        [CFG_SOURCE_NET] = LNET_SOURCE_NET,
        [CFG_SOURCE_STRICT] = LNET_SOURCE_STRICT,
        [CFG_SOURCE_OFF] = LNET_SOURCE_OFF,
    };
    struct lnet_timing timing = {.check_interval = (unsigned)to->check_interval,
                                 .ping_timeout = (unsigned)to->ping_timeout,
                                 .source_check = checks[to->source_check]};

    return lnet_timing_set(ctx->node, &timing, err);
}

static void set_log(const struct cfg *to)
{
    for (int i = 0; i < CFG_LOG_MODULES; i++)
        log_level_set((enum log_module)i,
                      (enum log_level)(to->log_levels[i] >= 0 ? to->log_levels[i] : to->log_level));
}

static int set_part(void *arg, enum cfg_part part, const struct cfg *to, struct err *err)
{
    struct rpc_ctx *ctx = arg;
    struct lnet_admission admission = {.egress_share = (unsigned)to->egress_share,
                                       .buffer_wait = (unsigned)to->buffer_wait};

    switch (part) {
    case CFG_PART_ROUTING:
        return lnet_routing_set(ctx->node, to->routing, err);
    case CFG_PART_TIMING:
        return set_timing(ctx, to, err);
    case CFG_PART_ADMISSION:
        return lnet_admission_set(ctx->node, &admission, err);
    case CFG_PART_LOG:
        set_log(to);
        return 0;
    default:
        ctx->drain_s = (unsigned)to->drain;
        return 0;
    }
}

static void see_ni(void *arg, struct cfg_ni *ni)
{
    const struct rpc_ctx *ctx = arg;
    const struct lnet_ni *there = find_ni(ctx, ni);

    ni->live =
        (struct cfg_ni_live){.known = there, .absent = !there && rpc_absent_is(ctx, &ni->conf)};
    if (there) {
        ni->live.nid = there->nid;
        ni->live.tun = there->tun;
        ni->live.lnd_tun = there->lnd_tun;
    }
}

static void confirm_over(struct reactor_timer *timer)
{
    struct rpc_ctx *ctx = container_of(timer, struct rpc_ctx, confirm);

    cfg_running_expired(ctx->running);
}

static void set_timer(void *arg, unsigned seconds)
{
    struct rpc_ctx *ctx = arg;

    reactor_timer_cancel(&ctx->confirm);
    if (!seconds)
        return;
    ctx->confirm_us = reactor_now_us() + seconds * 1000000ull;
    reactor_timer_arm(&ctx->confirm, seconds * 1000000ull);
}

static unsigned timer_left(void *arg)
{
    const struct rpc_ctx *ctx = arg;
    uint64_t now = reactor_now_us();

    return now < ctx->confirm_us ? (unsigned)((ctx->confirm_us - now + 999999) / 1000000) : 0;
}

static void tell(void *arg, const char *type, const char *cause, const char *text)
{
    rpc_events_emit(arg, type, cause, text, NULL);
}

static const struct cfg_ops ops = {
    .buffers = set_buffers,
    .ni_add = add_ni,
    .ni_del = del_ni,
    .ni_set = set_ni,
    .routes = change_routes,
    .set = set_part,
    .live = see_ni,
    .timer = set_timer,
    .timer_left = timer_left,
    .changed = tell,
};

void rpc_running_start(struct rpc_ctx *ctx)
{
    reactor_timer_init(&ctx->confirm, confirm_over);
    cfg_running_started(ctx->running, &ops, ctx);
}
