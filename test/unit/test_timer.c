/* SPDX-License-Identifier: BSD-3-Clause */
/* The timer wheel with the test's own clock. */
#include "reactor_test.h"

#include "lib/reactor/reactor_internal.h"

#define MS  UINT64_C(1000)
#define DAY (MS * 1000 * 86400)

/* A timer that notes when it fired. */
struct probe {
    struct reactor_timer timer;
    unsigned fired;
    uint64_t due_us; /* as armed */
    uint64_t at_us;  /* test's clock when it fired */
    unsigned serial; /* of the firing among all */
    struct probe *other;
    uint64_t again_us;
};

static struct timer_wheel wheel;
static uint64_t now_us;
static unsigned serial;

static void on_fire(struct reactor_timer *t)
{
    struct probe *p = (struct probe *)t;

    assert_false(reactor_timer_armed(t));
    assert_true(serial < 1000000); /* not fired again and again in one call */
    p->fired++;
    p->at_us = now_us;
    p->serial = serial++;
}

static void arm(struct probe *p, uint64_t delay_us)
{
    p->due_us = now_us + delay_us;
    wheel_arm(&wheel, &p->timer, p->due_us);
}

static void probe_init(struct probe *p)
{
    *p = (struct probe){.fired = 0};
    reactor_timer_init(&p->timer, on_fire);
}

static unsigned advance(uint64_t by_us)
{
    now_us += by_us;
    return wheel_advance(&wheel, now_us);
}

static int setup(void **state)
{
    now_us = 123456789;
    serial = 0;
    wheel_init(&wheel, now_us);
    return 0;
}

static void test_empty(void **state)
{
    assert_true(wheel_next_us(&wheel) == UINT64_MAX);
    assert_int_equal(advance(5 * DAY), 0);
    assert_true(wheel_next_us(&wheel) == UINT64_MAX);
}

static void test_never_early_and_no_tick_late(void **state)
{
    struct probe p;

    probe_init(&p);
    /* Every position within a tick, for the arming and for the delay. */
    for (uint64_t delay = 0; delay < 3 * MS; delay += 97) {
        arm(&p, delay);
        while (p.fired == 0) {
            assert_true(now_us < p.due_us + 2 * MS);
            advance(13);
        }
        assert_true(p.at_us >= p.due_us);
        assert_true(p.at_us < p.due_us + MS + 13);
        p.fired = 0;
    }
}

static void test_order(void **state)
{
    static const uint64_t delays[] = {5000, 1, 70000, 64000, 63999, 4096000, 5000, 5001, 300000000};
    struct probe p[RTE_DIM(delays)];

    for (unsigned i = 0; i < RTE_DIM(delays); i++) {
        probe_init(&p[i]);
        arm(&p[i], delays[i]);
    }
    assert_int_equal(advance(400000000), RTE_DIM(delays)); /* all in one call */
    for (unsigned i = 0; i < RTE_DIM(delays); i++) {
        for (unsigned k = 0; k < RTE_DIM(delays); k++) {
            uint64_t tick_i = (p[i].due_us + MS - 1) / MS, tick_k = (p[k].due_us + MS - 1) / MS;

            if (tick_i < tick_k || (tick_i == tick_k && i < k))
                assert_true(p[i].serial < p[k].serial);
        }
    }
}

/* Those of one tick fire in the order armed, however many cascades some of them took. */
static void test_order_within_tick(void **state)
{
    const uint64_t due = now_us + 10 * DAY;
    struct probe p[12];

    for (unsigned i = 0; i < RTE_DIM(p); i++) {
        probe_init(&p[i]);
        wheel_arm(&wheel, &p[i].timer, due);
        advance((due - now_us) * 2 / 3); /* nearer: another level */
    }
    advance(due + MS - now_us);
    for (unsigned i = 0; i < RTE_DIM(p); i++) {
        assert_int_equal(p[i].fired, 1);
        assert_int_equal(p[i].serial, i);
    }
}

