/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving frames, in both modes of the transport: docs/protocol/socklnd.md §4, §6.1. */
#include "lib/lnd/evict.h"
#include "test/unit/socklnd_fake.h"

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
#define BIG  (LNET_MAX_PAYLOAD + 256)

static uint8_t *frame_buf;
static struct fake_stream *control, *bulk_in, *bulk_out; /* as the peer has them */

static int setup_common(void **state, uint32_t caps, enum fake_parse parse)
{
    fake_defaults();
    fake_transport.caps = caps;
    fake_setup(state);
    frame_buf = malloc(BIG);
    assert_non_null(frame_buf);
    core.parse = parse;
    control = fake_up(PEER, 1023, SOCK_CTYPE_CONTROL, INC);
    bulk_in = fake_up(PEER, 1022, SOCK_CTYPE_BULK_IN, INC);
    bulk_out = fake_up(PEER, 1021, SOCK_CTYPE_BULK_OUT, INC);
    return 0;
}

static int setup_read(void **state)
{
    return setup_common(state, 0, FAKE_RECEIVE);
}

static int setup_take(void **state)
{
    return setup_common(state, STREAM_CAP_TAKE, FAKE_OWN);
}

static int setup_take_copy(void **state)
{
    return setup_common(state, STREAM_CAP_TAKE, FAKE_RECEIVE);
}

static int teardown(void **state)
{
    free(frame_buf);
    return fake_teardown(state);
}

static void expect_received(unsigned n, uint32_t len)
{
    const struct fake_received *r = &core.received[n - 1];

    assert_int_equal(core.nreceived, n);
    assert_int_equal(r->result.reason, LNET_DROP_NONE);
    assert_int_equal(r->result.health, LNET_HEALTH_OK);
    assert_int_equal(r->hdr.type, LNET_MSG_PUT);
    assert_int_equal(r->len, len);
    for (uint32_t i = 0; i < len; i++)
        assert_int_equal(r->data[i], fake_pattern(i));
}

static void expect_lost(unsigned n, enum lnet_drop reason)
{
    assert_int_equal(core.nreceived, n);
    assert_int_equal(core.received[n - 1].result.reason, reason);
    assert_int_equal(core.received[n - 1].result.health, LNET_HEALTH_REMOTE_ERROR);
}

static void expect_open(void)
{
    assert_false(control->closed || bulk_in->closed || bulk_out->closed);
}

static void expect_all_closed(enum lnet_drop reason)
{
    assert_true(control->closed && bulk_in->closed && bulk_out->closed);
    if (reason != LNET_DROP_NONE)
        assert_int_equal(core.drops[reason], 1);
    for (int i = 1; i < LNET_DROP_COUNT; i++) {
        if (i != (int)reason)
            assert_int_equal(core.drops[i], 0);
    }
    /* A clean end is no failure of the peer. */
    assert_int_equal(core.nnotified, reason == LNET_DROP_NONE ? 1 : 2);
}

static void test_sizes(void **state)
{
    static const uint32_t sizes[] = {0, 1, 4096, 100003, LNET_MAX_PAYLOAD};
    size_t n;

    (void)state;
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        n = fake_frame(frame_buf, NID, OWN, sizes[i], 0, 0);
        fake_feed(bulk_out, frame_buf, n);
        expect_received(i + 1, sizes[i]);
        assert_true(nid_same(&core.received[i].from, &core.received[i].hdr.src_nid));
        fake_expect_nothing(bulk_out);
    }
    expect_open();
}

static void test_byte_by_byte(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 300, 77, 0);

    (void)state;
    n += fake_noop(frame_buf + n, 0, SOCK_COOKIE_PING);
    n += fake_frame(frame_buf + n, NID, OWN, 0, 0, 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(core.nreceived, i < SOCK_FRAME_SIZE + LNET_HDR4_SIZE + 300 ? 0 : 1);
        fake_feed(control, frame_buf + i, 1);
        fake_advance(10 * FAKE_SEC); /* slow, but it goes on */
    }
    fake_expect_noop(control, 77);
    expect_received(2, 0);
    assert_int_equal(core.received[0].data[299], fake_pattern(299));
    assert_false(control->closed);
}

