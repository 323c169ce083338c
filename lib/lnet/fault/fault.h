/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection: rules by which messages are dropped, fail or are delayed on purpose.
 * docs/protocol/lnet-core.md §9.1. The operator's rules are a snapshot of pointers; control
 * publishes another for each rule that comes or goes. Without rules there is none, and a message
 * pays one look at a pointer when it arrives and one when it is sent.
 *
 * Life cycle: a drop rule is evaluated when a message arrives, or, with a health mask, when the LND
 * would get it. A delay rule is evaluated at both points. A header that a rule holds is not read
 * further, as one that waits for a limit. A message that a rule holds keeps its buffer and its
 * credits. So a connection has as many held headers as its LND has receives, one on a stream, and
 * credits bound the held messages.
 * A rule that is deleted lets go of them at once, and is freed when each reactor has done so.
 *
 * Counters of a rule are atomic and common to all reactors, so that `1 in R` is exact. Held
 * messages belong to the reactor that holds them.
 */
#ifndef MILLRACE_LNET_FAULT_H
#define MILLRACE_LNET_FAULT_H

#include "lib/lnet/shard/shard.h"

/* Returns the snapshot; NULL: there are no rules. Any thread; valid on a reactor until the end of
 * its loop iteration. */
static inline const struct lnet_faults *lnet_faults(const struct lnet_node *node)
{
    return __atomic_load_n(&node->faults, __ATOMIC_ACQUIRE);
}

/* ---- a header; the home of rx->from ---- */

/* Returns whether a drop rule without health mask drops an arriving message. §4.2 row 10. */
bool lnet_fault_drops(const struct lnet_faults *f, const struct lnet_rx *rx);
/* Returns whether a delay rule holds an arriving message. Calls rx->task.fn on this reactor when
 * the delay has passed, unless lnet_fault_leave() comes first. §4.2 row 16. */
bool lnet_fault_holds_rx(const struct lnet_faults *f, struct lnet_rx *rx);
/* Ends the wait of a header that is held. */
void lnet_fault_leave(struct lnet_rx *rx);

/* ---- a message that has its credits; the home of msg->tx_peer ---- */

/* Returns whether a delay rule holds a message. Calls msg->task.fn on this reactor when the delay
 * has passed. §4.5. */
bool lnet_fault_holds_msg(const struct lnet_faults *f, struct lnet_msg *msg);
/* Returns the status with which a drop rule with health mask completes a message that is about to
 * be sent; LNET_HEALTH_OK: none does. */
enum lnet_health lnet_fault_status(const struct lnet_faults *f, const struct lnet_msg *msg);
/* Lets go of the messages of this reactor that leave by a removed NI. */
void lnet_fault_flush(struct lnet_shard *s);

/* ---- control ---- */

/* Deletes all rules, and lets no more come: the node stops. */
void lnet_faults_end(struct lnet_node *node);
/* Frees all rules. After all reactors were stopped. */
void lnet_faults_fini(struct lnet_node *node);

#endif
