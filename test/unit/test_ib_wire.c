/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages and private data of o2iblnd: docs/protocol/o2iblnd.md, with the worked bytes of its §8.
 */
#include "lib/lnd_verbs/ib_wire.h"
#include "test/unit/wire_bytes.h"

#include "test/drops_test.h"
#include <setjmp.h>
#include <cmocka.h>

REGISTER_DROPS(ib_drops);

#define ROWS(t) (sizeof(t) / sizeof((t)[0]))

#define NID_A   0x000500000a000001ull
#define NID_B   0x000500000a000002ull
#define STAMP_A 0x000640b5eece0001ull
#define STAMP_B 0x000640b5eecfe240ull

/* ends of the header: A to B, B to A */
#define A_TO_B                                                                                     \
    "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"                                              \
    "02 00 00 0a 00 00 05 00 40 e2 cf ee b5 40 06 00"
#define B_TO_A                                                                                     \
    "02 00 00 0a 00 00 05 00 40 e2 cf ee b5 40 06 00"                                              \
    "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"
#define CONNREQ                                                                                    \
    "91 1b e9 0b 12 00 c0 00 38 00 00 00 00 00 00 00"                                              \
    "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"                                              \
    "02 00 00 0a 00 00 05 00 00 00 00 00 00 00 00 00"                                              \
    "08 00 01 01 00 10 00 00"
#define CONNACK "91 1b e9 0b 12 00 c1 00 38 00 00 00 00 00 00 00" B_TO_A "08 00 01 01 00 10 00 00"
#define REJECT_DEPTH                                                                               \
    "91 1b e9 0b 12 00 07 00 40 e2 cf ee b5 40 06 00"                                              \
    "08 00 01 01 00 10 00 00"
#define REJECT_STALE                                                                               \
    "91 1b e9 0b 12 00 05 00 40 e2 cf ee b5 40 06 00"                                              \
    "08 00 01 01 00 10 00 00"
#define PING_GET                                                                                   \
    "91 1b e9 0b 12 00 d1 00 78 00 00 00 00 00 00 00" A_TO_B                                       \
    "02 00 00 0a 00 00 05 00 01 00 00 0a 00 00 05 00"                                              \
    "39 30 00 00 39 30 00 00 02 00 00 00 00 00 00 00"                                              \
    "01 00 00 00 2a 41 06 00 15 00 00 00 00 00 00 00"                                              \
    "00 00 00 00 00 00 00 80 00 00 00 00 00 00 00 00"                                              \
    "10 01 00 00 00 00 00 00"
#define PING_REPLY                                                                                 \
    "91 1b e9 0b 12 00 d1 01 a8 00 00 00 00 00 00 00" B_TO_A                                       \
    "01 00 00 0a 00 00 05 00 02 00 00 0a 00 00 05 00"                                              \
    "39 30 00 00 39 30 00 00 03 00 00 00 30 00 00 00"                                              \
    "01 00 00 00 2a 41 06 00 15 00 00 00 00 00 00 00"                                              \
    "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"                                              \
    "00 00 00 00 00 00 00 00 67 6e 69 70 1e 00 00 00"                                              \
    "39 30 00 00 02 00 00 00 00 00 00 00 00 00 09 00"                                              \
    "01 00 00 00 00 00 00 00 02 00 00 0a 00 00 05 00"                                              \
    "de c0 aa 15 00 00 00 00"
#define NOOP "91 1b e9 0b 12 00 d0 04 30 00 00 00 00 00 00 00" A_TO_B
#define PUT_REQ                                                                                    \
    "91 1b e9 0b 12 00 d2 02 80 00 00 00 00 00 00 00" A_TO_B                                       \
    "02 00 00 0a 00 00 05 00 01 00 00 0a 00 00 05 00"                                              \
    "39 30 00 00 39 30 00 00 01 00 00 00 00 00 10 00"                                              \
    "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff"                                              \
    "88 77 66 55 44 33 22 11 00 00 00 00 00 00 00 00"                                              \
    "08 00 00 00 00 00 00 00 77 00 00 00 00 00 00 00"
#define PUT_ACK                                                                                    \
    "91 1b e9 0b 12 00 d4 00 54 00 00 00 00 00 00 00" B_TO_A                                       \
    "77 00 00 00 00 00 00 00 34 12 00 00 00 00 00 00"                                              \
    "01 cd ab 00 01 00 00 00 00 00 10 00 00 00 20 00"                                              \
    "00 7f 00 00"
#define PUT_DONE                                                                                   \
    "91 1b e9 0b 12 00 d5 00 3c 00 00 00 00 00 00 00" A_TO_B "34 12 00 00 00 00 00 00 00 00 10 00"
#define PUT_NAK                                                                                    \
    "91 1b e9 0b 12 00 d3 00 3c 00 00 00 00 00 00 00" B_TO_A "77 00 00 00 00 00 00 00 00 00 00 00"
/* The rest by the tables of §2: a GET for 4096 bytes in two fragments, and its end with -ENODATA.
 */
