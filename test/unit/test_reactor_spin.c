/* SPDX-License-Identifier: BSD-3-Clause */
/* A pinned, labelled, spinning reactor. */
#include "reactor_test.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define CPT 3

static int first_core = -1;

static void find_core(void)
{
    cpu_set_t set;

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (first_core = 0; !CPU_ISSET(first_core, &set); first_core++)
        continue;
}

static struct {
    struct reactor_task task;
    cpu_set_t set;
    char name[16];
    unsigned done;
} where;

static void on_where(struct reactor_task *task)
{
    sched_getaffinity(0, sizeof(where.set), &where.set);
    pthread_getname_np(pthread_self(), where.name, sizeof(where.name));
    ATOMIC_SET(where.done, 1);
}

static void test_pinned_and_labelled(void **state)
{
    assert_int_equal(reactor_count(env), 1);
    assert_int_equal(reactor_cpt(reactor_at(env, 0)), CPT);
    where.task.fn = on_where;
    reactor_post(reactor_at(env, 0), &where.task);
    WAIT_FOR(ATOMIC_GET(where.done));
    assert_int_equal(CPU_COUNT(&where.set), 1);
    assert_true(CPU_ISSET(first_core, &where.set));
    assert_string_equal(where.name, "reactor-0");
}

static struct reactor_stats stats(void)
{
    struct reactor_stats s;

    reactor_stats_get(reactor_at(env, 0), &s);
    return s;
}

static void test_spins(void **state)
{
    struct reactor_stats before = stats();

    /* With nothing to do it loops on and never sleeps. */
    WAIT_FOR(stats().loops > before.loops + 100000);
    assert_int_equal(stats().sleeps, 0);
    assert_true(stats().total_cycles > before.total_cycles);
    assert_true(stats().busy_loops - before.busy_loops <= 1);
}

static struct reactor_timer timer;
static struct reactor_task arm_task;
static unsigned fired;

static void on_timer(struct reactor_timer *t)
{
    ATOMIC_SET(fired, 1);
}

static void on_arm(struct reactor_task *task)
{
    reactor_timer_init(&timer, on_timer);
    reactor_timer_arm(&timer, 20000);
}

static void test_timer(void **state)
{
    arm_task.fn = on_arm;
    reactor_post(reactor_at(env, 0), &arm_task);
    WAIT_FOR(ATOMIC_GET(fired));
    assert_int_equal(stats().timers_fired, 1);
    assert_int_equal(stats().sleeps, 0);
}

static int group_setup(void **state)
{
    char cores[32];

    find_core();
    snprintf(cores, sizeof(cores), "%d:%d", CPT, first_core);
    test_env_make(REACTOR_IDLE_SPIN, cores, 0);
    return reactor_env_start(env);
}

static int group_teardown(void **state)
{
    reactor_env_stop(env);
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pinned_and_labelled),
        cmocka_unit_test(test_spins),
        cmocka_unit_test(test_timer),
    };

    return cmocka_run_group_tests_name("reactor_spin", tests, group_setup, group_teardown);
}
