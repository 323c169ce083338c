/* SPDX-License-Identifier: BSD-3-Clause */
/* Send side credits: docs/protocol/lnet-core.md §4.5, §4.6, §5.1. */
#include <errno.h>

#include "test/unit/lnet_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};
static const struct lnet_result down = {LNET_DROP_NEXT_HOP_DOWN, LNET_HEALTH_REMOTE_ERROR};

/* Next hops are on tcp1, which has few credits; senders on tcp, buffers and router credits are no
 * matter. */
static void credits_up(int credits, int peer_credits)
{
    struct lnet_node_opts o = opts_default();

    o.tiny = 8192 * nreactors;
    o.egress_share = 100;
    node_make(o);
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add_with("10.1.0.1@tcp1", credits, peer_credits, -1);
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
    loop.hold_send = true;
}

/* An ACK from the s-th sender to the k-th next hop of a reactor; its match bits are `tag`. */
static void ack_to(unsigned reactor, unsigned k, unsigned tag)
{
    struct lnet_nid from = peer_on(tag, 0, "tcp", tag % 16), to = peer_on(reactor, 1, "tcp1", k);
    struct lnet_hdr h = hdr_of(LNET_MSG_ACK, from, to, 0);
    struct lnet_ack ack = {.match_bits = tag};

    lnet_body_set_ack(&h, &ack);
    arrive(tcp0, from, h);
    settle();
}

static unsigned tag_of(const struct lnet_hdr *h)
{
    struct lnet_ack ack;

    lnet_body_get_ack(h, &ack);
    return (unsigned)ack.match_bits;
}

/* The i-th message that the LND got. */
static unsigned sent_tag(unsigned i)
{
    assert_true(i < loop.nsent);
    return tag_of(&loop.sent[i].hdr);
}

static struct lnet_msg *held_tagged(unsigned tag)
{
    for (unsigned i = 0; i < loop.nheld; i++)
        if (loop.held[i]->hdr.type == LNET_MSG_ACK && tag_of(&loop.held[i]->hdr) == tag)
            return loop.held[i];
    fail_msg("message %u is not with the LND", tag);
    abort();
}

static void end(unsigned tag)
{
    send_end(held_tagged(tag), ok);
    settle();
}

static const struct lnet_peer_ni *hop(unsigned reactor, unsigned k)
{
    struct lnet_nid nid = peer_on(reactor, 1, "tcp1", k);
    const struct lnet_peer_ni *p = peer_find(&nid);

    assert_non_null(p);
    return p;
}

/* tcp1's on a reactor. */
static const struct lnet_tx_queue *tq(unsigned reactor)
{
    return &node->shard[reactor % nreactors]->tx->tq[tcp1->index];
}

static void check_credits(const struct lnet_credits *c, int max, int now, int min, unsigned waited)
{
    assert_int_equal(c->max, max);
    assert_int_equal(c->now, now);
    assert_int_equal(c->min, min);
    assert_int_equal(c->waited, waited);
}

static void check_ni(const struct lnet_ni *ni, int max, int now, int min, unsigned waited,
                     unsigned waiting)
{
    struct lnet_credits c;
    uint32_t w;

    lnet_ni_credits_get(node, ni->index, &c, &w);
    check_credits(&c, max, now, min, waited);
    assert_int_equal(w, waiting);
}

/* ---- how many ---- */

