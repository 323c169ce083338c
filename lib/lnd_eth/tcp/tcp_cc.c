/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion control: the table, and what its rows have in common. */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define CWND_MAX (1u << 30) /* bytes */

static const struct tcp_cc *const table[] = {&tcp_cc_cubic, &tcp_cc_newreno};

const struct tcp_cc *tcp_cc_find(const char *name)
{
    if (!name)
        return table[0];
    for (unsigned i = 0; i < RTE_DIM(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

/* Where una has moved since, flight is what there was before. */
uint32_t tcp_cc_flight(const struct tcp_conn *c)
{
    return min(max(c->tx.flight, c->tx.nxt - c->tx.una), c->tx.cwnd);
}

/* RFC 6928 §2. */
uint32_t tcp_cc_initial(const struct tcp_conn *c)
{
    return min(10 * c->mss, max(2 * c->mss, 14600u));
}

void tcp_cc_grow(struct tcp_conn *c, uint32_t by)
{
    c->tx.cwnd = min(c->tx.cwnd + min(by, CWND_MAX), CWND_MAX);
}

/* Slow start (RFC 5681 §3.1), counting bytes (RFC 3465), as one ACK may cover many segments that
 * a device or kernel joined. Returns the bytes above ssthresh, for congestion avoidance. */
uint32_t tcp_cc_slow_start(struct tcp_conn *c, uint32_t acked)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t n;

    if (tx->cwnd >= tx->ssthresh)
        return acked;
    n = min(acked, tx->ssthresh - tx->cwnd);
    tcp_cc_grow(c, n);
    return acked - n;
}

/* Nothing was sent for longer than an RTO: what cwnd says of the path is old. It is halved for each
 * RTO (RFC 7661 §4.4.2 has the same decay per RTO), down to what a connection may begin with
 * (RFC 5681 §4.1), and ssthresh remembers what there was. */
void tcp_cc_idle(struct tcp_conn *c, uint64_t idle_us)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t least = min(tcp_cc_initial(c), tx->cwnd);

    if (tx->state != TCP_CC_OPEN)
        return;
    if (tx->ssthresh != UINT32_MAX || tx->cwnd > least)
        tx->ssthresh = max(tx->ssthresh == UINT32_MAX ? 0 : tx->ssthresh, tx->cwnd / 4 * 3);
    for (; idle_us > tx->rto && tx->cwnd > least; idle_us -= tx->rto)
        tx->cwnd = max(tx->cwnd / 2, least);
    if (c->sh->tcp->cc->idle)
        c->sh->tcp->cc->idle(c, idle_us);
}
