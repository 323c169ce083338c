/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes to the o2iblnd driver: validation, IMMEDIATE, PUT_REQ as the core answers it, GET_REQ;
 * row by row of docs/protocol/o2iblnd.md §2.4, §5.1, §5.2 and §5.5.
 */
#include "test/unit/ib_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BIG  (100u << 10)
#define KEY  0x4711u
#define ADDR 0x7f0000200003ull

static struct ih_row table[] = {
    {"2.4/short", "shorter than a header: closed"},
    {"2.4/magic", "not the magic: closed"},
    {"2.4/version", "another version: closed"},
    {"2.4/length", "says more than came, or less than its type needs: closed"},
    {"2.4/trailing", "bytes behind nob are not looked at"},
    {"2.4/cksum", "a checksum is checked, in both ways bytes are taken"},
    {"2.4/type", "unknown type: closed"},
    {"2.4/conn-type", "CONNREQ as a message: closed"},
    {"2.4/flip", "a peer of the other byte order is understood; its cookies go back as they came"},
    {"2.4/srcnid", "another source NID: closed"},
    {"2.4/dstnid", "another destination NID: closed"},
    {"2.4/srcstamp", "another incarnation of the source: closed"},
    {"2.4/dststamp", "another incarnation of ours: closed"},
    {"5.1/ack", "LNet ACK: IMMEDIATE of 120 bytes"},
    {"5.1/get", "GET forwarded or to a small sink: IMMEDIATE of 120 bytes"},
    {"5.1/get-large", "GET of our own for more than that: IMMEDIATE too, never GET_REQ"},
    {"5.1/small", "PUT, REPLY up to 3976 bytes: IMMEDIATE"},
    {"5.1/large", "PUT, REPLY of 3977 bytes: PUT_REQ, the LNet type stays"},
    {"5.1/pieces", "IMMEDIATE from several segments, and from more than the device gathers"},
    {"5.1/copied", "IMMEDIATE from memory without a key: copied, counted"},
    {"5.2/immediate", "IMMEDIATE: payload copied once, counted"},
    {"5.2/cut", "IMMEDIATE of which less is wanted"},
    {"5.2/unwanted", "IMMEDIATE of which nothing is wanted"},
    {"5.2/incomplete", "IMMEDIATE carrying less than its header says: fails, connection stays"},
    {"5.2/put-none", "PUT_REQ, nothing wanted: PUT_NAK 0, received well"},
    {"5.2/put-small", "PUT_REQ with a payload of 1 byte"},
    {"5.2/put-cut", "PUT_REQ of which less is wanted: PUT_ACK of exactly that"},
    {"5.2/put-pieces", "PUT_REQ into several segments: fragments of one key"},
    {"5.2/put-unmapped", "PUT_REQ into memory no peer may write: PUT_NAK negative, named"},
    {"5.2/put-local", "PUT_REQ into memory with a key, but not for writing: the same"},
    {"5.2/refused", "the core calls it a protocol error: closed"},
    {"5.2/payload", "ACK or GET with payload, PUT above 1 MiB, unknown LNet type: closed"},
    {"5.2/later", "nothing is answered and no credit given back until the core asks"},
    {"5.2/later-others", "one that waits stops no other message of the connection"},
    {"5.2/later-expired", "one that waited in vain: the next one is not behind it"},
    {"5.2/later-closed", "closed while the core makes it wait: taken back, or ended when it asks"},
    {"5.5/matched", "GET_REQ: WRITE, GET_DONE with the bytes"},
    {"5.5/fragments", "GET_REQ with many fragments"},
    {"5.5/zero", "GET_REQ of nothing: GET_DONE 0 and no WRITE"},
    {"5.5/unmatched", "GET_REQ not matched: GET_DONE -ENODATA"},
    {"5.5/too-long", "more than the sink holds: GET_DONE negative, no WRITE"},
    {"5.5/foreign", "GET_REQ for another node: closed"},
    {"5.5/lost", "GET_REQ served when the connection breaks: memory kept until it is down"},
    {"5.5/get-done", "GET_DONE, which nothing of ours asks for: closed"},
};

static struct fake_link *fl;
static uint8_t *theirs;

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

static void say_raw(const uint8_t *buf, size_t len)
{
    fake_deliver(fl, buf, len);
    fake_settle();
}

static void expect_closed(enum lnet_drop why)
{
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    if (core.drops[why] != 1)
        fail_msg("%s was not counted", lnet_drop_info(why)->name);
    core.drops[why] = 0;
}

