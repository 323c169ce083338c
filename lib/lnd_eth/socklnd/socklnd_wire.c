/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/lnd_eth/socklnd/socklnd_wire.h"

#include <endian.h>

#define MAGIC_SIZE   4
#define VERSION_END  8 /* magic and version, the same in requests and HELLOs */
#define ACCEPTED     ((struct sock_stage){LNET_DROP_NONE, false, 0})
#define NEED(n)      ((struct sock_stage){LNET_DROP_NONE, false, (n)})
#define REFUSE(drop) ((struct sock_stage){(drop), false, 0})
#define ANSWER(drop) ((struct sock_stage){(drop), true, 0})

static uint32_t peek32(const void *wire, size_t offset)
{
    uint32_t v;

    memcpy(&v, (const uint8_t *)wire + offset, sizeof(v));
    return le32toh(v);
}

static struct sock_stage want(size_t len, size_t total)
{
    return len < total ? NEED(total - len) : ACCEPTED;
}

enum sock_magic sock_magic(const void *wire)
{
    switch (peek32(wire, 0)) {
    case SOCK_MAGIC_ACCEPTOR:
        return SOCK_FIRST_ACCEPTOR;
    case __builtin_bswap32(SOCK_MAGIC_ACCEPTOR):
        return SOCK_FIRST_ACCEPTOR_FLIP;
    case SOCK_MAGIC_LNET:
        return SOCK_FIRST_LNET;
    case __builtin_bswap32(SOCK_MAGIC_LNET):
        return SOCK_FIRST_LNET_FLIP;
    case SOCK_MAGIC_TCP_V1:
    case __builtin_bswap32(SOCK_MAGIC_TCP_V1):
        return SOCK_FIRST_TCP_V1;
    default:
        return SOCK_FIRST_UNKNOWN;
    }
}

/* ---- connection types ---- */

enum sock_ctype sock_ctype_invert(enum sock_ctype type)
{
    switch (type) {
    case SOCK_CTYPE_ANY:
    case SOCK_CTYPE_CONTROL:
        return type;
    case SOCK_CTYPE_BULK_IN:
        return SOCK_CTYPE_BULK_OUT;
    case SOCK_CTYPE_BULK_OUT:
        return SOCK_CTYPE_BULK_IN;
    default:
        return SOCK_CTYPE_NONE;
    }
}

const char *sock_ctype_name(enum sock_ctype type)
{
    switch (type) {
    case SOCK_CTYPE_NONE:
        return "none";
    case SOCK_CTYPE_ANY:
        return "any";
    case SOCK_CTYPE_CONTROL:
        return "control";
    case SOCK_CTYPE_BULK_IN:
        return "bulk_in";
    case SOCK_CTYPE_BULK_OUT:
        return "bulk_out";
    default:
        return "?";
    }
}

/* ---- acceptor ---- */

static uint32_t req_version(const void *buf, bool flip)
{
    uint32_t version = peek32(buf, MAGIC_SIZE);

    return flip ? __builtin_bswap32(version) : version;
}

struct sock_stage sock_req_stage(const void *buf, size_t len)
{
    enum sock_magic magic;

    if (len < MAGIC_SIZE)
        return NEED(MAGIC_SIZE - len);
    magic = sock_magic(buf);
    if (magic == SOCK_FIRST_LNET || magic == SOCK_FIRST_LNET_FLIP)
        return ANSWER(SOCK_DROP(REQ_MAGIC));
    if (magic != SOCK_FIRST_ACCEPTOR && magic != SOCK_FIRST_ACCEPTOR_FLIP)
        return REFUSE(SOCK_DROP(REQ_MAGIC));
    if (len < VERSION_END)
        return NEED(VERSION_END - len);
    switch (req_version(buf, magic == SOCK_FIRST_ACCEPTOR_FLIP)) {
    case SOCK_REQ_V1:
        return want(len, SOCK_REQ4_SIZE);
    case SOCK_REQ_V2:
        return want(len, SOCK_REQ16_SIZE);
    default:
        return ANSWER(SOCK_DROP(REQ_VERSION));
    }
}

