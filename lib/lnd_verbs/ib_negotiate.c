/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_verbs/ib_negotiate.h"

#include <errno.h>

#define PRIVILEGED_END 1024

void ib_conn_msg_init(struct ib_conn_msg *out, enum ib_type type, const struct ib_ends *ends,
                      unsigned depth, unsigned frags)
{
    *out = (struct ib_conn_msg){
        .hdr = {.version = IB_VERSION_2, .type = (uint8_t)type},
        .queue_depth = (uint16_t)depth,
        .max_frags = (uint16_t)frags,
        .max_msg_size = IB_MSG_SIZE,
    };
    out->hdr.src_nid = ends->my_nid;
    out->hdr.src_stamp = ends->my_stamp;
    out->hdr.dst_nid = ends->peer_nid;
    out->hdr.dst_stamp = ends->peer_stamp;
}

/* ---- called ---- */

/* The reasons on the wire, §1.7. */
static enum ib_why why_of(enum lnet_drop drop)
{
    switch ((unsigned)drop) {
    case IB_DROP(CONN_RACE):
        return IB_WHY_RACE;
    case IB_DROP(CONN_NO_MEMORY):
    case LNET_DROP_CONNECT_RATE:
    case IB_DROP(CONN_LIMIT): /* a passing lack of ours; after FATAL a kernel does not try again */
        return IB_WHY_NO_RESOURCES;
    case IB_DROP(CONN_STALE):
        return IB_WHY_STALE;
    case IB_DROP(CONN_FRAGS):
        return IB_WHY_FRAGS;
    case IB_DROP(CONN_DEPTH):
        return IB_WHY_DEPTH;
    case IB_DROP(CONN_EARLY):
        return IB_WHY_EARLY;
    default:
        return IB_WHY_FATAL;
    }
}

void ib_refuse(enum lnet_drop drop, const struct ib_terms *ni, struct ib_reject *out)
{
    *out = (struct ib_reject){
        .version = IB_VERSION_2, /* with version 1 here a kernel would go on with version 1, §1.8 */
        .why = (uint8_t)why_of(drop),
        .params = true,
        .stamp = ni ? ni->stamp : 0,
        .queue_depth = ni ? ni->depth : 0,
        .max_frags = ni ? ni->frags : 0,
        .max_msg_size = IB_MSG_SIZE,
    };
}

/* The order in which a kernel before 2.16 compares NIDs, and the order since 2.16. */
static uint32_t nid_order(uint64_t nid4)
{
    return (uint32_t)(nid4 >> 32) ^ __builtin_bswap32((uint32_t)nid4);
}

bool ib_race_lower(uint64_t src, uint64_t mine)
{
    return src < mine && nid_order(src) < nid_order(mine);
}

/* Rows 9 to 11: what is asked for. */
static enum lnet_drop check_params(const struct ib_terms *ni, const struct ib_conn_msg *req)
{
    if (req->queue_depth > ni->depth || req->queue_depth < IB_DEPTH_MIN)
        return IB_DROP(CONN_DEPTH);
    if (req->max_frags > ni->frags || req->max_frags == 0)
        return IB_DROP(CONN_FRAGS);
    if (req->max_msg_size > IB_MSG_SIZE)
        return IB_DROP(CONN_SIZE);
    return LNET_DROP_NONE;
}

static enum lnet_drop check_request(const struct ib_caller *caller, const struct ib_conn_msg *req)
{
    enum lnet_drop drop;

    if (caller->secure && caller->port >= PRIVILEGED_END) /* row 1 */
        return IB_DROP(CONN_PORT);
    if (caller->decoded != LNET_DROP_NONE) /* 2 to 4; 8 when it is no type of private data */
        return caller->decoded;
    if (req->hdr.version != IB_VERSION_2) /* ours: good, but of version 1 */
        return IB_DROP(CONN_VERSION);
    if (!caller->ni) /* 5, 6 */
        return caller->starting ? IB_DROP(CONN_EARLY) : IB_DROP(CONN_DEST);
    if (caller->ni->nid != req->hdr.dst_nid) /* 6 */
        return IB_DROP(CONN_DEST);
    if (req->hdr.dst_stamp != 0 && req->hdr.dst_stamp != caller->ni->stamp) /* 7 */
        return IB_DROP(CONN_STALE);
    if (req->hdr.type != IB_CONNREQ) /* 8 */
        return IB_DROP(CONN_TYPE);
    drop = check_params(caller->ni, req); /* 9 to 11 */
    if (drop != LNET_DROP_NONE)
        return drop;
    if (caller->dialling && caller->races < IB_RACES_MAX &&
        ib_race_lower(req->hdr.src_nid, caller->ni->nid)) /* 14 */
        return IB_DROP(CONN_RACE);
    if (caller->depth_max < IB_DEPTH_MIN) /* 15 */
        return IB_DROP(CONN_NO_MEMORY);
    return LNET_DROP_NONE;
}

