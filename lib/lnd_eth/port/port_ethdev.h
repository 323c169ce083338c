/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The `ethdev` back-end's own: any DPDK driver.
 *
 * Where a device has a send queue for each reactor, each uses its own. Where it has fewer, those
 * are used that go with a receive queue, by the reactor that polls it; the others pass their frames
 * to it through a ring for each pair.
 */
#ifndef MILLRACE_PORT_ETHDEV_H
#define MILLRACE_PORT_ETHDEV_H

#include "lib/lnd_eth/port/port_internal.h"

#include <rte_ethdev.h>
#include <rte_ring.h>

#define ETHDEV_NO_QUEUE UINT16_MAX

/* A send queue that several reactors share. */
struct ethdev_shared {
    struct rte_ring *from[REACTOR_MAX]; /* by the reactor that puts in; NULL: it uses another */
    struct rte_mbuf *wait[PORT_BURST];  /* taken out, and the device had no room. Its user's own. */
    unsigned waits;
} __rte_cache_aligned;

struct ethdev_self { /* of a reactor, written by it alone */
    uint16_t txq;    /* where it sends by itself, or ETHDEV_NO_QUEUE */
} __rte_cache_aligned;

struct ethdev_dev {
    uint16_t id;
    bool found;    /* there is an id; control thread */
    bool prepare;  /* some frames have to be shown to the driver first */
    uint32_t gone; /* not there yet, taken out, or asked for: no reactor touches it */
    bool leaving;  /* … and is given back soon */
    unsigned reactors, rxqs, txqs;
    /* Control thread: to take a device that comes later. */
    struct port_opts want;
    char driver[32]; /* the kernel's, when the device was tried last */
    unsigned looks, tries;
    struct rte_device *device;
    struct ethdev_self self[REACTOR_MAX];
    struct ethdev_shared *shared; /* by send queue; NULL: each reactor has one of its own */
    unsigned nshared;
};

/* ---- port_ethdev_io.c ---- */

unsigned ethdev_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
unsigned ethdev_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n);
/* Makes what reactors share; control thread. -ENOMEM. */
int ethdev_shared_make(struct port *port);
/* Frees the waiting frames. No reactor may poll. */
void ethdev_shared_clear(struct port *port);
void ethdev_shared_free(struct port *port);

#endif
