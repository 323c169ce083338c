/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds and publishes snapshots. conf.h has the rules. */
#include "lib/lnet/shard/conf.h"

#include "lib/lnet/shard/udsp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t net_hash(lnet_net_t net)
{
    return (uint32_t)((net * 0x9e3779b97f4a7c15ull) >> 32);
}

static uint32_t hash_size(unsigned n)
{
    uint32_t buckets = 16;

    while (buckets < 2 * n)
        buckets *= 2;
    return buckets;
}

void lnet_conf_free(struct lnet_conf *c)
{
    if (!c)
        return;
    free(c->ni);
    free(c->net);
    free(c->first);
    free(c->route);
    free(c->gw);
    free(c->by_gw);
    free(c->gw_ni);
    free(c->gw_at);
    free(c->rules_of);
    free(c);
}

/* ---- NIs ---- */

/* The NIs of a net adjoin: docs/protocol/lnet-core.md §3.2. */
static int build_nets(struct lnet_conf *c, struct lnet_ni *const *ni, unsigned n)
{
    unsigned k;

    c->ni = calloc(n + 1, sizeof(struct lnet_ni *));
    c->net = calloc(n + 1, sizeof(*c->net));
    if (!c->ni || !c->net)
        return -ENOMEM;
    for (unsigned i = 0; i < n; i++) {
        struct lnet_conf_net *net = &c->net[c->nnets];

        for (k = 0; k < c->nnets && c->net[k].net != ni[i]->net; k++)
            ;
        if (k < c->nnets)
            continue;
        net->net = ni[i]->net;
        net->ni = &c->ni[c->nnis];
        for (k = i; k < n; k++)
            if (ni[k]->net == net->net)
                net->ni[net->nni++] = ni[k];
        c->nnis += net->nni;
        c->nnets++;
    }
    return 0;
}

/* ---- routes ---- */

static int by_net(const void *a, const void *b)
{
    const struct lnet_route *x = *(struct lnet_route *const *)a;
    const struct lnet_route *y = *(struct lnet_route *const *)b;

    return x->net < y->net ? -1 : x->net > y->net;
}

static int build_routes(struct lnet_conf *c, struct lnet_route *const *routes, unsigned n)
{
    uint32_t buckets = hash_size(n), h;

    c->mask = buckets - 1;
    c->nroutes = n;
    c->first = calloc(buckets, sizeof(*c->first));
    c->route = calloc(n + 1, sizeof(struct lnet_route *));
    if (!c->first || !c->route)
        return -ENOMEM;
    if (n > 0) {
        memcpy(c->route, routes, n * sizeof(struct lnet_route *));
        qsort(c->route, n, sizeof(struct lnet_route *), by_net);
    }
    for (unsigned i = 0; i < n; i++) {
        if (i > 0 && c->route[i]->net == c->route[i - 1]->net)
            continue;
        for (h = net_hash(c->route[i]->net) & c->mask; c->first[h]; h = (h + 1) & c->mask)
            ;
        c->first[h] = i + 1;
    }
    return 0;
}

unsigned lnet_conf_routes(const struct lnet_conf *c, lnet_net_t net,
                          struct lnet_route *const **first)
{
    uint32_t h = net_hash(net) & c->mask;
    unsigned i, n = 0;

    for (; c->first[h]; h = (h + 1) & c->mask) {
        i = c->first[h] - 1;
        if (c->route[i]->net != net)
            continue;
        *first = &c->route[i];
        while (i + n < c->nroutes && c->route[i + n]->net == net)
            n++;
        return n;
    }
    return 0;
}

/* ---- gateways ---- */

/* Those with routes first, each with a place in by_gw for its routes. */
static void place_gateways(struct lnet_conf *c, struct lnet_gw *const *gw,
                           const unsigned routes[LNET_GW_SLOTS], unsigned at[LNET_GW_SLOTS])
{
    unsigned busy = 0, idle, used = 0;

    for (unsigned i = 0; i < LNET_GW_SLOTS; i++)
        c->ngws += routes[i] > 0;
    idle = c->ngws;
    for (unsigned i = 0; i < LNET_GW_SLOTS; i++) {
        if (!gw[i] || gw[i]->leaving)
            continue;
        at[i] = routes[i] > 0 ? busy++ : idle++;
        c->gw_of[i] = (uint16_t)at[i];
        c->gw[at[i]].gw = gw[i];
        c->gw[at[i]].route = &c->by_gw[used];
        used += routes[i];
    }
    c->ngws_known = idle;
}

static const struct lnet_conf_net *net_of(const struct lnet_conf *c, lnet_net_t net)
{
    for (unsigned i = 0; i < c->nnets; i++)
        if (c->net[i].net == net)
            return &c->net[i];
    return NULL;
}

