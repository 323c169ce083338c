/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References of frames to buffers in landing memory, which are no mbufs: payload that a peer wrote
 * there leaves from there, in external mbufs. Each buffer of a pool in landing memory has the
 * shared information that DPDK wants of external memory, from the pool's making on. Its count is 1
 * while nobody refers to the buffer, so that it never comes to 0: DPDK frees nothing, and who owns
 * the buffer looks whether it is 1 (mem_held()) before it is used again. Nothing is allocated, no
 * call comes from another thread, and it does not matter which thread gives the last reference up.
 *
 * The first reference of all is made while nobody else can make one: by who has the message.
 */
#ifndef MILLRACE_MEM_HOLD_H
#define MILLRACE_MEM_HOLD_H

#include "lib/reactor/mem.h"

#include <rte_mbuf.h>

/* References to one buffer that are made at most, of the 65535 that fit. */
#define MEM_HOLD_MOST 49152u

/* What frames that refer to these bytes share. NULL: they are not in one buffer of landing memory,
 * so nobody would wait for them. Any reactor. */
struct rte_mbuf_ext_shared_info *mem_hold_of(uint16_t region, const void *addr, size_t len);
/* Where devices see a byte of such a buffer; the buffer's others follow. Any reactor. */
rte_iova_t mem_hold_iova(uint16_t region, const void *addr);

#endif
