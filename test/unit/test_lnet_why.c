/* SPDX-License-Identifier: BSD-3-Clause */
/* What lnet_why() says is what happens to the next message; and why the others are not taken. */
#include "lib/base/err.h"
#include "test/unit/lnet_test.h"

/* ---- asking ---- */

static struct lnet_why_answer said;
static unsigned nsaid;

static void note(void *arg, const struct lnet_why_answer *answer)
{
    assert_ptr_equal(arg, &said);
    assert_ptr_equal(reactor_self(), reactor_control(env));
    said = *answer;
    nsaid++;
}

static void ask(struct lnet_nid dest, struct lnet_nid src)
{
    unsigned before = nsaid;

    memset(&said, 0xff, sizeof(said));
    assert_int_equal(lnet_why(node, &dest, &src, note, &said), 0);
    settle();
    assert_int_equal(nsaid, before + 1);
}

static enum lnet_why verdict(struct lnet_nid gw)
{
    for (unsigned i = 0; i < said.nroutes; i++)
        if (nid_same(&said.route[i].row.conf.gateway, &gw))
            return said.route[i].why;
    fail_msg("a route is not told of");
    abort();
}

static enum lnet_why ni_verdict(const struct lnet_ni *ni)
{
    for (unsigned i = 0; i < said.nnis; i++)
        if (said.nis[i].index == ni->index)
            return said.nis[i].why;
    fail_msg("an NI is not told of");
    abort();
}

static struct lnet_ni *tcp1b;

static void why_up(void)
{
    node_make(opts_default());
    tcp0 = ni_add("10.0.0.1@tcp");
    tcp1 = ni_add("10.1.0.1@tcp1");
    tcp1b = ni_add("10.1.0.2@tcp1");
    ib0 = ni_add("10.2.0.1@o2ib");
    node_begin();
}

static struct lnet_gw_ni *gw_ni(struct lnet_nid nid)
{
    return lnet_gw_ni_find(node, &nid);
}

static struct lnet_route *route_of(lnet_net_t net, struct lnet_nid gw)
{
    struct lnet_route *const *r;
    unsigned i, n = lnet_conf_routes(lnet_conf_get(node), net, &r);

    for (i = 0; i < n; i++)
        if (nid_same(&r[i]->gw->nid, &gw))
            return r[i];
    abort();
}

/* ---- it is so ---- */

#define GWS 6

static struct lnet_nid far_gw(unsigned k)
{
    char text[32];

    snprintf(text, sizeof(text), k < 4 ? "10.1.0.%u@tcp1" : "10.2.0.%u@o2ib", 100 + k);
    return N(text);
}

static void shake(uint64_t (*random)(void))
{
    struct lnet_nid gw = far_gw((unsigned)(random() % GWS));
    lnet_net_t net = LNET_NET(LNET_LND_SOCK, 5 + random() % 2);

    switch (random() % 8) {
    case 0:
        gw_ni(gw)->pairs_down = (uint64_t[]){0, UINT64_MAX, lnet_ni_bit(tcp1)}[random() % 3];
        break;
    case 1:
        route_of(net, gw)->up = random() % 3 > 0;
        break;
    case 2:
        gw_ni(gw)->queued_bytes = random() % 3 * 100;
        break;
    case 3:
        tcp1->fatal = random() % 3 == 0; /* with both down each message chooses once more */
        break;
    case 4:
        gw_ni(gw)->health = random() % 2 ? LNET_MAX_HEALTH : 900;
        break;
    case 5:
        tcp1->health = random() % 2 ? LNET_MAX_HEALTH : 900;
        break;
    default:
        break;
    }
}

static uint64_t next_random(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void check_drop(struct lnet_nid from, struct lnet_nid to)
{
    uint64_t before = drops_of(said.drop), sum = drops_sum();

    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 10));
    settle();
    assert_int_equal(drops_of(said.drop), before + 1);
    assert_int_equal(drops_sum(), sum + 1);
}

static void check_sent(struct lnet_nid from, struct lnet_nid to)
{
    unsigned n = sent_count(LNET_MSG_PUT);
    const struct sent *s;

    arrive(tcp0, from, hdr_of(LNET_MSG_PUT, from, to, 10));
    settle();
    assert_int_equal(sent_count(LNET_MSG_PUT), n + 1);
    s = sent_last(LNET_MSG_PUT);
    assert_true(nid_same(&s->to, &said.next_hop));
    assert_int_equal(s->ni->index, said.ni);
}

