/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message credits of one o2iblnd connection: docs/protocol/o2iblnd.md §3, protocol version 2.
 *
 * A peer that is sent more than it has buffers for stops its whole node (§3.7), and one that sends
 * us more must cost itself alone. So both directions are counted: what we may send, what we owe,
 * and what the peer has spent. Pure arithmetic without queues, time or device: the connection asks
 * before it posts and tells what happened. Belongs to the connection's home reactor.
 *
 * depth buffers are there for the peer's requests, as many for its answers to ours, and two for
 * NOOPs: a NOOP takes no credit, instead at most two of them are under way (§3.6).
 */
#ifndef MILLRACE_IB_CREDITS_H
#define MILLRACE_IB_CREDITS_H

#include "lib/lnd_verbs/ib_wire.h"

#define IB_DEPTH_MAX 255u /* credits travel in one byte, §2.1 */
#define IB_DEPTH_MIN 4u   /* below that a kernel's threshold for NOOPs is 0, §1.6 */
#define IB_NOOPS_MAX 2u   /* NOOPs posted and not completed, §3.3 */

/* Receive buffers that are posted before a connection is up, and kept posted. §3.1 */
static inline unsigned ib_rx_buffers(unsigned depth)
{
    return 2 * depth + IB_NOOPS_MAX;
}

/* What a message costs, §3.2. */
enum ib_class {
    IB_CLASS_REQUEST, /* PUT_REQ, GET_REQ: a credit, and a place for the peer's answer */
    IB_CLASS_SEND,    /* IMMEDIATE: a credit */
    IB_CLASS_ANSWER,  /* nothing: its place was kept by whom it answers */
    IB_CLASS_NOOP,    /* nothing: there are two buffers beyond */
};

/* type: one that ib_msg_decode() accepts. */
enum ib_class ib_class_of(unsigned type);

/* Owed credits from which on a NOOP returns them: the peer_credits_hiw of a node with peer_credits,
 * in proportion to a depth that was negotiated lower; 1..depth-1, so that a peer without any credit
 * is always told (§3.4, §3.6). hiw 0 stands for half of peer_credits; outside half..peer_credits-1
 * it is taken to the nearer end (§7). */
unsigned ib_credits_hiw(unsigned depth, unsigned peer_credits, unsigned hiw);

struct ib_credits {
    uint16_t depth;
    uint16_t hiw;
    uint16_t sends_max; /* messages posted and not completed */
    uint16_t credits;   /* C: messages with a credit that may still be sent */
    uint16_t owed;      /* O: buffers posted again that the peer has not been told of */
    uint16_t reserved;  /* R: requests that may still be sent */
    uint16_t sends;     /* S */
    uint16_t noops;     /* N, of the sends */
    uint16_t spent;     /* credits the peer has spent and not been given back: owed, and buffers
                           whose message is still being worked on */
    uint16_t asked;     /* requests posted and not answered */
    uint16_t acked;     /* requests of the peer answered with PUT_ACK, PUT_DONE to come */
};

/* depth IB_DEPTH_MIN..IB_DEPTH_MAX, hiw 1..depth-1, sends_max at least 1. */
void ib_credits_init(struct ib_credits *c, unsigned depth, unsigned hiw, unsigned sends_max);

/* ---- sending ---- */

/* Whether a NOOP must be sent: enough is owed, or nothing was sent for the keepalive time (idle),
 * and nothing else that could be sent now would take it along. answers, sends: whether such
 * messages are queued; requests that wait for a reserve are not asked for. §3.4 */
bool ib_credits_need_noop(const struct ib_credits *c, bool idle, bool answers, bool sends);

/* Before a request joins the queue of those that wait for credit only: takes its reserve. false:
 * it waits until an answer comes. §3.3 step 2 */
bool ib_credits_reserve(struct ib_credits *c);
/* Gives a reserve back of a request that will not be sent. */
void ib_credits_unreserve(struct ib_credits *c);

enum ib_may {
    IB_MAY_POST,
    IB_MAY_WAIT_SEND,   /* for the completion of a send */
    IB_MAY_WAIT_CREDIT, /* for the peer */
    IB_MAY_DISCARD,     /* a NOOP while two are under way: it is dropped, others go on */
};

/* Whether a message of this type can be posted now; a request must have its reserve. §3.3 step 4 */
enum ib_may ib_credits_may_post(const struct ib_credits *c, unsigned type);
/* It is posted: takes what it costs. Returns the credits to be put into its header: all that are
 * owed. §3.3 step 5 */
uint8_t ib_credits_post(struct ib_credits *c, unsigned type);
/* It could not be posted after all; returned: what ib_credits_post() gave. */
void ib_credits_unpost(struct ib_credits *c, unsigned type, uint8_t returned);
/* The completion of a posted message, good or bad. */
void ib_credits_sent(struct ib_credits *c, unsigned type);

/* ---- receiving ---- */

/* A message has come: takes the credits it brings and counts what it cost the peer. Every one must
 * be told, in order, before anything is done with it. What is not NONE costs the connection:
 *   IB_DROP(CREDITS)  it returns credits that were never spent (§3.7)
 *   IB_DROP(SPENT)    it was sent without a credit
 *   IB_DROP(ANSWER)   it ends something that was not begun: an answer while nothing
 *                           is asked, a PUT_DONE without a PUT_ACK */
enum lnet_drop ib_credits_receive(struct ib_credits *c, unsigned type, uint8_t returned);

/* The buffer of a received message is posted again, once per message, when the table in §3.5 says;
 * the credit leaves with the next message posted, so never earlier. acked: a PUT_REQ was answered
 * with PUT_ACK: its credit stays spent until PUT_DONE. Not looked at for other types. */
void ib_credits_repost(struct ib_credits *c, unsigned type, bool acked);

#endif
