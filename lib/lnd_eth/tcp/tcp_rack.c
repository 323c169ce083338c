/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RACK-TLP, RFC 8985: a segment is lost when a later one has arrived and a reordering window has
 * passed since. A probe at the end of a flight brings the acknowledgement that shows it.
 *
 * The RFC lets the reordering timer wait for the last segment in question; here it fires for each
 * in turn (to the wheel's tick), so that an ACK looks only at the first which is not due yet.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define REO_PERSIST   16
#define REO_MULT_MAX  255
#define PTO_UNKNOWN   1000000u /* §7.2: no round-trip time is known */
#define PTO_LEAST     4000u    /* either end may be scheduled a few ms late: no probe for that */
#define MAX_ACK_DELAY 200000u  /* for a flight of one segment, whose ACK may be delayed */

static bool sent_after(uint64_t us1, uint32_t end1, uint64_t us2, uint32_t end2)
{
    return us1 > us2 || (us1 == us2 && seq_lt(end2, end1));
}

/* ---- §6.2, steps 2 and 3: for each segment that is found to have arrived ---- */

/* An ACK of something sent twice that can only be of the first. */
static bool of_first(const struct tcp_conn *c, const struct tcp_tx_seg *s, uint64_t rtt,
                     const struct tcp_seg *seg)
{
    if (!s->resent)
        return false;
    if (c->ts_on && seg->has_ts && seq_lt(seg->ts_ecr, s->sent_ts))
        return true;
    return rtt < tcp_min_rtt(c);
}

void tcp_rack_delivered(struct tcp_conn *c, const struct tcp_tx_seg *s, uint32_t end,
                        struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    uint64_t rtt = sum->now_us - s->sent_us;

    if (!c->sack_on)
        return;
    if (seq_lt(tx->rack_fack, end))
        tx->rack_fack = end;
    else if (seq_lt(end, tx->rack_fack) && !s->resent)
        tx->rack_reordering = true;
    if (of_first(c, s, rtt, sum->seg))
        return;
    if (tx->rack_valid && !sent_after(s->sent_us, end, tx->rack_sent_us, tx->rack_end))
        return;
    tx->rack_valid = true;
    tx->rack_rtt = (uint32_t)min(rtt, (uint64_t)TX_RTO_MAX);
    tx->rack_sent_us = s->sent_us;
    tx->rack_end = end;
}

/* ---- step 4: the reordering window ---- */

static void note_dsack(struct tcp_tx *tx, const struct tcp_ack_sum *sum)
{
    if (tx->rack_dsack_round && seq_leq(tx->rack_round_seq, tx->una))
        tx->rack_dsack_round = false;
    /* The probe's own duplicate says nothing of reordering. */
    if (!sum->dsack || tx->rack_dsack_round ||
        (tx->tlp_out && tx->tlp_retrans && sum->dsack_block.right == tx->tlp_end))
        return;
    tx->rack_dsack_round = true;
    tx->rack_round_seq = tx->nxt;
    tx->rack_reo_mult += tx->rack_reo_mult < REO_MULT_MAX;
    tx->rack_reo_persist = REO_PERSIST;
}

/* A recovery has ended; after 16 without duplicates the window is small again. */
void tcp_rack_recovered(struct tcp_conn *c)
{
    if (c->tx.rack_reo_persist > 0)
        c->tx.rack_reo_persist--;
    if (c->tx.rack_reo_persist == 0)
        c->tx.rack_reo_mult = 1;
}

static uint32_t reo_wnd(const struct tcp_conn *c)
{
    const struct tcp_tx *tx = &c->tx;
    uint64_t wnd = (uint64_t)tx->rack_reo_mult * tcp_min_rtt(c) / 4;

    if (!tx->rack_reordering && (tx->state >= TCP_CC_RECOVERY || tx->sacked_segs >= TX_DUPTHRESH))
        return 0;
    return (uint32_t)min(wnd, (uint64_t)tx->srtt);
}

/* ---- step 5 ---- */

bool tcp_rack_mark(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *next;
    uint64_t due;
    bool found = false;

    tx->reo_due = 0;
    if (!tx->rack_valid)
        return false;
    tx->rack_reo_wnd = reo_wnd(c);
    for (struct tcp_tx_seg *s = TAILQ_FIRST(&tx->sent); s && s->sent_us <= tx->rack_sent_us;
         s = next) {
        next = TAILQ_NEXT(s, link);
        if (!sent_after(tx->rack_sent_us, tx->rack_end, s->sent_us, s->seq + s->len))
            continue; /* of the same burst */
        due = s->sent_us + tx->rack_rtt + tx->rack_reo_wnd;
        if (due > now_us) {
            tx->reo_due = due;
            break;
        }
        tcp_segs_lose(c, s);
        found = true;
    }
    return found;
}

void tcp_rack_detect(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    if (!c->sack_on)
        return;
    note_dsack(&c->tx, sum);
    sum->lost_more = tcp_rack_mark(c, sum->now_us);
}

/* §6.3: an RTO does not say that what was sent a moment ago is lost, too. The oldest is, and goes
 * first. */
void tcp_rack_rto(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s;
    uint64_t least = tx->rack_valid && c->sack_on ? tx->rack_rtt + (uint64_t)reo_wnd(c) : 0;

    while ((s = TAILQ_FIRST(&tx->sent)) && s->sent_us + least <= now_us)
        tcp_segs_lose(c, s);
    s = tx->first;
    tcp_segs_lose(c, s);
    /* Records behind it that were sent again and lost again precede those that were not. */
    while (s->next && s->next->state == TCP_SEG_LOST && s->next->resent)
        s = s->next;
    for (; s; s = s->prev) {
        if (s->state != TCP_SEG_LOST)
            continue;
        TAILQ_REMOVE(&tx->lost, s, link);
        TAILQ_INSERT_HEAD(&tx->lost, s, link);
    }
}

/* ---- tail loss probe, §7 ---- */

/* §7.2 */
void tcp_tlp_schedule(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    uint64_t pto = PTO_UNKNOWN;

    tx->tlp_due = 0;
    if (!c->sack_on || tx->state >= TCP_CC_RECOVERY || tx->sacked_bytes > 0 || tx->lost_bytes > 0 ||
        tx->una == tx->nxt || tx->tlp_out || !tx->tlp_rtt || tx->wnd == 0)
        return;
    if (tx->srtt > 0) {
        pto = max(2 * (uint64_t)tx->srtt, PTO_LEAST);
        /* RFC 8985 §7.2 says one segment: what is not more than one need not be acknowledged yet.
         */
        if (tx->nxt - tx->una <= tcp_tx_mss(c) + tx->fin_sent)
            pto += MAX_ACK_DELAY;
    }
    tx->tlp_due = now_us + pto;
    if (tx->rto_due == 0)
        tcp_rto_restart(c, now_us);
    tx->tlp_due = min(tx->tlp_due, tx->rto_due);
}

/* The last segment of what was sent, as a record of its own. */
static struct tcp_tx_seg *last_segment(struct tcp_conn *c)
{
    struct tcp_tx_seg *s = c->tx.last, *t;
    uint32_t mss = tcp_tx_mss(c), payload = s->len - s->fin;

    if (payload <= mss)
        return s;
    t = tcp_segs_split(c, s, (payload - 1) / mss * mss);
    return t ? t : s;
}

/* §7.3: a segment that is new, beyond cwnd if need be; else the last again. */
void tcp_tlp_send(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t mss = tcp_tx_mss(c), most = min(tcp_tx_unsent(c), mss);
    bool sent;

    tx->tlp_due = 0;
    if (tx->una == tx->nxt || tx->tlp_out)
        return;
    tx->tlp_retrans = most == 0 || seq_lt(tx->una + tx->wnd, tx->nxt + most) || !tcp_segs_room(c);
    tx->tlp_flight = tx->nxt - tx->una;
    if (tx->tlp_retrans)
        sent = tx->last->state == TCP_SEG_SENT && tcp_tx_resend(c, last_segment(c), mss, now_us);
    else
        sent = tcp_tx_new(c, most, now_us);
    if (sent) {
        tx->tlp_out = true;
        tx->tlp_end = tx->nxt;
        tx->tlp_rtt = false;
        c->count.tlps++;
        count_add(&c->sh->stats.tlps, 1);
    }
    tcp_rto_restart(c, now_us);
}

/* §7.4: whether the probe repaired a loss that was not detected otherwise. */
void tcp_tlp_ack(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;

    if (!tx->tlp_out || seq_lt(sum->seg->ack, tx->tlp_end))
        return;
    if (!tx->tlp_retrans || (sum->dsack && sum->dsack_block.right == tx->tlp_end)) {
        tx->tlp_out = false; /* both arrived */
    } else if (seq_lt(tx->tlp_end, sum->seg->ack)) {
        tx->tlp_out = false;
        tx->flight = tx->tlp_flight;
        tcp_reduce(c);
    } else if (sum->acked == 0 && sum->seg->nsack == 0) {
        tx->tlp_out = false; /* both arrived, and the peer does not tell of duplicates */
    }
}
