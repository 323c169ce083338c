/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wire formats of the o2iblnd protocol: the messages that travel as RDMA sends, and the private
 * data of the RDMA CM that requests, accepts and rejects a connection. docs/protocol/o2iblnd.md.
 *
 * Pure functions: no allocation, no state; buffers need no alignment; they may be called on any
 * thread. Integers are in the sender's byte order on the wire (§2.1), which the magic shows; flip
 * means the other order than ours. In the structs here integers are in host order, except cookies,
 * which are opaque and returned as they came (§2.4). We send in our own order (flip false); the
 * encoders obey flip so that tests can play a peer of the other order. The LNet header inside a
 * message is always little-endian (§2.3).
 *
 * NIDs of the hop are in their 64-bit form, which is all this protocol has (§2.6).
 */
#ifndef MILLRACE_IB_WIRE_H
#define MILLRACE_IB_WIRE_H

#include "lib/base/container.h"
#include "lib/lnd_verbs/ib_drops.h"
#include "lib/lnet/wire/lnet_wire.h"

/* ---- constants ---- */

#define IB_MAGIC         0x0be91b91u /* §2.1 */
#define IB_MAGIC_LNET    0x45726963u /* generic; only a reject may begin with it, §1.4 */
#define IB_VERSION_1     0x11u       /* known, not spoken: §12 no. 10 */
#define IB_VERSION_2     0x12u
#define IB_MSG_SIZE      4096u     /* a receive buffer, so the longest message, §2.5 */
#define IB_FRAGS_MAX     257u      /* of a descriptor; 256 with peers up to 2.14, §2.5 */
#define IB_FRAG_NOB_MAX  INT32_MAX /* bytes of a fragment, and of all together, §4.4 */
#define IB_IMMEDIATE_MAX (IB_MSG_SIZE - IB_IMMEDIATE_SIZE) /* payload, 3976 */

enum ib_type { /* §2.2 */
    IB_CONNREQ = 0xc0,
    IB_CONNACK = 0xc1,
    IB_NOOP = 0xd0,
    IB_IMMEDIATE = 0xd1,
    IB_PUT_REQ = 0xd2,
    IB_PUT_NAK = 0xd3,
    IB_PUT_ACK = 0xd4,
    IB_PUT_DONE = 0xd5,
    IB_GET_REQ = 0xd6,
    IB_GET_DONE = 0xd7,
};

/* ---- wire forms ---- */

struct ib_wire_hdr {
    uint32_t magic;
    uint16_t version;
    uint8_t type;
    uint8_t credits;
    uint32_t nob;
    uint32_t cksum;
    uint64_t src_nid;
    uint64_t src_stamp;
    uint64_t dst_nid;
    uint64_t dst_stamp;
} __attribute__((packed));

struct ib_wire_params { /* CONNREQ, CONNACK */
    uint16_t queue_depth;
    uint16_t max_frags;
    uint32_t max_msg_size;
} __attribute__((packed));

struct ib_wire_frag {
    uint32_t nob;
    uint64_t addr;
} __attribute__((packed));

struct ib_wire_rd { /* nfrags fragments follow */
    uint32_t key;
    uint32_t nfrags;
} __attribute__((packed));

struct ib_wire_putack { /* behind the header; fragments follow */
    uint64_t src_cookie;
    uint64_t dst_cookie;
    struct ib_wire_rd rd;
} __attribute__((packed));

struct ib_wire_completion { /* PUT_NAK, PUT_DONE, GET_DONE; behind the header */
    uint64_t cookie;
    int32_t status;
} __attribute__((packed));

struct ib_wire_reject {
    uint32_t magic;
    uint16_t version;
    uint8_t why;
    uint8_t padding;
    uint64_t stamp;
    struct ib_wire_params params;
} __attribute__((packed));

#define IB_HDR_SIZE        48
#define IB_CONN_SIZE       56
#define IB_IMMEDIATE_SIZE  120 /* without payload */
#define IB_PUT_REQ_SIZE    128
#define IB_COMPLETION_SIZE 60
#define IB_PUT_ACK_SIZE    72 /* without fragments */
#define IB_GET_REQ_SIZE    136
#define IB_FRAG_SIZE       12
#define IB_REJECT_SIZE     24
#define IB_REJECT_MIN      7 /* up to why, §1.4 */

