/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration of LNDs: names their code; lnds.c names their types. */
#include "lib/lnds/codes.h"

#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "lib/lnds/lnds.h"

const struct lnd_code *const lnd_codes[] = {
    &lnd_sock_code,
    &lnd_verbs_code,
    NULL,
};

void lnd_codes_register(void)
{
    for (unsigned i = 0; lnd_codes[i]; i++)
        if (lnd_codes[i]->process_init)
            lnd_codes[i]->process_init();
    lnds_register();
}
