/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that routers and switches are told of: RFC 3810, RFC 2710. */
#include "inet_test.h"

#define ALERT 54 /* offset of the hop-by-hop header, and of what follows it */
#define ICMP  62

static struct inet_addr link_local;

static struct inet_addr group_of(const struct inet_addr *a)
{
    struct inet_addr group = addr("ff02::1:ff00:0");

    memcpy(group.b + 13, a->b + 13, 3);
    return group;
}

/* An interface whose groups were told; each of its two addresses has one. */
static struct inet_if *begin(void)
{
    struct inet_if *ifp = quiet_inet();
    struct inet_prefix net;

    for (unsigned i = 0; inet_if_addr(ifp, i, &net); i++)
        if (net.addr.b[0] == 0xfe)
            link_local = net.addr;
    return ifp;
}

/* A frame of ours is one of MLD: headers, checksum, length. */
static void check_frame(const struct frame *f, unsigned size, const char *to)
{
    static const uint8_t alert[8] = {58, 0, 5, 2, 0, 0, 1, 0};
    struct inet_addr group = addr(to);
    uint8_t mac[6] = {0x33, 0x33, group.b[12], group.b[13], group.b[14], group.b[15]};

    assert_int_equal(f->len, ICMP + size);
    assert_memory_equal(f->b, mac, 6);
    assert_memory_equal(f->b + 6, our_mac, 6);
    assert_int_equal(get16(f->b + 12), 0x86dd);
    assert_int_equal(get16(f->b + 18), 8 + size);
    assert_int_equal(f->b[20], 0); /* hop-by-hop */
    assert_int_equal(f->b[21], 1); /* hop limit */
    assert_memory_equal(f->b + 38, group.b, 16);
    assert_memory_equal(f->b + ALERT, alert, 8);
    assert_true(icmp_right(f, ICMP));
}

static bool is_mld(const struct frame *f)
{
    return get16(f->b + 12) == 0x86dd && f->b[20] == 0;
}

/* The next of MLD among what went out; false: none. */
static bool next_report(struct frame *f)
{
    while (leave(f))
        if (is_mld(f))
            return true;
    return false;
}

/* A report with records of that kind for both groups, sent from there. */
static void expect_report(unsigned kind, const struct inet_addr *from)
{
    struct inet_addr other = addr("fd00::1"), want[2];
    struct frame f;
    unsigned found = 0;

    if (!next_report(&f))
        fail_msg("nothing was reported");
    check_frame(&f, 8 + 2 * 20, "ff02::16");
    assert_memory_equal(f.b + 22, from->b, 16);
    assert_int_equal(f.b[ICMP], 143);
    assert_int_equal(get16(f.b + ICMP + 6), 2);
    want[0] = group_of(&link_local);
    want[1] = group_of(&other);
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *record = f.b + ICMP + 8 + i * 20;

        assert_int_equal(record[0], kind);
        assert_int_equal(record[1], 0);
        assert_int_equal(get16(record + 2), 0);
        for (unsigned k = 0; k < 2; k++)
            found += memcmp(record + 4, want[k].b, 16) == 0 ? 1u << k : 0;
    }
    assert_int_equal(found, 3);
}

static void expect_none(void)
{
    struct frame f;

    assert_false(next_report(&f));
}

/* ---- told without being asked ---- */

static void test_at_the_start(void **state)
{
    static const struct inet_addr none;
    struct inet_if *ifp = usual_inet(INET_DAD_MS);
    struct inet_prefix net;
    struct frame f;
    unsigned n;

    for (unsigned i = 0; inet_if_addr(ifp, i, &net); i++)
        if (net.addr.b[0] == 0xfe)
            link_local = net.addr;
    /* Before any question, and from nowhere while the address is being checked. */
    assert_true(leave(&f));
    assert_true(is_mld(&f));
    assert_memory_equal(f.b + 22, none.b, 16);
    pass_ms(1010);
    expect_report(4, &none);
    expect_none();
    pass_ms(600);
    expect_report(4, &link_local); /* once it is ours, again */
    pass_ms(1010);
    expect_report(4, &link_local);
    pass_ms(5000);
    expect_none();
    /* The link comes back: it may be another switch. */
    paper.link = false;
    pass_ms(110);
    expect_none();
    paper.link = true;
    pass_ms(1200);
    for (n = 0; next_report(&f); n++)
        assert_int_equal(f.b[ICMP + 8], 4);
    assert_int_equal(n, 2);
    end_inet();
}

