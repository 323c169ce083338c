/* SPDX-License-Identifier: BSD-3-Clause */
/* Acceptor requests, HELLOs and frames: docs/protocol/socklnd.md, with the worked bytes of its §8.
 */
#include "lib/lnd_eth/socklnd/socklnd_wire.h"
#include "test/unit/wire_bytes.h"

#include "test/drops_test.h"
#include <setjmp.h>
#include <cmocka.h>

REGISTER_DROPS(sock_drops);

#define ROWS(t) (sizeof(t) / sizeof((t)[0]))

/* §8.1, §8.7 */
#define REQ_V1 "00 71 ce ac 01 00 00 00  02 00 00 0a 00 00 02 00"
#define REQ_V2                                                                                     \
    "00 71 ce ac 02 00 00 00  0c 02 00 00 fd 00 00 00"                                             \
    "00 00 00 00 00 00 00 00  00 00 00 02"
/* a caller of the other byte order, §1.3 */
#define REQ_V1_FLIP "ac ce 71 00 00 00 00 01  00 02 00 00 0a 00 00 02"
#define REQ_V2_FLIP                                                                                \
    "ac ce 71 00 00 00 00 02  0c 02 00 00 fd 00 00 00"                                             \
    "00 00 00 00 00 00 00 00  00 00 00 02"
#define REPLY "00 71 ce ac 01 00 00 00  00 00 00 00 00 00 00 00"
/* §8.2, §8.3 */
#define HELLO_V3                                                                                   \
    "63 69 72 45 03 00 00 00  01 00 00 0a 00 00 02 00"                                             \
    "02 00 00 0a 00 00 02 00  39 30 00 00 00 00 00 00"                                             \
    "10 0f 0e 0d 0c 0b 4a 18  00 00 00 00 00 00 00 00"                                             \
    "01 00 00 00 00 00 00 00"
#define HELLO_V3_REPLY                                                                             \
    "63 69 72 45 03 00 00 00  02 00 00 0a 00 00 02 00"                                             \
    "01 00 00 0a 00 00 02 00  39 30 00 00 00 00 00 00"                                             \
    "20 1f 1e 1d 1c 1b 4a 18  00 00 00 00 00 00 00 00"                                             \
    "01 00 00 00 00 00 00 00"
#define HELLO_V3_NONE                                                                              \
    "63 69 72 45 03 00 00 00  02 00 00 0a 00 00 02 00"                                             \
    "01 00 00 0a 00 00 02 00  39 30 00 00 00 00 00 00"                                             \
    "20 1f 1e 1d 1c 1b 4a 18  00 00 00 00 00 00 00 00"                                             \
    "ff ff ff ff 00 00 00 00"
/* §8.7 */
#define HELLO_V4                                                                                   \
    "63 69 72 45 04 00 00 00  0c 02 00 00 fd 00 00 00"                                             \
    "00 00 00 00 00 00 00 00  00 00 00 01 0c 02 00 00"                                             \
    "fd 00 00 00 00 00 00 00  00 00 00 00 00 00 00 02"                                             \
    "39 30 00 00 00 00 00 00  10 0f 0e 0d 0c 0b 4a 18"                                             \
    "00 00 00 00 00 00 00 00  01 00 00 00 00 00 00 00"
/* §8.4, all 96 bytes */
#define GET_MSG                                                                                    \
    "c1 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00"                                             \
    "00 00 00 00 00 00 00 00  02 00 00 0a 00 00 02 00"                                             \
    "01 00 00 0a 00 00 02 00  39 30 00 00 39 30 00 00"                                             \
    "02 00 00 00 00 00 00 00  44 33 22 11 0c 0b 4a 18"                                             \
    "35 12 00 00 00 00 00 00  00 00 00 00 00 00 00 80"                                             \
    "00 00 00 00 00 00 00 00  10 01 00 00 00 00 00 00"

static uint8_t wire[256];

static struct lnet_nid nid(const char *str)
{
    struct lnet_nid n;

    assert_int_equal(nid_parse(str, &n), 0);
    return n;
}

static void assert_nid(const struct lnet_nid *n, const char *str)
{
    char buf[LNET_NIDSTR_SIZE];

    assert_string_equal(nid_format(n, buf), str);
}

