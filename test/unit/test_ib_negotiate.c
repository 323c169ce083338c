/* SPDX-License-Identifier: BSD-3-Clause */
/* What nodes agree on: one row per row of the tables in docs/protocol/o2iblnd.md §1.6 to §1.9,
 * §1.11.
 */
#include "lib/lnd_verbs/ib_negotiate.h"
#include "test/unit/wire_bytes.h"

#include "test/drops_test.h"
#include <errno.h>
#include <setjmp.h>
#include <cmocka.h>

REGISTER_DROPS(ib_drops);

#define ROWS(t) (sizeof(t) / sizeof((t)[0]))

#define NID_A   0x000500000a000001ull /* 10.0.0.1@o2ib calls */
#define NID_B   0x000500000a000002ull
#define STAMP_A 0x000640b5eece0001ull
#define STAMP_B 0x000640b5eecfe240ull

static const struct ib_terms terms_a = {NID_A, STAMP_A, 8, 257};
static const struct ib_terms terms_b = {NID_B, STAMP_B, 8, 257};

/* ---- called, §1.7 ---- */

struct call {
    struct ib_caller caller;
    struct ib_conn_msg req;
};

/* One that is accepted. */
static struct call good_call(void)
{
    struct ib_ask ask = {.mine = terms_a, .peer_nid = NID_B};
    struct call c = {.caller = {.secure = true, .port = 1023, .ni = &terms_b, .depth_max = 255}};

    ib_ask_request(&ask, &c.req);
    return c;
}

static void row1(struct call *c)
{
    c->caller.port = 1024;
}

static void row2(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_LENGTH);
}

static void row3_magic(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_MAGIC);
}

static void row3_version(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_VERSION);
}

static void row4_v1(struct call *c)
{
    c->req.hdr.version = IB_VERSION_1;
}

static void row4_cksum(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_CKSUM);
}

static void row4_type(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_TYPE);
}

static void row4_nid(struct call *c)
{
    c->caller.decoded = IB_DROP(CONN_NID);
}

static void row5(struct call *c)
{
    c->caller.ni = NULL;
    c->caller.starting = true;
}

static void row6_none(struct call *c)
{
    c->caller.ni = NULL;
}

static void row6_nid(struct call *c)
{
    c->req.hdr.dst_nid = NID_B + 1;
}

static void row7(struct call *c)
{
    c->req.hdr.dst_stamp = STAMP_B - 1;
}

static void row8(struct call *c)
{
    c->req.hdr.type = IB_CONNACK;
}

static void row9(struct call *c)
{
    c->req.queue_depth = 9;
}

static void row9_few(struct call *c)
{
    c->req.queue_depth = 3; /* §1.6: never below 4 */
}

static void row10(struct call *c)
{
    c->req.max_frags = 258;
}

static void row10_none(struct call *c)
{
    c->req.max_frags = 0;
}

static void row11(struct call *c)
{
    c->req.max_msg_size = 4097;
}

static void row14(struct call *c)
{
    c->caller.dialling = true; /* 10.0.0.1 gives way to 10.0.0.2 in both orders */
}

static void row15(struct call *c)
{
    c->caller.depth_max = 3;
}

