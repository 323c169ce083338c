/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods that change peers. lnetctl's rules: docs/protocol/lnet-core.md §10.1, §11. */
#include <errno.h>

#include "config/settings.h"
#include "rpc/methods/methods_internal.h"

/* ---- the NIDs of a call ---- */

/* Reads number i of a list of NIDs. False: the call has been ended. */
static bool read_nid(struct jrpc_call *call, const struct jrpc_arg *list, size_t i,
                     struct lnet_nid *out)
{
    const char *text = json_string_value(json_array_get(list->value, i));

    if (text && nid_parse(text, out) == 0 && !nid_is_lo(out))
        return true;
    jrpc_refuse(call, "nid", "give address@net, as in 10.0.0.1@tcp", "'%.60s' is not a NID",
                text ? text : "?");
    return false;
}

static size_t nid_count(const struct jrpc_arg *list)
{
    return list->given ? json_array_size(list->value) : 0;
}

/* A gateway's NIDs come from its discovery (§11). */
static bool is_no_gateway(struct jrpc_call *call, const struct cfg *cfg, const struct lnet_nid *nid,
                          const char *parameter)
{
    char text[LNET_NIDSTR_SIZE];

    if (!cfg_is_gateway(cfg, nid))
        return true;
    jrpc_fail(call, EBUSY, parameter, "route_get lists the gateways; route_del removes its routes",
              "%s is a gateway", nid_format(nid, text));
    return false;
}

/* ---- peer_add ---- */

/* False: the call has been ended. */
static bool may_have(struct jrpc_call *call, const struct cfg *cfg, const struct lnet_nid *primary,
                     const struct lnet_nid *nid, const char *parameter)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    const struct cfg_peer *owner = cfg_peer_with(cfg, nid);
    char text[LNET_NIDSTR_SIZE], other[LNET_NIDSTR_SIZE];

    nid_format(nid, text);
    if (nid_is_lo(nid) || lnet_nid_is_mine(ctx->control->node, nid)) {
        jrpc_fail(call, EINVAL, parameter, "give the NID of another node",
                  "%s cannot be the NID of a peer", text);
        return false;
    }
    if (owner && !nid_same(&owner->primary, primary)) {
        jrpc_fail(call, EEXIST, parameter, "peer_del removes it there",
                  "%s is a NID of the peer %s", text, nid_format(&owner->primary, other));
        return false;
    }
    return is_no_gateway(call, cfg, nid, parameter);
}

/* The first error ends the call. */
static bool add_nids(struct jrpc_call *call, struct cfg *cfg, struct cfg_peer *peer,
                     const struct jrpc_arg *list)
{
    struct lnet_nid nid;

    for (size_t i = 0; i < nid_count(list); i++) {
        if (!read_nid(call, list, i, &nid) || !may_have(call, cfg, &peer->primary, &nid, "nid"))
            return false;
        if (!peer->multi_rail && !nid_same(&nid, &peer->primary)) {
            jrpc_fail(call, EPERM, "nid", "leave out non_mr",
                      "a peer that is not multi-rail has one NID");
            return false;
        }
        if (!cfg_peer_add_nid(peer, &nid)) {
            jrpc_fail(call, ENOSPC, "nid", "peer_get lists the peers there are",
                      "a peer has at most %d NIDs", CFG_MAX_PEER_NIDS);
            return false;
        }
    }
    return true;
}

void rpc_peer_add(struct jrpc_call *call, const struct jrpc_arg *args)
{
    bool non_mr = args[2].given && args[2].boolean;
    struct cfg_peer *peer;
    struct cfg *cfg = rpc_edit(call);

    if (!cfg || !may_have(call, cfg, &args[0].nid, &args[0].nid, "prim_nid"))
        return;
    peer = cfg_find_peer(cfg, &args[0].nid);
    if (peer && non_mr && peer->multi_rail && peer->nid_count > 1) {
        jrpc_fail(call, EPERM, "non_mr", "peer_del removes its other NIDs",
                  "a peer with several NIDs is multi-rail");
        return;
    }
    if (!peer)
        peer = cfg_add_peer(cfg, &args[0].nid, true, 0);
    if (peer && args[2].given)
        peer->multi_rail = !non_mr;
    if (peer && args[3].given)
        peer->lock_primary = args[3].boolean;
    if (!peer || !cfg_peer_add_nid(peer, &args[0].nid))
        jrpc_result(call, NULL);
    else if (add_nids(call, cfg, peer, &args[1]))
        rpc_commit(call, cfg, rpc_changed, call);
}

/* ---- peer_del ---- */

struct peer_del {
    struct jrpc_call *call;
    struct lnet_peer_op op;
};

static void no_such_peer(struct jrpc_call *call, const struct lnet_nid *nid)
{
    char text[LNET_NIDSTR_SIZE];

    jrpc_fail(call, ENOENT, "prim_nid", "peer_get lists the peers there are",
              "%s is not the primary NID of a peer", nid_format(nid, text));
}

static void node_changed(void *arg, int rc, const struct err *err)
{
    struct jrpc_call *call = arg;

    if (rc == 0)
        jrpc_result(call, json_true());
    else
        jrpc_fail(call, -rc, NULL, "peer_get lists the peers there are", "%s", err->message);
}

