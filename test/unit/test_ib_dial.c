/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calling: rows of docs/protocol/o2iblnd.md §1.8, of §1.1, §1.6, §1.9 and §1.11 as far as they are
 * the active side's, and of §6.3 where a connect has failed.
 */
#include "test/unit/ib_dial_test.h"

#include <errno.h>

static struct ih_row table[] = {
    {"1.8/1", "CONN_RACE"},
    {"1.8/2", "NO_RESOURCES"},
    {"1.8/3", "FATAL"},
    {"1.8/4", "CONN_UNCOMPAT"},
    {"1.8/5", "CONN_STALE"},
    {"1.8/6", "RDMA_FRAGS"},
    {"1.8/7", "MSG_QUEUE_SIZE"},
    {"1.8/8", "INVALID_SRV_ID"},
    {"1.8/9", "EARLY"},
    {"1.8/cm 10", "IB_CM_REJ_STALE_CONN"},
    {"1.8/cm 8", "no listener"},
    {"1.8/cm other", "other reasons of the CM"},
    {"1.8/iwarp", "-ECONNREFUSED is 28 there, §10.2"},
    {"1.8/garbage", "a reject that is none"},
    {"1.8/bounded", "10 at once, then a pause"},
    {"1.1/request", "what is asked for"},
    {"1.1/timeout", "an answer that does not come"},
    {"limits", "calls that may never be answered"},
    {"1.6/depth", "less depth as no queue pair can be made"},
    {"1.6/failed", "no queue pair at all"},
    {"1.11/addr", "ADDR_ERROR, ROUTE_ERROR"},
    {"1.11/unreachable", "UNREACHABLE"},
    {"1.11/connect", "CONNECT_ERROR"},
    {"1.11/disconnected", "DISCONNECTED before it is up"},
    {"1.11/connack", "a CONNACK that is wrong"},
    {"6.3/expired", "expired on the peer's queue"},
};

/* ---- the request ---- */

static void rows_request(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl;
    struct pe_msg req;

    (void)state;
    soon();
    fl = fake_newest();
    req = asked();
    assert_int_equal(req.version, 0x12);
    assert_int_equal(req.depth, 8);
    assert_int_equal(req.frags, 257);
    assert_int_equal(req.size, 4096);
    assert_int_equal(req.credits, 0);
    assert_true(req.src == peer.my_nid && req.dst == peer.nid);
    assert_true(req.src_stamp != 0 && req.dst_stamp == 0);
    assert_true(fl->dial.privileged);
    assert_int_equal(fl->dial.tos, -1);
    assert_int_equal(fl->dial.timeout_ms, 5000);
    assert_int_equal(fl->retry, 5);
    assert_int_equal(fl->rnr_retry, 6);
    assert_int_equal(fl->open.recv_wrs, 18);
    assert_int_equal(m->done, 0);
    answer(m);
    assert_int_equal(core.ups, 1);
    assert_int_equal(ih_counters().dialled, 1);
    assert_int_equal(ih_counters().conns, 1);
    ih_row("1.1/request");
}

static void rows_no_answer(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ir_advance(12 * IR_SEC);
    assert_int_equal(m->done, 0);
    ir_advance(IR_SEC); /* a quarter of 50 s */
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_NETWORK_TIMEOUT);
    assert_int_equal(core.drops[IB_DROP(DIAL_FAILED)], 1);
    assert_int_equal(core.downs, 1);
    fake_settle();
    assert_int_equal(fake.nlive, 0);
    ih_row("1.1/timeout");
}

static int setup_short(void **state)
{
    ih_defaults();
    ih_opts.timeout = 8;
    return ih_setup(state);
}

/* A quarter of 8 s would be less than it takes. */
static void rows_no_answer_short(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ir_advance(4 * IR_SEC);
    assert_int_equal(m->done, 0);
    ir_advance(2 * IR_SEC);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_NETWORK_TIMEOUT);
    ih_row("1.1/timeout");
}

static int setup_few(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 8;
    return ih_setup(state);
}