static void test_many_at_once(void **state)
{
    size_t n = 0;

    (void)state;
    for (int i = 0; i < 300; i++) {
        n += fake_frame(frame_buf + n, NID, OWN, (uint32_t)i, 0, 0);
        n += fake_noop(frame_buf + n, 0, SOCK_COOKIE_PING);
    }
    fake_feed(control, frame_buf, n);
    expect_received(300, 299);
    expect_open();
}

/* Any frame is taken on any type of connection. */
static void test_any_type(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 10, 5, 0);

    (void)state;
    fake_feed(bulk_in, frame_buf, n);
    expect_received(1, 10);
    fake_expect_noop(bulk_in, 5);
    fake_expect_nothing(control);
    fake_expect_nothing(bulk_out);
}

/* One acknowledgement for each that is asked for, on the same connection, when the payload is in.
 */
static void test_zc_acks(void **state)
{
    size_t n;

    (void)state;
    for (uint64_t cookie = 2; cookie < 40; cookie++) {
        n = fake_frame(frame_buf, NID, OWN, 20000, cookie, 0);
        fake_feed(bulk_out, frame_buf, n - 1);
        fake_expect_nothing(bulk_out);
        fake_feed(bulk_out, frame_buf + n - 1, 1);
        fake_expect_noop(bulk_out, cookie);
    }
    expect_received(38, 20000);
    fake_advance(20 * FAKE_SEC);
    fake_expect_nothing(bulk_out);
}

/* A message that is dropped is acknowledged too, before its bytes have come. */
static void test_zc_ack_of_dropped(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 5000, 9, 0);

    (void)state;
    core.parse = FAKE_DISCARD;
    fake_feed(bulk_out, frame_buf, SOCK_FRAME_SIZE + LNET_HDR4_SIZE - 1);
    fake_expect_nothing(bulk_out);
    fake_feed(bulk_out, frame_buf + SOCK_FRAME_SIZE + LNET_HDR4_SIZE - 1, 1);
    fake_expect_noop(bulk_out, 9);
    assert_int_equal(core.nreceived, 1);
    fake_feed(bulk_out, frame_buf + SOCK_FRAME_SIZE + LNET_HDR4_SIZE,
              n - SOCK_FRAME_SIZE - LNET_HDR4_SIZE);
    core.parse = FAKE_RECEIVE;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 8, 0, 0));
    expect_received(2, 8);
    fake_expect_nothing(bulk_out);
}

static void test_truncated(void **state)
{
    (void)state;
    core.parse = FAKE_TRUNCATE;
    core.truncate = 100;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 200000, 3, 0x1234));
    fake_expect_noop(bulk_out, 3);
    expect_received(1, 100);
    core.parse = FAKE_RECEIVE;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 8, 0, 0));
    expect_received(2, 8);
}

/* Until the core calls recv, that connection is not read; others are. */
static void test_waits_for_core(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 50, 4, 0);

    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, n);
    assert_non_null(core.waiting);
    fake_advance(120 * FAKE_SEC);           /* it is we who let it wait */
    bulk_out->out_read = bulk_out->out_len; /* keepalives */
    fake_feed(bulk_out, frame_buf, n);
    assert_true(bulk_out->paused);
    assert_int_equal(bulk_out->in_len, n + 50);
    fake_expect_nothing(bulk_out);
    core.parse = FAKE_RECEIVE;
    fake_feed(control, frame_buf, n);
    expect_received(1, 50);
    fake_advance(120 * FAKE_SEC);
    expect_open();
    fake_recv(50);
    assert_false(bulk_out->paused);
    expect_received(3, 50);
    assert_int_equal(bulk_out->in_len, 0);
}

static void test_later_discard(void **state)
{
    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 50, 4, 0));
    core.parse = FAKE_DISCARD;
    fake_recv(0);
    fake_expect_noop(bulk_out, 4);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(bulk_out->in_len, 0);
}

