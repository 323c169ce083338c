/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Being called, beyond the tables of the protocol (those are in test_ib_called.c): limits, who the
 * caller is, several NIs of one address.
 */
#include "lib/base/err.h"
#include "lib/base/sip.h"
#include "test/unit/ib_harness.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ih_row table[] = {
    {"early", "a call waits for an NI that is being started, not for ever: then EARLY"},
    {"early/stop", "nor for one of a port that listens no more"},
    {"shared", "NIs of one address share who listens there"},
    {"source", "whoever claims to be another is refused, and does no harm"},
    {"restarted", "a new incarnation while calls are being answered, or nothing is there"},
    {"depth", "less depth when the device cannot make so much (§1.6), and it is remembered"},
    {"limits", "calls that never end, nodes that call without end"},
    {"limits/probe", "connections in the way of a call are probed; those that are dead end (§3.4)"},
    {"place", "a call waits for the place of the one that makes way for it, for 1 s at most"},
    {"late", "a queue pair that is not made in time"},
    {"queue", "messages wait for a call that is being answered"},
};

#define WHY_RESOURCES 2
#define WHY_FATAL     3
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

static void expect_untouched(void)
{
    assert_int_equal(fake.nlive, 0);
    assert_int_equal(ih_peer_refs(), 0); /* who is refused is not remembered */
}

/* ---- who it is ---- */

static void rows_source(void **state)
{
    struct pe_msg m = request();
    struct fake_call *call;

    (void)state;
    m.src = pe_nid("10.0.0.4"); /* the same home, another node */
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, IB_DROP(CONN_SOURCE));
    expect_untouched();
    m.src = peer.nid + (1ull << 32); /* of o2ib1, calls o2ib0 */
    core.drops[IB_DROP(CONN_SOURCE)] = 0;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, IB_DROP(CONN_SOURCE));
    expect_untouched();
    ih_row("source");
}

/* Who is not allowed is told so for good, and who calls too often may call again. */
static void rows_access(void **state)
{
    struct pe_msg m = request();

    (void)state;
    core.may_connect = LNET_DROP_ACCESS_CONNECT;
    expect_reject(call_with(&m, 1023), WHY_FATAL, LNET_DROP_ACCESS_CONNECT);
    expect_untouched();
    core.may_call = LNET_DROP_CONNECT_RATE;
    expect_reject(call_with(&m, 1023), WHY_RESOURCES, LNET_DROP_CONNECT_RATE);
    expect_untouched();
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
    expect_reject(call, WHY_FATAL, IB_DROP(CONN_SOURCE));
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("source");
}

/* 10.0.0.n as RoCE has it, in all recorded requests of kernel nodes. */
static union ibv_gid gid_of(uint8_t n)
{
    return (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = n}};
}

/* Both addresses are private data: only the GID says where the connection leads to (§1.2). */
static void rows_source_gid(void **state)
{
    struct pe_msg m = request();

    (void)state;
    fake.roce = true;
    expect_reject(call_with(&m, 1023), WHY_FATAL, IB_DROP(CONN_SOURCE));
    core.drops[IB_DROP(CONN_SOURCE)] = 0;
    fake.gid = gid_of(4);
    expect_reject(call_with(&m, 1023), WHY_FATAL, IB_DROP(CONN_SOURCE));
    expect_untouched();
    fake.gid = (union ibv_gid){.raw = {0xfe, 0x80, [15] = 2}};
    core.drops[IB_DROP(CONN_SOURCE)] = 0;
    expect_reject(call_with(&m, 1023), WHY_FATAL, IB_DROP(CONN_SOURCE));
    fake.gid = gid_of(2);
    assert_false(call_with(&m, 1023)->rejected);
    fake.roce = false;
    fake.gid = gid_of(4);
    assert_false(call_with(&m, 1023)->rejected);
    ih_row("source");
}

static void rows_ourselves(void **state)
{
    struct fake_call *call;

    (void)state;
    ih_persona_is(OWN);
    call = ih_call();
    expect_reject(call, WHY_FATAL, IB_DROP(CONN_NID));
    expect_untouched();
    ih_row("source");
}

