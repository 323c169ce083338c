/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reactors: poll-mode loops, one per data-path core, that own every data-path object.
 *
 * A process has one environment: N reactors (EAL worker lcores) and the control reactor (EAL main
 * lcore, always sleeping when it has nothing to do; JSON-RPC, configuration, logs). Each runs the
 * same loop: pollers, file descriptors, mailboxes, timers. Only the thread that runs a reactor may
 * touch what belongs to it; others post a task to its mailbox. A mailbox is one single-producer
 * single-consumer ring per pair of reactors, so no preempted producer can stall another.
 *
 * Unless a function says otherwise it must be called on the thread that runs the reactor it acts on
 * ("self"), and it neither blocks, locks nor allocates.
 */
#ifndef MILLRACE_REACTOR_H
#define MILLRACE_REACTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "lib/base/err.h"

#define REACTOR_MAX     64                /* data-path reactors in one process */
#define REACTOR_CONTROL REACTOR_MAX       /* index of the control reactor */
#define REACTOR_WORKER  (REACTOR_MAX + 1) /* index of the worker, worker.h */

struct reactor;
struct reactor_env;

enum reactor_idle {
    REACTOR_IDLE_SPIN,     /* never sleeps: lowest latency, one core at 100 % */
    REACTOR_IDLE_ADAPTIVE, /* pauses, then sleeps in epoll until a descriptor, a message or a timer
                            */
};

struct reactor_opts {
    const char *prog;  /* program name, prefix of EAL files; not kept */
    const char *cores; /* "auto": unpinned; else CPT list "0:2,3;1:8-11" or plain "2,3" (CPT 0) */
    unsigned count;    /* number of reactors when cores is "auto" (0 = 1) */
    enum reactor_idle idle;
    unsigned mem_mb; /* EAL memory in MiB, 0 = 64 */
    bool hugepages;  /* true: --in-memory -m mem_mb; false: --no-huge -m mem_mb */
    /* PCI addresses of the devices that EAL may look at, space separated, with devargs where wanted
     * ("0000:3b:00.0,mprq_en=1"). NULL or empty: it looks at no PCI device. */
    const char *devices;
    const char *eal_args; /* further EAL arguments, space separated, or NULL */
    /* Where DPDK's telemetry may be asked: below this directory, which is made if only that is
     * missing; see reactor_telemetry_path(). NULL: nowhere. Not kept. */
    const char *telemetry_dir;
};

/* The memory that an environment takes for itself. */
struct reactor_memory {
    size_t eal;   /* bytes of EAL's memory: its own tables, and the alignment of one arena */
    size_t heap;  /* reactors, their mailboxes, EAL */
    size_t pages; /* heap: EAL's list of the pages of its memory */
};
/* Any thread, also without an environment. */
void reactor_memory(unsigned reactors, unsigned mem_mb, bool hugepages, struct reactor_memory *out);

/* ---- environment (control thread) ---- */

/* Initialises EAL and makes the reactors, not yet running. Once per process. Returns 0 or -errno
 * with a sentence in err. The calling thread becomes the control thread and is bound to the control
 * reactor. Leaves no files and needs no root; any number of processes may do it side by side. The
 * threads made here block all signals: those come to the control thread. */
int reactor_env_create(const struct reactor_opts *opts, struct reactor_env **out, struct err *err);
/* The path of DPDK's telemetry socket, which is there until reactor_env_destroy(); NULL: there is
 * none. Any thread. */
const char *reactor_telemetry_path(const struct reactor_env *env);
/* Starts the reactor threads; also again after reactor_env_stop(). Returns 0 or -errno. */
int reactor_env_start(struct reactor_env *env);
/* Asks all reactors to leave their loops and waits for them. Messages still queued are run by
 * another start or by reactor_env_drain(). */
void reactor_env_stop(struct reactor_env *env);
/* Reactors must have been stopped. Delivers the messages under way, on the calling (control) thread
 * bound to each receiver in turn, and what they post, until there are none. Not from within a
 * message. False: some are left, since they post themselves for ever. */
bool reactor_env_drain(struct reactor_env *env);
/* Reactors must have been stopped and drained. Makes them forget timers, descriptors and pollers,
 * so that what those are part of can be freed before another start; the control reactor keeps its
 * own.
 */
void reactor_env_clear(struct reactor_env *env);
/* Reactors must have been stopped. Tasks in mailboxes and armed timers are forgotten: what they are
 * embedded in is their owners' to free. DPDK's memory stays mapped to the end of the process, and
 * its interrupt thread runs on. NULL is allowed. */
