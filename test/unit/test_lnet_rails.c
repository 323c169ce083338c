/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several NIs on a net, gateways with several NIDs, and messages of this node to peers with several
 * NIDs: docs/protocol/lnet-core.md §7.1 to §7.6. Each step there is a row of the table below; the
 * last test fails if a row was neither tested nor has a reason why not.
 */
#include "test/unit/lnet_rails.h"

/* ---- the table ---- */

static const char health[] =
    "health comes next; a peer NI or pair that does not work has its place";
static const char udsp[] = "test_lnet_udsp.c has the selection policies";

static struct {
    const char *row, *never;
    bool covered;
} rows[] = {
    {"7.1.1 not fatal"},
    {"7.1.2 NI health", health},
    {"7.1.3 NI priority", udsp},
    {"7.1.4 device priority", "a router has no GPU memory"},
    {"7.1.5 NUMA distance", "NIs have no memory of their own to be near to; lnet_numa_range is 0"},
    {"7.1.6 NI credits"},
    {"7.1.7 NI sequence"},
    {"7.2.1 peer net health", health},
    {"7.2.2 peer net priority", udsp},
    {"7.2.3 local net health", health},
    {"7.2.4 local net priority", udsp},
    {"7.2.5 peer net sequence"},
    {"7.2.6 local net sequence"},
    {"7.2.7 then 7.1"},
    {"7.3.1 peer NI health", health},
    {"7.3.2 peer NI priority", udsp},
    {"7.3.3 preferred local NID", udsp},
    {"7.3.4 peer NI credits"},
    {"7.3.5 peer NI sequence"},
    {"7.3.6 any net"},
    {"7.4.1 alive"},
    {"7.4.2 gateway NI on the required net"},
    {"7.4.3 preferred router", udsp},
    {"7.4.4 priority"},
    {"7.4.5 hops"},
    {"7.4.6 gateway NI health", health},
    {"7.4.7 queued bytes"},
    {"7.4.8 gateway NI credits"},
    {"7.4.9 route sequence"},
    {"7.4.10 random insertion", "routes take turns per reactor; a router sends to all of them"},
    {"7.4.11 local NI"},
    {"7.5.1 remote net health", health},
    {"7.5.2 remote net priority", udsp},
    {"7.5.3 remote net sequence"},
    {"7.5.4 then 7.3 and 7.4"},
    {"7.6 given, local"},
    {"7.6 given, remote"},
    {"7.6 given, remote: REPLY and ACK"},
    {"7.6 any, local, non-MR: forwarded"},
    {"7.6 any, local, non-MR: own", "own messages are on portal 0, which prefers no local NI"},
    {"7.6 any, MR"},
    {"7.6 any, MR: forwarded",
     "not done: it goes to the NID in the header (recordings M, 1), and by a route to another net"},
    {"7.6 any, remote, non-MR"},
    {"7.6 loopback"},
    {"7.6 sequences and header"},
};

#define NROWS (sizeof(rows) / sizeof(rows[0]))

static void covers(const char *row)
{
    for (unsigned i = 0; i < NROWS; i++)
        if (strcmp(rows[i].row, row) == 0) {
            assert_null(rows[i].never);
            rows[i].covered = true;
            return;
        }
    fail_msg("%s is not in the table", row);
}

static void test_table(void **state)
{
    unsigned n = 0, never = 0, missing = 0;

    for (unsigned i = 0; i < NROWS; i++) {
        n += rows[i].covered;
        never += rows[i].never != NULL;
        if (rows[i].never)
            print_message("not tested: %s: %s\n", rows[i].row, rows[i].never);
        if (!rows[i].covered && !rows[i].never) {
            print_message("missing: %s\n", rows[i].row);
            missing++;
        }
    }
    print_message("rows covered %u of %zu (%u have a reason)\n", n, NROWS, never);
    assert_int_equal(missing, 0);
}

/* ---- §7.1 ---- */

