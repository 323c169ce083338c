/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that look twice, with some time between: counters_capture, peer_top. There are only so many
 * of them at once, and none outlives its client for long. Control thread. */
#ifndef MILLRACE_RPC_TIMED_H
#define MILLRACE_RPC_TIMED_H

#include <sys/queue.h>

#include "rpc/methods/methods.h"

#define RPC_TIMED_MAX         16 /* of all clients; of one user no more than what is free */
#define RPC_TIMED_MAX_SESSION 4  /* of one */

/* Part of what jrpc_alloc() gave for the call, which over() ends. */
struct rpc_timed {
    struct jrpc_call *call;
    struct rpc_ctx *ctx;
    /* Runs when the time is up, or with cancelled when the answer is not wanted any more. */
    void (*over)(struct rpc_timed *t, bool cancelled);
    struct reactor_timer timer;
    LIST_ENTRY(rpc_timed) link;
};

/* Puts t in the list of those in flight. False: there are too many, the call has been ended. */
bool rpc_timed_begin(struct rpc_timed *t, struct jrpc_call *call,
                     void (*over)(struct rpc_timed *t, bool cancelled));
void rpc_timed_wait(struct rpc_timed *t, unsigned ms); /* over() follows */
void rpc_timed_end(struct rpc_timed *t);               /* out of the list; before the call ends */
/* Ends those that wait for their time. When the control loop has ended and mail has been drained,
 * so that none of them waits for a reactor. */
void rpc_timed_stop(struct rpc_ctx *ctx);

#endif
