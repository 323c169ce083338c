/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON-RPC engine beyond the specification: roles and phases, notifications, calls that end
 * later, the table, numbers, and the framing of its streams. */
#include "jsonrpc_test.h"

/* ---- who may call what, and when ---- */

/* The last reply is this error, with this word in its remedy. */
static void refused(int code, const char *message, const char *remedy)
{
    json_t *got = json_loads(reply, 0, NULL), *error = json_object_get(got, "error");
    json_t *data = json_object_get(error, "data");

    assert_int_equal(replies, 1);
    assert_int_equal(json_integer_value(json_object_get(error, "code")), code);
    assert_int_equal(json_integer_value(json_object_get(data, "errno")), code);
    if (!strstr(json_string_value(json_object_get(error, "message")), message) ||
        !strstr(json_string_value(json_object_get(data, "remedy")), remedy))
        fail_msg("%s", reply);
    json_decref(got);
}

static void test_roles(void **state)
{
    assert_int_equal(session.role, JRPC_READ);
    session.role_remedy[JRPC_ADMIN] = "become a member of group wheel";
    session.role_remedy[JRPC_OPERATOR] = "become a member of group staff";
    input(CALL("\"method\":\"run\",\"id\":1"));
    replied(CALL("\"result\":true,\"id\":1"));
    input(CALL("\"method\":\"change\",\"id\":1"));
    refused(-EACCES, "change needs the role admin; this client has the role read", "group wheel");
    /* before parameters are looked at, and silently where nothing is answered */
    input(CALL("\"method\":\"change\",\"id\":1,\"params\":[1]"));
    refused(-EACCES, "change needs the role admin; this client has the role read", "group wheel");
    notified = 0;
    input(CALL("\"method\":\"change\""));
    replied(NULL);
    assert_int_equal(notified, 0);
    input(CALL("\"method\":\"operate\",\"id\":1"));
    refused(-EACCES, "operate needs the role operator; this client has the role read",
            "group staff");
    session.role = JRPC_OPERATOR;
    input(CALL("\"method\":\"operate\",\"id\":1"));
    replied(CALL("\"result\":true,\"id\":1"));
    assert_int_equal(notified, 1);
    input(CALL("\"method\":\"change\",\"id\":1"));
    refused(-EACCES, "change needs the role admin; this client has the role operator",
            "group wheel");
    session.role = JRPC_ADMIN;
    input(CALL("\"method\":\"change\",\"id\":1"));
    replied(CALL("\"result\":true,\"id\":1"));
    assert_int_equal(notified, 2);
}

static void test_phases(void **state)
{
    engine.started = false;
    session.role = JRPC_ADMIN;
    input(CALL("\"method\":\"run\",\"id\":1"));
    refused(-EAGAIN, "run cannot be called before", "`start`");
    input(CALL("\"method\":\"sum\",\"params\":[1,2,3],\"id\":1"));
    replied(CALL("\"result\":6,\"id\":1"));
    /* what comes behind `start` in a batch is of the next phase */
    input("[" CALL("\"method\":\"start\",\"id\":1") "," CALL("\"method\":\"run\",\"id\":2") "]");
    replied("[" CALL("\"result\":true,\"id\":1") "," CALL("\"result\":true,\"id\":2") "]");
    input(CALL("\"method\":\"start\",\"id\":1"));
    refused(-EALREADY, "start can only be called before", "--wait-for-rpc");
    session.role = JRPC_READ;
    session.role_remedy[JRPC_ADMIN] = "become another";
    input(CALL("\"method\":\"start\",\"id\":1"));
    refused(-EACCES, "start needs the role admin", "become another");
}

/* ---- notifications of ours ---- */

static size_t some_backlog(void *arg)
{
    assert_ptr_equal(arg, &session);
    return 77;
}

static void test_notify(void **state)
{
    assert_int_equal(jrpc_backlog(&session), 0);
    session.backlog = some_backlog;
    assert_int_equal(jrpc_backlog(&session), 77);
    replies = 0;
    jrpc_notify(&session, "event", json_pack("{s:i}", "seq", 3));
    assert_int_equal(replies, 1);
    assert_string_equal(reply, "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"seq\":3}}");
}

static struct jrpc_session *closed;

static void note_closed(struct jrpc_session *s)
{
    closed = s;
}

/* A call knows its session until that closes, which whoever keeps something for it is told. */
static void test_session_of(void **state)
{
    closed = NULL;
    session.closed = note_closed;
    input(CALL("\"method\":\"wait\",\"id\":1"));
    assert_ptr_equal(jrpc_session_of(waiting[0]), &session);
    jrpc_session_close(&session);
    assert_ptr_equal(closed, &session);
    assert_null(jrpc_session_of(waiting[0]));
    jrpc_result(waiting[0], json_true());
    session.closed = NULL;
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

    assert_int_equal(json_array_size(all), 17);
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

/* ---- numbers ---- */

static void test_wide(void **state)
{
    static const struct {
        const char *in, *out;
    } row[] = {
        {"", ""},
        {"[1,-1,1.5,1e3]", "[1,-1,1.5,1e3]"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "9223372036854775808e0"},
        {"[-9223372036854775808,-9223372036854775809]",
         "[-9223372036854775808,-9223372036854775809e0]"},
        {"{\"99999999999999999999\":\"\\\"99999999999999999999\"}",
         "{\"99999999999999999999\":\"\\\"99999999999999999999\"}"},
        {"99999999999999999999.5", "99999999999999999999.5"},
        {"99999999999999999999e2", "99999999999999999999e2"},
        {"[999999999999999999999999,999999999999999999999999]",
         "[999999999999999999999999e0,999999999999999999999999e0]"},
        {"\"9999999999999999999", "\"9999999999999999999"},
        {"\"\\", "\"\\"},
    };
    size_t len;

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char *out = json_wide_as_reals(row[i].in, strlen(row[i].in), &len);

        assert_non_null(out);
        assert_int_equal(len, strlen(row[i].out));
        assert_memory_equal(out, row[i].out, len);
        free(out);
    }
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

/* A value has so many values in it at most, whatever they are; text of strings does not count. */
static void test_many_values(void **state)
{
    static const char *const unit[] = {",", "{}", "[]", "\",,{{[[\","};

    for (unsigned i = 0; i < 4; i++) {
        struct json_frame f = {0};
        enum json_frame_result r = json_frame_feed(&f, "[", 1, &(size_t){0});

        for (unsigned n = 1; n < JSON_FRAME_MAX_VALUES; n++) {
            assert_int_equal(r, JSON_FRAME_MORE);
            r = json_frame_feed(&f, unit[i], strlen(unit[i]), &(size_t){0});
        }
        assert_int_equal(r, JSON_FRAME_MORE);
        assert_int_equal(json_frame_feed(&f, unit[i], strlen(unit[i]), &(size_t){0}),
                         JSON_FRAME_MANY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_later),       TEST(test_batch_later), TEST(test_close_before_end),
        TEST(test_description), TEST(test_frames),      TEST(test_wide),
        TEST(test_roles),       TEST(test_phases),      TEST(test_notify),
        TEST(test_session_of),  TEST(test_many_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
