/* SPDX-License-Identifier: BSD-3-Clause */
/* The instruments themselves: checksum, match bits, record, sequence tracker. */
#include "app/millrace-perf/payload.h"
#include "app/millrace-perf/track.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void sum_sees_every_bit(void **state)
{
    static const size_t lens[] = {1, 7, 8, 9, 31, 32, 33, 63, 64, 257};
    uint8_t *pattern = pattern_make();

    assert_non_null(pattern);
    for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
        uint64_t good = payload_sum(pattern, lens[l]);
        for (size_t bit = 0; bit < lens[l] * 8; bit++) {
            pattern[bit / 8] ^= 1u << (bit % 8);
            assert_true(payload_sum(pattern, lens[l]) != good);
            pattern[bit / 8] ^= 1u << (bit % 8);
        }
        assert_true(payload_sum(pattern, lens[l]) == good);
    }
    free(pattern);
}

static void sum_sees_order_and_length(void **state)
{
    uint8_t a[96], b[96];

    for (unsigned i = 0; i < sizeof(a); i++)
        a[i] = (uint8_t)(i * 37);
    for (unsigned i = 0; i < sizeof(a); i += 8) { /* two words change places */
        for (unsigned j = i + 8; j < sizeof(a); j += 8) {
            memcpy(b, a, sizeof(a));
            memcpy(b + i, a + j, 8);
            memcpy(b + j, a + i, 8);
            assert_true(payload_sum(a, sizeof(a)) != payload_sum(b, sizeof(b)));
        }
    }
    memset(a, 0, sizeof(a)); /* zeros differ by their number alone */
    for (unsigned i = 0; i < sizeof(a); i++)
        for (unsigned j = 0; j < i; j++)
            assert_true(payload_sum(a, i) != payload_sum(a, j));
    assert_true(payload_sum(NULL, 0) == payload_sum(a, 0));
}

static void pattern_windows_differ(void **state)
{
    uint8_t *pattern = pattern_make(), *again = pattern_make();

    assert_non_null(pattern);
    assert_non_null(again);
    assert_memory_equal(pattern, again, PATTERN_SIZE);
    for (unsigned i = 0; i < PATTERN_SOURCES; i++) {
        assert_true(pattern_source_offset(i) + LNET_MAX_PAYLOAD <= PATTERN_SIZE);
        for (unsigned j = 0; j < i; j++)
            assert_memory_not_equal(pattern + pattern_source_offset(i),
                                    pattern + pattern_source_offset(j), 64);
    }
    free(pattern);
    free(again);
}

static void match_bits_round_trip(void **state)
{
    static const struct match all[] = {
        {MATCH_PUT, 1, 0, 0},
        {MATCH_PUT, 0, MATCH_RUN_MASK, UINT32_MAX},
        {MATCH_GET, 7, 0x12345, 42},
        {MATCH_REPORT, 0, 0xabcde, 0},
    };

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct match m = match_unpack(match_pack(&all[i]));
        assert_int_equal(m.kind, all[i].kind);
        assert_int_equal(m.source, all[i].source);
        assert_int_equal(m.run, all[i].run);
        assert_int_equal(m.seq, all[i].seq);
    }
}

/* Whether an entry of one kind takes bits of another. */
static bool matches(const struct match *entry, const struct match *message)
{
    return ((match_pack(entry) ^ match_pack(message)) & ~match_ignore(entry->kind)) == 0;
}

static void match_kinds_apart(void **state)
{
    struct match put = {MATCH_PUT, 1, 5, 6}, get = {MATCH_GET, 3, 5, 6},
                 report = {MATCH_REPORT, 0, 5, 0};

    assert_true(matches(&(struct match){.kind = MATCH_PUT}, &put));
    assert_false(matches(&(struct match){.kind = MATCH_PUT}, &get));
    assert_true(matches(&(struct match){.kind = MATCH_GET, .source = 3}, &get));
    assert_false(matches(&(struct match){.kind = MATCH_GET, .source = 2}, &get));
    assert_true(matches(&report, &report));
    assert_false(matches(&(struct match){.kind = MATCH_REPORT, .run = 4}, &report));
}

static void report_round_trip(void **state)
{
    struct run_report in = {1, 2, 3, 4, 5, 6, 7, 8}, out;
    uint8_t wire[RUN_REPORT_SIZE];

    run_report_encode(&in, wire);
    assert_int_equal(run_report_decode(wire, sizeof(wire), &out), 0);
    assert_memory_equal(&in, &out, sizeof(in));
    assert_int_equal(run_report_decode(wire, sizeof(wire) - 1, &out), -EINVAL);
    wire[0] ^= 1;
    assert_int_equal(run_report_decode(wire, sizeof(wire), &out), -EINVAL);
}

static void track_counts(void **state)
{
    struct track t;

    assert_int_equal(track_init(&t), 0);
    assert_int_equal(track_missing(&t), 0);
    track_add(&t, 2); /* out of order */
    assert_int_equal(track_missing(&t), 2);
    track_add(&t, 0);
    track_add(&t, 1);
    assert_int_equal(track_missing(&t), 0);
    track_add(&t, 1);
    assert_int_equal(t.repeated, 1);
    track_add(&t, 4);
    assert_int_equal(track_missing(&t), 1);
    assert_int_equal(t.distinct, 4);
    assert_int_equal(t.stale, 0);
    track_fini(&t);
}

static void track_window_moves(void **state)
{
    struct track t;

    assert_int_equal(track_init(&t), 0);
    for (uint32_t seq = 0; seq < 3 * TRACK_WINDOW; seq++)
        track_add(&t, seq);
    assert_int_equal(t.repeated, 0);
    assert_int_equal(track_missing(&t), 0);
    track_add(&t, 2 * TRACK_WINDOW); /* the oldest still told apart */
    assert_int_equal(t.repeated, 1);
    track_add(&t, 2 * TRACK_WINDOW - 1);
    assert_int_equal(t.stale, 1);
    track_add(&t, UINT32_MAX); /* a jump over everything */
    track_add(&t, UINT32_MAX - 1);
    assert_int_equal(t.repeated, 1);
    assert_int_equal(track_missing(&t), (uint64_t)UINT32_MAX + 1 - (3ull * TRACK_WINDOW + 2));
    track_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum_sees_every_bit),     cmocka_unit_test(sum_sees_order_and_length),
        cmocka_unit_test(pattern_windows_differ), cmocka_unit_test(match_bits_round_trip),
        cmocka_unit_test(match_kinds_apart),      cmocka_unit_test(report_round_trip),
        cmocka_unit_test(track_counts),           cmocka_unit_test(track_window_moves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
