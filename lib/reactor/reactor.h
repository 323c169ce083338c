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

#define REACTOR_MAX     64 /* data-path reactors in one process */
#define REACTOR_CONTROL REACTOR_MAX

struct reactor;
struct reactor_env;

enum reactor_idle {
    REACTOR_IDLE_SPIN,     /* never sleeps: lowest latency, one core at 100 % */
    REACTOR_IDLE_ADAPTIVE, /* pauses, then sleeps in epoll until a descriptor, a mail or a timer */
};

struct reactor_opts {
    const char *prog;  /* program name, prefix of EAL files; not kept */
    const char *cores; /* "auto": unpinned; else CPT list "0:2,3;1:8-11" or plain "2,3" (CPT 0) */
    unsigned count;    /* number of reactors when cores is "auto" (0 = 1) */
    enum reactor_idle idle;
    unsigned mem_mb;      /* EAL memory in MiB, 0 = 64 */
    bool hugepages;       /* true: --in-memory -m mem_mb; false: --no-huge -m mem_mb */
    const char *eal_args; /* further EAL arguments, space separated, or NULL */
};

/* What an environment takes for itself. */
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
int reactor_env_create(const struct reactor_opts *opts, struct reactor_env **out, char *err,
                       size_t errlen);
/* Starts the reactor threads; also again after reactor_env_stop(). Returns 0 or -errno. */
int reactor_env_start(struct reactor_env *env);
/* Asks all reactors to leave their loops and waits for them. Mail still queued is not run (it would
 * be by another start). */
void reactor_env_stop(struct reactor_env *env);
/* Reactors must have been stopped. Tasks in mailboxes and armed timers are forgotten: what they are
 * embedded in is their owners' to free. NULL is allowed. */
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

/* Waits until every reactor has passed a quiescent state: whatever was unpublished before the call
 * can be freed after it. Control thread only; blocks (microseconds; reactors that sleep or do not
 * run count as quiescent). */
void reactor_synchronize(struct reactor_env *env);

/* ---- who is who (any thread) ---- */

unsigned reactor_count(const struct reactor_env *env);
struct reactor *reactor_at(struct reactor_env *env, unsigned index); /* 0..count-1 */
struct reactor *reactor_control(struct reactor_env *env);
struct reactor *reactor_self(void);              /* of the calling thread, NULL if none */
unsigned reactor_index(const struct reactor *r); /* REACTOR_CONTROL for the control reactor */
unsigned reactor_cpt(const struct reactor *r);
int reactor_socket(const struct reactor *r); /* NUMA node of its core, -1 when it has no one core */
struct reactor_env *reactor_env_of(const struct reactor *r);

/* ---- mail ---- */

struct reactor_task;
typedef void (*reactor_task_fn)(struct reactor_task *task);

/* Embedded in the object that crosses. Owned by the sender until posted, by the receiver from the
 * moment fn runs; while in between nobody may touch it. */
struct reactor_task {
    reactor_task_fn fn;
    struct reactor_task *next;
};

/* Runs task->fn on `to`, later, in the order posted by this sender. Any reactor thread, including
 * self (then it runs in the mailbox step of this or the next loop, never inside this call). Never
 * fails: when the ring is full the task waits in the sender's own queue. From within a loop, a
 * sleeping receiver is woken at the end of the sender's iteration; otherwise at once. */
void reactor_post(struct reactor *to, struct reactor_task *task);

/* ---- time and timers ---- */

/* CLOCK_MONOTONIC; within a loop of self, as read once at the beginning of the iteration. */
uint64_t reactor_now_us(void);

struct reactor_timer;
typedef void (*reactor_timer_fn)(struct reactor_timer *timer);

struct reactor_timer {
    reactor_timer_fn fn;
    uint64_t expires_us;
    struct reactor_timer *next, **pprev; /* pprev NULL: not armed */
};

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn);
/* Fires once, at or after delay_us from now (the clock's, not the cached time; wheel tick 1 ms);
 * re-arming moves it. Timers of one tick fire in the order armed. In the callback the timer is no
 * longer armed and may be armed again or freed; any other may be cancelled. Self. */
void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us);
void reactor_timer_cancel(struct reactor_timer *t); /* harmless if not armed. Self. */
bool reactor_timer_armed(const struct reactor_timer *t);

/* ---- pollers ---- */

/* Called once per loop; returns the amount of work done (0 = idle). */
typedef int (*reactor_poll_fn)(void *arg);

struct reactor_poller {
    reactor_poll_fn fn;
    void *arg;
    /* What the reactor may do when this poller is idle: 0 = it must not sleep; UINT64_MAX = it may
     * sleep freely, a registered descriptor wakes it; else the longest sleep in microseconds. Read
     * after each call of fn, which may change it; fn is called once more between the decision to
     * sleep and the sleep, so a device's wake-up can be armed in one call and checked in the next.
     */
    uint64_t max_sleep_us;
    struct reactor_poller *next;
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

/* Descriptors are looked at once per loop while the reactor is otherwise idle, and at most every
 * 50 us on a reactor with device pollers (max_sleep_us below UINT64_MAX) or one that is busy. These
 * make system calls. Return 0 or -errno. Deleting f, and freeing it, inside its own or another
 * descriptor's callback is allowed: events already fetched for it are not delivered. The descriptor
 * is not closed; delete before closing. Deleting what is not added is harmless if f is zero or was
 * added before. Self. */
int reactor_fd_add(struct reactor_fd *f, int fd, uint32_t events, reactor_fd_fn fn);
int reactor_fd_mod(struct reactor_fd *f, uint32_t events);
void reactor_fd_del(struct reactor_fd *f);

/* ---- observation (any thread, relaxed) ---- */

struct reactor_stats {
    uint64_t loops;
    uint64_t busy_loops;   /* loops that did some work */
    uint64_t busy_cycles;  /* TSC cycles of those */
    uint64_t total_cycles; /* TSC cycles since start, without time asleep */
    uint64_t sleeps;
    uint64_t mails_in;
    uint64_t mails_queued; /* mail that found its ring full */
    uint64_t timers_fired;
};

void reactor_stats_get(const struct reactor *r, struct reactor_stats *out);

#endif
