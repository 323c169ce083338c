/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/*
 * The internal header of the o2iblnd LND.
 *
 *   ib_ni.c      settings, NIs, ports and their listeners
 *   ib_shard.c   the LND on one reactor: completion queues
 *   ib_peer.c    a peer NI: which connection takes a message; connections come and go
 *   ib_dial.c    opens connections
 *   ib_accept.c  accepts connections
 *   ib_why.c     reasons of failed connections in words
 *   ib_conn.c    life of a connection from its queue pair to its end: receives, queues, credits,
 *                timeouts, close and drain
 *   ib_tx.c      messages sent and their completions
 *   ib_write.c   payload as gather lists
 *   ib_rx.c      messages received
 *   ib_key.c     remote keys of transfers to us
 *   ib_info.c    what RPC shows
 *
 * ib_conn.h has what ib_conn.c, ib_tx.c, ib_write.c, ib_rx.c and ib_key.c alone share. lib/lnd has what all
 * LNDs share: NI life cycle, a peer NI's set of connections, back-off, pools.
 *
 * Ownership: a connection, its peer NI and all messages that they queue belong to the home reactor
 * of the peer NI's NID and come from the fixed pools of that reactor's shard. Messages and buffers
 * of a connection lie in its area, memory of the provider's that goes with its queue pair.
 */
/* clang-format on */
#ifndef MILLRACE_IB_INTERNAL_H
#define MILLRACE_IB_INTERNAL_H

#include "lib/base/asan.h"
#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/lnd/connect.h"
#include "lib/lnd/evict.h"
#include "lib/lnd_verbs/ib_negotiate.h"
#include "lib/lnd_verbs/lnd_verbs.h"

#define IB_CONNS_DEFAULT 1024
#define IB_WCS           32 /* completions taken at once */

struct ib_peer;
struct ib_ni;
struct ib_shard;
struct ib_rx;     /* a receive buffer and the message in it; ib_rx.c */
struct ib_tx;     /* a message of ours on a connection; ib_tx.c */
struct ib_recv;   /* a received message that the core has; ib_rx.c */
struct ib_bounce; /* memory for payload the device does not know; ib_write.c */

enum ib_conn_state { /* §6.2 */
    IB_CONN_FREE,
    IB_CONN_RESOLVING,  /* we connect: resolves address and route */
    IB_CONN_OPENING,    /* creates its queue pair */
    IB_CONN_CONNECTING, /* we connect: receives are posted, CONNREQ is sent */
    IB_CONN_ACCEPTING,  /* the peer connects: receives are posted, CONNACK is sent; messages wait in
                           `early` */
    IB_CONN_UP,
    IB_CONN_CLOSING, /* disconnecting: waits for completions; sends no new message */
    IB_CONN_SHUT,    /* the provider destroys the queue pair; RDMA_EV_CLOSED ends it */
};

TAILQ_HEAD(ib_txs, ib_tx);
TAILQ_HEAD(ib_rxs, ib_rx);

