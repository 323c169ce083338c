/* SPDX-License-Identifier: BSD-3-Clause */
/* What changes while the node runs, besides its NIs: routes, routing, timing, counts. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

#define MANY 2000

static struct err err;
static unsigned bad;

static struct lnet_route_conf route(unsigned net, struct lnet_nid gw, int hops, unsigned priority)
{
    return (struct lnet_route_conf){
        .net = LNET_NET(LNET_LND_SOCK, net), .gateway = gw, .hops = hops, .priority = priority};
}

static int change(const struct lnet_route_conf *del, unsigned ndel,
                  const struct lnet_route_conf *add, unsigned nadd)
{
    int rc;

    err.message[0] = 0;
    bad = UINT32_MAX;
    rc = lnet_routes_change(node, del, ndel, add, nadd, &bad, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    return rc;
}

static unsigned nroutes(void)
{
    return lnet_route_rows(node, NULL, 0);
}

static uint64_t generation(void)
{
    return node->conf->generation;
}

static struct lnet_route_row row_of(unsigned net, struct lnet_nid gw)
{
    static struct lnet_route_row rows[MANY];
    unsigned i, n = lnet_route_rows(node, rows, MANY);

    for (i = 0; i < n; i++)
        if (rows[i].conf.net == LNET_NET(LNET_LND_SOCK, net) &&
            nid_same(&rows[i].conf.gateway, &gw))
            return rows[i];
    fail_msg("there is no route to tcp%u", net);
    abort();
}

/* ---- routes ---- */

/* All or nothing, and it is said which one is wrong. */
static void test_all_or_nothing(void **state)
{
    struct lnet_route_conf r[4];
    uint64_t before;

    node_up(opts_default());
    for (unsigned i = 0; i < 4; i++)
        r[i] = route(50 + i, gateway(i), 1, 0);
    before = generation();
    assert_int_equal(change(NULL, 0, r, 4), 0);
    assert_int_equal(generation(), before + 1); /* one publication */
    assert_int_equal(bad, 4);
    assert_int_equal(nroutes(), 4);
    assert_int_equal(change(NULL, 0, r, 4), -EEXIST);
    assert_int_equal(bad, 0);
    /* the third to be deleted is not there; the second to be added has no reachable gateway */
    r[2].net = LNET_NET(LNET_LND_SOCK, 60);
    assert_int_equal(change(r, 4, NULL, 0), -ENOENT);
    assert_int_equal(bad, 2);
    r[2].net = LNET_NET(LNET_LND_SOCK, 52);
    r[1].gateway = N("10.99.0.1@tcp99");
    r[0].net = LNET_NET(LNET_LND_SOCK, 61);
    assert_int_equal(change(&r[2], 2, r, 2), -EHOSTUNREACH);
    assert_int_equal(bad, 2 + 1);
    /* the same one twice */
    r[1] = r[0];
    assert_int_equal(change(NULL, 0, r, 2), -EEXIST);
    assert_int_equal(bad, 1);
    assert_int_equal(change(&r[2], 1, NULL, 0), 0);
    assert_int_equal(change(&r[2], 1, NULL, 0), -ENOENT);
    r[2] = r[3];
    assert_int_equal(change(&r[2], 2, NULL, 0), -ENOENT);
    assert_int_equal(bad, 1);
    assert_int_equal(generation(), before + 2);
    assert_int_equal(nroutes(), 3);
    assert_int_equal(change(NULL, 0, NULL, 0), 0);
    node_down();
}

/* A route that is changed keeps what is known of it. */
static void test_changed_route(void **state)
{
    struct lnet_route_conf old, new;
    struct lnet_route_row row;
    uint8_t info[1024];
    uint32_t len;

    node_up(opts_default());
    old = route(50, gateway(0), 1, 0);
    new = route(50, gateway(0), 2, 7);
    assert_int_equal(change(NULL, 0, &old, 1), 0);
    pass(SEC);
    /* the gateway does not list the net: down, as it is one hop away */
    len = make_info(info, sizeof(info), gateway(0), LNET_PING_NI_STATUS, 1, 0);
    reply_to(sent_last(LNET_MSG_GET), info, len);
    row = row_of(50, gateway(0));
    assert_false(row.up);
    assert_int_equal(row.conf.hops, 1);
    assert_int_equal(change(&old, 1, &new, 1), 0);
    row = row_of(50, gateway(0));
    assert_false(row.up);
    assert_int_equal(row.conf.hops, 2);
    assert_int_equal(row.conf.priority, 7);
    assert_int_equal(nroutes(), 1);
    sent_clear();
    pass(2 * SEC); /* asked again soon: two hops away it need not list it */
    reply_to(sent_last(LNET_MSG_GET), info, len);
    assert_true(row_of(50, gateway(0)).up);
    node_down();
}