static enum lnet_drop req_nid4(const void *buf, bool flip, struct lnet_nid *out)
{
    struct sock_wire_req4 w;
    uint64_t nid4;

    memcpy(&w, buf, sizeof(w));
    nid4 = flip ? be64toh(w.nid) : le64toh(w.nid);
    *out = nid_from_u64(nid4);
    return nid4_wire_valid(nid4) ? LNET_DROP_NONE : SOCK_DROP(REQ_NID);
}

enum lnet_drop sock_req_decode(const void *buf, size_t len, struct sock_req *out)
{
    struct sock_stage stage = sock_req_stage(buf, len);
    struct sock_wire_req16 w;

    if (stage.drop != LNET_DROP_NONE)
        return stage.drop;
    if (stage.need > 0)
        return SOCK_DROP(REQ_EOF);
    out->flip = sock_magic(buf) == SOCK_FIRST_ACCEPTOR_FLIP;
    out->version = req_version(buf, out->flip);
    if (out->version == SOCK_REQ_V1)
        return req_nid4(buf, out->flip, &out->target);
    memcpy(&w, buf, sizeof(w));
    out->target = w.nid; /* never swapped */
    return nid_wire_valid(&w.nid) ? LNET_DROP_NONE : SOCK_DROP(REQ_NID);
}

size_t sock_req_encode(const struct lnet_nid *target, uint8_t buf[SOCK_REQ_MAX])
{
    if (nid_is_nid4(target)) {
        struct sock_wire_req4 w = {
            .magic = htole32(SOCK_MAGIC_ACCEPTOR),
            .version = htole32(SOCK_REQ_V1),
            .nid = htole64(nid_to_u64(target)),
        };

        memcpy(buf, &w, sizeof(w));
        return sizeof(w);
    } else {
        struct sock_wire_req16 w = {
            .magic = htole32(SOCK_MAGIC_ACCEPTOR),
            .version = htole32(SOCK_REQ_V2),
            .nid = *target,
        };

        memcpy(buf, &w, sizeof(w));
        return sizeof(w);
    }
}

void sock_reply_encode(uint8_t buf[SOCK_REPLY_SIZE])
{
    struct sock_wire_req4 w = {
        .magic = htole32(SOCK_MAGIC_ACCEPTOR),
        .version = htole32(SOCK_REQ_V1), /* even where 2 is understood, §1.3 */
    };

    _Static_assert(sizeof(w) == SOCK_REPLY_SIZE, "the reply has the form of a request");
    memcpy(buf, &w, sizeof(w));
}

/* ---- HELLO ---- */

static struct sock_stage hello_v3_stage(const void *buf, size_t len)
{
    uint32_t nips;

    if (len < SOCK_HELLO4_SIZE)
        return NEED(SOCK_HELLO4_SIZE - len);
    nips = peek32(buf, offsetof(struct sock_wire_hello4, nips));
    if (nips > SOCK_NIPS_MAX)
        return REFUSE(SOCK_DROP(HELLO_NIPS));
    return want(len, SOCK_HELLO4_SIZE + 4 * nips);
}

struct sock_stage sock_hello_stage(const void *buf, size_t len, uint32_t version)
{
    enum sock_magic magic;

    if (len < MAGIC_SIZE)
        return NEED(MAGIC_SIZE - len);
    magic = sock_magic(buf);
    if (magic != SOCK_FIRST_LNET && magic != SOCK_FIRST_TCP_V1)
        return REFUSE(SOCK_DROP(HELLO_MAGIC));
    if (len < VERSION_END)
        return NEED(VERSION_END - len);
    if (magic == SOCK_FIRST_TCP_V1 || peek32(buf, MAGIC_SIZE) != version)
        return ANSWER(SOCK_DROP(HELLO_VERSION));
    if (version == SOCK_HELLO_V3)
        return hello_v3_stage(buf, len);
    if (version == SOCK_HELLO_V4)
        return want(len, SOCK_HELLO16_SIZE); /* no addresses follow, also if nips is not 0, §2.1 */
    return ANSWER(SOCK_DROP(HELLO_VERSION));
}

