/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts and quantiles of each interval of a run. The reactor closes an interval and hands it over
 * in a ring; the control thread takes it and prints it, also as CSV.
 */
#ifndef MILLRACE_PERF_INTERVAL_H
#define MILLRACE_PERF_INTERVAL_H

#include "app/millrace-perf/engine.h"
#include "app/millrace-perf/hist.h"

#include <stdio.h>

/* Counters of an interval, or of a run since its start. */
struct interval_counts {
    uint64_t done[OP_KINDS]; /* answered, right */
    uint64_t bytes;          /* payload of those */
    uint64_t bad;            /* lost, altered, not sent */
    uint64_t waiting;        /* due and not sent, at the end */
    uint64_t in_flight;      /* sent and not answered, at the end */
};

struct interval {
    uint64_t from_ns, to_ns; /* since the start of the run */
    struct interval_counts counts;
    uint64_t quantile[HIST_POINTS]; /* ns, as hist_points; 0 if nothing was answered */
};

#define INTERVAL_RING 256

struct intervals {
    struct hist hist; /* of the open interval. Reactor. */
    uint64_t from_ns;
    struct interval_counts last; /* at its begin */
    uint32_t head, tail;         /* reactor writes head, control tail */
    struct interval ring[INTERVAL_RING];
};

/* Reactor. Ends the open interval at to_ns. False: the control thread is behind by a whole ring;
 * then the interval stays open, and becomes part of the next. */
bool interval_close(struct intervals *iv, uint64_t to_ns, const struct interval_counts *now);
/* Control thread. False: there is none. */
bool interval_take(struct intervals *iv, struct interval *out);

double interval_seconds(const struct interval *iv);

/* Print one line each, RFC 4180 with \n. Seconds since the start, microseconds for quantiles, which
 * are empty where nothing was answered. */
void csv_header(FILE *f);
void csv_row(FILE *f, const struct interval *iv);

#endif
