/* SPDX-License-Identifier: BSD-3-Clause */
/* NIDs: docs/protocol/lnet-core.md §1 and §5.2. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>

#include "lib/lnet/wire/nid.h"
#include "test/unit/wire_bytes.h"

#include <setjmp.h>
#include <cmocka.h>

#define ROWS(t) (sizeof(t) / sizeof((t)[0]))

/* ---- syntax ---- */

static const struct {
    const char *in;
    const char *wire; /* NULL: must be refused */
    const char *out;  /* as printed; NULL: as given */
} nid_rows[] = {
    {"10.0.0.1@tcp", "00 02 0000 0a000001 00000000 00000000 00000000", NULL},
    {"10.0.0.1@tcp0", "00 02 0000 0a000001 00000000 00000000 00000000", "10.0.0.1@tcp"},
    {"10.0.0.1", "00 02 0000 0a000001 00000000 00000000 00000000", "10.0.0.1@tcp"},
    {"192.168.20.3@tcp1", "00 02 0001 c0a81403 00000000 00000000 00000000", NULL},
    {"255.255.255.255@tcp65535", "00 02 ffff ffffffff 00000000 00000000 00000000", NULL},
    {"10.0.0.1@tcp007", "00 02 0007 0a000001 00000000 00000000 00000000", "10.0.0.1@tcp7"},
    {"0.0.0.0@tcp", "00 02 0000 00000000 00000000 00000000 00000000", NULL},
    /* not singled out, as in the kernel's parser */
    {"127.0.0.1@tcp", "00 02 0000 7f000001 00000000 00000000 00000000", NULL},
    {"::1@tcp", "0c 02 0000 00000000 00000000 00000000 00000001", NULL},
    {"fe80::1@tcp", "0c 02 0000 fe800000 00000000 00000000 00000001", NULL},
    {"fd00::1@tcp", "0c 02 0000 fd000000 00000000 00000000 00000001", NULL},
    {"fd00:10::5", "0c 02 0000 fd000010 00000000 00000000 00000005", "fd00:10::5@tcp"},
    {"FD00:0010:0:0:0:0:0:5@tcp3", "0c 02 0003 fd000010 00000000 00000000 00000005",
     "fd00:10::5@tcp3"},
    {"::@tcp", "0c 02 0000 00000000 00000000 00000000 00000000", NULL},
    {"::ffff:10.0.0.1@tcp", "0c 02 0000 00000000 00000000 0000ffff 0a000001", NULL},
    {"10.0.0.1@o2ib", "00 05 0000 0a000001 00000000 00000000 00000000", NULL},
    {"10.0.0.1@o2ib3", "00 05 0003 0a000001 00000000 00000000 00000000", NULL},
    {"fd00::2@o2ib1", "0c 05 0001 fd000000 00000000 00000000 00000002", NULL},
    {"fd00::2@efa", "0c 12 0000 fd000000 00000000 00000000 00000002", NULL},
    {"10.1.2.3@efa9", "00 12 0009 0a010203 00000000 00000000 00000000", NULL},
    {"10.1.2.3@gip", "00 0e 0000 0a010203 00000000 00000000 00000000", NULL},
    {"12@kfi", "00 10 0000 0000000c 00000000 00000000 00000000", NULL},
    {"0x1f@gni", "00 0d 0000 0000001f 00000000 00000000 00000000", "31@gni"},
    {"0XfFfFfFfF@gni4", "00 0d 0004 ffffffff 00000000 00000000 00000000", "4294967295@gni4"},
    {"4294967295@ptlf", "00 0f 0000 ffffffff 00000000 00000000 00000000", NULL},
    {"7@bxi3f2", "00 13 0002 00000007 00000000 00000000 00000000", NULL},
    {"007@bxi3f", "00 13 0000 00000007 00000000 00000000 00000000", "7@bxi3f"},
    {"0@kfi", "00 10 0000 00000000 00000000 00000000 00000000", NULL},
    {"0@lo", "00 09 0000 00000000 00000000 00000000 00000000", NULL},
    {"anything@lo", "00 09 0000 00000000 00000000 00000000 00000000", "0@lo"},
    /* types without a name, §1.3 */
    {"a000001@<17:0>", "00 11 0000 0a000001 00000000 00000000 00000000", NULL},
    {"0@<200:65535>", "00 c8 ffff 00000000 00000000 00000000 00000000", NULL},
    {"fd000010:0:0:5@<17:3>", "0c 11 0003 fd000010 00000000 00000000 00000005", NULL},
    {"FFFFFFFF:1@<3:1>", "04 03 0001 ffffffff 00000001 00000000 00000000", "ffffffff:1@<3:1>"},
    /* refused */
    {"", NULL, NULL},
    {"@", NULL, NULL},
    {"@tcp", NULL, NULL},
    {"10.0.0.1@", NULL, NULL},
    {"*", NULL, NULL},
    {"*@tcp", NULL, NULL},
    {"<?>", NULL, NULL},
    {"10.0.0@tcp", NULL, NULL},
    {"10.0.0.1.2@tcp", NULL, NULL},
    {"10.0.0.256@tcp", NULL, NULL},
    {"10.0.0.1 @tcp", NULL, NULL},
    {" 10.0.0.1@tcp", NULL, NULL},
    {"10.0.0.1@tcp ", NULL, NULL},
    {"10.0.0.1@tcp-1", NULL, NULL},
    {"10.0.0.1@tcp+1", NULL, NULL},
    {"10.0.0.1@tcp0x1", NULL, NULL},
    {"10.0.0.1@tcp65536", NULL, NULL},
    {"10.0.0.1@tcp4294967296", NULL, NULL},
    {"10.0.0.1@tcp99999999999999999999", NULL, NULL},
    {"10.0.0.1@tcpx", NULL, NULL},
    {"10.0.0.1@TCP", NULL, NULL},
    {"10.0.0.1@udp", NULL, NULL},
    {"10.0.0.1@tcp@tcp", NULL, NULL},
    {"localhost@tcp", NULL, NULL},
    {"fd00::1::2@tcp", NULL, NULL},
    {"fe80::1%eth0@tcp", NULL, NULL},
    {"[fd00::1]@tcp", NULL, NULL},
    {"10.0.0.1/24@tcp", NULL, NULL},
    {"fd00::1@gip", NULL, NULL},
    {"fd00::1@kfi", NULL, NULL},
    {"10.0.0.1@kfi", NULL, NULL},
    {"1f@gni", NULL, NULL},
    {"0x@gni", NULL, NULL},
    {"-1@kfi", NULL, NULL},
    {"+1@kfi", NULL, NULL},
    {" 1@kfi", NULL, NULL},
    {"4294967296@kfi", NULL, NULL},
    {"0x100000000@kfi", NULL, NULL},
    {"0@lo1", NULL, NULL},
    {"@lo", NULL, NULL},
    {"1@<255:0>", NULL, NULL},
    {"1@<256:0>", NULL, NULL},
    {"1@<17:65536>", NULL, NULL},
    {"1@<17>", NULL, NULL},
    {"1@<17:>", NULL, NULL},
    {"1@<:0>", NULL, NULL},
    {"1@<17:0", NULL, NULL},
    {"1@<17:0>x", NULL, NULL},
    {"1:2:3:4:5@<17:0>", NULL, NULL},
    {"1::4@<17:0>", NULL, NULL},
    {"100000000@<17:0>", NULL, NULL},
    {"@<17:0>", NULL, NULL},
    {"0000000000000000000000000000000000000000000000000000000000000000000000001@kfi", NULL, NULL},
};

