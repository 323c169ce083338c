/* SPDX-License-Identifier: BSD-3-Clause */
/* The ping info: docs/protocol/lnet-core.md §3.2, with the worked bytes of socklnd.md §8.5. */
#include <endian.h>

#include "lib/lnet/wire/lnet_wire.h"
#include "test/unit/wire_bytes.h"

#include <setjmp.h>
#include <cmocka.h>

#define NODE_INFO                                                                                  \
    "67 6e 69 70 1e 00 00 00  39 30 00 00 02 00 00 00"                                             \
    "00 00 00 00 00 00 09 00  01 00 00 00 00 00 00 00"                                             \
    "02 00 00 0a 00 00 02 00  de c0 aa 15 00 00 00 00"
/* An IPv6-only node, lnet-core.md §16: 56 bytes, features 0x7e. */
#define LARGE_INFO                                                                                 \
    "67 6e 69 70 7e 00 00 00  39 30 00 00 01 00 00 00"                                             \
    "00 00 00 00 00 00 09 00  02 00 00 00 38 00 00 00"                                             \
    "de c0 aa 15 0c 02 00 00  fd 00 00 10 00 00 00 00  00 00 00 00 00 00 00 05"
/* The same node with a second, IPv4, NI: 72 bytes. */
#define MIXED_INFO                                                                                 \
    "67 6e 69 70 7e 00 00 00  39 30 00 00 02 00 00 00"                                             \
    "00 00 00 00 00 00 09 00  03 00 00 00 48 00 00 00"                                             \
    "05 0a a8 c0 00 00 02 00  de c0 aa 15 00 00 00 00"                                             \
    "ce fa ad de 0c 02 00 00  fd 00 00 10 00 00 00 00  00 00 00 00 00 00 00 05"
/* NODE_INFO from a big-endian sender. */
#define NODE_INFO_BE                                                                               \
    "70 69 6e 67 00 00 00 1e  00 00 30 39 00 00 00 02"                                             \
    "00 09 00 00 00 00 00 00  00 00 00 01 00 00 00 00"                                             \
    "00 02 00 00 0a 00 00 02  15 aa c0 de 00 00 00 00"
#define MIXED_INFO_BE                                                                              \
    "70 69 6e 67 00 00 00 7e  00 00 30 39 00 00 00 02"                                             \
    "00 09 00 00 00 00 00 00  00 00 00 03 00 00 00 48"                                             \
    "00 02 00 00 c0 a8 0a 05  15 aa c0 de 00 00 00 00"                                             \
    "de ad fa ce 0c 02 00 00  fd 00 00 10 00 00 00 00  00 00 00 00 00 00 00 05"

static struct lnet_ping_info info; /* 6 KiB: not on the stack of each test */
static uint8_t wire[LNET_PING_MAX_SIZE], out[LNET_PING_MAX_SIZE];

static void assert_entry(unsigned i, const char *str, uint32_t status)
{
    char buf[LNET_NIDSTR_SIZE];

    assert_in_range(i, 0, info.count - 1);
    assert_string_equal(nid_format(&info.ni[i].nid, buf), str);
    assert_int_equal(info.ni[i].status, status);
}

static void assert_primary(const char *str)
{
    char buf[LNET_NIDSTR_SIZE];
    struct lnet_nid nid;

    assert_true(lnet_ping_primary(&info, &nid));
    assert_string_equal(nid_format(&nid, buf), str);
}

static size_t decode(const char *hex)
{
    size_t len = unhex(hex, wire, sizeof(wire));

    assert_int_equal(lnet_ping_decode(wire, len, &info), LNET_DROP_NONE);
    return len;
}

static void assert_encodes_same(size_t len)
{
    assert_int_equal(lnet_ping_encode(&info, out, sizeof(out)), len);
    assert_memory_equal(out, wire, len);
}

static void test_node(void **state)
{
    size_t len = decode(NODE_INFO);

    assert_int_equal(len, 48);
    assert_int_equal(info.features, 0x1e);
    assert_int_equal(info.pid, 12345);
    assert_int_equal(info.seqno, 1);
    assert_int_equal(info.msg_size, 0);
    assert_int_equal(info.nnis, 2);
    assert_int_equal(info.full_size, 48);
    assert_false(info.truncated || info.swapped);
    assert_int_equal(info.count, 1);
    assert_entry(0, "10.0.0.2@tcp", LNET_NI_UP);
    assert_primary("10.0.0.2@tcp");
    assert_encodes_same(len);
}

