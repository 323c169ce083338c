/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP (RFC 792, with the limits of RFC 1122 §3.2.2 and RFC 1812 §4.3.2) and ICMPv6 (RFC 4443).
 * Routers' advertisements and redirects change nothing: addresses and routes are configured. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_ip.h>

#define ICMP_SIZE      8
#define TOO_BIG4       4 /* code of UNREACHABLE4 */
#define ECHOES_PER_SEC 10000
#define ECHOES_BURST   1000
#define ERRORS_PER_SEC 100
#define ERRORS_BURST   50
#define QUOTE_ROOM     (576 - IP4_SIZE - ICMP_SIZE)  /* RFC 1812 §4.3.2.3 */
#define QUOTE_ROOM6    (1280 - IP6_SIZE - ICMP_SIZE) /* RFC 4443 §2.4 (c) */

enum { /* types */
    ECHO_REPLY4 = 0,
    UNREACHABLE4 = 3,
    ECHO4 = 8,
    TIME_EXCEEDED4 = 11,
    PROBLEM4 = 12,
    UNREACHABLE6 = 1,
    TOO_BIG6 = 2,
    TIME_EXCEEDED6 = 3,
    PROBLEM6 = 4,
    ECHO6 = 128,
    ECHO_REPLY6 = 129,
    QUERY6 = 130,
    SOLICIT6 = 135,
    ADVERT6 = 136,
};

/* ---- checksums ---- */

/* Sum of the pseudo header of IPv6, RFC 8200 §8.1; IPv4 has none. */
static uint32_t pseudo(const struct inet_addr *src, const struct inet_addr *dst, uint32_t len)
{
    struct {
        struct inet_addr src, dst;
        rte_be32_t len, proto;
    } header = {*src, *dst, rte_cpu_to_be_32(len), rte_cpu_to_be_32(IPPROTO_ICMPV6)};

    return inet_is4(src) ? 0 : rte_raw_cksum(&header, sizeof(header));
}

void icmp_csum_put(struct rte_mbuf *m, const struct inet_addr *src, const struct inet_addr *dst)
{
    uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);
    uint16_t sum;

    memset(p + 2, 0, 2);
    sum = (uint16_t)~csum_chain(m, 0, m->pkt_len, pseudo(src, dst, m->pkt_len));
    memcpy(p + 2, &sum, 2);
}

/* ---- sending ---- */

static void icmp_send(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
                      const struct inet_addr *dst, struct rte_mbuf *m)
{
    struct inet_addr next_hop;

    icmp_csum_put(m, src, dst);
    if (!route_find(ifp, dst, &next_hop)) {
        out_drop(sh, ifp, m, PKT_DROP_IP_NO_ROUTE);
        return;
    }
    if (!out_ip(sh, ifp, src, dst, ifp->mtu, m, inet_is4(src) ? IPPROTO_ICMP : IPPROTO_ICMPV6, 0,
                0))
        return;
    count_add(&sh->stats.icmp_sent, 1);
    neigh_output(sh, ifp, &next_hop, NULL, false, m);
}

/* A header of 8 bytes with m as what follows it; takes m. NULL: no buffer, m is gone. */
static struct rte_mbuf *put_head(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                                 const uint8_t head[ICMP_SIZE])
{
    struct rte_mbuf *h = port_tx_alloc(ifp->ip->port);
    uint8_t *p = !h ? NULL : (uint8_t *)rte_pktmbuf_append(h, ICMP_SIZE);
    bool empty = m->pkt_len == 0;

    m->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL; /* whose its bytes are */
    if (!p || (!empty && rte_pktmbuf_chain(h, m) < 0)) {
        rte_pktmbuf_free(h);
        rte_pktmbuf_free(m);
        inet_count_drop(sh, PKT_DROP_NO_MBUF);
        return NULL;
    }
    memcpy(p, head, ICMP_SIZE);
    if (empty)
        rte_pktmbuf_free(m);
    return h;
}

/* ---- echo ---- */

/* Answers an echo request with a message of type reply. */
static enum pkt_drop echo(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                          const struct inet_hdr *ip, uint8_t reply)
{
    uint16_t l4 = pkt_of(m)->l4;
    uint8_t head[ICMP_SIZE];

    if (!bucket_take(&sh->echo_bucket, ECHOES_PER_SEC, ECHOES_BURST))
        return PKT_DROP_ICMP_LIMIT;
    count_add(&sh->stats.echoes, 1);
    memcpy(head, rte_pktmbuf_mtod_offset(m, const uint8_t *, l4), ICMP_SIZE);
    head[0] = reply;
    rte_pktmbuf_adj(m, (uint16_t)(l4 + ICMP_SIZE));
    m = put_head(sh, ifp, m, head);
    if (m)
        icmp_send(sh, ifp, &ip->dst, &ip->src, m);
    return PKT_DROP_NONE;
}

/* ---- errors ---- */

enum pkt_drop icmp_error_send(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                              const struct inet_hdr *ip, uint8_t type, uint8_t code, uint32_t param,
                              enum pkt_drop why)
{
    const struct inet_own *own = own_find(ifp, &ip->dst);
    uint8_t head[ICMP_SIZE] = {type, code};

    if (!own)
        own = if_source(ifp, ip->family == 4);
    /* Without a source there is no addressee. */
    if (!own || inet_is_none(&ip->src))
        return why;
    if (!bucket_take(&sh->error_bucket, ERRORS_PER_SEC, ERRORS_BURST))
        return PKT_DROP_ICMP_LIMIT;
    inet_drop_keep(sh, pkt_of(m)->ifp, m, false, why);
    rte_pktmbuf_adj(m, RTE_ETHER_HDR_LEN);
    pkt_cut(m, min(ip->len, ip->family == 4 ? (uint32_t)QUOTE_ROOM : (uint32_t)QUOTE_ROOM6));
    param = rte_cpu_to_be_32(param);
    memcpy(head + 4, &param, sizeof(param));
    m = put_head(sh, ifp, m, head);
    if (m)
        icmp_send(sh, ifp, &own->net.addr, &ip->src, m);
    return PKT_DROP_NONE;
}

