/* SPDX-License-Identifier: BSD-3-Clause */
/* Between reactors: packets to the reactor at home, what is learnt to all, and the end of it. */
#include "inet_test.h"

static unsigned last(void)
{
    return test_reactors - 1;
}

static void test_home_gets_it(void **state)
{
    struct inet_stats stats;
    struct frame f;

    quiet_inet();
    test_home = last();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 100);
    for (unsigned i = 0; i < 50; i++)
        arrive_on(&paper, 0, &f);
    settle();
    assert_int_equal(above.inputs, 50);
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(above.input[i].reactor, last());
        assert_int_equal(pkt_of(above.input[i].m)->hops, last() == 0 ? 0 : 1);
        assert_int_equal(pkt_of(above.input[i].m)->l4_len, 120);
    }
    inet_stats_get(inet, 0, &stats);
    assert_int_equal(stats.handed_over, last() == 0 ? 0 : 50);
    assert_int_equal(all_drops(), 0);
    end_inet();
}

/* A reactor that would sleep is told: a mail is there for it. */
static void test_a_sleeper_is_woken(void **state)
{
    struct reactor_stats before, after;
    struct frame f;

    quiet_inet();
    test_home = last();
    reactor_stats_get(reactor_at(test_env, last()), &before);
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 100);
    for (unsigned i = 0; i < 20; i++)
        arrive_on(&paper, 0, &f);
    ON(0, reactor_step(reactor_self(), 0));
    settle();
    assert_int_equal(above.inputs, 20);
    reactor_stats_get(reactor_at(test_env, last()), &after);
    assert_int_equal(after.mails_in - before.mails_in, 1);
    /* And the next time again. */
    arrive_on(&paper, 0, &f);
    settle();
    reactor_stats_get(reactor_at(test_env, last()), &before);
    assert_int_equal(before.mails_in - after.mails_in, 1);
    assert_int_equal(above.inputs, 21);
    end_inet();
}

static void test_never_round_and_round(void **state)
{
    struct frame f;

    quiet_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 100);
    above.pass_on = 0;
    if (test_reactors > 1)
        test_home = last(), above.pass_on = 1;
    dropped(&f, PKT_DROP_HANDOVER_LOOP);
    end_inet();
}

static void test_full_ring(void **state)
{
    unsigned sent = 0;
    struct frame f;

    quiet_inet();
    test_home = last();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    /* The other reactor does not run. */
    for (; sent < INET_HAND_RING + 64; sent++)
        arrive_on(&paper, 0, &f);
    reactor_bind(reactor_at(test_env, 0));
    while (paper.nin[0] > 0)
        reactor_step(reactor_self(), 0);
    reactor_bind(reactor_control(test_env));
    assert_int_equal(drops(PKT_DROP_HANDOVER_FULL), sent - (INET_HAND_RING - 1));
    settle();
    assert_int_equal(above.inputs, TOLD_MAX);
    end_inet();
}

/* Each reactor asks for itself, and whichever gets the answer tells the others. */
static void test_answers_reach_all(void **state)
{
    struct frame f;

    quiet_inet();
    for (unsigned i = 0; i < test_reactors; i++)
        send_tcp(i, "10.0.0.1", "10.0.0.2", i);
    assert_int_equal(paper.nout, test_reactors);
    paper_clear(&paper);
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    not_dropped(&f);
    assert_int_equal(paper.nout, test_reactors);
    for (unsigned i = 0; i < test_reactors; i++) {
        assert_true(leave(&f));
        assert_int_equal(get16(f.b + 12), 0x0800);
        assert_memory_equal(f.b, peer_mac, 6);
    }
    end_inet();
}

/* An ICMP error about a segment of ours. */
static void make_error(struct frame *f, unsigned type, unsigned code, unsigned mtu,
                       const char *quoted_src, const char *quoted_dst)
{
    put_eth(f, our_mac, peer_mac, 0x0800);
    put_ip4(f, "10.0.0.254", "10.0.0.1", 1);
    put8(f, type);
    put8(f, code);
    put16(f, 0);
    put32(f, mtu);
    put_ip4(f, quoted_src, quoted_dst, 6);
    set16(f->b + 44, 1500);
    put_tcp(f, 988, 1023, 4711);
    end_ip4(f);
    end_icmp(f, 34);
}

static void test_errors_reach_all(void **state)
{
    struct frame f;
    unsigned seen = 0;

    quiet_inet();
    make_error(&f, 3, 4, 1400, "10.0.0.1", "192.168.0.9");
    not_dropped(&f);
    assert_int_equal(above.errors, test_reactors);
    for (unsigned i = 0; i < above.errors; i++) {
        const struct told *t = &above.error[i];

        seen |= 1u << t->reactor;
        assert_int_equal(t->what, INET_ICMP_TOO_BIG);
        assert_int_equal(t->mtu, 1400);
        assert_int_equal(t->lport, 988);
        assert_int_equal(t->rport, 1023);
        assert_int_equal(t->seq, 4711);
        assert_memory_equal(t->local.b, addr("10.0.0.1").b, 16);
        assert_memory_equal(t->remote.b, addr("192.168.0.9").b, 16);
    }
    assert_int_equal(seen, (1u << test_reactors) - 1);
    end_inet();
}

