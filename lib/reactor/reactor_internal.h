/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structs and functions that the files of lib/reactor share: the reactor and its modules
 * (cores.c, mailbox.c, timer.c, fd.c, qsbr.c). Only this library and its unit tests include this
 * header.
 */
#ifndef MILLRACE_REACTOR_INTERNAL_H
#define MILLRACE_REACTOR_INTERNAL_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <time.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_rcu_qsbr.h>
#include <rte_ring.h>

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/reactor/reactor.h"
#include "lib/reactor/wait.h"

#define REACTOR_SLOTS      (REACTOR_MAX + 2) /* reactors, the control reactor, the worker */
#define REACTOR_RING_SIZE  1024u             /* mails under way from one reactor to another */
#define REACTOR_MAIL_BURST 64u               /* mails taken from one ring per loop */
#define REACTOR_SPIN_US    50u               /* adaptive: pausing before the first sleep */
#define REACTOR_FD_LOOK_US 50u               /* longest time descriptors are not looked at */
#define REACTOR_RETRY_US   50u               /* longest sleep while mail waits for a full ring */
#define REACTOR_FD_BURST   64
#define REACTOR_USAGE_US   1000u /* longest time the count of context switches is not looked at */
#define REACTOR_DELAY_MAX  ((uint64_t)INT64_MAX / 2) /* longest timer; 146,000 years */

/* ---- cores.c: where reactors run ---- */

struct core_plan {
    bool pinned; /* false: every thread may use every core the process is allowed */
    unsigned count;
    struct {
        unsigned cpu; /* meaningless unless pinned */
        unsigned cpt;
    } core[REACTOR_MAX];
};

/* Reads reactor_opts.cores. allowed is the affinity mask of the process; naming a core outside it
 * is an error. Returns 0, or -EINVAL with a sentence in err. */
int cores_parse(const char *text, unsigned count, const cpu_set_t *allowed, struct core_plan *plan,
                struct err *err);
/* The EAL --lcores argument of a plan: lcore 0 is the control thread, lcore i + 1 reactor i. To be
 * freed; NULL when memory is short. */
char *cores_lcores_arg(const struct core_plan *plan, const cpu_set_t *allowed);

/* ---- timer.c: hierarchical wheel ---- */

#define WHEEL_TICK_US 1000u
#define WHEEL_BITS    6
#define WHEEL_SLOTS   (1u << WHEEL_BITS)
#define WHEEL_LEVELS  10 /* 60 bits of ticks: any microsecond count fits */

LIST_HEAD(timer_list, reactor_timer);

struct timer_wheel {
    struct reactor *owner;       /* the reactor whose callbacks are timed, or NULL */
    uint64_t tick;               /* all timers up to and including this tick have fired */
    uint64_t earliest;           /* first tick that may still be armed */
    uint64_t busy[WHEEL_LEVELS]; /* bit per slot that is not empty */
    struct timer_list slot[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct timer_wheel *w, uint64_t now_us);
void wheel_clear(struct timer_wheel *w); /* none of its timers is armed any more */
void wheel_arm(struct timer_wheel *w, struct reactor_timer *t, uint64_t expires_us);
void wheel_cancel(struct timer_wheel *w, struct reactor_timer *t);
/* Fires what is due at now_us, earliest tick first and within a tick in the order armed. A timer
 * that a callback arms fires in a later call. Returns how many fired. */
unsigned wheel_advance(struct timer_wheel *w, uint64_t now_us);
/* No timer is due before this; UINT64_MAX when none is armed. May be earlier than the first timer
 * (a cascade is due then). */
uint64_t wheel_next_us(const struct timer_wheel *w);

/* ---- the reactor ---- */

STAILQ_HEAD(task_list, reactor_task);

/* The counters of a reactor at one time, read by the control thread. */
struct capacity_look {
    uint64_t when_us;
    uint64_t cpu_ns; /* of its thread; 0: it does not run */
    uint64_t asleep_us;
    uint64_t busy_cycles; /* of its stages */
    uint64_t hz;
};

struct reactor {
    /* Read by every sender, written around sleep only. */
    uint32_t sleeping __rte_cache_aligned;
    uint32_t
        stop; /* written by the control thread, or by the thread that quits the control reactor */
    int wake_fd;   /* eventfd; rung by a sender that sees the sleeping flag */
    unsigned slot; /* index in the tables of the environment; after reactors control, then worker */
    struct reactor_env *env;
    unsigned index;   /* REACTOR_CONTROL for control, REACTOR_WORKER for the worker */
    pthread_t thread; /* the worker's */
    unsigned cpt;
    unsigned lcore;
    bool running; /* control thread's view */
    enum reactor_idle idle;
    clockid_t cpu_clock;       /* of its thread, while has_clock */
    bool has_clock;            /* release by its thread, acquire by control */
    struct capacity_look look; /* control's */
    struct reactor_capacity capacity;

