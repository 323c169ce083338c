/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * millrace-perf: LNet end nodes that serve and make load. One process, one reactor.
 *
 * An engine carries messages (engine.h: node.c with node_send.c and server.c, or simulated peers),
 * the load decides on them and accounts for each (load.c). Threads: both run on the engine's home
 * reactor; the control thread pings, reports, and takes signals (main.c, ping.c, report.c). They
 * talk by reactor_post(); counters are written on the reactor and read anywhere, relaxed.
 */
#ifndef MILLRACE_PERF_PERF_H
#define MILLRACE_PERF_PERF_H

#include "app/millrace-perf/engine.h"
#include "app/millrace-perf/hist.h"
#include "app/millrace-perf/interval.h"
#include "app/millrace-perf/lines.h"
#include "app/millrace-perf/payload.h"
#include "app/millrace-perf/schedule.h"
#include "app/millrace-perf/track.h"
#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/lnds/codes.h"
#include "lib/lnet/lnet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PERF_MAX_NIS       8
#define PERF_MAX_ROUTES    64
#define PERF_MAX_INFLIGHT  (1u << 20)
#define PERF_NODE_INFLIGHT 4096 /* engine node */
#define PERF_NODE_TARGETS  1024
#define PERF_MAX_BUFFERS   4096

/* Exit codes. */
#define PERF_EXIT_OK     0
#define PERF_EXIT_FAILED 1 /* something was lost, altered, repeated or not answered */
#define PERF_EXIT_USAGE  2
#define PERF_EXIT_START  3 /* the node could not be started */
#define PERF_EXIT_SIGNAL 4 /* all well, but a signal ended the run before its time */

enum perf_command {
    PERF_NONE,
    PERF_SERVER,
    PERF_PING,
    PERF_PUT,
    PERF_GET,
    PERF_BOTH
};

enum perf_inject {
    PERF_INJECT_NONE,
    PERF_INJECT_CORRUPT, /* client: wrong checksums; server: altered content for GET */
    PERF_INJECT_REPEAT,  /* client: sequence numbers used twice */
};

#define PERF_MAX_RANGES 64
#define PERF_MAX_QUEUE  (1u << 26)

struct perf_opts {
    enum perf_command command;
    const char *command_name;
    struct lnet_nid target;
    struct lnet_ni_conf ni[PERF_MAX_NIS];
    unsigned nnis;
    struct lnet_route_conf route[PERF_MAX_ROUTES];
    unsigned nroutes;
    lnet_net_t net;                   /* of the NI given by interface name */
    int conns_per_peer, peer_credits; /* of each NI; -1 = default */
    struct sizes sizes;
    unsigned count;       /* messages; 0 = no limit */
    uint64_t duration_us; /* 0 = no limit */
    unsigned inflight;    /* messages on the way at once: closed loop as many, open loop at most */
    double rate;          /* messages per second of the open loop; 0: closed loop */
    enum arrivals_kind arrivals;
    unsigned queue; /* open loop: messages that may wait to be sent */
    struct kinds kinds;
    bool random_order;
    bool kept_order; /* closed loop: after an answer the next message goes the same way */
    uint64_t seed;
    bool seed_set;
    unsigned verify_every; /* content of one message in so many is checked; 0: of none, 1: of all */
    bool json;
    const char *csv;      /* file, or NULL */
    bool serve;           /* a client that is a server too */
    uint64_t interval_us; /* of lines, the line on a terminal, and the CSV */
    bool interval_set;
    bool lines; /* a line is printed for each interval */
    unsigned timeout_ms;
    unsigned buffers;
    enum perf_inject inject;
    const char *cores;
    enum reactor_idle idle;
    unsigned mem_mb; /* 0: what the node needs */
    bool hugepages;
    struct perf_range targets[PERF_MAX_RANGES]; /* of put, get and both */
    unsigned ntargets;                          /* ranges */
};

