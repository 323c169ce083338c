/* SPDX-License-Identifier: BSD-3-Clause */
/* Health where neighbours are hostile: what they can do to others, and to NIs of this node.
 * docs/protocol/lnet-core.md §6.1 to §6.3. */
#include "test/unit/lnet_push_test.h"

#include "lib/lnet/health/health.h"
#include "lib/lnet/peer/peers.h"

static void hostile_up(unsigned max_peers)
{
    struct lnet_node_opts o = opts_default();

    o.max_peers = max_peers;
    health_counts = true;
    node_up(o);
}

/* A gateway's neighbours can push in any name: that no such node answers does not speak against the
 * gateway. A node that has answered before does. */
static void test_made_up_nodes(void **state)
{
    struct lnet_nid gw, real = N("10.5.1.1@tcp5");
    char text[LNET_NIDSTR_SIZE];
    uint8_t data[64];

    hostile_up(256);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    pass(2 * SEC);
    for (unsigned i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_GET)
            reply_to(&loop.sent[i], data, make_info(data, sizeof(data), gw, 0x1a, 1, 0));
        else if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push_only(&loop.sent[i]);
    sent_clear();
    for (unsigned i = 1; i <= 10; i++) {
        snprintf(text, sizeof(text), "10.5.0.%u@tcp5", i);
        push_through(tcp0, gw, N(text));
    }
    assert_int_equal(sent_count(LNET_MSG_PUT), 10);
    pass(31 * SEC);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 10);
    assert_int_equal(peer_find(&gw)->health, 1000);
    push_through(tcp0, gw, real);
    ack_push_only(sent_last(LNET_MSG_PUT));
    pass(28 * SEC);
    assert_int_equal(peer_find(&gw)->health, 1000);
    pass(3 * SEC);
    assert_int_equal(peer_find(&gw)->health, 900);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_made_up_nodes),
};

LNET_TESTS_MAIN("test-lnet-health-hostile", tests)
