/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Values that one thread writes and other threads read, without order between different values.
 * Counters are the usual case: the thread that counts is their only writer, so that an addition
 * needs no locked instruction. A reader takes a snapshot and may see some counters of a struct
 * before and others after the same event. */
#ifndef MILLRACE_ATOMIC_H
#define MILLRACE_ATOMIC_H

#include <stddef.h>
#include <stdint.h>

#define relaxed_load(p)     __atomic_load_n((p), __ATOMIC_RELAXED)
#define relaxed_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

/* Adds n to a counter of any integer type. Only the counter's one writer may use it. */
#define count_add(counter, n)                                                                      \
    do {                                                                                           \
        __auto_type counter_ = (counter);                                                          \
        relaxed_store(counter_, *counter_ + (n));                                                  \
    } while (0)

/* Copies n counters of another thread. */
static inline void counters_copy(uint64_t *to, const uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = relaxed_load(&from[i]);
}

/* Adds n counters of another thread to a sum. */
static inline void counters_add(uint64_t *sum, const uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += relaxed_load(&from[i]);
}

/* The same for a whole struct that has uint64_t counters only. */
#define counters_copy_all(to, from)                                                                \
    do {                                                                                           \
        _Static_assert(sizeof(*(to)) % sizeof(uint64_t) == 0, "counters only");                    \
        counters_copy((uint64_t *)(to), (const uint64_t *)(from),                                  \
                      sizeof(*(to)) / sizeof(uint64_t));                                           \
    } while (0)
#define counters_add_all(sum, from)                                                                \
    do {                                                                                           \
        _Static_assert(sizeof(*(sum)) % sizeof(uint64_t) == 0, "counters only");                   \
        counters_add((uint64_t *)(sum), (const uint64_t *)(from),                                  \
                     sizeof(*(sum)) / sizeof(uint64_t));                                           \
    } while (0)

#endif
