/* SPDX-License-Identifier: BSD-3-Clause */
/* clang-format off */
/*
 * Shared by the files of own TCP. A connection has three parts, each with its own files:
 *
 *   the connection
 *     tcp_conn.c      life, closing, keepalive
 *     tcp_listen.c    half-open connections, ISN
 *     tcp_cookie.c    SYN cookies
 *     tcp_flow.c      owner of packets: table, moves between reactors
 *     tcp_input.c     RFC 9293 §3.10.7 in its order
 *     tcp_orphan.c    connections that the user has closed
 *     tcp_timewait.c  TIME-WAIT
 *   receiving (rx)
 *     tcp_rx.c        queue, out of order, SACK blocks
 *     tcp_read.c      reading by the user, window
 *   sending (tx)
 *     tcp_tx.c        what may be sent now, cut into segments
 *     tcp_queue.c     send queue
 *     tcp_sack.c      scoreboard
 *     tcp_rack.c      RACK-TLP
 *     tcp_recover.c   state of congestion control, proportional rate reduction
 *     tcp_rto.c       RTO, persist
 *     tcp_cc.c, tcp_cubic.c, tcp_newreno.c   congestion windows
 *     tcp_mtu.c       path MTU
 *
 * tcp_out.c makes every segment; tcp_wire.c has the one validator and the writer of header and
 * options; tcp_stream.c is the table of stream.h; tcp_info.c has figures for operators.
 */
/* clang-format on */
#ifndef MILLRACE_TCP_INTERNAL_H
#define MILLRACE_TCP_INTERNAL_H

#include "lib/base/atomic.h"
#include "lib/base/container.h"
#include "lib/base/minmax.h"
#include "lib/base/prefetch.h"
#include "lib/lnd_eth/tcp/tcp.h"
#include "lib/lnd_eth/tcp/tcp_rx.h"
#include "lib/lnd_eth/tcp/tcp_tx.h"
#include "lib/lnd_eth/tcp/tcp_wire.h"

#include <sys/queue.h>

/* ---- sequence numbers, RFC 9293 §3.4 ---- */
static inline bool seq_lt(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}
static inline bool seq_leq(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) <= 0;
}
static inline uint32_t seq_max(uint32_t a, uint32_t b)
{
    return seq_lt(a, b) ? b : a;
}
static inline uint32_t seq_min(uint32_t a, uint32_t b)
{
    return seq_lt(a, b) ? a : b;
}

enum tcp_state {
    TCP_CLOSED,   /* in the pool, or its stream waits for close() after an end */
    TCP_SYN_SENT, /* dialled: SYN is out */
    TCP_SYN_RCVD, /* called, or both called at once: our SYN is not acknowledged yet */
    TCP_ESTABLISHED,
    TCP_FIN_WAIT_1, /* we closed: FIN queued or sent, not acknowledged */
    TCP_FIN_WAIT_2, /* FIN acknowledged, the peer may still send */
    TCP_CLOSE_WAIT, /* the peer closed, we have not */
    TCP_CLOSING,    /* both closed at once, our FIN is not acknowledged */
    TCP_LAST_ACK,   /* the peer closed first, our FIN is not acknowledged */
    TCP_TIME_WAIT,  /* kept small, tcp_timewait.c */
};

struct tcp_shard;
struct tcp_listener;
struct tcp_stub;

/* ---- who a packet is for ---- */

struct tcp_key {
    struct inet_addr local, remote;
    const struct inet_if *scope; /* link-local: of which interface; else NULL */
    uint16_t lport, rport;
};

enum tcp_flow_kind {
    TCP_FLOW_CONN, /* struct tcp_conn */
    TCP_FLOW_STUB, /* struct tcp_stub: lives elsewhere, or is on its way */
    TCP_FLOW_TW,   /* struct tcp_tw */
};

/* An entry of a reactor's table, part of what it is for. */
struct tcp_flow {
    SLIST_ENTRY(tcp_flow) link;
    uint32_t hash;
    uint8_t kind; /* enum tcp_flow_kind */
    bool in;      /* in a table */
    struct tcp_key key;
};
SLIST_HEAD(tcp_flows, tcp_flow);

