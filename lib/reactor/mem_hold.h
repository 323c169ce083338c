/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * References of frames to buffers in landing memory, which are no mbufs: payload that a peer wrote
 * there leaves from there, in external mbufs. Each buffer of a pool in landing memory has the
 * shared information that DPDK wants of external memory, from the pool's making on. Its count is 1
 * while no frame refers to the buffer, and never 0, so that DPDK frees nothing. The owner of the
 * buffer uses it again only when the count is 1 (mem_held()). Nothing is allocated, no call comes
 * from another thread, and it does not matter which thread gives the last reference up.
 *
 * The owner of the message makes the first reference, while no other thread can make one.
 */
#ifndef MILLRACE_MEM_HOLD_H
#define MILLRACE_MEM_HOLD_H

#include "lib/reactor/mem.h"

#include <rte_mbuf.h>

/* References to one buffer that are made at most, of the 65535 that fit. */
#define MEM_HOLD_MOST 49152u

/* Returns the shared information for frames that refer to these bytes, or NULL: they are not in one
 * buffer of landing memory, so no owner would wait for the frames. Any reactor. */
struct rte_mbuf_ext_shared_info *mem_hold_of(uint16_t region, const void *addr, size_t len);
/* Where devices see a byte of such a buffer; the buffer's others follow. Any reactor. */
rte_iova_t mem_hold_iova(uint16_t region, const void *addr);

#endif