static struct fake_link *hostile(void)
{
    fl = fl->phase == FAKE_UP ? fl : ih_called();
    fl->hostile = true;
    return fl;
}

static void expect_up(void)
{
    fake_settle();
    assert_int_equal(fl->phase, FAKE_UP);
}

/* ---- §2.4 ---- */

static void rows_bytes(void **state)
{
    struct pe_msg m = ih_immediate(10, 0);
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(&m, buf);

    hostile();
    say_raw(buf, 5);
    expect_closed(IB_DROP(LENGTH));
    hostile();
    say_raw(buf, 47);
    expect_closed(IB_DROP(LENGTH));
    ih_row("2.4/short");
    hostile();
    buf[0] ^= 1;
    say_raw(buf, len);
    buf[0] ^= 1;
    expect_closed(IB_DROP(MAGIC));
    ih_row("2.4/magic");
    hostile();
    buf[4] = 0x13;
    say_raw(buf, len);
    buf[4] = 0x12;
    expect_closed(IB_DROP(VERSION));
    ih_row("2.4/version");
    hostile();
    say_raw(buf, len - 1);
    expect_closed(IB_DROP(LENGTH));
    hostile();
    m.nob = 119;
    say_raw(buf, pe_encode(&m, buf));
    expect_closed(IB_DROP(LENGTH));
    m.nob = 0;
    ih_row("2.4/length");
    hostile();
    m.type = 0xde;
    say_raw(buf, pe_encode(&m, buf));
    expect_closed(IB_DROP(TYPE));
    ih_row("2.4/type");
    hostile();
    m.type = PE_CONNREQ;
    say_raw(buf, pe_encode(&m, buf));
    expect_closed(IB_DROP(TYPE));
    ih_row("2.4/conn-type");
    assert_int_equal(core.nreceived, 0);
}

static void rows_trailing(void **state)
{
    struct pe_msg m = ih_immediate(10, 0);
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(&m, buf);

    memset(buf + len, 0xa5, 100);
    fl->hostile = true;
    say_raw(buf, len + 100);
    expect_up();
    assert_int_equal(core.nreceived, 1);
    ih_row("2.4/trailing");
}

static uint32_t cksum_signed(const uint8_t *buf, size_t len)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum = (sum << 1 | sum >> 31) + (i >= 12 && i < 16 ? 0 : (uint32_t)(int8_t)buf[i]);
    return sum != 0 ? sum : 1;
}

static void rows_checksum(void **state)
{
    struct pe_msg m = ih_immediate(200, 0);
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(&m, buf);

    m.cksum = pe_cksum(buf, len);
    say_raw(buf, pe_encode(&m, buf));
    m.cksum = cksum_signed(buf, len);
    say_raw(buf, pe_encode(&m, buf));
    expect_up();
    assert_int_equal(core.nreceived, 2);
    fl->hostile = true;
    m.cksum ^= 0x10;
    say_raw(buf, pe_encode(&m, buf));
    expect_closed(IB_DROP(CKSUM));
    ih_row("2.4/cksum");
}

static void rows_ends(void **state)
{
    struct pe_msg good = ih_immediate(10, 0), m = good;

    hostile();
    m.src ^= 8;
    ih_say(fl, &m);
    expect_closed(IB_DROP(NID));
    ih_row("2.4/srcnid");
    hostile();
    m = good;
    m.dst ^= 8;
    ih_say(fl, &m);
    expect_closed(IB_DROP(NID));
    ih_row("2.4/dstnid");
    hostile();
    m = good;
    m.src_stamp++;
    ih_say(fl, &m);
    expect_closed(IB_DROP(STAMP));
    ih_row("2.4/srcstamp");
    hostile();
    m = good;
    m.dst_stamp++;
    ih_say(fl, &m);
    expect_closed(IB_DROP(STAMP));
    ih_row("2.4/dststamp");
    assert_int_equal(core.nreceived, 0);
}

/* The ledger reads little-endian only: it does not look at this connection. */
static void rows_flip(void **state)
{
    struct pe_msg m, ack;

    fl->hostile = true;
    peer.big = true;
    m = ih_immediate(100, 0);
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 1);
    ih_expect_pattern(ih_last()->data, 100);
    m = ih_put_req(BIG, 0x1122334455667788, 0);
    ih_say(fl, &m);
    ack = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(ack.cookie, 0x1122334455667788);
    m = ih_completion(PE_PUT_DONE, ack.dst_cookie, -5);
    ih_say(fl, &m);
    assert_int_equal(ih_last()->result.health, LNET_HEALTH_REMOTE_ERROR);
    expect_up();
    ih_row("2.4/flip");
}

