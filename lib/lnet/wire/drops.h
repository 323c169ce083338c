/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every reason for which Millrace refuses, drops or gives up something, in one table (drops.def).
 * The same rows feed the counters, JSON-RPC, the CLI and the logs.
 */
#ifndef MILLRACE_DROPS_H
#define MILLRACE_DROPS_H

enum lnet_drop {
    LNET_DROP_NONE = 0,
#define DROP(sym, name, kind, text, remedy) LNET_DROP_##sym,
#include "drops.def"
#undef DROP
    LNET_DROP_COUNT
};

/* What the event costs. */
enum lnet_drop_kind {
    DROP_KIND_MESSAGE,    /* one message is gone */
    DROP_KIND_CONNECTION, /* the connection (and its siblings) is closed */
    DROP_KIND_REFUSAL,    /* a connection attempt is refused before it carries anything */
};

struct lnet_drop_info {
    const char *name; /* stable, lower case with underscores */
    enum lnet_drop_kind kind;
    const char *text;   /* one sentence for an engineer */
    const char *remedy; /* what to look at or do about it */
};

/* What more is known of one event than its reason. The texts are static. */
struct lnet_drop_why {
    const char *stage; /* of what was being done; NULL: not known */
    const char *why;   /* NULL: nothing more than the reason says */
    int code;          /* the number whoever said so gave, 0 = none */
};

/* The row of a reason; never NULL (unknown values give the row of LNET_DROP_NONE). */
const struct lnet_drop_info *lnet_drop_info(enum lnet_drop reason);
const char *lnet_drop_kind_name(enum lnet_drop_kind kind);

#endif
