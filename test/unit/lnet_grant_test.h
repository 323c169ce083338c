/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of memory for segments share: connections of a transport that hands them over, of
 * which the test is the LND and the transport, at home on reactor 0. */
#ifndef MILLRACE_LNET_GRANT_TEST_H
#define MILLRACE_LNET_GRANT_TEST_H

#define EAL_MB 96
#include "test/unit/lnet_admit_test.h"

#include <errno.h>

#define BUFFER   2304u               /* what a receive buffer takes; 1448 bytes of payload in it */
#define BASE     (8192 * 2 + BUFFER) /* what an idle connection takes */
#define FULL     ((4u << 20) + 16384)
#define URGENT   65536u
#define LEAST    (2 * FULL + URGENT + 8192 * 2 + 16384)
#define MIB      (1u << 20)
#define NEW(len) ((len)*2 + BUFFER) /* what a message on a new connection reserves */
#define CONNS    64

struct conn {
    struct lnet_grant g;
    struct lnet_nid from;
    struct peer_msg *fx; /* its message, until that is received */
    uint32_t left;
    unsigned opened; /* when, by count */
};

static struct conn conns[CONNS];
static unsigned opens;
static uint64_t quick_others; /* what messages that there are not hold of the part of quick ones */

/* ---- what must be so at every moment ---- */

static inline struct lnet_budget *budget(void)
{
    return &node->shard[0]->credit->budget;
}

static inline void check(void)
{
    const struct lnet_shard *s = node->shard[0];
    uint64_t charges = 0, held[2] = {0, 0}, stalled = 0, quick = quick_others, of_dests = 0;
    unsigned i;

    for (i = 0; i < CONNS; i++)
        charges += conns[i].g.charge;
    for (i = 0; i < s->total_msgs; i++) {
        const struct lnet_msg *m = &s->msgs[i];

        if (m->state == LNET_MSG_FREE || m->kind != LNET_KIND_FORWARD)
            continue;
        held[m->account->gateway] += m->memory;
        stalled += m->stalled ? m->memory : 0;
        quick += m->quick ? m->memory : 0;
    }
    for (i = 0; i <= s->next_hop_mask; i++) {
        const struct lnet_next_hop *d;

        for (d = s->next_hop_hash[i]; d; d = d->hash_next)
            of_dests += d->memory;
    }
    assert_int_equal(budget()->held[0], held[0]);
    assert_int_equal(budget()->held[1], held[1]);
    assert_int_equal(budget()->stalled, stalled);
    assert_int_equal(budget()->quick, quick);
    assert_int_equal(of_dests + stalled, held[0] + held[1]);
    assert_int_equal(budget()->used, charges + held[0] + held[1]);
    assert_true(budget()->used <= budget()->total);
    assert_true(budget()->low <= budget()->total - budget()->used);
}

/* ---- the LND ---- */

static inline void on_opened(struct lnet_grant *g)
{
    struct conn *c = container_of(g, struct conn, g);

    assert_int_equal(reactor_index(reactor_self()), 0);
    assert_true(lnet_grant_is_open(g));
    c->opened = ++opens;
}

static inline struct conn *conn_open(unsigned k)
{
    struct conn *c = &conns[k];

    assert_null(c->g.shard);
    memset(c, 0, sizeof(*c));
    c->from = sender(k);
    ON(0, lnet_grant_open(&c->g, node, BUFFER, on_opened));
    check();
    return c;
}

static inline void conn_close(struct conn *c)
{
    ON(0, lnet_grant_close(&c->g));
    settle();
    check();
}

static inline uint32_t window(struct conn *c, uint32_t *memory)
{
    static struct lnet_rx idle;
    struct lnet_rx *rx = c->fx ? &c->fx->in.rx : &idle;
    uint32_t bytes;

    rx->grant = &c->g;
    ON(0, bytes = lnet_grant_window(rx, memory));
    settle();
    check();
    return bytes;
}

static inline void check_window(struct conn *c, uint32_t bytes, uint32_t memory)
{
    uint32_t m, n = window(c, &m);

    assert_int_equal(n, bytes);
    assert_int_equal(m, memory);
}

