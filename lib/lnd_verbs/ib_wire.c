/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_verbs/ib_wire.h"

#define PREFIX_SIZE 6 /* magic and version: the same in every version, §2.1 */

static uint16_t order16(uint16_t v, bool flip)
{
    return flip ? __builtin_bswap16(v) : v;
}

static uint32_t order32(uint32_t v, bool flip)
{
    return flip ? __builtin_bswap32(v) : v;
}

static uint64_t order64(uint64_t v, bool flip)
{
    return flip ? __builtin_bswap64(v) : v;
}

const char *ib_why_text(unsigned why)
{
    static const char *const texts[] = {
        [IB_WHY_RACE] = "refused: it calls here itself",
        [IB_WHY_NO_RESOURCES] = "refused: it has no memory or no queue pair for it",
        [IB_WHY_FATAL] = "refused for good: NID, net, version or source port; its log says which",
        [IB_WHY_STALE] = "refused: it knew another life of one of the two",
        [IB_WHY_FRAGS] = "refused: it takes fewer fragments",
        [IB_WHY_DEPTH] = "refused: its queues are less deep (peer_credits)",
        [IB_WHY_EARLY] = "refused: its NIs are not up yet",
    };

    return why < sizeof(texts) / sizeof(texts[0]) && texts[why]
               ? texts[why]
               : "refused: for a reason that is not known here";
}

/* ---- header ---- */

uint32_t ib_cksum(const void *msg, size_t nob, bool signed_bytes)
{
    const size_t field = offsetof(struct ib_wire_hdr, cksum);
    const uint8_t *p = msg;
    uint32_t sum = 0;

    for (size_t i = 0; i < nob; i++) {
        uint8_t byte = i - field < sizeof(uint32_t) ? 0 : p[i];

        sum = (sum << 1 | sum >> 31) + (signed_bytes ? (uint32_t)(int8_t)byte : byte);
    }
    return sum != 0 ? sum : 1;
}

enum bad_hdr {
    HDR_GOOD,
    HDR_SHORT,
    HDR_MAGIC,
    HDR_VERSION,
    HDR_CKSUM,
};

/* The drop reasons of an invalid header: of a message, of private data. */
static const struct {
    enum lnet_drop msg, conn;
} hdr_drops[] = {
    [HDR_SHORT] = {IB_DROP(LENGTH), IB_DROP(CONN_LENGTH)},
    [HDR_MAGIC] = {IB_DROP(MAGIC), IB_DROP(CONN_MAGIC)},
    [HDR_VERSION] = {IB_DROP(VERSION), IB_DROP(CONN_VERSION)},
    [HDR_CKSUM] = {IB_DROP(CKSUM), IB_DROP(CONN_CKSUM)},
};

static bool cksum_good(const void *buf, const struct ib_hdr *hdr)
{
    return hdr->cksum == 0 || hdr->cksum == ib_cksum(buf, hdr->nob, false) ||
           hdr->cksum == ib_cksum(buf, hdr->nob, true);
}

/* §2.4 items 1 to 3, in that order. */
static enum bad_hdr take_hdr(const void *buf, size_t len, struct ib_hdr *out)
{
    struct ib_wire_hdr w;

    if (len < PREFIX_SIZE)
        return HDR_SHORT;
    memcpy(&w, buf, PREFIX_SIZE);
    if (w.magic != IB_MAGIC && w.magic != __builtin_bswap32(IB_MAGIC))
        return HDR_MAGIC;
    out->flip = w.magic != IB_MAGIC;
    out->version = order16(w.version, out->flip);
    if (out->version != IB_VERSION_1 && out->version != IB_VERSION_2)
        return HDR_VERSION;
    if (len < sizeof(w))
        return HDR_SHORT;
    memcpy(&w, buf, sizeof(w));
    out->type = w.type;
    out->credits = w.credits;
    out->nob = order32(w.nob, out->flip);
    out->cksum = order32(w.cksum, out->flip);
    out->src_nid = order64(w.src_nid, out->flip);
    out->src_stamp = order64(w.src_stamp, out->flip);
    out->dst_nid = order64(w.dst_nid, out->flip);
    out->dst_stamp = order64(w.dst_stamp, out->flip);
    if (out->nob > len || out->nob < sizeof(w))
        return HDR_SHORT;
    return cksum_good(buf, out) ? HDR_GOOD : HDR_CKSUM;
}

