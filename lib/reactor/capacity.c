/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The capacity that a reactor has left. Its own counters, by the cycle counter, show how long it
 * worked. The CPU time of its thread, read by the control thread, shows for how much of its time
 * awake it had a core. Each of the two shows when the other is wrong.
 */
#include "lib/reactor/reactor_internal.h"

#include <pthread.h>

#define LOOK_US 1000000u

void capacity_thread_begins(struct reactor *r)
{
    bool has = pthread_getcpuclockid(pthread_self(), &r->cpu_clock) == 0;

    __atomic_store_n(&r->has_clock, has, __ATOMIC_RELEASE);
}

void capacity_thread_ends(struct reactor *r)
{
    __atomic_store_n(&r->has_clock, false, __ATOMIC_RELEASE);
}

/* A thread that ends meanwhile only makes the clock fail. */
static uint64_t cpu_ns_of(const struct reactor *r)
{
    clockid_t clock = CLOCK_THREAD_CPUTIME_ID; /* control's own */
    struct timespec ts;

    if (r->index != REACTOR_CONTROL) {
        if (!__atomic_load_n(&r->has_clock, __ATOMIC_ACQUIRE))
            return 0;
        clock = r->cpu_clock;
    }
    if (clock_gettime(clock, &ts) < 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Cycles are counted when a turn ends, and one that has no core does not end: so the time awake is
 * what it did not sleep. */
static void look(const struct reactor *r, struct capacity_look *out)
{
    uint64_t since = relaxed_load(&r->asleep_since);
    struct reactor_stats s;

    reactor_stats_get(r, &s);
    *out = (struct capacity_look){
        .when_us = clock_now_us(),
        .cpu_ns = cpu_ns_of(r),
        .asleep_us = s.sleep_us,
        .hz = s.hz,
    };
    if (since != 0 && since < out->when_us)
        out->asleep_us += out->when_us - since;
    for (unsigned i = 0; i < REACTOR_STAGES; i++)
        if (i != REACTOR_STAGE_REST && i != REACTOR_STAGE_PREEMPTED)
            out->busy_cycles += s.stage_cycles[i];
}

static double part(double seconds, double of)
{
    double share = seconds / of;

    return share < 0 ? 0 : share > 1 ? 1 : share;
}

void capacity_between(const struct capacity_look *before, const struct capacity_look *now,
                      struct reactor_capacity *out)
{
    double passed = (double)(now->when_us - before->when_us) / 1e6, asleep, busy, cpu;

    *out = (struct reactor_capacity){.seconds = 0};
    if (before->cpu_ns == 0 || now->cpu_ns < before->cpu_ns || now->when_us <= before->when_us)
        return;
    asleep = (double)(int64_t)(now->asleep_us - before->asleep_us) / 1e6;
    busy = (double)(now->busy_cycles - before->busy_cycles) / (double)now->hz;
    cpu = (double)(now->cpu_ns - before->cpu_ns) / 1e9;
    out->seconds = passed;
    out->busy = part(busy, passed);
    out->preempted = part(passed - asleep - cpu, passed);
    out->cpu = part(cpu, passed);
}

static void look_again(struct reactor_timer *t)
{
    struct reactor_env *env = reactor_env_of(reactor_self());

    for (unsigned i = 0; i <= env->count; i++) {
        struct reactor *r = env->slot[i];
        struct capacity_look now;

        look(r, &now);
        capacity_between(&r->look, &now, &r->capacity);
        r->look = now;
    }
    reactor_timer_arm(t, LOOK_US);
}

void reactor_capacity_watch(struct reactor_env *env)
{
    reactor_timer_init(&env->capacity, look_again);
    look_again(&env->capacity);
}

void reactor_capacity_get(const struct reactor *r, struct reactor_capacity *out)
{
    *out = r->capacity;
}
