/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the o2iblnd driver says when it calls, and what it makes of a CONNACK: rows of
 * docs/protocol/o2iblnd.md §1.1, §1.3, §1.6, §1.8 and §1.11 beside those of test_ib_dial.c.
 */
#include "test/unit/ib_harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct ih_row table[] = {
    {"1.1/to", "the address of the NID, service 987, a privileged port if wanted"},
    {"1.3/connreq", "CONNREQ as specified; receives posted before"},
    {"1.6/lowered", "CONNACK lowers depth and fragments: taken, receives stay"},
    {"1.8/iwarp", "iWARP says -ECONNREFUSED: the words count all the same"},
    {"1.8/short", "fewer than 7 bytes of words: as any other"},
    {"1.8/big", "a reject of the other byte order"},
    {"1.8/stale-round", "after our restart: STALE, then in"},
    {"1.11/established", "ESTABLISHED, active: CONNACK good, up"},
    {"1.11/ack-unpack", "CONNACK that cannot be unpacked"},
    {"1.11/ack-type", "CONNACK of another type"},
    {"1.11/ack-version", "CONNACK of another version"},
    {"1.11/ack-depth", "CONNACK with a deeper queue than asked for"},
    {"1.11/ack-frags", "CONNACK with more fragments than asked for"},
    {"1.11/ack-size", "CONNACK with longer messages"},
    {"1.11/ack-dst", "CONNACK for another NID"},
    {"1.11/ack-stamp", "CONNACK for another life of ours"},
    {"1.11/down", "DISCONNECTED: closed without error, peer not marked down"},
};

static struct fake_link *calling(void)
{
    struct fake_link *fl = fake_newest();

    assert_non_null(fl);
    assert_true(fl->active);
    assert_int_equal(fl->phase, FAKE_CONNECTING);
    return fl;
}

static struct pe_msg connreq_of(const struct fake_link *fl)
{
    struct pe_msg m;

    assert_true(pe_decode(fl->priv, fl->priv_len, &m));
    assert_int_equal(m.type, PE_CONNREQ);
    return m;
}

/* Something to call for. */
static struct ih_msg *want(void)
{
    return ih_send(ih_msg(0, peer.address, LNET_MSG_PUT, 10, FAKE_LOCAL, 1));
}

static void reject(uint8_t why, uint64_t stamp, uint16_t depth, uint16_t frags)
{
    ih_reject(calling(), why, stamp, depth, frags);
}

static void none_calling(void)
{
    assert_int_equal(fake.nlive, 0);
}

/* ---- §1.3 ---- */

static void rows_connreq(void **state)
{
    struct ih_msg *m = want();
    struct fake_link *fl = calling();
    struct pe_msg req = connreq_of(fl);
    char address[64];

    assert_string_equal(inet_ntop(AF_INET, &fl->to.sin_addr, address, sizeof(address)), PEER);
    assert_int_equal(ntohs(fl->to.sin_port), 987);
    assert_true(fl->dial.privileged);
    assert_int_equal(fl->dial.tos, -1);
    ih_row("1.1/to");
    assert_int_equal(fl->priv_len, 56);
    assert_int_equal(req.version, 0x12);
    assert_int_equal(req.credits, 0);
    assert_int_equal(req.nob, 56);
    assert_int_equal(req.src, pe_nid(OWN));
    assert_int_not_equal(req.src_stamp, 0);
    assert_int_equal(req.dst, pe_nid(PEER));
    assert_int_equal(req.dst_stamp, 0); /* not known */
    assert_int_equal(req.depth, 8);
    assert_int_equal(req.frags, 257);
    assert_int_equal(req.size, 4096);
    assert_int_equal(fl->nrecvs, 18);
    assert_int_equal(fl->retry, 5);
    assert_int_equal(fl->rnr_retry, 6);
    ih_row("1.3/connreq");
    assert_int_equal(m->done, 0);
    ih_answer();
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(m);
    assert_int_equal(core.ups, 1);
    ih_row("1.11/established");
}

