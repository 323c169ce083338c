/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: a stream of requests. It is framed in two ways, whole and byte by byte, which must find
 * the same values; each value is run against a table with parameters of every type and with
 * handlers that end now, later, with an error or with notifications. Role and phase at the
 * beginning are by the length of the input.
 */
#include "rpc/engine/json_frame.h"
#include "rpc/engine/jsonrpc.h"
#include "test/fuzz/fuzz.h"

#define MAX_LATER 128

static struct jrpc_call *later[MAX_LATER];
static unsigned later_count;

static void now_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    json_t *seen = json_object();

    HOLDS(jrpc_ctx(call) == later);
    if (args[0].given)
        json_object_set_new(seen, "text", json_string(args[0].string));
    if (args[1].given) {
        HOLDS(args[1].integer >= -5 && args[1].integer <= 5);
        json_object_set_new(seen, "n", json_integer(args[1].integer));
    }
    HOLDS(!args[0].given || strlen(args[0].string) <= 8);
    HOLDS(!args[3].given || !nid_is_any(&args[3].nid));
    HOLDS(!args[4].given || args[4].net != LNET_NET_ANY);
    jrpc_result(call, seen);
}

static void later_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    HOLDS(args[0].given);
    if (later_count == MAX_LATER)
        jrpc_fail(call, 11, "b", NULL, "busy");
    else if (jrpc_alloc(call, 16))
        later[later_count++] = call;
}

static void fail_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    if (args[0].given)
        jrpc_refuse(call, "x", "do not", "%s", args[0].string);
    else
        jrpc_fail(call, 12345, NULL, "nothing", "no such errno");
}

static void list_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, jrpc_describe(jrpc_of(call)));
}

static void null_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, NULL);
}

static struct jrpc engine;
static enum jrpc_role role; /* of the session */

/* By position, of which later ones can be left out. */
static void words_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    size_t i;
    json_t *value;

    HOLDS(!args[0].given || (args[0].integer >= 0 && args[0].integer < 3));
    HOLDS(!args[1].given || strlen(args[1].string) <= 16);
    if (args[2].given) {
        HOLDS(json_array_size(args[2].value) <= 3);
        json_array_foreach(args[2].value, i, value)
            HOLDS(strlen(json_string_value(value)) == json_string_length(value));
    }
    jrpc_result(call, json_true());
}

static void set_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    HOLDS(role == JRPC_ADMIN && engine.started);
    HOLDS(args[0].given && args[0].integer >= INT64_MIN);
    jrpc_result(call, json_integer(args[0].integer));
}

static void start_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    HOLDS(role == JRPC_ADMIN && !engine.started);
    engine.started = true;
    jrpc_result(call, json_true());
}

/* Says something before its answer. */
static void tell_handler(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct jrpc_session *session = jrpc_session_of(call);

    HOLDS(session && jrpc_backlog(session) == 7);
    jrpc_notify(session, "event", json_pack("{s:s}", "text", args[0].given ? args[0].string : ""));
    jrpc_result(call, json_true());
}

static size_t backlog(void *arg)
{
    return 7;
}

