/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion control of RFC 5681. */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

struct newreno {
    uint64_t counted; /* bytes acknowledged since cwnd last grew */
};

static struct newreno *own(struct tcp_conn *c)
{
    return (struct newreno *)c->tx.cc;
}

static void start_over(struct tcp_conn *c)
{
    own(c)->counted = 0;
}

/* §3.1: a segment for each window that was acknowledged. */
static void acked(struct tcp_conn *c, uint32_t n, uint64_t now_us, bool limited)
{
    if (!limited)
        return;
    n = tcp_cc_slow_start(c, n);
    own(c)->counted += n;
    while (n > 0 && own(c)->counted >= c->tx.cwnd) {
        own(c)->counted -= c->tx.cwnd;
        tcp_cc_grow(c, c->mss);
    }
}

/* §3.1 equation 4: of what was in flight, not of cwnd. */
static uint32_t ssthresh(struct tcp_conn *c)
{
    own(c)->counted = 0;
    return max(tcp_cc_flight(c) / 2, 2 * c->mss);
}

const struct tcp_cc tcp_cc_newreno = {
    .name = "newreno",
    .init = start_over,
    .acked = acked,
    .ssthresh = ssthresh,
    .rto = start_over,
    .undo = start_over,
};
