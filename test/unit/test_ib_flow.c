/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credits and the order of sending in the o2iblnd driver, row by row of docs/protocol/o2iblnd.md
 * §3.3 to §3.6. That a message is never sent without a credit, and no credit returned without a
 * buffer, is checked by the fake at each post besides.
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define BIG  5000u
#define KEY  0x4711u
#define ADDR 0x7f0000200003ull

static struct ih_row table[] = {
    {"3.3/not-up", "before ESTABLISHED nothing is sent"},
    {"3.3/reserve", "a request waits while as many are unanswered; others pass it"},
    {"3.3/reserve-back", "an answer lets the next request go"},
    {"3.3/sends", "as many messages posted as concurrent_sends, not more"},
    {"3.3/credit", "without a credit: waits, in order, until one comes"},
    {"3.3/answers", "answers go first and without a credit"},
    {"3.3/all-owed", "a message takes all that is owed along, once"},
    {"3.3/noop-dropped", "a NOOP that is not needed any more, or a third: not sent"},
    {"3.3/post-fails", "a post that fails closes the connection; nothing of it is lost"},
    {"3.4/hiw", "NOOP when as much as hiw is owed, not before"},
    {"3.4/hiw-set", "peer_credits_hiw is obeyed"},
    {"3.4/answer-takes", "no NOOP when an answer can take it along"},
    {"3.4/starved", "NOOP although messages wait, when there is no credit for them"},
    {"3.4/keepalive", "NOOP after the keepalive time without sending"},
    {"3.4/keepalive-off", "keepalive 0: none"},
    {"3.5/too-many", "credits beyond the depth: closed"},
    {"3.5/overspent", "a request without a credit: closed"},
    {"3.5/IMMEDIATE", "posted again when the payload was taken; owed"},
    {"3.5/PUT_REQ-ack", "posted again when PUT_ACK is queued; not owed"},
    {"3.5/PUT_REQ-nak", "posted again; owed"},
    {"3.5/PUT_DONE", "posted again at once; owed: the credit of the PUT_REQ"},
    {"3.5/GET_REQ", "posted again; owed once GET_DONE is on its way"},
    {"3.5/PUT_ACK", "posted again; a reserve comes back"},
    {"3.5/PUT_NAK", "posted again; a reserve comes back"},
    {"3.5/NOOP", "posted again; nothing is owed"},
    {"3.6/two-noops", "at most two NOOPs not completed"},
    {"3.6/reduced", "hiw goes down with the depth"},
    {"3.6/full", "everything the peer may send at once finds a buffer"},
    {"3.8/many", "a long queue goes out in order, credit by credit"},
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

static void noop(uint8_t credits)
{
    struct pe_msg m = ih_base(PE_NOOP, credits);

    ih_say(fl, &m);
}

static void immediates(unsigned n)
{
    while (n-- > 0) {
        struct pe_msg m = ih_immediate(50, 0);

        ih_say(fl, &m);
    }
}

static void nak(uint64_t cookie)
{
    struct pe_msg m = ih_completion(PE_PUT_NAK, cookie, 0);

    ih_say(fl, &m);
}

/* ---- §3.3 ---- */

static void rows_not_up(void **state)
{
    struct fake_call *call;

    ih_persona_is(PEER2);
    call = ih_call();
    ih_send(ih_msg(0, PEER2, LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
    ih_send(ih_msg(0, PEER2, LNET_MSG_PUT, BIG, FAKE_LOCAL, 1));
    ir_advance(IR_SEC);
    assert_int_equal(call->link->sends, 0);
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->sends, 2);
    ih_row("3.3/not-up");
}

static void rows_reserve(void **state)
{
    struct ih_msg *m[9], *small;
    uint64_t cookie[8];

    for (unsigned i = 0; i < 9; i++) {
        m[i] = ih_put(BIG + i);
        if (i < 8)
            cookie[i] = ih_take(fl, PE_PUT_REQ).cookie;
        noop(i < 8 ? 1 : 0);
    }
    ih_nothing(fl);
    assert_int_equal(m[8]->done, 0);
    small = ih_put(10);
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(small);
    noop(1);
    ih_nothing(fl);
    ih_row("3.3/reserve");
    nak(cookie[3]);
    assert_int_equal(ih_take(fl, PE_PUT_REQ).lnet.len, BIG + 8);
    ih_expect_ok(m[3]);
    ih_nothing(fl);
    ih_row("3.3/reserve-back");
    ih_row("3.5/PUT_NAK");
    {
        struct pe_msg ack = ih_put_ack(cookie[0], 9, KEY, ADDR, BIG);
        struct ih_msg *more;

        noop(1);
        more = ih_put(BIG);
        ih_nothing(fl);
        ih_say(fl, &ack);
        if (ih_take(fl, PE_PUT_DONE).cookie != 9)
            fail();
        ih_take(fl, PE_PUT_REQ);
        ih_expect_ok(m[0]);
        assert_int_equal(more->done, 0);
        ih_row("3.5/PUT_ACK");
    }
    assert_int_equal(fl->nrecvs, 18);
}

static void rows_sends(void **state)
{
    fl->hold_sends = true;
    for (unsigned i = 0; i < 8; i++)
        ih_put(10 + i);
    assert_int_equal(fl->sends, 4);
    assert_int_equal(fake_complete(fl, 1), 1);
    fake_settle();
    assert_int_equal(fl->sends, 5);
    fl->hold_sends = false;
    fake_settle();
    assert_int_equal(fl->sends, 8);
    assert_int_equal(core.sent, 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ih_take(fl, PE_IMMEDIATE).lnet.len, 10 + i);
    ih_row("3.3/sends");
}

static int setup_sends(void **state)
{
    ih_defaults();
    ih_opts.verbs.concurrent_sends = 4;
    return setup_more(state);
}

static void rows_credit(void **state)
{
    struct ih_msg *m[12];
    struct pe_msg put = ih_put_req(BIG, 1, 0);

    for (unsigned i = 0; i < 12; i++)
        m[i] = ih_put(10 + i);
    assert_int_equal(fl->sends, 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ih_take(fl, PE_IMMEDIATE).lnet.len, 10 + i);
    ih_nothing(fl);
    assert_int_equal(m[8]->done, 0);
    ih_say(fl, &put);
    ih_take(fl, PE_PUT_ACK);
    ih_nothing(fl);
    ih_row("3.3/answers");
    noop(1);
    assert_int_equal(ih_take(fl, PE_IMMEDIATE).lnet.len, 18);
    ih_nothing(fl);
    noop(3);
    for (unsigned i = 9; i < 12; i++)
        assert_int_equal(ih_take(fl, PE_IMMEDIATE).lnet.len, 10 + i);
    ih_expect_ok(m[11]);
    ih_row("3.3/credit");
}

static void rows_owed(void **state)
{
    immediates(3);
    ih_nothing(fl);
    ih_put(10);
    assert_int_equal(ih_take(fl, PE_IMMEDIATE).credits, 3);
    ih_put(10);
    assert_int_equal(ih_take(fl, PE_IMMEDIATE).credits, 0);
    ih_row("3.3/all-owed");
}

static void rows_post_fails(void **state)
{
    struct ih_msg *m, *waiting;

    waiting = ih_put(BIG);
    ih_take(fl, PE_PUT_REQ);
    fl->post_error = ENOMEM;
    m = ih_put(10);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    ih_expect_health(m, LNET_HEALTH_LOCAL_ERROR);
    ih_expect_health(waiting, LNET_HEALTH_OK);
    assert_int_equal(core.drops[IB_DROP(POST)], 1);
    ih_row("3.3/post-fails");
}

/* ---- §3.4 ---- */

static void rows_hiw(void **state)
{
    immediates(3);
    ih_nothing(fl);
    immediates(1);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 4);
    ih_nothing(fl);
    assert_int_equal(ih_counters().noops_out, 1);
    ih_row("3.4/hiw");
}

static int setup_hiw(void **state)
{
    ih_defaults();
    ih_opts.verbs.peer_credits_hiw = 6;
    return setup_more(state);
}

static void rows_hiw_set(void **state)
{
    immediates(5);
    ih_nothing(fl);
    immediates(1);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 6);
    ih_row("3.4/hiw-set");
}