static const struct jrpc_param words_params[] = {
    {.name = "word",
     .type = JRPC_WORD,
     .words = (const char *const[]){"add", "del", "", NULL},
     .help = "word"},
    {.name = "text", .type = JRPC_TEXT, .max = 16, .help = "document"},
    {.name = "list", .type = JRPC_STRINGS, .max = 3, .help = "list"},
    {.name = NULL},
};
static const struct jrpc_param set_params[] = {
    {.name = "n",
     .type = JRPC_INTEGER,
     .required = true,
     .min = INT64_MIN,
     .max = INT64_MAX,
     .help = "n"},
    {.name = NULL},
};
static const struct jrpc_param now_params[] = {
    {.name = "s", .type = JRPC_STRING, .max = 8, .help = "text"},
    {.name = "n", .type = JRPC_INTEGER, .min = -5, .max = 5, .help = "number"},
    {.name = "b", .type = JRPC_BOOLEAN, .help = "flag"},
    {.name = "nid", .type = JRPC_NID, .help = "NID"},
    {.name = "net", .type = JRPC_NET, .help = "net"},
    {.name = NULL},
};
static const struct jrpc_param later_params[] = {
    {.name = "b", .type = JRPC_BOOLEAN, .required = true, .help = "flag"},
    {.name = NULL},
};
static const struct jrpc_param fail_params[] = {
    {.name = "x", .type = JRPC_STRING, .max = 4096, .help = "text"},
    {.name = NULL},
};
static const struct jrpc_method methods[] = {
    {.name = "now", .help = "Now.", .result = "object", .phase = JRPC_ALWAYS, .params = now_params},
    {.name = "later",
     .help = "Later.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = later_params},
    {.name = "fail",
     .help = "Fails.",
     .result = "nothing",
     .phase = JRPC_ALWAYS,
     .params = fail_params},
    {.name = "list", .help = "Lists.", .result = "array", .phase = JRPC_ALWAYS},
    {.name = "null", .help = "Nothing.", .result = "nothing", .phase = JRPC_ALWAYS},
    {.name = "words",
     .help = "Words.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = words_params},
    {.name = "set", .help = "Sets.", .result = "n", .role = JRPC_ADMIN, .params = set_params},
    {.name = "start",
     .help = "Starts.",
     .result = "true",
     .role = JRPC_ADMIN,
     .phase = JRPC_STARTUP},
    {.name = "tell",
     .help = "Tells.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = fail_params},
    {.name = NULL},
};
static const jrpc_handler handlers[] = {now_handler,  later_handler, fail_handler,
                                        list_handler, null_handler,  words_handler,
                                        set_handler,  start_handler, tell_handler};

/* A response is JSON of its own with exactly one of result and error, and an id. */
static void check_one(json_t *response)
{
    json_t *error = json_object_get(response, "error");

    if (json_object_get(response, "method")) { /* one of tell_handler() */
        HOLDS(json_object_size(response) == 3 && json_object_get(response, "params"));
        return;
    }
    HOLDS(json_is_object(response) && json_object_get(response, "id"));
    HOLDS(!json_object_get(response, "result") != !error);
    HOLDS(!error || (json_is_integer(json_object_get(error, "code")) &&
                     json_is_string(json_object_get(error, "message"))));
    HOLDS(strcmp(json_string_value(json_object_get(response, "jsonrpc")), "2.0") == 0);
}

static void check_reply(void *arg, const char *text, size_t len)
{
    json_t *reply = json_loadb(text, len, JSON_ALLOW_NUL, NULL), *one;
    size_t i;

    HOLDS(reply != NULL);
    HOLDS(!memchr(text, '\n', len));
    if (json_is_array(reply)) {
        HOLDS(json_array_size(reply) > 0 && json_array_size(reply) <= JRPC_MAX_BATCH);
        json_array_foreach(reply, i, one)
            check_one(one);
    } else {
        check_one(reply);
    }
    json_decref(reply);
    ++*(unsigned *)arg;
}

/* Ends of the values in data, byte by byte when by_one. Returns how many. */
static unsigned frame(const uint8_t *data, size_t size, bool by_one, size_t *end, unsigned max)
{
    struct json_frame f = {0};
    size_t at = 0, used;
    unsigned n = 0;

    while (at < size && n < max) {
        size_t give = by_one ? 1 : size - at;
        enum json_frame_result r = json_frame_feed(&f, (const char *)data + at, give, &used);

        HOLDS(used <= give);
        HOLDS(r != JSON_FRAME_MORE || used == give);
        at += used;
        if (r == JSON_FRAME_VALUE)
            end[n++] = at;
        else if (r != JSON_FRAME_MORE)
            break;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static size_t whole[256], bytes[256];
    unsigned replies = 0, n = frame(data, size, false, whole, 256), i;
    struct jrpc_session session;
    size_t at = 0;

    HOLDS(frame(data, size, true, bytes, 256) == n);
    HOLDS(memcmp(whole, bytes, n * sizeof(whole[0])) == 0);
    engine = (struct jrpc){
        .methods = methods, .handlers = handlers, .ctx = later, .started = (size & 2) == 0};
    role = size & 1 ? JRPC_ADMIN : JRPC_READ;
    jrpc_session_init(&session, &engine, check_reply, &replies);
    HOLDS(session.role == JRPC_READ && jrpc_backlog(&session) == 0);
    session.role = role;
    session.role_remedy[JRPC_ADMIN] = size & 4 ? "be somebody else" : NULL;
    session.backlog = backlog;
    later_count = 0;
    for (i = 0; i < n; i++) {
        jrpc_input(&session, (const char *)data + at, whole[i] - at);
        at = whole[i];
    }
    jrpc_input(&session, (const char *)data + at, size - at);
    HOLDS(session.open_calls == later_count);
    for (i = 0; i < later_count; i++) {
        if (i == later_count / 2 && size % 2)
            jrpc_session_close(&session);
        jrpc_result(later[i], json_true());
    }
    HOLDS(session.open_calls == 0 && !session.open);
    if (replies == 0)
        jrpc_reject(&session, "nothing");
    jrpc_session_close(&session);
    return 0;
}
