/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers questions about one address: the path to it, and which of its packets were dropped
 * recently. Each shard keeps the drops in a small table by address and reason. A newer entry
 * replaces the older one, so a flood of made-up addresses only pushes out memories.
 */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <rte_ether.h>

#define ARP_SENDER 14 /* offsets in an ARP packet, IPv4's and IPv6's header */
#define IP4_SRC    12
#define IP6_SRC    8

/* ---- drops ---- */

static struct inet_recent *place_of(struct inet_shard *sh, const struct inet_addr *addr,
                                    enum pkt_drop why)
{
    return &sh->recent[inet_hash(addr, why) % INET_RECENT];
}

void look_drop_addr(struct inet_shard *sh, const struct inet_addr *addr, enum pkt_drop why)
{
    struct inet_recent *r = place_of(sh, addr, why);

    if (r->why != why || !inet_same(&r->addr, addr))
        *r = (struct inet_recent){.addr = *addr, .why = (uint8_t)why};
    r->count++;
    r->last_us = reactor_now_us();
}

/* The other end's address in the frame, of which have bytes from L3 on are at p. False: it has
 * none. */
static bool other_end(const uint8_t *p, size_t have, uint16_t type, bool out, struct inet_addr *to)
{
    switch (type) {
    case RTE_ETHER_TYPE_IPV4:
        if (have < IP4_SIZE)
            return false;
        inet_addr4(to, p + IP4_SRC + (out ? 4 : 0));
        return true;
    case RTE_ETHER_TYPE_IPV6:
        if (have < IP6_SIZE)
            return false;
        memcpy(to->b, p + IP6_SRC + (out ? 16 : 0), 16);
        return true;
    case RTE_ETHER_TYPE_ARP:
        if (have < ARP_SIZE)
            return false;
        inet_addr4(to, p + ARP_SENDER + (out ? 10 : 0));
        return true;
    default:
        return false;
    }
}

void inet_look_drop(struct inet_shard *sh, const struct rte_mbuf *m, bool out, enum pkt_drop why)
{
    const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
    size_t have = m->data_len;
    struct inet_addr addr;
    uint16_t type;

    if (!out || m->l2_len != 0) {
        if (have < RTE_ETHER_HDR_LEN)
            return;
        type = inet_get16(p + 12);
        p += RTE_ETHER_HDR_LEN;
        have -= RTE_ETHER_HDR_LEN;
    } else if (m->l3_len != 0) {
        type = m->l3_len == IP6_SIZE ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4;
    } else {
        return;
    }
    if (other_end(p, have, type, out, &addr))
        look_drop_addr(sh, &addr, why);
}

unsigned inet_drops_of(struct inet_shard *sh, const struct inet_addr *remote, uint64_t within_us,
                       struct inet_drop_row out[PKT_DROP_COUNT])
{
    uint64_t now = reactor_now_us();
    unsigned n = 0;

    for (int why = PKT_DROP_NONE + 1; why < PKT_DROP_COUNT; why++) {
        const struct inet_recent *r = place_of(sh, remote, (enum pkt_drop)why);

        if (r->why != why || !inet_same(&r->addr, remote) || now - r->last_us > within_us)
            continue;
        out[n++] = (struct inet_drop_row){
            .why = (enum pkt_drop)why, .count = r->count, .age_us = now - r->last_us};
    }
    return n;
}

/* ---- the way ---- */

int inet_path_look(struct inet_shard *sh, const struct inet_addr *local,
                   const struct inet_addr *remote, struct inet_path_row *out)
{
    struct inet_path path;
    int rc = inet_path_get(sh, NULL, local, remote, &path);

    *out = (struct inet_path_row){.neigh = {.reactor = sh->index, .age_us = UINT64_MAX}};
    if (rc < 0)
        return rc;
    out->mtu = path.mtu;
    if (path.neigh == INET_NEIGH_NONE) {
        out->neigh.addr = path.next_hop;
        out->neigh.state = "unknown";
        memcpy(out->neigh.ifname, path.ifp->name, sizeof(out->neigh.ifname));
    } else {
        neigh_row(sh, path.neigh, &out->neigh);
    }
    return 0;
}