enum lnet_drop ib_request_judge(const struct ib_caller *caller, const struct ib_conn_msg *req,
                                struct ib_verdict *out)
{
    const struct ib_terms *ni = caller->ni;
    struct ib_ends ends;

    memset(out, 0, sizeof(*out));
    out->drop = check_request(caller, req);
    if (out->drop != LNET_DROP_NONE) {
        ib_refuse(out->drop, ni, &out->reject);
        return out->drop;
    }
    out->depth =
        (uint16_t)(caller->depth_max < req->queue_depth ? caller->depth_max : req->queue_depth);
    out->frags = req->max_frags;
    ends = (struct ib_ends){ni->nid, ni->stamp, req->hdr.src_nid, req->hdr.src_stamp};
    ib_conn_msg_init(&out->ack, IB_CONNACK, &ends, out->depth, out->frags);
    return LNET_DROP_NONE;
}

/* ---- calling ---- */

void ib_ask_request(const struct ib_ask *ask, struct ib_conn_msg *out)
{
    struct ib_ends ends = {ask->mine.nid, ask->mine.stamp, ask->peer_nid, ask->peer_stamp};

    ib_conn_msg_init(out, IB_CONNREQ, &ends, ask->mine.depth, ask->mine.frags);
}

enum lnet_drop ib_ack_judge(const struct ib_ask *ask, enum lnet_drop decoded,
                            const struct ib_conn_msg *ack)
{
    enum lnet_drop drop;

    if (decoded != LNET_DROP_NONE)
        return decoded;
    if (ack->hdr.type != IB_CONNACK)
        return IB_DROP(CONN_TYPE);
    if (ack->hdr.version != IB_VERSION_2)
        return IB_DROP(CONN_VERSION);
    drop = check_params(&ask->mine, ack);
    if (drop != LNET_DROP_NONE)
        return drop;
    /* A kernel finds a wrong source with the first message, §1.11. This checks it at once. */
    if (ack->hdr.dst_nid != ask->mine.nid || ack->hdr.src_nid != ask->peer_nid)
        return IB_DROP(CONN_DEST);
    if (ack->hdr.dst_stamp != ask->mine.stamp)
        return IB_DROP(CONN_STALE);
    return LNET_DROP_NONE;
}

/* At once, but not for ever. */
static enum ib_next again(const struct ib_ask *ask)
{
    return ask->tries <= IB_TRIES_NOW ? IB_NEXT_NOW : IB_NEXT_LATER;
}

/* Asks for less, if that is less. */
static enum ib_next lower(const struct ib_ask *ask, uint16_t *mine, unsigned theirs, unsigned least)
{
    if (theirs >= *mine || theirs < least)
        return IB_NEXT_GIVE_UP;
    *mine = (uint16_t)theirs;
    return again(ask);
}

static enum ib_next take_reject(struct ib_ask *ask, const struct ib_reject *rej)
{
    switch (rej->why) {
    case IB_WHY_RACE:
        return IB_NEXT_WAIT;
    case IB_WHY_NO_RESOURCES:
    case IB_WHY_EARLY:
        return IB_NEXT_LATER;
    case IB_WHY_STALE:
        if (rej->stamp != 0)
            ask->peer_stamp = rej->stamp;
        return again(ask);
    case IB_WHY_FRAGS:
        return lower(ask, &ask->mine.frags, rej->max_frags, 1);
    case IB_WHY_DEPTH:
        return lower(ask, &ask->mine.depth, rej->queue_depth, IB_DEPTH_MIN);
    default:
        return IB_NEXT_GIVE_UP;
    }
}

enum ib_next ib_rejected(struct ib_ask *ask, int status, const void *priv, size_t len)
{
    struct ib_reject rej;

    ask->tries++;
    switch (status) {
    case IB_CM_CONSUMER:
    case -ECONNREFUSED:
        if (ib_reject_decode(priv, len, &rej) == LNET_DROP_NONE)
            return take_reject(ask, &rej);
        return IB_NEXT_LATER; /* the node answers in another protocol now */
    case IB_CM_STALE_CONN:
        return again(ask);
    default:
        return IB_NEXT_LATER;
    }
}
