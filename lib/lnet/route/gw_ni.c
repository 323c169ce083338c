/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer NIs of gateways. A gateway whose peer has several NIDs on our nets, by discovery or by
 * configuration, is one gateway that is reached at each of them: docs/protocol/lnet-core.md §7.3,
 * §7.4.
 *
 * The node's home compares the table of peers with the lists of NIDs that gateways have, and sends
 * the control thread those that changed. The control thread makes peer NIs that are new, and
 * publishes one snapshot with all changes.
 *
 * A peer NI that no gateway has, and no snapshot lists, is freed in four steps. The node's home
 * sends its last notice. The home of the NID forgets the peer NI. The node's home receives its last
 * notice. The control thread frees the peer NI.
 */
#include "lib/base/minmax.h"
#include "lib/lnet/peer/peer_ni.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/route/route_internal.h"

#include <stdlib.h>
#include <string.h>

#define PUBLISH_GAP_US 1000000ull /* between two snapshots */
/* A gateway whose list changes more often gets a new list each LIST_GAP_US. */
#define LIST_GAP_US 10000000ull
#define LIST_BURST  4

/* ---- life (control, but where marked) ---- */

/* On the home of the NID. */
static void bind_peer_ni(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, bind);
    struct lnet_peer_ni *peer = lnet_peer_ni_get(ni->node, &ni->nid);

    if (!peer)
        return;
    peer->gw_ni = ni;
    lnet_gw_ni_publish(peer);
    lnet_gw_ni_publish_health(peer);
    lnet_peer_ni_put(peer);
}

/* On the node's home, so that it comes before lnet_gw_ni_leave(). */
static void bind_begin(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, bind);

    task->fn = bind_peer_ni;
    reactor_post(lnet_nid_home(ni->node, &ni->nid), task);
}

static void left(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, leave);

    ni->node->gw_ni[ni->index] = NULL;
    free(ni);
}

/* On the node's home. */
static void forget_notices(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, leave);

    task->fn = left;
    reactor_post(reactor_control(ni->node->env), task);
}

/* On the home of the NID, after all notices of the node's home. */
static void forget_peer(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, leave);
    struct lnet_peer_ni *peer = lnet_peer_ni_find_here(ni->node, &ni->nid);

    if (peer && peer->gw_ni == ni)
        peer->gw_ni = NULL;
    task->fn = forget_notices;
    reactor_post(lnet_node_home(ni->node), task);
}

/* On the node's home, which does not find the peer NI any more. */
static void forget_failures(struct reactor_task *task)
{
    struct lnet_gw_ni *ni = container_of(task, struct lnet_gw_ni, leave);

    task->fn = forget_peer;
    reactor_post(lnet_nid_home(ni->node, &ni->nid), task);
}

static struct lnet_gw_ni **bucket(struct lnet_node *node, const struct lnet_nid *nid)
{
    return &node->routes->gw_ni_bucket[nid_hash(nid) % LNET_GW_BUCKETS];
}

static struct lnet_gw_ni *ni_new(struct lnet_node *node, const struct lnet_nid *nid,
                                 const struct lnet_nid *gw)
{
    struct lnet_gw_ni *ni;
    unsigned slot;

    for (slot = 0; slot < LNET_GW_NI_SLOTS && node->gw_ni[slot]; slot++)
        ;
    if (slot == LNET_GW_NI_SLOTS)
        return NULL;
    ni = aligned_alloc(64, sizeof(*ni));
    if (!ni)
        return NULL;
    memset(ni, 0, sizeof(*ni));
    ni->node = node;
    ni->nid = *nid;
    ni->account = *gw;
    ni->index = (uint16_t)slot;
    ni->health = LNET_MAX_HEALTH;
    ni->bind.fn = bind_begin;
    ni->changed.fn = lnet_gw_ni_changed_home;
    ni->leave.fn = forget_failures;
    node->gw_ni[slot] = ni;
    ni->next = *bucket(node, nid);
    *bucket(node, nid) = ni;
    node->ngw_nis++;
    return ni;
}

