/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NIs of the driver: settings and what is wrong with them, ports, quiesce and stop, and what is
 * told of them. docs/protocol/o2iblnd.md §1.5, §7.
 */
#include "lib/base/err.h"
#include "lib/lnd_verbs/ib_internal.h"
#include "test/unit/ib_harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- settings ---- */

static struct err err;

/* Another NI of the node, on o2ib1. */
static struct lnet_ni other_ni(void)
{
    struct lnet_ni ni = {.node = ih_ni(0)->node,
                         .state = LNET_NI_ACTIVE,
                         .lnd = &lnd_verbs_ops,
                         .lnd_ctx = ih_ni(0)->lnd_ctx,
                         .net = LNET_NET(LNET_LND_O2IB, 1),
                         .index = 1,
                         .tun = {-1, -1, -1, -1},
                         .lnd_tun = LND_TUNABLES_DEFAULT};

    ni.nid = nid_make(ni.net, ih_ni(0)->nid.addr_be, 4);
    return ni;
}

static void test_defaults(void **state)
{
    struct lnet_ni ni = other_ni();

    (void)state;
    assert_true(lnd_verbs_ops.remote_writes); /* so that buffers are cleared, test_lnet_pool.c */
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    assert_int_equal(ni.tun.credits, 256);
    assert_int_equal(ni.tun.peer_credits, 8);
    assert_int_equal(ni.tun.peer_timeout, 180);
    assert_int_equal(ni.tun.peer_buffer_credits, 0);
    assert_int_equal(ni.lnd_tun.timeout, 50);
    assert_int_equal(ni.lnd_tun.conns_per_peer, 1);
    assert_int_equal(ni.lnd_tun.tos, -1);
    assert_false(ni.rx_take);
    lnd_verbs_ops.ni_fini(&ni);
}

static int init_with(struct lnet_tunables tun, struct lnet_tunables *out)
{
    struct lnet_ni ni = other_ni();
    int rc;

    ni.tun = tun;
    rc = lnd_verbs_ops.ni_init(&ni, &err);
    *out = ni.tun;
    if (rc == 0)
        lnd_verbs_ops.ni_fini(&ni);
    return rc;
}

static void test_peer_credits(void **state)
{
    struct lnet_tunables t;

    (void)state;
    assert_int_equal(init_with((struct lnet_tunables){-1, 300, -1, 1000}, &t), 0);
    assert_int_equal(t.peer_credits, 255);
    assert_int_equal(init_with((struct lnet_tunables){-1, 2, -1, -1}, &t), 0);
    assert_int_equal(t.peer_credits, 8); /* no NI offers less */
    assert_int_equal(init_with((struct lnet_tunables){-1, 64, -1, 32}, &t), 0);
    assert_int_equal(t.peer_credits, 32);
    assert_int_equal(init_with((struct lnet_tunables){-1, 0, -1, -1}, &t), -EINVAL);
    assert_non_null(strstr(err.message, "peer_credits"));
    assert_int_equal(init_with((struct lnet_tunables){-1, -1, -1, 7}, &t), -EINVAL);
    assert_non_null(strstr(err.message, "credits is 7"));
}

static int init_lnd_with(struct lnd_tunables tun)
{
    struct lnet_ni ni = other_ni();
    int rc;

    ni.lnd_tun = tun;
    rc = lnd_verbs_ops.ni_init(&ni, &err);
    if (rc == 0)
        lnd_verbs_ops.ni_fini(&ni);
    return rc;
}

