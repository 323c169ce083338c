/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of our gateways (docs/protocol/lnet-core.md §3.8) and stopping a node. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_push_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_ERROR};

#define GW   "10.0.0.11@tcp"
#define FAR  "10.5.0.1@tcp5"
#define TCP5 LNET_NET(LNET_LND_SOCK, 5)

/* ---- gateway checks ---- */

static struct lnet_route_row row(lnet_net_t net)
{
    static struct lnet_route_row rows[16];
    unsigned i, n = lnet_route_rows(node, rows, 16);

    for (i = 0; i < n; i++)
        if (rows[i].conf.net == net)
            return rows[i];
    fail_msg("no route");
    abort();
}

/* Counts the pings of NIDs that routes name, not those of other NIDs that a gateway lists. */
static unsigned count_asked(struct sent **last)
{
    unsigned n = 0;

    for (unsigned i = 0; i < loop.nsent; i++)
        for (unsigned k = 0; k < LNET_GW_SLOTS; k++)
            if (loop.sent[i].hdr.type == LNET_MSG_GET && node->gw[k] &&
                nid_same(&loop.sent[i].to, &node->gw[k]->nid)) {
                *last = &loop.sent[i];
                n++;
            }
    return n;
}

/* Steps time until the gateway has been asked n times in all. */
static struct sent *asked(unsigned n)
{
    struct sent *last = NULL;

    settle();
    for (unsigned i = 0; count_asked(&last) < n; i++) {
        if (i > 200)
            fail_msg("the gateway is not asked a %uth time", n);
        pass(SEC);
    }
    assert_int_equal(count_asked(&last), n);
    return last;
}

struct gw_info {
    uint32_t features;
    uint32_t local, remote; /* status of its NI on our net and on tcp5; 0 = none there */
};

static uint32_t gw_seqno = 3;

static uint32_t encode_info(struct gw_info g, uint8_t *data, size_t cap)
{
    static struct lnet_ping_info info;

    memset(&info, 0, sizeof(info));
    info.features = g.features;
    info.pid = PID;
    info.seqno = gw_seqno;
    if (g.local) {
        info.ni[info.count].nid = N(GW);
        info.ni[info.count++].status = g.local;
    }
    if (g.remote) {
        info.ni[info.count].nid = N("10.5.0.99@tcp5");
        info.ni[info.count++].status = g.remote;
    }
    return (uint32_t)lnet_ping_encode(&info, data, cap);
}

static void answer_check(const struct sent *get, struct gw_info g)
{
    uint8_t data[512];

    reply_to(get, data, encode_info(g, data, sizeof(data)));
}

