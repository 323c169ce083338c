/* SPDX-License-Identifier: BSD-3-Clause */
/* Health where neighbours are hostile: what they can do to others, and to NIs of this node.
 * docs/protocol/lnet-core.md §6.1 to §6.3. */
#include "test/unit/lnet_push_test.h"

#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peers.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static void hostile_up(unsigned max_peers)
{
    struct lnet_node_opts o = opts_default();

    o.max_peers = max_peers;
    health_counts = true;
    node_up(o);
}

static void arrive_from(struct lnet_ni *ni, struct lnet_nid from, struct lnet_nid to)
{
    arrive(ni, from, hdr_of(LNET_MSG_PUT, from, to, 0));
    settle();
}

static void set_peer(struct lnet_nid nid, unsigned health)
{
    struct lnet_peer_ni *p;

    ON(home_of(&nid), p = lnet_peer_ni_get(node, &nid));
    ON(home_of(&nid), lnet_health_peer_set(p, health, LNET_CAUSE_COMMAND));
    ON(home_of(&nid), lnet_peer_ni_put(p));
    settle();
}

static void set_ni(struct lnet_ni *ni, unsigned health)
{
    ON(0, lnet_health_ni_set(ni, health, LNET_CAUSE_COMMAND));
    settle();
}

static void set_sensitivity(unsigned sensitivity)
{
    struct lnet_health_rules r = LNET_HEALTH_RULES;
    struct err err = {0};

    r.sensitivity = sensitivity;
    assert_int_equal(lnet_health_set(node, &r, &err), 0);
}

static unsigned pings_to(struct lnet_nid nid)
{
    unsigned n = 0;

    for (unsigned i = 0; i < loop.nsent; i++)
        n += loop.sent[i].hdr.type == LNET_MSG_GET && nid_same(&loop.sent[i].to, &nid);
    return n;
}

/* A gateway's neighbours can push in any name: that no such node answers does not speak against the
 * gateway. A node that has answered before does. */
static void test_made_up_nodes(void **state)
{
    struct lnet_nid gw, real = N("10.5.1.1@tcp5");
    char text[LNET_NIDSTR_SIZE];
    uint8_t data[64];

    hostile_up(256);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    pass(2 * SEC);
    for (unsigned i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_GET)
            reply_to(&loop.sent[i], data, make_info(data, sizeof(data), gw, 0x1a, 1, 0));
        else if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push_only(&loop.sent[i]);
    sent_clear();
    for (unsigned i = 1; i <= 10; i++) {
        snprintf(text, sizeof(text), "10.5.0.%u@tcp5", i);
        push_through(tcp0, gw, N(text));
    }
    assert_int_equal(sent_count(LNET_MSG_PUT), 10);
    pass(31 * SEC);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 10);
    assert_int_equal(peer_find(&gw)->health, 1000);
    push_through(tcp0, gw, real);
    ack_push_only(sent_last(LNET_MSG_PUT));
    pass(28 * SEC);
    assert_int_equal(peer_find(&gw)->health, 1000);
    pass(3 * SEC);
    assert_int_equal(peer_find(&gw)->health, 900);
    node_down();
}

static void set_done(void *arg, int rc, const struct err *err)
{
    assert_int_equal(rc, 0);
}

/* An NI that is down by its health is up again after the operator turned health off, with the first
 * message that passes. Other values stay as they are set. */
static void test_health_turned_off(void **state)
{
    struct lnet_nid from, to;
    struct err err = {0};

    hostile_up(256);
    from = peer_on(0, 1, "tcp1", 0);
    to = peer_on(0, 0, "tcp", 0);
    assert_int_equal(lnet_ni_health_set(node, &tcp1->nid, 0, set_done, NULL, &err), 0);
    pass(SEC / 2);
    pass(SEC / 2);
    assert_int_equal(tcp1->health, 0);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    set_sensitivity(0);
    arrive_from(tcp1, from, to);
    assert_int_equal(tcp1->health, 1000);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    set_ni(tcp1, 700);
    arrive_from(tcp1, from, to);
    assert_int_equal(tcp1->health, 700);
    node_down();
}

/* ---- the recovery pings ---- */

static struct lnet_nid silent(unsigned i)
{
    return peer_on(0, 1, "tcp1", i);
}

/* Peer NIs that each sent a message, fail, and answer nothing. */
static void many_fail(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        arrive_from(tcp1, silent(i), tcp1->nid);
        set_peer(silent(i), 500);
    }
    sent_clear();
}

static unsigned ping_count(struct lnet_nid nid)
{
    return peer_find(&nid)->ping_count;
}

/* Each is pinged once before one is pinged again and again. */
static void test_turns(void **state)
{
    enum {
        N_PEERS = 300
    };
    unsigned pinged = 0;

    hostile_up(1000);
    many_fail(N_PEERS);
    for (unsigned s = 0; s < 30; s++) {
        pass(SEC);
        sent_clear();
    }
    for (unsigned i = 0; i < N_PEERS; i++)
        pinged += ping_count(silent(i)) > 0;
    assert_int_equal(pinged, N_PEERS);
    node_down();
}

/* An NI in recovery has a place for its ping, however many peer NIs take nothing: those pings stay
 * with the LND for its timeout. So has a peer NI of another prefix. */
