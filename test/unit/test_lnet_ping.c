/* SPDX-License-Identifier: BSD-3-Clause */
/* The ping info, PUSHes and NI status words: docs/protocol/lnet-core.md §3.1 to §3.7, §16. */
#include <errno.h>

#include "test/unit/lnet_test.h"
#include "test/unit/wire_bytes.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

static struct lnet_nid peer(void)
{
    return peer_on(nreactors - 1, 0, "tcp", 0);
}

static void ping_from(struct lnet_ni *ni, struct lnet_nid from)
{
    arrive(ni, from, hdr_ping(from, ni->nid));
    settle();
}

static void assert_info(const struct sent *s, const char *hex)
{
    uint8_t want[512];
    size_t n = unhex(hex, want, sizeof(want));

    assert_int_equal(s->len, n);
    assert_memory_equal(s->payload, want, n);
}

/* What is published now, decoded. */
static struct lnet_ping_info *published(void)
{
    static struct lnet_ping_info info;
    struct ping_target *t = node->ping->current;

    assert_int_equal(lnet_ping_decode(t->data, t->seg.len, &info), LNET_DROP_NONE);
    return &info;
}

/* ---- the info ---- */

static void test_router_info(void **state)
{
    struct lnet_nid from;
    struct lnet_ni *ni;

    node_up(opts_default());
    from = peer();
    ping_from(tcp0, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1a000000 39300000 04000000"
                                           "0000000000000900 04000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "0100020a00000500 dec0aa15 00000000");
    assert_true(nid_same(&sent_last(LNET_MSG_REPLY)->hdr.src_nid, &tcp0->nid));
    from = peer_on(0, 1, "tcp1", 0);
    ping_from(tcp1, from);
    assert_true(nid_same(&sent_last(LNET_MSG_REPLY)->hdr.src_nid, &tcp1->nid));
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 80);
    /* from an offset; a sink that is shorter; both */
    from = peer();
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 16, 4096));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 64);
    assert_memory_equal(sent_last(LNET_MSG_REPLY)->payload, node->ping->current->data + 16, 64);
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, 20));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 20);
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 79, UINT32_MAX));
    settle();
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 1);
    assert_int_equal(drops_sum(), 0);
    /* past the end: refused */
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 81, 16));
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, UINT32_MAX, 4096));
    settle();
    assert_int_equal(drops_of(LNET_DROP_GET_OFFSET), 2);
    /* other match bits are not the ping target's */
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, 0, 0, 4096));
    arrive(tcp0, from, hdr_get(from, tcp0->nid, 0, LNET_PING_MATCH_BITS | 1, 0, 4096));
    settle();
    assert_int_equal(drops_of(LNET_DROP_GET_NO_MATCH), 2);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 5);
    node_down();

    /* NIs of a net adjoin, in the order of their nets */
    node_make(opts_default());
    ni = ni_add("10.0.0.1@tcp");
    ni_add("10.1.0.1@tcp1");
    ni_add("10.0.0.2@tcp");
    node_begin();
    ping_from(ni, peer());
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1a000000 39300000 04000000"
                                           "0000000000000900 03000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000"
                                           "0200000a00000200 dec0aa15 00000000"
                                           "0100010a01000200 dec0aa15 00000000");
    node_down();
}

static void test_end_node_info(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_ni *six, *four;
    struct lnet_nid from;

    o.routing = false;
    node_make(o);
    four = ni_add("10.0.0.1@tcp");
    node_begin();
    ping_from(four, peer());
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 1e000000 39300000 02000000"
                                           "0000000000000900 02000000 00000000"
                                           "0100000a00000200 dec0aa15 00000000");
    node_down();

    /* IPv6 only, then mixed in both orders */
    node_make(o);
    six = ni_add("fd00::1@tcp");
    node_begin();
    from = N("fd00::9@tcp");
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 7e000000 39300000 01000000"
                                           "0000000000000900 02000000 38000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();

    node_make(o);
    six = ni_add("fd00::1@tcp");
    ni_add("10.1.0.1@tcp1");
    node_begin();
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 7e000000 39300000 02000000"
                                           "0000000000000900 03000000 48000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();

    node_make(o);
    ni_add("10.1.0.1@tcp1");
    six = ni_add("fd00::1@tcp");
    node_begin();
    ping_from(six, from);
    assert_info(sent_last(LNET_MSG_REPLY), "676e6970 3e000000 39300000 02000000"
                                           "0000000000000900 03000000 48000000"
                                           "0100010a01000200 dec0aa15 00000000"
                                           "dec0aa15 0c020000 fd000000 00000000 00000000 00000001");
    node_down();
}

