/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The snapshot: what the operator configured, as the data path sees it. It lists nets with their
 * NIs, routes and gateways, and never changes. The control thread builds another for each change,
 * publishes it by pointer, and frees the old one when all reactors have passed a quiescent state.
 *
 * A value returned here is valid as long as the snapshot: on a reactor until the end of its
 * loop iteration. State that changes by itself (does the gateway answer, does it list the net) lies
 * in the gateway and route objects; each field there has one writer.
 */
#ifndef MILLRACE_LNET_CONF_H
#define MILLRACE_LNET_CONF_H

#include "lib/lnet/shard/shard.h"

/* A gateway: what routing needs of a peer, and the state that it publishes for path selection. It
 * is retained for a while after its last route was deleted. */
struct lnet_gw {
    struct lnet_node *node;
    struct lnet_nid nid;
    unsigned index; /* in node->gw */
    /* control writes */
    uint32_t routes; /* how many routes use it */
    uint32_t wanted; /* counts requests for a check soon */
    uint64_t used;   /* generation in which a route was last added */
    bool bound;      /* its peer NI points to it */
    bool leaving;    /* no later snapshot will list it */
    struct lnet_gw *next;
    struct reactor_task bind, leave;
    /* node home writes */
    bool ping_down;
    uint64_t ping_down_us;
    bool pinned; /* in the table of peers */
    struct lnet_gw_check *check;
    bool reported_down; /* watchers were told that it is down */
    const char *reported_cause;
    /* home of the gateway's NID writes */
    struct reactor_task changed; /* to the node's home; its function is route/'s */
    bool change_mailed;          /* cleared there */
    const char *lnd_cause;       /* of the last change */
    bool lnd_down;
    uint64_t heard_us; /* last message of a foreign source while its pings failed */
    uint64_t queued_bytes;
};

/* A route. Control allocates it, and frees it when no snapshot lists it and all reactors have
 * passed a quiescent state. */
struct lnet_route {
    lnet_net_t net;
    struct lnet_gw *gw;
    int hops;
    unsigned priority;
    /* node home writes, from the gateway's ping replies (§3.8 "Cached flag") */
    bool up;
    bool single_hop;
    const char *cause;   /* of `up` as it is */
    bool reported_down;  /* watchers were told that it is down */
    bool reported_by_gw; /* because its gateway was */
};

struct lnet_conf_net {
    lnet_net_t net;
    unsigned nni; /* 1 or more */
    struct lnet_ni **ni;
};

struct lnet_conf_gw {
    struct lnet_gw *gw;
    unsigned nroutes;
    struct lnet_route **route;
};

/* All of a snapshot's NIs listen. Nets and NIs are in configuration order. */
struct lnet_conf {
    uint64_t generation;
    unsigned nnets, nnis;
    struct lnet_conf_net *net;
    struct lnet_ni **ni; /* the NIs of a net adjoin */
    unsigned nroutes;
    uint32_t mask;   /* of first[] */
    uint32_t *first; /* hash of net -> index + 1 of its first route; routes of a net adjoin */
    struct lnet_route **route;
    unsigned ngws;           /* gateways with routes: the first ones */
    unsigned ngws_known;     /* all gateways */
    struct lnet_conf_gw *gw; /* pointer and routes of each */
    struct lnet_route **by_gw;
    uint32_t gw_mask; /* of gw_at[] */
    uint32_t *gw_at;  /* hash of NID -> index + 1 in gw[] */
};

static inline const struct lnet_conf *lnet_conf_get(const struct lnet_node *node)
{
    return __atomic_load_n(&node->conf, __ATOMIC_ACQUIRE);
}

/* ---- look-up (any thread) ---- */

static inline const struct lnet_conf_net *lnet_net_find(const struct lnet_node *node,
                                                        lnet_net_t net)
{
    const struct lnet_conf *c = lnet_conf_get(node);

    for (unsigned i = 0; i < c->nnets; i++)
        if (c->net[i].net == net)
            return &c->net[i];
    return NULL;
}
static inline struct lnet_ni *lnet_ni_find(const struct lnet_node *node, const struct lnet_nid *nid)
{
    const struct lnet_conf *c = lnet_conf_get(node);

    for (unsigned i = 0; i < c->nnis; i++)
        if (nid_same(&c->ni[i]->nid, nid))
            return c->ni[i];
    return NULL;
}
/* Does what lnet_nid_is_mine() does for LNDs. */
static inline bool lnet_is_own_nid(const struct lnet_node *node, const struct lnet_nid *nid)
{
    return nid_is_lo(nid) || lnet_ni_find(node, nid);
}
struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid);
/* Returns the number of routes to a net, and the first in *first. */
unsigned lnet_conf_routes(const struct lnet_conf *conf, lnet_net_t net,
                          struct lnet_route *const **first);
const struct lnet_conf_gw *lnet_conf_gateway(const struct lnet_conf *conf,
                                             const struct lnet_nid *nid);

/* ---- change (control) ---- */

int lnet_conf_init(struct lnet_node *node);
/* Builds the next snapshot, with all gateways of node->gw; copies the pointers. NULL: no memory. */
struct lnet_conf *lnet_conf_build(const struct lnet_node *node, struct lnet_route *const *routes,
                                  unsigned nroutes, struct lnet_ni *const *nis, unsigned nnis);
/* Publishes a snapshot, waits until no reactor uses the one before, and frees that. */
void lnet_conf_publish(struct lnet_node *node, struct lnet_conf *conf);
void lnet_conf_free(struct lnet_conf *conf);

#endif
