/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue (by reference and copied), cutting, the peer's window and its probes, `more`, what
 * happens when there are no buffers, and a peer that acknowledges nonsense.
 */
#include "tcp_tx_test.h"

#define SEG 1000u

static struct sent out[8192];
static unsigned nout;
static uint64_t t0;

static void wire(const struct sent *s)
{
    assert_true(nout < RTE_DIM(out));
    out[nout++] = *s;
}

static struct test_opts opts_with(struct test_opts o)
{
    o.mss = o.mss != 0 ? o.mss : SEG;
    o.isn = o.isn != 0 ? o.isn : UINT32_MAX - 1500;
    o.rtt_us = 20 * MS;
    o.wnd = o.wnd != 0 ? o.wnd : 60000;
    return o;
}

static void begin_with(struct test_opts o)
{
    open_conn(opts_with(o));
    c->tx.cwnd = 100 * SEG;
    nout = 0;
    t0 = now;
}

static void at(uint64_t us)
{
    pass_until(t0 + us);
}

static struct told ack_at(uint64_t off, uint32_t win)
{
    return (struct told){.ack = off, .win = win};
}

/* ---- the queue ---- */

static void test_reference(void **state)
{
    begin_with((struct test_opts){0});
    assert_int_equal(give(0, 10 * SEG, 1448, true, false), 10 * SEG);
    assert_int_equal(sh.stats.copies, 0);
    flush();
    assert_int_equal(nout, 10);
    assert_int_equal(out[9].off + out[9].len, 10 * SEG);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal((out[i].flags & TCP_FLAG_PSH) != 0, i == 9);
    assert_int_equal(c->tx.unacked, 10 * SEG);
    assert_true(rte_mempool_in_use_count(payload_pool) > 0);
    tell_ack(ack_at(2 * SEG + 1, 60000));
    assert_int_equal(c->tx.unacked, 8 * SEG - 1);
    assert_true(c->tell_acked);
    tell_ack(ack_at(10 * SEG, 60000));
    assert_int_equal(rte_mempool_in_use_count(payload_pool), 0);
    close_conn();
}

/* A device that still holds a frame when the connection is gone. */
static struct rte_mbuf *held;

static void test_reference_outlives(void **state)
{
    struct tcp_tx_data *d;
    struct rte_mbuf *m;

    begin_with((struct test_opts){0});
    assert_int_equal(give(0, SEG, SEG, true, false), SEG);
    d = c->tx.head;
    held = tcp_queue_chain(c, d, isn, SEG);
    m = d->m;
    assert_int_equal(rte_mbuf_refcnt_read(m), 2);
    tcp_tx_free(c);
    assert_int_equal(rte_mbuf_refcnt_read(m), 1);
    check_bytes(held, 0);
    rte_pktmbuf_free(held);
    close_conn();
}

/* Small pieces share buffers, and go in one segment. */
static void test_copies(void **state)
{
    begin_with((struct test_opts){0});
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(give(i * 100, 100, 100, false, i < 8), 100);
    assert_int_equal(sh.stats.copies, 9);
    assert_int_equal(sh.stats.copied_bytes, 900);
    assert_int_equal(rte_mempool_in_use_count(tcp.copy_pool), 1);
    flush();
    assert_int_equal(nout, 1);
    assert_int_equal(out[0].len, 900);
    tell_ack(ack_at(900, 60000));
    assert_int_equal(rte_mempool_in_use_count(tcp.copy_pool), 0);
    close_conn();
}

/* No connection takes all copy buffers; what found no room is told when there is some. */
static void test_copy_limit(void **state)
{
    uint32_t n, cwnd;

    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    cwnd = c->tx.cwnd;
    c->tx.cwnd = TX_UNSENT_MAX; /* not what holds it back */
    n = give(0, 8 << 20, 1900, false, false);
    c->tx.cwnd = cwnd;
    /* An eighth of those that are free, but for the last eighth: 199 of 2048, and 1593 are left. */
    assert_int_equal(n, 199 * 2048);
    assert_true(c->tx.blocked);
    flush();
    assert_false(c->tell_writable);
    while (!c->tell_writable) {
        clock_to(now + 20 * MS);
        assert_true(off_of(c->tx.nxt) < n);
        tell_ack(ack_at(off_of(c->tx.nxt), 1 << 20));
    }
    assert_true(c->tx.copied <= 199 * 2048 / 2 + 5 * 2048); /* more are free by now */
    assert_false(c->tx.blocked);
    close_conn();
}

