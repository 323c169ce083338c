/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How connections of the o2iblnd driver end, and what the core is told: timeouts, drain, shutdown,
 * devices; row by row of docs/protocol/o2iblnd.md §6.1 to §6.3 and §4.6.
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BIG  (100u << 10)
#define KEY  0x4711u
#define ADDR 0x7f0000200003ull

static struct ih_row table[] = {
    {"6.1/queued", "a message that waits for credit for the timeout: closed, LOCAL_TIMEOUT"},
    {"6.1/sending", "a message that is never sent: closed, NETWORK_TIMEOUT"},
    {"6.1/waiting", "an answer that never comes: closed, REMOTE_TIMEOUT"},
    {"6.1/anew", "the time of a PUT begins anew with its PUT_DONE"},
    {"6.1/answer", "an answer of ours that is never sent: closed"},
    {"6.1/all", "one that expires closes the connection, each is told by its own state"},
    {"6.1/set", "the timeout that was set counts"},
    {"6.2/first", "the first reason stands, one is counted"},
    {"6.2/drain", "the queue pair stays until all that was posted has completed"},
    {"6.2/never", "it is destroyed all the same when that does not happen for 5 s"},
    {"6.2/late", "completions polled after it is gone are not looked at"},
    {"6.2/clean", "ended by the peer: no error, the peer is not down"},
    {"6.2/device", "ended by the device: an error, the peer is down"},
    {"6.2/last", "the peer is down when its last connection failed"},
    {"6.2/again", "the next message calls"},
    {"6.3/active",
     "closed for another reason: what the peer has not answered says nothing of health"},
    {"6.3/flushed", "what was being sent: REMOTE_DROPPED, as its completion is an error"},
    {"6.3/queued", "closed for another reason: what was queued: LOCAL_ERROR"},
    {"6.3/lost", "send error: REMOTE_DROPPED"},
    {"6.3/recv", "an error completion of a receive: closed"},
    {"6.3/stop", "stopping: SHUTDOWN for all, whatever they were doing"},
    {"6.3/stop-calls", "stopping while calling and being called"},
    {"6.3/quiesce", "quiescing: what comes is received, no credits are given"},
    {"6.3/abort", "aborted by the core: with its reason"},
    {"4.6/idle", "asleep: a completion wakes the reactor"},
    {"4.6/spin", "a reactor that spins arms nothing"},
    {"4.6/inline", "small messages are inline, WRITEs not signalled"},
    {"4.7/port", "port events become the state of the NI"},
};

static struct fake_link *fl;
static uint8_t *theirs;

static int setup_more(void **state)
{
    ih_setup(state);
    fl = ih_called();
    theirs = calloc(1, 1 << 20);
    fake_export(KEY, ADDR, theirs, 1 << 20);
    return 0;
}

static int setup(void **state)
{
    ih_defaults();
    return setup_more(state);
}

static int teardown(void **state)
{
    ih_teardown(state);
    free(theirs);
    return 0;
}

static void expect_closed(void)
{
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
}

static struct pe_msg offer(uint32_t len, uint64_t cookie)
{
    struct pe_msg m = ih_put_req(len, cookie, 0);

    ih_say(fl, &m);
    return m;
}

/* ---- §6.1 ---- */

static void rows_timeout_queued(void **state)
{
    struct ih_msg *m[9];

    for (unsigned i = 0; i < 9; i++)
        m[i] = ih_put(10);
    for (unsigned i = 0; i < 8; i++)
        ih_expect_ok(m[i]);
    ir_advance(49 * IR_SEC);
    assert_int_equal(m[8]->done, 0);
    ir_advance(14 * IR_SEC);
    expect_closed();
    ih_expect_health(m[8], LNET_HEALTH_LOCAL_TIMEOUT);
    assert_int_equal(core.drops[IB_DROP(STALL)], 1);
    assert_int_equal(core.downs, 1);
    ih_row("6.1/queued");
}

static void rows_timeout_all(void **state)
{
    struct ih_msg *waits, *sends, *queued;

    waits = ih_put(BIG);
    ih_take(fl, PE_PUT_REQ);
    fl->hold_sends = true;
    ir_advance(20 * IR_SEC);
    for (unsigned i = 0; i < 7; i++)
        sends = ih_put(10);
    queued = ih_put(10);
    assert_int_equal(fl->sends, 8);
    ir_advance(45 * IR_SEC);
    expect_closed();
    ih_expect_health(waits, LNET_HEALTH_REMOTE_TIMEOUT);
    ih_expect_health(sends, LNET_HEALTH_NETWORK_TIMEOUT);
    ih_expect_health(queued, LNET_HEALTH_LOCAL_TIMEOUT);
    assert_false(waits->result.unsent || sends->result.unsent); /* they were posted */
    assert_true(queued->result.unsent);
    assert_int_equal(core.lost, 1);
    assert_int_equal(core.drops[IB_DROP(STALL)], 1);
    ih_row("6.1/waiting");
    ih_row("6.1/all");
    fl = ih_called();
    fl->hold_sends = true;
    sends = ih_put(10);
    ir_advance(64 * IR_SEC);
    expect_closed();
    ih_expect_health(sends, LNET_HEALTH_NETWORK_TIMEOUT);
    ih_row("6.1/sending");
}

