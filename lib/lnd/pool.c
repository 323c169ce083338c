/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/pool.h"
#include "lib/base/asan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool lnd_pool_init(struct lnd_pool *pool, size_t n, size_t size, size_t kept)
{
    *pool =
        (struct lnd_pool){.memory = calloc(1, lnd_pool_bytes(n, size)), .size = size, .kept = kept};
    if (!pool->memory)
        return false;
    pool->objects = (uint8_t *)pool->memory + (-(uintptr_t)pool->memory & (LND_POOL_ALIGN - 1));
    while (n-- > 0)
        lnd_pool_put(pool, (uint8_t *)pool->objects + n * size);
    return true;
}

void lnd_pool_fini(struct lnd_pool *pool)
{
    free(pool->memory);
    *pool = (struct lnd_pool){0};
}

size_t lnd_pool_bytes(size_t n, size_t size)
{
    return n * size + LND_POOL_ALIGN;
}

void *lnd_pool_get(struct lnd_pool *pool)
{
    void *object = pool->free;

    if (!object)
        return NULL;
    pool->free = *(void **)object;
    pool->nfree--;
    asan_unpoison(object, pool->size);
    return object;
}

void *lnd_pool_get_zeroed(struct lnd_pool *pool)
{
    void *object = lnd_pool_get(pool);

    return object ? memset(object, 0, pool->size) : NULL;
}

void lnd_pool_put(struct lnd_pool *pool, void *object)
{
    *(void **)object = pool->free;
    pool->free = object;
    pool->nfree++;
    asan_poison((uint8_t *)object + pool->kept, pool->size - pool->kept);
}
