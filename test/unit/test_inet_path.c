/* SPDX-License-Identifier: BSD-3-Clause */
/* Interfaces, VLANs, routes, and MTUs of paths: what is chosen, and what is refused and why. */
#include "inet_test.h"

#include <errno.h>

#include "lib/base/err.h"

static struct inet_path path_of(const char *local, const char *remote, int expected)
{
    struct inet_addr l = addr(local), r = addr(remote);
    struct inet_path path = {0};
    int rc = 0;

    ON(0, rc = inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path));
    if (rc != expected)
        fail_msg("%s to %s: %d", local, remote, rc);
    return path;
}

static void expect_hop(const char *local, const char *remote, const char *hop)
{
    struct inet_path path = path_of(local, remote, 0);

    assert_memory_equal(path.next_hop.b, addr(hop).b, 16);
}

/* ---- what is refused ---- */

static struct inet_prefix nets[INET_ADDR_MAX + 1];
static struct inet_route routes[INET_ROUTE_MAX + 1];

static void expect_refusal(const struct inet_if_opts *opts, int rc, const char *word)
{
    struct err err = {0};

    if (try_if(opts, &err) != rc)
        fail_msg("not refused, or otherwise: %s", err.message);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" does not say %s", err.message, word);
}

static void test_refused(void **state)
{
    struct inet_if_opts good = {.name = "eth0", .port = &paper.port, .addr = nets, .addrs = 1};
    struct inet_if_opts opts;

    begin_inet();
    nets[0] = prefix("10.0.0.1", 24);
    nets[1] = prefix("10.0.0.1", 16);

#define BAD(change, rc, word)                                                                      \
    do {                                                                                           \
        opts = good;                                                                               \
        change;                                                                                    \
        expect_refusal(&opts, rc, word);                                                           \
    } while (0)

    BAD(opts.name = NULL, -EINVAL, "name");
    BAD(opts.name = "", -EINVAL, "name");
    BAD(opts.name = "longer-than-it-may", -EINVAL, "name");
    BAD(opts.vlan = 4095, -EINVAL, "VLAN");
    BAD(opts.mtu = 1501, -EINVAL, "MTU");
    BAD(opts.mtu = 575, -EINVAL, "MTU");
    BAD(opts.addrs = 0, -EINVAL, "addresses");
    BAD(opts.addrs = INET_ADDR_MAX + 1, -EINVAL, "addresses");
    BAD(opts.addrs = 2, -EEXIST, "twice");
    static const char *const no_stations[] = {"0.0.0.0",  "127.0.0.1",  "224.0.0.1",
                                              "10.0.0.0", "10.0.0.255", "240.0.0.1",
                                              "::1",      "::",         "ff02::1"};
    for (unsigned i = 0; i < RTE_DIM(no_stations); i++) {
        nets[0] = prefix(no_stations[i], 24);
        BAD(, -EINVAL, "no address of a station");
    }
    nets[0] = prefix("10.0.0.1", 33);
    BAD(, -EINVAL, "no address of a station");
    nets[0] = prefix("fd00::1", 64);
    nets[0].bits = 129;
    BAD(, -EINVAL, "no address of a station");
    nets[0].bits = 64;
    paper.port.mtu = 1279;
    BAD(, -EINVAL, "IPv6 needs an MTU");
    paper.port.mtu = 1500;
    nets[0] = prefix("10.0.0.1", 24);
    host_addr = addr("10.0.0.1");
    BAD(, -EADDRINUSE, "ip address delete 10.0.0.1/24 dev eth7");
    host_addr = addr("10.0.0.9");

    routes[0] = (struct inet_route){prefix("0.0.0.0", 0), addr("10.0.1.254")};
    BAD((opts.route = routes, opts.routes = 1), -ENETUNREACH, "on no net");
    routes[0].via = addr("10.0.0.255");
    BAD((opts.route = routes, opts.routes = 1), -ENETUNREACH, "on no net");
    routes[0].via = addr("10.0.0.1");
    BAD((opts.route = routes, opts.routes = 1), -EINVAL, "own");
    routes[0].via = addr("fe80::1");
    BAD((opts.route = routes, opts.routes = 1), -EINVAL, "not possible");
    routes[0] = (struct inet_route){prefix("0.0.0.0", 33), addr("10.0.0.254")};
    BAD((opts.route = routes, opts.routes = 1), -EINVAL, "not possible");
    BAD((opts.route = routes, opts.routes = INET_ROUTE_MAX + 1), -ENOSPC, "routes");

    add_if(&good);
    BAD(, -EEXIST, "there already");
    nets[0] = prefix("10.0.1.1", 24);
    BAD(opts.name = "eth1", -EEXIST, "port and VLAN");
    nets[0] = prefix("10.0.0.1", 24);
    BAD((opts.name = "eth1", opts.vlan = 5), -EEXIST, "has address");
    start_inet();
    nets[0] = prefix("10.0.1.1", 24);
    BAD((opts.name = "eth1", opts.vlan = 5), -EBUSY, "in use");
#undef BAD
    end_inet();
}

