/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Segments that leave in the buffer their payload came in: which may, where they are cut so that
 * more can, headers of messages in front of payload, and the sum that payload came with.
 */
#include "tcp_tx_test.h"

#include "lib/base/err.h"

#define SEG  1000u
#define HEAD 96u

static struct sent out[4096];
static unsigned nout;
static struct rte_mempool *port_pool; /* as a port's */

static void wire(const struct sent *s)
{
    assert_true(nout < RTE_DIM(out));
    out[nout++] = *s;
}

static void begin(void)
{
    open_conn(
        (struct test_opts){.mss = SEG, .isn = UINT32_MAX - 5000, .rtt_us = 20 * MS, .wnd = 60000});
    c->tx.cwnd = 100 * SEG;
    nout = 0;
}

static void end(void)
{
    assert_int_equal(rte_mempool_in_use_count(port_pool), 0);
    close_conn();
}

/* As it was received: len bytes of the stream from off on, `at` bytes behind the buffer's begin,
 * with `more` others on each side of them that were summed too. */
static struct rte_mbuf *received(uint64_t off, uint32_t len, uint16_t at, uint32_t more,
                                 bool summed)
{
    struct rte_mbuf *m = rte_pktmbuf_alloc(port_pool);
    struct pkt *p = pkt_of(m);
    uint8_t *all;

    assert_true(at >= more && at + len + more <= m->buf_len);
    m->data_off = (uint16_t)(at - more);
    all = rte_pktmbuf_mtod(m, uint8_t *);
    for (uint32_t i = 0; i < len + 2 * more; i++)
        all[i] = byte_at(off + i - more);
    memset(p, 0, sizeof(*p));
    if (summed) {
        p->sum_at = m->data_off;
        p->sum_len = len + 2 * more;
        p->sum = csum_partial(all, len + 2 * more, 0);
    }
    return m;
}

static struct mem_seg seg_of(struct rte_mbuf *m, uint16_t at, uint32_t len)
{
    return (struct mem_seg){(uint8_t *)m->buf_addr + at, len, mem_mbufs_region(port_pool), 0};
}

/* Gives it to send and forgets it. */
static void give_one(uint64_t off, uint32_t len, uint16_t at, uint32_t more, bool summed)
{
    struct rte_mbuf *m = received(off, len, at, more, summed);
    struct mem_seg seg = seg_of(m, at, len);

    assert_int_equal(tcp_tx_append(c, &seg, 1, false), len);
    rte_pktmbuf_free_seg(m);
}

static unsigned count_in_place(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < nout; i++)
        n += out[i].in_place;
    return n;
}

/* Each in its own buffer; again, they go in shells: the device may still have the first. */
static void test_whole(void **state)
{
    begin();
    for (unsigned i = 0; i < 10; i++)
        give_one(i * SEG, SEG, 200, 0, i % 2 == 0);
    flush();
    assert_int_equal(nout, 10);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(out[i].len, SEG);
        assert_true(out[i].in_place);
        assert_int_equal(out[i].summed, i % 2 == 0);
    }
    assert_int_equal(sh.stats.in_place, 10);
    pass_until(now + 5000 * MS);
    assert_true(nout > 10);
    assert_int_equal(count_in_place(), 10);
    tell_ack((struct told){.ack = 10 * SEG, .win = 60000});
    end();
}

/* Nobody else may hold the buffer, there is room for headers, they are aligned, and it is a port's.
 */