/* Routes of a gateway are judged in parts; all of them, also when they change meanwhile. */
static void test_judged_in_parts(void **state)
{
    static struct lnet_route_conf r[600];
    static struct lnet_route_row rows[600];
    unsigned down = 0;
    uint8_t info[1024];
    uint32_t len;

    node_up(opts_default());
    for (unsigned i = 0; i < 600; i++)
        r[i] = route(100 + i, gateway(0), 1, 0);
    assert_int_equal(change(NULL, 0, r, 500), 0);
    pass(SEC);
    len = make_info(info, sizeof(info), gateway(0), LNET_PING_NI_STATUS, 1, 0);
    {
        const struct sent *get = sent_last(LNET_MSG_GET);
        struct lnet_hdr h = hdr_of(LNET_MSG_REPLY, get->hdr.dest_nid, get->hdr.src_nid, len);
        struct lnet_reply reply;
        struct lnet_get g;
        struct peer_msg *fx;

        lnet_body_get_get(&get->hdr, &g);
        reply.dst = g.ret;
        lnet_body_set_reply(&h, &reply);
        fx = rx_new(get->ni, get->to, h, 1);
        memcpy(fx->in.payload, info, len);
        rx_parse(fx);
    }
    while (down == 0) {
        step_all();
        assert_int_equal(lnet_route_rows(node, rows, 600), 500);
        for (unsigned i = 0; i < 500; i++)
            down += !rows[i].up;
    }
    assert_true(down < 500); /* in parts */
    assert_int_equal(change(r, 1, &r[500], 100), 0);
    settle();
    assert_int_equal(lnet_route_rows(node, rows, 600), 599);
    for (unsigned i = 0; i < 599; i++)
        assert_false(rows[i].up);
    node_down();
}

static uint64_t real_us(void)
{
    struct timespec ts;

    __real_clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec / 1000;
}

/* Thousands in one publication and in no time, though nobody hurries. */
static void test_many_routes(void **state)
{
    static struct lnet_route_conf r[MANY];
    struct lnet_node_opts o = opts_default();
    uint64_t before, began;

    o.max_peers = 4096;
    o.local_msgs = 4096;
    node_up(o);
    loop.hold_send = true;
    for (unsigned i = 0; i < MANY; i++) {
        char gw[64];

        snprintf(gw, sizeof(gw), "10.1.%u.%u@tcp1", 4 + i % 1000 / 200, 2 + i % 200);
        r[i] = route(100 + i, N(gw), 1, 0);
    }
    before = generation();
    began = real_us();
    assert_int_equal(change(NULL, 0, r, MANY), 0);
    print_message("%u routes through 1000 gateways: %llu us\n", MANY,
                  (unsigned long long)(real_us() - began));
    assert_true(real_us() - began < SEC);
    assert_int_equal(generation(), before + 1);
    assert_int_equal(nroutes(), MANY);
    began = real_us();
    assert_int_equal(change(r, MANY / 2, NULL, 0), 0);
    assert_int_equal(nroutes(), MANY / 2);
    assert_int_equal(change(r, MANY / 2, NULL, 0), -ENOENT);
    assert_int_equal(change(&r[MANY / 2], MANY / 2, r, MANY / 2), 0);
    assert_int_equal(nroutes(), MANY / 2);
    assert_true(real_us() - began < 3 * SEC);
    settle();
    loop.hold_send = false;
    send_end_all(LNET_RESULT_OK);
    settle();
    node_down();
}

/* Gateways come and go; each is bound to its peer NI, and its checks end, before it is forgotten.
 */
