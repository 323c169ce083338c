/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_get: NIs of o2ib nets, their devices and connections. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "control/absent.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "rpc/methods/port.h"

#define CONNS_DEFAULT 256

struct verbs_call {
    struct jrpc_call *call;
    const struct rpc_ctx *ctx;
    lnet_net_t net; /* ANY: all */
    bool has_nid, conns;
    struct lnet_nid nid;
    unsigned max;
    json_t *list;
    unsigned index; /* of the NI whose connections are being gathered */
};

/* ---- one NI ---- */

static const struct rpc_number limit_numbers[] = {
    RPC_NUMBER(rdma_info, max_qp),  RPC_NUMBER(rdma_info, max_qp_wr),
    RPC_NUMBER(rdma_info, max_sge), RPC_NUMBER(rdma_info, max_cqe),
    RPC_NUMBER(rdma_info, max_mr),  RPC_NUMBER(rdma_info, max_mr_size),
};

const struct rpc_number rpc_verbs_numbers[] = {
    RPC_NUMBER(verbs_counters, conns),          RPC_NUMBER(verbs_counters, dialled),
    RPC_NUMBER(verbs_counters, accepted),       RPC_NUMBER(verbs_counters, refused),
    RPC_NUMBER(verbs_counters, closed),         RPC_NUMBER(verbs_counters, retried),
    RPC_NUMBER(verbs_counters, failed),         RPC_NUMBER(verbs_counters, immediates_in),
    RPC_NUMBER(verbs_counters, immediates_out), RPC_NUMBER(verbs_counters, puts_in),
    RPC_NUMBER(verbs_counters, puts_out),       RPC_NUMBER(verbs_counters, noops_in),
    RPC_NUMBER(verbs_counters, noops_out),      RPC_NUMBER(verbs_counters, naks_in),
    RPC_NUMBER(verbs_counters, naks_out),       RPC_NUMBER(verbs_counters, writes),
    RPC_NUMBER(verbs_counters, bytes_in),       RPC_NUMBER(verbs_counters, bytes_out),
    RPC_NUMBER(verbs_counters, copied_in),      RPC_NUMBER(verbs_counters, copied_out),
    RPC_NUMBER(verbs_counters, credit_waits),   RPC_NUMBER(verbs_counters, send_waits),
    RPC_NUMBER(verbs_counters, reserve_waits),  RPC_NUMBER(verbs_counters, polls),
    RPC_NUMBER(verbs_counters, completions),    RPC_NUMBER(verbs_counters, posts),
    RPC_NUMBER(verbs_counters, requests),       {NULL},
};
#define COUNTERS (RTE_DIM(rpc_verbs_numbers) - 1)
_Static_assert(sizeof(struct verbs_counters) == COUNTERS * sizeof(uint64_t),
               "all of them are shown");

static const struct rpc_number conn_numbers[] = {
    RPC_NUMBER(verbs_conn_row, reactor),      RPC_FLAG(verbs_conn_row, active),
    RPC_NUMBER(verbs_conn_row, depth),        RPC_NUMBER(verbs_conn_row, frags),
    RPC_NUMBER(verbs_conn_row, credits),      RPC_NUMBER(verbs_conn_row, owed),
    RPC_NUMBER(verbs_conn_row, reserved),     RPC_NUMBER(verbs_conn_row, sends),
    RPC_NUMBER(verbs_conn_row, noops),        RPC_NUMBER(verbs_conn_row, queued),
    RPC_NUMBER(verbs_conn_row, waiting),      RPC_NUMBER(verbs_conn_row, send_wrs),
    RPC_NUMBER(verbs_conn_row, inline_bytes), RPC_NUMBER(verbs_conn_row, retries),
    RPC_NUMBER(verbs_conn_row, age_us),       RPC_NUMBER(verbs_conn_row, idle_us),
    RPC_NUMBER(verbs_conn_row, bytes_in),     RPC_NUMBER(verbs_conn_row, bytes_out),
};

