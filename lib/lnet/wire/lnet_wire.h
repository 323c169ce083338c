/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LNet's own wire formats: the message header in both forms and the ping info.
 * docs/protocol/lnet-core.md §2, §3.2. One validating decoder per structure; each returns 0 or the
 * named reason (drops.h) for which the bytes are refused. Pure functions.
 */
#ifndef MILLRACE_LNET_WIRE_H
#define MILLRACE_LNET_WIRE_H

#include "lib/lnet/wire/drops.h"
#include "lib/lnet/wire/nid.h"

#define LNET_HDR4_SIZE   72 /* nid4 header, §2.1 */
#define LNET_HDR16_SIZE  96 /* nid16 header, §2.2 */
#define LNET_BODY_SIZE   40 /* the union, same in both */
#define LNET_MAX_PAYLOAD (1u << 20)
#define LNET_PID_LUSTRE  12345u

enum lnet_msg_type {
    LNET_MSG_ACK,
    LNET_MSG_PUT,
    LNET_MSG_GET,
    LNET_MSG_REPLY,
    LNET_MSG_HELLO
};
#define LNET_MSG_TYPES 5

/* A header in memory, which is the nid16 form: hosts are little-endian, as the wire is. The union
 * stays as received, so that forwarding is bit-exact without knowing what is opaque in it (§2.3).
 */
struct lnet_hdr {
    struct lnet_nid dest_nid;
    struct lnet_nid src_nid;
    uint32_t dest_pid;
    uint32_t src_pid;
    uint32_t type;
    uint32_t payload_len;
    uint8_t body[LNET_BODY_SIZE];
};

struct lnet_handle { /* opaque to all but its maker, §2.4; in memory as on the wire */
    uint64_t interface_cookie;
    uint64_t object_cookie;
};
#define LNET_HANDLE_NONE ((struct lnet_handle){UINT64_MAX, UINT64_MAX})

struct lnet_ack {
    struct lnet_handle dst;
    uint64_t match_bits; /* raw bytes, §2.3 */
    uint32_t mlength;
};
struct lnet_put {
    struct lnet_handle ack; /* LNET_HANDLE_NONE = no ACK wanted */
    uint64_t match_bits;
    uint64_t hdr_data; /* raw bytes */
    uint32_t portal;
    uint32_t offset;
};
struct lnet_get {
    struct lnet_handle ret;
    uint64_t match_bits;
    uint32_t portal;
    uint32_t src_offset;
    uint32_t sink_length;
};
struct lnet_reply {
    struct lnet_handle dst;
};

/* Bytes that each takes of the union. */
#define LNET_ACK_SIZE (offsetof(struct lnet_ack, mlength) + sizeof(uint32_t))
#define LNET_PUT_SIZE sizeof(struct lnet_put)
#define LNET_GET_SIZE (offsetof(struct lnet_get, sink_length) + sizeof(uint32_t))

/* The union in fields. get: body -> fields. set: zeroes the union, then writes the fields; kernels
 * send unused bytes as zero, §2.3. */
static inline void lnet_body_get_ack(const struct lnet_hdr *h, struct lnet_ack *out)
{
    memcpy(out, h->body, LNET_ACK_SIZE);
}
static inline void lnet_body_get_put(const struct lnet_hdr *h, struct lnet_put *out)
{
    memcpy(out, h->body, LNET_PUT_SIZE);
}
static inline void lnet_body_get_get(const struct lnet_hdr *h, struct lnet_get *out)
{
    memcpy(out, h->body, LNET_GET_SIZE);
}
static inline void lnet_body_get_reply(const struct lnet_hdr *h, struct lnet_reply *out)
{
    memcpy(out, h->body, sizeof(*out));
}
static inline void lnet_body_set(struct lnet_hdr *h, const void *fields, size_t len)
{
    memset(h->body, 0, sizeof(h->body));
    memcpy(h->body, fields, len);
}
static inline void lnet_body_set_ack(struct lnet_hdr *h, const struct lnet_ack *in)
{
    lnet_body_set(h, in, LNET_ACK_SIZE);
}
static inline void lnet_body_set_put(struct lnet_hdr *h, const struct lnet_put *in)
{
    lnet_body_set(h, in, LNET_PUT_SIZE);
}
static inline void lnet_body_set_get(struct lnet_hdr *h, const struct lnet_get *in)
{
    lnet_body_set(h, in, LNET_GET_SIZE);
}
static inline void lnet_body_set_reply(struct lnet_hdr *h, const struct lnet_reply *in)
{
    lnet_body_set(h, in, sizeof(*in));
}