static void test_syntax(void **state)
{
    char buf[LNET_NIDSTR_SIZE];

    for (size_t i = 0; i < ROWS(nid_rows); i++) {
        const struct lnet_nid before = {.size = 3, .type = 77, .num_be = 5, .addr_be = {9}};
        struct lnet_nid nid = before;
        uint8_t wire[20];
        int rc = nid_parse(nid_rows[i].in, &nid);

        if (!nid_rows[i].wire) {
            if (rc != -EINVAL)
                fail_msg("\"%s\" was taken (%d)", nid_rows[i].in, rc);
            assert_memory_equal(&nid, &before, sizeof(nid));
            continue;
        }
        if (rc != 0)
            fail_msg("\"%s\" was refused (%d)", nid_rows[i].in, rc);
        assert_int_equal(unhex(nid_rows[i].wire, wire, sizeof(wire)), 20);
        assert_memory_equal(&nid, wire, sizeof(wire));
        assert_true(nid_wire_valid(&nid));
        assert_string_equal(nid_format(&nid, buf),
                            nid_rows[i].out ? nid_rows[i].out : nid_rows[i].in);
    }
}

static const struct {
    const char *in;
    bool ok;
    lnet_net_t net;
    const char *out;
} net_rows[] = {
    {"tcp", true, 0x20000, "tcp"},
    {"tcp0", true, 0x20000, "tcp"},
    {"tcp1", true, 0x20001, "tcp1"},
    {"tcp65535", true, 0x2ffff, "tcp65535"},
    {"o2ib", true, 0x50000, "o2ib"},
    {"o2ib12", true, 0x5000c, "o2ib12"},
    {"lo", true, 0x90000, "lo"},
    {"gni", true, 0xd0000, "gni"},
    {"gip2", true, 0xe0002, "gip2"},
    {"ptlf", true, 0xf0000, "ptlf"},
    {"kfi3", true, 0x100003, "kfi3"},
    {"efa", true, 0x120000, "efa"},
    {"bxi3f", true, 0x130000, "bxi3f"},
    {"bxi3f3", true, 0x130003, "bxi3f3"},
    {"<17:5>", true, 0x110005, "<17:5>"},
    {"<0:0>", true, 0, "<0:0>"},
    {"<2:1>", true, 0x20001, "tcp1"},
    {"", false, 0, NULL},
    {"t", false, 0, NULL},
    {"tc", false, 0, NULL},
    {"tcp65536", false, 0, NULL},
    {"tcp1x", false, 0, NULL},
    {"tcp 1", false, 0, NULL},
    {"tcp-1", false, 0, NULL},
    {"tcp[1-3]", false, 0, NULL},
    {"tcp*", false, 0, NULL},
    {"lo0", false, 0, NULL},
    {"lo1", false, 0, NULL},
    {"ib", false, 0, NULL},
    {"kfi18446744073709551617", false, 0, NULL},
    {"<255:1>", false, 0, NULL},
    {"<", false, 0, NULL},
    {"<17", false, 0, NULL},
};