static void test_large(void **state)
{
    size_t len = decode(LARGE_INFO);

    assert_int_equal(len, 56);
    assert_int_equal(info.nnis, 1);
    assert_int_equal(info.seqno, 2);
    assert_int_equal(info.full_size, 56);
    assert_int_equal(info.count, 1);
    assert_entry(0, "fd00:10::5@tcp", LNET_NI_UP);
    assert_primary("fd00:10::5@tcp");
    assert_encodes_same(len);
    info.features = 0x1e; /* the bits follow from the list */
    assert_encodes_same(len);
}

static void test_mixed(void **state)
{
    size_t len = decode(MIXED_INFO);

    assert_int_equal(len, 72);
    assert_int_equal(info.count, 2);
    assert_entry(0, "192.168.10.5@tcp", LNET_NI_UP);
    assert_entry(1, "fd00:10::5@tcp", LNET_NI_DOWN);
    assert_primary("fd00:10::5@tcp");
    info.features &= ~(uint32_t)LNET_PING_PRIMARY_LARGE;
    assert_primary("192.168.10.5@tcp");
    info.features |= LNET_PING_PRIMARY_LARGE;
    assert_encodes_same(len);
}

/* Order of our own configuration: a large NID first makes the primary large. */
static void test_own_order(void **state)
{
    struct lnet_ping_ni ipv4, ipv6;
    size_t len = decode(MIXED_INFO);

    ipv4 = info.ni[0];
    ipv6 = info.ni[1];
    info.ni[0] = ipv6;
    info.ni[1] = ipv4;
    info.features = 0x1e;
    assert_encodes_same(len); /* 0x7e */
    info.ni[0] = ipv4;
    info.ni[1] = ipv6;
    assert_int_equal(lnet_ping_encode(&info, out, sizeof(out)), len);
    assert_int_equal(out[4], 0x3e); /* LARGE_ADDR alone */
}

static void test_other_byte_order(void **state)
{
    decode(NODE_INFO_BE);
    assert_true(info.swapped);
    assert_int_equal(info.features, 0x1e);
    assert_int_equal(info.pid, 12345);
    assert_int_equal(info.seqno, 1);
    assert_entry(0, "10.0.0.2@tcp", LNET_NI_UP);
    unhex(NODE_INFO, wire, sizeof(wire)); /* we write our own order */
    assert_encodes_same(48);

    decode(MIXED_INFO_BE);
    assert_int_equal(info.msg_size, 72);
    assert_entry(0, "192.168.10.5@tcp", LNET_NI_UP);
    assert_entry(1, "fd00:10::5@tcp", LNET_NI_DOWN);
    unhex(MIXED_INFO, wire, sizeof(wire));
    assert_encodes_same(72);
}

/* ---- refusals and what is tolerated ---- */

static enum lnet_drop decode_with(size_t offset, uint32_t value, size_t len)
{
    uint32_t raw = htole32(value);

    unhex(MIXED_INFO, wire, sizeof(wire));
    memcpy(wire + offset, &raw, sizeof(raw));
    return lnet_ping_decode(wire, len, &info);
}

static void test_refused(void **state)
{
    unhex(MIXED_INFO, wire, sizeof(wire));
    for (size_t len = 0; len < 16; len++)
        assert_int_equal(lnet_ping_decode(wire, len, &info), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(0, 0x70696e68, 72), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(4, 0x7c, 72), LNET_DROP_PING_BAD_INFO); /* NI_STATUS missing */
    assert_int_equal(decode_with(12, 0, 72), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(12, 4097, 72), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(12, UINT32_MAX, 72), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(16, 1, 72), LNET_DROP_PING_BAD_INFO); /* entry 0 not 0@lo */
    assert_int_equal(decode_with(20, 0x20000, 72), LNET_DROP_PING_BAD_INFO);
    assert_int_equal(decode_with(28, 47, 72), LNET_DROP_PING_BAD_INFO); /* less than its entries */
    assert_int_equal(decode_with(28, 0, 72), LNET_DROP_PING_BAD_INFO);
}