static void test_ni_credits(void **state)
{
    static const struct {
        int credits, peer_credits;
        int each[4]; /* with 1..4 reactors */
    } cases[] = {
        {256, 8, {256, 128, 85, 64}}, /* tcp, o2ib */
        {512, 16, {512, 256, 170, 128}},
        {64, 8, {64, 64, 64, 64}}, /* never below that of eight peers, or all */
        {100, 8, {100, 64, 64, 64}},
        {120, 8, {120, 64, 64, 64}},
        {1000, 1, {1000, 500, 333, 250}},
        {8, 8, {8, 8, 8, 8}},
        {1, 1, {1, 1, 1, 1}},
    };
    unsigned i, r;

    assert_in_range(nreactors, 1, 4);
    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int each = cases[i].each[nreactors - 1];

        credits_up(cases[i].credits, cases[i].peer_credits);
        check_ni(tcp1, each * (int)nreactors, each * (int)nreactors, each * (int)nreactors, 0, 0);
        for (r = 0; r < nreactors; r++) {
            const struct lnet_credits *c = &node->shard[r]->tx->tq[tcp1->index].credits;

            check_credits(c, each, each, each, 0);
            ack_to(r, 0, r);
            check_credits(&hop(r, 0)->tx, cases[i].peer_credits, cases[i].peer_credits - 1,
                          cases[i].peer_credits - 1, 0);
            check_credits(c, each, each - 1, each - 1, 0);
        }
        check_ni(tcp1, each * (int)nreactors, (each - 1) * (int)nreactors,
                 (each - 1) * (int)nreactors, 0, 0);
        send_end_all(ok);
        settle();
        check_ni(tcp1, each * (int)nreactors, each * (int)nreactors, (each - 1) * (int)nreactors, 0,
                 0);
        check_quiet();
        node_down();
    }
}

/* ---- peer tx credits ---- */

static void test_peer_credits(void **state)
{
    for (unsigned r = 0; r < nreactors; r++) {
        credits_up(64, 3);
        for (unsigned i = 0; i < 10; i++)
            ack_to(r, 0, i);
        assert_int_equal(loop.nsent, 3);
        check_credits(&hop(r, 0)->tx, 3, -7, -7, 7);
        assert_int_equal(hop(r, 0)->tx_queued, 10);
        assert_int_equal(hop(r, 0)->tx_queued_bytes, 10 * 72);
        /* they hold no NI credit */
        assert_int_equal(tq(r)->credits.now, tq(r)->credits.max - 3);
        /* another next hop is not behind them */
        ack_to(r, 1, 100);
        assert_int_equal(loop.nsent, 4);
        assert_int_equal(sent_tag(3), 100);
        end(100);
        /* one for one, in order, whichever comes back */
        end(1);
        assert_int_equal(sent_tag(4), 3);
        end(3);
        assert_int_equal(sent_tag(5), 4);
        end(0);
        assert_int_equal(sent_tag(6), 5);
        assert_int_equal(loop.nsent, 7);
        check_credits(&hop(r, 0)->tx, 3, -4, -7, 7);
        assert_int_equal(hop(r, 0)->tx_queued, 7);
        /* who comes now waits behind those who wait */
        ack_to(r, 0, 10);
        for (unsigned i = 2; i < 8; i++) {
            static const unsigned next[] = {2, 4, 5, 6, 7, 8};

            end(next[i - 2]);
            if (i + 4 <= 10)
                assert_int_equal(sent_tag(i + 5), i + 4);
        }
        check_credits(&hop(r, 0)->tx, 3, 1, -7, 8);
        send_end_all(ok);
        settle();
        check_credits(&hop(r, 0)->tx, 3, 3, -7, 8);
        assert_int_equal(loop.nsent, 12);
        assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 12);
        assert_int_equal(drops_sum(), 0);
        check_quiet();
        node_down();
    }
}

/* Credits return when the LND accepts, the sender's router credit too; the buffer when it is done.
 */
