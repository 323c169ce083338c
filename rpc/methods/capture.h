/* SPDX-License-Identifier: BSD-3-Clause */
/* The capture of packets in progress. Control thread. */
#ifndef MILLRACE_RPC_PACKETS_H
#define MILLRACE_RPC_PACKETS_H

#include "rpc/methods/methods.h"

/* Ends the capture, if there is one. Called before the ports go. */
void rpc_packets_stop(struct rpc_ctx *ctx);

#endif
