/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of NIDs, docs/protocol/lnet-core.md §1.5, as config/nid_list.h reads them. Pure functions,
 * any thread. */
#ifndef MILLRACE_NID_RANGE_H
#define MILLRACE_NID_RANGE_H

#include "lib/lnet/wire/nid.h"

#define NID_RANGE_PARTS 8 /* of a bracket of numbers */

enum nid_range_kind {
    NID_RANGE_ALL,     /* all NIDs of the net */
    NID_RANGE_PREFIX,  /* an address with so many bits */
    NID_RANGE_OCTETS,  /* a set for each octet of an IPv4 address */
    NID_RANGE_NUMBERS, /* of an LND whose addresses are numbers */
};

struct nid_part {
    uint32_t lo, hi, stride;
};

struct nid_range {
    lnet_net_t net;
    enum nid_range_kind kind;
    unsigned n; /* bits, or parts */
    union {
        struct lnet_nid prefix;
        uint64_t octet[4][4];
        struct nid_part part[NID_RANGE_PARTS];
    };
};

/* A list; one without ranges stands for all NIDs. Who made it frees `range`. */
struct nid_list {
    unsigned n;
    struct nid_range *range;
};

bool nid_range_has(const struct nid_range *range, const struct lnet_nid *nid);
bool nid_list_has(const struct nid_list *list, const struct lnet_nid *nid);

#endif
