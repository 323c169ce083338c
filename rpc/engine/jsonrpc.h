/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * JSON-RPC 2.0 (https://www.jsonrpc.org/specification): from the text of a request to a call of a
 * method and from its result to the text of the response. Knows no socket; everything happens on
 * one thread, that of the caller.
 *
 * One table describes the methods. Names, types and ranges of parameters in it are what requests
 * are checked by before a handler sees them, and what rpc_methods and the documentation show. So
 * are the role that a caller must have and the phase in which a method may be called.
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
#include <sys/types.h>

#include <jansson.h>

#include "lib/lnet/wire/nid.h"

#define JRPC_MAX_BATCH  64          /* calls in one batch */
#define JRPC_MAX_PARAMS 24          /* parameters of a method */
#define JRPC_MAX_REPLY  (32u << 20) /* bytes of one response */

enum jrpc_code { /* §5.1 */
    JRPC_PARSE_ERROR = -32700,
    JRPC_INVALID_REQUEST = -32600,
    JRPC_METHOD_NOT_FOUND = -32601,
    JRPC_INVALID_PARAMS = -32602,
    JRPC_INTERNAL_ERROR = -32603,
};

enum jrpc_type { /* of parameters and of what results are made of */
    JRPC_STRING,
    JRPC_INTEGER,
    JRPC_BOOLEAN,
    JRPC_NID,
    JRPC_NET,
    JRPC_WORD,    /* one of `words` */
    JRPC_TEXT,    /* a string of up to max bytes, a document */
    JRPC_STRINGS, /* parameter: an array of up to max strings */
    JRPC_NUMBER,  /* with a fraction, perhaps */
    /* results only */
    JRPC_OBJECT, /* with the members of `sub` */
    /* Of objects with the members of `sub`; without it, of strings. A `sub` of one row named "*"
     * says what the values themselves are. */
    JRPC_ARRAY,
    JRPC_MAP, /* an object whose keys are data; values as of an array, without `sub` anything */
    JRPC_ANY,
    JRPC_TYPES
};

/* The role of a client, and the one that a method needs. Each role may do what those before it may.
 */
enum jrpc_role {
    JRPC_READ,     /* looks only */
    JRPC_OPERATOR, /* changes what is forwarded and how: routes, peers, forwarding on and off */
    JRPC_ADMIN,    /* changes NIs, settings, files and the process */
    JRPC_ROLES
};

enum jrpc_phase {
    JRPC_RUNTIME, /* once the node is started */
    JRPC_STARTUP, /* before: the process waits for `start` (--wait-for-rpc) */
    JRPC_ALWAYS,
};

struct jrpc_param {
    const char *name;
    enum jrpc_type type;
    bool required;
    int64_t min, max;         /* integer, number: range; string, text: max = longest length */
    const char *unit;         /* "s", "MiB", "%"; NULL = none */
    const char *const *words; /* of JRPC_WORD, ends with NULL */
    const char *help;
    /* For the command line: `--option` or `-letter`; "" = a word without option. NULL: the name,
     * with '-' for '_'. */
    const char *option;
    char letter;
};

/* A member of a result. */
struct jrpc_field {
    const char *name;
    enum jrpc_type type;
    bool optional;
    const char *unit;
    const char *help;
    const struct jrpc_field *sub; /* ends with a row without name */
};

/* An application error a method can end with. */
struct jrpc_error_info {
    int err; /* errno, 0 ends the list */
    const char *when;
};

/* A parameter as decoded. */
struct jrpc_arg {
    bool given;
    const char *string;  /* lives as long as the call; JRPC_WORD too */
    const json_t *value; /* as it came, e.g. the array of JRPC_STRINGS; lives as long as the call */
    int64_t integer;     /* JRPC_WORD: index in words */
    double number;
    bool boolean;
    struct lnet_nid nid;
    lnet_net_t net;
};

struct jrpc_call;

/* Describes a method: the server, the command line and the documentation are made from it. */
struct jrpc_method {
    const char *name;
    const char *help;   /* one sentence */
    const char *result; /* what comes back */
    enum jrpc_role role;
    enum jrpc_phase phase;
    const struct jrpc_param *params;      /* ends with a row without name; NULL = none */
    const struct jrpc_field *fields;      /* of a result that is an object; NULL = `true` */
    const struct jrpc_error_info *errors; /* NULL: only those every method can end with */
    const char *cli;                      /* words of the command it is, "route add"; NULL = none */
};

/* args has one entry per row of params, in that order; valid until it returns, but for strings and
 * values. */
typedef void (*jrpc_handler)(struct jrpc_call *call, const struct jrpc_arg *args);

/* Who is at the other end of a session. */
struct jrpc_who {
    pid_t pid; /* 0: not known */
    uid_t uid;
};

/* A call of a method that may change something (its role is not JRPC_READ), as it ends. */
struct jrpc_change {
    const char *method;
    const json_t *params; /* as they came; NULL = none */
    struct jrpc_who who;
    int code; /* 0: done; else of the error */
    const char *message;
};

/* Methods and what their handlers get. Made by the caller, lives longer than its sessions. */
struct jrpc {
    const struct jrpc_method *methods; /* ends with a row without name */
    const jrpc_handler *handlers;      /* by the row of the method */
    void *ctx;
    /* Receives each call of a method that may change something when the call ends, done or refused,
     * e.g. for the log; NULL = not needed. */
    void (*changed)(const struct jrpc_change *change);
    unsigned *calls; /* how many have not ended, of all sessions, closed ones too; NULL: not kept */
    /* Methods of JRPC_RUNTIME may be called, those of JRPC_STARTUP no more. Its owner may set it at
     * any time between calls, also from within the handler of a method. */
    bool started;
};

struct jrpc_request;

/* One client. */
struct jrpc_session {
    const struct jrpc *jrpc;
    /* One response or notification, without newline; text is the engine's. Must not close the
     * session itself. */
    void (*reply)(void *arg, const char *text, size_t len);
    /* Bytes of earlier ones that the client has not taken yet; NULL: it takes all at once. */
    size_t (*backlog)(void *arg);
    /* Whether the rest of a batch has to wait for jrpc_continue(); NULL: it never has to. */
    bool (*pause)(void *arg);
    /* Called when the session closes; set by the owner of a subscription. NULL = none. While it
     * is set the server does not count the client as idle. */
    void (*closed)(struct jrpc_session *session);
    void *arg;
    struct jrpc_who who;
    enum jrpc_role role; /* what its calls may do; JRPC_READ until the caller says otherwise */
    /* By role: says how a client gets that role; NULL = nothing. */
    const char *role_remedy[JRPC_ROLES];
    struct jrpc_request *open;  /* private */
    struct jrpc_request *batch; /* a batch that waits for jrpc_continue(); else NULL */
    unsigned open_calls;        /* calls not yet ended */
    size_t held;                /* bytes of responses of batches that are not whole */
};

/* The session may only read; who, role, role_remedy and backlog are the caller's to set. */
void jrpc_session_init(struct jrpc_session *session, const struct jrpc *jrpc,
                       void (*reply)(void *arg, const char *text, size_t len), void *arg);
/* Forgets the session: responses still to come are thrown away. */
void jrpc_session_close(struct jrpc_session *session);

/* Runs one request or batch, given as text. Invalid text is answered as the specification says. */
void jrpc_input(struct jrpc_session *session, const char *text, size_t len);
/* Runs a batch on that session->pause() interrupted. */
void jrpc_continue(struct jrpc_session *session);
/* Answers something that is no JSON or is too large to be looked at: -32700, id null. */
void jrpc_reject(struct jrpc_session *session, const char *why);

/* ---- notifications ---- */

/* The session a call came by; NULL once it has closed. */
struct jrpc_session *jrpc_session_of(const struct jrpc_call *call);
/* The user whose call it is, also once the session has closed. */
uid_t jrpc_uid_of(const struct jrpc_call *call);
/* Bytes that wait for a client which does not read. */
size_t jrpc_backlog(const struct jrpc_session *session);
/* Sends {"jsonrpc", "method", "params"} without an id; params is taken. The caller bounds how much
 * a session that does not read is sent, by jrpc_backlog(). The session does not close, and no
 * handler runs, before this returns. */
void jrpc_notify(struct jrpc_session *session, const char *method, json_t *params);

/* ---- for handlers ---- */

void *jrpc_ctx(const struct jrpc_call *call);
const struct jrpc_method *jrpc_method_of(const struct jrpc_call *call);
bool jrpc_has_param(const struct jrpc_method *method, const char *name);
const struct jrpc *jrpc_of(const struct jrpc_call *call);
/* Returns zeroed memory that is freed with the call. NULL: the call has been ended. At most once
 * per call. */
void *jrpc_alloc(struct jrpc_call *call, size_t size);
/* Frees a thing by free_fn when the call ends, or when the call is given another thing. */
void jrpc_own(struct jrpc_call *call, void *thing, void (*free_fn)(void *thing));
/* The call frees that thing no more. */
void jrpc_disown(struct jrpc_call *call);
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
const char *jrpc_role_name(enum jrpc_role role);    /* "read", "operator", "admin" */
const char *jrpc_phase_name(enum jrpc_phase phase); /* "runtime", "startup", "always" */

#endif
