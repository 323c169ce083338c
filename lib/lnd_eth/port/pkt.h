/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets between a port and the protocols above it: mbufs in one normal form for every device.
 *
 * Received. One frame per chain. The first segment holds PKT_HEADERS contiguous bytes, or the whole
 * frame when it is shorter. A VLAN tag is out of the frame, in vlan_tci, with
 * RTE_MBUF_F_RX_VLAN_STRIPPED. ol_flags say of checksums: RTE_MBUF_F_RX_L4_CKSUM_GOOD or _NONE: the
 * segment is intact; _BAD: it is not; _UNKNOWN: not checked (the same for IP). A frame that
 * a device or kernel put together of several has RTE_MBUF_F_RX_LRO and tso_segsz.
 *
 * Sent. One frame per chain, from the Ethernet header on; l2_len, l3_len, l4_len set;
 * RTE_MBUF_F_TX_IPV4 | _IP_CKSUM, or _IPV6; _TCP_CKSUM (or _UDP_CKSUM) with the sum of the pseudo
 * header in place; _VLAN with vlan_tci for a tag. _TCP_SEG with tso_segsz only on a port with
 * PORT_TX_TSO; the sum of the pseudo header then leaves out the length, as rte_ipv4_phdr_cksum()
 * does. The port does in software what the device lacks. Headers lie in a segment of their own
 * without other references, or in front of payload in its direct segment, which has no other
 * writer until the device is done with it. Payload may be shared (indirect, external or by
 * references) and is never written.
 */
#ifndef MILLRACE_PKT_H
#define MILLRACE_PKT_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#define PKT_HEADERS 192 /* bytes; Ethernet, IPv6 with a few extensions, TCP with all options */

struct inet_if;

/* In the private area of every mbuf of a port's pools. Filled by the IP layer for those above; of
 * the first mbuf of a chain only. */
struct pkt {
    struct inet_if *ifp; /* that it came in on */
    uint16_t l3, l4;     /* offsets from the start of data */
    uint16_t payload;    /* offset of what is behind the L4 header; set by L4 */
    uint8_t family;      /* 4 or 6 */
    uint8_t proto;       /* IPPROTO_* of l4 */
    uint8_t ecn;         /* the two ECN bits of IP */
    uint8_t hops;        /* times it was handed to another reactor */
    bool l4_ok;          /* the L4 checksum has been verified */
    uint32_t l4_len;     /* bytes from l4 to the end of the IP packet */
    uint32_t seq, ack;   /* TCP's own */
    uint16_t flags, win; /* TCP's own */
    /* One's complement sum of sum_len bytes from buf_addr + sum_at on, as csum_partial() has it; of
     * each mbuf, beyond the life of the packet. 0 bytes: not known. */
    uint64_t sum_len : 32, sum_at : 16, sum : 16;
};

static inline struct pkt *pkt_of(struct rte_mbuf *m)
{
    return (struct pkt *)rte_mbuf_to_priv(m);
}

/* A buffer's payload is from off (of buf_addr) to off + len from now on: its sum becomes that of
 * these bytes, or is not known any more. All bytes of it are still as they were summed. */
void pkt_sum_trim(struct rte_mbuf *m, uint16_t off, uint32_t len);

#define PKT_PRIV RTE_ALIGN(sizeof(struct pkt), RTE_MBUF_PRIV_ALIGN)

#endif