/* ---- routes ---- */

static void test_longest_prefix(void **state)
{
    struct inet_prefix net[] = {prefix("10.0.0.1", 24), prefix("172.16.0.1", 30),
                                prefix("fd00::1", 64)};
    struct inet_route route[] = {
        {prefix("0.0.0.0", 0), addr("10.0.0.254")},
        {prefix("192.168.0.0", 16), addr("10.0.0.253")},
        {prefix("192.168.5.0", 24), addr("172.16.0.2")},
        {prefix("192.168.5.128", 25), addr("10.0.0.252")},
        {prefix("192.168.5.200", 32), addr("10.0.0.251")},
        {prefix("10.0.0.64", 26), addr("10.0.0.250")},
        {prefix("::", 0), addr("fe80::fe")},
        {prefix("fd00:1::", 32), addr("fd00::fd")},
    };
    struct inet_if_opts opts = {
        .name = "eth0", .port = &paper.port, .addr = net, .addrs = 3, .route = route, .routes = 8};

    begin_inet();
    add_if(&opts);
    start_inet();
    expect_hop("10.0.0.1", "10.0.0.9", "10.0.0.9");
    expect_hop("10.0.0.1", "10.0.0.65", "10.0.0.250");
    expect_hop("10.0.0.1", "8.8.8.8", "10.0.0.254");
    expect_hop("10.0.0.1", "192.168.4.1", "10.0.0.253");
    expect_hop("10.0.0.1", "192.168.5.1", "172.16.0.2");
    expect_hop("10.0.0.1", "192.168.5.129", "10.0.0.252");
    expect_hop("10.0.0.1", "192.168.5.200", "10.0.0.251");
    expect_hop("172.16.0.1", "172.16.0.2", "172.16.0.2");
    expect_hop("fd00::1", "fd00::77", "fd00::77");
    expect_hop("fd00::1", "fd00:1::77", "fd00::fd");
    expect_hop("fd00::1", "2001:db8::1", "fe80::fe");
    /* What is no station's, or ours, or of the other family. */
    static const char *const nowhere[] = {"10.0.0.1",  "172.16.0.1",      "10.0.0.255",
                                          "224.0.0.1", "255.255.255.255", "127.0.0.1",
                                          "0.0.0.0",   "172.16.0.3",      "fd00::2"};
    for (unsigned i = 0; i < RTE_DIM(nowhere); i++)
        path_of("10.0.0.1", nowhere[i], -ENETUNREACH);
    path_of("fd00::1", "fd00::1", -ENETUNREACH);
    path_of("fd00::1", "ff02::1", -ENETUNREACH);
    path_of("fd00::1", "10.0.0.2", -ENETUNREACH);
    path_of("10.0.0.9", "10.0.0.2", -EADDRNOTAVAIL);
    end_inet();
}

