/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON-RPC 2.0, see jsonrpc.h. Sections are those of the specification. */
#include "rpc/engine/jsonrpc.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/engine/json_wide.h"

/* One text that came in: a single request or a batch, and what has been answered so far. */
struct jrpc_request {
    struct jrpc_session *session; /* NULL once it has closed */
    struct jrpc_request *next, **pprev;
    json_t *root;     /* args point into it */
    unsigned pending; /* calls not ended, plus one while they are being started */
    size_t begun;     /* calls of a batch that were started */
    bool batch;
    bool wide; /* numbers of it had more than 64 bits and have become reals */
    char *out; /* responses so far, with separators */
    size_t used, room;
};

struct jrpc_call {
    struct jrpc_request *request;
    const struct jrpc_method *method;
    json_t *id; /* NULL: a notification */
    const struct jrpc *jrpc;
    struct jrpc_who who;
    json_t *params; /* NULL: none */
    void *memory;
    void *owned; /* NULL: none */
    void (*free_owned)(void *thing);
};

void jrpc_session_init(struct jrpc_session *session, const struct jrpc *jrpc,
                       void (*reply)(void *arg, const char *text, size_t len), void *arg)
{
    *session = (struct jrpc_session){.jrpc = jrpc, .reply = reply, .arg = arg};
}

struct jrpc_session *jrpc_session_of(const struct jrpc_call *call)
{
    return call->request->session;
}

uid_t jrpc_uid_of(const struct jrpc_call *call)
{
    return call->who.uid;
}

size_t jrpc_backlog(const struct jrpc_session *session)
{
    return session->backlog ? session->backlog(session->arg) : 0;
}

void jrpc_notify(struct jrpc_session *session, const char *method, json_t *params)
{
    json_t *note =
        json_pack("{s:s, s:s, s:o}", "jsonrpc", "2.0", "method", method, "params", params);
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL;

    if (text)
        session->reply(session->arg, text, strlen(text));
    free(text);
    json_decref(note);
}

/* ---- requests ---- */

static struct jrpc_request *request_new(struct jrpc_session *session, json_t *root)
{
    struct jrpc_request *request = calloc(1, sizeof(*request));

    if (!request) {
        json_decref(root);
        return NULL;
    }
    request->session = session;
    request->root = root;
    request->batch = json_is_array(root);
    request->pending = 1;
    request->next = session->open;
    request->pprev = &session->open;
    if (request->next)
        request->next->pprev = &request->next;
    session->open = request;
    return request;
}

static void request_unlink(struct jrpc_request *request)
{
    *request->pprev = request->next;
    if (request->next)
        request->next->pprev = request->pprev;
}

/* One of what request waits for has ended; with the last the response goes out. */
static void request_put(struct jrpc_request *request)
{
    struct jrpc_session *session = request->session;

    if (--request->pending)
        return;
    if (session) {
        request_unlink(request);
        session->held -= request->used;
        if (request->used && request->batch)
            request->out[request->used++] = ']'; /* append() left room */
        if (request->used)
            session->reply(session->arg, request->out, request->used);
    }
    json_decref(request->root);
    free(request->out);
    free(request);
}

void jrpc_session_close(struct jrpc_session *session)
{
    struct jrpc_request *batch = session->batch;

    if (session->closed)
        session->closed(session);

    for (struct jrpc_request *request = session->open; request; request = request->next) {
        request->session = NULL;
        free(request->out);
        request->out = NULL;
    }
    session->open = session->batch = NULL;
    session->open_calls = 0;
    session->held = 0;
    if (batch)
        request_put(batch);
}