/* A call that is still being answered is of the old life, too. */
static void rows_restarted_pending(void **state)
{
    struct fake_call *first = ih_call();

    (void)state;
    assert_int_equal(first->link->phase, FAKE_ACCEPTING);
    peer.stamp += 1000;
    established(ih_call());
    assert_int_equal(first->link->phase, FAKE_CLOSED);
    ih_row("restarted");
}

/* Who only calls in the name of another, whatever incarnation he claims, does that one no harm. */
static void rows_restarted_claimed(void **state)
{
    struct fake_link *fl = ih_called();
    struct ih_msg *m;

    (void)state;
    for (unsigned i = 0; i < 100; i++) {
        peer.stamp += 1000;
        assert_false(ih_call()->rejected);
    }
    peer.stamp = STAMP;
    ir_advance(20 * IR_SEC);
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(fake.nlive, 1);
    m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(m);
    assert_int_equal(ih_called()->phase, FAKE_UP);
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 0);
    ih_row("restarted");
}

/* Without a connection there is nothing that would have to end first. */
static void rows_restarted_idle(void **state)
{
    (void)state;
    my_stamp();
    peer.stamp += 1000;
    assert_int_equal(ih_called()->phase, FAKE_UP);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 1);
    ih_row("restarted");
}

/* ---- races ---- */

static void answer_call(void)
{
    ih_answer();
    assert_int_equal(fake_newest()->phase, FAKE_UP);
    ih_take(fake_newest(), PE_IMMEDIATE);
}

/* ---- making it ---- */

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
    assert_int_equal(fl->nrecvs, 2 * 5 + 2);
    fl = ih_called(); /* remembered */
    assert_int_equal(fl->opens, 1);
    assert_true(pe_decode(fl->priv, fl->priv_len, &ack));
    assert_int_equal(ack.depth, 5);
    ih_row("depth");
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
    assert_int_equal(core.drops[IB_DROP(CONN_TIMEOUT)], 1);
    ih_row("late");
}

/* ---- many ---- */

static int setup_large(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 600;
    return ih_setup(state);
}

static struct fake_call *call_of(const char *format, unsigned i)
{
    char address[16];
    struct fake_call *call;

    snprintf(address, sizeof(address), format, i);
    ih_persona_is(address);
    call = ih_call();
    assert_false(call->rejected);
    return call;
}

/* Of one node's calls that never end the oldest give way to those that come. */
static void rows_one_peer_only(void **state)
{
    struct fake_call *first = ih_call(), *last = NULL;

    (void)state;
    for (unsigned i = 1; i < 200; i++) {
        last = ih_call();
        assert_false(last->rejected);
    }
    assert_int_equal(fake.nlive, 16);
    assert_int_equal(core.drops[IB_DROP(CONN_LIMIT)], 200 - 16);
    assert_int_equal(first->link->phase, FAKE_CLOSED);
    established(last);
    ih_persona_is("10.0.0.4"); /* of the same reactor: others get in */
    assert_int_equal(ih_called()->phase, FAKE_UP);
    ih_row("limits");
}

/* Connections of one incarnation of a peer that come up until one is refused. */
static unsigned all_up(void)
{
    for (unsigned n = 0;; n++) {
        struct fake_call *call = ih_call();

        if (call->rejected) {
            expect_reject(call, WHY_RESOURCES, IB_DROP(CONN_LIMIT));
            core.drops[IB_DROP(CONN_LIMIT)] = 0;
            return n;
        }
        established(call);
        peer.my_stamp = 0;
    }
}

/* Nor may one node have all connections that are up. Those of its earlier life do not count. */
static void rows_one_peer_up(void **state)
{
    (void)state;
    assert_int_equal(all_up(), 16);
    assert_int_equal(fake.nlive, 16);
    peer.stamp++;
    assert_int_equal(all_up(), 16);
    assert_int_equal(fake.nlive, 16);
    ih_row("limits");
}