static void gw_hash_insert(struct lnet_conf *c, unsigned index)
{
    uint32_t h = nid_hash(&c->gw_ni[index].ni->nid) & c->gw_mask;

    while (c->gw_at[h])
        h = (h + 1) & c->gw_mask;
    c->gw_at[h] = index + 1;
}

/* Inserts the NIDs that routes name first, so that they are found before the same NIDs of other
 * gateways. */
static void place_gateway_nis(struct lnet_conf *c)
{
    unsigned n = 0;

    for (unsigned i = 0; i < c->ngws_known; i++) {
        struct lnet_conf_gw *g = &c->gw[i];

        g->ni = &c->gw_ni[n];
        g->nnis = g->gw->nnis;
        for (unsigned k = 0; k < g->nnis; k++, n++) {
            struct lnet_conf_gw_ni *e = &c->gw_ni[n];

            e->ni = g->gw->ni[k];
            e->gw = g;
            e->net = net_of(c, nid_net(&e->ni->nid));
            for (unsigned j = 0; e->net && j < e->net->nni; j++)
                e->local |= lnet_ni_bit(e->net->ni[j]);
        }
        gw_hash_insert(c, (unsigned)(g->ni - c->gw_ni));
    }
    for (unsigned i = 0; i < n; i++)
        if (&c->gw_ni[i] != c->gw_ni[i].gw->ni)
            gw_hash_insert(c, i);
}

static int build_gateways(struct lnet_conf *c, struct lnet_gw *const *gw)
{
    unsigned routes[LNET_GW_SLOTS] = {0}, at[LNET_GW_SLOTS] = {0};
    unsigned i, n = 0, nnis = 0;

    for (i = 0; i < LNET_GW_SLOTS; i++)
        if (gw[i] && !gw[i]->leaving) {
            n++;
            nnis += gw[i]->nnis;
        }
    c->gw_mask = hash_size(nnis) - 1;
    c->gw = calloc(n + 1, sizeof(*c->gw));
    c->by_gw = calloc(c->nroutes + 1, sizeof(struct lnet_route *));
    c->gw_ni = calloc(nnis + 1, sizeof(*c->gw_ni));
    c->gw_at = calloc(c->gw_mask + 1, sizeof(*c->gw_at));
    if (!c->gw || !c->by_gw || !c->gw_ni || !c->gw_at)
        return -ENOMEM;
    for (i = 0; i < c->nroutes; i++)
        routes[c->route[i]->gw->index]++;
    place_gateways(c, gw, routes, at);
    for (i = 0; i < c->nroutes; i++) {
        struct lnet_conf_gw *g = &c->gw[at[c->route[i]->gw->index]];

        g->route[g->nroutes++] = c->route[i];
    }
    place_gateway_nis(c);
    return 0;
}

const struct lnet_conf_gw_ni *lnet_conf_gw_ni(const struct lnet_conf *c, const struct lnet_nid *nid)
{
    uint32_t h = nid_hash(nid) & c->gw_mask;

    for (; c->gw_at[h]; h = (h + 1) & c->gw_mask)
        if (nid_same(&c->gw_ni[c->gw_at[h] - 1].ni->nid, nid))
            return &c->gw_ni[c->gw_at[h] - 1];
    return NULL;
}

struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid)
{
    const struct lnet_conf_gw_ni *g = lnet_conf_gw_ni(lnet_conf_get(node), nid);

    return g ? g->gw->gw : NULL;
}

/* ---- a new one ---- */

struct lnet_conf *lnet_conf_build(const struct lnet_node *node, struct lnet_route *const *routes,
                                  unsigned nroutes, struct lnet_ni *const *nis, unsigned nnis)
{
    struct lnet_conf *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->generation = node->conf ? node->conf->generation + 1 : 1;
    c->udsps = node->udsps;
    if (build_nets(c, nis, nnis) || build_routes(c, routes, nroutes) ||
        build_gateways(c, node->gw) || lnet_udsp_apply(c)) {
        lnet_conf_free(c);
        return NULL;
    }
    return c;
}

void lnet_conf_publish(struct lnet_node *node, struct lnet_conf *c)
{
    struct lnet_conf *old = node->conf;

    for (unsigned i = 0; i < c->nnis; i++)
        relaxed_store(&c->ni[i]->priority, lnet_udsp_nid(c->udsps, &c->ni[i]->nid, true));
    __atomic_store_n(&node->conf, c, __ATOMIC_RELEASE);
    if (old)
        reactor_synchronize(node->env);
    lnet_conf_free(old);
}

int lnet_conf_init(struct lnet_node *node)
{
    node->conf = lnet_conf_build(node, NULL, 0, NULL, 0);
    return node->conf ? 0 : -ENOMEM;
}
