/* SPDX-License-Identifier: BSD-3-Clause */
/* Being called: docs/protocol/socklnd.md §1.3, §2.3, §2.4, §2.5. */
#include "test/unit/socklnd_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LOW  "10.0.0.3" /* below our NID, home reactor 1 */
#define HIGH "10.0.0.8" /* above, home reactor 0 */
#define INC  0x184a1b1c1d1e1f20ull

#define PENDING_MAX 1024 /* handshakes of a reactor, as SOCK_HS_MAX */
#define LOW_NID     LOW "@tcp"
#define HIGH_NID    HIGH "@tcp"
#define OWN_NID     "10.0.0.5@tcp"

/* Docs §8.1 and §8.2 from 10.0.0.3 to 10.0.0.5. */
static const uint8_t GOOD[72] = {
    0x00, 0x71, 0xce, 0xac, 1,    0,    0,    0,
    5,    0,    0,    10,   0,    0,    2,    0, /* request v1 */
    0x63, 0x69, 0x72, 0x45, 3,    0,    0,    0,
    3,    0,    0,    10,   0,    0,    2,    0, /* HELLO v3, source */
    5,    0,    0,    10,   0,    0,    2,    0,
    0x39, 0x30, 0,    0,    0,    0,    0,    0, /* destination, pids */
    0x20, 0x1f, 0x1e, 0x1d, 0x1c, 0x1b, 0x4a, 0x18,
    0,    0,    0,    0,    0,    0,    0,    0, /* incarnations */
    1,    0,    0,    0,    0,    0,    0,    0, /* CONTROL, no addresses */
};

static const uint8_t ACCEPTOR_REPLY[16] = {0x00, 0x71, 0xce, 0xac, 1};

enum answer {
    SILENCE,
    ACCEPTOR_ANSWER,
    HELLO_NONE
};

struct refusal {
    const char *what;
    size_t len;         /* bytes of GOOD that are sent */
    size_t at;          /* where it is changed */
    const char *change; /* to what */
    size_t change_len;
    enum lnet_drop drop;
    enum answer answer;
    bool unread; /* bytes are left when it closes: TCP makes that an RST */
};

static const struct refusal refusals[] = {
    {"bad magic", 72, 0, "\x01", 1, SOCK_DROP(REQ_MAGIC), SILENCE, true},
    {"bad magic, nothing more", 4, 0, "\x01", 1, SOCK_DROP(REQ_MAGIC), SILENCE, false},
    {"LNet magic", 4, 0, "\x63\x69\x72\x45", 4, SOCK_DROP(REQ_MAGIC), ACCEPTOR_ANSWER, false},
    {"LNet magic, swapped", 4, 0, "\x45\x72\x69\x63", 4, SOCK_DROP(REQ_MAGIC), ACCEPTOR_ANSWER,
     false},
    {"whole HELLO first", 72, 0, "\x63\x69\x72\x45", 4, SOCK_DROP(REQ_MAGIC), ACCEPTOR_ANSWER,
     true},
    {"TCP v1 magic", 4, 0, "\xed\x0d\xbc\xee", 4, SOCK_DROP(REQ_MAGIC), SILENCE, false},
    {"request version 0", 16, 4, "\x00", 1, SOCK_DROP(REQ_VERSION), ACCEPTOR_ANSWER, true},
    {"request version 3", 8, 4, "\x03", 1, SOCK_DROP(REQ_VERSION), ACCEPTOR_ANSWER, false},
    {"foreign NID", 16, 8, "\x06", 1, SOCK_DROP(REQ_NID), SILENCE, false},
    {"foreign NID, HELLO sent", 72, 8, "\x06", 1, SOCK_DROP(REQ_NID), SILENCE, true},
    {"own address on another net", 16, 12, "\x01", 1, SOCK_DROP(REQ_NID), SILENCE, false},
    {"malformed NID", 16, 15, "\x01", 1, SOCK_DROP(REQ_NID), SILENCE, false},
    {"HELLO magic", 20, 16, "\x00", 1, SOCK_DROP(HELLO_MAGIC), SILENCE, false},
    {"HELLO swapped", 72, 16, "\x45\x72\x69\x63", 4, SOCK_DROP(HELLO_MAGIC), SILENCE, true},
    {"HELLO v1 magic", 72, 16, "\xed\x0d\xbc\xee", 4, SOCK_DROP(HELLO_VERSION), HELLO_NONE, true},
    {"HELLO version 1", 72, 20, "\x01", 1, SOCK_DROP(HELLO_VERSION), HELLO_NONE, true},
    {"HELLO version 2", 72, 20, "\x02", 1, SOCK_DROP(HELLO_VERSION), HELLO_NONE, true},
    {"HELLO version 5, nothing more", 24, 20, "\x05", 1, SOCK_DROP(HELLO_VERSION), HELLO_NONE,
     false},
    {"source any", 72, 24, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, SOCK_DROP(HELLO_NID), SILENCE,
     false},
    {"source malformed", 72, 31, "\x01", 1, SOCK_DROP(HELLO_NID), SILENCE, false},
    {"source is ours", 72, 24, "\x05", 1, SOCK_DROP(HELLO_NID), SILENCE, false},
    {"source another address", 72, 24, "\x04", 1, SOCK_DROP(HELLO_SOURCE), SILENCE, false},
    {"source another net", 72, 28, "\x05", 1, SOCK_DROP(HELLO_SOURCE), SILENCE, false},
    {"source another LND", 72, 30, "\x05", 1, SOCK_DROP(HELLO_SOURCE), SILENCE, false},
    {"type NONE", 72, 64, "\xff\xff\xff\xff", 4, SOCK_DROP(HELLO_TYPE), SILENCE, false},
    {"type 7", 72, 64, "\x07", 1, SOCK_DROP(HELLO_TYPE), SILENCE, false},
    {"17 addresses", 72, 68, "\x11", 1, SOCK_DROP(HELLO_NIPS), SILENCE, false},
};

