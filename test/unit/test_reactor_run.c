/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Adaptive reactors that really run, on threads of EAL: mail between many, sleep and waking,
 * quiescent states, start and stop. Checks on reactor threads count errors; the test's thread,
 * which is the control reactor, asserts.
 */
#include "lib/reactor/worker.h"
#include "reactor_test.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>

#include "lib/reactor/reactor_internal.h"

#define REACTORS 4u

static unsigned errors;

static void check_on_reactor(bool ok)
{
    if (!ok)
        __atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
}

static struct reactor_stats stats(unsigned index)
{
    struct reactor_stats s;

    reactor_stats_get(reactor_at(env, index), &s);
    return s;
}

static uint64_t elapsed_since_us(uint64_t begin)
{
    return reactor_now_us() - begin;
}

/* Steps the control reactor for a while, during which the others should do something or nothing. */
static void on_period_end(struct reactor_timer *t)
{
}

static void let_pass(uint64_t us)
{
    struct reactor_timer end;

    reactor_timer_init(&end, on_period_end);
    reactor_timer_arm(&end, us);
    WAIT_FOR(!reactor_timer_armed(&end));
}

/* ---- mail before start ---- */

#define EARLY 3000u

struct numbered {
    struct reactor_task task;
    unsigned number;
};

static unsigned early_ran;

static void on_early(struct reactor_task *task)
{
    check_on_reactor(((struct numbered *)task)->number == early_ran);
    check_on_reactor(reactor_index(reactor_self()) == 0);
    ATOMIC_SET(early_ran, early_ran + 1);
}

static void test_post_before_start(void **state)
{
    struct numbered *mail = calloc(EARLY, sizeof(*mail));

    assert_non_null(mail);
    for (unsigned i = 0; i < EARLY; i++) {
        mail[i] = (struct numbered){.task.fn = on_early, .number = i};
        reactor_post(reactor_at(env, 0), &mail[i].task);
    }
    reactor_step(reactor_control(env), 0);
    assert_int_equal(ATOMIC_GET(early_ran), 0);
    assert_int_equal(reactor_env_start(env), 0);
    WAIT_FOR(ATOMIC_GET(early_ran) == EARLY);
    assert_int_equal(errors, 0);
    free(mail);
}

/* ---- many reactors, many balls, every pair ---- */

#define BALLS 64u
#define HOPS  2000u

struct ball {
    struct reactor_task task;
    struct reactor *from;
    uint64_t number; /* among those from -> to */
    unsigned hops;
    uint64_t seed;
};

static struct ball balls[BALLS];
static uint64_t sent[REACTORS + 1][REACTORS + 1];     /* [from][to], written by from */
static uint64_t received[REACTORS + 1][REACTORS + 1]; /* [to][from], written by to */
static unsigned balls_home;                           /* control only */

static unsigned place(const struct reactor *r)
{
    return reactor_index(r) == REACTOR_CONTROL ? REACTORS : reactor_index(r);
}

static void ball_throw(struct ball *b, struct reactor *to)
{
    b->from = reactor_self();
    b->number = sent[place(b->from)][place(to)]++;
    reactor_post(to, &b->task);
}

static void on_ball(struct reactor_task *task)
{
    struct ball *b = (struct ball *)task;
    struct reactor *self = reactor_self();

    check_on_reactor(b->number == received[place(self)][place(b->from)]++);
    if (b->hops == 0) {
        if (reactor_index(self) == REACTOR_CONTROL)
            balls_home++;
        else
            ball_throw(b, reactor_control(env));
        return;
    }
    b->hops--;
    ball_throw(b, reactor_at(env, (unsigned)(test_random(&b->seed) % REACTORS)));
}

static void test_ping_pong_of_many(void **state)
{
    uint64_t all_sent = 0, all_received = 0;

    errors = 0;
    for (unsigned i = 0; i < BALLS; i++) {
        balls[i] = (struct ball){.task.fn = on_ball, .hops = HOPS, .seed = i + 1};
        ball_throw(&balls[i], reactor_at(env, i % REACTORS));
    }
    WAIT_FOR(balls_home == BALLS);
    assert_int_equal(ATOMIC_GET(errors), 0);
    for (unsigned i = 0; i <= REACTORS; i++) {
        for (unsigned k = 0; k <= REACTORS; k++) {
            all_sent += sent[i][k];
            all_received += received[i][k];
            assert_int_equal(sent[i][k], received[k][i]);
        }
    }
    assert_int_equal(all_sent, BALLS * (HOPS + 2));
    assert_int_equal(all_received, all_sent);
}

