/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events for subscribers: those of the node (lib/lnet/event.h) and of the control plane.
 * The newest RPC_EVENTS_KEPT are kept and a subscriber is a place among them. So a subscriber
 * that does not read takes no memory; it misses events and learns how many. Control thread.
 */
#ifndef MILLRACE_RPC_EVENTS_H
#define MILLRACE_RPC_EVENTS_H

#include <jansson.h>

#include "rpc/methods/methods.h"

#define RPC_EVENTS_KEPT     1024u
#define RPC_EVENTS_QUEUE    256u /* events that may wait for a subscriber who names no number */
#define RPC_EVENTS_SUBS     8u   /* subscriptions of one client */
#define RPC_EVENTS_SUBS_ALL 256u /* of one user no more than what is free */

struct rpc_events;

/* Whether events of the type report that something stopped working. */
bool rpc_event_is_trouble(const char *name);

/* Makes ctx->events, which listens to the controller from then on, before the first client. The
 * node's own events are told while the node runs. 0 or -ENOMEM. */
int rpc_events_start(struct rpc_ctx *ctx);
/* Forgets all; after the last client has gone, the reactors have stopped. ctx->events may be NULL.
 */
void rpc_events_stop(struct rpc_ctx *ctx);

/* Emits an event of the control plane. type: a name in the table of events.c. text: NULL = the
 * sentence of the type. more is taken: further members, or NULL; `address` means all NIDs of that
 * address. Subscribers are notified later. Nothing happens without ctx->events. */
void rpc_events_emit(struct rpc_ctx *ctx, const char *type, const char *cause, const char *text,
                     json_t *more);

struct inet_event;
/* An event of a port (lib/lnd_eth/ip/inet.h) as such a one. */
void rpc_events_of_port(struct rpc_ctx *ctx, const struct inet_event *event);

/* The one listener receives every event, e.g. for the log; NULL = none. event: the members of the
 * notification; missed: the number of events lost before it. fn must not start or stop anything. */
typedef void (*rpc_event_fn)(void *arg, const json_t *event, uint64_t missed);
void rpc_events_listen(struct rpc_ctx *ctx, rpc_event_fn fn, void *arg);

#endif