static void expect_hello(struct fake_stream *s, const char *to, enum sock_ctype type,
                         uint64_t incarnation, uint32_t dst_pid)
{
    struct sock_hello in;
    uint8_t buf[SOCK_HELLO_MAX];
    struct lnet_nid nid;
    size_t n = fake_take_out(s, buf, sizeof(buf));

    assert_int_equal(n, SOCK_HELLO4_SIZE);
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V3, &in), LNET_DROP_NONE);
    assert_true(nid_same(&in.src_nid, &fake_ni()->nid));
    assert_int_equal(nid_parse(to, &nid), 0);
    assert_true(nid_same(&in.dst_nid, &nid));
    assert_int_equal(in.src_pid, LNET_PID_LUSTRE);
    assert_int_equal(in.dst_pid, dst_pid);
    assert_int_equal(in.dst_incarnation, incarnation);
    assert_int_not_equal(in.src_incarnation, 0);
    assert_int_equal(in.nips, 0);
    assert_int_equal(in.ctype, type);
}

static unsigned all_drops(void)
{
    unsigned n = 0;

    for (int i = 0; i < LNET_DROP_COUNT; i++)
        n += core.drops[i];
    return n;
}

static void one_refusal(const struct refusal *r)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[72];

    memset(core.drops, 0, sizeof(core.drops));
    memcpy(buf, GOOD, sizeof(buf));
    memcpy(buf + r->at, r->change, r->change_len);
    fake_feed(s, buf, r->len);
    if (!s->closed)
        fail_msg("%s: not closed", r->what);
    if (core.drops[r->drop] != 1 || all_drops() != 1)
        fail_msg("%s: not counted once under its name", r->what);
    if (s->unread != r->unread || s->aborted)
        fail_msg("%s: closes in the wrong way", r->what);
    if (r->answer == SILENCE)
        fake_expect_nothing(s);
    else if (r->answer == ACCEPTOR_ANSWER)
        fake_expect(s, ACCEPTOR_REPLY, sizeof(ACCEPTOR_REPLY));
    else
        expect_hello(s, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    assert_int_equal(core.nnotified, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
        one_refusal(&refusals[i]);
}

static void test_zero_address(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[80];

    (void)state;
    memcpy(buf, GOOD, 72);
    buf[68] = 2;
    memset(buf + 72, 0, 8);
    buf[72] = 9;
    fake_feed(s, buf, 80);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_NIPS)], 1);
}

