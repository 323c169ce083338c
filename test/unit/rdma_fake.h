/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RDMA devices and a connection manager that do what the test says: a `struct rdma_ops` in memory.
 * The other end of a connection is the test itself (it reads what the driver sent with fake_next()
 * and speaks with fake_deliver()), or another connection of the driver's (mate).
 *
 * What a device would do with a wrong request here fails the test at once: a key that does not
 * cover the bytes, more requests than the queue pair was made for, a message before the connection
 * is up or after it was ended. What it would do silently, too: memory of a request is compared with
 * what it was when it was posted, until it completes; a WRITE goes where the peer said and nowhere
 * else; credits and cookies are kept in a ledger of the fake's own (rdma_ledger.c), in which the
 * driver must never be overdrawn.
 *
 * Completions come in an order that RC allows: sends and receives of a queue pair each in order.
 */
#ifndef MILLRACE_RDMA_FAKE_H
#define MILLRACE_RDMA_FAKE_H

#include "lib/lnd_verbs/rdma.h"
#include "test/unit/ib_persona.h"
#include "test/unit/ib_reactors.h"

#define FAKE_NODES   2
#define FAKE_SGES    32
#define FAKE_DEPTH   256
#define FAKE_REGIONS 4

/* Regions of memory (mem_region_get()). */
enum fake_region {
    FAKE_LANDING, /* remote-writable */
    FAKE_LOCAL,
    FAKE_LATE, /* without keys until fake_register() */
};
#define FAKE_LANDING_BYTES (16u << 20)
#define FAKE_LOCAL_BYTES   (16u << 20)
#define FAKE_RKEY          0xabcd00u /* of FAKE_LANDING */

extern const struct rdma_ops fake_rdma;

enum fake_wr_kind {
    FAKE_SEND,
    FAKE_WRITE,
    FAKE_BIND,
    FAKE_INVALIDATE
};

struct fake_wr {
    struct fake_wr *next;
    uint64_t wr_id;
    enum fake_wr_kind kind;
    bool signaled, inlined, wired;
    uint8_t type; /* SEND: of the message */
    unsigned nsge;
    struct ibv_sge sge[FAKE_SGES];
    uint64_t remote;
    uint32_t rkey; /* WRITE: the peer's; BIND, INVALIDATE: of the window */
    uint32_t len;
    uint8_t *bytes; /* as they were when it was posted */
};

struct fake_recv {
    uint64_t wr_id;
    uint8_t *addr;
    uint32_t len;
};

struct fake_out { /* a message the driver sent, for the test */
    struct fake_out *next;
    uint32_t len;
    uint8_t bytes[];
};

struct led_told { /* memory that one side may write for the other's cookie */
    uint64_t cookie;
    uint32_t key, nfrags;
    uint64_t total, written;
    struct pe_frag *frag;
};

/* Of one connection, seen from outside; `we` is the driver. */
struct fake_ledger {
    unsigned depth;
    unsigned ours;   /* credits we may still spend */
    unsigned theirs; /* credits the peer may still spend: that we told it of */
    unsigned noops;  /* of ours, not completed */
    unsigned nasked, nto_write, nputs, ntold; /* of the lists below */
    uint64_t asked[FAKE_DEPTH];               /* our PUT_REQs without answer */
    struct led_told to_write[FAKE_DEPTH]; /* their PUT_ACK (GET_REQ: ours is the data too), our DONE
                                             to come */
    uint64_t puts[FAKE_DEPTH];            /* their PUT_REQs without answer */
    uint32_t put_len[FAKE_DEPTH];
    struct led_told told[FAKE_DEPTH]; /* our PUT_ACK, their PUT_DONE to come */
};

enum fake_phase {
    FAKE_DIALLED,
    FAKE_RESOLVED,
    FAKE_ADOPTED,
    FAKE_OPENING,
    FAKE_OPENED,
    FAKE_CONNECTING,
    FAKE_ACCEPTING,
    FAKE_UP,
    FAKE_DOWN, /* the queue pair is in its error state, or none was made */
    FAKE_SHUT,
    FAKE_CLOSED,
};

struct fake_event {
    struct fake_event *next;
    struct rdma_event ev;
    uint8_t priv[RDMA_PRIV_MAX];
};

