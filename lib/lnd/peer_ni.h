/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer NI as one local NI knows it. It has the set of connections, the messages that wait for a
 * connection, the peer's incarnation and the run of connection attempts (connect.h).
 *
 * Life: lnd_peer_get() makes a peer NI when the first message is sent to it or when it connects. It
 * is in use while it has connections, waiting messages or a run, or while a function holds it. A
 * peer NI that is not in use is spare: it keeps its back-off for a while. It is freed when the pool
 * is empty (lnd_peer_forget_one()), or proto->linger seconds after the end of its back-off.
 *
 * Rules: all functions run on the home reactor of the peer NI. The core may send new messages from
 * within lnet_send_done() and lnet_peer_ni_notify(), so a peer NI is held around calls that report
 * to the core. The peer NI is reported up when its set gets the first connection, and down when the
 * last one is lost. The same peer NI may have a set on several local NIs: watchers see one event
 * for the first connection of all, and one for the last.
 */
#ifndef MILLRACE_LND_PEER_NI_H
#define MILLRACE_LND_PEER_NI_H

#include "lib/lnd/ni.h"

enum lnd_connect_state {
    LND_CONNECT_IDLE, /* there is no run of connection attempts */
    LND_CONNECT_RUN,  /* a connection is being opened: connect.conn */
    LND_CONNECT_WAIT, /* the run goes on when connect.timer fires */
};

/* A connection. Embedded in the LND's own. */
struct lnd_conn {
    TAILQ_ENTRY(lnd_conn) link; /* of the set */
    struct lnd_conn *next;      /* in a list of connections being closed */
    bool listed;                /* in the set */
    bool initiated;             /* we opened it; else we accepted it */
};

/* Embedded in the LND's own struct, whose bytes are zero when it is made. */
struct lnd_peer_ni {
    /* ---- each message uses these ---- */
    struct lnd_ni_shard *ns;
    struct lnet_peer_ni *peer;        /* referenced */
    struct lnd_peer_ni *next_of_peer; /* sets of the same peer NI on other local NIs */
    struct lnd_conns conns;           /* the set: connections that are up */
    struct lnet_msg_queue queue;      /* wait for a connection */
    unsigned nconns;                  /* in the set */
    unsigned objects;                 /* connection objects, those not in the set included */
    unsigned accepting;               /* connections of the peer's that are not up yet */
    unsigned busy;                    /* lnd_peer_hold() */
    enum lnd_connect_state connecting;
    bool spare;  /* in shard->spare */
    bool shut;   /* by the stop of the NI */
    bool record; /* we began this set of connections, so we complete it */
    /* ---- */
    TAILQ_ENTRY(lnd_peer_ni) link; /* of ns->peers */
    TAILQ_ENTRY(lnd_peer_ni) spare_link;
    TAILQ_ENTRY(lnd_peer_ni) connected; /* while nconns > 0 */
    struct {
        struct lnd_conn *conn;       /* RUN: the one being opened; NULL between two */
        unsigned wanted;             /* conns_per_peer as it was when this set was begun */
        unsigned interval;           /* s, back-off; 0: the last run did not fail */
        uint64_t next_us;            /* no run begins before */
        enum lnet_health health;     /* messages that fail until then get this */
        struct lnd_calls *calls;     /* lnd_connect_place(); NULL: has no place */
        struct share_account *place; /* of the prefix, in these */
        TAILQ_ENTRY(lnd_peer_ni) waiting;
        uint64_t call_us; /* the last call of the run began */
        struct reactor_timer timer;
    } connect;
    struct reactor_timer queue_timer, linger_timer;
    uint64_t up_us;               /* when the set got its first connection */
    uint64_t incarnation;         /* as the peer said last */
    uint64_t bytes_in, bytes_out; /* of connections that are closed */
};

/* ---- life ---- */

