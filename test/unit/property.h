/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The property test of credits, router buffers and admission, in three parts:
 *  - test_lnet_property.c makes configurations and events from a seed, runs each configuration in a
 *    child process, and shrinks the events of a run that failed;
 *  - property_run.c carries events out on a real node: over the loopback LND, whose peers complete,
 *    fail or forget what the events say (property_lnd.c), reactors stepped by hand, a clock that
 *    events move;
 *  - property_model.c and its like know what the node must be like after each event. It learns of
 * the core's doings at the LND interface and, through ld --wrap, at a few functions between the
 * core's own files, and keeps books of its own by the words of docs/protocol/lnet-core.md and
 *    docs/architecture.md.
 */
#ifndef MILLRACE_TEST_PROPERTY_H
#define MILLRACE_TEST_PROPERTY_H

#include "test/unit/lnet_rooms.h"
#include "test/unit/loopback.h"

#define MAX_PEERS    48
#define MAX_CONNS    96
#define MAX_NIS      4
#define MAX_ROUTES   8
#define MAX_TRACKED  4096
#define SECOND_NI_OF 1 /* index of the NI whose net may have another, the last */
#define BACKLOG      4
#define NO_ID        0u
#define FIRST_ID     0x10000000u /* above every PID: the ids of our headers, in src_pid */
#define SEC          1000000ull
#define MAX_REACTORS 4

/* ---- random numbers ---- */

static inline uint64_t rnd(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline unsigned below(uint64_t *state, unsigned n)
{
    return (unsigned)(rnd(state) % n);
}

/* lo..hi */
static inline unsigned between(uint64_t *state, unsigned lo, unsigned hi)
{
    return lo + below(state, hi - lo + 1);
}

/* ---- events ---- */

/* Each means something in any state ("the a-th of those that there are"), so that a run can be
 * repeated with some of its events left out. */
enum event_kind {
    EV_ARRIVE,    /* connection a: a header made from b, c */
    EV_RECV_OK,   /* receive a: all of the payload came */
    EV_RECV_FAIL, /* receive a: the connection broke */
    EV_PROGRESS,  /* receive a: some payload came */
    EV_ACCEPT,    /* held send a is accepted */
    EV_SEND_OK,   /* held send a is done */
    EV_SEND_FAIL, /* held send a failed */
    EV_CANCEL,    /* the connection of waiting header a dies */
    EV_PEER_FAIL, /* everything to and from peer a fails */
    EV_NOTIFY,    /* peer a is said to be down (b odd: up) */
    EV_ROUTE_DEL, /* route a */
    EV_ROUTE_ADD, /* route a */
    EV_NET_DEL,   /* net of NI a (b odd: only that NI) */
    EV_NI_ADD,    /* an NI that is gone comes again (b a multiple of 4: it cannot start) */
    EV_LINK,      /* the link of NI a goes down (b odd: comes up) */
    EV_RESIZE,    /* pools to a, b, c */
    EV_ADMISSION, /* egress_share a, buffer_wait b */
    EV_MODE,      /* what the LND completes by itself: a */
    EV_TIME,      /* a us pass, nobody runs */
    EV_TIME_REST, /* a ms pass, everybody runs until idle */
    EV_STEP,      /* reactor a runs once */
    EV_REST,      /* everybody runs until idle */
    EV_KINDS
};

struct event {
    uint32_t kind, a, b, c;
};

extern const char *const event_names[EV_KINDS];

/* ---- configurations ---- */

struct plan_peer {
    unsigned ni; /* on the net of this NI */
    struct lnet_nid nid;
    bool gateway;
    unsigned conns;
};

struct plan_route {
    char net[8];
    unsigned gw; /* peer */
    unsigned priority;
};

struct plan {
    unsigned nnis;
    const char *ni_nid[MAX_NIS];
    struct lnet_tunables tun[MAX_NIS];
    bool rx_take[MAX_NIS], abandons[MAX_NIS];
    unsigned npeers;
    struct plan_peer peer[MAX_PEERS];
    unsigned nroutes;
    struct plan_route route[MAX_ROUTES];
    unsigned pools[LNET_POOLS];
    size_t memory;
    unsigned egress_share, buffer_wait;
    bool stop_busy; /* the node is stopped with messages under way */
    unsigned drain_s;
};

/* ---- a run ---- */

/* Of a run, in memory that the parent sees. */
enum cover {
    COVER_FORWARDED,
    COVER_DROPPED,
    COVER_CREDIT_WAIT,
    COVER_CREDIT_EARLY,
    COVER_CREDIT_SLOW,
    COVER_BUFFER_WAIT,
    COVER_PEER_TX_WAIT,
    COVER_NI_TX_WAIT,
    COVER_OVERDUE,
    COVER_STALLED,
    COVER_ABANDONED,
    COVER_REROUTED,
    COVER_CANCELLED,
    COVER_SHARE_EXPIRED,
    COVER_BUFFER_EXPIRED,
    COVER_CREDIT_EXPIRED,
    COVER_BEHIND_EXPIRED,
    COVER_GATEWAY_LAST, /* a gateway-bound header was kept from the last buffer */
    COVER_GATEWAY_OWN,  /* one got the buffer set aside for its gateway */
    COVER_END_OWN,      /* an end node's got the one set aside for end nodes */
    COVER_URGENT,       /* an urgent one got what bulk may not have */
    COVER_SHRUNK,       /* more buffers in use than there shall be */
    COVER_NI_REMOVED,
    COVER_NI_ADDED,
    COVER_NI_FAILED, /* could not be started */
    COVER_SEND_FAILED_WAITING,
    COVER_NO_ROUTE,
    COVER_SHUTDOWN,
    COVER_QUIET,
    COVER_KINDS
};

extern const char *const cover_names[COVER_KINDS];

struct outcome {
    bool failed;
    unsigned at;                 /* event that was being carried out; n = the end */
    unsigned steps, trial, runs; /* for the parent: how far the child has come */
    uint64_t seed;
    char text[512];
    uint64_t cover[COVER_KINDS];
};

struct run {
    const struct plan *plan;
    const struct event *event;
    unsigned n;
    bool verbose;
    struct outcome *out;
};

extern struct run run;

/* The property does not hold: ends the process. */
void prop_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2))); /* if verbose */
static inline void covered(enum cover what)
{
    run.out->cover[what]++;
}

