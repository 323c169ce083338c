/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/share.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/sip.h"

static unsigned accounts_for(unsigned most)
{
    return 2 * most; /* each with a prefix of its own */
}

static uint32_t buckets_for(unsigned n)
{
    uint32_t buckets = 64;

    while (buckets < n)
        buckets *= 2;
    return buckets;
}

size_t share_bytes(unsigned most)
{
    unsigned n = accounts_for(most);

    return n * sizeof(struct share_account) + buckets_for(n) * sizeof(struct share_accounts);
}

bool share_init(struct share *s, unsigned most)
{
    unsigned n = accounts_for(most);
    uint32_t buckets = buckets_for(n);

    s->mask = buckets - 1;
    s->bucket = calloc(buckets, sizeof(*s->bucket));
    s->accounts = calloc(n, sizeof(*s->accounts));
    if (!s->bucket || !s->accounts)
        return false;
    for (unsigned i = n; i > 0; i--)
        LIST_INSERT_HEAD(&s->free, &s->accounts[i - 1], link);
    return true;
}

void share_fini(struct share *s)
{
    free(s->bucket);
    free(s->accounts);
    memset(s, 0, sizeof(*s));
}

static struct share_account *find(struct share *s, const void *key)
{
    struct share_accounts *bucket = &s->bucket[sip_bucket(key, SHARE_KEY) & s->mask];
    struct share_account *a;

    LIST_FOREACH(a, bucket, link)
        if (memcmp(a->key, key, SHARE_KEY) == 0)
            return a;
    a = LIST_FIRST(&s->free);
    if (!a)
        return NULL;
    LIST_REMOVE(a, link);
    memset(a, 0, sizeof(*a));
    memcpy(a->key, key, SHARE_KEY);
    LIST_INSERT_HEAD(bucket, a, link);
    return a;
}

struct share_account *share_of(struct share *s, const void *key, const void *prefix)
{
    struct share_account *a = find(s, key);

    if (a && prefix && !a->prefix) {
        a->prefix = find(s, prefix);
        if (!a->prefix) {
            share_drop(s, a);
            return NULL;
        }
    }
    return a;
}

void share_take(struct share_account *a)
{
    a->held++;
    if (a->prefix)
        a->prefix->held++;
}

void share_untake(struct share_account *a)
{
    a->held--;
    if (a->prefix)
        a->prefix->held--;
}

void share_drop(struct share *s, struct share_account *a)
{
    struct share_account *prefix = a->prefix;

    if (a->held > 0)
        return;
    LIST_REMOVE(a, link);
    LIST_INSERT_HEAD(&s->free, a, link);
    if (prefix)
        share_drop(s, prefix);
}

void share_give(struct share *s, struct share_account *a)
{
    share_untake(a);
    share_drop(s, a);
}
