/* SPDX-License-Identifier: BSD-3-Clause */
/* ping asks another node for its NIs; discover runs the discovery of a peer. */
#include <errno.h>
#include <string.h>

#include "rpc/methods/methods_internal.h"

#define PINGS         128 /* under way, of all clients */
#define PINGS_SESSION 16  /* of one */

static json_t *ping_row(const struct lnet_nid *nid, const struct lnet_ping_info *info)
{
    struct lnet_nid primary = *nid;
    json_t *list = json_array();

    lnet_ping_primary(info, &primary);
    for (uint32_t i = 0; i < info->count; i++)
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
    bool discover;
    enum jrpc_role role;
    LIST_ENTRY(ping_call) link; /* in rpc_ctx.pings */
};

/* Each ping has a message descriptor of the node, and some memory, until it ends, and so has a
 * discovery; that can be after its client has closed. So there are so many at most, and clients
 * that may only read leave some.
 */
static bool ping_begin(struct ping_call *p)
{
    struct rpc_ctx *ctx = jrpc_ctx(p->call);
    const struct jrpc_session *session = jrpc_session_of(p->call);
    unsigned all = 0, readers = 0, here = 0;
    uid_t user = jrpc_uid_of(p->call);
    const struct ping_call *i;

    p->role = session->role;
    LIST_FOREACH(i, &ctx->pings, link) {
        all++;
        readers += i->role == JRPC_READ;
        readers +=
            i->role == JRPC_READ && jrpc_uid_of(i->call) == user; /* its share: what is free */
        here += jrpc_session_of(i->call) == session;
    }
    if (here >= PINGS_SESSION || all >= PINGS || (p->role == JRPC_READ && readers >= PINGS / 2)) {
        jrpc_fail(p->call, EBUSY, NULL, "try again when one of them has ended",
                  "too many pings: at most %d of one client and %d of all, half of them of clients "
                  "that only read, and of one such user no more than are free",
                  PINGS_SESSION, PINGS);
        return false;
    }
    LIST_INSERT_HEAD(&ctx->pings, p, link);
    return true;
}

static void ping_fail(const struct ping_call *p, int err)
{
    char nid[LNET_NIDSTR_SIZE];

    jrpc_fail(p->call, err, "nid",
              err == EHOSTUNREACH ? "route_get shows the routes and whether their gateways are up"
                                  : "look at peer_get and drops_get, or wait longer (timeout_ms)",
              "failed to %s %s: %s", p->discover ? "discover" : "ping", nid_format(&p->nid, nid),
              strerror(err));
}

static void ping_done(void *arg, int status, const struct lnet_ping_info *info)
{
    struct ping_call *p = arg;

    LIST_REMOVE(p, link);
    if (status != 0)
        ping_fail(p, -status);
    else
        jrpc_result(p->call, json_pack("{s:[o]}", "ping", ping_row(&p->nid, info)));
}

/* Returns NULL after an answer. */
static struct ping_call *ping_new(struct jrpc_call *call, const struct lnet_nid *nid, bool discover)
{
    struct ping_call *p = jrpc_alloc(call, sizeof(*p));

    if (!p)
        return NULL;
    p->call = call;
    p->nid = *nid;
    p->discover = discover;
    return ping_begin(p) ? p : NULL;
}

static void ping_started(struct ping_call *p, int rc)
{
    if (rc == 0)
        return;
    LIST_REMOVE(p, link);
    ping_fail(p, -rc);
}

void rpc_ping(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct lnet_nid *source = args[1].given ? &args[1].nid : &LNET_NID_ANY;
    unsigned timeout_ms = args[2].given ? (unsigned)args[2].integer : 1000;
    struct ping_call *p;

    if (args[1].given && !lnet_nid_is_mine(ctx->control->node, source)) {
        jrpc_refuse(call, "source", "net_get lists this node's NIDs", "source %s is not ours",
                    args[1].string);
        return;
    }
    p = ping_new(call, &args[0].nid, false);
    if (p)
        ping_started(p, lnet_ping(ctx->control->node, &p->nid, source, timeout_ms, ping_done, p));
}

/* ---- discover ---- */

static json_t *discover_result(const struct lnet_nid *primary, bool multi_rail, json_t *nis)
{
    return json_pack("{s:[{s:o, s:b, s:o}]}", "discover", "primary nid", rpc_nid(primary),
                     "Multi-Rail", multi_rail, "peer_ni", nis);
}

static void discover_found(void *arg, const struct lnet_peer_row *rows, unsigned n,
                           const struct lnet_peer_cursor *next)
{
    struct ping_call *p = arg;
    json_t *nis;

    LIST_REMOVE(p, link);
    if (n == 0) {
        ping_fail(p, ENOSPC); /* the peer made room in the meantime */
        return;
    }
    nis = json_array();
    for (unsigned i = 0; i < n; i++)
        json_array_append_new(nis, json_pack("{s:o}", "nid", rpc_nid(&rows[i].nid)));
    jrpc_result(p->call,
                discover_result(&rows[0].primary, (rows[0].state & RPC_PEER_MULTI_RAIL) != 0, nis));
}

static void discover_done(void *arg, int status)
{
    struct ping_call *p = arg;
    const struct rpc_ctx *ctx = jrpc_ctx(p->call);

    if (status == 0)
        status = lnet_peer_find(ctx->control->node, &p->nid, discover_found, p);
    if (status == 0)
        return;
    LIST_REMOVE(p, link);
    ping_fail(p, -status);
}

/* This node is no peer of itself: its NIDs are known. */
static void discover_own(struct jrpc_call *call)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct lnet_ni *first = NULL;
    json_t *nis = json_array();

    for (unsigned i = 0; i < lnet_ni_count(ctx->control->node); i++) {
        const struct lnet_ni *ni = lnet_ni_at(ctx->control->node, i);

        if (!ni)
            continue;
        first = first ? first : ni;
        json_array_append_new(nis, json_pack("{s:o}", "nid", rpc_nid(&ni->nid)));
    }
    jrpc_result(call, discover_result(first ? &first->nid : &LNET_NID_ANY, true, nis));
}

void rpc_peer_discover(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    unsigned timeout_ms = args[2].given ? (unsigned)args[2].integer : 10000;
    struct ping_call *p;

    if (nid_is_lo(&args[0].nid) || lnet_nid_is_mine(ctx->control->node, &args[0].nid)) {
        discover_own(call);
        return;
    }
    p = ping_new(call, &args[0].nid, true);
    if (p)
        ping_started(p, lnet_peer_discover(ctx->control->node, &p->nid,
                                           args[1].given && args[1].boolean, timeout_ms,
                                           discover_done, p));
}