static void test_places(void **state)
{
    struct lnet_nid gw, other;

    hostile_up(1000);
    node->opts.prefix4 = 16;
    gw = peer_on(0, 0, "tcp", 3);
    other = peer_on(0, 0, "tcp", 4);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    settle();
    arrive_from(tcp0, other, tcp0->nid);
    many_fail(300);
    loop.hold_send = true;
    for (unsigned s = 0; s < 20; s++)
        pass(SEC);
    sent_clear();
    set_ni(tcp0, 100);
    set_peer(other, 500);
    for (unsigned s = 0; s < 20; s++)
        pass(SEC);
    assert_true(pings_to(gw) > 0);
    assert_true(pings_to(other) > 0);
    loop.hold_send = false;
    send_end_all(ok);
    settle();
    node_down();
}

/* An NI does not ping a NID that a node merely lists: that may be nobody's, and lower the NI. */
static void test_whom_an_ni_pings(void **state)
{
    struct lnet_nid liar, good, nobody = N("10.0.77.77@tcp");
    struct lnet_ping_info info = {.features = 0x1e, .seqno = 3, .count = 2};
    uint8_t data[128];

    hostile_up(256);
    liar = peer_on(0, 0, "tcp", 0);
    good = peer_on(0, 0, "tcp", 1);
    befriend(tcp0, liar);
    info.ni[0] = (struct lnet_ping_ni){.nid = liar, .status = LNET_NI_DOWN};
    info.ni[1] = (struct lnet_ping_ni){.nid = nobody, .status = LNET_NI_UP};
    push_bytes(tcp0, liar, data, (uint32_t)lnet_ping_encode(&info, data, sizeof(data)));
    settle();
    assert_ptr_equal(peer_of("10.0.77.77@tcp"), peer_table_find(node->peers, &liar));
    befriend(tcp0, good);
    sent_clear();
    set_ni(tcp0, 100);
    pass(4 * SEC);
    assert_int_equal(pings_to(nobody), 0);
    assert_true(pings_to(good) > 0);
    node_down();
}

/* A gateway that is silent is pinged, too: its NI may be why. Without that the NI would be raised
 * as one that has no neighbour. */
static void test_silent_gateway(void **state)
{
    struct lnet_nid gw;

    hostile_up(256);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    pass(53 * SEC); /* its first ping has timed out */
    sent_clear();
    set_ni(tcp0, 100);
    pass(2 * SEC);
    assert_int_equal(pings_to(gw), 1);
    node_down();
}

/* A gateway's peer NI that makes room in the table counts as healthy again, as one that is new. */
static void test_eviction(void **state)
{
    struct lnet_nid gw;

    hostile_up(64);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    settle();
    set_peer(gw, 100);
    assert_int_equal(lnet_gw_ni_find(node, &gw)->health, 100);
    for (unsigned i = 0; i < 300 && peer_find(&gw); i++)
        arrive_from(tcp1, silent(i), tcp1->nid);
    assert_null(peer_find(&gw));
    assert_int_equal(lnet_gw_ni_find(node, &gw)->health, 1000);
    node_down();
}

/* The table of peers follows a peer NI that makes room and comes back: else messages of this node
 * would go to other NIDs of the peer for ever. */
static void test_copy_of_evicted(void **state)
{
    struct lnet_nid nid;

    hostile_up(64);
    nid = peer_on(0, 0, "tcp", 0);
    assert_int_equal(peer_table_add(node->peers, &nid, &nid, PEER_MULTI_RAIL), 0);
    arrive_from(tcp0, nid, tcp0->nid);
    set_peer(nid, 100);
    assert_int_equal(peer_table_find_ni(node->peers, &nid)->health, 100);
    for (unsigned i = 0; i < 300 && peer_find(&nid); i++)
        arrive_from(tcp1, silent(i), tcp1->nid);
    assert_null(peer_find(&nid));
    arrive_from(tcp0, nid, tcp0->nid);
    assert_int_equal(peer_find(&nid)->health, 1000);
    assert_int_equal(peer_table_find_ni(node->peers, &nid)->health, 1000);
    node_down();
}

/* An NI that no peer has reached for long is not up because a message passed after one that failed:
 * it would be down again with the next tick, which is pushed to all peers. */
static void test_aged_ni(void **state)
{
    struct lnet_nid from, to;

    hostile_up(256);
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(0, 1, "tcp1", 0);
    pass(120 * SEC);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    loop.send_result = (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR};
    arrive_from(tcp0, from, to);
    assert_int_equal(tcp1->health, 900);
    loop.send_result = ok;
    arrive_from(tcp0, from, to);
    assert_int_equal(tcp1->health, 1000);
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    arrive_from(tcp1, to, from); /* a peer */
    pass(SEC);
    assert_int_equal(tcp1->status, LNET_NI_UP);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_aged_ni),          LNET_TEST(test_copy_of_evicted),
    LNET_TEST(test_eviction),         LNET_TEST(test_silent_gateway),
    LNET_TEST(test_whom_an_ni_pings), LNET_TEST(test_turns),
    LNET_TEST(test_places),           LNET_TEST(test_health_turned_off),
    LNET_TEST(test_made_up_nodes),
};

LNET_TESTS_MAIN("test-lnet-health-hostile", tests)
