/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static routes and their gateways. docs/protocol/lnet-core.md §3.8, §7.4, §11.
 *
 * The control thread keeps the routes; after each change it builds a new immutable lnet_conf and
 * publishes it. A route and the old lnet_conf are freed when all reactors have passed a quiescent
 * state. What changes by itself (is the gateway alive, does it list the net) lies in the route and
 * gateway objects, one writer each.
 */
#include "lib/lnet/lnet_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- snapshot ---- */

static uint32_t net_hash(lnet_net_t net)
{
    return (uint32_t)((net * 0x9e3779b97f4a7c15ull) >> 32);
}

static void conf_free(struct lnet_conf *c)
{
    if (!c)
        return;
    free(c->first);
    free(c->route);
    free(c);
}

static int by_net(const void *a, const void *b)
{
    const struct lnet_route *x = *(struct lnet_route *const *)a;
    const struct lnet_route *y = *(struct lnet_route *const *)b;

    return x->net < y->net ? -1 : x->net > y->net;
}

static unsigned count_gateways(const struct lnet_conf *c)
{
    unsigned i, k, n = 0;

    for (i = 0; i < c->nroutes; i++) {
        for (k = 0; k < i && c->route[k]->gw != c->route[i]->gw; k++)
            ;
        n += k == i;
    }
    return n;
}

/* A snapshot of n routes; takes a copy of the pointers. NULL: no memory. */
static struct lnet_conf *conf_build(struct lnet_route *const *routes, unsigned n,
                                    uint64_t generation)
{
    struct lnet_conf *c = calloc(1, sizeof(*c));
    uint32_t buckets = 16, h;
    unsigned i;

    if (!c)
        return NULL;
    while (buckets < 2 * n)
        buckets *= 2;
    c->generation = generation;
    c->mask = buckets - 1;
    c->nroutes = n;
    c->first = calloc(buckets, sizeof(*c->first));
    c->route = calloc(n + 1, sizeof(struct lnet_route *));
    if (!c->first || !c->route) {
        conf_free(c);
        return NULL;
    }
    if (n > 0) {
        memcpy(c->route, routes, n * sizeof(struct lnet_route *));
        qsort(c->route, n, sizeof(struct lnet_route *), by_net);
    }
    for (i = 0; i < n; i++) {
        if (i > 0 && c->route[i]->net == c->route[i - 1]->net)
            continue;
        for (h = net_hash(c->route[i]->net) & c->mask; c->first[h]; h = (h + 1) & c->mask)
            ;
        c->first[h] = i + 1;
    }
    c->ngws = count_gateways(c);
    return c;
}

static void conf_publish(struct lnet_node *node, struct lnet_conf *c)
{
    struct lnet_conf *old = node->conf;

    __atomic_store_n(&node->conf, c, __ATOMIC_RELEASE);
    if (old)
        reactor_synchronize(node->env);
    conf_free(old);
}

int lnet_conf_init(struct lnet_node *node)
{
    node->conf = conf_build(NULL, 0, 1);
    return node->conf ? 0 : -ENOMEM;
}

void lnet_conf_fini(struct lnet_node *node)
{
    unsigned i;

    for (i = 0; node->conf && i < node->conf->nroutes; i++)
        free(node->conf->route[i]);
    conf_free(node->conf);
    node->conf = NULL;
    for (i = 0; i < node->ngws; i++) {
        free(node->gw[i]->check);
        free(node->gw[i]);
    }
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

bool lnet_gw_alive(const struct lnet_gw *gw)
{
    if (shared_get(&gw->lnd_down))
        return false;
    return !shared_get(&gw->ping_down) || shared_get(&gw->heard_us) > shared_get(&gw->ping_down_us);
}

struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid)
{
    unsigned i, n = __atomic_load_n(&node->ngws, __ATOMIC_ACQUIRE);

    for (i = 0; i < n; i++)
        if (nid_same(&node->gw[i]->nid, nid))
            return node->gw[i];
    return NULL;
}