/* The info as a PUSH in the name of src, which via brings. */
static void push_in(struct lnet_nid via, struct lnet_nid src, struct gw_info g)
{
    uint8_t data[512];
    uint32_t len = encode_info(g, data, sizeof(data));
    struct peer_msg *fx =
        rx_new(tcp0, via, hdr_put(src, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    settle();
}

static void push_of_end_node(struct lnet_nid src)
{
    uint8_t data[64];
    uint32_t len = make_info(data, sizeof(data), src, 0x1e, 2, 0);
    struct peer_msg *fx =
        rx_new(tcp0, src, hdr_put(src, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, data, len);
    rx_parse(fx);
    settle();
}

#define UP   LNET_NI_UP
#define DOWN LNET_NI_DOWN

/* The status of a route, by what its gateway says. It is the same whether discovery is on or off,
 * and whether the gateway is multi-rail or not (§3.8 row 2, cached flag 5, cached flag 6).
 */
static void test_judgement(void **state)
{
    /* §3.8 row 3, row 4, row 5, UP 1
     * §3.8 cached flag 1, cached flag 2, cached flag 3, cached flag 4 */
    static const struct {
        struct gw_info g;
        bool up_1hop, up_undefined, up_3hops, single;
    } cases[] = {
        {{0x1a, UP, UP}, true, true, true, true},
        {{0x1e, UP, UP}, false, false, false, true},   /* it does not route */
        {{0x1a, UP, DOWN}, false, false, false, true}, /* its far side is down */
        {{0x1a, UP, 0}, false, true, true, false},     /* it is not there itself */
        {{0x1a, DOWN, UP}, false, false, false, true}, /* our side is down */
        {{0x1a, 0, UP}, false, false, false, true},    /* it is not where we think */
        {{0x02, UP, UP}, true, true, true, true},      /* no multi-rail is no fault */
        {{0x1a, UP, 7}, false, false, false, true},    /* an invalid status is not UP */
        {{0x1a, UP, UP}, true, true, true, true},
    };
    static const int hops[] = {1, LNET_HOPS_UNDEFINED, 3};
    struct err err = {0};

    for (unsigned how = 0; how < 6; how++) {
        const unsigned h = how % 3;

        node_up(opts_default());
        if (how >= 3)
            assert_int_equal(lnet_discovery_set(node, false, &err), 0);
        assert_int_equal(route_add("tcp5", N(GW), hops[h], 0), 0);
        for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            bool up = h == 0   ? cases[i].up_1hop
                      : h == 1 ? cases[i].up_undefined
                               : cases[i].up_3hops;
            struct lnet_nid from = N("10.1.0.9@tcp1");
            unsigned n;

            answer_check(asked(i + 1), cases[i].g);
            assert_int_equal(row(TCP5).up, up);
            assert_int_equal(row(TCP5).single_hop, cases[i].single);
            n = sent_count(LNET_MSG_PUT);
            arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N(FAR), 3));
            settle();
            assert_int_equal(sent_count(LNET_MSG_PUT), n + up);
        }
        assert_int_equal(drops_sum(), drops_of(LNET_DROP_NO_LIVE_ROUTE));
        node_down();
    }
}

/* §3.8 row 4 and cached flag 5 with avoid_asym_router_failure=0: only our side counts. */
static void test_far_side_ignored(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_timing set = {.check_interval = 0};
    struct err err = {0};

    o.rules.ignore_far_side = true;
    node_up(o);
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    answer_check(asked(1), (struct gw_info){0x1a, UP, DOWN});
    assert_true(row(TCP5).up && row(TCP5).single_hop);
    answer_check(asked(2), (struct gw_info){0x1a, UP, 0});
    assert_true(row(TCP5).up);
    answer_check(asked(3), (struct gw_info){0x1a, DOWN, UP});
    assert_false(row(TCP5).up);
    assert_int_equal(lnet_timing_set(node, &set, &err), 0);
    answer_check(asked(4), (struct gw_info){0x1a, UP, DOWN});
    assert_false(row(TCP5).up);
    node_down();
}

/* §3.8 before use 1: with check_routers_before_use a route is down until its gateway answered, and
 * the start waits for the end of a check, whatever its result. */
static void test_before_use(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct sent *s;

    o.rules.check_before_use = true;
    o.ping_timeout = 10;
    node_up(o);
    assert_true(lnet_gateways_checked(node));
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    s = asked(1);
    assert_false(row(TCP5).up || lnet_gateways_checked(node));
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up && lnet_gateways_checked(node));
    assert_int_equal(route_add("tcp6", N("10.0.0.98@tcp"), 1, 0), 0);
    pass(2 * SEC);
    assert_false(lnet_gateways_checked(node));
    pass(10 * SEC);
    assert_true(lnet_gateways_checked(node));
    assert_false(row(LNET_NET(LNET_LND_SOCK, 6)).up);
    node_down();
}

/* §3.8 monitor 1, check 2, check 4, check 8, check 10 */
static void test_schedule(void **state)
{
    struct lnet_nid gw, to;
    struct lnet_get get;
    struct sent *s;
    struct err err = {0};
    uint64_t t;

    node_up(opts_default());
    gw = to = N(GW);
    route_add("tcp5", gw, 1, 0);
    t = clock_us;
    s = asked(1); /* within the second */
    assert_true(clock_us - t <= SEC + 2000);
    assert_true(nid_same(&s->to, &to) && nid_same(&s->hdr.dest_nid, &to));
    lnet_body_get_get(&s->hdr, &get);
    assert_int_equal(get.sink_length, 272);
    assert_int_equal(get.portal, 0);
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    t = clock_us;
    s = asked(2);
    assert_in_range(clock_us - t, 58 * SEC, 62 * SEC);
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    /* another route through it: asked soon */
    t = clock_us;
    route_add("tcp6", gw, 1, 0);
    s = asked(3);
    assert_true(clock_us - t <= SEC + 2000);
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    assert_false(row(LNET_NET(LNET_LND_SOCK, 6)).up);
    /* without routes nobody is asked */
    assert_int_equal(route_del(node, TCP5, &gw, &err), 0);
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 6), &gw, &err), 0);
    pass(130 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 3);
    route_add("tcp5", gw, 1, 0);
    asked(4);
    node_down();
}