/* Without IPv6 there is nothing to tell. */
static void test_ipv4_alone(void **state)
{
    struct inet_prefix net = prefix("10.0.0.1", 24);
    struct inet_if_opts opts = {.name = "eth0", .port = &paper.port, .addr = &net, .addrs = 1};

    begin_inet();
    add_if(&opts);
    start_inet();
    pass_ms(3000);
    expect_none();
    end_inet();
}

/* Many addresses: each group once, no more in a report than fit. */
static void test_many(void **state)
{
    struct inet_prefix nets[INET_ADDR_MAX];
    struct inet_if_opts opts = {
        .name = "eth0", .port = &paper.port, .addr = nets, .addrs = INET_ADDR_MAX};
    unsigned records = 0, reports = 0;
    struct frame f;
    char text[32];

    begin_inet();
    for (unsigned i = 0; i < INET_ADDR_MAX; i++) {
        /* The last two of one group. */
        snprintf(text, sizeof(text), "fd00:%x::%x", i, i == INET_ADDR_MAX - 1 ? i : i + 1);
        nets[i] = prefix(text, 64);
    }
    add_if(&opts);
    start_inet();
    while (next_report(&f)) {
        unsigned n = get16(f.b + ICMP + 6);

        check_frame(&f, 8 + n * 20, "ff02::16");
        records += n;
        reports++;
    }
    assert_int_equal(records, INET_ADDR_MAX); /* one less, and the link-local one */
    assert_int_equal(reports, 2);
    pass_ms(3000);
    end_inet();
}

/* ---- asked ---- */

struct query {
    const char *src, *dst, *group;
    unsigned hops, code, sources, len; /* len: bytes; 0: as it should be */
    bool v1, no_alert, damaged;
};

static void make_query(struct frame *f, const struct query *q)
{
    struct inet_addr dst = addr(q->dst), group = addr(q->group);
    uint8_t mac[6] = {0x33, 0x33, dst.b[12], dst.b[13], dst.b[14], dst.b[15]};
    unsigned end;

    put_eth(f, dst.b[0] == 0xff ? mac : our_mac, peer_mac, 0x86dd);
    put_ip6(f, q->src, q->dst, 0, q->hops);
    put16(f, 58 << 8);
    put32(f, q->no_alert ? 0x01040000 : 0x05020000);
    put16(f, q->no_alert ? 0 : 0x0100);
    put32(f, 0x82000000);
    put16(f, q->code);
    put16(f, 0);
    put(f, group.b, 16);
    if (!q->v1) {
        put16(f, 0x027d);
        put16(f, q->sources);
        put_fill(f, min(16 * q->sources, 64u));
    }
    end = q->len ? ICMP + q->len : f->len;
    while (f->len < end)
        put8(f, 0);
    f->len = end;
    end_ip6(f);
    end_icmp(f, ICMP);
    if (q->damaged)
        f->b[ICMP + 3] ^= 1;
}

static const struct query usual = {
    .src = "fe80::2", .dst = "ff02::1", .group = "::", .hops = 1, .code = 1000};

static void ask(struct query q)
{
    struct frame f;

    make_query(&f, &q);
    not_dropped(&f);
}

static void ask_badly(struct query q)
{
    struct frame f;

    make_query(&f, &q);
    dropped(&f, PKT_DROP_ICMP_BAD);
    pass_ms(1100);
    expect_none();
}

