/* SPDX-License-Identifier: BSD-3-Clause */
/* Forwarding and admission to router buffers: docs/protocol/lnet-core.md §4.3 to §4.9. */
#include "test/unit/lnet_test.h"

#include "lib/reactor/mem_hold.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static void check_sent(const struct sent *s, const struct peer_msg *fx, const struct lnet_nid *to,
                       const struct lnet_ni *ni)
{
    assert_memory_equal(&s->hdr, &fx->in.rx.hdr, sizeof(s->hdr));
    assert_int_equal(s->len, fx->in.rx.hdr.payload_len);
    assert_memory_equal(s->payload, fx->in.payload, s->len);
    assert_true(nid_same(&s->to, to));
    assert_ptr_equal(s->ni, ni);
    assert_int_equal(s->reactor, home_of(to));
}

/* ---- every type and size, over every pair of reactors ---- */

static const uint32_t types[] = {LNET_MSG_ACK, LNET_MSG_PUT, LNET_MSG_GET, LNET_MSG_REPLY};
static const uint32_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, LNET_MAX_PAYLOAD};

/* The one message under way has a buffer of the smallest kind that holds it. */
static void check_pool_of(unsigned reactor, uint32_t len)
{
    enum lnet_pool want = len == 0      ? LNET_POOL_TINY
                          : len <= 4096 ? LNET_POOL_SMALL
                                        : LNET_POOL_LARGE;

    for (unsigned i = 0; i < LNET_POOLS; i++)
        assert_int_equal(pool_stats(reactor, i).free + (i == want), pool_stats(reactor, i).total);
}

static void forward_one(unsigned in, unsigned out, uint32_t type, uint32_t len, bool late)
{
    struct lnet_nid from = peer_on(in, 0, "tcp", 0), to = peer_on(out, 1, "tcp1", 0);
    uint64_t routed = stat_of(LNET_STAT_ROUTE_COUNT), bytes = stat_of(LNET_STAT_ROUTE_LENGTH);
    struct lnet_ni_stats in0 = ni_stats(tcp0), out0 = ni_stats(tcp1), s;
    uint64_t sends = 0, recvs = 0;
    struct peer_msg *fx;

    if (peer_find(&to))
        sends = peer_find(&to)->send_count[type];
    if (peer_find(&from))
        recvs = peer_find(&from)->recv_count[type];
    loop.hold_recv = loop.hold_send = late;
    sent_clear();
    fx = arrive(tcp0, from, hdr_of(type, from, to, len));
    assert_int_equal(fx->parse, LNET_DROP_NONE);
    assert_int_equal(fx->recvs, 1);
    assert_int_equal(fx->in.mlen, len);
    if (late) {
        settle();
        assert_int_equal(loop.nsent, 0); /* store and forward */
        recv_end(fx, ok);
        settle();
        assert_int_equal(loop.nheld, 1);
        assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), routed);
        assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 1);
        check_pool_of(fx->reactor, len);
        assert_int_equal(peer_find(&to)->tx_queued, 1);
        assert_int_equal(peer_find(&to)->tx_queued_bytes, len + 72);
        send_end_all(ok);
    }
    settle();
    assert_int_equal(loop.nsent, 1);
    check_sent(&loop.sent[0], fx, &to, tcp1);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), routed + 1);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_LENGTH), bytes + len);
    s = ni_stats(tcp0);
    assert_int_equal(s.received[type], in0.received[type] + 1);
    assert_int_equal(s.sent[type], in0.sent[type]);
    s = ni_stats(tcp1);
    assert_int_equal(s.sent[type], out0.sent[type] + 1);
    assert_int_equal(s.received[type], out0.received[type]);
    assert_int_equal(peer_find(&to)->send_count[type], sends + 1);
    assert_int_equal(peer_find(&from)->recv_count[type], recvs + 1);
    check_quiet();
}

static void test_forward(void **state)
{
    node_up(opts_default());
    for (unsigned in = 0; in < nreactors; in++)
        for (unsigned out = 0; out < nreactors; out++)
            for (unsigned t = 0; t < 4; t++)
                for (unsigned n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++)
                    for (unsigned late = 0; late < 2; late++)
                        if (sizes[n] == 0 || types[t] == LNET_MSG_PUT || types[t] == LNET_MSG_REPLY)
                            forward_one(in, out, types[t], sizes[n], late);
    assert_int_equal(drops_sum(), 0);
    assert_int_equal(stat_of(LNET_STAT_SEND_COUNT), 0);
    assert_int_equal(stat_of(LNET_STAT_RECV_COUNT), 0);
    node_down();
}

