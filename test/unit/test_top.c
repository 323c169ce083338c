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

#include "app/millrace/top.h"

static json_t *json(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, 0, &error);

    if (!value)
        fail_msg("%s in %s", error.text, text);
    return value;
}

/* A node that has forwarded n messages of 1000 bytes. */
static struct top_sample make(double when, int uptime, int n)
{
    struct top_sample s = {.when = when};
    char text[2000];

    snprintf(text, sizeof(text), "{\"version\":\"1.2\",\"pid\":7,\"uptime\":%d}", uptime);
    s.part[TOP_VERSION] = json(text);
    snprintf(text, sizeof(text), "{\"route_count\":%d,\"route_length\":%d,\"drop_count\":%d}", n,
             1000 * n, n / 10);
    s.part[TOP_STATS] = json(text);
    snprintf(text, sizeof(text),
             "{\"reactors\":[{\"reactor\":0,\"cpt\":1,\"sleep_us\":%d,\"loops\":%d,"
             "\"sleeps\":%d,\"stalls\":3,\"stages\":{\"poll\":%d,\"mail\":%d,\"rest\":%d}}]}",
             500 * n, n, n, 200 * n, 50 * n, 250 * n);
    s.part[TOP_REACTORS] = json(text);
    snprintf(text, sizeof(text),
             "{\"net\":[{\"net type\":\"lo\",\"local NI(s)\":[{\"nid\":\"0@lo\"}]},"
             "{\"net type\":\"tcp\",\"local NI(s)\":[{\"nid\":\"10.0.0.1@tcp\",\"status\":\"down\","
             "\"statistics\":{\"send_count\":%d,\"recv_count\":%d,\"drop_count\":0},\"millrace\":"
             "{\"available_tx_credits\":5,\"min_tx_credits\":-2,\"max_tx_credits\":8,"
             "\"tx_waiting\":4}}]}]}",
             n, 2 * n);
    s.part[TOP_NETS] = json(text);
    s.part[TOP_BUFFERS] =
        json("{\"enable\":1,\"reactors\":["
             "{\"tiny\":{\"nbuffers\":10,\"credits\":4,\"mincredits\":-1,\"waiting\":2,"
             "\"waited\":9}},"
             "{\"tiny\":{\"nbuffers\":20,\"credits\":6,\"mincredits\":3,\"waiting\":0,"
             "\"waited\":1}}]}");
    snprintf(text, sizeof(text),
             "{\"drops\":[{\"name\":\"never\",\"count\":0},{\"name\":\"old\",\"count\":5000},"
             "{\"name\":\"fast\",\"count\":%d},{\"name\":\"older\",\"count\":6000}]}",
             n / 10);
    s.part[TOP_DROPS] = json(text);
    s.part[TOP_PEERS] =
        json("{\"peers\":[{\"nid\":\"10.0.0.2@tcp\",\"bytes_in_per_s\":1234567,"
             "\"bytes_out_per_s\":0.0,\"tx_queued\":3,\"tx_waiting\":2,\"rtr_waiting\":1,"
             "\"up\":true}],\"seconds\":0.5}");
    s.part[TOP_NAMES] =
        json("{\"names\":{\"10.0.0.1@tcp\":\"rtr1\",\"10.0.0.2@tcp\":\"oss\\u00fc\\u001b[2J\"}}");
    return s;
}

static void release(struct top_sample *s)
{
    for (int i = 0; i < TOP_PARTS; i++)
        json_decref(s->part[i]);
}

/* Replaces a part of a sample. */
static void put(struct top_sample *s, enum top_part part, const char *text)
{
    json_decref(s->part[part]);
    s->part[part] = json(text);
}

static size_t find(const struct top_text *text, const char *words)
{
    for (size_t i = 0; i < text->n; i++)
        if (strstr(text->row[i].text, words))
            return i;
    return text->n;
}

/* The look of the line that has the words. */
static enum top_look look_of(const struct top_text *text, const char *words)
{
    size_t i = find(text, words);

