/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload in landing memory, as a peer's RDMA or a host socket left it: sent and sent again by
 * reference, in one piece of a frame however many frames there are, and its buffer free only when
 * the last frame is gone, on whichever thread that is.
 */
#include "tcp_tx_test.h"

#include <pthread.h>

#include "lib/base/err.h"
#include "lib/lnd_eth/port/port_internal.h"

#define SEG 1000u

static struct mem_arena *arena;
static struct mem_pool large, small;

static struct sent out[8192];
static unsigned nout;
static uint64_t lose = UINT64_MAX; /* byte whose first frame is not counted as sent */

static void wire(const struct sent *s)
{
    if (s->off <= lose && lose < s->off + s->len) {
        lose = UINT64_MAX;
        return;
    }
    assert_true(nout < RTE_DIM(out));
    out[nout++] = *s;
}

static void begin_with(struct test_opts o)
{
    o.mss = o.mss != 0 ? o.mss : SEG;
    o.isn = UINT32_MAX - 1500;
    o.rtt_us = 20 * MS;
    o.wnd = 4 << 20;
    o.wscale = 7;
    open_conn(o);
    c->tx.cwnd = 4 << 20;
    nout = 0;
    lose = UINT64_MAX;
    test_port.caps = PORT_TX_RETURNS;
}

/* A buffer of the pool with the stream's bytes from off on. */
static struct mem_seg fill_buffer(struct mem_pool *pool, uint64_t off, uint32_t len)
{
    struct mem_seg seg = {.addr = mem_pool_get(pool), .len = len, .region = pool->region};

    assert_non_null(seg.addr);
    for (uint32_t i = 0; i < len; i++)
        seg.addr[i] = byte_at(off + i);
    return seg;
}

static bool is_held(const struct mem_seg *seg)
{
    return mem_held(seg->region, seg->addr, seg->len);
}

/* Others write to it as soon as it is free. */
static void give_buffer_back(struct mem_pool *pool, const struct mem_seg *seg)
{
    assert_false(is_held(seg));
    memset(seg->addr, 0xee, seg->len);
    mem_pool_put(pool, seg->addr);
}

static uint32_t append(const struct mem_seg *seg, uint32_t from)
{
    struct mem_seg rest = {seg->addr + from, seg->len - from, seg->region, 0};
    ssize_t n = tcp_tx_append(c, &rest, 1, false);

    assert_true(n >= 0);
    return (uint32_t)n;
}

static void ack(uint64_t off)
{
    tell_ack((struct told){.ack = off, .win = (4 << 20) >> 7});
}

/* Sends and acknowledges until all of it has gone. */
static void send_all(const struct mem_seg *seg)
{
    uint32_t done = append(seg, 0);

    while (c->tx.una != c->tx.end || done < seg->len) {
        flush();
        clock_to(now + 20 * MS);
        ack(off_of(c->tx.nxt));
        if (done < seg->len)
            done += append(seg, done);
    }
}

static void test_by_reference(void **state)
{
    struct mem_seg seg;
    uint64_t at = 0;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&large, 0, MEM_LANDING_SLOT);
    assert_false(is_held(&seg));
    assert_int_equal(append(&seg, 0), MEM_LANDING_SLOT);
    assert_true(is_held(&seg));
    assert_int_equal(c->tx.pieces, 1);
    send_all(&(struct mem_seg){.addr = seg.addr, .region = seg.region});
    for (unsigned i = 0; i < nout; i++) {
        assert_int_equal(out[i].off, at);
        assert_int_equal(out[i].segs, 1);
        assert_false(out[i].in_place);
        at += out[i].len;
    }
    assert_int_equal(at, MEM_LANDING_SLOT);
    assert_int_equal(sh.stats.copies, 0);
    assert_int_equal(c->tx.unacked, 0);
    give_buffer_back(&large, &seg);
    close_conn();
}