static const struct {
    const char *what;
    unsigned row;
    void (*spoil)(struct call *c);
    enum lnet_drop drop;
    enum ib_why why;
    bool no_ni;
} calls[] = {
    {"source port", 1, row1, IB_DROP(CONN_PORT), IB_WHY_FATAL, false},
    {"short", 2, row2, IB_DROP(CONN_LENGTH), IB_WHY_FATAL, false},
    {"magic", 3, row3_magic, IB_DROP(CONN_MAGIC), IB_WHY_FATAL, false},
    {"version", 3, row3_version, IB_DROP(CONN_VERSION), IB_WHY_FATAL, false},
    {"checksum", 4, row4_cksum, IB_DROP(CONN_CKSUM), IB_WHY_FATAL, false},
    {"type", 4, row4_type, IB_DROP(CONN_TYPE), IB_WHY_FATAL, false},
    {"source NID", 4, row4_nid, IB_DROP(CONN_NID), IB_WHY_FATAL, false},
    /* a kernel speaks it; we refuse it when its bytes are good: FATAL, as rows 3 and 4 */
    {"version 1", 4, row4_v1, IB_DROP(CONN_VERSION), IB_WHY_FATAL, false},
    {"NIs coming up", 5, row5, IB_DROP(CONN_EARLY), IB_WHY_EARLY, true},
    {"no NI", 6, row6_none, IB_DROP(CONN_DEST), IB_WHY_FATAL, true},
    {"NID differs", 6, row6_nid, IB_DROP(CONN_DEST), IB_WHY_FATAL, false},
    {"our old stamp", 7, row7, IB_DROP(CONN_STALE), IB_WHY_STALE, false},
    {"no CONNREQ", 8, row8, IB_DROP(CONN_TYPE), IB_WHY_FATAL, false},
    {"depth", 9, row9, IB_DROP(CONN_DEPTH), IB_WHY_DEPTH, false},
    {"depth of 3", 9, row9_few, IB_DROP(CONN_DEPTH), IB_WHY_DEPTH, false},
    {"fragments", 10, row10, IB_DROP(CONN_FRAGS), IB_WHY_FRAGS, false},
    {"no fragment", 10, row10_none, IB_DROP(CONN_FRAGS), IB_WHY_FRAGS, false},
    {"message size", 11, row11, IB_DROP(CONN_SIZE), IB_WHY_FATAL, false},
    {"race", 14, row14, IB_DROP(CONN_RACE), IB_WHY_RACE, false},
    {"no queue pair", 15, row15, IB_DROP(CONN_NO_MEMORY), IB_WHY_NO_RESOURCES, false},
};

static void assert_reject(const char *what, const struct ib_reject *r, enum ib_why why, bool no_ni)
{
    if (r->why != why)
        fail_msg("%s: why %s", what, ib_why_text(r->why));
    assert_int_equal(r->version, IB_VERSION_2); /* 0x11 would mean: speak version 1 */
    assert_int_equal(r->stamp, no_ni ? 0 : STAMP_B);
    assert_int_equal(r->queue_depth, no_ni ? 0 : 8);
    assert_int_equal(r->max_frags, no_ni ? 0 : 257);
    assert_int_equal(r->max_msg_size, 4096);
}

static void test_refused(void **state)
{
    struct ib_verdict v;

    for (size_t i = 0; i < ROWS(calls); i++) {
        struct call c = good_call();

        calls[i].spoil(&c);
        if (ib_request_judge(&c.caller, &c.req, &v) != calls[i].drop || v.drop != calls[i].drop)
            fail_msg("%s: %s", calls[i].what, lnet_drop_info(v.drop)->name);
        assert_true(lnet_drop_info(v.drop)->kind == DROP_KIND_REFUSAL ||
                    lnet_drop_info(v.drop)->kind == DROP_KIND_RETRY);
        assert_reject(calls[i].what, &v.reject, calls[i].why, calls[i].no_ni);
    }
}

/* Of two things that are wrong the earlier row decides. */
static void test_order(void **state)
{
    struct ib_verdict v;
    unsigned pairs = 0;

    for (size_t i = 0; i < ROWS(calls); i++) {
        for (size_t k = i + 1; k < ROWS(calls); k++) {
            struct call c = good_call();

            if (calls[i].row == calls[k].row)
                continue;
            calls[k].spoil(&c);
            calls[i].spoil(&c);
            if (ib_request_judge(&c.caller, &c.req, &v) != calls[i].drop)
                fail_msg("%s before %s: %s", calls[i].what, calls[k].what,
                         lnet_drop_info(v.drop)->name);
            pairs++;
        }
    }
    assert_true(pairs > 150);
}

/* Rows 12, 15 and 16 come up when the verdict was to accept. */
static void test_refused_later(void **state)
{
    struct ib_reject r;

    ib_refuse(IB_DROP(CONN_NO_MEMORY), &terms_b, &r);
    assert_reject("memory", &r, IB_WHY_NO_RESOURCES, false);
    ib_refuse(IB_DROP(CONN_ACCEPT), &terms_b, &r);
    assert_reject("accept", &r, IB_WHY_FATAL, false);
    ib_refuse(IB_DROP(CONN_LENGTH), NULL, &r);
    assert_reject("nothing known", &r, IB_WHY_FATAL, true);
}