    /* Hot, self only. */
    bool in_loop __rte_cache_aligned; /* inside reactor_step() */
    bool online;                      /* registered and online with QSBR */
    uint64_t now_us;
    uint64_t last_tsc;     /* up to here cycles are accounted */
    uint64_t stage_tsc;    /* up to here also to stages */
    uint64_t cpu_tsc;      /* when cpu_ns was read; later by what was slept since */
    uint64_t cpu_ns;       /* CPU time of the thread */
    uint64_t turn_lost;    /* cycles of this turn that were preempted */
    uint64_t call_tsc;     /* the last mail or timer ended */
    uint64_t call_notable; /* cycles of one that is looked at: too long, or the longest yet */
    uint64_t stall_cycles; /* of one that is too long */
    uint64_t usage_us;     /* context switches were looked at */
    long switches;         /* involuntary ones then */
    bool restart;          /* set by others: longest_cycles begins anew */
    uint64_t asleep_since; /* when it went to sleep, relaxed; 0: it does not */
    uint64_t fd_looked_us;
    uint64_t poller_sleep_us; /* what all pollers agree to, as of their last round */
    TAILQ_HEAD(, reactor_poller) pollers;
    struct reactor_poller *poller_now;  /* running; NULL once it has deleted itself */
    struct reactor_poller *poller_next; /* cursor, so that pollers may be deleted in a round */
    struct task_list own;               /* mail to self */
    uint64_t out_waiting[2];            /* bit per destination whose overflow queue is not empty */
    uint64_t out_posted[2];             /* bit per destination posted to since the last bell */
    struct rte_ring *in[REACTOR_SLOTS]; /* by slot of the sender; the receiver owns the rings */
    struct reactor_stats stats;         /* written relaxed by self */
    struct reactor_wait_hist waits[REACTOR_WAITS]; /* written relaxed by self */

