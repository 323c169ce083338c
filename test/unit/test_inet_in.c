/* SPDX-License-Identifier: BSD-3-Clause */
/* The IP layer's way in and out: what is answered, what reaches TCP, what is dropped under which
 * name. */
#include "inet_test.h"

/* ---- the plain way ---- */

static void test_ping_is_answered(void **state)
{
    struct frame f, out;

    quiet_inet();
    make_ping4(&f, "10.0.0.2", "10.0.0.1", 56);
    not_dropped(&f);
    /* Where the answer goes is asked first. */
    assert_true(leave(&out));
    assert_int_equal(get16(out.b + 12), 0x0806);
    assert_memory_equal(out.b, all_mac, 6);
    assert_int_equal(get16(out.b + 20), 1);
    assert_memory_equal(out.b + 22, our_mac, 6);
    assert_memory_equal(out.b + 28, addr("10.0.0.1").b + 12, 4);
    assert_memory_equal(out.b + 38, addr("10.0.0.2").b + 12, 4);
    assert_false(leave(&out));
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    not_dropped(&f);
    assert_true(leave(&out));
    assert_memory_equal(out.b, peer_mac, 6);
    assert_memory_equal(out.b + 6, our_mac, 6);
    assert_int_equal(get16(out.b + 12), 0x0800);
    assert_int_equal(get16(out.b + 16), 84);
    assert_memory_equal(out.b + 26, addr("10.0.0.1").b + 12, 4);
    assert_memory_equal(out.b + 30, addr("10.0.0.2").b + 12, 4);
    assert_int_equal(out.b[34], 0);
    assert_true(icmp_right(&out, 34));
    make_ping4(&f, "10.0.0.2", "10.0.0.1", 56);
    assert_memory_equal(out.b + 38, f.b + 38, 60);
    assert_false(leave(&out));
    end_inet();
}

static void test_ping_of_all_sizes(void **state)
{
    static const unsigned sizes[] = {0, 1, 2, 3, 8, 100, 1000, 1471, 1472};
    struct frame f, out;

    quiet_inet();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 0);
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    not_dropped(&f);
    paper_clear(&paper);
    for (unsigned i = 0; i < RTE_DIM(sizes); i++) {
        make_ping4(&f, "10.0.0.2", "10.0.0.1", sizes[i]);
        not_dropped(&f);
        assert_true(leave(&out));
        assert_int_equal(out.len, 42 + sizes[i]);
        assert_true(icmp_right(&out, 34));
        assert_memory_equal(out.b + 38, f.b + 38, sizes[i] + 4);
    }
    end_inet();
}

static void test_tcp_reaches_its_upper(void **state)
{
    struct frame f;
    struct pkt *pkt;

    quiet_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 10);
    put_fill(&f, 6); /* the padding of a short frame */
    not_dropped(&f);
    assert_int_equal(above.inputs, 1);
    pkt = pkt_of(above.input[0].m);
    assert_int_equal(pkt->l3, 14);
    assert_int_equal(pkt->l4, 34);
    assert_int_equal(pkt->l4_len, 30);
    assert_int_equal(pkt->family, 4);
    assert_int_equal(pkt->proto, 6);
    assert_int_equal(pkt->hops, 0);
    assert_false(pkt->l4_ok);
    assert_ptr_equal(pkt->ifp, inet_if_find(inet, "eth0"));
    assert_int_equal(above.input[0].m->pkt_len, 64);
    end_inet();
}

static void test_checksums_the_device_has_seen(void **state)
{
    struct frame f;

    quiet_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 10);
    arrive_on(&paper, 0, &f)->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    arrive_on(&paper, 0, &f)->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_NONE;
    settle();
    assert_int_equal(above.inputs, 2);
    assert_true(pkt_of(above.input[0].m)->l4_ok);
    assert_true(pkt_of(above.input[1].m)->l4_ok);
    arrive_on(&paper, 0, &f)->ol_flags = RTE_MBUF_F_RX_L4_CKSUM_BAD;
    arrive_on(&paper, 0, &f)->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_BAD;
    settle();
    assert_int_equal(drops(PKT_DROP_TCP_CSUM), 1);
    assert_int_equal(drops(PKT_DROP_IP_CSUM), 1);
    /* One that was verified is not looked at. */
    set16(f.b + 24, 0);
    arrive_on(&paper, 0, &f)->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
    settle();
    assert_int_equal(above.inputs, 3);
    end_inet();
}

