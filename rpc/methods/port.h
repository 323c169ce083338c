/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the methods for ports: names, addresses, numbers by name, and lists of reactors.
 * Control thread. */
#ifndef MILLRACE_RPC_ETH_H
#define MILLRACE_RPC_ETH_H

#include "lib/lnd_eth/ip/inet.h"
#include "rpc/methods/methods_internal.h"

#define RPC_INET_SIZE 46 /* INET6_ADDRSTRLEN */

const char *rpc_inet_text(const struct inet_addr *addr, char out[RPC_INET_SIZE]);
json_t *rpc_inet(const struct inet_addr *addr);
/* NULL: not known. */
json_t *rpc_mac(const struct rte_ether_addr *mac);
/* In ms; NULL: UINT64_MAX, not known. */
json_t *rpc_age(uint64_t age_us);
/* Reads an IP address, also as part of a NID. False: it is none. */
bool rpc_inet_parse(const char *text, struct inet_addr *out);
/* The same for a parameter; false: it is none, the call has been refused. */
bool rpc_inet_arg(struct jrpc_call *call, const struct jrpc_arg *arg, const char *name,
                  struct inet_addr *out);

/* All ports, each once; at most PORT_MAX. None: there is no such transport. */
unsigned rpc_ports(const struct rpc_ctx *ctx, struct port *out[PORT_MAX]);
/* The port of a name; NULL: there is none, the call has failed with ENOENT. */
struct port *rpc_port_find(struct jrpc_call *call, const char *name);

/* Of all packets dropped between ports and TCP, by reason, those that fault injection lost too. */
void rpc_pkt_drops(const struct rpc_ctx *ctx, uint64_t out[PKT_DROP_COUNT]);

/* A member of a struct that is shown by its name. A table of them ends with a row without name. */
struct rpc_number {
    const char *name;
    uint16_t off;
    uint8_t size; /* 1, 2, 4, 8; 0: a bool */
};
#define RPC_NUMBER(type, member)                                                                   \
    {                                                                                              \
#member, offsetof(struct type, member), sizeof(((struct type *)0)->member)                 \
    }
#define RPC_FLAG(type, member)                                                                     \
    {                                                                                              \
#member, offsetof(struct type, member), 0                                                  \
    }
/* Of struct inet_stats, tcp_stats and port_queue_stats. */
extern const struct rpc_number rpc_inet_numbers[], rpc_tcp_numbers[], rpc_queue_numbers[];
/* Its value in a struct; a flag as 0 or 1. */
uint64_t rpc_number_of(const struct rpc_number *row, const void *from);
/* Counters of a port's queues of that direction together. */
void rpc_port_sum(const struct port *port, bool tx, struct port_queue_stats *out);
/* Adds each number of a struct to an object. */
void rpc_add_numbers(json_t *object, const void *from, const struct rpc_number *row);

/* ---- a page of rows that reactors have: rpc_walk.c ---- */

#define RPC_WALK_ROWS 16 /* of one mail */

struct rpc_walk {
    struct jrpc_call *call;
    struct rpc_ctx *ctx;
    const char *key; /* of the list in the answer */
    /* On a reactor: reads up to max rows from *at on; 0: it has no more. */
    unsigned (*read)(struct rpc_walk *w, unsigned reactor, uint32_t *at, unsigned max);
    /* On the control thread: row i as it is shown; NULL: it is not asked for. */
    json_t *(*show)(struct rpc_walk *w, unsigned i);
    /* its own: */
    unsigned limit; /* of rows in the answer */
    struct reactor_task task;
    json_t *list;
    unsigned reactor, n;
    uint32_t at;
};

/* Ends the call with a page. cursor: where it begins, if given; limit: of its rows, if given. w is
 * part of what jrpc_alloc() gave for the call. */
void rpc_walk(struct rpc_walk *w, struct jrpc_call *call, const struct jrpc_arg *cursor,
              const struct jrpc_arg *limit, unsigned default_limit);

#endif
