/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory for segments of transports: who waits for it, why, and who is next.
 * docs/architecture.md "Segments of a transport".
 */
#include "lib/base/err.h"
#include "test/unit/lnet_grant_test.h"

static void test_wait_ends(void **state)
{
    struct conn *share, *memory, *urgent;

    grants_up(LEAST + FULL + 20 * BASE, 50, 3);
    open_all(20);
    share = &conns[0];
    memory = &conns[1];
    urgent = &conns[2];
    begin_put(share, hop(0), MIB);
    receive(share);
    begin_put(share, hop(0), MIB);
    assert_true(is_in(share));
    receive(share);
    ON(0, lnet_grant_consumed(&share->g, 96));
    begin_put(share, hop(0), MIB); /* holds 3.3 of 8 MiB */
    assert_false(is_in(share));
    assert_int_equal(stats().waiting, 1);
    assert_int_equal(pool_stats(0, LNET_POOL_LARGE).waiting, 1);
    check_window(share, 8192 - 96, BASE); /* nothing more is promised while it waits */
    begin_put(memory, hop(1), MIB);       /* others are not kept waiting */
    assert_true(is_in(memory));
    receive(memory);
    pass(3 * SEC + 100000);
    assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), 1);
    assert_int_equal(drops_sum(), 1);
    assert_true(is_in(share) && share->fx->in.mlen == 0);
    receive(share);
    fill_up(10, MIB);
    assert_int_equal(drops_sum(), 2); /* the one that it took back */
    begin_put(memory, hop(1), MIB);   /* which holds one, but its share is not what is missing */
    assert_false(is_in(memory));
    assert_int_equal(stats().waiting, 1);
    /* what is urgent has a reserve */
    begin(urgent, hdr_put(urgent->from, hop(3), 0, 1, 0, 4000, false));
    assert_true(is_in(urgent));
    receive(urgent);
    pass(2 * SEC);
    assert_int_equal(drops_sum(), 2);
    pass(SEC + 100000);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 1);
    assert_int_equal(drops_sum(), 3);
    receive(memory);
    assert_int_equal(stats().waiting, 0);
    grants_down();
}

/* Whoever waits longest has what comes free: many small ones do not keep a large one waiting. */
static void test_first_in_line(void **state)
{
    struct conn *large, *small, *late;
    unsigned i;

    grants_up(LEAST + FULL + CONNS * BASE, 50, 12);
    open_all(CONNS);
    large = &conns[0];
    small = &conns[1];
    late = &conns[2];
    assert_true(fill_up(10, 400000) > 5);
    begin_put(large, hop(1), MIB);
    pass(1000000);
    begin_put(small, hop(2), 400000);
    for (i = 0; i < 3 && !is_in(large); i++) {
        assert_false(is_in(small));
        begin_put(late, hop(3 + i), 200000);
        assert_false(is_in(late));
        assert_true(rx_cancel(late->fx));
        late->fx = NULL;
        send_end(loop.held[0], ok);
        settle();
        check();
    }
    assert_in_range(i, 2, 3);
    assert_true(is_in(large));
    receive(large);
    if (!is_in(small)) {
        send_end(loop.held[0], ok);
        settle();
    }
    assert_true(is_in(small));
    receive(small);
    assert_int_equal(stats().waiting, 0);
    /* and when the first goes away, what was kept for it is for the others */
    send_end_all(ok);
    settle();
    fill_up(10, 400000);
    begin_put(large, hop(1), MIB);
    begin_put(small, hop(2), 400000);
    send_end(loop.held[0], ok);
    settle();
    assert_false(is_in(large) || is_in(small));
    assert_true(rx_cancel(large->fx));
    large->fx = NULL;
    settle();
    check();
    assert_true(is_in(small));
    receive(small);
    grants_down();
}

/* A part is left to messages for quick next hops, whoever waits. */
static void test_quick_part(void **state)
{
    struct conn *stranger = &conns[0], *quick = &conns[1], *second = &conns[2], *last = &conns[40];
    struct lnet_nid to;

    grants_up(LEAST + FULL + CONNS * BASE, 50, 12);
    budget()->quick = quick_others = 0;
    quick_for(0);
    to = hop(2);
    node->shard[0]->credit->quick[LNET_POOL_LARGE][nid_hash(&to) % LNET_QUICKS].soon = 8;
    open_all(CONNS);
    assert_true(fill_up(10, 400000) > 3);
    for (unsigned i = 40; begin_put(&conns[i], hop(200 + i), 50000), is_in(&conns[i]); i++) {
        last = &conns[i + 1];
        receive(&conns[i]);
    }
    begin_put(stranger, hop(1), 400000);
    assert_false(is_in(stranger));
    begin_put(quick, to, 200000);
    assert_true(is_in(quick));
    receive(quick);
    begin_put(second, to, 400000); /* more than what is left of the part */
    assert_false(is_in(second));
    assert_true(rx_cancel(second->fx));
    assert_true(rx_cancel(stranger->fx));
    assert_true(rx_cancel(last->fx));
    second->fx = stranger->fx = last->fx = NULL;
    grants_down();
}