/* The other net type, a 16-byte destination, and accepted before done. */
static void test_forward_accepted(void **state)
{
    struct lnet_nid from, to;
    struct peer_msg *fx;

    node_up(opts_default());
    from = peer_on(1, 0, "tcp", 0);
    to = N("fd00::99@o2ib");
    loop.hold_send = loop.accept_only = true;
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 300));
    settle();
    check_sent(&loop.sent[0], fx, &to, ib0);
    assert_int_equal(peer_find(&to)->tx_queued, 0);
    assert_int_equal(peer_find(&to)->tx_queued_bytes, 0);
    assert_int_equal(pool_stats(fx->reactor, LNET_POOL_SMALL).free,
                     pool_stats(fx->reactor, LNET_POOL_SMALL).total - 1);
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

/* ---- failures ---- */

static void test_failed_sends(void **state)
{
    static const enum lnet_drop reasons[] = {LNET_DROP_NEXT_HOP_DOWN, LNET_DROP_NEXT_HOP_LOST,
                                             LNET_DROP_NEXT_HOP_TIMEOUT,
                                             LNET_DROP_LARGE_NID_ON_NID4, LNET_DROP_SHUTDOWN};

    node_up(opts_default());
    for (unsigned out = 0; out < nreactors; out++)
        for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
            for (unsigned late = 0; late < 2; late++) {
                struct lnet_nid from = peer_on(0, 0, "tcp", 0), to = peer_on(out, 1, "tcp1", 0);
                uint64_t n = drops_of(reasons[i]), all = drops_sum();
                uint64_t count = stat_of(LNET_STAT_DROP_COUNT);
                uint64_t length = stat_of(LNET_STAT_DROP_LENGTH);
                struct lnet_ni_stats s1 = ni_stats(tcp1), s0 = ni_stats(tcp0);
                uint64_t pd = peer_find(&to) ? peer_find(&to)->drop_count[LNET_MSG_PUT] : 0;

                loop.hold_send = late;
                loop.send_result = (struct lnet_result){reasons[i], LNET_HEALTH_REMOTE_ERROR};
                arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 5000));
                settle();
                if (late)
                    send_end_all(loop.send_result);
                settle();
                assert_int_equal(drops_of(reasons[i]), n + 1);
                assert_int_equal(drops_sum(), all + 1);
                assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), count + 1);
                assert_int_equal(stat_of(LNET_STAT_DROP_LENGTH), length + 5000);
                assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 0);
                assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_PUT],
                                 s1.dropped[LNET_MSG_PUT] + 1);
                assert_int_equal(ni_stats(tcp1).sent[LNET_MSG_PUT], 0);
                assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_PUT], s0.dropped[LNET_MSG_PUT]);
                assert_int_equal(peer_find(&to)->drop_count[LNET_MSG_PUT], pd + 1);
                check_quiet();
            }
    loop.send_result = ok;
    node_down();
}

/* The connection ends in the middle of the payload. */
static void test_failed_receive(void **state)
{
    node_up(opts_default());
    for (unsigned in = 0; in < nreactors; in++) {
        struct lnet_nid from = peer_on(in, 0, "tcp", 0);
        struct peer_msg *fx;

        loop.hold_recv = true;
        fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.0.9@tcp1"), 5000));
        recv_end(fx, (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR});
        settle();
        assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), in + 1);
        assert_int_equal(drops_sum(), in + 1);
        assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_PUT], in + 1);
        assert_int_equal(ni_stats(tcp0).received[LNET_MSG_PUT], 0);
        assert_int_equal(peer_find(&from)->drop_count[LNET_MSG_PUT], 1);
        check_quiet();
    }
    /* Of a message that is thrown away anyway: still one drop, under its own name. */
    {
        struct lnet_nid from = peer_on(0, 0, "tcp", 0);
        struct peer_msg *fx =
            arrive(tcp0, from, hdr_of(LNET_MSG_PUT, N("10.7.0.1@tcp7"), N("10.1.0.9@tcp1"), 50));

        recv_end(fx, (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR});
        assert_int_equal(drops_of(LNET_DROP_SRC_NOT_ALLOWED), 1);
        assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), nreactors);
    }
    assert_int_equal(loop.nsent, 0);
    node_down();
}

