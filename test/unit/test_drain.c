/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a drain. docs/operations.md "Drain". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control/drain.h"

#define S     1000000ull
#define BEGUN (7 * S)

static struct drain d;
static struct drain_look at;

/* A drain with a limit of 90 s, and 60 s between router checks. */
static int begin(void **state)
{
    at = (struct drain_look){.now_us = BEGUN, .forwarded = 1000};
    drain_begin(&d, BEGUN, at.forwarded, 90 * S, 60 * S);
    return 0;
}

/* A look so many seconds after the begin, with so many more messages forwarded. */
static enum drain_state look(unsigned s, unsigned more, unsigned in_flight, unsigned nodes,
                             unsigned told)
{
    enum drain_state before = d.state;
    bool changed;

    at = (struct drain_look){BEGUN + s * S, at.forwarded + more, in_flight, nodes, told};
    changed = drain_step(&d, &at);
    assert_int_equal(changed, d.state != before);
    return d.state;
}

/* All peers know: safe five seconds after the last message. */
static void test_told(void **state)
{
    assert_int_equal(look(0, 0, 12, 10, 0), DRAIN_DRAINING);
    assert_int_equal(look(1, 500, 3, 10, 10), DRAIN_DRAINING);
    assert_int_equal(d.recent, 500);
    assert_int_equal(look(2, 4, 0, 10, 10), DRAIN_DRAINING);
    assert_int_equal(look(6, 0, 0, 10, 10), DRAIN_DRAINING);
    assert_int_equal(d.recent, 0);
    assert_int_equal(look(7, 0, 0, 10, 10), DRAIN_SAFE);
}

/* A message that stays in the router is waited for. */
static void test_in_flight(void **state)
{
    for (unsigned s = 0; s < 20; s++)
        assert_int_equal(look(s, 0, 1, 2, 2), DRAIN_DRAINING);
    assert_int_equal(look(20, 1, 0, 2, 2), DRAIN_DRAINING);
    assert_int_equal(look(24, 0, 0, 2, 2), DRAIN_DRAINING);
    assert_int_equal(look(25, 0, 0, 2, 2), DRAIN_SAFE);
}

/* A peer that was not told has the time of a router check, although nothing is forwarded. */
static void test_unaware(void **state)
{
    for (unsigned s = 0; s < 70; s++) {
        assert_int_equal(look(s, 0, 0, 3, 2), DRAIN_DRAINING);
        assert_true(drain_is_unaware(&d));
    }
    assert_int_equal(look(70, 0, 0, 3, 2), DRAIN_SAFE);
    assert_false(drain_is_unaware(&d));
}

/* Its connection ends, or it pings: it is not waited for any more. */
static void test_no_longer_unaware(void **state)
{
    assert_int_equal(look(9, 0, 0, 3, 2), DRAIN_DRAINING);
    assert_int_equal(look(10, 0, 0, 2, 2), DRAIN_SAFE);
    assert_int_equal(look(11, 0, 0, 3, 2), DRAIN_DRAINING);
    assert_int_equal(look(12, 0, 0, 3, 3), DRAIN_SAFE);
}

/* With no peer connected there is nothing to wait for but messages. */
static void test_no_peer(void **state)
{
    at.now_us = BEGUN + 1000; /* the first look follows at once */
    assert_true(drain_step(&d, &at));
    assert_int_equal(d.state, DRAIN_SAFE);
    begin(NULL);
    assert_int_equal(look(1, 1, 0, 0, 0), DRAIN_DRAINING);
    assert_int_equal(look(2, 0, 1, 0, 0), DRAIN_DRAINING);
    assert_int_equal(look(3, 0, 0, 0, 0), DRAIN_SAFE);
}

/* A peer that goes on for ever: late from the time limit on, and safe once it ends. */
static void test_late(void **state)
{
    for (unsigned s = 0; s < 90; s++)
        assert_int_equal(look(s, 10, 1, 4, 4), DRAIN_DRAINING);
    assert_int_equal(look(90, 10, 1, 4, 4), DRAIN_LATE);
    assert_int_equal(look(91, 0, 0, 4, 4), DRAIN_LATE);
    assert_int_equal(look(95, 0, 0, 4, 4), DRAIN_SAFE);
    assert_int_equal(look(96, 1, 0, 4, 4), DRAIN_LATE);
}

/* A safe router that is used again is no longer safe. */
static void test_used_again(void **state)
{
    assert_int_equal(look(5, 0, 0, 1, 1), DRAIN_SAFE);
    assert_int_equal(look(6, 1, 0, 1, 1), DRAIN_DRAINING);
    assert_int_equal(look(10, 0, 0, 1, 1), DRAIN_DRAINING);
    assert_int_equal(look(11, 0, 0, 1, 1), DRAIN_SAFE);
}

/* Counters that are reset hide no message. */
static void test_reset(void **state)
{
    assert_int_equal(look(4, 7, 0, 1, 1), DRAIN_DRAINING);
    at.forwarded = 0;
    assert_int_equal(look(5, 3, 0, 1, 1), DRAIN_DRAINING);
    assert_int_equal(d.recent, 3);
    at.forwarded = 0;
    assert_int_equal(look(9, 0, 0, 1, 1), DRAIN_DRAINING);
    assert_int_equal(d.recent, 0);
    assert_int_equal(look(10, 0, 0, 1, 1), DRAIN_SAFE);
}

static void test_names(void **state)
{
    assert_string_equal(drain_state_name(DRAIN_OFF), "off");
    assert_string_equal(drain_state_name(DRAIN_DRAINING), "draining");
    assert_string_equal(drain_state_name(DRAIN_SAFE), "safe");
    assert_string_equal(drain_state_name(DRAIN_LATE), "late");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_told, begin),
        cmocka_unit_test_setup(test_in_flight, begin),
        cmocka_unit_test_setup(test_unaware, begin),
        cmocka_unit_test_setup(test_no_longer_unaware, begin),
        cmocka_unit_test_setup(test_no_peer, begin),
        cmocka_unit_test_setup(test_late, begin),
        cmocka_unit_test_setup(test_used_again, begin),
        cmocka_unit_test_setup(test_reset, begin),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
