/* SPDX-License-Identifier: BSD-3-Clause */
/* What lnet_parse() accepts, refuses and drops: docs/protocol/lnet-core.md §4.2. */
#include "test/unit/lnet_test.h"

/* The outcomes of a header. */
enum outcome {
    FORWARDED,
    LOCAL,    /* received by this node, or dropped there by name */
    DROPPED,  /* read and thrown away */
    PROTOCOL, /* the connection is to be closed */
};

struct row {
    const char *what;
    uint32_t type;
    const char *src, *dest;
    uint32_t len;
    enum outcome outcome;
    enum lnet_drop why;
    bool rdma_get;
};

/* All from 10.0.0.9@tcp, in on 10.0.0.1@tcp. tcp5 is routed through 10.0.0.8@tcp, tcp6 through
 * 10.0.0.9@tcp. */
static const struct row rows[] = {
    /* row 1 */
    {"GET with payload", LNET_MSG_GET, "10.0.0.9@tcp", "10.1.0.9@tcp1", 1, PROTOCOL,
     LNET_DROP_HDR_LEN_NOT_ZERO},
    {"ACK with payload", LNET_MSG_ACK, "10.0.0.9@tcp", "10.1.0.9@tcp1", UINT32_MAX, PROTOCOL,
     LNET_DROP_HDR_LEN_NOT_ZERO},
    {"GET with payload for me", LNET_MSG_GET, "10.0.0.9@tcp", "10.0.0.1@tcp", 1, PROTOCOL,
     LNET_DROP_HDR_LEN_NOT_ZERO},
    /* row 2 */
    {"PUT of 1 MiB", LNET_MSG_PUT, "10.0.0.9@tcp", "10.1.0.9@tcp1", LNET_MAX_PAYLOAD, FORWARDED},
    {"PUT of 1 MiB + 1", LNET_MSG_PUT, "10.0.0.9@tcp", "10.1.0.9@tcp1", LNET_MAX_PAYLOAD + 1,
     PROTOCOL, LNET_DROP_HDR_TOO_LONG},
    {"REPLY of 4 GiB", LNET_MSG_REPLY, "10.0.0.9@tcp", "10.0.0.1@tcp", UINT32_MAX, PROTOCOL,
     LNET_DROP_HDR_TOO_LONG},
    {"REPLY of 1 MiB", LNET_MSG_REPLY, "10.0.0.9@tcp", "10.1.0.9@tcp1", LNET_MAX_PAYLOAD,
     FORWARDED},
    /* row 3 */
    {"HELLO", LNET_MSG_HELLO, "10.0.0.9@tcp", "10.1.0.9@tcp1", 0, PROTOCOL, LNET_DROP_HDR_TYPE},
    {"type 5", 5, "10.0.0.9@tcp", "10.1.0.9@tcp1", 0, PROTOCOL, LNET_DROP_HDR_TYPE},
    {"type 2^32-1", UINT32_MAX, "10.0.0.9@tcp", "10.0.0.1@tcp", 0, PROTOCOL, LNET_DROP_HDR_TYPE},
    /* row 5 */
    {"ingress net", LNET_MSG_PUT, "10.0.0.9@tcp", "10.0.0.7@tcp", 8, PROTOCOL,
     LNET_DROP_DEST_SAME_NET},
    {"back to the sender", LNET_MSG_PUT, "10.0.0.9@tcp", "10.0.0.9@tcp", 8, PROTOCOL,
     LNET_DROP_DEST_SAME_NET},
    {"large NID on ingress net", LNET_MSG_PUT, "10.0.0.9@tcp", "fd00::7@tcp", 8, PROTOCOL,
     LNET_DROP_DEST_SAME_NET},
    {"my other NID of the net", LNET_MSG_GET, "10.0.0.9@tcp", "10.0.0.2@tcp", 0, PROTOCOL,
     LNET_DROP_DEST_SAME_NET},
    /* row 6 */
    {"my other NID", LNET_MSG_GET, "10.0.0.9@tcp", "10.1.0.1@tcp1", 0, PROTOCOL,
     LNET_DROP_DEST_OTHER_OWN_NID},
    {"0@lo", LNET_MSG_PUT, "10.0.0.9@tcp", "0@lo", 8, PROTOCOL, LNET_DROP_DEST_OTHER_OWN_NID},
    /* row 7 */
    {"RDMA GET, foreign", LNET_MSG_GET, "10.0.0.9@tcp", "10.1.0.9@tcp1", 0, PROTOCOL,
     LNET_DROP_RDMA_GET_NOT_LOCAL, true},
    {"RDMA GET, for me", LNET_MSG_GET, "10.0.0.9@tcp", "10.0.0.1@tcp", 0, LOCAL,
     LNET_DROP_PORTAL_RANGE, true},
    /* no path */
    {"unknown net", LNET_MSG_PUT, "10.0.0.9@tcp", "10.9.0.9@tcp9", 8, DROPPED, LNET_DROP_NO_ROUTE},
    {"unknown net, empty", LNET_MSG_ACK, "10.0.0.9@tcp", "1@kfi", 0, DROPPED, LNET_DROP_NO_ROUTE},
    /* sources */
    {"through no gateway", LNET_MSG_PUT, "10.5.0.9@tcp5", "10.1.0.9@tcp1", 8, DROPPED,
     LNET_DROP_SRC_NOT_ALLOWED},
    {"through the gateway", LNET_MSG_PUT, "10.6.0.9@tcp6", "10.1.0.9@tcp1", 8, FORWARDED},
    {"gateway's net", LNET_MSG_PUT, "10.0.0.77@tcp", "10.1.0.9@tcp1", 8, FORWARDED},
    {"unknown source net", LNET_MSG_PUT, "10.77.0.9@tcp77", "10.1.0.9@tcp1", 8, DROPPED,
     LNET_DROP_SRC_NOT_ALLOWED},
    {"source net is local, not the sender's", LNET_MSG_PUT, "10.2.0.5@o2ib", "10.1.0.9@tcp1", 8,
     DROPPED, LNET_DROP_SRC_NOT_ALLOWED},
    {"source is me", LNET_MSG_PUT, "10.0.0.1@tcp", "10.1.0.9@tcp1", 8, DROPPED,
     LNET_DROP_SRC_IS_OWN},
    {"source is my other NID", LNET_MSG_GET, "10.1.0.1@tcp1", "10.0.0.1@tcp", 0, DROPPED,
     LNET_DROP_SRC_IS_OWN},
    {"source 0@lo", LNET_MSG_PUT, "0@lo", "10.1.0.9@tcp1", 8, DROPPED, LNET_DROP_SRC_IS_OWN},
    {"for me, through the gateway", LNET_MSG_GET, "10.6.0.9@tcp6", "10.0.0.1@tcp", 0, LOCAL,
     LNET_DROP_PORTAL_RANGE},
    {"for me, foreign source", LNET_MSG_GET, "10.5.0.9@tcp5", "10.0.0.1@tcp", 0, DROPPED,
     LNET_DROP_SRC_NOT_ALLOWED},
    /* fine */
    {"PUT", LNET_MSG_PUT, "10.0.0.9@tcp", "10.1.0.9@tcp1", 5, FORWARDED},
    {"GET", LNET_MSG_GET, "10.0.0.9@tcp", "10.1.0.9@tcp1", 0, FORWARDED},
    {"ACK", LNET_MSG_ACK, "10.0.0.9@tcp", "10.2.0.9@o2ib", 0, FORWARDED},
    {"REPLY", LNET_MSG_REPLY, "10.0.0.9@tcp", "10.2.0.9@o2ib", 5000, FORWARDED},
    {"empty PUT", LNET_MSG_PUT, "10.0.0.9@tcp", "10.1.0.9@tcp1", 0, FORWARDED},
    {"large NID out", LNET_MSG_PUT, "10.0.0.9@tcp", "fd00::9@tcp1", 8, FORWARDED},
    {"routed on", LNET_MSG_PUT, "10.0.0.9@tcp", "10.5.0.9@tcp5", 8, FORWARDED},
    /* row 18 */
    {"PUT, portal 0x8b8a8988", LNET_MSG_PUT, "10.0.0.9@tcp", "10.0.0.1@tcp", 9, LOCAL,
     LNET_DROP_PORTAL_RANGE},
    {"ACK for me", LNET_MSG_ACK, "10.0.0.9@tcp", "10.0.0.1@tcp", 0, LOCAL, LNET_DROP_ACK_NO_MATCH},
    {"REPLY for me", LNET_MSG_REPLY, "10.0.0.9@tcp", "10.0.0.1@tcp", 9, LOCAL,
     LNET_DROP_REPLY_NO_MATCH},
};

