/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/*
 * The internal header of the socklnd LND.
 *
 *   sock_ni.c      NIs, shards and their pools; settings
 *   sock_link.c    addresses of the host's interfaces, link watcher
 *   sock_port.c    the same for interfaces that are ports
 *   sock_accept.c  accepts connections: request and HELLO on the listener's reactor, then the
 *                  decision on the initiator's home reactor
 *   sock_dial.c    opens connections
 *   sock_peer.c    a peer NI: which connection takes a message, keepalive
 *   sock_conn.c    life of one connection
 *   sock_rx.c      receive machine for established: frames
 *   sock_tx.c      transmit queue
 *
 * lib/lnd has what all LNDs share: NI life cycle, a peer NI's set of connections, back-off, pools.
 *
 * Ownership: a connection, its peer NI and all messages that they queue belong to the home reactor
 * of the peer NI's NID. A handshake (sock_hs) belongs to its listener's reactor, travels once to
 * the home reactor with its stream, and comes back empty. Connections, peer NIs and handshakes come
 * from the fixed pools of a reactor's shard.
 */
/* clang-format on */
#ifndef MILLRACE_SOCK_INTERNAL_H
#define MILLRACE_SOCK_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/err.h"
#include "lib/base/minmax.h"
#include "lib/base/prefetch.h"
#include "lib/lnd/connect.h"
#include "lib/lnd/evict.h"
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/socklnd/socklnd_wire.h"

#define SOCK_CONNS_DEFAULT 8192
#define SOCK_BULK_MAX      127  /* BULK connections of one type that any node opens, §3.4 */
#define SOCK_BULK_SLACK    16   /* those a peer may open in any case; above: four times our own */
#define SOCK_HS_MAX        1024 /* handshakes pending on one reactor */
#define SOCK_HS_PER_SOURCE 32   /* of these, from one address */
#define SOCK_HS_FEW        2    /* of these, from one address, while there is no free place */
#define SOCK_HS_CROWD      256  /* of these, from one prefix: more make room first */
#define SOCK_ACKS          64   /* ZC-ACKs a connection may owe before it stops reading */
#define SOCK_SCRATCH       65536
#define SOCK_TAKE_SEGS     4096           /* segments of one message taken from a transport */
#define SOCK_TAKES         256            /* messages whose segments the core has, per reactor */
#define SOCK_HOMES         1024           /* addresses of ports: INET_IF_MAX * INET_ADDR_MAX */
#define SOCK_DOUBT         (2 * LND_SEC)  /* a peer that sent something more recently is alive */
#define SOCK_PING_GAP      (10 * LND_SEC) /* between keepalives to a peer, §3.5 */

struct sock_conn;
struct sock_peer;
struct sock_ni;
struct sock_shard;

enum sock_conn_state {
    SOCK_CONN_FREE,
    SOCK_CONN_CONNECTING, /* we connect; the stream is not up yet */
    SOCK_CONN_HELLO, /* we connect: request and HELLO are written; waits for the peer's HELLO */
    SOCK_CONN_UP,    /* frames */
    SOCK_CONN_DEAD,  /* closed; waits until no function is inside it and the core does not use it */
};

enum sock_ready {
    SOCK_NOT_READY,
    SOCK_READY, /* in shard->ready: runs in the next iteration */
    SOCK_TURN,  /* in shard->turn: runs in this iteration */
    SOCK_MUCH,  /* in shard->much: has more to read than one run takes, and runs when its turn comes
                 */
};

enum sock_rx_state { /* §4.4 */
    SOCK_RX_FRAME,   /* wants a frame header; the only state between messages */
    SOCK_RX_HDR,     /* wants an LNet header */
    SOCK_RX_PARSE,   /* the core has the header and has not called recv yet */
    SOCK_RX_PAYLOAD, /* wants payload for the core's segments */
    SOCK_RX_SLOP,    /* discards the rest of the payload */
};

/* Segments taken from a take-mode transport, lent to the core. */
struct sock_take {
    struct sock_shard *shard;
    const struct stream_ops *ops; /* of the stream they came from, which may be closed */
    struct mem_seg segs[SOCK_TAKE_SEGS];
};

