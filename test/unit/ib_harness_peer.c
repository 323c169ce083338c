/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The peer of the tests, and the table of rows.
 */
#include "test/unit/ib_harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct ih_persona peer;

void ih_persona_is(const char *address)
{
    peer = (struct ih_persona){
        .address = address,
        .nid = pe_nid(address),
        .stamp = STAMP,
        .my_nid = pe_nid(OWN),
        .depth = 8,
        .frags = 257,
    };
}

/* ---- messages ---- */

struct pe_msg ih_base(uint8_t type, uint8_t credits)
{
    return (struct pe_msg){
        .type = type,
        .big = peer.big,
        .credits = credits,
        .src = peer.nid,
        .src_stamp = peer.stamp,
        .dst = peer.my_nid,
        .dst_stamp = peer.my_stamp,
    };
}

void ih_tell(struct fake_link *fl, const struct pe_msg *m)
{
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(m, buf);

    fake_deliver(fl, buf, len);
}

void ih_say(struct fake_link *fl, const struct pe_msg *m)
{
    ih_tell(fl, m);
    fake_settle();
}

static struct pe_lnet put_hdr(uint32_t len)
{
    struct pe_lnet h = {
        .dest = peer.my_nid,
        .src = peer.nid,
        .dest_pid = 12345,
        .src_pid = 12345,
        .type = PE_LNET_PUT,
        .len = len,
    };

    memset(h.body, 0xff, 16); /* no ACK wanted */
    h.body[32] = 8;           /* portal */
    return h;
}

struct pe_msg ih_immediate(uint32_t len, uint8_t credits)
{
    static uint8_t payload[PE_SMALL + 1];
    struct pe_msg m = ih_base(PE_IMMEDIATE, credits);

    assert_true(len <= sizeof(payload));
    ih_fill(payload, len);
    m.lnet = put_hdr(len);
    m.payload = payload;
    m.carried = len;
    return m;
}

struct pe_msg ih_put_req(uint32_t len, uint64_t cookie, uint8_t credits)
{
    struct pe_msg m = ih_base(PE_PUT_REQ, credits);

    m.lnet = put_hdr(len);
    m.cookie = cookie;
    return m;
}

struct pe_msg ih_put_ack(uint64_t cookie, uint64_t dst_cookie, uint32_t key, uint64_t addr,
                         uint32_t len)
{
    struct pe_msg m = ih_base(PE_PUT_ACK, 0);

    m.cookie = cookie;
    m.dst_cookie = dst_cookie;
    m.key = key;
    m.nfrags = 1;
    m.frag[0] = (struct pe_frag){addr, len};
    return m;
}

struct pe_msg ih_completion(uint8_t type, uint64_t cookie, int status)
{
    struct pe_msg m = ih_base(type, 0);

    m.cookie = cookie;
    m.status = status;
    return m;
}

/* ---- connections ---- */

size_t ih_connreq(uint8_t buf[PE_MSG])
{
    struct pe_msg m = ih_base(PE_CONNREQ, 0);

    m.depth = peer.depth;
    m.frags = peer.frags;
    m.size = PE_MSG;
    return pe_encode(&m, buf);
}

struct fake_call *ih_call(void)
{
    uint8_t buf[PE_MSG];
    size_t len = ih_connreq(buf);
    struct fake_call *call = fake_call(0, peer.address, 1023, buf, len);

    fake_settle();
    assert_true(call->asked);
    return call;
}

struct fake_link *ih_called(void)
{
    struct fake_call *call = ih_call();
    struct pe_msg ack;

    assert_false(call->rejected);
    assert_non_null(call->link);
    assert_int_equal(call->link->phase, FAKE_ACCEPTING);
    assert_true(pe_decode(call->link->priv, call->link->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_UP);
    return call->link;
}

void ih_connack(struct pe_msg *m)
{
    struct fake_link *fl = fake_newest();
    struct pe_msg req;

    assert_non_null(fl);
    assert_int_equal(fl->phase, FAKE_CONNECTING);
    assert_true(pe_decode(fl->priv, fl->priv_len, &req));
    assert_int_equal(req.type, PE_CONNREQ);
    peer.my_stamp = req.src_stamp;
    *m = ih_base(PE_CONNACK, 0);
    m->depth = req.depth < peer.depth ? req.depth : peer.depth;
    m->frags = req.frags < peer.frags ? req.frags : peer.frags;
    m->size = PE_MSG;
}

struct fake_link *ih_answer(void)
{
    struct fake_link *fl = fake_newest();
    uint8_t buf[196] = {0}, msg[PE_MSG];
    struct pe_msg m;

    ih_connack(&m);
    memcpy(buf, msg, pe_encode(&m, msg));
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, buf, sizeof(buf)); /* padded, §1.2 */
    fake_settle();
    return fl;
}

struct fake_link *ih_dialled(void)
{
    struct ih_msg *m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    struct fake_link *fl = ih_answer();
    struct pe_msg noop = ih_base(PE_NOOP, 1);

    assert_int_equal(fl->phase, FAKE_UP);
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(m);
    ih_say(fl, &noop);
    return fl;
}

void ih_reject(struct fake_link *fl, uint8_t why, uint64_t stamp, uint16_t depth, uint16_t frags)
{
    struct pe_reject r = {.why = why, .stamp = stamp, .depth = depth, .frags = frags};
    uint8_t buf[148] = {0}, msg[24];

    memcpy(buf, msg, pe_reject_encode(&r, msg));
    fake_tell(fl, RDMA_EV_REJECTED, 0, 28, buf, sizeof(buf));
    fake_settle();
}

struct pe_msg ih_take(struct fake_link *fl, uint8_t type)
{
    struct pe_msg m;

    if (!fake_next(fl, &m))
        fail_msg("nothing was sent, type 0x%x was expected", type);
    if (m.type != type)
        fail_msg("type 0x%x was sent, 0x%x was expected", m.type, type);
    assert_int_equal(m.dst, peer.nid);
    assert_int_equal(m.dst_stamp, peer.stamp);
    assert_int_equal(m.src_stamp, peer.my_stamp);
    return m;
}

void ih_nothing(struct fake_link *fl)
{
    struct pe_msg m;

    if (fake_next(fl, &m))
        fail_msg("type 0x%x was sent, nothing was expected", m.type);
}

/* ---- rows ---- */

static struct ih_row *rows;
static unsigned nrows;

void ih_rows(struct ih_row *table, unsigned n)
{
    rows = table;
    nrows = n;
}

void ih_row(const char *id)
{
    for (unsigned i = 0; i < nrows; i++) {
        if (strcmp(rows[i].id, id) == 0) {
            rows[i].runs++;
            return;
        }
    }
    fail_msg("no row %s", id);
}

int ih_rows_report(int failed)
{
    unsigned covered = 0;

    for (unsigned i = 0; i < nrows; i++) {
        covered += rows[i].runs > 0;
        if (rows[i].runs == 0)
            printf("row not run: %s %s\n", rows[i].id, rows[i].text);
    }
    printf("rows covered %u of %u\n", covered, nrows);
    return failed != 0 || covered < nrows;
}
