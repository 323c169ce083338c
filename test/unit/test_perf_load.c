/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The load on a clock of its own, with an engine that answers after a known time, stands still,
 * loses messages or has no room when it is told to: what is measured must be exactly that. The few
 * functions of a reactor that the load uses are here, too.
 */
#include "app/millrace-perf/perf.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS      1000000ull
#define S       1000000000ull
#define FOREVER UINT64_MAX
#define PENDING 8192

/* ---- clock and reactor ---- */

static uint64_t now_ns;
static struct reactor_timer *timers[8];
static struct reactor_poller *poller;
static struct reactor_task *mail;
static unsigned lines_told;
static bool ended;

uint64_t perf_now_ns(void)
{
    return now_ns;
}

void reactor_timer_init(struct reactor_timer *t, reactor_timer_fn fn)
{
    memset(t, 0, sizeof(*t));
    t->fn = fn;
}

void reactor_timer_cancel(struct reactor_timer *t)
{
    for (unsigned i = 0; i < 8; i++)
        if (timers[i] == t)
            timers[i] = NULL;
}

void reactor_timer_arm(struct reactor_timer *t, uint64_t delay_us)
{
    unsigned i = 0;

    reactor_timer_cancel(t);
    while (timers[i])
        i++;
    t->expires_us = now_ns / 1000 + delay_us;
    timers[i] = t;
}

void reactor_poller_add(struct reactor *r, struct reactor_poller *p)
{
    poller = p;
}

void reactor_poller_del(struct reactor *r, struct reactor_poller *p)
{
    poller = NULL;
}

void reactor_post(struct reactor *to, struct reactor_task *task)
{
    struct reactor_task **at = &mail;

    while (*at)
        at = &(*at)->link.stqe_next;
    task->link.stqe_next = NULL;
    *at = task;
}

struct reactor *reactor_control(struct reactor_env *env)
{
    return NULL;
}

void reactor_stats_get(const struct reactor *r, struct reactor_stats *out)
{
    *out = (struct reactor_stats){.busy_cycles = now_ns, .total_cycles = now_ns, .hz = S};
}

void perf_load_ended(struct perf *p)
{
    ended = true;
}

void report_interval(struct perf *p)
{
    struct interval iv;

    while (load_interval(p->load, &iv))
        lines_told++;
}

/* ---- the engine ---- */

struct fake {
    struct perf_engine base;
    /* behaviour */
    uint64_t delay_ns;
    uint64_t delay_more_ns;        /* for each source before it */
    uint64_t stall_from, stall_to; /* it stands still; counts from the start of the clock */
    unsigned room;                 /* messages of a source that it takes at once */
    unsigned lose_every, fail_every, refuse_every;
    /* state */
    struct {
        uint64_t at_ns, cookie;
        struct perf_msg msg;
        bool lost;
    } pending[PENDING];
    unsigned n, in_flight[16];
    bool blocked[16];
    uint64_t sent, cancelled, puts;
    uint64_t sum; /* of what was asked for, to compare two runs */
};

static struct fake *fake_of(struct perf_engine *e)
{
    return (struct fake *)(void *)e;
}

static int fake_send(struct perf_engine *e, const struct perf_msg *m)
{
    struct fake *f = fake_of(e);
    uint64_t at = now_ns;

    assert_true(m->from < e->sources && m->to < e->targets);
    if (f->in_flight[m->from] >= f->room) {
        f->blocked[m->from] = true;
        return -EAGAIN;
    }
    f->sent++;
    if (f->refuse_every != 0 && f->sent % f->refuse_every == 0)
        return -EHOSTUNREACH;
    f->puts += m->op == OP_PUT;
    f->sum = f->sum * 31 + m->length + m->offset + m->from * 7 + m->to + (unsigned)m->op;
    if (at >= f->stall_from && at < f->stall_to)
        at = f->stall_to;
    assert_true(f->n < PENDING);
    f->pending[f->n].at_ns = at + f->delay_ns + m->from * f->delay_more_ns;
    f->pending[f->n].cookie = m->cookie;
    f->pending[f->n].msg = *m;
    f->pending[f->n].lost = f->lose_every != 0 && f->sent % f->lose_every == 0;
    f->n++;
    f->in_flight[m->from]++;
    return 0;
}

