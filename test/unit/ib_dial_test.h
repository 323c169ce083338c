/* SPDX-License-Identifier: BSD-3-Clause */
/* What the tests of calling share: a message that makes the driver call, and the call's answers. */
#ifndef MILLRACE_IB_DIAL_TEST_H
#define MILLRACE_IB_DIAL_TEST_H

#include "test/unit/ib_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WHY_RACE      1
#define WHY_RESOURCES 2
#define WHY_FATAL     3
#define WHY_STALE     5
#define WHY_FRAGS     6
#define WHY_DEPTH     7
#define WHY_EARLY     9

static inline struct ih_msg *one(void)
{
    return ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
}

static inline struct pe_msg asked(void)
{
    struct fake_link *fl = fake_newest();
    struct pe_msg m;

    assert_non_null(fl);
    assert_int_equal(fl->phase, FAKE_CONNECTING);
    assert_int_equal(fl->priv_len, 56);
    assert_true(pe_decode(fl->priv, fl->priv_len, &m));
    assert_int_equal(m.type, PE_CONNREQ);
    return m;
}

/* What is done "at once" is done by a timer of 0. */
static inline void soon(void)
{
    ir_advance(2000);
    fake_settle();
}

static inline void answer(const struct ih_msg *m)
{
    ih_answer();
    assert_int_equal(fake_newest()->phase, FAKE_UP);
    ih_take(fake_newest(), PE_IMMEDIATE);
    ih_expect_ok(m);
}

static inline void tell(enum rdma_event_kind kind, int error, int status)
{
    fake_tell(fake_newest(), kind, error, status, NULL, 0);
    fake_settle();
}

#define T(fn)          cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)
#define T_IN(fn, how_) cmocka_unit_test_setup_teardown(fn, how_, ih_teardown)

#endif