/* ---- §5.1 ---- */

static void rows_what_is_sent(void **state)
{
    struct ih_msg *m;
    struct pe_msg out;

    m = ih_send(ih_msg(0, PEER, LNET_MSG_ACK, 0, -1, 1));
    out = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(out.nob, 120);
    assert_int_equal(out.lnet.type, PE_LNET_ACK);
    ih_expect_ok(m);
    ih_row("5.1/ack");
    m = ih_send(ih_msg(0, PEER, LNET_MSG_GET, 272, -1, 1));
    out = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(out.nob, 120);
    assert_int_equal(out.lnet.type, PE_LNET_GET);
    ih_expect_ok(m);
    m = ih_msg(0, PEER, LNET_MSG_GET, 1 << 20, -1, 1);
    m->msg.rx_ni = ih_ni(0); /* forwarded: it came in somewhere */
    m->msg.rx_peer = m->msg.tx_peer;
    m->msg.hdr.src_nid = nid_from_u64(pe_nid("10.9.9.9"));
    ih_send(m);
    out = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(out.lnet.type, PE_LNET_GET);
    ih_expect_ok(m);
    ih_row("5.1/get");
    m = ih_send(ih_msg(0, PEER, LNET_MSG_PUT, 3976, FAKE_LOCAL, 1));
    out = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(out.nob, 4096);
    ih_expect_pattern(out.payload, 3976);
    ih_expect_ok(m);
    m = ih_send(ih_msg(0, PEER, LNET_MSG_REPLY, 40, FAKE_LOCAL, 1));
    out = ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(out.nob, 160);
    assert_int_equal(out.lnet.type, PE_LNET_REPLY);
    ih_expect_pattern(out.payload, 40);
    ih_expect_ok(m);
    ih_row("5.1/small");
    m = ih_send(ih_msg(0, PEER, LNET_MSG_REPLY, 3977, FAKE_LOCAL, 1));
    out = ih_take(fl, PE_PUT_REQ);
    assert_int_equal(out.nob, 128);
    assert_int_equal(out.lnet.type, PE_LNET_REPLY);
    assert_int_equal(out.lnet.len, 3977);
    assert_int_equal(m->done, 0);
    out = ih_completion(PE_PUT_NAK, out.cookie, 0);
    ih_say(fl, &out);
    ih_expect_ok(m);
    ih_row("5.1/large");
}

static void rows_get_large(void **state)
{
    struct ih_msg *m = ih_msg(0, PEER, LNET_MSG_GET, 3977, -1, 1);

    ih_send(m);
    assert_int_equal(ih_take(fl, PE_IMMEDIATE).nob, 120);
    ih_expect_ok(m);
    ih_row("5.1/get-large");
}

static void rows_gather(void **state)
{
    struct ih_msg *m = ih_send(ih_msg(0, PEER, LNET_MSG_PUT, 3000, FAKE_LOCAL, 4));
    struct pe_msg out = ih_take(fl, PE_IMMEDIATE);

    ih_expect_pattern(out.payload, 3000);
    ih_expect_ok(m);
    assert_int_equal(ih_counters().copied_out, 0);
    fl->link->send_sges = 2;
    m = ih_send(ih_msg(0, PEER, LNET_MSG_PUT, 3000, FAKE_LOCAL, 4));
    out = ih_take(fl, PE_IMMEDIATE);
    ih_expect_pattern(out.payload, 3000);
    ih_expect_ok(m);
    assert_int_equal(ih_counters().copied_out, 3000);
    ih_row("5.1/pieces");
    fl->link->send_sges = 8;
    m = ih_send(ih_msg(0, PEER, LNET_MSG_PUT, 3976, -1, 2));
    out = ih_take(fl, PE_IMMEDIATE);
    ih_expect_pattern(out.payload, 3976);
    ih_expect_ok(m);
    assert_int_equal(ih_counters().copied_out, 6976);
    ih_row("5.1/copied");
}

