/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of messages. RDMA devices move registered memory only. On o2ib nets the pattern, the
 * buffers of a server and the room for answers therefore lie in landing memory. On other nets they
 * lie in the heap, since host sockets copy in any case.
 */
#include "app/millrace-perf/perf.h"
#include "lib/base/err.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static bool needs_registered(const struct perf_opts *o)
{
    for (unsigned i = 0; i < o->nnis; i++) {
        const struct lnd_type *type = lnd_type_of(o->ni[i].net);

        if (type && type->registered_memory)
            return true;
    }
    return false;
}

static bool gets(const struct perf_opts *o)
{
    return o->command == PERF_GET ||
           (o->command == PERF_BOTH && (o->kinds.in_turn || o->kinds.weight[OP_GET] > 0));
}

size_t perf_get_room(const struct perf_opts *o)
{
    return gets(o) ? aligned(sizes_max(&o->sizes)) : 0;
}

size_t perf_memory_need(const struct perf_opts *o)
{
    size_t need = PATTERN_SIZE + o->inflight * perf_get_room(o) + ALIGN;

    if (!needs_registered(o))
        return 0;
    if (o->command == PERF_SERVER || o->serve)
        need += (size_t)o->buffers * LNET_MAX_PAYLOAD + PATTERN_SIZE; /* an altered one, too */
    return (need + LNET_MAX_PAYLOAD - 1) / LNET_MAX_PAYLOAD * LNET_MAX_PAYLOAD;
}

/* Buffers of a pool follow each other: taken together they are one piece. */
int perf_memory_open(struct perf *p, struct err *err)
{
    size_t need = perf_memory_need(&p->opts);
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = need};
    uint8_t *pattern;
    int rc;

    if (need == 0)
        return 0;
    rc = mem_arena_create(&opts, &p->arena, err);
    if (rc == 0)
        rc = mem_pool_init(&p->memory, p->arena, MEM_LANDING, LNET_MAX_PAYLOAD,
                           (uint32_t)(need / LNET_MAX_PAYLOAD), "messages", err);
    if (rc != 0)
        return rc;
    while (mem_pool_get(&p->memory)) /* all of them are in use from now on */
        ;
    pattern = perf_memory_take(p, PATTERN_SIZE);
    memcpy(pattern, p->pattern, PATTERN_SIZE);
    free(p->pattern);
    p->pattern = pattern;
    return 0;
}

uint8_t *perf_memory_take(struct perf *p, size_t bytes)
{
    size_t all = (size_t)p->memory.total * p->memory.buf_size;
    uint8_t *at = p->memory.base + p->memory_used;

    if (!p->memory.base)
        return aligned_alloc(ALIGN, aligned(bytes));
    if (aligned(bytes) > all - p->memory_used)
        return NULL;
    p->memory_used += aligned(bytes);
    return at;
}

static bool is_of_pool(const struct perf *p, const void *addr)
{
    const uint8_t *at = addr;

    return p->memory.base && at >= p->memory.base &&
           at < p->memory.base + (size_t)p->memory.total * p->memory.buf_size;
}

void perf_memory_give(struct perf *p, void *taken)
{
    if (!is_of_pool(p, taken))
        free(taken);
}

uint16_t perf_region(const struct perf *p, const void *addr)
{
    return is_of_pool(p, addr) ? p->memory.region : MEM_REGION_NONE;
}

void perf_memory_close(struct perf *p)
{
    if (is_of_pool(p, p->pattern))
        p->pattern = NULL;
    if (p->memory.base)
        mem_pool_fini(&p->memory);
    if (p->arena)
        mem_arena_destroy(p->arena);
}
