/* SPDX-License-Identifier: BSD-3-Clause */
/* Copy buffers that many connections keep, each few: what is left for others, and who is ended. */
#include "tcp_tx_test.h"

#define SEG      1000u
#define HOARDERS 900

static const struct test_opts plain = {
    .mss = SEG, .isn = UINT32_MAX - 1500, .rtt_us = 20 * MS, .wnd = 1 << 20, .wscale = 5};
static struct tcp_conn *hoarders[HOARDERS];

static void wire(const struct sent *s)
{
    (void)s;
}

static struct told ack_at(uint64_t off, uint32_t win)
{
    return (struct told){.ack = off, .win = win};
}

/* Others keep all buffers. */
static void hoard(void)
{
    struct tcp_conn *own = c;
    uint64_t off = una_off;

    for (unsigned i = 0; i < HOARDERS; i++) {
        open_another(plain);
        hoarders[i] = c;
        give(0, 4 * TX_COPY_ROOM, 100, false, false);
        assert_true(c->tx.copied >= 200);
    }
    assert_int_equal(rte_mempool_avail_count(tcp.copy_pool), 0);
    c = own;
    una_off = off;
}

static void hoard_end(void)
{
    struct tcp_conn *last = c;

    for (unsigned i = 0; i < HOARDERS; i++) {
        tcp_tx_free(hoarders[i]);
        free(hoarders[i]);
    }
    c = last;
    close_conn();
}

/* However many connections keep small pieces, one that holds nothing sends, and it is told when its
 * own buffer is free again. */
static void test_hoarded_copies(void **state)
{
    open_conn(plain);
    hoard();
    for (uint64_t off = 0; off < 10 * 256; off += 256) {
        assert_int_equal(give(off, 300, 100, false, false), 256);
        assert_true(c->tx.blocked);
        flush();
        tell_ack(ack_at(off + 255, 1 << 20));
        assert_true(c->tx.blocked);
        c->tell_writable = false;
        tell_ack(ack_at(off + 256, 1 << 20));
        assert_true(c->tell_writable);
    }
    assert_int_equal(sh.stats.copies_short, 10 + HOARDERS - 544);
    hoard_end();
}

/* A device still has the frame when it is acknowledged: a timer looks. */
static void test_small_copy_sent(void **state)
{
    struct rte_mbuf *held; /* by a device */

    open_conn(plain);
    hoard();
    assert_int_equal(give(0, 300, 300, false, false), 256);
    held = tcp_queue_chain(c, c->tx.head, isn, 256);
    flush();
    tell_ack(ack_at(256, 1 << 20));
    pass_until(now + 20 * MS);
    assert_true(c->tx.blocked);
    rte_pktmbuf_free(held);
    pass_until(now + 20 * MS);
    assert_false(c->tx.blocked);
    hoard_end();
}

/* While buffers are short, who took nothing for two seconds is ended, and no more than it takes. */
static void test_hoarders_end(void **state)
{
    open_conn(plain);
    hoard();
    pass_until(now + 1900 * MS);
    assert_int_equal(sh.stats.stuck_reset, 0);
    assert_int_equal(give(0, 100, 100, false, false), 100);
    flush();
    tell_ack(ack_at(100, 1 << 20));
    pass_until(now + 2000 * MS);
    assert_true(rte_mempool_avail_count(tcp.copy_pool) >= 2048 * 3 / 8);
    assert_true(rte_mempool_avail_count(tcp.copy_pool) <= 2048 * 3 / 8 + 4);
    assert_true(sh.stats.stuck_reset < HOARDERS / 3);
    assert_true(c->tx.open);
    assert_int_equal(give(100, 5 * SEG, SEG, false, false), 5 * SEG);
    hoard_end();
}

/* Who takes 64 KiB in that time is not ended, however much is queued for it. */
static void test_slow_one_stays(void **state)
{
    open_conn(plain);
    c->tx.cwnd = 1 << 20;
    assert_int_equal(give(0, 200, 200, false, false), 200);
    assert_int_equal(give(200, 400 * SEG, SEG, true, false), 400 * SEG);
    assert_int_equal(give(200 + 400 * SEG, 200, 200, false, false), 200);
    flush();
    pass_until(now + 500 * MS);
    tell_ack(ack_at(1 << 16, 1 << 20));
    pass_until(now + 1400 * MS);
    tell_ack(ack_at(2 << 16, 1 << 20));
    hoard();
    pass_until(now + 1900 * MS);
    assert_int_equal(sh.stats.stuck_reset, 0);
    pass_until(now + 400 * MS);
    assert_true(sh.stats.stuck_reset > 0);
    assert_false(c->tx.open);
    hoard_end();
}

/* ---- peers that take nothing ---- */

#define STALLED 60
#define MANY    (TEST_CONNS - 1)

static struct tcp_conn *stalled[MANY];
static unsigned nstalled;

