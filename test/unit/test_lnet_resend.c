/* SPDX-License-Identifier: BSD-3-Clause */
/* Resends, deadlines and response tracking: docs/protocol/lnet-core.md §4.5, §4.10, §6.1, §6.2,
 * §6.4. */
#include "test/unit/lnet_rails.h"

#include "lib/lnet/health/health.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

static struct lnet_result failure(enum lnet_health health)
{
    return (struct lnet_result){LNET_DROP_FAULT_SEND, health, .unsent = true};
}

static int rules(unsigned sensitivity, unsigned retry_count, unsigned timeout, unsigned tracking)
{
    struct lnet_health_rules r = LNET_HEALTH_RULES;
    struct err err;

    r.sensitivity = sensitivity;
    r.retry_count = retry_count;
    r.transaction_timeout = timeout;
    r.response_tracking = tracking;
    return lnet_health_set(node, &r, &err);
}

/* A PUT that is forwarded. */
static void forward(const char *to)
{
    struct lnet_nid from = N("10.0.0.9@tcp");

    sent_clear();
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N(to), 100));
    settle();
}

static void forward_fails(const char *to, struct lnet_result result)
{
    loop.send_result = result;
    forward(to);
    loop.send_result = ok;
}

/* Of the messages so far. */
static void check_counts(unsigned resends, unsigned successful, unsigned failed, unsigned drops)
{
    assert_int_equal(stat_of(LNET_STAT_RESEND_COUNT), resends);
    assert_int_equal(stat_of(LNET_STAT_SUCCESSFUL_RESENDS), successful);
    assert_int_equal(stat_of(LNET_STAT_FAILED_RESENDS), failed);
    assert_int_equal(drops_of(LNET_DROP_FAULT_SEND), drops);
}

/* ---- §6.2: the column resend ---- */

static const bool resend[LNET_HEALTH_COUNT] = {
    [LNET_HEALTH_LOCAL_INTERRUPT] = true, [LNET_HEALTH_LOCAL_DROPPED] = true,
    [LNET_HEALTH_LOCAL_ABORTED] = true,   [LNET_HEALTH_LOCAL_NO_ROUTE] = true,
    [LNET_HEALTH_LOCAL_TIMEOUT] = true,   [LNET_HEALTH_REMOTE_DROPPED] = true};

static void check_other_pair(void)
{
    for (unsigned i = 1; i < loop.nsent; i++)
        assert_false(loop.sent[i].ni == loop.sent[i - 1].ni &&
                     nid_same(&loop.sent[i].to, &loop.sent[i - 1].to));
}

/* §6.2 row 0, row 1, row 2, row 3, row 4, row 5, row 6, row 7, row 8, row 9, row 10, rule 13: each
 * time by another pair, retry_count times at most. */
static void test_table(void **state)
{
    for (enum lnet_health h = 1; h < LNET_HEALTH_COUNT; h++) {
        struct lnet_result posted = failure(h);
        unsigned r = resend[h];

        rails_up(true);
        forward_fails(TO, failure(h));
        assert_int_equal(sent_count(LNET_MSG_PUT), r ? 3 : 1);
        check_other_pair();
        check_counts(2 * r, 0, r, 1);

        loop.hold_send = true;
        forward(TO);
        send_end(loop.held[0], failure(h));
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), 1 + r);
        check_other_pair();
        send_end_all(ok);
        settle();
        check_counts(3 * r, r, r, 2 - r);
        loop.hold_send = false;

        posted.unsent = false; /* a byte of it may have left */
        forward_fails(TO, posted);
        assert_int_equal(sent_count(LNET_MSG_PUT), 1);
        check_counts(3 * r, r, r, 3 - r);
        node_down();
    }
}

/* A local status prefers another NI, a remote one another peer NI; the priority of routes counts
 * only while there is no other reason. */
