/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Static routes and their gateways. docs/protocol/lnet-core.md §3.8, §7.4, §11.
 *
 * The control thread makes them and publishes all that a change concerns at once (conf.c). A
 * gateway whose last route went is kept, so that one that comes back is known; but only so many
 * are.
 */
#include "lib/base/err.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/route/route_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life of a gateway (control) ---- */

static void bind_peer(struct reactor_task *task)
{
    lnet_peer_set_gateway(container_of(task, struct lnet_gw, bind));
}

static unsigned gw_bucket(const struct lnet_nid *nid)
{
    return nid_hash(nid) % LNET_GW_BUCKETS;
}

static void gw_free(struct lnet_gw *gw)
{
    struct lnet_gw **at = &gw->node->routes->gw_bucket[gw_bucket(&gw->nid)];

    while (*at && *at != gw)
        at = &(*at)->next;
    if (*at)
        *at = gw->next;
    gw->node->gw[gw->index] = NULL;
    for (unsigned i = 0; i < gw->nnis; i++)
        lnet_gw_ni_put(gw->ni[i]);
    free(gw->check);
    free(gw);
}

static struct lnet_gw *gw_new(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_gw *gw;
    unsigned slot;

    for (slot = 0; slot < LNET_GW_SLOTS && node->gw[slot]; slot++)
        ;
    if (slot == LNET_GW_SLOTS)
        return NULL;
    gw = calloc(1, sizeof(*gw));
    if (!gw)
        return NULL;
    gw->node = node;
    gw->nid = *nid;
    gw->index = slot;
    gw->bind.fn = bind_peer;
    gw->ni[0] = lnet_gw_ni_get(node, nid, nid);
    gw->nnis = gw->ni[0] != NULL;
    if (!gw->ni[0] || lnet_gw_check_new(node, gw)) {
        if (gw->ni[0])
            lnet_gw_ni_put(gw->ni[0]);
        free(gw);
        return NULL;
    }
    node->gw[slot] = gw;
    gw->next = node->routes->gw_bucket[gw_bucket(nid)];
    node->routes->gw_bucket[gw_bucket(nid)] = gw;
    return gw;
}

static struct lnet_gw *gw_get(struct lnet_node *node, const struct lnet_nid *nid)
{
    struct lnet_gw *gw = node->routes->gw_bucket[gw_bucket(nid)];

    while (gw && (gw->leaving || !nid_same(&gw->nid, nid)))
        gw = gw->next;
    if (!gw)
        gw = gw_new(node, nid);
    if (gw)
        gw->used = node->conf->generation;
    return gw;
}

/* A gateway leaves in two steps when no snapshot lists it any more: its peer forgets it and its
 * check ends; it is freed. Its peer NIs leave at the same time. */
static void gw_left(struct reactor_task *task)
{
    gw_free(container_of(task, struct lnet_gw, leave));
}

static void gw_forget_check(struct reactor_task *task)
{
    struct lnet_gw *gw = container_of(task, struct lnet_gw, leave);

    lnet_peer_unset_gateway(gw);
    if (!lnet_gw_check_end(gw))
        return; /* lnet_gw_leave() is called when the check has ended */
    lnet_gw_leave(gw);
}

void lnet_gw_leave(struct lnet_gw *gw)
{
    gw->leave.fn = gw_left;
    reactor_post(reactor_control(gw->node->env), &gw->leave);
}

int lnet_routes_init(struct lnet_node *node)
{
    node->routes = calloc(1, sizeof(*node->routes));
    if (!node->routes)
        return -ENOMEM;
    node->routes->node = node;
    lnet_gw_nis_init(node->routes);
    lnet_routing_init(node);
    lnet_ping_on_push(node, lnet_gw_pushed);
    return 0;
}

void lnet_routes_fini(struct lnet_node *node)
{
    for (unsigned i = 0; node->conf && i < node->conf->nroutes; i++)
        free(node->conf->route[i]);
    lnet_conf_free(node->conf);
    node->conf = NULL;
    for (unsigned i = 0; i < LNET_GW_SLOTS; i++)
        if (node->gw[i])
            gw_free(node->gw[i]);
    for (unsigned i = 0; i < LNET_GW_NI_SLOTS; i++)
        free(node->gw_ni[i]); /* those that were leaving */
    free(node->routes);
}

