/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Being called: rows of docs/protocol/o2iblnd.md §1.7, and §1.6, §1.9 to §1.11 as far as they are
 * the passive side's.
 */
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ih_row table[] = {
    {"1.7/1", "source port"},
    {"1.7/2", "private data too short"},
    {"1.7/3", "magic, version"},
    {"1.7/4", "malformed"},
    {"1.7/5", "no such NI, others are starting"},
    {"1.7/6", "no such NI"},
    {"1.7/7", "meant for another life of ours"},
    {"1.7/8", "no CONNREQ"},
    {"1.7/9", "depth"},
    {"1.7/10", "fragments"},
    {"1.7/11", "message size"},
    {"1.7/12", "no memory"},
    {"1.7/13", "the caller has restarted"},
    {"1.7/14", "race"},
    {"1.7/15", "no queue pair"},
    {"1.7/16", "accept fails"},
    {"source", "the NID is not the caller's address"},
    {"limits", "calls that never end"},
    {"1.6/depth", "less depth as no queue pair can be made"},
    {"1.9/let in", "after 20 races"},
    {"1.9/orders", "only who is lower in both orders"},
    {"1.10/passive", "any number of connections of a peer"},
    {"1.11/rejected", "REJECTED on the passive side"},
    {"1.11/disconnected", "DISCONNECTED before it is up"},
    {"1.11/late", "a call that is answered and falls silent"},
    {"1.11/established", "ESTABLISHED"},
    {"accept/queue", "messages wait for a call that is being answered"},
};

#define WHY_RACE      1
#define WHY_RESOURCES 2
#define WHY_FATAL     3
#define WHY_STALE     5
#define WHY_FRAGS     6
#define WHY_DEPTH     7
#define WHY_EARLY     9

static struct fake_call *call_with(const struct pe_msg *m, uint16_t port)
{
    uint8_t buf[PE_MSG];
    size_t len = pe_encode(m, buf);
    struct fake_call *call = fake_call(0, peer.address, port, buf, len);

    fake_settle();
    assert_true(call->asked);
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

static void established(const struct fake_call *call)
{
    struct pe_msg ack;

    assert_false(call->rejected);
    assert_true(pe_decode(call->link->priv, call->link->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_UP);
}

static uint64_t my_stamp(void)
{
    struct fake_link *fl = ih_called();
    uint64_t stamp = peer.my_stamp;

    peer.my_stamp = 0;
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(fake.nlive, 0);
    return stamp;
}

static void expect_reject(const struct fake_call *call, uint8_t why, enum lnet_drop drop)
{
    struct pe_reject r;

    assert_true(call->rejected);
    assert_true(pe_reject_decode(call->priv, call->priv_len, &r));
    assert_int_equal(r.version, 0x12);
    assert_int_equal(r.why, why);
    assert_int_equal(r.size, 4096);
    if (core.drops[drop] != 1)
        fail_msg("%s was counted %u times", lnet_drop_info(drop)->name, core.drops[drop]);
}

/* With what the NI has, so that the caller may adapt. */
static void expect_terms(const struct fake_call *call)
{
    struct pe_reject r;

    assert_true(pe_reject_decode(call->priv, call->priv_len, &r));
    assert_true(r.stamp != 0);
    assert_int_equal(r.depth, 8);
    assert_int_equal(r.frags, 257);
}

static void expect_no_terms(const struct fake_call *call)
{
    struct pe_reject r;

    assert_true(pe_reject_decode(call->priv, call->priv_len, &r));
    assert_int_equal(r.stamp, 0);
    assert_int_equal(r.depth, 0);
    assert_int_equal(r.frags, 0);
}

static void expect_untouched(void)
{
    assert_int_equal(fake.nlive, 0);
    assert_int_equal(core.peer_refs, 0); /* who is refused is not remembered */
}

/* ---- before anything is known of the caller ---- */

static int setup_secure(void **state)
{
    ih_defaults();
    ih_opts.verbs.require_privileged_port = true;
    return ih_setup(state);
}

static void rows_port(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call = call_with(&m, 1024);

    (void)state;
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_PORT);
    expect_untouched();
    call = call_with(&m, 1023);
    assert_false(call->rejected);
    ih_row("1.7/1");
}

static void rows_any_port(void **state)
{
    struct pe_msg m = request();

    (void)state;
    assert_false(call_with(&m, 40000)->rejected);
    ih_row("1.7/1");
}

static void rows_short(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.nob = 55;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_LENGTH);
    expect_untouched();
    ih_row("1.7/2");
}

