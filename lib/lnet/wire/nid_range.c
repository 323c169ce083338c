/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/nid_range.h"

#include <arpa/inet.h>

static bool has_octets(const struct nid_range *range, uint32_t addr)
{
    for (unsigned i = 0; i < 4; i++) {
        unsigned octet = addr >> (24 - 8 * i) & 0xff;

        if (!(range->octet[i][octet / 64] >> octet % 64 & 1))
            return false;
    }
    return true;
}

static bool has_number(const struct nid_range *range, uint32_t n)
{
    for (unsigned i = 0; i < range->n; i++) {
        const struct nid_part *p = &range->part[i];

        if (n >= p->lo && n <= p->hi && (n - p->lo) % p->stride == 0)
            return true;
    }
    return false;
}

bool nid_range_has(const struct nid_range *range, const struct lnet_nid *nid)
{
    struct lnet_nid prefix;

    if (nid_net(nid) != range->net)
        return false;
    switch (range->kind) {
    case NID_RANGE_PREFIX:
        prefix = nid_prefix(nid, range->n);
        return nid_same(&prefix, &range->prefix);
    case NID_RANGE_OCTETS:
        return nid_is_nid4(nid) && has_octets(range, ntohl(nid->addr_be[0]));
    case NID_RANGE_NUMBERS:
        return has_number(range, ntohl(nid->addr_be[0]));
    case NID_RANGE_ALL:
        break;
    }
    return true;
}

bool nid_list_has(const struct nid_list *list, const struct lnet_nid *nid)
{
    for (unsigned i = 0; i < list->n; i++)
        if (nid_range_has(&list->range[i], nid))
            return true;
    return list->n == 0;
}