/* Of a reactor's eight connections two. */
static void rows_silent(void **state)
{
    static const char *const to[] = {"10.0.0.64", "10.0.0.66", "10.0.0.68"};
    struct ih_msg *m[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        m[i] = ih_send(ih_msg(0, to[i], LNET_MSG_ACK, 0, -1, 1));
    soon();
    assert_int_equal(fake.dials, 2);
    assert_int_equal(m[0]->done + m[1]->done, 0);
    ih_expect(m[2], LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_DROPPED);
    assert_int_equal(core.drops[IB_DROP(CONN_NO_MEMORY)], 1);
    assert_string_equal(core.why.why,
                        "too many calls of this thread wait for an answer (max_connections)");
    ir_advance(5 * IR_SEC); /* the oldest gives way */
    m[2] = ih_send(ih_msg(0, to[2], LNET_MSG_ACK, 0, -1, 1));
    soon();
    assert_int_equal(fake.dials, 3);
    ih_expect(m[0], LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_NETWORK_TIMEOUT);
    assert_int_equal(core.drops[IB_DROP(DIAL_FAILED)], 1);
    assert_int_equal(m[1]->done + m[2]->done, 0);
    ir_advance(61 * IR_SEC); /* they have failed */
    m[0] = ih_send(ih_msg(0, to[0], LNET_MSG_ACK, 0, -1, 1));
    soon();
    assert_int_equal(fake.dials, 4);
    ih_row("limits");
}

/* ---- rejects after which it is tried again at once ---- */

static void rows_stale(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    assert_true(asked().dst_stamp == 0);
    ih_reject(fake_newest(), WHY_STALE, 4711, 8, 257);
    soon();
    assert_int_equal(fake.dials, 2);
    assert_true(asked().dst_stamp == 4711);
    assert_int_equal(m->done, 0);
    peer.stamp = 4711;
    answer(m);
    assert_int_equal(core.drops[IB_DROP(DIAL_REFUSED)], 1);
    assert_int_equal(core.downs, 0);
    ih_row("1.8/5");
}

static void rows_frags(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_FRAGS, STAMP, 8, 256);
    soon();
    assert_int_equal(asked().frags, 256);
    answer(m);
    ih_row("1.8/6");
}

static void rows_frags_no_less(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_FRAGS, STAMP, 8, 257);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    assert_int_equal(core.drops[IB_DROP(DIAL_FAILED)], 1);
    ih_row("1.8/6");
}

static void rows_depth(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_DEPTH, STAMP, 6, 257);
    soon();
    assert_int_equal(asked().depth, 6);
    assert_int_equal(fake_newest()->open.recv_wrs, 14);
    answer(m);
    ih_row("1.8/7");
}

/* What one connection was taught serves the next. */
static void rows_depth_kept(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl;

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_DEPTH, STAMP, 6, 257);
    soon();
    answer(m);
    fl = fake_newest();
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    m = one();
    soon();
    assert_int_equal(asked().depth, 6);
    assert_true(asked().dst_stamp == STAMP);
    /* Until it has restarted. */
    ih_reject(fake_newest(), WHY_STALE, STAMP + 5, 8, 257);
    soon();
    assert_int_equal(asked().depth, 8);
    peer.stamp = STAMP + 5;
    answer(m);
    ih_row("1.8/7");
}

static void rows_depth_too_small(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_DEPTH, STAMP, 3, 257);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("1.8/7");
}

static void rows_cm_stale(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    tell(RDMA_EV_REJECTED, 0, 10);
    soon();
    assert_int_equal(fake.dials, 2);
    answer(m);
    ih_row("1.8/cm 10");
}

/* E-05: what a router sees of a kernel after its restart. */
static void rows_restart_round(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    tell(RDMA_EV_REJECTED, 0, 10);
    soon();
    ih_reject(fake_newest(), WHY_STALE, 99, 8, 257);
    soon();
    assert_true(asked().dst_stamp == 99);
    peer.stamp = 99;
    answer(m);
    ih_row("1.8/5");
}

static void rows_bounded(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(fake.dials, i);
        ih_reject(fake_newest(), WHY_STALE, 100 + i, 8, 257);
        soon();
    }
    assert_int_equal(fake.dials, 11);
    ih_reject(fake_newest(), WHY_STALE, 200, 8, 257);
    soon();
    assert_int_equal(fake.dials, 11);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    ir_advance(2 * IR_SEC);
    m = one();
    soon();
    assert_int_equal(fake.dials, 12);
    answer(m);
    ih_row("1.8/bounded");
}

