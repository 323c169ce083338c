/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a gateway says of itself decides its routes: docs/protocol/lnet-core.md §3.8 "Cached flag
 * from a ping reply", with avoid_asym_router_failure on. Node home. There may be thousands, so they
 * are gone through in parts, by what is remembered of the info.
 */
#include "lib/lnet/route/route_internal.h"

#include <errno.h>
#include <stdlib.h>

#define BURST 128 /* routes judged before others have their turn */

struct lnet_judge {
    struct lnet_gw *gw;
    struct reactor_task task;
    bool busy;
    /* the newest info */
    bool pushed;  /* not asked for */
    bool routes;  /* it forwards */
    bool near_up; /* its NI on our net */
    unsigned nnets;
    struct {
        lnet_net_t net;
        bool up;
    } net[LNET_PING_MAX_NIDS];
    unsigned next; /* route, of this snapshot */
    uint64_t generation;
};

enum judged { /* what a gateway's info says of a route */
    JUDGED_UP,
    JUDGED_NOT_ROUTING,
    JUDGED_NEAR_NET_DOWN, /* its NI on our net is not up */
    JUDGED_NET_DOWN,      /* the net the route leads to is not up there */
};

/* By how the info came: answer to a ping, or pushed. */
static const char *const judged_causes[][2] = {
    [JUDGED_UP] = {"ping_answered", "pushed"},
    [JUDGED_NOT_ROUTING] = {"routing_disabled_there", "pushed_routing_disabled_there"},
    [JUDGED_NEAR_NET_DOWN] = {"gateway_net_down", "pushed_gateway_net_down"},
    [JUDGED_NET_DOWN] = {"net_down", "pushed_net_down"},
};

static bool net_listed(const struct lnet_judge *j, lnet_net_t net, bool *up)
{
    unsigned i;

    for (i = 0; i < j->nnets && j->net[i].net != net; i++)
        ;
    *up = i < j->nnets && j->net[i].up;
    return i < j->nnets;
}

static void remember(struct lnet_judge *j, const struct lnet_ping_info *info, bool pushed)
{
    unsigned k;

    j->pushed = pushed;
    j->routes = !(info->features & LNET_PING_RTE_DISABLED);
    j->nnets = 0;
    for (unsigned i = 0; i < info->count; i++) {
        lnet_net_t net = nid_net(&info->ni[i].nid);

        for (k = 0; k < j->nnets && j->net[k].net != net; k++)
            ;
        if (k == j->nnets) {
            j->net[j->nnets].net = net;
            j->net[j->nnets++].up = false;
        }
        j->net[k].up |= info->ni[i].status == LNET_NI_UP;
    }
    net_listed(j, nid_net(&j->gw->nid), &j->near_up);
}

static enum judged judge(const struct lnet_judge *j, const struct lnet_route *r, bool *single_hop)
{
    bool remote_up;

    *single_hop = net_listed(j, r->net, &remote_up);
    if (!j->routes)
        return JUDGED_NOT_ROUTING;
    if (!j->near_up)
        return JUDGED_NEAR_NET_DOWN;
    return (r->hops == 1 || *single_hop) && !remote_up ? JUDGED_NET_DOWN : JUDGED_UP;
}

/* Returns whether that is news. */
static bool judge_route(const struct lnet_judge *j, struct lnet_route *r)
{
    bool single_hop;
    enum judged judged = judge(j, r, &single_hop);
    bool up = judged == JUDGED_UP, changed = r->up != up;

    relaxed_store(&r->single_hop, single_hop);
    relaxed_store(&r->up, up);
    if (changed)
        r->cause = judged_causes[judged][j->pushed];
    return changed;
}

static void judge_some(struct lnet_judge *j)
{
    const struct lnet_conf *conf = lnet_conf_get(j->gw->node);
    const struct lnet_conf_gw *g = lnet_conf_gateway(conf, &j->gw->nid);
    unsigned n = g && g->gw == j->gw ? g->nroutes : 0;
    bool changed = false;

    if (j->generation != conf->generation)
        j->next = 0;
    j->generation = conf->generation;
    for (unsigned i = 0; i < BURST && j->next < n; i++)
        changed |= judge_route(j, g->route[j->next++]);
    if (changed)
        lnet_routes_tell(j->gw->node);
    j->busy = j->next < n;
    if (j->busy)
        reactor_post(reactor_self(), &j->task);
    else
        lnet_gw_judged(j->gw);
}

static void judge_on(struct reactor_task *task)
{
    judge_some(container_of(task, struct lnet_judge, task));
}

void lnet_judge_routes(struct lnet_gw *gw, const struct lnet_ping_info *info, bool pushed)
{
    struct lnet_judge *j = gw->judge;

    remember(j, info, pushed);
    j->next = 0;
    if (!j->busy)
        judge_some(j);
}

bool lnet_judge_busy(const struct lnet_gw *gw)
{
    return gw->judge->busy;
}

int lnet_judge_new(struct lnet_gw *gw)
{
    gw->judge = calloc(1, sizeof(*gw->judge));
    if (!gw->judge)
        return -ENOMEM;
    gw->judge->gw = gw;
    gw->judge->task.fn = judge_on;
    return 0;
}
