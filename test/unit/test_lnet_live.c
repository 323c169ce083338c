/* SPDX-License-Identifier: BSD-3-Clause */
/* NIs come and go while the node runs. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_admit_test.h"

static struct err err;
static int ended, ended_rc; /* how often done was called, and with what */
static struct err ended_err;

static void on_end(void *arg, int rc, const struct err *why)
{
    assert_ptr_equal(reactor_self(), reactor_control(env));
    assert_ptr_equal(arg, &ended);
    assert_true((rc == 0) == (why->message[0] == 0));
    ended++;
    ended_rc = rc;
    ended_err = *why;
}

static struct lnet_ni_conf conf_of(const char *nid)
{
    struct lnet_ni_conf conf = {
        .nid = N(nid), .tun = {-1, -1, -1, -1}, .lnd_tun = LND_TUNABLES_DEFAULT};

    conf.net = nid_net(&conf.nid);
    return conf;
}

static int add_conf(const struct lnet_ni_conf *conf)
{
    int rc;

    err.message[0] = 0;
    ended = 0;
    rc = lnet_ni_add_live(node, conf, on_end, &ended, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    assert_int_equal(ended, 0); /* not before it returns */
    return rc;
}

static int add(const char *nid)
{
    struct lnet_ni_conf conf = conf_of(nid);

    return add_conf(&conf);
}

static int del(const char *text)
{
    struct lnet_nid nid = N(text);
    int rc;

    err.message[0] = 0;
    ended = 0;
    rc = lnet_ni_del(node, &nid, on_end, &ended, &err);
    assert_true((rc == 0) == (err.message[0] == 0));
    assert_int_equal(ended, 0);
    return rc;
}

static struct lnet_ni *find(const char *text)
{
    struct lnet_nid nid = N(text);
    struct lnet_ni *found = NULL;

    for (unsigned i = 0; i < lnet_ni_count(node); i++) {
        struct lnet_ni *ni = lnet_ni_at(node, i);

        if (ni && nid_same(&ni->nid, &nid)) {
            assert_null(found);
            assert_int_equal(ni->index, i);
            found = ni;
        }
    }
    assert_ptr_equal(found, lnet_ni_find(node, &nid));
    return found;
}

static struct lnet_ni *added(const char *nid)
{
    struct lnet_ni *ni;

    assert_int_equal(add(nid), 0);
    settle();
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, 0);
    ni = find(nid);
    assert_non_null(ni);
    return ni;
}

static void deleted(const char *nid)
{
    assert_int_equal(del(nid), 0);
    settle();
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, 0);
    assert_null(find(nid));
}

static const struct lnet_ping_info *published(void)
{
    static struct lnet_ping_info info;
    const struct ping_target *t = node->ping->current;

    assert_int_equal(lnet_ping_decode(t->data, t->seg.len, &info), LNET_DROP_NONE);
    return &info;
}

static bool is_published(const char *text)
{
    const struct lnet_ping_info *info = published();
    struct lnet_nid nid = N(text);
    bool is = false;

    for (unsigned i = 0; i < info->count; i++)
        is |= nid_same(&info->ni[i].nid, &nid);
    return is;
}

/* One message from net a to net b arrives there. */
static void check_forwards(const char *in, const char *in_net, unsigned a, const char *out_net,
                           unsigned b)
{
    struct lnet_nid from = peer_on(0, a, in_net, 7), to = peer_on(1, b, out_net, 7);
    unsigned before = loop.nsent;
    struct peer_msg *fx = arrive(find(in), from, hdr_of(LNET_MSG_PUT, from, to, 100));

    settle();
    assert_int_equal(fx->parse, LNET_DROP_NONE);
    assert_true(fx->done);
    assert_int_equal(loop.nsent, before + 1);
    assert_true(nid_same(&loop.sent[before].to, &to));
}

/* ---- the rules ---- */

