/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas, regions and pools, in EAL memory without hugepages. */
#include "reactor_test.h"

#include <errno.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/reactor/mem_hold.h"

#define CACHE_LINE 64u

/* In an ASan build: whether the tool would report an access to this byte. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define ASAN_EXPECT(addr, poisoned) assert_int_equal(__asan_address_is_poisoned(addr), poisoned)
#else
#define ASAN_EXPECT(addr, poisoned) ((void)(addr))
#endif

static struct err err;

static struct mem_arena *arena_make(size_t landing, size_t local)
{
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = landing, .local_bytes = local};
    struct mem_arena *arena = NULL;

    if (mem_arena_create(&opts, &arena, &err) < 0)
        fail_msg("%s", err.message);
    return arena;
}

static void test_regions(void **state)
{
    struct mem_arena *arena = arena_make(MEM_LANDING_SLOT + 1, 10000), *other;
    unsigned landings = 0, locals = 0;
    const struct mem_region *r[2];

    assert_int_equal(mem_region_count(), 2);
    for (uint16_t i = 0; i < 2; i++) {
        r[i] = mem_region_get(i);
        assert_non_null(r[i]);
        if (r[i]->part == MEM_LANDING) {
            landings++;
            assert_int_equal(r[i]->len, MEM_LANDING_SLOT + MEM_PAGE); /* rounded up */
            assert_int_equal((uintptr_t)r[i]->base % MEM_LANDING_SLOT, 0);
        } else {
            locals++;
            assert_true(r[i]->len >= 10000);
            assert_int_equal((uintptr_t)r[i]->base % 4096, 0);
        }
    }
    assert_int_equal(landings, 1);
    assert_int_equal(locals, 1);
    assert_true((uint8_t *)r[0]->base + r[0]->len <= (uint8_t *)r[1]->base ||
                (uint8_t *)r[1]->base + r[1]->len <= (uint8_t *)r[0]->base);
    assert_null(mem_region_get(2));
    assert_null(mem_region_get(MEM_REGION_MAX));
    assert_null(mem_region_get(MEM_REGION_NONE));

    /* Indexes of the living do not move, those of the dead are used again. */
    other = arena_make(0, 4096);
    assert_int_equal(mem_region_count(), 3);
    mem_arena_destroy(arena);
    assert_null(mem_region_get(0));
    assert_null(mem_region_get(1));
    assert_int_equal(mem_region_get(2)->part, MEM_LOCAL);
    arena = arena_make(MEM_LANDING_SLOT, 0);
    assert_int_equal(mem_region_get(0)->part, MEM_LANDING);
    mem_arena_destroy(other);
    mem_arena_destroy(arena);
    assert_int_equal(mem_region_count(), 0);
}

static void test_arena_too_large(void **state)
{
    struct mem_arena_opts opts = {.socket = -1, .landing_bytes = UINT64_C(1) << 40};
    struct mem_arena *arena = NULL;

    assert_true(mem_arena_create(&opts, &arena, &err) < 0);
    assert_null(arena);
    assert_non_null(
        strstr(err.message, "1073741824 KiB asked for as landing memory, but EAL has "));
    opts.landing_bytes = SIZE_MAX;
    assert_true(mem_arena_create(&opts, &arena, &err) < 0);
    /* The first part is given back when the second fails. */
    opts.landing_bytes = MEM_LANDING_SLOT;
    opts.local_bytes = UINT64_C(1) << 40;
    assert_true(mem_arena_create(&opts, &arena, &err) < 0);
    assert_int_equal(mem_region_count(), 0);
}

static void test_too_many_regions(void **state)
{
    struct mem_arena_opts opts = {.socket = -1, .local_bytes = 4096};
    struct mem_arena *arena[MEM_REGION_MAX], *more = NULL;

    for (int i = 0; i < MEM_REGION_MAX; i++)
        arena[i] = arena_make(0, 4096);
    assert_int_equal(mem_arena_create(&opts, &more, &err), -ENOSPC);
    assert_null(more);
    for (int i = 0; i < MEM_REGION_MAX; i++)
        mem_arena_destroy(arena[i]);
    assert_int_equal(mem_region_count(), 0);
}

static void *landing_base(void)
{
    for (uint16_t i = 0; i < mem_region_count(); i++)
        if (mem_region_get(i)->part == MEM_LANDING)
            return mem_region_get(i)->base;
    fail_msg("no landing memory");
    return NULL;
}