static void test_addresses_are_skipped(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[80 + SOCK_FRAME_SIZE];

    (void)state;
    memcpy(buf, GOOD, 72);
    buf[68] = 2;
    memset(buf + 72, 9, 8);
    fake_noop(buf + 80, 0, SOCK_COOKIE_PING);
    fake_feed(s, buf, sizeof(buf));
    assert_false(s->closed);
    assert_int_equal(s->in_len, 0);
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

/* The three connections of a kernel node, byte for byte after docs §8.3. */
static void test_established(void **state)
{
    static const enum sock_ctype mirror[] = {SOCK_CTYPE_CONTROL, SOCK_CTYPE_BULK_OUT,
                                             SOCK_CTYPE_BULK_IN};
    struct fake_stream *s[3];
    uint8_t buf[72];
    uint8_t first[SOCK_HELLO_MAX], other[SOCK_HELLO_MAX];
    struct lnd_peer_info info;

    (void)state;
    memcpy(buf, GOOD, sizeof(buf));
    for (int i = 0; i < 3; i++) {
        s[i] = fake_call(LOW, (uint16_t)(1023 - i));
        buf[64] = (uint8_t)(i + 1);
        fake_feed(s[i], buf, sizeof(buf));
        assert_false(s[i]->closed);
        assert_true(s[i]->established);
        assert_int_equal(reactor_index(s[i]->reactor), 1); /* home of 10.0.0.3 */
        memcpy(other, s[i]->out, SOCK_HELLO4_SIZE);
        expect_hello(s[i], LOW_NID, mirror[i], 0, 0);
        if (i == 0)
            memcpy(first, other, SOCK_HELLO4_SIZE);
        assert_memory_equal(first, other, 48); /* the same incarnation on all */
    }
    assert_int_equal(all_drops(), 0);
    assert_int_equal(core.nnotified, 1);
    assert_true(core.notified[0].up);
    fake_on(1);
    lnd_sock_ops.peer_info(fake_peer(LOW_NID), &info);
    assert_int_equal(info.conns[SOCK_CTYPE_CONTROL], 1);
    assert_int_equal(info.conns[SOCK_CTYPE_BULK_IN], 1);
    assert_int_equal(info.conns[SOCK_CTYPE_BULK_OUT], 1);
    assert_int_equal(info.bytes_in, 3 * 72);
    assert_int_equal(info.bytes_out, 3 * SOCK_HELLO4_SIZE);
}

static void test_byte_by_byte(void **state)
{
    struct fake_stream *s = fake_call(LOW, 512);

    (void)state;
    for (size_t i = 0; i < sizeof(GOOD); i++) {
        fake_expect_nothing(s);
        fake_feed(s, GOOD + i, 1);
    }
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

static void test_swapped_request(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[72];

    (void)state;
    memcpy(buf, GOOD, sizeof(buf));
    for (int i = 0; i < 4; i++) {
        buf[i] = GOOD[3 - i];
        buf[4 + i] = GOOD[7 - i];
    }
    for (int i = 0; i < 8; i++)
        buf[8 + i] = GOOD[15 - i];
    fake_feed(s, buf, sizeof(buf));
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

static void test_type_any(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[72];

    (void)state;
    memcpy(buf, GOOD, sizeof(buf));
    buf[64] = SOCK_CTYPE_ANY;
    fake_feed(s, buf, sizeof(buf));
    expect_hello(s, LOW_NID, SOCK_CTYPE_ANY, 0, 0);
}

/* What the HELLO says of destination and pid is not checked; what it says of our pid and
 * incarnation comes back. */
static void test_unchecked_fields(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);
    uint8_t buf[72];

    (void)state;
    memcpy(buf, GOOD, sizeof(buf));
    buf[32] = 77;
    buf[40] = 99;
    buf[44] = 98;
    buf[56] = 97;
    fake_feed(s, buf, sizeof(buf));
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 97, 98);
}

static void test_ipv6(void **state)
{
    struct fake_stream *s;
    struct sock_hello in;
    uint8_t buf[256];
    size_t n;

    (void)state;
    s = fake_call("fd00::7", 1023);
    n = fake_hello(buf, "fd00::7@tcp", "fd00::5@tcp", SOCK_CTYPE_BULK_IN, INC);
    assert_int_equal(n, SOCK_REQ16_SIZE + SOCK_HELLO16_SIZE);
    buf[n - 4] = 3; /* nips: nothing follows in v4 */
    fake_feed(s, buf, n);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_HELLO16_SIZE);
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V4, &in), LNET_DROP_NONE);
    assert_int_equal(in.ctype, SOCK_CTYPE_BULK_OUT);
    assert_true(nid_same(&in.src_nid, &fake_ni6()->nid));
    assert_int_equal(in.dst_incarnation, 0);
}

/* An initiator over IPv4 may choose v4, §2.2: the reply and the frames are v4, too. A second
 * connection of v3 finds another version and closes the first, §2.5 #4. */
static void test_v4_over_ipv4(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023), *t;
    struct sock_hello in = {.version = SOCK_HELLO_V4,
                            .dst_nid = fake_ni()->nid,
                            .src_pid = LNET_PID_LUSTRE,
                            .src_incarnation = INC,
                            .ctype = SOCK_CTYPE_CONTROL};
    uint8_t buf[256];
    size_t n;

    (void)state;
    assert_int_equal(nid_parse(LOW_NID, &in.src_nid), 0);
    n = sock_req_encode(&in.dst_nid, buf);
    n += sock_hello_encode(&in, buf + n);
    fake_feed(s, buf, n);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_HELLO16_SIZE);
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V4, &in), LNET_DROP_NONE);
    assert_int_equal(in.ctype, SOCK_CTYPE_CONTROL);
    assert_true(nid_same(&in.src_nid, &fake_ni()->nid));
    fake_feed(s, buf, fake_frame(buf, LOW_NID, "fd00::5@tcp", 3, 0, 0));
    assert_false(s->closed);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(core.received[0].len, 3);
    t = fake_call(LOW, 1022);
    fake_feed(t, GOOD, sizeof(GOOD));
    fake_advance(10000);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_STALE)], 1);
    expect_hello(t, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    t = fake_call(LOW, 1021);
    fake_feed(t, GOOD, sizeof(GOOD));
    expect_hello(t, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

/* Incarnations of two NIs of one node differ. */
static void test_incarnation_per_ni(void **state)
{
    struct fake_stream *s4 = fake_call(LOW, 1023), *s6 = fake_call("fd00::7", 1023);
    struct sock_hello in4, in6;
    uint8_t buf[256];
    size_t n;

    (void)state;
    fake_feed(s4, GOOD, sizeof(GOOD));
    n = fake_take_out(s4, buf, sizeof(buf));
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V3, &in4), LNET_DROP_NONE);
    n = fake_hello(buf, "fd00::7@tcp", "fd00::5@tcp", SOCK_CTYPE_CONTROL, INC);
    fake_feed(s6, buf, n);
    n = fake_take_out(s6, buf, sizeof(buf));
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V4, &in6), LNET_DROP_NONE);
    assert_int_not_equal(in4.src_incarnation, in6.src_incarnation);
}

