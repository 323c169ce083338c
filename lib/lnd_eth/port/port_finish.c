/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A port's software work: checksums and VLAN tags of sent frames, one buffer for a chain where
 * the device needs it, and the normal form of received frames.
 */
#include "lib/lnd_eth/port/port_internal.h"

#include <rte_branch_prediction.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

/* ---- sending ---- */

static inline void *at(struct rte_mbuf *m, uint32_t off)
{
    return rte_pktmbuf_mtod_offset(m, void *, off);
}

/* RFC 791 §3.1. */
static enum port_finish ip_sum(struct rte_mbuf *m)
{
    struct rte_ipv4_hdr *ip = at(m, m->l2_len);

    if (m->l3_len < sizeof(*ip) || m->data_len < (unsigned)(m->l2_len + m->l3_len))
        return PORT_BAD;
    ip->hdr_checksum = 0;
    ip->hdr_checksum = (uint16_t)~csum_partial(ip, m->l3_len, 0);
    m->ol_flags &= ~RTE_MBUF_F_TX_IP_CKSUM;
    return PORT_READY;
}

/* The sum of the pseudo header is in place. RFC 9293 §3.1, RFC 768 (which sends 0 as ones). */
static enum port_finish l4_sum(struct port_queue_stats *stats, struct rte_mbuf *m)
{
    bool udp = (m->ol_flags & RTE_MBUF_F_TX_L4_MASK) == RTE_MBUF_F_TX_UDP_CKSUM;
    uint32_t l4 = m->l2_len + m->l3_len;
    uint32_t field =
        udp ? offsetof(struct rte_udp_hdr, dgram_cksum) : offsetof(struct rte_tcp_hdr, cksum);
    uint16_t sum;

    if (m->ol_flags & RTE_MBUF_F_TX_TCP_SEG || m->data_len < l4 + field + sizeof(sum))
        return PORT_BAD;
    sum = (uint16_t)~csum_chain(m, l4, m->pkt_len - l4, 0);
    if (udp && sum == 0)
        sum = 0xffff;
    memcpy(at(m, l4 + field), &sum, sizeof(sum));
    m->ol_flags &= ~RTE_MBUF_F_TX_L4_MASK;
    count_add(&stats->csums, 1);
    return PORT_READY;
}

/* IEEE 802.1Q: the tag stands behind the two addresses. */
static enum port_finish vlan_put(struct rte_mbuf *m)
{
    struct rte_vlan_hdr tag = {.vlan_tci = rte_cpu_to_be_16(m->vlan_tci)};
    struct rte_ether_hdr *eth;

    if (m->data_len < sizeof(*eth) || !rte_pktmbuf_prepend(m, sizeof(tag)))
        return PORT_BAD;
    memmove(at(m, 0), at(m, sizeof(tag)), 2 * sizeof(struct rte_ether_addr));
    eth = at(m, 0);
    eth->ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN);
    memcpy(at(m, sizeof(*eth)), &tag.vlan_tci, sizeof(tag.vlan_tci));
    m->l2_len += sizeof(tag);
    m->ol_flags &= ~RTE_MBUF_F_TX_VLAN;
    return PORT_READY;
}

/* For a device that wants each frame in one buffer, or in few. */
static enum port_finish linearise(struct port *port, struct port_queue_stats *stats,
                                  struct rte_mbuf **pkt)
{
    struct rte_mbuf *from = *pkt, *to;

    if (!port->tx_linear ||
        from->pkt_len + RTE_PKTMBUF_HEADROOM > rte_pktmbuf_data_room_size(port->tx_linear))
        return PORT_BAD;
    to = rte_pktmbuf_alloc(port->tx_linear);
    if (!to) {
        count_add(&stats->no_buffer, 1);
        return PORT_LATER;
    }
    for (struct rte_mbuf *s = from; s; s = s->next) {
        port_copy(stats, at(to, to->data_len), rte_pktmbuf_mtod(s, void *), s->data_len);
        to->data_len += s->data_len;
    }
    count_add(&stats->copies, 1);
    to->pkt_len = to->data_len;
    to->ol_flags = from->ol_flags & ~(RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL);
    to->tx_offload = from->tx_offload;
    to->vlan_tci = from->vlan_tci;
    rte_pktmbuf_free(from);
    *pkt = to;
    return PORT_READY;
}

