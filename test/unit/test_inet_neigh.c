/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbours over ARP: states of RFC 4861 §7.3.2, attacks, floods, and malformed packets. */
#include "inet_neigh_test.h"

/* ---- finding ---- */

static void test_found(void **state)
{
    quiet_inet();
    for (unsigned i = 1; i <= 3; i++)
        send_tcp(0, "10.0.0.1", "10.0.0.2", i);
    expect_question("10.0.0.2", all_mac);
    expect_nothing();
    assert_string_equal(state_of("10.0.0.2"), "incomplete");
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    for (unsigned i = 1; i <= 3; i++)
        expect_tcp(peer_mac, i);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 9);
    expect_tcp(peer_mac, 9);
    expect_nothing();
    end_inet();
}

static void test_no_answer(void **state)
{
    quiet_inet();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    for (unsigned i = 0; i < 3; i++) {
        expect_question("10.0.0.2", all_mac);
        expect_nothing();
        pass_ms(1010);
    }
    expect_nothing();
    assert_string_equal(state_of("10.0.0.2"), "failed");
    assert_int_equal(drops(PKT_DROP_NEIGH_UNKNOWN), 1);
    /* TCP is told which segment it was. */
    assert_int_equal(above.errors, 1);
    assert_int_equal(above.error[0].what, INET_ICMP_UNREACHABLE);
    assert_int_equal(above.error[0].lport, 988);
    assert_int_equal(above.error[0].rport, 1023);
    assert_int_equal(above.error[0].seq, 4711);
    assert_memory_equal(above.error[0].remote.b, addr("10.0.0.2").b, 16);
    /* It is asked for again when there is something to send. */
    pass_ms(100);
    expect_nothing();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
    expect_question("10.0.0.2", all_mac);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    expect_tcp(peer_mac, 2);
    end_inet();
}

static void test_only_some_wait(void **state)
{
    quiet_inet();
    for (unsigned i = 0; i < INET_NEIGH_HELD + 2; i++)
        send_tcp(0, "10.0.0.1", "10.0.0.2", i);
    assert_int_equal(drops(PKT_DROP_NEIGH_HELD), 2);
    paper_clear(&paper);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    for (unsigned i = 2; i < INET_NEIGH_HELD + 2; i++)
        expect_tcp(peer_mac, i);
    expect_nothing();
    end_inet();
}

static void test_gateway(void **state)
{
    quiet_inet();
    send_tcp(0, "10.0.0.1", "192.168.7.7", 1);
    expect_question("10.0.0.254", all_mac);
    hear(2, third_mac, "10.0.0.254", "10.0.0.1", false);
    expect_tcp(third_mac, 1);
    assert_string_equal(state_of("192.168.7.7"), "none");
    end_inet();
}

/* ---- keeping ---- */

static void test_asked_again(void **state)
{
    quiet_inet();
    know_peer();
    pass_ms(46000); /* REACHABLE_TIME is at most 45 s */
    expect_nothing();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_tcp(peer_mac, 1);
    assert_string_equal(state_of("10.0.0.2"), "delay");
    pass_ms(4900);
    expect_nothing();
    pass_ms(200);
    expect_question("10.0.0.2", peer_mac);
    assert_string_equal(state_of("10.0.0.2"), "probe");
    send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
    expect_tcp(peer_mac, 2);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    end_inet();
}

/* Three questions to it alone, then three to all, before it is given up. */
static void test_gone(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;

    quiet_inet();
    know_peer();
    ON(0, assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0));
    pass_ms(46000);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_tcp(peer_mac, 1);
    pass_ms(5010);
    for (unsigned i = 0; i < 3; i++) {
        expect_question("10.0.0.2", peer_mac);
        expect_nothing();
        ON(0, assert_true(inet_path_valid(inet_shard_of(inet, 0), &path)));
        pass_ms(1010);
    }
    assert_int_equal(paths_renewed(), 1);
    ON(0, assert_false(inet_path_valid(inet_shard_of(inet, 0), &path)));
    for (unsigned i = 0; i < 3; i++) {
        expect_question("10.0.0.2", all_mac);
        pass_ms(1010);
    }
    assert_string_equal(state_of("10.0.0.2"), "failed");
    end_inet();
}

static void test_confirmed_by_tcp(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;

    quiet_inet();
    know_peer();
    ON(0, assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0));
    for (unsigned i = 0; i < 20; i++) {
        pass_ms(10000);
        send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
        expect_tcp(peer_mac, 1);
        ON(0, inet_path_confirm(inet_shard_of(inet, 0), &path));
        assert_string_equal(state_of("10.0.0.2"), "reachable");
    }
    expect_nothing();
    end_inet();
}

