/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a connection was not made or was lost: how that is counted and told, docs/protocol/o2iblnd.md
 * §1.11, §6.3.
 */
#include "test/unit/ib_dial_test.h"

#include <errno.h>

static struct ih_row table[] = {
    {"1.11/late", "a call that was answered: UNREACHABLE, as no answer came in time"},
    {"1.7/12", "too many callers: NO_RESOURCES"},
    {"1.8/words", "each reject in words"},
    {"1.11/words", "each other end of a call in words"},
    {"6.3/words", "a connection that is lost: what the device said"},
    {"1.7/words", "a call of the peer's that comes to nothing"},
    {"1.6/shown", "the depth that a peer is held to, and how many calls it took"},
    {"1.11/route", "no path is as good as no address"},
};

/* ---- how it is counted ---- */

static void answered_and_failed(int error, int status, enum lnet_drop drop)
{
    struct fake_call *call = ih_call();
    unsigned before = core.drops[drop];

    fake_tell(call->link, RDMA_EV_FAILED, error, status, NULL, 0);
    fake_settle();
    assert_int_equal(core.drops[drop], before + 1);
}

static void rows_late(void **state)
{
    (void)state;
    answered_and_failed(-ENETDOWN, -ETIMEDOUT, IB_DROP(CONN_TIMEOUT));
    answered_and_failed(-ENETDOWN, -ENETUNREACH, IB_DROP(CONN_ACCEPT));
    ih_row("1.11/late");
}

static void rows_route(void **state)
{
    struct ih_msg *m;

    (void)state;
    fake.manual_resolve = true;
    m = one();
    soon();
    tell(RDMA_EV_FAILED, -ENETUNREACH, -ETIMEDOUT);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_NETWORK_TIMEOUT);
    ih_row("1.11/route");
}

static void rows_busy(void **state)
{
    const struct rdma_listener *l = fake_listener(0);
    struct ib_reject rej;

    (void)state;
    assert_int_equal(ib_reject_decode(l->busy, l->busy_len, &rej), LNET_DROP_NONE);
    assert_int_equal(rej.version, 0x12);
    assert_int_equal(rej.why, WHY_RESOURCES);
    ih_row("1.7/12");
}

/* ---- how it is told ---- */

static struct {
    struct verbs_peer_row peer;
    struct verbs_conn_row conn;
    unsigned peers, conns;
} seen;

static void see(void *arg, const void *all)
{
    const struct verbs_rows *rows = all;
    (void)arg;
    seen.peers = rows->npeers;
    seen.conns = rows->nconns;
    if (rows->npeers > 0)
        seen.peer = rows->peers[0];
    if (rows->nconns > 0)
        seen.conn = rows->conns[0];
}

static void look(void)
{
    memset(&seen, 0, sizeof(seen));
    assert_int_equal(lnd_verbs_conns(ih_ni(0), 4, see, NULL), 0);
    fake_settle();
}

/* The drop has it, and the peer. */
static void expect_why(enum lnet_drop drop, const char *stage, const char *part, int code)
{
    assert_string_equal(core.why.stage, stage);
    if (!strstr(core.why.why, part))
        fail_msg("\"%s\" is not in \"%s\"", part, core.why.why);
    assert_int_equal(core.why.code, code);
    look();
    assert_int_equal(seen.peers, 1);
    assert_int_equal(seen.peer.failed, drop);
    assert_string_equal(seen.peer.why.stage, stage);
    assert_ptr_equal(seen.peer.why.why, core.why.why);
    assert_int_equal(seen.peer.why.code, code);
    memset(&core.why, 0, sizeof(core.why));
}

static void next_round(void)
{
    ir_advance(61 * IR_SEC);
    fake_settle();
}

static void refused_by(uint8_t why, enum lnet_drop drop, const char *part)
{
    one();
    soon();
    ih_reject(fake_newest(), why, STAMP, 8, 257); /* and no less of anything */
    expect_why(drop, "connecting", part, why);
    next_round();
}

static void rejected_by(int status, const char *part)
{
    one();
    soon();
    tell(RDMA_EV_REJECTED, 0, status);
    expect_why(IB_DROP(DIAL_REFUSED), "connecting", part, status);
    next_round();
}

static void rows_words(void **state)
{
    (void)state;
    refused_by(WHY_RESOURCES, IB_DROP(DIAL_REFUSED), "no memory or no queue pair");
    look();
    assert_string_equal(seen.peer.state, "idle"); /* the pause is over */
    assert_int_equal(ih_counters().failed, 1);
    refused_by(WHY_FATAL, IB_DROP(DIAL_FAILED), "refused for good");
    refused_by(WHY_FRAGS, IB_DROP(DIAL_FAILED), "fewer fragments");
    refused_by(WHY_DEPTH, IB_DROP(DIAL_FAILED), "peer_credits");
    refused_by(42, IB_DROP(DIAL_FAILED), "not known here");
    rejected_by(3, "no resources");
    rejected_by(4, "gave up waiting");
    rejected_by(8, "nobody listens");
    rejected_by(28, "not o2iblnd's");
    rejected_by(-ECONNREFUSED, "not o2iblnd's");
    rejected_by(99, "its connection manager");
    ih_row("1.8/words");
}