void reactor_env_destroy(struct reactor_env *env);

/* Runs the control reactor on the calling (control) thread until reactor_control_quit(). */
void reactor_control_run(struct reactor_env *env);
/* Makes reactor_control_run() return after this iteration; any thread, async-signal-safe. */
void reactor_control_quit(struct reactor_env *env);

/* One iteration of a reactor on the calling thread, sleeping at most max_wait_us (0 = not at all)
 * when idle. For the control loop and for tests, which bind reactors to their own thread with
 * reactor_bind(). Returns the amount of work done. A descriptor that ends the sleep is served in
 * this call; a mail or a timer that does, in the next. Not from within a callback. */
int reactor_step(struct reactor *r, uint64_t max_wait_us);
/* Makes r the reactor of the calling thread (NULL: none). Tests only; r must not be running. */
void reactor_bind(struct reactor *r);

/* Waits until every reactor has passed a quiescent state: memory that was unpublished before the
 * call can be freed after it. Control thread only; blocks (microseconds; reactors that sleep or do
 * not run count as quiescent). */
void reactor_synchronize(struct reactor_env *env);

/* ---- who is who (any thread) ---- */

unsigned reactor_count(const struct reactor_env *env);
struct reactor *reactor_at(struct reactor_env *env, unsigned index); /* 0..count-1 */
struct reactor *reactor_control(struct reactor_env *env);
struct reactor *reactor_self(void);              /* of the calling thread, NULL if none */
unsigned reactor_index(const struct reactor *r); /* REACTOR_CONTROL for the control reactor */
unsigned reactor_cpt(const struct reactor *r);
bool reactor_spins(const struct reactor *r); /* REACTOR_IDLE_SPIN: it never sleeps */
struct reactor_env *reactor_env_of(const struct reactor *r);

/* ---- mail ---- */

struct reactor_task;
typedef void (*reactor_task_fn)(struct reactor_task *task);

/* Embedded in the object that crosses. Owned by the sender until posted, by the receiver from the
 * moment fn runs; in between no thread may touch it. */
struct reactor_task {
    reactor_task_fn fn;
    STAILQ_ENTRY(reactor_task) link;
};

/* Runs task->fn on `to`, later, in the order posted by this sender. Any reactor thread, including
 * self (then it runs in the mailbox step of this or the next loop, never inside this call). Never
 * fails: when the ring is full the task waits in the sender's own queue. From within a loop, a
 * sleeping receiver is woken at the end of the sender's iteration; otherwise at once. */
void reactor_post(struct reactor *to, struct reactor_task *task);
/* Waits until each reactor that runs has run what this thread posted to it before the call. Control
 * thread only; blocks (a turn of each reactor). */
void reactor_mail_settle(struct reactor_env *env);
/* Makes a ring with one writer and one reader; `sender` is for its name. free() frees it. Control
 * thread. NULL: out of memory. */
struct rte_ring *reactor_ring_make(const char *what, unsigned sender, unsigned entries);
/* Returns the bytes of heap that a ring takes. */
size_t reactor_ring_bytes(unsigned entries);

/* ---- time and timers ---- */

/* CLOCK_MONOTONIC; within a loop of self, as read once at the beginning of the iteration. */
uint64_t reactor_now_us(void);
/* Tests only: from now on the clock stands at now_us, for reactors bound to this thread, their
 * timers and sleeps (which are none then); UINT64_MAX: it is the machine's again. */
void reactor_test_clock(uint64_t now_us);

struct reactor_timer;
typedef void (*reactor_timer_fn)(struct reactor_timer *timer);

struct reactor_timer {
    reactor_timer_fn fn;
    uint64_t expires_us;
    LIST_ENTRY(reactor_timer) link; /* le_prev NULL: not armed */
};

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn);
/* Fires once, at or after delay_us from now (the clock's, not the cached time; wheel tick 1 ms);
 * re-arming moves it. Timers of one tick fire in the order armed. In the callback the timer is no
 * longer armed and may be armed again or freed; any other may be cancelled. Self. */
void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us);
void reactor_timer_cancel(struct reactor_timer *t); /* harmless if not armed. Self. */
static inline bool reactor_timer_armed(const struct reactor_timer *t)
{
    return t->link.le_prev != NULL;
}

/* ---- pollers ---- */

/* Called once per loop; returns the amount of work done (0 = idle). */
typedef int (*reactor_poll_fn)(void *arg);

