/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_get: peers of the node, with the counters of their peer NIs. peer_change.c has the methods
 * that change peers. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "rpc/methods/methods_internal.h"

#define FULL_PAGE 250 /* rows that are not brief; a page shall not hold the control thread up */

struct peer_call {
    struct jrpc_call *call;
    struct lnet_nid nid; /* of one peer */
    bool brief;
    /* a page that waits for its turn: */
    struct lnet_peer_cursor from;
    unsigned limit;
    uint64_t turn;
    struct peer_call *next;
};

static json_t *peer_own(const struct lnet_peer_ni_row *peer)
{
    const struct lnd_peer_info *lnd = &peer->lnd;

    return json_pack(
        "{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:{s:i, s:i, s:i, s:i}, s:o*}",
        "reactor", (int)peer->reactor, "max_rtr_credits", peer->rtr.max, "tx_waiting",
        (json_int_t)peer->tx_waiting, "tx_waited", (json_int_t)peer->tx.waited, "rtr_waiting",
        (json_int_t)peer->rtr_waiting, "rtr_waited", (json_int_t)peer->rtr.waited, "tx_queued",
        (json_int_t)peer->tx_queued, "connecting", (int)peer->lnd.connecting, "bytes_in",
        (json_int_t)peer->lnd.bytes_in, "bytes_out", (json_int_t)lnd->bytes_out, "connections",
        "any", (int)lnd->conns[0], "control", (int)lnd->conns[1], "bulk_in", (int)lnd->conns[2],
        "bulk_out", (int)lnd->conns[3], "alive_ms_ago", rpc_ms_ago(peer->last_alive_us));
}

static json_t *peer_health(const struct lnet_peer_row *row)
{
    const uint64_t *n = row->ni.health_count;

    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:i, s:I}", "health value", row->health, "dropped",
                     (json_int_t)n[LNET_PEER_DROPPED], "timeout", (json_int_t)n[LNET_PEER_TIMEOUT],
                     "error", (json_int_t)n[LNET_PEER_ERROR], "network timeout",
                     (json_int_t)n[LNET_PEER_NETWORK_TIMEOUT], "ping_count",
                     (int)row->ni.ping_count, "next_ping",
                     (json_int_t)(row->ni.next_ping_us / 1000000));
}

/* The status word of the peer's ping info comes first, then the connection. */
static const char *peer_ni_state(const struct lnet_peer_row *row)
{
    if (row->status == LNET_NI_DOWN)
        return "down";
    if (row->known)
        return row->ni.up ? "up" : "down";
    return row->status == LNET_NI_UP ? "up" : "NA";
}

/* docs/protocol/lnet-core.md §10.3, in its order; but what is negative stays so. */
static json_t *peer_ni(const struct rpc_ctx *ctx, const struct lnet_peer_row *row, bool brief)
{
    const struct lnet_peer_ni_row *peer = &row->ni;
    const char *state = peer_ni_state(row);
    json_t *ni;

    if (brief)
        return json_pack("{s:o, s:s}", "nid", rpc_nid(&row->nid), "state", state);
    ni = json_pack("{s:o, s:o, s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:I}", "nid", rpc_nid(&row->nid),
                   "udsp info", rpc_udsp(ctx, &row->nid, false), "state", state,
                   "max_ni_tx_credits", peer->tx.max, "available_tx_credits", peer->tx.now,
                   "min_tx_credits", peer->tx.min, "tx_q_num_of_buf",
                   (json_int_t)peer->tx_queued_bytes, "available_rtr_credits", peer->rtr.now,
                   "min_rtr_credits", peer->rtr.min, "refcount", (json_int_t)peer->refs);
    rpc_add_counts(ni, peer->send_count, peer->recv_count, peer->drop_count);
    json_object_set_new(ni, "health stats", peer_health(row));
    json_object_set_new(ni, "millrace", peer_own(peer));
    return ni;
}

static json_t *peer_rows(const struct rpc_ctx *ctx, const struct lnet_peer_row *rows, unsigned n,
                         bool brief)
{
    json_t *list = json_array(), *nis = NULL;

    for (unsigned i = 0; i < n; i++) {
        const struct lnet_peer_row *row = &rows[i];

        if (i == 0 || !nid_same(&row->primary, &row[-1].primary)) {
            json_t *peer = json_pack("{s:o, s:b}", "primary nid", rpc_nid(&row->primary),
                                     "Multi-Rail", (row->state & RPC_PEER_MULTI_RAIL) != 0);

            if (!brief)
                json_object_set_new(peer, "peer state", json_integer(row->state));
            nis = json_array();
            json_object_set_new(peer, "peer ni", nis);
            json_array_append_new(list, peer);
        }
        json_array_append_new(nis, peer_ni(ctx, row, brief));
    }
    return list;
}

