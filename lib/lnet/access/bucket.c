/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/access/bucket.h"

#include "lib/base/atomic.h"
#include "lib/base/minmax.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define LOOKS 8u /* rows in which a key can be */
#define LEAST 64u

int lnet_buckets_init(struct lnet_buckets *t, unsigned most)
{
    uint32_t rows = LEAST;

    while (rows < 2 * most)
        rows *= 2;
    t->mask = rows - 1;
    t->row = calloc(rows, sizeof(*t->row));
    return t->row ? 0 : -ENOMEM;
}

void lnet_buckets_fini(struct lnet_buckets *t)
{
    free(t->row);
}

static uint64_t full_at(const struct lnet_bucket *b)
{
    uint64_t at = 0;

    for (unsigned i = 0; i < LNET_BUCKET_KINDS; i++)
        at = max(at, relaxed_load(&b->full[i]));
    return at;
}

/* Returns false if another thread was first. */
static bool take_over(struct lnet_bucket *b, uint64_t old, uint64_t key)
{
    if (!__atomic_compare_exchange_n(&b->key, &old, key, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return false;
    for (unsigned i = 0; i < LNET_BUCKET_KINDS; i++)
        relaxed_store(&b->full[i], 0);
    return true;
}

struct lnet_bucket *lnet_bucket_get(struct lnet_buckets *t, uint64_t key)
{
    struct lnet_bucket *b, *least;
    uint64_t held, old;

    for (;;) {
        least = NULL;
        old = 0;
        for (uint32_t i = 0; i < LOOKS; i++) {
            b = &t->row[(key + i) & t->mask];
            held = relaxed_load(&b->key);
            if (held == key)
                return b;
            if (!least || full_at(b) < full_at(least)) {
                least = b;
                old = held;
            }
        }
        if (take_over(least, old, key))
            return least;
    }
}

uint64_t lnet_bucket_lacks(const struct lnet_bucket *b, enum lnet_bucket_of kind, uint64_t burst_ns,
                           uint64_t now_ns)
{
    uint64_t full = relaxed_load(&b->full[kind]);

    return full > now_ns + burst_ns ? full - now_ns - burst_ns : 0;
}

void lnet_bucket_take(struct lnet_bucket *b, enum lnet_bucket_of kind, uint64_t cost_ns,
                      uint64_t now_ns)
{
    uint64_t full = relaxed_load(&b->full[kind]), next;

    do {
        next = max(full, now_ns) + cost_ns;
    } while (!__atomic_compare_exchange_n(&b->full[kind], &full, next, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
}
