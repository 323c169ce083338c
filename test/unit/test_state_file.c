/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of the state file: what was written is read, and what is altered costs at most itself.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/state_file_test.h"

static const char whole[] =
    "{\"version\":1,\"peers\":[\"10.0.0.2@tcp\",\"fd00::2@tcp1\",\"10.0.0.3@o2ib\"],"
    "\"addresses\":[\"10.0.0.1\",\"fd00::1\"],\"connections\":[[\"10.0.0.1\",988,\"10.0.0.2\","
    "1023],[\"fd00::1\",1022,\"fd00::2\",988]]}";

static int parse(const char *text, struct state_file *out)
{
    struct err err = {0};
    int rc = state_file_parse(text, strlen(text), out, &err);

    assert_true((rc != 0) == (err.message[0] != '\0'));
    return rc;
}

static void test_round_trip(void **state)
{
    struct state_file s;
    char *text;

    assert_int_equal(parse(whole, &s), 0);
    assert_int_equal(s.peers, 3);
    assert_int_equal(s.addresses, 2);
    assert_int_equal(s.pairs, 2);
    assert_int_equal(s.ignored, 0);
    assert_int_equal(s.pair[0].lport, 988);
    assert_int_equal(s.pair[0].rport, 1023);
    assert_int_equal(s.pair[0].remote.b[15], 2);
    assert_true(inet_is4(&s.pair[0].local));
    assert_false(inet_is4(&s.address[1]));
    text = written(&s);
    assert_string_equal(text, whole);
    free(text);
    state_file_free(&s);
}

/* Each beginning of the text, as after a disk that was full. */
static void test_truncated(void **state)
{
    struct state_file s;

    for (size_t n = 0; n < strlen(whole); n++) {
        char *part = strndup(whole, n);

        assert_int_equal(parse(part, &s), -EINVAL);
        assert_null(s.peer);
        free(part);
    }
}

/* Each byte of the text, altered in each way. What is read of it is valid. */
static void test_altered(void **state)
{
    char text[sizeof(whole)];
    struct state_file s;

    for (size_t at = 0; at < strlen(whole); at++)
        for (int byte = 1; byte < 256; byte++) {
            memcpy(text, whole, sizeof(text));
            text[at] = (char)byte;
            if (parse(text, &s) != 0)
                continue;
            assert_in_range(s.peers + s.addresses + s.pairs + s.ignored, 0, 7);
            for (unsigned i = 0; i < s.peers; i++)
                assert_true(nid_wire_valid(&s.peer[i]));
            for (unsigned i = 0; i < s.pairs; i++)
                assert_true(s.pair[i].lport > 0 && s.pair[i].rport > 0);
            state_file_free(&s);
        }
}

static void test_bad_entries(void **state)
{
    static const struct {
        const char *text;
        unsigned good, bad;
    } rows[] = {
        {"\"peers\": [\"10.0.0.2@tcp\", 7, null, \"x\", \"10.0.0.300@tcp\", [\"10.0.0.2@tcp\"]]", 1,
         5},
        {"\"peers\": \"10.0.0.2@tcp\"", 0, 0},
        {"\"addresses\": [\"10.0.0.1\", \"10.0.0\", {}, \"::ffff:10.0.0.1\"]", 1, 3},
        {"\"connections\": [[\"10.0.0.1\", 988, \"10.0.0.2\", 1023], [\"10.0.0.1\", 0, "
         "\"10.0.0.2\", 1], [\"10.0.0.1\", 65536, \"10.0.0.2\", 1], [\"10.0.0.1\", -1, "
         "\"10.0.0.2\", 1], [\"10.0.0.1\", 988, \"fd00::1\", 1], [\"10.0.0.1\"], 5]",
         1, 6},
        {"\"other\": 1", 0, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[512];
        struct state_file s;

        snprintf(text, sizeof(text), "{\"version\": 1, %s}", rows[i].text);
        assert_int_equal(parse(text, &s), 0);
        assert_int_equal(s.peers + s.addresses + s.pairs, rows[i].good);
        assert_int_equal(s.ignored, rows[i].bad);
        state_file_free(&s);
    }
}

static void test_refused(void **state)
{
    static const char *const texts[] = {
        "", "[]", "7", "{}", "{\"version\":2}", "{\"version\":1} more"};
    struct state_file s;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_int_equal(parse(texts[i], &s), -EINVAL);
}

/* More entries than there may be: the first ones are read, and no more are written. */
static void test_too_many(void **state)
{
    json_t *many = json_array(), *none = json_array(), *root;
    struct state_file s;
    char *text;

    for (unsigned i = 0; i < STATE_FILE_MAX + 5; i++)
        json_array_append_new(many, json_string("10.0.0.2@tcp"));
    root = state_file_root(many, none, none);
    text = state_file_text(root);
    json_decref(root);
    assert_int_equal(parse(text, &s), 0);
    assert_int_equal(s.peers, STATE_FILE_MAX);
    assert_int_equal(s.ignored, 5);
    state_file_add_peer(many, &s.peer[0]);
    assert_int_equal(json_array_size(many), STATE_FILE_MAX + 5);
    state_file_free(&s);
    free(text);
    json_decref(many);
    json_decref(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_altered),    cmocka_unit_test(test_bad_entries),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_too_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
