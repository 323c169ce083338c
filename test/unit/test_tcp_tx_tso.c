/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that a device cuts and that may have few buffers: at most `each` for one TCP segment with
 * its headers, and `all` for the whole frame. The device of this test counts both as such a device
 * does, for each segment that it makes.
 */
#include "tcp_tx_test.h"

#include "lib/lnd_eth/port/port_internal.h"

#define MSS  1448u
#define CWND (4u << 20)

static struct limits {
    unsigned each, all;
} device;
static uint64_t rng;
static uint64_t come; /* acknowledged */
static struct {
    uint64_t end; /* of what came, losses not counted */
    unsigned frames, cut, most_segs, most_bytes, most_each;
    unsigned lose; /* frames in a thousand */
} seen;

static uint32_t any(uint32_t below)
{
    return (uint32_t)(test_random(&rng) % below);
}

/* Buffers that a segment of the frame lies in: those with bytes of [from, from + len). */
static unsigned covered(const struct rte_mbuf *m, uint32_t from, uint32_t len)
{
    uint32_t at = 0;
    unsigned n = 0;

    for (; m; at += m->data_len, m = m->next)
        n += at < from + len && from < at + m->data_len;
    return n;
}

static void device_takes(const struct rte_mbuf *m, bool tso)
{
    unsigned headers = RTE_MBUF_DIRECT(m) ? 0 : 1, n;

    seen.frames++;
    if (!tso)
        return; /* the port makes one buffer of too many */
    seen.cut++;
    assert_true(m->nb_segs + headers <= device.all);
    seen.most_segs = max(seen.most_segs, m->nb_segs + headers);
    seen.most_bytes = max(seen.most_bytes, m->pkt_len);
    for (uint32_t at = 0; at < m->pkt_len; at += MSS) {
        n = covered(m, at, MSS) + headers;
        if (n > device.each)
            fail_msg("%u buffers for the segment at %u of %u bytes", n, at, m->pkt_len);
        seen.most_each = max(seen.most_each, n);
    }
}

static void wire(const struct sent *s)
{
    if (s->begins && any(1000) < seen.lose)
        return;
    if (s->off <= seen.end)
        seen.end = max(seen.end, s->off + s->len);
}

static void begin_with(struct limits limits)
{
    open_conn((struct test_opts){
        .mss = MSS, .isn = UINT32_MAX - 1500, .rtt_us = 20 * MS, .wnd = 4 << 20, .wscale = 7});
    c->tx.cwnd = CWND;
    test_tso = 65000;
    look_at = device_takes;
    device = limits;
    assert_true(port_segs_set(&test_port, true, limits.each, limits.all));
    memset(&seen, 0, sizeof(seen));
    come = 0;
}

static void end(void)
{
    close_conn();
    look_at = NULL;
    test_port.tso_segs = test_port.tso_run = 0;
}

/* Acknowledges all that came, until n bytes have. */
static void all_come(uint64_t n)
{
    for (unsigned rounds = 0; come < n; rounds++) {
        assert_true(rounds < 10000);
        flush();
        if (seen.end > come) {
            come = seen.end;
            tell_ack((struct told){.ack = come, .win = 4 << 20});
            c->tx.cwnd = CWND;
        } else {
            pass_until(now + 5 * MS);
        }
    }
}

/* A message with few buffers goes as if there were no limits. */
static void test_whole(void **state)
{
    begin_with((struct limits){8, 255});
    assert_int_equal(give(0, 40 * MSS, MSS, true, false), 40 * MSS);
    all_come(40 * MSS);
    assert_int_equal(seen.frames, 1);
    assert_int_equal(seen.most_segs, 41);
    end();
}

/* The whole frame has a limit too: whole segments go in each. */
static void test_all(void **state)
{
    begin_with((struct limits){17, 17});
    assert_int_equal(give(0, 40 * MSS, 1000, true, false), 40 * MSS);
    all_come(40 * MSS);
    assert_int_equal(seen.most_segs, 17);
    assert_int_equal(seen.most_bytes, 16000 / MSS * MSS);
    end();
}

/* Where a segment has too many buffers it goes alone, and the next ones together again. */
static void test_tiny(void **state)
{
    begin_with((struct limits){8, 255});
    assert_int_equal(give(0, 10 * MSS, MSS, true, true), 10 * MSS);
    assert_int_equal(give(10 * MSS, 2 * MSS, 100, true, true), 2 * MSS);
    assert_int_equal(give(12 * MSS, 20 * MSS, MSS, true, false), 20 * MSS);
    all_come(32 * MSS);
    assert_int_equal(seen.cut, 2);
    assert_int_equal(seen.most_bytes, 20 * MSS);
    assert_int_equal(seen.frames, 4);
    end();
}

/* Gives a message of small buffers, of buffers of any size, or of the smallest that may be cut. */
static uint32_t give_any(uint64_t off)
{
    uint32_t kind = any(3), whole = MSS / test_port.tso_run + 1, n = 0, size;

    for (unsigned k = any(100); k > 0; k--) {
        size = kind == 0 ? 1 + any(200) : kind == 1 ? 1 + any(MSS) : whole;
        n += give(off + n, size, 1900, true, k > 1);
    }
    return n;
}

/* Buffers of any size, and frames that are lost and cut anew. */
static void test_any(void **state)
{
    static const struct limits limits[] = {{8, 255},  {8, 8},   {10, 4096},
                                           {16, 255}, {17, 17}, {40, 40}};

    for (unsigned i = 0; i < RTE_DIM(limits); i++) {
        rng = 17 + i;
        begin_with(limits[i]);
        seen.lose = 50;
        for (uint64_t n = 0; n < 2000000; n += give_any(n)) {
            if (any(4) == 0)
                all_come(n);
            else
                flush();
        }
        seen.lose = 0;
        all_come(off_of(c->tx.end));
        assert_true(seen.cut > 100 && seen.cut < seen.frames);
        /* As many as may be. */
        if (limits[i].all > limits[i].each)
            assert_int_equal(seen.most_each, limits[i].each);
        else
            assert_int_equal(seen.most_segs, limits[i].all);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_any),
    };

    return cmocka_run_group_tests_name("tcp_tx_tso", tests, begin_env, end_env);
}
