/* SPDX-License-Identifier: BSD-3-Clause */
/* A port whose device is the test: what the stack sends is handed to the world, what the world has
 * queued is received. */
#include "lib/base/err.h"
#include "test/tcp/world.h"

#include "lib/base/minmax.h"
#include "lib/reactor/mem_mbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (RTE_PKTMBUF_HEADROOM + 2048)

static struct world *world; /* one per process, as EAL */

void fake_port_world(struct world *w)
{
    world = w;
}

static int fake_open(struct port *port, const struct port_opts *opts, struct err *err)
{
    unsigned buffers = world->opts.buffers != 0 ? world->opts.buffers : 2048;
    int rc = mem_mbufs_create("fake_rx", buffers, PKT_PRIV, ROOM, -1, &port->rx_small, err);

    if (rc < 0)
        return rc;
    port->dev = world;
    port->rx_large = port->rx_small;
    port->caps = PORT_TX_CHAINS;
    port->soft = PORT_SOFT_IP_CSUM | PORT_SOFT_L4_CSUM;
    if (world->opts.tso) {
        port->soft = 0;
        port->caps |= PORT_TX_TSO | PORT_TX_CSUM;
        port->tso_max = 65535;
    }
    port->mtu = opts->mtu != 0 ? opts->mtu : 1500;
    port->rx_queues = 1;
    port->tx_queues = opts->reactors;
    memcpy(port->mac.addr_bytes, world_mac, 6);
    return 0;
}

static int fake_start(struct port *port, struct err *err)
{
    (void)port, (void)err;
    return 0;
}

static void fake_stop(struct port *port)
{
    (void)port;
}

static void fake_close(struct port *port)
{
    mem_mbufs_destroy(port->rx_small);
    port->rx_small = port->rx_large = NULL;
}

static struct rte_mbuf *frame_mbuf(struct port *port, const struct world_frame *f)
{
    struct rte_mbuf *first = NULL, **link = &first;
    size_t at = 0;

    while (at < f->len) {
        struct rte_mbuf *m = rte_pktmbuf_alloc(port->rx_small);
        size_t n;

        if (!m) {
            rte_pktmbuf_free(first);
            return NULL;
        }
        n = min(f->len - at, (size_t)rte_pktmbuf_tailroom(m));
        memcpy(rte_pktmbuf_append(m, (uint16_t)n), f->data + at, n);
        at += n;
        *link = m;
        link = &m->next;
        if (m != first) {
            first->nb_segs++;
            first->pkt_len += (uint32_t)n;
        }
    }
    return first;
}

static unsigned fake_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct world *w = port->dev;
    unsigned got = 0;

    (void)queue;
    while (got < n && w->in) {
        struct world_frame *f = w->in;

        w->in = f->next;
        if (!w->in)
            w->in_tail = &w->in;
        pkts[got] = frame_mbuf(port, f);
        free(f);
        if (!pkts[got])
            continue; /* as a device without buffers */
        w->frames_in++;
        got++;
    }
    return got;
}