#define ROWS_N (sizeof(rows) / sizeof(rows[0]))

static void make_node(bool routing, enum lnet_source_check check)
{
    struct lnet_node_opts o = opts_default();

    o.routing = routing;
    o.source_check = check;
    node_make(o);
    tcp0 = ni_add("10.0.0.1@tcp");
    ni_add("10.0.0.2@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    assert_int_equal(route_add("tcp5", N("10.0.0.8@tcp"), -1, 0), 0);
    assert_int_equal(route_add("tcp6", N("10.0.0.9@tcp"), -1, 0), 0);
    node_begin();
    sent_clear(); /* the gateway checks */
}

struct counts {
    uint64_t stat[LNET_STAT_COUNT], drop[LNET_DROP_COUNT];
    struct lnet_ni_stats ni;
    uint64_t peer_drop, peer_recv;
};

static void counts_take(struct counts *c, uint32_t type)
{
    struct lnet_nid from = N("10.0.0.9@tcp");
    struct lnet_peer_ni *p = peer_find(&from);

    memset(c, 0, sizeof(*c));
    lnet_stats_get(node, c->stat);
    lnet_drops_get(node, c->drop);
    c->ni = ni_stats(tcp0);
    if (p && type < LNET_MSG_TYPES) {
        c->peer_drop = p->drop_count[type];
        c->peer_recv = p->recv_count[type];
    }
}

static void check_counts(const struct row *r, const struct counts *a, const struct counts *b)
{
    bool drop = r->outcome == DROPPED || r->outcome == LOCAL;
    bool routed = r->outcome == FORWARDED;

    for (unsigned d = 0; d < LNET_DROP_COUNT; d++)
        assert_int_equal(b->drop[d] - a->drop[d], drop && d == r->why ? 1 : 0);
    assert_int_equal(b->stat[LNET_STAT_DROP_COUNT] - a->stat[LNET_STAT_DROP_COUNT], drop);
    assert_int_equal(b->stat[LNET_STAT_DROP_LENGTH] - a->stat[LNET_STAT_DROP_LENGTH],
                     drop ? r->len : 0);
    assert_int_equal(b->stat[LNET_STAT_ROUTE_COUNT] - a->stat[LNET_STAT_ROUTE_COUNT], routed);
    assert_int_equal(b->stat[LNET_STAT_ROUTE_LENGTH] - a->stat[LNET_STAT_ROUTE_LENGTH],
                     routed ? r->len : 0);
    assert_int_equal(b->stat[LNET_STAT_RECV_COUNT], a->stat[LNET_STAT_RECV_COUNT]);
    assert_int_equal(b->stat[LNET_STAT_SEND_COUNT], a->stat[LNET_STAT_SEND_COUNT]);
    assert_int_equal(b->stat[LNET_STAT_ERRORS], 0);
    if (r->type >= LNET_MSG_TYPES)
        return;
    assert_int_equal(b->ni.dropped[r->type] - a->ni.dropped[r->type], drop);
    assert_int_equal(b->ni.received[r->type] - a->ni.received[r->type], routed);
    assert_int_equal(b->peer_drop - a->peer_drop, drop);
    assert_int_equal(b->peer_recv - a->peer_recv, routed);
}

static void check_row(const struct row *r)
{
    struct lnet_nid from = N("10.0.0.9@tcp");
    struct counts before, after;
    struct peer_msg *fx;

    print_message("  %s\n", r->what);
    sent_clear();
    counts_take(&before, r->type);
    fx = rx_new(tcp0, from, hdr_of(r->type, N(r->src), N(r->dest), r->len), 7);
    fx->in.rx.rdma_get = r->rdma_get;
    rx_parse(fx);
    settle();
    counts_take(&after, r->type);
    if (r->outcome == PROTOCOL) {
        assert_int_equal(fx->parse, r->why);
        assert_int_equal(fx->recvs, 0);
    } else {
        assert_int_equal(fx->parse, LNET_DROP_NONE);
        assert_int_equal(fx->recvs, 1);
        assert_true(fx->done);
        assert_int_equal(fx->in.mlen, r->outcome == FORWARDED ? r->len : 0);
    }
    assert_int_equal(loop.nsent, r->outcome == FORWARDED);
    check_counts(r, &before, &after);
}

static void test_outcomes(void **state)
{
    make_node(true, LNET_SOURCE_STRICT);
    for (unsigned i = 0; i < ROWS_N; i++)
        check_row(&rows[i]);
    node_down();
}

/* Row 8: without routing all that would be forwarded is dropped, after the protocol checks. */
static void test_routing_off(void **state)
{
    unsigned i;

    make_node(false, LNET_SOURCE_STRICT);
    for (i = 0; i < ROWS_N; i++) {
        struct row r = rows[i];
        struct lnet_nid dest = N(r.dest);

        if (r.outcome != PROTOCOL && r.outcome != LOCAL && !nid_same(&dest, &tcp0->nid)) {
            r.outcome = DROPPED;
            r.why = LNET_DROP_ROUTING_OFF;
        }
        check_row(&r);
    }
    node_down();
}

/* The rows again with a check that lets more sources through. */
static void looser(enum lnet_source_check check, bool (*passes)(const struct row *r))
{
    unsigned i;

    make_node(true, check);
    for (i = 0; i < ROWS_N; i++) {
        struct row r = rows[i];
        struct lnet_nid dest = N(r.dest);

        if (r.why == LNET_DROP_SRC_NOT_ALLOWED && passes(&r)) {
            r.outcome = nid_same(&dest, &tcp0->nid) ? LOCAL : FORWARDED;
            r.why = r.outcome == LOCAL ? LNET_DROP_PORTAL_RANGE : LNET_DROP_NONE;
        }
        check_row(&r);
    }
    node_down();
}

static bool any_source(const struct row *r)
{
    return true;
}

static void test_source_check_off(void **state)
{
    looser(LNET_SOURCE_OFF, any_source);
}

/* tcp5 is behind the ingress net, though not behind the sender. */
static bool from_tcp5(const struct row *r)
{
    return strstr(r->src, "@tcp5") != NULL;
}

static void test_source_check_net(void **state)
{
    looser(LNET_SOURCE_NET, from_tcp5);
}

/* Row 13: for this node a foreign source needs a route through the sender, whatever source_check
 * says. */
static void test_drop_asym_route(void **state)
{
    make_node(true, LNET_SOURCE_OFF);
    node->timing.rules.drop_asym_route = true;
    for (unsigned i = 0; i < ROWS_N; i++) {
        struct row r = rows[i];
        struct lnet_nid dest = N(r.dest);

        if (r.why == LNET_DROP_SRC_NOT_ALLOWED) {
            r.outcome = nid_same(&dest, &tcp0->nid) ? DROPPED : FORWARDED;
            r.why = r.outcome == DROPPED ? LNET_DROP_ASYM_ROUTE : LNET_DROP_NONE;
        }
        check_row(&r);
    }
    node_down();
}

/* NIDs that no decoder would let in are refused here too. */
static void test_bad_nids(void **state)
{
    struct lnet_nid from, bad[4];

    node_up(opts_default());
    from = N("10.0.0.9@tcp");
    bad[0] = LNET_NID_ANY;
    bad[1] = N("10.1.0.9@tcp1");
    bad[1].size = 13;
    bad[2] = N("10.1.0.9@tcp1");
    bad[2].addr_be[1] = 1; /* an unused word that is not zero */
    bad[3] = N("fd00::1@tcp1");
    bad[3].size = 11; /* so the last byte is unused */
    for (unsigned i = 0; i < 4; i++) {
        struct peer_msg *fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, bad[i], 4));

        assert_int_equal(fx->parse, LNET_DROP_HDR_BAD_NID);
        fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, bad[i], N("10.1.0.9@tcp1"), 4));
        assert_int_equal(fx->parse, LNET_DROP_HDR_BAD_NID);
    }
    assert_int_equal(loop.nsent, 0);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* The newest event of a reason is kept for the engineer. */