static void fake_leave(struct fake *f, unsigned i)
{
    uint32_t from = f->pending[i].msg.from;

    f->pending[i] = f->pending[--f->n];
    f->in_flight[from]--;
    if (f->blocked[from]) {
        f->blocked[from] = false;
        perf_room(&f->base, from);
    }
}

static void fake_cancel(struct perf_engine *e, uint64_t cookie)
{
    struct fake *f = fake_of(e);

    for (unsigned i = 0; i < f->n; i++) {
        if (f->pending[i].cookie != cookie)
            continue;
        f->cancelled++;
        fake_leave(f, i);
        return;
    }
    fail_msg("a message that is not there was cancelled");
}

static void fake_collect(struct perf_engine *e, uint32_t run, unsigned patience_ms)
{
    struct run_report report = {.received = fake_of(e)->puts};

    assert_int_equal(fake_of(e)->n, 0); /* nothing is under way any more */
    perf_collected(e, true, &report);
}

static void fake_counters(const struct perf_engine *e, struct perf_engine_counters *out)
{
    memset(out, 0, sizeof(*out));
}

static const struct perf_engine_ops fake_ops = {
    .send = fake_send,
    .cancel = fake_cancel,
    .collect = fake_collect,
    .counters = fake_counters,
};

static uint64_t fake_next(const struct fake *f)
{
    uint64_t next = FOREVER;

    for (unsigned i = 0; i < f->n; i++)
        if (!f->pending[i].lost && f->pending[i].at_ns < next)
            next = f->pending[i].at_ns;
    return next;
}

/* All answers that are there by now, in the order of their times. */
static void fake_answer(struct fake *f)
{
    while (fake_next(f) <= now_ns) {
        uint64_t next = fake_next(f);
        unsigned i = 0;
        struct perf_end end;
        uint64_t cookie;
        while (f->pending[i].lost || f->pending[i].at_ns != next)
            i++;
        end = (struct perf_end){.length = f->pending[i].msg.length, .when_ns = now_ns};
        cookie = f->pending[i].cookie;
        if (f->fail_every != 0 && cookie % f->fail_every == 0)
            end = (struct perf_end){.status = -ECOMM, .unsent = true, .when_ns = now_ns};
        perf_done(&f->base, cookie, &end);
        fake_leave(f, i);
    }
}

/* ---- a run ---- */

struct bench {
    struct perf perf;
    struct fake fake;
    const struct load_results *results;
};

static struct bench *bench_new(double rate)
{
    struct bench *b = calloc(1, sizeof(*b));

    assert_non_null(b);
    now_ns = 1000 * S;
    memset(timers, 0, sizeof(timers));
    mail = NULL;
    poller = NULL;
    ended = false;
    lines_told = 0;
    b->fake.base =
        (struct perf_engine){.ops = &fake_ops, .perf = &b->perf, .sources = 1, .targets = 1};
    b->fake.delay_ns = MS;
    b->fake.room = 4096;
    b->perf.engine = &b->fake.base;
    b->perf.pattern = pattern_make();
    assert_non_null(b->perf.pattern);
    b->perf.opts = (struct perf_opts){
        .command = PERF_PUT,
        .inflight = rate > 0 ? 256 : 1,
        .rate = rate,
        .arrivals = ARRIVALS_FIXED,
        .queue = 100000,
        .kinds = {.weight = {1, 0}},
        .seed = 5,
        .seed_set = true,
        .timeout_ms = 1000,
        .interval_us = 1000000,
    };
    assert_int_equal(sizes_parse("100", &b->perf.opts.sizes), 0);
    return b;
}

static void bench_free(struct bench *b)
{
    load_free(b->perf.load);
    free(b->perf.pattern);
    free(b);
}

static void mails_run(void)
{
    while (mail) {
        struct reactor_task *task = mail;
        mail = task->link.stqe_next;
        task->fn(task);
    }
}