/* More of these than there is memory to copy to. */
static void rows_gather_many(void **state)
{
    struct ih_msg *m[40];
    unsigned done = 0;

    fl->hold_sends = true;
    for (unsigned i = 0; i < 40; i++) {
        m[i] = ih_msg(0, PEER, LNET_MSG_PUT, 3000, -1, 2);
        ih_send(m[i]);
    }
    while (done < 40) {
        struct pe_msg out, noop = ih_base(PE_NOOP, 1);

        if (!fake_next(fl, &out)) {
            assert_true(fake_complete(fl, 1) > 0);
            fake_settle();
            continue;
        }
        ih_expect_pattern(out.payload, 3000);
        ih_say(fl, &noop);
        done++;
    }
    fl->hold_sends = false;
    fake_settle();
    for (unsigned i = 0; i < 40; i++)
        ih_expect_ok(m[i]);
}

/* ---- §5.2 ---- */

static void rows_immediate(void **state)
{
    struct pe_msg m = ih_immediate(3976, 0);

    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 1);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    assert_true(nid_same(&ih_last()->from, &ih_peer(0, PEER)->nid));
    assert_int_equal(ih_last()->hdr.payload_len, 3976);
    ih_expect_pattern(ih_last()->data, 3976);
    assert_int_equal(ih_counters().copied_in, 3976);
    core.parse = IH_PIECES;
    ih_say(fl, &m);
    ih_expect_pattern(ih_last()->data, 3976);
    m = ih_immediate(0, 0);
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 3);
    ih_row("5.2/immediate");
    core.parse = IH_TRUNCATE;
    core.truncate = 100;
    m = ih_immediate(1000, 0);
    ih_say(fl, &m);
    ih_expect_pattern(ih_last()->data, 100);
    assert_int_equal(ih_counters().copied_in, 2 * 3976 + 100);
    ih_row("5.2/cut");
    core.parse = IH_DISCARD;
    ih_say(fl, &m);
    assert_int_equal(core.nreceived, 5);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.2/unwanted");
    core.parse = IH_RECEIVE;
    m.lnet.len = 1001;
    fl->hostile = true;
    ih_say(fl, &m);
    expect_up();
    assert_int_equal(core.drops[IB_DROP(PAYLOAD)], 1);
    assert_int_equal(core.open, 0);
    m.lnet.len = 1000;
    ih_say(fl, &m);
    ih_expect_pattern(ih_last()->data, 1000);
    assert_int_equal(fl->nrecvs, 18); /* all posted again */
    ih_row("5.2/incomplete");
}

static void rows_put_answers(void **state)
{
    struct pe_msg m = ih_put_req(BIG, 1, 0), out;

    core.parse = IH_DISCARD;
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_NAK);
    assert_int_equal(out.cookie, 1);
    assert_int_equal(out.status, 0);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.2/put-none");
    core.parse = IH_RECEIVE;
    m = ih_put_req(1, 2, 0);
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.frag[0].nob, 1);
    fake_write(fl, out.key, out.frag[0].addr, "x", 1);
    m = ih_completion(PE_PUT_DONE, out.dst_cookie, 1);
    ih_say(fl, &m);
    assert_int_equal(ih_last()->data[0], 'x');
    ih_row("5.2/put-small");
    core.parse = IH_TRUNCATE;
    core.truncate = 777;
    m = ih_put_req(BIG, 3, 0);
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.nfrags, 1);
    assert_int_equal(out.frag[0].nob, 777);
    ih_row("5.2/put-cut");
    core.parse = IH_PIECES;
    m = ih_put_req(BIG, 4, 0);
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.nfrags, 3);
    assert_int_equal(out.frag[0].nob + out.frag[1].nob + out.frag[2].nob, BIG);
    ih_row("5.2/put-pieces");
    core.parse = IH_HEAP;
    m = ih_put_req(BIG, 5, 0);
    ih_say(fl, &m);
    out = ih_take(fl, PE_PUT_NAK);
    assert_int_equal(out.cookie, 5);
    assert_int_equal(out.status, -12);
    assert_int_equal(ih_last()->result.reason, IB_DROP(NO_LANDING));
    assert_int_equal(ih_last()->result.health, LNET_HEALTH_LOCAL_ERROR);
    ih_row("5.2/put-unmapped");
    core.parse = IH_LOCAL;
    m = ih_put_req(BIG, 6, 0);
    ih_say(fl, &m);
    assert_int_equal(ih_take(fl, PE_PUT_NAK).status, -12);
    assert_int_equal(ih_last()->result.reason, IB_DROP(NO_LANDING));
    ih_row("5.2/put-local");
}

