/* SPDX-License-Identifier: BSD-3-Clause */
/* The validators of Ethernet's payloads below TCP. See inet_wire.h. */
#include "lib/lnd_eth/ip/inet_wire.h"
#include "lib/base/minmax.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <rte_ip.h>

#define IP4_MORE_FRAGMENTS 0x2000
#define IP4_OFFSET         0x1fff
#define IP4_OPT_END        0
#define IP4_OPT_NOP        1
#define IP4_OPT_LSRR       131
#define IP4_OPT_SSRR       137
#define IP6_OPT_PAD1       0
#define IP6_OPT_ALERT      5 /* RFC 2711 §2.1 */
#define ALERT_FOR_MLD      0
#define MLD2_SIZE          28 /* RFC 3810 §5.1, without sources */

/* ---- IPv4 ---- */

/* RFC 791 §3.1. Routes that the sender wants (RFC 7126) are refused, others passed over. */
static bool ip4_options_fine(const uint8_t *p, size_t len)
{
    while (len > 0 && p[0] != IP4_OPT_END) {
        size_t size = 1;

        if (p[0] != IP4_OPT_NOP) {
            if (len < 2 || p[1] < 2 || p[1] > len || p[0] == IP4_OPT_LSRR || p[0] == IP4_OPT_SSRR)
                return false;
            size = p[1];
        }
        p += size;
        len -= size;
    }
    return true;
}

enum pkt_drop ip4_decode(const uint8_t *p, size_t have, size_t len, bool csum_ok,
                         struct inet_hdr *out)
{
    size_t hdr, total;

    if (have < IP4_SIZE || len < have)
        return PKT_DROP_ETH_SHORT;
    hdr = (size_t)(p[0] & 0x0f) * 4;
    total = inet_get16(p + 2);
    if (p[0] >> 4 != 4 || hdr < IP4_SIZE || hdr > have || total < hdr || total > len)
        return PKT_DROP_IP_BAD;
    if (!csum_ok && rte_raw_cksum(p, hdr) != 0xffff)
        return PKT_DROP_IP_CSUM;
    if ((inet_get16(p + 6) & (IP4_MORE_FRAGMENTS | IP4_OFFSET)) != 0)
        return PKT_DROP_IP_FRAGMENT;
    if (!ip4_options_fine(p + IP4_SIZE, hdr - IP4_SIZE))
        return PKT_DROP_IP_OPTIONS;
    *out = (struct inet_hdr){
        .family = 4,
        .proto = p[9],
        .tos = p[1],
        .hops = p[8],
        .l4 = (uint16_t)hdr,
        .len = (uint32_t)total,
        .problem = IP6_PROBLEM_NONE,
        .next = 9,
    };
    inet_addr4(&out->src, p + 12);
    inet_addr4(&out->dst, p + 16);
    return PKT_DROP_NONE;
}

/* ---- IPv6 ---- */

static enum pkt_drop problem(struct inet_hdr *out, uint8_t code, size_t pointer, bool multicast)
{
    out->problem = code;
    out->pointer = (uint32_t)pointer;
    out->problem_multicast = multicast;
    return PKT_DROP_IP_OPTIONS;
}

/* Options of a hop-by-hop or destination header, of which at..end is in p. RFC 8200 §4.2: the two
 * high bits of an unknown one say what becomes of the packet. */
static enum pkt_drop ip6_options(const uint8_t *p, size_t at, size_t end, struct inet_hdr *out)
{
    while (at < end) {
        if (p[at] == IP6_OPT_PAD1) {
            at++;
            continue;
        }
        if (end - at < 2 || p[at + 1] > end - at - 2)
            return PKT_DROP_IP_BAD;
        if (out->proto == IPPROTO_HOPOPTS && p[at] == IP6_OPT_ALERT && p[at + 1] == 2 &&
            inet_get16(p + at + 2) == ALERT_FOR_MLD)
            out->router_alert = true;
        switch (p[at] >> 6) {
        case 0:
            break;
        case 1:
            return PKT_DROP_IP_OPTIONS;
        default:
            return problem(out, 2, at, p[at] >> 6 == 2);
        }
        at += 2 + (size_t)p[at + 1];
    }
    return PKT_DROP_NONE;
}

