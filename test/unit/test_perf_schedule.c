/* SPDX-License-Identifier: BSD-3-Clause */
/* Arrivals, sizes, kinds, order and ranges against what statistics and arithmetic say of them. */
#include "app/millrace-perf/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define DRAWS 400000

/* ---- arrivals ---- */

/* Gaps of a Poisson process of rate r: mean 1/r, variance 1/r². Over n gaps the mean is within 5
 * standard errors (5/sqrt(n)), the variance too (its error is sqrt(8/n) of it). */
static void poisson_gaps(void **state)
{
    struct arrivals a;
    double sum = 0, squares = 0, mean, variance;
    uint64_t last = 0, short_gaps = 0;

    arrivals_init(&a, ARRIVALS_POISSON, 20000, 99); /* mean 50 us */
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t at = arrivals_next(&a);
        double gap = (double)(at - last);
        assert_true(at >= last);
        last = at;
        sum += gap;
        squares += gap * gap;
        short_gaps += gap < 50000 * M_LN2; /* half of all: the median of an exponential */
    }
    mean = sum / DRAWS;
    variance = squares / DRAWS - mean * mean;
    assert_true(fabs(mean / 50000 - 1) < 5 / sqrt(DRAWS));
    assert_true(fabs(variance / (50000.0 * 50000) - 1) < 5 * sqrt(8.0 / DRAWS));
    assert_true(fabs((double)short_gaps / DRAWS - 0.5) < 5 * 0.5 / sqrt(DRAWS));
}

/* How many come in windows of 1 ms at 20 a window: as many on average, and as varied (variance =
 * mean), which equal gaps with a jitter would not be. */
static void poisson_counts(void **state)
{
    struct arrivals a;
    uint64_t at;
    double sum = 0, squares = 0;
    unsigned windows = 20000;

    arrivals_init(&a, ARRIVALS_POISSON, 20000, 5);
    at = arrivals_next(&a);
    for (unsigned w = 0; w < windows; w++) {
        unsigned n = 0;
        for (; at < (w + 1) * 1000000ull; at = arrivals_next(&a))
            n++;
        sum += n;
        squares += (double)n * n;
    }
    sum /= windows;
    assert_true(fabs(sum / 20 - 1) < 5 / sqrt(20.0 * windows));
    assert_true(fabs((squares / windows - sum * sum) / 20 - 1) < 5 * sqrt(2.0 / windows));
}

static void fixed_gaps_do_not_drift(void **state)
{
    struct arrivals a;

    arrivals_init(&a, ARRIVALS_FIXED, 300000, 1); /* 3333.33 ns */
    for (uint64_t i = 0; i < 3000000; i++) {
        uint64_t at = arrivals_next(&a);
        assert_in_range(at, i * 10000 / 3 - (i > 0), i * 10000 / 3 + 1);
    }
}

static void seeds_repeat_and_differ(void **state)
{
    struct arrivals a, b, c;
    unsigned same = 0;

    arrivals_init(&a, ARRIVALS_POISSON, 1000, 7);
    arrivals_init(&b, ARRIVALS_POISSON, 1000, 7);
    arrivals_init(&c, ARRIVALS_POISSON, 1000, 8);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t x = arrivals_next(&a);
        assert_int_equal(x, arrivals_next(&b));
        same += x == arrivals_next(&c);
    }
    assert_true(same < 10);
    for (uint64_t seed = 0; seed < 1000; seed++)
        for (enum seed_of of = SEED_ARRIVALS; of <= SEED_SAMPLES; of++)
            assert_true(seed_state(seed, of) != 0 &&
                        seed_state(seed, of) != seed_state(seed + 1, of));
}

/* ---- sizes ---- */

