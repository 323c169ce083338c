/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One iteration at a time: the reactors are not started but bound to the test's thread and stepped.
 */
#include "reactor_test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lib/reactor/reactor_internal.h"

static struct reactor *r0, *r1;

static struct reactor_stats stats(const struct reactor *r)
{
    struct reactor_stats s;

    reactor_stats_get(r, &s);
    return s;
}

static int step(struct reactor *r, uint64_t max_wait_us)
{
    reactor_bind(r);
    return reactor_step(r, max_wait_us);
}

static uint64_t wall_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* ---- who is who ---- */

static void test_identity(void **state)
{
    assert_int_equal(reactor_count(env), 2);
    assert_int_equal(reactor_index(r0), 0);
    assert_int_equal(reactor_index(r1), 1);
    assert_int_equal(reactor_index(reactor_control(env)), REACTOR_CONTROL);
    assert_int_equal(reactor_cpt(r1), 1);
    assert_ptr_equal(reactor_env_of(r1), env);
    reactor_bind(r0);
    assert_ptr_equal(reactor_self(), r0);
    reactor_bind(NULL);
    assert_null(reactor_self());
    reactor_bind(reactor_control(env));
    assert_ptr_equal(reactor_self(), reactor_control(env));
}

/* ---- mail ---- */

struct letter {
    struct reactor_task task;
    unsigned number;
};

static unsigned expected_number;
static struct reactor *expected_reactor;
static bool out_of_order;

static void on_letter(struct reactor_task *task)
{
    struct letter *l = (struct letter *)task;

    if (l->number != expected_number || reactor_self() != expected_reactor)
        out_of_order = true;
    expected_number++;
}

static void on_nothing(struct reactor_task *task)
{
}

static struct letter *letters_make(unsigned n)
{
    struct letter *l = calloc(n, sizeof(*l));

    assert_non_null(l);
    for (unsigned i = 0; i < n; i++)
        l[i] = (struct letter){.task.fn = on_letter, .number = i};
    return l;
}

static void letters_expect(struct reactor *r)
{
    expected_number = 0;
    expected_reactor = r;
    out_of_order = false;
}

static void test_mail_order(void **state)
{
    struct letter *l = letters_make(10);
    uint64_t mails = stats(r1).mails_in;

    letters_expect(r1);
    reactor_bind(r0);
    for (int i = 0; i < 10; i++)
        reactor_post(r1, &l[i].task);
    assert_int_equal(expected_number, 0); /* not inside the call */
    assert_int_equal(step(r0, 0), 0);     /* and not on the sender */
    assert_int_equal(step(r1, 0), 10);
    assert_int_equal(expected_number, 10);
    assert_false(out_of_order);
    assert_int_equal(stats(r1).mails_in - mails, 10);
    assert_int_equal(step(r1, 0), 0);
    free(l);
}

static void test_mail_to_self(void **state)
{
    struct letter *l = letters_make(3);

    letters_expect(r0);
    reactor_bind(r0);
    for (int i = 0; i < 3; i++)
        reactor_post(r0, &l[i].task);
    assert_int_equal(expected_number, 0);
    assert_int_equal(reactor_step(r0, UINT64_MAX), 3); /* and it does not sleep on it */
    assert_int_equal(expected_number, 3);
    assert_false(out_of_order);
    free(l);
}

/* More than the ring holds: the rest waits at the sender, and later mail does not overtake it. */
static void test_mail_overflow(void **state)
{
    enum {
        N = 5000
    };
    struct letter *l = letters_make(N);
    struct reactor_stats before = stats(r0);
    unsigned steps = 0;

    letters_expect(r1);
    reactor_bind(r0);
    for (unsigned i = 0; i < N / 2; i++)
        reactor_post(r1, &l[i].task);
    assert_true(stats(r0).mails_queued - before.mails_queued >= N / 2 - REACTOR_RING_SIZE);
    assert_true(mailbox_waiting(r0));
    step(r1, 0); /* room in the ring now */
    reactor_bind(r0);
    for (unsigned i = N / 2; i < N; i++)
        reactor_post(r1, &l[i].task);
    while (expected_number < N) {
        assert_true(steps++ < 2 * N);
        step(r0, 0);
        step(r1, 0);
    }
    assert_false(out_of_order);
    assert_false(mailbox_waiting(r0));
    assert_int_equal(step(r1, 0), 0);
    free(l);
}