static void test_answers(void **state)
{
    struct query q = usual;
    char group[64];
    struct inet_addr g;

    begin();
    ask(usual);
    expect_none();
    pass_ms(1010);
    expect_report(2, &link_local);
    pass_ms(5000);
    expect_none();
    /* Some questions in a row have one answer. */
    for (unsigned i = 0; i < 20; i++)
        ask(usual);
    pass_ms(1010);
    expect_report(2, &link_local);
    expect_none();
    /* One that is in a hurry does not wait for one that is not. */
    q.code = 0xffff; /* 8387584 ms */
    ask(q);
    q.code = 0;
    ask(q);
    pass_ms(30);
    expect_report(2, &link_local);
    pass_ms(5000);
    expect_none();
    /* Of one group, and of some sources of it. */
    q.code = 100;
    g = group_of(&link_local);
    inet_ntop(AF_INET6, g.b, group, sizeof(group));
    q.dst = q.group = group;
    for (q.sources = 0; q.sources < 3; q.sources += 2) {
        ask(q);
        pass_ms(110);
        expect_report(2, &link_local);
        expect_none();
    }
    q.sources = 0;
    q.dst = "ff02::1";
    q.group = "ff02::1:ff12:3456"; /* not ours */
    ask(q);
    pass_ms(1010);
    expect_none();
    end_inet();
}

/* No faster than so, however often somebody asks. */
static void test_flood(void **state)
{
    struct query q = usual;
    struct frame f;
    unsigned n;

    begin();
    q.code = 0;
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned k = 0; k < 10; k++)
            ask(q);
        pass_ms(10);
    }
    for (n = 0; next_report(&f); n++)
        ;
    if (n < 10 || n > 51)
        fail_msg("%u answers in a second", n);
    end_inet();
}

static void test_version_1(void **state)
{
    struct query q = usual;
    struct inet_addr want;
    struct frame f;
    unsigned n;

    begin();
    q.v1 = true;
    ask(q);
    pass_ms(1010);
    for (n = 0; next_report(&f); n++) {
        char to[64];

        memcpy(want.b, f.b + ICMP + 8, 16);
        inet_ntop(AF_INET6, want.b, to, sizeof(to));
        check_frame(&f, 24, to);
        assert_int_equal(f.b[ICMP], 131);
        assert_memory_equal(f.b + 22, link_local.b, 16);
    }
    assert_int_equal(n, 2);
    /* From now on, also what nobody asks for; and until nobody has asked like that for a while. */
    paper.link = false;
    pass_ms(110);
    paper.link = true;
    pass_ms(1200);
    for (n = 0; next_report(&f); n++)
        assert_int_equal(f.b[ICMP], 131);
    assert_int_equal(n, 4);
    pass_ms(260000);
    ask(usual);
    pass_ms(1010);
    expect_report(2, &link_local);
    end_inet();
}

static void test_refused(void **state)
{
    struct query q;

    begin();
    q = usual, q.src = "fd00::2", ask_badly(q);
    q = usual, q.hops = 2, ask_badly(q);
    q = usual, q.hops = 64, ask_badly(q);
    q = usual, q.no_alert = true, ask_badly(q);
    q = usual, q.damaged = true, ask_badly(q);
    q = usual, q.group = "fd00::1", ask_badly(q);
    for (unsigned len = 8; len < 28; len++)
        if (len != 24)
            q = usual, q.len = len, ask_badly(q);
    q = usual, q.sources = 2, q.len = 28 + 31, ask_badly(q);
    q = usual, q.sources = 0xffff, q.len = 28 + 16, ask_badly(q);
    q = usual, q.sources = 1, q.len = 28, ask_badly(q);
    /* What is longer than it says is not wrong, §5.1.11. */
    q = usual, q.len = 60;
    ask(q);
    pass_ms(1010);
    expect_report(2, &link_local);
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_the_start), cmocka_unit_test(test_ipv4_alone),
        cmocka_unit_test(test_many),         cmocka_unit_test(test_answers),
        cmocka_unit_test(test_flood),        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_refused),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
