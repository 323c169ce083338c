/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The o2iblnd driver is called: the checks of docs/protocol/o2iblnd.md §1.7 in their order, races
 * (§1.9), several connections (§1.10), and what the connection manager says of the passive side
 * (§1.11).
 */
#include "lib/base/err.h"
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define FATAL 3

static struct ih_row table[] = {
    {"1.7/1", "source port not privileged where that is required: FATAL"},
    {"1.7/2", "less than 6 bytes: FATAL"},
    {"1.7/3", "LNet's magic, an unknown version, version 1: FATAL with version 0x12"},
    {"1.7/4", "not unpacked: FATAL"},
    {"1.7/5", "no NI with that NID while NIs are coming up: EARLY"},
    {"1.7/6", "no NI with that NID: FATAL"},
    {"1.7/7", "dststamp is of another life of ours: STALE"},
    {"1.7/8", "not a CONNREQ: FATAL"},
    {"1.7/9", "deeper queue than ours: MSG_QUEUE_SIZE with ours"},
    {"1.7/10", "more than 257 fragments: RDMA_FRAGS with 257"},
    {"1.7/11", "longer messages: FATAL"},
    {"1.7/12", "no memory: NO_RESOURCES"},
    {"1.7/13", "the peer has a new incarnation: let in, and then its old connections are closed"},
    {"1.7/14", "a race that the requester loses: CONN_RACE"},
    {"1.7/15", "no queue pair: NO_RESOURCES"},
    {"1.7/16", "accepting fails: nothing is left"},
    {"1.7/order", "the first check that fails decides"},
    {"1.6/depth", "what is asked for, if less than ours, is taken"},
    {"1.6/frags", "fewer fragments are taken"},
    {"1.3/connack", "CONNACK as specified; receives posted before"},
    {"1.4/reject", "a reject as specified"},
    {"1.2/padded", "the length is what the message says, not the CM"},
    {"1.2/flip", "a request of the other byte order"},
    {"1.9/lower-both", "lower under both orders: CONN_RACE while we are calling"},
    {"1.9/lower-one", "lower under one order only: let in"},
    {"1.9/higher", "higher: let in, and both connections live"},
    {"1.9/twenty", "after 20 races the lower one is let in"},
    {"1.10/passive", "any number of connections of one peer"},
    {"1.10/turns", "messages take turns"},
    {"1.11/established", "ESTABLISHED, passive: up"},
    {"1.11/early", "what comes before it is kept, and nothing is sent before"},
    {"1.11/taken-back", "REJECTED, passive"},
    {"1.11/before", "DISCONNECTED before it is established"},
    {"1.11/failed", "CONNECT_ERROR, passive"},
    {"1.11/silent", "never established: given up in bounded time"},
    {"2.6/source", "a NID that is not the caller's address is refused"},
};

static struct fake_call *call_with(struct pe_msg *m, uint16_t port)
{
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(m, buf);
    struct fake_call *call = fake_call(0, peer.address, port, buf, len);

    fake_settle();
    return call;
}

static struct pe_msg request(void)
{
    struct pe_msg m = ih_base(PE_CONNREQ, 0);

    m.depth = peer.depth;
    m.frags = peer.frags;
    m.size = PE_MSG;
    return m;
}

static struct pe_reject expect_reject(const struct fake_call *call, uint8_t why)
{
    struct pe_reject r;

    assert_true(call->rejected);
    assert_int_equal(call->priv_len, 24);
    assert_true(pe_reject_decode(call->priv, call->priv_len, &r));
    assert_int_equal(r.version, 0x12);
    assert_int_equal(r.why, why);
    assert_int_equal(r.size, 4096);
    return r;
}

static void expect_drop(enum lnet_drop why)
{
    if (core.drops[why] != 1)
        fail_msg("%s was counted %u times", lnet_drop_info(why)->name, core.drops[why]);
    core.drops[why] = 0;
}

static struct pe_msg connack_of(const struct fake_link *fl)
{
    struct pe_msg m;

    assert_true(pe_decode(fl->priv, fl->priv_len, &m));
    assert_int_equal(m.type, PE_CONNACK);
    return m;
}

/* ---- §1.7 ---- */

static void rows_port(void **state)
{
    struct pe_msg m = request();

    expect_reject(call_with(&m, 1024), FATAL);
    expect_drop(IB_DROP(CONN_PORT));
    assert_false(call_with(&m, 1023)->rejected);
    ih_row("1.7/1");
}

static int setup_port(void **state)
{
    ih_defaults();
    ih_opts.verbs.require_privileged_port = true;
    return ih_setup(state);
}

