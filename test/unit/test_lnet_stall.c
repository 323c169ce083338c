/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives that stop in the middle while others wait for what they hold. docs/architecture.md
 * "Senders that stop in the middle". */
#include "test/unit/lnet_admit_test.h"

static const struct lnet_result broken = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};

static void progress(struct peer_msg *fx)
{
    fx->in.rx.progress_us = clock_us;
}

static uint32_t stalled(enum lnet_pool pool)
{
    return node->shard[0]->credit->pool[pool].stalled;
}

/* n receives that hang, each for another next hop. */
static void stall(struct peer_msg *fx[], unsigned n, unsigned first_hop)
{
    loop.hold_recv = true;
    for (unsigned i = 0; i < n; i++) {
        fx[i] = put(hop(first_hop + i), 1000 + i);
        assert_int_equal(fx[i]->recvs, 1);
    }
    loop.hold_recv = false;
}

static void finish(struct peer_msg *fx[], unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!fx[i]->done)
            recv_end(fx[i], ok);
    settle();
}

/* After a tenth of a second without payload a message is no longer charged to its next hop, if
 * others wait. */
static void test_stalled(void **state)
{
    struct peer_msg *fx[5], *waits, *more;
    struct lnet_nid d;

    admit_up(16, 50);
    d = hop(0);
    loop.hold_recv = true;
    for (unsigned i = 0; i < 5; i++)
        fx[i] = put(d, 100 + i);
    loop.hold_recv = false;
    pass_ms(5000); /* nobody waits */
    assert_int_equal(stalled(LNET_POOL_SMALL), 0);
    for (unsigned i = 0; i < 5; i++) {
        fx[i]->in.rx.begun_us = clock_us;
        progress(fx[i]);
    }
    waits = put(d, 200);
    assert_int_equal(waits->recvs, 0);
    pass_ms(80);
    assert_int_equal(stalled(LNET_POOL_SMALL), 0);
    assert_int_equal(dest_holds(0, &d, false, LNET_POOL_SMALL), 5);
    fx[4]->in.rx.begun_us = clock_us;
    progress(fx[4]);
    pass_ms(75);
    assert_int_equal(stalled(LNET_POOL_SMALL), 4);
    assert_int_equal(waits->recvs, 1);
    assert_int_equal(dest_holds(0, &d, false, LNET_POOL_SMALL), 2); /* fx[4] and waits */
    assert_int_equal(small_pool().free, 10); /* they still have their buffers */
    assert_int_equal(loop.abandoned, 0);
    /* nobody waits any more: it stays as it is */
    pass_ms(2000);
    assert_int_equal(stalled(LNET_POOL_SMALL), 4);
    /* the payload does come: charged again, and sent */
    recv_end(fx[1], ok);
    settle();
    assert_int_equal(stalled(LNET_POOL_SMALL), 3);
    assert_int_equal(dest_holds(0, &d, false, LNET_POOL_SMALL), 3);
    assert_int_equal(loop.sent[loop.nsent - 1].len, 101);
    assert_memory_equal(loop.sent[loop.nsent - 1].payload, fx[1]->in.payload, 101);
    /* or the connection ends */
    recv_end(fx[0], broken);
    settle();
    assert_int_equal(stalled(LNET_POOL_SMALL), 2);
    assert_int_equal(dest_holds(0, &d, false, LNET_POOL_SMALL), 3);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1);
    assert_int_equal(drops_of(LNET_DROP_RX_STALLED), 0);
    more = put(d, 300);
    assert_int_equal(more->recvs, 1);
    finish(fx, 5);
    end_all();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 6);
    node_down();
}

/* What would come free is no use to a header that waits for the share of next hops without a
 * connection: nothing is taken from a sender that stopped. */
