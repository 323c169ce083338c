/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scoreboard: a record for each stretch that was sent and is not acknowledged. Records follow
 * each other without gap from una to nxt. They are found by sequence number in a tree (a treap:
 * balanced by random numbers that a peer cannot know), and in order of transmission in the list
 * `sent`.
 *
 * Cost of an ACK: each record is sacked once, and neighbours that are sacked become one record,
 * so a block without news is passed over in one step. A record is
 * split only where its segments end, so there are never more records than segments were sent.
 */
#include "lib/lnd_eth/tcp/tcp_tx_internal.h"

/* ---- the tree ---- */

static struct tcp_tx_seg **seg_slot(struct tcp_tx *tx, struct tcp_tx_seg *s)
{
    if (!s->up)
        return &tx->root;
    return s->up->left == s ? &s->up->left : &s->up->right;
}

/* s takes the place of its parent. */
static void rotate_up(struct tcp_tx *tx, struct tcp_tx_seg *s)
{
    struct tcp_tx_seg *p = s->up, *child;

    *seg_slot(tx, p) = s;
    s->up = p->up;
    if (p->left == s) {
        child = s->right;
        p->left = child;
        s->right = p;
    } else {
        child = s->left;
        p->right = child;
        s->left = p;
    }
    if (child)
        child->up = p;
    p->up = s;
}

/* Puts s behind `after` (NULL: it is the only one). */
static void seg_insert(struct tcp_tx *tx, struct tcp_tx_seg *after, struct tcp_tx_seg *s)
{
    struct tcp_tx_seg *p = after;

    s->left = s->right = NULL;
    s->prev = after;
    s->next = after ? after->next : NULL;
    if (s->next)
        s->next->prev = s;
    else
        tx->last = s;
    if (!after) {
        tx->first = tx->root = s;
        s->up = NULL;
        return;
    }
    after->next = s;
    if (!p->right) {
        p->right = s;
    } else {
        /* The successor of `after` is the leftmost node of its right side. */
        p = s->next;
        p->left = s;
    }
    s->up = p;
    while (s->up && s->up->prio < s->prio)
        rotate_up(tx, s);
}

static void seg_unlink(struct tcp_tx *tx, struct tcp_tx_seg *s)
{
    struct tcp_tx_seg *child;

    while (s->left && s->right)
        rotate_up(tx, s->left->prio > s->right->prio ? s->left : s->right);
    child = s->left ? s->left : s->right;
    *seg_slot(tx, s) = child;
    if (child)
        child->up = s->up;
    if (s->prev)
        s->prev->next = s->next;
    else
        tx->first = s->next;
    if (s->next)
        s->next->prev = s->prev;
    else
        tx->last = s->prev;
}

/* The record that has seq; NULL: none. */
static struct tcp_tx_seg *seg_find(const struct tcp_tx *tx, uint32_t seq)
{
    struct tcp_tx_seg *s = tx->root;

    while (s) {
        if (seq_lt(seq, s->seq))
            s = s->left;
        else if (seq_lt(seq, s->seq + s->len))
            return s;
        else
            s = s->right;
    }
    return NULL;
}

/* ---- records ---- */

static struct tcp_tx_seg *seg_alloc(struct tcp_conn *c)
{
    struct tcp_copies *st = c->sh->copies;
    struct tcp_tx_seg *s = st->free_segs;

    if (!s)
        return NULL;
    st->free_segs = s->next;
    st->nfree_segs--;
    st->random ^= st->random << 13;
    st->random ^= st->random >> 17;
    st->random ^= st->random << 5;
    c->tx.records++;
    *s = (struct tcp_tx_seg){.prio = st->random};
    return s;
}

static void seg_free(struct tcp_conn *c, struct tcp_tx_seg *s)
{
    struct tcp_copies *st = c->sh->copies;

    s->next = st->free_segs;
    st->free_segs = s;
    st->nfree_segs++;
    c->tx.records--;
}

static uint32_t payload_of(const struct tcp_tx_seg *s)
{
    return s->len - s->fin;
}

