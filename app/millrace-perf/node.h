/* SPDX-License-Identifier: BSD-3-Clause */
/* Engine `node`: what node.c, node_send.c and server.c share. */
#ifndef MILLRACE_PERF_NODE_H
#define MILLRACE_PERF_NODE_H

#include "app/millrace-perf/perf.h"

#define NODE_PROBES 16 /* targets that are pinged at once */

struct op;
struct node_engine;

extern const struct perf_engine_ops engine_node;

/* One target that is being pinged. Control thread. */
struct probe {
    struct node_engine *engine;
    struct reactor_timer retry;
    uint32_t target;
};

struct node_engine {
    struct perf_engine base;
    struct lnet_nid *target; /* base.targets of them */
    bool reactor_runs;

    /* home reactor: node_send.c */
    struct lnet_eq eq;
    struct op *ops;
    unsigned nops;
    struct op *free_ops;
    uint8_t *memory; /* of GETs */
    uint32_t *seq;   /* of the next PUT, by target */
    bool starved;    /* send() said -EAGAIN */
    struct reactor_timer room;
    struct op *report_op;
    uint8_t report_memory[RUN_REPORT_SIZE];
    uint32_t collect_run, collect_next;
    bool collecting, collected_all;
    struct run_report collected;
    struct reactor_timer collect_patience;

    /* control thread: node.c */
    struct probe probe[NODE_PROBES];
    uint32_t probe_next, probes_out; /* the next target to be pinged, those being pinged */
    uint64_t probe_until_ns;
    unsigned probes_lost;
    bool probing;
};

/* node_send.c */
int node_ops_alloc(struct node_engine *n); /* control, before the reactor runs; 0 or -ENOMEM */
void node_ops_free(struct node_engine *n); /* node destroyed */
int node_send(struct perf_engine *e, const struct perf_msg *m);
void node_cancel(struct perf_engine *e, uint64_t cookie);
void node_collect(struct perf_engine *e, uint32_t run, unsigned patience_ms);

/* server.c */
const struct server_counters *node_served(const struct perf_engine *e);
uint64_t node_missing(const struct perf_engine *e);

#endif
