/* SPDX-License-Identifier: BSD-3-Clause */
/* State of ping.c and monitor.c. Node home only. */
#ifndef MILLRACE_PING_H
#define MILLRACE_PING_H

#include "lib/lnet/lnet_internal.h"

#include <sys/queue.h>

#define PING_TARGETS  8    /* versions of the info that may be in use at once */
#define PING_INFO_MAX 8192 /* 200 NIDs of either length */
#define PING_CLI_SINK 3960 /* what lnetctl ping asks for, §3.4 */
#define PUSH_IN       64   /* PUSHes that may be arriving at once */
#define PUSH_IN_SIZE  8192
#define PUSH_OUT      64 /* PUSHes of ours waiting for their ACK */

struct ping_target {
    unsigned refs; /* linked, and each PUSH that sends it */
    uint32_t seqno;
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PING_INFO_MAX];
};

/* A node that has pushed its info to us. Kept by the NID it pushed from. */
struct known_node {
    struct lnet_nid nid;
    uint32_t features;
    uint32_t acked_seqno; /* newest of our infos that it has acknowledged */
    struct lnet_nid mine; /* our NID it talks to */
    bool want, pushing;
    bool again; /* something changed while a PUSH was on its way to it */
    struct known_node *want_next, *hash_next;
};

/*
 * A ping operation sends a GET or a PUSH to the reserved portal of a peer and waits for the REPLY
 * or the ACK. Operator pings, gateway checks and PUSHes are its three kinds. The owner embeds the
 * operation, fills node, kind and target, and starts it. The operation then calls, on the node's
 * home: answered() when a valid ping info has arrived, late() when the deadline passes before the
 * operation can complete, done() once at the end. After done() the owner may start the operation
 * again or free it. The deadline unlinks the MD, but the operation completes only when the LND has
 * released the message.
 */
struct lnet_ping_op;

struct lnet_ping_kind {
    bool push;          /* PUT of the info with an ACK; otherwise GET of the target's info */
    bool count_timeout; /* in LNET_STAT_RESPONSE_TIMEOUT_COUNT */
    void (*answered)(struct lnet_ping_op *op, const struct lnet_ping_info *info); /* GET only */
    void (*late)(struct lnet_ping_op *op);                                        /* or NULL */
    void (*done)(struct lnet_ping_op *op);
};

struct lnet_ping_op {
    struct lnet_node *node;
    const struct lnet_ping_kind *kind;
    struct lnet_nid target;
    int status; /* -EINPROGRESS, 0, -ETIMEDOUT, -ESHUTDOWN (cancelled) or another -errno */
    bool running;
    /* private */
    LIST_ENTRY(lnet_ping_op) link; /* in lnet_ping.ops */
    struct reactor_timer timer;
    struct lnet_eq eq;
    struct lnet_md md;
    struct mem_seg seg;
};

/* Sends from src (ANY: any NI that leads to the target). data: the sink of a GET or the info of a
 * PUSH, in use until done(). May call done() before it returns. */
void lnet_ping_op_start(struct lnet_ping_op *op, const struct lnet_nid *src, void *data,
                        uint32_t size, uint64_t timeout_us);
/* Ends a running operation with -ESHUTDOWN unless its status is decided; done() may come later. */
void lnet_ping_op_cancel(struct lnet_ping_op *op);

struct push_out {
    struct lnet_ping_op op;
    struct lnet_ping *ping;
    struct known_node *to;
    struct ping_target *target;
    struct push_out *next; /* in lnet_ping.out_free */
};

struct push_in {
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PUSH_IN_SIZE];
};

struct lnet_ping {
    struct lnet_node *node;
    uint32_t seqno;
    bool dirty; /* state changed and no target was free */
    bool stopped;
    struct ping_target target[PING_TARGETS], *current;
    struct lnet_eq target_eq, in_eq;
    struct known_node *known, **hash, *want_head, **want_tail;
    unsigned nknown, max_known;
    uint32_t hash_mask;
    struct push_out out[PUSH_OUT], *out_free;
    bool in_push_some;
    /* goes through known nodes and sends PUSHes, some at a time */
    struct reactor_task sweep;
    bool sweep_posted, sweep_force;
    unsigned sweep_next; /* known node; all before have been looked at */
    struct push_in in[PUSH_IN];
    LIST_HEAD(, lnet_ping_op) ops; /* running operations */
    struct lnet_ping_info scratch;
};

/* Rebuilds and publishes the ping info. False: later, when a buffer is free. */
bool lnet_ping_republish(struct lnet_node *node);
/* Pushes to every known multi-rail node; force: also to those that have acknowledged this seqno. */
void lnet_ping_push_all(struct lnet_node *node, bool force);

#endif