static void test_lnd_tunables(void **state)
{
    struct lnd_tunables t = LND_TUNABLES_DEFAULT;

    (void)state;
    t.conns_per_peer = 127;
    assert_int_equal(init_lnd_with(t), 0);
    t.conns_per_peer = 128;
    assert_int_equal(init_lnd_with(t), -EINVAL);
    assert_non_null(strstr(err.message, "conns_per_peer"));
    t = LND_TUNABLES_DEFAULT;
    t.timeout = 3601;
    assert_int_equal(init_lnd_with(t), -EINVAL);
    t = LND_TUNABLES_DEFAULT;
    t.tos = 256;
    assert_int_equal(init_lnd_with(t), -EINVAL);
    t.tos = 255;
    assert_int_equal(init_lnd_with(t), 0);
}

static void test_set(void **state)
{
    struct lnd_tunables t = LND_TUNABLES_DEFAULT;
    struct lnet_ni *ni = ih_ni(0);

    (void)state;
    t.conns_per_peer = 2;
    t.timeout = 20;
    assert_int_equal(lnd_verbs_ops.ni_set(ni, &t, &err), 0);
    assert_int_equal(ni->lnd_tun.conns_per_peer, 2);
    assert_int_equal(ni->lnd_tun.timeout, 20);
    assert_int_equal(ni->lnd_tun.tos, -1);
    t.tos = 999; /* all or nothing */
    t.timeout = 30;
    assert_int_equal(lnd_verbs_ops.ni_set(ni, &t, &err), -EINVAL);
    assert_int_equal(ni->lnd_tun.timeout, 20);
}

/* ---- addresses ---- */

static void test_ipv6(void **state)
{
    struct lnet_ni ni = other_ni();
    struct in6_addr addr;

    (void)state;
    assert_int_equal(inet_pton(AF_INET6, "fd00::1", &addr), 1);
    ni.nid = nid_make(ni.net, &addr, 16);
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), -EAFNOSUPPORT);
    assert_non_null(strstr(err.message, "fd00::1@o2ib1"));
    assert_non_null(strstr(err.message, "IPv4"));
}

static void test_interface(void **state)
{
    struct lnet_ni ni = other_ni();

    (void)state;
    ni.nid = LNET_NID_ANY;
    strcpy(ni.ifname, "no-such-if0");
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), -ENODEV);
    assert_non_null(strstr(err.message, "no-such-if0"));
    /* An address that is not on the interface named with it. */
    ni = other_ni();
    strcpy(ni.ifname, "lo");
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), -EADDRNOTAVAIL);
    assert_non_null(strstr(err.message, "lo"));
}

/* The device says why, with the NI's name. */
static void test_no_device(void **state)
{
    struct lnet_ni ni = other_ni();

    (void)state;
    fake.unbound_error = true;
    strcpy(err.message, "");
    ni.nid = LNET_NID_ANY;
    strcpy(ni.ifname, "lo");
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), -ENODEV);
    assert_string_equal(err.message, "127.0.0.1@o2ib1: no RDMA device has this address");
}

/* ---- ports ---- */

static void nothing(struct reactor_task *task)
{
    (void)task;
}

static void test_port(void **state)
{
    struct lnet_ni *ni = ih_ni(0);

    (void)state;
    assert_true(ni->link_up);
    fake_port(0, RDMA_PORT_DOWN);
    assert_false(ni->link_up);
    fake_port(0, RDMA_PORT_CHANGED);
    assert_false(ni->link_up);
    fake_port(0, RDMA_PORT_UP);
    assert_true(ni->link_up);
    fake_port(0, RDMA_PORT_REMOVED);
    assert_false(ni->link_up);
}

/* One that comes later to a port that is down is told so. */
static void test_port_shared(void **state)
{
    struct lnet_ni ni = other_ni();
    struct reactor_task done = {0};
    unsigned down;

    (void)state;
    fake_port(0, RDMA_PORT_DOWN);
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    ni.link_up = true;
    assert_int_equal(lnd_verbs_ops.ni_start(&ni, &err), 0);
    fake_settle();
    assert_false(ni.link_up);
    down = core.link_down;
    fake_port(0, RDMA_PORT_UP);
    assert_true(ni.link_up);
    assert_true(ih_ni(0)->link_up);
    assert_int_equal(core.link_down, down);
    done.fn = nothing;
    lnd_verbs_ops.ni_stop(&ni, &done);
    fake_settle();
    assert_non_null(fake_port_of(0)); /* the first one's still */
    lnd_verbs_ops.ni_fini(&ni);
    assert_non_null(fake_port_of(0));
}