/* No room in the peer table for the next hop. */
static void test_no_peer_memory(void **state)
{
    struct lnet_nid from, to;
    unsigned home;
    struct lnet_peer_ni *p[512];
    unsigned n = 0;

    node_up(opts_default());
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(nreactors - 1, 1, "tcp1", 0);
    home = home_of(&to);
    for (unsigned i = 0;; i++) {
        struct lnet_nid nid = peer_on(home, 3, "tcp", i);

        ON(home, p[n] = lnet_peer_ni_get(node, &nid));
        if (!p[n])
            break;
        n++;
        if (home == home_of(&from) && n == 1) /* the sender has its place */
            ON(home, p[n++] = lnet_peer_ni_get(node, &from));
    }
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 50));
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_PEER_MEMORY), 1);
    assert_int_equal(drops_sum(), 1);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_PUT], 1);
    assert_int_equal(loop.nsent, 0);
    for (unsigned i = 0; i < n; i++)
        ON(home, lnet_peer_ni_put(p[i]));
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 50));
    settle();
    assert_int_equal(loop.nsent, 1);
    assert_int_equal(loop.peers_freed, 1); /* one idle peer NI made room */
    node_down();
}

/* ---- segments that the ingress LND hands over ---- */

static void test_take(void **state)
{
    struct lnet_nid from, to;
    struct peer_msg *fx;

    node_up(opts_default());
    tcp0->rx_take = true;
    from = peer_on(0, 0, "tcp", 0);
    to = peer_on(1, 1, "tcp1", 0);
    for (unsigned late = 0; late < 2; late++) {
        sent_clear();
        loop.hold_send = late;
        fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 100000));
        settle();
        check_sent(&loop.sent[0], fx, &to, tcp1);
        assert_int_equal(fx->releases, !late);
        assert_int_equal(node->shard[0]->credit->pool[LNET_POOL_LARGE].mem.nfree,
                         node->shard[0]->credit->pool[LNET_POOL_LARGE].total);
        assert_int_equal(pool_stats(0, LNET_POOL_LARGE).free,
                         pool_stats(0, LNET_POOL_LARGE).total - late);
        send_end_all(ok);
        settle();
        assert_int_equal(fx->releases, 1);
        check_quiet();
    }
    loop.hold_send = false;
    /* no route: nothing is taken */
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.9.0.9@tcp9"), 500));
    settle();
    assert_int_equal(fx->in.mlen, 0);
    assert_int_equal(fx->releases, 0);
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 1);
    /* the next hop fails: received, dropped, released */
    loop.send_result = (struct lnet_result){LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR};
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    settle();
    assert_int_equal(fx->releases, 1);
    loop.send_result = ok;
    /* failed after a part had come */
    loop.recv_result = (struct lnet_result){LNET_DROP_RX_INCOMPLETE, LNET_HEALTH_REMOTE_ERROR};
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 500));
    settle();
    assert_int_equal(fx->releases, 1);
    loop.recv_result = ok;
    /* a discarded one and an empty one take nothing */
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, N("10.7.0.1@tcp7"), to, 500));
    settle();
    assert_int_equal(fx->releases, 0);
    fx = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 0));
    settle();
    assert_int_equal(fx->releases, 0);
    check_quiet();
    node_down();
}

/* ---- admission ---- */

#define NRX 12

/* Each message has a next hop of its own: no share comes into it. All on one reactor, so that they
 * are sent in the order they come. */
static unsigned hops_on;

static struct lnet_nid next_hop(unsigned i)
{
    return peer_on(hops_on, 1, "tcp1", i);
}

static struct lnet_hdr put_to(struct lnet_nid from, unsigned next, uint32_t len)
{
    return hdr_of(LNET_MSG_PUT, from, next_hop(next), len);
}

static void check_forwarded(unsigned sent, const struct peer_msg *fx, unsigned next)
{
    struct lnet_nid to = next_hop(next);

    check_sent(&loop.sent[sent], fx, &to, tcp1);
}

