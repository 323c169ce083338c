/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PUTs of the o2iblnd driver, as source and as sink, row by row of docs/protocol/o2iblnd.md §4.2 to
 * §4.4, §5.3, §5.4 and §5.7.
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIG  (100u << 10)
#define KEY  0x4711u
#define ADDR 0x7f0000200003ull /* unaligned, and no address of ours */

static struct ih_row table[] = {
    {"5.3/queued", "PUT_REQ posted: sending and waiting"},
    {"5.3/nak", "PUT_NAK, status 0: the data are not wanted, success"},
    {"5.3/nak-error", "PUT_NAK, negative: fails, REMOTE_ERROR"},
    {"5.3/nak-early", "PUT_NAK before the completion of PUT_REQ: ends with both"},
    {"5.3/ack", "PUT_ACK: WRITE, then PUT_DONE with the byte count"},
    {"5.3/ack-early", "PUT_ACK before the completion of PUT_REQ"},
    {"5.3/ack-unknown", "PUT_ACK with an unknown cookie: closed"},
    {"5.3/nak-unknown", "PUT_NAK with an unknown cookie: closed"},
    {"5.3/ack-twice", "a second PUT_ACK to one PUT_REQ: closed"},
    {"5.3/done", "completion of PUT_DONE: the message ends"},
    {"5.3/req-lost", "completion error of PUT_REQ: closed, REMOTE_DROPPED"},
    {"5.3/done-lost", "completion error of PUT_DONE: closed, REMOTE_DROPPED"},
    {"5.3/write-lost", "completion error of a WRITE: closed, REMOTE_DROPPED"},
    {"5.3/deadline", "no answer in time: closed, REMOTE_TIMEOUT"},
    {"5.3/once", "each PUT_ACK is followed by one PUT_DONE, also on local failure"},
    {"4.2/too-long", "descriptor larger than the payload: PUT_DONE -EPROTO and no WRITE"},
    {"4.2/short", "descriptor smaller than the payload: that many bytes"},
    {"4.3/fragments", "257 fragments, unaligned, small addresses, nothing outside them"},
    {"4.3/sges", "segments and fragments cross, gather list shorter than the segments"},
    {"4.3/room", "more WRITEs than the send queue has room for"},
    {"4.3/no-fragments", "nfrags 0: closed"},
    {"4.3/too-many", "nfrags 258: closed"},
    {"4.5/no-key", "payload in memory without a key is copied"},
    {"5.4/done", "PUT_DONE: received"},
    {"5.4/status", "the status of PUT_DONE is not compared with the length"},
    {"5.4/negative", "PUT_DONE, negative: fails, REMOTE_ERROR"},
    {"5.4/unknown", "PUT_DONE with an unknown cookie: closed"},
    {"5.4/twice", "PUT_DONE twice: closed"},
    {"5.4/own-cookie", "PUT_DONE with the requester's cookie: closed"},
    {"5.4/deadline", "no PUT_DONE in time: closed, memory kept until then"},
    {"5.4/needed", "no PUT_DONE, and others need the memory: closed, memory kept until then"},
    {"5.4/held", "closed while the peer may write: ends only when nobody can"},
    {"taken", "what the peer has taken of what it was given, and what not yet"},
    {"5.7/sending", "a PUT with its PUT_REQ not completed when PUT_DONE is posted ends with both"},
    {"5.7/order", "completions of several PUTs in any order"},
    {"11/6", "PUT_ACK on another connection of the peer: closed"},
};

static struct fake_link *fl;
static uint8_t *theirs; /* what the peer exports */