/* An option of the command line. How its value is stored depends on the kind. */
enum perf_option_kind {
    PERF_OPTION_SET,     /* set() parses the argument */
    PERF_OPTION_FLAG,    /* no argument: sets the bool at `offset` */
    PERF_OPTION_TEXT,    /* stores the pointer at `offset` */
    PERF_OPTION_SECONDS, /* a uint64_t of microseconds at `offset` */
    PERF_OPTION_NUMBER,  /* an unsigned at `offset`, from min to max */
    PERF_OPTION_CHOICE,  /* an enum at `offset`: min + the position of the word in arg, "one|two" */
};

struct perf_option {
    const char *name;
    const char *arg; /* how the help names the argument; NULL: a flag */
    const char *help;
    enum perf_option_kind kind;
    size_t offset; /* in struct perf_opts */
    unsigned min, max;
    int (*set)(struct perf_opts *o, const char *arg, struct err *err);
};

/* A program that makes load: an engine, its options beside the common ones, and its checks. */
struct perf_program {
    const char *name;
    const struct perf_engine_ops *engine;
    const struct perf_option *options;
    unsigned noptions;
    /* Checks the options together. Returns 0, or -errno with a sentence. */
    int (*complete)(struct perf_opts *o, struct err *err);
};

/* Counters of a client's messages of one kind (PUT or GET). Written on the reactor. */
struct op_counters {
    uint64_t sent;       /* given to LNet */
    uint64_t done;       /* ACK or REPLY came, of the right length and content */
    uint64_t bytes;      /* of those done */
    uint64_t altered;    /* wrong length or content in the answer */
    uint64_t lost;       /* no answer within the timeout */
    uint64_t failed;     /* LNet could not send it */
    uint64_t unfinished; /* given up by a signal */
};

struct server_counters {
    uint64_t puts, put_bytes;
    uint64_t checked, bad_checksum, cut, repeated, stale;
    uint64_t rx_failed;  /* the receive of a PUT ended with an error */
    uint64_t untracked;  /* PUTs of more runs than are kept */
    uint64_t not_posted; /* buffers that could not be offered again */
    uint64_t gets, get_bytes, gets_failed;
    uint64_t missing; /* sequence numbers missing over all runs; only in results */
};

/* Results of a run, complete once perf_load_ended() was called. */
struct load_results {
    struct op_counters op[OP_KINDS];
    struct hist
        rtt[OP_KINDS]; /* ns: open loop from when it was due, closed from when it was sent */
    struct hist wait;  /* ns, open loop: from when it was due to when it was sent */
    uint64_t start_ns, end_ns; /* first sent, last done */
    uint64_t checked;      /* answers whose content was checked here, or receiver was asked to */
    uint64_t overflowed;   /* open loop: due, but the queue was full; not sent, in no histogram */
    uint64_t overflow_ns;  /* when first, since the start */
    uint64_t waiting_most; /* messages in the queue at once */
    uint64_t expired;      /* of `failed`: they stood in the queue for the whole timeout */
    unsigned pings_lost;   /* before the run; their answers may come after all */
    bool want_report;      /* PUTs were sent: the receiver was asked */
    bool have_report;
    struct run_report report;
    uint64_t *source_bytes; /* of each source, done while new ones were still sent */
    bool interrupted;
    char trouble[256];                      /* why the run ended early, or "" */
    uint64_t busy_cycles, total_cycles, hz; /* of the reactor, during the run */
};

struct ping_results {
    uint64_t sent, answered;
    struct hist rtt;
    bool have_info;
    struct lnet_ping_info info; /* of the first answer */
    int last_error;
};

struct load;
struct server;
struct pinger;
struct report;

