/* SPDX-License-Identifier: BSD-3-Clause */
/* Credits of a connection, rule by rule: docs/protocol/o2iblnd.md §3. */
#include "lib/lnd_verbs/ib_credits.h"
#include "test/unit/wire_bytes.h"

#include "test/drops_test.h"
#include <setjmp.h>
#include <cmocka.h>

REGISTER_DROPS(ib_drops);

#define ROWS(t) (sizeof(t) / sizeof((t)[0]))
#define DEPTH   8
#define HIW     4

static struct ib_credits c;

static void fresh(void)
{
    ib_credits_init(&c, DEPTH, HIW, 2 * DEPTH);
}

static void assert_drop(enum lnet_drop got, enum lnet_drop want)
{
    assert_string_equal(lnet_drop_info(got)->name, lnet_drop_info(want)->name);
}

static void assert_counters(unsigned credits, unsigned owed, unsigned reserved)
{
    assert_int_equal(c.credits, credits);
    assert_int_equal(c.owed, owed);
    assert_int_equal(c.reserved, reserved);
}

/* Sends one message as a connection would, its completion included. */
static unsigned send_one(unsigned type)
{
    unsigned returned;

    if (ib_class_of(type) == IB_CLASS_REQUEST)
        assert_true(ib_credits_reserve(&c));
    assert_int_equal(ib_credits_may_post(&c, type), IB_MAY_POST);
    returned = ib_credits_post(&c, type);
    ib_credits_sent(&c, type);
    return returned;
}

static void take_one(unsigned type, unsigned returned, bool acked)
{
    assert_drop(ib_credits_receive(&c, type, (uint8_t)returned), LNET_DROP_NONE);
    ib_credits_repost(&c, type, acked);
}

/* §3.1 */
static void test_start(void **state)
{
    fresh();
    assert_counters(8, 0, 8);
    assert_int_equal(c.sends, 0);
    assert_int_equal(c.noops, 0);
    assert_int_equal(ib_rx_buffers(8), 18); /* §7, at defaults */
    assert_int_equal(ib_rx_buffers(255), 512);
}

/* §3.2 */
static void test_classes(void **state)
{
    static const struct {
        unsigned type;
        enum ib_class class;
        unsigned credits, reserved; /* what is left */
    } rows[] = {
        {IB_PUT_REQ, IB_CLASS_REQUEST, 7, 7}, {IB_GET_REQ, IB_CLASS_REQUEST, 7, 7},
        {IB_IMMEDIATE, IB_CLASS_SEND, 7, 8},  {IB_PUT_ACK, IB_CLASS_ANSWER, 8, 8},
        {IB_PUT_NAK, IB_CLASS_ANSWER, 8, 8},  {IB_PUT_DONE, IB_CLASS_ANSWER, 8, 8},
        {IB_GET_DONE, IB_CLASS_ANSWER, 8, 8}, {IB_NOOP, IB_CLASS_NOOP, 8, 8},
    };

    for (size_t i = 0; i < ROWS(rows); i++) {
        fresh();
        assert_int_equal(ib_class_of(rows[i].type), rows[i].class);
        assert_int_equal(send_one(rows[i].type), 0);
        assert_counters(rows[i].credits, 0, rows[i].reserved);
    }
}

/* §3.3 step 4: without credit nothing but what needs none; one that comes lets one go. */
static void test_no_credit(void **state)
{
    fresh();
    for (unsigned i = 0; i < DEPTH; i++)
        send_one(IB_IMMEDIATE);
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_WAIT_CREDIT);
    assert_int_equal(ib_credits_may_post(&c, IB_PUT_REQ), IB_MAY_WAIT_CREDIT);
    assert_int_equal(ib_credits_may_post(&c, IB_GET_REQ), IB_MAY_WAIT_CREDIT);
    assert_int_equal(ib_credits_may_post(&c, IB_PUT_ACK), IB_MAY_POST);
    assert_int_equal(ib_credits_may_post(&c, IB_PUT_DONE), IB_MAY_POST);
    assert_int_equal(ib_credits_may_post(&c, IB_NOOP), IB_MAY_POST);
    take_one(IB_NOOP, 1, false);
    send_one(IB_IMMEDIATE);
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_WAIT_CREDIT);
}

