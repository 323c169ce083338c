/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of waiting messages: order, turns and bounds against a plain model, and that nothing due
 * during a stall is left out of the histogram. */
#include "app/millrace-perf/hist.h"
#include "app/millrace-perf/lines.h"
#include "app/millrace-perf/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void first_in_first_out(void **state)
{
    struct lines l;
    uint32_t source;

    assert_int_equal(lines_init(&l, 2, 10), 0);
    assert_int_equal(lines_turn(&l, &source), LINES_NONE);
    for (uint32_t i = 0; i < 3; i++) {
        lines_put(&l, 0, i);
        lines_put(&l, 1, 5 + i);
    }
    for (uint32_t i = 0; i < 6; i++) { /* sources take turns */
        assert_int_equal(lines_turn(&l, &source), i / 2 + (i & 1) * 5);
        assert_int_equal(source, i & 1);
        lines_sent(&l);
    }
    assert_int_equal(lines_turn(&l, &source), LINES_NONE);
    assert_int_equal(l.waiting, 0);
    assert_int_equal(l.most, 6);
    lines_fini(&l);
}

static void blocked_holds_up_nobody(void **state)
{
    struct lines l;
    uint32_t source;

    assert_int_equal(lines_init(&l, 3, 10), 0);
    lines_put(&l, 0, 0);
    lines_put(&l, 0, 1);
    lines_put(&l, 1, 2);
    assert_int_equal(lines_turn(&l, &source), 0);
    lines_block(&l);
    lines_put(&l, 0, 3); /* does not make it ready */
    assert_int_equal(lines_turn(&l, &source), 2);
    lines_sent(&l);
    assert_int_equal(lines_turn(&l, &source), LINES_NONE);
    lines_room(&l, 2); /* was not blocked */
    assert_int_equal(lines_turn(&l, &source), LINES_NONE);
    lines_room_all(&l);
    for (uint32_t want = 0; want < 4; want += want == 1 ? 2 : 1) {
        assert_int_equal(lines_turn(&l, &source), want);
        lines_sent(&l);
    }
    assert_int_equal(l.waiting, 0);
    lines_fini(&l);
}

/* Random puts, sends, blocks, rooms and drops against queues in arrays. */
#define MODEL_SOURCES 7
#define MODEL_ITEMS   64

struct model {
    uint32_t queue[MODEL_SOURCES][MODEL_ITEMS];
    unsigned n[MODEL_SOURCES];
    bool blocked[MODEL_SOURCES];
    bool used[MODEL_ITEMS];
};

static void model_leave(struct model *m, uint32_t source)
{
    m->used[m->queue[source][0]] = false;
    m->n[source]--;
    memmove(m->queue[source], m->queue[source] + 1, m->n[source] * sizeof(uint32_t));
}

static void model_check(const struct model *m, const struct lines *l)
{
    uint32_t source, item = lines_turn(l, &source);
    unsigned all = 0, ready = 0;

    for (unsigned s = 0; s < MODEL_SOURCES; s++) {
        all += m->n[s];
        ready += m->n[s] > 0 && !m->blocked[s];
        assert_int_equal(lines_first(l, s), m->n[s] > 0 ? m->queue[s][0] : LINES_NONE);
    }
    assert_int_equal(l->waiting, all);
    assert_int_equal(item != LINES_NONE, ready > 0);
    if (item != LINES_NONE) {
        assert_false(m->blocked[source]);
        assert_int_equal(item, m->queue[source][0]);
    }
}

static void as_the_model(void **state)
{
    struct model *m = calloc(1, sizeof(*m));
    uint64_t random = 77;
    struct lines l;

    assert_non_null(m);
    assert_int_equal(lines_init(&l, MODEL_SOURCES, MODEL_ITEMS), 0);
    for (unsigned step = 0; step < 300000; step++) {
        uint32_t s = (uint32_t)random_below(&random, MODEL_SOURCES), source;
        uint32_t item = (uint32_t)random_below(&random, MODEL_ITEMS);
        switch (random_below(&random, 5)) {
        case 0:
            if (m->used[item])
                break;
            m->used[item] = true;
            m->queue[s][m->n[s]++] = item;
            lines_put(&l, s, item);
            break;
        case 1:
            if (lines_turn(&l, &source) == LINES_NONE)
                break;
            model_leave(m, source);
            lines_sent(&l);
            break;
        case 2:
            if (lines_turn(&l, &source) == LINES_NONE)
                break;
            m->blocked[source] = true;
            lines_block(&l);
            break;
        case 3:
            m->blocked[s] = false;
            lines_room(&l, s);
            break;
        case 4:
            if (m->n[s] == 0)
                break;
            model_leave(m, s);
            lines_drop(&l, s);
            break;
        }
        model_check(m, &l);
    }
    lines_fini(&l);
    free(m);
}

/* One message per millisecond for 10 s; an answer takes 1 ms; in second 5 nobody can send for 100
 * ms. All 10,000 are in the histogram, and those due in the stall count from when they were due:
 * 100 of them waited 1 to 100 ms, so 1 % is above 1 ms, p99.9 is 90 ms. Measured from when they
 * were sent all would be 1 ms. */
static void stall_is_seen(void **state)
{
    struct hist *from_due = calloc(1, sizeof(*from_due)),
                *from_sent = calloc(1, sizeof(*from_sent));
    uint64_t due[10000], next = 0, ms = 1000000, stall = 5000 * ms, stall_end = stall + 100 * ms;
    struct arrivals a;
    struct lines l;

    assert_non_null(from_due);
    assert_non_null(from_sent);
    assert_int_equal(lines_init(&l, 1, 10000), 0);
    arrivals_init(&a, ARRIVALS_FIXED, 1000, 1);
    for (unsigned i = 0; i < 10000; i++)
        due[i] = arrivals_next(&a);
    for (uint64_t now = 0; now < 11000 * ms; now += ms / 10) {
        uint32_t source, item;
        for (; next < 10000 && due[next] <= now; next++)
            lines_put(&l, 0, (uint32_t)next);
        if (now >= stall_end)
            lines_room(&l, 0);
        while ((item = lines_turn(&l, &source)) != LINES_NONE) {
            if (now >= stall && now < stall_end) {
                lines_block(&l);
                break;
            }
            hist_add(from_due, now + ms - due[item]);
            hist_add(from_sent, ms);
            lines_sent(&l);
        }
    }
    assert_int_equal(from_due->count, 10000);
    assert_int_equal(l.most, 101); /* at the end of the stall one more is due */
    assert_in_range(hist_quantile(from_due, 0.989), ms, ms + ms / 500);
    assert_in_range(hist_quantile(from_due, 0.999), 90 * ms, 93 * ms);
    assert_int_equal(from_due->max, 101 * ms);
    assert_int_equal(from_sent->max, ms);
    lines_fini(&l);
    free(from_due);
    free(from_sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out),
        cmocka_unit_test(blocked_holds_up_nobody),
        cmocka_unit_test(as_the_model),
        cmocka_unit_test(stall_is_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
