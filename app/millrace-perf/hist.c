/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/hist.h"

#include <math.h>
#include <string.h>

const struct hist_point hist_points[HIST_POINTS] = {
    {"p50", "p50", 0.5},       {"p90", "p90", 0.9},          {"p99", "p99", 0.99},
    {"p99_9", "p99.9", 0.999}, {"p99_99", "p99.99", 0.9999}, {"max", "max", 1.0},
};

static unsigned bucket_of(uint64_t ns)
{
    unsigned shift;

    if (ns < HIST_STEPS)
        return (unsigned)ns;
    shift = 63 - HIST_BITS - (unsigned)__builtin_clzll(ns); /* leaves HIST_BITS + 1 bits */
    return (shift + 1) * HIST_STEPS + (unsigned)(ns >> shift & (HIST_STEPS - 1));
}

/* Of all values that fall into a bucket. */
static uint64_t bucket_middle(unsigned bucket)
{
    unsigned shift;

    if (bucket < HIST_STEPS)
        return bucket;
    shift = bucket / HIST_STEPS - 1;
    return ((HIST_STEPS + (uint64_t)(bucket % HIST_STEPS)) << shift) + (1ull << shift >> 1);
}

void hist_add(struct hist *h, uint64_t ns)
{
    if (h->count == 0 || ns < h->min)
        h->min = ns;
    if (ns > h->max)
        h->max = ns;
    h->count++;
    h->sum += ns;
    h->bucket[bucket_of(ns)]++;
}

void hist_reset(struct hist *h)
{
    unsigned first = bucket_of(h->min), last = bucket_of(h->max);

    memset(&h->bucket[first], 0, (last - first + 1) * sizeof(h->bucket[0]));
    h->count = h->sum = h->min = h->max = 0;
}

/* The rank is the nearest one: the smallest value with at least fraction * count values up to it.
 */
uint64_t hist_quantile(const struct hist *h, double fraction)
{
    uint64_t want, seen = 0, value;
    unsigned i;

    if (h->count == 0)
        return 0;
    want = (uint64_t)ceil(fraction * (double)h->count);
    if (want >= h->count)
        return h->max;
    for (i = bucket_of(h->min); i < HIST_BUCKETS; i++) {
        seen += h->bucket[i];
        if (seen >= want && seen > 0)
            break;
    }
    value = i < HIST_BUCKETS ? bucket_middle(i) : h->max;
    return value < h->min ? h->min : value > h->max ? h->max : value;
}

double hist_mean(const struct hist *h)
{
    return h->count == 0 ? 0 : (double)h->sum / (double)h->count;
}