static void test_accepted(void **state)
{
    struct lnet_msg *first;
    struct lnet_nid from;

    credits_up(64, 1);
    for (unsigned i = 0; i < 3; i++)
        ack_to(1, 0, i);
    first = held_tagged(0);
    from = first->hdr.src_nid;
    assert_int_equal(loop.nsent, 1);
    ON(first->tx_peer->shard->index, lnet_send_accepted(first));
    settle();
    assert_int_equal(loop.nsent, 2);
    assert_int_equal(hop(1, 0)->tx_queued, 2);
    assert_int_equal(tq(1)->credits.now, tq(1)->credits.max - 1);
    check_credits(&hop(1, 0)->tx, 1, -1, -2, 2);
    assert_int_equal(peer_find(&from)->rtr.now, 1024);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 3);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 0);
    end(0); /* nothing returns twice */
    assert_int_equal(loop.nsent, 2);
    check_credits(&hop(1, 0)->tx, 1, -1, -2, 2);
    assert_int_equal(tq(1)->credits.now, tq(1)->credits.max - 1);
    assert_int_equal(peer_find(&from)->rtr.now, 1024);
    assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 2);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    /* accepted and then failed: dropped, and not sent again */
    first = held_tagged(1);
    ON(first->tx_peer->shard->index, lnet_send_accepted(first));
    assert_int_equal(loop.nsent, 3);
    send_end(first, (struct lnet_result){LNET_DROP_NEXT_HOP_LOST, LNET_HEALTH_REMOTE_DROPPED});
    end(2);
    assert_int_equal(loop.nsent, 3);
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), 1);
    check_quiet();
    /* an LND that accepts all at once is never waited for */
    loop.accept_only = true;
    for (unsigned i = 0; i < 50; i++)
        ack_to(1, 0, i);
    assert_int_equal(loop.nsent, 53);
    assert_int_equal(hop(1, 0)->tx.waited, 2);
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

/* ---- NI tx credits ---- */

/* 4 credits of the NI on each reactor; 2 of each peer. */
static void test_ni_queue(void **state)
{
    unsigned n = 0;
    int low;

    for (unsigned r = 0; r < nreactors; r++) {
        credits_up(4, 2);
        for (unsigned k = 0; k < 5; k++) /* tags 00, 01, 10, 11, … */
            for (unsigned i = 0; i < 2; i++)
                ack_to(r, k, 10 * k + i);
        assert_int_equal(loop.nsent, 4);
        for (unsigned k = 0; k < 5; k++) /* those that wait for the NI have their peer credit */
            check_credits(&hop(r, k)->tx, 2, 0, 0, 0);
        check_ni(tcp1, 4 * (int)nreactors, 4 * (int)nreactors - 10, 4 * (int)nreactors - 10, 6, 6);
        /* another reactor has its own, another NI too */
        if (nreactors > 1) {
            ack_to(r + 1, 0, 200);
            assert_int_equal(sent_tag(4), 200);
            end(200);
        }
        low = 4 * (int)nreactors - 10 - (nreactors > 1); /* the sum over the reactors */
        n = loop.nsent;
        /* in the order they came, whoever returns one */
        end(10);
        assert_int_equal(sent_tag(n), 20);
        end(0);
        assert_int_equal(sent_tag(n + 1), 21);
        end(20);
        assert_int_equal(sent_tag(n + 2), 30);
        /* one that gets its peer credit now waits behind all that have theirs */
        ack_to(r, 4, 42);
        check_credits(&hop(r, 4)->tx, 2, -1, -1, 1);
        end(30);
        end(1);
        assert_int_equal(sent_tag(n + 3), 31);
        assert_int_equal(sent_tag(n + 4), 40);
        end(11);
        assert_int_equal(sent_tag(n + 5), 41);
        check_ni(tcp1, 4 * (int)nreactors, 4 * (int)nreactors - 4, low, 6, 0);
        end(40); /* both its credits go to 42, which never waits at the NI */
        assert_int_equal(sent_tag(n + 6), 42);
        assert_int_equal(loop.nsent, n + 7);
        check_ni(tcp1, 4 * (int)nreactors, 4 * (int)nreactors - 4, low, 6, 0);
        send_end_all(ok);
        settle();
        check_ni(tcp1, 4 * (int)nreactors, 4 * (int)nreactors, low, 6, 0);
        assert_int_equal(loop.nsent, n + 7);
        assert_int_equal(drops_sum(), 0);
        check_quiet();
        node_down();
    }
}

