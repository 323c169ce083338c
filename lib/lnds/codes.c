/* SPDX-License-Identifier: BSD-3-Clause */
/* The registration of LNDs: names their code; lnds.c names their types. */
#include "lib/lnds/codes.h"

#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_verbs/lnd_verbs.h"

const struct lnd_code *const lnd_codes[] = {
    &lnd_sock_code,
    &lnd_verbs_code,
    NULL,
};