/* The call is judged after it was made. */
static struct fake_call *raw(const uint8_t *buf, size_t len)
{
    struct fake_call *call = fake_call(0, PEER, 1023, buf, len);

    fake_settle();
    return call;
}

static void rows_unpack(void **state)
{
    struct pe_msg good = request(), m = good;
    uint8_t buf[PE_MSG];
    struct pe_reject r;

    pe_encode(&m, buf);
    fake.exact_priv = true;
    expect_reject(raw(buf, 5), FATAL);
    expect_reject(raw(buf, 0), FATAL);
    ih_row("1.7/2");
    expect_reject(raw(buf, 47), FATAL);
    expect_reject(raw(buf, 55), FATAL);
    fake.exact_priv = false;
    m.nob = 57; /* more than came */
    expect_reject(call_with(&m, 1023), FATAL);
    m = good;
    m.src = UINT64_MAX;
    expect_reject(call_with(&m, 1023), FATAL);
    m = good;
    m.cksum = 1;
    expect_reject(call_with(&m, 1023), FATAL);
    ih_row("1.7/4");
    m = good;
    m.magic = 0x45726963;
    r = expect_reject(call_with(&m, 1023), FATAL);
    assert_int_equal(r.magic, 0x0be91b91);
    m = good;
    m.version = 0x13;
    expect_reject(call_with(&m, 1023), FATAL);
    m.version = 0x11;
    expect_reject(call_with(&m, 1023), FATAL);
    ih_row("1.7/3");
    assert_int_equal(fake.nlive, 0);
}

static void rows_values(void **state)
{
    struct pe_msg good = request(), m = good;
    struct pe_reject r;

    m.dst = pe_nid("10.0.0.77");
    r = expect_reject(call_with(&m, 1023), FATAL);
    assert_int_equal(r.stamp, 0);
    assert_int_equal(r.depth, 0);
    expect_drop(IB_DROP(CONN_DEST));
    ih_row("1.7/6");
    m = good;
    m.dst_stamp = 12345;
    r = expect_reject(call_with(&m, 1023), 5);
    assert_int_not_equal(r.stamp, 0);
    assert_int_not_equal(r.stamp, 12345);
    assert_int_equal(r.depth, 8);
    assert_int_equal(r.frags, 257);
    expect_drop(IB_DROP(CONN_STALE));
    ih_row("1.7/7");
    ih_row("1.4/reject");
    m.dst_stamp = r.stamp;
    assert_false(call_with(&m, 1023)->rejected);
    m = good;
    m.type = PE_CONNACK;
    expect_reject(call_with(&m, 1023), FATAL);
    expect_drop(IB_DROP(CONN_TYPE));
    ih_row("1.7/8");
    m = good;
    m.depth = 9;
    r = expect_reject(call_with(&m, 1023), 7);
    assert_int_equal(r.depth, 8);
    expect_drop(IB_DROP(CONN_DEPTH));
    m.depth = 0;
    expect_reject(call_with(&m, 1023), 7);
    ih_row("1.7/9");
    m = good;
    m.frags = 258;
    r = expect_reject(call_with(&m, 1023), 6);
    assert_int_equal(r.frags, 257);
    expect_drop(IB_DROP(CONN_FRAGS));
    ih_row("1.7/10");
    m = good;
    m.size = 4097;
    expect_reject(call_with(&m, 1023), FATAL);
    expect_drop(IB_DROP(CONN_SIZE));
    ih_row("1.7/11");
    /* All of it is wrong: by rows 7, 9, 10, 11 in turn. */
    m = good;
    m.dst_stamp = 12345;
    m.depth = 9;
    m.frags = 258;
    m.size = 4097;
    expect_reject(call_with(&m, 1023), 5);
    m.dst_stamp = 0;
    expect_reject(call_with(&m, 1023), 7);
    m.depth = 8;
    expect_reject(call_with(&m, 1023), 6);
    m.frags = 257;
    expect_reject(call_with(&m, 1023), FATAL);
    ih_row("1.7/order");
}

static void rows_early(void **state)
{
    struct pe_msg m = request();
    struct lnet_ni second = *ih_ni(0);
    struct reactor *before = ir_at(reactor_control(ir_env()));
    struct fake_call *call;
    struct err err = {0};

    second.lnd_ni = NULL;
    second.net = LNET_NET(LNET_LND_O2IB, 1);
    second.nid = nid_from_u64(pe_nid(OWN) + (1ull << 32));
    second.index = 1;
    assert_int_equal(lnd_verbs_ops.ni_init(&second, &err), 0);
    ir_restore(before);
    m.dst = pe_nid(OWN) + (1ull << 32);
    m.src = pe_nid(PEER) + (1ull << 32);
    call = call_with(&m, 1023);
    ir_advance(IR_SEC); /* meanwhile it could be started */
    expect_reject(call, 9);
    expect_drop(IB_DROP(CONN_EARLY));
    ih_row("1.7/5");
    before = ir_at(reactor_control(ir_env()));
    lnd_verbs_ops.ni_fini(&second);
    ir_restore(before);
}

