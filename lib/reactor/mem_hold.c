/* SPDX-License-Identifier: BSD-3-Clause */
/* Which buffer of landing memory an address is in, and who refers to it. See mem_hold.h. */
#include "lib/reactor/mem_hold.h"
#include "lib/reactor/mem_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_memory.h>

#define SETS_MAX 255u /* that a byte of `page` can name */

/* The buffers of a pool. */
struct hold_set {
    uint8_t *base;
    size_t stride;
    uint32_t count;
    struct rte_mbuf_ext_shared_info *info; /* by buffer */
};

/* Written by the control thread before any buffer of it is seen. */
struct hold_region {
    uint8_t *base; /* NULL: the region is of another kind */
    size_t len;
    uint8_t *page;    /* by MEM_PAGE: 1 + index of its set, 0 = of no pool */
    rte_iova_t *iova; /* by MEM_LANDING_SLOT, which lies within one page of the machine's */
    struct hold_set *sets;
    unsigned nsets;
};

static struct hold_region holds[MEM_REGION_MAX];

/* The count never comes to 0. */
static void freed(void *addr, void *arg)
{
    assert(!"a landing buffer lost its own reference");
}

/* ---- making (control thread) ---- */

int mem_holds_add(uint16_t region, void *base, size_t len)
{
    struct hold_region *r = &holds[region];
    size_t slots = (len + MEM_LANDING_SLOT - 1) / MEM_LANDING_SLOT;

    r->len = len;
    r->page = calloc(len / MEM_PAGE, sizeof(r->page[0]));
    r->iova = calloc(slots, sizeof(r->iova[0]));
    r->sets = calloc(SETS_MAX, sizeof(r->sets[0]));
    if (!r->page || !r->iova || !r->sets) {
        mem_holds_del(region);
        return -ENOMEM;
    }
    for (size_t i = 0; i < slots; i++)
        r->iova[i] = rte_mem_virt2iova((uint8_t *)base + i * MEM_LANDING_SLOT);
    r->base = base;
    return 0;
}

int mem_holds_pool(uint16_t region, uint8_t *base, size_t stride, uint32_t count)
{
    struct hold_region *r = &holds[region];
    struct hold_set *set = &r->sets[r->nsets];
    size_t first = (size_t)(base - r->base) / MEM_PAGE, pages = stride / MEM_PAGE * count;

    if (r->nsets == SETS_MAX)
        return -ENOSPC;
    *set = (struct hold_set){base, stride, count, calloc(count, sizeof(set->info[0]))};
    if (!set->info)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        set->info[i].free_cb = freed;
        rte_mbuf_ext_refcnt_set(&set->info[i], 1);
    }
    r->nsets++;
    memset(&r->page[first], (int)r->nsets, pages);
    return 0;
}

bool mem_holds_busy(uint16_t region)
{
    const struct hold_region *r = &holds[region];

    for (unsigned k = 0; k < r->nsets; k++) {
        for (uint32_t i = 0; i < r->sets[k].count; i++) {
            if (rte_mbuf_ext_refcnt_read(&r->sets[k].info[i]) > 1)
                return true;
        }
    }
    return false;
}

void mem_holds_del(uint16_t region)
{
    struct hold_region *r = &holds[region];

    for (unsigned k = 0; k < r->nsets; k++)
        free(r->sets[k].info);
    free(r->sets);
    free(r->iova);
    free(r->page);
    *r = (struct hold_region){.base = NULL};
}

/* ---- looking (any reactor) ---- */

/* The region's row, if the bytes are in it and it is of landing memory. */
static const struct hold_region *region_of(uint16_t region, const uint8_t *addr, size_t len)
{
    const struct hold_region *r;

    if (region >= MEM_REGION_MAX)
        return NULL;
    r = &holds[region];
    if (!r->base || addr < r->base || (size_t)(addr - r->base) >= r->len ||
        len > r->len - (size_t)(addr - r->base))
        return NULL;
    return r;
}

/* NULL: of no pool. */
static const struct hold_set *set_of(const struct hold_region *r, const uint8_t *addr)
{
    uint8_t n = r->page[(size_t)(addr - r->base) / MEM_PAGE];

    return n > 0 ? &r->sets[n - 1] : NULL;
}

struct rte_mbuf_ext_shared_info *mem_hold_of(uint16_t region, const void *addr, size_t len)
{
    const struct hold_region *r = region_of(region, addr, len);
    const struct hold_set *set = r && len > 0 ? set_of(r, addr) : NULL;
    size_t at, i;

    if (!set)
        return NULL;
    at = (size_t)((const uint8_t *)addr - set->base);
    i = at / set->stride;
    if (at + len > (i + 1) * set->stride || mem_hold_iova(region, addr) == RTE_BAD_IOVA)
        return NULL;
    return &set->info[i];
}

rte_iova_t mem_hold_iova(uint16_t region, const void *addr)
{
    const struct hold_region *r = &holds[region];
    size_t at = (size_t)((const uint8_t *)addr - r->base);
    rte_iova_t slot = r->iova[at / MEM_LANDING_SLOT];

    return slot == RTE_BAD_IOVA ? RTE_BAD_IOVA : slot + at % MEM_LANDING_SLOT;
}

bool mem_held(uint16_t region, const void *addr, size_t len)
{
    const uint8_t *at = addr, *end = at + len;
    const struct hold_region *r = region_of(region, at, len);

    while (r && at < end) {
        const struct hold_set *set = set_of(r, at);
        size_t i;

        if (!set) {
            at += MEM_PAGE - (size_t)(at - r->base) % MEM_PAGE;
            continue;
        }
        i = (size_t)(at - set->base) / set->stride;
        /* The reads of those who gave up their references come before the next write. */
        if (__atomic_load_n(&set->info[i].refcnt, __ATOMIC_ACQUIRE) > 1)
            return true;
        at = set->base + (i + 1) * set->stride;
    }
    return false;
}