/* A cursor is where the next page begins. */
static json_t *peer_cursor(const struct lnet_peer_cursor *next)
{
    return next->end ? NULL : json_sprintf("%u.%u", next->part, next->at);
}

static bool read_cursor(const char *text, struct lnet_peer_cursor *out)
{
    int used = 0;

    *out = (struct lnet_peer_cursor){0};
    return text[0] >= '0' && text[0] <= '9' && strlen(text) < 22 &&
           sscanf(text, "%" SCNu32 ".%" SCNu32 "%n", &out->part, &out->at, &used) == 2 &&
           text[used] == '\0';
}

/* Pages are made one at a time, by turns of the clients: a client with many requests delays the
 * others by one page, not by all. */
static void begin_page(struct rpc_ctx *ctx);

static void peer_page(void *arg, const struct lnet_peer_row *rows, unsigned n,
                      const struct lnet_peer_cursor *next)
{
    struct peer_call *p = arg;
    struct rpc_ctx *ctx = jrpc_ctx(p->call);

    jrpc_result(p->call, json_pack("{s:o, s:o*}", "peer", peer_rows(ctx, rows, n, p->brief),
                                   "cursor", peer_cursor(next)));
    ctx->pages.busy = false;
    begin_page(ctx);
}

static void refuse_page(struct peer_call *p, int rc)
{
    if (rc == -EINVAL)
        rpc_refuse_cursor(p->call);
    else
        jrpc_result(p->call, NULL);
}

static void begin_page(struct rpc_ctx *ctx)
{
    while (ctx->pages.first && !ctx->pages.busy) {
        struct peer_call *p = ctx->pages.first;
        int rc;

        ctx->pages.first = p->next;
        ctx->pages.turn = p->turn;
        ctx->pages.busy = true;
        /* The client is gone: no reactor is asked. */
        rc = jrpc_session_of(p->call)
                 ? lnet_peer_page(ctx->control->node, &p->from, p->limit, peer_page, p)
                 : -ECANCELED;
        if (rc != 0) {
            ctx->pages.busy = false;
            refuse_page(p, rc);
        }
    }
}

/* Each page of a client comes one turn after the one before. */
static void queue_page(struct rpc_ctx *ctx, struct peer_call *p)
{
    struct peer_call **at;

    p->turn = ctx->pages.turn + 1;
    for (at = &ctx->pages.first; *at; at = &(*at)->next)
        if (jrpc_session_of((*at)->call) == jrpc_session_of(p->call))
            p->turn = (*at)->turn + 1;
    for (at = &ctx->pages.first; *at && (*at)->turn <= p->turn; at = &(*at)->next)
        ;
    p->next = *at;
    *at = p;
    begin_page(ctx);
}

static void peer_found(void *arg, const struct lnet_peer_row *rows, unsigned n,
                       const struct lnet_peer_cursor *next)
{
    struct peer_call *p = arg;
    char nid[LNET_NIDSTR_SIZE];

    if (n == 0)
        jrpc_fail(p->call, ENOENT, "nid", "peer_get without parameters lists the peers there are",
                  "there is no peer %s", nid_format(&p->nid, nid));
    else
        jrpc_result(p->call,
                    json_pack("{s:o}", "peer", peer_rows(jrpc_ctx(p->call), rows, n, p->brief)));
}

void rpc_peer_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_ctx *ctx = jrpc_ctx(call);
    struct peer_call *p = jrpc_alloc(call, sizeof(*p));

    if (!p)
        return;
    if (args[1].given && !read_cursor(args[1].string, &p->from)) {
        rpc_refuse_cursor(call);
        return;
    }
    p->call = call;
    p->nid = args[0].nid;
    p->brief = args[3].boolean;
    p->limit = args[2].given ? (unsigned)args[2].integer : RPC_PAGE;
    if (!p->brief && p->limit > FULL_PAGE)
        p->limit = FULL_PAGE;
    if (!args[0].given)
        queue_page(ctx, p);
    else if (lnet_peer_find(ctx->control->node, &p->nid, peer_found, p) != 0)
        jrpc_result(call, NULL);
}
