/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Received data. In order: one list of mbufs, headers trimmed away, empty ones gone; nb_segs and
 * pkt_len mean nothing in it. Out of order: ranges that do not touch, each such a list.
 */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define OWN_MEMORY 16384u /* before the user granted any */
#define SMALL_ROOM 256u   /* of the buffers into which requests and HELLOs are copied */
#define RCV_MSS    536u   /* until a larger segment was seen */

static_assert(sizeof(struct tcp_rx_range) <= sizeof(struct pkt) - sizeof(uint64_t),
              "a range lies where a pkt was, whose sum stays");

/* Some bytes on their way into the queue. */
struct piece {
    uint32_t left, right;
    struct rte_mbuf *head, *tail;
    uint32_t truesize;
};

/* ---- mbufs ---- */

struct rte_mbuf *tcp_rx_free_first(struct rte_mbuf *m)
{
    struct rte_mbuf *next = m->next;

    m->next = NULL;
    m->nb_segs = 1;
    rte_pktmbuf_free_seg(m);
    return next;
}

static void free_list(struct rte_mbuf *m)
{
    while (m)
        m = tcp_rx_free_first(m);
}

/* Without the first n bytes and what else is empty then; NULL: nothing is left. */
static struct rte_mbuf *trim_front(struct rte_mbuf *m, uint32_t n)
{
    while (m && n >= m->data_len) {
        n -= m->data_len;
        m = tcp_rx_free_first(m);
    }
    if (m) {
        m->data_off += (uint16_t)n;
        m->data_len -= (uint16_t)n;
    }
    return m;
}

/* The first n bytes, n > 0; m does not begin with an empty one. */
static void keep_front(struct rte_mbuf *m, uint32_t n)
{
    while (n > m->data_len) {
        n -= m->data_len;
        m = m->next;
    }
    m->data_len = (uint16_t)n;
    free_list(m->next);
    m->next = NULL;
}

/* Empty ones within go; tail and truesize are found. */
static void measure(struct piece *p)
{
    struct rte_mbuf **at = &p->head;

    p->truesize = 0;
    p->tail = NULL;
    while (*at) {
        struct rte_mbuf *m = *at;

        if (m->data_len == 0) {
            *at = tcp_rx_free_first(m);
            continue;
        }
        p->truesize += tcp_rx_truesize(m);
        p->tail = m;
        at = &m->next;
    }
}

/* The bytes of m from left on, within [from, to) only. False: none are. */
static bool piece_cut(struct piece *p, struct rte_mbuf *m, uint32_t left, uint32_t right,
                      uint32_t from, uint32_t to)
{
    p->left = seq_max(left, from);
    p->right = seq_min(right, to);
    if (!seq_lt(p->left, p->right)) {
        free_list(m);
        return false;
    }
    p->head = trim_front(m, p->left - left);
    keep_front(p->head, p->right - p->left);
    measure(p);
    return true;
}

/* ---- SACK blocks ---- */

/* For data that came out of order (RFC 2018 §4: the range that changed last comes first, the others
 * follow by age) or twice (RFC 2883: first of all, and once). */

/* What lies within [left, right) is told no more. */
static void sack_drop(struct tcp_rx *rx, uint32_t left, uint32_t right)
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

/* The range was the last to change. */
static void sack_recent(struct tcp_rx *rx, uint32_t left, uint32_t right)
{
    sack_drop(rx, left, right);
    if (rx->nrecent == TCP_SACK_MAX)
        rx->nrecent--;
    for (unsigned i = rx->nrecent; i > 0; i--)
        rx->recent[i] = rx->recent[i - 1];
    rx->recent[0] = (struct tcp_sack_block){left, right};
    rx->nrecent++;
}

