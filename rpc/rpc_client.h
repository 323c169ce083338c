/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking JSON-RPC client for command line tools. One call at a time; any thread. */
#ifndef MILLRACE_RPC_CLIENT_H
#define MILLRACE_RPC_CLIENT_H

#include <stddef.h>

#include <jansson.h>

#define RPC_CLIENT_MAX_RESPONSE (64u << 20)

struct rpc_client;

/* Connects to the socket at path. 0 or -errno with a sentence that names the remedy. */
int rpc_client_open(const char *path, struct rpc_client **out, char *err, size_t errlen);
void rpc_client_close(struct rpc_client *client);

/* One call; params (taken) may be NULL. 0: *out is the response's result. 1: *out is its error
 * object. -errno: no response (-ETIMEDOUT after timeout_ms without a byte), with a sentence; *out
 * is NULL. *out is the caller's. */
int rpc_client_call(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, json_t **out, char *err, size_t errlen);

#endif