static void assert_stage(struct sock_stage got, enum lnet_drop drop, bool answer, size_t need)
{
    assert_string_equal(lnet_drop_info(got.drop)->name, lnet_drop_info(drop)->name);
    assert_int_equal(got.answer, answer);
    assert_int_equal(got.need, need);
}

/* ---- acceptor ---- */

static void assert_req(const char *hex, uint32_t version, bool flip, const char *target)
{
    size_t len = unhex(hex, wire, sizeof(wire)), i;
    struct sock_req req;

    for (i = 0; i < len; i++) { /* read as a receiver reads: 4, 4, the rest */
        size_t need = i < 4 ? 4 - i : i < 8 ? 8 - i : len - i;

        assert_stage(sock_req_stage(wire, i), LNET_DROP_NONE, false, need);
        assert_int_equal(sock_req_decode(wire, i, &req), SOCK_DROP(REQ_EOF));
    }
    assert_stage(sock_req_stage(wire, len), LNET_DROP_NONE, false, 0);
    assert_stage(sock_req_stage(wire, len + 56), LNET_DROP_NONE, false, 0);
    assert_int_equal(sock_req_decode(wire, len, &req), LNET_DROP_NONE);
    assert_int_equal(req.version, version);
    assert_int_equal(req.flip, flip);
    assert_nid(&req.target, target);
}

static void test_req(void **state)
{
    uint8_t out[SOCK_REQ_MAX], want[SOCK_REQ_MAX];
    struct lnet_nid ipv4 = nid("10.0.0.2@tcp"), ipv6 = nid("fd00::2@tcp");

    assert_req(REQ_V1, 1, false, "10.0.0.2@tcp");
    assert_req(REQ_V2, 2, false, "fd00::2@tcp");
    assert_req(REQ_V1_FLIP, 1, true, "10.0.0.2@tcp");
    assert_req(REQ_V2_FLIP, 2, true, "fd00::2@tcp");
    /* v2 may name an IPv4 NID [H-03, request 12] */
    assert_req(
        "00 71 ce ac 02 00 00 00 00 02 00 00 0a 00 00 02 00 00 00 00 00 00 00 00 00 00 00 00", 2,
        false, "10.0.0.2@tcp");
    assert_int_equal(sock_req_encode(&ipv4, out), unhex(REQ_V1, want, sizeof(want)));
    assert_memory_equal(out, want, SOCK_REQ4_SIZE);
    assert_int_equal(sock_req_encode(&ipv6, out), unhex(REQ_V2, want, sizeof(want)));
    assert_memory_equal(out, want, SOCK_REQ16_SIZE);
}

static void test_reply(void **state)
{
    uint8_t out[SOCK_REPLY_SIZE], want[SOCK_REPLY_SIZE];

    assert_int_equal(unhex(REPLY, want, sizeof(want)), sizeof(want));
    sock_reply_encode(out);
    assert_memory_equal(out, want, sizeof(want));
}

static const struct {
    const char *bytes;
    enum lnet_drop drop;
    bool answer;
} bad_reqs[] = {
    {"63 69 72 45", SOCK_DROP(REQ_MAGIC), true}, /* generic magic: before more is read */
    {"45 72 69 63", SOCK_DROP(REQ_MAGIC), true},
    {"ed 0d bc ee", SOCK_DROP(REQ_MAGIC), false}, /* TCP v1 */
    {"ee bc 0d ed", SOCK_DROP(REQ_MAGIC), false},
    {"de ad be ef", SOCK_DROP(REQ_MAGIC), false},
    {"00 00 00 00", SOCK_DROP(REQ_MAGIC), false},
    {"00 71 ce ac 00 00 00 00", SOCK_DROP(REQ_VERSION), true},
    {"00 71 ce ac 03 00 00 00", SOCK_DROP(REQ_VERSION), true},
    {"00 71 ce ac 00 00 00 01", SOCK_DROP(REQ_VERSION), true},
    {"ac ce 71 00 01 00 00 00", SOCK_DROP(REQ_VERSION), true},
    {"ac ce 71 00 00 00 00 03", SOCK_DROP(REQ_VERSION), true},
};