struct ib_conn {
    struct ib_shard *shard;
    struct ib_rx *rxs;
    uint32_t generation; /* of its queue pair; completions of an earlier queue pair are ignored */
    enum ib_conn_state state;
    /* ---- poisoned from here on while it is free */
    struct rdma_link link;
    struct lnd_conn base;      /* in the set, or until it is up in ibp->making */
    TAILQ_ENTRY(ib_conn) call; /* in shard->calls */
    struct ib_peer *ibp;
    bool polled; /* counted for link.cq in shard->cqs */
    struct ib_credits credits;
    struct ib_ends ends;
    uint16_t depth, frags;
    /* ---- sending, ib_tx.c; lists are empty until ib_conn_ready() */
    struct ib_tx *txs; /* all of them, in the area */
    struct ib_txs free_txs;
    struct lnet_msg_queue rsrvd; /* requests that wait for a reserve */
    struct lnet_msg_queue sendq; /* wait for credit; in order */
    struct ib_txs answers;       /* no credit needed; in order */
    struct ib_txs active_txs;    /* posted or waiting for an answer, oldest first */
    uint32_t ntxs;
    uint32_t sq_free; /* requests that may still be posted */
    struct ib_bounce *bounces, *free_bounces;
    uint64_t next_cookie;
    uint64_t sent_us;  /* last post, for the keepalive */
    uint64_t heard_us; /* last completion that the peer's device had part in */
    uint64_t probe_us; /* since then it is probed; 0: it is not */
    bool in_tx, tx_again;
    /* ---- receiving, ib_rx.c */
    struct ib_rxs early;                       /* came before it was up */
    struct ibv_recv_wr *repost, **repost_tail; /* to be posted before anything is sent */
    struct ib_recv *recvs, *free_recvs;
    struct ib_recv *revokes, **revokes_tail; /* whose windows are to be invalidated, in order */
    uint32_t nrxs, nrecvs;
    uint32_t posted;      /* receives the device has */
    uint32_t outstanding; /* signalled sends the device has */
    uint32_t held;        /* messages the core has begun to receive */
    uint32_t parsed;      /* of these, those it has not called ops->recv() for */
    /* ---- ending */
    struct lnd_close why;       /* CLOSING, SHUT */
    struct lnet_drop_why blame; /* UP: the first thing that went wrong, for the operator */
    struct reactor_timer timer; /* from ib_conn_up() on: timeouts and keepalive; then drain */
    struct reactor_timer setup; /* until then, of ib_dial.c and ib_accept.c: a stage's time */
    unsigned busy;              /* functions on the stack that use it after they return */
    bool undrained;             /* the device did not return all requests in time */
    bool ready;                 /* in shard->ready */
    struct ib_conn *next_ready;
    uint64_t up_us;
    uint32_t retries; /* refused attempts before the one that succeeded */
    uint64_t bytes_in, bytes_out;
    uint64_t given, taken; /* bytes of messages for the peer, and of those that it has taken */
};

/* The last failure or refusal of a connection of a peer NI. */
struct ib_failure {
    uint64_t when_us; /* 0: there was none */
    enum lnet_drop drop;
    struct lnet_drop_why why;
};

/* A peer NI on one NI. */
struct ib_peer {
    struct lnd_peer_ni base; /* its set begins with the connection to use next, §1.10 */
    struct ib_shard *shard;
    struct ib_ni *ini;
    struct lnd_conns making; /* not up yet */
    unsigned races;          /* connections refused in a row because we were opening one, §1.9 */
    unsigned depth_max;      /* the greatest queue depth that the device could make for it, §1.6 */
    struct {
        struct ib_ask ask;
        unsigned pause; /* s, of the next wait for the other node's connection */
        unsigned looks; /* of this run, at a call of the peer's */
        unsigned lacks; /* runs in a row that the peer refused for want of resources, while others
                           of its connections are up */
    } dial;
    struct ib_failure failure;
};

static inline struct ib_conn *ib_conn_of(struct lnd_conn *conn)
{
    return conn ? container_of(conn, struct ib_conn, base) : NULL;
}
/* All connections of a set or of ib_peer.making. */
#define IB_CONN_FOREACH(c, list)                                                                   \
    for ((c) = ib_conn_of(TAILQ_FIRST(list)); (c); (c) = ib_conn_of(TAILQ_NEXT(&(c)->base, link)))

/* An address of a device. NIs of different nets with the same address share the port and its
 * listener. */
struct ib_listener;
struct ib_port {
    struct lnd_listener base;
    struct rdma_port port;
    struct lnd_verbs *lv;
    struct ib_listener *listener; /* control; NULL: does not listen */
    unsigned bound;               /* control: NIs that were not stopped yet */
    unsigned starting;            /* reactors' parts of NIs that are not started yet. Relaxed */
    bool heard, down;             /* port.home: an event came; the last event said down */
};

