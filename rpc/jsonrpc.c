/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON-RPC 2.0, see jsonrpc.h. Sections are those of the specification. */
#include "rpc/jsonrpc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One text that came in: a single request or a batch, and what has been answered so far. */
struct jrpc_request {
    struct jrpc_session *session; /* NULL once it has closed */
    struct jrpc_request *next, **pprev;
    json_t *root;     /* args point into it */
    unsigned pending; /* calls not ended, plus one while they are being started */
    bool batch;
    char *out; /* responses so far, with separators */
    size_t used, room;
};

struct jrpc_call {
    struct jrpc_request *request;
    const struct jrpc_method *method;
    json_t *id; /* NULL: a notification */
    const struct jrpc *jrpc;
    void *memory;
};

void jrpc_session_init(struct jrpc_session *session, const struct jrpc *jrpc,
                       void (*reply)(void *arg, const char *text, size_t len), void *arg)
{
    *session = (struct jrpc_session){.jrpc = jrpc, .reply = reply, .arg = arg};
}

void jrpc_session_close(struct jrpc_session *session)
{
    struct jrpc_request *request;

    for (request = session->open; request; request = request->next)
        request->session = NULL;
    session->open = NULL;
    session->open_calls = 0;
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
        if (request->used && request->batch)
            request->out[request->used++] = ']'; /* append() left room */
        if (request->used)
            session->reply(session->arg, request->out, request->used);
    }
    json_decref(request->root);
    free(request->out);
    free(request);
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
    return true;
}

/* ---- responses (§5) ---- */

static json_t *error_object(int code, const char *message, json_t *data)
{
    json_t *error = json_pack("{s:i, s:s}", "code", code, "message", message);

    if (error && data)
        json_object_set_new(error, "data", data);
    else
        json_decref(data);
    return error;
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
    free(call->memory);
    free(call);
    request_put(request);
}

void jrpc_result(struct jrpc_call *call, json_t *result)
{
    if (call->id && result)
        respond(call->request, call->id, "result", result);
    else if (call->id)
        respond_error(call->request, call->id, JRPC_INTERNAL_ERROR, "out of memory", NULL);
    else
        json_decref(result);
    call_end(call);
}

static json_t *error_data(int err, const char *parameter, const char *remedy)
{
    const char *name = strerrorname_np(err);
    json_t *data = json_pack("{s:i}", "errno", -err);

    if (name)
        json_object_set_new(data, "name", json_string(name));
    if (parameter)
        json_object_set_new(data, "parameter", json_string(parameter));
    if (remedy)
        json_object_set_new(data, "remedy", json_string(remedy));
    return data;
}

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
    char message[512];

    vsnprintf(message, sizeof(message), fmt, args);
    trim_utf8(message);
    if (call->id)
        respond_error(call->request, call->id, code, message, error_data(err, parameter, remedy));
    call_end(call);
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
    end_with_error(call, JRPC_INVALID_PARAMS, 22 /* EINVAL */, parameter, remedy, fmt, args);
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
    snprintf(remedy, 128, "give at most %lld characters", (long long)param->max);
    return strlen(text) <= (size_t)param->max ? NULL : "is too long";
}

static const char *decode_arg(const struct jrpc_param *param, const json_t *value,
                              struct jrpc_arg *arg, char remedy[128])
{
    arg->given = true;
    switch (param->type) {
    case JRPC_INTEGER:
        snprintf(remedy, 128, "give a whole number from %lld to %lld", (long long)param->min,
                 (long long)param->max);
        if (!json_is_integer(value))
            return "is not a whole number";
        arg->integer = json_integer_value(value);
        return arg->integer >= param->min && arg->integer <= param->max ? NULL : "is out of range";
    case JRPC_BOOLEAN:
        snprintf(remedy, 128, "give true or false");
        arg->boolean = json_is_true(value);
        return json_is_boolean(value) ? NULL : "is neither true nor false";
    default:
        snprintf(remedy, 128, "give a string");
        if (!json_is_string(value))
            return "is not a string";
        return decode_string(param, json_string_value(value), arg, remedy);
    }
}

/* The first key of params that the method does not have, NULL when there is none. */
static const char *surplus_key(const struct jrpc_method *method, unsigned n, json_t *params)
{
    const char *key;
    json_t *value;

    json_object_foreach(params, key, value) {
        unsigned i;

        for (i = 0; i < n && strcmp(method->params[i].name, key) != 0; i++)
            ;
        if (i == n)
            return key;
    }
    return NULL;
}

