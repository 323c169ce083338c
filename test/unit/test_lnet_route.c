/* SPDX-License-Identifier: BSD-3-Clause */
/* Routes, path selection and the peer table: docs/protocol/lnet-core.md §7.4, §11. */
#include <errno.h>

#include "lib/base/err.h"
#include "test/unit/lnet_test.h"

static const struct lnet_result ok = {LNET_DROP_NONE, LNET_HEALTH_OK};

/* ---- rules ---- */

static int try_route(lnet_net_t net, struct lnet_nid gw, int hops)
{
    struct lnet_route_conf conf = {.net = net, .gateway = gw, .hops = hops};
    struct err err = {0};
    int rc = lnet_route_add(node, &conf, &err);

    assert_true((rc == 0) == (err.message[0] == 0)); /* every error has its sentence */
    return rc;
}

static void test_add_rules(void **state)
{
    const lnet_net_t tcp5 = LNET_NET(LNET_LND_SOCK, 5);
    struct lnet_nid gw, other_lo = LNET_NID_LO;
    struct err err = {0};

    node_up(opts_default());
    gw = N("10.0.0.9@tcp");
    other_lo.num_be = 0x0100;
    assert_int_equal(try_route(tcp5, LNET_NID_ANY, 1), -EINVAL);
    assert_int_equal(try_route(tcp5, LNET_NID_LO, 1), -EINVAL);
    assert_int_equal(try_route(tcp5, other_lo, 1), -EINVAL);
    assert_int_equal(try_route(LNET_NET_ANY, gw, 1), -EINVAL);
    assert_int_equal(try_route(LNET_NET(LNET_LND_LO, 0), gw, 1), -EINVAL);
    assert_int_equal(try_route(tcp5, N("10.5.0.1@tcp5"), 1), -EINVAL);
    assert_int_equal(try_route(tcp5, gw, 0), -EINVAL);
    assert_int_equal(try_route(tcp5, gw, 256), -EINVAL);
    assert_int_equal(try_route(tcp5, gw, -2), -EINVAL);
    assert_int_equal(try_route(tcp5, tcp0->nid, 1), -EINVAL);
    assert_int_equal(try_route(tcp1->net, gw, 1), -EEXIST);
    assert_int_equal(try_route(tcp5, N("10.6.0.1@tcp6"), 1), -EHOSTUNREACH);
    assert_int_equal(lnet_route_rows(node, NULL, 0), 0);

    assert_int_equal(try_route(tcp5, gw, LNET_HOPS_UNDEFINED), 0);
    assert_int_equal(try_route(tcp5, gw, 3), -EEXIST);
    assert_int_equal(try_route(tcp5, N("10.0.0.8@tcp"), 1), 0);
    assert_int_equal(try_route(tcp5, N("fd00::8@tcp1"), 255), 0);
    assert_int_equal(try_route(LNET_NET(LNET_LND_KFI, 1), gw, 1), 0); /* no LND needed there */
    assert_int_equal(lnet_route_rows(node, NULL, 0), 4);

    assert_int_equal(route_del(node, tcp1->net, &gw, &err), -ENOENT);
    assert_int_equal(route_del(node, tcp5, &tcp0->nid, &err), -ENOENT);
    assert_int_equal(route_del(node, tcp5, &gw, &err), 0);
    assert_int_equal(route_del(node, tcp5, &gw, &err), -ENOENT);
    assert_int_equal(try_route(tcp5, gw, 7), 0);
    settle();
    node_down();
}

static void test_rows(void **state)
{
    struct lnet_route_row rows[8];
    struct lnet_nid gw;
    unsigned n;

    node_up(opts_default());
    gw = N("10.0.0.9@tcp");
    route_add("tcp5", gw, 2, 7);
    route_add("tcp6", gw, -1, 0);
    memset(rows, 0xee, sizeof(rows));
    n = lnet_route_rows(node, rows, 8);
    assert_int_equal(n, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool five = rows[i].conf.net == LNET_NET(LNET_LND_SOCK, 5);

        assert_int_equal(rows[i].conf.net, LNET_NET(LNET_LND_SOCK, five ? 5 : 6));
        assert_int_equal(rows[i].conf.hops, five ? 2 : LNET_HOPS_UNDEFINED);
        assert_int_equal(rows[i].conf.priority, five ? 7 : 0);
        assert_true(nid_same(&rows[i].conf.gateway, &gw));
        assert_true(rows[i].up);
        assert_false(rows[i].single_hop);
    }
    settle();
    node_down();
}