static void test_no_way(void **state)
{
    struct inet_prefix net = prefix("10.0.0.1", 24);
    struct inet_if_opts opts = {.name = "eth0", .port = &paper.port, .addr = &net, .addrs = 1};
    struct frame f;

    begin_inet();
    add_if(&opts);
    start_inet();
    path_of("10.0.0.1", "10.0.1.1", -ENETUNREACH);
    make_ping4(&f, "10.0.1.1", "10.0.0.1", 8);
    dropped(&f, PKT_DROP_IP_NO_ROUTE);
    end_inet();
}

/* ---- link-local ---- */

static void test_link_local(void **state)
{
    struct inet_prefix one[2], again;
    struct inet_path path;
    struct inet_if *ifp;

    for (unsigned i = 0; i < 2; i++) {
        ifp = usual_inet(0);
        assert_true(inet_if_addr(ifp, 0, &again));
        assert_memory_equal(again.addr.b, addr("10.0.0.1").b, 16);
        assert_true(inet_if_addr(ifp, 2, &one[i]));
        assert_false(inet_if_addr(ifp, 3, &again));
        end_inet();
    }
    /* The same each time; not that of the MAC, which the host's kernel may have. */
    assert_memory_equal(one[0].addr.b, one[1].addr.b, 16);
    assert_int_equal(one[0].bits, 64);
    assert_memory_equal(one[0].addr.b, addr("fe80::").b, 8);
    assert_memory_not_equal(one[0].addr.b, addr("fe80::ff:fe00:1").b, 16);
    ifp = usual_inet(0);
    ON(0, {
        struct inet_addr r = addr("fe80::2"), off = addr("fd01::2");
        struct inet_shard *sh = inet_shard_of(inet, 0);

        assert_int_equal(inet_path_get(sh, ifp, &one[0].addr, &r, &path), 0);
        assert_memory_equal(path.next_hop.b, r.b, 16);
        assert_int_equal(inet_path_get(sh, ifp, &one[0].addr, &off, &path), 0);
        assert_memory_equal(path.next_hop.b, addr("fe80::fe").b, 16);
    });
    end_inet();
}

/* ---- VLANs and several ports ---- */

static void arrive_tagged(struct paper *p, const struct frame *f, unsigned tci)
{
    struct rte_mbuf *m = arrive_on(p, 0, f);

    m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
    m->vlan_tci = (uint16_t)tci;
    settle();
}

static void test_vlans(void **state)
{
    struct inet_prefix net[3] = {prefix("10.0.0.1", 24), prefix("10.0.5.1", 24),
                                 prefix("10.0.9.1", 24)};
    struct inet_if_opts opts[3] = {
        {.name = "eth0", .port = &paper.port, .addr = &net[0], .addrs = 1},
        {.name = "eth0.5",
         .port = &paper.port,
         .vlan = 5,
         .mtu = 1400,
         .addr = &net[1],
         .addrs = 1},
        {.name = "eth1", .port = &paper2.port, .addr = &net[2], .addrs = 1},
    };
    struct rte_mbuf *m = NULL;
    struct inet_if *ifs[3];
    struct frame f;

    begin_inet();
    for (unsigned i = 0; i < 3; i++)
        ifs[i] = add_if(&opts[i]);
    start_inet();
    pass_ms(2100);
    paper_clear(&paper);
    paper_clear(&paper2);
    assert_int_equal(inet_if_count(inet), 3);
    assert_ptr_equal(inet_if_find(inet, "eth0.5"), ifs[1]);
    assert_int_equal(inet_if_mtu(ifs[1]), 1400);
    assert_ptr_equal(inet_if_port(ifs[2]), &paper2.port);
    assert_ptr_equal(inet_if_of(inet, &net[1].addr), ifs[1]);
    assert_int_equal(path_of("10.0.5.1", "10.0.5.2", 0).mtu, 1400);

    make_tcp4(&f, "10.0.5.2", "10.0.5.1", 0);
    arrive_tagged(&paper, &f, 0x6005);
    assert_int_equal(above.inputs, 1);
    assert_ptr_equal(pkt_of(above.input[0].m)->ifp, ifs[1]);
    /* An address of another interface is not ours here. */
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    arrive_tagged(&paper, &f, 6);
    assert_int_equal(drops(PKT_DROP_ETH_VLAN), 1);
    arrive_tagged(&paper2, &f, 5);
    assert_int_equal(drops(PKT_DROP_ETH_VLAN), 2);
    /* A priority is no VLAN. */
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    arrive_tagged(&paper, &f, 0xe000);
    assert_int_equal(above.inputs, 2);
    assert_ptr_equal(pkt_of(above.input[1].m)->ifp, ifs[0]);

    send_tcp(0, "10.0.5.1", "10.0.5.2", 0);
    assert_true(leave_from(&paper, &f, &m));
    assert_true(m->ol_flags & RTE_MBUF_F_TX_VLAN);
    assert_int_equal(m->vlan_tci, 5);
    rte_pktmbuf_free(m);
    send_tcp(0, "10.0.9.1", "10.0.9.2", 0);
    assert_int_equal(paper.nout, 0);
    assert_true(leave_from(&paper2, &f, &m));
    assert_false(m->ol_flags & RTE_MBUF_F_TX_VLAN);
    rte_pktmbuf_free(m);
    end_inet();
}