static void test_cancel(void **state)
{
    struct probe a, b, c;

    probe_init(&a);
    probe_init(&b);
    probe_init(&c);
    wheel_cancel(&wheel, &a.timer); /* never armed: harmless */
    arm(&a, 5 * MS);
    arm(&b, 5 * MS);
    arm(&c, 5 * MS);
    wheel_cancel(&wheel, &b.timer);
    wheel_cancel(&wheel, &b.timer);
    assert_false(reactor_timer_armed(&b.timer));
    assert_int_equal(advance(10 * MS), 2);
    assert_int_equal(a.fired + c.fired, 2);
    assert_int_equal(b.fired, 0);
    arm(&a, DAY);
    wheel_cancel(&wheel, &a.timer);
    assert_true(wheel_next_us(&wheel) == UINT64_MAX); /* nothing to wake for */
}

static void test_rearm_moves(void **state)
{
    struct probe p;

    probe_init(&p);
    arm(&p, 5 * MS);
    arm(&p, 500 * MS);
    assert_int_equal(advance(499 * MS), 0);
    arm(&p, 20 * MS);
    assert_int_equal(advance(19 * MS), 0);
    assert_int_equal(advance(2 * MS), 1);
    assert_int_equal(p.fired, 1);
}

static void on_fire_cancel_other(struct reactor_timer *t)
{
    struct probe *p = (struct probe *)t;

    on_fire(t);
    wheel_cancel(&wheel, &p->other->timer);
}

static void test_cancel_in_callback(void **state)
{
    struct probe a, b, c;

    probe_init(&a);
    probe_init(&b);
    probe_init(&c);
    a.timer.fn = on_fire_cancel_other;
    /* Another of the same tick, which has been taken from the wheel already. */
    a.other = &b;
    arm(&a, 5 * MS);
    arm(&b, 5 * MS);
    arm(&c, 5 * MS);
    assert_int_equal(advance(7 * MS), 2);
    assert_int_equal(b.fired, 0);
    assert_int_equal(c.fired, 1);
    /* One of a later tick of the same call, and itself. */
    arm(&a, 5 * MS);
    arm(&b, 100 * MS);
    assert_int_equal(advance(200 * MS), 1);
    assert_int_equal(b.fired, 0);
    a.other = &a;
    arm(&a, 5 * MS);
    assert_int_equal(advance(7 * MS), 1);
    assert_int_equal(a.fired, 3);
}

static void on_fire_again(struct reactor_timer *t)
{
    struct probe *p = (struct probe *)t;

    on_fire(t);
    arm(p, p->again_us);
}

static void test_rearm_in_callback(void **state)
{
    struct probe p;

    probe_init(&p);
    p.timer.fn = on_fire_again;
    p.again_us = 0;
    arm(&p, 0);
    /* Far behind, and yet once per call: a timer of delay 0 must not hold the loop. */
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(advance(777 * MS), 1);
        assert_int_equal(p.fired, i);
    }
    /* Nor when "now" is the very beginning of a tick, so that it would be due at once. */
    now_us = (now_us / MS + 100) * MS;
    assert_int_equal(wheel_advance(&wheel, now_us), 1);
    assert_int_equal(advance(MS), 1);
    p.again_us = 10 * MS;
    advance(MS);
    p.fired = 0;
    for (unsigned i = 0; i < 1000; i++)
        advance(MS);
    assert_in_range(p.fired, 90, 100); /* each re-arming loses up to a tick */
}

static void on_fire_arm_other(struct reactor_timer *t)
{
    struct probe *p = (struct probe *)t;

    on_fire(t);
    arm(p->other, p->again_us);
}

