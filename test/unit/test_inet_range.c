/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of addresses on one interface: which belong to it, and what is not done for them. */
#include "inet_test.h"

#include <errno.h>

#include "lib/base/err.h"

#define COUNT 4000u /* 10.0.1.0 to 10.0.16.159 */

static struct inet_range range;

static struct inet_if_opts opts_of(void)
{
    return (struct inet_if_opts){
        .name = "eth0", .port = &paper.port, .range = &range, .ranges = 1, .dad_ms = INET_DAD_MS};
}

static void begin(void)
{
    struct inet_if_opts opts;

    begin_inet();
    range = (struct inet_range){prefix("10.0.1.0", 16), COUNT};
    opts = opts_of();
    add_if(&opts);
    start_inet();
    pass_ms(2000);
    paper_clear(&paper);
}

static void refused(const char *first, unsigned bits, unsigned count, int rc, const char *word)
{
    struct inet_if_opts opts = opts_of();
    struct err err = {0};

    range = (struct inet_range){prefix(first, bits), count};
    if (try_if(&opts, &err) != rc || !strstr(err.message, word))
        fail_msg("%s/%u*%u: %s", first, bits, count, err.message);
}

static void test_refused(void **state)
{
    struct inet_prefix one = prefix("10.0.0.77", 24);
    struct inet_if_opts opts;
    struct inet_range two[2];
    struct err err = {0};

    begin_inet();
    refused("10.0.0.1", 24, 0, -EINVAL, "not all IPv4 of one net");
    refused("10.0.0.1", 0, 9, -EINVAL, "not all IPv4 of one net");
    refused("10.0.0.1", 33, 9, -EINVAL, "not all IPv4 of one net");
    refused("fd00::1", 64, 9, -EINVAL, "not all IPv4 of one net");
    refused("10.0.0.1", 24, 300, -EINVAL, "not all IPv4 of one net");
    refused("10.0.0.1", 24, UINT32_MAX, -EINVAL, "not all IPv4 of one net");
    refused("10.0.0.1", 24, 255, -EINVAL, "10.0.0.255/24 is no address of a station");
    refused("10.0.0.0", 24, 4, -EINVAL, "10.0.0.0/24 is no address of a station");
    host_addr = addr("10.0.0.7");
    refused("10.0.0.1", 24, 20, -EADDRINUSE, "10.0.0.7");
    host_addr = addr("10.9.9.9");
    opts = opts_of();
    range = (struct inet_range){prefix("10.0.0.70", 24), 20};
    opts.addr = &one;
    opts.addrs = 1;
    assert_int_equal(try_if(&opts, &err), -EEXIST);
    two[0] = two[1] = range;
    two[1].first = prefix("10.0.0.89", 24);
    opts = opts_of();
    opts.range = two;
    opts.ranges = 2;
    assert_int_equal(try_if(&opts, &err), -EEXIST);
    two[1].first = prefix("10.0.0.90", 24);
    add_if(&opts);
    opts = opts_of();
    opts.name = "eth1";
    opts.vlan = 5;
    assert_int_equal(try_if(&opts, &err), -EEXIST);
    end_inet();
}

/* Whether an ARP question for it is answered. */
static bool answers(const char *target)
{
    struct frame f;

    make_arp(&f, all_mac, 1, peer_mac, "10.0.200.1", NULL, target);
    arrive_on(&paper, 0, &f);
    settle();
    if (!leave(&f))
        return false;
    assert_int_equal(get16(f.b + 20), 2);
    assert_memory_equal(f.b + 22, our_mac, 6);
    assert_memory_equal(f.b + 28, addr(target).b + 12, 4);
    assert_memory_equal(f.b + 38, addr("10.0.200.1").b + 12, 4);
    return true;
}