static void test_net_syntax(void **state)
{
    char buf[LNET_NETSTR_SIZE];

    for (size_t i = 0; i < ROWS(net_rows); i++) {
        lnet_net_t net = 0x12345678;
        int rc = net_parse(net_rows[i].in, &net);

        if (rc != (net_rows[i].ok ? 0 : -EINVAL))
            fail_msg("\"%s\" gave %d", net_rows[i].in, rc);
        assert_int_equal(net, net_rows[i].ok ? net_rows[i].net : 0x12345678);
        if (net_rows[i].ok)
            assert_string_equal(net_format(net, buf), net_rows[i].out);
    }
    assert_string_equal(net_format(LNET_NET_ANY, buf), "<255:65535>");
    assert_string_equal(net_format(LNET_NET(9, 1), buf), "<9:1>");
}

static void test_format_oddities(void **state)
{
    char buf[LNET_NIDSTR_SIZE];
    struct lnet_nid nid = nid_from_u64(0x0009000100000005ull);

    assert_string_equal(nid_format(&LNET_NID_ANY, buf), "<?>");
    assert_string_equal(nid_format(&LNET_NID_LO, buf), "0@lo");
    assert_string_equal(nid_format(&nid, buf), "5@<9:1>");
    nid = nid_make(LNET_NET(LNET_LND_KFI, 0), "\1\2\3\4\5\6\7\10\11\12\13\14\15\16\17\20", 16);
    assert_string_equal(nid_format(&nid, buf), "1020304:5060708:90a0b0c:d0e0f10@<16:0>");
    memset(&nid, 0xff, sizeof(nid)); /* a size beyond all: still no overrun */
    nid.type = LNET_LND_SOCK;
    assert_string_equal(nid_format(&nid, buf), "ffffffff:ffffffff:ffffffff:ffffffff@<2:65535>");
}