/* §4.6: over the payload only, no final inversion; not looked at when part of it is dropped. */
static void test_checksum(void **state)
{
    uint8_t payload[1000];
    uint32_t sum;

    (void)state;
    for (uint32_t i = 0; i < sizeof(payload); i++)
        payload[i] = fake_pattern(i);
    sum = sock_crc32(SOCK_CRC_SEED, payload, sizeof(payload));
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 1000, 6, sum));
    expect_received(1, 1000);
    fake_expect_noop(bulk_out, 6);
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 0, 0, SOCK_CRC_SEED));
    expect_received(2, 0);
    core.parse = FAKE_DISCARD;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 1000, 0, sum + 1));
    expect_open();
    core.parse = FAKE_RECEIVE;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 1000, 7, sum + 1));
    expect_lost(4, LNET_DROP_RX_INCOMPLETE);
    fake_expect_nothing(bulk_out); /* no acknowledgement */
    expect_all_closed(SOCK_DROP(PAYLOAD_CSUM));
}

static void test_checksum_of_nothing(void **state)
{
    (void)state;
    fake_feed(control, frame_buf, fake_frame(frame_buf, NID, OWN, 0, 0, 1));
    expect_lost(1, LNET_DROP_RX_INCOMPLETE);
    expect_all_closed(SOCK_DROP(PAYLOAD_CSUM));
}

/* ---- frames that end everything ---- */

struct bad {
    size_t at;
    const char *change;
    size_t len;
    enum lnet_drop drop;
};

static void feed_bad(void **state, const struct bad *bad, bool noop)
{
    size_t n =
        noop ? fake_noop(frame_buf, 0, SOCK_COOKIE_PING) : fake_frame(frame_buf, NID, OWN, 0, 0, 0);

    (void)state;
    memcpy(frame_buf + bad->at, bad->change, bad->len);
    fake_feed(control, frame_buf, n);
    assert_int_equal(core.nreceived, 0);
    expect_all_closed(bad->drop);
    assert_false(control->aborted);
}

#define BAD(name, noop, at, change, len, drop)                                                     \
    static void name(void **state)                                                                 \
    {                                                                                              \
        static const struct bad bad = {at, change, len, drop};                                     \
        feed_bad(state, &bad, noop);                                                               \
    }

BAD(test_bad_type, true, 0, "\xc2", 1, SOCK_DROP(FRAME_TYPE))
BAD(test_bad_type_swapped, true, 0, "\x00\x00\x00\xc0", 4, SOCK_DROP(FRAME_TYPE))
BAD(test_bad_noop_csum, true, 4, "\x01", 1, SOCK_DROP(NOOP_CSUM))
BAD(test_bad_ack, true, 16, "\x02", 1, SOCK_DROP(ZC_ACK))
BAD(test_bad_ack_range, true, 8, "\x02\0\0\0\0\0\0\0\x05", 9, SOCK_DROP(ZC_ACK))
BAD(test_bad_ack_pair, true, 8, "\x05\0\0\0\0\0\0\0\x03", 9, SOCK_DROP(ZC_ACK))
BAD(test_bad_keepalive_pair, true, 8, "\x05", 1, SOCK_DROP(ZC_ACK))
BAD(test_bad_piggyback, false, 16, "\x02", 1, SOCK_DROP(ZC_ACK))
BAD(test_bad_hdr_type, false, 48, "\x07", 1, LNET_DROP_HDR_TYPE)
BAD(test_bad_hdr_hello, false, 48, "\x04", 1, LNET_DROP_HDR_TYPE)
BAD(test_bad_get_length, false, 48, "\x02\0\0\0\x01", 5, LNET_DROP_HDR_LEN_NOT_ZERO)
BAD(test_bad_ack_length, false, 48, "\x00\0\0\0\x01", 5, LNET_DROP_HDR_LEN_NOT_ZERO)
BAD(test_bad_put_length, false, 52, "\x01\x00\x10\x00", 4, LNET_DROP_HDR_TOO_LONG)
BAD(test_bad_nid, false, 31, "\x01", 1, LNET_DROP_HDR_BAD_NID)

static void test_core_refuses(void **state)
{
    (void)state;
    core.parse = FAKE_REFUSE;
    core.refusal = LNET_DROP_DEST_SAME_NET;
    fake_feed(control, frame_buf, fake_frame(frame_buf, NID, "10.0.0.9@tcp", 20, 0, 0));
    assert_int_equal(core.nreceived, 0);
    expect_all_closed(LNET_DROP_DEST_SAME_NET);
    assert_true(control->unread);
}