static void test_other_pair(void **state)
{
    const enum lnet_health both[] = {LNET_HEALTH_LOCAL_DROPPED, LNET_HEALTH_REMOTE_DROPPED};
    struct lnet_nid d = N(D);

    for (unsigned i = 0; i < 2; i++) {
        rails_up(false);
        peer_add(A, A);
        peer_add(A, B);
        assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
        assert_int_equal(route_add("tcp5", d, 1, 7), 0); /* less preferred */
        settle();
        pass(SEC);
        loop.hold_send = true;
        forward(TO);
        send_end(loop.held[0], failure(both[i]));
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), 2);
        check_other_pair();
        assert_false(nid_same(&loop.sent[1].to, &d));
        send_end_all(ok);
        settle();
        loop.hold_send = false;
        assert_int_equal(stat_of(LNET_STAT_SUCCESSFUL_RESENDS), 1);
        node_down();
    }

    /* The only pair of the preferred gateway: the other gateway is used. */
    node_up(opts_default());
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    assert_int_equal(route_add("tcp5", d, 1, 7), 0);
    settle();
    pass(SEC);
    loop.hold_send = true;
    forward(TO);
    send_end(loop.held[0], failure(LNET_HEALTH_LOCAL_DROPPED));
    settle();
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &d));
    send_end_all(ok);
    loop.hold_send = false;
    node_down();
}

/* §4.10: the buffer and the router credit of the sender stay with the message. */
static void test_keeps_credits(void **state)
{
    struct lnet_nid from = N("10.0.0.9@tcp");
    const struct lnet_peer_ni *p;
    unsigned home;

    rails_up(true);
    loop.hold_send = true;
    forward(TO);
    p = peer_find(&from);
    home = home_of(&from);
    for (unsigned i = 0; i < 3; i++) {
        const struct lnet_pool_stats pool = pool_stats(home, LNET_POOL_SMALL);

        assert_int_equal(p->rtr.now, p->rtr.max - 1);
        assert_int_equal(pool.free, pool.total - 1);
        assert_int_equal(loop.nheld, 1);
        send_end(loop.held[0], i < 2 ? failure(LNET_HEALTH_LOCAL_TIMEOUT) : ok);
        settle();
    }
    assert_int_equal(p->rtr.now, p->rtr.max);
    loop.hold_send = false;
    check_counts(2, 1, 0, 0);
    node_down();
}

/* ---- §6.2: the rules ---- */

/* §6.2 rule 8: a destination has the one NID, and this gateway too. A local status needs another NI
 * of this node, which may be the same: the only one of the net. */
static void test_one_peer_ni(void **state)
{
    node_up(opts_default());
    assert_int_equal(route_add("tcp5", N(A), 1, 0), 0);
    settle();
    pass(SEC);
    forward_fails("10.1.0.50@tcp1", failure(LNET_HEALTH_REMOTE_DROPPED));
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    forward_fails(TO, failure(LNET_HEALTH_REMOTE_DROPPED));
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    check_counts(0, 0, 0, 2);
    forward_fails("10.1.0.50@tcp1", failure(LNET_HEALTH_LOCAL_DROPPED));
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    forward_fails(TO, failure(LNET_HEALTH_LOCAL_DROPPED));
    assert_int_equal(sent_count(LNET_MSG_PUT), 3);
    check_counts(4, 0, 2, 4);
    node_down();
}

/* §6.2 rule 14: a receive that fails is not sent on. */
static void test_receive(void **state)
{
    rails_up(true);
    loop.recv_result = failure(LNET_HEALTH_LOCAL_DROPPED);
    forward(TO);
    loop.recv_result = ok;
    assert_int_equal(sent_count(LNET_MSG_PUT), 0);
    check_counts(0, 0, 0, 1);
    node_down();
}

/* ---- messages of this node ---- */

#define PORTAL 5

static struct request {
    struct lnet_md md;
    struct mem_seg seg;
    struct lnet_eq eq;
    uint8_t data[100];
    int sends, send_status, ends, end_status;
} req[4];

static void on_event(struct lnet_md *md, const struct lnet_event *ev)
{
    struct request *r = md->user;

    if (ev->type == LNET_EVENT_SEND) {
        r->sends++;
        r->send_status = ev->status;
    }
    if (ev->unlinked) {
        r->ends++;
        r->end_status = ev->status;
    } else if (ev->type == LNET_EVENT_SEND && ev->status) {
        lnet_md_unlink(md);
    }
}

