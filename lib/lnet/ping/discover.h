/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Discovery of a peer: this node pings the peer for its NIDs, and pushes its own NIDs if the peer
 * does not know them yet. docs/protocol/lnet-core.md §3.5 and §3.6.
 *
 * The state of a discovery is in the peer (peer/table.h). discover_step() takes an event and
 * returns the next action. The caller performs the action; only DISCOVER_MERGE and DISCOVER_DELETE
 * are followed by another step at once (DISCOVER_LOOK, of the peer that has the data, or START of
 * the peer created again). A discovery begins with DISCOVER_START or with a received PUSH and ends
 * with one DISCOVER_DONE. A GET and a PUT at most are on their way for a peer.
 *
 * The functions do no I/O and read no clock. The owner of the table calls them.
 */
#ifndef MILLRACE_DISCOVER_H
#define MILLRACE_DISCOVER_H

#include "lib/lnet/peer/table.h"

/* The state of this node that a step depends on. */
struct discover_self {
    bool discovery;      /* is on */
    uint32_t seqno;      /* of our ping info */
    uint64_t timeout_us; /* of a ping or a PUSH: the transaction timeout */
    unsigned max_tries;  /* pings that a peer may answer without usable info, one after another */
};

enum discover_kind {
    DISCOVER_LOOK,       /* only time passed, or the state changed outside */
    DISCOVER_START,      /* somebody needs the peer; `set` has further bits: PEER_FORCE_PING,
                            PEER_FORCE_PUSH, PEER_RTR_DISCOVERY (a router check, §3.8) */
    DISCOVER_REPLY,      /* valid info, complete or as much of it as this node takes, which
                            peer_table_hear() has; to, from */
    DISCOVER_REPLY_BAD,  /* invalid or truncated info; size: bytes that it needs, or 0 */
    DISCOVER_PING_ERROR, /* no REPLY came: error */
    DISCOVER_ACK,        /* of our PUSH, with status 0 */
    DISCOVER_PUSH_ERROR, /* no ACK came, or another status: error */
    DISCOVER_PUSHED,     /* the peer pushed valid and complete info, which peer_table_hear() has */
    DISCOVER_PUSHED_BAD, /* the peer pushed invalid or truncated info; size as above */
};

struct discover_event {
    enum discover_kind kind;
    uint32_t set, size;
    int error;                /* -errno */
    struct lnet_nid to, from; /* where the REPLY came from, and our NID that it came to */
};

enum discover_action {
    DISCOVER_WAIT,   /* for the next event */
    DISCOVER_DELETE, /* remove the peer; routes through it stay with the NID of the gateway */
    DISCOVER_MERGE,  /* peer_table_merge() the last info */
    DISCOVER_PING,   /* GET of discovery.sink bytes to the primary NID */
    DISCOVER_PUSH,   /* PUT of our ping info, ACK wanted; discover_push_nids() */
    DISCOVER_DONE,   /* discovery.error: 0 sends the parked messages, else finalizes them */
};

/* Return the event that a REPLY, or a PUSH from a NID of a known peer, is. info: NULL if it was
 * invalid or was not received without error. DISCOVER_LOOK: a PUSH that is dropped, because it
 * comes from a peer without multi-rail. */
enum discover_kind discover_reply_kind(const struct lnet_ping_info *info);
enum discover_kind discover_push_kind(const struct lnet_ping_info *info);
/* Returns whether messages to the peer need not wait for discovery (§3.5). */
bool discover_is_uptodate(const struct peer *p, const struct discover_self *self);
/* Returns whether a PUSH to the peer is due (§3.6 "Needs push"). */
bool discover_needs_push(const struct peer *p, const struct discover_self *self);
/* Applies the event and evaluates the rows of §3.6. now_us: monotonic. */
enum discover_action discover_step(struct peer *p, const struct discover_event *event,
                                   const struct discover_self *self, uint64_t now_us);
/* Gives the NIDs of a PUSH, once per DISCOVER_PUSH: *from may be ANY. */
void discover_push_nids(struct peer *p, struct lnet_nid *to, struct lnet_nid *from);
/* Returns the deadline of what is on its way to the peer, UINT64_MAX if nothing is. DISCOVER_LOOK
 * is due then. */
uint64_t discover_deadline_us(const struct peer *p);

#endif
