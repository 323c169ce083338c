/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the running document that the node runs without, because the host has not got their
 * device: it was so when the node started. They are shown as down, with the reason; routes through
 * gateways on a net that has no other NI are left out until one of it comes. Control thread.
 */
#ifndef MILLRACE_CONTROL_ABSENT_H
#define MILLRACE_CONTROL_ABSENT_H

#include "control/controller.h"

struct control_absent;

/* Whether an NI of that net may be absent when it cannot be made for this -errno: RDMA is an
 * addition that a host may lack, and what else it does goes on. */
bool control_absent_may(lnet_net_t net, int rc);
/* Says so as an event. 0 or -ENOMEM. */
int control_absent_add(struct controller *c, const struct lnet_ni_conf *conf, const char *why);
/* False: there was none. */
bool control_absent_del(struct controller *c, const struct lnet_ni_conf *conf);
/* NULL: none. *why is valid until it is removed. */
const struct lnet_ni_conf *control_absent_at(const struct controller *c, unsigned index,
                                             const char **why);
bool control_absent_is(const struct controller *c, const struct lnet_ni_conf *conf);
/* All NIs of the net that the document has are absent; so routes through it cannot be. */
bool control_absent_net(const struct controller *c, lnet_net_t net);

/* Keeps a route that is left out. 0 or -ENOMEM. */
int control_absent_route(struct controller *c, const struct lnet_route_conf *route);
/* False: it is not left out. */
bool control_absent_route_del(struct controller *c, const struct lnet_route_conf *route);
/* The net has an NI now: routes through it are added. */
void control_absent_routes_back(struct controller *c, lnet_net_t net);

/* Forgets all: a node is about to be made, or the process ends. */
void control_absent_clear(struct controller *c);

#endif