/* Frames that mean nothing. */
static void test_empty_noops(void **state)
{
    size_t n = fake_noop(frame_buf, 0, 0);

    (void)state;
    n += fake_noop(frame_buf + n, 0, SOCK_COOKIE_PING);
    n += fake_noop(frame_buf + n, 0, SOCK_COOKIE_PING);
    memset(frame_buf + n - SOCK_FRAME_SIZE + 4, 0xff, 4); /* the bare seed as checksum */
    fake_feed(bulk_in, frame_buf, n);
    expect_open();
    fake_expect_nothing(bulk_in);
}

/* ---- ends ---- */

static void test_eof_between(void **state)
{
    struct lnet_msg *msg = fake_msg(fake_ni(), NID, 0);

    (void)state;
    control->window = 0;
    fake_send(msg);
    fake_run();
    fake_end(bulk_in, STREAM_END_EOF);
    expect_all_closed(LNET_DROP_NONE);
    assert_false(control->aborted);
    assert_int_equal(core.ndone, 1);
    assert_int_equal(core.sent[0].result.reason, LNET_DROP_NEXT_HOP_LOST);
    assert_int_equal(core.sent[0].result.health, LNET_HEALTH_LOCAL_ERROR);
}

/* In a frame header, an LNet header, the payload, what is thrown away. */
static void eof_within(size_t len, bool received)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 100, 0, 0);

    assert_true(len < n);
    fake_feed(bulk_out, frame_buf, len);
    fake_end(bulk_out, STREAM_END_EOF);
    if (received)
        expect_lost(1, LNET_DROP_RX_INCOMPLETE);
    else
        assert_int_equal(core.nreceived, 0);
    expect_all_closed(SOCK_DROP(EOF_IN_MESSAGE));
}

static void test_eof_in_frame(void **state)
{
    (void)state;
    eof_within(23, false);
}

static void test_eof_in_hdr(void **state)
{
    (void)state;
    eof_within(95, false);
}

static void test_eof_in_payload(void **state)
{
    (void)state;
    eof_within(150, true);
}

static void test_eof_in_slop(void **state)
{
    (void)state;
    core.parse = FAKE_DISCARD;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0) - 1);
    fake_end(bulk_out, STREAM_END_EOF);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(core.received[0].result.reason, LNET_DROP_NONE);
    expect_all_closed(SOCK_DROP(EOF_IN_MESSAGE));
}

static void test_reset(void **state)
{
    (void)state;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0) - 1);
    fake_end(control, STREAM_END_RESET);
    expect_lost(1, LNET_DROP_RX_INCOMPLETE);
    expect_all_closed(SOCK_DROP(RESET));
    assert_false(core.notified[1].up);
}

/* The connection dies while the core has the header and lets it go. */
static void test_dies_cancelled(void **state)
{
    (void)state;
    core.parse = FAKE_LATER;
    core.cancel = true;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0));
    fake_end(control, STREAM_END_RESET);
    assert_int_equal(core.cancels, 1);
    assert_int_equal(core.nreceived, 0);
    expect_all_closed(SOCK_DROP(RESET));
}

/* … and does not: then the connection waits for recv(), and so does stopping. */
static void test_dies_waiting(void **state)
{
    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0));
    fake_end(bulk_out, STREAM_END_RESET);
    expect_all_closed(SOCK_DROP(RESET));
    assert_int_equal(core.cancels, 1);
    assert_int_equal(core.nreceived, 0);
    fake_advance(100 * FAKE_SEC);
    assert_true(fake_peer_refs() > 0);
    fake_recv(100);
    expect_lost(1, LNET_DROP_RX_INCOMPLETE);
}

static void test_stop_waits_for_core(void **state)
{
    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0));
    fake_stop_later();
    assert_true(bulk_out->closed);
    assert_int_equal(fake_stopped(), 1); /* the other NI */
    fake_recv(100);
    assert_int_equal(fake_stopped(), 2);
    expect_lost(1, LNET_DROP_SHUTDOWN);
}

static void test_breaks_while_parked(void **state)
{
    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 100, 0, 0));
    fake_feed(bulk_out, frame_buf, 1);
    assert_true(bulk_out->paused);
    fake_end(bulk_out, STREAM_END_RESET);
    expect_all_closed(SOCK_DROP(RESET));
    fake_recv(100);
    expect_lost(1, LNET_DROP_RX_INCOMPLETE);
}

