/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ping info: this node's NIs and their status. Other nodes read it with a GET on portal 0, and
 * this node PUSHes it to peers that have pushed theirs. The status of an NI ages when no peer sends
 * a message over its net. One ping operation serves operator pings, gateway checks and PUSHes.
 * docs/protocol/lnet-core.md §3.1 to §3.7.
 *
 * All functions run on the node's home reactor, but for those marked otherwise.
 */
#ifndef MILLRACE_LNET_PING_H
#define MILLRACE_LNET_PING_H

#include "lib/lnet/shard/shard.h"

#include <sys/queue.h>

int lnet_ping_init(struct lnet_node *node);  /* control, before start */
void lnet_ping_fini(struct lnet_node *node); /* control, reactors stopped */
void lnet_ping_start(struct lnet_node *node);
void lnet_ping_stop(struct lnet_node *node);
/* Sets the function that receives the info that a gateway pushed itself, and from which of its peer
 * NIs. Control, before start. */
void lnet_ping_on_push(struct lnet_node *node,
                       void (*fn)(struct lnet_gw_ni *from, const struct lnet_ping_info *info));

/* ---- the published info (ping.c) ---- */

/* Takes a new sequence number, publishes and pushes: the list of NIs changed. */
void lnet_ping_changed(struct lnet_node *node);
/* Publishes the present state. Returns false if that is done later, when a buffer is free. */
bool lnet_ping_republish(struct lnet_node *node);
/* Pushes to every multi-rail peer that has pushed to us; force: also to those that have
 * acknowledged this seqno. */
void lnet_ping_push_all(struct lnet_node *node, bool force);

/* A gateway answered a check with the info in node->ping->scratch. The first info is merged. A
 * multi-rail peer is pushed to, and discovered if this info says something new. */
void lnet_discover_replied(struct lnet_node *node, const struct lnet_nid *nid);

/* ---- status of NIs (monitor.c) ---- */

void lnet_monitor_start(struct lnet_node *node);
void lnet_monitor_stop(struct lnet_node *node);
/* Takes note of a ping GET that came in on ni. Any shard. */
void lnet_ping_seen(struct lnet_shard *s, struct lnet_ni *ni);
/* Sets the status of an NI whose link went down or came up, and publishes it. */
void lnet_link_changed(struct lnet_ni *ni, bool up);
/* Sets the status of an NI by its health. */
void lnet_ni_health_changed(struct lnet_ni *ni);
/* Publishes and pushes an NI that was added: the snapshot lists it. */
void lnet_ni_listed(struct lnet_ni *ni);
/* Sets the NIs' status anew: the node began or ceased to route. */
void lnet_routing_changed(struct lnet_node *node);

/* ---- one ping operation (op.c) ---- */

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
    bool once;          /* it is not sent again (§6.2) */
    void (*answered)(struct lnet_ping_op *op,
                     const struct lnet_ping_info *info); /* GET only; or NULL */
    void (*late)(struct lnet_ping_op *op);               /* or NULL */
    void (*done)(struct lnet_ping_op *op);
};

struct lnet_ping_op {
    struct lnet_node *node;
    const struct lnet_ping_kind *kind;
    struct lnet_nid target; /* without a source: in the calls, the NID of its peer that was asked */
    int status;   /* -EINPROGRESS, 0, -ETIMEDOUT, -ESHUTDOWN (cancelled) or another -errno */
    uint32_t len; /* of the REPLY */
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
/* Brings the deadline of a running operation forward. */
void lnet_ping_op_expire(struct lnet_ping_op *op);
/* Ends a running operation with -ESHUTDOWN unless its status is decided; done() may come later. */
void lnet_ping_op_cancel(struct lnet_ping_op *op);

/* ---- timing (any thread) ---- */

static inline uint64_t lnet_check_interval_us(const struct lnet_node *node)
{
    return relaxed_load(&node->timing.check_interval) * 1000000ull;
}
static inline uint64_t lnet_ping_timeout_us(const struct lnet_node *node)
{
    return relaxed_load(&node->timing.ping_timeout) * 1000000ull;
}

#endif
