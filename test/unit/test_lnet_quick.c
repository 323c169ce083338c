/* SPDX-License-Identifier: BSD-3-Clause */
/* Next hops that are known to take messages soon, and what others leave to them.
 * docs/architecture.md "Next hops that are slow". */
#include "lib/base/sip.h"
#include "test/unit/lnet_admit_test.h"

#define EACH 64u         /* small buffers of a reactor */
#define PART (EACH / 16) /* that are left to what is urgent, and as many to quick next hops */

/* By chance two of a test's next hops may be in one row of the table of quick ones. By this key
 * none are. */
static void strangers_up(void)
{
    sip_table_key = (struct sip_key){{1, 2}};
    admit_up(EACH, 50);
    quick_for(0);
}

/* So many messages of this length for a next hop take so long each. */
static void takes(unsigned n, struct lnet_nid to, uint32_t len, uint64_t us)
{
    while (n-- > 0) {
        assert_int_equal(put(to, len)->recvs, 1);
        if (us > 0)
            pass(us - 1000);
        end(len);
    }
}

/* Whether a message for it has what strangers may not have. Other messages hold all of that. */
static bool is_quick(struct lnet_nid to, uint32_t len)
{
    struct peer_msg *fx = put(to, len);

    if (fx->recvs)
        end(len);
    else
        assert_true(rx_cancel(fx));
    return fx->done;
}

static void test_reserve(void **state)
{
    strangers_up();
    takes(8, hop(0), 100, 0);
    takes(7, hop(1), 100, 0);
    assert_int_equal(fill(1000), EACH - 2 * PART);
    assert_false(is_quick(hop(1), 200));
    assert_true(is_quick(hop(0), 200));
    /* up to what is urgent, and by the rule of the share */
    assert_int_equal(hang(hop(0), 300), 2);
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_INCOMPLETE)); /* of those taken back */
    end_all();
    node_down();
}

/* Messages without payload are urgent for quick next hops only: others that take nothing do not
 * have all buffers of that kind. */
static void test_urgent(void **state)
{
    strangers_up();
    takes(8, hop(0), 0, 0);
    assert_int_equal(fill(0), EACH - 2 * PART);
    assert_false(is_quick(hop(1), 0));
    assert_int_equal(put(hop(0), 0)->recvs, 1);
    end_all();
    node_down();
}

/* Small messages that go soon say nothing of large ones. */
static void test_each_pool(void **state)
{
    struct lnet_nid to;

    strangers_up();
    to = hop(0);
    takes(8, to, 100, 0);
    for (unsigned i = 0; i < LNET_POOLS; i++) {
        uint32_t soon = node->shard[0]->credit->quick[i][nid_hash(&to) % LNET_QUICKS].soon;

        assert_int_equal(soon, i == LNET_POOL_SMALL ? 8 : 0);
    }
    node_down();
}

/* After one that took long it is not quick for 16 times as long. */
static void test_long(void **state)
{
    static const struct {
        uint64_t had_us, slow_us; /* to the next second; 0: it is still quick */
    } cases[] = {{99000, 0}, {100000, 2000000}, {1000000, 16000000}, {10000000, 160000000}};

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        strangers_up();
        takes(8, hop(0), 100, 0);
        takes(1, hop(0), 101, cases[i].had_us);
        takes(8, hop(0), 102, 0); /* they do not make up for it at once */
        assert_int_equal(fill(1000), EACH - 2 * PART);
        assert_int_equal(is_quick(hop(0), 200), cases[i].slow_us == 0);
        if (cases[i].slow_us > 0) {
            pass(cases[i].slow_us - 2 * SEC);
            assert_false(is_quick(hop(0), 200));
            pass(2 * SEC);
            assert_true(is_quick(hop(0), 200));
        }
        end_all();
        node_down();
    }
}

