/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMPv6, RFC 4443. Routers' advertisements and redirects change nothing: addresses and routes are
 * configured. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_ip.h>

#define ICMP_SIZE     8
#define UNREACHABLE   1
#define TOO_BIG       2
#define TIME_EXCEEDED 3
#define PROBLEM       4
#define ECHO          128
#define ECHO_REPLY    129
#define QUERY         130
#define SOLICIT       135
#define ADVERT        136

uint32_t icmp6_pseudo(const struct inet_addr *src, const struct inet_addr *dst, uint32_t len)
{
    struct {
        struct inet_addr src, dst;
        rte_be32_t len, proto;
    } pseudo = {*src, *dst, rte_cpu_to_be_32(len), rte_cpu_to_be_32(IPPROTO_ICMPV6)};

    return rte_raw_cksum(&pseudo, sizeof(pseudo));
}

void icmp6_error_send(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                      const struct inet_hdr *ip, uint8_t type, uint8_t code, uint32_t param,
                      enum pkt_drop why)
{
    uint8_t head[ICMP_SIZE] = {type, code};

    param = rte_cpu_to_be_32(param);
    memcpy(head + 4, &param, sizeof(param));
    icmp_send_back(sh, ifp, m, ip, head, why);
}

/* §3.1, §3.4: no route and addresses may come back; what a filter or the station itself refuses
 * does not. */
static enum inet_icmp_error meaning(uint8_t type, uint8_t code)
{
    if (type == UNREACHABLE)
        return code == 1 || code >= 4 ? INET_ICMP_REFUSED : INET_ICMP_UNREACHABLE;
    return type == PROBLEM && code == 1 ? INET_ICMP_REFUSED : INET_ICMP_OTHER;
}

static void too_big(struct inet_shard *sh, struct rte_mbuf *m, const uint8_t *p, uint32_t quote)
{
    uint32_t mtu;

    memcpy(&mtu, p + 4, sizeof(mtu));
    mtu = rte_be_to_cpu_32(mtu);
    /* RFC 8201 §4: never below the least that every link must carry. */
    if (mtu < INET_MTU_MIN6)
        inet_drop(sh, m, PKT_DROP_ICMP_IGNORED);
    else
        icmp_error_heard(sh, m, quote, 6, INET_ICMP_TOO_BIG, min(mtu, (uint32_t)UINT16_MAX));
}

void icmp6_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                 const struct inet_hdr *ip)
{
    const struct pkt *pkt = pkt_of(m);
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4);
    uint32_t quote = pkt->l4 + ICMP_SIZE;

    count_add(&sh->stats.icmp_received, 1);
    if (pkt->l4_len < ICMP_SIZE ||
        !icmp_csum_fine(m, pkt->l4, pkt->l4_len, icmp6_pseudo(&ip->src, &ip->dst, pkt->l4_len))) {
        inet_drop(sh, m, PKT_DROP_ICMP_BAD);
        return;
    }
    if (p[0] == SOLICIT || p[0] == ADVERT) {
        nd_input(sh, ifp, m, ip);
        return;
    }
    if (p[0] == QUERY) {
        mld_input(sh, ifp, m, ip);
        return;
    }
    if (inet_is_multicast(&ip->dst) || inet_is_none(&ip->src)) {
        inet_drop(sh, m, PKT_DROP_ICMP_IGNORED);
        return;
    }
    switch (p[0]) {
    case ECHO:
        icmp_echo(sh, ifp, m, ip, ECHO_REPLY);
        break;
    case TOO_BIG:
        too_big(sh, m, p, quote);
        break;
    case UNREACHABLE:
    case TIME_EXCEEDED:
    case PROBLEM:
        icmp_error_heard(sh, m, quote, 6, meaning(p[0], p[1]), 0);
        break;
    default:
        inet_drop(sh, m, PKT_DROP_ICMP_IGNORED);
    }
}
