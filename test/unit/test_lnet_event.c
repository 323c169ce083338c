/* SPDX-License-Identifier: BSD-3-Clause */
/* What watchers of a node are told, and what they are told that they missed. */
#include "test/unit/lnet_admit_test.h"

#include "lib/lnet/event.h"

#define GW   "10.0.0.11@tcp"
#define TCP5 LNET_NET(LNET_LND_SOCK, 5)
#define TCP6 LNET_NET(LNET_LND_SOCK, 6)

/* ---- a watcher ---- */

static struct lnet_node_event told[8192];
static unsigned ntold;
static uint64_t missed;
static bool no_nis; /* those age beside what a test is about */

static void note(void *arg, const struct lnet_node_event *rows, unsigned n, uint64_t lost)
{
    assert_ptr_equal(arg, told);
    assert_ptr_equal(reactor_self(), reactor_control(env));
    assert_true(ntold + n <= sizeof(told) / sizeof(told[0]));
    for (unsigned i = 0; i < n; i++)
        if (!no_nis || rows[i].kind != LNET_NODE_EV_NI_DOWN)
            told[ntold++] = rows[i];
    missed += lost;
}

static void watch(void)
{
    ntold = 0;
    missed = 0;
    no_nis = false;
    lnet_node_events_watch(node, note, told);
}

static const struct lnet_node_event *find(enum lnet_node_event_kind kind, lnet_net_t net,
                                          struct lnet_nid nid)
{
    for (unsigned i = 0; i < ntold; i++)
        if (told[i].kind == kind && told[i].net == net && nid_same(&told[i].nid, &nid))
            return &told[i];
    return NULL;
}

/* One of the events since the last look; those that were expected are counted off. */
static void expect(enum lnet_node_event_kind kind, lnet_net_t net, struct lnet_nid nid,
                   const char *cause)
{
    const struct lnet_node_event *row = find(kind, net, nid);

    if (!row)
        fail_msg("no event of kind %d with %s", (int)kind, cause);
    assert_string_equal(row->cause, cause);
    told[row - told] = told[--ntold];
}

static void expect_nothing(void)
{
    settle();
    if (ntold > 0)
        fail_msg("event of kind %d with %s", (int)told[0].kind, told[0].cause);
}

/* ---- the way to the control thread ---- */

static void post(unsigned reactor, int value)
{
    struct lnet_node_event row = {.kind = LNET_NODE_EV_ROUTING, .value = value, .when_us = 1};

    ON(reactor, lnet_node_event_post(node, &row));
}

static void test_way(void **state)
{
    node_up(opts_default());
    post(0, 1);
    settle();
    watch(); /* what was before is not told */
    for (unsigned i = 0; i < nreactors; i++) {
        post(i, (int)(2 * i));
        clock_us += 5;
        post(i, (int)(2 * i + 1));
    }
    assert_int_equal(ntold, 0);
    settle();
    assert_int_equal(ntold, 2 * nreactors);
    for (unsigned i = 0; i < 2 * nreactors; i++) {
        assert_int_equal(told[i].value, i);
        assert_int_equal(told[i].reactor, i / 2);
    }
    assert_int_equal(told[1].when_us - told[0].when_us, 5);
    watch();
    lnet_node_event_post(node,
                         &(struct lnet_node_event){.kind = LNET_NODE_EV_NI_ADDED}); /* control */
    settle();
    assert_int_equal(ntold, 1);
    assert_int_equal(told[0].reactor, REACTOR_CONTROL);
    lnet_node_events_watch(node, NULL, NULL);
    post(0, 1);
    settle();
    assert_int_equal(ntold, 1);
    node_down();
}

static void test_missed(void **state)
{
    node_up(opts_default());
    watch();
    for (unsigned round = 0; round < 3; round++) {
        watch();
        for (unsigned i = 0; i < LNET_NODE_EVENT_RING + 7; i++)
            post(0, (int)i);
        post(nreactors - 1, 5000);
        settle();
        assert_int_equal(missed, nreactors > 1 ? 7 : 8);
        assert_int_equal(ntold, LNET_NODE_EVENT_RING + (nreactors > 1));
        for (unsigned i = 0; i < LNET_NODE_EVENT_RING; i++)
            assert_int_equal(told[i].value, i);
        post(0, 1); /* there is room again */
        settle();
        assert_int_equal(ntold, LNET_NODE_EVENT_RING + (nreactors > 1) + 1);
    }
    node_down();
}

/* ---- NIs ---- */

static void link_set(struct lnet_ni *ni, bool up)
{
    ON(0, lnet_ni_link(ni, up));
    settle();
}

static void peer_events(struct lnet_nid nid, unsigned n)
{
    struct lnet_node_event row = {.nid = nid, .cause = "x"};

    for (unsigned i = 0; i < n; i++) {
        row.kind = i % 2 ? LNET_NODE_EV_PEER_DOWN : LNET_NODE_EV_PEER_UP;
        ON(0, lnet_node_event_post(node, &row));
    }
    settle();
}

