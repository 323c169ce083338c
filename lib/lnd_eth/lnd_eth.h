/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LND for `tcp` nets: the socklnd protocol over a stream transport.
 * docs/protocol/socklnd.md.
 */
#ifndef MILLRACE_LND_ETH_H
#define MILLRACE_LND_ETH_H

#include "lib/lnd_eth/ip/inet_addr.h"
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

struct inet;
struct inet_if;

/* Interfaces beside the host's: ports of Millrace's own. An NI that names one of them, or an
 * address that is on one, uses its transport; all others the host's. The functions are those of
 * inet.h; the driver knows ports by this table only, so that without any it needs none of what is
 * below it. */
struct sock_ports {
    struct stream_transport transport;
    struct inet *inet;
    struct inet_if *(*find)(struct inet *inet, const char *name);
    struct inet_if *(*owner)(struct inet *inet, const struct inet_addr *addr);
    const char *(*name)(const struct inet_if *ifp);
    bool (*addr)(const struct inet_if *ifp, unsigned index, struct inet_prefix *out);
    unsigned (*speed)(const struct inet_if *ifp); /* Mbit/s, 0 = unknown */
    bool (*link)(const struct inet_if *ifp);
    void (*watch)(struct inet_if *ifp, struct inet_watch *w);
    void (*unwatch)(struct inet_if *ifp, struct inet_watch *w);
};

/* Per-node settings. Filled by the caller before lnd_sock_new(); the map is copied. */
struct sock_opts {
    const struct stream_ops *transport; /* of NIs on interfaces of the host */
    const struct sock_ports *ports;     /* NULL: there are none; outlives the driver */
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
    size_t streams; /* as connections come, at most: the host transport's own */
};
/* takes: the transport of some NI hands over segments, even if opts has no such port. Any thread.
 */
void lnd_sock_memory(const struct sock_opts *opts, unsigned reactors, bool takes,
                     struct sock_memory *out);

/* The ctx to register lnd_sock_ops with. Control thread. NULL: out of memory. */
struct lnd_sock *lnd_sock_new(const struct sock_opts *opts);
void lnd_sock_free(struct lnd_sock *sock); /* after lnet_node_destroy() */
/* inet_opts.home: index of the reactor at home for the peer NI that has the remote address. Where
 * NIs of several nets have the local one, that of the first: connections of the others are on other
 * reactors than their addresses say. sock is a struct lnd_sock. Any reactor. */
unsigned lnd_sock_home(void *sock, const struct inet_addr *local, const struct inet_addr *remote);

#endif
