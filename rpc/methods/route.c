/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for routes. Names: docs/protocol/lnet-core.md §10.4. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "rpc/methods/methods_internal.h"

static json_t *route_row(const struct lnet_route_row *route)
{
    return json_pack("{s:o, s:o, s:i, s:I, s:s, s:s, s:{s:i}}", "net", rpc_net(route->conf.net),
                     "gateway", rpc_nid(&route->conf.gateway), "hop", route->conf.hops, "priority",
                     (json_int_t)route->conf.priority, "state", route->up ? "up" : "down", "type",
                     route->single_hop ? "single-hop" : "multi-hop", "millrace", "gateway_health",
                     route->health);
}

/* The order of route_get: by net, then by gateway. The order does not depend on other routes, so a
 * page can begin behind a removed route. */
static int compare_routes(const void *a, const void *b)
{
    const struct lnet_route_conf *x = &((const struct lnet_route_row *)a)->conf;
    const struct lnet_route_conf *y = &((const struct lnet_route_row *)b)->conf;

    if (x->net != y->net)
        return x->net < y->net ? -1 : 1;
    return memcmp(&x->gateway, &y->gateway, sizeof(x->gateway));
}

/* A cursor is net and gateway of the last route shown. */
static json_t *route_cursor(const struct lnet_route_row *last)
{
    char net[LNET_NETSTR_SIZE], nid[LNET_NIDSTR_SIZE];

    return json_sprintf("%s %s", net_format(last->conf.net, net),
                        nid_format(&last->conf.gateway, nid));
}

static bool read_cursor(const char *text, struct lnet_route_row *out)
{
    char copy[LNET_NETSTR_SIZE + LNET_NIDSTR_SIZE + 2], *space;

    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        return false;
    space = strchr(copy, ' ');
    if (!space)
        return false;
    *space = '\0';
    *out = (struct lnet_route_row){0};
    return net_parse(copy, &out->conf.net) == 0 && nid_parse(space + 1, &out->conf.gateway) == 0;
}

static bool route_wanted(const struct lnet_route_row *row, const struct jrpc_arg *args)
{
    return (!args[0].given || row->conf.net == args[0].net) &&
           (!args[1].given || nid_same(&row->conf.gateway, &args[1].nid)) &&
           (!args[2].given || row->conf.hops == args[2].integer) &&
           (!args[3].given || row->conf.priority == args[3].integer);
}

/* Adds the rows of a page; the cursor of the next, NULL when it is the last. */
static json_t *route_page(json_t *list, const struct lnet_route_row *rows, unsigned count,
                          const struct lnet_route_row *behind, const struct jrpc_arg *args)
{
    size_t limit = args[5].given ? (size_t)args[5].integer : RPC_PAGE;
    const struct lnet_route_row *last = NULL;

    for (unsigned i = 0; i < count; i++) {
        if ((behind && compare_routes(&rows[i], behind) <= 0) || !route_wanted(&rows[i], args))
            continue;
        if (json_array_size(list) == limit)
            return route_cursor(last);
        json_array_append_new(list, route_row(&rows[i]));
        last = &rows[i];
    }
    return NULL;
}

void rpc_route_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned count = lnet_route_rows(ctx->control->node, NULL, 0);
    struct lnet_route_row *rows, behind;
    json_t *list, *cursor;

    if (args[4].given && !read_cursor(args[4].string, &behind)) {
        rpc_refuse_cursor(call);
        return;
    }
    rows = calloc(count + 1, sizeof(*rows));
    if (!rows) {
        jrpc_result(call, NULL);
        return;
    }
    lnet_route_rows(ctx->control->node, rows, count);
    qsort(rows, count, sizeof(*rows), compare_routes);
    list = json_array();
    cursor = route_page(list, rows, count, args[4].given ? &behind : NULL, args);
    free(rows);
    jrpc_result(call, json_pack("{s:o, s:o*}", "route", list, "cursor", cursor));
}

/* ---- changes ---- */

void rpc_route_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_route route = {.conf = {.net = args[0].net,
                                       .gateway = args[1].nid,
                                       .hops = LNET_HOPS_UNDEFINED,
                                       .priority = (unsigned)args[3].integer}};
    struct cfg *cfg;

    if (args[2].given && args[2].integer == 0) {
        jrpc_refuse(call, "hop", "give 1 to 255, or -1 for not stated", "hop is out of range");
        return;
    }
    if (args[2].given)
        route.conf.hops = (int)args[2].integer;
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    if (nid_net(&route.conf.gateway) != route.conf.net &&
        (cfg_find_route(cfg, route.conf.net, &route.conf.gateway) ||
         cfg_has_net(cfg, route.conf.net))) {
        jrpc_fail(call, EEXIST, "net",
                  "route_get lists the routes there are; a local net needs none",
                  cfg_has_net(cfg, route.conf.net) ? "net %s is local"
                                                   : "there is a route to %s "
                                                     "through this gateway",
                  args[0].string);
    } else if (!cfg_has_net(cfg, nid_net(&route.conf.gateway))) {
        jrpc_fail(call, EHOSTUNREACH, "gateway", "name a gateway on a net that net_get lists",
                  "gateway %s is on no local net", args[1].string);
    } else if (!cfg_append(cfg, CFG_ROUTES, &route)) {
        jrpc_result(call, NULL);
    } else {
        rpc_commit(call, cfg, rpc_changed, call);
    }
}

void rpc_route_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = rpc_edit(call);
    struct cfg_route *route = cfg ? cfg_find_route(cfg, args[0].net, &args[1].nid) : NULL;

    if (route) {
        cfg_take(cfg, CFG_ROUTES, route);
        rpc_commit(call, cfg, rpc_changed, call);
    } else if (cfg) {
        jrpc_fail(call, ENOENT, "gateway", "route_get lists the routes there are",
                  "there is no route to %s through %s", args[0].string, args[1].string);
    }
}
