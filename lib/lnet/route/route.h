/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Routes and gateways: adding and deleting them at run time, checking gateways with pings, setting
 * each route's status by what its gateway says, starting and stopping to forward, and the events of
 * all this. docs/protocol/lnet-core.md §3.8, §3.9, §7.4, §11. lnet.h declares what the control
 * thread calls (lnet_routes_change(), lnet_routing_set(), lnet_timing_set()).
 *
 * The data path reads the result through path/ and never calls this room.
 */
#ifndef MILLRACE_LNET_ROUTE_H
#define MILLRACE_LNET_ROUTE_H

#include "lib/lnet/shard/conf.h"

int lnet_routes_init(struct lnet_node *node);  /* control, before start */
void lnet_routes_fini(struct lnet_node *node); /* control, reactors stopped */
/* Starts and stops the checks of gateways. Node home. */
void lnet_checks_start(struct lnet_node *node);
void lnet_checks_stop(struct lnet_node *node);
/* The link of an NI of ours went down or came up. The peer of a connection may have given it up
 * meanwhile, and what is sent over it is lost. So a gateway that can be reached without the NI gets
 * messages by it only after a ping by it was answered. Node home. */
void lnet_gateways_link(struct lnet_ni *ni, bool up);
/* Ends a start or stop of routing that is under way: the node stops. Control. */
void lnet_routing_stop(struct lnet_node *node);

#endif