/* The header of a message; its recv may have come. */
static inline struct peer_msg *begin(struct conn *c, struct lnet_hdr h)
{
    static uint32_t seed;
    struct peer_msg *fx = rx_new(tcp0, c->from, h, ++seed);

    assert_null(c->fx);
    c->fx = fx;
    c->left = h.payload_len;
    fx->in.rx.grant = &c->g;
    rx_parse(fx);
    assert_int_equal(fx->parse, LNET_DROP_NONE);
    settle();
    check();
    return fx;
}

static inline struct peer_msg *begin_put(struct conn *c, struct lnet_nid to, uint32_t len)
{
    return begin(c, hdr_of(LNET_MSG_PUT, c->from, to, len));
}

/* False: what came so far was copied. */
static inline bool took(struct conn *c, uint32_t bytes, uint32_t truesize)
{
    struct peer_msg *fx = c->fx;
    struct mem_seg so_far = {fx->in.payload, fx->in.mlen - (c->left - bytes), MEM_REGION_NONE, 0};
    bool kept;

    assert_true(fx->recvs == 1 && !fx->in.segs && bytes <= c->left);
    c->left -= bytes;
    ON(0, {
        kept = lnet_rx_took(&fx->in.rx, bytes, truesize);
        if (!kept) {
            fx->in.segs = lnet_rx_copy(&fx->in.rx, &so_far, 1);
            fx->in.nsegs = 1;
        }
    });
    if (!kept)
        assert_memory_equal(fx->in.segs->addr, fx->in.payload, so_far.len);
    settle();
    check();
    return kept;
}

/* All of the message is there. */
static inline void finish(struct conn *c)
{
    struct peer_msg *fx = c->fx;
    uint32_t memory;

    c->fx = NULL;
    recv_end(fx, ok);
    settle();
    check();
    window(c, &memory);
}

static inline uint32_t dense(uint32_t bytes)
{
    return (bytes + 1447) / 1448 * BUFFER;
}

/* The rest of the message comes in full packets. */
static inline void receive(struct conn *c)
{
    struct peer_msg *fx = c->fx;

    if (fx->in.segs) {
        ON(0, lnet_grant_consumed(&c->g, c->left));
        c->left = 0;
    } else if (c->left > 0 && !fx->abandoned && fx->in.mlen > 0) {
        took(c, c->left, dense(c->left));
    }
    finish(c);
}

static inline bool is_in(const struct conn *c)
{
    return c->fx->recvs > 0;
}

/* One reactor has so much memory for segments, and many buffers. */
static inline void grants_up(size_t bytes, unsigned share, unsigned buffer_wait)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = o.small = 512 * nreactors;
    o.large = 20 * nreactors;
    o.segments = bytes * nreactors;
    o.egress_share = share;
    o.buffer_wait = buffer_wait;
    o.max_peers = 1024;
    node_up(o);
    assert_int_equal(lnet_segment_memory(node), bytes * nreactors);
    tcp0->rx_take = true;
    loop.hold_send = loop.hold_recv = true;
    memset(conns, 0, sizeof(conns));
    opens = 0;
    budget()->quick = quick_others = budget()->total; /* nothing is left of their part */
}

static inline void grants_down(void)
{
    unsigned i;

    for (i = 0; i < CONNS; i++)
        conn_close(&conns[i]);
    end_all();
    assert_int_equal(budget()->quick, quick_others);
    node_down();
}

static inline struct lnet_segment_stats stats(void)
{
    struct lnet_segment_stats st;

    lnet_segment_stats_get(node, 0, &st);
    return st;
}

static inline void open_all(unsigned n)
{
    unsigned i;

    for (i = 0; i < n; i++)
        assert_true(lnet_grant_is_open(&conn_open(i)->g));
}

/* Fills what end nodes may have, one message each. Says how many are in; they are received. */
static inline unsigned fill_up(unsigned first, uint32_t len)
{
    unsigned n;

    for (n = 0;; n++) {
        struct conn *c = &conns[first + n];

        assert_true(lnet_grant_is_open(&c->g));
        begin_put(c, hop(100 + n), len);
        if (!is_in(c)) {
            assert_true(rx_cancel(c->fx));
            c->fx = NULL;
            settle();
            check();
            return n;
        }
        assert_true(took(c, len, NEW(len)));
        finish(c);
    }
}

#endif
