/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of connections: slabs of some MiB, each registered as one region and carved into areas of
 * one size. Sizes are rounded up to one of eight steps between powers of two, so that connections
 * of about the same depth share slabs. A slab that falls empty is given back unless it is the last
 * of its size.
 *
 * Slabs are mapped from the system, not taken from EAL's memory: how many connections there will
 * be is not known when that is sized. Children of the process do not get them: what a device writes
 * to must not be copied on write.
 */
#include "lib/base/asan.h"
#include "lib/lnd_verbs/provider/rdma_core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_common.h>

#define SLAB_BYTES ((size_t)4 << 20)
#define SLAB_ALIGN ((size_t)2 << 20) /* so that it may be of huge pages */
#define PAGE       ((size_t)4096)
#define STEPS      8 /* sizes between two powers of two */

static size_t size_class(size_t bytes)
{
    size_t power = PAGE;

    while (power <= SIZE_MAX / 4 && power * 2 <= bytes)
        power *= 2;
    return RTE_ALIGN_CEIL(RTE_ALIGN_CEIL(bytes, power / STEPS), PAGE);
}

/* ---- slabs ---- */

static void *map_aligned(size_t len)
{
    size_t room = len + SLAB_ALIGN;
    uint8_t *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t before, behind;

    if (at == MAP_FAILED)
        return NULL;
    before = RTE_ALIGN_CEIL((uintptr_t)at, SLAB_ALIGN) - (uintptr_t)at;
    behind = room - before - len;
    if (before > 0)
        munmap(at, before);
    if (behind > 0)
        munmap(at + before + len, behind);
    return at + before;
}

static struct rcore_slab *slab_make(struct rcore_device *dev, size_t each, uint32_t n, int *error)
{
    size_t len = RTE_ALIGN_CEIL(each * n, PAGE);
    struct rcore_slab *slab = calloc(1, sizeof(*slab) + n * sizeof(slab->free[0]));

    *error = -ENOMEM;
    if (!slab)
        return NULL;
    slab->base = map_aligned(len);
    if (!slab->base)
        goto fail;
    (void)madvise(slab->base, len, MADV_DONTFORK);
    (void)madvise(slab->base, len, MADV_HUGEPAGE);
    slab->mr = ibv_reg_mr(dev->pd, slab->base, len, IBV_ACCESS_LOCAL_WRITE);
    if (!slab->mr) {
        *error = errno > 0 ? -errno : -ENOMEM;
        munmap(slab->base, len);
        goto fail;
    }
    slab->len = len;
    slab->each = each;
    slab->n = slab->nfree = n;
    for (uint32_t i = 0; i < n; i++)
        slab->free[i] = n - 1 - i;
    asan_poison(slab->base, len);
    LIST_INSERT_HEAD(&dev->slabs, slab, link);
    count_add(&dev->rdma->count.areas_reserved, len);
    count_add(&dev->rdma->count.registered, len);
    return slab;
fail:
    free(slab);
    return NULL;
}

static void slab_free(struct rcore_device *dev, struct rcore_slab *slab)
{
    int64_t len = (int64_t)slab->len;

    LIST_REMOVE(slab, link);
    count_add(&dev->rdma->count.areas_reserved, (uint64_t)(-len));
    count_add(&dev->rdma->count.registered, (uint64_t)(-len));
    /* A slab that the device does not deregister stays mapped. */
    if (ibv_dereg_mr(slab->mr) == 0) {
        asan_unpoison(slab->base, slab->len);
        munmap(slab->base, slab->len);
    }
    free(slab);
}

/* ---- areas ---- */

static struct rcore_slab *slab_find(struct rcore_device *dev, size_t each)
{
    struct rcore_slab *slab;

    LIST_FOREACH(slab, &dev->slabs, link) {
        if (slab->each == each && slab->nfree > 0)
            return slab;
    }
    return NULL;
}

int rcore_area_get(struct rcore_device *dev, size_t bytes, struct rcore_slab **slab, uint8_t **area)
{
    size_t each = size_class(bytes);
    uint32_t n = each < SLAB_BYTES ? (uint32_t)(SLAB_BYTES / each) : 1;
    struct rcore_slab *s = slab_find(dev, each);
    int rc = -ENOMEM;

    if (bytes > (size_t)1 << 40)
        return -EINVAL;
    if (!s)
        s = slab_make(dev, each, n, &rc);
    if (!s && n > 1) /* there may be little that can be pinned */
        s = slab_make(dev, each, 1, &rc);
    if (!s)
        return rc;
    *slab = s;
    *area = s->base + s->free[--s->nfree] * each;
    asan_unpoison(*area, each);
    memset(*area, 0, bytes);
    count_add(&dev->rdma->count.areas, each);
    return 0;
}

void rcore_area_put(struct rcore_device *dev, struct rcore_slab *slab, uint8_t *area)
{
    struct rcore_slab *other = NULL, *s;

    asan_poison(area, slab->each);
    slab->free[slab->nfree++] = (uint32_t)((size_t)(area - slab->base) / slab->each);
    count_add(&dev->rdma->count.areas, -(uint64_t)slab->each);
    if (slab->nfree < slab->n)
        return;
    LIST_FOREACH(s, &dev->slabs, link) {
        if (s != slab && s->each == slab->each && s->nfree > 0)
            other = s;
    }
    if (other)
        slab_free(dev, slab);
}

void rcore_areas_free(struct rcore_device *dev)
{
    while (!LIST_EMPTY(&dev->slabs))
        slab_free(dev, LIST_FIRST(&dev->slabs));
}
