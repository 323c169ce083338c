/* SPDX-License-Identifier: BSD-3-Clause */
/* Drop reasons of socklnd: a block of enum lnet_drop. SOCK_DROP(X) is the reason of the row X of
 * sock_drops.def. */
#ifndef MILLRACE_SOCK_DROPS_H
#define MILLRACE_SOCK_DROPS_H

#include "lib/lnet/wire/drops.h"

#define SOCK_DROP_BLOCK 1

enum sock_drop {
    SOCK_DROPS_BEFORE = SOCK_DROP_BLOCK * LNET_DROP_BLOCK - 1,
#define DROP(sym, name, kind, text, remedy) SOCK_DROP_##sym,
#include "lib/lnd_eth/socklnd/sock_drops.def"
#undef DROP
};
#define SOCK_DROP(sym) ((enum lnet_drop)SOCK_DROP_##sym)

extern const struct lnet_drop_table sock_drops;

#endif
