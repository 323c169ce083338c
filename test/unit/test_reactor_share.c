/* SPDX-License-Identifier: BSD-3-Clause */
/* A spinning reactor that shares its core with somebody greedy: the time of the other is not its
 * work, however the cycle counter runs on. */
#include "reactor_test.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "lib/reactor/reactor_internal.h"

#define RUN_US  1000000
#define TRIES   20
#define PART_NS 40000 /* of work, then the same of looking for it */

static int core = -1;
static pthread_t greedy_thread;
static unsigned greedy_stop;

static uint64_t thread_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void *greedy(void *arg)
{
    while (!ATOMIC_GET(greedy_stop))
        continue;
    return NULL;
}

/* ---- a poller that works for half of the CPU time that its thread has ---- */

static unsigned mode;      /* 0: finds nothing and takes no time; 1: as above */
static uint64_t useful_ns; /* the reactor's */
static bool has_work;

static int poll(void *arg)
{
    uint64_t began, now;

    if (!ATOMIC_GET(mode))
        return 0;
    began = now = thread_ns();
    while (now - began < PART_NS)
        now = thread_ns();
    has_work = !has_work;
    if (has_work)
        useful_ns += now - began;
    return has_work;
}

static struct reactor_poller poller = {.fn = poll};

struct sample {
    double wall, busy, preempted, useful, cpu; /* s */
};

static double seconds(uint64_t cycles)
{
    return (double)cycles / (double)reactor_at(env, 0)->stats.hz;
}

/* On the reactor itself, which others cannot look at while it has no core; and again if it just had
 * none, as that is not accounted before the end of a stage. */
static struct {
    struct reactor_task task;
    struct sample out;
    unsigned done;
} asked;

static void on_asked(struct reactor_task *task)
{
    struct reactor *r = reactor_self();
    struct reactor_stats s;
    uint64_t now;

    reactor_stats_get(r, &s);
    now = rte_rdtsc();
    asked.out = (struct sample){
        .wall = seconds(now),
        .preempted = seconds(s.stage_cycles[REACTOR_STAGE_PREEMPTED]),
        .useful = (double)useful_ns / 1e9,
        .cpu = (double)thread_ns() / 1e9,
    };
    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        if (i != REACTOR_STAGE_REST && i != REACTOR_STAGE_PREEMPTED)
            asked.out.busy += seconds(s.stage_cycles[i]);
    if (rte_rdtsc() - r->stage_tsc > r->stall_cycles)
        reactor_post(r, task);
    else
        ATOMIC_SET(asked.done, 1);
}

static struct sample sample(void)
{
    ATOMIC_SET(asked.done, 0);
    asked.task.fn = on_asked;
    reactor_post(reactor_at(env, 0), &asked.task);
    WAIT_FOR(ATOMIC_GET(asked.done));
    return asked.out;
}

static struct sample run(unsigned new_mode)
{
    struct sample a, b;
    uint64_t until;

    ATOMIC_SET(mode, new_mode);
    a = sample();
    until = reactor_now_us() + RUN_US;
    WAIT_FOR(reactor_now_us() >= until);
    b = sample();
    b.wall -= a.wall;
    b.busy -= a.busy;
    b.preempted -= a.preempted;
    b.useful -= a.useful;
    b.cpu -= a.cpu;
    print_message("of %.3f s: busy %.3f, did %.3f, preempted %.3f, had a core %.3f\n", b.wall,
                  b.busy, b.useful, b.preempted, b.cpu);
    return b;
}

/* Within 2 % of the time that passed. */
static bool about(const struct sample *s, double is, double should)
{
    return is - should < 0.02 * s->wall && should - is < 0.02 * s->wall;
}

/* What a hypervisor takes from all of us while the thread is on a core is CPU time by the thread's
 * clock; so if it does not come true at once, it is looked at again. */
static void comes_true(unsigned new_mode, double preempted_least)
{
    struct reactor_capacity c;
    bool fine = false;

    for (unsigned i = 0; i < TRIES && !fine; i++) {
        struct sample s = run(new_mode);

        fine = about(&s, s.busy, s.useful) && about(&s, s.preempted, s.wall - s.cpu) &&
               s.preempted >= preempted_least * s.wall && (s.useful > 0) == (new_mode > 0);
    }
    assert_true(fine);
    /* The thread never sleeps: it has a core, or others do. */
    WAIT_FOR((reactor_capacity_get(reactor_at(env, 0), &c),
              c.seconds > 0.9 && c.cpu + c.preempted > 0.98 && c.cpu + c.preempted < 1.02));
    print_message("last second: busy %.3f, preempted %.3f, CPU %.3f\n", c.busy, c.preempted, c.cpu);
}

static void test_idle(void **state)
{
    comes_true(0, 0);
}

static void test_work(void **state)
{
    comes_true(1, 0);
}

static void greedy_starts(void)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(pthread_create(&greedy_thread, NULL, greedy, NULL), 0);
    assert_int_equal(pthread_setaffinity_np(greedy_thread, sizeof(one), &one), 0);
}

static void test_shared(void **state)
{
    greedy_starts();
    comes_true(0, 0.2);
    comes_true(1, 0.2);
    ATOMIC_SET(greedy_stop, 1);
    pthread_join(greedy_thread, NULL);
}

static int group_setup(void **state)
{
    cpu_set_t set;
    char cores[16];

    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (core = 0; !CPU_ISSET(core, &set); core++)
        continue;
    snprintf(cores, sizeof(cores), "%d", core);
    test_env_make(REACTOR_IDLE_SPIN, cores, 0);
    reactor_poller_add(reactor_at(env, 0), &poller);
    reactor_capacity_watch(env);
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
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_shared),
    };

    return cmocka_run_group_tests_name("reactor_share", tests, group_setup, group_teardown);
}
