/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gateways with several NIDs, when something fails or somebody lies: pairs of NIs that do not work,
 * gateways that do not answer, messages that had not left, and NIDs that a node only claims.
 * docs/protocol/lnet-core.md §3.7, §3.8, §4.10.
 */
#include "test/unit/lnet_rails.h"

/* ---- allocations that fail ---- */

static bool no_memory; /* for snapshots of the configuration */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory && size == sizeof(struct lnet_conf) ? NULL : __real_calloc(n, size);
}

/* ---- rails that do not work ---- */

/* §3.8 inputs 2 */
static void test_pair_fails(void **state)
{
    uint8_t data[256];
    uint32_t len;
    const struct sent *get;

    rails_up(true);
    len = (uint32_t)lnet_ping_encode(gw_info(false), data, sizeof(data));
    notify(tcp1, B, false);
    assert_int_equal(count(30, TO, B, tcp1), 0); /* the other NI still may */
    assert_int_equal(count(30, TO, B, tcp1b), 10);
    notify(tcp1b, B, false);
    assert_int_equal(count(30, TO, B, NULL), 0);
    assert_int_equal(count(30, TO, A, NULL), 15); /* traffic goes on */
    assert_true(lnet_gw_alive(node->gw[0]));

    /* Each of the two pairs is pinged until it answers. */
    pass(2 * SEC);
    get = last_ping_to(A); /* the regular check */
    reply_to(get, data, len);
    for (unsigned i = 0; i < 2; i++) {
        sent_clear();
        for (unsigned k = 0; k < 40 && !last_ping_to(B); k++)
            pass(SEC);
        get = last_ping_to(B);
        assert_non_null(get);
        reply_to(get, data, len);
        settle();
    }
    assert_int_equal(gw_ni(B)->pairs_down, 0);
    assert_int_equal(count(30, TO, B, NULL), 10);
    node_down();
}

/* §3.8: the gateway says which of its NIs are down. */
static void test_status(void **state)
{
    struct lnet_ping_info *info;
    uint8_t data[256];
    uint32_t len;

    rails_up(true);
    ON(0, node->ping->on_push(gw_ni(C), gw_info(true)));
    settle();
    assert_int_equal(count(30, TO, B, NULL), 0);
    assert_int_equal(count(30, TO, A, NULL), 15);
    len = (uint32_t)lnet_ping_encode(gw_info(true), data, sizeof(data));
    reply_to(last_ping_to(A), data, len); /* the regular check */
    pass(2 * SEC);
    assert_non_null(last_ping_to(B)); /* the NI comes up when it is pinged, §3.7 */
    ON(0, node->ping->on_push(gw_ni(C), gw_info(false)));
    settle();
    assert_int_equal(count(30, TO, B, NULL), 10);
    info = gw_info(true);
    info->ni[0].status = LNET_NI_DOWN; /* all of the route's net: §3.8 row 3 */
    ON(0, node->ping->on_push(gw_ni(A), info));
    settle();
    assert_int_equal(count(10, TO, C, NULL), 0);
    node_down();
}

/* A gateway that does not answer is down with all of its NIDs, after one ping time-out, but for
 * those that a message came from. §3.8 completion 2 */
static void test_gateway_dead(void **state)
{
    struct lnet_nid b = N(B);

    for (unsigned heard = 0; heard < 2; heard++) {
        ping_timeout = 3;
        rails_up(true);
        ping_timeout = 50;
        pass(SEC);
        if (heard)
            arrive(tcp1, b, hdr_of(LNET_MSG_PUT, b, N("10.0.0.9@tcp"), 10));
        pass(3 * SEC);
        assert_int_equal(lnet_gw_alive(node->gw[0]), heard);
        assert_true(gw_ni(A)->ping_down_us > 0);
        assert_true(gw_ni(C)->ping_down_us > 0);
        assert_int_equal(count(10, TO, B, NULL), 10 * heard);
        pass(20 * SEC);
        assert_false(lnet_gw_alive(node->gw[0])); /* B does not answer, either */
        node_down();
    }
}