/* ---- which gateway ---- */

/* Sends one from tcp1 to a net and says through which NID it went; ANY when it was dropped. */
static struct lnet_nid via(const char *dest)
{
    struct lnet_nid from = N("10.1.0.9@tcp1");

    settle();
    sent_clear();
    arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N(dest), 10));
    settle();
    return loop.nsent ? sent_last(LNET_MSG_PUT)->to : LNET_NID_ANY;
}

static void assert_via(const char *dest, const char *gw)
{
    struct lnet_nid got = via(dest), want = N(gw);

    if (!nid_same(&got, &want))
        fail_msg("%s goes not through %s", dest, gw);
}

static void set_down(const char *gw_nid, bool down)
{
    struct lnet_nid nid = N(gw_nid);
    struct lnet_peer_ni *p;

    ON(home_of(&nid), {
        p = lnet_peer_ni_get(node, &nid);
        lnet_peer_ni_notify(lnet_net_find(node, nid_net(&nid))->ni[0], p, !down);
        lnet_peer_ni_put(p);
    });
}

static void test_priority_and_hops(void **state)
{
    struct lnet_nid nid;
    struct err err = {0};

    node_up(opts_default());
    route_add("tcp5", N("10.0.0.11@tcp"), 9, 1);
    assert_via("10.5.0.1@tcp5", "10.0.0.11@tcp");
    route_add("tcp5", N("10.0.0.12@tcp"), 3, 1);
    assert_via("10.5.0.1@tcp5", "10.0.0.12@tcp"); /* fewer hops */
    route_add("tcp5", N("10.0.0.13@tcp"), -1, 1);
    assert_via("10.5.0.1@tcp5", "10.0.0.13@tcp"); /* undefined counts as 1 */
    route_add("tcp5", N("10.2.0.14@o2ib"), 200, 0);
    assert_via("10.5.0.1@tcp5", "10.2.0.14@o2ib"); /* priority before hops */
    assert_ptr_equal(sent_last(LNET_MSG_PUT)->ni, ib0);

    set_down("10.2.0.14@o2ib", true);
    assert_via("10.5.0.1@tcp5", "10.0.0.13@tcp");
    set_down("10.0.0.13@tcp", true);
    assert_via("10.5.0.1@tcp5", "10.0.0.12@tcp");
    set_down("10.0.0.12@tcp", true);
    assert_via("10.5.0.1@tcp5", "10.0.0.11@tcp");
    set_down("10.0.0.11@tcp", true);
    assert_int_equal(drops_sum(), 0);
    nid = via("10.5.0.1@tcp5");
    assert_true(nid_is_any(&nid));
    assert_int_equal(drops_of(LNET_DROP_NO_LIVE_ROUTE), 1);
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 0);
    assert_int_equal(ni_stats(tcp1).dropped[LNET_MSG_PUT], 1);
    nid = via("10.5.0.1@tcp6");
    assert_true(nid_is_any(&nid));
    assert_int_equal(drops_of(LNET_DROP_NO_ROUTE), 1);
    set_down("10.0.0.12@tcp", false);
    assert_via("10.5.0.1@tcp5", "10.0.0.12@tcp");

    /* A gateway that is thought down is up when anything comes from it. */
    nid = N("10.0.0.13@tcp");
    arrive(tcp0, nid, hdr_ping(nid, tcp0->nid));
    settle();
    assert_via("10.5.0.1@tcp5", "10.0.0.13@tcp");
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 5), &nid, &err), 0);
    assert_via("10.5.0.1@tcp5", "10.0.0.12@tcp");
    node_down();
}