static struct request *request(unsigned i, bool get, struct lnet_nid dest,
                               const struct lnet_nid *src)
{
    struct request *r = &req[i];
    int rc;

    *r = (struct request){0};
    r->seg = (struct mem_seg){.addr = r->data, .len = sizeof(r->data), .region = MEM_REGION_NONE};
    r->eq.fn = on_event;
    r->md = (struct lnet_md){.segs = &r->seg,
                             .nsegs = 1,
                             .length = sizeof(r->data),
                             .threshold = 2,
                             .eq = &r->eq,
                             .user = r};
    ON(0, assert_int_equal(lnet_md_bind(node, &r->md), 0));
    ON(0, rc = get ? lnet_get(&r->md, src, &dest, PID, PORTAL, 1, 0)
                   : lnet_put(&r->md, true, src, &dest, PID, PORTAL, 1, 0, 0));
    assert_int_equal(rc, 0);
    settle();
    return r;
}

static void unlink_request(struct request *r)
{
    ON(0, lnet_md_unlink(&r->md));
    settle();
    assert_int_equal(r->ends, 1);
}

/* Returns how often a GET is sent of which each send fails. */
static unsigned get_fails(enum lnet_health health, struct lnet_nid dest, const struct lnet_nid *src)
{
    struct request *r;

    sent_clear();
    loop.send_result = failure(health);
    r = request(0, true, dest, src);
    loop.send_result = ok;
    assert_int_equal(r->sends, 1);
    assert_int_equal(r->send_status, -EIO);
    assert_int_equal(r->ends, 1);
    return sent_count(LNET_MSG_GET);
}

/* §6.2 rule 8, rule 12: requests go to another NID of the peer, but from the NI that was given; an
 * answer to the NID that asked. A request whose MD is unlinked is not sent again. */
static void test_own(void **state)
{
    struct lnet_nid d = N(D), e = N(E), one = N("10.1.0.60@tcp1");
    struct request *r;
    struct peer_msg *fx;

    rails_up(false);
    peer_add(D, D);
    peer_add(D, E);
    for (enum lnet_health h = 1; h < LNET_HEALTH_COUNT; h++) {
        assert_int_equal(get_fails(h, d, NULL), resend[h] ? 3 : 1);
        check_other_pair();
    }
    assert_int_equal(get_fails(LNET_HEALTH_REMOTE_DROPPED, one, NULL), 1);
    assert_int_equal(get_fails(LNET_HEALTH_LOCAL_DROPPED, one, NULL), 3);
    assert_int_equal(get_fails(LNET_HEALTH_REMOTE_DROPPED, d, &tcp1->nid), 1);
    assert_int_equal(get_fails(LNET_HEALTH_LOCAL_DROPPED, d, &tcp1->nid), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(loop.sent[i].ni, tcp1);

    loop.hold_send = true;
    sent_clear();
    r = request(0, true, d, NULL);
    send_end(loop.held[0], failure(LNET_HEALTH_REMOTE_DROPPED));
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), 2);
    check_other_pair();
    assert_true(nid_same(&loop.sent[1].hdr.dest_nid, &loop.sent[1].to));
    assert_true(nid_same(&loop.sent[1].hdr.src_nid, &loop.sent[1].ni->nid));
    assert_true(nid_same(&loop.sent[0].to, nid_same(&loop.sent[1].to, &d) ? &e : &d));
    send_end_all(ok);
    settle();
    assert_int_equal(r->send_status, 0);
    reply_to(&loop.sent[1], r->data, 10); /* it is taken from the NID that was asked last */
    assert_int_equal(r->ends, 1);
    assert_int_equal(r->end_status, 0);

    /* cancelled */
    sent_clear();
    r = request(0, true, d, NULL);
    ON(0, lnet_md_unlink(&r->md));
    send_end(loop.held[0], failure(LNET_HEALTH_LOCAL_DROPPED));
    settle();
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    assert_int_equal(r->ends, 1);

    sent_clear();
    fx = arrive(tcp1, d, hdr_ping(d, tcp1->nid));
    settle();
    send_end(loop.held[0], failure(LNET_HEALTH_LOCAL_DROPPED));
    settle();
    assert_true(fx->done);
    assert_int_equal(sent_count(LNET_MSG_REPLY), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(nid_same(&loop.sent[i].to, &d));
        assert_ptr_equal(loop.sent[i].ni, tcp1);
    }
    send_end_all(ok);
    loop.hold_send = false;
    node_down();
}