static void rows_timeout_anew(void **state)
{
    struct ih_msg *m = ih_put(BIG);
    struct pe_msg ack = ih_put_ack(ih_take(fl, PE_PUT_REQ).cookie, 1, KEY, ADDR, BIG);

    ir_advance(40 * IR_SEC);
    fl->hold_sends = true;
    ih_say(fl, &ack);
    ir_advance(45 * IR_SEC);
    assert_int_equal(fl->phase, FAKE_UP);
    fl->hold_sends = false;
    fake_settle();
    ih_expect_ok(m);
    ih_row("6.1/anew");
    fl->hold_sends = true;
    offer(BIG, 7);
    assert_int_equal(core.open, 1);
    ir_advance(64 * IR_SEC);
    expect_closed();
    assert_int_equal(core.open, 0);
    ih_row("6.1/answer");
}

static int setup_short(void **state)
{
    ih_defaults();
    ih_opts.timeout = 8;
    return setup_more(state);
}

static void rows_timeout_set(void **state)
{
    struct ih_msg *m = ih_put(BIG);

    ir_advance(7900000);
    assert_int_equal(m->done, 0);
    ir_advance(2200000);
    ih_expect_health(m, LNET_HEALTH_REMOTE_TIMEOUT);
    ih_row("6.1/set");
}

/* ---- §6.2 ---- */

static void rows_drain(void **state)
{
    struct ih_msg *sends, *waits, *queued;

    waits = ih_put(BIG);
    ih_take(fl, PE_PUT_REQ);
    fl->hold_sends = true;
    for (unsigned i = 0; i < 7; i++)
        sends = ih_put(3000);
    queued = ih_put(10);
    fl->hold_flush = true;
    fl->hostile = true;
    {
        struct pe_msg bad = ih_completion(PE_PUT_NAK, 12345, 0);

        ih_say(fl, &bad);
    }
    assert_int_equal(fl->phase, FAKE_DOWN);
    assert_int_equal(fl->disconnects, 1);
    fake_tell(fl, RDMA_EV_DISCONNECTED, -ETIMEDOUT, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    assert_int_equal(core.drops[IB_DROP(LOST)], 0);
    assert_int_equal(core.downs, 1);
    ih_row("6.2/first");
    assert_int_equal(queued->done, 1);
    ih_expect_health(queued, LNET_HEALTH_LOCAL_ERROR);
    ih_row("6.3/queued");
    assert_int_equal(sends->done, 0);
    assert_int_equal(waits->done, 0);
    fake_flush(fl, 7);
    fake_settle();
    assert_int_equal(sends->done, 0); /* their memory may not be touched yet */
    fake_flush(fl, 16);
    fake_settle();
    assert_int_equal(fl->shuts, 0); /* one receive is still out */
    fake_flush(fl, 1);
    expect_closed();
    ih_expect_health(sends, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("6.3/flushed");
    ih_expect_health(waits, LNET_HEALTH_OK);
    ih_row("6.3/active");
    ih_row("6.2/drain");
}

static void rows_never(void **state)
{
    struct ih_msg *m;

    fl->hold_sends = fl->hold_flush = true;
    m = ih_put(3000);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    ir_advance(4900000);
    assert_int_equal(fl->shuts, 0);
    assert_int_equal(m->done, 0);
    fake.manual_close = true;
    ir_advance(200000);
    assert_int_equal(fl->shuts, 1);
    assert_int_equal(m->done, 0); /* until it is told that it is gone */
    fake.manual_close = false;
    fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    expect_closed();
    assert_int_equal(m->done, 1);
    ih_row("6.2/never");
}

/* The completions are there, and CLOSED is told before anybody looks; then another connection has
 * that place. */
static void rows_late(void **state)
{
    struct fake_link *late;
    struct ih_msg *m;

    fl->hold_sends = fl->hold_flush = true;
    fake.manual_close = true;
    m = ih_put(3000);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    ir_advance(6 * IR_SEC);
    assert_int_equal(fl->phase, FAKE_SHUT);
    fake_flush(fl, 5);
    fl->hold_events = true;
    fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    fake_events_go(fl);
    assert_int_equal(fl->unpolled, 5);
    fake.manual_close = false;
    expect_closed();
    assert_int_equal(m->done, 1);
    late = fl;
    fl = ih_called();
    assert_int_equal(late->unpolled, 0);
    ih_expect_ok(ih_put(10));
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    expect_closed(); /* at once: its own completions were counted, and no others */
    ih_row("6.2/late");
}

static void rows_ended(void **state)
{
    struct fake_link *second;
    struct ih_msg *sends;

    fl->hold_sends = true;
    sends = ih_put(10);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    expect_closed();
    ih_expect_health(sends, LNET_HEALTH_REMOTE_DROPPED);
    assert_int_equal(core.downs, 0);
    assert_int_equal(core.drops[IB_DROP(LOST)], 0);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_DOWN], 1);
    ih_row("6.2/clean");
    fl = ih_called();
    second = ih_called();
    fake_break(fl);
    fake_tell(fl, RDMA_EV_DISCONNECTED, -EIO, 0, NULL, 0);
    expect_closed();
    assert_int_equal(core.downs, 0);
    assert_int_equal(core.drops[IB_DROP(LOST)], 1);
    assert_int_equal(second->phase, FAKE_UP);
    fl = second;
    fake_tell(fl, RDMA_EV_DISCONNECTED, -EIO, 0, NULL, 0);
    expect_closed();
    assert_int_equal(core.downs, 1);
    ih_row("6.2/last");
    ih_row("6.2/device");
    {
        struct ih_msg *m = ih_put(10);

        assert_int_equal(m->done, 0);
        ih_answer();
        ih_expect_ok(m);
    }
    ih_row("6.2/again");
}

