/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Histogram of durations: a bucket for each of 256 steps of a power of two, so that a quantile is
 * within 0.2 % of the value that an exact sort gives. Belongs to one thread.
 */
#ifndef MILLRACE_PERF_HIST_H
#define MILLRACE_PERF_HIST_H

#include <stdint.h>

#define HIST_BITS    8
#define HIST_STEPS   (1u << HIST_BITS)
#define HIST_BUCKETS ((64 - HIST_BITS + 1) * HIST_STEPS)

struct hist {
    uint64_t count, sum, min, max;
    uint64_t bucket[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t ns);
/* Empties it; costs what it held. */
void hist_reset(struct hist *h);
/* The value that this fraction (0..1) of all values does not exceed, the middle of its bucket,
 * within min and max; 0 when empty. */
uint64_t hist_quantile(const struct hist *h, double fraction);
double hist_mean(const struct hist *h);

/* The quantiles that are reported, in this order: name is the key in JSON and CSV, text for people.
 */
struct hist_point {
    const char *name, *text;
    double fraction;
};
#define HIST_POINTS 6
extern const struct hist_point hist_points[HIST_POINTS]; /* p50 p90 p99 p99.9 p99.99 max */

#endif