static void test_rules(void **state)
{
    struct lnet_ni_conf conf = conf_of("10.5.0.1@tcp5");
    int stopped = 0;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    assert_int_equal(add("10.5.0.1@tcp5"),
                     -EBUSY); /* it has not started: lnet_ni_add() is for that */
    assert_int_equal(del("10.0.0.1@tcp"), -EBUSY);
    node_begin();
    assert_int_equal(route_add("tcp6", peer_on(0, 0, "tcp", 0), 1, 0), 0);
    assert_int_equal(add("10.0.0.1@tcp"), -EEXIST);
    assert_int_equal(add("10.6.0.1@tcp6"), -EUSERS); /* there is a route to it */
    conf.net = LNET_NET(LNET_LND_SOCK, 7);
    assert_int_equal(add_conf(&conf), -EINVAL); /* the NID is on another */
    conf.net = LNET_NET(LNET_LND_KFI, 0);
    conf.nid = LNET_NID_ANY;
    assert_int_equal(add_conf(&conf), -EOPNOTSUPP);
    loop.init_error = -EADDRNOTAVAIL;
    assert_int_equal(add("10.5.0.1@tcp5"), -EADDRNOTAVAIL);
    assert_string_equal(err.message, "loopback: no");
    loop.init_error = 0;
    assert_int_equal(del("10.5.0.1@tcp5"), -ENOENT);
    assert_int_equal(lnet_ni_count(node), 1);
    settle();
    assert_int_equal(ended, 0);
    assert_int_equal(add("10.5.0.1@tcp5"), 0);
    {
        struct err why = {0};
        struct lnet_ni_conf other = conf_of("10.7.0.1@tcp7");
        struct lnet_nid nid = N("10.0.0.1@tcp");

        assert_int_equal(lnet_ni_add_live(node, &other, on_end, NULL, &why), -EBUSY);
        assert_int_equal(lnet_ni_del(node, &nid, on_end, NULL, &why), -EBUSY);
    }
    settle();
    assert_int_equal(ended, 1);
    assert_int_equal(lnet_ni_count(node), 2);
    lnet_node_stop(node, 0, on_stopped, &stopped);
    assert_int_equal(add("10.7.0.1@tcp7"), -EBUSY);
    assert_int_equal(del("10.5.0.1@tcp5"), -EBUSY);
    pass(3 * SEC);
    assert_int_equal(stopped, 1);
    check_quiet();
    sent_clear();
    rx_free_all();
    node_gone();
    assert_int_equal(loop.fini, loop.inited);
}

/* A node may start without NIs, and be left without. */
static void test_none(void **state)
{
    node_make(opts_default());
    node_begin();
    assert_int_equal(published()->count, 0);
    assert_int_equal(published()->seqno, 1);
    pass(200 * SEC);
    for (unsigned round = 0; round < 3; round++) {
        added("10.0.0.1@tcp");
        added("10.1.0.1@tcp1");
        assert_int_equal(published()->count, 2);
        check_forwards("10.0.0.1@tcp", "tcp", 0, "tcp1", 1);
        check_forwards("10.1.0.1@tcp1", "tcp1", 1, "tcp", 0);
        deleted("10.0.0.1@tcp");
        deleted("10.1.0.1@tcp1");
        assert_int_equal(published()->count, 0);
    }
    assert_int_equal(published()->seqno, 1 + 12);
    assert_int_equal(lnet_ni_count(node), 2);
    node_down();
}

static void push_from(struct lnet_ni *ni, struct lnet_nid from)
{
    uint8_t buf[1024];
    uint32_t len =
        make_info(buf, sizeof(buf), from,
                  LNET_PING_NI_STATUS | LNET_PING_MULTI_RAIL | LNET_PING_DISCOVERY, 1, 0);
    struct peer_msg *fx =
        rx_new(ni, from, hdr_put(from, ni->nid, 0, LNET_PING_MATCH_BITS, 0, len, true), 1);

    memcpy(fx->in.payload, buf, len);
    rx_parse(fx);
    settle();
}

static void ack_push(void)
{
    ack_push_only(sent_last(LNET_MSG_PUT));
}

/* Others hear of it; what they see stays in the order of configuration, net by net. */
static void test_told(void **state)
{
    struct lnet_nid first = N("10.0.0.1@tcp"), second = N("10.0.0.2@tcp"), knows;
    const struct lnet_ping_info *info;
    uint32_t seqno;

    node_up(opts_default());
    knows = peer_on(1, 0, "tcp", 3);
    push_from(tcp0, knows);
    ack_push();
    sent_clear();
    seqno = published()->seqno;
    added("10.0.0.2@tcp");
    info = published();
    assert_int_equal(info->seqno, seqno + 1);
    assert_int_equal(info->count, 4);
    assert_true(nid_same(&info->ni[0].nid, &first)); /* still the primary NID */
    assert_true(nid_same(&info->ni[1].nid, &second));
    assert_int_equal(info->ni[1].status, LNET_NI_UP);
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &knows));
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->hdr.src_nid, &first));
    ack_push();
    /* without the NI it talked to it is told through the other one of that net */
    sent_clear();
    deleted("10.0.0.1@tcp");
    assert_int_equal(sent_count(LNET_MSG_PUT), 1);
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->to, &knows));
    assert_true(nid_same(&sent_last(LNET_MSG_PUT)->hdr.src_nid, &second));
    ack_push();
    assert_int_equal(published()->seqno, seqno + 2);
    assert_int_equal(stat_of(LNET_STAT_RST_ALLOC), 0);
    node_down();
}

