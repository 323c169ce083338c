/* SPDX-License-Identifier: BSD-3-Clause */
/* Discoveries of many peers: who gets a slot, and who waits. docs/architecture.md "Shares and
 * eviction". */
#include "test/unit/lnet_push_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

/* Many nodes, more than PUSHes may be under way, some of them gone. */
static void test_push_many(void **state)
{
    struct lnet_node_opts o = opts_default();
    unsigned i, n = 3 * DISCOVERIES, dead = 0;

    o.max_peers = 1000;
    node_up(o);
    for (i = 0; i < n; i++)
        befriend(tcp0, peer_on(i % nreactors, 0, "tcp", i / nreactors));
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES);
    for (i = 0; i < loop.nsent; i++) {
        if (loop.sent[i].hdr.type != LNET_MSG_PUT)
            continue;
        if (i % 16 == 15)
            dead++;
        else
            ack_push(&loop.sent[i]);
    }
    pass(31 * SEC);
    for (; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push(&loop.sent[i]);
    assert_int_equal(sent_count(LNET_MSG_PUT), n); /* each once */
    assert_true(dead > 0);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), dead);
    /* those that did not answer are told once more */
    sent_clear();
    ON(0, lnet_ni_link(ib0, false));
    settle();
    for (i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push(&loop.sent[i]);
    assert_int_equal(sent_count(LNET_MSG_PUT), n);
    node_down();
}

/* 10,000 peers of one prefix: each has a place, and each gets one PUSH of a change. */
static void test_push_10000(void **state)
{
    struct lnet_node_opts o = opts_default();
    const unsigned n = 10000;
    unsigned pushed = 0;
    char text[32];

    o.max_peers = n;
    node_up(o);
    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "10.0.%u.%u@tcp", 1 + i / 250, 1 + i % 250);
        befriend(tcp0, N(text));
    }
    assert_int_equal(node->peers->npeers, n);
    assert_int_equal(node->peers->nnis_unanswered, 0);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    while (sent_count(LNET_MSG_PUT) > 0) {
        struct sent put[DISCOVERIES];
        unsigned here = 0;

        assert_in_range(loop.nsent, 1, DISCOVERIES);
        for (unsigned i = 0; i < loop.nsent; i++)
            put[here++] = loop.sent[i];
        pushed += here;
        sent_clear();
        for (unsigned i = 0; i < here; i++)
            ack_push_only(&put[i]);
    }
    assert_int_equal(pushed, n);
    printf("%u peers: %zu KiB\n", n, lnet_peers_bytes(&node->opts) / 1024);
    node_down();
}

/* Many made-up nodes behind a gateway fill the table and acknowledge nothing: those who do keep
 * their place, and hear of each change at once. */
static void test_push_made_up(void **state)
{
    struct lnet_node_opts o = opts_default();
    unsigned changes, told;
    struct lnet_nid gw;
    char text[32];

    o.max_peers = 200;
    node_up(o);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    for (unsigned i = 0; i < 8; i++)
        befriend(tcp0, peer_on(i % nreactors, 0, "tcp", 1 + i / nreactors));
    sent_clear();
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "10.9.%u.%u@tcp9", i / 250, 1 + i % 250);
        push_through(tcp0, gw, N(text));
    }
    assert_int_equal(node->peers->npeers - node->peers->npinned_peers, 200);
    assert_in_range(sent_count(LNET_MSG_PUT), DISCOVERIES_NEW / 2, DISCOVERIES_NEW / 2 + 1);
    push_from(tcp0, N("10.0.0.250@tcp"), 0x1e);
    settle();
    assert_push(sent_last(LNET_MSG_PUT), N("10.0.0.250@tcp")); /* waits for none of them */
    for (changes = 0; changes < 3; changes++) {
        sent_clear();
        ON(0, lnet_ni_link(tcp1, changes % 2));
        settle();
        told = 0;
        for (unsigned i = 0; i < loop.nsent; i++)
            if (loop.sent[i].hdr.type == LNET_MSG_PUT && !nid_same(&loop.sent[i].to, &gw)) {
                ack_push(&loop.sent[i]);
                told++;
            }
        assert_int_equal(told, 8);
    }
    node_down();
}