/* §6.2 rule 5: a node with one NI. */
static void test_one_ni(void **state)
{
    struct lnet_node_opts o = opts_default();

    o.routing = false;
    node_make(o);
    tcp0 = ni_add("10.0.0.1@tcp");
    node_begin();
    assert_int_equal(get_fails(LNET_HEALTH_LOCAL_DROPPED, N("10.0.0.7@tcp"), NULL), 1);
    node_down();
}

/* §6.2 rule 11: a recovery ping is sent once. */
static void test_recovery_ping(void **state)
{
    struct lnet_nid nid = N(D);
    struct lnet_peer_ni *p;

    health_counts = true;
    rails_up(false);
    arrive(tcp1, nid, hdr_of(LNET_MSG_PUT, nid, N("10.0.0.9@tcp"), 10));
    settle();
    sent_clear();
    ON(home_of(&nid), p = lnet_peer_ni_get(node, &nid));
    ON(home_of(&nid), lnet_health_peer_set(p, 500, LNET_CAUSE_COMMAND));
    ON(home_of(&nid), lnet_peer_ni_put(p));
    loop.send_result = failure(LNET_HEALTH_LOCAL_DROPPED);
    for (unsigned i = 0; i < 30 && sent_count(LNET_MSG_GET) == 0; i++)
        pass(SEC / 10);
    assert_int_equal(sent_count(LNET_MSG_GET), 1);
    assert_int_equal(stat_of(LNET_STAT_RESEND_COUNT), 0);
    loop.send_result = ok;
    health_counts = false;
    node_down();
}

/* ---- §6.1 ---- */

/* retry_count is the limit, and 0 without health. */
static void test_limit(void **state)
{
    static const unsigned tries[] = {0, 1, 5, 149};

    rails_up(true);
    for (unsigned i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        assert_int_equal(rules(100, tries[i], 150, 3), 0);
        forward_fails(TO, failure(LNET_HEALTH_LOCAL_DROPPED));
        assert_int_equal(sent_count(LNET_MSG_PUT), 1 + tries[i]);
        assert_int_equal(stat_of(LNET_STAT_FAILED_RESENDS), i);
    }
    assert_int_equal(rules(100, 150, 150, 3), -EINVAL);
    assert_int_equal(rules(100, 2, 150, 4), -EINVAL);
    assert_int_equal(node->health.retry_count, 149);
    assert_int_equal(rules(0, 2, 150, 3), 0);
    forward_fails(TO, failure(LNET_HEALTH_LOCAL_DROPPED));
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    node_down();
}

/* §6.1: the LND timeout that follows from both settings. */
static void test_lnd_timeout(void **state)
{
    static const unsigned rows[][3] = {{150, 2, 49}, {50, 2, 16}, {150, 0, 149}, {3, 2, 1}};

    rails_up(false);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(rules(100, rows[i][1], rows[i][0], 3), 0);
        assert_int_equal(lnet_lnd_timeout(node), rows[i][2]);
    }
    node_down();
}

/* §6.1: 50 s is this LND's timeout, so the deadline is 50 * 3 + 1 s. §6.2 rule 4 */
static void test_deadline(void **state)
{
    for (unsigned late = 0; late < 2; late++) {
        rails_up(false);
        loop.hold_send = true;
        forward("10.1.0.50@tcp1");
        pass((late ? 152 : 150) * SEC);
        sent_clear();
        for (unsigned i = 0; i < loop.nheld; i++)
            if (loop.held[i]->hdr.type == LNET_MSG_PUT) {
                send_end(loop.held[i], failure(LNET_HEALTH_LOCAL_DROPPED));
                break;
            }
        settle();
        assert_int_equal(sent_count(LNET_MSG_PUT), !late);
        send_end_all(ok);
        settle();
        loop.hold_send = false;
        node_down();
    }
}

/* §4.5: a message of this node that waited for a credit too long is not sent; a forwarded one is.
 */
