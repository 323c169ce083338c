/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Token buckets by key, shared by all reactors without locks. A row says when its bucket will be
 * full again. A full one is as good as none, so its row can be taken. A table that is crowded with
 * buckets in use forgets the one that lacks least.
 */
#ifndef MILLRACE_LNET_BUCKET_H
#define MILLRACE_LNET_BUCKET_H

#include <stdint.h>

enum lnet_bucket_of {
    LNET_BUCKET_MESSAGES,
    LNET_BUCKET_BYTES,
    LNET_BUCKET_CONNECTS,
    LNET_BUCKET_KINDS
};

struct lnet_bucket {
    uint64_t key;                     /* 0 = free */
    uint64_t full[LNET_BUCKET_KINDS]; /* ns, the time at which it is full */
};

struct lnet_buckets {
    uint32_t mask;
    struct lnet_bucket *row;
};

/* For about so many at a time. 0 or -ENOMEM. */
int lnet_buckets_init(struct lnet_buckets *t, unsigned most);
void lnet_buckets_fini(struct lnet_buckets *t);
/* Any thread. key is a hash, and not 0. */
struct lnet_bucket *lnet_bucket_get(struct lnet_buckets *t, uint64_t key);
/* Returns for how many ns a bucket that holds burst_ns lacks something. */
uint64_t lnet_bucket_lacks(const struct lnet_bucket *b, enum lnet_bucket_of kind, uint64_t burst_ns,
                           uint64_t now_ns);
/* Takes what fills in cost_ns. */
void lnet_bucket_take(struct lnet_bucket *b, enum lnet_bucket_of kind, uint64_t cost_ns,
                      uint64_t now_ns);

#endif
