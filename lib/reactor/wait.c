/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/reactor/wait.h"
#include "lib/reactor/reactor_internal.h"

__thread struct reactor_wait_hist *reactor_waits_on;

void reactor_waited(enum reactor_wait wait, uint64_t since_us)
{
    uint64_t us = reactor_now_us() - since_us;
    unsigned bucket = us == 0 ? 0 : 64 - (unsigned)__builtin_clzll(us);
    struct reactor_wait_hist *h;

    if (!reactor_waits_on)
        return;
    h = &reactor_waits_on[wait];
    count_add(&h->bucket[min(bucket, REACTOR_WAIT_BUCKETS - 1u)], 1);
    count_add(&h->total_us, us);
    if (us > h->longest_us)
        relaxed_store(&h->longest_us, us);
}

const char *reactor_wait_name(enum reactor_wait wait)
{
    static const char *const names[REACTOR_WAITS] = {
        [REACTOR_WAIT_ROUTER_CREDIT] = "peer_router_credit",
        [REACTOR_WAIT_BUFFER] = "router_buffer",
        [REACTOR_WAIT_PEER_CREDIT] = "peer_tx_credit",
        [REACTOR_WAIT_NI_CREDIT] = "ni_tx_credit",
    };

    return (unsigned)wait < REACTOR_WAITS ? names[wait] : "unknown";
}

void reactor_waits_get(const struct reactor *r, struct reactor_wait_hist out[REACTOR_WAITS])
{
    for (unsigned i = 0; i < REACTOR_WAITS; i++)
        counters_copy_all(&out[i], &r->waits[i]);
}