static void test_no_use(void **state)
{
    struct peer_msg *fx[8], *waits;

    admit_up(16, 50);
    stall(fx, 8, 0);
    loop_tcp.connects = true;
    assert_int_equal(put(hop(20), 2000)->recvs + put(hop(21), 2001)->recvs, 2);
    waits = put(hop(22), 2002);
    assert_int_equal(waits->recvs, 0);
    pass_ms(900);
    assert_int_equal(loop.abandoned, 0);
    assert_int_equal(stalled(LNET_POOL_SMALL), 0);
    end(2000);
    assert_int_equal(waits->recvs, 1);
    finish(fx, 8);
    end_all();
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* More than a share of them: the oldest give their buffers up, one for each that waits. */
static void test_abandoned(void **state)
{
    struct peer_msg *fx[8], *waits[3];
    struct lnet_nid to;
    unsigned i;

    admit_up(8, 50);
    stall(fx, 8, 0);
    for (i = 0; i < 3; i++)
        waits[i] = put(hop(20 + i), 2000);
    pass_ms(480);
    assert_int_equal(loop.abandoned, 0);
    pass_ms(270);
    assert_int_equal(loop.abandoned, 3);
    for (i = 0; i < 8; i++)
        assert_int_equal(fx[i]->abandoned, i < 3);
    for (i = 0; i < 3; i++)
        assert_int_equal(waits[i]->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_RX_STALLED), 3);
    assert_int_equal(drops_sum(), 3);
    check_example(LNET_DROP_RX_STALLED, fx[2]);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_PUT], 3);
    assert_int_equal(peer_find(&fx[0]->in.from)->drop_count[LNET_MSG_PUT], 1);
    assert_int_equal(peer_find(&fx[0]->in.from)->rtr.now, 1024);
    assert_int_equal(small_pool().free, 0);
    pass_ms(3000);
    assert_int_equal(loop.abandoned, 3); /* nobody waits */
    /* the rest of one comes and is thrown away: nothing is sent or counted again */
    i = loop.nsent;
    recv_end(fx[0], ok);
    recv_end(fx[1], broken);
    settle();
    assert_int_equal(loop.nsent, i);
    assert_int_equal(drops_sum(), 3);
    assert_int_equal(peer_find(&fx[0]->in.from)->recv_count[LNET_MSG_PUT], 0);
    assert_int_equal(ni_stats(tcp0).received[LNET_MSG_PUT], 3); /* those that waited */
    /* the connection goes on; its sender is not slow any more */
    pass_ms(8000);
    fx[0]->in.rx.hdr.dest_nid = to = hop(30);
    next_on(fx[0]);
    settle();
    assert_int_equal(fx[0]->recvs, 0);
    end(2000);
    assert_int_equal(fx[0]->recvs, 1);
    assert_memory_equal(loop.sent[loop.nsent - 1].payload, fx[0]->in.payload, 1000);
    assert_true(nid_same(&loop.sent[loop.nsent - 1].to, &to));
    finish(fx, 8);
    end_all();
    assert_int_equal(drops_sum(), 3);
    node_down();
}

/* However long they have stopped, while nobody waits for their memory they keep it. */
static void test_nobody_waits(void **state)
{
    struct peer_msg *fx[8], *waits;

    admit_up(8, 50);
    stall(fx, 8, 0);
    pass(10 * 60 * SEC);
    assert_int_equal(stalled(LNET_POOL_SMALL), 0);
    assert_int_equal(loop.abandoned, 0);
    waits = put(hop(20), 2000);
    pass_ms(260);
    assert_int_equal(loop.abandoned, 1);
    assert_int_equal(waits->recvs, 1);
    finish(fx, 8);
    end_all();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 8);
    node_down();
}

