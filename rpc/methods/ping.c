/* SPDX-License-Identifier: BSD-3-Clause */
/* ping: asks another node for its NIs. */
#include <errno.h>
#include <string.h>

#include "rpc/methods/methods_internal.h"

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

    if (args[1].given && !lnet_nid_is_mine(ctx->control->node, source)) {
        jrpc_refuse(call, "source", "net_get lists this node's NIDs", "source %s is not ours",
                    args[1].string);
        return;
    }
    p = jrpc_alloc(call, sizeof(*p));
    if (!p)
        return;
    p->call = call;
    p->nid = args[0].nid;
    rc = lnet_ping(ctx->control->node, &p->nid, source, timeout_ms, ping_done, p);
    if (rc != 0)
        ping_fail(p, -rc);
}
