/* SPDX-License-Identifier: BSD-3-Clause */
/* The part of `why` about a path over a port. Control thread. */
#ifndef MILLRACE_RPC_WHY_H
#define MILLRACE_RPC_WHY_H

#include "rpc/methods/port.h"

/* Part of what jrpc_alloc() gave for the call. */
struct rpc_why_port {
    const struct rpc_ctx *ctx;
    void (*done)(void *arg, json_t *row);
    void *arg;
    struct inet_if *ifp;
    struct inet_addr local, remote;
    unsigned home;
    /* The findings so far. */
    struct reactor_task task;
    unsigned reactor; /* that is asked for its drops */
    int rc;           /* of inet_path_look() */
    struct inet_path_row path;
    struct inet_drop_row drop[PKT_DROP_COUNT]; /* by reason; count 0: none */
};

/* The interface over a port that an NI has; NULL: it has none, it is the host's. */
struct inet_if *rpc_why_interface(const struct rpc_ctx *ctx, const struct lnet_nid *ni);

/* Asks reactors for the path from a local NI to the next hop; done() is called later with an
 * object, which it takes. Returns false when the NI uses no port; then done() is not called. */
bool rpc_why_port(struct rpc_why_port *w, const struct rpc_ctx *ctx, const struct lnet_nid *ni,
                  const struct lnet_nid *next_hop, void (*done)(void *arg, json_t *row), void *arg);

#endif