/* Up to a share they are let alone: who waits then waits for its own next hop. */
static void test_few_stalled(void **state)
{
    struct peer_msg *fx[2], *waits;

    admit_up(16, 50);
    stall(fx, 2, 10);
    assert_int_equal(hang(hop(0), 100), 5); /* 9 are free */
    waits = put(hop(0), 200);
    pass_ms(5000);
    assert_int_equal(stalled(LNET_POOL_SMALL), 2);
    assert_int_equal(loop.abandoned, 0);
    assert_int_equal(waits->recvs, 0);
    /* the free ones become fewer: now the two are too many */
    assert_int_equal(hang(hop(1), 300), 3);
    assert_int_equal(hang(hop(2), 400), 2);
    assert_int_equal(small_pool().free, 4);
    pass_ms(500);
    assert_int_equal(loop.abandoned, 0); /* 2 are not more than half of 4 */
    assert_int_equal(hang(hop(3), 500), 1);
    pass_ms(260);
    assert_int_equal(loop.abandoned, 1);
    assert_true(fx[0]->abandoned);
    finish(fx, 2);
    end_all();
    node_down();
}

/* Another pool's, and those that the LND cannot let go of, do not help. */
static void test_not_abandoned(void **state)
{
    struct peer_msg *large[2], *fx[8], *ib, *waits[8];
    struct lnet_nid from;

    admit_up(8, 50);
    loop.hold_recv = true;
    for (unsigned i = 0; i < 2; i++)
        large[i] = put(hop(10 + i), 5000);
    from = peer_on(0, 2, "o2ib", 0);
    loop_ib.recv_abandon = NULL;
    ib = arrive(ib0, from, hdr_of(LNET_MSG_PUT, from, hop(20), 900));
    loop.hold_recv = false;
    stall(fx, 7, 0);
    fx[0]->keep = fx[2]->keep = true;
    for (unsigned i = 0; i < 3; i++)
        waits[i] = put(hop(30 + i), 2000);
    pass_ms(800);
    assert_int_equal(loop.abandoned, 3);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(fx[i]->abandoned, i == 1 || i == 3 || i == 4);
    assert_false(ib->abandoned);
    assert_false(large[0]->abandoned || large[1]->abandoned);
    assert_int_equal(stalled(LNET_POOL_LARGE), 0);
    /* only such are left: who waits goes on waiting, and nothing breaks */
    for (unsigned i = 5; i < 7; i++)
        fx[i]->keep = true;
    for (unsigned i = 3; i < 6; i++)
        waits[i] = put(hop(30 + i), 2100);
    pass_ms(5000);
    assert_int_equal(loop.abandoned, 3);
    for (unsigned i = 3; i < 6; i++)
        assert_int_equal(waits[i]->recvs, 0);
    pass_ms(6000);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 3);
    finish(fx, 7);
    finish(large, 2);
    finish(&ib, 1);
    end_all();
    node_down();
}

/* Each pool for itself: an older one of another kind that has stalled too, but is not too many, is
 * left alone. */
static void test_other_pool(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct peer_msg *large, *fx[8], *waits;

    o.large = 8 * nreactors;
    o.max_peers = 1024;
    node_up(o);
    loop.hold_send = loop.hold_recv = true;
    large = put(hop(10), 5000);
    loop.hold_recv = false;
    assert_int_equal(hang(hop(11), 6000), 3);
    put(hop(11), 7000); /* waits for its next hop's share */
    stall(fx, 8, 0);
    waits = put(hop(20), 2000);
    pass_ms(800);
    assert_int_equal(stalled(LNET_POOL_LARGE), 1);
    assert_int_equal(loop.abandoned, 1);
    assert_false(large->abandoned);
    assert_true(fx[0]->abandoned);
    assert_int_equal(waits->recvs, 1);
    finish(fx, 8);
    finish(&large, 1);
    end_all();
    node_down();
}

/* Where the peer writes by itself its connection ends, which takes a moment: one for each that
 * waits. A receive with which no connection ends makes no room: the next one is tried. */
