/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the daemon. */
#ifndef MILLRACE_DAEMON_INTERNAL_H
#define MILLRACE_DAEMON_INTERNAL_H

#include "app/millraced/daemon.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/reactor/reactor.h"

#define DAEMON_MIB ((size_t)1 << 20)

/* Memory of a configuration on a machine. */
struct daemon_memory {
    unsigned reactors;
    size_t ram;                /* bytes, of the machine */
    struct lnet_memory node;   /* the node's buffers and tables */
    struct reactor_memory env; /* DPDK's and the reactors' own */
    struct sock_memory tcp;    /* the driver's own */
    size_t for_buffers;        /* lnet_node_opts.memory */
    unsigned eal;              /* MiB that EAL is asked for; 0: cannot be told */
    unsigned unlimited;        /* MiB it would be if the machine had more RAM; 0: the same */
};

/* From the configuration; env and memory are the caller's to fill in. */
void daemon_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts);
/* Without the map. */
void daemon_sock_opts(const struct cfg *cfg, struct sock_opts *opts);

/* ---- memory.c ---- */
size_t daemon_ram(void); /* bytes */
/* 0, or -ENOMEM with a sentence that says what would fit; then *m is what it would take. */
int daemon_memory(const struct cfg *cfg, size_t ram, struct daemon_memory *m, char *err,
                  size_t errlen);
/* Says what will run but not well. */
void daemon_memory_warn(const struct cfg *cfg, const struct daemon_memory *m,
                        void (*say)(const char *text));

/* The driver of a net in this program; NULL when there is none. */
const struct lnd_ops *daemon_driver(lnet_net_t net);

/* Logs drop reasons whose count has grown, one line each per second. */
struct drop_watch;
struct drop_watch *drop_watch_start(struct lnet_node *node); /* NULL: out of memory */
void drop_watch_stop(struct drop_watch *watch);

#endif
