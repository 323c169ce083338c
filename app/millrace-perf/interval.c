/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/interval.h"

bool interval_close(struct intervals *iv, uint64_t to_ns, const struct interval_totals *now)
{
    uint32_t head = iv->head;
    struct interval *i = &iv->ring[head % INTERVAL_RING];

    if (head - __atomic_load_n(&iv->tail, __ATOMIC_ACQUIRE) == INTERVAL_RING)
        return false;
    *i = (struct interval){
        .from_ns = iv->from_ns,
        .to_ns = to_ns,
        .bytes = now->bytes - iv->last.bytes,
        .bad = now->bad - iv->last.bad,
        .waiting = now->waiting,
        .in_flight = now->in_flight,
    };
    for (int op = 0; op < OP_KINDS; op++)
        i->done[op] = now->done[op] - iv->last.done[op];
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