/* What a device with PORT_TX_CSUM does; the pseudo header's sum is in place. */
static void checksum_as_device(const struct rte_mbuf *m, uint8_t *frame, size_t len)
{
    size_t l4 = m->l2_len + m->l3_len;

    if ((m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM) != 0) {
        uint16_t sum = frame_fold(frame_sum(frame + m->l2_len, m->l3_len, 0));

        frame[m->l2_len + 10] = (uint8_t)(sum >> 8);
        frame[m->l2_len + 11] = (uint8_t)sum;
    }
    if ((m->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_TCP_CKSUM) {
        uint16_t sum = frame_fold(frame_sum(frame + l4, len - l4, 0));

        frame[l4 + 16] = (uint8_t)(sum >> 8);
        frame[l4 + 17] = (uint8_t)sum;
    }
}

static void put16(uint8_t *p, size_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

/* What a device with PORT_TX_TSO does: whole frames of at most tso_segsz bytes of payload. */
static void cut_as_device(struct world *w, const struct rte_mbuf *m, const uint8_t *frame,
                          size_t len)
{
    size_t l3 = m->l2_len, l4 = l3 + m->l3_len, hdr = l4 + m->l4_len;
    bool ip4 = (m->ol_flags & RTE_MBUF_F_TX_IPV4) != 0;
    uint32_t seq;

    memcpy(&seq, frame + l4 + 4, 4);
    seq = rte_be_to_cpu_32(seq);
    for (size_t at = hdr; at < len; at += m->tso_segsz) {
        size_t n = min(len - at, (size_t)m->tso_segsz);
        uint8_t *out = malloc(hdr + n), *h = out + l4;
        uint32_t now = rte_cpu_to_be_32(seq + (uint32_t)(at - hdr));
        uint16_t sum;

        memcpy(out, frame, hdr);
        memcpy(out + hdr, frame + at, n);
        memcpy(h + 4, &now, 4);
        if (at + n < len)
            h[13] &= (uint8_t) ~(FIN | PSH);
        if (at > hdr)
            h[13] &= (uint8_t)~CWR;
        /* The sum in place is of the pseudo header without the length. */
        sum = frame_fold(frame_sum(h, hdr - l4 + n, (uint32_t)(hdr - l4 + n)));
        h[16] = (uint8_t)(sum >> 8);
        h[17] = (uint8_t)sum;
        if (ip4) {
            put16(out + l3 + 2, hdr - l3 + n);
            put16(out + l3 + 10, 0);
            put16(out + l3 + 10, frame_fold(frame_sum(out + l3, m->l3_len, 0)));
        } else {
            put16(out + l3 + 4, hdr - l4 + n);
        }
        fake_port_sent(w, out, hdr + n);
        free(out);
    }
}

static void send_one(struct world *w, struct port *port, struct rte_mbuf *m)
{
    uint32_t len = m->pkt_len;
    uint8_t *frame = malloc(len + 1), *at = frame;

    for (const struct rte_mbuf *s = m; s; s = s->next) {
        memcpy(at, rte_pktmbuf_mtod(s, uint8_t *), s->data_len);
        at += s->data_len;
    }
    if ((size_t)(at - frame) != len)
        w->trouble = "a chain whose segments are not as long together as it says";
    if (len >= 34 && frame[12] == 8 && frame[13] == 0 && (frame[18] | frame[19]) != 0)
        w->trouble = "a packet whose ID tells how many were sent before";
    if ((m->ol_flags & RTE_MBUF_F_TX_TCP_SEG) != 0) {
        if (m->tso_segsz < 256)
            w->trouble = "a frame to be cut into pieces that some devices refuse as too small";
        if ((port->caps & PORT_TX_TSO) == 0 || m->tso_segsz == 0)
            w->trouble = "a frame to be cut by a device that cannot";
        else
            cut_as_device(w, m, frame, len);
    } else {
        if ((port->caps & PORT_TX_CSUM) != 0)
            checksum_as_device(m, frame, len);
        if (len > port->mtu + 14)
            w->trouble = "a frame above the MTU";
        fake_port_sent(w, frame, len);
    }
    free(frame);
    rte_pktmbuf_free(m);
}

static unsigned fake_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct world *w = port->dev;

    (void)queue;
    if (w->deaf)
        return 0;
    for (unsigned i = 0; i < n; i++)
        send_one(w, port, pkts[i]);
    return n;
}

static int fake_rx_fd(struct port *port, unsigned queue)
{
    (void)port, (void)queue;
    return -1;
}

static bool fake_link(struct port *port, unsigned *speed_mbit)
{
    (void)port;
    *speed_mbit = 10000;
    return true;
}

static unsigned fake_xstats(struct port *port, struct port_xstat *out, unsigned max)
{
    (void)port, (void)out, (void)max;
    return 0;
}

const struct port_ops fake_port = {
    .name = "fake",
    .open = fake_open,
    .start = fake_start,
    .stop = fake_stop,
    .close = fake_close,
    .rx = fake_rx,
    .tx = fake_tx,
    .rx_fd = fake_rx_fd,
    .link = fake_link,
    .xstats = fake_xstats,
};
