/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of a node for operators and programs: state changes of peers, NIs, routes, gateways and
 * buffers. Each reactor writes its events into a ring of its own, which the
 * control thread empties; when it is full the event is counted as missed. So are events of a peer
 * that connects and goes too often (docs/architecture.md "Shares and eviction"). Writing costs no
 * memory, no lock and no system call beyond the mail that wakes the control thread.
 */
#ifndef MILLRACE_LNET_EVENT_H
#define MILLRACE_LNET_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/lnet/wire/drops.h"
#include "lib/lnet/wire/nid.h"

/* Behind each: the fields of its events. All have a cause. */
enum lnet_node_event_kind {
    LNET_NODE_EV_PEER_UP,           /* nid; cause "called" (by us) or "accepted" */
    LNET_NODE_EV_PEER_DOWN,         /* nid: its last connection is gone; drop: why */
    LNET_NODE_EV_PEER_RESTART,      /* nid: it came with another incarnation */
    LNET_NODE_EV_NI_UP,             /* nid: the NI, published as up from now on */
    LNET_NODE_EV_NI_DOWN,           /* nid: its link is down, or no pings come (§3.7) */
    LNET_NODE_EV_NI_ADDED,          /* nid */
    LNET_NODE_EV_NI_REMOVED,        /* nid */
    LNET_NODE_EV_ROUTE_UP,          /* net; nid: the gateway */
    LNET_NODE_EV_ROUTE_DOWN,        /* net; nid: the gateway */
    LNET_NODE_EV_GATEWAY_UP,        /* nid */
    LNET_NODE_EV_GATEWAY_DOWN,      /* nid */
    LNET_NODE_EV_BUFFERS_EXHAUSTED, /* value: pool; a header waits and none did before */
    LNET_NODE_EV_BUFFERS_FREE,      /* value: pool; no header waits any more */
    LNET_NODE_EV_ROUTING,           /* value: enum lnet_routing */
    LNET_NODE_EV_NI_HEALTH,         /* nid; value: the health from now on; drop: why, if known */
    LNET_NODE_EV_PEER_HEALTH,       /* the same of a peer NI */
    LNET_NODE_EV_COUNT
};

/* A message that caused an event. */
struct lnet_event_msg {
    bool known;   /* else the other members say nothing */
    uint8_t type; /* enum lnet_msg_type */
    struct lnet_nid src, dest;
};

struct lnet_node_event {
    enum lnet_node_event_kind kind;
    uint64_t when_us; /* reactor_now_us() clock */
    unsigned reactor;
    struct lnet_nid nid;
    lnet_net_t net;
    int value;                 /* pool, or state */
    enum lnet_drop drop;       /* cause where one of these names is it */
    const char *cause;         /* else a word of our own, static; NULL = none */
    struct lnet_event_msg msg; /* of changes of health: the message that failed, or got through */
};

struct lnet_node;

/* Passes events to fn from now on, in batches; missed: the number lost since the last call.
 * Control thread, which fn runs on too. One watcher; NULL = none. */
typedef void (*lnet_node_events_fn)(void *arg, const struct lnet_node_event *rows, unsigned n,
                                    uint64_t missed);
void lnet_node_events_watch(struct lnet_node *node, lnet_node_events_fn fn, void *arg);

/* Posts an event, on a reactor or the control thread; row is copied, when_us and
 * reactor are filled in. */
void lnet_node_event_post(struct lnet_node *node, const struct lnet_node_event *row);

#endif
