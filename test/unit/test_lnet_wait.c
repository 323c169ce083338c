/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission: how a wait ends. In vain, with the connection, or by another way. At the cost of
 * receives that do not move: test_lnet_stall.c. docs/architecture.md "Admission".
 */
#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

static const struct lnet_result broken = {LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};

/* ---- in vain ---- */

/* Two router credits for each sender, 8 small and 8 tiny buffers, 2 large ones. */
static void wait_up(unsigned buffer_wait)
{
    struct lnet_node_opts o = opts_default();

    o.buffer_wait = buffer_wait;
    o.max_peers = 1024;
    node_make(o);
    tcp0 = ni_add_with("10.0.0.1@tcp", -1, -1, 2);
    tcp1 = ni_add("10.1.0.1@tcp1");
    node_begin();
    loop.hold_send = true;
}

/* Both credits of a sender are held by messages that it is still sending. */
static void take_credits(struct lnet_nid from, struct peer_msg *fx[2])
{
    loop.hold_recv = true;
    for (unsigned i = 0; i < 2; i++)
        fx[i] = from_to(from, hop(50 + i), LNET_MSG_PUT, 0);
    loop.hold_recv = false;
}

/* What was missing gives the drop its name, and each waits its own three seconds. */
static void test_reasons(void **state)
{
    struct peer_msg *credit, *share, *buffer, *with_some, *first[2];
    struct lnet_nid s, d;

    wait_up(3);
    s = sender(300);
    d = hop(0);
    take_credits(s, first);
    assert_int_equal(hang(d, 100), 3);
    put(hop(60), 5001);
    put(hop(61), 5002);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1); /* the one of hang() */

    credit = from_to(s, hop(1), LNET_MSG_ACK, 0);
    pass_ms(500);
    share = put(d, 200);
    pass_ms(500);
    buffer = put(hop(2), 6000);
    pass_ms(500);
    with_some = put(hop(60), 7000); /* holds one: but not even that would be there for another */
    assert_int_equal(credit->recvs + share->recvs + buffer->recvs + with_some->recvs, 0);
    pass_ms(1490);
    assert_int_equal(drops_sum(), 1);
    pass_ms(30);
    assert_int_equal(drops_of(LNET_DROP_RTR_CREDIT), 1);
    assert_int_equal(drops_sum(), 2);
    check_discarded(credit);
    check_example(LNET_DROP_RTR_CREDIT, credit);
    pass_ms(470);
    assert_int_equal(drops_sum(), 2);
    pass_ms(30);
    assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), 1);
    assert_int_equal(drops_sum(), 3);
    check_discarded(share);
    check_example(LNET_DROP_DEST_SHARE, share);
    pass_ms(470);
    assert_int_equal(drops_sum(), 3);
    pass_ms(30);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 1);
    assert_int_equal(drops_sum(), 4);
    check_discarded(buffer);
    check_example(LNET_DROP_BUFFER_WAIT, buffer);
    pass_ms(500);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 2);
    assert_int_equal(drops_sum(), 5);
    check_discarded(with_some);
    assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), 5);
    assert_int_equal(stat_of(LNET_STAT_DROP_LENGTH), 100 + 200 + 6000 + 7000);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_PUT], 4);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_ACK], 1);
    assert_int_equal(peer_find(&s)->drop_count[LNET_MSG_ACK], 1);
    assert_int_equal(peer_find(&s)->rtr.now, 0);
    assert_int_equal(peer_find(&s)->rtr.min, -1);
    recv_end(first[0], ok);
    recv_end(first[1], ok);
    settle();
    end_all();
    node_down();
}

/* Waiting for a credit and then for a buffer is one wait; the name is that of the last. */
static void test_one_wait(void **state)
{
    struct peer_msg *fx;
    struct lnet_nid s;

    wait_up(3);
    s = sender(300);
    from_to(s, hop(50), LNET_MSG_PUT, 1000);
    from_to(s, hop(51), LNET_MSG_PUT, 0);
    fill(100); /* the other small ones */
    fx = from_to(s, hop(1), LNET_MSG_PUT, 200);
    assert_int_equal(fx->in.rx.wait, LNET_RX_WAIT_CREDIT);
    pass_ms(150);
    end(0);
    assert_int_equal(fx->in.rx.wait, LNET_RX_WAIT_BUFFER);
    assert_int_equal(small_pool().waiting, 1);
    pass_ms(2830);
    assert_int_equal(fx->recvs, 0);
    pass_ms(40);
    check_discarded(fx);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 1);
    assert_int_equal(small_pool().waiting, 0);
    assert_int_equal(peer_find(&s)->rtr.now, 1);
    end_all();
    node_down();
}