/* From listen() to the last reactor's unlistened(). */
struct ib_listener {
    struct rdma_listener rdma;
    struct ib_port *port;
    struct ib_ni *last; /* the NI that ended it; set before unlisten() */
    uint8_t busy[IB_REJECT_SIZE];
};

struct ib_ni_shard {
    struct lnd_ni_shard base;
    bool unlistened; /* no more connection requests come */
    uint64_t quiesced_us;
    struct reactor_timer quiet_timer;  /* QUIESCING */
    TAILQ_ENTRY(ib_ni_shard) of_shard; /* SERVING */
    struct verbs_counters count;       /* relaxed */
};

TAILQ_HEAD(ib_ni_shards, ib_ni_shard);

struct ib_ni {
    struct lnd_ni base;
    struct lnd_verbs *lv;
    struct ib_port *port;
    struct ib_listener *ending; /* control: the listener that this NI ended */
    struct ib_terms terms;
    unsigned hiw;       /* peer_credits_hiw in use */
    unsigned sends_max; /* concurrent_sends in use */
    bool bound;         /* control: counted in port->bound */
    struct ib_ni_shard shard[];
};

/* The LND's part of a reactor. */
struct ib_shard {
    struct lnd_shard base;
    struct lnd_verbs *lv;
    struct ib_shard_cq {
        struct rdma_cq *cq; /* NULL: a free row */
        struct ib_shard *shard;
        unsigned conns; /* that use it */
        bool armed;     /* the next completion makes its descriptor readable, or has */
        bool watched;   /* the descriptor is added */
        struct reactor_fd fd;
    } * cqs;
    unsigned cq_rows; /* as many as its connections may need */
    unsigned ncqs;    /* rows in use */
    uint64_t idle_us; /* when the last completion came; 0: just now */
    uint64_t polls;   /* relaxed */
    struct ib_ni_shards nis;
    TAILQ_HEAD(, ib_conn) calls;      /* connections being accepted, oldest first */
    unsigned accepting;               /* of these */
    unsigned closing;                 /* connections that are CLOSING or SHUT */
    struct rdma_request *early;       /* requests that wait for their NI or for a connection */
    struct reactor_timer early_timer; /* while there are any */
    uint32_t generations;             /* queue pairs made so far */
    struct ib_conn *ready; /* connections with something to do in this iteration or the next */
};

struct lnd_verbs {
    struct lnd_driver base;
    struct verbs_opts opts;
    struct rdma *rdma; /* NULL: no NI yet */
};

/* From the structs of lib/lnd to those that embed them. */
#define ib_ni_of(lni)      container_of(lni, struct ib_ni, base)
#define ib_shard_of(shard) container_of(shard, struct ib_shard, base)
#define ib_ns_of(ns)       container_of(ns, struct ib_ni_shard, base)
#define ib_ns(p)           ib_ns_of((p)->base.ns)
#define ib_peer_of(lp)     container_of(lp, struct ib_peer, base)

/* ---- ib_conn.c, ib_tx.c, ib_write.c, ib_rx.c, ib_key.c: a connection (home) ---- */

/* Computes the sizes of the queue pair and the area of a connection, with or without a memory
 * window for each transfer to us. The number of fragments bounds only what the peer posts, §1.6. */
void ib_conn_sizes(unsigned depth, unsigned sends_max, bool windows, struct rdma_open *out);
/* RDMA_EV_OPENED: lays out the area for c->depth and c->frags and posts all receives. Returns 0, or
 * -errno: then the caller closes the connection. */
int ib_conn_ready(struct ib_conn *c);
/* The connection is established: c->depth and c->frags are final and not greater than before,
 * c->ends is set, the state is UP. Takes the messages that came early, and sends. */