static void test_equal_routes_alternate(void **state)
{
    static const char *const gws[] = {"10.0.0.11@tcp", "10.0.0.12@tcp", "10.2.0.13@o2ib"};
    struct lnet_node_opts o = opts_default();
    struct lnet_nid from;
    unsigned count[3] = {0}, i, k;

    o.egress_share = 100;
    node_up(o);
    from = N("10.1.0.9@tcp1");
    for (i = 0; i < 3; i++)
        route_add("tcp5", N(gws[i]), 1, 0);
    settle();
    sent_clear();
    for (i = 0; i < 30; i++) {
        arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N("10.5.0.1@tcp5"), 10));
        settle();
    }
    assert_int_equal(loop.nsent, 30);
    for (i = 0; i < loop.nsent; i++)
        for (k = 0; k < 3; k++) {
            struct lnet_nid gw = N(gws[k]);

            count[k] += nid_same(&loop.sent[i].to, &gw);
        }
    assert_int_equal(count[0], 10);
    assert_int_equal(count[1], 10);
    assert_int_equal(count[2], 10);
    /* Fewer queued bytes win. */
    loop.hold_send = true;
    for (i = 0; i < 3; i++) {
        arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N("10.5.0.1@tcp5"), 1300 * (i + 1)));
        settle();
    }
    assert_int_equal(loop.nheld, 3);
    for (i = 0; i < 3; i++) {
        struct sent *s;

        arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N("10.5.0.1@tcp5"), 0));
        settle();
        s = &loop.sent[loop.nsent - 1];
        assert_true(nid_same(&s->to, &loop.sent[30].to)); /* the 1300 bytes one, thrice */
    }
    send_end_all(ok);
    settle();
    check_quiet();
    node_down();
}

/* Two NIs on the final net take turns; a dead link is not used, and neither is an NI whose NIDs are
 * of the other length. */
static void test_best_ni(void **state)
{
    struct lnet_ni *a, *b, *six;
    struct lnet_nid from;
    unsigned n = 0;

    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    six = ni_add("fd00::1@tcp1");
    a = ni_add("10.1.0.1@tcp1");
    b = ni_add("10.1.0.2@tcp1");
    node_begin();
    from = N("10.0.0.9@tcp");
    for (unsigned i = 0; i < 10; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.0.9@tcp1"), 1));
        settle();
        n += sent_last(LNET_MSG_PUT)->ni == a;
        assert_ptr_not_equal(sent_last(LNET_MSG_PUT)->ni, six);
    }
    assert_int_equal(n, 5);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("fd00::9@tcp1"), 1));
    settle();
    assert_ptr_equal(sent_last(LNET_MSG_PUT)->ni, six);
    ON(0, lnet_ni_link(a, false));
    settle();
    for (unsigned i = 0; i < 4; i++) {
        arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.0.9@tcp1"), 1));
        settle();
        assert_ptr_equal(sent_last(LNET_MSG_PUT)->ni, b);
    }
    node_down();
}

/* ---- changes under way ---- */

static void test_replaced_while_parked(void **state)
{
    struct peer_msg *fx[20];
    struct lnet_nid from, gw1, gw2;
    unsigned n, total;
    struct err err = {0};

    node_up(opts_default());
    gw1 = N("10.0.0.11@tcp");
    gw2 = N("10.0.0.12@tcp");
    from = N("10.1.0.9@tcp1");
    route_add("tcp5", gw1, 1, 0);
    settle();
    total = 2 * pool_stats(home_of(&from), LNET_POOL_SMALL).total;
    loop.hold_send = true;
    sent_clear();
    for (unsigned i = 0; i < total; i++)
        fx[i] = arrive(tcp1, from, hdr_of(LNET_MSG_PUT, from, N("10.5.0.1@tcp5"), 100 + i));
    settle();
    n = loop.nsent;
    assert_int_equal(n, 3); /* the gateway's share of 8 */
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 5), &gw1, &err), 0);
    route_add("tcp5", gw2, 1, 0);
    while (sent_count(LNET_MSG_PUT) < total) {
        assert_true(loop.nheld > 0);
        send_end_all(ok);
        settle();
    }
    assert_int_equal(sent_count(LNET_MSG_PUT), total);
    for (unsigned i = 0; i < n; i++)
        assert_true(nid_same(&loop.sent[i].to, &gw1));
    for (unsigned i = n; i < loop.nsent; i++)
        assert_true(nid_same(&loop.sent[i].to, &gw2));
    assert_true(fx[total - 1]->done);
    send_end_all(ok);
    settle();
    assert_int_equal(drops_sum(), 0);
    node_down();
}