/* A message takes its peer credit first, and keeps it while it waits for the NI's. */
static void test_both_queues(void **state)
{
    credits_up(2, 1);
    ack_to(0, 0, 0);
    ack_to(0, 1, 10);
    ack_to(0, 2, 20); /* waits for the NI */
    ack_to(0, 0, 1);  /* waits for its peer */
    ack_to(0, 2, 21); /* waits for its peer, which waits for the NI */
    assert_int_equal(loop.nsent, 2);
    check_credits(&hop(0, 0)->tx, 1, -1, -1, 1);
    check_credits(&hop(0, 2)->tx, 1, -1, -1, 1);
    end(0);
    assert_int_equal(sent_tag(2), 20);
    assert_int_equal(loop.nsent, 3); /* 1 has its peer credit and is at the NI now */
    check_credits(&hop(0, 0)->tx, 1, 0, -1, 1);
    assert_int_equal(tq(0)->credits.now, -1);
    end(20);
    assert_int_equal(sent_tag(3), 1);
    assert_int_equal(loop.nsent, 4); /* and 21 too */
    end(10);
    assert_int_equal(sent_tag(4), 21);
    for (unsigned i = 0; i < 3; i++)
        assert_true(hop(0, i)->tx.now <= 1);
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

/* What each peer NI shows of itself. */
static unsigned rows_seen;

static void on_rows(void *arg, const struct lnet_peer_ni_row *rows, unsigned n, bool last)
{
    const struct lnet_nid *nid = arg;

    for (unsigned i = 0; i < n; i++) {
        if (!nid_same(&rows[i].nid, nid))
            continue;
        rows_seen++;
        check_credits(&rows[i].tx, 2, -3, -3, 3);
        check_credits(&rows[i].rtr, 2, 2, 2, 0);
        assert_int_equal(rows[i].tx_waiting, 3);
        assert_int_equal(rows[i].rtr_waiting, 0);
        assert_int_equal(rows[i].tx_queued, 5);
        assert_int_equal(rows[i].tx_queued_bytes, 5 * 72);
        assert_int_equal(rows[i].refs, 5);
    }
}

static void test_rows(void **state)
{
    struct lnet_nid nid;

    credits_up(64, 2);
    for (unsigned i = 0; i < 5; i++)
        ack_to(1, 3, i);
    nid = hop(1, 3)->nid;
    rows_seen = 0;
    assert_int_equal(peer_ni_rows(node, on_rows, &nid), 0);
    settle();
    assert_int_equal(rows_seen, 1);
    send_end_all(ok);
    settle();
    send_end_all(ok);
    settle();
    send_end_all(ok);
    settle();
    node_down();
}

/* ---- in which order all that a message holds returns ---- */

/* §4.6: NI credit, peer credit, buffer, router credit; seen by what starts next. */
static void test_order_of_return(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct peer_msg *for_buffer, *for_router;
    struct lnet_nid from[5], to[4];

    o.small = 4 * nreactors;
    o.egress_share = 100;
    node_make(o);
    tcp0 = ni_add_with("10.0.0.1@tcp", -1, -1, 1); /* one router credit for each sender */
    tcp1 = ni_add_with("10.1.0.1@tcp1", 1, 1, -1); /* one credit for everything */
    node_begin();
    loop.hold_send = true;
    for (unsigned i = 0; i < 5; i++)
        from[i] = peer_on(0, 0, "tcp", i);
    for (unsigned i = 0; i < 4; i++)
        to[i] = peer_on(0, 1, "tcp1", i);
    arrive(tcp0, from[0], hdr_of(LNET_MSG_PUT, from[0], to[0], 10)); /* has everything */
    arrive(tcp0, from[1], hdr_of(LNET_MSG_PUT, from[1], to[1], 20)); /* waits for the NI */
    arrive(tcp0, from[2], hdr_of(LNET_MSG_PUT, from[2], to[0], 30)); /* waits for its peer */
    arrive(tcp0, from[3], hdr_of(LNET_MSG_PUT, from[3], to[2], 40)); /* waits for the NI */
    settle();
    assert_int_equal(pool_stats(0, LNET_POOL_SMALL).free, 0);
    assert_int_equal(tq(0)->credits.now, -2);
    assert_int_equal(peer_find(&to[0])->tx.now, -1);
    /* a tiny one: there are buffers for it, but its sender has no credit */
    for_router = arrive(tcp0, from[0], hdr_of(LNET_MSG_ACK, from[0], to[0], 0));
    for_buffer = arrive(tcp0, from[4], hdr_of(LNET_MSG_PUT, from[4], to[3], 50));
    settle();
    assert_int_equal(loop.nsent, 1);
    assert_int_equal(for_buffer->recvs + for_router->recvs, 0);
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(loop.nsent, 2);
    assert_int_equal(loop.sent[1].len, 20);
    assert_int_equal(for_buffer->recvs + for_router->recvs, 2);
    assert_true(loop.sent[1].when < for_buffer->when);
    assert_true(for_buffer->when < for_router->when);
    /* to[0]'s credit went on before the rest returned: its message is at the NI before the one that
     * had to be received first */
    for (unsigned i = 2; i < 6; i++) {
        static const uint32_t len[] = {40, 30, 50, 0};

        send_end(loop.held[0], ok);
        settle();
        assert_int_equal(loop.nsent, i + 1);
        assert_int_equal(loop.sent[i].len, len[i - 2]);
    }
    send_end(loop.held[0], ok);
    settle();
    assert_int_equal(loop.nsent, 6);
    check_quiet();
    node_down();
}

/* Of the two tx credits the NI's returns first: who then gets the peer's finds it, and does not
 * have to wait. */
static void test_ni_before_peer(void **state)
{
    credits_up(1, 1);
    ack_to(0, 0, 0);
    ack_to(0, 0, 1);
    end(0);
    assert_int_equal(sent_tag(1), 1);
    assert_int_equal(tq(0)->credits.waited, 0);
    assert_int_equal(tq(0)->credits.min, 0);
    end(1);
    node_down();
}

/* ---- failures ---- */

static void on_pong(void *arg, int status, const struct lnet_ping_info *info)
{
    int *statuses = arg;

    statuses[0]++;
    statuses[1] = status;
}

/* A peer goes down: what others queued for it is of no use later. Our own messages stay, and so
 * does what is past its credits. */
static void test_peer_down(void **state)
{
    unsigned n;

    for (unsigned r = 0; r < nreactors; r++) {
        struct lnet_nid p, own = LNET_NID_ANY;
        int pong[2] = {0};

        credits_up(64, 2);
        p = peer_on(r, 1, "tcp1", 0);
        for (unsigned i = 0; i < 5; i++)
            ack_to(r, 0, i);
        assert_int_equal(lnet_ping(node, &p, &own, 60000, on_pong, pong), 0);
        settle();
        for (unsigned i = 5; i < 8; i++)
            ack_to(r, 0, i);
        ack_to(r, 1, 100);
        n = loop.nsent;
        assert_int_equal(n, 3);
        check_credits(&hop(r, 0)->tx, 2, -7, -7, 7);
        ON(r, lnet_peer_ni_notify(tcp1, peer_find(&p), false));
        settle();
        assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), 6);
        assert_int_equal(drops_sum(), 6);
        assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_ACK], 6);
        assert_int_equal(hop(r, 0)->drop_count[LNET_MSG_ACK], 6);
        assert_int_equal(loop.nsent, n);
        check_credits(&hop(r, 0)->tx, 2, -1, -7, 7);
        assert_int_equal(hop(r, 0)->tx_queued, 3);
        assert_int_equal(stat_of(LNET_STAT_MSGS_ALLOC), 4);
        /* up: nothing happens */
        ON(r, lnet_peer_ni_notify(tcp1, peer_find(&p), true));
        settle();
        assert_int_equal(drops_sum(), 6);
        end(0);
        assert_int_equal(sent_last(LNET_MSG_GET)->hdr.payload_len, 0);
        assert_int_equal(loop.nsent, n + 1);
        assert_int_equal(pong[0], 0);
        ack_to(r, 0, 8);
        assert_int_equal(loop.nsent, n + 1);
        end(1);
        assert_int_equal(sent_tag(n + 1), 8);
        send_end_all(ok);
        settle();
        assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 4);
        node_end(0);
        assert_int_equal(pong[0], 1);
        assert_int_equal(pong[1], -ESHUTDOWN);
    }
}