struct lnet_gw_ni *lnet_gw_ni_get(struct lnet_node *node, const struct lnet_nid *nid,
                                  const struct lnet_nid *gw)
{
    struct lnet_gw_ni *ni = *bucket(node, nid);

    while (ni && !nid_same(&ni->nid, nid))
        ni = ni->next;
    if (!ni)
        ni = ni_new(node, nid, gw);
    if (ni)
        ni->refs++;
    return ni;
}

/* Returns true if no gateway has it any more: it is not found from now on. */
static bool unref(struct lnet_gw_ni *ni)
{
    struct lnet_gw_ni **at = bucket(ni->node, &ni->nid);

    if (--ni->refs > 0)
        return false;
    while (*at != ni)
        at = &(*at)->next;
    *at = ni->next;
    ni->node->ngw_nis--;
    return true;
}

void lnet_gw_ni_put(struct lnet_gw_ni *ni)
{
    if (unref(ni))
        left(&ni->leave);
}

void lnet_gw_ni_leave(struct lnet_gw_ni *ni)
{
    if (unref(ni))
        reactor_post(lnet_node_home(ni->node), &ni->leave);
}

void lnet_gw_ni_bind(struct lnet_gw_ni *ni)
{
    if (ni->bound)
        return;
    ni->bound = true;
    reactor_post(lnet_node_home(ni->node), &ni->bind);
}

/* ---- which NIDs a gateway has (node home) ---- */

/* Returns the NIDs of the gateway's peer on our nets, but for the gateway's own: the proved ones,
 * or the others. Messages go to proved NIDs only, as any node can list any NID. */
static unsigned nids_of(const struct lnet_gw *gw, bool proved, struct lnet_nid out[LNET_GW_NIS])
{
    const struct peer *peer = peer_table_find(gw->node->peers, &gw->nid);
    const struct peer_net *net;
    const struct peer_ni *ni;
    unsigned n = 0;

    if (!peer || peer->nnis == 1)
        return 0;
    TAILQ_FOREACH(net, &peer->nets, link) {
        if (!lnet_net_find(gw->node, net->net))
            continue;
        TAILQ_FOREACH(ni, &net->nis, link) {
            if (n < LNET_GW_NIS - 1 && !nid_same(&ni->nid, &gw->nid) &&
                (ni->answered || peer->state & PEER_CONFIGURED) == proved)
                out[n++] = ni->nid;
        }
    }
    return n;
}

bool lnet_gw_proves(const struct lnet_gw *gw, const struct lnet_nid *nid,
                    const struct lnet_ping_info *info)
{
    struct peer_table *peers = gw->node->peers;
    const struct peer *peer = peer_table_replied(peers, nid, info);

    return nid_same(nid, &gw->nid) || (peer && peer == peer_table_find(peers, &gw->nid));
}

bool lnet_gw_nid_unproved(const struct lnet_gw *gw, unsigned turn, struct lnet_nid *nid)
{
    struct lnet_nid nids[LNET_GW_NIS];
    unsigned n = nids_of(gw, false, nids);

    if (n > 0)
        *nid = nids[turn % n];
    return n > 0;
}

static bool nids_same(const struct lnet_gw *gw, const struct lnet_nid *nid, unsigned n)
{
    if (n != gw->nothers)
        return false;
    for (unsigned i = 0; i < n; i++)
        if (!nid_same(&nid[i], &gw->other[i]))
            return false;
    return true;
}

