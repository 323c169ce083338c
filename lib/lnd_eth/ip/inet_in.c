/* SPDX-License-Identifier: BSD-3-Clause */
/* From a port's queue to TCP: each header is checked, and a packet that is not ours, or not whole,
 * ends here under a name. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_ether.h>

#define L4_HEADER_MAX 60u         /* TCP's, with all options */
#define BURST_BYTES   (96u << 10) /* received at a time from a port, … */
#define BURST_LEAST   8u          /* … in as many frames at least */

/* ---- dropping ---- */

void inet_show(struct inet_shard *sh, struct inet_if *ifp, struct port *port,
               const struct rte_mbuf *m, bool out, enum pkt_drop why)
{
    const struct inet_tap *t = __atomic_load_n(&sh->inet->tap, __ATOMIC_ACQUIRE);

    if (unlikely(t != NULL))
        t->frame(t->ctx, sh, ifp, port, m, out, why);
}

void inet_count_drop(struct inet_shard *sh, enum pkt_drop why)
{
    count_add(&sh->drops[why], 1);
}

void inet_drop_keep(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m, bool out,
                    enum pkt_drop why)
{
    inet_count_drop(sh, why);
    inet_look_drop(sh, m, out, why);
    inet_show(sh, ifp, !ifp ? NULL : ifp->ip->port, m, out, why);
}

void inet_drop(struct inet_shard *sh, struct rte_mbuf *m, enum pkt_drop why)
{
    inet_drop_keep(sh, pkt_of(m)->ifp, m, false, why);
    rte_pktmbuf_free(m);
}

void pkt_cut(struct rte_mbuf *m, uint32_t len)
{
    struct rte_mbuf *seg = m;
    uint32_t left = len;

    if (len >= m->pkt_len)
        return;
    while (left > seg->data_len) {
        left -= seg->data_len;
        seg = seg->next;
    }
    seg->data_len = (uint16_t)left;
    rte_pktmbuf_free(seg->next);
    seg->next = NULL;
    m->pkt_len = len;
    m->nb_segs = 1;
    for (seg = m; seg->next; seg = seg->next)
        m->nb_segs++;
}

/* ---- IP ---- */

/* Owner of the destination: an address of this interface, a group that concerns us (only
 * neighbour discovery has such), or none here. */
enum dst {
    DST_OURS,
    DST_GROUP,
    DST_OTHER
};

static bool in_group(struct inet_if *ifp, const struct inet_addr *dst)
{
    static const struct inet_addr all_nodes = {{0xff, 2, [15] = 1}};

    return inet_same(dst, &all_nodes) || mld_in_group(ifp, dst);
}

static enum dst dst_of(struct inet_if *ifp, const struct inet_hdr *ip, bool group)
{
    const struct inet_own *own = NULL;

    /* ::ffff:a.b.c.d is never on the wire (RFC 4038 §4.2), but is how IPv4's are kept here. */
    if (inet_is4(&ip->dst) == (ip->family == 4))
        own = own_find(ifp, &ip->dst);
    /* RFC 1122 §3.3.6: nothing sent to all stations is for one address. While an address is
     * checked only questions about it are heard, which are multicast. */
    if (own)
        return !group && own_usable(own) ? DST_OURS : DST_OTHER;
    if (ip->family == 6 && group && inet_is_multicast(&ip->dst) && in_group(ifp, &ip->dst))
        return DST_GROUP;
    return DST_OTHER;
}

static bool source_fine(struct inet_if *ifp, const struct inet_hdr *ip)
{
    if (ip->family == 6 && inet_is_none(&ip->src))
        return ip->proto == IPPROTO_ICMPV6; /* neighbour discovery looks closer */
    if (!inet_is_unicast(&ip->src) || (ip->family == 6 && inet_is4(&ip->src)))
        return false;
    for (unsigned i = 0; i < ifp->owns; i++) {
        const struct inet_prefix *net = &ifp->own[i].net;

        if (inet_is_net_broadcast(&ip->src, net))
            return false;
        /* Another station's while ours is being checked. */
        if (own_is(&ifp->own[i], &ip->src))
            return ip->proto == IPPROTO_ICMPV6 && !own_usable(&ifp->own[i]);
    }
    return true;
}

static enum pkt_drop input_tcp(struct inet_shard *sh, struct rte_mbuf *m, const struct inet_hdr *ip)
{
    unsigned home = inet_home(sh->inet, &ip->dst, &ip->src);

    switch (m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) {
    case RTE_MBUF_F_RX_L4_CKSUM_BAD:
        return PKT_DROP_TCP_CSUM;
    case RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN:
        break;
    default:
        pkt_of(m)->l4_ok = true;
    }
    if (home != sh->index)
        inet_hand_over(sh, m, home);
    else
        sh->up[sh->nup++] = m; /* at most one of each frame of a burst */
    return PKT_DROP_NONE;
}

