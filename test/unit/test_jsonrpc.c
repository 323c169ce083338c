/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON-RPC 2.0 engine and the framing of its streams. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/json_frame.h"
#include "rpc/jsonrpc.h"

static struct jrpc_call *waiting[4]; /* calls of `wait` */
static unsigned waiting_count;
static unsigned notified; /* calls of `update` */
static char reply[JRPC_MAX_REPLY + 1];
static unsigned replies;
static struct jrpc_session session;

/* ---- methods ---- */

static void do_subtract(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer - args[1].integer));
}

static void do_sum(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_integer(args[0].integer + args[1].integer + args[2].integer));
}

static void do_update(struct jrpc_call *call, const struct jrpc_arg *args)
{
    notified++;
    jrpc_result(call, json_true());
}

static void do_get_data(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, json_pack("[s, i]", "hello", 5));
}

static void do_wait(struct jrpc_call *call, const struct jrpc_arg *args)
{
    uint64_t *memory = jrpc_alloc(call, sizeof(*memory));

    assert_non_null(memory);
    assert_int_equal(*memory, 0);
    waiting[waiting_count++] = call;
}

/* What its parameters were decoded to. */
static void do_echo(struct jrpc_call *call, const struct jrpc_arg *args)
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

static void do_fail(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_fail(call, EEXIST, "what", "remove it", "there is already a %s", "thing");
}

static void do_refuse(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_refuse(call, NULL, NULL, "%s", args[0].string);
}

static void do_nothing(struct jrpc_call *call, const struct jrpc_arg *args)
{
    jrpc_result(call, NULL);
}

