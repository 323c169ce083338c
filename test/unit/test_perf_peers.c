/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Simulated peers over a model of a transport (test_peers.h): the test is their router, and says
 * what it likes.
 */
#include "lib/base/err.h"
#include "test/drops_test.h"
#include "test/unit/perf_peers_test.h"

REGISTER_DROPS(sock_drops);

/* ---- what must work ---- */

static void test_comes_up(void **state)
{
    come_up(source);
    come_up(target);
    assert_int_equal(e->ready, 2);
    assert_int_equal(e->connections, 6);
    assert_int_equal(e->count.broken_input, 0);
}

static struct perf_msg message(enum perf_op op, uint32_t length, uint64_t cookie)
{
    struct perf_msg m = {
        .op = op, .length = length, .offset = 4096, .run = RUN, .verify = true, .cookie = cookie};

    if (op == OP_PUT)
        m.sum = payload_sum(pattern + m.offset, length);
    else
        m.window = 3;
    return m;
}

/* The source's message as it came, on the connection that it belongs on. */
static void expect_sent(unsigned i, struct lnet_hdr *h, const uint8_t **payload)
{
    assert_true(hear(source, i, h, payload));
    assert_true(nid_same(&h->dest_nid, &perf.opts.targets[0].first));
}

static void test_put(void **state)
{
    static const uint32_t lengths[] = {0, 1, 927, 928, 4096, 100000, LNET_MAX_PAYLOAD};
    struct lnet_hdr h, ack;
    const uint8_t *payload;
    struct lnet_put put;

    come_up(source);
    for (unsigned i = 0; i < 7; i++) {
        struct perf_msg m = message(OP_PUT, lengths[i], 100 + i);

        wire_of(source, 2)->out_len = wire_of(source, 2)->acked; /* begins anew in the model */
        assert_int_equal(peers_send(&e->base, &m), 0);
        expect_sent(lengths[i] >= 928 ? 2 : 0, &h, &payload);
        assert_int_equal(h.type, LNET_MSG_PUT);
        assert_int_equal(h.payload_len, lengths[i]);
        assert_memory_equal(payload, pattern + m.offset, lengths[i]);
        lnet_body_get_put(&h, &put);
        assert_true(put.hdr_data == m.sum);
        assert_int_equal(match_unpack(put.match_bits).seq, i);
        ack = header_to(source, LNET_MSG_ACK);
        lnet_body_set_ack(&ack, &(struct lnet_ack){put.ack, put.match_bits, lengths[i]});
        say_message(source, 0, &ack, NULL);
        assert_int_equal(told.done, i + 1);
        assert_int_equal(told.cookie, 100 + i);
        assert_int_equal(told.end.status, 0);
        assert_int_equal(told.end.length, lengths[i]);
        assert_int_equal(told.end.check, PERF_UNCHECKED);
        say_message(source, 0, &ack, NULL); /* twice */
        assert_int_equal(told.done, i + 1);
        assert_int_equal(e->count.unmatched, i + 1);
        e->side[0].peer->conn[2].out = wire_of(source, 2)->out_len;
    }
}

/* Answers a GET with so much of the pattern, perhaps altered at a byte. */
static void reply(const struct lnet_hdr *h, uint32_t len, int altered)
{
    struct lnet_hdr out = header_to(source, LNET_MSG_REPLY);
    uint8_t *copy = malloc(len + 1);
    struct lnet_get get;

    lnet_body_get_get(h, &get);
    memcpy(copy,
           pattern + pattern_source_offset(match_unpack(get.match_bits).source) + get.src_offset,
           len);
    if (altered >= 0)
        copy[altered] ^= 1;
    lnet_body_set_reply(&out, &(struct lnet_reply){get.ret});
    out.payload_len = len;
    say_message(source, 1, &out, copy);
    free(copy);
}