/* Nothing is left of an NI that cannot be started, and nobody hears of it. */
static void test_start_fails(void **state)
{
    uint32_t seqno;
    unsigned index;

    node_up(opts_default());
    seqno = published()->seqno;
    loop.start_error = -EADDRINUSE;
    assert_int_equal(add("10.5.0.1@tcp5"), 0);
    settle();
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, -EADDRINUSE);
    assert_string_equal(ended_err.message, "loopback: cannot start");
    assert_null(find("10.5.0.1@tcp5"));
    assert_int_equal(published()->seqno, seqno);
    assert_int_equal(loop.stopping, 1); /* what the LND had begun */
    index = lnet_ni_count(node) - 1;
    loop.start_error = 0;
    assert_int_equal(added("10.5.0.1@tcp5")->index, index);
    assert_int_equal(loop.fini, 1);
    check_forwards("10.0.0.1@tcp", "tcp", 0, "tcp5", 5);
    node_down();
}

/* The node stops while an NI is on its way in: it never starts. */
static void test_stop_while_adding(void **state)
{
    int stopped = 0;

    node_up(opts_default());
    assert_int_equal(add("10.5.0.1@tcp5"), 0);
    lnet_node_stop(node, 0, on_stopped, &stopped);
    settle();
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, -ESHUTDOWN);
    assert_int_equal(loop.started, 3);
    pass(3 * SEC);
    assert_int_equal(stopped, 1);
    check_quiet();
    node_gone();
    assert_int_equal(loop.fini, 4);
}

/* ---- what its peers have begun ---- */

/* The LND says that it has come to rest. */
static void is_quiet(const struct lnet_ni *ni)
{
    struct reactor_task *done = loop.quiet_done[ni->index];

    assert_non_null(done);
    loop.quiet_done[ni->index] = NULL;
    reactor_post(reactor_control(env), done);
    settle();
}

/* An NI stops when its peers have ended what they began, or had two seconds to. */
static void test_comes_to_rest(void **state)
{
    struct lnet_nid from;
    struct peer_msg *fx;
    struct lnet_ni *ni;
    int stopped = 0;

    node_up(opts_default());
    from = peer_on(1, 5, "tcp5", 0);
    ni = added("10.5.0.1@tcp5");
    loop.hold_quiet = true;
    assert_int_equal(del("10.5.0.1@tcp5"), 0);
    settle();
    assert_int_equal(loop.quiesced, 1);
    assert_int_equal(loop.stopping, 0);
    fx = arrive(ni, from, hdr_of(LNET_MSG_PUT, from, hop(0), 10));
    settle();
    assert_true(fx->done);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 1);
    assert_int_equal(ended, 0);
    is_quiet(ni);
    assert_int_equal(loop.stopping, 1);
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, 0);
    added("10.6.0.1@tcp6");
    assert_int_equal(del("10.6.0.1@tcp6"), 0);
    settle();
    pass(19 * SEC / 10);
    assert_int_equal(ended, 0);
    assert_int_equal(loop.stopping, 1);
    pass(SEC / 5);
    assert_int_equal(loop.stopping, 2);
    assert_int_equal(ended, 1);
    /* the node stops meanwhile */
    ni = added("10.7.0.1@tcp7");
    assert_int_equal(del("10.7.0.1@tcp7"), 0);
    settle();
    lnet_node_stop(node, 0, on_stopped, &stopped);
    pass(SEC);
    assert_int_equal(stopped, 0);
    assert_int_equal(ended, 0);
    is_quiet(ni);
    assert_int_equal(ended, 1);
    pass(3 * SEC);
    assert_int_equal(stopped, 1);
    sent_clear();
    rx_free_all();
    check_quiet();
    node_gone();
}

