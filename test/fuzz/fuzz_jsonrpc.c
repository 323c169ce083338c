/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Input: a stream of requests. It is framed in two ways, whole and byte by byte, which must find
 * the same values; each value is run against a table with parameters of every type and with
 * handlers that end now, later or with an error.
 */
#include "rpc/json_frame.h"
#include "rpc/jsonrpc.h"
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
    if (later_count == MAX_LATER || !jrpc_alloc(call, 16))
        jrpc_fail(call, 11, "b", NULL, "busy");
    else
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
    {"now", "Now.", "object", now_params, now_handler},
    {"later", "Later.", "true", later_params, later_handler},
    {"fail", "Fails.", "nothing", fail_params, fail_handler},
    {"list", "Lists.", "array", NULL, list_handler},
    {"null", "Nothing.", "nothing", NULL, null_handler},
    {.name = NULL},
};
static const struct jrpc engine = {.methods = methods, .ctx = later};

/* A response is JSON of its own with exactly one of result and error, and an id. */
static void check_one(json_t *response)
{
    json_t *error = json_object_get(response, "error");

    HOLDS(json_is_object(response) && json_object_get(response, "id"));
    HOLDS(!json_object_get(response, "result") != !error);
    HOLDS(!error || (json_is_integer(json_object_get(error, "code")) &&
                     json_is_string(json_object_get(error, "message"))));
    HOLDS(strcmp(json_string_value(json_object_get(response, "jsonrpc")), "2.0") == 0);
}

static void check_reply(void *arg, const char *text, size_t len)
{
    json_t *reply = json_loadb(text, len, 0, NULL), *one;
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
    jrpc_session_init(&session, &engine, check_reply, &replies);
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