/* Fills the small pool of reactor 0 with sends held on reactor `on`; fx[0..total-1] are in, the
 * rest waits. */
static void fill_small(struct peer_msg *fx[NRX], unsigned on)
{
    unsigned i, total = pool_stats(0, LNET_POOL_SMALL).total;

    hops_on = on;
    assert_true(total < NRX);
    loop.hold_send = true;
    for (i = 0; i < NRX; i++) {
        struct lnet_nid from = peer_on(0, 0, "tcp", i);

        fx[i] = arrive(tcp0, from, put_to(from, i, 1000 + i));
        assert_int_equal(fx[i]->parse, LNET_DROP_NONE);
        settle();
        assert_int_equal(fx[i]->recvs, i < total);
    }
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).free, 0);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).low, (int)total - NRX);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).waiting, NRX - total);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).waited, NRX - total);
}

static void test_wait_in_order(void **state)
{
    struct peer_msg *fx[NRX], *tiny, *large;
    struct lnet_nid from, to;
    unsigned total;

    node_up(opts_default());
    total = pool_stats(0, LNET_POOL_SMALL).total;
    from = peer_on(0, 0, "tcp", 40);
    fill_small(fx, 1);
    to = next_hop(20);
    /* other pools are not behind it */
    tiny = arrive(tcp0, from, hdr_of(LNET_MSG_GET, from, to, 0));
    large = arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 5000));
    settle();
    assert_int_equal(tiny->recvs, 1);
    assert_int_equal(large->recvs, 1);
    /* each buffer that comes free goes to the one that has waited longest */
    for (unsigned i = total; i < NRX; i++) {
        assert_int_equal(fx[i]->recvs, 0);
        send_end(loop.held[0], ok);
        settle();
        assert_int_equal(fx[i]->recvs, 1);
        if (i + 1 < NRX)
            assert_int_equal(fx[i + 1]->recvs, 0);
    }
    send_end_all(ok);
    settle();
    assert_int_equal(loop.nsent, NRX + 2);
    for (unsigned i = 0; i < total; i++) /* in the order of arrival, through and through */
        check_forwarded(i, fx[i], i);
    for (unsigned i = total; i < NRX; i++)
        check_forwarded(i + 2, fx[i], i);
    assert_int_equal(drops_sum(), 0);
    check_quiet();
    node_down();
}

/* Those that wait for one next hop go in the order they came, all types and sizes alike. */
static void test_wait_in_order_of_one(void **state)
{
    struct peer_msg *fx[NRX], *one[NRX];
    unsigned n = 0, total;

    node_up(opts_default());
    total = pool_stats(0, LNET_POOL_SMALL).total;
    fill_small(fx, 1);
    for (unsigned i = total; i < NRX; i++)
        assert_true(rx_cancel(fx[i]));
    for (unsigned i = 0; i < NRX; i++) {
        struct lnet_nid from = peer_on(0, 0, "tcp", NRX - i);

        one[i] = arrive(tcp0, from, put_to(from, 30, 1 + 300 * i));
        one[i]->in.rx.hdr.type = i & 1 ? LNET_MSG_REPLY : LNET_MSG_PUT;
        settle();
        assert_int_equal(one[i]->recvs, 0);
    }
    while (n < NRX) {
        assert_true(loop.nheld > 0);
        send_end(loop.held[0], ok);
        settle();
        for (unsigned i = 0; i < NRX; i++)
            assert_true(one[i]->recvs == 1 || i + 1 == NRX || one[i + 1]->recvs == 0);
        for (n = 0; n < NRX && one[n]->recvs == 1; n++)
            ;
    }
    send_end_all(ok);
    settle();
    assert_int_equal(loop.nsent, total + NRX);
    for (unsigned i = 0; i < NRX; i++)
        check_forwarded(total + i, one[i], 30);
    check_quiet();
    node_down();
}

/* Several buffers come free before the waiters are served, and a served connection brings its next
 * header at once: no one is forgotten. */