static void test_abandoned_ends(void **state)
{
    struct peer_msg *fx[8], *waits;

    admit_up(8, 50);
    loop_ib.remote_writes = true;
    loop.hold_recv = true;
    for (unsigned i = 0; i < 8; i++) {
        struct lnet_nid from = peer_on(0, 2, "o2ib", i);

        fx[i] = arrive(ib0, from, hdr_of(LNET_MSG_PUT, from, hop(i), 900));
        fx[i]->keep = true;
        fx[i]->ends = i > 0;
    }
    loop.hold_recv = false;
    pass_ms(9000);
    waits = put(hop(20), 2000);
    pass_ms(800);
    assert_false(fx[0]->late);
    pass_ms(800);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(fx[i]->late, i < 2);
    recv_end(fx[1], broken);
    settle();
    assert_int_equal(waits->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1);
    finish(fx, 8);
    end_all();
    node_down();
}

/* Where the LND hands over segments of its own it hands over none of one that it gave up. */
static void test_abandoned_take(void **state)
{
    struct peer_msg *fx[8], *waits;

    admit_up(8, 50);
    tcp0->rx_take = true;
    stall(fx, 8, 0);
    waits = put(hop(20), 2000);
    pass_ms(800);
    assert_true(fx[0]->abandoned);
    assert_int_equal(waits->recvs, 1);
    finish(fx, 8);
    end_all();
    assert_int_equal(fx[0]->releases, 0);
    assert_int_equal(fx[1]->releases, 1);
    node_down();
}

/* A byte now and then keeps it from being stalled, but not for longer than ten seconds. */
static void test_slow(void **state)
{
    struct peer_msg *fx[8], *waits;

    admit_up(8, 50);
    stall(fx, 8, 0);
    for (unsigned k = 0; k < 4; k++) {
        pass_ms(400);
        for (unsigned i = 0; i < 8; i++)
            progress(fx[i]);
    }
    waits = put(hop(20), 2000);
    for (unsigned k = 0; k < 20; k++) {
        pass_ms(400);
        for (unsigned i = 0; i < 8; i++)
            progress(fx[i]);
    }
    assert_int_equal(loop.abandoned, 0); /* 9.6 s */
    assert_int_equal(waits->recvs, 0);
    for (unsigned k = 0; k < 3; k++) {
        pass_ms(250);
        for (unsigned i = 0; i < 8; i++)
            progress(fx[i]);
    }
    assert_int_equal(loop.abandoned, 1);
    assert_true(fx[0]->abandoned);
    assert_int_equal(waits->recvs, 1);
    finish(fx, 8);
    end_all();
    node_down();
}

/* One that moves again is not given up, but has taken too long to be its next hop's again. */
static void test_moves_again(void **state)
{
    struct peer_msg *fx[2];
    struct lnet_nid to;

    admit_up(16, 50);
    to = hop(10);
    stall(fx, 2, 10);
    assert_int_equal(hang(hop(0), 100), 5);
    put(hop(0), 200);
    pass_ms(800);
    assert_int_equal(stalled(LNET_POOL_SMALL), 2);
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 0);
    for (unsigned i = 0; i < 12; i++) {
        progress(fx[0]);
        pass_ms(50);
    }
    assert_int_equal(stalled(LNET_POOL_SMALL), 2);
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 0);
    /* all buffers are wanted: it is the younger that has stopped */
    assert_int_equal(fill(300), 8);
    put(hop(30), 400);
    for (unsigned i = 0; i < 8; i++) {
        progress(fx[0]);
        pass_ms(100);
    }
    assert_false(fx[0]->abandoned);
    assert_true(fx[1]->abandoned);
    finish(fx, 2);
    end_all();
    node_down();
}

/* A sender of which a receive stopped waits for others of its kind, and holds up nobody who waits
 * for the same next hop. When its receives move again it is as all others. */