static void test_get(void **state)
{
    struct perf_msg m = message(OP_GET, 10000, 5);
    struct lnet_hdr h;
    const uint8_t *payload;

    come_up(source);
    for (unsigned i = 0; i < 4; i++) {
        static const int altered[] = {-1, 0, 9999, -1};

        assert_int_equal(peers_send(&e->base, &m), 0);
        expect_sent(0, &h, &payload);
        reply(&h, i == 3 ? 9999 : 10000, altered[i]);
        assert_int_equal(told.done, i + 1);
        assert_int_equal(told.end.check, i == 0 ? PERF_GOOD : PERF_ALTERED);
    }
    m.verify = false;
    assert_int_equal(peers_send(&e->base, &m), 0);
    expect_sent(0, &h, &payload);
    reply(&h, 10000, 77);
    assert_int_equal(told.end.check, PERF_UNCHECKED);
    /* Given up: what comes counts as unmatched. */
    assert_int_equal(peers_send(&e->base, &m), 0);
    expect_sent(0, &h, &payload);
    peers_cancel(&e->base, 5);
    reply(&h, 10000, -1);
    assert_int_equal(told.done, 5);
    assert_int_equal(e->count.unmatched, 1);
    assert_int_equal(e->count.broken_input, 0);
}

static void put_to_target(uint32_t seq, uint32_t len, uint64_t sum)
{
    struct match match = {MATCH_PUT, 1, RUN, seq};
    struct lnet_hdr h = header_to(target, LNET_MSG_PUT), ack;
    const uint8_t *payload;
    struct lnet_ack a;

    h.payload_len = len;
    lnet_body_set_put(&h, &(struct lnet_put){.ack = {1, seq},
                                             .match_bits = match_pack(&match),
                                             .hdr_data = sum,
                                             .portal = LNET_PORTAL_RPC});
    say_message(target, 1, &h, pattern + 800);
    assert_true(hear(target, 0, &ack, &payload));
    assert_int_equal(ack.type, LNET_MSG_ACK);
    lnet_body_get_ack(&ack, &a);
    assert_true(a.dst.interface_cookie == 1 && a.dst.object_cookie == seq);
    assert_int_equal(a.mlength, len);
}

static void ask_target(const struct match *match, uint32_t offset, uint32_t len)
{
    struct lnet_hdr h = header_to(target, LNET_MSG_GET);

    lnet_body_set_get(&h, &(struct lnet_get){.ret = {3, 9},
                                             .match_bits = match_pack(match),
                                             .portal = LNET_PORTAL_RPC,
                                             .src_offset = offset,
                                             .sink_length = len});
    say_message(target, 0, &h, NULL);
}

static void test_serves(void **state)
{
    struct match report = {.kind = MATCH_REPORT, .run = RUN};
    struct match get = {.kind = MATCH_GET, .source = 5};
    struct run_report r;
    struct lnet_hdr h;
    const uint8_t *payload;

    come_up(target);
    put_to_target(0, 50001, payload_sum(pattern + 800, 50001));
    put_to_target(1, 0, payload_sum(pattern, 0));
    put_to_target(2, 5000, 1);
    put_to_target(2, 33, payload_sum(pattern + 800, 33));
    put_to_target(5, 33, payload_sum(pattern + 800, 33));
    ask_target(&report, 0, RUN_REPORT_SIZE);
    assert_true(hear(target, 0, &h, &payload));
    assert_int_equal(run_report_decode(payload, h.payload_len, &r), 0);
    assert_int_equal(r.received, 5);
    assert_int_equal(r.checked, 5);
    assert_int_equal(r.bad_checksum, 1);
    assert_int_equal(r.repeated, 1);
    assert_int_equal(r.missing, 2);
    ask_target(&get, 1000, 70000);
    assert_true(hear(target, 2, &h, &payload));
    assert_int_equal(h.type, LNET_MSG_REPLY);
    assert_memory_equal(payload, pattern + pattern_source_offset(5) + 1000, 70000);
    assert_int_equal(e->served.gets, 1);
    /* What cannot be answered is dropped and counted. */
    ask_target(&get, 1000, LNET_MAX_PAYLOAD);
    ask_target(&get, UINT32_MAX, 10);
    get.source = PATTERN_SOURCES;
    ask_target(&get, 0, 10);
    assert_int_equal(e->drops[LNET_DROP_GET_OFFSET], 3);
    get.kind = 1;
    ask_target(&get, 0, 10);
    assert_int_equal(e->drops[LNET_DROP_GET_NO_MATCH], 1);
    assert_false(hear(target, 0, &h, &payload));
    assert_int_equal(target->state, PEER_READY);
}