/* §3.3 step 2: the reserve runs out before the credits do, and only an answer brings it back. */
static void test_reserve(void **state)
{
    fresh();
    for (unsigned i = 0; i < DEPTH; i++)
        send_one(IB_PUT_REQ);
    take_one(IB_NOOP, DEPTH, false); /* credits are back, answers are not */
    assert_counters(8, 0, 0);
    assert_false(ib_credits_reserve(&c));
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_POST);
    take_one(IB_PUT_NAK, 0, false);
    assert_true(ib_credits_reserve(&c));
    assert_false(ib_credits_reserve(&c));
}

/* §3.3 step 4: the number of sends under way is bounded, for all alike. */
static void test_sends_max(void **state)
{
    ib_credits_init(&c, DEPTH, HIW, 2);
    ib_credits_post(&c, IB_PUT_ACK);
    ib_credits_post(&c, IB_IMMEDIATE);
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_WAIT_SEND);
    assert_int_equal(ib_credits_may_post(&c, IB_PUT_ACK), IB_MAY_WAIT_SEND);
    assert_int_equal(ib_credits_may_post(&c, IB_NOOP), IB_MAY_WAIT_SEND);
    ib_credits_sent(&c, IB_PUT_ACK);
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_POST);
}

/* §3.3 step 4, §3.6: a third NOOP is dropped until one of two is completed. */
static void test_two_noops(void **state)
{
    fresh();
    ib_credits_post(&c, IB_NOOP);
    assert_int_equal(ib_credits_may_post(&c, IB_NOOP), IB_MAY_POST);
    ib_credits_post(&c, IB_NOOP);
    assert_int_equal(ib_credits_may_post(&c, IB_NOOP), IB_MAY_DISCARD);
    assert_int_equal(ib_credits_may_post(&c, IB_IMMEDIATE), IB_MAY_POST);
    ib_credits_sent(&c, IB_NOOP);
    assert_int_equal(ib_credits_may_post(&c, IB_NOOP), IB_MAY_POST);
    assert_counters(8, 0, 8);
}

/* §3.3 step 5: whatever goes first takes all that is owed along. */
static void test_piggy_back(void **state)
{
    static const unsigned types[] = {IB_IMMEDIATE, IB_PUT_REQ,  IB_GET_REQ,  IB_PUT_ACK,
                                     IB_PUT_NAK,   IB_PUT_DONE, IB_GET_DONE, IB_NOOP};

    for (size_t i = 0; i < ROWS(types); i++) {
        fresh();
        take_one(IB_IMMEDIATE, 0, false);
        take_one(IB_IMMEDIATE, 0, false);
        take_one(IB_IMMEDIATE, 0, false);
        assert_int_equal(c.owed, 3);
        assert_int_equal(send_one(types[i]), 3);
        assert_int_equal(c.owed, 0);
        assert_int_equal(c.spent, 0);
        assert_int_equal(send_one(types[i]), 0);
    }
}

/* §3.3 step 5: a post that fails leaves everything as it was. */
static void test_unpost(void **state)
{
    static const unsigned types[] = {IB_IMMEDIATE, IB_PUT_REQ, IB_PUT_ACK, IB_NOOP};
    struct ib_credits before;
    uint8_t returned;

    for (size_t i = 0; i < ROWS(types); i++) {
        fresh();
        take_one(IB_IMMEDIATE, 0, false);
        take_one(IB_IMMEDIATE, 0, false);
        if (types[i] == IB_PUT_REQ)
            ib_credits_reserve(&c);
        before = c;
        returned = ib_credits_post(&c, types[i]);
        assert_memory_not_equal(&c, &before, sizeof(c));
        ib_credits_unpost(&c, types[i], returned);
        assert_memory_equal(&c, &before, sizeof(c));
    }
}

/* §3.4: every combination. */
static void test_need_noop(void **state)
{
    static const struct {
        unsigned owed;
        bool idle, sends, no_credit, need;
    } rows[] = {
        {0, false, false, false, false}, {3, false, false, false, false}, /* one below the mark */
        {4, false, false, false, true},  {8, false, false, false, true},
        {0, true, false, false, true},  /* keepalive */
        {4, false, true, false, false}, /* so does a message with a credit */
        {4, false, true, true, true},   /* but not one without */
        {4, false, false, true, true},   {3, false, true, true, false},
        {0, true, true, false, false},   {0, true, true, true, true},
    };

    for (size_t i = 0; i < ROWS(rows); i++) {
        fresh();
        for (unsigned k = 0; k < rows[i].owed; k++)
            take_one(IB_IMMEDIATE, 0, false);
        for (unsigned k = 0; rows[i].no_credit && k < DEPTH; k++)
            c.credits--;
        if (ib_credits_need_noop(&c, rows[i].idle, rows[i].sends) != rows[i].need)
            fail_msg("row %zu", i);
    }
}

