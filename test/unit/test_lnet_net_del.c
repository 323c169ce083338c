/* SPDX-License-Identifier: BSD-3-Clause */
/* Removing a net at run time: docs/protocol/lnet-core.md §12.1 "net deleted". */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

#define NET(n) LNET_NET(LNET_LND_SOCK, (n))

static struct err err;
static int removed; /* how often done was called */

static void on_removed(void *arg, int rc, const struct err *why)
{
    const lnet_net_t *net = arg;
    const struct lnet_conf_net *n = lnet_net_find(node, *net);

    assert_ptr_equal(reactor_self(), reactor_control(env));
    assert_int_equal(rc, 0);
    assert_string_equal(why->message, "");
    if (n) /* has more NIs */
        assert_int_equal(lnet_ni_del(node, &n->ni[0]->nid, on_removed, arg, &err), 0);
    else
        removed++;
}

/* Removes the NIs of a net, one after the other. */
static int del(lnet_net_t net)
{
    static lnet_net_t going;
    const struct lnet_conf_net *n = lnet_net_find(node, net);
    struct lnet_nid nid = n ? n->ni[0]->nid : nid_make(net, "\12\0\0\1", 4);
    int rc;

    memset(err.message, 0, sizeof(err.message));
    removed = 0;
    rc = lnet_ni_del(node, &nid, on_removed, &going, &err);
    if (rc == 0)
        going = net;
    assert_true((rc == 0) == (err.message[0] == 0));
    assert_int_equal(removed, 0); /* not before it returns */
    return rc;
}

/* tcp1 has 2 credits on each reactor, of which a peer may have 1. */
static void del_up(void)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = 512 * nreactors;
    o.max_peers = 1024;
    node_make(o);
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add_with("10.1.0.1@tcp1", 2, 1, -1);
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    loop.hold_send = true;
}

/* ---- the rules ---- */

static void test_rules(void **state)
{
    int stopped = 0;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    assert_int_equal(del(NET(1)), -EBUSY); /* it has not started */
    node_begin();
    assert_int_equal(del(NET(7)), -ENOENT);
    assert_int_equal(del(LNET_NET(LNET_LND_LO, 0)), -ENOENT);
    assert_int_equal(del(LNET_NET_ANY), -ENOENT);
    settle();
    assert_int_equal(removed, 0);
    loop.hold_stop = tcp1;
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 0);
    assert_null(lnet_ni_at(node, tcp1->index));
    assert_ptr_equal(lnet_ni_at(node, ib0->index), ib0);
    assert_int_equal(lnet_ni_count(node), 3);
    {
        int before = removed;

        assert_int_equal(del(NET(1)), -ENOENT); /* it is none of ours any more */
        assert_int_equal(del(NET(0)), -EBUSY);  /* one at a time */
        removed = before;
    }
    pass(5 * SEC);
    assert_int_equal(removed, 0);
    loop.hold_stop = NULL;
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(loop.stopping, 1);
    assert_int_equal(del(NET(1)), -ENOENT);
    assert_int_equal(del(NET(0)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(loop.stopping, 2);
    assert_int_equal(del(NET(0)), -ENOENT);
    /* not while the node stops; its own NIs that are left are quiesced and stopped once */
    lnet_node_stop(node, 0, on_stopped, &stopped);
    assert_int_equal(del(ib0->net), -EBUSY);
    pass(3 * SEC);
    assert_int_equal(stopped, 1);
    assert_int_equal(loop.quiesced, 3);
    assert_int_equal(loop.stopping, 3);
    check_quiet();
    node_gone();
    assert_int_equal(loop.fini, 3);
}

/* All NIs of the net go, and only these; then all there are. */
static void test_all_nis(void **state)
{
    struct lnet_ni *more;

    node_make(opts_default());
    tcp1 = ni_add("10.1.0.1@tcp1");
    tcp0 = ni_add("10.0.0.1@tcp");
    more = ni_add("10.1.0.2@tcp1");
    node_begin();
    loop.hold_stop = more;
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 0); /* until the last of them has stopped */
    assert_true(loop.ni_stopping[tcp1->index] && loop.ni_stopping[more->index]);
    loop.hold_stop = NULL;
    settle();
    assert_int_equal(removed, 1);
    assert_false(loop.ni_stopping[tcp0->index]);
    assert_null(lnet_ni_at(node, tcp1->index));
    assert_null(lnet_ni_at(node, more->index));
    assert_int_equal(del(NET(0)), 0);
    settle();
    assert_int_equal(removed, 1);
    pass(200 * SEC); /* a node without NIs */
    node_down();
}

