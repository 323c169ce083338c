/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading frames. See frame.h. */
#include "lib/lnd_eth/port/frame.h"

#include <netinet/in.h>
#include <string.h>

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_tcp.h>
#include <rte_udp.h>

static void read_ports(const struct rte_mbuf *m, struct frame_view *v)
{
    uint8_t buf[sizeof(struct rte_tcp_hdr)];
    const struct rte_tcp_hdr *tcp;
    uint32_t len = v->ip_end - v->l4_off;

    if (v->proto == IPPROTO_UDP && len >= sizeof(struct rte_udp_hdr)) {
        const struct rte_udp_hdr *udp =
            rte_pktmbuf_read(m, v->l4_off, sizeof(struct rte_udp_hdr), buf);

        v->sport = ntohs(udp->src_port);
        v->dport = ntohs(udp->dst_port);
        v->l4 = true;
    }
    if (v->proto != IPPROTO_TCP || len < sizeof(*tcp))
        return;
    tcp = rte_pktmbuf_read(m, v->l4_off, sizeof(*tcp), buf);
    if ((tcp->data_off >> 4) * 4u < sizeof(*tcp) || (tcp->data_off >> 4) * 4u > len)
        return;
    v->sport = ntohs(tcp->src_port);
    v->dport = ntohs(tcp->dst_port);
    v->payload = (uint16_t)(v->l4_off + (tcp->data_off >> 4) * 4u);
    v->l4 = true;
    v->tcp = true;
}

static void read_ipv4(const struct rte_mbuf *m, struct frame_view *v)
{
    struct rte_ipv4_hdr buf;
    const struct rte_ipv4_hdr *ip = rte_pktmbuf_read(m, v->l3, sizeof(buf), &buf);
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    uint32_t hdr, total;

    if (!ip)
        return;
    hdr = (ip->version_ihl & 0x0f) * 4u;
    total = ntohs(ip->total_length);
    if (ip->version_ihl >> 4 != 4 || hdr < sizeof(*ip) || total < hdr || v->l3 + total > m->pkt_len)
        return;
    v->family = 4;
    v->ip_end = v->l3 + total;
    memcpy(v->src, mapped, 12);
    memcpy(v->dst, mapped, 12);
    memcpy(v->src + 12, &ip->src_addr, 4);
    memcpy(v->dst + 12, &ip->dst_addr, 4);
    v->proto = ip->next_proto_id;
    v->l4_off = (uint16_t)(v->l3 + hdr);
    if ((ntohs(ip->fragment_offset) & (RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) == 0)
        read_ports(m, v);
}

static void read_ipv6(const struct rte_mbuf *m, struct frame_view *v)
{
    struct rte_ipv6_hdr buf;
    const struct rte_ipv6_hdr *ip = rte_pktmbuf_read(m, v->l3, sizeof(buf), &buf);
    uint32_t len;

    if (!ip)
        return;
    len = ntohs(ip->payload_len);
    if (ntohl(ip->vtc_flow) >> 28 != 6 || v->l3 + sizeof(*ip) + len > m->pkt_len)
        return;
    v->family = 6;
    v->l4_off = (uint16_t)(v->l3 + sizeof(*ip));
    v->ip_end = v->l4_off + len;
    memcpy(v->src, ip->src_addr, 16);
    memcpy(v->dst, ip->dst_addr, 16);
    v->proto = ip->proto;
    read_ports(m, v);
}

void frame_view(const struct rte_mbuf *m, struct frame_view *v)
{
    struct rte_ether_hdr buf;
    const struct rte_ether_hdr *eth = rte_pktmbuf_read(m, 0, sizeof(buf), &buf);

    *v = (struct frame_view){.l3 = sizeof(buf)};
    if (!eth)
        return;
    v->type = ntohs(eth->ether_type);
    if (eth->ether_type == htons(RTE_ETHER_TYPE_IPV4))
        read_ipv4(m, v);
    else if (eth->ether_type == htons(RTE_ETHER_TYPE_IPV6))
        read_ipv6(m, v);
}
