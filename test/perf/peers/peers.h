/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Engine `peers`: many simulated LNet nodes on a port, each with an address and a NID of its own, a
 * set of typed connections to the router, and eight credits. A peer is a few hundred bytes and
 * shows on the wire what such a node shows, so that the router limits a run, not the peers.
 *
 * peers.c makes the ports and is the engine's table; peers_dial.c calls the router; peers_conn.c is
 * a connection: frames in and out; peers_msg.c LNet messages, those of the load and those that are
 * answered; peers_serve.c what is received as a server.
 *
 * All but what engine.h says runs on the engine's home reactor. docs/protocol/socklnd.md.
 */
#ifndef MILLRACE_PEERS_H
#define MILLRACE_PEERS_H

#include "app/millrace-perf/perf.h"
#include "lib/base/err.h"
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "lib/lnd_eth/stream.h"

#include <sys/queue.h>

#define PEERS_MAX    16384u
#define PEER_CREDITS 8 /* messages that are not wholly in the send buffer */
#define PEER_BUFFER                                                                                \
    (64u << 10) /* bytes that the router's TCP has not acknowledged: a socket's send buffer */
#define PEER_CONNS    3   /* control, bulk in, bulk out */
#define PEER_ANSWERS  24u /* waiting to be sent; with more it does not read */
#define PEER_OWN      4u  /* … and of its own */
#define PEERS_OPS     16384u
#define PEERS_RUNS    64
#define PEERS_DIALS   64 /* peers that call at once */
#define PEERS_SMALL   96 /* payload of pings and reports that is kept */
#define PEERS_WINDOW  (256u << 10)
#define PEERS_CHUNK   32768u /* of the pattern in one buffer */
#define PEERS_CHUNKS  (PATTERN_SIZE / PEERS_CHUNK)
#define PEERS_HEAD    (SOCK_FRAME_SIZE + LNET_HDR4_SIZE)
#define PEERS_SEGS    (LNET_MAX_PAYLOAD / PEERS_CHUNK + 2)
#define PEERS_PING    (UINT64_C(1) << 63) /* in an object cookie: of a ping, to the gateway … */
#define PEERS_PING_TO (UINT64_C(1) << 62) /* … or to the target that the low bits name */

struct peers;
struct peer;

/* The options that only this engine has. */
struct peers_opts {
    const char *port; /* of the sources (command put, get, both) or, of a server, of the targets */
    const char *server_port; /* of the targets, if they are in this process as well; or NULL */
    struct perf_range peers; /* of the sources, or, of a server, those who serve */
    struct lnet_nid gateway; /* the router on the net of `port` */
    struct lnet_nid server_gateway; /* the router on the net of `server_port` */
};
extern struct peers_opts peers_opts;
extern const struct perf_engine_ops engine_peers;

/* A message that is to be sent, with its header and perhaps a small payload behind it. */
struct peers_tx {
    TAILQ_ENTRY(peers_tx) link; /* in peer.wait or peer_conn.queue, or the free list */
    struct peer *peer;
    struct peers_op *op; /* NULL: an answer or a ping */
    bool credit;         /* takes one: all but NOOPs */
    uint16_t head_len;
    uint32_t offset, length; /* of the pattern: what follows */
    uint8_t head[PEERS_HEAD + PEERS_SMALL];
};
TAILQ_HEAD(peers_txs, peers_tx);

enum peers_op_state {
    PEERS_OP_FREE,
    PEERS_OP_QUEUED, /* not all of it is the transport's */
    PEERS_OP_SENT,
    PEERS_OP_UNSENT, /* will never leave */
    PEERS_OP_GONE,   /* given up while it is half sent */
};

#define PEERS_OP_REPORT OP_KINDS /* a GET of a receiver's record */

/* A PUT or GET of the load. */
struct peers_op {
    struct peers_tx tx;
    TAILQ_ENTRY(peers_op) link; /* peer.ops, or the free list */
    uint32_t generation;
    uint8_t state; /* enum peers_op_state */
    uint8_t kind;  /* enum perf_op, or PEERS_OP_REPORT */
    bool verify;
    uint32_t length;
    uint32_t expect; /* GET: where in the pattern what comes is from */
    uint64_t cookie;
};
TAILQ_HEAD(peers_ops, peers_op);

enum peer_rx_state {
    PEER_RX_HELLO,
    PEER_RX_FRAME,
    PEER_RX_PAYLOAD
};

/* How a payload is used as it arrives. */
enum peer_rx_use {
    PEER_RX_DROP,
    PEER_RX_SUM,     /* PUT: summed */
    PEER_RX_COMPARE, /* REPLY: compared with the pattern */
    PEER_RX_KEEP,    /* the first PEERS_SMALL bytes are kept */
};

