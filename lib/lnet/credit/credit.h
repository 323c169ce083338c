/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of messages that are to be forwarded. A received header needs a router credit of its
 * sender, a router buffer that is charged to its next hop, and memory for the segments that its
 * transport hands over. It waits for what it lacks, for a bounded time, and its connection is not
 * read meanwhile: that is the back-pressure. docs/protocol/lnet-core.md §4.3, §4.6, §4.9.
 *
 * A message's life here: lnet_admit() takes all three and calls ops->recv(); lnet_admit_received()
 * when the payload is in; lnet_return_router_credit() when the next hop's LND has accepted it, or
 * has it for long; lnet_forward_free() at its end gives back what is left. All run on the shard of
 * the ingress connection.
 *
 * admit.c: admission, accounts of next hops, and the end of a message. wait.c: headers that wait.
 * stall.c: stalled receives. quick.c: next hops that take messages soon. next_hop_stall.c: those
 * that take none. grant.c: memory for segments. pool.c: the router buffers.
 */
#ifndef MILLRACE_LNET_CREDIT_H
#define MILLRACE_LNET_CREDIT_H

#include "lib/lnet/shard/shard.h"

/* Finds a path, a router credit and memory for a message to be forwarded, or lets it wait; then the
 * LND receives its payload. */
void lnet_admit(struct lnet_rx *rx);
/* As lnet_admit(), when the message has waited as a limit of the access rules wants it: for at most
 * lnet_limit_wait_us(). It has the rest of buffer_wait for what it lacks then. */
void lnet_admit_after(struct lnet_rx *rx, uint64_t wait_us);
uint64_t lnet_limit_wait_us(const struct lnet_node *node);
/* Ends the watch for a stalled receive: the payload of a message is in (whole), or its receive
 * failed. */
void lnet_admit_received(struct lnet_rx *rx, bool whole);
/* Sets another path than the message was admitted for, and charges its buffer to that next hop. */
void lnet_admit_rerouted(struct lnet_msg *msg, const struct lnet_path *path);
/* Gives the sender's router credit back, unless that was done before. */
void lnet_return_router_credit(struct lnet_msg *msg);
/* Frees a forwarded message, delivered or dropped, and gives back all that it has: its memory, its
 * sender's router credit and its references, in the order of §4.6. */
void lnet_forward_free(struct lnet_msg *msg);
/* Counts the drop and lets the LND discard the payload. On rx's reactor. */
void lnet_discard(struct lnet_rx *rx, enum lnet_drop reason);

/* max_peers: peer NIs that may have a header wait. */
int lnet_credit_shard_init(struct lnet_shard *s, unsigned max_peers, struct err *err);
void lnet_credit_shard_fini(struct lnet_shard *s);
/* Returns how many router buffers a shard has memory for. */
uint32_t lnet_credit_capacity(const struct lnet_shard *s);
/* Returns how many messages of this node itself a shard has descriptors for. */
unsigned lnet_local_msgs(const struct lnet_node_opts *opts);

#endif
