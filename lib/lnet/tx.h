/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: a message with a path crosses to its next hop's home, takes a credit of the peer NI and
 * one of the NI there, and is given to the LND. When the LND has completed it, it returns to the
 * shard that allocated it and ends there: a forwarded message by lnet_forward_free(), a message of
 * this node itself by the function given to lnet_tx_on_local_sent(). A message that could
 * not be sent, and may be sent again (health/health.h), returns, too, and its path is chosen anew.
 * docs/protocol/lnet-core.md §4.5, §4.6, §4.10, §5.1.
 *
 * The reports of the LND, lnet_send_accepted() and lnet_send_done(), are declared in lnd.h.
 */
#ifndef MILLRACE_LNET_TX_H
#define MILLRACE_LNET_TX_H

#include "lib/lnet/shard/shard.h"

/* Chooses the path of a forwarded message again if the one that it has is no longer good. Returns
 * why there is none. On msg->home. rx.c. */
enum lnet_drop lnet_choose_again(struct lnet_msg *msg);
/* Chooses the path of a message that could not be sent anew: by another pair of NI and peer NI, if
 * there is one. Returns why there is none. On msg->home. rx.c. */
enum lnet_drop lnet_choose_other(struct lnet_msg *msg);
/* Sends a message whose path is set (lnet_msg_set_path()). On msg->home. */
void lnet_transmit(struct lnet_msg *msg);
/* Ends a message that cannot be sent, with msg->result set and counted. On msg->home. */
void lnet_transmit_failed(struct lnet_msg *msg);
/* Sets what is called on msg->home when a message of this node itself has been sent or failed. */
void lnet_tx_on_local_sent(struct lnet_node *node, void (*fn)(struct lnet_msg *msg));

/* Fails the forwarded messages that wait for credits of a peer NI and leave by ni (NULL: any). */
void lnet_tx_fail_peer(struct lnet_peer_ni *peer, const struct lnet_ni *ni,
                       struct lnet_result result);
/* Fails some of the waiting messages that leave by a removed NI; *bucket is 0 at first. Returns
 * true after the last one. */
bool lnet_tx_fail_removed(struct lnet_shard *s, uint32_t *bucket);

int lnet_tx_init(struct lnet_shard *s, struct err *err);
void lnet_tx_fini(struct lnet_shard *s);
/* Sets the NI's tx credits on a reactor: on it, or before the node starts. */
void lnet_ni_credits_init(struct lnet_shard *s, const struct lnet_ni *ni);

/* ---- state, for tx.c and its tests ---- */

/* tx credits of an NI on this reactor. */
struct lnet_tx_queue {
    struct lnet_credits credits;
    struct lnet_msg_queue queue;  /* wait for a credit */
    TAILQ_HEAD(, lnet_msg) under; /* with the LND, holding one; the oldest first */
};

struct lnet_tx_shard {
    struct lnet_shard *shard;
    struct lnet_tx_queue tq[LNET_MAX_NI];
    struct lnet_msg_queue ready; /* have all credits */
    bool handing;                /* hand_ready() is on the stack */
    struct reactor_timer overdue_timer;
    struct lnet_msg_queue held; /* completed, but frames still refer to their memory */
    struct reactor_timer held_timer;
};

#endif
