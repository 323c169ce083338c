/* SPDX-License-Identifier: BSD-3-Clause */
/* How many peer NIs that may never answer are called at once. */
#include "test/unit/socklnd_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MOST 8 /* a quarter of the 32 connections of a reactor */
#define OWN  "10.0.0.5@tcp"
#define INC  0x184a1b1c1d1e1f20ull

static int setup(void **state)
{
    fake_defaults();
    fake_opts.max_conns = 4 * MOST;
    return fake_setup(state);
}

/* All on one reactor. */
static const char *node(unsigned i)
{
    static char nid[32];

    snprintf(nid, sizeof(nid), "10.0.0.%u@tcp", 11 + 2 * i);
    return nid;
}

/* Whether a message for that node makes us call it. */
static bool calls(struct lnet_ni *ni, const char *nid)
{
    struct lnet_msg *msg = fake_msg(ni, nid, 0);
    unsigned before = fake_connects();

    if (!nid_is_nid4(&ni->nid))
        assert_int_equal(nid_parse("10.9.9.9@tcp7", &msg->hdr.src_nid), 0);
    fake_send(msg);
    fake_advance(2000);
    return fake_connects() > before;
}

static void expect_refused(struct lnet_ni *ni, const char *nid)
{
    unsigned drops = core.drops[SOCK_DROP(NO_MEMORY)], done = core.ndone;

    assert_false(calls(ni, nid));
    assert_int_equal(core.drops[SOCK_DROP(NO_MEMORY)], drops + 1);
    assert_string_equal(core.why,
                        "too many calls of this thread wait for an answer (max_connections)");
    assert_int_equal(core.ndone, done + 1);
    assert_int_equal(core.sent[done].result.reason, LNET_DROP_NEXT_HOP_DOWN);
    assert_int_equal(core.sent[done].result.health, LNET_HEALTH_LOCAL_ERROR);
}

static void call_silent(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        assert_true(calls(fake_ni(), node(i)));
}

static void test_quarter(void **state)
{
    struct fake_stream *s;

    (void)state;
    call_silent(0, MOST);
    s = fake_dialled();
    expect_refused(fake_ni(), node(MOST));
    fake_up("10.0.0.3", 1023, SOCK_CTYPE_CONTROL, INC); /* callers find a place */
    fake_end(s, STREAM_END_RESET);
    assert_true(calls(fake_ni(), node(MOST + 1)));
    expect_refused(fake_ni(), node(MOST + 2));
    fake_advance(51 * FAKE_SEC); /* all have failed */
    call_silent(20, MOST);
    expect_refused(fake_ni(), node(20 + MOST));
}

static void test_gateway(void **state)
{
    struct lnet_gw_ni *gw = (void *)state;

    call_silent(0, MOST);
    fake_peer(node(MOST))->gw_ni = gw;
    assert_true(calls(fake_ni(), node(MOST)));
    expect_refused(fake_ni(), node(MOST + 1));
}

static void answer(const char *nid)
{
    static const enum sock_ctype order[] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_IN,
                                            SOCK_CTYPE_BULK_OUT};
    uint8_t buf[256];

    for (int i = 0; i < 3; i++) {
        struct fake_stream *s = fake_dialled();

        assert_non_null(s);
        fake_connected(s);
        fake_feed(s, buf, fake_hello_only(buf, nid, OWN, sock_ctype_invert(order[i]), INC));
        assert_true(s->established);
        fake_advance(2000);
    }
}

/* Calls to others are nothing to who has answered, until a call fails. */
static void test_known(void **state)
{
    const char known[] = "10.0.0.3@tcp";

    (void)state;
    assert_true(calls(fake_ni(), known));
    answer(known);
    fake_end_all();
    call_silent(0, MOST);
    assert_true(calls(fake_ni(), known));
    fake_end(fake_dialled(), STREAM_END_RESET);
    fake_advance(2 * FAKE_SEC);
    expect_refused(fake_ni(), known);
}

/* Each connects once, and ends that. */
static void make_known(unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++) {
        char address[32];

        snprintf(address, sizeof(address), "%.*s", (int)strcspn(node(i), "@"), node(i));
        fake_end(fake_up(address, 1023, SOCK_CTYPE_CONTROL, INC), STREAM_END_EOF);
    }
}

/* Who connected once may be silent then: of these no more are called than of others, and neither
 * kind takes the places of the other. */
