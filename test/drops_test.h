/* SPDX-License-Identifier: BSD-3-Clause */
/* REGISTER_DROPS(table) at file scope registers the drop reasons of an LND before main(), for tests
 * that link an LND's wire code without its driver. */
#ifndef MILLRACE_DROPS_TEST_H
#define MILLRACE_DROPS_TEST_H

#include <stddef.h>
#include <stdlib.h>

#include "lib/lnet/wire/drops.h"

#define REGISTER_DROPS(table)                                                                      \
    static void __attribute__((constructor)) register_##table(void)                                \
    {                                                                                              \
        if (!lnet_drops_register(&table))                                                          \
            abort();                                                                               \
    }                                                                                              \
    _Static_assert(1, "")

/* Rows of the drop table. */
static inline size_t drop_rows(void)
{
    size_t n = 0;

    for (enum lnet_drop d = lnet_drop_next(LNET_DROP_NONE); d; d = lnet_drop_next(d))
        n++;
    return n;
}

#endif
