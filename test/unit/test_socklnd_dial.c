/* SPDX-License-Identifier: BSD-3-Clause */
/* Calling: docs/protocol/socklnd.md §1.1, §2.3 to §2.7, §3.1, §3.2, §6.3. */
#include "lib/base/err.h"
#include "test/unit/socklnd_fake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PEER  "10.0.0.3"
#define NID   PEER "@tcp"
#define HIGH  "10.0.0.8"
#define OWN   "10.0.0.5@tcp"
#define INC   0x184a1b1c1d1e1f20ull
#define SMALL (SOCK_FRAME_SIZE + LNET_HDR4_SIZE)

static uint16_t source_port(const struct fake_stream *s)
{
    return ntohs(s->local.in.sin_port);
}

/* What we write first, after docs §8.1 and §8.2; only our incarnation is free. */
static void expect_request(struct fake_stream *s, enum sock_ctype type)
{
    static const uint8_t want[72] = {
        0x00, 0x71, 0xce, 0xac, 1, 0, 0,  0, 3, 0, 0, 10, 0, 0, 2,  0, 0x63, 0x69, 0x72, 0x45, 3,
        0,    0,    0,    5,    0, 0, 10, 0, 0, 2, 0, 3,  0, 0, 10, 0, 0,    2,    0,    0x39, 0x30,
    };
    uint8_t got[128];

    assert_int_equal(fake_take_out(s, got, sizeof(got)), 72);
    memset(got + 48, 0, 8);
    assert_int_equal(got[64], type);
    got[64] = 0;
    assert_memory_equal(got, want, 72);
}

static void answer(struct fake_stream *s, const char *nid, enum sock_ctype type, uint64_t inc)
{
    uint8_t buf[128];

    fake_feed(s, buf, fake_hello_only(buf, nid, OWN, type, inc));
}

/* The LND's next call, up to its request. */
static struct fake_stream *next_call(enum sock_ctype type)
{
    struct fake_stream *s;

    fake_advance(2000);
    s = fake_dialled();
    assert_non_null(s);
    fake_connected(s);
    expect_request(s, type);
    return s;
}

static struct fake_stream *answered_call(enum sock_ctype type, uint64_t inc)
{
    struct fake_stream *s = next_call(type);

    answer(s, NID, sock_ctype_invert(type), inc);
    assert_false(s->closed);
    assert_true(s->established);
    return s;
}

static void no_call(uint64_t us)
{
    fake_advance(us);
    assert_null(fake_dialled());
}

static struct lnet_msg *send_small(void)
{
    struct lnet_msg *msg = fake_msg(fake_ni(), NID, 0);

    fake_send(msg);
    return msg;
}

static void expect_done(unsigned n, enum lnet_drop reason, enum lnet_health health)
{
    assert_int_equal(core.ndone, n);
    assert_int_equal(core.sent[n - 1].result.reason, reason);
    assert_int_equal(core.sent[n - 1].result.health, health);
}

static void test_order(void **state)
{
    static const enum sock_ctype order[] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_IN,
                                            SOCK_CTYPE_BULK_OUT};
    struct fake_stream *s, *control = NULL;
    uint8_t buf[256];

    (void)state;
    send_small();
    for (int i = 0; i < 3; i++) {
        s = next_call(order[i]);
        assert_int_equal(source_port(s), 1023 - i);
        assert_int_equal(ntohs(s->remote.in.sin_port), 988);
        assert_int_equal(s->local.in.sin_addr.s_addr, htonl(0x0a000005));
        assert_int_equal(reactor_index(s->reactor), 1);
        no_call(100000); /* nothing more before the answer */
        answer(s, NID, sock_ctype_invert(order[i]), INC);
        if (i == 0) { /* the message goes before the next connection is up */
            control = s;
            assert_int_equal(fake_take_out(s, buf, sizeof(buf)), SMALL);
            expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
        }
        assert_true(s->established);
    }
    no_call(120 * FAKE_SEC);
    assert_false(control->closed);
    assert_int_equal(core.nnotified, 1);
    assert_true(core.notified[0].up);
    send_small();
    fake_run();
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
    assert_int_equal(fake_connects(), 3);
}

static int setup_four(void **state)
{
    fake_defaults();
    fake_conns_per_peer = 4;
    return fake_setup(state);
}

