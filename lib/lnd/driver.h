/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The floor under all LNDs: the driver of a node, its parts on the reactors, and the table of
 * functions that a protocol adds.
 *
 * A driver is one LND in one node. It has a part on each reactor, the shard, with pools of
 * connections and peer NIs. It has NIs (ni.h), and each NI has a part on each reactor too. On its
 * home reactor a peer NI has a set of connections (peer_ni.h), and the driver opens the missing
 * ones (connect.h).
 *
 * An LND embeds each struct of this library in a struct of its own and finds its own struct by
 * container_of. The library calls the LND through `struct lnd_proto` only. It never does so for a
 * message that finds a connection: the data path has no call through a table.
 *
 * Life: the LND's constructor fills `proto` and the settings in. lnd_shards_init() makes the parts
 * on the reactors when the first NI is added. lnd_driver_free() frees all when the node ended.
 */
#ifndef MILLRACE_LND_DRIVER_H
#define MILLRACE_LND_DRIVER_H

#include "lib/base/container.h"
#include "lib/base/share.h"
#include "lib/lnd/pool.h"
#include "lib/lnet/lnd.h"

#include <sys/queue.h>

struct err;

#define LND_SEC 1000000ull /* us */

struct lnd_conn;
struct lnd_driver;
struct lnd_ni;
struct lnd_ni_shard;
struct lnd_peer_ni;
struct lnd_shard;

TAILQ_HEAD(lnd_conns, lnd_conn);
TAILQ_HEAD(lnd_peer_nis, lnd_peer_ni);

/* How messages end whose connection is lost: members of struct lnd_close. */
#define LND_CLOSE_LOST                                                                             \
    .tx = LNET_DROP_NEXT_HOP_LOST, .rx = LNET_DROP_RX_INCOMPLETE, .queued = LNET_HEALTH_LOCAL_ERROR

/* Why connections are closed: the reasons that the core gets for their messages, and how the
 * streams end. */
struct lnd_close {
    enum lnet_drop event;     /* counted once and the peer reported down; NONE: a clean end */
    enum lnet_drop cause;     /* reported to watchers where event is NONE; NONE: the peer closed */
    enum lnet_drop tx, rx;    /* reason that messages being sent and being received get */
    enum lnet_health queued;  /* of a message of which nothing was sent */
    enum lnet_health begun;   /* of a message of which something was sent */
    enum lnet_health waiting; /* of a message that was sent and waits for the peer's answer */
    bool abort;               /* reset the stream instead of closing it in order */
};

/* The table of a protocol. An LND's struct for the driver, a shard, an NI or a part of an NI begins
 * with the struct of this library, so that both have one address. */
struct lnd_proto {
    const char *name;     /* of its connections, in messages to the operator: "tcp" */
    size_t shard_size;    /* of the LND's shard */
    size_t ni_size;       /* of the LND's NI up to its array of parts */
    size_t ni_shard_size; /* of the LND's part of an NI */
    size_t conn_size;     /* of the LND's connection */
    size_t conn_kept;     /* bytes of a free connection that may be read, see pool.h */
    size_t peer_size;     /* of the LND's peer NI */
    size_t peer_base;     /* offset of its struct lnd_peer_ni */
    int credits_min;      /* an NI has at least */
    unsigned stamp_ns;    /* unit of incarnations: ns of the wall clock */
    unsigned max_conns;   /* per reactor, where the settings say 0 */
    unsigned linger;      /* s: a peer NI not in use is remembered, from the end of its back-off */

    /* Health that lnd_peer_abort() reports: of messages without a connection; of messages of which
     * something was sent. */
    enum lnet_health abort_waiting, abort_begun;

    /* ---- control thread ---- */

    /* The driver is freed next. */
    void (*driver_fini)(struct lnd_driver *driver);
    /* Completes a shard that lnd_shards_init() made. False: no memory; shard_fini() follows. */
    bool (*shard_init)(struct lnd_shard *shard);
    void (*shard_fini)(struct lnd_shard *shard);
    /* Finds the address and the interface of an NI. 0 or -errno with an error; ni_fini() follows in
     * any case, at once or when the NI is freed. */
    int (*ni_resolve)(struct lnd_ni *lni, struct err *err);
    /* Completes an NI whose settings were checked: listener. As above. */
    int (*ni_init)(struct lnd_ni *lni, struct err *err);
    void (*ni_fini)(struct lnd_ni *lni);
    /* Returns conns_per_peer of an NI that says nothing of it. NULL: 1. */
    int (*conns_default)(const struct lnd_ni *lni);
    /* Returns the peer credits that an NI with these credits and peer credits gives. NULL: as many
     * as it says, at most its credits. */
    unsigned (*peer_credits)(const struct lnet_tunables *tun);
    /* Listens for the first NI of a listener. 0 or -errno with an error. */
    int (*listen)(struct lnd_ni *lni, struct err *err);
    /* The last NI of a listener is being quiesced or stopped, and its reactors were told. NULL: the
     * reactors end the listener in ns_shut(). */
    void (*unlisten)(struct lnd_ni *lni);
    /* All parts of the NI have stopped, or it is stopped without having run. NULL: nothing to do.
     */
    void (*ni_stopped)(struct lnd_ni *lni);

