/* SPDX-License-Identifier: BSD-3-Clause */
/* IPv6: headers and their extensions, neighbour discovery, ICMPv6. */
#include "inet_test.h"

#define ICMP 54 /* offset of what follows an IPv6 header */

static void group_of(const char *text, uint8_t mac[6])
{
    struct inet_addr a = addr(text);

    mac[0] = mac[1] = 0x33;
    memcpy(mac + 2, a.b + 12, 4);
}

static void make6(struct frame *f, const char *src, const char *dst, unsigned proto, unsigned hops)
{
    uint8_t to[6];

    memcpy(to, our_mac, 6);
    if (addr(dst).b[0] == 0xff)
        group_of(dst, to);
    put_eth(f, to, peer_mac, 0x86dd);
    put_ip6(f, src, dst, proto, hops);
}

static void make_ping6(struct frame *f, const char *src, const char *dst, unsigned payload)
{
    make6(f, src, dst, 58, 64);
    put32(f, 0x80000000);
    put32(f, 0x12340001);
    put_fill(f, payload);
    end_ip6(f);
    end_icmp(f, ICMP);
}

/* Solicitation or advertisement; mac NULL: without option. */
static void make_nd(struct frame *f, unsigned type, uint32_t flags, const char *src,
                    const char *dst, const char *target, const uint8_t *mac)
{
    struct inet_addr t = addr(target);

    make6(f, src, dst, 58, 255);
    put8(f, type);
    put8(f, 0);
    put16(f, 0);
    put32(f, flags);
    put(f, t.b, 16);
    if (mac) {
        put16(f, type == 135 ? 0x0101 : 0x0201);
        put(f, mac, 6);
    }
    end_ip6(f);
    end_icmp(f, ICMP);
}

static void expect_solicit(const char *target, const uint8_t *to)
{
    struct inet_addr t = addr(target);
    struct frame f;
    uint8_t group[6] = {0x33, 0x33, 0xff, t.b[13], t.b[14], t.b[15]};

    if (!leave(&f))
        fail_msg("nobody was asked");
    assert_int_equal(get16(f.b + 12), 0x86dd);
    assert_memory_equal(f.b, to ? to : group, 6);
    assert_int_equal(f.b[21], 255);
    assert_int_equal(f.b[ICMP], 135);
    assert_true(icmp_right(&f, ICMP));
    assert_memory_equal(f.b + ICMP + 8, t.b, 16);
    assert_int_equal(get16(f.b + ICMP + 24), 0x0101);
    assert_memory_equal(f.b + ICMP + 26, our_mac, 6);
    assert_memory_equal(f.b + 22, addr("fd00::1").b, 16);
}

static void know_peer6(void)
{
    struct frame f;

    send_tcp(0, "fd00::1", "fd00::2", 0);
    expect_solicit("fd00::2", NULL);
    make_nd(&f, 136, 0x60000000, "fd00::2", "fd00::1", "fd00::2", peer_mac);
    not_dropped(&f);
    assert_true(leave(&f));
    assert_int_equal(f.b[20], 6);
    assert_memory_equal(f.b, peer_mac, 6);
}

/* ---- the plain way ---- */

static void test_ping6(void **state)
{
    static const unsigned sizes[] = {0, 1, 2, 7, 56, 1000, 1452};
    struct frame f, out = {.len = 0};

    quiet_inet();
    know_peer6();
    for (unsigned i = 0; i < RTE_DIM(sizes); i++) {
        make_ping6(&f, "fd00::2", "fd00::1", sizes[i]);
        not_dropped(&f);
        assert_true(leave(&out));
        assert_int_equal(out.len, f.len);
        assert_int_equal(out.b[ICMP], 129);
        assert_true(icmp_right(&out, ICMP));
        assert_memory_equal(out.b + ICMP + 4, f.b + ICMP + 4, sizes[i] + 4);
        assert_memory_equal(out.b + 22, addr("fd00::1").b, 16);
        assert_memory_equal(out.b + 38, addr("fd00::2").b, 16);
    }
    end_inet();
}

static void test_tcp6(void **state)
{
    struct frame f;
    struct pkt *pkt;
    struct rte_mbuf *m = NULL;

    quiet_inet();
    know_peer6();
    make6(&f, "fd00::2", "fd00::1", 6, 64);
    put_tcp(&f, 1023, 988, 1);
    end_ip6(&f);
    not_dropped(&f);
    assert_int_equal(above.inputs, 1);
    pkt = pkt_of(above.input[0].m);
    assert_int_equal(pkt->family, 6);
    assert_int_equal(pkt->l4, 54);
    assert_int_equal(pkt->l4_len, 20);
    send_tcp(0, "fd00::1", "fd00::2", 50);
    assert_true(leave_from(&paper, &f, &m));
    assert_int_equal(get16(f.b + 18), 70);
    assert_int_equal(m->l3_len, 40);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IPV6);
    assert_int_equal(get16(f.b + 70), add_words(6 + 70, f.b + 22, 32));
    rte_pktmbuf_free(m);
    end_inet();
}

