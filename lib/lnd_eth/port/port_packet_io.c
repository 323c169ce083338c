/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in and out of AF_PACKET sockets. See port_packet.h. */
#include "lib/lnd_eth/port/port_packet.h"

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/net_tstamp.h>

#include <rte_branch_prediction.h>
#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#define LOOKS_PER_COUNT 64u /* looks at errors for one at the kernel's count of lost frames */
#define READ_MAX        (65535u + PORT_FRAME_MORE) /* of a frame in a socket */
#define READ_SEGS       (READ_MAX / (PORT_ROOM_SMALL - RTE_PKTMBUF_HEADROOM) + 1)
#define READ_ERRORS     4u /* of a socket, in a row, before frames are given up */

/* ---- receiving ---- */

static struct tpacket2_hdr *slot_at(const struct packet_ring *ring, uint32_t i)
{
    return (struct tpacket2_hdr *)(void *)(ring->map +
                                           (size_t)(i / ring->slots_per_block) * ring->block_size +
                                           (size_t)(i % ring->slots_per_block) * ring->slot_size);
}

/* The slot that is next to be read; NULL: the kernel still has it. */
static struct tpacket2_hdr *ring_peek(const struct packet_ring *ring)
{
    struct tpacket2_hdr *slot = slot_at(ring, ring->head);