/* ---- acknowledgements owed ---- */

/* An acknowledgement goes between two messages, and not into one that is begun. */
static void test_ack_order(void **state)
{
    struct lnet_msg *a = fake_msg(fake_ni(), NID, 5000), *b = fake_msg(fake_ni(), NID, 5000);
    size_t first = SOCK_FRAME_SIZE + LNET_HDR4_SIZE + 5000;
    uint8_t *out = malloc(BIG);
    uint8_t noop[SOCK_FRAME_SIZE];

    (void)state;
    assert_non_null(out);
    bulk_in->window = 1000; /* our BULK_OUT */
    fake_send(a);
    fake_send(b);
    fake_run();
    fake_feed(bulk_in, frame_buf, fake_frame(frame_buf, NID, OWN, 10, 6, 0));
    fake_writable(bulk_in, 500);
    fake_writable(bulk_in, SIZE_MAX);
    assert_int_equal(fake_take_out(bulk_in, out, BIG), 2 * first + SOCK_FRAME_SIZE);
    fake_noop(noop, 0, 6);
    assert_int_equal(out[0], 0xc1);
    assert_memory_equal(out + first, noop, sizeof(noop));
    assert_int_equal(out[first + SOCK_FRAME_SIZE], 0xc1);
    assert_int_equal(core.ndone, 2);
    free(out);
}

/* A peer that asks for acknowledgements and does not read them is not read any further. */
static void test_acks_unread(void **state)
{
    size_t n = 0;

    (void)state;
    bulk_out->window = 10;
    for (unsigned i = 0; i < 100; i++)
        n += fake_frame(frame_buf + n, NID, OWN, 1, 1000 + i, 0);
    fake_feed(bulk_out, frame_buf, n);
    assert_int_equal(core.nreceived, 64);
    assert_true(bulk_out->paused);
    expect_open();
    for (int i = 0; i < 2000; i++)
        fake_writable(bulk_out, 7);
    assert_int_equal(core.nreceived, 100);
    assert_false(bulk_out->paused);
    assert_int_equal(bulk_out->out_len - bulk_out->out_read, 100 * SOCK_FRAME_SIZE);
    for (unsigned i = 0; i < 100; i++) {
        uint8_t want[SOCK_FRAME_SIZE];

        fake_noop(want, 0, 1000 + i);
        assert_memory_equal(bulk_out->out + bulk_out->out_read + i * SOCK_FRAME_SIZE, want,
                            SOCK_FRAME_SIZE);
    }
}

/* ---- segments of the transport ---- */

static void test_taken_outlives_connection(void **state)
{
    (void)state;
    core.hold_taken = true;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 50000, 0, 0));
    expect_received(1, 50000);
    assert_int_equal(fake_takes_out, 50);
    fake_end(bulk_out, STREAM_END_RESET);
    assert_int_equal(fake_takes_out, 50);
    fake_release_taken();
    assert_int_equal(fake_takes_out, 0);
}

/* Few segments have their place in the message: they need no holder, however many are held. */
static void test_few_segments_need_no_take(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 4000, 0, 0);

    (void)state;
    core.hold_taken = true;
    for (int i = 0; i < 300; i++)
        fake_feed(i % 2 ? bulk_out : control, frame_buf, n);
    expect_received(300, 4000);
    assert_int_equal(core.copied, 0);
    assert_int_equal(fake_takes_out, 300 * 4);
    fake_release_taken();
    expect_open();
}

/* One more than the place has: all of them move to a holder. */
static void test_segments_leave_the_message(void **state)
{
    (void)state;
    core.hold_taken = true;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 4001, 0, 0));
    expect_received(1, 4001);
    assert_int_equal(core.copied, 0);
    fake_end(bulk_out, STREAM_END_RESET);
    fake_release_taken();
    assert_int_equal(fake_takes_out, 0);
}

/* All holders are lent out: what comes then is copied, also what began in the message. */
static void test_takes_used_up_begun(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 5000, 0, 0);

    (void)state;
    core.hold_taken = true;
    for (int i = 0; i < 260; i++)
        fake_feed(bulk_out, frame_buf, n);
    expect_received(260, 5000);
    assert_int_equal(core.copied, 4);
    fake_release_taken();
    assert_int_equal(fake_takes_out, 0);
    expect_open();
}

