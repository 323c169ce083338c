/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The set of connections of a peer: how many, whose, again after a while; the rest of
 * docs/protocol/o2iblnd.md §6.3 where there is none; a peer that restarts while it is called.
 */
#include "lib/base/err.h"
#include "test/unit/ib_dial_test.h"

#include <errno.h>
#include <stdio.h>

static struct ih_row table[] = {
    {"races", "20 in a row, not in all"},
    {"1.10/active", "conns_per_peer"},
    {"1.10/complete", "one that is lost is made again"},
    {"1.10/fewer", "a peer that allows fewer is called no more, until it restarts or all are lost"},
    {"1.10/peer began", "a set of the peer's is left to it"},
    {"6.3/no peer", "no memory for the peer"},
    {"6.3/unlinked", "peer unlinked"},
    {"back-off", "min_reconnect doubling to max_reconnect"},
    {"restart", "the peer answers with another incarnation"},
};

/* ---- several ---- */

static int setup_three(void **state)
{
    ih_defaults();
    ih_opts.conns_per_peer = 3;
    return ih_setup(state);
}

/* The n-th call is under way and comes up; the next one may begin with that. */
static struct fake_link *next_up(unsigned n)
{
    struct fake_link *fl;

    soon();
    assert_int_equal(fake.dials, n);
    fl = ih_answer();
    assert_int_equal(fl->phase, FAKE_UP);
    return fl;
}

