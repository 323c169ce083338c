/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Round-trip times and the timers: retransmission (RFC 6298), probes of a closed window (RFC 9293
 * §3.8.6.1), the user's time-out. RACK-TLP's two timers run on the same timer, tcp_rack.c.
 *
 * Due times are in struct tcp_tx. The timer is armed for the earliest, and not moved when
 * that becomes later, as it does with each ACK: it then fires once for nothing.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define RTO_AFTER_LOST_SYN 3000000u /* RFC 6298 §5.7 */
#define MIN_RTT_SPAN_US    150000000u
#define TS_RTT_MAX         600000u /* ms; what is more is no time */
#define BACKOFF_MAX        16

static void timer_fires(struct reactor_timer *t);

/* ---- round-trip time ---- */

/* 200 ms above the mean, not in all: a peer may delay its ACK by so much at any time. */
static void set_rto(struct tcp_tx *tx)
{
    uint64_t rto = tx->srtt + max((uint64_t)tx->rttvar * 4, (uint64_t)TX_RTO_MIN);

    tx->rto = (uint32_t)min(rto, (uint64_t)TX_RTO_MAX);
}

static void first_sample(struct tcp_tx *tx, uint32_t rtt)
{
    tx->srtt = rtt;
    tx->rttvar = rtt / 2;
    set_rto(tx);
}

static void next_sample(struct tcp_tx *tx, uint32_t rtt)
{
    uint32_t off = rtt > tx->srtt ? rtt - tx->srtt : tx->srtt - rtt;

    tx->rttvar = (uint32_t)(((uint64_t)tx->rttvar * 3 + off) / 4);
    tx->srtt = max((uint32_t)(((uint64_t)tx->srtt * 7 + rtt) / 8), 1u);
    set_rto(tx);
}

static void min_sample(struct tcp_tx *tx, uint32_t rtt, uint64_t now_us)
{
    if (now_us - tx->min_rtt_us > MIN_RTT_SPAN_US) {
        tx->min_rtt_last = tx->min_rtt;
        tx->min_rtt = 0;
        tx->min_rtt_us = now_us;
    }
    if (tx->min_rtt == 0 || rtt < tx->min_rtt)
        tx->min_rtt = rtt;
}

/* Returns the least round-trip time of the last 150 to 300 s. */
uint32_t tcp_min_rtt(const struct tcp_conn *c)
{
    const struct tcp_tx *tx = &c->tx;

    if (tx->min_rtt == 0 || tx->min_rtt_last == 0)
        return tx->min_rtt + tx->min_rtt_last;
    return min(tx->min_rtt, tx->min_rtt_last);
}

void tcp_rto_open(struct tcp_conn *c, uint64_t rtt_us)
{
    struct tcp_tx *tx = &c->tx;

    reactor_timer_init(&tx->timer, timer_fires);
    tx->rto = RTO_AFTER_LOST_SYN;
    tx->rtt_seq = tx->una;
    tx->min_rtt_us = reactor_now_us();
    tx->tlp_rtt = true; /* the handshake's, or none is known and the probe waits for long */
    if (rtt_us == 0)
        return;
    first_sample(tx, (uint32_t)min(rtt_us, (uint64_t)TX_RTO_MAX));
    min_sample(tx, tx->srtt, reactor_now_us());
}

/* RFC 7323 §4: of an ACK for new data, also of what was sent again. µs, 0: there is none. */
static uint32_t ts_sample(const struct tcp_conn *c, const struct tcp_ack_sum *sum)
{
    uint32_t ms;

    if (!c->ts_on || !sum->seg->has_ts || sum->seg->ts_ecr == 0)
        return 0;
    ms = tcp_ts_now(c) - sum->seg->ts_ecr;
    return ms <= TS_RTT_MAX ? max(ms, 1u) * 1000 : 0;
}

/* Once per round trip, as the constants of RFC 6298 want (its §4; RFC 7323 appendix G). */
void tcp_rto_sample(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t rtt = sum->rto_rtt;

    if (sum->rtt > 0) {
        min_sample(tx, sum->rtt, sum->now_us);
        tx->tlp_rtt = true;
    }
    if (sum->acked == 0)
        return;
    if (rtt == 0)
        rtt = ts_sample(c, sum);
    if (rtt == 0)
        return; /* Karn: what the back-off found stays */
    tx->backoff = 0;
    if (tx->srtt == 0)
        first_sample(tx, rtt);
    else if (seq_leq(tx->rtt_seq, tx->una))
        next_sample(tx, rtt);
    else
        return;
    tx->rtt_seq = tx->nxt;
}

/* ---- when ---- */

static uint64_t backed_off(uint32_t rto, unsigned times, uint32_t most)
{
    return min((uint64_t)rto << min(times, (unsigned)BACKOFF_MAX), (uint64_t)most);
}

uint32_t tcp_rto_now(const struct tcp_conn *c)
{
    return (uint32_t)backed_off(c->tx.rto, c->tx.backoff, TX_RTO_MAX);
}

static uint64_t user_timeout_us(const struct tcp_conn *c)
{
    return (uint64_t)c->sh->tcp->opts.user_timeout * 1000000;
}

