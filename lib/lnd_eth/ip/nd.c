/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbour discovery, RFC 4861 §7: solicitations and advertisements. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#define SOLICIT        135
#define ADVERT         136
#define FLAG_SOLICITED 0x40
#define FLAG_OVERRIDE  0x20
#define OPTION_SIZE    8
#define SOURCE_MAC     1
#define TARGET_MAC     2

static const struct inet_addr none;
static const struct inet_addr all_nodes = {{0xff, 2, [15] = 1}};

/* ---- sending ---- */

bool nd_send(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
             const struct inet_addr *dst, struct rte_mbuf *m, uint8_t proto, uint8_t hops,
             const struct rte_ether_addr *to)
{
    struct rte_ether_addr group = {{0x33, 0x33}}; /* RFC 2464 §7 */

    if (!out_ip(sh, ifp, src, dst, ifp->mtu, m, proto, 0, hops))
        return false;
    memcpy(group.addr_bytes + 2, dst->b + 12, 4);
    out_ether(ifp, m, !to ? &group : to, RTE_ETHER_TYPE_IPV6);
    out_queue(sh, ifp, m);
    return true;
}

/* option 0: none. to NULL: dst is a group. */
static void put(struct inet_shard *sh, struct inet_if *ifp, uint8_t type, uint8_t flags,
                const struct inet_addr *src, const struct inet_addr *dst,
                const struct inet_addr *target, uint8_t option, const struct rte_ether_addr *to)
{
    size_t size = ND_SIZE + (option != 0 ? OPTION_SIZE : 0);
    struct rte_mbuf *m = out_alloc(sh, ifp, size);
    uint8_t *p;

    if (!m)
        return;
    p = rte_pktmbuf_mtod(m, uint8_t *);
    p[0] = type;
    p[4] = flags;
    memcpy(p + 8, target->b, 16);
    if (option != 0) {
        p[ND_SIZE] = option;
        p[ND_SIZE + 1] = 1;
        memcpy(p + ND_SIZE + 2, ifp->ip->port->mac.addr_bytes, 6);
    }
    icmp_csum_put(m, src, dst);
    if (nd_send(sh, ifp, src, dst, m, IPPROTO_ICMPV6, ND_HOP_LIMIT, to))
        count_add(&sh->stats.nd_sent, 1);
}

void nd_send_solicit(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
                     const struct inet_addr *target, const struct rte_ether_addr *to)
{
    struct inet_addr node;

    inet_solicited_node(target, &node);
    put(sh, ifp, SOLICIT, 0, !from ? &none : from, !to ? &node : target, target,
        !from ? 0 : SOURCE_MAC, to);
}

void nd_announce(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *own)
{
    put(sh, ifp, ADVERT, FLAG_OVERRIDE, own, &all_nodes, own, TARGET_MAC, NULL);
}

/* ---- receiving ---- */

/* The answer goes to the station that asked, so it needs no entry in the table. §7.2.4 */
static void answer(struct inet_shard *sh, struct inet_if *ifp, const struct inet_hdr *ip,
                   const struct nd_msg *nd, const struct rte_ether_addr *from)
{
    if (inet_is_none(&ip->src))
        nd_announce(sh, ifp, &nd->target);
    else
        put(sh, ifp, ADVERT, FLAG_SOLICITED | FLAG_OVERRIDE, &nd->target, &ip->src, &nd->target,
            TARGET_MAC, nd->has_mac ? &nd->mac : from);
}

/* §7.2.3. While an address of ours is being checked, a question from nowhere is another station's
 * that checks the same (RFC 4862 §5.4.3); other questions are not answered. */
static void solicited(struct inet_shard *sh, struct inet_if *ifp, const struct inet_hdr *ip,
                      const struct nd_msg *nd, const struct rte_ether_addr *from)
{
    struct inet_own *own = own_find(ifp, &nd->target);

    if (!own)
        return;
    if (!own_usable(own)) {
        if (inet_is_none(&ip->src)) {
            inet_count_drop(sh, PKT_DROP_ARP_CONFLICT);
            dad_conflict(sh, own, from, true);
        }
        return;
    }
    answer(sh, ifp, ip, nd, from);
    if (!inet_is_none(&ip->src) && nd->has_mac)
        neigh_tell(sh, ifp, &ip->src, &nd->mac, NEIGH_OVERRIDE | NEIGH_ASKED);
}

/* §7.2.5 */
static void advertised(struct inet_shard *sh, struct inet_if *ifp, const struct nd_msg *nd,
                       const struct rte_ether_addr *from)
{
    const struct rte_ether_addr *mac = nd->has_mac ? &nd->mac : from;
    struct inet_own *own = own_find(ifp, &nd->target);
    unsigned flags = (nd->solicited ? NEIGH_SOLICITED : 0u) | (nd->override ? NEIGH_OVERRIDE : 0u);

    if (own) {
        inet_count_drop(sh, PKT_DROP_ARP_CONFLICT);
        dad_conflict(sh, own, mac, false);
        return;
    }
    neigh_tell(sh, ifp, &nd->target, mac, flags);
}

enum pkt_drop nd_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                       const struct inet_hdr *ip)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    const struct pkt *pkt = pkt_of(m);
    struct nd_msg nd;
    enum pkt_drop why = PKT_DROP_ND_BAD;

    count_add(&sh->stats.nd_received, 1);
    if (pkt->l4 + pkt->l4_len <= m->data_len)
        why = nd_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4), pkt->l4_len, ip, &nd);
    /* Our own, come back (RFC 7527): no other station has our MAC. */
    if (why != PKT_DROP_NONE || rte_is_same_ether_addr(&eth->src_addr, &ifp->ip->port->mac) ||
        (nd.has_mac && rte_is_same_ether_addr(&nd.mac, &ifp->ip->port->mac)))
        return PKT_DROP_ND_BAD;
    if (nd.solicit)
        solicited(sh, ifp, ip, &nd, &eth->src_addr);
    else
        advertised(sh, ifp, &nd, &eth->src_addr);
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}
