/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas from EAL memory, their regions, and the pools carved from them. See mem.h. */
#include "lib/base/asan.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/reactor/mem_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_memzone.h>

/* Under ASan a free buffer is poisoned, and so is what of the arena is in no pool. */
#ifdef BASE_ASAN
#define BUFFER_IS_FREE(pool, buf) (!mem_held((pool)->region, buf, (pool)->buf_size))
#else
#define BUFFER_IS_FREE(pool, buf) true /* not looked for on each message */
#endif

#define LOCAL_ALIGN MEM_PAGE /* a part never shares a page with anything else */
#define PARTS       2

struct arena_part {
    const struct rte_memzone *zone; /* NULL: none was asked for */
    uint8_t *base;
    size_t len;
    size_t used; /* from its beginning on */
    size_t top;  /* from its end on: of landing memory, buffers of less than a slot */
    uint16_t region;
};

struct mem_arena {
    struct arena_part part[PARTS]; /* by enum mem_part */
    struct mem_arena *next;        /* in `lingering` */
};

static const char *const part_name[PARTS] = {[MEM_LOCAL] = "local", [MEM_LANDING] = "landing"};

/* ---- regions: what a segment's index means, in this process ---- */

static struct mem_region regions[MEM_REGION_MAX]; /* written by the control thread */
static unsigned region_count;                     /* highest index in use + 1 */

const struct mem_region *mem_region_get(uint16_t index)
{
    if (index >= mem_region_count() || !regions[index].base)
        return NULL;
    return &regions[index];
}

unsigned mem_region_count(void)
{
    return __atomic_load_n(&region_count, __ATOMIC_ACQUIRE);
}

int mem_region_add(void *base, size_t len, enum mem_part part, int socket, uint16_t *index)
{
    for (unsigned i = 0; i < MEM_REGION_MAX; i++) {
        if (regions[i].base)
            continue;
        regions[i] = (struct mem_region){base, len, part, socket};
        if (i >= region_count)
            __atomic_store_n(&region_count, i + 1, __ATOMIC_RELEASE);
        *index = (uint16_t)i;
        return 0;
    }
    return -ENOSPC;
}

static LIST_HEAD(, mem_watch) watches;

void mem_watch_add(struct mem_watch *watch)
{
    LIST_INSERT_HEAD(&watches, watch, link);
}

void mem_watch_del(struct mem_watch *watch)
{
    LIST_REMOVE(watch, link);
}

void mem_region_del(uint16_t index)
{
    unsigned n = region_count;
    struct mem_watch *w;

    regions[index].base = NULL; /* first, so that no watcher takes it up again */
    LIST_FOREACH(w, &watches, link)
        w->gone(w, index);
    while (n > 0 && !regions[n - 1].base)
        n--;
    __atomic_store_n(&region_count, n, __ATOMIC_RELEASE);
}

/* ---- arenas ---- */

/* Zones of arenas that are gone. EAL writes zeros over what is given back to it, so that the end of
 * a process would touch all memory that it never used: they stay for another arena. */
static const struct rte_memzone *spare[MEM_REGION_MAX];

static void spare_put(const struct rte_memzone *zone)
{
    for (unsigned i = 0; i < MEM_REGION_MAX; i++) {
        if (!spare[i]) {
            spare[i] = zone;
            return;
        }
    }
    asan_unpoison(zone->addr, zone->len);
    rte_memzone_free(zone);
}

/* Takes the smallest spare zone that will do. */
static const struct rte_memzone *spare_get(size_t bytes, size_t align, int socket)
{
    const struct rte_memzone **best = NULL, *zone;

    for (unsigned i = 0; i < MEM_REGION_MAX; i++) {
        zone = spare[i];
        if (zone && zone->len >= bytes && (uintptr_t)zone->addr % align == 0 &&
            (socket < 0 || zone->socket_id == socket) && (!best || zone->len < (*best)->len))
            best = &spare[i];
    }
    if (!best)
        return NULL;
    zone = *best;
    *best = NULL;
    asan_unpoison(zone->addr, zone->len);
    return zone;
}