static void put_hdr(const struct ib_hdr *in, size_t nob, void *buf)
{
    struct ib_wire_hdr w = {
        .magic = order32(IB_MAGIC, in->flip),
        .version = order16(in->version, in->flip),
        .type = in->type,
        .credits = in->credits,
        .nob = order32((uint32_t)nob, in->flip),
        .cksum = order32(in->cksum, in->flip),
        .src_nid = order64(in->src_nid, in->flip),
        .src_stamp = order64(in->src_stamp, in->flip),
        .dst_nid = order64(in->dst_nid, in->flip),
        .dst_stamp = order64(in->dst_stamp, in->flip),
    };

    memcpy(buf, &w, sizeof(w));
}

enum lnet_drop ib_msg_ends(const struct ib_hdr *hdr, const struct ib_ends *ends)
{
    if (hdr->src_nid != ends->peer_nid || hdr->dst_nid != ends->my_nid)
        return IB_DROP(NID);
    if (hdr->src_stamp != ends->peer_stamp || hdr->dst_stamp != ends->my_stamp)
        return IB_DROP(STAMP);
    return LNET_DROP_NONE;
}

/* ---- descriptors ---- */

void ib_rd_frag(const struct ib_rd *rd, uint32_t i, struct ib_frag *out)
{
    struct ib_wire_frag w;

    memcpy(&w, rd->wire + (size_t)i * sizeof(w), sizeof(w));
    out->nob = order32(w.nob, rd->flip);
    out->addr = order64(w.addr, rd->flip);
}

/* Checks that each fragment has bytes and does not wrap around the address space, and that their
 * sum is a length that peers can count, §4.4. */
static bool add_frag(const struct ib_frag *frag, uint32_t *total)
{
    if (frag->nob == 0 || frag->nob > IB_FRAG_NOB_MAX - *total)
        return false;
    if (frag->nob - 1 > UINT64_MAX - frag->addr)
        return false;
    *total += frag->nob;
    return true;
}

/* wire: the descriptor; room: bytes of the message from there on. */
static enum lnet_drop take_rd(const uint8_t *wire, size_t room, bool flip, struct ib_rd *out)
{
    struct ib_wire_rd w;
    struct ib_frag frag;

    memcpy(&w, wire, sizeof(w));
    out->flip = flip;
    out->key = order32(w.key, flip);
    out->nfrags = order32(w.nfrags, flip);
    out->total = 0;
    out->wire = wire + sizeof(w);
    if (out->nfrags == 0 || out->nfrags > IB_FRAGS_MAX)
        return IB_DROP(FRAGS);
    if (room - sizeof(w) < (size_t)out->nfrags * IB_FRAG_SIZE)
        return IB_DROP(FRAGS);
    for (uint32_t i = 0; i < out->nfrags; i++) {
        ib_rd_frag(out, i, &frag);
        if (!add_frag(&frag, &out->total))
            return IB_DROP(FRAG_RANGE);
    }
    return LNET_DROP_NONE;
}

/* Encodes a descriptor. Returns the bytes written, or 0 when it may not be sent. */
static size_t put_rd(const struct ib_rd *rd, const struct ib_frag *frags, bool flip, uint8_t *wire)
{
    struct ib_wire_rd w = {order32(rd->key, flip), order32(rd->nfrags, flip)};
    uint32_t total = 0;

    memcpy(wire, &w, sizeof(w));
    for (uint32_t i = 0; i < rd->nfrags; i++) {
        struct ib_wire_frag f = {order32(frags[i].nob, flip), order64(frags[i].addr, flip)};

        if (!add_frag(&frags[i], &total))
            return 0;
        memcpy(wire + sizeof(w) + i * sizeof(f), &f, sizeof(f));
    }
    return sizeof(w) + rd->nfrags * sizeof(struct ib_wire_frag);
}

