/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of the JSON-RPC 2.0 engine share: methods, and a session whose replies are kept.
 */
#ifndef MILLRACE_JSONRPC_TEST_H
#define MILLRACE_JSONRPC_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/engine/json_frame.h"
#include "rpc/engine/json_wide.h"
#include "rpc/engine/jsonrpc.h"

static struct jrpc_call *waiting[4]; /* calls of `wait` */
static unsigned waiting_count;
static unsigned notified; /* calls of `update` */
static char reply[JRPC_MAX_REPLY + 1];
static unsigned replies;
static struct jrpc_session session;

/* ---- methods ---- */

static inline void do_subtract(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer - args[1].integer));
}

static inline void do_sum(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer + args[1].integer + args[2].integer));
}

static inline void do_update(struct jrpc_call *call, const struct jrpc_arg *args)
{
    notified++;
    jrpc_result(call, json_true());
}

static inline void do_get_data(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_pack("[s, i]", "hello", 5));
}

static inline void do_wait(struct jrpc_call *call, const struct jrpc_arg *args)
{
    uint64_t *memory = jrpc_alloc(call, sizeof(*memory));

    assert_non_null(memory);
    assert_int_equal(*memory, 0);
    waiting[waiting_count++] = call;
}

/* What its parameters were decoded to. */
static inline void do_echo(struct jrpc_call *call, const struct jrpc_arg *args)
{
    char nid[LNET_NIDSTR_SIZE], net[LNET_NETSTR_SIZE];
    json_t *seen = json_object();

    if (args[0].given)
        json_object_set_new(seen, "s", json_string(args[0].string));
    if (args[1].given)
        json_object_set_new(seen, "n", json_integer(args[1].integer));
    if (args[2].given)
        json_object_set_new(seen, "b", json_boolean(args[2].boolean));
    if (args[3].given)
        json_object_set_new(seen, "nid", json_string(nid_format(&args[3].nid, nid)));
    if (args[4].given)
        json_object_set_new(seen, "net", json_string(net_format(args[4].net, net)));
    jrpc_result(call, seen);
}

static inline void do_list(struct jrpc_call *call, const struct jrpc_arg *args)
{
    json_t *seen = json_object();

    if (args[0].given)
        json_object_set_new(seen, "word", json_integer(args[0].integer));
    if (args[1].given)
        json_object_set_new(seen, "text", json_string(args[1].string));
    if (args[2].given)
        json_object_set(seen, "list", (json_t *)args[2].value);
    if (args[3].given)
        json_object_set_new(seen, "real", json_real(args[3].number));
    jrpc_result(call, seen);
}

static inline void do_fail(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_fail(call, EEXIST, "what", "remove it", "there is already a %s", "thing");
}

static inline void do_refuse(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_refuse(call, NULL, NULL, "%s", args[0].string);
}

static inline void do_nothing(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, NULL);
}

/* A result of as many bytes as asked for. */
static inline void do_large(struct jrpc_call *call, const struct jrpc_arg *args)
{
    size_t len = (size_t)args[0].integer;
    char *text = malloc(len + 1);

    assert_non_null(text);
    memset(text, 'x', len);
    text[len] = '\0';
    jrpc_result(call, json_string(text));
    free(text);
}

static inline void do_start(struct jrpc_call *call, const struct jrpc_arg *args)
{
    struct jrpc *jrpc = (struct jrpc *)jrpc_of(call);

    jrpc->started = true;
    jrpc_result(call, json_true());
}

#define INT(n)                                                                                     \
    {                                                                                              \
        .name = n, .type = JRPC_INTEGER, .min = -1000, .max = 1000, .help = "a number"             \
    }
#define NONE                                                                                       \
    {                                                                                              \
        .name = NULL                                                                               \
    }

static const struct jrpc_param subtract_params[] = {
    {.name = "minuend", .type = JRPC_INTEGER, .required = true, .max = 100, .help = "of it"},
    {.name = "subtrahend", .type = JRPC_INTEGER, .required = true, .max = 100, .help = "that"},
    NONE};
static const struct jrpc_param sum_params[] = {INT("a"), INT("b"), INT("c"), NONE};
static const struct jrpc_param update_params[] = {INT("a"), INT("b"), INT("c"),
                                                  INT("d"), INT("e"), NONE};
static const struct jrpc_param hello_params[] = {INT("n"), NONE};
static const struct jrpc_param echo_params[] = {
    {.name = "s", .type = JRPC_STRING, .max = 5, .help = "text"},
    {.name = "n", .type = JRPC_INTEGER, .min = -2, .max = 10, .help = "number"},
    {.name = "b", .type = JRPC_BOOLEAN, .help = "flag"},
    {.name = "nid", .type = JRPC_NID, .help = "NID"},
    {.name = "net", .type = JRPC_NET, .help = "net"},
    NONE};
static const struct jrpc_param list_params[] = {
    {.name = "word",
     .type = JRPC_WORD,
     .words = (const char *const[]){"one", "two", NULL},
     .help = "word"},
    {.name = "text", .type = JRPC_TEXT, .max = 8, .help = "document"},
    {.name = "list", .type = JRPC_STRINGS, .max = 2, .help = "list"},
    {.name = "real", .type = JRPC_NUMBER, .min = -1, .max = 100, .help = "number"},
    NONE};
static const struct jrpc_param text_params[] = {
    {.name = "text", .type = JRPC_STRING, .required = true, .max = 100000, .help = "text"}, NONE};