/* The bytes of §8. */
static void test_reject_bytes(void **state)
{
    uint8_t got[IB_REJECT_SIZE], want[IB_REJECT_SIZE];
    struct call c = good_call();
    struct ib_verdict v;

    row9(&c);
    ib_request_judge(&c.caller, &c.req, &v);
    ib_reject_encode(&v.reject, got);
    unhex("91 1b e9 0b 12 00 07 00 40 e2 cf ee b5 40 06 00 08 00 01 01 00 10 00 00", want, 24);
    assert_memory_equal(got, want, sizeof(got));
    c = good_call();
    row7(&c);
    ib_request_judge(&c.caller, &c.req, &v);
    ib_reject_encode(&v.reject, got);
    unhex("91 1b e9 0b 12 00 05 00 40 e2 cf ee b5 40 06 00 08 00 01 01 00 10 00 00", want, 24);
    assert_memory_equal(got, want, sizeof(got));
}

static void test_accepted_bytes(void **state)
{
    uint8_t got[IB_CONN_SIZE], want[IB_CONN_SIZE];
    struct call c = good_call();
    struct ib_verdict v;

    ib_conn_encode(&c.req, got);
    unhex("91 1b e9 0b 12 00 c0 00 38 00 00 00 00 00 00 00"
          "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00"
          "02 00 00 0a 00 00 05 00 00 00 00 00 00 00 00 00 08 00 01 01 00 10 00 00",
          want, sizeof(want));
    assert_memory_equal(got, want, sizeof(got));
    assert_int_equal(ib_request_judge(&c.caller, &c.req, &v), LNET_DROP_NONE);
    ib_conn_encode(&v.ack, got);
    unhex("91 1b e9 0b 12 00 c1 00 38 00 00 00 00 00 00 00"
          "02 00 00 0a 00 00 05 00 40 e2 cf ee b5 40 06 00"
          "01 00 00 0a 00 00 05 00 01 00 ce ee b5 40 06 00 08 00 01 01 00 10 00 00",
          want, sizeof(want));
    assert_memory_equal(got, want, sizeof(got));
}

/* §1.6: what is accepted, and with what. */
static void test_accepted(void **state)
{
    static const struct {
        const char *what;
        uint16_t port, depth, frags;
        uint32_t size;
        uint64_t dst_stamp;
        bool secure, dialling;
        unsigned races, depth_max, got_depth, got_frags;
    } rows[] = {
        {"as offered", 1023, 8, 257, 4096, 0, true, false, 0, 255, 8, 257},
        {"any port", 40000, 8, 257, 4096, 0, false, false, 0, 255, 8, 257},
        {"less deep", 1023, 4, 257, 4096, 0, true, false, 0, 255, 4, 257},
        {"a node up to 2.14", 1023, 8, 256, 4096, 0, true, false, 0, 255, 8, 256},
        {"one fragment", 1023, 8, 1, 4096, 0, true, false, 0, 255, 8, 1},
        {"smaller messages", 1023, 8, 257, 1024, 0, true, false, 0, 255, 8, 257},
        {"our stamp", 1023, 8, 257, 4096, STAMP_B, true, false, 0, 255, 8, 257},
        {"queue pair lowered", 1023, 8, 257, 4096, 0, true, false, 0, 5, 5, 257},
        {"after 20 races", 1023, 8, 257, 4096, 0, true, true, 20, 255, 8, 257},
    };
    struct ib_verdict v;

    for (size_t i = 0; i < ROWS(rows); i++) {
        struct call c = good_call();

        c.caller.port = rows[i].port;
        c.caller.secure = rows[i].secure;
        c.caller.dialling = rows[i].dialling;
        c.caller.races = rows[i].races;
        c.caller.depth_max = rows[i].depth_max;
        c.req.queue_depth = rows[i].depth;
        c.req.max_frags = rows[i].frags;
        c.req.max_msg_size = rows[i].size;
        c.req.hdr.dst_stamp = rows[i].dst_stamp;
        if (ib_request_judge(&c.caller, &c.req, &v) != LNET_DROP_NONE)
            fail_msg("%s: %s", rows[i].what, lnet_drop_info(v.drop)->name);
        assert_int_equal(v.depth, rows[i].got_depth);
        assert_int_equal(v.frags, rows[i].got_frags);
        assert_int_equal(v.ack.queue_depth, rows[i].got_depth);
        assert_int_equal(v.ack.max_frags, rows[i].got_frags);
        assert_int_equal(v.ack.max_msg_size, 4096);
        assert_int_equal(v.ack.hdr.dst_stamp, STAMP_A);
    }
}

