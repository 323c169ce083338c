/* SPDX-License-Identifier: BSD-3-Clause */
/* PUSHes and the discovery of peers: docs/protocol/lnet-core.md §3.1, §3.5, §3.6. */
#include <errno.h>

#include "test/unit/lnet_push_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

/* ---- PUSHes ---- */

/* §3.6 needs push 6, push 7, push 10 */
static void test_push_and_push_back(void **state)
{
    struct lnet_ack ack;
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_ACK), 1);
    lnet_body_get_ack(&sent_last(LNET_MSG_ACK)->hdr, &ack);
    assert_int_equal(ack.mlength, 48);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->hdr.src_nid, &tcp0->nid));
    /* another while ours is under way: ACK, nothing more */
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_ACK), 2);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push(sent_last(LNET_MSG_PUT));
    /* what was acknowledged is not sent again */
    for (unsigned i = 0; i < 3; i++)
        push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_ACK), 5);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    /* to another of our NIs: the PUSH leaves there */
    from = peer_on(0, 1, "tcp1", 3);
    push_from(tcp1, from, 0x1a);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    assert_push(sent_last(LNET_MSG_PUT), from);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->hdr.src_nid, &tcp1->nid));
    ack_push(sent_last(LNET_MSG_PUT));
    /* no multi-rail, or no discovery: ACK only */
    push_from(tcp0, peer_on(0, 0, "tcp", 20), 0x06);
    push_from(tcp0, peer_on(0, 0, "tcp", 21), 0x0e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    assert_int_equal(sent_count(LNET_MSG_ACK), 8);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

static void test_push_fails(void **state)
{
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    /* no ACK */
    pass(31 * SEC);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 1);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push(sent_last(LNET_MSG_PUT)); /* too late */
    assert_int_equal(drops_of(LNET_DROP_ACK_NO_MATCH), 1);
    /* its next PUSH is answered again */
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    /* a PUSH that cannot be sent */
    loop.send_result = lost;
    from = peer_on(0, 0, "tcp", 5);
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    loop.send_result = ok;
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 4);
    ack_push(sent_last(LNET_MSG_PUT));
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 4);
    node_down();
}

/* A peer that did not acknowledge in time is told of the next change, but not of the one after that
 * unless it acknowledges. */
static void test_push_once_more(void **state)
{
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    push_from(tcp0, from, 0x1e);
    settle();
    pass(31 * SEC);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    pass(31 * SEC);
    ON(0, lnet_ni_link(tcp1, true));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    node_down();
}

/* A peer that never acknowledges: after two PUSHes in a row it gets none for a minute. */
static void test_push_quiet(void **state)
{
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    for (unsigned i = 1; i <= 2; i++) {
        push_from(tcp0, from, 0x1e);
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), i);
        pass(31 * SEC);
    }
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    pass(61 * SEC);
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    ack_push(sent_last(LNET_MSG_PUT));
    node_down();
}

static void test_push_garbage(void **state)
{
    static uint8_t junk[100000];
    struct lnet_nid from;
    struct lnet_ack ack;
    uint32_t len;

    node_up(opts_default());
    from = peer();
    memset(junk, 0xa5, sizeof(junk));
    push_bytes(tcp0, from, junk, 0);
    push_bytes(tcp0, from, junk, 15);
    push_bytes(tcp0, from, junk, 272);
    push_bytes(tcp0, from, junk, sizeof(junk));
    settle();
    assert_int_equal(drops_of(LNET_DROP_PING_BAD_INFO), 4);
    assert_int_equal(sent_count(LNET_MSG_ACK), 4); /* it was received */
    lnet_body_get_ack(&sent_last(LNET_MSG_ACK)->hdr, &ack);
    assert_int_equal(ack.mlength, PUSH_IN_SIZE);
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    /* a good one, longer than its declared size (§3.3) and cut */
    len = make_info(junk, sizeof(junk), from, 0x1e, 1, 250);
    push_bytes(tcp0, from, junk, 50000);
    settle();
    assert_true(len < PUSH_IN_SIZE);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    /* portal 0 with other match bits is nobody's, and is not parked */
    arrive(tcp0, from, hdr_put(from, tcp0->nid, 0, 0, 0, 100, true));
    arrive(tcp0, from, hdr_put(from, tcp0->nid, 0, LNET_PING_MATCH_BITS | 2, 0, 100, true));
    settle();
    assert_int_equal(drops_of(LNET_DROP_PUT_NO_MATCH), 2);
    /* a REPLY to our PUSH must not write our info (its handle is known to who got it) */
    {
        const struct sent *s = sent_last(LNET_MSG_PUT);
        struct lnet_hdr h = hdr_of(LNET_MSG_REPLY, from, tcp0->nid, 80);
        struct lnet_reply r;
        struct lnet_put put;
        uint8_t was[80];

        memcpy(was, node->ping->current->data, 80);
        lnet_body_get_put(&s->hdr, &put);
        r.dst = put.ack;
        lnet_body_set_reply(&h, &r);
        arrive(tcp0, from, h);
        settle();
        assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 1);
        assert_memory_equal(was, node->ping->current->data, 80);
    }
    node_down();
}