/* A v3 HELLO can say only a part of an IPv6 NID: nobody is called by that part. */
static void test_v3_over_ipv6(void **state)
{
    struct fake_stream *s = fake_call("fd00::7", 1023);
    uint8_t buf[256];
    struct lnet_nid nid;
    size_t n;

    (void)state;
    assert_int_equal(nid_parse("fd00::5@tcp", &nid), 0);
    n = sock_req_encode(&nid, buf);
    memcpy(buf + n, GOOD + 16, 56);
    fake_feed(s, buf, n + 56);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_VERSION)], 1);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_HELLO16_SIZE);
    assert_int_equal(buf[4], 4);
    assert_int_equal(buf[72], 0xff);
}

static void test_secure_port(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1024);

    (void)state;
    assert_true(s->closed);
    fake_expect_nothing(s);
    assert_int_equal(core.drops[SOCK_DROP(PORT)], 1);
    s = fake_call(LOW, 1);
    assert_false(s->closed);
}

static int setup_all(void **state)
{
    fake_defaults();
    fake_opts.accept = LND_ACCEPT_ALL;
    return fake_setup(state);
}

static void test_all_ports(void **state)
{
    struct fake_stream *s = fake_call(LOW, 40000);

    (void)state;
    fake_feed(s, GOOD, sizeof(GOOD));
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

static int setup_map(void **state)
{
    static struct lnd_source_map map;

    fake_defaults();
    assert_int_equal(nid_parse("10.0.0.9@tcp", &map.address), 0);
    assert_int_equal(nid_parse(LOW_NID, &map.nid), 0);
    fake_opts.hello_map = &map;
    fake_opts.hello_map_count = 1;
    return fake_setup(state);
}

static void test_hello_map(void **state)
{
    struct fake_stream *s = fake_call("10.0.0.9", 1023);

    (void)state;
    fake_feed(s, GOOD, sizeof(GOOD));
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
    s = fake_call("10.0.0.7", 1023);
    fake_feed(s, GOOD, sizeof(GOOD));
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_SOURCE)], 1);
}

static int setup_map_ipv6(void **state)
{
    static struct lnd_source_map map;

    fake_defaults();
    assert_int_equal(nid_parse("fd00::7@tcp", &map.address), 0);
    assert_int_equal(nid_parse(LOW_NID, &map.nid), 0);
    fake_opts.hello_map = &map;
    fake_opts.hello_map_count = 1;
    return fake_setup(state);
}

/* A node of both families calls from its IPv6 NI and names itself by its IPv4 NID [cap: G-02]: the
 * connection stays v4, whatever the length of the NID. */
static void test_nid4_over_ipv6(void **state)
{
    struct fake_stream *s = fake_call("fd00::7", 1023);
    struct sock_hello in = {.version = SOCK_HELLO_V4,
                            .src_pid = LNET_PID_LUSTRE,
                            .src_incarnation = INC,
                            .ctype = SOCK_CTYPE_CONTROL};
    uint8_t buf[256];
    size_t n;

    (void)state;
    in.dst_nid = fake_ni6()->nid;
    assert_int_equal(nid_parse(LOW_NID, &in.src_nid), 0);
    n = sock_req_encode(&in.dst_nid, buf);
    n += sock_hello_encode(&in, buf + n);
    fake_feed(s, buf, n);
    n = fake_take_out(s, buf, sizeof(buf));
    assert_int_equal(n, SOCK_HELLO16_SIZE);
    assert_int_equal(sock_hello_decode(buf, n, SOCK_HELLO_V4, &in), LNET_DROP_NONE);
    assert_int_equal(in.ctype, SOCK_CTYPE_CONTROL);
    assert_true(nid_same(&in.src_nid, &fake_ni6()->nid));
    /* and so do its frames */
    fake_feed(s, buf, fake_frame(buf, LOW_NID, "fd00::5@tcp", 3, 0, 0));
    assert_false(s->closed);
    assert_int_equal(core.nreceived, 1);
    assert_true(nid_same(&core.received[0].from, &in.dst_nid));
    assert_true(nid_same(&core.received[0].hdr.dest_nid, &in.src_nid));
    assert_int_equal(core.received[0].len, 3);
}

/* 5 s for all, wherever the caller stops. */
static void test_timeouts(void **state)
{
    static const size_t ends[] = {0, 3, 4, 8, 15, 16, 20, 24, 71};
    struct fake_stream *s;

    (void)state;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        s = fake_call(LOW, 1023);
        fake_feed(s, GOOD, ends[i]);
        fake_advance(5 * FAKE_SEC - 2000);
        assert_false(s->closed);
        fake_advance(4000);
        assert_true(s->closed);
        fake_expect_nothing(s);
        assert_int_equal(core.drops[SOCK_DROP(REQ_TIMEOUT)], i + 1);
    }
}