/* Returns the set of this peer NI, or NULL. */
static inline struct lnd_peer_ni *lnd_peer_find(const struct lnd_ni_shard *ns,
                                                const struct lnet_peer_ni *peer)
{
    struct lnd_peer_ni *lp = (struct lnd_peer_ni *)peer->lnd_peer;

    while (lp && lp->ns != ns)
        lp = lp->next_of_peer;
    return lp;
}
/* Returns the set of this peer NI and makes it if there is none. NULL: no memory, even after
 * lnd_peer_forget_one(). */
struct lnd_peer_ni *lnd_peer_get(struct lnd_ni_shard *ns, struct lnet_peer_ni *peer);
/* The same by NID. */
struct lnd_peer_ni *lnd_peer_get_nid(struct lnd_ni_shard *ns, const struct lnet_nid *nid);
/* The same for a message to be sent. NULL: there is none, and msg was failed. */
struct lnd_peer_ni *lnd_peer_for(struct lnd_ni_shard *ns, struct lnet_msg *msg);
/* Frees the oldest spare peer NI of a reactor. Returns false when there is none. */
bool lnd_peer_forget_one(struct lnd_shard *shard);

void lnd_peer_spare_set(struct lnd_peer_ni *lp, bool spare);
void lnd_peer_idle(struct lnd_peer_ni *lp);
static inline bool lnd_peer_in_use(const struct lnd_peer_ni *lp)
{
    return lp->busy > 0 || lp->objects > 0 || STAILQ_FIRST(&lp->queue) ||
           lp->connecting != LND_CONNECT_IDLE;
}
/* Keeps lp until lnd_peer_release(). */
static inline void lnd_peer_hold(struct lnd_peer_ni *lp)
{
    lp->busy++;
    if (lp->spare)
        lnd_peer_spare_set(lp, false);
}
/* Ends a lnd_peer_hold(). May free lp. */
static inline void lnd_peer_release(struct lnd_peer_ni *lp)
{
    lp->busy--;
    if (!lnd_peer_in_use(lp))
        lnd_peer_idle(lp);
}

/* ---- messages that wait for a connection ---- */

/* Fails a message that no device and no connection has been given any part of. */
static inline void lnd_msg_fail(struct lnet_msg *msg, enum lnet_drop reason,
                                enum lnet_health health)
{
    lnet_send_done(msg, (struct lnet_result){reason, health, .unsent = true});
}
/* No connection can take msg. Queues msg for at most wait_us while a connection is being opened,
 * begins a run if it may, and else fails msg. Held by the caller. */
void lnd_peer_wait(struct lnd_peer_ni *lp, struct lnet_msg *msg, uint64_t wait_us);
/* Arms the timer for the first message of the queue, or stops it when the queue is empty. */
void lnd_queue_timer_set(struct lnd_peer_ni *lp);
/* Fails all messages of a list. */
void lnd_msgs_fail(struct lnet_msg *list, enum lnet_drop reason, enum lnet_health health);
/* Fails all messages of the queue, but not those that the core sends meanwhile. */
void lnd_peer_fail_queue(struct lnd_peer_ni *lp, enum lnet_drop reason, enum lnet_health health);

/* ---- the set ---- */

/* Records the incarnation that the peer said, and posts an event when it is a new one. Returns
 * whether this set knew another incarnation before. */
bool lnd_peer_note(struct lnd_peer_ni *lp, uint64_t incarnation);
/* Adds an established connection to the set, and reports the peer NI up if it is the first. Held by
 * the caller. */
void lnd_conn_up(struct lnd_peer_ni *lp, struct lnd_conn *conn);
/* Removes one connection from the set, closes it, and reports the peer NI down if it was the last.
 * Held by the caller. */
void lnd_conn_down(struct lnd_peer_ni *lp, struct lnd_conn *conn, const struct lnd_close *why);
/* Removes all connections from the set, then closes them, then reports the peer NI down. */
void lnd_peer_close(struct lnd_peer_ni *lp, const struct lnd_close *why);
/* Ends the run, fails waiting messages and closes all connections for a reason of the core's. */
void lnd_peer_abort(struct lnd_peer_ni *lp, enum lnet_drop reason);
/* Whether there are connections and the peer opened all of them. Then the peer completes the set.
 */
bool lnd_peer_began(const struct lnd_peer_ni *lp);

#endif