/* ---- what was under way to it ---- */

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    int *statuses = arg;

    statuses[0]++;
    statuses[1] = status;
}

/* Queued at both levels of credits, our own messages as well as those of others, on each reactor;
 * and with the LND. What goes elsewhere is not touched. */
static void test_queued(void **state)
{
    struct lnet_nid from, to, dest;
    unsigned r, i, held;
    int pong[2] = {0};

    del_up();
    for (r = 0; r < nreactors; r++) {
        from = peer_on(r, 0, "tcp", 0);
        for (unsigned k = 0; k < 4; k++)
            for (i = 0; i < 3; i++) {
                to = peer_on(r + i, 1, "tcp1", k);
                arrive(tcp0, from, hdr_of(LNET_MSG_ACK, from, to, 0));
                settle();
            }
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, peer_on(r, 2, "o2ib", 0), 100));
        settle();
    }
    dest = peer_on(1, 1, "tcp1", 0);
    assert_int_equal(lnet_ping(node, &dest, NULL, 100000, on_pong, pong), 0);
    settle();
    held = loop.nheld;
    assert_int_equal(held, 2 * nreactors + nreactors);
    loop.hold_stop = tcp1; /* the LND does nothing yet: what fails is what it does not have */
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(loop.nheld, held);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 12 * nreactors - 2 * nreactors + 1);
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_NI_REMOVED));
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_ACK], 10 * nreactors);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_GET], 1);
    assert_int_equal(pong[0], 1);
    assert_int_equal(pong[1], -EHOSTUNREACH);
    for (r = 0; r < nreactors; r++) {
        const struct lnet_tx_queue *q = &node->shard[r]->tx->tq[tcp1->index];

        assert_int_equal(q->credits.now, q->credits.max - 2);
        assert_true(STAILQ_EMPTY(&q->queue));
    }
    for (i = 0; i < loop.nheld; i++) {
        const struct lnet_peer_ni *p = loop.held[i]->tx_peer;

        if (loop.held[i]->tx_ni == tcp1)
            assert_int_equal(p->tx.now, 0);
        assert_int_equal(p->tx_queued, 1);
    }
    assert_int_equal(removed, 0);
    /* now the LND ends what it has */
    loop.hold_stop = NULL;
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 12 * nreactors + 1);
    assert_int_equal(drops_sum(), drops_of(LNET_DROP_NI_REMOVED));
    assert_int_equal(loop.nheld, nreactors);
    send_end_all(ok);
    settle();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), nreactors);
    check_quiet();
    node_down();
    assert_int_equal(removed, 1);
}

/* Two NIs share the credits of a peer: what waits for one of them is in the queue behind what waits
 * for the other. */
static void test_queued_two_nis(void **state)
{
    struct lnet_ni *second;
    unsigned by_second = 0;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add_with("10.1.0.1@tcp1", 1, 2, -1);
    second = ni_add_with("10.1.0.2@tcp1", 1, 2, -1);
    node_begin();
    loop.hold_send = true;
    for (unsigned i = 0; i < 8; i++)
        from_to(sender(0), hop(i % 2), LNET_MSG_PUT, i & 4 ? 0 : 100);
    for (unsigned i = 0; i < loop.nheld; i++)
        by_second += loop.held[i]->tx_ni == second;
    assert_int_equal(loop.nheld, 2);
    assert_int_equal(by_second, 1);
    loop.hold_stop = second;
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 7);
    loop.hold_stop = NULL;
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 8);
    assert_int_equal(drops_sum(), 8);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_PUT], 4);
    assert_int_equal(ni_stats(second).dropped[LNET_MSG_PUT], 4);
    check_quiet();
    node_down();
}