static int setup(void **state)
{
    ih_setup_plain(state);
    fl = ih_called();
    theirs = calloc(1, 1 << 20);
    fake_export(KEY, ADDR, theirs, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    ih_teardown(state);
    free(theirs);
    return 0;
}

static void say_ack(uint64_t cookie, uint32_t len)
{
    struct pe_msg m = ih_put_ack(cookie, cookie + 1000, KEY, ADDR, len);

    ih_say(fl, &m);
}

static void say_completion(uint8_t type, uint64_t cookie, int status)
{
    struct pe_msg m = ih_completion(type, cookie, status);

    ih_say(fl, &m);
}

/* A PUT of ours, of which the peer has seen the request. */
static struct ih_msg *begin(uint32_t len, uint64_t *cookie)
{
    struct ih_msg *m = ih_put(len);
    struct pe_msg req = ih_take(fl, PE_PUT_REQ);

    assert_int_equal(req.lnet.type, PE_LNET_PUT);
    assert_int_equal(req.lnet.len, len);
    *cookie = req.cookie;
    return m;
}

static void expect_closed(void)
{
    fake_settle();
    assert_true(fl->phase >= FAKE_DOWN);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(fl->shuts, 1);
}

/* ---- source ---- */

static void expect_taken(uint64_t taken, uint64_t owed)
{
    struct reactor *before = ir_at(reactor_at(ir_env(), 0)); /* PEER's home */
    struct lnd_peer_info info;

    lnd_verbs_ops.peer_info(ih_peer(0, PEER), &info);
    ir_restore(before);
    assert_int_equal(info.taken, taken);
    assert_int_equal(info.owed, owed);
}

/* By the size of messages with their headers. A PUT that was asked for is half taken. */
static void rows_taken(void **state)
{
    enum {
        SMALL = 120 + 10,
        LARGE = 120 + BIG
    };
    uint64_t cookie, refused;
    struct ih_msg *m;

    expect_taken(0, 0);
    m = begin(BIG, &cookie);
    expect_taken(0, LARGE);
    begin(BIG, &refused);
    fl->hold_sends = true;
    for (unsigned i = 0; i < 8; i++) /* the last ones wait for a credit */
        ih_put(10);
    expect_taken(0, 2 * LARGE + 8 * SMALL);
    say_ack(cookie, BIG);
    expect_taken(LARGE / 2, LARGE / 2 + LARGE + 8 * SMALL);
    fl->hold_sends = false;
    fake_settle();
    ih_expect_ok(m);
    expect_taken(LARGE + 6 * SMALL, LARGE + 2 * SMALL);
    say_completion(PE_PUT_NAK, refused, 0);
    expect_taken(2 * LARGE + 6 * SMALL, 2 * SMALL);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    expect_taken(0, 0);
    ih_row("taken");
}

static void rows_source_done(void **state)
{
    struct ih_msg *m;
    struct pe_msg done;
    uint64_t cookie;

    fl->hold_sends = true;
    m = begin(BIG, &cookie);
    assert_int_equal(m->done, 0);
    fl->hold_sends = false;
    fake_settle();
    assert_int_equal(m->done, 0); /* it waits for the answer */
    ih_row("5.3/queued");
    fl->hold_sends = true;
    say_ack(cookie, BIG);
    done = ih_take(fl, PE_PUT_DONE);
    assert_int_equal(done.cookie, cookie + 1000);
    assert_int_equal(done.status, BIG);
    assert_int_equal(fl->writes, 1);
    ih_expect_pattern(theirs, BIG);
    assert_int_equal(m->done, 0);
    ih_row("5.3/ack");
    fl->hold_sends = false;
    fake_settle();
    ih_expect_ok(m);
    assert_int_equal(m->accepted, 1);
    ih_nothing(fl);
    ih_row("5.3/done");
    ih_row("5.3/once");
}

static void rows_source_nak(void **state)
{
    struct ih_msg *m;
    uint64_t cookie;

    m = begin(BIG, &cookie);
    say_completion(PE_PUT_NAK, cookie, 0);
    ih_expect_ok(m);
    ih_row("5.3/nak");
    m = begin(BIG, &cookie);
    say_completion(PE_PUT_NAK, cookie, -12);
    ih_expect_health(m, LNET_HEALTH_REMOTE_ERROR);
    ih_row("5.3/nak-error");
    fl->hold_sends = true;
    m = begin(BIG, &cookie);
    say_completion(PE_PUT_NAK, cookie, 0);
    assert_int_equal(m->done, 0);
    assert_int_equal(fake_complete(fl, 1), 1);
    fake_settle();
    ih_expect_ok(m);
    ih_nothing(fl);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("5.3/nak-early");
}

static void rows_source_ack_early(void **state)
{
    struct ih_msg *m;
    uint64_t cookie;

    fl->hold_sends = true;
    m = begin(BIG, &cookie);
    say_ack(cookie, BIG);
    ih_take(fl, PE_PUT_DONE);
    ih_row("5.3/ack-early");
    assert_int_equal(fake_complete(fl, 1), 1); /* of PUT_REQ */
    fake_settle();
    assert_int_equal(m->done, 0);
    assert_int_equal(fake_complete(fl, 1), 1);
    fake_settle();
    ih_expect_ok(m);
    ih_row("5.7/sending");
}

static void unknown(uint8_t type, uint64_t off, const char *row)
{
    struct ih_msg *m;
    uint64_t cookie;

    fl = fl && fl->phase == FAKE_UP ? fl : ih_called();
    m = begin(BIG, &cookie);
    fl->hostile = true;
    if (type == PE_PUT_ACK)
        say_ack(cookie + off, BIG);
    else
        say_completion(type, cookie + off, 0);
    expect_closed();
    assert_int_equal(m->done, 1);
    assert_int_not_equal(m->result.reason, LNET_DROP_NONE);
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    core.drops[IB_DROP(ANSWER)] = 0;
    assert_int_equal(fl->writes, 0);
    ih_row(row);
}

static void rows_source_unknown(void **state)
{
    static const uint64_t off[] = {1, 77, 1 << 16, 1ull << 33, UINT64_MAX};

    for (unsigned i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
        unknown(PE_PUT_ACK, off[i], "5.3/ack-unknown");
        unknown(PE_PUT_NAK, off[i], "5.3/nak-unknown");
    }
}

static void rows_source_twice(void **state)
{
    struct ih_msg *m;
    uint64_t cookie;

    fl->hold_sends = true;
    m = begin(BIG, &cookie);
    say_ack(cookie, BIG);
    ih_take(fl, PE_PUT_DONE);
    fl->hostile = true;
    say_ack(cookie, BIG);
    expect_closed();
    assert_int_equal(m->done, 1);
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    ih_row("5.3/ack-twice");
}

static void rows_source_lost(void **state)
{
    struct ih_msg *m;
    uint64_t cookie;

    fl->hold_sends = true;
    m = ih_put(BIG);
    fake_fail_send(fl, IBV_WC_RETRY_EXC_ERR);
    expect_closed();
    ih_expect_health(m, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("5.3/req-lost");

    fl = ih_called();
    m = begin(BIG, &cookie);
    fl->hold_sends = true;
    say_ack(cookie, BIG);
    ih_take(fl, PE_PUT_DONE);
    fake_fail_send(fl, IBV_WC_REM_ACCESS_ERR); /* the WRITE, which is not signalled */
    expect_closed();
    ih_expect_health(m, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("5.3/write-lost");

    fl = ih_called();
    m = begin(4000, &cookie);
    fl->hold_sends = true;
    say_ack(cookie, 4000);
    while (fl->wrs->kind == FAKE_WRITE) /* these were delivered; nobody says so but what follows */
        fl->wrs->signaled = true, fake_complete(fl, 1);
    fake_settle();
    fake_fail_send(fl, IBV_WC_RNR_RETRY_EXC_ERR);
    expect_closed();
    ih_expect_health(m, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("5.3/done-lost");
}

static void rows_source_deadline(void **state)
{
    struct ih_msg *m;
    uint64_t cookie;

    m = begin(BIG, &cookie);
    ir_advance(49 * IR_SEC);
    assert_int_equal(m->done, 0);
    ir_advance(15 * IR_SEC); /* and a quarter of it, §6.1 */
    expect_closed();
    ih_expect_health(m, LNET_HEALTH_REMOTE_TIMEOUT);
    ih_row("5.3/deadline");
}

/* ---- descriptors ---- */

static void rows_too_long(void **state)
{
    struct ih_msg *m;
    struct pe_msg done;
    uint64_t cookie;

    m = begin(BIG, &cookie);
    say_ack(cookie, BIG + 1);
    done = ih_take(fl, PE_PUT_DONE);
    assert_int_equal(done.status, -71);
    assert_int_equal(fl->writes, 0);
    assert_int_equal(m->done, 1);
    assert_int_not_equal(m->result.reason, LNET_DROP_NONE);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("4.2/too-long");
    m = begin(BIG, &cookie);
    say_ack(cookie, 5);
    done = ih_take(fl, PE_PUT_DONE);
    assert_int_equal(done.status, 5);
    ih_expect_pattern(theirs, 5);
    assert_int_equal(theirs[5], 0);
    ih_expect_ok(m);
    ih_row("4.2/short");
}

/* Fragments of sizes 1..largest over all of the payload, with gaps between them. */
static struct pe_msg scattered(uint64_t cookie, uint32_t len, unsigned n, uint64_t base)
{
    struct pe_msg m = ih_put_ack(cookie, cookie + 1000, KEY + 1, 0, 0);
    uint32_t left = len;
    uint64_t at = base;

    m.nfrags = n;
    for (unsigned i = 0; i < n; i++) {
        uint32_t nob = i + 1 == n ? left : len / n - (i % 2) + (i % 2 == 0);

        m.frag[i] = (struct pe_frag){at, nob};
        at += nob + 13;
        left -= nob;
    }
    return m;
}

static void expect_scattered(const struct pe_msg *ack, const uint8_t *mem, uint64_t base)
{
    uint64_t at = base;
    uint32_t off = 0;

    for (unsigned i = 0; i < ack->nfrags; i++) {
        for (; at < ack->frag[i].addr; at++)
            assert_int_equal(mem[at - base], 0); /* a gap */
        for (uint32_t b = 0; b < ack->frag[i].nob; b++)
            assert_int_equal(mem[at++ - base], ih_pattern(off++));
    }
}

/* segs of the payload, fragments of the descriptor */
static void cross(uint32_t len, unsigned segs, unsigned frags, int region)
{
    struct ih_msg *m = ih_send(ih_msg(0, PEER, LNET_MSG_PUT, len, region, segs));
    uint64_t base = 0x10; /* zero-based, as FMR has them */
    uint8_t *mem = calloc(1, len + 14ul * frags);
    struct pe_msg req = ih_take(fl, PE_PUT_REQ), ack = scattered(req.cookie, len, frags, base);
    struct pe_msg done;

    fake_export(KEY + 1, base, mem, len + 14 * frags);
    ih_say(fl, &ack);
    done = ih_take(fl, PE_PUT_DONE);
    assert_int_equal(done.status, len);
    ih_expect_ok(m);
    expect_scattered(&ack, mem, base);
    fake_export(KEY + 1, 0, NULL, 0);
    free(mem);
}

static void give_back(uint8_t credits)
{
    struct pe_msg m = ih_base(PE_NOOP, credits);

    ih_say(fl, &m);
}

static void rows_fragments(void **state)
{
    cross(1 << 20, 1, 257, FAKE_LOCAL);
    cross(4001, 1, 257, FAKE_LOCAL);
    ih_row("4.3/fragments");
    cross(BIG, 4, 1, FAKE_LOCAL);
    cross(BIG, 3, 7, FAKE_LOCAL);
    cross(BIG, 4, 256, FAKE_LANDING);
    give_back(5);
    cross(BIG, 4, 2, FAKE_LOCAL);
    ih_row("4.3/sges");
}

static void rows_few_sges(void **state)
{
    fl->link->send_sges = 2;
    cross(BIG, 4, 1, FAKE_LOCAL);
    cross(BIG, 4, 3, FAKE_LOCAL);
    fl->link->send_sges = 1;
    cross(BIG, 4, 3, FAKE_LOCAL);
}

/* Eight PUTs with 257 fragments each at once, completions late. */
static void rows_room(void **state)
{
    struct ih_msg *m[8];
    static struct pe_msg ack[8];
    uint8_t *mem[8];

    for (unsigned i = 0; i < 8; i++) {
        uint64_t cookie;

        m[i] = begin(BIG, &cookie);
        ack[i] = scattered(cookie, BIG, 257, 0x1000 + i * 0x1000000ull);
        ack[i].key = KEY + 10 + i;
        mem[i] = calloc(1, BIG + 14 * 257);
        fake_export(KEY + 10 + i, 0x1000 + i * 0x1000000ull, mem[i], BIG + 14 * 257);
    }
    fl->hold_sends = true;
    for (unsigned i = 0; i < 8; i++)
        ih_say(fl, &ack[i]);
    assert_true(fl->sq_used <= fl->open.send_wrs);
    while (fake_complete(fl, 1) > 0)
        ir_run();
    for (unsigned i = 0; i < 8; i++) {
        ih_take(fl, PE_PUT_DONE);
        ih_expect_ok(m[i]);
        expect_scattered(&ack[i], mem[i], 0x1000 + i * 0x1000000ull);
        free(mem[i]);
    }
    ih_row("4.3/room");
}

static void rows_bad_descriptor(void **state)
{
    static const uint32_t counts[] = {0, 258};
    static const char *const row[] = {"4.3/no-fragments", "4.3/too-many"};

    for (unsigned i = 0; i < 2; i++) {
        struct pe_msg m;
        struct ih_msg *put;
        uint64_t cookie;

        if (i > 0)
            fl = ih_called();
        put = begin(BIG, &cookie);
        m = ih_put_ack(cookie, 1, KEY, ADDR, 1);
        fl->hostile = true;
        for (unsigned f = 0; f < 258; f++)
            m.frag[f] = (struct pe_frag){ADDR + f, 1};
        m.nfrags = counts[i];
        ih_say(fl, &m);
        expect_closed();
        assert_int_equal(core.drops[IB_DROP(FRAGS)], i + 1);
        assert_int_equal(put->done, 1);
        ih_row(row[i]);
    }
}

static void rows_no_key(void **state)
{
    uint64_t before = ih_counters().copied_out;

    cross(BIG, 1, 1, -1);
    assert_int_equal(ih_counters().copied_out, before + BIG);
    cross(BIG, 3, 20, -1);
    give_back(2);
    assert_int_equal(fake.regions_wanted, 0);
    cross(BIG, 2, 3, FAKE_LATE);
    assert_int_equal(fake.regions_wanted, 1 << FAKE_LATE);
    before = ih_counters().copied_out;
    fake_register(FAKE_LATE);
    cross(BIG, 2, 3, FAKE_LATE);
    assert_int_equal(ih_counters().copied_out, before);
    ih_row("4.5/no-key");
}

/* ---- sink ---- */

/* A PUT of the peer's, of which it has our PUT_ACK. */
static struct pe_msg offer(uint32_t len, uint64_t cookie)
{
    struct pe_msg m = ih_put_req(len, cookie, 0), ack;

    ih_say(fl, &m);
    ack = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(ack.cookie, cookie);
    return ack;
}

static void write_all(const struct pe_msg *ack)
{
    static uint8_t data[1 << 20];
    uint32_t off = 0;

    ih_fill(data, sizeof(data));
    for (unsigned i = 0; i < ack->nfrags; i++) {
        fake_write(fl, ack->key, ack->frag[i].addr, data + off, ack->frag[i].nob);
        off += ack->frag[i].nob;
    }
}

static void rows_sink(void **state)
{
    struct pe_msg ack = offer(BIG, 5);

    assert_int_equal(ack.nfrags, 1);
    assert_int_equal(ack.frag[0].nob, BIG);
    assert_int_equal(core.open, 1);
    write_all(&ack);
    say_completion(PE_PUT_DONE, ack.dst_cookie, BIG);
    assert_int_equal(core.open, 0);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_expect_pattern(ih_last()->data, BIG);
    assert_int_equal(ih_counters().copied_in, 0);
    ih_row("5.4/done");
    ack = offer(BIG, 6);
    say_completion(PE_PUT_DONE, ack.dst_cookie, 1);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.4/status");
    ack = offer(BIG, 7);
    say_completion(PE_PUT_DONE, ack.dst_cookie, -5);
    assert_int_equal(core.open, 0);
    assert_int_not_equal(ih_last()->result.reason, LNET_DROP_NONE);
    assert_int_equal(ih_last()->result.health, LNET_HEALTH_REMOTE_ERROR);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("5.4/negative");
}

static void rows_sink_wrong_cookie(void **state)
{
    for (unsigned i = 0; i < 3; i++) {
        static const char *const row[] = {"5.4/unknown", "5.4/twice", "5.4/own-cookie"};
        struct pe_msg ack, other;

        if (i > 0)
            fl = ih_called();
        ack = offer(BIG, 5);
        other = offer(BIG, 6); /* so that a DONE is due anyhow */
        if (i == 1)
            say_completion(PE_PUT_DONE, ack.dst_cookie, BIG);
        fl->hostile = true;
        say_completion(PE_PUT_DONE,
                       i == 0   ? ack.dst_cookie + 0x10000000
                       : i == 1 ? ack.dst_cookie
                                : 5,
                       BIG);
        (void)other;
        expect_closed();
        assert_int_equal(core.drops[IB_DROP(ANSWER)], i + 1);
        assert_int_equal(core.open, 0);
        assert_int_equal(ih_last()->result.health, LNET_HEALTH_REMOTE_ERROR);
        ih_row(row[i]);
    }
}

/* Not while it may be on its way, and not from within the core's look. */
static void rows_sink_needed(void **state)
{
    struct lnet_rx *rx;
    struct reactor *before;

    offer(BIG, 5);
    rx = ih_last()->rx;
    ir_advance(10 * IR_SEC);
    before = ir_at(reactor_at(ir_env(), 0)); /* PEER's home */
    assert_non_null(lnd_verbs_ops.recv_abandon);
    assert_int_equal(lnd_verbs_ops.recv_abandon(rx, false), LNET_ABANDON_NOT);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(lnd_verbs_ops.recv_abandon(rx, true), LNET_ABANDON_SOON);
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(core.open, 1);
    assert_int_equal(lnd_verbs_ops.recv_abandon(rx, true), LNET_ABANDON_SOON);
    ir_restore(before);
    fl->hold_flush = true;
    ir_advance(1000);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_DOWN);
    before = ir_at(reactor_at(ir_env(), 0));
    assert_int_equal(lnd_verbs_ops.recv_abandon(rx, true), LNET_ABANDON_NOT); /* it ends anyway */
    ir_restore(before);
    ir_advance(5 * IR_SEC);
    expect_closed();
    assert_int_equal(core.open, 0);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_RX_INCOMPLETE);
    assert_int_equal(core.drops[IB_DROP(STALL)], 1);
    ih_row("5.4/needed");
}

static void rows_sink_deadline(void **state)
{
    offer(BIG, 5);
    ir_advance(49 * IR_SEC);
    assert_int_equal(core.open, 1);
    ir_advance(15 * IR_SEC);
    expect_closed();
    assert_int_equal(core.open, 0);
    assert_int_not_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.4/deadline");
}

/* The core's check in lnet_recv_done() is what fails when this is wrong. */
static void rows_sink_held(void **state)
{
    struct pe_msg ack = offer(BIG, 5);

    fake.manual_close = true;
    fl->hold_flush = true;
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.open, 1);
    write_all(&ack); /* it is still in time */
    fake_flush(fl, UINT32_MAX);
    fake_settle();
    assert_int_equal(core.open, 1);
    assert_int_equal(fl->phase, FAKE_SHUT);
    fake.manual_close = false;
    fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.open, 0);
    assert_int_not_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.4/held");
}

