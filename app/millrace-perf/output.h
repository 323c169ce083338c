/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of a run: intervals as CSV, and a drawing as SVG. Functions of their arguments alone. */
#ifndef MILLRACE_PERF_OUTPUT_H
#define MILLRACE_PERF_OUTPUT_H

#include "app/millrace-perf/interval.h"

#include <stdio.h>

/* One line each, RFC 4180 with \n. Seconds since the start, microseconds for quantiles, which are
 * empty where nothing was answered. */
void csv_header(FILE *f);
void csv_row(FILE *f, const struct interval *iv);

struct plot {
    const char *title, *subtitle; /* any text */
    const struct series *series;
    const struct hist *rtt[OP_KINDS]; /* NULL or empty: not drawn */
    const char *rtt_name[OP_KINDS];
    const char *latency; /* what the times count from */
};

/* A whole SVG document. */
void plot_write(FILE *f, const struct plot *plot);

#endif