static void test_may_not(void **state)
{
    struct rte_mbuf *m;
    struct mem_seg seg;

    begin();
    m = received(0, SEG, 200, 0, true);
    rte_mbuf_refcnt_update(m, 1);
    seg = seg_of(m, 200, SEG);
    assert_int_equal(tcp_tx_append(c, &seg, 1, false), SEG);
    give_one(SEG, SEG, TX_HEADERS - 2, 0, true);
    give_one(2 * SEG, SEG, TX_HEADERS, 0, true);
    give_one(3 * SEG, SEG, TX_HEADERS + 1, 0, true);
    assert_int_equal(give(4 * SEG, SEG, SEG, true, false), SEG);
    flush();
    assert_int_equal(nout, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(out[i].in_place, i == 2);
    tell_ack((struct told){.ack = 5 * SEG, .win = 60000});
    rte_pktmbuf_free_seg(m);
    rte_pktmbuf_free_seg(m);
    end();
}

/* A short piece goes alone when those behind it are whole segments then; many short ones do not. */
static void test_cut(void **state)
{
    uint64_t off = 0;

    begin();
    give_one(off, 300, 200, 0, true);
    off += 300;
    for (unsigned i = 0; i < 5; i++, off += SEG)
        give_one(off, SEG, 200, 0, true);
    for (unsigned i = 0; i < 40; i++, off += 100)
        give_one(off, 100, 200, 0, true);
    flush();
    assert_int_equal(nout, 1 + 5 + 4);
    for (unsigned i = 0; i < nout; i++) {
        assert_int_equal(out[i].len, i == 0 ? 300 : SEG);
        assert_int_equal(out[i].in_place, i < 6);
    }
    tell_ack((struct told){.ack = off, .win = 60000});
    end();
}

/* The header of a message, lent for the call, goes in front of the payload: one piece, no copy. */
static void test_header(void **state)
{
    begin();
    for (uint32_t head = HEAD - 2; head <= TX_HEAD_MOST; head += 2) {
        uint64_t off = una_off;
        uint8_t lent[TX_HEAD_MOST];
        struct rte_mbuf *m = received(off + head, 701, 400, 77, true);
        struct mem_seg segs[2] = {{lent, head, MEM_REGION_NONE, 0}, seg_of(m, 400, 701)};

        for (uint32_t i = 0; i < head; i++)
            lent[i] = byte_at(off + i);
        nout = 0;
        assert_int_equal(tcp_tx_append(c, segs, 2, false), head + 701);
        memset(lent, 0xee, sizeof(lent));
        rte_pktmbuf_free_seg(m);
        flush();
        assert_int_equal(nout, 1);
        assert_int_equal(out[0].len, head + 701);
        assert_true(out[0].in_place && out[0].summed);
        tell_ack((struct told){.ack = off + head + 701, .win = 60000});
    }
    assert_int_equal(sh.stats.copies, 0);
    end();
}

/* A piece that is taken in two parts. */
static void test_goes_on(void **state)
{
    struct rte_mbuf *m;
    struct mem_seg seg;

    begin();
    c->tx.cwnd = SEG / 2; /* nothing is sent meanwhile: the queue is what is looked at */
    for (uint32_t first = 1; first < 60; first++) {
        uint64_t off = una_off;

        nout = 0;
        m = received(off, 801, 300, 0, true);
        seg = seg_of(m, 300, first);
        assert_int_equal(tcp_tx_append(c, &seg, 1, false), first);
        seg = seg_of(m, (uint16_t)(300 + first), 801 - first);
        assert_int_equal(tcp_tx_append(c, &seg, 1, false), 801 - first);
        rte_pktmbuf_free_seg(m);
        assert_ptr_equal(c->tx.head, c->tx.tail);
        flush();
        assert_int_equal(nout, 1);
        assert_int_equal(out[0].len, 801);
        assert_true(out[0].in_place);
        tell_ack((struct told){.ack = off + 801, .win = 60000});
    }
    end();
}

/* Any part of what was summed: the sum is right, or it is not known. */
static void test_sums(void **state)
{
    uint64_t seed = 11;
    unsigned known = 0;

    begin();
    for (unsigned i = 0; i < 3000; i++) {
        uint32_t more = (uint32_t)(test_random(&seed) % 150),
                 len = 1 + (uint32_t)(test_random(&seed) % SEG);
        uint64_t off = una_off;

        nout = 0;
        give_one(off, len, (uint16_t)(150 + test_random(&seed) % 32 * 2), more, true);
        flush();
        assert_int_equal(nout, 1);
        assert_true(out[0].in_place); /* and the sum was looked at there */
        known += out[0].summed;
        tell_ack((struct told){.ack = off + len, .win = 60000});
    }
    assert_true(known > 1500 && known < 3000);
    end();
}

static int begin_all(void **state)
{
    struct err err = {0};

    if (begin_env(state) != 0)
        return -1;
    return mem_mbufs_create("as_a_port", 1024, PKT_PRIV, 2048, -1, &port_pool, &err);
}

static int end_all(void **state)
{
    mem_mbufs_destroy(port_pool);
    return end_env(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_may_not), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_header), cmocka_unit_test(test_goes_on), cmocka_unit_test(test_sums),
    };

    return cmocka_run_group_tests(tests, begin_all, end_all);
}
