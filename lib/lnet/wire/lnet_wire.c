/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnet/wire/lnet_wire.h"

#include <endian.h>

/* The wire forms are copied in and out whole, so the caller's buffers need no alignment. All of it
 * is little-endian but struct lnet_nid, handles and hdr_data (docs/protocol/lnet-core.md §2). */

struct wire_tail { /* what follows the NIDs in both forms */
    uint32_t dest_pid;
    uint32_t src_pid;
    uint32_t type;
    uint32_t payload_len;
    uint8_t body[LNET_BODY_SIZE];
} __attribute__((packed));

struct wire_hdr4 {
    uint64_t dest_nid;
    uint64_t src_nid;
    struct wire_tail tail;
} __attribute__((packed));

struct wire_hdr16 {
    struct lnet_nid dest_nid;
    struct lnet_nid src_nid;
    struct wire_tail tail;
} __attribute__((packed));

struct wire_ack {
    struct lnet_handle dst;
    uint64_t match_bits;
    uint32_t mlength;
} __attribute__((packed));

struct wire_put {
    struct lnet_handle ack;
    uint64_t match_bits;
    uint64_t hdr_data;
    uint32_t portal;
    uint32_t offset;
} __attribute__((packed));

struct wire_get {
    struct lnet_handle ret;
    uint64_t match_bits;
    uint32_t portal;
    uint32_t src_offset;
    uint32_t sink_length;
} __attribute__((packed));

#define ASSERT_AT(type, field, offset)                                                             \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)

/* §2.1 */
ASSERT_AT(wire_hdr4, dest_nid, 0);
ASSERT_AT(wire_hdr4, src_nid, 8);
ASSERT_AT(wire_hdr4, tail.dest_pid, 16);
ASSERT_AT(wire_hdr4, tail.src_pid, 20);
ASSERT_AT(wire_hdr4, tail.type, 24);
ASSERT_AT(wire_hdr4, tail.payload_len, 28);
ASSERT_AT(wire_hdr4, tail.body, 32);
_Static_assert(sizeof(struct wire_hdr4) == LNET_HDR4_SIZE, "nid4 header size");
/* §2.2 */
ASSERT_AT(wire_hdr16, dest_nid, 0);
ASSERT_AT(wire_hdr16, src_nid, 20);
ASSERT_AT(wire_hdr16, tail.dest_pid, 40);
ASSERT_AT(wire_hdr16, tail.src_pid, 44);
ASSERT_AT(wire_hdr16, tail.type, 48);
ASSERT_AT(wire_hdr16, tail.payload_len, 52);
ASSERT_AT(wire_hdr16, tail.body, 56);
_Static_assert(sizeof(struct wire_hdr16) == LNET_HDR16_SIZE, "nid16 header size");
/* §2.3, offsets of the nid4 form less 32 */
ASSERT_AT(wire_ack, dst.interface_cookie, 0);
ASSERT_AT(wire_ack, dst.object_cookie, 8);
ASSERT_AT(wire_ack, match_bits, 16);
ASSERT_AT(wire_ack, mlength, 24);
ASSERT_AT(wire_put, ack, 0);
ASSERT_AT(wire_put, match_bits, 16);
ASSERT_AT(wire_put, hdr_data, 24);
ASSERT_AT(wire_put, portal, 32);
ASSERT_AT(wire_put, offset, 36);
_Static_assert(sizeof(struct wire_put) == LNET_BODY_SIZE, "the PUT fills the union");
ASSERT_AT(wire_get, ret, 0);
ASSERT_AT(wire_get, match_bits, 16);
ASSERT_AT(wire_get, portal, 24);
ASSERT_AT(wire_get, src_offset, 28);
ASSERT_AT(wire_get, sink_length, 32);

/* ---- the union ---- */

void lnet_body_get_ack(const struct lnet_hdr *h, struct lnet_ack *out)
{
    struct wire_ack w;

    memcpy(&w, h->body, sizeof(w));
    out->dst = w.dst;
    out->match_bits = w.match_bits; /* senders do not convert it, §2.3 */
    out->mlength = le32toh(w.mlength);
}

void lnet_body_get_put(const struct lnet_hdr *h, struct lnet_put *out)
{
    struct wire_put w;

    memcpy(&w, h->body, sizeof(w));
    out->ack = w.ack;
    out->match_bits = le64toh(w.match_bits);
    out->hdr_data = w.hdr_data;
    out->portal = le32toh(w.portal);
    out->offset = le32toh(w.offset);
}

void lnet_body_get_get(const struct lnet_hdr *h, struct lnet_get *out)
{
    struct wire_get w;

    memcpy(&w, h->body, sizeof(w));
    out->ret = w.ret;
    out->match_bits = le64toh(w.match_bits);
    out->portal = le32toh(w.portal);
    out->src_offset = le32toh(w.src_offset);
    out->sink_length = le32toh(w.sink_length);
}

void lnet_body_get_reply(const struct lnet_hdr *h, struct lnet_reply *out)
{
    memcpy(&out->dst, h->body, sizeof(out->dst));
}

static void set_body(struct lnet_hdr *h, const void *w, size_t len)
{
    memset(h->body, 0, sizeof(h->body)); /* kernels send unused union bytes as zero, §2.3 */
    memcpy(h->body, w, len);
}

