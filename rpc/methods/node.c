/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for nets, NIs and routes. Names and nesting: docs/protocol/lnet-core.md §10.2, §10.4. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/absent.h"
#include "rpc/methods/methods_internal.h"

json_t *rpc_nid(const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    return json_string(nid_format(nid, text));
}

json_t *rpc_net(lnet_net_t net)
{
    char text[LNET_NETSTR_SIZE];

    return json_string(net_format(net, text));
}

static json_t *by_type(const uint64_t count[LNET_MSG_TYPES])
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "put", (json_int_t)count[LNET_MSG_PUT], "get",
                     (json_int_t)count[LNET_MSG_GET], "reply", (json_int_t)count[LNET_MSG_REPLY],
                     "ack", (json_int_t)count[LNET_MSG_ACK], "hello",
                     (json_int_t)count[LNET_MSG_HELLO]);
}

static json_int_t sum(const uint64_t count[LNET_MSG_TYPES])
{
    uint64_t all = 0;

    for (unsigned i = 0; i < LNET_MSG_TYPES; i++)
        all += count[i];
    return (json_int_t)all;
}

static void add_sums(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                     const uint64_t received[LNET_MSG_TYPES],
                     const uint64_t dropped[LNET_MSG_TYPES])
{
    json_object_set_new(object, "statistics",
                        json_pack("{s:I, s:I, s:I}", "send_count", sum(sent), "recv_count",
                                  sum(received), "drop_count", sum(dropped)));
}

static void add_types(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                      const uint64_t received[LNET_MSG_TYPES],
                      const uint64_t dropped[LNET_MSG_TYPES])
{
    json_object_set_new(object, "sent_stats", by_type(sent));
    json_object_set_new(object, "received_stats", by_type(received));
    json_object_set_new(object, "dropped_stats", by_type(dropped));
}

void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES])
{
    add_sums(object, sent, received, dropped);
    add_types(object, sent, received, dropped);
}

json_t *rpc_udsp(void)
{
    return json_pack("{s:i, s:i}", "net priority", -1, "nid priority", -1);
}

/* ---- nets ---- */

static json_t *ni_own(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct lnet_credits tx = {0};
    uint32_t waiting = 0;

    lnet_ni_credits_get(ctx->control->node, ni->index, &tx, &waiting);
    return json_pack("{s:i, s:i, s:i, s:I, s:I}", "max_tx_credits", tx.max, "available_tx_credits",
                     tx.now, "min_tx_credits", tx.min, "tx_waiting", (json_int_t)waiting,
                     "tx_waited", (json_int_t)tx.waited);
}

/* "[0,1]": the CPTs whose reactors serve NIs. */
static json_t *cpts(const struct rpc_ctx *ctx)
{
    char text[256] = "[";
    unsigned n = reactor_count(ctx->control->env), j;
    size_t used = 1;

    for (unsigned i = 0; i < n && used < sizeof(text) - 16; i++) {
        unsigned cpt = reactor_cpt(reactor_at(ctx->control->env, i));

        for (j = 0; j < i && reactor_cpt(reactor_at(ctx->control->env, j)) != cpt; j++)
            ;
        if (j == i)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", used > 1 ? "," : "",
                                     cpt);
    }
    snprintf(text + used, sizeof(text) - used, "]");
    return json_string(text);
}

/* Health is not kept: but for the state of the link this is what an NI that is well has. */
static json_t *ni_health(bool fatal, int value)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "fatal_error",
                     fatal ? 1 : 0, "health value", value, "interrupts", 0, "dropped", 0, "aborted",
                     0, "no route", 0, "timeouts", 0, "error", 0, "ping_count", 0, "next_ping", 0);
}

static json_t *ni_tunables(const struct lnet_tunables *tun)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "peer_timeout", tun->peer_timeout, "peer_credits",
                     tun->peer_credits, "peer_buffer_credits", tun->peer_buffer_credits, "credits",
                     tun->credits);
}