static void test_bad_req(void **state)
{
    struct sock_req req;

    for (size_t i = 0; i < ROWS(bad_reqs); i++) {
        size_t len = unhex(bad_reqs[i].bytes, wire, sizeof(wire));

        assert_stage(sock_req_stage(wire, len), bad_reqs[i].drop, bad_reqs[i].answer, 0);
        assert_int_equal(sock_req_decode(wire, sizeof(wire), &req), bad_reqs[i].drop);
    }
    unhex(REQ_V1, wire, sizeof(wire));
    wire[15] = 1; /* top byte of the nid4 */
    assert_int_equal(sock_req_decode(wire, 16, &req), SOCK_DROP(REQ_NID));
    memset(wire + 8, 0xff, 8);
    assert_int_equal(sock_req_decode(wire, 16, &req), SOCK_DROP(REQ_NID));
    unhex(REQ_V2, wire, sizeof(wire));
    wire[8] = 16;
    assert_int_equal(sock_req_decode(wire, 28, &req), SOCK_DROP(REQ_NID));
}

static void test_first_magic(void **state)
{
    static const struct {
        const char *bytes;
        enum sock_magic magic;
    } rows[] = {
        {"00 71 ce ac", SOCK_FIRST_ACCEPTOR}, {"ac ce 71 00", SOCK_FIRST_ACCEPTOR_FLIP},
        {"63 69 72 45", SOCK_FIRST_LNET},     {"45 72 69 63", SOCK_FIRST_LNET_FLIP},
        {"ed 0d bc ee", SOCK_FIRST_TCP_V1},   {"ee bc 0d ed", SOCK_FIRST_TCP_V1},
        {"67 6e 69 70", SOCK_FIRST_UNKNOWN},  {"16 03 01 02", SOCK_FIRST_UNKNOWN},
    };

    for (size_t i = 0; i < ROWS(rows); i++) {
        unhex(rows[i].bytes, wire + i % 4, 4);
        assert_int_equal(sock_magic(wire + i % 4), rows[i].magic);
    }
}

/* ---- HELLO ---- */

static struct sock_hello worked_hello(uint32_t version, const char *src, const char *dst)
{
    return (struct sock_hello){
        .version = version,
        .src_nid = nid(src),
        .dst_nid = nid(dst),
        .src_pid = 12345,
        .src_incarnation = 0x184a0b0c0d0e0f10ull,
        .ctype = SOCK_CTYPE_CONTROL,
    };
}

static void assert_hello(const char *hex, uint32_t version, const struct sock_hello *want)
{
    size_t len = unhex(hex, wire, sizeof(wire)), i;
    uint8_t out[SOCK_HELLO_MAX];
    struct sock_hello h;

    for (i = 0; i < len; i++) {
        size_t base = version == 3 ? 56 : 80;
        size_t need = i < 4 ? 4 - i : i < 8 ? 8 - i : i < base ? base - i : len - i;

        assert_stage(sock_hello_stage(wire, i, version), LNET_DROP_NONE, false, need);
        assert_int_equal(sock_hello_decode(wire, i, version, &h), SOCK_DROP(REQ_EOF));
    }
    assert_stage(sock_hello_stage(wire, len, version), LNET_DROP_NONE, false, 0);
    assert_stage(sock_hello_stage(wire, sizeof(wire), version), LNET_DROP_NONE, false, 0);
    assert_int_equal(sock_hello_decode(wire, len, version, &h), LNET_DROP_NONE);
    assert_int_equal(h.version, want->version);
    assert_true(nid_same(&h.src_nid, &want->src_nid));
    assert_true(nid_same(&h.dst_nid, &want->dst_nid));
    assert_int_equal(h.src_pid, want->src_pid);
    assert_int_equal(h.dst_pid, want->dst_pid);
    assert_int_equal(h.src_incarnation, want->src_incarnation);
    assert_int_equal(h.dst_incarnation, want->dst_incarnation);
    assert_int_equal(h.ctype, want->ctype);
    assert_int_equal(h.nips, want->nips);
    assert_memory_equal(h.ips, want->ips, sizeof(h.ips));
    assert_int_equal(sock_hello_encode(want, out), len);
    assert_memory_equal(out, wire, len);
}