struct peer_conn {
    struct peer *peer;
    struct stream *stream; /* NULL: there is none */
    enum sock_ctype type;
    bool up;     /* HELLOs were exchanged */
    bool called; /* by the other: a request comes before its HELLO, and ours answers that */
    bool asked;  /* … which has come */
    /* out */
    struct peers_txs queue;
    uint32_t tx_done;           /* bytes of its first that the transport has */
    uint64_t out;               /* bytes that it took in all */
    uint64_t acked;             /* … and the router's TCP has */
    uint64_t end[PEER_CREDITS]; /* where messages end whose credits are out, a ring */
    uint8_t end_at, ends;
    /* in */
    uint8_t rx_state; /* enum peer_rx_state */
    uint8_t rx_use;   /* enum peer_rx_use */
    bool paused;
    bool rx_bad; /* the payload differs from the pattern */
    uint32_t rx_left, rx_done;
    uint32_t window; /* bytes that the router may still send */
    uint64_t zc;     /* cookie to acknowledge when the payload is in; 0: none */
    struct lnet_hdr hdr;
    struct peers_op *op; /* of a REPLY; NULL: of a ping, or unknown */
    uint32_t op_generation;
    uint32_t expect; /* PEER_RX_COMPARE: where in the pattern it is from */
    struct payload_summing sum;
    uint8_t small[PEERS_SMALL];
};

enum peer_state {
    PEER_IDLE,    /* waits for its turn to call */
    PEER_DIALS,   /* connections are being made */
    PEER_PINGS,   /* … and the router is asked whether it is there */
    PEER_READY,   /* it has answered */
    PEER_PAUSES,  /* calls again in a while */
    PEER_STOPPED, /* the engine stops */
};

struct peer {
    struct peers *e;
    TAILQ_ENTRY(peer) link; /* peers.idle */
    struct lnet_nid nid;
    uint8_t state; /* enum peer_state */
    uint8_t side;  /* 0: the port of the sources, 1: of the targets */
    uint8_t credits;
    bool was_ready;
    uint8_t pauses; /* in a row */
    uint16_t answers;
    uint64_t gateway_incarnation;
    uint32_t ping; /* number of its last one to the gateway */
    struct peer_conn conn[PEER_CONNS];
    struct peers_txs wait; /* for credits, or for the connections */
    struct peers_ops ops;  /* of the load, from this peer */
    struct reactor_timer timer;
};
TAILQ_HEAD(peer_list, peer);

/* The messages of one run of a client that were received. */
struct peers_run {
    uint32_t number;
    struct track track;
    struct run_report report;
};

/* One side: a port, its peers, and the router on its net. */
struct peers_side {
    const char *device;
    struct perf_range range;
    struct lnet_nid gateway;
    struct peer *peer; /* range.count of them */
    bool serves;
    char ifname[16];
};

struct peers_ports;

struct peers {
    struct perf_engine base;
    struct peers_ports *ports;         /* NULL: the transport is a test's */
    struct stream_transport transport; /* of both sides */
    struct peers_side side[2];
    unsigned sides;
    unsigned all; /* peers of both */
    bool direct;  /* no router: the one target takes the calls of the one source */
    struct stream_listener *listener;
    uint8_t *pattern;
    uint8_t *chunk[PEERS_CHUNKS]; /* the pattern again, where the transport may refer to it */
    uint16_t chunk_region;        /* MEM_REGION_NONE: the transport copies */
    uint64_t incarnation;
    struct peer_list idle;
    unsigned dialling, ready;
    bool stopping, told_ready, told_serving;

    struct peers_op *op; /* PEERS_OPS of them */
    struct peers_ops free_ops;
    bool wanted; /* the load found none */
    struct peers_tx *answer;
    struct peers_txs free_answers;
    struct peers_op *collecting;
    uint64_t collect_until_us;
    uint32_t put_seq;

    /* Targets, as the load counts them, and whether they were heard of. */
    uint8_t *target_up;
    uint32_t targets_up, target_at;
    uint64_t round_us;    /* when those that have not answered are asked again */
    uint64_t progress_us; /* when the last was heard of, a peer or a target */
    unsigned pings_out;
    struct reactor_timer tick;
    struct reactor_task start_task, stop_task, ready_task, serving_task;
    int told_error;
    char why[160];

    struct perf_engine_counters count;
    uint64_t messages_out, messages_in; /* LNet messages of every kind, answers included */
    uint64_t connections;               /* that stand now */
    struct server_counters served;
    uint64_t drops[LNET_DROP_COUNT];
    struct peers_run *run[PEERS_RUNS];
    unsigned runs;
    bool inject_replies; /* altered content in some of them */
    uint64_t replies;
    struct reactor_stats begun; /* when the first message came or went … */
    uint64_t begun_cpu_ns;      /* … CPU time of the process then … */
    uint64_t begun_messages;    /* … so many had */
    bool has_begun;
};

