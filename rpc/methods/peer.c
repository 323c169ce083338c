/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods for peers; peer_get asks the reactors. */
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
    struct lnet_peer_ni_cursor from;
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

/* Health is not kept: this is what a peer that is well has. */
static json_t *peer_health(void)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "health value", 1000, "dropped", 0,
                     "timeout", 0, "error", 0, "network timeout", 0, "ping_count", 0, "next_ping",
                     0);
}

/* docs/protocol/lnet-core.md §10.3, in its order; but what is negative stays so. */
json_t *rpc_peer_ni(const struct lnet_peer_ni_row *peer, bool brief)
{
    const char *state = peer->up ? "up" : "down";
    json_t *ni;

    if (brief)
        return json_pack("{s:o, s:s}", "nid", rpc_nid(&peer->nid), "state", state);
    ni = json_pack("{s:o, s:o, s:s, s:i, s:i, s:i, s:I, s:i, s:i, s:I}", "nid", rpc_nid(&peer->nid),
                   "udsp info", rpc_udsp(), "state", state, "max_ni_tx_credits", peer->tx.max,
                   "available_tx_credits", peer->tx.now, "min_tx_credits", peer->tx.min,
                   "tx_q_num_of_buf", (json_int_t)peer->tx_queued_bytes, "available_rtr_credits",
                   peer->rtr.now, "min_rtr_credits", peer->rtr.min, "refcount",
                   (json_int_t)peer->refs);
    rpc_add_counts(ni, peer->send_count, peer->recv_count, peer->drop_count);
    json_object_set_new(ni, "health stats", peer_health());
    json_object_set_new(ni, "millrace", peer_own(peer));
    return ni;
}

/* Returns the row of a peer that is not configured. Without discovery it has one NID and no state
 * of §3.6. */
static json_t *peer_row(const struct lnet_peer_ni_row *peer, bool brief)
{
    json_t *row = json_pack("{s:o, s:b}", "primary nid", rpc_nid(&peer->nid), "Multi-Rail", 0);

    if (!brief)
        json_object_set_new(row, "peer state", json_integer(0));
    json_object_set_new(row, "peer ni", json_pack("[o]", rpc_peer_ni(peer, brief)));
    return row;
}

/* A cursor is where the next page begins; behind the node's peers are those configured. */
static json_t *peer_cursor(const struct rpc_ctx *ctx, const struct lnet_peer_ni_cursor *next)
{
    if (next->end)
        return rpc_peer_conf_count(ctx) ? json_string(RPC_PEER_CONF_CURSOR "0") : NULL;
    return json_sprintf("%u.%u", next->reactor, next->slot);
}

static bool read_cursor(const char *text, struct lnet_peer_ni_cursor *out)
{
    int used = 0;

    *out = (struct lnet_peer_ni_cursor){0};
    return text[0] >= '0' && text[0] <= '9' && strlen(text) < 22 &&
           sscanf(text, "%" SCNu32 ".%" SCNu32 "%n", &out->reactor, &out->slot, &used) == 2 &&
           text[used] == '\0';
}

/* A place among the configured peers. */
static bool read_conf_cursor(const char *text, unsigned *from)
{
    size_t prefix = strlen(RPC_PEER_CONF_CURSOR);
    int used = 0;

    return strncmp(text, RPC_PEER_CONF_CURSOR, prefix) == 0 && text[prefix] >= '0' &&
           text[prefix] <= '9' && strlen(text) < prefix + 10 &&
           sscanf(text + prefix, "%u%n", from, &used) == 1 && text[prefix + (size_t)used] == '\0';
}

/* Pages are made one at a time, by turns of the clients: a client with many requests delays the
 * others by one page, not by all. */
static void begin_page(struct rpc_ctx *ctx);