static void rows_answer_takes(void **state)
{
    struct pe_msg in = ih_immediate(50, 0), put = ih_put_req(BIG, 1, 0), out;

    for (unsigned i = 0; i < 4; i++)
        ih_tell(fl, &in);
    ih_tell(fl, &put);
    fake_settle();
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.credits, 4);
    ih_nothing(fl);
    ih_row("3.4/answer-takes");
    ih_row("3.5/PUT_REQ-ack");
}

static void rows_starved(void **state)
{
    for (unsigned i = 0; i < 10; i++)
        ih_put(10);
    for (unsigned i = 0; i < 8; i++)
        ih_take(fl, PE_IMMEDIATE);
    immediates(4);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 4);
    ih_nothing(fl);
    noop(8);
    ih_row("3.4/starved");
}

static void rows_keepalive(void **state)
{
    ir_advance(90 * IR_SEC);
    ih_nothing(fl);
    ir_advance(25 * IR_SEC);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 0);
    ih_nothing(fl);
    fake_settle();
    ir_advance(60 * IR_SEC);
    ih_put(10);
    ih_take(fl, PE_IMMEDIATE);
    ir_advance(60 * IR_SEC);
    ih_nothing(fl); /* counted from the last message */
    ir_advance(60 * IR_SEC);
    ih_take(fl, PE_NOOP);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("3.4/keepalive");
}

