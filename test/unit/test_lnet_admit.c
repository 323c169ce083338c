/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission: who may have a router buffer. docs/protocol/lnet-core.md §4.3, §4.6, §4.9;
 * docs/architecture.md "Admission". How a wait ends is in test_lnet_wait.c.
 */
#define EAL_MB 160 /* 32 large buffers on each of three reactors */
#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

/* ---- router credits ---- */

/* §4.9: peer_buffer_credits if it is given, else peer_credits; each peer NI of the net has its own.
 */
static void test_router_credits_number(void **state)
{
    static const struct {
        int peer_credits, peer_buffer_credits, want;
    } cases[] = {{8, 0, 8}, {8, -1, 8}, {8, 3, 3}, {8, 100, 100}, {1, 0, 1}, {16, 16, 16}};

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lnet_nid a = N("10.0.0.9@tcp"), b = N("10.2.0.9@o2ib");
        struct lnet_peer_ni *p;

        node_make(opts_default());
        tcp0 =
            ni_add_with("10.0.0.1@tcp", 256, cases[i].peer_credits, cases[i].peer_buffer_credits);
        ib0 = ni_add_with("10.2.0.1@o2ib", 256, 7, 5);
        node_begin();
        ON(home_of(&a), p = lnet_peer_ni_get(node, &a));
        assert_int_equal(p->rtr.max, cases[i].want);
        assert_int_equal(p->rtr.now, cases[i].want);
        assert_int_equal(p->rtr.min, cases[i].want);
        assert_int_equal(p->tx.max, cases[i].peer_credits);
        ON(home_of(&a), lnet_peer_ni_put(p));
        ON(home_of(&b), p = lnet_peer_ni_get(node, &b); lnet_peer_ni_put(p));
        assert_int_equal(p->rtr.max, 5);
        assert_int_equal(p->tx.max, 7);
        node_down();
    }
}

static void credits_up(int router_credits)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = o.small = 64 * nreactors;
    node_make(o);
    tcp0 = ni_add_with("10.0.0.1@tcp", -1, -1, router_credits);
    tcp1 = ni_add("10.1.0.1@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    loop.hold_send = true;
}

static unsigned rows_seen;

/* What the peer NI of the test below shows of itself. */
static void on_rows(void *arg, const struct lnet_peer_ni_row *rows, unsigned n, bool last)
{
    const struct lnet_nid *nid = arg;

    for (unsigned i = 0; i < n; i++) {
        if (!nid_same(&rows[i].nid, nid))
            continue;
        rows_seen++;
        assert_int_equal(rows[i].rtr.max, 3);
        assert_int_equal(rows[i].rtr.now, -4);
        assert_int_equal(rows[i].rtr.min, -4);
        assert_int_equal(rows[i].rtr.waited, 4);
        assert_int_equal(rows[i].rtr_waiting, 4);
        assert_int_equal(rows[i].tx_waiting, 0);
        assert_int_equal(rows[i].tx.now, 1024);
    }
}