static void peer_page(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                      const struct lnet_peer_ni_cursor *next)
{
    struct peer_call *p = arg;
    struct rpc_ctx *ctx = jrpc_ctx(p->call);
    json_t *list = json_array();

    for (unsigned i = 0; i < n; i++)
        if (rpc_peer_conf_find(ctx, &rows[i].nid) < 0)
            json_array_append_new(list, peer_row(&rows[i], p->brief));
    jrpc_result(p->call, json_pack("{s:o, s:o*}", "peer", list, "cursor", peer_cursor(ctx, next)));
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
                 ? lnet_peer_ni_page(ctx->control->node, &p->from, p->limit, peer_page, p)
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

static void peer_found(void *arg, const struct lnet_peer_ni_row *rows, unsigned n,
                       const struct lnet_peer_ni_cursor *next)
{
    struct peer_call *p = arg;
    char nid[LNET_NIDSTR_SIZE];

    if (n == 0)
        jrpc_fail(p->call, ENOENT, "nid", "peer_get without parameters lists the peers there are",
                  "there is no peer %s", nid_format(&p->nid, nid));
    else
        jrpc_result(p->call, json_pack("{s:[o]}", "peer", peer_row(&rows[0], p->brief)));
}

void rpc_peer_get(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct rpc_ctx *ctx = jrpc_ctx(call);
    struct peer_call *p = jrpc_alloc(call, sizeof(*p));
    unsigned from_conf = 0;
    bool conf;

    if (!p)
        return;
    conf = args[1].given && read_conf_cursor(args[1].string, &from_conf);
    if (args[1].given && !conf && !read_cursor(args[1].string, &p->from)) {
        rpc_refuse_cursor(call);
        return;
    }
    p->call = call;
    p->nid = args[0].nid;
    p->brief = args[3].boolean;
    p->limit = args[2].given ? (unsigned)args[2].integer : RPC_PAGE;
    if (!p->brief && p->limit > FULL_PAGE)
        p->limit = FULL_PAGE;
    if (args[0].given && rpc_peer_conf_find(ctx, &p->nid) >= 0)
        rpc_peer_conf_page(call, (unsigned)rpc_peer_conf_find(ctx, &p->nid), 1, p->brief, false);
    else if (conf)
        rpc_peer_conf_page(call, from_conf, p->limit, p->brief, true);
    else if (!args[0].given)
        queue_page(ctx, p);
    else if (lnet_peer_ni_find(ctx->control->node, &p->nid, peer_found, p) != 0)
        jrpc_result(call, NULL);
}

/* ---- changes ---- */

/* Each of the NIDs listed; false: the call has been ended. */
static bool each_nid(struct jrpc_call *call, const struct jrpc_arg *list, struct cfg_peer *peer,
                     bool (*fn)(struct cfg_peer *peer, const struct lnet_nid *nid), int err,
                     const char *why)
{
    struct lnet_nid nid;
    const char *text;

    for (size_t i = 0; list->given && i < json_array_size(list->value); i++) {
        text = json_string_value(json_array_get(list->value, i));
        if (!text || nid_parse(text, &nid) != 0 || nid_is_lo(&nid)) {
            jrpc_refuse(call, "nid", "give address@net, as in 10.0.0.1@tcp", "'%.60s' is not a NID",
                        text ? text : "?");
            return false;
        }
        if (!fn(peer, &nid)) {
            jrpc_fail(call, err, "nid", "peer_get lists the peers there are", "%s: %s", text, why);
            return false;
        }
    }
    return true;
}

void rpc_peer_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg_peer *peer;
    struct cfg *cfg;

    if (nid_is_lo(&args[0].nid)) {
        jrpc_fail(call, EINVAL, "prim_nid", "give the NID of another node",
                  "%s cannot be the NID of a peer", args[0].string);
        return;
    }
    cfg = rpc_edit(call);
    if (!cfg)
        return;
    peer = cfg_find_peer(cfg, &args[0].nid);
    if (!peer)
        peer = cfg_add_peer(cfg, &args[0].nid, true, 0);
    if (peer && args[2].given)
        peer->multi_rail = !args[2].boolean;
    if (!peer || !cfg_peer_add_nid(peer, &args[0].nid))
        jrpc_result(call, NULL);
    else if (each_nid(call, &args[1], peer, cfg_peer_add_nid, ENOSPC, "is one NID too many"))
        rpc_commit(call, cfg, rpc_changed, call);
}

void rpc_peer_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = rpc_edit(call);
    struct cfg_peer *peer = cfg ? cfg_find_peer(cfg, &args[0].nid) : NULL;

    if (cfg && !peer)
        jrpc_fail(call, ENOENT, "prim_nid", "config_get shows the peers that are configured",
                  "there is no configured peer %s", args[0].string);
    if (!peer ||
        !each_nid(call, &args[1], peer, cfg_peer_remove_nid, ENOENT, "the peer has no such NID"))
        return;
    if (!args[1].given || !peer->nid_count)
        cfg_remove_peer(cfg, (unsigned)(peer - cfg->peer));
    rpc_commit(call, cfg, rpc_changed, call);
}
