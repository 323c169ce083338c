/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP: errors sent and their limits, errors heard and what is believed of them. */
#include "inet_test.h"

static void know(const char *ip)
{
    struct frame f;

    send_tcp(0, "10.0.0.1", ip, 0);
    make_arp(&f, our_mac, 2, peer_mac, ip, our_mac, "10.0.0.1");
    not_dropped(&f);
    paper_clear(&paper);
}

static void make_other(struct frame *f, unsigned proto, unsigned payload)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, "10.0.0.2", "10.0.0.1", proto);
    put_fill(f, payload);
    end_ip4(f);
}

/* ---- sent ---- */

static void test_told_who_sends_what_nobody_speaks(void **state)
{
    struct frame f, out = {.len = 0};

    quiet_inet();
    know("10.0.0.2");
    for (unsigned payload = 8; payload <= 1480; payload += 368) {
        make_other(&f, 17, payload);
        dropped(&f, PKT_DROP_IP_PROTO);
        assert_true(leave(&out));
        assert_int_equal(out.b[34], 3);
        assert_int_equal(out.b[35], 3);
        assert_true(icmp_right(&out, 34));
        /* As much as fits into 576 bytes, RFC 1812 §4.3.2.3. */
        assert_int_equal(out.len, min(14 + 576u, 14 + 28 + 20 + payload));
        assert_memory_equal(out.b + 42, f.b + 14, out.len - 42);
        assert_memory_equal(out.b + 30, addr("10.0.0.2").b + 12, 4);
    }
    make_other(&f, 132, 40);
    dropped(&f, PKT_DROP_IP_PROTO);
    assert_true(leave(&out));
    assert_int_equal(out.b[34], 3);
    assert_int_equal(out.b[35], 2);
    end_inet();
}

static unsigned returned;

static void give_back(void *addr, void *opaque)
{
    returned++;
}

/* A frame whose bytes belong to somebody else, as ports have them: they go back there when what is
 * sent back of it has gone. */
static void test_borrowed_bytes(void **state)
{
    static struct {
        uint8_t b[2048];
        struct rte_mbuf_ext_shared_info info;
    } lent;
    struct frame f, out = {.len = 0};
    struct rte_mbuf *m;

    quiet_inet();
    know("10.0.0.2");
    make_ping4(&f, "10.0.0.2", "10.0.0.1", 400);
    memcpy(lent.b, f.b, f.len);
    lent.info.free_cb = give_back;
    rte_mbuf_ext_refcnt_set(&lent.info, 1);
    m = rte_pktmbuf_alloc(pool);
    rte_pktmbuf_attach_extbuf(m, lent.b, RTE_BAD_IOVA, sizeof(lent.b), &lent.info);
    rte_pktmbuf_append(m, (uint16_t)f.len);
    returned = 0;
    paper.in[0][paper.nin[0]++] = m;
    settle();
    assert_int_equal(returned, 0);
    assert_true(leave(&out));
    assert_int_equal(out.len, f.len);
    assert_memory_equal(out.b + 42, f.b + 42, 400);
    assert_int_equal(returned, 1);
    end_inet();
}

static void test_limits(void **state)
{
    struct frame f, out = {.len = 0};
    unsigned sent = 0;

    quiet_inet();
    know("10.0.0.2");
    make_other(&f, 17, 100);
    for (unsigned i = 0; i < 5000; i++) {
        arrive_on(&paper, 0, &f);
        if (i % 10 == 9)
            pass_ms(10); /* 1000 a second, for five */
        while (leave(&out))
            sent += out.b[23] == 1;
    }
    assert_in_range(sent, 5 * 100, 6 * 100);
    assert_int_equal(drops(PKT_DROP_IP_PROTO) + drops(PKT_DROP_ICMP_LIMIT), 5000);
    end_inet();
}

