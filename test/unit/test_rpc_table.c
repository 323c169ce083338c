/* SPDX-License-Identifier: BSD-3-Clause */
/* What the table of methods must say of each, and that docs/jsonrpc.md says the same. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rpc/engine/rpc_openrpc.h"
#include "rpc/engine/rpc_table.h"

static const struct jrpc_method *find(const char *name)
{
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static bool is_sentence(const char *text)
{
    size_t len = text ? strlen(text) : 0;

    return len > 5 && isupper((unsigned char)text[0]) && text[len - 1] == '.';
}

static void check_param(const struct jrpc_method *m, const struct jrpc_param *p)
{
    if (!p->help || !p->help[0] || p->help[strlen(p->help) - 1] == '.')
        fail_msg("%s: parameter %s: help is words without a full stop", m->name, p->name);
    for (const char *c = p->name; *c; c++)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            fail_msg("%s: parameter '%s' is not in small letters", m->name, p->name);
    if (p->type >= JRPC_OBJECT)
        fail_msg("%s: parameter %s is of a type for results", m->name, p->name);
    if ((p->type == JRPC_INTEGER || p->type == JRPC_NUMBER) && p->min >= p->max)
        fail_msg("%s: parameter %s has no range", m->name, p->name);
    if ((p->type == JRPC_STRING || p->type == JRPC_TEXT || p->type == JRPC_STRINGS) && p->max <= 0)
        fail_msg("%s: parameter %s has no greatest length", m->name, p->name);
    if ((p->type == JRPC_WORD) != (p->words != NULL))
        fail_msg("%s: parameter %s: words belong to the type word", m->name, p->name);
}

static void check_fields(const struct jrpc_method *m, const struct jrpc_field *f, unsigned depth)
{
    if (depth > 12)
        fail_msg("%s: members are nested too deeply", m->name);
    for (; f->name; f++) {
        if (!f->name[0] || f->type == JRPC_WORD || f->type >= JRPC_TYPES)
            fail_msg("%s: member '%s'", m->name, f->name);
        if (f->sub && f->type != JRPC_OBJECT && f->type != JRPC_ARRAY && f->type != JRPC_MAP)
            fail_msg("%s: member %s is no object and has members", m->name, f->name);
        if (f->sub)
            check_fields(m, f->sub, depth + 1);
    }
}

static void test_rows(void **state)
{
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++) {
        unsigned n = 0;

        if (find(m->name) != m)
            fail_msg("%s is there twice", m->name);
        if (!is_sentence(m->help))
            fail_msg("%s: help is a sentence", m->name);
        if (!m->result || !m->result[0] || m->result[strlen(m->result) - 1] == '.')
            fail_msg("%s: result is words without a full stop", m->name);
        for (const struct jrpc_param *p = m->params; p && p->name; p++) {
            check_param(m, p);
            for (const struct jrpc_param *q = m->params; q != p; q++)
                if (strcmp(p->name, q->name) == 0)
                    fail_msg("%s: two parameters %s", m->name, p->name);
            if (p != m->params && p->required && !p[-1].required)
                fail_msg("%s: %s is required and comes behind one that is not", m->name, p->name);
            n++;
        }
        assert_true(n <= JRPC_MAX_PARAMS);
        if (m->fields)
            check_fields(m, m->fields, 1);
        if (m->fields && rpc_result_is_true(m))
            fail_msg("%s: `true` has no members", m->name);
    }
}

/* Every result that is not `true` says what it is made of. */
static void test_fields(void **state)
{
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        if (!m->fields && !rpc_result_is_true(m))
            fail_msg("%s has no FIELDS", m->name);
}

static void test_roles(void **state)
{
    static const char *const change[] = {"_set", "_add", "_del", "_reset", "_apply", "_save"};
    static const char *const operate[] = {"route_add",   "route_del",   "peer_add",    "peer_del",
                                          "peer_set",    "routing_set", "stats_reset", "discover",
                                          "drain_start", "drain_undo",  "udsp_add",    "udsp_del"};

    for (const struct jrpc_method *m = rpc_method_table; m->name; m++)
        for (size_t i = 0; i < sizeof(change) / sizeof(change[0]); i++)
            if (strstr(m->name, change[i]) && m->role == JRPC_READ)
                fail_msg("%s changes something and needs no role for it", m->name);
    for (const struct jrpc_method *m = rpc_method_table; m->name; m++) {
        unsigned found = 0;

        for (size_t i = 0; i < sizeof(operate) / sizeof(operate[0]); i++)
            found += strcmp(m->name, operate[i]) == 0;
        if (found != (m->role == JRPC_OPERATOR))
            fail_msg("%s needs the role %s", m->name, jrpc_role_name(m->role));
    }
    assert_int_equal(find("shutdown")->role, JRPC_ADMIN);
    assert_int_equal(find("start")->role, JRPC_ADMIN);
    assert_int_equal(find("start")->phase, JRPC_STARTUP);
    assert_int_equal(find("version")->phase, JRPC_ALWAYS);
    assert_int_equal(find("net_get")->role, JRPC_READ);
}

static char *read_all(FILE *f)
{
    char *text = NULL;
    size_t room = 0;

    assert_non_null(f);
    rewind(f);
    assert_true(getdelim(&text, &room, '\0', f) > 0);
    fclose(f);
    return text;
}

/* The committed reference is the one of this table. */
static void test_reference(void **state)
{
    char *have = read_all(fopen(TEST_DOCS "/jsonrpc.md", "r")), *want;
    char *mark = strstr(have, RPC_DOCS_MARK);
    FILE *f = tmpfile();

    assert_non_null(f);
    rpc_docs_write(f, rpc_method_table);
    want = read_all(f);
    if (!mark || strcmp(mark + strlen(RPC_DOCS_MARK), want) != 0)
        fail_msg("docs/jsonrpc.md is older than the table of methods: ./dev docs");
    free(have);
    free(want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