/* A connection. In blocks of two cache lines: a received message uses the first five, a sent
 * message the first two. */
struct sock_conn {
    struct sock_shard *shard;
    struct sock_peer *sp;
    struct stream *stream; /* NULL: closed */
    enum sock_conn_state state;
    enum sock_ctype type; /* as we see it */
    enum sock_ready ready;
    unsigned busy; /* functions on the stack that use it after they return */
    enum sock_rx_state rx_state;
    bool in_rx;
    bool in_tx;
    bool tx_blocked; /* waits for writable() */
    bool parked;     /* the transport does not read */
    bool quiet;      /* the transport reports no data until the next run */
    bool rx_begun;   /* bytes of a frame have come */
    bool draining;   /* counted in the NI shard's `begun` */
    bool rx_asked;   /* lnet_rx_cancel() returned that recv will come */
    TAILQ_ENTRY(sock_conn) ready_link;
    struct lnet_msg_queue txq;     /* the first may be partly sent */
    struct lnet_msg_queue unacked; /* by-reference transports */
    uint64_t sent_total;           /* bytes that the stream accepted */
    uint64_t rx_us;                /* last progress of receiving */
    struct sock_take *take;        /* what `place` is a part of, or NULL */
    /* ---- block 1: sending */
    uint64_t txq_bytes;
    uint64_t sent_us;    /* the stream last took bytes other than keepalives */
    uint64_t tx_us;      /* last acknowledged, or nothing to acknowledge */
    uint64_t used;       /* shard->uses when last chosen */
    uint64_t seen_acked; /* bytes acknowledged at the last check */
    uint16_t raw_len, raw_sent;
    uint16_t noop_sent; /* bytes sent of the NOOP for acks[ack_head] */
    uint16_t ack_head, nacks;
    /* receiving */
    uint32_t seg_off;
    const struct mem_seg *segs; /* the core's; NULL: the transport's own are handed over */
    struct mem_seg *place;      /* the transport's so far, in `take` or in the message; or NULL */
    unsigned nsegs, seg;
    uint32_t mlen;       /* payload bytes wanted */
    uint32_t left;       /* of these, not received yet */
    uint32_t paced_left; /* of these, when there was progress last */
    uint32_t slop;       /* bytes to discard afterwards */
    uint32_t crc;
    struct sock_frame frame;
    /* ---- blocks 2 to 4 */
    struct lnet_rx rx __attribute__((aligned(CPU_BLOCK)));
    struct lnet_grant grant; /* take mode: what the peer may send */
    /* ---- not for each message */
    struct lnd_conn base;
    uint64_t acks[SOCK_ACKS];                   /* cookies; SOCK_COOKIE_PING = keepalive */
    uint8_t raw[SOCK_REQ_MAX + SOCK_HELLO_MAX]; /* request and HELLO, sent first */
} __attribute__((aligned(CPU_BLOCK)));

_Static_assert(offsetof(struct sock_conn, txq_bytes) == CPU_BLOCK, "blocks of two cache lines");
_Static_assert(offsetof(struct sock_conn, rx) == 2 * CPU_BLOCK, "blocks of two cache lines");

TAILQ_HEAD(sock_conns, sock_conn); /* ready ones */

/* A peer NI on one NI. Messages use the first block. */
struct sock_peer {
    struct sock_ni *sni;
    struct sock_conn *only[2]; /* takes all messages, bulk ones; NULL: choose() decides */
    uint64_t alive_us;         /* bytes came, or were acknowledged, or a connection came up */
    uint16_t count[4];         /* of connections in the set, by type */
    uint32_t version;          /* sock_hello_version() */
    struct lnd_peer_ni base;
    struct {
        bool complete; /* the peer refuses more connections than it has */
        bool yield;    /* the peer opened a connection meanwhile */
        unsigned refusals;
        uint64_t started_us;
    } dial;
    struct reactor_timer poll_timer;
    uint64_t ping_us; /* last keepalive */
} __attribute__((aligned(CPU_BLOCK)));