static void rows_no_memory(void **state)
{
    struct pe_msg m = request();

    core.no_peers = true;
    expect_reject(call_with(&m, 1023), 2);
    expect_drop(IB_DROP(CONN_NO_MEMORY));
    core.no_peers = false;
    for (unsigned i = 0; i < 2; i++)
        ih_called();
    expect_reject(call_with(&m, 1023), 2);
    ih_row("1.7/12");
}

static int setup_two_conns(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 2;
    return ih_setup(state);
}

/* Only the connection that is up shows who calls. */
static void rows_restarted(void **state)
{
    struct fake_link *old = ih_called(), *fl;
    struct fake_call *call;
    struct ih_msg *m;

    fl = ih_called();
    old->hold_sends = fl->hold_sends = true;
    m = ih_put(100000);
    peer.stamp++;
    call = ih_call();
    assert_false(call->rejected);
    assert_int_equal(connack_of(call->link).dst_stamp, peer.stamp);
    assert_int_equal(old->phase, FAKE_UP);
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(m->done, 0);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 0);
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    expect_drop(IB_DROP(CONN_RESTARTED));
    assert_int_equal(old->phase, FAKE_CLOSED);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    ih_expect_health(m, LNET_HEALTH_REMOTE_DROPPED);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 1);
    assert_int_equal(call->link->phase, FAKE_UP);
    ih_row("1.7/13");
}

static void rows_queue_pair(void **state)
{
    struct pe_msg m = request();

    fake.open_errors = 100;
    fake.open_error = -ENOMEM;
    expect_reject(call_with(&m, 1023), 2);
    expect_drop(IB_DROP(CONN_NO_MEMORY));
    assert_int_equal(fake.nlive, 0);
    ih_row("1.7/15");
}