/* Three messages of a sender may hold a buffer; the rest waits in order, whatever pool it needs. */
static void test_router_credits(void **state)
{
    static const uint32_t len[] = {10, 0, 5000, 20, 0, 30, 40};
    struct peer_msg *fx[7], *other, *own;
    const struct lnet_peer_ni *p;
    struct lnet_nid from;
    unsigned i;

    credits_up(3);
    from = sender(210);
    for (i = 0; i < 7; i++)
        fx[i] = from_to(from, hop(i), i & 1 ? LNET_MSG_REPLY : LNET_MSG_PUT, len[i]);
    p = peer_find(&from);
    for (i = 0; i < 7; i++)
        assert_int_equal(fx[i]->recvs, i < 3);
    assert_int_equal(p->rtr.now, -4);
    assert_int_equal(p->rtr.min, -4);
    assert_int_equal(p->rtr.waited, 4);
    assert_int_equal(p->rtr_waiting, 4);
    rows_seen = 0;
    assert_int_equal(peer_ni_rows(node, on_rows, &from), 0);
    settle();
    assert_int_equal(rows_seen, 1);
    /* that is no wait for a buffer */
    for (i = 0; i < LNET_POOLS; i++) {
        assert_int_equal(pool_stats(0, i).waiting, 0);
        assert_int_equal(pool_stats(0, i).waited, 0);
    }
    /* neither others nor what is for this node are behind it */
    other = from_to(sender(211), hop(0), LNET_MSG_PUT, 99);
    assert_int_equal(other->recvs, 1);
    own = arrive(tcp0, from, hdr_ping(from, tcp0->nid));
    settle();
    assert_int_equal(own->recvs, 1);
    /* in order, one for one, whichever of the sender's comes back */
    end(5000);
    assert_int_equal(fx[3]->recvs, 1);
    assert_int_equal(fx[4]->recvs, 0);
    end(99); /* not its own */
    assert_int_equal(fx[4]->recvs, 0);
    end(20);
    assert_int_equal(fx[4]->recvs, 1);
    assert_int_equal(fx[5]->recvs, 0);
    assert_int_equal(p->rtr.now, -2);
    /* who comes now waits behind those who wait */
    other = from_to(from, hop(8), LNET_MSG_PUT, 50);
    end(10);
    assert_int_equal(fx[5]->recvs, 1);
    assert_int_equal(fx[6]->recvs, 0);
    /* a message that fails returns its credit as well */
    for (i = 0; i < loop.nheld && loop.held[i]->hdr.payload_len != 30; i++)
        ;
    send_end(loop.held[i], (struct lnet_result){LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR});
    settle();
    assert_int_equal(fx[6]->recvs, 1);
    assert_int_equal(other->recvs, 0);
    end(40);
    assert_int_equal(other->recvs, 1);
    assert_int_equal(p->rtr.now, 0);
    end_all();
    assert_int_equal(p->rtr.now, 3);
    assert_int_equal(p->rtr.min, -4);
    assert_int_equal(p->rtr.waited, 5);
    node_down();
}

/* The credit is held from before the payload comes, and while a buffer is waited for. */
static void test_credit_then_buffer(void **state)
{
    struct peer_msg *a, *b, *c, *d;
    struct lnet_nid from;
    const struct lnet_peer_ni *p;

    credits_up(2);
    from = sender(210);
    assert_int_equal(fill(1000), 64 - 4); /* bulk leaves some to others */
    a = from_to(from, hop(0), LNET_MSG_PUT, 10);
    b = from_to(from, hop(1), LNET_MSG_PUT, 20);
    c = from_to(from, hop(2), LNET_MSG_PUT, 30);
    d = from_to(from, hop(3), LNET_MSG_ACK, 0);
    p = peer_find(&from);
    assert_int_equal(a->in.rx.wait, LNET_RX_WAIT_BUFFER);
    assert_int_equal(b->in.rx.wait, LNET_RX_WAIT_BUFFER);
    assert_int_equal(c->in.rx.wait, LNET_RX_WAIT_CREDIT);
    assert_int_equal(d->in.rx.wait, LNET_RX_WAIT_CREDIT);
    assert_int_equal(p->rtr.now, -2);
    assert_int_equal(small_pool().waiting, 2);
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(a->recvs, 1);
    assert_int_equal(p->rtr.now, -2); /* a still has its credit */
    end(10);
    /* the buffer went to b; the credit went to c, which now waits for a buffer */
    assert_int_equal(b->recvs, 1);
    assert_int_equal(c->recvs, 0);
    assert_int_equal(c->in.rx.wait, LNET_RX_WAIT_BUFFER);
    assert_int_equal(d->in.rx.wait, LNET_RX_WAIT_CREDIT);
    end(20);
    assert_int_equal(c->recvs, 1);
    assert_int_equal(d->recvs, 1);                /* of the tiny ones there are enough */
    assert_int_equal(small_pool().waited, 1 + 3); /* with the one of fill() */
    assert_int_equal(p->rtr.waited, 2);
    for (unsigned i = 0; i < 3; i++)
        end_all();
    node_down();
}

/* The connection's next header comes as soon as the last is done: no more are let in than there are
 * credits, and the calls do not nest without bound. */