bool sock_hello_is_v4(const void *buf, size_t len)
{
    return len >= VERSION_END && sock_magic(buf) == SOCK_FIRST_LNET &&
           peek32(buf, MAGIC_SIZE) == SOCK_HELLO_V4;
}

/* Returns whether both NIDs are usable. */
static bool hello_v3_fields(const void *buf, struct sock_hello *out)
{
    struct sock_wire_hello4 w;
    uint64_t src, dst;

    memcpy(&w, buf, sizeof(w));
    src = le64toh(w.src_nid);
    dst = le64toh(w.dst_nid);
    out->src_nid = nid_from_u64(src);
    out->dst_nid = nid_from_u64(dst);
    out->src_pid = le32toh(w.src_pid);
    out->dst_pid = le32toh(w.dst_pid);
    out->src_incarnation = le64toh(w.src_incarnation);
    out->dst_incarnation = le64toh(w.dst_incarnation);
    out->ctype = (enum sock_ctype)(int32_t)le32toh(w.ctype);
    out->nips = le32toh(w.nips);
    return nid4_wire_valid(src) && (nid4_wire_valid(dst) || dst == LNET_NID4_ANY);
}

static bool hello_v4_fields(const void *buf, struct sock_hello *out)
{
    struct sock_wire_hello16 w;

    memcpy(&w, buf, sizeof(w));
    out->src_nid = w.src_nid;
    out->dst_nid = w.dst_nid;
    out->src_pid = le32toh(w.src_pid);
    out->dst_pid = le32toh(w.dst_pid);
    out->src_incarnation = le64toh(w.src_incarnation);
    out->dst_incarnation = le64toh(w.dst_incarnation);
    out->ctype = (enum sock_ctype)(int32_t)le32toh(w.ctype);
    out->nips = le32toh(w.nips);
    return nid_wire_valid(&w.src_nid) && (nid_wire_valid(&w.dst_nid) || nid_is_any(&w.dst_nid));
}

static bool hello_ips(const void *buf, struct sock_hello *out)
{
    for (uint32_t i = 0; i < out->nips; i++) {
        out->ips[i] = peek32(buf, SOCK_HELLO4_SIZE + 4 * i);
        if (out->ips[i] == 0)
            return false;
    }
    return true;
}

enum lnet_drop sock_hello_decode(const void *buf, size_t len, uint32_t version,
                                 struct sock_hello *out)
{
    struct sock_stage stage = sock_hello_stage(buf, len, version);
    bool nids_ok;

    if (stage.drop != LNET_DROP_NONE)
        return stage.drop;
    if (stage.need > 0)
        return SOCK_DROP(REQ_EOF);
    memset(out, 0, sizeof(*out));
    out->version = version;
    nids_ok = version == SOCK_HELLO_V3 ? hello_v3_fields(buf, out) : hello_v4_fields(buf, out);
    if (version == SOCK_HELLO_V3 && !hello_ips(buf, out))
        return SOCK_DROP(HELLO_NIPS);
    if (!nids_ok)
        return SOCK_DROP(HELLO_NID);
    if (out->ctype < SOCK_CTYPE_NONE || out->ctype > SOCK_CTYPE_BULK_OUT)
        return SOCK_DROP(HELLO_TYPE);
    return LNET_DROP_NONE;
}

static bool fits_nid4(const struct lnet_nid *nid)
{
    return nid_is_any(nid) || nid_is_nid4(nid);
}

