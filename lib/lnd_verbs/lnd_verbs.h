/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The LND for `o2ib` nets: the o2iblnd protocol over RDMA devices. docs/protocol/o2iblnd.md.
 */
#ifndef MILLRACE_LND_VERBS_H
#define MILLRACE_LND_VERBS_H

#include "lib/lnd/code.h"
#include "lib/lnd/show.h"
#include "lib/lnd_verbs/rdma.h"

/* Per-node settings, under the names of the kernel module's parameters where it has them (§7).
 * Filled by the caller before lnd_verbs_new(). */
struct verbs_opts {
    const struct rdma_ops *rdma; /* &rdma_core */
    uint16_t service;            /* port that is listened at and called, 987 */
    unsigned
        peer_credits_hiw; /* owed credits that are returned by a NOOP; 0: half of peer_credits */
    unsigned concurrent_sends; /* messages posted at once per connection; 0: peer_credits */
    unsigned keepalive;        /* s without sending before a NOOP, 100; 0 = off */
    unsigned retry_count;      /* of the transport, 5 */
    unsigned rnr_retry_count;  /* 6 */
    unsigned min_reconnect;    /* s before a node that could not be reached is called again, 1 */
    unsigned max_reconnect;    /* s, to which that doubles, 60 */
    bool require_privileged_port;
    bool use_privileged_port;   /* true: tried first */
    enum rdma_keys remote_keys; /* how peers get keys for the memory that they write to */
    unsigned max_conns;         /* connections per reactor, bounds memory; 0 = 1024 */
};

#define VERBS_OPTS_DEFAULT                                                                         \
    ((struct verbs_opts){.rdma = &rdma_core,                                                       \
                         .service = 987,                                                           \
                         .keepalive = 100,                                                         \
                         .retry_count = 5,                                                         \
                         .rnr_retry_count = 6,                                                     \
                         .min_reconnect = 1,                                                       \
                         .max_reconnect = 60,                                                      \
                         .use_privileged_port = true})

extern const struct lnd_ops lnd_verbs_ops;
extern const struct lnd_code lnd_verbs_code; /* over rdma-core */
/* Returns what a configuration says. */
struct verbs_opts lnd_verbs_opts(const struct lnd_conf *conf);

/* Makes all threads of the process allocate small memory from one place. Must be the first call of
 * a process that will use the driver, on the main thread, while there is no other thread. The
 * reason: librdmacm 44 compares the addresses of its devices by their lower halves. With memory
 * from places far apart, known devices seem to be removed when a new one comes, and get another
 * context. */
void lnd_verbs_process_init(void);

struct lnd_verbs;
/* The ctx to register lnd_verbs_ops with. The provider is opened with the first NI, so a host
 * without RDMA pays nothing. Control thread. NULL: out of memory. */
struct lnd_verbs *lnd_verbs_new(const struct verbs_opts *opts);

/* Heap and EAL memory the driver takes in a node with that many reactors; connections take theirs
 * as they come. An NI's depth (peer_credits), and what it says of concurrent_sends itself: -1 or 0
 * if nothing. Any thread. */
void lnd_verbs_memory(const struct verbs_opts *opts, unsigned reactors, unsigned depth,
                      int concurrent_sends, struct lnd_memory *out);
/* The depth of an NI with these tunables (-1: left out), as it will be used. Any thread. */
unsigned lnd_verbs_depth(const struct lnet_tunables *tun);

/* ---- for verbs_get ---- */

struct verbs_counters { /* of one NI, over its reactors */
#define COUNTER(name, text) uint64_t name;
#include "lib/lnd_verbs/ib_counters.def"
#undef COUNTER
};

struct verbs_conn_row {
    struct lnet_nid peer;
    unsigned reactor;
    const char *state;
    bool active; /* we called */
    uint16_t depth, frags;
    uint16_t credits, owed, reserved, sends, noops; /* o2iblnd §3.1: C O R S N */
    uint32_t queued, waiting;                       /* messages not posted; posted, not answered */
    uint32_t send_wrs, inline_bytes;
    uint32_t retries; /* calls that were refused before the one that made it, or makes it now */
    uint64_t age_us, idle_us;
    uint64_t bytes_in, bytes_out;
};

struct verbs_peer_row {
    struct lnet_nid peer;
    unsigned reactor;
    const char *state;  /* "up", "calling", "called", "down": not called before again_us; "idle" */
    uint32_t conns;     /* that are up */
    uint32_t retries;   /* calls refused, of the connection that is being made */
    uint32_t depth_max; /* queue depth that connections to it are held to, as no queue pair could
                           be made for more */
    uint64_t again_us;  /* until it may be called again */
    enum lnet_drop failed; /* the last failure, also of one that was up; NONE: there was none */
    struct lnet_drop_why why;
    uint64_t failed_age_us;
};

struct verbs_rows { /* total, peers_total: that there are */
    const struct verbs_conn_row *conns;
    const struct verbs_peer_row *peers;
    unsigned nconns, total, npeers, peers_total;
};

/* Device and port of an NI of this driver; of one that has stopped, as they were. Control thread.
 */
void lnd_verbs_info(const struct lnet_ni *ni, struct rdma_info *out);
void lnd_verbs_counters(const struct lnet_ni *ni, struct verbs_counters *out);
/* Memory of the provider and work of its thread. Control thread. False: it is not open yet. */
bool lnd_verbs_provider(const struct lnd_verbs *lv, struct rdma_counters *out);
/* Gathers the connections of an NI and its peers on their reactors; done() on the control thread
 * with a struct verbs_rows of at most max of each (it is freed after it). 0 or -ENOMEM. */
extern const struct lnd_show lnd_verbs_show;
int lnd_verbs_conns(struct lnet_ni *ni, unsigned max, void (*done)(void *arg, const void *rows),
                    void *arg);

#endif