/* ---- incarnations ---- */

static bool frozen;

/* In place of the C library's: the wall clock stands when the test says so. */
int clock_gettime(clockid_t clock, struct timespec *ts)
{
    if (frozen && clock == CLOCK_REALTIME) {
        *ts = (struct timespec){.tv_sec = 1};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, clock, ts);
}

static uint64_t stamp_of_call(void)
{
    struct fake_link *fl;
    uint64_t stamp;

    peer.my_stamp = 0;
    fl = ih_called();
    stamp = peer.my_stamp;
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    return stamp;
}

static void test_stamps(void **state)
{
    struct lnet_ni ni = other_ni();
    struct reactor_task done = {.fn = nothing};
    uint64_t first = stamp_of_call(), second;

    (void)state;
    assert_true(stamp_of_call() == first);
    assert_true(first != 0 && first != UINT64_MAX);
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    frozen = true; /* and was set back */
    assert_int_equal(lnd_verbs_ops.ni_start(&ni, &err), 0);
    frozen = false;
    fake_settle();
    peer.nid += 1ull << 32;
    peer.my_nid += 1ull << 32;
    second = stamp_of_call();
    assert_true(second > first);
    lnd_verbs_ops.ni_stop(&ni, &done);
    fake_settle();
    lnd_verbs_ops.ni_fini(&ni);
}

/* ---- sleeping ---- */

static struct fake_link *late;

static void comes_late(void)
{
    struct pe_msg m = ih_immediate(10, 0);

    fake.arming = NULL;
    ih_tell(late, &m);
}

/* What completes after the last look and before the queue is armed is seen. */
static void test_armed_late(void **state)
{
    (void)state;
    late = ih_called();
    fake.arming = comes_late;
    ir_advance(1000);
    assert_null(fake.arming);
    assert_int_equal(core.nreceived, 1);
}

/* And what completes when it sleeps wakes it, each time. */
static void test_woken(void **state)
{
    struct fake_link *fl = ih_called();

    (void)state;
    for (unsigned i = 1; i < 6; i++) {
        struct pe_msg m = ih_immediate(10, 0);

        ir_advance(10000);
        ih_tell(fl, &m);
        ir_run();
        assert_int_equal(core.nreceived, i);
    }
}

/* ---- the end ---- */

/* What comes is taken, as the sender has been told that it came; but nobody is let in, and no more
 * credits are given, until all have spent theirs or are silent. */
static void test_quiesce(void **state)
{
    struct fake_link *fl = ih_called();
    struct pe_msg m = ih_immediate(100, 0);
    struct ih_rx *r;

    (void)state;
    core.parse = IH_LATER;
    ih_say(fl, &m);
    r = ih_waiting();
    assert_non_null(r);
    ih_quiesce(0);
    assert_false(fake_listening(0));
    ir_advance(IR_SEC);
    assert_false(ih_quiet(0));
    ih_say(fl, &m);
    assert_int_equal(core.open, 2);
    ih_recv(r, 100);
    ih_recv(ih_waiting(), 100);
    fake_settle();
    ir_advance(IR_SEC / 10);
    assert_false(ih_quiet(0));
    ir_advance(IR_SEC / 4);
    assert_true(ih_quiet(0));
    assert_int_equal(core.open, 0);
    assert_int_equal(core.nreceived, 2);
    assert_int_equal(fl->phase, FAKE_UP);
}