static const struct rpc_number peer_numbers[] = {
    RPC_NUMBER(verbs_peer_row, reactor),  RPC_NUMBER(verbs_peer_row, conns),
    RPC_NUMBER(verbs_peer_row, retries),  RPC_NUMBER(verbs_peer_row, depth_max),
    RPC_NUMBER(verbs_peer_row, again_us),
};

static const struct rpc_number memory_numbers[] = {
    RPC_NUMBER(rdma_counters, areas),          RPC_NUMBER(rdma_counters, areas_reserved),
    RPC_NUMBER(rdma_counters, registered),     RPC_NUMBER(rdma_counters, kept),
    RPC_NUMBER(rdma_counters, turned_away),    RPC_NUMBER(rdma_counters, worker_jobs),
    RPC_NUMBER(rdma_counters, worker_busy_us), RPC_NUMBER(rdma_counters, worker_longest_us),
};

static const char *port_state(enum ibv_port_state state)
{
    switch (state) {
    case IBV_PORT_NOP: /* it cannot be asked */
        return "removed";
    case IBV_PORT_DOWN:
        return "down";
    case IBV_PORT_INIT:
        return "init";
    case IBV_PORT_ARMED:
        return "armed";
    case IBV_PORT_ACTIVE:
        return "active";
    case IBV_PORT_ACTIVE_DEFER:
        return "deferred";
    default:
        return "unknown";
    }
}

static json_t *numbers(const void *from, const struct rpc_number *row, size_t rows)
{
    json_t *map = json_object();

    rpc_add_numbers(map, from, row, rows);
    return map;
}

static json_t *device_row(const struct rpc_ctx *ctx, const struct lnet_ni *ni)
{
    struct verbs_counters counters = {0};
    struct rdma_info info = {.device = ""};
    char gid[INET6_ADDRSTRLEN] = "";
    json_t *row = json_object();

    ctx->control->verbs->info(ni, &info);
    ctx->control->verbs->counters(ni, &counters);
    if (info.max_mr_size > INT64_MAX) /* some say all bits: as large as there is */
        info.max_mr_size = INT64_MAX;
    inet_ntop(AF_INET6, info.gid.raw, gid, sizeof(gid));
    json_object_set_new(row, "nid", rpc_nid(&ni->nid));
    if (ni->ifname[0])
        json_object_set_new(row, "interface", json_string(ni->ifname));
    json_object_update_new(
        row, json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:i, s:i, s:i, s:i, s:i}",
                       "device", info.device, "port", info.port, "transport", info.transport,
                       "link_layer", info.link_layer, "firmware", info.firmware, "vendor",
                       (json_int_t)info.vendor, "part", (json_int_t)info.part, "state",
                       port_state(info.state), "gid", gid, "gid_index", (int)info.gid_index, "lid",
                       (int)info.lid, "pkey", (int)info.pkey, "mtu", (int)info.mtu, "speed",
                       (int)info.speed));
    json_object_set_new(row, "limits", numbers(&info, limit_numbers, RTE_DIM(limit_numbers)));
    json_object_set_new(row, "counters", numbers(&counters, rpc_verbs_numbers, COUNTERS));
    return row;
}

/* ---- the answer ---- */

static bool wanted(const struct verbs_call *v, lnet_net_t net, const struct lnet_nid *nid)
{
    return net >> 16 == LNET_LND_O2IB && (v->net == LNET_NET_ANY || v->net == net) &&
           (!v->has_nid || nid_same(&v->nid, nid));
}

static json_t *absent_list(const struct verbs_call *v)
{
    const struct lnet_ni_conf *conf;
    json_t *list = json_array();
    const char *why;

    for (unsigned i = 0; (conf = control_absent_at(v->ctx->control, i, &why)); i++) {
        json_t *row;

        if (!wanted(v, conf->net, &conf->nid))
            continue;
        row = json_pack("{s:o}", "net", rpc_net(conf->net));
        if (!nid_is_any(&conf->nid))
            json_object_set_new(row, "nid", rpc_nid(&conf->nid));
        if (conf->ifname[0])
            json_object_set_new(row, "interface", json_string(conf->ifname));
        json_object_set_new(row, "reason", json_string(why));
        json_array_append_new(list, row);
    }
    return list;
}