static void count_segs(struct tcp_tx_seg *s)
{
    s->segs = max((payload_of(s) + s->size - 1) / s->size, 1u);
}

/* Takes s out of the list and the sum that its state says. */
static void leave_state(struct tcp_conn *c, struct tcp_tx_seg *s)
{
    struct tcp_tx *tx = &c->tx;

    switch ((enum tcp_seg_state)s->state) {
    case TCP_SEG_SENT:
        TAILQ_REMOVE(&tx->sent, s, link);
        break;
    case TCP_SEG_LOST:
        TAILQ_REMOVE(&tx->lost, s, link);
        tx->lost_bytes -= s->len;
        break;
    case TCP_SEG_SACKED:
        tx->sacked_bytes -= s->len;
        tx->sacked_segs -= s->segs;
        break;
    }
}

static void seg_remove(struct tcp_conn *c, struct tcp_tx_seg *s)
{
    leave_state(c, s);
    seg_unlink(&c->tx, s);
    seg_free(c, s);
}

uint32_t tcp_pipe(const struct tcp_conn *c)
{
    const struct tcp_tx *tx = &c->tx;
    uint32_t out = tx->nxt - tx->una - tx->sacked_bytes - tx->lost_bytes;
    uint64_t arrived = (uint64_t)tx->dupacks * c->mss;

    return out > arrived ? out - (uint32_t)arrived : 0;
}

bool tcp_segs_room(const struct tcp_conn *c)
{
    return c->tx.records <
           tx_share(c->sh->copies->nfree_segs, TX_SEGS_MAX, TX_SEGS_PART, TX_SEGS_LEAST);
}

struct tcp_tx_seg *tcp_segs_add(struct tcp_conn *c, uint32_t len)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s = tcp_segs_room(c) ? seg_alloc(c) : NULL;

    if (!s)
        return NULL;
    s->seq = tx->nxt;
    s->len = len;
    s->size = tcp_tx_mss(c);
    s->state = TCP_SEG_SENT;
    seg_insert(tx, tx->last, s);
    TAILQ_INSERT_TAIL(&tx->sent, s, link);
    return s;
}

void tcp_segs_drop_last(struct tcp_conn *c)
{
    seg_remove(c, c->tx.last);
}

/* Whether a record may be divided. Many blocks of few bytes, or parts that are sent again, would
 * take the records of all connections. So a connection that has its part leaves the reserve to
 * others. */
static bool may_split(const struct tcp_conn *c)
{
    return tcp_segs_room(c) || c->sh->copies->nfree_segs > TX_SEGS_MAX / TX_RESERVE;
}

/* s keeps its first len bytes; the rest is returned, in the same state. NULL: no record is left. */
struct tcp_tx_seg *tcp_segs_split(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t len)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *t = may_split(c) ? seg_alloc(c) : NULL;

    if (!t)
        return NULL;
    t->seq = s->seq + len;
    t->len = s->len - len;
    t->size = s->size;
    t->sent_us = s->sent_us;
    t->sent_ts = s->sent_ts;
    t->state = s->state;
    t->resent = s->resent;
    t->fin = s->fin;
    t->data = tcp_queue_at(s->data, t->seq);
    if (s->state == TCP_SEG_SACKED)
        tx->sacked_segs -= s->segs;
    s->len = len;
    s->fin = false;
    count_segs(s);
    count_segs(t);
    seg_insert(tx, s, t);
    if (s->state == TCP_SEG_SENT)
        TAILQ_INSERT_AFTER(&tx->sent, s, t, link);
    else if (s->state == TCP_SEG_LOST)
        TAILQ_INSERT_AFTER(&tx->lost, s, t, link);
    else
        tx->sacked_segs += s->segs + t->segs;
    return t;
}

void tcp_segs_sent(struct tcp_conn *c, struct tcp_tx_seg *s, uint64_t now_us)
{
    leave_state(c, s);
    s->state = TCP_SEG_SENT;
    s->sent_us = now_us;
    s->sent_ts = tcp_ts_now(c);
    s->resent = true;
    TAILQ_INSERT_TAIL(&c->tx.sent, s, link);
}

