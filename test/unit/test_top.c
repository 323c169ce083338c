/* SPDX-License-Identifier: BSD-3-Clause */
/* `millrace top`: rates from two samples, and the lines made of them. */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/millrace/top_model.h"

static json_t *json(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, 0, &error);

    if (!value)
        fail_msg("%s in %s", error.text, text);
    return value;
}

/* A node that has forwarded n messages of 1000 bytes. */
static struct top_sample *make(double when, int uptime, int n)
{
    struct top_sample *s = calloc(1, sizeof(*s));
    char text[2000];

    s->when = when;
    snprintf(text, sizeof(text), "{\"version\":\"1.2\",\"pid\":7,\"uptime\":%d}", uptime);
    s->version = json(text);
    snprintf(text, sizeof(text), "{\"route_count\":%d,\"route_length\":%d,\"drop_count\":%d}", n,
             1000 * n, n / 10);
    s->stats = json(text);
    snprintf(text, sizeof(text),
             "{\"reactors\":[{\"reactor\":0,\"cpt\":1,\"sleep_us\":%d,\"loops\":%d,"
             "\"sleeps\":%d,\"stalls\":3,\"stages\":{\"poll\":%d,\"mail\":%d,\"rest\":%d}}]}",
             500 * n, n, n, 200 * n, 50 * n, 250 * n);
    s->reactors = json(text);
    snprintf(text, sizeof(text),
             "{\"net\":[{\"net type\":\"lo\",\"local NI(s)\":[{\"nid\":\"0@lo\"}]},"
             "{\"net type\":\"tcp\",\"local NI(s)\":[{\"nid\":\"10.0.0.1@tcp\",\"status\":\"down\","
             "\"statistics\":{\"send_count\":%d,\"recv_count\":%d,\"drop_count\":0},\"millrace\":"
             "{\"available_tx_credits\":5,\"min_tx_credits\":-2,\"max_tx_credits\":8,"
             "\"tx_waiting\":4}}]}]}",
             n, 2 * n);
    s->nets = json(text);
    s->buffers = json("{\"enable\":1,\"reactors\":["
                      "{\"tiny\":{\"nbuffers\":10,\"credits\":4,\"mincredits\":-1,\"waiting\":2,"
                      "\"waited\":9}},"
                      "{\"tiny\":{\"nbuffers\":20,\"credits\":6,\"mincredits\":3,\"waiting\":0,"
                      "\"waited\":1}}]}");
    snprintf(text, sizeof(text),
             "{\"drops\":[{\"name\":\"never\",\"count\":0},{\"name\":\"old\",\"count\":5000},"
             "{\"name\":\"fast\",\"count\":%d},{\"name\":\"older\",\"count\":6000}]}",
             n / 10);
    s->drops = json(text);
    s->peers = json("{\"peers\":[{\"nid\":\"10.0.0.2@tcp\",\"bytes_in_per_s\":1234567,"
                    "\"bytes_out_per_s\":0.0,\"tx_queued\":3,\"tx_waiting\":2,\"rtr_waiting\":1,"
                    "\"up\":true}],\"seconds\":0.5}");
    s->names = json("{\"10.0.0.1@tcp\":\"rtr1\",\"10.0.0.2@tcp\":\"oss\\u00fc\\u001b[2J\"}");
    return s;
}

static void near(double value, double wanted)
{
    if (fabs(value - wanted) > 1e-9 * (1 + fabs(wanted)))
        fail_msg("%g is not %g", value, wanted);
}

static void view_of(struct top_view *v, const struct top_sample *before,
                    const struct top_sample *now)
{
    assert_int_equal(top_view_make(v, before, now), 0);
}