static void rows_several(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl[3];

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        fl[i] = next_up(i + 1);
    soon();
    assert_int_equal(fake.dials, 3);
    ih_take(fl[0], PE_IMMEDIATE); /* did not wait for the others */
    ih_expect_ok(m);
    for (unsigned i = 0; i < 3; i++)
        one();
    for (unsigned i = 0; i < 3; i++)
        ih_take(fl[i], PE_IMMEDIATE);
    ih_row("1.10/active");
    /* One is lost: the next message has it made again. */
    fake_tell(fl[1], RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    soon();
    assert_int_equal(fake.dials, 3);
    one();
    next_up(4);
    soon();
    assert_int_equal(fake.dials, 4);
    assert_int_equal(ih_counters().conns, 3);
    ih_row("1.10/complete");
}

static void set_conns(int n)
{
    struct lnd_tunables t = LND_TUNABLES_DEFAULT;
    struct err err = {0};

    t.conns_per_peer = n;
    assert_int_equal(lnd_verbs_ops.ni_set(ih_ni(0), &t, &err), 0);
}

/* What is set while there is a set of connections is for the next one. */
static void rows_several_set(void **state)
{
    struct fake_link *fl;

    (void)state;
    one();
    fl = next_up(1);
    set_conns(2);
    one();
    soon();
    assert_int_equal(fake.dials, 1);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    one();
    next_up(2);
    next_up(3);
    soon();
    assert_int_equal(fake.dials, 3);
    ih_row("1.10/active");
}

/* Nor does it change the set that is being made. */
static void rows_several_set_meanwhile(void **state)
{
    (void)state;
    one();
    next_up(1);
    set_conns(1);
    next_up(2);
    next_up(3);
    soon();
    assert_int_equal(fake.dials, 3);
    ih_row("1.10/active");
}

/* The second is refused: what there is must do, and is not disturbed. */
static void rows_several_refused(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    next_up(1);
    ih_expect_ok(m);
    soon();
    assert_int_equal(fake.dials, 2);
    ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
    soon();
    assert_int_equal(fake.dials, 2);
    assert_int_equal(core.downs, 0);
    m = one();
    ih_expect_ok(m);
    soon();
    assert_int_equal(fake.dials, 2); /* not for each message */
    ir_advance(2 * IR_SEC);
    one();
    soon();
    assert_int_equal(fake.dials, 3);
    ih_row("1.10/complete");
}

/* The peer has taken all that was sent. */
static void give_back(void)
{
    for (struct fake_link *fl = fake.links; fl; fl = fl->next) {
        struct pe_msg m;
        uint8_t n = 0;

        while (fl->phase == FAKE_UP && fake_next(fl, &m))
            n += m.type == PE_IMMEDIATE;
        m = ih_base(PE_NOOP, n);
        if (n > 0)
            ih_say(fl, &m);
    }
}

/* A message each second; any may begin a run, which the peer refuses. Returns how many did. */
static unsigned calls_refused(unsigned seconds)
{
    unsigned first = fake.dials;

    for (unsigned i = 0; i < seconds; i++) {
        unsigned dials = fake.dials;

        ih_expect_ok(one());
        soon();
        if (fake.dials > dials)
            ih_reject(fake_newest(), WHY_RESOURCES, peer.stamp, 8, 257);
        give_back();
        ir_advance(IR_SEC);
    }
    return fake.dials - first;
}

static void lose(struct fake_link *fl)
{
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
}

/* The reject of a full node says only that it has no resources (§1.8). */
static void rows_fewer(void **state)
{
    struct fake_link *fl[2];

    (void)state;
    one();
    fl[0] = next_up(1);
    fl[1] = next_up(2);
    soon();
    ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
    assert_int_equal(calls_refused(100), 4);
    assert_int_equal(calls_refused(300), 0);
    lose(fl[0]); /* it is made again */
    ih_expect_ok(one());
    fl[0] = next_up(8);
    assert_int_equal(calls_refused(100), 0);
    lose(fl[0]);
    lose(fl[1]);
    one();
    for (unsigned i = 0; i < 3; i++)
        next_up(9 + i);
    ih_row("1.10/fewer");
}

/* Its connections of before end with the first of the new incarnation, §1.8. */
static void rows_fewer_restarted(void **state)
{
    struct fake_link *fl;

    (void)state;
    one();
    next_up(1);
    fl = next_up(2);
    soon();
    ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
    assert_int_equal(calls_refused(100), 4);
    lose(fl);
    ih_expect_ok(one());
    peer.stamp++;
    for (unsigned i = 0; i < 3; i++)
        next_up(8 + i);
    assert_int_equal(ih_counters().conns, 3);
    ih_row("1.10/fewer");
}

static void rows_peer_began(void **state)
{
    struct fake_link *fl = ih_called();
    struct ih_msg *m = one();

    (void)state;
    ih_take(fl, PE_IMMEDIATE);
    ih_expect_ok(m);
    soon();
    assert_int_equal(fake.dials, 0);
    ih_row("1.10/peer began");
}

/* ---- the rest of §6.3 ---- */

static int setup_few(void **state)
{
    ih_defaults();
    ih_opts.verbs.max_conns = 3;
    return ih_setup(state);
}

/* Three peers are in use; one that is only remembered makes room for another. */
static void rows_no_peer(void **state)
{
    static const char *const address[] = {"10.0.0.2", "10.0.0.4", "10.0.0.6", "10.0.0.8"};
    struct ih_msg *m[4];

    for (unsigned i = 0; i < 4; i++) {
        ih_persona_is(address[i]);
        ih_peer(0, address[i])->gw_ni = (void *)state; /* all are called at once */
        m[i] = one();
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(m[i]->done, 0);
    ih_expect(m[3], LNET_DROP_NO_PEER_MEMORY, LNET_HEALTH_LOCAL_ERROR);
    soon();
    ih_reject(fake_newest(), WHY_FATAL, STAMP, 8, 257);
    assert_int_equal(m[2]->done, 1);
    m[3] = one();
    assert_int_equal(m[3]->done, 0);
    ih_row("6.3/no peer");
}

static void rows_unlinked(void **state)
{
    struct ih_msg *m = one();
    struct reactor *before;

    (void)state;
    soon();
    before = ir_on(0);
    lnd_verbs_ops.peer_abort(ih_ni(0), m->msg.tx_peer, LNET_DROP_NI_REMOVED);
    ir_restore(before);
    ih_expect(m, LNET_DROP_NI_REMOVED, LNET_HEALTH_LOCAL_ABORTED);
    fake_settle();
    assert_int_equal(fake.nlive, 0);
    ih_row("6.3/unlinked");
}

static void backs_off(const unsigned *seconds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct ih_msg *m = one();

        soon();
        assert_int_equal(fake.dials, i + 1);
        ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
        assert_int_equal(m->done, 1);
        ir_advance(seconds[i] * IR_SEC - IR_SEC / 2);
        m = one();
        assert_int_equal(m->done, 1);
        assert_int_equal(fake.dials, i + 1);
        ir_advance(IR_SEC / 2);
    }
    ih_row("back-off");
}

static void rows_back_off(void **state)
{
    static const unsigned seconds[] = {1, 2, 4, 8, 16, 32, 60, 60};

    (void)state;
    backs_off(seconds, 8);
}

static int setup_reconnect(void **state)
{
    ih_defaults();
    ih_opts.verbs.min_reconnect = 2;
    ih_opts.verbs.max_reconnect = 5;
    return ih_setup(state);
}

static void rows_back_off_set(void **state)
{
    static const unsigned seconds[] = {2, 4, 5, 5};

    (void)state;
    backs_off(seconds, 4);
}

/* A success ends it. */
static void rows_back_off_ends(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        soon();
        ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
        ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
        ir_advance(IR_SEC + 2000);
        m = one();
        soon();
        answer(m);
        fake_tell(fake_newest(), RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
        fake_settle();
        m = one(); /* at once */
        assert_int_equal(m->done, 0);
    }
    soon();
    answer(m);
    ih_row("back-off");
}

/* So does a call of the peer's: it is there again. */
static void rows_back_off_called(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl;

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_RESOURCES, STAMP, 8, 257);
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    fl = ih_called();
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    peer.my_stamp = 0;
    m = one();
    assert_int_equal(m->done, 0);
    soon();
    answer(m);
    ih_row("back-off");
}