/* A result of as many bytes as asked for. */
static void do_large(struct jrpc_call *call, const struct jrpc_arg *args)
{
    size_t len = (size_t)args[0].integer;
    char *text = malloc(len + 1);

    assert_non_null(text);
    memset(text, 'x', len);
    text[len] = '\0';
    jrpc_result(call, json_string(text));
    free(text);
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
static const struct jrpc_param text_params[] = {
    {.name = "text", .type = JRPC_STRING, .required = true, .max = 100000, .help = "text"}, NONE};
static const struct jrpc_param large_params[] = {
    {.name = "n", .type = JRPC_INTEGER, .required = true, .max = JRPC_MAX_REPLY, .help = "bytes"},
    NONE};

static const struct jrpc_method methods[] = {
    {"subtract", "Subtracts.", "number", subtract_params, do_subtract},
    {"sum", "Adds.", "number", sum_params, do_sum},
    {"update", "Counts its calls.", "true", update_params, do_update},
    {"notify_hello", "Counts its calls.", "true", hello_params, do_update},
    {"notify_sum", "Counts its calls.", "true", sum_params, do_update},
    {"get_data", "Gives data.", "array", NULL, do_get_data},
    {"wait", "Ends later.", "what is decided then", NULL, do_wait},
    {"echo", "Gives back.", "object", echo_params, do_echo},
    {"fail", "Fails.", "never", NULL, do_fail},
    {"refuse", "Refuses.", "never", text_params, do_refuse},
    {"nothing", "Is out of memory.", "never", NULL, do_nothing},
    {"large", "Gives much.", "string", large_params, do_large},
    {.name = NULL},
};
static const struct jrpc engine = {.methods = methods, .ctx = waiting};

/* ---- around a call ---- */

static void take_reply(void *arg, const char *text, size_t len)
{
    assert_ptr_equal(arg, &session);
    assert_true(len < sizeof(reply));
    memcpy(reply, text, len);
    reply[len] = '\0';
    replies++;
}

static int begin(void **state)
{
    waiting_count = notified = replies = 0;
    reply[0] = '\0';
    jrpc_session_init(&session, &engine, take_reply, &session);
    return 0;
}

static int end(void **state)
{
    jrpc_session_close(&session);
    return 0;
}

static void input(const char *text)
{
    replies = 0;
    jrpc_input(&session, text, strlen(text));
}

/* Error objects are compared by code and the beginning of the message; ours says more. */
static bool same_error(const json_t *got, const json_t *want)
{
    const char *g = json_string_value(json_object_get(got, "message"));
    const char *w = json_string_value(json_object_get(want, "message"));

    return json_equal(json_object_get(got, "code"), json_object_get(want, "code")) && g && w &&
           strncmp(g, w, strlen(w)) == 0;
}

static bool same_response(const json_t *got, const json_t *want)
{
    const json_t *error = json_object_get(want, "error");

    return json_object_size(got) == json_object_size(want) &&
           json_equal(json_object_get(got, "jsonrpc"), json_object_get(want, "jsonrpc")) &&
           json_equal(json_object_get(got, "id"), json_object_get(want, "id")) &&
           (error ? same_error(json_object_get(got, "error"), error)
                  : json_equal(json_object_get(got, "result"), json_object_get(want, "result")));
}

static bool same(const json_t *got, const json_t *want)
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
static void replied(const char *want)
{
    json_t *w, *g;

    if (!want) {
        if (replies)
            fail_msg("answered: %s", reply);
        return;
    }
    assert_int_equal(replies, 1);
    w = json_loads(want, 0, NULL);
    g = json_loads(reply, 0, NULL);
    assert_non_null(w);
    if (!g || !same(g, w))
        fail_msg("\n got: %s\nwant: %s", reply, want);
    json_decref(w);
    json_decref(g);
}

/* ---- §7 of the specification, in its order ---- */

#define PARSE_ERROR                                                                                \
    "{\"jsonrpc\": \"2.0\", \"error\": {\"code\": -32700, \"message\": \"Parse "                   \
    "error\"}, \"id\": null}"
#define INVALID                                                                                    \
    "{\"jsonrpc\": \"2.0\", \"error\": {\"code\": -32600, \"message\": \"Invalid "                 \
    "Request\"}, \"id\": null}"

static const struct {
    const char *in;
    const char *out;
} examples[] = {
    /* call with positional parameters */
    {"{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": [42, 23], \"id\": 1}",
     "{\"jsonrpc\": \"2.0\", \"result\": 19, \"id\": 1}"},
    {"{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": [23, 42], \"id\": 2}",
     "{\"jsonrpc\": \"2.0\", \"result\": -19, \"id\": 2}"},
    /* call with named parameters */
    {"{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": {\"subtrahend\": 23, "
     "\"minuend\": 42}, \"id\": 3}",
     "{\"jsonrpc\": \"2.0\", \"result\": 19, \"id\": 3}"},
    {"{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": {\"minuend\": 42, "
     "\"subtrahend\": 23}, \"id\": 4}",
     "{\"jsonrpc\": \"2.0\", \"result\": 19, \"id\": 4}"},
    /* notifications */
    {"{\"jsonrpc\": \"2.0\", \"method\": \"update\", \"params\": [1,2,3,4,5]}", NULL},
    {"{\"jsonrpc\": \"2.0\", \"method\": \"foobar\"}", NULL},
    /* non-existent method */
    {"{\"jsonrpc\": \"2.0\", \"method\": \"foobar\", \"id\": \"1\"}",
     "{\"jsonrpc\": \"2.0\", \"error\": {\"code\": -32601, \"message\": \"Method not found\"}, "
     "\"id\": \"1\"}"},
    /* invalid JSON */
    {"{\"jsonrpc\": \"2.0\", \"method\": \"foobar, \"params\": \"bar\", \"baz]", PARSE_ERROR},
    /* invalid request object */
    {"{\"jsonrpc\": \"2.0\", \"method\": 1, \"params\": \"bar\"}", INVALID},
    /* batch, invalid JSON */
    {"[\n  {\"jsonrpc\": \"2.0\", \"method\": \"sum\", \"params\": [1,2,4], \"id\": \"1\"},\n"
     "  {\"jsonrpc\": \"2.0\", \"method\"\n]",
     PARSE_ERROR},
    /* empty array */
    {"[]", INVALID},
    /* invalid batches */
    {"[1]", "[" INVALID "]"},
    {"[1,2,3]", "[" INVALID "," INVALID "," INVALID "]"},
    /* batch */
    {"[\n{\"jsonrpc\": \"2.0\", \"method\": \"sum\", \"params\": [1,2,4], \"id\": \"1\"},\n"
     "{\"jsonrpc\": \"2.0\", \"method\": \"notify_hello\", \"params\": [7]},\n"
     "{\"jsonrpc\": \"2.0\", \"method\": \"subtract\", \"params\": [42,23], \"id\": \"2\"},\n"
     "{\"foo\": \"boo\"},\n"
     "{\"jsonrpc\": \"2.0\", \"method\": \"foo.get\", \"params\": {\"name\": \"myself\"}, "
     "\"id\": \"5\"},\n"
     "{\"jsonrpc\": \"2.0\", \"method\": \"get_data\", \"id\": \"9\"}\n]",
     "[{\"jsonrpc\": \"2.0\", \"result\": 7, \"id\": \"1\"},"
     "{\"jsonrpc\": \"2.0\", \"result\": 19, \"id\": \"2\"}," INVALID ","
     "{\"jsonrpc\": \"2.0\", \"error\": {\"code\": -32601, \"message\": \"Method not found\"}, "
     "\"id\": \"5\"},"
     "{\"jsonrpc\": \"2.0\", \"result\": [\"hello\", 5], \"id\": \"9\"}]"},
    /* batch, all notifications */
    {"[\n{\"jsonrpc\": \"2.0\", \"method\": \"notify_sum\", \"params\": [1,2,4]},\n"
     "{\"jsonrpc\": \"2.0\", \"method\": \"notify_hello\", \"params\": [7]}\n]",
     NULL},
};

static void test_specification(void **state)
{
    size_t i;

    for (i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        input(examples[i].in);
        replied(examples[i].out);
    }
    assert_int_equal(notified, 4); /* update, notify_hello, notify_sum, notify_hello */
}

/* ---- request objects (§4) ---- */

#define CALL(rest) "{\"jsonrpc\":\"2.0\"," rest "}"

static void test_ids(void **state)
{
    static const char *const ids[] = {"0", "-7", "\"\"", "\"a\\u00e9\"", "null", "1.5"};
    static const char *const not_ids[] = {"true", "[]", "{}"};
    char text[256], want[256];
    size_t i;

    for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        snprintf(text, sizeof(text), CALL("\"method\":\"get_data\",\"id\":%s"), ids[i]);
        snprintf(want, sizeof(want), CALL("\"result\":[\"hello\",5],\"id\":%s"), ids[i]);
        input(text);
        replied(want);
    }
    for (i = 0; i < sizeof(not_ids) / sizeof(not_ids[0]); i++) {
        snprintf(text, sizeof(text), CALL("\"method\":\"get_data\",\"id\":%s"), not_ids[i]);
        input(text);
        replied(INVALID);
    }
}

static void test_invalid_requests(void **state)
{
    static const char *const invalid[] = {
        "{}",
        "1",
        "\"x\"",
        "null",
        "true",
        "{\"method\":\"sum\"}",
        "{\"jsonrpc\":\"1.0\",\"method\":\"sum\"}",
        "{\"jsonrpc\":2.0,\"method\":\"sum\"}",
        CALL("\"method\":null"),
        CALL("\"method\":\"sum\",\"params\":1"),
        CALL("\"method\":\"sum\",\"params\":\"x\""),
        CALL("\"method\":\"sum\",\"params\":null"),
    };
    size_t i;

    for (i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
        input(invalid[i]);
        replied(INVALID);
    }
    /* the id is given back where it can be told */
    input("{\"method\":\"sum\",\"id\":7}");
    replied(CALL("\"error\":{\"code\":-32600,\"message\":\"Invalid Request\"},\"id\":7"));
}

static void test_no_json(void **state)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "{\"a\":1,\"a\":2}",
                                        "{} {}",
                                        "nul",
                                        "\"\xff\"",
                                        "[\"\\u0000\"]",
                                        "{\"jsonrpc\":}"};
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        input(texts[i]);
        replied(PARSE_ERROR);
    }
    replies = 0;
    jrpc_reject(&session, "too \xc3\xa9 long \xc3"); /* cut within a character */
    replied(PARSE_ERROR);
}

