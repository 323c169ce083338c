/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop. One iteration: pollers (device receive → protocol → lnet → protocol → device transmit),
 * mail, timers, file descriptors when due, then the bells of those posted to, then a quiescent
 * state. An idle iteration may end in sleep.
 */
#include "lib/reactor/reactor_internal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_lcore.h>
#include <rte_pause.h>

#define PAUSES_PER_IDLE_LOOP 16

static __thread struct reactor *self;
static __thread bool clock_stands;
static __thread uint64_t clock_stands_at;

void reactor_test_clock(uint64_t now_us)
{
    clock_stands = now_us != UINT64_MAX;
    clock_stands_at = now_us;
}

uint64_t clock_now_us(void)
{
    struct timespec ts;

    if (unlikely(clock_stands))
        return clock_stands_at;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t reactor_now_us(void)
{
    return self && self->in_loop ? self->now_us : clock_now_us();
}

/* ---- making and binding ---- */

int reactor_create(struct reactor_env *env, unsigned slot, struct reactor **out)
{
    struct reactor *r = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*r));
    int rc;

    if (!r)
        return -ENOMEM;
    *r = (struct reactor){
        .env = env,
        .slot = slot,
        .index = slot < env->count ? slot : REACTOR_CONTROL + slot - env->count,
        .wake_fd = -1,
        .epoll_fd = -1,
        .poller_sleep_us = UINT64_MAX,
    };
    TAILQ_INIT(&r->pollers);
    wheel_init(&r->wheel, clock_now_us());
    r->wheel.owner = r;
    stats_init(r);
    rc = mailbox_init(r);
    if (rc == 0)
        rc = fds_init(r);
    if (rc < 0) {
        reactor_destroy(r);
        return rc;
    }
    *out = r;
    return 0;
}

void reactor_destroy(struct reactor *r)
{
    if (!r)
        return;
    if (r->epoll_fd >= 0)
        close(r->epoll_fd);
    mailbox_fini(r);
    free(r);
}

void reactor_clear(struct reactor *r)
{
    wheel_clear(&r->wheel);
    fds_clear(r);
    TAILQ_INIT(&r->pollers);
    r->poller_next = r->poller_now = NULL;
    r->poller_sleep_us = UINT64_MAX;
}

void reactor_bind(struct reactor *r)
{
    assert(!r || !r->running);
    if (self)
        qsbr_detach(self);
    self = r;
    if (r) {
        qsbr_attach(r);
        stats_begin(r);
    } else {
        reactor_waits_on = NULL;
    }
}

/* ---- pollers ---- */

void reactor_poller_add(struct reactor *r, struct reactor_poller *p)
{
    TAILQ_INSERT_TAIL(&r->pollers, p, link);
}

void reactor_poller_del(struct reactor *r, struct reactor_poller *p)
{
    struct reactor_poller *at;

    TAILQ_FOREACH(at, &r->pollers, link) {
        if (at == p)
            break;
    }
    if (!at)
        return;
    if (r->poller_next == p)
        r->poller_next = TAILQ_NEXT(p, link);
    if (r->poller_now == p)
        r->poller_now = NULL;
    TAILQ_REMOVE(&r->pollers, p, link);
}

static int pollers_run(struct reactor *r)
{
    uint64_t sleep_us = UINT64_MAX, polls = 0, useful = 0;
    int work = 0;

    for (struct reactor_poller *p = TAILQ_FIRST(&r->pollers); p; p = r->poller_next) {
        int found;

        r->poller_now = p;
        r->poller_next = TAILQ_NEXT(p, link);
        found = p->fn(p->arg);
        polls++;
        useful += found > 0;
        work += found;
        /* Looked at after it ran, which may have armed its device, and only if it is still there.
         */
        if (r->poller_now)
            sleep_us = min(sleep_us, p->max_sleep_us);
    }
    r->poller_now = NULL;
    r->poller_sleep_us = sleep_us;
    count_add(&r->stats.polls, polls);
    if (useful == 0)
        return work;
    count_add(&r->stats.useful_polls, useful);
    stats_stage(r, REACTOR_STAGE_POLL);
    return work;
}

/* ---- one iteration ---- */

static int fds_serve(struct reactor *r)
{
    int n = fds_dispatch(r);

    if (n > 0)
        stats_stage(r, REACTOR_STAGE_FD);
    return n;
}

static int fds_look(struct reactor *r, int work)
{
    bool device = r->poller_sleep_us != UINT64_MAX;

    if ((device || work > 0) && r->now_us - r->fd_looked_us < REACTOR_FD_LOOK_US)
        return 0;
    r->fd_looked_us = r->now_us;
    fds_wait(r, 0);
    return fds_serve(r);
}

/* How long the reactor may sleep: the smallest of what the caller, pollers, timers and waiting mail
 * allow. */
static uint64_t sleep_limit(const struct reactor *r, uint64_t max_wait_us)
{
    uint64_t limit = min(max_wait_us, r->poller_sleep_us);
    uint64_t next = wheel_next_us(&r->wheel);

    if (next != UINT64_MAX)
        limit = min(limit, next > r->now_us ? next - r->now_us : 0);
    if (mailbox_waiting(r))
        limit = min(limit, REACTOR_RETRY_US);
    return limit;
}