static void test_collects(void **state)
{
    struct lnet_hdr h, out = header_to(source, LNET_MSG_REPLY);
    struct run_report r = {.received = 12, .missing = 3};
    uint8_t buf[RUN_REPORT_SIZE];
    const uint8_t *payload;
    struct lnet_get get;

    come_up(source);
    peers_collect(&e->base, RUN, 500);
    expect_sent(0, &h, &payload);
    lnet_body_get_get(&h, &get);
    lnet_body_set_reply(&out, &(struct lnet_reply){get.ret});
    out.payload_len = RUN_REPORT_SIZE;
    run_report_encode(&r, buf);
    say_message(source, 0, &out, buf);
    assert_int_equal(told.collected, 1);
    assert_true(told.have && told.report.received == 12 && told.report.missing == 3);
    peers_collect(&e->base, RUN, 500);
    pass_ms(499);
    peers_collect_look(e);
    assert_int_equal(told.collected, 1);
    pass_ms(2);
    peers_collect_look(e);
    assert_int_equal(told.collected, 2);
    assert_false(told.have);
    assert_true(hear(source, 0, &h, &payload));
}

/* ---- credits and bounds ---- */

static void test_credits(void **state)
{
    struct perf_msg m = message(OP_PUT, 65536, 0);
    struct lnet_hdr h;
    const uint8_t *payload;
    struct wire *w;
    unsigned n = 0;

    come_up(source);
    w = wire_of(source, 2);
    for (unsigned i = 0; i < 20; i++) {
        m.cookie = i;
        assert_int_equal(peers_send(&e->base, &m), 0);
    }
    /* Eight, of which none fits into the send buffer with the header. */
    assert_int_equal((w->out_len - w->acked) / (65536 + PEERS_HEAD), PEER_CREDITS);
    assert_int_equal(source->credits, 0);
    while (hear(source, 2, &h, &payload))
        n++;
    assert_int_equal(n, 20);
    assert_int_equal(source->credits, PEER_CREDITS);
    w->room = 1000; /* in the middle of one */
    m.cookie = 100;
    assert_int_equal(peers_send(&e->base, &m), 0);
    peers_cancel(&e->base, 100);
    w->room = SIZE_MAX;
    w->ev->writable(w->user);
    assert_true(hear(source, 2, &h, &payload));
    assert_memory_equal(payload, pattern + m.offset, 65536);
    peers_fail_ops(source, -ECOMM);
    assert_int_equal(told.done, 20);
    assert_int_equal(told.end.status, -ECOMM);
    assert_false(told.end.unsent);
}

static void test_no_room(void **state)
{
    struct perf_msg m = message(OP_GET, 8, 0);

    come_up(source);
    for (unsigned i = 0; i < PEERS_OPS; i++) {
        m.cookie = i;
        assert_int_equal(peers_send(&e->base, &m), 0);
    }
    assert_int_equal(peers_send(&e->base, &m), -EAGAIN);
    assert_int_equal(told.room, 0);
    peers_cancel(&e->base, 3);
    assert_int_equal(told.room, 1);
    assert_int_equal(peers_send(&e->base, &m), 0);
    m.to = 1;
    assert_int_equal(peers_send(&e->base, &m), -EINVAL);
    peer_fail(source, SOCK_DROP(RESET), false);
    assert_int_equal(told.done, PEERS_OPS);
}