static void test_thousands(void **state)
{
    unsigned n = 3000;
    struct err err = {0};
    char net[32], dest[64], gw[64];
    struct lnet_nid nid;

    node_up(opts_default());
    loop.hold_send = false;
    for (unsigned i = 0; i < n; i++) {
        snprintf(net, sizeof(net), "%s%u", i & 1 ? "o2ib" : "tcp", 100 + i / 2);
        snprintf(gw, sizeof(gw), "10.0.1.%u@tcp", 1 + i % 50);
        assert_int_equal(route_add(net, N(gw), 1, 0), 0);
    }
    assert_int_equal(lnet_route_rows(node, NULL, 0), n);
    settle();
    for (unsigned i = 0; i < n; i += 37) {
        snprintf(dest, sizeof(dest), "10.9.0.1@%s%u", i & 1 ? "o2ib" : "tcp", 100 + i / 2);
        snprintf(gw, sizeof(gw), "10.0.1.%u@tcp", 1 + i % 50);
        assert_via(dest, gw);
    }
    nid = via("10.9.0.1@tcp99");
    assert_true(nid_is_any(&nid));
    nid = via("10.9.0.1@gip100");
    assert_true(nid_is_any(&nid));
    for (unsigned i = 0; i < n; i += 3) {
        lnet_net_t num = LNET_NET(i & 1 ? LNET_LND_O2IB : LNET_LND_SOCK, 100 + i / 2);

        snprintf(gw, sizeof(gw), "10.0.1.%u@tcp", 1 + i % 50);
        nid = N(gw);
        assert_int_equal(route_del(node, num, &nid, &err), 0);
    }
    for (unsigned i = 0; i < n; i += 17) {
        snprintf(dest, sizeof(dest), "10.9.0.1@%s%u", i & 1 ? "o2ib" : "tcp", 100 + i / 2);
        snprintf(gw, sizeof(gw), "10.0.1.%u@tcp", 1 + i % 50);
        if (i % 3 == 0) {
            nid = via(dest);
            assert_true(nid_is_any(&nid));
        } else {
            assert_via(dest, gw);
        }
    }
    node_down();
}

/* ---- the peer table ---- */

static void test_peer_eviction(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct lnet_peer_ni *kept[10], *p;
    struct lnet_nid nid;
    unsigned max;

    o.max_peers = 16 * nreactors;
    node_up(o);
    max = 16 * 5 / 4 + 64;
    for (unsigned i = 0; i < 10; i++) {
        nid = peer_on(0, 3, "tcp", i);
        ON(0, kept[i] = lnet_peer_ni_get(node, &nid));
        kept[i]->send_count[0] = i + 1;
    }
    for (unsigned i = 10; i < max; i++) {
        nid = peer_on(0, 3, "tcp", i);
        ON(0, p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_put(p));
    }
    assert_int_equal(loop.peers_freed, 0);
    /* 10 is used again, so 11 is the oldest. */
    nid = peer_on(0, 3, "tcp", 10);
    ON(0, p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_put(p));
    for (unsigned i = 0; i < 3; i++) {
        nid = peer_on(0, 3, "tcp", max + i);
        ON(0, p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_put(p));
        assert_int_equal(loop.peers_freed, i + 1);
        assert_int_equal(p->last_alive_us, 0);
        nid = peer_on(0, 3, "tcp", 11 + i);
        assert_null(peer_find(&nid));
    }
    nid = peer_on(0, 3, "tcp", 10);
    assert_non_null(peer_find(&nid));
    /* Those with references stay whatever comes. */
    for (unsigned i = 0; i < 3 * max; i++) {
        nid = peer_on(0, 4, "tcp", i);
        ON(0, p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_put(p));
    }
    for (unsigned i = 0; i < 10; i++) {
        nid = peer_on(0, 3, "tcp", i);
        assert_ptr_equal(peer_find(&nid), kept[i]);
        assert_int_equal(kept[i]->send_count[0], i + 1);
        ON(0, lnet_peer_ni_put(kept[i]));
    }
    assert_int_equal(node->shard[0]->peer->npeers, max);
    node_down();
}

struct rows_seen {
    unsigned calls, rows, last, found;
    struct lnet_nid want;
};

