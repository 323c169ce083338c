/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: what this node knows of other nodes. A peer is a whole node with one or several NIDs; one
 * of its NIDs is a peer NI (peer_ni.h). A peer is created when a node pushes its ping info to us
 * for the first time, or when a route names the node as its gateway. A peer that has pushed stays
 * until this node is destroyed; another one is freed when it is no gateway any more.
 *
 * The node's home owns the table and every peer in it. Reactors never see a peer: they have peer
 * NIs, and of a gateway the state that struct lnet_gw (shard/conf.h) publishes.
 */
#ifndef MILLRACE_LNET_PEER_H
#define MILLRACE_LNET_PEER_H

#include "lib/lnet/shard/shard.h"

struct lnet_peer {
    struct lnet_nid primary; /* the NID that it pushes from; of a gateway, the NID in the routes */
    bool used;               /* the slot has a peer */
    uint32_t features;     /* of its last PUSH; 0: it has not pushed, or did not acknowledge ours */
    struct lnet_nid local; /* our NID that it talks to */
    struct lnet_gw *gw;    /* NULL: no gateway */
    /* what it knows of this node; ping/ writes */
    uint32_t acked_seqno;        /* newest of our ping infos that it has acknowledged */
    bool push_queued, pushing;   /* a PUSH to it waits, or waits for its ACK */
    bool push_again;             /* our info changed while a PUSH was on its way */
    struct lnet_peer *push_next; /* in the queue of PUSHes */
    struct lnet_peer *hash_next; /* or the next free slot */
};

/* A table of fixed size: a received PUSH takes no memory from the heap. */
struct lnet_peers {
    struct lnet_peer *slot, *free, **hash; /* hash by nid_hash() */
    uint32_t hash_mask;
    unsigned nslots;
    unsigned npeers, ngateways; /* all of them; those that are gateways */
    unsigned max;               /* peers that are no gateways find no room above that */
    unsigned highest;           /* slots that have ever been used */
};

/* Returns the bytes of heap that the table takes. Any thread. */
size_t lnet_peers_bytes(const struct lnet_node_opts *o);
int lnet_peers_init(struct lnet_node *node);  /* control, before start */
void lnet_peers_fini(struct lnet_node *node); /* control, reactors stopped */
/* Returns the peer of a primary NID, or NULL. */
struct lnet_peer *lnet_peer_find(const struct lnet_node *node, const struct lnet_nid *nid);
/* Returns the same; creates the peer if it does not exist. NULL: the table is full. */
struct lnet_peer *lnet_peer_get(struct lnet_node *node, const struct lnet_nid *nid);
/* Makes the peer of gw->nid a gateway, or ends that. */
void lnet_peer_set_gateway(struct lnet_gw *gw);
void lnet_peer_unset_gateway(struct lnet_gw *gw);

#endif
