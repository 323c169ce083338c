/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Life of a connection: from the pool, through the handshake, to its end, and back. A connection
 * that ends leaves the table at once, so that the same addresses may begin anew. The object stays
 * until tcp_flush() has notified the user and the user has closed.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <string.h>

#define SECOND        UINT64_C(1000000)
#define SYN_LINEAR    4 /* SYNs at intervals of a second, before the interval doubles */
#define SYN_TRIES     9
#define SYN_SOON_US   10000
#define SYN_ACK_TRIES 5
#define FIN_WAIT_2_US (60 * SECOND)
#define KEEP_IDLE     (30 * SECOND) /* docs/protocol/socklnd.md §3.5 */
#define KEEP_INTERVAL (5 * SECOND)
#define KEEP_COUNT    5

static void on_ack_timer(struct reactor_timer *t);
static void on_conn_timer(struct reactor_timer *t);

/* ---- pool and lists ---- */

struct tcp_conn *tcp_conn_new(struct tcp_shard *sh, const struct tcp_key *key,
                              const struct inet_path *path)
{
    struct tcp_conn *c = sh->free_conns;

    if (!c)
        return NULL;
    sh->free_conns = c->next;
    sh->nfree--;
    memset(c, 0, sizeof(*c));
    c->base.ops = &stream_tcp;
    c->owner = sh;
    c->flow.kind = TCP_FLOW_CONN;
    c->flow.key = *key;
    c->flow.hash = tcp_key_hash(sh->tcp, key);
    c->lport = key->lport;
    c->rport = key->rport;
    c->path = *path;
    c->made_us = c->heard_us = reactor_now_us();
    c->ts_offset = tcp_ts_offset(sh->tcp, key);
    c->iss = tcp_isn(sh->tcp, key);
    reactor_timer_init(&c->ack_timer, on_ack_timer);
    reactor_timer_init(&c->conn_timer, on_conn_timer);
    return c;
}

static bool is_half_open(const struct tcp_conn *c)
{
    return c->state == TCP_SYN_RCVD && c->listener;
}

void tcp_conn_enter(struct tcp_conn *c, struct tcp_shard *sh)
{
    c->sh = sh;
    tcp_rx_own(c, true);
    if (is_half_open(c)) {
        TAILQ_INSERT_TAIL(&sh->half, c, link);
        sh->half_open++;
        count_add(&sh->stats.half_open, 1);
    } else {
        TAILQ_INSERT_TAIL(&sh->conns, c, link);
        count_add(&sh->stats.conns_now, 1);
    }
}

void tcp_conn_exit(struct tcp_conn *c)
{
    struct tcp_shard *sh = c->sh;

    tcp_rx_own(c, false);
    if (is_half_open(c)) {
        TAILQ_REMOVE(&sh->half, c, link);
        sh->half_open--;
        count_add(&sh->stats.half_open, (uint64_t)-1);
    } else {
        TAILQ_REMOVE(&sh->conns, c, link);
        count_add(&sh->stats.conns_now, (uint64_t)-1);
    }
    if (c->in_work)
        TAILQ_REMOVE(c->work_list, c, work_link);
    c->in_work = false;
    if (sh->current == c)
        sh->current = NULL;
}

void tcp_work(struct tcp_conn *c)
{
    if (c->in_work || !c->sh)
        return;
    c->in_work = true;
    c->work_list = c->tx.much ? &c->sh->much : &c->sh->work;
    TAILQ_INSERT_TAIL(c->work_list, c, work_link);
}

void tcp_conn_release(struct tcp_conn *c)
{
    reactor_timer_cancel(&c->ack_timer);
    reactor_timer_cancel(&c->conn_timer);
    tcp_tx_free(c);
    tcp_rx_free(c);
    tcp_conn_exit(c);
    c->released = true;
    tcp_flow_gone(c);
}

/* ---- states ---- */

/* Keeps it in the list that its state wants. */
static void set_state(struct tcp_conn *c, enum tcp_state state)
{
    bool work = c->in_work;
    struct tcp_shard *sh = c->sh;
    struct tcp_conn *current = sh->current;

    if (!is_half_open(c)) {
        c->state = state;
        return;
    }
    tcp_conn_exit(c);
    c->state = state;
    tcp_conn_enter(c, sh);
    sh->current = current;
    if (work)
        tcp_work(c);
}

/* ---- ends ---- */

