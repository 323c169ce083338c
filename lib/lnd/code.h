/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The code of an LND as a program that runs nodes needs it, beside its type. The program makes the
 * LND once per node and registers ops with the result.
 */
#ifndef MILLRACE_LND_CODE_H
#define MILLRACE_LND_CODE_H

#include "lib/lnd/type.h"
#include "lib/lnet/lnd.h"

struct eth_ports;
struct inet_addr;

enum lnd_accept { /* who may connect */
    LND_ACCEPT_SECURE,
    LND_ACCEPT_ALL,
    LND_ACCEPT_NONE
};

/* A configured exception to "the source NID of a connection is the address it comes from". */
struct lnd_source_map {
    struct lnet_nid address; /* net of the NI, address the connection comes from */
    struct lnet_nid nid;     /* NID that it may claim */
};

/* The settings of a configuration. An LND uses those that it has a meaning for, and copies the map.
 */
struct lnd_conf {
    const int *option; /* values of type->options */
    enum lnd_accept accept;
    uint16_t accept_port;
    unsigned accept_timeout, keepalive;    /* s */
    unsigned min_reconnect, max_reconnect; /* s, back-off of connection attempts */
    unsigned max_conns;                    /* connections per reactor */
    const struct lnd_source_map *map;
    unsigned map_count;
    const struct eth_ports *ports; /* the program's own; NULL: none, or not open yet */
    bool has_ports;                /* the configuration has ports */
};

/* Memory of an LND. */
struct lnd_memory {
    unsigned conns;     /* connections per reactor, at most */
    const char *beside; /* what `pools` is for beside connections, NULL: nothing */
    size_t pools;       /* bytes of heap from the first NI on */
    size_t streams;     /* bytes of the host when all connections are in use, 0: none */
    size_t per_conn;    /* bytes of EAL memory of one connection, 0: none */
};

struct lnd_code {
    const struct lnd_type *type;
    const struct lnd_ops *ops;
    /* First of all in the process, while it has one thread. NULL: nothing to do. */
    void (*process_init)(void);
    /* Makes the ctx that ops are registered with. It opens no device before it has an NI. Control
     * thread. NULL: out of memory. */
    void *(*create)(const struct lnd_conf *conf);
    void (*destroy)(void *ctx); /* after lnet_node_destroy(); NULL is allowed */
    /* Fills in the memory with an NI of these tunables (NULL: with any NI) and that many reactors.
     * Any thread. */
    void (*memory)(const struct lnd_conf *conf, unsigned reactors, const struct lnet_tunables *tun,
                   const struct lnd_tunables *lnd_tun, struct lnd_memory *out);
    /* Returns the index of the reactor at home for the peer NI that has the remote address, see
     * inet_opts.home. Any reactor. NULL: ports are not for this LND. */
    unsigned (*port_home)(void *ctx, const struct inet_addr *local, const struct inet_addr *remote);
};

/* Makes an LND with default settings. */
void *lnd_create_default(const struct lnd_code *code);
/* Frees an LND that is built on lib/lnd/driver.h. After lnet_node_destroy(); ctx may be NULL. */
void lnd_driver_free(void *ctx);

#endif
