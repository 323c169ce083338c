/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LND for `tcp` nets: the socklnd protocol over a stream transport.
 * docs/protocol/socklnd.md.
 */
#ifndef MILLRACE_LND_ETH_H
#define MILLRACE_LND_ETH_H

#include "lib/lnd/code.h"
#include "lib/lnd_eth/ip/inet_addr.h"
#include "lib/lnd_eth/ports.h"
#include "lib/lnd_eth/stream.h"

/* Per-node settings. Filled by the caller before lnd_sock_new(); the map is copied. */
struct sock_opts {
    const struct stream_ops *transport; /* of NIs on interfaces of the host */
    const struct eth_ports *ports;      /* NULL: there are none; outlives the driver */
    enum lnd_accept accept;
    uint16_t accept_port;    /* 988; also the port that is called */
    unsigned accept_timeout; /* s for request and HELLO together, 5 */
    unsigned keepalive;      /* s idle before a NOOP keepalive, 30; 0 = off */
    unsigned min_reconnect;  /* s, 1 */
    unsigned max_reconnect;  /* s, 60 */
    unsigned max_conns;      /* connections per reactor, bounds memory; 0 = 8192 */
    const struct lnd_source_map *hello_map;
    unsigned hello_map_count;
};

#define SOCK_OPTS_DEFAULT                                                                          \
    ((struct sock_opts){.transport = &stream_kernel,                                               \
                        .accept = LND_ACCEPT_SECURE,                                               \
                        .accept_port = 988,                                                        \
                        .accept_timeout = 5,                                                       \
                        .keepalive = 30,                                                           \
                        .min_reconnect = 1,                                                        \
                        .max_reconnect = 60})

extern const struct lnd_ops lnd_sock_ops;
extern const struct lnd_code lnd_sock_code;
/* Returns what a configuration says; the map is the configuration's. */
struct sock_opts lnd_sock_opts(const struct lnd_conf *conf);

/* Fills in the memory that the driver takes in a node with that many reactors. takes: the
 * transport of some NI hands over segments, independent of the ports in opts. Any thread. */
void lnd_sock_memory(const struct sock_opts *opts, unsigned reactors, bool takes,
                     struct lnd_memory *out);

/* The ctx to register lnd_sock_ops with. Control thread. NULL: out of memory. */
struct lnd_sock *lnd_sock_new(const struct sock_opts *opts);
/* inet_opts.home: index of the reactor at home for the peer NI that has the remote address. Where
 * NIs of several nets have the local one, that of the first: connections of the others are on other
 * reactors than their addresses say. sock is a struct lnd_sock. Any reactor. */
unsigned lnd_sock_home(void *sock, const struct inet_addr *local, const struct inet_addr *remote);

#endif
