/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keepalive, RFC 9293 §3.8.4, with the times of docs/protocol/socklnd.md §3.5: a peer that was
 * silent for 30 s is probed every 5 s; the connection ends after 5 unanswered probes. While data
 * is outstanding, loss recovery detects a dead peer.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#define SECOND        UINT64_C(1000000)
#define KEEP_IDLE     (30 * SECOND)
#define KEEP_INTERVAL (5 * SECOND)
#define KEEP_COUNT    5

void tcp_keep_start(struct tcp_conn *c)
{
    c->keepalive = true;
    c->tries = 0;
    if (c->state == TCP_ESTABLISHED || c->state == TCP_CLOSE_WAIT)
        tcp_conn_timer_set(c, KEEP_IDLE);
}

/* Before what was sent last, and without payload: it cannot but be answered. */
static void probe(struct tcp_conn *c)
{
    c->tries++;
    c->probe_us = reactor_now_us();
    c->count.keepalives_out++;
    (void)tcp_out(c, c->tx.nxt - 1, TCP_FLAG_ACK, NULL, false);
    tcp_conn_timer_set(c, KEEP_INTERVAL);
}

void tcp_keep_timer(struct tcp_conn *c)
{
    uint64_t idle = reactor_now_us() - c->heard_us;
    bool answered = c->tries > 0 && c->heard_us > c->probe_us;

    if (!c->keepalive || (c->state != TCP_ESTABLISHED && c->state != TCP_CLOSE_WAIT))
        return;
    if (answered || (c->tries == 0 && idle < KEEP_IDLE)) {
        c->tries = 0;
        tcp_conn_timer_set(c, idle < KEEP_IDLE ? KEEP_IDLE - idle : 1);
    } else if (!tcp_tx_idle(c)) {
        c->tries = 0;
        tcp_conn_timer_set(c, KEEP_IDLE);
    } else if (c->tries >= KEEP_COUNT) {
        tcp_conn_abort(c, STREAM_END_TIMEOUT);
    } else {
        probe(c);
    }
}
