/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/output.h"

#include <inttypes.h>

void csv_header(FILE *f)
{
    fprintf(f, "from_s,to_s,messages,puts,gets,bytes,messages_per_s,bytes_per_s,bad,waiting,"
               "in_flight");
    for (unsigned q = 0; q < HIST_POINTS; q++)
        fprintf(f, ",%s_us", hist_points[q].name);
    fputc('\n', f);
}

void csv_row(FILE *f, const struct interval *iv)
{
    uint64_t messages = iv->done[OP_PUT] + iv->done[OP_GET];
    double s = interval_seconds(iv);

    fprintf(f,
            "%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f,%.3f,%" PRIu64
            ",%" PRIu64 ",%" PRIu64,
            (double)iv->from_ns / 1e9, (double)iv->to_ns / 1e9, messages, iv->done[OP_PUT],
            iv->done[OP_GET], iv->bytes, s > 0 ? (double)messages / s : 0,
            s > 0 ? (double)iv->bytes / s : 0, iv->bad, iv->waiting, iv->in_flight);
    for (unsigned q = 0; q < HIST_POINTS; q++) {
        fputc(',', f);
        if (messages > 0)
            fprintf(f, "%.3f", (double)iv->quantile[q] / 1e3);
    }
    fputc('\n', f);
}