/* Peers that have much to send come to an end for want of credits. */
static void test_quiesce_spent(void **state)
{
    struct fake_link *fl = ih_called();
    struct pe_msg m = ih_immediate(100, 0);

    (void)state;
    ih_say(fl, &m);
    ih_quiesce(0);
    for (unsigned i = 1; i < 8; i++) {
        assert_false(ih_quiet(0));
        ih_say(fl, &m);
        ir_advance(IR_SEC / 10);
    }
    assert_int_equal(core.nreceived, 8);
    assert_int_equal(fl->led.theirs, 0);
    ir_advance(IR_SEC / 20);
    assert_true(ih_quiet(0));
    assert_int_equal(fl->phase, FAKE_UP);
}

static void test_quiesce_idle(void **state)
{
    (void)state;
    ih_quiesce(0);
    assert_true(ih_quiet(0));
    ih_stop(0);
    assert_true(ih_stopped(0));
}

/* Everything there is ends: connections up, dialled, called; messages that wait. */
static void test_stop(void **state)
{
    struct fake_link *fl = ih_called();
    struct fake_call *call;
    struct ih_msg *m;

    (void)state;
    peer.my_stamp = 0;
    call = ih_call();
    ih_persona_is("10.0.0.4");
    m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    assert_int_equal(fake_newest()->phase, FAKE_CONNECTING);
    ih_stop(0);
    ih_expect(m, LNET_DROP_SHUTDOWN, LNET_HEALTH_LOCAL_ABORTED);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_int_equal(core.downs, 0);
    m = ih_send(ih_msg(0, peer.address, LNET_MSG_ACK, 0, -1, 1));
    ih_expect(m, LNET_DROP_SHUTDOWN, LNET_HEALTH_REMOTE_DROPPED);
}

/* The incarnation is what the caller says, also none: its calls end like all. */
static void test_stop_no_stamp(void **state)
{
    struct fake_call *call;

    (void)state;
    peer.stamp = 0;
    call = ih_call();
    assert_non_null(call->link);
    ih_stop_later(0); /* at once, not when the call is given up */
    assert_int_equal(call->link->phase, FAKE_CLOSED);
    assert_true(ih_stopped(0));
}

/* A request may still be on its way to a reactor that has not heard that there is no listener. */
static void test_stop_unlistened(void **state)
{
    (void)state;
    fake.hold_unlistened = true;
    ih_stop_later(0);
    assert_false(fake_listening(0));
    ir_advance(IR_SEC);
    assert_false(ih_stopped(0));
    assert_non_null(fake_port_of(0));
    fake_unlistened(0);
    ir_run();
    assert_true(ih_stopped(0));
}

/* The port is let go of when the NI is stopped: that its memory is freed may be much later, and the
 * device may wait to be taken away. */
static void test_stop_unbinds(void **state)
{
    struct lnet_ni ni = other_ni();
    struct rdma_info info;

    (void)state;
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    assert_int_equal(lnd_verbs_ops.ni_start(&ni, &err), 0);
    fake_settle();
    ih_stop(0);
    assert_non_null(fake_port_of(0));
    lnd_verbs_ops.ni_stop(&ni, &(struct reactor_task){.fn = nothing});
    fake_settle();
    assert_null(fake_port_of(0));
    for (unsigned i = 0; i < 2; i++) {
        lnd_verbs_info(i == 0 ? ih_ni(0) : &ni, &info);
        assert_string_equal(info.device, "fake0"); /* as it was */
    }
    lnd_verbs_ops.ni_fini(&ni);
}

/* Also by an NI that did not come to its start; one that comes then has a port of its own. */
static void test_stop_before_start(void **state)
{
    struct lnet_ni ni = other_ni(), next = other_ni();

    (void)state;
    ih_stop(0);
    assert_int_equal(lnd_verbs_ops.ni_init(&ni, &err), 0);
    assert_non_null(fake_port_of(0));
    lnd_verbs_ops.ni_stop(&ni, &(struct reactor_task){.fn = nothing});
    fake_settle();
    assert_null(fake_port_of(0));
    assert_int_equal(lnd_verbs_ops.ni_init(&next, &err), 0);
    assert_non_null(fake_port_of(0));
    lnd_verbs_ops.ni_fini(&ni);
    assert_non_null(fake_port_of(0));
    lnd_verbs_ops.ni_fini(&next);
    assert_null(fake_port_of(0));
}

