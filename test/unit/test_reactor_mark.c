/* SPDX-License-Identifier: BSD-3-Clause */
/* Cycles by kind of work, waits, and capacity: one turn at a time, on the test's thread. */
#include "reactor_test.h"

#include <string.h>

#include "lib/reactor/reactor_internal.h"

#define SECOND UINT64_C(1000000)

static struct reactor *r0;

static struct reactor_stats stats(void)
{
    struct reactor_stats s;

    reactor_stats_get(r0, &s);
    return s;
}

static struct reactor_work_stats work(void)
{
    struct reactor_work_stats w;

    reactor_work_get(r0, &w);
    return w;
}

static uint64_t busy(const struct reactor_stats *s)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        if (i != REACTOR_STAGE_REST && i != REACTOR_STAGE_PREEMPTED)
            all += s->stage_cycles[i];
    return all;
}

static uint64_t sum(const struct reactor_work_stats *w)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < REACTOR_WORKS; i++)
        all += w->cycles[i];
    return all;
}

static void spend(uint64_t cycles)
{
    uint64_t until = rte_rdtsc() + cycles;

    while (rte_rdtsc() < until)
        continue;
}

static void step(void)
{
    reactor_step(r0, 0);
}

/* ---- work ---- */

static int poll_result;
static uint64_t poll_cycles;

/* Receives, and in the middle of that sends; then something that has no mark. */
static int marking_poll(void *arg)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_PARSE), in;

    spend(2 * poll_cycles);
    in = reactor_mark(REACTOR_WORK_LNET);
    spend(4 * poll_cycles);
    reactor_mark(in);
    spend(poll_cycles);
    reactor_mark(was);
    spend(poll_cycles);
    reactor_mark_was(REACTOR_WORK_DEVICE_RX, REACTOR_WORK_TCP_IN);
    spend(poll_cycles);
    reactor_mark(was);
    return poll_result;
}

static struct reactor_poller poller = {.fn = marking_poll, .max_sleep_us = UINT64_MAX};

static void on_mail(struct reactor_task *task)
{
    enum reactor_work was = reactor_mark(REACTOR_WORK_EGRESS);

    spend(poll_cycles);
    reactor_mark(was);
    spend(poll_cycles);
}

static int setup(void **state)
{
    reactor_work_set(r0, 0);
    while (reactor_step(r0, 0) > 0)
        continue;
    reactor_poller_add(r0, &poller);
    poll_result = 1;
    poll_cycles = 1000;
    return 0;
}

static int teardown(void **state)
{
    reactor_test_clock(UINT64_MAX);
    reactor_poller_del(r0, &poller);
    return 0;
}

static void test_off(void **state)
{
    struct reactor_work_stats before = work(), after;

    step();
    assert_null(reactor_marks_on);
    assert_null(reactor_waits_on);
    reactor_wait_none(REACTOR_WAIT_BUFFER);
    reactor_waited(REACTOR_WAIT_BUFFER, 0);
    after = work();
    assert_memory_equal(&before, &after, sizeof(after));
    assert_int_equal(after.every, 0);
}

/* Of each turn: all that the loop calls busy, no more and no less, is some kind of work. */
static void test_every_turn(void **state)
{
    struct reactor_task task = {.fn = on_mail};
    struct reactor_work_stats was, is;
    struct reactor_stats before, after;

    reactor_work_set(r0, 1);
    was = work();
    before = stats();
    for (unsigned i = 0; i < 200; i++) {
        if (i % 10 == 0)
            reactor_post(r0, &task);
        step();
    }
    is = work();
    after = stats();
    assert_int_equal(is.every, 1);
    assert_int_equal(is.turns - was.turns, 200);
    assert_int_equal(sum(&is) - sum(&was), busy(&after) - busy(&before));
    assert_true(is.cycles[REACTOR_WORK_PARSE] - was.cycles[REACTOR_WORK_PARSE] >= 600000);
    assert_true(is.cycles[REACTOR_WORK_LNET] - was.cycles[REACTOR_WORK_LNET] >= 800000);
    assert_true(is.cycles[REACTOR_WORK_DEVICE_RX] - was.cycles[REACTOR_WORK_DEVICE_RX] >= 200000);
    assert_true(is.cycles[REACTOR_WORK_TCP_IN] - was.cycles[REACTOR_WORK_TCP_IN] >= 200000);
    assert_true(is.cycles[REACTOR_WORK_EGRESS] - was.cycles[REACTOR_WORK_EGRESS] >= 20000);
    assert_true(is.cycles[REACTOR_WORK_OTHER] - was.cycles[REACTOR_WORK_OTHER] >= 20000);
    assert_int_equal(is.cycles[REACTOR_WORK_TCP_OUT], was.cycles[REACTOR_WORK_TCP_OUT]);
    assert_int_equal(is.cycles[REACTOR_WORK_DEVICE_TX], was.cycles[REACTOR_WORK_DEVICE_TX]);
}