/* Hundreds of them, in both queues: they fail one by one. */
static void test_many_queued(void **state)
{
    struct lnet_nid from;

    del_up();
    from = peer_on(0, 0, "tcp", 0);
    for (unsigned i = 0; i < 500; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_ACK, from, peer_on(i / 100, 1, "tcp1", i % 100), 0));
        if (i % 100 == 99)
            settle();
    }
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 500);
    assert_int_equal(drops_sum(), 500);
    check_quiet();
    node_down();
}

/* Accepted, but not done: its credits are back, its buffer is not. */
static void test_accepted(void **state)
{
    del_up();
    loop.accept_only = true;
    put(hop(0), 100);
    put(hop(1), 200);
    end(200);
    assert_int_equal(loop.nheld, 1);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 1);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    check_quiet();
    node_down();
}

/* In mail from one reactor to another when the net goes, there and back. */
static void test_crossing(void **state)
{
    struct lnet_nid from, to, back;
    struct lnet_msg *msg;
    unsigned n = 0;

    del_up();
    for (unsigned r = 0; r < nreactors; r++) {
        from = peer_on(r, 0, "tcp", 0);
        to = peer_on(r + 1, 1, "tcp1", 0);
        back = peer_on(r + 1, 1, "tcp1", 1);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, back, 100));
        settle();
        n = loop.nheld;
        msg = loop.held[n - 1];
        ON(home_of(&back), held_del(msg); lnet_send_done(msg, ok)); /* on its way back */
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100));    /* on its way there */
    }
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), nreactors);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), nreactors);
    assert_int_equal(drops_sum(), nreactors);
    check_quiet();
    node_down();
}

/* ---- what was on its way in ---- */

/* Headers that wait for a buffer, to leave by it; and payload that is being received. There is no
 * way to their net any more. */
static void test_waiting_headers(void **state)
{
    struct peer_msg *fx[3], *recv, *other;

    del_up();
    loop.hold_recv = true;
    recv = put(hop(50), 300);
    loop.hold_recv = false;
    assert_int_equal(fill(100), 7);
    for (unsigned i = 0; i < 3; i++)
        fx[i] = put(hop(i), 200 + i);
    other = put(peer_on(0, 2, "o2ib", 0), 400);
    assert_int_equal(small_pool().waiting, 4);
    loop.hold_stop = tcp1;
    assert_int_equal(del(NET(1)), 0);
    settle();
    pass_ms(260);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fx[i]->done);
    assert_int_equal(other->recvs, 1); /* what they held came back */
    loop.hold_stop = NULL;
    settle();
    recv_end(recv, ok);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 4);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 7);
    assert_int_equal(drops_sum(), 11 + drops_of(LNET_DROP_RX_INCOMPLETE));
    end(400);
    check_quiet();
    node_down();
}

/* There is another way: through a router. They take it, and are charged to that. */
static void test_waiting_headers_rerouted(void **state)
{
    struct lnet_nid gw = N("10.2.0.9@o2ib"), to;
    struct peer_msg *recv, *waits;

    del_up();
    to = hop(50);
    loop.hold_recv = true;
    recv = put(to, 300);
    loop.hold_recv = false;
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 1);
    fill(100);
    waits = put(hop(0), 200);
    assert_int_equal(waits->recvs, 0);
    assert_int_equal(del(NET(1)), 0);
    assert_int_equal(route_add("tcp1", gw, 1, 0), 0); /* a foreign net now */
    settle();
    pass_ms(260);
    assert_int_equal(removed, 1);
    assert_int_equal(waits->recvs, 1);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &gw));
    recv_end(recv, ok);
    settle();
    assert_int_equal(sent_last(LNET_MSG_PUT)->len, 300);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &gw));
    assert_int_equal(dest_holds(0, &to, false, LNET_POOL_SMALL), 0);
    assert_int_equal(dest_holds(0, &gw, true, LNET_POOL_SMALL), 2);
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 0);
    end_all();
    node_down();
}

