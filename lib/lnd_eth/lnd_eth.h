/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LND for `tcp` nets: the socklnd protocol over a stream transport.
 * docs/protocol/socklnd.md.
 */
#ifndef MILLRACE_LND_ETH_H
#define MILLRACE_LND_ETH_H

#include "lib/lnd_eth/stream.h"
#include "lib/lnet/lnd.h"

enum sock_accept {
    SOCK_ACCEPT_SECURE,
    SOCK_ACCEPT_ALL,
    SOCK_ACCEPT_NONE
}; /* §1.2 */

/* A configured exception to "the HELLO's source NID is the address it comes from". */
struct sock_hello_map {
    struct lnet_nid address; /* net of the NI, address the connection comes from */
    struct lnet_nid nid;     /* NID it may claim */
};

/* Per-node settings. Filled by the caller before lnd_sock_new(); the map is copied. */
struct sock_opts {
    const struct stream_ops *transport;
    enum sock_accept accept;
    uint16_t accept_port;    /* 988; also the port that is called */
    unsigned accept_timeout; /* s per read of a request or HELLO, 5 */
    unsigned keepalive;      /* s idle before a NOOP keepalive, 30; 0 = off */
    unsigned min_reconnect;  /* s, 1 */
    unsigned max_reconnect;  /* s, 60 */
    unsigned max_conns;      /* connections per reactor, bounds memory; 0 = 8192 */
    const struct sock_hello_map *hello_map;
    unsigned hello_map_count;
};

#define SOCK_OPTS_DEFAULT                                                                          \
    ((struct sock_opts){.transport = &stream_kernel,                                               \
                        .accept = SOCK_ACCEPT_SECURE,                                              \
                        .accept_port = 988,                                                        \
                        .accept_timeout = 5,                                                       \
                        .keepalive = 30,                                                           \
                        .min_reconnect = 1,                                                        \
                        .max_reconnect = 60})

extern const struct lnd_ops lnd_sock_ops;

/* Heap the driver takes in a node with that many reactors. */
struct sock_memory {
    unsigned conns; /* per reactor, at most */
    size_t pools;   /* at the first NI: connections, peers, handshakes */
    size_t streams; /* as connections come, at most: the transport's own */
};
/* Any thread. */
void lnd_sock_memory(const struct sock_opts *opts, unsigned reactors, struct sock_memory *out);

/* The ctx to register lnd_sock_ops with. Control thread. NULL: out of memory. */
struct lnd_sock *lnd_sock_new(const struct sock_opts *opts);
void lnd_sock_free(struct lnd_sock *sock); /* after lnet_node_destroy() */

#endif