static void test_gateways_go(void **state)
{
    static struct lnet_route_conf r[LNET_MAX_GATEWAYS];
    struct lnet_node_opts o = opts_default();
    unsigned i, n;

    o.max_peers = 64 * nreactors;
    o.local_msgs = 4096;
    node_up(o);
    for (unsigned round = 0; round < 6; round++) {
        loop.hold_send = round % 2; /* checks that hang */
        for (i = 0; i < LNET_MAX_GATEWAYS; i++) {
            char gw[64];

            snprintf(gw, sizeof(gw), "10.1.%u.%u@tcp1", 10 + 10 * round + i / 200, 2 + i % 200);
            if (round > 0 && i == 0)
                assert_int_equal(change(r, LNET_MAX_GATEWAYS, NULL, 0), 0);
            r[i] = route(100 + i, N(gw), 1, 0);
        }
        assert_int_equal(change(NULL, 0, r, LNET_MAX_GATEWAYS), 0);
        pass_ms(300);
        sent_clear();
        loop.hold_send = false;
        send_end_all(LNET_RESULT_OK);
        pass_ms(300);
        for (i = n = 0; i < LNET_GW_SLOTS; i++)
            n += node->gw[i] != NULL;
        assert_true(n <= LNET_MAX_GATEWAYS + LNET_GW_KEPT);
    }
    /* one more than there may be */
    {
        struct lnet_route_conf one = route(99, N("10.1.200.1@tcp1"), 1, 0);

        assert_int_equal(change(NULL, 0, &one, 1), -ENOMEM);
        assert_int_equal(change(r, 1, &one, 1), 0);
        assert_int_equal(change(&one, 1, r, 1), 0);
    }
    assert_int_equal(change(r, LNET_MAX_GATEWAYS, NULL, 0), 0);
    assert_int_equal(change(NULL, 0, r, 1), 0); /* the next change lets them go */
    settle();
    for (i = n = 0; i < LNET_GW_SLOTS; i++)
        n += node->gw[i] != NULL;
    assert_true(n <= 1 + LNET_GW_KEPT);
    for (i = 0; i < nreactors; i++) {
        const struct lnet_shard *s = node->shard[i];

        for (n = 0; n < s->peer->peers_used; n++)
            if (s->peer->peers[n].shard && s->peer->peers[n].gw_ni)
                assert_ptr_equal(node->gw_ni[s->peer->peers[n].gw_ni->index],
                                 s->peer->peers[n].gw_ni);
    }
    sent_clear();
    node_down();
}

static uint32_t rnd(uint32_t n)
{
    static uint32_t x = 4711;

    x = x * 1664525u + 1013904223u;
    return (x >> 8) % n;
}

/* While messages go through: those to nets whose routes only change arrive, all others arrive or
 * are dropped for want of a route. */