static int setup_no_keepalive(void **state)
{
    ih_defaults();
    ih_opts.verbs.keepalive = 0;
    return setup_more(state);
}

static void rows_no_keepalive(void **state)
{
    ir_advance(500 * IR_SEC);
    ih_nothing(fl);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("3.4/keepalive-off");
}

/* ---- §3.5 ---- */

static void rows_violations(void **state)
{
    ih_put(10);
    fl->hostile = true;
    noop(2);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[IB_DROP(CREDITS)], 1);
    ih_row("3.5/too-many");
    fl = ih_called();
    core.parse = IH_LATER;
    immediates(8);
    assert_int_equal(fl->phase, FAKE_UP);
    fl->hostile = true;
    immediates(1);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[IB_DROP(SPENT)], 1);
    ih_row("3.5/overspent");
}

/* What our next message brings. */
static uint8_t owed(void)
{
    uint8_t credits;

    ih_put(10);
    credits = ih_take(fl, PE_IMMEDIATE).credits;
    noop(1);
    return credits;
}

static void rows_reposts(void **state)
{
    struct pe_msg m, out;
    struct ih_rx *rx;

    core.parse = IH_LATER;
    immediates(1);
    assert_int_equal(fl->nrecvs, 17);
    assert_int_equal(owed(), 0);
    rx = ih_waiting();
    ih_recv(rx, 50);
    fake_settle();
    assert_int_equal(fl->nrecvs, 18);
    assert_int_equal(owed(), 1);
    ih_row("3.5/IMMEDIATE");
    core.parse = IH_RECEIVE;
    m = ih_put_req(BIG, 1, 0);
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.credits, 0);
    assert_int_equal(fl->nrecvs, 18);
    assert_int_equal(owed(), 0);
    m = ih_completion(PE_PUT_DONE, out.dst_cookie, BIG);
    ih_say(fl, &m);
    assert_int_equal(fl->nrecvs, 18);
    assert_int_equal(owed(), 1);
    ih_row("3.5/PUT_DONE");
    core.parse = IH_DISCARD;
    m = ih_put_req(BIG, 2, 0);
    ih_say(fl, &m);
    assert_int_equal(ih_take(fl, PE_PUT_NAK).credits + owed(), 1);
    assert_int_equal(fl->nrecvs, 18);
    ih_row("3.5/PUT_REQ-nak");
    core.parse = IH_RECEIVE;
    core.get_len = 0;
    m = ih_put_req(0, 3, 0);
    m.type = PE_GET_REQ;
    m.lnet.type = PE_LNET_GET;
    m.key = KEY;
    m.nfrags = 1;
    m.frag[0] = (struct pe_frag){ADDR, 100};
    ih_say(fl, &m);
    assert_int_equal(ih_take(fl, PE_GET_DONE).credits + owed(), 1);
    assert_int_equal(fl->nrecvs, 18);
    ih_row("3.5/GET_REQ");
    noop(0);
    noop(0);
    assert_int_equal(owed(), 0);
    assert_int_equal(fl->nrecvs, 18);
    ih_row("3.5/NOOP");
}

/* ---- §3.6 ---- */

