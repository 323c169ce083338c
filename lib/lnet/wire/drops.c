/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/drops.h"

#include <stddef.h>

static const struct lnet_drop_info core_rows[LNET_DROP_CORE_COUNT] = {
    [LNET_DROP_NONE] = {"none", DROP_KIND_MESSAGE, "Nothing was dropped.", "Nothing."},
#define DROP(sym, name, kind, text, remedy) [LNET_DROP_##sym] = {name, kind, text, remedy},
#include "lib/lnet/wire/drops.def"
#undef DROP
};
static const struct lnet_drop_table core = {0, LNET_DROP_CORE_COUNT, core_rows};

/* Written before threads run. */
static const struct lnet_drop_table *tables[LNET_DROP_BLOCKS] = {&core};

static const char *const kind_names[] = {
    [DROP_KIND_MESSAGE] = "message",
    [DROP_KIND_CONNECTION] = "connection",
    [DROP_KIND_REFUSAL] = "refusal",
    [DROP_KIND_RETRY] = "retry",
};

bool lnet_drops_register(const struct lnet_drop_table *table)
{
    if (table->block >= LNET_DROP_BLOCKS || table->count > LNET_DROP_BLOCK)
        return false;
    if (!tables[table->block])
        tables[table->block] = table;
    return tables[table->block] == table;
}

static const struct lnet_drop_info *find(unsigned reason)
{
    const struct lnet_drop_table *table =
        reason < LNET_DROP_COUNT ? tables[reason / LNET_DROP_BLOCK] : NULL;

    return table && reason % LNET_DROP_BLOCK < table->count ? &table->rows[reason % LNET_DROP_BLOCK]
                                                            : NULL;
}

enum lnet_drop lnet_drop_next(enum lnet_drop reason)
{
    for (unsigned i = (unsigned)reason + 1; i < LNET_DROP_COUNT; i++)
        if (find(i))
            return (enum lnet_drop)i;
    return LNET_DROP_NONE;
}

const struct lnet_drop_info *lnet_drop_info(enum lnet_drop reason)
{
    const struct lnet_drop_info *row = find((unsigned)reason);

    return row ? row : &core_rows[LNET_DROP_NONE];
}

const char *lnet_drop_kind_name(enum lnet_drop_kind kind)
{
    if ((size_t)kind >= sizeof(kind_names) / sizeof(kind_names[0]))
        return "unknown";
    return kind_names[kind];
}