/* Races are counted in a row: a connection that is up ends that. */
static void rows_races(void **state)
{
    struct ih_msg *m;

    (void)state;
    ih_persona_is("10.0.0.0"); /* lower than ours both ways */
    for (unsigned round = 0; round < 2; round++) {
        m = one();
        soon();
        for (unsigned i = 0; i < 20; i++)
            assert_true(ih_call()->rejected);
        answer(m);
        fake_tell(fake_newest(), RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
        fake_settle();
        peer.my_stamp = 0;
    }
    ih_row("races");
}

/* Our call fails while one of the peer's is being answered: messages wait for that. */
static void rows_failed_while_called(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *ours;
    struct fake_call *call;
    struct pe_msg ack;

    (void)state;
    soon();
    ours = fake_newest();
    call = ih_call();
    ih_reject(ours, WHY_RESOURCES, STAMP, 8, 257);
    assert_int_equal(m->done, 0);
    assert_int_equal(core.downs, 0);
    assert_true(pe_decode(call->link->priv, call->link->priv_len, &ack));
    peer.my_stamp = ack.src_stamp;
    fake_tell(call->link, RDMA_EV_ESTABLISHED, 0, 0, NULL, 0);
    fake_settle();
    ih_take(call->link, PE_IMMEDIATE);
    ih_expect_ok(m);
    ih_row("1.10/peer began");
}

/* The same, and that fails too: not called again before the back-off has passed. */
static void rows_failed_and_called(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *ours;
    struct fake_call *call;

    (void)state;
    soon();
    ours = fake_newest();
    call = ih_call();
    ih_reject(ours, WHY_RESOURCES, STAMP, 8, 257);
    fake_tell(call->link, RDMA_EV_FAILED, -ENOTCONN, 0, NULL, 0);
    fake_settle();
    ih_expect(m, LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_DROPPED);
    assert_int_equal(fake.dials, 1);
    ih_row("back-off");
}

/* It lost the race and what there is now is the peer's: so is the rest of the set. */
static void rows_race_set(void **state)
{
    struct ih_msg *m = one();

    (void)state;
    soon();
    ih_reject(fake_newest(), WHY_RACE, STAMP, 8, 257);
    ih_take(ih_called(), PE_IMMEDIATE);
    ih_expect_ok(m);
    ir_advance(10 * IR_SEC);
    one();
    ir_advance(10 * IR_SEC);
    assert_int_equal(fake.dials, 1);
    ih_row("1.10/peer began");
}

/* It is up in another life than its other connections are of. */
static void rows_restart(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *old;

    (void)state;
    old = next_up(1);
    ih_expect_ok(m);
    peer.stamp++;
    next_up(2);
    fake_settle();
    assert_int_equal(old->phase, FAKE_CLOSED);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 1);
    assert_int_equal(ih_counters().conns, 1);
    ih_row("restart");
}