/* The node ends while an NI comes to rest: nobody waits for it any longer, and it is stopped. */
static void test_ends_before_rest(void **state)
{
    struct lnet_ni *ni;

    node_up(opts_default());
    ni = added("10.5.0.1@tcp5");
    loop.hold_quiet = true;
    assert_int_equal(del("10.5.0.1@tcp5"), 0);
    settle();
    assert_int_equal(ended, 0);
    lnet_node_end(node);
    assert_int_equal(ended, 1);
    assert_int_equal(ended_rc, -ESHUTDOWN);
    assert_true(loop.ni_stopping[ni->index]);
    assert_int_equal(loop.stopping, lnet_ni_count(node));
    settle();
    assert_int_equal(ended, 1);
    lnet_monitor_stop(node); /* here the reactors go on */
    lnet_checks_stop(node);
    lnet_ping_stop(node);
    sent_clear();
    node_gone();
}

/* ---- one of several NIs of a net ---- */

static void test_one_of_two(void **state)
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
    assert_int_equal(by_second, 1);
    deleted("10.1.0.2@tcp1");
    assert_int_equal(drops_of(LNET_DROP_NI_REMOVED), 4);
    assert_int_equal(drops_sum(), 4);
    while (loop.nheld > 0) {
        assert_ptr_equal(loop.held[0]->tx_ni, tcp1);
        send_end(loop.held[0], ok);
        settle();
    }
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT), 4);
    from_to(sender(0), hop(0), LNET_MSG_PUT, 100);
    end_all();
    assert_true(is_published("10.1.0.1@tcp1"));
    assert_false(is_published("10.1.0.2@tcp1"));
    node_down();
}

/* ---- indices ---- */

/* An index is not another's while a message points to who had it: as where it came in, or as where
 * it was to leave. */
static void test_index_kept(void **state)
{
    struct lnet_drop_example e;
    struct peer_msg *fx;
    struct lnet_ni *ni;
    unsigned index;

    node_up(opts_default());
    loop.hold_send = true;
    ni = added("10.5.0.1@tcp5");
    index = ni->index;
    /* came in on it, with the LND of another NI */
    fx = arrive(ni, peer_on(0, 5, "tcp5", 0),
                hdr_of(LNET_MSG_PUT, peer_on(0, 5, "tcp5", 0), hop(0), 10));
    settle();
    assert_true(fx->done);
    assert_int_equal(loop.nheld, 1);
    deleted("10.5.0.1@tcp5");
    ni = added("10.6.0.1@tcp6");
    assert_int_not_equal(ni->index, index);
    assert_int_equal(loop.fini, 0);
    end_all();
    assert_int_equal(added("10.7.0.1@tcp7")->index, index);
    assert_int_equal(loop.fini, 1);
    /* is to leave by it, its payload has not come yet */
    loop.hold_recv = true;
    fx = arrive(tcp0, sender(0), hdr_of(LNET_MSG_PUT, sender(0), peer_on(0, 7, "tcp7", 0), 10));
    settle();
    deleted("10.7.0.1@tcp7");
    assert_int_not_equal(added("10.5.0.1@tcp5")->index, index);
    assert_int_equal(loop.fini, 1);
    loop.hold_recv = false;
    recv_end(fx, ok);
    settle();
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 1);
    assert_int_equal(ni_stats(tcp0).received[LNET_MSG_PUT], 1);
    lnet_drop_example_get(node, LNET_DROP_NO_ROUTE, &e);
    assert_int_equal(e.ni, (int)tcp0->index);
    ni = added("10.7.0.1@tcp7");
    assert_int_equal(ni->index, index);
    check_quiet();
    node_down();
}

/* A header that waits for a buffer has chosen the NI too. */
static void test_index_waiting(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct peer_msg *fx;
    unsigned index;

    o.tiny = 2 * nreactors;
    node_up(o);
    loop.hold_send = true;
    index = added("10.5.0.1@tcp5")->index;
    for (unsigned i = 0; i < 2; i++)
        put(hop(i), 0); /* has all buffers there are */
    fx = put(peer_on(0, 5, "tcp5", 0), 0);
    assert_int_equal(fx->recvs, 0);
    assert_true(node->shard[0]->ni_refs[index] > 0);
    deleted("10.5.0.1@tcp5");
    if (node->shard[0]->ni_refs[index] > 0)
        assert_int_not_equal(added("10.6.0.1@tcp6")->index, index);
    pass(SEC);
    check_discarded(fx);
    end_all();
    assert_int_equal(added("10.7.0.1@tcp7")->index, index);
    assert_int_equal(drops_sum(), 1);
    node_down();
}

