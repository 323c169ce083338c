/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending, stalls, keepalive and the end of NIs: docs/protocol/socklnd.md §3.3, §3.5, §4.7, §6.1,
 * §6.3.
 */
#include "test/unit/socklnd_fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PEER "10.0.0.3"
#define NID  PEER "@tcp"
#define OWN  "10.0.0.5@tcp"
#define INC  0x184a1b1c1d1e1f20ull
#define HDRS (SOCK_FRAME_SIZE + LNET_HDR4_SIZE)
#define BIG  (4u << 20)

/* As we have them: what we send goes out on control and bulk_out. */
static struct fake_stream *control, *bulk_in, *bulk_out;
static uint8_t *buf;

static int setup_here(void **state)
{
    fake_setup(state);
    buf = malloc(BIG);
    assert_non_null(buf);
    control = fake_up(PEER, 1023, SOCK_CTYPE_CONTROL, INC);
    bulk_out = fake_up(PEER, 1022, SOCK_CTYPE_BULK_IN, INC);
    bulk_in = fake_up(PEER, 1021, SOCK_CTYPE_BULK_OUT, INC);
    return 0;
}

static int setup(void **state)
{
    fake_defaults();
    return setup_here(state);
}

static int setup_reference(void **state)
{
    fake_defaults();
    fake_transport.caps = STREAM_CAP_BY_REFERENCE;
    return setup_here(state);
}

static int setup_16(void **state)
{
    fake_defaults();
    fake_timeout = 16;
    return setup_here(state);
}

static int teardown(void **state)
{
    free(buf);
    return fake_teardown(state);
}

static struct lnet_msg *post(uint32_t len)
{
    struct lnet_msg *msg = fake_msg(fake_ni(), NID, len);

    fake_send(msg);
    fake_run();
    return msg;
}

static void expect_result(const struct lnet_msg *msg, enum lnet_drop reason,
                          enum lnet_health health)
{
    for (unsigned i = 0; i < core.nsent; i++) {
        if (core.sent[i].msg != msg)
            continue;
        assert_int_equal(msg->state, 2);
        assert_int_equal(core.sent[i].result.reason, reason);
        assert_int_equal(core.sent[i].result.health, health);
        return;
    }
    fail_msg("the message was not reported");
}

/* Checks one frame at p: header as docs §8.4 has it, payload as given. */
static void check_frame(const uint8_t *p, const struct lnet_msg *msg)
{
    static const uint8_t frame[SOCK_FRAME_SIZE] = {0xc1};
    struct lnet_hdr hdr;

    assert_memory_equal(p, frame, sizeof(frame));
    assert_int_equal(lnet_hdr_decode4(p + SOCK_FRAME_SIZE, &hdr), LNET_DROP_NONE);
    assert_memory_equal(&hdr, &msg->hdr, sizeof(hdr));
    for (uint32_t i = 0; i < msg->hdr.payload_len; i++)
        assert_int_equal(p[HDRS + i], fake_pattern(i));
}

