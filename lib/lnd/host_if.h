/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The interface of the host that an NI is on. An NI is configured with an interface or with an
 * address, and this finds the other one.
 */
#ifndef MILLRACE_LND_HOST_IF_H
#define MILLRACE_LND_HOST_IF_H

#include "lib/lnet/lnd.h"

struct err;

enum lnd_host_if_flags {
    LND_HOST_IF_IP6 = 1,  /* IPv6 addresses will do */
    LND_HOST_IF_MUST = 2, /* the address must be on an interface, even if none was named */
};

/* Sets ni->nid to the first IPv4 address of ni->ifname if it is not set, or, with IP6, to the first
 * IPv6 address that is not of the link only. Then checks that the address is on ni->ifname, or sets
 * that to the interface which has it. 0 or -errno with an error. Control thread. */
int lnd_host_if(struct lnet_ni *ni, unsigned flags, struct err *err);

#endif