ASSERT_AT(ib_wire_hdr, version, 4); /* §2.1 */
ASSERT_AT(ib_wire_hdr, type, 6);
ASSERT_AT(ib_wire_hdr, credits, 7);
ASSERT_AT(ib_wire_hdr, nob, 8);
ASSERT_AT(ib_wire_hdr, cksum, 12);
ASSERT_AT(ib_wire_hdr, src_nid, 16);
ASSERT_AT(ib_wire_hdr, src_stamp, 24);
ASSERT_AT(ib_wire_hdr, dst_nid, 32);
ASSERT_AT(ib_wire_hdr, dst_stamp, 40);
_Static_assert(sizeof(struct ib_wire_hdr) == IB_HDR_SIZE, "header");
ASSERT_AT(ib_wire_params, max_frags, 2); /* §1.3 */
ASSERT_AT(ib_wire_params, max_msg_size, 4);
_Static_assert(IB_HDR_SIZE + sizeof(struct ib_wire_params) == IB_CONN_SIZE, "CONNREQ");
_Static_assert(IB_HDR_SIZE + LNET_HDR4_SIZE == IB_IMMEDIATE_SIZE, "IMMEDIATE"); /* §2.2 */
_Static_assert(IB_IMMEDIATE_SIZE + 8 == IB_PUT_REQ_SIZE, "PUT_REQ");
_Static_assert(IB_PUT_REQ_SIZE + sizeof(struct ib_wire_rd) == IB_GET_REQ_SIZE, "GET_REQ");
_Static_assert(IB_HDR_SIZE + sizeof(struct ib_wire_putack) == IB_PUT_ACK_SIZE, "PUT_ACK");
_Static_assert(IB_HDR_SIZE + sizeof(struct ib_wire_completion) == IB_COMPLETION_SIZE, "PUT_DONE");
ASSERT_AT(ib_wire_putack, dst_cookie, 8);
ASSERT_AT(ib_wire_putack, rd, 16);
ASSERT_AT(ib_wire_completion, status, 8);
ASSERT_AT(ib_wire_frag, addr, 4);
_Static_assert(sizeof(struct ib_wire_frag) == IB_FRAG_SIZE, "fragment");
_Static_assert(IB_GET_REQ_SIZE + IB_FRAGS_MAX * IB_FRAG_SIZE <= IB_MSG_SIZE, "257 fragments fit");
ASSERT_AT(ib_wire_reject, why, 6); /* §1.4 */
ASSERT_AT(ib_wire_reject, stamp, 8);
ASSERT_AT(ib_wire_reject, params, 16);
_Static_assert(sizeof(struct ib_wire_reject) == IB_REJECT_SIZE, "reject");

/* ---- what all messages begin with, §2.1 ---- */

struct ib_hdr {
    bool flip; /* in the other byte order than ours */
    uint16_t version;
    uint8_t type;    /* enum ib_type */
    uint8_t credits; /* given back to the receiver */
    uint32_t nob;    /* bytes of the message as it says; the encoders work it out */
    uint32_t cksum;  /* 0 = none. We send none */
    uint64_t src_nid;
    uint64_t src_stamp; /* incarnation, §1.5 */
    uint64_t dst_nid;
    uint64_t dst_stamp; /* in a CONNREQ the last known one, or 0 */
};

/* The checksum of a message of nob bytes (at least a header), its own field taken as zero; never 0.
 * Nodes differ in whether they take bytes as signed: §2.4. */
uint32_t ib_cksum(const void *msg, size_t nob, bool signed_bytes);

/* ---- messages, §2.2 ---- */

struct ib_frag {
    uint64_t addr; /* opaque: it need not be an address, §4.3 */
    uint32_t nob;
};

/* A descriptor of memory to be written: where in the message its fragments are. */
struct ib_rd {
    uint32_t key;
    uint32_t nfrags; /* 1..IB_FRAGS_MAX */
    uint32_t total;  /* bytes of all fragments; the encoder works it out */
    bool flip;
    const uint8_t *wire; /* the fragments, in the buffer that was decoded */
};

/* Fragment i < nfrags of a descriptor that ib_msg_decode() has accepted. */
void ib_rd_frag(const struct ib_rd *rd, uint32_t i, struct ib_frag *out);

