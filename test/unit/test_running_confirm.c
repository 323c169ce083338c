/* SPDX-License-Identifier: BSD-3-Clause */
/* The running document: what waits for its confirmation, what is refused, merging and deleting. */
#include "running_test.h"

#include "lib/base/err.h"

/* ---- confirmation ---- */

static void test_confirm(void **state)
{
    struct cfg *a, *b;
    struct cfg_running *r;
    struct err err = {0};
    unsigned left = 0;

    seed = 1;
    a = draw_document();
    b = draw_document();
    r = start(a);
    assert_int_equal(cfg_running_confirm(r), -ENOENT);
    assert_int_equal(cfg_running_rollback(r, "x", note, NULL), -ENOENT);
    assert_int_equal(change(r, b, 30), 0);
    assert_int_equal(node.timer, 30);
    assert_true(cfg_running_pending(r, &left));
    assert_int_equal(left, 30);
    assert_int_equal(cfg_running_busy(r, &err), -EBUSY);
    assert_non_null(strstr(err.message, "config_confirm"));
    assert_int_equal(change(r, a, 0), -EBUSY);
    is_model_of(b);
    assert_int_equal(cfg_running_confirm(r), 0);
    assert_string_equal(node.event, "config_confirmed");
    assert_int_equal(node.timer, 0);
    assert_false(cfg_running_pending(r, NULL));
    /* by time */
    assert_int_equal(change(r, a, 5), 0);
    is_model_of(a);
    cfg_running_expired(r);
    deliver();
    assert_string_equal(node.event, "config_rolled_back");
    assert_string_equal(node.cause, "not confirmed in time");
    is_model_of(b);
    is_same(cfg_running_get(r), b);
    /* by hand */
    assert_int_equal(change(r, a, 5), 0);
    assert_int_equal(cfg_running_rollback(r, "config_rollback", note, NULL), 0);
    deliver();
    is_model_of(b);
    assert_false(cfg_running_pending(r, NULL));
    cfg_running_free(r);
    cfg_free(a);
    cfg_free(b);
}

/* Taking back leaves alone what only named what was there: no NI is started anew. */
static void test_rollback_of_defaults(void **state)
{
    struct cfg *a = cfg_new(), *b;
    struct cfg_ni ni = cfg_new_ni(net_of(0), 0);
    struct cfg_running *r;

    ni.conf.nid = nid_of(net_of(0), 1);
    assert_true(cfg_append(a, CFG_NIS, &ni));
    r = start(a);
    b = cfg_copy(a);
    b->ni[0].conf.tun.credits = 256;
    b->drain++;
    assert_int_equal(change(r, b, 5), 0);
    assert_int_equal(cfg_running_rollback(r, "x", note, NULL), 0);
    deliver();
    assert_int_equal(node.nis, 1);
    assert_int_equal(node.calls, 2); /* drain, twice */
    cfg_running_free(r);
    cfg_free(a);
    cfg_free(b);
}

/* What cannot be taken back now still waits: it is tried again, never kept for want of an answer.
 */
static void test_rollback_fails(void **state)
{
    struct cfg *a, *b;
    struct cfg_running *r;

    seed = 1;
    a = draw_document();
    b = cfg_copy(a);
    b->drain++;
    b->check_interval++;
    r = start(a);
    assert_int_equal(change(r, b, 5), 0);
    node.fail = node.calls + 1;
    cfg_running_expired(r);
    deliver();
    assert_string_equal(node.cause, "failed");
    is_same(cfg_running_get(r), b);
    assert_true(cfg_running_pending(r, NULL));
    assert_true(node.timer > 0);
    assert_int_equal(change(r, a, 0), -EBUSY);
    node.fail = node.calls + 1;
    assert_int_equal(cfg_running_rollback(r, "config_rollback", note, NULL), 0);
    deliver();
    assert_true(cfg_running_pending(r, NULL));
    cfg_running_expired(r);
    deliver();
    assert_string_equal(node.event, "config_rolled_back");
    assert_string_equal(node.cause, "not confirmed in time");
    is_same(cfg_running_get(r), a);
    is_model_of(a);
    assert_false(cfg_running_pending(r, NULL));
    assert_int_equal(node.timer, 0);
    cfg_running_free(r);
    cfg_free(a);
    cfg_free(b);
}

/* ---- refusals ---- */