static struct test_opts opts_with(struct test_opts o)
{
    o.mss = o.mss != 0 ? o.mss : SEG;
    o.rtt_us = plain.rtt_us;
    return o;
}

static void stall(struct test_opts o, unsigned n, unsigned (*fill)(void))
{
    open_conn(opts_with(o));
    nstalled = n;
    for (unsigned i = 0; i < n; i++) {
        if (i > 0)
            open_another(opts_with(o));
        stalled[i] = c;
        c->tx.cwnd = 1 << 20;
        assert_true(fill() > 0);
        flush();
    }
    open_another(opts_with((struct test_opts){0}));
    c->tx.cwnd = 100 * SEG;
}

/* The healthy one sends so many segments at once, and they are acknowledged. */
static void still_sends(bool by_ref, unsigned segs)
{
    for (uint64_t off = 0; off < 40 * SEG; off += segs * SEG) {
        assert_int_equal(give(off, segs * SEG, SEG, by_ref, false), segs * SEG);
        flush();
        assert_int_equal(off_of(c->tx.nxt), off + segs * SEG);
        clock_to(now + 20 * MS);
        tell_ack(ack_at(off + segs * SEG, 60000));
    }
}

static void stall_end(void)
{
    struct tcp_conn *healthy = c;

    for (unsigned i = 0; i < nstalled; i++) {
        tcp_tx_free(stalled[i]);
        assert_int_equal(stalled[i]->tx.pieces + stalled[i]->tx.records + stalled[i]->tx.copied, 0);
        free(stalled[i]);
    }
    c = healthy;
    close_conn();
}

static unsigned fill_pieces(void)
{
    return give_bytes(0, 70000);
}

/* Peers with closed windows: what is queued for them stays. */
static void test_stalled_pieces(void **state)
{
    stall((struct test_opts){.wnd = 1}, STALLED, fill_pieces);
    assert_true(sh.copies->nfree_data < TX_DATA_MAX / 3);
    still_sends(true, 8);
    stall_end();
}

static unsigned fill_records(void)
{
    return give(0, 100000, 1900, true, false);
}

/* Peers that acknowledge nothing. */
static void test_stalled_records(void **state)
{
    stall((struct test_opts){.mss = 48, .wnd = 1 << 20, .wscale = 5}, STALLED, fill_records);
    assert_true(sh.copies->nfree_segs < TX_SEGS_MAX / 5);
    still_sends(true, 8);
    stall_end();
}

static unsigned fill_few_pieces(void)
{
    return give_bytes(0, 900);
}

/* As many connections as there may be have two at least, of a stock that the others keep. */
static void test_many_with_pieces(void **state)
{
    stall((struct test_opts){.wnd = 1}, MANY, fill_few_pieces);
    still_sends(true, 2);
    stall_end();
}

static unsigned fill_few_records(void)
{
    return give(0, 1900, 1900, true, false);
}

static void test_many_with_records(void **state)
{
    stall((struct test_opts){.mss = 48, .wnd = 1 << 20, .wscale = 5}, MANY, fill_few_records);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(stalled[i]->tx.records >= 2);
    still_sends(true, 2);
    stall_end();
}

/* However many connections have their least part, the stock lasts for many more. */
static void test_shares(void **state)
{
    const uint32_t all = TX_SEGS_MAX, reserve = all / TX_RESERVE;

    assert_int_equal(tx_share(all, all, TX_SEGS_PART, 16), (all - reserve) / TX_SEGS_PART);
    assert_int_equal(tx_share(reserve, all, TX_SEGS_PART, 16), 16);
    assert_int_equal(tx_share(reserve / 2, all, TX_SEGS_PART, 16), 16);
    assert_int_equal(tx_share(reserve / 2 - 1, all, TX_SEGS_PART, 16), TX_LEAST);
    assert_int_equal(tx_share(0, all, TX_SEGS_PART, 16), TX_LEAST);
}

static unsigned fill_copies(void)
{
    return give(0, 1 << 20, 1900, false, false);
}

static void test_stalled_copies(void **state)
{
    stall((struct test_opts){.wnd = 1}, STALLED, fill_copies);
    assert_true(rte_mempool_avail_count(tcp.copy_pool) < 2048 / 5);
    still_sends(false, 8);
    stall_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hoarded_copies),   cmocka_unit_test(test_small_copy_sent),
        cmocka_unit_test(test_hoarders_end),     cmocka_unit_test(test_slow_one_stays),
        cmocka_unit_test(test_stalled_pieces),   cmocka_unit_test(test_stalled_records),
        cmocka_unit_test(test_many_with_pieces), cmocka_unit_test(test_many_with_records),
        cmocka_unit_test(test_shares),           cmocka_unit_test(test_stalled_copies),
    };

    return cmocka_run_group_tests_name("tcp_tx_hoard", tests, begin_env, end_env);
}
