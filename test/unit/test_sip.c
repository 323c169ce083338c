/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/base/sip.h: the published values, and that tables of NIDs cannot be foreseen. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/lnet/wire/nid.h"

/* Of the paper's appendix A, and of its authors' list of values for this key: 0, 1, … of so many
 * bytes. */
static void test_values(void **state)
{
    struct sip_key key;
    uint8_t in[15];

    for (unsigned i = 0; i < sizeof(key); i++)
        ((uint8_t *)&key)[i] = (uint8_t)i;
    for (unsigned i = 0; i < sizeof(in); i++)
        in[i] = (uint8_t)i;
    assert_int_equal(sip_hash(&key, in, 15), UINT64_C(0xa129ca6149be45e5));
    assert_int_equal(sip_hash(&key, in, 0), UINT64_C(0x726fdb47dd0e0e31));
    assert_int_equal(sip_hash(&key, in, 8), UINT64_C(0x93f5f5799a932462));
}

static void test_keys_differ(void **state)
{
    struct sip_key a, b;

    sip_key_make(&a);
    sip_key_make(&b);
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_true(sip_table_key.k[0] != 0 || sip_table_key.k[1] != 0);
}

#define BUCKETS 1024u
#define NIDS    200u

/* NIDs that one key puts in one bucket lie in many with another: who knows the program, and not the
 * key of this process, cannot fill a bucket. */
static void test_nids(void **state)
{
    struct lnet_nid nid[NIDS], n;
    unsigned found = 0, used = 0, most = 0, in[BUCKETS] = {0};

    assert_int_equal(nid_parse("10.0.0.0@tcp", &n), 0);
    for (uint32_t i = 0; found < NIDS; i++) {
        uint32_t addr = htonl(0x0a000000u + i);

        memcpy(n.addr_be, &addr, sizeof(addr));
        if (nid_hash(&n) % BUCKETS == 0)
            nid[found++] = n;
    }
    sip_key_make(&sip_table_key);
    for (unsigned i = 0; i < NIDS; i++) {
        unsigned *bucket = &in[nid_hash(&nid[i]) % BUCKETS];

        used += (*bucket)++ == 0;
        most = *bucket > most ? *bucket : most;
    }
    assert_true(used > 140); /* about 182 are to be expected */
    assert_true(most < 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_keys_differ),
        cmocka_unit_test(test_nids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