/* A discovery that fails while another message of it is on its way leaves nothing behind. */
static void test_push_and_ping_fail(void **state)
{
    struct lnet_nid from;
    uint8_t junk[300];
    unsigned puts, gets;

    node_up(opts_default());
    from = peer();
    memset(junk, 0xa5, sizeof(junk));
    push_from(tcp0, from, 0x1e);
    settle();
    puts = sent_count(LNET_MSG_PUT);
    assert_int_equal(puts, 1);
    gets = sent_count(LNET_MSG_GET);
    pass(5 * SEC);
    push_bytes(tcp0, from, junk, sizeof(junk));
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), gets + 1);
    pass(28 * SEC); /* the PUSH has not been acknowledged; the GET has some seconds more */
    assert_non_null(peer_table_find(node->peers, &from));
    assert_null(peer_table_find(node->peers, &from)->push.slot);
    assert_false(peer_table_find(node->peers, &from)->state & (PEER_PING_SENT | PEER_PUSH_SENT));
    pass(5 * SEC);
    push_from(tcp0, from, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), puts + 1);
    ack_push(sent_last(LNET_MSG_PUT));
    settle();
    assert_int_equal(node->ping->nnew, 0);
    assert_null(peer_table_find(node->peers, &from)->push.slot);
    node_down();
}

/* One PUSH per peer at a time: what changes meanwhile follows its ACK. §3.6 needs push 1 */
static void test_push_one_at_a_time(void **state)
{
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    befriend(tcp0, from);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ON(0, lnet_ni_link(ib0, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push(&loop.sent[0]);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    node_down();
}

/* ---- lists of NIDs ---- */

/* A node with many NIDs is one peer, and gets one PUSH, at the NID that it pushed from. */
static void test_push_many_nids(void **state)
{
    node_up(opts_default());
    push_list(N("10.0.0.71@tcp"), "10.9.0.70@o2ib9 10.0.0.71@tcp 10.0.0.72@tcp");
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), N("10.0.0.71@tcp"));
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(sent_count(LNET_MSG_GET), 0); /* a pushed list is as good as a reply */
    assert_ptr_equal(peer_of("10.9.0.70@o2ib9"), peer_of("10.0.0.72@tcp"));
    assert_int_equal(node->peers->npeers, 1);
    push_list(N("10.0.0.72@tcp"), "10.9.0.70@o2ib9 10.0.0.71@tcp 10.0.0.72@tcp");
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    /* It has acknowledged a PUSH: another node gets none of its NIDs by a PUSH. */
    push_list(N("10.0.0.73@tcp"), "10.0.0.73@tcp 10.0.0.71@tcp");
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    assert_int_equal(peer_of("10.0.0.71@tcp")->nnis, 3);
    assert_int_equal(peer_of("10.0.0.73@tcp")->nnis, 1);
    /* It is pinged for that; as it still has the NID, nothing changes. */
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    assert_true(
        nid_same(&sent_last(LNET_MSG_GET)->hdr.dest_nid, &peer_of("10.0.0.71@tcp")->push.nid));
    reply_nids = "10.9.0.70@o2ib9 10.0.0.71@tcp 10.0.0.72@tcp";
    answer_ping(sent_last(LNET_MSG_GET));
    reply_nids = NULL;
    assert_int_equal(peer_of("10.0.0.71@tcp")->nnis, 3);
    ack_push(sent_last(LNET_MSG_PUT));
    /* A list without the sender is none: the sender is pinged for its own, and then pushed to. */
    push_list(N("10.0.0.74@tcp"), "10.0.0.75@tcp 10.0.0.76@tcp");
    assert_int_equal(peer_of("10.0.0.74@tcp")->nnis, 1);
    assert_null(peer_of("10.0.0.75@tcp"));
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    reply_nids = "10.0.0.74@tcp 10.0.0.77@tcp";
    answer_ping(sent_last(LNET_MSG_GET));
    reply_nids = NULL;
    assert_ptr_equal(peer_of("10.0.0.74@tcp"), peer_of("10.0.0.77@tcp"));
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    ack_push(sent_last(LNET_MSG_PUT));
    /* Fewer NIDs: the others are forgotten. */
    push_list(N("10.0.0.72@tcp"), "10.0.0.72@tcp");
    assert_null(peer_of("10.0.0.71@tcp"));
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    sent_clear();
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 3); /* one for each node */
    for (unsigned i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push(&loop.sent[i]);
    node_down();
}

