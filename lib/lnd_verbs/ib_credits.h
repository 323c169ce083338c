/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message credits of one o2iblnd connection: docs/protocol/o2iblnd.md §3, protocol version 2.
 *
 * A peer that gets more messages than it has buffers for stops its whole node (§3.7). A peer that
 * sends us more must harm only itself. So this counts both directions: the credits that we have,
 * those that we owe, and those that the peer has spent. It is arithmetic without queues, time or
 * device: the connection asks before it posts a message and reports what happened. All runs on the
 * connection's home reactor.
 *
 * A connection has `depth` buffers for the peer's requests, as many for its answers to our
 * requests, and two for NOOPs. A NOOP takes no credit, but at most two NOOPs are in flight (§3.6).
 */
#ifndef MILLRACE_IB_CREDITS_H
#define MILLRACE_IB_CREDITS_H

#include "lib/lnd_verbs/ib_wire.h"

#define IB_DEPTH_MAX 255u /* credits travel in one byte, §2.1 */
#define IB_DEPTH_MIN 4u   /* below that a kernel's threshold for NOOPs is 0, §1.6 */
#define IB_NOOPS_MAX 2u   /* NOOPs posted and not completed, §3.3 */

/* Returns the receive buffers that are posted before a connection is up, and stay posted. §3.1 */
static inline unsigned ib_rx_buffers(unsigned depth)
{
    return 2 * depth + IB_NOOPS_MAX;
}

/* The cost of a message, §3.2. */
enum ib_class {
    IB_CLASS_REQUEST, /* PUT_REQ, GET_REQ: a credit, and a buffer for the peer's answer */
    IB_CLASS_SEND,    /* IMMEDIATE: a credit */
    IB_CLASS_ANSWER,  /* nothing: the request reserved its buffer */
    IB_CLASS_NOOP,    /* nothing: there are two extra buffers */
};

/* type: one that ib_msg_decode() accepts. */
enum ib_class ib_class_of(unsigned type);

/* Returns from how many owed credits on a NOOP returns them: peer_credits_hiw, scaled to a depth
 * that was negotiated lower than peer_credits. The result is 1..depth-1, so that a peer without any
 * credit always gets some (§3.4, §3.6). A hiw of 0 stands for half of peer_credits. A value outside
 * half..peer_credits-1 is set to the nearer end (§7). */
unsigned ib_credits_hiw(unsigned depth, unsigned peer_credits, unsigned hiw);

struct ib_credits {
    uint16_t depth;
    uint16_t hiw;
    uint16_t sends_max; /* messages posted and not completed */
    uint16_t credits;   /* C: messages with a credit that may still be sent */
    uint16_t owed;      /* O: buffers posted again whose credits were not returned yet */
    uint16_t reserved;  /* R: requests that may still be sent */
    uint16_t sends;     /* S */
    uint16_t noops;     /* N, of the sends */
    uint16_t spent;     /* credits that the peer has spent and not got back: owed ones, and buffers
                           whose message is still in use */
    uint16_t asked;     /* requests posted and not answered */
    uint16_t acked;     /* requests of the peer answered with PUT_ACK, PUT_DONE to come */
};

/* depth IB_DEPTH_MIN..IB_DEPTH_MAX, hiw 1..depth-1, sends_max at least 1. */
void ib_credits_init(struct ib_credits *c, unsigned depth, unsigned hiw, unsigned sends_max);

/* ---- sending ---- */

/* Returns whether a NOOP must be sent. It must if enough credits are owed, or if nothing was sent
 * for the keepalive time (idle), unless another message that can be sent now returns the credits.
 * sends: whether such messages are queued. Answers are not: they go out before. Requests that wait
 * for a reserve do not count. §3.4 */
bool ib_credits_need_noop(const struct ib_credits *c, bool idle, bool sends);

/* Takes the reserve of a request, before the request waits for credit only. Returns false if the
 * request must wait until an answer comes. §3.3 step 2 */
bool ib_credits_reserve(struct ib_credits *c);

enum ib_may {
    IB_MAY_POST,
    IB_MAY_WAIT_SEND,   /* for the completion of a send */
    IB_MAY_WAIT_CREDIT, /* for the peer */
    IB_MAY_DISCARD,     /* a NOOP while two are under way: it is dropped, others go on */
};

/* Returns whether a message of this type can be posted now. A request must have its reserve. §3.3
 * step 4 */
enum ib_may ib_credits_may_post(const struct ib_credits *c, unsigned type);
/* A message is posted: takes its cost. Returns the credits for its header: all that are owed. §3.3
 * step 5 */
uint8_t ib_credits_post(struct ib_credits *c, unsigned type);
/* Undoes ib_credits_post() of a message that could not be posted. returned: its result. */
void ib_credits_unpost(struct ib_credits *c, unsigned type, uint8_t returned);
/* A posted message has completed, with or without an error. */
void ib_credits_sent(struct ib_credits *c, unsigned type);

/* ---- receiving ---- */

/* clang-format off */
/* A message has come: takes the credits that it returns and counts its cost to the peer. Must be
 * called for each message, in order, before the message is used. A result other than NONE closes
 * the connection:
 *   IB_DROP(CREDITS)  the message returns credits that were never spent (§3.7)
 *   IB_DROP(SPENT)    the message was sent without a credit
 *   IB_DROP(ANSWER)   the message ends something that was not begun: an answer without a
 *                     request, a PUT_DONE without a PUT_ACK */
/* clang-format on */
enum lnet_drop ib_credits_receive(struct ib_credits *c, unsigned type, uint8_t returned);

/* Posts the buffer of a received message again, once per message, when the table in §3.5 says. The
 * credit returns with the next message posted, and never earlier. acked: a PUT_REQ was answered
 * with PUT_ACK, so that its credit stays spent until PUT_DONE; ignored for other types. */
void ib_credits_repost(struct ib_credits *c, unsigned type, bool acked);

#endif