static void expect_frame(struct fake_stream *s, const struct lnet_msg *msg)
{
    assert_int_equal(fake_take_out(s, buf, BIG), HDRS + msg->hdr.payload_len);
    check_frame(buf, msg);
    expect_result(msg, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* Whether a failed message may go another way, and the loss was reported before it ended. */
static void expect_unsent(const struct lnet_msg *msg, bool unsent)
{
    unsigned i;

    for (i = 0; i < core.nsent && core.sent[i].msg != msg; i++)
        ;
    assert_in_range(i, 0, core.nsent - 1);
    assert_int_equal(core.sent[i].result.unsent, unsent);
    assert_int_equal(core.sent[i].nlost, 1);
}

/* ---- which connection, §3.3 ---- */

static void test_choice(void **state)
{
    (void)state;
    expect_frame(control, post(0));
    expect_frame(control, post(927));
    expect_frame(bulk_out, post(928));
    expect_frame(bulk_out, post(LNET_MAX_PAYLOAD));
    fake_expect_nothing(bulk_in);
}

static int setup_control(void **state)
{
    fake_defaults();
    fake_setup(state);
    buf = malloc(BIG);
    control = fake_up(PEER, 1023, SOCK_CTYPE_CONTROL, INC);
    return 0;
}

static void test_bulk_on_control(void **state)
{
    (void)state;
    expect_frame(control, post(100000));
}

static int setup_bulk(void **state)
{
    fake_defaults();
    fake_setup(state);
    buf = malloc(BIG);
    bulk_out = fake_up(PEER, 1023, SOCK_CTYPE_BULK_IN, INC);
    return 0;
}

static void test_small_on_bulk(void **state)
{
    (void)state;
    expect_frame(bulk_out, post(0));
}

/* v4 headers are 24 bytes longer, so the limit is 904. */
static void test_choice_v4(void **state)
{
    struct fake_stream *c = fake_up("fd00::7", 1023, SOCK_CTYPE_CONTROL, INC);
    struct fake_stream *b = fake_up("fd00::7", 1022, SOCK_CTYPE_BULK_IN, INC);

    (void)state;
    fake_send(fake_msg(fake_ni6(), "fd00::7@tcp", 903));
    fake_run();
    assert_int_equal(fake_take_out(c, buf, BIG), SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 903);
    fake_send(fake_msg(fake_ni6(), "fd00::7@tcp", 904));
    fake_run();
    assert_int_equal(fake_take_out(b, buf, BIG), SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 904);
}

/* The least busy one, counting what is queued and what is not acknowledged; else in turn. */
static void test_least_busy(void **state)
{
    struct fake_stream *b[3] = {bulk_out};

    (void)state;
    b[1] = fake_up(PEER, 1020, SOCK_CTYPE_BULK_IN, INC);
    b[2] = fake_up(PEER, 1019, SOCK_CTYPE_BULK_IN, INC);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 3; i++)
            post(5000);
        for (int i = 0; i < 3; i++)
            assert_int_equal(fake_take_out(b[i], buf, BIG), HDRS + 5000);
    }
    b[0]->auto_ack = false; /* holds unacknowledged bytes */
    b[1]->window = 0;       /* holds queued bytes */
    for (int i = 0; i < 3; i++)
        post(5000);
    assert_int_equal(fake_take_out(b[2], buf, BIG), HDRS + 5000);
    for (int i = 0; i < 5; i++)
        post(5000);
    assert_int_equal(fake_take_out(b[2], buf, BIG), 5 * (HDRS + 5000));
    fake_writable(b[1], SIZE_MAX);
}

/* ---- writing in pieces ---- */

static void test_partial_writes(void **state)
{
    static const size_t steps[] = {1, 7, 23, 96, 97, 1000, 4099};
    struct lnet_msg *msg[4];
    size_t at = 0;
    int step = 0;

    (void)state;
    bulk_out->window = 0;
    for (int i = 0; i < 4; i++) {
        msg[i] = fake_msg(fake_ni(), NID, 5000 + (uint32_t)i);
        fake_send(msg[i]);
    }
    fake_run();
    assert_int_equal(core.ndone, 0);
    while (core.ndone < 4) {
        unsigned complete = 0;
        size_t end = 0;

        fake_writable(bulk_out, steps[step++ % 7]);
        for (int i = 0; i < 4; i++) {
            end += HDRS + msg[i]->hdr.payload_len;
            complete += bulk_out->out_len - bulk_out->out_read >= end;
        }
        assert_int_equal(core.ndone, complete); /* done with its last byte, not before */
        assert_true(step < 10000);
    }
    fake_take_out(bulk_out, buf, BIG);
    for (int i = 0; i < 4; i++) {
        check_frame(buf + at, msg[i]);
        at += HDRS + msg[i]->hdr.payload_len;
        expect_result(msg[i], LNET_DROP_NONE, LNET_HEALTH_OK);
    }
}

static void test_many(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++)
        fake_send(fake_msg(fake_ni(), NID, 10));
    fake_run();
    assert_int_equal(core.ndone, 500);
    assert_int_equal(fake_take_out(control, buf, BIG), 500 * (HDRS + 10));
}

/* ---- sending from inside the report of another message ---- */

static unsigned chained;

static void send_another(struct lnet_msg *msg)
{
    (void)msg;
    if (chained-- > 0)
        fake_send(fake_msg(fake_ni(), NID, 10));
}

static void test_send_from_report(void **state)
{
    (void)state;
    chained = 50;
    core.on_sent = send_another;
    post(10);
    assert_int_equal(core.ndone, 51);
    assert_int_equal(fake_take_out(control, buf, BIG), 51 * (HDRS + 10));
    core.on_sent = NULL;
}

/* While everything is being closed the core sends anew: it starts a fresh set. */
static void test_send_while_closing(void **state)
{
    struct fake_stream *s;

    (void)state;
    control->window = 50;
    chained = 1;
    core.on_sent = send_another;
    post(10);
    fake_end(bulk_in, STREAM_END_RESET);
    assert_true(control->closed && bulk_out->closed && bulk_in->closed);
    assert_int_equal(core.ndone, 1);
    core.on_sent = NULL;
    fake_advance(2000);
    s = fake_dialled();
    assert_non_null(s);
    fake_connected(s);
    fake_feed(s, buf, fake_hello_only(buf, NID, OWN, SOCK_CTYPE_CONTROL, INC));
    assert_int_equal(core.ndone, 2);
}

