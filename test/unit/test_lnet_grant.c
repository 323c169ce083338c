/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for segments of transports: what is promised to peers and held by messages never exceeds
 * the budget, and everything comes back. docs/architecture.md "Segments of a transport".
 */
#include "lib/base/err.h"
#include "test/unit/lnet_grant_test.h"

#include <errno.h>

/* ---- idle connections ---- */

static void test_base(void **state)
{
    struct conn *c[6];

    grants_up(LEAST + 3 * BASE, 50, 10);
    for (unsigned i = 0; i < 6; i++)
        c[i] = conn_open(i);
    for (unsigned i = 0; i < 4; i++) /* one is part of the least */
        check_window(c[i], 8192, BASE);
    assert_false(lnet_grant_is_open(&c[4]->g) || lnet_grant_is_open(&c[5]->g));
    assert_int_equal(stats().grants_waiting, 2);
    assert_int_equal(stats().free, LEAST - BASE);
    assert_int_equal(opens, 0);
    conn_close(c[1]);
    assert_int_equal(c[4]->opened, 1);
    check_window(c[4], 8192, BASE);
    assert_int_equal(c[5]->opened, 0);
    /* one that comes now is behind it */
    conn_open(1);
    assert_false(lnet_grant_is_open(&c[1]->g));
    conn_close(c[0]);
    assert_int_equal(c[5]->opened, 2);
    conn_close(c[1]); /* closes while it waits */
    /* one that comes just when another goes is behind those that wait */
    conn_open(1);
    ON(0, lnet_grant_close(&c[3]->g));
    memset(c[3], 0, sizeof(*c[3]));
    ON(0, lnet_grant_open(&c[3]->g, node, BUFFER, on_opened));
    assert_false(lnet_grant_is_open(&c[3]->g));
    settle();
    check();
    assert_int_equal(c[1]->opened, 3);
    assert_false(lnet_grant_is_open(&c[3]->g));
    conn_close(c[3]);
    assert_int_equal(stats().grants_waiting, 0);
    conn_close(c[2]);
    assert_int_equal(opens, 3);
    grants_down();
}

/* What is consumed may be sent again, no more. */
static void test_base_goes_on(void **state)
{
    struct conn *c;

    grants_up(LEAST, 50, 10);
    c = conn_open(0);
    for (unsigned i = 0; i < 100; i++) {
        ON(0, lnet_grant_consumed(&c->g, 100 + 80 * i));
        check_window(c, 8192, BASE);
    }
    ON(0, lnet_grant_consumed(&c->g, 100000)); /* more than was promised is no more than that */
    check_window(c, 8192, BASE);
    grants_down();
}

/* ---- messages ---- */

static void test_reserve(void **state)
{
    struct conn *c;
    uint64_t used;

    grants_up(LEAST, 50, 10);
    c = conn_open(0);
    used = budget()->used;
    assert_int_equal(used, BASE);
    begin_put(c, hop(0), MIB);
    assert_true(is_in(c));
    assert_int_equal(budget()->used, BASE + NEW(MIB));
    check_window(c, MIB + 8192, BASE + NEW(MIB));
    assert_true(took(c, 500000, dense(500000)));
    assert_int_equal(budget()->used, BASE + NEW(MIB)); /* until all is there */
    check_window(c, MIB - 500000 + 8192, BASE + NEW(MIB) - dense(500000));
    receive(c);
    assert_int_equal(stats().held, dense(500000) + dense(MIB - 500000));
    check_window(c, 8192, BASE);
    assert_int_equal(loop.nheld, 1);
    send_end_all(ok);
    settle();
    assert_int_equal(budget()->used, BASE);
    /* empty ones and those that are dropped reserve nothing */
    begin_put(c, hop(0), 0);
    assert_int_equal(budget()->used, BASE);
    receive(c);
    begin_put(c, N("10.77.0.1@tcp77"), 100000);
    assert_int_equal(c->fx->in.mlen, 0);
    assert_int_equal(budget()->used, BASE);
    c->left = 0;
    receive(c);
    assert_int_equal(stats().waited, 0);
    grants_down();
}