_Static_assert(offsetof(struct sock_peer, base) + offsetof(struct lnd_peer_ni, link) <= CPU_BLOCK,
               "what messages use lies in the first block");

static inline struct sock_conn *sock_conn_of(struct lnd_conn *conn)
{
    return conn ? container_of(conn, struct sock_conn, base) : NULL;
}
/* All connections in the set of sp. */
#define SOCK_CONN_FOREACH(c, sp)                                                                   \
    for ((c) = sock_conn_of(TAILQ_FIRST(&(sp)->base.conns)); (c);                                  \
         (c) = sock_conn_of(TAILQ_NEXT(&(c)->base, link)))

/* A handshake: an accepted connection until its HELLO is complete, and on its way to the home
 * reactor of the initiator. */
struct sock_hs {
    struct sock_shard *shard; /* the listener's */
    struct sock_listener *listener;
    struct sock_ni *sni; /* once the request named it */
    struct stream *stream;
    union stream_addr addr;
    struct share_account *account; /* of the address */
    uint16_t of_address;           /* handshakes that it had pending when this one came */
    bool hello;                    /* stage: request or HELLO */
    bool away;                     /* listener's reactor: it is on another reactor */
    bool waited;                   /* home reactor: it decides for the second time */
    bool scarce;                   /* its transport has few places left */
    size_t want;                   /* bytes of that wanted so far */
    struct sock_hello in;
    struct reactor_timer timer;
    struct reactor_timer home_timer;
    struct reactor_task task;
    TAILQ_ENTRY(sock_hs) link;
};

TAILQ_HEAD(sock_hss, sock_hs);

TAILQ_HEAD(sock_nis, sock_ni);

/* One listening socket; several NIs may have the same address on different nets. */
struct sock_listener {
    struct lnd_listener base;
    struct lnd_sock *sock;
    union stream_addr addr;
    struct sock_shard *shard;
    struct stream_listener *stream; /* NULL: does not listen */
    struct sock_nis nis;            /* its shard's: NIs that take new connections */
};

/* Watches the link and the address of an NI on an interface of the host's. */
struct sock_link {
    struct sock_ni *sni;
    struct reactor_fd fd;
    int sock; /* netlink, while `on` */
    unsigned ifindex;
    bool on, has_link, has_address, up;
};

/* Watches the link of an NI on a port. The control thread receives the changes and sends one at a
 * time to the reactor that reports to the core. */
struct sock_watch {
    struct inet_watch watch;
    struct reactor_task task;
    bool on;   /* control */
    bool away; /* control: the task was posted and has not come back */
    bool up;   /* control: the link's state */
    bool told; /* owner of the task: the state being reported */
};

struct sock_ni_shard {
    struct lnd_ni_shard base;
    unsigned begun;   /* QUIESCING: connections in the middle of a message */
    unsigned hs_away; /* handshakes on their way from here to other reactors */
};

struct sock_ni {
    struct lnd_ni base;
    struct lnd_sock *sock;
    union stream_addr addr; /* port 0 */
    unsigned ifindex;
    struct stream_transport transport;
    struct inet_if *ifp; /* the port's; NULL: an interface of the host's */
    struct sock_home *home;
    struct sock_watch watch;
    struct sock_listener *listener;
    struct sock_link link;
    unsigned link_shard;
    TAILQ_ENTRY(sock_ni) of_listener;
    struct sock_ni_shard shard[];
};

/* The LND's part of a reactor. */
struct sock_shard {
    struct lnd_shard base;
    struct lnd_sock *sock;
    struct sock_conns ready; /* connections with something to do, in order */
    struct sock_conns turn;  /* connections to run in this iteration */
    struct sock_conns much;  /* connections with much to read: some of them in each iteration */
    unsigned nmuch;          /* connections in it */
    size_t spent;            /* of that: what runs have read, in units of sock_rx_run() */
    struct lnd_pool hss, takes;
    struct sock_hss pending; /* handshakes, oldest first */
    struct share callers;    /* addresses that have handshakes pending */
    unsigned ncallers;
    uint64_t uses; /* messages given to connections */
    uint8_t *scratch;
};