static void sizes_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "-",
        "1-",
        "9-3",
        "1048577",
        "1M-2M",
        "4k:",
        "4k,",
        ",4k",
        "4k:80,",
        "4k;1m",
        "mix:3",
        "mix,4k",
        "-1",
        "4k:-1",
        "4k 1m",
        "0x10",
        "4kk",
        "4k:0",
        "1:0,2:0",
        "1:9999999",
        "4k:8.5",
        "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33",
        "99999999999999999999999",
    };
    struct sizes s;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sizes_parse(bad[i], &s) == 0)
            fail_msg("'%s' was taken", bad[i]);
}

static void sizes_of_one(void **state)
{
    struct sizes s;
    uint64_t random = 3;

    assert_int_equal(sizes_parse("4k", &s), 0);
    assert_int_equal(sizes_next(&s, &random), 4096);
    assert_int_equal(random, 3); /* drew nothing */
    assert_int_equal(sizes_max(&s), 4096);
    assert_int_equal(sizes_parse("0", &s), 0);
    assert_int_equal(sizes_next(&s, &random), 0);
}

/* Uniform over 11 sizes, both ends included: each within 5 standard deviations of its share. */
static void sizes_in_range(void **state)
{
    struct sizes s;
    unsigned count[11] = {0};
    uint64_t random = 3;
    double sigma = sqrt(DRAWS * (1 / 11.0) * (10 / 11.0));

    assert_int_equal(sizes_parse("100-110", &s), 0);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t size = sizes_next(&s, &random);
        assert_in_range(size, 100, 110);
        count[size - 100]++;
    }
    for (unsigned i = 0; i < 11; i++)
        assert_true(fabs(count[i] - DRAWS / 11.0) < 5 * sigma);
}

static void sizes_by_weight(void **state)
{
    struct sizes s;
    unsigned small = 0, large = 0, range = 0;
    uint64_t random = 3;

    assert_int_equal(sizes_parse("4k:70,1m:20,8-16:10,77:0", &s), 0);
    assert_int_equal(sizes_max(&s), 1 << 20);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t size = sizes_next(&s, &random);
        small += size == 4096;
        large += size == 1 << 20;
        range += size >= 8 && size <= 16;
    }
    assert_int_equal(small + large + range, DRAWS);
    assert_true(fabs(small - 0.7 * DRAWS) < 5 * sqrt(DRAWS * 0.7 * 0.3));
    assert_true(fabs(large - 0.2 * DRAWS) < 5 * sqrt(DRAWS * 0.2 * 0.8));
    assert_true(fabs(range - 0.1 * DRAWS) < 5 * sqrt(DRAWS * 0.1 * 0.9));
}

static void sizes_of_mix(void **state)
{
    struct sizes s;
    unsigned none = 0, most = 0;
    uint64_t random = 3;

    assert_int_equal(sizes_parse("mix", &s), 0);
    assert_int_equal(sizes_max(&s), LNET_MAX_PAYLOAD);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t size = sizes_next(&s, &random);
        assert_true(size <= LNET_MAX_PAYLOAD);
        none += size == 0;
        most += size == LNET_MAX_PAYLOAD;
    }
    assert_true(fabs(none - DRAWS / 7.0) < 5 * sqrt(DRAWS * (1 / 7.0) * (6 / 7.0)));
    assert_true(fabs(most - DRAWS / 7.0) < 5 * sqrt(DRAWS * (1 / 7.0) * (6 / 7.0)));
}

/* ---- kinds ---- */

static void kinds_by_weight(void **state)
{
    static const char *const bad[] = {"",      "put",         "put:",   "put:1,put:2",
                                      "get:0", "put:1;get:2", "push:1", "put:0,get:0",
                                      "put:1,"};
    struct kinds k;
    unsigned puts = 0;
    uint64_t random = 3;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (kinds_parse(bad[i], &k) == 0)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(kinds_parse("get:30,put:70", &k), 0);
    for (unsigned i = 0; i < DRAWS; i++)
        puts += kinds_next(&k, i, &random) == OP_PUT;
    assert_true(fabs(puts - 0.7 * DRAWS) < 5 * sqrt(DRAWS * 0.7 * 0.3));
    assert_int_equal(kinds_parse("get:1", &k), 0);
    assert_int_equal(kinds_next(&k, 0, &random), OP_GET);
    k = (struct kinds){.in_turn = true};
    assert_int_equal(kinds_next(&k, 0, &random), OP_PUT);
    assert_int_equal(kinds_next(&k, 1, &random), OP_GET);
    assert_int_equal(kinds_next(&k, 2, &random), OP_PUT);
}