/* Those that wait for the NI are past the peer's queue: they have a peer credit each. */
static void test_peer_down_at_ni(void **state)
{
    struct lnet_nid p;

    credits_up(1, 1);
    p = peer_on(0, 1, "tcp1", 1);
    ack_to(0, 0, 0);
    ack_to(0, 1, 10);
    ack_to(0, 1, 11);
    ON(0, lnet_peer_ni_notify(tcp1, peer_find(&p), false));
    settle();
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_LOST), 1);
    check_credits(&hop(0, 1)->tx, 1, 0, -1, 1);
    end(0);
    assert_int_equal(sent_tag(1), 10);
    end(10);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 2);
    check_quiet();
    node_down();
}

/* ---- an LND that refuses at once ---- */

/* n messages wait for one next hop, or for the NI; the LND takes none of them. Each fails by
 * itself, and none within another's failing. */
static void refuse(unsigned n, unsigned hops, int credits, int peer_credits)
{
    unsigned i;

    credits_up(credits, peer_credits);
    for (i = 0; i < n; i++)
        ack_to(0, i % hops, i);
    assert_int_equal(loop.nsent, credits < peer_credits ? credits : peer_credits);
    loop.hold_send = false;
    loop.send_result = down;
    i = loop.nheld;
    send_end_all(down);
    settle();
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_DOWN), n);
    assert_int_equal(drops_sum(), n);
    assert_int_equal(loop.nsent, n);
    assert_int_equal(loop.max_sending, 1);
    for (i = 0; i < n && hops == 1; i++)
        assert_int_equal(sent_tag(i), i);
    check_quiet();
    /* and nothing is in the way of what comes next */
    loop.send_result = ok;
    ack_to(0, 0, n);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    node_down();
}