static void test_order_of_nine(void **state)
{
    static const char order[] = "CIOIOIOIO";

    (void)state;
    send_small();
    for (int i = 0; i < 9; i++) {
        enum sock_ctype type = order[i] == 'C'   ? SOCK_CTYPE_CONTROL
                               : order[i] == 'I' ? SOCK_CTYPE_BULK_IN
                                                 : SOCK_CTYPE_BULK_OUT;

        assert_int_equal(source_port(answered_call(type, INC)), 1023 - i);
    }
    no_call(FAKE_SEC);
}

static void test_ports(void **state)
{
    (void)state;
    fake_ports_in_use = 35; /* the next would be 988 */
    send_small();
    assert_int_equal(source_port(next_call(SOCK_CTYPE_CONTROL)), 987);
}

static void test_no_port_left(void **state)
{
    (void)state;
    fake_ports_in_use = 512;
    send_small();
    fake_advance(2000);
    expect_done(1, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR);
    assert_int_equal(core.drops[SOCK_DROP(DIAL_FAILED)], 1);
}

static void test_connect_errors(void **state)
{
    static const struct {
        int err;
        enum lnet_health health;
    } rows[] = {
        {-ECONNREFUSED, LNET_HEALTH_REMOTE_DROPPED}, {-EHOSTUNREACH, LNET_HEALTH_REMOTE_DROPPED},
        {-ENETUNREACH, LNET_HEALTH_REMOTE_DROPPED},  {-ETIMEDOUT, LNET_HEALTH_NETWORK_TIMEOUT},
        {-EACCES, LNET_HEALTH_LOCAL_ERROR},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        fake_connect_error = rows[i].err;
        send_small();
        fake_advance(2000);
        expect_done(i + 1, LNET_DROP_NEXT_HOP_DOWN, rows[i].health);
        fake_advance(61 * FAKE_SEC);
    }
}

static void test_connect_ends(void **state)
{
    static const struct {
        enum stream_end end;
        enum lnet_health health;
    } rows[] = {
        {STREAM_END_REFUSED, LNET_HEALTH_REMOTE_DROPPED},
        {STREAM_END_RESET, LNET_HEALTH_REMOTE_DROPPED},
        {STREAM_END_UNREACHABLE, LNET_HEALTH_REMOTE_DROPPED},
        {STREAM_END_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT},
        {STREAM_END_ERROR, LNET_HEALTH_LOCAL_ERROR},
    };
    struct fake_stream *s;

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        send_small();
        fake_advance(2000);
        s = fake_dialled();
        fake_end(s, rows[i].end);
        assert_true(s->closed);
        expect_done(i + 1, LNET_DROP_NEXT_HOP_DOWN, rows[i].health);
        assert_int_equal(core.nnotified, i + 1);
        assert_false(core.notified[i].up);
        fake_advance(61 * FAKE_SEC);
    }
    assert_int_equal(core.drops[SOCK_DROP(DIAL_FAILED)], 5);
}