static void test_type_names(void **state)
{
    assert_string_equal(lnd_type_name(2), "tcp");
    assert_string_equal(lnd_type_name(5), "o2ib");
    assert_string_equal(lnd_type_name(9), "lo");
    assert_string_equal(lnd_type_name(19), "bxi3f");
    assert_string_equal(lnd_type_name(17), "?17?");
    assert_string_equal(lnd_type_name(0), "?0?");
    assert_string_equal(lnd_type_name(100), "?100?");
    assert_string_equal(lnd_type_name(209), "?209?");
    assert_string_equal(lnd_type_name(255), "?255?");
    assert_true(lnd_type_has_ip(2) && lnd_type_has_ip(5) && lnd_type_has_ip(14) &&
                lnd_type_has_ip(18));
    assert_false(lnd_type_has_ip(9) || lnd_type_has_ip(13) || lnd_type_has_ip(16) ||
                 lnd_type_has_ip(17) || lnd_type_has_ip(255));
}

static void test_all_type_names(void **state)
{
    char want[16];

    for (unsigned i = 0; i < 256; i++) {
        const char *name = lnd_type_name((uint8_t)i);

        snprintf(want, sizeof(want), "?%u?", i);
        if (name[0] == '?')
            assert_string_equal(name, want);
    }
}

/* ---- the two forms ---- */

static void test_forms(void **state)
{
    struct lnet_nid nid = nid_from_u64(0x000200000a000001ull);
    uint8_t wire[20];

    unhex("00 02 0000 0a000001 00000000 00000000 00000000", wire, sizeof(wire));
    assert_memory_equal(&nid, wire, sizeof(wire)); /* spec socklnd §0 */
    assert_int_equal(nid_to_u64(&nid), 0x000200000a000001ull);
    assert_int_equal(nid_net(&nid), LNET_NET(2, 0));
    assert_true(nid_is_nid4(&nid));
    assert_false(nid_is_any(&nid) || nid_is_lo(&nid));

    nid = nid_from_u64(LNET_NID4_ANY);
    assert_true(nid_same(&nid, &LNET_NID_ANY));
    assert_int_equal(nid_to_u64(&nid), LNET_NID4_ANY);
    assert_int_equal(nid_net(&nid), LNET_NET_ANY);
    memset(wire, 0xff, sizeof(wire));
    assert_memory_equal(&nid, wire, sizeof(wire));

    nid = nid_from_u64(LNET_NID4_LO);
    assert_true(nid_same(&nid, &LNET_NID_LO) && nid_is_lo(&nid));
    assert_int_equal(nid_to_u64(&LNET_NID_LO), LNET_NID4_LO);
}

static void test_forms_random(void **state)
{
    uint64_t seed = 1;

    for (unsigned i = 0; i < 100000; i++) {
        uint64_t nid4 = rnd64(&seed) >> 8;
        struct lnet_nid nid;

        if (nid4 >> 48 == 0xff)
            continue;
        assert_true(nid4_wire_valid(nid4));
        nid = nid_from_u64(nid4);
        assert_true(nid_wire_valid(&nid));
        assert_int_equal(nid_to_u64(&nid), nid4);
        assert_false(nid4_wire_valid(nid4 | 1ull << (56 + i % 8)));
        assert_false(nid4_wire_valid(nid4 | 0xffull << 48));
    }
}

