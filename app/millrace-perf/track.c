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
    return !t->bits ? -ENOMEM : 0;
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
