/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long messages wait on a reactor, as a histogram for each thing they wait for. A message that
 * waits takes no cycles, so waits are times of single messages: those of many messages at once add
 * up to more than the clock shows.
 */
#ifndef MILLRACE_REACTOR_WAIT_H
#define MILLRACE_REACTOR_WAIT_H

#include "lib/base/atomic.h"
#include "lib/reactor/reactor.h"

enum reactor_wait {
    REACTOR_WAIT_ROUTER_CREDIT, /* a header, until its sender holds fewer router buffers */
    REACTOR_WAIT_BUFFER,        /* a header, for a router buffer or its next hop's share of them */
    REACTOR_WAIT_PEER_CREDIT,   /* a message, for a tx credit of its next hop */
    REACTOR_WAIT_NI_CREDIT,     /* a message, for a tx credit of the NI */
    REACTOR_WAITS
};
const char *reactor_wait_name(enum reactor_wait wait);

#define REACTOR_WAIT_BUCKETS 26

/* Bucket 0: below 1 us, since both ends were in one iteration of the loop; bucket i: from 2^(i - 1)
 * to below 2^i us; the last one: all longer waits too. */
struct reactor_wait_hist {
    uint64_t none; /* messages that had what they needed at once */
    uint64_t total_us;
    uint64_t longest_us;
    uint64_t bucket[REACTOR_WAIT_BUCKETS];
};

/* Copies the histograms of a reactor, which are never reset. Any thread. */
void reactor_waits_get(const struct reactor *r, struct reactor_wait_hist out[REACTOR_WAITS]);

/* ---- for the path; self ---- */

/* The histograms of the reactor that this thread runs; NULL: it runs none. [REACTOR_WAITS] */
extern __thread struct reactor_wait_hist *reactor_waits_on
    __attribute__((tls_model("initial-exec")));

/* Counts a message that had what it needed at once. */
static inline void reactor_wait_none(enum reactor_wait wait)
{
    if (reactor_waits_on)
        count_add(&reactor_waits_on[wait].none, 1);
}

/* Counts a message that has waited since since_us (of reactor_now_us()), with or without success.
 */
void reactor_waited(enum reactor_wait wait, uint64_t since_us);

#endif