/* ---- one reactor floods another ---- */

#define FLOOD 20000u

static struct numbered *flood;
static unsigned flood_ran;

static void on_flood(struct reactor_task *task)
{
    check_on_reactor(((struct numbered *)task)->number == flood_ran);
    ATOMIC_SET(flood_ran, flood_ran + 1);
}

static void on_flood_start(struct reactor_task *task)
{
    for (unsigned i = 0; i < FLOOD; i++)
        reactor_post(reactor_at(env, 1), &flood[i].task);
}

static void test_flood_overflows_in_order(void **state)
{
    struct reactor_task start = {.fn = on_flood_start};
    uint64_t queued = stats(0).mails_queued;

    errors = 0;
    flood = calloc(FLOOD, sizeof(*flood));
    assert_non_null(flood);
    for (unsigned i = 0; i < FLOOD; i++)
        flood[i] = (struct numbered){.task.fn = on_flood, .number = i};
    reactor_post(reactor_at(env, 0), &start);
    WAIT_FOR(ATOMIC_GET(flood_ran) == FLOOD);
    assert_int_equal(ATOMIC_GET(errors), 0);
    assert_true(stats(0).mails_queued > queued);
    free(flood);
}

/* ---- waiting for mail to be read ---- */

static unsigned settled_ran[REACTORS];

static void on_settled(struct reactor_task *task)
{
    unsigned me = reactor_index(reactor_self());

    if (settled_ran[me] == 0)
        usleep(5000);
    ATOMIC_SET(settled_ran[me], settled_ran[me] + 1);
}

/* More than rings hold, to each. */
static void settle_flood(struct numbered *mail)
{
    memset(settled_ran, 0, sizeof(settled_ran));
    for (unsigned i = 0; i < FLOOD; i++) {
        mail[i].task.fn = on_settled;
        reactor_post(reactor_at(env, i % REACTORS), &mail[i].task);
    }
    reactor_mail_settle(env);
    for (unsigned i = 0; i < REACTORS; i++)
        assert_int_equal(ATOMIC_GET(settled_ran[i]), FLOOD / REACTORS);
}

static bool settled_in_loop;

static void on_settle_in_loop(struct reactor_task *task)
{
    settle_flood(flood);
    settled_in_loop = true;
}

/* Also when the reactors sleep, and from within mail: nobody rings for it then. */
static void test_mail_settles(void **state)
{
    struct reactor_task task = {.fn = on_settle_in_loop};

    flood = calloc(FLOOD, sizeof(*flood));
    assert_non_null(flood);
    settle_flood(flood);
    let_pass(100000);
    reactor_post(reactor_control(env), &task);
    WAIT_FOR(settled_in_loop);
    let_pass(100000);
    reactor_mail_settle(env);
    free(flood);
}

/* ---- round trips between two reactors ---- */

#define ROUND_TRIPS 20000u

static struct {
    struct reactor_task task;
    unsigned left;
    uint64_t begin_us;
    uint64_t took_us;
    unsigned done;
} trip;

static void on_trip(struct reactor_task *task)
{
    if (reactor_index(reactor_self()) == 0) {
        if (trip.left == ROUND_TRIPS)
            trip.begin_us = reactor_now_us();
        if (trip.left-- == 0) {
            trip.took_us = reactor_now_us() - trip.begin_us;
            ATOMIC_SET(trip.done, 1);
            return;
        }
    }
    reactor_post(reactor_at(env, 1 - reactor_index(reactor_self())), task);
}

/* How long one takes is to be seen with a debugger; what is asserted is that all happen. */
static void test_round_trips(void **state)
{
    trip.task.fn = on_trip;
    trip.left = ROUND_TRIPS;
    reactor_post(reactor_at(env, 0), &trip.task);
    WAIT_FOR(ATOMIC_GET(trip.done));
    assert_true(trip.took_us > 0);
}

/* ---- sleep and waking ---- */

static bool asleep(unsigned index)
{
    return relaxed_load(&reactor_at(env, index)->sleeping) != 0;
}

static bool all_asleep(void)
{
    for (unsigned i = 0; i < REACTORS; i++) {
        if (!asleep(i))
            return false;
    }
    return true;
}

static struct {
    struct reactor_task task;
    uint64_t cpu_ns;
    unsigned done;
} cpu;