/* Fills args from params (object, array or NULL). False: the call has been ended with -32602. */
static bool decode_params(struct jrpc_call *call, json_t *params, struct jrpc_arg *args)
{
    const struct jrpc_method *method = call->method;
    unsigned n = param_count(method), i;
    const char *surplus = surplus_key(method, n, params);
    char remedy[128];

    if (surplus || json_array_size(params) > n) {
        jrpc_refuse(call, surplus, "rpc_methods lists the parameters of each method",
                    "%s takes %u parameters%s%.64s", method->name, n, surplus ? ", none is " : "",
                    surplus ? surplus : "");
        return false;
    }
    for (i = 0; i < n; i++) {
        const struct jrpc_param *param = &method->params[i];
        const json_t *value = json_is_array(params) ? json_array_get(params, i)
                                                    : json_object_get(params, param->name);
        const char *wrong = value             ? decode_arg(param, value, &args[i], remedy)
                            : param->required ? "is missing"
                                              : NULL;

        if (wrong) {
            jrpc_refuse(call, param->name, value ? remedy : param->help, "%s %s", param->name,
                        wrong);
            return false;
        }
    }
    return true;
}

/* ---- calls (§4) ---- */

static const struct jrpc_method *find_method(const struct jrpc *jrpc, const char *name)
{
    const struct jrpc_method *method;

    for (method = jrpc->methods; method->name; method++)
        if (strcmp(method->name, name) == 0)
            return method;
    return NULL;
}

/* A request object's id: its value, NULL when absent (a notification); *valid false for a type that
 * an id cannot have. */
static json_t *request_id(json_t *object, bool *valid)
{
    json_t *id = json_object_get(object, "id");

    *valid = !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
    return id;
}

static bool request_valid(json_t *object)
{
    const char *version = json_string_value(json_object_get(object, "jsonrpc"));
    json_t *params = json_object_get(object, "params");

    return version && strcmp(version, "2.0") == 0 &&
           json_is_string(json_object_get(object, "method")) &&
           (!params || json_is_object(params) || json_is_array(params));
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
    request->pending++;
    request->session->open_calls++;
    memset(args, 0, sizeof(args));
    if (decode_params(call, json_object_get(object, "params"), args))
        method->handler(call, args);
}

static void run_one(struct jrpc_request *request, json_t *object)
{
    const struct jrpc_method *method;
    bool id_valid;
    json_t *id = request_id(object, &id_valid);
    const char *name = json_string_value(json_object_get(object, "method"));

    if (!id_valid || !request_valid(object)) {
        respond_error(request, id && id_valid ? id : json_null(), JRPC_INVALID_REQUEST,
                      "Invalid Request", NULL);
        return;
    }
    method = find_method(request->session->jrpc, name);
    if (method)
        run_call(request, method, object, id);
    else if (id)
        respond_error(request, id, JRPC_METHOD_NOT_FOUND, "Method not found",
                      error_data(38 /* ENOSYS */, "method", "rpc_methods lists the methods"));
}

/* §6: a batch is answered by an array; an empty one and one too long by a single error. */
static void run_batch(struct jrpc_request *request)
{
    size_t n = json_array_size(request->root), i;

    if (n == 0 || n > JRPC_MAX_BATCH) {
        request->batch = false;
        respond_error(request, json_null(), JRPC_INVALID_REQUEST,
                      n ? "Invalid Request: too many calls in one batch" : "Invalid Request", NULL);
        return;
    }
    for (i = 0; i < n && request->session; i++)
        run_one(request, json_array_get(request->root, i));
}

void jrpc_input(struct jrpc_session *session, const char *text, size_t len)
{
    json_error_t err;
    json_t *root = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &err);
    struct jrpc_request *request;

    if (!root) {
        jrpc_reject(session, err.text);
        return;
    }
    request = request_new(session, root);
    if (!request)
        return;
    if (request->batch)
        run_batch(request);
    else
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
    call->memory = calloc(1, size);
    return call->memory;
}

/* ---- description ---- */

const char *jrpc_type_name(enum jrpc_type type)
{
    static const char *const names[JRPC_TYPES] = {"string", "integer", "boolean", "nid", "net"};

    return names[type];
}

static json_t *describe_param(const struct jrpc_param *param)
{
    json_t *row =
        json_pack("{s:s, s:s, s:b, s:s}", "name", param->name, "type", jrpc_type_name(param->type),
                  "required", param->required, "help", param->help);

    if (param->type == JRPC_INTEGER) {
        json_object_set_new(row, "min", json_integer(param->min));
        json_object_set_new(row, "max", json_integer(param->max));
    }
    return row;
}

json_t *jrpc_describe(const struct jrpc *jrpc)
{
    const struct jrpc_method *method;
    json_t *all = json_array();

    for (method = jrpc->methods; method->name; method++) {
        unsigned n = param_count(method), i;
        json_t *params = json_array();

        for (i = 0; i < n; i++)
            json_array_append_new(params, describe_param(&method->params[i]));
        json_array_append_new(all,
                              json_pack("{s:s, s:s, s:s, s:o}", "name", method->name, "help",
                                        method->help, "result", method->result, "params", params));
    }
    return all;
}