/* A router that asks and takes no answers is not read any more. */
static void test_reads_no_more(void **state)
{
    struct match get = {.kind = MATCH_GET};
    struct lnet_hdr h;
    const uint8_t *payload;
    unsigned n = 0;

    come_up(target);
    wire_of(target, 0)->room = wire_of(target, 2)->room = 0;
    for (unsigned i = 0; i < 100; i++)
        ask_target(&get, 0, 16);
    assert_true(target->conn[0].paused && wire_of(target, 0)->paused);
    assert_true(target->answers <= PEER_ANSWERS);
    wire_of(target, 0)->room = SIZE_MAX;
    wire_of(target, 0)->ev->writable(!target->conn[0].stream ? NULL : &target->conn[0]);
    for (unsigned i = 0; i < 100; i++) {
        while (hear(target, 0, &h, &payload))
            n++;
        if (!wire_of(target, 0)->paused)
            wire_of(target, 0)->ev->readable(&target->conn[0]);
    }
    assert_int_equal(n, 100);
    assert_int_equal(target->answers, 0);
}

/* ---- a router that does not keep to the protocol ---- */

/* The peer has failed for that reason, and nothing else has happened; it calls again later. */
static void expect_failed(struct peer *p, enum lnet_drop why, bool broken)
{
    if (p->state != PEER_PAUSES || e->drops[why] != 1)
        fail_msg("not failed for %s, state %u", lnet_drop_info(why)->name, p->state);
    assert_int_equal(e->count.failed_peers, broken);
    assert_int_equal(e->count.broken_input, broken);
    for (unsigned i = 0; i < PEER_CONNS; i++)
        assert_null(p->conn[i].stream);
    pass_ms(2010);
    assert_int_equal(p->state, PEER_DIALS);
    come_up(p);
    e->drops[why] = 0;
    e->count.failed_peers = e->count.broken_input = 0;
}

static void fail_now(struct peer *p)
{
    peer_fail(p, SOCK_DROP(RESET), false);
    pass_ms(1010);
}

static void test_bad_hello(void **state)
{
    static const struct {
        size_t at;
        uint8_t to;
        enum lnet_drop why;
        bool broken;
    } cases[] = {
        {0, 0, SOCK_DROP(HELLO_MAGIC), true},   {4, 9, SOCK_DROP(HELLO_VERSION), true},
        {8, 77, SOCK_DROP(HELLO_PEER), true},   {24, 1, SOCK_DROP(HELLO_PEER), true},
        {48, 2, SOCK_DROP(HELLO_TYPE), true},   {48, 9, SOCK_DROP(HELLO_TYPE), true},
        {52, 200, SOCK_DROP(HELLO_NIPS), true},
    };
    struct sock_hello h = hello_for(source, SOCK_CTYPE_CONTROL);
    uint8_t buf[SOCK_HELLO_MAX];
    size_t len = sock_hello_encode(&h, buf);
    uint8_t was;

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_call(source, 0, SOCK_CTYPE_CONTROL, 1023);
        was = buf[cases[i].at];
        buf[cases[i].at] = cases[i].to;
        say(source, 0, buf, len);
        buf[cases[i].at] = was;
        expect_failed(source, cases[i].why, cases[i].broken);
        fail_now(source);
    }
    h.ctype = SOCK_CTYPE_NONE;
    expect_call(source, 0, SOCK_CTYPE_CONTROL, 1023);
    say_hello(source, 0, &h);
    expect_failed(source, SOCK_DROP(DIAL_REFUSED), false);
    /* Restarted between two connections. */
    fail_now(source);
    h = hello_for(source, SOCK_CTYPE_CONTROL);
    expect_call(source, 0, SOCK_CTYPE_CONTROL, 1023);
    say_hello(source, 0, &h);
    pass_ms(2);
    h = hello_for(source, SOCK_CTYPE_BULK_OUT);
    h.src_incarnation++;
    expect_call(source, 1, SOCK_CTYPE_BULK_IN, 1022);
    say_hello(source, 1, &h);
    expect_failed(source, SOCK_DROP(HELLO_STALE), false);
}