/* The peer has restarted and is heard of by its own call first: that one is not of its old life. */
static void rows_restart_called(void **state)
{
    struct ih_msg *m = one();
    struct fake_link *fl, *ours;

    (void)state;
    fl = next_up(1);
    ih_expect_ok(m);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    one();
    soon();
    ours = fake_newest();
    assert_true(asked().dst_stamp == STAMP);
    peer.stamp++;
    fl = ih_called();
    ih_take(fl, PE_IMMEDIATE);
    ih_reject(ours, WHY_STALE, peer.stamp, 8, 257);
    soon();
    assert_int_equal(fl->phase, FAKE_UP);
    assert_int_equal(core.events[LNET_NODE_EV_PEER_RESTART], 1);
    ih_row("restart");
}

/* We ask for less than 8 and 257, as a reject has taught us; then the peer calls in another life,
 * so that we would ask for that again; then our call is accepted, with more than it asked for. */
static void too_much(uint8_t why, uint16_t depth, uint16_t frags, enum lnet_drop drop)
{
    struct ih_msg *m = one();
    struct fake_link *fl, *ours;
    uint8_t buf[PE_MSG];
    struct pe_msg ack;
    size_t len;

    soon();
    ih_reject(fake_newest(), why, STAMP, depth, frags);
    soon();
    fl = ih_answer();
    ih_expect_ok(m);
    fake_tell(fl, RDMA_EV_DISCONNECTED, 0, 0, NULL, 0);
    fake_settle();
    one();
    soon();
    ours = fake_newest();
    ih_connack(&ack);
    assert_int_equal(ack.depth, depth);
    assert_int_equal(ack.frags, frags);
    if (why == WHY_DEPTH)
        ack.depth++;
    else
        ack.frags++;
    ack.src_stamp = ++peer.stamp;
    fl = ih_called();
    ih_take(fl, PE_IMMEDIATE);
    len = pe_encode(&ack, buf);
    fake_tell(ours, RDMA_EV_ESTABLISHED, 0, 0, buf, len);
    fake_settle();
    assert_int_equal(core.drops[drop], 1);
    assert_int_equal(ours->phase, FAKE_CLOSED);
    assert_int_equal(fl->phase, FAKE_UP);
    ih_row("restart");
}

static void rows_restart_depth(void **state)
{
    (void)state;
    too_much(WHY_DEPTH, 6, 257, IB_DROP(CONN_DEPTH));
}

static void rows_restart_frags(void **state)
{
    (void)state;
    too_much(WHY_FRAGS, 8, 256, IB_DROP(CONN_FRAGS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T_IN(rows_several, setup_three),
        T(rows_several_set),
        T_IN(rows_several_set_meanwhile, setup_three),
        T_IN(rows_several_refused, setup_three),
        T_IN(rows_fewer, setup_three),
        T_IN(rows_fewer_restarted, setup_three),
        T(rows_peer_began),
        T_IN(rows_no_peer, setup_few),
        T(rows_unlinked),
        T(rows_back_off),
        T_IN(rows_back_off_set, setup_reconnect),
        T(rows_back_off_ends),
        T(rows_back_off_called),
        T(rows_races),
        T(rows_failed_while_called),
        T(rows_failed_and_called),
        T_IN(rows_race_set, setup_three),
        T_IN(rows_restart, setup_three),
        T(rows_restart_called),
        T(rows_restart_depth),
        T(rows_restart_frags),
    };

    ih_rows(table, sizeof(table) / sizeof(table[0]));
    return ih_rows_report(cmocka_run_group_tests(tests, NULL, NULL));
}