static void test_unused_is_given_back(void **state)
{
    quiet_inet();
    know_peer();
    pass_ms(500000);
    assert_string_equal(state_of("10.0.0.2"), "stale");
    pass_ms(170000);
    assert_string_equal(state_of("10.0.0.2"), "none");
    assert_int_equal(row_count(), 0);
    end_inet();
}

/* ---- attacks ---- */

static void test_nobody_makes_entries(void **state)
{
    quiet_inet();
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    hear(1, peer_mac, "10.0.0.2", "10.0.0.2", true);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.2", true);
    hear(1, peer_mac, "10.0.0.2", "10.0.0.1", true);
    assert_int_equal(row_count(), 0);
    end_inet();
}

static void test_question_is_answered(void **state)
{
    struct frame f;

    quiet_inet();
    hear(1, peer_mac, "10.0.0.2", "10.0.0.1", true);
    assert_true(leave(&f));
    assert_memory_equal(f.b, peer_mac, 6);
    assert_memory_equal(f.b + 6, our_mac, 6);
    assert_int_equal(get16(f.b + 20), 2);
    assert_memory_equal(f.b + 22, our_mac, 6);
    assert_memory_equal(f.b + 28, addr("10.0.0.1").b + 12, 4);
    assert_memory_equal(f.b + 32, peer_mac, 6);
    assert_memory_equal(f.b + 38, addr("10.0.0.2").b + 12, 4);
    hear(1, peer_mac, "10.0.0.2", "10.0.0.3", true);
    expect_nothing();
    end_inet();
}

/* Of all ways to say that a living neighbour is elsewhere none works. */
static void test_forged(void **state)
{
    struct frame f;

    quiet_inet();
    know_peer();
    for (unsigned i = 0; i < 4; i++) {
        if (i == 0)
            hear(2, third_mac, "10.0.0.2", "10.0.0.1", false);
        else if (i == 1)
            hear(1, third_mac, "10.0.0.2", "10.0.0.2", true);
        else if (i == 2)
            hear(2, third_mac, "10.0.0.2", "10.0.0.2", true);
        else
            hear(1, third_mac, "10.0.0.2", "10.0.0.1", true);
        if (i == 3) {
            assert_true(leave(&f)); /* who asks is answered, at its own place */
            assert_memory_equal(f.b, third_mac, 6);
        }
        expect_question("10.0.0.2", peer_mac);
        send_tcp(0, "10.0.0.1", "10.0.0.2", 7);
        expect_tcp(peer_mac, 7);
        /* It insists, and the true one answers. */
        for (unsigned k = 0; k < 100; k++)
            hear(2, third_mac, "10.0.0.2", "10.0.0.1", false);
        expect_nothing();
        hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
        assert_string_equal(state_of("10.0.0.2"), "reachable");
        pass_ms(2000);
        expect_nothing();
        send_tcp(0, "10.0.0.1", "10.0.0.2", 8);
        expect_tcp(peer_mac, 8);
    }
    end_inet();
}

/* An address that moves is followed within a second or so. */
static void test_failover(void **state)
{
    quiet_inet();
    know_peer();
    hear(1, third_mac, "10.0.0.2", "10.0.0.2", true);
    expect_question("10.0.0.2", peer_mac);
    pass_ms(510);
    expect_question("10.0.0.2", peer_mac);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_tcp(peer_mac, 1);
    pass_ms(510);
    expect_question("10.0.0.2", third_mac);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
    expect_tcp(third_mac, 2);
    hear(2, third_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    end_inet();
}

/* While the claim is looked into, acknowledgements do not decide it. */
static void test_tcp_does_not_decide(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;

    quiet_inet();
    know_peer();
    ON(0, assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0));
    hear(1, third_mac, "10.0.0.2", "10.0.0.2", true);
    ON(0, inet_path_confirm(inet_shard_of(inet, 0), &path));
    assert_string_equal(state_of("10.0.0.2"), "probe");
    pass_ms(1010);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
    expect_tcp(third_mac, 2);
    end_inet();
}

/* 100 000 addresses of a net that are not there are to be answered, 10 000 in a second. */
static unsigned flood(void (*one)(const struct inet_addr *from))
{
    struct inet_addr from = addr("10.1.0.0");
    struct frame f;
    unsigned asked = 0;

    for (unsigned i = 0; i < 100000; i++) {
        from.b[13] = (uint8_t)(1 + (i >> 16));
        from.b[14] = (uint8_t)(i >> 8);
        from.b[15] = (uint8_t)i;
        one(&from);
        if (i % 100 == 99)
            pass_ms(10);
        while (leave(&f))
            asked++;
    }
    return asked;
}

