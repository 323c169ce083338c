/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the socklnd LND is tested with: reactors with a clock that the test moves, an LNet core that
 * does what the test says and remembers what it was told, and a stream transport in memory whose
 * other end is the test. All on one thread; nothing sleeps.
 */
#ifndef MILLRACE_SOCKLND_FAKE_H
#define MILLRACE_SOCKLND_FAKE_H

#include "lib/lnd_eth/lnd_eth.h"
#include "lib/lnd_eth/socklnd/socklnd_wire.h"

#define FAKE_REACTORS 2
#define FAKE_SEC      1000000ull

/* ---- reactors ---- */

int fake_iterate(void);              /* each reactor once; returns how much was to do */
void fake_run(void);                 /* until nobody has anything to do at this moment */
void fake_advance(uint64_t us);      /* the clock, from timer to timer */
struct reactor *fake_on(unsigned i); /* makes reactor i the running one; returns the one before */
void fake_restore(struct reactor *r);

/* ---- the transport; the test is the other end ---- */

struct fake_stream {
    struct stream base;
    struct reactor *reactor; /* where it is attached; NULL: not */
    const struct stream_events *ev;
    void *user;
    union stream_addr local, remote;
    bool dialled; /* by the LND */
    bool connecting;
    bool closed, aborted; /* by the LND */
    bool unread;          /* it had bytes that the LND did not take when it closed */
    bool established;
    bool paused;
    bool ended; /* by the test */
    enum stream_end end;
    bool ev_connected, ev_readable, ev_writable, ev_acked;
    uint8_t *in; /* fed by the test, not yet taken */
    size_t in_head, in_len, in_cap;
    bool starved;            /* the last peek wanted more */
    bool told;               /* rx_window() was called */
    size_t promised, memory; /* with the last rx_window(); promised less what was fed since */
    uint8_t *out;            /* what the LND sent */
    size_t out_len, out_cap;
    size_t out_read; /* of these seen by the test */
    size_t window;   /* bytes send() still takes */
    bool auto_ack;   /* what is sent counts as acknowledged at once (default) */
    uint64_t bytes_in, bytes_out, acked;
    int send_error; /* -errno for the next send() */
    struct fake_stream *next;
};

extern struct stream_ops fake_transport; /* caps may be set before fake_setup() */
extern int fake_connect_error;           /* -errno for every connect(), 0 = none */
extern unsigned fake_ports_in_use;       /* this many ports from 1023 down give -EADDRINUSE */
extern unsigned fake_take_chunk;         /* bytes per segment in take mode */
extern unsigned fake_takes_out;          /* segments handed over and not given back */
#define FAKE_BUFFER 2304                 /* what a segment of any length takes */
#define FAKE_AHEAD  (4u << 20)           /* what the fake core lets every peer send */

/* A connection to our NI, accepted by the LND after fake_run(). */
struct fake_stream *fake_call(const char *from, uint16_t port);
/* Whether the LND would refuse a caller before it has a connection. */
bool fake_refuses(const char *from);
/* The newest stream the LND dialled that the test has not seen; NULL: none. */
struct fake_stream *fake_dialled(void);
unsigned fake_connects(void); /* calls of connect() that went through */
void fake_feed(struct fake_stream *s, const void *bytes, size_t n);
/* The same, but the LND has not been told yet: at the next fake_run(). */
void fake_arrive(struct fake_stream *s, const void *bytes, size_t n);
/* Bytes the LND sent since the last look: compares and consumes. */
void fake_expect(struct fake_stream *s, const void *bytes, size_t n);
void fake_expect_nothing(struct fake_stream *s);
size_t fake_take_out(struct fake_stream *s, void *buf, size_t cap);
void fake_end(struct fake_stream *s, enum stream_end end);
void fake_end_all(void); /* resets every stream */
void fake_connected(struct fake_stream *s);
void fake_writable(struct fake_stream *s, size_t more);
void fake_ack(struct fake_stream *s, size_t n);

/* ---- the core ---- */

enum fake_parse {
    FAKE_RECEIVE,  /* recv() at once, into memory of the core's */
    FAKE_OWN,      /* recv() at once, segments of the transport's (take mode) */
    FAKE_DISCARD,  /* recv() at once, nothing wanted */
    FAKE_TRUNCATE, /* recv() at once, core.truncate bytes wanted */
    FAKE_LATER,    /* remember rx; the test calls recv() */
    FAKE_REFUSE,   /* protocol error core.refusal */
};