    if (i == text->n) {
        for (i = 0; i < text->n; i++)
            print_error("%s\n", text->row[i].text);
        fail_msg("no line has '%s'", words);
    }
    return text->row[i].look;
}

/* The page of the health, 80 columns wide. */
static void health_frame(struct top_text *text, const struct top_sample *before,
                         const struct top_sample *now)
{
    *text = (struct top_text){.row = NULL};
    top_frame(text, TOP_PAGE_HEALTH, before, now, "bytes", 100, 80);
}

static void frame(struct top_text *text, const struct top_sample *before,
                  const struct top_sample *now)
{
    *text = (struct top_text){.row = NULL};
    top_frame(text, TOP_PAGE_TRAFFIC, before, now, "bytes", 100, 100);
}

/* Of 2 s: preempted 0.8 s, work 0.6 s; asleep 0.5 s. */
static void test_stages(void **state)
{
    static const char *const form =
        "{\"reactors\":[{\"reactor\":0,\"cpt\":1,\"sleep_us\":%d,\"sleeps\":1,\"stalls\":0,"
        "\"stages\":{\"poll\":%d,\"rest\":%d,\"preempted\":%d}}]}";
    struct top_sample a = make(100, 10, 1000), b = make(102, 12, 3000);
    struct top_text body;
    char text[600];

    snprintf(text, sizeof(text), form, 0, 7, 9, 3);
    put(&a, TOP_REACTORS, text);
    snprintf(text, sizeof(text), form, 500000, 600007, 100009, 800003);
    put(&b, TOP_REACTORS, text);
    frame(&body, &a, &b);
    look_of(&body, "      0   1   30%     40%    25%        0      0  poll 40 rest 7 preempted 53");
    top_text_clear(&body);
    release(&a);
    release(&b);
}

static void test_rates(void **state)
{
    struct top_sample a = make(100, 10, 1000), b = make(102, 12, 3000);
    struct top_text text;

    frame(&text, &a, &b);
    look_of(&text, "millraced 1.2  up 0d 00:00:12  routing on");
    look_of(&text, "forwarded 1.00k messages/s  1.00MB/s  dropped 100/s");
    /* Of 2 s: 0.5 s of work, 0.5 s of empty turns, 1 s asleep. */
    look_of(&text, "      0   1   25%      0%    50%    1.00k      3  poll 40 mail 10 rest 50");
    assert_int_equal(find(&text, "0@lo"), text.n);
    look_of(&text, " down     2.00k   1.00k       0       5     -2      4");
    look_of(&text, " up       1.23M        0      3      2      1");
    look_of(&text, "tiny            30        10         2         2         10");
    /* The reason that grows comes first, then the greatest count. */
    assert_true(find(&text, "fast ") < find(&text, "older "));
    assert_true(find(&text, "older ") < find(&text, "old "));
    look_of(&text, "fast                                   100          300");
    assert_int_equal(find(&text, "never"), text.n);
    top_text_clear(&text);
    release(&a);
    release(&b);
}

static void no_rates(const struct top_sample *before, const struct top_sample *now)
{
    struct top_text text;

    frame(&text, before, now);
    look_of(&text, "forwarded - messages/s  -B/s  dropped -/s");
    look_of(&text, "      0   1     -       -      -        -      3");
    look_of(&text, " down         -       -       -       5     -2      4");
    look_of(&text, "fast                                     -");
    top_text_clear(&text);
}

/* One sample has no rates; neither have two of different processes, or of no time between. */
static void test_unknown(void **state)
{
    struct top_sample a = make(100, 10, 1000), b = make(102, 12, 3000);

    no_rates(NULL, &a);
    json_object_set_new(b.part[TOP_VERSION], "pid", json_integer(8));
    no_rates(&a, &b);
    no_rates(&a, &a);
    release(&a);
    release(&b);
}