void tcp_segs_lose(struct tcp_conn *c, struct tcp_tx_seg *s)
{
    if (s->state != TCP_SEG_SENT)
        return;
    leave_state(c, s);
    s->state = TCP_SEG_LOST;
    c->tx.lost_bytes += s->len;
    TAILQ_INSERT_TAIL(&c->tx.lost, s, link);
}

/* They were found in the order of their transmission, and before all that is in flight. */
void tcp_segs_found(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s;

    while ((s = TAILQ_LAST(&tx->lost, tcp_tx_segs))) {
        leave_state(c, s);
        s->state = TCP_SEG_SENT;
        TAILQ_INSERT_HEAD(&tx->sent, s, link);
    }
}

/* RFC 2018 §8: the receiver may have thrown away what it had told of. */
void tcp_segs_forget_sacks(struct tcp_conn *c)
{
    struct tcp_tx *tx = &c->tx;

    for (struct tcp_tx_seg *s = tx->first; s && tx->sacked_bytes > 0; s = s->next) {
        if (s->state != TCP_SEG_SACKED)
            continue;
        leave_state(c, s);
        s->state = TCP_SEG_SENT;
        TAILQ_INSERT_HEAD(&tx->sent, s, link);
    }
}

void tcp_segs_free(struct tcp_conn *c)
{
    while (c->tx.first)
        seg_remove(c, c->tx.first);
}

/* ---- what an ACK says ---- */

/* The first n bytes of s are acknowledged by number. */
static void acked_part(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t n,
                       struct tcp_ack_sum *sum)
{
    uint64_t rtt = sum->now_us - s->sent_us;

    if (s->state == TCP_SEG_SACKED)
        return; /* known, and measured, before */
    sum->delivered += n;
    sum->largest = max(sum->largest, min(n, s->size));
    if (s->resent) {
        /* Other data of this ACK may have waited at the peer for it, so it does not measure the
         * path. */
        sum->resent_acked = true;
        sum->rtt = sum->rto_rtt = 0;
    } else if (!sum->resent_acked) {
        sum->rtt = (uint32_t)min(max(rtt, 1u), (uint64_t)UINT32_MAX);
        if (sum->rto_rtt == 0)
            sum->rto_rtt = sum->rtt;
    }
    tcp_rack_delivered(c, s, s->seq + n, sum);
}

/* s begins later by n, up to which all is acknowledged. */
static void trim(struct tcp_conn *c, struct tcp_tx_seg *s, uint32_t n)
{
    struct tcp_tx *tx = &c->tx;

    if (s->state == TCP_SEG_LOST)
        tx->lost_bytes -= n;
    if (s->state == TCP_SEG_SACKED)
        tx->sacked_bytes -= n; /* and keeps its count: how it was cut is not known any more */
    s->seq += n;
    s->len -= n;
    s->data = tcp_queue_at(s->data, s->seq);
    if (s->state != TCP_SEG_SACKED)
        count_segs(s);
}

/* una has moved: records below it go. Before the queue's pieces do. */
void tcp_segs_acked(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;
    struct tcp_tx_seg *s;

    while ((s = tx->first) && seq_leq(s->seq + s->len, tx->una)) {
        acked_part(c, s, s->len, sum);
        seg_remove(c, s);
    }
    if (s && seq_lt(s->seq, tx->una)) {
        acked_part(c, s, tx->una - s->seq, sum);
        trim(c, s, tx->una - s->seq);
    }
}

/* Two records that follow each other, both sacked, become one. */
static struct tcp_tx_seg *join(struct tcp_conn *c, struct tcp_tx_seg *s, struct tcp_tx_seg *t)
{
    struct tcp_tx *tx = &c->tx;

    if (!s || !t || s->state != TCP_SEG_SACKED || t->state != TCP_SEG_SACKED)
        return t ? t : s;
    tx->sacked_bytes += t->len; /* seg_remove() takes them away */
    tx->sacked_segs += t->segs;
    s->len += t->len;
    s->segs += t->segs;
    s->fin = t->fin;
    s->size = max(s->size, t->size);
    s->resent |= t->resent;
    seg_remove(c, t);
    return s;
}