/* Returns whether there was a spare zone. */
static bool spare_free(void)
{
    const struct rte_memzone *zone;
    bool any = false;

    while ((zone = spare_get(0, 1, -1))) {
        rte_memzone_free(zone);
        any = true;
    }
    return any;
}

const struct rte_memzone *mem_zone_reserve(const char *name, size_t bytes, int socket,
                                           unsigned flags, size_t align)
{
    const struct rte_memzone *zone;

    do {
        zone = rte_memzone_reserve_aligned(name, bytes, socket < 0 ? SOCKET_ID_ANY : socket, flags,
                                           (unsigned)align);
    } while (!zone && spare_free());
    return zone;
}

static const struct rte_memzone *zone_get(enum mem_part part, size_t bytes, size_t align,
                                          int socket)
{
    static unsigned serial; /* EAL wants names that differ */
    const struct rte_memzone *zone = spare_get(bytes, align, socket);
    char name[RTE_MEMZONE_NAMESIZE];

    snprintf(name, sizeof(name), "millrace_%s_%u", part_name[part], serial++);
    return zone ? zone : mem_zone_reserve(name, bytes, socket, 0, align);
}

/* Free bytes and the largest free piece of EAL's heaps, of one node or all. */
static void heap_free(int socket, size_t *total, size_t *largest)
{
    *total = 0;
    *largest = 0;
    for (unsigned i = 0; i < rte_socket_count(); i++) {
        int id = rte_socket_id_by_idx(i);
        struct rte_malloc_socket_stats stats;

        if ((socket >= 0 && id != socket) || rte_malloc_get_socket_stats(id, &stats) < 0)
            continue;
        *total += stats.heap_freesz_bytes;
        *largest = max(*largest, stats.greatest_free_size);
    }
}

static void say_short(enum mem_part part, size_t bytes, int socket, int rc, struct err *err)
{
    size_t total, largest;

    heap_free(socket, &total, &largest);
    err_text(err,
             "%zu KiB asked for as %s memory, but EAL has %zu KiB free, %zu KiB in one piece (%s)",
             bytes >> 10, part_name[part], total >> 10, largest >> 10, strerror(-rc));
}

static int part_create(struct mem_arena *arena, enum mem_part part, size_t bytes, size_t align,
                       int socket, struct err *err)
{
    struct arena_part *p = &arena->part[part];
    int rc;

    p->region = MEM_REGION_NONE;
    if (bytes == 0)
        return 0;
    if (bytes > SIZE_MAX - align) {
        rc = -ENOMEM;
        goto fail;
    }
    bytes = RTE_ALIGN_CEIL(bytes, (size_t)MEM_PAGE);
    p->zone = zone_get(part, bytes, align, socket);
    if (!p->zone) {
        rc = rte_errno > 0 ? -rte_errno : -ENOMEM;
        goto fail;
    }
    rc = mem_region_add(p->zone->addr, bytes, part, p->zone->socket_id, &p->region);
    if (rc < 0)
        return err_set(err, rc, "more than %d memory regions", MEM_REGION_MAX);
    if (part == MEM_LANDING && mem_holds_add(p->region, p->zone->addr, bytes) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    p->base = p->zone->addr;
    p->len = bytes;
    asan_poison(p->base, p->len);
    return 0;
fail:
    say_short(part, bytes, socket, rc, err);
    return rc;
}

static void part_destroy(struct arena_part *p)
{
    if (p->region != MEM_REGION_NONE) {
        mem_holds_del(p->region);
        mem_region_del(p->region);
    }
    if (p->zone)
        spare_put(p->zone);
}

static void arena_free(struct mem_arena *arena)
{
    for (int i = 0; i < PARTS; i++)
        part_destroy(&arena->part[i]);
    free(arena);
}

/* Arenas that are gone for their users, while frames still refer to buffers of theirs. */
static struct mem_arena *lingering;

static bool arena_busy(const struct mem_arena *arena)
{
    uint16_t region = arena->part[MEM_LANDING].region;

    return region != MEM_REGION_NONE && mem_holds_busy(region);
}

static void lingering_look(bool all)
{
    struct mem_arena **link = &lingering, *arena;

    while ((arena = *link)) {
        if (!all && arena_busy(arena)) {
            link = &arena->next;
            continue;
        }
        *link = arena->next;
        arena_free(arena);
    }
}

int mem_arena_create(const struct mem_arena_opts *opts, struct mem_arena **out, struct err *err)
{
    struct mem_arena *arena;
    int rc;

    lingering_look(false);
    arena = calloc(1, sizeof(*arena));
    if (!arena)
        return err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < PARTS; i++)
        arena->part[i].region = MEM_REGION_NONE;
    rc = part_create(arena, MEM_LANDING, opts->landing_bytes, MEM_LANDING_SLOT, opts->socket, err);
    if (rc == 0)
        rc = part_create(arena, MEM_LOCAL, opts->local_bytes, LOCAL_ALIGN, opts->socket, err);
    if (rc < 0) {
        mem_arena_destroy(arena);
        return rc;
    }
    *out = arena;
    return 0;
}

