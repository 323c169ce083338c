/* SPDX-License-Identifier: BSD-3-Clause */
/* Drop reasons of o2iblnd: a block of enum lnet_drop. IB_DROP(X) is the reason of the row X of
 * ib_drops.def. */
#ifndef MILLRACE_IB_DROPS_H
#define MILLRACE_IB_DROPS_H

#include "lib/lnet/wire/drops.h"

#define IB_DROP_BLOCK 2

enum ib_drop {
    IB_DROPS_BEFORE = IB_DROP_BLOCK * LNET_DROP_BLOCK - 1,
#define DROP(sym, name, kind, text, remedy) IB_DROP_##sym,
#include "lib/lnd_verbs/ib_drops.def"
#undef DROP
};
#define IB_DROP(sym) ((enum lnet_drop)IB_DROP_##sym)

extern const struct lnet_drop_table ib_drops;

#endif