static void test_slow_but_in_time(void **state)
{
    static const size_t parts[] = {4, 4, 8, 4, 4, 48};
    struct fake_stream *s = fake_call(LOW, 1023);
    size_t at = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        fake_advance(FAKE_SEC * 8 / 10);
        fake_feed(s, GOOD + at, parts[i]);
        at += parts[i];
    }
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
    fake_advance(20 * FAKE_SEC);
    assert_false(s->closed);
}

/* Parts that come one by one give no time beyond that. */
static void test_trickle(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);

    (void)state;
    for (size_t i = 0; i < 9; i++) {
        fake_feed(s, GOOD + 4 * i, 4);
        fake_advance(FAKE_SEC / 2);
    }
    assert_false(s->closed);
    fake_advance(FAKE_SEC);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_TIMEOUT)], 1);
}

static void test_eof(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);

    (void)state;
    fake_end(s, STREAM_END_EOF);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_EOF)], 1);
    s = fake_call(LOW, 1023);
    fake_feed(s, GOOD, 30);
    fake_end(s, STREAM_END_EOF);
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_EOF)], 2);
}

static void test_source_limit(void **state)
{
    struct fake_stream *s[32], *more;

    (void)state;
    for (int i = 0; i < 32; i++)
        s[i] = fake_call(LOW, (uint16_t)(1023 - i));
    more = fake_call(LOW, 900);
    assert_true(more->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_LIMIT)], 1);
    more = fake_call(HIGH, 900);
    assert_false(more->closed);
    fake_end(s[7], STREAM_END_EOF);
    more = fake_call(LOW, 900);
    assert_false(more->closed);
}

/* Many addresses hold all places and say nothing more: who calls next gets that of the oldest. */
static void test_oldest_makes_room(void **state)
{
    struct fake_stream *held[PENDING_MAX], *s;
    char from[24];

    (void)state;
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        snprintf(from, sizeof(from), "10.9.%u.%u", i / 30, 1 + i % 30);
        held[i] = fake_call(from, 1023);
        fake_feed(held[i], GOOD, 30);
        assert_false(held[i]->closed);
    }
    assert_int_equal(all_drops(), 0);
    s = fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC);
    assert_false(s->closed);
    assert_true(held[0]->closed);
    for (unsigned i = 1; i < PENDING_MAX; i++)
        assert_false(held[i]->closed);
    assert_int_equal(core.drops[SOCK_DROP(REQ_LIMIT)], 1);
    assert_int_equal(all_drops(), 1);
}

/* Who is not allowed gets no answer, and who calls too often is not even heard. */
static void test_access(void **state)
{
    struct fake_stream *s;

    (void)state;
    core.may_connect = LNET_DROP_ACCESS_CONNECT;
    s = fake_call(LOW, 1023);
    fake_feed(s, GOOD, sizeof(GOOD));
    assert_true(s->closed);
    assert_int_equal(s->out_len, 0);
    core.may_call = LNET_DROP_CONNECT_RATE;
    s = fake_call(LOW, 1022);
    assert_true(s->closed);
    assert_int_equal(core.drops[LNET_DROP_ACCESS_CONNECT], 1);
    assert_int_equal(core.drops[LNET_DROP_CONNECT_RATE], 1);
    assert_int_equal(all_drops(), 2);
}

/* A slow node was first. It keeps its place while others have more than one. */
static void test_who_has_most_makes_room(void **state)
{
    struct fake_stream *held[PENDING_MAX], *slow = fake_call(LOW, 1023);
    unsigned gone = 0;
    char from[24];

    (void)state;
    fake_feed(slow, GOOD, 30);
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        snprintf(from, sizeof(from), "10.9.%u.1", i % 250);
        held[i] = fake_call(from, (uint16_t)(1023 - i / 250));
        fake_feed(held[i], GOOD, 30);
        gone += core.drops[SOCK_DROP(REQ_LIMIT)] > gone;
    }
    assert_int_equal(gone, 1);
    assert_true(held[1000]->closed); /* the oldest fifth one of an address */
    assert_false(held[0]->closed);
    assert_false(slow->closed);
    fake_feed(slow, GOOD + 30, sizeof(GOOD) - 30);
    expect_hello(slow, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
}

/* While all places are taken an address that has as many as others on average is not answered: it
 * could only drive out another of the kind. One with fewer is, and makes the one with most give
 * way.
 */
static void test_who_has_enough_is_not_answered(void **state)
{
    struct fake_stream *held[PENDING_MAX];
    char from[24];

    (void)state;
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        snprintf(from, sizeof(from), "10.9.%u.1", i < 40 ? i % 10 : i % 200);
        assert_false(fake_refuses(from));
        held[i] = fake_call(from, (uint16_t)(1023 - i / 10));
    }
    assert_int_equal(all_drops(), 0);
    assert_true(fake_refuses("10.9.9.1"));
    assert_true(fake_refuses("10.9.50.1")); /* five, of 1024 for 200 */
    assert_int_equal(core.drops[SOCK_DROP(REQ_LIMIT)], 2);
    fake_end(held[50], STREAM_END_EOF);
    assert_false(fake_refuses("10.9.51.1")); /* there is a place */
    assert_false(fake_call("10.9.60.1", 900)->closed);
    assert_false(fake_refuses("10.9.50.1")); /* four */
    assert_false(fake_refuses(LOW));
    assert_false(fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC)->closed);
}

