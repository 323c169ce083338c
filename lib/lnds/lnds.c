/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration of LNDs: names their types; codes.c names their code. */
#include "lib/lnds/lnds.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/lnd_eth/socklnd/sock_type.h"
#include "lib/lnd_verbs/ib_type.h"

/* Lists of drop reasons and settings are in this order. */
static const struct lnd_type *const types[] = {
    &lnd_sock_type,
    &lnd_verbs_type,
};

void lnds_register(void)
{
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (!lnd_type_register(types[i])) {
            fprintf(stderr, "LND type %s collides with another one\n", types[i]->name);
            abort();
        }
}