static void frame_bytes(uint8_t buf[PEERS_HEAD], const struct lnet_hdr *h)
{
    struct sock_frame frame = {.type = SOCK_FRAME_LNET};

    sock_frame_encode(&frame, buf);
    lnet_hdr_encode4(h, buf + SOCK_FRAME_SIZE);
}

static void test_bad_frames(void **state)
{
    struct lnet_hdr put = header_to(target, LNET_MSG_PUT), get = header_to(target, LNET_MSG_GET);
    const struct {
        const struct lnet_hdr *h;
        size_t at;
        uint8_t to;
        enum lnet_drop why;
    } cases[] = {
        {&put, 0, 0xc2, SOCK_DROP(FRAME_TYPE)},    {&put, 4, 1, SOCK_DROP(PAYLOAD_CSUM)},
        {&put, 16, 5, SOCK_DROP(ZC_ACK)},          {&put, 48, 4, LNET_DROP_HDR_TYPE},
        {&put, 48, 9, LNET_DROP_HDR_TYPE},         {&put, 54, 0x20, LNET_DROP_HDR_TOO_LONG},
        {&get, 52, 1, LNET_DROP_HDR_LEN_NOT_ZERO}, {&put, 24, 99, LNET_DROP_DEST_OTHER_OWN_NID},
    };
    uint8_t buf[PEERS_HEAD];

    come_up(target);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        frame_bytes(buf, cases[i].h);
        buf[cases[i].at] = cases[i].to;
        say(target, 1, buf, sizeof(buf));
        expect_failed(target, cases[i].why, true);
    }
    /* Cut in the middle of a payload. */
    put.payload_len = 100;
    frame_bytes(buf, &put);
    say(target, 1, buf, sizeof(buf));
    say(target, 1, buf, 50);
    target->conn[1].stream->ops = &ops;
    wire_of(target, 1)->ev->closed(&target->conn[1], STREAM_END_EOF);
    expect_failed(target, SOCK_DROP(EOF_IN_MESSAGE), true);
}

static void test_bad_answers(void **state)
{
    struct perf_msg put = message(OP_PUT, 10, 1), get = message(OP_GET, 10, 2);
    struct lnet_hdr h, out;
    const uint8_t *payload;
    struct lnet_put p;
    struct lnet_get g;

    /* To the ping. */
    connect_all(source);
    answer_ping(source, false);
    expect_failed(source, LNET_DROP_PING_BAD_INFO, true);
    /* More than was asked for. */
    assert_int_equal(peers_send(&e->base, &get), 0);
    expect_sent(0, &h, &payload);
    reply(&h, 11, -1);
    assert_int_equal(told.done, 1);
    assert_int_equal(told.end.status, -ECOMM);
    expect_failed(source, LNET_DROP_REPLY_TOO_LONG, true);
    /* An ACK to a GET, a REPLY to a PUT. */
    assert_int_equal(peers_send(&e->base, &get), 0);
    expect_sent(0, &h, &payload);
    lnet_body_get_get(&h, &g);
    out = header_to(source, LNET_MSG_ACK);
    lnet_body_set_ack(&out, &(struct lnet_ack){.dst = g.ret});
    say_message(source, 0, &out, NULL);
    expect_failed(source, LNET_DROP_ACK_NO_MATCH, true);
    assert_int_equal(peers_send(&e->base, &put), 0);
    expect_sent(0, &h, &payload);
    lnet_body_get_put(&h, &p);
    out = header_to(source, LNET_MSG_REPLY);
    lnet_body_set_reply(&out, &(struct lnet_reply){p.ack});
    say_message(source, 0, &out, NULL);
    expect_failed(source, LNET_DROP_REPLY_TOO_LONG, true);
    assert_int_equal(told.done, 3);
    /* Guessed handles are nobody's. */
    for (uint64_t i = 0; i < 1000; i++) {
        out = header_to(source, LNET_MSG_ACK);
        lnet_body_set_ack(&out, &(struct lnet_ack){.dst = {i % 2 ? e->incarnation : i, i << 20}});
        say_message(source, 0, &out, NULL);
    }
    assert_int_equal(source->state, PEER_READY);
    assert_int_equal(e->count.unmatched, 1000);
}