static void test_duplicates(void **state)
{
    struct fake_stream *s = fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC), *more;
    uint8_t buf[256];

    (void)state;
    more = fake_call(LOW, 1022);
    fake_feed(more, GOOD, sizeof(GOOD));
    fake_advance(3000);
    expect_hello(more, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    assert_true(more->closed);
    assert_false(more->unread); /* so it is a FIN */
    assert_false(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_DUPLICATE)], 1);
    for (int i = 0; i < 16; i++) {
        fake_up(LOW, (uint16_t)(1000 - i), SOCK_CTYPE_BULK_IN, INC);
        fake_up(LOW, (uint16_t)(800 - i), SOCK_CTYPE_BULK_OUT, INC);
    }
    assert_int_equal(all_drops(), 1);
    /* four times as many as we are set for, and 16 in any case */
    more = fake_call(LOW, 700);
    fake_feed(more, buf, fake_hello(buf, LOW_NID, "10.0.0.5@tcp", SOCK_CTYPE_BULK_IN, INC));
    fake_advance(3000);
    expect_hello(more, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    assert_true(more->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_DUPLICATE)], 2);
    fake_up(HIGH, 700, SOCK_CTYPE_BULK_IN, INC);
}

/* The peer gave up its ends without a packet and calls anew: ours are asked for a sign of life, and
 * when the answer is an RST its next call goes through. */
static void test_duplicate_of_dead(void **state)
{
    struct fake_stream *s[3], *more;

    (void)state;
    for (int i = 0; i < 3; i++)
        s[i] = fake_up(LOW, (uint16_t)(1023 - i), (enum sock_ctype)(i + 1), INC);
    fake_advance(FAKE_SEC);
    fake_feed(fake_call(LOW, 900), GOOD, sizeof(GOOD));
    fake_advance(3000);
    for (int i = 0; i < 3; i++)
        fake_expect_nothing(s[i]); /* it was heard of just now */
    fake_advance(2 * FAKE_SEC);
    more = fake_call(LOW, 900);
    fake_feed(more, GOOD, sizeof(GOOD));
    fake_advance(3000);
    expect_hello(more, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    fake_expect_noop(s[2], SOCK_COOKIE_PING);
    fake_expect_nothing(s[0]);
    fake_end(s[2], STREAM_END_RESET);
    assert_true(s[0]->closed && s[1]->closed);
    fake_up(LOW, 899, SOCK_CTYPE_CONTROL, INC);
}

/* The next event that watchers were told of this peer. */
static void told(unsigned index, enum lnet_node_event_kind kind, const char *nid,
                 enum lnet_drop drop, const char *cause)
{
    const struct lnet_node_event *row = &core.event[index];
    struct lnet_nid want;

    assert_int_equal(nid_parse(nid, &want), 0);
    assert_true(index < core.nevents);
    assert_int_equal(row->kind, kind);
    assert_true(nid_same(&row->nid, &want));
    assert_int_equal(row->drop, drop);
    if (cause)
        assert_string_equal(row->cause, cause);
    else
        assert_null(row->cause);
}

/* The first of its connections and the last are told, why too. */
static void test_told(void **state)
{
    struct fake_stream *s;

    (void)state;
    fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC);
    s = fake_up(LOW, 1022, SOCK_CTYPE_BULK_IN, INC);
    assert_int_equal(core.nevents, 1);
    told(0, LNET_NODE_EV_PEER_UP, LOW_NID, LNET_DROP_NONE, "accepted");
    fake_end(s, STREAM_END_RESET);
    assert_int_equal(core.nevents, 2);
    told(1, LNET_NODE_EV_PEER_DOWN, LOW_NID, SOCK_DROP(RESET), NULL);
    s = fake_up(LOW, 1021, SOCK_CTYPE_CONTROL, INC);
    fake_end(s, STREAM_END_EOF);
    assert_int_equal(core.nevents, 4);
    told(3, LNET_NODE_EV_PEER_DOWN, LOW_NID, LNET_DROP_NONE, "closed_by_peer");
    /* Without an old connection in the way too. */
    fake_up(LOW, 1020, SOCK_CTYPE_CONTROL, INC + 1);
    assert_int_equal(core.nevents, 6);
    told(4, LNET_NODE_EV_PEER_RESTART, LOW_NID, LNET_DROP_NONE, "new_incarnation");
    told(5, LNET_NODE_EV_PEER_UP, LOW_NID, LNET_DROP_NONE, "accepted");
    fake_stop();
    assert_int_equal(core.nevents, 7);
    told(6, LNET_NODE_EV_PEER_DOWN, LOW_NID, LNET_DROP_SHUTDOWN, NULL);
}

