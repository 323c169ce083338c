/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for nets, NIs and routes. Names and nesting: docs/protocol/lnet-core.md §10.2, §10.4. */
#include <errno.h>
#include <stdlib.h>

#include "rpc/rpc_internal.h"

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
    unsigned i;

    for (i = 0; i < LNET_MSG_TYPES; i++)
        all += count[i];
    return (json_int_t)all;
}

void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES])
{
    json_object_set_new(object, "statistics",
                        json_pack("{s:I, s:I, s:I}", "send_count", sum(sent), "recv_count",
                                  sum(received), "drop_count", sum(dropped)));
    json_object_set_new(object, "sent_stats", by_type(sent));
    json_object_set_new(object, "received_stats", by_type(received));
    json_object_set_new(object, "dropped_stats", by_type(dropped));
}

/* ---- nets ---- */

static json_t *ni_own(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct lnet_credits tx = {0};
    uint32_t waiting = 0;

    lnet_ni_credits_get(ctx->node, ni->index, &tx, &waiting);
    return json_pack("{s:i, s:i, s:i, s:I, s:I}", "max_tx_credits", tx.max, "available_tx_credits",
                     tx.now, "min_tx_credits", tx.min, "tx_waiting", (json_int_t)waiting,
                     "tx_waited", (json_int_t)tx.waited);
}

static json_t *ni_row(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct lnet_ni_stats stats = {0};
    json_t *row = json_object();
    bool down = __atomic_load_n(&ni->fatal, __ATOMIC_RELAXED) ||
                __atomic_load_n(&ni->status, __ATOMIC_RELAXED) == LNET_NI_DOWN;

    lnet_ni_stats_get(ctx->node, ni->index, &stats);
    json_object_set_new(row, "nid", rpc_nid(&ni->nid));
    json_object_set_new(row, "status", json_string(down ? "down" : "up"));
    if (ni->ifname[0])
        json_object_set_new(row, "interfaces", json_pack("{s:s}", "0", ni->ifname));
    rpc_add_counts(row, stats.sent, stats.received, stats.dropped);
    json_object_set_new(row, "tunables",
                        json_pack("{s:i, s:i, s:i, s:i}", "peer_timeout", ni->tun.peer_timeout,
                                  "peer_credits", ni->tun.peer_credits, "peer_buffer_credits",
                                  ni->tun.peer_buffer_credits, "credits", ni->tun.credits));
    json_object_set_new(row, "lnd tunables",
                        json_pack("{s:i, s:i, s:i}", "conns_per_peer", ni->lnd_tun.conns_per_peer,
                                  "timeout", ni->lnd_tun.timeout, "tos", ni->lnd_tun.tos));
    json_object_set_new(row, "millrace", ni_own(ctx, ni));
    return row;
}

/* Every node has 0@lo; nothing is sent through it. */
static json_t *lo_row(void)
{
    static const uint64_t none[LNET_MSG_TYPES];
    json_t *row = json_pack("{s:o, s:s}", "nid", rpc_nid(&LNET_NID_LO), "status", "up");

    rpc_add_counts(row, none, none, none);
    return row;
}

/* The list of NIs of a net in nets, made if it is new. */
static json_t *net_row(json_t *nets, lnet_net_t net)
{
    json_t *name = rpc_net(net), *row = NULL, *list = NULL;
    size_t i;

    for (i = 0; i < json_array_size(nets) && !list; i++) {
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
    unsigned i;

    if (only == LNET_NET_ANY || only == nid_net(&LNET_NID_LO))
        json_array_append_new(net_row(nets, nid_net(&LNET_NID_LO)), lo_row());
    for (i = 0; i < lnet_ni_count(ctx->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->node, i);

        if (!ni || __atomic_load_n(&ni->removed, __ATOMIC_RELAXED))
            continue;
        if (only == LNET_NET_ANY || only == ni->net)
            json_array_append_new(net_row(nets, ni->net), ni_row(ctx, ni));
    }
    if (json_array_size(nets) == 0) {
        json_decref(nets);
        jrpc_fail(call, ESRCH, "net", "net_get without parameters lists the nets there are",
                  "there is no local net %s", args[0].string);
        return;
    }
    jrpc_result(call, json_pack("{s:o}", "net", nets));
}

static void net_gone(void *arg)
{
    jrpc_result(arg, json_true());
}

void rpc_net_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    char err[RPC_ERR_SIZE] = "";
    int rc = lnet_net_del(ctx->node, args[0].net, net_gone, call, err, sizeof(err));

    if (rc != 0)
        jrpc_fail(call, -rc, "net",
                  rc == -ENOENT  ? "net_get lists the nets there are"
                  : rc == -EBUSY ? "try again when the other net_del has answered"
                                 : NULL,
                  "%s", err);
}

/* ---- routes ---- */

static json_t *route_row(const struct lnet_route_row *route)
{
    return json_pack("{s:o, s:o, s:i, s:I, s:s, s:s}", "net", rpc_net(route->conf.net), "gateway",
                     rpc_nid(&route->conf.gateway), "hop", route->conf.hops, "priority",
                     (json_int_t)route->conf.priority, "state", route->up ? "up" : "down", "type",
                     route->single_hop ? "single-hop" : "multi-hop");
}

void rpc_route_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned count = lnet_route_rows(ctx->node, NULL, 0), i;
    struct lnet_route_row *rows = calloc(count + 1, sizeof(*rows));
    json_t *list;

    if (!rows) {
        jrpc_result(call, NULL);
        return;
    }
    list = json_array();
    lnet_route_rows(ctx->node, rows, count);
    for (i = 0; i < count; i++) {
        if ((args[0].given && rows[i].conf.net != args[0].net) ||
            (args[1].given && !nid_same(&rows[i].conf.gateway, &args[1].nid)))
            continue;
        json_array_append_new(list, route_row(&rows[i]));
    }
    free(rows);
    jrpc_result(call, json_pack("{s:o}", "route", list));
}

/* The parameter an error of lnet_route_add() speaks of, §11 "Route add rules". */
static const char *route_parameter(int err)
{
    return err == EHOSTUNREACH ? "gateway" : err == EEXIST ? "net" : NULL;
}

static const char *route_remedy(int err)
{
    switch (err) {
    case EHOSTUNREACH:
        return "name a gateway on a net that net_get lists";
    case EEXIST:
        return "route_get lists the routes there are; a local net needs none";
    case ENOENT:
        return "route_get lists the routes there are";
    default:
        return NULL;
    }
}

void rpc_route_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct lnet_route_conf conf = {.net = args[0].net,
                                   .gateway = args[1].nid,
                                   .hops = LNET_HOPS_UNDEFINED,
                                   .priority = (unsigned)args[3].integer};
    char err[RPC_ERR_SIZE] = "";
    int rc;

    if (args[2].given) {
        conf.hops = (int)args[2].integer;
        if (conf.hops == 0) {
            jrpc_refuse(call, "hop", "give 1 to 255, or -1 for not stated", "hop is out of range");
            return;
        }
    }
    rc = lnet_route_add(ctx->node, &conf, err, sizeof(err));
    if (rc == 0)
        jrpc_result(call, json_true());
    else
        jrpc_fail(call, -rc, route_parameter(-rc), route_remedy(-rc), "%s", err);
}

void rpc_route_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    char err[RPC_ERR_SIZE] = "";
    int rc = lnet_route_del(ctx->node, args[0].net, &args[1].nid, err, sizeof(err));

    if (rc == 0)
        jrpc_result(call, json_true());
    else
        jrpc_fail(call, -rc, NULL, route_remedy(-rc), "%s", err);
}