/* A round that found nothing is no work, whatever was marked in it. */
static void test_idle(void **state)
{
    struct reactor_work_stats was, is;

    reactor_work_set(r0, 1);
    poll_result = 0;
    was = work();
    for (unsigned i = 0; i < 20; i++)
        step();
    is = work();
    assert_int_equal(sum(&is), sum(&was));
    assert_int_equal(is.turns, was.turns);
}

static void test_some_turns(void **state)
{
    const unsigned turns = 20000, every = 8;
    struct reactor_work_stats was, is;
    struct reactor_stats before, after;
    double ratio = 0;

    reactor_work_set(r0, every);
    poll_cycles = 400;
    /* One that a hypervisor interrupts for long is luck: so a few times. */
    for (unsigned tries = 0; tries < 50 && !(ratio > 0.85 && ratio < 1.2); tries++) {
        was = work();
        before = stats();
        for (unsigned i = 0; i < turns; i++)
            step();
        is = work();
        after = stats();
        assert_in_range(is.turns - was.turns, turns / every * 19 / 20, turns / every * 21 / 20);
        /* It stands for all turns, those that were not looked at too. */
        ratio = (double)(sum(&is) - sum(&was)) / (double)(busy(&after) - busy(&before));
        print_message("estimated %.3f of what was spent\n", ratio);
    }
    assert_true(ratio > 0.85 && ratio < 1.2);
}

static void test_turned_off_again(void **state)
{
    struct reactor_work_stats was, is;

    reactor_work_set(r0, 1);
    step();
    assert_non_null(reactor_marks_on);
    assert_non_null(reactor_waits_on);
    was = work();
    reactor_work_set(r0, 0);
    step();
    assert_null(reactor_marks_on);
    assert_null(reactor_waits_on);
    is = work();
    assert_int_equal(sum(&is), sum(&was));
    /* Another reactor of the same thread has its own switch. */
    reactor_work_set(r0, 1);
    step();
    reactor_bind(reactor_control(env));
    assert_null(reactor_marks_on);
    reactor_step(reactor_control(env), 0);
    assert_null(reactor_waits_on);
    reactor_bind(r0);
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

    reactor_work_set(r0, 1000); /* waits are those of all turns */
    step();
    assert_non_null(reactor_waits_on);
    reactor_test_clock(now);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        was = work().wait[REACTOR_WAIT_NI_CREDIT];
        reactor_waited(REACTOR_WAIT_NI_CREDIT, now - cases[i].us);
        is = work().wait[REACTOR_WAIT_NI_CREDIT];
        total += cases[i].us;
        assert_int_equal(is.total_us, total);
        assert_int_equal(is.longest_us, cases[i].us);
        was.total_us = is.total_us;
        was.longest_us = is.longest_us;
        was.bucket[cases[i].bucket]++;
        assert_memory_equal(&was, &is, sizeof(is));
    }
    reactor_waited(REACTOR_WAIT_NI_CREDIT, now);
    assert_int_equal(work().wait[REACTOR_WAIT_NI_CREDIT].longest_us, UINT64_C(1) << 40);
    reactor_wait_none(REACTOR_WAIT_BUFFER);
    reactor_wait_none(REACTOR_WAIT_BUFFER);
    assert_int_equal(work().wait[REACTOR_WAIT_BUFFER].none, 2);
    assert_int_equal(work().wait[REACTOR_WAIT_BUFFER].total_us, 0);
    assert_int_equal(work().wait[REACTOR_WAIT_PEER_CREDIT].none, 0);
}

static void test_names(void **state)
{
    for (unsigned i = 0; i < REACTOR_WORKS; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(reactor_work_name((enum reactor_work)i),
                                    reactor_work_name((enum reactor_work)k));
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_off),        TEST(test_every_turn),       TEST(test_idle),
        TEST(test_some_turns), TEST(test_turned_off_again), TEST(test_waits),
        TEST(test_names),      TEST(test_between),          TEST(test_watch),
    };

    return cmocka_run_group_tests_name("reactor_mark", tests, group_setup, group_teardown);
}