/* All holders are lent out: what comes then is copied. */
static void test_takes_used_up(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 20, 0, 0);

    (void)state;
    core.no_places = true;
    core.hold_taken = true;
    for (int i = 0; i < 300; i++)
        fake_feed(i % 2 ? bulk_out : control, frame_buf, n);
    expect_received(300, 20);
    assert_int_equal(core.copied, 44);
    assert_int_equal(fake_takes_out, 256);
    fake_release_taken();
    fake_feed(control, frame_buf, n);
    expect_received(301, 20);
    assert_int_equal(core.copied, 44);
    expect_open();
}

static void test_too_many_segments(void **state)
{
    uint32_t sum;
    size_t n;

    (void)state;
    fake_take_chunk = 10;
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 40960, 0, 0));
    expect_received(1, 40960);
    assert_int_equal(core.copied, 0);
    n = fake_frame(frame_buf, NID, OWN, 60000, 0, 0);
    sum = sock_crc32(SOCK_CRC_SEED, frame_buf + n - 60000, 60000);
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 60000, 0, sum));
    expect_received(2, 60000);
    assert_int_equal(core.copied, 1);
    fake_feed(bulk_out, frame_buf, fake_frame(frame_buf, NID, OWN, 60000, 0, sum + 1));
    expect_lost(3, LNET_DROP_RX_INCOMPLETE);
    expect_all_closed(SOCK_DROP(PAYLOAD_CSUM));
}

/* The core has no memory for segments: after the first bytes the message goes into its buffer. */
static void test_no_memory_for_segments(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 200000, 0, 0);
    size_t hdr = n - 200000;

    (void)state;
    core.no_memory = true;
    fake_feed(bulk_out, frame_buf, hdr + 5);
    assert_int_equal(core.copied, 1);
    assert_int_equal(fake_takes_out, 0);
    for (size_t at = hdr + 5; at < n; at += 7001)
        fake_feed(bulk_out, frame_buf + at, n - at < 7001 ? n - at : 7001);
    expect_received(1, 200000);
    assert_int_equal(core.copied, 1);
    fake_feed(bulk_out, frame_buf, hdr + 5);
    fake_end(bulk_out, STREAM_END_RESET);
    expect_lost(2, LNET_DROP_RX_INCOMPLETE);
}

/* A receive that took too long is given up: what has come goes back at once, and the transport
 * hears of less memory before anybody else can have it. */
static void test_give_up(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 200000, 0, 0);
    size_t hdr = n - 200000;
    struct reactor *before;
    struct lnet_rx *rx;

    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, hdr);
    rx = core.waiting;
    core.waiting = NULL;
    core.parse = FAKE_DISCARD;
    before = fake_on(1);
    lnd_sock_ops.recv(rx, NULL, 0, 200000);
    fake_restore(before);
    fake_feed(bulk_out, frame_buf + hdr, 50000);
    assert_int_equal(fake_takes_out, 50);
    fake_arrive(bulk_out, frame_buf + hdr + 50000, 50000);
    bulk_out->memory = 0;
    before = fake_on(1);
    assert_int_equal(lnd_sock_ops.recv_abandon(rx, false), LNET_ABANDON_NOT); /* it moves */
    assert_int_equal(lnd_sock_ops.recv_abandon(rx, true), LNET_ABANDON_DONE);
    fake_restore(before);
    assert_int_equal(fake_takes_out, 0);
    assert_int_equal(bulk_out->in_len, 0);
    assert_int_not_equal(bulk_out->memory, 0);
    fake_feed(bulk_out, frame_buf + hdr + 100000, 100000);
    assert_int_equal(core.nreceived, 1);
    core.parse = FAKE_OWN;
    fake_feed(bulk_out, frame_buf, n);
    expect_received(2, 200000);
    expect_open();
}

