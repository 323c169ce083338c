/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/interval.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- series ---- */

int series_init(struct series *s)
{
    *s = (struct series){.point = calloc(SERIES_POINTS, sizeof(*s->point)), .per_point = 1};
    return !s->point ? -ENOMEM : 0;
}

void series_fini(struct series *s)
{
    free(s->point);
    s->point = NULL;
}

void interval_merge(struct interval *a, const struct interval *b)
{
    a->to_ns = b->to_ns;
    a->bytes += b->bytes;
    a->bad += b->bad;
    a->waiting = b->waiting;
    a->in_flight = b->in_flight;
    for (int op = 0; op < OP_KINDS; op++)
        a->done[op] += b->done[op];
    for (unsigned q = 0; q < HIST_POINTS; q++)
        if (b->quantile[q] > a->quantile[q])
            a->quantile[q] = b->quantile[q];
}

static void series_halve(struct series *s)
{
    for (unsigned i = 0; i < SERIES_POINTS; i += 2) {
        s->point[i / 2] = s->point[i];
        interval_merge(&s->point[i / 2], &s->point[i + 1]);
    }
    s->n = SERIES_POINTS / 2;
    s->per_point *= 2;
    s->last = s->per_point;
}

void series_add(struct series *s, const struct interval *iv)
{
    if (s->n > 0 && s->last < s->per_point) {
        interval_merge(&s->point[s->n - 1], iv);
        s->last++;
        return;
    }
    if (s->n == SERIES_POINTS)
        series_halve(s);
    s->point[s->n++] = *iv;
    s->last = 1;
}
