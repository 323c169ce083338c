/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proportional rate reduction, RFC 9937 (RFC 6937): how much goes out in recovery for what arrives,
 * so that there is ssthresh in flight in the end.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

/* After the ACK that told of the loss was reckoned in, by which `delivered` bytes arrived. */
void tcp_prr_start(struct tcp_conn *c, uint32_t delivered)
{
    struct tcp_tx *tx = &c->tx;

    tx->prr_delivered = 0;
    tx->prr_out = 0;
    /* RecoverFS: bytes in flight when the ACK came, with lost bytes, without bytes that were
     * sacked before. */
    tx->prr_flight = max(tcp_pipe(c) + tx->lost_bytes + delivered, 1u);
}

/* delivered: bytes that arrived by this ACK. safe: una moved and nothing more was found lost. */
void tcp_prr_ack(struct tcp_conn *c, uint32_t delivered, bool safe)
{
    struct tcp_tx *tx = &c->tx;
    uint64_t pipe = tcp_pipe(c), may, owed, limit;

    tx->prr_delivered += delivered;
    owed = tx->prr_delivered > tx->prr_out ? tx->prr_delivered - tx->prr_out : 0;
    if (pipe > tx->ssthresh) {
        may = ((uint64_t)tx->prr_delivered * tx->ssthresh + tx->prr_flight - 1) / tx->prr_flight;
        may = may > tx->prr_out ? may - tx->prr_out : 0;
    } else {
        limit = safe ? max(owed, delivered) + c->mss : owed;
        may = min(tx->ssthresh - pipe, limit);
    }
    /* The first retransmission is not held back. */
    if (tx->prr_out == 0)
        may = max(may, c->mss);
    tx->cwnd = (uint32_t)max(pipe + may, c->mss);
}