/* ---- parameters (§4.2) ---- */

#define ECHO(params)   CALL("\"method\":\"echo\",\"id\":1,\"params\":" params)
#define ECHOED(result) CALL("\"id\":1,\"result\":" result)

static void test_good_params(void **state)
{
    static const struct {
        const char *in, *out;
    } row[] = {
        {ECHO("{}"), ECHOED("{}")},
        {ECHO("[]"), ECHOED("{}")},
        {ECHO("{\"s\":\"12345\"}"), ECHOED("{\"s\":\"12345\"}")},
        {ECHO("[\"\",-2,false]"), ECHOED("{\"s\":\"\",\"n\":-2,\"b\":false}")},
        {ECHO("{\"n\":10,\"b\":true}"), ECHOED("{\"n\":10,\"b\":true}")},
        {ECHO("{\"nid\":\"10.0.0.1@tcp0\",\"net\":\"o2ib03\"}"),
         ECHOED("{\"nid\":\"10.0.0.1@tcp\",\"net\":\"o2ib3\"}")},
        {ECHO("[\"a\",1,true,\"fd00::1@tcp2\",\"kfi\"]"),
         ECHOED("{\"s\":\"a\",\"n\":1,\"b\":true,\"nid\":\"fd00::1@tcp2\",\"net\":\"kfi\"}")},
    };
    size_t i;

    for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        input(row[i].in);
        replied(row[i].out);
    }
}