/* A byte now and then is no progress, a twentieth of the message is. */
static void test_pace(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 200000, 0, 0);
    size_t at = n - 200000;
    struct reactor *before;
    struct lnet_rx *rx;

    (void)state;
    core.parse = FAKE_LATER;
    fake_feed(bulk_out, frame_buf, at);
    rx = core.waiting;
    core.waiting = NULL;
    before = fake_on(1);
    lnd_sock_ops.recv(rx, NULL, 0, 200000);
    fake_restore(before);
    rx->progress_us = 0;
    for (unsigned i = 0; i < 100; i++)
        fake_feed(bulk_out, frame_buf + at++, 1);
    assert_int_equal(rx->progress_us, 0);
    fake_feed(bulk_out, frame_buf + at, 10000);
    assert_int_not_equal(rx->progress_us, 0);
    fake_feed(bulk_out, frame_buf + at + 10000, n - at - 10000);
    expect_received(1, 200000);
    expect_open();
}

/* A connection that may not send anything yet is not read. */
static void test_waits_for_grant(void **state)
{
    size_t n = fake_frame(frame_buf, NID, OWN, 20, 0, 0);
    struct fake_stream *s;

    (void)state;
    core.no_grants = true;
    s = fake_up("10.0.0.9", 1023, SOCK_CTYPE_CONTROL, INC);
    assert_non_null(core.grant_waits);
    fake_feed(s, frame_buf, n);
    assert_int_equal(core.nreceived, 0);
    assert_false(s->told);
    fake_advance(40 * FAKE_SEC);
    assert_false(s->closed);
    fake_grant();
    expect_received(1, 20);
    assert_true(s->told);
    assert_int_equal(s->promised, FAKE_AHEAD);
    s = fake_up("10.0.0.11", 1023, SOCK_CTYPE_CONTROL, INC);
    assert_int_equal(core.grants, 5);
    fake_end(s, STREAM_END_RESET);
    assert_int_equal(core.grants, 4);
}

/* A caller for whom there may be no place. */
static struct fake_stream *caller(const char *from)
{
    struct fake_stream *s = fake_call(from, 1023);
    uint8_t buf[256];
    char nid[64];

    snprintf(nid, sizeof(nid), "%s@tcp", from);
    fake_feed(s, buf, fake_hello(buf, nid, OWN, SOCK_CTYPE_CONTROL, INC));
    return s;
}

/* Who has more than a normal set gives way at once, who has not when it sent no message for long,
 * keep-alives or not; and nobody to a caller that has no better claim. */
static void test_gives_way(void **state)
{
    struct fake_stream *first, *second;

    (void)state;
    core.grants_most = core.grants + 1;
    first = fake_up("10.0.0.9", 1023, SOCK_CTYPE_CONTROL, INC);
    assert_true(caller("10.0.0.15")->closed);
    assert_int_equal(core.drops[SOCK_DROP(NO_MEMORY)], 1);
    expect_open();
    assert_false(first->closed);

    core.grants_most += 1;
    fake_up(PEER, 1000, SOCK_CTYPE_BULK_IN, INC);
    second = caller("10.0.0.15");
    assert_true(control->closed && bulk_in->closed && bulk_out->closed);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 1);
    assert_false(first->closed || second->closed);
    assert_int_equal(core.connected, 2);

    core.grants_most = core.grants;
    fake_advance(LND_EVICT_IDLE_US - FAKE_SEC);
    fake_feed(first, frame_buf, fake_frame(frame_buf, "10.0.0.9@tcp", OWN, 100, 8, 0));
    fake_feed(second, frame_buf, fake_noop(frame_buf, 0, SOCK_COOKIE_PING));
    fake_advance(2 * FAKE_SEC);
    assert_false(caller("10.0.0.21")->closed);
    assert_true(second->closed);
    assert_false(first->closed);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 2);
}

/* So many connections with much to read that they are not told of more meanwhile: all of it is read
 * in the end, and they are told again. */
static void test_many_have_much(void **state)
{
    static struct fake_stream *s[40];
    unsigned quiet = 0;
    char from[32];
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < 40; i++) {
        snprintf(from, sizeof(from), "10.0.1.%u", i + 1);
        s[i] = fake_up(from, 1023, SOCK_CTYPE_CONTROL, INC);
    }
    for (unsigned i = 0; i < 1000; i++)
        n += fake_noop(frame_buf + n, 0, SOCK_COOKIE_PING);
    for (unsigned part = 0; part < 2; part++) {
        for (unsigned i = 0; i < 40; i++)
            fake_arrive(s[i], frame_buf, n);
        fake_iterate();
    }
    for (unsigned i = 0; i < 40; i++)
        quiet += s[i]->paused;
    assert_true(quiet > 0);
    fake_run();
    for (unsigned i = 0; i < 40; i++) {
        assert_false(s[i]->paused);
        assert_int_equal(s[i]->in_len, 0);
        snprintf(from, sizeof(from), "10.0.1.%u@tcp", i + 1);
        fake_feed(s[i], frame_buf, fake_frame(frame_buf, from, OWN, 100, 8, 0));
        assert_int_equal(core.nreceived, i + 1);
    }
}

