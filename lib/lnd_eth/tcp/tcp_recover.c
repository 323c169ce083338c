/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of congestion control: fast recovery with SACK (RFC 6675, its losses found by RACK) and
 * without (RFC 5681, RFC 6582), after an RTO (RFC 5681 §3.1), ECN (RFC 3168 §6.1.2). A reduction
 * without a loss is undone: Eifel by timestamps (RFC 3522, RFC 4015), or D-SACKs for all that was
 * sent again (RFC 3708).
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

#define BURST_SEGS 10 /* that a recovery's end may let out at once; as a connection's beginning */

/* ---- reductions ---- */

static void remember(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    tx->undo = true;
    tx->undo_una = tx->una;
    tx->undo_bytes = 0;
    tx->undo_sent = false;
    tx->prior_cwnd = tx->cwnd;
    tx->prior_ssthresh = tx->ssthresh;
}

/* RFC 3168 §6.1.2: once per window, for the first signal of congestion. */
static void reduce_ssthresh(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    if (c->ecn_on && seq_lt(tx->una, tx->ecn_seq))
        return;
    tx->ssthresh = c->sh->tcp->cc->ssthresh(c);
    tx->ecn_cwr = c->ecn_on;
    tx->ecn_seq = tx->nxt;
}

void tcp_reduce(struct tcp_conn *c)
{
    reduce_ssthresh(c);
    c->tx.cwnd = min(c->tx.cwnd, c->tx.ssthresh);
    c->tx.undo = false;
}

void tcp_resent(struct tcp_conn *c, uint32_t end, uint32_t len)
{
    struct tcp_tx *tx = &c->tx;

    c->count.resent++;
    c->count.bytes_resent += len;
    count_add(&c->sh->stats.resent, 1);
    if (!tx->undo || tx->state < TCP_CC_RECOVERY)
        return;
    if (!tx->undo_sent) {
        tx->undo_sent = true;
        tx->undo_ts = tcp_ts_now(c);
        tx->undo_high = end;
    }
    tx->undo_bytes += len;
    tx->undo_high = seq_max(tx->undo_high, end);
}

/* ---- proportional rate reduction, RFC 9937 (RFC 6937) ---- */

/* How much goes out in recovery for what arrives, so that there is ssthresh in flight in the end.
 */

/* After the ACK that told of the loss was reckoned in, by which `delivered` bytes arrived. */
static void prr_start(struct tcp_conn *c, uint32_t delivered)
{
    struct tcp_tx *tx = &c->tx;

    tx->prr_delivered = 0;
    tx->prr_out = 0;
    /* RecoverFS: bytes in flight when the ACK came, with lost bytes, without bytes that were
     * sacked before. */
    tx->prr_flight = max(tcp_pipe(c) + tx->lost_bytes + delivered, 1u);
}

/* delivered: bytes that arrived by this ACK. safe: una moved and nothing more was found lost. */
static void prr_ack(struct tcp_conn *c, uint32_t delivered, bool safe)
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

/* ---- beginning ---- */

/* Without SACK all that is known is that the first segment is missing. */
static void lose_first(struct tcp_conn *c)
{
    struct tcp_tx_seg *s = c->tx.first;
    uint32_t mss = tcp_tx_mss(c);

    if (!s || s->state != TCP_SEG_SENT)
        return;
    if (s->len - s->fin > mss)
        (void)tcp_segs_split(c, s, mss);
    tcp_segs_lose(c, s);
}

/* delivered: by the ACK that told of the loss. */
void tcp_recover_enter(struct tcp_conn *c, uint32_t delivered)
{
    struct tcp_tx *tx = &c->tx;

    remember(c);
    reduce_ssthresh(c);
    tx->state = TCP_CC_RECOVERY;
    tx->recover = tx->nxt;
    tx->tlp_out = false;
    tx->tlp_due = 0;
    c->count.fast_recoveries++;
    if (!c->sack_on)
        lose_first(c);
    prr_start(c, delivered);
    if (delivered == 0)
        prr_ack(c, 0, false);
}

/* Repeated ones, and one in a recovery, are of the same congestion. */
void tcp_recover_rto(struct tcp_conn *c, uint64_t now_us)
{
    struct tcp_tx *tx = &c->tx;

    if (tx->first->state == TCP_SEG_SACKED)
        tcp_segs_forget_sacks(c); /* the peer has not kept what it told of, RFC 2018 §8 */
    if (tx->state <= TCP_CC_DISORDER || (tx->state == TCP_CC_LOSS && tx->una != tx->undo_una)) {
        remember(c);
        tx->flight = tx->nxt - tx->una;
        reduce_ssthresh(c);
    }
    tcp_rack_rto(c, now_us);
    tx->dupacks = 0;
    tx->state = TCP_CC_LOSS;
    tx->recover = tx->nxt;
    tx->tlp_out = false;
    c->sh->tcp->cc->rto(c);
    tx->cwnd = tcp_pipe(c) + c->mss;
}

