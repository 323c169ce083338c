/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd/show.h"

#include <string.h>

static uint64_t number_of(const struct lnd_field *field, const void *from)
{
    const char *at = (const char *)from + field->offset;
    uint64_t n = 0; /* little-endian: the low bytes come first */

    memcpy(&n, at, field->size);
    return n;
}

void lnd_show_fields(struct lnd_sink *to, const void *from, const struct lnd_field *field,
                     unsigned fields)
{
    for (; fields--; field++)
        if (field->size)
            to->number(to, field->name, (int64_t)number_of(field, from));
        else
            to->flag(to, field->name, *((const bool *)from + field->offset));
}