static int setup_eight(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 600;
    ih_opts.conns_per_peer = 8;
    return ih_setup(state);
}

static void rows_one_peer_eight(void **state)
{
    (void)state;
    assert_int_equal(all_up(), 32);
    ih_row("limits");
}

/* We sent so many messages of this type on each connection, and nothing else. */
static void expect_sent(uint8_t type, unsigned n)
{
    for (struct fake_link *fl = fake.links; fl; fl = fl->next) {
        for (unsigned i = 0; i < n; i++)
            ih_take(fl, type);
        ih_nothing(fl);
    }
}

static void learn_stamp(void)
{
    struct pe_msg ack;

    assert_true(pe_decode(fake_newest()->priv, fake_newest()->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
}

/* A node lost its connections without a word to us, as its link was down, and calls again. Some of
 * its connections live. */
static void rows_probe(void **state)
{
    struct fake_link *fl;
    unsigned dead = 0, up = 0;

    (void)state;
    assert_int_equal(all_up(), 16);
    learn_stamp();
    ir_advance(3 * IR_SEC);
    for (fl = fake.links; fl; fl = fl->next)
        fl->hold_sends = dead++ < 6;
    for (unsigned i = 0; i < 100; i++)
        assert_true(ih_call()->rejected);
    core.drops[IB_DROP(CONN_LIMIT)] = 0;
    expect_sent(PE_NOOP, 1);
    ir_advance(5 * IR_SEC - 10000);
    fake_settle();
    assert_int_equal(fake.nlive, 16);
    ir_advance(20000);
    fake_settle();
    assert_int_equal(core.drops[IB_DROP(STALL)], 6);
    assert_int_equal(fake.nlive, 10);
    for (fl = fake.links; fl; fl = fl->next)
        up += fl->phase == FAKE_UP && !fl->hold_sends;
    assert_int_equal(up, 10);
    assert_int_equal(core.downs, 0);
    assert_int_equal(all_up(), 6);
    ir_advance(20 * IR_SEC);
    assert_int_equal(fake.nlive, 16);
    ih_row("limits/probe");
}

/* A peer that was heard of just now, or whose message the device is sending, is not probed. */
static void rows_probe_alive(void **state)
{
    struct fake_link *fl;
    struct pe_msg noop;

    (void)state;
    assert_int_equal(all_up(), 16);
    learn_stamp();
    expect_sent(PE_NOOP, 0);
    ir_advance(3 * IR_SEC);
    for (fl = fake.links; fl; fl = fl->next) {
        noop = ih_base(PE_NOOP, 0);
        ih_say(fl, &noop);
    }
    ir_advance(IR_SEC);
    assert_true(ih_call()->rejected);
    expect_sent(PE_NOOP, 0);
    for (fl = fake.links; fl; fl = fl->next)
        fl->hold_sends = true;
    for (unsigned i = 0; i < 16; i++)
        ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    ir_advance(3 * IR_SEC);
    assert_true(ih_call()->rejected);
    expect_sent(PE_IMMEDIATE, 1);
    ir_advance(8 * IR_SEC);
    assert_int_equal(fake.nlive, 16);
    for (fl = fake.links; fl; fl = fl->next)
        fl->hold_sends = false;
    fake_settle();
    assert_int_equal(core.sent, 16);
    ih_row("limits/probe");
}

/* All calls of a restarted node come before one of them is up. */
static void rows_restarted_full(void **state)
{
    struct fake_call *call[16];

    (void)state;
    assert_int_equal(all_up(), 16);
    peer.stamp++;
    for (unsigned i = 0; i < 16; i++) {
        call[i] = ih_call();
        assert_false(call[i]->rejected);
    }
    for (unsigned i = 0; i < 16; i++) {
        established(call[i]);
        peer.my_stamp = 0;
    }
    assert_int_equal(fake.nlive, 16);
    ih_row("restarted");
}

/* Half of the pool at most is for calls that may never end. Of the nodes with most of them the
 * oldest gives way. */
static void rows_half_open(void **state)
{
    struct fake_call *good = call_of("10.0.0.%u", 2);

    (void)state;
    for (unsigned i = 4; i < 54; i += 2)
        for (unsigned k = 0; k < 100; k++)
            call_of("10.0.0.%u", i);
    assert_int_equal(fake.nlive, 300);
    ih_persona_is("10.0.0.60");
    assert_int_equal(ih_called()->phase, FAKE_UP);
    ih_persona_is("10.0.0.2");
    established(good);
    ih_row("limits");
}

/* The same of a prefix with many addresses that call once each. */
static void rows_half_open_prefix(void **state)
{
    struct fake_call *good;

    (void)state;
    core.prefix = 24;
    sip_table_key = (struct sip_key){{1, 2}}; /* by this key the two prefixes are in two groups */
    call_of("10.0.0.%u", 2);
    good = call_of("10.0.0.%u", 2);
    for (unsigned i = 2; i < 102; i += 2)
        call_of("10.0.1.%u", i);
    assert_int_equal(fake.nlive, 32); /* of 64 */
    ih_persona_is("10.0.0.2");
    established(good);
    ih_row("limits");
}

/* Calls that never end cost no other node its connection, though that sent nothing for long. */
static void rows_half_open_evicts(void **state)
{
    (void)state;
    for (unsigned i = 2; i < 94; i += 2) {
        established(call_of("10.0.0.%u", i));
        peer.my_stamp = 0;
    }
    ir_advance(20 * IR_SEC);
    for (unsigned i = 0; i < 100; i++)
        call_of("10.0.1.%u", 2);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 0);
    assert_int_equal(core.downs, 0);
    ih_row("limits");
}

/* The pool is used up: said so, and all that is there goes on. */
static void rows_pool(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 62; n++) { /* of 64 some are kept for calls of our own */
        established(call_of("10.0.0.%u", 2 + 2 * n));
        peer.my_stamp = 0;
    }
    ih_persona_is("10.0.0.200");
    expect_reject(ih_call(), WHY_RESOURCES, IB_DROP(CONN_NO_MEMORY));
    assert_int_equal(fake.nlive, 62);
    ih_row("limits");
}