    /* ---- each reactor ---- */

    reactor_poll_fn poll; /* of the shard, while an NI runs; arg is the shard */
    /* The NI starts. */
    void (*ns_start)(struct lnd_ni_shard *ns);
    /* The NI takes no more connections. Once, before ns_quiesce() or ns_stop(). */
    void (*ns_shut)(struct lnd_ni_shard *ns);
    /* New messages are not read any more, or their senders get no more credits. */
    void (*ns_quiesce)(struct lnd_ni_shard *ns);
    /* All connections are closed next. */
    void (*ns_stop)(struct lnd_ni_shard *ns);
    /* Whether quiesce may be answered; whether stop may be, once there is no peer NI. The LND calls
     * lnd_ns_progress() when that may have changed. */
    bool (*ns_quiet)(const struct lnd_ni_shard *ns);
    bool (*ns_closed)(const struct lnd_ni_shard *ns);

    /* ---- home reactor of the peer NI ---- */

    /* Initialises the LND's part of a new peer NI, whose bytes are zero. */
    void (*peer_init)(struct lnd_peer_ni *lp);
    /* The peer NI is freed next: stops timers of the LND's. NULL: nothing to do. */
    void (*peer_fini)(struct lnd_peer_ni *lp);
    /* lnd_peer_abort(): closes the connections that the peer is opening. NULL: they are closed in
     * another way. */
    void (*peer_abort)(struct lnd_peer_ni *lp, const struct lnd_close *why);

    /* A run of connection attempts begins: forgets what the last run left. */
    void (*connect_begin)(struct lnd_peer_ni *lp);
    /* Opens the next missing connection, or ends the run by lnd_connect_done(),
     * lnd_connect_later() or lnd_connect_failed(). */
    void (*connect_next)(struct lnd_peer_ni *lp);
    /* connect.conn is not up. The time that the LND armed connect.timer for has passed, or another
     * needs the place. */
    void (*connect_late)(struct lnd_peer_ni *lp);

    /* Closes a connection that is not in the set: it was removed from the set just now, or it is
     * still being opened. `why` is valid during the call. */
    void (*conn_close)(struct lnd_conn *conn, const struct lnd_close *why);
    /* A connection was added to the set, or removed from it. */
    void (*conn_listed)(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed);
};

/* Calls under way to one kind of peer NI. lnd_connect_place() */
struct lnd_calls {
    struct share share; /* by prefix */
    unsigned n;
    struct lnd_peer_nis waiting; /* the one that waits longest for an answer first */
};

/* The part of a driver on one reactor. The LND's shard begins with it. */
struct lnd_shard {
    struct lnd_driver *driver;
    struct reactor *reactor;
    unsigned index;
    unsigned users; /* NIs that run */
    struct reactor_poller poller;
    struct lnd_pool conns, peers;
    struct lnd_calls calls[2]; /* to peer NIs that are not known to answer, and to those that are */
    /* Peer NIs without connections and messages, which give way to others, oldest first. */
    struct lnd_peer_nis spare;
    struct lnd_peer_nis
        connected; /* those with a set, in the order in which evict.c looks at them */
};

struct lnd_driver {
    const struct lnd_proto *proto;
    unsigned max_conns;                    /* connections per reactor; as many peer NIs */
    unsigned min_reconnect, max_reconnect; /* s, back-off of connection attempts */
    struct lnet_node *node;
    unsigned nshards;
    void *shards;                    /* lnd_shard_at() */
    struct lnd_ni *nis[LNET_MAX_NI]; /* control thread */
    unsigned nnis;
    uint64_t last_incarnation;
};

/* Prepares a driver, whose bytes are zero. max_conns 0: the protocol's own. Control thread. */
void lnd_driver_init(struct lnd_driver *driver, const struct lnd_proto *proto, unsigned max_conns,
                     unsigned min_reconnect, unsigned max_reconnect);

/* Makes the parts of a driver on all reactors, unless there are any. 0 or -ENOMEM with an error.
 * Control thread. */
int lnd_shards_init(struct lnd_driver *driver, struct lnet_node *node, struct err *err);
/* Returns the part of a driver on reactor i. */
static inline struct lnd_shard *lnd_shard_at(const struct lnd_driver *driver, unsigned i)
{
    return (void *)((char *)driver->shards + i * driver->proto->shard_size);
}
/* Returns the bytes of heap that one shard takes, without what shard_init() allocates. */
size_t lnd_shard_bytes(const struct lnd_proto *proto, unsigned max_conns);

/* Returns how many peer NIs of one kind may be called at once. */
static inline unsigned lnd_calls_most(unsigned max_conns)
{
    return max_conns < 4 ? 1 : max_conns / 4;
}

/* Returns a setting that the control thread may change while an NI runs. Any thread. */
static inline int lnd_setting(const int *setting)
{
    return relaxed_load(setting);
}
/* Returns the LND timeout of an NI in us: its own, or what follows from the settings of the node.
 * Any thread. */
static inline uint64_t lnd_timeout_us(const struct lnet_ni *ni)
{
    int own = lnd_setting(&ni->lnd_tun.timeout);

    return (own > 0 ? (uint64_t)own : lnet_lnd_timeout(ni->node)) * LND_SEC;
}

#endif
