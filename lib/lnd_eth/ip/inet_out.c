/* SPDX-License-Identifier: BSD-3-Clause */
/* From an L4 segment to a frame in a port's queue: headers, checksums asked for, FIFO per port. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_ip.h>
#include <rte_tcp.h>

#define IP4_DONT_FRAGMENT 0x4000

/* ---- limits ---- */

/* Time is the measure: a token costs a part of a second, and at most a burst's worth is saved. */
bool bucket_take(struct inet_bucket *b, uint32_t per_second, uint32_t burst)
{
    uint64_t now = reactor_now_us(), cost = INET_SEC / per_second, saved = cost * burst;

    if (b->at_us + saved < now)
        b->at_us = now - saved;
    if (b->at_us + cost > now)
        return false;
    b->at_us += cost;
    return true;
}

void out_drop(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m, enum pkt_drop why)
{
    inet_drop_keep(sh, ifp, m, true, why);
    rte_pktmbuf_free(m);
}

/* ---- to the port ---- */

static uint32_t txq_len(const struct inet_txq *q)
{
    return q->tail - q->head;
}

static uint32_t mbufs_of(struct rte_mbuf *const *m, uint32_t n)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += m[i]->nb_segs;
    return sum;
}

/* Gives the port what it takes. */
static void txq_flush(struct inet_shard *sh, unsigned port)
{
    struct inet_txq *q = sh->txq[port];

    while (txq_len(q) > 0) {
        uint32_t at = q->head & (INET_TXQ - 1);
        uint32_t n = min(txq_len(q), INET_TXQ - at), took;

        n = min(n, (uint32_t)PORT_BURST);
        q->mbufs -= mbufs_of(&q->m[at], n);
        took = port_tx(sh->inet->port[port]->port, sh->index, &q->m[at], n);
        q->mbufs += mbufs_of(&q->m[at + took], n - took);
        q->head += took;
        if (took < n)
            return;
    }
    sh->backlog &= ~(UINT32_C(1) << port);
}

void inet_flush(struct inet_shard *sh)
{
    for (uint32_t left = sh->backlog; left != 0; left &= left - 1)
        txq_flush(sh, (unsigned)__builtin_ctz(left));
}

static bool txq_busy(const struct inet_txq *q)
{
    return txq_len(q) >= INET_TXQ_BUSY || q->mbufs >= INET_TXQ_MBUFS;
}

bool inet_tx_busy(struct inet_shard *sh, const struct inet_path *path)
{
    unsigned port = path->ifp->port_index;
    uint32_t bit = UINT32_C(1) << port;

    if (likely((sh->backlog & bit) == 0 || !txq_busy(sh->txq[port])))
        return false;
    if ((sh->tried & bit) == 0) {
        sh->tried |= bit;
        txq_flush(sh, port);
        if (!txq_busy(sh->txq[port]))
            return false;
    }
    sh->refused |= bit;
    return true;
}

bool out_eased(const struct inet_shard *sh)
{
    for (uint32_t left = sh->refused; left != 0; left &= left - 1)
        if (!txq_busy(sh->txq[__builtin_ctz(left)]))
            return true;
    return false;
}

void out_clear(struct inet_shard *sh)
{
    for (unsigned i = 0; i < sh->inet->ports; i++) {
        struct inet_txq *q = sh->txq[i];

        while (q && txq_len(q) > 0)
            rte_pktmbuf_free(q->m[q->head++ & (INET_TXQ - 1)]);
        if (q)
            q->mbufs = 0;
    }
    sh->backlog = 0;
}

void out_queue(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m)
{
    struct inet_txq *q = sh->txq[ifp->port_index];

    if (unlikely(!sh->running)) {
        out_drop(sh, ifp, m, PKT_DROP_PORT_DOWN);
        return;
    }
    if (txq_len(q) == INET_TXQ)
        txq_flush(sh, ifp->port_index);
    if (txq_len(q) == INET_TXQ) {
        out_drop(sh, ifp, m, PKT_DROP_PORT_FULL);
        return;
    }
    inet_show(sh, ifp, ifp->ip->port, m, true, PKT_DROP_NONE);
    count_add(&sh->stats.tx_packets, 1);
    count_add(&sh->stats.tx_bytes, m->pkt_len);
    q->mbufs += m->nb_segs;
    q->m[q->tail++ & (INET_TXQ - 1)] = m;
    sh->backlog |= UINT32_C(1) << ifp->port_index;
}