/* One message of a connection with a ratio of memory to payload. */
static uint32_t ratio_after(struct conn *c, uint32_t percent)
{
    begin_put(c, hop(0), MIB);
    assert_true(took(c, MIB, MIB / 100 * percent));
    receive(c);
    send_end_all(ok);
    settle();
    return c->g.ratio;
}

static void test_ratio(void **state)
{
    unsigned r, was;
    struct conn *c;

    grants_up(2 * LEAST, 50, 10);
    c = conn_open(0);
    was = c->g.ratio;
    assert_int_equal(was, 512);
    for (unsigned n = 0; n < 100; n++, was = r) { /* down to what is there, little by little */
        r = ratio_after(c, 150);
        assert_true(r <= was && was - r <= 9);
    }
    assert_in_range(r, 383, 385);
    assert_in_range(ratio_after(c, 300), 766, 769); /* up at once */
    assert_int_equal(ratio_after(c, 700), 1024);    /* within limits */
    for (unsigned n = 0; n < 300; n++)
        r = ratio_after(c, 101);
    assert_int_equal(r, 320);
    begin_put(c, hop(0), 1000); /* a small one shows nothing */
    assert_true(took(c, 1000, 100000));
    receive(c);
    assert_int_equal(c->g.ratio, 320);
    assert_int_equal(stats().payload_copies, 0);
    grants_down();
}

/* A sparse message has what is free; then it is copied into its buffer. */
static void test_excess(void **state)
{
    struct conn *c, *other;
    struct peer_msg *fx;
    uint32_t spare;

    grants_up(LEAST + 3 * MIB, 50, 10);
    c = conn_open(0);
    other = conn_open(1);
    begin_put(c, hop(0), MIB);
    assert_true(took(c, 300000, 900000)); /* 300000 more than were to be for it */
    assert_in_range(budget()->used, 2 * BASE + NEW(MIB) + 299000, 2 * BASE + NEW(MIB) + 301000);
    check_window(c, MIB - 300000 + 8192, BASE + NEW(MIB - 300000));
    /* what is set aside is not free */
    spare = (uint32_t)(budget()->total - budget()->used - FULL - URGENT);
    fx = c->fx;
    assert_true(took(c, 1, spare));
    assert_int_equal(stats().payload_copies, 0);
    assert_false(took(c, 100000, 300000));
    assert_int_equal(stats().payload_copies, 1);
    assert_int_equal(stats().payload_copy_bytes, MIB);
    assert_in_range(stats().held, MIB - 400001, 4 * (MIB - 400001) + BUFFER); /* for the rest */
    check_window(c, MIB - 400001 + 8192, BASE + (uint32_t)budget()->held[0]);
    /* somebody else is not kept waiting by it */
    begin_put(other, hop(1), MIB);
    assert_true(is_in(other));
    receive(c);
    assert_int_equal(loop.nsent, 1);
    assert_memory_equal(loop.sent[0].payload, fx->in.payload, MIB);
    assert_int_equal(fx->releases, 0);
    receive(other);
    grants_down();
}

/* The LND may have a message copied for reasons of its own, also before anything has come. */
static void test_copy(void **state)
{
    struct conn *c;
    struct peer_msg *fx;

    grants_up(LEAST, 50, 10);
    c = conn_open(0);
    for (unsigned i = 0; i < 2; i++) {
        fx = begin_put(c, hop(0), 5000 * i + 3000);
        ON(0, fx->in.segs = lnet_rx_copy(&fx->in.rx, NULL, 0));
        fx->in.nsegs = 1;
        check();
        receive(c);
        assert_memory_equal(loop.sent[i].payload, fx->in.payload, 5000 * i + 3000);
    }
    assert_int_equal(stats().payload_copies, 2);
    assert_int_equal(stats().payload_copy_bytes, 11000);
    assert_int_equal(stats().held, 0);
    grants_down();
}

/* A connection ends: while it waits for its base, idle, in admission, in a message, and behind it.
 */