/* §3.8 row 1, completion 1, inputs 3 */
static void test_no_answer(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid gw;
    struct sent *s;

    o.check_interval = 20;
    o.ping_timeout = 10;
    node_up(o);
    gw = N(GW);
    route_add("tcp5", gw, -1, 0);
    s = asked(1);
    pass(9 * SEC);
    assert_true(row(TCP5).up);
    pass(2 * SEC);
    assert_false(row(TCP5).up);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 1);
    answer_check(s, (struct gw_info){0x1a, UP, UP}); /* too late, not taken */
    assert_false(row(TCP5).up);
    assert_int_equal(drops_of(LNET_DROP_REPLY_NO_MATCH), 1);
    asked(2); /* well before the interval is over */
    /* it is heard of: a message from behind it shows that it forwards; its own do not */
    arrive(tcp0, gw, hdr_of(LNET_MSG_PUT, gw, N("10.1.0.9@tcp1"), 3));
    arrive(tcp0, gw, hdr_of(LNET_MSG_PUT, N("10.0.0.12@tcp"), N("10.1.0.9@tcp1"), 3));
    settle();
    assert_false(row(TCP5).up);
    arrive(tcp0, gw, hdr_of(LNET_MSG_PUT, N(FAR), N("10.1.0.9@tcp1"), 3));
    settle();
    assert_true(row(TCP5).up);
    /* the second check fails too */
    pass(10 * SEC);
    assert_false(row(TCP5).up);
    /* the third by a send that fails */
    arrive(tcp0, gw, hdr_of(LNET_MSG_PUT, N(FAR), N("10.1.0.9@tcp1"), 3));
    settle();
    assert_true(row(TCP5).up);
    loop.send_result = lost;
    asked(3);
    settle();
    assert_false(row(TCP5).up);
    loop.send_result = ok;
    /* asked again well before the interval is over, and answered */
    {
        uint64_t t = clock_us;

        s = asked(4);
        assert_true(clock_us - t < 10 * SEC);
    }
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    /* garbage */
    s = asked(5);
    reply_to(s, (const uint8_t *)"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_false(row(TCP5).up);
    assert_int_equal(drops_of(LNET_DROP_PING_BAD_INFO), 1);
    /* the reply breaks off */
    s = asked(6);
    loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    answer_check(s, (struct gw_info){0x1a, UP, UP});
    loop.recv_result = ok;
    assert_false(row(TCP5).up);
    answer_check(asked(7), (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    /* the LND sits on the GET for longer than we wait: down in time, and not asked twice at once */
    loop.hold_send = true;
    asked(8);
    pass(11 * SEC);
    assert_false(row(TCP5).up);
    pass(40 * SEC);
    asked(8);
    send_end_all(ok);
    loop.hold_send = false;
    answer_check(asked(9), (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    node_down();
}

/* A reply that was cut is asked for again with more room and judges nothing by itself. */
static void test_truncated(void **state)
{
    static uint8_t data[16384];
    struct lnet_get get;
    struct lnet_nid gw;
    struct sent *s;
    uint32_t len;
    uint64_t t;

    node_up(opts_default());
    gw = N(GW);
    route_add("tcp5", gw, -1, 0);
    s = asked(1);
    len = make_info(data, sizeof(data), gw, 0x1a, 1, 40); /* 688 bytes, all on tcp */
    assert_true(len > 272);
    reply_to(s, data, 272);
    assert_true(row(TCP5).up);
    t = clock_us;
    s = asked(2);
    assert_true(clock_us - t <= 2 * SEC); /* at once, so to say */
    lnet_body_get_get(&s->hdr, &get);
    assert_true(get.sink_length >= len && get.sink_length <= 4096);
    reply_to(s, data, len);
    assert_true(row(TCP5).up);
    /* it keeps the room; a gateway with more NIs than that is judged by what there is */
    s = asked(3);
    lnet_body_get_get(&s->hdr, &get);
    assert_true(get.sink_length >= len);
    len = make_info(data, sizeof(data), gw, 0x1e, 1, 255);
    assert_true(len > 4096 || len == 16 + 16 * 257);
    reply_to(s, data, get.sink_length);
    assert_true(row(TCP5).up);
    s = asked(4);
    lnet_body_get_get(&s->hdr, &get);
    assert_int_equal(get.sink_length, 4096);
    reply_to(s, data, 4096);
    assert_false(row(TCP5).up); /* 0x1e */
    node_down();
}

/* A gateway whose far link goes down or comes back says so; its routes do not wait for the next
 * check. Only it may say so. §3.6 merge 9 */
static void test_push_of_gateway(void **state)
{
    struct lnet_nid other = N("10.0.0.12@tcp"), third = N("10.0.0.13@tcp");
    unsigned checks;

    node_up(opts_default());
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    assert_int_equal(route_add("tcp6", other, 1, 0), 0);
    asked(2);
    answer_check(&loop.sent[0], (struct gw_info){0x1a, UP, UP});
    answer_check(&loop.sent[1], (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    push_in(N(GW), N(GW), (struct gw_info){0x1a, UP, DOWN});
    assert_false(row(TCP5).up);
    push_in(N(GW), N(GW), (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    push_in(N(GW), N(GW), (struct gw_info){0x1e, UP, UP}); /* it does not route any more */
    assert_false(row(TCP5).up);
    push_in(N(GW), N(GW), (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    checks = sent_count(LNET_MSG_GET);
    push_in(other, N(GW), (struct gw_info){0x1a, UP, DOWN}); /* brought by another gateway */
    assert_int_equal(sent_count(LNET_MSG_GET), checks);
    push_in(third, third, (struct gw_info){0x1a, UP, DOWN}); /* by no gateway at all */
    assert_true(row(TCP5).up);
    assert_int_equal(sent_count(LNET_MSG_GET), checks + 1); /* the list is not its own */
    assert_true(nid_same(&sent_last(LNET_MSG_GET)->hdr.dest_nid, &third));
    node_down();
}

/* §3.6 merge 9: the reply to the ping of a discovery says the same of the routes as one to a check,
 * also when a part of a longer list does not. */
static void test_discovery_of_gateway(void **state)
{
    static const uint8_t junk[272] = {0xa5};
    struct peer_msg *fx;

    node_up(opts_default());
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    answer_check(asked(1), (struct gw_info){0x1a, UP, UP});
    assert_true(row(TCP5).up);
    for (unsigned i = 0; i < 2; i++) {
        fx = rx_new(tcp0, N(GW),
                    hdr_put(N(GW), tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, sizeof(junk), true), 1);
        memcpy(fx->in.payload, junk, sizeof(junk));
        rx_parse(fx);
        settle();
        assert_int_equal(sent_count(LNET_MSG_GET), 2 + i);
        answer_check(sent_last(LNET_MSG_GET), (struct gw_info){0x1a, UP, i ? UP : DOWN});
        assert_int_equal(row(TCP5).up, i);
    }
    node_down();
}

static const struct peer *known(struct lnet_nid nid)
{
    return peer_table_find(node->peers, &nid);
}

static struct lnet_gw *gateway(struct lnet_nid nid)
{
    return lnet_gw_find(node, &nid);
}

/* The table of peers: nodes that push, up to max_peers, and gateways, which always find room. A
 * gateway that has not pushed is no peer any more when it leaves. */
static void test_peers(void **state)
{
    const struct gw_info up = {0x1a, UP, UP};
    struct lnet_node_opts o = opts_default();
    struct lnet_nid mute = N("10.0.0.12@tcp"), first = N("10.0.0.100@tcp");
    struct lnet_gw *gw, *mute_gw;
    char text[32];

    o.max_peers = 4;
    node_up(o);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(text, sizeof(text), "10.0.0.%u@tcp", 100 + i);
        push_of_end_node(N(text));
        assert_true((known(N(text)) != NULL) == (i < 4));
    }
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    assert_int_equal(route_add("tcp6", mute, 1, 0), 0);
    asked(2);
    answer_check(&loop.sent[0], up);
    answer_check(&loop.sent[1], up);
    assert_int_equal(node->peers->npeers, 6);
    gw = gateway(N(GW));
    mute_gw = gateway(mute);
    assert_true(gw && gw->pinned && known(N(GW))->pins == 1);
    assert_true(mute_gw && mute_gw != gw && mute_gw->pinned && known(mute)->pins == 1);
    assert_true(nid_same(&known(N(GW))->primary, &gw->nid));
    assert_int_equal(known(N(GW))->features, 0); /* a reply is no PUSH: we do not push to it */
    push_in(N(GW), N(GW), (struct gw_info){0x1a, UP, DOWN});
    assert_false(row(TCP5).up);
    assert_int_equal(known(N(GW))->features, 0x1a);
    /* one that routes came through only, and one that pushed too */
    ON(0, lnet_peer_unset_gateway(mute_gw); lnet_peer_unset_gateway(mute_gw));
    ON(0, peer_table_del(node->peers, peer_table_find(node->peers, &first)));
    ON(0, lnet_peer_unset_gateway(gw));
    assert_null(known(mute));
    assert_int_equal(known(N(GW))->pins, 0);
    assert_int_equal(node->peers->npeers, 4);
    ON(0, lnet_peer_set_gateway(mute_gw); lnet_peer_set_gateway(gw));
    ON(0, lnet_peer_set_gateway(mute_gw));
    assert_int_equal(known(mute)->pins, 1);
    assert_int_equal(known(N(GW))->pins, 1);
    assert_int_equal(node->peers->highest, 6); /* the free slot was taken again */
    node_down();
}

/* The reply to a check is taken as the list of a gateway that pushed. §3.6 row 2 */
static void test_gateway_list_changed(void **state)
{
    const struct gw_info up = {0x1a, UP, UP};

    node_up(opts_default());
    assert_int_equal(route_add("tcp5", N(GW), 1, 0), 0);
    answer_check(asked(1), up);
    push_in(N(GW), N(GW), up);
    ack_push_only(sent_last(LNET_MSG_PUT));
    answer_check(asked(2), up); /* the same number */
    ack_push_only(sent_last(LNET_MSG_PUT));
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    assert_int_equal(known(N(GW))->seqno, 3);
    gw_seqno = 4;
    answer_check(asked(3), up);
    ack_push_only(sent_last(LNET_MSG_PUT));
    assert_int_equal(known(N(GW))->seqno, 4);
    answer_check(asked(4), up);
    assert_int_equal(sent_count(LNET_MSG_GET), 4);
    gw_seqno = 3;
    node_down();
}

/* §3.8 inputs 1 */
static void test_lnd_notify(void **state)
{
    struct lnet_nid gw;
    struct lnet_peer_ni *p;

    node_up(opts_default());
    gw = N(GW);
    /* known before it is a gateway, and after */
    ON(home_of(&gw), p = lnet_peer_ni_get(node, &gw));
    assert_null(p->gw_ni);
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, false));
    route_add("tcp5", gw, -1, 0);
    settle();
    assert_ptr_equal(p->gw_ni, node->gw[0]->ni[0]);
    assert_true(row(TCP5).up);
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, false));
    assert_false(row(TCP5).up);
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, true));
    assert_true(row(TCP5).up);
    ON(home_of(&gw), lnet_peer_ni_notify(tcp0, p, false); lnet_peer_ni_put(p));
    answer_check(asked(1), (struct gw_info){0x1a, UP, UP}); /* it lives */
    assert_true(row(TCP5).up);
    node_down();
}

/* ---- stopping ---- */

/* Everything a node can have under way. */
static void load(void)
{
    struct lnet_nid from, to;

    loop.hold_send = true;
    for (unsigned i = 0; i < 3; i++)
        for (unsigned k = 0; k < 6; k++) {
            from = peer_on(i, 0, "tcp", k);
            to = peer_on(i + k, 1, "tcp1", k);
            arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 5000)); /* sending, and waiting */
            arrive(tcp0, from, hdr_of(LNET_MSG_GET, from, to, 0));
            arrive(tcp0, from, hdr_ping(from, tcp0->nid)); /* answers held */
        }
    settle();
    loop.hold_recv = true;
    for (unsigned k = 0; k < 3; k++) {
        from = peer_on(k, 2, "o2ib", 9);
        arrive(ib0, from, hdr_of(LNET_MSG_REPLY, from, N("10.1.0.9@tcp1"), 50)); /* receiving */
    }
    for (unsigned i = 0; i < PUSH_IN + 8;
         i++) { /* receiving, and parked; of many, for nobody gets all */
        from = peer_on(i % 3, 2, "o2ib", 10 + i / 2);
        arrive(ib0, from, hdr_put(from, ib0->nid, 0, LNET_PING_MATCH_BITS, 0, 48, true));
    }
    settle();
    assert_true(rx_queue_length(&node->api->lazy) > 0);
    assert_true(pool_stats(0, LNET_POOL_LARGE).waiting > 0);
    assert_true(loop.nheld > 0);
}

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    int *statuses = arg;

    statuses[0]++;
    statuses[1] = status;
}

