/* SPDX-License-Identifier: BSD-3-Clause */
#include "app/millrace-perf/track.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TRACK_BYTES (TRACK_WINDOW / 8)

int track_init(struct track *t)
{
    memset(t, 0, sizeof(*t));
    t->bits = calloc(1, TRACK_BYTES);
    return t->bits == NULL ? -ENOMEM : 0;
}

void track_fini(struct track *t)
{
    free(t->bits);
    t->bits = NULL;
}

static uint64_t *word_of(struct track *t, uint32_t seq, uint64_t *mask)
{
    uint32_t slot = seq % TRACK_WINDOW;

    *mask = 1ull << (slot % 64);
    return &t->bits[slot / 64];
}

/* The window moves up: the slots it gains still tell of numbers TRACK_WINDOW lower. */
static void track_advance(struct track *t, uint32_t seq)
{
    uint64_t mask;

    if (t->any && seq - t->highest >= TRACK_WINDOW) {
        memset(t->bits, 0, TRACK_BYTES);
    } else if (t->any) {
        for (uint32_t s = t->highest + 1; s != seq; s++) {
            uint64_t *word = word_of(t, s, &mask);
            *word &= ~mask;
        }
        *word_of(t, seq, &mask) &= ~mask;
    }
    t->any = true;
    t->highest = seq;
}

void track_add(struct track *t, uint32_t seq)
{
    uint64_t mask, *word;

    if (!t->any || seq > t->highest)
        track_advance(t, seq);
    else if (t->highest - seq >= TRACK_WINDOW) {
        t->stale++;
        return;
    }
    word = word_of(t, seq, &mask);
    if (*word & mask) {
        t->repeated++;
    } else {
        *word |= mask;
        t->distinct++;
    }
}

uint64_t track_missing(const struct track *t)
{
    return t->any ? (uint64_t)t->highest + 1 - t->distinct : 0;
}

static unsigned bucket_of(uint64_t ns)
{
    unsigned exp;

    if (ns < 16)
        return ns;
    exp = 63 - __builtin_clzll(ns);
    return (exp - 3) * 16 + (ns >> (exp - 4) & 15);
}

/* The highest value that falls into a bucket. */
static uint64_t bucket_edge(unsigned bucket)
{
    unsigned exp = bucket / 16 + 3;

    if (bucket < 16)
        return bucket;
    return ((16 + (uint64_t)(bucket % 16)) << (exp - 4)) + ((1ull << (exp - 4)) - 1);
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

uint64_t hist_quantile(const struct hist *h, double fraction)
{
    uint64_t want = (uint64_t)(fraction * (double)h->count + 0.5), seen = 0;

    for (unsigned i = 0; i < HIST_BUCKETS && h->count > 0; i++) {
        seen += h->bucket[i];
        if (seen >= want && seen > 0) {
            uint64_t edge = bucket_edge(i);
            return edge < h->max ? edge : h->max;
        }
    }
    return h->max;
}

double hist_mean(const struct hist *h)
{
    return h->count == 0 ? 0 : (double)h->sum / (double)h->count;
}
