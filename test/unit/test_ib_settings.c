/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings of the o2iblnd driver as its provider sees them when it listens, calls and accepts:
 * other ones than the defaults, and the defaults. docs/protocol/o2iblnd.md §1.1, §7.
 */
#include "lib/base/err.h"
#include "test/unit/ib_harness.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct ih_row table[] = {
    {"7/defaults", "service 987, privileged port, no ToS, retry 5, rnr 6"},
    {"7/service", "where it listens and what it calls"},
    {"7/use_privileged_port", "off: any source port"},
    {"7/tos", "of the NI: before the address is resolved"},
    {"7/tos-set", "changed while it runs: the next call"},
    {"7/retry_count", "of calls and of those that are accepted"},
    {"7/rnr_retry_count", "the same"},
};

static int setup_other(void **state)
{
    ih_defaults();
    ih_opts.verbs.service = 1234;
    ih_opts.verbs.use_privileged_port = false;
    ih_opts.verbs.retry_count = 3;
    ih_opts.verbs.rnr_retry_count = 2;
    ih_opts.tos = 104;
    return ih_setup(state);
}

/* A message has us call; the call as the provider sees it, which is accepted. */
static struct fake_link *called(void)
{
    struct fake_link *fl;

    ih_put(10);
    fl = fake_newest();
    assert_non_null(fl);
    assert_true(fl->active);
    ih_answer();
    assert_int_equal(fl->phase, FAKE_UP);
    return fl;
}

static void rows_defaults(void **state)
{
    struct fake_link *fl;

    (void)state;
    assert_int_equal(fake_service(0), 987);
    fl = called();
    assert_int_equal(ntohs(fl->dial.to.sin_port), 987);
    assert_true(fl->dial.privileged);
    assert_int_equal(fl->dial.tos, -1);
    assert_int_equal(fl->retry, 5);
    assert_int_equal(fl->rnr_retry, 6);
    ih_persona_is(PEER2);
    fl = ih_called();
    assert_int_equal(fl->retry, 5);
    assert_int_equal(fl->rnr_retry, 6);
    ih_row("7/defaults");
}

static void set_tos(int tos)
{
    struct lnd_tunables t = LND_TUNABLES_DEFAULT;
    struct err err = {0};

    t.tos = tos;
    assert_int_equal(lnd_verbs_ops.ni_set(ih_ni(0), &t, &err), 0);
}

static void rows_other(void **state)
{
    struct fake_link *out, *in;

    (void)state;
    assert_int_equal(fake_service(0), 1234);
    out = called();
    assert_int_equal(ntohs(out->dial.to.sin_port), 1234);
    ih_row("7/service");
    assert_false(out->dial.privileged);
    ih_row("7/use_privileged_port");
    assert_int_equal(out->dial.tos, 104);
    ih_row("7/tos");
    ih_persona_is(PEER2);
    in = ih_called();
    assert_int_equal(out->retry, 3);
    assert_int_equal(in->retry, 3);
    ih_row("7/retry_count");
    assert_int_equal(out->rnr_retry, 2);
    assert_int_equal(in->rnr_retry, 2);
    ih_row("7/rnr_retry_count");
    fake_tell(out, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    set_tos(0);
    ih_persona_is(PEER);
    assert_int_equal(called()->dial.tos, 0);
    ih_row("7/tos-set");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_defaults, ih_setup_plain, ih_teardown),
        cmocka_unit_test_setup_teardown(rows_other, setup_other, ih_teardown),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