static enum pkt_drop ip6_extension(const uint8_t *p, size_t at, size_t size, bool first,
                                   struct inet_hdr *out)
{
    switch (out->proto) {
    case IPPROTO_HOPOPTS:
        /* Only at the very beginning, §4.1. */
        if (!first)
            return problem(out, 1, out->next, false);
        return ip6_options(p, at + 2, at + size, out);
    case IPPROTO_DSTOPTS:
        return ip6_options(p, at + 2, at + size, out);
    default: /* routing, §4.4: passed over when it has been used up */
        return p[at + 3] == 0 ? PKT_DROP_NONE : problem(out, 0, at + 2, false);
    }
}

static bool is_extension(uint8_t proto)
{
    return proto == IPPROTO_HOPOPTS || proto == IPPROTO_DSTOPTS || proto == IPPROTO_ROUTING;
}

enum pkt_drop ip6_decode(const uint8_t *p, size_t have, size_t len, struct inet_hdr *out)
{
    size_t total, at = IP6_SIZE;
    enum pkt_drop why;

    if (have < IP6_SIZE || len < have)
        return PKT_DROP_ETH_SHORT;
    total = IP6_SIZE + (size_t)inet_get16(p + 4);
    if (p[0] >> 4 != 6 || total > len)
        return PKT_DROP_IP_BAD;
    *out = (struct inet_hdr){
        .family = 6,
        .proto = p[6],
        .tos = (uint8_t)(inet_get16(p) >> 4),
        .hops = p[7],
        .len = (uint32_t)total,
        .problem = IP6_PROBLEM_NONE,
        .next = 6,
    };
    memcpy(out->src.b, p + 8, 16);
    memcpy(out->dst.b, p + 24, 16);
    have = min(have, total);
    for (unsigned n = 0; is_extension(out->proto); n++) {
        size_t size;

        if (n == IP6_EXTENSIONS_MAX)
            return PKT_DROP_IP_OPTIONS;
        if (have - at < 8)
            return total - at < 8 ? PKT_DROP_IP_BAD : PKT_DROP_IP_OPTIONS;
        size = ((size_t)p[at + 1] + 1) * 8;
        if (size > total - at)
            return PKT_DROP_IP_BAD;
        if (size > have - at)
            return PKT_DROP_IP_OPTIONS;
        why = ip6_extension(p, at, size, n == 0, out);
        if (why != PKT_DROP_NONE)
            return why;
        out->proto = p[at];
        out->next = (uint16_t)at;
        at += size;
    }
    if (out->proto == IPPROTO_FRAGMENT)
        return PKT_DROP_IP_FRAGMENT;
    out->l4 = (uint16_t)at;
    return PKT_DROP_NONE;
}

/* ---- ARP ---- */

enum pkt_drop arp_decode(const uint8_t *p, size_t have, struct arp_msg *out)
{
    static const uint8_t begin[6] = {0, 1, 8, 0, 6, 4}; /* Ethernet, IPv4, their lengths */
    uint16_t op;

    if (have < ARP_SIZE)
        return PKT_DROP_ETH_SHORT;
    op = inet_get16(p + 6);
    if (memcmp(p, begin, sizeof(begin)) != 0 || (op != 1 && op != 2))
        return PKT_DROP_ARP_BAD;
    out->request = op == 1;
    memcpy(&out->sender_mac, p + 8, 6);
    inet_addr4(&out->sender, p + 14);
    memcpy(&out->target_mac, p + 18, 6);
    inet_addr4(&out->target, p + 24);
    if (!rte_is_valid_assigned_ether_addr(&out->sender_mac))
        return PKT_DROP_ARP_BAD;
    /* The reply to a probe (RFC 5227) is addressed to no address. */
    if ((!inet_is_unicast(&out->target) && (out->request || !inet_is_none(&out->target))) ||
        (!inet_is_unicast(&out->sender) && !(out->request && inet_is_none(&out->sender))))
        return PKT_DROP_ARP_BAD;
    return PKT_DROP_NONE;
}

