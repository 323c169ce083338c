/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranges of NIDs as they are written, and token buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/nid_list.h"
#include "config/write.h"
#include "control/diff.h"
#include "lib/lnet/access/bucket.h"

#define MS 1000000ull

/* ---- ranges ---- */

static bool has(const char *ranges, const char *nid)
{
    struct nid_list list;
    struct lnet_nid n;
    struct err err = {0};
    bool in;

    assert_int_equal(cfg_nid_list_parse(ranges, &list, &err), 0);
    assert_int_equal(nid_parse(nid, &n), 0);
    in = nid_list_has(&list, &n);
    free(list.range);
    return in;
}

static void test_ranges(void **state)
{
    static const struct {
        const char *ranges, *in, *out;
    } rows[] = {
        {"*@tcp", "10.0.0.1@tcp", "10.0.0.1@tcp1"},
        {"*@tcp", "fd00::1@tcp", "10.0.0.1@o2ib"},
        {"10.0.0.1@tcp", "10.0.0.1@tcp", "10.0.0.2@tcp"},
        {"10.0.[0-3].*@tcp", "10.0.3.255@tcp", "10.0.4.0@tcp"},
        {"10.0.0.[1-9/2,20]@tcp", "10.0.0.9@tcp", "10.0.0.8@tcp"},
        {"10.0.0.[1-9/2,20]@tcp", "10.0.0.20@tcp", "10.0.0.19@tcp"},
        {"10.1.0.0/16@tcp", "10.1.255.255@tcp", "10.2.0.0@tcp"},
        {"10.1.7.7/16@tcp", "10.1.0.1@tcp", "10.0.0.1@tcp"},
        {"10.1.0.1/32@tcp", "10.1.0.1@tcp", "10.1.0.0@tcp"},
        {"fd00::/64@tcp", "fd00::ffff:1@tcp", "fd00:0:0:1::@tcp"},
        {"fd00::5@tcp", "fd00::5@tcp", "fd00::6@tcp"},
        {"fd00::/96@tcp", "fd00::5@tcp", "10.0.0.1@tcp"},
        {"[1-9]@kfi", "9@kfi", "10@kfi"},
        {"[0-4294967295/2]@kfi", "4294967294@kfi", "4294967295@kfi"},
        {"7@kfi", "7@kfi", "7@kfi1"},
        {"  *@tcp1\t10.0.0.1@tcp ", "10.0.0.1@tcp", "10.0.0.2@tcp"},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!has(rows[i].ranges, rows[i].in) || has(rows[i].ranges, rows[i].out))
            fail_msg("%s: %s in, %s out", rows[i].ranges, rows[i].in, rows[i].out);
    assert_true(has("", "10.0.0.1@tcp"));
}

static void test_no_ranges(void **state)
{
    static const char *const rows[] = {
        "10.0.0.1",
        "*",
        "*@nonet",
        "@tcp",
        "10.0.0@tcp",
        "10.0.0.1.2@tcp",
        "10.0.0.256@tcp",
        "10.0.0.[3-1]@tcp",
        "10.0.0.[1-2@tcp",
        "10.0.0.[]@tcp",
        "10.0.0.[1-9/0]@tcp",
        "10.0.0.0/33@tcp",
        "10.0.0.0/0@tcp",
        "fd00::/129@tcp",
        "fd00::1/@tcp",
        "1-9@kfi",
        "[1-4294967296]@kfi",
        "10.0.0.1-2@tcp",
        "[1,2,3,4,5,6,7,8,9]@kfi",
    };
    struct nid_list list;
    char many[CFG_NID_RANGES * 8 + 16] = "";

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err err = {0};

        if (cfg_nid_list_parse(rows[i], &list, &err) == 0)
            fail_msg("'%s' was read", rows[i]);
        assert_null(list.range);
        assert_true(strlen(err.message) > 10);
    }
    for (unsigned i = 0; i <= CFG_NID_RANGES; i++)
        strcat(many, "*@tcp ");
    assert_true(cfg_nid_list_parse(many, &list, &(struct err){0}) < 0);
}

/* ---- the section `access` ---- */

#define NODE "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}]\n"

static struct cfg *read_rules(const char *rules, struct cfg_report *report)
{
    struct cfg *cfg = NULL;
    char text[4096];

    snprintf(text, sizeof(text), NODE "millrace: {access: [%s]}\n", rules);
    memset(report, 0, sizeof(*report));
    (void)cfg_parse("rules", text, strlen(text), &cfg, report);
    return cfg;
}

