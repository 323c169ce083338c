/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers the types of all LNDs before main(), for tests that read configurations or look at drop
 * reasons, and finds settings of LNDs by name. */
#ifndef MILLRACE_LNDS_TEST_H
#define MILLRACE_LNDS_TEST_H

#include <stdlib.h>
#include <string.h>

#include "lib/lnd/type.h"
#include "lib/lnds/lnds.h"
#include "lib/lnet/lnd.h"

static void __attribute__((constructor)) register_lnds(void)
{
    lnds_register();
}

/* Returns the tunable of a name that not every LND has. */
static inline int *own_tunable(struct lnd_tunables *tun, const char *name)
{
    const struct lnd_setting *s;

    for (unsigned i = 0; (s = lnd_slot_setting(i)); i++)
        if (strcmp(s->name, name) == 0)
            return &tun->own[i];
    abort();
}

/* Returns the option of a name in the array that holds those of all LNDs. */
static inline int *lnd_option_of(int *options, const char *section, const char *name)
{
    const struct lnd_type *type;

    for (unsigned i = 0; (type = lnd_type_at(i)); i++)
        for (unsigned k = 0; type->section && k < type->option_count; k++)
            if (strcmp(type->section, section) == 0 && strcmp(type->options[k].name, name) == 0)
                return &options[lnd_first_option(type) + k];
    abort();
}

#endif
