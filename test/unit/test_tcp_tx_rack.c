/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RACK-TLP (RFC 8985), RTO (RFC 6298), recovery and its undoing, on the virtual clock. Segments are
 * 1000 bytes; the handshake measured 20 ms, so SRTT = 20 ms, RTTVAR = 10 ms, RTO = 220 ms.
 */
#include "tcp_tx_test.h"

#define SEG 1000u
#define RTT (20 * MS)
#define RTO (220 * MS)

static struct sent out[4096];
static unsigned nout;
static uint64_t t0;

static void wire(const struct sent *s)
{
    assert_true(nout < RTE_DIM(out));
    out[nout++] = *s;
}

static void begin_with(struct test_opts o)
{
    o.mss = SEG;
    o.wnd = 60000;
    o.isn = o.isn != 0 ? o.isn : UINT32_MAX - 3500; /* numbers wrap in the third segment */
    o.rtt_us = o.rtt_us != 0 ? o.rtt_us : RTT;
    o.cc = o.cc ? o.cc : "newreno";
    open_conn(o);
    c->ts_on = !o.no_ts;
    nout = 0;
    t0 = now;
}

static void begin(void)
{
    begin_with((struct test_opts){0});
}

/* Queues n segments behind what there is and sends what may be sent. */
static void send_segs(unsigned n)
{
    uint64_t off = off_of(c->tx.end);

    assert_int_equal(give(off, n * SEG, SEG, true, false), n * SEG);
    flush();
    check_board();
}

/* What was sent since the last look: at `at` after t0, the segment of that index. */
static void expect(unsigned i, uint64_t at_us, unsigned seg)
{
    assert_true(i < nout);
    assert_int_equal(out[i].at_us - t0, at_us);
    assert_int_equal(out[i].off, seg * (uint64_t)SEG);
}

static void at(uint64_t us)
{
    pass_until(t0 + us);
}

static struct told ack_of(unsigned segs)
{
    return (struct told){.ack = segs * (uint64_t)SEG, .win = 60000};
}

static struct told sack_of(unsigned segs, unsigned left, unsigned right)
{
    struct told t = ack_of(segs);

    t.sack[0] = left * (uint64_t)SEG;
    t.sack[1] = right * (uint64_t)SEG;
    return t;
}

/* ---- TLP ---- */

/* §7.2: PTO = 2 SRTT; §7.3: nothing new: the last segment; then RTO from the probe on. */
static void test_tlp_resends_last(void **state)
{
    begin();
    send_segs(5);
    assert_int_equal(nout, 5);
    at(39 * MS);
    assert_int_equal(nout, 5);
    at(40 * MS);
    assert_int_equal(nout, 6);
    expect(5, 40 * MS, 4);
    assert_int_equal(c->count.tlps, 1);
    at(40 * MS + RTO - 1 * MS);
    assert_int_equal(nout, 6);
    at(40 * MS + RTO);
    assert_int_equal(nout, 7);
    expect(6, 40 * MS + RTO, 0);
    assert_int_equal(c->tx.state, TCP_CC_LOSS);
    assert_int_equal(c->count.rtos, 1);
    close_conn();
}

/* A short path: a peer that is scheduled a moment late is not probed. */
static void test_tlp_short_path(void **state)
{
    begin_with((struct test_opts){.rtt_us = 100});
    send_segs(5);
    at(3 * MS);
    assert_int_equal(nout, 5);
    at(4 * MS);
    assert_int_equal(nout, 6);
    close_conn();
}

/* §7.3: something new goes rather than something old, beyond cwnd too. */
static void test_tlp_sends_new(void **state)
{
    begin();
    send_segs(12);
    assert_int_equal(nout, 10);
    at(40 * MS);
    assert_int_equal(nout, 11);
    expect(10, 40 * MS, 10);
    close_conn();
}

/* §7.2: a single segment may wait for a delayed ACK; the RTO comes first here, and the probe goes
 * in its place. */
