/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/drops.h"

#include <stddef.h>

static const struct lnet_drop_info drop_table[LNET_DROP_COUNT] = {
    [LNET_DROP_NONE] = {"none", DROP_KIND_MESSAGE, "Nothing was dropped.", "Nothing."},
#define DROP(sym, name, kind, text, remedy) [LNET_DROP_##sym] = {name, kind, text, remedy},
#include "lib/lnet/wire/drops.def"
#undef DROP
};

static const char *const kind_names[] = {
    [DROP_KIND_MESSAGE] = "message",
    [DROP_KIND_CONNECTION] = "connection",
    [DROP_KIND_REFUSAL] = "refusal",
};

const struct lnet_drop_info *lnet_drop_info(enum lnet_drop reason)
{
    if ((unsigned)reason >= LNET_DROP_COUNT)
        reason = LNET_DROP_NONE;
    return &drop_table[reason];
}

const char *lnet_drop_kind_name(enum lnet_drop_kind kind)
{
    if ((size_t)kind >= sizeof(kind_names) / sizeof(kind_names[0]))
        return "unknown";
    return kind_names[kind];
}