static void test_stop_loaded(void **state)
{
    struct lnet_nid dest;
    int pong[2] = {0};

    node_up(opts_default());
    route_add("tcp5", N(GW), 1, 0); /* a check in flight */
    load();
    dest = N("10.0.0.77@tcp");
    assert_int_equal(lnet_ping(node, &dest, NULL, 100000, on_pong, pong), 0);
    settle();
    node_end(0);
    assert_int_equal(pong[0], 1);
    assert_int_equal(pong[1], -ESHUTDOWN);
    assert_int_equal(loop.quiesced, 3);
}

/* Drops at a stop are named. */
static void test_stop_counts(void **state)
{
    struct lnet_nid from;
    int stopped = 0;
    unsigned n;

    node_up(opts_default());
    from = peer_on(0, 0, "tcp", 0);
    loop.hold_send = true;
    n = pool_stats(0, LNET_POOL_LARGE).total;
    for (unsigned i = 0; i < n + 3; i++)
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, peer_on(1, 1, "tcp1", i), 5000));
    settle();
    lnet_node_stop(node, 0, on_stopped, &stopped);
    lnet_node_stop(node, 0, on_stopped, &stopped); /* under way already */
    for (unsigned i = 0; !stopped && i < ROUNDS; i++) {
        settle();
        clock_us += 1000;
    }
    pass(5 * SEC);
    assert_int_equal(stopped, 1);
    assert_int_equal(drops_of(LNET_DROP_SHUTDOWN) + drops_of(LNET_DROP_RX_INCOMPLETE), n + 3);
    assert_true(drops_of(LNET_DROP_SHUTDOWN) >= n);
    assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), n + 3);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();
}