/* Whoever connects and goes again and again leaves room for events of others. */
static void test_flood(void **state)
{
    struct lnet_nid v6 = N("fd00::7@tcp");

    /* By this key the hosts and the prefix share no place. */
    sip_table_key = (struct sip_key){{1, 2}};
    node_up(opts_default());
    watch();
    peer_events(N("10.0.0.7@tcp"), 500);
    assert_int_equal(ntold, 64);
    assert_int_equal(missed, 500 - 64);
    peer_events(N("10.0.0.8@tcp"), 3);
    assert_int_equal(ntold, 64 + 3);
    pass(10 * SEC);
    watch();
    peer_events(N("10.0.0.7@tcp"), 10);
    assert_int_equal(ntold, 1);
    assert_int_equal(missed, 9);
    watch();
    for (unsigned i = 0; i < 600; i++) {
        v6.addr_be[3] = i;
        peer_events(v6, 1); /* all of them on one reactor */
    }
    assert_in_range(ntold, 512 / nreactors, 512);
    assert_int_equal(missed, 600 - ntold);
    link_set(tcp1, false);
    expect(LNET_NODE_EV_NI_DOWN, 0, tcp1->nid, "link_down");
    node_down();
}

static void test_ni(void **state)
{
    struct lnet_nid from = N("10.0.0.7@tcp");

    node_up(opts_default());
    watch();
    link_set(tcp1, false);
    expect(LNET_NODE_EV_NI_DOWN, 0, tcp1->nid, "link_down");
    link_set(tcp1, true); /* nobody has pinged it yet: as at the start */
    expect(LNET_NODE_EV_NI_UP, 0, tcp1->nid, "link_up");
    arrive(tcp0, from, hdr_ping(from, tcp0->nid));
    expect_nothing(); /* it is up already */
    pass(111 * SEC);
    expect(LNET_NODE_EV_NI_DOWN, 0, tcp0->nid, "not_pinged");
    expect(LNET_NODE_EV_NI_DOWN, 0, tcp1->nid, "not_pinged");
    expect(LNET_NODE_EV_NI_DOWN, 0, ib0->nid, "not_pinged");
    expect_nothing();
    arrive(tcp0, from, hdr_ping(from, tcp0->nid));
    settle();
    expect(LNET_NODE_EV_NI_UP, 0, tcp0->nid, "pinged");
    expect_nothing();
    node_down();
}

/* ---- gateways and routes ---- */

/* The gateway's answer to the newest ping: it has NIs on our net, tcp5 and tcp6. */
static void answer(uint32_t features, uint32_t near, uint32_t tcp5, uint32_t tcp6)
{
    static struct lnet_ping_info info;
    uint8_t data[512];

    memset(&info, 0, sizeof(info));
    info.features = features;
    info.pid = PID;
    info.count = 3;
    info.ni[0].nid = N(GW);
    info.ni[0].status = near;
    info.ni[1].nid = N("10.5.0.99@tcp5");
    info.ni[1].status = tcp5;
    info.ni[2].nid = N("10.6.0.99@tcp6");
    info.ni[2].status = tcp6;
    reply_to(sent_last(LNET_MSG_GET), data, (uint32_t)lnet_ping_encode(&info, data, sizeof(data)));
}

/* Until the gateway is asked again. */
static void asked_again(void)
{
    unsigned n = sent_count(LNET_MSG_GET);

    for (unsigned i = 0; sent_count(LNET_MSG_GET) == n; i++) {
        if (i > 200)
            fail_msg("the gateway is not asked");
        pass(SEC);
    }
}

static void routes_up(void)
{
    node_up(opts_default());
    watch();
    no_nis = true;
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    assert_int_equal(route_add("tcp6", N(GW), 1, 0), 0);
    pass(2 * SEC);
    assert_true(sent_count(LNET_MSG_GET) > 0);
}

#define UP   LNET_NI_UP
#define DOWN LNET_NI_DOWN

static void test_routes(void **state)
{
    routes_up();
    answer(0x1a, UP, UP, UP);
    expect_nothing();
    asked_again();
    answer(0x1a, UP, DOWN, UP);
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP5, N(GW), "net_down");
    expect_nothing();
    asked_again();
    answer(0x1a, UP, DOWN, UP);
    expect_nothing();
    asked_again();
    answer(0x1e, UP, UP, UP);
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP6, N(GW), "routing_disabled_there");
    expect_nothing();
    asked_again();
    answer(0x1a, UP, UP, UP);
    expect(LNET_NODE_EV_ROUTE_UP, TCP5, N(GW), "ping_answered");
    expect(LNET_NODE_EV_ROUTE_UP, TCP6, N(GW), "ping_answered");
    expect_nothing();
    asked_again();
    answer(0x1a, DOWN, UP, UP);
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP5, N(GW), "gateway_net_down");
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP6, N(GW), "gateway_net_down");
    expect_nothing();
    node_down();
}