/* A provider that takes its time is waited for. */
static void test_stop_late(void **state)
{
    struct fake_link *fl = ih_called();

    (void)state;
    fake.manual_close = true;
    ih_stop_later(0);
    ir_advance(10 * IR_SEC);
    assert_false(ih_stopped(0));
    assert_int_equal(fl->phase, FAKE_SHUT);
    fake_tell(fl, RDMA_EV_CLOSED, 0, 0, NULL, 0);
    fake_settle();
    assert_true(ih_stopped(0));
}

/* ---- what is told ---- */

static void test_info(void **state)
{
    struct rdma_info info;

    (void)state;
    lnd_verbs_info(ih_ni(0), &info);
    assert_string_equal(info.device, "fake0");
    assert_int_equal(info.mtu, 4096);
}

static struct {
    unsigned calls, n, total;
    struct verbs_conn_row rows[8];
} seen;

static void see(void *arg, const void *all)
{
    const struct verbs_rows *rows = all;
    assert_ptr_equal(arg, &seen);
    assert_ptr_equal(reactor_self(), reactor_control(ir_env()));
    seen.calls++;
    seen.n = rows->nconns;
    seen.total = rows->total;
    memcpy(seen.rows, rows->conns, seen.n * sizeof(seen.rows[0]));
}

static void ask(unsigned max)
{
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(lnd_verbs_conns(ih_ni(0), max, see, &seen), 0);
    fake_settle();
    assert_int_equal(seen.calls, 1);
}

static void test_conns(void **state)
{
    (void)state;
    ask(8);
    assert_int_equal(seen.total, 0);
    ih_called();
    ih_persona_is(PEER2);
    ih_called();
    ih_call();
    ask(8);
    assert_int_equal(seen.total, 3);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.rows[0].reactor, 0);
    assert_int_equal(seen.rows[1].reactor, 1);
    assert_true(nid_to_u64(&seen.rows[1].peer) == pe_nid(PEER2));
    assert_int_equal(seen.rows[0].depth, 8);
    assert_int_equal(seen.rows[0].credits, 8);
    ask(2);
    assert_int_equal(seen.total, 3);
    assert_int_equal(seen.n, 2);
}

static unsigned again;

static void see_again(void *arg, const void *all)
{
    assert_false(ih_stopped(0));
    seen.calls++;
    if (--again > 0)
        assert_int_equal(lnd_verbs_conns(ih_ni(0), 8, see_again, arg), 0);
}

/* The NI is stopped while questions are on their way: it waits for them. */
static void test_conns_stop(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    again = 5;
    assert_int_equal(lnd_verbs_conns(ih_ni(0), 8, see_again, &seen), 0);
    ih_stop(0);
    assert_true(ih_stopped(0));
    assert_int_equal(seen.calls, 5);
}

/* max_connections holds at every depth on a device that can make queues of RDMA_CQ_ENTRIES: there
 * are rows for so many. With smaller queues the rows are in use earlier. */
static void test_queues(void **state)
{
    static const unsigned max[] = {16, 1024, 4096, 65536};
    struct rdma_open open;

    (void)state;
    ib_conn_sizes(IB_DEPTH_MAX, 2 * IB_DEPTH_MAX, true, &open);
    for (unsigned i = 0; i < 4; i++)
        assert_true(RDMA_CQ_ENTRIES / (open.recv_wrs + open.send_wrs) * ib_shard_cqs(max[i]) >=
                    max[i]);
}