/* ---- races ---- */

static void rows_race_passive(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl;

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_RACE, STAMP, 8, 257);
    assert_int_equal(m->done, 0);
    fl = ih_called();
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(m);
    ir_advance(10 * IR_SEC);
    assert_int_equal(fake.dials, 1);
    assert_int_equal(core.downs, 0);
    ih_row("1.8/1");
}

static void rows_race_nobody(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_RACE, STAMP, 8, 257);
    ir_advance(IR_SEC / 2);
    assert_int_equal(fake.dials, 1);
    ir_advance(IR_SEC);
    assert_int_equal(fake.dials, 2);
    ih_reject(fake_newest(), WHY_RACE, STAMP, 8, 257);
    ir_advance(IR_SEC);
    assert_int_equal(fake.dials, 2); /* 2 s now */
    ir_advance(2 * IR_SEC);
    assert_int_equal(fake.dials, 3);
    answer(m);
    ih_row("1.8/1");
}

/* A call of the peer's is being answered: it has two seconds. */
static void rows_race_answering(void **state)
{
    struct ih_msg *m = one();
    struct fake_call *call;

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_RACE, STAMP, 8, 257);
    call = ih_call();
    ir_advance(5 * IR_SEC / 2);
    assert_int_equal(fake.dials, 1);
    fake_tell(call->link, RDMA_EV_FAILED, -ENOTCONN, 0, NULL, 0);
    fake_settle();
    ir_advance(IR_SEC);
    assert_int_equal(fake.dials, 2);
    answer(m);
    ih_row("1.8/1");
}

/* ---- rejects that end it ---- */

static void ends(int status, uint8_t why, enum lnet_health health, bool event)
{
    struct ih_msg *m = one();
    unsigned dials, downs = core.downs;

    soon();
    dials = fake.dials;
    if (why != 0)
        ih_reject(fake_newest(), why, STAMP, 8, 257);
    else
        tell(RDMA_EV_REJECTED, 0, status);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, health);
    assert_int_equal(core.downs, downs + 1);
    if (event)
        assert_int_equal(core.drops[IB_DROP(DIAL_FAILED)], 1);
    /* Until its back-off has passed it is not called, and messages end as the last one did. */
    m = one();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, health);
    assert_int_equal(fake.dials, dials);
    ir_advance(IR_SEC + 2000);
    m = one();
    soon();
    assert_int_equal(fake.dials, dials + 1);
    answer(m);
}

static void rows_resources(void **state)
{
    (void)state;
    ends(28, WHY_RESOURCES, LNET_HEALTH_REMOTE_DROPPED, false);
    ih_row("1.8/2");
}

static void rows_fatal(void **state)
{
    (void)state;
    ends(28, WHY_FATAL, LNET_HEALTH_REMOTE_DROPPED, true);
    ih_row("1.8/3");
}

static void rows_never_sent(void **state)
{
    (void)state;
    ends(28, 4, LNET_HEALTH_REMOTE_DROPPED, true);
    ih_row("1.8/4");
}

static void rows_invalid_service(void **state)
{
    (void)state;
    ends(28, 8, LNET_HEALTH_REMOTE_DROPPED, true);
    ih_row("1.8/8");
}

static void rows_cm_no_listener(void **state)
{
    (void)state;
    ends(8, 0, LNET_HEALTH_NETWORK_TIMEOUT, false);
    ih_row("1.8/cm 8");
}

static void rows_cm_other(void **state)
{
    (void)state;
    ends(17, 0, LNET_HEALTH_REMOTE_DROPPED, false);
    ih_row("1.8/cm other");
}

static void rows_garbage(void **state)
{
    struct ih_msg *m = one();
    uint8_t priv[148] = "something that is not LNet";

    (void)state;
    soon();
    fake_tell(fake_newest(), RDMA_EV_REJECTED, 0, 28, priv, sizeof(priv));
    fake_settle();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    ih_row("1.8/garbage");
}

