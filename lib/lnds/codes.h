/* SPDX-License-Identifier: BSD-3-Clause */
/* The code of the LNDs, for programs that run nodes. */
#ifndef MILLRACE_LND_CODES_H
#define MILLRACE_LND_CODES_H

#include "lib/lnd/code.h"

/* Ends with NULL. */
extern const struct lnd_code *const lnd_codes[];

/* lnds_register(), after each LND has prepared the process. First of all in main(). */
void lnd_codes_register(void);

#endif