/* So do the pieces of the queue: one connection has its part of what is free, and its own
 * acknowledgements make room. */
static void test_piece_limit(void **state)
{
    uint32_t n;

    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    n = give_bytes(0, 100000);
    assert_int_equal(n, (57344 - TEST_LEAST) / 17); /* a 16th of what is left then */
    assert_true(c->tx.blocked);
    assert_false(c->tx.waiting);
    flush();
    assert_int_equal(c->tx.nxt, c->tx.end);
    tell_ack(ack_at(n / 2 - 200, 1 << 20));
    assert_false(c->tell_writable);
    tell_ack(ack_at(n / 2 + 1, 1 << 20));
    assert_true(c->tell_writable);
    assert_true(give_bytes(n, 1000) == 1000);
    close_conn();
}

/* And records of what was sent: what is new waits for acknowledgements. */
static void test_record_limit(void **state)
{
    uint32_t most = (28672 - TEST_LEAST) / 9; /* an eighth of what is left then */
    uint32_t free_segs;

    begin_with((struct test_opts){.mss = 100, .wnd = 1 << 20, .wscale = 5});
    c->tx.cwnd = 1 << 20;
    test_tso = 200;
    assert_int_equal(give(0, 900000, 1900, true, false), 900000);
    flush();
    assert_int_equal(nout, 2 * most);
    assert_int_equal(c->tx.records, most);
    check_board();
    /* What was sent may be split even so. */
    clock_to(now + 20 * MS);
    tell_ack((struct told){.ack = 0, .win = 1 << 20, .sack = {300, 400}});
    assert_int_equal(c->tx.sacked_bytes, 100);
    assert_int_equal(c->tx.records, most + 1);
    assert_int_equal(nout, 2 * most);
    /* … but not with what is reserved for others. */
    free_segs = sh.copies->nfree_segs;
    sh.copies->nfree_segs = TX_SEGS_MAX / TX_RESERVE;
    tell_ack((struct told){.ack = 0, .win = 1 << 20, .sack = {700, 800}});
    sh.copies->nfree_segs = free_segs;
    assert_int_equal(c->tx.sacked_bytes, 100);
    assert_int_equal(c->tx.records, most + 1);
    tell_ack(ack_at(2000, 1 << 20));
    assert_int_equal(c->tx.records, most);
    assert_int_equal(nout, 2 * most + 20);
    assert_true(c->count.limited_port_us > 0);
    close_conn();
}

/* What was lost goes again in parts, also when the connection has its part of the records. */
static void test_resent_without_records(void **state)
{
    uint64_t acked = 0;
    int32_t others;

    begin_with((struct test_opts){0});
    test_tso = 8 * SEG;
    assert_int_equal(give(0, 16 * SEG, SEG, true, false), 16 * SEG);
    flush();
    assert_int_equal(c->tx.records, 2);
    others = sh.copies->nfree_segs;
    sh.copies->nfree_segs -= others;
    for (unsigned i = 0; i < 16 && acked < 16 * SEG; i++) {
        nout = 0;
        pass_until(now + 500 * MS);
        assert_true(nout > 0);
        assert_in_range(c->tx.records, 1, 2);
        acked = out[nout - 1].off + out[nout - 1].len;
        tell_ack(ack_at(acked, 60000));
    }
    assert_int_equal(acked, 16 * SEG);
    sh.copies->nfree_segs += others;
    close_conn();
}

/* What is queued and not sent is bounded, and half of it gone is told. */
static void test_unsent_limit(void **state)
{
    uint32_t n;
    uint64_t off = 0;

    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    n = give(0, 8 << 20, 1900, true, false);
    assert_int_equal(n, TX_UNSENT_MIN);
    assert_true(c->tx.blocked);
    while (!c->tell_writable) {
        flush();
        clock_to(now + 20 * MS);
        off = off_of(c->tx.nxt);
        assert_true(off < n);
        tell_ack(ack_at(off, 1 << 20));
    }
    assert_true(n - off_of(c->tx.nxt) <= max(c->tx.cwnd, TX_UNSENT_MIN / 2));
    close_conn();
}

