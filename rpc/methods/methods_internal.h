/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the method files of rpc/ only. */
#ifndef MILLRACE_RPC_INTERNAL_H
#define MILLRACE_RPC_INTERNAL_H

#include "rpc/methods/methods.h"

#define RPC_ERR_SIZE 320 /* sentences of lib/ */

#define METHOD(id, text, ...) void rpc_##id(struct jrpc_call *call, const struct jrpc_arg *args);
#include "rpc/methods/methods.def"
#undef METHOD

/* Adds statistics, sent_stats, received_stats and dropped_stats as lnetctl has them,
 * docs/protocol/lnet-core.md §10.2. */
void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES],
                    const uint64_t dropped[LNET_MSG_TYPES]);
/* `udsp info`: there are no such policies. */
json_t *rpc_udsp(void);
/* The running document; NULL: there is none (tests). Valid until the next change. */
const struct cfg *rpc_document(const struct rpc_ctx *ctx);

/* ---- peers: rpc_peer.c, rpc_peer_conf.c ---- */
#define RPC_PEER_CONFIGURED  (1 << 3) /* bit of `peer state`, docs/protocol/lnet-core.md §3.6 */
#define RPC_PEER_CONF_CURSOR "c."     /* what a cursor begins with that is a place among these */
json_t *rpc_peer_ni(const struct lnet_peer_row *peer, bool brief);
/* Index of the configured peer with that NID, -1 = none. */
int rpc_peer_conf_find(const struct rpc_ctx *ctx, const struct lnet_nid *nid);
unsigned rpc_peer_conf_count(const struct rpc_ctx *ctx);
/* Ends the call with a page of configured peers, from an index on; more: with a cursor if there are
 * further ones. */
void rpc_peer_conf_page(struct jrpc_call *call, unsigned from, unsigned limit, bool brief,
                        bool more);

/* Ends a call whose cursor is none of ours. */
void rpc_refuse_cursor(struct jrpc_call *call);
/* Ends a call after a change: with true, or as rpc_change_failed(). arg is the call. */
void rpc_changed(void *arg, const struct cfg_outcome *outcome);
/* remedy NULL: by the errno. */
void rpc_change_failed(struct jrpc_call *call, const struct cfg_outcome *outcome,
                       const char *parameter, const char *remedy);
/* Ends a call as buffers_set and admission_set do, with what is there now; rpc_admission.c. */
void rpc_buffers_answer(struct jrpc_call *call);
void rpc_admission_answer(struct jrpc_call *call);
json_t *rpc_nid(const struct lnet_nid *nid);
/* Adds to a row what is known of a drop: stage, why, code. */
void rpc_add_why(json_t *row, const struct lnet_drop_why *why);
json_t *rpc_net(lnet_net_t net);

#endif
