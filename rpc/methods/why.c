/* SPDX-License-Identifier: BSD-3-Clause */
/* why: where a message to a NID would go now, and why it would not go another way. */
#include <stdio.h>

#include "rpc/methods/why.h"

struct why_call {
    struct rpc_why_port port; /* first: what is below LNet */
    json_t *why;              /* the answer, while that is asked for */
    struct jrpc_call *call;
    const struct rpc_ctx *ctx;
    struct lnet_nid nid, source;
    bool own; /* a message of this node's */
};

static json_t *route_row(const struct lnet_why_route *route)
{
    const struct lnet_route_row *row = &route->row;

    return json_pack("{s:o, s:o, s:i, s:I, s:s, s:i, s:I, s:s, s:s}", "net", rpc_net(row->conf.net),
                     "gateway", rpc_nid(&row->conf.gateway), "hop", row->conf.hops, "priority",
                     (json_int_t)row->conf.priority, "state", row->up ? "up" : "down", "health",
                     route->health, "queued", (json_int_t)route->queued_bytes, "verdict",
                     lnet_why_name(route->why), "text", lnet_why_text(route->why));
}

static json_t *routes(const struct lnet_why_answer *a)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < a->nroutes && i < LNET_WHY_MAX; i++)
        json_array_append_new(list, route_row(&a->route[i]));
    return list;
}

static json_t *ni_row(const struct why_call *w, const struct lnet_ni *ni,
                      const struct lnet_why_ni *pair)
{
    const struct inet_if *ifp = rpc_why_interface(w->ctx, &ni->nid);
    const char *link = !ifp ? NULL : inet_if_link(ifp) ? "up" : "down";

    return json_pack("{s:o, s:s*, s:s*, s:i, s:o, s:o*, s:s, s:s}", "nid", rpc_nid(&ni->nid),
                     "port", ifp ? inet_if_port(ifp)->name : NULL, "link", link, "health",
                     pair->health, "peer_ni", rpc_nid(&pair->peer_ni), "peer_ni_health",
                     pair->peer_ni_health < 0 ? NULL : json_integer(pair->peer_ni_health),
                     "verdict", lnet_why_name(pair->why), "text", lnet_why_text(pair->why));
}

static json_t *nis(const struct why_call *w, const struct lnet_why_answer *a)
{
    json_t *list = json_array();

    for (unsigned i = 0; i < a->nnis && i < LNET_WHY_MAX; i++) {
        const struct lnet_ni *ni = lnet_ni_at(w->ctx->control->node, a->nis[i].index);

        if (ni) /* else removed meanwhile */
            json_array_append_new(list, ni_row(w, ni, &a->nis[i]));
    }
    return list;
}

/* The next hop's peer NI, as it is now. */
static json_t *peer_ni(const struct lnet_why_answer *a)
{
    const struct lnet_peer_ni_row *p = &a->peer;
    const char *state = !a->peer_known ? "unknown" : p->up ? "up" : "down";

    if (!a->peer_known)
        return json_pack("{s:o, s:s}", "nid", rpc_nid(&a->next_hop), "state", state);
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:i, s:o*}", "nid",
                     rpc_nid(&a->next_hop), "state", state, "health", p->health, "connecting",
                     (int)p->lnd.connecting, "max_ni_tx_credits", p->tx.max, "available_tx_credits",
                     p->tx.now, "tx_waiting", (json_int_t)p->tx_waiting, "tx_queued",
                     (json_int_t)p->tx_queued, "tx_q_num_of_buf", (json_int_t)p->tx_queued_bytes,
                     "reactor", (int)p->reactor, "alive_ms_ago", rpc_ms_ago(p->last_alive_us));
}

/* ---- sentences ---- */

static const char *about_peer(const struct lnet_why_answer *a)
{
    if (!a->peer_known || (!a->peer.up && !a->peer.lnd.connecting))
        return " There is no connection to it; one is made when there is a message for it.";
    if (!a->peer.up)
        return " A connection to it is being made.";
    if (a->peer.tx_waiting)
        return " It is sent as many messages as it may: others wait for a credit.";
    return "";
}

static void path_text(const struct why_call *w, const struct lnet_why_answer *a, char *out,
                      size_t len)
{
    const struct lnet_ni *ni = lnet_ni_at(w->ctx->control->node, (unsigned)a->ni);
    char nid[LNET_NIDSTR_SIZE], hop[LNET_NIDSTR_SIZE], by[LNET_NIDSTR_SIZE] = "an NI that is gone";

    nid_format(&w->nid, nid);
    nid_format(&a->next_hop, hop);
    if (ni)
        nid_format(&ni->nid, by);
    if (a->local)
        snprintf(out, len, "%s is on a net of ours: it is sent there directly, by %s.%s", nid, by,
                 about_peer(a));
    else
        snprintf(out, len, "A message to %s goes to the gateway %s, by %s.%s", nid, hop, by,
                 about_peer(a));
}