static void test_slow_sender(void **state)
{
    struct lnet_nid slow, to;
    struct peer_msg *fx[7], *waits[4], *other;
    unsigned n;

    admit_up(16, 50);
    slow = sender(300);
    to = hop(0);
    loop.hold_recv = true;
    for (n = 0; n < 5; n++)
        fx[n] = from_to(slow, to, LNET_MSG_PUT, 100 + n);
    loop.hold_recv = false;
    for (unsigned i = 0; i < 4; i++) {
        waits[i] = from_to(slow, to, LNET_MSG_PUT, 200 + i);
        assert_int_equal(waits[i]->recvs, 0);
    }
    other = put(to, 300);
    assert_int_equal(other->recvs, 0); /* behind them, and its next hop has its share */
    pass_ms(160);
    assert_int_equal(other->recvs, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(waits[i]->recvs, 0);
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 1);
    assert_int_equal(from_to(slow, to, LNET_MSG_PUT, 0)->recvs, 1); /* without payload */
    assert_int_equal(loop.abandoned, 0);
    finish(fx, 5); /* now they are their next hop's again, which has more than its share */
    pass_ms(60);
    assert_int_equal(waits[0]->recvs, 0);
    pass_ms(600);
    assert_int_equal(stalled(LNET_POOL_SMALL), 0);
    end_all();
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(waits[i]->recvs, 1);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* A gateway is never slow: its receives stop with those of one sender behind it, and others are
 * behind it too. */
static void test_gateway_is_not_slow(void **state)
{
    struct peer_msg *fx[6], *waits;
    struct lnet_nid gw;
    unsigned n;

    gateways_up(16, 50, 1);
    gw = gateway(0);
    loop.hold_recv = true;
    for (n = 0; n < 6; n++)
        fx[n] = from_to(gw, hop(0), LNET_MSG_PUT, 100 + n);
    loop.hold_recv = false;
    waits = put(hop(0), 300);
    assert_int_equal(fx[4]->recvs, 1);
    pass_ms(160);
    assert_true(stalled(LNET_POOL_SMALL) > 0);
    assert_int_equal(waits->recvs, 1);
    assert_int_equal(peer_find(&gw)->slow_until_us, 0);
    finish(fx, 6);
    end_all();
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* Who waits for a place among the stalled gets that of one that has stopped for half a second:
 * first of a sender with several. The sender stays slow, also when it ends its connection. */
static void test_slow_takes_turns(void **state)
{
    struct lnet_nid several;
    struct peer_msg *fx[5], *waits, *after;
    unsigned n = 0;

    admit_up(15, 50);
    several = sender(300);
    loop.hold_recv = true;
    fx[n++] = from_to(sender(301), hop(0), LNET_MSG_PUT, 100);
    for (; n < 5; n++)
        fx[n] = from_to(several, hop(0), LNET_MSG_PUT, 100 + n);
    waits = from_to(sender(302), hop(0), LNET_MSG_PUT, 200);
    loop.hold_recv = false;
    pass_ms(160);
    assert_int_equal(waits->recvs, 1);
    put(hop(1), 300);
    after = from_to(several, hop(2), LNET_MSG_PUT, 400);
    assert_int_equal(after->recvs, 0);
    pass_ms(250);
    assert_int_equal(loop.abandoned, 0);
    pass_ms(200);
    assert_true(fx[1]->abandoned);
    assert_int_equal(loop.abandoned, 1);
    assert_int_equal(after->recvs, 1);
    recv_end(fx[2], broken);
    recv_end(fx[3], broken);
    recv_end(fx[4], broken);
    settle();
    assert_int_equal(peer_find(&several)->stalled, 0);
    assert_true(peer_find(&several)->slow_until_us > clock_us + 9 * SEC);
    loop.hold_recv = true; /* what it sends is charged to them from the beginning */
    fx[2] = from_to(several, hop(3), LNET_MSG_PUT, 500);
    loop.hold_recv = false;
    assert_int_equal(fx[2]->recvs, 1);
    assert_int_equal(peer_find(&several)->stalled, 1);
    finish(fx, 3);
    end_all();
    node_down();
}

/* A message for a gateway is one also when it stalls: beside it there is still a buffer that is not
 * for gateways. */
static void test_stalled_for_gateway(void **state)
{
    struct peer_msg *fx, *second, *end_node;
    struct lnet_nid gw;

    gateways_up(2, 100, 2);
    gw = gateway(0);
    loop.hold_recv = true;
    fx = put(behind(0), 100);
    loop.hold_recv = false;
    second = put(behind(1), 200);
    assert_int_equal(second->recvs, 0);
    pass_ms(800);
    assert_int_equal(stalled(LNET_POOL_SMALL), 1);
    assert_int_equal(dest_holds(0, &gw, true, LNET_POOL_SMALL), 0);
    assert_int_equal(second->recvs, 0);
    end_node = put(hop(0), 300);
    assert_int_equal(end_node->recvs, 1);
    end(300);
    assert_int_equal(second->recvs, 0);
    recv_end(fx, ok);
    settle();
    assert_int_equal(dest_holds(0, &gw, true, LNET_POOL_SMALL), 1);
    assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gw_held, 1);
    end(100);
    assert_int_equal(second->recvs, 1);
    end_all();
    node_down();
}

/* ---- next hops that take nothing ---- */

static struct lnet_nid reader; /* takes a byte each millisecond; others take none */
static unsigned aborted;
static uint64_t taken;    /* of the others, before */
static bool reader_stops; /* the reader takes nothing either */

static void info(const struct lnet_peer_ni *peer, struct lnd_peer_info *out)
{
    *out = (struct lnd_peer_info){.taken = taken};
    for (unsigned i = 0; i < loop.nheld; i++)
        if (loop.held[i]->tx_peer == peer)
            out->owed += loop.held[i]->hdr.payload_len;
    if (nid_same(&peer->nid, &reader) && !reader_stops)
        out->taken = clock_us / 1000;
}

static void abort_peer(struct lnet_ni *ni, struct lnet_peer_ni *peer, enum lnet_drop why)
{
    aborted++;
    assert_false(nid_same(&peer->nid, &reader));
    for (unsigned i = loop.nheld; i-- > 0;) {
        struct lnet_msg *msg = loop.held[i];

        if (msg->tx_peer != peer)
            continue;
        held_del(msg);
        lnet_send_done(msg, (struct lnet_result){why, LNET_HEALTH_LOCAL_ERROR});
    }
}

/* Next hops on all reactors. */
static struct lnet_nid far_hop(unsigned k)
{
    return peer_on(k, 1, "tcp1", k / nreactors);
}

static void far_hops(unsigned n, bool connected)
{
    for (unsigned k = 0; k < n; k++) {
        struct lnet_nid nid = far_hop(k);
        struct lnet_peer_ni *p;

        ON(home_of(&nid), p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_connected(p, connected);
           lnet_peer_ni_put(p));
    }
}

/* Eight small buffers, and next hops that can be seen to take nothing. */
static void watched_up(void)
{
    admit_up(8, 50);
    loop_tcp.connects = true;
    loop_tcp.peer_info = info;
    loop_tcp.peer_abort = abort_peer;
    aborted = 0;
}

/* As many as there are buffers hold one each. One of them loses its connections for each header
 * that waits, and has the share of the unconnected for a while. */
static void test_takes_nothing(void **state)
{
    struct peer_msg *waits[4], *second;
    int got = 0;

    watched_up();
    far_hops(20, true);
    reader = far_hop(3);
    for (unsigned k = 0; k < 8; k++)
        assert_int_equal(put(far_hop(k), 1000 + k)->recvs, 1);
    waits[0] = put(far_hop(10), 2000);
    assert_int_equal(waits[0]->recvs, 0);
    pass_ms(500);
    assert_int_equal(aborted, 0);
    pass_ms(200);
    assert_int_equal(waits[0]->recvs, 1);
    assert_int_equal(aborted, 1);
    for (unsigned k = 1; k < 4; k++)
        waits[k] = put(far_hop(10 + k), 2000);
    pass_ms(1200);
    for (unsigned k = 1; k < 4; k++)
        assert_int_equal(waits[k]->recvs, 1);
    assert_int_equal(aborted, 4);
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_STALLED), 4);
    assert_int_equal(drops_sum(), 4);
    end_all();
    /* four of these have an eighth of the pool together, and what finds none does not wait */
    for (unsigned k = 0; k < 8; k++)
        got += put(far_hop(k), 3000)->in.mlen == 3000;
    assert_int_equal(got, 5);
    assert_int_equal(drops_of(LNET_DROP_UNCONNECTED), 3);
    second = put(far_hop(12), 3000);
    assert_int_equal(second->recvs, 1);
    end_all();
    pass(50 * SEC);
    assert_int_equal(put(far_hop(0), 3500)->in.mlen + put(far_hop(1), 3500)->in.mlen, 3500);
    end_all();
    pass(11 * SEC);
    for (unsigned k = 0; k < 8; k++) /* and then as others have */
        assert_int_equal(put(far_hop(k), 4000)->in.mlen, 4000);
    end_all();
    far_hops(20, false);
    node_down();
}