static void rows_magic(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.magic = 0x45726963;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_MAGIC);
    m = request();
    m.version = 0x13;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_VERSION);
    /* Version 1 is known and refused in words of version 2: §12 no. 10. */
    m.version = 0x11;
    core.drops[LNET_DROP_O2IB_CONN_VERSION] = 0;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_VERSION);
    expect_untouched();
    ih_row("1.7/3");
}

static void rows_malformed(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.cksum = 12345;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_CKSUM);
    m = request();
    m.src = UINT64_MAX;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_NID);
    expect_untouched();
    ih_row("1.7/4");
}

static void rows_no_ni(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.dst = pe_nid("10.0.0.9");
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_DEST);
    expect_no_terms(call);
    expect_untouched();
    ih_row("1.7/6");
}

/* ---- what is asked for ---- */

static void rows_our_stamp(void **state)
{
    uint64_t stamp = my_stamp();
    struct pe_msg m = request();
    struct fake_call *call;
    struct pe_reject r;

    (void)state;
    m.dst_stamp = stamp - 1;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_STALE, LNET_DROP_O2IB_CONN_STALE);
    expect_terms(call);
    assert_true(pe_reject_decode(call->priv, call->priv_len, &r));
    assert_true(r.stamp == stamp);
    m.dst_stamp = stamp;
    assert_false(call_with(&m, 1023)->rejected);
    ih_row("1.7/7");
}

static void rows_type(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.type = PE_CONNACK;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_TYPE);
    ih_row("1.7/8");
}

static void rows_params(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.depth = 9;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_DEPTH, LNET_DROP_O2IB_CONN_DEPTH);
    expect_terms(call);
    ih_row("1.7/9");
    m = request();
    m.frags = 258;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FRAGS, LNET_DROP_O2IB_CONN_FRAGS);
    expect_terms(call);
    ih_row("1.7/10");
    m = request();
    m.size = 4097;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_SIZE);
    ih_row("1.7/11");
    expect_untouched();
}

/* A request for less is granted as it is. */
static void rows_less(void **state)
{
    struct pe_msg ack;
    struct fake_link *fl;

    (void)state;
    peer.depth = 5;
    peer.frags = 32;
    fl = ih_called();
    assert_true(pe_decode(fl->priv, fl->priv_len, &ack));
    assert_int_equal(ack.type, PE_CONNACK);
    assert_int_equal(ack.version, 0x12);
    assert_int_equal(ack.depth, 5);
    assert_int_equal(ack.frags, 32);
    assert_int_equal(ack.size, 4096);
    assert_true(ack.src == peer.my_nid && ack.dst == peer.nid);
    assert_true(ack.dst_stamp == peer.stamp && ack.src_stamp != 0);
    assert_int_equal(fl->priv_len, 56);
    assert_int_equal(fl->retry, 5);
    assert_int_equal(fl->rnr_retry, 6);
    assert_int_equal(fl->open.recv_wrs, 2 * 5 + 2);
    assert_int_equal(core.ups, 1);
    assert_int_equal(core.events[LNET_EV_PEER_UP], 1);
    ih_row("1.11/established");
}

/* ---- who it is ---- */

static void rows_source(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.src = pe_nid("10.0.0.4"); /* the same home, another node */
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_SOURCE);
    expect_untouched();
    m.src = peer.nid + (1ull << 32); /* of o2ib1, calls o2ib0 */
    core.drops[LNET_DROP_O2IB_CONN_SOURCE] = 0;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_SOURCE);
    expect_untouched();
    ih_row("source");
}

/* Who claims to be another must not end that one's connections. */
static void rows_source_restart(void **state)
{
    struct fake_link *fl = ih_called();
    struct pe_msg m = request();
    uint8_t buf[PE_MSG];
    struct fake_call *call;

    (void)state;
    m.dst_stamp = 0;
    m.src_stamp++;
    call = fake_call(0, "10.0.0.4", 1023, buf, pe_encode(&m, buf));
    fake_settle();
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_SOURCE);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("source");
}

static void rows_ourselves(void **state)
{
    struct fake_call *call;

    (void)state;
    ih_persona_is(OWN);
    call = ih_call();
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_NID);
    expect_untouched();
    ih_row("source");
}

static void rows_no_memory(void **state)
{
    struct fake_call *call;

    (void)state;
    core.no_peers = true;
    call = ih_call();
    expect_reject(call, WHY_RESOURCES, LNET_DROP_O2IB_CONN_NO_MEMORY);
    expect_terms(call);
    expect_untouched();
    ih_row("1.7/12");
}