/* The net that belongs to an address of a port. Rows are added and never removed, so that any
 * reactor may read them. There are as many rows as NIs can have different addresses. */
struct sock_home {
    struct inet_addr addr;
    lnet_net_t net; /* of the first of its NIs; relaxed */
    unsigned refs;  /* control: NIs that have the address */
};

struct lnd_sock {
    struct lnd_driver base;
    struct sock_opts opts;
    struct lnd_source_map *map;
    struct sock_home home[SOCK_HOMES];
    unsigned nhomes; /* released when a row is complete */
};

/* From the structs of lib/lnd to those that embed them. */
#define sock_ni_of(lni)      container_of(lni, struct sock_ni, base)
#define sock_shard_of(shard) container_of(shard, struct sock_shard, base)
#define sock_ns_of(ns)       container_of(ns, struct sock_ni_shard, base)
#define sock_ns(sp)          sock_ns_of((sp)->base.ns)
#define sock_peer_of(lp)     container_of(lp, struct sock_peer, base)

/* ---- sock_ni.c ---- */
extern const struct lnd_proto sock_proto;
/* Adds a connection to the list of ready connections of its reactor, or removes it. */
void sock_ready(struct sock_conn *c);
void sock_unready(struct sock_conn *c);
/* Lets a connection wait for its turn among those that have much to read, also with what it has to
 * send. So many such connections do not delay the others. */
void sock_much(struct sock_conn *c);

/* ---- sock_link.c ---- */
/* Finds the NI's address from its interface, or its interface from its address. Control thread. 0
 * or -errno with an error. */
int sock_link_resolve(struct sock_ni *sni, struct err *err);
int sock_link_conns_by_speed(const char *ifname);
void sock_link_start(struct sock_ni *sni); /* on its shard */
void sock_link_stop(struct sock_ni *sni);
void sock_addr_to_nid(lnet_net_t net, const union stream_addr *addr, struct lnet_nid *out);
/* Address and port of a NID. */
void sock_nid_to_addr(const struct sock_ni *sni, const struct lnet_nid *nid, uint16_t port,
                      union stream_addr *out);
int sock_link_conns_of_speed(unsigned mbit); /* §3.1 */
uint16_t sock_addr_port(const union stream_addr *addr);
bool sock_addr_same(const union stream_addr *a, const union stream_addr *b); /* without port */

/* ---- sock_port.c; control thread ---- */
/* Does the same as sock_link_resolve() for an NI on a port, and sets its interface and transport.
 * Returns 1; 0 if it is not on a port; or -errno with an error. */
int sock_port_resolve(struct sock_ni *sni, struct err *err);
void sock_port_watch(struct sock_ni *sni);   /* after its reactors were told to start */
void sock_port_unwatch(struct sock_ni *sni); /* before they are told to stop */
void sock_port_free(struct sock_ni *sni);

/* ---- sock_accept.c ---- */
/* The HELLO version of all connections of an NI: v3 over IPv4, v4 over IPv6, §2.2. A peer's NID
 * does not decide: with a hello_map entry an IPv4 NID may call over IPv6, as kernel nodes do [cap:
 * G-02]. */
uint32_t sock_hello_version(const struct sock_ni *sni);
/* Sets the version that connections of sp and queued messages use. sp has no connection. */
void sock_peer_version(struct sock_peer *sp, uint32_t version);
/* Finds or makes the listener of an NI's address. It does not listen yet. Control thread. */
int sock_listener_get(struct sock_ni *sni);
int sock_listen(struct lnd_ni *lni, struct err *err); /* lnd_proto.listen */
/* Ends that the NI takes connections of its listener. The last NI closes the listener and the
 * pending handshakes. On the listener's shard. */
void sock_unlisten(struct sock_ni *sni);
/* Encodes our HELLO. in: the peer's HELLO in an answer, else NULL. Returns the size. */
size_t sock_hello_write(const struct sock_ni *sni, uint32_t version, const struct lnet_nid *dst,
                        enum sock_ctype type, const struct sock_hello *in,
                        uint8_t buf[SOCK_HELLO_MAX]);

