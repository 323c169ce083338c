/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the o2iblnd driver is tested with, besides reactors (ib_reactors.h) and devices
 * (rdma_fake.h): an LNet core that does what the test says and remembers what it was told, a peer
 * that speaks by the persona, and the table of rows of the specification that a program has run.
 *
 * The core checks at every call what must hold: each message and each receive ends exactly once,
 * and not before devices and peers are through with its memory.
 */
#ifndef MILLRACE_IB_HARNESS_H
#define MILLRACE_IB_HARNESS_H

#include "lib/lnd_verbs/ib_wire.h"
#include "lib/lnd_verbs/lnd_verbs.h"
#include "test/unit/rdma_fake.h"

#define OWN   "10.0.0.1"
#define PEER  "10.0.0.2" /* at home on reactor 0 */
#define PEER2 "10.0.0.3" /* on reactor 1 */
#define STAMP 0x000640b5eecfe240ull

/* ---- settings, before ih_setup() ---- */

struct ih_opts {
    unsigned nodes; /* 1; 2: the second is 10.0.0.2 */
    struct verbs_opts verbs;
    int timeout; /* LND timeout, s */
    int conns_per_peer;
    int peer_credits;
    int peer_credits_2;        /* of the second node; 0: the same */
    int concurrent_sends, tos; /* of the NIs themselves; -1: as for all */
    bool no_start;
};

extern struct ih_opts ih_opts;
void ih_defaults(void);

int ih_setup(void **state); /* cmocka set-up, with ih_opts as they are */
int ih_setup_plain(void **state);
int ih_teardown(void **state); /* stops, checks that everything was given back; defaults again */
void ih_stop(unsigned node);
void ih_stop_later(unsigned node);
void ih_stop_begin(unsigned node); /* without settling */
void ih_quiesce(unsigned node);
void ih_quiesce_begin(unsigned node); /* without settling */
void ih_restart(unsigned node);       /* it was stopped: a new NI with the same NID */
bool ih_stopped(unsigned node);
bool ih_quiet(unsigned node);
struct lnet_ni *ih_ni(unsigned node);

/* ---- the core ---- */

enum ih_parse {
    IH_RECEIVE,  /* recv() at once, one segment of landing memory */
    IH_PIECES,   /* three of it */
    IH_HEAP,     /* memory no device knows */
    IH_LOCAL,    /* memory devices know and no peer may write */
    IH_DISCARD,  /* nothing wanted */
    IH_TRUNCATE, /* core.truncate bytes wanted */
    IH_LATER,    /* remember; the test calls ih_recv() */
    IH_REFUSE,   /* protocol error core.refusal */
};

struct ih_rx { /* a message being received, or received */
    struct ih_rx *next;
    struct lnet_rx *rx; /* NULL: ended */
    struct lnet_hdr hdr;
    bool rdma_get;
    unsigned node;
    struct lnet_nid from;
    enum ih_parse how;
    bool asked; /* recv() was called */
    uint32_t mlen;
    struct mem_seg segs[3];
    unsigned nsegs;
    uint8_t *memory;
    int region; /* it is of; -1: heap */
    struct lnet_result result;
    uint8_t *data; /* what came */
};

struct ih_msg { /* a message given to the driver */
    struct lnet_msg msg;
    struct ih_msg *next;
    unsigned node;
    unsigned accepted, done;
    struct lnet_result result;
    uint8_t *memory;
    int region;
    uint32_t id; /* the test's */
};

#define IH_LOG 256

struct ih_core {
    enum ih_parse parse;
    enum lnet_drop refusal;
    uint32_t truncate;
    uint32_t get_len;        /* RDMA GETs: bytes served */
    enum lnet_drop get_drop; /* or why not */
    bool get_heap;           /* out of memory no device knows */
    bool no_peers;
    bool no_cancel;        /* lnet_rx_cancel() answers no */
    struct ih_rx *rxs;     /* newest first */
    struct ih_msg *msgs;   /* newest first */
    unsigned nreceived;    /* ended */
    unsigned open;         /* not ended */
    unsigned sent, failed; /* messages done well, and otherwise */
    unsigned drops[LNET_DROP_COUNT];
    struct lnet_drop_why why;             /* of the last that had one */
    enum lnet_drop may_call, may_connect; /* what the access rules say */
    unsigned prefix;                      /* bits; 0: 32 */
    unsigned ups, downs;                  /* lnet_peer_ni_notify() */
    unsigned lost;                        /* lnet_peer_ni_lost() */
    unsigned events[LNET_NODE_EV_COUNT];
    unsigned link_up, link_down;
    struct lnet_node_event last_event;
    enum ih_parse (*on_parse)(const struct lnet_rx *rx); /* instead of `parse` */
    void (*on_received)(struct ih_rx *r);
    void (*on_sent)(struct ih_msg *m);
};