/* A caller that restarted: NONE once, everything old is closed, the next try is good. §2.5 #4 */
static void test_restarted_peer(void **state)
{
    struct fake_stream *old[3], *s;
    uint8_t buf[72];

    (void)state;
    for (int i = 0; i < 3; i++)
        old[i] = fake_up(LOW, (uint16_t)(1023 - i), (enum sock_ctype)(i + 1), INC);
    memcpy(buf, GOOD, sizeof(buf));
    buf[48] ^= 1;
    s = fake_call(LOW, 900);
    fake_feed(s, buf, sizeof(buf));
    fake_advance(3000);
    expect_hello(s, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    assert_true(s->closed);
    for (int i = 0; i < 3; i++) {
        assert_true(old[i]->closed);
        assert_false(old[i]->aborted);
    }
    assert_int_equal(core.drops[SOCK_DROP(HELLO_STALE)], 1);
    assert_int_equal(core.nnotified, 1); /* up; a restart is no failure */
    fake_up(LOW, 899, SOCK_CTYPE_CONTROL, INC ^ 1);
    assert_int_equal(core.nevents, 4);
    told(1, LNET_NODE_EV_PEER_RESTART, LOW_NID, LNET_DROP_NONE, "new_incarnation");
    told(2, LNET_NODE_EV_PEER_DOWN, LOW_NID, SOCK_DROP(HELLO_STALE), NULL);
    told(3, LNET_NODE_EV_PEER_UP, LOW_NID, LNET_DROP_NONE, "accepted");
}

/* It ended the old connections in good order just before: then the first try is good. */
static void ended_cleanly(uint8_t incarnation_change)
{
    struct fake_stream *old = fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC), *s;
    uint8_t buf[72];

    memcpy(buf, GOOD, sizeof(buf));
    buf[48] ^= incarnation_change;
    s = fake_call(LOW, 900);
    old->ended = true; /* the reactor sees it after the mail with the HELLO */
    old->end = STREAM_END_EOF;
    fake_feed(s, buf, sizeof(buf));
    fake_advance(3000);
    assert_true(old->closed);
    expect_hello(s, LOW_NID, SOCK_CTYPE_CONTROL, 0, 0);
    assert_int_equal(all_drops(), 0);
}

static void test_restarted_cleanly(void **state)
{
    (void)state;
    ended_cleanly(1);
}

static void test_called_again(void **state)
{
    (void)state;
    ended_cleanly(0);
}

static void test_stop_while_settling(void **state)
{
    struct fake_stream *old = fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC), *s;
    uint8_t buf[72];

    (void)state;
    memcpy(buf, GOOD, sizeof(buf));
    buf[48] ^= 1;
    s = fake_call(LOW, 900);
    fake_feed(s, buf, sizeof(buf));
    fake_expect_nothing(s);
    fake_stop_later();
    assert_false(s->closed);
    fake_advance(3000);
    assert_true(s->closed && old->closed);
    fake_expect_nothing(s);
}

static int setup_late(void **state)
{
    fake_defaults();
    fake_late = 0;
    return fake_setup(state);
}

/* The listener's reactor runs already, the caller's home has not read yet that the NI starts: the
 * call waits for that. */
static void test_called_while_starting(void **state)
{
    struct fake_stream *s = fake_call(HIGH, 1023);
    uint8_t buf[128];

    (void)state;
    fake_feed(s, buf, fake_hello(buf, HIGH_NID, OWN_NID, SOCK_CTYPE_CONTROL, INC));
    fake_advance(20000);
    assert_false(s->closed);
    fake_expect_nothing(s);
    fake_mail_comes();
    fake_advance(3000);
    assert_true(s->established);
    assert_int_equal(reactor_index(s->reactor), 0);
    expect_hello(s, HIGH_NID, SOCK_CTYPE_CONTROL, 0, 0);
    assert_int_equal(all_drops(), 0);
}

/* §2.5 #1: while we dial, a caller with a lower NID is sent away, one with a higher is let in. */
static void test_race(void **state)
{
    struct fake_stream *ours, *theirs;
    struct sock_hello in;
    uint8_t buf[256];
    size_t n;

    (void)state;
    fake_send(fake_msg(fake_ni(), LOW_NID, 10));
    fake_advance(1000);
    ours = fake_dialled();
    assert_non_null(ours);
    fake_connected(ours);
    theirs = fake_call(LOW, 1023);
    fake_feed(theirs, GOOD, sizeof(GOOD));
    expect_hello(theirs, LOW_NID, SOCK_CTYPE_NONE, 0, 0);
    assert_true(theirs->closed);
    assert_int_equal(core.drops[SOCK_DROP(HELLO_RACE)], 1);
    assert_false(ours->closed);

    fake_send(fake_msg(fake_ni(), HIGH_NID, 10));
    fake_advance(1000);
    ours = fake_dialled();
    assert_non_null(ours);
    theirs = fake_call(HIGH, 1023);
    n = fake_hello(buf, HIGH_NID, OWN_NID, SOCK_CTYPE_CONTROL, INC);
    fake_feed(theirs, buf, n);
    assert_false(theirs->closed);
    /* What waited for our own connection goes out on theirs, right behind the HELLO. */
    n = fake_take_out(theirs, buf, sizeof(buf));
    assert_int_equal(n, SOCK_HELLO4_SIZE + SOCK_FRAME_SIZE + LNET_HDR4_SIZE + 10);
    assert_int_equal(sock_hello_decode(buf, SOCK_HELLO4_SIZE, SOCK_HELLO_V3, &in), LNET_DROP_NONE);
    assert_int_equal(in.ctype, SOCK_CTYPE_CONTROL);
    assert_int_equal(buf[SOCK_HELLO4_SIZE], 0xc1);
    assert_int_equal(core.ndone, 1);
}