static void add_given(json_t *object, const char *key, int value)
{
    if (value != -1)
        json_object_set_new(object, key, json_integer(value));
}

/* In the order of lnetctl; what is only kept, as it is configured. */
static json_t *lnd_tunables(lnet_net_t net, const struct lnd_tunables *tun, const struct cfg_ni *ni)
{
    json_t *map = json_object();

    if (net >> 16 == LNET_LND_O2IB) {
        add_given(map, "peercredits_hiw", tun->peercredits_hiw);
        if (ni && ni->kept.map_on_demand != -1)
            json_object_set_new(map, "map_on_demand", json_boolean(ni->kept.map_on_demand));
        add_given(map, "concurrent_sends", tun->concurrent_sends);
        add_given(map, "fmr_pool_size", ni ? ni->kept.fmr_pool_size : -1);
        add_given(map, "fmr_flush_trigger", ni ? ni->kept.fmr_flush_trigger : -1);
        add_given(map, "fmr_cache", ni ? ni->kept.fmr_cache : -1);
        add_given(map, "ntx", ni ? ni->kept.ntx : -1);
    }
    json_object_set_new(map, "conns_per_peer", json_integer(tun->conns_per_peer));
    json_object_set_new(map, "timeout", json_integer(tun->timeout));
    json_object_set_new(map, "tos", json_integer(tun->tos));
    return map;
}

/* What the document has of an NI; NULL: nothing. */
static const struct cfg_ni *document_ni(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    const struct cfg *cfg = rpc_document(ctx);
    unsigned i;

    for (i = 0; cfg && i < cfg->ni_count; i++) {
        const struct cfg_ni *of = &cfg->ni[i];

        if (of->conf.net == ni->net && of->live.known && nid_same(&of->live.nid, &ni->nid))
            return of;
    }
    return NULL;
}

/* docs/protocol/lnet-core.md §10.2, in its order. */
static json_t *ni_row(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct lnet_ni_stats stats = {0};
    json_t *row = json_object();
    bool fatal = relaxed_load(&ni->fatal);
    bool down = fatal || relaxed_load(&ni->status) == LNET_NI_DOWN;

    lnet_ni_stats_get(ctx->control->node, ni->index, &stats);
    json_object_set_new(row, "nid", rpc_nid(&ni->nid));
    json_object_set_new(row, "status", json_string(down ? "down" : "up"));
    if (ni->ifname[0])
        json_object_set_new(row, "interfaces", json_pack("{s:s}", "0", ni->ifname));
    add_sums(row, stats.sent, stats.received, stats.dropped);
    json_object_set_new(row, "udsp info", rpc_udsp());
    add_types(row, stats.sent, stats.received, stats.dropped);
    json_object_set_new(row, "health stats", ni_health(fatal, 1000));
    json_object_set_new(row, "tunables", ni_tunables(&ni->tun));
    json_object_set_new(row, "lnd tunables",
                        lnd_tunables(ni->net, &ni->lnd_tun, document_ni(ctx, ni)));
    json_object_set_new(row, "dev cpt", json_integer(-1));
    json_object_set_new(row, "CPT", cpts(ctx));
    json_object_set_new(row, "millrace", ni_own(ctx, ni));
    return row;
}

/* Every node has 0@lo; nothing is sent through it. */
static json_t *lo_row(const struct rpc_ctx *ctx)
{
    static const uint64_t none[LNET_MSG_TYPES];
    static const struct lnet_tunables no_tunables;
    json_t *row = json_pack("{s:o, s:s}", "nid", rpc_nid(&LNET_NID_LO), "status", "up");

    add_sums(row, none, none, none);
    json_object_set_new(row, "udsp info", rpc_udsp());
    add_types(row, none, none, none);
    json_object_set_new(row, "health stats", ni_health(false, 0));
    json_object_set_new(row, "tunables", ni_tunables(&no_tunables));
    json_object_set_new(row, "dev cpt", json_integer(0));
    json_object_set_new(row, "CPT", cpts(ctx));
    return row;
}