/* As many NIs as there may be, all with large NIDs. */
static void test_largest_info(void **state)
{
    struct lnet_ni *ni = NULL;

    node_make(opts_default());
    for (unsigned i = 1; i <= LNET_MAX_NI; i++) {
        char text[64];

        snprintf(text, sizeof(text), "fd00::%x@tcp", i);
        ni = ni_add(text);
    }
    node_begin();
    ping_from(ni, N("fd00::ffff@tcp"));
    assert_int_equal(sent_last(LNET_MSG_REPLY)->len, 4096); /* the sink */
    assert_int_equal(published()->count, LNET_MAX_NI);
    assert_int_equal(node->ping->current->seg.len, 32 + 24 * LNET_MAX_NI);
    node_down();
}

/* ---- PUSHes ---- */

static struct peer_msg *push_bytes(struct lnet_ni *ni, struct lnet_nid from, const uint8_t *data,
                                   uint32_t len)
{
    struct peer_msg *fx =
        rx_new(ni, from, hdr_put(from, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    return fx;
}

static struct peer_msg *push_from(struct lnet_ni *ni, struct lnet_nid from, uint32_t features)
{
    uint8_t data[64];
    uint32_t len = make_info(data, sizeof(data), from, features, 2, 0);

    return push_bytes(ni, from, data, len);
}

static const char *reply_nids; /* NULL: the NID that the ping was sent to */

static uint32_t list_info(uint8_t *data, size_t size, uint32_t seqno, const char *nids)
{
    struct lnet_ping_info info = {.features = 0x1e, .seqno = seqno};
    char text[256], *save = NULL;

    snprintf(text, sizeof(text), "%s", nids);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        info.ni[info.count++] = (struct lnet_ping_ni){.nid = N(w), .status = LNET_NI_UP};
    return (uint32_t)lnet_ping_encode(&info, data, size);
}

static void answer_ping(const struct sent *get)
{
    char text[LNET_NIDSTR_SIZE];
    uint8_t data[512];

    nid_format(&get->hdr.dest_nid, text);
    reply_to(get, data, list_info(data, sizeof(data), 2, reply_nids ? reply_nids : text));
}

/* The peers answer the pings that were sent since. */
static void answer_pings(unsigned since)
{
    for (unsigned i = since; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_GET)
            answer_ping(&loop.sent[i]);
}

/* The peer acknowledges a PUSH of ours. */
static void ack_push_only(const struct sent *push)
{
    struct lnet_hdr h = hdr_of(LNET_MSG_ACK, push->hdr.dest_nid, push->hdr.src_nid, 0);
    struct lnet_ack ack = {.mlength = push->len};
    struct lnet_put put;

    lnet_body_get_put(&push->hdr, &put);
    ack.dst = put.ack;
    lnet_body_set_ack(&h, &ack);
    arrive(push->ni, push->to, h);
    settle();
}

/* The same, and the peer answers the ping that may follow. */
static void ack_push(const struct sent *push)
{
    unsigned since = loop.nsent;

    ack_push_only(push);
    answer_pings(since);
}

static void assert_push_of(const struct sent *s, struct lnet_nid next_hop, struct lnet_nid to)
{
    struct lnet_put put;

    lnet_body_get_put(&s->hdr, &put);
    assert_true(nid_same(&s->to, &next_hop) && nid_same(&s->hdr.dest_nid, &to));
    assert_int_equal(put.portal, 0);
    assert_true(put.match_bits == LNET_PING_MATCH_BITS);
    assert_int_equal(put.offset, 0);
    assert_int_equal(put.hdr_data, 0);
    assert_int_equal(put.ack.interface_cookie, node->api->interface_cookie);
    assert_int_equal(s->hdr.dest_pid, PID);
    assert_int_equal(s->hdr.src_pid, PID);
    assert_int_equal(s->len, node->ping->current->seg.len);
    assert_memory_equal(s->payload, node->ping->current->data, s->len);
}

static void assert_push(const struct sent *s, struct lnet_nid to)
{
    assert_push_of(s, to, to);
}

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

/* More PUSHes at once than there are buffers: the rest waits its turn, none is dropped. */
static void test_push_flood(void **state)
{
    static struct peer_msg *fx[3 * PUSH_IN];
    unsigned i;

    node_up(opts_default());
    loop.hold_recv = true;
    for (i = 0; i < 3 * PUSH_IN; i++) {
        fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i / nreactors), 0x06);
        settle();
    }
    for (i = 0; i < 3 * PUSH_IN; i++)
        assert_int_equal(fx[i]->recvs, i < PUSH_IN);
    assert_int_equal(rx_queue_length(&node->api->lazy), 2 * PUSH_IN);
    /* one ends, one begins: the one that has waited longest */
    for (i = 0; i < 5; i++) {
        recv_end(fx[i], ok);
        settle();
        for (unsigned n = 0; n < 3 * PUSH_IN; n++)
            assert_int_equal(fx[n]->recvs, n <= PUSH_IN + i);
    }
    /* all others: those parked are received as soon as a buffer is there, and do not nest */
    loop.hold_recv = false;
    for (i = 5; i < 3 * PUSH_IN; i++)
        if (fx[i]->recvs && !fx[i]->done) {
            recv_end(fx[i], ok);
            settle();
        }
    assert_in_range(loop.max_depth, 1, 2);
    for (i = 0; i < 3 * PUSH_IN; i++)
        assert_true(fx[i]->done);
    assert_int_equal(sent_count(LNET_MSG_ACK), 3 * PUSH_IN);
    assert_int_equal(drops_sum(), 0);
    /* again; this time no buffer comes free */
    loop.hold_recv = true;
    for (i = 0; i < PUSH_IN + 2; i++) {
        fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
        fx[i]->keep = true;
    }
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), 2);
    clock_us += 5 * SEC;
    settle();
    fx[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
    settle();
    clock_us += 5 * SEC + 2000;
    settle();
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 2);
    assert_int_equal(rx_queue_length(&node->api->lazy), 1);
    clock_us += 5 * SEC + 2000;
    settle();
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 3);
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