/* Parts of a buffer that are taken one after the other are one piece. */
static void test_in_parts(void **state)
{
    struct mem_seg seg;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&small, 0, 4096);
    for (uint32_t at = 0; at < 4096; at += 512) {
        struct mem_seg part = {seg.addr + at, 512, seg.region, 0};

        assert_int_equal(tcp_tx_append(c, &part, 1, true), 512);
    }
    assert_int_equal(c->tx.pieces, 1);
    ack(0);
    flush();
    assert_int_equal(sh.stats.copies, 0);
    c->tx.more = false;
    pass_until(now + 10 * MS);
    ack(4096);
    give_buffer_back(&small, &seg);
    close_conn();
}

static void test_cut_by_port(void **state)
{
    struct mem_seg seg;
    unsigned frames = 0;

    begin_with((struct test_opts){0});
    test_tso = 60 * SEG;
    seg = fill_buffer(&large, 0, MEM_LANDING_SLOT);
    send_all(&seg);
    for (unsigned i = 0; i < nout; i++) {
        assert_int_equal(out[i].segs, 1);
        frames += out[i].begins;
    }
    assert_in_range(frames, MEM_LANDING_SLOT / (60 * SEG), MEM_LANDING_SLOT / (60 * SEG) + 3);
    assert_int_equal(sh.stats.copies, 0);
    give_buffer_back(&large, &seg);
    close_conn();
}

/* What was lost goes again from where it lies. */
static void test_sent_again(void **state)
{
    struct mem_seg seg;
    uint64_t resent;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&large, 0, 100 * SEG);
    lose = 0;
    assert_int_equal(append(&seg, 0), 100 * SEG);
    flush();
    assert_int_equal(nout, 99);
    clock_to(now + 20 * MS);
    resent = sh.stats.resent;
    for (unsigned i = 2; i <= 5; i++)
        tell_ack((struct told){.ack = 0, .sack = {SEG, i * SEG}, .win = (4 << 20) >> 7});
    flush();
    pass_until(now + 10 * MS);
    assert_true(sh.stats.resent > resent);
    assert_int_equal(out[nout - 1].off, 0);
    assert_true(is_held(&seg));
    ack(100 * SEG);
    assert_int_equal(sh.stats.copies, 0);
    give_buffer_back(&large, &seg);
    close_conn();
}

static void *free_frame(void *m)
{
    rte_pktmbuf_free(m);
    return NULL;
}

static void free_elsewhere(struct rte_mbuf *m)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, free_frame, m), 0);
    pthread_join(thread, NULL);
}

/* A device that still has a frame, sent twice, when the first has long been acknowledged. */
static void test_held_past_the_ack(void **state)
{
    struct rte_mbuf *first, *last;
    struct mem_seg seg;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&large, 0, 4 * SEG);
    assert_int_equal(append(&seg, 0), 4 * SEG);
    first = tcp_queue_chain(c, c->tx.head, isn, SEG);
    last = tcp_queue_chain(c, c->tx.head, isn + 3 * SEG, SEG);
    assert_int_equal(first->buf_iova, mem_hold_iova(seg.region, seg.addr));
    assert_int_equal(last->buf_iova, mem_hold_iova(seg.region, seg.addr) + 3 * SEG);
    assert_ptr_equal(rte_pktmbuf_mtod(last, uint8_t *), seg.addr + 3 * SEG);
    flush();
    ack(4 * SEG);
    assert_int_equal(c->tx.unacked, 0);
    assert_int_equal(c->tx.pieces, 0);
    assert_true(is_held(&seg));
    free_elsewhere(first);
    assert_true(is_held(&seg));
    check_bytes(last, 3 * SEG);
    free_elsewhere(last);
    give_buffer_back(&large, &seg);
    close_conn();
}

