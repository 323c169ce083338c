/* SPDX-License-Identifier: BSD-3-Clause */
/* How many router buffers there are: docs/protocol/lnet-core.md §4.9. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

#define MIB ((size_t)1 << 20)

static struct err err;

/* ---- the plan ---- */

static size_t bytes_of(const unsigned n[LNET_POOLS])
{
    return n[LNET_POOL_SMALL] * (size_t)4096 + n[LNET_POOL_LARGE] * MIB;
}

static int plan(const struct lnet_node_opts *o, unsigned reactors, struct lnet_memory *m)
{
    int rc;

    memset(err.message, 0, sizeof(err.message));
    memset(m, 0xee, sizeof(*m));
    rc = lnet_memory_plan(o, reactors, m, &err);
    assert_true(rc == 0 || rc == -ENOMEM);
    assert_true((rc == 0) == (err.message[0] == 0)); /* every error has its sentence */
    return rc;
}

/* What holds for every plan. */
static void check_plan(const struct lnet_node_opts *o, unsigned reactors,
                       const struct lnet_memory *m)
{
    size_t taken;

    for (unsigned i = 0; i < LNET_POOLS; i++) {
        assert_int_equal(m->buffers[i] % reactors, 0);
        assert_int_equal(m->most[i] % reactors, 0);
        assert_true(m->buffers[i] >= 2 * reactors);
        assert_true(m->most[i] >= m->buffers[i]);
    }
    taken = m->most[LNET_POOL_LARGE] * MIB + m->most[LNET_POOL_SMALL] * (size_t)4096;
    assert_int_equal(m->landing, taken);
    if (o->memory)
        assert_true(taken <= o->memory);
    assert_true(m->tables > 0);
}

static void test_plan_defaults(void **state)
{
    struct lnet_node_opts o = {0};
    struct lnet_memory m;

    for (unsigned r = 1; r <= 64; r++) {
        assert_int_equal(plan(&o, r, &m), 0);
        check_plan(&o, r, &m);
        assert_int_equal(m.buffers[LNET_POOL_TINY], 2048 / r * r);
        assert_int_equal(m.buffers[LNET_POOL_SMALL], 16384 / r * r);
        assert_int_equal(m.buffers[LNET_POOL_LARGE], 1024 / r * r);
        assert_memory_equal(m.buffers, m.most, sizeof(m.most));
    }
    o.tiny = 100;
    o.small = 10;
    o.large = 7;
    assert_int_equal(plan(&o, 3, &m), 0);
    check_plan(&o, 3, &m);
    assert_int_equal(m.buffers[LNET_POOL_TINY], 99);
    assert_int_equal(m.buffers[LNET_POOL_SMALL], 9);
    assert_int_equal(m.buffers[LNET_POOL_LARGE], 6);
    /* two of each on every reactor, however few were asked for */
    o.tiny = o.small = o.large = 1;
    assert_int_equal(plan(&o, 5, &m), 0);
    check_plan(&o, 5, &m);
    assert_int_equal(m.buffers[LNET_POOL_TINY], 10);
    assert_int_equal(m.buffers[LNET_POOL_SMALL], 10);
    assert_int_equal(m.buffers[LNET_POOL_LARGE], 10);
}

/* As much as there is memory for; what is left over can become buffers later. */
static void test_plan_memory(void **state)
{
    static const size_t mib[] = {1,   2,    4,    8,    10,   33,   64,    100,
                                 500, 1000, 1087, 1088, 1089, 4000, 100000};
    struct lnet_node_opts o = {0};
    struct lnet_memory m;
    unsigned fits = 0;

    for (unsigned r = 1; r <= 16; r++)
        for (unsigned i = 0; i < sizeof(mib) / sizeof(mib[0]); i++) {
            size_t least = 2 * r * (MIB + 4096);

            o.memory = mib[i] * MIB;
            if (o.memory < least) {
                assert_int_equal(plan(&o, r, &m), -ENOMEM);
                continue;
            }
            if (plan(&o, r, &m))
                fail_msg("%u reactors, %zu MiB: %s", r, mib[i], err.message);
            fits++;
            check_plan(&o, r, &m);
            assert_int_equal(m.buffers[LNET_POOL_TINY], 2048 / r * r);
            assert_true(m.buffers[LNET_POOL_LARGE] <= 1024);
            assert_true(m.buffers[LNET_POOL_SMALL] <= 16384);
            if (mib[i] >= 1088) {
                assert_int_equal(m.buffers[LNET_POOL_SMALL], 16384 / r * r);
                assert_int_equal(m.buffers[LNET_POOL_LARGE], 1024 / r * r);
                assert_true(m.most[LNET_POOL_TINY] >= 4096 / r * r);
            }
            /* little of it is lost */
            if (mib[i] >= 64) {
                assert_true(o.memory - bytes_of(m.most) < o.memory / 16 + 2 * r * MIB);
                assert_true(m.buffers[LNET_POOL_SMALL] * (size_t)4096 <=
                            o.memory / 17 + (r + 1) * MIB);
            }
        }
    assert_int_equal(fits, 168);
}