static void test_credits_pipelined(void **state)
{
    struct peer_msg *fx[200];
    struct lnet_nid from;
    unsigned in = 0;

    credits_up(2);
    from = sender(210);
    for (unsigned i = 0; i < 200; i++) {
        fx[i] = rx_new(tcp0, from, hdr_of(LNET_MSG_PUT, from, hop(i % 5), 1 + i), i);
        if (i > 0)
            fx[i - 1]->again = fx[i];
    }
    rx_parse(fx[0]);
    settle();
    while (in < 200) {
        assert_in_range(loop.nheld, 1, 2);
        assert_true(peer_find(&from)->rtr.now >= -1);
        send_end(loop.held[0], ok);
        settle();
        for (in = 0; in < 200 && fx[in]->done; in++)
            ;
    }
    assert_true(loop.max_depth <= 2);
    end_all();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 200);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(loop.sent[i].len, 1 + i);
    node_down();
}

/* ---- the share of a next hop ---- */

/* How many each of several next hops that hang gets, one after the other. */
static void test_share(void **state)
{
    static const struct {
        unsigned each, share;
        unsigned held[10];
    } cases[] = {
        {2, 50, {1, 1, 0}},
        {3, 50, {1, 1, 1, 0}},
        {4, 50, {2, 1, 1, 0}},
        {8, 50, {3, 2, 1, 1, 1, 0}},
        {8, 0, {3, 2, 1, 1, 1, 0}}, /* the default */
        {8, 100, {4, 2, 1, 1, 0}},
        {8, 25, {2, 2, 1, 1, 1, 1, 0}},
        {8, 1, {1, 1, 1, 1, 1, 1, 1, 1, 0}},
        {16, 50, {5, 4, 2, 2, 1, 1, 0}}, /* the sixteenth is for what is urgent */
        {64, 50, {20, 14, 9, 6}},
    };

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        admit_up(cases[i].each, cases[i].share);
        for (unsigned k = 0; k == 0 || cases[i].held[k - 1] > 0; k++) {
            struct lnet_nid to = hop(k);
            unsigned n = hang(to, 100);

            if (n != cases[i].held[k])
                fail_msg("of %u, share %u: the next hop %u holds %u", cases[i].each, cases[i].share,
                         k, n);
            assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), n);
            if (k + 1 == sizeof(cases[i].held) / sizeof(cases[i].held[0]))
                break;
            if (cases[i].each == 64 && k == 3)
                break;
        }
        assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_INCOMPLETE)); /* those of hang() */
        end_all();
        node_down();
    }
}

/* Shares are of each pool by itself and of each reactor by itself. */
static void test_share_apart(void **state)
{
    struct lnet_nid to, from;
    struct peer_msg *fx;

    admit_up(8, 50);
    to = hop(0);
    assert_int_equal(hang(to, 100), 3);
    assert_int_equal(hang(to, 0), 3);
    assert_int_equal(hang(to, 5000), 1);
    for (unsigned r = 1; r < nreactors; r++)
        for (unsigned i = 0; i < 4; i++) {
            from = peer_on(r, 0, "tcp", i);
            fx = from_to(from, to, LNET_MSG_PUT, 100);
            assert_int_equal(fx->recvs, i < 3);
        }
    /* with what comes back the share grows */
    assert_int_equal(hang(hop(1), 100), 2);
    assert_int_equal(put(to, 200)->recvs, 0);
    end(100);
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 3 - 1); /* free: 4 */
    assert_int_equal(small_pool().waiting, 1);
    end(100);
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 3 - 2 + 1); /* 1 is below 5/2 */
    assert_int_equal(small_pool().waiting, 0);
    end_all();
    node_down();
}

/* It can be set while they wait; those that may go on then do so within a moment. */
static void test_share_at_run_time(void **state)
{
    struct lnet_admission a = {.egress_share = 100};
    struct lnet_nid to;
    struct peer_msg *fx;
    struct err err = {0};

    admit_up(8, 50);
    to = hop(0);
    assert_int_equal(hang(to, 100), 3);
    fx = put(to, 200);
    assert_int_equal(fx->recvs, 0);
    assert_int_equal(lnet_admission_set(node, &a, &err), 0);
    assert_int_equal(put(to, 300)->recvs, 0); /* there is room, but it is not first */
    pass(300000);
    assert_int_equal(fx->recvs, 1);
    assert_int_equal(hang(to, 100), 0);
    a.egress_share = 1;
    assert_int_equal(lnet_admission_set(node, &a, &err), 0);
    assert_int_equal(hang(hop(1), 100), 1);
    end_all();
    assert_int_equal(hang(to, 100), 1);
    end_all();
    node_down();
}

