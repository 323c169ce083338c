/* SPDX-License-Identifier: BSD-3-Clause */
/* health_get: the health of NIs, and the peer NIs that are not healthy. */
#include <stdlib.h>
#include <string.h>

#include "rpc/methods/methods_internal.h"

/* The members recovering, ping_count and next_ping_ms of an NI or a peer NI. */
static void add_pings(json_t *row, bool recovering, unsigned pings, uint64_t next_us)
{
    uint64_t now = reactor_now_us();

    json_object_update_new(
        row, json_pack("{s:b, s:i}", "recovering", recovering, "ping_count", (int)pings));
    if (next_us)
        json_object_set_new(row, "next_ping_ms",
                            json_integer(next_us > now ? (json_int_t)((next_us - now) / 1000) : 0));
}

/* ---- NIs ---- */

static json_t *ni_failures(const uint64_t n[LNET_HEALTH_COUNT])
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "local_interrupt",
                     (json_int_t)n[LNET_HEALTH_LOCAL_INTERRUPT], "local_dropped",
                     (json_int_t)n[LNET_HEALTH_LOCAL_DROPPED], "local_aborted",
                     (json_int_t)n[LNET_HEALTH_LOCAL_ABORTED], "local_no_route",
                     (json_int_t)n[LNET_HEALTH_LOCAL_NO_ROUTE], "local_timeout",
                     (json_int_t)n[LNET_HEALTH_LOCAL_TIMEOUT], "local_error",
                     (json_int_t)n[LNET_HEALTH_LOCAL_ERROR]);
}

static json_t *ni_row(const struct lnet_node *node, const struct lnet_ni *ni, int health,
                      bool recovering)
{
    bool down = relaxed_load(&ni->fatal) || relaxed_load(&ni->status) == LNET_NI_DOWN;
    struct lnet_ni_stats stats;
    json_t *row;

    lnet_ni_stats_get(node, ni->index, &stats);
    row = json_pack("{s:o, s:o, s:s, s:i}", "net", rpc_net(ni->net), "nid", rpc_nid(&ni->nid),
                    "status", down ? "down" : "up", "health", health);
    add_pings(row, recovering, relaxed_load(&ni->ping_count), relaxed_load(&ni->next_ping_us));
    json_object_set_new(row, "failures", ni_failures(stats.health));
    return row;
}

static json_t *nis(const struct lnet_node *node, json_t *rows)
{
    int total = 0, unhealthy = 0, recovering = 0;

    for (unsigned i = 0; i < lnet_ni_count(node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(node, i);
        bool pinged = ni && relaxed_load(&ni->recovering);
        int health = ni ? relaxed_load(&ni->health) : 0;

        if (!ni)
            continue;
        total++;
        unhealthy += health != LNET_MAX_HEALTH;
        recovering += pinged;
        json_array_append_new(rows, ni_row(node, ni, health, pinged));
    }
    return json_pack("{s:i, s:i, s:i}", "total", total, "unhealthy", unhealthy, "recovering",
                     recovering);
}

/* ---- peer NIs ---- */

static json_t *peer_row(const struct lnet_unhealthy_peer *p)
{
    json_t *row = json_pack("{s:o, s:b, s:i}", "nid", rpc_nid(&p->nid), "gateway", p->gateway,
                            "health", (int)p->health);
    const uint64_t *n = p->count;

    add_pings(row, p->recovering, p->ping_count, p->next_ping_us);
    json_object_set_new(row, "failures",
                        json_pack("{s:I, s:I, s:I, s:I}", "remote_dropped",
                                  (json_int_t)n[LNET_PEER_DROPPED], "remote_timeout",
                                  (json_int_t)n[LNET_PEER_TIMEOUT], "remote_error",
                                  (json_int_t)n[LNET_PEER_ERROR], "network_timeout",
                                  (json_int_t)n[LNET_PEER_NETWORK_TIMEOUT]));
    return row;
}

/* The worst first, then by NID: the queues change their order. */
static int by_health(const void *a, const void *b)
{
    const struct lnet_unhealthy_peer *x = a, *y = b;

    if (x->health != y->health)
        return x->health < y->health ? -1 : 1;
    return memcmp(&x->nid, &y->nid, sizeof(x->nid));
}

static void answer(void *arg, const struct lnet_unhealthy *list)
{
    const struct rpc_ctx *ctx = jrpc_ctx(arg);
    struct lnet_unhealthy_peer row[LNET_UNHEALTHY_MAX];
    json_t *peers = json_array(), *rows = json_array();

    memcpy(row, list->row, list->n * sizeof(row[0]));
    qsort(row, list->n, sizeof(row[0]), by_health);
    for (unsigned i = 0; i < list->n; i++)
        json_array_append_new(peers, peer_row(&row[i]));
    jrpc_result(arg, json_pack("{s:o, s:{s:I, s:I}, s:o, s:o}", "nis",
                               nis(ctx->control->node, rows), "peer_nis", "unhealthy",
                               (json_int_t)list->recovering + list->unpinged, "recovering",
                               (json_int_t)list->recovering, "ni", rows, "peer_ni", peers));
}

void rpc_health_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);

    if (lnet_unhealthy_get(ctx->control->node, answer, call) != 0)
        jrpc_result(call, NULL);
}
