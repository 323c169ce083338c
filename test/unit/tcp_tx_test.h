/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sending side of TCP alone: its files, with stand-ins for what makes segments and for IP. The
 * clock is the test's. What is sent is looked at, byte for byte, and handed to the test's `wire`.
 */
#ifndef MILLRACE_TCP_TX_TEST_H
#define MILLRACE_TCP_TX_TEST_H

#include "lib/base/err.h"
#include "lib/lnd_eth/tcp/tcp_cc.c"
#include "lib/lnd_eth/tcp/tcp_mtu.c"
#include "lib/lnd_eth/tcp/tcp_queue.c"
#include "lib/lnd_eth/tcp/tcp_rack.c"
#include "lib/lnd_eth/tcp/tcp_recover.c"
#include "lib/lnd_eth/tcp/tcp_rto.c"
#include "lib/lnd_eth/tcp/tcp_sack.c"
#include "lib/lnd_eth/tcp/tcp_tx.c"
#include "lib/reactor/reactor_internal.h"

#include "test/unit/reactor_test.h"

#define START_US   UINT64_C(10000000)
#define MS         UINT64_C(1000)
#define TEST_CONNS 4096
#define TEST_LEAST (2 * TEST_CONNS) /* pieces, and records, that these have in any case */
#define POOL       16384u

static struct tcp tcp;
static struct tcp_shard sh;
static struct tcp_conn *c;
static struct rte_mempool *shells, *payload_pool;
static uint64_t now;
static uint32_t isn; /* number of byte 0 */
static uint32_t test_tso, test_options;
static unsigned no_buffer; /* that many calls of tcp_out() or inet_alloc() find none */
static bool aborted;
static unsigned mtu_told;

/* One segment as it would be on the wire; bytes were looked at. */
struct sent {
    uint64_t at_us;
    uint64_t off; /* of its first byte */
    uint32_t len;
    uint8_t flags;
    uint32_t ts;
    bool in_place; /* headers were put in front of the payload, in its buffer */
    bool summed;   /* … whose sum was known, and right */
    bool begins;   /* the first of those that a frame was cut into … */
    uint16_t segs; /* … which had payload in so many buffers */
};
static void wire(const struct sent *s);
static void (*look_at)(const struct rte_mbuf *payload, bool tso); /* NULL: nothing more does */

/* ---- stand-ins ---- */

