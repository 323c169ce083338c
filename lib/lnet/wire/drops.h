/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A drop reason says why Millrace refuses, drops or gives up something. Each reason is one row of
 * a table: the core's rows are in drops.def, those of an LND in a table of its own that the program
 * registers. The same rows feed the counters, JSON-RPC, the CLI and the logs.
 *
 * The numbers come in blocks of 64. The core has block 0; an LND chooses a free block and numbers
 * its rows from the first number of that block on.
 */
#ifndef MILLRACE_DROPS_H
#define MILLRACE_DROPS_H

#include <stdbool.h>

#define LNET_DROP_BLOCK  64
#define LNET_DROP_BLOCKS 4

enum lnet_drop {
    LNET_DROP_NONE = 0,
#define DROP(sym, name, kind, text, remedy) LNET_DROP_##sym,
#include "drops.def"
#undef DROP
    LNET_DROP_CORE_COUNT,
    LNET_DROP_COUNT = LNET_DROP_BLOCK * LNET_DROP_BLOCKS /* numbers, not rows */
};
_Static_assert(LNET_DROP_CORE_COUNT <= LNET_DROP_BLOCK, "the core's rows fit into block 0");

/* The loss that the event causes. */
enum lnet_drop_kind {
    DROP_KIND_MESSAGE,    /* one message is gone */
    DROP_KIND_CONNECTION, /* the connection (and its siblings) is closed */
    DROP_KIND_REFUSAL,    /* a connection attempt is refused before it carries anything */
    DROP_KIND_RETRY,      /* the same in normal operation: the initiator repeats the attempt */
};

struct lnet_drop_info {
    const char *name; /* stable, lower case with underscores */
    enum lnet_drop_kind kind;
    const char *text;   /* one sentence for an engineer */
    const char *remedy; /* what to look at or do about it */
};

/* The drop reasons of an LND. */
struct lnet_drop_table {
    unsigned block; /* 1 to LNET_DROP_BLOCKS - 1 */
    unsigned count; /* rows, at most LNET_DROP_BLOCK */
    const struct lnet_drop_info *rows;
};

/* Details of one event beyond its reason. The texts are static. */
struct lnet_drop_why {
    const char *stage; /* of what was being done; NULL: not known */
    const char *why;   /* NULL: nothing more than the reason says */
    int code;          /* number of the system, the reject or the completion, 0 = none */
};

/* Adds the reasons of an LND; the table lives as long as the program. Main thread, before other
 * threads run. Returns false if another table has that block; the same table again does nothing. */
bool lnet_drops_register(const struct lnet_drop_table *table);
/* Returns the next reason that has a row, in the order of the numbers, or LNET_DROP_NONE after the
 * last one: for (d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d)). */
enum lnet_drop lnet_drop_next(enum lnet_drop reason);
/* Returns the row of a reason, never NULL (a number without a row gives that of LNET_DROP_NONE). */
const struct lnet_drop_info *lnet_drop_info(enum lnet_drop reason);
const char *lnet_drop_kind_name(enum lnet_drop_kind kind);

#endif
