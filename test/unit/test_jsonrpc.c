/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON-RPC 2.0 engine as its specification says: requests, parameters, results, batches. */
#include "jsonrpc_test.h"

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
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        input(examples[i].in);
        replied(examples[i].out);
    }
    assert_int_equal(notified, 4); /* update, notify_hello, notify_sum, notify_hello */
}

/* ---- request objects (§4) ---- */

static void test_ids(void **state)
{
    static const char *const ids[] = {"0",
                                      "-7",
                                      "\"\"",
                                      "\"a\\u00e9\"",
                                      "null",
                                      "1.5",
                                      "-1e300",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "\"a\\u0000b\"",
                                      "\"\\ud83d\\ude00\""};
    static const char *const not_ids[] = {"true", "[]", "{}", "9223372036854775808",
                                          "-9223372036854775809"};
    char text[256], want[256];

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        snprintf(text, sizeof(text), CALL("\"method\":\"get_data\",\"id\":%s"), ids[i]);
        snprintf(want, sizeof(want), CALL("\"result\":[\"hello\",5],\"id\":%s"), ids[i]);
        input(text);
        replied(want);
    }
    for (size_t i = 0; i < sizeof(not_ids) / sizeof(not_ids[0]); i++) {
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

    for (size_t i = 0; i < sizeof(invalid) / sizeof(invalid[0]); i++) {
        input(invalid[i]);
        replied(INVALID);
    }
    input(CALL("\"method\":\"sum\\u0000\",\"id\":1"));
    replied(CALL("\"error\":{\"code\":-32601,\"message\":\"Method not found\"},\"id\":1"));
    input("{\"jsonrpc\":\"2.0\\u0000\",\"method\":\"sum\",\"id\":1}");
    replied(CALL("\"error\":{\"code\":-32600,\"message\":\"Invalid Request\"},\"id\":1"));
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
                                        "{\"\\u0000\":1}",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xc0\x80\"",
                                        "\"\xf4\x90\x80\x80\"",
                                        "\"\xe2\x82\"",
                                        "\"\\ud800\"",
                                        "\"\\udc00\\ud800\"",
                                        "{\"jsonrpc\":}"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        input(texts[i]);
        replied(PARSE_ERROR);
    }
    replies = 0;
    jrpc_reject(&session, "too \xc3\xa9 long \xc3"); /* cut within a character */
    replied(PARSE_ERROR);
}

/* ---- parameters (§4.2) ---- */