/* ---- the rules ---- */

static int check_route(const struct lnet_node *node, const struct lnet_route_conf *rc,
                       struct err *err)
{
    lnet_net_t gw_net = nid_net(&rc->gateway);
    char net[LNET_NETSTR_SIZE], gw[LNET_NIDSTR_SIZE], gwnet[LNET_NETSTR_SIZE];

    net_format(rc->net, net);
    nid_format(&rc->gateway, gw);
    net_format(gw_net, gwnet);
    if (rc->net == LNET_NET_ANY || rc->net >> 16 == LNET_LND_LO)
        return err_set(err, -EINVAL, "net: %s cannot be routed to", net);
    if (nid_is_any(&rc->gateway) || nid_is_lo(&rc->gateway)) {
        return err_set(err, -EINVAL, "gateway: %s cannot be a gateway; name a NID on a local net",
                       gw);
    }
    if (rc->net == gw_net)
        return err_set(err, -EINVAL, "gateway: %s is itself on net %s", gw, net);
    if (rc->hops != LNET_HOPS_UNDEFINED && (rc->hops < 1 || rc->hops > 255))
        return err_set(err, -EINVAL, "hop: %d is not 1..255 (leave it out if unknown)", rc->hops);
    if (lnet_is_own_nid(node, &rc->gateway))
        return err_set(err, -EINVAL, "gateway: %s is this node's own NID", gw);
    if (lnet_net_find(node, rc->net)) {
        return err_set(err, -EEXIST, "net: %s is a local net; no route is needed", net);
    }
    if (!lnet_net_find(node, gw_net))
        return err_set(err, -EHOSTUNREACH, "gateway: %s is not reachable, no local NI on net %s",
                       gw, gwnet);
    return 0;
}

/* ---- changes (control) ---- */

struct change {
    struct lnet_node *node;
    const struct lnet_conf *old;
    bool *gone;               /* of old->route */
    struct lnet_route **made; /* one for each to be added */
    unsigned nmade;
    struct lnet_route **list; /* all there shall be */
    unsigned nlist;
    uint32_t *seen; /* hash: net and gateway -> index in `made` + 1 */
    uint32_t mask;
    struct lnet_gw *leaving[LNET_GW_SLOTS];
    unsigned nleaving;
    struct err *err;
};

static int change_alloc(struct change *ch, unsigned nadd)
{
    unsigned buckets = 16;

    while (buckets < 2 * nadd)
        buckets *= 2;
    ch->mask = buckets - 1;
    ch->gone = calloc(ch->old->nroutes + 1, sizeof(bool));
    ch->made = calloc(nadd + 1, sizeof(struct lnet_route *));
    ch->list = calloc(ch->old->nroutes + nadd + 1, sizeof(struct lnet_route *));
    ch->seen = calloc(buckets, sizeof(*ch->seen));
    err_text(ch->err, "no memory for routes");
    return ch->gone && ch->made && ch->list && ch->seen ? 0 : -ENOMEM;
}

/* Frees the objects that were made only for this change. */
static void change_undo(struct change *ch)
{
    for (unsigned i = 0; i < ch->nmade; i++)
        free(ch->made[i]);
    for (unsigned i = 0; i < LNET_GW_SLOTS; i++)
        if (ch->node->gw[i] && !ch->node->gw[i]->bound)
            gw_free(ch->node->gw[i]);
    for (unsigned i = 0; i < ch->nleaving; i++)
        ch->leaving[i]->leaving = false;
}

static void change_free(struct change *ch)
{
    free(ch->gone);
    free(ch->made);
    free(ch->list);
    free(ch->seen);
    free(ch);
}

/* Index of a route in the old snapshot, or its number of routes. */
static unsigned old_route(const struct change *ch, const struct lnet_route_conf *rc)
{
    struct lnet_route *const *have;
    unsigned i, n = lnet_conf_routes(ch->old, rc->net, &have);

    for (i = 0; i < n; i++)
        if (nid_same(&have[i]->gw->nid, &rc->gateway))
            return (unsigned)(have - ch->old->route) + i;
    return ch->old->nroutes;
}

