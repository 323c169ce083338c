/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON-RPC for a controller: serves the methods on the socket that the document names. Logs
 * clients, changes and events. Control thread. */
#ifndef MILLRACE_RPC_SERVICE_H
#define MILLRACE_RPC_SERVICE_H

#include "control/controller.h"
#include "lib/base/err.h"

struct rpc_service;

/* Begins to serve. Clients can connect at once; they are answered when the control loop runs. 0, or
 * -errno with a sentence; then *out is to be stopped too. */
int rpc_service_start(struct controller *c, struct rpc_service **out, struct err *err);
/* After controller_take_down(), which ends the calls in flight. s may be NULL. */
void rpc_service_stop(struct rpc_service *s);

#endif