/* Memory of arenas that are gone serves those that come, whatever their sizes: EAL has 32 MiB. */
static void test_arenas_again(void **state)
{
    static const size_t slots[] = {20, 20, 26, 3, 3, 26, 1, 26};
    struct mem_arena *arena, *second;
    void *base;

    for (unsigned i = 0; i < sizeof(slots) / sizeof(slots[0]); i++)
        mem_arena_destroy(arena_make(slots[i] * MEM_LANDING_SLOT, slots[i] * 4096));
    arena = arena_make((size_t)4 * MEM_LANDING_SLOT, 0);
    base = landing_base();
    mem_arena_destroy(arena);
    arena = arena_make((size_t)4 * MEM_LANDING_SLOT, 0);
    assert_ptr_equal(landing_base(), base); /* the same, and not two of them at once */
    second = arena_make(0, 65536);
    assert_int_equal(mem_region_count(), 2);
    assert_ptr_not_equal(mem_region_get(1)->base, base);
    mem_arena_destroy(arena);
    mem_arena_destroy(second);
}

static void test_pool_exhaust(void **state)
{
    struct mem_arena *arena = arena_make(0, 65536);
    const struct mem_region *region;
    struct mem_pool pool;
    uint8_t *buf[10];

    if (mem_pool_init(&pool, arena, MEM_LOCAL, 1000, 10, "test", &err) < 0)
        fail_msg("%s", err.message);
    region = mem_region_get(pool.region);
    assert_int_equal(region->part, MEM_LOCAL);
    assert_string_equal(pool.name, "test");
    for (int i = 0; i < 10; i++) {
        buf[i] = mem_pool_get(&pool);
        assert_non_null(buf[i]);
        assert_int_equal((uintptr_t)buf[i] % CACHE_LINE, 0);
        ASAN_EXPECT(buf[i], 0);
        ASAN_EXPECT(buf[i] + 999, 0);
        ASAN_EXPECT(buf[i] + 1000, 1); /* the padding */
        assert_true(buf[i] >= (uint8_t *)region->base);
        assert_true(buf[i] + 1000 <= (uint8_t *)region->base + region->len);
        memset(buf[i], i, 1000);
    }
    assert_null(mem_pool_get(&pool));
    assert_null(mem_pool_get(&pool));
    assert_int_equal(pool.low, 0);
    /* None overlaps another. */
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 1000; k++)
            assert_int_equal(buf[i][k], i);
    }
    /* Last in, first out. */
    mem_pool_put(&pool, buf[3]);
    mem_pool_put(&pool, buf[7]);
    ASAN_EXPECT(buf[3], 1);
    ASAN_EXPECT(buf[7] + 999, 1);
    assert_int_equal(pool.nfree, 2);
    assert_ptr_equal(mem_pool_get(&pool), buf[7]);
    assert_ptr_equal(mem_pool_get(&pool), buf[3]);
    assert_null(mem_pool_get(&pool));
    mem_pool_fini(&pool);
    mem_arena_destroy(arena);
}

static void test_pool_low_water(void **state)
{
    struct mem_arena *arena = arena_make(0, 4096);
    struct mem_pool pool;
    void *a, *b;

    assert_int_equal(mem_pool_init(&pool, arena, MEM_LOCAL, 64, 8, "low", &err), 0);
    assert_int_equal(pool.low, 8);
    a = mem_pool_get(&pool);
    b = mem_pool_get(&pool);
    mem_pool_put(&pool, b);
    mem_pool_put(&pool, a);
    assert_int_equal(pool.nfree, 8);
    assert_int_equal(pool.total, 8);
    assert_int_equal(pool.low, 6);
    mem_pool_put(&pool, mem_pool_get(&pool));
    assert_int_equal(pool.low, 6);
    mem_pool_fini(&pool);
    mem_arena_destroy(arena);
}

static void test_landing_pool(void **state)
{
    struct mem_arena *arena = arena_make((size_t)3 * MEM_LANDING_SLOT, 4096);
    struct mem_pool pool;
    uint8_t *buf[3];

    assert_int_equal(mem_pool_init(&pool, arena, MEM_LANDING, MEM_LANDING_SLOT, 3, "landing", &err),
                     0);
    assert_int_equal(mem_region_get(pool.region)->part, MEM_LANDING);
    for (int i = 0; i < 3; i++) {
        buf[i] = mem_pool_get(&pool);
        assert_int_equal((uintptr_t)buf[i] % MEM_LANDING_SLOT, 0);
        buf[i][0] = buf[i][MEM_LANDING_SLOT - 1] = 1;
    }
    assert_null(mem_pool_get(&pool));
    mem_pool_fini(&pool);
    mem_arena_destroy(arena);
}

