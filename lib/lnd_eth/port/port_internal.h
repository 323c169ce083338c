/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of this folder. */
#ifndef MILLRACE_PORT_INTERNAL_H
#define MILLRACE_PORT_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/port/port.h"

#include <string.h>

#define PORT_ROOM_SMALL (RTE_PKTMBUF_HEADROOM + 2048)
#define PORT_ROOM_LARGE (RTE_PKTMBUF_HEADROOM + 9216)
#define PORT_ROOM_TX    (RTE_PKTMBUF_HEADROOM + 256)
#define PORT_FRAME_MORE (RTE_ETHER_HDR_LEN + 4) /* a frame is so much longer than its IP packet */

#define PORT_SEGS_ENOUGH 64u /* of a frame: more than own TCP ever makes */
#define PORT_TSO_SEGS    8u  /* a device that takes fewer is not asked to cut */

extern const struct port_ops port_packet_ops, port_ethdev_ops;
/* Whether a device is DPDK's: a PCI address, or "net_…" devargs. */
bool port_is_ethdev(const char *device);
/* Returns a bound of the EAL memory of such a port without tx_pool; no device is queried. */
size_t port_ethdev_memory(const struct port_opts *opts);

/* Sets how many segments a frame may have. Returns whether the device may be asked to cut one.
 * The limits are nb_mtu_seg_max and nb_seg_max of struct rte_eth_desc_lim; 0: none is stated.
 * `each` limits a frame that is not cut, and each TCP segment of one that is. Its headers count.
 * `all` limits a whole frame that is cut.
 * A TCP segment covers two buffers in part, and at most tso_run - 1 whole ones between these. */
static inline bool port_segs_set(struct port *port, bool chains, unsigned each, unsigned all)
{
    each = each != 0 ? each : UINT16_MAX;
    all = all != 0 ? all : UINT16_MAX;
    port->tx_segs = chains ? each : 1;
    port->tso_segs = port->tso_run = 0;
    if (!chains || each < PORT_TSO_SEGS || all < PORT_TSO_SEGS)
        return false;
    if (each < PORT_SEGS_ENOUGH || all < PORT_SEGS_ENOUGH) {
        port->tso_segs = all;
        port->tso_run = each - 2;
    }
    return true;
}

_Static_assert(PORT_ROOM_LARGE < PORT_DESC_BYTES, "no buffer of a port's is split");

/* The one place where payload is copied between a device's memory, or a chain, and a buffer. */
static inline void port_copy(struct port_queue_stats *stats, void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
    count_add(&stats->copied_bytes, len);
}

/* size zeros at the beginning of a cache line, for free(); NULL: out of memory. */
void *port_zalloc(size_t size);
/* A pool of the port's. what: of at most 6 characters. Control thread. */
int port_pool(struct port *port, const char *what, uint32_t count, uint16_t room,
              struct rte_mempool **out, struct err *err);
/* Makes rx_small and rx_large for frames that are copied in. */
int port_pools_copied(struct port *port, size_t buffer_bytes, struct err *err);
size_t port_pools_copied_memory(size_t buffer_bytes);

/* ---- csum.c ---- */

/* Code for sums; sum() gives one that is to be folded. */
struct csum_variant {
    const char *name;
    uint64_t (*sum)(const uint8_t *p, size_t len);
};
/* Returns the variants that this CPU can run, the one in use first; NULL: no more. Any thread. */
const struct csum_variant *csum_variant_at(unsigned index);

/* ---- port_finish.c (the reactor of that queue) ---- */

/* Does in software what the device cannot, for one frame; *pkt may be another afterwards, which
 * does not ask for it any more. */
enum port_finish {
    PORT_READY,
    PORT_LATER, /* no buffer just now */
    PORT_BAD,   /* cannot be made; not freed */
};
enum port_finish port_finish_tx(struct port *port, struct port_queue_stats *stats,
                                struct rte_mbuf **pkt);
/* Brings received frames into the normal form; what cannot be is freed. Returns how many are left,
 * in order. */
unsigned port_finish_rx(struct port *port, struct port_queue_stats *stats, struct rte_mbuf **pkts,
                        unsigned n);
/* A chain of the receive pools' buffers for len > 0 bytes; NULL: none left (counted). */
struct rte_mbuf *port_buffers(struct port *port, struct port_queue_stats *stats, uint32_t len);
/* Copies len bytes into a new chain of the receive pools; NULL: none left (counted). */
struct rte_mbuf *port_copy_in(struct port *port, struct port_queue_stats *stats, const void *data,
                              uint32_t len);

#endif