static struct reactor_task again_task;
static unsigned again_runs;

static void on_again(struct reactor_task *task)
{
    again_runs++;
    if (again_runs < 5)
        reactor_post(reactor_self(), task);
}

static void test_mail_again_from_callback(void **state)
{
    again_runs = 0;
    again_task.fn = on_again;
    reactor_bind(r0);
    reactor_post(r0, &again_task);
    for (unsigned i = 1; i <= 5; i++) {
        assert_int_equal(reactor_step(r0, 0), 1); /* once per loop */
        assert_int_equal(again_runs, i);
    }
    assert_int_equal(reactor_step(r0, 0), 0);
}

static void on_free(struct reactor_task *task)
{
    expected_number++;
    free(task);
}

/* The receiver owns the task from the moment it runs, in rings, in overflow and to itself. */
static void test_mail_freed_by_receiver(void **state)
{
    enum {
        N = 3000
    };
    unsigned steps = 0;

    expected_number = 0;
    reactor_bind(r0);
    for (unsigned i = 0; i < N; i++) {
        struct reactor_task *task = calloc(1, sizeof(*task));

        assert_non_null(task);
        task->fn = on_free;
        reactor_post(i % 3 == 0 ? r0 : r1, task);
    }
    while (expected_number < N) {
        assert_true(steps++ < N);
        step(r0, 0);
        step(r1, 0);
    }
}

/* ---- timers on a reactor ---- */

struct alarm {
    struct reactor_timer timer;
    uint64_t armed_us, delay_us, fired_us;
    unsigned fired;
};

static void on_alarm(struct reactor_timer *t)
{
    struct alarm *a = (struct alarm *)t;

    a->fired_us = wall_us();
    a->fired++;
}

static void alarm_arm(struct alarm *a, uint64_t delay_us)
{
    a->armed_us = wall_us();
    a->delay_us = delay_us;
    reactor_timer_arm(&a->timer, delay_us);
}

static void test_timer_on_reactor(void **state)
{
    struct alarm a = {.fired = 0};
    uint64_t fired = stats(r0).timers_fired, until = wall_us() + DEADLINE_US;

    reactor_bind(r0);
    reactor_timer_init(&a.timer, on_alarm);
    assert_false(reactor_timer_armed(&a.timer));
    reactor_timer_cancel(&a.timer);
    for (uint64_t delay = 0; delay < 20000; delay += 1777) {
        alarm_arm(&a, delay);
        assert_true(reactor_timer_armed(&a.timer));
        while (reactor_timer_armed(&a.timer)) {
            assert_true(wall_us() < until);
            reactor_step(r0, UINT64_MAX); /* the timer ends the sleep */
        }
        assert_true(a.fired_us >= a.armed_us + a.delay_us);
    }
    assert_int_equal(stats(r0).timers_fired - fired, a.fired);
    reactor_timer_arm(&a.timer, UINT64_MAX);
    assert_true(reactor_timer_armed(&a.timer));
    reactor_timer_cancel(&a.timer);
    assert_false(reactor_timer_armed(&a.timer));
}

static uint64_t slow_arm_us;
static struct alarm slow_alarm;

static void on_slow(struct reactor_task *task)
{
    uint64_t until = wall_us() + 5000;

    while (wall_us() < until)
        continue;
    slow_arm_us = wall_us();
    reactor_timer_arm(&slow_alarm.timer, 2000);
}

/* Armed late in a long callback: the delay counts from there, not from the loop's cached time. */
static void test_timer_not_early_after_slow_callback(void **state)
{
    struct reactor_task task = {.fn = on_slow};
    uint64_t until = wall_us() + DEADLINE_US;

    slow_alarm = (struct alarm){.fired = 0};
    reactor_bind(r0);
    reactor_timer_init(&slow_alarm.timer, on_alarm);
    reactor_post(r0, &task);
    while (slow_alarm.fired == 0) {
        assert_true(wall_us() < until);
        reactor_step(r0, 1000);
    }
    assert_true(slow_alarm.fired_us >= slow_arm_us + 2000);
}

static uint64_t seen_now[2];

static void on_look_at_clock(struct reactor_task *task)
{
    uint64_t until = wall_us() + 300;

    seen_now[0] = reactor_now_us();
    while (wall_us() < until)
        continue;
    seen_now[1] = reactor_now_us();
}