/* property_run.c: carries run.event out; returns if nothing was wrong. */
void property_run(struct reactor_env *env, unsigned nreactors);

/* ---- what the run and the model share ---- */

extern struct reactor_env *env;
extern unsigned nreactors;
extern struct lnet_node *node;
extern struct lnet_ni *ni[MAX_NIS];
extern uint64_t clock_us;
extern bool stopping; /* the node is */

/* Runs a statement as reactor i. */
#define ON(i, statement)                                                                           \
    do {                                                                                           \
        struct reactor *was_ = reactor_self();                                                     \
        reactor_bind(reactor_at(env, (i)));                                                        \
        statement;                                                                                 \
        reactor_bind(was_);                                                                        \
    } while (0)

struct credit { /* the model's */
    int max, now, min;
    uint64_t waited;
};

struct tracked;

struct tracked_queue {
    struct tracked *head, **tail;
};

struct model_peer {
    unsigned index, ni, reactor;
    struct lnet_nid nid;
    bool gateway;
    struct lnet_peer_ni *core; /* once it is there: it is never evicted here */
    struct credit tx, rtr;
    uint64_t slow_hops_us; /* until then only what goes to quick next hops holds its rtr */
    struct tracked_queue txq;
    uint64_t last_seq[MAX_REACTORS][MAX_NIS]; /* of messages handed to the LND, by home */
};

enum conn_state {
    CONN_IDLE,
    CONN_PARSED,    /* recv has not come */
    CONN_RECEIVING, /* recv has come */
};

enum stage { /* of a header that waits */
    STAGE_NONE,
    STAGE_CREDIT,
    STAGE_BUFFER
};

struct conn {
    struct loop_rx in;
    unsigned index, ni;
    struct model_peer *peer;
    enum conn_state state;
    bool gone;  /* its NI was removed */
    bool local; /* the message is for this node */
    uint32_t id;
    bool abandoned;
    uint32_t backlog[BACKLOG][2];
    unsigned nbacklog;
    /* the model's */
    enum stage stage;
    uint64_t stamp; /* event at which it was first seen in that stage and queue */
    unsigned acct;
    enum lnet_pool pool;
    bool urgent;
    uint8_t class; /* the core's, when it was last seen */
    uint64_t seq, parsed_us, wait_us, expired_us, progress_us, begun_us;
    bool dropped; /* its drop was counted */
    bool rtr_taken, cancelling;
    struct tracked *msg;
};