struct perf {
    const struct perf_program *program;
    struct perf_opts opts;
    struct reactor_env *env;
    struct perf_engine *engine;
    struct lnet_node *node;   /* engine node */
    void *lnd[LND_TYPES_MAX]; /* in the order of lnd_codes */
    struct mem_arena *arena;
    struct mem_pool memory; /* engine node on o2ib nets: what devices move without a copy */
    size_t memory_used;     /* bytes of it */
    struct server *server;  /* engine node */
    uint8_t *pattern;
    struct load *load;
    struct pinger *pinger;
    bool start_failed;
    bool work_done; /* the load has ended */
    bool signalled;
    uint8_t stopping; /* set once, read by the reactor: perf_stopping() */
    struct report *report;
    uint64_t start_ns;
    FILE *progress; /* stderr when the result is JSON, else stdout */
};

static inline bool perf_stopping(const struct perf *p)
{
    return relaxed_load(&p->stopping) != 0;
}

uint64_t perf_now_ns(void); /* CLOCK_MONOTONIC; any thread */

/* ---- run.c ---- */

/* Runs a program to its end and returns the exit code. */
int perf_run(const struct perf_program *program, int argc, char **argv);

/* ---- options.c ---- */

/* Fills p->opts from the common options and those of p->program. Returns 0 to go on, 1 when all is
 * done (--help), -1 after an error was printed. */
int options_parse(struct perf *p, int argc, char **argv);
/* Whether the command sends messages: put, get and both. */
bool options_send(const struct perf_opts *o);

/* ---- memory.c: engine node (control, but perf_region()) ---- */

/* Bytes of messages, which a node on an o2ib net has in memory that its devices know; 0: it is on
 * none. gets: room for the answer to a GET. */
size_t perf_memory_need(const struct perf_opts *o);
size_t perf_get_room(const struct perf_opts *o);
/* Takes that memory, before devices are opened, and moves the pattern into it. 0 or -errno with a
 * sentence. */
int perf_memory_open(struct perf *p, struct err *err);
/* 64-byte aligned, for messages; NULL: there is none left. */
uint8_t *perf_memory_take(struct perf *p, size_t bytes);
void perf_memory_give(struct perf *p, void *taken); /* NULL is allowed */
/* Returns the memory region of segments at this address. Any thread. */
uint16_t perf_region(const struct perf *p, const void *addr);
/* The node and all that was taken are about to go. */
void perf_memory_close(struct perf *p);

/* ---- server.c: what engine node serves ---- */

/* Offers buffers and content on LNET_PORTAL_RPC; perf_server_ready() is called when they are there.
 * Control; the rest happens on the node's home reactor. 0 or -errno. */
int server_begin(struct perf *p);
void server_free(struct server *s);                /* node destroyed */
void perf_server_ready(struct perf *p, int error); /* node.c, control */

/* ---- load.c ---- */

/* Makes the load, once the engine knows its sources and targets. Control. 0 or -errno. */
int load_new(struct perf *p);
/* The engine is ready, or (error) will not be: begins, or ends at once. perf_load_ended() is called
 * at the end. Control. */
void load_begin(struct load *c, int error, const char *why, unsigned unanswered);
/* Ends the run early: nothing new is sent. Control. */
void load_interrupt(struct load *c);
void load_free(struct load *c);                                /* engine closed */
const struct load_results *load_results(const struct load *c); /* once ended */
/* The next interval that has ended. Control. */
bool load_interval(struct load *c, struct interval *out);
void perf_load_ended(struct perf *p); /* main.c, control */
void report_interval(struct perf *p); /* report.c, control: an interval has ended */

/* ---- ping.c: engine node (control) ---- */

int ping_begin(struct perf *p);
void ping_interrupt(struct pinger *g);
const struct ping_results *ping_results(const struct pinger *g);
void perf_stop(struct perf *p); /* run.c: ends the work */

/* ---- report.c (control) ---- */

/* Opens the files that are to be written. 0, or -errno after printing why. */
int report_open(struct perf *p);
void report_begin(struct perf *p); /* starts the lines of progress */
void report_end(struct perf *p);   /* stops them */
/* Prints the results and returns the exit code. Reactor stopped, engine still there. */
int report_final(struct perf *p);
void report_free(struct report *r);

#endif
