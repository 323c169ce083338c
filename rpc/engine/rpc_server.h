/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON-RPC on a Unix socket: JSON values one after the other in each direction, each of ours ended
 * by a newline. Runs on the control reactor, whose thread all functions must be called on.
 *
 * No client can delay the others or grow without bound. Requests, clients, calls in flight and
 * output queues are limited. The server does not read from a client that does not read its
 * responses, and closes one that takes nothing for RPC_STALL_S. When all places are taken, the
 * client that has been idle for longest makes way, but not for one of another user with
 * RPC_USER_CLIENTS or more. A client makes way though it is busy for one
 * that may do more, and for one of another user if its own has more than RPC_USER_CLIENTS. Root and
 * the user of this process have a few places of their own.
 */
#ifndef MILLRACE_RPC_SERVER_H
#define MILLRACE_RPC_SERVER_H

#include <stddef.h>

#include "lib/base/err.h"
#include "rpc/engine/jsonrpc.h"
#include "rpc/engine/rpc_access.h"

#define RPC_MAX_CLIENTS  64
#define RPC_USER_CLIENTS 16           /* of one user, that it keeps when all places are taken */
#define RPC_MORE_CLIENTS 8            /* further ones of root or the user of this process */
#define RPC_MAX_REQUEST  (1u << 20)   /* bytes of one request */
#define RPC_MAX_CALLS    32           /* of a client in flight before no more is read */
#define RPC_OUT_PAUSE    (1u << 20)   /* bytes kept for a client before no more is read */
#define RPC_OUT_MAX      (64u << 20)  /* bytes waiting for a client before it is cut off */
#define RPC_OUT_ALL      (256u << 20) /* of all clients, before that with most is cut off */
#define RPC_STALL_S      30 /* a client that has taken nothing of what waits for so long is cut off */
#define RPC_IDLE_S       10 /* a client that did nothing for so long can be made to give way */
#define RPC_LINGER_S     2  /* how long what a client still sends is thrown away before the close */

struct rpc_server;

enum rpc_client_event {
    RPC_CLIENT_CONNECTED,
    RPC_CLIENT_CLOSED,      /* by itself, or at the end of the server */
    RPC_CLIENT_REFUSED,     /* it may not even read */
    RPC_CLIENT_TURNED_AWAY, /* no place was free */
    RPC_CLIENT_DISPLACED,   /* for another one */
    RPC_CLIENT_STALLED,     /* cut off: it did not take its responses */
    RPC_CLIENT_EVENTS
};
const char *rpc_client_event_name(enum rpc_client_event event);

struct rpc_server_opts {
    const char *path;  /* of the socket; its directory is made if only that is missing */
    unsigned mode;     /* permissions of the socket, e.g. 0660 */
    const char *group; /* owner group of the socket; NULL or "" = as the system has it */
    /* By role: the group whose members have it; NULL or "" = none, see below. */
    const char *role_group[JRPC_ROLES];
    /* Receives each client event; NULL = not needed. */
    void (*log)(void *arg, enum rpc_client_event event, const struct rpc_peer *peer);
    void *log_arg;
};

/* Takes the path (a socket left behind by a dead process is replaced, one in use is an error) and
 * begins to serve. Who may connect is decided by the socket's permissions, and then: root and the
 * user of this process may do everything. Without a group for any role so may all others. With one,
 * members of the groups have their roles, others may only read; with a group for JRPC_READ, others
 * are refused. 0 or -errno with a sentence. jrpc must outlive the server. */
int rpc_server_create(const struct rpc_server_opts *opts, const struct jrpc *jrpc,
                      struct rpc_server **out, struct err *err);
/* Closes all clients and removes the socket. Calls in flight continue; their results are discarded.
 */
void rpc_server_destroy(struct rpc_server *server);

unsigned rpc_server_clients(const struct rpc_server *server);

#endif