/* What comes in on the net that goes: receiving, waiting, for us and for others. */
static void test_incoming(void **state)
{
    struct peer_msg *recv, *own, *waits, *credit;
    struct lnet_nid from = N("10.1.0.9@tcp1"), to = N("10.2.0.9@o2ib");

    del_up();
    loop.hold_recv = true;
    recv = arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, to, 5000));
    settle();
    waits = arrive(tcp1, N("10.1.0.8@tcp1"), hdr_of(LNET_MSG_PUT, N("10.1.0.8@tcp1"), to, 5000));
    own = arrive(tcp1, N("10.1.0.7@tcp1"),
                 hdr_put(N("10.1.0.7@tcp1"), tcp1->nid, 0, LNET_PING_MATCH_BITS, 0, 48, true));
    settle();
    credit = arrive(tcp1, from, hdr_of(LNET_MSG_ACK, from, to, 0)); /* one router credit each */
    settle();
    assert_int_equal(recv->recvs + own->recvs, 2);
    assert_int_equal(credit->recvs, 0);
    assert_int_equal(credit->in.rx.wait, LNET_RX_WAIT_CREDIT);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_true(recv->done && own->done && credit->cancelled);
    assert_true(waits->done || waits->cancelled);
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 4);
    assert_int_equal(drops_sum(), 4);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_PUT] + ni_stats(tcp1).dropped[LNET_MSG_ACK],
                     4);
    check_quiet();
    node_down();
}

/* A header that the LND had in its hands when the net went, and an answer that is to leave by it.
 */
static void test_last_header(void **state)
{
    struct lnet_nid from = N("10.1.0.9@tcp1"), to = N("10.2.0.9@o2ib");
    struct peer_msg *foreign, *ping;

    del_up();
    loop.hold_stop = tcp1;
    assert_int_equal(del(NET(1)), 0);
    foreign = arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, to, 100));
    ping = arrive(tcp1, from, hdr_ping(from, tcp1->nid));
    settle();
    assert_true(foreign->done && ping->done);
    assert_int_equal(loop.nsent, 1); /* it can still be delivered */
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 1);
    assert_int_equal(drops_sum(), 1);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_REPLY], 1);
    pass(3 * SEC);
    loop.hold_stop = NULL;
    settle();
    assert_int_equal(removed, 1);
    end_all();
    node_down();
}

/* ---- what others are told ---- */

static struct lnet_ping_info *published(void)
{
    static struct lnet_ping_info info;
    struct ping_target *t = node->ping->current;

    assert_int_equal(lnet_ping_decode(t->data, t->seg.len, &info), LNET_DROP_NONE);
    return &info;
}

/* A node that knows us: it pushes its info, and acknowledges ours. */
static struct lnet_ping_info *exchange(struct lnet_ni *ni, struct lnet_nid nid, bool push)
{
    static struct lnet_ping_info info;
    uint8_t data[256];
    uint32_t len = make_info(data, sizeof(data), nid, 0x1a, 1, 0);
    struct sent *s;

    if (push) {
        struct peer_msg *fx =
            rx_new(ni, nid, hdr_put(nid, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, false), 1);

        memcpy(fx->in.payload, data, len);
        rx_parse(fx);
        settle();
    }
    s = sent_last(LNET_MSG_PUT);
    assert_true(nid_same(&s->to, &nid));
    assert_int_equal(lnet_ping_decode(s->payload, s->len, &info), LNET_DROP_NONE);
    {
        struct lnet_hdr ack = hdr_of(LNET_MSG_ACK, nid, ni->nid, 0);
        struct lnet_ack body = {.mlength = s->len};
        struct lnet_put p;

        lnet_body_get_put(&s->hdr, &p);
        body.dst = p.ack;
        body.match_bits = p.match_bits;
        lnet_body_set_ack(&ack, &body);
        arrive(ni, nid, ack);
        settle();
    }
    return &info;
}