static void test_waits_past_deadline(void **state)
{
    struct lnet_nid d = N(D);
    struct lnet_nid from = N("10.0.0.9@tcp");
    struct request *r;

    for (unsigned late = 0; late < 2; late++) {
        node_make(opts_default());
        tcp0 = ni_add("10.0.0.1@tcp");
        tcp1 = ni_add_with("10.1.0.1@tcp1", 8, 1, -1);
        node_begin();
        assert_int_equal(rules(100, 2, 1000, 0), 0);
        loop.hold_send = true;
        request(0, true, d, NULL);
        r = request(1, true, d, NULL);
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, d, 10));
        settle();
        assert_int_equal(loop.nsent, 1);
        pass((late ? 152 : 150) * SEC);
        send_end(loop.held[0], ok);
        settle();
        if (!late)
            send_end(loop.held[0], ok);
        settle();
        assert_int_equal(r->sends, 1);
        assert_int_equal(r->send_status, late ? -EIO : 0);
        assert_int_equal(drops_of(LNET_DROP_DEADLINE), late);
        assert_int_equal(stat_of(LNET_STAT_NETWORK_TIMEOUT_COUNT), 0);
        assert_int_equal(sent_count(LNET_MSG_GET), 2 - late);
        assert_int_equal(sent_count(LNET_MSG_PUT), 1);
        send_end_all(ok);
        settle();
        loop.hold_send = false;
        unlink_request(&req[0]);
        if (!late)
            unlink_request(r);
        node_down();
    }
}

/* ---- §6.4 ---- */

/* GETs are tracked by bit 1, PUTs with ACK by bit 2: the MD is unlinked, and its next hop lowered,
 * between 1.0 and 1.5 transaction timeouts. */
static void test_tracking(void **state)
{
    struct lnet_nid d = N(D);

    for (unsigned tracking = 0; tracking < 4; tracking++)
        for (unsigned get = 0; get < 2; get++) {
            const bool tracked = tracking & (get ? 1 : 2);
            unsigned health = 1000;
            struct request *r;

            health_counts = true;
            rails_up(false);
            assert_int_equal(rules(100, 2, 20, tracking), 0);
            r = request(0, get, d, NULL);
            assert_int_equal(stat_of(LNET_STAT_RST_ALLOC), tracked);
            pass(19 * SEC);
            assert_int_equal(r->ends, 0);
            pass(11 * SEC);
            assert_int_equal(r->ends, tracked);
            assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), tracked);
            assert_int_equal(stat_of(LNET_STAT_RST_ALLOC), 0);
            health -= tracked ? 100 : 0;
            assert_int_equal(peer_find(&d)->health, health);
            if (tracked)
                assert_int_equal(r->end_status, -ETIMEDOUT);
            else
                unlink_request(r);
            health_counts = false;
            node_down();
        }
}

/* One that is answered, or unlinked, is not tracked; one whose send still goes on ends with it. */
static void test_tracking_ends(void **state)
{
    struct lnet_nid d = N(D);
    struct request *r;

    rails_up(false);
    assert_int_equal(rules(0, 0, 20, 3), 0); /* no recovery pings */
    r = request(0, true, d, NULL);
    reply_to(sent_last(LNET_MSG_GET), r->data, 10);
    assert_int_equal(r->ends, 1);
    unlink_request(request(1, true, d, NULL));
    request(2, false, d, NULL);
    ack_push_only(sent_last(LNET_MSG_PUT));
    assert_int_equal(req[2].ends, 1);
    assert_int_equal(stat_of(LNET_STAT_RST_ALLOC), 0);
    loop.hold_send = true;
    r = request(3, true, d, NULL);
    pass(31 * SEC);
    assert_int_equal(stat_of(LNET_STAT_RESPONSE_TIMEOUT_COUNT), 1);
    assert_int_equal(r->ends, 0);
    loop.hold_send = false;
    send_end_all(ok);
    settle();
    assert_int_equal(r->ends, 1);
    assert_int_equal(r->end_status, -ETIMEDOUT);
    r = request(0, true, d, NULL); /* and the node stops */
    ON(0, lnet_md_unlink(&r->md));
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_table),       LNET_TEST(test_other_pair),    LNET_TEST(test_keeps_credits),
    LNET_TEST(test_one_peer_ni), LNET_TEST(test_receive),       LNET_TEST(test_own),
    LNET_TEST(test_one_ni),      LNET_TEST(test_recovery_ping), LNET_TEST(test_limit),
    LNET_TEST(test_lnd_timeout), LNET_TEST(test_deadline),      LNET_TEST(test_waits_past_deadline),
    LNET_TEST(test_tracking),    LNET_TEST(test_tracking_ends),
};

LNET_TESTS_MAIN("test-lnet-resend", tests)