/* Anything at any time: it lives, and nothing is lost (end()). */
static void test_noise(void **state)
{
    uint64_t rnd = 12345;
    uint8_t buf[PEERS_HEAD + 64];

    for (unsigned round = 0; round < 2000; round++) {
        struct peer *p = payload_random(&rnd) % 2 ? source : target;
        struct lnet_hdr h = header_to(p, (enum lnet_msg_type)(payload_random(&rnd) % 4));
        struct perf_msg m = message(round % 2 ? OP_PUT : OP_GET, 100, round);
        unsigned i = (unsigned)(payload_random(&rnd) % PEER_CONNS);

        if (p->state == PEER_PAUSES) {
            pass_ms(16001);
            continue;
        }
        if (p->state == PEER_DIALS) {
            connect_all(p);
            answer_ping(p, true);
        }
        (void)peers_send(&e->base, &m);
        for (unsigned n = 0; n < sizeof(h.body); n++)
            h.body[n] = (uint8_t)payload_random(&rnd);
        h.payload_len = h.type == LNET_MSG_PUT || h.type == LNET_MSG_REPLY ? 64 : 0;
        frame_bytes(buf, &h);
        for (unsigned n = (unsigned)(payload_random(&rnd) % 3); n > 0; n--)
            buf[payload_random(&rnd) % sizeof(buf)] ^= (uint8_t)payload_random(&rnd);
        say(p, i, buf, PEERS_HEAD + h.payload_len);
        assert_true(p->credits <= PEER_CREDITS && p->answers <= PEER_ANSWERS + PEER_OWN);
        for (i = 0; i < PEER_CONNS; i++) {
            if (!p->conn[i].stream)
                continue;
            wire_of(p, i)->acked = wire_of(p, i)->out_len;
            wire_of(p, i)->ev->acked(&p->conn[i]);
        }
    }
    assert_true(e->count.broken_input > 100);
}

/* ---- sums in pieces ---- */

static void test_sum_in_pieces(void **state)
{
    uint64_t rnd = 99;

    for (unsigned i = 0; i < 2000; i++) {
        size_t len = payload_random(&rnd) % 3000, done = 0, n;
        struct payload_summing s;

        payload_sum_begin(&s);
        for (; done < len; done += n) {
            n = payload_random(&rnd) % 90;
            n = n < len - done ? n : len - done;
            payload_sum_add(&s, pattern + i + done, n);
        }
        assert_true(payload_sum_end(&s) == payload_sum(pattern + i, len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_comes_up, begin, end),
        cmocka_unit_test_setup_teardown(test_put, begin, end),
        cmocka_unit_test_setup_teardown(test_get, begin, end),
        cmocka_unit_test_setup_teardown(test_serves, begin, end),
        cmocka_unit_test_setup_teardown(test_collects, begin, end),
        cmocka_unit_test_setup_teardown(test_credits, begin, end),
        cmocka_unit_test_setup_teardown(test_no_room, begin, end),
        cmocka_unit_test_setup_teardown(test_reads_no_more, begin, end),
        cmocka_unit_test_setup_teardown(test_bad_hello, begin, end),
        cmocka_unit_test_setup_teardown(test_bad_frames, begin, end),
        cmocka_unit_test_setup_teardown(test_bad_answers, begin, end),
        cmocka_unit_test_setup_teardown(test_noise, begin, end),
        cmocka_unit_test(test_sum_in_pieces),
    };
    struct reactor_opts opts = {.prog = "test_peers", .cores = "auto", .count = 1, .mem_mb = 32};
    struct err err = {0};
    int rc;

    reactor_test_clock(clock_us);
    if (reactor_env_create(&opts, &env, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    pattern = pattern_make();
    perf.env = env;
    rc = cmocka_run_group_tests(tests, NULL, NULL);
    free(pattern);
    reactor_bind(NULL);
    reactor_env_destroy(env);
    return rc;
}