static int sleep_if_idle(struct reactor *r, uint64_t max_wait_us)
{
    uint64_t limit;
    int work;

    relaxed_store(&r->sleeping, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    /* From here on senders ring; what came before is seen now. */
    work = pollers_run(r);
    mailbox_ring_bells(r);
    stats_loop(r, work);
    limit = sleep_limit(r, max_wait_us);
    if (work == 0 && limit > 0 && !mailbox_pending(r)) {
        uint64_t asleep_us = clock_now_us();

        relaxed_store(&r->asleep_since, asleep_us);
        qsbr_offline(r);
        fds_wait(r, limit);
        qsbr_online(r);
        count_add(&r->stats.sleeps, 1);
        stats_resume(r);
        r->now_us = clock_now_us();
        relaxed_store(&r->asleep_since, 0);
        count_add(&r->stats.sleep_us, r->now_us - asleep_us);
        r->fd_looked_us = r->now_us;
    }
    relaxed_store(&r->sleeping, 0);
    if (r->event_next < r->nevents) {
        work += fds_serve(r);
        mailbox_ring_bells(r);
        stats_loop(r, work);
    }
    return work;
}

int reactor_step(struct reactor *r, uint64_t max_wait_us)
{
    unsigned fired;
    bool sleepy;
    int work;

    assert(r == self && !r->in_loop);
    r->in_loop = true;
    r->now_us = clock_now_us();
    stats_look(r);
    work = pollers_run(r);
    work += mailbox_run(r);
    fired = wheel_advance(&r->wheel, r->now_us);
    if (fired > 0) {
        count_add(&r->stats.timers_fired, fired);
        stats_stage(r, REACTOR_STAGE_TIMER);
        work += (int)fired;
    }
    /* To sleep is to look at the descriptors too. */
    sleepy = work == 0 && max_wait_us > 0 && sleep_limit(r, max_wait_us) > 0;
    if (!sleepy)
        work += fds_look(r, work);
    if (mailbox_waiting(r))
        mailbox_flush(r);
    mailbox_ring_bells(r);
    qsbr_quiescent(r);
    stats_loop(r, work);
    if (sleepy)
        work = sleep_if_idle(r, max_wait_us);
    count_add(&r->stats.loops, 1);
    if (work > 0)
        count_add(&r->stats.busy_loops, 1);
    r->in_loop = false;
    return work;
}

/* ---- running ---- */

static bool stopping(const struct reactor *r)
{
    return __atomic_load_n(&r->stop, __ATOMIC_ACQUIRE) != 0;
}

static void run_spinning(struct reactor *r)
{
    while (!stopping(r)) {
        if (reactor_step(r, 0) == 0)
            rte_pause();
    }
}

/* Pausing before sleep pays where a device is polled, which is cheap. Descriptors are looked at
 * with a system call: to look again and again costs more CPU than to sleep and be woken. */
static bool tired(const struct reactor *r, uint64_t idle_since)
{
    return r->poller_sleep_us == UINT64_MAX ||
           (idle_since != 0 && r->now_us - idle_since >= REACTOR_SPIN_US);
}

static void run_adaptive(struct reactor *r)
{
    uint64_t idle_since = 0;

    while (!stopping(r)) {
        bool sleep = tired(r, idle_since);

        if (reactor_step(r, sleep ? UINT64_MAX : 0) > 0) {
            idle_since = 0;
            continue;
        }
        if (idle_since == 0)
            idle_since = r->now_us;
        if (!sleep) {
            for (int i = 0; i < PAUSES_PER_IDLE_LOOP; i++)
                rte_pause();
        }
    }
}

int reactor_main(void *arg)
{
    struct reactor *r = arg;
    char name[16];

    (void)__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE); /* see reactor_env_start() */
    snprintf(name, sizeof(name), "reactor-%u", r->index);
    pthread_setname_np(pthread_self(), name);
    self = r;
    qsbr_attach(r);
    stats_begin(r);
    capacity_thread_begins(r);
    if (r->idle == REACTOR_IDLE_SPIN)
        run_spinning(r);
    else
        run_adaptive(r);
    capacity_thread_ends(r);
    qsbr_detach(r);
    reactor_waits_on = NULL;
    self = NULL;
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    return 0;
}

void reactor_stop(struct reactor *r)
{
    __atomic_store_n(&r->stop, 1, __ATOMIC_RELEASE);
    reactor_ring_bell(r);
}

void reactor_control_run(struct reactor_env *env)
{
    struct reactor *r = reactor_control(env);

    while (!stopping(r))
        reactor_step(r, UINT64_MAX);
    __atomic_store_n(&r->stop, 0, __ATOMIC_RELEASE);
}

void reactor_control_quit(struct reactor_env *env)
{
    reactor_stop(reactor_control(env));
}

/* ---- who is who ---- */

struct reactor *reactor_self(void)
{
    return self;
}

unsigned reactor_index(const struct reactor *r)
{
    return r->index;
}

unsigned reactor_cpt(const struct reactor *r)
{
    return r->cpt;
}

bool reactor_spins(const struct reactor *r)
{
    return r->idle == REACTOR_IDLE_SPIN;
}

struct reactor_env *reactor_env_of(const struct reactor *r)
{
    return r->env;
}