/* What docs/operations.md says of it: "RDMA", locked memory. */
static void test_memory_said(void **state)
{
    static const struct {
        unsigned depth;
        double mib;
    } said[] = {{8, 0.12}, {32, 0.35}, {64, 0.66}, {128, 1.3}, {255, 2.5}};
    struct lnd_memory m;

    (void)state;
    for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        double off;

        lnd_verbs_memory(&ih_opts.verbs, 1, said[i].depth, -1, &m);
        off = (double)m.per_conn / (1 << 20) / said[i].mib;
        if (off < 0.95 || off > 1.05)
            fail_msg("depth %u: %zu bytes, said is %.2f MiB", said[i].depth, m.per_conn,
                     said[i].mib);
    }
}

static void test_memory(void **state)
{
    struct verbs_opts o = ih_opts.verbs;
    struct lnd_memory m, more;

    (void)state;
    o.max_conns = 0;
    lnd_verbs_memory(&o, 2, 8, -1, &m);
    assert_int_equal(m.conns, 1024);
    assert_true(m.per_conn >= 18 * 4096);
    o.max_conns = 2048;
    lnd_verbs_memory(&o, 2, 128, -1, &more);
    assert_true(more.pools > m.pools);
    assert_true(more.per_conn >= 258 * 4096);
    /* What a connection takes in fact. */
    assert_int_equal(ih_called()->open.area, m.per_conn);
}

static int setup_sends(void **state)
{
    ih_defaults();
    ih_opts.concurrent_sends = 14;
    return ih_setup(state);
}

/* What the NI says goes before what is said for all; neither beyond twice the depth. */
static void test_memory_sends(void **state)
{
    struct verbs_opts o = ih_opts.verbs;
    struct lnd_memory plain, m, most, too_many;

    (void)state;
    lnd_verbs_memory(&o, 2, 8, 0, &plain);
    o.concurrent_sends = 10;
    lnd_verbs_memory(&o, 2, 8, 14, &m);
    assert_true(m.per_conn > plain.per_conn);
    assert_int_equal(ih_called()->open.area, m.per_conn);
    lnd_verbs_memory(&o, 2, 8, 16, &most);
    o.concurrent_sends = 1000;
    lnd_verbs_memory(&o, 2, 8, -1, &too_many);
    assert_true(most.per_conn > m.per_conn);
    assert_int_equal(too_many.per_conn, most.per_conn);
}

static void test_peer_info(void **state)
{
    struct lnd_peer_info info;
    struct lnet_peer_ni *p = ih_peer(0, PEER);

    (void)state;
    lnd_verbs_ops.peer_info(p, &info);
    assert_int_equal(info.conns[0] + info.connecting, 0);
    ih_called();
    ih_call();
    lnd_verbs_ops.peer_info(p, &info);
    assert_int_equal(info.conns[0], 1);
    assert_int_equal(info.connecting, 1);
}

#define T(fn)          cmocka_unit_test_setup_teardown(fn, ih_setup_plain, ih_teardown)
#define T_IN(fn, how_) cmocka_unit_test_setup_teardown(fn, how_, ih_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_queues),
        T(test_memory_said),
        T(test_defaults),
        T(test_peer_credits),
        T(test_lnd_tunables),
        T(test_set),
        T(test_ipv6),
        T(test_interface),
        T(test_no_device),
        T(test_port),
        T(test_port_shared),
        T(test_stamps),
        T(test_armed_late),
        T(test_woken),
        T(test_quiesce),
        T(test_quiesce_spent),
        T(test_quiesce_idle),
        T(test_stop),
        T(test_stop_no_stamp),
        T(test_stop_unlistened),
        T(test_stop_late),
        T(test_stop_unbinds),
        T(test_stop_before_start),
        T(test_info),
        T(test_conns),
        T(test_conns_stop),
        T(test_memory),
        T_IN(test_memory_sends, setup_sends),
        T(test_peer_info),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