/* A message that its next hop has for long holds no credit: the next of the sender goes on. For a
 * while only messages to next hops that are known to be quick hold any. */
static void test_slow_next_hop(void **state)
{
    struct peer_msg *fx;
    struct lnet_nid s;

    wait_up(3);
    quick_for(0);
    s = sender(300);
    from_to(s, hop(50), LNET_MSG_PUT, 0);
    from_to(s, hop(51), LNET_MSG_PUT, 0);
    fx = from_to(s, hop(1), LNET_MSG_PUT, 200);
    assert_int_equal(fx->in.rx.wait, LNET_RX_WAIT_CREDIT);
    pass_ms(150);
    assert_int_equal(fx->recvs, 0);
    pass_ms(150);
    assert_int_equal(fx->in.mlen, 200);
    assert_int_equal(peer_find(&s)->rtr.now, 2);
    assert_int_equal(small_pool().free, 7); /* its share bounds it */
    assert_int_equal(from_to(s, hop(2), LNET_MSG_PUT, 0)->recvs, 1);
    assert_int_equal(peer_find(&s)->rtr.now, 2);
    end_all();
    pass_ms(11000);
    from_to(s, hop(3), LNET_MSG_PUT, 0);
    assert_int_equal(peer_find(&s)->rtr.now, 1);
    end_all();
    assert_int_equal(peer_find(&s)->rtr.now, 2);
    node_down();
}

/* When one wait ends those behind it for the same thing go on waiting; when a router credit comes
 * back that way, the next of the sender has it. */
static void test_expired_gives_back(void **state)
{
    struct peer_msg *a, *b;
    struct lnet_nid s;

    wait_up(3);
    s = sender(300);
    fill(100);
    from_to(s, hop(50), LNET_MSG_PUT, 0);
    a = from_to(s, hop(1), LNET_MSG_PUT, 200); /* waits for a buffer, has a credit */
    pass_ms(1000);
    b = from_to(s, hop(2), LNET_MSG_ACK, 0); /* waits for a credit */
    assert_int_equal(b->in.rx.wait, LNET_RX_WAIT_CREDIT);
    pass_ms(2020);
    check_discarded(a);
    assert_int_equal(b->recvs, 1);
    settle();
    assert_int_equal(drops_sum(), 1 + drops_of(LNET_DROP_RX_INCOMPLETE));
    assert_int_equal(loop.held[loop.nheld - 1]->hdr.type, LNET_MSG_ACK);
    end_all();
    node_down();
}

static void expect_wait(unsigned buffer_wait, unsigned want_s)
{
    struct peer_msg *fx;

    wait_up(buffer_wait);
    fill(100);
    fx = put(hop(0), 200);
    pass_ms(want_s * 1000 - 20);
    assert_int_equal(fx->recvs, 0);
    pass_ms(40);
    check_discarded(fx);
    end_all();
    node_down();
}

static void test_how_long(void **state)
{
    expect_wait(0, 10);
    expect_wait(1, 1);
    expect_wait(12, 12);
}

