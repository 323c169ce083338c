/* SPDX-License-Identifier: BSD-3-Clause */
/* What peers are told of a drain, and who knows of it. docs/protocol/lnet-core.md §3.5 to §3.8. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_push_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static struct lnet_nid friend(unsigned k)
{
    return peer_on(k % nreactors, 0, "tcp", 10 + k / nreactors);
}

static void drain(bool on)
{
    struct err err = {0};

    assert_int_equal(lnet_drain_set(node, on, &err), 0);
    settle();
}

/* The published info: routing and the status of all NIs, or all of them down and no routing. */
static void assert_published(bool draining)
{
    const struct lnet_ping_info *info = published();

    assert_int_equal(!!(info->features & LNET_PING_RTE_DISABLED), draining);
    assert_int_equal(info->count, 3);
    for (unsigned i = 0; i < info->count; i++)
        assert_int_equal(info->ni[i].status, draining ? LNET_NI_DOWN : LNET_NI_UP);
}

static int told; /* of the row that was found; -1: none */

static void found(void *arg, const struct lnet_peer_row *rows, unsigned n,
                  const struct lnet_peer_cursor *next)
{
    told = n ? rows[0].told : -1;
}

static bool knows(struct lnet_nid nid)
{
    told = -2;
    assert_int_equal(lnet_peer_find(node, &nid, found, NULL), 0);
    settle();
    assert_in_range(told, 0, 1);
    return told;
}

static void ping(struct lnet_nid nid)
{
    arrive(tcp0, nid, hdr_ping(nid, tcp0->nid));
    settle();
}

/* All multi-rail peers get the PUSH at once, and what they acknowledge is known. */
static void test_push(void **state)
{
    uint32_t seqno;

    node_up(opts_default());
    befriend(tcp0, friend(0));
    befriend(tcp0, friend(1));
    seqno = node->ping->seqno;
    assert_published(false);
    drain(true);
    assert_published(true);
    assert_int_equal(node->ping->seqno, seqno); /* status and features do not change it, §3.2 */
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    for (unsigned i = 0; i < loop.nsent; i++)
        assert_push(&loop.sent[i], loop.sent[i].to);
    assert_false(knows(friend(0)));
    ack_push(sent_last(LNET_MSG_PUT)); /* that of the second */
    assert_int_equal(knows(friend(0)) + knows(friend(1)), 1);
    sent_clear();
    drain(true); /* nothing new */
    assert_int_equal(loop.nsent, 0);
    assert_int_equal(tcp0->status, LNET_NI_UP);
    node_down();
}

/* The end of a drain is pushed too. What a peer knew of one drain it does not know of the next. */
static void test_undo(void **state)
{
    node_up(opts_default());
    befriend(tcp0, friend(0));
    drain(true);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_true(knows(friend(0)));
    sent_clear();
    drain(false);
    assert_published(false);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_false(knows(friend(0)));
    drain(true); /* before the ACK of the last PUSH */
    assert_published(true);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_false(knows(friend(0))); /* it has the info of between */
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_true(knows(friend(0)));
    node_down();
}

/* A peer that lost the PUSH learns it by a ping of its own; one that pings before does not. */
static void test_ping(void **state)
{
    node_up(opts_default());
    befriend(tcp0, friend(0));
    ping(friend(0));
    drain(true);
    assert_false(knows(friend(0)));
    ping(friend(0));
    assert_true(knows(friend(0)));
    node_down();
}

/* A status that changes meanwhile is not published before the end. */
static void test_status_meanwhile(void **state)
{
    node_up(opts_default());
    drain(true);
    lnet_link_changed(tcp1, false);
    settle();
    assert_published(true);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    drain(false);
    assert_int_equal(published()->ni[0].status, LNET_NI_UP);
    assert_int_equal(published()->ni[1].status, LNET_NI_DOWN);
    node_down();
}

/* Forwarding goes on, and what is under way is counted; messages of the node itself are not. */
static void test_in_flight(void **state)
{
    struct lnet_nid from, to;

    node_up(opts_default());
    from = friend(0);
    to = peer_on(0, 0, "tcp1", 0);
    befriend(tcp0, from);
    drain(true);
    assert_int_equal(lnet_in_flight(node), 0); /* the PUSH waits for its ACK */
    loop.hold_send = true;
    for (unsigned i = 0; i < 3; i++)
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100));
    settle();
    assert_int_equal(lnet_in_flight(node), 3);
    send_end_all(ok);
    settle();
    assert_int_equal(lnet_in_flight(node), 0);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 3);
    loop.hold_send = false;
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_push),      LNET_TEST(test_undo),
    LNET_TEST(test_ping),      LNET_TEST(test_status_meanwhile),
    LNET_TEST(test_in_flight),
};

LNET_TESTS_MAIN("test_lnet_drain", tests)