static size_t hello_v3_encode(const struct sock_hello *in, uint8_t *buf)
{
    struct sock_wire_hello4 w = {
        .magic = htole32(SOCK_MAGIC_LNET),
        .version = htole32(SOCK_HELLO_V3),
        .src_nid = htole64(nid_to_u64(&in->src_nid)),
        .dst_nid = htole64(nid_to_u64(&in->dst_nid)),
        .src_pid = htole32(in->src_pid),
        .dst_pid = htole32(in->dst_pid),
        .src_incarnation = htole64(in->src_incarnation),
        .dst_incarnation = htole64(in->dst_incarnation),
        .ctype = htole32((uint32_t)in->ctype),
        .nips = htole32(in->nips),
    };

    if (!fits_nid4(&in->src_nid) || !fits_nid4(&in->dst_nid) || in->nips > SOCK_NIPS_MAX)
        return 0;
    memcpy(buf, &w, sizeof(w));
    for (size_t i = 0; i < in->nips; i++) {
        uint32_t ip = htole32(in->ips[i]);

        memcpy(buf + sizeof(w) + sizeof(ip) * i, &ip, sizeof(ip));
    }
    return sizeof(w) + sizeof(in->ips[0]) * in->nips;
}

static size_t hello_v4_encode(const struct sock_hello *in, uint8_t *buf)
{
    struct sock_wire_hello16 w = {
        .magic = htole32(SOCK_MAGIC_LNET),
        .version = htole32(SOCK_HELLO_V4),
        .src_nid = in->src_nid,
        .dst_nid = in->dst_nid,
        .src_pid = htole32(in->src_pid),
        .dst_pid = htole32(in->dst_pid),
        .src_incarnation = htole64(in->src_incarnation),
        .dst_incarnation = htole64(in->dst_incarnation),
        .ctype = htole32((uint32_t)in->ctype),
        .nips = htole32(in->nips),
    };

    memcpy(buf, &w, sizeof(w));
    return sizeof(w);
}

size_t sock_hello_encode(const struct sock_hello *in, uint8_t buf[SOCK_HELLO_MAX])
{
    if (in->version == SOCK_HELLO_V3)
        return hello_v3_encode(in, buf);
    if (in->version == SOCK_HELLO_V4)
        return hello_v4_encode(in, buf);
    return 0;
}

/* ---- frames ---- */

enum lnet_drop sock_frame_decode(const void *wire, struct sock_frame *out)
{
    struct sock_wire_frame w;

    memcpy(&w, wire, sizeof(w));
    out->type = le32toh(w.type);
    out->csum = le32toh(w.csum);
    out->cookie[0] = le64toh(w.cookie[0]);
    out->cookie[1] = le64toh(w.cookie[1]);
    if (out->type == SOCK_FRAME_LNET)
        return LNET_DROP_NONE;
    if (out->type != SOCK_FRAME_NOOP)
        return SOCK_DROP(FRAME_TYPE);
    if (out->csum != 0 && out->csum != SOCK_CRC_SEED)
        return SOCK_DROP(NOOP_CSUM);
    return LNET_DROP_NONE;
}

void sock_frame_encode(const struct sock_frame *in, uint8_t buf[SOCK_FRAME_SIZE])
{
    struct sock_wire_frame w = {
        .type = htole32(in->type),
        .csum = htole32(in->csum),
        .cookie = {htole64(in->cookie[0]), htole64(in->cookie[1])},
    };

    memcpy(buf, &w, sizeof(w));
}

enum lnet_drop sock_frame_zc_ack(const struct sock_frame *f, struct sock_zc_ack *out)
{
    uint64_t a = f->type == SOCK_FRAME_NOOP ? f->cookie[0] : 0;
    uint64_t b = f->cookie[1];

    memset(out, 0, sizeof(*out));
    if (b == 0)
        return LNET_DROP_NONE;
    if (a == 0 || a == b) {
        out->keepalive = b == SOCK_COOKIE_PING;
        out->count = out->keepalive ? 0 : 1;
        out->first = out->last = b;
        return LNET_DROP_NONE;
    }
    if (b == SOCK_COOKIE_PING)
        return SOCK_DROP(ZC_ACK);
    out->range = a < b;
    out->count = out->range ? b - a + 1 : 2;
    out->first = a;
    out->last = b;
    return LNET_DROP_NONE;
}

/* ---- checksum ---- */

/* crc_nibble[k][n]: what nibble k (0 the lowest) with value n of the 32 bits that the register and
 * four more bytes make together leaves in the register when those four bytes are through. The CRC
 * is linear, so the eight of them are simply added. 512 bytes of table. */