/* ---- neighbour discovery ---- */

static void test_solicited(void **state)
{
    static const char *const ours[] = {"fd00::1", NULL};
    struct frame f, out = {.len = 0};
    struct inet_prefix own;
    char text[INET_TEXT_MAX], node[64];

    quiet_inet();
    for (unsigned i = 0; i < 2; i++) {
        struct inet_addr t;

        assert_true(inet_if_addr(inet_if_find(inet, "eth0"), 2, &own));
        snprintf(text, sizeof(text), "%s", ours[i] ? ours[i] : "");
        if (!ours[i])
            inet_text(&own.addr, text);
        t = addr(text);
        snprintf(node, sizeof(node), "ff02::1:ff%02x:%02x%02x", t.b[13], t.b[14], t.b[15]);
        make_nd(&f, 135, 0, "fe80::2", node, text, peer_mac);
        not_dropped(&f);
        assert_true(leave(&out));
        assert_memory_equal(out.b, peer_mac, 6);
        assert_int_equal(out.b[21], 255);
        assert_int_equal(out.b[ICMP], 136);
        assert_int_equal(out.b[ICMP + 4], 0x60);
        assert_memory_equal(out.b + ICMP + 8, t.b, 16);
        assert_int_equal(get16(out.b + ICMP + 24), 0x0201);
        assert_memory_equal(out.b + ICMP + 26, our_mac, 6);
        assert_memory_equal(out.b + 22, t.b, 16);
        assert_memory_equal(out.b + 38, addr("fe80::2").b, 16);
        assert_true(icmp_right(&out, ICMP));
        /* To us alone, and without its MAC: the frame has it. */
        make_nd(&f, 135, 0, "fe80::2", text, text, NULL);
        not_dropped(&f);
        assert_true(leave(&out));
        assert_memory_equal(out.b, peer_mac, 6);
    }
    /* Not for us. */
    make_nd(&f, 135, 0, "fe80::2", "ff02::1:ff00:1", "fd00::5:1", peer_mac);
    not_dropped(&f);
    assert_int_equal(paper.nout, 0);
    assert_int_equal(inet_shard_of(inet, 0)->neighs, 0);
    end_inet();
}

static void test_moves(void **state)
{
    struct frame f;

    quiet_inet();
    know_peer6();
    /* Without the override flag it is not believed, but asked about in time. §7.2.5 */
    make_nd(&f, 136, 0x40000000, "fd00::2", "fd00::1", "fd00::2", third_mac);
    not_dropped(&f);
    assert_int_equal(paper.nout, 0);
    send_tcp(0, "fd00::1", "fd00::2", 0);
    assert_true(leave(&f));
    assert_memory_equal(f.b, peer_mac, 6);
    pass_ms(5100);
    expect_solicit("fd00::2", peer_mac);
    make_nd(&f, 136, 0x60000000, "fd00::2", "fd00::1", "fd00::2", peer_mac);
    not_dropped(&f);
    /* To all, with override: the old place is asked, and does not answer. */
    make_nd(&f, 136, 0x20000000, "fd00::2", "ff02::1", "fd00::2", third_mac);
    not_dropped(&f);
    expect_solicit("fd00::2", peer_mac);
    pass_ms(1100);
    expect_solicit("fd00::2", peer_mac);
    expect_solicit("fd00::2", third_mac);
    send_tcp(0, "fd00::1", "fd00::2", 0);
    assert_true(leave(&f));
    assert_memory_equal(f.b, third_mac, 6);
    end_inet();
}