/* The bound follows the congestion window, within its own bounds; none that it had taken is lost
 * when it shrinks. */
static void test_unsent_follows_cwnd(void **state)
{
    uint32_t n;

    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    c->tx.cwnd = 400000;
    n = give(0, 8 << 20, 1900, true, false);
    assert_int_equal(n, 800000);
    c->tx.cwnd = 8 << 20;
    n += give(n, 8 << 20, 1900, true, false);
    assert_int_equal(n, TX_UNSENT_MAX);
    c->tx.cwnd = 14480;
    assert_int_equal(give(n, 1000, 1900, true, false), 0);
    assert_int_equal(c->tx.end - c->tx.una, n);
    c->tell_writable = false;
    c->tx.cwnd = TX_UNSENT_MAX;
    tcp_queue_wake(c);
    assert_false(c->tell_writable); /* still all of it */
    close_conn();
}

/* TSO: large frames, of whole segments but the last; PSH and FIN at the end only. */
static void test_tso_frames(void **state)
{
    begin_with((struct test_opts){0});
    test_tso = 8500;
    assert_int_equal(give(0, 20500, 1900, true, false), 20500);
    tcp_tx_fin(c);
    flush();
    assert_int_equal(nout, 22); /* the FIN goes by itself, and not through the port's cutting */
    assert_int_equal(out[20].off + out[20].len, 20500);
    for (unsigned i = 0; i < 21; i++)
        assert_int_equal(out[i].flags, i == 20 ? TCP_FLAG_ACK | TCP_FLAG_PSH : TCP_FLAG_ACK);
    assert_int_equal(out[21].len, 0);
    assert_true(out[21].flags & TCP_FLAG_FIN);
    assert_int_equal(c->tx.nxt, (uint32_t)(isn + 20501));
    tell_ack(ack_at(20501, 60000));
    assert_true(c->tx.fin_acked);
    assert_int_equal(c->count.bytes_acked, 20500);
    close_conn();
}

/* SACK blocks in our segments take room of the payload. */
static void test_sack_room(void **state)
{
    begin_with((struct test_opts){0});
    test_options = 12 + 28;
    assert_int_equal(give(0, 2000, 1900, true, false), 2000);
    flush();
    assert_int_equal(out[0].len, SEG - 28);
    close_conn();
}

/* However much a window lets out: others have their turn, and then it goes on, with more at once.
 */
static void test_burst(void **state)
{
    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    c->tx.cwnd = 300 * SEG;
    assert_int_equal(give(0, 200 * SEG, 1900, true, false), 200 * SEG);
    c->in_work = false;
    for (unsigned sent = TX_FEW; sent < 200; sent += TX_BURST) {
        assert_true(tcp_tx_run(c));
        assert_int_equal(nout, sent);
        assert_true(c->in_work);
        c->in_work = false;
    }
    assert_true(tcp_tx_run(c));
    assert_int_equal(nout, 200);
    assert_false(c->in_work);
    close_conn();
}

/* ---- `more` ---- */

static void test_more(void **state)
{
    begin_with((struct test_opts){0});
    assert_int_equal(give(0, 2500, 1900, true, true), 2500);
    flush();
    assert_int_equal(nout, 2); /* whole segments go */
    assert_int_equal(out[1].flags, TCP_FLAG_ACK);
    assert_int_equal(give(2500, 700, 1900, true, false), 700);
    flush();
    assert_int_equal(nout, 4);
    assert_int_equal(out[2].len, 1000);
    assert_int_equal(out[3].len, 200);
    /* A promise that is not kept holds nothing up for long. */
    assert_int_equal(give(3200, 50, 50, true, true), 50);
    flush();
    t0 = now;
    at(4 * MS);
    assert_int_equal(nout, 4);
    at(6 * MS);
    assert_int_equal(nout, 5);
    close_conn();
}

/* ---- the window ---- */

/* RFC 9293 §3.8.6.1: one byte, at the RTO and then in longer and longer intervals up to 60 s, for
 * as long as the peer answers. */
