/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `packet` back-end's own: AF_PACKET sockets on an interface of the kernel's.
 *
 * A receive queue has rings, each of a socket of its own with a filter by length, and slots for
 * such frames. (One ring would need large slots for all; a ring of blocks, TPACKET_V3, shows a
 * frame only when its block is full or some milliseconds old.) The kernel writes a time into each
 * slot, by which the frames of all come out in the order they went in.
 *
 * A frame in a slot has to be copied out, since a slot in use stops its ring. Of the longest
 * frames, TSO and GRO, a slot has only the beginning: the frames wait in the socket
 * (PACKET_COPY_THRESH), one for each slot with TP_STATUS_COPY, and are read straight into buffers,
 * many at a time.
 *
 * Frames are sent with sendmmsg() straight from their chains. docs/architecture.md (Ports) has the
 * reasons.
 */
#ifndef MILLRACE_PORT_PACKET_H
#define MILLRACE_PORT_PACKET_H

#include "lib/base/err.h"
#include "lib/lnd_eth/port/port_internal.h"

#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sys/socket.h>

#define PACKET_RX_QUEUES 8u
#define PACKET_IOVS      1024u /* pieces of a batch; UIO_MAXIOV: of a frame */
/* Frames read from a socket at a time. A few share a system call; of more the first are out of the
 * cache, and the others late, when they are looked at. */
#define PACKET_READS 8u

struct packet_ring {
    int fd; /* -1: none */
    uint8_t *map;
    size_t map_len;
    uint32_t slot_size, slots, slots_per_block, block_size;
    uint32_t head;
    bool handed; /* slots have the beginning only, frames wait in the socket */
};

enum packet_kind {
    PACKET_SHORT,
    PACKET_MIDDLE,
    PACKET_LONG,
    PACKET_KINDS
};

/* Frames to be read from the socket of the long ones; all for slots that are not given back yet. */
struct packet_reads {
    unsigned n, iovs;
    unsigned at[PACKET_READS]; /* place among the frames of this call */
    struct tpacket2_hdr *slot[PACKET_READS];
    struct rte_mbuf *m[PACKET_READS]; /* NULL: to be thrown away */
    struct mmsghdr msg[PACKET_READS];
    struct virtio_net_hdr head[PACKET_READS];
    struct iovec iov[PACKET_IOVS];
};

struct packet_rx {
    struct packet_ring ring[PACKET_KINDS];
    int epoll_fd; /* of all its sockets; -1 */
    uint64_t look_tsc;
    unsigned looks;
    struct packet_reads reads;
} __rte_cache_aligned;

struct packet_tx {
    int fd; /* -1: none */
    struct mmsghdr msg[PORT_BURST];
    struct virtio_net_hdr head[PORT_BURST];
    struct iovec iov[PACKET_IOVS];
} __rte_cache_aligned;

struct packet_dev {
    char ifname[IFNAMSIZ];
    int control_fd;       /* for ioctl */
    uint32_t rebinding;   /* a thread looks after an interface that has come back */
    int ifindex;          /* 0: not bound yet */
    const char *unfit;    /* why the interface that is there now cannot be used; NULL: it can */
    uint64_t look_cycles; /* between two looks at what sockets have to say */
    struct packet_rx *rx[PACKET_RX_QUEUES];
    struct packet_tx *tx[REACTOR_MAX];
};

/* ---- port_packet_ring.c (control thread) ---- */

/* Opens the rings of a queue, of queues; nothing is received yet. */
int packet_rx_open(struct packet_rx *rx, unsigned queue, unsigned queues, struct err *err);
void packet_rx_close(struct packet_rx *rx);

/* ---- port_packet_io.c (the reactor of that queue) ---- */

unsigned packet_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
unsigned packet_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
/* Takes all frames from the rings and throws them away. */
void packet_rx_drain(struct packet_rx *rx);

#endif
