/* SPDX-License-Identifier: BSD-3-Clause */
/* Neighbours that ask for us and call us, and others that do so in their name. */
#include "inet_neigh_test.h"

/* Who asks in the name of another station does not get what is sent to it, if that asks too. */
static void test_asks_for_another(void **state)
{
    quiet_inet();
    hear(1, third_mac, "10.0.0.2", "10.0.0.1", true);
    hear(1, peer_mac, "10.0.0.2", "10.0.0.1", true);
    hear(1, third_mac, "10.0.0.2", "10.0.0.1", true);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_question("10.0.0.2", all_mac);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    expect_tcp(peer_mac, 1);
    end_inet();
    /* If that does not ask, it is asked, and has what is sent after its answer. */
    quiet_inet();
    hear(1, third_mac, "10.0.0.2", "10.0.0.1", true);
    paper_clear(&paper);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_question("10.0.0.2", third_mac);
    expect_question("10.0.0.2", all_mac);
    expect_tcp(third_mac, 1);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
    expect_tcp(peer_mac, 2);
    /* It answered first: another that says the same is not believed. */
    hear(2, third_mac, "10.0.0.2", "10.0.0.1", false);
    expect_question("10.0.0.2", peer_mac);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 3);
    expect_tcp(peer_mac, 3);
    end_inet();
    /* What was asked long ago does not count. */
    quiet_inet();
    hear(1, third_mac, "10.0.0.2", "10.0.0.1", true);
    paper_clear(&paper);
    pass_ms(11000);
    send_tcp(0, "10.0.0.1", "10.0.0.2", 1);
    expect_question("10.0.0.2", all_mac);
    end_inet();
}

/* No question may be asked for an answer, for now. */
static void no_questions(void)
{
    while (bucket_take(&inet_shard_of(inet, 0)->ask_bucket[0], 512, 512))
        continue;
}

/* A call of 10.0.0.2 comes in from there, and is answered with so many bytes. */
static void call(const uint8_t *mac, unsigned bytes)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("10.0.0.2");
    struct inet_path path;
    struct rte_mbuf *m;
    struct frame f;

    make_tcp4(&f, "10.0.0.2", "10.0.0.1", 0);
    memcpy(f.b + 6, mac, 6);
    arrive_on(&paper, 0, &f);
    settle();
    assert_int_equal(above.inputs, 1);
    m = above.input[0].m;
    ON(0, {
        assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0);
        inet_path_called(inet_shard_of(inet, 0), &path, m);
    });
    inputs_free();
    send_tcp(0, "10.0.0.1", "10.0.0.2", bytes);
}

/* Stations without number ask in the name of 10.0.0.2. */
static void impostors_ask(void)
{
    uint8_t mac[6] = {2, 9, 9, 9, 9, 0};

    for (unsigned i = 0; i < 200; i++) {
        mac[5] = (uint8_t)i;
        hear(1, mac, "10.0.0.2", "10.0.0.1", true);
        paper_clear(&paper);
    }
}

/* Nor does it keep the true one from calling, while no more questions may be asked: a call is
 * answered where it came from, whoever asked before and after it. */
static void test_asks_for_a_caller(void **state)
{
    for (unsigned asked = 0; asked < 2; asked++) {
        quiet_inet();
        no_questions();
        if (asked)
            hear(1, peer_mac, "10.0.0.2", "10.0.0.1", true);
        impostors_ask();
        call(peer_mac, 1);
        expect_question("10.0.0.2", peer_mac);
        expect_tcp(peer_mac, 1);
        impostors_ask();
        hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
        assert_string_equal(state_of("10.0.0.2"), "reachable");
        send_tcp(0, "10.0.0.1", "10.0.0.2", 2);
        expect_tcp(peer_mac, 2);
        end_inet();
    }
}

/* Who calls in the name of another before it is there does not keep it out, if it does not answer.
 */
static void test_calls_for_another(void **state)
{
    uint8_t mac[6] = {2, 9, 9, 9, 9, 0};

    quiet_inet();
    call(third_mac, 1);
    paper_clear(&paper);
    call(peer_mac, 2);
    expect_question("10.0.0.2", peer_mac);
    expect_tcp(peer_mac, 2);
    /* TCP does not decide, since its answer may belong to either call. */
    confirm_peer();
    assert_string_equal(state_of("10.0.0.2"), "probe");
    /* Many call. Who answers is the true one, and calls of others do not move it any more. */
    for (unsigned i = 0; i < 200; i++) {
        mac[5] = (uint8_t)i;
        call(mac, 3);
        expect_question("10.0.0.2", mac);
        expect_tcp(mac, 3);
    }
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    pass_ms(1010);
    call(third_mac, 4);
    expect_question("10.0.0.2", peer_mac);
    expect_tcp(peer_mac, 4);
    end_inet();
    /* Nobody answers: who was there before the last call is asked, too. */
    quiet_inet();
    call(peer_mac, 1);
    call(third_mac, 2);
    paper_clear(&paper);
    pass_ms(1010);
    expect_question("10.0.0.2", third_mac);
    expect_question("10.0.0.2", peer_mac);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    assert_string_equal(state_of("10.0.0.2"), "reachable");
    end_inet();
}

/* What comes from beyond a gateway says nothing of where its sender is. */
static void test_calls_by_gateway(void **state)
{
    struct inet_addr l = addr("10.0.0.1"), r = addr("192.168.7.7");
    struct inet_path path;
    struct frame f;

    quiet_inet();
    make_tcp4(&f, "192.168.7.7", "10.0.0.1", 0);
    arrive_on(&paper, 0, &f);
    settle();
    ON(0, {
        assert_int_equal(inet_path_get(inet_shard_of(inet, 0), NULL, &l, &r, &path), 0);
        inet_path_called(inet_shard_of(inet, 0), &path, above.input[0].m);
    });
    inputs_free();
    send_tcp(0, "10.0.0.1", "192.168.7.7", 1);
    expect_question("10.0.0.254", all_mac);
    expect_nothing();
    /* Nor does our own MAC. */
    call(our_mac, 1);
    expect_question("10.0.0.2", all_mac);
    expect_nothing();
    end_inet();
}

/* A connection of ours to a station that only called: it is asked out of what is kept for us. */
static void test_called_then_ours(void **state)
{
    struct inet_addr to = addr("10.0.0.2");

    quiet_inet();
    no_questions();
    call(third_mac, 1);
    paper_clear(&paper);
    send_to(&to, true);
    settle();
    expect_question("10.0.0.2", all_mac);
    hear(2, peer_mac, "10.0.0.2", "10.0.0.1", false);
    paper_clear(&paper);
    send_to(&to, true);
    settle();
    expect_tcp(peer_mac, 0);
    end_inet();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asks_for_another),  cmocka_unit_test(test_asks_for_a_caller),
        cmocka_unit_test(test_calls_for_another), cmocka_unit_test(test_calls_by_gateway),
        cmocka_unit_test(test_called_then_ours),
    };

    return inet_test_main(argc, argv, tests, RTE_DIM(tests));
}