void tcp_recover_moved(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    if (tx->lost_bytes == 0 || tx->state >= TCP_CC_RECOVERY)
        return;
    tx->undo = false;
    tx->state = TCP_CC_LOSS;
    tx->recover = tx->nxt;
    tx->ssthresh = min(tx->ssthresh, max(tx->cwnd, 2 * c->mss));
    tx->tlp_out = false;
}

/* ---- undoing ---- */

static bool proven_needless(struct tcp_conn *c, const struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    const struct tcp_sack_block *b = &sum->dsack_block;

    if (!tx->undo || !tx->undo_sent)
        return false;
    /* All that was sent again is acknowledged, by an ACK of something sent before that. */
    if (sum->acked > 0 && c->ts_on && sum->seg->has_ts && seq_leq(tx->undo_high, tx->una) &&
        seq_lt(sum->prior_una, tx->undo_high) && seq_lt(sum->seg->ts_ecr, tx->undo_ts))
        return true;
    if (!sum->dsack || seq_lt(b->left, tx->undo_una) || seq_lt(tx->undo_high, b->right))
        return false;
    tx->undo_bytes -= min(tx->undo_bytes, b->right - b->left);
    return tx->undo_bytes == 0;
}

static void take_back(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    tcp_segs_found(c);
    tx->cwnd = max(tx->cwnd, tx->prior_cwnd);
    tx->ssthresh = max(tx->ssthresh, tx->prior_ssthresh);
    if (c->sh->tcp->cc->undo)
        c->sh->tcp->cc->undo(c);
    tx->undo = false;
    tx->state = TCP_CC_OPEN;
    tx->backoff = 0;
    c->count.undone++;
}

/* ---- going on ---- */

/* RFC 6582 §3.2 step 3, and what the duplicates stood for: the segment that filled the hole had
 * not been counted, what else is acknowledged now had. */
static void eat_dupacks(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    uint32_t segs = (sum->acked + c->mss - 1) / c->mss;
    uint32_t known = min(tx->dupacks, segs - 1);

    sum->delivered -= min(sum->delivered, known * c->mss);
    if (tx->state == TCP_CC_RECOVERY)
        tx->dupacks -= known;
    else
        tx->dupacks = 0;
}

/* Not more than a few segments at once, however much cwnd would let out. */
static void leave(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    if (tx->state == TCP_CC_RECOVERY)
        tx->cwnd = max(min(tx->ssthresh, tcp_pipe(c) + BURST_SEGS * c->mss), 2 * c->mss);
    tx->state = TCP_CC_OPEN;
    tx->dupacks = 0;
    tx->undo_end = tx->nxt;
    tcp_rack_recovered(c);
}

static void grow(struct tcp_conn *c, const struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    /* RFC 7661: cwnd that was not used tells nothing. In slow start half of it is enough, as the
     * rest comes back with the next ACKs. */
    bool limited = tx->cwnd_limited || (tx->cwnd < tx->ssthresh && tx->cwnd / 2 < sum->flight);

    /* Duplicates let something out (RFC 3042), but are no growth. After an RTO an ACK may jump over
     * what had arrived long before. */
    if (sum->acked > 0)
        c->sh->tcp->cc->acked(c, tx->state == TCP_CC_LOSS ? sum->delivered : sum->acked,
                              sum->now_us, limited);
}

/* Marks that are far behind would be ahead some day. */
static void drag_marks(struct tcp_tx *tx)
{
    tx->ecn_seq = seq_max(tx->ecn_seq, tx->una);
    if (tx->state <= TCP_CC_DISORDER) {
        tx->recover = seq_max(tx->recover, tx->una);
        if (tx->undo && seq_lt(tx->undo_end, tx->una))
            tx->undo = false;
    }
}

void tcp_recover_ack(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    bool by_dupacks;

    if (proven_needless(c, sum))
        take_back(c);
    if (!c->sack_on && sum->acked > 0)
        eat_dupacks(c, sum);
    /* RFC 6582 §3.2 step 2: duplicates that were caused by what was sent again are not a new loss.
     */
    by_dupacks = !c->sack_on && tx->dupacks >= TX_DUPTHRESH && seq_leq(tx->recover, tx->una);
    if (tx->state >= TCP_CC_RECOVERY && seq_leq(tx->recover, tx->una)) {
        leave(c);
    } else if (tx->state == TCP_CC_RECOVERY) {
        if (!c->sack_on && sum->acked > 0)
            lose_first(c);
        prr_ack(c, sum->delivered, sum->acked > 0 && !sum->lost_more);
    } else if (tx->state <= TCP_CC_DISORDER && (tx->lost_bytes > 0 || by_dupacks)) {
        tcp_recover_enter(c, sum->delivered);
        prr_ack(c, sum->delivered, false);
    } else {
        grow(c, sum);
    }
    if (tx->state <= TCP_CC_DISORDER)
        tx->state = tx->sacked_bytes > 0 || tx->dupacks > 0 ? TCP_CC_DISORDER : TCP_CC_OPEN;
    if (c->ecn_on && (sum->seg->flags & TCP_FLAG_ECE) && tx->state <= TCP_CC_DISORDER &&
        seq_leq(tx->ecn_seq, tx->una))
        tcp_reduce(c);
    drag_marks(tx);
}