/* A host of another net that calls by that net's interface. */
static void test_other_interface(void **state)
{
    (void)state;
    core.other_if = "eth7";
    fake_came_by = "eth7";
    assert_true(caller("10.0.0.9")->closed);
    assert_int_equal(core.drops[SOCK_DROP(INTERFACE)], 1);
    fake_came_by = "eth8";
    assert_false(caller("10.0.0.9")->closed);
}

static void test_ipv6(void **state)
{
    struct fake_stream *s = fake_up("fd00::7", 1023, SOCK_CTYPE_CONTROL, INC);
    size_t n = fake_frame(frame_buf, "fd00::7@tcp", "fd00::5@tcp", 100, 8, 0);

    (void)state;
    assert_int_equal(n, SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 100);
    fake_feed(s, frame_buf, n);
    expect_received(1, 100);
    fake_expect_noop(s, 8);
}

#define READ(name)                                                                                 \
    {                                                                                              \
        "read: " #name, name, setup_read, teardown, NULL                                           \
    }
#define TAKE(name)                                                                                 \
    {                                                                                              \
        "take: " #name, name, setup_take, teardown, NULL                                           \
    }
#define COPY(name)                                                                                 \
    {                                                                                              \
        "copy: " #name, name, setup_take_copy, teardown, NULL                                      \
    }
#define BOTH(name) READ(name), TAKE(name), COPY(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(test_sizes),
        BOTH(test_byte_by_byte),
        BOTH(test_many_at_once),
        READ(test_any_type),
        BOTH(test_zc_acks),
        READ(test_zc_ack_of_dropped),
        COPY(test_zc_ack_of_dropped),
        READ(test_truncated),
        COPY(test_truncated),
        READ(test_waits_for_core),
        COPY(test_waits_for_core),
        READ(test_later_discard),
        COPY(test_later_discard),
        READ(test_checksum),
        COPY(test_checksum),
        READ(test_checksum_of_nothing),
        READ(test_bad_type),
        READ(test_bad_type_swapped),
        READ(test_bad_noop_csum),
        READ(test_bad_ack),
        READ(test_bad_ack_range),
        READ(test_bad_ack_pair),
        READ(test_bad_keepalive_pair),
        READ(test_bad_piggyback),
        READ(test_bad_hdr_type),
        READ(test_bad_hdr_hello),
        READ(test_bad_get_length),
        READ(test_bad_ack_length),
        READ(test_bad_put_length),
        READ(test_bad_nid),
        READ(test_core_refuses),
        BOTH(test_empty_noops),
        READ(test_eof_between),
        BOTH(test_eof_in_frame),
        BOTH(test_eof_in_hdr),
        BOTH(test_eof_in_payload),
        READ(test_eof_in_slop),
        COPY(test_eof_in_slop),
        BOTH(test_reset),
        READ(test_dies_cancelled),
        READ(test_dies_waiting),
        COPY(test_dies_waiting),
        READ(test_stop_waits_for_core),
        READ(test_breaks_while_parked),
        READ(test_ack_order),
        BOTH(test_acks_unread),
        TAKE(test_taken_outlives_connection),
        TAKE(test_few_segments_need_no_take),
        TAKE(test_segments_leave_the_message),
        TAKE(test_takes_used_up_begun),
        TAKE(test_takes_used_up),
        TAKE(test_no_memory_for_segments),
        TAKE(test_give_up),
        TAKE(test_pace),
        TAKE(test_waits_for_grant),
        TAKE(test_gives_way),
        BOTH(test_many_have_much),
        READ(test_other_interface),
        TAKE(test_too_many_segments),
        BOTH(test_ipv6),
    };

    fake_defaults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
