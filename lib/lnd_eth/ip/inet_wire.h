/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Headers below TCP on the wire: one validator each, which reads nothing but the bytes it is given
 * and returns PKT_DROP_NONE or the reason to drop the packet. RFC 826, 791, 1122, 8200, 792, 4443,
 * 4861, 3810.
 */
#ifndef MILLRACE_INET_WIRE_H
#define MILLRACE_INET_WIRE_H

#include "lib/lnd_eth/ip/inet.h"

#define ARP_SIZE           28
#define IP4_SIZE           20
#define IP6_SIZE           40
#define IP6_EXTENSIONS_MAX 4   /* headers between IPv6 and what it carries */
#define IP_L4_MAX          132 /* offset from the Ethernet header: 60 bytes of PKT_HEADERS are left */
#define ND_SIZE            24 /* ICMPv6 header and target */
#define ND_HOP_LIMIT       255
#define MLD_SIZE           24 /* of MLDv1: ICMPv6 header, delay, group */

/* A checked IP header. Offsets are from its own first byte. */
struct inet_hdr {
    uint8_t family, proto, tos, hops;
    uint16_t l4;
    uint32_t len; /* of the packet */
    struct inet_addr src, dst;
    /* For a dropped IPv6 packet whose sender gets an error (RFC 8200 §4.2, RFC 4443 §3.4): the
     * code (0, 1, 2; 255: no error is sent) and the offset. */
    uint8_t problem;
    bool problem_multicast; /* also if it was sent to a multicast address */
    uint32_t pointer;
    uint16_t next;     /* where the number of proto stands */
    bool router_alert; /* IPv6: the option is there, for MLD (RFC 2711) */
};
#define IP6_PROBLEM_NONE 255

struct arp_msg {
    bool request;
    struct rte_ether_addr sender_mac, target_mac;
    struct inet_addr sender, target; /* sender: ::ffff:0.0.0.0 in a probe */
};

struct nd_msg {
    bool solicit; /* a solicitation; else an advertisement */
    bool solicited, override;
    struct inet_addr target;
    bool has_mac; /* source or target link-layer address option */
    struct rte_ether_addr mac;
};

/* A question for the groups that we are in. */
struct mld_query {
    bool v1;
    uint32_t within_ms;     /* the answer is wanted within that time */
    struct inet_addr group; /* ::, all */
};

/* p: the header, have: bytes that are contiguous, len: bytes to the end of the frame. csum_ok: its
 * checksum was verified by others. */
enum pkt_drop ip4_decode(const uint8_t *p, size_t have, size_t len, bool csum_ok,
                         struct inet_hdr *out);
enum pkt_drop ip6_decode(const uint8_t *p, size_t have, size_t len, struct inet_hdr *out);
enum pkt_drop arp_decode(const uint8_t *p, size_t have, struct arp_msg *out);
/* p: the ICMPv6 message, wholly there, its checksum verified. */
enum pkt_drop nd_decode(const uint8_t *p, size_t len, const struct inet_hdr *ip,
                        struct nd_msg *out);
/* The same for a query of MLD, version 1 or 2. */
enum pkt_drop mld_decode(const uint8_t *p, size_t len, const struct inet_hdr *ip,
                         struct mld_query *out);
/* p: a TCP packet of ours, as an ICMP error quotes it. Fills in addresses, ports and seq, and the
 * length that the packet says of itself. False: it is no packet that may be judged. */
bool icmp_quote_decode(const uint8_t *p, size_t have, uint8_t family, struct inet_error *out,
                       uint16_t *len);

/* ---- addresses ---- */

static inline bool inet_is_multicast(const struct inet_addr *a)
{
    return inet_is4(a) ? (a->b[12] & 0xf0) == 0xe0 : a->b[0] == 0xff;
}
/* ::, or ::ffff:0.0.0.0. */
bool inet_is_none(const struct inet_addr *a);
/* An address that one station may have. */
bool inet_is_unicast(const struct inet_addr *a);
bool inet_in_prefix(const struct inet_addr *a, const struct inet_prefix *p);
/* The address of all stations of an IPv4 net, or of the net itself. */
bool inet_is_net_broadcast(const struct inet_addr *a, const struct inet_prefix *net);
/* RFC 4291 §2.7.1. */
void inet_solicited_node(const struct inet_addr *a, struct inet_addr *out);
/* For messages; returns buf. */
#define INET_TEXT_MAX 46
const char *inet_text(const struct inet_addr *a, char buf[INET_TEXT_MAX]);

#endif
