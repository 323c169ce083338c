/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits and capacity: one turn at a time, on the test's thread. */
#include "reactor_test.h"

#include <string.h>

#include "lib/reactor/reactor_internal.h"

#define SECOND UINT64_C(1000000)

static struct reactor *r0;

static struct reactor_wait_hist waits_of(enum reactor_wait wait)
{
    struct reactor_wait_hist h[REACTOR_WAITS];

    reactor_waits_get(r0, h);
    return h[wait];
}

static void spend(uint64_t cycles)
{
    uint64_t until = rte_rdtsc() + cycles;

    while (rte_rdtsc() < until)
        continue;
}

static int teardown(void **state)
{
    reactor_test_clock(UINT64_MAX);
    return 0;
}

/* ---- waits ---- */

static void test_waits(void **state)
{
    /* Time waited, and the bucket: the number of its binary digits. */
    static const struct {
        uint64_t us;
        unsigned bucket;
    } cases[] = {{0, 0},         {1, 1},
                 {2, 2},         {3, 2},
                 {4, 3},         {1023, 10},
                 {1024, 11},     {(1u << 24) - 1, 24},
                 {1u << 24, 25}, {UINT64_C(1) << 40, 25}};
    const uint64_t now = UINT64_C(1) << 50;
    struct reactor_wait_hist was, is;
    uint64_t total = 0;

    assert_non_null(reactor_waits_on);
    reactor_test_clock(now);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        was = waits_of(REACTOR_WAIT_NI_CREDIT);
        reactor_waited(REACTOR_WAIT_NI_CREDIT, now - cases[i].us);
        is = waits_of(REACTOR_WAIT_NI_CREDIT);
        total += cases[i].us;
        assert_int_equal(is.total_us, total);
        assert_int_equal(is.longest_us, cases[i].us);
        was.total_us = is.total_us;
        was.longest_us = is.longest_us;
        was.bucket[cases[i].bucket]++;
        assert_memory_equal(&was, &is, sizeof(is));
    }
    reactor_waited(REACTOR_WAIT_NI_CREDIT, now);
    assert_int_equal(waits_of(REACTOR_WAIT_NI_CREDIT).longest_us, UINT64_C(1) << 40);
    reactor_wait_none(REACTOR_WAIT_BUFFER);
    reactor_wait_none(REACTOR_WAIT_BUFFER);
    assert_int_equal(waits_of(REACTOR_WAIT_BUFFER).none, 2);
    assert_int_equal(waits_of(REACTOR_WAIT_BUFFER).total_us, 0);
    assert_int_equal(waits_of(REACTOR_WAIT_PEER_CREDIT).none, 0);
}

static void test_names(void **state)
{
    for (unsigned i = 0; i < REACTOR_WAITS; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(reactor_wait_name((enum reactor_wait)i),
                                    reactor_wait_name((enum reactor_wait)k));
}

/* ---- capacity ---- */

#define CLOSE(a, b) assert_true((a) - (b) < 1e-9 && (b) - (a) < 1e-9)

static void test_between(void **state)
{
    const uint64_t hz = 2000000000;
    struct capacity_look a = {SECOND, 5000, 7 * SECOND, 3 * hz, hz}, b = a;
    struct reactor_capacity c;

    /* Two seconds: awake for one and a half, of which it had a core for one, and worked half. */
    b.when_us += 2 * SECOND;
    b.cpu_ns += 1000000000;
    b.asleep_us += SECOND / 2;
    b.busy_cycles += hz / 2;
    capacity_between(&a, &b, &c);
    CLOSE(c.seconds, 2);
    CLOSE(c.busy, 0.25);
    CLOSE(c.preempted, 0.25);
    CLOSE(c.cpu, 0.5);
    /* System calls around sleep are CPU time too: that is nobody's taking a core. */
    b.cpu_ns += 900000000;
    capacity_between(&a, &b, &c);
    CLOSE(c.preempted, 0);
    CLOSE(c.cpu, 0.95);
    /* Nothing to compare with: another thread, or none. */
    b.cpu_ns = 10;
    capacity_between(&a, &b, &c);
    CLOSE(c.seconds, 0);
    b.cpu_ns = 0;
    capacity_between(&b, &a, &c);
    CLOSE(c.seconds, 0);
    b = a;
    capacity_between(&a, &b, &c);
    CLOSE(c.seconds, 0);
}

static void test_watch(void **state)
{
    struct reactor *control = reactor_control(env);
    struct reactor_capacity c;
    uint64_t now = reactor_now_us();

    reactor_bind(control);
    reactor_test_clock(now);
    reactor_capacity_watch(env);
    reactor_capacity_get(control, &c);
    CLOSE(c.seconds, 0);
    reactor_test_clock(now + SECOND - 2000);
    reactor_step(control, 0);
    reactor_capacity_get(control, &c);
    CLOSE(c.seconds, 0);
    for (unsigned i = 1; i < 4; i++) {
        reactor_test_clock(now + i * (SECOND + 2000));
        spend(control->stats.hz / 1000);
        reactor_step(control, 0);
        reactor_capacity_get(control, &c);
        CLOSE(c.seconds, 1.002);
        assert_true(c.cpu > 0);
        reactor_capacity_get(r0, &c);
        CLOSE(c.seconds, 0); /* no thread runs it */
    }
    reactor_bind(r0);
}

static int group_setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    r0 = reactor_at(env, 0);
    reactor_bind(r0);
    return 0;
}

static int group_teardown(void **state)
{
    reactor_bind(reactor_control(env));
    reactor_env_destroy(env);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, NULL, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_waits),
        TEST(test_names),
        TEST(test_between),
        TEST(test_watch),
    };

    return cmocka_run_group_tests_name("reactor_wait", tests, group_setup, group_teardown);
}