static void test_now(void **state)
{
    struct reactor_task task = {.fn = on_look_at_clock};
    uint64_t before;

    reactor_bind(r0);
    before = wall_us();
    reactor_post(r0, &task);
    reactor_step(r0, 0);
    assert_true(seen_now[0] == seen_now[1]); /* cached within a loop */
    assert_true(seen_now[0] >= before);
    assert_true(reactor_now_us() > seen_now[0]); /* and fresh outside */
}

/* ---- pollers ---- */

struct counter {
    struct reactor_poller poller;
    unsigned calls, order;
    int work;
    struct reactor_poller *victim;
    bool free_self;
};

static unsigned poll_serial;

static int on_poll(void *arg)
{
    struct counter *c = arg;
    int work = c->work;

    c->calls++;
    c->order = poll_serial++;
    if (c->victim)
        reactor_poller_del(r0, c->victim);
    if (c->free_self) {
        reactor_poller_del(r0, &c->poller);
        free(c);
    }
    return work;
}

static void counter_add(struct counter *c, uint64_t max_sleep_us)
{
    c->poller = (struct reactor_poller){.fn = on_poll, .arg = c, .max_sleep_us = max_sleep_us};
    reactor_poller_add(r0, &c->poller);
}

static void test_pollers(void **state)
{
    struct counter a = {.work = 2}, b = {.work = 0}, c = {.work = 3};

    reactor_bind(r0);
    counter_add(&a, UINT64_MAX);
    counter_add(&b, UINT64_MAX);
    counter_add(&c, UINT64_MAX);
    assert_int_equal(reactor_step(r0, UINT64_MAX), 5); /* busy: no sleep */
    assert_true(a.order < b.order && b.order < c.order);
    /* The next one is deleted while it is on. */
    a.victim = &b.poller;
    assert_int_equal(reactor_step(r0, 0), 5);
    assert_int_equal(b.calls, 1);
    a.victim = &c.poller;
    reactor_step(r0, 0);
    assert_int_equal(c.calls, 2);
    /* Itself; and what is not there. */
    a.victim = &a.poller;
    reactor_step(r0, 0);
    assert_int_equal(reactor_step(r0, 0), 0);
    assert_int_equal(a.calls, 4);
    reactor_poller_del(r0, &a.poller);
}

static void test_poller_frees_itself(void **state)
{
    struct counter *a = calloc(1, sizeof(*a)), b = {.work = 0};

    assert_non_null(a);
    a->free_self = true;
    reactor_bind(r0);
    counter_add(a, 0);
    counter_add(&b, UINT64_MAX);
    reactor_step(r0, 0);
    reactor_step(r0, 0);
    assert_int_equal(b.calls, 2);
    reactor_poller_del(r0, &b.poller);
}

static void test_poller_limits_sleep(void **state)
{
    struct counter a = {.work = 0}, b = {.work = 0};
    uint64_t sleeps, begin;

    reactor_bind(r0);
    counter_add(&a, UINT64_MAX);
    counter_add(&b, 0);
    sleeps = stats(r0).sleeps;
    for (int i = 0; i < 100; i++)
        reactor_step(r0, UINT64_MAX); /* would hang here, had it slept */
    assert_int_equal(stats(r0).sleeps, sleeps);
    b.poller.max_sleep_us = 500;
    begin = wall_us();
    reactor_step(r0, UINT64_MAX);
    assert_true(wall_us() - begin >= 500);
    assert_int_equal(stats(r0).sleeps, sleeps + 1);
    reactor_poller_del(r0, &a.poller);
    reactor_poller_del(r0, &b.poller);
}

static struct reactor_poller late_poller;
static unsigned late_calls;

/* Finds work only when it is asked a second time: between the first look and the sleep. */
static int on_late_poll(void *arg)
{
    return ++late_calls % 2 == 0 ? 1 : 0;
}

static void test_devices_looked_at_once_more(void **state)
{
    uint64_t sleeps = stats(r0).sleeps;

    reactor_bind(r0);
    late_poller = (struct reactor_poller){.fn = on_late_poll, .max_sleep_us = UINT64_MAX};
    late_calls = 0;
    reactor_poller_add(r0, &late_poller);
    assert_int_equal(reactor_step(r0, UINT64_MAX), 1);
    assert_int_equal(late_calls, 2);
    assert_int_equal(stats(r0).sleeps, sleeps);
    reactor_poller_del(r0, &late_poller);
}