    /* Colder, self only. */
    struct task_list out[REACTOR_SLOTS]; /* mail that found its ring full, in order */
    int epoll_fd;
    int nevents, event_next; /* fetched and not yet dispatched: [event_next, nevents) */
    struct epoll_event events[REACTOR_FD_BURST];
    struct timer_wheel wheel;
};

/* sun_path, with its NUL. */
#define TELEMETRY_PATH 108

struct reactor_env {
    unsigned count;
    bool eal_up;
    cpu_set_t affinity; /* of the control thread before EAL bound it */
    struct rte_rcu_qsbr *qsbr;
    struct reactor *slot[REACTOR_SLOTS]; /* [count]: control; [count + 1]: the worker, or NULL */
    int argc;
    int args_rc;                    /* 0, or the first failure of making the arguments */
    char *argv[64];                 /* what EAL was given; it may rearrange and keep them */
    char *owned[64];                /* the same, for freeing */
    char telemetry[TELEMETRY_PATH]; /* "" = none */
    struct reactor_timer capacity;  /* control's */
};

uint64_t clock_now_us(void); /* CLOCK_MONOTONIC */

/* ---- stats.c: what a reactor spends its time on (self) ---- */

void stats_init(struct reactor *r);
/* Begins the accounting on this thread; earlier time is not counted. */
void stats_begin(struct reactor *r);
/* The same after sleep. */
void stats_resume(struct reactor *r);
/* Charges the time since the last call to a stage. */
void stats_stage(struct reactor *r, enum reactor_stage stage);
/* The loop ends, or goes to sleep; work: whether it did any. The rest goes to REST. */
void stats_loop(struct reactor *r, int work);
/* At the beginning of a loop, now and then: what it costs to know of preemption. */
void stats_look_now(struct reactor *r);
void stats_notable_call(struct reactor *r, uint64_t took);

/* Around each mail and timer. */
static inline void call_begin(struct reactor *r)
{
    r->call_tsc = rte_rdtsc();
}

static inline void call_end(struct reactor *r)
{
    uint64_t now = rte_rdtsc(), took = now - r->call_tsc;

    r->call_tsc = now;
    if (unlikely(took > r->call_notable))
        stats_notable_call(r, took);
}

static inline void stats_look(struct reactor *r)
{
    if (unlikely(r->now_us - r->usage_us >= REACTOR_USAGE_US || relaxed_load(&r->restart)))
        stats_look_now(r);
}

/* ---- capacity.c ---- */

/* A part of reactor_capacity_watch(): what came between two looks. */
void capacity_between(const struct capacity_look *before, const struct capacity_look *now,
                      struct reactor_capacity *out);
/* The thread of r begins and ends to run it. */
void capacity_thread_begins(struct reactor *r);
void capacity_thread_ends(struct reactor *r);

/* Makes r and everything in it. */
int reactor_create(struct reactor_env *env, unsigned slot, struct reactor **out);
void reactor_destroy(struct reactor *r);
/* Forgets timers, descriptors and pollers; r does not run. */
void reactor_clear(struct reactor *r);
/* Body of a reactor thread: runs r until reactor_stop(). */
int reactor_main(void *arg);
/* Any thread, async-signal-safe. */
void reactor_stop(struct reactor *r);

/* ---- mailbox.c ---- */

int mailbox_init(struct reactor *r);
void mailbox_fini(struct reactor *r);
int mailbox_run(struct reactor *r);            /* runs what has come; returns how many */
bool mailbox_pending(const struct reactor *r); /* something has come */
bool mailbox_waiting(const struct reactor *r); /* something could not be sent yet */
void mailbox_flush(struct reactor *r);         /* tries again what found a ring full */
/* Another reactor will post to r, which may be running. Control thread. 0 or -ENOMEM. */
int mailbox_add_sender(struct reactor *r, unsigned slot);
/* Waits until all that r has posted to `to` is in its ring, and wakes it. */
void mailbox_send_now(struct reactor *r, struct reactor *to);
/* Forgets what is under way between the worker w and other reactors, and what w posted to itself. w
 * does not run; nothing is under way between w and a reactor that runs. */
void mailbox_forget(struct reactor *w);
void mailbox_ring_bells(struct reactor *r); /* wakes those posted to, if asleep */
void reactor_ring_bell(struct reactor *r);  /* any thread, async-signal-safe */

/* ---- fd.c ---- */

int fds_init(struct reactor *r);
void fds_clear(struct reactor *r); /* all but the bell */
/* Fetches events, waiting at most wait_us (UINT64_MAX: for ever). */
void fds_wait(struct reactor *r, uint64_t wait_us);
int fds_dispatch(struct reactor *r); /* delivers what was fetched; returns how many */

/* ---- qsbr.c ---- */

int qsbr_init(struct reactor_env *env);
void qsbr_attach(struct reactor *r); /* control is not part of it: these do nothing then */
void qsbr_detach(struct reactor *r);

static inline void qsbr_online(struct reactor *r)
{
    if (r->online)
        rte_rcu_qsbr_thread_online(r->env->qsbr, r->index);
}

static inline void qsbr_offline(struct reactor *r)
{
    if (r->online)
        rte_rcu_qsbr_thread_offline(r->env->qsbr, r->index);
}

static inline void qsbr_quiescent(struct reactor *r)
{
    if (r->online)
        rte_rcu_qsbr_quiescent(r->env->qsbr, r->index);
}

#endif