/* Whatever the state of things, the next message goes as was said, and asking changes nothing. */
static void test_agrees(void **state)
{
    static const char *const dests[] = {"10.5.0.1@tcp5", "10.6.0.1@tcp6", "10.1.0.77@tcp1",
                                        "10.2.0.77@o2ib", "10.9.0.9@tcp9"};
    unsigned i, k, chosen, sent = 0, dropped = 0, had[LNET_WHY_COUNT] = {0};

    why_up();
    for (k = 0; k < GWS; k++) {
        assert_int_equal(route_add("tcp5", far_gw(k), k % 3 == 2 ? 2 : -1, 0), 0);
        assert_int_equal(route_add("tcp6", far_gw(k), k % 2 ? 1 : 3, k / 4), 0);
    }
    settle();
    for (i = 0; i < 2000; i++) {
        struct lnet_nid from = peer_on((unsigned)next_random(), 0, "tcp", next_random() % 3);
        struct lnet_nid to = N(dests[next_random() % 5]);
        struct lnet_why_answer before;

        shake(next_random);
        if (i % 1000 == 0)
            sent_clear();
        ask(to, from);
        before = said;
        ask(to, from);
        assert_memory_equal(&said, &before, sizeof(said));
        assert_false(said.mine);
        for (k = 0, chosen = 0; k < said.nroutes; k++) {
            had[said.route[k].why]++;
            chosen += said.route[k].why == LNET_WHY_CHOSEN;
        }
        assert_int_equal(chosen, !said.drop && !said.local);
        for (k = 0, chosen = 0; k < said.nnis; k++) {
            had[said.nis[k].why]++;
            chosen += said.nis[k].why == LNET_WHY_CHOSEN;
        }
        assert_int_equal(chosen, !said.drop);
        if (said.drop) {
            dropped++;
            check_drop(from, to);
        } else {
            sent++;
            check_sent(from, to);
        }
    }
    assert_true(sent > 200 && dropped > 100);
    for (i = 0; i < LNET_WHY_COUNT; i++)
        if (i != LNET_WHY_NO_LOCAL_NET && i != LNET_WHY_OTHER_NET && i != LNET_WHY_NOT_SOURCE &&
            i != LNET_WHY_NID_SIZE && i != LNET_WHY_PEER_NI_DOWN && i != LNET_WHY_NI_CREDITS &&
            i != LNET_WHY_PEER_NI_CREDITS && i != LNET_WHY_NI_PRIORITY &&
            i != LNET_WHY_NI_PREFERRED && i != LNET_WHY_PEER_NI_PRIORITY &&
            i != LNET_WHY_PEER_NI_PREFERRED && i != LNET_WHY_GATEWAY_PREFERRED &&
            had[i] == 0) /* of these: test_lnet_rails.c, test_lnet_udsp.c */
            fail_msg("%s never happened", lnet_why_name((enum lnet_why)i));
    for (k = 0; k < GWS; k++)
        gw_ni(far_gw(k))->queued_bytes = 0;
    node_down();
}

/* ---- by name ---- */

static void test_routes(void **state)
{
    struct lnet_nid a = far_gw(0), b = far_gw(1), c = far_gw(2), d = far_gw(4);
    struct lnet_nid far = N("10.5.0.1@tcp5"), from = N("10.0.0.50@tcp");
    struct err err = {0};

    why_up();
    ask(far, from);
    assert_int_equal(said.drop, LNET_DROP_NO_ROUTE);
    assert_int_equal(said.nroutes, 0);
    assert_int_equal(said.ni, -1);
    assert_false(said.peer_known);
    assert_int_equal(route_add("tcp5", a, 1, 3), 0);
    assert_int_equal(route_add("tcp5", b, 1, 2), 0);
    assert_int_equal(route_add("tcp5", c, 2, 2), 0);
    assert_int_equal(route_add("tcp5", d, 1, 2), 0);
    settle();
    gw_ni(d)->queued_bytes = 500;
    ask(far, from);
    assert_int_equal(said.drop, LNET_DROP_NONE);
    assert_true(nid_same(&said.next_hop, &b));
    assert_int_equal(verdict(a), LNET_WHY_PRIORITY);
    assert_int_equal(verdict(b), LNET_WHY_CHOSEN);
    assert_int_equal(verdict(c), LNET_WHY_HOPS);
    assert_int_equal(verdict(d), LNET_WHY_QUEUE);
    gw_ni(d)->queued_bytes = 0;
    gw_ni(b)->pairs_down = UINT64_MAX;
    route_of(LNET_NET(LNET_LND_SOCK, 5), d)->up = false;
    ask(far, from);
    assert_true(nid_same(&said.next_hop, &c));
    assert_int_equal(verdict(b), LNET_WHY_GATEWAY_DOWN);
    assert_int_equal(verdict(d), LNET_WHY_NET_DOWN);
    assert_int_equal(verdict(a), LNET_WHY_PRIORITY);
    gw_ni(a)->pairs_down = gw_ni(c)->pairs_down = UINT64_MAX;
    ask(far, from);
    assert_int_equal(said.drop, LNET_DROP_NO_LIVE_ROUTE);
    assert_int_equal(said.nroutes, 4);
    assert_int_equal(verdict(a), LNET_WHY_GATEWAY_DOWN);
    gw_ni(a)->pairs_down = gw_ni(c)->pairs_down = 0;
    assert_int_equal(route_del(node, LNET_NET(LNET_LND_SOCK, 5), &c, &err), 0);
    ask(far, from);
    assert_int_equal(said.nroutes, 3);
    node_down();
}