static void test_ping_timeout(void **state)
{
    struct lnet_nid gw = N(GW);

    routes_up();
    pass(50 * SEC);
    expect(LNET_NODE_EV_GATEWAY_DOWN, 0, gw, "ping_timeout");
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP5, gw, "ping_timeout");
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP6, gw, "ping_timeout");
    expect_nothing();
    /* A route that is added now is down too, which nobody could know. */
    assert_int_equal(route_add("tcp7", gw, 1, 0), 0);
    asked_again();
    expect(LNET_NODE_EV_ROUTE_DOWN, LNET_NET(LNET_LND_SOCK, 7), gw, "ping_timeout");
    expect_nothing();
    answer(0x1a, UP, UP, UP);
    expect(LNET_NODE_EV_GATEWAY_UP, 0, gw, "ping_answered");
    expect(LNET_NODE_EV_ROUTE_UP, TCP5, gw, "ping_answered");
    expect(LNET_NODE_EV_ROUTE_UP, TCP6, gw, "ping_answered");
    expect_nothing(); /* tcp7 is not listed by it: hop 1 says it should be */
    node_down();
}

static void test_connection_lost(void **state)
{
    struct lnet_nid gw = N(GW);
    struct lnet_peer_ni *p;

    routes_up();
    answer(0x1a, UP, UP, UP);
    ON(home_of(&gw), p = lnet_peer_ni_get(node, &gw));
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, false));
    settle();
    expect(LNET_NODE_EV_GATEWAY_DOWN, 0, gw, "connection_lost");
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP5, gw, "connection_lost");
    expect(LNET_NODE_EV_ROUTE_DOWN, TCP6, gw, "connection_lost");
    expect_nothing();
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, true));
    settle();
    expect(LNET_NODE_EV_GATEWAY_UP, 0, gw, "connected");
    expect(LNET_NODE_EV_ROUTE_UP, TCP5, gw, "connected");
    expect(LNET_NODE_EV_ROUTE_UP, TCP6, gw, "connected");
    expect_nothing();
    ON(home_of(&gw), {
        lnet_peer_ni_notify(tcp0, p, false);
        lnet_peer_ni_notify(tcp0, p, true);
        lnet_peer_ni_put(p);
    });
    expect_nothing(); /* before anybody could look */
    node_down();
}

/* Every route of a gateway is told of, in more than one turn. */
static void test_many_routes(void **state)
{
    struct lnet_nid gw = N(GW);
    struct lnet_peer_ni *p;
    char net[32];

    node_up(opts_default());
    for (unsigned i = 0; i < 300; i++) {
        snprintf(net, sizeof(net), "tcp%u", 100 + i);
        assert_int_equal(route_add(net, gw, -1, 0), 0);
    }
    pass(SEC);
    watch();
    ON(home_of(&gw), p = lnet_peer_ni_get(node, &gw));
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, false); lnet_peer_ni_put(p));
    settle();
    assert_int_equal(ntold, 301);
    for (unsigned i = 0; i < 300; i++)
        expect(LNET_NODE_EV_ROUTE_DOWN, LNET_NET(LNET_LND_SOCK, 100 + i), gw, "connection_lost");
    expect(LNET_NODE_EV_GATEWAY_DOWN, 0, gw, "connection_lost");
    node_down();
}

/* ---- buffers ---- */

static void test_buffers(void **state)
{
    struct peer_msg *rx[8];

    admit_up(8, 50);
    watch();
    hang(hop(0), 100); /* as much as one next hop may have: that is no shortage */
    expect_nothing();
    fill(100);
    settle();
    assert_int_equal(ntold, 1);
    assert_int_equal(told[0].value, LNET_POOL_SMALL);
    assert_int_equal(told[0].reactor, 0);
    expect(LNET_NODE_EV_BUFFERS_EXHAUSTED, 0, (struct lnet_nid){0}, "no_free_buffer");
    for (unsigned i = 0; i < 8; i++) /* once, however many wait, and however often */
        rx[i] = put(hop(500 + i), 100);
    for (unsigned i = 0; i < 8; i++)
        assert_true(rx_cancel(rx[i]));
    expect_nothing();
    pass_ms(300);
    rx[0] = put(hop(500), 100);
    pass_ms(1000);
    expect_nothing(); /* it waits */
    assert_true(rx_cancel(rx[0]));
    end_all();
    pass_ms(1000);
    expect(LNET_NODE_EV_BUFFERS_FREE, 0, (struct lnet_nid){0}, "nothing_waits");
    expect_nothing();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_way),
    LNET_TEST(test_missed),
    LNET_TEST(test_flood),
    LNET_TEST(test_ni),
    LNET_TEST(test_routes),
    LNET_TEST(test_ping_timeout),
    LNET_TEST(test_connection_lost),
    LNET_TEST(test_many_routes),
    LNET_TEST(test_buffers),
};

LNET_TESTS_MAIN("test-lnet-event", tests)