static void test_told(void **state)
{
    struct lnet_nid near = N("10.0.0.9@tcp"), gone = N("10.1.0.9@tcp1");
    struct lnet_ping_info *info;
    unsigned seqno, n;

    del_up();
    loop.hold_send = false;
    exchange(tcp1, gone, true);
    info = exchange(tcp0, near, true);
    assert_int_equal(info->count, 3);
    seqno = info->seqno;
    assert_int_equal(seqno, published()->seqno);
    n = sent_count(LNET_MSG_PUT);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    /* pushed at once, to who can be reached */
    assert_int_equal(sent_count(LNET_MSG_PUT), n + 1);
    info = exchange(tcp0, near, false);
    assert_int_equal(info->seqno, seqno + 1);
    assert_int_equal(info->count, 2);
    for (unsigned i = 0; i < info->count; i++)
        assert_true(nid_net(&info->ni[i].nid) != NET(1));
    assert_true(nid_same(&info->ni[0].nid, &tcp0->nid));
    assert_int_equal(info->ni[0].status, LNET_NI_UP);
    /* and told to who asks */
    arrive(tcp0, near, hdr_ping(near, tcp0->nid));
    settle();
    assert_int_equal(
        lnet_ping_decode(sent_last(LNET_MSG_REPLY)->payload, sent_last(LNET_MSG_REPLY)->len, info),
        LNET_DROP_NONE);
    assert_int_equal(info->count, 2);
    assert_int_equal(info->seqno, seqno + 1);
    /* another change reaches only those who can be reached */
    pass(40 * SEC);
    n = sent_count(LNET_MSG_PUT);
    assert_int_equal(del(ib0->net), 0);
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), n + 1);
    assert_int_equal(published()->count, 1);
    assert_int_equal(published()->seqno, seqno + 2);
    assert_int_equal(drops_sum(), 0);
    node_down();
}

/* Its status is nobody's business any more: nobody pings it, its link comes and goes. */
static void test_status(void **state)
{
    unsigned seqno, n;

    del_up();
    loop.hold_send = false;
    exchange(tcp0, N("10.0.0.9@tcp"), true);
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    exchange(tcp0, N("10.0.0.9@tcp"), false);
    ON(0, lnet_ni_link(tcp1, true)); /* still in mail when the net goes */
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    exchange(tcp0, N("10.0.0.9@tcp"), false);
    seqno = published()->seqno;
    n = loop.nsent;
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    ON(0, lnet_ni_link(tcp1, true));
    settle();
    ON(0, lnet_ni_link(tcp1, false));
    settle();
    assert_int_equal(published()->seqno, seqno);
    assert_int_equal(loop.nsent, n);
    assert_int_equal(published()->count, 2);
    /* the others' goes on: nobody pings them, so they are down after 110 s */
    pass(120 * SEC);
    assert_int_equal(published()->ni[0].status, LNET_NI_DOWN);
    assert_int_equal(published()->ni[1].status, LNET_NI_DOWN);
    node_down();
}

/* ---- what its NIDs and routes mean then ---- */

static void test_nids(void **state)
{
    struct lnet_nid from = N("10.0.0.9@tcp"), old;
    struct peer_msg *fx;

    del_up();
    loop.hold_send = false;
    old = tcp1->nid;
    assert_true(lnet_nid_is_mine(node, &old));
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, old, 10));
    assert_int_equal(fx->parse, LNET_DROP_DEST_OTHER_OWN_NID);
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, old, N("10.2.0.9@o2ib"), 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_IS_OWN), 1);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_false(lnet_nid_is_mine(node, &old));
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, old, 10));
    assert_int_equal(fx->parse, LNET_DROP_NONE);
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 1);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.0.9@tcp1"), 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 2);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, old, N("10.2.0.9@o2ib"), 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
    /* it may be a gateway's now */
    assert_int_equal(route_add("tcp1", N("10.2.0.9@o2ib"), 1, 0), 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, old, 10));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    node_down();
}

