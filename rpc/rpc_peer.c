/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods whose answer takes a while: peer_get asks every reactor, ping another node. */
#include <errno.h>
#include <string.h>

#include "rpc/rpc_internal.h"

/* ---- peers ---- */

struct peer_call {
    struct jrpc_call *call;
    bool filtered;
    struct lnet_nid nid;
    json_t *list;
};

static json_t *peer_own(const struct lnet_peer_row *peer)
{
    uint64_t now = reactor_now_us();
    json_t *own = json_pack(
        "{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I}", "reactor", (int)peer->reactor,
        "max_rtr_credits", peer->rtr.max, "tx_waiting", (json_int_t)peer->tx_waiting, "tx_waited",
        (json_int_t)peer->tx.waited, "rtr_waiting", (json_int_t)peer->rtr_waiting, "rtr_waited",
        (json_int_t)peer->rtr.waited, "tx_queued", (json_int_t)peer->tx_queued, "connecting",
        (int)peer->lnd.connecting, "bytes_in", (json_int_t)peer->lnd.bytes_in, "bytes_out",
        (json_int_t)peer->lnd.bytes_out);

    json_object_set_new(own, "connections",
                        json_pack("{s:i, s:i, s:i, s:i}", "any", (int)peer->lnd.conns[0], "control",
                                  (int)peer->lnd.conns[1], "bulk_in", (int)peer->lnd.conns[2],
                                  "bulk_out", (int)peer->lnd.conns[3]));
    if (peer->last_alive_us && peer->last_alive_us <= now)
        json_object_set_new(own, "alive_ms_ago",
                            json_integer((json_int_t)((now - peer->last_alive_us) / 1000)));
    return own;
}

/* docs/protocol/lnet-core.md §10.3, in its order; but what is negative stays so. Without discovery
 * every peer is known by one NID. */
static json_t *peer_row(const struct lnet_peer_row *peer)
{
    json_t *ni = json_pack(
        "{s:o, s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:I}", "nid", rpc_nid(&peer->nid), "state",
        peer->up ? "up" : "down", "max_ni_tx_credits", peer->tx.max, "available_tx_credits",
        peer->tx.now, "min_tx_credits", peer->tx.min, "tx_q_num_of_buf",
        (json_int_t)peer->tx_queued_bytes, "available_rtr_credits", peer->rtr.now,
        "min_rtr_credits", peer->rtr.min, "refcount", (json_int_t)peer->refs);

    rpc_add_counts(ni, peer->send_count, peer->recv_count, peer->drop_count);
    json_object_set_new(ni, "millrace", peer_own(peer));
    return json_pack("{s:o, s:b, s:[o]}", "primary nid", rpc_nid(&peer->nid), "Multi-Rail", 0,
                     "peer ni", ni);
}

static void peer_rows(void *arg, const struct lnet_peer_row *rows, unsigned n, bool last)
{
    struct peer_call *p = arg;
    char nid[LNET_NIDSTR_SIZE];
    unsigned i;

    for (i = 0; i < n; i++)
        if (!p->filtered || nid_same(&rows[i].nid, &p->nid))
            json_array_append_new(p->list, peer_row(&rows[i]));
    if (!last)
        return;
    if (p->filtered && json_array_size(p->list) == 0) {
        json_decref(p->list);
        jrpc_fail(p->call, ENOENT, "nid", "peer_get without parameters lists the peers there are",
                  "there is no peer %s", nid_format(&p->nid, nid));
        return;
    }
    jrpc_result(p->call, json_pack("{s:o}", "peer", p->list));
}

void rpc_peer_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct peer_call *p = jrpc_alloc(call, sizeof(*p));

    if (!p) {
        jrpc_result(call, NULL);
        return;
    }
    p->call = call;
    p->filtered = args[0].given;
    p->nid = args[0].nid;
    p->list = json_array();
    if (lnet_peer_rows(ctx->node, peer_rows, p) != 0) {
        json_decref(p->list);
        jrpc_result(call, NULL);
    }
}

/* ---- ping ---- */

static json_t *ping_row(const struct lnet_nid *nid, const struct lnet_ping_info *info)
{
    struct lnet_nid primary = *nid;
    json_t *list = json_array();
    uint32_t i;

    lnet_ping_primary(info, &primary);
    for (i = 0; i < info->count; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:s}", "nid", rpc_nid(&info->ni[i].nid), "status",
                                        info->ni[i].status == LNET_NI_UP ? "up" : "down"));
    return json_pack("{s:o, s:b, s:o, s:I, s:I, s:I}", "primary nid", rpc_nid(&primary),
                     "Multi-Rail", (info->features & LNET_PING_MULTI_RAIL) != 0, "peer_ni", list,
                     "features", (json_int_t)info->features, "pid", (json_int_t)info->pid, "seqno",
                     (json_int_t)info->seqno);
}

struct ping_call {
    struct jrpc_call *call;
    struct lnet_nid nid;
};

static void ping_fail(const struct ping_call *p, int err)
{
    char nid[LNET_NIDSTR_SIZE];

    jrpc_fail(p->call, err, "nid",
              err == EHOSTUNREACH ? "route_get shows the routes and whether their gateways are up"
                                  : "look at peer_get and drops_get, or wait longer (timeout_ms)",
              "failed to ping %s: %s", nid_format(&p->nid, nid), strerror(err));
}

static void ping_done(void *arg, int status, const struct lnet_ping_info *info)
{
    struct ping_call *p = arg;

    if (status != 0)
        ping_fail(p, -status);
    else
        jrpc_result(p->call, json_pack("{s:[o]}", "ping", ping_row(&p->nid, info)));
}

void rpc_ping(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct lnet_nid *source = args[1].given ? &args[1].nid : &LNET_NID_ANY;
    unsigned timeout_ms = args[2].given ? (unsigned)args[2].integer : 1000;
    struct ping_call *p;
    int rc;

    if (args[1].given && !lnet_nid_is_mine(ctx->node, source)) {
        jrpc_refuse(call, "source", "net_get lists this node's NIDs", "source %s is not ours",
                    args[1].string);
        return;
    }
    p = jrpc_alloc(call, sizeof(*p));
    if (!p) {
        jrpc_result(call, NULL);
        return;
    }
    p->call = call;
    p->nid = args[0].nid;
    rc = lnet_ping(ctx->node, &p->nid, source, timeout_ms, ping_done, p);
    if (rc != 0)
        ping_fail(p, -rc);
}