/* Armed during a call that catches up over a long time: never before its time by the clock. */
static void test_arm_other_in_callback(void **state)
{
    struct probe a, b;

    for (uint64_t again = 0; again < 200 * MS; again += 7 * MS) {
        probe_init(&a);
        probe_init(&b);
        a.timer.fn = on_fire_arm_other;
        a.other = &b;
        a.again_us = again;
        arm(&a, 3 * MS);
        advance(9 * DAY);
        assert_int_equal(a.fired, 1);
        assert_int_equal(b.fired, 0);
        while (b.fired == 0) {
            assert_true(now_us <= b.due_us + 2 * MS);
            advance(MS);
        }
        assert_true(b.at_us >= b.due_us);
    }
}

static void test_long_delays(void **state)
{
    static const uint64_t delays[] = {
        64 * MS,   4096 * MS,   262144 * MS, DAY,     13 * DAY,          30 * DAY,
        366 * DAY, 36600 * DAY, DAY + 1,     DAY - 1, REACTOR_DELAY_MAX,
    };

    for (unsigned i = 0; i < RTE_DIM(delays); i++) {
        unsigned wakes = 0;
        struct probe p;

        setup(NULL);
        probe_init(&p);
        arm(&p, delays[i]);
        /* One jump to just before it: not yet. */
        now_us = p.due_us - 1;
        assert_int_equal(wheel_advance(&wheel, now_us), 0);
        advance(MS);
        assert_int_equal(p.fired, 1);
        /* As a sleeping reactor does it: from one wake-up to the next. */
        probe_init(&p);
        arm(&p, delays[i]);
        while (p.fired == 0) {
            uint64_t next = wheel_next_us(&wheel);

            assert_true(next > now_us);
            assert_true(next < p.due_us + MS);
            now_us = next;
            wheel_advance(&wheel, now_us);
            wakes++;
        }
        assert_true(p.at_us >= p.due_us);
        assert_true(wakes <= WHEEL_LEVELS);
    }
}

/* Thousands of random timers, cancels and steps, against the definition. */
static void test_random_model(void **state)
{
    enum {
        N = 2000,
        STEPS = 20000
    };
    struct probe *p = calloc(N, sizeof(*p));
    uint64_t seed = 42, firings = 0;

    assert_non_null(p);
    for (unsigned i = 0; i < N; i++)
        probe_init(&p[i]);
    for (unsigned s = 0; s < STEPS; s++) {
        struct probe *q = &p[test_random(&seed) % N];
        unsigned fired;

        if (test_random(&seed) % 4 == 0) {
            wheel_cancel(&wheel, &q->timer);
        } else {
            q->fired = 0;
            arm(q, test_random(&seed) >> (test_random(&seed) % 40 + 24));
        }
        if (test_random(&seed) % 4 != 0)
            continue;
        fired = advance(test_random(&seed) >> (test_random(&seed) % 30 + 33));
        firings += fired;
        for (unsigned i = 0; i < N; i++) {
            struct reactor_timer *t = &p[i].timer;

            if (reactor_timer_armed(t))
                assert_true((t->expires_us + MS - 1) / MS > now_us / MS);
            if (p[i].fired > 0)
                assert_true(p[i].fired == 1 && p[i].at_us >= p[i].due_us);
        }
    }
    assert_true(firings > N);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_empty, setup),
        cmocka_unit_test_setup(test_never_early_and_no_tick_late, setup),
        cmocka_unit_test_setup(test_order, setup),
        cmocka_unit_test_setup(test_order_within_tick, setup),
        cmocka_unit_test_setup(test_cancel, setup),
        cmocka_unit_test_setup(test_rearm_moves, setup),
        cmocka_unit_test_setup(test_cancel_in_callback, setup),
        cmocka_unit_test_setup(test_rearm_in_callback, setup),
        cmocka_unit_test_setup(test_arm_other_in_callback, setup),
        cmocka_unit_test_setup(test_long_delays, setup),
        cmocka_unit_test_setup(test_random_model, setup),
    };

    return cmocka_run_group_tests_name("timer", tests, NULL, NULL);
}