/* A next hop is not quick from the moment on that it has had a message for long. */
static void test_holds(void **state)
{
    strangers_up();
    takes(8, hop(0), 100, 0);
    takes(8, hop(1), 100, 0);
    assert_int_equal(put(hop(0), 300)->recvs, 1);
    pass(98000);
    assert_int_equal(fill(1000), EACH - 2 * PART - 1);
    assert_int_equal(put(hop(0), 301)->recvs, 1);
    pass(2000);
    assert_int_equal(put(hop(0), 302)->recvs, 0);
    assert_int_equal(put(hop(1), 303)->recvs, 1);
    end_all();
    node_down();
}

/* Messages that are lost count as well, but not those that were never sent. */
static void test_failed(void **state)
{
    struct peer_msg *fx;

    strangers_up();
    takes(7, hop(0), 100, 0);
    loop.hold_recv = true;
    fx = put(hop(0), 100);
    loop.hold_recv = false;
    recv_end(fx, (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR});
    settle();
    takes(8, hop(1), 100, 0);
    put(hop(1), 101);
    pass(SEC);
    send_end(loop.held[0], (struct lnet_result){LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR});
    settle();
    assert_int_equal(fill(1000), EACH - 2 * PART);
    assert_false(is_quick(hop(0), 200));
    assert_false(is_quick(hop(1), 200));
    end_all();
    node_down();
}

/* However many strangers wait, quick ones have their part again first. Then both take turns. */
static void test_turns(void **state)
{
    struct peer_msg *wait[20], *quick[2 * PART + 4];
    unsigned i, in = 0;

    strangers_up();
    for (i = 0; i < 2 * PART + 4; i++)
        takes(8, hop(i), 100, 0);
    fill(1000);
    for (i = 0; i < 20; i++)
        wait[i] = put(hop(40 + i), 300);
    for (i = 0; i < 2 * PART; i++) {
        quick[i] = put(hop(i), 400);
        assert_int_equal(quick[i]->recvs, i < PART);
    }
    for (i = 0; i < PART; i++)
        end(1000);
    for (i = PART; i < 2 * PART; i++)
        assert_int_equal(quick[i]->recvs, 1);
    for (i = 0; i < PART; i++)
        end(1000); /* what is theirs is free again */
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).free, 2 * PART);
    for (i = 2 * PART; i < 2 * PART + 4; i++)
        quick[i] = put(hop(i), 400);
    for (i = 0; i < 12; i++)
        end(1000);
    for (i = 2 * PART; i < 2 * PART + 4; i++)
        assert_int_equal(quick[i]->recvs, 1);
    for (i = 0; i < 20; i++)
        in += wait[i]->recvs;
    assert_int_equal(in, 8);
    end_all();
    node_down();
}

/* A receive from a sender takes so long. */
static void receive_takes(struct lnet_nid from, uint64_t us)
{
    struct peer_msg *fx;

    loop.hold_recv = true;
    fx = from_to(from, hop(1), LNET_MSG_PUT, 150);
    loop.hold_recv = false;
    assert_int_equal(fx->recvs, 1);
    pass(us - 1000);
    recv_end(fx, ok);
    settle();
    end(150);
}

/* The message of a sender that takes long is not quick, whatever its next hop is. */
static void test_prompt_senders(void **state)
{
    struct peer_msg *fx;

    strangers_up();
    takes(8, hop(0), 100, 0);
    receive_takes(sender(300), 99000);
    receive_takes(sender(301), 200000);
    assert_int_equal(fill(1000), EACH - 2 * PART);
    assert_int_equal(from_to(sender(300), hop(0), LNET_MSG_PUT, 200)->recvs, 1);
    fx = from_to(sender(301), hop(0), LNET_MSG_PUT, 201);
    assert_int_equal(fx->recvs, 0);
    assert_int_equal(fx->in.rx.class, LNET_CLASS_BULK);
    assert_int_equal(from_to(sender(301), hop(0), LNET_MSG_GET, 0)->recvs, 1);
    end(200);
    assert_int_equal(fx->recvs, 0);
    pass(4 * SEC); /* 16 times as long; and then looked at */
    assert_int_equal(fx->recvs, 1);
    end_all();
    node_down();
}

