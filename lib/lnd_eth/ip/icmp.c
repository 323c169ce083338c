/* SPDX-License-Identifier: BSD-3-Clause */
/* ICMP, RFC 792, with the limits of RFC 1122 §3.2.2 and RFC 1812 §4.3.2; and what ICMPv6 has in
 * common with it. */
#include "lib/lnd_eth/ip/inet_internal.h"

#include <netinet/in.h>

#include <rte_ip.h>

#define ICMP_SIZE      8
#define ECHO_REPLY     0
#define UNREACHABLE    3
#define ECHO           8
#define TIME_EXCEEDED  11
#define PROBLEM        12
#define TOO_BIG        4 /* code of UNREACHABLE */
#define ECHOES_PER_SEC 10000
#define ECHOES_BURST   1000
#define ERRORS_PER_SEC 100
#define ERRORS_BURST   50
#define QUOTE_ROOM     (576 - IP4_SIZE - ICMP_SIZE)  /* RFC 1812 §4.3.2.3 */
#define QUOTE_ROOM6    (1280 - IP6_SIZE - ICMP_SIZE) /* RFC 4443 §2.4 (c) */

/* ---- checksums ---- */

static uint32_t chain_sum(const struct rte_mbuf *m, uint32_t off, uint32_t len)
{
    uint16_t sum = 0;

    if (rte_raw_cksum_mbuf(m, off, len, &sum) < 0)
        return 0;
    return sum;
}

static uint16_t fold(uint32_t sum)
{
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)((sum & 0xffff) + (sum >> 16));
}

bool icmp_csum_fine(const struct rte_mbuf *m, uint32_t off, uint32_t len, uint32_t pseudo)
{
    return fold(chain_sum(m, off, len) + pseudo) == 0xffff;
}

void icmp_csum_put(struct rte_mbuf *m, uint32_t pseudo)
{
    uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);
    uint16_t sum;

    memset(p + 2, 0, 2);
    sum = (uint16_t)~fold(chain_sum(m, 0, m->pkt_len) + pseudo);
    memcpy(p + 2, &sum, 2);
}

/* ---- sending ---- */