/* A call of ours that its host drops, or that nobody answers, does not keep it from calling us. */
static void called_meanwhile(bool connected, uint64_t since)
{
    struct fake_stream *ours, *theirs;

    fake_send(fake_msg(fake_ni(), LOW_NID, 10));
    fake_advance(1000);
    ours = fake_dialled();
    assert_non_null(ours);
    if (connected)
        fake_connected(ours);
    fake_advance(since);
    theirs = fake_call(LOW, 1023);
    fake_feed(theirs, GOOD, sizeof(GOOD));
    assert_true(theirs->established);
    assert_true(ours->closed);
    assert_int_equal(all_drops(), 0);
    assert_int_equal(core.ndone, 1);
    fake_advance(2 * FAKE_SEC);
    assert_null(fake_dialled()); /* the peer completes the set */
}

static void test_called_back(void **state)
{
    (void)state;
    called_meanwhile(false, FAKE_SEC);
}

static void test_called_back_late(void **state)
{
    (void)state;
    called_meanwhile(true, 5 * FAKE_SEC);
}

static int setup_few(void **state)
{
    fake_defaults();
    fake_opts.max_conns = 1;
    return fake_setup(state);
}

static void test_no_memory(void **state)
{
    struct fake_stream *s;

    (void)state;
    fake_up(LOW, 1023, SOCK_CTYPE_CONTROL, INC);
    s = fake_call("10.0.0.7", 1023);
    {
        uint8_t buf[128];

        fake_feed(s, buf, fake_hello(buf, "10.0.0.7@tcp", OWN_NID, SOCK_CTYPE_CONTROL, INC));
    }
    assert_true(s->closed);
    fake_expect_nothing(s);
    assert_int_equal(core.drops[SOCK_DROP(NO_MEMORY)], 1);
}

static void test_no_peer_memory(void **state)
{
    struct fake_stream *s = fake_call(LOW, 1023);

    (void)state;
    core.no_peers = true;
    fake_feed(s, GOOD, sizeof(GOOD));
    assert_true(s->closed);
    assert_int_equal(core.drops[SOCK_DROP(NO_MEMORY)], 1);
}

static void test_stop_with_pending(void **state)
{
    struct fake_stream *a = fake_call(LOW, 1023), *b = fake_call(HIGH, 1023);
    struct fake_stream *up = fake_up(LOW, 1022, SOCK_CTYPE_CONTROL, INC);

    (void)state;
    fake_feed(b, GOOD, 30);
    fake_stop();
    assert_true(a->closed && b->closed && up->closed);
    assert_false(up->aborted);
    assert_int_equal(all_drops(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_setup, fake_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_refusals),
        TEST(test_zero_address),
        TEST(test_addresses_are_skipped),
        TEST(test_established),
        TEST(test_byte_by_byte),
        TEST(test_swapped_request),
        TEST(test_type_any),
        TEST(test_unchecked_fields),
        TEST(test_ipv6),
        TEST(test_v4_over_ipv4),
        TEST(test_incarnation_per_ni),
        TEST(test_v3_over_ipv6),
        TEST(test_secure_port),
        cmocka_unit_test_setup_teardown(test_all_ports, setup_all, fake_teardown),
        cmocka_unit_test_setup_teardown(test_hello_map, setup_map, fake_teardown),
        cmocka_unit_test_setup_teardown(test_nid4_over_ipv6, setup_map_ipv6, fake_teardown),
        TEST(test_timeouts),
        TEST(test_slow_but_in_time),
        TEST(test_eof),
        TEST(test_source_limit),
        TEST(test_who_has_enough_is_not_answered),
        TEST(test_oldest_makes_room),
        TEST(test_who_has_most_makes_room),
        TEST(test_access),
        TEST(test_trickle),
        TEST(test_duplicates),
        TEST(test_duplicate_of_dead),
        TEST(test_told),
        TEST(test_restarted_peer),
        TEST(test_restarted_cleanly),
        TEST(test_called_again),
        TEST(test_stop_while_settling),
        cmocka_unit_test_setup_teardown(test_called_while_starting, setup_late, fake_teardown),
        TEST(test_race),
        TEST(test_called_back),
        TEST(test_called_back_late),
        cmocka_unit_test_setup_teardown(test_no_memory, setup_few, fake_teardown),
        TEST(test_no_peer_memory),
        TEST(test_stop_with_pending),
    };

    fake_defaults();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
