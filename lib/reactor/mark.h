/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a reactor's cycles go to, by kind of work, and how long messages wait: both off until asked
 * for.
 *
 * The stages of reactor.h say which part of the loop was busy; the kinds of work here cut across
 * them: a message is parsed in a poller's call on a port, and in a descriptor's callback on host
 * sockets. The path says where it is with reactor_mark(). To read the cycle counter at every change
 * would cost several percent, so it is done in one turn of the loop in N, chosen at random, and
 * counted N times. All other turns pay one comparison per mark.
 *
 * Work is CPU. Waiting is not: a message that waits takes no cycles, so waits are times of single
 * messages, and those of many messages at once add up to more than the clock shows.
 */
#ifndef MILLRACE_REACTOR_MARK_H
#define MILLRACE_REACTOR_MARK_H

#include <rte_branch_prediction.h>
#include <rte_cycles.h>

#include "lib/base/atomic.h"
#include "lib/reactor/reactor.h"

enum reactor_work {
    REACTOR_WORK_OTHER,     /* what is not marked: callbacks of descriptors, timers, control */
    REACTOR_WORK_DEVICE_RX, /* taking frames from a device */
    REACTOR_WORK_TCP_IN,    /* Ethernet, IP and TCP of what came */
    REACTOR_WORK_PARSE,     /* frames of the LND, headers, reading or taking payload */
    REACTOR_WORK_LNET,      /* the core: checks, admission, choice of the way, credits */
    REACTOR_WORK_EGRESS,    /* the LND's queues for sending, what became acknowledged */
    REACTOR_WORK_TCP_OUT,   /* segments and acknowledgements made, events of connections */
    REACTOR_WORK_DEVICE_TX, /* giving frames to a device */
    REACTOR_WORKS
};
const char *reactor_work_name(enum reactor_work work);

enum reactor_wait {
    REACTOR_WAIT_ROUTER_CREDIT, /* a header, until its sender holds fewer router buffers */
    REACTOR_WAIT_BUFFER,        /* a header, for a router buffer or its next hop's share of them */
    REACTOR_WAIT_PEER_CREDIT,   /* a message, for a tx credit of its next hop */
    REACTOR_WAIT_NI_CREDIT,     /* a message, for a tx credit of the NI */
    REACTOR_WAITS
};
const char *reactor_wait_name(enum reactor_wait wait);

#define REACTOR_WAIT_BUCKETS 26

/* Bucket 0: below 1 us, since both ends were in one turn of the loop; bucket i: from 2^(i - 1) to
 * below 2^i us; the last one: all longer ones too. */
struct reactor_wait_hist {
    uint64_t none; /* had what they needed at once */
    uint64_t total_us;
    uint64_t longest_us;
    uint64_t bucket[REACTOR_WAIT_BUCKETS];
};

/* Any thread, relaxed. Never reset. */
struct reactor_work_stats {
    uint64_t every;                 /* one turn in so many is looked at; 0: off */
    uint64_t turns;                 /* busy ones that were */
    uint64_t cycles[REACTOR_WORKS]; /* estimate: those of turns looked at, times `every` */
    struct reactor_wait_hist wait[REACTOR_WAITS];
};
void reactor_work_get(const struct reactor *r, struct reactor_work_stats *out);

#define REACTOR_EVERY_DEFAULT 16
#define REACTOR_EVERY_MAX     65536

/* From its next turn on r looks at one turn in `every`, on average, and at each message's waits; 0:
 * at none. Any thread. */
void reactor_work_set(struct reactor *r, unsigned every);

/* ---- for the path; self ---- */

struct reactor_marks {
    uint64_t tsc; /* up to here cycles of this turn are accounted */
    enum reactor_work now;
    uint64_t round[REACTOR_WORKS]; /* since the loop's last stage */
};

/* Of the reactor that this thread runs; NULL: not in this turn. */
extern __thread struct reactor_marks *reactor_marks_on __attribute__((tls_model("initial-exec")));
/* NULL: not at all. [REACTOR_WAITS] */
extern __thread struct reactor_wait_hist *reactor_waits_on
    __attribute__((tls_model("initial-exec")));

/* 0: a build in which marks and waits are nothing, to measure what they cost (meson's option
 * `marks`). */
#ifndef MILLRACE_MARKS
#define MILLRACE_MARKS 1
#endif

static inline struct reactor_marks *reactor_marks_here(void)
{
    return MILLRACE_MARKS ? reactor_marks_on : NULL;
}

static inline struct reactor_wait_hist *reactor_waits_here(void)
{
    return MILLRACE_MARKS ? reactor_waits_on : NULL;
}

/* What passed since the last mark was `was`, what comes is `to`. */
static inline void reactor_mark_was(enum reactor_work was, enum reactor_work to)
{
    struct reactor_marks *m = reactor_marks_here();

    if (unlikely(m != NULL)) {
        uint64_t tsc = rte_rdtsc();

        m->round[was] += tsc - m->tsc;
        m->tsc = tsc;
        m->now = to;
    }
}

/* What comes is `to`. Returns what there was until now: a function that marks its own work ends
 * with a mark of that, so that its caller need not know. */
static inline enum reactor_work reactor_mark(enum reactor_work to)
{
    struct reactor_marks *m = reactor_marks_here();
    enum reactor_work was = REACTOR_WORK_OTHER;

    if (unlikely(m != NULL)) {
        was = m->now;
        reactor_mark_was(was, to);
    }
    return was;
}

/* A message had what it needed at once. */
static inline void reactor_wait_none(enum reactor_wait wait)
{
    struct reactor_wait_hist *h = reactor_waits_here();

    if (unlikely(h != NULL))
        count_add(&h[wait].none, 1);
}

/* A message has waited since since_us (of reactor_now_us()); with or without success. */
void reactor_wait_note(struct reactor_wait_hist *h, uint64_t us);

static inline void reactor_waited(enum reactor_wait wait, uint64_t since_us)
{
    struct reactor_wait_hist *h = reactor_waits_here();

    if (unlikely(h != NULL))
        reactor_wait_note(&h[wait], reactor_now_us() - since_us);
}

#endif