/* §1.9: lower in both orders only. */
static void test_race(void **state)
{
    static const struct {
        uint64_t src, mine;
        bool lower;
    } rows[] = {
        {0x000500000a000001, 0x000500000a000002, true}, /* 10.0.0.1, 10.0.0.2 */
        {0x000500000a000002, 0x000500000a000001, false},
        {0x000500000a000001, 0x000500000a000001, false}, /* itself */
        {0x000500000a000101, 0x000500000a000002, false}, /* 10.0.1.1: higher, and lower */
        {0x000500000a000002, 0x000500000a000101, false},
        {0x000500000a000409, 0x000500000a000109, false}, /* 10.0.4.9, 10.0.1.9: likewise */
        {0x000500000a000109, 0x000500000a000409, false},
        {0x000500000a000101, 0x000500000a000202, true},
    };

    for (size_t i = 0; i < ROWS(rows); i++) {
        if (ib_race_lower(rows[i].src, rows[i].mine) != rows[i].lower)
            fail_msg("row %zu", i);
    }
}

/* Only while we call, and never is it both who refuse. */
static void test_race_refused(void **state)
{
    struct call c = good_call();
    struct ib_verdict v;

    c.caller.dialling = true;
    c.caller.races = 19;
    assert_int_equal(ib_request_judge(&c.caller, &c.req, &v), IB_DROP(CONN_RACE));
    c.caller.dialling = false;
    assert_int_equal(ib_request_judge(&c.caller, &c.req, &v), LNET_DROP_NONE);
    c.caller.dialling = true;
    c.req.hdr.src_nid = 0x000500000a000003;
    assert_int_equal(ib_request_judge(&c.caller, &c.req, &v), LNET_DROP_NONE);
}

/* ---- CONNACK, §1.11 ---- */

static void test_ack(void **state)
{
    static const struct {
        const char *what;
        unsigned offset; /* in struct ib_conn_msg */
        unsigned size;
        uint64_t value;
        enum lnet_drop drop;
    } rows[] = {
#define AT(field) offsetof(struct ib_conn_msg, field), sizeof(((struct ib_conn_msg *)0)->field)
        {"type", AT(hdr.type), IB_CONNREQ, IB_DROP(CONN_TYPE)},
        {"version", AT(hdr.version), IB_VERSION_1, IB_DROP(CONN_VERSION)},
        {"deeper", AT(queue_depth), 9, IB_DROP(CONN_DEPTH)},
        {"too shallow", AT(queue_depth), 3, IB_DROP(CONN_DEPTH)},
        {"less deep", AT(queue_depth), 4, LNET_DROP_NONE},
        {"more fragments", AT(max_frags), 258, IB_DROP(CONN_FRAGS)},
        {"no fragments", AT(max_frags), 0, IB_DROP(CONN_FRAGS)},
        {"fewer", AT(max_frags), 32, LNET_DROP_NONE},
        {"message size", AT(max_msg_size), 4097, IB_DROP(CONN_SIZE)},
        {"smaller messages", AT(max_msg_size), 4095, LNET_DROP_NONE},
        {"for another", AT(hdr.dst_nid), NID_B, IB_DROP(CONN_DEST)},
        {"from another", AT(hdr.src_nid), NID_A, IB_DROP(CONN_DEST)},
        {"for an earlier life", AT(hdr.dst_stamp), STAMP_A - 1, IB_DROP(CONN_STALE)},
        {"of an unknown life", AT(hdr.src_stamp), 7, LNET_DROP_NONE},
    };
    const struct ib_ask ask = {.mine = terms_a, .peer_nid = NID_B};
    struct call c = good_call();
    struct ib_verdict v;

    ib_request_judge(&c.caller, &c.req, &v);
    assert_int_equal(ib_ack_judge(&ask, LNET_DROP_NONE, &v.ack), LNET_DROP_NONE);
    assert_int_equal(ib_ack_judge(&ask, IB_DROP(CONN_LENGTH), &v.ack), IB_DROP(CONN_LENGTH));
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct ib_conn_msg ack = v.ack;

        memcpy((uint8_t *)&ack + rows[i].offset, &rows[i].value, rows[i].size);
        if (ib_ack_judge(&ask, LNET_DROP_NONE, &ack) != rows[i].drop)
            fail_msg("%s: %s", rows[i].what,
                     lnet_drop_info(ib_ack_judge(&ask, LNET_DROP_NONE, &ack))->name);
    }
}