    return __atomic_load_n(&slot->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER ? slot : NULL;
}

static void ring_advance(struct packet_ring *ring)
{
    if (++ring->head == ring->slots)
        ring->head = 0;
}

static void slot_give_back(struct tpacket2_hdr *slot)
{
    __atomic_store_n(&slot->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
}

static void ring_pop(struct packet_ring *ring, struct tpacket2_hdr *slot)
{
    slot_give_back(slot);
    ring_advance(ring);
}

static bool before(const struct tpacket2_hdr *a, const struct tpacket2_hdr *b)
{
    return a->tp_sec != b->tp_sec ? (int32_t)(a->tp_sec - b->tp_sec) < 0 : a->tp_nsec < b->tp_nsec;
}

/* The oldest of the rings' next frames. Frames of one flow are written one after the other, so one
 * that came before a frame seen here is there when looked for after that: until nothing older is.
 */
static struct tpacket2_hdr *rx_next(struct packet_rx *rx, struct packet_ring **from)
{
    struct tpacket2_hdr *oldest = NULL, *seen;

    do {
        seen = oldest;
        oldest = NULL;
        for (int kind = 0; kind < PACKET_KINDS; kind++) {
            struct tpacket2_hdr *slot = ring_peek(&rx->ring[kind]);

            if (slot && (!oldest || before(slot, oldest))) {
                oldest = slot;
                *from = &rx->ring[kind];
            }
        }
    } while (oldest != seen);
    return oldest;
}

static void flags_set(struct rte_mbuf *m, const struct tpacket2_hdr *slot,
                      const struct virtio_net_hdr *vh)
{
    uint64_t flags = 0;

    if (vh->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE; /* it never left this machine's memory */
    else if (vh->flags & VIRTIO_NET_HDR_F_DATA_VALID)
        flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
    if ((vh->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_NONE) {
        flags |= RTE_MBUF_F_RX_LRO;
        m->tso_segsz = vh->gso_size;
    }
    if (slot->tp_status & TP_STATUS_VLAN_VALID) {
        flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
        m->vlan_tci = slot->tp_vlan_tci;
    }
    m->ol_flags = flags;
}

static const struct sockaddr_ll *slot_address(const struct tpacket2_hdr *slot)
{
    return (const void *)((const uint8_t *)slot + TPACKET_ALIGN(sizeof(struct tpacket2_hdr)));
}

/* A slot in which it says that it has a frame's beginning: false: none of it, or with a tag that is
 * not 802.1Q's. */
static bool slot_ok(const struct packet_ring *ring, const struct tpacket2_hdr *slot)
{
    return slot->tp_snaplen >= RTE_ETHER_HDR_LEN && slot->tp_snaplen <= slot->tp_len &&
           slot->tp_mac >= TPACKET2_HDRLEN + sizeof(struct virtio_net_hdr) &&
           (size_t)slot->tp_mac + slot->tp_snaplen <= ring->slot_size &&
           !(slot->tp_status & TP_STATUS_VLAN_TPID_VALID && slot->tp_vlan_tpid != ETH_P_8021Q);
}

/* NULL: not for us, or it cannot be received (counted). */
static struct rte_mbuf *frame_in(struct port *port, struct port_queue_stats *stats,
                                 const struct packet_ring *ring, const struct tpacket2_hdr *slot)
{
    const uint8_t *data = (const uint8_t *)slot + slot->tp_mac;
    struct virtio_net_hdr vh;
    struct rte_mbuf *m;

    if (slot_address(slot)->sll_pkttype == PACKET_OUTGOING)
        return NULL;
    if (ring->handed) {
        count_add(&stats->no_buffer, 1); /* the socket had no room for it */
        return NULL;
    }
    if (!slot_ok(ring, slot) || slot->tp_snaplen != slot->tp_len) {
        count_add(&stats->bad, 1);
        return NULL;
    }
    memcpy(&vh, data - sizeof(vh), sizeof(vh));
    m = port_copy_in(port, stats, data, slot->tp_snaplen);
    if (m)
        flags_set(m, slot, &vh);
    return m;
}

/* ---- frames that wait in the socket ---- */

/* NULL: the frame is to be thrown away (counted). */
static struct rte_mbuf *frame_prepare(struct port *port, struct port_queue_stats *stats,
                                      const struct packet_ring *ring, struct packet_reads *r,
                                      const struct tpacket2_hdr *slot)
{
    struct rte_mbuf *m;

    if (slot_address(slot)->sll_pkttype == PACKET_OUTGOING)
        return NULL;
    if (!slot_ok(ring, slot) || slot->tp_len > READ_MAX) {
        count_add(&stats->bad, 1);
        return NULL;
    }
    m = port_buffers(port, stats, slot->tp_len);
    for (struct rte_mbuf *s = m; s; s = s->next)
        r->iov[r->iovs++] = (struct iovec){rte_pktmbuf_mtod(s, void *), s->data_len};
    return m;
}

/* False: no more now. */
static bool read_add(struct port *port, struct port_queue_stats *stats,
                     const struct packet_ring *ring, struct packet_reads *r,
                     struct tpacket2_hdr *slot, unsigned at)
{
    struct msghdr *msg;

    if (r->n == PACKET_READS || r->iovs + 1 + READ_SEGS > PACKET_IOVS)
        return false;
    msg = &r->msg[r->n].msg_hdr;
    *msg = (struct msghdr){.msg_iov = &r->iov[r->iovs]};
    r->iov[r->iovs++] = (struct iovec){&r->head[r->n], sizeof(r->head[r->n])};
    r->m[r->n] = frame_prepare(port, stats, ring, r, slot);
    msg->msg_iovlen = (size_t)(&r->iov[r->iovs] - msg->msg_iov);
    r->slot[r->n] = slot;
    r->at[r->n++] = at;
    return true;
}

/* Each slot has its frame in the socket, in their order. An error of the socket's is told once. */
static unsigned reads_make(int fd, struct packet_reads *r)
{
    unsigned done = 0, errors = 0;

    while (done < r->n) {
        int rc = recvmmsg(fd, r->msg + done, r->n - done, MSG_DONTWAIT, NULL);

        if (rc > 0)
            done += (unsigned)rc;
        else if (errno == EAGAIN || ++errors == READ_ERRORS)
            break;
    }
    return done;
}

/* Whether what was read is the frame that its slot begins. */
static bool read_fits(const struct packet_reads *r, unsigned i)
{
    const struct tpacket2_hdr *slot = r->slot[i];
    const struct rte_mbuf *m = r->m[i];
    uint32_t known = min(slot->tp_snaplen, (uint32_t)m->data_len);

    return r->msg[i].msg_len == sizeof(r->head[i]) + m->pkt_len &&
           !(r->msg[i].msg_hdr.msg_flags & MSG_TRUNC) &&
           memcmp(rte_pktmbuf_mtod(m, void *), (const uint8_t *)slot + slot->tp_mac, known) == 0;
}

static void socket_empty(int fd, unsigned most)
{
    struct virtio_net_hdr head; /* less is not read; the rest of the frame goes with it */

    for (unsigned i = 0; i < most; i++)
        if (recv(fd, &head, sizeof(head), MSG_DONTWAIT) < 0 && errno == EAGAIN)
            return;
}

/* Reads what was added, into its places among the first n of pkts. Returns how many those are
 * without what could not be had. */
static unsigned reads_finish(struct packet_ring *ring, struct packet_reads *r,
                             struct port_queue_stats *stats, struct rte_mbuf **pkts, unsigned n)
{
    unsigned done = reads_make(ring->fd, r), left = 0;
    bool astray = done < r->n;

    for (unsigned i = 0; i < r->n; i++) {
        struct rte_mbuf *m = r->m[i];

        if (m && (i >= done || !read_fits(r, i))) {
            rte_pktmbuf_free(m);
            count_add(&stats->bad, 1);
            astray = true;
            m = NULL;
        } else if (m) {
            flags_set(m, r->slot[i], &r->head[i]);
            count_add(&stats->copies, 1);
            count_add(&stats->copied_bytes, m->pkt_len);
        }
        pkts[r->at[i]] = m;
        slot_give_back(r->slot[i]);
    }
    /* Slots and frames have lost each other, which is not to be: those on their way are lost too.
     */
    if (unlikely(astray))
        socket_empty(ring->fd, ring->slots);
    r->n = 0;
    r->iovs = 0;
    for (unsigned i = 0; i < n; i++)
        if (pkts[i])
            pkts[left++] = pkts[i];
    return left;
}

/* An interface that went down leaves an error with its socket, which then looks readable for ever:
 * it is taken, the socket goes on by itself when the interface is up again. */
static void rx_look(struct port *port, struct packet_rx *rx, struct port_queue_stats *stats)
{
    bool count = rx->looks++ % LOOKS_PER_COUNT == 0;

    for (int kind = 0; kind < PACKET_KINDS; kind++) {
        struct tpacket_stats st;
        socklen_t len = sizeof(int);
        int error;

        getsockopt(rx->ring[kind].fd, SOL_SOCKET, SO_ERROR, &error, &len);
        len = sizeof(st);
        if (count && getsockopt(rx->ring[kind].fd, SOL_PACKET, PACKET_STATISTICS, &st, &len) == 0)
            count_add(&stats->no_buffer, st.tp_drops);
    }
}

unsigned packet_rx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct packet_dev *dev = port->dev;
    struct packet_rx *rx = dev->rx[queue];
    struct port_queue_stats *stats = &port->rx_stats[queue];
    uint64_t now = rte_rdtsc();
    unsigned got = 0;

    while (got < n) {
        struct packet_ring *ring = NULL;
        struct tpacket2_hdr *slot = rx_next(rx, &ring);
        struct rte_mbuf *m;

        if (!slot)
            break;
        if (ring->handed && slot->tp_status & TP_STATUS_COPY) {
            if (!read_add(port, stats, ring, &rx->reads, slot, got))
                break;
            ring_advance(ring);
            got++;
            continue;
        }
        m = frame_in(port, stats, ring, slot);
        ring_pop(ring, slot);
        if (m)
            pkts[got++] = m;
    }
    if (rx->reads.n > 0)
        got = reads_finish(&rx->ring[PACKET_LONG], &rx->reads, stats, pkts, got);
    if (unlikely(now - rx->look_tsc > dev->look_cycles)) {
        rx->look_tsc = now;
        rx_look(port, rx, stats);
    }
    return got;
}

void packet_rx_drain(struct packet_rx *rx)
{
    for (int kind = 0; kind < PACKET_KINDS; kind++) {
        struct packet_ring *ring = &rx->ring[kind];
        struct tpacket2_hdr *slot;

        for (uint32_t i = 0; i < ring->slots && (slot = ring_peek(ring)); i++)
            ring_pop(ring, slot);
        if (ring->handed)
            socket_empty(ring->fd, ring->slots);
    }
}

/* ---- sending ---- */

/* The kernel wants the length in the pseudo header's sum also of what it is to cut. From the IP
 * header alone, so that it may be done again for a frame that was not taken. */
static void pseudo_sum(struct rte_mbuf *m, uint32_t l4, uint32_t field)
{
    void *ip = rte_pktmbuf_mtod_offset(m, void *, m->l2_len);
    uint16_t sum =
        m->ol_flags & RTE_MBUF_F_TX_IPV6 ? rte_ipv6_phdr_cksum(ip, 0) : rte_ipv4_phdr_cksum(ip, 0);

    memcpy(rte_pktmbuf_mtod_offset(m, void *, l4 + field), &sum, sizeof(sum));
}

/* False: the frame says nonsense about itself. */
static bool head_make(struct virtio_net_hdr *vh, struct rte_mbuf *m)
{
    uint64_t l4_flags = m->ol_flags & RTE_MBUF_F_TX_L4_MASK;
    bool cut = m->ol_flags & RTE_MBUF_F_TX_TCP_SEG;
    uint32_t l4 = m->l2_len + m->l3_len, field, head;

    memset(vh, 0, sizeof(*vh));
    if (l4_flags == 0 && !cut)
        return m->data_len >= RTE_ETHER_HDR_LEN;
    field = l4_flags == RTE_MBUF_F_TX_UDP_CKSUM ? offsetof(struct rte_udp_hdr, dgram_cksum)
                                                : offsetof(struct rte_tcp_hdr, cksum);
    head = l4 + (cut ? m->l4_len : field + (uint32_t)sizeof(uint16_t));
    if (m->data_len < head || l4 < RTE_ETHER_HDR_LEN + sizeof(struct rte_ipv4_hdr))
        return false;
    vh->flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
    vh->csum_start = (uint16_t)l4;
    vh->csum_offset = (uint16_t)field;
    vh->hdr_len = (uint16_t)head;
    if (!cut)
        return true;
    if (m->tso_segsz == 0 || m->l4_len < sizeof(struct rte_tcp_hdr))
        return false;
    vh->gso_type =
        m->ol_flags & RTE_MBUF_F_TX_IPV6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
    vh->gso_size = m->tso_segsz;
    pseudo_sum(m, l4, field);
    return true;
}

/* Describes frames for sendmmsg() until a frame is bad (*bad) or no more fit; returns how many. */
static unsigned batch_make(struct packet_tx *tx, struct rte_mbuf **pkts, unsigned n, bool *bad)
{
    unsigned used = 0, k;

    *bad = false;
    for (k = 0; k < n && k < PORT_BURST; k++) {
        struct msghdr *msg = &tx->msg[k].msg_hdr;

        if (used + pkts[k]->nb_segs + 1 > PACKET_IOVS)
            break;
        if (!head_make(&tx->head[k], pkts[k])) {
            *bad = true;
            break;
        }
        msg->msg_iov = &tx->iov[used];
        tx->iov[used++] = (struct iovec){&tx->head[k], sizeof(tx->head[k])};
        for (struct rte_mbuf *m = pkts[k]; m; m = m->next)
            tx->iov[used++] = (struct iovec){rte_pktmbuf_mtod(m, void *), m->data_len};
        msg->msg_iovlen = (size_t)(&tx->iov[used] - msg->msg_iov);
    }
    return k;
}

/* The kernel has its own copy when a call returns. *refused: it will never take the next one. */
static unsigned batch_send(struct packet_tx *tx, unsigned n, bool *refused)
{
    int rc;

    *refused = false;
    do {
        rc = sendmmsg(tx->fd, tx->msg, n, MSG_DONTWAIT);
    } while (rc < 0 && errno == EINTR);
    if (rc >= 0)
        return (unsigned)rc;
    *refused = errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM;
    return 0;
}

static void sent(struct port_queue_stats *stats, struct rte_mbuf **pkts, unsigned n)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < n; i++)
        bytes += pkts[i]->pkt_len;
    count_add(&stats->copies, n);
    count_add(&stats->copied_bytes, bytes);
    rte_pktmbuf_free_bulk(pkts, n);
}

unsigned packet_tx(struct port *port, unsigned queue, struct rte_mbuf **pkts, unsigned n)
{
    struct packet_dev *dev = port->dev;
    struct packet_tx *tx = dev->tx[queue];
    struct port_queue_stats *stats = &port->tx_stats[queue];
    unsigned done = 0;

    while (done < n) {
        bool bad, refused = false;
        unsigned k = batch_make(tx, pkts + done, n - done, &bad), out;

        out = k > 0 ? batch_send(tx, k, &refused) : 0;
        sent(stats, pkts + done, out);
        done += out;
        if (refused || (bad && out == k)) {
            rte_pktmbuf_free(pkts[done++]);
            count_add(&stats->bad, 1);
        } else if (out == 0) {
            break;
        }
    }
    return done;
}