static bool may_be_cut(const struct port *port, const struct rte_mbuf *m)
{
    return m->ol_flags & RTE_MBUF_F_TX_TCP_SEG && m->nb_segs <= port->tso_segs;
}

enum port_finish port_finish_tx(struct port *port, struct port_queue_stats *stats,
                                struct rte_mbuf **pkt)
{
    enum port_finish rc = PORT_READY;
    struct rte_mbuf *m = *pkt;

    if (m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM && port->soft & PORT_SOFT_IP_CSUM)
        rc = ip_sum(m);
    if (rc == PORT_READY && m->ol_flags & RTE_MBUF_F_TX_L4_MASK && port->soft & PORT_SOFT_L4_CSUM)
        rc = l4_sum(stats, m);
    if (rc == PORT_READY && m->ol_flags & RTE_MBUF_F_TX_VLAN && port->soft & PORT_SOFT_VLAN_TX)
        rc = vlan_put(m);
    if (rc == PORT_READY && unlikely(m->nb_segs > port->tx_segs) && !may_be_cut(port, m))
        rc = linearise(port, stats, pkt);
    return rc;
}

/* ---- receiving ---- */

/* Short frames come from the small pool, long ones are chains of large buffers; when one kind is
 * used up the other serves. */
static struct rte_mbuf *buffer_for(struct port *port, uint32_t len)
{
    bool small = len <= PORT_ROOM_SMALL - RTE_PKTMBUF_HEADROOM;
    struct rte_mbuf *m = rte_pktmbuf_alloc(small ? port->rx_small : port->rx_large);

    if (unlikely(!m) && port->rx_small != port->rx_large)
        m = rte_pktmbuf_alloc(small ? port->rx_large : port->rx_small);
    return m;
}

struct rte_mbuf *port_buffers(struct port *port, struct port_queue_stats *stats, uint32_t len)
{
    struct rte_mbuf *head = NULL, **end = &head, *m;
    uint32_t left = len;
    uint16_t segs = 0;

    do {
        m = buffer_for(port, left);
        if (unlikely(!m)) {
            rte_pktmbuf_free(head);
            count_add(&stats->no_buffer, 1);
            return NULL;
        }
        m->data_len = (uint16_t)min(left, (uint32_t)rte_pktmbuf_tailroom(m));
        left -= m->data_len;
        segs++;
        *end = m;
        end = &m->next;
    } while (left > 0);
    head->pkt_len = len;
    head->nb_segs = segs;
    return head;
}

struct rte_mbuf *port_copy_in(struct port *port, struct port_queue_stats *stats, const void *data,
                              uint32_t len)
{
    struct rte_mbuf *head = port_buffers(port, stats, len);
    const uint8_t *from = data;

    for (struct rte_mbuf *m = head; m; from += m->data_len, m = m->next)
        port_copy(stats, rte_pktmbuf_mtod(m, void *), from, m->data_len);
    if (likely(head != NULL))
        count_add(&stats->copies, 1);
    return head;
}

static bool ours_alone(const struct port *port, const struct rte_mbuf *m)
{
    for (; m; m = m->next) {
        if (!RTE_MBUF_DIRECT(m) || (m->pool != port->rx_small && m->pool != port->rx_large) ||
            rte_mbuf_refcnt_read(m) != 1)
            return false;
    }
    return true;
}

/* A frame in buffers of somebody else: those above expect ours. */
static struct rte_mbuf *take_in(struct port *port, struct port_queue_stats *stats,
                                struct rte_mbuf *from)
{
    struct rte_mbuf *head = NULL, **end = &head, *to = NULL;
    uint32_t left = from->pkt_len, part;

