/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receiving: segments of any size in any order, more than once, against a model that remembers
 * which bytes have come; the memory it may take; what SACK blocks say.
 */
#include "test/unit/tcp_fake.h"

#include "lib/reactor/mem_mbuf.h"

#define PORT 988
#define SPAN (1u << 20) /* bytes of the stream in the model */

static struct app a, b;
static struct stream_listener *listener;
static struct tcp_conn *c;         /* the one that receives */
static uint32_t first;             /* sequence number of byte 0 */
static uint8_t here[SPAN];         /* which bytes the model has */
static uint32_t in_order, highest; /* of here[]: all below are set; none from there on */
static uint64_t rnd_state;

static uint32_t rnd(uint32_t n)
{
    return (uint32_t)(test_random(&rnd_state) >> 20) % n;
}

static uint8_t byte_at(uint32_t at)
{
    return (uint8_t)(at * 31 + (at >> 8) * 7);
}

static void begin(uint64_t seed)
{
    static const struct tcp_opts opts = {.wscale_max = UINT_MAX, .max_conns = 16};

    rnd_state = seed;
    net_open(&opts, &opts);
    memset(&a, 0, sizeof(a));
    memset(&b, 0, sizeof(b));
    memset(here, 0, sizeof(here));
    in_order = highest = 0;
    b.hold = true;
    listener = app_listen(1, 0, PORT, false, &b);
    assert_int_equal(app_connect(&a, 0, 0, 1023, PORT, false), 0);
    NET_UNTIL(a.connected && b.connected, 1 * SECONDS);
    net_run(100 * MS);
    c = app_conn(&b);
    first = c->rx.nxt;
    net_bind(0);
}

static void end(void)
{
    app_close(&b, true);
    app_close(&a, true);
    app_unlisten(1, 0, listener);
    net_close();
}

/* A segment of the stream, in as many mbufs as `room` says. */
static void come(uint32_t at, uint32_t len, uint16_t room, bool fin)
{
    struct tcp_seg seg = {.seq = first + at, .len = len, .flags = TCP_FLAG_ACK};
    struct rte_mbuf *m = rte_pktmbuf_alloc(net.rx), *last = m;

    assert_non_null(m);
    for (uint32_t i = 0; i < len; i++) {
        if (last->data_len == room) {
            last->next = rte_pktmbuf_alloc(net.rx);
            assert_non_null(last->next);
            last = last->next;
            m->nb_segs++;
        }
        *rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len++) = byte_at(at + i);
        m->pkt_len++;
    }
    if (fin)
        seg.flags |= TCP_FLAG_FIN;
    tcp_rx_segment(c, &seg, m);
}

static uint32_t walk(const struct rte_mbuf *m, uint64_t *truesize)
{
    uint32_t n = 0;

    for (; m; m = m->next) {
        assert_true(m->data_len > 0);
        n += m->data_len;
        *truesize += mem_mbufs_truesize(m->pool);
    }
    return n;
}

/* What the queue says of itself is so. */
static void check_sums(void)
{
    const struct tcp_rx *rx = &c->rx;
    uint64_t truesize = 0;
    uint32_t reass = 0, n = 0, edge = rx->nxt;

    assert_int_equal(walk(rx->head, &truesize), rx->queued);
    for (const struct tcp_rx_range *r = rx->ranges; r; r = r->next, n++) {
        assert_true(seq_lt(edge, r->left) && seq_lt(r->left, r->right));
        assert_int_equal(walk(r->head, &truesize), r->right - r->left);
        assert_null(r->tail->next);
        reass += r->right - r->left;
        edge = r->right;
    }
    assert_int_equal(n, rx->nranges);
    assert_int_equal(reass, rx->reass_bytes);
    assert_int_equal(truesize, rx->truesize);
    assert_true(rx->truesize <= rx->memory);
    assert_true(n <= TCP_RX_RANGES);
    assert_true(!rx->tail || !rx->tail->next);
}

/* In a buffer of the port, or a small one of TCP. */
static bool is_received(const struct rte_mbuf *m)
{
    return m->pool == net.rx || m->pool == net.tcp[1]->own_pool;
}

