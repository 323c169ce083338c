/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools of objects of an LND: lib/lnd/pool.h. */
#include "lib/lnd/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N 3

struct object {
    struct object *kept; /* the pool's link while it is free */
    uint64_t generation; /* may be read while it is free */
    char bytes[200];
};

static struct lnd_pool pool;

static int setup(void **state)
{
    (void)state;
    return lnd_pool_init(&pool, N, sizeof(struct object), offsetof(struct object, bytes)) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    lnd_pool_fini(&pool);
    return pool.free == NULL && pool.memory == NULL ? 0 : -1;
}

static void test_all_are_handed_out_once(void **state)
{
    struct object *o[N];

    (void)state;
    assert_int_equal((uintptr_t)pool.objects % LND_POOL_ALIGN, 0);
    for (unsigned i = 0; i < N; i++) {
        o[i] = lnd_pool_get_zeroed(&pool);
        assert_ptr_equal(o[i], (struct object *)pool.objects + i);
        memset(o[i], 0xff, sizeof(*o[i]));
    }
    assert_null(lnd_pool_get(&pool));
    assert_null(lnd_pool_get_zeroed(&pool));
    lnd_pool_put(&pool, o[1]);
    assert_ptr_equal(lnd_pool_get(&pool), o[1]);
    assert_null(lnd_pool_get(&pool));
}

static void test_a_free_object_keeps_its_first_bytes(void **state)
{
    struct object *o = lnd_pool_get_zeroed(&pool);

    (void)state;
    o->generation = 7;
    memset(o->bytes, 1, sizeof(o->bytes));
    lnd_pool_put(&pool, o);
    assert_int_equal(o->generation, 7);
    assert_ptr_equal(lnd_pool_get(&pool), o);
    assert_int_equal(o->generation, 7);
    lnd_pool_put(&pool, o);
    assert_ptr_equal(lnd_pool_get_zeroed(&pool), o);
    assert_int_equal(o->generation, 0);
    assert_int_equal(o->bytes[0], 0);
    assert_int_equal(o->bytes[sizeof(o->bytes) - 1], 0);
}

static void test_an_empty_pool(void **state)
{
    struct lnd_pool empty;

    (void)state;
    assert_true(lnd_pool_init(&empty, 0, sizeof(struct object), sizeof(void *)));
    assert_null(lnd_pool_get(&empty));
    assert_null(lnd_pool_get_zeroed(&empty));
    lnd_pool_fini(&empty);
    assert_true(lnd_pool_bytes(N, 100) >= N * 100);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_all_are_handed_out_once),
                                       T(test_a_free_object_keeps_its_first_bytes),
                                       T(test_an_empty_pool)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