static void rows_refused(void **state)
{
    struct pe_msg m = ih_put_req(BIG, 1, 0);

    core.parse = IH_REFUSE;
    core.refusal = LNET_DROP_DEST_SAME_NET;
    ih_say(fl, &m);
    expect_closed(LNET_DROP_DEST_SAME_NET);
    assert_int_equal(core.nreceived, 0);
    ih_row("5.2/refused");
}

static void rows_lnet_header(void **state)
{
    static const struct {
        uint32_t type, len;
    } bad[] = {{PE_LNET_ACK, 1}, {PE_LNET_GET, 1}, {PE_LNET_PUT, (1 << 20) + 1}, {4, 0}, {99, 0}};

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct pe_msg m;

        hostile();
        m = ih_put_req(bad[i].len, 1, 0);
        m.lnet.type = bad[i].type;
        ih_say(fl, &m);
        assert_int_equal(fl->phase, FAKE_CLOSED);
        assert_int_equal(core.open + core.nreceived, 0);
    }
    ih_row("5.2/payload");
}

static void rows_later(void **state)
{
    struct pe_msg m = ih_put_req(BIG, 1, 0), out;
    struct ih_rx *first;

    core.parse = IH_LATER;
    ih_say(fl, &m);
    first = ih_waiting();
    assert_non_null(first);
    ir_advance(8 * IR_SEC);
    ih_nothing(fl);
    assert_int_equal(fl->nrecvs, 17);
    core.parse = IH_RECEIVE;
    for (unsigned i = 0; i < 3; i++) {
        m = ih_immediate(100, 0);
        ih_say(fl, &m);
    }
    assert_int_equal(core.nreceived, 3);
    ih_nothing(fl); /* three are owed, four would be told */
    ih_row("5.2/later-others");
    ih_recv(first, BIG);
    fake_settle();
    out = ih_take(fl, PE_PUT_ACK);
    assert_int_equal(out.credits, 3); /* not its own */
    assert_int_equal(fl->nrecvs, 18);
    m = ih_completion(PE_PUT_DONE, out.dst_cookie, BIG);
    ih_say(fl, &m);
    assert_int_equal(core.open, 0);
    ih_row("5.2/later");
}

/* The core looks at expired_us of what it is handed to tell what lies behind an expired wait. */
static void rows_later_expired(void **state)
{
    struct pe_msg m = ih_immediate(100, 0);
    struct lnet_rx *rx;

    core.parse = IH_LATER;
    ih_say(fl, &m);
    rx = ih_waiting()->rx;
    rx->expired_us = reactor_now_us();
    ih_recv(ih_waiting(), 0);
    fake_settle();
    assert_int_equal(core.open, 0);
    ih_say(fl, &m);
    assert_ptr_equal(ih_waiting()->rx, rx);
    assert_int_equal(rx->expired_us, 0);
    ih_recv(ih_waiting(), 100);
    fake_settle();
    expect_up();
    ih_row("5.2/later-expired");
}

static void rows_later_closed(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct pe_msg m;
        struct ih_rx *put, *small;

        if (i > 0)
            fl = ih_called();
        core.no_cancel = i > 0;
        core.parse = IH_LATER;
        m = ih_put_req(BIG, 1, 0);
        ih_say(fl, &m);
        put = ih_waiting();
        m = ih_immediate(100, 0);
        ih_say(fl, &m);
        small = ih_waiting();
        assert_ptr_not_equal(put, small);
        fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
        fake_settle();
        if (i == 0) {
            assert_int_equal(core.open, 0); /* taken back */
            assert_int_equal(fl->phase, FAKE_CLOSED);
            continue;
        }
        assert_int_equal(core.open, 2);
        assert_int_equal(fl->shuts, 0); /* what the core has lies in its area */
        ih_recv(put, BIG);
        fake_settle();
        assert_int_equal(core.open, 1);
        assert_int_not_equal(put->result.reason, LNET_DROP_NONE);
        ih_recv(small, 100); /* that one is all there */
        fake_settle();
        assert_int_equal(core.open, 0);
        assert_int_equal(fl->phase, FAKE_CLOSED);
    }
    ih_row("5.2/later-closed");
}

/* ---- §5.5 ---- */

static struct pe_msg get_req(uint32_t sink, uint64_t cookie, unsigned frags)
{
    struct pe_msg m = ih_put_req(0, cookie, 0);
    uint64_t at = ADDR;