/* ---- slots ---- */

static struct lnet_nid nid_at(const char *format, unsigned i)
{
    char text[64];

    snprintf(text, sizeof(text), format, i);
    return N(text);
}

/* Returns whether a PUSH was sent to the NID. */
static bool is_pushed_to(struct lnet_nid nid)
{
    for (unsigned i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT && nid_same(&loop.sent[i].hdr.dest_nid, &nid))
            return true;
    return false;
}

/* An honest node pushes. Returns after how many seconds it is pushed to. */
static unsigned wait_of_honest(struct lnet_nid nid)
{
    unsigned s = 0;

    push_from(tcp0, nid, 0x1e);
    for (settle(); !is_pushed_to(nid); s++) {
        assert_true(s < 100);
        pass(SEC);
    }
    return s;
}

static struct lnet_node_opts opts_many(void)
{
    struct lnet_node_opts o = opts_default();

    o.max_peers = 1000;
    return o;
}

static void assert_no_slot_in_use(void)
{
    const struct share *s = &node->ping->share;

    assert_int_equal(node->ping->nbusy, 0);
    assert_int_equal(node->ping->nnew, 0);
    for (unsigned i = 0; i <= s->mask; i++)
        assert_true(LIST_EMPTY(&s->bucket[i]));
}

/* Nodes of one /64 push and acknowledge nothing: they get half of the slots for new peers. */
static void test_slots_of_prefix(void **state)
{
    node_up(opts_many());
    for (unsigned i = 1; i <= 300; i++)
        push_from(tcp0, nid_at("fd00:bad::%x@tcp", i), 0x1e);
    settle();
    assert_in_range(sent_count(LNET_MSG_PUT), DISCOVERIES_NEW / 2, DISCOVERIES_NEW / 2 + 1);
    assert_int_equal(wait_of_honest(N("10.0.0.200@tcp")), 0);
    /* An honest node of the same /64 waits for others of it that began first. */
    assert_in_range(wait_of_honest(N("fd00:bad::ffff@tcp")), 1, 15);
    node_down();
}

/* The same with nodes that answered before, and have all slots. */
static void test_slots_of_known_prefix(void **state)
{
    node_up(opts_many());
    for (unsigned i = 1; i <= 150; i++)
        befriend(tcp0, nid_at("fd00:bad::%x@tcp", i));
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_in_range(sent_count(LNET_MSG_PUT), DISCOVERIES / 2, DISCOVERIES / 2 + 1);
    assert_int_equal(wait_of_honest(N("10.0.0.200@tcp")), 0);
    node_down();
}

/* Nodes answer a ping and do not acknowledge the PUSH that follows. 64 leave slots for others. Of
 * more those that have begun first are ended while others wait. */
static void test_slots_of_nids(void **state)
{
    const unsigned n = DISCOVERIES_NEW + 64;

    node_up(opts_many());
    for (unsigned i = 1; i <= 64; i++)
        push_list(nid_at("10.0.1.%u@tcp", i), "10.0.0.250@tcp");
    assert_int_equal(sent_count(LNET_MSG_GET), 64);
    answer_pings(0);
    assert_int_equal(sent_count(LNET_MSG_PUT), 64);
    assert_int_equal(wait_of_honest(N("10.0.0.200@tcp")), 0);
    ack_push(sent_last(LNET_MSG_PUT));
    for (unsigned i = 65; i <= n; i++)
        push_from(tcp0, nid_at("10.0.1.%u@tcp", i), 0x1e);
    settle();
    assert_in_range(wait_of_honest(N("10.0.0.201@tcp")), 2, 3);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(62 * SEC); /* nothing is heard on some NIs, which those who failed once are told */
    assert_no_slot_in_use();
    node_down();
}

/* While no peer waits, a discovery has its whole time. */
static void test_slots_are_kept(void **state)
{
    node_up(opts_many());
    push_from(tcp0, N("10.0.1.1@tcp"), 0x1e);
    settle();
    pass(20 * SEC);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(peer_of("10.0.1.1@tcp")->discovery.error, 0);
    assert_int_equal(peer_of("10.0.1.1@tcp")->discovery.acked_seqno, 4);
    node_down();
}