static uint8_t byte_at(uint64_t off)
{
    return (uint8_t)((off * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

/* Where in the stream a number is; near una. */
static uint64_t una_off;
static uint64_t off_of(uint32_t seq)
{
    return una_off + (uint64_t)(int64_t)(int32_t)(seq - (uint32_t)(isn + una_off));
}

static void check_bytes(const struct rte_mbuf *m, uint64_t off)
{
    uint32_t all = 0;

    for (const struct rte_mbuf *s = m; s; s = s->next) {
        const uint8_t *p = rte_pktmbuf_mtod(s, const uint8_t *);

        for (uint32_t i = 0; i < s->data_len; i++) {
            if (p[i] != byte_at(off + all + i))
                fail_msg("byte %" PRIu64 " is wrong", off + all + i);
        }
        all += s->data_len;
    }
    assert_int_equal(all, m->pkt_len);
}

/* What headers that are put in front of payload do: nothing there is anybody else's. Ethernet with
 * a tag, IPv6, TCP with all options. */
static void put_in_place(struct rte_mbuf *m, struct sent *s)
{
    const struct pkt *p = pkt_of(m);

    assert_int_equal(m->nb_segs, 1);
    assert_true(m->data_off >= 118);
    s->in_place = true;
    s->summed = p->sum_len == m->data_len && p->sum_at == m->data_off;
    if (s->summed)
        assert_int_equal(p->sum % 0xffff,
                         csum_partial(rte_pktmbuf_mtod(m, void *), m->data_len, 0) % 0xffff);
    memset(rte_pktmbuf_mtod(m, uint8_t *) - 118, 0xdd, 118);
}

bool tcp_out(struct tcp_conn *conn, uint32_t seq, uint8_t flags, struct rte_mbuf *payload, bool tso)
{
    uint32_t mss = c->mss + (c->ts_on ? 12 : 0) - test_options, left, n;
    struct sent s = {.at_us = now, .off = off_of(seq), .ts = tcp_ts_now(c)};

    assert_ptr_equal(conn, c);
    if (no_buffer > 0) {
        no_buffer--;
        rte_pktmbuf_free(payload);
        return false;
    }
    left = payload ? payload->pkt_len : 0;
    s.begins = true;
    s.segs = payload ? payload->nb_segs : 0;
    if (payload)
        check_bytes(payload, s.off);
    if (payload && look_at)
        look_at(payload, tso);
    if (payload && RTE_MBUF_DIRECT(payload))
        put_in_place(payload, &s);
    if (!tso)
        assert_true(left <= mss);
    else
        assert_true(left > mss && left <= test_tso);
    assert_true(left > 0 || (flags & TCP_FLAG_FIN));
    do {
        n = min(left, mss);
        left -= n;
        s.len = n;
        s.flags = left > 0 ? flags & ~(TCP_FLAG_PSH | TCP_FLAG_FIN) : flags;
        wire(&s);
        s.begins = false;
        s.off += n;
    } while (left > 0);
    rte_pktmbuf_free(payload);
    return true;
}

uint32_t tcp_out_tso_max(const struct tcp_conn *conn)
{
    return test_tso;
}

unsigned tcp_out_options(const struct tcp_conn *conn)
{
    return test_options;
}

uint32_t tcp_ts_now(const struct tcp_conn *conn)
{
    return (uint32_t)(now / 1000) + 77;
}

void tcp_work(struct tcp_conn *conn)
{
    conn->in_work = true;
}

void tcp_conn_abort(struct tcp_conn *conn, enum stream_end end)
{
    assert_int_equal(end, STREAM_END_TIMEOUT);
    aborted = true;
    tcp_tx_free(conn);
}

struct rte_mbuf *inet_alloc(struct inet_shard *shard, const struct inet_path *path)
{
    return rte_pktmbuf_alloc(shells);
}

static bool port_is_busy;

bool inet_tx_busy(struct inet_shard *shard, const struct inet_path *path)
{
    return port_is_busy;
}

void inet_path_mtu_set(struct inet_shard *shard, const struct inet_addr *remote, unsigned mtu)
{
    mtu_told = mtu;
}

static struct port test_port = {.name = "eth0"};

struct port *inet_if_port(const struct inet_if *ifp)
{
    return &test_port;
}

static bool link_is_down;

bool inet_if_link(const struct inet_if *ifp)
{
    return !link_is_down;
}

const char *inet_if_name(const struct inet_if *ifp)
{
    return "eth0";
}

static unsigned black_holes;

void inet_event(const struct inet *inet, const struct inet_event *event)
{
    assert_int_equal(event->kind, INET_EV_MTU_BLACK_HOLE);
    assert_string_equal(event->port, "eth0");
    assert_string_equal(event->cause, "large_segments_lost");
    assert_true(event->value > 0 && event->value < 1500);
    black_holes++;
}

/* ---- time ---- */

/* What tcp_flush() does. */
static void flush(void)
{
    while (c->in_work) {
        c->in_work = false;
        if (c->tx.open)
            tcp_tx_run(c);
    }
}

static void clock_to(uint64_t us)
{
    now = us;
    reactor_test_clock(now);
}

/* Steps of a millisecond, as the wheel's are, where a timer may be due. */
static inline void pass_until(uint64_t us)
{
    while (now < us) {
        uint64_t next = max((now / 1000 + 1) * 1000, wheel_next_us(&reactor_self()->wheel));

        clock_to(min(us, next));
        reactor_step(reactor_self(), 0);
        flush();
    }
}

/* ---- the invariants of the scoreboard, seen from every record ---- */

static unsigned check_tree(const struct tcp_tx_seg *s, const struct tcp_tx_seg *up)
{
    if (!s)
        return 0;
    assert_ptr_equal(s->up, up);
    if (up)
        assert_true(s->prio <= up->prio);
    if (s->left)
        assert_true(seq_lt(s->left->seq, s->seq));
    if (s->right)
        assert_true(seq_lt(s->seq, s->right->seq));
    return check_tree(s->left, s) + 1 + check_tree(s->right, s);
}

static void check_board(void)
{
    const struct tcp_tx *tx = &c->tx;
    uint32_t at = tx->una, sacked = 0, lost = 0, segs = 0, in_lists = 0, listed = 0, n = 0;
    const struct tcp_tx_seg *s, *before = NULL;
    const struct tcp_tx_data *d;

    if (!tx->open)
        return;
    for (s = tx->first; s; before = s, s = s->next) {
        n++;
        assert_ptr_equal(s->prev, before);
        assert_int_equal(s->seq, at);
        assert_true(s->len > 0 && s->size > 0 && s->segs > 0);
        at += s->len;
        assert_true(!s->fin || !s->next);
        if (s->len > s->fin) {
            assert_non_null(s->data);
            assert_true(seq_leq(s->data->seq, s->seq));
            assert_true(seq_lt(s->seq, s->data->seq + s->data->len));
        }
        if (s->state == TCP_SEG_SACKED) {
            sacked += s->len;
            segs += s->segs;
            assert_true(before == NULL || before->state != TCP_SEG_SACKED);
        } else {
            in_lists++;
        }
        if (s->state == TCP_SEG_LOST)
            lost += s->len;
    }
    assert_int_equal(at, tx->nxt);
    assert_ptr_equal(tx->last, before);
    assert_int_equal(sacked, tx->sacked_bytes);
    assert_int_equal(lost, tx->lost_bytes);
    assert_int_equal(segs, tx->sacked_segs);
    TAILQ_FOREACH(s, &tx->sent, link) {
        assert_int_equal(s->state, TCP_SEG_SENT);
        listed++;
    }
    TAILQ_FOREACH(s, &tx->lost, link) {
        assert_int_equal(s->state, TCP_SEG_LOST);
        listed++;
    }
    assert_int_equal(listed, in_lists);
    assert_int_equal(check_tree(tx->root, NULL), n);
    at = tx->una;
    for (d = tx->head; d; d = d->next) {
        assert_true(seq_leq(d->seq, at));
        at = d->seq + d->len;
        if (seq_leq(d->seq, tx->nxt) && seq_lt(tx->nxt, at))
            assert_ptr_equal(tx->unsent, d);
    }
    if (!tx->fin_acked)
        assert_int_equal(at, tx->end);
    if (tx->nxt == tx->end)
        assert_null(tx->unsent);
    assert_true(tx->cwnd >= 1 && tx->cwnd <= 1u << 30);
    assert_true(tcp_pipe(c) <= tx->nxt - tx->una);
    assert_int_equal(tx->unacked, seq_lt(tx->una, tx->end) ? tx->end - tx->una : 0);
}

/* ---- making ---- */

struct test_opts {
    uint32_t isn, mss, wnd;
    const char *cc;
    bool no_ts, no_sack, ecn, v6;
    uint64_t rtt_us;
    uint8_t wscale;
};

/* Another connection of the reactor; it is `c`. */
static inline void open_another(struct test_opts o)
{
    c = calloc(1, sizeof(*c));
    c->sh = c->owner = &sh;
    c->state = TCP_ESTABLISHED;
    c->mss = o.mss > 0 ? o.mss : 1448;
    c->ts_on = !o.no_ts;
    c->sack_on = !o.no_sack;
    c->ecn_on = o.ecn;
    c->snd_wscale = o.wscale;
    if (!o.v6)
        c->path.remote.b[10] = c->path.remote.b[11] = 0xff;
    test_options = c->ts_on ? 12 : 0;
    test_tso = 0;
    no_buffer = 0;
    aborted = false;
    mtu_told = 0;
    link_is_down = false;
    isn = o.isn;
    una_off = 0;
    tcp_tx_open(c, isn, o.wnd > 0 ? o.wnd : 1 << 20, 5000, o.rtt_us);
}

static inline void open_conn(struct test_opts o)
{
    struct err err = {0};

    clock_to(now + START_US); /* never back: the reactor's wheel has turned */
    reactor_step(reactor_self(), 0);
    memset(&tcp, 0, sizeof(tcp));
    memset(&sh, 0, sizeof(sh));
    tcp.env = env;
    tcp.nshards = 1;
    tcp.opts.user_timeout = 50;
    tcp.opts.copy_bytes = 4u << 20;
    tcp.opts.max_conns = TEST_CONNS;
    tcp.cc = tcp_cc_find(o.cc);
    sh.tcp = &tcp;
    sh.reactor = reactor_self();
    if (tcp_tx_create(&tcp, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(tcp_tx_shard_create(&sh), 0);
    open_another(o);
}

/* All that was taken has come back. */
static inline void close_conn(void)
{
    tcp_tx_free(c);
    assert_int_equal(sh.copies->nfree_data, TX_DATA_MAX - TEST_LEAST);
    assert_int_equal(sh.copies->nfree_segs, TX_SEGS_MAX - TEST_LEAST);
    assert_int_equal(rte_mempool_in_use_count(shells), 0);
    assert_int_equal(rte_mempool_in_use_count(payload_pool), 0);
    assert_int_equal(rte_mempool_in_use_count(tcp.copy_pool), 0);
    assert_int_equal(rte_mempool_in_use_count(tcp.small_pool), 0);
    assert_false(reactor_timer_armed(&c->tx.timer));
    assert_int_equal(sh.port_waits, 0);
    assert_int_equal(c->tx.pieces + c->tx.records + c->tx.copied, 0);
    reactor_bind(reactor_control(env));
    reactor_step(reactor_control(env), 0); /* what was posted to be told */
    reactor_bind(reactor_at(env, 0));
    free(c);
    tcp_tx_shard_destroy(&sh);
    mem_mbufs_destroy(tcp.copy_pool);
    mem_mbufs_destroy(tcp.small_pool);
}

static int begin_env(void **state)
{
    struct err err = {0};
    struct reactor_opts opts = {.prog = "millrace-test",
                                .cores = "auto",
                                .count = 1,
                                .idle = REACTOR_IDLE_ADAPTIVE,
                                .mem_mb = 128};

    if (reactor_env_create(&opts, &env, &err) < 0)
        fail_msg("%s", err.message);
    if (mem_mbufs_create("shells", POOL, 0, 384, -1, &shells, &err) < 0 ||
        mem_mbufs_create("payload", POOL, 0, 2048, -1, &payload_pool, &err) < 0)
        fail_msg("%s", err.message);
    reactor_bind(reactor_at(env, 0));
    /* The wheel stands at the machine's time. */
    now = (reactor_now_us() / 1000 + 1) * 1000;
    return 0;
}

static int end_env(void **state)
{
    reactor_test_clock(UINT64_MAX);
    reactor_bind(reactor_control(env));
    mem_mbufs_destroy(shells);
    mem_mbufs_destroy(payload_pool);
    reactor_env_destroy(env);
    return 0;
}

/* Gives len bytes of the stream from off on to send, in pieces of `piece`: by reference if it can
 * be (the test's own reference is given up at once), else from memory of no region. Returns what
 * was taken. */
static inline uint32_t give(uint64_t off, uint32_t len, uint32_t piece, bool by_ref, bool more)
{
    uint8_t lent[2048];
    uint32_t done = 0, n;
    ssize_t took = 0;

    while (done < len) {
        struct mem_seg seg = {.region = MEM_REGION_NONE};
        struct rte_mbuf *m = by_ref ? rte_pktmbuf_alloc(payload_pool) : NULL;

        n = (uint32_t)min(min(len - done, piece), sizeof(lent) - 128);
        seg.addr = m ? rte_pktmbuf_mtod(m, uint8_t *) : lent;
        seg.len = n;
        for (uint32_t i = 0; i < n; i++)
            seg.addr[i] = byte_at(off + done + i);
        if (m)
            seg.region = mem_mbufs_region(payload_pool);
        took = tcp_tx_append(c, &seg, 1, more || done + n < len);
        if (m)
            rte_pktmbuf_free_seg(m);
        memset(lent, 0xee, sizeof(lent));
        assert_true(took >= 0 && took <= n);
        done += (uint32_t)took;
        if ((uint32_t)took < n)
            break;
    }
    return done;
}

/* An ACK of the peer: acknowledged up to off, with blocks of offsets (left, right …, ends with a
 * pair of zeros), which are put as they are. */
struct told {
    uint64_t ack;
    uint64_t sack[2 * TCP_SACK_MAX];
    uint32_t win;
    uint32_t ecr; /* 0: as of now */
    uint32_t seq;
    uint8_t flags;
    bool data;
};

/* Pieces of one byte: one buffer has many, none beside another. Returns what was taken. */
static inline uint32_t give_bytes(uint64_t off, uint32_t len)
{
    struct rte_mbuf *m;
    uint32_t done = 0, n;
    ssize_t took;

    do {
        struct mem_seg segs[900];

        m = rte_pktmbuf_alloc(payload_pool);
        assert_non_null(m);
        n = min(len - done, (uint32_t)RTE_DIM(segs));
        for (uint32_t i = 0; i < n; i++) {
            segs[i] = (struct mem_seg){rte_pktmbuf_mtod(m, uint8_t *) + 2 * i, 1,
                                       mem_mbufs_region(payload_pool), 0};
            *segs[i].addr = byte_at(off + done + i);
        }
        took = tcp_tx_append(c, segs, n, false);
        rte_pktmbuf_free_seg(m);
        assert_true(took >= 0);
        done += (uint32_t)took;
    } while ((uint32_t)took == n && done < len);
    return done;
}

static inline void tell_ack(struct told t)
{
    struct tcp_seg seg = {.seq = t.seq != 0 ? t.seq : 5000,
                          .ack = isn + (uint32_t)t.ack,
                          .flags = TCP_FLAG_ACK | t.flags,
                          .win = (uint16_t)(t.win >> c->snd_wscale),
                          .has_ts = c->ts_on,
                          .ts_ecr = t.ecr != 0 ? t.ecr : tcp_ts_now(c)};

    for (unsigned i = 0; i < TCP_SACK_MAX && t.sack[2 * i] + t.sack[2 * i + 1] > 0; i++)
        seg.sack[seg.nsack++] = (struct tcp_sack_block){isn + (uint32_t)t.sack[2 * i],
                                                        isn + (uint32_t)t.sack[2 * i + 1]};
    c->heard_us = now;
    tcp_tx_ack(c, &seg, t.data);
    una_off += c->tx.una - (uint32_t)(isn + una_off);
    check_board();
    flush();
    check_board();
}

#endif
