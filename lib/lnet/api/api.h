/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Put/Get API of an end node, and messages addressed to this node: what they match, which
 * events their MDs get, and the answers (ACK, REPLY). A PUT on portal 0 for which no buffer is
 * posted is parked for a while. docs/protocol/lnet-core.md §3.1, §4.8. lnet.h declares the API.
 *
 * All functions run on the node's home reactor, where nothing else is said.
 */
#ifndef MILLRACE_LNET_API_H
#define MILLRACE_LNET_API_H

#include "lib/lnet/shard/shard.h"

#define LNET_PUSH_BUFFERS 64 /* PUSHes that may be arriving at once */

int lnet_api_init(struct lnet_node *node);
void lnet_api_fini(struct lnet_node *node);
/* Decides what happens to the payload of a header received for this node. */
void lnet_local_rx(struct lnet_rx *rx);
/* Ends a receive: the payload is in the MD, or msg->result says why not. */
void lnet_local_rx_done(struct lnet_msg *msg);
/* Ends a receive on the reactor of its connection, where it left with this result. rx.c */
void lnet_local_received(struct lnet_rx *rx, struct lnet_result result);
/* Chooses the path of a message of this node anew, as lnet_choose_other(): a request may go to
 * another NID of the peer. */
enum lnet_drop lnet_local_choose_other(struct lnet_msg *msg);
/* Ends the tracking of responses: the node stops. */
void lnet_responses_stop(struct lnet_node *node);
/* Forgets a PUSH that is not being received any more; any message for this node may be given.
 * Reactor of the connection. */
void lnet_push_received(struct lnet_rx *rx);
/* Matches parked PUTs again in the next iteration: a push buffer was posted. */
void lnet_lazy_retry(struct lnet_node *node);
/* Drops all parked PUTs: the node stops. */
void lnet_lazy_flush(struct lnet_node *node);

#endif