/* ---- the call ---- */

static const char *verdict(const struct why_call *w, const struct lnet_why_answer *a)
{
    if (a->mine)
        return "mine";
    if (a->drop)
        return "dropped";
    return a->local && w->own ? "local" : "forwarded";
}

static void add_path(const struct why_call *w, const struct lnet_why_answer *a, json_t *why)
{
    const struct lnet_ni *ni = lnet_ni_at(w->ctx->control->node, (unsigned)a->ni);
    char text[400];

    path_text(w, a, text, sizeof(text));
    json_object_update_new(
        why, json_pack("{s:s, s:o, s:o*, s:o*, s:o}", "text", text, "next_hop",
                       rpc_nid(&a->next_hop), "ni", ni ? rpc_nid(&ni->nid) : NULL, "gateway",
                       a->local ? NULL : rpc_nid(&a->next_hop), "peer_ni", peer_ni(a)));
}

static void add_drop(const struct lnet_why_answer *a, json_t *why)
{
    const struct lnet_drop_info *info = lnet_drop_info(a->drop);

    json_object_update_new(why, json_pack("{s:s, s:s, s:s}", "drop", info->name, "text", info->text,
                                          "remedy", info->remedy));
}

static void add_access(const struct lnet_why_access *access, json_t *why)
{
    json_t *limits;

    if (access->rule[0])
        json_object_set_new(why, "rule", json_string(access->rule));
    if (access->connect[0])
        json_object_set_new(why, "connect",
                            json_pack("{s:s, s:s}", "rule", access->connect, "verdict",
                                      cfg_permit_names[!access->denied]));
    if (access->nlimits == 0)
        return;
    limits = json_array();
    for (unsigned i = 0; i < access->nlimits; i++)
        json_array_append_new(limits, json_string(access->limit[i]));
    json_object_set_new(why, "limits", limits);
}

static void port_told(void *arg, json_t *row)
{
    struct why_call *w = arg;

    json_object_set_new(w->why, "port_path", row);
    jrpc_result(w->call, json_pack("{s:o}", "why", w->why));
}

static void answered(void *arg, const struct lnet_why_answer *a)
{
    struct why_call *w = arg;
    const struct lnet_ni *ni;
    json_t *why = json_pack("{s:o, s:s}", "nid", rpc_nid(&w->nid), "verdict", verdict(w, a));

    if (a->mine)
        json_object_set_new(why, "text",
                            json_string("It is a NID of this node: the message is received here."));
    else if (a->drop)
        add_drop(a, why);
    else
        add_path(w, a, why);
    add_access(&a->access, why);
    json_object_set_new(why, "routes", routes(a));
    if (a->nroutes > LNET_WHY_MAX)
        json_object_set_new(why, "routes_not_shown", json_integer(a->nroutes - LNET_WHY_MAX));
    json_object_set_new(why, "nis", nis(w, a));
    if (a->nnis > LNET_WHY_MAX)
        json_object_set_new(why, "nis_not_shown", json_integer(a->nnis - LNET_WHY_MAX));
    ni = a->mine || a->drop ? NULL : lnet_ni_at(w->ctx->control->node, (unsigned)a->ni);
    w->why = why;
    if (!ni || !rpc_why_port(&w->port, w->ctx, &ni->nid, &a->next_hop, port_told, w))
        jrpc_result(w->call, json_pack("{s:o}", "why", why));
}

void rpc_why(struct jrpc_call *call, const struct jrpc_arg *args)
{
    const struct rpc_ctx *ctx = jrpc_ctx(call);
    struct why_call *w;

    if (nid_is_any(&args[0].nid)) {
        jrpc_refuse(call, "nid", "give the NID of one node", "nid cannot be any");
        return;
    }
    w = jrpc_alloc(call, sizeof(*w));
    if (!w)
        return;
    w->call = call;
    w->ctx = ctx;
    w->nid = args[0].nid;
    w->source = args[1].given ? args[1].nid : LNET_NID_ANY;
    w->own = nid_is_any(&w->source) || lnet_nid_is_mine(ctx->control->node, &w->source);
    if (lnet_why(ctx->control->node, &w->nid, &w->source, answered, w) != 0)
        jrpc_result(call, NULL);
}