static void test_hello_v3(void **state)
{
    struct sock_hello h = worked_hello(3, "10.0.0.1@tcp", "10.0.0.2@tcp");

    assert_hello(HELLO_V3, 3, &h);
    h = worked_hello(3, "10.0.0.2@tcp", "10.0.0.1@tcp");
    h.src_incarnation = 0x184a1b1c1d1e1f20ull;
    assert_hello(HELLO_V3_REPLY, 3, &h);
    h.ctype = SOCK_CTYPE_NONE;
    assert_hello(HELLO_V3_NONE, 3, &h);
    h = worked_hello(3, "10.0.0.1@tcp", "10.0.0.2@tcp");
    h.nips = 2;
    h.ips[0] = 0x0a000001;
    h.ips[1] = 0x0a000101;
    assert_hello("63 69 72 45 03 00 00 00  01 00 00 0a 00 00 02 00"
                 "02 00 00 0a 00 00 02 00  39 30 00 00 00 00 00 00"
                 "10 0f 0e 0d 0c 0b 4a 18  00 00 00 00 00 00 00 00"
                 "01 00 00 00 02 00 00 00  01 00 00 0a 01 01 00 0a",
                 3, &h);
}

static void test_hello_v4(void **state)
{
    struct sock_hello h = worked_hello(4, "fd00::1@tcp", "fd00::2@tcp");

    assert_hello(HELLO_V4, 4, &h);
}

