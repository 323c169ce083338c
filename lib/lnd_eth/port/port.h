/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports: devices that carry Ethernet frames, with one small interface for all of them. Back-ends:
 * `ethdev` (any DPDK driver, by PCI address or devargs) and `packet` (an AF_PACKET socket on an
 * interface of the kernel's).
 *
 * Several reactors use a port: each of its receive queues is polled by one, and every reactor may
 * send on the queue of its own index. Frames are as pkt.h says. The port does in software what a
 * device lacks: checksums, VLAN tags, chained buffers.
 */
#ifndef MILLRACE_PORT_H
#define MILLRACE_PORT_H

#include "lib/base/err.h"
#include "lib/lnd_eth/port/pkt.h"
#include "lib/reactor/mem.h"
#include "lib/reactor/reactor.h"

#include <stddef.h>

#include <rte_ether.h>
#include <rte_mempool.h>

#define PORT_MAX        16
#define PORT_NAME_MAX   16 /* with its NUL, as IFNAMSIZ */
#define PORT_BURST      64
#define PORT_MTU_MIN    576
#define PORT_MTU_MAX    9000
#define PORT_DESC_BYTES 16383u /* drivers split a longer buffer into several descriptors */

struct port;

enum port_cap {
    PORT_TX_TSO = 1,      /* takes TCP frames above the MTU, up to tso_max */
    PORT_TX_CSUM = 2,     /* the device computes checksums (else the port, in software) */
    PORT_RX_CSUM = 4,     /* the device verifies them */
    PORT_TX_CHAINS = 8,   /* the device takes chains (else the port makes one buffer: a copy) */
    PORT_RX_SLEEPS = 16,  /* a descriptor becomes readable when frames come: a reactor may sleep */
    PORT_COPIES_IN = 32,  /* payload is copied on its way in, by this kind of device … */
    PORT_COPIES_OUT = 64, /* … and out */
    /* Sent frames are returned without further traffic, so memory with a waiting owner may be
     * sent by reference. A driver that looks after its descriptors only when it
     * needs some keeps the last ones as long as a link is idle. */
    PORT_TX_RETURNS = 128,
};

struct port_opts {
    const char *name;    /* of the configuration; copied */
    const char *device;  /* kernel interface, PCI address or devargs; copied */
    unsigned mtu;        /* IP; 0 = the device's own */
    unsigned reactors;   /* send queues wanted: one for each reactor */
    unsigned rx_queues;  /* receive queues wanted, at most; the device may have fewer */
    size_t buffer_bytes; /* for received frames, by truesize, above what the device itself holds */
    int socket;          /* NUMA node, -1 = any */
    bool may_lack;       /* the device may come later: see port_lacks() */
};

/* Work that port_tx() and port_rx() do in software for this device. */
enum port_soft {
    PORT_SOFT_IP_CSUM = 1,  /* IPv4 header's checksum */
    PORT_SOFT_L4_CSUM = 2,  /* TCP's and UDP's */
    PORT_SOFT_VLAN_TX = 4,  /* the tag is put into the frame … */
    PORT_SOFT_VLAN_RX = 8,  /* … and taken out */
    PORT_SOFT_PULL = 16,    /* received first segments may be shorter than PKT_HEADERS */
    PORT_SOFT_FOREIGN = 32, /* received frames may be of other pools, or shared: copied */
};

/* A snapshot for RPC. */
struct port_info {
    char name[PORT_NAME_MAX];
    char device[128];
    const char *backend; /* "packet", "ethdev" */
    char driver[32];     /* DPDK's name of it, or the kernel's */
    struct rte_ether_addr mac;
    bool link_up;
    unsigned speed; /* Mbit/s, 0 = unknown */
    unsigned mtu;
    uint32_t caps; /* enum port_cap */
    unsigned rx_queues, tx_queues;
    int socket;
    uint32_t buffers, buffers_free; /* of all its receive pools */
    uint32_t buffer_bytes;          /* truesize of the largest kind */
};

/* Counters of a queue; one writer, relaxed loads by others. */
struct port_queue_stats {
    uint64_t packets, bytes, bursts;
    uint64_t full;         /* tx: device took less than offered */
    uint64_t no_buffer;    /* rx: frames lost since there was no mbuf */
    uint64_t bad;          /* rx: frames the port itself refused; tx: frames it could not make, or
                              the device refused */
    uint64_t copies;       /* payload copies forced by the device … */
    uint64_t copied_bytes; /* … in the one function that makes them */
    uint64_t csums;        /* checksums computed or verified in software by the port */
} __rte_cache_aligned;

struct port_xstat {
    char name[64];
    uint64_t value;
};

/* A back-end. Control thread unless said otherwise. */
struct port_ops {
    const char *name;
    /* Claims the device and fills in what port.h's struct port has above the line. 0 or -errno with
     * a sentence that names the remedy. */
    int (*open)(struct port *port, const struct port_opts *opts, struct err *err);
    /* Frames may flow from now on. */
    int (*start)(struct port *port, struct err *err);
    /* No queue is polled any more; everything given to the device has come back when this
     * returns. NULL: it has in any case. */
    void (*stop)(struct port *port);
    void (*close)(struct port *port);
    /* Up to n frames; on the reactor that polls the queue. */
    unsigned (*rx)(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
    /* Takes the first k frames of n (normal form, not yet finished in software by anybody where
     * caps lack it: port_tx() has done that); on the reactor of that index. */
    unsigned (*tx)(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
    /* The reactor of that queue is about to sleep: a descriptor that wakes it, or -1. Called once,
     * on that reactor. */
    int (*rx_fd)(struct port *port, unsigned queue);
    bool (*link)(struct port *port, unsigned *speed_mbit); /* any thread; no long wait */
    /* Why there is no link, a static word; NULL: not known. May be NULL. Like link(). */
    const char *(*link_why)(struct port *port);
    /* Now and then, while frames flow. NULL: it has nothing to look after. */
    void (*look)(struct port *port);
    unsigned (*xstats)(struct port *port, struct port_xstat *out, unsigned max); /* or NULL */
};

struct port {
    const struct port_ops *ops;
    void *dev; /* the back-end's own */
    uint32_t caps;
    uint32_t tso_max; /* bytes of IP packet */
    unsigned mtu;
    unsigned rx_queues, tx_queues;
    struct rte_ether_addr mac;
    struct rte_mempool *rx_small, *rx_large; /* may be the same; both with PKT_PRIV */
    uint32_t soft;                           /* enum port_soft */
    unsigned tx_segs;                        /* segments of a frame that tx() takes, … */
    /* … and of one that the device cuts. Any tso_run of its segments in a row hold the payload of
     * one TCP segment at least; 0: neither is limited. A longer segment than PORT_DESC_BYTES counts
     * as several, of which the last may be short. */
    unsigned tso_segs, tso_run;
    struct rte_mempool *tx_linear; /* whole frames, for those of more; NULL: there are none */
    char driver[32];               /* for port_info */
    /* ---- port.c's ---- */
    char name[PORT_NAME_MAX];
    char device[128];
    unsigned index;
    int socket;
    bool started;
    bool lacks;                  /* the device was not there yet; the back-end writes it */
    struct rte_mempool *tx_pool; /* headers, small copies, and shells that refer to payload */
    struct port_faults *faults;  /* NULL: none was ever asked for */
    struct port_queue_stats *rx_stats, *tx_stats; /* by queue */
};

/* Fault injection at the port, for tests: a stage between a port's queues and its callers that
 * loses, delays and damages frames (test/faults/, built with -Dfaults=true). */
typedef unsigned (*port_burst_fn)(struct port *port, unsigned queue, struct rte_mbuf **pkts,
                                  unsigned n);
struct port_faults {
    /* Does what port_rx() and port_tx() do; plain does the same without faults. tx() with n = 0
     * sends delayed frames that are due. */
    unsigned (*rx)(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                   port_burst_fn plain);
    unsigned (*tx)(struct port_faults *f, unsigned queue, struct rte_mbuf **pkts, unsigned n,
                   port_burst_fn plain);
    /* Returns the microseconds until a delayed frame is due, UINT64_MAX: none is delayed.
     * rx_queue -1: this reactor polls no queue of the port. */
    uint64_t (*due)(struct port_faults *f, int rx_queue, unsigned tx_queue);
    /* Returns the frames that were lost on purpose. Any thread. */
    uint64_t (*lost)(const struct port *port);
    /* Frees port->faults with all delayed frames. No reactor polls the port. */
    void (*end)(struct port *port);
};

static inline struct port_faults *port_faults_of(const struct port *port)
{
    return __atomic_load_n(&port->faults, __ATOMIC_ACQUIRE);
}

/* ---- making (control thread; reactors need not run) ---- */

/* Opens a device. The back-end follows from it: a PCI address or "net_…" devargs are DPDK's, else
 * it is an interface of the kernel's. ops: NULL, or another back-end (tests). Refuses what cannot
 * work, with the remedy in err. With may_lack it is no error that there is no such device, or that
 * it is down. */
int port_open(const struct port_opts *opts, const struct port_ops *ops, struct port **out,
              struct err *err);
int port_start(struct port *port, struct err *err);
void port_stop(struct port *port); /* reactors do not poll it any more */
void port_close(struct port *port);
/* Bytes of EAL memory a port takes for its buffers. Any thread, no device is touched. */
size_t port_memory(const struct port_opts *opts);
/* Whether an address is the host's on that kernel interface (or any): then the host would answer
 * our packets. v4 as ::ffff:a.b.c.d. Fills ifname[16]. */
bool port_host_has(const uint8_t addr[16], char ifname[16]);

/* ---- the data path ---- */

/* Receives frames in normal form, through port->faults if there are any. Returns how many. */
unsigned port_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
/* Sends frames in order and returns k, the number taken. The first k frames belong to the device
 * from then on (or were freed, counted as bad); the caller keeps the rest. In the rest, work
 * already done in software is cleared from the flags, and a chain may have become one buffer.
 * queue: the index of the calling reactor. */
unsigned port_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
/* An mbuf for headers (room: RTE_PKTMBUF_HEADROOM + 256, empty), or a shell to attach payload to;
 * NULL: none left. */
struct rte_mbuf *port_tx_alloc(struct port *port);

/* Whether the device was not there yet, when its link was last looked at. Until then the port has
 * no link, and the MTU that was asked for, or 1500. Any thread. */
bool port_lacks(const struct port *port);

/* ---- looking (any thread) ---- */

void port_info_get(struct port *port, struct port_info *out);
void port_stats_get(const struct port *port, bool tx, unsigned queue, struct port_queue_stats *out);

/* ---- checksums in software (csum.c): code chosen for this CPU at run time ---- */

/* One's complement sum of len bytes (RFC 1071), folded to 16 bits, not inverted, in the order of
 * bytes in memory: to be stored as it is. sum: carried from before. */
uint16_t csum_partial(const void *data, size_t len, uint32_t sum);
/* The sum of two parts that follow each other; odd: the first has an odd number of bytes. */
uint16_t csum_join(uint16_t first, uint16_t second, bool odd);
/* The same over a chain, from offset on. */
uint16_t csum_chain(const struct rte_mbuf *m, uint32_t off, uint32_t len, uint32_t sum);
const char *csum_variant(void); /* "scalar", "avx2", "avx512" … */

#endif