/* The number in front of a word in err. */
static unsigned long number_before(const char *word)
{
    const char *at = strstr(err.message, word);

    if (!at)
        fail_msg("\"%s\" does not say \"%s\"", err.message, word);
    while (at > err.message && at[-1] == ' ')
        at--;
    while (at > err.message && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return strtoul(at, NULL, 10);
}

/* What is asked for does not fit: the sentence names numbers that do, of which one is the most. */
static void check_does_not_fit(struct lnet_node_opts o, unsigned reactors)
{
    bool large = strstr(err.message, "large would fit") != NULL;
    unsigned long n = number_before(large ? "large would fit" : "small would fit");
    unsigned long beside = number_before(large ? "small ones" : "large ones");
    unsigned *which = large ? &o.large : &o.small, *other = large ? &o.small : &o.large;
    struct lnet_memory m;
    char first[512];

    snprintf(first, sizeof(first), "%s", err.message);
    assert_true(n >= 2 * reactors && n < *which); /* one that was asked for */
    *which = (unsigned)n;
    if (*other)
        *other = (unsigned)beside;
    if (plan(&o, reactors, &m))
        fail_msg("\"%s\" is not true: %s", first, err.message);
    check_plan(&o, reactors, &m);
    assert_int_equal(m.buffers[large ? LNET_POOL_LARGE : LNET_POOL_SMALL], n);
    assert_true(m.buffers[large ? LNET_POOL_SMALL : LNET_POOL_LARGE] >= beside);
    *which = (unsigned)n + reactors;
    assert_int_equal(plan(&o, reactors, &m), -ENOMEM);
}

static void test_plan_too_much(void **state)
{
    static const struct {
        unsigned small, large;
        size_t memory;
    } cases[] = {
        {0, 100, 50 * MIB}, /* beside small ones that shrink */
        {0, 1024, 1000 * MIB},      {0, 2000000, 64 * MIB},
        {16384, 100, 70 * MIB},     {16384, 100, 100 * MIB},
        {16384, 1024, 1080 * MIB},  {1000000, 0, 100 * MIB}, /* beside large ones that shrink */
        {1000000, 8, 100 * MIB},    {1000000, 100, 64 * MIB},
        {1000000, 1000, 64 * MIB}, /* neither */
        {16384, 64, 64 * MIB},     /* together */
        {4000000000u, 0, 64 * MIB}, {0, 4000000000u, 64 * MIB},
    };
    struct lnet_memory m;

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (unsigned r = 1; r <= 8; r++) {
            struct lnet_node_opts o = {
                .small = cases[i].small, .large = cases[i].large, .memory = cases[i].memory};

            assert_int_equal(plan(&o, r, &m), -ENOMEM);
            check_does_not_fit(o, r);
        }
    /* not even the least */
    for (unsigned r = 1; r <= 8; r++) {
        struct lnet_node_opts o = {.memory = 2 * r * (MIB + 4096) - 1};

        assert_int_equal(plan(&o, r, &m), -ENOMEM);
        assert_int_equal(number_before("large and"), 2 * r);
        assert_int_equal(number_before("small ones"), 2 * r);
        o.memory++;
        assert_int_equal(plan(&o, r, &m), 0);
        check_plan(&o, r, &m);
    }
}

/* What fits with explicit numbers is taken as it is; the other kind shrinks for it. */
static void test_plan_explicit(void **state)
{
    struct lnet_node_opts o = {.memory = 200 * MIB};
    struct lnet_memory m;

    o.large = 190;
    assert_int_equal(plan(&o, 2, &m), 0);
    check_plan(&o, 2, &m);
    assert_int_equal(m.buffers[LNET_POOL_LARGE], 190);
    assert_int_equal(m.buffers[LNET_POOL_SMALL], 10 * 256);
    o.large = 0;
    o.small = 40000;
    assert_int_equal(plan(&o, 2, &m), 0);
    check_plan(&o, 2, &m);
    assert_int_equal(m.buffers[LNET_POOL_SMALL], 40000);
    assert_int_equal(m.buffers[LNET_POOL_LARGE], 42);
    o.small = 100;
    o.large = 10;
    o.tiny = 50000;
    assert_int_equal(plan(&o, 2, &m), 0);
    check_plan(&o, 2, &m);
    assert_int_equal(m.buffers[LNET_POOL_SMALL], 100);
    assert_int_equal(m.buffers[LNET_POOL_LARGE], 10);
    assert_int_equal(m.buffers[LNET_POOL_TINY], 50000);
    assert_true(m.most[LNET_POOL_LARGE] > 150);
    assert_true(m.most[LNET_POOL_SMALL] > 2000);
}

/* ---- what is in a buffer ---- */

/* A message of a sender whose device writes none of it, as it says; the bytes that are sent on. */
static const uint8_t *unwritten(struct lnet_nid from, uint32_t len)
{
    struct peer_msg *fx = rx_new(tcp0, from, hdr_of(LNET_MSG_PUT, from, hop(0), len), 1);

    free(fx->in.payload);
    fx->in.payload = NULL;
    rx_parse(fx);
    settle();
    assert_int_equal(loop.nheld, 1);
    return loop.held[0]->payload.seg[0].addr;
}

/* A sender that leaves out what it promised to write sends on zeros, or its own old bytes, and
 * never another's. */
static void test_left_out(void **state)
{
    static const uint8_t zeros[MIB];
    struct lnet_nid a, b;
    struct lnet_node_opts o = opts_default();
    uint8_t *kept = malloc(MIB);
    const uint8_t *sent;

    o.large = 2 * nreactors;
    o.max_peers = 1024;
    node_up(o);
    loop.hold_send = true;
    loop_tcp.remote_writes = true;
    a = sender(1);
    b = sender(2);
    for (unsigned round = 0; round < 3; round++) {
        from_to(a, hop(0), LNET_MSG_PUT, MIB);
        memcpy(kept, loop.held[0]->payload.seg[0].addr, MIB);
        assert_memory_not_equal(kept, zeros, MIB);
        end_all();
        sent = unwritten(a, 600000);
        assert_memory_equal(sent, kept, 600000);
        end_all();
        sent = unwritten(b, 600000);
        assert_memory_equal(sent, zeros, 600000);
        end_all();
        sent = unwritten(b, MIB);
        assert_memory_equal(sent, zeros, MIB);
        end_all();
        from_to(b, hop(0), LNET_MSG_PUT, 5000);
        end_all();
        sent = unwritten(b, MIB);
        assert_memory_equal(sent + 5000, zeros, MIB - 5000);
        end_all();
    }
    free(kept);
    node_down();
}

/* ---- at run time ---- */

/* 8 tiny, 8 small and 2 large on each reactor; memory for more. */
static void resize_up(void)
{
    struct lnet_node_opts o = opts_default();

    o.memory = 30 * MIB;
    o.egress_share = 100;
    o.max_peers = 1024;
    node_up(o);
    loop.hold_send = true;
}

static int resize(int tiny, int small, int large)
{
    const int totals[LNET_POOLS] = {tiny, small, large};
    int rc;

    memset(err.message, 0, sizeof(err.message));
    rc = lnet_pools_resize(node, totals, &err);
    assert_true(rc == 0 || err.message[0] != 0);
    settle();
    return rc;
}

static void check_total(enum lnet_pool pool, unsigned each)
{
    for (unsigned r = 0; r < nreactors; r++)
        assert_int_equal(pool_stats(r, pool).total, each);
}

static void check_small(unsigned total, int free_, int low, unsigned waiting)
{
    assert_int_equal(small_pool().total, total);
    assert_int_equal(small_pool().free, free_);
    assert_int_equal(small_pool().low, low);
    assert_int_equal(small_pool().waiting, waiting);
}

static void test_resize_rules(void **state)
{
    const struct lnet_memory *m;
    unsigned i, most[LNET_POOLS];
    int n = (int)nreactors;

    resize_up();
    m = &node->plan;
    for (i = 0; i < LNET_POOLS; i++)
        most[i] = m->most[i] / nreactors;
    assert_true(most[LNET_POOL_SMALL] > 8 && most[LNET_POOL_LARGE] > 2);
    check_total(LNET_POOL_TINY, 8);
    check_total(LNET_POOL_SMALL, 8);
    check_total(LNET_POOL_LARGE, 2);
    /* as it is */
    assert_int_equal(resize(-1, -1, -1), 0);
    check_total(LNET_POOL_TINY, 8);
    check_total(LNET_POOL_SMALL, 8);
    check_total(LNET_POOL_LARGE, 2);
    assert_int_equal(resize(16 * n, -1, 3 * n + n - 1), 0);
    check_total(LNET_POOL_TINY, 16);
    check_total(LNET_POOL_SMALL, 8);
    check_total(LNET_POOL_LARGE, 3); /* the same for each, rounded down */
    assert_int_equal(resize(-1, 20 * n, -1), 0);
    check_total(LNET_POOL_TINY, 16); /* as it is, not as it was at the start */
    check_total(LNET_POOL_SMALL, 20);
    check_total(LNET_POOL_LARGE, 3);
    /* never fewer than two */
    assert_int_equal(resize(1, 1, 1), 0);
    for (i = 0; i < LNET_POOLS; i++)
        check_total(i, 2);
    /* the default, or what there is memory for */
    assert_int_equal(resize(0, 0, 0), 0);
    check_total(LNET_POOL_TINY, 2048 / nreactors);
    check_total(LNET_POOL_SMALL, most[LNET_POOL_SMALL]);
    check_total(LNET_POOL_LARGE, most[LNET_POOL_LARGE]);
    node_down();
}

static void test_resize_errors(void **state)
{
    resize_up();
    assert_int_equal(resize(-2, -1, -1), -EINVAL);
    assert_int_equal(resize(16, 16, -1000), -EINVAL);
    assert_int_equal(resize(-1, INT32_MIN, -1), -EINVAL);
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        int totals[LNET_POOLS] = {16 * (int)nreactors, 16 * (int)nreactors, 3 * (int)nreactors};
        unsigned long n;

        totals[i] = INT32_MAX;
        assert_int_equal(resize(totals[0], totals[1], totals[2]), -ENOMEM);
        n = number_before("buffers, not");
        assert_int_equal(n, node->plan.most[i]);
        /* nothing has changed, not the others either */
        check_total(LNET_POOL_TINY, 8);
        check_total(LNET_POOL_SMALL, 8);
        check_total(LNET_POOL_LARGE, 2);
        totals[i] = (int)(n + nreactors);
        assert_int_equal(resize(totals[0], totals[1], totals[2]), -ENOMEM);
        totals[i] = (int)n;
        assert_int_equal(resize(totals[0], totals[1], totals[2]), 0);
        check_total(i, (unsigned)n / nreactors);
        assert_int_equal(resize(8 * (int)nreactors, 8 * (int)nreactors, 2 * (int)nreactors), 0);
    }
    node_down();
}