/* ---- peers_port.c (control) ---- */

/* Opens ports with the addresses of both sides, and IP and TCP over them, and sets e->transport.
 * Makes perf->env too, since the ports need its memory. 0, or -errno with a sentence. */
int peers_ports_open(struct peers *e, struct err *err);
int peers_ports_start(struct peers *e, struct err *err);
/* All connections are closed. Ends in perf_engine_stopped(). */
void peers_ports_stop(struct peers *e);
void peers_ports_close(struct peers *e); /* reactor stopped; the environment too */
void peers_ports_drops(const struct peers *e, perf_row_fn row, void *arg);

/* ---- peers.c ---- */

/* NID at index of a range. */
struct lnet_nid peers_nid(const struct perf_range *r, uint32_t index);
struct lnet_nid peers_target(const struct peers *e, uint32_t index);
/* Makes peers, messages, and the pattern, which need no port. 0 or -ENOMEM. Tests call it too. */
int peers_make(struct peers *e);
void peers_unmake(struct peers *e);
/* A peer has become ready, or all of them are no longer. */
void peers_ready_changed(struct peers *e);
/* The load begins: what was spent before is not counted. */
void peers_mark_begin(struct peers *e);
/* An answer to a ping of a target. */
void peers_target_heard(struct peers *e, uint32_t index);

/* ---- peers_dial.c ---- */

/* Calls, as soon as it is its turn. */
void peer_begin(struct peer *p);
/* Connections of others' turn came free. */
void peers_dial_next(struct peers *e);
/* The HELLO on a connection was answered. */
void peer_conn_up(struct peer_conn *c);
/* The router has answered the ping. */
void peer_answered(struct peer *p);
/* Closes all its connections and fails what the load has under way there; then it calls again. why:
 * counted; broken: the router broke the protocol. */
void peer_fail(struct peer *p, enum lnet_drop why, bool broken);
void peer_stop(struct peer *p);

/* ---- peers_direct.c ---- */

/* Whether the gateways are the peers themselves, one on each side. */
bool peers_are_direct(const struct peers *e);
int peers_direct_start(struct peers *e); /* listens; control thread. 0 or -errno */
void peers_direct_stop(struct peers *e);

/* ---- peers_conn.c ---- */

extern const struct stream_events peers_events;

void peer_conn_close(struct peer_conn *c, bool abort);
/* Queues a message behind those of its peer. */
void peer_queue(struct peer *p, struct peers_tx *tx);
/* A NOOP {0, cookie}. False: nothing free to say it with. */
bool peer_noop(struct peer_conn *c, uint64_t cookie);
/* Gives what waits to the connections, as far as there are credits. */
void peer_push(struct peer *p);
/* Takes a message out of its queue; false: the transport has a part of it already. */
bool peer_unqueue(struct peers_tx *tx);
/* An answer came free: reads on, if that was what it waited for. */
void peer_resume(struct peer *p);

/* ---- peers_msg.c ---- */

/* A header has come, and room for answers is there: says what is done with its payload (rx_use and
 * what belongs to it). A reason: the router broke the protocol. */
enum lnet_drop peers_header(struct peer_conn *c);
/* Its payload is in. The same. */
enum lnet_drop peers_payload(struct peer_conn *c);
/* tx has left, or never will. */
void peers_tx_end(struct peers_tx *tx, bool sent);
/* One to send an answer with; NULL: none (the peer's are used up). */
struct peers_tx *peers_answer(struct peer *p);
/* Writes frame and header; small: bytes that follow in the same buffer. */
void peers_tx_fill(struct peers_tx *tx, struct lnet_hdr *h, const void *small, unsigned small_len);
/* GET of ping info of nid, in the name of p. */
bool peers_ping(struct peer *p, const struct lnet_nid *nid, uint64_t object);
/* Ends all messages of a peer with that error. */
void peers_fail_ops(struct peer *p, int error);
int peers_send(struct perf_engine *base, const struct perf_msg *m);
void peers_cancel(struct perf_engine *base, uint64_t cookie);
void peers_collect(struct perf_engine *base, uint32_t run, unsigned patience_ms);
void peers_collect_look(struct peers *e); /* ends it when its time is over */

/* ---- peers_serve.c ---- */

/* A PUT for the load's portal has come whole. */
void peers_put_received(struct peers *e, const struct match *m, uint32_t length, bool good);
/* The record of a run, empty if there is none. */
void peers_report(const struct peers *e, uint32_t run, uint8_t out[RUN_REPORT_SIZE]);
void peers_runs_free(struct peers *e);
uint64_t peers_missing(const struct perf_engine *base);

#endif