static void rows_lost(void **state)
{
    struct ih_msg *m, *behind;

    fl->hold_sends = true;
    m = ih_put(10);
    behind = ih_put(10);
    fake_fail_send(fl, IBV_WC_RETRY_EXC_ERR);
    expect_closed();
    ih_expect_health(m, LNET_HEALTH_REMOTE_DROPPED);
    ih_expect_health(behind, LNET_HEALTH_REMOTE_DROPPED);
    assert_int_equal(core.drops[IB_DROP(SEND)], 1);
    ih_row("6.3/lost");
    fl = ih_called();
    fake_fail_recv(fl, IBV_WC_LOC_LEN_ERR);
    expect_closed();
    assert_int_equal(core.drops[IB_DROP(LOST)], 1);
    ih_row("6.3/recv");
}

/* ---- the NI ---- */

static void rows_stop(void **state)
{
    struct ih_msg *waits, *sends, *queued, *unsent;
    struct fake_link *up = fl;

    core.parse = IH_LATER;
    offer(BIG, 1);
    core.parse = IH_RECEIVE;
    offer(BIG, 2);
    ih_take(fl, PE_PUT_ACK);
    waits = ih_put(BIG);
    ih_take(fl, PE_PUT_REQ);
    fl->hold_sends = true;
    for (unsigned i = 0; i < 7; i++)
        sends = ih_put(10);
    queued = ih_put(10);
    unsent = ih_send(ih_msg(0, PEER2, LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
    assert_int_equal(core.open, 2);
    ih_stop_later(0);
    ir_advance(6 * IR_SEC);
    assert_true(ih_stopped(0));
    assert_int_equal(up->phase, FAKE_CLOSED);
    assert_int_equal(fake.nlive, 0);
    assert_int_equal(core.open, 0);
    ih_expect(waits, LNET_DROP_SHUTDOWN, LNET_HEALTH_OK);
    ih_expect(sends, LNET_DROP_SHUTDOWN, LNET_HEALTH_OK);
    ih_expect(queued, LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ERROR);
    ih_expect(unsent, LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ABORTED);
    assert_int_equal(core.downs, 0);
    ih_expect(ih_put(10), LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("6.3/stop");
}

static void rows_stop_calls(void **state)
{
    fake.manual_resolve = fake.manual_open = true;
    ih_send(ih_msg(0, PEER2, LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
    ih_persona_is("10.0.0.4");
    ih_call();
    fake.manual_open = false;
    ih_persona_is("10.0.0.6");
    ih_call();
    fake.manual_resolve = false;
    ih_send(ih_msg(0, "10.0.0.8", LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
    assert_int_equal(fake.nlive, 5);
    ih_stop_later(0);
    assert_true(ih_stopped(0));
    assert_int_equal(fake.nlive, 0);
    assert_int_equal(core.failed, 2);
    ih_row("6.3/stop-calls");
}

static void rows_quiesce(void **state)
{
    struct pe_msg m, ack, more;

    offer(BIG, 1);
    ack = ih_take(fl, PE_PUT_ACK);
    ih_quiesce(0);
    assert_false(ih_quiet(0));
    m = ih_immediate(10, 0);
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 1);
    offer(BIG, 2);
    more = ih_take(fl, PE_PUT_ACK);
    ih_expect_ok(ih_put(10)); /* it still sends */
    m = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(m.credits, 0);
    m = ih_base(PE_NOOP, 1);
    ih_say(fl, &m);
    m = ih_completion(PE_PUT_DONE, ack.dst_cookie, BIG);
    ih_say(fl, &m);
    ir_advance(IR_SEC);
    assert_false(ih_quiet(0));
    m = ih_completion(PE_PUT_DONE, more.dst_cookie, BIG);
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 3);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ir_advance(IR_SEC);
    assert_true(ih_quiet(0));
    assert_int_equal(fl->phase, FAKE_UP);
    assert_false(fake_listening(0));
    ih_row("6.3/quiesce");
}

static void rows_abort(void **state)
{
    struct reactor *before;
    struct ih_msg *waits = ih_put(BIG), *queued;

    fl->hold_sends = true;
    for (unsigned i = 0; i < 8; i++)
        queued = ih_put(10);
    before = ir_at(fl->link->home);
    lnd_verbs_ops.peer_abort(ih_ni(0), ih_peer(0, PEER), LNET_DROP_NEXT_HOP_DOWN);
    ir_restore(before);
    expect_closed();
    ih_expect(waits, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_OK);
    ih_expect(queued, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR);
    ih_row("6.3/abort");
}

/* ---- §4.6, §4.7 ---- */

static void rows_asleep(void **state)
{
    for (unsigned i = 0; i < 20; i++) {
        struct pe_msg m = ih_immediate(10, 0), noop = ih_base(PE_NOOP, 1);

        ir_advance(IR_SEC);
        assert_true(ir_asleep(0)); /* where the peer is at home */
        ih_say(fl, &m);
        assert_int_equal(core.nreceived, i + 1);
        ir_advance(IR_SEC);
        assert_true(ir_asleep(0));
        fl->hold_sends = true;
        ih_put(10);
        ir_advance(IR_SEC);
        assert_true(ir_asleep(0));
        assert_int_equal(core.sent, i);
        fl->hold_sends = false;
        fake_settle();
        assert_int_equal(core.sent, i + 1);
        ih_say(fl, &noop);
    }
    ih_row("4.6/idle");
}

static unsigned armed;

static void on_arming(void)
{
    armed++;
}

static void rows_spin(void **state)
{
    struct pe_msg m = ih_immediate(10, 0);

    for (unsigned i = 0; i < 2; i++) {
        armed = 0;
        fake.arming = on_arming;
        ir_spin(i == 0);
        ih_say(fl, &m);
        ir_advance(IR_SEC);
        assert_int_equal(core.nreceived, i + 1);
        assert_int_equal(armed > 0, i > 0);
    }
    ih_row("4.6/spin");
}

static void rows_inline(void **state)
{
    struct pe_msg ack;

    fl->link->inline_bytes = 200;
    fl->hold_sends = true;
    ih_put(10);
    assert_true(fl->wrs->inlined && fl->wrs->signaled);
    ih_put(100);
    assert_false(fl->wrs->next->inlined);
    fl->hold_sends = false;
    fake_settle();
    ih_put(BIG);
    ih_take(fl, PE_IMMEDIATE);
    ih_take(fl, PE_IMMEDIATE);
    ack = ih_put_ack(ih_take(fl, PE_PUT_REQ).cookie, 1, KEY, ADDR, BIG);
    fl->hold_sends = true;
    ih_say(fl, &ack);
    assert_true(fl->wrs->kind == FAKE_WRITE && !fl->wrs->signaled);
    assert_true(fl->wrs->next->signaled && fl->wrs->next->inlined);
    assert_null(fl->wrs->next->next);
    fl->hold_sends = false;
    fake_settle();
    ih_row("4.6/inline");
}

static void rows_ports(void **state)
{
    unsigned up = core.link_up;

    fake_port(0, RDMA_PORT_DOWN);
    assert_int_equal(core.link_down, 1);
    assert_false(ih_ni(0)->link_up);
    fake_port(0, RDMA_PORT_CHANGED);
    assert_int_equal(core.link_down, 1);
    fake_port(0, RDMA_PORT_UP);
    assert_int_equal(core.link_up, up + 1);
    assert_true(ih_ni(0)->link_up);
    fake_port(0, RDMA_PORT_REMOVED);
    assert_int_equal(core.link_down, 2);
    ih_row("4.7/port");
}

#define T(fn)     cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define TS(fn, s) cmocka_unit_test_setup_teardown(fn, s, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_timeout_queued), T(rows_timeout_all),
        T(rows_timeout_anew),   TS(rows_timeout_set, setup_short),
        T(rows_drain),          T(rows_never),
        T(rows_late),           T(rows_ended),
        T(rows_lost),           T(rows_stop),
        T(rows_stop_calls),     T(rows_quiesce),
        T(rows_abort),          T(rows_asleep),
        T(rows_spin),           T(rows_inline),
        T(rows_ports),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