static void rows_lowered(void **state)
{
    struct fake_link *fl;
    struct ih_msg *m;

    want();
    fl = calling();
    peer.depth = 5;
    peer.frags = 16;
    ih_answer();
    ih_take(fl, PE_IMMEDIATE);
    assert_int_equal(fl->phase, FAKE_UP);
    for (unsigned i = 0; i < 5; i++)
        m = want();
    assert_int_equal(m->done, 0); /* one too many for a depth of 5 */
    assert_int_equal(fl->sends, 5);
    assert_true(fl->nrecvs >= 12);
    {
        struct pe_msg noop = ih_base(PE_NOOP, 5);

        ih_say(fl, &noop);
    }
    ih_expect_ok(m);
    ih_row("1.6/lowered");
}

/* ---- §1.8 ---- */

static void rows_words(void **state)
{
    struct pe_reject r = {.why = 7, .stamp = STAMP, .depth = 6, .frags = 257};
    struct ih_msg *m = want();
    uint8_t buf[24];

    pe_reject_encode(&r, buf);
    fake_tell(calling(), RDMA_EV_REJECTED, 0, -ECONNREFUSED, buf, 24);
    fake_settle();
    assert_int_equal(connreq_of(calling()).depth, 6);
    ih_row("1.8/iwarp");
    {
        static const uint8_t big[] = {0x0b, 0xe9, 0x1b, 0x91, 0, 0x12, 6, 0,  1, 2, 3,    4,
                                      5,    6,    7,    8,    0, 8,    0, 99, 0, 0, 0x10, 0};

        fake_tell(calling(), RDMA_EV_REJECTED, 0, 28, big, 24);
        fake_settle();
        assert_int_equal(connreq_of(calling()).frags, 99);
        ih_row("1.8/big");
    }
    fake_tell(calling(), RDMA_EV_REJECTED, 0, 28, buf, 6);
    fake_settle();
    none_calling();
    assert_int_equal(m->done, 1);
    ih_row("1.8/short");
}

static void rows_stale_round(void **state)
{
    struct ih_msg *m = want();

    /* The CM's own, the driver's, then in: as recorded after a reboot. */
    fake_tell(calling(), RDMA_EV_REJECTED, 0, 10, NULL, 0);
    fake_settle();
    reject(5, STAMP, 8, 257);
    assert_int_equal(connreq_of(calling()).dst_stamp, STAMP);
    ih_answer();
    ih_expect_ok(m);
    assert_int_equal(fake.dials, 3);
    ih_row("1.8/stale-round");
}

/* ---- §1.11 ---- */

static void bad_ack(struct pe_msg *m, size_t len, const char *row)
{
    struct fake_link *fl = calling();
    uint8_t buf[PE_MSG] = {0};
    struct ih_msg *last = core.msgs;

    pe_encode(m, buf);
    fl->hostile = true;
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, buf, len);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(fl->sends, 0);
    assert_int_equal(last->done, 1);
    assert_int_not_equal(last->result.reason, LNET_DROP_NONE);
    assert_int_equal(core.ups, 0);
    ih_row(row);
    ir_advance(61 * IR_SEC);
    want();
}

static void rows_connack(void **state)
{
    struct pe_msg m;

    want();
    ih_connack(&m);
    bad_ack(&m, 55, "1.11/ack-unpack");
    ih_connack(&m);
    m.type = PE_CONNREQ;
    bad_ack(&m, 196, "1.11/ack-type");
    ih_connack(&m);
    m.version = 0x11;
    bad_ack(&m, 196, "1.11/ack-version");
    ih_connack(&m);
    m.depth = 9;
    bad_ack(&m, 196, "1.11/ack-depth");
    ih_connack(&m);
    m.frags = 258;
    bad_ack(&m, 196, "1.11/ack-frags");
    ih_connack(&m);
    m.size = 8192;
    bad_ack(&m, 196, "1.11/ack-size");
    ih_connack(&m);
    m.dst++;
    bad_ack(&m, 196, "1.11/ack-dst");
    ih_connack(&m);
    m.dst_stamp++;
    bad_ack(&m, 196, "1.11/ack-stamp");
    ih_answer();
    assert_int_equal(core.ups, 1);
}

static void rows_down(void **state)
{
    struct fake_link *fl = ih_dialled();

    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(core.downs, 0);
    assert_int_equal(core.drops[IB_DROP(LOST)], 0);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_DOWN], 1);
    want();
    assert_int_equal(connreq_of(calling()).dst_stamp, STAMP); /* its life is still known */
    ih_row("1.11/down");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_connreq),     T(rows_lowered), T(rows_words),
        T(rows_stale_round), T(rows_connack), T(rows_down),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