    for (const struct rte_mbuf *s = from; s; s = s->next) {
        for (uint32_t done = 0; done < s->data_len; done += part) {
            if (!to || rte_pktmbuf_tailroom(to) == 0) {
                to = buffer_for(port, left);
                if (!to) {
                    count_add(&stats->no_buffer, 1);
                    goto fail;
                }
                *end = to;
                end = &to->next;
                head->nb_segs += to != head;
            }
            part = rte_pktmbuf_tailroom(to);
            part = min(s->data_len - done, part);
            port_copy(stats, at(to, to->data_len), rte_pktmbuf_mtod_offset(s, const void *, done),
                      part);
            to->data_len += (uint16_t)part;
            head->pkt_len += part;
            left -= min(left, part);
        }
    }
    if (!head) {
        count_add(&stats->bad, 1);
        goto fail;
    }
    head->ol_flags = from->ol_flags & ~(RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL);
    head->vlan_tci = from->vlan_tci;
    head->tso_segsz = from->tso_segsz;
    count_add(&stats->copies, 1);
    rte_pktmbuf_free(from);
    return head;
fail:
    rte_pktmbuf_free(head);
    rte_pktmbuf_free(from);
    return NULL;
}

/* Makes the first PKT_HEADERS bytes contiguous. False: the chain is none. */
static bool pull(struct port_queue_stats *stats, struct rte_mbuf *m)
{
    uint32_t want = min(m->pkt_len, (uint32_t)PKT_HEADERS);

    while (m->data_len < want) {
        struct rte_mbuf *next = m->next;
        uint32_t part;

        if (!next || rte_pktmbuf_tailroom(m) == 0)
            return false;
        part = min(want - m->data_len, (uint32_t)next->data_len);
        part = min(part, (uint32_t)rte_pktmbuf_tailroom(m));
        port_copy(stats, at(m, m->data_len), at(next, 0), part);
        m->data_len += (uint16_t)part;
        next->data_off += (uint16_t)part;
        next->data_len -= (uint16_t)part;
        if (next->data_len == 0) {
            m->next = next->next;
            m->nb_segs--;
            next->next = NULL;
            rte_pktmbuf_free_seg(next);
        }
    }
    return true;
}

static void vlan_take(struct rte_mbuf *m)
{
    struct rte_ether_hdr *eth = at(m, 0);
    uint16_t tci;

    if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED ||
        m->data_len < sizeof(*eth) + sizeof(struct rte_vlan_hdr) ||
        eth->ether_type != rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN))
        return;
    memcpy(&tci, at(m, sizeof(*eth)), sizeof(tci));
    m->vlan_tci = rte_be_to_cpu_16(tci);
    m->ol_flags |= RTE_MBUF_F_RX_VLAN | RTE_MBUF_F_RX_VLAN_STRIPPED;
    memmove(at(m, sizeof(struct rte_vlan_hdr)), eth, 2 * sizeof(struct rte_ether_addr));
    rte_pktmbuf_adj(m, sizeof(struct rte_vlan_hdr));
}

unsigned port_finish_rx(struct port *port, struct port_queue_stats *stats, struct rte_mbuf **pkts,
                        unsigned n)
{
    unsigned left = 0;

    for (unsigned i = 0; i < n; i++) {
        struct rte_mbuf *m = pkts[i];

        if (port->soft & PORT_SOFT_FOREIGN && !ours_alone(port, m)) {
            m = take_in(port, stats, m);
            if (!m)
                continue;
        }
        if (port->soft & PORT_SOFT_PULL && m->nb_segs > 1 && !pull(stats, m)) {
            rte_pktmbuf_free(m);
            count_add(&stats->bad, 1);
            continue;
        }
        if (port->soft & PORT_SOFT_VLAN_RX)
            vlan_take(m);
        pkts[left++] = m;
    }
    return left;
}