static void test_routes_traffic(void **state)
{
    enum {
        STEADY = 3,
        ALL = 6
    };
    unsigned in = 0, in_steady = 0, sent_steady = 0, changes = 0, k;
    unsigned now[ALL] = {0}; /* 1 + gateway of each net */
    struct lnet_node_opts o = opts_default();

    o.tiny = o.small = 64 * nreactors;
    o.max_peers = 1024;
    node_up(o);
    for (unsigned i = 0; i < STEADY; i++) {
        struct lnet_route_conf r = route(50 + i, gateway(0), -1, 0);

        assert_int_equal(change(NULL, 0, &r, 1), 0);
        now[i] = 1;
    }
    settle();
    loop.hold_send = true;
    for (unsigned i = 0; i < 3000; i++) {
        struct lnet_nid from = peer_on(rnd(4), 0, "tcp", rnd(6));
        unsigned to = rnd(ALL);
        char dest[64];

        if (rnd(8) == 0) {
            struct lnet_route_conf del, add;

            k = rnd(ALL);
            del = route(50 + k, gateway(now[k] - 1), -1, 0);
            add = route(50 + k, gateway(now[k] % 4), -1, rnd(3));
            if (k >= STEADY && now[k] && rnd(2)) {
                assert_int_equal(change(&del, 1, NULL, 0), 0);
                now[k] = 0;
            } else {
                assert_int_equal(change(&del, now[k] > 0, &add, 1), 0);
                now[k] = 1 + now[k] % 4;
            }
            changes++;
        }
        snprintf(dest, sizeof(dest), "10.50.0.%u@tcp%u", 1 + rnd(4), 50 + to);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(dest), rnd(3) * 50));
        in++;
        in_steady += to < STEADY;
        for (k = rnd(6); k > 0 && loop.nheld > 0; k--) {
            struct lnet_msg *msg = loop.held[rnd(loop.nheld)];

            if (msg->kind == LNET_KIND_FORWARD)
                sent_steady += (nid_net(&msg->hdr.dest_nid) & 0xffff) < 50 + STEADY;
            send_end(msg, ok);
        }
        for (k = rnd(4); k > 0; k--)
            step_all();
        if (loop.nsent > MAX_SENT / 2)
            sent_clear();
    }
    settle();
    while (loop.nheld > 0) {
        if (loop.held[0]->kind == LNET_KIND_FORWARD)
            sent_steady += (nid_net(&loop.held[0]->hdr.dest_nid) & 0xffff) < 50 + STEADY;
        send_end(loop.held[0], ok);
        settle();
    }
    check_quiet();
    assert_true(changes > 200);
    assert_int_equal(sent_steady, in_steady);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT) + drops_of(LNET_DROP_NO_ROUTE), in);
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_NO_ROUTE));
    assert_true(drops_of(LNET_DROP_NO_ROUTE) > 0);
    node_down();
}

/* ---- routing ---- */

static uint32_t features(void)
{
    static struct lnet_ping_info info;
    const struct ping_target *t = node->ping->current;

    assert_int_equal(lnet_ping_decode(t->data, t->seg.len, &info), LNET_DROP_NONE);
    return info.features;
}

static bool is_off_published(void)
{
    return features() & LNET_PING_RTE_DISABLED;
}

static void set_routing(bool on)
{
    err.message[0] = 0;
    assert_int_equal(lnet_routing_set(node, on, &err), 0);
    assert_string_equal(err.message, "");
    settle();
}

static void check_routing(enum lnet_routing state, bool off_published, bool forwards)
{
    struct lnet_nid from = sender(0), to = hop(0);
    unsigned before = loop.nsent;
    uint64_t refused = drops_of(LNET_DROP_ROUTING_OFF);
    struct peer_msg *fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 10));

    settle();
    assert_int_equal(fx->parse, LNET_DROP_NONE); /* the connection stays in any case, §3.9 */
    assert_true(fx->done);
    assert_int_equal(loop.nsent - before, forwards);
    assert_int_equal(drops_of(LNET_DROP_ROUTING_OFF) - refused, !forwards);
    assert_int_equal(lnet_routing_get(node), state);
    assert_int_equal(is_off_published(), off_published);
}

/* The four states in turn, each for as long as all others need to see it. */
static void test_routing_states(void **state)
{
    struct lnet_node_opts o = opts_default();
    uint32_t seqno;

    o.check_interval = 20;
    o.ping_timeout = 10;
    node_up(o);
    seqno = node->ping->seqno;
    check_routing(LNET_ROUTING_ON, false, true);
    set_routing(true);
    check_routing(LNET_ROUTING_ON, false, true);
    set_routing(false);
    check_routing(LNET_ROUTING_STOPPING, true, true);
    set_routing(false);
    pass(29 * SEC);
    check_routing(LNET_ROUTING_STOPPING, true, true);
    pass(3 * SEC);
    check_routing(LNET_ROUTING_OFF, true, false);
    pass(100 * SEC); /* nobody pings it, which is no matter now */
    assert_int_equal(tcp0->status, LNET_NI_UP);
    set_routing(true);
    check_routing(LNET_ROUTING_STARTING, true, true);
    pass(28 * SEC);
    assert_int_equal(tcp0->status, LNET_NI_UP); /* ages from here */
    check_routing(LNET_ROUTING_STARTING, true, true);
    pass(4 * SEC);
    check_routing(LNET_ROUTING_ON, false, true);
    assert_int_equal(node->ping->seqno, seqno); /* no change of configuration, §3.2 */
    /* stopped while it starts */
    set_routing(false);
    pass(40 * SEC);
    set_routing(true);
    set_routing(false);
    check_routing(LNET_ROUTING_STOPPING, true, true);
    pass(40 * SEC);
    check_routing(LNET_ROUTING_OFF, true, false);
    node_down();
}

