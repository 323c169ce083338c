/* SPDX-License-Identifier: BSD-3-Clause */
/* Which sequence numbers have come: once, twice, never. Belongs to one thread. */
#ifndef MILLRACE_PERF_TRACK_H
#define MILLRACE_PERF_TRACK_H

#include <stdbool.h>
#include <stdint.h>

/* A sequence number this far behind the highest can no longer be told apart. */
#define TRACK_WINDOW (1u << 20)

struct track {
    uint64_t *bits; /* seen, by sequence number modulo TRACK_WINDOW */
    bool any;
    uint32_t highest;
    uint64_t distinct;
    uint64_t repeated;
    uint64_t stale;
};

int track_init(struct track *t); /* 0 or -ENOMEM */
void track_fini(struct track *t);
void track_add(struct track *t, uint32_t seq);
/* Sequence numbers up to the highest that never came (stale ones count as never). */
uint64_t track_missing(const struct track *t);

#endif