/* Adds a response's text; false when there is no room for it. */
static bool append(struct jrpc_request *request, const char *text, size_t len)
{
    size_t need = request->used + len + 2; /* a separator and the closing bracket */

    if (need > JRPC_MAX_REPLY)
        return false;
    if (need > request->room) {
        size_t room = 2 * need;
        char *grown = realloc(request->out, room);

        if (!grown)
            return false;
        request->out = grown;
        request->room = room;
    }
    if (request->batch) {
        request->out[request->used] = request->used ? ',' : '[';
        request->used++;
    }
    memcpy(request->out + request->used, text, len);
    request->used += len;
    request->session->held += len + request->batch;
    return true;
}

/* ---- responses (§5) ---- */

static json_t *error_object(int code, const char *message, json_t *data)
{
    return json_pack("{s:i, s:s, s:o*}", "code", code, "message", message, "data", data);
}

/* Dumps {"jsonrpc", member: value, "id"} into the request's output; value is taken. A response too
 * large to be sent becomes an error. */
static void respond(struct jrpc_request *request, json_t *id, const char *member, json_t *value)
{
    json_t *response = json_object();
    char *text = NULL;

    if (request->session && value) {
        json_object_set_new(response, "jsonrpc", json_string("2.0"));
        json_object_set(response, member, value);
        json_object_set(response, "id", id);
        text = json_dumps(response, JSON_COMPACT);
    }
    json_decref(value);
    json_decref(response);
    if (request->session && (!text || !append(request, text, strlen(text)))) {
        static const char failed[] = "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32603,\"message\":"
                                     "\"the response is too large or memory is short\"},\"id\":";
        char *id_text = json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY), *all = NULL;

        if (id_text && asprintf(&all, "%s%s}", failed, id_text) > 0)
            append(request, all, strlen(all));
        free(all);
        free(id_text);
    }
    free(text);
}

static void respond_error(struct jrpc_request *request, json_t *id, int code, const char *message,
                          json_t *data)
{
    respond(request, id, "error", error_object(code, message, data));
}

/* Frees the call after its response. */
static void call_end(struct jrpc_call *call)
{
    struct jrpc_request *request = call->request;

    if (request->session)
        request->session->open_calls--;
    if (call->jrpc->calls)
        --*call->jrpc->calls;
    jrpc_own(call, NULL, NULL);
    free(call->memory);
    json_decref(call->params);
    free(call);
    request_put(request);
}

/* Of calls that may change something: who did what, and how it ended. */
static void tell_change(const struct jrpc_call *call, int code, const char *message)
{
    const struct jrpc_change change = {
        .method = call->method->name,
        .params = call->params,
        .who = call->who,
        .code = code,
        .message = message,
    };

    if (call->jrpc->changed && call->method->role != JRPC_READ)
        call->jrpc->changed(&change);
}

void jrpc_result(struct jrpc_call *call, json_t *result)
{
    if (call->id && result)
        respond(call->request, call->id, "result", result);
    else if (call->id)
        respond_error(call->request, call->id, JRPC_INTERNAL_ERROR, "out of memory", NULL);
    else
        json_decref(result);
    tell_change(call, 0, NULL);
    call_end(call);
}

static json_t *error_data(int err, const char *parameter, const char *remedy)
{
    return json_pack("{s:i, s:o*, s:o*, s:o*}", "errno", -err, "name",
                     json_string(strerrorname_np(err)), "parameter", json_string(parameter),
                     "remedy", json_string(remedy));
}

#define MESSAGE_MAX 16383u /* bytes of an error message; a document has many errors */

/* Bytes of a request get into messages; what is no UTF-8 would make the response invalid, but a
 * cut in the middle of a character can come about only here. */
static void trim_utf8(char *text)
{
    size_t len = strlen(text);
    json_t *probe;

    while (len && !(probe = json_string(text)))
        text[--len] = '\0';
    if (len)
        json_decref(probe);
}

static void end_with_error(struct jrpc_call *call, int code, int err, const char *parameter,
                           const char *remedy, const char *fmt, va_list args)
{
    char *text = NULL;
    const char *message = "out of memory";

    if (vasprintf(&text, fmt, args) < 0)
        text = NULL;
    if (text) {
        if (strlen(text) > MESSAGE_MAX)
            text[MESSAGE_MAX] = '\0';
        trim_utf8(text);
        message = text;
    }
    if (call->id)
        respond_error(call->request, call->id, code, message, error_data(err, parameter, remedy));
    tell_change(call, code, message);
    call_end(call);
    free(text);
}