static uint64_t timers_next(void)
{
    uint64_t next = FOREVER;

    for (unsigned i = 0; i < 8; i++)
        if (timers[i] && timers[i]->expires_us * 1000 < next)
            next = timers[i]->expires_us * 1000;
    return next;
}

static void timers_run(void)
{
    for (unsigned i = 0; i < 8; i++) {
        struct reactor_timer *t = timers[i];
        if (!t || t->expires_us * 1000 > now_ns)
            continue;
        timers[i] = NULL;
        t->fn(t);
    }
}

/* As a reactor does: pollers, mail, timers; then asleep until the next of anything. */
static void step(struct bench *b)
{
    uint64_t until = FOREVER;
    int did = 0;

    fake_answer(&b->fake);
    mails_run();
    timers_run();
    if (poller)
        did = poller->fn(poller->arg);
    if (poller && (did > 0 || poller->max_sleep_us == 0))
        until = now_ns + 1000;
    else if (poller && poller->max_sleep_us < FOREVER / 1000)
        until = now_ns + poller->max_sleep_us * 1000;
    if (timers_next() < until)
        until = timers_next();
    if (fake_next(&b->fake) < until)
        until = fake_next(&b->fake);
    if (until != FOREVER && until > now_ns)
        now_ns = until;
}

static void begin(struct bench *b)
{
    assert_int_equal(load_new(&b->perf), 0);
    b->results = load_results(b->perf.load);
    load_begin(b->perf.load, 0, "", 0);
}

static void run(struct bench *b)
{
    uint64_t start = now_ns;

    if (!b->perf.load)
        begin(b);
    while (!ended) {
        step(b);
        assert_true(now_ns - start < 3600 * S);
    }
    mails_run();
}

static double quantile_ms(const struct bench *b, double q)
{
    return (double)hist_quantile(&b->results->rtt[OP_PUT], q) / (double)MS;
}

/* ---- tests ---- */

/* 1, 5 and 20 ms, closed and open, evenly and at random: the median is right within 0.5 %. */
static void delay_is_measured(void **state)
{
    static const double rates[] = {0, 100, 900};
    static const unsigned delays[] = {1, 5, 20};

    for (unsigned i = 0; i < 9; i++) {
        for (int poisson = 0; poisson < 2; poisson++) {
            struct bench *b = bench_new(rates[i % 3]);
            double ms = delays[i / 3];
            b->fake.delay_ns = delays[i / 3] * MS;
            b->perf.opts.arrivals = poisson ? ARRIVALS_POISSON : ARRIVALS_FIXED;
            b->perf.opts.count = 2000;
            run(b);
            assert_int_equal(b->results->op[OP_PUT].done, 2000);
            assert_true(fabs(quantile_ms(b, 0.5) / ms - 1) < 0.005);
            assert_true(fabs(quantile_ms(b, 0.999) / ms - 1) < 0.01);
            bench_free(b);
        }
    }
}

/* The engine stands still for 100 ms of 6 s; every answer takes 1 ms otherwise. */
static void stall_is_in_the_open_loop(void **state)
{
    for (int open = 0; open < 2; open++) {
        struct bench *b = bench_new(open ? 500 : 0);
        b->perf.opts.duration_us = 6000000;
        b->fake.stall_from = now_ns + 2 * S;
        b->fake.stall_to = b->fake.stall_from + 100 * MS;
        run(b);
        assert_true(quantile_ms(b, 1) > 99 && quantile_ms(b, 1) < 102);
        assert_true(fabs(quantile_ms(b, 0.5) - 1) < 0.02);
        if (open) { /* 50 of 3000 waited: 1/60 */
            assert_int_equal(b->results->op[OP_PUT].done, 3000);
            assert_true(quantile_ms(b, 0.999) > 93 && quantile_ms(b, 0.999) < 99);
            assert_true(quantile_ms(b, 0.99) > 38 && quantile_ms(b, 0.99) < 45);
        } else { /* one of 5900 */
            assert_true(b->results->op[OP_PUT].done > 5800);
            assert_true(quantile_ms(b, 0.999) < 1.1);
        }
        bench_free(b);
    }
}