static void test_what_is_sent(void **state)
{
    struct frame f, out;
    struct rte_mbuf *m = NULL;

    quiet_inet();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 100);
    assert_true(leave(&out)); /* the question */
    assert_false(leave(&out));
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    not_dropped(&f);
    assert_true(leave_from(&paper, &out, &m));
    assert_int_equal(out.len, 154);
    assert_int_equal(out.b[14], 0x45);
    assert_int_equal(get16(out.b + 16), 140);
    assert_int_equal(get16(out.b + 20), 0x4000);
    assert_int_equal(out.b[23], 6);
    assert_int_equal(m->l2_len, 14);
    assert_int_equal(m->l3_len, 20);
    assert_int_equal(m->l4_len, 20);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IPV4);
    assert_true(m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM);
    assert_int_equal(m->ol_flags & RTE_MBUF_F_TX_L4_MASK, RTE_MBUF_F_TX_TCP_CKSUM);
    /* The pseudo header of RFC 9293 §3.1. */
    assert_int_equal(get16(out.b + 50), add_words(6 + 120, out.b + 26, 8));
    rte_pktmbuf_free(m);
    end_inet();
}

static void test_larger_than_the_mtu(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;
    struct rte_mbuf *m = NULL;

    quiet_inet();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1460);
    assert_int_equal(drops(PKT_DROP_IP_TOO_BIG), 0);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1461);
    assert_int_equal(drops(PKT_DROP_IP_TOO_BIG), 1);
    /* What the port cuts may be longer, its pieces may not. */
    ON(0, {
        struct inet_shard *sh = inet_shard_of(inet, 0);

        assert_int_equal(inet_path_get(sh, NULL, &l, &r, &path), 0);
        for (unsigned mss = 1460; mss <= 1461; mss++) {
            m = inet_alloc(sh, &path);
            memset(rte_pktmbuf_append(m, 2000), 0, 2000);
            m->l4_len = 20;
            m->tso_segsz = (uint16_t)mss;
            inet_send(sh, &path, m, 6, 0);
        }
    });
    settle();
    assert_int_equal(drops(PKT_DROP_IP_TOO_BIG), 2);
    end_inet();
}

/* ---- the port is full, or has no buffers ---- */

static void test_full_port(void **state)
{
    struct frame f, out;
    unsigned n = 0;

    quiet_inet();
    send_tcp(0, "10.0.0.1", "10.0.0.2", 0);
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    not_dropped(&f);
    paper_clear(&paper);
    paper.room = 0;
    for (unsigned i = 0; i < INET_TXQ + 3; i++)
        send_tcp(0, "10.0.0.1", "10.0.0.2", i);
    assert_int_equal(drops(PKT_DROP_PORT_FULL), 3);
    assert_true(inet_shard_of(inet, 0)->poller.max_sleep_us <= 1000);
    /* In order, when there is room; by and by. */
    while (n < INET_TXQ) {
        paper.room = 5;
        settle();
        while (leave(&out))
            assert_int_equal(out.len, 54 + n++);
    }
    assert_int_equal(n, INET_TXQ);
    assert_int_equal(inet_shard_of(inet, 0)->backlog, 0);
    end_inet();
}

static void test_no_buffers(void **state)
{
    struct frame f;

    quiet_inet();
    paper.no_mbufs = true;
    make_ping4(&f, "10.0.0.2", "10.0.0.1", 8);
    dropped(&f, PKT_DROP_NO_MBUF);
    make_arp(&f, all_mac, 1, peer_mac, "10.0.0.2", NULL, "10.0.0.1");
    dropped(&f, PKT_DROP_NO_MBUF);
    end_inet();
}

/* ---- what is refused ---- */

static void test_ethernet(void **state)
{
    struct frame f;

    quiet_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    memcpy(f.b, third_mac, 6);
    dropped(&f, PKT_DROP_ETH_NOT_OURS);
    /* RFC 1122 §3.3.6: to all stations, but for one address. */
    memcpy(f.b, all_mac, 6);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    memcpy(f.b, our_mac, 6);
    memcpy(f.b + 6, all_mac, 6);
    dropped(&f, PKT_DROP_ETH_NOT_OURS);
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    set16(f.b + 12, 0x88cc);
    dropped(&f, PKT_DROP_ETH_TYPE);
    set16(f.b + 12, 0x8100);
    dropped(&f, PKT_DROP_ETH_VLAN);
    for (unsigned len = 1; len < 14; len++) {
        f.len = len;
        dropped(&f, PKT_DROP_ETH_SHORT);
    }
    assert_int_equal(above.inputs, 0);
    end_inet();
}

static void test_addresses(void **state)
{
    static const char *const sources[] = {"0.0.0.0",    "0.0.0.1",   "127.0.0.1",
                                          "224.0.0.1",  "240.0.0.1", "255.255.255.255",
                                          "10.0.0.255", "10.0.0.0",  "10.0.0.1"};
    static const char *const others[] = {"10.0.0.3", "10.0.0.255", "224.0.0.1", "255.255.255.255"};
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(sources); i++) {
        make_ping4(&f, sources[i], "10.0.0.1", 8);
        dropped(&f, PKT_DROP_IP_SOURCE);
        make_tcp4(&f, sources[i], "10.0.0.1", 8);
        dropped(&f, PKT_DROP_IP_SOURCE);
    }
    for (unsigned i = 0; i < RTE_DIM(others); i++) {
        make_ping4(&f, "10.0.0.2", others[i], 8);
        dropped(&f, PKT_DROP_IP_NOT_OURS);
        memcpy(f.b, all_mac, 6);
        dropped(&f, PKT_DROP_IP_NOT_OURS);
    }
    assert_int_equal(paper.nout, 0);
    end_inet();
}