/* A recovery ping that fails says nothing of the peer NI: another NI of ours reaches it. */
static void test_recovery_fails(void **state)
{
    struct lnet_gw_ni *g;
    unsigned n = 0;

    gateway_lists(D, NULL);
    g = gw_ni(D);
    notify(tcp1, D, false);
    sent_clear();
    assert_true(pinged_within(D, 3));
    assert_ptr_equal(last_ping_to(D)->ni, tcp1);
    notify(tcp1, D, true); /* a connection comes up, but nothing comes over it */
    assert_int_equal(g->pairs_down, 0);
    pass(6 * SEC);
    assert_int_equal(g->ping_down_us, 0);
    assert_true(lnet_gw_alive(node->gw[0]));
    assert_int_equal(g->pairs_down, lnet_ni_bit(tcp1));
    assert_int_equal(count(10, TO, D, tcp1b), 10);
    for (unsigned i = 0; i < 40; i++) {
        pass(SEC);
        for (unsigned k = 0; k < loop.nsent; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET && loop.sent[k].ni == tcp1b)
                answer(&loop.sent[k], 1, D, NULL);
            else if (loop.sent[k].hdr.type == LNET_MSG_GET)
                n++;
        sent_clear();
        assert_true(lnet_gw_alive(node->gw[0]));
    }
    assert_in_range(n, 2, 6);
    node_down();
}

/* A NID that the gateway calls down, or does not list, or lists as up and down in turn, is pinged
 * with a back-off, although it answers. */
static void test_back_off(void **state)
{
    uint8_t data[256];

    for (unsigned how = 0; how < 3; how++) {
        unsigned n = 0;

        rails_up(true);
        for (unsigned i = 0; i < 300; i++) {
            struct lnet_ping_info *info = gw_info(how < 2 || i % 2);
            uint32_t len;

            if (how == 1) { /* C instead of B: the list is that of A and C */
                info->ni[1] = info->ni[2];
                info->count = 2;
            }
            len = (uint32_t)lnet_ping_encode(info, data, sizeof(data));
            n += pings_to(B);
            for (unsigned k = 0; k < loop.nsent; k++)
                if (loop.sent[k].hdr.type == LNET_MSG_GET)
                    reply_to(&loop.sent[k], data, len);
            sent_clear();
            ON(0, node->ping->on_push(gw_ni(C), info));
            pass(SEC);
        }
        assert_in_range(n, 5, 16);
        node_down();
    }
}

/* ---- messages that had not left ---- */

/* A message goes another way if it waited for a credit, or if the LND says that it gave none of it
 * away. One that was posted may have arrived. */
static void test_goes_again(void **state)
{
    enum {
        POSTED,
        ACCEPTED,
        ENDED, /* a connection ended in order: the pair works */
        UNSENT,
        REFUSED,
        QUEUED,
        CASES
    };
    static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR};
    struct lnet_nid from = N("10.0.0.9@tcp"), a = N(A);

    for (unsigned how = 0; how < CASES; how++) {
        const unsigned again = how >= ENDED;
        struct lnet_result result = lost;
        struct lnet_msg *msg = NULL;
        struct lnet_peer_ni *p;
        struct lnet_ni *ni;

        rails_up(true);
        p = peer_find(&a);
        gw_ni(C)->status_down = true;
        gw_ni(B)->tx_credits -= 5;
        if (how == QUEUED)
            p->tx.now = 0;
        sent_clear();
        loop.hold_send = true;
        loop.accept_only = how == ACCEPTED;
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(TO), 10));
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), how != QUEUED);
        for (unsigned i = 0; i < loop.nheld; i++)
            if (loop.held[i]->hdr.type == LNET_MSG_PUT)
                msg = loop.held[i];
        if (how == QUEUED)
            msg = STAILQ_FIRST(&p->txq);
        assert_non_null(msg);
        assert_ptr_equal(msg->tx_peer, p);
        ni = msg->tx_ni;
        loop.hold_send = loop.accept_only = false;
        gw_ni(B)->tx_credits += 5;
        result.unsent = how != POSTED;
        result.reason = how == REFUSED ? LNET_DROP_NEXT_HOP_DOWN : LNET_DROP_NEXT_HOP_LOST;
        if (how == QUEUED) {
            p->tx.now = p->tx.max - 1;
            notify(ni, A, false);
        } else {
            if (how != REFUSED && how != ENDED)
                ON(home_of(&a), lnet_peer_ni_lost(ni, p));
            send_end(msg, result);
        }
        settle();
        assert_true(how == ENDED || gw_ni(A)->pairs_down & lnet_ni_bit(ni));
        assert_int_equal(sent_count(LNET_MSG_PUT), how == QUEUED ? 1 : 1 + again);
        if (again && how != ENDED)
            assert_false(nid_same(&sent_last(LNET_MSG_PUT)->to, &a) &&
                         sent_last(LNET_MSG_PUT)->ni == ni);
        assert_int_equal(drops_of(result.reason), 1 - again);
        assert_int_equal(stat_of(LNET_STAT_RESEND_COUNT), again);
        send_end_all(LNET_RESULT_OK);
        settle();
        node_down();
    }
}

