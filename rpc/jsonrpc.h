/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON-RPC 2.0 (https://www.jsonrpc.org/specification): from the text of a request to a call of a
 * method and from its result to the text of the response. Knows no socket; everything happens on
 * one thread, that of the caller.
 *
 * One table describes the methods. Names, types and ranges of parameters in it are what requests
 * are checked by before a handler sees them, and what rpc_methods and the documentation show.
 *
 * Life of a call: jrpc_input() makes it and runs the handler, which ends it exactly once, then or
 * later, with jrpc_result(), jrpc_fail() or jrpc_refuse(). When the session closes first, the call
 * lives on until the handler ends it, and its response is thrown away.
 */
#ifndef MILLRACE_JSONRPC_H
#define MILLRACE_JSONRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "lib/lnet/nid.h"

#define JRPC_MAX_BATCH  64          /* calls in one batch */
#define JRPC_MAX_PARAMS 8           /* parameters of a method */
#define JRPC_MAX_REPLY  (32u << 20) /* bytes of one response */

enum jrpc_code { /* §5.1 */
    JRPC_PARSE_ERROR = -32700,
    JRPC_INVALID_REQUEST = -32600,
    JRPC_METHOD_NOT_FOUND = -32601,
    JRPC_INVALID_PARAMS = -32602,
    JRPC_INTERNAL_ERROR = -32603,
};

enum jrpc_type {
    JRPC_STRING,
    JRPC_INTEGER,
    JRPC_BOOLEAN,
    JRPC_NID,
    JRPC_NET,
    JRPC_TYPES
};

struct jrpc_param {
    const char *name;
    enum jrpc_type type;
    bool required;
    int64_t min, max; /* integer: range; string: max = longest length */
    const char *help;
};

/* A parameter as decoded. */
struct jrpc_arg {
    bool given;
    const char *string; /* lives as long as the call */
    int64_t integer;
    bool boolean;
    struct lnet_nid nid;
    lnet_net_t net;
};

struct jrpc_call;

struct jrpc_method {
    const char *name;
    const char *help;                /* one sentence */
    const char *result;              /* what comes back */
    const struct jrpc_param *params; /* ends with a row without name; NULL = none */
    /* args has one entry per row of params, in that order; valid until it returns, but for strings
     */
    void (*handler)(struct jrpc_call *call, const struct jrpc_arg *args);
};

/* Methods and what their handlers get. Made by the caller, lives longer than its sessions. */
struct jrpc {
    const struct jrpc_method *methods; /* ends with a row without name */
    void *ctx;
};

struct jrpc_request;

/* One client. */
struct jrpc_session {
    const struct jrpc *jrpc;
    /* One response, without newline; text is the engine's. Must not close the session itself. */
    void (*reply)(void *arg, const char *text, size_t len);
    void *arg;
    struct jrpc_request *open; /* private */
    unsigned open_calls;       /* calls not yet ended */
};

void jrpc_session_init(struct jrpc_session *session, const struct jrpc *jrpc,
                       void (*reply)(void *arg, const char *text, size_t len), void *arg);
/* Forgets the session: responses still to come are thrown away. */
void jrpc_session_close(struct jrpc_session *session);

/* One request or batch as text. Whatever it is, it is answered as the specification says. */
void jrpc_input(struct jrpc_session *session, const char *text, size_t len);
/* Answers something that is no JSON or is too large to be looked at: -32700, id null. */
void jrpc_reject(struct jrpc_session *session, const char *why);

/* ---- for handlers ---- */

void *jrpc_ctx(const struct jrpc_call *call);
const struct jrpc *jrpc_of(const struct jrpc_call *call);
/* Zeroed memory that is freed with the call; NULL: out of memory. At most once per call. */
void *jrpc_alloc(struct jrpc_call *call, size_t size);
/* Ends the call. result is taken; NULL stands for "out of memory". */
void jrpc_result(struct jrpc_call *call, json_t *result);
/* Ends the call with an application error: code -err (an errno, as lnetctl has it), message from
 * fmt, data {errno, name, parameter, remedy}; parameter and remedy may be NULL. */
void jrpc_fail(struct jrpc_call *call, int err, const char *parameter, const char *remedy,
               const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* Ends the call with -32602: args were well-formed, but not together. */
void jrpc_refuse(struct jrpc_call *call, const char *parameter, const char *remedy, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

/* The table as a JSON array: name, help, result, params. NULL: out of memory. */
json_t *jrpc_describe(const struct jrpc *jrpc);
const char *jrpc_type_name(enum jrpc_type type);

#endif