static void on_cpu(struct reactor_task *task)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    cpu.cpu_ns = (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
    ATOMIC_SET(cpu.done, 1);
}

static uint64_t cpu_time_ns(unsigned index)
{
    cpu.task.fn = on_cpu;
    cpu.done = 0;
    reactor_post(reactor_at(env, index), &cpu.task);
    WAIT_FOR(ATOMIC_GET(cpu.done));
    return cpu.cpu_ns;
}

static void test_adaptive_sleeps(void **state)
{
    const uint64_t period_us = 200000;
    struct reactor_stats before[REACTORS];
    uint64_t cpu_before = cpu_time_ns(0), begin;

    WAIT_FOR(all_asleep());
    for (unsigned i = 0; i < REACTORS; i++) {
        before[i] = stats(i);
        assert_true(before[i].sleeps > 0);
    }
    begin = reactor_now_us();
    let_pass(period_us);
    assert_true(elapsed_since_us(begin) >= period_us);
    /* Nothing to do, no timer: no loops, but for a bell that was still ringing. */
    for (unsigned i = 0; i < REACTORS; i++)
        assert_true(stats(i).loops - before[i].loops < 10);
    assert_true(cpu_time_ns(0) - cpu_before < period_us * 1000 / 2);
}

static unsigned woken;

static void on_wake(struct reactor_task *task)
{
    ATOMIC_SET(woken, woken + 1);
}

static void test_mail_wakes(void **state)
{
    struct reactor_task task = {.fn = on_wake};

    woken = 0;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t sleeps = stats(i % REACTORS).sleeps;

        WAIT_FOR(asleep(i % REACTORS));
        reactor_post(reactor_at(env, i % REACTORS), &task);
        /* No step of this thread's own reactor is needed for it. */
        for (uint64_t posted = reactor_now_us(); ATOMIC_GET(woken) != i + 1;) {
            assert_true(elapsed_since_us(posted) < DEADLINE_US);
            sched_yield();
        }
        WAIT_FOR(stats(i % REACTORS).sleeps > sleeps);
    }
}

static struct reactor_timer remote_timer;
static struct reactor_task remote_arm;
static uint64_t remote_due_us, remote_fired_us;

static void on_remote_timer(struct reactor_timer *t)
{
    ATOMIC_SET(remote_fired_us, clock_now_us());
}

static void on_remote_arm(struct reactor_task *task)
{
    reactor_timer_init(&remote_timer, on_remote_timer);
    remote_due_us = clock_now_us() + 70000;
    reactor_timer_arm(&remote_timer, 70000);
}

/* A timer far enough to need cascades ends the sleep of a reactor, with few loops on the way. */
static void test_timer_wakes(void **state)
{
    struct reactor_stats before;

    WAIT_FOR(asleep(2));
    before = stats(2);
    remote_arm.fn = on_remote_arm;
    reactor_post(reactor_at(env, 2), &remote_arm);
    WAIT_FOR(ATOMIC_GET(remote_fired_us) != 0);
    assert_true(remote_fired_us >= remote_due_us);
    WAIT_FOR(stats(2).sleeps >= before.sleeps + 2);
    assert_true(stats(2).sleeps - before.sleeps < 20);
}

/* ---- lost wake-ups ---- */

#define RACES 100000u

static struct reactor_task race_task, race_reply;
static unsigned race_replies; /* control only */

static void on_race_reply(struct reactor_task *task)
{
    race_replies++;
}

static void on_race(struct reactor_task *task)
{
    reactor_post(reactor_control(env), &race_reply);
}

/* The other side sleeps as soon as it is idle, without limit and without pausing first; so does the
 * test itself. Every mail races with a sleep; one lost and both sleep for ever. */
static void *race_main(void *arg)
{
    struct reactor *r = arg;

    reactor_bind(r);
    while (!ATOMIC_GET(r->stop))
        reactor_step(r, UINT64_MAX);
    reactor_bind(NULL);
    return NULL;
}

