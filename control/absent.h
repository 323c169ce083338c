/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the running document that the node runs without, because the host lacked their device or
 * their address when the node started. They are shown as down, with the reason. Every two seconds
 * each is tried again, and one whose device has come is added to the node. Routes through a gateway
 * on a net without an NI are left out until an NI of that net is added. Control thread.
 */
#ifndef MILLRACE_CONTROL_ABSENT_H
#define MILLRACE_CONTROL_ABSENT_H

#include "control/controller.h"

struct control_absent;

/* Returns whether an NI of that net may be absent when its start fails with this -errno. */
bool control_absent_may(lnet_net_t net, int rc);
/* Adds an absent NI and reports the event ni_absent; why is the error with its remedy. 0 or
 * -ENOMEM. */
int control_absent_add(struct controller *c, const struct lnet_ni_conf *conf,
                       const struct err *why);
/* False: there was none. */
bool control_absent_del(struct controller *c, const struct lnet_ni_conf *conf);
/* Returns NULL behind the last one. *why is valid until the NI is removed. */
const struct lnet_ni_conf *control_absent_at(const struct controller *c, unsigned index,
                                             const char **why);
bool control_absent_is(const struct controller *c, const struct lnet_ni_conf *conf);
/* Returns whether all NIs of the net are absent, so that the node cannot have routes through it. */
bool control_absent_net(const struct controller *c, lnet_net_t net);

/* The node runs: from now on tries to add absent NIs. */
void control_absent_watch(struct controller *c);

/* The net has an NI now: adds the routes through it that the running document and the change under
 * way have. */
void control_absent_routes_back(struct controller *c, lnet_net_t net);

/* Before a node is made and at the end of the process. */
void control_absent_clear(struct controller *c);

#endif