/* ---- headers ---- */

struct rte_mbuf *out_alloc(struct inet_shard *sh, struct inet_if *ifp, size_t size)
{
    struct rte_mbuf *m = port_tx_alloc(ifp->ip->port);
    void *p = !m ? NULL : rte_pktmbuf_append(m, (uint16_t)size);

    if (!p) {
        rte_pktmbuf_free(m);
        inet_count_drop(sh, PKT_DROP_NO_MBUF);
        return NULL;
    }
    memset(p, 0, size);
    return m;
}

void out_ether(struct inet_if *ifp, struct rte_mbuf *m, const struct rte_ether_addr *to,
               uint16_t type)
{
    struct rte_ether_hdr *eth =
        (struct rte_ether_hdr *)rte_pktmbuf_prepend(m, sizeof(struct rte_ether_hdr));

    eth->dst_addr = *to;
    eth->src_addr = ifp->ip->port->mac;
    eth->ether_type = rte_cpu_to_be_16(type);
    m->l2_len = sizeof(*eth);
    if (ifp->vlan != 0) {
        m->ol_flags |= RTE_MBUF_F_TX_VLAN;
        m->vlan_tci = ifp->vlan;
    }
}

static void put_ip4(struct rte_mbuf *m, const struct inet_addr *src, const struct inet_addr *dst,
                    uint8_t proto, uint8_t tos, uint8_t hops)
{
    struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)rte_pktmbuf_prepend(m, IP4_SIZE);

    *ip = (struct rte_ipv4_hdr){
        .version_ihl = 0x45,
        .type_of_service = tos,
        .total_length = rte_cpu_to_be_16((uint16_t)m->pkt_len),
        .packet_id = 0, /* RFC 6864 §4.1; a counter would tell others how much is sent */
        .fragment_offset = rte_cpu_to_be_16(IP4_DONT_FRAGMENT),
        .time_to_live = hops,
        .next_proto_id = proto,
    };
    memcpy(&ip->src_addr, src->b + 12, 4);
    memcpy(&ip->dst_addr, dst->b + 12, 4);
    m->l3_len = IP4_SIZE;
    m->ol_flags |= RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM;
}

static void put_ip6(struct rte_mbuf *m, const struct inet_addr *src, const struct inet_addr *dst,
                    uint8_t proto, uint8_t tos, uint8_t hops)
{
    uint32_t len = m->pkt_len;
    struct rte_ipv6_hdr *ip = (struct rte_ipv6_hdr *)rte_pktmbuf_prepend(m, IP6_SIZE);

    *ip = (struct rte_ipv6_hdr){
        .vtc_flow = rte_cpu_to_be_32(UINT32_C(6) << 28 | (uint32_t)tos << 20),
        .payload_len = rte_cpu_to_be_16((uint16_t)len),
        .proto = proto,
        .hop_limits = hops,
    };
    memcpy(ip->src_addr, src->b, 16);
    memcpy(ip->dst_addr, dst->b, 16);
    m->l3_len = IP6_SIZE;
    m->ol_flags |= RTE_MBUF_F_TX_IPV6;
}

static void put_ip(struct inet_shard *sh, struct rte_mbuf *m, const struct inet_addr *src,
                   const struct inet_addr *dst, uint8_t proto, uint8_t tos, uint8_t hops)
{
    if (inet_is4(src))
        put_ip4(m, src, dst, proto, tos, hops);
    else
        put_ip6(m, src, dst, proto, tos, hops);
}