#define GET_REQ                                                                                    \
    "91 1b e9 0b 12 00 d6 00 a0 00 00 00 00 00 00 00" A_TO_B                                       \
    "02 00 00 0a 00 00 05 00 01 00 00 0a 00 00 05 00"                                              \
    "39 30 00 00 39 30 00 00 02 00 00 00 00 00 00 00"                                              \
    "01 00 00 00 2a 41 06 00 15 00 00 00 00 00 00 00"                                              \
    "88 77 66 55 44 33 22 11 08 00 00 00 00 00 00 00"                                              \
    "00 10 00 00 00 00 00 00 78 00 00 00 00 00 00 00"                                              \
    "02 cd ab 00 02 00 00 00"                                                                      \
    "00 04 00 00 00 fc ff 1b 00 00 11 ff"                                                          \
    "00 0c 00 00 00 00 00 00 00 00 00 00"
#define GET_DONE                                                                                   \
    "91 1b e9 0b 12 00 d7 00 3c 00 00 00 00 00 00 00" B_TO_A "78 00 00 00 00 00 00 00 c3 ff ff ff"

static uint8_t wire[IB_MSG_SIZE + 64];

static void assert_drop(enum lnet_drop got, enum lnet_drop want)
{
    assert_string_equal(lnet_drop_info(got)->name, lnet_drop_info(want)->name);
}

/* A message with its fragments copied out, as an encoder takes them. */
struct whole {
    struct ib_msg msg;
    struct ib_frag frags[IB_FRAGS_MAX];
};

static enum lnet_drop decode(const void *buf, size_t len, struct whole *out)
{
    enum lnet_drop drop;

    memset(out, 0, sizeof(*out));
    drop = ib_msg_decode(buf, len, &out->msg);
    for (uint32_t i = 0; drop == LNET_DROP_NONE && i < out->msg.rd.nfrags; i++)
        ib_rd_frag(&out->msg.rd, i, &out->frags[i]);
    return drop;
}

static void decode_hex(const char *hex, struct whole *out)
{
    size_t len = unhex(hex, wire, sizeof(wire));

    assert_drop(decode(wire, len, out), LNET_DROP_NONE);
    assert_int_equal(out->msg.hdr.nob, len);
}

static void assert_hdr(const struct ib_hdr *h, unsigned type, unsigned credits, bool from_a)
{
    assert_false(h->flip);
    assert_int_equal(h->version, 0x12);
    assert_int_equal(h->type, type);
    assert_int_equal(h->credits, credits);
    assert_int_equal(h->cksum, 0);
    assert_int_equal(h->src_nid, from_a ? NID_A : NID_B);
    assert_int_equal(h->dst_nid, from_a ? NID_B : NID_A);
    assert_int_equal(h->src_stamp, from_a ? STAMP_A : STAMP_B);
    assert_int_equal(h->dst_stamp, from_a ? STAMP_B : STAMP_A);
}

static void assert_nid(const struct lnet_nid *nid, const char *str)
{
    char buf[LNET_NIDSTR_SIZE];

    assert_string_equal(nid_format(nid, buf), str);
}

/* ---- fields of the worked bytes ---- */

static void test_immediate(void **state)
{
    struct whole w;
    struct lnet_get get;

    decode_hex(PING_GET, &w);
    assert_hdr(&w.msg.hdr, IB_IMMEDIATE, 0, true);
    assert_nid(&w.msg.lnet.dest_nid, "10.0.0.2@o2ib");
    assert_nid(&w.msg.lnet.src_nid, "10.0.0.1@o2ib");
    assert_int_equal(w.msg.lnet.type, LNET_MSG_GET);
    assert_int_equal(w.msg.carried, 0);
    lnet_body_get_get(&w.msg.lnet, &get);
    assert_int_equal(get.sink_length, 272);
    decode_hex(PING_REPLY, &w);
    assert_hdr(&w.msg.hdr, IB_IMMEDIATE, 1, false);
    assert_int_equal(w.msg.lnet.type, LNET_MSG_REPLY);
    assert_int_equal(w.msg.lnet.payload_len, 48);
    assert_int_equal(w.msg.carried, 48);
    assert_ptr_equal(w.msg.payload, wire + 120);
}

static void test_noop(void **state)
{
    struct whole w;

    decode_hex(NOOP, &w);
    assert_hdr(&w.msg.hdr, IB_NOOP, 4, true);
}