void jrpc_fail(struct jrpc_call *call, int err, const char *parameter, const char *remedy,
               const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    end_with_error(call, -err, err, parameter, remedy, fmt, args);
    va_end(args);
}

void jrpc_refuse(struct jrpc_call *call, const char *parameter, const char *remedy, const char *fmt,
                 ...)
{
    va_list args;

    va_start(args, fmt);
    end_with_error(call, JRPC_INVALID_PARAMS, EINVAL, parameter, remedy, fmt, args);
    va_end(args);
}

/* ---- parameters (§4.2) ---- */

static unsigned param_count(const struct jrpc_method *method)
{
    unsigned n = 0;

    while (method->params && method->params[n].name)
        n++;
    return n;
}

bool jrpc_has_param(const struct jrpc_method *method, const char *name)
{
    const struct jrpc_param *param = method->params;

    while (param && param->name && strcmp(param->name, name) != 0)
        param++;
    return param && param->name;
}

/* NULL, or what is wrong with value; *remedy then says what would be right. */
static const char *decode_string(const struct jrpc_param *param, const char *text,
                                 struct jrpc_arg *arg, char remedy[128])
{
    arg->string = text;
    if (param->type == JRPC_NID) {
        snprintf(remedy, 128, "give address@net, as in 10.0.0.1@tcp");
        return nid_parse(text, &arg->nid) == 0 ? NULL : "is not a NID";
    }
    if (param->type == JRPC_NET) {
        snprintf(remedy, 128, "give a type and number, as in tcp or o2ib1");
        return net_parse(text, &arg->net) == 0 ? NULL : "is not a net";
    }
    if (param->type == JRPC_WORD) {
        snprintf(remedy, 128, "give one of the words that rpc_methods lists");
        for (arg->integer = 0; param->words[arg->integer]; arg->integer++)
            if (strcmp(param->words[arg->integer], text) == 0)
                return NULL;
        return "is none of its words";
    }
    snprintf(remedy, 128, "give at most %lld characters", (long long)param->max);
    return strlen(text) <= (size_t)param->max ? NULL : "is too long";
}

/* A string without U+0000, behind which handlers would not see anything. */
static bool is_text(const json_t *value)
{
    return json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value);
}

static bool all_texts(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!is_text(json_array_get(array, i)))
            return false;
    return true;
}

static const char *decode_arg(const struct jrpc_param *param, const json_t *value,
                              struct jrpc_arg *arg, char remedy[128])
{
    arg->given = true;
    arg->value = value;
    switch (param->type) {
    case JRPC_INTEGER:
        snprintf(remedy, 128, "give a whole number from %lld to %lld", (long long)param->min,
                 (long long)param->max);
        if (!json_is_integer(value))
            return "is not a whole number";
        arg->integer = json_integer_value(value);
        return arg->integer >= param->min && arg->integer <= param->max ? NULL : "is out of range";
    case JRPC_NUMBER:
        snprintf(remedy, 128, "give a number from %lld to %lld", (long long)param->min,
                 (long long)param->max);
        if (!json_is_number(value))
            return "is not a number";
        arg->number = json_number_value(value);
        return arg->number >= (double)param->min && arg->number <= (double)param->max
                   ? NULL
                   : "is out of range";
    case JRPC_BOOLEAN:
        snprintf(remedy, 128, "give true or false");
        arg->boolean = json_is_true(value);
        return json_is_boolean(value) ? NULL : "is neither true nor false";
    case JRPC_STRINGS:
        snprintf(remedy, 128, "give an array of at most %lld strings", (long long)param->max);
        if (!json_is_array(value) || !all_texts(value))
            return "is not an array of strings";
        return json_array_size(value) <= (size_t)param->max ? NULL : "has too many entries";
    default:
        snprintf(remedy, 128, "give a string");
        if (!json_is_string(value))
            return "is not a string";
        if (!is_text(value))
            return "has a character U+0000";
        return decode_string(param, json_string_value(value), arg, remedy);
    }
}