/* Without another way it is lost to the peer NI that it could not be sent to. */
static void test_no_other_way(void **state)
{
    static const struct lnet_result down = {LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR,
                                            .unsent = true};
    struct lnet_nid from = N("10.0.0.9@tcp"), d = N(D);

    gateway_lists(D, NULL);
    notify(tcp1, D, false);
    sent_clear();
    loop.hold_send = true;
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(TO), 10));
    settle();
    assert_int_equal(loop.nheld, 1);
    assert_ptr_equal(loop.held[0]->tx_ni, tcp1b);
    loop.hold_send = false;
    send_end(loop.held[0], down);
    settle();
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_DOWN), 1);
    assert_int_equal(peer_find(&d)->drop_count[LNET_MSG_PUT], 1);
    node_down();
}

/* ---- NIDs that a node claims ---- */

/* A NID that a gateway lists gets messages only after it answered as a NID of that gateway. */
static void test_claimed(void **state)
{
    gateway_lists(D, E);
    assert_ptr_equal(peer_of(E), peer_of(D));
    assert_true(pinged_within(E, 3));
    assert_int_equal(count(10, TO, D, NULL), 10);
    answer(last_ping_to(E), 1, E, NULL); /* another node */
    assert_ptr_not_equal(peer_of(E), peer_of(D));
    pass(3 * SEC);
    assert_int_equal(count(10, TO, D, NULL), 10);
    assert_int_equal(node->ngw_nis, 1);
    node_down();

    gateway_lists(D, E);
    sent_clear();
    for (unsigned i = 0; i < 30; i++) { /* nobody there */
        pass(SEC);
        assert_int_equal(count(2, TO, D, NULL), 2);
    }
    assert_in_range(pings_to(E), 2, 6);
    sent_clear();
    assert_true(pinged_within(E, 40));
    answer(last_ping_to(E), 1, D, E);
    pass(3 * SEC);
    assert_int_equal(count(10, TO, E, NULL), 5);
    node_down();
}

/* A peer says in a REPLY which NIDs it has. */
static void claim(const char *nid, const char *a, const char *b)
{
    struct lnet_ping_info info = info_of(7, a, b);
    struct peer *p = (struct peer *)peer_of(nid);

    ON(0, peer_table_hear(node->peers, p, &info, true);
       peer_table_merge(node->peers, p, &info, true));
}

/* A gateway claims a NID that routes name next. */
static void test_claimed_gateway(void **state)
{
    static const char to[] = "10.6.0.1@tcp6";

    gateway_lists(D, E);
    assert_ptr_equal(peer_of(E), peer_of(D));
    assert_int_equal(route_add("tcp6", N(E), 2, 0), 0);
    pass(2 * SEC);
    assert_ptr_not_equal(peer_of(E), peer_of(D));
    assert_int_equal(count(10, to, E, NULL), 10);
    /* The gateway lists it again, and then as its primary NID. */
    claim(D, D, E);
    claim(D, E, D);
    assert_ptr_not_equal(peer_of(E), peer_of(D));
    pass(3 * SEC);
    assert_int_equal(count(10, to, E, NULL), 10);
    assert_int_equal(count(10, TO, D, NULL), 10);
    /* One that is proved is not taken, either. */
    answer(last_ping_to(E), 7, E, NULL);
    claim(E, E, F);
    assert_true(pinged_within(F, 3));
    answer(last_ping_to(F), 1, E, F);
    claim(D, D, F);
    assert_ptr_equal(peer_of(F), peer_of(E));
    node_down();
}

