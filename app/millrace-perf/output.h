/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a run: its intervals as CSV. */
#ifndef MILLRACE_PERF_OUTPUT_H
#define MILLRACE_PERF_OUTPUT_H

#include "app/millrace-perf/interval.h"

#include <stdio.h>

/* One line each, RFC 4180 with \n. Seconds since the start, microseconds for quantiles, which are
 * empty where nothing was answered. */
void csv_header(FILE *f);
void csv_row(FILE *f, const struct interval *iv);

#endif