/* One of our own from a NID of ours leaves by that NI. */
static void test_source(void **state)
{
    struct lnet_nid a = far_gw(0), d = far_gw(4), far = N("10.5.0.1@tcp5");

    why_up();
    assert_int_equal(route_add("tcp5", a, 1, 0), 0);
    assert_int_equal(route_add("tcp5", d, 1, 1), 0);
    settle();
    ask(far, ib0->nid);
    assert_true(nid_same(&said.next_hop, &d));
    assert_int_equal(said.ni, (int)ib0->index);
    assert_int_equal(verdict(a), LNET_WHY_OTHER_NET);
    ask(far, tcp1b->nid);
    assert_true(nid_same(&said.next_hop, &a));
    assert_int_equal(said.ni, (int)tcp1b->index);
    assert_int_equal(ni_verdict(tcp1), LNET_WHY_NOT_SOURCE);
    assert_int_equal(ni_verdict(tcp1b), LNET_WHY_CHOSEN);
    assert_int_equal(verdict(d), LNET_WHY_OTHER_NET);
    ask(far, tcp0->nid);
    assert_int_equal(said.drop, LNET_DROP_NO_LIVE_ROUTE);
    ask(far, LNET_NID_ANY);
    assert_true(nid_same(&said.next_hop, &a));
    ask(N("10.1.0.9@tcp1"), LNET_NID_ANY);
    assert_true(said.local && !said.mine);
    assert_int_equal(said.nroutes, 0);
    tcp1->fatal = true;
    ask(N("10.1.0.9@tcp1"), LNET_NID_ANY);
    assert_int_equal(said.ni, (int)tcp1b->index);
    assert_int_equal(ni_verdict(tcp1), LNET_WHY_LINK_DOWN);
    tcp1->fatal = false;
    node_down();
}

static void test_refused(void **state)
{
    struct lnet_node_opts opts = opts_default();
    struct lnet_nid from = N("10.0.0.50@tcp"), behind = N("10.7.0.1@tcp7");

    why_up();
    ask(tcp0->nid, from);
    assert_true(said.mine && !said.drop && said.ni == -1);
    ask(N("0@lo"), LNET_NID_ANY);
    assert_true(said.mine);
    ask(tcp1->nid, from); /* not by the net it came in on */
    assert_int_equal(said.drop, LNET_DROP_DEST_OTHER_OWN_NID);
    ask(N("10.0.0.51@tcp"), from);
    assert_int_equal(said.drop, LNET_DROP_DEST_SAME_NET);
    ask(N("10.1.0.51@tcp1"), behind); /* nobody could bring it */
    assert_int_equal(said.drop, LNET_DROP_SRC_NOT_ALLOWED);
    assert_int_equal(route_add("tcp7", N("10.0.0.60@tcp"), 1, 0), 0);
    settle();
    ask(N("10.1.0.51@tcp1"), behind);
    assert_int_equal(said.drop, LNET_DROP_NONE);
    ask(N("10.0.0.51@tcp"), behind); /* it comes in on tcp */
    assert_int_equal(said.drop, LNET_DROP_DEST_SAME_NET);
    gw_ni(N("10.0.0.60@tcp"))->pairs_down = UINT64_MAX;
    ask(N("10.1.0.51@tcp1"), behind); /* it may still send */
    assert_int_equal(said.drop, LNET_DROP_NONE);
    node_down();

    opts.routing = false;
    node_up(opts);
    ask(N("10.1.0.51@tcp1"), from);
    assert_int_equal(said.drop, LNET_DROP_ROUTING_OFF);
    ask(N("10.1.0.51@tcp1"), LNET_NID_ANY);
    assert_int_equal(said.drop, LNET_DROP_NONE);
    node_down();
}

/* The next hop's peer NI is asked for where it lives. */
static void test_peer(void **state)
{
    struct lnet_peer_ni *p;

    why_up();
    for (unsigned i = 0; i < nreactors; i++) {
        struct lnet_nid nid = peer_on(i, 1, "tcp1", 7);

        ask(nid, LNET_NID_ANY);
        assert_false(said.peer_known);
        ON(i, p = lnet_peer_ni_get(node, &nid));
        ask(nid, LNET_NID_ANY);
        assert_true(said.peer_known);
        assert_true(nid_same(&said.peer.nid, &nid));
        assert_int_equal(said.peer.reactor, i);
        ON(i, lnet_peer_ni_put(p));
    }
    node_down();
}

static void test_names(void **state)
{
    for (unsigned i = 0; i < LNET_WHY_COUNT; i++) {
        assert_true(strlen(lnet_why_text((enum lnet_why)i)) > 20);
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(lnet_why_name((enum lnet_why)i),
                                    lnet_why_name((enum lnet_why)k));
    }
}

static const struct CMUnitTest tests[] = {
    LNET_TEST(test_agrees),  LNET_TEST(test_routes), LNET_TEST(test_source),
    LNET_TEST(test_refused), LNET_TEST(test_peer),   LNET_TEST(test_names),
};

LNET_TESTS_MAIN("test-lnet-why", tests)