static void rows_restarted(void **state)
{
    struct fake_link *old = ih_called(), *old2;
    struct fake_call *call;

    (void)state;
    peer.my_stamp = 0;
    old2 = ih_called();
    peer.my_stamp = 0;
    peer.stamp += 1000;
    call = ih_call();
    expect_reject(call, WHY_STALE, LNET_DROP_O2IB_CONN_RESTARTED);
    expect_terms(call);
    fake_settle();
    assert_int_equal(old->phase, FAKE_CLOSED);
    assert_int_equal(old2->phase, FAKE_CLOSED);
    assert_int_equal(core.events[LNET_EV_PEER_RESTART], 1);
    assert_int_equal(core.events[LNET_EV_PEER_DOWN], 1);
    assert_int_equal(core.downs, 0); /* it is there, only anew */
    assert_int_equal(ih_called()->phase, FAKE_UP);
    ih_row("1.7/13");
}

/* A call that is still being answered is of the old life, too. */
static void rows_restarted_pending(void **state)
{
    struct fake_call *first = ih_call(), *second;

    (void)state;
    assert_int_equal(first->link->phase, FAKE_ACCEPTING);
    peer.stamp += 1000;
    second = ih_call();
    expect_reject(second, WHY_STALE, LNET_DROP_O2IB_CONN_RESTARTED);
    fake_settle();
    assert_int_equal(first->link->phase, FAKE_CLOSED);
    assert_int_equal(ih_called()->phase, FAKE_UP);
    ih_row("1.7/13");
}

/* Without a connection there is nothing that would have to end first. */
static void rows_restarted_idle(void **state)
{
    (void)state;
    my_stamp();
    peer.stamp += 1000;
    assert_int_equal(ih_called()->phase, FAKE_UP);
    assert_int_equal(core.events[LNET_EV_PEER_RESTART], 1);
    ih_row("1.7/13");
}

/* ---- races ---- */

/* We are calling PEER while it calls us. */
static struct fake_link *calling(void)
{
    ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    assert_int_equal(fake_newest()->phase, FAKE_CONNECTING);
    return fake_newest();
}

static void answer_call(void)
{
    ih_answer();
    assert_int_equal(fake_newest()->phase, FAKE_UP);
    ih_take(fake_newest(), PE_IMMEDIATE);
}

/* 10.0.0.0 is lower than 10.0.0.1 both ways. */
static void rows_race(void **state)
{
    struct fake_call *call;

    (void)state;
    ih_persona_is("10.0.0.0");
    calling();
    call = ih_call();
    expect_reject(call, WHY_RACE, LNET_DROP_O2IB_CONN_RACE);
    expect_terms(call);
    answer_call();
    ih_row("1.7/14");
}

static void rows_race_higher(void **state)
{
    struct fake_link *ours;
    struct fake_call *call;

    (void)state;
    ours = calling();
    call = ih_call();
    assert_false(call->rejected);
    established(call);
    ih_take(call->link, PE_IMMEDIATE); /* what waited for our call goes by theirs */
    assert_int_equal(ours->phase, FAKE_CONNECTING);
    ih_reject(ours, WHY_RACE, 0, 8, 257);
    ir_advance(10 * IR_SEC);
    assert_int_equal(fake.dials, 1); /* and that is enough */
    assert_int_equal(fake.nlive, 1);
    ih_row("1.7/14");
}

/* 10.1.0.0 is higher as a number, lower with the last byte first. */
static void rows_race_orders(void **state)
{
    (void)state;
    ih_persona_is("10.1.0.0");
    calling();
    assert_false(ih_call()->rejected);
    ih_row("1.9/orders");
}

static void rows_race_let_in(void **state)
{
    (void)state;
    ih_persona_is("10.0.0.0");
    calling();
    for (unsigned i = 0; i < 20; i++)
        assert_true(ih_call()->rejected);
    assert_int_equal(core.drops[LNET_DROP_O2IB_CONN_RACE], 20);
    assert_false(ih_call()->rejected);
    ih_row("1.9/let in");
}

/* ---- making it ---- */

static void rows_no_queue_pair(void **state)
{
    struct fake_call *call;

    (void)state;
    fake.open_error = -ENOMEM;
    fake.open_errors = 100;
    call = ih_call();
    expect_reject(call, WHY_RESOURCES, LNET_DROP_O2IB_CONN_NO_MEMORY);
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(call->link->opens, 4); /* 8, 6, 5, 4 */
    fake.open_error = -EIO;
    core.drops[LNET_DROP_O2IB_CONN_NO_MEMORY] = 0;
    call = ih_call();
    expect_reject(call, WHY_RESOURCES, LNET_DROP_O2IB_CONN_NO_MEMORY);
    assert_int_equal(call->link->opens, 1); /* less of it would not help */
    ih_row("1.7/15");
}

