/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire formats of the socklnd protocol: the acceptor request and reply, the HELLO, and the
 * frame before each message. docs/protocol/socklnd.md.
 *
 * Pure functions: no allocation, no state; buffers need no alignment. All integers are
 * little-endian on the wire (§0) and in host order in the structs here.
 *
 * A connection in set-up is read in steps. An initiator may send any part of a request and stop. No
 * byte behind the request may be read. sock_*_stage() looks at the bytes so far and returns how
 * many more to read, or how to refuse. sock_*_decode() then decodes the whole.
 */
#ifndef MILLRACE_SOCKLND_WIRE_H
#define MILLRACE_SOCKLND_WIRE_H

#include "lib/base/container.h"
#include "lib/lnd_eth/socklnd/sock_drops.h"
#include "lib/lnet/wire/lnet_wire.h"

/* ---- constants, §0 ---- */

#define SOCK_ACCEPTOR_PORT  988
#define SOCK_PORT_MIN       512 /* reserved ports that callers use */
#define SOCK_PORT_MAX       1023
#define SOCK_MAGIC_ACCEPTOR 0xacce7100u
#define SOCK_MAGIC_LNET     0x45726963u /* HELLO v2 and later */
#define SOCK_MAGIC_TCP_V1   0xeebc0dedu
#define SOCK_REQ_V1         1u /* 4-byte NID */
#define SOCK_REQ_V2         2u /* 20-byte NID */
#define SOCK_HELLO_V3       3u /* over IPv4 */
#define SOCK_HELLO_V4       4u /* over IPv6 */
#define SOCK_NIPS_MAX       16u
#define SOCK_MIN_BULK       1024u
#define SOCK_COOKIE_PING    1u /* ZC cookie that means keepalive */

enum sock_ctype {
    SOCK_CTYPE_NONE = -1, /* "no connection": a refusal */
    SOCK_CTYPE_ANY = 0,
    SOCK_CTYPE_CONTROL = 1,
    SOCK_CTYPE_BULK_IN = 2,
    SOCK_CTYPE_BULK_OUT = 3,
};

/* The type that the other side of a connection has; NONE for what is no type. §2.3 */
enum sock_ctype sock_ctype_invert(enum sock_ctype type);

/* ---- wire forms ---- */

struct sock_wire_req4 {
    uint32_t magic;
    uint32_t version;
    uint64_t nid;
} __attribute__((packed));

struct sock_wire_req16 {
    uint32_t magic;
    uint32_t version;
    struct lnet_nid nid;
} __attribute__((packed));

struct sock_wire_hello_tail { /* what both end with */
    uint32_t src_pid;
    uint32_t dst_pid;
    uint64_t src_incarnation;
    uint64_t dst_incarnation;
    uint32_t ctype;
    uint32_t nips;
} __attribute__((packed));

struct sock_wire_hello4 { /* v3; nips IPv4 addresses follow */
    uint32_t magic;
    uint32_t version;
    uint64_t src_nid;
    uint64_t dst_nid;
    struct sock_wire_hello_tail tail;
} __attribute__((packed));

struct sock_wire_hello16 { /* v4; nothing follows */
    uint32_t magic;
    uint32_t version;
    struct lnet_nid src_nid;
    struct lnet_nid dst_nid;
    struct sock_wire_hello_tail tail;
} __attribute__((packed));

struct sock_wire_frame {
    uint32_t type;
    uint32_t csum;
    uint64_t cookie[2];
} __attribute__((packed));

#define SOCK_REQ4_SIZE    16
#define SOCK_REQ16_SIZE   28
#define SOCK_REQ_MAX      SOCK_REQ16_SIZE
#define SOCK_REPLY_SIZE   16
#define SOCK_HELLO4_SIZE  56
#define SOCK_HELLO16_SIZE 80
#define SOCK_HELLO_MAX    (SOCK_HELLO4_SIZE + 4 * SOCK_NIPS_MAX)
#define SOCK_FRAME_SIZE   24

ASSERT_AT(sock_wire_req4, magic, 0); /* §1.1 */
ASSERT_AT(sock_wire_req4, version, 4);
ASSERT_AT(sock_wire_req4, nid, 8);
_Static_assert(sizeof(struct sock_wire_req4) == SOCK_REQ4_SIZE, "acceptor request v1");
ASSERT_AT(sock_wire_req16, nid, 8);
_Static_assert(sizeof(struct sock_wire_req16) == SOCK_REQ16_SIZE, "acceptor request v2");
ASSERT_AT(sock_wire_hello_tail, dst_pid, 4); /* §2.1 */
ASSERT_AT(sock_wire_hello_tail, src_incarnation, 8);
ASSERT_AT(sock_wire_hello_tail, dst_incarnation, 16);
ASSERT_AT(sock_wire_hello_tail, ctype, 24);
ASSERT_AT(sock_wire_hello_tail, nips, 28);
ASSERT_AT(sock_wire_hello4, src_nid, 8);
ASSERT_AT(sock_wire_hello4, dst_nid, 16);
ASSERT_AT(sock_wire_hello4, tail, 24);
_Static_assert(sizeof(struct sock_wire_hello4) == SOCK_HELLO4_SIZE, "HELLO v3");
ASSERT_AT(sock_wire_hello16, src_nid, 8);
ASSERT_AT(sock_wire_hello16, dst_nid, 28);
ASSERT_AT(sock_wire_hello16, tail, 48);
_Static_assert(sizeof(struct sock_wire_hello16) == SOCK_HELLO16_SIZE, "HELLO v4");
ASSERT_AT(sock_wire_frame, type, 0); /* §4.1 */
ASSERT_AT(sock_wire_frame, csum, 4);
ASSERT_AT(sock_wire_frame, cookie, 8);
_Static_assert(sizeof(struct sock_wire_frame) == SOCK_FRAME_SIZE, "frame header");