/* Ranges before nxt are told no more. */
static void sack_trim(struct tcp_rx *rx)
{
    uint8_t n = 0;

    for (uint8_t i = 0; i < rx->nrecent; i++)
        if (seq_lt(rx->nxt, rx->recent[i].right))
            rx->recent[n++] = rx->recent[i];
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

/* ---- copying sparse buffers together ---- */

/* Ours alone, with room. */
static bool may_grow(const struct rte_mbuf *m)
{
    return RTE_MBUF_DIRECT(m) && rte_mbuf_refcnt_read(m) == 1 && m->data_len < m->buf_len;
}

/* As many bytes of b as there is room for in a. The one place where what has arrived is copied. */
static uint32_t pull(struct rte_mbuf *a, struct rte_mbuf *b)
{
    uint32_t n = min((uint32_t)(a->buf_len - a->data_len), b->data_len);

    if (a->data_off + a->data_len + n > a->buf_len) {
        memmove(a->buf_addr, rte_pktmbuf_mtod(a, void *), a->data_len);
        a->data_off = 0;
        pkt_of(a)->sum_len = 0;
    }
    memcpy(rte_pktmbuf_mtod_offset(a, uint8_t *, a->data_len), rte_pktmbuf_mtod(b, void *), n);
    a->data_len += (uint16_t)n;
    b->data_off += (uint16_t)n;
    b->data_len -= (uint16_t)n;
    return n;
}

/* Fills each buffer of a list from the next ones. Returns how much truesize that has freed. */
static uint32_t pack(struct rte_mbuf *a, struct rte_mbuf **tail, uint64_t *copied)
{
    uint32_t freed = 0;

    while (a && a->next) {
        struct rte_mbuf *b = a->next;

        if (may_grow(a))
            *copied += pull(a, b);
        if (b->data_len > 0) {
            a = b;
            continue;
        }
        freed += tcp_rx_truesize(b);
        a->next = tcp_rx_free_first(b);
    }
    if (a)
        *tail = a;
    return freed;
}

static void squeeze(struct tcp_conn *c)
{
    struct tcp_rx *rx = &c->rx;
    uint64_t copied = 0;

    rx->truesize -= pack(rx->head, &rx->tail, &copied);
    for (struct tcp_rx_range *r = rx->ranges; r; r = r->next) {
        uint32_t freed = pack(r->head, &r->tail, &copied);

        r->truesize -= freed;
        rx->truesize -= freed;
    }
    if (copied == 0)
        return;
    count_add(&c->sh->stats.sparse, 1);
    count_add(&c->sh->stats.sparse_bytes, copied);
}

/* ---- ranges ---- */

/* Takes the one behind *at out of the list. */
static void range_drop(struct tcp_conn *c, struct tcp_rx_range **at)
{
    struct tcp_rx_range *r = *at;
    struct rte_mbuf *head = r->head;

    sack_drop(&c->rx, r->left, r->right);
    *at = r->next;
    c->rx.nranges--;
    c->rx.truesize -= r->truesize;
    c->rx.reass_bytes -= r->right - r->left;
    free_list(head); /* and r with it */
}

/* The highest goes: the peer sends it again (RFC 2018 §8 allows it). */
static void renege(struct tcp_conn *c)
{
    struct tcp_rx_range **at = &c->rx.ranges;

    while ((*at)->next)
        at = &(*at)->next;
    c->count.reass_dropped++;
    inet_count_drop(c->sh->inet, PKT_DROP_TCP_REASS_FULL);
    range_drop(c, at);
}

/* Behind the range a comes what begins where it ends. */
static void range_join(struct tcp_rx *rx, struct tcp_rx_range *a)
{
    struct tcp_rx_range *b = a->next;

    if (!b || b->left != a->right)
        return;
    a->tail->next = b->head;
    a->tail = b->tail;
    a->right = b->right;
    a->truesize += b->truesize;
    a->next = b->next;
    rx->nranges--;
}

/* A new one before *at. */
static struct tcp_rx_range *range_insert(struct tcp_rx *rx, struct tcp_rx_range **at,
                                         const struct piece *p)
{
    struct tcp_rx_range *r = (struct tcp_rx_range *)pkt_of(p->head);

    *r = (struct tcp_rx_range){p->left, p->right, p->head, p->tail, *at, p->truesize};
    *at = r;
    rx->nranges++;
    return r;
}

/* Ranges that lie within what has come again whole go; the part of it that another has is cut off.
 * at: the first range that ends behind p->left. False: all of it was there. */
static bool cut_overlap(struct tcp_conn *c, struct tcp_rx_range **at, struct piece *p)
{
    while (*at && seq_lt((*at)->left, p->right)) {
        struct tcp_rx_range *r = *at;

        tcp_rx_duplicate(c, seq_max(r->left, p->left), seq_min(r->right, p->right));
        if (seq_leq(p->left, r->left) && seq_leq(r->right, p->right)) {
            range_drop(c, at);
            continue;
        }
        if (seq_leq(r->left, p->left)) /* only its end may be new */
            return piece_cut(p, p->head, p->left, p->right, r->right, p->right) &&
                   cut_overlap(c, &r->next, p);
        return piece_cut(p, p->head, p->left, p->right, p->left, r->left);
    }
    return true;
}

/* ---- room ---- */

static bool fits(const struct tcp_rx *rx, uint32_t more)
{
    return rx->truesize + more <= rx->memory;
}

static void queue_append(struct tcp_rx *rx, struct rte_mbuf *head, struct rte_mbuf *tail)
{
    if (rx->tail)
        rx->tail->next = head;
    else
        rx->head = head;
    rx->tail = tail;
}

/* Bytes for which the last buffer of the queue has room go there. */
static void absorb(struct tcp_conn *c, struct piece *p)
{
    uint64_t copied = 0;

    while (p->head && c->rx.tail && may_grow(c->rx.tail)) {
        copied += pull(c->rx.tail, p->head);
        if (p->head->data_len == 0)
            p->head = trim_front(p->head, 0);
    }
    if (copied == 0)
        return;
    count_add(&c->sh->stats.sparse, 1);
    count_add(&c->sh->stats.sparse_bytes, copied);
    measure(p);
}

/* Moves a few bytes that come before a grant into a small buffer of our own. The port's buffer has
 * room for a whole frame. So as many greetings as may be pending find room for theirs. */
static void shrink(struct tcp_conn *c, struct piece *p)
{
    struct rte_mempool *pool = c->sh->tcp->own_pool;
    struct rte_mbuf *small;
    uint64_t copied = 0;

    if (c->rx.greeted || p->right - p->left > SMALL_ROOM || p->truesize <= mem_mbufs_truesize(pool))
        return;
    small = rte_pktmbuf_alloc(pool);
    if (!small)
        return;
    small->data_off = 0;
    pkt_of(small)->sum_len = 0;
    while (p->head) {
        copied += pull(small, p->head);
        p->head = trim_front(p->head, 0);
    }
    p->head = small;
    measure(p);
    count_add(&c->sh->stats.sparse, 1);
    count_add(&c->sh->stats.sparse_bytes, copied);
}

void tcp_rx_fit(struct tcp_conn *c, uint32_t more)
{
    if (likely(fits(&c->rx, more)))
        return;
    squeeze(c);
    while (c->rx.ranges && !fits(&c->rx, more))
        renege(c);
}

void tcp_rx_own(struct tcp_conn *c, bool counts)
{
    uint64_t own = counts && !c->rx.window ? c->rx.truesize : 0;

    c->sh->rx_own += own - c->rx.own;
    c->rx.own = own;
}

/* Whether what came before a grant has room within `most` bytes of all such connections. */
static bool own_may(const struct tcp_conn *c, uint32_t more, uint32_t most)
{
    return c->rx.window || c->sh->rx_own - c->rx.own + c->rx.truesize + more <= most;
}

static void room_in_order(struct tcp_conn *c, struct piece *p)
{
    uint64_t copied = 0;

    tcp_rx_fit(c, p->truesize);
    if (unlikely(!fits(&c->rx, p->truesize))) {
        (void)pack(p->head, &p->tail, &copied);
        measure(p);
    }
}

static bool room_out_of_order(struct tcp_conn *c, const struct piece *p)
{
    if (unlikely(!fits(&c->rx, p->truesize)))
        squeeze(c);
    return fits(&c->rx, p->truesize) && own_may(c, p->truesize, TCP_OWN_SPARSE);
}

/* ---- a segment ---- */

static void refuse(struct tcp_conn *c, struct piece *p, enum pkt_drop why)
{
    c->ack_now = true;
    c->count.reass_dropped++;
    inet_count_drop(c->sh->inet, why);
    free_list(p->head);
}

/* The data may join the end of the range before it. */
static void store_range(struct tcp_conn *c, struct tcp_rx_range *prev, struct tcp_rx_range **at,
                        struct piece *p)
{
    struct tcp_rx *rx = &c->rx;
    bool joins = (prev && prev->right == p->left) || (*at && (*at)->left == p->right);
    struct tcp_rx_range *r;

    if ((!joins && rx->nranges >= TCP_RX_RANGES) || !room_out_of_order(c, p)) {
        refuse(c, p, PKT_DROP_TCP_REASS_FULL);
        return;
    }
    rx->truesize += p->truesize;
    rx->reass_bytes += p->right - p->left;
    if (prev && prev->right == p->left) {
        r = prev;
        r->tail->next = p->head;
        r->tail = p->tail;
        r->right = p->right;
        r->truesize += p->truesize;
    } else {
        r = range_insert(rx, at, p);
    }
    range_join(rx, r);
    sack_recent(rx, r->left, r->right);
}

static void out_of_order(struct tcp_conn *c, struct piece *p)
{
    struct tcp_rx *rx = &c->rx;
    struct tcp_rx_range **at = &rx->ranges, *prev = NULL;

    c->ack_now = true; /* RFC 5681 §4.2 */
    c->count.reordered_in++;
    while (*at && seq_leq((*at)->right, p->left)) {
        prev = *at;
        at = &prev->next;
    }
    if (!cut_overlap(c, at, p)) { /* the range that has it all comes first: RFC 2883 §4 */
        sack_recent(rx, (*at)->left, (*at)->right);
        return;
    }
    if (*at && seq_leq((*at)->left, p->left)) { /* only its end was new */
        prev = *at;
        at = &prev->next;
    }
    store_range(c, prev, at, p);
}

/* The ranges that begin at nxt are in order now. */
static void join_ranges(struct tcp_conn *c)
{
    struct tcp_rx *rx = &c->rx;

    while (rx->ranges && rx->ranges->left == rx->nxt) {
        struct tcp_rx_range r = *rx->ranges;

        queue_append(rx, r.head, r.tail);
        rx->nxt = r.right;
        rx->queued += r.right - r.left;
        rx->reass_bytes -= r.right - r.left;
        rx->ranges = r.next;
        rx->nranges--;
    }
}

static void in_order(struct tcp_conn *c, struct piece *p)
{
    struct tcp_rx *rx = &c->rx;
    uint32_t old = rx->nxt, n = p->right - p->left;

    /* First, while it has all its bytes: a range that has some of them may have to go. */
    room_in_order(c, p);
    if (unlikely(rx->ranges)) {
        c->ack_now = true; /* it fills a gap, or a part of one: RFC 5681 §4.2 */
        if (!cut_overlap(c, &rx->ranges, p))
            return;
        n = p->right - p->left;
    }
    if (unlikely(!rx->window || !fits(rx, p->truesize))) {
        absorb(c, p);
        if (p->head && !rx->window)
            shrink(c, p);
        if (p->head && (!fits(rx, p->truesize) ||
                        !own_may(c, p->truesize, rx->greeted ? TCP_OWN_SPARSE : TCP_OWN_MEMORY))) {
            /* its end comes again */
            uint32_t left = 0;

            for (const struct rte_mbuf *m = p->head; m; m = m->next)
                left += m->data_len;
            n -= left;
            refuse(c, p, PKT_DROP_TCP_NO_MEMORY);
            p->head = NULL;
        }
    }
    if (p->head) {
        rx->truesize += p->truesize;
        queue_append(rx, p->head, p->tail);
    }
    rx->nxt += n;
    rx->queued += n;
    if (unlikely(rx->ranges))
        join_ranges(c);
    if (unlikely(rx->nrecent > 0))
        sack_trim(rx);
    c->count.bytes_in += rx->nxt - old;
    count_add(&c->sh->stats.bytes_in, rx->nxt - old);
}

static void note_fin(struct tcp_rx *rx, const struct tcp_seg *seg)
{
    uint32_t at = seg->seq + seg->len;

    if (!(seg->flags & TCP_FLAG_FIN) || rx->fin_seen || seq_lt(at, rx->nxt) || seq_lt(rx->edge, at))
        return;
    rx->fin_seen = true;
    rx->fin_seq = at;
}

static void note_mss(struct tcp_rx *rx, const struct tcp_seg *seg, const struct rte_mbuf *m)
{
    uint32_t mss = m->ol_flags & RTE_MBUF_F_RX_LRO && m->tso_segsz > 0 ? m->tso_segsz : seg->len;

    if (unlikely(mss > rx->mss))
        rx->mss = min(mss, (uint32_t)PORT_MTU_MAX);
}

static void payload(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    struct tcp_rx *rx = &c->rx;
    uint32_t right = seg->seq + seg->len, to = rx->edge;
    struct piece p;

    if (seq_lt(seg->seq, rx->nxt)) {
        tcp_rx_duplicate(c, seg->seq, seq_min(right, rx->nxt));
        if (seq_leq(right, rx->nxt))
            inet_count_drop(c->sh->inet, PKT_DROP_TCP_DUPLICATE);
    }
    if (rx->fin_seen)
        to = seq_min(to, rx->fin_seq);
    if (seq_lt(to, right))
        c->ack_now = true;
    if (!piece_cut(&p, m, seg->seq, right, rx->nxt, to))
        return;
    if (p.left == rx->nxt)
        in_order(c, &p);
    else
        out_of_order(c, &p);
    if (unlikely(!rx->window))
        tcp_rx_own(c, true);
}

void tcp_rx_segment(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m)
{
    struct tcp_rx *rx = &c->rx;
    uint32_t old = rx->nxt;

    note_fin(rx, seg);
    if (seg->len > 0) {
        note_mss(rx, seg, m);
        payload(c, seg, m);
    } else {
        rte_pktmbuf_free(m);
    }
    if (rx->fin_seen && !rx->fin_done && rx->nxt == rx->fin_seq) {
        rx->nxt++;
        rx->fin_done = true;
        c->ack_now = true;
    }
    c->ack_now |= (seg->flags & TCP_FLAG_FIN) != 0;
    if (rx->nxt == old)
        return;
    c->tell_readable = true;
    tcp_work(c);
}

/* ---- life ---- */

int tcp_rx_create(struct tcp *tcp, struct err *err)
{
    char name[24]; /* a process may have several TCPs: tests do */

    snprintf(name, sizeof(name), "tcp_own_%x", (unsigned)((uintptr_t)tcp >> 4));
    return mem_mbufs_create(name, tcp->nshards * TCP_OWN_SMALL, PKT_PRIV, SMALL_ROOM, -1,
                            &tcp->own_pool, err);
}

size_t tcp_rx_memory(unsigned reactors)
{
    return mem_mbufs_memory(reactors * TCP_OWN_SMALL, PKT_PRIV, SMALL_ROOM);
}

void tcp_rx_open(struct tcp_conn *c, uint32_t irs)
{
    struct tcp_rx *rx = &c->rx;

    rx->nxt = rx->edge = irs + 1;
    rx->granted = rx->nxt + STREAM_FIRST_WINDOW;
    rx->memory = OWN_MEMORY;
    rx->mss = RCV_MSS;
    c->last_ack_sent = rx->nxt;
}

void tcp_rx_free(struct tcp_conn *c)
{
    struct tcp_rx *rx = &c->rx;

    free_list(rx->head);
    rx->head = rx->tail = NULL;
    rx->queued = 0;
    while (rx->ranges)
        range_drop(c, &rx->ranges);
    rx->truesize = 0;
    tcp_rx_own(c, false);
    rx->nrecent = 0;
    rx->dsack = false;
}
