/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * millrace-perf: an LNet end node that serves and makes load. One process, one reactor.
 *
 * Threads: the reactor is the node's home and runs all Put/Get traffic (server.c, client.c). The
 * control thread pings, reports, and takes signals (main.c, ping.c, report.c). They talk by
 * reactor_post(); counters are written on the reactor and read anywhere, relaxed.
 */
#ifndef MILLRACE_PERF_PERF_H
#define MILLRACE_PERF_PERF_H

#include "app/millrace-perf/payload.h"
#include "app/millrace-perf/track.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnet/lnet.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PERF_MAX_NIS      8
#define PERF_MAX_ROUTES   64
#define PERF_MAX_INFLIGHT 4096
#define PERF_MAX_BUFFERS  4096

/* Exit codes. */
#define PERF_EXIT_OK     0
#define PERF_EXIT_FAILED 1 /* something was lost, altered, repeated or not answered */
#define PERF_EXIT_USAGE  2
#define PERF_EXIT_START  3 /* the node could not be started */

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

enum perf_size_kind {
    PERF_SIZE_RANGE,
    PERF_SIZE_MIX
};

struct perf_sizes {
    enum perf_size_kind kind;
    uint32_t lo, hi;  /* PERF_SIZE_RANGE; equal for a fixed size */
    const char *text; /* as given */
};

struct perf_opts {
    enum perf_command command;
    const char *command_name;
    struct lnet_nid target;
    struct lnet_ni_conf ni[PERF_MAX_NIS];
    unsigned nnis;
    struct lnet_route_conf route[PERF_MAX_ROUTES];
    unsigned nroutes;
    lnet_net_t net; /* of the NI given by interface name */
    int conns_per_peer;
    struct perf_sizes sizes;
    uint64_t count;       /* messages; 0 = no limit */
    uint64_t duration_us; /* 0 = no limit */
    unsigned inflight;
    bool verify;
    bool json;
    bool serve;           /* a client that is a server too */
    uint64_t interval_us; /* between lines of progress, 0 = none */
    bool interval_set;
    unsigned timeout_ms;
    unsigned buffers;
    enum perf_inject inject;
    const char *cores;
    enum reactor_idle idle;
    unsigned mem_mb; /* 0: what the node needs */
};

/* What a client has done of one kind (PUT or GET). Written on the reactor. */
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
};

enum {
    OP_PUT,
    OP_GET,
    OP_KINDS
};

/* Results of a client, complete once perf_client_ended() was called. */
struct client_results {
    struct op_counters op[OP_KINDS];
    struct hist rtt[OP_KINDS]; /* ns */
    uint64_t start_ns, end_ns; /* first sent, last done */
    unsigned pings_lost;       /* before the run; their answers may come after all */
    bool want_report;          /* PUTs were sent: the receiver was asked */
    bool have_report;
    struct run_report report;
    bool interrupted;
    char trouble[128]; /* why the run ended early, or "" */
};

struct ping_results {
    uint64_t sent, answered;
    struct hist rtt;
    bool have_info;
    struct lnet_ping_info info; /* of the first answer */
    int last_error;
};

struct client;
struct server;
struct pinger;
struct report;

struct perf {
    struct perf_opts opts;
    struct reactor_env *env;
    struct lnet_node *node;
    struct lnd_sock *sock;
    uint8_t *pattern;
    struct client *client;
    struct server *server;
    struct pinger *pinger;
    bool start_failed;
    bool reactor_runs;
    bool work_done; /* the client has ended */
    bool signalled;
    uint8_t stopping; /* set once, read by the reactor: perf_stopping() */
    struct report *report;
    uint64_t start_ns;
    FILE *progress; /* stderr when the result is JSON, else stdout */
};

static inline uint64_t counter_get(const uint64_t *c)
{
    return __atomic_load_n(c, __ATOMIC_RELAXED);
}

static inline bool perf_stopping(const struct perf *p)
{
    return __atomic_load_n(&p->stopping, __ATOMIC_RELAXED) != 0;
}

/* One writer. */
static inline void counter_add(uint64_t *c, uint64_t n)
{
    __atomic_store_n(c, __atomic_load_n(c, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* The struct of which *ptr is a member. */
#define PERF_OUTER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

uint64_t perf_now_ns(void); /* CLOCK_MONOTONIC; any thread */

/* ---- options.c ---- */

/* Fills opts. Returns 0 to go on, 1 when all is done (--help), -1 after an error was printed. */
int options_parse(struct perf_opts *opts, int argc, char **argv);
/* Next size of a run, bytes. */
uint32_t sizes_next(const struct perf_sizes *sizes, uint64_t *random);
uint32_t sizes_max(const struct perf_sizes *sizes);

/* ---- node.c: the LNet node (control) ---- */

/* Makes the node with its NIs and routes, and starts EAL and the reactor. Returns 0, or -errno
 * after printing why; node_close() takes down what there is in both cases. */
int node_open(struct perf *p);
/* Opens it to the network. Returns as above. */
int node_start(struct perf *p);
/* Begins to stop; reactor_control_quit() follows. */
void node_stop(struct perf *p);
/* After the control loop: the reactor has stopped when it returns. */
void node_halt(struct perf *p);
/* Takes down the rest. */
void node_close(struct perf *p);

/* ---- server.c ---- */

/* Offers buffers and content on LNET_PORTAL_RPC; perf_server_ready() is called when they are there.
 * Control; the rest happens on the node's home reactor. 0 or -errno. */
int server_begin(struct perf *p);
void server_free(struct server *s);                                    /* node destroyed */
const struct server_counters *server_counters(const struct server *s); /* any thread */
/* Sequence numbers missing over all runs. Node destroyed or reactor stopped. */
uint64_t server_missing(const struct server *s);
void perf_server_ready(struct perf *p, int error); /* main.c, control */

/* ---- client.c ---- */

/* Pings the target and then runs; perf_client_ended() is called at the end. Control. */
int client_begin(struct perf *p);
/* Ends the run early: nothing new is sent. Control. */
void client_interrupt(struct client *c);
void client_free(struct client *c);                                          /* node destroyed */
const struct op_counters *client_counters(const struct client *c, int kind); /* any thread */
const struct client_results *client_results(const struct client *c);         /* once ended */
void perf_client_ended(struct perf *p);                                      /* main.c, control */

/* ---- ping.c (control) ---- */

int ping_begin(struct perf *p);
void ping_free(struct pinger *g);
void ping_interrupt(struct pinger *g);
const struct ping_results *ping_results(const struct pinger *g);
void perf_ping_ended(struct perf *p); /* main.c */

/* ---- report.c (control) ---- */

void report_begin(struct perf *p); /* starts the lines of progress */
void report_end(struct perf *p);   /* stops them */
/* Prints the results and returns the exit code. Reactor stopped, node still there. */
int report_final(struct perf *p);
void report_free(struct report *r);

#endif