/* 62 nodes of 64 connections, silent for so long that they may be evicted. */
static void use_up(void)
{
    for (unsigned n = 0; n < 62; n++) {
        established(call_of("10.0.0.%u", 2 + 2 * n));
        peer.my_stamp = 0;
    }
    ir_advance(20 * IR_SEC);
}

/* Its queue pair is destroyed by the worker, which takes a moment. */
static void close_all(void)
{
    for (struct fake_link *fl = fake.links; fl; fl = fl->next) {
        if (fl->phase == FAKE_SHUT)
            fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    }
    fake_settle();
}

static void rows_place(void **state)
{
    struct fake_call *call[2];

    (void)state;
    use_up();
    fake.manual_close = true;
    for (unsigned i = 0; i < 2; i++)
        call[i] = call_of("10.0.1.%u", 2 + 2 * i);
    ir_advance(IR_SEC / 2);
    for (unsigned i = 0; i < 2; i++)
        assert_false(call[i]->rejected || call[i]->link);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 2);
    fake.manual_close = false;
    close_all();
    ir_advance(4000);
    fake_settle();
    for (unsigned i = 0; i < 2; i++) {
        assert_non_null(call[i]->link);
        established(call[i]);
        peer.my_stamp = 0;
    }
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 2);
    assert_int_equal(core.drops[IB_DROP(CONN_NO_MEMORY)], 0);
    assert_int_equal(fake.nlive, 62);
    ih_row("place");
}

/* A node that calls and calls has as many make way as it may have connections. */
static void rows_place_late(void **state)
{
    struct fake_call *call;

    (void)state;
    use_up();
    fake.manual_close = true;
    for (unsigned i = 0; i < 16; i++)
        call_of("10.0.1.%u", 2);
    call = ih_call();
    expect_reject(call, WHY_RESOURCES, IB_DROP(CONN_LIMIT));
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 16);
    ir_advance(IR_SEC + 4000);
    fake_settle();
    assert_int_equal(core.drops[IB_DROP(CONN_NO_MEMORY)], 16);
    assert_int_equal(core.drops[LNET_DROP_EVICTED], 16);
    for (call = fake.calls->next; call; call = call->next)
        assert_true(call->rejected || call->link);
    fake.manual_close = false;
    close_all();
    ih_row("place");
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
    ih_row("queue");
}