struct fake_link {
    struct rdma_link *link; /* NULL once closed */
    struct fake_link *next;
    unsigned id, node;
    enum fake_phase phase;
    bool active; /* the driver dialled */
    /* ---- what the driver asked for */
    struct rdma_dial dial;
    struct rdma_open open;
    struct sockaddr_in to, from;
    uint8_t priv[RDMA_PRIV_MAX]; /* of connect() or accept() */
    size_t priv_len;
    unsigned retry, rnr_retry;
    unsigned opens, disconnects, shuts;
    uint64_t port_nid; /* of the NI it belongs to, for the ledger */
    /* ---- what the test decides */
    bool hold_sends; /* completions of sends only by fake_complete() */
    bool hold_flush; /* flushed requests only by fake_flush() */
    bool hold_recvs; /* completions of receives only by fake_show() */
    bool hostile;    /* the test breaks the protocol: the ledger looks at nothing any more */
    bool rnr_wanted;
    int post_error; /* of the next post_send() */
    unsigned rnrs;
    struct fake_link *mate;
    /* ---- events on their way */
    struct fake_event *events, **events_tail;
    bool hold_events;
    struct reactor_task task;
    bool posted_task;
    /* ---- queue pair */
    void *area;
    size_t area_len;
    struct fake_recv recvs[2 * FAKE_DEPTH + 2];
    unsigned recv_head, nrecvs;
    struct fake_wr *wrs, **wrs_tail;     /* not completed, oldest first */
    unsigned sq_used;                    /* slots that no polled completion has given back */
    unsigned unpolled;                   /* completions that nobody took yet */
    struct fake_wc *shown, **shown_tail; /* hold_recvs */
    struct fake_out *out, **out_tail, *last;
    struct fake_ledger led;
    uint64_t sends, writes, received; /* counts */
};

/* A call of a peer's, made by the test. */
struct fake_call {
    bool asked; /* the driver saw it */
    bool rejected;
    uint8_t priv[RDMA_PRIV_MAX];
    size_t priv_len;
    struct fake_link *link; /* adopted */
    struct fake_call *next;
    struct fake_link *mate;
};

struct fake_state {
    bool fast;        /* no copies, no ledger: for measuring */
    bool manual_open; /* OPENED is told by the test */
    bool manual_resolve;
    bool manual_close;
    bool hold_events; /* of new links */
    bool hold_all; /* of new links: also completions of all kinds; a lack of receives is no fault */
    int open_error;       /* for the next open_qp() calls: -ENOMEM … */
    bool hold_unlistened; /* told by fake_unlistened() */
    unsigned open_errors;
    unsigned inline_bytes, send_sges, extra_wrs;
    enum rdma_keys remote_keys; /* in use; bind() sets it: AUTO is taken for SHARED */
    unsigned register_errors;   /* for the next register_part() calls */
    bool unbound_error;
    bool exact_priv; /* private data of requests is not padded, as on iWARP */
    bool roce;       /* the GID of the next callers is known */
    union ibv_gid gid;
    unsigned dials;
    struct fake_link *links; /* not closed, newest first */
    struct fake_call *calls;
    unsigned nlive;
    unsigned regions_wanted;
    void (*arming)(void); /* a queue is going to be armed: the last moment before */
    void (*connecting)(struct fake_link *fl); /* connect() was called; the tests' own wire */
    void (*accepting)(struct fake_link *fl);
    void (*rejecting)(struct fake_link *mate, const uint8_t *priv, size_t len);
    void (*disconnecting)(struct fake_link *fl);
};

extern struct fake_state fake;

void fake_init(void);
void fake_fini(void);   /* checks that all was given back */
void fake_forget(void); /* frees closed links, and requests, which must all be decided */

/* ---- memory ---- */
uint8_t *fake_memory(enum fake_region region);
void fake_register(enum fake_region region);
/* Memory of the peer's under a key of its own; NULL bytes forget the key. */
void fake_export(uint32_t key, uint64_t addr, uint8_t *bytes, uint32_t len);