static void test_nobody_is_told_about_all(void **state)
{
    struct frame f;

    quiet_inet();
    know("10.0.0.2");
    make_other(&f, 17, 100);
    memcpy(f.b, all_mac, 6);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    put_eth(&f, our_mac, peer_mac, 0x0800);
    put_ip4(&f, "10.0.0.2", "10.0.0.255", 17);
    put_fill(&f, 20);
    end_ip4(&f);
    dropped(&f, PKT_DROP_IP_NOT_OURS);
    /* About an error, of which it is not known what it quotes, neither. */
    make_other(&f, 1, 40);
    f.b[34] = 3;
    end_icmp(&f, 34);
    dropped(&f, PKT_DROP_ICMP_BAD);
    assert_int_equal(paper.nout, 0);
    end_inet();
}

/* ---- heard ---- */

struct error {
    uint8_t type, code;
    uint32_t rest;
    const char *src, *dst; /* of what is quoted */
    unsigned len, proto;
};

static void make_error(struct frame *f, struct error e)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, "10.0.0.2", "10.0.0.1", 1);
    put8(f, e.type);
    put8(f, e.code);
    put16(f, 0);
    put32(f, e.rest);
    put_ip4(f, !e.src ? "10.0.0.1" : e.src, !e.dst ? "10.0.9.9" : e.dst,
            e.proto == 0 ? 6 : e.proto);
    set16(f->b + 44, e.len == 0 ? 1500 : e.len);
    put16(f, 988);
    put16(f, 1023);
    put32(f, 4711);
    end_ip4(f);
    end_icmp(f, 34);
}

static void test_what_errors_mean(void **state)
{
    static const struct {
        uint8_t type, code;
        enum inet_icmp_error what;
    } rows[] = {
        {3, 0, INET_ICMP_UNREACHABLE},  {3, 1, INET_ICMP_UNREACHABLE},
        {3, 2, INET_ICMP_REFUSED},      {3, 3, INET_ICMP_REFUSED},
        {3, 5, INET_ICMP_UNREACHABLE},  {3, 6, INET_ICMP_UNREACHABLE},
        {3, 9, INET_ICMP_REFUSED},      {3, 10, INET_ICMP_REFUSED},
        {3, 11, INET_ICMP_UNREACHABLE}, {3, 12, INET_ICMP_UNREACHABLE},
        {3, 13, INET_ICMP_REFUSED},     {11, 0, INET_ICMP_OTHER},
        {12, 0, INET_ICMP_OTHER},
    };
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < RTE_DIM(rows); i++) {
        above.errors = 0;
        make_error(&f, (struct error){rows[i].type, rows[i].code});
        not_dropped(&f);
        assert_int_equal(above.errors, test_reactors);
        assert_int_equal(above.error[0].what, rows[i].what);
        assert_int_equal(above.error[0].lport, 988);
        assert_int_equal(above.error[0].rport, 1023);
        assert_int_equal(above.error[0].seq, 4711);
        assert_memory_equal(above.error[0].remote.b, addr("10.0.9.9").b, 16);
    }
    end_inet();
}

static void expect_too_big(uint32_t rest, unsigned len, unsigned mtu)
{
    struct frame f;

    above.errors = 0;
    make_error(&f, (struct error){3, 4, rest, .len = len});
    not_dropped(&f);
    assert_int_equal(above.error[0].what, INET_ICMP_TOO_BIG);
    assert_int_equal(above.error[0].mtu, mtu);
}

static void test_too_big(void **state)
{
    struct inet_addr r = addr("10.0.9.9");
    struct frame f;

    quiet_inet();
    expect_too_big(1400, 1500, 1400);
    expect_too_big(576, 1500, 576);
    expect_too_big(68, 1500, 68); /* the table has its own least */
    /* From before RFC 1191: the next of its table. */
    expect_too_big(0, 1500, 1492);
    expect_too_big(0, 1492, 1006);
    expect_too_big(0, 1006, 576);
    expect_too_big(0, 300, 576);
    /* A path never becomes wider by it. */
    make_error(&f, (struct error){3, 4, 1500});
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    ON(0, inet_path_mtu_set(inet_shard_of(inet, 0), &r, 1200));
    make_error(&f, (struct error){3, 4, 1300});
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    end_inet();
}

