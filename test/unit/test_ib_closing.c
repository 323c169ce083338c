/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that the device has acknowledged and that are looked at when their connection is being
 * closed already, or never came up: taken if all of them is there, else dropped by name.
 * docs/protocol/o2iblnd.md §6.2.
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define BIG (100u << 10)

static struct ih_row table[] = {
    {"immediate", "IMMEDIATE: received"},
    {"batch", "what completed well behind a send that failed: received"},
    {"put-done", "PUT_DONE: the PUT is received; of something else, or negative: named"},
    {"request", "PUT_REQ: dropped by name, not answered"},
    {"silent", "NOOP and answers: nothing is lost with them"},
    {"wait", "the core makes it wait: taken back, dropped by name"},
    {"refused", "the core calls it a protocol error: named"},
    {"bad", "not understood, or beyond the credits: named"},
    {"short", "less payload than its header says: named"},
    {"stop", "the NI stops: dropped as that"},
    {"removed", "it stops as it was removed: dropped as that"},
    {"shut", "the device gave it back too late: dropped by name"},
    {"early", "it came before its connection was up, which it never was: dropped by name"},
    {"early-bad", "one that came before it was up closes it: those behind it are received"},
};

static struct fake_link *fl;

static int setup(void **state)
{
    ih_setup_plain(state);
    fl = ih_called();
    return 0;
}

/* What is delivered now is seen once the connection is being closed. */
static void hold(void)
{
    fl->hold_recvs = fl->hold_flush = true;
}

static void ended_by_peer(void)
{
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_DOWN);
}

static void see(unsigned n)
{
    fake_show(fl, n);
    fake_settle();
}

static void expect_closed(void)
{
    fl->hold_recvs = false;
    fake_flush(fl, UINT32_MAX);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.open, 0);
}

static unsigned all_drops(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < LNET_DROP_COUNT; i++)
        n += core.drops[i];
    return n;
}

static void rows_immediate(void **state)
{
    struct pe_msg m = ih_immediate(1000, 0);

    (void)state;
    hold();
    ih_say(fl, &m);
    m = ih_immediate(0, 0);
    ih_say(fl, &m);
    ended_by_peer();
    see(1);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_expect_pattern(ih_last()->data, 1000);
    see(1);
    assert_int_equal(core.nreceived, 2);
    expect_closed();
    assert_int_equal(core.nreceived, 2);
    assert_int_equal(all_drops(), 0);
    ih_row("immediate");
}