_Static_assert(sizeof(struct tcp_flow) == RTE_CACHE_LINE_SIZE, "a look-up touches one line");

/* Limits answers in a stretch of time. */
struct tcp_budget {
    uint64_t since_us; /* 0: none was given yet */
    unsigned left;
};

/* Fields that each segment touches come first, in the order of the blocks that tcp_input()
 * fetches. */
struct tcp_conn {
    struct stream base;      /* first; what the user holds */
    struct tcp_shard *sh;    /* whose reactor has it now */
    struct tcp_shard *owner; /* whose pool it is of */
    enum tcp_state state;
    bool user_gone;   /* the user closed: no more callbacks */
    bool attached;    /* to sh: events are delivered */
    bool told_closed; /* closed() was delivered */
    bool ended;       /* by other than the user: `end` says how, told when all was read */
    bool released;    /* on its way back to the pool */
    enum stream_end end;
    const struct stream_events *ev;
    void *user;

    _Alignas(RTE_CACHE_LINE_SIZE) struct tcp_flow flow; /* tcp_flow.c */

    struct inet_path path;
    uint16_t lport, rport;
    uint8_t tos;                    /* without ECN bits */
    bool ts_on;                     /* timestamps agreed */
    bool sack_on;                   /* SACK agreed */
    bool ws_on;                     /* window scale agreed */
    bool ecn_on;                    /* ECN agreed, RFC 3168 */
    bool ecn_echo;                  /* CE was seen: ECE until the peer says CWR */
    uint8_t snd_wscale, rcv_wscale; /* agreed shift counts */
    uint16_t peer_mss;              /* as the peer's SYN said, or the default */
    uint32_t mss; /* payload we put into a segment now: path, peer and options considered */
    uint32_t iss, irs;
    uint32_t snd_max;   /* behind the last that was ever sent; a RST comes from there */
    uint32_t ts_offset; /* added to our clock in TSval */
    uint32_t ts_recent; /* RFC 7323 §4.3 */
    uint64_t ts_recent_us;
    uint64_t heard_us;     /* last segment of the peer */
    uint64_t confirmed_us; /* when the neighbour was last confirmed */

    /* acknowledging */
    bool ack_now; /* at the end of this burst */
    /* work at the end of the burst: what is in shard->work is looked at by tcp_flush() */
    bool in_work;
    struct tcp_conns *work_list; /* shard->work or shard->much, if in_work */
    bool tell_readable, tell_writable, tell_acked, tell_connected;
    uint32_t last_ack_sent; /* rcv.nxt in the last segment sent, RFC 7323 §4.3 */
    struct reactor_timer ack_timer;
    TAILQ_ENTRY(tcp_conn) work_link;

    struct tcp_tx tx; /* tcp_tx.h */
    struct tcp_rx rx; /* tcp_rx.h */

    struct tcp_counts count;
    struct tcp_listener *listener; /* half-open or not told yet: whose */

    struct reactor_timer conn_timer; /* handshake, FIN-WAIT-2, keepalive: one at a time by state */
    uint64_t made_us;
    uint64_t syn_us;   /* when our SYN was last sent */
    unsigned tries;    /* of the handshake, or keepalive probes without an answer */
    uint64_t probe_us; /* the last one of keepalive */
    bool keepalive;    /* on, as established() asked */
    struct tcp_budget challenges, answers; /* answers: to keepalive probes */

    /* tcp_flow.c */
    struct tcp_stub *left; /* detached: holds its packets at left_sh */
    struct tcp_shard *left_sh;
    struct tcp_shard *home; /* where another reactor's packets are sent on to this one, or NULL */
    bool home_waits;        /* dialled: the SYN goes when the home knows */
    bool time_wait;         /* leaves a TIME-WAIT behind */

    struct tcp_conn *next;      /* free list */
    TAILQ_ENTRY(tcp_conn) link; /* in shard->conns, or shard->half */
    struct tcp_conns *orphans;  /* the list of orphans that it is in, or NULL */
    TAILQ_ENTRY(tcp_conn) orphan_link;
    struct reactor_task task; /* between reactors */
};

TAILQ_HEAD(tcp_conns, tcp_conn);

static inline struct tcp_conn *tcp_conn_of(struct stream *s)
{
    return container_of(s, struct tcp_conn, base);
}