static void test_nd_malformed(void **state)
{
    struct frame f, g;

    quiet_inet();
    make_nd(&f, 135, 0, "fe80::2", "ff02::1:ff00:1", "fd00::1", peer_mac);
    for (unsigned len = 8; len < 32; len++) {
        g = f;
        g.len = ICMP + len;
        end_ip6(&g);
        end_icmp(&g, ICMP);
        if (len == 24) /* an option is not needed */
            continue;
        dropped(&g, PKT_DROP_ND_BAD);
    }
    for (unsigned len = 0; len < 8; len++) {
        g = f;
        g.len = ICMP + len;
        end_ip6(&g);
        dropped(&g, PKT_DROP_ICMP_BAD);
    }
    for (unsigned len = 14; len < f.len; len++) {
        g = f;
        g.len = len;
        dropped(&g, len < ICMP ? PKT_DROP_ETH_SHORT : PKT_DROP_IP_BAD);
    }
    for (unsigned bit = 0; bit < 16; bit++) {
        g = f;
        g.b[ICMP + 2 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        dropped(&g, PKT_DROP_ICMP_BAD);
    }
#define BAD(change)                                                                                \
    do {                                                                                           \
        g = f;                                                                                     \
        change;                                                                                    \
        end_icmp(&g, ICMP);                                                                        \
        dropped(&g, PKT_DROP_ND_BAD);                                                              \
    } while (0)
    BAD(g.b[21] = 254);
    BAD(g.b[21] = 64);
    BAD(g.b[ICMP + 1] = 1);
    BAD(g.b[ICMP + 8] = 0xff);
    BAD(memset(g.b + ICMP + 8, 0, 16));
    BAD(g.b[ICMP + 25] = 0);
    BAD(g.b[ICMP + 25] = 2);
    BAD(g.b[ICMP + 26] = 1);
    BAD(memcpy(g.b + ICMP + 26, our_mac, 6));
    BAD(memset(g.b + 22, 0, 16));                          /* from nowhere, with a MAC */
    make_nd(&f, 135, 0, "::", "ff02::1", "fd00::1", NULL); /* from nowhere, to all */
    BAD(g.b[21] = 255);
    make_nd(&f, 136, 0x40000000, "fe80::2", "ff02::1", "fd00::2", peer_mac);
    BAD(g.b[21] = 255); /* an answer, to all */
    make_nd(&f, 136, 0, "::", "ff02::1", "fd00::2", peer_mac);
    BAD(g.b[21] = 255);
#undef BAD
    assert_int_equal(paper.nout, 0);
    end_inet();
}

/* Addresses and routes are configured: routers change nothing. */
static void test_ignored(void **state)
{
    static const uint8_t types[] = {133, 134, 137, 132, 131, 143, 138, 200, 100, 255, 5};
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(types); i++) {
        make6(&f, "fe80::2", i % 2 == 0 ? "ff02::1" : "fd00::1", 58, 255);
        put8(&f, types[i]);
        put_fill(&f, 31);
        end_ip6(&f);
        end_icmp(&f, ICMP);
        dropped(&f, PKT_DROP_ICMP_IGNORED);
    }
    make_ping6(&f, "fd00::2", "ff02::1", 8);
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    assert_int_equal(paper.nout, 0);
    end_inet();
}

/* ---- extension headers ---- */

static void make_ext(struct frame *f, unsigned first, const uint8_t *ext, unsigned n)
{
    make6(f, "fd00::2", "fd00::1", first, 64);
    put(f, ext, n);
    put_tcp(f, 1023, 988, 1);
    end_ip6(f);
}