void tcp_conn_end(struct tcp_conn *c, enum stream_end end)
{
    if (c->ended)
        return;
    tcp_orphan_leave(c);
    c->ended = true;
    c->end = c->rx.fin_done && end == STREAM_END_RESET ? STREAM_END_EOF : end;
    set_state(c, TCP_CLOSED);
    reactor_timer_cancel(&c->ack_timer);
    reactor_timer_cancel(&c->conn_timer);
    c->ack_now = false;
    tcp_tx_free(c);
    tcp_flow_remove(c->sh, &c->flow);
    if (c->user_gone)
        tcp_rx_free(c);
    c->tell_readable |= c->rx.queued > 0;
    tcp_work(c);
}

void tcp_conn_abort(struct tcp_conn *c, enum stream_end end)
{
    if (c->ended)
        return;
    if (c->state != TCP_SYN_SENT)
        (void)tcp_out(c, c->tx.nxt, TCP_FLAG_RST | TCP_FLAG_ACK, NULL, false);
    tcp_conn_end(c, end);
}

/* RFC 9293 §3.6.1: late segments are answered for a while, by something small. */
static void to_time_wait(struct tcp_conn *c)
{
    if (c->ended)
        return;
    if (c->ack_now)
        tcp_out_ack(c);
    c->time_wait = true;
    tcp_conn_end(c, STREAM_END_EOF);
    if (!c->home)
        tcp_tw_add(c->sh, c);
}

/* Our FIN is acknowledged: RFC 9293 §3.10.7.4, fifth. */
static void fin_acked(struct tcp_conn *c)
{
    switch (c->state) {
    case TCP_FIN_WAIT_1:
        set_state(c, TCP_FIN_WAIT_2);
        tcp_orphan_fin_acked(c);
        reactor_timer_arm(&c->conn_timer, FIN_WAIT_2_US);
        break;
    case TCP_CLOSING:
        to_time_wait(c);
        break;
    case TCP_LAST_ACK:
        tcp_conn_end(c, STREAM_END_EOF);
        break;
    default:
        break;
    }
}

/* The peer's FIN: §3.10.7.4, eighth. */
void tcp_conn_fin(struct tcp_conn *c)
{
    c->ack_now = true;
    switch (c->state) {
    case TCP_SYN_RCVD:
    case TCP_ESTABLISHED:
        set_state(c, TCP_CLOSE_WAIT);
        break;
    case TCP_FIN_WAIT_1: /* if our FIN is acknowledged too, tcp_conn_settle() has seen it */
        set_state(c, TCP_CLOSING);
        break;
    case TCP_FIN_WAIT_2:
        to_time_wait(c);
        break;
    default:
        break;
    }
    tcp_work(c);
}

void tcp_conn_settle(struct tcp_conn *c)
{
    if (c->tx.fin_acked && !c->ended)
        fin_acked(c);
}

/* ---- handshake ---- */

/* Sends a SYN or SYN-ACK; the next one goes after wait_us. Until the sending side is open the place
 * of our SYN in the sequence is kept in tx. */
static void send_syn(struct tcp_conn *c, uint8_t flags, uint64_t wait_us)
{
    c->tx.una = c->iss;
    c->tx.nxt = c->snd_max = c->iss + 1;
    c->syn_us = reactor_now_us();
    (void)tcp_out(c, c->iss, flags, NULL, false);
    reactor_timer_arm(&c->conn_timer, wait_us);
}

/* RFC 3168 §6.1.1.1: when the first is not answered, the ECN bits may be why. */
void tcp_conn_syn(struct tcp_conn *c)
{
    uint8_t flags = TCP_FLAG_SYN;

    if (++c->tries == 1 && c->ecn_on)
        flags |= TCP_FLAG_ECE | TCP_FLAG_CWR;
    send_syn(c, flags, c->tries <= SYN_LINEAR ? SECOND : SECOND << (c->tries - SYN_LINEAR));
}

void tcp_conn_syn_ack(struct tcp_conn *c)
{
    uint8_t ece = c->ecn_on ? TCP_FLAG_ECE : 0;

    c->tries++;
    send_syn(c, TCP_FLAG_SYN | TCP_FLAG_ACK | ece, SECOND << (c->tries - 1));
}

void tcp_conn_syn_soon(struct tcp_conn *c)
{
    if (c->tries <= SYN_LINEAR)
        reactor_timer_arm(&c->conn_timer, SYN_SOON_US);
}

static void handshake_timer(struct tcp_conn *c)
{
    unsigned most = c->state == TCP_SYN_SENT ? SYN_TRIES : SYN_ACK_TRIES + 1;

    if (c->tries >= most)
        tcp_conn_end(c, STREAM_END_TIMEOUT);
    else if (c->state == TCP_SYN_SENT)
        tcp_conn_syn(c);
    else
        tcp_conn_syn_ack(c);
}