static const struct jrpc_param large_params[] = {
    {.name = "n", .type = JRPC_INTEGER, .required = true, .max = JRPC_MAX_REPLY, .help = "bytes"},
    NONE};

static const struct jrpc_method methods[] = {
    {.name = "subtract",
     .help = "Subtracts.",
     .result = "number",
     .phase = JRPC_ALWAYS,
     .params = subtract_params},
    {.name = "sum",
     .help = "Adds.",
     .result = "number",
     .phase = JRPC_ALWAYS,
     .params = sum_params},
    {.name = "update",
     .help = "Counts its calls.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = update_params},
    {.name = "notify_hello",
     .help = "Counts its calls.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = hello_params},
    {.name = "notify_sum",
     .help = "Counts its calls.",
     .result = "true",
     .phase = JRPC_ALWAYS,
     .params = sum_params},
    {.name = "get_data", .help = "Gives data.", .result = "array", .phase = JRPC_ALWAYS},
    {.name = "wait", .help = "Ends later.", .result = "what is decided then", .phase = JRPC_ALWAYS},
    {.name = "echo",
     .help = "Gives back.",
     .result = "object",
     .phase = JRPC_ALWAYS,
     .params = echo_params},
    {.name = "fail", .help = "Fails.", .result = "never", .phase = JRPC_ALWAYS},
    {.name = "refuse",
     .help = "Refuses.",
     .result = "never",
     .phase = JRPC_ALWAYS,
     .params = text_params},
    {.name = "nothing", .help = "Is out of memory.", .result = "never", .phase = JRPC_ALWAYS},
    {.name = "large",
     .help = "Gives much.",
     .result = "string",
     .phase = JRPC_ALWAYS,
     .params = large_params},
    {.name = "run", .help = "Needs the node.", .result = "true"},
    {.name = "change", .help = "Changes.", .result = "true", .role = JRPC_ADMIN},
    {.name = "operate", .help = "Changes a little.", .result = "true", .role = JRPC_OPERATOR},
    {.name = "start",
     .help = "Starts.",
     .result = "true",
     .role = JRPC_ADMIN,
     .phase = JRPC_STARTUP},
    {.name = "list",
     .help = "Gives back.",
     .result = "object",
     .phase = JRPC_ALWAYS,
     .params = list_params},
    {.name = NULL},
};
static const jrpc_handler handlers[] = {do_subtract, do_sum,   do_update, do_update, do_update,
                                        do_get_data, do_wait,  do_echo,   do_fail,   do_refuse,
                                        do_nothing,  do_large, do_update, do_update, do_update,
                                        do_start,    do_list};
static struct jrpc engine = {.methods = methods, .handlers = handlers, .ctx = waiting};

/* ---- around a call ---- */

static inline void take_reply(void *arg, const char *text, size_t len)
{
    assert_ptr_equal(arg, &session);
    assert_true(len < sizeof(reply));
    memcpy(reply, text, len);
    reply[len] = '\0';
    replies++;
}

static inline int begin(void **state)
{
    waiting_count = notified = replies = 0;
    reply[0] = '\0';
    engine.started = true;
    jrpc_session_init(&session, &engine, take_reply, &session);
    return 0;
}

static inline int end(void **state)
{
    jrpc_session_close(&session);
    return 0;
}

static inline void input(const char *text)
{
    replies = 0;
    jrpc_input(&session, text, strlen(text));
}

/* Error objects are compared by code and the beginning of the message; ours says more. */
static inline bool same_error(const json_t *got, const json_t *want)
{
    const char *g = json_string_value(json_object_get(got, "message"));
    const char *w = json_string_value(json_object_get(want, "message"));

    return json_equal(json_object_get(got, "code"), json_object_get(want, "code")) && g && w &&
           strncmp(g, w, strlen(w)) == 0;
}

static inline bool same_response(const json_t *got, const json_t *want)
{
    const json_t *error = json_object_get(want, "error");

    return json_object_size(got) == json_object_size(want) &&
           json_equal(json_object_get(got, "jsonrpc"), json_object_get(want, "jsonrpc")) &&
           json_equal(json_object_get(got, "id"), json_object_get(want, "id")) &&
           (error ? same_error(json_object_get(got, "error"), error)
                  : json_equal(json_object_get(got, "result"), json_object_get(want, "result")));
}

static inline bool same(const json_t *got, const json_t *want)
{
    size_t i;

    if (!json_is_array(want))
        return same_response(got, want);
    if (!json_is_array(got) || json_array_size(got) != json_array_size(want))
        return false;
    for (i = 0; i < json_array_size(want); i++)
        if (!same_response(json_array_get(got, i), json_array_get(want, i)))
            return false;
    return true;
}

/* The last reply is want; NULL: there was none. */
static inline void replied(const char *want)
{
    json_t *w, *g;

    if (!want) {
        if (replies)
            fail_msg("answered: %s", reply);
        return;
    }
    assert_int_equal(replies, 1);
    w = json_loads(want, JSON_ALLOW_NUL, NULL);
    g = json_loads(reply, JSON_ALLOW_NUL, NULL);
    assert_non_null(w);
    if (!g || !same(g, w))
        fail_msg("\n got: %s\nwant: %s", reply, want);
    json_decref(w);
    json_decref(g);
}

#define CALL(rest) "{\"jsonrpc\":\"2.0\"," rest "}"

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