/* PUSHes that were begun and do not go on lose their buffers to those that wait. Of these the first
 * is one of a prefix that has none. */
static void test_push_stalled(void **state)
{
    struct lnet_node_opts opts = opts_default();
    static struct peer_msg *begun[PUSH_IN], *waits[40], *other;

    opts.prefix4 = 16;
    node_up(opts);
    loop.hold_recv = true;
    for (unsigned i = 0; i < PUSH_IN; i++)
        begun[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06);
    settle();
    clock_us += 9 * SEC; /* while nobody waits they have their time */
    settle();
    assert_int_equal(loop.abandoned, 0);
    for (unsigned i = 0; i < PUSH_IN; i++)
        begun[i]->in.rx.begun_us = begun[i]->in.rx.progress_us = clock_us;
    for (unsigned i = 0; i < 40; i++)
        waits[i] = push_from(tcp0, peer_on(i % nreactors, 0, "tcp", 100 + i), 0x06);
    other = push_from(tcp0, peer_on(0, 1, "tcp", 0), 0x06);
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), 41);
    clock_us += SEC / 2 - 2000;
    for (unsigned i = 0; i < PUSH_IN - 1; i++)
        begun[i]->in.rx.progress_us = clock_us;
    settle();
    assert_int_equal(loop.abandoned, 0);
    clock_us += SEC / 5;
    settle();
    assert_int_equal(loop.abandoned, 1);
    assert_true(begun[PUSH_IN - 1]->abandoned);
    assert_int_equal(other->recvs, 1);
    assert_int_equal(rx_queue_length(&node->api->lazy), 40);
    /* those that go on and do not end, too */
    for (unsigned i = 0; i < 10; i++) {
        clock_us += SEC / 5;
        for (unsigned k = 0; k < PUSH_IN - 1; k++)
            begun[k]->in.rx.progress_us = clock_us;
        other->in.rx.progress_us = clock_us;
        settle();
    }
    assert_int_equal(rx_queue_length(&node->api->lazy), 0);
    assert_in_range(loop.abandoned, 41, PUSH_IN);
    assert_int_equal(drops_of(LNET_DROP_RX_STALLED), loop.abandoned);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(waits[i]->recvs, 1);
    /* the rest of what was abandoned comes, and is nobody's */
    loop.hold_recv = false;
    for (unsigned i = 0; i < PUSH_IN; i++)
        recv_end(begun[i], ok);
    recv_end(other, ok);
    settle();
    node_down();
}

/* Nor does one peer get the line of those that wait. */
static void test_push_line(void **state)
{
    unsigned taken;

    node_up(opts_default());
    loop.hold_recv = true;
    for (unsigned i = 0; i < PUSH_IN; i++)
        push_from(tcp0, peer_on(i % nreactors, 0, "tcp", i), 0x06)->keep = true;
    settle();
    for (unsigned i = 0; i < 256; i++) {
        push_from(tcp0, peer_on(0, 1, "tcp", 0), 0x06)->keep = true;
        settle();
    }
    taken = rx_queue_length(&node->api->lazy);
    assert_in_range(taken, 100, 129);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 256 - taken);
    for (unsigned i = 0; i < 100; i++)
        push_from(tcp0, peer_on(i % nreactors, 2, "tcp", i), 0x06)->keep = true;
    settle();
    assert_int_equal(rx_queue_length(&node->api->lazy), taken + 100);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 256 - taken);
    node_down();
}