static void test_extensions(void **state)
{
    static const struct {
        uint8_t first, n, b[40];
        enum pkt_drop why;
        int code;         /* of the parameter problem that is sent; -1: none */
        unsigned pointer; /* in the IPv6 packet */
    } rows[] = {
        {0, 8, {6, 0, 1, 4}, PKT_DROP_NONE, -1, 0},              /* PadN */
        {0, 8, {6, 0}, PKT_DROP_NONE, -1, 0},                    /* six Pad1 */
        {60, 8, {6, 0, 5, 2, 0, 0, 1, 0}, PKT_DROP_NONE, -1, 0}, /* router alert */
        {60, 8, {6, 0, 0x1e, 4}, PKT_DROP_NONE, -1, 0},          /* unknown, may be passed */
        {43, 8, {6, 0, 4, 0}, PKT_DROP_NONE, -1, 0},             /* a route used up */
        {0, 16, {60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4}, PKT_DROP_NONE, -1, 0},
        {60,
         32,
         {60, 0, 1, 4, 0, 0, 0, 0, 60, 0, 1, 4, 0, 0, 0, 0, 60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4},
         PKT_DROP_NONE,
         -1,
         0},
        {60,
         40,
         {60, 0, 1, 4, 0, 0, 0,  0, 60, 0, 1, 4, 0, 0, 0, 0, 60, 0,
          1,  4, 0, 0, 0, 0, 60, 0, 1,  4, 0, 0, 0, 0, 6, 0, 1,  4},
         PKT_DROP_IP_OPTIONS,
         -1,
         0},                                                  /* too many */
        {0, 8, {6, 0, 0x5e, 4}, PKT_DROP_IP_OPTIONS, -1, 0},  /* unknown: discard */
        {60, 8, {6, 0, 0x9e, 4}, PKT_DROP_IP_OPTIONS, 2, 42}, /* … and say so */
        {60, 8, {6, 0, 1, 0, 0xde, 2}, PKT_DROP_IP_OPTIONS, 2, 44},
        {0, 8, {6, 0, 0xc2, 4, 0, 1, 0, 0}, PKT_DROP_IP_OPTIONS, 2, 42}, /* jumbo */
        {60, 16, {0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4}, PKT_DROP_IP_OPTIONS, 1, 40},
        {43, 8, {6, 0, 0, 1}, PKT_DROP_IP_OPTIONS, 0, 42}, /* a route to go */
        {60, 8, {6, 0, 1, 5}, PKT_DROP_IP_BAD, -1, 0},     /* an option runs out */
        {60, 8, {6, 0, 1, 2, 0, 0, 0, 1}, PKT_DROP_IP_BAD, -1, 0},
        {60, 8, {6, 0, 1, 3, 0, 0, 0, 1}, PKT_DROP_IP_BAD, -1, 0},
        {60, 8, {6, 200, 1, 4}, PKT_DROP_IP_BAD, -1, 0},    /* longer than the packet */
        {44, 8, {6, 0, 0, 0}, PKT_DROP_IP_FRAGMENT, -1, 0}, /* atomic fragment */
        {44, 8, {6, 0, 0, 1}, PKT_DROP_IP_FRAGMENT, -1, 0},
        {60, 16, {44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 8}, PKT_DROP_IP_FRAGMENT, -1, 0},
        {59, 8, {0}, PKT_DROP_IP_PROTO, -1, 0},
        {50, 8, {0}, PKT_DROP_IP_PROTO, 1, 6},
        {60, 8, {50, 0, 1, 4}, PKT_DROP_IP_PROTO, 1, 40},
    };
    struct frame f, out = {.len = 0};

    quiet_inet();
    know_peer6();
    for (unsigned i = 0; i < RTE_DIM(rows); i++) {
        make_ext(&f, rows[i].first, rows[i].b, rows[i].n);
        if (rows[i].why == PKT_DROP_NONE) {
            not_dropped(&f);
            assert_int_equal(above.inputs, 1);
            assert_int_equal(pkt_of(above.input[0].m)->l4, ICMP + rows[i].n);
            assert_int_equal(pkt_of(above.input[0].m)->l4_len, 20);
            inputs_free();
        } else {
            dropped(&f, rows[i].why);
        }
        if (rows[i].code < 0) {
            assert_int_equal(paper.nout, 0);
            continue;
        }
        assert_true(leave(&out));
        assert_int_equal(out.b[ICMP], 4);
        assert_int_equal(out.b[ICMP + 1], rows[i].code);
        assert_int_equal(get16(out.b + ICMP + 6), rows[i].pointer);
        assert_true(icmp_right(&out, ICMP));
        assert_memory_equal(out.b + ICMP + 8, f.b + 14, f.len - 14);
    }
    end_inet();
}

static void test_ip6_header(void **state)
{
    static const char *const sources[] = {"::", "::1", "ff02::1", "fd00::1", "::ffff:10.0.0.2"};
    static const char *const others[] = {
        "fd00::7", "::1", "fe80::1", "ff02::2", "ff02::1:ff00:9", "::ffff:10.0.0.1"};
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(sources); i++) {
        make6(&f, sources[i], "fd00::1", 6, 64);
        put_tcp(&f, 1, 2, 3);
        end_ip6(&f);
        dropped(&f, PKT_DROP_IP_SOURCE);
    }
    for (unsigned i = 0; i < RTE_DIM(others); i++) {
        make6(&f, "fd00::2", others[i], 6, 64);
        put_tcp(&f, 1, 2, 3);
        end_ip6(&f);
        dropped(&f, PKT_DROP_IP_NOT_OURS);
    }
    make6(&f, "fd00::2", "fd00::1", 6, 64);
    put_tcp(&f, 1, 2, 3);
    end_ip6(&f);
    f.b[14] = 0x40;
    dropped(&f, PKT_DROP_IP_BAD);
    f.b[14] = 0x60;
    set16(f.b + 18, 21);
    dropped(&f, PKT_DROP_IP_BAD);
    set16(f.b + 18, 20);
    memcpy(f.b, all_mac, 6);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    /* TCP to all. */
    make6(&f, "fd00::2", "ff02::1", 6, 64);
    put_tcp(&f, 1, 2, 3);
    end_ip6(&f);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    assert_int_equal(above.inputs, 0);
    end_inet();
}

