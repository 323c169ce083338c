/* SPDX-License-Identifier: BSD-3-Clause */
/* TCP headers and options: what is written is read again, and everything malformed is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/lnd_eth/tcp/tcp_wire.h"

/* A header with n bytes of options (padded with zeroes) and `payload` bytes behind it. */
static size_t header(uint8_t *p, uint8_t flags, const void *options, size_t n)
{
    size_t hdr = TCP_HDR_SIZE + (n + 3) / 4 * 4;

    memset(p, 0, TCP_HDR_MAX);
    p[1] = 1;
    p[3] = 2;
    p[12] = (uint8_t)(hdr / 4 << 4);
    p[13] = flags;
    memcpy(p + TCP_HDR_SIZE, options, n);
    return hdr;
}

static enum pkt_drop decode(uint8_t flags, const void *options, size_t n, struct tcp_seg *seg)
{
    uint8_t *exact, p[TCP_HDR_MAX];
    size_t len = header(p, flags, options, n);
    enum pkt_drop drop;

    exact = malloc(len); /* nothing behind it may be read */
    memcpy(exact, p, len);
    drop = tcp_seg_decode(exact, len, (uint32_t)len, seg);
    free(exact);
    return drop;
}

#define GOOD(flags, seg, ...)                                                                      \
    do {                                                                                           \
        const uint8_t opt[] = {__VA_ARGS__};                                                       \
        assert_int_equal(decode(flags, opt, sizeof(opt), seg), PKT_DROP_NONE);                     \
    } while (0)
#define BAD(flags, ...)                                                                            \
    do {                                                                                           \
        const uint8_t opt[] = {__VA_ARGS__};                                                       \
        struct tcp_seg none;                                                                       \
        assert_int_equal(decode(flags, opt, sizeof(opt), &none), PKT_DROP_TCP_BAD);                \
    } while (0)

static void test_header(void **state)
{
    uint8_t p[TCP_HDR_MAX];
    struct tcp_seg seg;
    size_t len = header(p, TCP_FLAG_ACK, "", 0);

    memcpy(p, "\x03\xff\x03\xdc\x01\x02\x03\x04\x05\x06\x07\x08\x50\x18\x09\x0a", 16);
    assert_int_equal(tcp_seg_decode(p, len, (uint32_t)len + 7, &seg), PKT_DROP_NONE);
    assert_int_equal(seg.sport, 1023);
    assert_int_equal(seg.dport, 988);
    assert_int_equal(seg.seq, 0x01020304);
    assert_int_equal(seg.ack, 0x05060708);
    assert_int_equal(seg.flags, TCP_FLAG_ACK | TCP_FLAG_PSH);
    assert_int_equal(seg.win, 0x090a);
    assert_int_equal(seg.len, 7);
    assert_int_equal(seg.hdr_len, 20);
}

static void test_lengths(void **state)
{
    uint8_t p[TCP_HDR_MAX];
    struct tcp_seg seg;

    for (uint32_t len = 0; len < TCP_HDR_SIZE; len++) {
        header(p, TCP_FLAG_ACK, "", 0);
        assert_int_equal(tcp_seg_decode(p, len, len, &seg), PKT_DROP_TCP_BAD);
        assert_int_equal(tcp_seg_decode(p, TCP_HDR_SIZE, len, &seg), PKT_DROP_TCP_BAD);
    }
    for (unsigned words = 0; words < 16; words++) { /* data offset */
        header(p, TCP_FLAG_ACK, "", 0);
        p[12] = (uint8_t)(words << 4);
        assert_int_equal(tcp_seg_decode(p, TCP_HDR_MAX, TCP_HDR_MAX, &seg),
                         words < 5 ? PKT_DROP_TCP_BAD : PKT_DROP_NONE);
        if (words <= 5)
            continue;
        /* The header lies: beyond what there is, or beyond the segment. */
        assert_int_equal(tcp_seg_decode(p, words * 4 - 1, TCP_HDR_MAX, &seg), PKT_DROP_TCP_BAD);
        assert_int_equal(tcp_seg_decode(p, TCP_HDR_MAX, words * 4 - 1, &seg), PKT_DROP_TCP_BAD);
    }
    header(p, TCP_FLAG_ACK, "", 0);
    p[1] = 0;
    assert_int_equal(tcp_seg_decode(p, 20, 20, &seg), PKT_DROP_TCP_BAD); /* port 0 */
    header(p, TCP_FLAG_ACK, "", 0);
    p[3] = 0;
    assert_int_equal(tcp_seg_decode(p, 20, 20, &seg), PKT_DROP_TCP_BAD);
}

static void test_options(void **state)
{
    struct tcp_seg seg;

    GOOD(TCP_FLAG_SYN, &seg, 2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7);
    assert_true(seg.has_mss && seg.sack_ok && seg.has_ts && seg.has_wscale);
    assert_int_equal(seg.mss, 1460);
    assert_int_equal(seg.ts_val, 1);
    assert_int_equal(seg.ts_ecr, 2);
    assert_int_equal(seg.wscale, 7);
    GOOD(TCP_FLAG_SYN, &seg, 3, 3, 255); /* RFC 7323 §2.3: taken as 14 */
    assert_int_equal(seg.wscale, 14);
    /* Outside a SYN these three mean nothing. */
    GOOD(TCP_FLAG_ACK, &seg, 2, 4, 0x05, 0xb4, 4, 2, 3, 3, 7);
    assert_false(seg.has_mss || seg.sack_ok || seg.has_wscale);
    GOOD(TCP_FLAG_ACK, &seg, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 9);
    assert_int_equal(seg.nsack, 2);
    assert_int_equal(seg.sack[0].left, 1);
    assert_int_equal(seg.sack[0].right, 2);
    assert_int_equal(seg.sack[1].left, 0xffffffff);
    assert_int_equal(seg.sack[1].right, 9);
    /* Unknown ones are passed over; behind the end of the list nothing is looked at. */
    GOOD(TCP_FLAG_SYN, &seg, 253, 2, 34, 6, 9, 9, 9, 9, 1, 1, 4, 2);
    assert_true(seg.sack_ok);
    GOOD(TCP_FLAG_SYN, &seg, 1, 0, 2, 0, 4, 2);
    assert_false(seg.sack_ok);
}

