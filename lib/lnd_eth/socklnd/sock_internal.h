/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/*
 * What the files of the socklnd LND share.
 *
 *   sock_ni.c      NIs, shards and their pools; settings
 *   sock_link.c    addresses of the host's interfaces, link watcher
 *   sock_port.c    the same for interfaces that are ports
 *   sock_accept.c  accepts connections: request and HELLO on the listener's reactor, then the
 *                  decision on the initiator's home reactor
 *   sock_dial.c    opens connections
 *   sock_peer.c    a peer NI: which connection takes a message, keepalive
 *   sock_conn.c    life of one connection
 *   sock_rx.c      receive machine for frames
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
#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/socklnd/socklnd_wire.h"

#define SOCK_CONNS_DEFAULT 8192
#define SOCK_BULK_MAX      127  /* BULK connections of one type a peer may open, §3.4 */
#define SOCK_HS_MAX        1024 /* handshakes pending on one reactor */
#define SOCK_HS_PER_SOURCE 32   /* of these from one address */
#define SOCK_ACKS          64   /* ZC-ACKs a connection may owe before it stops reading */
#define SOCK_SCRATCH       65536
#define SOCK_TAKE_SEGS     4096 /* segments of one message taken from a transport */
#define SOCK_TAKES         256  /* messages held as segments of the transport, per reactor */
#define SOCK_HOMES         1024 /* addresses of ports: INET_IF_MAX * INET_ADDR_MAX */
#define SOCK_DOUBT         (2 * LND_SEC)  /* heard of more recently: certainly alive */
#define SOCK_PING_GAP      (10 * LND_SEC) /* between keepalives to a peer, §3.5 */

struct sock_conn;
struct sock_peer;
struct sock_ni;
struct sock_shard;

enum sock_conn_state {
    SOCK_CONN_FREE,
    SOCK_CONN_CONNECTING, /* dialled, TCP not up yet */
    SOCK_CONN_HELLO,      /* dialled, request and HELLO written, waits for the peer's HELLO */
    SOCK_CONN_UP,         /* frames */
    SOCK_CONN_DEAD,       /* stream gone; waits until nobody is inside it and the core let go */
};

enum sock_ready {
    SOCK_NOT_READY,
    SOCK_READY, /* in shard->ready: next round */
    SOCK_TURN,  /* in shard->turn: this round */
};

enum sock_rx_state { /* §4.4 */
    SOCK_RX_FRAME,   /* wants a frame header; the only state between messages */
    SOCK_RX_HDR,     /* wants an LNet header */
    SOCK_RX_PARSE,   /* header given to the core, which has not called recv yet */
    SOCK_RX_PAYLOAD, /* wants payload for the core's segments */
    SOCK_RX_SLOP,    /* throws the rest of the payload away */
};

/* Segments taken from a take-mode transport, lent to the core. */
struct sock_take {
    struct sock_shard *shard;
    const struct stream_ops *ops; /* of the stream they came from, which may have ended */
    struct mem_seg segs[SOCK_TAKE_SEGS];
};

/* In blocks of two cache lines: messages touch the first five when they come in and the first two
 * when they go out. */
struct sock_conn {
    struct sock_shard *shard;
    struct sock_peer *sp;
    struct stream *stream; /* NULL: closed */
    enum sock_conn_state state;
    enum sock_ctype type; /* as we see it */
    enum sock_ready ready;
    unsigned busy; /* calls on the stack that will look at it again */
    enum sock_rx_state rx_state;
    bool in_rx;
    bool in_tx;
    bool tx_blocked; /* waits for writable() */
    bool parked;     /* transport told to stop reading */
    bool rx_begun;   /* bytes of a frame have come */
    bool draining;   /* counted in the NI shard's `begun` */
    bool rx_asked;   /* lnet_rx_cancel() said: recv will come */
    TAILQ_ENTRY(sock_conn) ready_link;
    struct lnet_msg *txq, **txq_tail;         /* the first may be partly sent */
    struct lnet_msg *unacked, **unacked_tail; /* by-reference transports */
    uint64_t sent_total;                      /* bytes the stream took */
    uint64_t rx_us;                           /* last progress of receiving */
    struct sock_take *take;                   /* what `place` is a part of, or NULL */
    /* ---- block 1: sending */
    uint64_t txq_bytes;
    uint64_t sent_us;    /* the stream last took bytes other than keepalives */
    uint64_t tx_us;      /* last acknowledged, or nothing to acknowledge */
    uint64_t used;       /* shard->uses when last chosen */
    uint64_t seen_acked; /* bytes acknowledged at the last look */
    uint16_t raw_len, raw_sent;
    uint16_t noop_sent; /* bytes gone of the NOOP for acks[ack_head] */
    uint16_t ack_head, nacks;
    /* receiving */
    uint32_t seg_off;
    const struct mem_seg *segs; /* the core's; NULL: hand over own */
    struct mem_seg *place;      /* own ones so far, or NULL: in `take` or in the message */
    unsigned nsegs, seg;
    uint32_t mlen; /* payload bytes wanted */
    uint32_t left; /* of these still to come */
    uint32_t slop; /* bytes to throw away afterwards */
    uint32_t crc;
    struct sock_frame frame;
    /* ---- blocks 2 to 4 */
    struct lnet_rx rx __attribute__((aligned(CPU_BLOCK)));
    struct lnet_grant grant; /* take mode: what the peer may send */
    /* ---- not for each message */
    struct lnd_conn base;
    uint64_t acks[SOCK_ACKS];                   /* cookies; SOCK_COOKIE_PING = keepalive */
    uint8_t raw[SOCK_REQ_MAX + SOCK_HELLO_MAX]; /* request and HELLO, in front of everything */
} __attribute__((aligned(CPU_BLOCK)));