static void test_tlp_single(void **state)
{
    begin();
    send_segs(1);
    at(RTO - 1 * MS);
    assert_int_equal(nout, 1);
    at(RTO);
    assert_int_equal(nout, 2);
    expect(1, RTO, 0);
    assert_int_equal(c->count.tlps, 1);
    assert_int_equal(c->count.rtos, 0);
    at(2 * RTO);
    assert_int_equal(c->count.rtos, 1);
    close_conn();
}

/* §7.4: the probe filled a hole that nobody saw: cwnd is reduced once a later ACK says so. */
static void test_tlp_mended_loss(void **state)
{
    for (int dsack = 0; dsack < 2; dsack++) {
        begin();
        send_segs(4);
        at(10 * MS);
        at(40 * MS);
        assert_int_equal(nout, 5);
        at(60 * MS);
        tell_ack(ack_of(4));
        assert_int_equal(c->tx.ssthresh, UINT32_MAX);
        if (dsack)
            tell_ack(sack_of(4, 3, 4));
        send_segs(1);
        at(80 * MS);
        tell_ack(ack_of(5));
        if (dsack)
            assert_int_equal(c->tx.ssthresh, UINT32_MAX);
        else
            assert_int_equal(c->tx.ssthresh, 2 * SEG); /* flight was 4 */
        assert_int_equal(c->tx.state, TCP_CC_OPEN);
        close_conn();
    }
}

/* §7.2: only one probe without a new round-trip time, and none with something sacked. */
static void test_tlp_when(void **state)
{
    begin();
    send_segs(5);
    at(20 * MS);
    tell_ack(sack_of(0, 4, 5));
    at(24 * MS);
    assert_int_equal(nout, 5);
    at(45 * MS);
    assert_int_equal(c->count.tlps, 0);
    close_conn();
}

/* ---- RACK ---- */

/* §6.2 step 4: with three sacked and no reordering known nothing is waited for. */
static void test_rack_three(void **state)
{
    begin();
    send_segs(5);
    at(20 * MS);
    tell_ack(sack_of(0, 1, 2));
    assert_int_equal(nout, 5);
    assert_int_equal(c->tx.state, TCP_CC_DISORDER);
    tell_ack(sack_of(0, 1, 3));
    assert_int_equal(nout, 5);
    tell_ack(sack_of(0, 1, 4));
    assert_int_equal(nout, 6);
    expect(5, 20 * MS, 0);
    assert_int_equal(c->tx.state, TCP_CC_RECOVERY);
    assert_int_equal(c->count.fast_recoveries, 1);
    assert_int_equal(c->tx.ssthresh, 5 * SEG / 2);
    at(40 * MS);
    tell_ack(ack_of(5));
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    assert_int_equal(nout, 6);
    close_conn();
}

/* With one sacked: after a quarter of the minimal round-trip time. */
static void test_rack_window(void **state)
{
    begin();
    send_segs(3);
    at(20 * MS);
    tell_ack(sack_of(0, 1, 2));
    at(24 * MS);
    assert_int_equal(nout, 3);
    at(25 * MS);
    assert_int_equal(nout, 4);
    expect(3, 25 * MS, 0);
    /* The third was sent later than what arrived: nothing is known of it. */
    assert_int_equal(c->tx.lost_bytes, 0);
    close_conn();
}

/* Steps 3 and 4: once reordering was seen, even three sacked wait; each round with a D-SACK makes
 * the window larger by a quarter of the minimum, up to SRTT. */
static void test_rack_adapts(void **state)
{
    begin();
    send_segs(2);
    at(20 * MS);
    tell_ack(sack_of(0, 1, 2));
    at(22 * MS);
    tell_ack(ack_of(2)); /* late, but not lost */
    assert_true(c->tx.rack_reordering);
    t0 = now;
    nout = 0;
    send_segs(5);
    at(20 * MS);
    tell_ack(sack_of(2, 3, 7));
    at(24 * MS);
    assert_int_equal(nout, 5);
    at(25 * MS);
    assert_int_equal(nout, 6);
    expect(5, 25 * MS, 2);
    /* It was not lost: acknowledged, and then told that it came twice. */
    at(26 * MS);
    tell_ack(ack_of(7));
    at(45 * MS);
    tell_ack(sack_of(7, 2, 3));
    assert_int_equal(c->tx.rack_reo_mult, 2);
    assert_int_equal(c->count.undone, 1); /* and nothing was lost at all */
    t0 = now;
    nout = 0;
    send_segs(5);
    at(20 * MS);
    tell_ack(sack_of(7, 8, 12));
    at(29 * MS);
    assert_int_equal(nout, 5);
    at(30 * MS);
    assert_int_equal(nout, 6);
    expect(5, 30 * MS, 7);
    close_conn();
}