/* ---- the reserve for what is urgent ---- */

enum kind {
    ACK,
    EMPTY_PUT,
    EMPTY_REPLY,
    PING_GET,
    PING_PUT,
    PUT,
    REPLY,
    GET,
    KINDS
};

static struct peer_msg *send_kind(enum kind kind, struct lnet_nid to)
{
    static unsigned k;
    struct lnet_nid from = sender(k++ % 200);
    struct lnet_hdr h = hdr_of(kind == ACK ? LNET_MSG_ACK : LNET_MSG_REPLY, from, to, 0);
    struct peer_msg *fx;

    if (kind == EMPTY_PUT)
        h = hdr_put(from, to, 12, 5, 0, 0, true);
    if (kind == PING_GET)
        h = hdr_ping(from, to);
    if (kind == PING_PUT)
        h = hdr_put(from, to, 0, LNET_PING_MATCH_BITS, 0, 48, true);
    if (kind == PUT)
        h = hdr_put(from, to, 12, 5, 0, 48, true);
    if (kind == GET)
        h = hdr_get(from, to, 12, 5, 0, 1 << 20);
    if (kind == REPLY) {
        h.payload_len = 48;
        memset(h.body, 0, sizeof(h.body)); /* what would be portal 0 in a PUT or GET */
    }
    fx = arrive(tcp0, from, h);
    settle();
    return fx;
}

static void test_urgent(void **state)
{
    static const struct {
        enum kind kind;
        enum lnet_pool pool;
        bool urgent;
    } kinds[KINDS] = {
        {ACK, LNET_POOL_TINY, true},         {EMPTY_PUT, LNET_POOL_TINY, true},
        {EMPTY_REPLY, LNET_POOL_TINY, true}, {PING_GET, LNET_POOL_TINY, true},
        {PING_PUT, LNET_POOL_SMALL, true},   {PUT, LNET_POOL_SMALL, false},
        {REPLY, LNET_POOL_SMALL, false},     {GET, LNET_POOL_TINY, false},
    };
    unsigned i, k;

    for (i = 0; i < KINDS; i++) {
        enum kind bulk = kinds[i].pool == LNET_POOL_TINY ? GET : PUT;
        struct peer_msg *fx, *late;

        admit_up(32, 50);
        for (k = 0; k < 30; k++)
            assert_int_equal(send_kind(bulk, hop(k))->recvs, 1);
        assert_int_equal(send_kind(bulk, hop(k))->recvs, 0); /* two are left */
        assert_int_equal(pool_stats(0, kinds[i].pool).free, 2);
        fx = send_kind(kinds[i].kind, hop(40));
        late = send_kind(kinds[i].kind, hop(41));
        assert_int_equal(fx->recvs, kinds[i].urgent);
        assert_int_equal(late->recvs, kinds[i].urgent);
        fx = send_kind(kinds[i].kind, hop(42));
        assert_int_equal(fx->recvs, 0); /* there are no more */
        /* what comes back is for the urgent ones until two are left again */
        if (kinds[i].urgent) {
            send_end(loop.held[0], ok);
            settle();
            assert_int_equal(fx->recvs, 1);
        }
        assert_int_equal(drops_sum(), 0);
        end_all();
        node_down();
    }
    /* few have none to spare */
    admit_up(15, 50);
    assert_int_equal(fill(100), 15);
    end_all();
    node_down();
}

/* Of the large ones, which are dear, at most one. */
static void test_urgent_large(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;
    struct peer_msg *fx;

    o.large = 32 * nreactors;
    o.max_peers = 1024;
    node_up(o);
    loop.hold_send = true;
    assert_int_equal(fill(5000), 31);
    from = sender(210);
    fx = arrive(tcp0, from, hdr_put(from, hop(0), 0, 7, 0, 6000, true));
    settle();
    assert_int_equal(fx->recvs, 1);
    assert_int_equal(pool_stats(0, LNET_POOL_LARGE).free, 0);
    end_all();
    node_down();
}