struct lnet_gw *lnet_source_gateway(const struct lnet_node *node, const struct lnet_nid *via,
                                    lnet_net_t src_net)
{
    struct lnet_route *const *r;
    struct lnet_gw *gw;
    unsigned i, n;

    if (src_net == nid_net(via)) {
        gw = lnet_gw_find(node, via);
        return gw && shared_get(&gw->routes) > 0 ? gw : NULL;
    }
    n = lnet_conf_routes(lnet_conf_get(node), src_net, &r);
    for (i = 0; i < n; i++)
        if (nid_same(&r[i]->gw->nid, via))
            return r[i]->gw;
    return NULL;
}

bool lnet_net_routed_over(const struct lnet_node *node, lnet_net_t net, lnet_net_t over)
{
    struct lnet_route *const *r;
    unsigned i, n = lnet_conf_routes(lnet_conf_get(node), net, &r);

    for (i = 0; i < n; i++)
        if (nid_net(&r[i]->gw->nid) == over)
            return true;
    return false;
}

/* The gateway's peer NI may exist already; tell it, on its home. */
static void bind_peer(struct reactor_task *task)
{
    struct lnet_gw *gw = container_of(task, struct lnet_gw, bind);
    struct lnet_peer_ni *peer = lnet_peer_get(gw->node, &gw->nid);

    if (!peer)
        return;
    peer->gw = gw;
    lnet_peer_put(peer);
}

static struct lnet_gw *gw_get(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_gw *gw = lnet_gw_find(node, nid);

    if (gw)
        return gw;
    if (node->ngws == LNET_MAX_GATEWAYS)
        return NULL;
    gw = calloc(1, sizeof(*gw));
    if (!gw)
        return NULL;
    gw->node = node;
    gw->nid = *nid;
    gw->index = node->ngws;
    if (lnet_gw_check_new(node, gw)) {
        free(gw);
        return NULL;
    }
    node->gw[node->ngws] = gw;
    __atomic_store_n(&node->ngws, node->ngws + 1, __ATOMIC_RELEASE);
    gw->bind.fn = bind_peer;
    reactor_post(lnet_nid_home(node, nid), &gw->bind);
    return gw;
}

void lnet_peer_notify(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool up)
{
    if (peer->gw)
        shared_set(&peer->gw->lnd_down, !up);
    /* What waits for credits to a peer that is down is of no use to it later, §4.5. */
    if (!up)
        lnet_credit_fail_peer(
            peer, (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED});
}

/* ---- add, del (control) ---- */

static int check_route(const struct lnet_node *node, const struct lnet_route_conf *rc, char *err,
                       size_t errlen)
{
    lnet_net_t gw_net = nid_net(&rc->gateway);
    char net[LNET_NETSTR_SIZE], gw[LNET_NIDSTR_SIZE], gwnet[LNET_NETSTR_SIZE];

    net_format(rc->net, net);
    nid_format(&rc->gateway, gw);
    net_format(gw_net, gwnet);
    if (rc->net == LNET_NET_ANY || rc->net >> 16 == LNET_LND_LO) {
        snprintf(err, errlen, "net: %s cannot be routed to", net);
        return -EINVAL;
    }
    if (nid_is_any(&rc->gateway) || nid_is_lo(&rc->gateway)) {
        snprintf(err, errlen, "gateway: %s cannot be a gateway; name a NID on a local net", gw);
        return -EINVAL;
    }
    if (rc->net == gw_net) {
        snprintf(err, errlen, "gateway: %s is itself on net %s", gw, net);
        return -EINVAL;
    }
    if (rc->hops != LNET_HOPS_UNDEFINED && (rc->hops < 1 || rc->hops > 255)) {
        snprintf(err, errlen, "hop: %d is not 1..255 (leave it out if unknown)", rc->hops);
        return -EINVAL;
    }
    if (lnet_nid_is_mine(node, &rc->gateway)) {
        snprintf(err, errlen, "gateway: %s is this node's own NID", gw);
        return -EINVAL;
    }
    if (lnet_net_find(node, rc->net)) {
        snprintf(err, errlen, "net: %s is a local net; no route is needed", net);
        return -EEXIST;
    }
    if (!lnet_net_find(node, gw_net)) {
        snprintf(err, errlen, "gateway: %s is not reachable, no local NI on net %s", gw, gwnet);
        return -EHOSTUNREACH;
    }
    return 0;
}