static void abort_peer(struct lnet_msg *msg)
{
    (void)msg;
    core.on_sent = NULL;
    lnd_sock_ops.peer_abort(fake_ni(), fake_peer(NID), LNET_DROP_NEXT_HOP_DOWN);
}

static void test_abort_from_report(void **state)
{
    struct lnet_msg *a = fake_msg(fake_ni(), NID, 10), *b = fake_msg(fake_ni(), NID, 5000);

    (void)state;
    bulk_out->window = 100;
    core.on_sent = abort_peer;
    fake_send(b);
    fake_send(a);
    fake_run();
    assert_true(control->closed && bulk_out->closed && bulk_in->closed);
    expect_result(a, LNET_DROP_NONE, LNET_HEALTH_OK);
    expect_result(b, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR);
}

/* ---- failures ---- */

/* What was begun is not sent again; all is reported once. */
static void test_lost_in_the_middle(void **state)
{
    struct lnet_msg *begun, *waiting, *small;

    (void)state;
    bulk_out->window = HDRS + 10;
    begun = post(5000);
    waiting = post(5000);
    control->window = 0;
    small = post(0);
    fake_end(bulk_out, STREAM_END_TIMEOUT);
    assert_true(control->closed && bulk_in->closed);
    expect_result(begun, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_TIMEOUT);
    expect_result(waiting, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
    expect_result(small, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
    expect_unsent(begun, false);
    expect_unsent(waiting, true);
    expect_unsent(small, true);
    assert_int_equal(core.drops[SOCK_DROP(RESET)], 1);
    assert_int_equal(core.nnotified, 2);
    assert_false(core.notified[1].up);
    fake_advance(10 * FAKE_SEC);
    assert_null(fake_dialled());
}

static void test_send_error(void **state)
{
    struct lnet_msg *msg;

    (void)state;
    control->send_error = -ECONNRESET;
    msg = post(0);
    assert_true(control->closed && bulk_out->closed && bulk_in->closed);
    expect_result(msg, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
    assert_int_equal(core.drops[SOCK_DROP(RESET)], 1);
}

/* ---- transports that hold by reference until acknowledged ---- */

static void test_by_reference(void **state)
{
    struct lnet_msg *a, *b;

    (void)state;
    bulk_out->auto_ack = false;
    fake_ack(bulk_out, 0);
    a = post(5000);
    b = post(6000);
    assert_int_equal(core.nsent, 2);
    assert_true(core.sent[0].accepted && core.sent[1].accepted);
    assert_int_equal(core.ndone, 0);
    fake_ack(bulk_out, HDRS + 4999);
    assert_int_equal(core.ndone, 0);
    fake_ack(bulk_out, 1);
    assert_int_equal(core.ndone, 1);
    expect_result(a, LNET_DROP_NONE, LNET_HEALTH_OK);
    fake_end(control, STREAM_END_RESET);
    expect_result(b, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
    expect_unsent(b, false);
}

/* The end of one connection is reported before the acknowledgement on another, which had come. */
static void test_acked_before_the_end(void **state)
{
    struct lnet_msg *a, *b;

    (void)state;
    bulk_out->auto_ack = false;
    fake_ack(bulk_out, 0);
    a = post(5000);
    b = post(6000);
    bulk_out->acked += HDRS + 5000;
    fake_end(control, STREAM_END_EOF);
    expect_result(a, LNET_DROP_NONE, LNET_HEALTH_OK);
    expect_result(b, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
}

/* ---- stalls, §3.5: found after the timeout, within a quarter more ---- */

static void expect_stall(struct fake_stream *s, unsigned timeout, enum lnet_drop reason)
{
    fake_advance(timeout * FAKE_SEC - 1000);
    assert_false(s->closed);
    assert_int_equal(core.drops[reason], 0);
    fake_advance(timeout * FAKE_SEC / 4 + 2000);
    assert_true(control->closed && bulk_out->closed && bulk_in->closed);
    assert_true(s->aborted);
    assert_int_equal(core.drops[reason], 1);
    assert_int_equal(core.nnotified, 2);
    assert_false(core.notified[1].up);
}

static void test_tx_stall(void **state)
{
    struct lnet_msg *msg;

    (void)state;
    fake_advance(37 * FAKE_SEC + 12345);
    bulk_out->window = 100;
    msg = post(5000);
    expect_stall(bulk_out, 50, SOCK_DROP(TX_STALL));
    expect_result(msg, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR);
}

static void test_tx_stall_16(void **state)
{
    (void)state;
    fake_advance(11 * FAKE_SEC + 999);
    control->window = 0;
    post(0);
    expect_stall(control, 16, SOCK_DROP(TX_STALL));
}

/* All was taken by the transport and nothing is acknowledged. */
static void test_unacked_stall(void **state)
{
    (void)state;
    fake_advance(3 * FAKE_SEC);
    bulk_out->auto_ack = false;
    post(5000);
    assert_int_equal(core.ndone, 1);
    expect_stall(bulk_out, 50, SOCK_DROP(TX_STALL));
}

/* … though the transport goes on taking messages. */
static void test_unacked_stall_under_load(void **state)
{
    (void)state;
    control->auto_ack = false;
    for (unsigned seconds = 0; seconds < 50; seconds++) {
        assert_false(control->closed);
        post(0);
        fake_advance(FAKE_SEC);
    }
    fake_advance(13 * FAKE_SEC);
    assert_true(control->closed && bulk_out->closed && bulk_in->closed);
    assert_int_equal(core.drops[SOCK_DROP(TX_STALL)], 1);
    assert_int_equal(core.ndone, 50);
}

static void test_slow_but_moving(void **state)
{
    struct lnet_msg *msg;

    (void)state;
    bulk_out->window = 0;
    msg = post(1000);
    for (int i = 0; i < 10; i++) {
        fake_advance(30 * FAKE_SEC);
        fake_writable(bulk_out, 100);
    }
    assert_false(bulk_out->closed);
    assert_int_equal(core.ndone, 0);
    fake_writable(bulk_out, 1000);
    expect_result(msg, LNET_DROP_NONE, LNET_HEALTH_OK);
    bulk_out->window = SIZE_MAX;
    bulk_out->auto_ack = false;
    bulk_out->acked = bulk_out->bytes_out;
    post(1000);
    for (int i = 0; i < 10; i++) {
        fake_advance(30 * FAKE_SEC);
        fake_ack(bulk_out, 100);
    }
    assert_false(bulk_out->closed);
    bulk_out->acked = bulk_out->bytes_out;
}

static void test_rx_stall(void **state)
{
    (void)state;
    fake_advance(37 * FAKE_SEC + 12345);
    fake_feed(bulk_in, buf, fake_frame(buf, NID, OWN, 5000, 0, 0) - 1);
    expect_stall(bulk_in, 50, SOCK_DROP(RX_STALL));
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(core.received[0].result.reason, LNET_DROP_RX_INCOMPLETE);
    assert_int_equal(core.received[0].result.health, LNET_HEALTH_REMOTE_ERROR);
}

static void test_rx_stall_in_header(void **state)
{
    (void)state;
    fake_advance(FAKE_SEC);
    fake_frame(buf, NID, OWN, 0, 0, 0);
    fake_feed(control, buf, 1);
    expect_stall(control, 16, SOCK_DROP(RX_STALL));
}

static void test_idle_is_no_stall(void **state)
{
    (void)state;
    post(0);
    fake_feed(control, buf, fake_frame(buf, NID, OWN, 10, 0, 0));
    fake_advance(3600 * FAKE_SEC);
    assert_false(control->closed || bulk_in->closed || bulk_out->closed);
}

/* ---- keepalive, §3.5 ---- */

static void test_keepalive(void **state)
{
    static const uint8_t ping[SOCK_FRAME_SIZE] = {0xc0, [16] = 1};

    (void)state;
    fake_advance(30 * FAKE_SEC - 1000);
    fake_expect_nothing(bulk_in);
    fake_advance(15 * FAKE_SEC);
    fake_expect(bulk_in, ping, sizeof(ping));
    fake_expect_nothing(control);
    fake_expect_nothing(bulk_out);
    fake_feed(control, buf, fake_noop(buf, 0, SOCK_COOKIE_PING));
    fake_advance(29 * FAKE_SEC);
    fake_expect_nothing(bulk_in); /* heard of it */
    fake_advance(13 * FAKE_SEC);
    fake_expect(bulk_in, ping, sizeof(ping));
    for (int i = 0; i < 5; i++) { /* its acknowledgement by TCP does not count */
        fake_advance(25 * FAKE_SEC / 2);
        fake_expect(bulk_in, ping, sizeof(ping));
    }
}

static void test_keepalive_gap(void **state)
{
    uint64_t pings = 0;

    (void)state;
    bulk_in->auto_ack = false; /* not even an acknowledgement: a ping as often as may be */
    for (int i = 0; i < 480; i++) {
        fake_advance(FAKE_SEC / 10);
        if (fake_take_out(bulk_in, buf, BIG) > 0)
            pings++;
    }
    assert_in_range(pings, 1, 2);
}

/* ---- stopping ---- */

static unsigned quiet;

static void on_quiet(struct reactor_task *task)
{
    (void)task;
    quiet++;
}

static struct reactor_task quiet_task = {.fn = on_quiet};

static void quiesce(void)
{
    quiet = 0;
    fake_on(FAKE_REACTORS);
    lnd_sock_ops.ni_quiesce(fake_ni(), &quiet_task);
    fake_run();
}

static void test_quiesce_idle(void **state)
{
    (void)state;
    quiesce();
    assert_int_equal(quiet, 1);
    fake_feed(control, buf, fake_frame(buf, NID, OWN, 10, 0, 0));
    assert_int_equal(core.nreceived, 0);
    assert_true(control->paused);
    expect_frame(control, post(10)); /* what we have to send still goes */
}

/* Messages that were begun are finished first, nothing behind them is read. */
static void test_quiesce_busy(void **state)
{
    size_t n = fake_frame(buf, NID, OWN, 1000, 3, 0);

    (void)state;
    fake_feed(bulk_in, buf, n - 1);
    fake_feed(control, buf, 10); /* not begun: no header yet */
    quiesce();
    assert_int_equal(quiet, 0);
    memmove(buf + 1, buf, n);
    buf[0] = fake_pattern(999);
    fake_feed(bulk_in, buf, n + 1);
    assert_int_equal(quiet, 1);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(bulk_in->in_len, n);
    fake_expect_noop(bulk_in, 3);
}

static void test_quiesce_broken(void **state)
{
    (void)state;
    fake_feed(bulk_in, buf, fake_frame(buf, NID, OWN, 1000, 0, 0) - 1);
    quiesce();
    assert_int_equal(quiet, 0);
    fake_end(bulk_in, STREAM_END_RESET);
    assert_int_equal(quiet, 1);
}

/* Stopping before it came to rest answers both. */
static void test_stop_while_quiescing(void **state)
{
    struct lnet_msg *msg;

    (void)state;
    control->window = 5;
    msg = post(0);
    fake_feed(bulk_in, buf, fake_frame(buf, NID, OWN, 1000, 0, 0) - 1);
    quiesce();
    fake_stop();
    assert_int_equal(quiet, 1);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(core.received[0].result.reason, LNET_DROP_SHUTDOWN);
    expect_result(msg, LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ERROR);
    assert_true(control->closed && bulk_in->closed && bulk_out->closed);
    assert_false(control->aborted);
}

static void test_peers_are_given_back(void **state)
{
    (void)state;
    assert_int_equal(fake_peer_refs(), 1);
    fake_end(control, STREAM_END_EOF);
    fake_advance(120 * FAKE_SEC);
    assert_int_equal(fake_peer_refs(), 0);
    assert_null(fake_peer(NID)->lnd_peer);
}

#define TEST(name)                                                                                 \
    {                                                                                              \
#name, name, setup, teardown, NULL                                                         \
    }
#define TEST_16(name)                                                                              \
    {                                                                                              \
#name, name, setup_16, teardown, NULL                                                      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_choice),
        {"test_bulk_on_control", test_bulk_on_control, setup_control, teardown, NULL},
        {"test_small_on_bulk", test_small_on_bulk, setup_bulk, teardown, NULL},
        TEST(test_choice_v4),
        TEST(test_least_busy),
        TEST(test_partial_writes),
        TEST(test_many),
        TEST(test_send_from_report),
        TEST(test_send_while_closing),
        TEST(test_abort_from_report),
        TEST(test_lost_in_the_middle),
        TEST(test_send_error),
        {"test_by_reference", test_by_reference, setup_reference, teardown, NULL},
        {"test_acked_before_the_end", test_acked_before_the_end, setup_reference, teardown, NULL},
        TEST(test_tx_stall),
        TEST_16(test_tx_stall_16),
        TEST(test_unacked_stall),
        TEST(test_unacked_stall_under_load),
        TEST(test_slow_but_moving),
        TEST(test_rx_stall),
        TEST_16(test_rx_stall_in_header),
        TEST(test_idle_is_no_stall),
        TEST(test_keepalive),
        TEST(test_keepalive_gap),
        TEST(test_quiesce_idle),
        TEST(test_quiesce_busy),
        TEST(test_quiesce_broken),
        TEST(test_stop_while_quiescing),
        TEST(test_peers_are_given_back),
    };

    fake_defaults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