bool out_ip(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
            const struct inet_addr *dst, unsigned mtu, struct rte_mbuf *m, uint8_t proto,
            uint8_t tos, uint8_t hops)
{
    uint32_t size = inet_is4(src) ? IP4_SIZE : IP6_SIZE;

    if (m->pkt_len + size > mtu) {
        out_drop(sh, ifp, m, PKT_DROP_IP_TOO_BIG);
        return false;
    }
    put_ip(sh, m, src, dst, proto, tos, hops == 0 ? INET_HOP_LIMIT : hops);
    return true;
}

/* ---- TCP ---- */

/* The payload was summed when it came in: with pseudo header and header that is all. */
static bool sum_is_known(const struct inet_if *ifp, struct rte_mbuf *m, struct rte_tcp_hdr *tcp)
{
    uint32_t headers = m->l3_len + m->l4_len;
    const struct pkt *p = pkt_of(m);

    if (!(ifp->ip->port->soft & PORT_SOFT_L4_CSUM) || m->tso_segsz != 0 || m->nb_segs != 1 ||
        !RTE_MBUF_DIRECT(m) || p->sum_len == 0 || p->sum_len != m->pkt_len - headers ||
        p->sum_at != m->data_off + headers)
        return false;
    tcp->cksum = (uint16_t)~csum_join(csum_partial(tcp, m->l4_len, 0), p->sum, false);
    return true;
}

/* The pseudo header's sum, to which the device or the port adds the segment's. Returns whether that
 * need not be done. */
static bool put_tcp_csum(const struct inet_if *ifp, struct rte_mbuf *m)
{
    struct rte_tcp_hdr *tcp = rte_pktmbuf_mtod_offset(m, struct rte_tcp_hdr *, m->l3_len);

    if (m->tso_segsz != 0)
        m->ol_flags |= RTE_MBUF_F_TX_TCP_SEG;
    tcp->cksum = (m->ol_flags & RTE_MBUF_F_TX_IPV4) != 0
                     ? rte_ipv4_phdr_cksum(rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *), m->ol_flags)
                     : rte_ipv6_phdr_cksum(rte_pktmbuf_mtod(m, struct rte_ipv6_hdr *), m->ol_flags);
    if (sum_is_known(ifp, m, tcp))
        return true;
    m->ol_flags |= RTE_MBUF_F_TX_TCP_CKSUM;
    return false;
}

/* A frame that the port cuts may be as long as the port says, its pieces no longer than others. */
static bool fits(const struct inet_if *ifp, const struct rte_mbuf *m, uint32_t ip)
{
    if (m->tso_segsz == 0)
        return m->pkt_len + ip <= ifp->mtu;
    return m->pkt_len + ip <= min(ifp->ip->port->tso_max, (uint32_t)UINT16_MAX) &&
           ip + m->l4_len + m->tso_segsz <= ifp->mtu;
}

void inet_send(struct inet_shard *sh, struct inet_path *path, struct rte_mbuf *m, uint8_t proto,
               uint8_t tos)
{
    uint32_t size = inet_is4(&path->local) ? IP4_SIZE : IP6_SIZE;

    m->ol_flags &= ~(RTE_MBUF_F_TX_OFFLOAD_MASK);
    if (!fits(path->ifp, m, size)) {
        look_drop_addr(sh, &path->remote, PKT_DROP_IP_TOO_BIG);
        out_drop(sh, path->ifp, m, PKT_DROP_IP_TOO_BIG);
        return;
    }
    put_ip(sh, m, &path->local, &path->remote, proto, tos, INET_HOP_LIMIT);
    if (proto == IPPROTO_TCP && put_tcp_csum(path->ifp, m))
        count_add(&sh->stats.sums_known, 1);
    neigh_output(sh, path->ifp, &path->next_hop, &path->neigh, path->own, m);
}

struct rte_mbuf *inet_alloc(struct inet_shard *sh, const struct inet_path *path)
{
    struct rte_mbuf *m = port_tx_alloc(path->ifp->ip->port);

    if (!m)
        inet_count_drop(sh, PKT_DROP_NO_MBUF);
    return m;
}
