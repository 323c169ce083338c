/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the controller. */
#ifndef MILLRACE_CONTROLLER_INTERNAL_H
#define MILLRACE_CONTROLLER_INTERNAL_H

#include "control/controller.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/port/port.h"
#include "lib/lnd_eth/ports.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/lnds/codes.h"
#include "lib/reactor/reactor.h"

#define CONTROL_MIB ((size_t)1 << 20)

struct control_lnd {
    const char *name;
    unsigned nis;
    struct lnd_memory memory;
};

/* Memory of a configuration on a machine. */
struct control_memory {
    unsigned reactors;
    size_t ram;                /* bytes, of the machine */
    struct lnet_memory node;   /* the node's buffers and tables */
    struct reactor_memory env; /* DPDK's and the reactors' own */
    unsigned lnds;             /* in the order of lnd_codes */
    struct control_lnd lnd[LND_TYPES_MAX];
    unsigned devices;    /* that ports are on; 0: there are no ports */
    size_t segments;     /* lnet_node_opts.segments */
    size_t port_buffers; /* port_opts.buffer_bytes of each device */
    size_t ports;        /* EAL memory of ports and what is above them */
    size_t ports_heap;   /* their heap */
    size_t for_buffers;  /* lnet_node_opts.memory */
    unsigned eal;        /* MiB that EAL is asked for; 0: cannot be told */
    unsigned unlimited;  /* MiB it would be if the machine had more RAM; 0: the same */
};

/* From the configuration; env and memory are the caller's to fill in. */
void control_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts);
/* Without the map and the ports. */
struct lnd_conf control_lnd_conf(const struct cfg *cfg, const struct lnd_type *type);
/* Of own TCP on ports. */
void control_tcp_opts(const struct cfg *cfg, struct tcp_opts *opts);
/* Of each reactor. A peer has three connections or more: half as many as these are enough even
 * where peers have but two. */
unsigned control_neighbours(const struct cfg *cfg);
/* The entry of cfg->port by which a device is opened, or false when another entry before this one
 * has the same device. Fills in what follows from the configuration. */
bool control_port_opts(const struct cfg *cfg, unsigned index, struct port_opts *opts);

/* ---- ports.c ---- */

/* The ports of a configuration with IP and TCP over them. All on the control thread. */
struct control_ports;
/* Opens the devices; reactors need not run. Listeners of c receive the events of ports. 0 with *out
 * NULL: there are none; -errno with a sentence, then nothing is open. */
int control_ports_open(const struct cfg *cfg, struct reactor_env *env,
                       const struct control_memory *m, struct controller *c,
                       struct control_ports **out, struct err *err);
/* For the driver that is made next, whose NIs' homes are those of packets. */
const struct eth_ports *control_ports_table(const struct control_ports *p);
void control_ports_driver(struct control_ports *p, const struct lnd_code *code, void *ctx);
/* Frames flow from now on; reactors run. */
int control_ports_start(struct control_ports *p, struct err *err);
/* All streams have ended or are to be reset: TCP ends, then IP. done is called when no reactor
 * looks at a port any more: from its mail, or at once when nothing runs. Reactors run, or mail is
 * delivered by reactor_env_drain() afterwards. */
void control_ports_stop(struct control_ports *p, void (*done)(void *arg), void *arg);
/* Returns how many addresses are still checked for duplicates: their NIs are down. */
unsigned control_ports_checking(const struct control_ports *p);
/* A line for each device. */
void control_ports_log(const struct control_ports *p);
/* Stopped or never started, and reactors have forgotten what was registered with them. NULL is
 * allowed. */
void control_ports_close(struct control_ports *p);

/* ---- memory.c ---- */
size_t control_ram(void); /* bytes */
/* 0, or -ENOMEM with a sentence that says what would fit; then *m is what it would take. */
int control_memory(const struct cfg *cfg, size_t ram, struct control_memory *m, struct err *err);
/* Says what will run but not well. */
void control_memory_warn(const struct cfg *cfg, const struct control_memory *m,
                         void (*say)(const char *text));

/* ---- apply.c ---- */
/* Warns in the log when an NI uses fewer peer credits than configured. ni may be NULL. */
void control_log_lowered(const struct lnet_ni_conf *conf, const struct lnet_ni *ni);

/* The driver of a net in this program; NULL when there is none. */
const struct lnd_ops *control_driver(lnet_net_t net);

#endif