static int take_out(struct change *ch, const struct lnet_route_conf *rc)
{
    unsigned at = old_route(ch, rc);

    if (at == ch->old->nroutes || ch->gone[at])
        return err_set(ch->err, -ENOENT, "route: no route to this net through this gateway");
    ch->gone[at] = true;
    return 0;
}

/* Its place among those to be added; *taken: the same one is there already. */
static uint32_t *seen_place(const struct change *ch, const struct lnet_route_conf *rc, bool *taken)
{
    uint32_t h = (nid_hash(&rc->gateway) ^ rc->net * 0x9e3779b1u) & ch->mask;

    for (*taken = false; ch->seen[h]; h = (h + 1) & ch->mask) {
        const struct lnet_route *r = ch->made[ch->seen[h] - 1];

        *taken = r->net == rc->net && nid_same(&r->gw->nid, &rc->gateway);
        if (*taken)
            break;
    }
    return &ch->seen[h];
}

/* Values that the node's home writes meanwhile are lost; the home evaluates again soon. */
static void copy_state(struct lnet_route *r, const struct lnet_route *old)
{
    r->up = relaxed_load(&old->up);
    r->single_hop = relaxed_load(&old->single_hop);
    r->cause = relaxed_load(&old->cause);
    r->reported_down = relaxed_load(&old->reported_down);
    r->reported_by_gw = relaxed_load(&old->reported_by_gw);
}

static int put_in(struct change *ch, const struct lnet_route_conf *rc)
{
    unsigned have = old_route(ch, rc);
    struct lnet_route *r;
    uint32_t *place;
    bool taken;
    int rc2 = check_route(ch->node, rc, ch->err);

    if (rc2)
        return rc2;
    place = seen_place(ch, rc, &taken);
    if (taken || (have < ch->old->nroutes && !ch->gone[have]))
        return err_set(ch->err, -EEXIST,
                       "route: this net has a route through this gateway already");
    err_text(ch->err, "no memory for a route (at most %d gateways)", LNET_MAX_GATEWAYS);
    r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->net = rc->net;
    r->hops = rc->hops;
    r->priority = rc->priority;
    r->up = !ch->node->timing.rules.check_before_use; /* until the gateway says otherwise */
    r->cause = r->up ? NULL : "not_checked";
    if (have < ch->old->nroutes)
        copy_state(r, ch->old->route[have]);
    r->gw = gw_get(ch->node, &rc->gateway);
    if (!r->gw) {
        free(r);
        return -ENOMEM;
    }
    ch->made[ch->nmade++] = r;
    *place = ch->nmade;
    return 0;
}

static int by_use(const void *a, const void *b)
{
    const struct lnet_gw *x = *(struct lnet_gw *const *)a, *y = *(struct lnet_gw *const *)b;

    return x->used < y->used ? -1 : x->used > y->used;
}

/* Keeps only a limited number of gateways that had no route before this change either. */
static void let_gateways_go(struct change *ch)
{
    unsigned i, n = 0;

    for (i = 0; i < LNET_GW_SLOTS; i++) {
        struct lnet_gw *gw = ch->node->gw[i];

        if (gw && gw->bound && !gw->leaving && gw->routes == 0 &&
            gw->used != ch->node->conf->generation)
            ch->leaving[n++] = gw;
    }
    qsort(ch->leaving, n, sizeof(struct lnet_gw *), by_use);
    ch->nleaving = n > LNET_GW_KEPT ? n - LNET_GW_KEPT : 0;
    for (i = 0; i < ch->nleaving; i++)
        ch->leaving[i]->leaving = true;
}

static struct lnet_conf *change_build(struct change *ch)
{
    struct lnet_conf *c;

    for (unsigned i = 0; i < ch->old->nroutes; i++)
        if (!ch->gone[i])
            ch->list[ch->nlist++] = ch->old->route[i];
    for (unsigned i = 0; i < ch->nmade; i++)
        ch->list[ch->nlist++] = ch->made[i];
    let_gateways_go(ch);
    c = lnet_conf_build(ch->node, ch->list, ch->nlist, ch->old->ni, ch->old->nnis);
    if (c && c->ngws > LNET_MAX_GATEWAYS) {
        err_text(ch->err, "gateway: %u are too many, at most %d", c->ngws, LNET_MAX_GATEWAYS);
        lnet_conf_free(c);
        c = NULL;
    }
    return c;
}