/* A retransmission that is lost as well is found by what was sent after it. */
static void test_rack_lost_again(void **state)
{
    begin();
    send_segs(10);
    at(20 * MS);
    tell_ack(sack_of(0, 1, 10));
    assert_int_equal(nout, 11);
    expect(10, 20 * MS, 0);
    at(21 * MS);
    send_segs(2);
    assert_int_equal(nout, 13);
    at(41 * MS);
    tell_ack(sack_of(0, 1, 12));
    assert_int_equal(nout, 14);
    expect(13, 41 * MS, 0);
    close_conn();
}

/* §6.3: what was sent a moment before an RTO is not lost by it. */
static void test_rack_rto(void **state)
{
    begin();
    send_segs(1);
    at(20 * MS);
    tell_ack(ack_of(1));
    t0 = now;
    nout = 0;
    send_segs(2);
    at(40 * MS); /* the probe, again segment 2 */
    assert_int_equal(nout, 3);
    at(250 * MS);
    send_segs(1);
    at(40 * MS + RTO);
    assert_int_equal(c->count.rtos, 1);
    assert_int_equal(c->tx.last->state, TCP_SEG_SENT); /* sent 10 ms ago */
    expect(4, 40 * MS + RTO, 1);
    close_conn();
}

/* ---- RTO ---- */