static void flood_tcp(const struct inet_addr *from)
{
    send_to(from, false);
}

static void flood_own(const struct inet_addr *to)
{
    send_to(to, true);
}

static void flood_ping(const struct inet_addr *from)
{
    char text[INET_TEXT_MAX];
    struct frame f;

    make_ping4(&f, inet_text(from, text), "10.0.0.1", 8);
    arrive_on(&paper, 0, &f);
}

static void flooded_inet(void)
{
    struct inet_prefix net = prefix("10.0.0.1", 8);
    struct inet_if_opts opts = {.name = "eth0", .port = &paper.port, .addr = &net, .addrs = 1};

    begin_inet();
    add_if(&opts);
    start_inet();
    pass_ms(2100);
    paper_clear(&paper);
    know_peer();
    confirm_peer();
}

static void test_flood_by_tcp(void **state)
{
    const struct inet_shard *sh;
    unsigned asked;

    flooded_inet();
    sh = inet_shard_of(inet, 0);
    asked = flood(flood_tcp);
    assert_true(sh->neighs <= INET_NEIGH_MIN / 2 + 1);
    assert_true(sh->held <= 1024);
    /* Ten seconds: a burst, and so many a second. */
    assert_in_range(asked, 10 * 512, 11 * 512);
    assert_true(drops(PKT_DROP_NEIGH_FULL) > 0);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    send_tcp(0, "10.0.0.1", "10.0.0.2", 5);
    expect_tcp(peer_mac, 5);
    /* Somebody new that asked for us is answered at once, in the midst of it. */
    hear(1, third_mac, "10.0.0.8", "10.0.0.1", true);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.8", 6);
    expect_question("10.0.0.8", third_mac);
    expect_question("10.0.0.8", all_mac);
    expect_tcp(third_mac, 6);
    /* Anybody else is found, at the latest when it is over. */
    pass_ms(2000);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.9", 6);
    expect_question("10.0.0.9", all_mac);
    hear(2, third_mac, "10.0.0.9", "10.0.0.1", false);
    expect_tcp(third_mac, 6);
    pass_ms(130000);
    assert_true(row_count() <= 3);
    end_inet();
}

/* Packets for one class of neighbours flood. One of the other class is asked for at once, and one
 * of our own gets its packet. */