/* ---- what one part asks of another. All on the connection's reactor. ---- */

/* Puts c on one of the lists of those that tcp_flush() looks at. */
void tcp_work(struct tcp_conn *c);
/* Ends a connection for a cause other than the user: RST, time-out, refusal. Sends nothing,
 * notifies the user (closed()) in tcp_flush(), frees queued data. Received data may still be
 * read. tcp_conn.c. A connection without references is freed by this function and by the next
 * two. */
void tcp_conn_end(struct tcp_conn *c, enum stream_end end);
/* The same, and the peer is told with RST. */
void tcp_conn_abort(struct tcp_conn *c, enum stream_end end);

/* tcp_out.c: makes and sends one segment with the present acknowledgement, window, timestamp and
 * SACK blocks. payload: a chain of bytes without headers (taken), or NULL. flags: TCP_FLAG_*.
 * tso: the port cuts the payload into c->mss. Returns false when no buffer was free or no path is
 * left: nothing was sent, payload is freed, and loss recovery treats the segment as lost. */
bool tcp_out(struct tcp_conn *c, uint32_t seq, uint8_t flags, struct rte_mbuf *payload, bool tso);
/* A bare ACK now. */
void tcp_out_ack(struct tcp_conn *c);
/* Most payload bytes one call of tcp_out() may have with tso, 0: the port has none. */
uint32_t tcp_out_tso_max(const struct tcp_conn *c);
/* Bytes of options in a data segment now. c->mss leaves room for those that are always there (a
 * timestamp); SACK blocks come on top: a segment takes c->mss less what this is above
 * tcp_out_options_least(). */
unsigned tcp_out_options(const struct tcp_conn *c);
static inline unsigned tcp_out_options_least(const struct tcp_conn *c)
{
    return c->ts_on ? 12 : 0;
}
/* A RST in answer to a segment that no connection wants, RFC 9293 §3.10.7.1. Takes m. */
void tcp_out_reset(struct tcp_shard *sh, struct rte_mbuf *m, const struct tcp_seg *seg,
                   const struct tcp_key *key);
/* A segment without payload for who has no connection (any more). */
void tcp_out_bare(struct tcp_shard *sh, const struct tcp_key *key, struct inet_if *ifp,
                  const struct tcp_seg *seg, uint8_t tos);
/* Looks up the path again if it may have changed. False: there is none any more. */
bool tcp_out_path(struct tcp_conn *c);
/* Path, MTU and peer have changed: c->mss. */
void tcp_out_mss(struct tcp_conn *c);

/* Our clock in TSval units (1 ms) with that offset; monotonic across restarts of the process. */
uint32_t tcp_ts(const struct tcp *tcp, uint32_t offset);
/* The same for a connection. */
uint32_t tcp_ts_now(const struct tcp_conn *c);

/* ---- tcp_orphan.c ---- */

void tcp_orphans_init(struct tcp_shard *sh);
/* Its user has closed it in order, and its queue has data or our FIN. It may be reset by this call,
 * if buffers are short. */
void tcp_orphan_closed(struct tcp_conn *c);
void tcp_orphan_fin_acked(struct tcp_conn *c);
/* It ends. Does nothing with one that is no orphan. */
void tcp_orphan_leave(struct tcp_conn *c);
/* Resets the oldest orphan, if there is one, for its place; one whose data the peer has not got
 * comes last. */
void tcp_orphan_reset(struct tcp_shard *sh);

/* ---- tcp_conn.c ---- */

/* From the pool of sh, in no table yet; NULL: none is left. */
struct tcp_conn *tcp_conn_new(struct tcp_shard *sh, const struct tcp_key *key,
                              const struct inet_path *path);
