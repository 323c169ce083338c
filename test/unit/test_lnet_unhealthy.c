/* SPDX-License-Identifier: BSD-3-Clause */
/* What observers see of health: events, and the list of peer NIs that are not healthy. */
#include "test/unit/lnet_health_test.h"

/* ---- events ---- */

static struct lnet_node_event told[4096];
static unsigned ntold;
static uint64_t missed;

static void note(void *arg, const struct lnet_node_event *rows, unsigned n, uint64_t lost)
{
    for (unsigned i = 0; i < n; i++)
        if (rows[i].kind == LNET_NODE_EV_NI_HEALTH || rows[i].kind == LNET_NODE_EV_PEER_HEALTH)
            told[ntold++] = rows[i];
    missed += lost;
}

static void check_message(unsigned event, struct lnet_nid src, struct lnet_nid dest)
{
    const struct lnet_event_msg *msg = &told[event].msg;

    assert_true(msg->known);
    assert_int_equal(msg->type, LNET_MSG_PUT);
    assert_true(nid_same(&msg->src, &src));
    assert_true(nid_same(&msg->dest, &dest));
}

static void test_events(void **state)
{
    health_up(true);
    ntold = 0;
    missed = 0;
    lnet_node_events_watch(node, note, NULL);
    forward(failure(LNET_HEALTH_REMOTE_TIMEOUT));
    assert_int_equal(ntold, 1);
    assert_int_equal(told[0].kind, LNET_NODE_EV_PEER_HEALTH);
    assert_true(nid_same(&told[0].nid, &to_nid));
    assert_int_equal(told[0].value, 900);
    assert_int_equal(told[0].drop, LNET_DROP_NEXT_HOP_LOST);
    assert_string_equal(told[0].cause, "remote_timeout");
    check_message(0, from_nid, to_nid);
    forward(failure(LNET_HEALTH_LOCAL_DROPPED));
    assert_int_equal(ntold, 2);
    assert_int_equal(told[1].kind, LNET_NODE_EV_NI_HEALTH);
    assert_string_equal(told[1].cause, "local_dropped");
    check_message(1, from_nid, to_nid);
    forward(ok);
    assert_int_equal(ntold, 3);
    assert_string_equal(told[2].cause, "message_passed");
    check_message(2, from_nid, to_nid);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    assert_int_equal(ntold, 4);
    assert_int_equal(told[3].kind, LNET_NODE_EV_PEER_HEALTH);
    check_message(3, to_nid, from_nid);
    set_peer(to_nid, 900);
    assert_int_equal(ntold, 5);
    assert_string_equal(told[4].cause, "command");
    assert_false(told[4].msg.known);
    for (unsigned i = 0; i < 50; i++) { /* one that changes again and again is told of so often */
        forward(failure(LNET_HEALTH_LOCAL_DROPPED));
        forward(ok);
    }
    assert_int_equal(ntold, 3 + 16);
    assert_int_equal(missed, 86);
    node_down();
}

/* ---- the list ---- */

static struct lnet_unhealthy unhealthy;

static void take_unhealthy(void *arg, const struct lnet_unhealthy *list)
{
    unhealthy = *list;
}

static const struct lnet_unhealthy_peer *unhealthy_row(struct lnet_nid nid)
{
    assert_int_equal(lnet_unhealthy_get(node, take_unhealthy, NULL), 0);
    settle();
    for (unsigned i = 0; i < unhealthy.n; i++)
        if (nid_same(&unhealthy.row[i].nid, &nid))
            return &unhealthy.row[i];
    return NULL;
}

/* Peer NIs that are not healthy are counted and listed, whether they are pinged or not. */
static void test_unhealthy(void **state)
{
    const struct lnet_unhealthy_peer *row;
    struct lnet_nid never, gw;

    health_up(true);
    never = peer_on(0, 1, "tcp1", 9);
    gw = peer_on(nreactors - 1, 3, "tcp1", 3);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    assert_null(unhealthy_row(to_nid));
    assert_int_equal(unhealthy.n + unhealthy.recovering + unhealthy.unpinged, 0);
    set_peer(never, 500); /* nothing ever came from it */
    set_peer(gw, 400);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    settle();
    forward(failure(LNET_HEALTH_REMOTE_DROPPED));
    row = unhealthy_row(to_nid);
    assert_non_null(row);
    assert_int_equal(row->health, 900);
    assert_true(row->recovering && !row->gateway);
    assert_int_equal(row->next_ping_us, clock_us + SEC);
    assert_int_equal(row->count[LNET_PEER_DROPPED], 1);
    assert_int_equal(unhealthy.n, 3);
    assert_int_equal(unhealthy.recovering, 1);
    assert_int_equal(unhealthy.unpinged, 2);
    row = unhealthy_row(never);
    assert_int_equal(row->health, 500);
    assert_true(!row->recovering && !row->gateway && row->next_ping_us == 0);
    assert_true(unhealthy_row(gw)->gateway);
    arrive(tcp1, to_nid, hdr_of(LNET_MSG_PUT, to_nid, from_nid, 10));
    set_peer(never, 1000);
    assert_null(unhealthy_row(to_nid));
    assert_int_equal(unhealthy.n, 1);
    assert_int_equal(unhealthy.recovering, 0);
    assert_int_equal(unhealthy.unpinged, 1);
    for (unsigned i = 0; i < LNET_UNHEALTHY_MAX + 20; i++)
        set_peer(peer_on(i, 6, "tcp1", i / nreactors), (int)i);
    unhealthy_row(gw);
    assert_int_equal(unhealthy.n, LNET_UNHEALTHY_MAX);
    assert_int_equal(unhealthy.unpinged, LNET_UNHEALTHY_MAX + 21);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_events),
    LNET_TEST(test_unhealthy),
};

LNET_TESTS_MAIN("test-lnet-unhealthy", tests)