static void test_unknown_features(void **state)
{
    assert_int_equal(decode_with(4, 0xffffff7e, 72), LNET_DROP_NONE);
    assert_int_equal(info.count, 2);
    assert_int_equal(info.features, 0xffffff7e);
    assert_int_equal(decode_with(28, 0x4b, 72), LNET_DROP_NONE); /* low two bits masked off */
    assert_int_equal(info.full_size, 72);
    assert_int_equal(info.count, 2);
}

/* §13: the third word of an entry is unused in 2.15, and without LARGE_ADDR it is no size. */
static void test_third_word(void **state)
{
    for (unsigned entry = 0; entry < 2; entry++) {
        size_t len = unhex(NODE_INFO, wire, sizeof(wire));

        memset(wire + 16 + 16 * entry + 12, 0xa5, 4);
        assert_int_equal(lnet_ping_decode(wire, len, &info), LNET_DROP_NONE);
        assert_int_equal(info.full_size, len);
        assert_int_equal(info.count, 1);
        assert_entry(0, "10.0.0.2@tcp", LNET_NI_UP);
    }
}

/* Cut at every length: whole entries are kept, nothing behind the end is read (the buffer is
 * exactly as long, so that a sanitizer sees it). */
static void test_truncated(void **state)
{
    for (size_t len = 16; len < 72; len++) {
        uint8_t *cut = malloc(len);

        assert_non_null(cut);
        unhex(MIXED_INFO, wire, sizeof(wire));
        memcpy(cut, wire, len);
        assert_int_equal(lnet_ping_decode(cut, len, &info), LNET_DROP_NONE);
        assert_true(info.truncated);
        assert_int_equal(info.count, len < 48 ? 0 : 1);
        assert_int_equal(info.full_size, len < 32 ? 48 : 72);
        assert_int_equal(info.seqno, len < 32 ? 0 : 3);
        free(cut);
    }
}

/* What kernels put behind the declared size, and buffers longer than it, are not looked at. */
static void test_metadata(void **state)
{
    unhex(MIXED_INFO, wire, sizeof(wire));
    wire[4] |= LNET_PING_METADATA;
    memset(wire + 72, 0x5a, 8004);
    assert_int_equal(lnet_ping_decode(wire, 72 + 8004, &info), LNET_DROP_NONE);
    assert_false(info.truncated);
    assert_int_equal(info.count, 2);
    assert_int_equal(info.full_size, 72);
}

static void test_entries_passed_over(void **state)
{
    unhex(MIXED_INFO, wire, sizeof(wire));
    wire[39] = 1; /* a nid4 of a kind to come */
    assert_int_equal(lnet_ping_decode(wire, 72, &info), LNET_DROP_NONE);
    assert_int_equal(info.count, 1);
    assert_entry(0, "fd00:10::5@tcp", LNET_NI_DOWN);
    unhex(MIXED_INFO, wire, sizeof(wire));
    wire[53] = 0xff; /* a large entry of type ANY */
    assert_int_equal(lnet_ping_decode(wire, 72, &info), LNET_DROP_NONE);
    assert_int_equal(info.count, 1);
    unhex(MIXED_INFO, wire, sizeof(wire));
    memset(wire + 76, 0, 12);
    wire[28] = 88;
    memcpy(wire + 72, "\xce\xfa\xad\xde\0\2\0\0\1\2\3\4", 12); /* a short NID among the large */
    assert_int_equal(lnet_ping_decode(wire, 88, &info), LNET_DROP_NONE);
    assert_int_equal(info.count, 2);
    /* a NID longer than any we know has a length all the same: 4 + 28 bytes, then a good one */
    unhex(MIXED_INFO, wire, sizeof(wire));
    memmove(wire + 48 + 32, wire + 48, 24);
    memset(wire + 48, 0x11, 32);
    wire[52] = 20;
    wire[28] = 48 + 32 + 24;
    assert_int_equal(lnet_ping_decode(wire, 48 + 32 + 24, &info), LNET_DROP_NONE);
    assert_int_equal(info.count, 2);
    assert_entry(1, "fd00:10::5@tcp", LNET_NI_DOWN);
}