/* Those that wait keep their time, whatever those behind them have. */
static void test_how_long_at_run_time(void **state)
{
    struct lnet_admission a = {.buffer_wait = 2};
    struct peer_msg *ten, *two, *twelve, *one;
    struct err err = {0};

    wait_up(10);
    fill(100);
    ten = put(hop(0), 200);
    assert_int_equal(lnet_admission_set(node, &a, &err), 0);
    two = put(hop(1), 200);
    a.buffer_wait = 12;
    assert_int_equal(lnet_admission_set(node, &a, &err), 0);
    twelve = put(hop(2), 200);
    a.buffer_wait = 1;
    assert_int_equal(lnet_admission_set(node, &a, &err), 0);
    one = put(hop(3), 200);
    pass_ms(980);
    assert_int_equal(one->recvs, 0);
    pass_ms(40);
    assert_int_equal(one->recvs, 1);
    pass_ms(960);
    assert_int_equal(two->recvs, 0);
    pass_ms(40);
    assert_int_equal(two->recvs, 1);
    pass_ms(7960);
    assert_int_equal(ten->recvs, 0);
    pass_ms(40);
    assert_int_equal(ten->recvs, 1);
    pass_ms(1960);
    assert_int_equal(twelve->recvs, 0);
    pass_ms(40);
    assert_int_equal(twelve->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), 4);
    end_all();
    node_down();
}

/* What lies behind a message that waited in vain is not made to wait again, whatever it waits for;
 * it takes what is there. */
static void test_behind_expired(void **state)
{
    struct peer_msg *credit, *share, *first[2];
    struct lnet_nid s, d;

    wait_up(3);
    s = sender(300);
    d = hop(0);
    take_credits(s, first);
    hang(d, 100);
    credit = from_to(s, hop(1), LNET_MSG_ACK, 0);
    share = put(d, 200);
    pass_ms(3010);
    for (unsigned i = 1; i < 4; i++) {
        assert_int_equal(drops_of(LNET_DROP_RTR_CREDIT), i);
        assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), i);
        pass_ms(300);
        if (i == 3)
            break;
        next_on(credit);
        next_on(share);
        settle();
    }
    assert_int_equal(peer_find(&s)->rtr.now, 0);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).waiting, 0);
    assert_int_equal(pool_stats(0, LNET_POOL_TINY).waiting, 0);
    /* there is something for it: it goes on */
    share->in.rx.hdr.dest_nid = hop(5);
    next_on(share);
    settle();
    assert_int_equal(share->in.mlen, 200);
    /* and after a second it may wait again */
    pass_ms(200);
    next_on(credit);
    settle();
    assert_int_equal(credit->recvs, 0);
    recv_end(first[0], ok);
    settle();
    end(0);
    assert_int_equal(credit->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_RTR_CREDIT), 3);
    recv_end(first[1], ok);
    settle();
    end_all();
    node_down();
}

/* When a message has waited in vain for its next hop, those behind it for that next hop do not wait
 * before it gives a buffer back. */
static void test_waited_in_vain(void **state)
{
    struct peer_msg *share;
    struct lnet_nid d;

    wait_up(3);
    d = hop(0);
    hang(d, 100);
    share = put(d, 200);
    pass_ms(1500);
    assert_int_equal(put(d, 201)->recvs, 0); /* nothing is known of it yet */
    pass_ms(1510);
    check_discarded(share);
    pass_ms(1000);
    check_discarded(put(d, 202));
    assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), 2);
    assert_int_equal(put(hop(1), 203)->in.mlen, 203);
    end(100); /* the one that waits has it */
    share = put(d, 204);
    put(d, 205);
    pass_ms(1000);
    end(100); /* as it takes something meanwhile, the wait of the other says nothing */
    assert_int_equal(share->in.mlen, 204);
    pass_ms(2500);
    assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), 3);
    assert_int_equal(put(d, 206)->recvs, 0);
    end_all();
    assert_int_equal(drops_of(LNET_DROP_DEST_SHARE), 3);
    node_down();
}

/* The table of next hops is full: dropped, and nothing is lost. */
static void test_no_account(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_nid s;
    struct peer_msg *fx;
    unsigned n = 0;

    o.max_peers = 16 * nreactors; /* 84 peers, 18 buffers, 64 looks: 166 accounts */
    node_up(o);
    loop.hold_send = true;
    s = sender(0);
    for (unsigned i = 0; i < 180; i++) {
        fx = from_to(s, hop(i), LNET_MSG_PUT, 100);
        n += fx->recvs == 0 || fx->in.mlen == 100;
    }
    assert_int_equal(n, 166);
    check_discarded(fx);
    assert_int_equal(drops_of(LNET_DROP_NO_MSG_MEMORY), 14);
    assert_int_equal(small_pool().waiting, 166 - 8);
    assert_int_equal(peer_find(&s)->rtr.now, 1024 - 166);
    /* those who have an account are served */
    assert_int_equal(from_to(s, hop(3), LNET_MSG_ACK, 0)->in.mlen, 0);
    assert_int_equal(loop.nsent, 9);
    end_all();
    assert_int_equal(from_to(s, hop(179), LNET_MSG_PUT, 100)->in.mlen, 100);
    end_all();
    node_down();
}

