/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The times, targets and sizes of messages: everything about a run that can be computed before it.
 * Each choice draws from a generator of its own, so that one seed gives the same run, and a change
 * of one choice leaves the others as they were. Pure functions; each struct belongs to one thread.
 */
#ifndef MILLRACE_PERF_SCHEDULE_H
#define MILLRACE_PERF_SCHEDULE_H

#include "app/millrace-perf/engine.h"

#include <stddef.h>

/* ---- seeds ---- */

enum seed_of {
    SEED_ARRIVALS,
    SEED_SIZES,
    SEED_KINDS,
    SEED_ORDER,
    SEED_CONTENT,
    SEED_SAMPLES,
};
/* A state for payload_random(), never 0. */
uint64_t seed_state(uint64_t seed, enum seed_of of);
/* Below n, which is not 0. */
uint64_t random_below(uint64_t *state, uint64_t n);

/* ---- numbers ---- */

/* An unsigned number at *s, with k, M or G (binary) after it; moves *s behind it. -EINVAL, -ERANGE.
 */
int number_parse(const char **s, uint64_t max, uint64_t *out);

/* ---- sizes ---- */

#define SIZE_CLASSES_MAX 32

struct size_class {
    uint32_t lo, hi; /* bytes, both included */
    uint32_t weight;
};

struct sizes {
    struct size_class class[SIZE_CLASSES_MAX];
    unsigned n;
    uint64_t weights; /* sum */
    const char *text; /* as given */
};

/* "4k", "1-4k", "mix", or a list of the first two with weights, "4k:80,1M:20" (without a weight:
 * 1). text is kept. -EINVAL. */
int sizes_parse(const char *text, struct sizes *out);
uint32_t sizes_next(const struct sizes *s, uint64_t *random);
uint32_t sizes_max(const struct sizes *s);

/* ---- kinds ---- */

struct kinds {
    uint32_t weight[OP_KINDS];
    bool in_turn;     /* PUT, GET, PUT …: weights do not count */
    const char *text; /* as given, or NULL */
};

/* "put:70,get:30": each at most once, at least one weight above 0. text is kept. -EINVAL. */
int kinds_parse(const char *text, struct kinds *out);
/* For message number `index` of the run. */
enum perf_op kinds_next(const struct kinds *k, uint64_t index, uint64_t *random);

/* ---- arrivals of an open loop ---- */

enum arrivals_kind {
    ARRIVALS_POISSON, /* exponential gaps, independent of each other */
    ARRIVALS_FIXED,   /* equal gaps */
};

struct arrivals {
    enum arrivals_kind kind;
    double rate; /* per second */
    uint64_t random;
    uint64_t n;
    double at_ns;
};

void arrivals_init(struct arrivals *a, enum arrivals_kind kind, double rate, uint64_t seed);
/* When the next message is due, ns since the start of the run; never before the last one. */
uint64_t arrivals_next(struct arrivals *a);

/* ---- from whom to whom ---- */

struct order {
    bool random; /* each pair as likely as any other; else in turn, all pairs */
    uint32_t sources, targets;
    uint64_t n;
    uint64_t state;
};

void order_init(struct order *o, bool random, uint32_t sources, uint32_t targets, uint64_t seed);
void order_next(struct order *o, uint32_t *from, uint32_t *to);

/* ---- NIDs in a row ---- */

/* NIDs of one net whose addresses follow one another. */
struct perf_range {
    struct lnet_nid first;
    uint32_t count;
};

/* "NID" or "NID*COUNT". -EINVAL: no NID, count 0, or the addresses run over. */
int range_parse(const char *text, struct perf_range *out);
/* The NID at `index`, which is below count. */
void range_at(const struct perf_range *r, uint32_t index, struct lnet_nid *out);

#endif
