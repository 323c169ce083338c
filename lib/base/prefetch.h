/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Prefetching of objects that are used soon. The objects of one message are fetched side by side,
 * instead of each after the one that points to it. */
#ifndef MILLRACE_PREFETCH_H
#define MILLRACE_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

#define CPU_LINE 64u /* bytes of a cache line */
#define CPU_BLOCK                                                                                  \
    128u /* bytes that a CPU fetches together: objects of the data path keep to it                 \
          */

/* Prefetches the first `bytes` bytes of an object, to read them. */
static inline void prefetch_read(const void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CPU_LINE)
        __builtin_prefetch((const uint8_t *)p + at, 0);
}

/* Prefetches the first `bytes` bytes of an object, to change them. */
static inline void prefetch_write(const void *p, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += CPU_LINE)
        __builtin_prefetch((const uint8_t *)p + at, 1);
}

#endif