/* More: those that wait go on; the low-water mark begins anew. Less: what is in use stays in use,
 * nobody gets what is beyond the number. */
static void test_resize_in_use(void **state)
{
    struct peer_msg *waits[4];
    int n = (int)nreactors;

    resize_up();
    assert_int_equal(fill(100), 8);
    for (unsigned i = 0; i < 4; i++)
        waits[i] = put(hop(i), 200 + i);
    check_small(8, 0, -4, 4);
    assert_int_equal(resize(-1, 10 * n, -1), 0);
    assert_int_equal(waits[0]->recvs + waits[1]->recvs, 2);
    check_small(10, 0, -2, 2);
    assert_int_equal(pool_stats(0, LNET_POOL_TINY).low, 8); /* not its resize */
    assert_int_equal(resize(-1, 4 * n, -1), 0);
    check_small(4, -6, -8, 2);
    for (unsigned i = 0; i < 6; i++) {
        end(100);
        check_small(4, -5 + (int)i, -8, 2);
        assert_int_equal(waits[2]->recvs, 0);
    }
    end(200); /* the first that is within the number again */
    assert_int_equal(waits[2]->recvs, 1);
    assert_int_equal(waits[3]->recvs, 0);
    check_small(4, 0, -8, 1);
    /* up again over what is in use */
    assert_int_equal(resize(-1, 8 * n, -1), 0);
    assert_int_equal(waits[3]->recvs, 1);
    check_small(8, 3, 3, 0);
    put(hop(9), 300);
    check_small(8, 2, 2, 0);
    end(300);
    check_small(8, 3, 2, 0);
    /* setting the same again is no resize */
    assert_int_equal(resize(-1, 8 * n, -1), 0);
    check_small(8, 3, 2, 0);
    assert_int_equal(small_pool().waited, 5); /* with fill()'s */
    end_all();
    check_small(8, 8, 2, 0);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 13);
    node_down();
}

