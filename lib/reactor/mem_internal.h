/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of regions, which the kinds of memory in this folder share. Control thread. */
#ifndef MILLRACE_MEM_INTERNAL_H
#define MILLRACE_MEM_INTERNAL_H

#include "lib/reactor/mem.h"

struct rte_memzone;

/* Enters a region; 0, or -ENOSPC: the table is full. */
int mem_region_add(void *base, size_t len, enum mem_part part, int socket, uint16_t *index);
void mem_region_del(uint16_t index);
/* Reserves a zone of EAL's memory, of a NUMA node (-1: any). Gives what is kept of freed arenas
 * back to EAL if the zone has no room otherwise. NULL: there is no room; rte_errno says why. */
const struct rte_memzone *mem_zone_reserve(const char *name, size_t bytes, int socket,
                                           unsigned flags, size_t align);

/* ---- mem_hold.c: references to landing buffers. Control thread ---- */

/* A region of landing memory, from which pools are carved. 0 or -ENOMEM. */
int mem_holds_add(uint16_t region, void *base, size_t len);
/* Buffers of a pool: count of them from base on, each of stride bytes (of MEM_PAGE). 0, or -ENOMEM,
 * -ENOSPC: too many pools. */
int mem_holds_pool(uint16_t region, uint8_t *base, size_t stride, uint32_t count);
/* Whether any buffer of it is referred to. */
bool mem_holds_busy(uint16_t region);
void mem_holds_del(uint16_t region);

#endif
