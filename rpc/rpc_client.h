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

/* For poll(): readable when something has come. What has been read already is not seen by poll();
 * ask rpc_client_next_notification() with a timeout of 0 until -ETIMEDOUT first. */
int rpc_client_fd(const struct rpc_client *client);

/* One call; params (taken) may be NULL. 0: *out is the response's result. 1: *out is its error
 * object. -errno: no response (-ETIMEDOUT after timeout_ms without a byte), with a sentence; *out
 * is NULL. *out is the caller's. */
int rpc_client_call(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, json_t **out, struct err *err);

/* The two halves of a call, for a program that waits in a loop of its own: rpc_client_ask() sends
 * the request, rpc_client_answer() receives the response to it as rpc_client_call() does. */
int rpc_client_ask(struct rpc_client *client, const char *method, json_t *params, struct err *err);
int rpc_client_answer(struct rpc_client *client, const char *method, unsigned timeout_ms,
                      json_t **out, struct err *err);

/* A result that comes in pages: calls the method with the `cursor` of each page for the next one
 * until there is none; -EPROTO with a sentence that names the cursor, and *out NULL, when one comes
 * twice, cannot be one, or belongs to page RPC_CLIENT_MAX_PAGES. fn gets each page's result, which
 * is not its own, and ends the walk with anything but 0, which is then what is returned (*out is
 * NULL). Else as rpc_client_call(), but with 0 *out is NULL. params (taken) is an object or NULL.
 */
typedef int (*rpc_client_page_fn)(void *arg, json_t *result);
int rpc_client_walk(struct rpc_client *client, const char *method, json_t *params,
                    unsigned timeout_ms, rpc_client_page_fn fn, void *arg, json_t **out,
                    struct err *err);
/* The same for whoever wants all of it at once: *out is the first page's result with the rows of
 * all pages in the array `key`, and without `cursor`. */
int rpc_client_call_all(struct rpc_client *client, const char *method, json_t *params,
                        const char *key, unsigned timeout_ms, json_t **out, struct err *err);

/* The next notification, an object with `method` and `params`, the caller's; also one that came
 * while a call was waited for (of these the last RPC_CLIENT_MAX_NOTES are kept). 0, -ETIMEDOUT when
 * none came within timeout_ms (0: look only), or -errno with a sentence when none will come. */
int rpc_client_next_notification(struct rpc_client *client, unsigned timeout_ms, json_t **out,
                                 struct err *err);
/* How many were thrown away since the client was opened, for want of a reader. */
unsigned long rpc_client_lost(const struct rpc_client *client);

#endif