/* One that did not wait for memory at first has its place in the line by its age. */
static void test_older_first(void **state)
{
    struct conn *older, *younger;

    grants_up(LEAST + CONNS * BASE, 50, 12);
    open_all(CONNS);
    older = &conns[0];
    younger = &conns[1];
    begin_put(older, hop(0), MIB);
    receive(older);
    begin_put(older, hop(0), MIB); /* its next hop has its share */
    assert_false(is_in(older));
    fill_up(10, 300000);
    pass(1000000);
    begin_put(younger, hop(1), MIB);
    send_end(loop.held[0], ok); /* the one of hop(0) */
    settle();
    check();
    assert_false(is_in(younger));
    while (!is_in(older)) {
        assert_false(is_in(younger));
        send_end(loop.held[0], ok);
        settle();
        check();
    }
    assert_false(is_in(younger));
    receive(older);
    assert_true(rx_cancel(younger->fx));
    younger->fx = NULL;
    grants_down();
}

/* Leaves so much for messages. */
static void leave_room(struct conn *c, uint32_t room)
{
    int64_t spare;

    begin_put(c, hop(0), 4096);
    spare = (int64_t)(budget()->total - budget()->used) - FULL - URGENT - room;
    assert_true(took(c, 4096, NEW(4096) + (uint32_t)spare));
    finish(c);
}

/* One whose next hop comes to have its share meanwhile leaves the line. */
static void test_out_of_line(void **state)
{
    struct conn *first = &conns[1], *second = &conns[2], *urgent = &conns[3], *c = &conns[4];

    grants_up(LEAST + FULL + 19 * BASE, 50, 12);
    open_all(20);
    begin_put(c, hop(3), 4096);
    took(c, 4096, 60000);
    finish(c);
    fill_up(5, 400000);
    leave_room(&conns[0], 5000);
    begin_put(first, hop(1), MIB);
    begin_put(second, hop(2), 4096);
    assert_false(is_in(first) || is_in(second));
    for (unsigned i = 0; i < 3; i++) {
        begin(urgent, hdr_put(urgent->from, hop(1), 0, 1, 0, 4000, false));
        assert_true(is_in(urgent));
        took(urgent, 4000, 10000);
        finish(urgent);
    }
    pass(300000); /* a look at all */
    assert_false(is_in(second));
    assert_int_equal(loop.held[0]->memory, 60000);
    send_end(loop.held[0], ok);
    settle();
    check();
    assert_true(is_in(second));
    assert_false(is_in(first));
    receive(second);
    assert_true(rx_cancel(first->fx));
    first->fx = NULL;
    grants_down();
}

/* Of one next hop's messages small ones do not keep large ones waiting. */
static void test_pools_take_turns(void **state)
{
    struct conn *large = &conns[0], *c = &conns[1];
    unsigned i;

    grants_up(LEAST + CONNS * BASE, 50, 12);
    open_all(CONNS);
    for (i = 0; i < 200; i++) {
        begin_put(c, hop(0), 4096);
        if (!is_in(c))
            break;
        took(c, 4096, 20000);
        finish(c);
    }
    assert_in_range(i, 50, 100);
    begin_put(large, hop(0), 5000);
    for (i = 2; i < 22; i++)
        begin_put(&conns[i], hop(0), 4096);
    assert_int_equal(stats().waiting, 2); /* the first of each queue */
    for (i = 0; i < 3 && !is_in(large); i++) {
        send_end(loop.held[0], ok);
        settle();
        check();
    }
    assert_true(is_in(large));
    assert_false(is_in(&conns[21]));
    receive(large);
    for (i = 1; i < 22; i++) {
        if (!is_in(&conns[i]))
            assert_true(rx_cancel(conns[i].fx));
        else
            receive(&conns[i]);
        conns[i].fx = NULL;
    }
    grants_down();
}

/* What comes free is first for connections that may not send anything yet. */
static void test_base_before_messages(void **state)
{
    struct conn *waits, *c;
    unsigned n;

    grants_up(LEAST + FULL + 19 * BASE, 50, 12);
    open_all(20);
    c = &conns[0];
    n = fill_up(2, 400000);
    leave_room(&conns[1], 0);
    waits = conn_open(20);
    assert_false(lnet_grant_is_open(&waits->g));
    assert_in_range(n, 5, 15);
    send_end(loop.held[0], ok);
    begin_put(c, hop(1), 400000); /* comes before anybody was woken */
    assert_true(lnet_grant_is_open(&waits->g));
    assert_false(is_in(c));
    assert_true(rx_cancel(c->fx));
    c->fx = NULL;
    grants_down();
}