/* The first key of params that the method does not have, NULL when there is none. */
static const char *surplus_key(const struct jrpc_method *method, json_t *params)
{
    const char *key;
    json_t *value;

    json_object_foreach(params, key, value)
        if (!jrpc_has_param(method, key))
            return key;
    return NULL;
}

/* "tiny is out of range (-5)" */
static void refuse_value(struct jrpc_call *call, const struct jrpc_param *param,
                         const json_t *value, const char *wrong, const char *remedy)
{
    char *text = json_is_string(value) || json_is_number(value) || json_is_boolean(value)
                     ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY)
                     : NULL;

    jrpc_refuse(call, param->name, remedy, text ? "%s %s (%.80s)" : "%s %s", param->name, wrong,
                text);
    free(text);
}

/* Fills args from params (object, array or NULL). False: the call has been ended with -32602. */
static bool decode_params(struct jrpc_call *call, json_t *params, struct jrpc_arg *args)
{
    const struct jrpc_method *method = call->method;
    unsigned n = param_count(method);
    const char *surplus = surplus_key(method, params);
    char remedy[128];

    if (surplus || json_array_size(params) > n) {
        jrpc_refuse(call, surplus, "rpc_methods lists the parameters of each method",
                    "%s takes %u parameters%s%.64s", method->name, n, surplus ? ", none is " : "",
                    surplus ? surplus : "");
        return false;
    }
    for (unsigned i = 0; i < n; i++) {
        const struct jrpc_param *param = &method->params[i];
        const json_t *value = json_is_array(params) ? json_array_get(params, i)
                                                    : json_object_get(params, param->name);
        const char *wrong = value             ? decode_arg(param, value, &args[i], remedy)
                            : param->required ? "is missing"
                                              : NULL;

        if (wrong) {
            refuse_value(call, param, value, wrong, value ? remedy : param->help);
            return false;
        }
    }
    return true;
}

/* ---- calls (§4) ---- */

static const struct jrpc_method *find_method(const struct jrpc *jrpc, const char *name)
{
    for (const struct jrpc_method *method = jrpc->methods; method->name; method++)
        if (strcmp(method->name, name) == 0)
            return method;
    return NULL;
}

/* Returns the id of a request object, NULL if it has none (a notification). Sets *valid to false
 * if an id cannot have that type, or if the response could not repeat the number exactly. */
static json_t *request_id(const struct jrpc_request *request, json_t *object, bool *valid)
{
    json_t *id = json_object_get(object, "id");

    *valid = !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
    if (request->wide && json_is_real(id))
        *valid = false;
    return id;
}

static bool request_valid(json_t *object)
{
    const json_t *version = json_object_get(object, "jsonrpc");
    const json_t *params = json_object_get(object, "params");

    return is_text(version) && strcmp(json_string_value(version), "2.0") == 0 &&
           json_is_string(json_object_get(object, "method")) &&
           (!params || json_is_object(params) || json_is_array(params));
}

/* Returns the remedy for a method that belongs to the other phase. */
static const char *const phase_remedies[] = {
    [JRPC_RUNTIME] = "call `start` first: the process waits for it",
    [JRPC_STARTUP] = "restart the process with --wait-for-rpc to call it before the node starts",
};