/* Until the next retransmission, or probe. Several probes fall into the time after which a peer
 * that is silent is given up. */
static uint64_t interval(const struct tcp_conn *c)
{
    uint64_t most = min((uint64_t)TX_PERSIST_MAX, user_timeout_us(c) / 4);

    if (c->tx.wnd == 0 || c->tx.una == c->tx.nxt)
        return backed_off(c->tx.rto, c->tx.persists, (uint32_t)most);
    return tcp_rto_now(c);
}

void tcp_rto_restart(struct tcp_conn *c, uint64_t now_us)
{
    c->tx.rto_due = c->tx.una != c->tx.nxt ? now_us + interval(c) : 0;
}

/* Returns when the connection is given up. A peer that answers probes may keep its window closed
 * while the user waits; without a user the limit makes our buffers come back (RFC 6429). */
static uint64_t give_up_us(const struct tcp_conn *c)
{
    const struct tcp_tx *tx = &c->tx;
    uint64_t from = tx->progress_us;

    if (tx->una == tx->nxt && !tcp_tx_to_send(c))
        return UINT64_MAX;
    if (!c->user_gone && (c->tx.wnd == 0 || tx->persist_due != 0))
        from = max(from, c->heard_us);
    return from + user_timeout_us(c);
}

static void earlier(uint64_t *at, uint64_t due)
{
    if (due != 0 && due < *at)
        *at = due;
}

static void arm(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    uint64_t at = give_up_us(c);

    earlier(&at, tx->rto_due);
    earlier(&at, tx->tlp_due);
    earlier(&at, tx->reo_due);
    earlier(&at, tx->persist_due);
    earlier(&at, tx->hold_due);
    if (at == UINT64_MAX)
        reactor_timer_cancel(&tx->timer);
    else if (!reactor_timer_armed(&tx->timer) || tx->timer.expires_us > at)
        reactor_timer_arm(&tx->timer, at > now_us ? at - now_us : 0);
}

/* Arms the timer anew after a change of due times. */
void tcp_timers_set(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;

    if (!tx->open)
        return;
    if (tx->una != tx->nxt) {
        tx->persist_due = 0;
        if (tx->rto_due == 0)
            tcp_rto_restart(c, now_us);
    } else {
        tx->rto_due = tx->tlp_due = tx->reo_due = 0;
        if (tx->limit != TCP_LIMIT_WINDOW || !tcp_tx_to_send(c))
            tx->persist_due = 0;
        else if (tx->persist_due == 0)
            tx->persist_due = now_us + interval(c);
    }
    arm(c, now_us);
}

/* ---- what happens then ---- */

/* One byte beyond the window: the answer says how it is now. */
static void probe(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;

    tx->persist_due = 0;
    if (c->tx.wnd > 0) { /* it has room, but for less than is worth while: sent all the same */
        tx->persist_push = true;
        tcp_work(c);
        return;
    }
    tx->persists++;
    if (tcp_tx_new(c, 1, now_us)) {
        tx->last->probe = true;
        c->count.probes_out++;
    }
}

/* Nothing is concluded about congestion from a window that is closed. */
static void probe_again(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s = tx->first;
    bool was_probe = s->probe;

    tx->persists++;
    tx->rto_due = 0;
    c->count.probes_out++;
    if (tcp_tx_resend(c, s, tcp_tx_mss(c), now_us))
        s->probe = was_probe;
}

static void rto(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;

    if (c->tx.wnd == 0) {
        probe_again(c, now_us);
        return;
    }
    tcp_mtu_rto(c, tx->first);
    tcp_recover_rto(c, now_us);
    tx->backoff += tx->backoff < BACKOFF_MAX;
    tcp_rto_restart(c, now_us);
    tx->tlp_due = tx->reo_due = 0;
    c->count.rtos++;
    count_add(&c->sh->stats.rtos, 1);
    tcp_work(c);
}

static bool is_due(uint64_t due, uint64_t now_us)
{
    return due != 0 && due <= now_us;
}

static void timer_fires(struct reactor_timer *t)
{
    struct tcp_conn *c = container_of(t, struct tcp_conn, tx.timer);
    struct tcp_tx *tx = &c->tx;
    uint64_t now_us = reactor_now_us();

    if (give_up_us(c) <= now_us) {
        tcp_conn_abort(c, STREAM_END_TIMEOUT);
        return;
    }
    if (is_due(tx->hold_due, now_us)) {
        tx->hold_due = 0;
        tx->hold_over = true;
        tcp_work(c);
    }
    if (is_due(tx->reo_due, now_us)) {
        tx->reo_due = 0;
        if (tcp_rack_mark(c, now_us) && tx->state <= TCP_CC_DISORDER) {
            tx->flight = tx->nxt - tx->una;
            tcp_recover_enter(c, 0);
        }
        tcp_work(c);
    }
    /* A probe that is due together with the RTO goes first, and the RTO begins anew
     * (RFC 8985 §7.3). */
    if (is_due(tx->tlp_due, now_us))
        tcp_tlp_send(c, now_us);
    if (is_due(tx->rto_due, now_us))
        rto(c, now_us);
    if (is_due(tx->persist_due, now_us))
        probe(c, now_us);
    tcp_timers_set(c, now_us);
}