static void rows_iwarp(void **state)
{
    struct ih_msg *m = one();
    struct pe_reject r = {.why = WHY_DEPTH, .stamp = STAMP, .depth = 5, .frags = 257};
    uint8_t buf[24];
    size_t len = pe_reject_encode(&r, buf);

    (void)state;
    soon();
    fake_tell(fake_newest(), RDMA_EV_REJECTED, 0, -ECONNREFUSED, buf, len);
    fake_settle();
    soon();
    assert_int_equal(asked().depth, 5);
    answer(m);
    ih_row("1.8/iwarp");
}

/* Its NIs come up one after the other: messages wait for that, up to their time. */
static void rows_early(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_EARLY, 0, 0, 0);
    assert_int_equal(m->done, 0);
    ir_advance(IR_SEC / 2);
    assert_int_equal(fake.dials, 1);
    ir_advance(IR_SEC);
    assert_int_equal(fake.dials, 2);
    ih_reject(fake_newest(), WHY_EARLY, 0, 0, 0);
    ir_advance(IR_SEC);
    assert_int_equal(fake.dials, 2);
    ir_advance(IR_SEC + 2000);
    assert_int_equal(fake.dials, 3);
    answer(m);
    assert_int_equal(core.downs, 0);
    ih_row("1.8/9");
}

static void rows_early_for_ever(void **state)
{
    struct ih_msg *m = one();
    unsigned dials;

    (void)state;
    soon();
    for (unsigned i = 0; i < 40 && m->done == 0; i++) {
        if (fake.links && fake_newest()->phase == FAKE_CONNECTING)
            ih_reject(fake_newest(), WHY_EARLY, 0, 0, 0);
        ir_advance(IR_SEC);
    }
    ih_expect(m, LNET_DROP_NEXT_HOP_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    fake_settle();
    dials = fake.dials;
    ir_advance(70 * IR_SEC);
    assert_int_equal(fake.dials, dials); /* nobody waits: it is not called any more */
    assert_int_equal(fake.nlive, 0);
    ih_row("1.8/9");
    ih_row("6.3/expired");
}

/* ---- other ends ---- */

static void fails(enum rdma_event_kind kind, int error, enum lnet_health health)
{
    struct ih_msg *m = one();

    soon();
    tell(kind, error, 0);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, health);
    assert_int_equal(core.drops[IB_DROP(DIAL_FAILED)], 1);
    core.drops[IB_DROP(DIAL_FAILED)] = 0;
    assert_int_equal(fake.nlive, 0);
    ir_advance(61 * IR_SEC);
}

static void rows_events(void **state)
{
    (void)state;
    fails(RDMA_EV_FAILED, -ENETDOWN, LNET_HEALTH_LOCAL_DROPPED);
    ih_row("1.11/unreachable");
    fails(RDMA_EV_FAILED, -ENOTCONN, LNET_HEALTH_LOCAL_DROPPED);
    ih_row("1.11/connect");
    fails(RDMA_EV_DISCONNECTED, 0, LNET_HEALTH_LOCAL_DROPPED);
    ih_row("1.11/disconnected");
    fake.manual_resolve = true;
    fails(RDMA_EV_FAILED, -EHOSTUNREACH, LNET_HEALTH_NETWORK_TIMEOUT);
    fails(RDMA_EV_FAILED, -ETIMEDOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    ih_row("1.11/addr");
}

/* The provider is stuck: everything has its time. */
static void rows_stuck(void **state)
{
    struct ih_msg *m;

    (void)state;
    fake.manual_resolve = true;
    m = one();
    ir_advance(35 * IR_SEC);
    ih_expect(m, LNET_DROP_NEXT_HOP_TIMEOUT, LNET_HEALTH_NETWORK_TIMEOUT);
    fake_settle();
    assert_int_equal(fake.nlive, 0);
    fake.manual_resolve = false;
    fake.manual_open = true;
    m = one();
    ir_advance(35 * IR_SEC);
    assert_int_equal(m->done, 1);
    fake_settle();
    assert_int_equal(fake.nlive, 0);
    ih_row("1.11/addr");
}

static void wrong_ack(void (*spoil)(struct pe_msg *m), enum lnet_drop drop)
{
    struct ih_msg *m = one();
    struct fake_link *fl;
    uint8_t buf[PE_MSG];
    struct pe_msg ack;
    size_t len;

    soon();
    fl = fake_newest();
    ih_connack(&ack);
    spoil(&ack);
    len = pe_encode(&ack, buf);
    fake_tell(fl, RDMA_EV_ESTABLISHED, 0, 0, buf, len);
    fake_settle();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_DROPPED);
    assert_int_equal(core.drops[drop], 1);
    assert_int_equal(core.ups, 0);
    assert_int_equal(fl->phase, FAKE_CLOSED);
    core.drops[drop] = 0;
    ir_advance(61 * IR_SEC);
}