/* One peer begins PUSHes and ends none: it gets a share of the buffers, and others theirs. */
static void test_push_hog(void **state)
{
    static struct peer_msg *fx[PUSH_IN], *other;
    struct lnet_nid hog;
    unsigned refused;

    node_up(opts_default());
    loop.hold_recv = true;
    hog = peer_on(0, 0, "tcp", 0);
    for (unsigned i = 0; i < PUSH_IN; i++) {
        fx[i] = push_from(tcp0, hog, 0x06);
        settle();
    }
    refused = (unsigned)drops_of(LNET_DROP_NO_MSG_MEMORY);
    assert_in_range(refused, 1, PUSH_IN - 1);
    assert_int_equal(rx_queue_length(&node->api->lazy), 0);
    other = push_from(tcp0, peer_on(0, 0, "tcp", 1), 0x06);
    settle();
    assert_int_equal(other->recvs, 1);
    assert_int_equal(drops_sum(), refused);
    /* what it holds it gives back, and may have again */
    loop.hold_recv = false;
    for (unsigned i = 0; i < PUSH_IN; i++)
        recv_end(fx[i], ok);
    recv_end(other, ok);
    settle();
    assert_int_equal(node->api->arriving_all, 0);
    other = push_from(tcp0, hog, 0x06);
    settle();
    assert_true(other->done);
    assert_int_equal(drops_sum(), refused);
    node_down();
}

/* ---- status words ---- */

#define AGE (110 * SEC)

static uint32_t status_of(const struct lnet_ni *ni)
{
    const struct lnet_ping_info *info = published();

    for (unsigned i = 0; i < info->count; i++)
        if (nid_same(&info->ni[i].nid, &ni->nid)) {
            assert_int_equal(info->ni[i].status, ni->status);
            return info->ni[i].status;
        }
    fail_msg("NI is not listed");
    return 0;
}

/* A known multi-rail peer that has acknowledged us. */
static void befriend(struct lnet_ni *ni, struct lnet_nid nid)
{
    push_from(ni, nid, 0x1e);
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    sent_clear();
}

/* Time goes by and every PUSH is acknowledged within the second. */
static void pass_acking(uint64_t us)
{
    unsigned i = 0;

    sent_clear();
    for (; us >= SEC; us -= SEC) {
        pass(SEC);
        for (; i < loop.nsent; i++)
            if (loop.sent[i].hdr.type == LNET_MSG_PUT)
                ack_push(&loop.sent[i]);
    }
}

static void test_ageing(void **state)
{
    struct lnet_nid from, from1;
    uint32_t seqno;

    node_up(opts_default());
    from = peer();
    from1 = peer_on(0, 1, "tcp1", 0);
    befriend(tcp0, from);
    seqno = published()->seqno;
    pass(AGE - 3 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    assert_int_equal(loop.nsent, 0);
    /* tcp1 is pinged in time, by a ping for another node; no peer reaches us over tcp0 and o2ib: a
     * refused GET with a NID of ours as source does not count */
    arrive(tcp1, from1, hdr_ping(from1, N("10.0.0.77@tcp")));
    arrive(tcp0, from, hdr_ping(tcp1->nid, from1));
    settle();
    sent_clear();
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    assert_int_equal(status_of(ib0), LNET_NI_DOWN);
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(published()->seqno, seqno);   /* no new configuration */
    assert_int_equal(sent_count(LNET_MSG_PUT), 1); /* forced: the number was acknowledged */
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(20 * SEC);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);   /* once per change */
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN); /* the ACK did not raise it */
    /* UP again by a ping for us; the answer says so already */
    ping_from(tcp0, from);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    assert_memory_equal(sent_last(LNET_MSG_REPLY)->payload, node->ping->current->data, 80);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    ping_from(tcp0, from);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    /* and by one that passes through, on every reactor */
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid p = peer_on(i, 0, "tcp", 0);

        pass_acking(AGE + 2 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
        sent_clear();
        arrive(tcp0, p, hdr_ping(p, from1));
        settle();
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(ib0), LNET_NI_DOWN);
        assert_int_equal(sent_count(LNET_MSG_GET), 1);
        assert_int_equal(sent_count(LNET_MSG_PUT), 1);
        ack_push(sent_last(LNET_MSG_PUT));
    }
    node_down();
}