/* ---- errors ---- */

static void make_error6(struct frame *f, unsigned type, unsigned code, uint32_t param,
                        const char *src, const char *dst, unsigned proto)
{
    struct inet_addr s = addr(src), d = addr(dst);

    make6(f, "fd00::fe", "fd00::1", 58, 64);
    put8(f, type);
    put8(f, code);
    put16(f, 0);
    put32(f, param);
    put32(f, 0x60000000);
    put16(f, 1400);
    put8(f, proto);
    put8(f, 60);
    put(f, s.b, 16);
    put(f, d.b, 16);
    put_tcp(f, 988, 1023, 4711);
    end_ip6(f);
    end_icmp(f, ICMP);
}

static void test_errors_heard(void **state)
{
    static const struct {
        uint8_t type, code;
        enum inet_icmp_error what;
    } rows[] = {
        {1, 0, INET_ICMP_UNREACHABLE}, {1, 1, INET_ICMP_REFUSED}, {1, 2, INET_ICMP_UNREACHABLE},
        {1, 3, INET_ICMP_UNREACHABLE}, {1, 4, INET_ICMP_REFUSED}, {1, 5, INET_ICMP_REFUSED},
        {1, 6, INET_ICMP_REFUSED},     {3, 0, INET_ICMP_OTHER},   {4, 0, INET_ICMP_OTHER},
        {4, 1, INET_ICMP_REFUSED},
    };
    struct frame f, g;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(rows); i++) {
        make_error6(&f, rows[i].type, rows[i].code, 0, "fd00::1", "fd09::9", 6);
        above.errors = 0;
        not_dropped(&f);
        assert_int_equal(above.errors, test_reactors);
        assert_int_equal(above.error[0].what, rows[i].what);
        assert_int_equal(above.error[0].seq, 4711);
        assert_int_equal(above.error[0].mtu, 0);
    }
    above.errors = 0;
    make_error6(&f, 2, 0, 1300, "fd00::1", "fd09::9", 6);
    not_dropped(&f);
    assert_int_equal(above.error[0].what, INET_ICMP_TOO_BIG);
    assert_int_equal(above.error[0].mtu, 1300);
    above.errors = 0;
    /* Not ours, not TCP; an MTU that is none, or no smaller; not enough quoted. */
    make_error6(&f, 1, 0, 0, "fd00::7", "fd09::9", 6);
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error6(&f, 1, 0, 0, "fd00::1", "fd09::9", 17);
    dropped(&f, PKT_DROP_ICMP_BAD);
    make_error6(&f, 1, 0, 0, "::ffff:10.0.0.1", "fd09::9", 6);
    dropped(&f, PKT_DROP_ICMP_BAD);
    make_error6(&f, 2, 0, 1279, "fd00::1", "fd09::9", 6);
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error6(&f, 2, 0, 1500, "fd00::1", "fd09::9", 6);
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error6(&f, 2, 0, UINT32_MAX, "fd00::1", "fd09::9", 6);
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error6(&f, 1, 0, 0, "fd00::1", "fd09::9", 6);
    for (unsigned len = 8; len < 56; len++) {
        g = f;
        g.len = ICMP + len;
        end_ip6(&g);
        end_icmp(&g, ICMP);
        dropped(&g, PKT_DROP_ICMP_BAD);
    }
    assert_int_equal(above.errors, 0);
    end_inet();
}

static void test_udp_is_refused(void **state)
{
    struct frame f, out = {.len = 0};

    quiet_inet();
    know_peer6();
    make6(&f, "fd00::2", "fd00::1", 17, 64);
    put_fill(&f, 1400);
    end_ip6(&f);
    dropped(&f, PKT_DROP_IP_PROTO);
    assert_true(leave(&out));
    assert_int_equal(out.b[ICMP], 1);
    assert_int_equal(out.b[ICMP + 1], 4);
    assert_int_equal(out.len, 14 + 1280); /* RFC 4443 §2.4 (c) */
    assert_true(icmp_right(&out, ICMP));
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping6),        cmocka_unit_test(test_tcp6),
        cmocka_unit_test(test_solicited),    cmocka_unit_test(test_moves),
        cmocka_unit_test(test_nd_malformed), cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_extensions),   cmocka_unit_test(test_ip6_header),
        cmocka_unit_test(test_errors_heard), cmocka_unit_test(test_udp_is_refused),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