/* ---- messages: one validator each; nob is at least the type's least, §2.2 ---- */

static enum lnet_drop take_immediate(const uint8_t *buf, struct ib_msg *out)
{
    enum lnet_drop drop = lnet_hdr_decode4(buf + IB_HDR_SIZE, &out->lnet);

    out->payload = buf + IB_IMMEDIATE_SIZE;
    out->carried = out->hdr.nob - IB_IMMEDIATE_SIZE;
    if (drop == LNET_DROP_NONE && out->lnet.payload_len > out->carried)
        return IB_DROP(PAYLOAD);
    return drop;
}

static void take_cookie(const uint8_t *buf, struct ib_msg *out)
{
    memcpy(&out->cookie, buf + IB_IMMEDIATE_SIZE, sizeof(out->cookie));
}

static enum lnet_drop take_put_req(const uint8_t *buf, struct ib_msg *out)
{
    enum lnet_drop drop = lnet_hdr_decode4(buf + IB_HDR_SIZE, &out->lnet);

    take_cookie(buf, out);
    if (drop == LNET_DROP_NONE && out->lnet.type != LNET_MSG_PUT &&
        out->lnet.type != LNET_MSG_REPLY)
        return IB_DROP(LNET_TYPE); /* §5.1 */
    return drop;
}

static enum lnet_drop take_get_req(const uint8_t *buf, struct ib_msg *out)
{
    enum lnet_drop drop = lnet_hdr_decode4(buf + IB_HDR_SIZE, &out->lnet);

    take_cookie(buf, out);
    if (drop != LNET_DROP_NONE)
        return drop;
    if (out->lnet.type != LNET_MSG_GET)
        return IB_DROP(LNET_TYPE); /* §5.1 */
    return take_rd(buf + IB_PUT_REQ_SIZE, out->hdr.nob - IB_PUT_REQ_SIZE, out->hdr.flip, &out->rd);
}

static enum lnet_drop take_put_ack(const uint8_t *buf, struct ib_msg *out)
{
    const size_t rd_at = IB_HDR_SIZE + offsetof(struct ib_wire_putack, rd);
    struct ib_wire_putack w;

    memcpy(&w, buf + IB_HDR_SIZE, sizeof(w));
    out->cookie = w.src_cookie;
    out->dst_cookie = w.dst_cookie;
    return take_rd(buf + rd_at, out->hdr.nob - rd_at, out->hdr.flip, &out->rd);
}

static enum lnet_drop take_completion(const uint8_t *buf, struct ib_msg *out)
{
    struct ib_wire_completion w;

    memcpy(&w, buf + IB_HDR_SIZE, sizeof(w));
    out->cookie = w.cookie;
    out->status = (int32_t)order32((uint32_t)w.status, out->hdr.flip);
    return LNET_DROP_NONE;
}

static enum lnet_drop take_noop(const uint8_t *buf, struct ib_msg *out)
{
    return LNET_DROP_NONE;
}

static const struct {
    uint16_t size; /* least nob */
    enum lnet_drop (*take)(const uint8_t *buf, struct ib_msg *out);
} msg_types[] = {
    {IB_HDR_SIZE, take_noop}, /* the first: IB_NOOP */
    [IB_IMMEDIATE - IB_NOOP] = {IB_IMMEDIATE_SIZE, take_immediate},
    [IB_PUT_REQ - IB_NOOP] = {IB_PUT_REQ_SIZE, take_put_req},
    [IB_PUT_NAK - IB_NOOP] = {IB_COMPLETION_SIZE, take_completion},
    [IB_PUT_ACK - IB_NOOP] = {IB_PUT_ACK_SIZE, take_put_ack},
    [IB_PUT_DONE - IB_NOOP] = {IB_COMPLETION_SIZE, take_completion},
    [IB_GET_REQ - IB_NOOP] = {IB_GET_REQ_SIZE, take_get_req},
    [IB_GET_DONE - IB_NOOP] = {IB_COMPLETION_SIZE, take_completion},
};

