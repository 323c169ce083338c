/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lists of nets in the form of module options, docs/protocol/lnet-core.md §1.6:
 * `tcp0(eth0,eth1[0])[1],o2ib`. Pure functions.
 */
#ifndef MILLRACE_NETSPEC_H
#define MILLRACE_NETSPEC_H

#include <stddef.h>

#include "lib/base/err.h"
#include "lib/lnet/wire/nid.h"

#define NETSPEC_MAX_INTERFACES 64

struct netspec_interface {
    char name[16];
    char cpt[64]; /* "[0,1]", of the interface or else of the net; "" = none */
};

struct netspec {
    lnet_net_t net;
    unsigned count; /* of interfaces, 0 = none is named */
    struct netspec_interface interface[NETSPEC_MAX_INTERFACES];
    char cpt[64]; /* after the whole net, "" = none */
};

/* Reads the first net of the list at *text and moves *text behind it, its comma and white space.
 * Returns 1; 0 at the end of the list, which is the end of the text or white space without a comma
 * before it; -EINVAL with a sentence. */
int netspec_next(const char **text, struct netspec *out, struct err *err);

#endif