/* Of 2 s: preempted 0.8 s, work 0.6 s, of which a third was TCP; asleep 0.5 s. */
static void test_work(void **state)
{
    static const char *const form =
        "{\"reactors\":[{\"reactor\":0,\"cpt\":1,\"sleep_us\":%d,\"sleeps\":1,\"stalls\":0,"
        "\"stages\":{\"poll\":%d,\"rest\":%d,\"preempted\":%d},"
        "\"work\":{\"every\":%d,\"turns\":%d,\"tcp_in\":%d,\"other\":%d}}]}";
    struct top_sample *a = make(100, 10, 1000), *b = make(102, 12, 3000);
    struct top_text body = {.row = NULL};
    char text[600];
    struct top_view v;
    bool seen = false;

    json_decref(a->reactors);
    json_decref(b->reactors);
    snprintf(text, sizeof(text), form, 0, 7, 9, 3, 16, 5, 10, 30);
    a->reactors = json(text);
    snprintf(text, sizeof(text), form, 500000, 600007, 100009, 800003, 16, 9, 200010, 400030);
    b->reactors = json(text);
    view_of(&v, a, b);
    near(v.reactors[0].busy, 0.3);
    near(v.reactors[0].preempted, 0.4);
    near(v.reactors[0].asleep, 0.25);
    assert_int_equal(v.reactors[0].nworks, 2);
    near(v.reactors[0].work[0].share, 1.0 / 3);
    near(v.reactors[0].work[1].share, 2.0 / 3);
    assert_int_equal(top_body(&body, &v, "bytes", 10, 120), 0);
    for (size_t i = 0; i < body.n; i++)
        seen |= strstr(body.row[i].text, "work, in %: tcp_in 33 other 67") != NULL;
    assert_true(seen);
    top_text_clear(&body);
    top_view_free(&v);
    /* Off: what there was before is not shown. */
    snprintf(text, sizeof(text), form, 500000, 600007, 100009, 800003, 0, 9, 200010, 400030);
    json_decref(b->reactors);
    b->reactors = json(text);
    view_of(&v, a, b);
    assert_int_equal(v.reactors[0].nworks, 0);
    top_view_free(&v);
    top_sample_free(a);
    top_sample_free(b);
}

static void test_rates(void **state)
{
    struct top_sample *a = make(100, 10, 1000), *b = make(102, 12, 3000);
    struct top_view v;

    view_of(&v, a, b);
    assert_string_equal(v.version, "1.2");
    assert_string_equal(v.routing, "on");
    assert_int_equal(v.uptime, 12);
    near(v.messages, 1000);
    near(v.bytes, 1e6);
    near(v.drops, 100);
    assert_int_equal(v.nreactors, 1);
    /* Of 2 s: 0.5 s of work, 0.5 s of empty turns, 1 s asleep. */
    near(v.reactors[0].busy, 0.25);
    near(v.reactors[0].asleep, 0.5);
    near(v.reactors[0].sleeps, 1000);
    assert_int_equal(v.reactors[0].stalls, 3);
    assert_int_equal(v.reactors[0].cpt, 1);
    assert_int_equal(v.reactors[0].nstages, 3);
    near(v.reactors[0].stage[0].share, 0.4);
    near(v.reactors[0].stage[1].share, 0.1);
    near(v.reactors[0].stage[2].share, 0.5);
    assert_int_equal(v.nnis, 1); /* without 0@lo */
    near(v.nis[0].sent, 1000);
    near(v.nis[0].received, 2000);
    assert_int_equal(v.nis[0].min_credits, -2);
    assert_int_equal(v.npeers, 1);
    near(v.peers[0].in, 1234567);
    assert_int_equal(v.pool[0].total, 30);
    assert_int_equal(v.pool[0].free, 10);
    assert_int_equal(v.pool[0].low, 2);
    assert_int_equal(v.pool[0].waiting, 2);
    assert_int_equal(v.pool[0].waited, 10);
    /* What happens now comes first, then what happened most. */
    assert_int_equal(v.ndrops, 3);
    assert_string_equal(v.drop[0].name, "fast");
    near(v.drop[0].rate, 100);
    assert_string_equal(v.drop[1].name, "older");
    assert_string_equal(v.drop[2].name, "old");
    top_view_free(&v);
    top_sample_free(a);
    top_sample_free(b);
}

/* One sample has no rates; neither have two of different processes, or of no time between. */
static void test_unknown(void **state)
{
    struct top_sample *a = make(100, 10, 1000), *b = make(102, 12, 3000);
    struct top_view v;

    view_of(&v, NULL, a);
    assert_true(isnan(v.messages) && isnan(v.reactors[0].busy) && isnan(v.nis[0].sent));
    top_view_free(&v);
    json_object_set_new(b->version, "pid", json_integer(8));
    view_of(&v, a, b);
    assert_true(isnan(v.messages) && isnan(v.drop[0].rate));
    top_view_free(&v);
    view_of(&v, a, a);
    assert_true(isnan(v.messages));
    top_view_free(&v);
    top_sample_free(a);
    top_sample_free(b);
}

/* Counters that were reset: not known, rather than below zero or huge. */
static void test_reset(void **state)
{
    struct top_sample *a = make(100, 10, 3000), *b = make(102, 12, 50);
    struct top_view v;

    view_of(&v, a, b);
    assert_true(isnan(v.messages) && isnan(v.bytes) && isnan(v.nis[0].sent));
    assert_true(isnan(v.reactors[0].stage[0].share));
    top_view_free(&v);
    top_sample_free(a);
    top_sample_free(b);
}