void lnet_gw_nis_look(struct lnet_gw *gw)
{
    struct lnet_routes *routes = gw->node->routes;
    struct lnet_nid nid[LNET_GW_NIS];
    uint64_t now = reactor_now_us();
    unsigned n;

    if (__atomic_load_n(&gw->listed, __ATOMIC_ACQUIRE))
        return; /* control has not published the last list yet */
    if (gw->list_us > now + LIST_BURST * LIST_GAP_US)
        return; /* it changes again and again */
    n = nids_of(gw, true, nid);
    if (nids_same(gw, nid, n))
        return;
    gw->list_us = max(gw->list_us, now) + LIST_GAP_US;
    memcpy(gw->other, nid, sizeof(nid[0]) * n);
    gw->nothers = n;
    __atomic_store_n(&gw->listed, true, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (relaxed_load(&routes->nis_posted))
        return; /* control looks at all gateways after it has cleared this */
    relaxed_store(&routes->nis_posted, true);
    reactor_post(reactor_control(gw->node->env), &routes->nis_changed);
}

/* ---- a changed gateway (control) ---- */

/* The peer NIs that a gateway has now, and those that it had and has no more. */
struct replaced {
    struct lnet_gw *gw;
    unsigned n;
    struct lnet_gw_ni *ni[LNET_GW_NIS];
};

/* There is always room for the first peer NI of each gateway. */
static bool has_room(const struct lnet_node *node)
{
    return node->ngw_nis < LNET_GW_NI_SLOTS / 2;
}

static void replace(struct lnet_gw *gw, struct replaced *old)
{
    *old = (struct replaced){.gw = gw, .n = gw->nnis};
    memcpy(old->ni, gw->ni, sizeof(gw->ni));
    gw->nnis = 1;
    for (unsigned i = 0; i < gw->nothers && has_room(gw->node); i++) {
        struct lnet_gw_ni *ni = lnet_gw_ni_get(gw->node, &gw->other[i], &gw->nid);

        if (ni)
            gw->ni[gw->nnis++] = ni;
    }
}

static void put_back(const struct replaced *old)
{
    struct lnet_gw *gw = old->gw;

    for (unsigned i = 1; i < gw->nnis; i++)
        lnet_gw_ni_put(gw->ni[i]);
    gw->nnis = old->n;
    memcpy(gw->ni, old->ni, sizeof(gw->ni));
}

/* Returns false if there is no memory. */
static bool apply(struct lnet_node *node, struct replaced *old, unsigned n)
{
    const struct lnet_conf *now = node->conf;
    struct lnet_conf *c = lnet_conf_build(node, now->route, now->nroutes, now->ni, now->nnis);

    for (unsigned i = 0; i < n && !c; i++)
        put_back(&old[i]);
    if (!c)
        return false;
    lnet_conf_publish(node, c);
    for (unsigned i = 0; i < n; i++) {
        __atomic_store_n(&old[i].gw->listed, false, __ATOMIC_RELEASE);
        for (unsigned k = 1; k < old[i].gw->nnis; k++)
            lnet_gw_ni_bind(old[i].gw->ni[k]);
        for (unsigned k = 1; k < old[i].n; k++)
            lnet_gw_ni_leave(old[i].ni[k]);
    }
    return true;
}

/* Publishes the lists that changed, once a second. Lists that find no memory are tried again. */
static void publish(struct lnet_routes *routes)
{
    struct lnet_node *node = routes->node;
    struct replaced *old = calloc(LNET_GW_SLOTS, sizeof(*old));
    unsigned n = 0;

    routes->nis_published_us = reactor_now_us();
    for (unsigned i = 0; i < LNET_GW_SLOTS && old; i++) {
        struct lnet_gw *gw = node->gw[i];

        if (gw && !gw->leaving && __atomic_load_n(&gw->listed, __ATOMIC_ACQUIRE))
            replace(gw, &old[n++]);
    }
    if (!old || (n > 0 && !apply(node, old, n)))
        reactor_timer_arm(&routes->nis_timer, PUBLISH_GAP_US);
    free(old);
}

static void publish_later(struct reactor_timer *t)
{
    publish(container_of(t, struct lnet_routes, nis_timer));
}

static void nis_changed(struct reactor_task *task)
{
    struct lnet_routes *routes = container_of(task, struct lnet_routes, nis_changed);
    uint64_t next_us = routes->nis_published_us + PUBLISH_GAP_US, now = reactor_now_us();

    relaxed_store(&routes->nis_posted, false);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (reactor_timer_armed(&routes->nis_timer) || relaxed_load(&routes->node->stopping))
        return;
    if (now < next_us)
        reactor_timer_arm(&routes->nis_timer, next_us - now);
    else
        publish(routes);
}

void lnet_gw_nis_init(struct lnet_routes *routes)
{
    routes->nis_changed.fn = nis_changed;
    reactor_timer_init(&routes->nis_timer, publish_later);
}
