/* SPDX-License-Identifier: BSD-3-Clause */
/* The grammar of reactor_opts.cores and the --lcores argument made of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/base/err.h"
#include "lib/reactor/reactor_internal.h"

static cpu_set_t cores_0_to_15(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int i = 0; i < 16; i++)
        CPU_SET(i, &set);
    return set;
}

static void check(const char *text, unsigned n, const unsigned cpus[], const unsigned cpts[])
{
    cpu_set_t allowed = cores_0_to_15();
    struct core_plan plan;
    struct err err = {0};

    if (cores_parse(text, 0, &allowed, &plan, &err) != 0)
        fail_msg("%s", err.message);
    assert_true(plan.pinned);
    assert_int_equal(plan.count, n);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(plan.core[i].cpu, cpus[i]);
        assert_int_equal(plan.core[i].cpt, cpts[i]);
    }
}

static void test_plain_lists(void **state)
{
    check("5", 1, (unsigned[]){5}, (unsigned[]){0});
    check("2,3", 2, (unsigned[]){2, 3}, (unsigned[]){0, 1});
    check("3,0-1,15", 4, (unsigned[]){3, 0, 1, 15}, (unsigned[]){0, 1, 2, 3});
    check("4-4", 1, (unsigned[]){4}, (unsigned[]){0});
}

static void test_labelled(void **state)
{
    check("0:2,3;1:8-11", 6, (unsigned[]){2, 3, 8, 9, 10, 11}, (unsigned[]){0, 0, 1, 1, 1, 1});
    check("7:1;3:0", 2, (unsigned[]){1, 0}, (unsigned[]){7, 3});
}

static void test_auto(void **state)
{
    cpu_set_t allowed = cores_0_to_15();
    struct core_plan plan;
    struct err err = {0};

    assert_int_equal(cores_parse("auto", 0, &allowed, &plan, &err), 0);
    assert_false(plan.pinned);
    assert_int_equal(plan.count, 1);
    assert_int_equal(cores_parse("auto", 3, &allowed, &plan, &err), 0);
    assert_int_equal(plan.count, 3);
    assert_int_equal(plan.core[2].cpt, 2);
    assert_int_equal(cores_parse(NULL, REACTOR_MAX, &allowed, &plan, &err), 0);
    assert_int_equal(plan.count, REACTOR_MAX);
    assert_int_equal(cores_parse("auto", REACTOR_MAX + 1, &allowed, &plan, &err), -EINVAL);
    assert_non_null(strstr(err.message, "65 reactors"));
}

static void test_errors(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } wrong[] = {
        {"", "core number expected"},
        {"automatic", "core number expected at \"automatic\""},
        {"1,", "core number expected at \"\""},
        {",1", "core number expected at \",1\""},
        {"1 ,2", "cannot read \" ,2\""},
        {"1-", "core number expected"},
        {"-1", "core number expected"},
        {"3-1", "runs backwards"},
        {"1,1", "core 1 is named twice"},
        {"0-2,1", "core 1 is named twice"},
        {"0:1;1:1", "core 1 is named twice"},
        {"16", "core 16 is not among those"},
        {"1024", "core number must be below 1024"},
        {"99999999999999999999", "core number must be below 1024"},
        {"1;2", "\":\" expected after CPT 1"},
        {"0:1;2", "\":\" expected after CPT 2"},
        {":1", "CPT number expected"},
        {"0:", "core number expected"},
        {"0:1;", "CPT number expected"},
        {"0:1;0:2", "CPT 0 is named twice"},
        {"64:1", "CPT number must be below 64"},
        {"0:1:2", "cannot read \":2\""},
        {"0x1", "cannot read \"x1\""},
    };
    cpu_set_t allowed = cores_0_to_15();

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct core_plan plan;
        struct err err = {0};

        if (cores_parse(wrong[i].text, 0, &allowed, &plan, &err) != -EINVAL)
            fail_msg("accepted: %s", wrong[i].text);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("\"%s\" gave: %s", wrong[i].text, err.message);
    }
}

static void test_too_many(void **state)
{
    struct core_plan plan;
    cpu_set_t allowed;
    struct err err = {0};

    CPU_ZERO(&allowed);
    for (int i = 0; i < 128; i++)
        CPU_SET(i, &allowed);
    assert_int_equal(cores_parse("0-63", 0, &allowed, &plan, &err), 0);
    assert_int_equal(plan.count, 64);
    assert_int_equal(cores_parse("0-64", 0, &allowed, &plan, &err), -EINVAL);
    assert_non_null(strstr(err.message, "more than 64 cores"));
}

/* A message that is longer than its place is cut, not overrun. */
static void test_long_err(void **state)
{
    cpu_set_t allowed = cores_0_to_15();
    struct core_plan plan;
    struct err err = {0};
    char text[2 * sizeof(err.message)];

    memset(text, '7', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(cores_parse(text, 0, &allowed, &plan, &err), -EINVAL);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_int_equal(strncmp(err.message, "cores \"777", 10), 0);
    assert_int_equal(err.code, -EINVAL);
    assert_int_equal(err.remedy[0], '\0');
}

static void check_lcores(const char *text, unsigned count, const cpu_set_t *allowed,
                         const char *expected)
{
    struct core_plan plan;
    struct err err = {0};
    char *arg;

    assert_int_equal(cores_parse(text, count, allowed, &plan, &err), 0);
    arg = cores_lcores_arg(&plan, allowed);
    assert_non_null(arg);
    assert_string_equal(arg, expected);
    free(arg);
}

static void test_lcores(void **state)
{
    cpu_set_t allowed = cores_0_to_15(), holes, one;

    CPU_ZERO(&holes);
    CPU_SET(1, &holes);
    CPU_SET(4, &holes);
    CPU_SET(5, &holes);
    CPU_ZERO(&one);
    CPU_SET(3, &one);
    check_lcores("auto", 2, &allowed, "0@(0-15),1@(0-15),2@(0-15)");
    check_lcores("auto", 1, &holes, "0@(1,4-5),1@(1,4-5)");
    check_lcores("1:5;0:1", 0, &holes, "0@(4),1@5,2@1");
    check_lcores("3", 0, &one, "0@(3),1@3"); /* nothing left for control: it shares */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_lists), cmocka_unit_test(test_labelled),
        cmocka_unit_test(test_auto),        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_too_many),    cmocka_unit_test(test_long_err),
        cmocka_unit_test(test_lcores),
    };

    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
