/* SPDX-License-Identifier: BSD-3-Clause */
/* State of ping.c and monitor.c. Node home only. */
#ifndef MILLRACE_PING_H
#define MILLRACE_PING_H

#include "lib/lnet/lnet_internal.h"

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

struct push_out {
    struct lnet_ping *ping;
    struct known_node *to; /* NULL: free */
    struct ping_target *target;
    bool acked;
    struct reactor_timer timer;
    struct lnet_md md;
    struct push_out *next;
};

struct push_in {
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PUSH_IN_SIZE];
};

struct ping_request;

struct lnet_ping {
    struct lnet_node *node;
    uint32_t seqno;
    bool dirty; /* state changed and no target was free */
    bool stopped;
    struct ping_target target[PING_TARGETS], *current;
    struct lnet_eq target_eq, out_eq, in_eq;
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
    struct ping_request *requests;
    struct lnet_ping_info scratch;
};

/* Rebuilds and publishes the ping info. False: later, when a buffer is free. */
bool lnet_ping_republish(struct lnet_node *node);
/* Pushes to every known multi-rail node; force: also to those that have acknowledged this seqno. */
void lnet_ping_push_all(struct lnet_node *node, bool force);

#endif