static void rows_less_depth(void **state)
{
    struct fake_link *fl;
    struct pe_msg ack;

    (void)state;
    fake.open_error = -ENOMEM;
    fake.open_errors = 2;
    fl = ih_called();
    assert_int_equal(fl->opens, 3);
    assert_true(pe_decode(fl->priv, fl->priv_len, &ack));
    assert_int_equal(ack.depth, 5);
    fl = ih_called(); /* remembered */
    assert_int_equal(fl->opens, 1);
    assert_true(pe_decode(fl->priv, fl->priv_len, &ack));
    assert_int_equal(ack.depth, 5);
    ih_row("1.6/depth");
}

static void ends_as(enum rdma_event_kind kind, int error, enum lnet_drop drop)
{
    struct fake_call *call = ih_call();

    assert_int_equal(call->link->phase, FAKE_ACCEPTING);
    fake_tell(call->link, kind, error, 28, NULL, 0);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[drop], 1);
    core.drops[drop] = 0;
    assert_int_equal(core.ups, 0);
    assert_int_equal(core.downs, 0);
}

static void rows_accept_fails(void **state)
{
    (void)state;
    ends_as(RDMA_EV_FAILED, -ENOTCONN, LNET_DROP_O2IB_CONN_ACCEPT);
    ih_row("1.7/16");
    ends_as(RDMA_EV_REJECTED, 0, LNET_DROP_O2IB_CONN_ACCEPT);
    ih_row("1.11/rejected");
    ends_as(RDMA_EV_DISCONNECTED, 0, LNET_DROP_O2IB_CONN_ACCEPT);
    ih_row("1.11/disconnected");
}

static void rows_late(void **state)
{
    struct fake_call *call = ih_call();

    (void)state;
    ir_advance(12 * IR_SEC);
    assert_int_equal(call->link->phase, FAKE_ACCEPTING);
    ir_advance(2 * IR_SEC); /* a quarter of 50 s */
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[LNET_DROP_O2IB_CONN_TIMEOUT], 1);
    ih_row("1.11/late");
}

static void rows_open_late(void **state)
{
    struct fake_call *call;

    (void)state;
    fake.manual_open = true;
    call = ih_call();
    ir_advance(30 * IR_SEC);
    fake_settle();
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(core.drops[LNET_DROP_O2IB_CONN_TIMEOUT], 1);
    ih_row("1.11/late");
}

/* ---- many ---- */

static void rows_many(void **state)
{
    struct ih_msg *m[6];
    struct fake_link *fl[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        fl[i] = ih_called();
    assert_int_equal(core.ups, 1);
    for (unsigned i = 0; i < 6; i++)
        m[i] = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    for (unsigned i = 0; i < 3; i++) { /* they take turns */
        ih_take(fl[i], PE_IMMEDIATE);
        ih_take(fl[i], PE_IMMEDIATE);
    }
    assert_int_equal(fake.dials, 0); /* the set is the peer's */
    for (unsigned i = 0; i < 6; i++)
        ih_expect_ok(m[i]);
    fake_tell(fl[1], RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.events[LNET_EV_PEER_DOWN], 0);
    fake_tell(fl[0], RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_tell(fl[2], RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    assert_int_equal(core.events[LNET_EV_PEER_DOWN], 1);
    assert_int_equal(core.downs, 0); /* a clean end, §6.2 */
    ih_row("1.10/passive");
}

static int setup_large(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 600;
    return ih_setup(state);
}

static void rows_one_peer_only(void **state)
{
    unsigned n = 0;
    struct fake_call *call;

    (void)state;
    while (!(call = ih_call())->rejected)
        n++;
    assert_int_equal(n, 128);
    expect_reject(call, WHY_RESOURCES, LNET_DROP_O2IB_CONN_LIMIT);
    ih_persona_is("10.0.0.4"); /* of the same reactor: others get in */
    assert_int_equal(ih_called()->phase, FAKE_UP);
    ih_row("limits");
}

/* Half of the pool at most is for calls that may never end. */
static void rows_half_open(void **state)
{
    char address[16];
    struct fake_call *call = NULL;
    unsigned n = 0;

    (void)state;
    for (unsigned i = 2; i < 60 && (call == NULL || !call->rejected); i += 2) {
        snprintf(address, sizeof(address), "10.0.0.%u", i);
        ih_persona_is(address);
        for (unsigned k = 0; k < 100 && !(call = ih_call())->rejected; k++)
            n++;
    }
    assert_int_equal(n, 300);
    ih_row("limits");
}

/* The pool is used up: said so, and all that is there goes on. */
static void rows_pool(void **state)
{
    struct fake_call *call;
    unsigned n = 0;

    (void)state;
    do {
        call = ih_call();
        if (call->rejected)
            break;
        established(call);
        peer.my_stamp = 0;
        n++;
    } while (n < 1000);
    assert_int_equal(n, 64);
    expect_reject(call, WHY_RESOURCES, LNET_DROP_O2IB_CONN_NO_MEMORY);
    ih_row("1.7/12");
}

/* ---- messages meanwhile ---- */

static void rows_queue(void **state)
{
    struct fake_call *call = ih_call();
    struct ih_msg *m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));

    (void)state;
    assert_int_equal(fake.dials, 0); /* it is on its way */
    established(call);
    ih_take(call->link, PE_IMMEDIATE);
    ih_expect_ok(m);
    ih_row("accept/queue");
}

static void rows_queue_dials(void **state)
{
    struct fake_call *call = ih_call();
    struct ih_msg *m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));

    (void)state;
    fake_tell(call->link, RDMA_EV_REJECTED, 0, 28, NULL, 0);
    fake_settle();
    ir_advance(1000);
    fake_settle();
    assert_int_equal(fake.dials, 1);
    answer_call();
    ih_expect_ok(m);
    ih_row("accept/queue");
}

