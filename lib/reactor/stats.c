/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The time of a reactor, by stage. Reading the cycle counter costs as much as an idle poller. It is
 * therefore read after each stage that found work, and once per iteration. The time of an idle
 * stage is charged to the busy stage after it.
 *
 * A single message or timer that takes long delays all others. The count of involuntary context
 * switches shows whether the callback itself took long or the kernel took its core away. Reading
 * the count takes a system call, so it is read once a millisecond, and after a long callback.
 *
 * The cycle counter runs on while another thread has the core. A stage that looks long is compared
 * with the CPU time of the thread, and the difference counts as preempted.
 */
#include "lib/reactor/reactor_internal.h"

#include <sys/resource.h>

static long involuntary_switches(void)
{
    struct rusage u;

    return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nivcsw : 0;
}

static void set_notable(struct reactor *r)
{
    r->call_notable = min(r->stats.longest_cycles, r->stall_cycles);
}

void stats_init(struct reactor *r)
{
    r->stats.hz = rte_get_tsc_hz();
    r->stall_cycles = r->stats.hz / 1000000 * REACTOR_STALL_US;
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Cycles first: a system call is where the core is lost most often, and what comes behind the pair
 * is for the next look to find. */
static void look_at_cpu(struct reactor *r)
{
    r->cpu_tsc = rte_rdtsc();
    r->cpu_ns = thread_cpu_ns();
}

void stats_begin(struct reactor *r)
{
    r->last_tsc = rte_rdtsc();
    stats_resume(r);
    look_at_cpu(r);
    reactor_waits_on = r->waits;
}

void stats_resume(struct reactor *r)
{
    uint64_t now = rte_rdtsc();

    r->cpu_tsc += now - r->last_tsc;
    r->last_tsc = now;
    r->stage_tsc = now;
}

/* Of `took` cycles up to now, those during which the thread had no core. */
static uint64_t preempted_cycles(struct reactor *r, uint64_t now, uint64_t took)
{
    uint64_t cpu_ns = thread_cpu_ns(), passed = now - r->cpu_tsc;
    uint64_t used = (uint64_t)((double)(cpu_ns - r->cpu_ns) * (double)r->stats.hz / 1e9);
    uint64_t lost = passed > used ? min(passed - used, took) : 0;

    r->cpu_tsc = now;
    r->cpu_ns = cpu_ns;
    count_add(&r->stats.stage_cycles[REACTOR_STAGE_PREEMPTED], lost);
    r->turn_lost += lost;
    return lost;
}

void stats_stage(struct reactor *r, enum reactor_stage stage)
{
    uint64_t now = rte_rdtsc(), took = now - r->stage_tsc, lost = 0;

    if (unlikely(took > r->stall_cycles))
        lost = preempted_cycles(r, now, took);
    count_add(&r->stats.stage_cycles[stage], took - lost);
    r->stage_tsc = now;
}

void stats_loop(struct reactor *r, int work)
{
    uint64_t now = rte_rdtsc(), took = now - r->stage_tsc, turn = now - r->last_tsc;

    if (unlikely(took > r->stall_cycles))
        took -= preempted_cycles(r, now, took);
    count_add(&r->stats.total_cycles, turn);
    count_add(&r->stats.stage_cycles[REACTOR_STAGE_REST], took);
    if (work > 0)
        count_add(&r->stats.busy_cycles, turn - r->turn_lost);
    r->turn_lost = 0;
    r->last_tsc = now;
    r->stage_tsc = now;
}

void stats_look_now(struct reactor *r)
{
    uint64_t now, took;

    r->usage_us = r->now_us;
    r->switches = involuntary_switches();
    now = rte_rdtsc();
    took = now - r->stage_tsc;
    if (unlikely(took > r->stall_cycles)) /* lost between two turns, or by the call above */
        r->stage_tsc += preempted_cycles(r, now, took);
    else
        look_at_cpu(r);
    if (!relaxed_load(&r->restart))
        return;
    relaxed_store(&r->stats.longest_cycles, 0);
    relaxed_store(&r->restart, false);
    set_notable(r);
}

void stats_notable_call(struct reactor *r, uint64_t took)
{
    bool is_long = took > r->stall_cycles;
    long switches = is_long ? involuntary_switches() : r->switches;
    bool preempted = switches != r->switches;

    r->switches = switches;
    if (is_long)
        count_add(preempted ? &r->stats.preempted : &r->stats.long_calls, 1);
    if (!preempted && took > r->stats.longest_cycles)
        relaxed_store(&r->stats.longest_cycles, took);
    set_notable(r);
}

/* ---- any thread ---- */

const char *reactor_stage_name(enum reactor_stage stage)
{
    static const char *const names[REACTOR_STAGES] = {
        [REACTOR_STAGE_POLL] = "poll", [REACTOR_STAGE_FD] = "fd",
        [REACTOR_STAGE_MAIL] = "mail", [REACTOR_STAGE_TIMER] = "timer",
        [REACTOR_STAGE_REST] = "rest", [REACTOR_STAGE_PREEMPTED] = "preempted",
    };

    return (unsigned)stage < REACTOR_STAGES ? names[stage] : "unknown";
}

void reactor_stats_restart(struct reactor *r)
{
    relaxed_store(&r->restart, true);
}

void reactor_stats_get(const struct reactor *r, struct reactor_stats *out)
{
    counters_copy_all(out, &r->stats);
    if (relaxed_load(&r->restart)) /* it sleeps: nothing has been long since */
        out->longest_cycles = 0;
}