static void read_some(uint32_t *at, size_t want)
{
    struct mem_seg segs[4], kept;
    const uint8_t *p;
    unsigned n;
    size_t truesize, got;

    if (rnd(2)) {
        got = stream_tcp.peek(&c->base, min(want, (size_t)STREAM_PEEK_MAX), &p);
        for (size_t i = 0; i < got; i++)
            assert_int_equal(p[i], byte_at(*at + (uint32_t)i));
        got = rnd((uint32_t)got + 1);
        (stream_tcp.skip)(&c->base, got);
        *at += (uint32_t)got;
        return;
    }
    got = stream_tcp.take(&c->base, want, segs, RTE_DIM(segs), &n, &truesize);
    assert_true(got <= want && truesize >= got);
    for (unsigned i = 0; i < n; i++) {
        for (uint32_t k = 0; k < segs[i].len; k++)
            assert_int_equal(segs[i].addr[k], byte_at(*at + k));
        *at += segs[i].len;
        assert_true(is_received(mem_mbuf_of(segs[i].region, segs[i].addr)));
    }
    /* In any order, each by itself. */
    while (n > 0) {
        unsigned i = rnd(n);

        kept = segs[i];
        segs[i] = segs[--n];
        stream_tcp.give_back(&kept, 1);
    }
}

static bool has(uint32_t from, uint32_t to)
{
    for (; from < to; from++)
        if (!here[from])
            return false;
    return true;
}

/* Each block tells of bytes that came; the first of those that did last. */
static void check_sacks(uint32_t at, uint32_t len)
{
    struct tcp_sack_block out[TCP_SACK_MAX];
    bool dsack = c->rx.dsack;
    unsigned n = tcp_rx_sacks(c, out, TCP_SACK_MAX);

    assert_true(n <= TCP_SACK_MAX);
    for (unsigned i = 0; i < n; i++) {
        assert_true(seq_lt(out[i].left, out[i].right));
        if (i == 0 && dsack) /* came twice, and may have been given up since */
            continue;
        assert_true(seq_lt(c->rx.nxt, out[i].left));
        assert_true(has(out[i].left - first, out[i].right - first));
    }
    if (n > (unsigned)dsack && len > 0 && has(at, at + len) && seq_lt(c->rx.nxt, first + at))
        assert_true(seq_leq(out[dsack].left, first + at) &&
                    seq_leq(first + at + len, out[dsack].right));
}

/* Ranges are what the model has, but for what was refused or given up for lack of memory. */
static void sync_model(void)
{
    uint32_t at = c->rx.nxt - first;

    if (at > in_order)
        memset(here + in_order, 1, at - in_order);
    in_order = at;
    for (const struct tcp_rx_range *r = c->rx.ranges; r; r = r->next) {
        uint32_t left = r->left - first, right = r->right - first;

        assert_true(has(left, right));
        memset(here + at, 0, left - at);
        at = right;
    }
    if (highest > at)
        memset(here + at, 0, highest - at);
    highest = at;
}