/* A message comes from the net of the next hops. */
static void far_net_heard(void)
{
    struct lnet_nid from = far_hop(19);

    arrive(tcp1, from, hdr_of(LNET_MSG_ACK, from, sender(0), 0));
    settle();
}

/* While a header finds no buffer, all lose their connections that took nothing for a second, if
 * something else came from their net. Else the net is to blame, and one of them does. */
static void all_take_nothing(bool heard)
{
    struct peer_msg *waits;

    watched_up();
    far_hops(20, true);
    reader = far_hop(3);
    for (unsigned k = 0; k < 8; k++)
        assert_int_equal(put(far_hop(k), 1000 + k)->recvs, 1);
    pass_ms(5000); /* nobody waits */
    assert_int_equal(aborted, 0);
    waits = put(far_hop(10), 2000);
    pass_ms(450);
    if (heard)
        far_net_heard();
    assert_int_equal(aborted, 0);
    pass_ms(250);
    assert_int_equal(aborted, heard ? 7 : 1);
    assert_int_equal(waits->in.mlen, 2000);
    end_all();
    far_hops(20, false);
    node_down();
}

static void test_all_take_nothing(void **state)
{
    all_take_nothing(true);
    all_take_nothing(false);
}

/* Whose connection ended between two looks, and with it the count of what was taken, is looked at
 * anew. */
