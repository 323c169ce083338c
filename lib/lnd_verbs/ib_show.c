/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows about devices, counters, connections and peers: lib/lnd/show.h. */
#include <arpa/inet.h>

#include "lib/lnd_verbs/ib_type.h"
#include "lib/lnd_verbs/lnd_verbs.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct lnd_field limits[] = {
    LND_NUMBER(rdma_info, max_qp),  LND_NUMBER(rdma_info, max_qp_wr),
    LND_NUMBER(rdma_info, max_sge), LND_NUMBER(rdma_info, max_cqe),
    LND_NUMBER(rdma_info, max_mr),  LND_NUMBER(rdma_info, max_mr_size),
};

static const struct lnd_field counters[] = {
#define COUNTER(name, text) LND_NUMBER(verbs_counters, name),
#include "lib/lnd_verbs/ib_counters.def"
#undef COUNTER
};

static const struct lnd_field conn[] = {
    LND_NUMBER(verbs_conn_row, reactor),      LND_FLAG(verbs_conn_row, active),
    LND_NUMBER(verbs_conn_row, depth),        LND_NUMBER(verbs_conn_row, frags),
    LND_NUMBER(verbs_conn_row, credits),      LND_NUMBER(verbs_conn_row, owed),
    LND_NUMBER(verbs_conn_row, reserved),     LND_NUMBER(verbs_conn_row, sends),
    LND_NUMBER(verbs_conn_row, noops),        LND_NUMBER(verbs_conn_row, queued),
    LND_NUMBER(verbs_conn_row, waiting),      LND_NUMBER(verbs_conn_row, send_wrs),
    LND_NUMBER(verbs_conn_row, inline_bytes), LND_NUMBER(verbs_conn_row, retries),
    LND_NUMBER(verbs_conn_row, age_us),       LND_NUMBER(verbs_conn_row, idle_us),
    LND_NUMBER(verbs_conn_row, bytes_in),     LND_NUMBER(verbs_conn_row, bytes_out),
};

static const struct lnd_field peer[] = {
    LND_NUMBER(verbs_peer_row, reactor),  LND_NUMBER(verbs_peer_row, conns),
    LND_NUMBER(verbs_peer_row, retries),  LND_NUMBER(verbs_peer_row, depth_max),
    LND_NUMBER(verbs_peer_row, again_us),
};

static const struct lnd_field provider[] = {
    LND_NUMBER(rdma_counters, areas),          LND_NUMBER(rdma_counters, areas_reserved),
    LND_NUMBER(rdma_counters, registered),     LND_NUMBER(rdma_counters, kept),
    LND_NUMBER(rdma_counters, turned_away),    LND_NUMBER(rdma_counters, worker_jobs),
    LND_NUMBER(rdma_counters, worker_busy_us), LND_NUMBER(rdma_counters, worker_longest_us),
};

static const char *port_state(enum ibv_port_state state)
{
    static const char *const names[] = {
        [IBV_PORT_NOP] = "removed", /* the device does not answer */
        [IBV_PORT_DOWN] = "down",
        [IBV_PORT_INIT] = "init",
        [IBV_PORT_ARMED] = "armed",
        [IBV_PORT_ACTIVE] = "active",
        [IBV_PORT_ACTIVE_DEFER] = "deferred",
    };

    return (unsigned)state < COUNT(names) ? names[state] : "unknown";
}

static void show_ni(const struct lnet_ni *ni, struct lnd_sink *to)
{
    struct rdma_info info = {.device = ""};
    char gid[INET6_ADDRSTRLEN] = "";

    lnd_verbs_info(ni, &info);
    if (info.max_mr_size > INT64_MAX) /* some devices report all bits: there is no limit */
        info.max_mr_size = INT64_MAX;
    inet_ntop(AF_INET6, info.gid.raw, gid, sizeof(gid));
    to->text(to, "device", info.device);
    to->number(to, "port", info.port);
    to->text(to, "transport", info.transport);
    to->text(to, "link_layer", info.link_layer);
    to->text(to, "firmware", info.firmware);
    to->number(to, "vendor", info.vendor);
    to->number(to, "part", info.part);
    to->text(to, "state", port_state(info.state));
    to->text(to, "gid", gid);
    to->number(to, "gid_index", info.gid_index);
    to->number(to, "lid", info.lid);
    to->number(to, "pkey", info.pkey);
    to->number(to, "mtu", info.mtu);
    to->number(to, "speed", info.speed);
    to->text(to, "remote_keys", ib_keys_words[info.remote_keys]);
    to->open(to, "limits");
    lnd_show_fields(to, &info, limits, COUNT(limits));
    to->end(to);
}

static void show_counters(const struct lnet_ni *ni, struct lnd_sink *to)
{
    struct verbs_counters sum = {0};

    lnd_verbs_counters(ni, &sum);
    lnd_show_fields(to, &sum, counters, COUNT(counters));
}

static void show_failure(const struct verbs_peer_row *p, struct lnd_sink *to)
{
    to->open(to, "failure");
    to->text(to, "drop", lnet_drop_info(p->failed)->name);
    to->number(to, "age_ms", (int64_t)(p->failed_age_us / 1000));
    if (p->why.stage)
        to->text(to, "stage", p->why.stage);
    if (p->why.why)
        to->text(to, "why", p->why.why);
    if (p->why.code)
        to->number(to, "code", p->why.code);
    to->end(to);
}

static void show_rows(const void *arg, struct lnd_sink *to)
{
    const struct verbs_rows *rows = arg;

    to->number(to, "total", rows->total);
    to->list(to, "connections");
    for (unsigned i = 0; i < rows->nconns; i++) {
        to->open(to, NULL);
        to->nid(to, "peer", &rows->conns[i].peer);
        to->text(to, "state", rows->conns[i].state);
        lnd_show_fields(to, &rows->conns[i], conn, COUNT(conn));
        to->end(to);
    }
    to->end(to);
    to->number(to, "peers_total", rows->peers_total);
    to->list(to, "peers");
    for (unsigned i = 0; i < rows->npeers; i++) {
        to->open(to, NULL);
        to->nid(to, "peer", &rows->peers[i].peer);
        to->text(to, "state", rows->peers[i].state);
        lnd_show_fields(to, &rows->peers[i], peer, COUNT(peer));
        if (rows->peers[i].failed != LNET_DROP_NONE)
            show_failure(&rows->peers[i], to);
        to->end(to);
    }
    to->end(to);
}

static bool show_memory(const void *ctx, struct lnd_sink *to)
{
    struct rdma_counters sum = {0};

    if (!lnd_verbs_provider(ctx, &sum))
        return false;
    lnd_show_fields(to, &sum, provider, COUNT(provider));
    return true;
}

const struct lnd_show lnd_verbs_show = {
    .ni = show_ni,
    .counters = show_counters,
    .conns = lnd_verbs_conns,
    .conn_rows = show_rows,
    .memory = show_memory,
};