/* … and when the connection is no more. What is only queued lets go with it. */
static void test_held_past_the_end(void **state)
{
    struct mem_seg sent, queued;
    struct rte_mbuf *m;

    begin_with((struct test_opts){0});
    sent = fill_buffer(&large, 0, SEG);
    queued = fill_buffer(&small, SEG, SEG);
    assert_int_equal(append(&sent, 0), SEG);
    assert_int_equal(append(&queued, 0), SEG);
    m = tcp_queue_chain(c, c->tx.head, isn, SEG);
    tcp_tx_free(c);
    assert_false(is_held(&queued));
    assert_true(is_held(&sent));
    check_bytes(m, 0);
    rte_pktmbuf_free(m);
    give_buffer_back(&large, &sent);
    give_buffer_back(&small, &queued);
    close_conn();
}

/* A frame of a header that was copied and payload that was not. */
static void test_with_header(void **state)
{
    uint8_t head[96];
    struct mem_seg segs[2] = {{head, sizeof(head), MEM_REGION_NONE, 0}};

    begin_with((struct test_opts){0});
    for (uint32_t i = 0; i < sizeof(head); i++)
        head[i] = byte_at(i);
    segs[1] = fill_buffer(&small, sizeof(head), 600);
    assert_int_equal(tcp_tx_append(c, segs, 2, false), 696);
    memset(head, 0xee, sizeof(head));
    flush();
    assert_int_equal(nout, 1);
    assert_int_equal(out[0].segs, 2);
    assert_int_equal(sh.stats.copied_bytes, sizeof(head));
    ack(696);
    give_buffer_back(&small, &segs[1]);
    close_conn();
}

/* Copied as before: on a port that keeps what it sent, and what nobody would wait for. */
static void check_copied(const struct mem_seg *seg)
{
    uint64_t copied = sh.stats.copied_bytes;

    assert_int_equal(append(seg, 0), seg->len);
    assert_int_equal(sh.stats.copied_bytes, copied + seg->len);
    assert_false(is_held(seg));
}

static void test_copied(void **state)
{
    struct mem_seg seg, none, two[2], both;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&small, 0, 2 * SEG);
    test_port.caps = PORT_TX_TSO | PORT_TX_CSUM | PORT_TX_CHAINS;
    check_copied(&seg);
    test_port.caps = PORT_TX_RETURNS;
    none = fill_buffer(&small, 2 * SEG, SEG);
    none.region = MEM_REGION_NONE;
    check_copied(&none);
    /* Two buffers beside each other are not one. */
    two[0] = fill_buffer(&small, 0, 4096);
    two[1] = fill_buffer(&small, 0, 4096);
    both = (struct mem_seg){min(two[0].addr, two[1].addr) + 4096 - SEG, 2 * SEG, small.region, 0};
    assert_ptr_equal(max(two[0].addr, two[1].addr), min(two[0].addr, two[1].addr) + 4096);
    for (uint32_t i = 0; i < both.len; i++)
        both.addr[i] = byte_at(3 * SEG + i);
    check_copied(&both);
    flush();
    ack(5 * SEG);
    give_buffer_back(&small, &seg);
    none.region = small.region;
    give_buffer_back(&small, &none);
    give_buffer_back(&small, &two[0]);
    give_buffer_back(&small, &two[1]);
    close_conn();
}

/* The count of references does not run over: the port is asked again later. */
static void test_too_many_frames(void **state)
{
    struct rte_mbuf_ext_shared_info *info;
    struct mem_seg seg;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&small, 0, 4 * SEG);
    info = mem_hold_of(seg.region, seg.addr, seg.len);
    assert_int_equal(append(&seg, 0), 4 * SEG);
    rte_mbuf_ext_refcnt_update(info, (int16_t)(MEM_HOLD_MOST - 2 - INT16_MAX));
    rte_mbuf_ext_refcnt_update(info, INT16_MAX);
    flush();
    assert_int_equal(nout, 0);
    assert_int_equal(c->tx.limit, TCP_LIMIT_PORT);
    rte_mbuf_ext_refcnt_set(info, 2);
    pass_until(now + 10 * MS);
    assert_int_equal(nout, 4);
    ack(4 * SEG);
    give_buffer_back(&small, &seg);
    close_conn();
}

