/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The status of a gateway's routes follows from the ping info of the gateway:
 * docs/protocol/lnet-core.md §3.8 "Cached flag from a ping reply". A gateway may have thousands of
 * routes, so each iteration of the reactor evaluates some, by what the check keeps of the info.
 * Node home.
 */
#include "lib/lnet/route/route_internal.h"

#define BURST 128 /* routes evaluated in one iteration */

enum route_status {
    ROUTE_UP,
    ROUTE_NOT_FORWARDING, /* the gateway does not forward */
    ROUTE_NEAR_NET_DOWN,  /* the gateway's NI on our net is not up */
    ROUTE_NET_DOWN,       /* the net that the route leads to is not up at the gateway */
};

/* By how the info came: answer to a ping, or pushed. */
static const char *const causes[][2] = {
    [ROUTE_UP] = {"ping_answered", "pushed"},
    [ROUTE_NOT_FORWARDING] = {"routing_disabled_there", "pushed_routing_disabled_there"},
    [ROUTE_NEAR_NET_DOWN] = {"gateway_net_down", "pushed_gateway_net_down"},
    [ROUTE_NET_DOWN] = {"net_down", "pushed_net_down"},
};

static bool net_listed(const struct lnet_gw_info *info, lnet_net_t net, bool *up)
{
    unsigned i;

    for (i = 0; i < info->nnets && info->net[i].net != net; i++)
        ;
    *up = i < info->nnets && info->net[i].up;
    return i < info->nnets;
}

static void keep(struct lnet_gw_info *to, const struct lnet_ping_info *info, bool pushed,
                 lnet_net_t near_net)
{
    unsigned k;

    to->pushed = pushed;
    to->forwards = !(info->features & LNET_PING_RTE_DISABLED);
    to->nnets = 0;
    for (unsigned i = 0; i < info->count; i++) {
        lnet_net_t net = nid_net(&info->ni[i].nid);

        for (k = 0; k < to->nnets && to->net[k].net != net; k++)
            ;
        if (k == to->nnets) {
            to->net[to->nnets].net = net;
            to->net[to->nnets++].up = false;
        }
        to->net[k].up |= info->ni[i].status == LNET_NI_UP;
    }
    net_listed(to, near_net, &to->near_up);
}

/* Publishes the status of the gateway's NIs. A NID that is not listed is about to be removed. The
 * NID that routes name need not be listed: the gateway may have another address on its side. */
static void set_status(const struct lnet_gw *gw, const struct lnet_ping_info *info)
{
    const struct lnet_conf_gw *g = lnet_conf_gateway(lnet_conf_get(gw->node), gw);

    for (unsigned k = 0; g && k < g->nnis; k++) {
        struct lnet_gw_ni *ni = g->ni[k].ni;
        uint32_t i;
        bool down;

        for (i = 0; i < info->count && !nid_same(&info->ni[i].nid, &ni->nid); i++)
            ;
        down = i < info->count ? info->ni[i].status != LNET_NI_UP : k > 0;
        relaxed_store(&ni->status_down, down);
    }
}

static enum route_status status_of(const struct lnet_gw_info *info, const struct lnet_route *r,
                                   bool *single_hop)
{
    bool far_side = !relaxed_load(&r->gw->node->timing.rules.ignore_far_side), remote_up;

    *single_hop = net_listed(info, r->net, &remote_up);
    if (!info->forwards)
        return ROUTE_NOT_FORWARDING;
    if (!info->near_up)
        return ROUTE_NEAR_NET_DOWN;
    return far_side && (r->hops == 1 || *single_hop) && !remote_up ? ROUTE_NET_DOWN : ROUTE_UP;
}

/* Returns whether the route went down or came up. */
static bool evaluate(const struct lnet_gw_info *info, struct lnet_route *r)
{
    bool single_hop;
    enum route_status status = status_of(info, r, &single_hop);
    bool up = status == ROUTE_UP, changed = r->up != up;

    relaxed_store(&r->single_hop, single_hop);
    relaxed_store(&r->up, up);
    if (changed)
        relaxed_store(&r->cause, causes[status][info->pushed]);
    return changed;
}

static void evaluate_some(struct lnet_gw_check *c)
{
    struct lnet_node *node = c->gw->node;
    const struct lnet_conf *conf = lnet_conf_get(node);
    const struct lnet_conf_gw *g = lnet_conf_gateway(conf, c->gw);
    unsigned n = g ? g->nroutes : 0;
    bool changed = false;

    if (c->generation != conf->generation)
        c->next_route = 0;
    c->generation = conf->generation;
    for (unsigned i = 0; i < BURST && c->next_route < n; i++)
        changed |= evaluate(&c->info, g->route[c->next_route++]);
    if (changed)
        lnet_routes_report(node);
    c->evaluating = c->next_route < n;
    if (c->evaluating)
        reactor_post(reactor_self(), &c->evaluate);
    else
        lnet_gw_check_idle(c);
}

void lnet_evaluate_task(struct reactor_task *task)
{
    evaluate_some(container_of(task, struct lnet_gw_check, evaluate));
}

void lnet_evaluate_routes(struct lnet_gw_check *c, const struct lnet_ping_info *info, bool pushed)
{
    keep(&c->info, info, pushed, nid_net(&c->gw->nid));
    set_status(c->gw, info);
    c->next_route = 0;
    if (!c->evaluating)
        evaluate_some(c);
}