/* A known peer that pushes what is no info is pinged for it, once at a time. §3.6 push 3 */
static void test_push_garbage_of_known(void **state)
{
    const uint8_t junk[272] = {0xa5};
    struct lnet_nid from;

    node_up(opts_default());
    from = peer();
    befriend(tcp0, from);
    for (unsigned i = 0; i < 3; i++)
        push_bytes(tcp0, from, junk, sizeof(junk));
    settle();
    assert_int_equal(drops_of(LNET_DROP_PING_BAD_INFO), 3);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    answer_pings(0);
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    node_down();
}

/* The NID that a peer pushed from last is its own no longer. Another NID of it is pinged, not the
 * same one again and again. §3.5 */
static void test_push_nid_gone(void **state)
{
    struct lnet_nid from = N("10.0.0.71@tcp");

    node_up(opts_default());
    push_list(from, "10.0.0.71@tcp 10.0.0.72@tcp");
    ack_push(sent_last(LNET_MSG_PUT));
    sent_clear();
    push_bytes(tcp0, from, (const uint8_t *)"no info", 8);
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    assert_true(nid_same(&sent_last(LNET_MSG_GET)->to, &from));
    pass(31 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    assert_false(nid_same(&sent_last(LNET_MSG_GET)->to, &from));
    node_down();
}

/* A NID that its peer has no longer goes to the node that pushes it. */
static void test_claim(void **state)
{
    node_up(opts_default());
    push_list(N("10.0.0.71@tcp"), "10.0.0.71@tcp 10.0.0.72@tcp");
    ack_push(sent_last(LNET_MSG_PUT));
    befriend(tcp0, N("10.0.0.73@tcp"));
    push_list(N("10.0.0.73@tcp"), "10.0.0.73@tcp 10.0.0.72@tcp");
    assert_ptr_equal(peer_of("10.0.0.72@tcp"), peer_of("10.0.0.71@tcp"));
    answer_pings(0); /* it has 10.0.0.71@tcp only */
    assert_null(peer_of("10.0.0.72@tcp"));
    push_list(N("10.0.0.73@tcp"), "10.0.0.73@tcp 10.0.0.72@tcp");
    assert_ptr_equal(peer_of("10.0.0.72@tcp"), peer_of("10.0.0.73@tcp"));
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    /* Who is asked for nothing is not asked again soon. */
    for (unsigned i = 0; i < 5; i++)
        push_list(N("10.0.0.73@tcp"), "10.0.0.73@tcp 10.0.0.72@tcp 10.0.0.71@tcp");
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    pass(61 * SEC);
    push_list(N("10.0.0.73@tcp"), "10.0.0.73@tcp 10.0.0.72@tcp 10.0.0.71@tcp");
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    answer_pings(0);
    node_down();
}

/* A node answers a ping with the NIDs of another that answers. These stay where they are. §3.6 lets
 * the later data win, but that would let any node have the NIDs of others. */
static void test_claim_by_reply(void **state)
{
    struct lnet_nid bad = N("10.0.0.66@tcp");

    node_up(opts_default());
    befriend(tcp0, N("10.0.0.71@tcp"));
    push_from(tcp0, bad, 0x1e);
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    sent_clear();
    reply_nids = "10.0.0.66@tcp 10.0.0.71@tcp";
    ON(0, lnet_discover_now(node->ping, peer_of("10.0.0.66@tcp"), PEER_FORCE_PING);
       lnet_discover_soon(node->ping));
    settle();
    answer_ping(sent_last(LNET_MSG_GET));
    reply_nids = NULL;
    assert_int_equal(sent_count(LNET_MSG_GET), 2); /* the other is asked */
    answer_ping(sent_last(LNET_MSG_GET));
    assert_int_equal(peer_of("10.0.0.71@tcp")->nnis, 1);
    assert_ptr_not_equal(peer_of("10.0.0.71@tcp"), peer_of("10.0.0.66@tcp"));
    node_down();
}

/* A node lists the NID of one that is not there yet, and fails. When that one comes it is pushed to
 * at once. */
static void test_claim_in_advance(void **state)
{
    node_up(opts_default());
    for (unsigned i = 1; i <= 2; i++) {
        push_list(N("10.0.0.66@tcp"), "10.0.0.66@tcp 10.0.0.71@tcp");
        assert_int_equal(sent_count(LNET_MSG_PUT), i);
        pass(31 * SEC);
    }
    push_list(N("10.0.0.66@tcp"), "10.0.0.66@tcp 10.0.0.71@tcp");
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    push_from(tcp0, N("10.0.0.71@tcp"), 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    ack_push(sent_last(LNET_MSG_PUT));
    node_down();
}

/* A gateway, which keeps its NIDs, lists that of a node before that node comes. */
static void test_claim_of_gateway(void **state)
{
    node_up(opts_default());
    assert_int_equal(route_add("tcp9", N("10.0.0.66@tcp"), -1, 0), 0);
    settle();
    push_list(N("10.0.0.66@tcp"), "10.0.0.66@tcp 10.0.0.71@tcp");
    ack_push(sent_last(LNET_MSG_PUT));
    assert_ptr_equal(peer_of("10.0.0.71@tcp"), peer_of("10.0.0.66@tcp"));
    for (unsigned i = 0; i < 3; i++) {
        sent_clear();
        push_from(tcp0, N("10.0.0.71@tcp"), 0x1e);
        settle();
        assert_ptr_not_equal(peer_of("10.0.0.71@tcp"), peer_of("10.0.0.66@tcp"));
        assert_int_equal(sent_count(LNET_MSG_PUT), i == 0);
        if (i == 0)
            ack_push(sent_last(LNET_MSG_PUT));
        push_list(N("10.0.0.66@tcp"), "10.0.0.66@tcp 10.0.0.71@tcp");
    }
    node_down();
}

/* Only a node itself, or the gateway of its net, says what it is. What another says is ignored, and
 * acknowledged. The peer is that of the source NID, not of the sender. §3.6 push 1, push 2 */
static void test_push_of_another(void **state)
{
    struct lnet_nid gw, liar;

    node_up(opts_default());
    gw = peer_on(0, 0, "tcp", 0);
    liar = peer_on(0, 0, "tcp", 1);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    settle();
    sent_clear();
    push_through(tcp0, liar, N("10.9.0.1@tcp9"));
    push_through(tcp0, liar, gw);
    assert_int_equal(drops_of(LNET_DROP_PUSH_SOURCE), 1);
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    assert_int_equal(sent_count(LNET_MSG_ACK), 1);
    assert_null(peer_of("10.9.0.1@tcp9"));
    push_through(tcp0, gw, N("10.9.0.1@tcp9"));
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push_of(sent_last(LNET_MSG_PUT), gw, N("10.9.0.1@tcp9"));
    assert_int_equal(peer_of("10.9.0.1@tcp9")->features, 0x1e);
    assert_int_equal(peer_table_find(node->peers, &gw)->features, 0);
    node_down();
}

/* A new peer behind a gateway is pinged when it has acknowledged (§3.6 push 8; there the ping comes
 * first, and a node that somebody made up would get two messages). If it does not answer, it is not
 * pushed to until it pushes again. Parts of a reply make the next ping larger. */
static void test_ping_of_new(void **state)
{
    struct lnet_get get;
    uint8_t data[8192];
    struct lnet_nid gw, from = N("10.9.0.1@tcp9");
    struct sent put;
    uint32_t len;

    node_up(opts_default());
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    settle();
    sent_clear();
    push_through(tcp0, gw, from);
    put = *sent_last(LNET_MSG_PUT);
    ack_push_only(&put);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    lnet_body_get_get(&sent_last(LNET_MSG_GET)->hdr, &get);
    assert_int_equal(get.sink_length, 272);
    len = make_info(data, sizeof(data), from, 0x1e, 2, 60);
    reply_to(sent_last(LNET_MSG_GET), data, 272);
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    lnet_body_get_get(&sent_last(LNET_MSG_GET)->hdr, &get);
    assert_int_equal(get.sink_length, len);
    pass(31 * SEC);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 1);
    assert_int_equal(node->ping->nnew, 0);
    sent_clear();
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    push_through(tcp0, gw, from);
    assert_int_equal(sent_count(LNET_MSG_GET), 1); /* the ping that is due comes first */
    answer_pings(0);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push(sent_last(LNET_MSG_PUT));
    node_down();
}

/* A node that turns its discovery off is another peer from then on, and is not pushed to. */
static void test_push_discovery_off(void **state)
{
    struct lnet_nid from;
    struct peer *p;

    node_up(opts_default());
    from = peer();
    befriend(tcp0, from);
    p = peer_table_find(node->peers, &from);
    assert_int_equal(p->state & (PEER_MULTI_RAIL | PEER_NO_DISCOVERY), PEER_MULTI_RAIL);
    push_from(tcp0, from, 0x0e);
    settle();
    p = peer_table_find(node->peers, &from);
    assert_int_equal(p->state & (PEER_MULTI_RAIL | PEER_NO_DISCOVERY | PEER_MARK_DELETION),
                     PEER_NO_DISCOVERY);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    push_from(tcp0, from, 0x1e); /* and on */
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push(sent_last(LNET_MSG_PUT));
    /* off while a PUSH to it is on its way */
    ON(0, lnet_ni_link(ib0, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    push_from(tcp0, from, 0x0e);
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    p = peer_table_find(node->peers, &from);
    assert_int_equal(p->state & (PEER_MULTI_RAIL | PEER_DISCOVERING | PEER_MARK_DELETION), 0);
    assert_int_equal(node->ping->nnew, 0);
    node_down();
}

/* `set discovery 0` is published and pushed; then no PUSH teaches a NID and none is sent, until
 * `set discovery 1`. */
static void test_set_discovery(void **state)
{
    struct lnet_nid from;
    struct err err;

    node_up(opts_default());
    from = peer();
    befriend(tcp0, from);
    assert_true(published()->features & LNET_PING_DISCOVERY);
    assert_int_equal(lnet_discovery_set(node, false, &err), 0);
    settle();
    assert_false(published()->features & LNET_PING_DISCOVERY);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push_only(sent_last(LNET_MSG_PUT));
    sent_clear();
    for (unsigned on = 0; on < 2; on++) {
        assert_int_equal(lnet_discovery_set(node, on, &err), 0);
        push_list(N("10.0.7.1@tcp"), "10.0.7.1@tcp 10.1.7.1@tcp1");
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), on);
        assert_int_equal(peer_of("10.1.7.1@tcp1") != NULL, on);
    }
    node_down();
}

static void set_done(void *arg, int rc, const struct err *err)
{
    *(int *)arg = rc;
}

/* `peer set --state`: a PUSH goes to a peer only with its bit MULTI_RAIL. */
static void test_set_state(void **state)
{
    const unsigned known = PEER_DISCOVERED | PEER_NIDS_UPTODATE;
    const unsigned states[] = {known, known | PEER_MULTI_RAIL};
    struct lnet_nid from;
    struct err err;
    int rc;

    node_up(opts_default());
    from = peer();
    befriend(tcp0, from);
    for (unsigned i = 0; i < 2; i++) {
        rc = 1;
        assert_int_equal(lnet_peer_set(node, &from, -1, states[i], set_done, &rc, &err), 0);
        settle();
        assert_int_equal(rc, 0);
        ON(0, lnet_ni_link(tcp1, i == 1));
        ON(0, lnet_ni_link(ib0, i == 0));
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), i);
    }
    node_down();
}