/* ---- file descriptors ---- */

struct watch {
    struct reactor_fd fd;
    int pipe[2];
    unsigned calls;
    uint32_t events;
    struct watch **victim; /* deleted and freed by the callback */
    bool drain;
};

static unsigned fd_calls;

static void watch_free(struct watch *w)
{
    reactor_fd_del(&w->fd);
    close(w->pipe[0]);
    close(w->pipe[1]);
    free(w);
}

static void on_readable(struct reactor_fd *f, uint32_t events)
{
    struct watch *w = (struct watch *)f;
    char c;

    fd_calls++;
    w->calls++;
    w->events = events;
    if (w->drain)
        assert_int_equal(read(w->pipe[0], &c, 1), 1);
    if (w->victim) {
        struct watch *victim = *w->victim;

        *w->victim = NULL;
        watch_free(victim); /* may be w */
    }
}

static struct watch *watch_make(void)
{
    struct watch *w = calloc(1, sizeof(*w));

    assert_non_null(w);
    assert_int_equal(pipe2(w->pipe, O_NONBLOCK | O_CLOEXEC), 0);
    assert_int_equal(reactor_fd_add(&w->fd, w->pipe[0], EPOLLIN, on_readable), 0);
    return w;
}

static void watch_fill(struct watch *w)
{
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
}

static void test_fd_level_triggered(void **state)
{
    struct watch *w;

    reactor_bind(r0);
    w = watch_make();
    assert_int_equal(reactor_step(r0, 0), 0);
    watch_fill(w);
    assert_int_equal(reactor_step(r0, 0), 1);
    assert_int_equal(w->events, EPOLLIN);
    w->drain = true;
    assert_int_equal(reactor_step(r0, 0), 1); /* still readable */
    assert_int_equal(reactor_step(r0, 0), 0); /* drained */
    assert_int_equal(w->calls, 2);
    close(w->pipe[1]);
    w->pipe[1] = -1;
    w->drain = false;
    assert_int_equal(reactor_step(r0, 0), 1);
    assert_true(w->events & EPOLLHUP);
    watch_free(w);
}

static void test_fd_mod_and_del(void **state)
{
    struct watch *w;

    reactor_bind(r0);
    w = watch_make();
    watch_fill(w);
    assert_int_equal(reactor_fd_mod(&w->fd, 0), 0);
    assert_int_equal(reactor_step(r0, 0), 0);
    assert_int_equal(reactor_fd_mod(&w->fd, EPOLLIN), 0);
    assert_int_equal(w->fd.events, EPOLLIN);
    assert_int_equal(reactor_step(r0, 0), 1);
    reactor_fd_del(&w->fd);
    assert_int_equal(reactor_step(r0, 0), 0);
    assert_int_equal(reactor_fd_mod(&w->fd, EPOLLIN), -ENOENT);
    watch_free(w); /* deletes once more: harmless */
}

static void test_fd_errors(void **state)
{
    char path[] = "/tmp/millrace-test.XXXXXX";
    struct reactor_fd other;
    struct watch *w;
    int file;

    reactor_bind(r0);
    w = watch_make();
    assert_int_equal(reactor_fd_add(&other, w->pipe[0], EPOLLIN, on_readable), -EEXIST);
    assert_int_equal(reactor_fd_add(&other, -1, EPOLLIN, on_readable), -EBADF);
    reactor_fd_del(&other); /* was never added: harmless */
    file = mkstemp(path);
    assert_true(file >= 0);
    unlink(path);
    assert_int_equal(reactor_fd_add(&other, file, EPOLLIN, on_readable), -EPERM);
    close(file);
    watch_fill(w);
    assert_int_equal(reactor_step(r0, 0), 1); /* not disturbed by all that */
    watch_free(w);
}