static void test_best_ni(void **state)
{
    static const char dest[] = "10.1.0.77@tcp1";

    rails_up(false);
    assert_int_equal(count(20, dest, dest, tcp1), 10);
    covers("7.1.7 NI sequence");
    ni_credits_add(tcp1, -1);
    assert_int_equal(count(20, dest, dest, tcp1b), 20);
    ni_credits_add(tcp1b, -3);
    assert_int_equal(count(20, dest, dest, tcp1), 20);
    tcp1->fatal = true; /* before credits */
    assert_int_equal(count(20, dest, dest, tcp1b), 20);
    tcp1->fatal = false;
    ni_credits_add(tcp1, 1);
    ni_credits_add(tcp1b, 3);
    covers("7.1.6 NI credits");
    covers("7.1.1 not fatal");
    node_down();
}

/* Messages that wait take credits: they spread over the NIs without a turn. */
static void test_credits_published(void **state)
{
    struct lnet_nid from = N("10.0.0.9@tcp");
    unsigned by[2] = {0};

    rails_up(true);
    loop.hold_send = true;
    sent_clear();
    for (unsigned i = 0; i < 12; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(TO), 10));
        settle();
    }
    for (unsigned i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            by[loop.sent[i].ni != ib0]++;
    assert_true(by[0] + by[1] >= 3);              /* as many as there are buffers for one gateway */
    assert_in_range(2 * by[0] + 2 - by[1], 0, 4); /* o2ib carries a third */
    assert_true(gw_ni(A)->tx_credits < peer_find(&gw_ni(A)->nid)->tx.max);
    assert_true(gw_ni(A)->queued_bytes > 0);
    loop.hold_send = false;
    send_end_all(LNET_RESULT_OK);
    settle();
    assert_int_equal(gw_ni(A)->tx_credits, peer_find(&gw_ni(A)->nid)->tx.max);
    assert_int_equal(gw_ni(A)->queued_bytes, 0);
    node_down();
}

/* ---- §7.3 and §7.4 ---- */

static void test_peer_nis(void **state)
{
    rails_up(true);
    assert_int_equal(node->ngw_nis, 3);
    assert_int_equal(lnet_conf_get(node)->ngws, 1);
    assert_int_equal(count(30, TO, A, NULL), 10);
    assert_int_equal(count(30, TO, B, NULL), 10);
    covers("7.3.5 peer NI sequence");
    assert_int_equal(count(30, TO, C, ib0), 10);
    covers("7.3.6 any net");
    gw_ni(A)->tx_credits--;
    assert_int_equal(count(30, TO, A, NULL), 0);
    assert_int_equal(count(30, TO, B, NULL), 15);
    gw_ni(A)->tx_credits++;
    covers("7.3.4 peer NI credits");
    /* A route's identity stays the NID that the operator named. */
    assert_true(nid_same(&node->conf->route[0]->gw->nid, &gw_ni(A)->nid));
    node_down();
}