/* All in one batch, the failed one first. */
static void rows_batch(void **state)
{
    struct pe_msg m = ih_immediate(100, 0);
    struct ih_msg *out;

    (void)state;
    fl->hold_sends = true;
    out = ih_put(10);
    hold();
    for (unsigned i = 0; i < 8; i++)
        ih_tell(fl, &m);
    fake_fail_send(fl, IBV_WC_RETRY_EXC_ERR);
    see(8);
    assert_int_equal(core.nreceived, 8);
    assert_int_equal(core.drops[IB_DROP(SEND)], 1);
    assert_int_equal(all_drops(), 1);
    expect_closed();
    ih_expect_health(out, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("batch");
}

static struct pe_msg offer(uint64_t cookie)
{
    struct pe_msg m = ih_put_req(BIG, cookie, 0);

    ih_say(fl, &m);
    return ih_take(fl, PE_PUT_ACK);
}

static void rows_put_done(void **state)
{
    struct pe_msg m, good = offer(1), bad = offer(2), missing = offer(3);
    /* No window can be invalidated any more: these end with the queue pair. */
    bool late = fake.remote_keys == RDMA_KEYS_WINDOWS;

    (void)state;
    (void)missing;
    hold();
    m = ih_completion(PE_PUT_DONE, good.dst_cookie, BIG);
    ih_say(fl, &m);
    m = ih_completion(PE_PUT_DONE, bad.dst_cookie, -EIO);
    ih_say(fl, &m);
    fl->hostile = true;
    m = ih_completion(PE_PUT_DONE, good.dst_cookie, BIG);
    ih_say(fl, &m);
    fl->hostile = false;
    ended_by_peer();
    assert_int_equal(core.open, 3);
    see(1);
    assert_int_equal(core.nreceived, late ? 0 : 1);
    see(1);
    assert_int_equal(core.nreceived, late ? 0 : 2);
    see(1);
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    assert_int_equal(all_drops(), 1);
    assert_int_equal(core.open, late ? 3 : 1);
    expect_closed();
    assert_int_equal(core.rxs->next->next->result.reason, LNET_DROP_NONE);
    assert_int_equal(core.rxs->next->next->mlen, BIG);
    assert_int_equal(core.rxs->next->result.reason, IB_DROP(PEER_FAILED));
    assert_int_equal(core.rxs->result.reason, LNET_DROP_RX_INCOMPLETE);
    ih_row("put-done");
}

static void rows_request(void **state)
{
    struct pe_msg m;

    (void)state;
    hold();
    for (unsigned i = 0; i < 3; i++) {
        m = ih_put_req(BIG, i, 0);
        ih_say(fl, &m);
    }
    m = ih_base(PE_NOOP, 0);
    ih_say(fl, &m);
    ended_by_peer();
    see(3);
    assert_int_equal(core.nreceived, 0);
    assert_int_equal(core.drops[LNET_DROP_RX_INCOMPLETE], 3);
    ih_nothing(fl);
    ih_row("request");
    see(1);
    expect_closed();
    assert_int_equal(all_drops(), 3);
    fl = ih_called();
    {
        struct ih_msg *out = ih_put(BIG);
        uint64_t cookie = ih_take(fl, PE_PUT_REQ).cookie;

        hold();
        m = ih_completion(PE_PUT_NAK, cookie, 0);
        ih_say(fl, &m);
        ended_by_peer();
        see(1);
        expect_closed();
        assert_int_equal(out->result.reason, LNET_DROP_NEXT_HOP_LOST); /* its own end */
    }
    assert_int_equal(all_drops(), 3);
    ih_row("silent");
}

static void rows_wait(void **state)
{
    struct pe_msg m = ih_immediate(100, 0);

    (void)state;
    hold();
    ih_say(fl, &m);
    ended_by_peer();
    core.parse = IH_LATER;
    see(1);
    assert_int_equal(core.open, 1);
    expect_closed();
    assert_int_equal(ih_last()->result.reason, LNET_DROP_RX_INCOMPLETE);
    fl = ih_called();
    hold();
    ih_say(fl, &m);
    ended_by_peer();
    core.no_cancel = true;
    see(1);
    fl->hold_recvs = false;
    fake_flush(fl, UINT32_MAX);
    fake_settle();
    assert_int_equal(fl->shuts, 0); /* its payload lies in the area */
    ih_recv(ih_waiting(), 100);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_expect_pattern(ih_last()->data, 100);
    expect_closed();
    ih_row("wait");
    core.parse = IH_REFUSE;
    core.refusal = LNET_DROP_HDR_TYPE;
    fl = ih_called();
    hold();
    ih_say(fl, &m);
    ended_by_peer();
    see(1);
    expect_closed();
    assert_int_equal(core.drops[LNET_DROP_HDR_TYPE], 1);
    assert_int_equal(all_drops(), 1);
    ih_row("refused");
}

static void rows_bad(void **state)
{
    struct pe_msg m = ih_immediate(10, 0), worse = m;

    (void)state;
    hold();
    fl->hostile = true;
    worse.src_stamp++;
    ih_say(fl, &worse);
    worse = ih_immediate(10, 9); /* nothing was sent to it */
    ih_say(fl, &worse);
    for (unsigned i = 0; i < 9; i++)
        ih_say(fl, &m);
    ended_by_peer();
    see(2);
    assert_int_equal(core.drops[IB_DROP(STAMP)], 1);
    assert_int_equal(core.drops[IB_DROP(CREDITS)], 1);
    assert_int_equal(core.nreceived, 0);
    see(9);
    assert_int_equal(core.nreceived, 8);
    assert_int_equal(core.drops[IB_DROP(SPENT)], 1);
    ih_row("bad");
    expect_closed();
    assert_int_equal(core.downs, 0);
    fl = ih_called();
    hold();
    fl->hostile = true;
    m.lnet.len = 11;
    ih_say(fl, &m);
    ended_by_peer();
    see(1);
    expect_closed();
    assert_int_equal(core.drops[IB_DROP(PAYLOAD)], 1);
    assert_int_equal(core.nreceived, 8);
    ih_row("short");
}

static void stop(enum lnet_drop as)
{
    struct pe_msg m = ih_immediate(10, 0);

    hold();
    ih_say(fl, &m);
    m = ih_put_req(BIG, 1, 0);
    ih_say(fl, &m);
    ih_stop_later(0);
    see(2);
    assert_int_equal(core.nreceived, 0);
    assert_int_equal(core.drops[as], 2);
    assert_int_equal(all_drops(), 2);
    expect_closed();
    assert_true(ih_stopped(0));
}

static void rows_stop(void **state)
{
    (void)state;
    stop(LNET_DROP_SHUTDOWN);
    ih_row("stop");
}

static void rows_removed(void **state)
{
    (void)state;
    ih_ni(0)->state = LNET_NI_REMOVED;
    stop(LNET_DROP_NI_REMOVED);
    ih_row("removed");
}

static void rows_shut(void **state)
{
    struct pe_msg m = ih_immediate(10, 0);

    (void)state;
    hold();
    ih_say(fl, &m);
    ended_by_peer();
    fake.manual_close = true;
    ir_advance(6 * IR_SEC);
    assert_int_equal(fl->phase, FAKE_SHUT);
    see(1);
    assert_int_equal(core.nreceived, 0);
    assert_int_equal(core.drops[LNET_DROP_RX_INCOMPLETE], 1);
    fake.manual_close = false;
    fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    ih_row("shut");
}

/* The caller sends as soon as it is let in; that it is through is told later, or never. */
static struct fake_link *let_in(void)
{
    struct fake_call *call = ih_call();
    struct pe_msg ack;

    assert_non_null(call->link);
    assert_int_equal(call->link->phase, FAKE_ACCEPTING);
    assert_true(pe_decode(call->link->priv, call->link->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    return call->link;
}

static void rows_early(void **state)
{
    struct pe_msg m = ih_immediate(10, 0);

    (void)state;
    fl = let_in();
    ih_say(fl, &m);
    m = ih_put_req(BIG, 1, 0);
    ih_say(fl, &m);
    m = ih_base(PE_NOOP, 0);
    ih_say(fl, &m);
    fl->hold_recvs = fl->hold_flush = true;
    m = ih_immediate(10, 0);
    ih_say(fl, &m);
    fake_tell(fl, RDMA_EV_FAILED, -ENOTCONN, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.drops[LNET_DROP_RX_INCOMPLETE], 2);
    see(1);
    assert_int_equal(core.drops[LNET_DROP_RX_INCOMPLETE], 3);
    assert_int_equal(core.nreceived, 0);
    expect_closed();
    assert_int_equal(core.drops[LNET_DROP_RX_INCOMPLETE], 3);
    ih_row("early");
}

static void rows_early_bad(void **state)
{
    struct pe_msg m = ih_immediate(10, 0), bad = m;

    (void)state;
    fl = let_in();
    fl->hostile = true;
    ih_say(fl, &m);
    bad.src_stamp++;
    ih_say(fl, &bad);
    ih_say(fl, &m);
    ih_say(fl, &m);
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.nreceived, 3);
    assert_int_equal(core.drops[IB_DROP(STAMP)], 1);
    assert_int_equal(all_drops(), 1);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    ih_row("early-bad");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_immediate), T(rows_batch), T(rows_put_done),  T(rows_request),
        T(rows_wait),      T(rows_bad),   T(rows_stop),      T(rows_removed),
        T(rows_shut),      T(rows_early), T(rows_early_bad),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
