/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_verbs/ib_drops.h"

static const struct lnet_drop_info rows[] = {
#define DROP(sym, name, kind, text, remedy) {name, kind, text, remedy},
#include "lib/lnd_verbs/ib_drops.def"
#undef DROP
};

const struct lnet_drop_table ib_drops = {IB_DROP_BLOCK, sizeof(rows) / sizeof(rows[0]), rows};
