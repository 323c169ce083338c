/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in and out of DPDK's devices. See port_ethdev.h. */
#include "lib/lnd_eth/port/port_ethdev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_branch_prediction.h>
#include <rte_ip.h>
#include <rte_tcp.h>

#define SHARED_RING 1024u /* frames under way from one reactor to another */
#define NEEDS_PREPARE                                                                              \
    (RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_VLAN)

/* ---- to the device ---- */

/* A driver may add the length to the pseudo header's sum when it is shown a frame, and the frame
 * may be shown to it again: the sum begins anew each time. */
static void pseudo_anew(struct rte_mbuf *m)
{
    void *ip = rte_pktmbuf_mtod_offset(m, void *, m->l2_len);
    uint32_t at = m->l2_len + m->l3_len + (uint32_t)offsetof(struct rte_tcp_hdr, cksum);
    uint16_t sum;

    if (!(m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) || m->data_len < at + sizeof(sum))
        return;
    sum = m->ol_flags & RTE_MBUF_F_TX_IPV6 ? rte_ipv6_phdr_cksum(ip, m->ol_flags)
                                           : rte_ipv4_phdr_cksum(ip, m->ol_flags);
    memcpy(rte_pktmbuf_mtod_offset(m, void *, at), &sum, sizeof(sum));
}

/* How many of n frames, from the first on, the driver would send. */
static unsigned prepared(const struct ethdev_dev *dev, uint16_t txq, struct rte_mbuf **pkts,
                         unsigned n)
{
    bool any = false;

    if (!dev->prepare)
        return n;
    for (unsigned i = 0; i < n; i++) {
        any |= (pkts[i]->ol_flags & NEEDS_PREPARE) != 0;
        pseudo_anew(pkts[i]);
    }
    return any ? rte_eth_tx_prepare(dev->id, txq, pkts, (uint16_t)n) : n;
}

/* Gives frames to a queue of the device; those it never would take are freed and counted. Returns
 * how many are no longer the caller's. */
static unsigned queue_send(const struct ethdev_dev *dev, struct port_queue_stats *stats,
                           uint16_t txq, struct rte_mbuf **pkts, unsigned n)
{
    unsigned done = 0;

    while (done < n) {
        unsigned ok = prepared(dev, txq, pkts + done, n - done), took = 0;

        if (ok > 0)
            took = rte_eth_tx_burst(dev->id, txq, pkts + done, (uint16_t)ok);
        done += took;
        if (took < ok)
            break;
        if (done < n) {
            rte_pktmbuf_free(pkts[done++]);
            count_add(&stats->bad, 1);
        }
    }
    return done;
}

/* ---- sharing of send queues ---- */

int ethdev_shared_make(struct port *port)
{
    struct ethdev_dev *dev = port->dev;
    char name[RTE_RING_NAMESIZE];

    /* Without one of its own: until it polls the receive queue that goes with one. */
    for (unsigned r = 0; r < REACTOR_MAX; r++)
        dev->self[r].txq =
            dev->txqs >= dev->reactors && r < dev->txqs ? (uint16_t)r : ETHDEV_NO_QUEUE;
    if (dev->txqs >= dev->reactors)
        return 0;
    dev->nshared = min(dev->txqs, dev->rxqs);
    dev->shared = port_zalloc(dev->nshared * sizeof(dev->shared[0]));
    if (!dev->shared)
        return -ENOMEM;
    for (unsigned r = 0; r < dev->reactors; r++) {
        struct rte_ring **ring = &dev->shared[r % dev->nshared].from[r];

        snprintf(name, sizeof(name), "port%u_tx%u", port->index, r);
        *ring = rte_ring_create(name, SHARED_RING, port->socket < 0 ? SOCKET_ID_ANY : port->socket,
                                RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (!*ring)
            return -ENOMEM;
    }
    return 0;
}

void ethdev_shared_clear(struct port *port)
{
    struct ethdev_dev *dev = port->dev;
    void *m;

    for (unsigned q = 0; q < dev->nshared && dev->shared; q++) {
        struct ethdev_shared *s = &dev->shared[q];

        rte_pktmbuf_free_bulk(s->wait, s->waits);
        s->waits = 0;
        for (unsigned r = 0; r < REACTOR_MAX; r++) {
            while (s->from[r] && rte_ring_sc_dequeue(s->from[r], &m) == 0)
                rte_pktmbuf_free(m);
        }
    }
}

void ethdev_shared_free(struct port *port)
{
    struct ethdev_dev *dev = port->dev;

    ethdev_shared_clear(port);
    for (unsigned q = 0; q < dev->nshared && dev->shared; q++) {
        for (unsigned r = 0; r < REACTOR_MAX; r++)
            rte_ring_free(dev->shared[q].from[r]);
    }
    free(dev->shared);
    dev->shared = NULL;
}

/* Sends what other reactors have put into the rings of a queue. */
static void shared_send(struct port *port, struct port_queue_stats *stats, unsigned queue)
{
    struct ethdev_dev *dev = port->dev;
    struct ethdev_shared *s = &dev->shared[queue];
    unsigned took;

    for (unsigned r = 0; r < dev->reactors; r++) {
        if (s->from[r] && s->waits < PORT_BURST)
            s->waits += rte_ring_sc_dequeue_burst(s->from[r], (void **)&s->wait[s->waits],
                                                  PORT_BURST - s->waits, NULL);
    }
    if (s->waits == 0)
        return;
    took = queue_send(dev, stats, (uint16_t)queue, s->wait, s->waits);
    s->waits -= took;
    memmove(s->wait, s->wait + took, s->waits * sizeof(s->wait[0]));
}

/* The reactor that polls a receive queue also uses the matching send queue. */
static void shared_turn(struct port *port, unsigned queue)
{
    struct ethdev_dev *dev = port->dev;
    const struct reactor *self = reactor_self();
    unsigned me = self ? reactor_index(self) : queue;

    if (queue >= dev->nshared || me >= dev->reactors)
        return;
    if (unlikely(dev->self[me].txq == ETHDEV_NO_QUEUE))
        dev->self[me].txq = (uint16_t)queue;
    shared_send(port, &port->tx_stats[me], queue);
}

/* ---- the data path ---- */

static bool gone(const struct ethdev_dev *dev)
{
    return unlikely(__atomic_load_n(&dev->gone, __ATOMIC_ACQUIRE) != 0);
}

unsigned ethdev_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct ethdev_dev *dev = port->dev;

    if (gone(dev) || queue >= dev->rxqs)
        return 0;
    if (dev->shared)
        shared_turn(port, queue);
    return rte_eth_rx_burst(dev->id, (uint16_t)queue, pkts, (uint16_t)n);
}

unsigned ethdev_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct ethdev_dev *dev = port->dev;
    uint16_t txq = dev->self[queue].txq;

    if (gone(dev)) {
        rte_pktmbuf_free_bulk(pkts, n);
        count_add(&port->tx_stats[queue].bad, n);
        return n;
    }
    if (txq != ETHDEV_NO_QUEUE)
        return queue_send(dev, &port->tx_stats[queue], txq, pkts, n);
    return rte_ring_sp_enqueue_burst(dev->shared[queue % dev->nshared].from[queue], (void **)pkts,
                                     n, NULL);
}
