/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the daemon. */
#ifndef MILLRACE_DAEMON_INTERNAL_H
#define MILLRACE_DAEMON_INTERNAL_H

#include "app/millraced/daemon.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/port/port.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "lib/reactor/reactor.h"
#include "rpc/engine/rpc_server.h"

#define DAEMON_MIB ((size_t)1 << 20)

/* Memory of a configuration on a machine. */
struct daemon_memory {
    unsigned reactors;
    size_t ram;                /* bytes, of the machine */
    struct lnet_memory node;   /* the node's buffers and tables */
    struct reactor_memory env; /* DPDK's and the reactors' own */
    struct sock_memory tcp;    /* the driver's own */
    unsigned o2ib;             /* NIs of o2ib nets; 0: nothing of `verbs` is taken */
    struct verbs_memory verbs; /* that driver's; connections take theirs from the system */
    unsigned devices;          /* that ports are on; 0: there are no ports */
    size_t segments;           /* lnet_node_opts.segments */
    size_t port_buffers;       /* port_opts.buffer_bytes of each device */
    size_t ports;              /* EAL memory of ports and what is above them */
    size_t ports_heap;         /* their heap */
    size_t for_buffers;        /* lnet_node_opts.memory */
    unsigned eal;              /* MiB that EAL is asked for; 0: cannot be told */
    unsigned unlimited;        /* MiB it would be if the machine had more RAM; 0: the same */
};

/* From the configuration; env and memory are the caller's to fill in. */
void daemon_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts);
/* Without the map. */
void daemon_sock_opts(const struct cfg *cfg, struct sock_opts *opts);
void daemon_verbs_opts(const struct cfg *cfg, struct verbs_opts *opts);
/* Of own TCP on ports. */
void daemon_tcp_opts(const struct cfg *cfg, struct tcp_opts *opts);
/* Of each reactor. A peer has three connections or more: half as many as these are enough even
 * where peers have but two. */
unsigned daemon_neighbours(const struct cfg *cfg);
/* The entry of cfg->port by which a device is opened, or false when another entry before this one
 * has the same device. Fills in what follows from the configuration. */
bool daemon_port_opts(const struct cfg *cfg, unsigned index, struct port_opts *opts);

/* ---- ports.c ---- */

/* The ports of a configuration with IP and TCP over them. All on the control thread. */
struct daemon_ports;
struct rpc_ctx;
/* Opens the devices; reactors need not run. What happens to ports becomes events of rpc's, which
 * lives longer. 0 with *out NULL: there are none; -errno with a sentence, then nothing is open. */
int daemon_ports_open(const struct cfg *cfg, struct reactor_env *env, const struct daemon_memory *m,
                      struct rpc_ctx *rpc, struct daemon_ports **out, struct err *err);
/* For the driver that is made next, whose NIs' homes are those of packets. */
const struct sock_ports *daemon_ports_table(const struct daemon_ports *p);
void daemon_ports_driver(struct daemon_ports *p, struct lnd_sock *sock);
/* Frames flow from now on; reactors run. */
int daemon_ports_start(struct daemon_ports *p, struct err *err);
/* All streams have ended or are to be reset: TCP ends, then IP. done is called when no reactor
 * looks at a port any more: from its mail, or at once when nothing runs. Reactors run, or mail is
 * delivered by reactor_env_drain() afterwards. */
void daemon_ports_stop(struct daemon_ports *p, void (*done)(void *arg), void *arg);
/* Returns how many addresses are still checked for duplicates: their NIs are down. */
unsigned daemon_ports_checking(const struct daemon_ports *p);
/* A line for each device. */
void daemon_ports_log(const struct daemon_ports *p);
/* Stopped or never started, and reactors have forgotten what was registered with them. NULL is
 * allowed. */
void daemon_ports_close(struct daemon_ports *p);

/* ---- memory.c ---- */
size_t daemon_ram(void); /* bytes */
/* 0, or -ENOMEM with a sentence that says what would fit; then *m is what it would take. */
int daemon_memory(const struct cfg *cfg, size_t ram, struct daemon_memory *m, struct err *err);
/* Says what will run but not well. */
void daemon_memory_warn(const struct cfg *cfg, const struct daemon_memory *m,
                        void (*say)(const char *text));

/* ---- telemetry.c; control thread ---- */

/* The endpoints below /lnet; before EAL starts. 0 or -errno. */
int daemon_telemetry_register(void);
/* What they show from now on; NULL: nothing any more, and nobody looks at what there was. ports
 * NULL: there are none. */
void daemon_telemetry_show(const struct lnet_node *node, const struct sock_ports *ports,
                           unsigned reactors);

/* The driver of a net in this program; NULL when there is none. */
const struct lnd_ops *daemon_driver(lnet_net_t net);

/* ---- event_log.c ---- */
struct rpc_ctx;
/* Events (rpc_events.h) become lines of module `events`. After rpc_events_start(). */
void event_log_start(struct rpc_ctx *ctx);
/* For struct rpc_server_opts: who comes and goes, so that a change can be traced to somebody. */
void event_log_client(void *arg, enum rpc_client_event event, const struct rpc_peer *peer);
/* For struct jrpc: who changed what. */
void event_log_change(const struct jrpc_change *change);

/* Logs drop reasons whose count has grown, one line each per second. */
struct drop_watch;
struct drop_watch *drop_watch_start(struct lnet_node *node); /* NULL: out of memory */
void drop_watch_stop(struct drop_watch *watch);

#endif