/* Remote keys of parts of FAKE_LANDING that are valid now, of windows and registrations. */
unsigned fake_keys(void);
/* Whether a peer on this connection could write these bytes by that key. */
bool fake_key_works(const struct fake_link *fl, uint32_t rkey, uint64_t addr, uint64_t len);
/* The same of a key whose window may still have to be bound by a request that was posted. */
bool fk_key_given(const struct fake_link *fl, uint32_t rkey, uint64_t addr, uint64_t len);

/* ---- the connection manager ---- */
struct fake_link *fake_newest(void); /* the newest link not closed; NULL */
void fake_tell(struct fake_link *fl, enum rdma_event_kind kind, int error, int status,
               const void *priv, size_t len); /* the event comes to its home with its mail */
void fake_events_go(struct fake_link *fl);    /* hold_events: the oldest one comes */
void fake_post_events(struct fake_link *fl);  /* hold_events ended: all come */
struct fake_call *fake_call(unsigned node, const char *from, uint16_t port, const void *priv,
                            size_t len);
void fake_port(unsigned node, enum rdma_port_event event);
bool fake_listening(unsigned node);
uint16_t fake_service(unsigned node); /* at which it listened last */
/* What those are told for whom there is no room. */
const struct rdma_listener *fake_listener(unsigned node);
void fake_unlistened(unsigned node); /* hold_unlistened: the reactors are told */
struct rdma_port *fake_port_of(unsigned node);

/* ---- the wire ---- */
/* The next message the driver posted goes out and is decoded. False: there is none. */
bool fake_next(struct fake_link *fl, struct pe_msg *m);
/* One more request goes out: a WRITE is applied, a SEND delivered to the mate or kept for
 * fake_next(). False: nothing is left, or the mate has no buffer. */
bool fake_wire(struct fake_link *fl);
/* The next n signalled requests complete; returns how many did. */
unsigned fake_complete(struct fake_link *fl, unsigned n);
/* The next request fails with this status; the queue pair is in its error state. */
void fake_fail_send(struct fake_link *fl, enum ibv_wc_status status);
/* The queue pair breaks, as by a retry that ran out on nothing of ours. */
void fake_break(struct fake_link *fl);
void fake_flush(struct fake_link *fl, unsigned n); /* n of its flushed requests complete */
/* A message of the peer's fills the oldest receive. False: there was none (RNR). */
bool fake_deliver(struct fake_link *fl, const void *bytes, size_t len);
void fake_fail_recv(struct fake_link *fl, enum ibv_wc_status status);
void fake_show(struct fake_link *fl, unsigned n); /* hold_recvs: n of them are to be seen */
/* A completion of a queue pair that is gone comes to the queue of this link. */
void fake_ghost(struct fake_link *fl, uint64_t wr_id, enum ibv_wc_status status);
/* The peer writes to memory it was told of. */
void fake_write(struct fake_link *fl, uint32_t rkey, uint64_t addr, const void *bytes, size_t len);
/* Everything goes its way until nobody has anything to do. */
void fake_settle(void);

/* ---- questions ---- */
/* Whether a device may still read these bytes, or a peer write them. */
bool fake_in_flight(const void *addr, size_t len);
bool fake_told(const void *addr, size_t len);
unsigned
fake_unsent(const struct fake_link *fl); /* messages posted and not yet taken by the test */

/* ---- what the driver's own part of a run takes (ib_bench.c) ---- */
struct fake_meter {
    bool on;
    uint64_t driver, last; /* cycles */
};
extern struct fake_meter fake_meter;
uint64_t fake_cycles(void);
static inline void fake_enter(void) /* from the driver */
{
    if (fake_meter.on)
        fake_meter.driver += fake_cycles() - fake_meter.last;
}
static inline void fake_leave(void) /* back to the driver */
{
    if (fake_meter.on)
        fake_meter.last = fake_cycles();
}

/* ---- rdma_ledger.c ---- */
void led_init(struct fake_link *fl, unsigned depth);
void led_fini(struct fake_link *fl);
void led_sent(struct fake_link *fl, const uint8_t *bytes, uint32_t len);
void led_write(struct fake_link *fl, uint32_t rkey, uint64_t remote, uint32_t len);
void led_received(struct fake_link *fl, const uint8_t *bytes, uint32_t len);
bool led_told(const struct fake_link *fl, uint32_t key, uint64_t addr, uint64_t len);
void led_check(const struct fake_link *fl);

#endif