static void rows_accept_fails(void **state)
{
    struct fake_call *call = ih_call();

    fake_tell(call->link, RDMA_EV_FAILED, -ENOTCONN, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    expect_drop(IB_DROP(CONN_ACCEPT));
    ih_row("1.7/16");
    ih_row("1.11/failed");
    call = ih_call();
    fake_tell(call->link, RDMA_EV_REJECTED, 0, 28, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    ih_row("1.11/taken-back");
    call = ih_call();
    fake_tell(call->link, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    ih_row("1.11/before");
    call = ih_call();
    ir_advance(20 * IR_SEC);
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    expect_drop(IB_DROP(CONN_TIMEOUT));
    assert_int_equal(core.ups, 0);
    ih_row("1.11/silent");
}

/* ---- what is agreed ---- */

static void rows_connack(void **state)
{
    struct fake_call *call = ih_call();
    struct pe_msg m = connack_of(call->link);
    static const uint8_t zero[4];

    assert_int_equal(call->link->priv_len, 56);
    assert_int_equal(m.version, 0x12);
    assert_int_equal(m.credits, 0);
    assert_int_equal(m.src, pe_nid(OWN));
    assert_int_not_equal(m.src_stamp, 0);
    assert_int_equal(m.dst, peer.nid);
    assert_int_equal(m.dst_stamp, STAMP);
    assert_int_equal(m.depth, 8);
    assert_int_equal(m.frags, 257);
    assert_int_equal(m.size, 4096);
    assert_memory_equal(call->link->priv + 12, zero, 4); /* no checksum */
    assert_int_equal(call->link->nrecvs, 18);
    assert_int_equal(call->link->retry, 5);
    assert_int_equal(call->link->rnr_retry, 6);
    ih_row("1.3/connack");
    peer.depth = 5;
    peer.frags = 32;
    m = connack_of(ih_called());
    assert_int_equal(m.depth, 5);
    ih_row("1.6/depth");
    assert_int_equal(m.frags, 32);
    ih_row("1.6/frags");
}

static void rows_padding(void **state)
{
    struct pe_msg m = request();
    uint8_t buf[PE_MSG] = {0};

    pe_encode(&m, buf);
    assert_false(raw(buf, 196)->rejected);
    ih_row("1.2/padded");
    m.big = true;
    assert_false(call_with(&m, 1023)->rejected);
    ih_row("1.2/flip");
}

static void rows_source(void **state)
{
    struct pe_msg m = request();

    m.src = pe_nid("10.0.0.9");
    expect_reject(call_with(&m, 1023), FATAL);
    assert_int_equal(fake.nlive, 0);
    ih_row("2.6/source");
}

/* ---- §1.9 ---- */

/* We are calling it, it calls us. */
static struct fake_call *race(const char *address)
{
    struct fake_link *ours;

    ih_persona_is(address);
    ih_send(ih_msg(0, address, LNET_MSG_ACK, 0, -1, 1));
    ours = fake_newest();
    assert_non_null(ours);
    assert_int_equal(ours->phase, FAKE_CONNECTING);
    return ih_call();
}

static void rows_race(void **state)
{
    struct fake_call *call = race("9.0.0.1");
    struct fake_link *ours = fake_newest();

    expect_reject(call, 1);
    expect_drop(IB_DROP(CONN_RACE));
    assert_int_equal(ours->phase, FAKE_CONNECTING);
    ih_row("1.9/lower-both");
    ih_row("1.7/14");
    for (unsigned i = 1; i < 20; i++)
        expect_reject(ih_call(), 1);
    assert_false(ih_call()->rejected);
    ih_row("1.9/twenty");
}

static void rows_race_one(void **state)
{
    assert_false(race("9.0.0.2")->rejected);
    assert_false(race("10.0.1.0")->rejected);
    ih_row("1.9/lower-one");
}

static void rows_race_higher(void **state)
{
    struct fake_call *call = race(PEER);
    struct fake_link *ours = call->link->next;
    struct pe_msg ack = connack_of(call->link);
    struct ih_msg *m;

    assert_true(ours->active);
    peer.my_stamp = ack.src_stamp;
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.sent, 1); /* that comes first, so it takes what waited */
    {
        struct pe_msg reply = ih_base(PE_CONNACK, 0);
        uint8_t buf[PE_MSG] = {0};

        reply.depth = 8;
        reply.frags = 257;
        reply.size = PE_MSG;
        pe_encode(&reply, buf);
        if (ours->phase == FAKE_CONNECTING)
            fake_tell(ours, RDMA_EV_ESTABLISHED, 0, 0, buf, 196);
    }
    fake_settle();
    m = ih_put(10);
    ih_expect_ok(m);
    m = ih_put(10);
    ih_expect_ok(m);
    assert_int_equal(call->link->phase, FAKE_UP);
    ih_row("1.9/higher");
}

/* ---- §1.10 ---- */

static void rows_many(void **state)
{
    struct fake_link *fl[10];

    for (unsigned i = 0; i < 10; i++)
        fl[i] = ih_called();
    assert_int_equal(core.ups, 1);
    ih_row("1.10/passive");
    for (unsigned i = 0; i < 20; i++)
        ih_expect_ok(ih_put(10));
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(fake_unsent(fl[i]), 2);
    ih_row("1.10/turns");
}

/* ---- §1.11 ---- */

static void rows_established(void **state)
{
    struct fake_call *call = ih_call();
    struct fake_link *fl = call->link;
    struct ih_msg *m;
    struct pe_msg in;

    peer.my_stamp = connack_of(fl).src_stamp;
    in = ih_immediate(100, 0);
    for (unsigned i = 0; i < 6; i++)
        ih_say(fl, &in);
    m = ih_put(10);
    assert_int_equal(core.nreceived, 0);
    assert_int_equal(m->done, 0);
    assert_int_equal(fl->sends, 0);
    ir_advance(IR_SEC);
    assert_int_equal(core.nreceived + fl->sends, 0);
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.nreceived, 6);
    ih_expect_ok(m);
    assert_int_equal(core.ups, 1);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_UP], 1);
    ih_row("1.11/early");
    ih_row("1.11/established");
}

static void early_lost(void **state)
{
    struct fake_call *call = ih_call();
    struct pe_msg in;

    peer.my_stamp = connack_of(call->link).src_stamp;
    in = ih_immediate(100, 0);
    ih_say(call->link, &in);
    fake_tell(call->link, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(core.nreceived, 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_port, setup_port, ih_teardown),
        T(rows_unpack),
        T(rows_values),
        T(rows_early),
        cmocka_unit_test_setup_teardown(rows_no_memory, setup_two_conns, ih_teardown),
        T(rows_restarted),
        T(rows_queue_pair),
        T(rows_accept_fails),
        T(rows_connack),
        T(rows_padding),
        T(rows_source),
        T(rows_race),
        T(rows_race_one),
        T(rows_race_higher),
        T(rows_many),
        T(rows_established),
        T(early_lost),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
