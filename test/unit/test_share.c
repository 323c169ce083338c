/* SPDX-License-Identifier: BSD-3-Clause */
/* lib/base/share.h: who gets how much of a thing that all want. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/share.h"

#define ALL 1000u

static struct share share;
static uint32_t nfree;

static const uint8_t *key(uint32_t prefix, uint32_t host)
{
    static uint8_t k[2][SHARE_KEY];
    uint8_t *out = k[host != 0];

    memset(out, 0, SHARE_KEY);
    memcpy(out, &prefix, 4);
    memcpy(out + 8, &host, 4);
    return out;
}

/* One more for a host of a prefix (0: of none); NULL: it gets none. */
static struct share_account *get(uint32_t prefix, uint32_t host)
{
    struct share_account *a = share_of(&share, key(prefix, host), prefix ? key(prefix, 0) : NULL);

    assert_non_null(a);
    if (nfree > 0 && share_may(a, nfree)) {
        share_take(a);
        nfree--;
        return a;
    }
    share_drop(&share, a);
    return NULL;
}

static unsigned get_all(uint32_t prefix, uint32_t host)
{
    unsigned n = 0;

    while (get(prefix, host))
        n++;
    return n;
}

static void begin(void)
{
    nfree = ALL;
    assert_true(share_init(&share, ALL + 1));
}

static unsigned accounts_free(void)
{
    const struct share_account *a;
    unsigned n = 0;

    LIST_FOREACH(a, &share.free, link)
        n++;
    return n;
}

/* The greedy one ends with half, two with a third each; who has nothing is always served. */
static void test_greedy(void **state)
{
    begin();
    assert_int_equal(get_all(0, 1), ALL / 2 + 1);
    assert_in_range(get_all(0, 2), ALL / 4, ALL / 4 + 1);
    for (uint32_t i = 3; i < 103; i++)
        assert_non_null(get(0, i));
    share_fini(&share);
}

/* Hosts of one prefix have no more than one host would; another prefix is not held up by them. */
static void test_prefix(void **state)
{
    unsigned n = 0;

    begin();
    for (uint32_t i = 1; i < 10000; i++)
        n += get(7, i) != NULL;
    assert_int_equal(n, ALL / 2 + 1);
    assert_int_equal(accounts_free(), 2 * (ALL + 1) - n - 1);
    assert_non_null(get(8, 1));
    share_fini(&share);
}

/* What is given back is there for others, and no account is left. */
static void test_back(void **state)
{
    struct share_account *a[ALL];
    unsigned n = 0;

    begin();
    for (uint32_t i = 1; i <= 20; i++)
        while ((a[n] = get(i % 3, i)))
            n++;
    assert_true(n > ALL * 3 / 4);
    while (n > 0) {
        share_give(&share, a[--n]);
        nfree++;
    }
    assert_int_equal(nfree, ALL);
    assert_int_equal(accounts_free(), 2 * (ALL + 1));
    assert_int_equal(get_all(0, 9), ALL / 2 + 1);
    share_fini(&share);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