/* Peers that send data and no pings keep the net they send over up, and raise it again. */
static void test_ageing_data(void **state)
{
    node_up(opts_default());
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid from = peer_on(i, 0, "tcp", 0), to = peer_on(0, 1, "tcp1", 0);

        pass(AGE - 10 * SEC);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
        settle();
        pass(AGE - 10 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
        assert_int_equal(status_of(ib0), LNET_NI_DOWN);
        arrive(tcp0, from, hdr_get(from, to, 1, LNET_PING_MATCH_BITS, 0, 10));
        settle();
        pass(AGE - 10 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        pass(20 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 0));
        settle();
        pass(2 * SEC);
        assert_int_equal(status_of(tcp0), LNET_NI_UP);
        assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    }
    node_down();
}

/* Messages that came before a link went down do not raise its NI once the link is back. */
static void test_ageing_data_and_link(void **state)
{
    struct lnet_nid from, to;

    node_up(opts_default());
    from = peer();
    to = peer_on(0, 1, "tcp1", 0);
    ping_from(tcp0, from);
    pass(2 * SEC);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    ON(nreactors - 1, lnet_ni_link(tcp0, true); lnet_ni_link(tcp0, false));
    settle();
    ON(nreactors - 1, lnet_ni_link(tcp0, true));
    settle();
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    settle();
    pass(2 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    node_down();
}

static void test_ageing_settings(void **state)
{
    struct lnet_node_opts o = opts_default();

    o.check_interval = 5;
    o.ping_timeout = 2;
    node_up(o);
    pass(5 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    pass(3 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_DOWN);
    node_down();
    o.routing = false; /* an end node does not age */
    node_up(o);
    pass(500 * SEC);
    assert_int_equal(status_of(tcp0), LNET_NI_UP);
    node_down();
}

/* A ping raises the ingress NI only; ageing lowers all NIs of the net. */
static void test_ageing_two_nis(void **state)
{
    struct lnet_ni *a, *b;

    node_make(opts_default());
    a = ni_add("10.0.0.1@tcp");
    b = ni_add("10.0.0.2@tcp");
    node_begin();
    pass(AGE - 10 * SEC);
    ping_from(b, peer()); /* keeps the whole net */
    pass(20 * SEC);
    assert_int_equal(status_of(a), LNET_NI_UP);
    pass(AGE);
    assert_int_equal(status_of(a), LNET_NI_DOWN);
    assert_int_equal(status_of(b), LNET_NI_DOWN);
    ping_from(b, peer());
    assert_int_equal(status_of(a), LNET_NI_DOWN);
    assert_int_equal(status_of(b), LNET_NI_UP);
    node_down();
}

static void test_link_router(void **state)
{
    struct lnet_nid from, from1;

    node_up(opts_default());
    from = peer();
    from1 = peer_on(0, 1, "tcp1", 0);
    befriend(tcp0, from);
    /* a link that is late at the start: as if it had been there */
    ON(nreactors - 1, lnet_ni_link(tcp1, false));
    settle();
    ack_push(sent_last(LNET_MSG_PUT));
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    ack_push(sent_last(LNET_MSG_PUT));
    /* one that was in use */
    ping_from(tcp1, from1);
    sent_clear();
    ON(nreactors - 1, lnet_ni_link(tcp1, false); lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    /* down stays down, even when pinged (by another way in) */
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    pass(3 * SEC);
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    ping_from(tcp1, from1);
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    assert_int_equal(published()->seqno, 4);
    node_down();
}

static void test_link_end_node(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;

    o.routing = false;
    node_up(o);
    from = peer();
    befriend(tcp0, from);
    ON(nreactors - 1, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_DOWN);
    assert_int_equal(published()->seqno, 5);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    ON(nreactors - 1, lnet_ni_link(tcp1, true));
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(published()->seqno, 6);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    ack_push(sent_last(LNET_MSG_PUT));
    pass(2 * SEC);
    assert_int_equal(sent_count(LNET_MSG_PUT), 2);
    node_down();
}

/* Replies that are still being read pin their info. When all buffers are pinned a change waits, and
 * is published and pushed as soon as one is free. */
static void test_changes_while_read(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;

    o.check_interval = 5;
    o.ping_timeout = 2;
    node_up(o);
    from = peer();
    befriend(tcp0, from);
    /* each round: a reply in flight with the present info, then a change */
    for (unsigned i = 0; i < PING_TARGETS - 1; i++) {
        loop.hold_send = true;
        ping_from(ib0, peer_on(0, 2, "o2ib", 1));
        loop.hold_send = false;
        ON(0, lnet_ni_link(tcp1, i & 1));
        settle();
        if (i & 1)
            ping_from(tcp1, N("10.1.0.9@tcp1"));
        settle();
        ack_push(sent_last(LNET_MSG_PUT));
        assert_int_equal(status_of(tcp1), i & 1 ? LNET_NI_UP : LNET_NI_DOWN);
    }
    assert_int_equal(loop.nheld, PING_TARGETS - 1);
    loop.hold_send = true;
    ping_from(ib0, peer_on(0, 2, "o2ib", 1));
    loop.hold_send = false;
    sent_clear();
    assert_int_equal(tcp1->status, LNET_NI_DOWN);
    ping_from(tcp0, from);
    ON(0, lnet_ni_link(tcp1, true));
    settle();
    sent_clear();
    ping_from(tcp1, N("10.1.0.9@tcp1"));
    assert_int_equal(tcp1->status, LNET_NI_UP);
    assert_int_equal(published()->count, 3);
    assert_int_equal(published()->ni[1].status, LNET_NI_DOWN); /* not yet */
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);             /* the old one is no news */
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(status_of(tcp1), LNET_NI_UP);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push(sent_last(LNET_MSG_PUT), from);
    ack_push(sent_last(LNET_MSG_PUT));
    send_end_all(ok);
    settle();
    node_down();
}

/* One PUSH per peer at a time: what changes meanwhile follows its ACK. */
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

static void push_list(struct lnet_nid from, const char *nids)
{
    uint8_t data[512];

    push_bytes(tcp0, from, data, list_info(data, sizeof(data), 2, nids));
    settle();
}

static struct peer *peer_of(const char *nid)
{
    struct lnet_nid n = N(nid);

    return peer_table_find(node->peers, &n);
}

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

/* A known peer that pushes what is no info is pinged for it, once at a time. */
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

/* A PUSH that `sender` sends for `from`. */
static void push_through(struct lnet_ni *ni, struct lnet_nid sender, struct lnet_nid from)
{
    uint8_t data[64];
    uint32_t len = make_info(data, sizeof(data), from, 0x1e, 2, 0);
    struct peer_msg *fx =
        rx_new(ni, sender, hdr_put(from, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    settle();
}

/* A new peer behind a gateway is pinged when it has acknowledged. If it does not answer, it is not
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
    assert_true(TAILQ_EMPTY(&node->ping->waiting[0]) && TAILQ_EMPTY(&node->ping->waiting[1]));
    node_down();
}

/* Many nodes, more than PUSHes may be under way, some of them gone. */
static void test_push_many(void **state)
{
    struct lnet_node_opts o = opts_default();
    unsigned i, n = 3 * DISCOVERIES, dead = 0;

    o.max_peers = 1000;
    node_up(o);
    for (i = 0; i < n; i++)
        befriend(tcp0, peer_on(i % nreactors, 0, "tcp", i / nreactors));
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES);
    for (i = 0; i < loop.nsent; i++) {
        if (loop.sent[i].hdr.type != LNET_MSG_PUT)
            continue;
        if (i % 16 == 15)
            dead++;
        else
            ack_push(&loop.sent[i]);
    }
    pass(31 * SEC);
    for (; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push(&loop.sent[i]);
    assert_int_equal(sent_count(LNET_MSG_PUT), n); /* each once */
    assert_true(dead > 0);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), dead);
    /* those that did not answer are left alone until they come again */
    sent_clear();
    ON(0, lnet_ni_link(ib0, false));
    settle();
    for (i = 0; i < loop.nsent; i++)
        if (loop.sent[i].hdr.type == LNET_MSG_PUT)
            ack_push(&loop.sent[i]);
    assert_int_equal(sent_count(LNET_MSG_PUT), n - dead);
    node_down();
}

/* 10,000 peers of one prefix: each has a place, and each gets one PUSH of a change. */
static void test_push_10000(void **state)
{
    struct lnet_node_opts o = opts_default();
    const unsigned n = 10000;
    unsigned pushed = 0;
    char text[32];

    o.max_peers = n;
    node_up(o);
    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof(text), "10.0.%u.%u@tcp", 1 + i / 250, 1 + i % 250);
        befriend(tcp0, N(text));
    }
    assert_int_equal(node->peers->npeers, n);
    assert_int_equal(node->peers->nnis_unanswered, 0);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    while (sent_count(LNET_MSG_PUT) > 0) {
        struct sent put[DISCOVERIES];
        unsigned here = 0;

        assert_in_range(loop.nsent, 1, DISCOVERIES);
        for (unsigned i = 0; i < loop.nsent; i++)
            put[here++] = loop.sent[i];
        pushed += here;
        sent_clear();
        for (unsigned i = 0; i < here; i++)
            ack_push_only(&put[i]);
    }
    assert_int_equal(pushed, n);
    printf("%u peers: %zu KiB\n", n, lnet_peers_bytes(&node->opts) / 1024);
    node_down();
}

