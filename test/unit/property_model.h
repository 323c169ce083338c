/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model's books, shared by its three files: property_model.c (headers, buffers, the end of a
 * message), property_send.c (tx credits) and property_check.c (comparing with the core).
 */
#ifndef MILLRACE_TEST_PROPERTY_MODEL_H
#define MILLRACE_TEST_PROPERTY_MODEL_H

#include "test/unit/property.h"

struct model_pool {
    unsigned used, stalled;
    unsigned held[2 * MAX_PEERS]; /* by account */
    bool vain[2 * MAX_PEERS];     /* a header for it waited in vain since then */
    int lowest;                   /* free minus waiting, as seen since the last resize */
    unsigned total_then;          /* the size to which that belongs */
};

struct model_ni {
    struct credit credit;
    struct tracked_queue queue;
};

struct books {
    struct tracked *table[MAX_REACTORS];
    struct tracked *active[MAX_TRACKED]; /* forwarded messages that hold a buffer */
    unsigned nactive;
    struct model_pool pool[MAX_REACTORS][LNET_POOLS];
    struct model_ni tq[MAX_REACTORS][MAX_NIS];
    struct tracked_queue ready[MAX_REACTORS];
    uint64_t tx_queued[MAX_PEERS], tx_queued_bytes[MAX_PEERS];
    struct conn *parsing; /* lnet_parse() is on the stack for it */
    struct tracked *releasing;
    uint64_t arrivals, handed, received[MAX_REACTORS]; /* serial numbers */
    uint64_t parsed, done, dropped;                    /* messages of others */
    unsigned dests_at_start[MAX_REACTORS];
    uint64_t rule_changed_us; /* the operator changed something that the rule depends on */
};

extern struct books books;

/* ---- property_model.c ---- */

/* The account of a next hop. */
unsigned acct_of(const struct lnet_nid *next_hop, bool gateway);
/* Buffers that are or will be bound for gateways, with stalled ones; or for end nodes, without. */
unsigned held_for(unsigned r, enum lnet_pool k, bool gateways);
/* Whether one more buffer may be had, by "The rule" in docs/architecture.md. */
bool model_may(unsigned r, enum lnet_pool k, unsigned acct, enum lnet_class class);
enum stage stage_now(const struct conn *c);
int waiting_for_credit(const struct model_peer *p);
/* Receives that the core has found to have stalled since the last look. */
void sync_stalled(void);

/* ---- property_send.c ---- */

void tracked_queue_init(struct tracked_queue *q);
/* Messages that the core has found to be overdue since the last look. */
void sync_overdue(unsigned r);

#endif