/* Returns the object to the pool. It must have no references and no resources. */
void tcp_conn_release(struct tcp_conn *c);
/* Into and out of the lists of the reactor that has it. */
void tcp_conn_enter(struct tcp_conn *c, struct tcp_shard *sh);
void tcp_conn_exit(struct tcp_conn *c);
/* The first SYN of a dialled connection, and each after it. */
void tcp_conn_syn(struct tcp_conn *c);
void tcp_conn_syn_ack(struct tcp_conn *c);
/* Our SYN was answered with an ACK of something else: the next one goes soon. */
void tcp_conn_syn_soon(struct tcp_conn *c);
/* Our SYN is acknowledged by seg: ESTABLISHED. */
void tcp_conn_up(struct tcp_conn *c, const struct tcp_seg *seg);
/* The peer's FIN is in order. */
void tcp_conn_fin(struct tcp_conn *c);
/* Runs after a segment: ends states, frees connections without references. */
void tcp_conn_settle(struct tcp_conn *c);
void tcp_keep_start(struct tcp_conn *c);
/* The user closes, or aborts. c is gone for the user. */
void tcp_conn_close(struct tcp_conn *c, bool abort);

/* ---- tcp_listen.c ---- */

struct tcp_listener {
    struct stream_listener base;
    struct tcp *tcp;
    struct inet_addr addr;
    bool any; /* all addresses of the family */
    bool v4;
    struct inet_if *ifp; /* NULL: whichever */
    uint16_t port;
    struct tcp_shard *on;
    void (*accepted)(void *user, struct stream *s, const union stream_addr *peer);
    void *user;
    bool dead;                     /* on->reactor: no caller is accepted any more */
    unsigned known;                /* control: reactors that have it in their tables */
    struct reactor_task task;      /* to control */
    LIST_ENTRY(tcp_listener) link; /* control: all of them */
    struct tcp_listen_at {
        struct reactor_task add, del;
        struct tcp_listener *l;
        LIST_ENTRY(tcp_listen_at) link;
    } at[]; /* by reactor */
};

/* listen() and unlisten() of stream.h. */
int tcp_listen(void *ctx, const union stream_addr *addr, const char *ifname, struct reactor *on,
               void (*accepted)(void *user, struct stream *s, const union stream_addr *peer),
               void *user, struct stream_listener **out);
void tcp_unlisten(struct stream_listener *listener);
struct tcp_listener *tcp_listener_find(struct tcp_shard *sh, const struct tcp_key *key,
                                       const struct inet_if *ifp);
/* A SYN for l, on its reactor (RFC 9293 §3.10.7.2). iss_after: a number that our ISS must be above,
 * or NULL. Takes m. */
void tcp_listen_syn(struct tcp_shard *sh, struct tcp_listener *l, const struct tcp_key *key,
                    const struct tcp_seg *seg, struct rte_mbuf *m, const uint32_t *iss_after);
/* Makes the connection anew whose SYN was read from a cookie, as it was before seg came; NULL: m
 * was dropped. */
struct tcp_conn *tcp_listen_again(struct tcp_shard *sh, struct tcp_listener *l,
                                  const struct tcp_key *key, const struct tcp_seg *syn,
                                  const struct tcp_seg *seg, struct rte_mbuf *m);
/* stream_ops.scarce: places for connections are few. */
bool tcp_listen_scarce(const struct stream *s);
/* Tells the listener, from tcp_flush(). */
void tcp_listen_tell(struct tcp_conn *c);
uint32_t tcp_isn(struct tcp *tcp, const struct tcp_key *key); /* RFC 6528 */
uint32_t tcp_ts_offset(struct tcp *tcp, const struct tcp_key *key);
/* Fills in the options that a SYN offers or accepts. */
void tcp_syn_options(struct tcp_conn *c, const struct tcp_seg *seg);

/* ---- tcp_cookie.c ---- */

/* Makes the ISS of a half-open connection, whose options are known, a cookie. False: it cannot. */
bool tcp_cookie_make(struct tcp_conn *c);
/* Whether seg acknowledges a cookie of a moment ago: then what is known of its SYN is in *syn. */
bool tcp_cookie_read(struct tcp_shard *sh, const struct tcp_key *key, const struct tcp_seg *seg,
                     struct tcp_seg *syn);

/* ---- tcp_flow.c ---- */

#define TCP_HELD_MAX 64 /* packets that wait for a connection on its way */

