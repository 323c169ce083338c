/* SPDX-License-Identifier: BSD-3-Clause */
/* The histogram against an exact sort. */
#include "app/millrace-perf/hist.h"
#include "app/millrace-perf/payload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define VALUES 200000

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint64_t uniform_value(uint64_t *random)
{
    return payload_random(random) % 3000000;
}

/* From nanoseconds to minutes, every magnitude as often. */
static uint64_t wide_value(uint64_t *random)
{
    return (uint64_t)exp(25.0 * (double)(payload_random(random) >> 11) / (double)(1ull << 53));
}

/* Mostly 100 us, one in 500 far away. */
static uint64_t two_value(uint64_t *random)
{
    uint64_t r = payload_random(random);

    return (r % 500 == 0 ? 100000000 : 100000) + r / 500 % 1000;
}

static void against_sort(uint64_t (*next)(uint64_t *))
{
    uint64_t random = 12345, *value = calloc(VALUES, sizeof(*value));
    struct hist *h = calloc(1, sizeof(*h));
    double worst = 0, sum = 0;

    assert_non_null(value);
    assert_non_null(h);
    for (unsigned i = 0; i < VALUES; i++) {
        value[i] = next(&random);
        sum += (double)value[i];
        hist_add(h, value[i]);
    }
    qsort(value, VALUES, sizeof(*value), by_value);
    for (double f = 0.0005; f <= 1; f += 0.0005) {
        uint64_t exact = value[(unsigned)ceil(f * VALUES) - 1], got = hist_quantile(h, f);
        double off = fabs((double)got - (double)exact);
        if (exact >= HIST_STEPS && off / (double)exact > worst)
            worst = off / (double)exact;
        else if (exact < HIST_STEPS)
            assert_int_equal(got, exact);
    }
    printf("worst error %.4f %%\n", worst * 100);
    assert_true(worst < 0.002);
    assert_int_equal(h->min, value[0]);
    assert_int_equal(h->max, value[VALUES - 1]);
    assert_int_equal(hist_quantile(h, 1), value[VALUES - 1]);
    assert_true(fabs(hist_mean(h) - sum / VALUES) < 1e-6 * sum / VALUES + 1);
    free(value);
    free(h);
}

static void uniform_within_bound(void **state)
{
    against_sort(uniform_value);
}

static void wide_within_bound(void **state)
{
    against_sort(wide_value);
}

static void tail_within_bound(void **state)
{
    against_sort(two_value);
}

/* Each power of two and its neighbours: the edges of buckets. */
static void edges(void **state)
{
    struct hist *h = calloc(1, sizeof(*h));

    assert_non_null(h);
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int near = -1; near <= 1; near++) {
            uint64_t v = (1ull << shift) + (uint64_t)near, got;
            hist_add(h, v);
            hist_add(h, UINT64_MAX); /* so that v is no maximum */
            hist_add(h, 0);          /* … and no minimum */
            got = hist_quantile(h, 0.5);
            assert_true(fabs((double)got - (double)v) <= (double)v * 0.002);
            hist_reset(h);
        }
    }
    free(h);
}

static void reset_empties(void **state)
{
    struct hist *h = calloc(1, sizeof(*h)), *zero = calloc(1, sizeof(*h));
    uint64_t random = 7;

    assert_non_null(h);
    assert_non_null(zero);
    hist_reset(h); /* an empty one */
    for (unsigned i = 0; i < 1000; i++)
        hist_add(h, wide_value(&random));
    hist_add(h, 0);
    hist_add(h, UINT64_MAX);
    hist_reset(h);
    assert_memory_equal(h, zero, sizeof(*h));
    assert_int_equal(hist_quantile(h, 0.5), 0);
    free(h);
    free(zero);
}

/* Ranks are not rounded away: of 1000 values one is above p99.9, none is above p99.99. */
static void tail_ranks(void **state)
{
    struct hist *h = calloc(1, sizeof(*h));

    assert_non_null(h);
    for (unsigned i = 0; i < 998; i++)
        hist_add(h, 100);
    hist_add(h, 200);
    hist_add(h, 250);
    assert_int_equal(hist_quantile(h, 0.998), 100);
    assert_int_equal(hist_quantile(h, 0.999), 200);
    assert_int_equal(hist_quantile(h, 0.9999), 250);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform_within_bound), cmocka_unit_test(wide_within_bound),
        cmocka_unit_test(tail_within_bound),    cmocka_unit_test(edges),
        cmocka_unit_test(reset_empties),        cmocka_unit_test(tail_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