static void test_routes(void **state)
{
    struct lnet_nid from = N("10.0.0.9@tcp"), far = N("10.5.0.9@tcp5"), gw = N("10.1.0.11@tcp1"),
                    other = N("10.2.0.11@o2ib");
    struct lnet_route_conf conf = {.net = NET(6), .gateway = gw, .hops = -1};

    del_up();
    loop.hold_send = false;
    assert_int_equal(route_add("tcp5", gw, -1, 0), 0);
    settle();
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, far, 10));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, far, 10));
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_LND), 1);
    assert_int_equal(drops_sum(), 1);
    assert_int_equal(lnet_route_add(node, &conf, &err), -EHOSTUNREACH);
    /* another gateway is not mistaken for it, whoever's turn it is and whatever is preferred */
    assert_int_equal(route_add("tcp5", other, 9, 3), 0);
    for (unsigned i = 0; i < 4; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, far, 10));
        settle();
    }
    assert_int_equal(sent_count(LNET_MSG_PUT), 5);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &other));
    assert_int_equal(drops_sum(), 1);
    /* nobody can ask it how it is */
    pass(5 * SEC);
    assert_int_equal(route_del(node, NET(5), &gw, &err), 0);
    assert_int_equal(route_del(node, NET(5), &other, &err), 0);
    node_down();
}

/* Removed while its gateway is being asked, and while the answer to a ping of ours is under way. */
static void test_own_requests(void **state)
{
    struct lnet_nid dest = N("10.1.0.77@tcp1");
    int pong[2] = {0};

    del_up();
    loop.hold_send = false;
    assert_int_equal(route_add("tcp5", N("10.1.0.11@tcp1"), -1, 0), 0);
    pass(2 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    assert_int_equal(lnet_ping(node, &dest, NULL, 5000, on_pong, pong), 0);
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    assert_int_equal(del(NET(1)), 0);
    settle();
    assert_int_equal(removed, 1);
    assert_int_equal(pong[0], 0);
    pass(6 * SEC);
    assert_int_equal(pong[0], 1);
    assert_int_equal(pong[1], -ETIMEDOUT);
    pass(200 * SEC);
    assert_int_equal(sent_count(LNET_MSG_GET), 2); /* nobody to send them to */
    assert_int_equal(lnet_ping(node, &dest, NULL, 5000, on_pong, pong), 0);
    settle();
    assert_int_equal(pong[0], 2);
    assert_int_equal(pong[1], -EHOSTUNREACH);
    node_down();
}

/* ---- and the node stops ---- */

/* The node has not stopped before the net is gone, and says so in that order. */
static void test_stop_while_removing(void **state)
{
    for (unsigned how = 0; how < 2; how++) {
        int stopped = 0;

        del_up();
        put(hop(0), 100);
        put(peer_on(0, 2, "o2ib", 0), 200);
        loop.hold_stop = tcp1;
        assert_int_equal(del(NET(1)), 0);
        if (how == 1)
            settle();
        lnet_node_stop(node, 1, on_stopped, &stopped);
        pass(10 * SEC);
        assert_int_equal(stopped, 0);
        assert_int_equal(removed, 0);
        loop.hold_stop = NULL;
        settle();
        assert_int_equal(removed, 1);
        pass(3 * SEC);
        assert_int_equal(stopped, 1);
        assert_int_equal(removed, 1);
        assert_int_equal(loop.quiesced, 3);
        assert_int_equal(loop.stopping, 3);
        assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 1);
        assert_int_equal(drops_of(LNET_DROP_SHUTDOWN), 1);
        check_quiet();
        rx_free_all();
        sent_clear();
        node_gone();
    }
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_rules),
    LNET_TEST(test_all_nis),
    LNET_TEST(test_queued),
    LNET_TEST(test_queued_two_nis),
    LNET_TEST(test_many_queued),
    LNET_TEST(test_accepted),
    LNET_TEST(test_crossing),
    LNET_TEST(test_waiting_headers),
    LNET_TEST(test_waiting_headers_rerouted),
    LNET_TEST(test_incoming),
    LNET_TEST(test_last_header),
    LNET_TEST(test_told),
    LNET_TEST(test_status),
    LNET_TEST(test_nids),
    LNET_TEST(test_routes),
    LNET_TEST(test_own_requests),
    LNET_TEST(test_stop_while_removing),
};

LNET_TESTS_MAIN("test_lnet_net_del", tests)