/* An old router does not say what would fit: the next smaller of the usual ones, RFC 1191 §7. */
static unsigned plateau(unsigned len)
{
    static const uint16_t usual[] = {8166, 4352, 2002, 1492, 1006, INET_MTU_MIN4};

    for (unsigned i = 0; i < RTE_DIM(usual); i++)
        if (usual[i] < len)
            return usual[i];
    return INET_MTU_MIN4;
}

/* An error about a packet that it quotes behind its header: TCP is told, on all reactors. The
 * quoted packet must be one that we may have sent; one reported as too large must exceed the
 * reported MTU. TCP checks connections and sequence numbers. */
static enum pkt_drop error_heard(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                                 enum inet_icmp_error what, unsigned mtu)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;
    const struct pkt *pkt = pkt_of(m);
    uint32_t at = pkt->l4 + ICMP_SIZE, end = min((uint32_t)m->data_len, pkt->l4 + pkt->l4_len);
    struct note note = {.kind = NOTE_ICMP_ERROR, .error.what = what};
    uint16_t len;

    if (end < at || !icmp_quote_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, at), end - at,
                                       pkt->family, &note.error, &len))
        return PKT_DROP_ICMP_BAD;
    if (what == INET_ICMP_TOO_BIG && pkt->family == 4 && mtu == 0)
        mtu = plateau(len);
    if (!own_find(ifp, &note.error.local) || !inet_is_unicast(&note.error.remote) ||
        (what == INET_ICMP_TOO_BIG && mtu >= pmtu_get(sh, &note.error.remote, ifp->mtu)))
        return PKT_DROP_ICMP_IGNORED;
    note.error.mtu = (uint16_t)mtu;
    if (tcp->error) {
        tcp->error(tcp->ctx, sh, &note.error);
        hand_note(sh, &note);
    }
    rte_pktmbuf_free(m);
    return PKT_DROP_NONE;
}

/* RFC 1122 §3.2.2.1 and RFC 1812 §5.2.7.1: what a code says about trying again. */
static enum inet_icmp_error meaning4(uint8_t code)
{
    switch (code) {
    case 2:
    case 3:
    case 9:
    case 10:
    case 13:
        return INET_ICMP_REFUSED;
    case TOO_BIG4:
        return INET_ICMP_TOO_BIG;
    default:
        return INET_ICMP_UNREACHABLE;
    }
}

/* RFC 4443 §3.1, §3.4: no route and addresses may come back; what a filter or the station itself
 * refuses does not. */
static enum inet_icmp_error meaning6(uint8_t type, uint8_t code)
{
    if (type == UNREACHABLE6)
        return code == 1 || code >= 4 ? INET_ICMP_REFUSED : INET_ICMP_UNREACHABLE;
    return type == PROBLEM6 && code == 1 ? INET_ICMP_REFUSED : INET_ICMP_OTHER;
}

/* ---- receiving ---- */

static enum pkt_drop input4(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                            const struct inet_hdr *ip, const uint8_t *p)
{
    switch (p[0]) {
    case ECHO4:
        return echo(sh, ifp, m, ip, ECHO_REPLY4);
    case UNREACHABLE4:
        return error_heard(sh, ifp, m, meaning4(p[1]), p[1] == TOO_BIG4 ? inet_get16(p + 6) : 0);
    case TIME_EXCEEDED4:
    case PROBLEM4:
        return error_heard(sh, ifp, m, INET_ICMP_OTHER, 0);
    default:
        return PKT_DROP_ICMP_IGNORED;
    }
}

static enum pkt_drop input6(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                            const struct inet_hdr *ip, const uint8_t *p)
{
    uint32_t mtu;

    if (p[0] == SOLICIT6 || p[0] == ADVERT6)
        return nd_input(sh, ifp, m, ip);
    if (p[0] == QUERY6)
        return mld_input(sh, ifp, m, ip);
    if (inet_is_multicast(&ip->dst) || inet_is_none(&ip->src))
        return PKT_DROP_ICMP_IGNORED;
    switch (p[0]) {
    case ECHO6:
        return echo(sh, ifp, m, ip, ECHO_REPLY6);
    case TOO_BIG6:
        memcpy(&mtu, p + 4, sizeof(mtu));
        mtu = rte_be_to_cpu_32(mtu);
        /* RFC 8201 §4: never below the least that every link must carry. */
        if (mtu < INET_MTU_MIN6)
            return PKT_DROP_ICMP_IGNORED;
        return error_heard(sh, ifp, m, INET_ICMP_TOO_BIG, min(mtu, (uint32_t)UINT16_MAX));
    case UNREACHABLE6:
    case TIME_EXCEEDED6:
    case PROBLEM6:
        return error_heard(sh, ifp, m, meaning6(p[0], p[1]), 0);
    default:
        return PKT_DROP_ICMP_IGNORED;
    }
}

enum pkt_drop icmp_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                         const struct inet_hdr *ip)
{
    const struct pkt *pkt = pkt_of(m);
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4);

    count_add(&sh->stats.icmp_received, 1);
    if (pkt->l4_len < ICMP_SIZE ||
        csum_chain(m, pkt->l4, pkt->l4_len, pseudo(&ip->src, &ip->dst, pkt->l4_len)) != 0xffff)
        return PKT_DROP_ICMP_BAD;
    return ip->family == 4 ? input4(sh, ifp, m, ip, p) : input6(sh, ifp, m, ip, p);
}