static bool is_msg_type(unsigned type)
{
    return type >= IB_NOOP && type - IB_NOOP < sizeof(msg_types) / sizeof(msg_types[0]);
}

enum lnet_drop ib_msg_decode(const void *buf, size_t len, struct ib_msg *out)
{
    enum bad_hdr bad = take_hdr(buf, len, &out->hdr);

    if (bad != HDR_GOOD)
        return hdr_drops[bad].msg;
    if (out->hdr.version != IB_VERSION_2) /* no connection of another was accepted */
        return IB_DROP(VERSION);
    if (!is_msg_type(out->hdr.type))
        return IB_DROP(TYPE);
    if (out->hdr.nob < msg_types[out->hdr.type - IB_NOOP].size || out->hdr.nob > IB_MSG_SIZE)
        return IB_DROP(LENGTH);
    return msg_types[out->hdr.type - IB_NOOP].take(buf, out);
}

/* ---- writing messages ---- */

/* Returns the bytes to write, or 0 for a message that is too long or has an invalid number of
 * fragments. */
static size_t head_size(const struct ib_msg *in)
{
    unsigned type = in->hdr.type;

    if (!is_msg_type(type) || (type == IB_IMMEDIATE && in->carried > IB_IMMEDIATE_MAX))
        return 0;
    if (type != IB_PUT_ACK && type != IB_GET_REQ)
        return msg_types[type - IB_NOOP].size;
    if (in->rd.nfrags == 0 || in->rd.nfrags > IB_FRAGS_MAX)
        return 0;
    return msg_types[type - IB_NOOP].size + in->rd.nfrags * (size_t)IB_FRAG_SIZE;
}

/* LNet header, cookie and descriptor of the three requests. */
static bool put_request(const struct ib_msg *in, const struct ib_frag *frags, uint8_t *buf)
{
    if (lnet_hdr_encode4(&in->lnet, buf + IB_HDR_SIZE) != LNET_DROP_NONE)
        return false;
    if (in->hdr.type == IB_IMMEDIATE)
        return true;
    memcpy(buf + IB_IMMEDIATE_SIZE, &in->cookie, sizeof(in->cookie));
    return in->hdr.type == IB_PUT_REQ ||
           put_rd(&in->rd, frags, in->hdr.flip, buf + IB_PUT_REQ_SIZE) > 0;
}

static bool put_put_ack(const struct ib_msg *in, const struct ib_frag *frags, uint8_t *buf)
{
    struct ib_wire_putack w = {.src_cookie = in->cookie, .dst_cookie = in->dst_cookie};
    uint8_t *at = buf + IB_HDR_SIZE;

    memcpy(at, &w, offsetof(struct ib_wire_putack, rd));
    return put_rd(&in->rd, frags, in->hdr.flip, at + offsetof(struct ib_wire_putack, rd)) > 0;
}

static void put_completion(const struct ib_msg *in, uint8_t *buf)
{
    struct ib_wire_completion w = {
        .cookie = in->cookie,
        .status = (int32_t)order32((uint32_t)in->status, in->hdr.flip),
    };

    memcpy(buf + IB_HDR_SIZE, &w, sizeof(w));
}

size_t ib_msg_encode(const struct ib_msg *in, const struct ib_frag *frags, void *buf, size_t cap)
{
    size_t size = head_size(in);

    if (size == 0 || cap < size)
        return 0;
    put_hdr(&in->hdr, size + (in->hdr.type == IB_IMMEDIATE ? in->carried : 0), buf);
    switch (in->hdr.type) {
    case IB_NOOP:
        return size;
    case IB_IMMEDIATE:
    case IB_PUT_REQ:
    case IB_GET_REQ:
        return put_request(in, frags, buf) ? size : 0;
    case IB_PUT_ACK:
        return put_put_ack(in, frags, buf) ? size : 0;
    default:
        put_completion(in, buf);
        return size;
    }
}