static void test_known_silent(void **state)
{
    (void)state;
    make_known(0, MOST + 1);
    call_silent(0, MOST);
    expect_refused(fake_ni(), node(MOST));
    call_silent(20, MOST);
    expect_refused(fake_ni(), node(20 + MOST));
    fake_up("10.0.0.3", 1023, SOCK_CTYPE_CONTROL, INC); /* callers find a place */
}

/* Each kind of call may have half as many connections as are free. */
static void test_half_of_free(void **state)
{
    (void)state;
    make_known(0, MOST);
    for (unsigned i = 0; i < 21; i++)
        fake_up("10.0.0.3", (uint16_t)(1023 - i),
                i ? SOCK_CTYPE_BULK_IN + i % 2 : SOCK_CTYPE_CONTROL, INC);
    call_silent(0, 4); /* of 11 */
    expect_refused(fake_ni(), node(4));
    call_silent(20, 3); /* of 7 */
    expect_refused(fake_ni(), node(23));
}

/* A call without an answer for five seconds gives its place to the next one of its kind. */
static void test_gives_way(void **state)
{
    struct fake_stream *oldest;
    unsigned done;

    (void)state;
    make_known(0, MOST + 3);
    call_silent(0, 1);
    oldest = fake_dialled();
    call_silent(1, MOST - 1);
    fake_advance(4 * FAKE_SEC);
    expect_refused(fake_ni(), node(MOST));
    assert_false(oldest->closed);
    fake_advance(FAKE_SEC);
    done = core.ndone;
    call_silent(MOST + 1, 1);
    assert_true(oldest->closed);
    assert_int_equal(core.ndone, done + 1);
    assert_int_equal(core.sent[done].result.health, LNET_HEALTH_NETWORK_TIMEOUT);
    assert_int_equal(core.drops[SOCK_DROP(DIAL_FAILED)], 1);
    call_silent(20, MOST);
}

/* One that is answered begins to wait anew with its next connection. */
static void test_waits_anew(void **state)
{
    struct fake_stream *s;
    uint8_t buf[256];

    (void)state;
    call_silent(0, 1);
    s = fake_dialled();
    fake_advance(4 * FAKE_SEC);
    call_silent(1, MOST - 1);
    fake_connected(s);
    fake_feed(s, buf, fake_hello_only(buf, node(0), OWN, SOCK_CTYPE_CONTROL, INC));
    fake_advance(2 * FAKE_SEC);
    expect_refused(fake_ni(), node(MOST));
    assert_false(fake_dialled()->closed);
}

/* Nor does a caller cost connected nodes theirs while there are such calls. */
static void test_gives_way_to_caller(void **state)
{
    struct fake_stream *call;

    (void)state;
    call_silent(0, MOST);
    call = fake_dialled();
    for (unsigned i = 0; i < 21; i++)
        fake_up("10.0.0.3", (uint16_t)(1023 - i),
                i ? SOCK_CTYPE_BULK_IN + i % 2 : SOCK_CTYPE_CONTROL, INC);
    fake_advance(11 * FAKE_SEC);
    fake_up("10.0.0.7", 1023, SOCK_CTYPE_CONTROL, INC);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 0);
    assert_int_equal(core.drops[SOCK_DROP(DIAL_FAILED)], 1);
    assert_false(call->closed); /* it was the newest */
}

/* The place of a call ends when all connections are up. */
static void test_answered(void **state)
{
    (void)state;
    call_silent(0, MOST);
    answer(node(MOST - 1));
    call_silent(MOST, 1);
    expect_refused(fake_ni(), node(MOST + 1));
}

/* A prefix has no more than what is free. */
static void test_prefix(void **state)
{
    static const char *const of_one[] = {"fd00::11@tcp", "fd00::13@tcp", "fd00::15@tcp",
                                         "fd00::17@tcp", "fd00::19@tcp"};

    (void)state;
    for (unsigned i = 0; i < sizeof(of_one) / sizeof(of_one[0]); i++)
        assert_true(calls(fake_ni6(), of_one[i]));
    expect_refused(fake_ni6(), "fd00::21@tcp");
    assert_true(calls(fake_ni6(), "fd00:0:0:1::11@tcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_quarter, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_gateway, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_known, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_known_silent, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_half_of_free, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_gives_way, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_waits_anew, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_gives_way_to_caller, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_answered, setup, fake_teardown),
        cmocka_unit_test_setup_teardown(test_prefix, setup, fake_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
