/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The running document on a model of a node: whatever two documents are, a change from one to the
 * other makes the node what the second says, in an order that keeps what both have; and whichever
 * step fails, the node is what the first says again.
 */
#include "running_test.h"

static void test_any_change(void **state)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct cfg *a, *b;
        struct cfg_running *r;

        seed = i;
        a = draw_document();
        b = draw_document();
        r = start(a);
        node.later = i % 2;
        is_same(a, cfg_running_get(r));
        if (change(r, b, 0) != 0)
            fail_msg("round %u: %s", i, outcome_err);
        is_model_of(b);
        is_same(cfg_running_get(r), b);
        assert_int_equal(cfg_running_revision(r), 2);
        assert_string_equal(node.event, "config_applied");
        /* again: nothing is left to be done */
        node.calls = 0;
        assert_int_equal(change(r, b, 0), 0);
        assert_int_equal(node.calls, 0);
        cfg_running_free(r);
        cfg_free(a);
        cfg_free(b);
    }
}

static void test_any_step_fails(void **state)
{
    unsigned tried = 0;

    for (unsigned i = 0; i < ROUNDS / 4; i++) {
        seed = i;
        for (unsigned step = 1;; step++) {
            struct cfg *a, *b;
            struct cfg_running *r;
            int rc;

            seed = i;
            a = draw_document();
            b = draw_document();
            r = start(a);
            node.later = i % 2;
            node.fail = step;
            rc = change(r, b, 0);
            if (rc == 0) {
                is_model_of(b);
            } else {
                is_model_of(a);
                is_same(cfg_running_get(r), a);
                assert_int_equal(cfg_running_revision(r), 1);
                assert_int_equal(node.events, 0);
                assert_false(outcome.broken);
                assert_true(outcome_err[0]);
                node.fail = 0;
                assert_int_equal(change(r, b, 0), 0); /* what failed can be done later */
                is_model_of(b);
                tried++;
            }
            cfg_running_free(r);
            cfg_free(a);
            cfg_free(b);
            if (rc == 0)
                break;
        }
    }
    assert_true(tried > ROUNDS / 4);
}

/* When undoing fails too, that is said. */
static void test_not_undone(void **state)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < 50; i++) {
        struct cfg *a, *b;
        struct cfg_running *r;

        seed = i;
        a = draw_document();
        b = draw_document();
        r = start(a);
        node.broken = 2;
        if (change(r, b, 0) != 0) {
            assert_true(outcome.broken);
            assert_non_null(strstr(outcome_err, "could not all be undone"));
            seen++;
        }
        cfg_running_free(r);
        cfg_free(a);
        cfg_free(b);
    }
    assert_true(seen > 10);
}

/* What is written is read as the same, in every form. */
static void test_written(void **state)
{
    static const enum cfg_form forms[] = {CFG_FORM_RUNNING, CFG_FORM_BACKUP, CFG_FORM_FILE};

    for (unsigned i = 0; i < ROUNDS; i++) {
        struct cfg *a, *b;
        struct cfg_running *r;

        seed = i;
        a = draw_document();
        r = start(a);
        for (unsigned f = 0; f < 3; f++) {
            char *text = cfg_text(cfg_running_get(r), forms[f]);
            struct cfg_report report;

            assert_non_null(text);
            if (cfg_parse("text", text, strlen(text), &b, &report) != 0)
                fail_msg("%s\n%s", report.message[0].text, text);
            is_same(cfg_running_get(r), b);
            cfg_report_free(&report);
            cfg_free(b);
            free(text);
        }
        cfg_running_free(r);
        cfg_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_change),
        cmocka_unit_test(test_any_step_fails),
        cmocka_unit_test(test_not_undone),
        cmocka_unit_test(test_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