int lnet_route_add(struct lnet_node *node, const struct lnet_route_conf *rc, char *err,
                   size_t errlen)
{
    struct lnet_conf *old = node->conf, *c = NULL;
    struct lnet_route *const *have;
    struct lnet_route *r = NULL;
    struct lnet_route **list = NULL;
    unsigned i, n;
    int rc2;

    rc2 = check_route(node, rc, err, errlen);
    if (rc2)
        return rc2;
    n = lnet_conf_routes(old, rc->net, &have);
    for (i = 0; i < n; i++)
        if (nid_same(&have[i]->gw->nid, &rc->gateway)) {
            snprintf(err, errlen, "route: this net has a route through this gateway already");
            return -EEXIST;
        }
    snprintf(err, errlen, "no memory for a route (at most %d gateways)", LNET_MAX_GATEWAYS);
    rc2 = -ENOMEM;
    r = calloc(1, sizeof(*r));
    list = calloc(old->nroutes + 1, sizeof(struct lnet_route *));
    if (!r || !list)
        goto out;
    r->net = rc->net;
    r->hops = rc->hops;
    r->priority = rc->priority;
    r->up = true; /* until the gateway says otherwise */
    r->gw = gw_get(node, &rc->gateway);
    if (!r->gw)
        goto out;
    if (old->nroutes > 0)
        memcpy(list, old->route, old->nroutes * sizeof(struct lnet_route *));
    list[old->nroutes] = r;
    c = conf_build(list, old->nroutes + 1, old->generation + 1);
    if (!c)
        goto out;
    shared_set(&r->gw->routes, r->gw->routes + 1);
    conf_publish(node, c);
    lnet_gw_check_soon(r->gw);
    r = NULL;
    err[0] = 0;
    rc2 = 0;
out:
    free(list);
    free(r);
    return rc2;
}

int lnet_route_del(struct lnet_node *node, lnet_net_t net, const struct lnet_nid *gateway,
                   char *err, size_t errlen)
{
    struct lnet_conf *old = node->conf, *c;
    struct lnet_route **list;
    struct lnet_route *gone = NULL;
    unsigned i, n = 0;

    list = calloc(old->nroutes + 1, sizeof(struct lnet_route *));
    if (!list) {
        snprintf(err, errlen, "no memory");
        return -ENOMEM;
    }
    for (i = 0; i < old->nroutes; i++) {
        if (old->route[i]->net == net && nid_same(&old->route[i]->gw->nid, gateway))
            gone = old->route[i];
        else
            list[n++] = old->route[i];
    }
    if (!gone) {
        free(list);
        snprintf(err, errlen, "route: no route to this net through this gateway");
        return -ENOENT;
    }
    c = conf_build(list, n, old->generation + 1);
    free(list);
    if (!c) {
        snprintf(err, errlen, "no memory");
        return -ENOMEM;
    }
    shared_set(&gone->gw->routes, gone->gw->routes - 1);
    conf_publish(node, c);
    free(gone);
    return 0;
}

unsigned lnet_route_rows(const struct lnet_node *node, struct lnet_route_row *rows, unsigned max)
{
    const struct lnet_conf *c = node->conf;
    unsigned i;

    for (i = 0; i < c->nroutes && i < max; i++) {
        const struct lnet_route *r = c->route[i];

        rows[i].conf.net = r->net;
        rows[i].conf.gateway = r->gw->nid;
        rows[i].conf.hops = r->hops;
        rows[i].conf.priority = r->priority;
        rows[i].up = lnet_gw_alive(r->gw) && shared_get(&r->up);
        rows[i].single_hop = shared_get(&r->single_hop);
    }
    return c->nroutes;
}