static void test_ip4_header(void **state)
{
    struct frame f, g;

    quiet_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 30);
    for (unsigned len = 14; len < f.len; len++) {
        g = f;
        g.len = len;
        dropped(&g, len < 34 ? PKT_DROP_ETH_SHORT : PKT_DROP_IP_BAD);
    }
    g = f;
    g.b[14] = 0x55;
    dropped(&g, PKT_DROP_IP_BAD);
    for (unsigned ihl = 0; ihl < 5; ihl++) {
        g = f;
        g.b[14] = (uint8_t)(0x40 | ihl);
        dropped(&g, PKT_DROP_IP_BAD);
    }
    for (unsigned total = 0; total < 20; total++) {
        g = f;
        set16(g.b + 16, total);
        dropped(&g, PKT_DROP_IP_BAD);
    }
    g = f;
    set16(g.b + 16, f.len - 14 + 1);
    dropped(&g, PKT_DROP_IP_BAD);
    for (unsigned bit = 0; bit < 16; bit++) {
        g = f;
        g.b[24 + bit / 8] ^= (uint8_t)(1 << bit % 8);
        dropped(&g, PKT_DROP_IP_CSUM);
    }
    assert_int_equal(above.inputs, 0);
    end_inet();
}

static void test_fragments(void **state)
{
    static const unsigned words[] = {0x2000, 0x2001, 0x0001, 0x1fff, 0x6000};
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(words); i++) {
        make_tcp4(&f, "10.0.0.2", "10.0.0.1", 30);
        set16(f.b + 20, words[i]);
        end_ip4(&f);
        dropped(&f, PKT_DROP_IP_FRAGMENT);
    }
    assert_int_equal(paper.nout, 0);
    end_inet();
}

/* A TCP packet with IPv4 options. */
static void make_options(struct frame *f, const uint8_t *options, unsigned n)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, "10.0.0.2", "10.0.0.1", 6);
    f->b[14] = (uint8_t)(0x45 + n / 4);
    put(f, options, n);
    put_tcp(f, 1023, 988, 1);
    end_ip4(f);
}

static void test_ip4_options(void **state)
{
    static const struct {
        uint8_t b[40];
        unsigned n;
        bool fine;
    } rows[] = {
        {{1, 1, 1, 1}, 4, true},                 /* no operation */
        {{0, 99, 98, 97}, 4, true},              /* end: nothing behind it counts */
        {{7, 7, 4, 0, 0, 0, 0, 0}, 8, true},     /* record route */
        {{148, 4, 0, 0}, 4, true},               /* router alert */
        {{94, 3, 7, 0}, 4, true},                /* unknown */
        {{7, 39, 4, [39] = 0}, 40, true},        /* all there can be */
        {{131, 7, 4, 10, 0, 0, 9, 0}, 8, false}, /* source routes */
        {{137, 7, 4, 10, 0, 0, 9, 0}, 8, false},
        {{1, 131, 3, 4}, 4, false},
        {{7, 0, 0, 0}, 4, false}, /* lengths that lie */
        {{7, 1, 0, 0}, 4, false},
        {{7, 5, 0, 0}, 4, false},
        {{1, 1, 7, 3}, 4, false},
        {{1, 1, 1, 7}, 4, false},
    };
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(rows); i++) {
        make_options(&f, rows[i].b, rows[i].n);
        if (!rows[i].fine) {
            dropped(&f, PKT_DROP_IP_OPTIONS);
            continue;
        }
        not_dropped(&f);
        assert_int_equal(above.inputs, 1);
        assert_int_equal(pkt_of(above.input[0].m)->l4, 34 + rows[i].n);
        assert_int_equal(pkt_of(above.input[0].m)->l4_len, 20);
        inputs_free();
    }
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ping_is_answered),
        cmocka_unit_test(test_ping_of_all_sizes),
        cmocka_unit_test(test_tcp_reaches_its_upper),
        cmocka_unit_test(test_checksums_the_device_has_seen),
        cmocka_unit_test(test_what_is_sent),
        cmocka_unit_test(test_larger_than_the_mtu),
        cmocka_unit_test(test_full_port),
        cmocka_unit_test(test_no_buffers),
        cmocka_unit_test(test_ethernet),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_ip4_header),
        cmocka_unit_test(test_fragments),
        cmocka_unit_test(test_ip4_options),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
