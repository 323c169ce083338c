/* SPDX-License-Identifier: BSD-3-Clause */
/* The LND type of socklnd: constant data for programs. */
#ifndef MILLRACE_SOCK_TYPE_H
#define MILLRACE_SOCK_TYPE_H

#include "lib/lnd/type.h"

extern const struct lnd_type lnd_sock_type;

#endif
