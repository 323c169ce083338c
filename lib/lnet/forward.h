/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Forwarding: what happens to a message of another node between its receive and its send. The path
 * was chosen when the header came; it is chosen again if it is no longer good.
 */
#ifndef MILLRACE_LNET_FORWARD_H
#define MILLRACE_LNET_FORWARD_H

#include "lib/lnet/lnd.h"

/* Sends a message on whose payload is in; ends it if the receive failed or no path is left. On the
 * shard of the ingress connection. */
void lnet_forward(struct lnet_rx *rx, struct lnet_result result);

#endif
