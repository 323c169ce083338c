/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SACK blocks for data that came out of order (RFC 2018 §4: the range that changed last
 * comes first, the others follow by age) or twice (RFC 2883: first of all, and once).
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

/* Takes out of the list what lies within [left, right). */
static void forget(struct tcp_rx *rx, uint32_t left, uint32_t right)
{
    uint8_t n = 0;

    for (uint8_t i = 0; i < rx->nrecent; i++) {
        const struct tcp_sack_block *b = &rx->recent[i];

        if (seq_leq(left, b->left) && seq_leq(b->right, right))
            continue;
        rx->recent[n++] = *b;
    }
    rx->nrecent = n;
}

void tcp_rx_sack_recent(struct tcp_conn *c, uint32_t left, uint32_t right)
{
    struct tcp_rx *rx = &c->rx;

    forget(rx, left, right);
    if (rx->nrecent == TCP_SACK_MAX)
        rx->nrecent--;
    for (unsigned i = rx->nrecent; i > 0; i--)
        rx->recent[i] = rx->recent[i - 1];
    rx->recent[0] = (struct tcp_sack_block){left, right};
    rx->nrecent++;
}

void tcp_rx_sack_drop(struct tcp_conn *c, uint32_t left, uint32_t right)
{
    forget(&c->rx, left, right);
}

void tcp_rx_sack_trim(struct tcp_conn *c)
{
    struct tcp_rx *rx = &c->rx;
    uint8_t n = 0;

    for (uint8_t i = 0; i < rx->nrecent; i++) {
        if (seq_lt(rx->nxt, rx->recent[i].right))
            rx->recent[n++] = rx->recent[i];
    }
    rx->nrecent = n;
}

void tcp_rx_duplicate(struct tcp_conn *c, uint32_t left, uint32_t right)
{
    c->ack_now = true;
    if (!c->sack_on || !seq_lt(left, right))
        return;
    c->rx.dsack = true;
    c->rx.dsack_block = (struct tcp_sack_block){left, right};
}

unsigned tcp_rx_sacks(struct tcp_conn *c, struct tcp_sack_block *out, unsigned max)
{
    struct tcp_rx *rx = &c->rx;
    unsigned n = 0;

    if (max == 0)
        return 0;
    if (rx->dsack) {
        out[n++] = rx->dsack_block;
        rx->dsack = false;
        c->count.dsacks_out++;
    }
    for (uint8_t i = 0; i < rx->nrecent && n < max; i++)
        out[n++] = rx->recent[i];
    c->count.sacks_out += n > 0;
    return n;
}
