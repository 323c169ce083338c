/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of fault injection share. */
#ifndef MILLRACE_TAMPER_INTERNAL_H
#define MILLRACE_TAMPER_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/minmax.h"
#include "lib/lnd_eth/port/frame.h"
#include "test/faults/tamper.h"

/* ---- tamper_frame.c: frames ---- */

#define TAMPER_PIECES_MAX 128 /* segments that one frame is cut into, at most */

/* A copy of a frame in buffers of the port's own, with its flags; NULL: there are none to spare. */
struct rte_mbuf *tamper_copy(struct port *port, const struct rte_mbuf *m);
/* Bytes of payload in each of the segments that a frame stands for; 0: it is a single one. */
uint32_t tamper_segment(const struct port *port, const struct rte_mbuf *m,
                        const struct frame_view *v, bool out);
/* Cuts a TCP frame into segments of at most size bytes of payload, in copies. How many, 0: it could
 * not be done. The frame stays the caller's. */
unsigned tamper_cut(struct port *port, struct rte_mbuf *m, const struct frame_view *v,
                    uint32_t size, bool out, struct rte_mbuf **piece);
/* Puts all checksums into a frame that may be written, and takes the flags away. False: it cannot
 * be known how. */
bool tamper_complete(struct rte_mbuf *m, const struct frame_view *v, bool out);
/* Turns over one bit. */
void tamper_flip(struct rte_mbuf *m, uint32_t bit);
/* Buffers of the pool run low: nothing should be kept for long. */
bool tamper_pool_low(const struct rte_mempool *pool);

/* ---- tamper.c, tamper_path.c: rules ---- */

struct tamper_departure { /* of a frame in the queue of a rate */
    uint64_t ns;
    uint32_t bytes;
};

/* A rule on one queue; only that queue's reactor writes it. */
struct tamper_state {
    uint64_t random;
    bool in_burst;
    uint64_t last_us; /* release of the frame before, for jitter */
    uint64_t free_ns; /* when the rate is free again */
    struct tamper_departure *queue;
    uint32_t head, queued; /* ring of conf.queue_packets */
    uint64_t queued_bytes;
    struct tamper_counts counts;
} __rte_cache_aligned;

struct tamper_rule {
    unsigned id;
    struct tamper_conf conf;
    unsigned queues;
    struct tamper_state *state;
};

struct tamper_rules { /* immutable once published */
    unsigned n;
    bool cuts; /* some rule may cut */
    struct tamper_rule *rule[TAMPER_RULES_MAX];
};

struct tamper_held {
    uint64_t release_us, order;
    struct rte_mbuf *m;
};

struct tamper_queue {
    struct tamper_held *heap; /* the earliest first */
    uint32_t n;
    uint64_t order;
    /* out: what the device did not take yet */
    struct rte_mbuf *ready[PORT_BURST];
    unsigned nready;
    struct tamper_queues counts;
} __rte_cache_aligned;

struct port_tamper {
    struct port_faults base; /* first */
    struct port *port;
    unsigned last_id;
    uint64_t lost_before;          /* by rules that are gone */
    struct tamper_rules *rules[2]; /* by out; never NULL */
    unsigned queues[2];
    struct tamper_queue *queue[2];
};

/* Returns the faults of a port, NULL: there are none. Control thread. */
static inline struct port_tamper *tamper_of(const struct port *port)
{
    return (struct port_tamper *)port->faults;
}

#endif