/* ---- next hops without a connection ---- */

static unsigned sends_to_dead(unsigned who, unsigned first)
{
    unsigned n = 0;

    while (n < 8 && from_to(sender(who), hop(first + n), LNET_MSG_PUT, 100)->recvs)
        n++;
    return n;
}

/* They have an eighth together. A sender with some may have no more than what is free of it. What
 * goes to a connected one does not notice. */
static void test_unconnected(void **state)
{
    struct lnet_peer_ni *p;
    struct lnet_nid live;

    admit_up(64, 100);
    live = hop(100);
    loop_tcp.connects = true;
    ON(home_of(&live), p = lnet_peer_ni_get(node, &live); lnet_peer_ni_connected(p, true));
    assert_int_equal(sends_to_dead(0, 0), 5);
    assert_int_equal(sends_to_dead(1, 10), 2);
    assert_int_equal(sends_to_dead(2, 20), 1);
    assert_int_equal(sends_to_dead(3, 30), 0);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(from_to(sender(10 + i), live, LNET_MSG_PUT, 100)->recvs, 1);
    /* that of one that has ended is the next sender's */
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(small_pool().waiting, 3);
    assert_int_equal(small_pool().free, 64 - 8 - 20);
    pass(11 * 1000000);
    assert_int_equal(drops_of(LNET_DROP_UNCONNECTED), 3);
    ON(home_of(&live), lnet_peer_ni_connected(p, false); lnet_peer_ni_put(p));
    end_all();
    assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].unconnected, 0);
    node_down();
}

/* ---- gateways ---- */

/* Each gateway has one buffer that others leave alone. */
static void test_gateway_reserve(void **state)
{
    struct peer_msg *second, *late;
    struct lnet_nid gw;
    struct err err = {0};

    gateways_up(8, 50, 2);
    assert_int_equal(fill(100), 6);
    assert_int_equal(put(behind(0), 200)->recvs, 1);
    second = put(behind(0), 300);
    assert_int_equal(second->recvs, 0); /* the other is not for it */
    late = put(hop(0), 400);
    assert_int_equal(late->recvs, 0);
    assert_int_equal(put(behind(1), 500)->recvs, 1);
    gw = gateway(0);
    assert_int_equal(dest_holds(0, &gw, true, LNET_POOL_SMALL), 1);
    assert_int_equal(dest_holds(0, &gw, false, LNET_POOL_SMALL), 0);
    assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gw_held, 2);
    assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gws_holding, 2);
    assert_int_equal(small_pool().free, 0);
    /* a gateway's that comes back is set aside again */
    end(500);
    assert_int_equal(second->recvs + late->recvs, 0);
    end(200); /* now gateway 0 has none either: its own waiting message may have it */
    assert_int_equal(second->recvs, 1);
    assert_int_equal(late->recvs, 0);
    /* without a route there is nothing to be kept for it */
    gw = gateway(1);
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 51), &gw, &err), 0);
    pass(300000);
    assert_int_equal(late->recvs, 1);
    end_all();
    node_down();
}

/* But no more than half of the pool is set aside. */
static void test_gateway_reserve_half(void **state)
{
    gateways_up(8, 50, 6);
    assert_int_equal(fill(100), 4);
    for (unsigned k = 0; k < 4; k++)
        assert_int_equal(put(behind(k), 200)->recvs, 1);
    assert_int_equal(put(behind(4), 200)->recvs, 0);
    assert_int_equal(put(behind(5), 200)->recvs, 0);
    end_all();
    node_down();
}

/* The node that is a gateway is also the destination of messages: these are another account. */
static void test_gateway_is_destination(void **state)
{
    struct lnet_nid gw;

    gateways_up(16, 50, 1);
    gw = gateway(0);
    assert_int_equal(hang(behind(0), 100), 5); /* of 16, one for what is urgent */
    assert_int_equal(hang(gw, 200), 4);
    assert_int_equal(dest_holds(0, &gw, true, LNET_POOL_SMALL), 5);
    assert_int_equal(dest_holds(0, &gw, false, LNET_POOL_SMALL), 4);
    assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gw_held, 5);
    end_all();
    node_down();
}

