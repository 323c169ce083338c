/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the o2iblnd driver has given back is poisoned: buffers and descriptors of its connections,
 * connections, peers. Built with ASan only. Router buffers and landing memory: test_mem.c.
 */
#include "test/unit/ib_harness.h"

#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MSG 4096

static void expect_poisoned(const void *addr, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (!__asan_address_is_poisoned((const uint8_t *)addr + i))
            fail_msg("byte %zu of %zu can be used", i, size);
    }
}

static void expect_usable(const void *addr, size_t size)
{
    assert_null(__asan_region_is_poisoned((void *)(uintptr_t)addr, size));
}

static const struct fake_recv *posted(const struct fake_link *fl, unsigned i)
{
    assert_true(i < fl->nrecvs);
    return &fl->recvs[(fl->recv_head + i) % (2 * FAKE_DEPTH + 2)];
}

/* A receive buffer is the device's until something has come, and then so much of it as has. */
static void test_receives(void **state)
{
    struct fake_link *fl = ih_called();
    struct pe_msg m = ih_immediate(100, 0);
    const uint8_t *buf = posted(fl, 0)->addr;
    const struct lnet_rx *rx;

    (void)state;
    for (unsigned i = 0; i < fl->nrecvs; i++)
        expect_poisoned(posted(fl, i)->addr, MSG);
    core.parse = IH_LATER;
    ih_say(fl, &m);
    expect_usable(buf, 100);
    expect_poisoned(buf + MSG / 2, MSG / 2);
    rx = ih_waiting()->rx;
    expect_usable(rx, sizeof(*rx));
    ih_recv(ih_waiting(), 100);
    expect_poisoned(buf, MSG);
    expect_poisoned(rx, sizeof(*rx));
}

static void expect_sent_away(struct fake_link *fl)
{
    struct ibv_sge sge = fl->wrs->sge[0];
    const uint8_t *from = (const uint8_t *)(uintptr_t)sge.addr;

    expect_usable(from, sge.length);
    fake_complete(fl, 1);
    fake_settle();
    expect_poisoned(from, sge.length);
}

static void test_sends(void **state)
{
    struct fake_link *fl = ih_called();

    (void)state;
    fl->hold_sends = true;
    ih_put(10);
    expect_sent_away(fl);
    ih_send(ih_msg(0, PEER, LNET_MSG_PUT, 3000, -1, 1)); /* from bounce memory */
    fake_settle();
    assert_true(fl->wrs->sge[0].length > 3000);
    expect_sent_away(fl);
}

static void test_ends(void **state)
{
    struct fake_link *fl = ih_called();
    const struct rdma_link *link = fl->link;
    const struct ib_peer *p = ih_peer(0, PEER)->lnd_peer;

    (void)state;
    expect_usable(link, sizeof(*link));
    expect_usable(p, sizeof(void *) * 4);
    ih_stop(0);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    expect_poisoned(link, sizeof(*link));
    expect_poisoned((const void *const *)p + 2, sizeof(void *) * 2); /* behind what is kept */
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_receives), T(test_sends), T(test_ends)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