void tcp_conn_up(struct tcp_conn *c, const struct tcp_seg *seg)
{
    uint64_t rtt = c->tries == 1 ? max(reactor_now_us() - c->syn_us, UINT64_C(1)) : 0;
    uint32_t wnd = seg->win;

    if (!(seg->flags & TCP_FLAG_SYN)) /* RFC 7323 §2.2: never scaled in a SYN */
        wnd <<= c->snd_wscale;
    reactor_timer_cancel(&c->conn_timer);
    c->tries = 0;
    set_state(c, TCP_ESTABLISHED);
    tcp_out_mss(c);
    tcp_tx_open(c, c->iss + 1, wnd, seg->seq, rtt);
    if (c->listener) { /* accepted() is due, at the end of the burst */
        c->user_gone = false;
        count_add(&c->sh->stats.conns_in, 1);
    } else {
        c->tell_connected = true;
    }
    tcp_work(c);
}

/* ---- closing ---- */

/* RFC 9293 §3.10.4. */
void tcp_conn_close(struct tcp_conn *c, bool abort)
{
    c->user_gone = true;
    c->attached = false;
    if (c->sh->current == c)
        c->sh->current = NULL;
    if (c->ended) {
        tcp_rx_free(c);
        tcp_work(c);
    } else if (c->state == TCP_SYN_SENT) {
        tcp_conn_end(c, STREAM_END_ERROR);
    } else if (abort || c->rx.queued > 0 || c->state == TCP_SYN_RCVD) {
        /* An answer given just before, to what is not read any further, still goes out. */
        if (!abort && c->state >= TCP_ESTABLISHED)
            (void)tcp_tx_run(c);
        tcp_conn_abort(c, STREAM_END_RESET);
    } else {
        set_state(c, c->state == TCP_CLOSE_WAIT ? TCP_LAST_ACK : TCP_FIN_WAIT_1);
        reactor_timer_cancel(&c->conn_timer);
        tcp_rx_free(c);
        tcp_tx_fin(c);
        tcp_work(c);
        tcp_orphan_closed(c);
    }
}

/* ---- keepalive, RFC 9293 §3.8.4 ---- */

/* A silent peer is probed; the connection ends after some probes without an answer. While data is
 * outstanding, loss recovery detects a dead peer. */

void tcp_keep_start(struct tcp_conn *c)
{
    c->keepalive = true;
    c->tries = 0;
    if (c->state == TCP_ESTABLISHED || c->state == TCP_CLOSE_WAIT)
        reactor_timer_arm(&c->conn_timer, KEEP_IDLE);
}

/* Before what was sent last, and without payload: it cannot but be answered. */
static void probe(struct tcp_conn *c)
{
    c->tries++;
    c->probe_us = reactor_now_us();
    c->count.keepalives_out++;
    (void)tcp_out(c, c->tx.nxt - 1, TCP_FLAG_ACK, NULL, false);
    reactor_timer_arm(&c->conn_timer, KEEP_INTERVAL);
}

static void keep_timer(struct tcp_conn *c)
{
    uint64_t idle = reactor_now_us() - c->heard_us;
    bool answered = c->tries > 0 && c->heard_us > c->probe_us;

    if (!c->keepalive || (c->state != TCP_ESTABLISHED && c->state != TCP_CLOSE_WAIT))
        return;
    if (answered || (c->tries == 0 && idle < KEEP_IDLE)) {
        c->tries = 0;
        reactor_timer_arm(&c->conn_timer, idle < KEEP_IDLE ? KEEP_IDLE - idle : 1);
    } else if (!tcp_tx_idle(c)) {
        c->tries = 0;
        reactor_timer_arm(&c->conn_timer, KEEP_IDLE);
    } else if (c->tries >= KEEP_COUNT) {
        tcp_conn_abort(c, STREAM_END_TIMEOUT);
    } else {
        probe(c);
    }
}

/* ---- timers ---- */

static void on_conn_timer(struct reactor_timer *t)
{
    struct tcp_conn *c = container_of(t, struct tcp_conn, conn_timer);

    switch (c->state) {
    case TCP_SYN_SENT:
    case TCP_SYN_RCVD:
        handshake_timer(c);
        break;
    case TCP_FIN_WAIT_2:
        tcp_conn_end(c, STREAM_END_TIMEOUT);
        break;
    default:
        keep_timer(c);
        break;
    }
}

static void on_ack_timer(struct reactor_timer *t)
{
    struct tcp_conn *c = container_of(t, struct tcp_conn, ack_timer);

    c->ack_now = true;
    tcp_work(c);
}