/* 1, 2, 4 … 60 s; meanwhile messages fail at once. */
static void test_back_off(void **state)
{
    static const unsigned seconds[] = {1, 2, 4, 8, 16, 32, 60, 60};
    struct fake_stream *control;
    unsigned done = 0;

    (void)state;
    fake_connect_error = -ECONNREFUSED;
    for (unsigned i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
        send_small();
        fake_advance(2000);
        expect_done(++done, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
        fake_advance(seconds[i] * FAKE_SEC - 4000);
        send_small();
        expect_done(++done, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR);
        fake_advance(3000);
    }
    fake_connect_error = 0;
    send_small();
    control = answered_call(SOCK_CTYPE_CONTROL, INC);
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    fake_advance(2000);
    expect_done(++done, LNET_DROP_NONE, LNET_HEALTH_OK);
    fake_end(control, STREAM_END_EOF);
    fake_connect_error = -ECONNREFUSED; /* and from the beginning */
    send_small();
    fake_advance(2000);
    expect_done(++done, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    fake_advance(FAKE_SEC);
    send_small();
    fake_advance(2000);
    expect_done(++done, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
}

static void test_connect_timeout(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    fake_advance(2000);
    s = fake_dialled();
    fake_advance(50 * FAKE_SEC - 10000);
    assert_false(s->closed);
    fake_advance(20000);
    assert_true(s->closed);
    assert_int_equal(core.ndone, 1);
    assert_int_equal(core.sent[0].result.health, LNET_HEALTH_NETWORK_TIMEOUT);
}

/* `net set --lnd-timeout` counts from the next attempt on. */
static void test_timeout_at_run_time(void **state)
{
    struct lnd_tunables tun = {.conns_per_peer = -1, .timeout = 5, .tos = -1};
    struct fake_stream *s;
    struct err err = {0};

    (void)state;
    assert_int_equal(lnd_sock_ops.ni_set(fake_ni(), &tun, &err), 0);
    send_small();
    fake_advance(2000);
    s = fake_dialled();
    fake_advance(5 * FAKE_SEC - 10000);
    assert_false(s->closed);
    fake_advance(20000);
    assert_true(s->closed);
    expect_done(1, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_NETWORK_TIMEOUT);
}

static void test_no_hello(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    s = next_call(SOCK_CTYPE_CONTROL);
    fake_advance(51 * FAKE_SEC);
    assert_true(s->closed);
    assert_int_equal(core.sent[0].result.health, LNET_HEALTH_NETWORK_TIMEOUT);
}

static void test_eof_instead_of_hello(void **state)
{
    (void)state;
    send_small();
    fake_end(next_call(SOCK_CTYPE_CONTROL), STREAM_END_EOF);
    expect_done(1, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
}

/* Answers that end the attempt. */
static void test_wrong_answers(void **state)
{
    static const struct {
        size_t at;
        const char *change;
        size_t len;
        enum lnet_drop drop;
    } rows[] = {
        {0, "\x00\x71\xce\xac", 4, SOCK_DROP(HELLO_MAGIC)}, /* an acceptor's reply */
        {0, "\x45\x72\x69\x63", 4, SOCK_DROP(HELLO_MAGIC)},
        {4, "\x04", 1, SOCK_DROP(HELLO_VERSION)},
        {4, "\x02", 1, SOCK_DROP(HELLO_VERSION)},
        {8, "\x04", 1, SOCK_DROP(HELLO_PEER)},
        {12, "\x01", 1, SOCK_DROP(HELLO_PEER)},
        {8, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, SOCK_DROP(HELLO_NID)},
        {24, "\x3a", 1, SOCK_DROP(HELLO_PEER)},
        {48, "\x02", 1, SOCK_DROP(HELLO_TYPE)},
        {48, "\x00", 1, SOCK_DROP(HELLO_TYPE)},
        {48, "\x09", 1, SOCK_DROP(HELLO_TYPE)},
        {52, "\x11", 1, SOCK_DROP(HELLO_NIPS)},
    };
    uint8_t buf[128];
    struct fake_stream *s;
    size_t n;

    (void)state;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(core.drops, 0, sizeof(core.drops));
        send_small();
        s = next_call(SOCK_CTYPE_CONTROL);
        n = fake_hello_only(buf, NID, OWN, SOCK_CTYPE_CONTROL, INC);
        memcpy(buf + rows[i].at, rows[i].change, rows[i].len);
        fake_feed(s, buf, n);
        assert_true(s->closed);
        assert_int_equal(core.drops[rows[i].drop], 1);
        expect_done(i + 1, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_ERROR);
        fake_advance(61 * FAKE_SEC);
    }
}

/* NONE: again after 50 ms, then every 1 s, as long as something is missing altogether. A peer that
 * still has connections of our last life refuses the first attempt only. */
static void test_refused(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    for (int i = 0; i < 6; i++) {
        s = next_call(SOCK_CTYPE_CONTROL);
        answer(s, NID, SOCK_CTYPE_NONE, INC);
        assert_true(s->closed);
        assert_int_equal(core.drops[SOCK_DROP(DIAL_REFUSED)], i + 1);
        no_call(i == 0 ? 49000 : FAKE_SEC - 1000);
        assert_int_equal(core.ndone, 0);
    }
    answered_call(SOCK_CTYPE_CONTROL, INC);
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* For ever refused: the attempt ends with the timeout. */
static void test_refused_for_ever(void **state)
{
    int calls = 0;

    (void)state;
    send_small();
    while (core.ndone == 0) {
        struct fake_stream *s;

        fake_advance(2000);
        s = fake_dialled();
        if (s) {
            fake_connected(s);
            answer(s, NID, SOCK_CTYPE_NONE, INC);
            calls++;
        }
        fake_advance(FAKE_SEC / 4);
        assert_true(calls < 100);
    }
    assert_in_range(calls, 35, 51);
    assert_int_equal(core.sent[0].result.health, LNET_HEALTH_NETWORK_TIMEOUT);
}

/* A peer that takes fewer connections of a type than we would open: enough after three tries. */
static void test_surplus_refused(void **state)
{
    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    for (int i = 0; i < 3; i++) {
        answer(next_call(SOCK_CTYPE_BULK_IN), NID, SOCK_CTYPE_NONE, INC);
        fake_advance(i < 2 ? FAKE_SEC - 2000 : 0);
    }
    no_call(60 * FAKE_SEC);
    send_small();
    no_call(10 * FAKE_SEC);
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* The peer called meanwhile and we are the lower one: its connection is used, ours waits 1 s. */
static void test_yields(void **state)
{
    struct fake_stream *ours, *theirs;
    struct lnet_msg *msg = fake_msg(fake_ni(), HIGH "@tcp", 0);
    uint8_t buf[256];

    (void)state;
    fake_send(msg);
    fake_advance(2000);
    ours = fake_dialled();
    fake_connected(ours);
    theirs = fake_call(HIGH, 1023);
    fake_feed(theirs, buf, fake_hello(buf, HIGH "@tcp", OWN, SOCK_CTYPE_CONTROL, INC));
    assert_int_equal(fake_take_out(theirs, buf, sizeof(buf)), SOCK_HELLO4_SIZE + SMALL);
    answer(ours, HIGH "@tcp", SOCK_CTYPE_NONE, INC);
    no_call(10 * FAKE_SEC); /* it looked: the peer has begun a set, and it is the peer's */
    fake_send(fake_msg(fake_ni(), HIGH "@tcp", 10000));
    no_call(10 * FAKE_SEC);
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* The peer called meanwhile, had what it wanted, and is gone: it is not called for nothing, and the
 * next message does not wait. */
static void test_yields_to_one_who_goes(void **state)
{
    struct fake_stream *ours, *theirs;
    uint8_t buf[256];

    (void)state;
    fake_send(fake_msg(fake_ni(), HIGH "@tcp", 0));
    fake_advance(2000);
    ours = fake_dialled();
    fake_connected(ours);
    answer(ours, HIGH "@tcp", SOCK_CTYPE_NONE, INC);
    theirs = fake_call(HIGH, 1023);
    fake_feed(theirs, buf, fake_hello(buf, HIGH "@tcp", OWN, SOCK_CTYPE_CONTROL, INC));
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
    fake_end(theirs, STREAM_END_EOF);
    no_call(10 * FAKE_SEC);
    fake_send(fake_msg(fake_ni(), HIGH "@tcp", 0));
    fake_advance(2000);
    assert_non_null(fake_dialled());
}

/* The peer's loop was let in between two sockets of ours. */
static void test_yields_between(void **state)
{
    struct fake_stream *ours;
    uint8_t buf[256];

    (void)state;
    fake_send(fake_msg(fake_ni(), HIGH "@tcp", 0));
    fake_advance(2000);
    ours = fake_dialled();
    fake_connected(ours);
    fake_feed(fake_call(HIGH, 1022), buf,
              fake_hello(buf, HIGH "@tcp", OWN, SOCK_CTYPE_BULK_IN, INC));
    answer(ours, HIGH "@tcp", SOCK_CTYPE_CONTROL, INC);
    no_call(FAKE_SEC - 5000);
    fake_advance(10000);
    ours = fake_dialled(); /* the peer stopped there: what is missing is ours to open */
    assert_non_null(ours);
    fake_connected(ours);
    assert_int_equal(fake_take_out(ours, buf, sizeof(buf)), 72);
    assert_int_equal(buf[64], SOCK_CTYPE_BULK_IN);
}

static void test_peer_restarted(void **state)
{
    struct fake_stream *old, *s;

    (void)state;
    send_small();
    old = answered_call(SOCK_CTYPE_CONTROL, INC);
    s = next_call(SOCK_CTYPE_BULK_IN);
    answer(s, NID, SOCK_CTYPE_BULK_OUT, INC + 1);
    assert_true(s->closed);
    assert_true(old->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_STALE)], 1);
    answered_call(SOCK_CTYPE_CONTROL, INC + 1); /* at once */
}

/* A peer that called us is not called while its connections can be used. §3.2 */
static void test_passive_set(void **state)
{
    struct fake_stream *s = fake_up(PEER, 1023, SOCK_CTYPE_CONTROL, INC);

    (void)state;
    fake_send(fake_msg(fake_ni(), NID, 100000));
    no_call(10 * FAKE_SEC);
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
    fake_end(s, STREAM_END_EOF);
    assert_true(s->closed);
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* Its only connection is one that carries nothing from us: so we call. */
static void test_unusable_set(void **state)
{
    (void)state;
    fake_up(PEER, 1023, SOCK_CTYPE_BULK_OUT, INC);
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* A set that we began and that never became whole is completed with the next message. */
static void test_completes_own_set(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    s = next_call(SOCK_CTYPE_BULK_IN);
    fake_end(s, STREAM_END_RESET);
    assert_int_equal(core.nnotified, 1); /* not down: there is a connection */
    send_small();
    no_call(FAKE_SEC / 2); /* back-off */
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
    fake_advance(FAKE_SEC);
    send_small();
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
}

/* Also the surplus of a type: all types are there, but fewer connections than the set is to have.
 */
static void test_completes_surplus(void **state)
{
    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    fake_end(next_call(SOCK_CTYPE_BULK_IN), STREAM_END_RESET);
    no_call(2 * FAKE_SEC); /* not without a message */
    send_small();
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    send_small();
    no_call(10 * FAKE_SEC);
    expect_done(3, LNET_DROP_NONE, LNET_HEALTH_OK);
}

static void set_conns_per_peer(int n)
{
    struct lnd_tunables tun = {.conns_per_peer = n, .timeout = -1, .tos = -1};
    struct err err = {0};

    assert_int_equal(lnd_sock_ops.ni_set(fake_ni(), &tun, &err), 0);
}

/* A whole set of two of each bulk type, in the order of `order`. */
static void answered_five(const char *order)
{
    for (; *order != 0; order++)
        answered_call(*order == 'C'   ? SOCK_CTYPE_CONTROL
                      : *order == 'I' ? SOCK_CTYPE_BULK_IN
                                      : SOCK_CTYPE_BULK_OUT,
                      INC);
    no_call(10 * FAKE_SEC);
}

/* What is set while a set is made is for the next one, whether the run goes on or begins again.
 * §3.1 */
static void test_keeps_number(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    set_conns_per_peer(2);
    fake_end(next_call(SOCK_CTYPE_BULK_IN), STREAM_END_RESET);
    fake_advance(2 * FAKE_SEC);
    send_small();
    s = answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    no_call(10 * FAKE_SEC);
    send_small();
    no_call(10 * FAKE_SEC);
    fake_end(s, STREAM_END_EOF);
    send_small();
    answered_five("CIOIO");
    expect_done(4, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* The peer calls with v4 while our HELLO of v3 is unanswered: our connection is closed and begun
 * anew, and its answer is not taken for one of another version. */
static void test_other_version_meanwhile(void **state)
{
    struct fake_stream *ours, *theirs;
    struct sock_hello in = {.version = SOCK_HELLO_V4,
                            .dst_nid = fake_ni()->nid,
                            .src_pid = LNET_PID_LUSTRE,
                            .src_incarnation = INC,
                            .ctype = SOCK_CTYPE_BULK_OUT};
    uint8_t buf[256];
    size_t n;

    (void)state;
    assert_int_equal(nid_parse(HIGH "@tcp", &in.src_nid), 0);
    fake_send(fake_msg(fake_ni(), HIGH "@tcp", 0));
    fake_advance(2000);
    ours = fake_dialled();
    fake_connected(ours);
    theirs = fake_call(HIGH, 1023);
    n = sock_req_encode(&in.dst_nid, buf);
    n += sock_hello_encode(&in, buf + n);
    fake_feed(theirs, buf, n);
    assert_false(theirs->closed);
    assert_true(ours->closed);
    fake_advance(FAKE_SEC + 10000);
    ours = fake_dialled();
    assert_non_null(ours);
    fake_connected(ours);
    n = fake_take_out(ours, buf, sizeof(buf));
    assert_int_equal(n, SOCK_REQ4_SIZE + SOCK_HELLO16_SIZE);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_VERSION)], 0);
    assert_int_equal(core.drops[SOCK_DROP(DIAL_FAILED)], 0);
}

/* The set dies while the run calls: what the run makes from then on is a new set. */
static void test_number_of_new_set(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    s = answered_call(SOCK_CTYPE_CONTROL, INC);
    set_conns_per_peer(2);
    fake_end(s, STREAM_END_EOF);
    answered_five("ICOIO");
}

/* Waiting for a connection ends with the timeout, first in first out. */
static void test_queue_expiry(void **state)
{
    struct lnet_msg *first = send_small();
    struct fake_stream *s = next_call(SOCK_CTYPE_CONTROL);

    (void)state;
    fake_advance(30 * FAKE_SEC);
    send_small();
    answer(s, NID, SOCK_CTYPE_NONE, INC);
    fake_advance(10 * FAKE_SEC);
    s = fake_dialled();
    fake_connected(s);
    fake_advance(10 * FAKE_SEC + 3000);
    assert_int_equal(core.ndone, 1);
    assert_ptr_equal(core.sent[0].msg, first);
    expect_done(1, LNET_DROP_NEXT_HOP_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    answer(s, NID, SOCK_CTYPE_CONTROL, INC);
    expect_done(2, LNET_DROP_NONE, LNET_HEALTH_OK);
}

static void test_abort_while_calling(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    s = next_call(SOCK_CTYPE_CONTROL);
    fake_on(1);
    lnd_sock_ops.peer_abort(fake_ni(), fake_peer(NID), LNET_DROP_NEXT_HOP_LOST);
    assert_true(s->closed);
    expect_done(1, LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED);
    no_call(FAKE_SEC);
}

static bool connect_to(bool give_up)
{
    struct reactor *before;
    bool is;

    before = fake_on(1);
    is = lnd_sock_ops.peer_connect(fake_ni(), fake_peer(NID), give_up);
    fake_restore(before);
    return is;
}

/* Connections are opened without a message. An attempt that is ended leaves no back-off. */
static void test_connect(void **state)
{
    struct fake_stream *s;

    (void)state;
    assert_false(connect_to(true));
    no_call(FAKE_SEC);
    assert_false(connect_to(false));
    s = next_call(SOCK_CTYPE_CONTROL);
    assert_false(connect_to(false));
    no_call(2000);
    assert_false(connect_to(true));
    assert_true(s->closed);
    no_call(FAKE_SEC);
    assert_false(connect_to(false));
    answered_call(SOCK_CTYPE_CONTROL, INC);
    assert_true(connect_to(false));
    assert_true(connect_to(true));
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    no_call(FAKE_SEC);
    assert_int_equal(core.ndone, 0);
}

/* A message waits for the attempt, so it goes on. */
static void test_connect_wanted(void **state)
{
    (void)state;
    assert_false(connect_to(false));
    send_small();
    assert_false(connect_to(true));
    answered_call(SOCK_CTYPE_CONTROL, INC);
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* After an abort the next run opens a whole set again, although the peer refused more before. */
static void test_abort_of_refused_set(void **state)
{
    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    answered_call(SOCK_CTYPE_BULK_IN, INC);
    answered_call(SOCK_CTYPE_BULK_OUT, INC);
    for (int i = 0; i < 3; i++) {
        answer(next_call(SOCK_CTYPE_BULK_IN), NID, SOCK_CTYPE_NONE, INC);
        fake_advance(i < 2 ? FAKE_SEC - 2000 : 0);
    }
    no_call(FAKE_SEC);
    fake_on(1);
    lnd_sock_ops.peer_abort(fake_ni(), fake_peer(NID), LNET_DROP_NEXT_HOP_LOST);
    send_small();
    answered_five("CIOIO");
}

static void test_stop_while_calling(void **state)
{
    struct fake_stream *s;

    (void)state;
    send_small();
    s = next_call(SOCK_CTYPE_CONTROL);
    fake_stop();
    assert_true(s->closed);
    expect_done(1, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
    send_small();
    expect_done(2, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
}

/* A header with a large NID has no place on a connection of short ones. */
static void test_large_nid(void **state)
{
    struct lnet_msg *msg = fake_msg(fake_ni(), NID, 0);
    unsigned refs = fake_peer_refs();

    (void)state;
    assert_int_equal(nid_parse("fd00::77@tcp", &msg->hdr.src_nid), 0);
    fake_send(msg);
    expect_done(1, LNET_DROP_LARGE_NID_ON_NID4, LNET_HEALTH_OK);
    no_call(FAKE_SEC);
    assert_int_equal(fake_peer_refs(), refs + 1);
    fake_advance(100 * FAKE_SEC); /* an unused peer NI is forgotten */
    assert_int_equal(fake_peer_refs(), refs);
}

static void test_ipv6(void **state)
{
    struct lnet_msg *msg = fake_msg(fake_ni6(), "fd00::7@tcp", 3);
    struct fake_stream *s;
    struct sock_hello in;
    uint8_t buf[256];
    size_t n;

    (void)state;
    assert_int_equal(nid_parse("10.9.9.9@tcp7", &msg->hdr.src_nid), 0);
    fake_send(msg);
    fake_advance(2000);
    s = fake_dialled();
    fake_connected(s);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_REQ16_SIZE + SOCK_HELLO16_SIZE);
    assert_int_equal(buf[4], 2);
    assert_int_equal(
        sock_hello_decode(buf + SOCK_REQ16_SIZE, n - SOCK_REQ16_SIZE, SOCK_HELLO_V4, &in),
        LNET_DROP_NONE);
    assert_int_equal(in.dst_incarnation, 0);
    assert_int_equal(in.dst_pid, 0);
    n = fake_hello_only(buf, "fd00::7@tcp", "fd00::5@tcp", SOCK_CTYPE_CONTROL, INC);
    fake_feed(s, buf, n);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_FRAME_SIZE + LNET_HDR16_SIZE + 3);
    assert_int_equal(buf[n - 1], fake_pattern(2));
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
}

/* No acceptor does not keep us from calling. */
static int setup_none(void **state)
{
    fake_defaults();
    fake_opts.accept = LND_ACCEPT_NONE;
    return fake_setup(state);
}

static void test_accept_none(void **state)
{
    (void)state;
    send_small();
    answered_call(SOCK_CTYPE_CONTROL, INC);
    expect_done(1, LNET_DROP_NONE, LNET_HEALTH_OK);
}

static int setup_two(void **state)
{
    fake_defaults();
    fake_conns_per_peer = 2;
    return fake_setup(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order),
        cmocka_unit_test_setup_teardown(test_order_of_nine, setup_four, fake_teardown),
        TEST(test_ports),
        TEST(test_no_port_left),
        TEST(test_connect_errors),
        TEST(test_connect_ends),
        TEST(test_back_off),
        TEST(test_connect_timeout),
        TEST(test_timeout_at_run_time),
        TEST(test_no_hello),
        TEST(test_eof_instead_of_hello),
        TEST(test_wrong_answers),
        TEST(test_refused),
        TEST(test_refused_for_ever),
        cmocka_unit_test_setup_teardown(test_surplus_refused, setup_two, fake_teardown),
        TEST(test_yields),
        TEST(test_yields_to_one_who_goes),
        TEST(test_yields_between),
        TEST(test_peer_restarted),
        TEST(test_passive_set),
        TEST(test_unusable_set),
        TEST(test_completes_own_set),
        cmocka_unit_test_setup_teardown(test_completes_surplus, setup_two, fake_teardown),
        TEST(test_keeps_number),
        TEST(test_number_of_new_set),
        TEST(test_queue_expiry),
        TEST(test_abort_while_calling),
        TEST(test_connect),
        TEST(test_connect_wanted),
        cmocka_unit_test_setup_teardown(test_abort_of_refused_set, setup_two, fake_teardown),
        TEST(test_other_version_meanwhile),
        TEST(test_stop_while_calling),
        TEST(test_large_nid),
        TEST(test_ipv6),
        cmocka_unit_test_setup_teardown(test_accept_none, setup_none, fake_teardown),
    };

    fake_defaults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
