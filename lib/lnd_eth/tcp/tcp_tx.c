/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending: cuts the data that may go now into segments, lost data first, then new data. Nagle's
 * delay is off. A partial segment waits only after `more`, at most TX_HOLD_US: a caller of `more`
 * goes on in this iteration of the reactor or the next.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define MSS_LEAST 32u /* payload; lower claims of a path are ignored */

uint32_t tcp_tx_mss(const struct tcp_conn *c)
{
    uint32_t usual = tcp_out_options_least(c), now = tcp_out_options(c);
    uint32_t more = now > usual ? now - usual : 0;

    return c->mss > more + MSS_LEAST ? c->mss - more : MSS_LEAST;
}

/* ---- one segment ---- */

static uint32_t tso_max(const struct tcp_conn *c, uint32_t mss)
{
    uint32_t max = tcp_out_tso_max(c);

    return max >= 2 * mss ? max / mss * mss : mss;
}

static void count_sent(struct tcp_conn *c, uint32_t len, uint64_t now_us)
{
    c->tx.sent_us = now_us;
    if (c->tx.state == TCP_CC_RECOVERY)
        c->tx.prr_out += len;
}

/* Bytes to send again of a record, cut where it was cut before: so that a late acknowledgement of
 * the first transmission still fits. */
static uint32_t resend_len(const struct tcp_conn *c, const struct tcp_tx_seg *s, uint32_t most,
                           uint32_t mss)
{
    uint32_t payload = s->len - s->fin, len = min(payload, min(most, tso_max(c, mss)));

    if (len > mss)
        len = tcp_queue_tso(c, s->data, s->seq, len, mss);
    if (len < payload && s->size <= mss && len >= s->size)
        len -= len % s->size;
    return len;
}

/* Sends again up to most bytes of a record from its beginning on. False: the port had no buffer. */
bool tcp_tx_resend(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t most, uint64_t now_us)
{
    uint32_t mss = tcp_tx_mss(c), len = resend_len(c, s, tcp_mtu_most(c, s, most), mss);
    uint8_t flags = TCP_FLAG_ACK;
    struct rte_mbuf *m = NULL;

    if (len > 0) {
        m = tcp_queue_chain(c, s->data, s->seq, len);
        if (!m)
            return false;
        len = m->pkt_len;
    }
    /* A FIN goes with the last segment, but not through the port's cutting. */
    if (s->fin && len == s->len - 1 && len <= mss) {
        flags |= TCP_FLAG_FIN;
        len++;
    }
    /* Without a record for it, the rest counts as sent, and an RTO finds it lost. */
    if (len < s->len)
        (void)tcp_segs_split(c, s, len);
    if (s->seq + len == c->tx.end)
        flags |= TCP_FLAG_PSH;
    s->size = mss;
    s->probe = false;
    if (!tcp_out(c, s->seq, flags, m, m && m->pkt_len > mss))
        return false;
    tcp_segs_sent(c, s, now_us);
    count_sent(c, len, now_us);
    tcp_resent(c, s->seq + len, len);
    return true;
}

/* Sends up to most bytes that are new (most > 0), with a FIN if it is reached. */
bool tcp_tx_new(struct tcp_conn *c, uint32_t most, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t mss = tcp_tx_mss(c);
    uint32_t len = min(tcp_tx_unsent(c), min(most, tso_max(c, mss))), bytes;
    uint8_t flags = TCP_FLAG_ACK;
    struct tcp_tx_seg *s;
    struct rte_mbuf *m = NULL;

    if (len > 0) {
        if (len > mss)
            len = tcp_queue_tso(c, tx->unsent, tx->nxt, len, mss);
        if (len <= mss)
            len = tcp_queue_cut(tx->unsent, tx->nxt, len, mss);
        m = tcp_queue_first(c, tx->unsent, tx->nxt, len);
        if (!m)
            return false;
        len = m->pkt_len;
    }
    bytes = len;
    if (tx->fin && tx->nxt + len == tx->end && len <= mss && len < most) {
        flags |= TCP_FLAG_FIN;
        len++;
    }
    s = len > 0 ? tcp_segs_add(c, len) : NULL;
    if (!s) {
        rte_pktmbuf_free(m);
        return false;
    }
    s->fin = (flags & TCP_FLAG_FIN) != 0;
    s->data = bytes > 0 ? tx->unsent : NULL;
    s->sent_us = now_us;
    s->sent_ts = tcp_ts_now(c);
    s->segs = (bytes + mss - 1) / mss + (bytes == 0);
    if (bytes > 0 && tx->nxt + bytes == tx->end && (!tx->more || tx->fin || tx->hold_over))
        flags |= TCP_FLAG_PSH;
    if (tx->ecn_cwr && bytes > 0)
        flags |= TCP_FLAG_CWR;
    if (!tcp_out(c, tx->nxt, flags, m, bytes > mss)) {
        tcp_segs_drop_last(c);
        return false;
    }
    if (flags & TCP_FLAG_CWR)
        tx->ecn_cwr = false;
    tx->nxt += len;
    tx->fin_sent = s->fin;
    tx->unsent = tcp_queue_at(tx->unsent, tx->nxt);
    count_sent(c, len, now_us);
    return true;
}