static void test_counts_anew(void **state)
{
    struct peer_msg *waits;

    watched_up();
    taken = 1000000;
    far_hops(20, true);
    reader = LNET_NID_ANY;
    for (unsigned k = 0; k < 8; k++)
        assert_int_equal(put(far_hop(k), 1000 + k)->recvs, 1);
    waits = put(far_hop(10), 2000);
    pass_ms(300);
    taken = 0;
    pass_ms(500);
    assert_int_equal(aborted, 0);
    pass_ms(600);
    assert_int_equal(aborted, 1);
    assert_int_equal(waits->recvs, 1);
    /* what was seen long ago says nothing */
    pass_ms(3000);
    waits = put(far_hop(11), 2000);
    pass_ms(400);
    assert_int_equal(aborted, 1);
    pass_ms(400);
    assert_int_equal(aborted, 2);
    assert_int_equal(waits->recvs, 1);
    end_all();
    far_hops(20, false);
    node_down();
}

/* Who is a gateway keeps its connections: its checks decide. */
static void test_gateway_takes_nothing(void **state)
{
    watched_up();
    taken = 0;
    far_hops(20, true);
    reader = far_hop(0);
    reader_stops = true;
    assert_int_equal(route_add("tcp50", reader, -1, 0), 0);
    settle();
    assert_int_equal(put(reader, 1000)->recvs, 1);
    for (unsigned k = 1; k < 16; k++)
        (void)put(far_hop(k), 1000 + k);
    pass_ms(3000);
    assert_true(aborted >= 6);
    reader_stops = false;
    end_all();
    far_hops(20, false);
    node_down();
}

/* What waits for the share of next hops without a connection costs none its own. It waits for a
 * second; then for ten seconds nothing from its sender does. */