/* old is freed with the publication: what is needed of it is taken before. */
static void change_publish(struct change *ch, struct lnet_conf *c)
{
    unsigned i, n = 0;

    for (i = 0; i < ch->old->nroutes; i++)
        if (ch->gone[i])
            ch->list[n++] = ch->old->route[i];
    for (i = 0; i < ch->nmade; i++)
        count_add(&ch->made[i]->gw->routes, 1);
    lnet_conf_publish(ch->node, c);
    for (i = 0; i < n; i++) {
        count_add(&ch->list[i]->gw->routes, -1);
        free(ch->list[i]);
    }
    for (i = 0; i < ch->nmade; i++) {
        struct lnet_gw *gw = ch->made[i]->gw;

        if (!gw->bound)
            reactor_post(lnet_node_home(ch->node), &gw->bind);
        gw->bound = true;
        lnet_gw_ni_bind(gw->ni[0]);
        lnet_gw_check_soon(gw);
    }
    for (i = 0; i < ch->nleaving; i++) {
        struct lnet_gw *gw = ch->leaving[i];

        for (unsigned k = 0; k < gw->nnis; k++)
            lnet_gw_ni_leave(gw->ni[k]);
        gw->nnis = 0;
        gw->leave.fn = gw_forget_check;
        reactor_post(lnet_node_home(ch->node), &gw->leave);
    }
    ch->err->message[0] = '\0';
}

static int change_collect(struct change *ch, const struct lnet_route_conf *del, unsigned ndel,
                          const struct lnet_route_conf *add, unsigned nadd, unsigned *bad)
{
    int rc = change_alloc(ch, nadd);

    *bad = 0;
    for (unsigned i = 0; !rc && i < ndel; i++, *bad += !rc)
        rc = take_out(ch, &del[i]);
    for (unsigned i = 0; !rc && i < nadd; i++, *bad += !rc)
        rc = put_in(ch, &add[i]);
    return rc;
}

int lnet_routes_change(struct lnet_node *node, const struct lnet_route_conf *del, unsigned ndel,
                       const struct lnet_route_conf *add, unsigned nadd, unsigned *bad,
                       struct err *err)
{
    struct change *ch = calloc(1, sizeof(*ch));
    struct lnet_conf *c = NULL;
    unsigned at;
    int rc;

    if (!ch)
        return err_set(err, -ENOMEM, "no memory for routes");
    ch->node = node;
    ch->old = node->conf;
    ch->err = err;
    rc = change_collect(ch, del, ndel, add, nadd, bad ? bad : &at);
    if (!rc) {
        err_text(err, "no memory for routes");
        c = change_build(ch);
        rc = c ? 0 : -ENOMEM;
    }
    if (c)
        change_publish(ch, c);
    else
        change_undo(ch);
    change_free(ch);
    return rc;
}

int lnet_route_add(struct lnet_node *node, const struct lnet_route_conf *conf, struct err *err)
{
    return lnet_routes_change(node, NULL, 0, conf, 1, NULL, err);
}

bool lnet_gateways_checked(const struct lnet_node *node)
{
    const struct lnet_conf *c = node->conf;

    for (unsigned i = 0; i < c->ngws_known; i++)
        if (!relaxed_load(&c->gw[i].gw->checked))
            return false;
    return true;
}

static int worst_health(const struct lnet_gw *gw)
{
    int worst = LNET_MAX_HEALTH;

    for (unsigned i = 0; i < gw->nnis; i++) {
        int health = relaxed_load(&gw->ni[i]->health);

        worst = health < worst ? health : worst;
    }
    return worst;
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
        rows[i].up = lnet_gw_alive(r->gw) && relaxed_load(&r->up);
        rows[i].single_hop = relaxed_load(&r->single_hop);
        rows[i].health = worst_health(r->gw);
    }
    return c->nroutes;
}