/* Stands for a connection that is on another reactor, or on its way to one. */
struct tcp_stub {
    struct tcp_flow flow;
    struct tcp_shard *owner; /* whose pool it is of */
    struct tcp_shard *at;    /* whose table it is in */
    struct tcp_shard *to; /* the reactor of the connection; NULL: not known yet, packets are kept */
    struct tcp_shard *arrived; /* the reactor that reported the arrival */
    bool home;                 /* stays as long as the connection does */
    bool refused;              /* `at` had another connection of these addresses */
    struct tcp_conn *dialled;  /* waits for this entry to be there */
    struct rte_mbuf *held[TCP_HELD_MAX];
    unsigned nheld;
    uint64_t until_us; /* forwards until then */
    struct reactor_task task, answer;
    struct tcp_stub *next;
    TAILQ_ENTRY(tcp_stub) link; /* in shard->fading, oldest first */
};
TAILQ_HEAD(tcp_stubs, tcp_stub);

uint32_t tcp_key_hash(const struct tcp *tcp, const struct tcp_key *key);
void tcp_key_make(struct tcp_key *key, const struct inet_addr *local,
                  const struct inet_addr *remote, uint16_t lport, uint16_t rport,
                  const struct inet_if *ifp);
struct tcp_flow *tcp_flow_find(struct tcp_shard *sh, const struct tcp_key *key, uint32_t hash);
void tcp_flow_insert(struct tcp_shard *sh, struct tcp_flow *f);
void tcp_flow_remove(struct tcp_shard *sh, struct tcp_flow *f);
/* Hands a packet over to the reactor that it is for. */
void tcp_pass_on(struct tcp_shard *sh, struct rte_mbuf *m, const struct tcp_shard *to);
/* The connection leaves its reactor; its packets are held until another has it. */
void tcp_flow_leave(struct tcp_conn *c);
/* It comes to sh, this reactor. Packets that were held here are dealt with. */
void tcp_flow_arrive(struct tcp_conn *c, struct tcp_shard *sh);
/* A packet for a connection that is elsewhere. Takes m. False: go on as if there were no entry. */
bool tcp_flow_stub(struct tcp_shard *sh, struct tcp_stub *s, const struct tcp_seg *seg,
                   struct rte_mbuf *m);
/* The home of a dialled connection is another reactor: it is told, and then the SYN goes. */
bool tcp_flow_dial(struct tcp_conn *c);
/* Stubs that have forwarded long enough go. */
void tcp_flow_fade(struct tcp_shard *sh, uint64_t now_us);
/* Ends the connection on sh: its stubs are removed, and the object returns to its own pool. */
void tcp_flow_gone(struct tcp_conn *c);

/* ---- tcp_timewait.c ---- */

#define TCP_TIME_WAIT_US (60 * UINT64_C(1000000))

struct tcp_tw {
    struct tcp_flow flow;
    struct inet_if *ifp;
    uint32_t snd_nxt, rcv_nxt, ts_recent, ts_offset;
    uint16_t win; /* of the ACKs, as on the wire */
    bool ts_on;
    uint8_t tos;
    struct tcp_budget challenges;
    uint64_t until_us;
    struct tcp_tw *next;
    TAILQ_ENTRY(tcp_tw) link; /* oldest first */
};
TAILQ_HEAD(tcp_tws, tcp_tw);

void tcp_tw_add(struct tcp_shard *sh, const struct tcp_conn *c);
/* A segment for it (RFC 9293 §3.10.7.4, RFC 6191). Takes m. */
void tcp_tw_input(struct tcp_shard *sh, struct tcp_tw *tw, const struct tcp_seg *seg,
                  const struct tcp_key *key, struct rte_mbuf *m);
/* We dial the same addresses: whether they may be used again; then it is gone. */
bool tcp_tw_reuse(struct tcp_shard *sh, struct tcp_tw *tw);
void tcp_tw_free(struct tcp_shard *sh, struct tcp_tw *tw);

/* ---- tcp_input.c ---- */

void tcp_input(void *ctx, struct inet_shard *ish, struct rte_mbuf *const *m, unsigned n);
void tcp_icmp_error(void *ctx, struct inet_shard *ish, const struct inet_error *e);
/* A segment that no connection here is for: RFC 9293 §3.10.7.1 and .2. iss_after: as
 * tcp_listen_syn() has it. Takes m. */