/* A peer that is deleted, with a PUSH that waits and with one on its way: no PUSH is sent for it
 * any more, and the slot of the other comes free with the ACK. */
static void test_push_to_gone(void **state)
{
    struct lnet_nid gone, waits;
    struct sent first;

    node_up(opts_default());
    gone = peer_on(0, 0, "tcp", 5);
    waits = peer_on(0, 0, "tcp", 6);
    push_from(tcp0, gone, 0x1e);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    first = *sent_last(LNET_MSG_PUT);
    ON(0, peer_table_del(node->peers, peer_table_find(node->peers, &gone)));
    push_from(tcp0, gone, 0x1e); /* as another peer, that has a PUSH of its own */
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(&first);
    assert_int_equal(peer_table_find(node->peers, &gone)->discovery.acked_seqno, 0);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(peer_table_find(node->peers, &gone)->discovery.acked_seqno, 4);
    assert_int_equal(node->ping->nnew, 0);
    befriend(tcp0, waits);
    ON(0, lnet_ping_push_all(node, true); node->ping->sweep.fn(&node->ping->sweep);
       peer_table_del(node->peers, peer_table_find(node->peers, &gone));
       peer_table_del(node->peers, peer_table_find(node->peers, &waits)));
    settle();
    assert_int_equal(node->ping->waiting[0].n + node->ping->waiting[1].n, 0);
    node_down();
}