    m.type = PE_GET_REQ;
    m.lnet.type = PE_LNET_GET;
    memset(m.lnet.body, 0, sizeof(m.lnet.body));
    memcpy(m.lnet.body + 32, &sink, 4);
    m.key = KEY;
    m.nfrags = frags;
    for (unsigned i = 0; i < frags; i++) {
        uint32_t nob = i + 1 < frags ? sink / frags : sink - sink / frags * (frags - 1);

        m.frag[i] = (struct pe_frag){at, nob};
        at += nob;
    }
    return m;
}

static void rows_get(void **state)
{
    struct pe_msg m = get_req(BIG, 1, 1), out;
    struct reactor *before;

    core.get_len = BIG;
    fl->hold_sends = true;
    ih_say(fl, &m);
    assert_true(ih_last()->rdma_get);
    before = ir_at(reactor_at(ir_env(), 0)); /* PEER's home */
    assert_int_equal(lnd_verbs_ops.recv_abandon(ih_last()->rx, true), LNET_ABANDON_NOT);
    ir_restore(before);
    ir_advance(1000);
    out = ih_take(fl, PE_GET_DONE);
    assert_int_equal(out.cookie, 1);
    assert_int_equal(out.status, BIG);
    ih_expect_pattern(theirs, BIG);
    assert_int_equal(core.open, 1); /* the device reads it */
    fl->hold_sends = false;
    fake_settle();
    assert_int_equal(core.open, 0);
    assert_int_equal(ih_last()->result.reason, LNET_DROP_NONE);
    ih_row("5.5/matched");
    memset(theirs, 0, BIG);
    m = get_req(BIG, 2, 257);
    ih_say(fl, &m);
    out = ih_take(fl, PE_GET_DONE);
    assert_int_equal(out.status, BIG);
    ih_expect_pattern(theirs, BIG);
    memset(theirs, 0, BIG);
    m = get_req(BIG, 2, 3);
    core.get_heap = true;
    ih_say(fl, &m);
    ih_take(fl, PE_GET_DONE);
    ih_expect_pattern(theirs, BIG);
    core.get_heap = false;
    ih_row("5.5/fragments");
    core.get_len = 0;
    m = get_req(BIG, 3, 1);
    ih_say(fl, &m);
    out = ih_take(fl, PE_GET_DONE);
    assert_int_equal(out.status, 0);
    ih_row("5.5/zero");
    core.get_drop = LNET_DROP_GET_NO_MATCH;
    m = get_req(BIG, 4, 1);
    ih_say(fl, &m);
    out = ih_take(fl, PE_GET_DONE);
    assert_int_equal(out.status, -61);
    ih_row("5.5/unmatched");
    core.get_drop = LNET_DROP_NONE;
    core.get_len = 1001;
    m = get_req(1000, 5, 1);
    ih_say(fl, &m);
    out = ih_take(fl, PE_GET_DONE);
    assert_true(out.status < 0);
    assert_int_equal(core.open, 0);
    ih_row("5.5/too-long");
    expect_up();
}

static void rows_get_foreign(void **state)
{
    struct pe_msg m = get_req(BIG, 1, 1);

    core.parse = IH_REFUSE;
    core.refusal = LNET_DROP_RDMA_GET_NOT_LOCAL;
    m.lnet.dest = pe_nid("10.7.7.7") + (7ull << 32);
    ih_say(fl, &m);
    expect_closed(LNET_DROP_RDMA_GET_NOT_LOCAL);
    ih_row("5.5/foreign");
}

static void rows_get_lost(void **state)
{
    struct pe_msg m = get_req(BIG, 1, 1);

    core.get_len = BIG;
    fl->hold_sends = true;
    fl->hold_flush = true;
    ih_say(fl, &m);
    fake_break(fl);
    fake_tell(fl, RDMA_EV_DISCONNECTED, -110, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.open, 1);
    fake_flush(fl, UINT32_MAX);
    fake_settle();
    assert_int_equal(core.open, 0);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    ih_row("5.5/lost");
    fl = ih_called();
    fl->hostile = true;
    m = ih_completion(PE_GET_DONE, 1, 0);
    ih_say(fl, &m);
    expect_closed(IB_DROP(ANSWER));
    ih_row("5.5/get-done");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_bytes),       T(rows_trailing),     T(rows_checksum),      T(rows_ends),
        T(rows_flip),        T(rows_what_is_sent), T(rows_get_large),     T(rows_gather),
        T(rows_gather_many), T(rows_immediate),    T(rows_put_answers),   T(rows_refused),
        T(rows_lnet_header), T(rows_later),        T(rows_later_closed),  T(rows_get),
        T(rows_get_foreign), T(rows_get_lost),     T(rows_later_expired),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
