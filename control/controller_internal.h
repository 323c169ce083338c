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

/* The memory that a configuration takes on a machine. */
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

/* Fills in the options from the configuration; the caller fills in env and memory. */
void control_node_opts(const struct cfg *cfg, struct lnet_node_opts *opts);
static inline struct lnet_route_rules control_route_rules(const struct cfg *cfg)
{
    return (struct lnet_route_rules){.drop_asym_route = cfg->drop_asym_route,
                                     .ignore_far_side = !cfg->avoid_asym_router_failure,
                                     .check_before_use = cfg->check_routers_before_use};
}
/* Without the map and the ports. */
struct lnd_conf control_lnd_conf(const struct cfg *cfg, const struct lnd_type *type);
/* Of own TCP on ports. */
void control_tcp_opts(const struct cfg *cfg, struct tcp_opts *opts);
/* Returns the number of neighbours for each reactor: half of max_connections, because a peer has
 * two or more connections. */
unsigned control_neighbours(const struct cfg *cfg);
/* Fills in the options of the device of a port. False: an entry of cfg->port before this one has
 * the same device. */
bool control_port_opts(const struct cfg *cfg, unsigned index, struct port_opts *opts);

/* ---- ports.c ---- */

/* The ports of a configuration with IP and TCP over them. All on the control thread. */
struct control_ports;
/* Opens the devices; reactors need not run. Listeners of c receive the events of ports. 0 with *out
 * NULL: there are none; -errno with a sentence, then nothing is open. */
int control_ports_open(const struct cfg *cfg, struct reactor_env *env,
                       const struct control_memory *m, struct controller *c,
                       struct control_ports **out, struct err *err);
/* The table of ports for the driver that is made next. The homes of its NIs receive the packets. */
const struct eth_ports *control_ports_table(const struct control_ports *p);
void control_ports_driver(struct control_ports *p, const struct lnd_code *code, void *ctx);
/* -ENODEV with a sentence while the port waits for its device, else 0. */
int control_ports_lack(const struct control_ports *p, const struct cfg_port *entry,
                       struct err *err);
/* Starts the ports: frames flow from now on. Reactors run. */
int control_ports_start(struct control_ports *p, struct err *err);
/* Stops TCP, then IP. Streams have ended before or are reset. done is called when no reactor uses a
 * port any more: from a message to the control thread, or at once when nothing runs. When reactors
 * do not run, reactor_env_drain() delivers that message. */
void control_ports_stop(struct control_ports *p, void (*done)(void *arg), void *arg);
/* Returns how many addresses are still checked for duplicates: their NIs are down. */
unsigned control_ports_checking(const struct control_ports *p);
/* Logs a line for each device. */
void control_ports_log(const struct control_ports *p);
/* Closes the ports, which are stopped or were never started. Reactors have forgotten what was
 * registered with them. p may be NULL. */
void control_ports_close(struct control_ports *p);

/* ---- memory.c ---- */
size_t control_ram(void); /* bytes */
/* Plans the memory. 0, or -ENOMEM with a sentence that says what would fit; then *m is what would
 * be taken. */
int control_memory(const struct cfg *cfg, size_t ram, struct control_memory *m, struct err *err);
/* Warns of what will run, but not well. */
void control_memory_warn(const struct cfg *cfg, const struct control_memory *m,
                         void (*say)(const char *text));

/* ---- apply.c ---- */
/* Returns the running NI of an NI of the document; NULL: none. */
struct lnet_ni *control_find_ni(const struct controller *c, const struct lnet_ni_conf *like);
/* Warns in the log when an NI uses fewer peer credits than configured. ni may be NULL. */
void control_log_lowered(const struct lnet_ni_conf *conf, const struct lnet_ni *ni);

/* Gives the node the configured peers of a document, before it is started or after. */
int control_begin_peers(struct lnet_node *node, const struct cfg *cfg, struct err *err);
/* Gives the node the rules of health of a document. */
int control_set_health(struct lnet_node *node, const struct cfg *to, struct err *err);
/* Puts the access rules of a document in place of those there are. */
int control_set_access(struct lnet_node *node, const struct cfg *to, struct err *err);
/* The same of the selection policies. */
int control_set_udsp(struct lnet_node *node, const struct cfg *to, struct err *err);

/* Returns the driver of a net; NULL when this program has none. */
const struct lnd_ops *control_driver(lnet_net_t net);

#endif
