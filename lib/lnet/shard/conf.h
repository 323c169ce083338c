/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The snapshot: what the operator configured, as the data path sees it. It lists nets with their
 * NIs, routes and gateways, with what the selection policies say of them, and never changes. The
 * control thread builds another for each change, publishes it by pointer, and frees the old one
 * when all reactors have passed a quiescent state.
 *
 * A value returned here is valid as long as the snapshot: on a reactor until the end of its
 * loop iteration. State that changes by itself (does the gateway answer, does it list the net) lies
 * in the gateway and route objects; each field there has one writer.
 */
#ifndef MILLRACE_LNET_CONF_H
#define MILLRACE_LNET_CONF_H

#include "lib/lnet/shard/shard.h"

/* A peer NI of a gateway as path selection sees it: any reactor reads the first cache line. Two
 * gateways of one peer (routes name two of its NIDs) have their peer NIs in common. */
struct lnet_gw_ni {
    struct lnet_nid nid;
    uint16_t index;   /* in node->gw_ni */
    bool status_down; /* the gateway says so. Node home writes, seldom */
    /* home of the NID writes */
    int32_t tx_credits;
    uint16_t health; /* of the peer NI; LNET_MAX_HEALTH if there is none */
    uint64_t queued_bytes;
    /* lnet_ni_bit() of each NI that lost its connections to the peer NI, or could not connect. Bits
     * of NIs that were removed may remain: another NI gets a bit that is clear everywhere. */
    uint64_t pairs_down;
    uint64_t heard_us; /* last message of a foreign source while pings failed */
    /* node home writes, seldom */
    uint64_t ping_down_us; /* when a ping failed; 0: the last one was answered */
    /* ---- */
    struct lnet_node *node;
    struct lnet_nid account; /* buffers for it are charged to this NID, which its gateway has */
    /* control */
    unsigned refs; /* gateways that have it */
    bool bound;    /* lnet_gw_ni_bind() was called */
    struct lnet_gw_ni *next;
    struct reactor_task bind, leave;
    /* home of the NID */
    uint64_t message_us;         /* last message of any source */
    struct reactor_task changed; /* to the node's home; its function is route/'s */
    bool change_mailed;          /* cleared there */
    const char *lnd_cause;       /* of the last change */
    /* node home */
    unsigned tries;       /* pings of pairs that do not work, since the last progress */
    uint64_t next_try_us; /* no such ping before */
    unsigned turn;
    uint64_t pinged_us;       /* last ping to it */
    struct reactor_task fail; /* to the home of the NID: a ping of these pairs failed */
    bool fail_mailed;         /* cleared there */
    uint64_t fail_pairs;
    const char *fail_cause;
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct lnet_gw_ni, node) == 64, "one cache line");

static inline uint64_t lnet_ni_bit(const struct lnet_ni *ni)
{
    return 1ull << ni->pair;
}

#define LNET_GW_NIS 16 /* peer NIs of a gateway that are used: its NID, and others on our nets */

/* A gateway: what routing needs of a peer. Its identity is the NID that routes name. It is retained
 * for a while after its last route was deleted. */
struct lnet_gw {
    struct lnet_node *node;
    struct lnet_nid nid;
    unsigned index; /* in node->gw */
    /* control writes */
    struct lnet_gw_ni *ni[LNET_GW_NIS]; /* [0] is that of nid */
    unsigned nnis;
    uint32_t routes; /* how many routes use it */
    uint32_t wanted; /* counts requests for a check soon */
    uint64_t used;   /* generation in which a route was last added */
    bool bound;      /* a snapshot has listed it */
    bool leaving;    /* no later snapshot will list it */
    struct lnet_gw *next;
    struct reactor_task bind, leave;
    /* node home writes */
    bool pinned; /* in the table of peers */
    struct lnet_gw_check *check;
    bool checked;       /* a check has ended */
    bool reported_down; /* watchers were told that it is down */
    const char *reported_cause;
    /* NIDs that its peer has on our nets, but for nid: gw_ni.c. Node home writes them while
     * listed is false, control reads them then */
    struct lnet_nid other[LNET_GW_NIS];
    unsigned nothers;
    bool listed;      /* they have changed. Control clears it when they are published */
    uint64_t list_us; /* node home: grows with each change */
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
    uint32_t priority; /* by a selection policy, or LNET_UDSP_NONE */
};

