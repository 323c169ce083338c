/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks of gateways with several NIDs: which rail is pinged, when all of them failed, when the LND
 * keeps a GET, and so that the gateway calls none of its NIs down. docs/protocol/lnet-core.md §3.7,
 * §3.8.
 */
#include "test/unit/lnet_rails.h"

/* The bytes of what the gateway A says. */
static uint32_t encoded(bool down, uint8_t data[256])
{
    return (uint32_t)lnet_ping_encode(gw_info(down), data, 256);
}

static bool is_get_to(const struct sent *s, const char *nid)
{
    struct lnet_nid n = N(nid);

    return s->hdr.type == LNET_MSG_GET && nid_same(&s->to, &n);
}

/* The gateway A answers all pings, but for those to `dead`. */
static void answer_pings(const char *dead)
{
    uint8_t data[256];
    uint32_t len = encoded(false, data);

    for (unsigned k = 0; k < loop.nsent; k++)
        if (loop.sent[k].hdr.type == LNET_MSG_GET && !(dead && is_get_to(&loop.sent[k], dead)))
            reply_to(&loop.sent[k], data, len);
    sent_clear();
}

static void second_of(const char *dead)
{
    pass(SEC);
    answer_pings(dead);
}

/* The LND keeps the GET to one rail of an idle gateway: the other is pinged meanwhile. */
static void test_rail_hangs(void **state)
{
    const struct lnet_gw_check *c;
    unsigned down = 0;

    ping_timeout = 5;
    gateway_lists(D, E);
    ping_timeout = 50;
    c = node->gw[0]->check;
    for (unsigned i = 0; i < 80; i++) {
        bool due = i > 10 && clock_us + SEC >= c->next_us && loop.nheld == 0;

        loop.hold_send = due;
        pass(SEC);
        loop.hold_send = false;
        for (unsigned k = 0; k < loop.nsent && !due; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET)
                answer(&loop.sent[k], 1, D, E);
        sent_clear();
        down += !lnet_gw_alive(node->gw[0]);
    }
    assert_int_equal(node->ngw_nis, 2);
    assert_int_equal(loop.nheld, 1);
    assert_true(c->alive.op.running);
    assert_in_range(down, 0, 2);
    send_end_all((struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR});
    settle();
    node_down();
}

/* A GET that ends long after its time says nothing new. */
static void test_late_end(void **state)
{
    struct lnet_nid d = N(D);

    ping_timeout = 5;
    rails_up(false);
    ping_timeout = 50;
    loop.hold_send = true;
    assert_int_equal(route_add("tcp5", N(D), 2, 0), 0);
    settle();
    pass(SEC);
    assert_int_equal(loop.nheld, 1);
    loop.hold_send = false;
    pass(5 * SEC);
    assert_false(lnet_gw_alive(node->gw[0]));
    arrive(tcp1b, d, hdr_of(LNET_MSG_PUT, N(TO), N("10.0.0.9@tcp"), 10));
    assert_true(lnet_gw_alive(node->gw[0]));
    send_end(loop.held[0], (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR});
    settle();
    assert_true(lnet_gw_alive(node->gw[0]));
    node_down();
}

/* The gateway called B and C down, and A dies: B and C are pinged, too. */
static void test_other_rails(void **state)
{
    struct lnet_ping_info *info;
    uint8_t data[256];

    ping_timeout = 5;
    rails_up(true);
    ping_timeout = 50;
    info = gw_info(false);
    info->ni[1].status = info->ni[2].status = LNET_NI_DOWN;
    reply_to(last_ping_to(A), data, (uint32_t)lnet_ping_encode(info, data, sizeof(data)));
    while (lnet_gw_alive(node->gw[0])) /* nothing answers */
        pass(SEC);
    sent_clear();
    for (unsigned i = 0; i < 120 && !lnet_gw_alive(node->gw[0]); i++)
        second_of(A);
    assert_true(lnet_gw_alive(node->gw[0]));
    node_down();
}

/* The pair with one NI was lost, then the gateway answers nothing by the other: both are tried. */
static void test_other_ni(void **state)
{
    ping_timeout = 5;
    gateway_lists(D, NULL);
    ping_timeout = 50;
    notify(tcp1b, D, false);
    while (lnet_gw_alive(node->gw[0]))
        pass(SEC);
    sent_clear();
    for (unsigned i = 0; i < 300; i++) {
        pass(SEC);
        for (unsigned k = 0; k < loop.nsent; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET && loop.sent[k].ni == tcp1b)
                answer(&loop.sent[k], 1, D, NULL);
        sent_clear();
    }
    assert_true(lnet_gw_alive(node->gw[0]));
    node_down();
}

/* §3.7: a router calls its NI of a net down 110 s after the last ping over that net. This node is
 * the only one that pings the gateway; in the second round it prefers another rail than A.
 * §3.8 check 1, check 5 */
static void test_each_net(void **state)
{
    for (unsigned how = 0; how < 2; how++) {
        uint64_t last[2];
        static const char *const nid[2] = {A, C};

        rails_up(true);
        last[0] = last[1] = clock_us;
        for (unsigned i = 0; i < 1200; i++) {
            pass(SEC);
            if (how)
                gw_ni(A)->tx_credits = gw_ni(B)->tx_credits = 1000;
            for (unsigned k = 0; k < loop.nsent; k++)
                assert_int_equal(loop.sent[k].ni->net, nid_net(&loop.sent[k].to));
            for (unsigned n = 0; n < 2; n++) {
                for (unsigned k = 0; k < loop.nsent; k++)
                    if (is_get_to(&loop.sent[k], nid[n]) || (n == 0 && is_get_to(&loop.sent[k], B)))
                        last[n] = clock_us;
                assert_true(clock_us - last[n] < 100 * SEC);
            }
            answer_pings(NULL);
        }
        gw_ni(A)->tx_credits = gw_ni(B)->tx_credits = gw_ni(C)->tx_credits;
        node_down();
    }
}