/* ---- what may be sent ---- */

static uint32_t cwnd_room(const struct tcp_conn *c)
{
    uint32_t pipe = tcp_pipe(c);

    return c->tx.cwnd > pipe ? c->tx.cwnd - pipe : 0;
}

/* A byte that was sent beyond a closed window goes with what follows it, now that there is room. */
static void take_back_probe(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s = tx->last;

    if (!s || s != tx->first || !s->probe || s->state == TCP_SEG_SACKED || tx->wnd < 2)
        return;
    if (s->fin)
        return; /* nothing follows: it is lost, or will be answered */
    tx->unsent = s->data;
    tx->nxt = s->seq;
    tcp_segs_drop_last(c);
    tx->rto_due = 0;
}

/* ---- waiting for the port ---- */

static unsigned port_of(const struct tcp_conn *c)
{
    return inet_if_port(c->path.ifp)->index;
}

/* Earlier waiters come first. */
static bool port_busy(struct tcp_conn *c)
{
    if (unlikely(c->sh->port_waits != 0) && !c->tx.turn &&
        (c->sh->port_waits & UINT32_C(1) << port_of(c)) != 0)
        return true;
    return inet_tx_busy(c->sh->inet, &c->path);
}

static void wait_for_port_no_more(struct tcp_conn *c)
{
    struct tcp_conns *list;

    if (c->tx.port_wait == 0)
        return;
    list = &c->sh->port_waiters[c->tx.port_wait - 1];
    TAILQ_REMOVE(list, c, tx.port_link);
    if (TAILQ_EMPTY(list))
        c->sh->port_waits &= ~(UINT32_C(1) << (c->tx.port_wait - 1));
    c->tx.port_wait = 0;
}

static void wait_for_port(struct tcp_conn *c)
{
    unsigned port = port_of(c);

    if (c->tx.port_wait == port + 1)
        return;
    wait_for_port_no_more(c);
    c->tx.port_wait = (uint8_t)(port + 1);
    c->sh->port_waits |= UINT32_C(1) << port;
    TAILQ_INSERT_TAIL(&c->sh->port_waiters[port], c, tx.port_link);
}

struct tcp_conn *tcp_tx_next_waiter(struct tcp_shard *sh)
{
    for (uint32_t left = sh->port_waits; left != 0; left &= left - 1) {
        struct tcp_conn *c = TAILQ_FIRST(&sh->port_waiters[__builtin_ctz(left)]);

        if (inet_tx_busy(sh->inet, &c->path))
            continue;
        wait_for_port_no_more(c);
        c->tx.turn = true;
        return c;
    }
    return NULL;
}

/* ---- runs ---- */

