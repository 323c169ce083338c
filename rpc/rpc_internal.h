/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the method files of rpc/ only. */
#ifndef MILLRACE_RPC_INTERNAL_H
#define MILLRACE_RPC_INTERNAL_H

#include "rpc/rpc_methods.h"

#define RPC_ERR_SIZE    320       /* sentences of lib/ */
#define RPC_MAX_BUFFERS (1 << 20) /* of one kind; what there is memory for is less */

void rpc_net_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_net_del(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_route_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_route_add(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_route_del(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_stats_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_drops_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_buffers_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_buffers_set(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_admission_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_admission_set(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_waits_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_reactors_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_peer_get(struct jrpc_call *call, const struct jrpc_arg *args);
void rpc_ping(struct jrpc_call *call, const struct jrpc_arg *args);

/* Adds statistics, sent_stats, received_stats and dropped_stats as lnetctl has them,
 * docs/protocol/lnet-core.md §10.2. */
void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES],
                    const uint64_t dropped[LNET_MSG_TYPES]);
json_t *rpc_nid(const struct lnet_nid *nid);
json_t *rpc_net(lnet_net_t net);

#endif