static enum pkt_drop input_proto(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                                 const struct inet_hdr *ip, enum dst dst)
{
    bool udp = ip->proto == IPPROTO_UDP;

    if (ip->family == 6 && ip->proto == IPPROTO_ICMPV6)
        return icmp_input(sh, ifp, m, ip);
    if (dst != DST_OURS)
        return PKT_DROP_IP_NOT_OURS;
    if (ip->proto == IPPROTO_TCP && sh->inet->opts.tcp.input)
        return input_tcp(sh, m, ip);
    if (ip->family == 4 && ip->proto == IPPROTO_ICMP)
        return icmp_input(sh, ifp, m, ip);
    if (ip->family == 4)
        return icmp_error_send(sh, ifp, m, ip, 3, udp ? 3 : 2, 0, PKT_DROP_IP_PROTO);
    if (udp)
        return icmp_error_send(sh, ifp, m, ip, 1, 4, 0, PKT_DROP_IP_PROTO);
    if (ip->proto == IPPROTO_NONE)
        return PKT_DROP_IP_PROTO;
    return icmp_error_send(sh, ifp, m, ip, 4, 1, ip->next, PKT_DROP_IP_PROTO);
}

static enum pkt_drop ip_decode(const struct rte_mbuf *m, uint8_t family, struct inet_hdr *ip)
{
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, RTE_ETHER_HDR_LEN);
    size_t have = m->data_len - RTE_ETHER_HDR_LEN, len = m->pkt_len - RTE_ETHER_HDR_LEN;
    uint64_t csum = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;
    enum pkt_drop why;

    if (family == 6)
        why = ip6_decode(p, have, len, ip);
    else if (csum == RTE_MBUF_F_RX_IP_CKSUM_BAD)
        why = PKT_DROP_IP_CSUM;
    else
        why = ip4_decode(p, have, len, csum != RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN, ip);
    if (why == PKT_DROP_NONE && RTE_ETHER_HDR_LEN + ip->l4 > IP_L4_MAX)
        return PKT_DROP_IP_OPTIONS;
    /* L4 headers are contiguous too: pkt.h. */
    if (why == PKT_DROP_NONE && have < ip->len && have < ip->l4 + L4_HEADER_MAX)
        return PKT_DROP_ETH_SHORT;
    return why;
}

static enum pkt_drop input_ip(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                              uint8_t family, bool group)
{
    struct pkt *pkt = pkt_of(m);
    struct inet_hdr ip = {.problem = IP6_PROBLEM_NONE};
    enum pkt_drop why = ip_decode(m, family, &ip);
    enum dst dst;

    if (why != PKT_DROP_NONE && ip.problem == IP6_PROBLEM_NONE)
        return why;
    dst = dst_of(ifp, &ip, group);
    if (dst == DST_OTHER)
        return PKT_DROP_IP_NOT_OURS;
    if (!source_fine(ifp, &ip))
        return PKT_DROP_IP_SOURCE;
    if (why != PKT_DROP_NONE)
        return dst == DST_OURS || ip.problem_multicast
                   ? icmp_error_send(sh, ifp, m, &ip, 4, ip.problem, ip.pointer, why)
                   : why;
    pkt->l3 = RTE_ETHER_HDR_LEN;
    pkt->l4 = (uint16_t)(RTE_ETHER_HDR_LEN + ip.l4);
    pkt->l4_len = ip.len - ip.l4;
    pkt->family = family;
    pkt->proto = ip.proto;
    pkt->ecn = ip.tos & 3;
    pkt_cut(m, RTE_ETHER_HDR_LEN + ip.len);
    return input_proto(sh, ifp, m, &ip, dst);
}

/* ---- Ethernet ---- */

static struct inet_if *if_of_frame(struct inet_shard *sh, const struct inet_port *ip,
                                   const struct rte_mbuf *m)
{
    unsigned vlan = 0, index;

    /* A tag of VLAN 0 has a priority only. */
    if ((m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) != 0)
        vlan = m->vlan_tci & 0xfff;
    index = ip->by_vlan[vlan];
    return index == 0 ? NULL : sh->inet->ifs[index - 1];
}

static enum pkt_drop input_eth(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    bool group = rte_is_multicast_ether_addr(&eth->dst_addr);

    if ((!group && !rte_is_same_ether_addr(&eth->dst_addr, &ifp->ip->port->mac)) ||
        !rte_is_valid_assigned_ether_addr(&eth->src_addr))
        return PKT_DROP_ETH_NOT_OURS;
    switch (rte_be_to_cpu_16(eth->ether_type)) {
    case RTE_ETHER_TYPE_IPV4:
        return input_ip(sh, ifp, m, 4, group);
    case RTE_ETHER_TYPE_IPV6:
        return input_ip(sh, ifp, m, 6, group);
    case RTE_ETHER_TYPE_ARP:
        return arp_input(sh, ifp, m);
    case RTE_ETHER_TYPE_VLAN:
    case RTE_ETHER_TYPE_QINQ:
        return PKT_DROP_ETH_VLAN;
    default:
        return PKT_DROP_ETH_TYPE;
    }
}