struct fake_received {
    struct lnet_hdr hdr;
    struct lnet_result result;
    struct lnet_nid from;
    uint8_t *data;
    uint32_t len;
};

struct fake_sent {
    struct lnet_msg *msg;
    bool accepted;
    struct lnet_result result;
    unsigned nlost; /* calls of lnet_peer_ni_lost() before its end */
};

#define FAKE_LOG 4096

struct fake_core {
    enum fake_parse parse;
    enum lnet_drop refusal;
    uint32_t truncate;
    bool cancel; /* what lnet_rx_cancel() answers */
    unsigned cancels;
    bool hold_taken;      /* keep segments of the transport until fake_release_taken() */
    bool no_grants;       /* grants do not open */
    unsigned grants_most; /* that there is room for; 0: any number */
    enum lnet_drop may_call, may_connect; /* what the access rules say */
    const char *other_if;                 /* has NIs of other nets only */
    unsigned connected;                   /* sets with connections */
    bool no_memory;                       /* lnet_rx_took() says no */
    unsigned grants;                      /* not closed */
    unsigned copied;                      /* calls of lnet_rx_copy() */
    struct lnet_grant *grant_waits;       /* the newest of those that did not open */
    struct lnet_rx *waiting;
    unsigned nreceived, nsent, nnotified, nlost, ndone;
    struct fake_received received[FAKE_LOG];
    struct fake_sent sent[FAKE_LOG];
    struct {
        struct lnet_nid nid;
        bool up;
    } notified[FAKE_LOG];
    struct lnet_node_event event[FAKE_LOG];
    unsigned nevents;
    unsigned drops[LNET_DROP_COUNT];
    const char *why; /* of the last drop that has one */
    unsigned peers;
    bool no_peers;
    bool no_places; /* lnet_rx_segs() gives none */
    void (*on_sent)(struct lnet_msg *msg);
};

extern struct fake_core core;

struct lnet_ni *fake_ni(void);  /* 10.0.0.5@tcp */
struct lnet_ni *fake_ni6(void); /* fd00::5@tcp */
struct lnd_sock *fake_lnd(void);
struct lnet_node *fake_node(void);
unsigned fake_peer_refs(void);                   /* references to all peer NIs */
struct lnet_peer_ni *fake_peer(const char *nid); /* not referenced for the caller */

extern struct sock_opts fake_opts; /* before fake_setup() */
extern const char *fake_came_by;   /* interface of callers; NULL: not known */
extern int fake_timeout;           /* LND timeout, s */
extern int fake_conns_per_peer;
extern int fake_late;       /* the reactor whose mail of ni_start lies unread; -1: none */
void fake_mail_comes(void); /* what lay */

int fake_setup(void **state);    /* cmocka set-up: node with both NIs, started */
int fake_teardown(void **state); /* stops, checks that everything was given back */
void fake_stop(void);            /* of both NIs; fails the test if it does not finish */
void fake_stop_later(void);      /* the same, but it may take the test to finish */
unsigned fake_stopped(void);     /* NIs that have stopped */
/* The NIs go on. All streams are closed and nothing refers to a peer NI: forgets what has been. */
void fake_forget(void);
void fake_defaults(void);

/* A PUT of len bytes of a pattern from us to peer. Freed by teardown. */
struct lnet_msg *fake_msg(struct lnet_ni *ni, const char *peer, uint32_t len);
void fake_send(struct lnet_msg *msg); /* on the peer's home */
/* Calls ops->recv() for core.waiting with the core's own memory. */
void fake_recv(uint32_t mlen);
void fake_release_taken(void);
void fake_grant(void); /* opens core.grant_waits */

/* ---- what a peer says ---- */

/* Request + HELLO of a caller; returns its length. */
size_t fake_hello(uint8_t *buf, const char *src, const char *dst, enum sock_ctype type,
                  uint64_t incarnation);
size_t fake_hello_only(uint8_t *buf, const char *src, const char *dst, enum sock_ctype type,
                       uint64_t incarnation);
/* An established connection, called by the peer, which has type `type` there. */
struct fake_stream *fake_up(const char *from, uint16_t port, enum sock_ctype type,
                            uint64_t incarnation);
/* Frame of a PUT with len bytes of pattern; returns its length. */
size_t fake_frame(uint8_t *buf, const char *src, const char *dst, uint32_t len, uint64_t cookie,
                  uint32_t csum);
size_t fake_noop(uint8_t *buf, uint64_t first, uint64_t second);
uint8_t fake_pattern(uint32_t i);
void fake_expect_noop(struct fake_stream *s, uint64_t cookie);

#endif
