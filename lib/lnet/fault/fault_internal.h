/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of lib/lnet/fault. */
#ifndef MILLRACE_LNET_FAULT_INTERNAL_H
#define MILLRACE_LNET_FAULT_INTERNAL_H

#include "lib/lnet/fault/fault.h"

/* Messages that a rule holds on one reactor. A rule has one delay, so they are due in the order in
 * which they came. */
struct lnet_fault_held {
    struct lnet_fault *rule;
    struct lnet_shard *shard;
    struct lnet_rx_queue rx;   /* headers; due at wait_until_us */
    struct lnet_msg_queue msg; /* due a latency after handed_us */
    uint32_t n;                /* of both; written by the reactor, read anywhere */
    struct reactor_timer timer;
    struct reactor_task task; /* the rule was deleted; then back to control */
};

struct lnet_fault {
    struct lnet_fault_rule conf;
    /* any reactor, atomic */
    uint64_t count;    /* matches; also the position within windows of `rate` messages */
    uint64_t affected; /* dropped or delayed */
    uint64_t by_type[LNET_MSG_TYPES];
    uint64_t window; /* of `interval` seconds: the next one with a message that is affected */
    /* written by control at a reset, read anywhere (relaxed) */
    uint64_t begin_us; /* of window 0 */
    uint64_t seed;     /* of random choices */
    /* control */
    struct lnet_fault *next;       /* of those that were deleted and are not free yet */
    unsigned releasing;            /* reactors that may still hold messages of a deleted rule */
    struct lnet_fault_held held[]; /* by shard */
};

struct lnet_faults {
    unsigned n;
    struct lnet_fault *rule[]; /* the newest first */
};

/* ---- held.c ---- */

void lnet_fault_held_init(struct lnet_fault *rule, struct lnet_node *node);
/* Lets go of all that a rule holds, on each reactor, and frees the rule afterwards. The rule is in
 * no snapshot. Control. */
void lnet_fault_release(struct lnet_fault *rule, struct lnet_node *node);

/* ---- fault.c ---- */

/* Whether a delay rule takes a message; counts. */
bool lnet_fault_delays(struct lnet_fault *rule, const struct lnet_hdr *hdr);
/* Frees a deleted rule that no reactor knows any more. Control. */
void lnet_fault_gone(struct lnet_fault *rule, struct lnet_node *node);

#endif