static void reserve(bool own)
{
    struct inet_addr to = addr("10.0.0.9");
    struct inet_shard *sh;

    flooded_inet();
    sh = inet_shard_of(inet, 0);
    flood(own ? flood_tcp : flood_own);
    assert_true(sh->unresolved[0] + sh->unresolved[1] <= INET_NEIGH_MIN / 2);
    assert_true(drops(PKT_DROP_NEIGH_FULL) > 0);
    send_to(&to, own);
    settle();
    expect_question("10.0.0.9", all_mac);
    hear(2, third_mac, "10.0.0.9", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.9"), "reachable");
    if (own)
        expect_tcp(third_mac, 0);
    expect_nothing();
}

static void test_reserve(void **state)
{
    const struct neigh *n;
    char text[INET_TEXT_MAX];

    reserve(false);
    end_inet();
    reserve(true);
    /* The same for one that is looked for already, for an answer. */
    n = TAILQ_LAST(&inet_shard_of(inet, 0)->unresolved_list[0], neigh_list);
    inet_text(&n->addr, text);
    flood_own(&n->addr);
    settle();
    expect_question(text, all_mac);
    hear(2, third_mac, text, "10.0.0.1", false);
    expect_tcp(third_mac, 0);
    end_inet();
}

#define STATIONS 12000u

/* So many stations are sent to, 400 in a second, and answer. Returns how many of them are known. */
static unsigned many_stations(unsigned room)
{
    struct inet_addr to = addr("10.1.0.0");
    char text[INET_TEXT_MAX];
    unsigned known;

    test_neighbours = room;
    flooded_inet();
    test_neighbours = 0;
    for (unsigned i = 0; i < STATIONS; i++) {
        to.b[14] = (uint8_t)(i >> 8);
        to.b[15] = (uint8_t)i;
        flood_tcp(&to);
        hear(2, third_mac, inet_text(&to, text), "10.0.0.1", false);
        if (i % 4 == 3)
            pass_ms(10);
        if (i % 64 == 63)
            paper_clear(&paper);
    }
    assert_int_equal(drops(PKT_DROP_NEIGH_UNKNOWN) + drops(PKT_DROP_NEIGH_HELD), 0);
    known = row_count();
    assert_int_equal(inet_shard_of(inet, 0)->neighs, known);
    assert_string_equal(state_of("10.1.46.223"), "reachable"); /* the last one */
    return known;
}

/* The table has as much room as it was made with. When it is full, one that TCP has heard from
 * stays, and of others those that are used. */
static void test_room(void **state)
{
    /* One is there before them. */
    assert_int_equal(many_stations(0), INET_NEIGH_MIN);
    assert_int_equal(drops(PKT_DROP_NEIGH_FULL), 0);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    end_inet();
    assert_int_equal(many_stations(STATIONS + 1), STATIONS + 1);
    assert_int_equal(drops(PKT_DROP_NEIGH_FULL), 0);
    assert_string_equal(state_of("10.1.0.1"), "reachable");
    end_inet();
    test_neighbours = UINT_MAX;
    flooded_inet();
    test_neighbours = 0;
    assert_int_equal(inet_shard_of(inet, 0)->neigh_max, INET_NEIGH_MAX);
    assert_true(inet_memory(1, UINT_MAX) - inet_memory(1, 0) >=
                (INET_NEIGH_MAX - INET_NEIGH_MIN) * sizeof(struct neigh));
    end_inet();
}

/* Stations of one subnet are spread, whichever of their octets is their own. */
static void test_hash(void **state)
{
    static const struct {
        const char *net;
        unsigned octet; /* of two: this and the next */
    } rows[] = {{"10.1.0.0", 14}, {"10.0.0.7", 13},     {"0.0.3.7", 12},
                {"fd00::", 14},   {"fd00::1:0:0:1", 6}, {"fe80::1", 8}};

    for (unsigned row = 0; row < RTE_DIM(rows); row++) {
        static uint16_t load[INET_NEIGH_MIN];
        struct inet_addr a = addr(rows[row].net);
        unsigned longest = 0;

        memset(load, 0, sizeof(load));
        for (unsigned i = 0; i < INET_NEIGH_MIN; i++) {
            a.b[rows[row].octet] = (uint8_t)(i >> 8);
            a.b[rows[row].octet + 1] = (uint8_t)i;
            longest =
                max(longest, (unsigned)++load[inet_hash(&a, 0x1234567 + row) % INET_NEIGH_MIN]);
        }
        /* Of as many balls as bins: 7 or 8. */
        assert_in_range(longest, 1, 12);
    }
}

/* Answers to echo requests do not take the place of TCP's neighbours. */
static void test_flood_by_echo(void **state)
{
    const struct inet_shard *sh;

    flooded_inet();
    sh = inet_shard_of(inet, 0);
    flood(flood_ping);
    assert_true(sh->neighs <= 1 + 64 + 11 * 64);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.9", 6);
    expect_question("10.0.0.9", all_mac);
    end_inet();
}

/* ---- malformed ---- */

static void test_malformed(void **state)
{
    static const struct {
        unsigned at;
        uint8_t value;
    } rows[] = {
        {14, 1},   {15, 6},   {16, 0x86}, {17, 1},   {18, 5},   {18, 7}, {18, 0}, {19, 3},
        {19, 16},  {20, 1},   {21, 0},    {21, 3},   {21, 255}, {22, 3}, /* sender's MAC of a group
                                                                          */
        {28, 224}, /* sender's address of a group */
        {28, 127}, {28, 255}, {38, 224},  {38, 127}, {38, 0},
    };
    static const uint8_t zeros[6];
    struct frame f, g;

    quiet_inet();
    make_arp(&f, all_mac, 1, peer_mac, "10.0.0.2", NULL, "10.0.0.1");
    for (unsigned len = 14; len < f.len; len++) {
        g = f;
        g.len = len;
        dropped(&g, PKT_DROP_ETH_SHORT);
    }
    for (unsigned i = 0; i < RTE_DIM(rows); i++) {
        g = f;
        g.b[rows[i].at] = rows[i].value;
        dropped(&g, PKT_DROP_ARP_BAD);
    }
    g = f;
    memcpy(g.b + 22, zeros, 6);
    dropped(&g, PKT_DROP_ARP_BAD);
    g = f;
    memcpy(g.b + 22, our_mac, 6);
    dropped(&g, PKT_DROP_ARP_BAD);
    assert_int_equal(paper.nout, 0);
    put_fill(&f, 18); /* as it is on the wire */
    not_dropped(&f);
    assert_int_equal(paper.nout, 1);
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_only_some_wait),
        cmocka_unit_test(test_gateway),
        cmocka_unit_test(test_asked_again),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_confirmed_by_tcp),
        cmocka_unit_test(test_unused_is_given_back),
        cmocka_unit_test(test_nobody_makes_entries),
        cmocka_unit_test(test_question_is_answered),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_failover),
        cmocka_unit_test(test_tcp_does_not_decide),
        cmocka_unit_test(test_flood_by_tcp),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_flood_by_echo),
        cmocka_unit_test(test_malformed),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