/* ---- private data ---- */

enum lnet_drop ib_conn_decode(const void *buf, size_t len, struct ib_conn_msg *out)
{
    enum bad_hdr bad = take_hdr(buf, len, &out->hdr);
    struct ib_wire_params w;

    if (bad != HDR_GOOD)
        return hdr_drops[bad].conn;
    if (out->hdr.type != IB_CONNREQ && out->hdr.type != IB_CONNACK)
        return IB_DROP(CONN_TYPE);
    if (out->hdr.nob < IB_CONN_SIZE)
        return IB_DROP(CONN_LENGTH);
    memcpy(&w, (const uint8_t *)buf + IB_HDR_SIZE, sizeof(w));
    out->queue_depth = order16(w.queue_depth, out->hdr.flip);
    out->max_frags = order16(w.max_frags, out->hdr.flip);
    out->max_msg_size = order32(w.max_msg_size, out->hdr.flip);
    if (!nid4_wire_valid(out->hdr.src_nid) || out->hdr.src_nid >> 48 != LNET_LND_O2IB)
        return IB_DROP(CONN_NID);
    return LNET_DROP_NONE;
}

static struct ib_wire_params wire_params(uint16_t depth, uint16_t frags, uint32_t size, bool flip)
{
    return (struct ib_wire_params){
        .queue_depth = order16(depth, flip),
        .max_frags = order16(frags, flip),
        .max_msg_size = order32(size, flip),
    };
}

void ib_conn_encode(const struct ib_conn_msg *in, uint8_t buf[IB_CONN_SIZE])
{
    struct ib_wire_params w =
        wire_params(in->queue_depth, in->max_frags, in->max_msg_size, in->hdr.flip);

    put_hdr(&in->hdr, IB_CONN_SIZE, buf);
    memcpy(buf + IB_HDR_SIZE, &w, sizeof(w));
}

enum lnet_drop ib_reject_decode(const void *buf, size_t len, struct ib_reject *out)
{
    struct ib_wire_reject w = {0};

    memset(out, 0, sizeof(*out));
    if (len < IB_REJECT_MIN)
        return IB_DROP(CONN_LENGTH);
    memcpy(&w, buf, len < sizeof(w) ? IB_REJECT_MIN : sizeof(w));
    out->flip =
        w.magic == __builtin_bswap32(IB_MAGIC) || w.magic == __builtin_bswap32(IB_MAGIC_LNET);
    out->generic = order32(w.magic, out->flip) == IB_MAGIC_LNET;
    if (order32(w.magic, out->flip) != IB_MAGIC && !out->generic)
        return IB_DROP(CONN_MAGIC);
    out->version = order16(w.version, out->flip);
    out->why = w.why;
    out->params = len >= sizeof(w) && out->version > IB_VERSION_1;
    if (!out->params)
        return LNET_DROP_NONE;
    out->stamp = order64(w.stamp, out->flip);
    out->queue_depth = order16(w.params.queue_depth, out->flip);
    out->max_frags = order16(w.params.max_frags, out->flip);
    out->max_msg_size = order32(w.params.max_msg_size, out->flip);
    return LNET_DROP_NONE;
}

void ib_reject_encode(const struct ib_reject *in, uint8_t buf[IB_REJECT_SIZE])
{
    struct ib_wire_reject w = {
        .magic = order32(in->generic ? IB_MAGIC_LNET : IB_MAGIC, in->flip),
        .version = order16(in->version, in->flip),
        .why = in->why,
        .stamp = order64(in->stamp, in->flip),
        .params = wire_params(in->queue_depth, in->max_frags, in->max_msg_size, in->flip),
    };

    memcpy(buf, &w, sizeof(w));
}