/* Two ready in one look; whichever is first deletes and frees the other. */
static void test_fd_delete_other_in_callback(void **state)
{
    struct watch *a, *b;

    reactor_bind(r0);
    a = watch_make();
    b = watch_make();
    a->victim = &b;
    b->victim = &a;
    watch_fill(a);
    watch_fill(b);
    fd_calls = 0;
    assert_int_equal(reactor_step(r0, 0), 1);
    assert_int_equal(fd_calls, 1);
    assert_true((!a) != (!b));
    watch_free(a ? a : b);
    assert_int_equal(reactor_step(r0, 0), 0);
}

static void test_fd_delete_self_in_callback(void **state)
{
    struct watch *a, *b;

    reactor_bind(r0);
    a = watch_make();
    b = watch_make();
    a->victim = &a;
    watch_fill(a);
    watch_fill(b);
    assert_int_equal(reactor_step(r0, 0), 2);
    assert_null(a);
    assert_int_equal(b->calls, 1);
    watch_free(b);
}

static struct watch *reused, *reuser;

/* Deletes a ready descriptor and adds another, silent one in the same struct. */
static void on_reuse(struct reactor_fd *f, uint32_t events)
{
    fd_calls++;
    reactor_fd_del(&reused->fd);
    assert_int_equal(reactor_fd_add(&reused->fd, reused->pipe[1], 0, on_readable), 0);
    reactor_fd_del(f);
}

static void test_fd_reuse_in_callback(void **state)
{
    reactor_bind(r0);
    reuser = watch_make();
    reused = watch_make();
    reuser->fd.fn = on_reuse;
    watch_fill(reuser); /* becomes ready first, so it is delivered first */
    watch_fill(reused);
    fd_calls = 0;
    reactor_step(r0, 0);
    assert_int_equal(fd_calls, 1);
    assert_int_equal(reused->calls, 0);
    watch_free(reuser);
    watch_free(reused);
}

/* A descriptor that becomes ready ends a sleep without limit, in the same call. */
static void test_fd_wakes(void **state)
{
    uint64_t sleeps = stats(r0).sleeps;
    struct watch *w;

    reactor_bind(r0);
    w = watch_make();
    w->drain = true;
    assert_int_equal(reactor_step(r0, 1), 0);
    watch_fill(w);
    assert_int_equal(reactor_step(r0, UINT64_MAX), 1);
    assert_int_equal(stats(r0).sleeps, sleeps + 2); /* looked at by going to sleep, not before */
    watch_free(w);
}

static struct reactor_task busy_task;

static void on_busy(struct reactor_task *task)
{
    reactor_post(reactor_self(), task);
}

/* A reactor that is never idle looks at its descriptors all the same. */
static void test_fd_seen_when_busy(void **state)
{
    uint64_t until = wall_us() + DEADLINE_US;
    struct watch *w;

    reactor_bind(r0);
    w = watch_make();
    busy_task.fn = on_busy;
    reactor_post(r0, &busy_task);
    watch_fill(w);
    while (w->calls == 0) {
        assert_true(wall_us() < until);
        assert_true(reactor_step(r0, 0) > 0);
    }
    watch_free(w);
    busy_task.fn = on_nothing; /* lets it run out */
    reactor_step(r0, 0);
    assert_int_equal(reactor_step(r0, 0), 0);
}

/* With a device poller the system call is made every 50 us at most. */
static void test_fd_seldom_with_device(void **state)
{
    struct counter device = {.work = 0};
    uint64_t begin, took = 0;
    unsigned loops = 0;
    struct watch *w;

    reactor_bind(r0);
    counter_add(&device, 0);
    w = watch_make();
    watch_fill(w); /* always readable: each look delivers it */
    begin = wall_us();
    while (took < 5000 || w->calls == 0) {
        assert_true(took < DEADLINE_US);
        reactor_step(r0, 0);
        loops++;
        took = wall_us() - begin;
    }
    assert_true(w->calls <= took / REACTOR_FD_LOOK_US + 1);
    assert_int_equal(device.calls, loops);
    watch_free(w);
    reactor_poller_del(r0, &device.poller);
}

/* ---- stats ---- */

static void test_stats(void **state)
{
    struct reactor_task task = {.fn = on_nothing};
    struct reactor_stats before = stats(r0), after;

    reactor_bind(r0);
    reactor_step(r0, 0);
    reactor_post(r0, &task);
    reactor_step(r0, 0);
    after = stats(r0);
    assert_int_equal(after.loops - before.loops, 2);
    assert_int_equal(after.busy_loops - before.busy_loops, 1);
    assert_true(after.total_cycles > before.total_cycles);
    assert_true(after.busy_cycles > before.busy_cycles);
    assert_true(after.busy_cycles - before.busy_cycles < after.total_cycles - before.total_cycles);
}