/* ---- NIs of one address ---- */

static struct lnet_ni second_ni(void)
{
    struct lnet_ni ni = {.node = ih_ni(0)->node,
                         .lnd = &lnd_verbs_ops,
                         .lnd_ctx = ih_ni(0)->lnd_ctx,
                         .net = LNET_NET(LNET_LND_O2IB, 1),
                         .index = 1,
                         .tun = {-1, 8, -1, -1},
                         .lnd_tun = {-1, -1, -1}};

    ni.nid = nid_make(ni.net, ih_ni(0)->nid.addr_be, 4);
    return ni;
}

static void second_stopped(struct reactor_task *task)
{
    task->fn = NULL;
}

static void rows_starting(void **state)
{
    struct lnet_ni ni = second_ni();
    struct reactor_task done = {.fn = second_stopped};
    struct fake_call *call;
    struct pe_msg m = request();
    char err[256];

    (void)state;
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, err, sizeof(err)), 0);
    m.src += 1ull << 32;
    m.dst += 1ull << 32;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_EARLY, LNET_DROP_O2IB_CONN_EARLY);
    ih_row("1.7/5");
    assert_int_equal(lnd_verbs_ops.ni_start(&ni, err, sizeof(err)), 0);
    fake_settle();
    call = call_with(&m, 1023); /* by the listener there is */
    assert_false(call->rejected);
    established(call);
    m.dst += 1ull << 32;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, LNET_DROP_O2IB_CONN_DEST);
    /* The one that began to listen may go: the other is still called. */
    ih_stop(0);
    assert_true(fake_listening(0));
    m.dst -= 1ull << 32;
    m.src_stamp = STAMP;
    assert_false(call_with(&m, 1023)->rejected);
    lnd_verbs_ops.ni_stop(&ni, &done);
    fake_settle();
    ir_advance(IR_SEC);
    assert_null(done.fn);
    assert_false(fake_listening(0));
    lnd_verbs_ops.ni_fini(&ni);
}

#define T(fn)          cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)
#define T_IN(fn, how_) cmocka_unit_test_setup_teardown(fn, how_, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T_IN(rows_port, setup_secure),
        T(rows_any_port),
        T(rows_short),
        T(rows_magic),
        T(rows_malformed),
        T(rows_no_ni),
        T(rows_our_stamp),
        T(rows_type),
        T(rows_params),
        T(rows_less),
        T(rows_source),
        T(rows_source_restart),
        T(rows_ourselves),
        T(rows_no_memory),
        T(rows_restarted),
        T(rows_restarted_pending),
        T(rows_restarted_idle),
        T(rows_race),
        T(rows_race_higher),
        T(rows_race_orders),
        T(rows_race_let_in),
        T(rows_no_queue_pair),
        T(rows_less_depth),
        T(rows_accept_fails),
        T(rows_late),
        T(rows_open_late),
        T(rows_many),
        T_IN(rows_one_peer_only, setup_large),
        T_IN(rows_half_open, setup_large),
        T(rows_pool),
        T(rows_queue),
        T(rows_queue_dials),
        T(rows_starting),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