_Static_assert(offsetof(struct sock_conn, txq_bytes) == CPU_BLOCK, "blocks of two cache lines");
_Static_assert(offsetof(struct sock_conn, rx) == 2 * CPU_BLOCK, "blocks of two cache lines");

TAILQ_HEAD(sock_conns, sock_conn); /* ready ones */

/* A peer NI on one NI. Messages use the first block. */
struct sock_peer {
    struct sock_ni *sni;
    struct sock_conn *only[2]; /* takes all messages, bulk ones; NULL: choose() looks */
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

/* An accepted connection until its HELLO is complete, and on its way to the caller's home. */
struct sock_hs {
    struct sock_shard *shard; /* the listener's */
    struct sock_listener *listener;
    struct sock_ni *sni; /* once the request named it */
    struct stream *stream;
    union stream_addr addr;
    bool hello;  /* stage: request or HELLO */
    bool away;   /* the listener's: sent to another reactor and not back yet */
    bool waited; /* the home reactor's: it looked a second time */
    size_t want; /* bytes of it wanted so far */
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
    struct sock_nis nis;            /* its shard's: those that take new connections */
    struct sock_hss hss;
};

struct sock_link; /* sock_link.c */

/* Watches the interface of an NI on a port. The control thread hears of changes and sends each to
 * the reactor that tells the core, one at a time. */
struct sock_watch {
    struct inet_watch watch;
    struct reactor_task task;
    bool on;   /* control */
    bool away; /* control: the task is on its way there or back */
    bool up;   /* control: as it is now */
    bool told; /* whose task it is: as it is told */
};

struct sock_ni_shard {
    struct lnd_ni_shard base;
    unsigned begun;   /* connections in the middle of a message, while quiescing */
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
    uint64_t incarnation;
    struct sock_listener *listener;
    struct sock_link *link;
    unsigned link_shard;
    TAILQ_ENTRY(sock_ni) of_listener;
    struct sock_ni_shard shard[];
};

/* The LND's part of a reactor. */
struct sock_shard {
    struct lnd_shard base;
    struct lnd_sock *sock;
    struct sock_conns ready; /* connections with something to do, in order */
    struct sock_conns turn;  /* those whose turn it is */
    struct lnd_pool hss, takes;
    uint64_t uses; /* messages given to connections */
    uint8_t *scratch;
};

/* The net that an address of a port stands for. Rows are added and never go, so that any reactor
 * may read them; there are as many as NIs can have different addresses. */
struct sock_home {
    struct inet_addr addr;
    lnet_net_t net; /* of the first of its NIs; relaxed */
    unsigned refs;  /* control: NIs that have the address */
};

struct lnd_sock {
    struct lnd_driver base;
    struct sock_opts opts;
    struct sock_hello_map *map;
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
/* Puts a connection on its reactor's list of those with something to do. */
void sock_ready(struct sock_conn *c);
void sock_unready(struct sock_conn *c);
void sock_event(struct sock_ni *sni, enum lnet_drop reason, const struct lnet_nid *peer,
                const struct lnet_hdr *hdr);

/* ---- sock_link.c ---- */
/* NI's address from its interface or the other way round. Control thread. 0 or -errno, sentence. */
int sock_link_resolve(struct sock_ni *sni, struct err *err);
struct sock_link *sock_link_new(void);
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
/* As sock_link_resolve() for an NI on a port, whose interface and transport it becomes. 1; 0: it is
 * on none; -errno with a sentence. */
int sock_port_resolve(struct sock_ni *sni, struct err *err);
void sock_port_watch(struct sock_ni *sni);   /* its reactors have been told to start */
void sock_port_unwatch(struct sock_ni *sni); /* before they are told to stop */
void sock_port_free(struct sock_ni *sni);

/* ---- sock_accept.c ---- */
/* The HELLO version of all connections of an NI: v3 over IPv4, v4 over IPv6, §2.2. A peer's NID
 * does not decide: with a hello_map entry an IPv4 NID may call over IPv6, as kernel nodes do [cap:
 * G-02]. */
uint32_t sock_hello_version(const struct sock_ni *sni);
/* Sets the version that connections of sp and queued messages use. sp has no connection. */
void sock_peer_version(struct sock_peer *sp, uint32_t version);
/* The listener of an NI's address, made if there is none; not listening yet. Control. */
int sock_listener_get(struct sock_ni *sni);
void sock_listener_put(struct sock_ni *sni);
int sock_listen(struct lnd_ni *lni, struct err *err); /* lnd_proto.listen */
/* The NI takes connections of its listener from now on, or no longer; the last one closes the
 * listener and what is pending. On the listener's shard. */
void sock_serve(struct sock_ni *sni);
void sock_unlisten(struct sock_ni *sni);
/* Writes our HELLO. in: the peer's when answering, else NULL. Returns its size. */
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
/* The peer opened a connection: a run waits before it opens the next one. */
void sock_dial_yield(struct sock_peer *sp);
void sock_dial_readable(struct sock_conn *c);
void sock_dial_connected(struct sock_conn *c);
void sock_dial_closed(struct sock_conn *c, enum stream_end end);

/* ---- sock_peer.c ---- */
/* lnd_proto */
void sock_peer_init(struct lnd_peer_ni *lp);
void sock_peer_fini(struct lnd_peer_ni *lp);
void sock_peer_conn_listed(struct lnd_peer_ni *lp, struct lnd_conn *conn, bool listed);
void sock_send(struct lnet_msg *msg);
/* A connection is established: it is listed and takes waiting messages. */
void sock_peer_conn_up(struct sock_peer *sp, struct sock_conn *c, uint64_t incarnation);
/* Closes all connections of the set, §6.1. */
void sock_peer_close(struct sock_peer *sp, const struct lnd_close *why, const struct lnet_hdr *hdr);
/* The same because the peer came in another incarnation: what we had with it before is dead. */
void sock_peer_restarted(struct sock_peer *sp, uint64_t incarnation);
/* Something makes us doubt that the peer still has its ends: a keepalive shows. */
void sock_peer_probe(struct sock_peer *sp);
void sock_peer_info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out);

/* ---- sock_conn.c ---- */
extern const struct stream_events sock_conn_events;
struct sock_conn *sock_conn_new(struct sock_peer *sp, enum sock_ctype type);
void sock_conn_hold(struct sock_conn *c);
void sock_conn_release(struct sock_conn *c);
/* Closes this connection only. The object is freed when no function is inside it and the core does
 * not use it any more. */
void sock_conn_close(struct sock_conn *c, const struct lnd_close *why);
void sock_conn_end(struct lnd_conn *conn, const struct lnd_close *why); /* lnd_proto.conn_close */
/* A protocol error: counts it and closes the whole set. */
void sock_conn_fail(struct sock_conn *c, enum lnet_drop reason, const struct lnet_hdr *hdr);
/* Looks for stalls; false: the set was closed. */
bool sock_conn_check(struct sock_conn *c, uint64_t now);

/* ---- sock_rx.c ---- */
/* The connection is up. */
void sock_rx_open(struct sock_conn *c);
void sock_rx_run(struct sock_conn *c);
void sock_rx_readable(struct sock_conn *c);
/* Something that kept it from reading may be gone. */
void sock_rx_resume(struct sock_conn *c);
void sock_rx_recv(struct lnet_rx *rx, const struct mem_seg *segs, unsigned nsegs, uint32_t mlen);
bool sock_rx_give_up(struct lnet_rx *rx, bool too_long); /* lnd_ops.recv_abandon */
/* The connection is being closed. */
void sock_rx_abandon(struct sock_conn *c, const struct lnd_close *why);
/* Nobody is inside the dead connection: true when the core holds nothing of it any more. */
bool sock_rx_let_go(struct sock_conn *c);

/* ---- sock_tx.c ---- */
void sock_tx_run(struct sock_conn *c);
void sock_tx_queue(struct sock_conn *c, struct lnet_msg *msg);
/* Queues a NOOP {0, cookie} in front of all messages not begun and sends. False: no room. */
bool sock_tx_ack(struct sock_conn *c, uint64_t cookie);
void sock_tx_acked(struct sock_conn *c);
void sock_tx_abandon(struct sock_conn *c, const struct lnd_close *why);
bool sock_tx_idle(const struct sock_conn *c);

#endif