/* ---- what the time went on ---- */

static uint64_t cycles_of_us(uint64_t us)
{
    return stats(r0).hz / 1000000 * us;
}

static void burn(uint64_t us)
{
    uint64_t until = rte_rdtsc() + cycles_of_us(us);

    while (rte_rdtsc() < until)
        continue;
}

static int poll_burns;

static int burn_poll(void *arg)
{
    int useful = poll_burns > 0;

    if (useful) {
        poll_burns--;
        burn(300);
    }
    return useful;
}

static void burn_mail(struct reactor_task *task)
{
    burn(300);
}

static void burn_timer(struct reactor_timer *t)
{
    burn(300);
}

static void burn_fd(struct reactor_fd *f, uint32_t events)
{
    uint64_t n;

    assert_int_equal(read(f->fd, &n, sizeof(n)), sizeof(n));
    burn(300);
}

static uint64_t sum(const struct reactor_stats *s)
{
    uint64_t all = 0;

    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        all += s->stage_cycles[i];
    return all;
}

/* Of all cycles since `before` the stage, and no other, has those of one burn and more; but for
 * what the kernel took of it. */
static struct reactor_stats only(enum reactor_stage stage, const struct reactor_stats *before)
{
    struct reactor_stats now = stats(r0);

    assert_true(now.stage_cycles[stage] - before->stage_cycles[stage] +
                    now.stage_cycles[REACTOR_STAGE_PREEMPTED] -
                    before->stage_cycles[REACTOR_STAGE_PREEMPTED] >=
                cycles_of_us(300));
    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        if (i != stage && i != REACTOR_STAGE_REST && i != REACTOR_STAGE_PREEMPTED)
            assert_int_equal(now.stage_cycles[i], before->stage_cycles[i]);
    assert_int_equal(sum(&now) - sum(before), now.total_cycles - before->total_cycles);
    return now;
}

static void test_stages(void **state)
{
    struct reactor_poller poller = {.fn = burn_poll, .max_sleep_us = UINT64_MAX};
    struct reactor_task task = {.fn = burn_mail};
    struct reactor_timer timer;
    struct reactor_fd fd = {.fd = -1};
    struct reactor_stats before;
    uint64_t one = 1, until;

    while (step(r0, 0) > 0)
        continue;
    before = stats(r0);
    reactor_poller_add(r0, &poller);
    poll_burns = 1;
    step(r0, 0);
    step(r0, 0);
    assert_int_equal(stats(r0).polls - before.polls, 2);
    assert_int_equal(stats(r0).useful_polls - before.useful_polls, 1);
    before = only(REACTOR_STAGE_POLL, &before);
    reactor_post(r0, &task);
    step(r0, 0);
    before = only(REACTOR_STAGE_MAIL, &before);
    reactor_timer_init(&timer, burn_timer);
    reactor_timer_arm(&timer, 0);
    until = wall_us() + DEADLINE_US;
    while (reactor_timer_armed(&timer) && wall_us() < until)
        step(r0, 0);
    before = only(REACTOR_STAGE_TIMER, &before);
    assert_int_equal(reactor_fd_add(&fd, eventfd(0, EFD_NONBLOCK), EPOLLIN, burn_fd), 0);
    assert_int_equal(write(fd.fd, &one, sizeof(one)), sizeof(one));
    step(r0, 0);
    before = only(REACTOR_STAGE_FD, &before);
    assert_int_equal(write(fd.fd, &one, sizeof(one)), sizeof(one));
    step(r0, 20000); /* it does not sleep long */
    before = only(REACTOR_STAGE_FD, &before);
    reactor_fd_del(&fd);
    close(fd.fd);
    reactor_poller_del(r0, &poller);
    step(r0, 20000);
    assert_true(stats(r0).sleep_us - before.sleep_us >= 15000);
    assert_true(stats(r0).total_cycles - before.total_cycles < cycles_of_us(15000));
    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(reactor_stage_name((enum reactor_stage)i),
                                    reactor_stage_name((enum reactor_stage)k));
}

/* ---- callbacks that take too long ---- */