/* Whoever has an index now has its own counts and credits. */
static void test_clean_index(void **state)
{
    struct lnet_ni_conf conf = conf_of("10.6.0.1@tcp6");
    struct lnet_drop_example e;
    struct lnet_ni_stats s;
    struct lnet_ni *ni;
    unsigned index;

    node_up(opts_default());
    ni = added("10.5.0.1@tcp5");
    index = ni->index;
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid from = peer_on(i, 5, "tcp5", 0);

        arrive(ni, from, hdr_of(LNET_MSG_PUT, from, hop(0), 10));
        arrive(ni, from, hdr_of(LNET_MSG_PUT, from, N("10.9.0.1@tcp9"), 10));
        settle();
    }
    assert_int_equal(ni_stats(ni).received[LNET_MSG_PUT], nreactors);
    lnet_drop_example_get(node, LNET_DROP_NO_ROUTE, &e);
    assert_int_equal(e.ni, (int)index);
    lnet_stats_reset(node);
    settle();
    arrive(ni, peer_on(0, 5, "tcp5", 0),
           hdr_of(LNET_MSG_PUT, peer_on(0, 5, "tcp5", 0), hop(0), 10));
    settle();
    deleted("10.5.0.1@tcp5");
    conf.tun.credits = 32;
    conf.tun.peer_credits = 3;
    assert_int_equal(add_conf(&conf), 0);
    settle();
    ni = find("10.6.0.1@tcp6");
    assert_int_equal(ni->index, index);
    s = ni_stats(ni);
    for (unsigned i = 0; i < LNET_MSG_TYPES; i++)
        assert_true(s.sent[i] == 0 && s.received[i] == 0 && s.dropped[i] == 0);
    lnet_drop_example_get(node, LNET_DROP_NO_ROUTE, &e);
    assert_true(e.seen);
    assert_int_equal(e.ni, -1);
    for (unsigned i = 0; i < nreactors; i++)
        assert_true(node->shard[i]->tx->tq[index].credits.max <= 32);
    node_down();
}

/* A peer that was known before has the credits of the net as it is now. */
static void test_peer_credits(void **state)
{
    struct lnet_ni_conf conf = conf_of("10.5.0.1@tcp5");
    struct lnet_nid to;

    node_up(opts_default());
    to = peer_on(1, 5, "tcp5", 7);
    added("10.5.0.1@tcp5");
    check_forwards("10.0.0.1@tcp", "tcp", 0, "tcp5", 5);
    assert_int_equal(peer_find(&to)->tx.max, 1024);
    deleted("10.5.0.1@tcp5");
    conf.tun.credits = 64;
    conf.tun.peer_credits = 5;
    conf.tun.peer_buffer_credits = 6;
    assert_int_equal(add_conf(&conf), 0);
    settle();
    check_forwards("10.0.0.1@tcp", "tcp", 0, "tcp5", 5);
    assert_int_equal(peer_find(&to)->tx.max, 5);
    assert_int_equal(peer_find(&to)->tx.now, 5);
    assert_int_equal(peer_find(&to)->rtr.max, 6);
    node_down();
}

/* As many NIs as there can be, and many more one after another. */
static void test_many(void **state)
{
    char nid[64];

    node_make(opts_default());
    node_begin();
    for (unsigned i = 0; i < LNET_MAX_NI; i++) {
        snprintf(nid, sizeof(nid), "10.9.%u.%u@tcp%u", i / 100, 1 + i % 100, i / 2);
        added(nid);
    }
    assert_int_equal(add("10.8.0.1@tcp"), -ENOSPC);
    assert_int_equal(published()->count, LNET_MAX_NI);
    for (unsigned i = 0; i < LNET_MAX_NI; i++) {
        snprintf(nid, sizeof(nid), "10.9.%u.%u@tcp%u", i / 100, 1 + i % 100, i / 2);
        deleted(nid);
        added(nid);
    }
    assert_int_equal(lnet_ni_count(node), LNET_MAX_NI);
    assert_int_equal(published()->count, LNET_MAX_NI);
    assert_true(loop.inited - loop.fini <= LNET_MAX_NI + 1);
    node_down();
}

/* ---- under traffic ---- */

static uint32_t rnd(uint32_t n)
{
    static uint32_t x = 12345;

    x = x * 1664525u + 1013904223u;
    return (x >> 8) % n;
}