/* What is in flight may finish within the time given; the NIs stop as soon as it has. */
static void test_stop_drains(void **state)
{
    struct lnet_nid from, to;
    int stopped = 0;
    uint64_t t;

    node_up(opts_default());
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(1, 1, "tcp1", 0);
    loop.hold_send = true;
    for (unsigned i = 0; i < pool_stats(0, LNET_POOL_LARGE).total + 2; i++)
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, peer_on(1, 1, "tcp1", i), 5000));
    settle();
    assert_int_equal(loop.nheld, pool_stats(0, LNET_POOL_LARGE).total);
    t = clock_us;
    lnet_node_stop(node, 10, on_stopped, &stopped);
    pass(2 * SEC);
    assert_false(stopped);
    assert_false(loop.stopping);
    assert_int_equal(loop.quiesced, 3);
    while (loop.nheld > 0) { /* the ones that waited for a buffer go too */
        send_end_all(ok);
        settle();
    }
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), pool_stats(0, LNET_POOL_LARGE).total + 2);
    for (unsigned i = 0; !stopped && i < ROUNDS; i++) {
        settle();
        clock_us += 1000;
    }
    assert_true(stopped);
    assert_true(clock_us - t < 3 * SEC);
    assert_int_equal(drops_sum(), 0);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();

    /* and not longer than that */
    node_up(opts_default());
    loop.hold_send = true;
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 5000));
    settle();
    stopped = 0;
    t = clock_us;
    lnet_node_stop(node, 10, on_stopped, &stopped);
    pass(9 * SEC);
    assert_false(stopped);
    pass(3 * SEC);
    assert_true(stopped);
    assert_int_equal(drops_of(LNET_DROP_SHUTDOWN), 1);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();
}

