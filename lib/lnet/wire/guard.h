/* SPDX-License-Identifier: BSD-3-Clause */
/* The guard for the nodes behind a router: headers that are valid, and that no kernel node sends.
 * docs/protocol/lnet-core.md §2, §3.1. */
#ifndef MILLRACE_LNET_GUARD_H
#define MILLRACE_LNET_GUARD_H

#include "lib/lnet/wire/lnet_wire.h"

enum lnet_guard_rule {
#define GUARD(symbol, key, what) LNET_GUARD_##symbol,
#include "lib/lnet/wire/guard.def"
#undef GUARD
    LNET_GUARD_RULES
};

#define LNET_GUARD_ALL ((1u << LNET_GUARD_RULES) - 1)

/* Returns the drop reason of the first rule in `rules` (bits 1 << enum lnet_guard_rule) that a
 * message with this header breaks, or LNET_DROP_NONE. hdr: decoded and valid. Any thread. */
enum lnet_drop lnet_guard(const struct lnet_hdr *hdr, unsigned rules);

#endif