static void test_put(void **state)
{
    struct whole w;

    decode_hex(PUT_REQ, &w);
    assert_hdr(&w.msg.hdr, IB_PUT_REQ, 2, true);
    assert_int_equal(w.msg.lnet.type, LNET_MSG_PUT);
    assert_int_equal(w.msg.lnet.payload_len, 1048576);
    assert_int_equal(w.msg.cookie, 0x77);
    decode_hex(PUT_ACK, &w);
    assert_hdr(&w.msg.hdr, IB_PUT_ACK, 0, false);
    assert_int_equal(w.msg.cookie, 0x77);
    assert_int_equal(w.msg.dst_cookie, 0x1234);
    assert_int_equal(w.msg.rd.key, 0x00abcd01);
    assert_int_equal(w.msg.rd.nfrags, 1);
    assert_int_equal(w.msg.rd.total, 1048576);
    assert_int_equal(w.frags[0].nob, 1048576);
    assert_int_equal(w.frags[0].addr, 0x7f0000200000);
    decode_hex(PUT_DONE, &w);
    assert_hdr(&w.msg.hdr, IB_PUT_DONE, 0, true);
    assert_int_equal(w.msg.cookie, 0x1234);
    assert_int_equal(w.msg.status, 1048576);
    decode_hex(PUT_NAK, &w);
    assert_hdr(&w.msg.hdr, IB_PUT_NAK, 0, false);
    assert_int_equal(w.msg.cookie, 0x77);
    assert_int_equal(w.msg.status, 0);
}

static void test_get(void **state)
{
    struct whole w;

    decode_hex(GET_REQ, &w);
    assert_hdr(&w.msg.hdr, IB_GET_REQ, 0, true);
    assert_int_equal(w.msg.cookie, 0x78);
    assert_int_equal(w.msg.rd.key, 0x00abcd02);
    assert_int_equal(w.msg.rd.nfrags, 2);
    assert_int_equal(w.msg.rd.total, 4096);
    assert_int_equal(w.frags[0].nob, 1024);
    assert_true(w.frags[0].addr == 0xff1100001bfffc00);
    assert_int_equal(w.frags[1].nob, 3072);
    assert_int_equal(w.frags[1].addr, 0);
    decode_hex(GET_DONE, &w);
    assert_hdr(&w.msg.hdr, IB_GET_DONE, 0, false);
    assert_int_equal(w.msg.cookie, 0x78);
    assert_int_equal(w.msg.status, -61);
}

/* ---- all of them ---- */

static const char *const messages[] = {
    PING_GET, PING_REPLY, NOOP, PUT_REQ, PUT_ACK, PUT_DONE, PUT_NAK, GET_REQ, GET_DONE,
};

static size_t head_len(const struct ib_msg *m)
{
    return m->hdr.nob - m->carried;
}

static void test_encode(void **state)
{
    uint8_t out[IB_MSG_SIZE];
    struct whole w;
    size_t len;

    for (size_t i = 0; i < ROWS(messages); i++) {
        decode_hex(messages[i], &w);
        len = head_len(&w.msg);
        memset(out, 0xa5, sizeof(out));
        assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, sizeof(out)), len);
        assert_memory_equal(out, wire, len);
        assert_int_equal(out[len], 0xa5);
        assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, len), len);
        assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, len - 1), 0);
    }
}

static void test_truncated(void **state)
{
    struct whole w;
    size_t len;

    for (size_t i = 0; i < ROWS(messages); i++) {
        len = unhex(messages[i], wire, sizeof(wire));
        for (size_t n = 0; n < len; n++) {
            uint8_t *copy = malloc(n + 1); /* ASan sees what is read behind it */

            memcpy(copy + 1, wire, n);
            assert_drop(decode(copy + 1, n, &w), IB_DROP(LENGTH));
            free(copy);
        }
        assert_drop(decode(wire, len + 40, &w), LNET_DROP_NONE); /* what follows is ignored */
        assert_int_equal(w.msg.hdr.nob, len);
    }
}

/* nob one below the type's least; the bytes are there. */
static void test_short_nob(void **state)
{
    static const size_t least[] = {120, 120, 48, 128, 84, 60, 60, 160, 60};
    struct whole w;
    size_t i, len;

    for (i = 0; i < ROWS(messages); i++) {
        enum lnet_drop want = i == 4 || i == 7 ? IB_DROP(FRAGS) : IB_DROP(LENGTH);
        uint32_t nob = (uint32_t)least[i] - 1;

        len = unhex(messages[i], wire, sizeof(wire));
        memcpy(wire + 8, &nob, sizeof(nob));
        assert_drop(decode(wire, len, &w), want);
    }
    len = unhex(PUT_ACK, wire, sizeof(wire));
    wire[8] = 71;
    assert_drop(decode(wire, len, &w), IB_DROP(LENGTH));
    len = unhex(GET_REQ, wire, sizeof(wire));
    wire[8] = 135;
    assert_drop(decode(wire, len, &w), IB_DROP(LENGTH));
}