static void test_one_at_a_time(void **state)
{
    struct cfg *a, *b;
    struct cfg_running *r;

    seed = 3;
    a = draw_document();
    b = cfg_copy(a);
    while (b->ni_count > 1)
        cfg_take(b, CFG_NIS, &b->ni[b->ni_count - 1]);
    b->route_count = 0;
    if (a->ni_count == 1) {
        struct cfg_ni ni = cfg_new_ni(net_of(4), 0);

        ni.conf.nid = nid_of(net_of(4), 9);
        assert_true(cfg_append(a, CFG_NIS, &ni));
    }
    r = start(b);
    node.later = true;
    cfg_running_change(r, cfg_copy(a), 0, "first", note, NULL);
    assert_non_null(node.done);
    outcomes = 0;
    cfg_running_change(r, cfg_copy(b), 0, "second", note, NULL);
    assert_int_equal(outcomes, 1);
    assert_int_equal(outcome.rc, -EBUSY);
    deliver();
    assert_int_equal(outcomes, 2);
    is_model_of(a);
    cfg_running_stopping(r);
    assert_int_equal(change(r, b, 0), -EBUSY);
    cfg_running_free(r);
    cfg_free(a);
    cfg_free(b);
}

static void test_restart(void **state)
{
    struct cfg *a, *b;
    struct cfg_running *r;

    seed = 5;
    a = draw_document();
    b = cfg_copy(a);
    b->memory = 99;
    b->max_peers = 77;
    b->drain = 55;
    r = start(a);
    assert_int_equal(change(r, b, 0), -EOPNOTSUPP);
    assert_non_null(strstr(outcome_err, "millrace.memory, millrace.max_peers cannot change"));
    assert_int_equal(node.calls, 0);
    is_model_of(a);
    cfg_running_free(r);
    /* not started: only what the process is made of stands fast */
    r = cfg_running_new(cfg_copy(a), "/x");
    assert_true(cfg_running_waiting(r));
    assert_false(cfg_running_unsaved(r));
    assert_int_equal(change(r, b, 0), -EOPNOTSUPP);
    b->memory = a->memory;
    assert_int_equal(change(r, b, 0), 0);
    assert_true(cfg_running_unsaved(r));
    assert_int_equal(cfg_running_get(r)->max_peers, 77);
    cfg_running_saved(r, "/y");
    assert_false(cfg_running_unsaved(r));
    assert_string_equal(cfg_running_source(r), "/y");
    cfg_running_free(r);
    cfg_free(a);
    cfg_free(b);
}

/* Order: more buffers first, fewer last; an NI goes only when its routes have gone. */
static void test_order(void **state)
{
    static const char from[] =
        "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}, {net type: tcp1, local NI(s): "
        "[{nid: 10.0.0.2@tcp1}]}]\n"
        "route: [{net: tcp8, gateway: 10.0.0.9@tcp1}, {net: tcp9, gateway: 10.0.0.9@tcp}]\n"
        "buffers: {tiny: 100, small: 100, large: 100}\n";
    static const char to[] =
        "net: [{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}, {net type: tcp2, local NI(s): "
        "[{nid: 10.0.0.3@tcp2}]}]\n"
        "route: [{net: tcp8, gateway: 10.0.0.9@tcp2}, {net: tcp9, gateway: 10.0.0.9@tcp, hop: 2}]\n"
        "routing: {enable: 0}\n"
        "buffers: {tiny: 200, small: 50, large: 100}\n";
    static const enum cfg_step_kind want[] = {CFG_STEP_BUFFERS, CFG_STEP_NI_ADD, CFG_STEP_ROUTES,
                                              CFG_STEP_PART,    CFG_STEP_ROUTES, CFG_STEP_NI_DEL,
                                              CFG_STEP_BUFFERS};
    struct cfg_report report;
    struct cfg *a, *b;
    struct cfg_diff diff;
    struct cfg_plan plan;

    assert_int_equal(cfg_parse("a", from, strlen(from), &a, &report), 0);
    cfg_report_free(&report);
    assert_int_equal(cfg_parse("b", to, strlen(to), &b, &report), 0);
    cfg_report_free(&report);
    cfg_diff_make(a, b, &diff);
    cfg_plan_make(a, b, &diff, &plan);
    assert_int_equal(plan.count, sizeof(want) / sizeof(want[0]));
    for (unsigned i = 0; i < plan.count; i++)
        assert_int_equal(plan.step[i].kind, want[i]);
    assert_int_equal(plan.step[0].pools[0], 200);
    assert_int_equal(plan.step[0].pools[1], -1);
    assert_int_equal(plan.step[2].nadd,
                     2); /* the changed one with the new one, in one publication */
    assert_int_equal(plan.step[2].ndel, 1);
    assert_int_equal(plan.step[4].nadd, 0);
    assert_int_equal(plan.step[6].pools[1], 50);
    cfg_plan_free(&plan);
    cfg_diff_free(&diff);
    cfg_free(a);
    cfg_free(b);
}