static void test_ends(void **state)
{
    const struct lnet_result lost = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    struct conn *c, *waits;
    struct peer_msg *fx;

    grants_up(LEAST + FULL + 5 * BASE, 50, 12);
    c = conn_open(0);
    /* in a message of which a part has come */
    fx = begin_put(c, hop(0), MIB);
    took(c, 100000, dense(100000));
    conn_close(c);
    loop.recv_result = lost;
    fx->abandoned = true; /* it hands over nothing */
    recv_end(fx, lost);
    settle();
    assert_int_equal(budget()->used, 0);
    check();
    /* the same, copied */
    c = conn_open(1);
    fx = begin_put(c, hop(0), MIB);
    took(c, 100000, dense(100000));
    ON(0,
       fx->in.segs = lnet_rx_copy(&fx->in.rx, &(struct mem_seg){fx->in.payload, 100000, 0, 0}, 1));
    fx->in.nsegs = 1;
    conn_close(c);
    recv_end(fx, lost);
    settle();
    assert_int_equal(budget()->used, 0);
    check();
    /* behind a message that is still to be sent */
    c = conn_open(2);
    begin_put(c, hop(0), MIB);
    receive(c);
    conn_close(c);
    assert_int_equal(budget()->used, dense(MIB));
    send_end_all(ok);
    settle();
    assert_int_equal(budget()->used, 0);
    /* while its header waits: the LND closes, then asks whether recv will come */
    open_all(6);
    assert_int_equal(fill_up(0, MIB), 4);
    waits = &conns[5];
    fx = begin_put(waits, hop(5), MIB);
    assert_int_equal(fx->recvs, 0);
    conn_close(waits);
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(fx->recvs, 1); /* it came first */
    fx->abandoned = true;
    recv_end(fx, lost);
    settle();
    check();
    grants_down();
}

/* ---- more than the base ---- */

static void bulk(struct conn *c)
{
    begin_put(c, hop(0), MIB);
    assert_true(is_in(c));
    receive(c);
    send_end_all(ok);
    settle();
}

static void test_ahead(void **state)
{
    uint32_t m, w, was = 0, told;
    struct conn *c, *idle, *d;

    grants_up(LEAST + 128 * MIB, 50, 12);
    c = conn_open(0);
    idle = conn_open(1);
    for (unsigned i = 0; i < 10; i++) {
        bulk(c);
        w = window(c, &m);
        assert_true(w >= was);
        assert_int_equal(m, 2 * w + BUFFER);
        was = w;
    }
    assert_int_equal(w, MIB); /* a whole message may follow at once */
    for (unsigned i = 0; i < 10; i++) {
        ON(0, lnet_grant_consumed(&idle->g, 24)); /* keepalives */
        w = window(idle, &m);
    }
    assert_in_range(w, 8192, 8192 + 24 * 20);
    /* The message behind takes its memory from what was kept for it. */
    window(c, &told);
    begin_put(c, hop(0), 900000);
    assert_true(c->g.charge + c->fx->in.rx.msg->memory >=
                told); /* it may have come, and lie there */
    receive(c);
    send_end_all(ok);
    settle();
    window(c, &told);
    begin_put(c, hop(0), MIB);
    assert_true(budget()->used <= BASE * 2 + 2 * MIB + 40 * BUFFER);
    assert_true(c->g.body == MIB && c->g.ahead == 0);
    receive(c);
    send_end_all(ok);
    settle();
    /* Half of the budget stays free of that. */
    for (unsigned i = 2; i < 40; i++) {
        d = conn_open(i);
        bulk(d);
        window(d, &m);
    }
    assert_true(budget()->used <= budget()->total / 2);
    assert_true(window(&conns[39], &m) < MIB / 2);
    grants_down();
}

/* ---- random events ---- */

static uint64_t rnd_state;

static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(rnd_state >> 33) % n;
}

static void abandoned_comes(struct conn *c)
{
    uint32_t n = c->left > 100000 ? 100000 : c->left;

    ON(0, lnet_grant_consumed(&c->g, n));
    c->left -= n;
}

