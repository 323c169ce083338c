/* SPDX-License-Identifier: BSD-3-Clause */
/* The methods by which a running node is observed and changed. docs/jsonrpc.md is their reference;
 * it is made from the same table. Control thread. */
#ifndef MILLRACE_RPC_METHODS_H
#define MILLRACE_RPC_METHODS_H

#include "control/running.h"
#include "lib/base/err.h"
#include "lib/lnet/lnet.h"
#include "rpc/engine/rpc_table.h"

struct peer_call;
struct inet;
struct tcp;

struct rdma_info;
struct rdma_counters;
struct verbs_counters;
struct verbs_rows;

/* What the driver of o2ib nets tells of its NIs: as lnd_verbs.h has it. */
struct rpc_verbs {
    void (*info)(const struct lnet_ni *ni, struct rdma_info *out);
    void (*counters)(const struct lnet_ni *ni, struct verbs_counters *out);
    int (*conns)(struct lnet_ni *ni, unsigned max,
                 void (*done)(void *arg, const struct verbs_rows *rows), void *arg);
    /* False: it has no NI yet. */
    bool (*memory)(void *arg, struct rdma_counters *out);
};

/* What the methods act on: the ctx of struct jrpc. Zeroed by whoever makes it. */
struct rpc_ctx {
    struct lnet_node *node;
    struct reactor_env *env;
    struct inet *inet; /* ports of our own, and TCP on them; NULL: there are none */
    struct tcp *tcp;
    const struct rpc_verbs *verbs; /* NULL: there is no such driver */
    void *verbs_arg;
    unsigned drain_s;  /* of a shutdown that names none */
    uint64_t start_us; /* reactor_now_us() clock */
    /* Leaves the waiting state (--wait-for-rpc): starts the node and sets jrpc.started. 0 or -errno
     * with a sentence. NULL: the process does not wait. */
    int (*start)(void *arg, struct err *err);
    void *start_arg;
    /* Begins to stop; returns at once. */
    void (*shutdown)(void *arg, unsigned drain_s);
    void *shutdown_arg;
    struct cfg_running *running; /* the document, control/running.h; lives as long as the methods */
    struct reactor_timer confirm; /* of a change that waits for its confirmation */
    uint64_t confirm_us;          /* when it ends, reactor_now_us() clock */
    struct rpc_packets *packets;  /* rpc_packets.h: the capture under way */
    struct rpc_timed *timed;      /* rpc_timed.h: calls in flight that look twice */
    struct rpc_events *events;    /* rpc_events.h; NULL: nobody is told of any */
    struct rpc_absent *absent;    /* rpc_absent.h; NULL: all NIs are there */
    struct {                      /* pages of peers that are asked for, rpc_peer.c */
        struct peer_call *first;
        uint64_t turn; /* of the one that is being made or was last */
        bool busy;
    } pages;
};

/* The node of ctx runs by the document of ctx->running: from now on changes go to the node. */
void rpc_running_start(struct rpc_ctx *ctx);
/* Makes a file the running document, as config_apply with mode replace does; what comes of it is
 * told by an event and said with say. */
void rpc_config_reload(struct rpc_ctx *ctx, const char *path,
                       void (*say)(void *arg, bool ok, const char *text), void *arg);

extern const jrpc_handler rpc_handlers[]; /* by the rows of rpc_method_table */

#endif
