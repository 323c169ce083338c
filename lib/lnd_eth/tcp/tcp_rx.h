/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving side of a connection: received data, in order and not, and the window of the peer.
 * A window grant is a reservation (stream.h rx_window): the right edge never moves left. Data
 * within the window is kept as long as its truesize is at most `memory`; sparse buffers are
 * copied together before that.
 */
#ifndef MILLRACE_TCP_RX_H
#define MILLRACE_TCP_RX_H

#include "lib/lnd_eth/port/pkt.h"
#include "lib/lnd_eth/tcp/tcp_wire.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/mem_mbuf.h"

struct stream;
struct tcp;
struct tcp_conn;

#define TCP_RX_RANGES 128 /* separate stretches kept out of order; more is dropped as if lost */

/* A stretch out of order. It lies in the private area of its own first mbuf, where struct pkt was:
 * so it needs no memory and goes wherever the mbuf goes. */
struct tcp_rx_range {
    uint32_t left, right;
    struct rte_mbuf *head, *tail;
    struct tcp_rx_range *next;
    uint32_t truesize;
};

struct tcp_rx {
    uint32_t nxt;                 /* RCV.NXT */
    uint32_t edge;                /* right edge told to the peer: never moves left */
    uint32_t granted;             /* right edge that the user granted */
    uint64_t memory;              /* truesize the queue may take */
    uint64_t truesize;            /* that it takes, in and out of order */
    uint64_t own;                 /* of that, counted in rx_own of its shard: before a grant */
    struct rte_mbuf *head, *tail; /* in order, headers trimmed away, not skipped or taken yet */
    uint32_t queued;              /* bytes of it */
    uint32_t nranges;
    struct tcp_rx_range *ranges; /* out of order, ascending, not touching */
    uint32_t reass_bytes;
    struct tcp_sack_block recent[TCP_SACK_MAX]; /* for SACK: the newest first, RFC 2018 §4 */
    uint8_t nrecent;
    bool dsack; /* recent[0] of the next ACK is a duplicate, RFC 2883 */
    struct tcp_sack_block dsack_block;
    uint32_t mss;  /* of the peer's segments: the largest seen */
    bool fin_seen; /* its place is known */
    uint32_t fin_seq;
    bool fin_done; /* nxt is behind it */
    bool paused;
    bool greeted;      /* its user handed it over: request and HELLO were read */
    bool starved;      /* peek() found less than was wanted */
    bool window;       /* rx_window() was called: memory is the user's */
    bool update;       /* the user granted enough for a window update */
    bool told;         /* readable() is due or was called since the last read */
    uint8_t peek[192]; /* STREAM_PEEK_MAX: bytes that lay apart. Last: seldom touched */
};

/* The small buffers of the process (TCP_OWN_SMALL); 0 or -errno. Control thread. */
int tcp_rx_create(struct tcp *tcp, struct err *err);
size_t tcp_rx_memory(unsigned reactors); /* EAL memory that they take */
void tcp_rx_open(struct tcp_conn *c, uint32_t irs);
/* An acceptable segment with payload or FIN (m's data begins with payload, seg->seq and seg->len
 * are of it; not trimmed to the window yet). Takes m (drops are counted). Decides about ack_now. */
void tcp_rx_segment(struct tcp_conn *c, const struct tcp_seg *seg, struct rte_mbuf *m);
/* SACK blocks for the next segment, at most max. D-SACK first; it is told once. */
unsigned tcp_rx_sacks(struct tcp_conn *c, struct tcp_sack_block *out, unsigned max);
/* The window field, as on the wire, of a segment that goes out now; moves rx.edge. syn: it is of a
 * SYN, and not scaled. */
uint16_t tcp_rx_window(struct tcp_conn *c, bool syn);
/* Returns true when the unannounced part of the window is large enough for an update (RFC 9293
 * §3.8.6.2.2). */
bool tcp_rx_window_due(const struct tcp_conn *c);
/* The user's calls, as stream.h says. */
size_t tcp_rx_peek(struct stream *s, size_t want, const uint8_t **p);
void tcp_rx_skip(struct stream *s, size_t n);
size_t tcp_rx_take(struct stream *s, size_t max, struct mem_seg *segs, unsigned maxsegs,
                   unsigned *nsegs, size_t *truesize);
void tcp_rx_give_back(struct mem_seg *segs, unsigned nsegs);
void tcp_rx_grant(struct stream *s, size_t bytes, size_t memory);
/* The bytes between left and right were there already: the next ACK says so, RFC 2883. */
void tcp_rx_duplicate(struct tcp_conn *c, uint32_t left, uint32_t right);
/* Copies together, and drops data out of order, until `more` bytes of truesize fit into `memory`.
 */
void tcp_rx_fit(struct tcp_conn *c, uint32_t more);
/* Brings rx_own of its shard up to date; `counts`: it is to be counted there. */
void tcp_rx_own(struct tcp_conn *c, bool counts);
/* Frees all. */
void tcp_rx_free(struct tcp_conn *c);
/* Frees the first mbuf of a list; returns the rest. */
struct rte_mbuf *tcp_rx_free_first(struct rte_mbuf *m);

/* The mbuf whose buffer it is. */
static inline struct rte_mbuf *tcp_rx_buffer(struct rte_mbuf *m)
{
    return RTE_MBUF_CLONED(m) ? rte_mbuf_from_indirect(m) : m;
}

static inline uint32_t tcp_rx_truesize(struct rte_mbuf *m)
{
    return mem_mbufs_truesize(tcp_rx_buffer(m)->pool);
}

#endif