/* A peer that is not configured is removed from the node; discovery may make it anew. */
static void del_found(void *arg, const struct lnet_peer_row *rows, unsigned n,
                      const struct lnet_peer_cursor *next)
{
    struct peer_del *d = arg;
    const struct rpc_ctx *ctx = jrpc_ctx(d->call);
    struct err err = {0};
    int rc;

    if (!n || !rows[0].in_table || !nid_same(&rows[0].primary, &d->op.primary)) {
        no_such_peer(d->call, &d->op.primary);
        return;
    }
    rc = lnet_peers_change(ctx->control->node, &d->op, 1, false, node_changed, d->call, &err);
    if (rc != 0)
        jrpc_result(d->call, NULL);
}

static void del_unconfigured(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct peer_del *d;

    if (nid_count(&args[1])) {
        jrpc_fail(call, ENOENT, "nid", "config_get shows the peers that are configured",
                  "%s is not configured, so its NIDs come from discovery", args[0].string);
        return;
    }
    d = jrpc_alloc(call, sizeof(*d));
    if (!d)
        return;
    d->call = call;
    d->op =
        (struct lnet_peer_op){.kind = LNET_PEER_DEL, .primary = args[0].nid, .nid = args[0].nid};
    if (lnet_peer_find(ctx->control->node, &args[0].nid, del_found, d) != 0)
        jrpc_result(call, NULL);
}

/* Returns whether all of a peer goes. */
static bool lists_all(const struct cfg_peer *peer, const struct jrpc_arg *list)
{
    struct lnet_nid nid;

    for (unsigned i = 0; i < peer->nid_count; i++) {
        bool listed = false;

        for (size_t j = 0; j < nid_count(list) && !listed; j++) {
            const char *text = json_string_value(json_array_get(list->value, j));

            listed = text && nid_parse(text, &nid) == 0 && nid_same(&nid, &peer->nid[i]);
        }
        if (!listed)
            return false;
    }
    return peer->nid_count > 0;
}

static bool del_nids(struct jrpc_call *call, const struct cfg *cfg, struct cfg_peer *peer,
                     const struct jrpc_arg *list)
{
    bool all = lists_all(peer, list);
    char text[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;

    for (size_t i = 0; i < nid_count(list); i++) {
        if (!read_nid(call, list, i, &nid) || !is_no_gateway(call, cfg, &nid, "nid"))
            return false;
        nid_format(&nid, text);
        if (nid_same(&nid, &peer->primary) && !all) {
            jrpc_fail(call, EBUSY, "nid", "leave out nid to remove the peer",
                      "%s is the primary NID, and the peer has others", text);
            return false;
        }
        if (!cfg_peer_remove_nid(peer, &nid)) {
            jrpc_fail(call, ENOENT, "nid", "peer_get lists the NIDs of peers",
                      "%s is no NID that is configured for this peer", text);
            return false;
        }
    }
    return true;
}

void rpc_peer_del(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct cfg *cfg = rpc_edit(call);
    struct cfg_peer *peer = cfg ? cfg_find_peer(cfg, &args[0].nid) : NULL;

    if (!cfg || !is_no_gateway(call, cfg, &args[0].nid, "prim_nid"))
        return;
    if (!peer) {
        del_unconfigured(call, args);
        return;
    }
    if (!del_nids(call, cfg, peer, &args[1]))
        return;
    if (!nid_count(&args[1]) || !peer->nid_count)
        cfg_remove_peer(cfg, (unsigned)(peer - cfg->peer));
    rpc_commit(call, cfg, rpc_changed, call);
}

/* ---- peer_set ---- */

struct peer_set {
    struct jrpc_call *call;
    struct lnet_nid nid; /* ANY: all */
    int health;
    int64_t state;
};

static void set_now(struct peer_set *s)
{
    const struct rpc_ctx *ctx = jrpc_ctx(s->call);
    struct err err = {0};
    int rc = lnet_peer_set(ctx->control->node, &s->nid, s->health, s->state, node_changed, s->call,
                           &err);

    if (rc != 0)
        jrpc_result(s->call, NULL);
}

static void set_found(void *arg, const struct lnet_peer_row *rows, unsigned n,
                      const struct lnet_peer_cursor *next)
{
    struct peer_set *s = arg;
    char nid[LNET_NIDSTR_SIZE];

    if (n)
        set_now(s);
    else
        jrpc_fail(s->call, ENOENT, "nid", "peer_get lists the peers there are",
                  "there is no peer %s", nid_format(&s->nid, nid));
}

void rpc_peer_set(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    bool all = args[1].given && args[1].boolean;
    struct peer_set *s;

    if (args[0].given == all) {
        jrpc_refuse(call, "nid", "give nid, or all",
                    all ? "both nid and all are given" : "neither nid nor all is given");
        return;
    }
    if (!args[2].given && !args[3].given) {
        jrpc_refuse(call, "health", "give health or state", "nothing is to be set");
        return;
    }
    s = jrpc_alloc(call, sizeof(*s));
    if (!s)
        return;
    *s = (struct peer_set){.call = call,
                           .nid = all ? LNET_NID_ANY : args[0].nid,
                           .health = args[2].given ? (int)args[2].integer : -1,
                           .state = args[3].given ? args[3].integer : -1};
    if (all)
        set_now(s);
    else if (lnet_peer_find(ctx->control->node, &s->nid, set_found, s) != 0)
        jrpc_result(call, NULL);
}