/* §3.4, §3.6, §7 */
static void test_hiw(void **state)
{
    static const struct {
        unsigned depth, peer_credits, hiw, want;
    } rows[] = {
        {8, 8, 0, 4},                                       /* the default */
        {8, 8, 4, 4},       {8, 8, 7, 7},     {8, 8, 8, 7}, /* above: peer_credits - 1 */
        {8, 8, 1, 4},                                       /* below: half */
        {32, 32, 16, 16},                                   /* the OPA profile */
        {8, 32, 16, 4},                                     /* in proportion */
        {8, 128, 64, 4},    {8, 255, 254, 7}, {63, 128, 64, 31},
        {255, 255, 0, 127}, {4, 255, 254, 3}, /* never the whole depth */
        {4, 8, 0, 2},
    };
    unsigned depth, peer_credits, hiw;

    for (size_t i = 0; i < ROWS(rows); i++) {
        if (ib_credits_hiw(rows[i].depth, rows[i].peer_credits, rows[i].hiw) != rows[i].want)
            fail_msg("row %zu: %u", i,
                     ib_credits_hiw(rows[i].depth, rows[i].peer_credits, rows[i].hiw));
    }
    for (peer_credits = 8; peer_credits <= 255; peer_credits += 13) {
        for (depth = IB_DEPTH_MIN; depth <= IB_DEPTH_MAX; depth++) {
            for (hiw = 0; hiw <= 300; hiw += 25) {
                unsigned got = ib_credits_hiw(depth, peer_credits, hiw);

                assert_true(got >= 1 && got <= depth - 1);
            }
        }
    }
}

/* §3.5, row by row. */
static void test_received(void **state)
{
    static const struct {
        const char *what;
        unsigned type;
        bool acked;
        unsigned owed, reserved; /* afterwards; 7 requests are out, one PUT_REQ is acked */
    } rows[] = {
        {"IMMEDIATE", IB_IMMEDIATE, false, 1, 1},
        {"PUT_REQ, acked", IB_PUT_REQ, true, 0, 1},
        {"PUT_REQ, refused", IB_PUT_REQ, false, 1, 1},
        {"PUT_DONE", IB_PUT_DONE, false, 1, 1},
        {"GET_REQ", IB_GET_REQ, false, 1, 1},
        {"PUT_ACK", IB_PUT_ACK, false, 0, 2},
        {"PUT_NAK", IB_PUT_NAK, false, 0, 2},
        {"GET_DONE", IB_GET_DONE, false, 0, 2},
        {"NOOP", IB_NOOP, false, 0, 1},
    };

    for (size_t i = 0; i < ROWS(rows); i++) {
        fresh();
        for (unsigned k = 0; k < 7; k++)
            send_one(IB_PUT_REQ);
        take_one(IB_PUT_REQ, 0, true);
        assert_counters(1, 0, 1);
        take_one(rows[i].type, 0, rows[i].acked);
        if (c.owed != rows[i].owed || c.reserved != rows[i].reserved || c.credits != 1)
            fail_msg("%s: owed %u, reserved %u", rows[i].what, c.owed, c.reserved);
    }
}

/* The credit of a PUT_REQ goes back once, with PUT_DONE. */
static void test_put(void **state)
{
    fresh();
    take_one(IB_PUT_REQ, 0, true);
    assert_int_equal(c.spent, 1);
    assert_int_equal(send_one(IB_PUT_ACK), 0);
    assert_int_equal(c.spent, 1);
    take_one(IB_PUT_DONE, 0, false);
    assert_int_equal(send_one(IB_IMMEDIATE), 1);
    assert_int_equal(c.spent, 0);
}

/* §3.7: what a faulty peer does costs the connection. */
static void test_returned_too_many(void **state)
{
    fresh();
    assert_drop(ib_credits_receive(&c, IB_NOOP, 1), IB_DROP(CREDITS));
    fresh();
    send_one(IB_IMMEDIATE);
    send_one(IB_IMMEDIATE);
    assert_drop(ib_credits_receive(&c, IB_IMMEDIATE, 2), LNET_DROP_NONE);
    assert_drop(ib_credits_receive(&c, IB_IMMEDIATE, 1), IB_DROP(CREDITS));
    fresh();
    assert_drop(ib_credits_receive(&c, IB_NOOP, 255), IB_DROP(CREDITS));
    send_one(IB_NOOP); /* costs none, so none may come for it */
    assert_drop(ib_credits_receive(&c, IB_NOOP, 1), IB_DROP(CREDITS));
}

