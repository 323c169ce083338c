/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The negotiation of an o2iblnd connection: docs/protocol/o2iblnd.md §1.6 to §1.9 and §1.11. Only
 * version 2 of the protocol is spoken. The refusal of a version 1 request does not make the peer
 * believe that we speak version 1 (§1.8, §12 no. 10).
 *
 * Pure functions; they may be called on any thread. The caller decides whom to ask, what to
 * allocate and when to try again.
 */
#ifndef MILLRACE_IB_NEGOTIATE_H
#define MILLRACE_IB_NEGOTIATE_H

#include "lib/lnd_verbs/ib_credits.h"

/* The values of an NI that peers see. */
struct ib_terms {
    uint64_t nid;
    uint64_t stamp; /* its incarnation, never 0 */
    uint16_t depth; /* peer_credits: IB_DEPTH_MIN..IB_DEPTH_MAX */
    uint16_t frags; /* 1..IB_FRAGS_MAX */
};

/* Fills in a CONNREQ or CONNACK (type) between these ends. */
void ib_conn_msg_init(struct ib_conn_msg *out, enum ib_type type, const struct ib_ends *ends,
                      unsigned depth, unsigned frags);

/* ---- accepting: §1.7 ---- */

#define IB_RACES_MAX 20u /* refused races, after which the lower NID is accepted, §1.9 */

/* A request, apart from its private data. */
struct ib_caller {
    bool secure;            /* only privileged source ports are let in */
    uint16_t port;          /* the source port */
    enum lnet_drop decoded; /* result of ib_conn_decode() */
    const struct ib_terms
        *ni;            /* the NI with the NID it asks for, on the device it came by; or NULL */
    bool starting;      /* ni is NULL, and NIs of this device are still starting */
    bool dialling;      /* we are connecting to that node */
    unsigned races;     /* connections refused for that in a row */
    unsigned depth_max; /* the greatest depth that a queue pair can be made for */
};

struct ib_verdict {
    enum lnet_drop drop; /* NONE: accept with ack; else reject */
    uint16_t depth;      /* when accepted: of both directions */
    uint16_t frags;
    struct ib_conn_msg ack; /* when accepted */
    struct ib_reject reject;
};

/* Evaluates a request by the checks of §1.7, but for row 13; the first that fails decides. When
 * caller->decoded is not NONE, reads only the fields of req's header that are set then. A failed
 * allocation and an error of the CM come later: ib_refuse(). */
enum lnet_drop ib_request_judge(const struct ib_caller *caller, const struct ib_conn_msg *req,
                                struct ib_verdict *out);
/* Fills in the reject for any reason of kind refusal, rows 12, 15, 16 too. ni may be NULL. */
void ib_refuse(enum lnet_drop drop, const struct ib_terms *ni, struct ib_reject *out);

/* Returns whether the initiator with NID src gives way to us by the rule of every kernel version.
 * Versions compare NIDs in different orders, so src must be lower in both orders. §1.9 */
bool ib_race_lower(uint64_t src, uint64_t mine);

/* ---- connecting ---- */

#define IB_TRIES_NOW 10u /* attempts that follow at once, §1.8 */

/* A run of attempts to open one connection. */
struct ib_ask {
    struct ib_terms mine; /* depth and frags: as the next request asks for */
    uint64_t peer_nid;
    uint64_t peer_stamp; /* last known, or 0 */
    unsigned tries;      /* attempts rejected in a row; the caller resets it */
};

/* Fills in the CONNREQ to send. */
void ib_ask_request(const struct ib_ask *ask, struct ib_conn_msg *out);
/* Evaluates the CONNACK (§1.11); decoded: the result of ib_conn_decode(). When the result is not
 * NONE, the caller closes the connection at once. The depth and frags of ack are those of the
 * connection. */
enum lnet_drop ib_ack_judge(const struct ib_ask *ask, enum lnet_drop decoded,
                            const struct ib_conn_msg *ack);

/* Reasons of the CM itself for a reject; status of its event. */
#define IB_CM_NO_RESOURCES    3
#define IB_CM_TIMEOUT         4
#define IB_CM_INVALID_SERVICE 8
#define IB_CM_STALE_CONN      10
#define IB_CM_CONSUMER        28 /* with an o2iblnd reject */

enum ib_next {
    IB_NEXT_NOW,   /* tries again, with the new *ask */
    IB_NEXT_LATER, /* tries again after a pause */
    IB_NEXT_WAIT,  /* the other node is connecting to us: waits for about a second, then as LATER */
    IB_NEXT_GIVE_UP, /* another attempt has the same result */
};

/* Decides what follows a reject (§1.8). status: of the CM's event, or -ECONNREFUSED, which iWARP
 * has instead of 28 (§10.2). Changes *ask to the next request. */
enum ib_next ib_rejected(struct ib_ask *ask, int status, const void *priv, size_t len);

#endif
