/* SPDX-License-Identifier: BSD-3-Clause
 *
 * container_of: from a member to the struct that holds it. ASSERT_AT: where a member stands. */
#ifndef MILLRACE_CONTAINER_H
#define MILLRACE_CONTAINER_H

#include <stddef.h>

/* DPDK's rte_common.h defines a macro of this name, unless one is there already. */
#undef container_of
/* Returns the address of the struct of type `type` whose member `member` is *ptr. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Checks, when it is compiled, that a field of a struct that goes over the wire is where it should
 * be. */
#define ASSERT_AT(type, field, offset)                                                             \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)

#endif