/* Checks what every header must satisfy, §4.2 rows 1..3: known type, payload length by type. The
 * decoders call it. */
static inline enum lnet_drop lnet_hdr_validate(const struct lnet_hdr *h)
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

/* Decode 72 (96) bytes. On refusal *out is still filled as far as it could be read (for logs). */
enum lnet_drop lnet_hdr_decode4(const void *wire, struct lnet_hdr *out);
enum lnet_drop lnet_hdr_decode16(const void *wire, struct lnet_hdr *out);
/* Whether encode4 takes it. */
static inline bool lnet_hdr_fits4(const struct lnet_hdr *h)
{
    return (nid_is_any(&h->dest_nid) || nid_is_nid4(&h->dest_nid)) &&
           (nid_is_any(&h->src_nid) || nid_is_nid4(&h->src_nid));
}
/* Encode. encode4 refuses (LNET_DROP_LARGE_NID_ON_NID4) a header whose NIDs do not both fit. */
enum lnet_drop lnet_hdr_encode4(const struct lnet_hdr *h, void *wire);
void lnet_hdr_encode16(const struct lnet_hdr *h, void *wire);

const char *lnet_msg_type_name(uint32_t type); /* "PUT"; "?" when unknown */

/* ---- ping info, §3.2 ---- */

#define LNET_PING_MAGIC      0x70696e67u
#define LNET_RESERVED_PORTAL 0u
#define LNET_PING_MATCH_BITS 0x8000000000000000ull
#define LNET_PING_HDR_SIZE   16
#define LNET_PING_MIN_SINK   272 /* §3.4 */
#define LNET_PING_MAX_NIDS   256 /* entries kept of a received info, without 0@lo */
#define LNET_PING_MAX_SIZE   16384

enum lnet_ping_feature {
    LNET_PING_BASE = 1,
    LNET_PING_NI_STATUS = 2,
    LNET_PING_RTE_DISABLED = 4,
    LNET_PING_MULTI_RAIL = 8,
    LNET_PING_DISCOVERY = 16,
    LNET_PING_LARGE_ADDR = 32,
    LNET_PING_PRIMARY_LARGE = 64,
    LNET_PING_METADATA = 128,
};

#define LNET_MAX_HEALTH 1000 /* of an NI or a peer NI, §6.1 */
#define LNET_NI_UP      0x15aac0deu
#define LNET_NI_DOWN    0xdeadfaceu

struct lnet_ping_ni {
    struct lnet_nid nid;
    uint32_t status; /* LNET_NI_UP, LNET_NI_DOWN, or any other value that was received */
};

struct lnet_ping_info {
    uint32_t features;
    uint32_t pid;
    uint32_t seqno;     /* entry 0's status word */
    uint32_t msg_size;  /* entry 0's size word as sent; encode computes it */
    uint32_t nnis;      /* nid4 entries declared, with 0@lo */
    uint32_t full_size; /* bytes the info says it has; more than was given = truncated */
    uint32_t count;     /* entries in ni[]: complete ones, nid4 first, 0@lo left out */
    bool truncated;     /* input ended before full_size, or more than LNET_PING_MAX_NIDS */
    bool swapped;       /* sender of the other byte order */
    struct lnet_ping_ni ni[LNET_PING_MAX_NIDS];
};

/* Decodes len bytes in the order of §3.2's receiver checks; LARGE entries included. A truncated
 * info is accepted as far as whole entries reach (from 16 bytes on; cut before entry 0 there is no
 * seqno yet). Refused with LNET_DROP_PING_BAD_INFO: other magic, NI_STATUS missing, nnis outside
 * 1..4096, entry 0 not 0@lo, a declared size that its own nid4 entries exceed. Entries that are no
 * usable NID are passed over. Bytes behind full_size (metadata, §3.3) are not looked at. */
enum lnet_drop lnet_ping_decode(const void *buf, size_t len, struct lnet_ping_info *out);
/* Writes features as given (LARGE_ADDR, PRIMARY_LARGE are added from ni[]), native (little-endian)
 * order: 0@lo with seqno, nid4 entries in order, large entries in order. Returns the size, or 0
 * when cap is too small. nnis, msg_size, full_size of info are ignored. */
size_t lnet_ping_encode(const struct lnet_ping_info *info, void *buf, size_t cap);
/* Primary NID by §3.2; false when there is none. */
bool lnet_ping_primary(const struct lnet_ping_info *info, struct lnet_nid *out);

#endif