/* Stopping can be taken back at once. */
static void test_routing_back(void **state)
{
    node_up(opts_default());
    set_routing(false);
    check_routing(LNET_ROUTING_STOPPING, true, true);
    set_routing(true);
    check_routing(LNET_ROUTING_ON, false, true);
    pass(400 * SEC);
    check_routing(LNET_ROUTING_ON, false, true);
    node_down();
}

/* Before the start it is at once as it shall be. */
static void test_routing_before_start(void **state)
{
    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    assert_int_equal(lnet_routing_set(node, false, &err), 0);
    node_begin();
    check_routing(LNET_ROUTING_OFF, true, false);
    node_down();
}

/* What holds a buffer keeps it forwarding, though not for ever; and is delivered in any case. */
static void test_routing_in_flight(void **state)
{
    struct lnet_node_opts o = opts_default();

    o.check_interval = 20;
    o.ping_timeout = 10;
    node_up(o);
    loop.hold_send = true;
    put(hop(0), 100);
    put(hop(0), 200);
    assert_int_equal(loop.nheld, 2);
    set_routing(false);
    pass(60 * SEC);
    assert_int_equal(lnet_routing_get(node), LNET_ROUTING_STOPPING);
    pass(32 * SEC);
    assert_int_equal(lnet_routing_get(node), LNET_ROUTING_OFF);
    put(hop(0), 300);
    assert_int_equal(drops_of(LNET_DROP_ROUTING_OFF), 1);
    end(200);
    end(100);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 2);
    assert_int_equal(drops_sum(), 1);
    check_quiet();
    /* on and off again with a buffer that comes back in time */
    set_routing(true);
    put(hop(0), 100);
    set_routing(false);
    pass(40 * SEC);
    assert_int_equal(lnet_routing_get(node), LNET_ROUTING_STOPPING);
    end(100);
    pass(2 * SEC);
    assert_int_equal(lnet_routing_get(node), LNET_ROUTING_OFF);
    node_down();
}

/* ---- timing ---- */