/* Whether session may call the method now. False: the call has been ended with an error. */
static bool may_call(struct jrpc_call *call, const struct jrpc_session *session)
{
    const struct jrpc_method *method = call->method;

    if (method->role > session->role) {
        jrpc_fail(call, EACCES, NULL, session->role_remedy[method->role],
                  "%s needs the role %s; this client has the role %s", method->name,
                  jrpc_role_name(method->role), jrpc_role_name(session->role));
        return false;
    }
    if (method->phase == JRPC_RUNTIME && !call->jrpc->started) {
        jrpc_fail(call, EAGAIN, NULL, phase_remedies[JRPC_RUNTIME],
                  "%s cannot be called before the node is started", method->name);
        return false;
    }
    if (method->phase == JRPC_STARTUP && call->jrpc->started) {
        jrpc_fail(call, EALREADY, NULL, phase_remedies[JRPC_STARTUP],
                  "%s can only be called before the node is started", method->name);
        return false;
    }
    return true;
}

static void run_call(struct jrpc_request *request, const struct jrpc_method *method, json_t *object,
                     json_t *id)
{
    struct jrpc_arg args[JRPC_MAX_PARAMS];
    struct jrpc_call *call = calloc(1, sizeof(*call));

    if (!call) {
        if (id)
            respond_error(request, id, JRPC_INTERNAL_ERROR, "out of memory", NULL);
        return;
    }
    call->request = request;
    call->method = method;
    call->id = id;
    call->jrpc = request->session->jrpc;
    call->who = request->session->who;
    call->params = json_incref(json_object_get(object, "params"));
    request->pending++;
    request->session->open_calls++;
    if (call->jrpc->calls)
        ++*call->jrpc->calls;
    memset(args, 0, sizeof(args));
    if (may_call(call, request->session) &&
        decode_params(call, json_object_get(object, "params"), args))
        call->jrpc->handlers[method - call->jrpc->methods](call, args);
}

static void run_one(struct jrpc_request *request, json_t *object)
{
    const struct jrpc_method *method;
    bool id_valid;
    json_t *id = request_id(request, object, &id_valid);
    const json_t *name = json_object_get(object, "method");

    if (!id_valid || !request_valid(object)) {
        respond_error(request, id && id_valid ? id : json_null(), JRPC_INVALID_REQUEST,
                      "Invalid Request", NULL);
        return;
    }
    method = is_text(name) ? find_method(request->session->jrpc, json_string_value(name)) : NULL;
    if (method)
        run_call(request, method, object, id);
    else if (id)
        respond_error(request, id, JRPC_METHOD_NOT_FOUND, "Method not found",
                      error_data(ENOSYS, "method", "rpc_methods lists the methods"));
}

/* Runs calls of a batch, one at least, up to a pause or its end, and ends the request there. */
static void run_calls(struct jrpc_request *request)
{
    size_t n = json_array_size(request->root);
    struct jrpc_session *session;

    while (request->session && request->begun < n) {
        run_one(request, json_array_get(request->root, request->begun++));
        session = request->session;
        if (session && request->begun < n && session->pause && session->pause(session->arg)) {
            session->batch = request;
            return;
        }
    }
    request_put(request);
}

void jrpc_continue(struct jrpc_session *session)
{
    struct jrpc_request *request = session->batch;

    session->batch = NULL;
    run_calls(request);
}

/* §6: a batch is answered by an array; an empty one and one too long by a single error. */
static void run_batch(struct jrpc_request *request)
{
    size_t n = json_array_size(request->root);

    if (n == 0 || n > JRPC_MAX_BATCH) {
        request->batch = false;
        respond_error(request, json_null(), JRPC_INVALID_REQUEST,
                      n ? "Invalid Request: too many calls in one batch" : "Invalid Request", NULL);
        request_put(request);
        return;
    }
    run_calls(request);
}

/* The value of a text; *wide: with numbers that became reals. NULL with a sentence. */
static json_t *parse(const char *text, size_t len, bool *wide, json_error_t *err)
{
    const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
    json_t *root = json_loadb(text, len, flags, err);
    char *reals;

    *wide = !root && json_error_code(err) == json_error_numeric_overflow;
    if (!*wide)
        return root;
    reals = json_wide_as_reals(text, len, &len);
    if (reals)
        root = json_loadb(reals, len, flags, err);
    free(reals);
    return root;
}

