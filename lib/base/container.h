/* SPDX-License-Identifier: BSD-3-Clause
 *
 * container_of: from a member to the struct that holds it. */
#ifndef MILLRACE_CONTAINER_H
#define MILLRACE_CONTAINER_H

#include <stddef.h>

/* DPDK's rte_common.h defines a macro of this name, unless one is there already. */
#undef container_of
/* Returns the address of the struct of type `type` whose member `member` is *ptr. */
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