/* Sends what was lost, *frames at most. */
static enum tcp_limit send_lost(struct tcp_conn *c, uint64_t now_us, unsigned *frames)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s;
    uint32_t room;

    while ((s = TAILQ_FIRST(&tx->lost))) {
        /* RFC 9293 §3.8.6: the window may have shrunk; the oldest is sent even so. */
        if (s != tx->first && seq_lt(tx->una + tx->wnd, s->seq + 1))
            return TCP_LIMIT_WINDOW;
        if (tx->mtu_state == TCP_MTU_SMALL_SENT && s != tx->first)
            return TCP_LIMIT_CWND; /* until the small segment is acknowledged or lost */
        room = cwnd_room(c);
        if (room < min(s->len, tcp_tx_mss(c)) && tcp_pipe(c) > 0)
            return TCP_LIMIT_CWND;
        if (*frames == 0)
            return TCP_LIMIT_BURST;
        if (port_busy(c))
            return TCP_LIMIT_QUEUE;
        if (!tcp_tx_resend(c, s, max(room, tcp_tx_mss(c)), now_us))
            return TCP_LIMIT_PORT;
        --*frames;
        if (s == tx->first && tx->state == TCP_CC_RECOVERY)
            tcp_rto_restart(c, now_us);
    }
    return TCP_LIMIT_NONE;
}

/* How much may go in the next segment: RFC 9293 §3.8.6.2.1 (silly windows), `more`, cwnd. */
static enum tcp_limit may_send(struct tcp_conn *c, uint32_t *most)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t unsent = tcp_tx_unsent(c), mss = tcp_tx_mss(c), edge = tx->una + tx->wnd;
    uint32_t room = seq_lt(tx->nxt, edge) ? edge - tx->nxt : 0; /* of the peer's window */
    uint32_t n = min(unsent, room), cwnd = cwnd_room(c);

    *most = room;
    if (unsent == 0) {
        if (!tx->fin || tx->fin_sent)
            return TCP_LIMIT_NONE;
        return room > 0 ? TCP_LIMIT_NONE : TCP_LIMIT_WINDOW;
    }
    if (n == 0 || (n < mss && n < unsent && n < tx->wnd_max / 2 && !tx->persist_push))
        return TCP_LIMIT_WINDOW;
    if (n < mss && n == unsent && tx->more && !tx->fin && !tx->hold_over)
        return TCP_LIMIT_HOLD;
    if (cwnd < min(n, mss) && tcp_pipe(c) > 0)
        return TCP_LIMIT_CWND;
    if (n > mss) {
        n = min(n, max(cwnd, mss));
        /* Data before the end goes in whole segments; the tail of `more` waits behind them. */
        if (n < unsent || (tx->more && !tx->fin && !tx->hold_over))
            n = n / mss * mss;
    }
    *most = n + (room > n && n == unsent); /* one for a FIN */
    return TCP_LIMIT_NONE;
}

static enum tcp_limit send_new(struct tcp_conn *c, uint64_t now_us, unsigned *frames)
{
    struct tcp_tx *tx = &c->tx;
    enum tcp_limit why;
    uint32_t most;

    while (tcp_tx_to_send(c)) {
        why = may_send(c, &most);
        if (why != TCP_LIMIT_NONE)
            return why;
        if (!tcp_segs_room(c))
            return TCP_LIMIT_STOCK;
        if (*frames == 0)
            return TCP_LIMIT_BURST;
        if (port_busy(c))
            return TCP_LIMIT_QUEUE;
        if (!tcp_tx_new(c, most, now_us))
            return TCP_LIMIT_PORT;
        tx->persist_push = tx->hold_over = false;
        --*frames;
    }
    return TCP_LIMIT_NONE;
}

/* ---- what held us back, for tcp_info ---- */

static void note_limit(struct tcp_conn *c, enum tcp_limit limit, uint64_t now_us)
{
    uint64_t us = now_us - c->tx.limit_us;

    switch ((enum tcp_limit)c->tx.limit) {
    case TCP_LIMIT_WINDOW:
        c->count.limited_window_us += us;
        break;
    case TCP_LIMIT_CWND:
        c->count.limited_cwnd_us += us;
        break;
    case TCP_LIMIT_PORT:
    case TCP_LIMIT_QUEUE:
    case TCP_LIMIT_STOCK:
        c->count.limited_port_us += us;
        break;
    case TCP_LIMIT_NONE:
    case TCP_LIMIT_BURST:
    case TCP_LIMIT_HOLD:
        break;
    }
    c->tx.limit = limit;
    c->tx.limit_us = now_us;
}