/* ---- order ---- */

static void every_pair_in_turn(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 7}, {7, 1}, {6, 4}, {4, 6}, {5, 3}, {8, 8}};

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        uint32_t s = shapes[i][0], t = shapes[i][1], from, to, last_to = UINT32_MAX;
        unsigned seen[8][8] = {{0}};
        struct order o;
        order_init(&o, false, s, t, 1);
        for (uint32_t n = 0; n < 2 * s * t; n++) {
            order_next(&o, &from, &to);
            assert_int_equal(from, n % s);
            seen[from][to]++;
            if (s > 1 && t > 1 && n % s != 0)
                assert_int_not_equal(to, last_to);
            last_to = to;
        }
        for (uint32_t f = 0; f < s; f++)
            for (uint32_t x = 0; x < t; x++)
                assert_int_equal(seen[f][x], 2);
    }
}

static void any_pair_at_random(void **state)
{
    unsigned seen[5][3] = {{0}};
    struct order o;

    order_init(&o, true, 5, 3, 1);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t from, to;
        order_next(&o, &from, &to);
        assert_true(from < 5 && to < 3);
        seen[from][to]++;
    }
    for (unsigned f = 0; f < 5; f++)
        for (unsigned t = 0; t < 3; t++)
            assert_true(fabs(seen[f][t] - DRAWS / 15.0) <
                        5 * sqrt(DRAWS * (1 / 15.0) * (14 / 15.0)));
}

/* ---- ranges ---- */

static void ranges_count_up(void **state)
{
    static const char *const bad[] = {"",
                                      "*",
                                      "*3",
                                      "10.0.0.1@tcp*",
                                      "10.0.0.1@tcp*0",
                                      "x@y*2",
                                      "10.0.0.1@tcp*2*2",
                                      "255.255.255.255@tcp*2",
                                      "10.0.0.1@tcp*-1",
                                      "10.0.0.1@tcp*99999999999"};
    struct perf_range r;
    struct lnet_nid nid;
    char text[LNET_NIDSTR_SIZE];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (range_parse(bad[i], &r) == 0)
            fail_msg("'%s' was taken", bad[i]);
    assert_int_equal(range_parse("10.0.0.250@tcp1*1000", &r), 0);
    assert_int_equal(r.count, 1000);
    range_at(&r, 0, &nid);
    assert_string_equal(nid_format(&nid, text), "10.0.0.250@tcp1");
    range_at(&r, 999, &nid);
    assert_string_equal(nid_format(&nid, text), "10.0.4.225@tcp1");
    assert_int_equal(range_parse("255.255.255.255@tcp", &r), 0);
    assert_int_equal(r.count, 1);
    assert_int_equal(range_parse("fd00::ffff@tcp*2", &r), 0);
    range_at(&r, 1, &nid);
    assert_string_equal(nid_format(&nid, text), "fd00::1:0@tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poisson_gaps),
        cmocka_unit_test(poisson_counts),
        cmocka_unit_test(fixed_gaps_do_not_drift),
        cmocka_unit_test(seeds_repeat_and_differ),
        cmocka_unit_test(sizes_refused),
        cmocka_unit_test(sizes_of_one),
        cmocka_unit_test(sizes_in_range),
        cmocka_unit_test(sizes_by_weight),
        cmocka_unit_test(sizes_of_mix),
        cmocka_unit_test(kinds_by_weight),
        cmocka_unit_test(every_pair_in_turn),
        cmocka_unit_test(any_pair_at_random),
        cmocka_unit_test(ranges_count_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