#define ECHO(params)   CALL("\"method\":\"echo\",\"id\":1,\"params\":" params)
#define LIST(params)   CALL("\"method\":\"list\",\"id\":1,\"params\":" params)
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
        {LIST("[\"two\",\"a\\nb\",[\"x\",\"\"]]"),
         ECHOED("{\"word\":1,\"text\":\"a\\nb\",\"list\":[\"x\",\"\"]}")},
        {LIST("{\"list\":[]}"), ECHOED("{\"list\":[]}")},
        {LIST("{\"real\":0.125}"), ECHOED("{\"real\":0.125}")},
        {LIST("{\"real\":100}"), ECHOED("{\"real\":100.0}")},
        {LIST("{\"real\":-1.0}"), ECHOED("{\"real\":-1.0}")},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
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
        {ECHO("{\"s\":\"a\\u0000\"}"), "s", "s has a character U+0000"},
        {ECHO("{\"nid\":\"10.0.0.1@tcp\\u0000\"}"), "nid", "nid has a character U+0000"},
        {ECHO("{\"s\":\"123456\"}"), "s", "s is too long"},
        {ECHO("{\"n\":\"1\"}"), "n", "n is not a whole number"},
        {ECHO("{\"n\":1.0}"), "n", "n is not a whole number"},
        {ECHO("{\"n\":-3}"), "n", "n is out of range"},
        {ECHO("{\"n\":9223372036854775808}"), "n", "n is not a whole number"},
        {ECHO("{\"s\":\"9223372036854775808\"}"), "s", "s is too long"},
        {ECHO("{\"s\":\"\\\"\\\\\",\"n\":-9223372036854775809}"), "n", "n is not a whole number"},
        {ECHO("{\"s\":\"\",\"b\":1180591620717411303424}"), "b", "b is neither true nor false"},
        {ECHO("[\"a\",11]"), "n", "n is out of range"},
        {ECHO("{\"b\":1}"), "b", "b is neither true nor false"},
        {ECHO("{\"b\":null}"), "b", "b is neither true nor false"},
        {ECHO("{\"nid\":\"10.0.0.256@tcp\"}"), "nid", "nid is not a NID"},
        {ECHO("{\"nid\":\"*\"}"), "nid", "nid is not a NID"},
        {ECHO("{\"net\":\"tcp65536\"}"), "net", "net is not a net"},
        {ECHO("{\"nids\":\"1\"}"), "nids", "echo takes 5 parameters, none is nids"},
        {ECHO("[\"a\",1,true,\"1.1.1.1@tcp\",\"tcp\",1]"), NULL, "echo takes 5 parameters"},
        {LIST("[\"three\"]"), "word", "word is none of its words"},
        {LIST("[\"tw\"]"), "word", "word is none of its words"},
        {LIST("[2]"), "word", "word is not a string"},
        {LIST("{\"text\":\"123456789\"}"), "text", "text is too long"},
        {LIST("{\"real\":100.0001}"), "real", "real is out of range"},
        {LIST("{\"real\":-2}"), "real", "real is out of range"},
        {LIST("{\"real\":\"1\"}"), "real", "real is not a number"},
        {LIST("{\"list\":\"x\"}"), "list", "list is not an array of strings"},
        {LIST("{\"list\":[1]}"), "list", "list is not an array of strings"},
        {LIST("{\"list\":[[\"x\"]]}"), "list", "list is not an array of strings"},
        {LIST("{\"list\":[\"\\u0000\"]}"), "list", "list is not an array of strings"},
        {LIST("{\"list\":[\"1\",\"2\",\"3\"]}"), "list", "list has too many entries"},
        {CALL("\"method\":\"subtract\",\"id\":1"), "minuend", "minuend is missing"},
        {CALL("\"method\":\"subtract\",\"id\":1,\"params\":[1]"), "subtrahend",
         "subtrahend is missing"},
        {CALL("\"method\":\"get_data\",\"id\":1,\"params\":[1]"), NULL,
         "get_data takes 0 parameters"},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
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
        if (strncmp(message, row[i].message, strlen(row[i].message)) != 0)
            fail_msg("%s", message);
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
    static char text[40000];
    size_t used = 0;
    json_t *got;

    used += (size_t)snprintf(text, sizeof(text),
                             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":"
                             "\"refuse\",\"params\":[\"x");
    while (used < 30000)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\xc3\xa9");
    snprintf(text + used, sizeof(text) - used, "\"]}");
    input(text);
    got = json_loads(reply, 0, NULL);
    assert_non_null(got);
    assert_int_equal(
        strlen(json_string_value(json_object_get(json_object_get(got, "error"), "message"))),
        16383);
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
    json_t *got;

    for (unsigned n = JRPC_MAX_BATCH; n <= JRPC_MAX_BATCH + 1; n++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "[");

        for (unsigned i = 0; i < n; i++)
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

static bool pauses;

static bool pause_now(void *arg)
{
    return pauses;
}

/* A batch that takes long goes on when others had their turn, or ends with its session. */
static void test_batch_pauses(void **state)
{
    const char *batch = "[" CALL("\"method\":\"update\",\"id\":1") "," CALL(
        "\"method\":\"update\",\"id\":2") "," CALL("\"method\":\"update\",\"id\":3") "]";
    json_t *got;

    session.pause = pause_now;
    for (unsigned end = 0; end < 2; end++) {
        pauses = true;
        notified = replies = 0;
        jrpc_input(&session, batch, strlen(batch));
        for (unsigned i = 1; i <= 2; i++) {
            assert_int_equal(notified, i);
            assert_int_equal(replies, 0);
            assert_non_null(session.batch);
            pauses = i == 1;
            if (i == 2 && end)
                jrpc_session_close(&session);
            else
                jrpc_continue(&session);
        }
        assert_null(session.batch);
        assert_int_equal(notified, end ? 2 : 3);
        assert_int_equal(replies, !end);
    }
    got = json_loads(reply, 0, NULL);
    assert_int_equal(json_array_size(got), 3);
    json_decref(got);
}

/* Nobody but the client can tell answers to one id apart; each request is answered all the same. */
static void test_duplicate_ids(void **state)
{
    input(CALL("\"method\":\"wait\",\"id\":7"));
    input(CALL("\"method\":\"sum\",\"params\":[1,1,1],\"id\":7"));
    replied(CALL("\"result\":3,\"id\":7"));
    replies = 0;
    jrpc_result(waiting[0], json_integer(4));
    replied(CALL("\"result\":4,\"id\":7"));
    input("[" CALL("\"method\":\"sum\",\"params\":[1,0,0],\"id\":7") "," CALL(
        "\"method\":\"sum\",\"params\":[2,0,0],\"id\":7") "]");
    replied("[" CALL("\"result\":1,\"id\":7") "," CALL("\"result\":2,\"id\":7") "]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_specification),     TEST(test_ids),          TEST(test_invalid_requests),
        TEST(test_no_json),           TEST(test_good_params),  TEST(test_bad_params),
        TEST(test_application_error), TEST(test_message_cut),  TEST(test_large_reply),
        TEST(test_batch_limit),       TEST(test_batch_pauses), TEST(test_duplicate_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