static void assert_same(const struct whole *a, const struct whole *b)
{
    assert_int_equal(a->msg.hdr.version, b->msg.hdr.version);
    assert_int_equal(a->msg.hdr.type, b->msg.hdr.type);
    assert_int_equal(a->msg.hdr.credits, b->msg.hdr.credits);
    assert_int_equal(a->msg.hdr.nob, b->msg.hdr.nob);
    assert_int_equal(a->msg.hdr.src_nid, b->msg.hdr.src_nid);
    assert_int_equal(a->msg.hdr.src_stamp, b->msg.hdr.src_stamp);
    assert_int_equal(a->msg.hdr.dst_nid, b->msg.hdr.dst_nid);
    assert_int_equal(a->msg.hdr.dst_stamp, b->msg.hdr.dst_stamp);
    assert_memory_equal(&a->msg.lnet, &b->msg.lnet, sizeof(a->msg.lnet));
    assert_int_equal(a->msg.cookie, b->msg.cookie);
    assert_int_equal(a->msg.dst_cookie, b->msg.dst_cookie);
    assert_int_equal(a->msg.status, b->msg.status);
    assert_int_equal(a->msg.rd.key, b->msg.rd.key);
    assert_int_equal(a->msg.rd.nfrags, b->msg.rd.nfrags);
    assert_int_equal(a->msg.rd.total, b->msg.rd.total);
    for (uint32_t i = 0; i < a->msg.rd.nfrags; i++) {
        assert_int_equal(a->frags[i].nob, b->frags[i].nob);
        assert_true(a->frags[i].addr == b->frags[i].addr);
    }
}

static void reverse(uint8_t *p, size_t n)
{
    size_t i;

    for (i = 0; i < n / 2; i++) {
        uint8_t t = p[i];

        p[i] = p[n - 1 - i];
        p[n - 1 - i] = t;
    }
}

/* Turns the bytes of a message round as a node of the other order would have written it: by the
 * tables of §2, knowing nothing of the code. The LNet header and cookies stay. */
static void turn_round(uint8_t *m, unsigned nfrags)
{
    static const uint8_t hdr[][2] = {{0, 4},  {4, 2},  {8, 4},  {12, 4},
                                     {16, 8}, {24, 8}, {32, 8}, {40, 8}};
    unsigned type = m[6];
    size_t rd = type == IB_PUT_ACK ? 64 : type == IB_GET_REQ ? 128 : 0;

    for (size_t i = 0; i < ROWS(hdr); i++)
        reverse(m + hdr[i][0], hdr[i][1]);
    if (type == IB_PUT_NAK || type == IB_PUT_DONE || type == IB_GET_DONE)
        reverse(m + 56, 4);
    if (rd == 0)
        return;
    reverse(m + rd, 4);
    reverse(m + rd + 4, 4);
    for (size_t i = 0; i < nfrags; i++) {
        reverse(m + rd + 8 + 12 * i, 4);
        reverse(m + rd + 12 + 12 * i, 8);
    }
}

static void test_other_order(void **state)
{
    uint8_t out[IB_MSG_SIZE];
    struct whole w, back;
    size_t len;

    for (size_t i = 0; i < ROWS(messages); i++) {
        decode_hex(messages[i], &w);
        len = head_len(&w.msg);
        turn_round(wire, w.msg.rd.nfrags);
        assert_drop(decode(wire, w.msg.hdr.nob, &back), LNET_DROP_NONE);
        assert_true(back.msg.hdr.flip);
        assert_same(&w, &back);
        assert_int_equal(ib_msg_encode(&back.msg, back.frags, out, sizeof(out)), len);
        assert_memory_equal(out, wire, len);
    }
}

/* ---- refused ---- */