static void test_timing(void **state)
{
    struct lnet_timing t;

    node_up(opts_default());
    t = node->timing;
    assert_int_equal(t.check_interval, 60);
    assert_int_equal(t.ping_timeout, 50);
    assert_int_equal(t.source_check, LNET_SOURCE_NET);
    t.check_interval = 86401;
    assert_int_equal(lnet_timing_set(node, &t, &err), -EINVAL);
    t.check_interval = 10;
    t.source_check = LNET_SOURCE_OFF + 1;
    assert_int_equal(lnet_timing_set(node, &t, &err), -EINVAL);
    t = node->timing;
    assert_int_equal(t.check_interval, 60);
    /* a gateway that was asked just now is asked again in 5 s instead of 60 */
    assert_int_equal(route_add("tcp50", gateway(0), 1, 0), 0);
    pass(SEC);
    {
        uint8_t info[1024];
        uint32_t len = make_info(info, sizeof(info), gateway(0), LNET_PING_NI_STATUS, 1, 0);

        reply_to(sent_last(LNET_MSG_GET), info, len);
    }
    sent_clear();
    pass(10 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 0);
    t = (struct lnet_timing){.check_interval = 5};
    assert_int_equal(lnet_timing_set(node, &t, &err), 0);
    settle();
    pass(7 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    t = node->timing;
    assert_int_equal(t.check_interval, 5);
    assert_int_equal(t.ping_timeout, 50);
    /* any source */
    from_to(sender(0), hop(0), LNET_MSG_PUT, 0);
    arrive(tcp0, sender(0), hdr_of(LNET_MSG_PUT, N("10.9.9.9@tcp9"), hop(0), 0));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    t.source_check = LNET_SOURCE_OFF;
    assert_int_equal(lnet_timing_set(node, &t, &err), 0);
    arrive(tcp0, sender(0), hdr_of(LNET_MSG_PUT, N("10.9.9.9@tcp9"), hop(0), 0));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    node_down();
}

/* ---- counts ---- */

static void test_health_counts(void **state)
{
    static const struct {
        enum lnet_health health;
        enum lnet_stat stat;
    } row[] = {
        {LNET_HEALTH_LOCAL_INTERRUPT, LNET_STAT_LOCAL_INTERRUPT_COUNT},
        {LNET_HEALTH_LOCAL_DROPPED, LNET_STAT_LOCAL_DROPPED_COUNT},
        {LNET_HEALTH_LOCAL_ABORTED, LNET_STAT_LOCAL_ABORTED_COUNT},
        {LNET_HEALTH_LOCAL_NO_ROUTE, LNET_STAT_LOCAL_NO_ROUTE_COUNT},
        {LNET_HEALTH_LOCAL_ERROR, LNET_STAT_LOCAL_ERROR_COUNT},
        {LNET_HEALTH_LOCAL_TIMEOUT, LNET_STAT_LOCAL_TIMEOUT_COUNT},
        {LNET_HEALTH_REMOTE_ERROR, LNET_STAT_REMOTE_ERROR_COUNT},
        {LNET_HEALTH_REMOTE_DROPPED, LNET_STAT_REMOTE_DROPPED_COUNT},
        {LNET_HEALTH_REMOTE_TIMEOUT, LNET_STAT_REMOTE_TIMEOUT_COUNT},
        {LNET_HEALTH_NETWORK_TIMEOUT, LNET_STAT_NETWORK_TIMEOUT_COUNT},
    };

    node_up(opts_default());
    for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        loop.send_result = (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, row[i].health};
        put(hop(0), 10);
        loop.send_result = LNET_RESULT_OK;
        loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, row[i].health};
        put(hop(0), 10);
        loop.recv_result = LNET_RESULT_OK;
        put(hop(0), 10);
        for (unsigned k = 0; k < sizeof(row) / sizeof(row[0]); k++)
            assert_int_equal(stat_of(row[k].stat), k <= i ? 2 : 0);
    }
    lnet_stats_reset(node);
    for (unsigned k = 0; k < sizeof(row) / sizeof(row[0]); k++)
        assert_int_equal(stat_of(row[k].stat), 0);
    settle();
    node_down();
}

static void test_reset(void **state)
{
    struct lnet_nid from, to;
    struct lnet_ni_stats s;

    admit_up(64, 100);
    from = sender(0);
    to = hop(0);
    for (unsigned i = 0; i < 3; i++)
        from_to(from, to, LNET_MSG_PUT, 100);
    end(100);
    end(100);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 2);
    assert_int_equal(stat_of(LNET_STAT_MSGS_MAX), 3);
    lnet_stats_reset(node);
    lnet_stats_reset(node); /* the first is still under way */
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 0);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_LENGTH), 0);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 1); /* there is one */
    settle();
    assert_int_equal(stat_of(LNET_STAT_MSGS_MAX), 1);
    s = ni_stats(tcp0);
    assert_int_equal(s.received[LNET_MSG_PUT], 0);
    s = ni_stats(tcp1);
    assert_int_equal(s.sent[LNET_MSG_PUT], 0);
    assert_int_equal(peer_find(&from)->recv_count[LNET_MSG_PUT], 0);
    assert_int_equal(peer_find(&to)->send_count[LNET_MSG_PUT], 0);
    end(100);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_LENGTH), 100);
    assert_int_equal(ni_stats(tcp1).sent[LNET_MSG_PUT], 1);
    assert_int_equal(peer_find(&to)->send_count[LNET_MSG_PUT], 1);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 0);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_all_or_nothing),
    LNET_TEST(test_changed_route),
    LNET_TEST(test_judged_in_parts),
    LNET_TEST(test_many_routes),
    LNET_TEST(test_gateways_go),
    LNET_TEST(test_routes_traffic),
    LNET_TEST(test_routing_states),
    LNET_TEST(test_routing_back),
    LNET_TEST(test_routing_before_start),
    LNET_TEST(test_routing_in_flight),
    LNET_TEST(test_timing),
    LNET_TEST(test_health_counts),
    LNET_TEST(test_reset),
};

LNET_TESTS_MAIN("test_lnet_change", tests)