static void test_section(void **state)
{
    static const char rules[] =
        "{name: a, connect: allow, nid: 10.0.0.*@tcp, on: 10.0.0.1@tcp}, {name: b, connect: deny},"
        "{name: c, forward: deny, from: '*@tcp', to: '10.1.0.0/16@tcp1 *@tcp2'},"
        "{name: d, limit: prefix, messages: 5, bandwidth: 7, connects: 9, burst: 20},"
        "{name: e, limit: all, nid: '*@tcp', messages: 1}";
    struct cfg_report report;
    struct cfg *cfg = read_rules(rules, &report), *again = NULL;
    struct lnet_access_rule *made;
    struct cfg_diff diff;
    struct err err = {0};
    char *text;

    (void)state;
    assert_non_null(cfg);
    assert_int_equal(cfg->access_count, 5);
    text = cfg_text(cfg, CFG_FORM_FILE);
    cfg_report_free(&report);
    memset(&report, 0, sizeof(report));
    assert_int_equal(cfg_parse("again", text, strlen(text), &again, &report), 0);
    cfg_diff_make(cfg, again, &diff);
    assert_int_equal(diff.count, 0);
    cfg_diff_free(&diff);
    assert_int_equal(cfg_access_rules(again, &made, &err), 0);
    assert_int_equal(made[0].kind, LNET_ACCESS_CONNECT);
    assert_true(made[0].allow && !made[1].allow && !made[2].allow);
    assert_int_equal(made[0].to.n, 1);
    assert_int_equal(made[1].from.n, 0);
    assert_int_equal(made[2].to.n, 2);
    assert_int_equal(made[3].per, LNET_ACCESS_PER_PREFIX);
    assert_int_equal(made[3].rate[1], 7 << 20);
    assert_int_equal(made[3].burst_ms, 20);
    assert_int_equal(made[4].burst_ms, 1000);
    cfg_access_rules_free(made, again->access_count);
    /* another order is another document */
    cfg_free(again);
    cfg_report_free(&report);
    again = read_rules("{name: b, connect: deny}, {name: a, connect: allow}", &report);
    cfg_diff_make(cfg, again, &diff);
    assert_int_equal(diff.count, 5);
    cfg_diff_free(&diff);
    cfg_free(again);
    cfg_free(cfg);
    cfg_report_free(&report);
    free(text);
}

static void test_faulty_rules(void **state)
{
    static const char *const rows[] = {
        "{connect: deny}",
        "{name: a}",
        "{name: a, connect: deny, forward: deny}",
        "{name: a, connect: maybe}",
        "{name: a, connect: deny, from: '*@tcp'}",
        "{name: a, forward: deny, nid: '*@tcp'}",
        "{name: a, forward: deny, messages: 1}",
        "{name: a, connect: deny, burst: 5}",
        "{name: a, limit: nid}",
        "{name: a, limit: nid, burst: 5}",
        "{name: a, limit: nid, messages: 0}",
        "{name: a, limit: nid, from: '*@tcp', messages: 1}",
        "{name: a, connect: deny, nid: '10.0.0.300@tcp'}",
        "{name: a, connect: deny}, {name: a, forward: deny}",
        "{name: a23456789a123456789b123456789c12, connect: deny}",
    };
    struct cfg_report report;

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cfg *cfg = read_rules(rows[i], &report);

        if (cfg || report.errors == 0)
            fail_msg("was read: %s", rows[i]);
        cfg_report_free(&report);
    }
}

/* ---- buckets ---- */

static void test_rate(void **state)
{
    struct lnet_buckets t;
    struct lnet_bucket *b;
    uint64_t now = 5000 * MS, lacks;
    unsigned gone = 0;

    (void)state;
    assert_int_equal(lnet_buckets_init(&t, 100), 0);
    b = lnet_bucket_get(&t, 7);
    assert_ptr_equal(lnet_bucket_get(&t, 7), b);
    /* 100 per second, and a burst of 50 ms: at once one, and five more. */
    while (lnet_bucket_lacks(b, LNET_BUCKET_MESSAGES, 50 * MS, now) == 0) {
        lnet_bucket_take(b, LNET_BUCKET_MESSAGES, 10 * MS, now);
        gone++;
    }
    assert_int_equal(gone, 6);
    assert_int_equal(lnet_bucket_lacks(b, LNET_BUCKET_BYTES, 50 * MS, now), 0);
    /* Then one each 10 ms, however they come. */
    for (unsigned i = 0; i < 100; i++) {
        lacks = lnet_bucket_lacks(b, LNET_BUCKET_MESSAGES, 50 * MS, now);
        now += lacks;
        lnet_bucket_take(b, LNET_BUCKET_MESSAGES, 10 * MS, now);
    }
    assert_int_equal(now, 6000 * MS);
    lnet_buckets_fini(&t);
}

/* A crowd of others does not take the bucket of one that lacks more than they do, and a bucket that
 * is full again is given away. */
static void test_crowd(void **state)
{
    struct lnet_buckets t;
    uint64_t now = 1000 * MS;
    unsigned kept = 0;

    (void)state;
    assert_int_equal(lnet_buckets_init(&t, 32), 0);
    lnet_bucket_take(lnet_bucket_get(&t, 3), LNET_BUCKET_CONNECTS, 900 * MS, now);
    for (uint64_t key = 64; key < 10000; key++)
        lnet_bucket_take(lnet_bucket_get(&t, key), LNET_BUCKET_CONNECTS, MS, now);
    assert_true(lnet_bucket_lacks(lnet_bucket_get(&t, 3), LNET_BUCKET_CONNECTS, 0, now) > 0);
    for (uint32_t i = 0; i <= t.mask; i++)
        kept += t.row[i].key != 0;
    assert_int_equal(kept, t.mask + 1);
    lnet_buckets_fini(&t);
}

static void *take_often(void *arg)
{
    struct lnet_buckets *t = arg;

    for (unsigned i = 0; i < 100000; i++)
        lnet_bucket_take(lnet_bucket_get(t, 9), LNET_BUCKET_BYTES, 3, 1);
    return NULL;
}

/* Nothing that two threads take is lost. */
static void test_threads(void **state)
{
    struct lnet_buckets t;
    pthread_t thread[2];

    (void)state;
    assert_int_equal(lnet_buckets_init(&t, 32), 0);
    (void)lnet_bucket_get(&t, 9);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_often, &t), 0);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(lnet_bucket_get(&t, 9)->full[LNET_BUCKET_BYTES], 1 + 2 * 100000 * 3);
    lnet_buckets_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),  cmocka_unit_test(test_no_ranges),
        cmocka_unit_test(test_section), cmocka_unit_test(test_faulty_rules),
        cmocka_unit_test(test_rate),    cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
