/* SPDX-License-Identifier: BSD-3-Clause */
/* The buffers of PUSHes that are received, and the line of those that wait for one:
 * docs/protocol/lnet-core.md §3.1. */
#include "test/unit/lnet_push_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

/* More PUSHes at once than there are buffers: the rest waits its turn, none is dropped. */
static void test_push_flood(void **state)
{
    static struct peer_msg *fx[3 * PUSH_IN];
    unsigned i;

    node_up(opts_default());
    loop.hold_recv = true;
    for (i = 0; i < 3 * PUSH_IN; i++) {
        fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i / nreactors), 0x06);
        settle();
    }
    for (i = 0; i < 3 * PUSH_IN; i++)
        assert_int_equal(fx[i]->recvs, i < PUSH_IN);
    assert_int_equal(rx_queue_length(&node->api->lazy), 2 * PUSH_IN);
    /* one ends, one begins: the one that has waited longest */
    for (i = 0; i < 5; i++) {
        recv_end(fx[i], ok);
        settle();
        for (unsigned n = 0; n < 3 * PUSH_IN; n++)
            assert_int_equal(fx[n]->recvs, n <= PUSH_IN + i);
    }
    /* all others: those parked are received as soon as a buffer is there, and do not nest */
    loop.hold_recv = false;
    for (i = 5; i < 3 * PUSH_IN; i++)
        if (fx[i]->recvs && !fx[i]->done) {
            recv_end(fx[i], ok);
            settle();
        }
    assert_in_range(loop.max_depth, 1, 2);
    for (i = 0; i < 3 * PUSH_IN; i++)
        assert_true(fx[i]->done);
    assert_int_equal(sent_count(LNET_MSG_ACK), 3 * PUSH_IN);
    assert_int_equal(drops_sum(), 0);
    /* again; this time no buffer comes free */
    loop.hold_recv = true;
    for (i = 0; i < PUSH_IN + 2; i++) {
        fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
        fx[i]->keep = true;
    }
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), 2);
    clock_us += 5 * SEC;
    settle();
    fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
    settle();
    clock_us += 5 * SEC + 2000;
    settle();
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 2);
    assert_int_equal(rx_queue_length(&node->api->lazy), 1);
    clock_us += 5 * SEC + 2000;
    settle();
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 3);
    node_down();
}

/* PUSHes that were begun and do not go on lose their buffers to those that wait. Of these the first
 * is one of a prefix that has none. */
static void test_push_stalled(void **state)
{
    struct lnet_node_opts opts = opts_default();
    static struct peer_msg *begun[PUSH_IN], *waits[40], *other;

    opts.prefix4 = 16;
    node_up(opts);
    loop.hold_recv = true;
    for (unsigned i = 0; i < PUSH_IN; i++)
        begun[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
    settle();
    clock_us += 9 * SEC; /* while nobody waits they have their time */
    settle();
    assert_int_equal(loop.abandoned, 0);
    for (unsigned i = 0; i < PUSH_IN; i++)
        begun[i]->in.rx.begun_us = begun[i]->in.rx.progress_us = clock_us;
    for (unsigned i = 0; i < 40; i++)
        waits[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", 100 + i), 0x06);
    other = push_from(tcp0, peer_on(0, 1, "tcp", 0), 0x06);
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), 41);
    clock_us += SEC / 2 - 2000;
    for (unsigned i = 0; i < PUSH_IN - 1; i++)
        begun[i]->in.rx.progress_us = clock_us;
    settle();
    assert_int_equal(loop.abandoned, 0);
    clock_us += SEC / 5;
    settle();
    assert_int_equal(loop.abandoned, 1);
    assert_true(begun[PUSH_IN - 1]->abandoned);
    assert_int_equal(other->recvs, 1);
    assert_int_equal(rx_queue_length(&node->api->lazy), 40);
    /* those that go on and do not end, too */
    for (unsigned i = 0; i < 10; i++) {
        clock_us += SEC / 5;
        for (unsigned k = 0; k < PUSH_IN - 1; k++)
            begun[k]->in.rx.progress_us = clock_us;
        other->in.rx.progress_us = clock_us;
        settle();
    }
    assert_int_equal(rx_queue_length(&node->api->lazy), 0);
    assert_in_range(loop.abandoned, 41, PUSH_IN);
    assert_int_equal(drops_of(LNET_DROP_RX_STALLED), loop.abandoned);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(waits[i]->recvs, 1);
    /* the rest of what was abandoned comes, and is nobody's */
    loop.hold_recv = false;
    for (unsigned i = 0; i < PUSH_IN; i++)
        recv_end(begun[i], ok);
    recv_end(other, ok);
    settle();
    node_down();
}

