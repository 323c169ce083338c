/* SPDX-License-Identifier: BSD-3-Clause */
/* The methods by which a running node is observed and changed. docs/jsonrpc.md is their reference;
 * it is made from the same table. Control thread. */
#ifndef MILLRACE_RPC_METHODS_H
#define MILLRACE_RPC_METHODS_H

#include "lib/lnet/lnet.h"
#include "rpc/jsonrpc.h"

/* What the methods act on: the ctx of struct jrpc. */
struct rpc_ctx {
    struct lnet_node *node;
    struct reactor_env *env;
    bool routing;      /* as configured */
    unsigned drain_s;  /* of a shutdown that names none */
    uint64_t start_us; /* reactor_now_us() clock */
    /* Begins to stop; returns at once. */
    void (*shutdown)(void *arg, unsigned drain_s);
    void *shutdown_arg;
};

extern const struct jrpc_method rpc_method_table[];

#endif