static void receive_some(struct conn *c)
{
    uint32_t n = c->left > 0 ? 1 + rnd(c->left) : 0;

    c->fx->in.rx.progress_us = clock_us;
    if (c->fx->in.mlen == 0 || c->fx->abandoned) {
        abandoned_comes(c);
    } else if (n > 0 && c->fx->in.segs) {
        ON(0, lnet_grant_consumed(&c->g, n));
        c->left -= n;
    } else if (n > 0) {
        took(c, n, rnd(4) ? dense(n) : dense(n) * 3);
    }
    if (c->left == 0)
        finish(c);
}

static void lose(struct conn *c)
{
    const struct lnet_result lost = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    struct peer_msg *fx = c->fx;

    c->fx = NULL;
    ON(0, lnet_grant_close(&c->g));
    if (fx && fx->recvs == 0) {
        assert_true(rx_cancel(fx));
    } else if (fx) {
        fx->abandoned = true;
        recv_end(fx, lost);
    }
    settle();
    check();
}

static void any_message(struct conn *c)
{
    static const uint32_t sizes[] = {0, 1, 4096, 4097, 100000, MIB};
    struct lnet_nid to = rnd(4) ? hop(rnd(12)) : behind(rnd(2));

    if (rnd(8) == 0)
        begin(c, hdr_put(c->from, to, 0, 1, 0, 4000, false));
    else
        begin_put(c, to, sizes[rnd(6)]);
}

static void event(struct conn *c)
{
    uint32_t m, before, w;

    if (!c->g.shard) {
        conn_open((unsigned)(c - conns));
    } else if (rnd(50) == 0) {
        lose(c);
    } else if (lnet_grant_is_open(&c->g)) {
        before = c->g.body + c->g.ahead;
        w = window(c, &m);
        assert_true(w >= before); /* never taken back */
        if (!c->fx || !c->fx->abandoned)
            assert_true(m >= w / 4 * 5); /* what is in order finds room */
        if (!c->fx)
            any_message(c);
        else if (c->fx->recvs)
            receive_some(c);
    }
}

static void test_random(void **state)
{
    rnd_state = 20240607 + nreactors;
    grants_up(LEAST + 30 * BASE + 2 * MIB, 50, 2);
    assert_int_equal(route_add("tcp50", gateway(0), -1, 0), 0);
    assert_int_equal(route_add("tcp51", gateway(1), -1, 0), 0);
    settle();
    for (unsigned i = 0; i < 30000; i++) {
        event(&conns[rnd(40)]);
        while (loop.nheld > 0 && (loop.nheld > 30 || rnd(3) == 0))
            send_end(loop.held[rnd(loop.nheld)], ok);
        settle();
        if (rnd(20) == 0) {
            clock_us += rnd(100000);
            settle();
        }
        check();
        if (loop.nsent > 100)
            sent_clear();
    }
    assert_true(stats().payload_copies > 10);
    assert_true(stats().waited > 100);
    assert_true(loop.abandoned > 10);
    assert_true(drops_of(LNET_DROP_BUFFER_WAIT) > 10);
    for (unsigned k = 0; k < CONNS; k++)
        if (conns[k].g.shard)
            lose(&conns[k]);
    grants_down();
}

/* ---- how much ---- */

static void test_plan(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_memory m;
    struct err err = {0};

    assert_int_equal(lnet_memory_plan(&o, 3, &m, &err), 0);
    assert_int_equal(m.segments, 0);
    o.segments = 3 * (size_t)LEAST + 2;
    assert_int_equal(lnet_memory_plan(&o, 3, &m, &err), 0);
    assert_int_equal(m.segments, 3 * (size_t)LEAST);
    o.segments = 3 * (size_t)LEAST - 1;
    assert_int_equal(lnet_memory_plan(&o, 3, &m, &err), -ENOMEM);
    assert_string_equal(err.message,
                        "segments: 24.4 MiB are too little for 3 threads; give 24.4 or more");
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_base),  LNET_TEST(test_base_goes_on), LNET_TEST(test_reserve),
    LNET_TEST(test_ratio), LNET_TEST(test_excess),       LNET_TEST(test_copy),
    LNET_TEST(test_ends),  LNET_TEST(test_ahead),        LNET_TEST(test_random),
    LNET_TEST(test_plan),
};

LNET_TESTS_MAIN("test_lnet_grant", tests)
