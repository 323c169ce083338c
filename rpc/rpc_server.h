/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON-RPC on a Unix socket: JSON values one after the other in each direction, each of ours ended
 * by a newline. Runs on the control reactor, whose thread all functions must be called on.
 *
 * No client can hold up the others or grow without bound: requests, clients and calls in flight are
 * limited, and a client that does not read its responses is not read from.
 */
#ifndef MILLRACE_RPC_SERVER_H
#define MILLRACE_RPC_SERVER_H

#include <stddef.h>

#include "rpc/jsonrpc.h"

#define RPC_MAX_CLIENTS 64
#define RPC_MAX_REQUEST (1u << 20)  /* bytes of one request */
#define RPC_MAX_CALLS   32          /* of a client in flight before no more is read */
#define RPC_OUT_PAUSE   (1u << 20)  /* bytes waiting for a client before no more is read */
#define RPC_OUT_MAX     (64u << 20) /* bytes waiting for a client before it is cut off */

struct rpc_server;

struct rpc_server_opts {
    const char *path; /* of the socket; its directory is made if only that is missing */
    unsigned mode;    /* permissions of the socket, e.g. 0660 */
};

/* Takes the path (a socket left behind by a dead process is replaced, one in use is an error) and
 * begins to serve. Who may connect is decided by the socket's permissions. 0 or -errno with a
 * sentence. jrpc must outlive the server. */
int rpc_server_create(const struct rpc_server_opts *opts, const struct jrpc *jrpc,
                      struct rpc_server **out, char *err, size_t errlen);
/* Closes all clients and removes the socket. Calls in flight go on and answer nobody. */
void rpc_server_destroy(struct rpc_server *server);

unsigned rpc_server_clients(const struct rpc_server *server);

#endif