static void test_belongs(void **state)
{
    static const char *const ours[] = {"10.0.1.0", "10.0.1.255", "10.0.9.3", "10.0.16.159"};
    static const char *const others[] = {"10.0.0.255", "10.0.16.160", "10.1.1.1", "9.255.255.255"};
    struct inet_prefix none;
    struct frame f;

    begin();
    for (unsigned i = 0; i < RTE_DIM(ours); i++) {
        assert_true(answers(ours[i]));
        make_tcp4(&f, "10.0.200.1", ours[i], 10);
        not_dropped(&f);
        assert_int_equal(above.inputs, i + 1);
    }
    for (unsigned i = 0; i < RTE_DIM(others); i++) {
        assert_false(answers(others[i]));
        make_tcp4(&f, "10.0.200.1", others[i], 10);
        dropped(&f, PKT_DROP_IP_NOT_OURS);
    }
    assert_false(inet_if_addr(inet_if_find(inet, "eth0"), 0, &none));
    end_inet();
}

static void test_sends(void **state)
{
    struct inet_addr from = addr("10.0.16.159"), to = addr("10.0.200.1"), own = addr("10.0.2.2");
    struct inet_path path;
    struct frame f;

    begin();
    ON(0, {
        struct inet_shard *sh = inet_shard_of(inet, 0);

        assert_int_equal(inet_path_get(sh, NULL, &from, &to, &path), 0);
        assert_int_equal(inet_path_get(sh, NULL, &from, &own, &path), -ENETUNREACH);
        from = addr("10.0.16.160");
        assert_int_equal(inet_path_get(sh, NULL, &from, &to, &path), -EADDRNOTAVAIL);
    });
    send_tcp(0, "10.0.3.1", "10.0.200.1", 5);
    assert_true(leave(&f)); /* asked for in the name of the first */
    assert_memory_equal(f.b + 28, addr("10.0.1.0").b + 12, 4);
    make_arp(&f, our_mac, 2, peer_mac, "10.0.200.1", our_mac, "10.0.1.0");
    not_dropped(&f);
    assert_true(leave(&f));
    assert_memory_equal(f.b + 26, addr("10.0.3.1").b + 12, 4);
    assert_memory_equal(f.b + 30, addr("10.0.200.1").b + 12, 4);
    end_inet();
}

/* Each address in turn, once. */
static void expect_announced(void)
{
    uint8_t a[4] = {10, 0, 1, 0};
    struct frame f;

    for (unsigned i = 0; i < COUNT; i++) {
        a[2] = (uint8_t)(1 + i / 256);
        a[3] = (uint8_t)i;
        assert_true(leave(&f));
        assert_memory_equal(f.b, all_mac, 6);
        assert_int_equal(get16(f.b + 20), 1);
        assert_memory_equal(f.b + 22, our_mac, 6);
        assert_memory_equal(f.b + 28, a, 4);
        assert_memory_equal(f.b + 38, a, 4);
    }
    assert_int_equal(paper.nout, 0);
}

static void test_announced(void **state)
{
    struct inet_if_opts opts;

    begin_inet();
    range = (struct inet_range){prefix("10.0.1.0", 16), COUNT};
    opts = opts_of();
    add_if(&opts);
    start_inet();
    assert_true(paper.nout < 100); /* not all at once */
    pass_ms(2000);
    expect_announced();
    paper.link = false;
    pass_ms(500);
    paper.link = true;
    pass_ms(5000);
    expect_announced();
    end_inet();
}

/* Nothing is asked or given up, whatever others say. */
static void test_quiet(void **state)
{
    struct frame f;

    begin();
    pass_ms(5000);
    assert_int_equal(paper.nout, 0);
    assert_true(inet_if_link(inet_if_find(inet, "eth0")));
    for (unsigned i = 0; i < 3; i++) {
        make_arp(&f, all_mac, 1, third_mac, "10.0.1.7", NULL, "10.0.1.7");
        dropped(&f, PKT_DROP_ARP_CONFLICT);
    }
    pass_ms(5000);
    assert_int_equal(paper.nout, 0);
    assert_true(answers("10.0.1.7"));
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_belongs),
        cmocka_unit_test(test_sends),   cmocka_unit_test(test_announced),
        cmocka_unit_test(test_quiet),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
