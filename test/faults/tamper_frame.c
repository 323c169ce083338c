/* SPDX-License-Identifier: BSD-3-Clause */
/* What fault injection does to frames: copying, cutting, checksums, bits. */
#include "test/faults/tamper_internal.h"

#include <netinet/in.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#define POOL_LOW_SHARE 8 /* at an eighth, nothing is held or copied any more */

/* ---- copies ---- */

bool tamper_pool_low(const struct rte_mempool *pool)
{
    return rte_mempool_avail_count(pool) < pool->size / POOL_LOW_SHARE;
}

static struct rte_mempool *copy_pool(const struct port *port)
{
    struct rte_mempool *pool = port->rx_large ? port->rx_large : port->tx_pool;

    return tamper_pool_low(pool) ? NULL : pool;
}

struct rte_mbuf *tamper_copy(struct port *port, const struct rte_mbuf *m)
{
    struct rte_mempool *pool = copy_pool(port);

    return pool ? rte_pktmbuf_copy(m, pool, 0, UINT32_MAX) : NULL;
}

/* ---- checksums ---- */

/* Of the whole packet with what is in the checksum's place: 0xffff when that is right. */
static uint16_t l4_sum(const struct rte_mbuf *m, const struct frame_view *v)
{
    uint8_t buf[sizeof(struct rte_ipv6_hdr)];
    const void *ip = rte_pktmbuf_read(
        m, v->l3, v->family == 4 ? sizeof(struct rte_ipv4_hdr) : sizeof(struct rte_ipv6_hdr), buf);
    uint16_t raw = 0;
    uint32_t sum;

    rte_raw_cksum_mbuf(m, v->l4_off, v->ip_end - v->l4_off, &raw);
    sum = raw + (v->family == 4 ? (uint32_t)rte_ipv4_phdr_cksum(ip, 0)
                                : (uint32_t)rte_ipv6_phdr_cksum(ip, 0));
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

/* Headers of our copies and of the normal form are contiguous. */
static uint16_t *l4_sum_field(struct rte_mbuf *m, const struct frame_view *v)
{
    unsigned off =
        v->l4_off + (v->proto == IPPROTO_TCP ? offsetof(struct rte_tcp_hdr, cksum)
                                             : offsetof(struct rte_udp_hdr, dgram_cksum));

    return off + 2u <= m->data_len ? rte_pktmbuf_mtod_offset(m, uint16_t *, off) : NULL;
}

static void put_ipv4_sum(struct rte_mbuf *m, const struct frame_view *v)
{
    struct rte_ipv4_hdr *ip = rte_pktmbuf_mtod_offset(m, struct rte_ipv4_hdr *, v->l3);

    ip->hdr_checksum = 0;
    ip->hdr_checksum = (uint16_t)~rte_raw_cksum(ip, (size_t)(v->l4_off - v->l3));
}

static bool put_l4_sum(struct rte_mbuf *m, const struct frame_view *v)
{
    uint16_t *field = v->l4 ? l4_sum_field(m, v) : NULL;
    uint16_t sum;

    if (!field)
        return false;
    *field = 0;
    sum = (uint16_t)~l4_sum(m, v);
    *field = sum == 0 && v->proto == IPPROTO_UDP ? 0xffff : sum;
    return true;
}

bool tamper_complete(struct rte_mbuf *m, const struct frame_view *v, bool out)
{
    uint64_t l4 = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    uint64_t ip = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    /* What is said to be intact may have no sum yet, or one of before it was put together. */
    bool wants_l4 =
        out ? (m->ol_flags & (RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_TCP_SEG)) != 0
            : v->l4 && (l4 == RTE_MBUF_F_RX_L4_CKSUM_NONE || l4 == RTE_MBUF_F_RX_L4_CKSUM_GOOD);
    bool wants_ip = v->family == 4 &&
                    (out ? (m->ol_flags & RTE_MBUF_F_TX_IP_CKSUM) != 0
                         : ip == RTE_MBUF_F_RX_IP_CKSUM_NONE || ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD);

    if (v->family == 0 || v->l4_off > m->data_len || (wants_l4 && !put_l4_sum(m, v)))
        return false;
    if (wants_ip)
        put_ipv4_sum(m, v);
    m->ol_flags &= out ? ~(RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_IP_CKSUM)
                       : ~(RTE_MBUF_F_RX_L4_CKSUM_MASK | RTE_MBUF_F_RX_IP_CKSUM_MASK);
    return true;
}

void tamper_flip(struct rte_mbuf *m, uint32_t bit)
{
    uint32_t off = bit / 8;

    while (m && off >= m->data_len) {
        off -= m->data_len;
        m = m->next;
    }
    if (m)
        *rte_pktmbuf_mtod_offset(m, uint8_t *, off) ^= (uint8_t)(1u << bit % 8);
}

/* ---- cutting ---- */

uint32_t tamper_segment(const struct port *port, const struct rte_mbuf *m,
                        const struct frame_view *v, bool out)
{
    uint32_t room = v->ip_end - v->payload, size = 0;

    if (!v->tcp || room == 0)
        return 0;
    if (m->ol_flags & (out ? RTE_MBUF_F_TX_TCP_SEG : RTE_MBUF_F_RX_LRO))
        size = m->tso_segsz;
    if (size == 0 && v->ip_end - v->l3 > port->mtu && port->mtu > (unsigned)(v->payload - v->l3))
        size = port->mtu - (unsigned)(v->payload - v->l3);
    return size && size < room ? size : 0;
}

/* Appends bytes of a frame, in as many buffers as it takes. */
static bool append(struct rte_mbuf *to, struct rte_mempool *pool, const struct rte_mbuf *from,
                   uint32_t off, uint32_t len)
{
    struct rte_mbuf *last = rte_pktmbuf_lastseg(to);

    while (len > 0) {
        uint32_t n = min(len, (uint32_t)rte_pktmbuf_tailroom(last));
        const void *p;
        uint8_t *q;

        if (n == 0) {
            last->next = rte_pktmbuf_alloc(pool);
            if (!last->next)
                return false;
            last = last->next;
            to->nb_segs++;
            continue;
        }
        q = rte_pktmbuf_mtod_offset(last, uint8_t *, last->data_len);
        p = rte_pktmbuf_read(from, off, n, q);
        if (p != q)
            memcpy(q, p, n);
        last->data_len = (uint16_t)(last->data_len + n);
        to->pkt_len += n;
        off += n;
        len -= n;
    }
    return true;
}

/* The headers of piece number i, whose payload begins at `at` and has len bytes. */
static void fix_headers(struct rte_mbuf *m, const struct frame_view *v, unsigned i, uint32_t at,
                        uint32_t len, bool last, bool out)
{
    struct frame_view pv = *v;
    struct rte_tcp_hdr *tcp = rte_pktmbuf_mtod_offset(m, struct rte_tcp_hdr *, v->l4_off);
    uint32_t ip_len = v->payload - v->l3 + len;
    void *ip = rte_pktmbuf_mtod_offset(m, void *, v->l3);

    pv.ip_end = v->l3 + ip_len;
    tcp->sent_seq = htonl(ntohl(tcp->sent_seq) + at);
    if (i > 0)
        tcp->tcp_flags &= (uint8_t)~RTE_TCP_CWR_FLAG;
    if (!last)
        tcp->tcp_flags &= (uint8_t) ~(RTE_TCP_FIN_FLAG | RTE_TCP_PSH_FLAG);
    if (v->family == 4) {
        struct rte_ipv4_hdr *ip4 = ip;

        ip4->total_length = htons((uint16_t)ip_len);
        ip4->packet_id = htons((uint16_t)(ntohs(ip4->packet_id) + i));
        put_ipv4_sum(m, v);
    } else {
        ((struct rte_ipv6_hdr *)ip)->payload_len =
            htons((uint16_t)(ip_len - sizeof(struct rte_ipv6_hdr)));
    }
    put_l4_sum(m, &pv);
    if (out)
        m->ol_flags &= ~(RTE_MBUF_F_TX_TCP_SEG | RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_IP_CKSUM);
    else
        m->ol_flags = (m->ol_flags & ~(RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_MASK |
                                       RTE_MBUF_F_RX_IP_CKSUM_MASK)) |
                      RTE_MBUF_F_RX_L4_CKSUM_GOOD | RTE_MBUF_F_RX_IP_CKSUM_GOOD;
}

static struct rte_mbuf *piece_of(struct rte_mempool *pool, const struct rte_mbuf *m,
                                 const struct frame_view *v, uint32_t at, uint32_t len)
{
    struct rte_mbuf *p = rte_pktmbuf_alloc(pool);

    if (!p)
        return NULL;
    p->ol_flags = m->ol_flags & ~(RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL);
    p->tx_offload = m->tx_offload;
    p->tso_segsz = 0;
    p->vlan_tci = m->vlan_tci;
    p->port = m->port;
    if (rte_pktmbuf_tailroom(p) < v->payload || !append(p, pool, m, 0, v->payload) ||
        !append(p, pool, m, v->payload + at, len)) {
        rte_pktmbuf_free(p);
        return NULL;
    }
    return p;
}

unsigned tamper_cut(struct port *port, struct rte_mbuf *m, const struct frame_view *v,
                    uint32_t size, bool out, struct rte_mbuf **piece)
{
    struct rte_mempool *pool = copy_pool(port);
    uint32_t len = v->ip_end - v->payload;
    uint64_t l4 = m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK;
    unsigned n = 0;

    /* Of a frame that may be damaged no good ones are made. */
    if (!pool || (len + size - 1) / size > TAMPER_PIECES_MAX ||
        (!out && (l4 == RTE_MBUF_F_RX_L4_CKSUM_BAD ||
                  (l4 == RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN && l4_sum(m, v) != 0xffff))))
        return 0;
    for (uint32_t at = 0; at < len; at += size, n++) {
        uint32_t part = min(size, len - at);

        piece[n] = piece_of(pool, m, v, at, part);
        if (!piece[n]) {
            rte_pktmbuf_free_bulk(piece, n);
            return 0;
        }
        fix_headers(piece[n], v, n, at, part, at + part == len, out);
    }
    return n;
}
