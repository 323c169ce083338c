/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_eth/ip/pkt_drops.h"

static const struct pkt_drop_info drop_table[PKT_DROP_COUNT] = {
    [PKT_DROP_NONE] = {"none", "Nothing was dropped."},
#define PKT_DROP(sym, name, text) [PKT_DROP_##sym] = {name, text},
#include "lib/lnd_eth/ip/pkt_drops.def"
#undef PKT_DROP
};

const struct pkt_drop_info *pkt_drop_info(enum pkt_drop why)
{
    if ((unsigned)why >= PKT_DROP_COUNT)
        why = PKT_DROP_NONE;
    return &drop_table[why];
}