/* Large buffers at multiples of their size from the beginning on, small ones at the end: nothing is
 * lost between them, whatever comes first, and no buffer reaches into another. */
static void test_landing_layout(void **state)
{
    struct mem_arena *arena = arena_make((size_t)2 * MEM_LANDING_SLOT + 5 * MEM_PAGE, 0);
    struct mem_pool small, odd, large;
    uint8_t *base = landing_base(), *end = base + mem_region_get(0)->len;

    assert_int_equal(mem_pool_init(&small, arena, MEM_LANDING, 4096, 3, "s", &err), 0);
    assert_int_equal(mem_pool_init(&odd, arena, MEM_LANDING, 100, 2, "o", &err), 0);
    assert_int_equal(mem_pool_init(&large, arena, MEM_LANDING, MEM_LANDING_SLOT, 2, "l", &err), 0);
    assert_ptr_equal(large.base, base);
    assert_ptr_equal(small.base + (size_t)3 * MEM_PAGE, end);
    assert_ptr_equal(odd.base + (size_t)2 * MEM_PAGE, small.base);
    assert_ptr_equal(odd.base, base + (size_t)2 * MEM_LANDING_SLOT);
    mem_pool_fini(&small);
    assert_int_equal(mem_pool_init(&small, arena, MEM_LANDING, 1, 1, "s", &err), -ENOMEM);
    mem_pool_fini(&odd);
    mem_pool_fini(&large);
    mem_arena_destroy(arena);
}

static void test_holds(void **state)
{
    struct mem_arena *arena = arena_make((size_t)3 * MEM_LANDING_SLOT, 4096);
    struct rte_mbuf_ext_shared_info *info;
    struct mem_pool small, large, local;
    uint8_t *s[4], *l, *end;

    assert_int_equal(mem_pool_init(&large, arena, MEM_LANDING, MEM_LANDING_SLOT, 1, "large", &err),
                     0);
    assert_int_equal(mem_pool_init(&small, arena, MEM_LANDING, 4096, 4, "small", &err), 0);
    assert_int_equal(mem_pool_init(&local, arena, MEM_LOCAL, 64, 4, "local", &err), 0);
    l = mem_pool_get(&large);
    for (int i = 0; i < 4; i++)
        s[i] = mem_pool_get(&small); /* ascending */
    /* One for each buffer, of all its bytes and of none beside it. */
    info = mem_hold_of(large.region, l, MEM_LANDING_SLOT);
    assert_non_null(info);
    assert_ptr_equal(mem_hold_of(large.region, l + MEM_LANDING_SLOT - 1, 1), info);
    assert_null(mem_hold_of(large.region, l, MEM_LANDING_SLOT + 1));
    assert_null(mem_hold_of(large.region, l + MEM_LANDING_SLOT, 1)); /* of no pool */
    assert_null(mem_hold_of(large.region, l, 0));
    assert_null(mem_hold_of(large.region, l - 1, 1));
    assert_null(mem_hold_of(large.region, s[3], 4097)); /* beyond the region */
    assert_null(mem_hold_of(local.region, mem_pool_get(&local), 1));
    assert_null(mem_hold_of(MEM_REGION_NONE, l, 1));
    assert_ptr_not_equal(mem_hold_of(small.region, s[0], 4096),
                         mem_hold_of(small.region, s[1], 4096));
    assert_null(mem_hold_of(small.region, s[0] + 1, 4096));
    assert_int_equal(mem_hold_iova(small.region, s[1] + 5), rte_mem_virt2iova(s[1] + 5));
    /* Held: by what any of the bytes is in. */
    end = s[3] + 4096;
    assert_false(mem_held(small.region, l, (size_t)(end - l)));
    rte_mbuf_ext_refcnt_update(mem_hold_of(small.region, s[2], 1), 1);
    assert_true(mem_held(small.region, s[2], 4096));
    assert_true(mem_held(small.region, s[2] + 4095, 1));
    assert_true(mem_held(small.region, s[1] + 1, 4096));
    assert_true(mem_held(small.region, l, (size_t)(end - l))); /* over pages of no pool */
    assert_false(mem_held(small.region, s[1], 4096));
    assert_false(mem_held(small.region, s[3], 4096));
    assert_false(mem_held(small.region, l, MEM_LANDING_SLOT));
    assert_false(mem_held(MEM_REGION_NONE, s[2], 4096));
    assert_false(mem_held(local.region, s[2], 4096));
    rte_mbuf_ext_refcnt_update(mem_hold_of(small.region, s[2], 1), -1);
    assert_false(mem_held(small.region, s[2], 4096));
    mem_pool_fini(&large);
    mem_pool_fini(&small);
    mem_pool_fini(&local);
    mem_arena_destroy(arena);
    assert_null(mem_hold_of(0, l, 1));
}