static void test_routes(void **state)
{
    static const char other[] = "10.2.0.112@o2ib";
    struct lnet_path path;

    rails_up(false);
    assert_int_equal(route_add("tcp5", N(D), 2, 1), 0);
    assert_int_equal(route_add("tcp5", N(other), -1, 1), 0);
    settle();
    assert_int_equal(count(10, TO, other, ib0), 10); /* undefined counts as 1 */
    covers("7.4.5 hops");
    assert_int_equal(route_add("tcp6", N(D), 9, 0), 0);
    assert_int_equal(route_add("tcp6", N(other), 1, 1), 0);
    settle();
    assert_int_equal(count(10, "10.6.0.1@tcp6", D, NULL), 10);
    covers("7.4.4 priority");
    assert_int_equal(route_add("tcp7", N(D), 1, 0), 0);
    assert_int_equal(route_add("tcp7", N(other), -1, 0), 0);
    settle();
    assert_int_equal(count(10, "10.7.0.1@tcp7", D, NULL), 5);
    covers("7.4.9 route sequence");
    gw_ni(D)->queued_bytes = 72;
    assert_int_equal(count(10, "10.7.0.1@tcp7", other, NULL), 10);
    gw_ni(other)->tx_credits--; /* bytes come first */
    assert_int_equal(count(10, "10.7.0.1@tcp7", other, NULL), 10);
    covers("7.4.7 queued bytes");
    gw_ni(D)->queued_bytes = 0;
    assert_int_equal(count(10, "10.7.0.1@tcp7", D, NULL), 10);
    gw_ni(other)->tx_credits++;
    covers("7.4.8 gateway NI credits");
    gw_ni(other)->pairs_down = UINT64_MAX;
    assert_int_equal(count(10, TO, D, NULL), 10);
    gw_ni(other)->pairs_down = 0;
    gw_ni(other)->ping_down_us = clock_us;
    assert_int_equal(count(10, TO, D, NULL), 10);
    gw_ni(other)->ping_down_us = 0;
    covers("7.4.1 alive");
    path = sel_via(TO, tcp1b, LNET_NID_ANY);
    assert_true(goes_to(&path, D) && path.ni == tcp1b);
    covers("7.4.2 gateway NI on the required net");
    assert_int_equal(count(10, "10.6.0.1@tcp6", D, tcp1b), 5);
    covers("7.4.11 local NI");
    node_down();
}

/* Routes that name two NIDs of one peer: the state of its peer NIs is known to both. */
static void test_one_gateway(void **state)
{
    struct lnet_nid gone = N(B);
    struct err err = {0};

    rails_up(true);
    assert_int_equal(route_add("tcp6", N(B), 1, 0), 0);
    settle();
    pass(SEC);
    assert_int_equal(lnet_conf_get(node)->ngws, 2);
    assert_int_equal(node->ngw_nis, 3);
    assert_int_equal(count(30, "10.6.0.1@tcp6", A, NULL), 10);
    gw_ni(A)->pairs_down = gw_ni(C)->pairs_down = UINT64_MAX;
    assert_int_equal(count(10, TO, B, NULL), 10);
    assert_int_equal(count(10, "10.6.0.1@tcp6", B, NULL), 10);
    gw_ni(A)->pairs_down = gw_ni(C)->pairs_down = 0;
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 6), &gone, &err), 0);
    settle();
    assert_int_equal(count(30, TO, B, NULL), 10);
    node_down();
}

/* The gateway loses a NID, and gets it again. */
static void test_nids_change(void **state)
{
    struct lnet_nid a = N(A), b = N(B);
    struct lnet_peer_ni *p;

    rails_up(true);
    p = peer_find(&b);
    assert_ptr_equal(p->gw_ni, gw_ni(B));
    assert_int_equal(peer_table_del_nid(node->peers, &a, &b), 0);
    pass(SEC);
    assert_null(lnet_gw_ni_find(node, &b));
    assert_null(p->gw_ni);
    assert_int_equal(node->ngw_nis, 2);
    assert_int_equal(count(10, TO, A, NULL), 5);
    peer_add(A, B);
    pass(SEC);
    assert_ptr_equal(p->gw_ni, gw_ni(B));
    assert_int_equal(count(30, TO, B, NULL), 10);
    node_down();
}

/* ---- who may send through it ---- */