static void test_spent_too_many(void **state)
{
    static const unsigned types[] = {IB_IMMEDIATE, IB_PUT_REQ, IB_GET_REQ};

    for (size_t i = 0; i < ROWS(types); i++) {
        fresh();
        for (unsigned k = 0; k < DEPTH; k++)
            assert_drop(ib_credits_receive(&c, types[k % 3], 0), LNET_DROP_NONE);
        assert_drop(ib_credits_receive(&c, IB_NOOP, 0), LNET_DROP_NONE);
        assert_drop(ib_credits_receive(&c, types[i], 0), IB_DROP(SPENT));
        fresh();
        for (unsigned k = 0; k < DEPTH; k++)
            take_one(IB_IMMEDIATE, 0, false);
        assert_int_equal(send_one(IB_NOOP), DEPTH); /* now it has been told */
        for (unsigned k = 0; k < DEPTH; k++)
            take_one(types[i], 0, false);
        assert_drop(ib_credits_receive(&c, types[i], 0), IB_DROP(SPENT));
    }
}

static void test_unasked(void **state)
{
    static const unsigned types[] = {IB_PUT_ACK, IB_PUT_NAK, IB_GET_DONE, IB_PUT_DONE};

    for (size_t i = 0; i < ROWS(types); i++) {
        fresh();
        assert_drop(ib_credits_receive(&c, types[i], 0), IB_DROP(ANSWER));
        fresh();
        if (types[i] == IB_PUT_DONE)
            take_one(IB_PUT_REQ, 0, true);
        else
            send_one(IB_GET_REQ);
        take_one(types[i], 0, false);
        assert_drop(ib_credits_receive(&c, types[i], 0), IB_DROP(ANSWER));
    }
    fresh(); /* a reserve alone is no question yet */
    assert_true(ib_credits_reserve(&c));
    assert_drop(ib_credits_receive(&c, IB_PUT_ACK, 0), IB_DROP(ANSWER));
    fresh(); /* refused PUT_REQs have no PUT_DONE */
    take_one(IB_PUT_REQ, 0, false);
    assert_drop(ib_credits_receive(&c, IB_PUT_DONE, 0), IB_DROP(ANSWER));
}

/* ---- two sides, at random ---- */

#define PIPE 64

struct side {
    struct ib_credits c;
    struct {
        uint8_t type, returned;
    } pipe[PIPE]; /* towards this side */
    unsigned head, tail;
    unsigned held_imm, held_put, held_get, held_acked; /* messages being worked on, by kind */
    unsigned posted_buffers;                           /* receives that are posted */
    unsigned posted[2];                                /* sends not completed: others, NOOPs */
    unsigned want_done;                                /* PUT_ACKs to be followed by PUT_DONE */
    unsigned long long sent, noops;
};

static struct side sides[2];

static void emit(unsigned who, unsigned type)
{
    struct side *me = &sides[who], *peer = &sides[!who];

    assert_int_equal(ib_credits_may_post(&me->c, type), IB_MAY_POST);
    assert_true(peer->tail - peer->head < PIPE);
    peer->pipe[peer->tail % PIPE].type = (uint8_t)type;
    peer->pipe[peer->tail++ % PIPE].returned = ib_credits_post(&me->c, type);
    me->posted[type == IB_NOOP]++;
    me->sent++;
    me->noops += type == IB_NOOP;
}

static void complete_sends(struct side *me)
{
    for (; me->posted[0] > 0; me->posted[0]--)
        ib_credits_sent(&me->c, IB_IMMEDIATE);
    for (; me->posted[1] > 0; me->posted[1]--)
        ib_credits_sent(&me->c, IB_NOOP);
}

static void try_send(unsigned who, unsigned type)
{
    struct side *me = &sides[who];
    bool request = ib_class_of(type) == IB_CLASS_REQUEST;

    if (ib_credits_may_post(&me->c, type) != IB_MAY_POST ||
        (request && !ib_credits_reserve(&me->c)))
        return;
    emit(who, type);
}

static void repost(struct side *me, unsigned type, bool acked)
{
    ib_credits_repost(&me->c, type, acked);
    me->posted_buffers++;
    /* The reason for it all: there is a buffer for whatever the other side may send. */
    assert_true(me->posted_buffers <= ib_rx_buffers(me->c.depth));
}