struct ib_msg {
    struct ib_hdr hdr;
    struct lnet_hdr lnet;   /* IMMEDIATE, PUT_REQ, GET_REQ */
    uint64_t cookie;        /* all but NOOP and IMMEDIATE. PUT_ACK: that of the PUT_REQ */
    uint64_t dst_cookie;    /* PUT_ACK: what PUT_DONE is to bring */
    int32_t status;         /* completions: bytes, or a negative errno, §6.4 */
    struct ib_rd rd;        /* PUT_ACK, GET_REQ */
    const uint8_t *payload; /* IMMEDIATE: in the buffer that was decoded */
    uint32_t carried;       /* IMMEDIATE: payload bytes there are */
};

/*
 * Decodes one received message of len bytes and ignores the bytes behind its nob. Checks all that
 * the bytes show (§2.4 items 1 to 5, and the LNet header's own checks). For a refused message the
 * fields before the bad field are set, and hdr from IB_DROP(TYPE) on. All refusals but one close
 * the connection: IB_DROP(PAYLOAD) drops the message alone, and then all fields are set: an
 * IMMEDIATE carries less than its LNet header says (§5.2).
 *
 * *out points into buf. ib_msg_ends() checks the sender, ib_credits_receive() the credits.
 */
enum lnet_drop ib_msg_decode(const void *buf, size_t len, struct ib_msg *out);

/* Writes a message; of an IMMEDIATE its first 120 bytes, behind which carried bytes of payload are
 * to go. frags: rd.nfrags of them, for PUT_ACK and GET_REQ. Returns the bytes written. Returns 0 if
 * the message cannot be encoded (another type, NIDs of more than 4 bytes, no fragment or too many,
 * an empty fragment, too much payload) or if cap is too small. */
size_t ib_msg_encode(const struct ib_msg *in, const struct ib_frag *frags, void *buf, size_t cap);

/* The two ends of a connection, as each message repeats them. */
struct ib_ends {
    uint64_t my_nid;
    uint64_t my_stamp;
    uint64_t peer_nid;
    uint64_t peer_stamp;
};

/* Whether a message belongs to this connection: §2.4 item 6. */
enum lnet_drop ib_msg_ends(const struct ib_hdr *hdr, const struct ib_ends *ends);

/* ---- private data of the RDMA CM ---- */

/* CONNREQ and CONNACK, §1.3. */
struct ib_conn_msg {
    struct ib_hdr hdr;
    uint16_t queue_depth;
    uint16_t max_frags;
    uint32_t max_msg_size;
};

/* len bytes of private data of a request or a reply; the CM pads them (§1.2), so only nob counts.
 * Checks all that the bytes show: magic, version (both known ones pass), length, checksum, type,
 * source NID. ib_negotiate.h evaluates the values. */
enum lnet_drop ib_conn_decode(const void *buf, size_t len, struct ib_conn_msg *out);
void ib_conn_encode(const struct ib_conn_msg *in, uint8_t buf[IB_CONN_SIZE]);

enum ib_why { /* §1.8 */
    IB_WHY_NONE = 0,
    IB_WHY_RACE = 1,
    IB_WHY_NO_RESOURCES = 2,
    IB_WHY_FATAL = 3,
    IB_WHY_UNCOMPAT = 4, /* never on the wire */
    IB_WHY_STALE = 5,
    IB_WHY_FRAGS = 6,
    IB_WHY_DEPTH = 7,
    IB_WHY_SERVICE = 8, /* never on the wire */
    IB_WHY_EARLY = 9,
};

/* Returns the meaning of a reject with this reason, as a static text. */
const char *ib_why_text(unsigned why);

/* §1.4 */
struct ib_reject {
    bool flip;
    bool generic; /* begins with IB_MAGIC_LNET */
    uint16_t version;
    uint8_t why;    /* enum ib_why, or an unknown value */
    bool params;    /* the rest is there: 24 bytes or more, of version 2 */
    uint64_t stamp; /* the rejecter's incarnation, 0 = it has no such NI */
    uint16_t queue_depth;
    uint16_t max_frags;
    uint32_t max_msg_size;
};

/* len bytes of private data of a reject: IB_DROP(CONN_LENGTH) below 7,
 * IB_DROP(CONN_MAGIC). Fields behind why are zero unless params. */
enum lnet_drop ib_reject_decode(const void *buf, size_t len, struct ib_reject *out);
/* Always whole: params is not looked at. */
void ib_reject_encode(const struct ib_reject *in, uint8_t buf[IB_REJECT_SIZE]);

#endif