static void test_probes(void **state)
{
    uint64_t when = 0, wait = 220 * MS;

    begin_with((struct test_opts){.wnd = 2000});
    tcp.opts.user_timeout = 240; /* four times the longest interval */
    assert_int_equal(give(0, 5 * SEG, SEG, true, false), 5 * SEG);
    flush();
    assert_int_equal(nout, 2);
    tell_ack(ack_at(2 * SEG, 0));
    wait = tcp_rto_now(c);
    t0 = now;
    nout = 0;
    for (unsigned i = 0; i < 14; i++) {
        when += min(wait, 60000 * MS);
        pass_until(t0 + when - 1 * MS);
        assert_int_equal(nout, i);
        pass_until(t0 + when + 1 * MS);
        assert_int_equal(nout, i + 1);
        assert_int_equal(out[i].off, 2 * SEG);
        assert_int_equal(out[i].len, 1);
        when = out[i].at_us - t0;
        tell_ack(ack_at(2 * SEG, 0));
        wait *= 2;
    }
    assert_int_equal(c->count.probes_out, 14);
    assert_int_equal(c->count.rtos, 0);
    assert_false(aborted);
    assert_true(c->count.limited_window_us > 300000 * MS);
    /* It opens: the byte goes with the rest. */
    tell_ack(ack_at(2 * SEG, 10000));
    assert_int_equal(nout, 17);
    assert_int_equal(out[14].off, 2 * SEG);
    assert_int_equal(out[14].len, SEG);
    tell_ack(ack_at(5 * SEG, 10000));
    assert_int_equal(c->tx.una, c->tx.nxt);
    close_conn();
}

/* A peer may take the probe's byte. */
static void test_probe_taken(void **state)
{
    begin_with((struct test_opts){.wnd = 1000});
    assert_int_equal(give(0, 3 * SEG, SEG, true, false), 3 * SEG);
    flush();
    tell_ack(ack_at(SEG, 0));
    nout = 0;
    at(300 * MS);
    assert_int_equal(nout, 1);
    tell_ack(ack_at(SEG + 1, 0));
    at(3000 * MS);
    assert_true(nout >= 2);
    assert_int_equal(out[1].off, SEG + 1);
    tell_ack(ack_at(SEG + 1, 20000));
    tell_ack(ack_at(3 * SEG, 20000));
    assert_int_equal(c->tx.una, c->tx.nxt);
    close_conn();
}

static void test_probe_no_answer(void **state)
{
    begin_with((struct test_opts){.wnd = 2000});
    tcp.opts.user_timeout = 10;
    assert_int_equal(give(0, 5 * SEG, SEG, true, false), 5 * SEG);
    flush();
    tell_ack(ack_at(2 * SEG, 0));
    at(9999 * MS);
    assert_false(aborted);
    at(10001 * MS);
    assert_true(aborted);
    close_conn();
}

/* The peer takes back what it had offered: what is beyond waits, and nothing breaks. */
static void test_shrink(void **state)
{
    begin_with((struct test_opts){.wnd = 10000});
    assert_int_equal(give(0, 20 * SEG, SEG, true, false), 20 * SEG);
    flush();
    assert_int_equal(nout, 10);
    tell_ack(ack_at(SEG, 2000));
    assert_int_equal(nout, 10);
    tell_ack(ack_at(SEG, 0));
    at(5000 * MS);
    assert_int_equal(c->count.rtos, 0);
    assert_true(c->count.probes_out > 0);
    tell_ack(ack_at(SEG, 10000));
    at(20000 * MS);
    tell_ack(ack_at(11 * SEG, 10000));
    for (unsigned i = 0; i < 10; i++)
        tell_ack(ack_at(off_of(c->tx.nxt), 10000));
    assert_int_equal(una_off, 20 * SEG);
    close_conn();
}

/* RFC 9293 §3.8.6.2.1: no small segments for a window that opens by little; after an RTO even so.
 */
static void test_silly(void **state)
{
    begin_with((struct test_opts){.wnd = 4000});
    assert_int_equal(give(0, 20 * SEG, SEG, true, false), 20 * SEG);
    flush();
    assert_int_equal(nout, 4);
    tell_ack(ack_at(4 * SEG, 300));
    assert_int_equal(nout, 4);
    at(100 * MS);
    assert_int_equal(nout, 4);
    at(300 * MS);
    assert_int_equal(nout, 5);
    assert_int_equal(out[4].len, 300);
    close_conn();
}

