/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mbufs as memory of segments: pools in EAL memory, each a region of its own, so that the mbuf of
 * an address can be found by arithmetic.
 */
#ifndef MILLRACE_MEM_MBUF_H
#define MILLRACE_MEM_MBUF_H

#include "lib/base/err.h"
#include "lib/reactor/mem.h"

#include <rte_mbuf.h>

/* A pool of count mbufs with room bytes of data each (headroom included) and priv bytes of private
 * area, in local memory of the NUMA node (-1: any). Reactors of the whole process get and put (the
 * multi-thread kind that survives preemption, with a cache per reactor). Control thread. 0 or
 * -errno with a sentence. */
int mem_mbufs_create(const char *name, uint32_t count, uint16_t priv, uint16_t room, int socket,
                     struct rte_mempool **out, struct err *err);
/* All mbufs must have come back. NULL is allowed. */
void mem_mbufs_destroy(struct rte_mempool *pool);
/* Returns the bytes of one mbuf with all that belongs to it. */
uint32_t mem_mbufs_truesize(const struct rte_mempool *pool);
/* EAL memory that such a pool takes. Any thread. */
size_t mem_mbufs_memory(uint32_t count, uint16_t priv, uint16_t room);
uint16_t mem_mbufs_region(const struct rte_mempool *pool);
/* The mbuf whose data an address of such a region lies in; NULL: the region is of another kind. Any
 * reactor. */
struct rte_mbuf *mem_mbuf_of(uint16_t region, const void *addr);

#endif
