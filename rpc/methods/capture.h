/* SPDX-License-Identifier: BSD-3-Clause */
/* The capture of packets that is under way, if one is. Control thread. */
#ifndef MILLRACE_RPC_PACKETS_H
#define MILLRACE_RPC_PACKETS_H

#include "rpc/methods/methods.h"

/* Ends it. Before the ports go; harmless if there is none. */
void rpc_packets_stop(struct rpc_ctx *ctx);

#endif
