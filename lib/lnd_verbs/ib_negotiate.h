/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two nodes agree on when an o2iblnd connection is made: docs/protocol/o2iblnd.md §1.6 to §1.9
 * and §1.11. Version 2 of the protocol only; a node that asks for version 1 is refused in a way
 * that does not lead it to think that version 1 is spoken here (§1.8, §12 no. 10).
 *
 * Pure functions of what was received and what is known; they may be called on any thread. Who is
 * asked, what is allocated and when it is tried again is the caller's.
 */
#ifndef MILLRACE_IB_NEGOTIATE_H
#define MILLRACE_IB_NEGOTIATE_H

#include "lib/lnd_verbs/ib_credits.h"

/* An NI, as far as others are told. */
struct ib_terms {
    uint64_t nid;
    uint64_t stamp; /* its incarnation, never 0 */
    uint16_t depth; /* peer_credits: IB_DEPTH_MIN..IB_DEPTH_MAX */
    uint16_t frags; /* 1..IB_FRAGS_MAX */
};

/* ---- called: §1.7 ---- */

#define IB_RACES_MAX 20u /* after so many the lower one is let in, §1.9 */

/* What is known of a request besides its private data. */
struct ib_caller {
    bool secure;            /* only privileged source ports are let in */
    uint16_t port;          /* the source port */
    enum lnet_drop decoded; /* what ib_conn_decode() said */
    const struct ib_terms
        *ni;             /* the NI with the NID it asks for, on the device it came by; or NULL */
    bool starting;       /* there is none, and NIs of this device are still coming up */
    uint64_t peer_stamp; /* the caller's incarnation as last known; 0 = not known */
    bool dialling;       /* we are calling that node ourselves */
    unsigned races;      /* refused for that, one after the other */
    unsigned depth_max;  /* messages each way that a queue pair can be made for */
};

struct ib_verdict {
    enum lnet_drop drop; /* NONE: accept with ack; else reject */
    bool restarted;      /* the node has a new incarnation: close all connections with it and
                            remember the new one, whether it is accepted or not */
    uint16_t depth;      /* when accepted: of both directions */
    uint16_t frags;
    struct ib_conn_msg ack; /* when accepted */
    struct ib_reject reject;
};

/* Judges a request by the checks of §1.7, of which the first that fails decides. req is not looked
 * at beyond its header's fields that are set when caller->decoded is not NONE. Allocation and what
 * the CM says come later: ib_refuse(). */
enum lnet_drop ib_request_judge(const struct ib_caller *caller, const struct ib_conn_msg *req,
                                struct ib_verdict *out);
/* The reject for any reason of kind refusal: rows 12, 15, 16 too. ni may be NULL. */
void ib_refuse(enum lnet_drop drop, const struct ib_terms *ni, struct ib_reject *out);

/* Whether the one who calls with NID src gives way to us, by the rule of every version of the
 * kernel's: they compare in different orders, so only who is lower in both does. §1.9 */
bool ib_race_lower(uint64_t src, uint64_t mine);

/* ---- calling ---- */

#define IB_TRIES_NOW 10u /* so many are made at once, §1.8 */

/* A call as it stands, over all its tries. */
struct ib_ask {
    struct ib_terms mine; /* depth and frags: what is asked for next */
    uint64_t peer_nid;
    uint64_t peer_stamp; /* last known, or 0 */
    unsigned tries;      /* rejected, one after the other; the caller sets it back */
};

/* The CONNREQ to send. */
void ib_ask_request(const struct ib_ask *ask, struct ib_conn_msg *out);
/* Judges the CONNACK (§1.11); decoded: what ib_conn_decode() said. When it is not NONE, the
 * connection is to be closed at once. ack's depth and frags are those of the connection. */
enum lnet_drop ib_ack_judge(const struct ib_ask *ask, enum lnet_drop decoded,
                            const struct ib_conn_msg *ack);

/* Reasons of the CM itself for a reject; status of its event. */
#define IB_CM_NO_RESOURCES    3
#define IB_CM_TIMEOUT         4
#define IB_CM_INVALID_SERVICE 8
#define IB_CM_STALE_CONN      10
#define IB_CM_CONSUMER        28 /* with an o2iblnd reject */

enum ib_next {
    IB_NEXT_NOW,     /* ask again, as *ask says now */
    IB_NEXT_LATER,   /* the same after a pause */
    IB_NEXT_WAIT,    /* the other node is calling us: for about a second, then as LATER */
    IB_NEXT_GIVE_UP, /* it will not be otherwise */
};

/* What follows from a reject (§1.8). status: of the CM's event, or -ECONNREFUSED, which is what
 * iWARP says instead of 28 (§10.2). Changes *ask to what is to be asked next. */
enum ib_next ib_rejected(struct ib_ask *ask, int status, const void *priv, size_t len);

#endif