/* Receives that take long, though they do not stop, hold no share of a quick next hop that others
 * need: not as bulk, and as quick ones for 0.1 s. */
static void test_receives_take_long(void **state)
{
    for (unsigned known = 0; known < 2; known++) {
        struct peer_msg *slow[EACH], *fx[3];
        unsigned n = 0;

        strangers_up();
        takes(8, hop(0), 100, 0);
        for (unsigned i = 0; known && i < EACH; i++) {
            struct lnet_nid from = sender(300 + i);

            receive_takes(from, 2000);
            peer_find(&from)->prompt_s = UINT32_MAX;
        }
        loop.hold_recv = true;
        while ((slow[n] = from_to(sender(300 + n), hop(0), LNET_MSG_PUT, 200))->recvs)
            n++;
        loop.hold_recv = false;
        assert_in_range(n, EACH / 4, EACH / 2);
        for (unsigned i = 0; i < 3; i++) {
            fx[i] = from_to(sender(500 + i), hop(0), LNET_MSG_PUT, 201);
            assert_int_equal(fx[i]->recvs, known);
        }
        for (unsigned ms = 0; ms < 150; ms += 10) {
            pass(10000);
            for (unsigned i = 0; i < n; i++)
                slow[i]->in.rx.progress_us = clock_us;
        }
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(fx[i]->recvs, 1);
        assert_int_equal(slow[n]->recvs || rx_cancel(slow[n]), true);
        for (unsigned i = 0; i < n; i++)
            recv_end(slow[i], ok);
        settle();
        end_all();
        node_down();
    }
}

/* Who has several headers in the line for a next hop does not hold up others there, who do not hold
 * up these for ever. */
static void test_sender_turns(void **state)
{
    struct peer_msg *many[4], *other[4];

    admit_up(16, 50);
    hang(hop(0), 300);
    for (unsigned i = 0; i < 4; i++)
        many[i] = from_to(sender(300), hop(0), LNET_MSG_PUT, 200 + i);
    for (unsigned i = 0; i < 4; i++)
        other[i] = from_to(sender(301 + i / 2), hop(0), LNET_MSG_PUT, 210 + i);
    for (unsigned i = 0; i < 3; i++) {
        struct peer_msg *const order[][3] = {
            {many[0], other[0], other[2]}, {many[1], other[1], other[3]}, {many[2], many[3], NULL}};

        for (unsigned k = 0; k < 3 && order[i][k]; k++) {
            assert_int_equal(order[i][k]->recvs, 0);
            send_end(loop.held[0], ok);
            settle();
            assert_int_equal(order[i][k]->recvs, 1);
        }
    }
    assert_int_equal(peer_find(&many[0]->in.from)->buffer_waits, 0);
    end_all();
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_INCOMPLETE));
    node_down();
}

/* One that comes later waits until those before it have had their turn, and no longer. */
static void test_no_sender_starves(void **state)
{
    struct peer_msg *second, *fx;
    unsigned passed = 0;

    admit_up(16, 50);
    hang(hop(0), 300);
    from_to(sender(300), hop(0), LNET_MSG_PUT, 200);
    second = from_to(sender(300), hop(0), LNET_MSG_PUT, 201);
    for (; !second->recvs && passed < 20; passed++) {
        fx = from_to(sender(400 + passed), hop(0), LNET_MSG_PUT, 300);
        assert_int_equal(fx->recvs, 0);
        end(300);
    }
    assert_in_range(passed, 2, 4);
    end_all();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_reserve),
    LNET_TEST(test_urgent),
    LNET_TEST(test_each_pool),
    LNET_TEST(test_long),
    LNET_TEST(test_holds),
    LNET_TEST(test_failed),
    LNET_TEST(test_turns),
    LNET_TEST(test_prompt_senders),
    LNET_TEST(test_receives_take_long),
    LNET_TEST(test_sender_turns),
    LNET_TEST(test_no_sender_starves),
};

LNET_TESTS_MAIN("test_lnet_quick", tests)