static void deliver(unsigned who)
{
    struct side *me = &sides[who];
    unsigned type;

    if (me->head == me->tail)
        return;
    type = me->pipe[me->head % PIPE].type;
    assert_true(me->posted_buffers > 0);
    me->posted_buffers--;
    assert_drop(ib_credits_receive(&me->c, type, me->pipe[me->head++ % PIPE].returned),
                LNET_DROP_NONE);
    switch (type) {
    case IB_IMMEDIATE:
        me->held_imm++;
        break;
    case IB_PUT_REQ:
        me->held_put++;
        break;
    case IB_GET_REQ:
        me->held_get++;
        break;
    case IB_PUT_ACK:
        me->want_done++;
        repost(me, type, false);
        break;
    default:
        repost(me, type, false);
        break;
    }
}

static bool may_answer(const struct side *me)
{
    return ib_credits_may_post(&me->c, IB_PUT_ACK) == IB_MAY_POST;
}

static void work(unsigned who, unsigned what)
{
    struct side *me = &sides[who];

    if (what == 0 && me->held_imm > 0) {
        me->held_imm--;
        repost(me, IB_IMMEDIATE, false);
    } else if (what == 1 && me->held_put > 0 && may_answer(me)) {
        me->held_put--;
        emit(who, IB_PUT_ACK);
        repost(me, IB_PUT_REQ, true);
    } else if (what == 2 && me->held_put > 0 && may_answer(me)) {
        me->held_put--;
        emit(who, IB_PUT_NAK);
        repost(me, IB_PUT_REQ, false);
    } else if (what == 3 && me->held_get > 0 && may_answer(me)) {
        me->held_get--;
        emit(who, IB_GET_DONE);
        repost(me, IB_GET_REQ, false);
    } else if (what == 4 && me->want_done > 0 && may_answer(me)) {
        me->want_done--;
        emit(who, IB_PUT_DONE);
    }
}

/* Random traffic both ways: no rule is broken, no receive misses a buffer, and when all is done
 * every credit is with its owner, on its way back, or owed below the mark for a NOOP. */
static void random_run(uint64_t seed, unsigned depth)
{
    static const uint8_t types[] = {IB_IMMEDIATE, IB_IMMEDIATE, IB_PUT_REQ, IB_GET_REQ};
    unsigned i, k, hiw = ib_credits_hiw(depth, depth < 8 ? 8 : depth, 0);

    memset(sides, 0, sizeof(sides));
    for (i = 0; i < 2; i++) {
        ib_credits_init(&sides[i].c, depth, hiw, 2 * depth);
        sides[i].posted_buffers = ib_rx_buffers(depth);
    }
    for (i = 0; i < 40000; i++) {
        uint64_t r = rnd64(&seed);
        unsigned who = r & 1, kind = (r >> 1) % 4;

        /* The last part sends nothing new: what is under way comes to its end. */
        if (kind == 0 && i < 36000)
            try_send(who, types[(r >> 8) % 4]);
        else if (kind == 1)
            deliver(who);
        else if (kind == 2)
            work(who, (r >> 8) % 5);
        else if (ib_credits_need_noop(&sides[who].c, false, (r >> 8) % 2) &&
                 ib_credits_may_post(&sides[who].c, IB_NOOP) == IB_MAY_POST &&
                 sides[who].head == sides[who].tail)
            emit(who, IB_NOOP);
        else
            complete_sends(&sides[who]);
    }
    for (i = 0; i < 2; i++) {
        struct side *me = &sides[i], *peer = &sides[!i];
        unsigned on_its_way = 0;

        for (k = me->head; k != me->tail; k++)
            on_its_way += me->pipe[k % PIPE].returned;
        assert_int_equal(me->c.credits + on_its_way + peer->c.spent, depth);
        assert_true(me->sent > 1000);
        assert_true(me->c.owed <= me->c.spent);
    }
    assert_true(sides[0].noops + sides[1].noops > 0);
}

static void test_random(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        random_run(seed, 4);
        random_run(seed, 8);
        random_run(seed, 17);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_no_credit),
        cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_sends_max),
        cmocka_unit_test(test_two_noops),
        cmocka_unit_test(test_piggy_back),
        cmocka_unit_test(test_unpost),
        cmocka_unit_test(test_need_noop),
        cmocka_unit_test(test_hiw),
        cmocka_unit_test(test_received),
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_returned_too_many),
        cmocka_unit_test(test_spent_too_many),
        cmocka_unit_test(test_unasked),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
