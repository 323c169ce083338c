/* SPDX-License-Identifier: BSD-3-Clause */
/* Congestion control: CUBIC's curve (RFC 9438) against its formulas, NewReno, PRR, slow start. */
#include "tcp_tx_test.h"

#include <math.h>

#define SEG 1000u

static unsigned nout;
static uint64_t out_end;

static void wire(const struct sent *s)
{
    nout++;
    out_end = max(out_end, s->off + s->len);
}

static void begin_cc(const char *cc)
{
    open_conn((struct test_opts){
        .mss = SEG, .cc = cc, .rtt_us = 100 * MS, .wnd = 900000, .wscale = 6, .isn = 77});
    c->tx.wnd = 900000;
    nout = 0;
    out_end = 0;
}

/* A round trip in which all that was sent is acknowledged, segment by segment; always more than
 * cwnd to send. */
static void round_trip(uint64_t rtt_us)
{
    uint64_t begin = off_of(c->tx.nxt), end, start = now;

    while (tcp_tx_unsent(c) < 2 * c->tx.cwnd && !c->tx.blocked)
        (void)give(off_of(c->tx.end), 100 * SEG, SEG, true, false);
    flush();
    end = off_of(c->tx.nxt);
    begin = una_off;
    for (uint64_t off = begin; off < end;) {
        off = min(off + SEG, end);
        clock_to(start + rtt_us / 2 + (off - begin) * (rtt_us / 2) / (end - begin));
        tell_ack((struct told){.ack = off, .win = 900000});
        if (c->tell_writable) {
            c->tell_writable = false;
            (void)give(off_of(c->tx.end), 100 * SEG, SEG, true, false);
        }
    }
}

/* §4.2 and §4.3 as they stand there, solved numerically each millisecond. */
static void test_cubic_curve(void **state)
{
    const double beta = 0.7, C = 0.4;
    double w_max = 300, cwnd0, k, t, w, worst = 0;
    uint64_t t0;

    begin_cc("cubic");
    c->tx.cwnd = 300 * SEG;
    c->tx.flight = 300 * SEG;
    tcp_reduce(c);
    assert_int_equal(c->tx.ssthresh, 210 * SEG);
    cwnd0 = c->tx.cwnd / (double)SEG;
    assert_true(fabs(cwnd0 - beta * w_max) < 0.01);
    k = cbrt((w_max - cwnd0) / C);
    t0 = 0;
    c->tx.flight = 0;
    for (unsigned i = 0; i < 120; i++) {
        round_trip(100 * MS);
        if (t0 == 0)
            t0 = now - 50 * MS; /* about the first ACK */
        t = (double)(now - t0) / 1e6;
        w = C * pow(t - k, 3) + w_max;
        w = fmax(w, cwnd0);
        worst = fmax(worst, fabs(c->tx.cwnd / (double)SEG - w) / w);
    }
    if (worst > 0.05)
        fail_msg("off by %.1f %%", worst * 100);
    close_conn();
}

/* Fast convergence, §4.7: a flow that loses before it is back gives up some more. */
static void test_cubic_convergence(void **state)
{
    double t0, k;

    begin_cc("cubic");
    c->tx.cwnd = c->tx.flight = 200 * SEG;
    tcp_reduce(c); /* W_max 200, cwnd 140 */
    c->tx.flight = 140 * SEG;
    tcp_reduce(c); /* W_max 140 * 1.7 / 2 = 119, cwnd 98 */
    assert_int_equal(c->tx.cwnd, 98 * SEG);
    c->tx.flight = 0;
    k = cbrt((119.0 - 98.0) / 0.4);
    t0 = (double)now / 1e6;
    /* Where the curve is flat, at K, the window is W_max. */
    while ((double)now / 1e6 - t0 < k)
        round_trip(100 * MS);
    assert_true(fabs(c->tx.cwnd / (double)SEG - 119) < 3);
    close_conn();
}

/* §4.3: on a short path Reno's window is the larger, and CUBIC does not stay behind it: it gains
 * alpha = 3 (1 - beta) / (1 + beta) segments per round trip. */
static void test_cubic_friendly(void **state)
{
    uint32_t before;

    begin_cc("cubic");
    c->tx.srtt = 1000;
    c->tx.cwnd = c->tx.flight = 20 * SEG;
    tcp_reduce(c);
    c->tx.flight = 0;
    before = c->tx.cwnd;
    for (unsigned i = 0; i < 8; i++)
        round_trip(1 * MS);
    assert_true(c->tx.cwnd >= before + 8 * 529 - 1200 && c->tx.cwnd <= before + 8 * 529 + 1200);
    close_conn();
}

static void test_newreno_avoidance(void **state)
{
    begin_cc("newreno");
    c->tx.cwnd = c->tx.ssthresh = 20 * SEG;
    for (unsigned i = 0; i < 10; i++)
        round_trip(10 * MS);
    assert_int_equal(c->tx.cwnd, 30 * SEG);
    c->tx.flight = 30 * SEG;
    tcp_reduce(c);
    assert_int_equal(c->tx.cwnd, 15 * SEG);
    close_conn();
}

/* RFC 6928, then twice as much each round. */
static void test_slow_start(void **state)
{
    begin_cc("cubic");
    assert_int_equal(c->tx.cwnd, 10 * SEG);
    for (unsigned i = 0; i < 4; i++)
        round_trip(10 * MS);
    assert_int_equal(c->tx.cwnd, 160 * SEG);
    close_conn();
    open_conn((struct test_opts){.mss = 8960, .rtt_us = 1});
    assert_int_equal(c->tx.cwnd, 2 * 8960);
    close_conn();
}