/* An old segment does not set the window. */
static void test_old_window(void **state)
{
    struct told t = ack_at(0, 500);

    begin_with((struct test_opts){.wnd = 4000});
    t.seq = 4000; /* before WL1 */
    tell_ack(t);
    assert_int_equal(c->tx.wnd, 4000);
    t.seq = 5001;
    tell_ack(t);
    assert_int_equal(c->tx.wnd, 500);
    close_conn();
}

/* ---- no buffers ---- */

static void test_no_buffer(void **state)
{
    begin_with((struct test_opts){0});
    assert_int_equal(give(0, 3 * SEG, SEG, true, false), 3 * SEG);
    no_buffer = 1;
    flush();
    assert_int_equal(nout, 0);
    check_board();
    assert_int_equal(c->tx.nxt, c->tx.una);
    at(10 * MS);
    assert_int_equal(nout, 3);
    assert_true(c->count.limited_port_us > 0);
    tell_ack(ack_at(3 * SEG, 60000));
    close_conn();
}

/* A port whose queue is long: what is new and what was lost waits, in the order in which it came,
 * and nobody goes before those that wait. */
static void test_port_busy(void **state)
{
    struct tcp_conn *first, *second;

    begin_with((struct test_opts){0});
    first = c;
    port_is_busy = true;
    assert_int_equal(give(0, 3 * SEG, SEG, true, false), 3 * SEG);
    flush();
    assert_int_equal(nout, 0);
    assert_null(tcp_tx_next_waiter(&sh));
    open_another(opts_with((struct test_opts){0}));
    second = c;
    assert_int_equal(give(0, 2 * SEG, SEG, true, false), 2 * SEG);
    port_is_busy = false;
    flush();
    assert_int_equal(nout, 0); /* the first has waited for longer */
    assert_ptr_equal(tcp_tx_next_waiter(&sh), first);
    c = first;
    tcp_tx_run(c);
    assert_int_equal(nout, 3);
    assert_ptr_equal(tcp_tx_next_waiter(&sh), second);
    c = second;
    tcp_tx_run(c);
    assert_int_equal(nout, 5);
    assert_null(tcp_tx_next_waiter(&sh));
    /* Who ends waits no more. */
    port_is_busy = true;
    assert_int_equal(give(2 * SEG, SEG, SEG, true, false), SEG);
    flush();
    assert_int_equal(sh.port_waits, 1);
    tcp_tx_free(c);
    free(c);
    assert_int_equal(sh.port_waits, 0);
    /* What was lost waits too, but for a probe; and who goes to another reactor waits there. */
    c = first;
    at(3000 * MS);
    assert_true(c->count.rtos > 0);
    assert_int_equal(c->count.resent, c->count.tlps);
    assert_true(c->count.limited_port_us > 0);
    assert_int_equal(sh.port_waits, 1);
    tcp_tx_detach(c);
    assert_int_equal(sh.port_waits, 0);
    port_is_busy = false;
    close_conn();
}

/* ---- moving to another reactor, and nothing left behind ---- */

static void test_move(void **state)
{
    begin_with((struct test_opts){0});
    assert_int_equal(give(0, 5 * SEG, SEG, true, false), 5 * SEG);
    flush();
    tcp_tx_detach(c);
    assert_false(reactor_timer_armed(&c->tx.timer));
    at(10000 * MS);
    assert_int_equal(nout, 5);
    tcp_tx_attach(c);
    at(10100 * MS);
    assert_true(nout > 5);
    close_conn();
}

/* ---- a hostile peer ---- */

static uint64_t rng;

static uint32_t any(uint32_t below)
{
    return (uint32_t)(test_random(&rng) % below);
}

/* Numbers near what is meant, near the edges, or anything at all. */
static uint32_t nonsense(void)
{
    switch (any(5)) {
    case 0:
        return (uint32_t)test_random(&rng);
    case 1:
        return c->tx.una - 5000 + any(10000);
    case 2:
        return c->tx.nxt - 3000 + any(6000);
    default:
        return c->tx.una + any(c->tx.nxt - c->tx.una + 2);
    }
}