/* parse(format(nid)) is the NID again, for every type and both lengths. */
static void test_print_parse_random(void **state)
{
    uint64_t seed = 2;

    for (unsigned i = 0; i < 50000; i++) {
        struct lnet_nid nid, back;
        char buf[LNET_NIDSTR_SIZE];
        uint8_t addr[16];
        lnet_net_t net = LNET_NET(rnd64(&seed) % 255, i % 3 ? rnd64(&seed) & 0xffff : 0);

        rnd_fill(&seed, addr, sizeof(addr));
        if (i % 5 == 0)
            memset(addr + rnd64(&seed) % 8, 0, 8); /* runs of zero, which IPv6 shortens */
        nid = nid_make(net, addr, i % 2 ? 4 : 16);
        nid_format(&nid, buf);
        if (nid_parse(buf, &back) != 0)
            fail_msg("%s cannot be read back", buf);
        if (!nid_same(&nid, &back))
            fail_msg("%s reads back as another NID", buf);
    }
}

static void test_net_print_parse(void **state)
{
    char buf[LNET_NETSTR_SIZE];
    lnet_net_t net, back;

    for (net = 0; net < LNET_NET(255, 0); net += 251) {
        assert_int_equal(net_parse(net_format(net, buf), &back), 0);
        assert_int_equal(back, net);
    }
}

static void test_wire_valid(void **state)
{
    struct lnet_nid nid;

    assert_int_equal(nid_parse("10.0.0.1@tcp", &nid), 0);
    for (unsigned i = 4; i < 16; i++) { /* any byte behind a 4-byte address */
        struct lnet_nid bad = nid;

        ((uint8_t *)bad.addr_be)[i] = 1;
        assert_false(nid_wire_valid(&bad));
        bad.size = (uint8_t)(i - 3); /* long enough to hold it */
        assert_true(nid_wire_valid(&bad));
        bad.size--;
        assert_false(nid_wire_valid(&bad));
    }
    nid.size = 13;
    assert_false(nid_wire_valid(&nid));
    nid.size = 255;
    assert_false(nid_wire_valid(&nid));
    assert_false(nid_wire_valid(&LNET_NID_ANY));
    assert_true(nid_wire_valid(&LNET_NID_LO));
    assert_false(nid4_wire_valid(LNET_NID4_ANY));
    assert_true(nid4_wire_valid(LNET_NID4_LO));
}

static void test_make(void **state)
{
    struct lnet_nid nid = nid_make(LNET_NET(2, 7), "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2", 16);
    char buf[LNET_NIDSTR_SIZE];

    assert_string_equal(nid_format(&nid, buf), "fd00::2@tcp7");
    nid = nid_make(LNET_NET(2, 7), "\xfd\0\0\1", 4);
    assert_string_equal(nid_format(&nid, buf), "253.0.0.1@tcp7");
    assert_true(nid_wire_valid(&nid));
}

/* ---- CPT hash, §5.2 ---- */

static unsigned byte_sum(uint64_t v)
{
    unsigned sum = 0;

    for (; v != 0; v >>= 8)
        sum += v & 0xff;
    return sum;
}

static void test_cpt_hash_nid4(void **state)
{
    struct lnet_nid nid;
    uint64_t seed = 3;
    unsigned n;

    assert_int_equal(nid_parse("10.0.0.1@tcp", &nid), 0);
    assert_int_equal(nid_cpt_hash(&nid, 1), 0);
    assert_int_equal(nid_cpt_hash(&nid, 0), 0);
    assert_int_equal(nid_cpt_hash(&nid, 2), 13 % 2); /* 2 + 10 + 1 */
    assert_int_equal(nid_cpt_hash(&nid, 8), 13 % 8);
    assert_int_equal(nid_parse("192.168.20.3@tcp1", &nid), 0);
    assert_int_equal(nid_cpt_hash(&nid, 256), (2 + 1 + 192 + 168 + 20 + 3) % 256);
    for (unsigned i = 0; i < 10000; i++) {
        uint64_t nid4 = (rnd64(&seed) & 0xffffffffffffull) | 5ull << 48;

        nid = nid_from_u64(nid4);
        n = 1 + (unsigned)(rnd64(&seed) % 256);
        assert_int_equal(nid_cpt_hash(&nid, n), byte_sum(nid4) % n);
    }
}