static void test_refused(void **state)
{
    refuse(3000, 1, 64, 8);
    refuse(3000, 100, 4, 64);
}

/* The same from where the messages come: nothing is held, each is refused as it is sent, and what
 * is sent from within a refusal is too. */
static void test_refused_at_once(void **state)
{
    credits_up(8, 2);
    loop.hold_send = false;
    loop.send_result = down;
    for (unsigned i = 0; i < 500; i++)
        ack_to(i, i % 7, i);
    assert_int_equal(drops_of(LNET_DROP_NEXT_HOP_DOWN), 500);
    check_ni(tcp1, 8 * (int)nreactors, 8 * (int)nreactors, 7 * (int)nreactors, 0, 0);
    check_quiet();
    node_down();
}

/* ---- a peer that hangs ---- */

#define OVERDUE_MS 100
#define LOOK_MS    25

/* Its messages keep the NI's credits for a moment, then others may have them, one each. */
static void test_overdue(void **state)
{
    const struct lnet_tx_queue *q;

    credits_up(2, 2);
    q = tq(0);
    ack_to(0, 0, 0);
    pass_ms(30);
    ack_to(0, 0, 1);
    pass_ms(1000); /* nobody wants them */
    assert_true(held_tagged(0)->ni_credit && held_tagged(1)->ni_credit);
    assert_int_equal(q->credits.now, 0);
    /* somebody does: at the next look */
    ack_to(0, 1, 10);
    assert_int_equal(loop.nsent, 2);
    pass_ms(LOOK_MS + 2);
    assert_int_equal(loop.nsent, 3);
    assert_int_equal(sent_tag(2), 10);
    assert_false(held_tagged(0)->ni_credit); /* the older one, and no more than are wanted */
    assert_true(held_tagged(1)->ni_credit);
    assert_int_equal(q->credits.now, 0);
    assert_int_equal(q->credits.waited, 1);
    /* its peer credit it keeps */
    ack_to(0, 0, 2);
    pass_ms(300);
    assert_int_equal(loop.nsent, 3);
    check_credits(&hop(0, 0)->tx, 2, -1, -1, 1);
    /* ends: only the peer credit returns, which 2 takes; there is no NI credit for it until 1 gives
     * its own up */
    end(0);
    assert_int_equal(loop.nsent, 3);
    assert_int_equal(q->credits.now, -1);
    pass_ms(LOOK_MS + 2);
    assert_int_equal(sent_tag(3), 2);
    assert_false(held_tagged(1)->ni_credit);
    end(1);
    end(2);
    end(10);
    assert_int_equal(q->credits.now, 2);
    check_quiet();
    node_down();
}