/* §12.1: sources behind a gateway come from any of its NIDs. */
static void test_source_check(void **state)
{
    struct lnet_nid to = N("10.0.0.9@tcp"), src = N("10.5.0.9@tcp5");

    rails_up(true);
    arrive(ib0, N(C), hdr_of(LNET_MSG_PUT, src, to, 10));
    settle();
    assert_int_equal(drops_sum(), 0);
    arrive(ib0, N("10.2.0.104@o2ib"), hdr_of(LNET_MSG_PUT, N("10.6.0.9@tcp6"), to, 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    node->timing.source_check = LNET_SOURCE_STRICT;
    arrive(ib0, N(C), hdr_of(LNET_MSG_PUT, src, to, 10));
    arrive(tcp1, N(B), hdr_of(LNET_MSG_PUT, src, to, 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    arrive(tcp1, N("10.1.0.104@tcp1"), hdr_of(LNET_MSG_PUT, src, to, 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 2);
    node_down();
}

/* ---- messages of this node ---- */

static struct lnet_nid own(const char *dest)
{
    struct lnet_nid d = N(dest), out;

    struct lnet_ni *src;

    ON(0, out = lnet_select_nid(node->shard[0], &d, &src));
    return out;
}

static struct peer_ni *ni_of(const char *text)
{
    struct lnet_nid nid = N(text);

    return peer_table_find_ni(node->peers, &nid);
}

/* What is sent to a NID that a peer merely lists goes to no other NID of that peer: any node can
 * list any NID, and would answer for another one. */
static void test_listed(void **state)
{
    struct lnet_ping_info info = {
        .features = LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY,
        .count = 2,
        .ni = {{N("10.0.0.66@tcp"), LNET_NI_UP}, {N("10.0.0.50@tcp"), LNET_NI_UP}}};
    struct lnet_nid to = info.ni[1].nid, got;
    struct peer *p;

    rails_up(false);
    p = peer_table_get(node->peers, &info.ni[0].nid);
    peer_table_hear(node->peers, p, &info, true);
    assert_ptr_equal(peer_table_merge(node->peers, p, &info, true), p);
    assert_int_equal(p->nnis, 2);
    for (unsigned i = 0; i < 4; i++) {
        got = own("10.0.0.50@tcp");
        assert_true(nid_same(&got, &to));
    }
    p->pins++; /* a gateway's goes to the gateway */
    got = own("10.0.0.50@tcp");
    assert_true(nid_same(&got, &info.ni[0].nid));
    p->pins--;
    ni_of("10.0.0.50@tcp")->answered = true;
    for (unsigned i = 0; i < 4; i++) { /* in turn */
        got = own("10.0.0.50@tcp");
        assert_true(nid_same(&got, &info.ni[1 - i % 2].nid));
    }
    node_down();
}

static void test_own(void **state)
{
    struct lnet_nid got, alive = N("10.1.0.50@tcp1");

    rails_up(false);
    peer_add("10.0.0.50@tcp", "10.0.0.50@tcp");
    peer_add("10.0.0.50@tcp", "10.1.0.50@tcp1");
    peer_add("10.0.0.50@tcp", "10.1.0.51@tcp1");
    node->shard[0]->ni_seq[tcp0->index] = ++node->shard[0]->seq;
    got = own("10.0.0.50@tcp");
    assert_int_equal(nid_net(&got), tcp1->net); /* neither peer net was used, tcp was */
    covers("7.2.6 local net sequence");
    got = own("10.1.0.50@tcp1");
    assert_int_equal(nid_net(&got), tcp0->net);
    covers("7.2.5 peer net sequence");
    got = own("10.0.0.50@tcp");
    assert_int_equal(nid_net(&got), tcp1->net);
    /* NIDs that are down, or did not answer, come last. */
    ni_of("10.1.0.51@tcp1")->status = LNET_NI_DOWN;
    ni_of("10.0.0.50@tcp")->silent_us = reactor_now_us();
    for (unsigned i = 0; i < 4; i++) {
        got = own("10.0.0.50@tcp");
        assert_true(nid_same(&got, &alive));
    }
    peer_add("10.5.0.60@tcp5", "10.5.0.60@tcp5");
    peer_add("10.5.0.60@tcp5", "10.6.0.60@tcp6");
    peer_add("10.5.0.60@tcp5", "10.8.0.60@tcp8"); /* no route */
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    assert_int_equal(route_add("tcp6", N(C), 1, 0), 0);
    settle();
    for (unsigned i = 0; i < 4; i++) {
        got = own("10.8.0.60@tcp8");
        assert_int_equal(nid_net(&got), LNET_NET(LNET_LND_SOCK, 5 + i % 2));
    }
    covers("7.5.3 remote net sequence");
    got = own("10.0.0.99@tcp"); /* not known */
    assert_int_equal(nid_net(&got), tcp0->net);
    node_down();
}

/* §7.6: an NI was used, too, if the message gave its source. */
static void test_given_counts(void **state)
{
    static const char dest[] = "10.1.0.77@tcp1";
    struct lnet_path path;

    rails_up(false);
    for (unsigned i = 0; i < 4; i++) {
        struct lnet_ni *given = i % 2 ? tcp1b : tcp1;

        sel_via(dest, given, LNET_NID_ANY);
        path = sel(dest);
        assert_ptr_not_equal(path.ni, given);
        sel_via(dest, path.ni, LNET_NID_ANY);
    }
    node_down();
}

static struct lnet_ping_info pinged;
static unsigned npinged;

static void on_ping(void *arg, int status, const struct lnet_ping_info *info)
{
    npinged++;
    if (info)
        pinged = *info;
}

static const struct sent *ping_of(const char *dest, const struct lnet_ni *from)
{
    struct lnet_nid d = N(dest);

    sent_clear();
    assert_int_equal(lnet_ping(node, &d, from ? &from->nid : NULL, 1000, on_ping, NULL), 0);
    settle();
    return loop.nsent ? sent_last(LNET_MSG_GET) : NULL;
}

static void test_cases(void **state)
{
    struct lnet_nid p = N("10.1.0.50@tcp1"), q = N("10.1.0.51@tcp1"), from = N("10.0.0.9@tcp");
    struct lnet_nid far = N(TO), a = N(A);
    const struct sent *s;
    struct lnet_path path;
    unsigned to_q = 0, by_b = 0;

    rails_up(false);
    peer_add("10.1.0.50@tcp1", "10.1.0.50@tcp1");
    peer_add("10.1.0.50@tcp1", "10.1.0.51@tcp1");
    assert_int_equal(route_add("tcp5", a, 1, 0), 0);
    settle();

    for (unsigned i = 0; i < 4; i++) {
        s = ping_of("10.1.0.50@tcp1", tcp1b);
        assert_true(nid_same(&s->hdr.dest_nid, &p) && s->ni == tcp1b);
    }
    covers("7.6 given, local");
    for (unsigned i = 0; i < 4; i++) {
        s = ping_of("10.1.0.50@tcp1", NULL);
        assert_true(nid_same(&s->hdr.src_nid, &s->ni->nid));
        assert_true(nid_same(&s->hdr.dest_nid, &s->to));
        to_q += nid_same(&s->hdr.dest_nid, &q);
        by_b += s->ni == tcp1b;
    }
    assert_int_equal(to_q, 2);
    assert_int_equal(by_b, 2);
    covers("7.6 any, MR");
    covers("7.2.7 then 7.1");
    s = ping_of(TO, tcp1b);
    assert_true(nid_same(&s->hdr.dest_nid, &far) && nid_same(&s->to, &a) && s->ni == tcp1b);
    covers("7.6 given, remote");
    gw_ni(A)->pairs_down = UINT64_MAX;
    path = sel_via(TO, tcp1b, a);
    assert_true(goes_to(&path, A) && path.ni == tcp1b);
    covers("7.6 given, remote: REPLY and ACK");
    gw_ni(A)->pairs_down = 0;
    s = ping_of(TO, NULL);
    assert_true(nid_same(&s->hdr.dest_nid, &far) && nid_same(&s->to, &a));
    covers("7.6 any, remote, non-MR");
    peer_add("10.5.0.1@tcp5", "10.5.0.1@tcp5");
    peer_add("10.5.0.1@tcp5", "10.5.0.2@tcp5");
    to_q = 0;
    for (unsigned i = 0; i < 4; i++) {
        s = ping_of(TO, NULL);
        to_q += nid_same(&s->hdr.dest_nid, &far);
        assert_true(nid_same(&s->to, &a));
    }
    assert_int_equal(to_q, 2);
    covers("7.5.4 then 7.3 and 7.4");

    sent_clear();
    for (unsigned i = 0; i < 4; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, p, 10));
        settle();
        s = sent_last(LNET_MSG_PUT);
        assert_true(nid_same(&s->hdr.dest_nid, &p) && nid_same(&s->hdr.src_nid, &from));
        by_b += s->ni == tcp1b;
    }
    assert_int_equal(by_b, 4);
    covers("7.6 any, local, non-MR: forwarded");
    covers("7.6 sequences and header");
    npinged = 0;
    assert_null(ping_of("0@lo", NULL));
    assert_int_equal(npinged, 1);
    covers("7.6 loopback");
    pass(2 * SEC);
    node_down();
}

/* ---- why ---- */

static struct lnet_why_answer said;

static void note(void *arg, const struct lnet_why_answer *answer)
{
    said = *answer;
}

static enum lnet_why pair_why(const struct lnet_ni *ni, const char *nid)
{
    struct lnet_nid n = N(nid);

    for (unsigned i = 0; i < said.nnis; i++)
        if (said.nis[i].index == ni->index && nid_same(&said.nis[i].peer_ni, &n))
            return said.nis[i].why;
    return LNET_WHY_COUNT;
}

static void ask(struct lnet_nid src)
{
    struct lnet_nid to = N(TO);

    assert_int_equal(lnet_why(node, &to, &src, note, NULL), 0);
    settle();
}

/* Each pair of an NI and a peer NI is named with the reason why it lost. */
static void test_why(void **state)
{
    rails_up(true);
    gw_ni(A)->tx_credits++;
    ask(LNET_NID_ANY);
    assert_int_equal(said.nnis, 5);
    assert_int_equal(pair_why(ib0, C), LNET_WHY_PEER_NI_CREDITS);
    assert_int_equal(pair_why(tcp1, B), LNET_WHY_PEER_NI_CREDITS);
    assert_true((pair_why(tcp1, A) == LNET_WHY_CHOSEN) != (pair_why(tcp1b, A) == LNET_WHY_CHOSEN));
    ni_credits_add(tcp1b, -1);
    ask(LNET_NID_ANY);
    assert_int_equal(pair_why(tcp1, A), LNET_WHY_CHOSEN);
    assert_int_equal(pair_why(tcp1b, A), LNET_WHY_NI_CREDITS);
    ni_credits_add(tcp1b, 1);
    gw_ni(A)->tx_credits--;
    gw_ni(A)->pairs_down = lnet_ni_bit(tcp1);
    gw_ni(B)->status_down = true;
    gw_ni(C)->ping_down_us = clock_us;
    ask(LNET_NID_ANY);
    assert_int_equal(pair_why(tcp1b, A), LNET_WHY_CHOSEN);
    assert_int_equal(pair_why(tcp1, A), LNET_WHY_PAIR_DOWN);
    assert_int_equal(pair_why(tcp1, B), LNET_WHY_PEER_NI_DOWN);
    assert_int_equal(pair_why(ib0, C), LNET_WHY_PEER_NI_DOWN);
    gw_ni(A)->pairs_down = 0;
    gw_ni(B)->status_down = false;
    gw_ni(C)->ping_down_us = 0;
    ask(tcp1->nid);
    assert_int_equal(pair_why(tcp1b, B), LNET_WHY_NOT_SOURCE);
    assert_int_equal(pair_why(ib0, C), LNET_WHY_NOT_SOURCE);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_best_ni),      LNET_TEST(test_credits_published),
    LNET_TEST(test_peer_nis),     LNET_TEST(test_routes),
    LNET_TEST(test_one_gateway),  LNET_TEST(test_nids_change),
    LNET_TEST(test_source_check), LNET_TEST(test_listed),
    LNET_TEST(test_own),          LNET_TEST(test_given_counts),
    LNET_TEST(test_cases),        LNET_TEST(test_why),
    cmocka_unit_test(test_table),
};

LNET_TESTS_MAIN("test-lnet-rails", tests)