/* An NI of the document that the node runs without. */
static json_t *absent_row(const struct rpc_ctx *ctx, const struct lnet_ni_conf *conf,
                          const char *why)
{
    static const uint64_t none[LNET_MSG_TYPES];
    json_t *row = json_object();

    if (!nid_is_any(&conf->nid))
        json_object_set_new(row, "nid", rpc_nid(&conf->nid));
    json_object_set_new(row, "status", json_string("down"));
    json_object_set_new(row, "reason", json_string(why));
    if (conf->ifname[0])
        json_object_set_new(row, "interfaces", json_pack("{s:s}", "0", conf->ifname));
    add_sums(row, none, none, none);
    json_object_set_new(row, "udsp info", rpc_udsp());
    add_types(row, none, none, none);
    json_object_set_new(row, "health stats", ni_health(true, 0));
    json_object_set_new(row, "tunables", ni_tunables(&conf->tun));
    json_object_set_new(row, "lnd tunables", lnd_tunables(conf->net, &conf->lnd_tun, NULL));
    json_object_set_new(row, "dev cpt", json_integer(-1));
    json_object_set_new(row, "CPT", cpts(ctx));
    return row;
}

/* The list of NIs of a net in nets, made if it is new. */
static json_t *net_row(json_t *nets, lnet_net_t net)
{
    json_t *name = rpc_net(net), *row = NULL, *list = NULL;

    for (size_t i = 0; i < json_array_size(nets) && !list; i++) {
        row = json_array_get(nets, i);
        if (json_equal(json_object_get(row, "net type"), name))
            list = json_object_get(row, "local NI(s)");
    }
    if (!list) {
        list = json_array();
        row = json_object();
        json_object_set(row, "net type", name);
        json_object_set_new(row, "local NI(s)", list);
        json_array_append_new(nets, row);
    }
    json_decref(name);
    return list;
}

void rpc_net_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    lnet_net_t only = args[0].given ? args[0].net : LNET_NET_ANY;
    json_t *nets = json_array();
    const struct lnet_ni_conf *absent;
    const char *why;

    if (only == LNET_NET_ANY || only == nid_net(&LNET_NID_LO))
        json_array_append_new(net_row(nets, nid_net(&LNET_NID_LO)), lo_row(ctx));
    for (unsigned i = 0; i < lnet_ni_count(ctx->control->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->control->node, i);

        if (!ni || relaxed_load(&ni->removed) || relaxed_load(&ni->starting))
            continue;
        if (only == LNET_NET_ANY || only == ni->net)
            json_array_append_new(net_row(nets, ni->net), ni_row(ctx, ni));
    }
    for (unsigned i = 0; (absent = control_absent_at(ctx->control, i, &why)); i++)
        if (only == LNET_NET_ANY || only == absent->net)
            json_array_append_new(net_row(nets, absent->net), absent_row(ctx, absent, why));
    if (json_array_size(nets) == 0) {
        json_decref(nets);
        jrpc_fail(call, ESRCH, "net", "net_get without parameters lists the nets there are",
                  "there is no local net %s", args[0].string);
        return;
    }
    jrpc_result(call, json_pack("{s:o}", "net", nets));
}

/* ---- routes ---- */

static json_t *route_row(const struct lnet_route_row *route)
{
    return json_pack("{s:o, s:o, s:i, s:I, s:s, s:s}", "net", rpc_net(route->conf.net), "gateway",
                     rpc_nid(&route->conf.gateway), "hop", route->conf.hops, "priority",
                     (json_int_t)route->conf.priority, "state", route->up ? "up" : "down", "type",
                     route->single_hop ? "single-hop" : "multi-hop");
}

/* The order of route_get: by net, then by gateway. It does not depend on what else there is, so
 * that a page can begin behind a route that is gone. */
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