/* A NID is proved by its own answer only, whichever of the peer's NIDs a discovery goes to. */
static void test_asked(void **state)
{
    struct lnet_nid d = N(D), e = N(E);
    unsigned seqno = 1;

    gateway_lists(E, D);
    for (unsigned i = 0; i < 240; i++) {
        for (unsigned k = 0; k < loop.nsent; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET && nid_same(&loop.sent[k].hdr.dest_nid, &d))
                answer(&loop.sent[k], ++seqno, E, D);
        sent_clear();
        pass(SEC);
        assert_false(peer_table_find_ni(node->peers, &e)->answered);
    }
    assert_int_equal(count(10, TO, D, NULL), 10);
    node_down();
}

/* Of a peer with two NIDs, one of which answers nothing, the other gets the PUSHes. */
static void test_dead_nid(void **state)
{
    struct lnet_nid d = N(D);
    unsigned dead = 0, alive = 0;

    rails_up(false);
    peer_add(D, D);
    peer_add(D, E);
    for (unsigned i = 0; i < 600; i++) {
        if (i % 40 == 0)
            ON(0, lnet_discover_now(node->ping, (struct peer *)peer_of(D),
                                    PEER_FORCE_PING | PEER_FORCE_PUSH);
               lnet_discover_some(node->ping));
        settle();
        for (unsigned k = 0; k < loop.nsent; k++) {
            const struct lnet_hdr *h = &loop.sent[k].hdr;

            if (h->type != LNET_MSG_GET && h->type != LNET_MSG_PUT)
                continue;
            *(nid_same(&h->dest_nid, &d) ? &alive : &dead) += 1;
            if (nid_same(&h->dest_nid, &d) && h->type == LNET_MSG_GET)
                answer(&loop.sent[k], 2, D, E);
            else if (nid_same(&h->dest_nid, &d))
                ack_push_only(&loop.sent[k]);
        }
        sent_clear();
        pass(SEC);
    }
    assert_in_range(alive, 20, 40);
    assert_in_range(dead, 1, 10); /* once a minute */
    node_down();
}

/* A node that answers lists a NID of a gateway before the gateway does. */
static void test_listed_elsewhere(void **state)
{
    static const char x[] = "10.1.0.120@tcp1";
    struct lnet_nid nid = N(x);

    rails_up(false);
    ON(0, peer_table_answers(node->peers, peer_table_get(node->peers, &nid), true));
    claim(x, x, E);
    assert_int_equal(route_add("tcp5", N(D), 2, 0), 0);
    settle();
    for (unsigned i = 0; i < 60; i++) {
        pass(SEC);
        for (unsigned k = 0; k < loop.nsent; k++)
            if (loop.sent[k].hdr.type == LNET_MSG_GET) {
                bool of_x = nid_same(&loop.sent[k].hdr.dest_nid, &nid);

                answer(&loop.sent[k], 7, of_x ? x : D, E);
            }
        sent_clear();
        ON(0, peer_table_answers(node->peers, (struct peer *)peer_of(x), true));
    }
    assert_ptr_equal(peer_of(E), peer_of(D));
    assert_int_equal(count(10, TO, E, NULL), 5);
    node_down();
}

/* A gateway pushed from another NID of it, its primary one, before it was a gateway. */
static void test_pushed_before(void **state)
{
    struct lnet_nid e = N(E);

    rails_up(false);
    ON(0, peer_table_get(node->peers, &e));
    claim(E, E, D);
    assert_int_equal(route_add("tcp5", N(D), 2, 0), 0);
    pass(SEC);
    answer(last_ping_to(D), 7, E, D);
    assert_ptr_equal(peer_of(E), peer_of(D));
    assert_true(pinged_within(E, 3));
    answer(last_ping_to(E), 7, E, D);
    pass(3 * SEC);
    assert_int_equal(count(10, TO, E, NULL), 5);
    node_down();
}

/* With discovery off a gateway has the NID that routes name. */
static void test_discovery_off(void **state)
{
    rails_up(false);
    node->no_discovery = true;
    assert_int_equal(route_add("tcp5", N(D), 2, 0), 0);
    pass(SEC);
    answer(last_ping_to(D), 1, D, E);
    assert_int_equal(peer_of(D)->state & PEER_MULTI_RAIL, 0);
    assert_true(peer_of(D)->state & PEER_NO_DISCOVERY);
    assert_null(peer_of(E));
    /* §13: the route stays while another NI of ours reaches the gateway, as on master */
    notify(tcp1, D, false);
    assert_int_equal(count(10, TO, D, tcp1b), 10);
    notify(tcp1b, D, false);
    assert_int_equal(count(10, TO, D, NULL), 0);
    node_down();
}