/* The info of a node with n NIDs from 10.0.1.0@tcp on. Returns its size. */
static uint32_t long_info(uint8_t *data, size_t size, unsigned n)
{
    uint32_t len = make_info(data, size, N("10.0.1.0@tcp"), 0x1e, 2, 0);

    for (unsigned i = 1; i < n; i++, len += 16) {
        memcpy(data + len, data + 32, 16);
        data[len] = (uint8_t)i;
        data[len + 1] = (uint8_t)(1 + i / 256);
    }
    memcpy(data + 12, &(uint32_t){n + 1}, 4);
    return len;
}

/* A peer lists more NIDs than this node takes: more bytes than a discovery asks for, or more NIDs
 * than an info has room for. The part that came is used, no NID is forgotten for it, and the PUSH
 * that is due is sent. A list that is short although there was room is no such part (§3.4, §3.6
 * row 3). */
static void test_list_too_long(void **state)
{
    struct lnet_node_opts opts = opts_default();
    static uint8_t data[20000];
    struct lnet_nid from = N("10.0.1.0@tcp");
    struct lnet_get get;
    uint32_t len;

    opts.max_peers = 1000;
    node_up(opts);
    len = long_info(data, sizeof(data), 1000);
    push_bytes(tcp0, from, data, len);
    settle();
    lnet_body_get_get(&sent_last(LNET_MSG_GET)->hdr, &get);
    assert_int_equal(get.sink_length, SINK_MAX);
    reply_to(sent_last(LNET_MSG_GET), data, SINK_MAX);
    assert_int_equal(peer_of("10.0.1.0@tcp")->nnis, LNET_MAX_NI);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ack_push_only(sent_last(LNET_MSG_PUT));
    assert_int_equal(peer_of("10.0.1.0@tcp")->discovery.error, 0);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push_only(sent_last(LNET_MSG_PUT));
    /* whole, but of too many NIDs; those of the first list are still there */
    len = long_info(data, sizeof(data), 300);
    push_bytes(tcp0, from, data, len);
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    assert_int_equal(peer_of("10.0.1.0@tcp")->nnis, LNET_MAX_NI);
    assert_null(peer_of("10.0.1.0@tcp")->push.slot);
    assert_int_equal(peer_of("10.0.1.0@tcp")->discovery.error, 0);
    /* cut, although there was room */
    push_bytes(tcp0, from, data, len);
    settle();
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sent_count(LNET_MSG_GET), 3 + i);
        reply_to(sent_last(LNET_MSG_GET), data, 400);
    }
    assert_int_equal(sent_count(LNET_MSG_GET), 5);
    assert_int_equal(peer_of("10.0.1.0@tcp")->discovery.error, -EPROTO);
    node_down();
}