/* A counter that was reset has no rate, rather than one below zero or a huge one. */
static void test_reset(void **state)
{
    struct top_sample a = make(100, 10, 3000), b = make(102, 12, 50);
    struct top_text text;

    frame(&text, &a, &b);
    look_of(&text, "forwarded - messages/s  -B/s  dropped -/s");
    look_of(&text, "      0   1     -       -      -        -      3");
    assert_int_equal(find(&text, "poll "), text.n);
    look_of(&text, " down         -       -       0       5     -2      4");
    top_text_clear(&text);
    release(&a);
    release(&b);
}

/* A millraced that lacks methods, or answers something else: shown as far as possible. */
static void test_strange(void **state)
{
    static const char *const answers[] = {
        "{}", "[]", "\"text\"", "{\"reactors\":{\"a\":1}}",
        "{\"reactors\":[1,null,\"x\",{\"stages\":[1]}],"
        "\"net\":[1,{\"local NI(s)\":[2,{\"nid\":3}]}],"
        "\"drops\":[{\"count\":1}],\"peers\":[7],\"ni\":[1,{\"failures\":2}],"
        "\"peer_ni\":[{\"next_ping_ms\":\"x\"},null]}"};
    struct top_text text;

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct top_sample s = {.when = 0}, none = {.when = 1};

        for (int part = 0; part < TOP_PARTS; part++) {
            s.part[part] = json_loads(answers[i], JSON_DECODE_ANY, NULL);
            assert_non_null(s.part[part]);
        }
        frame(&text, &s, &none);
        top_text_clear(&text);
        frame(&text, &none, &s);
        top_text_clear(&text);
        health_frame(&text, &none, &s);
        top_text_clear(&text);
        release(&s);
    }
}

static void test_lines(void **state)
{
    struct top_sample a = make(100, 10, 1000), b = make(102, 93784, 3000);
    struct top_text text = {.row = NULL};

    top_frame(&text, TOP_PAGE_TRAFFIC, &a, &b, "queued", 100, 80);
    assert_string_equal(text.row[0].text, "millraced 1.2  up 1d 02:03:04  routing on");
    assert_string_equal(text.row[1].text, "forwarded 1.00k messages/s  1.00MB/s  dropped 100/s");
    assert_int_equal(look_of(&text, "REACTOR"), TOP_TITLE);
    look_of(&text, "PEER by queued");
    assert_int_equal(look_of(&text, "10.0.0.1@tcp (rtr1)"), TOP_ALERT); /* down */
    /* A control character of a name does not reach the terminal. */
    look_of(&text, "10.0.0.2@tcp (oss\xc3\xbc?[2J)");
    assert_int_equal(look_of(&text, "tiny "), TOP_ALERT); /* some wait */
    assert_int_equal(look_of(&text, "small "), TOP_PLAIN);
    assert_int_equal(look_of(&text, "fast "), TOP_ALERT);
    assert_int_equal(look_of(&text, "older "), TOP_PLAIN);
    top_text_clear(&text);

    /* No line is wider than the terminal. */
    for (int cols = 1; cols <= TOP_MAX_COLS; cols++) {
        top_frame(&text, cols % 2 ? TOP_PAGE_TRAFFIC : TOP_PAGE_HEALTH, &a, &b, "bytes", 5, cols);
        for (size_t i = 0; i < text.n; i++)
            assert_true(mbstowcs(NULL, text.row[i].text, 0) <= (size_t)cols);
        top_text_clear(&text);
    }
    release(&a);
    release(&b);
}