void jrpc_input(struct jrpc_session *session, const char *text, size_t len)
{
    struct jrpc_request *request;
    json_error_t err;
    bool wide;
    json_t *root = parse(text, len, &wide, &err);

    if (!root) {
        jrpc_reject(session, err.text);
        return;
    }
    request = request_new(session, root);
    if (!request)
        return;
    request->wide = wide;
    if (request->batch) {
        run_batch(request);
        return;
    }
    run_one(request, root);
    request_put(request);
}

void jrpc_reject(struct jrpc_session *session, const char *why)
{
    struct jrpc_request *request = request_new(session, json_null());
    char text[200];

    if (!request)
        return;
    snprintf(text, sizeof(text), "Parse error: %s", why);
    trim_utf8(text);
    respond_error(request, json_null(), JRPC_PARSE_ERROR, text, NULL);
    request_put(request);
}

/* ---- for handlers ---- */

const struct jrpc_method *jrpc_method_of(const struct jrpc_call *call)
{
    return call->method;
}

void *jrpc_ctx(const struct jrpc_call *call)
{
    return call->jrpc->ctx;
}

const struct jrpc *jrpc_of(const struct jrpc_call *call)
{
    return call->jrpc;
}

void *jrpc_alloc(struct jrpc_call *call, size_t size)
{
    void *memory = calloc(1, size);

    if (memory)
        call->memory = memory;
    else
        jrpc_result(call, NULL);
    return memory;
}

void jrpc_own(struct jrpc_call *call, void *thing, void (*free_fn)(void *thing))
{
    if (call->owned)
        call->free_owned(call->owned);
    call->owned = thing;
    call->free_owned = free_fn;
}

void jrpc_disown(struct jrpc_call *call)
{
    call->owned = NULL;
}

/* ---- description ---- */

const char *jrpc_type_name(enum jrpc_type type)
{
    static const char *const names[JRPC_TYPES] = {
        "string", "integer", "boolean", "nid",   "net",    "word", "text",
        "array",  "number",  "object",  "array", "object", "any",
    };

    return names[type];
}

const char *jrpc_role_name(enum jrpc_role role)
{
    static const char *const names[JRPC_ROLES] = {"read", "operator", "admin"};

    return names[role];
}

const char *jrpc_phase_name(enum jrpc_phase phase)
{
    return phase == JRPC_RUNTIME ? "runtime" : phase == JRPC_STARTUP ? "startup" : "always";
}

static json_t *describe_param(const struct jrpc_param *param)
{
    json_t *row =
        json_pack("{s:s, s:s, s:b, s:s}", "name", param->name, "type", jrpc_type_name(param->type),
                  "required", param->required, "help", param->help);
    const char *const *word = param->words;

    if (param->type == JRPC_INTEGER || param->type == JRPC_NUMBER)
        json_object_set_new(row, "min", json_integer(param->min));
    if (param->max)
        json_object_set_new(row, "max", json_integer(param->max));
    if (param->unit)
        json_object_set_new(row, "unit", json_string(param->unit));
    if (word) {
        json_t *words = json_array();

        for (; *word; word++)
            json_array_append_new(words, json_string(*word));
        json_object_set_new(row, "words", words);
    }
    return row;
}

json_t *jrpc_describe(const struct jrpc *jrpc)
{
    json_t *all = json_array();

    for (const struct jrpc_method *method = jrpc->methods; method->name; method++) {
        unsigned n = param_count(method);
        json_t *params = json_array();

        for (unsigned i = 0; i < n; i++)
            json_array_append_new(params, describe_param(&method->params[i]));
        json_array_append_new(all, json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "name", method->name,
                                             "help", method->help, "result", method->result, "role",
                                             jrpc_role_name(method->role), "phase",
                                             jrpc_phase_name(method->phase), "params", params));
    }
    return all;
}