/* §3.2: lnet_interfaces_max, at once. The first NIDs of a longer list are taken. */
static void test_max_interfaces(void **state)
{
    static const struct {
        unsigned max, nids;
    } steps[] = {{16, 16}, {18, 18}, {65535, 20}};
    struct lnet_timing t;
    struct err err;
    uint8_t data[512];
    uint32_t len;

    node_up(opts_default());
    len = long_info(data, sizeof(data), 20);
    for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        lnet_timing_get(node, &t);
        t.max_interfaces = steps[i].max;
        assert_int_equal(lnet_timing_set(node, &t, &err), 0);
        sent_clear();
        data[24] = (uint8_t)(3 + i); /* its sequence number */
        push_bytes(tcp0, N("10.0.1.0@tcp"), data, len);
        settle();
        assert_int_equal(sent_count(LNET_MSG_GET), 0);
        if (sent_count(LNET_MSG_PUT) > 0)
            ack_push_only(sent_last(LNET_MSG_PUT));
        assert_int_equal(peer_of("10.0.1.0@tcp")->nnis, steps[i].nids);
    }
    node_down();
}

/* A peer pushed over tcp, and has only its NID on tcp1 any more. It is pinged and pushed to over
 * tcp1, from our NID there (§3.6: the source is any NID that leads to the primary NID). */
