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
    bool small = nid_is_nid4(target);
    struct sock_wire_req16 w = {
        .magic = htole32(SOCK_MAGIC_ACCEPTOR),
        .version = htole32(small ? SOCK_REQ_V1 : SOCK_REQ_V2),
        .nid = *target,
    };
    uint64_t nid4 = htole64(small ? nid_to_u64(target) : 0);

    memcpy(buf, &w, sizeof(w));
    if (small)
        memcpy(buf + offsetof(struct sock_wire_req4, nid), &nid4, sizeof(nid4));
    return small ? SOCK_REQ4_SIZE : SOCK_REQ16_SIZE;
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
    nips = peek32(buf, offsetof(struct sock_wire_hello4, tail.nips));
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

static void tail_decode(const struct sock_wire_hello_tail *w, struct sock_hello *out)
{
    out->src_pid = le32toh(w->src_pid);
    out->dst_pid = le32toh(w->dst_pid);
    out->src_incarnation = le64toh(w->src_incarnation);
    out->dst_incarnation = le64toh(w->dst_incarnation);
    out->ctype = (enum sock_ctype)(int32_t)le32toh(w->ctype);
    out->nips = le32toh(w->nips);
}

static struct sock_wire_hello_tail tail_of(const struct sock_hello *in)
{
    return (struct sock_wire_hello_tail){
        .src_pid = htole32(in->src_pid),
        .dst_pid = htole32(in->dst_pid),
        .src_incarnation = htole64(in->src_incarnation),
        .dst_incarnation = htole64(in->dst_incarnation),
        .ctype = htole32((uint32_t)in->ctype),
        .nips = htole32(in->nips),
    };
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
    tail_decode(&w.tail, out);
    return nid4_wire_valid(src) && (nid4_wire_valid(dst) || dst == LNET_NID4_ANY);
}

static bool hello_v4_fields(const void *buf, struct sock_hello *out)
{
    struct sock_wire_hello16 w;

    memcpy(&w, buf, sizeof(w));
    out->src_nid = w.src_nid;
    out->dst_nid = w.dst_nid;
    tail_decode(&w.tail, out);
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
        .tail = tail_of(in),
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
        .tail = tail_of(in),
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

enum lnet_drop sock_frame_zc_ack(const struct sock_frame *f, uint64_t *count)
{
    uint64_t a = f->type == SOCK_FRAME_NOOP ? f->cookie[0] : 0, b = f->cookie[1];
    bool pair = a != 0 && a != b;

    *count = pair ? (a < b ? b - a + 1 : 2) : 1;
    if (b == 0 || b == SOCK_COOKIE_PING)
        *count = 0;
    return b == SOCK_COOKIE_PING && pair ? SOCK_DROP(ZC_ACK) : LNET_DROP_NONE;
}

/* ---- checksum ---- */

#define CRC_POLYNOMIAL 0xedb88320u /* reflected */

/* crc_nibble[k][n]: what nibble k (0 the lowest) with value n of the 32 bits that the register and
 * four more bytes make together leaves in the register when those four bytes are through. The CRC
 * is linear, so the eight of them are simply added. 512 bytes of table. */
static uint32_t crc_nibble[8][16];

/* Before main(), so that no sum has to ask whether the table is there. */
__attribute__((constructor)) static void crc_fill(void)
{
    for (unsigned i = 0; i < 8 * 16; i++) {
        uint32_t crc = i % 16 << i / 16 * 4;

        for (unsigned bit = 0; bit < 32; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
        crc_nibble[i / 16][i % 16] = crc;
    }
}

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
