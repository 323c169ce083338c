/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools of mbufs, each in one piece of EAL memory, all mbufs at one distance. See mem_mbuf.h. */
#include "lib/reactor/mem_mbuf.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/reactor/mem_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <rte_memzone.h>

#define MBUF_CACHE_MAX   256u
#define MBUF_CACHE_MIN   8u
#define MBUF_CACHE_SHARE 4u   /* all caches together hold at most about one in so many */
#define STACK_HEAD       512u /* of a pool's stack of free mbufs … */
#define STACK_EACH       (2 * sizeof(void *))       /* … and for each of them */
#define EAL_PIECE        (2u * RTE_CACHE_LINE_SIZE) /* what EAL's heap adds to a piece of memory … */
#define EAL_PIECES       12u /* … of which a pool has at most so many, the small ones among them */

/* Where the mbufs of a region are. Written by the control thread before any mbuf of it is seen. */
struct mbuf_region {
    struct rte_mempool *pool; /* NULL: the region is of another kind */
    const struct rte_memzone *zone;
    uint8_t *base; /* of the first object */
    size_t stride, header;
    uint32_t count;
};

static struct mbuf_region mbufs[MEM_REGION_MAX];

#ifdef __SANITIZE_THREAD__
/* DPDK's library is built without ThreadSanitizer, which therefore misses the order that its stack
 * guarantees: what was done to a buffer before it was given back comes before it is taken. These
 * operations report that order, and are those of the stack otherwise. */
#include <sanitizer/tsan_interface.h>
#define FREE_STACK "tsan_stack"

static const struct rte_mempool_ops *stack_ops(void)
{
    for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; i++)
        if (strcmp(rte_mempool_ops_table.ops[i].name, "lf_stack") == 0)
            return &rte_mempool_ops_table.ops[i];
    return NULL;
}

static int seen_alloc(struct rte_mempool *pool)
{
    return stack_ops() ? stack_ops()->alloc(pool) : -ENOTSUP;
}

static void seen_free(struct rte_mempool *pool)
{
    stack_ops()->free(pool);
}

static int seen_enqueue(struct rte_mempool *pool, void *const *objs, unsigned n)
{
    __tsan_release(pool);
    return stack_ops()->enqueue(pool, objs, n);
}

static int seen_dequeue(struct rte_mempool *pool, void **objs, unsigned n)
{
    int rc = stack_ops()->dequeue(pool, objs, n);

    __tsan_acquire(pool);
    return rc;
}

static unsigned seen_count(const struct rte_mempool *pool)
{
    return stack_ops()->get_count(pool);
}

static const struct rte_mempool_ops seen_stack = {
    .name = FREE_STACK,
    .alloc = seen_alloc,
    .free = seen_free,
    .enqueue = seen_enqueue,
    .dequeue = seen_dequeue,
    .get_count = seen_count,
};
RTE_MEMPOOL_REGISTER_OPS(seen_stack)
#else
#define FREE_STACK "lf_stack"
#endif

static size_t object_size(uint16_t priv, uint16_t room, struct rte_mempool_objsz *size)
{
    return rte_mempool_calc_obj_size((uint32_t)(sizeof(struct rte_mbuf) + priv + room), 0, size);
}

/* Buffers in the cache of one lcore are not available to others: a small pool has small caches. A
 * cache keeps up to half as much again as its size. */
static unsigned cache_size(uint32_t count)
{
    unsigned size = count / (MBUF_CACHE_SHARE * 3 / 2 * max(rte_lcore_count(), 1u));

    return size < MBUF_CACHE_MIN ? 0 : min(size, MBUF_CACHE_MAX);
}

uint16_t mem_mbufs_region(const struct rte_mempool *pool)
{
    for (uint16_t i = 0; i < MEM_REGION_MAX; i++) {
        if (mbufs[i].pool == pool)
            return i;
    }
    return MEM_REGION_NONE;
}

static void zone_free(struct rte_mempool_memhdr *chunk, void *zone)
{
    rte_memzone_free(zone);
}

/* Finding the mbuf of an address rests on this. */
static void place_check(struct rte_mempool *pool, void *wrong, void *obj, unsigned i)
{
    const struct mbuf_region *r = &mbufs[mem_mbufs_region(pool)];

    if ((uint8_t *)obj != r->base + r->stride * i + r->header)
        *(bool *)wrong = true;
}