static void test_hostile(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        rng = seed * 7919;
        begin_with((struct test_opts){.isn = (uint32_t)test_random(&rng),
                                      .wnd = 1 << 20,
                                      .wscale = 5,
                                      .no_ts = any(2),
                                      .no_sack = any(5) == 0,
                                      .ecn = any(2)});
        test_tso = any(2) ? 0 : 20000;
        for (unsigned i = 0; i < 150 && c->tx.open; i++) {
            struct tcp_seg seg = {.seq = 5000 + any(3),
                                  .ack = any(4) ? c->tx.una : nonsense(),
                                  .flags = TCP_FLAG_ACK | (any(8) == 0 ? TCP_FLAG_ECE : 0),
                                  .win = (uint16_t)test_random(&rng),
                                  .has_ts = any(3) != 0,
                                  .ts_ecr = any(2) ? tcp_ts_now(c) - any(1000)
                                                   : (uint32_t)test_random(&rng),
                                  .nsack = (uint8_t)any(5)};

            if (any(3) == 0 && !c->tx.blocked)
                (void)give(off_of(c->tx.end), any(30000), 1 + any(1900), any(2), any(2));
            for (unsigned k = 0; k < seg.nsack; k++)
                seg.sack[k] = (struct tcp_sack_block){nonsense(), nonsense()};
            nout = 0;
            tcp_tx_ack(c, &seg, any(2));
            if (c->tx.open)
                una_off += c->tx.una - (uint32_t)(isn + una_off);
            check_board();
            flush();
            check_board();
            pass_until(now + any(any(10) == 0 ? 3000000 : 30000));
            check_board();
        }
        close_conn();
    }
}

/* Records never outnumber the segments that were sent, and what is told again costs one step: a
 * thousand blocks of single bytes make no record, and what is sacked is one. */
static void test_tiny_blocks(void **state)
{
    uint32_t before;
    unsigned n = 0;

    begin_with((struct test_opts){.wnd = 1 << 20, .wscale = 5});
    c->tx.cwnd = 1000 * SEG;
    test_tso = 60000;
    assert_int_equal(give(0, 1000 * SEG, 1900, true, false), 1000 * SEG);
    flush();
    assert_int_equal(off_of(c->tx.nxt), 1000 * SEG);
    before = sh.copies->nfree_segs;
    for (unsigned i = 0; i < 1000; i++)
        tell_ack((struct told){.ack = 0,
                               .win = 1 << 20,
                               .sack = {i * 997 + 1, i * 997 + 2, i * 991 + 3, i * 991 + 700}});
    assert_int_equal(sh.copies->nfree_segs, before);
    assert_int_equal(c->tx.sacked_bytes, 0);
    tell_ack((struct told){.ack = 0, .win = 1 << 20, .sack = {SEG, 999 * SEG}});
    for (struct tcp_tx_seg *s = c->tx.first; s; s = s->next)
        n++;
    assert_int_equal(n, 3); /* the first, what is sacked, and the last */
    assert_int_equal(c->tx.sacked_bytes, 998 * SEG);
    close_conn();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),    cmocka_unit_test(test_reference_outlives),
        cmocka_unit_test(test_copies),       cmocka_unit_test(test_copy_limit),
        cmocka_unit_test(test_unsent_limit), cmocka_unit_test(test_unsent_follows_cwnd),
        cmocka_unit_test(test_tso_frames),   cmocka_unit_test(test_sack_room),
        cmocka_unit_test(test_more),         cmocka_unit_test(test_probes),
        cmocka_unit_test(test_probe_taken),  cmocka_unit_test(test_probe_no_answer),
        cmocka_unit_test(test_shrink),       cmocka_unit_test(test_silly),
        cmocka_unit_test(test_old_window),   cmocka_unit_test(test_no_buffer),
        cmocka_unit_test(test_move),         cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_tiny_blocks),  cmocka_unit_test(test_burst),
        cmocka_unit_test(test_port_busy),    cmocka_unit_test(test_piece_limit),
        cmocka_unit_test(test_record_limit), cmocka_unit_test(test_resent_without_records),

    };

    return cmocka_run_group_tests_name("tcp_tx_queue", tests, begin_env, end_env);
}