void ib_conn_up(struct ib_conn *c);
/* Queues a message of the core's; the connection is UP. */
void ib_conn_send(struct ib_conn *c, struct lnet_msg *msg);
/* Closes a connection in any state: disconnects, waits for every completion, shuts the link, then
 * completes all messages and receives, and calls ib_peer_conn_gone() last. The caller has removed
 * it from the set. A second call has no effect: the first reason stands. */
void ib_conn_close(struct ib_conn *c, const struct lnd_close *why);
/* Counts the failure of a connection as `event` and closes it by ib_peer_conn_down(). Has no effect
 * if the connection is not up. */
void ib_conn_fail(struct ib_conn *c, const struct lnd_close *why, enum lnet_drop event,
                  const struct lnet_hdr *hdr);
/* Closes the connection unless the peer's device acknowledges something in a few seconds. Has no
 * effect on one that was heard of just now, or on which the device is sending already. State UP. */
void ib_conn_probe(struct ib_conn *c);
void ib_conn_hold(struct ib_conn *c);
void ib_conn_release(struct ib_conn *c);
/* Events of the link while its state is UP, CLOSING or SHUT; called by ib_link_event(). */
void ib_conn_event(struct ib_conn *c, const struct rdma_event *ev);
/* Handles completions of a completion queue. Returns how many. */
int ib_cq_poll(struct ib_shard *shard, struct rdma_cq *cq);
/* Runs the connections that are ready. Returns how many. */
int ib_settle_all(struct ib_shard *shard);
/* ops->recv(). */
void ib_recv(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen);
/* lnd_ops.recv_abandon */
enum lnet_abandon ib_recv_abandon(struct lnet_rx *rx, bool too_long);
/* Whether no message is being received and none will come: the peer has no credit left, or sent
 * nothing since since_us. While the NI is quiesced the peer gets no credits, and lnd_ns_progress()
 * is called whenever a message ends. */
bool ib_conn_quiet(const struct ib_conn *c, uint64_t since_us);
void ib_conn_row(const struct ib_conn *c, struct verbs_conn_row *out);

/* ---- ib_peer.c ---- */

extern const struct lnd_proto ib_proto;
void ib_peer_init(struct lnd_peer_ni *lp);
void ib_peer_abort(struct lnd_peer_ni *lp, const struct lnd_close *why);
void ib_peer_conn_listed(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed);
/* Takes a connection from the pool, in state RESOLVING (active) or OPENING, and adds it to
 * p->making. Its lists are empty and the first part of its link is filled in. NULL: none is free.
 */
struct ib_conn *ib_conn_new(struct ib_peer *p, bool active);
/* lnd_proto.conn_close: closes a connection that is not in the set. */
void ib_conn_end(struct lnd_conn *conn, const struct lnd_close *why);
/* A connection of the peer's failed before it was up: the waiting messages begin a run or fail. */
void ib_peer_call_over(struct ib_peer *p);
/* Receives the events of every link and passes each on by the connection's state. */
void ib_link_event(struct rdma_link *link, const struct rdma_event *ev);
void ib_send(struct lnet_msg *msg); /* ops->send() */
/* A connection is established: adds it to the set, reports to the core, sends the waiting messages.
 */
void ib_peer_conn_up(struct ib_peer *p, struct ib_conn *c);
/* A connection that was up failed or the other side ended it: removes it from the set, closes it,
 * and reports to the core when it was the last. */
void ib_peer_conn_down(struct ib_peer *p, struct ib_conn *c, const struct lnd_close *why,
                       const struct lnet_hdr *hdr);
/* Frees a connection that is closed. */
void ib_peer_conn_gone(struct ib_conn *c);
/* Probes the connections that are up. */
void ib_peer_probe(struct ib_peer *p);
/* Records the incarnation that the peer said. */
void ib_peer_note(struct ib_peer *p, uint64_t stamp);
/* The peer has restarted: closes all connections of its old incarnation. */
void ib_peer_restarted(struct ib_peer *p, uint64_t stamp);
void ib_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out);