/* A terminal with few lines shows fewer peers, three at least, and all the rest. */
static void test_few_lines(void **state)
{
    struct top_sample s = make(100, 10, 1000);
    json_t *list = json_object_get(s.part[TOP_PEERS], "peers");
    struct top_text text = {.row = NULL};
    size_t rest;

    for (int i = 2; i <= 20; i++)
        json_array_append_new(list, json_pack("{s:s}", "nid", "1.1.1.1@tcp"));
    top_frame(&text, TOP_PAGE_TRAFFIC, NULL, &s, "bytes", 100, 80);
    rest = text.n - TOP_HEAD - 20;
    top_text_clear(&text);
    top_frame(&text, TOP_PAGE_TRAFFIC, NULL, &s, "bytes", (int)rest + 7, 80);
    assert_int_equal(text.n, TOP_HEAD + rest + 7);
    assert_string_equal(text.row[text.n - 1].text,
                        "fast                                     -          100");
    look_of(&text, "BUFFERS");
    top_text_clear(&text);
    top_frame(&text, TOP_PAGE_TRAFFIC, NULL, &s, "bytes", 1, 80);
    assert_int_equal(text.n, TOP_HEAD + rest + 3);
    top_text_clear(&text);
    release(&s);
}

/* The page of the health: values, recovery pings, failures, resends. */
static void test_health(void **state)
{
    static const char form[] =
        "{\"nis\":{\"total\":2,\"unhealthy\":1,\"recovering\":1},"
        "\"peer_nis\":{\"unhealthy\":150,\"recovering\":140},"
        "\"ni\":[{\"nid\":\"10.0.0.1@tcp\",\"health\":700,\"recovering\":true,"
        "\"ping_count\":2,\"next_ping_ms\":3900,\"failures\":{\"local_interrupt\":1,"
        "\"local_dropped\":2,\"local_aborted\":3,\"local_no_route\":4,\"local_timeout\":12345,"
        "\"local_error\":6}},{\"nid\":\"10.1.0.1@tcp1\",\"health\":1000,\"recovering\":false,"
        "\"ping_count\":0,\"failures\":{}}],"
        "\"peer_ni\":[{\"nid\":\"10.0.0.2@tcp\",\"gateway\":true,\"health\":0,"
        "\"recovering\":true,\"ping_count\":9,\"next_ping_ms\":512000,\"failures\":{"
        "\"remote_dropped\":1,\"remote_timeout\":2,\"remote_error\":3,\"network_timeout\":4}},"
        "{\"nid\":\"10.0.0.3@tcp\",\"gateway\":false,\"health\":900,\"recovering\":false,"
        "\"ping_count\":0,\"failures\":{\"remote_dropped\":7}}]}";
    struct top_sample a = make(100, 10, 1000), b = make(102, 12, 3000);
    struct top_text text;

    put(&a, TOP_HEALTH, form);
    put(&b, TOP_HEALTH, form);
    put(&a, TOP_STATS, "{\"resend_count\":10,\"failed_resends\":1}");
    put(&b, TOP_STATS, "{\"resend_count\":30,\"failed_resends\":1}");
    health_frame(&text, &a, &b);
    look_of(&text, "millraced 1.2  up 0d 00:00:12");
    assert_int_equal(find(&text, "REACTOR"), text.n);
    assert_int_equal(
        look_of(&text, "    700     2    3s      1      2      3      4  12.3k      6"), TOP_ALERT);
    assert_int_equal(
        look_of(&text, "   1000     0     -      -      -      -      -      -      -"), TOP_PLAIN);
    look_of(&text, "  150 below full health, 140 of these in recovery");
    look_of(&text, " gw      0     9  512s       1       2       3       4");
    look_of(&text, "         900     0     -       7       -       -       -");
    assert_int_equal(look_of(&text, "resend_count                            10           30"),
                     TOP_ALERT);
    assert_int_equal(look_of(&text, "failed_resends                           0            1"),
                     TOP_PLAIN);
    top_text_clear(&text);
    json_decref(b.part[TOP_HEALTH]);
    b.part[TOP_HEALTH] = NULL;
    health_frame(&text, &a, &b);
    look_of(&text, "does not report health");
    top_text_clear(&text);
    release(&a);
    release(&b);
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
        cmocka_unit_test(test_rates),   cmocka_unit_test(test_stages),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_reset),
        cmocka_unit_test(test_strange), cmocka_unit_test(test_lines),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_few_lines),
        cmocka_unit_test(test_health),
    };

    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