void tcp_no_connection(struct tcp_shard *sh, const struct tcp_key *key, const struct tcp_seg *seg,
                       struct rte_mbuf *m, const uint32_t *iss_after);
/* RFC 5961 §7: takes one of the challenge ACKs that a connection may send. Returns false if none is
 * left, and counts that. */
bool tcp_challenge_allowed(struct tcp_shard *sh, struct tcp_budget *b);

/* ---- tcp.c ---- */

void tcp_addr_in(const union stream_addr *addr, struct inet_addr *out, uint16_t *port);
void tcp_addr_out(const struct inet_addr *addr, uint16_t port, union stream_addr *out);

unsigned tcp_flush(void *ctx, struct inet_shard *ish);

/* ---- a reactor's part ---- */

struct tcp_shard {
    struct tcp *tcp;
    struct inet_shard *inet;
    struct reactor *reactor;
    unsigned index;
    struct tcp_conns conns;
    struct tcp_conns half; /* half-open, oldest first */
    /* Orphans: closed by the user, not by the peer. Oldest first: who has acknowledged our FIN, who
     * has not, and who has not and keeps buffers of messages (in the order of the last look). */
    struct tcp_conns orphans, orphans_unacked, orphans_keeping;
    struct reactor_timer orphan_timer;
    struct tcp_conns work;                   /* connections with something to do */
    struct tcp_conns much;                   /* the same, of those that send many frames */
    unsigned sent;                           /* frames of data since it was set to 0 */
    struct tcp_conns port_waiters[PORT_MAX]; /* that have more for a busy port, longest first; */
    uint32_t port_waits;                     /* bits: those that are not empty */
    struct tcp_conn *current;                /* whose callback runs; NULL as soon as it is gone */
    void *pool_memory;                       /* pool begins in its first block */
    struct tcp_conn *pool, *free_conns;
    unsigned nfree; /* in free_conns */
    struct tcp_flows *flows;
    uint32_t flows_mask;
    LIST_HEAD(, tcp_listen_at) listeners;
    struct tcp_stub *stub_pool, *free_stubs;
    struct tcp_stubs fading; /* that forward for a little longer */
    struct tcp_tw *tw_pool, *free_tws;
    struct tcp_tws tws;
    struct reactor_timer timer; /* of the two lists above */
    unsigned half_open;
    uint64_t cookie_us; /* when the last SYN cookie was made; 0: none was */
    uint16_t next_port;
    bool stopped;             /* tcp_stop() */
    struct reactor_task stop; /* of tcp_stop() */
    struct reactor_timer stop_timer;
    uint64_t stop_until;
    struct reactor_task stubs_task; /* logs that there were none */
    bool stubs_posted;
    uint64_t rx_own; /* truesize of what came over connections before their users granted any */
    struct tcp_copies *copies; /* tcp_queue.c: pieces of queues and records of segments */
    struct tcp_stats stats;    /* one writer */
};

void tcp_shard_timer(struct tcp_shard *sh); /* arms it for the oldest */

struct tcp {
    struct tcp_opts opts;
    struct inet *inet;
    struct reactor_env *env;
    unsigned nshards;
    struct sip_key secret, cookie_secret;
    struct sip_key ts_secret; /* does not change when the process starts anew */
    uint64_t ts_base_us;      /* added to the reactor's clock: TSval goes on after a restart */
    const struct tcp_cc *cc;
    LIST_HEAD(, tcp_listener) listeners; /* control */
    struct reactor_task *stopped;        /* of tcp_stop() */
    unsigned stopping;                   /* reactors that have not answered */
    struct reactor_task stop_task;
    struct rte_mempool *copy_pool;  /* tcp_queue.c: buffers for payload that is copied */
    struct rte_mempool *small_pool; /* … one of each connection when that is empty */
    struct rte_mempool *own_pool;   /* tcp_rx.c: small ones for requests and HELLOs */
    struct tcp_shard *shard[REACTOR_MAX];
};

static inline struct tcp_shard *tcp_shard_self(const struct tcp *tcp)
{
    return tcp->shard[reactor_index(reactor_self())];
}

static inline void tcp_drop(struct tcp_shard *sh, struct rte_mbuf *m, enum pkt_drop why)
{
    inet_drop(sh->inet, m, why);
}

#endif