/* What is bound for gateways, all together, leaves a buffer, and what is for destinations may have
 * it, bulk too: so of two routers that forward to each other one can always go on. */
static void test_gateways_never_all(void **state)
{
    static const struct {
        unsigned each, gateways;
    } cases[] = {{2, 1}, {2, 2}, {2, 5}, {3, 2},   {4, 1},   {4, 3},
                 {4, 4}, {4, 9}, {8, 8}, {16, 15}, {16, 20}, {32, 40}};
    unsigned round, in;

    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct peer_msg *fx;

        gateways_up(cases[i].each, 100, cases[i].gateways);
        for (round = 0, in = 0; round < cases[i].each; round++)
            for (unsigned k = 0; k < cases[i].gateways; k++) {
                fx = put(behind(k), 100);
                in += (unsigned)fx->recvs;
                if (!fx->recvs)
                    assert_true(rx_cancel(fx));
            }
        assert_true(in >= 1 && in < cases[i].each);
        fx = put(hop(0), 200);
        if (!fx->recvs)
            fail_msg("%u gateways hold %u of %u, and there is nothing left for destinations",
                     cases[i].gateways, in, cases[i].each);
        end_all();
        node_down();
    }
}

/* ---- whose turn it is ---- */

/* Buffers that come free go round the next hops that wait for one. */
static void test_turns_of_next_hops(void **state)
{
    struct peer_msg *a[4], *b[2], *c;

    admit_up(8, 50);
    assert_int_equal(fill(100), 8);
    for (unsigned i = 0; i < 4; i++)
        a[i] = put(hop(0), 1000 + i);
    for (unsigned i = 0; i < 2; i++)
        b[i] = put(hop(1), 2000 + i);
    c = put(hop(2), 3000);
    assert_int_equal(small_pool().waiting, 7);
    end(100);
    assert_int_equal(a[0]->recvs, 1);
    end(100);
    assert_int_equal(b[0]->recvs, 1);
    end(100);
    assert_int_equal(c->recvs, 1);
    assert_int_equal(small_pool().waiting, 4);
    /* each holds one: now it takes three free ones for a second */
    end(100);
    end(100);
    assert_int_equal(small_pool().waiting, 4);
    end(100);
    assert_int_equal(a[1]->recvs, 1);
    assert_int_equal(b[1]->recvs, 0);
    end(100);
    assert_int_equal(b[1]->recvs, 1);
    assert_int_equal(a[2]->recvs, 0);
    end(100); /* free: 3, of which hop 0 may have fewer than 1.5 and holds 2 */
    assert_int_equal(small_pool().free, 3);
    assert_int_equal(small_pool().waiting, 2);
    end(3000);
    assert_int_equal(a[2]->recvs, 0);
    end(2000);
    assert_int_equal(a[2]->recvs, 1); /* 2 is below 5/2 */
    assert_int_equal(a[3]->recvs, 0);
    end_all();
    node_down();
}

/* One next hop whose messages come and come does not keep another's waiting. */
static void test_no_starvation(void **state)
{
    struct peer_msg *rare;
    unsigned i, k = 0;

    admit_up(4, 50);
    assert_int_equal(fill(100), 4);
    for (i = 0; i < 20; i++)
        put(hop(0), 1000);
    rare = put(hop(1), 2000);
    for (i = 0; i < 6 && !rare->recvs; i++) {
        put(hop(0), 1000);
        put(hop(2 + k++), 3000); /* new ones too, which would find the buffer free */
        send_end(loop.held[0], ok);
        settle();
    }
    assert_true(i <= 2);
    assert_int_equal(rare->recvs, 1);
    end_all();
    node_down();
}