static void spoil_type(struct pe_msg *m)
{
    m->type = PE_CONNREQ;
}
static void spoil_version(struct pe_msg *m)
{
    m->version = 0x11;
}
static void spoil_depth(struct pe_msg *m)
{
    m->depth++;
}
static void spoil_frags(struct pe_msg *m)
{
    m->frags++;
}
static void spoil_size(struct pe_msg *m)
{
    m->size = 8192;
}
static void spoil_dst(struct pe_msg *m)
{
    m->dst++;
}
static void spoil_src(struct pe_msg *m)
{
    m->src++;
}
static void spoil_stamp(struct pe_msg *m)
{
    m->dst_stamp++;
}

static void rows_connack(void **state)
{
    (void)state;
    wrong_ack(spoil_type, IB_DROP(CONN_TYPE));
    wrong_ack(spoil_version, IB_DROP(CONN_VERSION));
    wrong_ack(spoil_depth, IB_DROP(CONN_DEPTH));
    wrong_ack(spoil_frags, IB_DROP(CONN_FRAGS));
    wrong_ack(spoil_size, IB_DROP(CONN_SIZE));
    wrong_ack(spoil_dst, IB_DROP(CONN_DEST));
    wrong_ack(spoil_src, IB_DROP(CONN_DEST));
    wrong_ack(spoil_stamp, IB_DROP(CONN_STALE));
    ih_row("1.11/connack");
}

/* ---- queue pairs ---- */

static void rows_less_depth(void **state)
{
    struct ih_msg *m;

    (void)state;
    fake.open_error = -ENOMEM;
    fake.open_errors = 2;
    m = one();
    soon();
    assert_int_equal(asked().depth, 5);
    assert_int_equal(fake_newest()->open.recv_wrs, 12);
    answer(m);
    ih_row("1.6/depth");
}

static void rows_no_queue_pair(void **state)
{
    struct ih_msg *m;

    (void)state;
    fake.open_error = -EIO; /* less of it would not help */
    fake.open_errors = 100;
    m = one();
    soon();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_DROPPED);
    assert_int_equal(100 - fake.open_errors, 1);
    fake.open_error = -ENOMEM;
    fake.open_errors = 100;
    ir_advance(2 * IR_SEC);
    m = one();
    soon();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_LOCAL_DROPPED);
    assert_int_equal(100 - fake.open_errors, 4); /* 8, 6, 5, 4 */
    assert_int_equal(fake.nlive, 0);
    ih_row("1.6/failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_request),
        T(rows_no_answer),
        T_IN(rows_no_answer_short, setup_short),
        T(rows_stale),
        T(rows_frags),
        T(rows_frags_no_less),
        T(rows_depth),
        T(rows_depth_kept),
        T(rows_depth_too_small),
        T(rows_cm_stale),
        T(rows_restart_round),
        T(rows_bounded),
        T(rows_race_passive),
        T(rows_race_nobody),
        T(rows_race_answering),
        T(rows_resources),
        T(rows_fatal),
        T(rows_never_sent),
        T(rows_invalid_service),
        T(rows_cm_no_listener),
        T(rows_cm_other),
        T(rows_garbage),
        T(rows_iwarp),
        T(rows_early),
        T(rows_early_for_ever),
        T(rows_events),
        T(rows_stuck),
        T(rows_connack),
        T(rows_less_depth),
        T(rows_no_queue_pair),
        T_IN(rows_silent, setup_few),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