static void test_malformed(void **state)
{
    for (unsigned syn = 0; syn <= TCP_FLAG_SYN; syn += TCP_FLAG_SYN) {
        uint8_t f = (uint8_t)syn;

        BAD(f, 1, 1, 1, 2); /* no length */
        BAD(f, 1, 1, 2, 0); /* length 0, 1 */
        BAD(f, 2, 1, 0, 0);
        BAD(f, 77, 0, 0, 0); /* of unknown ones too */
        BAD(f, 77, 1, 0, 0);
        BAD(f, 77, 5, 0, 0); /* runs out of the header */
        BAD(f, 2, 4, 5, 0xb4, 77, 5, 0, 0);
        BAD(f, 2, 3, 1, 0); /* MSS of another size */
        BAD(f, 2, 5, 1, 0, 0, 0, 0, 0);
        BAD(f, 2, 2, 1, 1);
        BAD(f, 3, 2, 1, 1); /* window scale */
        BAD(f, 3, 4, 1, 1);
        BAD(f, 4, 3, 1, 1); /* SACK permitted */
        BAD(f, 5, 2, 1, 1); /* SACK without a block, with half of one, with five */
        BAD(f, 5, 6, 1, 1, 1, 1, 1, 1);
        BAD(f, 5, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        BAD(f, 5, 18, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        BAD(f, 8, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1); /* timestamp */
        BAD(f, 8, 11, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
        BAD(f, 8, 10, 1, 1, 1, 1, 1, 1); /* cut off */
        BAD(f, 1, 8, 10, 1);
    }
}

static void test_random_options(void **state)
{
    uint64_t rnd = 88172645463325252u;
    struct tcp_seg seg;

    for (int i = 0; i < 200000; i++) {
        uint8_t opt[40];
        size_t n = (size_t)(i % 41);

        for (size_t k = 0; k < n; k++) {
            rnd ^= rnd << 13;
            rnd ^= rnd >> 7;
            rnd ^= rnd << 17;
            opt[k] = (uint8_t)(rnd >> 40) % 12; /* kinds and lengths that mean something */
        }
        if (decode((uint8_t)i, opt, n, &seg) == PKT_DROP_NONE)
            assert_true(seg.nsack <= TCP_SACK_MAX && seg.wscale <= 14);
    }
}

static void test_written_is_read(void **state)
{
    for (unsigned bits = 0; bits < 32; bits++) {
        for (uint8_t nsack = 0; nsack <= TCP_SACK_MAX; nsack++) {
            struct tcp_seg in = {.sport = 1,
                                 .dport = 65535,
                                 .seq = 0xfffffffe,
                                 .ack = 77,
                                 .flags = bits & 16 ? TCP_FLAG_SYN : TCP_FLAG_ACK,
                                 .win = 4711,
                                 .has_ts = bits & 1,
                                 .has_mss = bits & 2,
                                 .has_wscale = bits & 4,
                                 .sack_ok = bits & 8,
                                 .ts_val = 0x80000001,
                                 .ts_ecr = 5,
                                 .mss = 8960,
                                 .wscale = 14};
            uint8_t p[TCP_HDR_MAX];
            struct tcp_seg out;
            bool syn = bits & 16;
            size_t n;

            in.nsack = syn ? 0 : nsack;
            for (uint8_t i = 0; i < nsack; i++)
                in.sack[i] = (struct tcp_sack_block){i * 100u, i * 100u + 50};
            n = tcp_seg_encode(&in, p);
            assert_true(n <= TCP_HDR_MAX && n % 4 == 0);
            assert_int_equal(tcp_seg_decode(p, n, (uint32_t)n + 1000, &out), PKT_DROP_NONE);
            assert_int_equal(out.len, 1000);
            assert_int_equal(out.hdr_len, n);
            assert_int_equal(out.seq, in.seq);
            assert_int_equal(out.ack, in.ack);
            assert_int_equal(out.flags, in.flags);
            assert_int_equal(out.win, in.win);
            assert_int_equal(out.has_ts, in.has_ts);
            assert_int_equal(out.ts_val, in.has_ts ? in.ts_val : 0);
            assert_int_equal(out.has_mss, syn && in.has_mss);
            assert_int_equal(out.mss, syn && in.has_mss ? in.mss : 0);
            assert_int_equal(out.has_wscale, syn && in.has_wscale);
            assert_int_equal(out.wscale, syn && in.has_wscale ? in.wscale : 0);
            assert_int_equal(out.sack_ok, syn && in.sack_ok);
            assert_int_equal(out.nsack, in.has_ts && in.nsack > 3 ? 3 : in.nsack);
            assert_memory_equal(out.sack, in.sack, out.nsack * sizeof(in.sack[0]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),         cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_options),        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_random_options), cmocka_unit_test(test_written_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