/* ---- ib_dial.c, ib_accept.c ---- */

/* lnd_proto */
void ib_dial_begin(struct lnd_peer_ni *lp);
void ib_dial_next(struct lnd_peer_ni *lp);
void ib_dial_late(struct lnd_peer_ni *lp);
/* A message found a connection: opens the missing ones of a set that we began. */
void ib_dial_complete(struct ib_peer *p);
/* Handle events of a link before it is up: of a connection that we open, of one that we accept. */
void ib_dial_event(struct ib_conn *c, const struct rdma_event *ev);
void ib_accept_event(struct ib_conn *c, const struct rdma_event *ev);
struct reactor *ib_accept_route(void *arg, const void *priv, size_t len); /* rdma_listener */
void ib_accept_request(void *arg, struct rdma_request *req);
void ib_accept_early(struct reactor_timer *t); /* of ib_shard.early_timer */
/* Decides on all requests that wait for an NI of this port to start. */
void ib_accept_early_end(struct ib_shard *shard, const struct ib_port *port);
/* Creates the queue pair, for c->depth and c->frags. */
void ib_open(struct ib_conn *c);
/* RDMA_EV_OPEN_FAILED: tries again with a smaller depth. Returns false if that would not help, or
 * if the depth is the least already. */
bool ib_open_less(struct ib_conn *c, int error);
/* RDMA_EV_OPENED: polls the queue and posts the receives. Returns false if that is not possible;
 * *why has the reason. */
bool ib_opened(struct ib_conn *c, struct lnet_drop_why *why);
/* Returns how long the other node has to answer, §1.1. */
uint64_t ib_answer_us(const struct ib_ni *ini);

/* ---- ib_why.c ---- */

const char *ib_state_name(enum ib_conn_state state);
/* Return why c does not come up, with its state: from -errno and the status of the CM or the system
 * (or 0); from an event; from RDMA_EV_REJECTED. */
struct lnet_drop_why ib_why_error(const struct ib_conn *c, int error, int status);
struct lnet_drop_why ib_why_event(const struct ib_conn *c, const struct rdma_event *ev);
struct lnet_drop_why ib_why_reject(const struct ib_conn *c, const struct rdma_event *ev);
/* Record why a connection that is up fails, before ib_conn_fail(): as a static text, from a
 * completion, from -errno. The first reason stands. */
void ib_blame(struct ib_conn *c, const char *why, int code);
void ib_blame_status(struct ib_conn *c, enum ibv_wc_status status);
void ib_blame_error(struct ib_conn *c, int error);
/* Counts a failure, and keeps it to be shown with the peer. */
void ib_peer_failed(struct ib_peer *p, enum lnet_drop drop, const struct lnet_hdr *hdr,
                    const struct lnet_drop_why *why);

/* ---- ib_shard.c ---- */

/* lnd_proto */
bool ib_shard_init(struct lnd_shard *base);
void ib_shard_fini(struct lnd_shard *base);
int ib_shard_poll(void *arg);
/* Returns the bytes of heap that one shard takes. */
size_t ib_shard_bytes(unsigned max_conns);
/* Returns the rows for completion queues that so many connections need at most. */
unsigned ib_shard_cqs(unsigned max_conns);
void ib_conn_free(struct ib_conn *c);
/* Polls c->link.cq until all its connections are freed. Returns false if there are too many queues.
 */
bool ib_shard_add_cq(struct ib_conn *c);

/* ---- ib_ni.c ---- */

/* Returns how many messages may be posted at once on a connection of an NI with these peer_credits;
 * `own` is the NI's setting, 0 or -1 if it has none. */
unsigned ib_sends_max(const struct verbs_opts *o, int own, unsigned peer_credits);
static inline const struct rdma_ops *ib_rdma(const struct ib_conn *c)
{
    return c->shard->lv->opts.rdma;
}

#endif