static void test_bad_params(void **state)
{
    static const struct {
        const char *in, *parameter, *message;
    } row[] = {
        {ECHO("{\"s\":1}"), "s", "s is not a string"},
        {ECHO("{\"s\":\"123456\"}"), "s", "s is too long"},
        {ECHO("{\"n\":\"1\"}"), "n", "n is not a whole number"},
        {ECHO("{\"n\":1.0}"), "n", "n is not a whole number"},
        {ECHO("{\"n\":-3}"), "n", "n is out of range"},
        {ECHO("[\"a\",11]"), "n", "n is out of range"},
        {ECHO("{\"b\":1}"), "b", "b is neither true nor false"},
        {ECHO("{\"b\":null}"), "b", "b is neither true nor false"},
        {ECHO("{\"nid\":\"10.0.0.256@tcp\"}"), "nid", "nid is not a NID"},
        {ECHO("{\"nid\":\"*\"}"), "nid", "nid is not a NID"},
        {ECHO("{\"net\":\"tcp65536\"}"), "net", "net is not a net"},
        {ECHO("{\"nids\":\"1\"}"), "nids", "echo takes 5 parameters, none is nids"},
        {ECHO("[\"a\",1,true,\"1.1.1.1@tcp\",\"tcp\",1]"), NULL, "echo takes 5 parameters"},
        {CALL("\"method\":\"subtract\",\"id\":1"), "minuend", "minuend is missing"},
        {CALL("\"method\":\"subtract\",\"id\":1,\"params\":[1]"), "subtrahend",
         "subtrahend is missing"},
        {CALL("\"method\":\"get_data\",\"id\":1,\"params\":[1]"), NULL,
         "get_data takes 0 parameters"},
    };
    size_t i;

    for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        const char *parameter = NULL, *message = NULL, *remedy = NULL;
        int code = 0, number = 0, id = 0;
        json_t *got;

        input(row[i].in);
        assert_int_equal(replies, 1);
        got = json_loads(reply, 0, NULL);
        if (json_unpack(got, "{s:i, s:{s:i, s:s, s:{s:i, s?s, s:s}}}", "id", &id, "error", "code",
                        &code, "message", &message, "data", "errno", &number, "parameter",
                        &parameter, "remedy", &remedy) != 0)
            fail_msg("%s", reply);
        assert_int_equal(id, 1);
        assert_int_equal(code, -32602);
        assert_int_equal(number, -EINVAL);
        assert_string_equal(message, row[i].message);
        if (row[i].parameter)
            assert_string_equal(parameter, row[i].parameter);
        else
            assert_null(parameter);
        json_decref(got);
    }
    /* a notification is not answered, whatever is wrong with it */
    input(CALL("\"method\":\"subtract\""));
    replied(NULL);
}

