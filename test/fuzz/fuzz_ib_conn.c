/* SPDX-License-Identifier: BSD-3-Clause */
/* Input: one byte that says what the private data is of (request, answer, reject), one of what is
 * known of the other node, then the private data. */
#include "lib/lnd_verbs/ib_negotiate.h"
#include "test/fuzz/fuzz.h"

#include "test/drops_test.h"
#include <errno.h>

REGISTER_DROPS(ib_drops);

#define NID_1   0x00050000c0a80a01ull /* 192.168.10.1@o2ib */
#define NID_2   0x00050000c0a80a02ull
#define STAMP_2 0x000640b5eecfe240ull

static struct ib_terms terms(unsigned known)
{
    return (struct ib_terms){NID_2, STAMP_2, known & 1 ? 8 : 255, known & 2 ? 256 : 257};
}

/* Encoded from its fields it is what came, but for a length that was too long. */
static void check_encode(const struct ib_conn_msg *m, const uint8_t *data)
{
    uint8_t wire[IB_CONN_SIZE];

    ib_conn_encode(m, wire);
    memcpy(wire + 8, data + 8, sizeof(uint32_t));
    HOLDS(memcmp(wire, data, sizeof(wire)) == 0);
}

/* A connection that is not made is a refusal, or one that the initiator repeats. */
static bool refuses(enum lnet_drop drop)
{
    enum lnet_drop_kind kind = lnet_drop_info(drop)->kind;

    return kind == DROP_KIND_REFUSAL || kind == DROP_KIND_RETRY;
}

static enum lnet_drop decode(const uint8_t *data, size_t size, struct ib_conn_msg *out)
{
    enum lnet_drop drop = ib_conn_decode(data, size, out);

    if (drop != LNET_DROP_NONE) {
        HOLDS(refuses(drop));
        return drop;
    }
    HOLDS(out->hdr.nob >= IB_CONN_SIZE && out->hdr.nob <= size);
    HOLDS(out->hdr.type == IB_CONNREQ || out->hdr.type == IB_CONNACK);
    HOLDS(nid4_wire_valid(out->hdr.src_nid));
    check_encode(out, data);
    return drop;
}

/* What we refuse is said so that the other node can do something about it. */
static void check_reject(const struct ib_reject *sent, const struct ib_terms *ni)
{
    uint8_t wire[IB_REJECT_SIZE];
    struct ib_reject back;

    ib_reject_encode(sent, wire);
    HOLDS(ib_reject_decode(wire, sizeof(wire), &back) == LNET_DROP_NONE);
    HOLDS(back.version == IB_VERSION_2 && back.params && back.why == sent->why);
    HOLDS(back.why != IB_WHY_NONE && back.why != IB_WHY_UNCOMPAT && back.why != IB_WHY_SERVICE);
    HOLDS(back.stamp == (ni ? ni->stamp : 0));
    HOLDS(strcmp(ib_why_text(back.why), ib_why_text(IB_WHY_NONE)) != 0);
}

static void fuzz_request(const uint8_t *data, size_t size, unsigned known)
{
    struct ib_terms ni = terms(known);
    struct ib_caller caller = {
        .secure = known & 4,
        .port = known & 8 ? 1024 : 1023,
        .ni = known & 16 ? NULL : &ni,
        .starting = known & 32,
        .dialling = known & 64,
        .depth_max = known & 128 ? 6 : 255,
    };
    struct ib_conn_msg req = {0}, ack;
    uint8_t wire[IB_CONN_SIZE];
    struct ib_verdict v;
    struct ib_ask ask;

    caller.decoded = decode(data, size, &req);
    if (ib_request_judge(&caller, &req, &v) != LNET_DROP_NONE) {
        HOLDS(refuses(v.drop));
        check_reject(&v.reject, caller.ni);
        return;
    }
    HOLDS(v.depth >= IB_DEPTH_MIN && v.depth <= req.queue_depth && v.depth <= ni.depth);
    HOLDS(v.depth <= caller.depth_max && v.frags >= 1 && v.frags <= ni.frags);
    /* Who asked takes the answer. */
    ask = (struct ib_ask){
        .mine = {req.hdr.src_nid, req.hdr.src_stamp, req.queue_depth, req.max_frags},
        .peer_nid = ni.nid,
    };
    ib_conn_encode(&v.ack, wire);
    HOLDS(decode(wire, sizeof(wire), &ack) == LNET_DROP_NONE);
    HOLDS(ib_ack_judge(&ask, LNET_DROP_NONE, &ack) == LNET_DROP_NONE);
    HOLDS(ack.queue_depth == v.depth && ack.max_frags == v.frags);
}

static void fuzz_ack(const uint8_t *data, size_t size, unsigned known)
{
    struct ib_ask ask = {.mine = terms(known), .peer_nid = NID_1};
    struct ib_conn_msg ack = {0};
    enum lnet_drop decoded = decode(data, size, &ack);
    enum lnet_drop drop = ib_ack_judge(&ask, decoded, &ack);

    HOLDS(drop == LNET_DROP_NONE || refuses(drop));
    if (drop != LNET_DROP_NONE)
        return;
    HOLDS(ack.queue_depth >= IB_DEPTH_MIN && ack.queue_depth <= ask.mine.depth);
    HOLDS(ack.max_frags >= 1 && ack.max_frags <= ask.mine.frags);
}

static void fuzz_reject(const uint8_t *data, size_t size, unsigned known)
{
    static const int statuses[] = {IB_CM_CONSUMER, -ECONNREFUSED, IB_CM_STALE_CONN,
                                   IB_CM_INVALID_SERVICE};
    struct ib_ask ask = {.mine = terms(known), .peer_nid = NID_1, .tries = known >> 4}, was = ask;
    int status = statuses[known >> 2 & 3];
    enum ib_next next = ib_rejected(&ask, status, data, size);
    uint8_t wire[IB_REJECT_SIZE];
    struct ib_conn_msg req;
    struct ib_reject rej;

    HOLDS(next <= IB_NEXT_GIVE_UP && ask.tries == was.tries + 1);
    HOLDS(ask.mine.depth <= was.mine.depth && ask.mine.depth >= IB_DEPTH_MIN);
    HOLDS(ask.mine.frags <= was.mine.frags && ask.mine.frags >= 1);
    HOLDS(next != IB_NEXT_NOW || ask.tries <= IB_TRIES_NOW);
    ib_ask_request(&ask, &req);
    HOLDS(req.queue_depth == ask.mine.depth && req.hdr.dst_stamp == ask.peer_stamp);
    if (ib_reject_decode(data, size, &rej) != LNET_DROP_NONE)
        return;
    HOLDS(size >= IB_REJECT_MIN && ib_why_text(rej.why));
    HOLDS(rej.params || (rej.stamp == 0 && rej.queue_depth == 0 && rej.max_frags == 0));
    if (!rej.params)
        return;
    ib_reject_encode(&rej, wire);
    wire[7] = data[7]; /* padding */
    HOLDS(memcmp(wire, data, sizeof(wire)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    switch (data[0] % 3) {
    case 0:
        fuzz_request(data + 2, size - 2, data[1]);
        break;
    case 1:
        fuzz_ack(data + 2, size - 2, data[1]);
        break;
    default:
        fuzz_reject(data + 2, size - 2, data[1]);
        break;
    }
    return 0;
}