static void test_other_net(void **state)
{
    struct lnet_nid moved = N("10.1.0.71@tcp1");

    node_up(opts_default());
    push_list(N("10.0.0.71@tcp"), "10.1.0.71@tcp1 10.0.0.71@tcp");
    ack_push(sent_last(LNET_MSG_PUT));
    sent_clear();
    push_list(N("10.0.0.71@tcp"), "10.1.0.71@tcp1"); /* without the sender: it is pinged */
    reply_nids = "10.1.0.71@tcp1";
    answer_ping(sent_last(LNET_MSG_GET));
    assert_null(peer_of("10.0.0.71@tcp"));
    sent_clear();
    ON(0, lnet_discover(node->ping, peer_of("10.1.0.71@tcp1"), PEER_FORCE_PING | PEER_FORCE_PUSH);
       lnet_discover_some(node->ping));
    settle();
    assert_true(nid_same(&sent_last(LNET_MSG_GET)->hdr.dest_nid, &moved));
    assert_true(nid_same(&sent_last(LNET_MSG_GET)->hdr.src_nid, &tcp1->nid));
    answer_ping(sent_last(LNET_MSG_GET));
    reply_nids = NULL;
    assert_push(sent_last(LNET_MSG_PUT), moved);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->hdr.src_nid, &tcp1->nid));
    ack_push(sent_last(LNET_MSG_PUT));
    node_down();
}

/* A peer behind a gateway pushed over tcp. The only gateway that is up is one on tcp1. */
static void test_other_route(void **state)
{
    struct lnet_nid gw0, gw1, from = N("10.9.0.1@tcp9");

    node_up(opts_default());
    gw0 = peer_on(0, 0, "tcp", 0);
    gw1 = peer_on(0, 1, "tcp1", 0);
    assert_int_equal(route_add("tcp9", gw0, -1, 0), 0);
    settle();
    push_through(tcp0, gw0, from);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(route_add("tcp9", gw1, -1, 0), 0);
    settle();
    ON(0, lnet_gw_ni_find(node, &gw0)->pairs_down = UINT64_MAX);
    sent_clear();
    ON(0, lnet_ni_link(ib0, false));
    settle();
    assert_push_of(sent_last(LNET_MSG_PUT), gw1, from);
    ack_push(sent_last(LNET_MSG_PUT));
    node_down();
}

/* ---- what begins a discovery: §3.5 ---- */

/* Time goes by until a gateway is pinged. Answers, with the NIDs of reply_nids. */
static void answer_check(void)
{
    sent_clear();
    for (unsigned i = 0; i < 61 && sent_count(LNET_MSG_GET) == 0; i++)
        pass(SEC);
    assert_int_equal(loop.nsent, 1);
    answer_ping(sent_last(LNET_MSG_GET));
}

/* "router check due": a multi-rail gateway gets a GET and then a PUSH in each interval, although
 * nothing has changed. Of one that does not acknowledge only the checks go on. This node does not
 * route. §3.8 monitor 2, check 6, check 7 */
static void test_router_check(void **state)
{
    struct lnet_node_opts opts = opts_default();
    struct lnet_nid gw;

    opts.routing = false; /* no NI ages */
    node_up(opts);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    settle();
    answer_pings(0);
    push_from(tcp0, gw, 0x1e);
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    for (unsigned i = 0; i < 3; i++) {
        answer_check();
        assert_int_equal(sent_count(LNET_MSG_GET), 1);
        assert_int_equal(sent_count(LNET_MSG_PUT), 1);
        assert_push(sent_last(LNET_MSG_PUT), gw);
        ack_push(sent_last(LNET_MSG_PUT));
    }
    for (unsigned i = 0; i < 3; i++) { /* the third within the minute after two that failed */
        answer_check();
        assert_int_equal(sent_count(LNET_MSG_PUT), i < 2);
    }
    node_down();
}