/* But not for ever on calls that do not come up: who calls need not be who he says he is. */
static void rows_queue_calls(void **state)
{
    struct ih_msg *m;

    (void)state;
    ih_call();
    m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    for (unsigned i = 0; i < 25 && fake.dials == 0; i++) {
        ih_call();
        ir_advance(IR_SEC / 10);
        fake_settle();
    }
    assert_int_equal(fake.dials, 1);
    answer_call();
    ih_expect_ok(m);
    ih_row("queue");
}

static void rows_queue_dials(void **state)
{
    struct fake_call *call = ih_call();
    struct ih_msg *m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));

    (void)state;
    fake_tell(call->link, RDMA_EV_REJECTED, 0, 28, NULL, 0);
    fake_settle();
    ir_advance(IR_SEC / 5);
    fake_settle();
    assert_int_equal(fake.dials, 1);
    answer_call();
    ih_expect_ok(m);
    ih_row("queue");
}

/* ---- NIs of one address ---- */

static struct lnet_ni second_ni(void)
{
    struct lnet_ni ni = {.node = ih_ni(0)->node,
                         .state = LNET_NI_ACTIVE,
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
    struct err err = {0};

    (void)state;
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    m.src += 1ull << 32;
    m.dst += 1ull << 32;
    call = call_with(&m, 1023);
    ir_advance(IR_SEC - 4000);
    assert_false(call->rejected);
    ir_advance(4000);
    expect_reject(call, WHY_EARLY, IB_DROP(CONN_EARLY));
    call = call_with(&m, 1023); /* by the listener there is */
    assert_false(call->rejected);
    assert_int_equal(lnd_verbs_ops.ni_start(&ni, &err), 0);
    fake_settle();
    ir_advance(4000);
    fake_settle();
    established(call);
    ih_row("early");
    m.dst += 1ull << 32;
    call = call_with(&m, 1023);
    expect_reject(call, WHY_FATAL, IB_DROP(CONN_DEST));
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
    ih_row("shared");
}

static void rows_starting_stopped(void **state)
{
    struct lnet_ni ni = second_ni();
    struct fake_call *call;
    struct pe_msg m = request();
    struct err err = {0};

    (void)state;
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    m.src += 1ull << 32;
    m.dst += 1ull << 32;
    call = call_with(&m, 1023);
    assert_false(call->rejected);
    ih_stop_later(0);
    expect_reject(call, WHY_EARLY, IB_DROP(CONN_EARLY));
    assert_false(fake_listening(0));
    lnd_verbs_ops.ni_fini(&ni);
    ih_row("early/stop");
}

#define T(fn)          cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)
#define T_IN(fn, how_) cmocka_unit_test_setup_teardown(fn, how_, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_source),
        T(rows_access),
        T(rows_source_restart),
        T(rows_source_gid),
        T(rows_ourselves),
        T(rows_restarted_pending),
        T(rows_restarted_claimed),
        T(rows_restarted_idle),
        T(rows_less_depth),
        T(rows_open_late),
        T_IN(rows_one_peer_only, setup_large),
        T_IN(rows_one_peer_up, setup_large),
        T_IN(rows_one_peer_eight, setup_eight),
        T_IN(rows_probe, setup_large),
        T_IN(rows_probe_alive, setup_large),
        T_IN(rows_restarted_full, setup_large),
        T_IN(rows_half_open, setup_large),
        T(rows_half_open_prefix),
        T(rows_half_open_evicts),
        T(rows_pool),
        T(rows_place),
        T(rows_place_late),
        T(rows_queue),
        T(rows_queue_calls),
        T(rows_queue_dials),
        T(rows_starting),
        T(rows_starting_stopped),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