static const struct {
    const char *what;
    const char *message;
    unsigned offset;
    const char *bytes; /* put there */
    enum lnet_drop drop;
} bad_messages[] = {
    {"magic", NOOP, 0, "92", IB_DROP(MAGIC)},
    {"generic magic", NOOP, 0, "63 69 72 45", IB_DROP(MAGIC)},
    {"version 1", NOOP, 4, "11 00", IB_DROP(VERSION)},
    {"version 0x13", NOOP, 4, "13 00", IB_DROP(VERSION)},
    {"version in the other order", NOOP, 4, "00 12", IB_DROP(VERSION)},
    {"magic alone in the other order", NOOP, 0, "0b e9 1b 91", IB_DROP(VERSION)},
    {"CONNREQ", PUT_DONE, 6, "c0", IB_DROP(TYPE)},
    {"CONNACK", PUT_DONE, 6, "c1", IB_DROP(TYPE)},
    {"type below", PUT_DONE, 6, "cf", IB_DROP(TYPE)},
    {"type above", PUT_DONE, 6, "d8", IB_DROP(TYPE)},
    {"type 0", PUT_DONE, 6, "00", IB_DROP(TYPE)},
    {"type 0xff", PUT_DONE, 6, "ff", IB_DROP(TYPE)},
    {"nob 0", NOOP, 8, "00 00 00 00", IB_DROP(LENGTH)},
    {"nob all ones", NOOP, 8, "ff ff ff ff", IB_DROP(LENGTH)},
    {"checksum", NOOP, 12, "01 00 00 00", IB_DROP(CKSUM)},
    {"LNet type 4", PING_GET, 48 + 24, "04", LNET_DROP_HDR_TYPE},
    {"GET with payload", PING_GET, 48 + 28, "01", LNET_DROP_HDR_LEN_NOT_ZERO},
    {"LNet NID", PING_GET, 48 + 7, "01", LNET_DROP_HDR_BAD_NID},
    {"payload not there", PING_REPLY, 48 + 28, "31", IB_DROP(PAYLOAD)},
    {"1 MiB not there", PING_REPLY, 48 + 28, "00 00 10 00", IB_DROP(PAYLOAD)},
    {"more than 1 MiB", PING_REPLY, 48 + 28, "01 00 10 00", LNET_DROP_HDR_TOO_LONG},
    {"PUT_REQ above 1 MiB", PUT_REQ, 48 + 28, "01", LNET_DROP_HDR_TOO_LONG},
    {"PUT_REQ of an ACK", PUT_REQ, 48 + 24, "00 00 00 00 00 00 00 00", IB_DROP(LNET_TYPE)},
    {"PUT_REQ of a GET", PUT_REQ, 48 + 24, "02 00 00 00 00 00 00 00", IB_DROP(LNET_TYPE)},
    {"GET_REQ of a PUT", GET_REQ, 48 + 24, "01", IB_DROP(LNET_TYPE)},
    {"GET_REQ of an ACK", GET_REQ, 48 + 24, "00", IB_DROP(LNET_TYPE)},
    {"GET_REQ of LNet type 4", GET_REQ, 48 + 24, "04", LNET_DROP_HDR_TYPE},
    {"PUT_ACK without fragments", PUT_ACK, 68, "00", IB_DROP(FRAGS)},
    {"PUT_ACK with one more", PUT_ACK, 68, "02", IB_DROP(FRAGS)},
    {"PUT_ACK with 258", PUT_ACK, 68, "02 01", IB_DROP(FRAGS)},
    {"PUT_ACK with all ones", PUT_ACK, 68, "ff ff ff ff", IB_DROP(FRAGS)},
    {"PUT_ACK, product wraps", PUT_ACK, 68, "56 55 55 15", IB_DROP(FRAGS)},
    {"fragment of nothing", PUT_ACK, 72, "00 00 00 00", IB_DROP(FRAG_RANGE)},
    {"fragment of 2^31", PUT_ACK, 72, "00 00 00 80", IB_DROP(FRAG_RANGE)},
    {"end of addresses passed", PUT_ACK, 76, "01 00 f0 ff ff ff ff ff", IB_DROP(FRAG_RANGE)},
    {"GET_REQ without fragments", GET_REQ, 132, "00", IB_DROP(FRAGS)},
    {"GET_REQ with one more", GET_REQ, 132, "03", IB_DROP(FRAGS)},
    {"second fragment of nothing", GET_REQ, 148, "00 00", IB_DROP(FRAG_RANGE)},
    {"2^31 together", GET_REQ, 148, "00 fc ff 7f", IB_DROP(FRAG_RANGE)},
};

static void test_bad_messages(void **state)
{
    struct whole w;
    size_t len;

    for (size_t i = 0; i < ROWS(bad_messages); i++) {
        len = unhex(bad_messages[i].message, wire, sizeof(wire));
        unhex(bad_messages[i].bytes, wire + bad_messages[i].offset, 16);
        if (decode(wire, len, &w) != bad_messages[i].drop)
            fail_msg("%s: %s", bad_messages[i].what, lnet_drop_info(decode(wire, len, &w))->name);
    }
}

/* What is just inside the limits of the rows above. */
static void test_at_limits(void **state)
{
    struct whole w;
    size_t len;

    len = unhex(PUT_ACK, wire, sizeof(wire));
    unhex("00 00 f0 ff ff ff ff ff", wire + 76, 8); /* 1 MiB up to the last address */
    assert_drop(decode(wire, len, &w), LNET_DROP_NONE);
    len = unhex(GET_REQ, wire, sizeof(wire));
    unhex("ff fb ff 7f", wire + 148, 4); /* 2^31 - 1 together */
    assert_drop(decode(wire, len, &w), LNET_DROP_NONE);
    assert_int_equal(w.msg.rd.total, INT32_MAX);
    len = unhex(PING_REPLY, wire, sizeof(wire));
    wire[48 + 28] = 47; /* less than is carried */
    assert_drop(decode(wire, len, &w), LNET_DROP_NONE);
    assert_int_equal(w.msg.carried, 48);
}

/* The only refusal that leaves the connection: everything is decoded. */
static void test_short_payload(void **state)
{
    size_t len = unhex(PING_REPLY, wire, sizeof(wire));
    struct whole w;

    wire[48 + 28]++;
    assert_drop(decode(wire, len, &w), IB_DROP(PAYLOAD));
    assert_int_equal(lnet_drop_info(IB_DROP(PAYLOAD))->kind, DROP_KIND_MESSAGE);
    assert_hdr(&w.msg.hdr, IB_IMMEDIATE, 1, false);
    assert_int_equal(w.msg.lnet.payload_len, 49);
    assert_int_equal(w.msg.carried, 48);
}