static void random_run(uint64_t seed, uint32_t seg_max, uint32_t wnd, uint32_t memory,
                       bool all_fits)
{
    uint32_t read = 0, most;

    begin(seed);
    stream_tcp.rx_window(&c->base, wnd, memory);
    for (int i = 0; i < 6000; i++) {
        uint32_t nxt, edge, at, len = 1 + rnd(seg_max), old;

        (void)tcp_rx_window(c, false);
        nxt = c->rx.nxt - first;
        edge = c->rx.edge - first;
        if (edge + seg_max + 100 >= SPAN)
            break;
        switch (rnd(4)) {
        case 0: /* what is next */
            at = nxt;
            break;
        case 1: /* again, partly */
            at = nxt > len / 2 ? nxt - len / 2 : 0;
            break;
        default: /* anywhere in the window, and over its edge */
            at = nxt + rnd(edge - nxt + 50);
            break;
        }
        old = nxt;
        most = min(at + len, edge);
        if (most > at)
            memset(here + at, 1, most - at);
        highest = max(highest, most);
        come(at, len, (uint16_t)(1 + rnd(1800)), false);
        nxt = c->rx.nxt - first;
        assert_true(nxt <= edge);
        if (all_fits && at <= old && most > old)
            assert_true(nxt >= most); /* in order, within the grant */
        sync_model();
        check_sacks(at, most > at ? most - at : 0);
        check_sums();
        if (rnd(4) == 0) {
            read_some(&read, 1 + rnd(5000));
            check_sums();
        }
        if (rnd(8) == 0) {
            stream_tcp.rx_window(&c->base, wnd, memory);
            check_sums();
        }
        if (i % 64 == 0)
            net_run(250); /* what is to be sent goes out */
        net_bind(0);
    }
    assert_int_equal(c->count.bytes_in, c->rx.nxt - first);
    while (c->rx.queued > 0)
        read_some(&read, 100000);
    assert_int_equal(read, c->rx.nxt - first);
    assert_true(read > 5000);
    end();
}

static void test_random_plenty(void **state)
{
    random_run(88172645463325252u, 3000, 64 << 10, 8 << 20, true);
}

static void test_random_small_segments(void **state)
{
    for (uint64_t i = 1; i < 6; i++)
        random_run(i * 7919, 40, 8192, 8192 * 5 / 4 + 2 * 2560, true);
}

static void test_random_tight(void **state)
{
    for (uint64_t i = 1; i < 6; i++)
        random_run(i * 104729, 700, 16384, 16384 * 5 / 4 + 2 * 2560, true);
}

/* Less than there must be: bytes may be lost, nothing else. */
static void test_random_starved(void **state)
{
    for (uint64_t i = 1; i < 6; i++)
        random_run(i * 15485863, 700, 16384, 6000, false);
}

/* One byte at a time before a grant: all are kept, and share buffers. */
static void test_first_window(void **state)
{
    uint32_t read = 0, one = mem_mbufs_truesize(net.rx);
    const struct tcp_shard *sh;

    begin(1);
    sh = net.tcp[1]->shard[0];
    assert_int_equal(c->rx.edge - first, STREAM_FIRST_WINDOW);
    for (uint32_t i = 0; i < STREAM_FIRST_WINDOW; i++) {
        come(i, 1, 1, false);
        assert_int_equal(c->rx.nxt - first, i + 1);
        assert_int_equal(sh->rx_own, c->rx.truesize);
    }
    check_sums();
    assert_true(c->rx.truesize <= (STREAM_FIRST_WINDOW / c->rx.head->buf_len + 1) * one);
    assert_true(sh->stats.sparse > 0);
    come(STREAM_FIRST_WINDOW, 1, 1, false); /* beyond the edge */
    assert_int_equal(c->rx.nxt - first, STREAM_FIRST_WINDOW);
    while (c->rx.queued > 0)
        read_some(&read, 1000);
    assert_int_equal(sh->rx_own, 0);
    end();
}

/* Anything before a grant: what is held is little, and counted. When all such connections have used
 * up what is theirs, more is lost until a grant comes. */
static void test_before_grant(void **state)
{
    for (uint64_t seed = 1; seed < 20; seed++) {
        uint32_t read = 0, nxt;
        struct tcp_shard *sh;

        begin(seed * 6700417);
        sh = net.tcp[1]->shard[0];
        for (int i = 0; i < 300; i++) {
            uint32_t len = 1 + rnd(600);

            nxt = c->rx.nxt - first;
            if (nxt + 300 + len > STREAM_FIRST_WINDOW)
                break;
            come(nxt + (rnd(3) == 0 ? rnd(300) : 0), len, 300, false);
            check_sums();
            assert_int_equal(sh->rx_own, c->rx.truesize);
            assert_true(c->rx.truesize <= 16384);
            if (rnd(3) == 0)
                read_some(&read, 1 + rnd(2000));
            assert_int_equal(sh->rx_own, c->rx.truesize);
        }
        while (c->rx.queued > 0)
            read_some(&read, 4096);
        tcp_rx_fit(c, 16384); /* what is out of order goes */
        tcp_rx_own(c, true);
        assert_int_equal(sh->rx_own, 0);
        sh->rx_own = TCP_OWN_MEMORY; /* others have all of it */
        nxt = c->rx.nxt - first;
        come(nxt, 10, 10, false);
        come(nxt + 20, 10, 10, false);
        assert_int_equal(c->rx.nxt - first, nxt);
        assert_null(c->rx.ranges);
        stream_tcp.rx_window(&c->base, 65536, 1 << 20);
        come(nxt, 10, 10, false);
        assert_int_equal(c->rx.nxt - first, nxt + 10);
        assert_int_equal(sh->rx_own, TCP_OWN_MEMORY);
        sh->rx_own = 0;
        read_some(&read, 10);
        end();
    }
}