static void test_wake_all(void **state)
{
    struct peer_msg *fx[NRX], *more[NRX];
    unsigned total;

    node_up(opts_default());
    total = pool_stats(0, LNET_POOL_SMALL).total;
    fill_small(fx, 0);
    for (unsigned i = 0; i < NRX; i++) {
        more[i] = rx_new(tcp0, fx[i]->in.from, fx[i]->in.rx.hdr, i);
        if (i >= total)
            fx[i]->again = more[i];
    }
    while (loop.nheld > 0)
        send_end(loop.held[0], ok); /* no step in between */
    settle();
    /* All that waited have gone on. Who waits now is the second for its next hop, which may hold
     * fewer than half of what is free. */
    for (unsigned i = 0; i < NRX; i++)
        assert_int_equal(fx[i]->recvs, 1);
    assert_true(pool_stats(0, LNET_POOL_SMALL).waiting == 0 ||
                pool_stats(0, LNET_POOL_SMALL).free <= 2);
    loop.hold_send = false;
    send_end_all(ok);
    settle();
    assert_int_equal(loop.nsent, NRX + (NRX - total));
    for (unsigned i = 0; i < NRX; i++)
        assert_true(fx[i]->done && (i < total || more[i]->done));
    check_quiet();
    node_down();
}

static void test_wait_expires(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct peer_msg *fx[NRX], *late;
    struct lnet_nid from;
    unsigned total;

    o.buffer_wait = 3;
    node_up(o);
    total = pool_stats(0, LNET_POOL_SMALL).total;
    from = peer_on(0, 0, "tcp", 40);
    fill_small(fx, 1);
    clock_us += 1 * SEC;
    settle();
    late = arrive(tcp0, from, put_to(from, 20, 7));
    clock_us += 2 * SEC - 2000;
    settle();
    assert_int_equal(drops_sum(), 0);
    clock_us += 4000;
    settle();
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), NRX - total);
    assert_int_equal(drops_sum(), NRX - total);
    for (unsigned i = total; i < NRX; i++) {
        assert_int_equal(fx[i]->recvs, 1);
        assert_int_equal(fx[i]->in.mlen, 0); /* read and thrown away */
        assert_true(fx[i]->done);
    }
    assert_int_equal(late->recvs, 0);
    clock_us += 1 * SEC;
    settle();
    assert_int_equal(late->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), NRX - total + 1);
    assert_int_equal(ni_stats(tcp0).dropped[LNET_MSG_PUT], NRX - total + 1);
    assert_int_equal(stat_of(LNET_STAT_DROP_COUNT), NRX - total + 1);
    assert_false(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    send_end_all(ok);
    settle();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), total);
    check_quiet();
    node_down();
}

/* What lies behind a message that waited in vain has waited as long: it is not made to wait again,
 * or a 2.15 node would miss its ZC-ACK (socklnd.md §6.5). Other connections wait as ever. */
static void test_behind_expired(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct peer_msg *fx[NRX], *other;
    struct lnet_nid from;
    unsigned total, dropped;

    o.buffer_wait = 3;
    node_up(o);
    total = pool_stats(0, LNET_POOL_SMALL).total;
    from = peer_on(0, 0, "tcp", 40);
    fill_small(fx, 1);
    clock_us += 3 * SEC + 2000;
    settle();
    dropped = NRX - total;
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), dropped);
    for (unsigned i = 0; i < 5; i++) {
        next_on(fx[total]);
        settle();
        assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), ++dropped);
        assert_int_equal(fx[total]->in.mlen, 0);
    }
    other = arrive(tcp0, from, put_to(from, 20, 7));
    settle();
    assert_int_equal(other->recvs, 0);
    /* later on it may wait again */
    clock_us += 1 * SEC;
    next_on(fx[total]);
    settle();
    assert_int_equal(fx[total]->recvs, 0);
    /* and takes what has come free */
    send_end(loop.held[0], ok);
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(other->recvs, 1);
    assert_int_equal(fx[total]->recvs, 1);
    assert_int_equal(drops_of(LNET_DROP_BUFFER_WAIT), dropped);
    send_end_all(ok);
    settle();
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

