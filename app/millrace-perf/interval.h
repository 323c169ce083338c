/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts and quantiles of each interval of a run. The reactor closes an interval and hands it over
 * in a ring; the control thread takes it and prints it.
 */
#ifndef MILLRACE_PERF_INTERVAL_H
#define MILLRACE_PERF_INTERVAL_H

#include "app/millrace-perf/engine.h"
#include "app/millrace-perf/hist.h"

#include <stddef.h>

struct interval {
    uint64_t from_ns, to_ns;        /* since the start of the run */
    uint64_t done[OP_KINDS];        /* answered, right */
    uint64_t bytes;                 /* payload of those */
    uint64_t bad;                   /* lost, altered, not sent */
    uint64_t waiting;               /* due and not sent, at its end */
    uint64_t in_flight;             /* sent and not answered, at its end */
    uint64_t quantile[HIST_POINTS]; /* ns, as hist_points; 0 if nothing was answered */
};

/* Counters of a run since its start. */
struct interval_totals {
    uint64_t done[OP_KINDS], bytes, bad;
    uint64_t waiting, in_flight; /* now */
};

#define INTERVAL_RING 256

struct intervals {
    struct hist hist; /* of the open interval. Reactor. */
    uint64_t from_ns;
    struct interval_totals last;
    uint32_t head, tail; /* reactor writes head, control tail */
    struct interval ring[INTERVAL_RING];
};

/* Reactor. Ends the open interval at to_ns. False: the control thread is behind by a whole ring;
 * then the interval stays open, and becomes part of the next. */
bool interval_close(struct intervals *iv, uint64_t to_ns, const struct interval_totals *now);
/* Control thread. False: there is none. */
bool interval_take(struct intervals *iv, struct interval *out);

double interval_seconds(const struct interval *iv);

#endif