/* Only a node itself, or the gateway of its net, says what it is. */
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
    push_through(tcp0, gw, N("10.9.0.1@tcp9"));
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_push_of(sent_last(LNET_MSG_PUT), gw, N("10.9.0.1@tcp9"));
    node_down();
}

/* Many made-up nodes behind a gateway fill the table and acknowledge nothing: those who do keep
 * their place, and hear of each change at once. */
static void test_push_made_up(void **state)
{
    struct lnet_node_opts o = opts_default();
    unsigned changes, told;
    struct lnet_nid gw;
    char text[32];

    o.max_peers = 200;
    node_up(o);
    gw = peer_on(0, 0, "tcp", 0);
    assert_int_equal(route_add("tcp9", gw, -1, 0), 0);
    for (unsigned i = 0; i < 8; i++)
        befriend(tcp0, peer_on(i % nreactors, 0, "tcp", 1 + i / nreactors));
    sent_clear();
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "10.9.%u.%u@tcp9", i / 250, 1 + i % 250);
        push_through(tcp0, gw, N(text));
    }
    assert_int_equal(node->peers->npeers - node->peers->npinned_peers, 200);
    assert_int_equal(sent_count(LNET_MSG_PUT), DISCOVERIES_NEW);
    for (changes = 0; changes < 3; changes++) {
        sent_clear();
        ON(0, lnet_ni_link(tcp1, changes % 2));
        settle();
        told = 0;
        for (unsigned i = 0; i < loop.nsent; i++)
            if (loop.sent[i].hdr.type == LNET_MSG_PUT && !nid_same(&loop.sent[i].to, &gw)) {
                ack_push(&loop.sent[i]);
                told++;
            }
        assert_int_equal(told, 8);
    }
    node_down();
}