static void test_cancel(void **state)
{
    struct peer_msg *fx[NRX], *extra;
    struct lnet_nid from;
    unsigned total;

    node_up(opts_default());
    total = pool_stats(0, LNET_POOL_SMALL).total;
    from = peer_on(0, 0, "tcp", 41);
    fill_small(fx, 1);
    /* being received: no */
    assert_false(rx_cancel(fx[0]));
    /* last, middle and first of the queue: yes, once each */
    assert_true(rx_cancel(fx[NRX - 1]));
    assert_true(rx_cancel(fx[total + 1]));
    assert_true(rx_cancel(fx[total]));
    ON(0, assert_false(lnet_rx_cancel(&fx[total]->in.rx)));
    assert_int_equal(drops_of(LNET_DROP_RX_INCOMPLETE), 3);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).waiting, NRX - total - 3);
    extra = arrive(tcp0, from, put_to(from, 20, 9));
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(fx[total]->recvs, 0);
    assert_int_equal(NRX - total, 4);
    assert_int_equal(fx[total + 2]->recvs, 1); /* the one that was left */
    assert_int_equal(extra->recvs, 0);
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(extra->recvs, 1);
    send_end_all(ok);
    settle();
    /* a local message is never forgotten: its answer comes */
    extra = arrive(tcp0, from, hdr_ping(from, tcp0->nid));
    if (nreactors > 1)
        settle();
    assert_false(rx_cancel(extra));
    settle();
    loop.hold_send = false;
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

/* A buffer is free but promised: who comes now waits behind those who wait. */
static void test_no_overtaking(void **state)
{
    struct peer_msg *fx[NRX], *late;
    struct lnet_nid from;
    unsigned total;

    node_up(opts_default());
    total = pool_stats(0, LNET_POOL_SMALL).total;
    from = peer_on(0, 0, "tcp", 40);
    fill_small(fx, 0);
    send_end(loop.held[0], ok);
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).free, 1);
    late = arrive(tcp0, from, put_to(from, 20, 7));
    assert_int_equal(late->recvs, 0);
    settle();
    assert_int_equal(fx[total]->recvs, 1);
    assert_int_equal(late->recvs, 0);
    /* the connections of all that wait are closed: nothing is left of the waiting */
    for (unsigned i = total + 1; i < NRX; i++)
        assert_true(rx_cancel(fx[i]));
    assert_true(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    assert_true(rx_cancel(late));
    assert_false(reactor_timer_armed(&node->shard[0]->credit->wait_timer));
    send_end_all(ok);
    settle();
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), total + 1);
    node_down();
}

/* Takes away all, gives back all, over and over: nothing is lost or doubled. */
static void test_mixed_load(void **state)
{
    struct lnet_nid from[6], to[6];
    uint64_t rnd = 88172645463325252ull;
    unsigned n = 0;

    node_up(opts_default());
    for (unsigned i = 0; i < 6; i++) {
        from[i] = peer_on(i % nreactors, 0, "tcp", i);
        to[i] = peer_on((i + i / 3) % nreactors, 1, "tcp1", i);
    }
    for (unsigned i = 0; i < 3000; i++) {
        struct peer_msg *fx;

        rnd ^= rnd << 13;
        rnd ^= rnd >> 7;
        rnd ^= rnd << 17;
        loop.hold_send = rnd & 1;
        loop.hold_recv = rnd >> 1 & 1;
        if ((rnd >> 2 & 3) == 0 && loop.nheld > 0) {
            send_end(loop.held[(rnd >> 8) % loop.nheld], ok);
        } else if ((rnd >> 2 & 3) == 1) {
            for (fx = loop.rxs; fx; fx = fx->next)
                if (rx_open(fx) && fx->recvs) {
                    recv_end(fx, ok);
                    break;
                }
        } else {
            unsigned f = (rnd >> 8) % 6, t = (rnd >> 12) % 6;

            arrive(tcp0, from[f],
                   hdr_of(rnd >> 20 & 1 ? LNET_MSG_PUT : LNET_MSG_REPLY, from[f], to[t],
                          (rnd >> 24) % 10000));
            n++;
        }
        if (rnd >> 40 & 1)
            settle();
    }
    loop.hold_recv = loop.hold_send = false;
    for (unsigned i = 0; i < 1000 && stat_of(LNET_STAT_ROUTE_COUNT) < n; i++) {
        struct peer_msg *fx;

        for (fx = loop.rxs; fx; fx = fx->next)
            if (rx_open(fx) && fx->recvs)
                recv_end(fx, ok);
        send_end_all(ok);
        settle();
    }
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), n);
    assert_int_equal(loop.nsent, n);
    assert_int_equal(drops_sum(), 0);
    check_quiet();
    node_down();
}