static int pool_fill(struct rte_mempool *pool, uint32_t count, size_t stride, struct err *err)
{
    char name[RTE_MEMZONE_NAMESIZE];
    const struct rte_memzone *zone;
    bool wrong = false;
    uint16_t region;
    int rc;

    snprintf(name, sizeof(name), "mb_%s", pool->name);
    zone = mem_zone_reserve(name, stride * count, pool->socket_id, RTE_MEMZONE_IOVA_CONTIG,
                            RTE_CACHE_LINE_SIZE);
    if (!zone)
        return err_set(err, -ENOMEM,
                       "%zu KiB for %u packet buffers (%s): EAL has not that much in a piece",
                       stride * count >> 10, count, pool->name);
    rc = mem_region_add(zone->addr, zone->len, MEM_LOCAL, zone->socket_id, &region);
    if (rc < 0) {
        err_text(err, "more than %d memory regions", MEM_REGION_MAX);
        rte_memzone_free(zone);
        return rc;
    }
    mbufs[region] = (struct mbuf_region){pool, zone, zone->addr, stride, pool->header_size, count};
    /* With addresses that are the same for devices no mbuf has to keep within a page, and none may
     * be moved behind the next one. */
    if (rte_eal_iova_mode() == RTE_IOVA_VA)
        pool->flags |= RTE_MEMPOOL_F_NO_IOVA_CONTIG;
    rc = rte_mempool_populate_iova(pool, zone->addr, zone->iova, zone->len, zone_free,
                                   (void *)(uintptr_t)zone);
    if (rc < 0) {
        rte_memzone_free(zone);
        return err_set(err, rc, "packet buffers (%s): %s", pool->name, strerror(-rc));
    }
    pool->flags &= ~RTE_MEMPOOL_F_NO_IOVA_CONTIG;
    rte_mempool_obj_iter(pool, place_check, &wrong);
    if (rc != (int)count || wrong) {
        return err_set(err, -ENOTSUP,
                       "packet buffers (%s): EAL does not lay them out evenly; do not give it "
                       "--iova-mode=pa",
                       pool->name);
    }
    return 0;
}

int mem_mbufs_create(const char *name, uint32_t count, uint16_t priv, uint16_t room, int socket,
                     struct rte_mempool **out, struct err *err)
{
    struct rte_pktmbuf_pool_private own = {.mbuf_data_room_size = room, .mbuf_priv_size = priv};
    struct rte_mempool_objsz size;
    size_t stride = object_size(priv, room, &size);
    struct rte_mempool *pool;
    int rc;

    if (count == 0 || count > UINT32_MAX / 2 || RTE_ALIGN(priv, RTE_MBUF_PRIV_ALIGN) != priv)
        return err_set(err, -EINVAL, "%u packet buffers (%s) with %u private bytes", count, name,
                       priv);
    pool = rte_mempool_create_empty(name, count, size.elt_size, cache_size(count),
                                    sizeof(struct rte_pktmbuf_pool_private),
                                    socket < 0 ? SOCKET_ID_ANY : socket, 0);
    if (!pool) {
        rc = rte_errno > 0 ? -rte_errno : -ENOMEM;
        return err_set(err, rc, "a pool of packet buffers (%s): %s", name,
                       rc == -EEXIST ? "there is one of that name" : strerror(-rc));
    }
    /* The buffer that was freed last is used first, while it is in the CPU's caches. A thread that
     * loses its core inside a call does not block the others. */
    rc = rte_mempool_set_ops_byname(pool, FREE_STACK, NULL);
    if (rc < 0) {
        err_text(err, "packet buffers (%s): DPDK's stack memory pools are not installed", name);
        goto fail;
    }
    rte_pktmbuf_pool_init(pool, &own);
    rc = pool_fill(pool, count, stride, err);
    if (rc < 0)
        goto fail;
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
    *out = pool;
    return 0;
fail:
    mem_mbufs_destroy(pool);
    return rc;
}

void mem_mbufs_destroy(struct rte_mempool *pool)
{
    uint16_t region;

    if (!pool)
        return;
    region = mem_mbufs_region(pool);
    if (region != MEM_REGION_NONE) {
        mem_region_del(region);
        mbufs[region].pool = NULL;
    }
    rte_mempool_free(pool);
}

uint32_t mem_mbufs_truesize(const struct rte_mempool *pool)
{
    return pool->header_size + pool->elt_size + pool->trailer_size;
}

size_t mem_mbufs_memory(uint32_t count, uint16_t priv, uint16_t room)
{
    size_t stride = object_size(priv, room, NULL), pool, stack;

    pool = sizeof(struct rte_mempool) + sizeof(struct rte_pktmbuf_pool_private) +
           (cache_size(count) > 0 ? sizeof(struct rte_mempool_cache) * RTE_MAX_LCORE : 0);
    stack = STACK_HEAD + count * STACK_EACH;
    return stride * count + pool + stack + EAL_PIECES * (size_t)EAL_PIECE;
}

struct rte_mbuf *mem_mbuf_of(uint16_t region, const void *addr)
{
    const struct mbuf_region *r;
    size_t at;

    if (region >= MEM_REGION_MAX || !mbufs[region].pool)
        return NULL;
    r = &mbufs[region];
    at = (size_t)((const uint8_t *)addr - r->base) / r->stride;
    if ((const uint8_t *)addr < r->base || at >= r->count)
        return NULL;
    return (struct rte_mbuf *)(r->base + at * r->stride + r->header);
}