/* An arena that frames refer to stays until they are gone, though nobody uses it. */
static void test_arena_lingers(void **state)
{
    struct mem_arena *arena = arena_make(MEM_LANDING_SLOT, 0), *other;
    struct rte_mbuf_ext_shared_info *info;
    struct mem_pool pool;
    uint8_t *base = landing_base();

    assert_int_equal(mem_pool_init(&pool, arena, MEM_LANDING, MEM_LANDING_SLOT, 1, "x", &err), 0);
    info = mem_hold_of(pool.region, base, 1);
    rte_mbuf_ext_refcnt_update(info, 1);
    mem_pool_fini(&pool);
    mem_arena_destroy(arena);
    assert_int_equal(mem_region_count(), 1);
    other = arena_make(MEM_LANDING_SLOT, 0);
    assert_ptr_not_equal(mem_region_get(1)->base, base);
    mem_arena_destroy(other);
    rte_mbuf_ext_refcnt_update(info, -1);
    other = arena_make(0, 4096);
    assert_int_equal(mem_region_count(), 1);
    mem_arena_destroy(other);
    assert_int_equal(mem_region_count(), 0);
}

static void test_pool_part_used_up(void **state)
{
    struct mem_arena *arena = arena_make(0, 4096);
    struct mem_pool one, two;

    assert_int_equal(mem_pool_init(&one, arena, MEM_LOCAL, 1, 60, "one", &err), 0);
    assert_int_equal(mem_pool_init(&two, arena, MEM_LOCAL, 64, 5, "two", &err), -ENOMEM);
    assert_non_null(strstr(err.message, "pool two: 5 buffers of 64 bytes"));
    assert_int_equal(mem_pool_init(&two, arena, MEM_LOCAL, 64, 4, "two", &err), 0);
    assert_true(two.base >= one.base + (size_t)60 * CACHE_LINE);
    mem_pool_fini(&two);
    /* Sizes whose product does not fit in 32 bits, a part that is not there, nothing at all. */
    assert_int_equal(mem_pool_init(&two, arena, MEM_LOCAL, UINT32_MAX, UINT32_MAX, "big", &err),
                     -ENOMEM);
    assert_int_equal(mem_pool_init(&two, arena, MEM_LANDING, 64, 1, "none", &err), -ENOMEM);
    assert_int_equal(mem_pool_init(&two, arena, MEM_LOCAL, 0, 1, "zero", &err), -EINVAL);
    assert_int_equal(mem_pool_init(&two, arena, MEM_LOCAL, 1, 0, "zero", &err), -EINVAL);
    mem_pool_fini(&one);
    mem_arena_destroy(arena);
}

static int group_setup(void **state)
{
    test_env_make(REACTOR_IDLE_ADAPTIVE, "auto", 1);
    return 0;
}

static int group_teardown(void **state)
{
    reactor_env_destroy(env);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),          cmocka_unit_test(test_arena_too_large),
        cmocka_unit_test(test_too_many_regions), cmocka_unit_test(test_arenas_again),
        cmocka_unit_test(test_pool_exhaust),     cmocka_unit_test(test_pool_low_water),
        cmocka_unit_test(test_landing_pool),     cmocka_unit_test(test_pool_part_used_up),
        cmocka_unit_test(test_landing_layout),   cmocka_unit_test(test_holds),
        cmocka_unit_test(test_arena_lingers),
    };

    return cmocka_run_group_tests_name("mem", tests, group_setup, group_teardown);
}