/* ---- pings on request ---- */

struct pong {
    int calls, status;
    struct lnet_ping_info info;
};

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    struct pong *p = arg;

    assert_ptr_equal(reactor_self(), reactor_control(env));
    p->calls++;
    p->status = status;
    assert_true((status == 0) == (info != NULL));
    if (info)
        p->info = *info;
}

static struct pong ping_begin(struct pong *p, struct lnet_nid dest, const struct lnet_nid *src)
{
    memset(p, 0, sizeof(*p));
    sent_clear();
    assert_int_equal(lnet_ping(node, &dest, src, 2500, on_pong, p), 0);
    settle();
    return *p;
}

static void test_ping_request(void **state)
{
    static struct pong p;
    static uint8_t data[8192];
    struct lnet_nid dest, src;
    struct lnet_get get;
    uint32_t len;

    node_up(opts_default());
    dest = peer();
    ping_begin(&p, dest, NULL);
    assert_int_equal(p.calls, 0);
    lnet_body_get_get(&sent_last(LNET_MSG_GET)->hdr, &get);
    assert_int_equal(get.sink_length, 3960);
    assert_int_equal(get.src_offset, 0);
    assert_true(get.match_bits == LNET_PING_MATCH_BITS && get.portal == 0);
    len = make_info(data, sizeof(data), dest, 0x1e, 7, 2);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.seqno, 7);
    assert_int_equal(p.info.count, 3);
    /* garbage */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), (const uint8_t *)"no ping info here at all", 24);
    assert_int_equal(p.status, -EPROTO);
    assert_int_equal(p.calls, 1);
    assert_int_equal(drops_of(LNET_DROP_PING_BAD_INFO), 1);
    /* nothing */
    ping_begin(&p, dest, NULL);
    pass(2 * SEC);
    assert_int_equal(p.calls, 0);
    pass(SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -ETIMEDOUT);
    /* too late */
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 1);
    /* the reply breaks off */
    ping_begin(&p, dest, NULL);
    loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    reply_to(sent_last(LNET_MSG_GET), data, len);
    loop.recv_result = ok;
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -EIO);
    /* not sent, at once and later */
    loop.send_result = lost;
    ping_begin(&p, dest, NULL);
    assert_int_equal(p.status, -EHOSTUNREACH);
    loop.send_result = ok;
    loop.hold_send = true;
    ping_begin(&p, dest, NULL);
    send_end_all(lost);
    settle();
    assert_int_equal(p.status, -EHOSTUNREACH);
    assert_int_equal(p.calls, 1);
    /* timed out while the LND still has it: told in time, and the memory stays until it lets go;
     * not even a reply in that time makes a second call */
    ping_begin(&p, dest, NULL);
    reply_hold = true;
    reply_to(sent_last(LNET_MSG_GET), data, len);
    reply_hold = false;
    assert_int_equal(p.calls, 0);
    pass(3 * SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, -ETIMEDOUT);
    recv_end(loop.rxs, ok);
    settle();
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    /* the reply before the send is done */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 0);
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    /* as before, and the send is not done in time either: the answer counts */
    ping_begin(&p, dest, NULL);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    pass(3 * SEC);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.seqno, 7);
    send_end_all(ok);
    settle();
    assert_int_equal(p.calls, 1);
    loop.hold_send = false;
    /* no way there, an unknown source, ourselves */
    ping_begin(&p, N("10.9.0.1@tcp9"), NULL);
    assert_int_equal(p.status, -EHOSTUNREACH);
    src = N("10.0.0.200@tcp");
    ping_begin(&p, dest, &src);
    assert_int_equal(p.status, -EHOSTUNREACH);
    ping_begin(&p, ib0->nid, NULL);
    assert_int_equal(p.status, 0);
    assert_int_equal(p.info.count, 3);
    assert_int_equal(loop.nsent, 0);
    node_down();
}

