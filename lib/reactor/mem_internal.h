/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kinds of memory in this folder share: the table of regions. Control thread. */
#ifndef MILLRACE_MEM_INTERNAL_H
#define MILLRACE_MEM_INTERNAL_H

#include "lib/reactor/mem.h"

/* Enters a region; 0, or -ENOSPC: the table is full. */
int mem_region_add(void *base, size_t len, enum mem_part part, int socket, uint16_t *index);
void mem_region_del(uint16_t index);
/* Gives what is kept of arenas that are gone back to EAL. False: there was nothing. */
bool mem_spare_free(void);

#endif