static void test_unconnected_waits(void **state)
{
    struct peer_msg *waits;

    watched_up();
    taken = 0;
    reader = LNET_NID_ANY;
    far_hops(7, true);
    assert_int_equal(put(far_hop(8), 900)->recvs, 1);
    for (unsigned k = 0; k < 7; k++)
        assert_int_equal(put(far_hop(k), 1000 + k)->recvs, 1);
    waits = put(far_hop(9), 2000);
    pass_ms(900);
    assert_int_equal(waits->recvs, 0);
    pass_ms(200);
    check_discarded(waits);
    check_discarded(from_to(waits->in.from, far_hop(10), LNET_MSG_PUT, 2001));
    assert_int_equal(put(far_hop(10), 2002)->recvs, 0);
    pass_ms(9000);
    check_discarded(from_to(waits->in.from, far_hop(10), LNET_MSG_PUT, 2003));
    pass_ms(1100);
    assert_int_equal(from_to(waits->in.from, far_hop(10), LNET_MSG_PUT, 2004)->recvs, 0);
    assert_int_equal(drops_of(LNET_DROP_UNCONNECTED), 4);
    assert_int_equal(aborted, 0);
    end_all();
    far_hops(7, false);
    node_down();
}

/* A node that takes something keeps its connections. So do one or two whose own messages alone
 * wait, but several lose them after a while: what their senders say to others waits behind them. */
static void test_takes_something(void **state)
{
    struct peer_msg *waits;

    admit_up(8, 100);
    loop_tcp.peer_info = info;
    loop_tcp.peer_abort = abort_peer;
    aborted = 0;
    reader = far_hop(0);
    for (unsigned k = 0; k < 8; k++)
        (void)put(reader, 1000 + k);
    waits = put(reader, 1100);
    pass_ms(3000);
    for (unsigned k = 0; k < 4; k++)
        (void)put(far_hop(5), 1000 + k);
    pass_ms(1500);
    assert_int_equal(aborted, 0);
    assert_int_equal(waits->recvs, 0);
    end_all();
    reader = LNET_NID_ANY;
    for (unsigned k = 0; k < 16; k++)
        waits = put(far_hop(k % 8), 1000 + k);
    pass_ms(4000); /* nothing comes from their net */
    assert_int_equal(aborted, 0);
    assert_int_equal(waits->recvs, 0);
    far_net_heard();
    pass_ms(600);
    assert_int_equal(aborted, 8);
    assert_int_equal(waits->recvs, 1);
    end_all();
    /* two pause, and keep their connections */
    aborted = 0;
    for (unsigned k = 0; k < 16; k++)
        waits = put(far_hop(10 + k % 2), 1000 + k);
    for (unsigned k = 0; k < 8; k++) {
        pass_ms(500);
        far_net_heard();
    }
    assert_int_equal(aborted, 0);
    assert_int_equal(waits->recvs, 0);
    end_all();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_stalled),
    LNET_TEST(test_no_use),
    LNET_TEST(test_abandoned),
    LNET_TEST(test_nobody_waits),
    LNET_TEST(test_few_stalled),
    LNET_TEST(test_not_abandoned),
    LNET_TEST(test_other_pool),
    LNET_TEST(test_abandoned_ends),
    LNET_TEST(test_abandoned_take),
    LNET_TEST(test_slow),
    LNET_TEST(test_moves_again),
    LNET_TEST(test_slow_sender),
    LNET_TEST(test_gateway_is_not_slow),
    LNET_TEST(test_slow_takes_turns),
    LNET_TEST(test_stalled_for_gateway),
    LNET_TEST(test_takes_nothing),
    LNET_TEST(test_all_take_nothing),
    LNET_TEST(test_counts_anew),
    LNET_TEST(test_gateway_takes_nothing),
    LNET_TEST(test_unconnected_waits),
    LNET_TEST(test_takes_something),
};

LNET_TESTS_MAIN("test_lnet_stall", tests)