/* ---- pings of connected peers ---- */

static bool is_connected;
static unsigned connects, give_ups;

static bool on_connect(struct lnet_ni *ni, struct lnet_peer_ni *p, bool give_up)
{
    assert_ptr_equal(ni, tcp0);
    assert_true(p->refs > 0);
    assert_ptr_equal(reactor_self(), lnet_nid_home(node, &p->nid));
    connects += !give_up;
    give_ups += give_up;
    return is_connected;
}

static int ping_connected(struct pong *p, struct lnet_nid dest, bool give_up)
{
    memset(p, 0, sizeof(*p));
    sent_clear();
    assert_int_equal(lnet_ping_connected(node, &dest, 2500, give_up, on_pong, p), 0);
    settle();
    return p->status;
}

/* A peer that is not connected costs no message. */
static void test_ping_connected(void **state)
{
    static struct pong p;
    static uint8_t data[8192];
    struct lnet_nid dest;
    uint32_t len;

    node_up(opts_default());
    dest = peer();
    loop_tcp.peer_connect = on_connect;
    is_connected = false;
    assert_int_equal(ping_connected(&p, dest, false), -ENOTCONN);
    assert_int_equal(ping_connected(&p, dest, true), -ENOTCONN);
    assert_int_equal(p.calls, 1);
    assert_int_equal(loop.nsent, 0);
    assert_true(connects == 1 && give_ups == 1);
    is_connected = true;
    ping_connected(&p, dest, false);
    assert_int_equal(p.calls, 0);
    len = make_info(data, sizeof(data), dest, 0x1e, 7, 2);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.status, 0);
    /* no path; an LND that has no connections */
    assert_int_equal(ping_connected(&p, N("10.9.0.1@tcp9"), false), -EHOSTUNREACH);
    loop_tcp.peer_connect = NULL;
    ping_connected(&p, dest, false);
    reply_to(sent_last(LNET_MSG_GET), data, len);
    assert_int_equal(p.status, 0);
    assert_int_equal(connects, 2);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_ping_connected),
    LNET_TEST(test_router_info),
    LNET_TEST(test_end_node_info),
    LNET_TEST(test_largest_info),
    LNET_TEST(test_push_and_push_back),
    LNET_TEST(test_push_fails),
    LNET_TEST(test_push_quiet),
    LNET_TEST(test_push_garbage),
    LNET_TEST(test_push_flood),
    LNET_TEST(test_push_and_ping_fail),
    LNET_TEST(test_push_stalled),
    LNET_TEST(test_push_line),
    LNET_TEST(test_push_hog),
    LNET_TEST(test_ageing),
    LNET_TEST(test_ageing_data),
    LNET_TEST(test_ageing_data_and_link),
    LNET_TEST(test_ageing_settings),
    LNET_TEST(test_ageing_two_nis),
    LNET_TEST(test_link_router),
    LNET_TEST(test_link_end_node),
    LNET_TEST(test_changes_while_read),
    LNET_TEST(test_push_one_at_a_time),
    LNET_TEST(test_push_many_nids),
    LNET_TEST(test_push_garbage_of_known),
    LNET_TEST(test_claim),
    LNET_TEST(test_ping_of_new),
    LNET_TEST(test_push_discovery_off),
    LNET_TEST(test_push_to_gone),
    LNET_TEST(test_push_many),
    LNET_TEST(test_push_10000),
    LNET_TEST(test_push_of_another),
    LNET_TEST(test_push_made_up),
    LNET_TEST(test_ping_request),
};

LNET_TESTS_MAIN("test_lnet_ping", tests)