/* ---- reading in steps ---- */

/* The first four bytes that a caller sends. */
enum sock_magic {
    SOCK_FIRST_UNKNOWN,
    SOCK_FIRST_ACCEPTOR,
    SOCK_FIRST_ACCEPTOR_FLIP, /* a caller of the other byte order */
    SOCK_FIRST_LNET,          /* generic: asks what is spoken here */
    SOCK_FIRST_LNET_FLIP,
    SOCK_FIRST_TCP_V1, /* either order */
};

enum sock_magic sock_magic(const void *wire);

struct sock_stage {
    enum lnet_drop drop; /* not NONE: refuse and close */
    bool answer;         /* before closing write the acceptor reply, or a HELLO with type NONE */
    size_t need;         /* bytes still to read before asking again; 0 = complete, or refused */
};

/* ---- acceptor request and reply, §1.1, §1.3 ---- */

struct sock_req {
    uint32_t version; /* SOCK_REQ_V1 or V2 */
    bool flip;        /* came from a caller of the other byte order; encode ignores it */
    struct lnet_nid target;
};

/* Decides on the first len bytes of a request. Reads magic, version and NID one after the other and
 * refuses at the first that is wrong. Ignores the bytes behind the request. sock_req_decode()
 * checks the NID itself. */
struct sock_stage sock_req_stage(const void *buf, size_t len);
/* The whole request; len at least what sock_req_stage() asked for. SOCK_DROP(REQ_EOF) when it
 * is less, SOCK_DROP(REQ_NID) when the NID is malformed. */
enum lnet_drop sock_req_decode(const void *buf, size_t len, struct sock_req *out);
/* Version by the target: 4-byte address 1, else 2. Returns the size. */
size_t sock_req_encode(const struct lnet_nid *target, uint8_t buf[SOCK_REQ_MAX]);
/* {acceptor magic, 1, 0}: the answer to an unknown version and to the generic magic. */
void sock_reply_encode(uint8_t buf[SOCK_REPLY_SIZE]);

/* ---- HELLO, §2 ---- */

struct sock_hello {
    uint32_t version; /* SOCK_HELLO_V3 or V4 */
    struct lnet_nid src_nid;
    struct lnet_nid dst_nid;
    uint32_t src_pid;
    uint32_t dst_pid;
    uint64_t src_incarnation;
    uint64_t dst_incarnation;
    enum sock_ctype ctype;
    uint32_t nips;               /* 0 to send; what v4 carries here means nothing */
    uint32_t ips[SOCK_NIPS_MAX]; /* of v3, host order */
};

/* Returns whether a received HELLO begins like one of v4. */
bool sock_hello_is_v4(const void *buf, size_t len);
/* Decides on the first len bytes of a HELLO on a connection of this version (V3, V4). Ignores the
 * bytes behind the HELLO. Refuses a HELLO in the other byte order without an answer (§1.3), and any
 * other version with an answer. */
struct sock_stage sock_hello_stage(const void *buf, size_t len, uint32_t version);
/* Decodes a whole HELLO and checks all that its bytes show: magic, version, NIDs, type, addresses.
 * Type NONE passes: for an initiator it is an answer, and the accepting side refuses it later. The
 * destination may be ANY, the source not. SOCK_DROP(REQ_EOF) when len is too short. */
enum lnet_drop sock_hello_decode(const void *buf, size_t len, uint32_t version,
                                 struct sock_hello *out);
/* Returns the size, or 0 when it cannot be said in that version: a version not known, a large NID
 * in v3 (it is never truncated), too many addresses. */
size_t sock_hello_encode(const struct sock_hello *in, uint8_t buf[SOCK_HELLO_MAX]);

/* ---- frames, §4 ---- */

enum sock_frame_type {
    SOCK_FRAME_NOOP = 0xc0,
    SOCK_FRAME_LNET = 0xc1
};

struct sock_frame {
    uint32_t type;
    uint32_t csum; /* 0 = none. We send none */
    uint64_t cookie[2];
};

/* Checks type and, of a NOOP, the checksum: on v3 and v4 it covers no bytes, so 0 or the bare seed
 * (§4.6). The payload's checksum is the receiver's to compare. */
enum lnet_drop sock_frame_decode(const void *wire, struct sock_frame *out);
void sock_frame_encode(const struct sock_frame *in, uint8_t buf[SOCK_FRAME_SIZE]);

/* Cookie of the acknowledgement that this LNET frame wants once its payload is in; 0 = none. */
static inline uint64_t sock_frame_zc_req(const struct sock_frame *f)
{
    return f->type == SOCK_FRAME_LNET ? f->cookie[0] : 0;
}

/* Counts the cookies that a frame acknowledges, §4.5: none, one, a pair or a range. A keepalive
 * acknowledges none. SOCK_DROP(ZC_ACK) when the cookies are a combination that does not exist (the
 * keepalive's cookie in a pair). */
enum lnet_drop sock_frame_zc_ack(const struct sock_frame *f, uint64_t *count);

/* CRC-32, reflected, no final inversion (§4.6). Start with SOCK_CRC_SEED, go on with the result. */
#define SOCK_CRC_SEED 0xffffffffu
uint32_t sock_crc32(uint32_t crc, const void *buf, size_t len);

/* A message of nob bytes, frame header and LNet header included, belongs on BULK_OUT. §3.3 */
static inline bool sock_msg_is_bulk(size_t nob)
{
    return nob >= SOCK_MIN_BULK;
}

#endif