/* ---- the connection ends ---- */

static void test_cancel_credit(void **state)
{
    struct peer_msg *fx[7];
    const struct lnet_peer_ni *p;
    struct lnet_nid s;
    unsigned i;

    wait_up(10);
    s = sender(300);
    for (i = 0; i < 7; i++)
        fx[i] = from_to(s, hop(i), LNET_MSG_PUT, 10 + i);
    p = peer_find(&s);
    assert_int_equal(p->rtr.now, -5);
    /* being received and sent: no */
    assert_false(rx_cancel(fx[0]));
    /* middle, last, first of those that wait */
    assert_true(rx_cancel(fx[4]));
    assert_true(rx_cancel(fx[6]));
    assert_true(rx_cancel(fx[2]));
    ON(0, assert_false(lnet_rx_cancel(&fx[2]->in.rx)));
    assert_int_equal(p->rtr.now, -2);
    assert_int_equal(p->rtr_waiting, 2);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 3);
    assert_int_equal(p->drop_count[LNET_MSG_PUT], 3);
    assert_true(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    end(10);
    assert_int_equal(fx[3]->recvs, 1);
    assert_int_equal(fx[5]->recvs, 0);
    /* the credit is on its way to the last one when its connection ends */
    for (i = 0; i < loop.nheld && loop.held[i]->hdr.payload_len != 11; i++)
        ;
    send_end(loop.held[i], ok);
    assert_true(rx_cancel(fx[5]));
    assert_false(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    settle();
    assert_int_equal(fx[5]->recvs, 0);
    assert_int_equal(p->rtr.now, 1);
    assert_int_equal(from_to(s, hop(7), LNET_MSG_PUT, 20)->recvs, 1);
    end_all();
    assert_false(rx_cancel(fx[0])); /* done */
    node_down();
}

/* One that waits for a buffer holds a router credit; both go to the next. */
static void test_cancel_buffer(void **state)
{
    struct peer_msg *a, *b, *c, *other;
    struct lnet_nid s;

    wait_up(10);
    s = sender(300);
    fill(100);
    a = from_to(s, hop(1), LNET_MSG_PUT, 200);
    b = from_to(s, hop(1), LNET_MSG_PUT, 300);
    c = from_to(s, hop(3), LNET_MSG_ACK, 0);
    other = put(hop(4), 400);
    assert_int_equal(c->in.rx.wait, LNET_RX_WAIT_CREDIT);
    assert_true(rx_cancel(a));
    settle();
    assert_int_equal(c->recvs, 1);
    assert_int_equal(b->recvs, 0);
    /* a buffer is on its way to b when its connection ends: the other has it */
    send_end(loop.held[0], ok);
    assert_true(rx_cancel(b));
    settle();
    assert_int_equal(other->recvs, 1);
    /* moved from one queue to the other, then closed */
    a = from_to(s, hop(1), LNET_MSG_PUT, 500);
    b = from_to(s, hop(2), LNET_MSG_PUT, 600);
    assert_int_equal(b->in.rx.wait, LNET_RX_WAIT_CREDIT);
    end(0);
    assert_int_equal(b->in.rx.wait, LNET_RX_WAIT_BUFFER);
    assert_true(rx_cancel(b));
    assert_true(rx_cancel(a));
    assert_false(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    end_all();
    assert_int_equal(peer_find(&s)->rtr.now, 2);
    node_down();
}

/* All that wait are closed at once, while buffers and credits come back: nobody is left behind. */
static void test_cancel_all(void **state)
{
    struct peer_msg *fx[40];

    wait_up(10);
    for (unsigned i = 0; i < 40; i++)
        fx[i] = from_to(sender(300 + i % 5), hop(i % 7), LNET_MSG_PUT, 100);
    for (unsigned i = 0; i < 40; i += 2) {
        if (fx[i]->recvs == 0)
            assert_true(rx_cancel(fx[i]));
        if (i % 8 == 0 && loop.nheld > 0)
            send_end(loop.held[0], ok);
    }
    for (unsigned i = 1; i < 40; i += 2)
        if (fx[i]->recvs == 0)
            assert_true(rx_cancel(fx[i]));
    settle();
    for (unsigned i = 0; i < 40; i++)
        assert_true(fx[i]->done || fx[i]->cancelled);
    end_all();
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_INCOMPLETE));
    assert_int_equal(drops_sum() + stat_of(LNET_STAT_ROUTE_COUNT), 40);
    node_down();
}