static void fails(int error, int status, const char *stage, const char *part)
{
    one();
    soon();
    tell(RDMA_EV_FAILED, error, status);
    expect_why(IB_DROP(DIAL_FAILED), stage, part, status != 0 ? status : error);
    look();
    assert_string_equal(seen.peer.state, "down");
    assert_true(seen.peer.again_us > 0);
    next_round();
    look();
    assert_true(seen.peer.failed_age_us >= 61 * IR_SEC);
}

static void rows_ends(void **state)
{
    (void)state;
    fails(-ENETDOWN, -ETIMEDOUT, "connecting", "unreachable");
    fails(-ENOTCONN, 0, "connecting", "could not connect");
    fake.manual_resolve = true;
    fails(-EHOSTUNREACH, -ETIMEDOUT, "resolving", "address");
    fails(-ENETUNREACH, -EINVAL, "resolving", "route");
    fake.manual_resolve = false;
    one();
    soon();
    ir_advance(13 * IR_SEC); /* nothing at all is said */
    expect_why(IB_DROP(DIAL_FAILED), "connecting", "no answer in time", -ETIMEDOUT);
    next_round();
    one();
    soon();
    tell(RDMA_EV_DISCONNECTED, 0, 0);
    expect_why(IB_DROP(DIAL_FAILED), "connecting", "ended before", -ECONNRESET);
    next_round();
    fake.open_error = -EPERM;
    fake.open_errors = 1;
    one();
    soon();
    expect_why(IB_DROP(DIAL_FAILED), "opening", "failed", -EPERM);
    ih_row("1.11/words");
}

static void breaks(enum ibv_wc_status status, const char *part)
{
    struct fake_link *fl = ih_called();

    fl->hold_sends = true;
    one();
    fake_settle();
    fake_fail_send(fl, status);
    fake_settle();
    expect_why(IB_DROP(SEND), "up", part, (int)status);
    next_round();
}

static void rows_lost(void **state)
{
    (void)state;
    breaks(IBV_WC_RETRY_EXC_ERR, "acknowledges nothing");
    breaks(IBV_WC_RNR_RETRY_EXC_ERR, "no receive buffer");
    breaks(IBV_WC_REM_ACCESS_ERR, "where it told us to");
    breaks(IBV_WC_REM_OP_ERR, "what was asked of it");
    fake_tell(ih_called(), RDMA_EV_DISCONNECTED, -EIO, 0, NULL, 0);
    fake_settle();
    expect_why(IB_DROP(LOST), "up", "failed", -EIO);
    ih_row("6.3/words");
}

static void rows_called(void **state)
{
    struct fake_call *call = ih_call();

    (void)state;
    fake_tell(call->link, RDMA_EV_FAILED, -ENETDOWN, -ETIMEDOUT, NULL, 0);
    fake_settle();
    expect_why(IB_DROP(CONN_TIMEOUT), "accepting", "unreachable", -ETIMEDOUT);
    ih_row("1.7/words");
}

/* What it took to bring a connection up, and what is left of a lack of memory that is over. */
static void rows_shown(void **state)
{
    struct ih_msg *m;

    (void)state;
    m = one();
    soon();
    ih_reject(fake_newest(), WHY_STALE, 4711, 8, 257);
    look();
    assert_int_equal(seen.peer.retries, 1);
    soon();
    look();
    assert_int_equal(seen.conn.retries, 1);
    fake.open_error = -ENOMEM;
    fake.open_errors = 1;
    ih_reject(fake_newest(), WHY_STALE, 4712, 8, 257);
    soon();
    peer.stamp = 4712;
    answer(m);
    look();
    assert_string_equal(seen.conn.state, "up");
    assert_int_equal(seen.conn.retries, 2);
    assert_string_equal(seen.peer.state, "up");
    assert_int_equal(seen.peer.retries, 0);
    assert_int_equal(seen.peer.conns, 1);
    assert_int_equal(seen.peer.depth_max, 6);
    assert_int_equal(ih_counters().retried, 2);
    assert_int_equal(ih_counters().failed, 0);
    ih_row("1.6/shown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_late), T(rows_route), T(rows_busy),   T(rows_words),
        T(rows_ends), T(rows_lost),  T(rows_called), T(rows_shown),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