/* Others' data out of order takes only a part, so that a HELLO in order finds room. */
static void test_sparse_before_grant(void **state)
{
    struct tcp_shard *sh;

    begin(1);
    sh = net.tcp[1]->shard[0];
    sh->rx_own = TCP_OWN_SPARSE;
    come(20, 10, 10, false);
    assert_null(c->rx.ranges);
    come(0, 10, 10, false);
    assert_int_equal(c->rx.nxt - first, 10);
    sh->rx_own -= TCP_OWN_SPARSE;
    come(20, 10, 10, false);
    assert_non_null(c->rx.ranges);
    end();
}

/* A few bytes take a small buffer, whatever the buffers of the port are: so many greetings as may
 * be pending leave room. Behind a HELLO the port's own is kept, and such data has a part only. */
static void test_small_before_grant(void **state)
{
    uint32_t port = mem_mbufs_truesize(net.rx), small;
    struct tcp_shard *sh;

    begin(1);
    sh = net.tcp[1]->shard[0];
    small = mem_mbufs_truesize(net.tcp[1]->own_pool);
    assert_true(small * TCP_OWN_SMALL <= TCP_OWN_MEMORY - TCP_OWN_SPARSE);
    come(0, 250, 100, false);
    assert_int_equal(c->rx.truesize, small);
    come(250, 20, 20, false); /* the first has room for a few of them */
    assert_int_equal(c->rx.truesize, 2 * small);
    come(270, 300, 300, false);
    assert_int_equal(c->rx.truesize, 2 * small + port);
    check_sums();
    c->rx.greeted = true;
    sh->rx_own += TCP_OWN_SPARSE;
    come(570, 2500, 2048, false); /* what the last buffer has room for */
    assert_int_equal(c->rx.truesize, 2 * small + port);
    assert_true(c->rx.nxt - first < 570 + 2500);
    c->rx.greeted = false;
    come(c->rx.nxt - first, 300, 300, false);
    assert_int_equal(c->rx.truesize, 2 * small + 2 * port);
    sh->rx_own -= TCP_OWN_SPARSE;
    end();
}

/* Less memory than is used: rx_window() copies together before it returns, and gives up what is
 * out of order. */
static void test_memory_shrinks(void **state)
{
    begin(2);
    stream_tcp.rx_window(&c->base, 32768, 1 << 20);
    (void)tcp_rx_window(c, false);
    for (uint32_t i = 0; i < 50; i++)
        come(i * 10, 10, 10, false);
    for (uint32_t i = 0; i < 50; i++)
        come(1000 + i * 20, 10, 10, false);
    check_sums();
    assert_int_equal(c->rx.nranges, 50);
    stream_tcp.rx_window(&c->base, 32768, 3 * 2560);
    check_sums();
    assert_int_equal(c->rx.queued, 500);
    assert_true(c->rx.nranges <= 2);
    end();
}

static void test_fin(void **state)
{
    begin(3);
    come(200, 100, 100, true); /* FIN out of order */
    assert_false(c->rx.fin_done);
    come(300, 50, 50, false); /* behind it: nothing */
    come(0, 100, 100, false);
    assert_int_equal(c->rx.nxt - first, 100);
    come(100, 150, 100, false);
    assert_int_equal(c->rx.nxt - first, 301);
    assert_true(c->rx.fin_done);
    assert_int_equal(c->rx.queued, 300);
    check_sums();
    end();
}