static void test_too_many(void **state)
{
    uint32_t n = LNET_PING_MAX_NIDS + 3;

    unhex(NODE_INFO, wire, sizeof(wire));
    for (uint32_t i = 1; i <= n; i++)
        memcpy(wire + 16 + 16 * i, wire + 32, 16);
    wire[12] = (uint8_t)(n + 1);
    wire[13] = (uint8_t)((n + 1) >> 8);
    assert_int_equal(lnet_ping_decode(wire, 16 + 16 * (n + 1), &info), LNET_DROP_NONE);
    assert_int_equal(info.count, LNET_PING_MAX_NIDS);
    assert_true(info.truncated);
    assert_int_equal(info.full_size, 16 + 16 * (n + 1));
}

static void test_no_primary(void **state)
{
    struct lnet_nid nid;

    decode("67 6e 69 70 1e 00 00 00  39 30 00 00 01 00 00 00"
           "00 00 00 00 00 00 09 00  01 00 00 00 00 00 00 00");
    assert_int_equal(info.count, 0);
    assert_false(lnet_ping_primary(&info, &nid));
    decode(LARGE_INFO);
    info.features &= ~(uint32_t)LNET_PING_PRIMARY_LARGE;
    assert_false(lnet_ping_primary(&info, &nid)); /* nnis < 2 and none named large */
}

static void test_encode_limits(void **state)
{
    size_t len = decode(MIXED_INFO);

    for (size_t cap = 0; cap < len; cap++)
        assert_int_equal(lnet_ping_encode(&info, out, cap), 0);
    assert_int_equal(lnet_ping_encode(&info, out, len), len);
    info.ni[1].nid.size = 13;
    assert_int_equal(lnet_ping_encode(&info, out, sizeof(out)), 0);
    decode(MIXED_INFO);
    info.count = LNET_PING_MAX_NIDS + 1;
    assert_int_equal(lnet_ping_encode(&info, out, sizeof(out)), 0);
}

static void fill_random(uint64_t *seed)
{
    memset(&info, 0, sizeof(info));
    info.features = LNET_PING_NI_STATUS | ((uint32_t)rnd64(seed) & 0x1d);
    info.pid = (uint32_t)rnd64(seed);
    info.seqno = (uint32_t)rnd64(seed);
    info.count = (uint32_t)(rnd64(seed) % (LNET_PING_MAX_NIDS + 1));
    for (uint32_t i = 0; i < info.count; i++) {
        uint8_t addr[16];

        rnd_fill(seed, addr, sizeof(addr));
        /* nid4 first, as a decoder gives them */
        info.ni[i].nid = nid_make(LNET_NET(2 + rnd64(seed) % 2 * 16, rnd64(seed) & 0xffff), addr,
                                  i < info.count / 2 ? 4 : 5 + (unsigned)(rnd64(seed) % 12));
        info.ni[i].status = (uint32_t)rnd64(seed);
    }
}

static void test_round_trip_random(void **state)
{
    static struct lnet_ping_info back;
    uint64_t seed = 6;
    unsigned i;

    for (i = 0; i < 500; i++) {
        uint8_t *buf = wire + i % 8;
        size_t len;

        fill_random(&seed);
        len = lnet_ping_encode(&info, buf, sizeof(wire) - 8);
        assert_int_not_equal(len, 0);
        assert_int_equal(lnet_ping_decode(buf, len, &back), LNET_DROP_NONE);
        assert_false(back.truncated);
        assert_int_equal(back.full_size, len);
        assert_int_equal(back.pid, info.pid);
        assert_int_equal(back.seqno, info.seqno);
        assert_int_equal(back.count, info.count);
        assert_memory_equal(back.ni, info.ni, info.count * sizeof(info.ni[0]));
        assert_int_equal(lnet_ping_encode(&back, out, sizeof(out)), len);
        assert_memory_equal(out, buf, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_own_order),
        cmocka_unit_test(test_other_byte_order),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_unknown_features),
        cmocka_unit_test(test_third_word),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_entries_passed_over),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_no_primary),
        cmocka_unit_test(test_encode_limits),
        cmocka_unit_test(test_round_trip_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