/* ---- results and errors (§5) ---- */

static void test_application_error(void **state)
{
    input(CALL("\"method\":\"fail\",\"id\":1"));
    assert_string_equal(
        reply, "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-17,\"message\":\"there is already a "
               "thing\",\"data\":{\"errno\":-17,\"name\":\"EEXIST\",\"parameter\":\"what\","
               "\"remedy\":\"remove it\"}},\"id\":1}");
    input(CALL("\"method\":\"fail\""));
    replied(NULL);
    input(CALL("\"method\":\"nothing\",\"id\":1"));
    replied(CALL("\"error\":{\"code\":-32603,\"message\":\"out of memory\"},\"id\":1"));
    input(CALL("\"method\":\"nothing\""));
    replied(NULL);
}

/* A message made of what came in stays valid where it is cut. */
static void test_message_cut(void **state)
{
    char text[2048] = "";
    size_t used = 0;
    json_t *got;

    used += (size_t)snprintf(text, sizeof(text),
                             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":"
                             "\"refuse\",\"params\":[\"x");
    while (used < 1200)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\xc3\xa9");
    snprintf(text + used, sizeof(text) - used, "\"]}");
    input(text);
    got = json_loads(reply, 0, NULL);
    assert_non_null(got);
    assert_int_equal(
        strlen(json_string_value(json_object_get(json_object_get(got, "error"), "message"))), 511);
    json_decref(got);
}

static void test_large_reply(void **state)
{
    char text[128];

    snprintf(text, sizeof(text), CALL("\"method\":\"large\",\"id\":\"a\",\"params\":[%u]"),
             JRPC_MAX_REPLY - 100);
    input(text);
    assert_int_equal(replies, 1);
    assert_true(strlen(reply) > JRPC_MAX_REPLY - 100);
    snprintf(text, sizeof(text), CALL("\"method\":\"large\",\"id\":\"a\",\"params\":[%u]"),
             JRPC_MAX_REPLY);
    input(text);
    replied(CALL("\"error\":{\"code\":-32603,\"message\":\"the response is too large\"},"
                 "\"id\":\"a\""));
}

/* ---- batches (§6) ---- */

static void test_batch_limit(void **state)
{
    char text[JRPC_MAX_BATCH * 64];
    unsigned n, i;
    json_t *got;

    for (n = JRPC_MAX_BATCH; n <= JRPC_MAX_BATCH + 1; n++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "[");

        for (i = 0; i < n; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? "," : "",
                                     CALL("\"method\":\"sum\",\"id\":1"));
        snprintf(text + used, sizeof(text) - used, "]");
        input(text);
        got = json_loads(reply, 0, NULL);
        if (n == JRPC_MAX_BATCH)
            assert_int_equal(json_array_size(got), n);
        else
            replied(INVALID);
        json_decref(got);
    }
}

/* ---- calls that end later ---- */

static void test_later(void **state)
{
    input(CALL("\"method\":\"wait\",\"id\":1"));
    replied(NULL);
    assert_int_equal(session.open_calls, 1);
    input(CALL("\"method\":\"get_data\",\"id\":2")); /* others are not held up */
    replied(CALL("\"result\":[\"hello\",5],\"id\":2"));
    replies = 0;
    jrpc_result(waiting[0], json_integer(3));
    replied(CALL("\"result\":3,\"id\":1"));
    assert_int_equal(session.open_calls, 0);
    assert_null(session.open);
}

static void test_batch_later(void **state)
{
    input("[" CALL("\"method\":\"wait\",\"id\":1") "," CALL(
        "\"method\":\"get_data\",\"id\":2") "," CALL("\"method\":\"wait\"") "]");
    replied(NULL);
    assert_int_equal(session.open_calls, 2);
    jrpc_fail(waiting[1], EIO, NULL, NULL, "of a notification");
    replied(NULL);
    jrpc_fail(waiting[0], ETIMEDOUT, NULL, NULL, "late");
    replied("[" CALL("\"result\":[\"hello\",5],\"id\":2") "," CALL(
        "\"error\":{\"code\":-110,\"message\":\"late\"},\"id\":1") "]");
}