/* The same where the engine takes nothing: what was due then waits in the load. */
static void no_room_is_in_the_open_loop(void **state)
{
    struct bench *b = bench_new(500);

    b->perf.opts.duration_us = 6000000;
    b->fake.room = 2;
    b->fake.stall_from = now_ns + 2 * S;
    b->fake.stall_to = b->fake.stall_from + 100 * MS;
    run(b);
    assert_int_equal(b->results->op[OP_PUT].done, 3000);
    assert_true(b->results->waiting_most >= 46);
    assert_true(quantile_ms(b, 0.999) > 93);
    assert_true((double)b->results->wait.max > 90 * (double)MS); /* said as such */
    bench_free(b);
}

static void overflow_is_told(void **state)
{
    struct bench *b = bench_new(1000);

    b->perf.opts.count = 1000;
    b->perf.opts.queue = 20;
    b->perf.opts.inflight = 5;
    b->fake.room = 5;
    b->fake.stall_from = now_ns + 300 * MS;
    b->fake.stall_to = b->fake.stall_from + 100 * MS;
    run(b);
    /* 100 were due, five were on the way, at most 25 messages are known at once */
    assert_in_range(b->results->overflowed, 70, 80);
    assert_in_range(b->results->overflow_ns, 320 * MS, 330 * MS);
    assert_int_equal(b->results->op[OP_PUT].done + b->results->overflowed, 1000);
    bench_free(b);
}

static void lost_and_failed_are_counted(void **state)
{
    struct bench *b = bench_new(1000);
    const struct op_counters *o;

    b->perf.opts.count = 1000;
    b->fake.lose_every = 10;
    b->fake.fail_every = 7;
    b->fake.refuse_every = 13;
    run(b);
    o = &b->results->op[OP_PUT];
    assert_true(o->lost > 80 && o->failed > 150);
    assert_int_equal(o->lost, b->fake.cancelled);
    assert_int_equal(o->done + o->lost + o->failed, 1000);
    assert_int_equal(b->results->rtt[OP_PUT].count, o->done);
    assert_int_equal(b->results->trouble[0], '\0');
    bench_free(b);
}

static void silence_ends_the_run(void **state)
{
    for (int open = 0; open < 2; open++) {
        struct bench *b = bench_new(open ? 100 : 0);
        uint64_t start = now_ns;
        b->perf.opts.duration_us = 3600ull * 1000000;
        b->fake.lose_every = 1;
        run(b);
        assert_non_null(strstr(b->results->trouble, "gave up"));
        assert_true(now_ns - start < 5 * S); /* twice the timeout, and what is on the way */
        assert_int_equal(b->results->op[OP_PUT].done, 0);
        bench_free(b);
    }
}

/* Whoever waits for room for the whole timeout is not sent, and is no answer time. */
static void wait_has_an_end(void **state)
{
    struct bench *b = bench_new(100);

    b->perf.opts.count = 50;
    b->fake.room = 0;
    run(b);
    assert_int_equal(b->results->op[OP_PUT].failed, 50);
    assert_int_equal(b->results->expired, 50);
    assert_int_equal(b->results->rtt[OP_PUT].count, 0);
    bench_free(b);
}

static void interrupt_gives_results(void **state)
{
    for (int open = 0; open < 2; open++) {
        struct bench *b = bench_new(open ? 1000 : 0);
        uint64_t end;
        b->perf.opts.duration_us = 3600ull * 1000000;
        b->fake.lose_every = 400; /* one is on the way for ever */
        begin(b);
        for (end = now_ns + 2 * S; now_ns < end;)
            step(b);
        load_interrupt(b->perf.load);
        run(b);
        assert_true(b->results->interrupted);
        assert_true(now_ns - end < 2 * S);
        assert_true(b->results->op[OP_PUT].done > 500);
        assert_true(b->results->have_report);
        assert_int_equal(b->fake.n, 0);
        bench_free(b);
    }
}