/* Values worked out with unbounded integers from the formulas of §5.2. */
static const struct {
    const char *nid;
    unsigned n, cpt;
} cpt_rows[] = {
    {"0@kfi1", 2, 1},
    {"0@kfi1", 8, 5},
    {"1@kfi1", 2, 0},
    {"1@kfi1", 8, 1},
    {"2@kfi1", 2, 1},
    {"2@kfi1", 8, 4},
    {"3@kfi1", 2, 1},
    {"3@kfi1", 8, 7},
    {"12@kfi1", 2, 0},
    {"12@kfi1", 8, 2},
    {"255@kfi1", 2, 0},
    {"255@kfi1", 8, 1},
    {"4096@kfi1", 2, 0},
    {"4096@kfi1", 8, 2},
    {"4294967295@kfi1", 2, 1},
    {"4294967295@kfi1", 8, 6},
    {"4294967295@kfi1", 256, 222},
    {"0@kfi1", 2, 1},
    {"0@kfi1", 8, 5},
    {"0@kfi1", 256, 191},
    {"1@kfi1", 2, 0},
    {"1@kfi1", 8, 1},
    {"1@kfi1", 256, 33},
    {"2@kfi1", 2, 1},
    {"2@kfi1", 8, 4},
    {"2@kfi1", 256, 130},
    {"3@kfi1", 2, 1},
    {"3@kfi1", 8, 7},
    {"3@kfi1", 256, 228},
    {"12@kfi1", 2, 0},
    {"12@kfi1", 8, 2},
    {"12@kfi1", 256, 84},
    {"255@kfi1", 2, 0},
    {"255@kfi1", 8, 1},
    {"255@kfi1", 256, 38},
    {"4096@kfi1", 2, 0},
    {"4096@kfi1", 8, 2},
    {"4096@kfi1", 256, 71},
    {"4294967295@kfi1", 2, 1},
    {"4294967295@kfi1", 8, 6},
    {"4294967295@kfi1", 256, 222},
};

static void test_cpt_hash_golden(void **state)
{
    struct lnet_nid nid;

    for (size_t i = 0; i < ROWS(cpt_rows); i++) {
        assert_int_equal(nid_parse(cpt_rows[i].nid, &nid), 0);
        if (nid_cpt_hash(&nid, cpt_rows[i].n) != cpt_rows[i].cpt)
            fail_msg("%s among %u: %u, not %u", cpt_rows[i].nid, cpt_rows[i].n,
                     nid_cpt_hash(&nid, cpt_rows[i].n), cpt_rows[i].cpt);
    }
}

static void test_cpt_hash_range(void **state)
{
    uint64_t seed = 4;
    unsigned n;

    for (unsigned i = 0; i < 20000; i++) {
        struct lnet_nid nid;
        uint8_t addr[16];

        rnd_fill(&seed, addr, sizeof(addr));
        nid = nid_make(LNET_NET(i % 2 ? LNET_LND_KFI : LNET_LND_SOCK, 0), addr, i % 2 ? 4 : 16);
        n = 1 + (unsigned)(rnd64(&seed) % 256);
        assert_true(nid_cpt_hash(&nid, n) < n);
    }
}