/* A NID that has a slot pushes through a gateway: no account holds what it did not take. */
static void test_slot_of_two_prefixes(void **state)
{
    struct lnet_nid gw, from = N("10.0.0.200@tcp");

    node_up(opts_default());
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    settle();
    loop.hold_send = true;
    push_through(tcp0, from, from);
    loop.hold_send = false;
    assert_int_equal(node->ping->nbusy, 1);
    ON(0, peer_table_del(node->peers, peer_of("10.0.0.200@tcp")));
    push_through(tcp0, gw, from);
    assert_int_equal(node->ping->nbusy, 2);
    send_end_all(ok);
    settle();
    pass(31 * SEC);
    assert_no_slot_in_use();
    node_down();
}

/* The LND cannot send to 64 nodes, and releases nothing. */
static void test_slots_held_by_lnd(void **state)
{
    node_up(opts_many());
    loop.hold_send = true;
    for (unsigned i = 1; i <= 64; i++)
        push_from(tcp0, nid_at("10.0.1.%u@tcp", i), 0x1e);
    settle();
    loop.hold_send = false;
    assert_int_equal(wait_of_honest(N("10.0.0.200@tcp")), 0);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(31 * SEC);
    assert_int_equal(node->ping->nbusy, 64);
    send_end_all(ok);
    settle();
    assert_no_slot_in_use();
    node_down();
}

/* A peer that failed once shares slots with new peers for ten minutes, although it answers. */
static void test_slow_peer(void **state)
{
    struct lnet_nid from = N("10.0.0.200@tcp");
    struct lnet_node_opts opts = opts_many();

    opts.routing = false; /* no NI ages */
    node_up(opts);
    befriend(tcp0, from);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    pass(31 * SEC);
    assert_true(peer_of("10.0.0.200@tcp")->discovery.error < 0);
    befriend(tcp0, from);
    assert_true(peer_of("10.0.0.200@tcp")->answered);
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < DISCOVERIES_NEW; i++)
            push_from(tcp0, nid_at(turn ? "10.0.2.%u@tcp" : "10.0.1.%u@tcp", i + 1), 0x1e);
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES_NEW);
        ON(0, lnet_ni_link(ib0, turn));
        settle();
        assert_int_equal(is_pushed_to(from), turn);
        pass(3 * SEC);
        assert_true(is_pushed_to(from));
        ack_push(sent_last(LNET_MSG_PUT));
        pass(600 * SEC);
        sent_clear();
    }
    node_down();
}

/* Peers that answered and new ones take turns when both wait. */
static void test_turns(void **state)
{
    unsigned first = 0;

    node_up(opts_many());
    for (unsigned i = 0; i < DISCOVERIES + 6; i++)
        befriend(tcp0, nid_at("10.0.1.%u@tcp", i + 1));
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES);
    for (unsigned i = 0; i < 6; i++)
        push_from(tcp0, nid_at("10.0.2.%u@tcp", i + 1), 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES);
    for (unsigned i = 0; i < 12; i++) {
        while (loop.sent[first].hdr.type != LNET_MSG_PUT)
            first++;
        ack_push_only(&loop.sent[first++]);
        assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES + i + 1);
        assert_int_equal(peer_table_find(node->peers, &sent_last(LNET_MSG_PUT)->to)->answered,
                         i % 2);
    }
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_push_many),
    LNET_TEST(test_push_10000),
    LNET_TEST(test_push_made_up),
    LNET_TEST(test_slots_of_prefix),
    LNET_TEST(test_slots_of_known_prefix),
    LNET_TEST(test_slots_of_nids),
    LNET_TEST(test_slots_are_kept),
    LNET_TEST(test_slot_of_two_prefixes),
    LNET_TEST(test_slots_held_by_lnd),
    LNET_TEST(test_slow_peer),
    LNET_TEST(test_turns),
};

LNET_TESTS_MAIN("test_lnet_slots", tests)