/* A transport that sends by reference is through with a message, well or badly, while frames still
 * refer to its buffer: that is in use until the last of them has gone. */
static void hold_one(unsigned in, unsigned out, uint32_t len, struct lnet_result result)
{
    struct lnet_nid from = peer_on(in, 0, "tcp", 0), to = peer_on(out, 1, "tcp1", 0);
    struct lnet_shard *s = node->shard[in];
    struct rte_mbuf_ext_shared_info *info;
    const struct mem_seg *seg;

    loop.hold_send = true;
    sent_clear();
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, len));
    settle();
    assert_int_equal(loop.nheld, 1);
    seg = loop.held[0]->payload.seg;
    assert_int_equal(mem_region_get(seg->region)->part, MEM_LANDING);
    info = mem_hold_of(seg->region, seg->addr, seg->len);
    assert_non_null(info);
    rte_mbuf_ext_refcnt_update(info, 1);
    send_end_all(result);
    settle();
    for (unsigned i = 0; i < 5; i++) {
        pass(2000);
        assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 1);
        assert_int_equal(STAILQ_FIRST(&s->tx->held)->state, LNET_MSG_HELD);
        check_pool_of(in, len);
    }
    /* Others go on meanwhile, over other buffers. */
    loop.hold_send = false;
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, len));
    settle();
    assert_int_equal(loop.nsent, 2);
    check_pool_of(in, len);
    rte_mbuf_ext_refcnt_update(info, -1);
    pass(2000);
    assert_true(STAILQ_EMPTY(&s->tx->held));
    check_quiet();
}

static void test_frames_refer(void **state)
{
    static const struct lnet_result lost = {LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_LOCAL_ERROR};
    struct lnet_node_opts opts = opts_default();

    opts.large = 5 * nreactors;
    node_up(opts);
    tcp1->tx_refers = true;
    for (unsigned in = 0; in < nreactors; in++)
        for (unsigned out = 0; out < nreactors; out++) {
            hold_one(in, out, 1, ok);
            hold_one(in, out, 4096, lost);
            hold_one(in, out, LNET_MAX_PAYLOAD, ok);
        }
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 5 * nreactors * nreactors);
    node_down();
}

/* The node is no more while a frame still refers to a buffer: its memory stays as it is, nobody
 * else gets it, and the count that the frame gives back is still there. */
static void test_frames_outlive_node(void **state)
{
    struct rte_mbuf_ext_shared_info *info;
    struct mem_seg seg;

    node_up(opts_default());
    seg = (struct mem_seg){.region = node->shard[0]->credit->pool[LNET_POOL_LARGE].mem.region,
                           .addr = node->shard[0]->credit->pool[LNET_POOL_LARGE].mem.base,
                           .len = LNET_MAX_PAYLOAD};
    info = mem_hold_of(seg.region, seg.addr, seg.len);
    rte_mbuf_ext_refcnt_update(info, 1);
    node_down();
    node_up(opts_default());
    assert_ptr_not_equal(node->shard[0]->credit->pool[LNET_POOL_LARGE].mem.base, seg.addr);
    assert_true(mem_held(seg.region, seg.addr, seg.len));
    rte_mbuf_ext_refcnt_update(info, -1);
    node_down();
    node_up(opts_default()); /* now it is looked at, and free for the next */
    node_down();
    node_up(opts_default());
    assert_ptr_equal(node->shard[0]->credit->pool[LNET_POOL_LARGE].mem.base, seg.addr);
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_forward),        LNET_TEST(test_forward_accepted),
    LNET_TEST(test_failed_sends),   LNET_TEST(test_failed_receive),
    LNET_TEST(test_no_peer_memory), LNET_TEST(test_take),
    LNET_TEST(test_wait_in_order),  LNET_TEST(test_wait_in_order_of_one),
    LNET_TEST(test_wake_all),       LNET_TEST(test_wait_expires),
    LNET_TEST(test_behind_expired), LNET_TEST(test_cancel),
    LNET_TEST(test_no_overtaking),  LNET_TEST(test_mixed_load),
    LNET_TEST(test_frames_refer),   LNET_TEST(test_frames_outlive_node),
};

LNET_TESTS_MAIN("test_lnet_forward", tests)