/* ---- rejected, §1.8 ---- */

#define OLD_STAMP 0x1111ull

static const struct {
    const char *what;
    int status;
    uint8_t why;
    uint16_t version, depth, frags;
    uint64_t stamp;
    size_t len;
    enum ib_next next;
    unsigned got_depth, got_frags;
    uint64_t got_stamp;
} rejects[] = {
    {"1", 28, IB_WHY_RACE, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_WAIT, 32, 257, OLD_STAMP},
    {"2", 28, IB_WHY_NO_RESOURCES, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"3", 28, IB_WHY_FATAL, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"3, version 1", 28, IB_WHY_FATAL, 0x11, 0, 0, 0, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"4", 28, IB_WHY_UNCOMPAT, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"5", 28, IB_WHY_STALE, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_NOW, 32, 257, STAMP_B},
    {"5, stamp 0", 28, IB_WHY_STALE, 0x12, 8, 257, 0, 148, IB_NEXT_NOW, 32, 257, OLD_STAMP},
    {"5, short", 28, IB_WHY_STALE, 0x12, 8, 257, STAMP_B, 7, IB_NEXT_NOW, 32, 257, OLD_STAMP},
    {"6", 28, IB_WHY_FRAGS, 0x12, 32, 256, STAMP_B, 148, IB_NEXT_NOW, 32, 256, OLD_STAMP},
    {"6, not less", 28, IB_WHY_FRAGS, 0x12, 32, 257, 0, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"6, none", 28, IB_WHY_FRAGS, 0x12, 32, 0, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"6, short", 28, IB_WHY_FRAGS, 0x12, 32, 256, 0, 23, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"7", 28, IB_WHY_DEPTH, 0x12, 8, 257, STAMP_B, 24, IB_NEXT_NOW, 8, 257, OLD_STAMP},
    {"7, not less", 28, IB_WHY_DEPTH, 0x12, 32, 257, 0, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"7, below 4", 28, IB_WHY_DEPTH, 0x12, 3, 257, 0, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"7, version 1", 28, IB_WHY_DEPTH, 0x11, 8, 257, 0, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"8", 28, IB_WHY_SERVICE, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"9", 28, IB_WHY_EARLY, 0x12, 0, 0, 0, 148, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"10", 28, 10, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"0", 28, IB_WHY_NONE, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_GIVE_UP, 32, 257, OLD_STAMP},
    {"7 by iWARP", -ECONNREFUSED, IB_WHY_DEPTH, 0x12, 8, 257, 0, 24, IB_NEXT_NOW, 8, 257,
     OLD_STAMP},
    {"iWARP alone", -ECONNREFUSED, 0, 0x12, 0, 0, 0, 0, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"28 alone", 28, IB_WHY_STALE, 0x12, 0, 0, STAMP_B, 6, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"CM 10", 10, IB_WHY_DEPTH, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_NOW, 32, 257, OLD_STAMP},
    {"CM 8", 8, IB_WHY_DEPTH, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"CM 1", 1, IB_WHY_DEPTH, 0x12, 8, 257, STAMP_B, 148, IB_NEXT_LATER, 32, 257, OLD_STAMP},
    {"unreachable", -EHOSTUNREACH, 0, 0x12, 0, 0, 0, 0, IB_NEXT_LATER, 32, 257, OLD_STAMP},
};

static void test_rejected(void **state)
{
    for (size_t i = 0; i < ROWS(rejects); i++) {
        struct ib_ask ask = {.mine = terms_a, .peer_nid = NID_B, .peer_stamp = OLD_STAMP};
        struct ib_reject rej = {.version = rejects[i].version,
                                .why = rejects[i].why,
                                .stamp = rejects[i].stamp,
                                .queue_depth = rejects[i].depth,
                                .max_frags = rejects[i].frags,
                                .max_msg_size = 4096};
        uint8_t priv[148] = {0};
        enum ib_next next;

        ask.mine.depth = 32;
        ib_reject_encode(&rej, priv);
        next = ib_rejected(&ask, rejects[i].status, priv, rejects[i].len);
        if (next != rejects[i].next || ask.mine.depth != rejects[i].got_depth ||
            ask.mine.frags != rejects[i].got_frags || ask.peer_stamp != rejects[i].got_stamp)
            fail_msg("%s: %d, depth %u, fragments %u, stamp %#llx", rejects[i].what, next,
                     ask.mine.depth, ask.mine.frags, (unsigned long long)ask.peer_stamp);
        assert_int_equal(ask.tries, 1);
        assert_int_equal(ask.mine.nid, NID_A);
        assert_int_equal(ask.mine.stamp, STAMP_A);
    }
}