static long switches(void)
{
    struct rusage u;

    assert_int_equal(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_nivcsw;
}

/* One that is long by its own doing is a stall; how long it was is known until asked to forget. */
static void test_stalls(void **state)
{
    struct reactor_task task = {.fn = burn_mail}, nothing = {.fn = on_nothing};
    uint64_t until = wall_us() + DEADLINE_US;
    struct reactor_stats before = stats(r0), after;

    do { /* the kernel may take the core from this one */
        if (wall_us() > until)
            fail_msg("every one of them is said to be preempted");
        step(r0, 0);
        reactor_post(r0, &task);
        step(r0, 0);
        after = stats(r0);
    } while (after.long_calls == before.long_calls);
    assert_int_equal(after.long_calls, before.long_calls + 1);
    assert_true(after.longest_cycles >= cycles_of_us(300));
    reactor_stats_restart(r0);
    assert_int_equal(stats(r0).longest_cycles, 0); /* also before it runs again */
    do {
        if (wall_us() > until)
            fail_msg("nothing is ever quick");
        reactor_stats_restart(r0);
        step(r0, 0);
        assert_int_equal(stats(r0).longest_cycles, 0);
        reactor_post(r0, &nothing);
        step(r0, 0);
        after = stats(r0);
    } while (after.longest_cycles >= cycles_of_us(100));
    assert_true(after.longest_cycles > 0);
}

static unsigned greedy_stop;

static void *greedy(void *arg)
{
    while (!ATOMIC_GET(greedy_stop))
        continue;
    return NULL;
}

/* Until somebody else has had the core. */
static void lose_core(struct reactor_task *task)
{
    uint64_t until = wall_us() + DEADLINE_US;
    long before = switches();

    while (switches() == before && wall_us() < until)
        continue;
    burn(150);
}

static void test_preempted(void **state)
{
    struct reactor_task task = {.fn = lose_core};
    struct reactor_stats before;
    cpu_set_t old, one;
    pthread_t other;

    assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(pthread_create(&other, NULL, greedy, NULL), 0); /* on this core too */
    reactor_stats_restart(r0);
    step(r0, 0);
    before = stats(r0);
    reactor_post(r0, &task);
    step(r0, 0);
    assert_int_equal(stats(r0).preempted, before.preempted + 1);
    assert_int_equal(stats(r0).long_calls, before.long_calls);
    assert_true(stats(r0).longest_cycles < cycles_of_us(150)); /* not by its own doing */
    assert_true(stats(r0).stage_cycles[REACTOR_STAGE_PREEMPTED] >
                before.stage_cycles[REACTOR_STAGE_PREEMPTED]);
    ATOMIC_SET(greedy_stop, 1);
    pthread_join(other, NULL);
    sched_setaffinity(0, sizeof(old), &old);
}

static int group_setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 2);
    r0 = reactor_at(env, 0);
    r1 = reactor_at(env, 1);
    return 0;
}

static int group_teardown(void **state)
{
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_mail_order),
        cmocka_unit_test(test_mail_to_self),
        cmocka_unit_test(test_mail_overflow),
        cmocka_unit_test(test_mail_again_from_callback),
        cmocka_unit_test(test_mail_freed_by_receiver),
        cmocka_unit_test(test_timer_on_reactor),
        cmocka_unit_test(test_timer_not_early_after_slow_callback),
        cmocka_unit_test(test_now),
        cmocka_unit_test(test_pollers),
        cmocka_unit_test(test_poller_frees_itself),
        cmocka_unit_test(test_poller_limits_sleep),
        cmocka_unit_test(test_devices_looked_at_once_more),
        cmocka_unit_test(test_fd_level_triggered),
        cmocka_unit_test(test_fd_mod_and_del),
        cmocka_unit_test(test_fd_errors),
        cmocka_unit_test(test_fd_delete_other_in_callback),
        cmocka_unit_test(test_fd_delete_self_in_callback),
        cmocka_unit_test(test_fd_reuse_in_callback),
        cmocka_unit_test(test_fd_wakes),
        cmocka_unit_test(test_fd_seen_when_busy),
        cmocka_unit_test(test_fd_seldom_with_device),
        cmocka_unit_test(test_stats),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_preempted),
    };

    return cmocka_run_group_tests_name("reactor", tests, group_setup, group_teardown);
}