static struct tcp_tx_seg *sack(struct tcp_conn *c, struct tcp_tx_seg *s, struct tcp_ack_sum *sum)
{
    struct tcp_tx *tx = &c->tx;

    sum->delivered += s->len;
    sum->sacked += s->len;
    sum->largest = max(sum->largest, min(s->len, s->size));
    if (!s->resent) {
        uint64_t rtt = sum->now_us - s->sent_us;

        sum->rtt = (uint32_t)min(max(rtt, 1u), (uint64_t)UINT32_MAX);
    }
    tcp_rack_delivered(c, s, s->seq + s->len, sum);
    leave_state(c, s);
    s->state = TCP_SEG_SACKED;
    tx->sacked_bytes += s->len;
    tx->sacked_segs += s->segs;
    s = join(c, s->prev, s);
    if (s->next && s->next->state == TCP_SEG_SACKED)
        s = join(c, s, s->next);
    return s;
}

/* Bytes of s, from its beginning, that make whole segments and are not more than n. A peer may keep
 * the payload of a segment and not its FIN. */
static uint32_t whole(const struct tcp_tx_seg *s, uint32_t n)
{
    if (n >= s->len)
        return s->len;
    return n >= payload_of(s) ? payload_of(s) : n / s->size * s->size;
}

/* Marks what lies within [left, right); parts of segments are not believed to have arrived. */
static void sack_block(struct tcp_conn *c, uint32_t left, uint32_t right, struct tcp_ack_sum *sum)
{
    struct tcp_tx_seg *s = seg_find(&c->tx, left);
    uint32_t off, n;

    for (; s && seq_lt(s->seq, right); s = s->next) {
        if (s->state == TCP_SEG_SACKED)
            continue;
        off = seq_lt(s->seq, left) ? left - s->seq : 0;
        off = (off + s->size - 1) / s->size * s->size;
        n = whole(s, right - s->seq);
        if (n <= off || off >= payload_of(s) + (off == 0))
            continue;
        if (off > 0 && !(s = tcp_segs_split(c, s, off)))
            return;
        n -= off;
        if (n < s->len && !tcp_segs_split(c, s, n))
            return;
        s = sack(c, s, sum);
    }
}

/* RFC 2883 §4: the first block tells of a duplicate if it lies below the acknowledgement, or within
 * the second block. */
static bool is_dsack(const struct tcp_seg *seg)
{
    const struct tcp_sack_block *b = seg->sack;

    if (seq_leq(b[0].right, seg->ack))
        return true;
    return seg->nsack > 1 && seq_leq(b[1].left, b[0].left) && seq_leq(b[0].right, b[1].right);
}

static bool plausible(const struct tcp_conn *c, const struct tcp_sack_block *b)
{
    const struct tcp_tx *tx = &c->tx;

    return seq_lt(b->left, b->right) && seq_leq(b->right, tx->nxt) &&
           b->right - b->left <= TX_QUEUE_MAX && tx->nxt - b->left <= TX_QUEUE_MAX;
}

void tcp_segs_sacks(struct tcp_conn *c, struct tcp_ack_sum *sum)
{
    const struct tcp_seg *seg = sum->seg;
    unsigned i = 0, n = min(seg->nsack, TCP_SACK_MAX);
    uint32_t left;

    if (!c->sack_on || n == 0)
        return;
    if (is_dsack(seg)) {
        if (plausible(c, &seg->sack[0])) {
            sum->dsack = true;
            sum->dsack_block = seg->sack[0];
            c->count.dsacks_in++;
        }
        i = 1;
    }
    c->count.sacks_in += i < n;
    for (; i < n; i++) {
        if (!plausible(c, &seg->sack[i]) || seq_leq(seg->sack[i].right, c->tx.una))
            continue;
        left = seq_max(seg->sack[i].left, c->tx.una);
        sack_block(c, left, seg->sack[i].right, sum);
    }
}
