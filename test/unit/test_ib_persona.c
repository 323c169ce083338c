/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The persona of the o2iblnd tests against the worked example of docs/protocol/o2iblnd.md §8, and
 * against the driver's own encoder: two that share nothing must agree on every message.
 */
#include "lib/lnd_verbs/ib_wire.h"
#include "test/unit/ib_persona.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define A_NID   0x000500000a000001ull
#define B_NID   0x000500000a000002ull
#define A_STAMP 0x000640b5eece0001ull
#define B_STAMP 0x000640b5eecfe240ull

static size_t hex(const char *text, uint8_t *out)
{
    size_t n = 0;
    int digit = -1;

    for (; *text != '\0'; text++) {
        int v = *text >= '0' && *text <= '9'   ? *text - '0'
                : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
                                               : -1;

        if (v < 0)
            continue;
        if (digit < 0) {
            digit = v;
        } else {
            out[n++] = (uint8_t)(digit << 4 | v);
            digit = -1;
        }
    }
    return n;
}

static void expect(const struct pe_msg *m, const char *text)
{
    static struct pe_msg back;
    uint8_t want[PE_MSG], got[PE_MSG];
    size_t n = hex(text, want);

    assert_int_equal(pe_encode(m, got), n);
    assert_memory_equal(got, want, n);
    assert_true(pe_decode(want, n, &back));
    back.nob = 0;
    assert_int_equal(pe_encode(&back, got), n);
    assert_memory_equal(got, want, n);
    assert_false(pe_decode(want, n - 1, &back));
}

static struct pe_msg from_a(uint8_t type, uint8_t credits)
{
    return (struct pe_msg){.type = type,
                           .credits = credits,
                           .src = A_NID,
                           .src_stamp = A_STAMP,
                           .dst = B_NID,
                           .dst_stamp = B_STAMP};
}

#define ENDS_AB                                                                                    \
    "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"                                              \
    "02 00 00 0a 00 00 05 00 40 e2 cf ee b5 40 06 00"
#define ENDS_BA                                                                                    \
    "02 00 00 0a 00 00 05 00 40 e2 cf ee b5 40 06 00"                                              \
    "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"

static void vectors(void **state)
{
    struct pe_msg m = from_a(PE_CONNREQ, 0);
    struct pe_reject r = {.why = 7, .stamp = B_STAMP, .depth = 8, .frags = 257}, back;
    uint8_t want[24], got[24];

    m.dst_stamp = 0;
    m.depth = 8;
    m.frags = 257;
    m.size = 4096;
    expect(&m, "91 1b e9 0b 12 00 c0 00 38 00 00 00 00 00 00 00"
               "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"
               "02 00 00 0a 00 00 05 00 00 00 00 00 00 00 00 00 08 00 01 01 00 10 00 00");
    m = from_a(PE_NOOP, 4);
    expect(&m, "91 1b e9 0b 12 00 d0 04 30 00 00 00 00 00 00 00" ENDS_AB);
    m = from_a(PE_PUT_REQ, 2);
    m.lnet = (struct pe_lnet){B_NID, A_NID, 12345, 12345, PE_LNET_PUT, 1 << 20, {0}};
    memset(m.lnet.body, 0xff, 16);
    hex("88 77 66 55 44 33 22 11", m.lnet.body + 16);
    m.lnet.body[32] = 8;
    m.cookie = 0x77;
    expect(&m, "91 1b e9 0b 12 00 d2 02 80 00 00 00 00 00 00 00" ENDS_AB
               "02 00 00 0a 00 00 05 00 01 00 00 0a 00 00 05 00"
               "39 30 00 00 39 30 00 00 01 00 00 00 00 00 10 00"
               "ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff"
               "88 77 66 55 44 33 22 11 00 00 00 00 00 00 00 00"
               "08 00 00 00 00 00 00 00 77 00 00 00 00 00 00 00");
    m = (struct pe_msg){.type = PE_PUT_ACK,
                        .src = B_NID,
                        .src_stamp = B_STAMP,
                        .dst = A_NID,
                        .dst_stamp = A_STAMP,
                        .cookie = 0x77,
                        .dst_cookie = 0x1234,
                        .key = 0x00abcd01,
                        .nfrags = 1,
                        .frag = {{0x7f0000200000, 1 << 20}}};
    expect(&m, "91 1b e9 0b 12 00 d4 00 54 00 00 00 00 00 00 00" ENDS_BA
               "77 00 00 00 00 00 00 00 34 12 00 00 00 00 00 00"
               "01 cd ab 00 01 00 00 00 00 00 10 00 00 00 20 00 00 7f 00 00");
    m = from_a(PE_PUT_DONE, 0);
    m.cookie = 0x1234;
    m.status = 1 << 20;
    expect(&m, "91 1b e9 0b 12 00 d5 00 3c 00 00 00 00 00 00 00" ENDS_AB
               "34 12 00 00 00 00 00 00 00 00 10 00");
    hex("91 1b e9 0b 12 00 07 00 40 e2 cf ee b5 40 06 00 08 00 01 01 00 10 00 00", want);
    pe_reject_encode(&r, got);
    assert_memory_equal(got, want, 24);
    assert_true(pe_reject_decode(want, 24, &back));
    assert_int_equal(back.why, 7);
    assert_int_equal(back.stamp, B_STAMP);
    assert_int_equal(pe_nid("10.0.0.1"), A_NID);
}