/* ---- another way ---- */

#define TCP5 LNET_NET(LNET_LND_SOCK, 5)

static void set_up(struct lnet_nid gw, bool up)
{
    struct lnet_peer_ni *p;

    ON(0, {
        p = lnet_peer_ni_get(node, &gw);
        lnet_peer_ni_notify(tcp1, p, up);
        lnet_peer_ni_put(p);
    });
    settle();
}

static void route_gone(struct lnet_nid gw)
{
    struct err err = {0};

    assert_int_equal(route_del(node, TCP5, &gw, &err), 0);
    settle();
}

/* tcp5 is behind gateway 0, and with a lower priority behind gateway 1. */
static void two_ways(void)
{
    gateways_up(8, 50, 0);
    assert_int_equal(route_add("tcp5", gateway(0), -1, 0), 0);
    assert_int_equal(route_add("tcp5", gateway(1), -1, 1), 0);
    settle();
}

static uint32_t gw_holds(unsigned k)
{
    struct lnet_nid gw = gateway(k);

    return dest_holds(0, &gw, true, LNET_POOL_SMALL);
}

/* Headers wait for the share of a gateway that goes away: they take the other way, in order. */
static void test_reroute_waiting(void **state)
{
    struct lnet_nid far = N("10.5.0.9@tcp5"), gw1;
    struct peer_msg *fx[4];
    unsigned n;

    for (unsigned how = 0; how < 2; how++) {
        two_ways();
        gw1 = gateway(1);
        n = hang(far, 100);
        assert_int_equal(n, 3);
        for (unsigned i = 0; i < 4; i++)
            fx[i] = put(far, 200 + i);
        assert_int_equal(small_pool().waiting, 4);
        if (how == 0)
            set_up(gateway(0), false);
        else
            route_gone(gateway(0));
        pass_ms(260);
        assert_int_equal(gw_holds(0), 3);
        assert_int_equal(gw_holds(1), 2); /* fewer than half of what is free */
        assert_int_equal(small_pool().waiting, 2);
        assert_int_equal(small_pool().waited, 1 + 4); /* hang()'s; it is one wait for each */
        assert_int_equal(fx[0]->recvs + fx[1]->recvs, 2);
        assert_true(nid_same(&loop.sent[loop.nsent - 1].to, &gw1));
        end(100);
        end(100);
        end(100);
        assert_int_equal(fx[2]->recvs, 1);
        end(200);
        end(201);
        assert_int_equal(fx[3]->recvs, 1);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(loop.sent[loop.nsent - 4 + i].len, 200 + i);
        assert_int_equal(drops_sum(), drops_of(LNET_DROP_RX_INCOMPLETE));
        end_all();
        node_down();
    }
}

/* They do not get a new time by that. */
static void test_reroute_keeps_time(void **state)
{
    struct lnet_nid far = N("10.5.0.9@tcp5");
    struct peer_msg *fx;

    two_ways();
    assert_int_equal(fill(100), 6); /* of 8, one for each gateway */
    put(far, 150);
    assert_int_equal(gw_holds(0), 1);
    fx = put(far, 200);
    assert_int_equal(fx->recvs, 0);
    pass_ms(6000);
    set_up(gateway(0), false);
    assert_int_equal(put(far, 300)->recvs, 1); /* the one that was set aside for gateway 1 */
    pass_ms(300);
    assert_int_equal(fx->recvs, 0);
    pass_ms(3600);
    assert_int_equal(fx->recvs, 0);
    pass_ms(200);
    check_discarded(fx);
    end_all();
    node_down();
}