/* Sends between two nets that stay and some that come and go. Each message that came in was
 * forwarded or dropped under a name; those between the nets that stay were all forwarded. */
static void test_traffic(void **state)
{
    static const char *const net[] = {"tcp", "tcp1", "tcp5", "tcp6", "tcp7"};
    static const char *const nid[] = {"10.0.0.1@tcp", "10.1.0.1@tcp1", "10.5.0.1@tcp5",
                                      "10.6.0.1@tcp6", "10.7.0.1@tcp7"};
    static const unsigned byte[] = {0, 1, 5, 6, 7};
    unsigned in = 0, steady = 0, steady_sent = 0, changes = 0, k;
    struct lnet_node_opts o = opts_default();

    o.tiny = 64 * nreactors;
    o.small = 64 * nreactors;
    node_up(o);
    loop.hold_send = true;
    ended = 1;
    for (unsigned i = 0; i < 3000; i++) {
        unsigned a = rnd(5), b = rnd(5);
        struct lnet_ni *ni = find(nid[a]);

        if (rnd(12) == 0 && ended && find(nid[k = 2 + rnd(3)]))
            changes += del(nid[k]) == 0;
        else if (ended && rnd(12) == 0 && !find(nid[k = 2 + rnd(3)]))
            changes += add(nid[k]) == 0;
        if (ni && a != b) {
            struct lnet_nid from = peer_on(rnd(4), byte[a], net[a], rnd(6));
            struct lnet_nid to = peer_on(rnd(4), byte[b], net[b], rnd(6));

            arrive(ni, from, hdr_of(LNET_MSG_PUT, from, to, rnd(3) * 50));
            in++;
            steady += a < 2 && b < 2;
        }
        for (k = rnd(6); k > 0 && loop.nheld > 0; k--) {
            struct lnet_msg *msg = loop.held[rnd(loop.nheld)];

            steady_sent += msg->rx_ni->net <= tcp1->net && msg->tx_ni->net <= tcp1->net &&
                           msg->rx_ni->net >= tcp0->net;
            send_end(msg, ok);
        }
        for (k = rnd(4); k > 0; k--)
            step_all();
    }
    while (loop.nheld > 0 || !ended) {
        while (loop.nheld > 0) {
            steady_sent +=
                loop.held[0]->rx_ni->net <= tcp1->net && loop.held[0]->tx_ni->net <= tcp1->net;
            send_end(loop.held[0], ok);
        }
        settle();
    }
    settle();
    check_quiet();
    assert_true(changes > 100);
    assert_int_equal(steady_sent, steady);
    assert_int_equal(stat_of(LNET_STAT_ROUTE_COUNT) + stat_of(LNET_STAT_DROP_COUNT), in);
    assert_true(loop.inited - loop.fini < 12); /* indices are used again */
    node_down();
}

/* Who is told that an NI was added can be called at it on every reactor: what its LND told them
 * has been read. */
static void test_added_everywhere(void **state)
{
    struct lnet_ni_conf conf;
    unsigned started;

    node_up(opts_default());
    conf = conf_of("10.7.0.1@tcp7");
    for (unsigned i = 0; i < nreactors; i++) { /* i is late */
        started = loop.started;
        assert_int_equal(add_conf(&conf), 0);
        while (loop.started == started)
            step_all();
        for (unsigned k = 0; k < 50 * nreactors; k++) {
            if (k % nreactors != i)
                ON(k % nreactors, reactor_step(reactor_self(), 0));
            reactor_step(reactor_control(env), 0);
        }
        assert_int_equal(ended, 0);
        settle();
        assert_int_equal(ended, 1);
        assert_int_equal(ended_rc, 0);
        deleted("10.7.0.1@tcp7");
    }
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_rules),         LNET_TEST(test_added_everywhere),
    LNET_TEST(test_none),          LNET_TEST(test_told),
    LNET_TEST(test_start_fails),   LNET_TEST(test_stop_while_adding),
    LNET_TEST(test_comes_to_rest), LNET_TEST(test_ends_before_rest),
    LNET_TEST(test_one_of_two),    LNET_TEST(test_index_kept),
    LNET_TEST(test_index_waiting), LNET_TEST(test_clean_index),
    LNET_TEST(test_peer_credits),  LNET_TEST(test_many),
    LNET_TEST(test_traffic),
};

LNET_TESTS_MAIN("test_lnet_live", tests)