/* ---- neighbour discovery ---- */

/* RFC 4861 §4.6: options of no length are refused, unknown ones passed over. */
static enum pkt_drop nd_options(const uint8_t *p, size_t len, struct nd_msg *out)
{
    uint8_t wanted = out->solicit ? 1 : 2;

    while (len > 0) {
        size_t size;

        if (len < 8)
            return PKT_DROP_ND_BAD;
        size = (size_t)p[1] * 8;
        if (size == 0 || size > len)
            return PKT_DROP_ND_BAD;
        if (p[0] == wanted && size == 8 && !out->has_mac) {
            memcpy(&out->mac, p + 2, 6);
            if (!rte_is_valid_assigned_ether_addr(&out->mac))
                return PKT_DROP_ND_BAD;
            out->has_mac = true;
        }
        p += size;
        len -= size;
    }
    return PKT_DROP_NONE;
}

/* RFC 4861 §7.1.1, §7.1.2. */
enum pkt_drop nd_decode(const uint8_t *p, size_t len, const struct inet_hdr *ip, struct nd_msg *out)
{
    struct inet_addr node;
    enum pkt_drop why;

    if (len < ND_SIZE || ip->hops != ND_HOP_LIMIT || p[1] != 0)
        return PKT_DROP_ND_BAD;
    *out = (struct nd_msg){.solicit = p[0] == 135};
    memcpy(out->target.b, p + 8, 16);
    if (!inet_is_unicast(&out->target) || inet_is4(&out->target))
        return PKT_DROP_ND_BAD;
    why = nd_options(p + ND_SIZE, len - ND_SIZE, out);
    if (why != PKT_DROP_NONE)
        return why;
    if (out->solicit) {
        inet_solicited_node(&out->target, &node);
        if (inet_is_none(&ip->src) && (out->has_mac || !inet_same(&ip->dst, &node)))
            return PKT_DROP_ND_BAD;
    } else {
        out->solicited = p[4] & 0x40;
        out->override = p[4] & 0x20;
        if (inet_is_none(&ip->src) || (out->solicited && inet_is_multicast(&ip->dst)))
            return PKT_DROP_ND_BAD;
    }
    return PKT_DROP_NONE;
}

/* ---- multicast listener discovery ---- */

/* RFC 3810 §5.1.3: milliseconds, large ones by mantissa and exponent. */
static uint32_t mld_delay(uint16_t code)
{
    if (code < 0x8000)
        return code;
    return ((uint32_t)(code & 0xfff) | 0x1000) << ((code >> 12 & 7) + 3);
}

/* §5.1.14, §6.2, §8.1. */
enum pkt_drop mld_decode(const uint8_t *p, size_t len, const struct inet_hdr *ip,
                         struct mld_query *out)
{
    bool v1 = len == MLD_SIZE;

    if ((!v1 && len < MLD2_SIZE) || ip->hops != 1 || !ip->router_alert ||
        !inet_is_link_local(&ip->src))
        return PKT_DROP_ICMP_BAD;
    if (!v1 && len - MLD2_SIZE < (size_t)inet_get16(p + 26) * 16)
        return PKT_DROP_ICMP_BAD;
    *out = (struct mld_query){.v1 = v1,
                              .within_ms = v1 ? inet_get16(p + 4) : mld_delay(inet_get16(p + 4))};
    memcpy(out->group.b, p + 8, 16);
    if (!inet_is_none(&out->group) && out->group.b[0] != 0xff)
        return PKT_DROP_ICMP_BAD;
    return PKT_DROP_NONE;
}