void mem_arena_destroy(struct mem_arena *arena)
{
    if (!arena)
        return;
    if (!arena_busy(arena)) {
        arena_free(arena);
        return;
    }
    arena->next = lingering;
    lingering = arena;
}

void mem_end(void)
{
    lingering_look(true); /* no device is left either */
    while (spare_get(0, 1, -1))
        continue;
}

/* ---- pools ---- */

/* Large buffers of landing memory lie at multiples of their size from its beginning on, small ones
 * at its end, so that neither costs the other a gap. */
static uint8_t *part_carve(struct arena_part *p, enum mem_part part, size_t stride, size_t need)
{
    uint8_t *base;

    if (part == MEM_LANDING && stride % MEM_LANDING_SLOT != 0) {
        p->top += need;
        return p->base + p->len - p->top;
    }
    base = p->base + p->used;
    p->used += need;
    return base;
}

int mem_pool_init(struct mem_pool *pool, struct mem_arena *arena, enum mem_part part,
                  uint32_t buf_size, uint32_t count, const char *name, struct err *err)
{
    struct arena_part *p = &arena->part[part];
    size_t align = part == MEM_LANDING ? MEM_PAGE : RTE_CACHE_LINE_SIZE;
    size_t stride = RTE_ALIGN_CEIL((size_t)buf_size, align);
    size_t need = stride * count; /* 32 bits by 32 bits */
    size_t left = p->len - p->used - p->top;
    int rc = 0;

    if (buf_size == 0 || count == 0)
        return err_set(err, -EINVAL, "pool %s: %u buffers of %u bytes", name, count, buf_size);
    if (need > left)
        return err_set(err, -ENOMEM,
                       "pool %s: %u buffers of %u bytes need %zu KiB, but %zu of %zu KiB of the %s "
                       "memory are left",
                       name, count, buf_size, need >> 10, left >> 10, p->len >> 10,
                       part_name[part]);
    *pool = (struct mem_pool){
        .name = name,
        .free = calloc(count, sizeof(pool->free[0])),
        .nfree = count,
        .total = count,
        .low = count,
        .buf_size = buf_size,
        .region = p->region,
        .base = part_carve(p, part, stride, need),
    };
    if (part == MEM_LANDING)
        rc = mem_holds_pool(p->region, pool->base, stride, count);
    if (!pool->free || rc < 0) {
        err_text(err, "pool %s: %s", name,
                 rc == -ENOSPC ? "too many pools in landing memory" : "out of memory");
        mem_pool_fini(pool);
        return rc < 0 ? rc : -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        pool->free[count - 1 - i] = pool->base + stride * i;
    return 0;
}

void mem_pool_fini(struct mem_pool *pool)
{
    free(pool->free);
    *pool = (struct mem_pool){.region = MEM_REGION_NONE};
}

void *mem_pool_get(struct mem_pool *pool)
{
    void *buf;

    if (pool->nfree == 0)
        return NULL;
    buf = pool->free[--pool->nfree];
    pool->low = min(pool->low, pool->nfree);
    asan_unpoison(buf, pool->buf_size);
    return buf;
}

void mem_pool_put(struct mem_pool *pool, void *buf)
{
    assert(pool->nfree < pool->total);
    assert((uint8_t *)buf >= pool->base);
    assert(BUFFER_IS_FREE(pool, buf));
    asan_poison(buf, pool->buf_size);
    pool->free[pool->nfree++] = buf;
}