/* The peer may have given up a connection while the link of our NI was down. A gateway that has
 * another way gets messages by that NI only after it answered a ping by it. */
static void test_link_back(void **state)
{
    unsigned by = 0;

    gateway_lists(D, NULL);
    ON(0, lnet_ni_link(tcp1b, false));
    settle();
    assert_int_equal(count(10, TO, D, tcp1), 10);
    ON(0, lnet_ni_link(tcp1b, true));
    settle();
    assert_int_equal(count(10, TO, D, tcp1), 10);
    sent_clear();
    for (unsigned i = 0; i < 5; i++) {
        pass(SEC);
        for (unsigned k = 0; k < loop.nsent; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET && loop.sent[k].ni == tcp1b) {
                answer(&loop.sent[k], 1, D, NULL);
                by++;
            }
        sent_clear();
    }
    assert_int_equal(by, 1);
    assert_int_equal(count(10, TO, D, tcp1b), 5);
    /* Without another way it is used at once. */
    ON(0, lnet_ni_link(tcp1, false); lnet_ni_link(tcp1b, false));
    settle();
    ON(0, lnet_ni_link(tcp1b, true));
    settle();
    pass(2 * SEC);
    if (last_ping_to(D))
        answer(last_ping_to(D), 1, D, NULL);
    assert_int_equal(count(10, TO, D, tcp1b), 10);
    node_down();
}

/* What waits for a credit of a pair is not handed to it once the pair is lost. */
static void test_lost_queue(void **state)
{
    struct lnet_nid from = N("10.0.0.9@tcp"), a = N(A);
    struct lnet_peer_ni *p;
    struct lnet_msg *first;
    const struct sent *s;

    rails_up(true);
    p = peer_find(&a);
    gw_ni(C)->status_down = true;
    tcp1b->fatal = true; /* one pair: A and tcp1 */
    sent_clear();
    p->tx.now = 1;
    loop.hold_send = true;
    for (unsigned i = 0; i < 2; i++) {
        gw_ni(B)->tx_credits = -5000;
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(TO), 10));
    }
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_false(STAILQ_EMPTY(&p->txq));
    first = loop.held[loop.nheld - 1];
    gw_ni(B)->tx_credits = 1024;
    ON(home_of(&a), lnet_peer_ni_lost(tcp1, p));
    send_end(first, (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR});
    notify(tcp1, A, false);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    s = sent_last(LNET_MSG_PUT);
    assert_false(nid_same(&s->to, &a));
    p->tx.now = p->tx.max;
    send_end_all(LNET_RESULT_OK);
    settle();
    tcp1b->fatal = false;
    node_down();
}

/* The node of D and E answers its checks with these NIDs for some time. E is another node's if
 * `moved`: one that has F, too. */
static void answer_as(const char *b, bool moved)
{
    for (unsigned i = 0; i < 250; i++) { /* each NID is asked in turn, one in 60 s */
        pass(SEC);
        for (unsigned k = 0; k < loop.nsent; k++)
            if (moved && (is_get_to(&loop.sent[k], E) || is_get_to(&loop.sent[k], F)))
                answer(&loop.sent[k], 2, E, F);
            else if (is_get_to(&loop.sent[k], D) || (b && is_get_to(&loop.sent[k], b)))
                answer(&loop.sent[k], 1, D, b);
        sent_clear();
    }
}

/* A gateway starts again, with another NID in place of E. Its sequence number is what it was. */
static void test_same_number(void **state)
{
    gateway_lists(D, E);
    answer_as(E, false);
    assert_int_equal(node->ngw_nis, 2);
    assert_int_equal(count(10, TO, E, NULL), 5);
    answer_as(F, false);
    assert_int_equal(node->ngw_nis, 2);
    assert_int_equal(count(10, TO, F, NULL), 5);
    answer_as(NULL, false);
    assert_int_equal(node->ngw_nis, 1);
    assert_int_equal(count(10, TO, D, NULL), 10);
    node_down();
}

/* E goes to another node, which pushes the list of its NIDs by E. No message for the gateway goes
 * to that node once the gateway itself was asked. §3.6 merge 2 */
static void test_nid_moves(void **state)
{
    struct lnet_ping_info info = info_of(2, E, F);
    struct lnet_nid e = N(E);
    struct peer_msg *fx;
    uint8_t data[256];
    uint32_t len = (uint32_t)lnet_ping_encode(&info, data, sizeof(data));

    gateway_lists(D, E);
    answer_as(E, false);
    assert_int_equal(count(10, TO, E, NULL), 5);
    fx = rx_new(tcp1, e, hdr_put(e, tcp1->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);
    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    settle();
    answer_as(NULL, true);
    assert_int_equal(count(10, TO, D, NULL), 10);
    assert_int_equal(node->ngw_nis, 1);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_rail_hangs),  LNET_TEST(test_late_end),  LNET_TEST(test_other_rails),
    LNET_TEST(test_other_ni),    LNET_TEST(test_each_net),  LNET_TEST(test_lost_queue),
    LNET_TEST(test_same_number), LNET_TEST(test_nid_moves), LNET_TEST(test_link_back),
};

LNET_TESTS_MAIN("test-lnet-rails-check", tests)