static void test_too_many_ranges(void **state)
{
    begin(4);
    stream_tcp.rx_window(&c->base, 32768, 8 << 20);
    (void)tcp_rx_window(c, false);
    for (uint32_t i = 0; i < TCP_RX_RANGES + 20; i++)
        come(10 + i * 20, 10, 10, false);
    assert_int_equal(c->rx.nranges, TCP_RX_RANGES);
    assert_int_equal(net.host[1].drops[PKT_DROP_TCP_REASS_FULL], 20);
    come(10 + TCP_RX_RANGES * 20 - 10, 10, 10, false); /* joins the last one: there is room */
    assert_int_equal(net.host[1].drops[PKT_DROP_TCP_REASS_FULL], 20);
    come(0, 10, 10, false);
    assert_int_equal(c->rx.nxt - first, 20);
    check_sums();
    end();
}

/* RFC 2018 §4, RFC 2883 §4. */
static void test_sack_order(void **state)
{
    struct tcp_sack_block out[4];

    begin(5);
    stream_tcp.rx_window(&c->base, 32768, 8 << 20);
    (void)tcp_rx_window(c, false);
    come(100, 100, 100, false);
    come(300, 100, 100, false);
    come(500, 100, 100, false);
    come(700, 100, 100, false);
    come(300, 100, 100, false); /* again: told once as a duplicate */
    assert_int_equal(tcp_rx_sacks(c, out, 3), 3);
    assert_int_equal(out[0].left - first, 300);
    assert_int_equal(out[0].right - first, 400);
    assert_int_equal(tcp_rx_sacks(c, out, 4), 4);
    come(200, 100, 100, false); /* joins two: the newest */
    assert_int_equal(tcp_rx_sacks(c, out, 4), 3);
    assert_int_equal(out[0].left - first, 100);
    assert_int_equal(out[0].right - first, 400);
    assert_int_equal(out[1].left - first, 700);
    assert_int_equal(out[2].left - first, 500);
    come(0, 100, 100, false);
    assert_int_equal(tcp_rx_sacks(c, out, 4), 2);
    come(50, 100, 100, false); /* old data */
    assert_int_equal(tcp_rx_sacks(c, out, 1), 1);
    assert_int_equal(out[0].left - first, 50);
    assert_int_equal(out[0].right - first, 150);
    end();
}

/* What was taken may come back after the stream has gone. */
static void test_give_back_late(void **state)
{
    struct mem_seg segs[8];
    size_t truesize;
    unsigned n, more;

    begin(6);
    come(0, 3000, 1000, false);
    assert_int_equal(stream_tcp.take(&c->base, 500, segs, 8, &n, &truesize), 500);
    assert_int_equal(truesize, mem_mbufs_truesize(net.rx));
    assert_int_equal(stream_tcp.take(&c->base, 2000, segs + n, 4, &more, &truesize), 2000);
    assert_int_equal(more, 3);
    assert_int_equal(truesize, 3 * mem_mbufs_truesize(net.rx));
    app_close(&b, true);
    app_close(&a, true);
    app_unlisten(1, 0, listener);
    net_run(100 * MS);
    assert_int_equal(net_mbufs_out(), 3);
    net_bind(0);
    stream_tcp.give_back(segs, n + more);
    net_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_window),          cmocka_unit_test(test_before_grant),
        cmocka_unit_test(test_small_before_grant),    cmocka_unit_test(test_sparse_before_grant),
        cmocka_unit_test(test_memory_shrinks),        cmocka_unit_test(test_fin),
        cmocka_unit_test(test_too_many_ranges),       cmocka_unit_test(test_sack_order),
        cmocka_unit_test(test_give_back_late),        cmocka_unit_test(test_random_plenty),
        cmocka_unit_test(test_random_small_segments), cmocka_unit_test(test_random_tight),
        cmocka_unit_test(test_random_starved),
    };

    net_make(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