/* RFC 7661: a window that is not used does not grow; RFC 5681 §4.1: nor is an old one believed. */
static void test_not_limited(void **state)
{
    uint64_t off = 0;

    for (unsigned i = 0; i < 2; i++) {
        off = 0;
        begin_cc(i == 0 ? "cubic" : "newreno");
        c->tx.cwnd = c->tx.ssthresh = 40 * SEG;
        for (unsigned k = 0; k < 100; k++) {
            assert_int_equal(give(off, 5 * SEG, SEG, false, false), 5 * SEG);
            flush();
            off += 5 * SEG;
            clock_to(now + 10 * MS);
            tell_ack((struct told){.ack = off, .win = 900000});
        }
        assert_int_equal(c->tx.cwnd, 40 * SEG);
        pass_until(now + c->tx.rto + c->tx.rto / 2);
        assert_int_equal(give(off, 80 * SEG, SEG, false, false), 80 * SEG);
        nout = 0;
        flush();
        assert_int_equal(c->tx.cwnd, 20 * SEG);
        assert_int_equal(nout, 20);
        off = out_end;
        tell_ack((struct told){.ack = off, .win = 900000});
        while (una_off != off_of(c->tx.nxt))
            tell_ack((struct told){.ack = off_of(c->tx.nxt), .win = 900000});
        pass_until(now + 60000 * MS);
        assert_int_equal(give(off_of(c->tx.end), 80 * SEG, SEG, false, false), 80 * SEG);
        nout = 0;
        flush();
        assert_int_equal(nout, 10);
        close_conn();
    }
}

/* RFC 6937 §4, the example of one loss in 20 segments: a new one for each of the first two
 * duplicates (limited transmit), the lost one for the third, and then one for every second. */
static void test_prr_even(void **state)
{
    begin_cc("newreno");
    c->tx.cwnd = 20 * SEG;
    assert_int_equal(give(0, 40 * SEG, SEG, false, false), 40 * SEG);
    flush();
    assert_int_equal(nout, 20);
    clock_to(now + 100 * MS);
    for (unsigned i = 1; i <= 19; i++) {
        clock_to(now + 1 * MS);
        tell_ack((struct told){
            .ack = 0, .win = 900000, .sack = {1 * SEG, (i + 1) * (uint64_t)SEG}, .ecr = 1});
        /* What arrives from the third on, times 10 / 20, in whole segments; the first at once. */
        if (i < 18)
            assert_int_equal(nout, i < 3 ? 20 + i : 22 + max((i - 2) / 2, 1u));
    }
    /* ssthresh is reached with the 18th, and kept: what leaves is replaced. */
    assert_int_equal(nout, 30);
    assert_int_equal(tcp_pipe(c), 10 * SEG);
    clock_to(now + 80 * MS);
    tell_ack((struct told){.ack = 0, .win = 900000, .sack = {1 * SEG, 22 * SEG}, .ecr = 1});
    assert_int_equal(nout, 32);
    assert_int_equal(tcp_pipe(c), 10 * SEG);
    clock_to(now + 100 * MS);
    tell_ack((struct told){.ack = 22 * SEG, .win = 900000});
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    assert_int_equal(c->tx.cwnd, 10 * SEG);
    close_conn();
}

/* The formulas of RFC 9937 §6 on single steps. */
static void test_prr_steps(void **state)
{
    begin_cc("newreno");
    assert_int_equal(give(0, 10 * SEG, SEG, false, false), 10 * SEG);
    flush();
    assert_int_equal(tcp_pipe(c), 10 * SEG);
    c->tx.ssthresh = 5 * SEG;
    c->tx.prr_flight = 10 * SEG;
    c->tx.prr_delivered = 3 * SEG;
    c->tx.prr_out = 1 * SEG;
    /* pipe > ssthresh: ceil(4000 * 5000 / 10000) - 1000 = 1000 */
    prr_ack(c, SEG, false);
    assert_int_equal(c->tx.cwnd, 11 * SEG);
    /* pipe < ssthresh, not safe: what arrived less what went out */
    c->tx.ssthresh = 20 * SEG;
    c->tx.prr_out = 3 * SEG;
    prr_ack(c, SEG, false);
    assert_int_equal(c->tx.cwnd, 12 * SEG); /* 5 - 3 = 2 */
    /* safe: a segment more, at least of what arrived now */
    c->tx.prr_out = 6 * SEG;
    prr_ack(c, SEG, true);
    assert_int_equal(c->tx.cwnd, 12 * SEG); /* max(6 - 6, 1) + 1 = 2 */
    /* never above ssthresh */
    c->tx.ssthresh = 11 * SEG;
    prr_ack(c, 8 * SEG, true);
    assert_int_equal(c->tx.cwnd, 11 * SEG);
    close_conn();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cubic_curve),    cmocka_unit_test(test_cubic_convergence),
        cmocka_unit_test(test_cubic_friendly), cmocka_unit_test(test_newreno_avoidance),
        cmocka_unit_test(test_slow_start),     cmocka_unit_test(test_not_limited),
        cmocka_unit_test(test_prr_even),       cmocka_unit_test(test_prr_steps),
    };

    return cmocka_run_group_tests_name("tcp_tx_cc", tests, begin_env, end_env);
}