/* Every buffer that can be had is one of its own. */
static void test_resize_to_the_most(void **state)
{
    unsigned i, n, large;

    resize_up();
    large = node->plan.most[LNET_POOL_LARGE];
    assert_int_equal(resize(-1, -1, (int)large), 0);
    n = fill(5000);
    assert_int_equal(n, large / nreactors - (large / nreactors >= 16)); /* one for what is urgent */
    assert_int_equal(resize(-1, -1, 2), 0);
    assert_int_equal(pool_stats(0, LNET_POOL_LARGE).free, 2 - (int)n);
    assert_int_equal(loop.nheld, n);
    for (i = 0; i < n; i++) {
        struct lnet_msg *msg = loop.held[i];
        struct peer_msg *fx;

        for (fx = loop.rxs; fx && !nid_same(&fx->in.rx.hdr.dest_nid, &msg->hdr.dest_nid);
             fx = fx->next)
            ;
        assert_non_null(fx);
        assert_memory_equal(msg->payload.seg[0].addr, fx->in.payload, 5000); /* still */
    }
    assert_int_equal(resize(-1, -1, (int)large), 0);
    end_all();
    assert_int_equal(fill(5000), n);
    end_all();
    node_down();
}

/* Sizes come and go while messages do. */
static void test_resize_under_load(void **state)
{
    uint64_t rnd = 0x9e3779b97f4a7c15ull;
    unsigned n = 0;

    resize_up();
    for (unsigned i = 0; i < 3000; i++) {
        rnd ^= rnd << 13;
        rnd ^= rnd >> 7;
        rnd ^= rnd << 17;
        if (i % 50 == 0)
            assert_int_equal(
                resize((int)(rnd >> 8 & 31), 1 + (int)(rnd >> 16 & 31), (int)((rnd >> 24 & 7) % 6)),
                0);
        if ((rnd & 3) == 0 && loop.nheld > 0) {
            send_end(loop.held[(rnd >> 32) % loop.nheld], ok);
        } else {
            put(hop((rnd >> 32) % 20), (rnd >> 40) % 3 * 3000);
            n++;
        }
        assert_true(pool_stats(0, LNET_POOL_SMALL).free <= (int)pool_stats(0, 1).total);
        if (pool_stats(0, LNET_POOL_LARGE).waiting > 30) {
            send_end_all(ok);
            settle();
        }
    }
    for (unsigned i = 0; i < 10000 && stat_of(LNET_STAT_ROUTE_COUNT) < n; i++) {
        send_end_all(ok);
        settle();
    }
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), n);
    assert_int_equal(drops_sum(), 0);
    end_all();
    assert_int_equal(resize(0, 0, 0), 0);
    check_total(LNET_POOL_LARGE, node->plan.most[LNET_POOL_LARGE] / nreactors);
    node_down();
}

