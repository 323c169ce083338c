/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers: what this node knows of other nodes. A peer is a whole node with one or several NIDs; one
 * of its NIDs is a peer NI (peer_ni.h). A peer is created when a node pushes its ping info to us
 * for the first time, or when a route names the node as its gateway. When the table is full and
 * another node pushes, a peer makes room that never acknowledged a PUSH of ours, else one that did.
 * Of these it is the one that pushed longest ago. A gateway that has not pushed is freed when it is
 * no gateway any more.
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
    bool answers;          /* it has acknowledged a PUSH of ours; lnet_peer_answers() */
    /* what it knows of this node; ping/ writes */
    uint32_t acked_seqno;          /* newest of our ping infos that it has acknowledged */
    bool push_queued, pushing;     /* a PUSH to it waits, or waits for its ACK */
    bool push_again;               /* our info changed while a PUSH was on its way */
    uint8_t failures;              /* PUSHes in a row that it did not acknowledge */
    uint64_t quiet_until_us;       /* after a failure: no PUSH to it before */
    TAILQ_ENTRY(lnet_peer) push;   /* in the queue of PUSHes */
    TAILQ_ENTRY(lnet_peer) by_age; /* in lnet_peers.by_age */
    struct lnet_peer *hash_next;   /* or the next free slot */
};
TAILQ_HEAD(lnet_peer_list, lnet_peer);

/* A table of fixed size: a received PUSH takes no memory from the heap. */
struct lnet_peers {
    struct lnet_peer *slot, *free, **hash; /* hash by nid_hash() */
    uint32_t hash_mask;
    unsigned nslots;
    unsigned npeers, ngateways; /* all of them; those that are gateways */
    unsigned max;               /* peers that are no gateways find no room above that */
    unsigned highest;           /* slots that have ever been used */
    /* Peers that may make room, the one first that pushed longest ago: [0] those that have never
     * acknowledged a PUSH of ours, [1] the others. Gateways are in none. */
    struct lnet_peer_list by_age[2];
    struct lnet_peer_list to_push[2]; /* the same of those to be pushed to, in order */
};

/* Returns the bytes of heap that the table takes. Any thread. */
size_t lnet_peers_bytes(const struct lnet_node_opts *o);
int lnet_peers_init(struct lnet_node *node);  /* control, before start */
void lnet_peers_fini(struct lnet_node *node); /* control, reactors stopped */
/* Returns the peer of a primary NID that has pushed now; creates it if it does not exist, in the
 * place of another if need be. NULL: none can make room, as a PUSH to each is on its way. */
struct lnet_peer *lnet_peer_pushed(struct lnet_node *node, const struct lnet_nid *nid);
/* Puts a peer that is not in it at the end of its queue of those to be pushed to; takes one out. */
void lnet_peer_queue(struct lnet_peers *t, struct lnet_peer *p);
void lnet_peer_unqueue(struct lnet_peers *t, struct lnet_peer *p);
/* It has acknowledged a PUSH of ours, or has not. It is in no queue. */
void lnet_peer_answers(struct lnet_node *node, struct lnet_peer *p, bool answers);
/* Makes the peer of gw->nid a gateway, or ends that. */
void lnet_peer_set_gateway(struct lnet_gw *gw);
void lnet_peer_unset_gateway(struct lnet_gw *gw);

#endif