/* ---- MTUs of paths ---- */

static void set_mtu(const char *remote, unsigned mtu)
{
    struct inet_addr r = addr(remote);

    ON(0, inet_path_mtu_set(inet_shard_of(inet, 0), &r, mtu));
}

static void test_path_mtu(void **state)
{
    struct inet_path path;
    bool valid = true;

    quiet_inet();
    path = path_of("10.0.0.1", "10.0.9.9", 0);
    assert_int_equal(path.mtu, 1500);
    set_mtu("10.0.9.9", 1400);
    ON(0, valid = inet_path_valid(inet_shard_of(inet, 0), &path));
    assert_false(valid);
    assert_int_equal(path_of("10.0.0.1", "10.0.9.9", 0).mtu, 1400);
    assert_int_equal(path_of("10.0.0.1", "10.0.9.8", 0).mtu, 1500);
    set_mtu("10.0.9.9", 100);
    assert_int_equal(path_of("10.0.0.1", "10.0.9.9", 0).mtu, 576);
    set_mtu("fd01::9", 100);
    assert_int_equal(path_of("fd00::1", "fd01::9", 0).mtu, 1280);
    set_mtu("fd01::9", 9000);
    assert_int_equal(path_of("fd00::1", "fd01::9", 0).mtu, 1500);
    /* Ten minutes. A connection that kept its path is told to look again. */
    path = path_of("10.0.0.1", "10.0.9.9", 0);
    pass_ms(590000);
    assert_int_equal(path_of("10.0.0.1", "10.0.9.9", 0).mtu, 576);
    ON(0, valid = inet_path_valid(inet_shard_of(inet, 0), &path));
    assert_true(valid);
    pass_ms(50000);
    ON(0, valid = inet_path_valid(inet_shard_of(inet, 0), &path));
    assert_false(valid);
    assert_int_equal(path_of("10.0.0.1", "10.0.9.9", 0).mtu, 1500);
    end_inet();
}

static void test_path_mtu_is_bounded(void **state)
{
    struct inet_addr r = addr("11.0.0.0");
    unsigned kept = 0;

    quiet_inet();
    for (unsigned i = 0; i < 10000; i++) {
        r.b[14] = (uint8_t)(i >> 8);
        r.b[15] = (uint8_t)i;
        ON(0, inet_path_mtu_set(inet_shard_of(inet, 0), &r, 1000));
    }
    for (unsigned i = 0; i < 10000; i++) {
        r.b[14] = (uint8_t)(i >> 8);
        r.b[15] = (uint8_t)i;
        ON(0, kept += pmtu_get(inet_shard_of(inet, 0), &r, 1500) == 1000);
    }
    assert_int_equal(kept, INET_PMTU_MAX);
    end_inet();
}

