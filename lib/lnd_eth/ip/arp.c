/* SPDX-License-Identifier: BSD-3-Clause */
/* ARP, RFC 826, and what of RFC 5227 concerns received packets. */
#include "lib/lnd_eth/ip/inet_internal.h"

#define OP_REQUEST 1
#define OP_REPLY   2

static const struct rte_ether_addr broadcast = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}};

static void put(struct inet_shard *sh, struct inet_if *ifp, uint8_t op,
                const struct inet_addr *from, const struct inet_addr *target,
                const struct rte_ether_addr *target_mac, const struct rte_ether_addr *to)
{
    static const uint8_t begin[7] = {0, 1, 8, 0, 6, 4, 0};
    struct rte_mbuf *m = out_alloc(sh, ifp, ARP_SIZE);
    uint8_t *p;

    if (!m)
        return;
    p = rte_pktmbuf_mtod(m, uint8_t *);
    memcpy(p, begin, sizeof(begin));
    p[7] = op;
    memcpy(p + 8, ifp->ip->port->mac.addr_bytes, 6);
    if (from)
        memcpy(p + 14, from->b + 12, 4);
    if (target_mac)
        memcpy(p + 18, target_mac->addr_bytes, 6);
    memcpy(p + 24, target->b + 12, 4);
    out_ether(ifp, m, to, RTE_ETHER_TYPE_ARP);
    out_queue(sh, ifp, m);
    count_add(&sh->stats.arp_sent, 1);
}

void arp_send_request(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *from,
                      const struct inet_addr *target, const struct rte_ether_addr *to)
{
    put(sh, ifp, OP_REQUEST, from, target, NULL, !to ? &broadcast : to);
}

/* Whether the packet is about an address of ours, and says that another has it. */
static bool conflict(struct inet_shard *sh, struct inet_if *ifp, const struct arp_msg *arp)
{
    bool probe = inet_is_none(&arp->sender);
    struct inet_own *own = own_find(ifp, probe ? &arp->target : &arp->sender);

    if (!own || rte_is_same_ether_addr(&arp->sender_mac, &ifp->ip->port->mac))
        return false;
    /* Who asks before it takes an address that we use is answered; who asks while we do is before
     * or after us, and both must yield. RFC 5227 §2.1.1 */
    if (probe && own_usable(own))
        return false;
    dad_conflict(sh, own, &arp->sender_mac, probe);
    return true;
}

/* Learns from a reply to us, a request to us, and a gratuitous announcement (RFC 5227 §3).
 * Ignores requests between other stations. */
static void learn(struct inet_shard *sh, struct inet_if *ifp, const struct arp_msg *arp,
                  bool to_us_alone)
{
    const struct rte_ether_addr *us = &ifp->ip->port->mac;
    bool about_us = own_find(ifp, &arp->target) != NULL;
    bool gratuitous = inet_same(&arp->sender, &arp->target);
    unsigned flags = NEIGH_OVERRIDE;

    if (inet_is_none(&arp->sender) || !(about_us || gratuitous))
        return;
    if (!arp->request && about_us && to_us_alone && rte_is_same_ether_addr(&arp->target_mac, us))
        flags |= NEIGH_SOLICITED;
    if (arp->request && about_us)
        flags |= NEIGH_ASKED;
    neigh_tell(sh, ifp, &arp->sender, &arp->sender_mac, flags);
}

enum pkt_drop arp_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m)
{
    const struct rte_ether_hdr *eth = rte_pktmbuf_mtod(m, const struct rte_ether_hdr *);
    struct arp_msg arp;
    const struct inet_own *own;
    enum pkt_drop why = arp_decode((const uint8_t *)(eth + 1), m->data_len - sizeof(*eth), &arp);

    count_add(&sh->stats.arp_received, 1);
    if (why != PKT_DROP_NONE)
        return why;
    if (conflict(sh, ifp, &arp))
        return PKT_DROP_ARP_CONFLICT;
    if (rte_is_same_ether_addr(&arp.sender_mac, &ifp->ip->port->mac))
        return PKT_DROP_ARP_BAD; /* our own, come back */
    own = own_find(ifp, &arp.target);
    if (arp.request && own && own_usable(own))
        put(sh, ifp, OP_REPLY, &arp.target, &arp.sender, &arp.sender_mac, &arp.sender_mac);
    learn(sh, ifp, &arp, !rte_is_multicast_ether_addr(&eth->dst_addr));
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}
