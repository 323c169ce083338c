/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the method files of rpc/ only. */
#ifndef MILLRACE_RPC_INTERNAL_H
#define MILLRACE_RPC_INTERNAL_H

#include "rpc/methods/methods.h"

#define METHOD(id, text, ...) void rpc_##id(struct jrpc_call *call, const struct jrpc_arg *args);
#define LND_METHOD(id, text, ...)
#include "rpc/methods/methods.def"
#undef LND_METHOD
#undef METHOD
void rpc_lnd_get(struct jrpc_call *call, const struct jrpc_arg *args); /* of all LND_METHODs */

/* ---- JSON of common values: common.c ---- */

extern const char *const rpc_pool_names[LNET_POOLS]; /* tiny, small, large */
json_t *rpc_nid(const struct lnet_nid *nid);
json_t *rpc_net(lnet_net_t net);
/* Returns the milliseconds since then. NULL: it was never, or is to come. */
json_t *rpc_ms_ago(uint64_t when_us);
/* Adds to an object the members statistics (sums), or sent_stats, received_stats and dropped_stats
 * (by type of message), or all of these, docs/protocol/lnet-core.md §10.2. */
void rpc_add_sums(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                  const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES]);
void rpc_add_types(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                   const uint64_t received[LNET_MSG_TYPES], const uint64_t dropped[LNET_MSG_TYPES]);
void rpc_add_counts(json_t *object, const uint64_t sent[LNET_MSG_TYPES],
                    const uint64_t received[LNET_MSG_TYPES],
                    const uint64_t dropped[LNET_MSG_TYPES]);
/* Returns `udsp info` of an NI of this node or of a peer NI, §8.3. udsp.c */
json_t *rpc_udsp(const struct rpc_ctx *ctx, const struct lnet_nid *nid, bool ours);
/* Adds to a row what is known of a drop: stage, why, code. stats.c */
void rpc_add_why(json_t *row, const struct lnet_drop_why *why);
/* Ends a call whose cursor this method did not return. */
void rpc_refuse_cursor(struct jrpc_call *call);

/* ---- changes of the running document: common.c ---- */

/* Returns the running document, valid until the next change; NULL: there is none (tests). */
const struct cfg *rpc_document(const struct rpc_ctx *ctx);
/* Returns a copy of the running document to edit; the call frees it. NULL: the call has been ended.
 */
struct cfg *rpc_edit(struct jrpc_call *call);
/* Takes another document in place of that copy. */
void rpc_own_document(struct jrpc_call *call, struct cfg *cfg);
/* Makes the edited copy the running document; the change has the name of the method. done(arg) ends
 * the call. When the copy is not valid the call is ended and done is not called. */
void rpc_commit(struct jrpc_call *call, struct cfg *cfg, cfg_outcome_fn done, void *arg);
/* Ends a call after a change: with true, or as rpc_change_failed(). arg is the call. */
void rpc_changed(void *arg, const struct cfg_outcome *outcome);
/* Ends a call after a change that was refused. parameter: of the call, when the error names none.
 */
void rpc_change_failed(struct jrpc_call *call, const struct cfg_outcome *outcome,
                       const char *parameter);
/* Ends a call with an error. parameter: when the error names none that the method has; remedy: when
 * the error has none. */
void rpc_fail(struct jrpc_call *call, const struct err *err, const char *parameter,
              const char *remedy);

/* ---- peers: peer.c, ping.c ---- */

/* Bits of `peer state`, docs/protocol/lnet-core.md §3.6. */
#define RPC_PEER_MULTI_RAIL (1u << 0)

#endif