static void test_close_before_end(void **state)
{
    input("[" CALL("\"method\":\"wait\",\"id\":1") "," CALL("\"method\":\"wait\",\"id\":2") "]");
    input(CALL("\"method\":\"wait\",\"id\":3"));
    assert_int_equal(waiting_count, 3);
    replies = 0;
    jrpc_session_close(&session);
    assert_int_equal(session.open_calls, 0);
    jrpc_result(waiting[2], json_integer(1));
    jrpc_fail(waiting[0], EIO, NULL, NULL, "nobody hears it");
    jrpc_result(waiting[1], json_integer(1));
    replied(NULL);
}

/* ---- the table ---- */

static void test_description(void **state)
{
    json_t *all = jrpc_describe(&engine), *echo = json_array_get(all, 7), *param;
    int min, max, required;
    const char *name, *type;

    assert_int_equal(json_array_size(all), 12);
    assert_string_equal(json_string_value(json_object_get(echo, "name")), "echo");
    assert_int_equal(json_array_size(json_object_get(echo, "params")), 5);
    param = json_array_get(json_object_get(echo, "params"), 1);
    assert_int_equal(json_unpack(param, "{s:s, s:s, s:b, s:i, s:i}", "name", &name, "type", &type,
                                 "required", &required, "min", &min, "max", &max),
                     0);
    assert_string_equal(name, "n");
    assert_string_equal(type, "integer");
    assert_int_equal(required, 0);
    assert_int_equal(min, -2);
    assert_int_equal(max, 10);
    json_decref(all);
}

/* ---- framing ---- */

/* text is values that end before each '|', which is not part of it; verdict comes after them. */
static void check_frames(const char *marked, enum json_frame_result verdict)
{
    char text[256];
    size_t ends[16], n = 0, len = 0, step, i;

    for (i = 0; marked[i]; i++) {
        if (marked[i] == '|')
            ends[n++] = len;
        else
            text[len++] = marked[i];
    }
    for (step = 1; step <= len; step++) { /* pieces of every size */
        struct json_frame f = {0};
        enum json_frame_result r = JSON_FRAME_MORE;
        size_t at = 0, used, seen = 0;

        while (at < len && (r == JSON_FRAME_MORE || r == JSON_FRAME_VALUE)) {
            r = json_frame_feed(&f, text + at, len - at < step ? len - at : step, &used);
            at += used;
            if (r == JSON_FRAME_VALUE) {
                assert_true(seen < n);
                assert_int_equal(at, ends[seen]);
                seen++;
            }
        }
        assert_int_equal(seen, n);
        assert_int_equal(r, verdict);
    }
}

static void test_frames(void **state)
{
    check_frames("{}|{\"a\":[1,{}]}|[]|", JSON_FRAME_VALUE);
    check_frames("{\n \"a\": 1\n}|\n\n[]|\n", JSON_FRAME_MORE);
    check_frames("12| true| \"x\\\"]\"|[\"}\"]|", JSON_FRAME_VALUE);
    check_frames("12|{}|3|[]|4|\"\"|", JSON_FRAME_VALUE);
    check_frames("{\"a\":\"\\\\\"}|{", JSON_FRAME_MORE);
    check_frames("{}|]", JSON_FRAME_MISMATCH);
    check_frames("{\"a\":[}", JSON_FRAME_MISMATCH);
    check_frames("{}|\"a\n", JSON_FRAME_STRING);
    check_frames("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", JSON_FRAME_MORE);
    check_frames("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", JSON_FRAME_DEPTH);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_specification),     TEST(test_ids),         TEST(test_invalid_requests),
        TEST(test_no_json),           TEST(test_good_params), TEST(test_bad_params),
        TEST(test_application_error), TEST(test_message_cut), TEST(test_large_reply),
        TEST(test_batch_limit),       TEST(test_later),       TEST(test_batch_later),
        TEST(test_close_before_end),  TEST(test_description), TEST(test_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
