/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every reason for which a packet is dropped between a port and a stream, in one table
 * (pkt_drops.def). They are packets, not messages: what is lost here the sender's TCP sends again.
 */
#ifndef MILLRACE_PKT_DROPS_H
#define MILLRACE_PKT_DROPS_H

enum pkt_drop {
    PKT_DROP_NONE = 0,
#define PKT_DROP(sym, name, text) PKT_DROP_##sym,
#include "pkt_drops.def"
#undef PKT_DROP
    PKT_DROP_COUNT
};

struct pkt_drop_info {
    const char *name; /* stable, lower case with underscores */
    const char *text; /* one sentence for an engineer */
};
const struct pkt_drop_info *pkt_drop_info(enum pkt_drop why); /* never NULL */

/* What an ICMP error says of a packet of ours. */
enum inet_icmp_error {
    INET_ICMP_UNREACHABLE, /* net or host, no route, address unreachable */
    INET_ICMP_REFUSED,     /* port or protocol unreachable, or prohibited: hard */
    INET_ICMP_TOO_BIG,
    INET_ICMP_OTHER, /* time exceeded, parameter problem: told, changes nothing */
};

#endif