/* A peer that stops in the middle of a message takes of the time to drain, and no more than that.
 */
static void test_stop_begun(void **state)
{
    static const unsigned drain_s[] = {0, 4};
    struct lnet_nid from, to;
    uint64_t t;
    int stopped;

    for (unsigned i = 0; i < 2; i++) {
        node_up(opts_default());
        from = peer_on(0, 0, "tcp", 0);
        to = peer_on(1, 1, "tcp1", 0);
        loop.hold_recv = loop.hold_quiet = true;
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 5000));
        settle();
        stopped = 0;
        t = clock_us;
        lnet_node_stop(node, drain_s[i], on_stopped, &stopped);
        while (!stopped && clock_us - t < 60 * SEC)
            pass(SEC / 10);
        assert_int_equal(stopped, 1);
        assert_true(clock_us - t >= drain_s[i] * SEC);
        assert_true(clock_us - t <= (drain_s[i] + 2) * SEC);
        assert_int_equal(loop.quiesced, 3);
        assert_int_equal(drops_sum(), 1);
        check_quiet();
        rx_free_all();
        sent_clear();
        node_gone();
    }
}

/* Nothing to do: still in order. A PUSH that comes after the stop began is not parked. */
static void test_stop_idle(void **state)
{
    struct lnet_nid from;
    int stopped = 0;

    node_up(opts_default());
    node_end(100);

    node_up(opts_default());
    loop.hold_recv = true;
    for (unsigned i = 0; i < PUSH_IN; i++) {
        from = peer_on(0, 0, "tcp", i);
        arrive(tcp0, from, hdr_put(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, 48, true));
    }
    settle();
    lnet_node_stop(node, 3, on_stopped, &stopped);
    arrive(tcp0, from, hdr_put(from, tcp0->nid, 0, LNET_PING_MATCH_BITS, 0, 48, true));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SHUTDOWN), 1);
    assert_int_equal(rx_queue_length(&node->api->lazy), 0);
    pass(10 * SEC);
    assert_int_equal(stopped, 1);
    check_quiet();
    rx_free_all();
    sent_clear();
    node_gone();
}