/* One source of four has no room: the others' messages are not behind its own. */
static void one_source_holds_up_itself(void **state)
{
    struct bench *b = bench_new(400);
    uint64_t slow = 0;

    b->fake.base.sources = 4;
    b->fake.base.targets = 3;
    b->perf.opts.count = 400;
    b->fake.in_flight[2] = b->fake.room; /* until it is freed below */
    begin(b);
    for (uint64_t end = now_ns + 500 * MS; now_ns < end;)
        step(b);
    b->fake.in_flight[2] = 0;
    b->fake.blocked[2] = false;
    perf_room(&b->fake.base, 2);
    run(b);
    assert_int_equal(b->results->op[OP_PUT].done, 400);
    assert_true(fabs(quantile_ms(b, 0.87) - 1) < 0.02); /* 50 of 400 waited, those of one source */
    assert_true(quantile_ms(b, 0.88) > 10);
    slow = b->results->rtt[OP_PUT].max;
    assert_in_range(slow, 480 * MS, 510 * MS);
    bench_free(b);
}

static void closed_loop_keeps_its_number(void **state)
{
    struct bench *b = bench_new(0);

    b->perf.opts.inflight = 16;
    b->perf.opts.count = 1600;
    run(b); /* 16 per millisecond */
    assert_int_equal(b->results->op[OP_PUT].done, 1600);
    assert_in_range(b->results->end_ns - b->results->start_ns, 99 * MS, 103 * MS);
    bench_free(b);
}

/* The second of two sources has its answers half as fast: in turn it holds up the first, each with
 * its own on the way it does not. */
static void kept_order_shows_who_is_slower(void **state)
{
    for (unsigned kept = 0; kept < 2; kept++) {
        struct bench *b = bench_new(0);
        const uint64_t *bytes;

        b->fake.base.sources = 2;
        b->fake.delay_more_ns = MS;
        b->perf.opts.inflight = 4;
        b->perf.opts.duration_us = 100000;
        b->perf.opts.kept_order = kept;
        run(b);
        bytes = b->results->source_bytes;
        if (kept) {
            assert_in_range(bytes[0], 19600, 20000);
            assert_in_range(bytes[1], 9800, 10000);
        } else {
            assert_in_range(bytes[0], bytes[1] - 400, bytes[1] + 400);
        }
        bench_free(b);
    }
}

static void one_seed_one_run(void **state)
{
    uint64_t sum[3];

    for (unsigned i = 0; i < 3; i++) {
        struct bench *b = bench_new(1000);
        b->perf.opts.count = 1000;
        b->perf.opts.arrivals = ARRIVALS_POISSON;
        b->perf.opts.kinds = (struct kinds){.weight = {3, 1}};
        b->perf.opts.random_order = true;
        b->perf.opts.verify_every = 3;
        b->perf.opts.seed = i == 2 ? 6 : 5;
        b->fake.base.sources = 5;
        b->fake.base.targets = 9;
        assert_int_equal(sizes_parse("1-64k:3,0:1", &b->perf.opts.sizes), 0);
        run(b);
        assert_in_range(b->results->checked, 260, 410);
        sum[i] = b->fake.sum;
        bench_free(b);
    }
    assert_int_equal(sum[0], sum[1]);
    assert_int_not_equal(sum[0], sum[2]);
}

/* Intervals cover the whole run and add up to it. */
static void intervals_add_up(void **state)
{
    struct bench *b = bench_new(1000);

    b->perf.opts.duration_us = 2300000;
    b->perf.opts.interval_us = 100000;
    run(b);
    assert_in_range(lines_told, 23, 24);
    bench_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delay_is_measured),
        cmocka_unit_test(stall_is_in_the_open_loop),
        cmocka_unit_test(no_room_is_in_the_open_loop),
        cmocka_unit_test(overflow_is_told),
        cmocka_unit_test(lost_and_failed_are_counted),
        cmocka_unit_test(silence_ends_the_run),
        cmocka_unit_test(wait_has_an_end),
        cmocka_unit_test(interrupt_gives_results),
        cmocka_unit_test(one_source_holds_up_itself),
        cmocka_unit_test(closed_loop_keeps_its_number),
        cmocka_unit_test(kept_order_shows_who_is_slower),
        cmocka_unit_test(one_seed_one_run),
        cmocka_unit_test(intervals_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