static const uint32_t crc_nibble[8][16] = {
    {0x00000000, 0xb8bc6765, 0xaa09c88b, 0x12b5afee, 0x8f629757, 0x37def032, 0x256b5fdc, 0x9dd738b9,
     0xc5b428ef, 0x7d084f8a, 0x6fbde064, 0xd7018701, 0x4ad6bfb8, 0xf26ad8dd, 0xe0df7733,
     0x58631056},
    {0x00000000, 0x5019579f, 0xa032af3e, 0xf02bf8a1, 0x9b14583d, 0xcb0d0fa2, 0x3b26f703, 0x6b3fa09c,
     0xed59b63b, 0xbd40e1a4, 0x4d6b1905, 0x1d724e9a, 0x764dee06, 0x2654b999, 0xd67f4138,
     0x866616a7},
    {0x00000000, 0x01c26a37, 0x0384d46e, 0x0246be59, 0x0709a8dc, 0x06cbc2eb, 0x048d7cb2, 0x054f1685,
     0x0e1351b8, 0x0fd13b8f, 0x0d9785d6, 0x0c55efe1, 0x091af964, 0x08d89353, 0x0a9e2d0a,
     0x0b5c473d},
    {0x00000000, 0x1c26a370, 0x384d46e0, 0x246be590, 0x709a8dc0, 0x6cbc2eb0, 0x48d7cb20, 0x54f16850,
     0xe1351b80, 0xfd13b8f0, 0xd9785d60, 0xc55efe10, 0x91af9640, 0x8d893530, 0xa9e2d0a0,
     0xb5c473d0},
    {0x00000000, 0x191b3141, 0x32366282, 0x2b2d53c3, 0x646cc504, 0x7d77f445, 0x565aa786, 0x4f4196c7,
     0xc8d98a08, 0xd1c2bb49, 0xfaefe88a, 0xe3f4d9cb, 0xacb54f0c, 0xb5ae7e4d, 0x9e832d8e,
     0x87981ccf},
    {0x00000000, 0x4ac21251, 0x958424a2, 0xdf4636f3, 0xf0794f05, 0xbabb5d54, 0x65fd6ba7, 0x2f3f79f6,
     0x3b83984b, 0x71418a1a, 0xae07bce9, 0xe4c5aeb8, 0xcbfad74e, 0x8138c51f, 0x5e7ef3ec,
     0x14bce1bd},
    {0x00000000, 0x77073096, 0xee0e612c, 0x990951ba, 0x076dc419, 0x706af48f, 0xe963a535, 0x9e6495a3,
     0x0edb8832, 0x79dcb8a4, 0xe0d5e91e, 0x97d2d988, 0x09b64c2b, 0x7eb17cbd, 0xe7b82d07,
     0x90bf1d91},
    {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
     0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278,
     0xbdbdf21c},
};

static uint32_t crc_four(uint32_t crc, const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    v = crc ^ le32toh(v);
    return crc_nibble[0][v & 15] ^ crc_nibble[1][v >> 4 & 15] ^ crc_nibble[2][v >> 8 & 15] ^
           crc_nibble[3][v >> 12 & 15] ^ crc_nibble[4][v >> 16 & 15] ^ crc_nibble[5][v >> 20 & 15] ^
           crc_nibble[6][v >> 24 & 15] ^ crc_nibble[7][v >> 28];
}

/* One byte: it meets only the table rows of the last byte of four. */
static uint32_t crc_one(uint32_t crc, uint8_t byte)
{
    uint32_t v = (crc ^ byte) & 0xff;

    return crc >> 8 ^ crc_nibble[6][v & 15] ^ crc_nibble[7][v >> 4];
}

uint32_t sock_crc32(uint32_t crc, const void *buf, size_t len)
{
    const uint8_t *p = buf;

    for (; len >= 4; p += 4, len -= 4)
        crc = crc_four(crc, p);
    for (; len > 0; p++, len--)
        crc = crc_one(crc, *p);
    return crc;
}
