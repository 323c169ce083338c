/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life cycle of an NI of an LND.
 *
 * An NI has a part on each reactor (lnd_ni_shard). The control thread starts, quiesces and stops
 * the NI: it posts the request to all parts, waits until each has answered, and then answers the
 * core. NIs with one address share a listener.
 *
 * States: enum lnd_ni_state. Each part of an NI has a state of its own, which its reactor alone
 * reads and writes. The NI as a whole has one for the control thread: NEW, SERVING from start on,
 * QUIESCING, STOPPING until all parts have answered, STOPPED. A state is never left for an earlier
 * one. A stop may come without a quiesce, and while the answer to one is still missing.
 *
 * The functions that take a struct lnet_ni or a context are those of struct lnd_ops; an LND puts
 * them into its table as they are, or calls them from its own.
 */
#ifndef MILLRACE_LND_NI_H
#define MILLRACE_LND_NI_H

#include "lib/lnd/driver.h"

enum lnd_ni_state {
    LND_NI_NEW,       /* not started: refuses messages to be sent */
    LND_NI_SERVING,   /* sends and receives messages, takes and opens connections */
    LND_NI_QUIESCING, /* takes no connections and no new messages; those begun are finished */
    LND_NI_QUIET,     /* all messages begun are finished, and quiesce was answered */
    LND_NI_STOPPING,  /* refuses messages to be sent, closes all connections */
    LND_NI_STOPPED,   /* all is closed, and stop was answered */
};

/* The part of an NI on one reactor. The LND's own begins with it. */
struct lnd_ni_shard {
    struct lnd_shard *shard;
    struct lnd_ni *lni;
    enum lnd_ni_state state;
    struct lnd_peer_nis peers;
    struct reactor_task start, quiesce, stop; /* control -> reactor */
    struct reactor_task quiet, stopped;       /* reactor -> control */
};

/* A listener of one address: embedded in the LND's own. Control thread. */
struct lnd_listener {
    unsigned refs;  /* NIs that have it */
    unsigned users; /* of these, started and not told yet to take no more connections */
};

/* An NI. The LND's own begins with it and ends with an array of its parts. */
struct lnd_ni {
    struct lnet_ni *ni;
    struct lnd_driver *driver;
    struct lnd_listener *listener; /* lnd_listener_get() */
    enum lnd_ni_state state;       /* control */
    bool serving;                  /* control: counted in listener->users */
    bool last;                     /* it ends its listener; set before its parts are told */
    uint64_t incarnation;          /* in units of proto->stamp_ns; set before ni_init() */
    unsigned pins;                 /* control: lnd_ni_pin() */
    unsigned quiet_wait;           /* control: parts that have not answered yet */
    unsigned stop_wait;
    struct reactor_task *quiesce_done, *stop_done;
};

static inline const struct lnd_proto *lnd_proto_of(const struct lnd_ni *lni)
{
    return lni->driver->proto;
}
/* Returns the part of an NI on reactor i. */
static inline struct lnd_ni_shard *lnd_ns_at(struct lnd_ni *lni, unsigned i)
{
    const struct lnd_proto *proto = lnd_proto_of(lni);

    return (void *)((char *)lni + proto->ni_size + i * proto->ni_shard_size);
}
/* Whether messages may be sent. Home reactor, as the next one. */
static inline bool lnd_ns_sends(const struct lnd_ni_shard *ns)
{
    return ns->state > LND_NI_NEW && ns->state < LND_NI_STOPPING;
}
/* Whether connections and new messages are refused: from quiesce or stop on. */
static inline bool lnd_ns_is_shut(const struct lnd_ni_shard *ns)
{
    return ns->state >= LND_NI_QUIESCING;
}
static inline bool lnd_ns_is_stopping(const struct lnd_ni_shard *ns)
{
    return ns->state >= LND_NI_STOPPING;
}
/* Counts something refused or dropped on an NI, see lnet_drop_event(). Any reactor. */
static inline void lnd_drop(const struct lnd_ni *lni, enum lnet_drop reason,
                            const struct lnet_nid *peer, const struct lnet_hdr *hdr)
{
    lnet_drop_event(lni->ni->node, reason, lni->ni, peer, hdr);
}
/* Something that quiesce or stop may wait for has ended: answers them when nothing is left. */
void lnd_ns_progress(struct lnd_ni_shard *ns);

/* ---- settings, tunables.c; control thread ---- */

/* Replaces credits and peer_credits of -1 by their defaults. */
void lnd_credits_default(struct lnet_tunables *tun);
/* Replace settings of -1 by their defaults and check the others. 0 or -EINVAL with an error. */
int lnd_check_tunables(const struct lnd_proto *proto, struct lnet_tunables *tun, struct err *err);
int lnd_check_lnd_tunables(struct lnd_ni *lni, struct lnd_tunables *tun, struct err *err);

/* ---- struct lnd_ops ---- */

/* The rows that all LNDs have in that table. An LND adds its own start and stop. */
#define LND_OPS_COMMON                                                                             \
    .connects = true, .ni_init = lnd_ni_init, .ni_set = lnd_ni_set, .ni_quiesce = lnd_ni_quiesce,  \
    .ni_fini = lnd_ni_fini, .peer_abort = lnd_ni_peer_abort, .peer_connect = lnd_ni_peer_connect,  \
    .peer_free = lnd_peer_free, .peer_shrink = lnd_peer_shrink

int lnd_ni_init(struct lnet_ni *ni, struct err *err);
int lnd_ni_start(struct lnet_ni *ni, struct err *err);
int lnd_ni_set(struct lnet_ni *ni, const struct lnd_tunables *set, struct err *err);
void lnd_ni_quiesce(struct lnet_ni *ni, struct reactor_task *done);
void lnd_ni_stop(struct lnet_ni *ni, struct reactor_task *done);
void lnd_ni_fini(struct lnet_ni *ni);
void lnd_ni_peer_abort(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop reason);
bool lnd_ni_peer_connect(struct lnet_ni *ni, struct lnet_peer_ni *peer, bool give_up);
void lnd_peer_free(struct lnet_peer_ni *peer);
void lnd_peer_shrink(void *ctx);

/* ---- control thread ---- */

/* Makes the NI one of those that have the listener. */
void lnd_listener_get(struct lnd_ni *lni, struct lnd_listener *listener);
/* Ends that. Returns whether no NI has the listener any more: then the LND frees it. */
bool lnd_listener_put(struct lnd_ni *lni);
/* Returns what an operator may look for when listening failed with -errno rc; "" for nothing. */
const char *lnd_listen_hint(int rc);

/* Keeps a stop from being answered until lnd_ni_unpin(). */
void lnd_ni_pin(struct lnd_ni *lni);
void lnd_ni_unpin(struct lnd_ni *lni);

#endif