static void test_not_believed(void **state)
{
    struct frame f, g;

    quiet_inet();
    make_error(&f, (struct error){3, 3, .src = "10.0.0.7"});
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error(&f, (struct error){3, 3, .dst = "224.0.0.1"});
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error(&f, (struct error){3, 3, .proto = 17});
    dropped(&f, PKT_DROP_ICMP_BAD);
    make_error(&f, (struct error){3, 3, .len = 39});
    dropped(&f, PKT_DROP_ICMP_BAD);
    make_error(&f, (struct error){5, 1}); /* redirect */
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error(&f, (struct error){4, 0}); /* source quench */
    dropped(&f, PKT_DROP_ICMP_IGNORED);
    make_error(&f, (struct error){3, 3});
    for (unsigned len = 34; len < f.len; len++) {
        g = f;
        g.len = len;
        end_ip4(&g);
        if (len >= 42)
            end_icmp(&g, 34);
        dropped(&g, PKT_DROP_ICMP_BAD);
    }
    g = f;
    g.b[42] = 0x65; /* quotes another version */
    end_icmp(&g, 34);
    dropped(&g, PKT_DROP_ICMP_BAD);
    g = f;
    g.b[42] = 0x44;
    end_icmp(&g, 34);
    dropped(&g, PKT_DROP_ICMP_BAD);
    g = f;
    g.b[42] = 0x4f; /* longer than what is quoted */
    end_icmp(&g, 34);
    dropped(&g, PKT_DROP_ICMP_BAD);
    g = f;
    set16(g.b + 48, 0x0001); /* not the first fragment */
    end_icmp(&g, 34);
    dropped(&g, PKT_DROP_ICMP_BAD);
    g = f;
    g.b[37] ^= 1;
    dropped(&g, PKT_DROP_ICMP_BAD);
    assert_int_equal(above.errors, 0);
    end_inet();
}

/* All bytes of good frames are damaged, one and several at a time: nothing falls over, and what
 * gets to TCP is whole. */
static void test_damaged(void **state)
{
    uint64_t random = 88172645463325252ull;
    struct frame good[4], f;

    quiet_inet();
    make_tcp4(&good[0], "10.0.0.2", "10.0.0.1", 50);
    make_ping4(&good[1], "10.0.0.2", "10.0.0.1", 50);
    make_arp(&good[2], all_mac, 1, peer_mac, "10.0.0.2", NULL, "10.0.0.1");
    make_error(&good[3], (struct error){3, 4, 1400});
    for (unsigned i = 0; i < 40000; i++) {
        f = good[i % 4];
        for (unsigned n = 1 + (unsigned)(test_random(&random) % 4); n > 0; n--)
            f.b[test_random(&random) % f.len] = (uint8_t)test_random(&random);
        if (test_random(&random) % 4 == 0)
            f.len = 1 + (unsigned)(test_random(&random) % f.len);
        if (f.len > 34 && test_random(&random) % 2 == 0)
            set16(f.b + 24, 0), set16(f.b + 24, ~add_words(0, f.b + 14, 20) & 0xffff);
        arrive_on(&paper, 0, &f);
        settle();
        for (unsigned k = 0; k < above.inputs; k++) {
            const struct rte_mbuf *m = above.input[k].m;

            assert_int_equal(pkt_of(above.input[k].m)->l4 + pkt_of(above.input[k].m)->l4_len,
                             m->pkt_len);
        }
        inputs_free();
        above.errors = 0;
        paper_clear(&paper);
    }
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told_who_sends_what_nobody_speaks),
        cmocka_unit_test(test_borrowed_bytes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nobody_is_told_about_all),
        cmocka_unit_test(test_what_errors_mean),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_not_believed),
        cmocka_unit_test(test_damaged),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