/* What the driver of o2ib nets alone has: it restarts its NI, and means nothing to others. */
static void test_tunables_of_o2ib(void **state)
{
    static const char from[] = "net: [{net type: o2ib, local NI(s): [{nid: 10.2.0.1@o2ib}]}, "
                               "{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp}]}]\n";
    static const char to[] =
        "net: [{net type: o2ib, local NI(s): [{nid: 10.2.0.1@o2ib, lnd tunables: "
        "{peercredits_hiw: 6, ntx: 1024}}]}, "
        "{net type: tcp, local NI(s): [{nid: 10.0.0.1@tcp, lnd tunables: {concurrent_sends: 9}}]}]\n";
    struct cfg_report report;
    struct cfg *a, *b;
    struct cfg_diff diff;
    struct cfg_plan plan;
    unsigned i;

    assert_int_equal(cfg_parse("a", from, strlen(from), &a, &report), 0);
    cfg_report_free(&report);
    assert_int_equal(cfg_parse("b", to, strlen(to), &b, &report), 0);
    cfg_report_free(&report);
    cfg_diff_make(a, b, &diff);
    assert_int_equal(diff.count, 3);
    for (i = 0; i < diff.count; i++) {
        const struct cfg_change *c = &diff.change[i];
        bool hiw = strstr(c->key, "peercredits_hiw");

        assert_int_equal(c->kept, !hiw);
        assert_int_equal(c->applies, hiw ? CFG_NI_RESTART : CFG_AT_ONCE);
    }
    cfg_plan_make(a, b, &diff, &plan);
    assert_int_equal(plan.count, 2);
    assert_int_equal(plan.step[0].kind, CFG_STEP_NI_DEL);
    assert_int_equal(plan.step[1].kind, CFG_STEP_NI_ADD);
    assert_int_equal(*own_tunable(&plan.step[1].ni.conf.lnd_tun, "peercredits_hiw"), 6);
    cfg_plan_free(&plan);
    cfg_diff_free(&diff);
    /* As it is used already: no change. */
    a->ni[0].live =
        (struct cfg_ni_live){.known = true, .nid = a->ni[0].conf.nid, .lnd_tun = {1, 50, -1}};
    *own_tunable(&a->ni[0].live.lnd_tun, "peercredits_hiw") = 6;
    *own_tunable(&a->ni[0].live.lnd_tun, "concurrent_sends") = 8;
    *own_tunable(&b->ni[0].conf.lnd_tun, "ntx") = -1;
    *own_tunable(&b->ni[1].conf.lnd_tun, "concurrent_sends") = -1;
    cfg_diff_make(a, b, &diff);
    assert_int_equal(diff.count, 0);
    cfg_diff_free(&diff);
    cfg_free(a);
    cfg_free(b);
}

/* ---- onto a document ---- */

static struct cfg *onto(const struct cfg *base, enum cfg_mode mode, const char *text)
{
    struct cfg_text from = {
        .name = "text", .text = text, .len = strlen(text), .mode = mode, .base = base};
    struct cfg_report report;
    struct cfg *out;

    if (cfg_parse_onto(&from, &out, &report) != 0)
        fail_msg("%s", report.message[0].text);
    cfg_report_free(&report);
    return out;
}

/* What was merged and is deleted again leaves what was there. */
static void test_merge_and_delete(void **state)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        static const char more[] =
            "net: [{net type: tcp20, local NI(s): [{nid: 10.9.0.1@tcp20, tunables: {credits: 99}}]}]\n"
            "route: [{net: tcp30, gateway: 10.9.0.9@tcp20, hop: 3}]\n"
            "peer: [{primary nid: 10.9.0.50@tcp20, peer ni: [{nid: 10.9.0.50@tcp20}]}]\n"
            "udsp: [{idx: 0, src: tcp20, action: {priority: 1}}]\n"
            "millrace: {names: {10.9.0.50@tcp20: oss9}, "
            "hello_map: [{address: 10.9.0.5, nid: 10.9.0.6@tcp20}]}\n";
        struct cfg *a, *b, *c;

        seed = i;
        a = draw_document();
        b = onto(a, CFG_MERGE, more);
        assert_int_equal(b->ni_count, a->ni_count + 1);
        assert_int_equal(b->route_count, a->route_count + 1);
        assert_int_equal(b->peer_count, a->peer_count + 1);
        assert_int_equal(b->name_count, 1);
        c = onto(b, CFG_MERGE, more); /* once more: the same */
        is_same(b, c);
        cfg_free(c);
        c = onto(b, CFG_DELETE, more);
        is_same(a, c);
        cfg_free(a);
        cfg_free(b);
        cfg_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confirm),          cmocka_unit_test(test_rollback_of_defaults),
        cmocka_unit_test(test_rollback_fails),   cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_restart),          cmocka_unit_test(test_order),
        cmocka_unit_test(test_merge_and_delete), cmocka_unit_test(test_tunables_of_o2ib),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