/* RFC 6298 §5.5 and §2.5: doubled each time, up to 120 s; then no more patience. */
static void test_rto_backoff(void **state)
{
    static const unsigned doubled[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    uint64_t when = 0;

    begin_with((struct test_opts){.no_sack = true});
    tcp.opts.user_timeout = 300;
    send_segs(1);
    for (unsigned i = 0; i < RTE_DIM(doubled); i++) {
        when += min(doubled[i] * RTO, 120000 * MS);
        at(when);
        assert_int_equal(nout, i + 2);
        expect(i + 1, when, 0);
        assert_int_equal(c->tx.cwnd, SEG);
    }
    assert_int_equal(c->tx.ssthresh, 2 * SEG);
    at(299999 * MS);
    assert_false(aborted);
    at(300000 * MS);
    assert_true(aborted);
    close_conn();
}

/* RFC 6298 §2.2, §2.3, and §5.7. */
static void test_rto_values(void **state)
{
    begin();
    assert_int_equal(c->tx.srtt, 20000);
    assert_int_equal(c->tx.rttvar, 10000);
    send_segs(1);
    at(100 * MS);
    tell_ack(ack_of(1));
    assert_int_equal(c->tx.srtt, (7 * 20000 + 100000) / 8);
    assert_int_equal(c->tx.rttvar, (3 * 10000 + 80000) / 4);
    assert_int_equal(c->tx.rto, 30000 + TX_RTO_MIN);
    close_conn();
    begin();
    c->tx.srtt = 0;
    tcp_tx_free(c);
    tcp_tx_open(c, isn, 60000, 5000, 0);
    assert_int_equal(c->tx.rto, 3000000);
    assert_int_equal(c->tx.cwnd, SEG);
    close_conn();
}

/* RFC 3522: the ACK that comes was of the first transmission. */
static void test_spurious_rto(void **state)
{
    uint32_t ts;

    begin();
    send_segs(10);
    ts = tcp_ts_now(c);
    at(40 * MS + RTO);
    assert_int_equal(c->tx.state, TCP_CC_LOSS);
    assert_int_equal(c->tx.ssthresh, 5 * SEG);
    nout = 0;
    at(300 * MS);
    tell_ack((struct told){.ack = 2 * SEG, .win = 60000, .ecr = ts});
    assert_int_equal(c->count.undone, 1);
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    assert_true(c->tx.cwnd >= 10 * SEG);
    assert_int_equal(c->tx.ssthresh, UINT32_MAX);
    assert_int_equal(c->tx.lost_bytes, 0);
    assert_int_equal(nout, 0);
    /* And not, if it is of the second. */
    close_conn();
    begin();
    send_segs(10);
    at(40 * MS + RTO);
    at(300 * MS);
    tell_ack((struct told){.ack = 2 * SEG, .win = 60000, .ecr = tcp_ts_now(c) - 20});
    assert_int_equal(c->count.undone, 0);
    assert_int_equal(c->tx.state, TCP_CC_LOSS);
    close_conn();
}

/* All that was sent again arrived twice. */
static void test_dsack_undo(void **state)
{
    begin_with((struct test_opts){.no_ts = true});
    send_segs(8);
    at(20 * MS);
    tell_ack(sack_of(0, 2, 8));
    assert_int_equal(c->tx.state, TCP_CC_RECOVERY);
    assert_int_equal(nout, 10);
    assert_int_equal(c->tx.ssthresh, 4 * SEG);
    at(30 * MS);
    tell_ack(ack_of(8));
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    tell_ack(sack_of(8, 0, 1));
    assert_int_equal(c->count.undone, 0);
    tell_ack(sack_of(8, 1, 2));
    assert_int_equal(c->count.undone, 1);
    assert_int_equal(c->tx.cwnd, 10 * SEG);
    assert_int_equal(c->tx.ssthresh, UINT32_MAX);
    close_conn();
}

/* RFC 2018 §8: a peer that threw away what it had told of. */
static void test_reneging(void **state)
{
    begin();
    send_segs(6);
    at(20 * MS);
    tell_ack(sack_of(0, 1, 6));
    at(40 * MS);
    tell_ack(ack_of(1)); /* and not 6 */
    assert_int_equal(c->tx.sacked_bytes, 5 * SEG);
    nout = 0;
    at(40 * MS + 2 * RTO);
    assert_int_equal(c->count.rtos, 1);
    assert_int_equal(c->tx.sacked_bytes, 0);
    assert_true(nout >= 1);
    assert_int_equal(out[0].off, SEG);
    tell_ack(ack_of(2));
    tell_ack(ack_of(4));
    tell_ack(ack_of(6));
    assert_int_equal(c->tx.una, c->tx.nxt);
    close_conn();
}

/* ---- without SACK: RFC 5681, RFC 6582 ---- */

static void test_newreno(void **state)
{
    begin_with((struct test_opts){.no_sack = true, .no_ts = true});
    send_segs(10);
    at(20 * MS);
    tell_ack(ack_of(0));
    tell_ack(ack_of(0));
    assert_int_equal(nout, 10);
    tell_ack(ack_of(0));
    assert_int_equal(nout, 11);
    expect(10, 20 * MS, 0);
    assert_int_equal(c->tx.ssthresh, 5 * SEG);
    for (unsigned i = 0; i < 5; i++)
        tell_ack(ack_of(0));
    /* A partial ACK: the next hole is filled at once. */
    at(40 * MS);
    tell_ack(ack_of(4));
    assert_int_equal(c->tx.state, TCP_CC_RECOVERY);
    assert_int_equal(nout, 12);
    expect(11, 40 * MS, 4);
    at(60 * MS);
    tell_ack(ack_of(10));
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    assert_int_equal(c->tx.cwnd, 5 * SEG);
    assert_int_equal(nout, 12);
    close_conn();
}

/* An ACK with data, or that changes the window, is no duplicate (RFC 5681 §2). */
static void test_no_dupack(void **state)
{
    begin_with((struct test_opts){.no_sack = true});
    send_segs(10);
    at(20 * MS);
    tell_ack(ack_of(0));
    for (unsigned i = 0; i < 5; i++) {
        struct told t = ack_of(0);

        t.data = true;
        tell_ack(t);
        t.data = false;
        t.win -= 1024 * (i + 1);
        tell_ack(t);
    }
    assert_int_equal(nout, 10);
    close_conn();
}

/* RFC 3042: each of the first two duplicates lets a new segment out. */
static void test_limited_transmit(void **state)
{
    begin_with((struct test_opts){.no_sack = true});
    send_segs(14);
    assert_int_equal(nout, 10);
    at(20 * MS);
    tell_ack(ack_of(0));
    tell_ack(ack_of(0));
    assert_int_equal(nout, 12);
    expect(11, 20 * MS, 11);
    close_conn();
}

/* ---- ECN, RFC 3168 §6.1.2 ---- */

static void test_ecn(void **state)
{
    struct told t;

    begin_with((struct test_opts){.ecn = true});
    send_segs(20);
    assert_int_equal(nout, 10);
    at(20 * MS);
    t = ack_of(4);
    t.flags = TCP_FLAG_ECE;
    tell_ack(t);
    assert_int_equal(c->tx.ssthresh, 5 * SEG);
    assert_int_equal(c->tx.cwnd, 5 * SEG);
    assert_int_equal(nout, 10);
    t = ack_of(8);
    t.flags = TCP_FLAG_ECE;
    tell_ack(t); /* of the same window */
    assert_int_equal(c->tx.ssthresh, 5 * SEG);
    assert_true(nout > 10);
    assert_true(out[10].flags & TCP_FLAG_CWR);
    for (unsigned i = 11; i < nout; i++)
        assert_false(out[i].flags & TCP_FLAG_CWR);
    t = ack_of(12);
    t.flags = TCP_FLAG_ECE;
    tell_ack(t); /* of the next */
    assert_true(c->tx.ssthresh < 5 * SEG);
    close_conn();
}

/* ---- the MTU ---- */

static void begin_large(void)
{
    begin();
    c->mss = 1448;
    send_segs(20);
    nout = 0;
}

static void rtos_until(unsigned n)
{
    while (c->count.rtos < n)
        pass_until(now + 10 * MS);
}

/* The first part of the oldest segment was sent alone and is acknowledged; the rest follows. */
static void small_passes(void)
{
    assert_int_equal(out[nout - 1].off, 0);
    assert_int_equal(out[nout - 1].len, 1012);
    tell_ack((struct told){.ack = 1012, .win = 60000});
    assert_int_equal(out[nout - 2].len, 436);
    assert_int_equal(out[nout - 1].off, 1448);
    tell_ack((struct told){.ack = 1448, .win = 60000});
}

static void test_black_hole(void **state)
{
    begin();
    send_segs(20);
    for (unsigned i = 0; i < 4 && mtu_told == 0; i++) {
        unsigned rtos = (unsigned)c->count.rtos;

        while (c->count.rtos == rtos)
            pass_until(now + 10 * MS);
        assert_int_equal(mtu_told, 0); /* 1000 bytes is less than the base */
    }
    close_conn();
    begin_large();
    rtos_until(3);
    assert_int_equal(mtu_told, 0);
    assert_int_equal(c->mss, 1448);
    small_passes();
    assert_int_equal(mtu_told, 0);
    assert_int_equal(out[nout - 1].len, 1448);
    rtos_until(4);
    assert_int_equal(mtu_told, 1064);
    assert_int_equal(c->mss, 1012);
    assert_int_equal(sh.stats.mtu_black_holes, 1);
    assert_int_equal(out[nout - 1].len, 1012);
    assert_int_equal(out[nout - 1].off, 1448);
    assert_int_equal(black_holes, 0);
    close_conn();
    assert_int_equal(black_holes, 1);
}

/* Without timestamps an ACK of what was sent again is no sample, so the back-off stays (Karn): on a
 * slow path the next time-out of the large segment comes more than 10 s after the small one. */
static void test_black_hole_slow(void **state)
{
    open_conn((struct test_opts){.no_ts = true, .rtt_us = 500 * MS});
    send_segs(20);
    nout = 0;
    rtos_until(3);
    assert_int_equal(out[nout - 1].len, 1024);
    tell_ack((struct told){.ack = 1024, .win = 60000});
    tell_ack((struct told){.ack = 1448, .win = 60000});
    assert_true(tcp_rto_now(c) > 10000 * MS);
    rtos_until(4);
    assert_int_equal(mtu_told, 1064);
    assert_int_equal(c->mss, 1024);
    close_conn();
}

/* The peer is silent for a while and large segments pass again afterwards: the small segment is
 * lost, too, or a large one passes after it. */
static void test_outage(void **state)
{
    begin_large();
    rtos_until(3);
    assert_int_equal(out[nout - 1].len, 1012);
    rtos_until(4); /* the small segment was lost: the rest follows it at once again */
    assert_int_equal(out[nout - 2].len, 1012);
    assert_int_equal(out[nout - 1].len, 436);
    rtos_until(6);
    tell_ack((struct told){.ack = 14480, .win = 60000});
    assert_int_equal(c->mss, 1448);
    assert_int_equal(mtu_told, 0);
    close_conn();
    begin_large();
    rtos_until(3);
    small_passes();
    assert_int_equal(out[nout - 1].len, 1448);
    tell_ack((struct told){.ack = 2896, .win = 60000});
    rtos_until(5);
    assert_int_equal(mtu_told, 0);
    assert_int_equal(c->mss, 1448);
    close_conn();
    assert_int_equal(sh.stats.mtu_black_holes, 0);
}

/* Without a link every segment is lost: time-outs do not count. */
static void test_outage_of_link(void **state)
{
    begin_large();
    link_is_down = true;
    rtos_until(4);
    for (unsigned i = 0; i < nout; i++)
        assert_int_equal(out[i].len, 1448);
    link_is_down = false;
    rtos_until(6);
    assert_int_equal(out[nout - 1].len, 1448);
    assert_int_equal(mtu_told, 0);
    close_conn();
}

/* What ICMP says too large is sent again at once, smaller, and cwnd stays. */
static void test_remss(void **state)
{
    begin();
    send_segs(5);
    nout = 0;
    at(10 * MS);
    c->mss = 600;
    tcp_tx_remss(c, true);
    flush();
    check_board();
    assert_int_equal(c->tx.cwnd, 10 * SEG);
    assert_int_equal(nout, 10);
    assert_int_equal(out[0].len, 600);
    assert_int_equal(out[1].len, 400);
    assert_int_equal(out[9].off + out[9].len, 5 * SEG);
    tell_ack(ack_of(5));
    assert_int_equal(c->tx.state, TCP_CC_OPEN);
    close_conn();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tlp_resends_last), cmocka_unit_test(test_tlp_sends_new),
        cmocka_unit_test(test_tlp_single),       cmocka_unit_test(test_tlp_short_path),
        cmocka_unit_test(test_tlp_mended_loss),  cmocka_unit_test(test_tlp_when),
        cmocka_unit_test(test_rack_three),       cmocka_unit_test(test_rack_window),
        cmocka_unit_test(test_rack_adapts),      cmocka_unit_test(test_rack_lost_again),
        cmocka_unit_test(test_rack_rto),         cmocka_unit_test(test_rto_backoff),
        cmocka_unit_test(test_rto_values),       cmocka_unit_test(test_spurious_rto),
        cmocka_unit_test(test_dsack_undo),       cmocka_unit_test(test_reneging),
        cmocka_unit_test(test_newreno),          cmocka_unit_test(test_no_dupack),
        cmocka_unit_test(test_limited_transmit), cmocka_unit_test(test_ecn),
        cmocka_unit_test(test_black_hole),       cmocka_unit_test(test_outage),
        cmocka_unit_test(test_outage_of_link),   cmocka_unit_test(test_remss),
        cmocka_unit_test(test_black_hole_slow),
    };

    return cmocka_run_group_tests_name("tcp_tx_rack", tests, begin_env, end_env);
}
