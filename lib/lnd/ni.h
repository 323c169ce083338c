/* SPDX-License-Identifier: BSD-3-Clause */
/* NIs of an LND and their parts on the reactors. */
#ifndef MILLRACE_LND_NI_H
#define MILLRACE_LND_NI_H

#include "lib/lnd/driver.h"

/* The part of an NI on one reactor. */
struct lnd_ni_shard {
    struct lnd_shard *shard;
    struct lnet_ni *ni;
    struct lnd_peer_nis peers;
    bool stopping;
};

#endif
