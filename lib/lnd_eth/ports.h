/* SPDX-License-Identifier: BSD-3-Clause */
/* The table by which the LND for tcp nets uses the program's own ports. */
#ifndef MILLRACE_ETH_PORTS_H
#define MILLRACE_ETH_PORTS_H

#include "lib/lnd_eth/ip/inet_addr.h"
#include "lib/lnd_eth/stream.h"

struct inet_watch;
struct inet;
struct inet_if;

/* Interfaces beside the host's: ports of Millrace's own. An NI that names one of them, or an
 * address that is on one, uses its transport; all others the host's. The functions are those of
 * inet.h; the driver knows ports by this table only, so that without any it needs none of what is
 * below it. */
struct eth_ports {
    struct stream_transport transport;
    struct inet *inet;
    struct inet_if *(*find)(struct inet *inet, const char *name);
    struct inet_if *(*owner)(struct inet *inet, const struct inet_addr *addr);
    const char *(*name)(const struct inet_if *ifp);
    bool (*addr)(const struct inet_if *ifp, unsigned index, struct inet_prefix *out);
    unsigned (*speed)(const struct inet_if *ifp); /* Mbit/s, 0 = unknown */
    bool (*link)(const struct inet_if *ifp);
    void (*watch)(struct inet_if *ifp, struct inet_watch *w);
    void (*unwatch)(struct inet_if *ifp, struct inet_watch *w);
};

#endif