static void rows_order(void **state)
{
    struct ih_msg *m[6];
    uint64_t cookie[6];
    static const unsigned order[] = {3, 0, 5, 1, 4, 2};

    for (unsigned i = 0; i < 6; i++)
        m[i] = begin(BIG + i, &cookie[i]);
    for (unsigned i = 0; i < 6; i++) {
        unsigned n = order[i];

        if (i % 3 == 2)
            say_completion(PE_PUT_NAK, cookie[n], 0);
        else
            say_ack(cookie[n], BIG + n);
        assert_int_equal(m[n]->done, 1);
        ih_expect_ok(m[n]);
        if (i % 3 != 2)
            assert_int_equal(ih_take(fl, PE_PUT_DONE).cookie, cookie[n] + 1000);
        for (unsigned j = i + 1; j < 6; j++)
            assert_int_equal(m[order[j]]->done, 0);
    }
    ih_row("5.7/order");
}

static void rows_other_connection(void **state)
{
    struct fake_link *first = fl, *second = ih_called();
    struct ih_msg *m = ih_put(BIG);
    struct fake_link *asked = fake_unsent(first) > 0 ? first : second;
    struct pe_msg req = ih_take(asked, PE_PUT_REQ);

    fl = asked == first ? second : first;
    fl->hostile = true;
    say_ack(req.cookie, BIG);
    expect_closed();
    assert_int_equal(core.drops[IB_DROP(ANSWER)], 1);
    assert_int_equal(first->writes + second->writes, 0);
    (void)m;
    ih_row("11/6");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_taken),
        T(rows_source_done),
        T(rows_source_nak),
        T(rows_source_ack_early),
        T(rows_source_unknown),
        T(rows_source_twice),
        T(rows_source_lost),
        T(rows_source_deadline),
        T(rows_too_long),
        T(rows_fragments),
        T(rows_few_sges),
        T(rows_room),
        T(rows_bad_descriptor),
        T(rows_no_key),
        T(rows_sink),
        T(rows_sink_wrong_cookie),
        T(rows_sink_needed),
        T(rows_sink_deadline),
        T(rows_sink_held),
        T(rows_order),
        T(rows_other_connection),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