/* ---- the rules of admission ---- */

static void check_admission(unsigned share, unsigned wait)
{
    struct lnet_admission a;

    lnet_admission_get(node, &a);
    assert_int_equal(a.egress_share, share);
    assert_int_equal(a.buffer_wait, wait);
}

static int set(unsigned share, unsigned wait)
{
    struct lnet_admission a = {share, wait};
    int rc;

    memset(err.message, 0, sizeof(err.message));
    rc = lnet_admission_set(node, &a, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    return rc;
}

static void test_admission(void **state)
{
    struct lnet_node_opts o = opts_default();

    node_up(o);
    check_admission(50, 10);
    assert_int_equal(set(0, 0), 0);
    check_admission(50, 10);
    assert_int_equal(set(1, 0), 0);
    check_admission(1, 10);
    assert_int_equal(set(0, 12), 0);
    check_admission(1, 12);
    assert_int_equal(set(100, 1), 0);
    check_admission(100, 1);
    assert_int_equal(set(101, 5), -EINVAL);
    assert_int_equal(set(60, 13), -EINVAL);
    assert_int_equal(set(UINT32_MAX, UINT32_MAX), -EINVAL);
    check_admission(100, 1); /* nothing by halves */
    node_down();
    o.egress_share = 33;
    o.buffer_wait = 7;
    node_up(o);
    check_admission(33, 7);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_plan_defaults),      LNET_TEST(test_plan_memory),
    LNET_TEST(test_plan_too_much),      LNET_TEST(test_plan_explicit),
    LNET_TEST(test_left_out),           LNET_TEST(test_resize_rules),
    LNET_TEST(test_resize_errors),      LNET_TEST(test_resize_in_use),
    LNET_TEST(test_resize_to_the_most), LNET_TEST(test_resize_under_load),
    LNET_TEST(test_admission),
};

LNET_TESTS_MAIN("test_lnet_pool", tests)