/* There is no other way: dropped by the name of that, not left to wait. */
static void test_no_way_left(void **state)
{
    struct lnet_nid far = N("10.5.0.9@tcp5");
    struct peer_msg *fx[3], *other;

    for (unsigned how = 0; how < 2; how++) {
        two_ways();
        route_gone(gateway(1));
        assert_int_equal(hang(far, 100), 3);
        for (unsigned i = 0; i < 3; i++)
            fx[i] = put(far, 200);
        assert_int_equal(hang(hop(0), 300), 2);
        other = put(hop(0), 400);
        if (how == 0)
            set_up(gateway(0), false);
        else
            route_gone(gateway(0));
        pass_ms(260);
        assert_int_equal(drops_of(how == 0 ? LNET_DROP_NO_LIVE_ROUTE : LNET_DROP_NO_ROUTE), 3);
        for (unsigned i = 0; i < 3; i++)
            check_discarded(fx[i]);
        assert_int_equal(other->recvs, 0);
        assert_int_equal(small_pool().waiting, 1);
        end_all();
        assert_int_equal(other->recvs, 1);
        node_down();
    }
}

/* While the payload comes in the way goes: the message takes another, and the account goes with
 * it. */
static void test_reroute_received(void **state)
{
    struct lnet_nid far = N("10.5.0.9@tcp5"), gw1;
    struct peer_msg *fx;

    for (unsigned how = 0; how < 2; how++) {
        two_ways();
        gw1 = gateway(1);
        loop.hold_recv = true;
        fx = put(far, 100);
        assert_int_equal(gw_holds(0), 1);
        if (how == 0)
            set_up(gateway(0), false);
        else
            route_gone(gateway(0));
        pass_ms(600);
        assert_int_equal(gw_holds(0), 1);
        recv_end(fx, ok);
        settle();
        assert_int_equal(gw_holds(0), 0);
        assert_int_equal(gw_holds(1), 1);
        assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gw_held, 1);
        assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_SMALL].gws_holding, 1);
        assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &gw1));
        end(100);
        /* the first way is back: it is taken again */
        if (how == 0)
            set_up(gateway(0), true);
        else
            route_add("tcp5", gateway(0), -1, 0);
        loop.hold_recv = false;
        put(far, 200);
        assert_int_equal(gw_holds(0), 1);
        end_all();
        node_down();
    }
}

/* Or there is no other: dropped by the name of that. */
static void test_received_no_way(void **state)
{
    struct lnet_nid far = N("10.5.0.9@tcp5");
    struct peer_msg *a, *b;

    two_ways();
    route_gone(gateway(1));
    loop.hold_recv = true;
    a = put(far, 100);
    b = put(far, 200);
    route_gone(gateway(0));
    recv_end(a, ok);
    recv_end(b, broken); /* for its own reason */
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 1);
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 1);
    assert_int_equal(drops_sum(), 2);
    assert_int_equal(ni_stats(tcp0).received[LNET_MSG_PUT], 1);
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    check_quiet();
    route_add("tcp5", gateway(0), -1, 0);
    loop.hold_recv = false;
    assert_int_equal(put(far, 300)->in.mlen, 300);
    set_up(gateway(0), false); /* it is with the LND: that is for the LND to say */
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    end_all();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_reasons),         LNET_TEST(test_one_wait),
    LNET_TEST(test_slow_next_hop),   LNET_TEST(test_expired_gives_back),
    LNET_TEST(test_how_long),        LNET_TEST(test_how_long_at_run_time),
    LNET_TEST(test_behind_expired),  LNET_TEST(test_waited_in_vain),
    LNET_TEST(test_no_account),      LNET_TEST(test_cancel_credit),
    LNET_TEST(test_cancel_buffer),   LNET_TEST(test_cancel_all),
    LNET_TEST(test_reroute_waiting), LNET_TEST(test_reroute_keeps_time),
    LNET_TEST(test_no_way_left),     LNET_TEST(test_reroute_received),
    LNET_TEST(test_received_no_way),
};

LNET_TESTS_MAIN("test_lnet_wait", tests)