/* Learns an MTU for so many addresses that differ in their last octets. */
static void learn_many(const char *first, unsigned n)
{
    struct inet_addr r = addr(first);

    for (unsigned i = 0; i < n; i++) {
        r.b[14] = (uint8_t)(i >> 8);
        r.b[15] = (uint8_t)i;
        ON(0, inet_path_mtu_set(inet_shard_of(inet, 0), &r, 1300));
    }
}

static unsigned known_of(const char *first, unsigned n)
{
    struct inet_addr r = addr(first);
    unsigned known = 0;

    for (unsigned i = 0; i < n; i++) {
        r.b[14] = (uint8_t)(i >> 8);
        r.b[15] = (uint8_t)i;
        ON(0, known += pmtu_get(inet_shard_of(inet, 0), &r, 1500) == 1300);
    }
    return known;
}

/* A host with all addresses of a /64 gets a quarter of the table: what others learnt stays. */
static void test_path_mtu_shares(void **state)
{
    quiet_inet();
    learn_many("11.0.0.0", 1000);
    learn_many("fd02::", 60000);
    assert_int_equal(known_of("11.0.0.0", 1000), 1000);
    assert_int_equal(known_of("fd02::", 60000), INET_PMTU_MAX / 4);
    learn_many("fd03::", 10);
    assert_int_equal(known_of("fd03::", 10), 10);
    learn_many("12.0.0.0", 2 * INET_PMTU_MAX);
    assert_int_equal(known_of("12.0.0.0", 2 * INET_PMTU_MAX), INET_PMTU_MAX);
    assert_int_equal(known_of("fd02::", 60000), 0);
    end_inet();
    /* What was forgotten does not count. */
    quiet_inet();
    learn_many("fd02::", 2000);
    pass_ms(640000);
    learn_many("fd02::", 1000);
    assert_int_equal(known_of("fd02::", 1000), 1000);
    end_inet();
}

/* ---- who looks on ---- */

static unsigned seen_in, seen_out, seen_dropped;

static void look_on(void *ctx, struct inet_shard *sh, struct inet_if *ifp, struct port *port,
                    const struct rte_mbuf *m, bool out, enum pkt_drop why)
{
    assert_ptr_equal(port, &paper.port);
    if (why != PKT_DROP_NONE)
        seen_dropped++;
    else if (out)
        seen_out++;
    else
        seen_in++;
}

static void test_tap(void **state)
{
    static const struct inet_tap tap = {.frame = look_on};
    struct frame f;

    quiet_inet();
    inet_tap_set(inet, &tap);
    make_arp(&f, all_mac, 1, peer_mac, "10.0.0.2", NULL, "10.0.0.1");
    not_dropped(&f);
    make_tcp4(&f, "10.0.0.2", "10.0.0.7", 0);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    f.len = 10;
    dropped(&f, PKT_DROP_ETH_SHORT);
    assert_int_equal(seen_in, 3);
    assert_int_equal(seen_out, 1);
    assert_int_equal(seen_dropped, 2);
    inet_tap_set(inet, NULL);
    dropped(&f, PKT_DROP_ETH_SHORT);
    assert_int_equal(seen_in, 3);
    end_inet();
}

static void test_reasons_have_names(void **state)
{
    for (unsigned i = 0; i < PKT_DROP_COUNT; i++) {
        const struct pkt_drop_info *info = pkt_drop_info((enum pkt_drop)i);

        assert_true(info->name[0] != '\0' && info->text[0] != '\0');
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(info->name, pkt_drop_info((enum pkt_drop)k)->name);
    }
    assert_string_equal(pkt_drop_info(PKT_DROP_COUNT)->name, "none");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_longest_prefix),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_link_local),
        cmocka_unit_test(test_vlans),
        cmocka_unit_test(test_path_mtu),
        cmocka_unit_test(test_path_mtu_is_bounded),
        cmocka_unit_test(test_path_mtu_shares),
        cmocka_unit_test(test_tap),
        cmocka_unit_test(test_reasons_have_names),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
