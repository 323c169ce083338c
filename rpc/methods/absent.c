/* SPDX-License-Identifier: BSD-3-Clause */
/* See rpc_absent.h. Both lists are short and seldom looked at. */
#include "rpc/methods/absent.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log/log.h"
#include "rpc/methods/events.h"
#include "rpc/methods/methods_internal.h"

struct absent_ni {
    struct lnet_ni_conf conf;
    char why[RPC_ERR_SIZE];
};

struct rpc_absent {
    struct absent_ni *ni;
    unsigned nis;
    struct lnet_route_conf *route;
    unsigned routes;
};

bool rpc_absent_may(lnet_net_t net, int rc)
{
    return net >> 16 == LNET_LND_O2IB && (rc == -ENODEV || rc == -EADDRNOTAVAIL);
}

static struct rpc_absent *lists(struct rpc_ctx *ctx)
{
    if (!ctx->absent)
        ctx->absent = calloc(1, sizeof(*ctx->absent));
    return ctx->absent;
}

/* ---- NIs ---- */

static bool same(const struct lnet_ni_conf *x, const struct lnet_ni_conf *y)
{
    return x->net == y->net && nid_same(&x->nid, &y->nid) && strcmp(x->ifname, y->ifname) == 0;
}

static unsigned find(const struct rpc_ctx *ctx, const struct lnet_ni_conf *conf)
{
    unsigned i = 0;

    while (ctx->absent && i < ctx->absent->nis && !same(&ctx->absent->ni[i].conf, conf))
        i++;
    return i;
}

bool rpc_absent_is(const struct rpc_ctx *ctx, const struct lnet_ni_conf *conf)
{
    return ctx->absent && find(ctx, conf) < ctx->absent->nis;
}

const struct lnet_ni_conf *rpc_absent_at(const struct rpc_ctx *ctx, unsigned index,
                                         const char **why)
{
    if (!ctx->absent || index >= ctx->absent->nis)
        return NULL;
    *why = ctx->absent->ni[index].why;
    return &ctx->absent->ni[index].conf;
}

static void tell(struct rpc_ctx *ctx, const struct lnet_ni_conf *conf, const char *why)
{
    json_t *more = json_pack("{s:o}", "net", rpc_net(conf->net));

    if (!nid_is_any(&conf->nid))
        json_object_set_new(more, "nid", rpc_nid(&conf->nid));
    if (conf->ifname[0])
        json_object_set_new(more, "interface", json_string(conf->ifname));
    rpc_events_emit(ctx, "ni_absent", "no device", why, more);
}

int rpc_absent_add(struct rpc_ctx *ctx, const struct lnet_ni_conf *conf, const char *why)
{
    struct rpc_absent *a = lists(ctx);
    struct absent_ni *grown = a ? realloc(a->ni, (a->nis + 1) * sizeof(*grown)) : NULL;

    if (!grown)
        return -ENOMEM;
    a->ni = grown;
    a->ni[a->nis].conf = *conf;
    snprintf(a->ni[a->nis].why, sizeof(a->ni[a->nis].why), "%s", why);
    a->nis++;
    tell(ctx, conf, why);
    return 0;
}

bool rpc_absent_del(struct rpc_ctx *ctx, const struct lnet_ni_conf *conf)
{
    struct rpc_absent *a = ctx->absent;
    unsigned i = find(ctx, conf);

    if (!a || i == a->nis)
        return false;
    memmove(&a->ni[i], &a->ni[i + 1], (--a->nis - i) * sizeof(*a->ni));
    return true;
}

static bool has_ni(const struct rpc_ctx *ctx, lnet_net_t net)
{
    for (unsigned i = 0; i < lnet_ni_count(ctx->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->node, i);

        if (ni && ni->net == net && !relaxed_load(&ni->removed))
            return true;
    }
    return false;
}

bool rpc_absent_net(const struct rpc_ctx *ctx, lnet_net_t net)
{
    for (unsigned i = 0; ctx->absent && i < ctx->absent->nis; i++)
        if (ctx->absent->ni[i].conf.net == net)
            return !has_ni(ctx, net);
    return false;
}

/* ---- routes ---- */

static bool same_route(const struct lnet_route_conf *x, const struct lnet_route_conf *y)
{
    return x->net == y->net && nid_same(&x->gateway, &y->gateway);
}

int rpc_absent_route(struct rpc_ctx *ctx, const struct lnet_route_conf *route)
{
    struct rpc_absent *a = lists(ctx);
    struct lnet_route_conf *grown = a ? realloc(a->route, (a->routes + 1) * sizeof(*grown)) : NULL;

    if (!grown)
        return -ENOMEM;
    a->route = grown;
    a->route[a->routes++] = *route;
    return 0;
}

static void take_route(struct rpc_absent *a, unsigned i)
{
    memmove(&a->route[i], &a->route[i + 1], (--a->routes - i) * sizeof(*a->route));
}

bool rpc_absent_route_del(struct rpc_ctx *ctx, const struct lnet_route_conf *route)
{
    struct rpc_absent *a = ctx->absent;

    for (unsigned i = 0; a && i < a->routes; i++)
        if (same_route(&a->route[i], route)) {
            take_route(a, i);
            return true;
        }
    return false;
}

void rpc_absent_routes_back(struct rpc_ctx *ctx, lnet_net_t net)
{
    struct rpc_absent *a = ctx->absent;
    struct err err = {0};
    unsigned i = 0;

    while (a && i < a->routes) {
        if (nid_net(&a->route[i].gateway) != net) {
            i++;
            continue;
        }
        if (lnet_route_add(ctx->node, &a->route[i], &err) != 0)
            log_event(LOG_LEVEL_WARNING, LOG_MODULE_LNET, "route", LOG_S("msg", err.message));
        take_route(a, i);
    }
}

void rpc_absent_clear(struct rpc_ctx *ctx)
{
    if (!ctx->absent)
        return;
    free(ctx->absent->ni);
    free(ctx->absent->route);
    free(ctx->absent);
    ctx->absent = NULL;
}