/* Not before that time is over, for each of them; several NIs and reactors. */
static void test_overdue_in_time(void **state)
{
    credits_up(3, 3);
    for (unsigned r = 0; r < nreactors; r++)
        for (unsigned i = 0; i < 3; i++)
            ack_to(r, 0, 10 * r + i);
    pass_ms(45); /* it is looked at 70, 95 and 120 ms */
    for (unsigned r = 0; r < nreactors; r++)
        for (unsigned i = 0; i < 2; i++)
            ack_to(r, 1, 100 + 10 * r + i);
    assert_int_equal(loop.nsent, 3 * nreactors);
    check_ni(tcp1, 3 * (int)nreactors, -2 * (int)nreactors, -2 * (int)nreactors, 2 * nreactors,
             2 * nreactors);
    pass_ms(OVERDUE_MS - 45 - 2);
    assert_int_equal(loop.nsent, 3 * nreactors);
    pass_ms(LOOK_MS + 4);
    assert_int_equal(loop.nsent, 5 * nreactors);
    check_ni(tcp1, 3 * (int)nreactors, 0, -2 * (int)nreactors, 2 * nreactors, 0);
    /* what now has the credits may be overdue in turn */
    for (unsigned r = 0; r < nreactors; r++)
        ack_to(r, 2, 200 + r);
    pass_ms(LOOK_MS + 2);
    assert_int_equal(loop.nsent, 6 * nreactors); /* the last of the first three */
    for (unsigned r = 0; r < nreactors; r++)
        ack_to(r, 2, 300 + r);
    pass_ms(40);
    assert_int_equal(loop.nsent, 6 * nreactors);
    pass_ms(OVERDUE_MS);
    assert_int_equal(loop.nsent, 7 * nreactors);
    /* in any order they end, nothing is given back twice */
    while (loop.nheld > 0)
        send_end(loop.held[loop.nheld / 2], loop.nheld & 1 ? ok : down);
    settle();
    check_ni(tcp1, 3 * (int)nreactors, 3 * (int)nreactors, -2 * (int)nreactors, 4 * nreactors, 0);
    check_quiet();
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_ni_credits),      LNET_TEST(test_peer_credits),
    LNET_TEST(test_accepted),        LNET_TEST(test_ni_queue),
    LNET_TEST(test_both_queues),     LNET_TEST(test_rows),
    LNET_TEST(test_order_of_return), LNET_TEST(test_ni_before_peer),
    LNET_TEST(test_peer_down),       LNET_TEST(test_peer_down_at_ni),
    LNET_TEST(test_refused),         LNET_TEST(test_refused_at_once),
    LNET_TEST(test_overdue),         LNET_TEST(test_overdue_in_time),
};

LNET_TESTS_MAIN("test_lnet_credit", tests)
