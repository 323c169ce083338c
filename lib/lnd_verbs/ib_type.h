/* SPDX-License-Identifier: BSD-3-Clause */
/* The LND type of o2iblnd: constant data for programs, and the indices of its settings. */
#ifndef MILLRACE_IB_TYPE_H
#define MILLRACE_IB_TYPE_H

#include "lib/lnd/type.h"

enum ib_tunable {
    IB_TUN_HIW,
    IB_TUN_CONCURRENT_SENDS,
    IB_TUN_MAP_ON_DEMAND,
};

enum ib_option {
    IB_OPT_SERVICE,
    IB_OPT_KEEPALIVE,
    IB_OPT_RETRY_COUNT,
    IB_OPT_RNR_RETRY_COUNT,
    IB_OPT_REQUIRE_PRIVILEGED_PORT,
    IB_OPT_USE_PRIVILEGED_PORT,
    IB_OPT_MAX_CONNECTIONS,
    IB_OPT_REMOTE_KEYS,
    IB_OPTIONS
};

extern const struct lnd_type lnd_verbs_type;
extern const char *const ib_keys_words[]; /* by enum rdma_keys; ends with NULL */

#endif
