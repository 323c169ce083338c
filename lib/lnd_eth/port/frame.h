/* SPDX-License-Identifier: BSD-3-Clause */
/* Where things are in a frame, for those that look at frames without handling them: the tamper
 * stage, captures. Any thread; nothing that a frame says of itself is believed. */
#ifndef MILLRACE_FRAME_H
#define MILLRACE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

/* Fields that cannot be read are absent. */
struct frame_view {
    uint8_t family; /* 4, 6; 0 = no IP */
    uint8_t proto;  /* of L4 */
    bool l4;        /* TCP or UDP, whole in one packet */
    bool tcp;
    uint16_t type;                /* of Ethernet, 0: no header */
    uint16_t l3, l4_off, payload; /* offsets; payload: of TCP */
    uint32_t ip_end;              /* behind the last byte of the IP packet */
    uint8_t src[16], dst[16];     /* v4 as ::ffff:a.b.c.d */
    uint16_t sport, dport;
};

/* m begins with the Ethernet header, without a VLAN tag. */
void frame_view(const struct rte_mbuf *m, struct frame_view *v);

#endif