static void rows_two_noops(void **state)
{
    fl->hold_sends = true;
    immediates(8); /* the second four with the second NOOP */
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 4);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 4);
    immediates(4);
    ih_nothing(fl);
    ih_row("3.6/two-noops");
    ih_put(10); /* takes it along */
    assert_int_equal(ih_take(fl, PE_IMMEDIATE).credits, 4);
    fl->hold_sends = false;
    fake_settle();
    ih_nothing(fl);
    ih_row("3.3/noop-dropped");
}

static void rows_reduced(void **state)
{
    ih_persona_is(PEER2);
    peer.depth = 4;
    fl = ih_called();
    immediates(1);
    ih_nothing(fl);
    immediates(1);
    assert_int_equal(ih_take(fl, PE_NOOP).credits, 2);
    ih_row("3.6/reduced");
}

static void rows_full(void **state)
{
    struct pe_msg m, cookies[8];

    core.parse = IH_LATER;
    for (unsigned i = 0; i < 8; i++) {
        ih_put(BIG);
        cookies[i] = ih_take(fl, PE_PUT_REQ);
    }
    for (unsigned i = 0; i < 8; i++) {
        m = ih_put_req(BIG, 100 + i, 0);
        ih_tell(fl, &m);
    }
    for (unsigned i = 0; i < 2; i++) {
        m = ih_base(PE_NOOP, 0);
        ih_tell(fl, &m);
    }
    for (unsigned i = 0; i < 8; i++) {
        m = ih_put_ack(cookies[i].cookie, 50 + i, KEY, ADDR + i * BIG, BIG);
        ih_tell(fl, &m);
    }
    fake_settle();
    assert_int_equal(core.sent, 8);
    assert_int_equal(fl->rnrs, 0);
    assert_int_equal(fl->nrecvs, 10); /* eight wait in the core */
    for (unsigned i = 0; i < 8; i++)
        ih_take(fl, PE_PUT_DONE);
    for (unsigned i = 0; i < 8; i++) {
        ih_recv(ih_waiting(), BIG);
        fake_settle();
        m = ih_take(fl, PE_PUT_ACK);
        m = ih_completion(PE_PUT_DONE, m.dst_cookie, BIG);
        ih_say(fl, &m);
    }
    assert_int_equal(core.open, 0);
    ih_row("3.6/full");
}

static void rows_many(void **state)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < 100; i++)
        ih_give(ih_msg(0, PEER, LNET_MSG_PUT, i < 50 ? 10 : 1000 + i, FAKE_LOCAL, 2));
    fake_settle();
    while (seen < 100) {
        struct pe_msg out = ih_take(fl, PE_IMMEDIATE);

        assert_int_equal(out.lnet.len, seen < 50 ? 10 : 1000 + seen);
        seen++;
        noop(1);
    }
    assert_int_equal(core.sent, 100);
    ih_row("3.8/many");
}

/* What a turn brings goes to the device with one call, wherever it came from. */
static void one_post(void **state)
{
    uint64_t posts = ih_counters().posts, requests = ih_counters().requests;
    struct pe_msg in = ih_put_req(BIG, 1, 0);

    ih_tell(fl, &in);
    for (unsigned i = 0; i < 6; i++)
        ih_give(ih_msg(0, PEER, LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
    assert_int_equal(ih_counters().posts, posts);
    fake_settle();
    assert_int_equal(ih_counters().posts, posts + 1);
    assert_int_equal(ih_counters().requests,
                     requests + 7 + (fake.remote_keys == RDMA_KEYS_WINDOWS)); /* one to bind */
    ih_take(fl, PE_PUT_ACK);
    for (unsigned i = 0; i < 6; i++)
        ih_take(fl, PE_IMMEDIATE);
}

#define T(fn)     cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define TS(fn, s) cmocka_unit_test_setup_teardown(fn, s, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_not_up),
        T(rows_reserve),
        TS(rows_sends, setup_sends),
        T(rows_credit),
        T(rows_owed),
        T(rows_post_fails),
        T(rows_hiw),
        TS(rows_hiw_set, setup_hiw),
        T(rows_answer_takes),
        T(rows_starved),
        T(rows_keepalive),
        TS(rows_no_keepalive, setup_no_keepalive),
        T(rows_violations),
        T(rows_reposts),
        T(rows_two_noops),
        T(rows_reduced),
        T(rows_full),
        T(rows_many),
        T(one_post),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