/* Urgent and bulk take turns: neither keeps the other waiting. */
static void test_turns_of_classes(void **state)
{
    struct peer_msg *urgent[6], *bulk[6];
    unsigned u, b;

    admit_up(8, 50);
    for (unsigned i = 0; i < 8; i++)
        send_kind(PUT, hop(100 + i));
    for (unsigned i = 0; i < 6; i++) {
        urgent[i] = send_kind(PING_PUT, hop(i));
        bulk[i] = send_kind(PUT, hop(10 + i));
        assert_int_equal(urgent[i]->recvs + bulk[i]->recvs, 0);
    }
    for (unsigned i = 1; i <= 8; i++) {
        send_end(loop.held[0], ok);
        settle();
        for (u = 0; u < 6 && urgent[u]->recvs; u++)
            ;
        for (b = 0; b < 6 && bulk[b]->recvs; b++)
            ;
        assert_int_equal(u + b, i);
        assert_true(u <= b + 1 && b <= u + 1);
    }
    end_all();
    node_down();
}

/* Header after header comes on the connections that are served; they do not get ahead of those that
 * have waited. */
static void test_no_overtaking_when_served(void **state)
{
    struct peer_msg *fx[8], *next;

    admit_up(8, 50);
    assert_int_equal(fill(100), 8);
    for (unsigned i = 0; i < 8; i++)
        fx[i] = put(hop(i), 1000 + i);
    /* the first one's connection has a message for yet another next hop behind it */
    next = rx_new(tcp0, fx[0]->in.from, hdr_of(LNET_MSG_PUT, fx[0]->in.from, hop(20), 2000), 1);
    fx[0]->again = next;
    for (unsigned i = 0; i < 4; i++)
        send_end(loop.held[0], ok); /* no step in between */
    settle();
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(fx[i]->recvs, i < 4);
    assert_int_equal(next->recvs, 0);
    end_all();
    assert_int_equal(next->recvs, 1);
    node_down();
}

/* Very many next hops wait that may not have another. One that may is found, wherever it stands,
 * and at once. */
static void test_many_wait(void **state)
{
    struct peer_msg *late;
    struct lnet_nid last;

    admit_up(160, 1); /* each may hold one */
    last = hop(79);
    for (unsigned i = 0; i < 80; i++)
        assert_int_equal(put(hop(i), 100)->recvs, 1);
    for (unsigned i = 0; i < 80; i++)
        assert_int_equal(put(hop(i), 200)->recvs, 0);
    assert_int_equal(small_pool().free, 80);
    assert_int_equal(put(hop(90), 300)->recvs, 1);
    end(300);
    /* it comes back from the last in line */
    assert_true(nid_same(&loop.held[79]->next_hop, &last));
    send_end(loop.held[79], ok);
    settle();
    assert_int_equal(small_pool().waiting, 79);
    assert_true(nid_same(&loop.held[79]->next_hop, &last));
    assert_int_equal(loop.held[79]->hdr.payload_len, 200);
    /* one comes back: a round of looks begins; in the middle of it comes a header for which there
     * is room */
    send_end(loop.held[40], ok);
    ON(0, reactor_step(reactor_self(), 0));
    late = arrive(tcp0, sender(201), hdr_of(LNET_MSG_PUT, sender(201), hop(91), 400));
    settle();
    assert_int_equal(late->recvs, 1);
    assert_int_equal(small_pool().waiting, 78); /* and the one whose next hop holds none now */
    end_all();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_router_credits_number),
    LNET_TEST(test_router_credits),
    LNET_TEST(test_credit_then_buffer),
    LNET_TEST(test_credits_pipelined),
    LNET_TEST(test_share),
    LNET_TEST(test_share_apart),
    LNET_TEST(test_share_at_run_time),
    LNET_TEST(test_urgent),
    LNET_TEST(test_urgent_large),
    LNET_TEST(test_unconnected),
    LNET_TEST(test_gateway_reserve),
    LNET_TEST(test_gateway_reserve_half),
    LNET_TEST(test_gateway_is_destination),
    LNET_TEST(test_gateways_never_all),
    LNET_TEST(test_turns_of_next_hops),
    LNET_TEST(test_no_starvation),
    LNET_TEST(test_turns_of_classes),
    LNET_TEST(test_no_overtaking_when_served),
    LNET_TEST(test_many_wait),
};

LNET_TESTS_MAIN("test_lnet_admit", tests)
