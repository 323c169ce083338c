/* SPDX-License-Identifier: BSD-3-Clause */
/* State of ping.c, push.c, op.c and monitor.c. Node home only. */
#ifndef MILLRACE_LNET_PING_INTERNAL_H
#define MILLRACE_LNET_PING_INTERNAL_H

#include "lib/lnet/api/api.h"
#include "lib/lnet/peer/peers.h"
#include "lib/lnet/ping/ping.h"
#include "lib/lnet/shard/conf.h"

#include <sys/queue.h>

#define PING_TARGETS  8    /* versions of the info that REPLYs and PUSHes may read at once */
#define PING_INFO_MAX 8192 /* 200 NIDs of either length */
#define PING_CLI_SINK 3960 /* what lnetctl ping asks for, §3.4 */
#define PUSH_IN       LNET_PUSH_BUFFERS
#define PUSH_IN_SIZE  8192
#define PUSH_OUT      64 /* PUSHes of ours waiting for their ACK, */
#define PUSH_OUT_NEW  32 /* of these, to peers that have acknowledged none yet */

struct ping_target {
    unsigned refs; /* linked, and each PUSH that sends it */
    uint32_t seqno;
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PING_INFO_MAX];
};

struct push_out {
    struct lnet_ping_op op;
    struct lnet_ping *ping;
    struct peer *to; /* NULL: the peer is gone, or the slot is free */
    struct ping_target *target;
    bool is_new;           /* counts in lnet_ping.out_new */
    struct push_out *next; /* in lnet_ping.out_free */
};

struct push_in {
    struct lnet_me me;
    struct lnet_md md;
    struct mem_seg seg;
    uint8_t data[PUSH_IN_SIZE];
};

/* NIs that were pinged by messages passing through a shard; sent to the node's home. */
struct lnet_pinged_mail {
    struct lnet_shard *shard;
    struct reactor_task task;
    bool busy;
    bool pending[LNET_MAX_NI]; /* the shard's */
    bool sent[LNET_MAX_NI];    /* the node's home's while busy */
};

struct lnet_ping {
    struct lnet_node *node;
    uint32_t seqno;
    bool dirty; /* state changed and no target was free */
    bool stopped;
    struct ping_target target[PING_TARGETS], *current;
    struct lnet_eq target_eq, in_eq;
    /* push.c */
    struct peer_list to_push[2]; /* peers that a PUSH waits for; [1]: those that answered */
    struct push_out out[PUSH_OUT], *out_free;
    unsigned out_new; /* PUSHes on their way to those that did not answer when they were sent */
    bool in_push_some;
    /* goes through the peers and sends PUSHes, some at a time */
    struct reactor_task sweep;
    bool sweep_posted, sweep_force;
    unsigned sweep_next; /* index of a peer; all before have been looked at */
    struct push_in in[PUSH_IN];
    LIST_HEAD(, lnet_ping_op) ops; /* running operations */
    struct lnet_ping_info scratch;
    void (*on_push)(struct lnet_gw *gw, const struct lnet_ping_info *info);
    struct reactor_timer tick; /* monitor.c */
    uint64_t ticked_us;        /* last tick */
    struct lnet_pinged_mail pinged[REACTOR_MAX];
};

/* Lets go of an info that a PUSH or a REPLY has sent. */
void lnet_ping_target_put(struct lnet_ping *p, struct ping_target *t);
/* Attaches an MD of one segment to the place where ping infos are read and pushed. */
int lnet_ping_attach(struct lnet_node *node, struct lnet_me *me, struct lnet_md *md,
                     struct mem_seg *seg);
int lnet_ping_push_init(
    struct lnet_ping *p); /* control, before start; creates the table of peers */
void lnet_ping_push_start(struct lnet_ping *p);

#endif