/* At once ten times, and then with a pause. */
static void test_bounded(void **state)
{
    struct ib_ask ask = {.mine = terms_a, .peer_nid = NID_B};

    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(ib_rejected(&ask, IB_CM_STALE_CONN, NULL, 0), IB_NEXT_NOW);
    assert_int_equal(ib_rejected(&ask, IB_CM_STALE_CONN, NULL, 0), IB_NEXT_LATER);
    ask.tries = 0;
    assert_int_equal(ib_rejected(&ask, IB_CM_STALE_CONN, NULL, 0), IB_NEXT_NOW);
}

/* ---- both sides ---- */

/* Calls until it is settled; returns the number of calls. */
static unsigned settle(struct ib_ask *ask, struct ib_caller *caller, struct ib_verdict *v)
{
    unsigned calls_made = 0;

    for (;;) {
        uint8_t priv[196] = {0};
        struct ib_conn_msg req;

        ib_ask_request(ask, &req);
        ib_conn_encode(&req, priv);
        caller->decoded = ib_conn_decode(priv, 56, &req);
        calls_made++;
        assert_true(calls_made < 20);
        if (ib_request_judge(caller, &req, v) == LNET_DROP_NONE) {
            struct ib_conn_msg ack;

            ib_conn_encode(&v->ack, priv);
            assert_int_equal(ib_ack_judge(ask, ib_conn_decode(priv, sizeof(priv), &ack), &ack),
                             LNET_DROP_NONE);
            assert_int_equal(ack.queue_depth, v->depth);
            return calls_made;
        }
        memset(priv, 0, sizeof(priv));
        ib_reject_encode(&v->reject, priv);
        assert_int_equal(ib_rejected(ask, IB_CM_CONSUMER, priv, 148), IB_NEXT_NOW);
    }
}

static void test_settles(void **state)
{
    static const struct {
        const char *what;
        uint16_t ask_depth, depth, ask_frags, frags;
        uint64_t ask_knows; /* a stamp */
        unsigned calls, got_depth, got_frags;
    } rows[] = {
        {"alike", 8, 8, 257, 257, 0, 1, 8, 257},
        {"32 calls 8", 32, 8, 257, 257, 0, 2, 8, 257},
        {"8 calls 32", 8, 32, 257, 257, 0, 1, 8, 257},
        {"2.15 calls 2.14", 8, 8, 257, 256, 0, 2, 8, 256},
        {"2.14 calls 2.15", 8, 8, 256, 257, 0, 1, 8, 256},
        {"both differ", 128, 8, 257, 32, 0, 3, 8, 32},
        {"the called has restarted", 8, 8, 257, 257, STAMP_B - 1, 2, 8, 257},
        {"everything", 128, 8, 257, 32, STAMP_B - 1, 4, 8, 32},
    };
    size_t i;

    for (i = 0; i < ROWS(rows); i++) {
        struct ib_terms ni = terms_b;
        struct ib_ask ask = {.mine = terms_a, .peer_nid = NID_B, .peer_stamp = rows[i].ask_knows};
        struct ib_caller caller = {.ni = &ni, .depth_max = 255};
        struct ib_verdict v;
        unsigned made;

        ask.mine.depth = rows[i].ask_depth;
        ask.mine.frags = rows[i].ask_frags;
        ni.depth = rows[i].depth;
        ni.frags = rows[i].frags;
        made = settle(&ask, &caller, &v);
        if (made != rows[i].calls || v.depth != rows[i].got_depth || v.frags != rows[i].got_frags)
            fail_msg("%s: %u calls, depth %u, fragments %u", rows[i].what, made, v.depth, v.frags);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_refused_later),
        cmocka_unit_test(test_reject_bytes),
        cmocka_unit_test(test_accepted_bytes),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_race),
        cmocka_unit_test(test_race_refused),
        cmocka_unit_test(test_ack),
        cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_settles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
