/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving as the user does it (stream.h), and the window that is told to the peer. */
#include "lib/lnd_eth/tcp/tcp_internal.h"

#include <string.h>

#define WINDOW_MAX (1u << 30) /* RFC 7323 §2.3 */

/* ---- window ---- */

static uint32_t beyond(uint32_t to, uint32_t from)
{
    return seq_lt(from, to) ? to - from : 0;
}

/* How far the edge would move. Windows are told in units of the scale, rounded down: at most what
 * was granted. (The field may so be smaller by part of a unit than the edge told before, RFC 7323
 * §2.4; what lies within that is accepted.) */
static uint32_t new_edge(const struct tcp_conn *c, bool syn)
{
    const struct tcp_rx *rx = &c->rx;
    uint8_t shift = syn ? 0 : c->rcv_wscale;
    uint32_t most = (uint32_t)UINT16_MAX << shift, wnd = beyond(rx->granted, rx->nxt);

    return rx->nxt + (min(wnd, most) >> shift << shift);
}

/* RFC 9293 §3.8.6.2.2: the edge moves by a full segment or half of the buffer, or not at all. */
static bool worth_telling(const struct tcp_conn *c, uint32_t edge, unsigned segments)
{
    uint32_t by = beyond(edge, c->rx.edge);
    /* The whole of what the user lets the peer send at a time. */
    uint32_t buffer = beyond(c->rx.granted, c->rx.nxt) + c->rx.queued;

    return by > 0 && by >= min(segments * c->rx.mss, buffer / 2);
}

uint16_t tcp_rx_window(struct tcp_conn *c, bool syn)
{
    struct tcp_rx *rx = &c->rx;
    uint8_t shift = syn ? 0 : c->rcv_wscale;
    uint32_t edge = new_edge(c, syn);

    if (syn || worth_telling(c, edge, 1))
        rx->edge = seq_max(rx->edge, edge);
    return (uint16_t)min(beyond(rx->edge, rx->nxt) >> shift, (uint32_t)UINT16_MAX);
}

bool tcp_rx_window_due(const struct tcp_conn *c)
{
    return worth_telling(c, new_edge(c, false), 2);
}

void tcp_rx_grant(struct stream *s, size_t bytes, size_t memory)
{
    struct tcp_conn *c = tcp_conn_of(s);
    struct tcp_rx *rx = &c->rx;
    uint32_t first = rx->nxt - rx->queued - rx->fin_done;
    uint32_t granted = first + (uint32_t)(bytes < WINDOW_MAX ? bytes : WINDOW_MAX);

    rx->granted = seq_max(rx->granted, granted);
    rx->memory = memory;
    rx->window = true;
    tcp_rx_own(c, false);
    tcp_rx_fit(c, 0);
    if (!c->ended && !rx->fin_done && tcp_rx_window_due(c)) {
        rx->update = true;
        tcp_work(c);
    }
}

/* ---- reading ---- */

/* The first of the queue leaves it. */
static struct rte_mbuf *pop(struct tcp_rx *rx)
{
    struct rte_mbuf *m = rx->head;

    rx->head = m->next;
    if (!rx->head)
        rx->tail = NULL;
    m->next = NULL;
    m->nb_segs = 1;
    rx->truesize -= tcp_rx_truesize(m);
    return m;
}

static void advance(struct rte_mbuf *m, uint32_t n)
{
    m->data_off += (uint16_t)n;
    m->data_len -= (uint16_t)n;
}

size_t tcp_rx_peek(struct stream *s, size_t want, const uint8_t **p)
{
    struct tcp_conn *c = tcp_conn_of(s);
    struct tcp_rx *rx = &c->rx;
    size_t n = 0;

    want = min(want, (size_t)STREAM_PEEK_MAX);
    rx->starved = rx->queued < want;
    if (rx->starved && (c->ended || rx->fin_done))
        tcp_work(c); /* no more will come: the end is due */
    want = rx->starved ? rx->queued : want;
    *p = rx->peek;
    if (rx->head && rx->head->data_len >= want) {
        *p = rte_pktmbuf_mtod(rx->head, const uint8_t *);
        return want;
    }
    for (const struct rte_mbuf *m = rx->head; n < want; m = m->next) {
        size_t part = min((size_t)m->data_len, want - n);

        memcpy(rx->peek + n, rte_pktmbuf_mtod(m, const uint8_t *), part);
        n += part;
    }
    return want;
}

/* Checks whether nothing is left, or less than the user wants: then the end is due. */
static void was_read(struct tcp_conn *c)
{
    c->rx.starved = false;
    if (c->rx.queued == 0 && (c->ended || c->rx.fin_done))
        tcp_work(c);
}

void tcp_rx_skip(struct stream *s, size_t n)
{
    struct tcp_conn *c = tcp_conn_of(s);
    struct tcp_rx *rx = &c->rx;

    n = n < rx->queued ? n : rx->queued;
    rx->queued -= (uint32_t)n;
    while (n > 0 && n >= rx->head->data_len) {
        n -= rx->head->data_len;
        rte_pktmbuf_free_seg(pop(rx));
    }
    if (n > 0)
        advance(rx->head, (uint32_t)n);
    if (unlikely(rx->own > 0))
        tcp_rx_own(c, true);
    was_read(c);
}

/* The whole mbuf for the user, who holds its buffer by a reference. */
static struct rte_mbuf *give(struct rte_mbuf *m)
{
    struct rte_mbuf *buffer = tcp_rx_buffer(m);

    if (buffer != m) {
        rte_mbuf_refcnt_update(buffer, 1);
        rte_pktmbuf_free_seg(m);
    }
    return buffer;
}

size_t tcp_rx_take(struct stream *s, size_t max, struct mem_seg *segs, unsigned maxsegs,
                   unsigned *nsegs, size_t *truesize)
{
    struct tcp_conn *c = tcp_conn_of(s);
    struct tcp_rx *rx = &c->rx;
    size_t done = 0;

    *nsegs = 0;
    *truesize = 0;
    while (rx->head && done < max && *nsegs < maxsegs) {
        struct rte_mbuf *m = rx->head;
        uint32_t n = m->data_len < max - done ? m->data_len : (uint32_t)(max - done);

        segs[(*nsegs)++] = (struct mem_seg){rte_pktmbuf_mtod(m, uint8_t *), n,
                                            mem_mbufs_region(tcp_rx_buffer(m)->pool), 0};
        *truesize += tcp_rx_truesize(m);
        if (n == m->data_len) {
            (void)give(pop(rx));
        } else {
            rte_mbuf_refcnt_update(tcp_rx_buffer(m), 1);
            advance(m, n);
        }
        done += n;
    }
    rx->queued -= (uint32_t)done;
    if (unlikely(rx->own > 0))
        tcp_rx_own(c, true);
    was_read(c);
    return done;
}

void tcp_rx_give_back(struct mem_seg *segs, unsigned nsegs)
{
    for (unsigned i = 0; i < nsegs; i++) {
        struct rte_mbuf *m = mem_mbuf_of(segs[i].region, segs[i].addr);

        if (!m)
            continue;
        /* A frame on another reactor may have given up the last reference but this one: its reads
         * come before the next write. DPDK looks at the count without that order. */
        (void)__atomic_load_n(&m->refcnt, __ATOMIC_ACQUIRE);
        rte_pktmbuf_free_seg(m);
    }
}