/* Stopped while it is still starting, and destroyed without ever having started. */
static void test_stop_early(void **state)
{
    struct err err = {0};
    int stopped = 0;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    assert_int_equal(lnet_node_start(node, &err), 0);
    lnet_node_stop(node, 1, on_stopped, &stopped);
    for (unsigned i = 0; !stopped && i < ROUNDS; i++) {
        settle();
        clock_us += 1000;
    }
    assert_int_equal(stopped, 1);
    check_quiet();
    node_gone();
    node_make(opts_default());
    ni_add("10.0.0.1@tcp");
    node_gone();
    assert_int_equal(loop.fini, 1);
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_judgement),
    LNET_TEST(test_far_side_ignored),
    LNET_TEST(test_before_use),
    LNET_TEST(test_schedule),
    LNET_TEST(test_no_answer),
    LNET_TEST(test_truncated),
    LNET_TEST(test_push_of_gateway),
    LNET_TEST(test_discovery_of_gateway),
    LNET_TEST(test_lnd_notify),
    LNET_TEST(test_peers),
    LNET_TEST(test_gateway_list_changed),
    LNET_TEST(test_stop_loaded),
    LNET_TEST(test_stop_counts),
    LNET_TEST(test_stop_drains),
    LNET_TEST(test_stop_begun),
    LNET_TEST(test_stop_idle),
    LNET_TEST(test_stop_early),
};

LNET_TESTS_MAIN("test_lnet_monitor", tests)