static void fill_frags(struct whole *w, unsigned type, uint32_t n)
{
    decode_hex(type == IB_PUT_ACK ? PUT_ACK : GET_REQ, w);
    w->msg.rd.nfrags = n;
    for (uint32_t i = 0; i < n && i < IB_FRAGS_MAX; i++)
        w->frags[i] = (struct ib_frag){.addr = 0x1000ull * i + 7, .nob = 4096 - i};
}

static void test_257_fragments(void **state)
{
    static const struct {
        unsigned type;
        size_t size;
    } rows[] = {{IB_PUT_ACK, 3156}, {IB_GET_REQ, 3220}}; /* §2.2 */
    struct whole w, back;
    uint32_t total = 0;

    for (size_t i = 0; i < 257; i++)
        total += 4096 - (uint32_t)i;
    for (size_t i = 0; i < ROWS(rows); i++) {
        fill_frags(&w, rows[i].type, 257);
        assert_int_equal(ib_msg_encode(&w.msg, w.frags, wire, sizeof(wire)), rows[i].size);
        assert_drop(decode(wire, rows[i].size, &back), LNET_DROP_NONE);
        assert_int_equal(back.msg.rd.total, total);
        w.msg.rd.total = total;
        w.msg.hdr.nob = (uint32_t)rows[i].size;
        assert_same(&w, &back);
        assert_drop(decode(wire, rows[i].size - 1, &back), IB_DROP(LENGTH));
        /* one more, all there */
        memcpy(wire + rows[i].size, wire + rows[i].size - IB_FRAG_SIZE, IB_FRAG_SIZE);
        memcpy(wire + 8, &(uint32_t){(uint32_t)rows[i].size + IB_FRAG_SIZE}, 4);
        wire[rows[i].type == IB_PUT_ACK ? 68 : 132]++;
        assert_drop(decode(wire, rows[i].size + IB_FRAG_SIZE, &back), IB_DROP(FRAGS));
    }
}

static void test_cannot_be_said(void **state)
{
    uint8_t out[IB_MSG_SIZE];
    struct whole w;

    fill_frags(&w, IB_PUT_ACK, 0);
    assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, sizeof(out)), 0);
    fill_frags(&w, IB_PUT_ACK, 258);
    assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, sizeof(out)), 0);
    fill_frags(&w, IB_GET_REQ, 3);
    w.frags[2].nob = 0;
    assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, sizeof(out)), 0);
    w.frags[2].nob = 0x80000000u;
    assert_int_equal(ib_msg_encode(&w.msg, w.frags, out, sizeof(out)), 0);
    decode_hex(PING_REPLY, &w);
    w.msg.carried = 3976;
    assert_int_equal(ib_msg_encode(&w.msg, NULL, out, sizeof(out)), 120);
    w.msg.carried = 3977;
    assert_int_equal(ib_msg_encode(&w.msg, NULL, out, sizeof(out)), 0);
    decode_hex(PING_REPLY, &w);
    assert_int_equal(nid_parse("fd00::1@tcp", &w.msg.lnet.src_nid), 0);
    assert_int_equal(ib_msg_encode(&w.msg, NULL, out, sizeof(out)), 0);
    decode_hex(NOOP, &w);
    w.msg.hdr.type = IB_CONNREQ;
    assert_int_equal(ib_msg_encode(&w.msg, NULL, out, sizeof(out)), 0);
    w.msg.hdr.type = 0xd8;
    assert_int_equal(ib_msg_encode(&w.msg, NULL, out, sizeof(out)), 0);
}

static void test_longest(void **state)
{
    struct whole w;

    decode_hex(PING_REPLY, &w);
    w.msg.carried = w.msg.lnet.payload_len = 3976;
    memset(wire, 0, sizeof(wire));
    assert_int_equal(ib_msg_encode(&w.msg, NULL, wire, sizeof(wire)), 120);
    assert_drop(decode(wire, 4096, &w), LNET_DROP_NONE);
    assert_int_equal(w.msg.carried, 3976);
    wire[8] = 1; /* nob 4097, in a buffer that is longer than ours ever are */
    assert_drop(decode(wire, 4097, &w), IB_DROP(LENGTH));
}

/* ---- checksum, §2.4 and the end of §8 ---- */

static void test_cksum(void **state)
{
    struct whole w;
    size_t len;

    len = unhex(CONNREQ, wire, sizeof(wire));
    assert_int_equal(ib_cksum(wire, len, true), 0xa3660591);
    assert_int_equal(ib_cksum(wire, len, false), 0x44e605ca);
    len = unhex(PING_GET, wire, sizeof(wire));
    assert_int_equal(ib_cksum(wire, len, true), 0x784101f7);
    assert_int_equal(ib_cksum(wire, len, false), 0x1b390230);
    for (size_t i = 0; i < 4; i++) { /* both variants, in both orders */
        uint32_t sum;

        unhex(PING_GET, wire, sizeof(wire));
        if (i & 2)
            turn_round(wire, 0);
        sum = ib_cksum(wire, len, i & 1);
        if (i & 2)
            sum = __builtin_bswap32(sum);
        memcpy(wire + 12, &sum, sizeof(sum));
        assert_drop(decode(wire, len, &w), LNET_DROP_NONE);
        for (unsigned at = 16; at < len; at++) {
            wire[at] ^= 0x10;
            assert_drop(decode(wire, len, &w), IB_DROP(CKSUM));
            wire[at] ^= 0x10;
        }
    }
    memset(wire, 0, 48);
    assert_int_equal(ib_cksum(wire, 48, false), 1); /* never 0 */
}

