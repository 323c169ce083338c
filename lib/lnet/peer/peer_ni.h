/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peer NIs: each is one address that this node has connections to, or wants to. A peer NI lives in
 * the hash of its home reactor's shard; a received header or a next hop can create one. The table
 * is of fixed size: when it is full, the peer NI that has been unused for longest makes room. A
 * peer NI with references (connections, messages) is never removed.
 *
 * lnd.h declares the structure and the functions that LNDs call too; lnet.h declares the rows that
 * observers read.
 */
#ifndef MILLRACE_LNET_PEER_NI_H
#define MILLRACE_LNET_PEER_NI_H

#include "lib/lnet/shard/conf.h"

struct lnet_peer_shard {
    struct lnet_peer_ni *peers, *free_peers;
    void *peers_memory;
    struct lnet_peer_ni **hash; /* by nid_hash() */
    uint32_t hash_mask, npeers;
    uint32_t peers_used;             /* slots of peers[] that have ever been used */
    TAILQ_HEAD(, lnet_peer_ni) idle; /* refs == 0, oldest first */
    /* health/: their health changed; they are pinged until they are well again; they are not well
     * and not pinged */
    TAILQ_HEAD(lnet_peer_ni_list, lnet_peer_ni) changed, recovering, unpinged;
    unsigned nrecovering, nunpinged;
};

/* Returns how many peer NIs a shard has room for. */
unsigned lnet_peer_nis_per_shard(const struct lnet_node_opts *opts, unsigned reactors);
int lnet_peer_nis_init(struct lnet_shard *s, unsigned max, struct err *err);
void lnet_peer_nis_fini(struct lnet_shard *s);
/* Returns the peer NI of a NID whose home is the calling reactor, without a reference; NULL if it
 * does not exist. */
struct lnet_peer_ni *lnet_peer_ni_find_here(const struct lnet_node *node,
                                            const struct lnet_nid *nid);
/* Takes a peer NI out of the queue of those that are pinged, or are not. Home of the NID. */
void lnet_peer_ni_unqueue_recovery(struct lnet_peer_ni *p);
/* Fills in the row of a peer NI, on its home reactor. */
void lnet_peer_ni_row_fill(const struct lnet_shard *s, const struct lnet_peer_ni *p,
                           struct lnet_peer_ni_row *row);
/* Returns zeroed memory, so touched that a reactor that writes to it faults no page. NULL: out of
 * memory. */
void *lnet_request_alloc(size_t size);
/* Sets the counters of some peer NIs to 0, from *slot on. Returns true after the last one. */
bool lnet_peer_nis_reset_counts(struct lnet_shard *s, uint32_t *slot);

/* Publishes the state of a peer NI of a gateway for path selection. Home of the peer NI. */
static inline void lnet_gw_ni_publish(struct lnet_peer_ni *peer)
{
    struct lnet_gw_ni *g = peer->gw_ni;

    if (!g)
        return;
    relaxed_store(&g->tx_credits, peer->tx.now);
    relaxed_store(&g->queued_bytes, peer->tx_queued_bytes);
}

/* The same of its health, which changes seldom. */
static inline void lnet_gw_ni_publish_health(struct lnet_peer_ni *peer)
{
    if (peer->gw_ni)
        relaxed_store(&peer->gw_ni->health, peer->health);
}

/* Notifies the node's home that the state of a gateway's peer NI may have changed. Home of its NID.
 */
void lnet_gw_ni_changed(struct lnet_gw_ni *ni, const char *cause);
/* Records whether an NI of ours can send to a gateway's peer NI. Home of its NID. */
void lnet_gw_ni_pair(struct lnet_gw_ni *to, const struct lnet_ni *from, bool up, const char *cause);
/* The same of the NIs with these bits. */
void lnet_gw_ni_pairs(struct lnet_gw_ni *to, uint64_t bits, bool up, const char *cause);
/* Records a message that came from a gateway's peer NI to an NI of ours. Home of its NID. */
static inline void lnet_gw_ni_heard(struct lnet_gw_ni *from, const struct lnet_ni *to)
{
    relaxed_store(&from->message_us, reactor_now_us());
    if (from->pairs_down)
        lnet_gw_ni_pair(from, to, true, "message_received");
}

/* Returns the first peer NI of the bucket that a NID with this nid_hash() is in. */
static inline struct lnet_peer_ni *lnet_peer_ni_bucket(const struct lnet_shard *s, uint32_t hash)
{
    return s->peer->hash[hash & s->peer->hash_mask];
}

#endif