/* Nor does one peer get the line of those that wait. */
static void test_push_line(void **state)
{
    unsigned taken;

    node_up(opts_default());
    loop.hold_recv = true;
    for (unsigned i = 0; i < PUSH_IN; i++)
        push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06)->keep = true;
    settle();
    for (unsigned i = 0; i < 256; i++) {
        push_from(tcp0, peer_on(0, 1, "tcp", 0), 0x06)->keep = true;
        settle();
    }
    taken = rx_queue_length(&node->api->lazy);
    assert_in_range(taken, 100, 129);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 256 - taken);
    for (unsigned i = 0; i < 100; i++)
        push_from(tcp0, peer_on(i % nreactors, 2, "tcp", i), 0x06)->keep = true;
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), taken + 100);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 256 - taken);
    node_down();
}

/* One peer begins PUSHes and ends none: it gets a share of the buffers, and others theirs. */
static void test_push_hog(void **state)
{
    static struct peer_msg *fx[PUSH_IN], *other;
    struct lnet_nid hog;
    unsigned refused;

    node_up(opts_default());
    loop.hold_recv = true;
    hog = peer_on(0, 0, "tcp", 0);
    for (unsigned i = 0; i < PUSH_IN; i++) {
        fx[i] = push_from(tcp0, hog, 0x06);
        settle();
    }
    refused = (unsigned)drops_of(LNET_DROP_NO_MSG_MEMORY);
    assert_in_range(refused, 1, PUSH_IN - 1);
    assert_int_equal(rx_queue_length(&node->api->lazy), 0);
    other = push_from(tcp0, peer_on(0, 0, "tcp", 1), 0x06);
    settle();
    assert_int_equal(other->recvs, 1);
    assert_int_equal(drops_sum(), refused);
    /* what it holds it gives back, and may have again */
    loop.hold_recv = false;
    for (unsigned i = 0; i < PUSH_IN; i++)
        recv_end(fx[i], ok);
    recv_end(other, ok);
    settle();
    assert_int_equal(node->api->arriving_all, 0);
    other = push_from(tcp0, hog, 0x06);
    settle();
    assert_true(other->done);
    assert_int_equal(drops_sum(), refused);
    node_down();
}

#define SERVE_BURST 4 /* as in api/push.c */

static unsigned received(struct peer_msg *const *fx, unsigned n)
{
    unsigned got = 0;

    for (unsigned i = 0; i < n; i++)
        got += fx[i]->recvs > 0;
    return got;
}

/* Steps the reactors until each of n PUSHes has a buffer; no more get one at once than may. */
static void served_in_turns(struct peer_msg *const *fx, unsigned n, unsigned before)
{
    unsigned turns = 0;

    for (unsigned now; before < n; before = now, turns++) {
        step_all();
        now = received(fx, n);
        assert_in_range(now - before, 0, SERVE_BURST);
        assert_true(turns < n);
    }
}

/* So many PUSHes are taken in one iteration of the reactor, those that waited for a buffer too. The
 * others wait, as many as come; none is lost. */