/* ---- what ICMP errors quote ---- */

static bool quote4(const uint8_t *p, size_t have, size_t *l4, uint16_t *len, struct inet_error *out)
{
    if (have < IP4_SIZE || p[0] >> 4 != 4)
        return false;
    *l4 = (size_t)(p[0] & 0x0f) * 4;
    *len = inet_get16(p + 2);
    inet_addr4(&out->local, p + 12);
    inet_addr4(&out->remote, p + 16);
    return *l4 >= IP4_SIZE && (inet_get16(p + 6) & IP4_OFFSET) == 0 && p[9] == IPPROTO_TCP;
}

static bool quote6(const uint8_t *p, size_t have, size_t *l4, uint16_t *len, struct inet_error *out)
{
    if (have < IP6_SIZE || p[0] >> 4 != 6)
        return false;
    *l4 = IP6_SIZE; /* we send no extension headers */
    *len = (uint16_t)min(inet_get16(p + 4) + IP6_SIZE, UINT16_MAX);
    memcpy(out->local.b, p + 8, 16);
    memcpy(out->remote.b, p + 24, 16);
    return !inet_is4(&out->local) && !inet_is4(&out->remote) && p[6] == IPPROTO_TCP;
}

bool icmp_quote_decode(const uint8_t *p, size_t have, uint8_t family, struct inet_error *out,
                       uint16_t *len)
{
    size_t l4;

    if (!(family == 4 ? quote4(p, have, &l4, len, out) : quote6(p, have, &l4, len, out)) ||
        have < l4 + 8 || *len < l4 + 20)
        return false;
    out->lport = inet_get16(p + l4);
    out->rport = inet_get16(p + l4 + 2);
    out->seq = inet_get32(p + l4 + 4);
    return true;
}

/* ---- addresses ---- */

static const uint8_t zero[16];

bool inet_is_none(const struct inet_addr *a)
{
    return inet_is4(a) ? memcmp(a->b + 12, zero, 4) == 0 : memcmp(a->b, zero, 16) == 0;
}

bool inet_is_unicast(const struct inet_addr *a)
{
    if (inet_is4(a)) /* not 0/8, 127/8, multicast, 240/4 and broadcast */
        return a->b[12] != 0 && a->b[12] != 127 && a->b[12] < 0xe0;
    /* Not multicast, and nothing of ::/64: unspecified, loopback, embedded IPv4. */
    return a->b[0] != 0xff && memcmp(a->b, zero, 8) != 0;
}

bool inet_in_prefix(const struct inet_addr *a, const struct inet_prefix *p)
{
    unsigned bits = p->bits + (inet_is4(&p->addr) ? 96u : 0u);

    if (inet_is4(a) != inet_is4(&p->addr) || memcmp(a->b, p->addr.b, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || (a->b[bits / 8] ^ p->addr.b[bits / 8]) >> (8 - bits % 8) == 0;
}

bool inet_is_net_broadcast(const struct inet_addr *a, const struct inet_prefix *net)
{
    uint32_t host;

    if (!inet_is4(a) || net->bits > 30 || !inet_in_prefix(a, net)) /* RFC 3021: no such of 31 */
        return false;
    host = inet_get32(a->b + 12) & (UINT32_MAX >> net->bits);
    return host == 0 || host == UINT32_MAX >> net->bits;
}

void inet_solicited_node(const struct inet_addr *a, struct inet_addr *out)
{
    static const uint8_t begin[13] = {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};

    memcpy(out->b, begin, 13);
    memcpy(out->b + 13, a->b + 13, 3);
}

const char *inet_text(const struct inet_addr *a, char buf[INET_TEXT_MAX])
{
    if (inet_is4(a))
        inet_ntop(AF_INET, a->b + 12, buf, INET_TEXT_MAX);
    else
        inet_ntop(AF_INET6, a->b, buf, INET_TEXT_MAX);
    return buf;
}