/* ---- ends ---- */

static void test_ends(void **state)
{
    const struct ib_ends at_b = {NID_B, STAMP_B, NID_A, STAMP_A};
    struct ib_ends other;
    struct whole w;

    decode_hex(NOOP, &w);
    assert_drop(ib_msg_ends(&w.msg.hdr, &at_b), LNET_DROP_NONE);
    other = at_b;
    other.my_nid++;
    assert_drop(ib_msg_ends(&w.msg.hdr, &other), IB_DROP(NID));
    other = at_b;
    other.peer_nid++;
    assert_drop(ib_msg_ends(&w.msg.hdr, &other), IB_DROP(NID));
    other = at_b;
    other.my_stamp++;
    assert_drop(ib_msg_ends(&w.msg.hdr, &other), IB_DROP(STAMP));
    other = at_b;
    other.peer_stamp++;
    assert_drop(ib_msg_ends(&w.msg.hdr, &other), IB_DROP(STAMP));
}

/* ---- private data ---- */

static void assert_conn(const struct ib_conn_msg *c, unsigned type, bool from_a, uint64_t stamp)
{
    assert_int_equal(c->hdr.version, 0x12);
    assert_int_equal(c->hdr.type, type);
    assert_int_equal(c->hdr.credits, 0);
    assert_int_equal(c->hdr.src_nid, from_a ? NID_A : NID_B);
    assert_int_equal(c->hdr.dst_nid, from_a ? NID_B : NID_A);
    assert_int_equal(c->hdr.src_stamp, from_a ? STAMP_A : STAMP_B);
    assert_int_equal(c->hdr.dst_stamp, stamp);
    assert_int_equal(c->queue_depth, 8);
    assert_int_equal(c->max_frags, 257);
    assert_int_equal(c->max_msg_size, 4096);
}

static void check_conn(const char *hex, unsigned type, bool from_a, uint64_t stamp)
{
    size_t len = unhex(hex, wire, sizeof(wire)), n;
    uint8_t out[IB_CONN_SIZE];
    struct ib_conn_msg c;

    assert_int_equal(len, IB_CONN_SIZE);
    memset(wire + len, 0, 140); /* a REP is padded to 196, §1.2 */
    assert_drop(ib_conn_decode(wire, 196, &c), LNET_DROP_NONE);
    assert_conn(&c, type, from_a, stamp);
    ib_conn_encode(&c, out);
    assert_memory_equal(out, wire, sizeof(out));
    for (n = 0; n < len; n++) {
        uint8_t *copy = malloc(n + 1);

        memcpy(copy + 1, wire, n);
        assert_drop(ib_conn_decode(copy + 1, n, &c), IB_DROP(CONN_LENGTH));
        free(copy);
    }
    turn_round(wire, 0);
    reverse(wire + 48, 2);
    reverse(wire + 50, 2);
    reverse(wire + 52, 4);
    assert_drop(ib_conn_decode(wire, len, &c), LNET_DROP_NONE);
    assert_true(c.hdr.flip);
    assert_conn(&c, type, from_a, stamp);
    ib_conn_encode(&c, out);
    assert_memory_equal(out, wire, sizeof(out));
}

static void test_conn(void **state)
{
    check_conn(CONNREQ, IB_CONNREQ, true, 0);
    check_conn(CONNACK, IB_CONNACK, false, STAMP_A);
}

static const struct {
    const char *what;
    unsigned offset;
    const char *bytes;
    enum lnet_drop drop;
} bad_conns[] = {
    {"magic", 0, "90", IB_DROP(CONN_MAGIC)},
    {"generic magic", 0, "63 69 72 45", IB_DROP(CONN_MAGIC)},
    {"version 0x10", 4, "10", IB_DROP(CONN_VERSION)},
    {"version 0x13", 4, "13", IB_DROP(CONN_VERSION)},
    {"version 1 is known", 4, "11", LNET_DROP_NONE},
    {"NOOP", 6, "d0", IB_DROP(CONN_TYPE)},
    {"type 0xc2", 6, "c2", IB_DROP(CONN_TYPE)},
    {"nob 55", 8, "37", IB_DROP(CONN_LENGTH)},
    {"nob 47", 8, "2f", IB_DROP(CONN_LENGTH)},
    {"nob above what came", 8, "39", IB_DROP(CONN_LENGTH)},
    {"nob all ones", 8, "ff ff ff ff", IB_DROP(CONN_LENGTH)},
    {"checksum", 12, "05", IB_DROP(CONN_CKSUM)},
    {"source ANY", 16, "ff ff ff ff ff ff ff ff", IB_DROP(CONN_NID)},
    {"source of another LND", 22, "02", IB_DROP(CONN_NID)},
    {"source with a high byte", 23, "01", IB_DROP(CONN_NID)},
    {"source of o2ib7", 20, "07", LNET_DROP_NONE},
};