static void test_no_lost_wake_up(void **state)
{
    struct reactor *r = reactor_at(env, 0);
    uint64_t seed = 7, slept = stats(0).sleeps, longest = 0;
    pthread_t thread;

    reactor_env_stop(env);
    r->stop = 0;
    race_task.fn = on_race;
    race_reply.fn = on_race_reply;
    assert_int_equal(pthread_create(&thread, NULL, race_main, r), 0);
    for (unsigned i = 0; i < RACES; i++) {
        uint64_t posted = reactor_now_us();

        for (uint64_t pause = test_random(&seed) % 4096; pause > 0; pause--)
            __asm__ volatile("");
        reactor_post(r, &race_task);
        /* A limit, so that the test fails instead of hanging. */
        while (race_replies == i && elapsed_since_us(posted) < DEADLINE_US)
            reactor_step(reactor_control(env), DEADLINE_US);
        assert_int_equal(race_replies, i + 1);
        longest = max(longest, elapsed_since_us(posted));
    }
    reactor_stop(r);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(longest < DEADLINE_US);
    assert_true(stats(0).sleeps - slept > RACES / 100); /* it was a race */
    r->stop = 0;
    assert_int_equal(reactor_env_start(env), 0);
}

/* ---- quiescent states ---- */

static unsigned holding, waiting, released;

/* Until somebody is about to wait for it, and then a while. */
static void on_hold(struct reactor_task *task)
{
    uint64_t until;

    ATOMIC_SET(holding, 1);
    while (!ATOMIC_GET(waiting))
        continue;
    until = clock_now_us() + 50000;
    while (clock_now_us() < until)
        continue;
    ATOMIC_SET(released, 1);
}

static void test_synchronize_waits_for_holder(void **state)
{
    struct reactor_task task = {.fn = on_hold};

    for (unsigned i = 0; i < REACTORS; i++) {
        holding = waiting = released = 0;
        reactor_post(reactor_at(env, i), &task);
        WAIT_FOR(ATOMIC_GET(holding));
        assert_int_equal(ATOMIC_GET(released), 0);
        ATOMIC_SET(waiting, 1);
        reactor_synchronize(env);
        assert_int_equal(ATOMIC_GET(released), 1);
    }
}

static void test_synchronize_past_sleepers(void **state)
{
    uint64_t loops[REACTORS];

    WAIT_FOR(all_asleep());
    for (unsigned i = 0; i < REACTORS; i++)
        loops[i] = stats(i).loops;
    for (unsigned i = 0; i < 1000; i++)
        reactor_synchronize(env);
    for (unsigned i = 0; i < REACTORS; i++)
        assert_true(stats(i).loops - loops[i] < 10); /* nobody was woken for it */
}

static struct {
    struct reactor_task task;
    unsigned *snapshot;
    unsigned reads, stop, stopped;
} reader;

/* Reads the published snapshot for ever, once per loop. */
static void on_read(struct reactor_task *task)
{
    unsigned *s = __atomic_load_n(&reader.snapshot, __ATOMIC_ACQUIRE);

    check_on_reactor(*s == 4711);
    for (int i = 0; i < 100; i++)
        check_on_reactor(relaxed_load(s) == 4711);
    ATOMIC_SET(reader.reads, reader.reads + 1);
    if (ATOMIC_GET(reader.stop))
        ATOMIC_SET(reader.stopped, 1);
    else
        reactor_post(reactor_self(), task);
}

/* Freed after synchronize, spoilt before: a reader that still held it would see that. */
static void test_synchronize_frees_nothing_in_use(void **state)
{
    unsigned *old = malloc(sizeof(*old));

    assert_non_null(old);
    *old = 4711;
    errors = 0;
    reader.snapshot = old;
    reader.task.fn = on_read;
    reactor_post(reactor_at(env, 3), &reader.task);
    WAIT_FOR(ATOMIC_GET(reader.reads) > 0);
    for (unsigned i = 0; i < 500; i++) {
        unsigned *fresh = malloc(sizeof(*fresh));

        assert_non_null(fresh);
        *fresh = 4711;
        old = reader.snapshot;
        __atomic_store_n(&reader.snapshot, fresh, __ATOMIC_RELEASE);
        reactor_synchronize(env);
        relaxed_store(old, 0);
        free(old);
    }
    ATOMIC_SET(reader.stop, 1);
    WAIT_FOR(ATOMIC_GET(reader.stopped));
    assert_true(reader.reads >= 500); /* a loop each, never idle in between */
    assert_int_equal(ATOMIC_GET(errors), 0);
    free(reader.snapshot);
}

/* ---- control, start and stop ---- */

static void *quit_main(void *arg)
{
    struct reactor *control = reactor_control(env);

    while (!ATOMIC_GET(control->sleeping))
        sched_yield();
    reactor_control_quit(env);
    return NULL;
}

/* From a thread that is no reactor, while the control reactor sleeps. */
static void test_control_quit(void **state)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, quit_main, NULL), 0);
    reactor_control_run(env);
    assert_int_equal(pthread_join(thread, NULL), 0);
    /* Asked for before it runs: returns at once. */
    reactor_control_quit(env);
    reactor_control_run(env);
}