/* A millraced that lacks methods, or answers something else: shown as far as it goes. */
static void test_strange(void **state)
{
    static const char *const answers[] = {"{}", "[]", "\"text\"", "{\"reactors\":{\"a\":1}}",
                                          "{\"reactors\":[1,null,\"x\",{\"stages\":[1]}],"
                                          "\"net\":[1,{\"local NI(s)\":[2,{\"nid\":3}]}],"
                                          "\"drops\":[{\"count\":1}],\"peers\":[7]}"};
    struct top_text text = {.row = NULL};
    struct top_view v;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct top_sample *s = calloc(1, sizeof(*s)), *t = calloc(1, sizeof(*t));

        t->when = 1;
        s->version = json_loads(answers[i], JSON_DECODE_ANY, NULL);
        assert_non_null(s->version);
        s->stats = json_incref(s->version);
        s->reactors = json_incref(s->version);
        s->nets = json_incref(s->version);
        s->buffers = json_incref(s->version);
        s->drops = json_incref(s->version);
        s->peers = json_incref(s->version);
        s->names = json_incref(s->version);
        view_of(&v, s, t);
        assert_int_equal(top_head(&text, &v, 80), 0);
        top_view_free(&v);
        view_of(&v, t, s);
        assert_int_equal(top_body(&text, &v, "bytes", 5, 80), 0);
        top_view_free(&v);
        top_text_clear(&text);
        top_sample_free(s);
        top_sample_free(t);
    }
}

static const struct top_row *row_with(const struct top_text *text, const char *word)
{
    for (size_t i = 0; i < text->n; i++)
        if (strstr(text->row[i].text, word))
            return &text->row[i];
    fail_msg("no line has '%s'", word);
    return NULL;
}

static void test_lines(void **state)
{
    struct top_sample *a = make(100, 10, 1000), *b = make(102, 93784, 3000);
    struct top_text text = {.row = NULL};
    struct top_view v;

    view_of(&v, a, b);
    assert_int_equal(top_head(&text, &v, 80), 0);
    assert_string_equal(text.row[0].text, "millraced 1.2  up 1d 02:03:04  routing on");
    assert_string_equal(text.row[1].text, "forwarded 1.00k messages/s  1.00MB/s  dropped 100/s");
    top_text_clear(&text);

    assert_int_equal(top_body(&text, &v, "queued", 5, 80), 0);
    assert_int_equal(row_with(&text, "REACTOR")->look, TOP_TITLE);
    row_with(&text, "PEER by queued");
    row_with(&text, "poll 40 mail 10 rest 50");
    row_with(&text, "25%      0%    50%");
    assert_int_equal(row_with(&text, "10.0.0.1@tcp (rtr1)")->look, TOP_ALERT); /* down */
    row_with(&text, "1.23M");
    /* What a name has in it does not reach the terminal. */
    row_with(&text, "10.0.0.2@tcp (oss\xc3\xbc?[2J)");
    assert_int_equal(row_with(&text, "tiny ")->look, TOP_ALERT); /* some wait */
    assert_int_equal(row_with(&text, "small ")->look, TOP_PLAIN);
    assert_int_equal(row_with(&text, "fast ")->look, TOP_ALERT);
    assert_int_equal(row_with(&text, "older ")->look, TOP_PLAIN);
    top_text_clear(&text);

    /* No line is wider than the terminal. */
    for (int cols = 1; cols <= TOP_MAX_COLS; cols++) {
        assert_int_equal(top_body(&text, &v, "bytes", 5, cols), 0);
        for (size_t i = 0; i < text.n; i++)
            assert_true(mbstowcs(NULL, text.row[i].text, 0) <= (size_t)cols);
        top_text_clear(&text);
    }
    top_view_free(&v);
    top_sample_free(a);
    top_sample_free(b);
}

static void shown(double n, const char *wanted)
{
    char buf[16];

    assert_string_equal(top_number(n, buf), wanted);
}

static void test_numbers(void **state)
{
    shown(0, "0");
    shown(0.25, "0.2");
    shown(9.5, "9.5");
    shown(10.4, "10");
    shown(999, "999");
    shown(999.6, "1.00k");
    shown(12345, "12.3k");
    shown(123456, "123k");
    shown(999999, "1.00M");
    shown(1.5e18, "1.50E");
    shown(NAN, "-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),   cmocka_unit_test(test_work),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_reset),
        cmocka_unit_test(test_strange), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_numbers),
    };

    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