static void test_bad_conn(void **state)
{
    struct ib_conn_msg c;

    for (size_t i = 0; i < ROWS(bad_conns); i++) {
        enum lnet_drop drop;

        unhex(CONNREQ, wire, sizeof(wire));
        unhex(bad_conns[i].bytes, wire + bad_conns[i].offset, 8);
        drop = ib_conn_decode(wire, IB_CONN_SIZE, &c);
        if (drop != bad_conns[i].drop)
            fail_msg("%s: %s", bad_conns[i].what, lnet_drop_info(drop)->name);
    }
}

static void assert_reject(const struct ib_reject *r, unsigned why)
{
    assert_int_equal(r->version, 0x12);
    assert_int_equal(r->why, why);
    assert_true(r->params);
    assert_int_equal(r->stamp, STAMP_B);
    assert_int_equal(r->queue_depth, 8);
    assert_int_equal(r->max_frags, 257);
    assert_int_equal(r->max_msg_size, 4096);
}

static void check_reject(const char *hex, unsigned why)
{
    uint8_t out[IB_REJECT_SIZE];
    struct ib_reject r;

    unhex(hex, wire, sizeof(wire));
    memset(wire + IB_REJECT_SIZE, 0, 124); /* padded to 148, §1.2 */
    assert_drop(ib_reject_decode(wire, 148, &r), LNET_DROP_NONE);
    assert_false(r.flip || r.generic);
    assert_reject(&r, why);
    ib_reject_encode(&r, out);
    assert_memory_equal(out, wire, sizeof(out));
    for (size_t n = 0; n < 24; n++) {
        uint8_t *copy = malloc(n + 1); /* ASan sees what is read behind it */
        enum lnet_drop drop;

        memcpy(copy + 1, wire, n);
        drop = ib_reject_decode(copy + 1, n, &r);
        free(copy);
        assert_drop(drop, n < 7 ? IB_DROP(CONN_LENGTH) : LNET_DROP_NONE);
        assert_false(r.params);
        assert_true(r.stamp == 0 && r.queue_depth == 0 && r.max_frags == 0);
        assert_int_equal(r.why, n < 7 ? 0 : why);
    }
    reverse(wire, 4);
    reverse(wire + 4, 2);
    reverse(wire + 8, 8);
    reverse(wire + 16, 2);
    reverse(wire + 18, 2);
    reverse(wire + 20, 4);
    assert_drop(ib_reject_decode(wire, 24, &r), LNET_DROP_NONE);
    assert_true(r.flip);
    assert_reject(&r, why);
    ib_reject_encode(&r, out);
    assert_memory_equal(out, wire, sizeof(out));
}

static void test_reject(void **state)
{
    uint8_t out[IB_REJECT_SIZE];
    struct ib_reject r;

    check_reject(REJECT_DEPTH, IB_WHY_DEPTH);
    check_reject(REJECT_STALE, IB_WHY_STALE);
    unhex(REJECT_STALE, wire, sizeof(wire));
    unhex("63 69 72 45", wire, 4); /* the generic magic, in both orders */
    assert_drop(ib_reject_decode(wire, 24, &r), LNET_DROP_NONE);
    assert_true(r.generic && !r.flip && r.params);
    ib_reject_encode(&r, out);
    assert_memory_equal(out, wire, sizeof(out));
    unhex("45 72 69 63 00 12", wire, 6);
    assert_drop(ib_reject_decode(wire, 24, &r), LNET_DROP_NONE);
    assert_true(r.generic && r.flip && r.params);
    unhex("91 1b e9 0b 11 00 03", wire, 7); /* version 1 has no more */
    assert_drop(ib_reject_decode(wire, 24, &r), LNET_DROP_NONE);
    assert_false(r.params);
    assert_int_equal(r.version, 0x11);
    unhex("90", wire, 1);
    assert_drop(ib_reject_decode(wire, 24, &r), IB_DROP(CONN_MAGIC));
}

static void test_names(void **state)
{
    assert_string_equal(ib_why_text(9), "refused: its NIs are not up yet");
    assert_string_equal(ib_why_text(10), "refused: for a reason that is not known here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_immediate),
        cmocka_unit_test(test_noop),
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_encode),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_short_nob),
        cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_at_limits),
        cmocka_unit_test(test_short_payload),
        cmocka_unit_test(test_257_fragments),
        cmocka_unit_test(test_cannot_be_said),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_cksum),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_conn),
        cmocka_unit_test(test_bad_conn),
        cmocka_unit_test(test_reject),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