/* The port finds no buffer for a frame in the middle: what was begun of it lets go again. */
static void test_no_shell(void **state)
{
    static struct rte_mbuf *taken[POOL];
    struct mem_seg seg;

    begin_with((struct test_opts){0});
    seg = fill_buffer(&small, 0, SEG);
    assert_int_equal(append(&seg, 0), SEG);
    assert_int_equal(rte_pktmbuf_alloc_bulk(shells, taken, POOL), 0);
    flush();
    assert_int_equal(nout, 0);
    assert_int_equal(rte_mbuf_ext_refcnt_read(mem_hold_of(seg.region, seg.addr, seg.len)), 2);
    rte_pktmbuf_free_bulk(taken, POOL);
    pass_until(now + 10 * MS);
    assert_int_equal(nout, 1);
    ack(SEG);
    give_buffer_back(&small, &seg);
    close_conn();
}

static unsigned cut_long;

static void long_is_last(const struct rte_mbuf *m, bool tso)
{
    for (; m && tso; m = m->next) {
        if (m->data_len <= PORT_DESC_BYTES)
            continue;
        assert_null(m->next);
        cut_long++;
    }
}

/* A driver splits a long piece, so that its end is a buffer that TCP has not counted: where the
 * buffers of a segment are limited, nothing follows it in a frame. */
static void test_split_by_driver(void **state)
{
    const uint32_t len = PORT_DESC_BYTES + 5 * SEG + 100;
    struct mem_seg seg;

    begin_with((struct test_opts){0});
    test_tso = 65000;
    assert_true(port_segs_set(&test_port, true, 8, 255));
    look_at = long_is_last;
    assert_int_equal(give(0, 4 * SEG, SEG, true, true), 4 * SEG);
    seg = fill_buffer(&large, 4 * SEG, len);
    assert_int_equal(append(&seg, 0), len);
    assert_int_equal(give(4 * SEG + len, 10 * SEG, 300, true, false), 10 * SEG);
    flush();
    assert_int_equal(cut_long, 1);
    assert_int_equal(off_of(c->tx.nxt), 14 * SEG + len);
    ack(off_of(c->tx.nxt));
    give_buffer_back(&large, &seg);
    close_conn();
    look_at = NULL;
    test_port.tso_segs = test_port.tso_run = 0;
}

static int begin_landing(void **state)
{
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = (size_t)3 * MEM_LANDING_SLOT};
    struct err err = {0};

    if (begin_env(state) != 0)
        return -1;
    if (mem_arena_create(&opts, &arena, &err) < 0 ||
        mem_pool_init(&large, arena, MEM_LANDING, MEM_LANDING_SLOT, 2, "large", &err) < 0 ||
        mem_pool_init(&small, arena, MEM_LANDING, 4096, 8, "small", &err) < 0)
        fail_msg("%s", err.message);
    return 0;
}

static int end_landing(void **state)
{
    assert_int_equal(large.nfree, 2);
    assert_int_equal(small.nfree, 8);
    mem_pool_fini(&large);
    mem_pool_fini(&small);
    mem_arena_destroy(arena);
    return end_env(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_reference),      cmocka_unit_test(test_in_parts),
        cmocka_unit_test(test_cut_by_port),       cmocka_unit_test(test_sent_again),
        cmocka_unit_test(test_held_past_the_ack), cmocka_unit_test(test_held_past_the_end),
        cmocka_unit_test(test_with_header),       cmocka_unit_test(test_copied),
        cmocka_unit_test(test_too_many_frames),   cmocka_unit_test(test_no_shell),
        cmocka_unit_test(test_split_by_driver),
    };

    return cmocka_run_group_tests_name("tcp_tx_landing", tests, begin_landing, end_landing);
}