/* Takes a received frame. */
static void input(struct inet_shard *sh, struct inet_port *ip, struct rte_mbuf *m)
{
    struct inet_if *ifp = if_of_frame(sh, ip, m);
    bool short_frame = m->data_len < RTE_ETHER_HDR_LEN;
    enum pkt_drop why = short_frame ? PKT_DROP_ETH_SHORT : PKT_DROP_ETH_VLAN;

    count_add(&sh->stats.rx_packets, 1);
    count_add(&sh->stats.rx_bytes, m->pkt_len);
    *pkt_of(m) = (struct pkt){.ifp = ifp};
    inet_show(sh, ifp, ip->port, m, false, PKT_DROP_NONE);
    if (short_frame || !ifp) {
        inet_count_drop(sh, why);
        inet_show(sh, NULL, ip->port, m, false, why);
        rte_pktmbuf_free(m);
        return;
    }
    why = input_eth(sh, ifp, m);
    if (why != PKT_DROP_NONE)
        inet_drop(sh, m, why);
}

/* ---- the loop ---- */

/* Prefetches the first bytes to be read: the private area and the headers. */
static void prefetch(struct rte_mbuf *m)
{
    rte_prefetch0(pkt_of(m));
    rte_prefetch0(rte_pktmbuf_mtod(m, void *));
    rte_prefetch0(rte_pktmbuf_mtod_offset(m, void *, RTE_CACHE_LINE_SIZE));
}

static unsigned poll_queue(struct inet_shard *sh, struct inet_rxq *q)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    struct rte_mbuf *burst[PORT_BURST];
    uint64_t bytes = 0;
    unsigned most = PORT_BURST, n;

    /* Of large frames fewer at a time: what is received is still in the CPU's caches when it is
     * looked at, and acknowledgements do not wait for long. */
    if (q->bytes > BURST_BYTES)
        most = (unsigned)max(PORT_BURST * BURST_BYTES / q->bytes, BURST_LEAST);
    n = port_rx(q->ip->port, q->queue, burst, most);
    sh->rx_behind |= n == most;
    for (unsigned i = 0; i < n; i++) {
        if (i + 1 < n)
            prefetch(burst[i + 1]);
        bytes += burst[i]->pkt_len;
        input(sh, q->ip, burst[i]);
    }
    if (sh->nup > 0)
        tcp->input(tcp->ctx, sh, sh->up, sh->nup);
    sh->nup = 0;
    if (n > 0)
        q->bytes = bytes * PORT_BURST / n;
    return n;
}

bool inet_rx_behind(const struct inet_shard *sh)
{
    return sh->rx_behind;
}

/* Sends frames that fault injection has delayed and that are due. Returns how long the others wait.
 */
static uint64_t delayed_send(struct inet_shard *sh)
{
    uint64_t wait = UINT64_MAX;

    for (unsigned i = 0; i < sh->inet->ports; i++) {
        struct port *port = sh->inet->port[i]->port;
        struct port_faults *f = port_faults_of(port);

        if (likely(!f))
            continue;
        port_tx(port, sh->index, NULL, 0);
        wait = min(wait, f->due(f, -1, sh->index));
    }
    return wait;
}

static uint64_t sleep_limit(const struct inet_shard *sh)
{
    uint64_t limit = sh->backlog != 0 ? INET_BACKLOG_US : UINT64_MAX;

    for (unsigned i = 0; i < sh->rxqs; i++) {
        const struct inet_rxq *q = &sh->rxq[i];
        struct port_faults *f = port_faults_of(q->ip->port);

        if (unlikely(f != NULL))
            limit = min(limit, f->due(f, (int)q->queue, sh->index));
        if (!q->sleeps)
            limit = min(limit, (uint64_t)INET_POLL_US);
    }
    return limit;
}

int inet_poll(void *arg)
{
    struct inet_shard *sh = arg;
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    unsigned work = 0;
    uint64_t delayed;

    sh->tried = sh->refused = 0;
    sh->rx_behind = false;
    for (unsigned i = 0; i < sh->rxqs; i++)
        work += poll_queue(sh, &sh->rxq[i]);
    work += hand_poll(sh);
    if (tcp->flush)
        work += tcp->flush(tcp->ctx, sh);
    if (sh->backlog != 0)
        inet_flush(sh);
    work += out_eased(sh);
    delayed = delayed_send(sh);
    sh->poller.max_sleep_us = min(delayed, sleep_limit(sh));
    return (int)work;
}