bool tcp_tx_run(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;
    uint64_t now_us = reactor_now_us();
    enum tcp_limit limit;
    unsigned most = tx->much ? TX_BURST : TX_FEW, frames = most, sent;

    if (!tx->open || tx->fin_acked) {
        wait_for_port_no_more(c);
        return false;
    }
    take_back_probe(c);
    if (tx->una == tx->nxt && tcp_tx_to_send(c) && now_us - tx->sent_us > tx->rto)
        tcp_cc_idle(c, now_us - tx->sent_us);
    limit = send_lost(c, now_us, &frames);
    if (limit == TCP_LIMIT_NONE)
        limit = send_new(c, now_us, &frames);
    sent = most - frames;
    c->sh->sent += sent;
    tx->much = sent >= TX_FEW;
    tx->turn = false;
    if (limit == TCP_LIMIT_QUEUE)
        wait_for_port(c);
    else
        wait_for_port_no_more(c);
    if (limit == TCP_LIMIT_BURST)
        tcp_work(c);
    tx->cwnd_limited = limit == TCP_LIMIT_CWND;
    note_limit(c, limit, now_us);
    if (limit == TCP_LIMIT_HOLD && tx->hold_due == 0)
        tx->hold_due = now_us + TX_HOLD_US;
    else if (limit == TCP_LIMIT_PORT)
        tx->hold_due = now_us + TX_RETRY_US;
    else if (limit != TCP_LIMIT_HOLD)
        tx->hold_due = 0;
    if (sent > 0)
        tcp_tlp_schedule(c, now_us);
    tcp_timers_set(c, now_us);
    tcp_queue_wake(c);
    return sent > 0;
}

/* ---- acknowledgements ---- */

static void update_window(struct tcp_conn *c, const struct tcp_seg *seg)
{
    struct tcp_tx *tx = &c->tx;

    if (seq_lt(seg->ack, tx->una))
        return;
    if (!seq_lt(tx->wl1, seg->seq) && !(tx->wl1 == seg->seq && seq_leq(tx->wl2, seg->ack)))
        return;
    tx->wnd = (uint32_t)seg->win << ((seg->flags & TCP_FLAG_SYN) ? 0 : c->snd_wscale);
    tx->wnd_max = max(tx->wnd_max, tx->wnd);
    tx->wl1 = seg->seq;
    tx->wl2 = seg->ack;
    if (tx->wnd > 0)
        tx->persists = 0;
}

/* RFC 5681 §2. With SACK those count that tell something new. */
static bool is_dupack(const struct tcp_conn *c, const struct tcp_ack_sum *sum, bool data,
                      uint32_t wnd_before)
{
    return !data && sum->acked == 0 && sum->flight > 0 && sum->seg->ack == c->tx.una &&
           (sum->seg->flags & (TCP_FLAG_SYN | TCP_FLAG_FIN)) == 0 && c->tx.wnd == wnd_before;
}

static void acked_bytes(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t payload = sum->acked;

    if (sum->acked == 0)
        return;
    tx->una = sum->seg->ack;
    tcp_segs_acked(c, sum);
    tx->progress_us = sum->now_us;
    if (tx->fin_sent && tx->una == tx->end + 1)
        payload--;
    c->count.bytes_acked += payload;
    tcp_queue_acked(c);
}

void tcp_tx_ack(struct tcp_conn *c, const struct tcp_seg *seg, bool data)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_ack_sum sum = {.now_us = reactor_now_us(), .seg = seg, .prior_una = tx->una};
    uint32_t wnd_before = tx->wnd;

    if (!tx->open || seq_lt(tx->nxt, seg->ack))
        return;
    sum.flight = tx->nxt - tx->una;
    tx->flight = sum.flight;
    sum.acked = seq_lt(tx->una, seg->ack) ? seg->ack - tx->una : 0;
    update_window(c, seg);
    acked_bytes(c, &sum);
    tcp_segs_sacks(c, &sum);
    tcp_mtu_ack(c, &sum);
    if (!c->sack_on && is_dupack(c, &sum, data, wnd_before) &&
        tx->dupacks < sum.flight / max(c->mss, 1u)) {
        tx->dupacks++;
        sum.delivered += min(c->mss, sum.flight);
    }
    tcp_rto_sample(c, &sum);
    if (sum.acked > 0)
        tcp_rto_restart(c, sum.now_us);
    tcp_tlp_ack(c, &sum);
    tcp_rack_detect(c, &sum);
    tcp_recover_ack(c, &sum);
    if (sum.acked > 0 || sum.sacked > 0)
        tcp_tlp_schedule(c, sum.now_us);
    tcp_work(c);
    if (tx->fin_sent && !tx->fin_acked && tx->una == tx->end + 1) {
        tx->fin_acked = true; /* tcp_conn_settle() moves the state on */
        reactor_timer_cancel(&tx->timer);
    }
}