static void test_examples(void **state)
{
    struct lnet_nid from, src;
    struct lnet_drop_example e;

    node_up(opts_default());
    from = peer_on(nreactors - 1, 0, "tcp", 0);
    src = N("10.7.0.7@tcp7");
    lnet_drop_example_get(node, LNET_DROP_SRC_NOT_ALLOWED, &e);
    assert_false(e.seen);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, src, N("10.1.0.9@tcp1"), 77));
    lnet_drop_example_get(node, LNET_DROP_SRC_NOT_ALLOWED, &e);
    assert_true(e.seen && e.has_peer && e.has_hdr);
    assert_int_equal(e.ni, (int)tcp0->index);
    assert_true(nid_same(&e.peer, &from) && nid_same(&e.src, &src));
    assert_int_equal(e.type, LNET_MSG_PUT);
    assert_int_equal(e.payload_len, 77);
    assert_int_equal(e.when_us, clock_us);
    clock_us += 5000;
    arrive(tcp0, peer_on(0, 0, "tcp", 1), hdr_of(LNET_MSG_PUT, src, N("10.1.0.9@tcp1"), 78));
    lnet_drop_example_get(node, LNET_DROP_SRC_NOT_ALLOWED, &e);
    assert_int_equal(e.payload_len, 78);
    node_down();
}

/* Row 15: whatever is not a protocol error shows that the sender lives. */
static void test_last_alive(void **state)
{
    struct lnet_nid from;

    node_up(opts_default());
    from = peer_on(1, 0, "tcp", 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.0.0.50@tcp"), 5)); /* protocol error */
    assert_int_equal(peer_find(&from)->last_alive_us, 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.9.0.1@tcp9"), 5));
    assert_int_equal(peer_find(&from)->last_alive_us, clock_us);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_outcomes),         LNET_TEST(test_routing_off),
    LNET_TEST(test_source_check_off), LNET_TEST(test_source_check_net),
    LNET_TEST(test_bad_nids),         LNET_TEST(test_examples),
    LNET_TEST(test_last_alive),       LNET_TEST(test_drop_asym_route),
};

LNET_TESTS_MAIN("test_lnet_parse", tests)
