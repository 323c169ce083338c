/* SPDX-License-Identifier: BSD-3-Clause */
/* Rows of LNDs (lib/lnd/show.h) as members of JSON objects. Control thread. */
#ifndef MILLRACE_RPC_LND_SHOW_H
#define MILLRACE_RPC_LND_SHOW_H

#include "lib/lnd/show.h"
#include "rpc/methods/methods_internal.h"

#define RPC_SINK_DEPTH 6

struct rpc_sink {
    struct lnd_sink base;
    json_t *at[RPC_SINK_DEPTH]; /* objects and lists that are open */
    unsigned depth;
};

/* Returns a sink that writes into the object. */
struct rpc_sink rpc_sink(json_t *object);

#endif
