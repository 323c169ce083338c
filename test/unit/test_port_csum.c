/* SPDX-License-Identifier: BSD-3-Clause */
/* Checksums in software against the sum by the definition, in each variant that this CPU runs. */
#include "port_test.h"

#include <arpa/inet.h>

#include "lib/lnd_eth/port/port_internal.h"

#define ROOM 70000

static uint8_t bytes[ROOM + 64];

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)test_random(&seed);
}

static uint16_t folded(uint64_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* All lengths up to a few of the widest steps, at all places within a cache line, then long ones.
 */
static void check_variant(const struct csum_variant *v)
{
    static const size_t longer[] = {1448, 1449, 4096, 8948, 65483, 65535, ROOM};

    for (size_t align = 0; align < 64; align++) {
        for (size_t len = 0; len <= 600; len++)
            assert_int_equal(ntohs(folded(v->sum(bytes + align, len))),
                             naive_sum(bytes + align, len, 0));
        for (size_t i = 0; i < RTE_DIM(longer); i++)
            assert_int_equal(ntohs(folded(v->sum(bytes + align, longer[i]))),
                             naive_sum(bytes + align, longer[i], 0));
    }
}

static void test_variants(void **state)
{
    const struct csum_variant *v;
    unsigned n = 0;

    fill(99);
    for (; (v = csum_variant_at(n)); n++) {
        print_message("%s\n", v->name);
        check_variant(v);
    }
    assert_true(n >= 1);
    assert_string_equal(csum_variant(), csum_variant_at(0)->name);
}

/* Where carries are many, and where there is nothing. */
static void test_extremes(void **state)
{
    memset(bytes, 0xff, sizeof(bytes));
    for (unsigned n = 0; csum_variant_at(n); n++)
        check_variant(csum_variant_at(n));
    for (size_t len = 2; len < ROOM; len = len * 3 / 2 + 1)
        assert_int_equal(csum_partial(bytes, len, 0xffffffff),
                         ntohs(naive_sum(bytes, len, 0xffff)));
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(csum_partial(bytes, ROOM, 0), 0);
    assert_int_equal(csum_partial(bytes, 0, 0), 0);
    assert_int_equal(csum_partial(bytes, 1000, 0x12345), 0x2346);
}

/* RFC 1071 §3: the example's bytes and their sum. */
static void test_rfc1071(void **state)
{
    static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};

    assert_int_equal(ntohs(csum_partial(example, sizeof(example), 0)), 0xddf2);
    assert_int_equal(ntohs(csum_partial(example, 4, csum_partial(example + 4, 4, 0))), 0xddf2);
}

/* Chains of segments of any length, odd and empty ones too, from any offset on. */
static void test_chain(void **state)
{
    static struct rte_mbuf m[12];
    uint64_t seed = 5;

    fill(3);
    for (unsigned round = 0; round < 20000; round++) {
        unsigned segs = 1 + test_random(&seed) % RTE_DIM(m);
        uint8_t flat[12 * 300];
        size_t all = 0, off, len;

        for (unsigned i = 0; i < segs; i++) {
            m[i].buf_addr = bytes + test_random(&seed) % 60000;
            m[i].data_off = (uint16_t)(test_random(&seed) % 64);
            m[i].data_len = (uint16_t)(test_random(&seed) % 300);
            m[i].next = i + 1 < segs ? &m[i + 1] : NULL;
            memcpy(flat + all, rte_pktmbuf_mtod(&m[i], void *), m[i].data_len);
            all += m[i].data_len;
        }
        off = test_random(&seed) % (all + 1);
        len = test_random(&seed) % (all - off + 1);
        assert_int_equal(ntohs(csum_chain(m, (uint32_t)off, (uint32_t)len, 0)),
                         naive_sum(flat + off, len, 0));
        assert_int_equal(ntohs(csum_chain(m, (uint32_t)off, (uint32_t)len, ntohs(0xabcd))),
                         naive_sum(flat + off, len, 0xabcd));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_rfc1071),
        cmocka_unit_test(test_chain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