/* The most that one of n CPTs has of 64 NIDs, over what each should have. */
static double worst_of(uint64_t first, bool large, unsigned n)
{
    unsigned count[16] = {0}, most = 0;

    for (unsigned i = 0; i < 64; i++) {
        struct lnet_nid nid = nid_from_u64(first + i);
        uint8_t addr[16] = {0xfd};

        memcpy(addr + 12, &(uint32_t){htonl((uint32_t)first + i)}, 4);
        if (large)
            nid = nid_make(LNET_NET(LNET_LND_SOCK, 4), addr, 16);
        count[nid_cpt_hash(&nid, n)]++;
    }
    for (unsigned i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    return most * n / 64.0;
}

/* 64 NIDs in a row: of TCP, of kfi, of TCP over IPv6. */
static void test_cpt_spread(void **state)
{
    static const lnet_net_t nets[] = {LNET_NET(LNET_LND_SOCK, 0), LNET_NET(LNET_LND_KFI, 0)};

    for (unsigned n = 2; n <= 12; n++) {
        double worst[3] = {0};

        for (uint32_t first = 1; first < 200 * 331; first += 331)
            for (unsigned kind = 0; kind < 3; kind++) {
                uint64_t nid = (uint64_t)nets[kind % 2] << 32 | ((kind ? 0 : 0x0a000000) + first);
                double w = worst_of(nid, kind == 2, n);

                worst[kind] = w > worst[kind] ? w : worst[kind];
            }
        print_message(
            "%u reactors: one has at most %.2f (tcp), %.2f (kfi), %.2f (IPv6) of its share\n", n,
            worst[0], worst[1], worst[2]);
        for (unsigned kind = 0; kind < 3; kind++)
            assert_true(worst[kind] <= (n <= 10 ? 1.3 : 1.4));
    }
}

static void test_table_hash(void **state)
{
    unsigned buckets[64] = {0};

    for (unsigned i = 0; i < 64 * 256; i++) { /* neighbouring addresses must spread */
        struct lnet_nid nid = nid_from_u64(0x000200000a000000ull + i);

        buckets[nid_hash(&nid) % 64]++;
    }
    for (unsigned i = 0; i < 64; i++)
        assert_in_range(buckets[i], 128, 512);
}

static void test_prefix(void **state)
{
    static const struct {
        const char *nid;
        unsigned bits;
        const char *prefix;
    } rows[] = {
        {"10.1.2.3@tcp", 32, "10.1.2.3@tcp"},
        {"10.1.2.3@tcp", 24, "10.1.2.0@tcp"},
        {"10.1.255.3@tcp", 17, "10.1.128.0@tcp"},
        {"10.1.2.3@o2ib4", 8, "10.0.0.0@o2ib4"},
        {"fd00:1:2:3:4::5@tcp", 64, "fd00:1:2:3::@tcp"},
        {"fd00:1:2:3:4::5@tcp", 128, "fd00:1:2:3:4::5@tcp"},
        {"fd00:1:2:3:4::5@tcp", 40, "fd00:1::@tcp"},
        {"fd00:1:2:3:4::5@tcp", 16, "fd00::@tcp"},
    };
    struct lnet_nid nid, want, got;

    for (unsigned i = 0; i < ROWS(rows); i++) {
        assert_int_equal(nid_parse(rows[i].nid, &nid), 0);
        assert_int_equal(nid_parse(rows[i].prefix, &want), 0);
        got = nid_prefix(&nid, rows[i].bits);
        assert_true(nid_same(&got, &want));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_syntax),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_net_syntax),
        cmocka_unit_test(test_format_oddities),
        cmocka_unit_test(test_type_names),
        cmocka_unit_test(test_all_type_names),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_forms_random),
        cmocka_unit_test(test_print_parse_random),
        cmocka_unit_test(test_net_print_parse),
        cmocka_unit_test(test_wire_valid),
        cmocka_unit_test(test_make),
        cmocka_unit_test(test_cpt_hash_nid4),
        cmocka_unit_test(test_cpt_hash_golden),
        cmocka_unit_test(test_cpt_hash_range),
        cmocka_unit_test(test_cpt_spread),
        cmocka_unit_test(test_table_hash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