static void finish(struct verbs_call *v)
{
    struct rdma_counters memory = {0};
    json_t *absent = absent_list(v), *result;

    if (v->has_nid && !json_array_size(v->list) && !json_array_size(absent)) {
        json_decref(v->list);
        json_decref(absent);
        jrpc_fail(v->call, ENOENT, "nid", "verbs_get without parameters lists the NIs there are",
                  "there is no such NI on an o2ib net");
        return;
    }
    result = json_pack("{s:o, s:o}", "verbs", v->list, "absent", absent);
    if (v->ctx->control->verbs &&
        v->ctx->control->verbs->memory(v->ctx->control->verbs_arg, &memory))
        json_object_set_new(result, "memory",
                            numbers(&memory, memory_numbers, RTE_DIM(memory_numbers)));
    jrpc_result(v->call, result);
}

static void next_ni(struct verbs_call *v);

static json_t *conn_list(const struct verbs_rows *rows)
{
    json_t *list = json_array();
    unsigned i;

    for (i = 0; i < rows->nconns; i++) {
        const struct verbs_conn_row *c = &rows->conns[i];
        json_t *row = json_pack("{s:o, s:s}", "peer", rpc_nid(&c->peer), "state", c->state);

        rpc_add_numbers(row, c, conn_numbers, RTE_DIM(conn_numbers));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *failure(const struct verbs_peer_row *p)
{
    json_t *row = json_pack("{s:s, s:I}", "drop", lnet_drop_info(p->failed)->name, "age_ms",
                            (json_int_t)(p->failed_age_us / 1000));

    rpc_add_why(row, &p->why);
    return row;
}

static json_t *peer_list(const struct verbs_rows *rows)
{
    json_t *list = json_array();
    unsigned i;

    for (i = 0; i < rows->npeers; i++) {
        const struct verbs_peer_row *p = &rows->peers[i];
        json_t *row = json_pack("{s:o, s:s}", "peer", rpc_nid(&p->peer), "state", p->state);

        rpc_add_numbers(row, p, peer_numbers, RTE_DIM(peer_numbers));
        if (p->failed != LNET_DROP_NONE)
            json_object_set_new(row, "failure", failure(p));
        json_array_append_new(list, row);
    }
    return list;
}

static void add_conns(void *arg, const struct verbs_rows *rows)
{
    struct verbs_call *v = arg;
    json_t *ni = json_array_get(v->list, json_array_size(v->list) - 1);

    json_object_set_new(ni, "total", json_integer(rows->total));
    json_object_set_new(ni, "connections", conn_list(rows));
    json_object_set_new(ni, "peers_total", json_integer(rows->peers_total));
    json_object_set_new(ni, "peers", peer_list(rows));
    next_ni(v);
}

/* From v->index on: NIs in their order, each with its connections before the next one. */
static void next_ni(struct verbs_call *v)
{
    while (v->ctx->control->verbs && v->index < lnet_ni_count(v->ctx->control->node)) {
        struct lnet_ni *ni = lnet_ni_at(v->ctx->control->node, v->index++);

        if (!ni || relaxed_load(&ni->removed) || !wanted(v, ni->net, &ni->nid))
            continue;
        json_array_append_new(v->list, device_row(v->ctx, ni));
        if (!v->conns)
            continue;
        if (v->ctx->control->verbs->conns(ni, v->max, add_conns, v) == 0)
            return; /* add_conns() goes on */
        json_decref(v->list);
        jrpc_result(v->call, NULL);
        return;
    }
    finish(v);
}

void rpc_verbs_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct verbs_call *v = jrpc_alloc(call, sizeof(*v));

    if (!v) {
        jrpc_result(call, NULL);
        return;
    }
    *v = (struct verbs_call){
        .call = call,
        .ctx = jrpc_ctx(call),
        .net = args[0].given ? args[0].net : LNET_NET_ANY,
        .has_nid = args[1].given,
        .nid = args[1].given ? args[1].nid : LNET_NID_ANY,
        .conns = args[2].given && args[2].boolean,
        .max = args[3].given ? (unsigned)args[3].integer : CONNS_DEFAULT,
        .list = json_array(),
    };
    next_ni(v);
}