/* ---- lists that change ---- */

/* A list that changes all the time costs few snapshots; one that finds no memory is tried again. */
static void test_lists(void **state)
{
    struct lnet_nid a = N(A), b = N(B);
    uint64_t generation;

    rails_up(true);
    generation = lnet_conf_get(node)->generation;
    for (unsigned i = 0; i < 60; i++) {
        if (i % 2)
            peer_add(A, B);
        else
            assert_int_equal(peer_table_del_nid(node->peers, &a, &b), 0);
        pass(SEC);
    }
    assert_in_range(lnet_conf_get(node)->generation - generation, 3, 11);
    pass(60 * SEC);
    assert_non_null(lnet_gw_ni_find(node, &b));
    no_memory = true;
    assert_int_equal(peer_table_del_nid(node->peers, &a, &b), 0);
    pass(5 * SEC);
    assert_non_null(lnet_gw_ni_find(node, &b));
    no_memory = false;
    pass(2 * SEC);
    assert_null(lnet_gw_ni_find(node, &b));
    node_down();
}

/* ---- NIs of ours ---- */

static void on_end(void *arg, int rc, const struct err *why)
{
    assert_int_equal(rc, 0);
    ++*(unsigned *)arg;
}

/* An NI that gets the index of another one begins without what failed for that one. */
static void test_pair_bits(void **state)
{
    struct lnet_ni_conf conf = {
        .nid = N("10.1.0.3@tcp1"), .tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};
    unsigned index, ended = 0;
    struct lnet_ni *ni = NULL;
    struct err err = {0};
    struct lnet_nid nid;

    rails_up(true);
    assert_int_not_equal(lnet_ni_bit(tcp1), lnet_ni_bit(tcp1b));
    conf.net = nid_net(&conf.nid);
    index = tcp1b->index;
    nid = tcp1b->nid;
    notify(tcp1b, B, false);
    send_end_all(LNET_RESULT_OK);
    assert_int_equal(lnet_ni_del(node, &nid, on_end, &ended, &err), 0);
    pass(3 * SEC);
    assert_int_equal(ended, 1);
    assert_int_equal(lnet_ni_add_live(node, &conf, on_end, &ended, &err), 0);
    settle();
    assert_int_equal(ended, 2);
    ni = lnet_ni_find(node, &conf.nid);
    assert_non_null(ni);
    assert_int_equal(ni->index, index);
    assert_int_equal(gw_ni(B)->pairs_down & lnet_ni_bit(ni), 0);
    assert_int_not_equal(lnet_ni_bit(tcp1), lnet_ni_bit(ni));
    node_down();
}

/* No NI of ours may send to a NID on no net of ours. */
static void test_no_net(void **state)
{
    struct lnet_conf_gw_ni g;
    enum lnet_why why;

    rails_up(true);
    g = (struct lnet_conf_gw_ni){.ni = gw_ni(A), .gw = lnet_conf_get(node)->gw};
    assert_false(lnet_gw_ni_usable(&g));
    ON(0, why = lnet_gw_ni_behind(node->shard[0], &g, &lnet_conf_get(node)->gw[0].ni[1], 0));
    assert_int_equal(why, LNET_WHY_PEER_NI_DOWN);
    ON(0, why = lnet_gw_ni_behind(node->shard[0], &lnet_conf_get(node)->gw[0].ni[1], &g, 0));
    assert_int_equal(why, LNET_WHY_CHOSEN);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_pair_fails),     LNET_TEST(test_status),           LNET_TEST(test_gateway_dead),
    LNET_TEST(test_recovery_fails), LNET_TEST(test_back_off),         LNET_TEST(test_goes_again),
    LNET_TEST(test_claimed),        LNET_TEST(test_claimed_gateway),  LNET_TEST(test_discovery_off),
    LNET_TEST(test_lists),          LNET_TEST(test_pair_bits),        LNET_TEST(test_no_net),
    LNET_TEST(test_pushed_before),  LNET_TEST(test_no_other_way),     LNET_TEST(test_asked),
    LNET_TEST(test_dead_nid),       LNET_TEST(test_listed_elsewhere),
};

LNET_TESTS_MAIN("test-lnet-rails-fail", tests)
