/* SPDX-License-Identifier: BSD-3-Clause */
/* A blocking JSON-RPC client for command line tools. One call at a time; any thread. */
#ifndef MILLRACE_RPC_CLIENT_H
#define MILLRACE_RPC_CLIENT_H

#include <stddef.h>

#include <jansson.h>

#include "lib/base/err.h"

#define RPC_CLIENT_MAX_RESPONSE (64u << 20)
#define RPC_CLIENT_MAX_NOTES    4096
#define RPC_CLIENT_MAX_PAGES    20000 /* of one walk; a server that never ends is given up */
#define RPC_CLIENT_MAX_CURSOR   256   /* bytes */

struct rpc_client;

/* Connects to the socket at path. 0 or -errno with a sentence that names the remedy. */
int rpc_client_open(const char *path, struct rpc_client **out, struct err *err);
void rpc_client_close(struct rpc_client *client);

/* For poll(): readable when a message has come. poll() does not see messages that were read
 * already; call rpc_client_next_notification() with a timeout of 0 until -ETIMEDOUT first. */
int rpc_client_fd(const struct rpc_client *client);

/* Makes one call and takes params, which may be NULL. Returns 0 with the result in *out, or 1
 * with the error object in *out; the caller owns *out. Returns -errno with *out NULL when no
 * response came (-ETIMEDOUT after timeout_ms without a byte). */
int rpc_client_call(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, json_t **out, struct err *err);

/* The two halves of a call, for a program that waits in a loop of its own: rpc_client_ask() sends
 * the request, rpc_client_answer() receives the response to it as rpc_client_call() does. */
int rpc_client_ask(struct rpc_client *client, const char *method, json_t *params, struct err *err);
int rpc_client_answer(struct rpc_client *client, const char *method, unsigned timeout_ms,
                      json_t **out, struct err *err);

/* Reads a result in pages: calls the method with the `cursor` of each page until a page has none.
 * Returns -EPROTO with *out NULL and the cursor in the message when a cursor comes twice, has a
 * wrong type, or belongs to page RPC_CLIENT_MAX_PAGES. fn receives each page's result, borrowed.
 * A value of fn other than 0 ends the walk and is returned (*out is NULL). Otherwise as
 * rpc_client_call(), but with 0 *out is NULL. params (taken) is an object or NULL.
 */
typedef int (*rpc_client_page_fn)(void *arg, json_t *result);
int rpc_client_walk(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, rpc_client_page_fn fn, void *arg, json_t **out,
                    struct err *err);

/* Returns the next notification, an object with `method` and `params`, owned by the caller.
 * Notifications that came during a call are kept, the last RPC_CLIENT_MAX_NOTES of them. 0,
 * -ETIMEDOUT when none came within timeout_ms (0: look only), or -errno with a sentence when none
 * will come. */
int rpc_client_next_notification(struct rpc_client *client, unsigned timeout_ms, json_t **out,
                                 struct err *err);

#endif