enum tracked_state {
    T_FREE,
    T_RECEIVING,
    T_INSIDE, /* between receive and the queues, or back */
    T_WAIT_PEER,
    T_WAIT_NI,
    T_READY,
    T_LND,
    T_ENDED, /* the LND is through with it */
};

/* A message descriptor of the core and what the model knows of it. */
struct tracked {
    enum tracked_state state;
    struct lnet_msg *msg;
    uint32_t id; /* NO_ID: the node's own */
    unsigned home;
    struct model_peer *from; /* forwarded: whose router credit it holds */
    struct conn *conn;       /* while it is received */
    enum lnet_pool pool;
    bool urgent, slow, stalled, dropped, sent_ok, accepted, ni_credit, router_credit;
    bool unsent; /* it failed before the LND had it */
    unsigned acct;
    uint32_t len;
    uint64_t seq;
    struct model_peer *to;
    unsigned ni;
    uint64_t received_us, handed_us, handed_seq;
    uint8_t *buffer;
    struct tracked *next;
};

extern struct model_peer peers[MAX_PEERS];
extern unsigned npeers;
extern struct conn conns[MAX_CONNS];
extern unsigned nconns;
extern bool route_there[MAX_ROUTES];
extern bool ni_gone[MAX_NIS];
extern bool ni_cannot_start; /* the next one */
extern unsigned share, wait_s;
extern unsigned pool_totals[LNET_POOLS], pool_totals_old[LNET_POOLS];
extern struct tracked *at_lnd[]; /* messages between send and done, oldest first */
extern unsigned nat_lnd;
extern unsigned event_number;

struct model_peer *peer_of(const struct lnet_nid *nid);
struct tracked *tracked_of(const struct lnet_msg *msg);

/* ---- property_lnd.c ---- */

enum mode { /* what the LND does at once */
    MODE_RECV = 1,
    MODE_ACCEPT = 2,
    MODE_DONE = 4,
    MODE_MUTE = 8, /* gateways do not answer pings */
};

extern unsigned mode;
extern unsigned takes; /* segments of the LND's that the core has */
extern struct lnd_ops lnd_tcp, lnd_ib;

void lnd_reset(void);
struct lnet_nid nid_of(const char *text);
void conns_make(struct model_peer *p, unsigned n);
bool conn_is_for_answers(const struct conn *c);
/* A header, made from b and what, comes on an idle connection. On its reactor, as those below. */
void conn_parse(struct conn *c, uint32_t b, uint32_t what);
void recv_end(struct conn *c, struct lnet_result result);
void send_accepted(struct tracked *t);
void send_end(struct tracked *t, struct lnet_result result);
/* The rest on any. */
bool conn_cancel(struct conn *c); /* false: recv comes */
void close_conns(unsigned index); /* no more headers on the connections of an NI */
void fail_peer(struct model_peer *p, enum lnet_drop why);
void stop_poll(void);    /* ends what belongs to NIs that are to stop */
void answer_pings(void); /* gateways do */

/* ---- property_model.c, property_send.c, property_check.c ---- */

/* In the order of a message's life. */
void model_reset(void);                         /* nothing is known */
void model_init(void);                          /* the node is there */
void model_parse(struct conn *c);               /* before lnet_parse() */
void model_parsed(struct conn *c, uint32_t id); /* after it */
void model_recv(struct conn *c);                /* ops->recv() */
void model_recv_done(struct conn *c, bool ok);
void model_cancelled(struct conn *c);
void model_send(struct lnet_msg *msg); /* ops->send() */
void model_accepted(struct tracked *t);
void model_send_done(struct tracked *t, bool ok);
void model_taken_back(void);   /* the LND's own segments of a message come back to it */
void model_rule_changed(void); /* routes or the share are others */
void model_sync(void);         /* after each event */
void model_quiet(void);        /* everybody has run until idle */
bool model_open(void);         /* headers wait or messages are under way */
void model_end(void);          /* everything has ended and everybody is idle */
void model_done(void);         /* nothing is needed any more */

#endif
