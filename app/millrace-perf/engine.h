/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine carries the messages of a run. The load (load.c) decides when, how large, from whom and
 * to whom, and measures; it knows no protocol, and an engine knows no schedule. The engine of
 * millrace-perf is one LNet node over lib/lnet; the test tool millrace-peers has another one, many
 * simulated peers on a port.
 *
 * Threads: open, start, stop, halt and close run on the control thread. send, cancel, collect and
 * the engine's calls of the load (perf_done ...) run on one reactor, the engine's home, and may not
 * block, lock or allocate.
 *
 * Life: open(), start(), perf_engine_ready(), send() as often as the load likes, collect(), stop(),
 * perf_engine_stopped(), halt(), the results are read, close(). perf_engine_ready() comes when
 * every target has answered a ping, or at once if the process is only a server. halt() and close()
 * also follow a failed open() or start(). A signal can cause stop() at any time after start().
 */
#ifndef MILLRACE_PERF_ENGINE_H
#define MILLRACE_PERF_ENGINE_H

#include "app/millrace-perf/payload.h"

#include <stdbool.h>
#include <stdint.h>

struct perf;
struct reactor;
struct perf_engine_ops;

/* The first member of each engine's own struct. The engine fills it in open(). */
struct perf_engine {
    const struct perf_engine_ops *ops;
    struct perf *perf;    /* options, env, pattern */
    struct reactor *home; /* where the load runs */
    uint32_t sources;     /* local peers that can send, 0..sources-1 */
    uint32_t targets;     /* whom they can send to, 0..targets-1 */
};

enum perf_op {
    OP_PUT,
    OP_GET,
    OP_KINDS
};

/* One message. The engine copies what it needs before send() returns. */
struct perf_msg {
    enum perf_op op;
    uint32_t from, to; /* below sources, targets */
    uint32_t length;   /* payload, 0..LNET_MAX_PAYLOAD bytes */
    /* PUT: payload is pattern + offset. GET: window `window` is asked from `offset` on, so what
     * must come is pattern + pattern_source_offset(window) + offset. Multiples of 8. */
    unsigned window;
    uint32_t offset;
    uint32_t run; /* number of the run, for the match bits */
    /* Content is to be checked: by the receiver of a PUT (match.source = 1, header data = sum), by
     * the engine for the REPLY to a GET. */
    bool verify;
    bool repeat;     /* fault on purpose: a PUT takes the sequence number of the one before */
    uint64_t sum;    /* PUT with verify: payload_sum() of the payload, or wrong on purpose */
    uint64_t cookie; /* returned by perf_done(); the load's own, any value */
};

enum perf_check {
    PERF_UNCHECKED, /* length alone was looked at */
    PERF_GOOD,
    PERF_ALTERED, /* content or length is not what was sent */
};

/* How a message ended. */
struct perf_end {
    /* 0: its ACK or REPLY came. -ECOMM or another -errno: it could not be sent, or its connection
     * was lost. The load counts timeouts itself and calls cancel(). */
    int status;
    bool unsent;     /* status != 0: it never left, or LNet said so */
    uint32_t length; /* of the payload that was accepted (ACK) or came (REPLY) */
    enum perf_check check;
    uint64_t when_ns; /* perf_now_ns() when the answer was complete, before it was checked */
};

/* Counted since open(). */
struct perf_engine_counters {
    uint64_t unmatched;    /* ACKs and REPLYs to nothing that was waiting (late ones included) */
    uint64_t failed_peers; /* simulated peers that gave up (0: engine node) */
    uint64_t broken_input; /* messages that broke the protocol */
};

/* The counters of a server, see server.c. */
struct server_counters;

/* A row of an engine's own: drops by name, figures of its own. */
typedef void (*perf_row_fn)(void *arg, const char *name, const char *text, uint64_t value);

struct perf_engine_ops {
    const char *name;

    /* ---- control thread ---- */

    /* Makes perf->env (reactor_env_create, one reactor), the engine and all its memory from
     * perf->opts, and starts the reactor. *out is set as soon as there is something to close().
     * Returns 0, or -errno after printing why on stderr. */
    int (*open)(struct perf *p, struct perf_engine **out);
    /* Serves, if opts.command is PERF_SERVER or opts.serve, or if peers of this process are the
     * targets. If the process sends, connects to every target and pings it, repeatedly for up to
     * opts.timeout_ms. Calls perf_engine_ready() then. Returns as open(). */
    int (*start)(struct perf_engine *e);
    /* Begins to stop: nothing new; then perf_engine_stopped(). Once. No perf_engine_ready() after
     * it. */
    void (*stop)(struct perf_engine *e);
    /* The control loop has ended. The reactor has stopped when it returns (reactor_env_stop). */
    void (*halt)(struct perf_engine *e);
    /* Takes down the rest, perf->env included, and frees e. */
    void (*close)(struct perf_engine *e);

    /* ---- home reactor ---- */

    /* Sends m, or begins to. 0: perf_done() will be called once, unless cancel() comes first.
     * -EAGAIN: there is no room for a message of this source; perf_room(from) will be called when
     * there is. Other -errno: m cannot be sent and perf_done() will not be called. perf_done() and
     * perf_room() may be called from within, for this message too. The load never calls send(),
     * cancel() or collect() from within those: it sends from a poller of its own. */
    int (*send)(struct perf_engine *e, const struct perf_msg *m);
    /* Gives a message up: no perf_done() for it any more. An answer that comes later counts as
     * `unmatched`. Harmless if it is not under way. Not from within perf_done(). */
    void (*cancel)(struct perf_engine *e, uint64_t cookie);
    /* Asks what the receivers saw of the PUTs of a run, all of them added up, with some patience
     * (ms); then perf_collected(), also from within. Once, after all is answered or cancelled. */
    void (*collect)(struct perf_engine *e, uint32_t run, unsigned patience_ms);

    /* ---- any thread ---- */

    /* The counters of the server; NULL if the process is none. */
    const struct server_counters *(*served)(const struct perf_engine *e);

    /* ---- control thread, after halt() ---- */

    void (*counters)(const struct perf_engine *e, struct perf_engine_counters *out);
    /* Sequence numbers missing over all runs that were received here. */
    uint64_t (*missing)(const struct perf_engine *e);
    /* Calls row for each kind of drop that is not 0. */
    void (*drops)(const struct perf_engine *e, perf_row_fn row, void *arg);
    /* Calls row for each figure of the engine's own that belongs into the results. May be NULL. */
    void (*figures)(const struct perf_engine *e, perf_row_fn row, void *arg);
};

/* ---- what an engine calls ---- */

/* Control thread, once. error 0: go; else -errno, and why is a sentence. unanswered: pings that
 * were given up before one was answered (their answers may still come). */
void perf_engine_ready(struct perf_engine *e, int error, const char *why, unsigned unanswered);
/* Control thread, as soon as messages to `who` are served: a NID or FIRST_NID*COUNT. */
void perf_engine_serving(struct perf_engine *e, const char *who);
/* Control thread, after start(): it cannot go on. The process ends with a failed start. */
void perf_engine_failed(struct perf_engine *e, const char *why);
/* Control thread: nothing is under way any more; the control loop ends. */
void perf_engine_stopped(struct perf_engine *e);

/* Home reactor. */
void perf_done(struct perf_engine *e, uint64_t cookie, const struct perf_end *end);
#define PERF_ALL_SOURCES UINT32_MAX
void perf_room(struct perf_engine *e, uint32_t from);
/* have false: some receiver did not say. */
void perf_collected(struct perf_engine *e, bool have, const struct run_report *sum);

#endif