static void test_push_turns(void **state)
{
    struct lnet_node_opts opts = opts_default();
    static struct peer_msg *fx[200];
    unsigned n = sizeof(fx) / sizeof(fx[0]);

    opts.max_peers = 1024;
    node_up(opts);
    for (unsigned i = 0; i < n; i++)
        fx[i] = push_from(tcp0, peer_on(0, 0, "tcp", i), 0x06);
    served_in_turns(fx, n, 0);
    settle();
    for (unsigned i = 1; i < n; i++)
        assert_true(fx[i]->when > fx[i - 1]->when);
    assert_int_equal(sent_count(LNET_MSG_ACK), n);
    sent_clear();

    loop.hold_recv = true;
    n = 3 * PUSH_IN;
    for (unsigned i = 0; i < n; i++)
        fx[i] = push_from(tcp0, peer_on(0, 2, "tcp", i), 0x06);
    settle();
    assert_int_equal(received(fx, n), PUSH_IN);
    loop.hold_recv = false;
    for (unsigned i = 0; i < PUSH_IN; i++)
        recv_end(fx[i], ok);
    served_in_turns(fx, n, PUSH_IN);
    settle();
    assert_int_equal(sent_count(LNET_MSG_ACK), n);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* Of the prefixes that wait, one gets a buffer that then has the fewest. */
static void test_push_fewest(void **state)
{
    struct lnet_node_opts opts = opts_default();
    static struct peer_msg *a[PUSH_IN / 2 + 2], *b[PUSH_IN / 2 + 2];
    unsigned half = PUSH_IN / 2;

    opts.prefix4 = 16;
    node_up(opts);
    loop.hold_recv = true;
    for (unsigned i = 0; i < half + 2; i++) {
        b[i] = push_from(tcp0, peer_on(i, 1, "tcp", i), 0x06);
        settle();
        a[i] = push_from(tcp0, peer_on(i, 0, "tcp", i), 0x06);
        settle();
    }
    assert_int_equal(rx_queue_length(&node->api->lazy), 4);
    for (unsigned i = 0; i < 3; i++) { /* now a has fewer than b, whose PUSHes wait longer */
        recv_end(a[i], ok);
        settle();
    }
    assert_int_equal(a[half]->recvs + a[half + 1]->recvs, 2);
    assert_int_equal(b[half]->recvs + b[half + 1]->recvs, 1);
    for (unsigned i = 3; i < half + 2; i++)
        recv_end(a[i], ok);
    for (unsigned i = 0; i < half + 1; i++)
        recv_end(b[i], ok);
    settle();
    recv_end(b[half + 1], ok);
    settle();
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* A list that the peer has sent already costs no merge. */
static void test_push_same(void **state)
{
    struct lnet_nid from;
    char nid[LNET_NIDSTR_SIZE], nids[3 * LNET_NIDSTR_SIZE];
    uint32_t round;

    node_up(opts_default());
    from = peer_on(0, 0, "tcp", 0);
    snprintf(nids, sizeof(nids), "%s 10.1.1.9@tcp1 10.1.1.8@tcp1", nid_format(&from, nid));
    push_list(from, nids);
    round = node->peers->round;
    push_list(from, nids);
    assert_int_equal(node->peers->round, round);
    snprintf(nids, sizeof(nids), "%s 10.1.1.9@tcp1 10.1.1.7@tcp1", nid_format(&from, nid));
    push_list(from, nids);
    assert_int_equal(node->peers->round, round + 1);
    assert_ptr_equal(peer_of("10.1.1.7@tcp1"), peer_of(nid));
    assert_null(peer_of("10.1.1.8@tcp1"));
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_push_flood), LNET_TEST(test_push_stalled), LNET_TEST(test_push_line),
    LNET_TEST(test_push_hog),   LNET_TEST(test_push_turns),   LNET_TEST(test_push_fewest),
    LNET_TEST(test_push_same),
};

LNET_TESTS_MAIN("test_lnet_push", tests)
