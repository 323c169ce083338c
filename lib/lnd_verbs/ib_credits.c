/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_verbs/ib_credits.h"

enum ib_class ib_class_of(unsigned type)
{
    switch (type) {
    case IB_PUT_REQ:
    case IB_GET_REQ:
        return IB_CLASS_REQUEST;
    case IB_IMMEDIATE:
        return IB_CLASS_SEND;
    case IB_NOOP:
        return IB_CLASS_NOOP;
    default:
        return IB_CLASS_ANSWER;
    }
}

static bool takes_credit(unsigned type)
{
    return ib_class_of(type) == IB_CLASS_REQUEST || ib_class_of(type) == IB_CLASS_SEND;
}

/* The messages that end a request of ours, §3.5. PUT_DONE is not among them: it ends a request of
 * the peer's. */
static bool ends_request(unsigned type)
{
    return type == IB_PUT_ACK || type == IB_PUT_NAK || type == IB_GET_DONE;
}

unsigned ib_credits_hiw(unsigned depth, unsigned peer_credits, unsigned hiw)
{
    unsigned low = peer_credits / 2, high = peer_credits - 1, own;

    own = hiw < low ? low : hiw > high ? high : hiw;
    if (depth < peer_credits)
        own = depth * own / peer_credits; /* below depth, as it was below peer_credits */
    return own > 0 ? own : 1;
}

void ib_credits_init(struct ib_credits *c, unsigned depth, unsigned hiw, unsigned sends_max)
{
    *c = (struct ib_credits){
        .depth = (uint16_t)depth,
        .hiw = (uint16_t)hiw,
        .sends_max = (uint16_t)sends_max,
        .credits = (uint16_t)depth,
        .reserved = (uint16_t)depth,
    };
}

/* ---- sending ---- */

bool ib_credits_need_noop(const struct ib_credits *c, bool idle, bool sends)
{
    return (c->owed >= c->hiw || idle) && (!sends || c->credits == 0);
}

bool ib_credits_reserve(struct ib_credits *c)
{
    if (c->reserved == 0)
        return false;
    c->reserved--;
    return true;
}

enum ib_may ib_credits_may_post(const struct ib_credits *c, unsigned type)
{
    if (c->sends >= c->sends_max)
        return IB_MAY_WAIT_SEND;
    if (takes_credit(type) && c->credits == 0)
        return IB_MAY_WAIT_CREDIT;
    if (type == IB_NOOP && c->noops >= IB_NOOPS_MAX)
        return IB_MAY_DISCARD;
    return IB_MAY_POST;
}

uint8_t ib_credits_post(struct ib_credits *c, unsigned type)
{
    uint16_t returned = c->owed;

    c->credits -= takes_credit(type);
    c->noops += type == IB_NOOP;
    c->asked += ib_class_of(type) == IB_CLASS_REQUEST;
    c->sends++;
    c->owed = 0;
    c->spent -= returned;
    return (uint8_t)returned; /* at most depth */
}

void ib_credits_unpost(struct ib_credits *c, unsigned type, uint8_t returned)
{
    c->credits += takes_credit(type);
    c->noops -= type == IB_NOOP;
    c->asked -= ib_class_of(type) == IB_CLASS_REQUEST;
    c->sends--;
    c->owed += returned;
    c->spent += returned;
}

void ib_credits_sent(struct ib_credits *c, unsigned type)
{
    c->noops -= type == IB_NOOP;
    c->sends--;
}

/* ---- receiving ---- */

enum lnet_drop ib_credits_receive(struct ib_credits *c, unsigned type, uint8_t returned)
{
    if (returned > c->depth - c->credits)
        return IB_DROP(CREDITS);
    c->credits += returned;
    if (takes_credit(type)) {
        if (c->spent == c->depth)
            return IB_DROP(SPENT);
        c->spent++;
    }
    if (ends_request(type)) {
        if (c->asked == 0)
            return IB_DROP(ANSWER);
        c->asked--;
    }
    if (type == IB_PUT_DONE) {
        if (c->acked == 0)
            return IB_DROP(ANSWER);
        c->acked--;
    }
    return LNET_DROP_NONE;
}

void ib_credits_repost(struct ib_credits *c, unsigned type, bool acked)
{
    if (ends_request(type))
        c->reserved++;
    else if (type == IB_PUT_REQ && acked)
        c->acked++;
    else if (type != IB_NOOP)
        c->owed++;
}