static void checksum(void **state)
{
    uint8_t buf[PE_MSG];
    size_t n = hex("91 1b e9 0b 12 00 c0 00 38 00 00 00 00 00 00 00"
                   "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"
                   "02 00 00 0a 00 00 05 00 00 00 00 00 00 00 00 00 08 00 01 01 00 10 00 00",
                   buf);

    assert_int_equal(pe_cksum(buf, n), 0x44e605ca);
}

/* What one writes the other reads, in both byte orders. */
static void agrees(void **state)
{
    static const uint8_t types[] = {PE_NOOP,    PE_IMMEDIATE, PE_PUT_REQ, PE_PUT_NAK,
                                    PE_PUT_ACK, PE_PUT_DONE,  PE_GET_REQ, PE_GET_DONE};
    static struct pe_msg m;
    static uint8_t data[100];

    for (unsigned i = 0; i < 2 * sizeof(types); i++) {
        uint8_t buf[PE_MSG];
        struct ib_msg out;
        struct ib_frag f;

        m = from_a(types[i / 2], 3);
        m.big = i % 2;
        m.lnet = (struct pe_lnet){B_NID, A_NID, 1, 2, PE_LNET_PUT, 0, {7}};
        if (m.type == PE_IMMEDIATE)
            m.lnet.len = m.carried = sizeof(data);
        if (m.type == PE_GET_REQ)
            m.lnet.type = PE_LNET_GET;
        m.payload = data;
        m.cookie = 0x1122334455667788;
        m.dst_cookie = 0x99aabbccddeeff00;
        m.status = -71;
        m.key = 0xdeadbeef;
        m.nfrags = 2;
        m.frag[0] = (struct pe_frag){0x0102030405060708, 4096};
        m.frag[1] = (struct pe_frag){0x1112131415161718, 99};
        assert_int_equal(ib_msg_decode(buf, pe_encode(&m, buf), &out), LNET_DROP_NONE);
        assert_int_equal(out.hdr.type, m.type);
        assert_int_equal(out.hdr.flip, m.big);
        assert_int_equal(out.hdr.credits, 3);
        assert_int_equal(out.hdr.src_stamp, A_STAMP);
        if (m.type == PE_IMMEDIATE)
            assert_int_equal(out.carried, sizeof(data));
        if (m.type != PE_IMMEDIATE && m.type != PE_NOOP)
            assert_int_equal(out.cookie, m.cookie);
        if (m.type == PE_PUT_DONE)
            assert_int_equal(out.status, -71);
        if (m.type == PE_PUT_ACK || m.type == PE_GET_REQ) {
            ib_rd_frag(&out.rd, 1, &f);
            assert_int_equal(f.addr, m.frag[1].addr);
            assert_int_equal(f.nob, 99);
            assert_int_equal(out.rd.key, 0xdeadbeef);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors),
        cmocka_unit_test(checksum),
        cmocka_unit_test(agrees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