/* Neither what goes to gateways nor what goes to end nodes takes the other's last message. */
static void test_gateways(void **state)
{
    static const char *const nets[] = {"tcp50", "tcp51", "tcp52", "tcp53", "tcp54", "tcp55"};
    struct conn *end, *gw;
    unsigned n;

    grants_up(LEAST + 24 * BASE, 100, 12);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(route_add(nets[i], gateway(i), -1, 0), 0);
    settle();
    open_all(24);
    end = &conns[0];
    gw = &conns[1];
    for (n = 0; n < 6; n++) {
        struct conn *c = &conns[2 + n];

        begin_put(c, behind(n), MIB);
        if (!is_in(c))
            break;
        took(c, MIB, NEW(MIB));
        finish(c);
    }
    assert_in_range(n, 1, 3);
    assert_in_range(budget()->held[1], NEW(MIB), FULL);
    begin_put(end, hop(0), MIB);
    assert_true(is_in(end));
    took(end, MIB, 4 * MIB - 100 * BUFFER); /* as bad as can be */
    finish(end);
    assert_true(rx_cancel(conns[2 + n].fx));
    conns[2 + n].fx = NULL;
    send_end_all(ok);
    settle();
    check();
    /* the other way round */
    assert_true(fill_up(10, MIB) >= 1);
    begin_put(gw, behind(0), MIB);
    assert_true(is_in(gw));
    receive(gw);
    grants_down();
}

/* A message goes to another gateway than it was admitted for. */
static void test_reroute(void **state)
{
    struct conn *c;

    grants_up(LEAST, 50, 12);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(route_add("tcp50", gateway(i), -1, 0), 0);
    settle();
    c = conn_open(0);
    begin_put(c, behind(0), 100000);
    assert_true(is_in(c));
    for (unsigned i = 0; i < 2; i++) {
        struct lnet_nid gw = gateway(i);
        struct err err = {0};

        if (nid_same(&c->fx->in.rx.msg->next_hop, &gw))
            assert_int_equal(route_del(node, nid_net(&c->fx->in.rx.hdr.dest_nid), &gw, &err), 0);
    }
    receive(c);
    assert_int_equal(loop.nsent, 1);
    assert_int_equal(budget()->held[1], dense(100000));
    grants_down();
}

static void test_stalled(void **state)
{
    struct conn *c = NULL;
    unsigned n;
    struct conn *other;

    grants_up(LEAST + FULL + 40 * BASE, 50, 12);
    open_all(21);
    other = &conns[0];
    for (n = 0; n < 20; n++) {
        c = &conns[1 + n];
        begin_put(c, hop(100 + n), MIB);
        if (!is_in(c))
            break;
        assert_true(took(c, MIB / 2, dense(MIB / 2)));
    }
    assert_in_range(n, 2, 10);
    assert_true(rx_cancel(c->fx));
    c->fx = NULL;
    begin_put(other, hop(0), MIB);
    assert_false(is_in(other));
    for (unsigned i = 0; i < 10 && !is_in(other); i++) {
        pass(100000);
        check();
    }
    assert_true(is_in(other)); /* within a second */
    assert_in_range(loop.abandoned, 1, n - 1);
    assert_int_equal(drops_of(LNET_DROP_RX_STALLED), loop.abandoned);
    receive(other);
    for (unsigned i = 0; i < n; i++) {
        c = &conns[1 + i];
        if (c->fx->abandoned) {
            /* its peer may still send the rest, which is thrown away: no memory is kept for it */
            check_window(c, MIB / 2 + 8192, BASE);
            ON(0, lnet_grant_consumed(&c->g, c->left));
            c->left = 0;
            check_window(c, 8192, BASE);
        }
        receive(c);
    }
    grants_down();
}

/* Large ones that do not move make room for a small one too. */
static void test_stalled_large(void **state)
{
    struct conn *c = &conns[20], *other = &conns[21];
    unsigned n;

    grants_up(LEAST + 40 * BASE, 50, 12);
    open_all(22);
    for (n = 0; n < 20; n++) {
        begin_put(&conns[n], hop(100 + n), 500000);
        if (!is_in(&conns[n]))
            break;
    }
    assert_true(rx_cancel(conns[n].fx));
    conns[n].fx = NULL;
    for (unsigned i = 0; i < 200; i++) { /* what is left goes to small ones that are received */
        begin_put(c, hop(200 + i), 4096);
        if (!is_in(c))
            break;
        receive(c);
    }
    assert_int_equal(pool_stats(0, LNET_POOL_LARGE).waiting, 0);
    for (unsigned i = 0; i < 10 && !is_in(c); i++)
        pass(100000);
    assert_true(is_in(c));
    assert_in_range(loop.abandoned, 1, n);
    receive(c);
    begin_put(other, hop(1), 5000);
    assert_true(is_in(other));
    receive(other);
    for (unsigned i = 0; i < n; i++) {
        if (conns[i].fx->abandoned) {
            ON(0, lnet_grant_consumed(&conns[i].g, conns[i].left));
            conns[i].left = 0;
        }
        receive(&conns[i]);
    }
    grants_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_wait_ends),
    LNET_TEST(test_first_in_line),
    LNET_TEST(test_quick_part),
    LNET_TEST(test_older_first),
    LNET_TEST(test_out_of_line),
    LNET_TEST(test_pools_take_turns),
    LNET_TEST(test_base_before_messages),
    LNET_TEST(test_gateways),
    LNET_TEST(test_reroute),
    LNET_TEST(test_stalled),
    LNET_TEST(test_stalled_large),
};

LNET_TESTS_MAIN("test_lnet_budget", tests)
