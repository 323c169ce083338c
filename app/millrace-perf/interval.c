/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/interval.h"

#include <inttypes.h>

bool interval_close(struct intervals *iv, uint64_t to_ns, const struct interval_counts *now)
{
    uint32_t head = iv->head;
    struct interval *i = &iv->ring[head % INTERVAL_RING];

    if (head - __atomic_load_n(&iv->tail, __ATOMIC_ACQUIRE) == INTERVAL_RING)
        return false;
    *i = (struct interval){.from_ns = iv->from_ns, .to_ns = to_ns, .counts = *now};
    i->counts.bytes -= iv->last.bytes;
    i->counts.bad -= iv->last.bad;
    for (int op = 0; op < OP_KINDS; op++)
        i->counts.done[op] -= iv->last.done[op];
    for (unsigned q = 0; q < HIST_POINTS; q++)
        i->quantile[q] = hist_quantile(&iv->hist, hist_points[q].fraction);
    hist_reset(&iv->hist);
    iv->from_ns = to_ns;
    iv->last = *now;
    __atomic_store_n(&iv->head, head + 1, __ATOMIC_RELEASE);
    return true;
}

bool interval_take(struct intervals *iv, struct interval *out)
{
    uint32_t tail = iv->tail;

    if (tail == __atomic_load_n(&iv->head, __ATOMIC_ACQUIRE))
        return false;
    *out = iv->ring[tail % INTERVAL_RING];
    __atomic_store_n(&iv->tail, tail + 1, __ATOMIC_RELEASE);
    return true;
}

double interval_seconds(const struct interval *iv)
{
    return (double)(iv->to_ns - iv->from_ns) / 1e9;
}

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
    const struct interval_counts *n = &iv->counts;
    uint64_t messages = n->done[OP_PUT] + n->done[OP_GET];
    double s = interval_seconds(iv);

    fprintf(f,
            "%.6f,%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f,%.3f,%" PRIu64
            ",%" PRIu64 ",%" PRIu64,
            (double)iv->from_ns / 1e9, (double)iv->to_ns / 1e9, messages, n->done[OP_PUT],
            n->done[OP_GET], n->bytes, s > 0 ? (double)messages / s : 0,
            s > 0 ? (double)n->bytes / s : 0, n->bad, n->waiting, n->in_flight);
    for (unsigned q = 0; q < HIST_POINTS; q++) {
        fputc(',', f);
        if (messages > 0)
            fprintf(f, "%.3f", (double)iv->quantile[q] / 1e3);
    }
    fputc('\n', f);
}
