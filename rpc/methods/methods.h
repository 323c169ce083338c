/* SPDX-License-Identifier: BSD-3-Clause */
/* The methods by which a running node is observed and changed. docs/jsonrpc.md is their reference;
 * it is made from the same table. Control thread. */
#ifndef MILLRACE_RPC_METHODS_H
#define MILLRACE_RPC_METHODS_H

#include <sys/queue.h>

#include "control/controller.h"
#include "rpc/engine/rpc_table.h"

struct peer_call;
struct ping_call;

/* The context of the methods: the ctx of struct jrpc. control is set by its maker, the rest is
 * zero.
 */
struct rpc_ctx {
    struct controller *control;
    struct rpc_packets *packets;  /* capture.h: the capture under way */
    LIST_HEAD(, rpc_timed) timed; /* timed.h: calls in flight that look twice */
    LIST_HEAD(, ping_call) pings; /* ping.c: under way */
    struct rpc_events *events;    /* events.h; NULL: there are no events */
    struct {                      /* peer.c: pages of peers that were asked for */
        struct peer_call *first;
        uint64_t turn; /* of the page that is being made, or was made last */
        bool busy;
    } pages;
};

extern const jrpc_handler rpc_handlers[]; /* by the rows of rpc_method_table */

#endif