/* ---- sock_dial.c ---- */
/* lnd_proto: a run begins; its next connection; its time for one connection has passed. */
void sock_dial_begin(struct lnd_peer_ni *lp);
void sock_dial_next(struct lnd_peer_ni *lp);
void sock_dial_late(struct lnd_peer_ni *lp);
/* A message found a connection: opens what is missing of a set that we began. */
void sock_dial_complete(struct sock_peer *sp);
/* Whether a call of ours is under way that the peer is about to answer: §2.5 #1. */
bool sock_dial_races(const struct sock_peer *sp);
/* The peer opened a connection: a run waits before it opens the next one, and a call that the peer
 * is not about to answer ends. */
void sock_dial_yield(struct sock_peer *sp);
/* sp->version has changed: a connection that we open begins anew with a HELLO of that version. */
void sock_dial_other_version(struct sock_peer *sp);
void sock_dial_readable(struct sock_conn *c);
void sock_dial_connected(struct sock_conn *c);
void sock_dial_closed(struct sock_conn *c, enum stream_end end);

/* ---- sock_peer.c ---- */
/* lnd_proto */
void sock_peer_init(struct lnd_peer_ni *lp);
void sock_peer_fini(struct lnd_peer_ni *lp);
void sock_peer_conn_listed(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed);
void sock_send(struct lnet_msg *msg);
/* A connection is established: adds it to the set and sends the waiting messages. */
void sock_peer_conn_up(struct sock_peer *sp, struct sock_conn *c, uint64_t incarnation);
/* Closes all connections of the set, §6.1. */
void sock_peer_close(struct sock_peer *sp, const struct lnd_close *why, const struct lnet_hdr *hdr);
/* Closes all connections because the peer has restarted with another incarnation. */
void sock_peer_restarted(struct sock_peer *sp, uint64_t incarnation);
/* Sends a keepalive to find out whether the peer still has its ends of the connections. */
void sock_peer_probe(struct sock_peer *sp);
void sock_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out);

/* ---- sock_conn.c ---- */
extern const struct stream_events sock_conn_events;
struct sock_conn *sock_conn_new(struct sock_peer *sp, enum sock_ctype type);
void sock_conn_hold(struct sock_conn *c);
void sock_conn_release(struct sock_conn *c);
/* lnd_proto.conn_close: closes this connection only. The object is freed when no function is inside
 * it and the core does not use it any more. */
void sock_conn_close(struct lnd_conn *conn, const struct lnd_close *why);
/* Counts a protocol error and closes the whole set. */
void sock_conn_fail(struct sock_conn *c, enum lnet_drop reason, const struct lnet_hdr *hdr);
/* Checks a connection for stalls. Returns false if it closed the set. */
bool sock_conn_check(struct sock_conn *c, uint64_t now);

/* ---- sock_rx.c ---- */
/* The connection is up: opens its grant. */
void sock_rx_open(struct sock_conn *c);
void sock_rx_run(struct sock_conn *c);
void sock_rx_readable(struct sock_conn *c);
/* Continues to read if the reason for which the connection stopped has passed. */
void sock_rx_resume(struct sock_conn *c);
void sock_rx_recv(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen);
/* lnd_ops.recv_abandon */
enum lnet_abandon sock_rx_give_up(struct lnet_rx *rx, bool too_long);
/* The connection is being closed: fails the receive. */
void sock_rx_abandon(struct sock_conn *c, const struct lnd_close *why);
/* Returns whether the core does not use the dead connection any more. No function is inside it. */
bool sock_rx_let_go(struct sock_conn *c);

/* ---- sock_tx.c ---- */
void sock_tx_run(struct sock_conn *c);
void sock_tx_queue(struct sock_conn *c, struct lnet_msg *msg);
/* Queues a NOOP {0, cookie} before all messages that are not begun, and sends. Returns false if
 * there is no room. */
bool sock_tx_ack(struct sock_conn *c, uint64_t cookie);
void sock_tx_acked(struct sock_conn *c);
void sock_tx_abandon(struct sock_conn *c, const struct lnd_close *why);
bool sock_tx_idle(const struct sock_conn *c);

#endif