static unsigned ran_after_stop;

static void on_after_stop(struct reactor_task *task)
{
    ATOMIC_SET(ran_after_stop, 1);
}

static void test_stop_and_start_again(void **state)
{
    struct reactor_task task = {.fn = on_after_stop};

    WAIT_FOR(all_asleep());
    reactor_env_stop(env); /* wakes them */
    reactor_post(reactor_at(env, 0), &task);
    reactor_synchronize(env); /* nobody runs: returns */
    assert_int_equal(ATOMIC_GET(ran_after_stop), 0);
    assert_int_equal(reactor_env_start(env), 0);
    WAIT_FOR(ATOMIC_GET(ran_after_stop));
    for (int i = 0; i < 20; i++) {
        reactor_env_stop(env);
        assert_int_equal(reactor_env_start(env), 0);
    }
}

/* ---- the worker ---- */

#define WORKER_ROUNDS 3000u /* more than a ring has room for */

static struct worker_round {
    struct reactor_task task;
    struct reactor *worker;
} worker_rounds[WORKER_ROUNDS];
static unsigned worker_ran, worker_answered;
static struct reactor *worker_called_on;

static void on_worker_answer(struct reactor_task *task)
{
    check_on_reactor(reactor_self() == reactor_at(env, 1));
    ATOMIC_SET(worker_answered, worker_answered + 1);
}

static void on_worker_round(struct reactor_task *task)
{
    struct worker_round *round = (struct worker_round *)(void *)task;

    check_on_reactor(reactor_self() == round->worker && round == &worker_rounds[worker_ran]);
    if (worker_ran % 1000 == 0)
        usleep(1000); /* it may block */
    ATOMIC_SET(worker_ran, worker_ran + 1);
    task->fn = on_worker_answer;
    reactor_post(reactor_at(env, 1), task);
}

static void on_worker_begin(struct reactor_task *task)
{
    for (unsigned i = 0; i < WORKER_ROUNDS; i++)
        reactor_post(worker_rounds[i].worker, &worker_rounds[i].task);
}

static void on_worker_call(struct reactor_task *task)
{
    worker_called_on = reactor_self();
}

static void test_worker(void **state)
{
    struct reactor_task begin = {.fn = on_worker_begin}, call = {.fn = on_worker_call};
    struct reactor *worker;

    for (unsigned again = 0; again < 2; again++) {
        errors = 0;
        worker_called_on = NULL;
        worker_ran = worker_answered = 0;
        assert_int_equal(reactor_worker_start(env, "test-worker", &worker), 0);
        assert_int_equal(reactor_index(worker), REACTOR_WORKER);
        assert_int_equal(reactor_count(env), REACTORS);
        reactor_worker_call(worker, &call);
        assert_ptr_equal(worker_called_on, worker);
        for (unsigned i = 0; i < WORKER_ROUNDS; i++)
            worker_rounds[i] = (struct worker_round){{.fn = on_worker_round}, worker};
        reactor_post(reactor_at(env, 0), &begin);
        WAIT_FOR(ATOMIC_GET(worker_answered) == WORKER_ROUNDS);
        assert_int_equal(ATOMIC_GET(errors), 0);
        reactor_synchronize(env); /* does not wait for the worker */
        reactor_env_stop(env);
        reactor_worker_stop(worker);
        assert_int_equal(reactor_env_start(env), 0);
    }
}

static int group_setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", REACTORS);
    return 0;
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
        cmocka_unit_test(test_post_before_start),
        cmocka_unit_test(test_ping_pong_of_many),
        cmocka_unit_test(test_flood_overflows_in_order),
        cmocka_unit_test(test_mail_settles),
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_adaptive_sleeps),
        cmocka_unit_test(test_mail_wakes),
        cmocka_unit_test(test_timer_wakes),
        cmocka_unit_test(test_no_lost_wake_up),
        cmocka_unit_test(test_synchronize_waits_for_holder),
        cmocka_unit_test(test_synchronize_past_sleepers),
        cmocka_unit_test(test_synchronize_frees_nothing_in_use),
        cmocka_unit_test(test_control_quit),
        cmocka_unit_test(test_stop_and_start_again),
        cmocka_unit_test(test_worker),
    };

    return cmocka_run_group_tests_name("reactor_run", tests, group_setup, group_teardown);
}