#define LNET_UDSP_WORDS (LNET_UDSPS / 64)
/* A set of selection policies: a bit for each index. */
struct lnet_conf_rules {
    uint64_t word[LNET_UDSP_WORDS];
};

struct lnet_conf_gw {
    struct lnet_gw *gw;
    unsigned nroutes;
    struct lnet_route **route;
    unsigned nnis; /* 1 or more */
    struct lnet_conf_gw_ni *ni;
    struct lnet_conf_rules rules; /* that prefer it for their destinations */
};

/* A peer NI of a gateway in a snapshot. */
struct lnet_conf_gw_ni {
    struct lnet_gw_ni *ni;
    const struct lnet_conf_net *net; /* NULL: not one of ours */
    uint64_t local;                  /* lnet_ni_bit() of the NIs of net */
    uint64_t preferred;              /* of these, those that a selection policy prefers for it */
    uint32_t priority;               /* by a selection policy, or LNET_UDSP_NONE */
    struct lnet_conf_gw *gw;
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
    struct lnet_conf_gw *gw; /* pointer, routes and peer NIs of each */
    struct lnet_route **by_gw;
    uint16_t gw_of[LNET_GW_SLOTS];    /* lnet_gw.index -> index in gw[] */
    struct lnet_conf_gw_ni *gw_ni;    /* those of a gateway adjoin */
    uint32_t gw_mask;                 /* of gw_at[] */
    uint32_t *gw_at;                  /* hash of NID -> index + 1 in gw_ni[] */
    const struct lnet_udsps *udsps;   /* the selection policies; NULL: none */
    struct lnet_conf_rules *rules_of; /* by the index of the first route to a net: policies that
                                         prefer a gateway for it; NULL: none does */
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
/* Returns the peer NI of a gateway by its NID; of two gateways that have it the one that routes
 * name by this NID. NULL: no gateway has it. */
const struct lnet_conf_gw_ni *lnet_conf_gw_ni(const struct lnet_conf *conf,
                                              const struct lnet_nid *nid);
static inline struct lnet_gw_ni *lnet_gw_ni_find(const struct lnet_node *node,
                                                 const struct lnet_nid *nid)
{
    const struct lnet_conf_gw_ni *g = lnet_conf_gw_ni(lnet_conf_get(node), nid);

    return g ? g->ni : NULL;
}
/* Returns the gateway that has a NID, which need not be the one that routes name. */
struct lnet_gw *lnet_gw_find(const struct lnet_node *node, const struct lnet_nid *nid);
/* Returns the number of routes to a net, and the first in *first. */
unsigned lnet_conf_routes(const struct lnet_conf *conf, lnet_net_t net,
                          struct lnet_route *const **first);
/* Returns the selection policy that prefers gateways for dest, or -1. first: of the routes to the
 * net of dest. udsp.c */
int lnet_udsp_gateway_rule(const struct lnet_conf *conf, struct lnet_route *const *first,
                           const struct lnet_nid *dest);
static inline int lnet_conf_gateway_rule(const struct lnet_conf *conf,
                                         struct lnet_route *const *first,
                                         const struct lnet_nid *dest)
{
    return conf->rules_of ? lnet_udsp_gateway_rule(conf, first, dest) : -1;
}
/* Returns what a snapshot has of a gateway; NULL: it does not list the gateway. */
static inline const struct lnet_conf_gw *lnet_conf_gateway(const struct lnet_conf *conf,
                                                           const struct lnet_gw *gw)
{
    unsigned at = conf->gw_of[gw->index];

    return at < conf->ngws_known && conf->gw[at].gw == gw ? &conf->gw[at] : NULL;
}

/* ---- change (control) ---- */

int lnet_conf_init(struct lnet_node *node);
/* Builds the next snapshot, with all gateways of node->gw; copies the pointers. NULL: no memory. */
struct lnet_conf *lnet_conf_build(const struct lnet_node *node, struct lnet_route *const *routes,
                                  unsigned nroutes, struct lnet_ni *const *nis, unsigned nnis);
/* Publishes a snapshot, waits until no reactor uses the one before, and frees that. */
void lnet_conf_publish(struct lnet_node *node, struct lnet_conf *conf);
void lnet_conf_free(struct lnet_conf *conf);

#endif