void lnet_body_set_ack(struct lnet_hdr *h, const struct lnet_ack *in)
{
    struct wire_ack w = {
        .dst = in->dst,
        .match_bits = in->match_bits,
        .mlength = htole32(in->mlength),
    };

    set_body(h, &w, sizeof(w));
}

void lnet_body_set_put(struct lnet_hdr *h, const struct lnet_put *in)
{
    struct wire_put w = {
        .ack = in->ack,
        .match_bits = htole64(in->match_bits),
        .hdr_data = in->hdr_data,
        .portal = htole32(in->portal),
        .offset = htole32(in->offset),
    };

    set_body(h, &w, sizeof(w));
}

void lnet_body_set_get(struct lnet_hdr *h, const struct lnet_get *in)
{
    struct wire_get w = {
        .ret = in->ret,
        .match_bits = htole64(in->match_bits),
        .portal = htole32(in->portal),
        .src_offset = htole32(in->src_offset),
        .sink_length = htole32(in->sink_length),
    };

    set_body(h, &w, sizeof(w));
}

void lnet_body_set_reply(struct lnet_hdr *h, const struct lnet_reply *in)
{
    set_body(h, &in->dst, sizeof(in->dst));
}

/* ---- the header ---- */

enum lnet_drop lnet_hdr_validate(const struct lnet_hdr *h)
{
    switch (h->type) {
    case LNET_MSG_ACK:
    case LNET_MSG_GET:
        if (h->payload_len != 0)
            return LNET_DROP_HDR_LEN_NOT_ZERO;
        break;
    case LNET_MSG_PUT:
    case LNET_MSG_REPLY:
        if (h->payload_len > LNET_MAX_PAYLOAD)
            return LNET_DROP_HDR_TOO_LONG;
        break;
    default: /* HELLO too: it belongs to stream drivers and is never a message, §2.3 */
        return LNET_DROP_HDR_TYPE;
    }
    if (!nid_wire_valid(&h->dest_nid) || !nid_wire_valid(&h->src_nid))
        return LNET_DROP_HDR_BAD_NID;
    return LNET_DROP_NONE;
}

static void tail_decode(const struct wire_tail *w, struct lnet_hdr *out)
{
    out->dest_pid = le32toh(w->dest_pid);
    out->src_pid = le32toh(w->src_pid);
    out->type = le32toh(w->type);
    out->payload_len = le32toh(w->payload_len);
    memcpy(out->body, w->body, sizeof(out->body));
}

static void tail_encode(const struct lnet_hdr *h, struct wire_tail *w)
{
    w->dest_pid = htole32(h->dest_pid);
    w->src_pid = htole32(h->src_pid);
    w->type = htole32(h->type);
    w->payload_len = htole32(h->payload_len);
    memcpy(w->body, h->body, sizeof(w->body));
}

enum lnet_drop lnet_hdr_decode4(const void *wire, struct lnet_hdr *out)
{
    struct wire_hdr4 w;
    enum lnet_drop drop;

    memcpy(&w, wire, sizeof(w));
    out->dest_nid = nid_from_u64(le64toh(w.dest_nid));
    out->src_nid = nid_from_u64(le64toh(w.src_nid));
    tail_decode(&w.tail, out);
    drop = lnet_hdr_validate(out);
    if (drop != LNET_DROP_NONE)
        return drop;
    if (!nid4_wire_valid(le64toh(w.dest_nid)) || !nid4_wire_valid(le64toh(w.src_nid)))
        return LNET_DROP_HDR_BAD_NID;
    return LNET_DROP_NONE;
}

enum lnet_drop lnet_hdr_decode16(const void *wire, struct lnet_hdr *out)
{
    struct wire_hdr16 w;

    memcpy(&w, wire, sizeof(w));
    out->dest_nid = w.dest_nid;
    out->src_nid = w.src_nid;
    tail_decode(&w.tail, out);
    return lnet_hdr_validate(out);
}

enum lnet_drop lnet_hdr_encode4(const struct lnet_hdr *h, void *wire)
{
    struct wire_hdr4 w;

    if (!lnet_hdr_fits4(h))
        return LNET_DROP_LARGE_NID_ON_NID4;
    w.dest_nid = htole64(nid_to_u64(&h->dest_nid));
    w.src_nid = htole64(nid_to_u64(&h->src_nid));
    tail_encode(h, &w.tail);
    memcpy(wire, &w, sizeof(w));
    return LNET_DROP_NONE;
}

void lnet_hdr_encode16(const struct lnet_hdr *h, void *wire)
{
    struct wire_hdr16 w;

    w.dest_nid = h->dest_nid;
    w.src_nid = h->src_nid;
    tail_encode(h, &w.tail);
    memcpy(wire, &w, sizeof(w));
}

const char *lnet_msg_type_name(uint32_t type)
{
    static const char *const names[LNET_MSG_TYPES] = {
        [LNET_MSG_ACK] = "ACK",     [LNET_MSG_PUT] = "PUT",     [LNET_MSG_GET] = "GET",
        [LNET_MSG_REPLY] = "REPLY", [LNET_MSG_HELLO] = "HELLO",
    };

    return type < LNET_MSG_TYPES ? names[type] : "?";
}