static void on_rows(void *arg, const struct lnet_peer_ni_row *rows, unsigned n, bool last)
{
    struct rows_seen *seen = arg;

    assert_ptr_equal(reactor_self(), reactor_control(env));
    seen->calls++;
    seen->rows += n;
    seen->last += last;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(rows[i].reactor, home_of(&rows[i].nid));
        if (nid_same(&rows[i].nid, &seen->want)) {
            seen->found++;
            assert_int_equal(rows[i].recv_count[LNET_MSG_PUT], 1);
            assert_int_equal(rows[i].last_alive_us, clock_us);
        }
    }
}

static void test_peer_rows(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct rows_seen seen = {0};
    struct lnet_peer_ni *p;
    struct lnet_nid nid, from;

    o.max_peers = 2000;
    node_up(o);
    /* without peers: one page or more, the last one marked */
    assert_int_equal(peer_ni_rows(node, on_rows, &seen), 0);
    settle();
    assert_int_equal(seen.last, 1);
    assert_int_equal(seen.rows, 0);
    from = peer_on(1, 0, "tcp", 0);
    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, N("10.1.9.9@tcp1"), 5));
    for (unsigned r = 0; r < nreactors; r++)
        for (unsigned i = 0; i < 500; i++) {
            nid = peer_on(r, 3, "tcp", i);
            ON(r, p = lnet_peer_ni_get(node, &nid); lnet_peer_ni_put(p));
        }
    seen = (struct rows_seen){.want = from};
    assert_int_equal(peer_ni_rows(node, on_rows, &seen), 0);
    settle();
    assert_int_equal(seen.rows, 500 * nreactors + 2);
    assert_int_equal(seen.last, 1);
    assert_int_equal(seen.found, 1);
    assert_true(seen.calls >= 4 * nreactors);
    node_down();
}

/* ---- nodes that cannot be ---- */

static void test_ni_rules(void **state)
{
    struct lnet_ni_conf conf = {.nid = N("10.0.0.1@tcp"), .net = LNET_NET(LNET_LND_SOCK, 0)};
    struct lnet_ni_conf bad;
    struct err err = {0};

    node_make(opts_default());
    assert_int_equal(lnet_ni_add(node, &conf, NULL, &err), 0);
    assert_int_equal(lnet_ni_add(node, &conf, NULL, &err), -EEXIST);
    bad = conf;
    bad.net = LNET_NET(LNET_LND_SOCK, 1);
    assert_int_equal(lnet_ni_add(node, &bad, NULL, &err), -EINVAL);
    bad.nid = N("1@kfi");
    bad.net = LNET_NET(LNET_LND_KFI, 0);
    assert_int_equal(lnet_ni_add(node, &bad, NULL, &err), -EOPNOTSUPP);
    loop.init_error = -ENODEV;
    conf.nid = N("10.0.0.2@tcp");
    assert_int_equal(lnet_ni_add(node, &conf, NULL, &err), -ENODEV);
    assert_string_equal(err.message, "loopback: no");
    loop.init_error = 0;
    loop.inited -= loop.fini;
    loop.fini = 0;
    for (unsigned i = 1; i < LNET_MAX_NI; i++) {
        char text[64];

        snprintf(text, sizeof(text), "10.0.1.%u@tcp%u", i, i);
        ni_add(text);
    }
    conf.nid = N("10.0.0.2@tcp");
    assert_int_equal(lnet_ni_add(node, &conf, NULL, &err), -ENOSPC);
    node_begin();
    assert_int_equal(loop.started, LNET_MAX_NI);
    assert_int_equal(lnet_ni_add(node, &conf, NULL, &err), -EBUSY);
    node_down();
}

/* More memory than there is: said, and everything given back. */
static void test_no_memory(void **state)
{
    struct lnet_node_opts o = opts_default();
    struct err err = {0};

    o.large = 100000;
    assert_true(lnet_node_create(&o, &node, &err) < 0);
    assert_null(node);
    assert_true(err.message[0] != 0);
    node_up(opts_default());
    node_down();
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_add_rules),         LNET_TEST(test_rows),
    LNET_TEST(test_priority_and_hops), LNET_TEST(test_equal_routes_alternate),
    LNET_TEST(test_best_ni),           LNET_TEST(test_replaced_while_parked),
    LNET_TEST(test_thousands),         LNET_TEST(test_peer_eviction),
    LNET_TEST(test_peer_rows),         LNET_TEST(test_ni_rules),
    LNET_TEST(test_no_memory),
};

LNET_TESTS_MAIN("test_lnet_route", tests)