/* Forged errors do not push out what is learnt of neighbours, while another reactor does not run.
 */
static void test_errors_leave_room(void **state)
{
    struct frame f;

    quiet_inet();
    send_tcp(last(), "10.0.0.1", "10.0.0.2", 7);
    paper_clear(&paper);
    make_error(&f, 3, 4, 1400, "10.0.0.1", "192.168.0.9");
    for (unsigned i = 0; i < 2 * INET_NOTE_RING; i++)
        arrive_on(&paper, 0, &f);
    make_arp(&f, our_mac, 2, peer_mac, "10.0.0.2", our_mac, "10.0.0.1");
    arrive_on(&paper, 0, &f);
    reactor_bind(reactor_at(test_env, 0));
    while (paper.nin[0] > 0)
        reactor_step(reactor_self(), 0);
    reactor_bind(reactor_control(test_env));
    assert_int_equal(drops(PKT_DROP_HANDOVER_FULL),
                     (test_reactors - 1) * (2 * INET_NOTE_RING - INET_NOTE_RING / 2));
    settle();
    assert_int_equal(paper.nout, 1); /* it waited for its neighbour at the other reactor */
    assert_true(leave(&f));
    assert_memory_equal(f.b, peer_mac, 6);
    end_inet();
}

/* Nor do MLD queries, which the first reactor answers, and questions about our addresses. */
static void test_queries_leave_room(void **state)
{
    const struct note flood[] = {
        {.kind = NOTE_MLD, .within_ms = 1000},
        {.kind = NOTE_NEIGH, .flags = NEIGH_OVERRIDE | NEIGH_ASKED, .addr = addr("10.0.0.2")}};
    struct note conflict = {.kind = NOTE_CONFLICT};
    struct note reply = {.kind = NOTE_NEIGH, .flags = NEIGH_SOLICITED, .addr = addr("10.0.0.2")};

    for (unsigned i = 0; i < RTE_DIM(flood); i++) {
        quiet_inet();
        reactor_bind(reactor_at(test_env, 1));
        for (unsigned k = 0; k < 2 * INET_NOTE_RING; k++)
            hand_note_to(inet_shard_of(inet, 1), 0, &flood[i]);
        hand_note_to(inet_shard_of(inet, 1), 0, &conflict);
        hand_note_to(inet_shard_of(inet, 1), 0, &reply);
        reactor_bind(reactor_control(test_env));
        assert_int_equal(drops(PKT_DROP_HANDOVER_FULL), 2 * INET_NOTE_RING - INET_NOTE_RING / 2);
        settle();
        end_inet();
    }
}

/* Queues of a port are shared out. */
static void test_queues(void **state)
{
    struct inet_prefix net = prefix("10.0.0.1", 24);
    struct inet_if_opts opts = {.name = "eth0", .port = &paper.port, .addr = &net, .addrs = 1};
    struct frame f;

    begin_inet();
    paper_begin(&paper, 4);
    add_if(&opts);
    start_inet();
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    for (unsigned q = 0; q < 4; q++)
        arrive_on(&paper, q, &f);
    settle();
    assert_int_equal(above.inputs, 4);
    for (unsigned i = 0; i < test_reactors; i++)
        assert_in_range(inet_shard_of(inet, i)->rxqs, 4 / test_reactors,
                        (4 + test_reactors - 1) / test_reactors);
    end_inet();
}

/* It ends while packets are everywhere; end_inet() sees that all buffers come back. */
static void test_end_in_the_middle(void **state)
{
    struct frame f;

    quiet_inet();
    test_home = last();
    send_tcp(0, "10.0.0.1", "10.0.0.7", 0);
    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    for (unsigned i = 0; i < 100; i++)
        arrive_on(&paper, 0, &f);
    ON(0, reactor_step(reactor_self(), 0));
    rte_pktmbuf_free_bulk(paper.in[0], paper.nin[0]);
    paper.nin[0] = 0;
    end_inet();
    /* Not even begun. */
    begin_inet();
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_home_gets_it),
        cmocka_unit_test(test_a_sleeper_is_woken),
        cmocka_unit_test(test_never_round_and_round),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_answers_reach_all),
        cmocka_unit_test(test_errors_reach_all),
        cmocka_unit_test(test_errors_leave_room),
        cmocka_unit_test(test_queries_leave_room),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_end_in_the_middle),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