/* A change of the configuration is pushed to peers that take discoveries, one of an NI's status
 * also to a multi-rail peer that the operator configured and that has discovery off. */
static void test_forced(void **state)
{
    struct lnet_nid from = N("10.0.0.71@tcp"), off = N("10.0.0.72@tcp");

    node_up(opts_default());
    befriend(tcp0, from);
    ON(0, assert_int_equal(peer_table_add(node->peers, &off, &off, PEER_MULTI_RAIL), 0));
    push_from(tcp0, off, 0x0e);
    settle();
    assert_int_equal(peer_of("10.0.0.72@tcp")->state & (PEER_MULTI_RAIL | PEER_NO_DISCOVERY),
                     PEER_MULTI_RAIL | PEER_NO_DISCOVERY);
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    ON(0, lnet_ping_changed(node));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    node_down();
}

/* §13: a status DOWN of a peer is stored, and no message for the peer is dropped for it, nor after
 * a silence of `peer_timeout`. The LND says whether the peer can be reached. */
static void test_forwarded_to_down(void **state)
{
    struct lnet_node_opts o = opts_default();
    uint8_t data[64];
    struct lnet_nid from, to;
    uint32_t len;

    node_up(o);
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(0, 1, "tcp1", 0);
    befriend(tcp1, to);
    len = make_info(data, sizeof(data), to, 0x1e, 3, 0);
    memcpy(data + 40, &(uint32_t){LNET_NI_DOWN}, 4);
    push_bytes(tcp1, to, data, len);
    settle();
    assert_int_equal(peer_table_find_ni(node->peers, &to)->status, LNET_NI_DOWN);
    sent_clear();
    for (unsigned i = 0; i < 3; i++) {
        unsigned puts = 0;

        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100));
        settle();
        for (unsigned j = 0; j < loop.nsent; j++)
            puts += loop.sent[j].hdr.type == LNET_MSG_PUT && nid_same(&loop.sent[j].to, &to);
        assert_int_equal(puts, 1);
        sent_clear();
        pass(200 * SEC); /* more than the peer_timeout of a kernel NI, 180 s */
        sent_clear();
    }
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* A forwarded message is sent to a peer that is not up to date, and discovers none (§12.1). */
static void test_forwarded(void **state)
{
    struct lnet_nid from, to;

    node_up(opts_default());
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(0, 1, "tcp1", 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100));
    settle();
    assert_int_equal(loop.nsent, 1);
    assert_true(nid_same(&loop.sent[0].to, &to));
    assert_int_equal(node->peers->npeers, 0);
    /* nor does one to a peer whose discovery failed */
    push_from(tcp1, to, 0x1e);
    settle();
    pass(31 * SEC);
    assert_true(peer_table_find(node->peers, &to)->state & PEER_REDISCOVER);
    sent_clear();
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100));
    settle();
    assert_int_equal(loop.nsent, 1);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_push_and_push_back),
    LNET_TEST(test_push_fails),
    LNET_TEST(test_push_once_more),
    LNET_TEST(test_push_quiet),
    LNET_TEST(test_push_garbage),
    LNET_TEST(test_push_and_ping_fail),
    LNET_TEST(test_push_one_at_a_time),
    LNET_TEST(test_push_many_nids),
    LNET_TEST(test_push_garbage_of_known),
    LNET_TEST(test_push_nid_gone),
    LNET_TEST(test_claim),
    LNET_TEST(test_claim_by_reply),
    LNET_TEST(test_claim_in_advance),
    LNET_TEST(test_claim_of_gateway),
    LNET_TEST(test_push_of_another),
    LNET_TEST(test_ping_of_new),
    LNET_TEST(test_push_discovery_off),
    LNET_TEST(test_set_discovery),
    LNET_TEST(test_set_state),
    LNET_TEST(test_push_to_gone),
    LNET_TEST(test_list_too_long),
    LNET_TEST(test_max_interfaces),
    LNET_TEST(test_other_net),
    LNET_TEST(test_other_route),
    LNET_TEST(test_router_check),
    LNET_TEST(test_forced),
    LNET_TEST(test_forwarded),
    LNET_TEST(test_forwarded_to_down),
};

LNET_TESTS_MAIN("test_lnet_discovery", tests)