static void icmp_send(struct inet_shard *sh, struct inet_if *ifp, const struct inet_addr *src,
                      const struct inet_addr *dst, struct rte_mbuf *m)
{
    struct inet_addr next_hop;

    if (!route_find(ifp, dst, &next_hop)) {
        out_drop(sh, ifp, m, PKT_DROP_IP_NO_ROUTE);
        return;
    }
    if (!out_ip(sh, ifp, src, dst, ifp->mtu, m, inet_is4(src) ? IPPROTO_ICMP : IPPROTO_ICMPV6, 0,
                0))
        return;
    count_add(&sh->stats.icmp_sent, 1);
    neigh_output(sh, ifp, &next_hop, NULL, m);
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

void icmp_echo(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
               const struct inet_hdr *ip, uint8_t reply)
{
    uint16_t l4 = pkt_of(m)->l4;
    uint8_t head[ICMP_SIZE];

    if (!bucket_take(&sh->echo_bucket, ECHOES_PER_SEC, ECHOES_BURST)) {
        inet_drop(sh, m, PKT_DROP_ICMP_LIMIT);
        return;
    }
    count_add(&sh->stats.echoes, 1);
    memcpy(head, rte_pktmbuf_mtod_offset(m, const uint8_t *, l4), ICMP_SIZE);
    head[0] = reply;
    rte_pktmbuf_adj(m, (uint16_t)(l4 + ICMP_SIZE));
    m = put_head(sh, ifp, m, head);
    if (!m)
        return;
    icmp_csum_put(m, ip->family == 4 ? 0 : icmp6_pseudo(&ip->dst, &ip->src, m->pkt_len));
    icmp_send(sh, ifp, &ip->dst, &ip->src, m);
}

/* ---- errors ---- */

void icmp_send_back(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                    const struct inet_hdr *ip, const uint8_t head[8], enum pkt_drop why)
{
    const struct inet_own *own = own_find(ifp, &ip->dst);

    if (!own)
        own = if_source(ifp, ip->family == 4);
    /* Without a source there is no addressee. */
    if (!own || inet_is_none(&ip->src)) {
        inet_drop(sh, m, why);
        return;
    }
    if (!bucket_take(&sh->error_bucket, ERRORS_PER_SEC, ERRORS_BURST)) {
        inet_drop(sh, m, PKT_DROP_ICMP_LIMIT);
        return;
    }
    inet_drop_keep(sh, m, why);
    rte_pktmbuf_adj(m, RTE_ETHER_HDR_LEN);
    pkt_cut(m, min(ip->len, ip->family == 4 ? (uint32_t)QUOTE_ROOM : (uint32_t)QUOTE_ROOM6));
    m = put_head(sh, ifp, m, head);
    if (!m)
        return;
    icmp_csum_put(m, ip->family == 4 ? 0 : icmp6_pseudo(&own->net.addr, &ip->src, m->pkt_len));
    icmp_send(sh, ifp, &own->net.addr, &ip->src, m);
}

void icmp_error_send(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                     const struct inet_hdr *ip, uint8_t type, uint8_t code, enum pkt_drop why)
{
    uint8_t head[ICMP_SIZE] = {type, code};

    icmp_send_back(sh, ifp, m, ip, head, why);
}

static void tell_tcp(struct inet_shard *sh, const struct note *n)
{
    const struct inet_upper *tcp = &sh->inet->opts.tcp;

    if (!tcp->error)
        return;
    tcp->error(tcp->ctx, sh, (enum inet_icmp_error)n->what, &n->a, &n->b, n->lport, n->rport,
               n->seq, n->mtu);
    hand_note(sh, n);
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

/* The quoted packet must be one that we may have sent; one reported as too large must exceed the
 * reported MTU. TCP checks connections and sequence numbers. */
void icmp_error_heard(struct inet_shard *sh, struct rte_mbuf *m, uint32_t at, uint8_t family,
                      enum inet_icmp_error what, unsigned mtu)
{
    uint32_t end = min((uint32_t)m->data_len, pkt_of(m)->l4 + pkt_of(m)->l4_len);
    struct inet_if *ifp = pkt_of(m)->ifp;
    struct icmp_quote q;
    struct note note;

    if (end < at ||
        !icmp_quote_decode(rte_pktmbuf_mtod_offset(m, const uint8_t *, at), end - at, family, &q)) {
        inet_drop(sh, m, PKT_DROP_ICMP_BAD);
        return;
    }
    if (what == INET_ICMP_TOO_BIG && family == 4 && mtu == 0)
        mtu = plateau(q.len);
    if (!own_find(ifp, &q.src) || !inet_is_unicast(&q.dst) ||
        (what == INET_ICMP_TOO_BIG && mtu >= pmtu_get(sh, &q.dst, ifp->mtu))) {
        inet_drop(sh, m, PKT_DROP_ICMP_IGNORED);
        return;
    }
    note = (struct note){.kind = NOTE_ICMP_ERROR,
                         .what = (uint8_t)what,
                         .lport = q.sport,
                         .rport = q.dport,
                         .seq = q.seq,
                         .mtu = (uint16_t)mtu,
                         .a = q.src,
                         .b = q.dst};
    tell_tcp(sh, &note);
    rte_pktmbuf_free(m);
}

/* RFC 1122 §3.2.2.1 and RFC 1812 §5.2.7.1: what a code says about trying again. */
static enum inet_icmp_error meaning(uint8_t code)
{
    switch (code) {
    case 2:
    case 3:
    case 9:
    case 10:
    case 13:
        return INET_ICMP_REFUSED;
    case TOO_BIG:
        return INET_ICMP_TOO_BIG;
    default:
        return INET_ICMP_UNREACHABLE;
    }
}

void icmp_input(struct inet_shard *sh, struct inet_if *ifp, struct rte_mbuf *m,
                const struct inet_hdr *ip)
{
    const struct pkt *pkt = pkt_of(m);
    const uint8_t *p = rte_pktmbuf_mtod_offset(m, const uint8_t *, pkt->l4);
    uint32_t quote = pkt->l4 + ICMP_SIZE;

    count_add(&sh->stats.icmp_received, 1);
    if (pkt->l4_len < ICMP_SIZE || !icmp_csum_fine(m, pkt->l4, pkt->l4_len, 0)) {
        inet_drop(sh, m, PKT_DROP_ICMP_BAD);
        return;
    }
    switch (p[0]) {
    case ECHO:
        icmp_echo(sh, ifp, m, ip, ECHO_REPLY);
        break;
    case UNREACHABLE:
        icmp_error_heard(sh, m, quote, 4, meaning(p[1]),
                         p[1] == TOO_BIG ? (unsigned)(p[6] << 8 | p[7]) : 0);
        break;
    case TIME_EXCEEDED:
    case PROBLEM:
        icmp_error_heard(sh, m, quote, 4, INET_ICMP_OTHER, 0);
        break;
    default:
        inet_drop(sh, m, PKT_DROP_ICMP_IGNORED);
    }
}