struct reactor_poller {
    reactor_poll_fn fn;
    void *arg;
    /* How long the reactor may sleep when this poller is idle: 0 = not at all; UINT64_MAX = without
     * limit, a registered descriptor wakes it; else microseconds. Read after each call of fn, which
     * may change it. fn is called once more between the decision to sleep and the sleep, so that a
     * device's wake-up can be armed in one call and checked in the next.
     */
    uint64_t max_sleep_us;
    TAILQ_ENTRY(reactor_poller) link;
};

/* Pollers run in the order added. Self, or while r does not run. A poller may delete itself or any
 * other from its fn, and free it. */
void reactor_poller_add(struct reactor *r, struct reactor_poller *p);
void reactor_poller_del(struct reactor *r, struct reactor_poller *p); /* harmless if not there */

/* ---- file descriptors (epoll, level triggered) ---- */

struct reactor_fd;
typedef void (*reactor_fd_fn)(struct reactor_fd *f, uint32_t epoll_events);

struct reactor_fd {
    int fd;
    uint32_t events; /* EPOLLIN | EPOLLOUT … as last set */
    reactor_fd_fn fn;
    bool registered; /* private */
};

/* Add, change and remove a descriptor. An idle reactor looks at its descriptors once per iteration;
 * a busy reactor, or one with device pollers (max_sleep_us below UINT64_MAX), at most every 50 us.
 * The calls make system calls and return 0 or -errno. Deleting f, and freeing it, inside its own or
 * another descriptor's callback is allowed: events already fetched for it are not delivered. The
 * descriptor is not closed; delete before closing. Deleting what is not added is harmless if f is
 * zero or was added before. Self. */
int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn);
int reactor_fd_mod(struct reactor_fd *f, uint32_t events);
void reactor_fd_del(struct reactor_fd *f);

/* ---- observation (any thread, relaxed) ---- */

/* The stages of the loop, among which its cycles are divided. */
enum reactor_stage {
    REACTOR_STAGE_POLL, /* rounds of pollers of which one found work */
    REACTOR_STAGE_FD,   /* looks at descriptors that found some, and their callbacks */
    REACTOR_STAGE_MAIL,
    REACTOR_STAGE_TIMER,
    REACTOR_STAGE_REST, /* looking for work and finding none */
    /* None of the reactor's doing: in the middle of a turn the kernel gave its core to others. In
     * which stage that was is not kept. Short of REACTOR_STALL_US it is not noticed. */
    REACTOR_STAGE_PREEMPTED,
    REACTOR_STAGES
};
const char *reactor_stage_name(enum reactor_stage stage);

struct reactor_stats {
    uint64_t loops;
    uint64_t busy_loops;   /* loops that did some work */
    uint64_t busy_cycles;  /* TSC cycles of those, without what was preempted */
    uint64_t total_cycles; /* TSC cycles since start, without time asleep */
    uint64_t sleeps;
    uint64_t mails_in;
    uint64_t mails_queued; /* mail that found its ring full */
    uint64_t timers_fired;
    uint64_t polls, useful_polls;          /* calls of pollers; those that found work */
    uint64_t stage_cycles[REACTOR_STAGES]; /* sum: total_cycles */
    /* Single callbacks of mails and timers, which nothing on a reactor may make long. That the
     * kernel took the core away is known from its count of involuntary context switches; what a
     * hypervisor does is not told from the callback's own doing. */
    uint64_t longest_cycles; /* the longest since start or reactor_stats_restart(), those of
                                `preempted` aside */
    uint64_t long_calls; /* those above REACTOR_STALL_US during which the thread kept its core */
    uint64_t preempted;  /* those above it during which the kernel took the core away */
    uint64_t sleep_us;   /* asleep */
    uint64_t hz;         /* cycles per second */
};
#define REACTOR_STALL_US 100
/* longest_cycles begins anew. Any thread. */
void reactor_stats_restart(struct reactor *r);

void reactor_stats_get(const struct reactor *r, struct reactor_stats *out);

/* How a reactor spent the last full second, in parts of it. The rest of the second, neither busy
 * nor preempted, was sleep and idle iterations: room for more work. */
struct reactor_capacity {
    double seconds;   /* how long that second was; 0: not known yet */
    double busy;      /* doing work: stages but REST and PREEMPTED */
    double preempted; /* awake by the clock, but not on a core by CLOCK_THREAD_CPUTIME_ID */
    double cpu;       /* CPU time by that clock, spinning and system calls too */
};
/* Begins to look at all reactors once a second, by a timer of the control reactor. Control thread,
 * once; ends with reactor_env_destroy(). */
void reactor_capacity_watch(struct reactor_env *env);
/* Control thread. */
void reactor_capacity_get(const struct reactor *r, struct reactor_capacity *out);

#endif