static const struct {
    const char *bytes;
    uint32_t version;
    enum lnet_drop drop;
    bool answer;
} bad_hellos[] = {
    {"00 71 ce ac", 3, SOCK_DROP(HELLO_MAGIC), false},
    {"45 72 69 63", 3, SOCK_DROP(HELLO_MAGIC), false}, /* the other byte order */
    {"de ad be ef", 3, SOCK_DROP(HELLO_MAGIC), false},
    {"ed 0d bc ee 01 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true}, /* v1 */
    {"63 69 72 45 00 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 01 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 02 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 04 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 05 00 00 00", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 03 00 00 00", 4, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 00 00 00 03", 3, SOCK_DROP(HELLO_VERSION), true},
    {"63 69 72 45 07 00 00 00", 7, SOCK_DROP(HELLO_VERSION), true}, /* we do not speak it */
};

static void test_bad_hello_start(void **state)
{
    struct sock_hello h;

    for (size_t i = 0; i < ROWS(bad_hellos); i++) {
        size_t len = unhex(bad_hellos[i].bytes, wire, sizeof(wire));

        assert_stage(sock_hello_stage(wire, len, bad_hellos[i].version), bad_hellos[i].drop,
                     bad_hellos[i].answer, 0);
        assert_int_equal(sock_hello_decode(wire, sizeof(wire), bad_hellos[i].version, &h),
                         bad_hellos[i].drop);
    }
}

static enum lnet_drop hello_with(const char *hex, size_t offset, const char *bytes)
{
    struct sock_hello h;

    memset(wire, 0x5a, sizeof(wire));
    unhex(hex, wire, sizeof(wire));
    unhex(bytes, wire + offset, sizeof(wire) - offset);
    return sock_hello_decode(wire, sizeof(wire), wire[4], &h);
}

static void test_bad_hello_fields(void **state)
{
    assert_int_equal(hello_with(HELLO_V3, 48, "04 00 00 00"), SOCK_DROP(HELLO_TYPE));
    assert_int_equal(hello_with(HELLO_V3, 48, "07 00 00 00"), SOCK_DROP(HELLO_TYPE));
    assert_int_equal(hello_with(HELLO_V3, 48, "fe ff ff ff"), SOCK_DROP(HELLO_TYPE));
    assert_int_equal(hello_with(HELLO_V3, 48, "00 00 00 00"), LNET_DROP_NONE);
    assert_int_equal(hello_with(HELLO_V3, 48, "03 00 00 00"), LNET_DROP_NONE);
    assert_int_equal(hello_with(HELLO_V3, 48, "ff ff ff ff"), LNET_DROP_NONE);
    assert_int_equal(hello_with(HELLO_V4, 72, "04 00 00 00"), SOCK_DROP(HELLO_TYPE));
    /* NIDs: source and destination */
    assert_int_equal(hello_with(HELLO_V3, 8, "ff ff ff ff ff ff ff ff"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V3, 15, "01"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V3, 14, "ff"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V3, 23, "01"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V3, 16, "ff ff ff ff ff ff ff ff"), LNET_DROP_NONE);
    assert_int_equal(hello_with(HELLO_V4, 8, "0d"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V4, 9, "ff"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V4, 8, "00"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V4, 28, "0d"), SOCK_DROP(HELLO_NID));
    assert_int_equal(hello_with(HELLO_V4, 29, "ff"), LNET_DROP_NONE);
    /* addresses */
    assert_int_equal(hello_with(HELLO_V3, 52, "11 00 00 00"), SOCK_DROP(HELLO_NIPS));
    assert_int_equal(hello_with(HELLO_V3, 52, "ff ff ff ff"), SOCK_DROP(HELLO_NIPS));
    assert_int_equal(hello_with(HELLO_V3, 52, "10 00 00 00"), LNET_DROP_NONE);
    assert_int_equal(hello_with(HELLO_V3, 52, "01 00 00 00 00 00 00 00"), SOCK_DROP(HELLO_NIPS));
    assert_int_equal(hello_with(HELLO_V3, 52, "02 00 00 00 01 00 00 00 00 00 00 00"),
                     SOCK_DROP(HELLO_NIPS));
    /* v4 has no list, whatever it counts */
    assert_int_equal(hello_with(HELLO_V4, 76, "ff ff 00 00"), LNET_DROP_NONE);
    assert_stage(sock_hello_stage(wire, 80, 4), LNET_DROP_NONE, false, 0);
    /* too many addresses are refused before they are read */
    unhex(HELLO_V3, wire, sizeof(wire));
    wire[52] = 17;
    assert_stage(sock_hello_stage(wire, 56, 3), SOCK_DROP(HELLO_NIPS), false, 0);
}

static void test_hello_not_sayable(void **state)
{
    struct sock_hello h = worked_hello(3, "fd00::1@tcp", "10.0.0.2@tcp");
    uint8_t out[SOCK_HELLO_MAX];

    assert_int_equal(sock_hello_encode(&h, out), 0); /* never truncated */
    h = worked_hello(3, "10.0.0.1@tcp", "fd00::2@tcp");
    assert_int_equal(sock_hello_encode(&h, out), 0);
    h = worked_hello(2, "10.0.0.1@tcp", "10.0.0.2@tcp");
    assert_int_equal(sock_hello_encode(&h, out), 0);
    h = worked_hello(3, "10.0.0.1@tcp", "10.0.0.2@tcp");
    h.nips = 17;
    assert_int_equal(sock_hello_encode(&h, out), 0);
}

static void test_hello_round_trip(void **state)
{
    uint8_t out[8 + SOCK_HELLO_MAX];
    uint64_t seed = 7;
    unsigned i;

    for (i = 0; i < 20000; i++) {
        uint32_t version = 3 + i % 2;
        uint8_t addr[16], *buf = out + i % 8;
        struct sock_hello h = {.version = version}, back;
        size_t len;

        rnd_fill(&seed, addr, sizeof(addr));
        h.src_nid = nid_make((lnet_net_t)(rnd64(&seed) % 0xfe0000), addr, version == 4 ? 16 : 4);
        h.dst_nid = nid_make((lnet_net_t)(rnd64(&seed) % 0xfe0000), addr + 8, 4);
        h.src_pid = (uint32_t)rnd64(&seed);
        h.dst_pid = (uint32_t)rnd64(&seed);
        h.src_incarnation = rnd64(&seed);
        h.dst_incarnation = rnd64(&seed);
        h.ctype = (enum sock_ctype)((int)(rnd64(&seed) % 5) - 1);
        h.nips = version == 3 ? (uint32_t)(rnd64(&seed) % 17) : 0;
        for (unsigned k = 0; k < h.nips; k++)
            h.ips[k] = (uint32_t)rnd64(&seed) | 1;
        len = sock_hello_encode(&h, buf);
        assert_int_equal(len, version == 3 ? 56 + 4 * h.nips : 80);
        assert_int_equal(sock_hello_decode(buf, len, version, &back), LNET_DROP_NONE);
        assert_memory_equal(&back, &h, sizeof(h));
    }
}

static void test_ctypes(void **state)
{
    assert_int_equal(sock_ctype_invert(SOCK_CTYPE_NONE), SOCK_CTYPE_NONE);
    assert_int_equal(sock_ctype_invert(SOCK_CTYPE_ANY), SOCK_CTYPE_ANY);
    assert_int_equal(sock_ctype_invert(SOCK_CTYPE_CONTROL), SOCK_CTYPE_CONTROL);
    assert_int_equal(sock_ctype_invert(SOCK_CTYPE_BULK_IN), SOCK_CTYPE_BULK_OUT);
    assert_int_equal(sock_ctype_invert(SOCK_CTYPE_BULK_OUT), SOCK_CTYPE_BULK_IN);
    assert_int_equal(sock_ctype_invert((enum sock_ctype)7), SOCK_CTYPE_NONE);
}

/* ---- frames ---- */

static const struct { /* §8.6 first, then the rest of the table in §4.5 */
    const char *bytes;
    enum lnet_drop drop; /* of the cookies */
    uint64_t acked;
    uint64_t zc_req;
} frames[] = {
    {"c0000000 00000000 0000000000000000 0100000000000000", LNET_DROP_NONE, 0, 0},
    {"c0000000 00000000 0000000000000000 0200000000000000", LNET_DROP_NONE, 1, 0},
    {"c0000000 00000000 0500000000000000 0300000000000000", LNET_DROP_NONE, 2, 0},
    {"c0000000 00000000 0200000000000000 0900000000000000", LNET_DROP_NONE, 8, 0},
    {"c1000000 00000000 0200000000000000 0000000000000000", LNET_DROP_NONE, 0, 2},
    {"c0000000 00000000 0000000000000000 0000000000000000", LNET_DROP_NONE, 0, 0},
    {"c0000000 00000000 0700000000000000 0000000000000000", LNET_DROP_NONE, 0, 0},
    {"c0000000 00000000 0400000000000000 0400000000000000", LNET_DROP_NONE, 1, 0},
    {"c0000000 00000000 0100000000000000 0100000000000000", LNET_DROP_NONE, 0, 0},
    {"c0000000 00000000 0200000000000000 0100000000000000", SOCK_DROP(ZC_ACK), 0, 0},
    {"c0000000 00000000 0100000000000000 ffffffffffffffff", LNET_DROP_NONE, UINT64_MAX, 0},
    /* on an LNET frame cookie[0] is a request, cookie[1] a single acknowledgement */
    {"c1000000 00000000 0900000000000000 0300000000000000", LNET_DROP_NONE, 1, 9},
    {"c1000000 00000000 0900000000000000 0100000000000000", LNET_DROP_NONE, 0, 9},
};

static void test_frames(void **state)
{
    uint8_t out[SOCK_FRAME_SIZE];

    for (size_t i = 0; i < ROWS(frames); i++) {
        uint64_t acked;
        struct sock_frame f;

        assert_int_equal(unhex(frames[i].bytes, wire, sizeof(wire)), SOCK_FRAME_SIZE);
        assert_int_equal(sock_frame_decode(wire, &f), LNET_DROP_NONE);
        assert_int_equal(sock_frame_zc_ack(&f, &acked), frames[i].drop);
        assert_int_equal(acked, frames[i].acked);
        assert_int_equal(sock_frame_zc_req(&f), frames[i].zc_req);
        sock_frame_encode(&f, out);
        assert_memory_equal(out, wire, sizeof(out));
    }
}

static void test_bad_frames(void **state)
{
    static const struct {
        const char *bytes;
        enum lnet_drop drop;
    } rows[] = {
        {"c2000000 00000000", SOCK_DROP(FRAME_TYPE)}, {"00000000 00000000", SOCK_DROP(FRAME_TYPE)},
        {"000000c1 00000000", SOCK_DROP(FRAME_TYPE)}, {"c1000001 00000000", SOCK_DROP(FRAME_TYPE)},
        {"c0000000 01000000", SOCK_DROP(NOOP_CSUM)},  {"c0000000 feffffff", SOCK_DROP(NOOP_CSUM)},
        {"c0000000 ffffffff", LNET_DROP_NONE}, /* the sum of no bytes, §4.6 */
        {"c1000000 01000000", LNET_DROP_NONE}, /* to be compared with the payload */
    };
    struct sock_frame f;

    memset(wire, 0, sizeof(wire));
    for (size_t i = 0; i < ROWS(rows); i++) {
        unhex(rows[i].bytes, wire, sizeof(wire));
        assert_int_equal(sock_frame_decode(wire, &f), rows[i].drop);
    }
}

static void test_frame_round_trip(void **state)
{
    uint8_t room[SOCK_FRAME_SIZE + 8], out[SOCK_FRAME_SIZE];
    uint64_t seed = 8;
    unsigned i;

    for (i = 0; i < 10000; i++) {
        uint8_t *buf = room + i % 8;
        struct sock_frame f;

        rnd_fill(&seed, buf, SOCK_FRAME_SIZE);
        unhex("c1000000", buf, 4);
        assert_int_equal(sock_frame_decode(buf, &f), LNET_DROP_NONE);
        sock_frame_encode(&f, out);
        assert_memory_equal(out, buf, sizeof(out));
    }
}

static void test_is_bulk(void **state)
{
    assert_false(sock_msg_is_bulk(SOCK_FRAME_SIZE));
    assert_false(sock_msg_is_bulk(SOCK_FRAME_SIZE + LNET_HDR4_SIZE + 927));
    assert_true(sock_msg_is_bulk(SOCK_FRAME_SIZE + LNET_HDR4_SIZE + 928));
    assert_false(sock_msg_is_bulk(SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 903));
    assert_true(sock_msg_is_bulk(SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 904));
}

/* ---- checksum, §4.6 and §8.6 ---- */

static uint32_t crc_by_bits(uint32_t crc, const uint8_t *p, size_t len)
{
    for (; len > 0; p++, len--) {
        crc ^= *p;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return crc;
}

static void test_crc(void **state)
{
    uint8_t buf[300];
    uint64_t seed = 9;

    assert_int_equal(sock_crc32(SOCK_CRC_SEED, "123456789", 9), 0x340bc6d9);
    assert_int_equal(sock_crc32(SOCK_CRC_SEED, "", 0), 0xffffffff);
    unhex("c0000000 00000000 0000000000000000 0200000000000000", wire, sizeof(wire));
    assert_int_equal(sock_crc32(SOCK_CRC_SEED, wire, 24), 0x757e3d7d);
    assert_int_equal(unhex(GET_MSG, wire, sizeof(wire)), 96);
    assert_int_equal(sock_crc32(SOCK_CRC_SEED, wire, 96), 0xf1fac13f);
    for (unsigned i = 0; i < 5000;
         i++) { /* against the definition; also in pieces, at odd places */
        size_t from = rnd64(&seed) % 16, len = rnd64(&seed) % 280, cut = rnd64(&seed) % (len + 1);
        uint32_t crc, want;

        rnd_fill(&seed, buf, sizeof(buf));
        want = crc_by_bits(SOCK_CRC_SEED, buf + from, len);
        assert_int_equal(sock_crc32(SOCK_CRC_SEED, buf + from, len), want);
        crc = sock_crc32(SOCK_CRC_SEED, buf + from, cut);
        assert_int_equal(sock_crc32(crc, buf + from + cut, len - cut), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_req),
        cmocka_unit_test(test_reply),
        cmocka_unit_test(test_bad_req),
        cmocka_unit_test(test_first_magic),
        cmocka_unit_test(test_hello_v3),
        cmocka_unit_test(test_hello_v4),
        cmocka_unit_test(test_bad_hello_start),
        cmocka_unit_test(test_bad_hello_fields),
        cmocka_unit_test(test_hello_not_sayable),
        cmocka_unit_test(test_hello_round_trip),
        cmocka_unit_test(test_ctypes),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_bad_frames),
        cmocka_unit_test(test_frame_round_trip),
        cmocka_unit_test(test_is_bulk),
        cmocka_unit_test(test_crc),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
