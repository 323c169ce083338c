/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that devices may touch. Per NUMA node one arena taken from EAL memory at start, in two
 * parts: landing (the only memory that is ever registered remote-writable: 1 MiB slots from its
 * beginning on, pages from its end) and local (headers, never remote-writable). A segment names its
 * region by index, so that a device finds its own key for it in an array.
 *
 * A pool is a fixed set of equal buffers carved from one part. It belongs to one reactor: get and
 * put are free of locks and must run there.
 *
 * A buffer of landing memory may be referred to by frames (mem_hold.h). The owner of the message
 * frees the buffer, or has it written again, only when no frame refers to it: mem_held().
 */
#ifndef MILLRACE_MEM_H
#define MILLRACE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "lib/base/err.h"

#define MEM_LANDING_SLOT (1u << 20) /* bytes; LNET_MAX_PAYLOAD */
#define MEM_PAGE         4096u      /* bytes; what landing memory is carved in */
#define MEM_REGION_MAX   64
#define MEM_REGION_NONE  UINT16_MAX /* memory no device knows (heap of an end node, tests) */

enum mem_part {
    MEM_LOCAL,
    MEM_LANDING
};

struct mem_region {
    void *base;
    size_t len;
    enum mem_part part;
    int socket; /* NUMA node */
};

/* A piece of payload. Says where bytes are, not who owns them. */
struct mem_seg {
    uint8_t *addr;
    uint32_t len;
    uint16_t region; /* index for mem_region_get(), or MEM_REGION_NONE */
    uint16_t flags;  /* 0; room for the device's use */
};

struct mem_arena;

struct mem_arena_opts {
    int socket;           /* NUMA node, -1 = any */
    size_t landing_bytes; /* both in whole pages */
    size_t local_bytes;
};

/* Takes both parts from EAL memory (rte_memzone). Control thread, after reactor_env_create().
 * Returns 0 or -errno; err then says how much was asked for and how much there was. */
int mem_arena_create(const struct mem_arena_opts *opts, struct mem_arena **out, struct err *err);
void mem_arena_destroy(struct mem_arena *arena);
/* EAL is about to give its memory back to the system, where others may get the same addresses: no
 * arena is left, and nothing of them is poisoned any more. */
void mem_end(void);

/* The region of an index; NULL when there is none. Any thread. */
const struct mem_region *mem_region_get(uint16_t index);
unsigned mem_region_count(void);

/* Who keeps something for each region, as devices their keys: is told before the memory of one is
 * given back. Embedded in the owner. Control thread. */
struct mem_watch {
    void (*gone)(struct mem_watch *watch, uint16_t index);
    LIST_ENTRY(mem_watch) link;
};
void mem_watch_add(struct mem_watch *watch);
void mem_watch_del(struct mem_watch *watch);

struct mem_pool {
    const char *name;
    void **free; /* LIFO: the warmest buffer first */
    uint32_t nfree;
    uint32_t total;
    uint32_t low; /* fewest free ever */
    uint32_t buf_size;
    uint16_t region;
    uint8_t *base;
};

/* Carves count buffers of buf_size bytes (cache-line aligned; in landing memory each in pages of
 * its own, MEM_PAGE) from a part. Control thread, before the pool's reactor runs. -ENOMEM with a
 * sentence when the part is used up. name is kept. */
int mem_pool_init(struct mem_pool *pool, struct mem_arena *arena, enum mem_part part,
                  uint32_t buf_size, uint32_t count, const char *name, struct err *err);
/* Frees the bookkeeping; the memory goes with the arena. */
void mem_pool_fini(struct mem_pool *pool);

void *mem_pool_get(struct mem_pool *pool);           /* NULL when empty. Self. */
void mem_pool_put(struct mem_pool *pool, void *buf); /* buf must be of this pool. Self. */

/* Whether frames still refer to landing buffers that these bytes are in: some device, or a queue on
 * the way to one, may read them. Memory of other kinds: false. Who uses the memory next sees what
 * they did. Any thread, once no new references are made. */
bool mem_held(uint16_t region, const void *addr, size_t len);

#endif
