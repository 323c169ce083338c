/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The node's table of peers (table.h): what this node knows of other nodes. A peer is created when
 * a node pushes its ping info to us for the first time, or when a route names the node as its
 * gateway. A gateway is a pinned NID: it always finds room.
 *
 * The node's home owns the table and every peer in it. Reactors never see a peer: they have peer
 * NIs (peer_ni.h), and of a gateway the state that struct lnet_gw (shard/conf.h) publishes.
 */
#ifndef MILLRACE_LNET_PEERS_H
#define MILLRACE_LNET_PEERS_H

#include "lib/lnet/peer/table.h"
#include "lib/lnet/shard/shard.h"

/* Returns the bytes of heap that the table takes. Any thread. */
size_t lnet_peers_bytes(const struct lnet_node_opts *o);
/* Creates the table; notify gets the node as its arg. Control, before start. */
int lnet_peers_init(struct lnet_node *node,
                    void (*notify)(void *node, const struct peer_event *event));
void lnet_peers_fini(struct lnet_node *node); /* control, reactors stopped */
/* Makes the peer of gw->nid a gateway, or ends that. Node home. */
void lnet_peer_set_gateway(struct lnet_gw *gw);
void lnet_peer_unset_gateway(struct lnet_gw *gw);

#endif