extern struct ih_core core;

unsigned ih_peer_refs(void); /* references to all peer NIs */
struct lnet_peer_ni *ih_peer(unsigned node, const char *address);
/* A PUT, REPLY, GET or ACK of ours with len bytes of pattern in that region (-1: heap), in that
 * many segments. */
struct ih_msg *ih_msg(unsigned node, const char *to, uint32_t type, uint32_t len, int region,
                      unsigned nsegs);
struct ih_msg *ih_send(struct ih_msg *m); /* on its peer's home; then fake_settle() */
void ih_give(struct ih_msg *m);           /* the same without settling */
struct ih_msg *ih_put(uint32_t len);      /* sent to PEER from keyed memory */
void ih_recv(struct ih_rx *r, uint32_t mlen);
struct ih_rx *ih_waiting(void); /* the newest that waits for ih_recv() */
struct ih_rx *ih_last(void);    /* the newest receive */
uint8_t ih_pattern(uint32_t i);
void ih_fill(uint8_t *p, uint32_t len);
void ih_forget(void); /* what has ended */
void ih_expect(const struct ih_msg *m, enum lnet_drop reason, enum lnet_health health);
void ih_expect_ok(const struct ih_msg *m);
void ih_expect_health(const struct ih_msg *m, enum lnet_health health); /* failed, whatever why */
void ih_expect_pattern(const uint8_t *p, uint32_t len);
struct verbs_counters ih_counters(void);

/* ---- the peer ---- */

struct ih_persona {
    const char *address;
    uint64_t nid, stamp;
    uint64_t my_nid, my_stamp; /* the driver's */
    bool big;
    uint16_t depth, frags;
};

extern struct ih_persona peer; /* PEER with depth 8 and 257 fragments */

void ih_persona_is(const char *address);
struct pe_msg ih_base(uint8_t type, uint8_t credits); /* with the ends filled in */
/* Delivered; then fake_settle(). */
void ih_say(struct fake_link *fl, const struct pe_msg *m);
void ih_tell(struct fake_link *fl, const struct pe_msg *m); /* without settling */
struct pe_msg ih_immediate(uint32_t len, uint8_t credits);
struct pe_msg ih_put_req(uint32_t len, uint64_t cookie, uint8_t credits);
struct pe_msg ih_put_ack(uint64_t cookie, uint64_t dst_cookie, uint32_t key, uint64_t addr,
                         uint32_t len);
struct pe_msg ih_completion(uint8_t type, uint64_t cookie, int status);
size_t ih_connreq(uint8_t buf[PE_MSG]); /* of the persona as it is */
/* Calls us and gets through. */
struct fake_link *ih_called(void);
struct fake_call *ih_call(void); /* only calls; settled */
/* The newest link has called us for CONNREQ *req; accepts it. */
struct fake_link *ih_answer(void);
void ih_connack(struct pe_msg *m); /* of the persona for the newest link */
/* Dialled by us, for a message that is sent and answered away: everything is at rest. */
struct fake_link *ih_dialled(void);
void ih_reject(struct fake_link *fl, uint8_t why, uint64_t stamp, uint16_t depth, uint16_t frags);
/* The next message we sent; it must be of this type. */
struct pe_msg ih_take(struct fake_link *fl, uint8_t type);
void ih_nothing(struct fake_link *fl); /* we have sent nothing more */

/* ---- rows ---- */

struct ih_row {
    const char *id, *text;
    unsigned runs;
};
void ih_rows(struct ih_row *rows, unsigned n); /* the table of this program */
void ih_row(const char *id);                   /* it was run; at the end of a test */
int ih_rows_report(int failed);                /* prints; the exit status */

#endif