/* ---- life ---- */

void tcp_tx_open(struct tcp_conn *c, uint32_t una, uint32_t wnd, uint32_t wl1, uint64_t rtt_us)
{
    uint64_t now_us = reactor_now_us();

    c->tx = (struct tcp_tx){
        .una = una,
        .nxt = una,
        .end = una,
        .recover = una,
        .ecn_seq = una,
        .wnd = wnd,
        .wnd_max = wnd,
        .wl1 = wl1,
        .wl2 = una,
        .open = true,
        .ssthresh = UINT32_MAX,
        .progress_us = now_us,
        .sent_us = now_us,
        .limit_us = now_us,
        .rack_reo_mult = 1,
        .rack_fack = una,
    };
    TAILQ_INIT(&c->tx.sent);
    TAILQ_INIT(&c->tx.lost);
    tcp_rto_open(c, rtt_us);
    /* RFC 5681 §3.1: after a handshake that lost a segment the window is one segment. */
    c->tx.cwnd = rtt_us > 0 ? tcp_cc_initial(c) : c->mss;
    c->sh->tcp->cc->init(c);
}

void tcp_tx_fin(struct tcp_conn *c)
{
    if (!c->tx.open || c->tx.fin)
        return;
    c->tx.fin = true;
    c->tx.progress_us = reactor_now_us(); /* all that is left has its time from now on */
    tcp_work(c);
}

void tcp_tx_detach(struct tcp_conn *c)
{
    if (!c->tx.open)
        return;
    wait_for_port_no_more(c);
    tcp_queue_detach(c);
    reactor_timer_cancel(&c->tx.timer);
}

void tcp_tx_attach(struct tcp_conn *c)
{
    if (!c->tx.open)
        return;
    tcp_queue_attach(c);
    tcp_timers_set(c, reactor_now_us());
    tcp_work(c);
}

void tcp_tx_free(struct tcp_conn *c)
{
    if (!c->tx.open)
        return;
    wait_for_port_no_more(c);
    reactor_timer_cancel(&c->tx.timer);
    tcp_segs_free(c);
    tcp_queue_free(c);
    c->tx.open = false;
    c->tx.una = c->tx.nxt;
    c->tx.end = c->tx.nxt;
}

bool tcp_tx_idle(const struct tcp_conn *c)
{
    return c->tx.una == c->tx.nxt && tcp_tx_unsent(c) == 0;
}

static const char *const state_name[] = {
    [TCP_CC_OPEN] = "open",
    [TCP_CC_DISORDER] = "disorder",
    [TCP_CC_RECOVERY] = "recovery",
    [TCP_CC_LOSS] = "loss",
};

void tcp_tx_info(struct tcp_conn *c, struct tcp_info *out)
{
    struct tcp_tx *tx = &c->tx;

    if (tx->open)
        note_limit(c, tx->limit, reactor_now_us());
    out->cc_state = state_name[tx->state];
    out->cwnd = tx->cwnd;
    out->ssthresh = tx->ssthresh;
    out->in_flight = tx->open ? tcp_pipe(c) : 0;
    out->unsent = tcp_tx_unsent(c);
    out->snd_wnd = tx->wnd;
    out->srtt_us = tx->srtt;
    out->rttvar_us = tx->rttvar;
    out->min_rtt_us = tcp_min_rtt(c);
    out->rto_us = tx->open ? tcp_rto_now(c) : 0;
    out->reorder = tx->rack_reo_wnd;
}
